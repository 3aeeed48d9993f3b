/* Looking at files: stat family, statx, statfs, access, readlink. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <limits.h>
#include <linux/securebits.h>
#include <linux/stat.h>
#include <string.h>

/* ---- helpers of the file families ---- */

int sys_file_getattr(struct file *f, struct kstat *ret)
{
	return f->path.dentry ? vfs_getattr(&f->path, ret) : inode_getattr(f->inode, ret);
}

int sys_means_fd(struct task *t, uaddr path, int at_flags, bool *ret)
{
	char first;

	*ret = false;
	if (!(at_flags & AT_EMPTY_PATH))
		return 0;
	if (!path.v) {
		*ret = true;
		return 0;
	}
	if (copy_in(t, &first, path, 1) < 0)
		return -EFAULT;
	*ret = !first;
	return 0;
}

int sys_path_at_cred(struct task *t, int dirfd, uaddr path, int at_flags, const struct cred *cred,
		     struct path *ret)
{
	struct sys_walk w;
	int err;

	if (cred == t->cred)
		return sys_path_at(t, dirfd, path, at_flags, ret);
	err = sys_copy_path(t, path, t->scratch_path);
	if (err < 0)
		return err;
	if (!t->scratch_path[0])
		return sys_path_at(t, dirfd, path, at_flags, ret);
	err = sys_walk_begin(t, dirfd, t->scratch_path, &w);
	if (err < 0)
		return err;
	w.w.cred = cred;
	err = vfs_walk(&w.w, t->scratch_path, at_flags & AT_SYMLINK_NOFOLLOW ? 0 : WALK_FOLLOW,
		       ret);
	sys_walk_end(&w);
	return err;
}

/* ---- stat ---- */

/* The kernel's new_encode_dev, which stat's 64-bit fields carry. */
static u64 encode_dev(u32 major, u32 minor)
{
	return (minor & 0xff) | ((u64)(major & 0xfff) << 8) | ((u64)(minor & ~0xffu) << 12);
}

static int stat_out(struct task *t, uaddr buf, const struct kstat *k)
{
	struct stat st;

	memset(&st, 0, sizeof(st));
	st.st_dev = encode_dev(k->dev_major, k->dev_minor);
	st.st_ino = k->ino;
	st.st_nlink = k->nlink;
	st.st_mode = k->mode;
	st.st_uid = k->uid;
	st.st_gid = k->gid;
	st.st_rdev = encode_dev(k->rdev_major, k->rdev_minor);
	st.st_size = (s64)k->size;
	st.st_blksize = k->blksize;
	st.st_blocks = (s64)k->blocks;
	st.st_atim = k->atime;
	st.st_mtim = k->mtime;
	st.st_ctim = k->ctime;
	return copy_out(t, buf, &st, sizeof(st));
}

static int getattr_fd(struct task *t, int fd, struct kstat *ret)
{
	struct fd_ref f = fd_ref_any(t->fds, fd);
	int err;

	if (!f.file)
		return -EBADF;
	err = sys_file_getattr(f.file, ret);
	fd_ref_put(f);
	return err;
}

/* at_flags may mean the descriptor itself. */
static int getattr_at(struct task *t, int dirfd, uaddr path, int at_flags, struct kstat *ret)
{
	struct path p;
	bool fd_itself;
	int err = sys_means_fd(t, path, at_flags, &fd_itself);

	if (err < 0)
		return err;
	if (fd_itself && dirfd != AT_FDCWD)
		return getattr_fd(t, dirfd, ret);
	err = sys_path_at(t, dirfd, path, at_flags, &p);
	if (err < 0)
		return err;
	err = vfs_getattr(&p, ret);
	path_put(&p);
	return err;
}

static s64 stat_at(struct task *t, int dirfd, u64 path, u64 buf, int at_flags)
{
	struct kstat k;
	int err = getattr_at(t, dirfd, ua(path), at_flags, &k);

	return err < 0 ? err : stat_out(t, ua(buf), &k);
}

s64 sys_stat(struct task *t, const u64 a[6])
{
	return stat_at(t, AT_FDCWD, a[0], a[1], 0);
}

s64 sys_lstat(struct task *t, const u64 a[6])
{
	return stat_at(t, AT_FDCWD, a[0], a[1], AT_SYMLINK_NOFOLLOW);
}

s64 sys_fstat(struct task *t, const u64 a[6])
{
	struct kstat k;
	int err = getattr_fd(t, (int)a[0], &k);

	return err < 0 ? err : stat_out(t, ua(a[1]), &k);
}

s64 sys_newfstatat(struct task *t, const u64 a[6])
{
	if ((int)a[3] & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH))
		return -EINVAL;
	return stat_at(t, (int)a[0], a[1], a[2], (int)a[3]);
}

static struct statx_timestamp statx_time(struct timespec ts)
{
	return (struct statx_timestamp){ .tv_sec = ts.tv_sec, .tv_nsec = (u32)ts.tv_nsec };
}

