#include "vfs/overlay_internal.h"
#include <stdlib.h>
#include <string.h>

/* ---- whiteouts ---- */

static u32 name_hash(const char *name)
{
	u64 h = 0xcbf29ce484222325ULL;

	for (; *name; name++)
		h = (h ^ (u8)*name) * 0x100000001b3ULL;
	return (u32)(h ^ (h >> 32));
}

bool whiteouts_has(const struct whiteouts *w, const char *name)
{
	struct whiteout *e;
	u32 hash;

	if (!w->count)
		return false;
	hash = name_hash(name);
	for (e = w->buckets[hash & (w->bucket_count - 1)]; e; e = e->next)
		if (e->hash == hash && strcmp(e->name, name) == 0)
			return true;
	return false;
}

/* Makes room for one more; a table that cannot grow stays usable. */
static bool whiteouts_reserve(struct whiteouts *w)
{
	u32 count = w->bucket_count ? 2 * w->bucket_count : 8;
	struct whiteout **b;

	if (w->count < w->bucket_count)
		return true;
	b = calloc(count, sizeof(struct whiteout *));
	if (!b)
		return w->bucket_count > 0;
	for (u32 i = 0; i < w->bucket_count; i++)
		for (struct whiteout *e = w->buckets[i], *next; e; e = next) {
			next = e->next;
			e->next = b[e->hash & (count - 1)];
			b[e->hash & (count - 1)] = e;
		}
	free(w->buckets);
	w->buckets = b;
	w->bucket_count = count;
	return true;
}

struct whiteout *whiteout_alloc(struct whiteouts *w, const char *name)
{
	struct whiteout *e;

	if (!whiteouts_reserve(w))
		return NULL;
	e = malloc(sizeof(*e) + strlen(name) + 1);
	if (!e)
		return NULL;
	e->hash = name_hash(name);
	strcpy(e->name, name);
	return e;
}

void whiteouts_add(struct whiteouts *w, struct whiteout *e)
{
	if (whiteouts_has(w, e->name)) {
		free(e);
		return;
	}
	e->next = w->buckets[e->hash & (w->bucket_count - 1)];
	w->buckets[e->hash & (w->bucket_count - 1)] = e;
	w->count++;
}

void whiteouts_free(struct whiteouts *w)
{
	for (u32 i = 0; i < w->bucket_count; i++)
		for (struct whiteout *e = w->buckets[i], *next; e; e = next) {
			next = e->next;
			free(e);
		}
	free(w->buckets);
}

/* ---- lookup ---- */

struct inode *ovl_upper_entry(struct inode *upper_dir, const char *name)
{
	struct inode *found;
	int err;

	rwlock_rdlock_nested(&upper_dir->dir_lock);
	err = upper_dir->ops->lookup(upper_dir, name, &found);
	rwlock_unlock(&upper_dir->dir_lock);
	return err ? NULL : found;
}

static int lookup_lower(struct overlay *o, struct inode *lower_dir, const char *name,
			struct inode **ret)
{
	struct inode *found;
	int err;

	if (!lower_dir->ops->lookup)
		return -ENOENT;
	rwlock_rdlock_nested(&lower_dir->dir_lock);
	err = lower_dir->ops->lookup(lower_dir, name, &found);
	rwlock_unlock(&lower_dir->dir_lock);
	return err ? err : ovl_inode_for_lower(o, found, ret);
}

int ovl_lookup(struct inode *dir, const char *name, struct inode **ret)
{
	struct overlay *o = overlay_of(dir->sb);
	struct ovl_inode *od = ovl(dir);
	struct inode *upper = ovl_upper(od), *found;

	if (upper) {
		found = ovl_upper_entry(upper, name);
		if (found) {
			*ret = ovl_find_upper(o, found);
			inode_put(found);
			return *ret ? 0 : -ENOENT;
		}
	}
	if (!od->lower || whiteouts_has(&od->whiteouts, name))
		return -ENOENT;
	return lookup_lower(o, od->lower, name, ret);
}

/* ---- making names ---- */

/* The upper object was just made under name in upper_dir; undone when there is no memory. */
static int enter_new(struct inode *dir, const char *name, struct inode *upper, struct inode **ret)
{
	struct overlay *o = overlay_of(dir->sb);
	struct inode *upper_dir = ovl_upper(ovl(dir));
	bool is_dir = inode_is_dir(upper);
	struct inode *keep = inode_get(upper);
	int err = ovl_inode_for_upper(o, upper, is_dir ? 2 : 1, ret);

	if (!err && is_dir)
		ovl_change_nlink(ovl(dir), 1);
	if (err) {
		rwlock_wrlock_nested(&upper_dir->dir_lock);
		if (is_dir) {
			rwlock_wrlock_nested(&keep->dir_lock);
			upper_dir->ops->rmdir(upper_dir, name, keep);
			rwlock_unlock(&keep->dir_lock);
		} else {
			upper_dir->ops->unlink(upper_dir, name, keep);
		}
		rwlock_unlock(&upper_dir->dir_lock);
	}
	inode_put(keep);
	return err;
}

