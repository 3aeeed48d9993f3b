/*
 * Going on in a stub in which something is mapped, of which there is a record: a legacy (legacy.c),
 * or one's own from before a fork (home.c). Nothing of a guest runs there yet.
 *
 * A mapping is left alone only where mm would make just that one: the same pages of the same file,
 * for reading or for writing, with the same rights. All the rest is unmapped: what the record has
 * besides or, where there may be more than it has, all other addresses. There is more when an
 * unmapping has been left to the guest's thread (mm->loose), which may not have obeyed; the mapper
 * alone makes mappings, and each of them is a pma's or is kept.
 */
#include "mm/mm_impl.h"

/* How far to go on where a file has nothing. */
#define SKIP (64UL << 10)

/* The file has it in memory: an adoption is no reason to read anything. */
static bool at_hand(const struct vma *v, u64 at)
{
	u64 offset = vma_offset_at(v, at);
	u8 there = 0;

	if (!v->mappable->ops->resident)
		return true;
	v->mappable->ops->resident(v->mappable, offset, offset + PAGE_SIZE, &there);
	return there;
}

/* mm's pma at `at`, made if it is a file's; NULL: none. *end moves to where it ends. */
static struct pma *pma_at(struct mm *mm, struct vma *v, u64 at, bool owned, u64 *end)
{
	struct pma *c = pma_set_seek(&mm->pmas, at);

	if (!c || c->start > at) {
		if (c)
			*end = MIN(*end, c->start);
		if (owned || !v->mappable)
			return NULL;
		/* Pages of files are asked for anew, so that no truncation is missed. */
		if (!at_hand(v, at) || backing_resolve_only(mm, v, at, false, &c) < 0 || !c) {
			*end = MIN(*end, at + SKIP);
			return NULL;
		}
	}
	*end = MIN(*end, c->end);
	return c;
}

/* If nobody shares it any more, it is mm's own without a copy: as far as *end, which moves to where
 * that changes. */
static void take_over(struct mm *mm, struct pma *c, u64 at, u64 *end)
{
	struct mem_range run;
	u32 refs = pgalloc_refs(pgalloc_of(c->file), pma_subrange(c, at, *end), &run);

	*end = at + mem_range_len(run);
	if (refs != 1)
		return;
	c = pma_set_isolate(&mm->pmas, c, at, *end);
	cow_own(c);
}

static bool same(const struct vma *v, const struct pma *c, const struct pma *k, u64 at)
{
	return c && k->file && !c->host_map && c->file == k->file &&
	       pma_subrange(c, at, c->end).start == pma_subrange(k, at, k->end).start;
}

/* The part of k from `at` on. Returns where it ends. */
static u64 adopt_part(struct mm *mm, const struct pma *k, u64 at, bool owner)
{
	struct vma *v = vma_set_seek(&mm->vmas, at);
	u64 end = k->end;
	struct pma *c;

	if (!v || v->start >= end)
		return end;
	if (v->start > at)
		return v->start;
	end = MIN(end, v->end);
	c = v->flags & VMA_WIPEONFORK && !owner ? NULL : pma_at(mm, v, at, k->owned, &end);
	if (!same(v, c, k, at) || !k->host_prot || pma_set_reserve(&mm->pmas, 2 * PMA_RESERVE) < 0)
		return end;
	if (owner && k->host_map == PMA_MAP_WRITE && c->owned && c->cow)
		take_over(mm, c, at, &end);
	c = pma_set_find(&mm->pmas, at);
	if (stub_map_kind(v, c) != k->host_map || stub_prot(v, c) != k->host_prot)
		return end;
	c = pma_set_isolate(&mm->pmas, c, at, end);
	pma_set_host(&mm->pmas, c, k->host_map, k->host_prot);
	pma_set_merge(&mm->pmas, c);
	return end;
}

/* All of [start, end), but for a vdso that the host did not let us move. */
static void unmap(struct mm *mm, u64 start, u64 end, struct stub_batch *b)
{
	struct platform_vdso v;

	platform_get_vdso(mm->platform, &v);
	if (v.start >= end || v.end <= start) {
		if (start < end)
			stub_batch_unmap(b, start, end);
		return;
	}
	if (start < v.start)
		stub_batch_unmap(b, start, v.start);
	if (v.end < end)
		stub_batch_unmap(b, v.end, end);
}

static bool has_any(const struct pma_set *record, u64 start, u64 end)
{
	const struct pma *k = pma_set_seek(record, start);

	return k && k->start < end;
}

/*
 * All but what mm has mapped now. Where an exact record has nothing there is nothing: the host is
 * not asked to unmap each gap.
 */
static void unmap_rest(struct mm *mm, const struct pma_set *record, bool exact,
		       struct stub_batch *b)
{
	u64 at = mm->min;
	struct pma *p;

	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p)) {
		if (!p->host_map)
			continue;
		if (!exact || has_any(record, at, p->start))
			unmap(mm, at, p->start, b);
		at = p->end;
	}
	if (!exact || has_any(record, at, mm->max))
		unmap(mm, at, mm->max, b);
}

/* Former threads may have changed the rights of what can be written to. */
static void restore_rights(struct mm *mm, struct stub_batch *b)
{
	struct pma *p;

	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p))
		if (p->host_map == PMA_MAP_WRITE && !(p->host_prot & PROT_WRITE))
			stub_batch_protect(b, p->start, p->end, p->host_prot);
}

void stub_adopt(struct mm *mm, const struct pma_set *record, bool owner, bool exact,
		struct stub_batch *b)
{
	struct pma *k;

	mutex_assert_held(&mm->active_lock);
	for (k = pma_set_first(record); k; k = pma_next(k)) {
		if (!owner && k->host_map == PMA_MAP_WRITE)
			continue;
		for (u64 at = k->start; at < k->end;)
			at = adopt_part(mm, k, at, owner);
	}
	unmap_rest(mm, record, exact, b);
	restore_rights(mm, b);
}
