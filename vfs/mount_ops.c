/* Mounting, binding, moving, unmounting. */
#include "vfs/mount.h"
#include "vfs/dentry.h"
#include <stdlib.h>

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
		mount_lock_all();
		if (!mount_child(top.mnt, top.dentry))
			break;
		mount_unlock_all();
	}
	if (top.mnt->ns != ns || dentry_deleted(top.dentry))
		err = top.mnt->ns == ns ? -ENOENT : -EINVAL;
	else if (ns->count >= MOUNTS_MAX)
		err = -ENOSPC;
	else
		mount_attach(m, top.mnt, top.dentry, ns);
	mount_unlock_all();
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
	struct mount_clone *c;
	size_t count = 1, cap;
	struct mount *m;
	int err = 0;

	mount_lock_all();
	cap = from->mnt->ns ? from->mnt->ns->count + 1 : 1;
	mount_unlock_all();
	c = calloc(cap, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c[0].from = mount_get(from->mnt);
	c[0].to = mount_get(base);
	mount_lock_all();
	if (from->mnt->ns)
		list_for_each (m, &from->mnt->ns->mounts, ns_node)
			if (count < cap && m != base && !mount_within(m, base, base->root) &&
			    mount_within(m, from->mnt, from->dentry))
				c[count++].from = mount_get(m);
	mount_unlock_all();
	for (size_t i = 1; i < count && !err; i++)
		err = mount_new(c[i].from->sb, c[i].from->root, mount_flags(c[i].from), &c[i].to);
	mount_lock_all();
	for (size_t i = 1; i < count && !err; i++) {
		struct mount *parent =
			c[i].from->parent ? mount_clone_of(c, i, c[i].from->parent) : NULL;

		if (!parent || parent->ns != ns)
			continue;
		if (ns->count >= MOUNTS_MAX) {
			err = -ENOSPC;
			break;
		}
		mount_attach(mount_get(c[i].to), parent, c[i].from->mountpoint, ns);
	}
	mount_unlock_all();
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
	mount_lock_all();
	if (m->ns != ns || !m->parent)
		err = -EINVAL;
	else if (!(umount_flags & MNT_DETACH) && !list_empty(&m->children))
		err = -EBUSY;
	/* Two references are ours to ignore: the tree's and the caller's path. */
	else if (!(umount_flags & MNT_DETACH) && refs_read(&m->refs) > 2)
		err = -EBUSY;
	else
		mount_detach_tree(m, &out);
	mount_unlock_all();
	mount_release_detached(&out);
	return err;
}

int mount_remount(struct mount_ns *ns, const struct path *at, u32 flags)
{
	int err = 0;

	mount_lock_all();
	if (at->mnt->ns != ns || at->dentry != at->mnt->root)
		err = -EINVAL;
	else
		atomic_store(&at->mnt->flags, flags);
	mount_unlock_all();
	return err;
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
	mount_lock_all();
	if (m->ns != ns || to->mnt->ns != ns || !m->parent)
		err = -EINVAL;
	for (p = to->mnt; p && !err; p = p->parent)
		if (p == m)
			err = -ELOOP;
	if (!err && mount_child(to->mnt, to->dentry))
		err = -EBUSY;
	if (err) {
		mount_unlock_all();
		return err;
	}
	mount_reattach(m, to->mnt, to->dentry, &old_parent, &old_point);
	mount_unlock_all();
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

int mount_pivot_root(struct mount_ns *ns, const struct path *root, const struct path *new_root,
		     const struct path *put_old)
{
	struct mount *mnew = new_root->mnt, *old = root->mnt, *p1 = NULL, *p2 = NULL;
	struct dentry *d1 = NULL, *d2 = NULL;
	int err = 0;

	mount_lock_all();
	if (mnew->ns != ns || put_old->mnt->ns != ns || old->ns != ns)
		err = -EINVAL;
	else if (mnew == old || put_old->mnt == old)
		err = -EBUSY;
	else if (root->dentry != old->root || new_root->dentry != mnew->root || !mnew->parent ||
		 !place_below(put_old->mnt, mnew) || !place_below(mnew, old))
		err = -EINVAL;
	else if (mount_child(put_old->mnt, put_old->dentry))
		err = -EBUSY;
	if (!err) {
		struct mount *top_parent = old->parent;
		struct dentry *top_point = old->mountpoint;

		mount_reattach(mnew, top_parent, top_point, &p1, &d1);
		if (!top_parent)
			ns->root = mnew;
		mount_reattach(old, put_old->mnt, put_old->dentry, &p2, &d2);
	}
	mount_unlock_all();
	dentry_put(d1);
	dentry_put(d2);
	mount_put(p1);
	mount_put(p2);
	return err;
}
