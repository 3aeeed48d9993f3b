/*
 * sentry/futex/futex_impl.h: what the futex files share: buckets and waiters.
 *
 * A waiter lives on the stack of its sleeping task. All its fields but `woken`
 * are under the lock of the bucket it is in; `woken` is stored last by the
 * waker, after which the waker does not touch the waiter.
 */
#ifndef MINISENTRY_SENTRY_FUTEX_FUTEX_IMPL_H
#define MINISENTRY_SENTRY_FUTEX_FUTEX_IMPL_H

#include "sentry/futex/futex.h"
#include "sentry/kernel/kernel.h"
#include <linux/futex.h>

#define FUTEX_BUCKETS 256

struct futex_bucket {
	struct mutex lock;   /* RANK_FUTEX */
	struct list waiters; /* lock */
} __attribute__((aligned(CACHE_LINE)));

struct futex_table {
	struct futex_bucket bucket[FUTEX_BUCKETS];
	_Atomic u32 pi_waiters; /* queued waiters with pi set: lets exits skip the search */
};

struct futex_waiter {
	struct list node;
	struct task *task;	 /* immutable */
	struct mm_futex_key key; /* a reference */
	_Atomic(struct futex_bucket *) bucket;
	u32 bitset;
	bool pi;	 /* waits for the PI lock at `addr`; owner_tid holds it */
	bool requeue_pi; /* waits on a plain word until FUTEX_CMP_REQUEUE_PI moves it to `to_key` */
	u32 owner_tid;
	uaddr addr; /* of the PI word, in task's mm */
	struct mm_futex_key to_key;
	s64 result; /* what the woken task returns */
	_Atomic bool woken;
};

/*
 * Tasks to wake once the locks are dropped, each with a reference, linked
 * through task.futex_wake_next. A task that is on another list already will be
 * woken by that list's owner, after this one's change is visible.
 */
struct wake_list {
	struct task *head, *tail;
};
void wake_list_flush(struct wake_list *wl);

/* Checks alignment, then the word's identity. -EINVAL, -EFAULT. */
int futex_key(struct task *t, uaddr addr, bool private_, struct mm_futex_key *ret);
bool futex_key_equal(const struct mm_futex_key *a, const struct mm_futex_key *b);
struct futex_bucket *futex_bucket_of(struct futex_table *ft, const struct mm_futex_key *key);
/* Two buckets, maybe the same one, in address order. */
void futex_lock_two(struct futex_bucket *a, struct futex_bucket *b);
void futex_unlock_two(struct futex_bucket *a, struct futex_bucket *b);

/* Bucket lock held. */
void futex_enqueue(struct futex_bucket *b, struct futex_waiter *w);
/* Queues w by its key if the word at addr is still val: 0, -EAGAIN, -EFAULT. No locks. */
int futex_enqueue_if(struct task *t, struct futex_waiter *w, uaddr addr, u32 val);
/* Takes w out of its bucket and wakes its task (later, through wl) with `result`. */
void futex_wake_waiter(struct futex_table *ft, struct futex_waiter *w, s64 result,
		       struct wake_list *wl);
/* Moves w to another word; from and to may be one bucket; both locked. */
void futex_move(struct futex_waiter *w, struct futex_bucket *to, const struct mm_futex_key *key);

/* Sleeps until w is woken; then 0, else -ETIMEDOUT or -ERESTARTSYS. No locks. */
int futex_sleep(struct task *t, struct futex_waiter *w, u64 deadline_ns);
/* True when w was still queued (and is not any more); *ret_pi says whether it waited for a PI lock.
 */
bool futex_unqueue(struct futex_table *ft, struct futex_waiter *w, bool *ret_pi);

/* t exits or execs: its PI locks go to their first waiters, marked FUTEX_OWNER_DIED. */
void futex_pi_release(struct task *t);

#endif
