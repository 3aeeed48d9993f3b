/*
 * Scheduling attributes. The host schedules the threads: policies, priorities
 * and masks are kept, checked and reported as Linux would, but not imposed.
 */
#include "base/host_time.h"
#include "base/host_sync.h"
#include "sentry/sys/handlers.h"
#include <linux/capability.h>
#include <linux/ioprio.h>
#include <linux/membarrier.h>
#include <linux/mempolicy.h>
#include <linux/sched.h>
/* libc has defined the same struct by its name. */
#define sched_param kernel_sched_param
#include <linux/sched/types.h>
#undef sched_param
#include <string.h>

#define RT_PRIORITY_MAX 99
#define RR_INTERVAL_NS 100000000
#define AFFINITY_WORDS 16

/* 0 is the caller. A reference. -EINVAL, -ESRCH. */
static int target_get(struct task *t, int pid, struct task **ret)
{
	if (pid < 0)
		return -EINVAL;
	*ret = pid == 0 ? task_get(t) : task_find(t->kernel, pid);
	return *ret ? 0 : -ESRCH;
}

/* The caller owns the target, or may act on any (man 7 sched). */
static bool may_change(struct task *t, struct task *target)
{
	const struct cred *c;
	bool ok;

	if (target == t || cred_capable(t->cred, CAP_SYS_NICE))
		return true;
	c = task_get_cred(target);
	ok = t->cred->euid == c->euid || t->cred->euid == c->uid;
	cred_put(c);
	return ok;
}

s64 sys_sched_yield(struct task *t, const u64 a[6])
{
	host_yield();
	return 0;
}

/* ---- policies ---- */

struct sched_change {
	u32 policy, priority;
	u64 flags;
	int nice;
	bool set_nice;
	u64 runtime, deadline, period;
};

