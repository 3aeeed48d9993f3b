/* open and close families, dup, and what a task's paths start from: cwd, root, umask. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"
#include "vfs/pipe.h"

#include <limits.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/openat2.h>

#define O_TMPFILE_BIT (O_TMPFILE & ~O_DIRECTORY)
#define VALID_OPEN_FLAGS                                                                           \
	(O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | O_SYNC |      \
	 O_DSYNC | O_ASYNC | O_DIRECT | KERNEL_O_LARGEFILE | O_DIRECTORY | O_NOFOLLOW |            \
	 O_NOATIME | O_CLOEXEC | O_PATH | O_TMPFILE_BIT)
#define VALID_RESOLVE                                                                              \
	(RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH |         \
	 RESOLVE_IN_ROOT | RESOLVE_CACHED)

/* ---- open ---- */

/* A FIFO's open sleeps until the other side comes; nobody else sees the file meanwhile. */
static int wait_fifo(struct task *t, struct file *f)
{
	if (!file_is_pipe(f) || (file_flags(f) & O_PATH) || fifo_open_ready(f))
		return 0;
	return sys_wait_file(t, f, EPOLLIN | EPOLLOUT, fifo_open_ready);
}

/* The descriptor comes first, so that a full table creates no file. */
static s64 open_at(struct task *t, int dirfd, uaddr path, u32 flags, u32 mode, u64 resolve)
{
	struct open_how_k how = { .flags = flags & ~(u32)O_CLOEXEC, .mode = mode };
	/* Within a scope even an absolute path starts at dirfd. */
	bool scoped = resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT);
	struct sys_walk w;
	struct file *f;
	int fd, err;

	err = sys_copy_path(t, path, t->scratch_path);
	if (err < 0)
		return err;
	fd = fd_reserve(t->fds, 0, task_rlimit(t, RLIMIT_NOFILE));
	if (fd < 0)
		return fd;
	err = sys_walk_begin(t, dirfd, scoped ? "." : t->scratch_path, &w);
	if (!err) {
		w.w.resolve = resolve;
		err = vfs_open(&w.w, t->scratch_path, &how, &f);
		sys_walk_end(&w);
	}
	if (!err) {
		err = wait_fifo(t, f);
		if (err < 0)
			file_put(f);
	}
	if (err) {
		fd_release_reserved(t->fds, fd);
		return err;
	}
	fd_install_reserved(t->fds, fd, f, flags & O_CLOEXEC);
	return fd;
}

static s64 open_legacy(struct task *t, int dirfd, uaddr path, u64 flags, u64 mode)
{
	u32 f = ((u32)flags & VALID_OPEN_FLAGS) | KERNEL_O_LARGEFILE;

	if (f & O_PATH)
		f &= O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	return open_at(t, dirfd, path, f, (u32)mode & 07777, 0);
}

s64 sys_open(struct task *t, const u64 a[6])
{
	return open_legacy(t, AT_FDCWD, ua(a[0]), a[1], a[2]);
}

s64 sys_creat(struct task *t, const u64 a[6])
{
	return open_legacy(t, AT_FDCWD, ua(a[0]), O_CREAT | O_WRONLY | O_TRUNC, a[1]);
}

s64 sys_openat(struct task *t, const u64 a[6])
{
	return open_legacy(t, (int)a[0], ua(a[1]), a[2], a[3]);
}

static int check_how(const struct open_how *how)
{
	u32 flags = (u32)how->flags;

	if (how->flags & ~(u64)VALID_OPEN_FLAGS)
		return -EINVAL;
	if (how->resolve & ~(u64)VALID_RESOLVE)
		return -EINVAL;
	if ((how->resolve & RESOLVE_BENEATH) && (how->resolve & RESOLVE_IN_ROOT))
		return -EINVAL;
	if (flags & (O_CREAT | O_TMPFILE_BIT) ? (how->mode & ~07777UL) != 0 : how->mode != 0)
		return -EINVAL;
	if ((flags & O_PATH) && (flags & ~(O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)))
		return -EINVAL;
	/* What only the cache may answer cannot create or truncate. */
	if ((how->resolve & RESOLVE_CACHED) && (flags & (O_CREAT | O_TRUNC | O_TMPFILE_BIT)))
		return -EAGAIN;
	return 0;
}

s64 sys_openat2(struct task *t, const u64 a[6])
{
	struct open_how how = { 0 };
	u8 tail[256];
	int err;

	if (a[3] < sizeof(how))
		return -EINVAL;
	if (a[3] > PAGE_SIZE)
		return -E2BIG;
	if (copy_in(t, &how, ua(a[2]), sizeof(how)) < 0)
		return -EFAULT;
	for (u64 off = sizeof(how); off < a[3]; off += sizeof(tail)) {
		size_t n = MIN(sizeof(tail), a[3] - off);

		if (copy_in(t, tail, ua(a[2] + off), n) < 0)
			return -EFAULT;
		for (size_t i = 0; i < n; i++) {
			if (tail[i])
				return -E2BIG;
		}
	}
	err = check_how(&how);
	if (err < 0)
		return err;
	return open_at(t, (int)a[0], ua(a[1]),
		       (u32)how.flags | (how.flags & O_PATH ? 0 : KERNEL_O_LARGEFILE),
		       (u32)how.mode, how.resolve & ~(u64)RESOLVE_CACHED);
}

/* ---- close, dup ---- */

s64 sys_close(struct task *t, const u64 a[6])
{
	return fd_close(t->fds, (int)a[0]);
}

