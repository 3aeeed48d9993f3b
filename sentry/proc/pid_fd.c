/* /proc/PID/{fd,fdinfo,task} and the magic links exe, cwd, root. */
#include "sentry/proc/internal.h"
#include "sentry/fd/fdtable.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Descriptor tables are found anew at each use: the task may share, unshare or drop its own. */
static struct fd_table *table_of(const struct proc_ctx *c)
{
	struct task *t = proc_task(c);
	struct fd_table *fds = t ? task_get_fds(t) : NULL;

	task_put(t);
	return fds;
}

/* The file that c->number names, a reference. */
static struct file *file_of(const struct proc_ctx *c)
{
	struct fd_table *fds = table_of(c);
	struct file *f = fds ? fd_get_any(fds, (int)c->number) : NULL;

	fd_table_put(fds);
	return f;
}

static const struct cred *viewer(void)
{
	return current_task ? current_task->cred : NULL;
}

static bool may_look(const struct proc_ctx *c)
{
	return !viewer() || proc_may_access(c->tg, viewer());
}

/* A path for following: the file's own, or one made for its unnamed inode. Returns references. */
static int path_of_file(struct file *f, struct path *ret)
{
	if (f->path.dentry) {
		*ret = f->path;
		path_get(ret);
		return 0;
	}
	*ret = (struct path){ 0 };
	return dentry_new_root(f->inode, &ret->dentry);
}

/* ---- fd ---- */

static ssize_t fd_link(const struct proc_ctx *c, char *dst, size_t size)
{
	struct path root;
	struct file *f;
	ssize_t n;

	if (!may_look(c))
		return -EACCES;
	f = file_of(c);
	if (!f)
		return -ENOENT;
	proc_reader_root(&root);
	n = file_text(f, &root, dst, size);
	path_put(&root);
	file_put(f);
	return n == -ERANGE ? -ENAMETOOLONG : n;
}

static int fd_follow(const struct proc_ctx *c, struct path *ret)
{
	struct file *f;
	int err;

	if (!may_look(c))
		return -EACCES;
	f = file_of(c);
	if (!f)
		return -ENOENT;
	err = path_of_file(f, ret);
	file_put(f);
	return err;
}

static const struct proc_entry fd_entry_link = {
	.name = "",
	.mode = S_IFLNK | 0777,
	.link = fd_link,
	.follow = fd_follow,
};

/* The link's permission bits show how the file is open. */
static u32 fd_mode(struct file *f)
{
	u32 mode = 0100;

	if (file_flags(f) & O_PATH)
		return 0;
	if (file_readable(f))
		mode |= 0400;
	if (file_writable(f))
		mode |= 0200;
	return mode;
}

static int fd_lookup(struct inode *dir, const struct proc_ctx *c, const char *name,
		     struct inode **ret)
{
	struct proc_ctx of = *c;
	s64 fd = proc_parse_number(name, FD_TABLE_MAX);
	struct file *f;
	int err;

	if (fd < 0)
		return -ENOENT;
	of.number = (u64)fd;
	f = file_of(&of);
	if (!f)
		return -ENOENT;
	err = proc_inode_new(&of, &fd_entry_link, ret);
	if (!err)
		(*ret)->mode = S_IFLNK | fd_mode(f);
	file_put(f);
	return err;
}

static int list_fds(const struct proc_ctx *c, const struct proc_entry *entry, u8 type,
		    struct dir_emit *e, u64 *pos)
{
	struct fd_table *fds = table_of(c);
	struct proc_ctx of = *c;
	int fd;

	if (!fds)
		return 0;
	/* a position is a descriptor number, so what opens and closes meanwhile moves nothing */
	while ((fd = fd_next(fds, (int)(*pos - PROC_POS_DYNAMIC))) >= 0) {
		char name[16];
		int len = snprintf(name, sizeof(name), "%d", fd);
		u64 next = PROC_POS_DYNAMIC + (u64)fd + 1;

		of.number = (u64)fd;
		if (!e->emit(e, name, (size_t)len, proc_ino(&of, entry), type, next))
			break;
		*pos = next;
	}
	fd_table_put(fds);
	return 0;
}

static int fd_list(const struct proc_ctx *c, struct dir_emit *e, u64 *pos)
{
	if (!may_look(c))
		return -EACCES;
	return list_fds(c, &fd_entry_link, DT_LNK, e, pos);
}

static int fd_permission(struct inode *dir, const struct proc_ctx *c, const struct cred *cred,
			 int mask)
{
	if (mask & MAY_WRITE)
		return -EACCES;
	if (current_task && current_task->tg == c->tg)
		return 0;
	return vfs_permission_bits(dir->mode, dir->uid, dir->gid, cred, mask);
}

const struct proc_entry proc_fd_entry = {
	.name = "fd",
	.mode = S_IFDIR | 0500,
	.lookup = fd_lookup,
	.list = fd_list,
	.permission = fd_permission,
};

/* ---- fdinfo ---- */

