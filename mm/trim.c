/*
 * Giving back what was brought in ahead and never touched.
 *
 * Windows of anonymous memory are handed out whole (backing.c) and count against the memory's limit
 * whole. Where the limit is met that would be a lie: what nobody has touched is given back, so that
 * only what the host has committed counts in the end. The guest may touch it at any moment; so it
 * is unmapped first, and what is empty then stays so.
 */
#include "mm/mm_impl.h"

struct trim {
	struct mm *mm;
	struct memfile *file; /* of the pma that is worked on, as are the next two */
	u64 start, offset;
	u64 bytes;
};

static u64 guest_of(const struct trim *t, u64 offset)
{
	return t->start + (offset - t->offset);
}

/* The sentry is about to write there. */
static bool pinned(const struct mm *mm, struct memfile *file, struct mem_range r)
{
	for (const struct mm_write_pin *pin = mm->write_pins; pin; pin = pin->next)
		if (pin->file == file && pin->range.start < r.end && r.start < pin->range.end)
			return true;
	return false;
}

static void drop_hole(struct trim *t, u64 from, u64 to)
{
	struct mm *mm = t->mm;
	struct mem_range r = { from, to };
	u64 start = guest_of(t, from), end = guest_of(t, to);
	struct pma *p;

	if (pinned(mm, t->file, r) || pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return;
	p = pma_set_find(&mm->pmas, start);
	if (!p || p->end < end)
		return;
	pma_set_drop(&mm->pmas, pma_set_isolate(&mm->pmas, p, start, end));
	memfile_put(t->file, r);
	t->bytes += to - from;
}

/* Calls fn (NULL: none) for each hole of r. Whether there is one. */
static bool each_hole(struct trim *t, struct mem_range r, void (*fn)(struct trim *, u64, u64))
{
	struct mem_range run;
	u64 at = r.start, end = r.end;
	bool any = false;

	while (at < end) {
		r.start = at;
		if (!pgalloc_next_committed(pgalloc_of(t->file), r, &run))
			run = (struct mem_range){ end, end };
		if (fn && run.start > at)
			fn(t, at, run.start);
		any |= run.start > at;
		at = run.end;
	}
	return any;
}

static void trim_pma(struct trim *t, struct pma *p)
{
	struct mm *mm = t->mm;
	struct mem_range r = pma_range(p);
	u64 start = p->start, end = p->end;

	t->file = p->file;
	t->start = start;
	t->offset = p->offset;
	if (!each_hole(t, r, NULL) || pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return;
	if (p->host_map) {
		stub_unmap(mm, start, end);
		/* Which may have dropped all there was. */
		p = pma_set_isolate(&mm->pmas, pma_set_find(&mm->pmas, start), start, end);
		pma_set_host(&mm->pmas, p, PMA_UNMAPPED, PROT_NONE);
	}
	each_hole(t, r, drop_hole);
}

u64 mm_trim_locked(struct mm *mm)
{
	struct trim t = { .mm = mm };
	struct pma *p;

	mutex_assert_held(&mm->active_lock);
	if (!mm->ahead)
		return 0;
	mm->ahead = 0;
	for (u64 at = 0; (p = pma_set_seek(&mm->pmas, at));) {
		at = p->end;
		if (p->file && p->owned)
			trim_pma(&t, p);
	}
	if (t.bytes)
		mm->anon_vma_end = 0; /* the next windows are small again */
	return t.bytes;
}
