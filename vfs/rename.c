#include "vfs/dentry.h"
#include "vfs/file.h"
#include "vfs/walk.h"
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

struct renaming {
	struct walk from, to;
	struct inode *old_dir, *new_dir; /* borrowed */
	struct dentry *source, *target;	 /* with references; target NULL when absent */
	u32 flags;
	const struct cred *cred;
};

/*
 * Parents are locked ancestor first, unrelated ones by address; across directories the file
 * system's rename lock keeps the ancestry as it is.
 */
static void lock_parents(struct renaming *r)
{
	struct inode *a = r->old_dir, *b = r->new_dir, *tmp;

	if (a == b) {
		rwlock_wrlock(&a->dir_lock);
		return;
	}
	mutex_lock(&a->sb->rename_lock);
	if (dentry_is_ancestor(r->to.cur.dentry, r->from.cur.dentry) ||
	    (!dentry_is_ancestor(r->from.cur.dentry, r->to.cur.dentry) && b < a)) {
		tmp = a;
		a = b;
		b = tmp;
	}
	rwlock_wrlock(&a->dir_lock);
	rwlock_wrlock_nested(&b->dir_lock);
}

static void unlock_parents(struct renaming *r)
{
	rwlock_unlock(&r->new_dir->dir_lock);
	if (r->old_dir == r->new_dir)
		return;
	rwlock_unlock(&r->old_dir->dir_lock);
	mutex_unlock(&r->old_dir->sb->rename_lock);
}

/* Finds source and target, and what of their kinds and places forbids the rename. */
static int find_both(struct renaming *r)
{
	bool exchange = r->flags & RENAME_EXCHANGE;
	int err = dentry_lookup_locked(r->from.cur.dentry, r->from.name, r->from.len, &r->source);

	if (err)
		return err;
	err = dentry_lookup_locked(r->to.cur.dentry, r->to.name, r->to.len, &r->target);
	if (err && err != -ENOENT)
		return err;
	if (r->target && (r->flags & RENAME_NOREPLACE))
		return -EEXIST;
	if (exchange && !r->target)
		return -ENOENT;
	if (exchange && r->to.trailing && !inode_is_dir(r->target->inode))
		return -ENOTDIR;
	if (!inode_is_dir(r->source->inode) && (r->from.trailing || (!exchange && r->to.trailing)))
		return -ENOTDIR;
	if (dentry_is_ancestor(r->source, r->to.cur.dentry))
		return -EINVAL;
	if (r->target && dentry_is_ancestor(r->target, r->from.cur.dentry))
		return exchange ? -EINVAL : -ENOTEMPTY;
	return 0;
}

static int permit(struct renaming *r)
{
	bool is_dir = inode_is_dir(r->source->inode);
	bool exchange = r->flags & RENAME_EXCHANGE;
	int err = may_delete(&r->from.cur, r->source, r->cred, is_dir);

	if (err)
		return err;
	if (!r->target)
		err = may_create(&r->to.cur, r->cred);
	else
		err = may_delete(&r->to.cur, r->target, r->cred,
				 exchange ? inode_is_dir(r->target->inode) : is_dir);
	if (err)
		return err;
	if (!r->old_dir->ops->rename)
		return -EPERM;
	if ((r->flags & RENAME_WHITEOUT) && !cred_capable(r->cred, CAP_MKNOD))
		return -EPERM;
	if (r->old_dir == r->new_dir)
		return 0;
	/* A moved directory's ".." changes. */
	if (is_dir && (err = vfs_permission(r->source->inode, r->cred, MAY_WRITE)) != 0)
		return err;
	if (exchange && r->target && inode_is_dir(r->target->inode))
		return vfs_permission(r->target->inode, r->cred, MAY_WRITE);
	return 0;
}

