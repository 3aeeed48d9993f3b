/*
 * sentry/futex/futex.h: futexes.
 *
 * A waiter sits in a hash bucket chosen by the word's identity (mm_futex_key).
 * Every test of the word that decides whether to sleep, requeue or hand over
 * happens under its bucket's lock, so a wake cannot fall between test and
 * sleep. RANK_FUTEX is outside mm's locks: reading the word may fault there.
 *
 * PI futexes keep Linux's word protocol (owner tid, FUTEX_WAITERS,
 * FUTEX_OWNER_DIED): whoever unlocks, or the exit of the owner, writes the next
 * owner's tid into the word and wakes it. There is no priority to inherit,
 * since the sentry does not schedule.
 *
 * Robust lists: futex_release() walks the list of the task (exit and exec).
 * Locks: RANK_FUTEX; two buckets by address. Never held while sleeping.
 */
#ifndef MINISENTRY_SENTRY_FUTEX_FUTEX_H
#define MINISENTRY_SENTRY_FUTEX_FUTEX_H

#include "sentry/task/task.h"

struct futex_table;

/* Linux's bound on robust lists. */
#define FUTEX_ROBUST_LIMIT 2048

struct futex_table *futex_table_new(void); /* NULL: no memory */
void futex_table_free(struct futex_table *ft);

/* FUTEX_WAKE of `count` waiters on a shared-or-private word of the current task's mm. Number woken,
 * -EFAULT. */
s64 futex_wake_addr(struct task *t, uaddr addr, int count);
/* For set_tid_address / CLONE_CHILD_CLEARTID at exit: stores 0 at t->clear_child_tid and wakes one.
 * Errors are ignored. */
void futex_clear_child_tid(struct task *t);
/*
 * The task leaves its mm (exit, or exec before the new mm is installed): walks the robust list,
 * hands PI futexes that it owns to their waiters, forgets the list. Own thread, t->mm still valid,
 * no locks held.
 */
void futex_release(struct task *t);
/* The same under the name that exit code uses. */
static inline void futex_robust_exit(struct task *t)
{
	futex_release(t);
}

/* futex(2) after decoding: see sys_futex.c. deadline_ns: CLOCK_MONOTONIC absolute or NO_DEADLINE.
 */
s64 futex_wait(struct task *t, uaddr addr, bool private_, u32 val, u32 bitset, u64 deadline_ns,
	       bool relative);
s64 futex_wake(struct task *t, uaddr addr, bool private_, u32 bitset, int count);
s64 futex_requeue(struct task *t, uaddr from, uaddr to, bool private_, int wake, int requeue,
		  const u32 *expected_or_null);
s64 futex_wake_op(struct task *t, uaddr a, uaddr b, bool private_, int wake_a, int wake_b, u32 op);
s64 futex_lock_pi(struct task *t, uaddr addr, bool private_, u64 deadline_ns, bool try_only);
s64 futex_unlock_pi(struct task *t, uaddr addr, bool private_);
s64 futex_wait_requeue_pi(struct task *t, uaddr addr, bool private_, u32 val, u32 bitset,
			  u64 deadline_ns, uaddr to);
s64 futex_cmp_requeue_pi(struct task *t, uaddr from, uaddr to, bool private_, int wake, int requeue,
			 u32 expected);

#endif
