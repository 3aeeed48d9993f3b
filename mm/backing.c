/* Backing of guest pages: anonymous windows, files, and entering them into the pma set. */
#include "mm/mm_impl.h"

/*
 * What one fault brings in: anonymous memory is only reserved, so it costs little. Further faults
 * in the same vma bring in ever more, within a small part of what the memory file has left.
 */
#define ANON_WINDOW HUGE_PAGE_SIZE
#define ANON_WINDOW_MAX (128UL << 20)
#define ANON_WINDOW_SHARE 64
/* A mappable answers with what is at hand in it. */
#define FILE_WINDOW HUGE_PAGE_SIZE
/* Who wants more than that and does not get it tries again with a page. */
#define ALLOCATE_ALL (16UL << 10)
/* Kept free in the memory file beside a window, for the next windows of the same vma. */
#define GROWTH_ROOM (8UL << 20)

void mm_puts_flush(struct mm_puts *q)
{
	if (q->file && q->holder)
		held_add(q->holder, q->file, q->r);
	else if (q->file)
		memfile_put(q->file, q->r);
	q->file = NULL;
}

void mm_puts_add(struct mm_puts *q, struct memfile *file, struct mem_range r)
{
	if (!file)
		return;
	if (q->file == file && q->r.end == r.start) {
		q->r.end = r.end;
	} else if (q->file == file && q->r.start == r.end) {
		q->r.start = r.start;
	} else {
		mm_puts_flush(q);
		q->file = file;
		q->r = r;
	}
}

static bool any_mapped(struct mm *mm, u64 start, u64 end)
{
	struct pma *p = pma_set_seek(&mm->pmas, start);

	for (; p && p->start < end; p = pma_next(p))
		if (p->host_map)
			return true;
	return false;
}

int backing_drop(struct mm *mm, u64 start, u64 end, bool only_shared)
{
	struct mm_puts q = { 0 };
	struct pma *p, *next;

	mutex_assert_held(&mm->active_lock);
	p = pma_set_seek(&mm->pmas, start);
	if (!p || p->start >= end)
		return 0;
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return -ENOMEM;
	if (any_mapped(mm, start, end))
		stub_unmap(mm, start, end);
	pma_set_split(&mm->pmas, start, end);
	for (p = pma_set_seek(&mm->pmas, start); p && p->start < end; p = next) {
		next = pma_next(p);
		if (p->file && p->owned && only_shared) {
			pma_set_host(&mm->pmas, p, PMA_UNMAPPED, PROT_NONE);
			continue;
		}
		mm_puts_add(&q, p->file, pma_range(p));
		pma_set_drop(&mm->pmas, p);
	}
	mm_puts_flush(&q);
	return 0;
}

/* What of [start, end) can be kept, in bytes. False: something else is mapped there. */
static bool may_keep(struct mm *mm, u64 start, u64 end, u64 *ret_bytes, size_t *ret_count)
{
	struct pma *p = pma_set_seek(&mm->pmas, start), part;

	*ret_bytes = *ret_count = 0;
	for (; p && p->start < end; p = pma_next(p)) {
		part = *p;
		part.start = MAX(p->start, start);
		part.end = MIN(p->end, end);
		part.offset += part.start - p->start;
		if (keep_suits(mm, &part))
			*ret_bytes += part.end - part.start;
		else if (p->file && p->host_map)
			return false;
		++*ret_count;
	}
	return true;
}

