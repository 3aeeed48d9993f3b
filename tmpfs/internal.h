/*
 * tmpfs/internal.h: what the files of tmpfs/ share.
 *
 * super.c     superblock, limits, options, statfs
 * inode.c     inode operations that are not data or names; open
 * dir.c       directory entries: hash by name, ordered by readdir cookie
 * xattr.c     extended attributes
 * extent.c    a regular file's extents: file range -> memory file range
 * data.c      read, write, truncate, punch, seek over the extents
 * fallocate.c reservation, commit and insertion of whole ranges
 * map.c       the mappable: translate, registrations, invalidation
 * memfd.c     memfd_create, seals, shared anonymous memory
 *
 * Locks: a directory's entries by inode->dir_lock (held by the vfs); metadata by
 * inode->attr_lock; a regular file's data (extents, size, seals, registrations)
 * by data->lock (RANK_MAPPABLE), which is never held across invalidate.
 *
 * A file's pages lie in the superblock's memory file, or by whole units of 2 MiB in
 * its large one (pgalloc.h): what fallocate reserves, and what is written or touched in order
 * for longer than one unit. Both stand at the same place in their unit as in the file.
 *
 * Accounting: a page is charged to the superblock before it is allocated and
 * uncharged when it leaves an extent tree (or was never inserted). charged ==
 * sum of all data->page_count, plus what calls in progress hold.
 */
#ifndef MINISENTRY_TMPFS_INTERNAL_H
#define MINISENTRY_TMPFS_INTERNAL_H

#include "pgalloc/promise.h"
#include "tmpfs/ktree.h"
#include "tmpfs/tmpfs.h"

#define TMPFS_MAX_SIZE ((u64)INT64_MAX)
/* Bytes of names and values of one inode's extended attributes. */
#define TMPFS_XATTR_TOTAL_MAX (1UL << 20)
/* An appending writer's reserve of offsets, which keeps its extents in one piece. */
#define TMPFS_WINDOW_MIN (64UL << 10)
#define TMPFS_WINDOW_MAX (256UL << 10)
/* Larger writes go through the host and need no window. */
#define TMPFS_WINDOW_WRITE (2 * PAGE_SIZE)
/* A sequential toucher of a mapping gets at most this much a fault. */
#define TMPFS_FAULT_WINDOW_MAX (2UL << 20)
/* A run of this length gets huge pages for what follows. */
#define TMPFS_LARGE_AFTER (2UL << 20)
/* All windows of huge pages together take at most this part of the memory that is left. */
#define TMPFS_LARGE_SHARE 16

/* As Linux's tmpfs shows the size of directories. */
#define TMPFS_DIRENT_SIZE 20
/* Positions 0 and 1 are "." and "..". */
#define TMPFS_FIRST_COOKIE 2

/* Newer than this system's headers. */
#define TMPFS_F_SEAL_EXEC 0x0020

/* ---- super.c ---- */

struct tmpfs_sb {
	struct superblock sb;
	struct pgalloc *store;		   /* immutable */
	struct memfile *memory;		   /* immutable: pgalloc_file(store) */
	struct pgalloc *large;		   /* immutable: pgalloc_large(store); may be NULL */
	u32 acct_id;			   /* immutable */
	bool allow_any_xattr;		   /* immutable */
	bool own_store;			   /* immutable */
	u32 hash_seed;			   /* immutable */
	u32 root_mode, root_uid, root_gid; /* immutable: for show_options */
	_Atomic u64 page_limit;		   /* 0: none */
	_Atomic u64 inode_limit;	   /* 0: none */
	_Atomic u64 pages_used;
	_Atomic u64 inodes_used;
	_Atomic u64 large_windows; /* how many are open */
};

static inline struct tmpfs_sb *tmpfs_sb(struct superblock *sb)
{
	return container_of(sb, struct tmpfs_sb, sb);
}

static inline struct pgalloc *sb_store(struct tmpfs_sb *s, bool large)
{
	return large ? s->large : s->store;
}

static inline struct memfile *sb_memory(struct tmpfs_sb *s, bool large)
{
	return large ? pgalloc_file(s->large) : s->memory;
}

/* Charges up to n pages; returns how many were granted (0: full). */
u64 tmpfs_charge_upto(struct tmpfs_sb *s, u64 n);
/* All or nothing: true when charged. */
bool tmpfs_charge(struct tmpfs_sb *s, u64 n);
void tmpfs_uncharge(struct tmpfs_sb *s, u64 n);
bool tmpfs_charge_inode(struct tmpfs_sb *s);
void tmpfs_uncharge_inode(struct tmpfs_sb *s);

/* ---- inode.c ---- */

struct extent;

