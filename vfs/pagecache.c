#include "vfs/pagecache.h"
#include "base/log.h"
#include "base/safecopy.h"
#include <stdlib.h>
#include <string.h>

#define BOUNCE_SIZE (64UL << 10)

struct extent {
	struct avl_node node; /* by start; disjoint */
	u64 start, end;	      /* of the file, page-aligned */
	struct memfile *file;
	struct mem_range range;
	u64 *dirty;  /* a bit a page; NULL: all clean */
	u64 content; /* see struct translation */
};

static struct extent *ext(struct avl_node *n)
{
	return n ? container_of(n, struct extent, node) : NULL;
}

static struct pagecache *cache_of(struct mappable *m)
{
	return container_of(m, struct pagecache, mappable);
}

/* The first extent that ends behind offset. */
static struct extent *find_from(struct pagecache *pc, u64 offset)
{
	struct avl_node *n = pc->extents.top;
	struct extent *best = NULL;

	while (n) {
		struct extent *e = ext(n);

		if (offset < e->end) {
			best = e;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

static struct extent *find_at(struct pagecache *pc, u64 offset)
{
	struct extent *e = find_from(pc, offset);

	return e && e->start <= offset ? e : NULL;
}

static void insert(struct pagecache *pc, struct extent *e)
{
	struct avl_node *parent = NULL, **link = &pc->extents.top;

	while (*link) {
		parent = *link;
		link = e->start < ext(parent)->start ? &parent->left : &parent->right;
	}
	avl_insert(&pc->extents, &e->node, parent, link);
	atomic_fetch_add(&pc->bytes, e->end - e->start);
}

/* A new name for what e holds. Caches of files that cannot be written keep what they have read. */
static void name_content(struct pagecache *pc, struct extent *e)
{
	static _Atomic u64 last;

	e->content = pc->writable ? 0 : atomic_fetch_add(&last, 1) + 1;
}

/* Joins next to e where it continues it in the file and in memory. */
static void join(struct pagecache *pc, struct extent *e, struct extent *next)
{
	if (!e || !next || e->end != next->start || e->file != next->file ||
	    e->range.end != next->range.start || e->dirty || next->dirty)
		return;
	avl_remove(&pc->extents, &next->node);
	e->end = next->end;
	e->range.end = next->range.end;
	name_content(pc, e);
	free(next);
}

static void drop_extent(struct pagecache *pc, struct extent *e)
{
	avl_remove(&pc->extents, &e->node);
	atomic_fetch_sub(&pc->bytes, e->end - e->start);
	memfile_put(e->file, e->range);
	free(e->dirty);
	free(e);
}

/* Sentry address of a file offset inside e, and how far it is contiguous. */
static char *extent_addr(struct extent *e, u64 offset, u64 *ret_len)
{
	u64 len = 0;
	char *p = e->file->ops->map(e->file, e->range.start + (offset - e->start), &len);

	*ret_len = MIN(len, e->end - offset);
	return p;
}

/* ---- dirty pages ---- */

static bool is_dirty(const struct extent *e, u64 offset)
{
	u64 page = (offset - e->start) >> PAGE_SHIFT;

	return e->dirty && (e->dirty[page / 64] >> (page % 64) & 1);
}

static void set_dirty(struct extent *e, u64 offset, bool on)
{
	u64 page = (offset - e->start) >> PAGE_SHIFT, bit = 1ULL << (page % 64);

	if (on)
		e->dirty[page / 64] |= bit;
	else if (e->dirty)
		e->dirty[page / 64] &= ~bit;
}

static int mark_dirty(struct extent *e, u64 start, u64 end)
{
	if (!e->dirty) {
		u64 pages = (e->end - e->start) >> PAGE_SHIFT;

		e->dirty = calloc((pages + 63) / 64, sizeof(u64));
		if (!e->dirty)
			return -ENOMEM;
	}
	for (u64 p = start; p < end; p += PAGE_SIZE)
		set_dirty(e, p, true);
	return 0;
}

/* Writes [start, end) of e (all dirty) to the file, through a buffer: guests may be writing it. */
static int write_run(struct pagecache *pc, struct extent *e, u64 start, u64 end, char *bounce)
{
	end = MIN(end, pc->size);
	while (start < end) {
		u64 len;
		char *p = extent_addr(e, start, &len);
		int err;

		len = MIN(MIN(len, BOUNCE_SIZE), end - start);
		if (!p || safe_memcpy(bounce, p, len))
			return -EIO;
		err = pc->ops->write(pc->inode, bounce, len, start);
		if (err)
			return err;
		start += len;
	}
	return 0;
}

static int sync_extent(struct pagecache *pc, struct extent *e, u64 start, u64 end, char *bounce)
{
	u64 p = MAX(start, e->start), stop = MIN(end, e->end);
	bool keep = pc->writable_mappings > 0; /* still writable somewhere: stays dirty */
	int first = 0;

	while (p < stop) {
		u64 run = p;
		int err;

		while (run < stop && is_dirty(e, run))
			run += PAGE_SIZE;
		if (run == p) {
			p += PAGE_SIZE;
			continue;
		}
		err = write_run(pc, e, p, run, bounce);
		if (err && !first)
			first = err;
		for (; p < run; p += PAGE_SIZE)
			if (!keep && !err)
				set_dirty(e, p, false);
	}
	return first;
}

static int sync_locked(struct pagecache *pc, u64 start, u64 end)
{
	char *bounce = NULL;
	int first = 0;
	struct extent *e;

	start = page_down(start);
	for (e = find_from(pc, start); e && e->start < end; e = ext(avl_next(&e->node))) {
		int err;

		if (!e->dirty)
			continue;
		if (!bounce && !(bounce = malloc(BOUNCE_SIZE)))
			return -ENOMEM;
		err = sync_extent(pc, e, start, page_up_nofail(MIN(end, e->end)), bounce);
		if (err && !first)
			first = err;
	}
	free(bounce);
	return first;
}

int pagecache_sync(struct pagecache *pc, u64 start, u64 end)
{
	MUTEX_GUARD(&pc->lock);
	return sync_locked(pc, start, end);
}

/* ---- filling ---- */

struct fill {
	struct pagecache *pc;
	u64 offset;
};

static ssize_t fill_reader(void *arg, void *dst, size_t len)
{
	struct fill *f = arg;
	ssize_t n = f->pc->ops->read(f->pc->inode, dst, len, f->offset);

	if (n > 0)
		f->offset += (u64)n;
	return n;
}

/* What to read for a fault at offset: around it, in the gap between extents, up to the end of the
 * file. */
static void fill_window(struct pagecache *pc, u64 offset, u64 *ret_start, u64 *ret_end)
{
	u64 file_end = page_up_nofail(pc->size), start, end;
	struct extent *next = find_from(pc, offset);
	struct avl_node *before = next ? avl_prev(&next->node) : avl_last(&pc->extents);

	if (pc->size <= PAGECACHE_WHOLE) {
		start = 0;
		end = file_end;
	} else {
		if (offset == pc->next && pc->window)
			pc->window = MIN(pc->window * 2, PAGECACHE_FILL_MAX);
		else
			pc->window = PAGECACHE_FILL_MIN;
		start = offset - offset % PAGECACHE_FILL_MIN;
		end = MIN(start + pc->window, file_end);
	}
	if (before)
		start = MAX(start, ext(before)->end);
	if (next)
		end = MIN(end, next->start);
	pc->next = end;
	*ret_start = start;
	*ret_end = end;
}

/* Pieces further apart than this need not lie in memory as they do in the file. */
#define LINEAR_MAX (64UL << 20)
#define ROOM_MAX (16UL << 20)

/*
 * Where memory for e is wanted: as far from its neighbours' as e is in the file, so that in the end
 * one mapping may serve a whole segment.
 */
static void choose_place(struct pagecache *pc, const struct extent *e,
			 struct vfs_memory_request *req)
{
	struct extent *next = find_from(pc, e->start);
	struct extent *before = ext(next ? avl_prev(&next->node) : avl_last(&pc->extents));

	req->len = e->end - e->start;
	if (before && e->start - before->end < LINEAR_MAX)
		req->hint = before->range.end + (e->start - before->end);
	else if (next && next->start - e->start < MIN(LINEAR_MAX, next->range.start))
		req->hint = next->range.start - (next->start - e->start);
	if (req->len < pc->size)
		req->room = MIN(page_up_nofail(pc->size), ROOM_MAX);
}

/* The extent that holds offset, read in if need be. -EFAULT behind the end of the file. */
static int get_extent(struct pagecache *pc, u64 offset, struct extent **ret)
{
	struct extent *e = find_at(pc, offset);
	struct fill f = { .pc = pc };
	struct vfs_memory_request req = { .reader = fill_reader, .reader_arg = &f };
	u64 size;
	int err;

	if (!e && (offset >= pc->size || pc->writable)) {
		err = pc->ops->size(pc->inode, &size);
		if (err)
			return err;
		pc->size = size;
	}
	if (offset >= page_up_nofail(pc->size))
		return -EFAULT;
	if (e) {
		*ret = e;
		return 0;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	fill_window(pc, offset, &e->start, &e->end);
	f.offset = e->start;
	choose_place(pc, e, &req);
	err = pc->memory->allocate(pc->memory->arg, &req, &e->file, &e->range);
	if (err) {
		free(e);
		return err;
	}
	name_content(pc, e);
	insert(pc, e);
	join(pc, e, ext(avl_next(&e->node)));
	join(pc, ext(avl_prev(&e->node)), e);
	*ret = find_at(pc, offset);
	return 0;
}

/* ---- the mappable ---- */

static void map_get(struct mappable *m)
{
	inode_get(cache_of(m)->inode);
}

static void map_put(struct mappable *m)
{
	inode_put(cache_of(m)->inode);
}

static int map_translate(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
			 bool for_write, struct translation *ret)
{
	struct pagecache *pc = cache_of(m);
	struct extent *e;
	u64 start, end;
	int err;

	MUTEX_GUARD(&pc->lock);
	offset = page_down(offset);
	err = get_extent(pc, offset, &e);
	if (err)
		return err;
	start = MAX(e->start, page_down(want_start));
	end = MIN(MIN(e->end, page_up_nofail(want_end)), page_up_nofail(pc->size));
	if (for_write) {
		if (!pc->writable)
			return -EFAULT;
		/* Announced pages are written back whole: do not hand out more than are likely
		 * wanted. */
		start = MAX(start, offset - offset % BOUNCE_SIZE);
		end = MIN(end, offset - offset % BOUNCE_SIZE + BOUNCE_SIZE);
		err = mark_dirty(e, start, end);
		if (err)
			return err;
	}
	*ret = (struct translation){
		.file = e->file,
		.offset = start,
		.range = { e->range.start + (start - e->start), e->range.start + (end - e->start) },
		.content = e->content,
		.writable = for_write,
	};
	memfile_get(e->file, ret->range);
	return 0;
}

static int map_peek(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
		    struct translation *ret)
{
	struct pagecache *pc = cache_of(m);
	struct extent *e;
	u64 start, end;

	MUTEX_GUARD(&pc->lock);
	offset = page_down(offset);
	e = offset < page_up_nofail(pc->size) ? find_at(pc, offset) : NULL;
	if (!e)
		return -EAGAIN;
	start = MAX(e->start, page_down(want_start));
	end = MIN(MIN(e->end, page_up_nofail(want_end)), page_up_nofail(pc->size));
	*ret = (struct translation){
		.file = e->file,
		.offset = start,
		.range = { e->range.start + (start - e->start), e->range.start + (end - e->start) },
		.content = e->content,
	};
	memfile_get(e->file, ret->range);
	return 0;
}

static bool map_resident(struct mappable *m, u64 start, u64 end, u8 *vec)
{
	struct pagecache *pc = cache_of(m);
	struct extent *e;

	MUTEX_GUARD(&pc->lock);
	end = MIN(end, page_up_nofail(pc->size));
	for (e = find_from(pc, start); e && e->start < end; e = ext(avl_next(&e->node))) {
		u64 from = MAX(start, e->start), to = MIN(end, e->end);

		memset(vec + ((from - start) >> PAGE_SHIFT), 1, (to - from) >> PAGE_SHIFT);
	}
	return true;
}

static int map_add(struct mappable *m, struct mapping *mapping)
{
	struct pagecache *pc = cache_of(m);

	MUTEX_GUARD(&pc->lock);
	if (mapping->shared && mapping->writable) {
		if (!pc->writable)
			return -EACCES;
		pc->writable_mappings++;
	}
	list_push_back(&pc->mappings, &mapping->node);
	if (!mapping->proxy)
		atomic_fetch_add(&pc->mapping_count, 1);
	return 0;
}

static void map_remove(struct mappable *m, struct mapping *mapping)
{
	struct pagecache *pc = cache_of(m);

	MUTEX_GUARD(&pc->lock);
	list_del(&mapping->node);
	if (!mapping->proxy)
		atomic_fetch_sub(&pc->mapping_count, 1);
	if (mapping->shared && mapping->writable && --pc->writable_mappings == 0) {
		int err = sync_locked(pc, 0, UINT64_MAX - PAGE_SIZE);

		if (err)
			log_warn("hostfs: writing back a mapped file: error %d", -err);
	}
}

static void map_use(struct mappable *m, int delta)
{
	atomic_fetch_add(&cache_of(m)->mapping_count, (u32)delta);
}

static int map_sync(struct mappable *m, u64 start, u64 end)
{
	return pagecache_sync(cache_of(m), start, end);
}

static void map_identify(struct mappable *m, u32 *ret_major, u32 *ret_minor, u64 *ret_ino)
{
	struct inode *inode = cache_of(m)->inode;

	*ret_major = inode->sb->dev_major;
	*ret_minor = inode->sb->dev_minor;
	*ret_ino = inode->ino;
}

static void map_watch(struct mappable *m)
{
	struct pagecache *pc = container_of(m, struct pagecache, mappable);

	if (atomic_load(&m->watched))
		return;
	MUTEX_GUARD(&pc->lock);
	atomic_store(&m->watched, true);
}

static const struct mappable_ops pagecache_mappable_ops = {
	.get = map_get,
	.put = map_put,
	.translate = map_translate,
	.resident = map_resident,
	.peek = map_peek,
	.add = map_add,
	.remove = map_remove,
	.use = map_use,
	.sync = map_sync,
	.identify = map_identify,
	.watch = map_watch,
};

int pagecache_new(struct inode *inode, const struct pagecache_ops *ops,
		  const struct vfs_memory_ops *memory, bool writable, struct pagecache **ret)
{
	struct pagecache *pc = calloc(1, sizeof(*pc));
	int err;

	if (!pc)
		return -ENOMEM;
	pc->mappable.ops = &pagecache_mappable_ops;
	pc->inode = inode;
	pc->ops = ops;
	pc->memory = memory;
	pc->writable = writable;
	mutex_init(&pc->lock, RANK_MAPPABLE, "pagecache.lock");
	list_init(&pc->mappings);
	err = ops->size(inode, &pc->size);
	if (err) {
		free(pc);
		return err;
	}
	*ret = pc;
	return 0;
}

void pagecache_free(struct pagecache *pc)
{
	struct avl_node *n;

	if (!pc)
		return;
	ASSERT(list_empty(&pc->mappings));
	sync_locked(pc, 0, UINT64_MAX - PAGE_SIZE);
	while ((n = pc->extents.top) != NULL)
		drop_extent(pc, ext(n));
	mutex_destroy(&pc->lock);
	free(pc);
}

u64 pagecache_shrink(struct pagecache *pc)
{
	struct avl_node *n;
	u64 freed = 0;

	/* Reclaim may come from an allocation for this very cache, or for another that is being
	 * filled. */
	if (!mutex_trylock(&pc->lock))
		return 0;
	if (!atomic_load(&pc->mapping_count) && !sync_locked(pc, 0, UINT64_MAX - PAGE_SIZE)) {
		freed = atomic_load(&pc->bytes);
		while ((n = pc->extents.top) != NULL)
			drop_extent(pc, ext(n));
	}
	mutex_unlock(&pc->lock);
	return freed;
}

/* ---- read and write through the cache ---- */

ssize_t pagecache_read(struct pagecache *pc, struct kiov *dst, u64 offset)
{
	char *bounce = malloc(BOUNCE_SIZE);
	ssize_t done = 0, n = 0;
	u64 size;

	if (!bounce)
		return -ENOMEM;
	MUTEX_GUARD(&pc->lock);
	if (pc->ops->size(pc->inode, &size) == 0)
		pc->size = size;
	while (dst->remaining && offset < pc->size) {
		u64 want = MIN(MIN((u64)dst->remaining, BOUNCE_SIZE), pc->size - offset), len;
		struct extent *e = find_from(pc, offset);
		char *p;

		if (e && e->start <= offset) {
			p = extent_addr(e, offset, &len);
			want = MIN(want, len);
			n = p ? kiov_put(dst, p, want) : -EIO;
		} else {
			if (e)
				want = MIN(want, e->start - offset);
			n = pc->ops->read(pc->inode, bounce, want, offset);
			if (n > 0)
				n = kiov_put(dst, bounce, (size_t)n);
		}
		if (n <= 0)
			break;
		done += n;
		offset += (u64)n;
	}
	free(bounce);
	return done ? done : n;
}

/* Copies what was written to the file into the pages that cache it. */
static void update_pages(struct pagecache *pc, const char *src, size_t len, u64 offset)
{
	while (len) {
		struct extent *e = find_from(pc, offset);
		u64 run, skip;
		char *p;

		if (!e || e->start >= offset + len)
			return;
		if (e->start > offset) {
			skip = e->start - offset;
			src += skip;
			offset += skip;
			len -= skip;
		}
		p = extent_addr(e, offset, &run);
		run = MIN(run, (u64)len);
		if (!run)
			return;
		if (p && safe_memcpy(p, src, run))
			log_warn("hostfs: page cache lost a write");
		src += run;
		offset += run;
		len -= run;
	}
}

static ssize_t write_locked(struct pagecache *pc, struct kiov *src, u64 offset)
{
	char *bounce = malloc(BOUNCE_SIZE);
	ssize_t done = 0, n = 0;

	if (!bounce)
		return -ENOMEM;
	mutex_assert_held(&pc->lock);
	while (src->remaining) {
		int err;

		n = kiov_get(src, bounce, MIN(src->remaining, BOUNCE_SIZE));
		if (n <= 0)
			break;
		err = pc->ops->write(pc->inode, bounce, (size_t)n, offset);
		if (err) {
			n = err;
			break;
		}
		update_pages(pc, bounce, (size_t)n, offset);
		done += n;
		offset += (u64)n;
		pc->size = MAX(pc->size, offset);
	}
	free(bounce);
	return done ? done : n;
}

/* ---- invalidation ---- */

static void lock_cache(void *cache)
{
	mutex_lock(&((struct pagecache *)cache)->lock);
}

static void unlock_cache(void *cache)
{
	mutex_unlock(&((struct pagecache *)cache)->lock);
}

/* Tells all mappings that overlap [start, end); without the lock, since they take their own. */
static void invalidate(struct pagecache *pc, u64 start, u64 end, bool private_too)
{
	const struct mappings_lock l = { lock_cache, unlock_cache, pc };

	mappings_invalidate(&pc->mappings, &l, start, end, private_too);
}

ssize_t pagecache_write(struct pagecache *pc, struct kiov *src, u64 offset)
{
	bool watched;
	ssize_t n;

	mutex_lock(&pc->lock);
	n = write_locked(pc, src, offset);
	watched = pc->mappable.watched;
	mutex_unlock(&pc->lock);
	if (watched && n > 0)
		invalidate(pc, page_down(offset), page_up_nofail(offset + (u64)n), false);
	return n;
}

/* Takes [start, end) out of the cache; an extent that only overlaps it is cut. Lock held. */
static void cut(struct pagecache *pc, u64 start, u64 end)
{
	struct extent *e;

	while ((e = find_from(pc, start)) != NULL && e->start < end) {
		struct extent *tail = NULL;

		if (e->end > end) {
			tail = calloc(1, sizeof(*tail));
			if (tail) {
				*tail = *e;
				tail->start = MAX(end, e->start);
				tail->range.start += tail->start - e->start;
				tail->dirty = NULL;
				memfile_get(tail->file, tail->range);
			}
		}
		if (tail)
			for (u64 p = tail->start; p < tail->end; p += PAGE_SIZE)
				if (is_dirty(e, p) && mark_dirty(tail, p, p + PAGE_SIZE))
					break;
		if (e->start < start) {
			/* Keep the head in place. */
			struct mem_range gone = { e->range.start + (start - e->start),
						  e->range.end };

			memfile_put(e->file, gone);
			atomic_fetch_sub(&pc->bytes, e->end - start);
			e->range.end = gone.start;
			e->end = start;
		} else {
			drop_extent(pc, e);
		}
		if (tail)
			insert(pc, tail);
	}
}

void pagecache_resized(struct pagecache *pc, u64 size)
{
	u64 edge = page_up_nofail(size), run;
	struct extent *e;
	bool shrunk;

	mutex_lock(&pc->lock);
	shrunk = size < pc->size;
	pc->size = size;
	if (shrunk) {
		cut(pc, edge, UINT64_MAX & PAGE_MASK);
		e = size < edge ? find_at(pc, size) : NULL;
		if (e) {
			char *p = extent_addr(e, size, &run);

			if (p)
				safe_memzero(p, MIN(run, edge - size));
			name_content(pc, e);
		}
	}
	mutex_unlock(&pc->lock);
	if (shrunk)
		invalidate(pc, edge, UINT64_MAX & PAGE_MASK, true);
}

void pagecache_forget(struct pagecache *pc, u64 start, u64 end)
{
	mutex_lock(&pc->lock);
	cut(pc, page_down(start), page_up_nofail(end));
	mutex_unlock(&pc->lock);
	invalidate(pc, page_down(start), page_up_nofail(end), true);
}

u64 pagecache_drop_clean(struct pagecache *pc)
{
	struct avl_node *n, *next;
	u64 freed = 0;

	mutex_lock(&pc->lock);
	for (n = avl_first(&pc->extents); n; n = next) {
		struct extent *e = ext(n);

		next = avl_next(n);
		if (e->dirty)
			continue;
		freed += e->end - e->start;
		drop_extent(pc, e);
	}
	mutex_unlock(&pc->lock);
	if (freed)
		invalidate(pc, 0, UINT64_MAX & PAGE_MASK, false);
	return freed;
}
