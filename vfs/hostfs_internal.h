/*
 * vfs/hostfs_internal.h: what the files of hostfs share.
 *
 * hostfs.c       superblock, inode table, lookup, attributes, hidden paths
 * hostfs_fd.c    host descriptors: opened by walking from an open ancestor, cached, evicted
 * hostfs_file.c  open files: data, mapping, extended attributes
 * hostfs_dir.c   listing
 * hostfs_write.c changes of names and attributes
 *
 * A host file is found by (parent inode, name), one component at a time, and
 * recognised by (device, inode number, birth time). Inodes are unique: hard links
 * share one. An inode remembers the last name by which it was found.
 *
 * Locks: hostfs.table_lock (RANK_LEAF): the inode hash, places (parent, name),
 * descriptor slots, page cache pointers. No host call runs under it. inode.attr_lock: st.
 */
#ifndef MINISENTRY_VFS_HOSTFS_INTERNAL_H
#define MINISENTRY_VFS_HOSTFS_INTERNAL_H

#include "base/host_file.h"
#include "vfs/hostfs.h"
#include "vfs/pagecache.h"

#define HOSTFS_BUCKETS 4096
#define HOSTFS_FD_MAX 8192		   /* cached descriptors; at most half of RLIMIT_NOFILE */
#define HOSTFS_IDLE_CACHE_MAX (64UL << 20) /* page cache bytes of files that nobody maps */

enum hostfs_fd_kind {
	HFD_PATH,  /* O_PATH: directories to walk from, objects without a name */
	HFD_READ,  /* O_RDONLY regular files and directories */
	HFD_WRITE, /* O_RDWR, or O_WRONLY where the host gives no more */
	HFD_KINDS
};

/* A host descriptor, closed with its last reference. */
struct hostfs_fd {
	_Atomic u32 refs;
	int fd; /* immutable */
	bool write_only;
	/* protected by table_lock */
	struct hostfs_inode *owner; /* NULL: no longer in a slot */
	enum hostfs_fd_kind kind;
	struct list lru;
};

struct hostfs_inode {
	struct inode inode;
	u64 host_dev, host_ino;	      /* immutable */
	struct statx_timestamp birth; /* immutable */
	bool hidden;		      /* looks like an empty directory; only ever set */
	bool above_hidden;	      /* a hidden path starts here */
	_Atomic(char *) link_text;    /* symlinks of read-only layers, once read; owned */
	_Atomic bool no_xattrs;	      /* known to have none (read-only layers) */
	/* protected by table_lock */
	struct hostfs_inode *hash_next;
	bool hashed;
	bool pinned;   /* descriptors are not evicted: the root, and what has no name */
	bool unlinked; /* its name is gone */
	struct hostfs_inode *parent; /* holds a reference; NULL for the root */
	char *name;
	struct hostfs_fd *slot[HFD_KINDS];
	struct list idle_node;		   /* in hostfs.idle */
	_Atomic(struct pagecache *) cache; /* set once under table_lock */
	/* protected by inode.attr_lock */
	struct statx st;
};

struct hostfs {
	struct superblock sb;
	int root_fd;				      /* immutable */
	bool read_only, shared;			      /* immutable */
	u32 host_uid, host_gid, guest_uid, guest_gid; /* immutable */
	bool root_uid_unmapped, root_gid_unmapped;    /* immutable: see id_unmapped */
	const struct vfs_memory_ops *memory;	      /* immutable */
	char **hidden;				      /* immutable */
	u64 root_dev;				      /* immutable */
	size_t fd_max;				      /* immutable */
	_Atomic u64 moves_begun, moves_ended;	      /* renames of ours */
	struct mutex table_lock;
	/* protected by table_lock */
	struct hostfs_inode *buckets[HOSTFS_BUCKETS];
	struct list fd_lru; /* newest first */
	size_t fd_count;
	struct list idle;     /* inodes with a page cache, oldest first */
	struct list all_node; /* in the list of all hostfs, see hostfs_reclaim */
};

static inline struct hostfs *hostfs_of(struct superblock *sb)
{
	return container_of(sb, struct hostfs, sb);
}

static inline struct hostfs_inode *hostfs_inode(struct inode *i)
{
	return container_of(i, struct hostfs_inode, inode);
}

/* ---- hostfs.c ---- */

extern const struct inode_ops hostfs_inode_ops;
/* Finds dir/name on the host. -ENOENT, ... Returns a reference. */
int hostfs_lookup(struct inode *dir, const char *name, struct inode **ret);
/* The inode for what statx said of dir/name: the known one or a new one. Returns a reference. */
int hostfs_inode_for(struct hostfs *fs, struct hostfs_inode *dir, const char *name,
		     const struct statx *st, struct inode **ret);
