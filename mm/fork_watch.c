/*
 * Waiting for a forked child to give its memory up.
 *
 * Most children execute a program at once, or do little and exit. What their parent writes
 * meanwhile is copied, page by page, each copy at the price of a stop, and all for nothing: were it
 * to wait until the child is gone, it would have its memory back as it was. So a parent whose last
 * children were quick waits when it has broken a few pages and comes for more: as long as the
 * copies after earlier forks have taken, and not much longer than the children then needed. One
 * that has waited in vain does not for some forks, the more often, the more of them.
 *
 * Only for a process of one thread: others would wait along.
 */
#include "mm/mm_impl.h"

#include "base/host_sync.h"
#include "base/host_thread.h"

#include <stdlib.h>
#include <time.h>

#define FREE_BREAKS 3	  /* few are cheaper than any wait */
#define BREAK_NS 100000UL /* what one takes while a child runs, too */
#define LONGEST_WAIT_NS 20000000UL
#define QUICK_NS 60000000UL /* a child whose parent went on beside it */
#define MAX_SKIPS 64
/* What comes sooner is luck. */
#define SHORTEST_NS 500000UL

struct fork_watch {
	struct refs refs; /* parent's and child's */
	u64 began_ns;	  /* immutable */
	_Atomic u32 gone; /* futex */
	_Atomic u64 gone_ns;
};

static void put(struct fork_watch *w)
{
	if (w && refs_put(&w->refs))
		free(w);
}

/* The last child's watch ends: had it gone, and how soon? */
static void learn(struct fork_patience *p)
{
	struct fork_watch *w = p->child;
	u64 took;

	if (!w)
		return;
	took = atomic_load(&w->gone) ? atomic_load(&w->gone_ns) - w->began_ns : 0;
	p->typical_ns = took && p->typical_ns ? (p->typical_ns * 3 + took) / 4 : took;
	p->child = NULL;
	put(w);
}

void fork_watch_begin(struct mm *parent, struct mm *child)
{
	struct fork_patience *p = &parent->patience;
	struct fork_watch *w;

	mutex_assert_held(&parent->active_lock);
	if (!parent->fork_wait)
		return;
	learn(p);
	if (!p->spared)
		p->usual_breaks = p->usual_breaks ? (p->usual_breaks + p->breaks) / 2 : p->breaks;
	p->spared = false;
	p->breaks = 0;
	if (p->skip)
		p->skip--;
	w = calloc(1, sizeof(*w));
	if (!w)
		return;
	refs_init(&w->refs, "fork_watch");
	w->began_ns = host_clock_ns(CLOCK_MONOTONIC);
	p->child = w;
	refs_get(&w->refs);
	child->watched = w;
}

void fork_watch_gone(struct mm *child)
{
	struct fork_watch *w = child->watched;

	mutex_assert_held(&child->active_lock);
	if (!w)
		return;
	child->watched = NULL;
	atomic_store(&w->gone_ns, host_clock_ns(CLOCK_MONOTONIC));
	atomic_store(&w->gone, 1);
	host_futex_wake(&w->gone, 1, true);
	put(w);
}

void fork_watch_end(struct mm *mm)
{
	put(mm->patience.child);
	mm->patience.child = NULL;
}

bool fork_watch_was_quick(const struct mm *mm)
{
	const struct fork_watch *w = mm->patience.child;

	return w && atomic_load(&w->gone) && atomic_load(&w->gone_ns) - w->began_ns < QUICK_NS;
}

/* Nothing speaks against it. */
static bool may_wait(const struct mm *mm, u32 skip)
{
	const struct fork_patience *p = &mm->patience;

	return !skip && p->typical_ns && p->typical_ns < QUICK_NS && atomic_load(&mm->users) == 1 &&
	       !hot_children_stay(mm->hot_set);
}

bool fork_watch_will_wait(struct mm *mm)
{
	u32 skip = mm->patience.skip;

	mutex_assert_held(&mm->active_lock);
	return mm->fork_wait && may_wait(mm, skip ? skip - 1 : 0);
}

bool fork_watch_wants_wait(struct mm *mm)
{
	struct fork_patience *p = &mm->patience;
	u64 now;

	mutex_assert_held(&mm->active_lock);
	if (++p->breaks <= FREE_BREAKS || !p->child || atomic_load(&p->child->gone) ||
	    !may_wait(mm, p->skip))
		return false;
	now = host_clock_ns(CLOCK_MONOTONIC);
	p->until_ns = MIN(now + MIN(p->usual_breaks * BREAK_NS, LONGEST_WAIT_NS),
			  p->child->began_ns + 2 * MAX(p->typical_ns, SHORTEST_NS));
	return p->until_ns > now;
}

static void note_wait(struct mm *mm, const struct fork_watch *w)
{
	struct fork_patience *p = &mm->patience;

	MUTEX_GUARD(&mm->active_lock);
	if (p->child != w)
		return;
	p->spared = atomic_load(&w->gone);
	p->in_vain = p->spared ? 0 : MIN(p->in_vain * 2 + 1, MAX_SKIPS);
	/* For this fork, and some more. */
	p->skip = p->spared ? 0 : p->in_vain + 1;
}

void mm_await_child(struct mm *mm)
{
	struct fork_watch *w;
	u64 until;

	mutex_lock(&mm->active_lock);
	w = mm->patience.child;
	if (w)
		refs_get(&w->refs);
	until = mm->patience.until_ns;
	mutex_unlock(&mm->active_lock);
	if (!w)
		return;
	while (!atomic_load(&w->gone) && host_clock_ns(CLOCK_MONOTONIC) < until)
		host_futex_wait_until(&w->gone, 0, until);
	note_wait(mm, w);
	put(w);
}