/* A regular file's data. */
struct tmpfs_data {
	struct mappable mappable;
	struct rwlock lock; /* RANK_MAPPABLE */
	_Atomic u64 size;   /* written under lock (write), read anywhere */
	/* protected by lock */
	_Atomic u64 page_count; /* pages in extents; read anywhere */
	struct ktree extents;
	struct ktree unwritten; /* parts of them, see unwritten.c */
	struct list mappings;
	u32 writable_mappings; /* shared registrations that may write */
	u32 seals;
	/* Reserved offsets for the next append at file offset window_at; not charged. */
	struct mem_range window;
	bool window_large; /* it is in the large memory file */
	u64 window_at;
	u64 window_populated; /* memory file offset up to which the window is populated */
	u64 append_next;      /* where the last allocation ended */
	u32 append_run;	      /* allocations in a row that continued it */
	u64 append_bytes;     /* how long they are together */
	u64 fault_next;	      /* the same for translate */
	u32 fault_run;
	u64 promised; /* immutable: bytes that were promised when it was made; 0: page by page */
};

/* tmpfs_charge and its like for pages of d, which count as promised memory (pgalloc/promise.h) too.
 */
u64 data_charge_upto(struct tmpfs_data *d, u64 n);
bool data_charge(struct tmpfs_data *d, u64 n);
void data_uncharge(struct tmpfs_data *d, u64 n);

struct tmpfs_dirent {
	struct knode by_cookie; /* key: cookie; protected by the directory's dir_lock */
	struct tmpfs_dirent *hash_next;
	struct inode *inode; /* holds a reference */
	u32 hash;
	u16 name_len;
	char name[];
};

struct tmpfs_dir {
	/* protected by dir_lock */
	struct ktree entries;
	struct tmpfs_dirent **buckets;
	u32 bucket_count; /* power of two, or 0 */
	u64 count;
	_Atomic u64 next_cookie;
	_Atomic u64 parent_ino; /* what ".." shows */
};

struct tmpfs_xattr;

struct tmpfs_inode {
	struct inode inode;
	struct tmpfs_xattr *xattrs; /* protected by inode.attr_lock */
	size_t xattr_bytes;	    /* protected by inode.attr_lock */
	_Atomic bool has_capability_xattr;
	union {
		struct tmpfs_data data; /* S_IFREG */
		struct tmpfs_dir dir;	/* S_IFDIR */
		char *target;		/* S_IFLNK */
	};
	char *memfd_name; /* immutable: memfds; NULL otherwise */
};

static inline struct tmpfs_inode *tmpfs_inode(struct inode *i)
{
	return container_of(i, struct tmpfs_inode, inode);
}

static inline struct tmpfs_inode *data_inode(struct tmpfs_data *d)
{
	return container_of(d, struct tmpfs_inode, data);
}

static inline struct tmpfs_sb *data_sb(struct tmpfs_data *d)
{
	return tmpfs_sb(data_inode(d)->inode.sb);
}

extern const struct inode_ops tmpfs_inode_ops;
extern const struct file_ops tmpfs_file_ops;
extern const struct file_ops memfd_file_ops;
/* What tmpfs_file_ops and memfd_file_ops have in common. */
#define TMPFS_FILE_OPS                                                                             \
	.release = tmpfs_file_release, .read = tmpfs_read, .write = tmpfs_write,                   \
	.seek = tmpfs_seek, .mappable = tmpfs_file_mappable, .fsync = tmpfs_file_fsync,            \
	.fallocate = tmpfs_fallocate, .fcntl = tmpfs_fcntl, .direct = tmpfs_direct,                \
	.overwrite = tmpfs_overwrite
void tmpfs_file_release(struct file *f);
int tmpfs_file_mappable(struct file *f, struct mappable **ret);
int tmpfs_file_fsync(struct file *f, bool data_only);

/* Charges an inode; -ENOSPC, -ENOMEM. Returns a reference. */
int tmpfs_inode_new(struct tmpfs_sb *s, const struct inode_create *how, struct inode **ret);
int tmpfs_getattr(struct inode *inode, struct kstat *ret);
int tmpfs_setattr(struct inode *inode, const struct iattr *attr);

/* ---- dir.c ---- */

int tmpfs_lookup(struct inode *dir, const char *name, struct inode **ret);
int tmpfs_create(struct inode *dir, const char *name, const struct inode_create *how,
		 struct inode **ret);
int tmpfs_symlink(struct inode *dir, const char *name, const char *target,
		  const struct inode_create *how, struct inode **ret);
int tmpfs_link(struct inode *dir, const char *name, struct inode *target);
int tmpfs_unlink(struct inode *dir, const char *name, struct inode *target);
int tmpfs_rmdir(struct inode *dir, const char *name, struct inode *target);
int tmpfs_rename(struct inode *old_dir, const char *old_name, struct inode *source,
		 struct inode *new_dir, const char *new_name, struct inode *target, u32 flags);
void tmpfs_dir_destroy(struct tmpfs_inode *dir);
extern const struct file_ops tmpfs_dir_ops;

/* ---- xattr.c ---- */

