/*
 * The legacies of one parent: how many there are, who waits for one, and when they go.
 *
 * They go when the parent does, when it is trusted otherwise than before, and when memory is short.
 * A small one may lie for as long as the parent lives; one with much private memory goes when the
 * parent has not forked for some seconds, for which a thread waits.
 */
#include "mm/legacies.h"

#include "base/host_sync.h"
#include "base/host_thread.h"

#include <stdlib.h>
#include <time.h>

/* Legacies of a parent, and of all. */
#define PER_PARENT 2
#define ALL_MAX 24
/* Much is not kept for a parent that does not fork. */
#define IDLE_NS 5000000000UL
/* How long a fork waits for a child that is leaving much. */
#define LEAVE_NS 3000000UL
/* Who forks but once need not keep anything. */
#define FORKS_MIN 2

struct legacies {
	struct refs refs; /* the parent's and its children's */
	struct pgalloc *memory;
	struct pgalloc_keeper keeper;
	struct mutex lock; /* RANK_LEAF */
	/* protected by lock */
	struct legacy *kept[PER_PARENT];
	u32 count;
	u32 forks;
	u32 era;     /* rises when the parent is trusted otherwise than before */
	bool closed; /* the parent is gone */
	u64 last_ns; /* when the last one was left */
	bool watched;

	_Atomic u32 alarm; /* futex of the watching thread: rises with the parent's end */
	_Atomic u32 busy;  /* futex: that thread uses the memory file */

	_Atomic u32 leaving;  /* futex: children that have ended and may leave much soon */
	_Atomic bool in_vain; /* none of them has since a fork waited */
};

static _Atomic u32 all;

bool legacies_reserve(void)
{
	if (atomic_fetch_add(&all, 1) < ALL_MAX)
		return true;
	atomic_fetch_sub(&all, 1);
	return false;
}

void legacies_unreserve(void)
{
	atomic_fetch_sub(&all, 1);
}

static struct legacy *pop(struct legacies *x)
{
	MUTEX_GUARD(&x->lock);
	return x->count ? x->kept[--x->count] : NULL;
}

bool legacy_next_private(struct legacy *l, struct held *ret)
{
	struct pma *k;
	bool found = false;

	while (!found && (k = pma_set_first(&l->pmas))) {
		found = k->host_map == PMA_MAP_WRITE;
		*ret = (struct held){ k->file, pma_range(k) };
		pma_set_drop(&l->pmas, k);
	}
	return found;
}

/* Gives all back; bytes that were kept. The stub may serve somebody else, emptied. */
static u64 discard(struct legacies *x, struct legacy *l)
{
	u64 bytes = l->bytes;
	struct held h;

	/* Nothing is mapped when this returns, or nobody is left. */
	if (l->as)
		platform_as_put(l->as);
	while (legacy_next_private(l, &h))
		memfile_put(h.file, h.range);
	pgalloc_account_kept(x->memory, -(s64)bytes);
	pma_set_destroy(&l->pmas);
	free(l);
	legacies_unreserve();
	return bytes;
}

static u64 discard_all(struct legacies *x)
{
	struct legacy *l;
	u64 bytes = 0;

	while ((l = pop(x)))
		bytes += discard(x, l);
	return bytes;
}

static u64 give_back(struct pgalloc_keeper *k)
{
	return discard_all(container_of(k, struct legacies, keeper));
}

static u64 nothing_to_trim(struct pgalloc_keeper *k)
{
	return 0;
}

static void legacies_put(struct legacies *x)
{
	if (!x || !refs_put(&x->refs))
		return;
	ASSERT(!x->count);
	mutex_destroy(&x->lock);
	free(x);
}

/* ---- what lies idle ---- */

/* Takes one that has much, if it has lain for long; else *ret_until: when to look again, or 0:
 * there is none, and nobody watches any more. */
static struct legacy *pop_idle(struct legacies *x, u64 *ret_until)
{
	MUTEX_GUARD(&x->lock);
	for (u32 i = 0; i < x->count && !x->closed; i++) {
		struct legacy *l = x->kept[i];

		if (l->bytes <= LEGACY_BYTES_FEW)
			continue;
		*ret_until = x->last_ns + IDLE_NS;
		if (host_clock_ns(CLOCK_MONOTONIC) < *ret_until)
			return NULL;
		atomic_store(&x->busy, 1);
		x->kept[i] = x->kept[--x->count];
		return l;
	}
	x->watched = false;
	*ret_until = 0;
	return NULL;
}

static void watch(void *arg)
{
	struct legacies *x = arg;

	host_unbind_self();
	for (;;) {
		u32 seen = atomic_load(&x->alarm);
		u64 until;
		struct legacy *l = pop_idle(x, &until);

		if (l) {
			discard(x, l);
			atomic_store(&x->busy, 0);
			host_futex_wake(&x->busy, 1, true);
		} else if (until)
			host_futex_wait_until(&x->alarm, seen, until);
		else
			break;
	}
	legacies_put(x);
}

