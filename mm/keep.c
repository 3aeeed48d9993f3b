/*
 * Kept memory: what munmap leaves behind where that is cheaper than to give it back.
 *
 * Anonymous memory that only this mm had stays allocated to it, and stays mapped in the stub, there
 * without rights: an mprotect by the guest's own thread instead of the mapper's munmap. That thread
 * may not obey, and then it can still write there: so nobody but the same mm gets the memory, until
 * the mapper's munmap has returned. The next anonymous mapping at that place takes memory and
 * mapping over by another mprotect. It is made zero then, not before: other threads may have
 * written up to the moment at which munmap took effect. (With other threads the mapper makes the
 * mprotect: mmap may give one of them the place before the first has obeyed.)
 */
#include "mm/mm_impl.h"

#include "base/safecopy.h"

#include <string.h>

/* Kept per mm; more than that at once is freed as ever. */
#define KEEP_BYTES_MAX (64UL << 20)
#define KEEP_COUNT_MAX 256
/* All address spaces keep no more than this part of the memory file. */
#define KEEP_SHARE 8
/* Memory with pages in it is made zero as it is used: this much at a time, and twice as much when
 * the user goes on where it was. */
#define ZERO_WINDOW_MIN (64UL << 10)
#define ZERO_WINDOW_MAX HUGE_PAGE_SIZE
#define FEW_PAGES 4
/* Small mappings that are touched each time get what is kept at once, without a fault. */
#define TAKE_ALL_MAX (256UL << 10)
#define KEEP_USED 2

static void account(struct mm *mm, struct pma *p, s64 sign)
{
	u64 len = p->end - p->start;

	mm->kept_bytes += sign < 0 ? -len : len;
	pgalloc_account_kept(mm->memory, sign < 0 ? -(s64)len : (s64)len);
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

/* False as well when it cannot be told. */
static bool is_zero(const void *page)
{
	static const u64 zero[PAGE_SIZE / 8];
	u64 copy[PAGE_SIZE / 8];

	return safe_memcpy(copy, page, PAGE_SIZE) || !memcmp(copy, zero, PAGE_SIZE);
}

enum was { WAS_EMPTY, WAS_ZERO, WAS_WRITTEN };

/*
 * Makes r zero. More than max_pages: false, and some are not. *ret_was: what there was, as far as
 * its first page says it.
 */
static bool make_zero(struct mm *mm, struct mem_range r, u64 max_pages, enum was *ret_was)
{
	u64 left = max_pages * PAGE_SIZE;
	struct mem_range run;

	*ret_was = WAS_EMPTY;
	while (pgalloc_next_committed(mm->memory, r, &run)) {
		u64 len;
		void *m = mm->memfile->ops->map(mm->memfile, run.start, &len);

		if (!m || mem_range_len(run) > left)
			return false;
		if (*ret_was == WAS_EMPTY)
			*ret_was = is_zero(m) ? WAS_ZERO : WAS_WRITTEN;
		len = MIN(len, mem_range_len(run));
		if (safe_memzero(m, len))
			return false;
		left -= len;
		r.start = run.start + len;
	}
	return true;
}

/* Moves *high up over memory that holds nothing, to limit at most. */
static void extend(struct mm *mm, const struct pma *k, u64 *high, u64 limit)
{
	struct mem_range run;

	if (*high >= limit)
		return;
	if (pgalloc_next_committed(mm->memory, pma_subrange(k, *high, limit), &run))
		limit = k->start + (run.start - k->offset);
	*high = limit;
}

/* Chooses how much to take of what is kept within [*low, *high), and makes that zero. */
static bool prepare(struct mm *mm, const struct pma *k, u64 page, u64 *low, u64 *high)
{
	bool follows = page == mm->keep_next;
	enum was was;
	u64 size = follows ? MIN(mm->keep_window * 2, ZERO_WINDOW_MAX) : ZERO_WINDOW_MIN;
	u64 start = follows ? page : page & ~(size - 1), limit = MIN(*high, k->end);
	struct mem_range r;

	*low = MAX(MAX(*low, k->start), start);
	*high = MIN(limit, start + size);
	r = pma_subrange(k, *low, *high);
	/* Of many pages a user that comes here for the first time may want few: give them back. */
	if (!make_zero(mm, r, follows ? size : FEW_PAGES, &was) &&
	    pgalloc_decommit(mm->memory, r) < 0)
		return false;
	if (was == WAS_EMPTY)
		extend(mm, k, high, limit);
	mm->keep_window = size;
	mm->keep_next = *high;
	return true;
}

/* Takes [low, high) of k out of what is kept; a reserved node is used. */
static void take(struct mm *mm, struct pma *k, u64 low, u64 high, struct pma *ret)
{
	k = pma_set_isolate(&mm->kept, k, low, high);
	account(mm, k, -1);
	*ret = *k;
	pma_set_drop(&mm->kept, k);
}

bool keep_take(struct mm *mm, u64 page, u64 low, u64 high, struct pma *ret)
{
	struct pma *k = pma_set_find(&mm->kept, page);

	mutex_assert_held(&mm->active_lock);
	if (!k || pma_set_reserve(&mm->kept, PMA_RESERVE) < 0 || !prepare(mm, k, page, &low, &high))
		return false;
	take(mm, k, low, high, ret);
	mm->keep_used = MIN(mm->keep_used + 1, KEEP_USED);
	return true;
}

bool keep_take_all(struct mm *mm, u64 start, u64 end, struct pma *ret)
{
	struct pma *k = pma_set_find(&mm->kept, start);
	enum was was;

	mutex_assert_held(&mm->active_lock);
	if (!k || k->end < end || end - start > TAKE_ALL_MAX || mm->keep_used < KEEP_USED ||
	    pma_set_reserve(&mm->kept, PMA_RESERVE) < 0)
		return false;
	/* If its last user has done nothing with it, the next one may not either. */
	if (!make_zero(mm, pma_subrange(k, start, end), FEW_PAGES, &was) || was != WAS_WRITTEN) {
		mm->keep_used = 0;
		return false;
	}
	take(mm, k, start, end, ret);
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

static u64 give_back(struct pgalloc_keeper *k)
{
	struct mm *mm = container_of(k, struct mm, keeper);
	u64 bytes;

	if (!mutex_trylock(&mm->active_lock))
		return 0;
	bytes = held_release(mm);
	bytes += mm->kept_bytes;
	bytes += mm->leftover_bytes;
	if (atomic_load(&mm->leftover))
		mm_empty_locked(mm);
	else
		keep_drain(mm);
	mutex_unlock(&mm->active_lock);
	return bytes;
}

static u64 give_back_untouched(struct pgalloc_keeper *k)
{
	struct mm *mm = container_of(k, struct mm, keeper);
	u64 bytes;

	if (!mutex_trylock(&mm->active_lock))
		return 0;
	bytes = mm_trim_locked(mm);
	mutex_unlock(&mm->active_lock);
	return bytes;
}

void keep_init(struct mm *mm)
{
	pma_set_init(&mm->kept);
	mm->keeper.drain = give_back;
	mm->keeper.trim = give_back_untouched;
	list_init(&mm->keeper.node);
	pgalloc_keeper_add(mm->memory, &mm->keeper);
}

void keep_destroy(struct mm *mm)
{
	pgalloc_keeper_remove(mm->memory, &mm->keeper);
	pma_set_destroy(&mm->kept);
}