int backing_release(struct mm *mm, u64 start, u64 end)
{
	struct mm_puts q = { 0 };
	struct stub_batch b;
	struct pma *p, *next;
	size_t count;
	u64 bytes;

	mutex_assert_held(&mm->active_lock);
	if (!any_mapped(mm, start, end) || !may_keep(mm, start, end, &bytes, &count) ||
	    (bytes && !keep_room(mm, bytes)) || count > STUB_BATCH ||
	    pma_set_reserve(&mm->kept, count) < 0 || pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return backing_drop(mm, start, end, false);
	stub_batch_begin(mm, &b);
	/* Another thread may be given the place by mmap before this one has obeyed. */
	b.defer = platform_as_alone(mm->as);
	pma_set_split(&mm->pmas, start, end);
	for (p = pma_set_seek(&mm->pmas, start); p && p->start < end; p = next) {
		next = pma_next(p);
		if (!p->file) {
			/* A stale mapping of the zero page harms nobody. */
			stub_batch_unmap(&b, p->start, p->end);
		} else if (p->host_map) {
			if (p->host_prot)
				stub_batch_protect(&b, p->start, p->end, PROT_NONE);
			keep_add(mm, p);
		} else {
			mm_puts_add(&q, p->file, pma_range(p));
		}
		pma_set_drop(&mm->pmas, p);
	}
	stub_batch_end(&b);
	mm_puts_flush(&q);
	return 0;
}

/*
 * Maps value. *ret_late: it will be mapped before the guest goes on, and may not have replaced yet
 * what was there; what can be written to must be gone at once.
 */
static int map_over(struct mm *mm, const struct pma *value, bool replaces, bool *ret_late)
{
	u64 start = value->start, end = value->end;
	struct pma *p = pma_set_seek(&mm->pmas, start);
	/* Other threads of the guest would go on with what was there. */
	bool late = !replaces || platform_as_alone(mm->as);
	u32 pieces = 0;

	if (late && replaces)
		held_release(mm);
	for (; late && replaces && p && p->start < end; p = pma_next(p))
		late = p->host_map != PMA_MAP_WRITE && held_room(mm, ++pieces, end - start);
	*ret_late = late && stub_map_late(mm, start, end, value->file, value->offset,
					  value->host_map, value->host_prot);
	return *ret_late ? 0
			 : stub_map(mm, start, end, value->file, value->offset, value->host_map,
				    value->host_prot, false);
}

int backing_install(struct mm *mm, const struct vma *v, const struct pma *value, bool map_now)
{
	struct mm_puts q = { 0 };
	struct pma new = *value, *p, *next;
	u64 start = value->start, end = value->end;
	bool replaces, late = false;
	int err;

	mutex_assert_held(&mm->active_lock);
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return -ENOMEM;
	new.host_prot = PROT_NONE;
	new.host_map = PMA_UNMAPPED;
	replaces = any_mapped(mm, start, end);
	if (map_now || replaces) {
		new.host_prot = stub_prot(v, value);
		if (new.host_prot) {
			new.host_map = stub_map_kind(v, value);
			err = map_over(mm, &new, replaces, &late);
			if (err < 0)
				return err;
		} else {
			stub_unmap(mm, start, end);
		}
	}
	q.holder = late && replaces ? mm : NULL;
	pma_set_split(&mm->pmas, start, end);
	for (p = pma_set_seek(&mm->pmas, start); p && p->start < end; p = next) {
		next = pma_next(p);
		mm_puts_add(&q, p->file, pma_range(p));
		pma_set_drop(&mm->pmas, p);
	}
	pma_set_merge(&mm->pmas, pma_set_add(&mm->pmas, &new));
	mm_puts_flush(&q);
	return 0;
}

int backing_map(struct mm *mm, const struct vma *v, struct pma *p, bool populate)
{
	u64 start = MAX(p->start, v->start), end = MIN(p->end, v->end);
	u64 offset = p->offset + (start - p->start);
	struct memfile *file = p->file;
	u8 prot = stub_prot(v, p);
	enum pma_map map = p->host_map, kind = stub_map_kind(v, p);
	int err = -EAGAIN;

	mutex_assert_held(&mm->active_lock);
	if (!prot || (p->host_prot == prot && !populate))
		return 0;
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return -ENOMEM;
	/* Same pages, other rights: keeps the page tables. */
	if ((map == PMA_MAP_WRITE || (map && !(prot & PROT_WRITE))) && !populate)
		err = stub_protect(mm, start, end, prot);
	if (err < 0) {
		map = kind;
		/* The same pages, or none, were mapped there. */
		err = !populate && stub_map_late(mm, start, end, file, offset, map, prot)
			      ? 0
			      : stub_map(mm, start, end, file, offset, map, prot, populate);
	}
	if (err < 0)
		return err;
	/* stub_map may have merged pmas or dropped those of the zero page. */
	p = pma_set_find(&mm->pmas, start);
	if (p)
		p = pma_set_isolate(&mm->pmas, p, start, end);
	else
		p = pma_set_add(&mm->pmas, &(struct pma){ .start = start, .end = end });
	pma_set_host(&mm->pmas, p, map, prot);
	pma_set_merge(&mm->pmas, p);
	return 0;
}

/* ---- windows ---- */

struct window {
	u64 start, end;
};

static struct window window_in(const struct vma *v, u64 page, u64 size)
{
	u64 start = page & ~(size - 1);

	return (struct window){ MAX(start, v->start), MIN(start + size, v->end) };
}

/* Shrinks w to the free space around page: pmas other than the zero page's stay. */
static void window_clip(struct mm *mm, struct window *w, u64 page)
{
	struct pma *p = pma_set_seek(&mm->pmas, w->start);

	for (; p && p->start < w->end; p = pma_next(p)) {
		if (!p->file)
			continue;
		if (p->end <= page) {
			w->start = MAX(w->start, p->end);
		} else {
			if (p->start > page)
				w->end = p->start;
			return;
		}
	}
}

/* Where memory for [start, end) of v should lie. */
static struct pgalloc_opts placement(struct mm *mm, const struct vma *v, u64 start, u64 end)
{
	struct pma *before = start ? pma_set_find(&mm->pmas, start - 1) : NULL;
	struct pma *after = pma_set_find(&mm->pmas, end);
	struct pgalloc_opts opts = {
		.mode = PGALLOC_ALLOCATE,
		.acct_id = mm->acct_id,
		.room = MIN(GROWTH_ROOM, vma_len(v)),
		.dir = v->flags & VMA_GROWSDOWN ? PGALLOC_DOWN : PGALLOC_UP,
		.optional = end - start > ALLOCATE_ALL,
	};

	if (before && before->owned && !before->cow && before->file == mm->memfile) {
		opts.dir = PGALLOC_UP;
		opts.hint = pma_range(before).end;
	} else if (after && after->owned && !after->cow && after->file == mm->memfile) {
		opts.dir = PGALLOC_DOWN;
		opts.hint = after->offset;
	} else {
		opts.alone = true;
	}
	return opts;
}

int backing_allocate(struct mm *mm, const struct vma *v, u64 start, u64 end, struct mem_range *ret)
{
	struct pgalloc_opts opts = placement(mm, v, start, end);

	return pgalloc_allocate(mm->memory, end - start, &opts, ret);
}

int backing_allocate_copy(struct mm *mm, const struct vma *v, const struct pma *src,
			  struct mem_range *ret)
{
	struct pgalloc_opts opts = placement(mm, v, src->start, src->end);
	int err;

	/* Small copies lie close together: they are many, and may go at one time, too. */
	if (src->end - src->start <= ALLOCATE_ALL)
		opts.room = 0;
	if (opts.alone) {
		opts.dir = PGALLOC_UP;
		opts.hint = mm->copy_next;
	}
	err = pgalloc_allocate_copy(pgalloc_of(src->file), pma_range(src), src->owned && src->cow,
				    mm->memory, &opts, ret);
	if (err < 0)
		return -ENOMEM;
	if (opts.alone)
		mm->copy_next = ret->end;
	return 0;
}

/* To wake the other thread takes as long as to copy a dozen pages. */
#define HALVES_MIN (256UL << 10)

int backing_copy_halves(struct mm *mm, const struct vma *v, const struct pma *src,
			struct mem_range ret[2])
{
	struct pgalloc_opts opts = placement(mm, v, src->start, src->end);
	int err;

	if (src->end - src->start < HALVES_MIN || !pgalloc_second(mm->memory) ||
	    !platform_cpus_to_spare(mm->platform))
		return -ENODATA;
	err = pgalloc_copy_halves(pgalloc_of(src->file), pma_range(src), src->owned && src->cow,
				  mm->memory, &opts, mm->second_next, ret);
	if (err == 0)
		mm->second_next = ret[1].end;
	return err;
}

/* Of what is left, huge pages get no more than this part. */
#define LARGE_SHARE 8

int backing_copy_large(struct mm *mm, const struct pma *src, struct mem_range *ret)
{
	struct pgalloc *large = pgalloc_large(mm->memory);
	u64 len = src->end - src->start;

	if (!large || len != PGALLOC_LARGE_UNIT || src->start & (PGALLOC_LARGE_UNIT - 1) ||
	    len > pgalloc_room(mm->memory) / LARGE_SHARE)
		return -ENODATA;
	return pgalloc_copy_large(pgalloc_of(src->file), pma_range(src), src->owned && src->cow,
				  large, mm->acct_id, ret);
}

/* A loader's own memory, .bss and thread data are a few small mappings, written at once. */
#define EARLY_MAPPINGS 12
#define EARLY_MAX (64UL << 10)

static void back_early(struct mm *mm, struct vma *v, u64 start, u64 end)
{
	struct pma value = { .start = start, .end = end, .file = mm->memfile, .owned = true };
	struct stub_batch b;
	struct mem_range r;

	if (mm->early_mappings >= EARLY_MAPPINGS || end - start > EARLY_MAX ||
	    v->flags & (VMA_SHARED | VMA_GROWSDOWN | VMA_LOCKED))
		return;
	mm->early_mappings++;
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0 ||
	    backing_allocate(mm, v, start, end, &r) < 0)
		return;
	value.offset = r.start;
	stub_batch_begin(mm, &b);
	stub_batch_map(&b, v, pma_set_add(&mm->pmas, &value));
	stub_batch_end_late(&b);
}