/* Without a thread, it lies until memory is short. */
static void begin_watch(struct legacies *x)
{
	struct host_worker *w;

	mutex_lock(&x->lock);
	if (x->watched || x->closed || host_worker_get(&w) < 0) {
		mutex_unlock(&x->lock);
		return;
	}
	x->watched = true;
	refs_get(&x->refs);
	mutex_unlock(&x->lock);
	host_worker_start(w, watch, x);
}

static struct legacies *legacies_new(struct pgalloc *memory)
{
	struct legacies *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	refs_init(&x->refs, "legacies");
	mutex_init(&x->lock, RANK_LEAF, "legacies");
	x->memory = memory;
	x->keeper.drain = give_back;
	x->keeper.trim = nothing_to_trim;
	list_init(&x->keeper.node);
	pgalloc_keeper_add(memory, &x->keeper);
	return x;
}

bool legacies_want(struct legacies *x, u32 era)
{
	MUTEX_GUARD(&x->lock);
	return !x->closed && x->era == era && x->count < PER_PARENT && x->forks >= FORKS_MIN;
}

static bool hand_over(struct legacies *x, u32 era, struct legacy *l)
{
	MUTEX_GUARD(&x->lock);
	if (x->closed || x->era != era || x->count == PER_PARENT)
		return false;
	x->kept[x->count++] = l;
	x->last_ns = host_clock_ns(CLOCK_MONOTONIC);
	return true;
}

void legacies_add(struct legacies *x, u32 era, struct legacy *l)
{
	bool much = l->bytes > LEGACY_BYTES_FEW;

	if (!hand_over(x, era, l))
		discard(x, l);
	else if (much)
		begin_watch(x);
}

/* ---- for the parent and its children ---- */

void legacy_expect(struct mm *mm, u64 bytes)
{
	mutex_assert_held(&mm->active_lock);
	if (!mm->bequest || MIN(bytes, hot_size(mm->hot_set)) <= LEGACY_BYTES_FEW ||
	    atomic_load(&mm->apart) || mm_dumpable(mm) != 1)
		return;
	mm->leaving = true;
	atomic_fetch_add(&mm->bequest->leaving, 1);
}

void legacy_left(struct mm *mm)
{
	if (!mm->leaving)
		return;
	mm->leaving = false;
	atomic_store(&mm->bequest->in_vain, false);
	atomic_fetch_sub(&mm->bequest->leaving, 1);
	host_futex_wake(&mm->bequest->leaving, 1, true);
}

void legacy_end(struct mm *mm)
{
	struct legacies *x = mm->legacies;

	legacy_left(mm);
	legacies_put(mm->bequest);
	if (!x)
		return;
	mutex_lock(&x->lock);
	x->closed = true;
	mutex_unlock(&x->lock);
	discard_all(x);
	pgalloc_keeper_remove(x->memory, &x->keeper);
	while (atomic_load(&x->busy))
		host_futex_wait_until(&x->busy, 1, UINT64_MAX);
	atomic_fetch_add(&x->alarm, 1);
	host_futex_wake(&x->alarm, 1, true);
	legacies_put(x);
}

/* Those of mm, which is about to fork. */
static struct legacies *of_parent(struct mm *mm)
{
	struct legacies *x;

	if (!mm->fork_reuse)
		return NULL;
	mutex_lock(&mm->active_lock);
	x = mm->legacies;
	if (!x)
		x = mm->legacies = legacies_new(mm->memory);
	mutex_unlock(&mm->active_lock);
	if (!x)
		return NULL;
	MUTEX_GUARD(&x->lock);
	x->forks += x->forks < FORKS_MIN;
	return x;
}

struct legacy *legacy_take(struct mm *parent)
{
	struct legacies *x = of_parent(parent);
	u64 until = 0;
	struct legacy *l;
	u32 leaving;

	if (!x)
		return NULL;
	for (;;) {
		leaving = atomic_load(&x->leaving);
		while ((l = pop(x)) && platform_as_dead(l->as))
			discard(x, l);
		if (l || !leaving || atomic_load(&x->in_vain))
			return l;
		/* To copy and map all of that costs more than the wait for it. */
		if (!until)
			until = host_clock_ns(CLOCK_MONOTONIC) + LEAVE_NS;
		if (host_clock_ns(CLOCK_MONOTONIC) >= until) {
			atomic_store(&x->in_vain, true);
			return NULL;
		}
		host_futex_wait_until(&x->leaving, leaving, until);
	}
}

void legacy_return(struct mm *parent, struct legacy *l)
{
	if (l)
		discard(parent->legacies, l);
}

void legacy_begin(struct mm *parent, struct mm *child)
{
	if (!parent->legacies)
		return;
	refs_get(&parent->legacies->refs);
	child->bequest = parent->legacies;
	MUTEX_GUARD(&child->bequest->lock);
	child->bequest_era = child->bequest->era;
}

void mm_trust_changed(struct mm *mm)
{
	struct legacies *x;

	atomic_store(&mm->apart, true);
	mutex_lock(&mm->active_lock);
	x = mm->legacies;
	mutex_unlock(&mm->active_lock);
	if (!x)
		return;
	mutex_lock(&x->lock);
	x->era++;
	mutex_unlock(&x->lock);
	discard_all(x);
}
