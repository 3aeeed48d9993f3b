/*
 * vfs/dentry.h: the dentry cache (inside vfs/ only; others see vfs/path.h).
 *
 * A dentry's inode never changes: a negative dentry (inode NULL, a cached
 * absence) is replaced, not filled in. Name and parent change by rename only,
 * under the cache's lock.
 *
 * The hash holds a reference on each of its dentries ("retained"), except for
 * superblocks with SB_NO_DCACHE, whose dentries are hashed only while somebody
 * else keeps them (so that a mount point there stays the same object). Retained
 * dentries stand on a clock list and are evicted, oldest unused first, above
 * DCACHE_MAX: a guest that makes ever-new names does not grow the sentry.
 *
 * What the cache says of a directory's names changes only under that
 * directory's dir_lock: read to add what a lookup found, write to change.
 */
#ifndef MINISENTRY_VFS_DENTRY_H
#define MINISENTRY_VFS_DENTRY_H

#include "vfs/path.h"

#define DCACHE_MAX 16384
#define DENTRY_INLINE_NAME 40

struct dentry {
	struct refs refs;
	struct superblock *sb; /* immutable; kept alive by the inode here or of an ancestor */
	struct inode *inode;   /* immutable; holds a reference; NULL: negative */
	_Atomic int mounted;   /* mounts whose mount point this is */
	/* protected by the cache's lock */
	struct dentry *parent; /* holds a reference; NULL for roots */
	char *name;	       /* inline_name or allocated */
	u32 name_len, hash;
	struct dentry *hash_next, **hash_prev; /* hash_prev NULL: not hashed */
	struct list lru;
	bool retained, used, deleted;
	char inline_name[DENTRY_INLINE_NAME];
};

/* Finds name in the directory parent (a positive dentry). A positive dentry with a reference, or
 * -ENOENT. Takes the dir_lock when the cache cannot answer. */
int dentry_lookup(struct dentry *parent, const char *name, size_t len, struct dentry **ret);
/* The same with parent's dir_lock held (read or write). */
int dentry_lookup_locked(struct dentry *parent, const char *name, size_t len, struct dentry **ret);
/* An unhashed dentry for a name about to be created; NULL: no memory. */
struct dentry *dentry_alloc(struct dentry *parent, const char *name, size_t len);
/* Gives d its inode (reference taken over) and enters it into the cache. dir_lock held for write.
 */
void dentry_instantiate(struct dentry *d, struct inode *inode);
/* The name is gone: d leaves the cache and counts as deleted. dir_lock held for write. */
void dentry_delete(struct dentry *d);
/*
 * Something on the way to d, d included, is not what it stands for any more (-ESTALE): asks the
 * file system about d's name. Forgets d unless it is the same still: one that is in use must not be
 * beside another one of the same directory. Takes the dir_lock.
 */
void dentry_recheck(struct dentry *d);
/* The file system says that d's name, which was looked up as absent, is there: the next lookup asks
 * again. dir_lock of d's parent held for write. */
void dentry_forget_absence(struct dentry *d);
/* Rename: d takes the place of (new_parent, name); what was there must be deleted already. 0 or
 * -ENOMEM with nothing changed. Both dir_locks held for write. */
int dentry_move(struct dentry *d, struct dentry *new_parent, const char *name, size_t len);
int dentry_exchange(struct dentry *a, struct dentry *b);
/* a is b or an ancestor of b. Stable under the superblock's rename_lock. */
bool dentry_is_ancestor(struct dentry *a, struct dentry *b);
/* The parent with a reference; d itself for a root. */
struct dentry *dentry_parent(struct dentry *d);
bool dentry_deleted(struct dentry *d);
/* Evicts what is over the limit; called without locks. */
void dcache_trim(void);
/* Evicts all unused dentries of sb. */
void dcache_shrink(struct superblock *sb);
/* For path texts, with the cache locked (names and parents stable). */
void dcache_lock(void);
void dcache_unlock(void);
/* With the cache locked: the cached dentry (maybe negative), borrowed until unlock; or NULL. */
struct dentry *dcache_find_locked(struct dentry *parent, const char *name, size_t len);

#endif
