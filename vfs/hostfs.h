/*
 * vfs/hostfs.h: the host's files, and the union that protects them.
 *
 * hostfs works from a directory descriptor, one component at a time with
 * O_NOFOLLOW; an inode holds an O_PATH descriptor (kept in a bounded cache and
 * reopened from the parent when evicted). Regular files are mapped through a
 * page cache in the memory file. Owners are shown as the guest's: host uid of
 * the caller -> the guest's user (see hostfs_options).
 */
#ifndef MINISENTRY_VFS_HOSTFS_H
#define MINISENTRY_VFS_HOSTFS_H

#include "vfs/file.h"

/* The page cache's memory; given by the sentry because vfs may not include pgalloc. Returns ranges
 * with one reference. reader fills them. */
struct vfs_memory_request {
	u64 len;
	u64 hint; /* where it is wanted, so that it continues other memory; 0: anywhere */
	u64 room; /* likely to be wanted beside it later, on both sides; without the hint */
	ssize_t (*reader)(void *arg, void *dst, size_t len);
	void *reader_arg;
};
struct vfs_memory_ops {
	int (*allocate)(void *arg, const struct vfs_memory_request *req, struct memfile **ret_file,
			struct mem_range *ret);
	void *arg;
};

struct hostfs_options {
	int root_fd; /* directory; taken */
	bool read_only;
	bool shared;		  /* the host may change it: revalidate, do not cache absence */
	u32 host_uid, host_gid;	  /* these host ids ... */
	u32 guest_uid, guest_gid; /* ... are these in the guest; others are shown as they are, or
				     65534 unmapped */
	const char *source;	  /* for mountinfo */
	const struct vfs_memory_ops *memory; /* borrowed for ever */
	/* Paths below the root (no leading slash) that look like empty directories;
	 * NULL-terminated. */
	const char *const *hidden;
};
/* Frees pages of host files that nobody maps, `bytes` or more if there are so many; bytes freed.
 * May be called under any lock of rank RANK_MAPPABLE or lower: waits for no other. */
u64 hostfs_reclaim(u64 bytes);
/* The last resort: clean pages of mapped files too, which guests then fault in again. Called
 * without locks. */
u64 hostfs_reclaim_mapped(u64 bytes);
int hostfs_new(const struct hostfs_options *o, struct superblock **ret);
/* A file over an inherited host descriptor (stdin, stdout, stderr, --pass-fd): regular, pipe,
 * socket, tty. Takes host_fd over on success. memory, for mappings of a regular one, is borrowed
 * for ever; NULL: there are none. The sentry ignores SIGPIPE. */
int hostfs_file_from_fd(int host_fd, const struct cred *cred, const struct vfs_memory_ops *memory,
			struct file **ret);
/* The host descriptor behind such a file (borrowed), or -1: for the terminal code's own ioctls. */
int hostfs_file_fd(struct file *f);
/* ioctls of such files, given by sentry/ (vfs cannot reach guest memory). May stay NULL: -ENOTTY.
 */
extern s64 (*hostfs_ioctl_hook)(struct file *f, int host_fd, u32 cmd, u64 arg);
/* Thread that watches pollable host fds and wakes their waitqs; started on first use, before
 * which nothing polls. */
void hostfs_poll_stop(void);

/* vfs/overlay.h's constructor: upper is writable, lower is read-only. Takes references. */
struct overlay_options {
	struct superblock *upper, *lower;
	const char *source;
};
int overlay_new(const struct overlay_options *o, struct superblock **ret);

#endif
