/* Inodes of /proc and /sys from tables of entries, and the two superblocks. */
#include "sentry/proc/internal.h"
#include "base/host_time.h"
#include <dirent.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- contexts ---- */

static void ctx_put(void *arg)
{
	struct proc_ctx *c = arg;

	thread_group_put(c->tg);
	free(c);
}

static struct proc_ctx *ctx_copy(const struct proc_ctx *c, const struct proc_entry *e)
{
	struct proc_ctx *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *c;
	copy->entry = e;
	if (copy->tg)
		thread_group_get(copy->tg);
	return copy;
}

u64 proc_ino(const struct proc_ctx *c, const struct proc_entry *e)
{
	/* the place among this program's tables: the same in each run, and no address */
	u64 id = ((uintptr_t)e - (uintptr_t)proc_root_entries) >> 3 & 0xfffff;
	u64 pid = c->tg ? (u64)(c->tid ? c->tid + PID_LIMIT : c->tg->tgid) : 0;

	if (c->sb && e == &proc_sb_of(c)->root)
		return 1;
	return (pid << 32 | id << 12 | (c->number & 0xfff)) + 2;
}

s64 proc_parse_number(const char *name, s64 limit)
{
	s64 n = 0;

	if (!*name || (*name == '0' && name[1]))
		return -1;
	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return -1;
		n = n * 10 + (*name - '0');
		if (n >= limit)
			return -1;
	}
	return n;
}

/* ---- the three kinds of inode ---- */

static int entry_show(struct file *f, void *arg, struct textbuf *out)
{
	const struct proc_ctx *c = arg;

	if (c->entry->show)
		return c->entry->show(c, f, out);
	textbuf_write(out, c->entry->text, strlen(c->entry->text));
	return 0;
}

static ssize_t entry_store(struct file *f, void *arg, const char *data, size_t len)
{
	const struct proc_ctx *c = arg;

	return c->entry->store(c, f, data, len);
}

static const struct synth_file_ops read_only_ops = { .show = entry_show };
static const struct synth_file_ops read_write_ops = { .show = entry_show, .store = entry_store };
static const struct synth_file_ops write_only_ops = { .store = entry_store };

static ssize_t entry_link(void *arg, char *dst, size_t size)
{
	const struct proc_ctx *c = arg;
	size_t len;

	if (c->entry->link)
		return c->entry->link(c, dst, size);
	len = strlen(c->entry->text);
	if (len >= size)
		return -ERANGE;
	memcpy(dst, c->entry->text, len + 1);
	return (ssize_t)len;
}

static int entry_follow(void *arg, struct path *ret)
{
	const struct proc_ctx *c = arg;

	return c->entry->follow(c, ret);
}

static const struct synth_link_ops text_link_ops = { .text = entry_link };
static const struct synth_link_ops magic_link_ops = { .text = entry_link, .follow = entry_follow };

const struct proc_entry *proc_find_entry(const struct proc_entry *table, const char *name)
{
	for (; table && table->name; table++) {
		if (!strcmp(table->name, name))
			return table;
	}
	return NULL;
}

static bool gone(const struct proc_ctx *c)
{
	struct task *t = c->tg ? proc_task(c) : NULL;

	task_put(t);
	return c->tg && !t;
}

static int entry_lookup(struct inode *dir, void *arg, const char *name, struct inode **ret)
{
	const struct proc_ctx *c = arg;
	const struct proc_entry *e = proc_find_entry(c->entry->children, name);

	if (gone(c))
		return -ENOENT;
	if (e)
		return proc_inode_new(c, e, ret);
	return c->entry->lookup ? c->entry->lookup(dir, c, name, ret) : -ENOENT;
}

bool proc_list_entries(const struct proc_ctx *c, const struct proc_entry *table, struct dir_emit *e,
		       u64 *pos)
{
	for (u64 i = 0; table && table[i].name; i++) {
		u64 at = PROC_POS_STATIC + i;

		if (at < *pos)
			continue;
		if (!e->emit(e, table[i].name, strlen(table[i].name), proc_ino(c, &table[i]),
			     (u8)IFTODT(table[i].mode), at + 1))
			return false;
		*pos = at + 1;
	}
	return true;
}

static int entry_list(struct inode *dir, void *arg, struct dir_emit *e, u64 *pos)
{
	const struct proc_ctx *c = arg;

	if (gone(c))
		return -ENOENT;
	if (*pos < PROC_POS_DYNAMIC) {
		if (!proc_list_entries(c, c->entry->children, e, pos))
			return 0;
		*pos = PROC_POS_DYNAMIC;
	}
	return c->entry->list ? c->entry->list(c, e, pos) : 0;
}

static int entry_permission(struct inode *dir, void *arg, const struct cred *cred, int mask)
{
	const struct proc_ctx *c = arg;

	if (c->entry->permission)
		return c->entry->permission(dir, c, cred, mask);
	return vfs_permission_bits(dir->mode, dir->uid, dir->gid, cred, mask);
}

static const struct synth_dir_ops dir_ops = {
	.lookup = entry_lookup,
	.list = entry_list,
	.permission = entry_permission,
};

