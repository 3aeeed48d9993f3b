#include "vfs/mount.h"
#include "base/log.h"
#include "vfs/dentry.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOUNT_BUCKETS 256

struct mount_ns {
	struct refs refs;
	u64 id; /* immutable */
	/* protected by tree_lock */
	struct mount *root;
	struct list mounts; /* mount.ns_node, in order of mounting; each holds the tree's reference */
	size_t count;
};

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

static struct list *bucket_of(const struct mount *parent, const struct dentry *point)
{
	u64 h = ((uintptr_t)parent ^ ((uintptr_t)point << 7)) * 0x9e3779b97f4a7c15ULL;
	struct list *b = &buckets[h >> 56];

	if (!b->next)
		list_init(b);
	return b;
}

/* The mount put last on (parent, point); borrowed, lock held. */
static struct mount *find_child(const struct mount *parent, const struct dentry *point)
{
	struct list *b = bucket_of(parent, point);
	struct mount *m;

	list_for_each(m, b, hash_node)
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

static int mount_new(struct superblock *sb, struct dentry *root, u32 flags, struct mount **ret)
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
		child = find_child(p->mnt, p->dentry);
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

static void attach(struct mount *m, struct mount *parent, struct dentry *point, struct mount_ns *ns)
{
	m->ns = ns;
	list_push_back(&ns->mounts, &m->ns_node);
	ns->count++;
	if (!parent)
		return;
	m->parent = mount_get(parent);
	m->mountpoint = dentry_get(point);
	list_push_back(&parent->children, &m->child_node);
	list_push_front(bucket_of(parent, point), &m->hash_node);
	atomic_fetch_add(&point->mounted, 1);
}

/* Takes m out of its tree and queues it on `out` (ns_node), with its parent and mountpoint references. */
static void detach(struct mount *m, struct list *out)
{
	list_del(&m->child_node);
	list_del(&m->hash_node);
	list_del(&m->ns_node);
	m->ns->count--;
	m->ns = NULL;
	if (m->mountpoint)
		atomic_fetch_sub(&m->mountpoint->mounted, 1);
	list_push_back(out, &m->ns_node);
}

static void detach_tree(struct mount *m, struct list *out)
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

/* Drops what detach left, without the lock. Mounts were queued children first. */
static void release_detached(struct list *out)
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

/* ---- namespaces ---- */

static int ns_alloc(struct mount_ns **ret)
{
	struct mount_ns *ns = calloc(1, sizeof(*ns));

	if (!ns)
		return -ENOMEM;
	refs_init(&ns->refs, "mount_ns");
	ns->id = vfs_next_ino();
	list_init(&ns->mounts);
	*ret = ns;
	return 0;
}

/* A namespace that never got a mount. */
static void ns_discard(struct mount_ns *ns)
{
	bool last = refs_put(&ns->refs);

	ASSERT(last);
	free(ns);
}

int mount_ns_new(struct superblock *root_sb, u32 flags, struct mount_ns **ret)
{
	struct mount_ns *ns;
	struct mount *m;
	int err = ns_alloc(&ns);

	if (err)
		return err;
	err = mount_new(root_sb, NULL, flags, &m);
	if (err) {
		ns_discard(ns);
		return err;
	}
	mutex_lock(&tree_lock);
	attach(m, NULL, NULL, ns);
	ns->root = m;
	mutex_unlock(&tree_lock);
	*ret = ns;
	return 0;
}

struct mount_ns *mount_ns_get(struct mount_ns *ns)
{
	refs_get(&ns->refs);
	return ns;
}

void mount_ns_put(struct mount_ns *ns)
{
	struct list out;

	if (!ns || !refs_put(&ns->refs))
		return;
	list_init(&out);
	mutex_lock(&tree_lock);
	detach_tree(ns->root, &out);
	mutex_unlock(&tree_lock);
	release_detached(&out);
	free(ns);
}

u64 mount_ns_id(const struct mount_ns *ns)
{
	return ns->id;
}

void mount_ns_root(struct mount_ns *ns, struct path *ret)
{
	mutex_lock(&tree_lock);
	ret->mnt = mount_get(ns->root);
	ret->dentry = dentry_get(ns->root->root);
	mutex_unlock(&tree_lock);
	path_cross_down(ret);
}

/* ---- copying trees ---- */

struct clone {
	struct mount *from, *to;
};

static struct mount *clone_of(const struct clone *c, size_t count, const struct mount *from)
{
	for (size_t i = 0; i < count; i++)
		if (c[i].from == from)
			return c[i].to;
	return NULL;
}

int mount_ns_copy(struct mount_ns *ns, struct path *fix1, struct path *fix2, struct mount_ns **ret)
{
	struct mount *old1 = fix1 ? fix1->mnt : NULL, *old2 = fix2 ? fix2->mnt : NULL;
	size_t count = 0, cap, made = 0;
	struct mount_ns *copy;
	struct clone *c;
	struct mount *m;
	int err = ns_alloc(&copy);

	if (err)
		return err;
	mutex_lock(&tree_lock);
	cap = ns->count;
	mutex_unlock(&tree_lock);
	c = calloc(cap, sizeof(*c));
	if (!c) {
		ns_discard(copy);
		return -ENOMEM;
	}
	/* Pin the mounts, make unattached copies without the lock, then attach them in one go. */
	mutex_lock(&tree_lock);
	list_for_each(m, &ns->mounts, ns_node)
		if (count < cap)
			c[count++].from = mount_get(m);
	mutex_unlock(&tree_lock);
	for (; made < count && !err; made++)
		err = mount_new(c[made].from->sb, c[made].from->root, mount_flags(c[made].from),
				&c[made].to);
	if (err)
		goto out;
	mutex_lock(&tree_lock);
	for (size_t i = 0; i < count; i++) {
		struct mount *parent = clone_of(c, count, c[i].from->parent);

		if (c[i].from->ns != ns) /* detached meanwhile, with all below it */
			continue;
		if (c[i].from == ns->root)
			copy->root = c[i].to;
		attach(c[i].to, parent, c[i].from->mountpoint, copy);
		mount_get(c[i].to);
	}
	mutex_unlock(&tree_lock);
	if (fix1 && (m = clone_of(c, count, fix1->mnt)) != NULL && m->ns)
		fix1->mnt = mount_get(m);
	else
		old1 = NULL;
	if (fix2 && (m = clone_of(c, count, fix2->mnt)) != NULL && m->ns)
		fix2->mnt = mount_get(m);
	else
		old2 = NULL;
	mount_put(old1);
	mount_put(old2);
	*ret = copy;
	copy = NULL;
out:
	for (size_t i = 0; i < count; i++) {
		mount_put(c[i].to);
		mount_put(c[i].from);
	}
	free(c);
	if (copy)
		ns_discard(copy);
	return err;
}

/* ---- mounting and unmounting ---- */

/* Puts m (its reference taken over) on top of `at`. On failure m is dropped. */
static int attach_at(struct mount_ns *ns, const struct path *at, struct mount *m)
{
	struct path top = *at;
	int err = 0;

	path_get(&top);
	if (inode_is_dir(top.dentry->inode) != inode_is_dir(m->root->inode)) {
		err = -ENOTDIR;
		goto out;
	}
	for (;;) {
		path_cross_down(&top);
		mutex_lock(&tree_lock);
		if (!find_child(top.mnt, top.dentry))
			break;
		mutex_unlock(&tree_lock);
	}
	if (top.mnt->ns != ns || dentry_deleted(top.dentry))
		err = top.mnt->ns == ns ? -ENOENT : -EINVAL;
	else if (ns->count >= MOUNTS_MAX)
		err = -ENOSPC;
	else
		attach(m, top.mnt, top.dentry, ns);
	mutex_unlock(&tree_lock);
out:
	if (err)
		mount_put(m);
	path_put(&top);
	return err;
}

int mount_add(struct mount_ns *ns, const struct path *at, struct superblock *sb, u32 flags)
{
	struct mount *m;
	int err = mount_new(sb, NULL, flags, &m);

	return err ? err : attach_at(ns, at, m);
}

/* Is m below top in the mount tree, at or under the dentry `root` of top? Lock held. */
static bool mount_within(const struct mount *m, const struct mount *top, struct dentry *root)
{
	while (m->parent && m->parent != top)
		m = m->parent;
	return m->parent == top && dentry_is_ancestor(root, m->mountpoint);
}

/* Copies the mounts below `from` over the already attached bind mount `base`. */
static int bind_children(struct mount_ns *ns, const struct path *from, struct mount *base)
{
	struct clone *c;
	size_t count = 1, cap;
	struct mount *m;
	int err = 0;

	mutex_lock(&tree_lock);
	cap = from->mnt->ns ? from->mnt->ns->count + 1 : 1;
	mutex_unlock(&tree_lock);
	c = calloc(cap, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c[0].from = mount_get(from->mnt);
	c[0].to = mount_get(base);
	mutex_lock(&tree_lock);
	if (from->mnt->ns)
		list_for_each(m, &from->mnt->ns->mounts, ns_node)
			if (count < cap && m != base && !mount_within(m, base, base->root) &&
			    mount_within(m, from->mnt, from->dentry))
				c[count++].from = mount_get(m);
	mutex_unlock(&tree_lock);
	for (size_t i = 1; i < count && !err; i++)
		err = mount_new(c[i].from->sb, c[i].from->root, mount_flags(c[i].from), &c[i].to);
	mutex_lock(&tree_lock);
	for (size_t i = 1; i < count && !err; i++) {
		struct mount *parent =
			c[i].from->parent ? clone_of(c, i, c[i].from->parent) : NULL;

		if (!parent || parent->ns != ns)
			continue;
		if (ns->count >= MOUNTS_MAX) {
			err = -ENOSPC;
			break;
		}
		attach(mount_get(c[i].to), parent, c[i].from->mountpoint, ns);
	}
	mutex_unlock(&tree_lock);
	for (size_t i = 0; i < count; i++) {
		mount_put(c[i].to);
		mount_put(c[i].from);
	}
	free(c);
	return err;
}

int mount_bind(struct mount_ns *ns, const struct path *from, const struct path *at, u32 flags,
	       bool recursive)
{
	struct mount *m;
	int err = mount_new(from->mnt->sb, from->dentry, flags, &m);

	if (err)
		return err;
	mount_get(m);
	err = attach_at(ns, at, m);
	if (!err && recursive && inode_is_dir(from->dentry->inode))
		err = bind_children(ns, from, m);
	mount_put(m);
	return err;
}

int mount_remove(struct mount_ns *ns, const struct path *at, int umount_flags)
{
	struct mount *m = at->mnt;
	struct list out;
	int err = 0;

	if (umount_flags & ~(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW))
		return -EINVAL;
	if (at->dentry != m->root)
		return -EINVAL;
	list_init(&out);
	mutex_lock(&tree_lock);
	if (m->ns != ns || !m->parent)
		err = -EINVAL;
	else if (!(umount_flags & MNT_DETACH) && !list_empty(&m->children))
		err = -EBUSY;
	/* Two references are ours to ignore: the tree's and the caller's path. */
	else if (!(umount_flags & MNT_DETACH) && refs_read(&m->refs) > 2)
		err = -EBUSY;
	else
		detach_tree(m, &out);
	mutex_unlock(&tree_lock);
	release_detached(&out);
	return err;
}

int mount_remount(struct mount_ns *ns, const struct path *at, u32 flags)
{
	int err = 0;

	mutex_lock(&tree_lock);
	if (at->mnt->ns != ns || at->dentry != at->mnt->root)
		err = -EINVAL;
	else
		atomic_store(&at->mnt->flags, flags);
	mutex_unlock(&tree_lock);
	return err;
}

/* Moves an attached mount to a new place, or (parent NULL) to the top of its namespace; lock held.
 * The references on the old place are handed to the caller. */
static void reattach(struct mount *m, struct mount *parent, struct dentry *point,
		     struct mount **ret_old_parent, struct dentry **ret_old_point)
{
	*ret_old_parent = m->parent;
	*ret_old_point = m->mountpoint;
	list_del(&m->child_node);
	list_del(&m->hash_node);
	if (m->mountpoint)
		atomic_fetch_sub(&m->mountpoint->mounted, 1);
	m->parent = parent ? mount_get(parent) : NULL;
	m->mountpoint = parent ? dentry_get(point) : NULL;
	if (!parent)
		return;
	list_push_back(&parent->children, &m->child_node);
	list_push_front(bucket_of(parent, point), &m->hash_node);
	atomic_fetch_add(&point->mounted, 1);
}

int mount_move(struct mount_ns *ns, const struct path *from, const struct path *to)
{
	struct mount *m = from->mnt, *old_parent;
	struct dentry *old_point;
	const struct mount *p;
	int err = 0;

	if (from->dentry != m->root)
		return -EINVAL;
	if (inode_is_dir(m->root->inode) != inode_is_dir(to->dentry->inode))
		return -ENOTDIR;
	mutex_lock(&tree_lock);
	if (m->ns != ns || to->mnt->ns != ns || !m->parent)
		err = -EINVAL;
	for (p = to->mnt; p && !err; p = p->parent)
		if (p == m)
			err = -ELOOP;
	if (!err && find_child(to->mnt, to->dentry))
		err = -EBUSY;
	if (err) {
		mutex_unlock(&tree_lock);
		return err;
	}
	reattach(m, to->mnt, to->dentry, &old_parent, &old_point);
	mutex_unlock(&tree_lock);
	dentry_put(old_point);
	mount_put(old_parent);
	return 0;
}

/* Is (m, d) at or below the root of `top`? Lock held. */
static bool place_below(const struct mount *m, const struct mount *top)
{
	for (; m; m = m->parent)
		if (m == top)
			return true;
	return false;
}

int mount_pivot_root(struct mount_ns *ns, const struct path *new_root, const struct path *put_old)
{
	struct mount *mnew = new_root->mnt, *old, *p1 = NULL, *p2 = NULL;
	struct dentry *d1 = NULL, *d2 = NULL;
	struct path cur;
	int err = 0;

	mount_ns_root(ns, &cur);
	old = cur.mnt;
	mutex_lock(&tree_lock);
	if (mnew->ns != ns || put_old->mnt->ns != ns || old->ns != ns)
		err = -EINVAL;
	else if (mnew == old || put_old->mnt == old)
		err = -EBUSY;
	else if (new_root->dentry != mnew->root || !mnew->parent ||
		 !place_below(put_old->mnt, mnew) || !place_below(mnew, old))
		err = -EINVAL;
	else if (find_child(put_old->mnt, put_old->dentry))
		err = -EBUSY;
	if (!err) {
		struct mount *top_parent = old->parent;
		struct dentry *top_point = old->mountpoint;

		reattach(mnew, top_parent, top_point, &p1, &d1);
		if (!top_parent)
			ns->root = mnew;
		reattach(old, put_old->mnt, put_old->dentry, &p2, &d2);
	}
	mutex_unlock(&tree_lock);
	dentry_put(d1);
	dentry_put(d2);
	mount_put(p1);
	mount_put(p2);
	path_put(&cur);
	return err;
}

/* ---- listing ---- */

static int snapshot(struct mount_ns *ns, struct mount ***ret, size_t *ret_count)
{
	struct mount **v, *m;
	size_t cap, n = 0;

	mutex_lock(&tree_lock);
	cap = ns->count;
	mutex_unlock(&tree_lock);
	v = calloc(cap ? cap : 1, sizeof(struct mount *));
	if (!v)
		return -ENOMEM;
	mutex_lock(&tree_lock);
	list_for_each(m, &ns->mounts, ns_node)
		if (n < cap)
			v[n++] = mount_get(m);
	mutex_unlock(&tree_lock);
	*ret = v;
	*ret_count = n;
	return 0;
}

/* False when the mount cannot be seen from root. */
static bool fill_info(struct mount *m, const struct path *root, struct mount_info *info)
{
	struct path within = { .mnt = NULL, .dentry = m->root };
	struct path point = { .mnt = m, .dentry = m->root };
	struct superblock *sb = m->sb;

	memset(info, 0, sizeof(*info));
	mutex_lock(&tree_lock);
	info->id = m->id;
	info->parent_id = m->parent ? m->parent->id : m->id;
	mutex_unlock(&tree_lock);
	info->dev_major = sb->dev_major;
	info->dev_minor = sb->dev_minor;
	info->flags = mount_flags(m);
	info->type = sb->type;
	info->source = sb->source;
	if (path_text(&within, NULL, info->root, sizeof(info->root)) < 0)
		strcpy(info->root, "/");
	if (path_text(&point, root, info->point, sizeof(info->point)) < 0 ||
	    info->point[0] != '/')
		return false;
	if (sb->ops->show_options)
		sb->ops->show_options(sb, info->options, sizeof(info->options));
	return true;
}

int mount_ns_list(struct mount_ns *ns, const struct path *root,
		  int (*fn)(const struct mount_info *, void *), void *arg)
{
	struct mount_info *info = malloc(sizeof(*info));
	struct mount **v = NULL;
	size_t count = 0;
	int err = info ? snapshot(ns, &v, &count) : -ENOMEM;

	for (size_t i = 0; i < count; i++) {
		if (!err && fill_info(v[i], root, info))
			err = fn(info, arg);
		mount_put(v[i]);
	}
	free(v);
	free(info);
	return err;
}
