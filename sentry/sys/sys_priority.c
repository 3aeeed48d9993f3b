/* getpriority, setpriority, ioprio_get, ioprio_set: over a thread, a process group or a user. */
#include "sentry/sys/handlers.h"
#include <linux/capability.h>
#include <linux/ioprio.h>

enum who_kind { WHO_TASK, WHO_PGRP, WHO_USER };

/* What is done to each task; runs under the tasklist lock. */
struct each {
	struct task *caller;
	enum who_kind kind;
	int pgid;
	u32 uid;
	int (*fn)(struct each *e, struct task *target, const struct cred *c);
	int value;  /* set: the new value */
	int result; /* get: the best; set: the last error */
	bool found;
};

/* As Linux, the last failure is the result. */
static void visit(struct each *e, struct task *target)
{
	const struct cred *c = task_get_cred(target);
	int r = e->fn(e, target, c);

	if (r < 0)
		e->result = r;
	e->found = true;
	cred_put(c);
}

static void visit_group(struct thread_group *tg, void *arg)
{
	struct each *e = arg;
	struct task *target;

	if (e->kind == WHO_PGRP && (tg->pgrp == NULL || tg->pgrp->pgid != e->pgid))
		return;
	list_for_each (target, &tg->tasks, group_node) {
		if (e->kind == WHO_USER) {
			const struct cred *c = task_get_cred(target);
			bool same = c->uid == e->uid;

			cred_put(c);
			if (!same)
				continue;
		}
		visit(e, target);
	}
}

/* Runs e over everyone that (kind, who) names; -ESRCH when there is nobody. */
static int for_each_task(struct each *e, int who)
{
	struct task *t = e->caller, *target;

	switch (e->kind) {
	case WHO_TASK:
		target = who == 0 ? task_get(t) : task_find(t->kernel, who);
		if (target == NULL)
			return -ESRCH;
		visit(e, target);
		task_put(target);
		break;
	case WHO_PGRP:
		e->pgid = who == 0 ? task_pgid(t) : who;
		thread_group_for_each(t->kernel, visit_group, e);
		break;
	case WHO_USER:
		e->uid = who == 0 ? t->cred->uid : (u32)who;
		thread_group_for_each(t->kernel, visit_group, e);
		break;
	}
	return e->found ? 0 : -ESRCH;
}

static bool owns(const struct each *e, const struct cred *c)
{
	const struct cred *me = e->caller->cred;

	return me->euid == c->euid || me->euid == c->uid || cred_capable(me, CAP_SYS_NICE);
}

/* ---- nice ---- */

static int get_nice(struct each *e, struct task *target, const struct cred *c)
{
	int value = 20 - target->nice; /* 1..40: never mistaken for an error */

	return value > e->result ? (e->result = value, 0) : 0;
}

static int set_nice(struct each *e, struct task *target, const struct cred *c)
{
	if (!owns(e, c))
		return -EPERM;
	if (e->value < target->nice && !cred_capable(e->caller->cred, CAP_SYS_NICE) &&
	    (u64)(20 - e->value) > task_rlimit(target, RLIMIT_NICE))
		return -EACCES;
	target->nice = e->value;
	return 0;
}

s64 sys_getpriority(struct task *t, const u64 a[6])
{
	struct each e = { .caller = t, .fn = get_nice, .result = 0 };
	int r;

	if ((u32)a[0] > WHO_USER)
		return -EINVAL;
	e.kind = (enum who_kind)(u32)a[0];
	r = for_each_task(&e, (int)a[1]);
	return r < 0 ? r : e.result;
}

s64 sys_setpriority(struct task *t, const u64 a[6])
{
	struct each e = { .caller = t, .fn = set_nice, .value = MIN(MAX((int)a[2], -20), 19) };
	int r;

	if ((u32)a[0] > WHO_USER)
		return -EINVAL;
	e.kind = (enum who_kind)(u32)a[0];
	r = for_each_task(&e, (int)a[1]);
	return r < 0 ? r : e.result;
}

/* ---- I/O priority: kept and reported ---- */

static int get_ioprio(struct each *e, struct task *target, const struct cred *c)
{
	int value = (int)target->misc.ioprio;

	/* The highest: the lowest class number, then the lowest level; "none" loses to all. */
	if (!e->found || (value && (e->result == 0 || value < e->result)))
		e->result = value;
	return 0;
}

static int set_ioprio(struct each *e, struct task *target, const struct cred *c)
{
	if (!owns(e, c))
		return -EPERM;
	target->misc.ioprio = (u32)e->value;
	return 0;
}

static int ioprio_kind(u64 which, enum who_kind *ret)
{
	switch ((int)which) {
	case IOPRIO_WHO_PROCESS: *ret = WHO_TASK; return 0;
	case IOPRIO_WHO_PGRP: *ret = WHO_PGRP; return 0;
	case IOPRIO_WHO_USER: *ret = WHO_USER; return 0;
	default: return -EINVAL;
	}
}

s64 sys_ioprio_get(struct task *t, const u64 a[6])
{
	struct each e = { .caller = t, .fn = get_ioprio };
	int r = ioprio_kind(a[0], &e.kind);

	if (r == 0)
		r = for_each_task(&e, (int)a[1]);
	return r < 0 ? r : e.result;
}

s64 sys_ioprio_set(struct task *t, const u64 a[6])
{
	struct each e = { .caller = t, .fn = set_ioprio, .value = (int)a[2] };
	int r = ioprio_kind(a[0], &e.kind);

	if (r < 0)
		return r;
	switch (IOPRIO_PRIO_CLASS((u32)a[2])) {
	case IOPRIO_CLASS_RT:
		if (!cred_capable(t->cred, CAP_SYS_NICE) && !cred_capable(t->cred, CAP_SYS_ADMIN))
			return -EPERM;
		break;
	case IOPRIO_CLASS_BE:
	case IOPRIO_CLASS_IDLE: break;
	case IOPRIO_CLASS_NONE:
		if (IOPRIO_PRIO_DATA((u32)a[2]))
			return -EINVAL;
		break;
	default: return -EINVAL;
	}
	r = for_each_task(&e, (int)a[1]);
	return r < 0 ? r : e.result;
}
