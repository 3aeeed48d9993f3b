#include "vfs/inode.h"
#include "base/log.h"
#include "vfs/locks.h"
#include "vfs/pipe.h"
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

static _Atomic u32 next_minor = 1;
static _Atomic u64 next_ino = 1;

u32 vfs_anon_dev(void)
{
	return atomic_fetch_add(&next_minor, 1) & 0xfffff;
}

u64 vfs_next_ino(void)
{
	return atomic_fetch_add(&next_ino, 1);
}

struct timespec vfs_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts;
}

/* The latest exact time given out, ns: what is stamped later may not seem earlier. */
static _Atomic u64 times_floor;

static u64 to_ns(struct timespec ts)
{
	return (u64)ts.tv_sec * 1000000000ULL + (u64)ts.tv_nsec;
}

static struct timespec coarse_now(void)
{
	u64 floor = atomic_load_explicit(&times_floor, memory_order_relaxed);
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	if (to_ns(ts) < floor)
		ts = (struct timespec){ (time_t)(floor / 1000000000ULL),
					(long)(floor % 1000000000ULL) };
	return ts;
}

struct timespec inode_now(struct inode *inode)
{
	struct timespec now;
	u64 floor, ns;

	atomic_store_explicit(&inode->atime_until, 0, memory_order_relaxed);
	if (!(atomic_load_explicit(&inode->iflags, memory_order_relaxed) & INODE_TIMES_SEEN))
		return coarse_now();
	atomic_fetch_and(&inode->iflags, ~INODE_TIMES_SEEN);
	now = vfs_now();
	ns = to_ns(now);
	floor = atomic_load_explicit(&times_floor, memory_order_relaxed);
	while (floor < ns && !atomic_compare_exchange_weak(&times_floor, &floor, ns))
		;
	return now;
}

void inode_init(struct inode *inode, struct superblock *sb, const struct inode_ops *ops, u64 ino,
		const struct inode_create *how)
{
	memset(inode, 0, sizeof(*inode));
	refs_init(&inode->refs, "inode");
	inode->ops = ops;
	inode->sb = superblock_get(sb);
	inode->ino = ino;
	inode->type = how->mode & S_IFMT;
	inode->rdev_major = how->rdev_major;
	inode->rdev_minor = how->rdev_minor;
	rwlock_init(&inode->dir_lock, RANK_DIR, "inode.dir_lock");
	mutex_init(&inode->attr_lock, RANK_INODE, "inode.attr_lock");
	inode->mode = how->mode;
	inode->uid = how->uid;
	inode->gid = how->gid;
	inode->nlink = S_ISDIR(how->mode) ? 2 : 1;
	inode->atime = inode->mtime = inode->ctime = inode->btime = coarse_now();
}

struct inode *inode_get(struct inode *inode)
{
	refs_get(&inode->refs);
	return inode;
}

void inode_put(struct inode *inode)
{
	struct superblock *sb;

	if (!inode || !refs_put(&inode->refs))
		return;
	sb = inode->sb;
	if (atomic_load(&inode->locks))
		vfs_locks_free(inode);
	if (atomic_load(&inode->fifo))
		fifo_inode_free(inode);
	if (inode->ops->destroy) {
		inode->ops->destroy(inode);
	} else {
		inode_fini(inode);
		free(inode);
	}
	superblock_put(sb);
}

void inode_fini(struct inode *inode)
{
	rwlock_destroy(&inode->dir_lock);
	mutex_destroy(&inode->attr_lock);
}

void superblock_init(struct superblock *sb, const struct superblock_ops *ops, const char *type,
		     const char *source, u64 magic, u32 flags)
{
	memset(sb, 0, sizeof(*sb));
	refs_init(&sb->refs, "superblock");
	sb->ops = ops;
	sb->type = type;
	sb->source = strdup(source ? source : type);
	sb->dev_minor = vfs_anon_dev();
	sb->flags = flags;
	sb->magic = magic;
	mutex_init(&sb->rename_lock, RANK_RENAME, "superblock.rename_lock");
}

struct superblock *superblock_get(struct superblock *sb)
{
	refs_get(&sb->refs);
	return sb;
}

void superblock_put(struct superblock *sb)
{
	char *source;

	if (!sb || !refs_put(&sb->refs))
		return;
	source = (char *)sb->source;
	mutex_destroy(&sb->rename_lock);
	if (sb->ops->destroy)
		sb->ops->destroy(sb);
	else
		free(sb);
	free(source);
}

void superblock_drop_root(struct superblock *sb)
{
	struct inode *root = sb->root;

	if (root && sb->ops->unmounted)
		sb->ops->unmounted(sb);
	sb->root = NULL;
	inode_put(root);
}

int inode_get_write(struct inode *inode)
{
	int n = atomic_load(&inode->write_count);

	do {
		if (n < 0)
			return -ETXTBSY;
	} while (!atomic_compare_exchange_weak(&inode->write_count, &n, n + 1));
	return 0;
}

void inode_put_write(struct inode *inode)
{
	int old = atomic_fetch_sub(&inode->write_count, 1);

	ASSERT(old > 0);
}

int inode_deny_write(struct inode *inode)
{
	int n = atomic_load(&inode->write_count);

	do {
		if (n > 0)
			return -ETXTBSY;
	} while (!atomic_compare_exchange_weak(&inode->write_count, &n, n - 1));
	return 0;
}

