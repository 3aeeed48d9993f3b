/*
 * What a forked child leaves to the next one: its stub, with what that has mapped.
 *
 * The children of one parent have much the same mapped at the same addresses: its programs and
 * libraries, and those of its pages that nobody has written to. To unmap all of that when one ends
 * and to map it again for the next, in a stub of the pool, takes longer than most children live. So
 * the parent keeps the stub (struct legacy) with a record of its mappings, and its next child
 * begins there: what it has the same keeps its mapping, page tables included, what differs is
 * mapped anew, and all other addresses are unmapped before it runs.
 *
 * Who may reach what. A legacy's guest threads are gone, by the kernel's word, before any reference
 * of its former mm is given back (platform_as_park). From then on nothing runs there that could use
 * a mapping, so those through the read-only descriptor may outlive their pages; of those through
 * the writable one only private pages stay, and keep their references. The next child's threads
 * begin after the mapper has reported the changes (mm_settle). A mapping is left alone only where
 * the new mm would make just that one: same pages of the same file, same way, same rights. Former
 * threads may have changed rights or unmapped something themselves. Where the next child gets less,
 * a fault mends it. Where it gets more (data that can be executed), they were as trusted as it is:
 * a child leaves nothing that the host's kernel would not let it do to the next one by ptrace, that
 * is, once it has other credentials than at the start, a seccomp filter more, or is not dumpable;
 * nor does the parent's next child begin with anything once that has changed its own.
 *
 * The private pages of a legacy are those that fork copies at once (mm/hot.h) or that the child
 * wrote first: the copies for the next child go over them, and need no mapping either.
 */
#include "mm/legacies.h"

#include <stdlib.h>

/* A child with more pieces than this is no ordinary one. */
#define PIECES_MAX 4096
/* Of private pages that the next fork may copy at once. */
#define HOT_BYTES_MAX (32UL << 20)
/* All that is kept is no more than this part of the memory file. */
#define KEEP_SHARE 8
/* ---- leaving one ---- */

bool legacy_wanted(struct mm *mm)
{
	struct legacies *x = mm->bequest;
	size_t pieces;

	/* Who else has a reference may keep it for long, and the memory with it. */
	if (!x || atomic_load(&mm->apart) || mm_dumpable(mm) != 1 || !atomic_load(&mm->leftover) ||
	    refs_read(&mm->refs) > 1)
		return false;
	mutex_lock(&mm->active_lock);
	pieces = mm->pmas.count;
	mutex_unlock(&mm->active_lock);
	if (pieces > PIECES_MAX)
		return false;
	return legacies_want(x, mm->bequest_era);
}

/* p's memory may lie idle until the next child. have: bytes that do already. */
static bool worth_keeping(struct mm *mm, const struct pma *p, u64 have)
{
	u64 len = p->end - p->start, most = LEGACY_BYTES_FEW;

	if (have + len > most && 2 * hot_bytes(mm->hot_set, p->start, p->end) >= len)
		most = MIN(HOT_BYTES_MAX, pgalloc_limit(mm->memory) / KEEP_SHARE -
						  MIN(pgalloc_kept(mm->memory),
						      pgalloc_limit(mm->memory) / KEEP_SHARE));
	return have + len <= most && keep_suits(mm, p);
}

/* What the guest could write to goes, but for some private memory. */
static void unmap_writable(struct mm *mm, u64 *ret_bytes)
{
	struct stub_batch b;
	struct pma *p;

	*ret_bytes = 0;
	stub_batch_begin(mm, &b);
	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p)) {
		u64 len = p->end - p->start;

		if (p->host_map != PMA_MAP_WRITE)
			continue;
		if (worth_keeping(mm, p, *ret_bytes)) {
			*ret_bytes += len;
			continue;
		}
		stub_batch_unmap(&b, p->start, p->end);
		pma_set_host(&mm->pmas, p, PMA_UNMAPPED, PROT_NONE);
	}
	stub_batch_end(&b);
}

/* References of all but the private memory; what is not mapped is forgotten. */
static void give_up(struct mm *mm)
{
	struct mm_puts q = { 0 };
	struct pma *p, *next;

	for (p = pma_set_first(&mm->pmas); p; p = next) {
		next = pma_next(p);
		if (p->file && p->host_map == PMA_MAP_WRITE)
			continue;
		mm_puts_add(&q, p->file, pma_range(p));
		if (!p->host_map)
			pma_set_drop(&mm->pmas, p);
	}
	mm_puts_flush(&q);
}

