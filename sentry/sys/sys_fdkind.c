/* Calls that make descriptors of special kinds: eventfd, timerfd, signalfd, inotify, pipe. */
#include "sentry/fd/eventfd.h"
#include "sentry/fd/inotify.h"
#include "sentry/fd/signalfd.h"
#include "sentry/fd/timerfd.h"
#include "sentry/sys/fdpair.h"
#include "sentry/sys/handlers.h"
#include "vfs/pipe.h"
#include <linux/capability.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#ifndef O_NOTIFICATION_PIPE
#define O_NOTIFICATION_PIPE O_EXCL
#endif

static s64 install(struct task *t, struct file *f, bool cloexec)
{
	int fd = fd_install(t->fds, f, 0, cloexec, task_rlimit(t, RLIMIT_NOFILE));

	if (fd < 0)
		file_put(f);
	return fd;
}

/* ---- pipe ---- */

static s64 make_pipe(struct task *t, uaddr out, u32 flags)
{
	struct file *f[2];
	int err;

	if (flags & ~(u32)(O_CLOEXEC | O_NONBLOCK | O_DIRECT | O_NOTIFICATION_PIPE))
		return -EINVAL;
	if (flags & O_NOTIFICATION_PIPE)
		return -ENOPKG;
	err = pipe_create(flags & (O_NONBLOCK | O_DIRECT), t->cred, &f[0], &f[1]);
	return err < 0 ? err : sys_install_pair(t, f, flags & O_CLOEXEC, out);
}

s64 sys_pipe(struct task *t, const u64 a[6])
{
	return make_pipe(t, ua(a[0]), 0);
}

s64 sys_pipe2(struct task *t, const u64 a[6])
{
	return make_pipe(t, ua(a[0]), (u32)a[1]);
}

/* ---- eventfd ---- */

static s64 make_eventfd(struct task *t, u32 count, u32 flags)
{
	struct file *f;
	int err;

	if (flags & ~(u32)(EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK))
		return -EINVAL;
	err = eventfd_new(t->cred, count, flags, &f);
	return err < 0 ? err : install(t, f, flags & EFD_CLOEXEC);
}

s64 sys_eventfd(struct task *t, const u64 a[6])
{
	return make_eventfd(t, (u32)a[0], 0);
}

s64 sys_eventfd2(struct task *t, const u64 a[6])
{
	return make_eventfd(t, (u32)a[0], (u32)a[1]);
}

/* ---- timerfd ---- */

s64 sys_timerfd_create(struct task *t, const u64 a[6])
{
	int clock = (int)a[0], err;
	u32 flags = (u32)a[1];
	struct file *f;

	if (flags & ~(u32)(TFD_CLOEXEC | TFD_NONBLOCK))
		return -EINVAL;
	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_MONOTONIC:
	case CLOCK_BOOTTIME: break;
	case CLOCK_REALTIME_ALARM:
	case CLOCK_BOOTTIME_ALARM:
		if (!cred_capable(t->cred, CAP_WAKE_ALARM))
			return -EPERM;
		break;
	default: return -EINVAL;
	}
	err = timerfd_new(t->kernel, t->cred, clock, flags, &f);
	return err < 0 ? err : install(t, f, flags & TFD_CLOEXEC);
}

static int timerfd_from(struct task *t, int fd, struct file **ret)
{
	struct file *f = fd_get(t->fds, fd);

	if (!f)
		return -EBADF;
	if (!file_is_timerfd(f)) {
		file_put(f);
		return -EINVAL;
	}
	*ret = f;
	return 0;
}

static bool valid_time(const struct timespec *ts)
{
	return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < 1000000000;
}

s64 sys_timerfd_settime(struct task *t, const u64 a[6])
{
	int flags = (int)a[1], err;
	struct itimerspec value, old;
	struct file *f;

	if (copy_in(t, &value, ua(a[2]), sizeof(value)) < 0)
		return -EFAULT;
	if ((flags & ~(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)) ||
	    !valid_time(&value.it_value) || !valid_time(&value.it_interval))
		return -EINVAL;
	err = timerfd_from(t, (int)a[0], &f);
	if (err < 0)
		return err;
	timerfd_set(f, flags, &value, &old);
	file_put(f);
	return a[3] ? copy_out(t, ua(a[3]), &old, sizeof(old)) : 0;
}

