/*
 * The part of a path walk that the caches know: most components of most paths.
 *
 * All of it runs under the dentry cache's lock, which keeps names, parents, dentries and what is
 * mounted on them as they are; so no component costs a lock or a reference. Whatever needs more
 * than a look (symlinks, "..", names not cached, file systems that answer for themselves) is left
 * to namei.c, which goes on from where this stops.
 */
#include "vfs/dentry.h"
#include "vfs/mount.h"
#include "vfs/walk.h"
#include <string.h>

static const char *skip_slashes(const char *p)
{
	while (*p == '/')
		p++;
	return p;
}

/* Only slashes left of the texts below the top one? */
static bool below_is_empty(const struct walk *ws)
{
	for (int i = ws->depth - 2; i >= 0; i--)
		if (*skip_slashes(ws->frame[i].pos))
			return false;
	return true;
}

/* May cred search this directory, and does its file system leave that and its names to us? */
static bool searchable(struct dentry *d, const struct cred *cred)
{
	struct inode *inode = d->inode;

	return inode_is_dir(inode) && !inode->ops->permission &&
	       !(d->sb->flags & (SB_NO_DCACHE | SB_REVALIDATE)) &&
	       vfs_permission(inode, cred, MAY_EXEC) == 0;
}

/* To the root of what is mounted on p. */
static void cross_down(struct path *p)
{
	while (p->mnt && atomic_load_explicit(&p->dentry->mounted, memory_order_relaxed) > 0) {
		struct mount *m = mount_child(p->mnt, p->dentry);

		if (!m)
			return;
		*p = (struct path){ .mnt = m, .dentry = m->root };
	}
}

/* One component, name[0..len), from p; last: nothing follows it. False: not from here. */
static bool step_cached(struct path *p, const struct cred *cred, const char *name, size_t len,
			bool last, bool follow)
{
	struct dentry *d;

	if (len > NAME_MAX || !searchable(p->dentry, cred))
		return false;
	if (name[0] == '.' && len == 1)
		return true;
	if (name[0] == '.' && name[1] == '.' && len == 2)
		return false;
	d = dcache_find_locked(p->dentry, name, len);
	if (!d || !d->inode)
		return false;
	if (S_ISLNK(d->inode->type) && (!last || follow))
		return false;
	p->dentry = d;
	cross_down(p);
	return true;
}

void walk_cached(struct walk *ws, const struct path *cur, bool to_end, bool follow)
{
	const char **pos = &ws->frame[ws->depth - 1].pos;
	struct path p = *cur;

	dcache_lock();
	while (!ws->ctx->resolve) {
		const char *name = skip_slashes(*pos), *end = strchrnul(name, '/');
		bool last = !*skip_slashes(end) && below_is_empty(ws);

		if (!*name || (last && (!to_end || *end)))
			break;
		if (!step_cached(&p, ws->ctx->cred, name, (size_t)(end - name), last, follow))
			break;
		*pos = end;
	}
	path_get(&p);
	dcache_unlock();
	ws->cur = p;
}
