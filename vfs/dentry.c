#include "vfs/dentry.h"
#include "base/log.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DCACHE_BUCKETS 16384
#define DCACHE_TRIM_SCAN 64

static struct mutex cache_lock = MUTEX_INIT(RANK_DENTRY, "vfs.dcache");
/* protected by cache_lock */
static struct dentry *buckets[DCACHE_BUCKETS];
static struct list lru = LIST_INIT(lru); /* newest first */
static _Atomic size_t retained_count;	 /* written under cache_lock */

void dcache_lock(void)
{
	mutex_lock(&cache_lock);
}

void dcache_unlock(void)
{
	mutex_unlock(&cache_lock);
}

static u64 mix(u64 h, u64 w)
{
	h = (h ^ w) * 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

/* Of a few bytes at a time: every path component passes here. */
static u32 name_hash(const struct dentry *parent, const char *name, size_t len)
{
	u64 h = mix((uintptr_t)parent, len), w = 0;

	for (; len >= 8; len -= 8, name += 8) {
		memcpy(&w, name, 8);
		h = mix(h, w);
	}
	if (len >= 4) {
		u32 first, last;

		memcpy(&first, name, 4);
		memcpy(&last, name + len - 4, 4);
		h = mix(h, (u64)first << 32 | last);
	} else if (len) {
		h = mix(h,
			(u64)(u8)name[0] << 16 | (u64)(u8)name[len / 2] << 8 | (u8)name[len - 1]);
	}
	return (u32)(h ^ (h >> 32));
}

static void hash_insert(struct dentry *d)
{
	struct dentry **b = &buckets[d->hash % DCACHE_BUCKETS];

	d->hash_next = *b;
	if (*b)
		(*b)->hash_prev = &d->hash_next;
	*b = d;
	d->hash_prev = b;
}

/* Takes d out of the hash; true when the cache's reference must be dropped (after unlocking). */
static bool hash_remove(struct dentry *d)
{
	bool was = d->retained;

	if (!d->hash_prev)
		return false;
	*d->hash_prev = d->hash_next;
	if (d->hash_next)
		d->hash_next->hash_prev = d->hash_prev;
	d->hash_next = NULL;
	d->hash_prev = NULL;
	if (was) {
		list_del(&d->lru);
		retained_count--;
		d->retained = false;
	}
	return was;
}

static void hash_retain(struct dentry *d)
{
	if (d->sb->flags & SB_NO_DCACHE)
		return;
	refs_get(&d->refs);
	d->retained = true;
	list_push_front(&lru, &d->lru);
	retained_count++;
}

static struct dentry *hash_find(struct dentry *parent, const char *name, size_t len, u32 hash)
{
	struct dentry *d;

	for (d = buckets[hash % DCACHE_BUCKETS]; d; d = d->hash_next)
		if (d->hash == hash && d->parent == parent && d->name_len == len &&
		    memcmp(d->name, name, len) == 0)
			return d;
	return NULL;
}

static bool set_name(struct dentry *d, const char *name, size_t len)
{
	char *p = d->inline_name;

	if (len >= DENTRY_INLINE_NAME) {
		p = malloc(len + 1);
		if (!p)
			return false;
	}
	memcpy(p, name, len);
	p[len] = '\0';
	d->name = p;
	d->name_len = (u32)len;
	return true;
}

static struct dentry *alloc_dentry(struct superblock *sb, struct dentry *parent, const char *name,
				   size_t len)
{
	struct dentry *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	if (!set_name(d, name, len)) {
		free(d);
		return NULL;
	}
	refs_init(&d->refs, "dentry");
	d->sb = sb;
	d->parent = parent ? dentry_get(parent) : NULL;
	list_init(&d->lru);
	return d;
}

struct dentry *dentry_alloc(struct dentry *parent, const char *name, size_t len)
{
	return alloc_dentry(parent->sb, parent, name, len);
}

int dentry_new_root(struct inode *inode, struct dentry **ret)
{
	struct dentry *d = alloc_dentry(inode->sb, NULL, "", 0);

	if (!d)
		return -ENOMEM;
	d->inode = inode_get(inode);
	*ret = d;
	return 0;
}

struct dentry *dentry_get(struct dentry *d)
{
	refs_get(&d->refs);
	return d;
}

void dentry_put(struct dentry *d)
{
	while (d && refs_put(&d->refs)) {
		struct dentry *parent;

		/* Only a dentry that the hash does not hold can still be hashed here. */
		mutex_lock(&cache_lock);
		hash_remove(d);
		parent = d->parent;
		mutex_unlock(&cache_lock);
		inode_put(d->inode);
		if (d->name != d->inline_name)
			free(d->name);
		free(d);
		d = parent;
	}
}

struct inode *dentry_inode(struct dentry *d)
{
	return d->inode;
}

struct dentry *dentry_parent(struct dentry *d)
{
	MUTEX_GUARD(&cache_lock);
	return dentry_get(d->parent ? d->parent : d);
}

bool dentry_deleted(struct dentry *d)
{
	return __atomic_load_n(&d->deleted, __ATOMIC_ACQUIRE);
}

bool dentry_is_ancestor(struct dentry *a, struct dentry *b)
{
	MUTEX_GUARD(&cache_lock);
	for (; b; b = b->parent)
		if (a == b)
			return true;
	return false;
}

/* ---- lookup ---- */

struct dentry *dcache_find_locked(struct dentry *parent, const char *name, size_t len)
{
	struct dentry *d = hash_find(parent, name, len, name_hash(parent, name, len));

	mutex_assert_held(&cache_lock);
	if (d && !d->used)
		d->used = true;
	return d;
}

/* The cached dentry (maybe negative) with a reference, or NULL. */
static struct dentry *cache_find(struct dentry *parent, const char *name, size_t len)
{
	u32 hash = name_hash(parent, name, len);
	struct dentry *d;

	MUTEX_GUARD(&cache_lock);
	d = hash_find(parent, name, len, hash);
	if (!d || !refs_tryget(&d->refs))
		return NULL;
	d->used = true;
	return d;
}

static void cache_insert(struct dentry *d)
{
	mutex_lock(&cache_lock);
	d->hash = name_hash(d->parent, d->name, d->name_len);
	hash_insert(d);
	hash_retain(d);
	mutex_unlock(&cache_lock);
}

static void cache_drop(struct dentry *d, bool deleted)
{
	bool put;

	mutex_lock(&cache_lock);
	if (deleted)
		__atomic_store_n(&d->deleted, true, __ATOMIC_RELEASE);
	put = hash_remove(d);
	mutex_unlock(&cache_lock);
	if (put)
		dentry_put(d);
}

/*
 * Enters what the file system's lookup found, unless another reader did so meanwhile. Takes over
 * inode (NULL: absent) and returns the dentry with a reference.
 */
static int enter_found(struct dentry *parent, const char *name, size_t len, struct inode *inode,
		       struct dentry **ret)
{
	struct dentry *d = alloc_dentry(parent->sb, parent, name, len), *other;

	if (!d) {
		inode_put(inode);
		return -ENOMEM;
	}
	d->inode = inode;
	d->hash = name_hash(parent, name, len);
	mutex_lock(&cache_lock);
	other = hash_find(parent, name, len, d->hash);
	if (other && !refs_tryget(&other->refs))
		other = NULL;
	if (!other) {
		hash_insert(d);
		hash_retain(d);
	}
	mutex_unlock(&cache_lock);
	if (other) {
		dentry_put(d);
		d = other;
	}
	*ret = d;
	return 0;
}

/* A cached dentry of a file system that may change by itself: is it still what lookup says? */
static bool still_valid(struct dentry *d, const struct inode *found)
{
	if (d->inode == found)
		return true;
	return d->inode && found && d->inode->ino == found->ino && d->inode->type == found->type &&
	       atomic_load(&d->mounted) > 0;
}

static int lookup_uncached(struct dentry *parent, const char *name, size_t len,
			   struct dentry *stale, struct dentry **ret)
{
	struct inode *dir = parent->inode, *found = NULL;
	char copy[256];
	int err;

	memcpy(copy, name, len);
	copy[len] = '\0';
	if (!dir->ops->lookup)
		return -ENOENT;
	err = dir->ops->lookup(dir, copy, &found);
	if (err && err != -ENOENT)
		return err;
	if (err)
		found = NULL;
	if (stale) {
		if (still_valid(stale, found)) {
			inode_put(found);
			*ret = dentry_get(stale);
			return 0;
		}
		cache_drop(stale, !found && stale->inode);
	}
	if (!found && (!(parent->sb->flags & SB_NEGATIVE_OK) || (parent->sb->flags & SB_NO_DCACHE)))
		return -ENOENT;
	return enter_found(parent, name, len, found, ret);
}

int dentry_lookup_locked(struct dentry *parent, const char *name, size_t len, struct dentry **ret)
{
	bool recheck = parent->sb->flags & (SB_NO_DCACHE | SB_REVALIDATE);
	struct dentry *d = cache_find(parent, name, len);
	int err;

	if (!d || recheck) {
		struct dentry *stale = d;

		if (!d && dentry_deleted(parent))
			return -ENOENT;
		d = NULL;
		err = lookup_uncached(parent, name, len, stale, &d);
		dentry_put(stale);
		if (err)
			return err;
	}
	if (!d->inode) {
		dentry_put(d);
		return -ENOENT;
	}
	*ret = d;
	return 0;
}

int dentry_lookup(struct dentry *parent, const char *name, size_t len, struct dentry **ret)
{
	int err;

	if (!(parent->sb->flags & (SB_NO_DCACHE | SB_REVALIDATE))) {
		struct dentry *d = cache_find(parent, name, len);

		if (d && d->inode) {
			*ret = d;
			return 0;
		}
		if (d) {
			dentry_put(d);
			return -ENOENT;
		}
	}
	rwlock_rdlock(&parent->inode->dir_lock);
	err = dentry_lookup_locked(parent, name, len, ret);
	rwlock_unlock(&parent->inode->dir_lock);
	dcache_trim();
	return err;
}

/* ---- changes ---- */

void dentry_instantiate(struct dentry *d, struct inode *inode)
{
	struct dentry *old = cache_find(d->parent, d->name, d->name_len);

	if (old) {
		cache_drop(old, false);
		dentry_put(old);
	}
	d->inode = inode;
	cache_insert(d);
}

void dentry_delete(struct dentry *d)
{
	cache_drop(d, true);
}

/* With parent's dir_lock held: d's name, if it is in the cache as a child of parent. */
static bool copy_name(struct dentry *d, struct dentry *parent, char name[NAME_MAX + 1])
{
	MUTEX_GUARD(&cache_lock);
	if (d->parent != parent || !d->hash_prev)
		return false;
	memcpy(name, d->name, d->name_len + 1);
	return true;
}

void dentry_recheck(struct dentry *d)
{
	struct dentry *parent = dentry_parent(d);
	struct inode *dir = parent->inode, *found = NULL;
	char name[NAME_MAX + 1];
	int err = 0;

	rwlock_wrlock(&dir->dir_lock);
	if (dir->ops->lookup && copy_name(d, parent, name)) {
		err = dir->ops->lookup(dir, name, &found);
		if (err == -ENOENT || (!err && found != d->inode))
			cache_drop(d, false);
	}
	rwlock_unlock(&dir->dir_lock);
	if (!err)
		inode_put(found);
	dentry_put(parent);
}

void dentry_forget_absence(struct dentry *d)
{
	struct dentry *known = cache_find(d->parent, d->name, d->name_len);

	if (known && !known->inode)
		cache_drop(known, false);
	dentry_put(known);
}

static void rename_entry(struct dentry *d, struct dentry *parent, char *name, size_t len)
{
	if (name != d->inline_name && len < DENTRY_INLINE_NAME) {
		memcpy(d->inline_name, name, len + 1);
		free(name);
		name = d->inline_name;
	}
	d->name = name;
	d->name_len = (u32)len;
	d->parent = parent;
	d->hash = name_hash(parent, name, len);
}

int dentry_move(struct dentry *d, struct dentry *new_parent, const char *name, size_t len)
{
	char *copy = malloc(len + 1), *old_name;
	struct dentry *old_parent, *there;
	bool put, put_there = false;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, name, len);
	copy[len] = '\0';
	mutex_lock(&cache_lock);
	there = hash_find(new_parent, name, len, name_hash(new_parent, name, len));
	if (there && there == d)
		there = NULL;
	if (there)
		put_there = hash_remove(there);
	put = hash_remove(d);
	old_parent = d->parent;
	old_name = d->name;
	if (old_name == d->inline_name)
		old_name = NULL;
	rename_entry(d, dentry_get(new_parent), copy, len);
	hash_insert(d);
	hash_retain(d);
	mutex_unlock(&cache_lock);
	free(old_name);
	if (put_there)
		dentry_put(there);
	if (put)
		dentry_put(d);
	dentry_put(old_parent);
	return 0;
}

