/*
 * vfs/inode.h: inodes and file systems.
 *
 * An inode owns metadata and data; names belong to dentries (vfs/path.h), file
 * offsets to open files (vfs/file.h). A file system (superblock) is a vtable of
 * inode operations; tmpfs, hostfs, overlay, procfs, devpts and the pipe and
 * socket pseudo file systems are its kinds.
 *
 * Division of labour. The vfs layer (namei.c) walks paths, checks permission
 * bits and sticky directories, open-flag rules, read-only mounts, limits on
 * names and symlinks, and keeps the dentry cache. Inode operations are called
 * with permission already checked; `dir` operations are called with the
 * directory's `dir_lock` held for write (lookup: read). They get plain names:
 * never "", ".", "..", never longer than 255 bytes, never with '/'. rmdir, and
 * rename onto or exchange with a directory, also hold the target directory's
 * dir_lock for write: an operation checks emptiness without locking, and after
 * it the vfs makes no new name in the dead directory. rename holds both parents'
 * locks, and the superblock's rename_lock when the parents differ.
 *
 * Locks: inode->dir_lock (RANK_DIR; parent before child, rename takes the file
 * system's rename lock first), inode->attr_lock (RANK_INODE; mode, owner, times,
 * nlink; held by the operations themselves, not by callers).
 */
#ifndef MINISENTRY_VFS_INODE_H
#define MINISENTRY_VFS_INODE_H

#include "base/cred.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/mappable.h"
#include "base/refs.h"
#include "base/types.h"
#include "base/waitq.h"
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>

struct inode;
struct file;
struct superblock;
struct dentry;
struct path;
struct vfs_locks; /* flock and record locks of an inode, vfs/locks.h */

/* What stat returns; all fields always filled. */
struct kstat {
	u32 dev_major, dev_minor;
	u64 ino;
	u32 mode; /* type and permission bits */
	u32 nlink;
	u32 uid, gid;
	u32 rdev_major, rdev_minor;
	u64 size, blocks; /* blocks of 512 bytes */
	u32 blksize;
	struct timespec atime, mtime, ctime, btime;
};

/* Which fields setattr changes. Times: SET with the given time, or NOW. */
enum {
	ATTR_MODE = 1 << 0,
	ATTR_UID = 1 << 1,
	ATTR_GID = 1 << 2,
	ATTR_SIZE = 1 << 3,
	ATTR_ATIME = 1 << 4,
	ATTR_MTIME = 1 << 5,
	ATTR_ATIME_NOW = 1 << 6,
	ATTR_MTIME_NOW = 1 << 7,
	ATTR_KILL_SUID =
		1 << 8, /* drop S_ISUID and, with group exec, S_ISGID; and security.capability */
};

struct iattr {
	u32 mask;
	u32 mode, uid, gid;
	u64 size;
	struct timespec atime, mtime;
};

struct inode_create {
	u32 mode;     /* type and permission bits, umask already applied */
	u32 uid, gid; /* owner for the new inode (setgid directories already resolved) */
	u32 rdev_major, rdev_minor;
};

