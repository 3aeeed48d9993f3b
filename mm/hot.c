#include "mm/hot.h"
#include "base/lock.h"
#include "base/refs.h"

#include <stdlib.h>

/* Hot for so many forks, and twice as many each time that it turns out to be still. */
#define HOT_FORKS 24
#define HOT_FORKS_MAX 384
/* How long a second note is waited for. */
#define NOTED_FORKS 8
/* Children that may end without having used their memory, before they are thought not to. */
#define MANY_FORKS 3
/* Pieces are found by the granule that they begin in. */
#define GRANULE_SHIFT 14
#define GRANULE_PAGES (1U << (GRANULE_SHIFT - PAGE_SHIFT))
#define RUNS_MAX (GRANULE_PAGES / 2) /* of pages in a granule */
#define SLOTS_MIN 64
#define SLOTS_MAX (4 * HOT_MANY) /* half of them are used at most */

struct piece {
	u64 granule; /* address >> GRANULE_SHIFT */
	u8 pages;    /* that were written; 0: the slot is free */
	bool exact;  /* without what was copied only because it lies before one of them */
	u32 serial;  /* rises from note to note */
	u32 child;   /* that it was noted for; 0: none */
	u16 forks;   /* since it was noted, or became hot */
	u16 span;    /* forks that it is hot for; 0: it never was */
	bool hot;    /* noted after two forks */
	bool away;   /* noted since the last fork, by a parent that was away */
	bool by_child;
};

struct hot_set {
	struct refs refs;
	struct mutex lock; /* RANK_LEAF */
	/* protected by lock */
	struct piece *slots; /* open addressing; a power of two */
	u32 slot_count, count;
	u32 serial, forks;
	bool full; /* until the next fork */
	int many;  /* forks that still get many, unless a child uses its memory */
};

struct hot_set *hot_new(void)
{
	struct hot_set *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	refs_init(&h->refs, "hot_set");
	mutex_init(&h->lock, RANK_LEAF, "hot set");
	return h;
}

struct hot_set *hot_get(struct hot_set *h)
{
	if (h)
		refs_get(&h->refs);
	return h;
}

void hot_put(struct hot_set *h)
{
	if (!h || !refs_put(&h->refs))
		return;
	mutex_destroy(&h->lock);
	free(h->slots);
	free(h);
}

/* ---- the table ---- */

static u32 hash_of(u64 granule)
{
	return (u32)(granule * 0x9e3779b97f4a7c15UL >> 32);
}

/* The piece of a granule, or the free slot where it would be. There are slots, one free. */
static struct piece *slot_of(const struct hot_set *h, u64 granule)
{
	u64 mask = h->slot_count - 1, i = hash_of(granule) & mask;

	while (h->slots[i].pages && h->slots[i].granule != granule)
		i = (i + 1) & mask;
	return &h->slots[i];
}

/* NULL: there is none. */
static struct piece *piece_at(const struct hot_set *h, u64 addr)
{
	struct piece *p = h->slot_count ? slot_of(h, addr >> GRANULE_SHIFT) : NULL;

	return p && p->pages ? p : NULL;
}

/* The pages of [start, end) within a granule; the range may reach beyond. */
static u8 pages_in(u64 granule, u64 start, u64 end)
{
	u64 base = granule << GRANULE_SHIFT;
	u64 from = start > base ? (start - base) >> PAGE_SHIFT : 0;
	u64 to = MIN((end - base) >> PAGE_SHIFT, GRANULE_PAGES);

	return (u8)((1U << to) - (1U << from));
}

/* Moves all that `stays` (NULL: everything) to a table of `count` slots. False: no memory, and
 * nothing has changed. */
static bool rebuild(struct hot_set *h, u32 count, bool (*stays)(const struct piece *))
{
	struct piece *old = h->slots, *fresh = calloc(count, sizeof(*fresh));
	u32 old_count = h->slot_count;

	if (!fresh)
		return false;
	h->slots = fresh;
	h->slot_count = count;
	h->count = 0;
	for (u32 i = 0; i < old_count; i++) {
		if (!old[i].pages || (stays && !stays(&old[i])))
			continue;
		*slot_of(h, old[i].granule) = old[i];
		h->count++;
	}
	free(old);
	return true;
}

static bool new_since_fork(const struct piece *p)
{
	return !p->forks;
}

static bool hot_or_new(const struct piece *p)
{
	return p->hot || !p->forks;
}

static bool still_counts(const struct piece *p)
{
	return p->hot || p->forks < NOTED_FORKS;
}

