#include "base/waitq.h"
#include <stdatomic.h>
#include <sys/epoll.h>

void waitq_init(struct waitq *q)
{
	mutex_init(&q->lock, RANK_WAITQ, "waitq");
	list_init(&q->waiters);
	atomic_store(&q->count, 0);
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
	atomic_fetch_add(&q->count, 1);
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
	atomic_fetch_sub(&q->count, 1);
	mutex_unlock(&q->lock);
}

static void wake(struct waitq *q, u32 events, bool nested)
{
	struct waiter *w, *tmp;
	struct list exclusive_woken;
	bool woke_exclusive = false;

	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&q->count) == 0)
		return;
	list_init(&exclusive_woken);
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
}

void waitq_wake(struct waitq *q, u32 events)
{
	wake(q, events, false);
}

void waitq_wake_nested(struct waitq *q, u32 events)
{
	wake(q, events, true);
}