int dentry_exchange(struct dentry *a, struct dentry *b)
{
	char *an = strdup(a->name), *bn = strdup(b->name);
	struct dentry *ap, *bp;
	char *a_old, *b_old;
	size_t al = a->name_len, bl = b->name_len;
	bool put_a, put_b;

	if (!an || !bn) {
		free(an);
		free(bn);
		return -ENOMEM;
	}
	mutex_lock(&cache_lock);
	put_a = hash_remove(a);
	put_b = hash_remove(b);
	ap = a->parent;
	bp = b->parent;
	a_old = a->name == a->inline_name ? NULL : a->name;
	b_old = b->name == b->inline_name ? NULL : b->name;
	rename_entry(a, bp, bn, bl);
	rename_entry(b, ap, an, al);
	hash_insert(a);
	hash_insert(b);
	hash_retain(a);
	hash_retain(b);
	mutex_unlock(&cache_lock);
	free(a_old);
	free(b_old);
	if (put_a)
		dentry_put(a);
	if (put_b)
		dentry_put(b);
	return 0;
}

/* ---- eviction ---- */

/* Moves up to n evictable dentries from the cold end to `out`, cache locked; sb NULL: any, by the
 * clock. */
static void collect(struct superblock *sb, size_t scan, struct list *out)
{
	struct list *p = lru.prev;

	for (size_t i = 0; i < scan && p != &lru; i++) {
		struct dentry *d = list_entry(p, struct dentry, lru);

		p = p->prev;
		if (sb && d->sb != sb)
			continue;
		if (!sb && d->used) {
			d->used = false;
			list_del(&d->lru);
			list_push_front(&lru, &d->lru);
			continue;
		}
		if (refs_read(&d->refs) != 1 || atomic_load(&d->mounted)) {
			if (!sb) {
				list_del(&d->lru);
				list_push_front(&lru, &d->lru);
			}
			continue;
		}
		/* A parent that only this child kept goes too, and so on up: a deep tree is freed
		 * in one pass. */
		for (;;) {
			struct dentry *parent = d->parent;

			if (p == &d->lru)
				p = p->prev;
			hash_remove(d);
			list_push_back(out, &d->lru);
			if (!sb || !parent || !parent->retained || refs_read(&parent->refs) != 2 ||
			    atomic_load(&parent->mounted))
				break;
			d = parent;
		}
	}
}

static bool release_collected(struct list *out)
{
	struct dentry *d, *tmp;
	bool any = false;

	list_for_each_safe (d, tmp, out, lru) {
		list_del(&d->lru);
		dentry_put(d);
		any = true;
	}
	return any;
}

void dcache_trim(void)
{
	struct list out;

	if (atomic_load_explicit(&retained_count, memory_order_relaxed) <= DCACHE_MAX)
		return;
	list_init(&out);
	mutex_lock(&cache_lock);
	collect(NULL, DCACHE_TRIM_SCAN, &out);
	mutex_unlock(&cache_lock);
	release_collected(&out);
}

void dcache_shrink(struct superblock *sb)
{
	struct list out;

	do {
		list_init(&out);
		mutex_lock(&cache_lock);
		collect(sb, SIZE_MAX, &out);
		mutex_unlock(&cache_lock);
	} while (release_collected(&out));
}