void inode_allow_write(struct inode *inode)
{
	int old = atomic_fetch_add(&inode->write_count, 1);

	ASSERT(old < 0);
}

/* relatime: how old an access time may become. */
#define ATIME_SECONDS (24 * 3600)

static bool ts_before_or_equal(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec <= b->tv_nsec);
}

void inode_accessed(struct inode *inode)
{
	struct timespec now = coarse_now();

	if (now.tv_sec < atomic_load_explicit(&inode->atime_until, memory_order_relaxed))
		return;
	MUTEX_GUARD(&inode->attr_lock);
	if (ts_before_or_equal(&inode->atime, &inode->mtime) ||
	    ts_before_or_equal(&inode->atime, &inode->ctime) ||
	    now.tv_sec - inode->atime.tv_sec >= ATIME_SECONDS)
		inode->atime = now;
	else
		atomic_store_explicit(&inode->atime_until,
				      (u32)(inode->atime.tv_sec + ATIME_SECONDS),
				      memory_order_relaxed);
}

int inode_getattr(struct inode *inode, struct kstat *ret)
{
	return inode->ops->getattr ? inode->ops->getattr(inode, ret)
				   : vfs_generic_getattr(inode, ret);
}

int vfs_generic_getattr(struct inode *inode, struct kstat *ret)
{
	struct superblock *sb = inode->sb;

	MUTEX_GUARD(&inode->attr_lock);
	if (!(atomic_load_explicit(&inode->iflags, memory_order_relaxed) & INODE_TIMES_SEEN))
		atomic_fetch_or(&inode->iflags, INODE_TIMES_SEEN);
	*ret = (struct kstat){
		.dev_major = sb->dev_major,
		.dev_minor = sb->dev_minor,
		.ino = inode->ino,
		.mode = inode->mode,
		.nlink = inode->nlink,
		.uid = inode->uid,
		.gid = inode->gid,
		.rdev_major = inode->rdev_major,
		.rdev_minor = inode->rdev_minor,
		.size = inode->size,
		.blocks = (inode->size + 511) / 512,
		.blksize = PAGE_SIZE,
		.atime = inode->atime,
		.mtime = inode->mtime,
		.ctime = inode->ctime,
		.btime = inode->btime,
	};
	return 0;
}

int vfs_generic_setattr(struct inode *inode, const struct iattr *attr)
{
	struct timespec now;
	u32 mode;

	MUTEX_GUARD(&inode->attr_lock);
	now = inode_now(inode);
	mode = inode->mode;
	if (attr->mask & ATTR_MODE)
		mode = inode->type | (attr->mode & 07777);
	if ((attr->mask & ATTR_KILL_SUID) && !S_ISDIR(inode->type)) {
		mode &= ~S_ISUID;
		if (mode & S_IXGRP)
			mode &= ~S_ISGID;
	}
	inode_set_perm(inode, mode, attr->mask & ATTR_UID ? attr->uid : inode->uid,
		       attr->mask & ATTR_GID ? attr->gid : inode->gid);
	if (attr->mask & ATTR_ATIME)
		inode->atime = attr->atime;
	if (attr->mask & ATTR_ATIME_NOW)
		inode->atime = now;
	if (attr->mask & ATTR_MTIME)
		inode->mtime = attr->mtime;
	if (attr->mask & ATTR_MTIME_NOW)
		inode->mtime = now;
	inode->ctime = now;
	return 0;
}

void inode_touch(struct inode *inode, u32 mask)
{
	struct timespec now;

	MUTEX_GUARD(&inode->attr_lock);
	now = inode_now(inode);
	if (mask & ATTR_ATIME)
		inode->atime = now;
	if (mask & ATTR_MTIME)
		inode->mtime = inode->ctime = now;
}

int vfs_permission_bits(u32 mode, u32 uid, u32 gid, const struct cred *cred, int mask)
{
	u32 bits;

	if (cred->fsuid == uid)
		bits = mode >> 6;
	else if (cred_in_group(cred, gid))
		bits = mode >> 3;
	else
		bits = mode;
	if (((u32)mask & ~bits & 7) == 0)
		return 0;
	if (S_ISDIR(mode)) {
		if (!(mask & MAY_WRITE) && cred_capable(cred, CAP_DAC_READ_SEARCH))
			return 0;
		return cred_capable(cred, CAP_DAC_OVERRIDE) ? 0 : -EACCES;
	}
	if (mask == MAY_READ && cred_capable(cred, CAP_DAC_READ_SEARCH))
		return 0;
	if (!(mask & MAY_EXEC) || (mode & 0111))
		return cred_capable(cred, CAP_DAC_OVERRIDE) ? 0 : -EACCES;
	return -EACCES;
}

/*
 * Reading mode and owner without attr_lock is deliberate for file systems with own storage: each
 * word is read once, and a change that races with a check may be seen either way.
 */
int vfs_permission(struct inode *inode, const struct cred *cred, int mask)
{
	u32 mode, uid, gid;

	if (!mask)
		return 0;
	if (inode->ops->permission)
		return inode->ops->permission(inode, cred, mask);
	mode = __atomic_load_n(&inode->mode, __ATOMIC_RELAXED);
	uid = __atomic_load_n(&inode->uid, __ATOMIC_RELAXED);
	gid = __atomic_load_n(&inode->gid, __ATOMIC_RELAXED);
	return vfs_permission_bits(mode, uid, gid, cred, mask);
}