int proc_inode_new(const struct proc_ctx *c, const struct proc_entry *e, struct inode **ret)
{
	const struct synth_file_ops *fops = !e->store		 ? &read_only_ops
					    : e->show || e->text ? &read_write_ops
								 : &write_only_ops;
	struct proc_ctx *copy = ctx_copy(c, e);
	u32 uid = 0, gid = 0, mode = e->mode & 07777;
	u64 ino = proc_ino(c, e);
	int err;

	if (!copy)
		return -ENOMEM;
	if (e->make) {
		err = e->make(copy, ret);
		ctx_put(copy);
		return err;
	}
	if (c->tg)
		proc_owner(c, &uid, &gid);
	if (S_ISLNK(e->mode))
		err = synth_link_new(c->sb, e->follow ? &magic_link_ops : &text_link_ops, copy,
				     ctx_put, ino, ret);
	else if (S_ISDIR(e->mode))
		err = synth_dir_new(c->sb, mode, uid, gid, &dir_ops, copy, ctx_put, ino, ret);
	else
		err = synth_file_new(c->sb, mode, uid, gid, fops, copy, ctx_put, ino, ret);
	if (err)
		ctx_put(copy);
	else if (S_ISDIR(e->mode))
		(*ret)->nlink = 2;
	return err;
}

/* ---- superblocks ---- */

static int proc_statfs(struct superblock *sb, struct statfs *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->f_type = (long)sb->magic;
	ret->f_bsize = ret->f_frsize = PAGE_SIZE;
	ret->f_namelen = 255;
	return 0;
}

static void proc_destroy(struct superblock *sb)
{
	struct proc_sb *p = container_of(sb, struct proc_sb, sb);

	mutex_destroy(&p->lock);
	free(p);
}

static const struct superblock_ops sb_ops = {
	.statfs = proc_statfs,
	.destroy = proc_destroy,
};

static int superblock_new(struct kernel *k, const char *type, u64 magic,
			  const struct proc_entry *root, struct superblock **ret)
{
	struct proc_sb *p = calloc(1, sizeof(*p));
	struct proc_ctx c = { .kernel = k };
	int err;

	if (!p)
		return -ENOMEM;
	superblock_init(&p->sb, &sb_ops, type, type, magic, SB_NO_DCACHE | SB_OWN_TIMES);
	mutex_init(&p->lock, RANK_LEAF, "proc_sb.lock");
	p->kernel = k;
	p->root = *root;
	err = host_getrandom(p->boot_id, sizeof(p->boot_id), 0);
	c.sb = &p->sb;
	if (!err)
		err = proc_inode_new(&c, &p->root, &p->sb.root);
	if (err) {
		superblock_put(&p->sb);
		return err;
	}
	*ret = &p->sb;
	return 0;
}

static int root_lookup(struct inode *dir, const struct proc_ctx *c, const char *name,
		       struct inode **ret)
{
	static const struct proc_entry pid_dir = { "", .mode = S_IFDIR | 0555,
						   .children = proc_pid_entries };
	struct proc_ctx of = *c;
	struct task *t;
	s64 pid = proc_parse_number(name, PID_LIMIT + 1);
	int err = -ENOENT;

	if (pid == PID_REAPER)
		return proc_inode_new(c, &proc_reaper_entry, ret);
	if (pid <= 0)
		return -ENOENT;
	of.tg = thread_group_find(c->kernel, (int)pid);
	if (!of.tg) {
		/* threads can be named, though they are not listed */
		t = task_find(c->kernel, (int)pid);
		if (!t)
			return -ENOENT;
		of.tg = thread_group_get(t->tg);
		of.tid = (int)pid;
		task_put(t);
	}
	if (!gone(&of))
		err = proc_inode_new(&of, &pid_dir, ret);
	thread_group_put(of.tg);
	return err;
}

static bool emit_pid(struct dir_emit *e, int pid, u64 *pos)
{
	char name[16];
	int len = snprintf(name, sizeof(name), "%d", pid);

	if (!e->emit(e, name, (size_t)len, ((u64)pid << 32) + 1, DT_DIR,
		     PROC_POS_DYNAMIC + (u64)pid))
		return false;
	*pos = PROC_POS_DYNAMIC + (u64)pid;
	return true;
}

/* A position is the last number shown. */
static int root_list(const struct proc_ctx *c, struct dir_emit *e, u64 *pos)
{
	int pid = (int)(*pos - PROC_POS_DYNAMIC);

	if (pid < PID_REAPER && !emit_pid(e, PID_REAPER, pos))
		return 0;
	while ((pid = thread_group_next(c->kernel, pid)) != 0) {
		if (!emit_pid(e, pid, pos))
			return 0;
	}
	return 0;
}

struct thread_group *procfs_group_of(struct file *f)
{
	const struct proc_ctx *c;

	if (f->inode->sb->ops != &sb_ops || !inode_is_dir(f->inode))
		return NULL;
	c = synth_arg(f->inode);
	return c->entry->children == proc_pid_entries && !c->tid ? c->tg : NULL;
}

int procfs_new(struct kernel *k, struct superblock **ret)
{
	static const struct proc_entry root = {
		.name = "",
		.mode = S_IFDIR | 0555,
		.children = proc_root_entries,
		.lookup = root_lookup,
		.list = root_list,
	};

	return superblock_new(k, "proc", PROC_SUPER_MAGIC, &root, ret);
}

int sysfs_new(struct kernel *k, struct superblock **ret)
{
	static const struct proc_entry root = {
		.name = "",
		.mode = S_IFDIR | 0555,
		.children = sysfs_root_entries,
	};

	return superblock_new(k, "sysfs", SYSFS_MAGIC, &root, ret);
}
