#include "vfs/mount.h"
#include "base/log.h"
#include "vfs/dentry.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOUNT_BUCKETS 256

static struct mutex tree_lock = MUTEX_INIT(RANK_MOUNT, "vfs.mounts");
static struct list buckets[MOUNT_BUCKETS]; /* protected by tree_lock; lazily initialised */
static _Atomic int next_mount_id = 20;

void mount_lock_all(void)
{
	mutex_lock(&tree_lock);
}

void mount_unlock_all(void)
{
	mutex_unlock(&tree_lock);
}

/* next is NULL until something was mounted there. */
static struct list *bucket_of(const struct mount *parent, const struct dentry *point)
{
	u64 h = ((uintptr_t)parent ^ ((uintptr_t)point << 7)) * 0x9e3779b97f4a7c15ULL;

	return &buckets[h >> 56];
}

static void hash_add(struct mount *m)
{
	struct list *b = bucket_of(m->parent, m->mountpoint);

	dcache_lock();
	if (!b->next)
		list_init(b);
	list_push_front(b, &m->hash_node);
	dcache_unlock();
	atomic_fetch_add(&m->mountpoint->mounted, 1);
}

static void hash_del(struct mount *m)
{
	dcache_lock();
	list_del(&m->hash_node);
	dcache_unlock();
	if (m->mountpoint)
		atomic_fetch_sub(&m->mountpoint->mounted, 1);
}

struct mount *mount_child(const struct mount *parent, const struct dentry *point)
{
	struct list *b = bucket_of(parent, point);
	struct mount *m;

	if (!b->next)
		return NULL;
	list_for_each (m, b, hash_node)
		if (m->parent == parent && m->mountpoint == point)
			return m;
	return NULL;
}

struct mount *mount_get(struct mount *m)
{
	refs_get(&m->refs);
	return m;
}

/* The sb's root dentry with a reference: all mounts of one superblock share one tree. */
static int sb_root_dentry(struct superblock *sb, struct dentry **ret)
{
	struct dentry *d, *mine;
	int err;

	mutex_lock(&tree_lock);
	d = sb->root_dentry ? dentry_get(sb->root_dentry) : NULL;
	mutex_unlock(&tree_lock);
	if (d) {
		*ret = d;
		return 0;
	}
	if (!sb->root)
		return -EINVAL;
	err = dentry_new_root(sb->root, &mine);
	if (err)
		return err;
	mutex_lock(&tree_lock);
	if (!sb->root_dentry)
		sb->root_dentry = dentry_get(mine);
	d = dentry_get(sb->root_dentry);
	mutex_unlock(&tree_lock);
	dentry_put(mine);
	*ret = d;
	return 0;
}

int mount_new(struct superblock *sb, struct dentry *root, u32 flags, struct mount **ret)
{
	struct mount *m = calloc(1, sizeof(*m));
	int err = 0;

	if (!m)
		return -ENOMEM;
	if (root)
		m->root = dentry_get(root);
	else
		err = sb_root_dentry(sb, &m->root);
	if (err) {
		free(m);
		return err;
	}
	refs_init(&m->refs, "mount");
	m->sb = superblock_get(sb);
	atomic_fetch_add(&sb->mounts, 1);
	m->id = atomic_fetch_add(&next_mount_id, 1);
	atomic_init(&m->flags, flags);
	list_init(&m->children);
	list_init(&m->child_node);
	list_init(&m->ns_node);
	list_init(&m->hash_node);
	*ret = m;
	return 0;
}

/* The last mount of sb is gone: everything that its tree kept alive goes. */
static void sb_last_mount_gone(struct superblock *sb)
{
	struct dentry *root;

	mutex_lock(&tree_lock);
	root = sb->root_dentry;
	sb->root_dentry = NULL;
	mutex_unlock(&tree_lock);
	dcache_shrink(sb);
	dentry_put(root);
	superblock_drop_root(sb);
}

void mount_put(struct mount *m)
{
	struct superblock *sb;

	if (!m || !refs_put(&m->refs))
		return;
	ASSERT(!m->ns && !m->parent);
	sb = m->sb;
	dentry_put(m->root);
	free(m);
	if (atomic_fetch_sub(&sb->mounts, 1) == 1)
		sb_last_mount_gone(sb);
	superblock_put(sb);
}

