#include "tmpfs/internal.h"
#include "base/host_file.h"
#include "base/log.h"
#include "base/safecopy.h"
#include <linux/fs.h>
#include <stdlib.h>

/* Segments of one host write; more than one page of fragments is rare. */
#define WRITE_SEGS 64

void tmpfs_data_init(struct tmpfs_data *d)
{
	d->mappable.ops = &tmpfs_mappable_ops;
	rwlock_init(&d->lock, RANK_MAPPABLE, "tmpfs_data");
	list_init(&d->mappings);
	d->append_next = UINT64_MAX;
	d->fault_next = UINT64_MAX;
}

void tmpfs_data_destroy(struct tmpfs_data *d)
{
	ASSERT(list_empty(&d->mappings));
	rwlock_wrlock(&d->lock);
	data_drop_window(d);
	rwlock_unlock(&d->lock);
	data_extents_release(d, &d->extents);
	unwritten_free(d);
	promise_add(pgalloc_promise(data_sb(d)->store), -(s64)d->promised);
	rwlock_destroy(&d->lock);
}

static void window_closed(struct tmpfs_data *d)
{
	if (d->window_large)
		data_sb(d)->large_windows--;
	d->window_large = false;
}

void data_drop_window(struct tmpfs_data *d)
{
	struct mem_range w = d->window;

	if (w.start == w.end)
		return;
	d->window = (struct mem_range){ 0, 0 };
	memfile_put(sb_memory(data_sb(d), d->window_large), w);
	window_closed(d);
}

bool data_charge(struct tmpfs_data *d, u64 n)
{
	struct tmpfs_sb *s = data_sb(d);

	if (!tmpfs_charge(s, n))
		return false;
	if (d->promised || !promise_take(pgalloc_promise(s->store), n << PAGE_SHIFT, 0, false))
		return true;
	tmpfs_uncharge(s, n);
	return false;
}

u64 data_charge_upto(struct tmpfs_data *d, u64 n)
{
	struct tmpfs_sb *s = data_sb(d);
	u64 charged = tmpfs_charge_upto(s, n), grant = charged;

	while (grant && !d->promised &&
	       promise_take(pgalloc_promise(s->store), grant << PAGE_SHIFT, 0, false) < 0)
		grant /= 2;
	tmpfs_uncharge(s, charged - grant);
	return grant;
}

void data_uncharge(struct tmpfs_data *d, u64 n)
{
	struct tmpfs_sb *s = data_sb(d);

	tmpfs_uncharge(s, n);
	if (!d->promised)
		promise_add(pgalloc_promise(s->store), -(s64)(n << PAGE_SHIFT));
}

/* Inserts a charged, referenced range; on failure gives both back. */
static int insert_or_release(struct tmpfs_data *d, u64 start, struct mem_range r)
{
	struct tmpfs_sb *s = data_sb(d);
	int err = data_extent_insert(d, start, mem_range_len(r), r.start, false);

	if (err < 0) {
		memfile_put(s->memory, r);
		data_uncharge(d, mem_range_len(r) >> PAGE_SHIFT);
	}
	return err;
}

/*
 * A file system on disk takes several times as long for a page that it has not had in memory, and
 * less for many at once: so they are written ahead of small writes. One without room shows that
 * when what the guest writes is written.
 */
static int populate_window(struct tmpfs_sb *s, u64 from, u64 to)
{
	static const char zeroes[TMPFS_WINDOW_MIN];

	if (!s->memory->disk_backed)
		return pgalloc_populate(s->store, (struct mem_range){ from, to });
	for (u64 n; from < to; from += n) {
		n = MIN(to - from, sizeof(zeroes));
		if (pgalloc_write(s->store, from, zeroes, n) < 0)
			break;
	}
	return 0;
}

/*
 * Takes at most len charged bytes off the append window. The window is populated
 * a step ahead of the writer, so a stream of small writes faults once a step.
 */
