#include "vfs/dentry.h"
#include "vfs/file.h"
#include "vfs/mount.h"
#include "vfs/walk.h"
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

/* ---- making names ---- */

struct creation {
	struct walk ws;
	struct inode *dir;	 /* locked for write; borrowed from ws.cur */
	struct dentry *dentry;	 /* not yet in the cache */
	struct inode_create how; /* filled by create_permit */
};

/* Ends a creation with `err`. */
static int create_end(struct creation *c, int err)
{
	if (err == -EEXIST && c->dentry)
		dentry_forget_absence(c->dentry);
	if (c->dir)
		rwlock_unlock(&c->dir->dir_lock);
	dentry_put(c->dentry);
	walk_fini(&c->ws);
	dcache_trim();
	return err;
}

/* Walks to the directory, locks it and makes sure that the name is free. */
static int create_begin(struct creation *c, const struct walk_context *w, const char *path,
			bool want_dir)
{
	struct dentry *there;
	int err;

	c->dir = NULL;
	c->dentry = NULL;
	err = walk_init(&c->ws, w, path);
	if (err)
		return err;
	err = walk_to_parent(&c->ws);
	if (!err && c->ws.last_kind != LAST_NORM)
		err = -EEXIST;
	if (err)
		goto fail;
	c->dir = c->ws.cur.dentry->inode;
	rwlock_wrlock(&c->dir->dir_lock);
	err = dentry_lookup_locked(c->ws.cur.dentry, c->ws.name, c->ws.len, &there);
	if (!err) {
		dentry_put(there);
		err = -EEXIST;
	} else if (err == -ENOENT && (!c->ws.trailing || want_dir)) {
		err = path_read_only(&c->ws.cur) ? -EROFS : 0;
	}
	if (err)
		goto fail;
	c->dentry = dentry_alloc(c->ws.cur.dentry, c->ws.name, c->ws.len);
	if (c->dentry)
		return 0;
	err = -ENOMEM;
fail:
	return create_end(c, err);
}

static int create_permit(struct creation *c, const struct walk_context *w, u32 mode)
{
	int err = may_create(&c->ws.cur, w->cred);

	return err ? err : init_create(c->dir, w, mode, &c->how);
}

/* Enters the new inode (reference taken over), unlocks, tells the watchers. */
static void create_done(struct creation *c, struct inode *inode, struct path *ret_or_null)
{
	struct inode *dir = c->dir;

	dentry_instantiate(c->dentry, inode);
	rwlock_unlock(&dir->dir_lock);
	c->dir = NULL;
	notify_child(dir, c->ws.name, inode, IN_CREATE | (inode_is_dir(inode) ? IN_ISDIR : 0), 0);
	if (ret_or_null) {
		*ret_or_null = (struct path){ c->ws.cur.mnt, c->dentry };
		path_get(ret_or_null);
	}
}

int vfs_mkdir(const struct walk_context *w, const char *path, u32 mode)
{
	struct creation c;
	struct inode *inode;
	int err = create_begin(&c, w, path, true);

	if (err)
		return err;
	err = create_permit(&c, w, S_IFDIR | (mode & 01777));
	if (!err)
		err = c.dir->ops->create ? c.dir->ops->create(c.dir, c.ws.name, &c.how, &inode)
					 : -EPERM;
	if (!err)
		create_done(&c, inode, NULL);
	return create_end(&c, err);
}

int vfs_mknod(const struct walk_context *w, const char *path, u32 mode, u32 major, u32 minor,
	      struct path *ret_or_null)
{
	u32 type = mode & S_IFMT ? mode & S_IFMT : S_IFREG;
	bool device = type == S_IFCHR || type == S_IFBLK;
	struct creation c;
	struct inode *inode;
	int err;

	if (type == S_IFDIR)
		return -EPERM;
	if (type != S_IFREG && type != S_IFIFO && type != S_IFSOCK && !device)
		return -EINVAL;
	err = create_begin(&c, w, path, false);
	if (err)
		return err;
	err = create_permit(&c, w, type | (mode & 07777));
	/* Overlay whiteouts (0, 0) are no devices: anybody may make them. */
	if (!err && device && !(type == S_IFCHR && major == 0 && minor == 0) &&
	    !cred_capable(w->cred, CAP_MKNOD))
		err = -EPERM;
	if (!err && device) {
		c.how.rdev_major = major;
		c.how.rdev_minor = minor;
	}
	if (!err)
		err = c.dir->ops->create ? c.dir->ops->create(c.dir, c.ws.name, &c.how, &inode)
					 : -EPERM;
	if (!err)
		create_done(&c, inode, ret_or_null);
	return create_end(&c, err);
}

int vfs_symlink(const struct walk_context *w, const char *target, const char *path)
{
	struct creation c;
	struct inode *inode;
	int err;

	if (!*target)
		return -ENOENT;
	if (strnlen(target, PATH_MAX) >= PATH_MAX)
		return -ENAMETOOLONG;
	err = create_begin(&c, w, path, false);
	if (err)
		return err;
	err = create_permit(&c, w, S_IFLNK | 0777);
	if (!err)
		err = c.dir->ops->symlink
			      ? c.dir->ops->symlink(c.dir, c.ws.name, target, &c.how, &inode)
			      : -EPERM;
	if (!err)
		create_done(&c, inode, NULL);
	return create_end(&c, err);
}