struct inode_ops {
	/* Returns a reference. -ENOENT when absent. dir->dir_lock held. */
	int (*lookup)(struct inode *dir, const char *name, struct inode **ret);
	/* Regular files, devices, FIFOs, sockets and directories by mode's type. -EEXIST. Returns a
	 * reference. */
	int (*create)(struct inode *dir, const char *name, const struct inode_create *how,
		      struct inode **ret);
	int (*symlink)(struct inode *dir, const char *name, const char *target,
		       const struct inode_create *how, struct inode **ret);
	int (*link)(struct inode *dir, const char *name, struct inode *target);
	int (*unlink)(struct inode *dir, const char *name, struct inode *target);
	int (*rmdir)(struct inode *dir, const char *name, struct inode *target); /* -ENOTEMPTY */
	/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT. target NULL when absent. */
	int (*rename)(struct inode *old_dir, const char *old_name, struct inode *source,
		      struct inode *new_dir, const char *new_name, struct inode *target, u32 flags);
	/* An inode without a name (O_TMPFILE); nlink 0. */
	int (*tmpfile)(struct inode *dir, const struct inode_create *how, struct inode **ret);
	/* Length of the target (not NUL-terminated in the count, but dst is), or -errno. */
	ssize_t (*readlink)(struct inode *inode, char *dst, size_t size);
	/* Magic links (/proc/self/fd/N, exe, cwd): jumps to a path instead of walking text. May be
	 * NULL. */
	int (*follow)(struct inode *inode, struct path *ret_path);
	int (*getattr)(struct inode *inode, struct kstat *ret);
	int (*setattr)(struct inode *inode, const struct iattr *attr);
	/* Replaces the mode-bit check (procfs, hostfs squash). mask: MAY_*. NULL: generic. */
	int (*permission)(struct inode *inode, const struct cred *cred, int mask);
	/* Fills in file->ops and file->private for a file opened with flags (O_*). O_TRUNC is
	 * done by vfs through setattr before. file->inode is set. */
	int (*open)(struct inode *inode, struct file *file);
	/* The mappable for mmap, or -ENODEV. Returns a reference. */
	int (*mappable)(struct inode *inode, struct mappable **ret);
	/* xattrs: name with its prefix. size 0 asks for the length. -ENODATA, -ERANGE, -EOPNOTSUPP.
	 */
	ssize_t (*getxattr)(struct inode *inode, const char *name, void *dst, size_t size);
	int (*setxattr)(struct inode *inode, const char *name, const void *value, size_t size,
			int flags);
	ssize_t (*listxattr)(struct inode *inode, char *dst, size_t size);
	int (*removexattr)(struct inode *inode, const char *name);
	/* Last reference gone: free private data and the struct itself. NULL: free(inode). The vfs
	 * drops locks, the FIFO's pipe and the superblock reference by itself. No lock is held. */
	void (*destroy)(struct inode *inode);
};

#define MAY_EXEC 1
#define MAY_WRITE 2
#define MAY_READ 4

/*
 * The generic part of an inode; file systems embed it at the start of their own
 * struct and free that in ops->destroy.
 */
struct inode {
	struct refs refs;
	const struct inode_ops *ops; /* immutable */
	struct superblock *sb;	     /* immutable, holds a reference */
	u64 ino;		     /* immutable */
	u32 type;		     /* immutable: mode & S_IFMT */
	u32 rdev_major, rdev_minor;  /* immutable: devices */
	struct rwlock dir_lock; /* directories: entries; regular files: i/o order (see tmpfs) */
	struct mutex attr_lock;
	/* protected by attr_lock; file systems without own storage of these (tmpfs, procfs) use
	 * them, vfs_generic_getattr reads them */
	u32 mode, uid, gid, nlink;
	u64 size;
	struct timespec atime, mtime, ctime, btime;
	_Atomic(struct vfs_locks *) locks; /* created on first lock, freed with the inode */
	_Atomic(void *) bound_socket;	   /* sentry/net: the unix socket bound here */
	_Atomic(void *) fifo;		   /* vfs/pipe: the FIFO's pipe */
	_Atomic(void *) watches;	   /* sentry/fd: inotify watches */
	_Atomic int write_count; /* > 0: open for write n times; < 0: denied (being executed) */
	_Atomic u32 iflags;	 /* INODE_* */
	_Atomic u32 atime_until; /* second up to which atime need not change; 0 after a change;
				    attr_lock to write */
};

#define INODE_TIMES_SEEN 4U /* somebody looked since the times changed last (inode_now) */
#define INODE_NOSEC 2U	    /* known to have no setuid bits and no file capabilities (vfs/file.c) */
#define INODE_LINKABLE 1U   /* made by O_TMPFILE without O_EXCL: link may give it its first name */

struct superblock_ops {
	int (*statfs)(struct superblock *sb, struct statfs *ret);
	int (*sync)(struct superblock *sb); /* may be NULL */
	/* Frees the struct too; NULL: free(sb). The vfs frees source. */
	void (*destroy)(struct superblock *sb);
	/* The last mount is gone, before sb->root is dropped: lets go of inodes that the sb pins.
	 * May be NULL. */
	void (*unmounted)(struct superblock *sb);
	/* Text after the common options in /proc/mounts, e.g. ",size=64k"; may be NULL. */
	void (*show_options)(struct superblock *sb, char *dst, size_t size);
};