int ovl_create(struct inode *dir, const char *name, const struct inode_create *how,
	       struct inode **ret)
{
	struct inode *upper_dir, *made;
	int err = ovl_copy_up(ovl(dir), true);

	if (err)
		return err;
	upper_dir = ovl_upper(ovl(dir));
	rwlock_wrlock_nested(&upper_dir->dir_lock);
	err = upper_dir->ops->create(upper_dir, name, how, &made);
	rwlock_unlock(&upper_dir->dir_lock);
	return err ? err : enter_new(dir, name, made, ret);
}

int ovl_symlink(struct inode *dir, const char *name, const char *target,
		const struct inode_create *how, struct inode **ret)
{
	struct inode *upper_dir, *made;
	int err = ovl_copy_up(ovl(dir), true);

	if (err)
		return err;
	upper_dir = ovl_upper(ovl(dir));
	rwlock_wrlock_nested(&upper_dir->dir_lock);
	err = upper_dir->ops->symlink(upper_dir, name, target, how, &made);
	rwlock_unlock(&upper_dir->dir_lock);
	return err ? err : enter_new(dir, name, made, ret);
}

int ovl_tmpfile(struct inode *dir, const struct inode_create *how, struct inode **ret)
{
	struct overlay *o = overlay_of(dir->sb);
	struct inode *made;
	int err;

	if (!o->pool->ops->tmpfile)
		return -EOPNOTSUPP;
	rwlock_wrlock_nested(&o->pool->dir_lock);
	err = o->pool->ops->tmpfile(o->pool, how, &made);
	rwlock_unlock(&o->pool->dir_lock);
	return err ? err : ovl_inode_for_upper(o, made, 0, ret);
}

int ovl_link(struct inode *dir, const char *name, struct inode *target)
{
	struct ovl_inode *ot = ovl(target);
	struct inode *upper_dir;
	int err = ovl_copy_up(ovl(dir), true);

	if (!err)
		err = ovl_copy_up(ot, true);
	if (err)
		return err;
	upper_dir = ovl_upper(ovl(dir));
	rwlock_wrlock_nested(&upper_dir->dir_lock);
	err = upper_dir->ops->link(upper_dir, name, ovl_upper(ot));
	rwlock_unlock(&upper_dir->dir_lock);
	if (!err)
		ovl_change_nlink(ot, 1);
	return err;
}

/* ---- removing names ---- */

/* Takes `name` out of the layers: from the upper directory, or by a whiteout. */
static int remove_entry(struct ovl_inode *od, const char *name, bool is_dir)
{
	struct inode *upper_dir = ovl_upper(od), *entry = ovl_upper_entry(upper_dir, name);
	struct whiteout *w;
	int err;

	if (!entry) {
		w = whiteout_alloc(&od->whiteouts, name);
		if (!w)
			return -ENOMEM;
		whiteouts_add(&od->whiteouts, w);
		inode_touch(upper_dir, ATTR_MTIME);
		return 0;
	}
	rwlock_wrlock_nested(&upper_dir->dir_lock);
	if (is_dir) {
		rwlock_wrlock_nested(&entry->dir_lock);
		err = upper_dir->ops->rmdir(upper_dir, name, entry);
		rwlock_unlock(&entry->dir_lock);
	} else {
		err = upper_dir->ops->unlink(upper_dir, name, entry);
	}
	rwlock_unlock(&upper_dir->dir_lock);
	inode_put(entry);
	return err;
}

int ovl_unlink(struct inode *dir, const char *name, struct inode *target)
{
	int err = ovl_copy_up(ovl(dir), true);

	if (!err)
		err = remove_entry(ovl(dir), name, false);
	if (!err)
		ovl_change_nlink(ovl(target), -1);
	return err;
}

int ovl_rmdir(struct inode *dir, const char *name, struct inode *target)
{
	struct ovl_inode *ot = ovl(target);
	int err = ovl_check_empty(ot);

	if (!err)
		err = ovl_copy_up(ovl(dir), true);
	if (!err)
		err = remove_entry(ovl(dir), name, true);
	if (err)
		return err;
	ovl_dir_gone(ot);
	ovl_change_nlink(ovl(dir), -1);
	return 0;
}