static s64 carve_window(struct tmpfs_data *d, u64 start, u64 len)
{
	struct tmpfs_sb *s = data_sb(d);
	struct mem_range r = d->window;
	int err;

	r.end = MIN(r.end, r.start + len);
	if (!d->window_large && r.end > d->window_populated) {
		u64 from = MAX(d->window_populated, r.start);
		u64 to = MIN(d->window.end, MAX(r.end, from + TMPFS_WINDOW_MIN));

		err = populate_window(s, from, to);
		if (err < 0)
			return err;
		d->window_populated = to;
	}
	err = data_extent_insert(d, start, mem_range_len(r), r.start, d->window_large);
	if (err < 0)
		return err;
	d->window.start = r.end;
	d->window_at = start + mem_range_len(r);
	if (d->window.start == d->window.end)
		window_closed(d);
	return (s64)mem_range_len(r);
}

/*
 * A window of huge pages, for a run that has shown its length. It stands at the same place in its
 * 2 MiB as in the file, so that mappings of it take one fault for all of it.
 */
static bool open_large_window(struct tmpfs_data *d, u64 start, u64 room)
{
	struct tmpfs_sb *s = data_sb(d);
	struct pgalloc_opts opts = { .mode = PGALLOC_COMMIT,
				     .dir = PGALLOC_UP,
				     .acct_id = s->acct_id,
				     .huge = true,
				     .hint = data_extent_hint(d, start, true) };

	if (!s->large || d->append_bytes < TMPFS_LARGE_AFTER || room < PGALLOC_LARGE_UNIT ||
	    (start & (PGALLOC_LARGE_UNIT - 1)) ||
	    (s->large_windows + 1) * PGALLOC_LARGE_UNIT >
		    pgalloc_room(s->store) / TMPFS_LARGE_SHARE)
		return false;
	if (pgalloc_allocate(s->large, PGALLOC_LARGE_UNIT, &opts, &d->window) < 0)
		return false;
	s->large_windows++;
	d->window_large = true;
	d->window_at = start;
	return true;
}

/* Reserves offsets for this and the next writes of a run. False: no window, allocate exactly. */
static bool open_window(struct tmpfs_data *d, u64 start, u64 len, u64 room)
{
	struct tmpfs_sb *s = data_sb(d);
	struct pgalloc_opts opts = { .mode = PGALLOC_ALLOCATE,
				     .dir = PGALLOC_UP,
				     .acct_id = s->acct_id,
				     .hint = data_extent_hint(d, start, false) };
	u64 want = MIN(TMPFS_WINDOW_MAX, MAX(TMPFS_WINDOW_MIN, 2 * len));

	if (open_large_window(d, start, room))
		return true;
	/* The next large one may stand where this one ends. */
	if (s->large)
		want = MIN(want, PGALLOC_LARGE_UNIT - (start & (PGALLOC_LARGE_UNIT - 1)));
	if (d->append_run < 3 || len > TMPFS_WINDOW_WRITE || room < want)
		return false;
	if (pgalloc_allocate(s->store, want, &opts, &d->window) < 0)
		return false;
	d->window_at = start;
	d->window_populated = d->window.start;
	return true;
}

/* Notes where a fill stands in a run of them. */
static void follow_run(struct tmpfs_data *d, u64 start, u64 len)
{
	bool follows = start == d->append_next;

	d->append_run = follows ? d->append_run + 1 : 0;
	d->append_bytes = follows ? d->append_bytes + len : len;
	d->append_next = start + len;
}

s64 data_fill_hole(struct tmpfs_data *d, u64 start, u64 len, u64 room)
{
	const u64 unit = PGALLOC_LARGE_UNIT;
	struct tmpfs_sb *s = data_sb(d);
	struct pgalloc_opts opts = { .dir = PGALLOC_UP, .acct_id = s->acct_id };
	struct mem_range r;
	u64 charged;
	s64 n;
	int err;

	rwlock_assert_write_held(&d->lock);
	/* What follows may have a unit of its own. */
	if (s->large)
		len = MIN(len, unit - (start & (unit - 1)));
	charged = data_charge_upto(d, len >> PAGE_SHIFT) << PAGE_SHIFT;
	if (!charged)
		return -ENOSPC;
	follow_run(d, start, charged);
	if (d->window.start != d->window.end && d->window_at != start)
		data_drop_window(d);
	if (d->window.start != d->window.end || open_window(d, start, charged, room)) {
		n = carve_window(d, start, charged);
		data_uncharge(d, (charged - (n > 0 ? (u64)n : 0)) >> PAGE_SHIFT);
		d->append_next = start + (n > 0 ? (u64)n : 0);
		return n;
	}
	opts.hint = data_extent_hint(d, start, false);
	len = charged;
	/* A memory file near its limit may still have smaller pieces. */
	while ((err = pgalloc_allocate(s->store, len, &opts, &r)) < 0 && len > PAGE_SIZE)
		len = MAX(PAGE_SIZE, (len / 2) & PAGE_MASK);
	data_uncharge(d, (charged - (err < 0 ? 0 : len)) >> PAGE_SHIFT);
	if (err < 0)
		return err;
	err = insert_or_release(d, start, r);
	return err < 0 ? err : (s64)len;
}