/* Room for one more. */
static bool make_room(struct hot_set *h)
{
	if (2 * (h->count + 1) <= h->slot_count)
		return true;
	if (h->slot_count < SLOTS_MAX)
		return rebuild(h, h->slot_count ? h->slot_count * 2 : SLOTS_MIN, NULL);
	if (h->full)
		return false;
	/* Rather what is waited for in vain than what is hot; but that it may be of old. */
	if (rebuild(h, h->slot_count, hot_or_new) && 2 * (h->count + 1) <= h->slot_count)
		return true;
	h->full = !rebuild(h, h->slot_count, new_since_fork) || 2 * (h->count + 1) > h->slot_count;
	return !h->full;
}

/* ---- what is hot ---- */

static void heat(struct piece *p)
{
	p->span = p->span ? MIN(p->span * 2, HOT_FORKS_MAX) : HOT_FORKS;
	p->forks = 0;
	p->hot = true;
}

/* p was noted for an earlier fork, or for another child. */
static bool noted_before(const struct piece *p, u32 child)
{
	return p->hot || p->forks || (child && p->child && child != p->child);
}

/* p, which was noted, is noted again. */
static void confirm(struct hot_set *h, struct piece *p, u8 pages, u32 child, bool away)
{
	bool before = noted_before(p, child) && (p->forks || !away);

	p->by_child |= child != 0;
	p->pages = before && !p->exact ? pages : p->pages | pages;
	p->exact |= before;
	/* A child has written it, too. */
	if (!away && !p->forks)
		p->away = false;
	if (!before)
		return;
	/* One that is hot was not copied, for there were too many: it comes before the others. */
	p->serial = h->serial++;
	if (p->hot)
		return;
	p->away = away;
	p->child = child;
	if (!away)
		heat(p);
}

static void note(struct hot_set *h, u64 granule, u8 pages, u32 child, bool away)
{
	struct piece *p = piece_at(h, granule << GRANULE_SHIFT);

	if (p)
		confirm(h, p, pages, child, away);
	else if (make_room(h)) {
		*slot_of(h, granule) = (struct piece){ .granule = granule,
						       .pages = pages,
						       .serial = h->serial++,
						       .child = child,
						       .by_child = child != 0,
						       .away = away };
		h->count++;
	}
}

void hot_note(struct hot_set *h, u64 start, u64 end, u32 child, bool away)
{
	if (!h)
		return;
	MUTEX_GUARD(&h->lock);
	for (u64 g = start >> GRANULE_SHIFT; g << GRANULE_SHIFT < end; g++)
		note(h, g, pages_in(g, start, end), child, away);
}

bool hot_window(struct hot_set *h, u64 page, u32 child, u64 *ret_start, u64 *ret_end)
{
	struct piece *p;
	u8 bit;

	if (!h)
		return false;
	MUTEX_GUARD(&h->lock);
	p = piece_at(h, page);
	if (!p || !noted_before(p, child))
		return false;
	*ret_start = page;
	*ret_end = (p->granule + 1) << GRANULE_SHIFT;
	bit = pages_in(p->granule, page, page + PAGE_SIZE);
	if (!p->exact || !(p->pages & bit))
		return true;
	for (u8 b = bit >> 1; b & p->pages; b >>= 1)
		*ret_start -= PAGE_SIZE;
	return true;
}

u64 hot_bytes(struct hot_set *h, u64 start, u64 end)
{
	u64 pages = 0;

	if (!h)
		return 0;
	MUTEX_GUARD(&h->lock);
	for (u64 g = start >> GRANULE_SHIFT; h->count && g << GRANULE_SHIFT < end; g++) {
		struct piece *p = piece_at(h, g << GRANULE_SHIFT);

		if (p)
			pages += (u64)__builtin_popcount(p->pages & pages_in(g, start, end));
	}
	return pages << PAGE_SHIFT;
}

u64 hot_size(struct hot_set *h)
{
	if (!h)
		return 0;
	MUTEX_GUARD(&h->lock);
	return (u64)h->count << GRANULE_SHIFT;
}

void hot_child_ended(struct hot_set *h, bool used)
{
	if (!h)
		return;
	MUTEX_GUARD(&h->lock);
	/* The first one is slow whatever it does. */
	h->many = used && h->forks > 1 ? MANY_FORKS : MAX(h->many - 1, 0);
}

bool hot_children_stay(struct hot_set *h)
{
	if (!h)
		return false;
	MUTEX_GUARD(&h->lock);
	return h->many > 0;
}

