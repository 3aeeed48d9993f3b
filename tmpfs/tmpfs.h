/*
 * tmpfs/tmpfs.h: tmpfs, memfd and shared anonymous memory.
 *
 * A regular file is a set of memory-file extents (offset -> range) plus a size.
 * Holes are not allocated by reading. fallocate commits and populates by range
 * (disk-backed: commits); a write of more than one page populates first. Each
 * tmpfs has a size and inode limit with exact, lock-free accounting.
 *
 * Locks: inode->dir_lock of a directory for its entries; a file's extents by
 * its own RANK_MAPPABLE lock. mm reaches files only as a mappable.
 */
#ifndef MINISENTRY_TMPFS_TMPFS_H
#define MINISENTRY_TMPFS_TMPFS_H

#include "pgalloc/pgalloc.h"
#include "vfs/file.h"

struct tmpfs_options {
	struct pgalloc *store; /* borrowed; disk-backed or memory */
	u64 size_limit;	       /* bytes; 0 = none */
	u64 inode_limit;       /* 0 = none */
	u32 mode, uid, gid;    /* of the root directory */
	u32 acct_id;
	const char *source;
	bool allow_any_xattr; /* overlay upper layers: trusted.* etc. for the sentry itself */
	bool own_store; /* the file system frees the store when it goes (not when tmpfs_new fails)
			 */
};
int tmpfs_new(const struct tmpfs_options *o, struct superblock **ret);
/* Parses mount(2) data ("size=10m,mode=1777,nr_inodes=..,uid=,gid="); half of total_memory by
 * default. */
int tmpfs_parse_options(const char *data, u64 total_memory, struct tmpfs_options *io);
/* mount -o remount: new size and inode limits; -EINVAL below what is in use or for a bad option. */
int tmpfs_remount(struct superblock *sb, const char *data, u64 total_memory);

/* memfd_create(2): flags MFD_*. sb is the kernel's internal tmpfs. */
int memfd_create_file(struct superblock *sb, const char *name, u32 flags, const struct cred *cred,
		      struct file **ret);
/*
 * Shared anonymous memory of len bytes (MAP_SHARED|MAP_ANONYMOUS, SysV shm). reserve: all of it is
 * promised now (pgalloc/promise.h), for a process with `space` bytes mapped; else page by page.
 * Returns a reference. 0; -ENOMEM; -EINVAL: too long; -ENOSPC: too many files.
 */
struct shmem_opts {
	u64 len;
	bool reserve;
	bool admin; /* CAP_SYS_ADMIN */
	u64 space;
};
int shmem_new(struct superblock *sb, const struct shmem_opts *opts, struct mappable **ret);
/* Bytes of it that are allocated. */
u64 shmem_allocated(const struct mappable *m);

#endif