static void *map_extent(struct tmpfs_sb *s, const struct extent *e, u64 mem, u64 *ret_len)
{
	struct memfile *f = sb_memory(s, e->large);

	return f->ops->map(f, mem, ret_len);
}

void data_zero_allocated(struct tmpfs_data *d, u64 off, u64 len)
{
	static const char zeroes[PAGE_SIZE];
	struct tmpfs_sb *s = data_sb(d);
	u64 end = off + len;

	rwlock_assert_write_held(&d->lock);
	while (off < end) {
		struct extent *e = data_extent_find(d, off);
		u64 n, mem, avail;
		void *p;

		if (!e || e->node.key >= end)
			return;
		off = MAX(off, e->node.key);
		n = MIN(MIN(end, extent_end(e)) - off, PAGE_SIZE);
		mem = e->mem + (off - e->node.key);
		if (s->memory->disk_backed) {
			pgalloc_write(s->store, mem, zeroes, n);
		} else if ((p = map_extent(s, e, mem, &avail))) {
			n = MIN(n, avail);
			safe_memzero(p, n);
		}
		off += n;
	}
}

/* ---- read ---- */

/* Copies [off, off+n) of one extent into dst. Bytes or -errno when none. */
static ssize_t read_extent(struct tmpfs_data *d, struct extent *e, u64 off, u64 n, struct kiov *dst)
{
	struct tmpfs_sb *s = data_sb(d);
	u64 mem = e->mem + (off - e->node.key), avail;
	struct iovec seg;
	void *p;
	int err;

	n = MIN(n, extent_end(e) - off);
	if (!s->memory->disk_backed) {
		p = map_extent(s, e, mem, &avail);
		return p ? kiov_put(dst, p, MIN(n, avail)) : -ENOMEM;
	}
	if (!kiov_peek(dst, &seg))
		return 0;
	n = MIN(n, seg.iov_len);
	err = pgalloc_read(s->store, mem, seg.iov_base, n);
	if (err < 0)
		return err;
	kiov_advance(dst, n);
	return (ssize_t)n;
}

ssize_t tmpfs_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct tmpfs_data *d = &tmpfs_inode(f->inode)->data;
	u64 done = 0, len;
	ssize_t n = 0;

	rwlock_rdlock(&d->lock);
	len = offset < d->size ? MIN(dst->remaining, d->size - offset) : 0;
	while (done < len) {
		u64 off = offset + done, left = len - done;
		struct extent *e = data_extent_find(d, off);

		if (!e || e->node.key >= off + left)
			n = kiov_zero(dst, left);
		else if (e->node.key > off)
			n = kiov_zero(dst, e->node.key - off);
		else
			n = read_extent(d, e, off, left, dst);
		if (n <= 0)
			break;
		done += (u64)n;
	}
	rwlock_unlock(&d->lock);
	return done || n >= 0 ? (ssize_t)done : n;
}

/* ---- write ---- */

/*
 * The host copies into pages that nobody has touched yet: populating the sentry's
 * mapping first and then copying costs more than this one call (measured: 1250
 * against 2200 MB/s for 40 KiB and more). Bytes or -errno.
 */
static ssize_t write_fresh(struct memfile *f, u64 mem, u64 n, struct kiov *src)
{
	struct iovec iov[WRITE_SEGS];
	int count = 0;
	ssize_t done;

	for (int i = src->index; i < src->count && count < WRITE_SEGS && n; i++) {
		size_t skip = i == src->index ? src->seg_off : 0;
		size_t len = MIN(src->seg[i].iov_len - skip, n);

		if (!len)
			continue;
		iov[count++] = (struct iovec){ (char *)src->seg[i].iov_base + skip, len };
		n -= len;
	}
	do {
		done = host_pwritev(f->host_fd, iov, count, mem, 0);
	} while (done == -EINTR);
	if (done > 0)
		kiov_advance(src, (size_t)done);
	return done;
}