s64 sys_timerfd_gettime(struct task *t, const u64 a[6])
{
	struct itimerspec value;
	struct file *f;
	int err = timerfd_from(t, (int)a[0], &f);

	if (err < 0)
		return err;
	timerfd_get(f, &value);
	file_put(f);
	return copy_out(t, ua(a[1]), &value, sizeof(value));
}

/* ---- signalfd ---- */

static s64 do_signalfd(struct task *t, int fd, uaddr set, u64 size, u32 flags)
{
	struct file *f;
	u64 mask;
	int err;

	if (flags & ~(u32)(SFD_CLOEXEC | SFD_NONBLOCK))
		return -EINVAL;
	err = sys_sigset_in(t, set, size, &mask);
	if (err < 0)
		return err;
	if (fd == -1) {
		err = signalfd_new(t->cred, mask, flags, &f);
		return err < 0 ? err : install(t, f, flags & SFD_CLOEXEC);
	}
	f = fd_get(t->fds, fd);
	if (!f)
		return -EBADF;
	if (file_is_signalfd(f))
		signalfd_set_mask(f, mask);
	else
		fd = -EINVAL;
	file_put(f);
	return fd;
}

s64 sys_signalfd(struct task *t, const u64 a[6])
{
	return do_signalfd(t, (int)a[0], ua(a[1]), a[2], 0);
}

s64 sys_signalfd4(struct task *t, const u64 a[6])
{
	return do_signalfd(t, (int)a[0], ua(a[1]), a[2], (u32)a[3]);
}

/* ---- inotify ---- */

static s64 make_inotify(struct task *t, u32 flags)
{
	struct file *f;
	int err;

	if (flags & ~(u32)(IN_CLOEXEC | IN_NONBLOCK))
		return -EINVAL;
	err = inotify_new(t->cred, flags, &f);
	return err < 0 ? err : install(t, f, flags & IN_CLOEXEC);
}

s64 sys_inotify_init(struct task *t, const u64 a[6])
{
	return make_inotify(t, 0);
}

s64 sys_inotify_init1(struct task *t, const u64 a[6])
{
	return make_inotify(t, (u32)a[0]);
}

static s64 add_watch(struct task *t, struct file *f, uaddr path, u32 mask)
{
	struct path p;
	s64 ret =
		sys_path_at(t, AT_FDCWD, path, mask & IN_DONT_FOLLOW ? AT_SYMLINK_NOFOLLOW : 0, &p);

	if (ret < 0)
		return ret;
	if ((mask & IN_ONLYDIR) && !inode_is_dir(path_inode(&p)))
		ret = -ENOTDIR;
	else
		ret = vfs_access(&p, t->cred, MAY_READ);
	if (ret == 0)
		ret = inotify_add(f, path_inode(&p), mask);
	path_put(&p);
	return ret;
}

s64 sys_inotify_add_watch(struct task *t, const u64 a[6])
{
	u32 mask = (u32)a[2];
	struct file *f;
	s64 ret;

	if (!(mask & (IN_ALL_EVENTS | IN_UNMOUNT)) ||
	    ((mask & IN_MASK_ADD) && (mask & IN_MASK_CREATE)))
		return -EINVAL;
	f = fd_get(t->fds, (int)a[0]);
	if (!f)
		return -EBADF;
	ret = file_is_inotify(f) ? add_watch(t, f, ua(a[1]), mask) : -EINVAL;
	file_put(f);
	return ret;
}

s64 sys_inotify_rm_watch(struct task *t, const u64 a[6])
{
	struct file *f = fd_get(t->fds, (int)a[0]);
	s64 ret;

	if (!f)
		return -EBADF;
	ret = file_is_inotify(f) ? inotify_remove(f, (int)a[1]) : -EINVAL;
	file_put(f);
	return ret;
}