static bool is_rt(u32 policy)
{
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

static int check_change(struct task *t, struct task *target, const struct sched_change *c)
{
	u64 limit;

	if (c->policy != SCHED_NORMAL && !is_rt(c->policy) && c->policy != SCHED_BATCH &&
	    c->policy != SCHED_IDLE && c->policy != SCHED_DEADLINE)
		return -EINVAL;
	if (c->priority > RT_PRIORITY_MAX || is_rt(c->policy) != (c->priority != 0))
		return -EINVAL;
	if (c->policy == SCHED_DEADLINE &&
	    (c->deadline == 0 || c->runtime < 1024 || c->runtime > c->deadline ||
	     (c->deadline >> 63) || (c->period && c->deadline > c->period)))
		return -EINVAL;
	if (!may_change(t, target))
		return -EPERM;
	if (cred_capable(t->cred, CAP_SYS_NICE))
		return 0;
	if (c->policy == SCHED_DEADLINE)
		return -EPERM;
	if (is_rt(c->policy)) {
		limit = task_rlimit(target, RLIMIT_RTPRIO);
		if (c->policy != target->sched_policy && limit == 0)
			return -EPERM;
		if (c->priority > target->sched_priority && c->priority > limit)
			return -EPERM;
	}
	if (c->set_nice && c->nice < target->nice &&
	    (u64)(20 - c->nice) > task_rlimit(target, RLIMIT_NICE))
		return -EPERM;
	if ((target->misc.sched_flags & SCHED_FLAG_RESET_ON_FORK) &&
	    !(c->flags & SCHED_FLAG_RESET_ON_FORK))
		return -EPERM;
	return 0;
}

static int apply_change(struct task *t, int pid, const struct sched_change *c)
{
	struct task *target;
	int r = target_get(t, pid, &target);

	if (r < 0)
		return r;
	r = check_change(t, target, c);
	if (r == 0) {
		MUTEX_GUARD(&target->lock);
		target->sched_policy = c->policy;
		target->sched_priority = c->priority;
		target->misc.sched_flags = (u32)c->flags;
		target->misc.sched_runtime = c->runtime;
		target->misc.sched_deadline = c->deadline;
		target->misc.sched_period = c->period;
		if (c->set_nice)
			target->nice = c->nice;
	}
	task_put(target);
	return r;
}

s64 sys_sched_setscheduler(struct task *t, const u64 a[6])
{
	int policy = (int)a[1], priority, r;
	struct sched_change c = { 0 };

	if (policy < 0 || (int)a[0] < 0 || a[2] == 0)
		return -EINVAL;
	r = copy_in(t, &priority, ua(a[2]), sizeof(priority));
	if (r < 0)
		return r;
	if (policy & SCHED_RESET_ON_FORK)
		c.flags = SCHED_FLAG_RESET_ON_FORK;
	c.policy = (u32)(policy & ~SCHED_RESET_ON_FORK);
	c.priority = (u32)priority;
	if (c.policy == SCHED_DEADLINE)
		return -EINVAL;
	return apply_change(t, (int)a[0], &c);
}

s64 sys_sched_setparam(struct task *t, const u64 a[6])
{
	struct sched_change c = { 0 };
	struct task *target = NULL;
	int priority, r;

	if ((int)a[0] < 0 || a[1] == 0)
		return -EINVAL;
	r = copy_in(t, &priority, ua(a[1]), sizeof(priority));
	if (r == 0)
		r = target_get(t, (int)a[0], &target);
	if (r)
		return r;
	c.policy = target->sched_policy;
	c.flags = target->misc.sched_flags;
	c.priority = (u32)priority;
	task_put(target);
	return apply_change(t, (int)a[0], &c);
}

s64 sys_sched_getscheduler(struct task *t, const u64 a[6])
{
	struct task *target;
	s64 r = target_get(t, (int)a[0], &target);

	if (r < 0)
		return r;
	r = (s64)(target->sched_policy |
		  (target->misc.sched_flags & SCHED_FLAG_RESET_ON_FORK ? SCHED_RESET_ON_FORK : 0));
	task_put(target);
	return r;
}

s64 sys_sched_getparam(struct task *t, const u64 a[6])
{
	struct task *target;
	int priority, r;

	if (a[1] == 0)
		return -EINVAL;
	r = target_get(t, (int)a[0], &target);
	if (r < 0)
		return r;
	priority = is_rt(target->sched_policy) ? (int)target->sched_priority : 0;
	task_put(target);
	return copy_out(t, ua(a[1]), &priority, sizeof(priority));
}

static s64 priority_bound(int policy, s64 rt)
{
	switch (policy) {
	case SCHED_FIFO:
	case SCHED_RR: return rt;
	case SCHED_NORMAL:
	case SCHED_BATCH:
	case SCHED_IDLE:
	case SCHED_DEADLINE: return 0;
	default: return -EINVAL;
	}
}

s64 sys_sched_get_priority_max(struct task *t, const u64 a[6])
{
	return priority_bound((int)a[0], RT_PRIORITY_MAX);
}

s64 sys_sched_get_priority_min(struct task *t, const u64 a[6])
{
	return priority_bound((int)a[0], 1);
}

s64 sys_sched_rr_get_interval(struct task *t, const u64 a[6])
{
	struct timespec ts = { 0, 0 };
	struct task *target;
	int r = target_get(t, (int)a[0], &target);

	if (r < 0)
		return r;
	if (target->sched_policy == SCHED_RR)
		ts.tv_nsec = RR_INTERVAL_NS;
	else if (target->sched_policy == SCHED_NORMAL || target->sched_policy == SCHED_BATCH)
		ts.tv_nsec = 4000000;
	task_put(target);
	return sys_timespec_out(t, ua(a[1]), &ts);
}

/* struct sched_attr grows at its end: a larger one is fine when the unknown rest is zero. */
static int sched_attr_in(struct task *t, uaddr a, struct sched_attr *ret)
{
	u32 size, ours = sizeof(*ret);
	u8 rest[256];
	int r = copy_in(t, &size, a, sizeof(size));

	if (r < 0)
		return r;
	if (size == 0)
		size = SCHED_ATTR_SIZE_VER0;
	if (size < SCHED_ATTR_SIZE_VER0 || size > PAGE_SIZE)
		goto too_big;
	memset(ret, 0, sizeof(*ret));
	r = copy_in(t, ret, a, MIN(size, ours));
	for (u32 at = ours; r == 0 && at < size; at += sizeof(rest)) {
		u32 n = MIN(size - at, (u32)sizeof(rest));

		r = copy_in(t, rest, ua_add(a, at), n);
		for (u32 i = 0; r == 0 && i < n; i++)
			if (rest[i])
				goto too_big;
	}
	return r;
too_big:
	r = copy_out(t, a, &ours, sizeof(ours));
	return r < 0 ? r : -E2BIG;
}

s64 sys_sched_setattr(struct task *t, const u64 a[6])
{
	struct sched_attr attr;
	struct sched_change c;
	struct task *target;
	int r;

	if (a[1] == 0 || (int)a[0] < 0 || a[2] != 0)
		return -EINVAL;
	r = sched_attr_in(t, ua(a[1]), &attr);
	if (r < 0)
		return r;
	if ((int)attr.sched_policy < 0 || (attr.sched_flags & ~(u64)SCHED_FLAG_ALL))
		return -EINVAL;
	c = (struct sched_change){ .policy = attr.sched_policy,
				   .priority = attr.sched_priority,
				   .flags = attr.sched_flags & SCHED_FLAG_RESET_ON_FORK,
				   .nice = MIN(MAX(attr.sched_nice, -20), 19),
				   .set_nice = attr.sched_policy == SCHED_NORMAL ||
					       attr.sched_policy == SCHED_BATCH,
				   .runtime = attr.sched_runtime,
				   .deadline = attr.sched_deadline,
				   .period = attr.sched_period };
	if (attr.sched_flags & (SCHED_FLAG_KEEP_POLICY | SCHED_FLAG_KEEP_PARAMS)) {
		r = target_get(t, (int)a[0], &target);
		if (r < 0)
			return r;
		if (attr.sched_flags & SCHED_FLAG_KEEP_POLICY)
			c.policy = target->sched_policy;
		if (attr.sched_flags & SCHED_FLAG_KEEP_PARAMS) {
			c.priority = target->sched_priority;
			c.set_nice = false;
		}
		task_put(target);
	}
	return apply_change(t, (int)a[0], &c);
}

s64 sys_sched_getattr(struct task *t, const u64 a[6])
{
	struct sched_attr attr = { 0 };
	u32 size = (u32)a[2];
	struct task *target;
	int r;

	if (a[1] == 0 || size > PAGE_SIZE || size < SCHED_ATTR_SIZE_VER0 || (u32)a[3] != 0)
		return -EINVAL;
	r = target_get(t, (int)a[0], &target);
	if (r < 0)
		return r;
	attr.size = MIN(size, (u32)sizeof(attr));
	attr.sched_policy = target->sched_policy;
	attr.sched_flags = target->misc.sched_flags & SCHED_FLAG_RESET_ON_FORK;
	if (is_rt(target->sched_policy))
		attr.sched_priority = target->sched_priority;
	else if (target->sched_policy != SCHED_DEADLINE)
		attr.sched_nice = target->nice;
	attr.sched_runtime = target->misc.sched_runtime;
	attr.sched_deadline = target->misc.sched_deadline;
	attr.sched_period = target->misc.sched_period;
	attr.sched_util_max = 1024;
	task_put(target);
	return copy_out(t, ua(a[1]), &attr, attr.size);
}

/* ---- affinity ---- */

static size_t mask_bytes(const struct kernel *k)
{
	return (((size_t)k->cpu_count + 63) / 64) * sizeof(u64);
}

s64 sys_sched_setaffinity(struct task *t, const u64 a[6])
{
	u64 mask[AFFINITY_WORDS] = { 0 }, any = 0;
	struct task *target = NULL;
	int r = copy_in(t, mask, ua(a[2]), MIN(a[1], sizeof(mask)));

	if (r == 0)
		r = target_get(t, (int)a[0], &target);
	if (r < 0)
		return r == -EINVAL ? -ESRCH : r;
	for (size_t i = 0; i < AFFINITY_WORDS; i++) {
		mask[i] &= t->kernel->cpu_mask[i];
		any |= mask[i];
	}
	if (!may_change(t, target))
		r = -EPERM;
	else if (!any)
		r = -EINVAL;
	if (r == 0) {
		MUTEX_GUARD(&target->lock);
		memcpy(target->affinity, mask, sizeof(mask));
	}
	task_put(target);
	return r;
}

s64 sys_sched_getaffinity(struct task *t, const u64 a[6])
{
	u32 size = (u32)a[1];
	u64 mask[AFFINITY_WORDS], any = 0;
	struct task *target;
	size_t bytes;
	int r;

	if ((u64)size * 8 < (u64)t->kernel->cpu_count || size % sizeof(u64))
		return -EINVAL;
	r = target_get(t, (int)a[0], &target);
	if (r < 0)
		return r == -EINVAL ? -ESRCH : r;
	mutex_lock(&target->lock);
	memcpy(mask, target->affinity, sizeof(mask));
	mutex_unlock(&target->lock);
	task_put(target);
	for (size_t i = 0; i < AFFINITY_WORDS; i++)
		any |= mask[i];
	if (!any) /* never set: all that the kernel has */
		memcpy(mask, t->kernel->cpu_mask, sizeof(mask));
	bytes = MIN(size, mask_bytes(t->kernel));
	r = copy_out(t, ua(a[2]), mask, bytes);
	return r < 0 ? r : (s64)bytes;
}

s64 sys_getcpu(struct task *t, const u64 a[6])
{
	u32 cpu, node;
	int r = 0;

	host_getcpu(&cpu, &node);
	/* The guest's cpus are numbered from 0, and there is one node. */
	cpu %= (u32)t->kernel->cpu_count;
	node = 0;
	if (a[0])
		r = copy_out(t, ua(a[0]), &cpu, sizeof(cpu));
	if (r == 0 && a[1])
		r = copy_out(t, ua(a[1]), &node, sizeof(node));
	return r;
}

/* ---- membarrier ---- */

#define MEMBARRIER_REGISTERS                                                                       \
	(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
#define MEMBARRIER_SUPPORTED                                                                       \
	(MEMBARRIER_CMD_GLOBAL | MEMBARRIER_CMD_GLOBAL_EXPEDITED |                                 \
	 MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_REGISTERS)

/* Every command is served by the host's barrier over all running threads, stubs' included. */
s64 sys_membarrier(struct task *t, const u64 a[6])
{
	int cmd = (int)a[0];

	if (!host_membarrier_available())
		return -ENOSYS;
	if ((u32)a[1] != 0)
		return -EINVAL;
	switch (cmd) {
	case MEMBARRIER_CMD_QUERY: return MEMBARRIER_SUPPORTED;
	case MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED:
	case MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED:
		atomic_fetch_or(&t->tg->membarrier, (u32)cmd);
		return 0;
	case MEMBARRIER_CMD_PRIVATE_EXPEDITED:
		if (!(atomic_load(&t->tg->membarrier) & MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
			return -EPERM;
		return host_membarrier_all();
	case MEMBARRIER_CMD_GLOBAL:
	case MEMBARRIER_CMD_GLOBAL_EXPEDITED: return host_membarrier_all();
	default: return -EINVAL;
	}
}

/*
 * Restartable sequences need the kernel that preempts the thread to restart it. That is the
 * host's, and it knows only the stub; so this kernel has none, which C libraries handle.
 */
s64 sys_rseq(struct task *t, const u64 a[6])
{
	return -ENOSYS;
}

/* ---- memory policy: one node ---- */

#define NODE_BITS_MAX (PAGE_SIZE * 8)

/* A node mask: only node 0 exists. *ret_node0. -EINVAL for any other. */
static int node_mask_in(struct task *t, uaddr a, u64 max_node, bool *ret_node0)
{
	u64 bits = max_node ? max_node - 1 : 0, word;

	*ret_node0 = false;
	if (bits > NODE_BITS_MAX)
		return -EINVAL;
	if (a.v == 0)
		return 0;
	for (u64 at = 0; at < bits; at += 64) {
		int r = copy_in(t, &word, ua_add(a, at / 8), sizeof(word));

		if (r < 0)
			return r;
		if (bits - at < 64)
			word &= (1ULL << (bits - at)) - 1;
		if (at == 0) {
			*ret_node0 = word & 1;
			word &= ~1ULL;
		}
		if (word)
			return -EINVAL;
	}
	return 0;
}

static int policy_check(struct task *t, u64 mode_arg, uaddr mask, u64 max_node, bool *ret_node0)
{
	u32 mode = (u32)mode_arg & ~(u32)MPOL_MODE_FLAGS;
	int r;

	if (mode >= MPOL_MAX)
		return -EINVAL;
	r = node_mask_in(t, mask, max_node, ret_node0);
	if (r < 0)
		return r;
	if ((mode == MPOL_DEFAULT || mode == MPOL_LOCAL) && *ret_node0)
		return -EINVAL;
	if (mode != MPOL_DEFAULT && mode != MPOL_LOCAL && mode != MPOL_PREFERRED && !*ret_node0)
		return -EINVAL;
	return 0;
}

s64 sys_set_mempolicy(struct task *t, const u64 a[6])
{
	bool node0;
	int r = policy_check(t, a[0], ua(a[1]), a[2], &node0);

	if (r < 0)
		return r;
	t->misc.mempolicy = (u32)a[0];
	t->misc.mempolicy_node = node0;
	return 0;
}

s64 sys_mbind(struct task *t, const u64 a[6])
{
	u64 end;
	bool node0;

	if (!page_aligned(a[0]) ||
	    ((u32)a[5] & ~(u32)(MPOL_MF_STRICT | MPOL_MF_MOVE | MPOL_MF_MOVE_ALL)))
		return -EINVAL;
	if ((a[5] & MPOL_MF_MOVE_ALL) && !cred_capable(t->cred, CAP_SYS_NICE))
		return -EPERM;
	if (!page_up(a[1], &end) || __builtin_add_overflow(a[0], end, &end))
		return -EINVAL;
	return policy_check(t, a[2], ua(a[3]), a[4], &node0);
}

s64 sys_get_mempolicy(struct task *t, const u64 a[6])
{
	u64 flags = a[4], nodes = 0, zero = 0, bits = a[2];
	int mode = (int)t->misc.mempolicy, r = 0;

	if (flags & ~(u64)(MPOL_F_NODE | MPOL_F_ADDR | MPOL_F_MEMS_ALLOWED))
		return -EINVAL;
	if (a[1] && bits < 1)
		return -EINVAL;
	if (flags & MPOL_F_MEMS_ALLOWED) {
		if (flags & (MPOL_F_NODE | MPOL_F_ADDR))
			return -EINVAL;
		mode = 0;
		nodes = 1;
	} else if (flags & MPOL_F_ADDR) {
		u8 byte;

		if (copy_in(t, &byte, ua(a[3]), 1) < 0)
			return -EFAULT;
		mode = flags & MPOL_F_NODE ? 0 : MPOL_DEFAULT;
	} else if (a[3]) {
		return -EINVAL;
	} else if (flags & MPOL_F_NODE) {
		if ((mode & ~MPOL_MODE_FLAGS) != MPOL_INTERLEAVE)
			return -EINVAL;
		mode = 0;
	} else {
		nodes = t->misc.mempolicy_node;
	}
	if (a[0])
		r = copy_out(t, ua(a[0]), &mode, sizeof(mode));
	for (u64 at = 0; r == 0 && a[1] && at + 1 < MIN(bits, (u64)NODE_BITS_MAX); at += 64)
		r = copy_out(t, ua(a[1] + at / 8), at ? &zero : &nodes, sizeof(u64));
	return r;
}
