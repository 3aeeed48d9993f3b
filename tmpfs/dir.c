#include "tmpfs/internal.h"
#include "base/log.h"
#include <dirent.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#define DIR_BUCKETS_MIN 8

/* ---- entries; dir_lock held ---- */

static u32 hash_name(struct inode *dir, const char *name, size_t len)
{
	u64 h = tmpfs_sb(dir->sb)->hash_seed ^ len;

	for (size_t i = 0; i < len; i++) {
		h = (h ^ (u8)name[i]) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 32;
	}
	return (u32)h;
}

static struct tmpfs_dirent *dirent_find(struct inode *inode, const char *name)
{
	struct tmpfs_dir *dir = &tmpfs_inode(inode)->dir;
	size_t len = strlen(name);
	struct tmpfs_dirent *de;
	u32 hash;

	if (!dir->bucket_count)
		return NULL;
	hash = hash_name(inode, name, len);
	for (de = dir->buckets[hash & (dir->bucket_count - 1)]; de; de = de->hash_next) {
		if (de->hash == hash && de->name_len == len && !memcmp(de->name, name, len))
			return de;
	}
	return NULL;
}

/* Doubles the table when it is full. Only a directory without any table can fail. */
static int grow_table(struct tmpfs_dir *dir)
{
	u32 count = dir->bucket_count ? dir->bucket_count * 2 : DIR_BUCKETS_MIN;
	struct tmpfs_dirent **buckets;

	if (dir->count < dir->bucket_count || count > 1u << 30)
		return 0;
	buckets = calloc(count, sizeof(*buckets));
	if (!buckets)
		return dir->bucket_count ? 0 : -ENOMEM;
	for (u32 i = 0; i < dir->bucket_count; i++) {
		struct tmpfs_dirent *de = dir->buckets[i], *next;

		for (; de; de = next) {
			next = de->hash_next;
			de->hash_next = buckets[de->hash & (count - 1)];
			buckets[de->hash & (count - 1)] = de;
		}
	}
	free(dir->buckets);
	dir->buckets = buckets;
	dir->bucket_count = count;
	return 0;
}

/* Takes its own reference on `inode`. The name is not there yet. */
static int dirent_add(struct inode *dir_inode, const char *name, struct inode *inode)
{
	struct tmpfs_dir *dir = &tmpfs_inode(dir_inode)->dir;
	size_t len = strlen(name);
	struct tmpfs_dirent *de;

	rwlock_assert_write_held(&dir_inode->dir_lock);
	de = malloc(sizeof(*de) + len + 1);
	if (!de || grow_table(dir) < 0) {
		free(de);
		return -ENOMEM;
	}
	de->inode = inode_get(inode);
	de->name_len = (u16)len;
	memcpy(de->name, name, len + 1);
	de->hash = hash_name(dir_inode, name, len);
	de->hash_next = dir->buckets[de->hash & (dir->bucket_count - 1)];
	dir->buckets[de->hash & (dir->bucket_count - 1)] = de;
	de->by_cookie.key = dir->next_cookie++;
	ktree_insert(&dir->entries, &de->by_cookie);
	dir->count++;
	return 0;
}

/* Drops the entry's reference; the caller holds another. */
static void dirent_remove(struct inode *dir_inode, struct tmpfs_dirent *de)
{
	struct tmpfs_dir *dir = &tmpfs_inode(dir_inode)->dir;
	struct tmpfs_dirent **link = &dir->buckets[de->hash & (dir->bucket_count - 1)];

	rwlock_assert_write_held(&dir_inode->dir_lock);
	while (*link != de)
		link = &(*link)->hash_next;
	*link = de->hash_next;
	ktree_remove(&dir->entries, &de->by_cookie);
	dir->count--;
	inode_put(de->inode);
	free(de);
	if (!dir->count) {
		free(dir->buckets);
		dir->buckets = NULL;
		dir->bucket_count = 0;
	}
}

/* ---- bookkeeping of attributes ---- */

static void touch_ctime(struct inode *inode)
{
	MUTEX_GUARD(&inode->attr_lock);
	inode->ctime = inode_now(inode);
}

/* A directory gained or lost an entry (and a subdirectory). */
static void dir_changed(struct inode *dir, int entries, int subdirs)
{
	MUTEX_GUARD(&dir->attr_lock);
	dir->size += (u64)((s64)entries * TMPFS_DIRENT_SIZE);
	dir->nlink += (u32)subdirs;
	dir->mtime = dir->ctime = inode_now(dir);
}

/*
 * Names. As on Linux a second name counts as an inode, for it pins the sentry's
 * memory: an inode has charged itself and, under attr_lock, max(0, nlink - 1) more.
 */
static int name_added(struct inode *inode)
{
	MUTEX_GUARD(&inode->attr_lock);
	if (inode->nlink && !tmpfs_charge_inode(tmpfs_sb(inode->sb)))
		return -ENOSPC;
	inode->nlink++;
	inode->ctime = inode_now(inode);
	return 0;
}