s64 sys_statx(struct task *t, const u64 a[6])
{
	const int sync_type = AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC;
	int flags = (int)a[2], err;
	struct statx x;
	struct kstat k;

	if ((u32)a[3] & STATX__RESERVED)
		return -EINVAL;
	if ((flags & sync_type) == sync_type)
		return -EINVAL;
	if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | sync_type))
		return -EINVAL;
	err = getattr_at(t, (int)a[0], ua(a[1]), flags, &k);
	if (err < 0)
		return err;
	memset(&x, 0, sizeof(x));
	x.stx_mask = STATX_BASIC_STATS | (k.btime.tv_sec || k.btime.tv_nsec ? STATX_BTIME : 0);
	x.stx_blksize = k.blksize;
	x.stx_nlink = k.nlink;
	x.stx_uid = k.uid;
	x.stx_gid = k.gid;
	x.stx_mode = (u16)k.mode;
	x.stx_ino = k.ino;
	x.stx_size = k.size;
	x.stx_blocks = k.blocks;
	x.stx_atime = statx_time(k.atime);
	x.stx_btime = statx_time(k.btime);
	x.stx_ctime = statx_time(k.ctime);
	x.stx_mtime = statx_time(k.mtime);
	x.stx_rdev_major = k.rdev_major;
	x.stx_rdev_minor = k.rdev_minor;
	x.stx_dev_major = k.dev_major;
	x.stx_dev_minor = k.dev_minor;
	return copy_out(t, ua(a[4]), &x, sizeof(x));
}

/* ---- statfs ---- */

s64 sys_statfs(struct task *t, const u64 a[6])
{
	struct statfs st;
	struct path p;
	int err = sys_path_at(t, AT_FDCWD, ua(a[0]), 0, &p);

	if (err < 0)
		return err;
	err = vfs_statfs(&p, &st);
	path_put(&p);
	return err < 0 ? err : copy_out(t, ua(a[1]), &st, sizeof(st));
}

s64 sys_fstatfs(struct task *t, const u64 a[6])
{
	struct file *f = fd_get_any(t->fds, (int)a[0]);
	struct statfs st;
	int err = 0;

	if (!f)
		return -EBADF;
	memset(&st, 0, sizeof(st));
	if (f->path.dentry) {
		err = vfs_statfs(&f->path, &st);
	} else {
		st.f_type = (__fsword_t)f->inode->sb->magic;
		st.f_bsize = st.f_frsize = PAGE_SIZE;
		st.f_namelen = NAME_MAX;
		if (f->inode->sb->ops->statfs)
			err = f->inode->sb->ops->statfs(f->inode->sb, &st);
	}
	file_put(f);
	return err < 0 ? err : copy_out(t, ua(a[1]), &st, sizeof(st));
}

/* ---- access ---- */

/*
 * access(2) asks for the real ids, and for the capabilities that they would
 * have. Returns a reference; the task's own when nothing differs.
 */
static const struct cred *real_cred(struct task *t)
{
	const struct cred *c = t->cred;
	u64 caps = c->cap_effective;
	struct cred *real;

	if (!(c->securebits & issecure_mask(SECURE_NO_SETUID_FIXUP)))
		caps = c->uid == 0 ? c->cap_permitted : 0;
	if (c->fsuid == c->uid && c->fsgid == c->gid && caps == c->cap_effective)
		return cred_get(c);
	real = cred_dup(c);
	if (!real)
		return NULL;
	real->fsuid = c->uid;
	real->fsgid = c->gid;
	real->cap_effective = caps;
	return real;
}

static s64 access_at(struct task *t, int dirfd, u64 path, u32 mode, int flags)
{
	const struct cred *cred;
	struct path p;
	int err;

	if (mode & ~(u32)(R_OK | W_OK | X_OK))
		return -EINVAL;
	if (flags & ~(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	cred = flags & AT_EACCESS ? cred_get(t->cred) : real_cred(t);
	if (!cred)
		return -ENOMEM;
	err = sys_path_at_cred(t, dirfd, ua(path), flags & ~AT_EACCESS,
			       cred == t->cred ? t->cred : cred, &p);
	if (!err) {
		err = mode ? vfs_access(&p, cred, (int)mode) : 0;
		path_put(&p);
	}
	cred_put(cred);
	return err;
}

s64 sys_access(struct task *t, const u64 a[6])
{
	return access_at(t, AT_FDCWD, a[0], (u32)a[1], 0);
}

s64 sys_faccessat(struct task *t, const u64 a[6])
{
	return access_at(t, (int)a[0], a[1], (u32)a[2], 0);
}

s64 sys_faccessat2(struct task *t, const u64 a[6])
{
	return access_at(t, (int)a[0], a[1], (u32)a[2], (int)a[3]);
}

/* ---- readlink ---- */

static s64 readlink_at(struct task *t, int dirfd, u64 path, u64 buf, int size)
{
	bool empty;
	struct path p;
	ssize_t n;
	int err;

	if (size <= 0)
		return -EINVAL;
	err = sys_means_fd(t, ua(path), path ? AT_EMPTY_PATH : 0, &empty);
	if (err < 0)
		return err;
	err = sys_path_at(t, dirfd, ua(path), AT_SYMLINK_NOFOLLOW | (empty ? AT_EMPTY_PATH : 0),
			  &p);
	if (err < 0)
		return err;
	n = vfs_readlink(&p, t->scratch_path, PATH_MAX);
	path_put(&p);
	if (n == -EINVAL && empty)
		return -ENOENT;
	if (n < 0)
		return n;
	n = MIN(n, size);
	return copy_out(t, ua(buf), t->scratch_path, (size_t)n) < 0 ? -EFAULT : n;
}

s64 sys_readlink(struct task *t, const u64 a[6])
{
	return readlink_at(t, AT_FDCWD, a[0], a[1], (int)a[2]);
}

s64 sys_readlinkat(struct task *t, const u64 a[6])
{
	return readlink_at(t, (int)a[0], a[1], a[2], (int)a[3]);
}
