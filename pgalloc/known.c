#include "pgalloc/known.h"

#include "pgalloc/pgalloc.h"

#include <stdlib.h>

#define CHUNK_PAGES (PGALLOC_CHUNK_SIZE >> PAGE_SHIFT)
#define CHUNK_WORDS (CHUNK_PAGES / 64)

struct known {
	_Atomic u64 there[CHUNK_WORDS], still[CHUNK_WORDS];
};

int known_init(struct known_pages *k, u64 chunks)
{
	k->chunks = calloc(chunks, sizeof(*k->chunks));
	k->count = chunks;
	return k->chunks ? 0 : -ENOMEM;
}

void known_destroy(struct known_pages *k)
{
	for (u64 i = 0; k->chunks && i < k->count; i++)
		free(k->chunks[i]);
	free(k->chunks);
}

static struct known *chunk_at(const struct known_pages *k, u64 offset)
{
	return atomic_load_explicit(&k->chunks[offset / PGALLOC_CHUNK_SIZE], memory_order_acquire);
}

static struct known *chunk_make(struct known_pages *k, u64 offset)
{
	_Atomic(struct known *) *slot = &k->chunks[offset / PGALLOC_CHUNK_SIZE];
	struct known *c = atomic_load_explicit(slot, memory_order_acquire), *new;

	if (c)
		return c;
	new = calloc(1, sizeof(*new));
	if (!new || atomic_compare_exchange_strong(slot, &c, new))
		return new;
	free(new);
	return c;
}

/* A stretch of pages within one word. */
struct bits {
	u64 word, mask;
	u64 end; /* offset of the file where it ends */
};

/* Of r's beginning. */
static struct bits bits_at(struct mem_range r)
{
	u64 page = r.start % PGALLOC_CHUNK_SIZE >> PAGE_SHIFT, low = page % 64;
	u64 n = MIN(64 - low, mem_range_len(r) >> PAGE_SHIFT);

	return (struct bits){
		.word = page / 64,
		.mask = (n == 64 ? ~0ULL : (1ULL << n) - 1) << low,
		.end = r.start + (n << PAGE_SHIFT),
	};
}

static u64 load(const _Atomic u64 *w)
{
	return atomic_load_explicit(w, memory_order_relaxed);
}

enum known_state known_run(const struct known_pages *k, struct mem_range r,
			   struct mem_range *ret_run)
{
	enum known_state first = KNOWN_NOTHING;
	u64 pos = r.start;

	while (pos < r.end) {
		struct bits b = bits_at((struct mem_range){ pos, r.end });
		const struct known *c = chunk_at(k, pos);
		u64 there = c ? load(&c->there[b.word]) : 0;
		u64 still = c ? load(&c->still[b.word]) : 0, bit = b.mask & -b.mask, same;

		if (pos == r.start)
			first = there & bit   ? KNOWN_THERE
				: still & bit ? KNOWN_HOLE
					      : KNOWN_NOTHING;
		same = first == KNOWN_THERE  ? there
		       : first == KNOWN_HOLE ? still & ~there
					     : ~(there | still);
		same = b.mask & ~same; /* those that differ */
		if (same) {
			pos += (u64)(__builtin_ctzll(same) - __builtin_ctzll(bit)) << PAGE_SHIFT;
			break;
		}
		pos = b.end;
	}
	*ret_run = (struct mem_range){ r.start, pos };
	return first;
}

static void set(struct known_pages *k, struct mem_range r, bool there, bool still)
{
	while (r.start < r.end) {
		struct bits b = bits_at(r);
		struct known *c = chunk_make(k, r.start);

		if (!c)
			return;
		if (there && b.mask & ~load(&c->there[b.word]))
			atomic_fetch_or_explicit(&c->there[b.word], b.mask, memory_order_relaxed);
		if (still && b.mask & ~load(&c->still[b.word]))
			atomic_fetch_or_explicit(&c->still[b.word], b.mask, memory_order_relaxed);
		r.start = b.end;
	}
}

static void clear(struct known_pages *k, struct mem_range r, bool there)
{
	while (r.start < r.end) {
		struct bits b = bits_at(r);
		struct known *c = chunk_at(k, r.start);

		if (!c) {
			r.start = (r.start / PGALLOC_CHUNK_SIZE + 1) * PGALLOC_CHUNK_SIZE;
			continue;
		}
		if (there && load(&c->there[b.word]) & b.mask)
			atomic_fetch_and_explicit(&c->there[b.word], ~b.mask, memory_order_relaxed);
		if (load(&c->still[b.word]) & b.mask)
			atomic_fetch_and_explicit(&c->still[b.word], ~b.mask, memory_order_relaxed);
		r.start = b.end;
	}
}

void known_set_there(struct known_pages *k, struct mem_range r)
{
	set(k, r, true, false);
}

void known_set_still(struct known_pages *k, struct mem_range r)
{
	set(k, r, false, true);
}

void known_clear_still(struct known_pages *k, struct mem_range r)
{
	clear(k, r, false);
}

void known_clear(struct known_pages *k, struct mem_range r)
{
	clear(k, r, true);
}