static void name_removed(struct inode *inode)
{
	MUTEX_GUARD(&inode->attr_lock);
	inode->ctime = inode_now(inode);
	if (inode_is_dir(inode))
		inode->nlink = 0;
	else if (--inode->nlink)
		tmpfs_uncharge_inode(tmpfs_sb(inode->sb));
}

/* ---- operations ---- */

int tmpfs_lookup(struct inode *dir, const char *name, struct inode **ret)
{
	struct tmpfs_dirent *de = dirent_find(dir, name);

	if (!de)
		return -ENOENT;
	*ret = inode_get(de->inode);
	return 0;
}

static int add_new(struct inode *dir, const char *name, struct inode *inode, struct inode **ret)
{
	int err;

	/* A removed directory that someone still has open takes no new names. */
	err = dir->nlink ? dirent_add(dir, name, inode) : -ENOENT;
	if (err < 0) {
		inode_put(inode);
		return err;
	}
	if (inode_is_dir(inode))
		tmpfs_inode(inode)->dir.parent_ino = dir->ino;
	dir_changed(dir, 1, inode_is_dir(inode));
	*ret = inode;
	return 0;
}

int tmpfs_create(struct inode *dir, const char *name, const struct inode_create *how,
		 struct inode **ret)
{
	struct inode *inode;
	int err;

	if (dirent_find(dir, name))
		return -EEXIST;
	err = tmpfs_inode_new(tmpfs_sb(dir->sb), how, &inode);
	return err < 0 ? err : add_new(dir, name, inode, ret);
}

int tmpfs_symlink(struct inode *dir, const char *name, const char *target,
		  const struct inode_create *how, struct inode **ret)
{
	struct inode_create link = *how;
	struct inode *inode;
	char *copy;
	int err;

	if (strlen(target) >= PATH_MAX)
		return -ENAMETOOLONG;
	if (dirent_find(dir, name))
		return -EEXIST;
	copy = strdup(target);
	if (!copy)
		return -ENOMEM;
	link.mode = S_IFLNK | 0777;
	err = tmpfs_inode_new(tmpfs_sb(dir->sb), &link, &inode);
	if (err < 0) {
		free(copy);
		return err;
	}
	tmpfs_inode(inode)->target = copy;
	return add_new(dir, name, inode, ret);
}

int tmpfs_link(struct inode *dir, const char *name, struct inode *target)
{
	int err;

	if (dirent_find(dir, name))
		return -EEXIST;
	if (!dir->nlink)
		return -ENOENT;
	err = name_added(target);
	if (err < 0)
		return err;
	err = dirent_add(dir, name, target);
	if (err < 0)
		name_removed(target);
	else
		dir_changed(dir, 1, 0);
	return err;
}

int tmpfs_unlink(struct inode *dir, const char *name, struct inode *target)
{
	struct tmpfs_dirent *de = dirent_find(dir, name);

	if (!de || de->inode != target)
		return -ENOENT;
	name_removed(target);
	dirent_remove(dir, de);
	dir_changed(dir, -1, 0);
	return 0;
}

int tmpfs_rmdir(struct inode *dir, const char *name, struct inode *target)
{
	struct tmpfs_dirent *de = dirent_find(dir, name);

	if (!de || de->inode != target)
		return -ENOENT;
	if (tmpfs_inode(target)->dir.count)
		return -ENOTEMPTY;
	name_removed(target);
	dirent_remove(dir, de);
	dir_changed(dir, -1, -1);
	return 0;
}

static void set_parent(struct inode *inode, struct inode *dir)
{
	if (inode_is_dir(inode))
		tmpfs_inode(inode)->dir.parent_ino = dir->ino;
}

static int rename_exchange(struct inode *old_dir, struct tmpfs_dirent *a, struct inode *new_dir,
			   struct tmpfs_dirent *b)
{
	int moved = (int)inode_is_dir(b->inode) - (int)inode_is_dir(a->inode);
	struct inode *tmp = a->inode;

	a->inode = b->inode;
	b->inode = tmp;
	set_parent(a->inode, old_dir);
	set_parent(b->inode, new_dir);
	touch_ctime(a->inode);
	touch_ctime(b->inode);
	if (old_dir == new_dir)
		moved = 0;
	dir_changed(old_dir, 0, moved);
	dir_changed(new_dir, 0, -moved);
	return 0;
}

int tmpfs_rename(struct inode *old_dir, const char *old_name, struct inode *source,
		 struct inode *new_dir, const char *new_name, struct inode *target, u32 flags)
{
	struct tmpfs_dirent *from = dirent_find(old_dir, old_name);
	struct tmpfs_dirent *to = dirent_find(new_dir, new_name);
	struct inode_create how = { .mode = S_IFCHR,
				    .uid = __atomic_load_n(&source->uid, __ATOMIC_RELAXED),
				    .gid = __atomic_load_n(&source->gid, __ATOMIC_RELAXED) };
	struct inode *whiteout = NULL;
	bool dir = inode_is_dir(source);
	int err = 0;