/* Copies up to n bytes to `off`, inside e. fresh: its pages were just allocated. Bytes or -errno.
 */
static ssize_t write_extent(struct tmpfs_data *d, struct extent *e, u64 off, u64 n, bool fresh,
			    struct kiov *src)
{
	struct tmpfs_sb *s = data_sb(d);
	u64 mem = e->mem + (off - e->node.key), avail;
	void *p;

	n = MIN(n, extent_end(e) - off);
	if (s->memory->disk_backed || (fresh && n > PAGE_SIZE))
		return write_fresh(sb_memory(s, e->large), mem, n, src);
	p = map_extent(s, e, mem, &avail);
	return p ? kiov_get(src, p, MIN(n, avail)) : -ENOMEM;
}

/* Bytes of [off, off+len) written, allocating; -errno when none. lock held for write. */
static ssize_t write_locked(struct tmpfs_data *d, struct kiov *src, u64 offset, u64 len)
{
	u64 done = 0, fresh_until = 0;
	s64 n = 0;

	while (done < len) {
		u64 off = offset + done, left = len - done;
		struct extent *e = data_extent_find(d, off);

		if (!e || e->node.key > off) {
			u64 start = page_down(off), end = page_up_nofail(off + left);
			u64 hole_end = e ? e->node.key : TMPFS_MAX_SIZE & PAGE_MASK;

			end = MIN(end, hole_end);
			n = data_fill_hole(d, start, end - start, hole_end - start);
			if (n < 0)
				break;
			fresh_until = start + (u64)n;
			e = data_extent_find(d, start);
			/* A window of small pages is populated ahead, for small writes. */
			if (!e->large && d->window_at == fresh_until)
				fresh_until = 0;
			continue;
		}
		if (off < fresh_until)
			left = MIN(left, fresh_until - off);
		unwritten_clear(d, page_down(off),
				page_up_nofail(off + MIN(left, extent_end(e) - off)));
		n = write_extent(d, e, off, left, off < fresh_until, src);
		if (n <= 0)
			break;
		done += (u64)n;
	}
	return done || n >= 0 ? (ssize_t)done : (ssize_t)n;
}

static ssize_t write_and_grow(struct tmpfs_data *d, struct kiov *src, u64 offset, u64 len)
{
	ssize_t n;

	/* A mapping may have dirtied the tail of the last page, which now becomes part of the file.
	 */
	if (offset > d->size && !page_aligned(d->size))
		data_zero_allocated(d, d->size, MIN(offset, page_up_nofail(d->size)) - d->size);
	n = write_locked(d, src, offset, len);
	if (n > 0 && offset + (u64)n > d->size)
		d->size = offset + (u64)n;
	return n;
}

ssize_t tmpfs_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct tmpfs_inode *i = tmpfs_inode(f->inode);
	struct tmpfs_data *d = &i->data;
	bool append = flags & RWF_APPEND;
	u64 len = src->remaining;
	bool watched;
	ssize_t n;

	if (!len)
		return 0;
	if (atomic_load_explicit(&i->has_capability_xattr, memory_order_relaxed))
		tmpfs_drop_capability_xattr(i);
	rwlock_wrlock(&d->lock);
	if (append)
		offset = d->size;
	n = -EPERM;
	if (d->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		goto out;
	n = -EFBIG;
	if (offset >= TMPFS_MAX_SIZE - PAGE_SIZE)
		goto out;
	len = MIN(len, TMPFS_MAX_SIZE - PAGE_SIZE - offset);
	if ((d->seals & F_SEAL_GROW) && offset + len > d->size) {
		/* As Linux: the part up to the page of the end is written, beyond it nothing is. */
		n = -EPERM;
		if (offset >= d->size)
			goto out;
		len = d->size - offset;
	}
	n = write_and_grow(d, src, offset, len);
out:
	watched = d->mappable.watched;
	rwlock_unlock(&d->lock);
	if (watched && n > 0)
		tmpfs_invalidate(d, page_down(offset), page_up_nofail(offset + (u64)n), false);
	return n;
}

