#include "base/waitq.h"
#include "base/host_sync.h"
#include <sys/epoll.h>

/* ---- wakes held back ---- */

#define HELD_MAX 32
static __thread struct {
	u32 depth, count;
	_Atomic u32 *words[HELD_MAX];
} held;

void wake_word(_Atomic u32 *word)
{
	if (atomic_exchange(word, 1) != 0)
		return;
	if (held.depth && held.count < HELD_MAX)
		held.words[held.count++] = word;
	else
		host_futex_wake(word, 1, true);
}

void wake_hold(void)
{
	held.depth++;
}

void wake_release(void)
{
	if (--held.depth)
		return;
	for (u32 i = 0; i < held.count; i++)
		host_futex_wake(held.words[i], 1, true);
	held.count = 0;
}

bool wake_is_held(void)
{
	return held.depth;
}

/* ---- queues ---- */

void waitq_init(struct waitq *q)
{
	mutex_init(&q->lock, RANK_WAITQ, "waitq");
	list_init(&q->waiters);
	atomic_store(&q->state, 0);
}

void waitq_destroy(struct waitq *q)
{
	mutex_destroy(&q->lock);
}

void waitq_add(struct waitq *q, struct waiter *w)
{
	mutex_lock(&q->lock);
	w->queue = q;
	list_push_back(&q->waiters, &w->node);
	/* Sequentially consistent: whoever changes the object's state after our
	 * caller's check must see the count in waitq_wake. */
	atomic_fetch_add(&q->state, 1);
	mutex_unlock(&q->lock);
}

void waitq_remove(struct waiter *w)
{
	struct waitq *q = w->queue;

	if (!q)
		return;
	mutex_lock(&q->lock);
	list_del(&w->node);
	w->queue = NULL;
	atomic_fetch_sub(&q->state, 1);
	mutex_unlock(&q->lock);
}

static void wake(struct waitq *q, u32 events, bool nested)
{
	struct waiter *w, *tmp;
	struct list exclusive_woken;
	bool woke_exclusive = false;

	/* A full barrier: the change of state before it is seen by a waiter that is not counted
	 * yet.
	 */
	if ((u32)atomic_fetch_add(&q->state, WAITQ_WAKE) == 0)
		return;
	list_init(&exclusive_woken);
	wake_hold();
	if (nested)
		mutex_lock_nested(&q->lock);
	else
		mutex_lock(&q->lock);
	list_for_each_safe (w, tmp, &q->waiters, node) {
		if (!((w->events | EPOLLERR | EPOLLHUP) & events))
			continue;
		if (w->exclusive) {
			if (woke_exclusive)
				continue;
			woke_exclusive = true;
			/* To the back, so that the next wake reaches another one. */
			list_del(&w->node);
			list_push_back(&exclusive_woken, &w->node);
		}
		w->fn(w, events);
	}
	if (woke_exclusive) {
		w = list_first(&exclusive_woken, struct waiter, node);
		list_del(&w->node);
		list_push_back(&q->waiters, &w->node);
	}
	mutex_unlock(&q->lock);
	wake_release();
}

void waitq_wake(struct waitq *q, u32 events)
{
	wake(q, events, false);
}

void waitq_wake_nested(struct waitq *q, u32 events)
{
	wake(q, events, true);
}