static struct legacy *leave(struct mm *mm)
{
	struct legacy *l = malloc(sizeof(*l));

	mutex_assert_held(&mm->active_lock);
	if (!l)
		return NULL;
	keep_drain(mm);
	if (!platform_as_park(mm->as)) {
		free(l);
		return NULL;
	}
	held_give_back(mm);
	unmap_writable(mm, &l->bytes);
	/* Nothing is mapped after a failure, and that is no good to anybody. */
	if (!mm->pmas.mapped) {
		free(l);
		return NULL;
	}
	give_up(mm);
	l->exact = !mm->loose;
	l->as = mm->as;
	mm->as = NULL;
	l->pmas = mm->pmas;
	pma_set_init(&mm->pmas);
	pgalloc_account_kept(mm->memory, (s64)(l->bytes - mm->leftover_bytes));
	mm->leftover_bytes = 0;
	atomic_store(&mm->leftover, false);
	return l;
}

void legacy_leave(struct mm *mm)
{
	struct legacy *l = NULL;

	if (!legacies_reserve())
		return;
	mutex_lock(&mm->active_lock);
	/* Somebody without memory may have had it emptied. */
	if (atomic_load(&mm->leftover))
		l = leave(mm);
	if (l) {
		fork_watch_gone(mm);
		home_child_gone(mm);
	}
	mutex_unlock(&mm->active_lock);
	if (!l) {
		/* Whoever empties it says so: not both of us. */
		legacies_unreserve();
		return;
	}
	legacies_add(mm->bequest, mm->bequest_era, l);
	legacy_left(mm);
}

/* ---- inheriting one ---- */

u64 legacy_alike_until(const struct legacy *l, u64 start, u64 end)
{
	const struct pma *k = l ? pma_set_seek(&l->pmas, start) : NULL;

	if (k && k->start <= start && k->host_map == PMA_MAP_WRITE)
		return MIN(k->end, end);
	while (k && k->start < end && k->host_map != PMA_MAP_WRITE)
		k = pma_next(k);
	return k ? MIN(k->start, end) : end;
}

bool legacy_copy(struct mm *child, struct legacy *l, const struct vma *v, struct pma *value,
		 struct pgalloc_copies *copies)
{
	struct pma *k = l ? pma_set_find(&l->pmas, value->start) : NULL, copy = *value;
	struct mem_range dst;

	if (!k || k->host_map != PMA_MAP_WRITE || k->end < value->end ||
	    pma_set_reserve(&l->pmas, PMA_RESERVE) < 0)
		return false;
	dst = pma_subrange(k, value->start, value->end);
	copy.file = k->file;
	copy.offset = dst.start;
	copy.cow = false;
	copy.owned = true;
	copy.host_map = PMA_MAP_WRITE;
	copy.host_prot = k->host_prot;
	if (stub_map_kind(v, &copy) != PMA_MAP_WRITE || stub_prot(v, &copy) != k->host_prot ||
	    pgalloc_copy_onto(pgalloc_of(value->file), pma_range(value), value->owned && value->cow,
			      pgalloc_of(k->file), dst, copies) < 0)
		return false;
	k = pma_set_isolate(&l->pmas, k, value->start, value->end);
	pma_set_drop(&l->pmas, k);
	l->bytes -= mem_range_len(dst);
	pgalloc_account_kept(child->memory, -(s64)mem_range_len(dst));
	*value = copy;
	return true;
}

/* Private memory that the child has no use for, once it is known to be unmapped. */
static void release_rest(struct mm *child, struct legacy *l)
{
	bool settled = false;
	struct held h;

	pgalloc_account_kept(child->memory, -(s64)l->bytes);
	while (legacy_next_private(l, &h)) {
		if (!settled && held_room(child, 1, mem_range_len(h.range))) {
			held_add(child, h.file, h.range);
			continue;
		}
		if (!settled && platform_as_settle(child->as) < 0)
			stub_drop_all(child);
		settled = true;
		memfile_put(h.file, h.range);
	}
}

void legacy_adopted(struct mm *child, struct legacy *l)
{
	mutex_assert_held(&child->active_lock);
	release_rest(child, l);
	pma_set_destroy(&l->pmas);
	free(l);
	legacies_unreserve();
}