static int do_rename(struct renaming *r)
{
	struct inode *target = r->target ? r->target->inode : NULL;
	bool lock_target = target && inode_is_dir(target);
	int err;

	if (lock_target)
		rwlock_wrlock_nested(&target->dir_lock);
	err = r->old_dir->ops->rename(r->old_dir, r->from.name, r->source->inode, r->new_dir,
				      r->to.name, target, r->flags);
	if (!err && (r->flags & RENAME_EXCHANGE)) {
		if (dentry_exchange(r->source, r->target)) {
			/* No memory: forget both names; lookups find the new state. */
			dentry_delete(r->source);
			dentry_delete(r->target);
		}
	} else if (!err) {
		if (r->target)
			dentry_delete(r->target);
		if (dentry_move(r->source, r->to.cur.dentry, r->to.name, r->to.len))
			dentry_delete(r->source);
	}
	if (lock_target)
		rwlock_unlock(&target->dir_lock);
	return err;
}

static void notify_renamed(struct renaming *r)
{
	static _Atomic u32 next_cookie = 1;
	struct inode *source = r->source->inode, *target = r->target ? r->target->inode : NULL;
	u32 isdir = inode_is_dir(source) ? IN_ISDIR : 0;
	u32 cookie;
	struct kstat st;

	if (!vfs_notify_hook)
		return;
	cookie = atomic_fetch_add(&next_cookie, 1);
	if (atomic_load(&r->old_dir->watches))
		vfs_notify_hook(NULL, r->old_dir, r->from.name, IN_MOVED_FROM | isdir, cookie);
	if (atomic_load(&r->new_dir->watches))
		vfs_notify_hook(NULL, r->new_dir, r->to.name, IN_MOVED_TO | isdir, cookie);
	if (atomic_load(&source->watches))
		vfs_notify_hook(source, NULL, "", IN_MOVE_SELF | isdir, 0);
	if (!target || !atomic_load(&target->watches))
		return;
	if (r->flags & RENAME_EXCHANGE) {
		vfs_notify_hook(target, NULL, "", IN_MOVE_SELF, 0);
		return;
	}
	if (!inode_is_dir(target))
		vfs_notify_hook(target, NULL, "", IN_ATTRIB, 0);
	if (inode_is_dir(target) || (inode_getattr(target, &st) == 0 && st.nlink == 0))
		vfs_notify_hook(target, NULL, "", IN_DELETE_SELF, 0);
}

static int rename_walked(struct renaming *r)
{
	bool same = false;
	int err;

	if (r->from.cur.mnt != r->to.cur.mnt || r->from.cur.dentry->sb != r->to.cur.dentry->sb)
		return -EXDEV;
	if (r->from.last_kind != LAST_NORM)
		return -EBUSY;
	if (r->to.last_kind != LAST_NORM)
		return r->flags & RENAME_NOREPLACE ? -EEXIST : -EBUSY;
	if (path_read_only(&r->from.cur))
		return -EROFS;
	r->old_dir = r->from.cur.dentry->inode;
	r->new_dir = r->to.cur.dentry->inode;
	lock_parents(r);
	err = find_both(r);
	if (!err && r->target && r->target->inode == r->source->inode)
		same = true;
	if (!err && !same)
		err = permit(r);
	if (!err && !same)
		err = do_rename(r);
	unlock_parents(r);
	if (!err && !same)
		notify_renamed(r);
	dentry_put(r->source);
	dentry_put(r->target);
	dcache_trim();
	return err;
}

int vfs_rename(const struct walk_context *from, const char *old_path, const struct walk_context *to,
	       const char *new_path, u32 flags)
{
	struct renaming *r;
	int err;

	if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if ((flags & RENAME_EXCHANGE) && (flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)))
		return -EINVAL;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->flags = flags;
	r->cred = from->cred;
	err = walk_init(&r->from, from, old_path);
	if (err)
		goto out;
	err = walk_to_parent(&r->from);
	if (err)
		goto out_from;
	err = walk_init(&r->to, to, new_path);
	if (err)
		goto out_from;
	err = walk_to_parent(&r->to);
	if (!err)
		err = rename_walked(r);
	walk_fini(&r->to);
out_from:
	walk_fini(&r->from);
out:
	free(r);
	return err;
}