void backing_ahead(struct mm *mm, struct vma *v, u64 start, u64 end)
{
	struct pma value, *p;

	mutex_assert_held(&mm->active_lock);
	if (v->mappable || !(v->prot & PROT_WRITE) || !platform_as_alone(mm->as) ||
	    pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return;
	if (!keep_take_all(mm, start, end, &value)) {
		back_early(mm, v, start, end);
		return;
	}
	p = pma_set_merge(&mm->pmas, pma_set_add(&mm->pmas, &value));
	/* Failing that, a fault does it. */
	backing_map(mm, v, p, false);
}

/* Grows with the faults in v: a sparse user of a large vma is spared most of them. */
static u64 anon_window(struct mm *mm, const struct vma *v)
{
	u64 most = MIN(ANON_WINDOW_MAX, pgalloc_room(mm->memory) / ANON_WINDOW_SHARE);

	if (mm->anon_vma_end != v->end)
		mm->anon_window = ANON_WINDOW;
	else if (mm->anon_window * 2 <= most)
		mm->anon_window *= 2;
	/* Where memory runs out, what may never be touched is for others. */
	while (mm->anon_window > MAX(most, PAGE_SIZE))
		mm->anon_window /= 2;
	mm->anon_vma_end = v->end;
	return mm->anon_window;
}

static int back_anon(struct mm *mm, const struct vma *v, u64 page, bool map_now)
{
	struct window w = window_in(v, page, ANON_WINDOW);
	struct mem_range r;
	struct pma value;
	int err;

	window_clip(mm, &w, page);
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) == 0 &&
	    keep_take(mm, page, w.start, w.end, &value)) {
		pma_set_merge(&mm->pmas, pma_set_add(&mm->pmas, &value));
		return 0;
	}
	w = window_in(v, page, anon_window(mm, v));
	window_clip(mm, &w, page);
	err = backing_allocate(mm, v, w.start, w.end, &r);
	if (err == -ENOMEM && w.end - w.start > ANON_WINDOW) {
		w = window_in(v, page, ANON_WINDOW);
		window_clip(mm, &w, page);
		err = backing_allocate(mm, v, w.start, w.end, &r);
	}
	if (err == -ENOMEM && w.end - w.start > PAGE_SIZE) {
		w = (struct window){ page, page + PAGE_SIZE };
		err = backing_allocate(mm, v, w.start, w.end, &r);
	}
	if (err < 0)
		return -ENOMEM;
	value = (struct pma){
		.start = w.start,
		.end = w.end,
		.file = mm->memfile,
		.offset = r.start,
		.owned = true,
	};
	err = backing_install(mm, v, &value, map_now);
	if (err < 0)
		memfile_put(mm->memfile, r);
	else
		mm->ahead += w.end - w.start - PAGE_SIZE;
	return err;
}

