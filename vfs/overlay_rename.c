#include "vfs/overlay_internal.h"
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

/*
 * Gives a copied-up object an entry in the upper directory of (dir, name), where it is seen now:
 * its name in the pool moves there, or a link is made, and the lower name is whited out. Nothing to
 * do when it has one.
 */
static int materialise(struct overlay *o, struct ovl_inode *dir, const char *name,
		       struct ovl_inode *oi)
{
	struct inode *upper_dir = ovl_upper(dir), *upper = ovl_upper(oi);
	struct inode *entry = ovl_upper_entry(upper_dir, name);
	struct whiteout *w;
	char pool_name[24];
	int err;

	if (entry) {
		inode_put(entry);
		return 0;
	}
	w = whiteout_alloc(&dir->whiteouts, name);
	if (!w)
		return -ENOMEM;
	mutex_lock_nested(&oi->copy_lock);
	rwlock_wrlock_nested(&o->pool->dir_lock);
	rwlock_wrlock_nested(&upper_dir->dir_lock);
	ovl_pool_name(pool_name, oi->pool_id);
	if (oi->pool_id)
		err = o->pool->ops->rename(o->pool, pool_name, upper, upper_dir, name, NULL, 0);
	else
		err = upper_dir->ops->link(upper_dir, name, upper);
	rwlock_unlock(&upper_dir->dir_lock);
	rwlock_unlock(&o->pool->dir_lock);
	if (!err)
		oi->pool_id = 0;
	mutex_unlock(&oi->copy_lock);
	if (err)
		free(w);
	else
		whiteouts_add(&dir->whiteouts, w);
	return err;
}

static void lock_uppers(struct inode *a, struct inode *b)
{
	if (b < a) {
		struct inode *tmp = a;

		a = b;
		b = tmp;
	}
	rwlock_wrlock_nested(&a->dir_lock);
	if (a != b)
		rwlock_wrlock_nested(&b->dir_lock);
}

static void unlock_uppers(struct inode *a, struct inode *b)
{
	rwlock_unlock(&a->dir_lock);
	if (a != b)
		rwlock_unlock(&b->dir_lock);
}

static int rename_upper(struct ovl_inode *from, const char *old_name, struct ovl_inode *source,
			struct ovl_inode *to, const char *new_name, struct inode *entry, u32 flags)
{
	struct inode *a = ovl_upper(from), *b = ovl_upper(to);
	bool lock_entry = entry && inode_is_dir(entry);
	int err;

	lock_uppers(a, b);
	if (lock_entry)
		rwlock_wrlock_nested(&entry->dir_lock);
	err = a->ops->rename(a, old_name, ovl_upper(source), b, new_name, entry, flags);
	if (lock_entry)
		rwlock_unlock(&entry->dir_lock);
	unlock_uppers(a, b);
	return err;
}

static int copy_up_all(struct ovl_inode *a, struct ovl_inode *b, struct ovl_inode *c,
		       struct ovl_inode *d)
{
	struct ovl_inode *all[] = { a, b, c, d };
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all) && !err; i++)
		if (all[i])
			err = ovl_copy_up(all[i], true);
	return err;
}

/* Subdirectory counts of the parents after a move of `what` from one to the other. */
static void move_links(struct ovl_inode *what, struct ovl_inode *from, struct ovl_inode *to)
{
	if (!inode_is_dir(&what->inode) || from == to)
		return;
	ovl_change_nlink(from, -1);
	ovl_change_nlink(to, 1);
}

static int exchange(struct overlay *o, struct ovl_inode *from, const char *old_name,
		    struct ovl_inode *source, struct ovl_inode *to, const char *new_name,
		    struct ovl_inode *target)
{
	int err = copy_up_all(from, to, source, target);

	if (!err)
		err = materialise(o, from, old_name, source);
	if (!err)
		err = materialise(o, to, new_name, target);
	if (!err)
		err = rename_upper(from, old_name, source, to, new_name, ovl_upper(target),
				   RENAME_EXCHANGE);
	if (err)
		return err;
	move_links(source, from, to);
	move_links(target, to, from);
	return 0;
}

static int replace(struct overlay *o, struct ovl_inode *from, const char *old_name,
		   struct ovl_inode *source, struct ovl_inode *to, const char *new_name,
		   struct ovl_inode *target)
{
	struct whiteout *w = NULL;
	struct inode *entry;
	int err = 0;

	if (target && inode_is_dir(&target->inode))
		err = ovl_check_empty(target);
	if (!err)
		err = copy_up_all(from, to, source, NULL);
	if (!err)
		err = materialise(o, from, old_name, source);
	if (err)
		return err;
	entry = ovl_upper_entry(ovl_upper(to), new_name);
	/* A lower name that the new one covers. */
	if (target && !entry && !(w = whiteout_alloc(&to->whiteouts, new_name)))
		return -ENOMEM;
	err = rename_upper(from, old_name, source, to, new_name, entry, 0);
	inode_put(entry);
	if (err) {
		free(w);
		return err;
	}
	if (w)
		whiteouts_add(&to->whiteouts, w);
	if (target && inode_is_dir(&target->inode)) {
		ovl_dir_gone(target);
		ovl_change_nlink(to, -1);
	} else if (target) {
		ovl_change_nlink(target, -1);
	}
	move_links(source, from, to);
	return 0;
}

int ovl_rename(struct inode *old_dir, const char *old_name, struct inode *source,
	       struct inode *new_dir, const char *new_name, struct inode *target, u32 flags)
{
	struct overlay *o = overlay_of(old_dir->sb);

	if (flags & RENAME_WHITEOUT)
		return -EINVAL;
	if (flags & RENAME_EXCHANGE)
		return exchange(o, ovl(old_dir), old_name, ovl(source), ovl(new_dir), new_name,
				ovl(target));
	return replace(o, ovl(old_dir), old_name, ovl(source), ovl(new_dir), new_name,
		       target ? ovl(target) : NULL);
}
