#include "tmpfs/internal.h"
#include <string.h>

static struct tmpfs_data *to_data(struct mappable *m)
{
	return container_of(m, struct tmpfs_data, mappable);
}

static void map_get(struct mappable *m)
{
	inode_get(&data_inode(to_data(m))->inode);
}

static void map_put(struct mappable *m)
{
	inode_put(&data_inode(to_data(m))->inode);
}

/* The part of e around `page` that the caller can use, with a reference. lock held. */
static void fill_translation(struct tmpfs_data *d, struct extent *e, u64 want_start, u64 want_end,
			     struct translation *ret)
{
	u64 end = MIN(MIN(extent_end(e), want_end), page_up_nofail(d->size));
	u64 start = MAX(e->node.key, want_start), mem = e->mem + (start - e->node.key);

	*ret = (struct translation){
		.file = sb_memory(data_sb(d), e->large),
		.offset = start,
		.range = { mem, mem + (end - start) },
		.writable = true,
	};
	memfile_get(ret->file, ret->range);
}

/*
 * How much to allocate for a fault at `page`: a page, and more once faults walk
 * the file in order. A scattered toucher pays for what it touches only.
 */
static u64 fault_window(struct tmpfs_data *d, u64 page)
{
	u32 shift;

	d->fault_run = page == d->fault_next ? d->fault_run + 1 : 0;
	shift = d->fault_run < 4 ? 0 : MIN(d->fault_run - 3, 9u);
	return MIN(PAGE_SIZE << shift, TMPFS_FAULT_WINDOW_MAX);
}

static int map_translate(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
			 bool for_write, struct translation *ret)
{
	struct tmpfs_data *d = to_data(m);
	u64 page = page_down(offset), len, limit;
	struct extent *e;
	s64 n = -EFAULT;

	rwlock_rdlock(&d->lock);
	if (page < d->size) {
		e = data_extent_find(d, page);
		if (e && e->node.key <= page && ktree_empty(&d->unwritten)) {
			fill_translation(d, e, want_start, want_end, ret);
			rwlock_unlock(&d->lock);
			return 0;
		}
	}
	rwlock_unlock(&d->lock);

	rwlock_wrlock(&d->lock);
	if (page >= d->size)
		goto out;
	e = data_extent_find(d, page);
	if (!e || e->node.key > page) {
		limit = page_up_nofail(d->size);
		if (e)
			limit = MIN(limit, e->node.key);
		len = fault_window(d, page);
		n = data_fill_hole(d, page, MIN(len, MIN(limit, want_end) - page), limit - page);
		if (n < 0)
			goto out;
		d->fault_next = page + (u64)n;
		e = data_extent_find(d, page);
	}
	fill_translation(d, e, want_start, want_end, ret);
	/* All of it may be written from now on, unseen. */
	unwritten_clear(d, ret->offset, ret->offset + mem_range_len(ret->range));
	n = 0;
out:
	rwlock_unlock(&d->lock);
	return n < 0 ? (int)n : 0;
}

static bool map_resident(struct mappable *m, u64 start, u64 end, u8 *vec)
{
	struct tmpfs_data *d = to_data(m);
	u64 from = start, to;

	rwlock_rdlock(&d->lock);
	end = MIN(end, page_up_nofail(d->size));
	while (data_next_run(d, from, &from, &to) && from < end) {
		to = MIN(to, end);
		memset(vec + ((from - start) >> PAGE_SHIFT), 1, (to - from) >> PAGE_SHIFT);
		from = to;
	}
	rwlock_unlock(&d->lock);
	return false;
}

static int map_add(struct mappable *m, struct mapping *mapping)
{
	struct tmpfs_data *d = to_data(m);
	bool writes = mapping->shared && mapping->writable;
	int err = 0;

	rwlock_wrlock(&d->lock);
	if (writes && (d->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))) {
		err = -EPERM;
	} else {
		list_push_back(&d->mappings, &mapping->node);
		d->writable_mappings += writes;
	}
	rwlock_unlock(&d->lock);
	return err;
}

static void map_remove(struct mappable *m, struct mapping *mapping)
{
	struct tmpfs_data *d = to_data(m);

	rwlock_wrlock(&d->lock);
	list_del(&mapping->node);
	d->writable_mappings -= mapping->shared && mapping->writable;
	rwlock_unlock(&d->lock);
}

static int map_punch(struct mappable *m, u64 start, u64 end)
{
	return tmpfs_punch_hole(to_data(m), start, end - start);
}

static void map_identify(struct mappable *m, u32 *ret_dev_major, u32 *ret_dev_minor, u64 *ret_ino)
{
	struct inode *i = &data_inode(to_data(m))->inode;

	*ret_dev_major = i->sb->dev_major;
	*ret_dev_minor = i->sb->dev_minor;
	*ret_ino = i->ino;
}

static void map_watch(struct mappable *m)
{
	struct tmpfs_data *d = to_data(m);

	if (atomic_load(&m->watched))
		return;
	rwlock_wrlock(&d->lock);
	atomic_store(&m->watched, true);
	rwlock_unlock(&d->lock);
}

const struct mappable_ops tmpfs_mappable_ops = {
	.get = map_get,
	.put = map_put,
	.translate = map_translate,
	.resident = map_resident,
	.add = map_add,
	.remove = map_remove,
	.punch = map_punch,
	.identify = map_identify,
	.watch = map_watch,
};

static void lock_data(void *data)
{
	rwlock_wrlock(&((struct tmpfs_data *)data)->lock);
}

static void unlock_data(void *data)
{
	rwlock_unlock(&((struct tmpfs_data *)data)->lock);
}

void tmpfs_invalidate(struct tmpfs_data *d, u64 start, u64 end, bool private_too)
{
	const struct mappings_lock l = { lock_data, unlock_data, d };

	mappings_invalidate(&d->mappings, &l, start, end, private_too);
}
