/*
 * Kept memory: what munmap leaves behind where that is cheaper than to give it back.
 *
 * Anonymous memory that only this mm had stays allocated to it, and stays mapped in the stub, there
 * without rights: an mprotect by the guest's own thread instead of the mapper's munmap. That thread
 * may not obey, and then it can still write there: so nobody but the same mm gets the memory, until
 * the mapper's munmap has returned. The next anonymous mapping at that place takes memory and
 * mapping over by another mprotect. It is made zero then, not before: an obedient guest's other
 * threads may have written up to the moment at which munmap took effect.
 */
#include "mm/mm_impl.h"

#include "base/safecopy.h"

/* Kept per mm; more than that at once is freed as ever. */
#define KEEP_BYTES_MAX (64UL << 20)
#define KEEP_COUNT_MAX 256
/* All address spaces keep no more than this part of the memory file. */
#define KEEP_SHARE 8
/* Memory with pages in it is made zero as it is used: this much at a time, and twice as much when
 * the user goes on where it was. */
#define ZERO_WINDOW_MIN (64UL << 10)
#define ZERO_WINDOW_MAX HUGE_PAGE_SIZE

static void account(struct mm *mm, struct pma *p, s64 sign)
{
	u64 len = p->end - p->start;

	mm->kept_bytes += (u64)sign * len;
	pgalloc_account_kept(mm->memory, sign * (s64)len);
}

bool keep_suits(struct mm *mm, const struct pma *p)
{
	return p->host_map == PMA_MAP_WRITE && p->owned && !p->cow && p->file == mm->memfile &&
	       !p->file->disk_backed && pgalloc_exclusive(mm->memory, pma_range(p));
}

bool keep_room(struct mm *mm, u64 bytes)
{
	mutex_assert_held(&mm->active_lock);
	if (bytes > KEEP_BYTES_MAX)
		return false;
	if (mm->kept_bytes + bytes > KEEP_BYTES_MAX || mm->kept.count >= KEEP_COUNT_MAX)
		keep_drain(mm);
	return pgalloc_kept(mm->memory) + bytes <= pgalloc_limit(mm->memory) / KEEP_SHARE;
}

void keep_add(struct mm *mm, const struct pma *p)
{
	struct pma value = *p;

	mutex_assert_held(&mm->active_lock);
	value.host_prot = PROT_NONE;
	account(mm, &value, 1);
	pma_set_merge(&mm->kept, pma_set_add(&mm->kept, &value));
}

static bool make_zero(struct mm *mm, struct mem_range r)
{
	struct mem_range rest = r, run;

	while (pgalloc_next_committed(mm->memory, rest, &run)) {
		u64 len;
		void *m = mm->memfile->ops->map(mm->memfile, run.start, &len);

		if (!m)
			return false;
		len = MIN(len, mem_range_len(run));
		if (safe_memzero(m, len))
			return false;
		rest.start = run.start + len;
	}
	return true;
}

/* How much to make zero: all of it if there is nothing to do. */
static void choose_window(struct mm *mm, const struct pma *k, u64 page, u64 *low, u64 *high)
{
	u64 size = ZERO_WINDOW_MIN, start = page & ~(size - 1);
	struct mem_range run;

	*low = MAX(*low, k->start);
	*high = MIN(*high, k->end);
	if (!pgalloc_next_committed(mm->memory, pma_subrange(k, *low, *high), &run))
		return;
	if (page == mm->keep_next) {
		size = MIN(mm->keep_window * 2, ZERO_WINDOW_MAX);
		start = page;
	}
	mm->keep_window = size;
	*low = MAX(*low, start);
	*high = MIN(*high, start + size);
	mm->keep_next = *high;
}

bool keep_take(struct mm *mm, u64 page, u64 low, u64 high, struct pma *ret)
{
	struct pma *k = pma_set_find(&mm->kept, page);

	mutex_assert_held(&mm->active_lock);
	if (!k || pma_set_reserve(&mm->kept, PMA_RESERVE) < 0)
		return false;
	choose_window(mm, k, page, &low, &high);
	if (!make_zero(mm, pma_subrange(k, low, high)))
		return false;
	k = pma_set_isolate(&mm->kept, k, low, high);
	account(mm, k, -1);
	*ret = *k;
	pma_set_drop(&mm->kept, k);
	return true;
}

void keep_forget(struct mm *mm, u64 start, u64 end)
{
	struct pma *k = pma_set_seek(&mm->kept, start), *next;

	mutex_assert_held(&mm->active_lock);
	if (!k || k->start >= end)
		return;
	if (pma_set_reserve(&mm->kept, PMA_RESERVE) == 0) {
		pma_set_split(&mm->kept, start, end);
	} else if (k->start < start || pma_set_find(&mm->kept, end)) {
		log_warn("mm: no memory to split what is kept; a stub is killed");
		platform_as_kill(mm->as); /* then what is beside the range can go, too */
	}
	for (k = pma_set_seek(&mm->kept, start); k && k->start < end; k = next) {
		struct mem_range r = pma_range(k);

		next = pma_next(k);
		account(mm, k, -1);
		pma_set_drop(&mm->kept, k);
		memfile_put(mm->memfile, r);
	}
}

void keep_drain(struct mm *mm)
{
	struct stub_batch b;
	struct pma *k;

	mutex_assert_held(&mm->active_lock);
	if (!mm->kept.count)
		return;
	stub_batch_begin(mm, &b);
	for (k = pma_set_first(&mm->kept); k; k = pma_next(k))
		stub_batch_unmap(&b, k->start, k->end);
	stub_batch_end(&b);
	keep_forget(mm, mm->min, mm->max);
}
