/* /proc/PID/{mem,pagemap}: files that are read at guest addresses instead of as text. */
#include "sentry/proc/internal.h"
#include <linux/capability.h>
#include <stdlib.h>

#define MEM_CHUNK 4096

struct mem_inode {
	struct inode inode;
	struct kernel *kernel;
	struct thread_group *tg; /* a reference */
	int tid;
};

static void mem_destroy(struct inode *inode)
{
	struct mem_inode *m = container_of(inode, struct mem_inode, inode);

	thread_group_put(m->tg);
	inode_fini(inode);
	free(m);
}

static void mem_release(struct file *f)
{
	mm_put(f->private);
}

static s64 mem_seek(struct file *f, s64 offset, int whence)
{
	u64 pos = (u64)offset;

	if (whence == SEEK_CUR)
		pos += f->pos;
	else if (whence != SEEK_SET)
		return -EINVAL;
	return pos > INT64_MAX ? -EOVERFLOW : (s64)pos;
}

static ssize_t mem_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	u8 chunk[MEM_CHUNK];
	ssize_t done = 0;

	if (!f->private)
		return 0;
	while (dst->remaining) {
		u64 at = offset + (u64)done;
		size_t want = MIN(dst->remaining, MEM_CHUNK - (at & (MEM_CHUNK - 1)));
		ssize_t n = mm_access_remote(f->private, at, chunk, want, false);

		if (n <= 0)
			return done ? done : -EIO;
		n = kiov_put(dst, chunk, (size_t)n);
		if (n <= 0)
			return done ? done : -EFAULT;
		done += n;
		if ((size_t)n < want)
			break;
	}
	return done;
}

static ssize_t mem_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	u8 chunk[MEM_CHUNK];
	ssize_t done = 0;

	if (!f->private)
		return 0;
	while (src->remaining) {
		u64 at = offset + (u64)done;
		size_t want = MIN(src->remaining, MEM_CHUNK - (at & (MEM_CHUNK - 1)));
		ssize_t n = kiov_get(src, chunk, want);

		if (n <= 0)
			return done ? done : -EFAULT;
		n = mm_access_remote(f->private, at, chunk, (size_t)n, true);
		if (n <= 0)
			return done ? done : -EIO;
		done += n;
		if ((size_t)n < want)
			break;
	}
	return done;
}

static const struct file_ops mem_file_ops = {
	.kind = "mem",
	.release = mem_release,
	.read = mem_read,
	.write = mem_write,
	.seek = mem_seek,
};

#define PAGEMAP_STEP 512
#define PAGEMAP_END (0x7ffffffff000 / PAGE_SIZE * 8)

static u64 pagemap_entry(u8 flags)
{
	u64 e = 0;

	if (flags & MM_PAGE_PRESENT)
		e |= 1ULL << 63;
	if (flags & MM_PAGE_FILE)
		e |= 1ULL << 61;
	if (flags & MM_PAGE_EXCLUSIVE)
		e |= 1ULL << 56;
	return e;
}

/* Frame numbers are nobody's business without CAP_SYS_ADMIN, and here nobody's at all: zeros, as
 * Linux gives to ordinary users. */
static ssize_t pagemap_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	u64 entries[PAGEMAP_STEP];
	u8 pages[PAGEMAP_STEP];
	ssize_t done = 0, n;

	if ((offset | dst->remaining) % 8)
		return -EINVAL;
	while (f->private && dst->remaining && offset < PAGEMAP_END) {
		size_t count = MIN(dst->remaining, PAGEMAP_END - offset) / 8;

		count = MIN(count, PAGEMAP_STEP);
		mm_page_flags(f->private, offset / 8 * PAGE_SIZE, count, pages);
		for (size_t i = 0; i < count; i++)
			entries[i] = pagemap_entry(pages[i]);
		n = kiov_put(dst, entries, count * 8);
		if (n <= 0)
			return done ? done : -EFAULT;
		done += n;
		offset += (u64)n;
		if ((size_t)n < count * 8)
			break;
	}
	return done;
}

static const struct file_ops pagemap_file_ops = {
	.kind = "pagemap",
	.release = mem_release,
	.read = pagemap_read,
	.seek = mem_seek,
};

static int open_with_mm(struct inode *inode, struct file *file, const struct file_ops *ops)
{
	struct mem_inode *m = container_of(inode, struct mem_inode, inode);
	struct proc_ctx c = { .kernel = m->kernel, .tg = m->tg, .tid = m->tid };
	struct mm *mm;
	int err = proc_task_mm(&c, file->cred, true, &mm);

	if (err)
		return err;
	file->ops = ops;
	file->private = mm;
	return 0;
}

static int mem_open(struct inode *inode, struct file *file)
{
	return open_with_mm(inode, file, &mem_file_ops);
}

static int pagemap_open(struct inode *inode, struct file *file)
{
	return open_with_mm(inode, file, &pagemap_file_ops);
}

static int no_setattr(struct inode *inode, const struct iattr *attr)
{
	return attr->mask & (ATTR_MODE | ATTR_UID | ATTR_GID) ? -EPERM : 0;
}

static const struct inode_ops mem_ops = {
	.open = mem_open,
	.setattr = no_setattr,
	.destroy = mem_destroy,
};
static const struct inode_ops pagemap_ops = {
	.open = pagemap_open,
	.setattr = no_setattr,
	.destroy = mem_destroy,
};

static int make(const struct proc_ctx *c, const struct inode_ops *ops, struct inode **ret)
{
	struct inode_create how = { .mode = c->entry->mode };
	struct mem_inode *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	proc_owner(c, &how.uid, &how.gid);
	inode_init(&m->inode, c->sb, ops, proc_ino(c, c->entry), &how);
	m->kernel = c->kernel;
	m->tg = thread_group_get(c->tg);
	m->tid = c->tid;
	*ret = &m->inode;
	return 0;
}

int proc_make_mem(const struct proc_ctx *c, struct inode **ret)
{
	return make(c, &mem_ops, ret);
}

int proc_make_pagemap(const struct proc_ctx *c, struct inode **ret)
{
	return make(c, &pagemap_ops, ret);
}