/* Enters an answer of the mappable for page, asked for within w. Takes over its references. */
static int install_translation(struct mm *mm, const struct vma *v, const struct window *w, u64 page,
			       const struct translation *t, bool map_now)
{
	struct pma value = {
		.start = v->start + (t->offset - v->offset),
		.file = t->file,
		.offset = t->range.start,
		.writable = t->writable && (v->flags & VMA_SHARED),
		.text = t->text,
	};
	int err;

	value.end = value.start + mem_range_len(t->range);
	ASSERT(w->start <= value.start && value.start <= page && page < value.end &&
	       value.end <= w->end);
	err = backing_install(mm, v, &value, map_now);
	if (err < 0)
		memfile_put(t->file, t->range);
	return err;
}

/* Asks the mappable for the page and what is convenient around it. */
static int back_file(struct mm *mm, const struct vma *v, struct pma *old, u64 page, bool write,
		     bool map_now)
{
	struct window w = window_in(v, page, FILE_WINDOW);
	struct translation t;
	int err;

	if (old) {
		w.start = MAX(w.start, old->start);
		w.end = MIN(w.end, old->end);
	} else {
		window_clip(mm, &w, page);
	}
	err = v->mappable->ops->translate(v->mappable, vma_offset_at(v, page),
					  vma_offset_at(v, w.start), vma_offset_at(v, w.end), write,
					  &t);
	if (err < 0)
		return err == -ENOMEM ? -ENOMEM : -EFAULT;
	t.text = text_translate(mm, v, vma_offset_at(v, page), &t);
	return install_translation(mm, v, &w, page, &t, map_now);
}