ssize_t tmpfs_getxattr(struct inode *inode, const char *name, void *dst, size_t size);
int tmpfs_setxattr(struct inode *inode, const char *name, const void *value, size_t size,
		   int flags);
ssize_t tmpfs_listxattr(struct inode *inode, char *dst, size_t size);
int tmpfs_removexattr(struct inode *inode, const char *name);
/* Content or owner changed: file capabilities no longer describe it. */
void tmpfs_drop_capability_xattr(struct tmpfs_inode *i);
void tmpfs_xattrs_free(struct tmpfs_inode *i);

/* ---- extent.c: all under data->lock held for write, except data_extent_find (read) ---- */

struct extent {
	struct knode node; /* key: file offset */
	u64 len;
	u64 mem; /* memory file offset of the first byte */
	bool large;
};

static inline u64 extent_end(const struct extent *e)
{
	return e->node.key + e->len;
}

/* The extent that holds `off`, or the first one after it; NULL when none. */
struct extent *data_extent_find(struct tmpfs_data *d, u64 off);
/* Puts [off, off+len) -> mem into the tree (a hole there), merging with neighbours. Takes the
 * range's reference and its charge. 0 or -ENOMEM (then both stay the caller's). */
int data_extent_insert(struct tmpfs_data *d, u64 off, u64 len, u64 mem, bool large);
/*
 * Takes all of [start, end) (page-aligned) out of the tree and links the
 * removed pieces into *removed, which the caller releases whatever the result.
 * 0, or -ENOMEM when an extent had to be cut and there was no memory.
 */
int data_extent_remove(struct tmpfs_data *d, u64 start, u64 end, struct ktree *removed);
/* Drops references and charges of removed pieces. No lock needed. */
void data_extents_release(struct tmpfs_data *d, struct ktree *removed);
/* The memory file offset right behind the page before `off`, as an allocation hint; 0 none. */
u64 data_extent_hint(struct tmpfs_data *d, u64 off, bool large);

/* ---- unwritten.c: under data->lock, for write where it changes; page-aligned offsets ---- */

/* [start, end) has just been allocated for fallocate, and was a hole. */
void unwritten_add(struct tmpfs_data *d, u64 start, u64 end);
void unwritten_clear_slow(struct tmpfs_data *d, u64 start, u64 end);
/* From now on it is data, or no longer there. */
static inline void unwritten_clear(struct tmpfs_data *d, u64 start, u64 end)
{
	if (!ktree_empty(&d->unwritten))
		unwritten_clear_slow(d, start, end);
}
/* The first unwritten part at or after off. */
bool unwritten_next(const struct tmpfs_data *d, u64 off, u64 *ret_start, u64 *ret_end);
void unwritten_free(struct tmpfs_data *d);

/* ---- data.c ---- */

/* The first run of data at or after off, of the file's pages. */
bool data_next_run(struct tmpfs_data *d, u64 off, u64 *ret_start, u64 *ret_end);

void tmpfs_data_init(struct tmpfs_data *d);
void tmpfs_data_destroy(struct tmpfs_data *d);
ssize_t tmpfs_read(struct file *f, struct kiov *dst, u64 offset, int flags);
ssize_t tmpfs_write(struct file *f, struct kiov *src, u64 offset, int flags);
struct file *tmpfs_direct(struct file *f);
ssize_t tmpfs_overwrite(struct file *f, struct kiov *src, u64 offset);
s64 tmpfs_seek(struct file *f, s64 offset, int whence);
int tmpfs_truncate(struct tmpfs_data *d, u64 size);
/*
 * Allocates pages for the hole at `start` (page-aligned, at most len bytes; the hole itself is
 * `room` long) and inserts them. Returns bytes made available, -ENOSPC or -ENOMEM. lock held for
 * write.
 */
s64 data_fill_hole(struct tmpfs_data *d, u64 start, u64 len, u64 room);
/* Gives the append window's offsets back. lock held for write. */
void data_drop_window(struct tmpfs_data *d);
/* Zeroes [off, off+len) where it is allocated. lock held for write. */
void data_zero_allocated(struct tmpfs_data *d, u64 off, u64 len);

/* ---- fallocate.c ---- */

int tmpfs_fallocate(struct file *f, int mode, u64 offset, u64 len);
/* Frees whole pages of [offset, offset+len) and zeroes the rest of it. 0, -EPERM (seals), -ENOMEM.
 */
int tmpfs_punch_hole(struct tmpfs_data *d, u64 offset, u64 len);

/* ---- map.c ---- */

extern const struct mappable_ops tmpfs_mappable_ops;
/* Calls invalidate for every registration that meets [start, end). No lock held. */
void tmpfs_invalidate(struct tmpfs_data *d, u64 start, u64 end, bool private_too);

/* ---- memfd.c ---- */

s64 tmpfs_fcntl(struct file *f, int cmd, u64 arg);

#endif