static int fdinfo_show(const struct proc_ctx *c, struct file *reader, struct textbuf *out)
{
	struct fd_table *fds = table_of(c);
	struct file *f = fds ? fd_get_any(fds, (int)c->number) : NULL;
	int cloexec = fds ? fd_get_cloexec(fds, (int)c->number) : 0;
	char extra[2048] = "";
	u64 pos;

	fd_table_put(fds);
	if (!f)
		return -ENOENT;
	/* the reader holds its own position lock: a torn position is better than nesting */
	pos = f->ops && f->ops->own_pos ? (u64)f->ops->seek(f, 0, SEEK_CUR)
					: __atomic_load_n(&f->pos, __ATOMIC_RELAXED);
	textbuf_printf(out, "pos:\t%lu\nflags:\t0%o\nmnt_id:\t%d\nino:\t%lu\n", pos,
		       file_flags(f) | (cloexec == 1 ? O_CLOEXEC : 0), 0, f->inode->ino);
	if (f->ops && f->ops->fdinfo) {
		f->ops->fdinfo(f, extra, sizeof(extra));
		textbuf_write(out, extra, strlen(extra));
	}
	file_put(f);
	return 0;
}

static const struct proc_entry fdinfo_file = PROC_FILE("", 0400, fdinfo_show);

static int fdinfo_lookup(struct inode *dir, const struct proc_ctx *c, const char *name,
			 struct inode **ret)
{
	struct proc_ctx of = *c;
	s64 fd = proc_parse_number(name, FD_TABLE_MAX);
	struct file *f;

	if (fd < 0)
		return -ENOENT;
	of.number = (u64)fd;
	f = file_of(&of);
	if (!f)
		return -ENOENT;
	file_put(f);
	return proc_inode_new(&of, &fdinfo_file, ret);
}

static int fdinfo_list(const struct proc_ctx *c, struct dir_emit *e, u64 *pos)
{
	if (!may_look(c))
		return -EACCES;
	return list_fds(c, &fdinfo_file, DT_REG, e, pos);
}

const struct proc_entry proc_fdinfo_entry = {
	.name = "fdinfo",
	.mode = S_IFDIR | 0555,
	.lookup = fdinfo_lookup,
	.list = fdinfo_list,
	.permission = fd_permission,
};

/* ---- exe, cwd, root ---- */

static void exe_get(void *file)
{
	file_get(file);
}

static struct file *exe_of(const struct proc_ctx *c)
{
	struct mm *mm;
	struct file *f;

	if (proc_task_mm(c, NULL, false, &mm) || !mm)
		return NULL;
	f = mm_get_exe(mm, exe_get);
	mm_put(mm);
	return f;
}

/* Index of the entry: 0 cwd, 1 root, 2 exe. Returns references. */
int proc_special_follow(const struct proc_ctx *c, struct path *ret)
{
	struct task *t;
	struct fs_context *fs;
	struct file *exe;
	int err;

	if (!may_look(c))
		return -EACCES;
	if (c->entry->index == 2) {
		exe = exe_of(c);
		if (!exe)
			return -ENOENT;
		err = path_of_file(exe, ret);
		file_put(exe);
		return err;
	}
	t = proc_task(c);
	fs = t ? task_get_fs(t) : NULL;
	task_put(t);
	if (!fs)
		return -ENOENT;
	mutex_lock(&fs->lock);
	*ret = c->entry->index ? fs->root : fs->cwd;
	path_get(ret);
	mutex_unlock(&fs->lock);
	fs_context_put(fs);
	return 0;
}

ssize_t proc_special_link(const struct proc_ctx *c, char *dst, size_t size)
{
	struct path p, root;
	ssize_t n = proc_special_follow(c, &p);

	if (n)
		return n;
	proc_reader_root(&root);
	n = path_text(&p, &root, dst, size);
	path_put(&root);
	path_put(&p);
	return n == -ERANGE ? -ENAMETOOLONG : n;
}

/* ---- task ---- */

static const struct proc_entry task_dir = PROC_DIR("", proc_tid_entries);

static int task_lookup(struct inode *dir, const struct proc_ctx *c, const char *name,
		       struct inode **ret)
{
	struct proc_ctx of = *c;
	s64 tid = proc_parse_number(name, PID_LIMIT + 1);
	struct task *t;

	if (tid <= 0)
		return -ENOENT;
	of.tid = (int)tid;
	t = proc_task(&of);
	if (!t)
		return -ENOENT;
	task_put(t);
	return proc_inode_new(&of, &task_dir, ret);
}

static int task_list(const struct proc_ctx *c, struct dir_emit *e, u64 *pos)
{
	int tid = (int)(*pos - PROC_POS_DYNAMIC);

	while ((tid = task_next_in_group(c->tg, tid)) != 0) {
		struct proc_ctx of = *c;
		char name[16];
		int len = snprintf(name, sizeof(name), "%d", tid);

		of.tid = tid;
		if (!e->emit(e, name, (size_t)len, proc_ino(&of, &task_dir), DT_DIR,
			     PROC_POS_DYNAMIC + (u64)tid))
			return 0;
		*pos = PROC_POS_DYNAMIC + (u64)tid;
	}
	return 0;
}

const struct proc_entry proc_task_entry = {
	.name = "task",
	.mode = S_IFDIR | 0555,
	.lookup = task_lookup,
	.list = task_list,
};