static int resolve(struct mm *mm, struct vma *v, u64 page, bool write, bool map_now,
		   struct pma **ret)
{
	struct pma *p = pma_set_find(&mm->pmas, page);
	int err = 0;

	mutex_assert_held(&mm->active_lock);
	if (p && !p->file)
		p = NULL;
	if (p && p->text && write) {
		err = text_restore(mm, v, page);
		if (err < 0)
			return err;
		p = pma_set_find(&mm->pmas, page);
	}
	if (!v->mappable) {
		if (!p && write)
			err = back_anon(mm, v, page, map_now);
		else if (p && write && p->cow)
			err = cow_break(mm, v, p, page, map_now);
	} else if (v->flags & VMA_SHARED) {
		if (!p || (write && !p->writable))
			err = back_file(mm, v, p, page, write, map_now);
	} else {
		if (!p)
			err = back_file(mm, v, NULL, page, false, map_now && !write);
		p = err == 0 && write ? pma_set_find(&mm->pmas, page) : NULL;
		if (p && (!p->owned || p->cow))
			err = cow_break(mm, v, p, page, map_now);
	}
	if (err < 0)
		return err;
	p = pma_set_find(&mm->pmas, page);
	*ret = p && p->file ? p : NULL;
	return 0;
}

int backing_resolve(struct mm *mm, struct vma *v, u64 page, bool write, bool map_now,
		    struct pma **ret)
{
	int err = resolve(mm, v, page, write, map_now, ret);