enum {
	SB_NO_DCACHE = 1 << 0, /* entries may change behind our back: look up every time (procfs) */
	SB_REVALIDATE =
		1 << 1, /* host may change it: the fs's lookup is asked again and ino compared */
	SB_NEGATIVE_OK = 1 << 2, /* absent names may be cached */
	SB_OWN_TIMES = 1 << 3,	 /* the vfs does not touch the generic times on read and write */
	SB_READ_ONLY = 1 << 4,	 /* nothing in it can be changed: -EROFS */
};

struct superblock {
	struct refs refs;
	const struct superblock_ops *ops;
	const char *type;	  /* "tmpfs", "overlay", ... */
	const char *source;	  /* for mountinfo; owned */
	u32 dev_major, dev_minor; /* immutable; dev_major 0, minor unique in this kernel */
	u32 flags;
	u64 magic;	    /* TMPFS_MAGIC, ... */
	struct inode *root; /* holds a reference (dropped by vfs when the sb's last mount goes) */
	struct mutex rename_lock;
	void *private;
	_Atomic int mounts;	    /* vfs/mount.c: mounts of this superblock */
	struct dentry *root_dentry; /* vfs/mount.c: shared by all its mounts; protected by the mount
				       lock */
};

/* Initialises the generic part; the caller sets ops-specific fields. nlink 1 (2 for directories),
 * times now. */
void inode_init(struct inode *inode, struct superblock *sb, const struct inode_ops *ops, u64 ino,
		const struct inode_create *how);
/* Destroys the generic part's locks; ops->destroy calls it before freeing its struct. */
void inode_fini(struct inode *inode);
struct inode *inode_get(struct inode *inode);
void inode_put(struct inode *inode);
void superblock_init(struct superblock *sb, const struct superblock_ops *ops, const char *type,
		     const char *source, u64 magic, u32 flags);
struct superblock *superblock_get(struct superblock *sb);
void superblock_put(struct superblock *sb);
/* Drops sb->root for a superblock that is never mounted (an overlay's layers, a failed mount). */
void superblock_drop_root(struct superblock *sb);
/* Opens for writing exclude execution: -ETXTBSY while denied; deny is -ETXTBSY while open for
 * writing. */
int inode_get_write(struct inode *inode);
void inode_put_write(struct inode *inode);
int inode_deny_write(struct inode *inode);
void inode_allow_write(struct inode *inode);
/* A fresh minor number for an anonymous device (pseudo file systems), and inode numbers. */
u32 vfs_anon_dev(void);
u64 vfs_next_ino(void);

static inline bool inode_is_dir(const struct inode *i)
{
	return S_ISDIR(i->type);
}
static inline bool inode_is_reg(const struct inode *i)
{
	return S_ISREG(i->type);
}

/* Sets what permission checks read without the lock. attr_lock held. */
static inline void inode_set_perm(struct inode *inode, u32 mode, u32 uid, u32 gid)
{
	__atomic_store_n(&inode->mode, mode, __ATOMIC_RELAXED);
	__atomic_store_n(&inode->uid, uid, __ATOMIC_RELAXED);
	__atomic_store_n(&inode->gid, gid, __ATOMIC_RELAXED);
}

/* The inode's own getattr, or the generic one. */
int inode_getattr(struct inode *inode, struct kstat *ret);
/* Generic helpers for file systems that keep attributes in struct inode. */
int vfs_generic_getattr(struct inode *inode, struct kstat *ret);
/* Applies mode, owner, times; not size. Updates ctime. */
int vfs_generic_setattr(struct inode *inode, const struct iattr *attr);
/* Touches times; clock is CLOCK_REALTIME. mask of ATTR_ATIME|ATTR_MTIME; ctime with mtime. */
void inode_touch(struct inode *inode, u32 mask);
/* relatime: touches the access time when it is not after the last change, or a day old. */
void inode_accessed(struct inode *inode);
/* Mode bits, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: 0 or -EACCES. */
int vfs_permission(struct inode *inode, const struct cred *cred, int mask);
int vfs_permission_bits(u32 mode, u32 uid, u32 gid, const struct cred *cred, int mask);
struct timespec vfs_now(void);
/*
 * The time for a change of the inode's times, attr_lock held. As in Linux (multigrain timestamps):
 * of the clock's last tick, which is cheap, unless somebody has looked at the times since they
 * changed last; then exact, so that the change shows. Never before a time that was given out.
 */
struct timespec inode_now(struct inode *inode);

#endif
