/* futex, set_robust_list, get_robust_list. */
#include "sentry/futex/futex.h"
#include "sentry/signal/signal.h"
#include "sentry/sys/handlers.h"
#include "sentry/time/timers.h"
#include <linux/capability.h>
#include <linux/futex.h>

/*
 * The timeout argument as a CLOCK_MONOTONIC deadline. FUTEX_WAIT's is relative
 * (whatever FUTEX_CLOCK_REALTIME says); the others' are absolute, LOCK_PI's always on
 * CLOCK_REALTIME.
 */
static int timeout_in(struct task *t, int cmd, bool realtime, uaddr addr, u64 *ret)
{
	struct timespec ts;
	u64 ns;
	int r;

	*ret = NO_DEADLINE;
	if (addr.v == 0)
		return 0;
	r = sys_timespec_in(t, addr, &ts);
	if (r < 0)
		return r;
	if (cmd == FUTEX_WAIT)
		return sys_deadline_from(&ts, ret);
	if (__builtin_mul_overflow((u64)ts.tv_sec, 1000000000ULL, &ns) ||
	    __builtin_add_overflow(ns, (u64)ts.tv_nsec, &ns) || ns > INT64_MAX)
		ns = INT64_MAX;
	*ret = clock_to_monotonic(
		realtime || cmd == FUTEX_LOCK_PI ? CLOCK_REALTIME : CLOCK_MONOTONIC, ns);
	return 0;
}

static bool takes_timeout(int cmd)
{
	return cmd == FUTEX_WAIT || cmd == FUTEX_WAIT_BITSET || cmd == FUTEX_LOCK_PI ||
	       cmd == FUTEX_LOCK_PI2 || cmd == FUTEX_WAIT_REQUEUE_PI;
}

s64 sys_futex(struct task *t, const u64 a[6])
{
	uaddr addr = ua(a[0]), addr2 = ua(a[4]);
	int op = (int)a[1], cmd = op & FUTEX_CMD_MASK, val2 = (int)a[3];
	bool private_ = op & FUTEX_PRIVATE_FLAG, realtime = op & FUTEX_CLOCK_REALTIME;
	u32 val = (u32)a[2], val3 = (u32)a[5];
	u64 deadline = NO_DEADLINE;
	int r;

	if (realtime && cmd != FUTEX_WAIT && cmd != FUTEX_WAIT_BITSET &&
	    cmd != FUTEX_WAIT_REQUEUE_PI && cmd != FUTEX_LOCK_PI2)
		return -ENOSYS;
	if (takes_timeout(cmd) && (r = timeout_in(t, cmd, realtime, ua(a[3]), &deadline)) < 0)
		return r;
	switch (cmd) {
	case FUTEX_WAIT:
		return futex_wait(t, addr, private_, val, FUTEX_BITSET_MATCH_ANY, deadline, true);
	case FUTEX_WAIT_BITSET: return futex_wait(t, addr, private_, val, val3, deadline, false);
	case FUTEX_WAKE: return futex_wake(t, addr, private_, FUTEX_BITSET_MATCH_ANY, (int)val);
	case FUTEX_WAKE_BITSET: return futex_wake(t, addr, private_, val3, (int)val);
	case FUTEX_REQUEUE: return futex_requeue(t, addr, addr2, private_, (int)val, val2, NULL);
	case FUTEX_CMP_REQUEUE:
		return futex_requeue(t, addr, addr2, private_, (int)val, val2, &val3);
	case FUTEX_WAKE_OP: return futex_wake_op(t, addr, addr2, private_, (int)val, val2, val3);
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2: return futex_lock_pi(t, addr, private_, deadline, false);
	case FUTEX_TRYLOCK_PI: return futex_lock_pi(t, addr, private_, NO_DEADLINE, true);
	case FUTEX_UNLOCK_PI: return futex_unlock_pi(t, addr, private_);
	case FUTEX_WAIT_REQUEUE_PI:
		return futex_wait_requeue_pi(t, addr, private_, val, FUTEX_BITSET_MATCH_ANY,
					     deadline, addr2);
	case FUTEX_CMP_REQUEUE_PI:
		return futex_cmp_requeue_pi(t, addr, addr2, private_, (int)val, val2, val3);
	default: return -ENOSYS;
	}
}

s64 sys_set_robust_list(struct task *t, const u64 a[6])
{
	if (a[1] != sizeof(struct robust_list_head))
		return -EINVAL;
	t->robust_list = ua(a[0]);
	t->robust_list_len = a[1];
	return 0;
}

/* ptrace's access rule, as far as credentials go (man 2 get_robust_list). */
static bool may_inspect(struct task *t, struct task *target)
{
	const struct cred *c = target == t ? NULL : task_get_cred(target);
	const struct cred *me = t->cred;
	bool ok = c == NULL || cred_capable(me, CAP_SYS_PTRACE) ||
		  (me->uid == c->euid && me->uid == c->suid && me->uid == c->uid &&
		   me->gid == c->egid && me->gid == c->sgid && me->gid == c->gid);

	cred_put(c);
	return ok;
}

s64 sys_get_robust_list(struct task *t, const u64 a[6])
{
	struct task *target = (int)a[0] == 0 ? task_get(t) : task_find(t->kernel, (int)a[0]);
	u64 head, len = sizeof(struct robust_list_head);
	int r;

	if (target == NULL)
		return -ESRCH;
	r = may_inspect(t, target) ? 0 : -EPERM;
	head = target->robust_list.v;
	task_put(target);
	if (r == 0)
		r = copy_out(t, ua(a[2]), &len, sizeof(len));
	if (r == 0)
		r = copy_out(t, ua(a[1]), &head, sizeof(head));
	return r;
}