	if (err == -ENOMEM && mm->kept.count) {
		keep_drain(mm);
		err = resolve(mm, v, page, write, map_now, ret);
	}
	if (err == -ENOMEM && mm_trim_locked(mm))
		err = resolve(mm, v, page, write, map_now, ret);
	return err;
}

int backing_resolve_only(struct mm *mm, struct vma *v, u64 page, bool write, struct pma **ret)
{
	return resolve(mm, v, page, write, false, ret);
}

int backing_resolve_data(struct mm *mm, struct vma *v, u64 page, bool write, struct pma **ret)
{
	int err = backing_resolve(mm, v, page, write, false, ret);

	if (err < 0 || !*ret || !(*ret)->text)
		return err;
	err = text_restore(mm, v, page);
	return err < 0 ? err : backing_resolve(mm, v, page, write, false, ret);
}

/* ---- around a fault on a file ---- */

/* Enough for the usual segments of an executable or a library beside the one that faulted. */
#define SIBLINGS 3
#define AROUND_MAX 24		 /* mappings added at a time */
#define AROUND_STEP (64UL << 10) /* how far to go on where a cache has nothing */

/* Maps what the mappable has at hand of [start, end) in v. Returns how many pieces. */
static int map_cached(struct mm *mm, const struct vma *v, u64 start, u64 end, int max,
		      struct stub_batch *b)
{
	struct translation t;
	int count = 0;

	while (start < end && count < max) {
		struct pma *p = pma_set_seek(&mm->pmas, start);
		struct window w = { start, p ? MIN(end, p->start) : end };

		if (p && p->start <= start) {
			start = p->end;
			continue;
		}
		if (v->mappable->ops->peek(v->mappable, vma_offset_at(v, start),
					   vma_offset_at(v, w.start), vma_offset_at(v, w.end),
					   &t) < 0) {
			start += AROUND_STEP;
			continue;
		}
		t.text = text_translate(mm, v, vma_offset_at(v, start), &t);
		if (install_translation(mm, v, &w, start, &t, false) < 0)
			break;
		p = pma_set_find(&mm->pmas, start);
		start += mem_range_len(t.range);
		stub_batch_map(b, v, p);
		count++;
	}
	return count;
}

static bool untouched(struct mm *mm, const struct vma *v)
{
	struct pma *p = pma_set_seek(&mm->pmas, v->start);

	return !p || p->start >= v->end;
}

/* Data comes last: what lies behind it was mapped to reserve the place, and is replaced by .bss. */
static bool beside(const struct vma *v, const struct vma *next, bool up)
{
	if (up && (v->prot & PROT_WRITE))
		return false;
	return next && next->mappable == v->mappable && next->prot && !(next->flags & VMA_SHARED) &&
	       (up ? v->end == next->start : next->end == v->start);
}

bool backing_is_image(const struct mm *mm, const struct vma *v)
{
	const struct vma *s = v;

	for (int i = 0; i < 6 && s && s->mappable == v->mappable; i++, s = vma_prev(&mm->vmas, s))
		if (s->prot & PROT_EXEC)
			return true;
	return false;
}

bool backing_has_around(const struct vma *v)
{
	return v->mappable && !(v->flags & VMA_SHARED) && v->mappable->ops->peek;
}

/*
 * The segments of an image lie side by side and are touched one after the
 * other: what the file's cache has of them goes to the stub in one call.
 */
