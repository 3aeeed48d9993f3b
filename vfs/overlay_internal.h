/*
 * vfs/overlay_internal.h: what the files of the overlay share.
 *
 * overlay.c         superblock, inode tables, attributes
 * overlay_names.c   lookup and changes of names
 * overlay_rename.c  rename
 * overlay_copyup.c  copying an object to the upper layer
 * overlay_file.c    open files and mappings
 * overlay_dir.c     listing
 *
 * An overlay inode stands for one object, whatever layer holds it at the moment:
 * `lower` never changes, `upper` is set once, by copy-up. Its number is the same
 * before and after.
 *
 * The upper layer is private to the overlay and dies with it, so it need not
 * mirror the tree. It has two directories: "root", the upper part of the
 * overlay's root, and "pool". Copy-up puts an object into the pool under a
 * number and touches neither the object's parents nor its name: the name goes on
 * leading to the lower object, and that to its overlay inode, which knows the
 * upper one. So hard links of a lower file stay links, a copied-up directory
 * keeps its lower content under any name, and copying up never cascades.
 *
 * An overlay inode with an upper object is pinned (the table holds a reference)
 * until its last name goes. A directory's `whiteouts` are the names that must not
 * be looked up in its lower directory any more. Invariant: when the upper
 * directory has a name, the lower one lacks it or it is in whiteouts.
 *
 * Locks, in this order: overlay directories (dir_lock, held by the vfs), copy_lock
 * of inodes, upper directories (the pool before others; all RANK_DIR, nested);
 * then attr_lock; map_lock (RANK_MAPPABLE); table_lock (RANK_LEAF). The upper
 * superblock's rename_lock is not needed: nobody else renames there.
 */
#ifndef MINISENTRY_VFS_OVERLAY_INTERNAL_H
#define MINISENTRY_VFS_OVERLAY_INTERNAL_H

#include "vfs/hostfs.h"

#define OVL_BUCKETS 4096
/* Upper objects without a lower one: out of the way of the host's inode numbers. */
#define OVL_UPPER_INO (1ULL << 51)

struct whiteout {
	struct whiteout *next;
	u32 hash;
	char name[];
};

struct whiteouts {
	struct whiteout **buckets;
	u32 bucket_count, count; /* bucket_count a power of two, or 0 */
};

struct ovl_inode {
	struct inode inode;  /* mode, owner, size as in the layer; nlink is counted here */
	struct inode *lower; /* immutable; holds a reference; NULL: made in the upper layer */
	_Atomic(struct inode *) upper; /* set once under copy_lock; holds a reference */
	struct mutex copy_lock;	       /* RANK_DIR, nested */
	u64 pool_id;		       /* name in the pool, 0: none; protected by copy_lock */
	struct whiteouts whiteouts;    /* directories; protected by inode.dir_lock */
	/* protected by overlay.table_lock */
	struct ovl_inode *lower_next, *upper_next;
	bool in_lower, in_upper, pinned;
	/* mappings of a regular file */
	struct mappable mappable;
	struct mutex map_lock;	    /* RANK_MAPPABLE */
	struct list mappings;	    /* protected by map_lock */
	struct mapping proxy;	    /* registered with upper_map while that is set */
	struct mapping lower_proxy; /* the same with lower_map */
	_Atomic(struct mappable *) lower_map, upper_map; /* set once; hold references */
};

struct overlay {
	struct superblock sb;
	struct superblock *upper, *lower; /* hold references */
	struct inode *upper_root, *pool;  /* hold references; immutable */
	const struct cred *cred;	  /* the sentry's own, for opening layers */
	_Atomic u64 next_pool_id;
	struct mutex table_lock;
	/* protected by table_lock */
	struct ovl_inode *by_lower[OVL_BUCKETS]; /* by the lower inode */
	struct ovl_inode *by_upper[OVL_BUCKETS]; /* by the upper inode's number */
};

static inline struct overlay *overlay_of(struct superblock *sb)
{
	return container_of(sb, struct overlay, sb);
}

static inline struct ovl_inode *ovl(struct inode *i)
{
	return container_of(i, struct ovl_inode, inode);
}

static inline struct inode *ovl_upper(struct ovl_inode *oi)
{
	return atomic_load_explicit(&oi->upper, memory_order_acquire);
}

