/* Changing attributes: modes, owners, times. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <sys/time.h>
#include <utime.h>

int sys_file_setattr(struct task *t, struct file *f, const struct iattr *attr)
{
	struct path p = f->path;
	int err;

	if (p.dentry)
		return vfs_setattr(&p, t->cred, attr);
	/* Sockets and other nameless inodes: a dentry for the call. */
	err = dentry_new_root(f->inode, &p.dentry);
	if (err < 0)
		return err;
	err = vfs_setattr(&p, t->cred, attr);
	dentry_put(p.dentry);
	return err;
}

/* Applies attr to what a descriptor refers to; any: O_PATH too. */
static s64 setattr_fd(struct task *t, int fd, bool any, const struct iattr *attr)
{
	struct file *f = any ? fd_get_any(t->fds, fd) : fd_get(t->fds, fd);
	s64 r;

	if (!f)
		return -EBADF;
	r = sys_file_setattr(t, f, attr);
	file_put(f);
	return r;
}

static s64 setattr_at(struct task *t, int dirfd, u64 path, int at_flags, const struct iattr *attr)
{
	bool fd_itself;
	struct path p;
	int err = sys_means_fd(t, ua(path), at_flags, &fd_itself);

	if (err < 0)
		return err;
	if (fd_itself && dirfd != AT_FDCWD)
		return setattr_fd(t, dirfd, true, attr);
	err = sys_path_at(t, dirfd, ua(path), at_flags, &p);
	if (err < 0)
		return err;
	err = vfs_setattr(&p, t->cred, attr);
	path_put(&p);
	return err;
}

/* ---- modes ---- */

static struct iattr mode_attr(u64 mode)
{
	return (struct iattr){ .mask = ATTR_MODE, .mode = (u32)mode & 07777 };
}

s64 sys_chmod(struct task *t, const u64 a[6])
{
	struct iattr attr = mode_attr(a[1]);

	return setattr_at(t, AT_FDCWD, a[0], 0, &attr);
}

s64 sys_fchmod(struct task *t, const u64 a[6])
{
	struct iattr attr = mode_attr(a[1]);

	return setattr_fd(t, (int)a[0], false, &attr);
}

s64 sys_fchmodat(struct task *t, const u64 a[6])
{
	struct iattr attr = mode_attr(a[2]);

	return setattr_at(t, (int)a[0], a[1], 0, &attr);
}

s64 sys_fchmodat2(struct task *t, const u64 a[6])
{
	struct iattr attr = mode_attr(a[2]);

	if ((int)a[3] & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	return setattr_at(t, (int)a[0], a[1], (int)a[3], &attr);
}

/* ---- owners ---- */

/* An id of -1 stays as it is; the vfs drops setuid bits. */
static struct iattr owner_attr(u64 uid, u64 gid)
{
	struct iattr attr = { .uid = (u32)uid, .gid = (u32)gid };

	if ((u32)uid != UINT32_MAX)
		attr.mask |= ATTR_UID;
	if ((u32)gid != UINT32_MAX)
		attr.mask |= ATTR_GID;
	return attr;
}

s64 sys_chown(struct task *t, const u64 a[6])
{
	struct iattr attr = owner_attr(a[1], a[2]);

	return setattr_at(t, AT_FDCWD, a[0], 0, &attr);
}

s64 sys_lchown(struct task *t, const u64 a[6])
{
	struct iattr attr = owner_attr(a[1], a[2]);

	return setattr_at(t, AT_FDCWD, a[0], AT_SYMLINK_NOFOLLOW, &attr);
}

s64 sys_fchown(struct task *t, const u64 a[6])
{
	struct iattr attr = owner_attr(a[1], a[2]);

	return setattr_fd(t, (int)a[0], false, &attr);
}

s64 sys_fchownat(struct task *t, const u64 a[6])
{
	struct iattr attr = owner_attr(a[2], a[3]);

	if ((int)a[4] & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	return setattr_at(t, (int)a[0], a[1], (int)a[4], &attr);
}

/* ---- times ---- */

static const struct iattr both_now = { .mask = ATTR_ATIME_NOW | ATTR_MTIME_NOW };

/* One of utimensat's times. -EINVAL for nanoseconds that are neither a time nor a marker. */
static int time_attr(const struct timespec *ts, u32 set, u32 now, struct iattr *attr,
		     struct timespec *ret)
{
	if (ts->tv_nsec == UTIME_OMIT)
		return 0;
	if (ts->tv_nsec == UTIME_NOW) {
		attr->mask |= now;
		return 0;
	}
	if ((u64)ts->tv_nsec >= 1000000000)
		return -EINVAL;
	attr->mask |= set;
	*ret = *ts;
	return 0;
}

static s64 utimes_at(struct task *t, int dirfd, u64 path, const struct iattr *attr, int at_flags)
{
	/* futimens(3): no path means the descriptor. */
	if (!path && dirfd != AT_FDCWD)
		return at_flags ? -EINVAL : setattr_fd(t, dirfd, false, attr);
	return setattr_at(t, dirfd, path, path ? at_flags : 0, attr);
}

s64 sys_utimensat(struct task *t, const u64 a[6])
{
	struct iattr attr = { 0 };
	struct timespec ts[2];
	int err;

	if (!a[2])
		attr = both_now;
	else if (copy_in(t, ts, ua(a[2]), sizeof(ts)) < 0)
		return -EFAULT;
	if (a[2]) {
		if (ts[0].tv_nsec == UTIME_OMIT && ts[1].tv_nsec == UTIME_OMIT)
			return 0;
		err = time_attr(&ts[0], ATTR_ATIME, ATTR_ATIME_NOW, &attr, &attr.atime);
		if (!err)
			err = time_attr(&ts[1], ATTR_MTIME, ATTR_MTIME_NOW, &attr, &attr.mtime);
		if (err < 0)
			return err;
	}
	if ((int)a[3] & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	return utimes_at(t, (int)a[0], a[1], &attr, (int)a[3]);
}

static s64 utimes_micro(struct task *t, int dirfd, u64 path, u64 times)
{
	struct iattr attr = { .mask = ATTR_ATIME | ATTR_MTIME };
	struct timeval tv[2];

	if (!times)
		return utimes_at(t, dirfd, path, &both_now, 0);
	if (copy_in(t, tv, ua(times), sizeof(tv)) < 0)
		return -EFAULT;
	if ((u64)tv[0].tv_usec >= 1000000 || (u64)tv[1].tv_usec >= 1000000)
		return -EINVAL;
	attr.atime = (struct timespec){ tv[0].tv_sec, tv[0].tv_usec * 1000 };
	attr.mtime = (struct timespec){ tv[1].tv_sec, tv[1].tv_usec * 1000 };
	return utimes_at(t, dirfd, path, &attr, 0);
}

s64 sys_futimesat(struct task *t, const u64 a[6])
{
	return utimes_micro(t, (int)a[0], a[1], a[2]);
}

s64 sys_utimes(struct task *t, const u64 a[6])
{
	return utimes_micro(t, AT_FDCWD, a[0], a[1]);
}

s64 sys_utime(struct task *t, const u64 a[6])
{
	struct iattr attr = { .mask = ATTR_ATIME | ATTR_MTIME };
	struct utimbuf ut;

	if (!a[1])
		return utimes_at(t, AT_FDCWD, a[0], &both_now, 0);
	if (copy_in(t, &ut, ua(a[1]), sizeof(ut)) < 0)
		return -EFAULT;
	attr.atime.tv_sec = ut.actime;
	attr.mtime.tv_sec = ut.modtime;
	return utimes_at(t, AT_FDCWD, a[0], &attr, 0);
}