/* The task's own copy of a table that others share. */
static int unshare_fds(struct task *t)
{
	struct fd_table *mine = fd_table_dup(t->fds), *old = t->fds;

	if (!mine)
		return -ENOMEM;
	mutex_lock(&t->lock);
	t->fds = mine;
	mutex_unlock(&t->lock);
	fd_table_put(old);
	return 0;
}

s64 sys_close_range(struct task *t, const u64 a[6])
{
	u32 first = (u32)a[0], last = (u32)a[1], flags = (u32)a[2];
	int err = 0;

	if (flags & ~(u32)(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC))
		return -EINVAL;
	if (first > last)
		return -EINVAL;
	if (flags & CLOSE_RANGE_UNSHARE)
		err = unshare_fds(t);
	return err < 0 ? err : fd_close_range(t->fds, first, last, flags & CLOSE_RANGE_CLOEXEC);
}

s64 sys_dup(struct task *t, const u64 a[6])
{
	struct file *f = fd_get_any(t->fds, (int)a[0]);
	s64 fd;

	if (!f)
		return -EBADF;
	fd = fd_install(t->fds, f, 0, false, task_rlimit(t, RLIMIT_NOFILE));
	if (fd < 0)
		file_put(f);
	return fd;
}

static s64 dup_to(struct task *t, int from, int to, bool cloexec)
{
	u64 limit = task_rlimit(t, RLIMIT_NOFILE);
	struct file *f;
	s64 fd;

	if (to < 0 || (u64)to >= limit)
		return -EBADF;
	f = fd_get_any(t->fds, from);
	if (!f)
		return -EBADF;
	fd = fd_replace(t->fds, to, f, cloexec, limit);
	if (fd < 0)
		file_put(f);
	return fd < 0 ? fd : to;
}

s64 sys_dup2(struct task *t, const u64 a[6])
{
	struct file *f;

	if ((int)a[0] != (int)a[1])
		return dup_to(t, (int)a[0], (int)a[1], false);
	f = fd_get_any(t->fds, (int)a[0]);
	if (!f)
		return -EBADF;
	file_put(f);
	return (int)a[0];
}

s64 sys_dup3(struct task *t, const u64 a[6])
{
	if ((int)a[2] & ~O_CLOEXEC)
		return -EINVAL;
	if ((int)a[0] == (int)a[1])
		return -EINVAL;
	return dup_to(t, (int)a[0], (int)a[1], a[2] & O_CLOEXEC);
}

/* ---- cwd, root, umask ---- */

s64 sys_umask(struct task *t, const u64 a[6])
{
	u32 old;

	mutex_lock(&t->fs->lock);
	old = t->fs->umask;
	t->fs->umask = (u32)a[0] & 0777;
	mutex_unlock(&t->fs->lock);
	return old;
}

/* Puts *p (its references are taken over) in the place of *slot. */
static void replace_path(struct task *t, struct path *slot, struct path p)
{
	struct path old;

	mutex_lock(&t->fs->lock);
	old = *slot;
	*slot = p;
	mutex_unlock(&t->fs->lock);
	path_put(&old);
}

static int directory_at(struct task *t, uaddr path, struct path *ret)
{
	struct path p;
	int err = sys_path_at(t, AT_FDCWD, path, 0, &p);

	if (err < 0)
		return err;
	err = inode_is_dir(path_inode(&p)) ? vfs_access(&p, t->cred, MAY_EXEC) : -ENOTDIR;
	if (err < 0)
		path_put(&p);
	else
		*ret = p;
	return err;
}

s64 sys_chdir(struct task *t, const u64 a[6])
{
	struct path p;
	int err = directory_at(t, ua(a[0]), &p);

	if (!err)
		replace_path(t, &t->fs->cwd, p);
	return err;
}

s64 sys_fchdir(struct task *t, const u64 a[6])
{
	struct file *f = fd_get_any(t->fds, (int)a[0]);
	struct path p;
	int err;

	if (!f)
		return -EBADF;
	err = inode_is_dir(f->inode) && f->path.mnt ? vfs_access(&f->path, t->cred, MAY_EXEC)
						    : -ENOTDIR;
	p = f->path;
	if (!err) {
		path_get(&p);
		replace_path(t, &t->fs->cwd, p);
	}
	file_put(f);
	return err;
}

s64 sys_chroot(struct task *t, const u64 a[6])
{
	struct path p;
	int err = directory_at(t, ua(a[0]), &p);

	if (err < 0)
		return err;
	if (!cred_capable(t->cred, CAP_SYS_CHROOT)) {
		path_put(&p);
		return -EPERM;
	}
	replace_path(t, &t->fs->root, p);
	return 0;
}

s64 sys_getcwd(struct task *t, const u64 a[6])
{
	struct path root, cwd;
	ssize_t n;

	mutex_lock(&t->fs->lock);
	root = t->fs->root;
	cwd = t->fs->cwd;
	path_get(&root);
	path_get(&cwd);
	mutex_unlock(&t->fs->lock);
	n = path_deleted(&cwd) ? -ENOENT : path_text(&cwd, &root, t->scratch_path, PATH_MAX);
	path_put(&root);
	path_put(&cwd);
	if (n == -ERANGE)
		return -ENAMETOOLONG;
	if (n < 0)
		return n;
	if ((u64)n + 1 > a[1])
		return -ERANGE;
	if (copy_out(t, ua(a[0]), t->scratch_path, (size_t)n + 1) < 0)
		return -EFAULT;
	return n + 1;
}
