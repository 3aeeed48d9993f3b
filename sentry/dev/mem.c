/* The memory devices: null, zero, full, random, urandom (null(4), full(4), random(4)). */
#include "base/host_time.h"
#include "base/log.h"
#include "sentry/dev/dev.h"
#include "tmpfs/tmpfs.h"
#include <linux/capability.h>
#include <linux/random.h>
#include <string.h>

/* MAP_SHARED of /dev/zero: memory as large as anyone maps. */
#define ZERO_MAPPING_SIZE (1ULL << 46)
#define ENTROPY_BITS 256
#define RANDOM_CHUNK 1024

static struct kernel *kernel; /* immutable after dev_init */

static s64 seek_nowhere(struct file *f, s64 offset, int whence)
{
	f->pos = 0;
	return 0;
}

static ssize_t read_nothing(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	return 0;
}

static ssize_t write_anything(struct file *f, struct kiov *src, u64 offset, int flags)
{
	ssize_t n = (ssize_t)src->remaining;

	kiov_advance(src, src->remaining);
	return n;
}

static ssize_t read_zeros(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	return dst->remaining ? kiov_zero(dst, dst->remaining) : 0;
}

static ssize_t write_full(struct file *f, struct kiov *src, u64 offset, int flags)
{
	return -ENOSPC;
}

static int zero_mappable(struct file *f, struct mappable **ret)
{
	return shmem_new(kernel->internal_tmpfs, &(struct shmem_opts){ .len = ZERO_MAPPING_SIZE },
			 ret);
}

static ssize_t read_random(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	u8 chunk[RANDOM_CHUNK];
	ssize_t done = 0;

	while (dst->remaining) {
		size_t want = MIN(dst->remaining, sizeof(chunk));
		ssize_t n = host_getrandom(chunk, want, 0);

		if (n)
			return done ? done : n;
		n = kiov_put(dst, chunk, want);
		if (n <= 0)
			return done ? done : -EFAULT;
		done += n;
	}
	return done;
}

static s64 random_ioctl(struct file *f, u32 cmd, u64 arg)
{
	s32 bits = ENTROPY_BITS;

	switch (cmd) {
	case RNDGETENTCNT: return copy_out(current_task, ua(arg), &bits, sizeof(bits));
	case RNDADDTOENTCNT:
	case RNDADDENTROPY:
	case RNDZAPENTCNT:
	case RNDCLEARPOOL:
	case RNDRESEEDCRNG:
		/* the pool is the host's: an administrator may ask, and nothing changes */
		return cred_capable(current_task->cred, CAP_SYS_ADMIN) ? 0 : -EPERM;
	default: return -EINVAL;
	}
}

static const struct file_ops null_ops = {
	.kind = "null",
	.read = read_nothing,
	.write = write_anything,
	.seek = seek_nowhere,
};
static const struct file_ops zero_ops = {
	.kind = "zero",
	.read = read_zeros,
	.write = write_anything,
	.seek = seek_nowhere,
	.mappable = zero_mappable,
};
static const struct file_ops full_ops = {
	.kind = "full",
	.read = read_zeros,
	.write = write_full,
	.seek = seek_nowhere,
};
static const struct file_ops random_ops = {
	.kind = "random",
	.read = read_random,
	.write = write_anything,
	.seek = seek_nowhere,
	.ioctl = random_ioctl,
};

static int mem_open(struct inode *inode, struct file *file)
{
	static const struct file_ops *const by_minor[] = {
		[3] = &null_ops,   [5] = &zero_ops,   [7] = &full_ops,
		[8] = &random_ops, [9] = &random_ops,
	};

	if (inode->rdev_minor >= ARRAY_SIZE(by_minor) || !by_minor[inode->rdev_minor])
		return -ENXIO;
	file->ops = by_minor[inode->rdev_minor];
	return 0;
}

bool file_is_dev_zero(struct file *f)
{
	return f->ops == &zero_ops;
}

void dev_init(struct kernel *k)
{
	kernel = k;
	if (vfs_register_chrdev(MEM_MAJOR, mem_open))
		log_warn("dev: major %d is taken", MEM_MAJOR);
}