u32 mount_flags(const struct mount *m)
{
	return atomic_load_explicit(&m->flags, memory_order_relaxed);
}

void path_get(const struct path *p)
{
	if (p->mnt)
		mount_get(p->mnt);
	if (p->dentry)
		dentry_get(p->dentry);
}

void path_put(const struct path *p)
{
	dentry_put(p->dentry);
	mount_put(p->mnt);
}

struct inode *path_inode(const struct path *p)
{
	return p->dentry->inode;
}

/* ---- crossing ---- */

bool path_cross_down(struct path *p)
{
	bool moved = false;

	while (p->mnt && atomic_load(&p->dentry->mounted) > 0) {
		struct mount *child;
		struct path next = { 0 };

		mutex_lock(&tree_lock);
		child = mount_child(p->mnt, p->dentry);
		if (child) {
			next.mnt = mount_get(child);
			next.dentry = dentry_get(child->root);
		}
		mutex_unlock(&tree_lock);
		if (!child)
			break;
		path_put(p);
		*p = next;
		moved = true;
	}
	return moved;
}

bool path_cross_up(struct path *p, const struct path *root)
{
	bool moved = false;

	while (p->mnt && p->dentry == p->mnt->root && !path_equal(p, root)) {
		struct path next = { 0 };

		mutex_lock(&tree_lock);
		if (p->mnt->parent) {
			next.mnt = mount_get(p->mnt->parent);
			next.dentry = dentry_get(p->mnt->mountpoint);
		}
		mutex_unlock(&tree_lock);
		if (!next.mnt)
			break;
		path_put(p);
		*p = next;
		moved = true;
	}
	return moved;
}

/* ---- attaching and detaching (tree_lock held) ---- */

void mount_attach(struct mount *m, struct mount *parent, struct dentry *point, struct mount_ns *ns)
{
	m->ns = ns;
	list_push_back(&ns->mounts, &m->ns_node);
	ns->count++;
	if (!parent)
		return;
	m->parent = mount_get(parent);
	m->mountpoint = dentry_get(point);
	list_push_back(&parent->children, &m->child_node);
	hash_add(m);
}

/* Takes m out of its tree and queues it on `out` (ns_node), with its parent and mountpoint
 * references. */
static void detach(struct mount *m, struct list *out)
{
	list_del(&m->child_node);
	hash_del(m);
	list_del(&m->ns_node);
	m->ns->count--;
	m->ns = NULL;
	list_push_back(out, &m->ns_node);
}

void mount_detach_tree(struct mount *m, struct list *out)
{
	struct mount *top = m;

	for (;;) {
		struct mount *parent = m->parent;

		if (!list_empty(&m->children)) {
			m = list_first(&m->children, struct mount, child_node);
			continue;
		}
		detach(m, out);
		if (m == top)
			break;
		m = parent;
	}
}

void mount_release_detached(struct list *out)
{
	while (!list_empty(out)) {
		struct mount *m = list_first(out, struct mount, ns_node), *parent;
		struct dentry *point;

		list_del(&m->ns_node);
		mutex_lock(&tree_lock);
		parent = m->parent;
		point = m->mountpoint;
		m->parent = NULL;
		m->mountpoint = NULL;
		mutex_unlock(&tree_lock);
		dentry_put(point);
		mount_put(m);
		mount_put(parent);
	}
}

void mount_reattach(struct mount *m, struct mount *parent, struct dentry *point,
		    struct mount **ret_old_parent, struct dentry **ret_old_point)
{
	*ret_old_parent = m->parent;
	*ret_old_point = m->mountpoint;
	list_del(&m->child_node);
	hash_del(m);
	m->parent = parent ? mount_get(parent) : NULL;
	m->mountpoint = parent ? dentry_get(point) : NULL;
	if (!parent)
		return;
	list_push_back(&parent->children, &m->child_node);
	hash_add(m);
}

struct mount *mount_clone_of(const struct mount_clone *c, size_t count, const struct mount *from)
{
	for (size_t i = 0; i < count; i++)
		if (c[i].from == from)
			return c[i].to;
	return NULL;
}
