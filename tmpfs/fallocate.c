/*
 * fallocate(2) of a tmpfs file: everything that can fail happens before anything
 * becomes visible. Charge all pages and reserve all offsets (a giant request
 * fails here, at once), then commit and populate without the file's lock, then
 * insert what is still a hole. So a failure has nothing of others' to undo.
 */
#include "tmpfs/internal.h"
#include <linux/falloc.h>
#include <stdlib.h>

/* Populating goes by steps, so that one call does not fault in gigabytes at a time. */
#define POPULATE_STEP (64UL << 20)

struct piece {
	u64 off;
	struct mem_range mem;
	bool large;
};

struct plan {
	struct piece *pieces;
	size_t count, cap;
	u64 charged; /* pages */
};

static int plan_add(struct plan *p, struct piece piece)
{
	if (p->count == p->cap) {
		size_t cap = p->cap ? p->cap * 2 : 8;
		struct piece *more = realloc(p->pieces, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->pieces = more;
		p->cap = cap;
	}
	p->pieces[p->count++] = piece;
	return 0;
}

/* A hole: its whole units in the large file, where there is one, and the rest in the other. */
static int plan_hole(struct tmpfs_sb *s, u64 start, u64 end, struct plan *p)
{
	u64 from = (start + PGALLOC_LARGE_UNIT - 1) & ~(PGALLOC_LARGE_UNIT - 1);
	u64 to = end & ~(PGALLOC_LARGE_UNIT - 1);
	int err = 0;

	p->charged += (end - start) >> PAGE_SHIFT;
	if (!s->large || from >= to)
		return plan_add(p, (struct piece){ start, { 0, end - start }, false });
	if (start < from)
		err = plan_add(p, (struct piece){ start, { 0, from - start }, false });
	if (!err)
		err = plan_add(p, (struct piece){ from, { 0, to - from }, true });
	if (!err && to < end)
		err = plan_add(p, (struct piece){ to, { 0, end - to }, false });
	return err;
}

/* Lists the holes of [start, end); the memory ranges are still empty. */
static int plan_holes(struct tmpfs_data *d, u64 start, u64 end, struct plan *p)
{
	int err = 0;

	rwlock_rdlock(&d->lock);
	while (start < end && !err) {
		struct extent *e = data_extent_find(d, start);
		u64 hole_end = e ? MIN(end, MAX(e->node.key, start)) : end;

		if (hole_end > start)
			err = plan_hole(data_sb(d), start, hole_end, p);
		start = e ? MAX(hole_end, MIN(end, extent_end(e))) : end;
	}
	rwlock_unlock(&d->lock);
	return err;
}

static int plan_reserve(struct tmpfs_sb *s, struct plan *p, u64 hint)
{
	struct pgalloc_opts opts = { .mode = PGALLOC_ALLOCATE,
				     .dir = PGALLOC_UP,
				     .acct_id = s->acct_id };
	u64 hints[2] = { hint, 0 };

	for (size_t i = 0; i < p->count; i++) {
		struct piece *piece = &p->pieces[i];
		struct mem_range r;
		int err;

		opts.hint = hints[piece->large];
		opts.huge = piece->large;
		err = pgalloc_allocate(sb_store(s, piece->large), piece->mem.end, &opts, &r);
		if (err < 0) {
			p->count = i;
			return err;
		}
		piece->mem = r;
		hints[piece->large] = r.end;
	}
	return 0;
}

static int plan_commit(struct tmpfs_sb *s, struct plan *p)
{
	for (size_t i = 0; i < p->count; i++) {
		struct mem_range r = p->pieces[i].mem;
		struct pgalloc *store = sb_store(s, p->pieces[i].large);
		bool populate = !s->memory->disk_backed;

		while (r.start < r.end) {
			struct mem_range step = { r.start, MIN(r.end, r.start + POPULATE_STEP) };
			int err = populate ? pgalloc_populate(store, step)
					   : pgalloc_commit(store, step);

			if (err < 0)
				return err;
			r.start = step.end;
		}
	}
	return 0;
}

/* Inserts what is still a hole, piece by piece, and gives the rest back. */
static int plan_insert(struct tmpfs_data *d, struct plan *p)
{
	struct tmpfs_sb *s = data_sb(d);
	int err = 0;

	rwlock_assert_write_held(&d->lock);
	data_drop_window(d);
	for (size_t i = 0; i < p->count; i++) {
		struct memfile *memory = sb_memory(s, p->pieces[i].large);
		u64 off = p->pieces[i].off;
		struct mem_range r = p->pieces[i].mem;

		while (r.start < r.end) {
			struct extent *e = data_extent_find(d, off);
			bool hole = !e || e->node.key > off;
			u64 until = e ? (hole ? e->node.key : extent_end(e)) : UINT64_MAX;
			u64 len = MIN(mem_range_len(r), until - off);

			if (hole && !err)
				err = data_extent_insert(d, off, len, r.start, p->pieces[i].large);
			if (hole && !err) {
				p->charged -= len >> PAGE_SHIFT;
				unwritten_add(d, off, off + len);
			} else
				memfile_put(memory, (struct mem_range){ r.start, r.start + len });
			off += len;
			r.start += len;
		}
	}
	p->count = 0;
	return err;
}

static int allocate_range(struct tmpfs_data *d, u64 offset, u64 len, bool keep_size)
{
	struct tmpfs_sb *s = data_sb(d);
	u64 start = page_down(offset), end = page_up_nofail(offset + len), hint;
	struct plan p = { 0 };
	int err;

	rwlock_rdlock(&d->lock);
	hint = data_extent_hint(d, start, false);
	err = (d->seals & F_SEAL_GROW) && offset + len > d->size ? -EPERM : 0;
	rwlock_unlock(&d->lock);
	if (!err)
		err = plan_holes(d, start, end, &p);
	if (!err && !data_charge(d, p.charged))
		err = -ENOSPC;
	if (err < 0) {
		free(p.pieces);
		return err;
	}
	err = plan_reserve(s, &p, hint);
	/* The memory file's limit is this file system's space. */
	if (err == -ENOMEM)
		err = -ENOSPC;
	if (!err)
		err = plan_commit(s, &p);
	if (!err) {
		rwlock_wrlock(&d->lock);
		err = (d->seals & F_SEAL_GROW) && offset + len > d->size ? -EPERM : 0;
		/* What was there before becomes data, as in Linux. */
		if (!err)
			unwritten_clear(d, start, end);
		if (!err)
			err = plan_insert(d, &p);
		if (!err && !keep_size && offset + len > d->size) {
			data_zero_allocated(d, d->size, page_up_nofail(d->size) - d->size);
			d->size = offset + len;
		}
		rwlock_unlock(&d->lock);
	}
	for (size_t i = 0; i < p.count; i++)
		memfile_put(sb_memory(s, p.pieces[i].large), p.pieces[i].mem);
	data_uncharge(d, p.charged);
	free(p.pieces);
	return err;
}

int tmpfs_punch_hole(struct tmpfs_data *d, u64 offset, u64 len)
{
	u64 end = offset + len, first = page_up_nofail(offset), last = page_down(end);
	struct ktree removed = { 0 };
	int err = 0;

	rwlock_wrlock(&d->lock);
	if (d->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		err = -EPERM;
	else if (first > last) /* inside one page */
		data_zero_allocated(d, offset, len);
	else {
		data_drop_window(d);
		data_zero_allocated(d, offset, first - offset);
		data_zero_allocated(d, last, end - last);
		if (first < last)
			err = data_extent_remove(d, first, last, &removed);
		if (first < last)
			unwritten_clear(d, first, last);
	}
	rwlock_unlock(&d->lock);
	if (!ktree_empty(&removed))
		tmpfs_invalidate(d, first, last, false);
	data_extents_release(d, &removed);
	return err;
}

int tmpfs_fallocate(struct file *f, int mode, u64 offset, u64 len)
{
	struct tmpfs_data *d = &tmpfs_inode(f->inode)->data;
	int err;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE))
		return -EOPNOTSUPP;
	if ((mode & FALLOC_FL_PUNCH_HOLE) && !(mode & FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	if (!len)
		return -EINVAL;
	if (offset > TMPFS_MAX_SIZE || len > TMPFS_MAX_SIZE - offset)
		return -EFBIG;
	if (mode & FALLOC_FL_PUNCH_HOLE)
		err = tmpfs_punch_hole(d, offset, len);
	else
		err = allocate_range(d, offset, len, mode & FALLOC_FL_KEEP_SIZE);
	if (!err)
		inode_touch(f->inode, ATTR_MTIME);
	return err;
}