static int link_permit(const struct path *old, struct creation *c, const struct walk_context *w)
{
	struct inode *inode = old->dentry->inode;
	struct kstat st;
	int err;

	if (old->mnt != c->ws.cur.mnt || old->dentry->sb != c->ws.cur.dentry->sb)
		return -EXDEV;
	err = may_create(&c->ws.cur, w->cred);
	if (err)
		return err;
	if (!c->dir->ops->link || inode_is_dir(inode))
		return -EPERM;
	err = inode_getattr(inode, &st);
	if (err)
		return err;
	if (st.nlink == 0 && !(atomic_load(&inode->iflags) & INODE_LINKABLE))
		return -ENOENT;
	return 0;
}

int vfs_link(const struct path *old, const struct walk_context *w, const char *path)
{
	struct inode *inode = old->dentry->inode;
	struct creation c;
	int err = create_begin(&c, w, path, false);

	if (err)
		return err;
	err = link_permit(old, &c, w);
	if (!err)
		err = c.dir->ops->link(c.dir, c.ws.name, inode);
	if (!err) {
		atomic_fetch_and(&inode->iflags, ~INODE_LINKABLE);
		create_done(&c, inode_get(inode), NULL);
		vfs_notify_path(old, IN_ATTRIB);
	}
	return create_end(&c, err);
}

/* ---- removing names ---- */

static void notify_removed(struct inode *dir, const char *name, struct inode *inode)
{
	u32 isdir = inode_is_dir(inode) ? IN_ISDIR : 0;
	struct kstat st;

	if (!vfs_notify_hook)
		return;
	if (atomic_load(&inode->watches)) {
		bool gone = isdir || (inode_getattr(inode, &st) == 0 && st.nlink == 0);

		if (!isdir)
			vfs_notify_hook(inode, NULL, "", IN_ATTRIB, 0);
		if (gone)
			vfs_notify_hook(inode, NULL, "", IN_DELETE_SELF | isdir, 0);
	}
	if (atomic_load(&dir->watches))
		vfs_notify_hook(NULL, dir, name, IN_DELETE | isdir, 0);
}

/* The name in ws->cur, locked for write, for unlink and rmdir. */
static int removal_lookup(struct walk *ws, bool want_dir, struct dentry **ret)
{
	struct dentry *d;
	int err = dentry_lookup_locked(ws->cur.dentry, ws->name, ws->len, &d);

	if (err)
		return err;
	if (ws->trailing && !want_dir)
		err = inode_is_dir(d->inode) ? -EISDIR : -ENOTDIR;
	else
		err = may_delete(&ws->cur, d, ws->ctx->cred, want_dir);
	if (err)
		dentry_put(d);
	else
		*ret = d;
	return err;
}

static int remove_dir_locked(struct inode *dir, const char *name, struct dentry *d)
{
	int err;

	if (!dir->ops->rmdir)
		return -EPERM;
	rwlock_wrlock_nested(&d->inode->dir_lock);
	err = dir->ops->rmdir(dir, name, d->inode);
	if (!err)
		dentry_delete(d);
	rwlock_unlock(&d->inode->dir_lock);
	return err;
}

static int remove_name(const struct walk_context *w, const char *path, bool want_dir)
{
	static const int unlink_errors[] = {
		[LAST_DOT] = -EISDIR, [LAST_DOTDOT] = -EISDIR, [LAST_ROOT] = -EISDIR
	};
	static const int rmdir_errors[] = {
		[LAST_DOT] = -EINVAL, [LAST_DOTDOT] = -ENOTEMPTY, [LAST_ROOT] = -EBUSY
	};
	struct walk ws;
	struct dentry *d = NULL;
	struct inode *dir;
	int err = walk_init(&ws, w, path);

	if (err)
		return err;
	err = walk_to_parent(&ws);
	if (!err && ws.last_kind != LAST_NORM)
		err = want_dir ? rmdir_errors[ws.last_kind] : unlink_errors[ws.last_kind];
	if (!err && path_read_only(&ws.cur))
		err = -EROFS;
	if (err)
		goto out;
	dir = ws.cur.dentry->inode;
	rwlock_wrlock(&dir->dir_lock);
	err = removal_lookup(&ws, want_dir, &d);
	if (!err && want_dir) {
		err = remove_dir_locked(dir, ws.name, d);
	} else if (!err) {
		err = dir->ops->unlink ? dir->ops->unlink(dir, ws.name, d->inode) : -EPERM;
		if (!err)
			dentry_delete(d);
	}
	rwlock_unlock(&dir->dir_lock);
	if (!err)
		notify_removed(dir, ws.name, d->inode);
	dentry_put(d);
out:
	walk_fini(&ws);
	return err;
}

int vfs_unlink(const struct walk_context *w, const char *path)
{
	return remove_name(w, path, false);
}

int vfs_rmdir(const struct walk_context *w, const char *path)
{
	return remove_name(w, path, true);
}
