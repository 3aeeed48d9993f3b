/*
 * vfs/pagecache.h: memory-file pages of a file that lives elsewhere (the host), so that guests can
 * map it.
 *
 * A page cache belongs to one inode and exists only once the file was mapped. It
 * holds extents (file range -> memory file range), filled by ops->read on a
 * fault, in windows that grow while faults follow on.
 *
 * Coherence. Shared writable mappings get their pages through translate with
 * for_write, which marks them dirty; dirty pages are written back by sync, by the
 * removal of the last writable mapping, and when the cache goes. While a cache
 * exists, the owner's reads and writes go through pagecache_read and
 * pagecache_write, which see and update the cached pages; truncation tells
 * pagecache_resized.
 *
 * Unused caches (no mapping) are kept for the next exec, up to HOSTFS_IDLE_CACHE_MAX
 * bytes in all, oldest out first; that is the owner's matter (pagecache_shrink).
 *
 * Lock: pagecache.lock (RANK_MAPPABLE); host reads and writes run under it.
 */
#ifndef MINISENTRY_VFS_PAGECACHE_H
#define MINISENTRY_VFS_PAGECACHE_H

#include "base/avl.h"
#include "base/kiov.h"
#include "vfs/hostfs.h"

#define PAGECACHE_FILL_MIN (128UL << 10)
#define PAGECACHE_FILL_MAX (1UL << 20)
#define PAGECACHE_WHOLE (256UL << 10) /* files up to this size are read at once */

struct pagecache_ops {
	/* Bytes (short at end of file) or -errno; called under the cache's lock. */
	ssize_t (*read)(struct inode *inode, void *dst, size_t len, u64 offset);
	int (*write)(struct inode *inode, const void *src, size_t len, u64 offset);
	int (*size)(struct inode *inode, u64 *ret);
};

struct pagecache {
	struct mappable mappable;
	struct inode *inode; /* the owner; borrowed: mappable references are inode references */
	const struct pagecache_ops *ops;     /* immutable */
	const struct vfs_memory_ops *memory; /* immutable */
	bool writable;			     /* immutable: shared writable mappings are possible */
	struct mutex lock;
	/* protected by lock */
	struct avl_root extents;
	struct list mappings;
	u32 writable_mappings;
	u64 size;		   /* of the file, as last seen */
	u64 next, window;	   /* where the last fill ended, and its size */
	_Atomic u64 bytes;	   /* in extents; read anywhere */
	_Atomic u32 mapping_count; /* users: mappings, and those behind proxies; without the lock */
};

int pagecache_new(struct inode *inode, const struct pagecache_ops *ops,
		  const struct vfs_memory_ops *memory, bool writable, struct pagecache **ret);
/* Writes dirty pages back and frees everything. No mapping may be left. */
void pagecache_free(struct pagecache *pc);
ssize_t pagecache_read(struct pagecache *pc, struct kiov *dst, u64 offset);
ssize_t pagecache_write(struct pagecache *pc, struct kiov *src, u64 offset);
/* Writes dirty pages of [start, end) back. 0 or the first error. */
int pagecache_sync(struct pagecache *pc, u64 start, u64 end);
/* The file now has this size: pages behind it go, the tail of the last one reads as zero. */
void pagecache_resized(struct pagecache *pc, u64 size);
/* The file's range changed without us (hole punched): cached pages go. */
void pagecache_forget(struct pagecache *pc, u64 start, u64 end);
/* Frees all pages if nobody maps the file and nobody is busy with the cache; bytes freed. */
u64 pagecache_shrink(struct pagecache *pc);
/* Frees the clean pages of a file that is mapped: guests fault them in again. Called without locks,
 * for it waits for address spaces. Bytes that were dropped. */
u64 pagecache_drop_clean(struct pagecache *pc);

#endif
