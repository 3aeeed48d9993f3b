/*
 * The stub that a parent has left for the time of a fork.
 *
 * To take from a parent the right to write to what it shares with its child costs the host a look
 * at each page, and the parent a fault for each that it comes back to, for its page tables are
 * gone. So one with much memory goes on in another stub (mm_fork_moving). But most children execute
 * a program or exit at once, and then all of it is the parent's alone again: its old stub, where
 * nothing runs meanwhile, still has it mapped just so. When the children are gone and the parent
 * comes for memory that it has not mapped where it is, it goes home.
 *
 * At home nothing is touched by the fork: what is mapped for writing there may be the child's by
 * now, or anybody's. Nobody can use it, for the guest's thread there has ended by the kernel's word
 * (platform_as_evacuate) before anything was shared, and the next one begins after the mapper has
 * unmapped all that is not the parent's alone and just where it was (adopt.c).
 */
#include "mm/mm_impl.h"

#include <stdlib.h>

/* Who has done so much since then has more mapped where it is than at home. */
#define FAULTS_MAX 1024

/* Children since then that share memory with it. */
struct home_watch {
	struct refs refs; /* the home's and the children's */
	_Atomic u32 sharing;
};

struct home {
	struct platform_as *as; /* a reference */
	struct pma_set pmas;	/* what it has mapped; no references */
	bool exact;		/* there is nothing else */
	struct home_watch *watch;
	u32 faults; /* since */
};

static void watch_put(struct home_watch *w)
{
	if (refs_put(&w->refs))
		free(w);
}

static struct home *home_new(void)
{
	struct home *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->watch = calloc(1, sizeof(*h->watch));
	if (!h->watch) {
		free(h);
		return NULL;
	}
	refs_init(&h->watch->refs, "home_watch");
	pma_set_init(&h->pmas);
	return h;
}

/* The stub is the caller's. */
static struct platform_as *home_free(struct home *h)
{
	struct platform_as *as = h->as;
	struct pma *k;

	while ((k = pma_set_first(&h->pmas)))
		pma_set_drop(&h->pmas, k);
	pma_set_destroy(&h->pmas);
	watch_put(h->watch);
	free(h);
	return as;
}

struct platform_as *home_forget(struct mm *mm)
{
	struct home *h = mm->home;
	struct platform_as *as;

	mm->home = NULL;
	if (!h)
		return NULL;
	as = home_free(h);
	platform_as_retire(as);
	return as;
}

bool home_leave(struct mm *mm)
{
	struct home *h;
	struct pma *p;

	mutex_assert_held(&mm->active_lock);
	ASSERT(!mm->home);
	if (!mm->fork_reuse || platform_as_settle(mm->as) < 0 || !platform_as_evacuate(mm->as))
		return false;
	h = home_new();
	if (!h)
		return false;
	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p)) {
		if (!p->host_map)
			continue;
		if (pma_set_reserve(&h->pmas, 1) < 0) {
			home_free(h);
			return false;
		}
		/* What only fork makes of it does not count. */
		pma_set_append(&h->pmas, &(struct pma){ .start = p->start,
							.end = p->end,
							.file = p->file,
							.offset = p->offset,
							.owned = p->owned,
							.host_map = p->host_map,
							.host_prot = p->host_prot });
	}
	h->exact = !mm->loose && !mm->kept.count;
	h->as = mm->as;
	mm->home = h;
	return true;
}

void home_child_begin(struct mm *parent, struct mm *child)
{
	struct home_watch *w = parent->home ? parent->home->watch : parent->away;

	if (!w)
		return;
	refs_get(&w->refs);
	atomic_fetch_add(&w->sharing, 1);
	child->away = w;
}

void home_child_gone(struct mm *child)
{
	struct home_watch *w = child->away;

	mutex_assert_held(&child->active_lock);
	child->away = NULL;
	if (!w)
		return;
	atomic_fetch_sub(&w->sharing, 1);
	watch_put(w);
}

bool home_calls(struct mm *mm)
{
	struct home *h = mm->home;

	mutex_assert_held(&mm->active_lock);
	if (!h)
		return false;
	if (atomic_load(&h->watch->sharing) == 0)
		return true;
	h->faults++;
	return false;
}

struct platform_as *mm_home(struct mm *mm)
{
	MUTEX_GUARD(&mm->active_lock);
	if (!mm->home || atomic_load(&mm->users) != 1 || mm->home->faults > FAULTS_MAX)
		return NULL;
	return mm->home->as;
}

struct platform_as *mm_forget_home(struct mm *mm)
{
	MUTEX_GUARD(&mm->active_lock);
	return home_forget(mm);
}

struct platform_as *mm_go_home(struct mm *mm)
{
	struct platform_as *old = mm->as;
	struct stub_batch b;
	struct home *h;

	MUTEX_GUARD(&mm->active_lock);
	if (!platform_as_evacuate(old))
		platform_as_kill(old);
	h = mm->home;
	mm->home = NULL;
	held_give_back(mm);
	stub_forget_all(mm);
	if (platform_as_own_gs(old))
		platform_as_set_own_gs(h->as);
	mm->as = h->as;
	stub_batch_begin(mm, &b);
	stub_adopt(mm, &h->pmas, true, h->exact, &b);
	stub_batch_end(&b);
	mm->pmas.generation++;
	home_free(h);
	return old;
}