	if (!from || from->inode != source || (target && (!to || to->inode != target)))
		return -ENOENT;
	if (flags & RENAME_EXCHANGE)
		return to ? rename_exchange(old_dir, from, new_dir, to) : -ENOENT;
	if (to && (flags & RENAME_NOREPLACE))
		return -EEXIST;
	if (to && to->inode == source)
		return 0;
	if (to && inode_is_dir(to->inode) && tmpfs_inode(to->inode)->dir.count)
		return -ENOTEMPTY;
	if (!new_dir->nlink)
		return -ENOENT;
	if (flags & RENAME_WHITEOUT)
		err = tmpfs_inode_new(tmpfs_sb(old_dir->sb), &how, &whiteout);
	if (!err && !to)
		err = dirent_add(new_dir, new_name, source);
	if (err < 0) {
		inode_put(whiteout);
		return err;
	}
	if (to) {
		struct inode *old = to->inode;

		to->inode = inode_get(source);
		name_removed(old);
		dir_changed(new_dir, 0, -(int)inode_is_dir(old));
		inode_put(old);
	}
	if (whiteout) {
		from->inode = whiteout;
		inode_put(source);
	} else {
		dirent_remove(old_dir, from);
	}
	set_parent(source, new_dir);
	touch_ctime(source);
	dir_changed(old_dir, whiteout ? 0 : -1, -(int)dir);
	dir_changed(new_dir, to ? 0 : 1, dir);
	return 0;
}

/*
 * A directory may hold another and so on, as deep as a guest likes: entries go
 * to a list of this thread, and only the outermost call drops them.
 */
void tmpfs_dir_destroy(struct tmpfs_inode *i)
{
	static _Thread_local struct tmpfs_dirent *pending;
	static _Thread_local bool draining;
	struct knode *n;

	while ((n = ktree_pop_any(&i->dir.entries))) {
		struct tmpfs_dirent *de = container_of(n, struct tmpfs_dirent, by_cookie);

		de->hash_next = pending;
		pending = de;
	}
	free(i->dir.buckets);
	if (draining)
		return;
	draining = true;
	while (pending) {
		struct tmpfs_dirent *de = pending;

		pending = de->hash_next;
		inode_put(de->inode);
		free(de);
	}
	draining = false;
}

/* ---- open directories ---- */

/*
 * Names that appear after a reader started are left out until it rewinds, as on
 * Linux; otherwise a program that renames what it reads would never end. The
 * bound is kept in file->private, set when the reader is at the start.
 */
static int dir_iterate(struct file *f, struct dir_emit *e, u64 *pos)
{
	struct inode *inode = f->inode;
	struct tmpfs_dir *dir = &tmpfs_inode(inode)->dir;
	struct knode *n;
	u64 limit;

	/* Nested: an overlay lists its upper layer with its own directory locked. */
	rwlock_rdlock_nested(&inode->dir_lock);
	if (*pos == 0 || !f->private)
		f->private = (void *)(uintptr_t)dir->next_cookie;
	limit = (u64)(uintptr_t)f->private;
	if (*pos == 0) {
		if (!e->emit(e, ".", 1, inode->ino, DT_DIR, 1))
			goto out;
		*pos = 1;
	}
	if (*pos == 1) {
		if (!e->emit(e, "..", 2, dir->parent_ino, DT_DIR, TMPFS_FIRST_COOKIE))
			goto out;
		*pos = TMPFS_FIRST_COOKIE;
	}
	for (n = ktree_ceil(&dir->entries, *pos); n && n->key < limit;
	     n = ktree_ceil(&dir->entries, *pos)) {
		struct tmpfs_dirent *de = container_of(n, struct tmpfs_dirent, by_cookie);

		if (!e->emit(e, de->name, de->name_len, de->inode->ino, (u8)(de->inode->type >> 12),
			     n->key + 1))
			break;
		*pos = n->key + 1;
	}
out:
	rwlock_unlock(&inode->dir_lock);
	return 0;
}

static s64 dir_seek(struct file *f, s64 offset, int whence)
{
	s64 base = whence == SEEK_CUR ? (s64)f->pos : 0;

	if (whence != SEEK_SET && whence != SEEK_CUR)
		return -EINVAL;
	if (__builtin_add_overflow(base, offset, &offset) || offset < 0)
		return -EINVAL;
	return offset;
}

const struct file_ops tmpfs_dir_ops = {
	.kind = "tmpfs directory",
	.seek = dir_seek,
	.iterate = dir_iterate,
	.fsync = tmpfs_file_fsync,
};