void backing_map_around(struct mm *mm, struct vma *v, struct pma *p, u64 page)
{
	struct window w = window_in(v, page, FILE_WINDOW);
	struct stub_batch b;
	int count;

	mutex_assert_held(&mm->active_lock);
	stub_batch_begin(mm, &b);
	stub_batch_map(&b, v, p);
	count = map_cached(mm, v, w.start, w.end, AROUND_MAX, &b);
	for (int up = 0; up < 2; up++) {
		struct vma *s = up ? vma_next(&mm->vmas, v) : vma_prev(&mm->vmas, v), *from = v;

		for (int i = 0; i < SIBLINGS && beside(from, s, up); i++) {
			if (untouched(mm, s)) {
				struct pma *p;

				count +=
					map_cached(mm, s, s->start, s->end, AROUND_MAX - count, &b);
				/* Nothing at hand: its beginning is wanted soon all the same. */
				if (untouched(mm, s) &&
				    back_file(mm, s, NULL, s->start, false, false) == 0 &&
				    (p = pma_set_find(&mm->pmas, s->start)))
					stub_batch_map(&b, s, p);
			}
			from = s;
			s = up ? vma_next(&mm->vmas, s) : vma_prev(&mm->vmas, s);
		}
	}
	stub_batch_end_late(&b);
}

/*
 * What has lost its mappings to a fork, or never had them in this stub, is touched in places that
 * lie close together: to map a piece along costs a tenth of the stop that it spares.
 */
#define NEAR_WINDOW (512UL << 10)
#define NEAR_MAX 24

void backing_map_near(struct mm *mm, struct vma *v, u64 page)
{
	struct window w = window_in(v, page, NEAR_WINDOW);
	struct stub_batch b;
	struct pma *p;

	mutex_assert_held(&mm->active_lock);
	/* A host that has refused a mapping would refuse one of many, and nothing be mapped at all.
	 */
	if (mm->near_pause) {
		mm->near_pause--;
		return;
	}
	stub_batch_begin(mm, &b);
	for (p = pma_set_seek(&mm->pmas, w.start); p && p->start < w.end && b.count < NEAR_MAX;
	     p = pma_next(p))
		if (p->owned && !p->host_map)
			stub_batch_map(&b, v, p);
	stub_batch_end_late(&b);
}

/* ---- ahead of a new program ---- */

/* An image of which more than this has to be mapped is used here and there. */
#define AHEAD_IMAGE_MAX (2UL << 20)
#define AHEAD_COPY_MAX (32UL << 10)

/* Data of an image that its loader will write for sure. */
static void copy_ahead(struct mm *mm, struct vma *v, struct stub_batch *b)
{
	struct pma *p;

	for (u64 page = v->start; page < v->end; page = p->end) {
		if (backing_resolve_only(mm, v, page, true, &p) < 0 || !p)
			return;
		stub_batch_map(b, v, p);
	}
}

/* What there is of anonymous memory: arguments, the rest of a segment's last page. */
static void map_owned(struct mm *mm, struct vma *v, struct stub_batch *b)
{
	for (struct pma *p = pma_set_seek(&mm->pmas, v->start); p && p->start < v->end;
	     p = pma_next(p))
		if (p->file && p->owned)
			stub_batch_map(b, v, p);
}

void mm_map_ahead(struct mm *mm)
{
	struct stub_batch b;
	struct vma *v;
	int room = AROUND_MAX;

	rwlock_rdlock(&mm->map_lock);
	mutex_lock(&mm->active_lock);
	stub_batch_begin(mm, &b);
	for (v = vma_set_first(&mm->vmas); v; v = vma_next(&mm->vmas, v)) {
		bool image = backing_has_around(v);

		if (!v->prot || (v->flags & VMA_RESERVED) || vma_len(v) > AHEAD_IMAGE_MAX) {
			if (v->flags & VMA_GROWSDOWN)
				map_owned(mm, v, &b);
			continue;
		}
		if (image && (v->prot & PROT_WRITE) && vma_len(v) <= AHEAD_COPY_MAX)
			copy_ahead(mm, v, &b);
		else if (image)
			room -= map_cached(mm, v, v->start, v->end, room, &b);
		map_owned(mm, v, &b);
	}
	stub_batch_end_maps(&b);
	mutex_unlock(&mm->active_lock);
	rwlock_unlock(&mm->map_lock);
}
