/* Helpers that system call handlers share: paths, times, signal sets. See syscall.h. */
#include "sentry/sys/syscall.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

int sys_copy_path(struct task *t, uaddr path, char *dst)
{
	ssize_t n = mm_copy_in_str(t->mm, dst, PATH_MAX, path);

	return n < 0 ? (int)n : 0;
}

/* Relative walks start at the directory that dirfd refers to. */
static int start_at_dir(struct task *t, int dirfd, struct sys_walk *w)
{
	struct fd_ref f = fd_ref_any(t->fds, dirfd);

	if (!f.file)
		return -EBADF;
	if (!f.file->path.mnt || !inode_is_dir(f.file->inode)) {
		fd_ref_put(f);
		return -ENOTDIR;
	}
	w->dir = f;
	w->w.cwd = f.file->path;
	return 0;
}

int sys_walk_begin(struct task *t, int dirfd, const char *path, struct sys_walk *ret)
{
	/* An empty path fails in the walk; it must not need a good dirfd's type first but its
	 * existence. */
	int from = path[0] == '/' ? AT_FDCWD : dirfd;
	struct fs_context *fs = t->fs;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (from != AT_FDCWD && (r = start_at_dir(t, from, ret)) < 0)
		return r;
	ret->counted = refs_read(&fs->refs) > 1;
	if (ret->counted) {
		mutex_lock(&fs->lock);
		path_get(&fs->root);
		path_get(&fs->cwd);
	}
	ret->root = fs->root;
	ret->cwd = fs->cwd;
	ret->w.umask = fs->umask;
	if (ret->counted)
		mutex_unlock(&fs->lock);
	ret->w.cred = t->cred;
	ret->w.root = ret->root;
	if (from == AT_FDCWD)
		ret->w.cwd = ret->cwd;
	return 0;
}

void sys_walk_end(struct sys_walk *w)
{
	if (w->counted) {
		path_put(&w->root);
		path_put(&w->cwd);
	}
	fd_ref_put(w->dir);
}

/* AT_EMPTY_PATH with "": what the descriptor itself refers to. */
static int path_of_fd(struct task *t, int fd, struct path *ret)
{
	struct fd_ref f;
	int r = 0;

	if (fd == AT_FDCWD) {
		MUTEX_GUARD(&t->fs->lock);
		*ret = t->fs->cwd;
		path_get(ret);
		return 0;
	}
	f = fd_ref_any(t->fds, fd);
	if (!f.file)
		return -EBADF;
	if (f.file->path.dentry) {
		*ret = f.file->path;
		path_get(ret);
	} else {
		/* Pipes, sockets, ... have no path: handlers that can serve an inode look before.
		 */
		r = -EOPNOTSUPP;
	}
	fd_ref_put(f);
	return r;
}

int sys_path_at(struct task *t, int dirfd, uaddr path, int at_flags, struct path *ret)
{
	struct sys_walk w;
	int r;

	if (path.v == 0 && (at_flags & AT_EMPTY_PATH))
		return path_of_fd(t, dirfd, ret);
	r = sys_copy_path(t, path, t->scratch_path);
	if (r < 0)
		return r;
	if (t->scratch_path[0] == 0 && (at_flags & AT_EMPTY_PATH))
		return path_of_fd(t, dirfd, ret);
	r = sys_walk_begin(t, dirfd, t->scratch_path, &w);
	if (r < 0)
		return t->scratch_path[0] == 0 && r != -EBADF ? -ENOENT : r;
	r = vfs_walk(&w.w, t->scratch_path, at_flags & AT_SYMLINK_NOFOLLOW ? 0 : WALK_FOLLOW, ret);
	sys_walk_end(&w);
	return r;
}

int sys_timespec_in(struct task *t, uaddr a, struct timespec *ret)
{
	struct timespec ts;
	int r = copy_in(t, &ts, a, sizeof(ts));

	if (r < 0)
		return r;
	if (ts.tv_sec < 0 || (u64)ts.tv_nsec >= 1000000000)
		return -EINVAL;
	*ret = ts;
	return 0;
}

int sys_timespec_out(struct task *t, uaddr a, const struct timespec *ts)
{
	return copy_out(t, a, ts, sizeof(*ts));
}

int sys_deadline_from(const struct timespec *ts, u64 *ret_deadline)
{
	u64 now = clock_monotonic_ns(), rel;

	if (ts->tv_sec < 0 || (u64)ts->tv_nsec >= 1000000000)
		return -EINVAL;
	/* Beyond 292 years: never, but still a time. */
	if (__builtin_mul_overflow((u64)ts->tv_sec, 1000000000ULL, &rel) ||
	    __builtin_add_overflow(rel, (u64)ts->tv_nsec, &rel) ||
	    __builtin_add_overflow(rel, now, &rel) || rel > INT64_MAX)
		rel = INT64_MAX;
	*ret_deadline = rel;
	return 0;
}

int sys_deadline_in(struct task *t, uaddr ts, u64 *ret_deadline)
{
	struct timespec v;
	int r;

	if (ts.v == 0) {
		*ret_deadline = NO_DEADLINE;
		return 0;
	}
	r = sys_timespec_in(t, ts, &v);
	if (r < 0)
		return r;
	return sys_deadline_from(&v, ret_deadline);
}

int sys_remaining_out(struct task *t, uaddr ts, u64 deadline)
{
	struct timespec left = { 0, 0 };
	u64 now = clock_monotonic_ns();

	if (ts.v == 0)
		return 0;
	if (deadline > now) {
		left.tv_sec = (time_t)((deadline - now) / 1000000000);
		left.tv_nsec = (long)((deadline - now) % 1000000000);
	}
	return sys_timespec_out(t, ts, &left);
}

int sys_sigset_in(struct task *t, uaddr set, u64 size, u64 *ret)
{
	u64 v;
	int r;

	if (size != sizeof(v))
		return -EINVAL;
	r = copy_in(t, &v, set, sizeof(v));
	if (r < 0)
		return r;
	*ret = v & ~(sigbit(SIGKILL) | sigbit(SIGSTOP));
	return 0;
}
