/* Sizes and storage: truncate, fallocate, advice, sync. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <linux/falloc.h>
#include <linux/fs.h>
#include <string.h>

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
		err = sys_check_fsize(t, path_inode(&p), a[1]);
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
	err = inode_is_reg(f->inode) && file_writable(f) ? sys_check_fsize(t, f->inode, a[1])
							 : -EINVAL;
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
	/* Only our own limit signals; a file that cannot be that large just fails. */
	if (err == -EFBIG && a[2] + a[3] <= INT64_MAX)
		sys_check_fsize(t, f->inode, a[2] + a[3]);
	file_put(f);
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

/* ---- cachestat ---- */

#define CACHESTAT_STEP 4096 /* pages at a time */

struct cache_range { /* struct cachestat_range */
	u64 off, len;
};
struct cache_counts { /* struct cachestat */
	u64 cached, dirty, writeback, evicted, recently_evicted;
};

static u64 pages_in_memory(struct mappable *m, u64 start, u64 end)
{
	u8 there[CACHESTAT_STEP];
	u64 count = 0;

	while (start < end) {
		u64 n = MIN((end - start) >> PAGE_SHIFT, CACHESTAT_STEP);

		memset(there, 0, n);
		m->ops->resident(m, start, start + (n << PAGE_SHIFT), there);
		for (u64 i = 0; i < n; i++)
			count += there[i];
		start += n << PAGE_SHIFT;
	}
	return count;
}

s64 sys_cachestat(struct task *t, const u64 a[6])
{
	struct file *f = fd_get(t->fds, (int)a[0]);
	struct cache_counts counts = { 0 };
	struct mappable *m = NULL;
	struct cache_range range;
	struct kstat st;
	u64 start, end;
	s64 r;

	if (!f)
		return -EBADF;
	r = copy_in(t, &range, ua(a[1]), sizeof(range));
	if (r == 0 && (u32)a[3])
		r = -EINVAL;
	if (r == 0 && inode_is_reg(f->inode) && f->ops->mappable &&
	    inode_getattr(f->inode, &st) == 0 && f->ops->mappable(f, &m) == 0) {
		end = page_up_nofail(MIN(st.size, INT64_MAX - PAGE_SIZE));
		start = page_down(range.off);
		if (range.len && range.off <= INT64_MAX && range.len <= INT64_MAX)
			end = MIN(end, page_up_nofail(range.off + range.len));
		if (m->ops->resident && start < end)
			counts.cached = pages_in_memory(m, start, end);
		m->ops->put(m);
	}
	if (r == 0)
		r = copy_out(t, ua(a[2]), &counts, sizeof(counts));
	file_put(f);
	return r;
}
