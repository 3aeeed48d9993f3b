/*
 * vfs/mount.h: struct mount, for vfs/ alone.
 *
 * All mount trees share one lock (RANK_MOUNT, mount_lock). A mount in a tree is
 * held by the tree; detached mounts live on while paths refer to them.
 */
#ifndef MINISENTRY_VFS_MOUNT_H
#define MINISENTRY_VFS_MOUNT_H

#include "vfs/path.h"
#include <sys/mount.h>

#define MOUNTS_MAX 100000 /* in one namespace; Linux: sysctl fs.mount-max */

struct mount {
	struct refs refs;
	struct superblock *sb; /* immutable; holds a reference and a count in sb->mounts */
	struct dentry *root;   /* immutable; holds a reference */
	int id;		       /* immutable */
	_Atomic u32 flags;
	/* protected by mount_lock */
	struct mount_ns *ns;	   /* NULL: detached */
	struct mount *parent;	   /* holds a reference; NULL for a namespace's root and when detached */
	struct dentry *mountpoint; /* holds a reference; in parent's superblock */
	struct list children;	   /* child_node */
	struct list child_node;
	struct list ns_node;
	struct list hash_node; /* by (parent, mountpoint) */
};

struct mount *mount_get(struct mount *m);
void mount_put(struct mount *m);
/* Replaces *p (references and all) by the root of the topmost mount on it, if there is one. True if so. */
bool path_cross_down(struct path *p);
/* From a mount's root to its mount point, until p is no mount's root. root stops it. True when p moved. */
bool path_cross_up(struct path *p, const struct path *root);
void mount_lock_all(void);
void mount_unlock_all(void);

#endif
