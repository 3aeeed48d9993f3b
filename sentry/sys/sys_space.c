/* Sizes and storage: truncate, fallocate, advice, sync. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <linux/falloc.h>
#include <linux/fs.h>

s64 sys_truncate(struct task *t, const u64 a[6])
{
	struct iattr attr = { .mask = ATTR_SIZE, .size = a[1] };
	struct path p;
	int err;

	if ((s64)a[1] < 0)
		return -EINVAL;
	err = sys_path_at(t, AT_FDCWD, ua(a[0]), 0, &p);
	if (err < 0)
		return err;
	if (inode_is_dir(path_inode(&p)))
		err = -EISDIR;
	else if (!inode_is_reg(path_inode(&p)))
		err = -EINVAL;
	else
		err = vfs_access(&p, t->cred, MAY_WRITE);
	if (!err)
		err = sys_check_fsize(t, a[1]);
	if (!err)
		err = vfs_setattr(&p, t->cred, &attr);
	path_put(&p);
	return err;
}

s64 sys_ftruncate(struct task *t, const u64 a[6])
{
	struct file *f;
	int err;

	if ((s64)a[1] < 0)
		return -EINVAL;
	f = fd_get(t->fds, (int)a[0]);
	if (!f)
		return -EBADF;
	err = inode_is_reg(f->inode) && file_writable(f) ? sys_check_fsize(t, a[1]) : -EINVAL;
	if (!err)
		err = vfs_ftruncate(f, a[1]);
	file_put(f);
	return err;
}

s64 sys_fallocate(struct task *t, const u64 a[6])
{
	u64 limit = task_rlimit(t, RLIMIT_FSIZE);
	struct file *f = fd_get(t->fds, (int)a[0]);
	int err;

	if (!f)
		return -EBADF;
	err = vfs_fallocate(f, (int)a[1], (s64)a[2], (s64)a[3], limit);
	file_put(f);
	/* Only our own limit signals; a file that cannot be that large just fails. */
	if (err == -EFBIG && a[2] + a[3] <= INT64_MAX && a[2] + a[3] > limit)
		sys_check_fsize(t, a[2] + a[3]);
	return err;
}

s64 sys_fadvise64(struct task *t, const u64 a[6])
{
	struct file *f = fd_get(t->fds, (int)a[0]);
	s64 r = 0;

	if (!f)
		return -EBADF;
	if (S_ISFIFO(f->inode->type))
		r = -ESPIPE;
	else if ((s64)a[2] < 0 || (int)a[3] < POSIX_FADV_NORMAL || (int)a[3] > POSIX_FADV_NOREUSE)
		r = -EINVAL;
	file_put(f);
	return r;
}

s64 sys_readahead(struct task *t, const u64 a[6])
{
	struct file *f = fd_get(t->fds, (int)a[0]);
	s64 r = 0;

	if (!f)
		return -EBADF;
	if (!file_readable(f))
		r = -EBADF;
	else if (!inode_is_reg(f->inode))
		r = -EINVAL;
	file_put(f);
	return r;
}

static s64 sync_file(struct task *t, int fd, bool data_only)
{
	struct file *f = fd_get(t->fds, fd);
	s64 r;

	if (!f)
		return -EBADF;
	r = f->ops->fsync ? f->ops->fsync(f, data_only) : -EINVAL;
	file_put(f);
	return r;
}

s64 sys_fsync(struct task *t, const u64 a[6])
{
	return sync_file(t, (int)a[0], false);
}

s64 sys_fdatasync(struct task *t, const u64 a[6])
{
	return sync_file(t, (int)a[0], true);
}

/* The sentry keeps nothing back from the host: what is written is in the host's page cache. */
s64 sys_sync(struct task *t, const u64 a[6])
{
	return 0;
}

s64 sys_syncfs(struct task *t, const u64 a[6])
{
	struct file *f = fd_get(t->fds, (int)a[0]);
	struct superblock *sb;
	s64 r = 0;

	if (!f)
		return -EBADF;
	sb = f->inode->sb;
	if (sb->ops->sync)
		r = sb->ops->sync(sb);
	file_put(f);
	return r;
}

s64 sys_sync_file_range(struct task *t, const u64 a[6])
{
	const u32 known =
		SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	struct file *f = fd_get(t->fds, (int)a[0]);
	s64 r = 0;

	if (!f)
		return -EBADF;
	if (((u32)a[3] & ~known) || (s64)a[1] < 0 || (s64)(a[1] + a[2]) < 0 || (s64)a[2] < 0)
		r = -EINVAL;
	else if (!inode_is_reg(f->inode) && !inode_is_dir(f->inode) && !S_ISBLK(f->inode->type) &&
		 !S_ISLNK(f->inode->type))
		r = -ESPIPE;
	file_put(f);
	return r;
}
