/*
 * base/waitq.h: wait queues, how one task learns that another changed something.
 *
 * An object that can become ready (pipe, socket, child list, timer) owns a
 * `struct waitq`. Whoever wants to hear of it adds a `struct waiter` with an
 * event mask (EPOLL* bits) and a callback, checks the condition, and then
 * sleeps in task_block() (sentry/task). Waking runs every callback whose mask
 * meets the events, under the queue's lock: a callback only sets flags, pushes
 * to lists of rank LEAF and asks for wakes; it never blocks or takes a ranked
 * lock below RANK_LEAF. Threads that it wakes by wake_word run once the locks
 * are released, for the first thing they do is to take them.
 *
 *	waitq_add(&pipe->waitq, &w);
 *	while ((ret = pipe_read(...)) == -EAGAIN)
 *		if ((ret = task_block(...)) < 0)
 *			break;
 *	waitq_remove(&w);
 *
 * Who has checked the condition already need not do so again when nothing came
 * between: waitq_sequence() before the check, waitq_unchanged() after the add.
 *
 * Layers below sentry/ never sleep: they return -EAGAIN and own the queue.
 */
#ifndef MINISENTRY_BASE_WAITQ_H
#define MINISENTRY_BASE_WAITQ_H

#include "base/list.h"
#include "base/lock.h"
#include <stdatomic.h>

struct waiter;
typedef void waiter_fn(struct waiter *w, u32 events);

struct waitq {
	struct mutex lock;
	struct list waiters; /* protected by lock */
	/* Wakes so far, times WAITQ_WAKE, plus the number of waiters: a wake of an empty queue
	 * takes no lock. */
	_Atomic u64 state;
};
#define WAITQ_WAKE (1ULL << 32)

struct waiter {
	struct list node;    /* protected by queue->lock */
	struct waitq *queue; /* NULL when not queued: set it so before first use */
	u32 events;	     /* immutable while queued */
	bool exclusive;	     /* wake at most one exclusive waiter per wake */
	waiter_fn *fn;
	void *arg;
};

void waitq_init(struct waitq *q);
/* Wakes all that wait (events EPOLLHUP|EPOLLERR|POLLFREE semantics are the owner's). */
void waitq_destroy(struct waitq *q);
void waitq_add(struct waitq *q, struct waiter *w);
/* Harmless when w is not queued. After it returns, fn is not running and never will. */
void waitq_remove(struct waiter *w);
/* Somebody waits, as far as the caller can know: for those whose lock waiters hold at their check.
 */
static inline bool waitq_active(struct waitq *q)
{
	return (u32)atomic_load_explicit(&q->state, memory_order_acquire) != 0;
}
/* EPOLLERR and EPOLLHUP reach every waiter whatever its mask. */
void waitq_wake(struct waitq *q, u32 events);
/* The same from within a callback of another queue, for epoll: the caller keeps the order acyclic.
 */
void waitq_wake_nested(struct waitq *q, u32 events);

/* How many wakes there have been; waitq_unchanged: none since, by whoever did not see our waiter.
 */
static inline u32 waitq_sequence(struct waitq *q)
{
	return (u32)(atomic_load(&q->state) / WAITQ_WAKE);
}
static inline bool waitq_unchanged(struct waitq *q, u32 sequence)
{
	return waitq_sequence(q) == sequence;
}

/*
 * Sets *word to 1 and wakes the thread that sleeps on it (private futex) if it was 0: at once, or
 * where wakes are being held back, at the end of that. The word may be gone by then: whoever
 * sleeps on a word allows for wakes that mean nothing.
 */
void wake_word(_Atomic u32 *word);
/* Holds wakes of this thread back until the matching wake_release; they nest. */
void wake_hold(void);
void wake_release(void);
bool wake_is_held(void); /* nobody sleeps then */

#endif