/* A disk-backed file system reads and writes by the host, which may take long. */
struct file *tmpfs_direct(struct file *f)
{
	return data_sb(&tmpfs_inode(f->inode)->data)->memory->disk_backed ? NULL : f;
}

/*
 * Whether [offset, end) lies in one extent, or begins there and goes on in the window: then to
 * write it is to copy it. Not in a huge page that nobody has written to: the host has to clear it
 * first.
 */
static bool only_copies(struct tmpfs_data *d, u64 offset, u64 end)
{
	struct extent *e = data_extent_find(d, offset);
	u64 pos = page_down(offset), until = page_up_nofail(end);

	if (e && e->node.key <= offset) {
		pos = extent_end(e);
		if (pos >= end)
			return end <= d->size;
		e = data_extent_find(d, pos);
	}
	return d->window_at == pos && mem_range_len(d->window) >= until - pos &&
	       (!d->window_large || (d->window.start & (PGALLOC_LARGE_UNIT - 1))) &&
	       (!e || e->node.key >= until);
}

ssize_t tmpfs_overwrite(struct file *f, struct kiov *src, u64 offset)
{
	struct tmpfs_inode *i = tmpfs_inode(f->inode);
	struct tmpfs_data *d = &i->data;
	u64 end = offset + src->remaining;
	ssize_t n = -EAGAIN;

	if (atomic_load_explicit(&i->has_capability_xattr, memory_order_relaxed) ||
	    end > TMPFS_MAX_SIZE - PAGE_SIZE)
		return -EAGAIN;
	rwlock_wrlock(&d->lock);
	/* Nobody can be told of a write from here: the caller holds a lock of the mm. */
	if (!d->seals && !d->mappable.watched && only_copies(d, offset, end))
		n = write_and_grow(d, src, offset, src->remaining);
	rwlock_unlock(&d->lock);
	return n;
}

/* ---- size ---- */

int tmpfs_truncate(struct tmpfs_data *d, u64 size)
{
	struct ktree removed = { 0 };
	u64 old, keep;
	int err = 0;

	if (size > TMPFS_MAX_SIZE)
		return -EFBIG;
	keep = page_up_nofail(size);
	rwlock_wrlock(&d->lock);
	old = d->size;
	if ((size < old && (d->seals & F_SEAL_SHRINK)) || (size > old && (d->seals & F_SEAL_GROW)))
		err = -EPERM;
	if (!err && size <= old) {
		data_drop_window(d);
		err = data_extent_remove(d, keep, UINT64_MAX & PAGE_MASK, &removed);
		unwritten_clear(d, keep, UINT64_MAX & PAGE_MASK);
		data_zero_allocated(d, size, keep - size);
	} else if (!err) {
		data_zero_allocated(d, old, MIN(size, page_up_nofail(old)) - old);
	}
	if (!err)
		d->size = size;
	rwlock_unlock(&d->lock);
	if (!err && size < old)
		tmpfs_invalidate(d, keep, UINT64_MAX & PAGE_MASK, true);
	data_extents_release(d, &removed);
	return err;
}

bool data_next_run(struct tmpfs_data *d, u64 off, u64 *ret_start, u64 *ret_end)
{
	for (;;) {
		struct extent *e = data_extent_find(d, off);
		u64 hole, hole_end;

		if (!e)
			return false;
		off = MAX(off, e->node.key);
		if (!unwritten_next(d, off, &hole, &hole_end))
			hole = UINT64_MAX;
		if (hole > off) {
			*ret_start = off;
			*ret_end = MIN(extent_end(e), hole);
			return true;
		}
		off = hole_end;
	}
}

s64 tmpfs_seek(struct file *f, s64 offset, int whence)
{
	struct tmpfs_data *d = &tmpfs_inode(f->inode)->data;
	s64 pos = -ENXIO;
	u64 off = (u64)offset, start, end;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return vfs_generic_seek(f, offset, whence, d->size);
	rwlock_rdlock(&d->lock);
	if (offset < 0 || off >= d->size)
		goto out;
	if (whence == SEEK_DATA) {
		if (data_next_run(d, off, &start, &end) && start < d->size)
			pos = (s64)start;
		goto out;
	}
	while (data_next_run(d, off, &start, &end) && start <= off)
		off = end;
	pos = (s64)MIN(off, d->size);
out:
	rwlock_unlock(&d->lock);
	return pos;
}
