/*
 * Robust lists: what happens to the locks that a dying task holds
 * (Linux: Documentation/locking/robust-futexes.rst). Everything read here was
 * written by the guest: the walk is bounded and every step checked.
 */
#include "sentry/futex/futex_impl.h"

#define CMPXCHG_TRIES 64

/* A list pointer's lowest bit marks a PI futex. */
static int fetch_entry(struct task *t, u64 addr, u64 *ret_entry, bool *ret_pi)
{
	u64 v;

	if (copy_in(t, &v, ua(addr), sizeof(v)) < 0)
		return -EFAULT;
	*ret_pi = v & 1;
	*ret_entry = v & ~1ULL;
	return 0;
}

/* One lock of the list; -1 ends the walk. */
static int lock_owner_died(struct task *t, uaddr addr, bool pi, bool pending)
{
	u32 cur, seen;

	if (addr.v % sizeof(u32) || mm_load32(t->mm, addr, &cur) < 0)
		return -1;
	for (int i = 0; i < CMPXCHG_TRIES; i++) {
		/* Unlocked in user space, but the wake never happened: pass it on. */
		if (pending && !pi && (cur & FUTEX_TID_MASK) == 0) {
			futex_wake_addr(t, addr, 1);
			return 0;
		}
		if ((cur & FUTEX_TID_MASK) != (u32)t->tid)
			return 0;
		if (mm_cmpxchg32(t->mm, addr, cur, (cur & FUTEX_WAITERS) | FUTEX_OWNER_DIED,
				 &seen) < 0)
			return -1;
		if (seen == cur) {
			if (!pi && (cur & FUTEX_WAITERS))
				futex_wake_addr(t, addr, 1);
			return 0;
		}
		cur = seen;
	}
	return 0;
}

static void walk_robust_list(struct task *t, uaddr head)
{
	u64 entry, next, pending;
	s64 offset;
	bool pi, next_pi, pending_pi;
	int limit = FUTEX_ROBUST_LIMIT;

	if (fetch_entry(t, head.v + offsetof(struct robust_list_head, list.next), &entry, &pi) <
		    0 ||
	    copy_in(t, &offset, ua(head.v + offsetof(struct robust_list_head, futex_offset)),
		    sizeof(offset)) < 0 ||
	    fetch_entry(t, head.v + offsetof(struct robust_list_head, list_op_pending), &pending,
			&pending_pi) < 0)
		return;
	while (entry != head.v && limit-- > 0) {
		/* Fetched first: after OWNER_DIED another thread may take and free the lock. */
		int r = fetch_entry(t, entry, &next, &next_pi);

		if (entry != pending && lock_owner_died(t, ua(entry + (u64)offset), pi, false) < 0)
			return;
		if (r < 0)
			return;
		entry = next;
		pi = next_pi;
	}
	if (pending)
		lock_owner_died(t, ua(pending + (u64)offset), pending_pi, true);
}

void futex_release(struct task *t)
{
	uaddr head = t->robust_list;

	if (t->mm == NULL)
		return;
	atomic_store(&t->futex_released, 1);
	t->robust_list = ua(0);
	if (head.v)
		walk_robust_list(t, head);
	futex_pi_release(t);
	atomic_store(&t->futex_released, 2);
}
