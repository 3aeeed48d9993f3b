/*
 * vfs/mount.h: struct mount, for vfs/ alone.
 *
 * All mount trees share one lock (RANK_MOUNT, mount_lock). A mount in a tree is
 * held by the tree; detached mounts live on while paths refer to them. What is
 * mounted where changes with the dentry cache locked too, so that a path walk
 * which holds that lock crosses mounts without another.
 */
#ifndef MINISENTRY_VFS_MOUNT_H
#define MINISENTRY_VFS_MOUNT_H

#include "vfs/path.h"
#include <sys/mount.h>

#define MOUNTS_MAX 10000 /* in one namespace; Linux: sysctl fs.mount-max, 100000 */

struct mount {
	struct refs refs;
	struct superblock *sb; /* immutable; holds a reference and a count in sb->mounts */
	struct dentry *root;   /* immutable; holds a reference */
	int id;		       /* immutable */
	_Atomic u32 flags;
	/* protected by mount_lock */
	struct mount_ns *ns;  /* NULL: detached */
	struct mount *parent; /* holds a reference; NULL for a namespace's root and when detached */
	struct dentry *mountpoint; /* holds a reference; in parent's superblock */
	struct list children;	   /* child_node */
	struct list child_node;
	struct list ns_node;
	struct list hash_node; /* by (parent, mountpoint) */
};

struct mount_ns {
	struct refs refs;
	u64 id; /* immutable */
	/* protected by mount_lock */
	struct mount *root;
	struct list
		mounts; /* mount.ns_node, in order of mounting; each holds the tree's reference */
	size_t count;
};

struct mount *mount_get(struct mount *m);
void mount_put(struct mount *m);
/* Replaces *p (references and all) by the root of the topmost mount on it, if there is one. True if
 * so. */
bool path_cross_down(struct path *p);
/* From a mount's root to its mount point, until p is no mount's root. root stops it. True when p
 * moved. */
bool path_cross_up(struct path *p, const struct path *root);
void mount_lock_all(void);
void mount_unlock_all(void);
/* A detached mount of sb at `root` (NULL: the sb's root), with one reference. */
int mount_new(struct superblock *sb, struct dentry *root, u32 flags, struct mount **ret);

/* ---- with mount_lock held ---- */

/* The mount put last on (parent, point); borrowed. The dentry cache's lock is enough. */
struct mount *mount_child(const struct mount *parent, const struct dentry *point);
/* Puts m (its reference becomes the tree's) onto (parent, point); parent NULL: the namespace's
 * root. */
void mount_attach(struct mount *m, struct mount *parent, struct dentry *point, struct mount_ns *ns);
/* Takes m and all below it out of the tree and queues them on `out`, children first, for
 * mount_release_detached, which drops their references without the lock. */
void mount_detach_tree(struct mount *m, struct list *out);
void mount_release_detached(struct list *out);
/* Moves an attached mount to a new place, or (parent NULL) to the top of its namespace. The
 * references on the old place are handed to the caller. */
void mount_reattach(struct mount *m, struct mount *parent, struct dentry *point,
		    struct mount **ret_old_parent, struct dentry **ret_old_point);

/* Pairs of a tree copy. */
struct mount_clone {
	struct mount *from, *to;
};
/* The copy of `from`, or NULL. */
struct mount *mount_clone_of(const struct mount_clone *c, size_t count, const struct mount *from);

#endif
