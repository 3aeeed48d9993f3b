/* Mount namespaces: made, copied, listed. */
#include "vfs/mount.h"
#include "base/log.h"
#include "vfs/dentry.h"
#include <stdlib.h>
#include <string.h>

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
	mount_lock_all();
	mount_attach(m, NULL, NULL, ns);
	ns->root = m;
	mount_unlock_all();
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
	mount_lock_all();
	mount_detach_tree(ns->root, &out);
	mount_unlock_all();
	mount_release_detached(&out);
	free(ns);
}

u64 mount_ns_id(const struct mount_ns *ns)
{
	return ns->id;
}

void mount_ns_root(struct mount_ns *ns, struct path *ret)
{
	mount_lock_all();
	ret->mnt = mount_get(ns->root);
	ret->dentry = dentry_get(ns->root->root);
	mount_unlock_all();
	path_cross_down(ret);
}

/* ---- copying trees ---- */

int mount_ns_copy(struct mount_ns *ns, struct path *fix1, struct path *fix2, struct mount_ns **ret)
{
	struct mount *old1 = fix1 ? fix1->mnt : NULL, *old2 = fix2 ? fix2->mnt : NULL;
	size_t count = 0, cap, made = 0;
	struct mount_ns *copy;
	struct mount_clone *c;
	struct mount *m;
	int err = ns_alloc(&copy);

	if (err)
		return err;
	mount_lock_all();
	cap = ns->count;
	mount_unlock_all();
	c = calloc(cap, sizeof(*c));
	if (!c) {
		ns_discard(copy);
		return -ENOMEM;
	}
	/* Pin the mounts, make unattached copies without the lock, then attach them in one go. */
	mount_lock_all();
	list_for_each (m, &ns->mounts, ns_node)
		if (count < cap)
			c[count++].from = mount_get(m);
	mount_unlock_all();
	for (; made < count && !err; made++)
		err = mount_new(c[made].from->sb, c[made].from->root, mount_flags(c[made].from),
				&c[made].to);
	if (err)
		goto out;
	mount_lock_all();
	for (size_t i = 0; i < count; i++) {
		struct mount *parent = mount_clone_of(c, count, c[i].from->parent);

		if (c[i].from->ns != ns) /* detached meanwhile, with all below it */
			continue;
		if (c[i].from == ns->root)
			copy->root = c[i].to;
		mount_attach(c[i].to, parent, c[i].from->mountpoint, copy);
		mount_get(c[i].to);
	}
	mount_unlock_all();
	if (fix1 && (m = mount_clone_of(c, count, fix1->mnt)) != NULL && m->ns)
		fix1->mnt = mount_get(m);
	else
		old1 = NULL;
	if (fix2 && (m = mount_clone_of(c, count, fix2->mnt)) != NULL && m->ns)
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

/* ---- listing ---- */

static int snapshot(struct mount_ns *ns, struct mount ***ret, size_t *ret_count)
{
	struct mount **v, *m;
	size_t cap, n = 0;

	mount_lock_all();
	cap = ns->count;
	mount_unlock_all();
	v = calloc(cap ? cap : 1, sizeof(struct mount *));
	if (!v)
		return -ENOMEM;
	mount_lock_all();
	list_for_each (m, &ns->mounts, ns_node)
		if (n < cap)
			v[n++] = mount_get(m);
	mount_unlock_all();
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
	mount_lock_all();
	info->id = m->id;
	info->parent_id = m->parent ? m->parent->id : m->id;
	mount_unlock_all();
	info->dev_major = sb->dev_major;
	info->dev_minor = sb->dev_minor;
	info->flags = mount_flags(m);
	info->type = sb->type;
	info->source = sb->source;
	if (path_text(&within, NULL, info->root, sizeof(info->root)) < 0)
		strcpy(info->root, "/");
	if (path_text(&point, root, info->point, sizeof(info->point)) < 0 || info->point[0] != '/')
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
