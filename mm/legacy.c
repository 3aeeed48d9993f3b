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
#include "mm/mm_impl.h"

#include "base/host_sync.h"
#include "base/host_thread.h"

#include <stdlib.h>
#include <time.h>

/* Legacies of a parent, and of all. */
#define PER_PARENT 2
#define ALL_MAX 24
/* A child with more pieces than this is no ordinary one. */
#define PIECES_MAX 4096
/* Of private pages, whatever they are; and of those that the next fork may copy at once. */
#define BYTES_MAX (512UL << 10)
#define HOT_BYTES_MAX (32UL << 20)
/* All that is kept is no more than this part of the memory file. */
#define KEEP_SHARE 8
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

/* ---- the set of a parent ---- */

static struct legacy *pop(struct legacies *x)
{
	MUTEX_GUARD(&x->lock);
	return x->count ? x->kept[--x->count] : NULL;
}

/* Takes records out of l up to one of private pages, whose reference is the caller's. */
static bool next_private(struct legacy *l, struct held *ret)
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
	while (next_private(l, &h))
		memfile_put(h.file, h.range);
	pgalloc_account_kept(x->memory, -(s64)bytes);
	pma_set_destroy(&l->pmas);
	free(l);
	atomic_fetch_sub(&all, 1);
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

		if (l->bytes <= BYTES_MAX)
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

void legacy_expect(struct mm *mm, u64 bytes)
{
	mutex_assert_held(&mm->active_lock);
	if (!mm->bequest || MIN(bytes, hot_size(mm->hot_set)) <= BYTES_MAX ||
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
	MUTEX_GUARD(&x->lock);
	return !x->closed && x->era == mm->bequest_era && x->count < PER_PARENT &&
	       x->forks >= FORKS_MIN;
}

/* p's memory may lie idle until the next child. have: bytes that do already. */
static bool worth_keeping(struct mm *mm, const struct pma *p, u64 have)
{
	u64 len = p->end - p->start, most = BYTES_MAX;

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

/* False: the parent is gone or another, or has enough. */
static bool hand_over(struct legacies *x, u32 era, struct legacy *l)
{
	MUTEX_GUARD(&x->lock);
	if (x->closed || x->era != era || x->count == PER_PARENT)
		return false;
	x->kept[x->count++] = l;
	x->last_ns = host_clock_ns(CLOCK_MONOTONIC);
	return true;
}

void legacy_leave(struct mm *mm)
{
	struct legacy *l = NULL;
	bool much;

	if (atomic_fetch_add(&all, 1) >= ALL_MAX) {
		atomic_fetch_sub(&all, 1);
		return;
	}
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
		atomic_fetch_sub(&all, 1);
		return;
	}
	much = l->bytes > BYTES_MAX;
	if (!hand_over(mm->bequest, mm->bequest_era, l))
		discard(mm->bequest, l);
	else if (much)
		begin_watch(mm->bequest);
	legacy_left(mm);
}

/* ---- inheriting one ---- */

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

u64 legacy_alike_until(const struct legacy *l, u64 start, u64 end)
{
	const struct pma *k = l ? pma_set_seek(&l->pmas, start) : NULL;

	if (k && k->start <= start && k->host_map == PMA_MAP_WRITE)
		return MIN(k->end, end);
	while (k && k->start < end && k->host_map != PMA_MAP_WRITE)
		k = pma_next(k);
	return k ? MIN(k->start, end) : end;
}

bool legacy_copy(struct mm *child, struct legacy *l, const struct vma *v, struct pma *value)
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
			      pgalloc_of(k->file), dst) < 0)
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
	while (next_private(l, &h)) {
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
	atomic_fetch_sub(&all, 1);
}