/* The inode that holds the data and attributes now; borrowed. */
static inline struct inode *ovl_real(struct ovl_inode *oi)
{
	struct inode *upper = ovl_upper(oi);

	return upper ? upper : oi->lower;
}

/* ---- overlay.c ---- */

/* The inode for a lower object (reference taken over): the known one, or a new one. */
int ovl_inode_for_lower(struct overlay *o, struct inode *lower, struct inode **ret);
/* A new inode for an object just made in the upper layer (reference taken over). Pinned if it has a
 * name. */
int ovl_inode_for_upper(struct overlay *o, struct inode *upper, u32 nlink, struct inode **ret);
/* The live inode of an upper object, with a reference; NULL: none. */
struct inode *ovl_find_upper(struct overlay *o, struct inode *upper);
/* What inode number is shown for the upper object of that number. */
u64 ovl_shown_ino(struct overlay *o, u64 upper_ino);
/* oi->upper has just been set: enters and pins it. */
void ovl_enter_upper(struct overlay *o, struct ovl_inode *oi);
/* Adds delta to the link count (of a directory: subdirectories); pins what must be remembered,
 * unpins a file that is gone (nlink 0). */
void ovl_change_nlink(struct ovl_inode *oi, int delta);
/* The directory was removed. */
void ovl_dir_gone(struct ovl_inode *oi);
u32 ovl_nlink(struct ovl_inode *oi);
/* Copies mode, owner and size from the layer. */
void ovl_sync_attr(struct ovl_inode *oi);
extern const struct inode_ops ovl_inode_ops;

/* ---- overlay_copyup.c ---- */

/* Makes sure that oi has an upper object; with_data: a regular file's content too (else it starts
 * empty). */
int ovl_copy_up(struct ovl_inode *oi, bool with_data);
/* The object's last name is gone: so is its name in the pool. */
void ovl_drop_pool_name(struct overlay *o, struct ovl_inode *oi);
void ovl_pool_name(char dst[24], u64 id);

/* ---- overlay_names.c ---- */

int ovl_lookup(struct inode *dir, const char *name, struct inode **ret);
int ovl_create(struct inode *dir, const char *name, const struct inode_create *how,
	       struct inode **ret);
int ovl_symlink(struct inode *dir, const char *name, const char *target,
		const struct inode_create *how, struct inode **ret);
int ovl_link(struct inode *dir, const char *name, struct inode *target);
int ovl_unlink(struct inode *dir, const char *name, struct inode *target);
int ovl_rmdir(struct inode *dir, const char *name, struct inode *target);
int ovl_tmpfile(struct inode *dir, const struct inode_create *how, struct inode **ret);
bool whiteouts_has(const struct whiteouts *w, const char *name);
/* An entry ready to add, or NULL; adding it cannot fail and takes it over (a second one is freed).
 */
struct whiteout *whiteout_alloc(struct whiteouts *w, const char *name);
void whiteouts_add(struct whiteouts *w, struct whiteout *e);
void whiteouts_free(struct whiteouts *w);
/* Does the upper directory have this name? Its inode with a reference, or NULL. */
struct inode *ovl_upper_entry(struct inode *upper_dir, const char *name);

/* ---- overlay_rename.c ---- */

int ovl_rename(struct inode *old_dir, const char *old_name, struct inode *source,
	       struct inode *new_dir, const char *new_name, struct inode *target, u32 flags);

/* ---- overlay_file.c, overlay_dir.c ---- */

int ovl_open(struct inode *inode, struct file *file);
int ovl_open_dir(struct inode *inode, struct file *file);
int ovl_mappable(struct inode *inode, struct mappable **ret);
void ovl_map_init(struct ovl_inode *oi);
void ovl_map_free(struct ovl_inode *oi);
/* The data has moved to the upper layer: mappings follow. Without locks of ours but directories'.
 */
int ovl_map_switch(struct ovl_inode *oi);
/* Opens an object of a layer with the sentry's rights. */
int ovl_open_layer(struct overlay *o, struct inode *real, u32 flags, struct file **ret);
/* -ENOTEMPTY when the (locked) directory has a visible name. */
int ovl_check_empty(struct ovl_inode *dir);

#endif