/* ---- a fork ---- */

/* Up to twice its span, by its place: not all are to be tried without at one fork. */
static u32 span_of(const struct piece *p)
{
	return p->span + p->span * (hash_of(p->granule) >> 16 & 0xff) / 256;
}

/* Another fork. */
static void age(struct piece *p)
{
	p->forks++;
	if (!p->hot || p->forks < span_of(p))
		return;
	/* It does without once: one note is enough then. */
	p->hot = false;
	p->forks = 1;
}

/* What was noted by a parent that was away counts now, or never. False: forget p. */
static bool settle_away(struct piece *p, bool spared)
{
	bool confirmed = p->away && p->forks;

	if (p->away && !p->forks && spared)
		return false;
	p->away = false;
	if (confirmed && !spared)
		heat(p);
	return true;
}

/* The newest first. */
static int by_serial(const void *a, const void *b)
{
	u32 x = ((const struct hot_piece *)a)->serial, y = ((const struct hot_piece *)b)->serial;

	return (x < y) - (x > y);
}

static int by_start(const void *a, const void *b)
{
	u64 x = ((const struct hot_piece *)a)->start, y = ((const struct hot_piece *)b)->start;

	return (x > y) - (x < y);
}

/* In the order of addresses, one for neighbours. Returns how many are left. */
static int join(struct hot_piece *pieces, int count)
{
	int n = 0;

	qsort(pieces, (size_t)count, sizeof(pieces[0]), by_start);
	for (int i = 0; i < count; i++) {
		if (n && pieces[n - 1].end >= pieces[i].start)
			pieces[n - 1].end = MAX(pieces[n - 1].end, pieces[i].end);
		else
			pieces[n++] = pieces[i];
	}
	return n;
}

/* Forgets what does not count any more; ages the rest. */
static void next_fork(struct hot_set *h, bool spared)
{
	bool forget = false;

	for (u32 i = 0; i < h->slot_count; i++) {
		struct piece *p = &h->slots[i];

		if (!p->pages)
			continue;
		if (!settle_away(p, spared))
			p->forks = NOTED_FORKS;
		forget |= !still_counts(p);
	}
	/* Without memory it counts again. */
	if (forget)
		rebuild(h, h->slot_count, still_counts);
}

static int add_runs(const struct piece *p, struct hot_piece *ret)
{
	int count = 0;

	for (u32 i = 0, n; i < GRANULE_PAGES; i += n) {
		u64 at = (p->granule << GRANULE_SHIFT) + i * PAGE_SIZE;

		for (n = 1;
		     i + n < GRANULE_PAGES && (p->pages >> (i + n) & 1) == (p->pages >> i & 1);)
			n++;
		if (p->pages >> i & 1)
			ret[count++] = (struct hot_piece){ at, at + n * PAGE_SIZE, p->serial };
	}
	return count;
}

/* A parent waits no longer for some copies more; and it writes little before it has to wait. */
#define PARENT_FEW 32

/* Are hot, and were never written by a child. */
static int of_parents(const struct hot_set *h)
{
	int count = 0;

	for (u32 i = 0; i < h->slot_count; i++)
		count += h->slots[i].pages && h->slots[i].hot && !h->slots[i].by_child;
	return count;
}

int hot_take(struct hot_set *h, bool spared, bool waits, int most, u32 *ret_child,
	     struct hot_piece **ret)
{
	struct hot_piece *pieces;
	int count = 0;

	*ret = NULL;
	*ret_child = 0;
	if (!h)
		return 0;
	MUTEX_GUARD(&h->lock);
	h->full = false;
	*ret_child = ++h->forks;
	next_fork(h, spared && !h->many);
	waits = waits && of_parents(h) > PARENT_FEW;
	pieces = h->count ? malloc(h->count * RUNS_MAX * sizeof(*pieces)) : NULL;
	for (u32 i = 0; i < h->slot_count; i++) {
		struct piece *p = &h->slots[i];

		if (!p->pages)
			continue;
		if (p->hot && pieces && (p->by_child || !waits))
			count += add_runs(p, &pieces[count]);
		age(p);
	}
	if (!pieces)
		return 0;
	most = MIN(most, h->many ? HOT_MANY : HOT_FEW);
	if (count > most) {
		qsort(pieces, (size_t)count, sizeof(pieces[0]), by_serial);
		count = most;
	}
	*ret = pieces;
	return join(pieces, count);
}
