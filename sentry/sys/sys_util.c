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

/* The start of relative walks: the cwd, or what dirfd refers to. */
static int walk_start(struct task *t, int dirfd, struct path *ret)
{
	struct file *f;

	if (dirfd == AT_FDCWD) {
		MUTEX_GUARD(&t->fs->lock);
		*ret = t->fs->cwd;
		path_get(ret);
		return 0;
	}
	f = fd_get_any(t->fds, dirfd);
	if (!f)
		return -EBADF;
	if (!f->path.mnt || !inode_is_dir(f->inode)) {
		file_put(f);
		return -ENOTDIR;
	}
	*ret = f->path;
	path_get(ret);
	file_put(f);
	return 0;
}

int sys_walk_begin(struct task *t, int dirfd, const char *path, struct sys_walk *ret)
{
	/* An empty path fails in the walk; it must not need a good dirfd's type first but its
	 * existence. */
	int from = path[0] == '/' ? AT_FDCWD : dirfd;
	int r;

	memset(ret, 0, sizeof(*ret));
	r = walk_start(t, from, &ret->cwd);
	if (r < 0)
		return r;
	mutex_lock(&t->fs->lock);
	ret->root = t->fs->root;
	path_get(&ret->root);
	ret->w.umask = t->fs->umask;
	mutex_unlock(&t->fs->lock);
	ret->cred = cred_get(t->cred);
	ret->w.cred = ret->cred;
	ret->w.root = ret->root;
	ret->w.cwd = ret->cwd;
	return 0;
}

void sys_walk_end(struct sys_walk *w)
{
	path_put(&w->root);
	path_put(&w->cwd);
	cred_put(w->cred);
	memset(w, 0, sizeof(*w));
}

/* AT_EMPTY_PATH with "": what the descriptor itself refers to. */
static int path_of_fd(struct task *t, int fd, struct path *ret)
{
	struct file *f;

	if (fd == AT_FDCWD)
		return walk_start(t, fd, ret);
	f = fd_get_any(t->fds, fd);
	if (!f)
		return -EBADF;
	if (!f->path.dentry) {
		/* Pipes, sockets, ... have no path: handlers that can serve an inode look before.
		 */
		file_put(f);
		return -EOPNOTSUPP;
	}
	*ret = f->path;
	path_get(ret);
	file_put(f);
	return 0;
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