/* An inode without a name yet (O_TMPFILE). */
int hostfs_inode_unnamed(struct hostfs *fs, struct hostfs_inode *dir, const struct statx *st,
			 struct inode **ret);
/* Asks the host again (unless it cannot have changed) and refreshes hi->st. */
int hostfs_refresh(struct hostfs_inode *hi);
void hostfs_set_stat(struct hostfs_inode *hi, const struct statx *st);
/* The inode is no longer found by its number (its last name is gone). */
void hostfs_unhash(struct hostfs_inode *hi);
void hostfs_set_place(struct hostfs_inode *hi, struct hostfs_inode *parent, const char *name);
/* Keeps the place if it is dir/name: the inode has lost that name. */
void hostfs_lose_name(struct hostfs_inode *hi);
u32 hostfs_uid_to_host(const struct hostfs *fs, u32 uid);
u32 hostfs_gid_to_host(const struct hostfs *fs, u32 gid);

/* ---- hostfs_fd.c ---- */

/* A descriptor of hi; reference returned. -ENOENT, -ESTALE, -EACCES, -EMFILE ... */
int hostfs_fd_get(struct hostfs_inode *hi, enum hostfs_fd_kind kind, struct hostfs_fd **ret);
/* The same if one is open already; NULL otherwise. Any kind will do with HFD_KINDS. */
struct hostfs_fd *hostfs_fd_peek(struct hostfs_inode *hi, enum hostfs_fd_kind kind);
void hostfs_fd_put(struct hostfs_fd *f);
/* Puts a freshly opened descriptor (taken over) into hi's slot; returns it with a reference. NULL:
 * no memory (fd closed). */
struct hostfs_fd *hostfs_fd_install(struct hostfs_inode *hi, enum hostfs_fd_kind kind, int fd,
				    bool write_only);
/* The parent's HFD_PATH and the name in it (buffer of NAME_MAX + 1). -ESTALE for an unlinked inode.
 */
int hostfs_place(struct hostfs_inode *hi, struct hostfs_fd **ret_dir, char *name);
/*
 * Around each use of an inode's name: it may go to another place meanwhile, and what has the name
 * then is something else.
 *
 *	struct hostfs_attempt a = hostfs_attempt(fs);
 *	do
 *		err = ...;
 *	while (hostfs_moved(fs, &a, err));
 */
struct hostfs_attempt {
	u64 ended;
	int tries;
};
static inline struct hostfs_attempt hostfs_attempt(const struct hostfs *fs)
{
	return (struct hostfs_attempt){ atomic_load(&fs->moves_ended), 0 };
}
/* Whether what has failed is to be tried again, for there were renames; waits until they are over.
 */
bool hostfs_moved(const struct hostfs *fs, struct hostfs_attempt *a, int err);
/* Empties the slots of a dying inode. */
void hostfs_fd_release_all(struct hostfs_inode *hi);

/* ---- hostfs_file.c, hostfs_dir.c ---- */

int hostfs_open(struct inode *inode, struct file *file);
int hostfs_open_dir(struct inode *inode, struct file *file);
int hostfs_mappable(struct inode *inode, struct mappable **ret);
/* Drops page caches that nobody maps, down to the limit. */
void hostfs_trim_caches(struct hostfs *fs);
void hostfs_free_cache(struct hostfs_inode *hi);
/* hostfs_reclaim's and hostfs_reclaim_mapped's share of files over inherited descriptors. */
u64 hostfd_reclaim(u64 bytes, bool mapped);
/* Enters and leaves the list that hostfs_reclaim goes through. */
void hostfs_register(struct hostfs *fs);
void hostfs_unregister(struct hostfs *fs);
ssize_t hostfs_getxattr(struct inode *inode, const char *name, void *dst, size_t size);
int hostfs_setxattr(struct inode *inode, const char *name, const void *value, size_t size,
		    int flags);
ssize_t hostfs_listxattr(struct inode *inode, char *dst, size_t size);
int hostfs_removexattr(struct inode *inode, const char *name);

/* ---- hostfs_write.c ---- */

int hostfs_create(struct inode *dir, const char *name, const struct inode_create *how,
		  struct inode **ret);
int hostfs_symlink(struct inode *dir, const char *name, const char *target,
		   const struct inode_create *how, struct inode **ret);
int hostfs_link(struct inode *dir, const char *name, struct inode *target);
int hostfs_unlink(struct inode *dir, const char *name, struct inode *target);
int hostfs_rmdir(struct inode *dir, const char *name, struct inode *target);
int hostfs_rename(struct inode *old_dir, const char *old_name, struct inode *source,
		  struct inode *new_dir, const char *new_name, struct inode *target, u32 flags);
int hostfs_tmpfile(struct inode *dir, const struct inode_create *how, struct inode **ret);
int hostfs_setattr(struct inode *inode, const struct iattr *attr);

#endif
