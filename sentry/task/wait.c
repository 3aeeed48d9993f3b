/* Waiting for children and tracees. */
#include "sentry/task/wait.h"

#include "base/log.h"
#include "sentry/task/internal.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum look { LOOK_NONE, LOOK_EXISTS, LOOK_FOUND };

static void ns_to_timeval(u64 ns, struct timeval *tv)
{
	tv->tv_sec = (time_t)(ns / 1000000000);
	tv->tv_usec = (suseconds_t)(ns % 1000000000 / 1000);
}

static void usage_of(struct thread_group *tg, struct wait_result *r)
{
	memset(&r->usage, 0, sizeof(r->usage));
	ns_to_timeval(tg->dead_utime_ns + tg->child_utime_ns, &r->usage.ru_utime);
	ns_to_timeval(tg->dead_stime_ns + tg->child_stime_ns, &r->usage.ru_stime);
	r->usage.ru_maxrss = (long)MAX(tg->dead_maxrss, tg->child_maxrss);
	r->usage.ru_minflt = (long)(tg->dead_minflt + tg->child_minflt);
	r->usage.ru_majflt = (long)(tg->dead_majflt + tg->child_majflt);
	r->usage.ru_nvcsw = (long)tg->dead_nvcsw;
}

static bool selected(const struct wait_request *q, struct thread_group *tg, int tid)
{
	switch (q->kind) {
	case WAIT_FOR_ANY: return true;
	case WAIT_FOR_PID: return tid == q->id;
	case WAIT_FOR_PGID: return tg->pgrp && tg->pgrp->pgid == q->id;
	case WAIT_FOR_GROUP: return tg == q->group;
	}
	return false;
}

/* __WCLONE wants children that do not report by SIGCHLD; without it, only those that do. */
static bool clone_kind_ok(const struct wait_request *q, const struct thread_group *tg)
{
	if (q->options & __WALL)
		return true;
	return (tg->exit_signal != SIGCHLD) == !!(q->options & __WCLONE);
}

static void fill_exit(struct thread_group *tg, struct task *t, int status, struct wait_result *r)
{
	r->pid = t->tid;
	r->uid = (int)t->cred->uid;
	r->status = status;
	if (status & 0x7f) {
		r->cld_code = CLD_KILLED;
		r->cld_status = status & 0x7f;
	} else {
		r->cld_code = CLD_EXITED;
		r->cld_status = status >> 8 & 0xff;
	}
	usage_of(tg, r);
}

/* Stopped or continued by job control. */
static bool look_stopped(const struct wait_request *q, struct thread_group *tg,
			 struct wait_result *r)
{
	struct sighand *sh = sighand_lock(tg);
	bool consume = !(q->options & WNOWAIT), found = false;

	if ((q->options & WSTOPPED) && tg->stopped && tg->notify_stopped) {
		r->cld_code = CLD_STOPPED;
		r->cld_status = tg->stop_signal;
		r->status = tg->stop_signal << 8 | 0x7f;
		tg->notify_stopped = !consume;
		found = true;
	} else if ((q->options & WCONTINUED) && tg->notify_continued) {
		r->cld_code = CLD_CONTINUED;
		r->cld_status = SIGCONT;
		r->status = 0xffff;
		tg->notify_continued = !consume;
		found = true;
	}
	sighand_unlock(sh);
	if (found) {
		r->pid = tg->tgid;
		r->uid = (int)tg->leader->cred->uid;
		usage_of(tg, r);
	}
	return found;
}

/* Dead threads that their tracer has not reaped: as in Linux, they come before their leader. */
static bool dead_threads_left(const struct thread_group *tg)
{
	const struct task *i;

	list_for_each (i, &tg->tasks, group_node) {
		if (i != tg->leader)
			return true;
	}
	return false;
}

static enum look look_child(struct task *t, const struct wait_request *q, struct thread_group *tg,
			    struct wait_result *r, struct reap *reap)
{
	bool traced = tg->leader->ptrace;
	bool ours = traced && tg->leader->ptrace->tracer->tg == t->tg;

	if (!selected(q, tg, tg->tgid) || (!clone_kind_ok(q, tg) && !ours))
		return LOOK_NONE;
	if (tg->zombie && (!traced || ours)) {
		if (!(q->options & WEXITED) || dead_threads_left(tg))
			return LOOK_EXISTS;
		fill_exit(tg, tg->leader, thread_group_status_locked(tg), r);
		if (!(q->options & WNOWAIT)) {
			ptrace_unlink_locked(tg->leader);
			thread_group_waited_locked(tg);
			thread_group_reap_locked(tg, reap);
		}
		return LOOK_FOUND;
	}
	if (!traced && look_stopped(q, tg, r))
		return LOOK_FOUND;
	return LOOK_EXISTS;
}

static enum look look_children(struct task *t, const struct wait_request *q, struct wait_result *r,
			       struct reap *reap)
{
	enum look best = LOOK_NONE;
	struct thread_group *tg;

	list_for_each (tg, &t->tg->children, sibling) {
		enum look l;

		if ((q->options & __WNOTHREAD) && tg->parent_task != t)
			continue;
		l = look_child(t, q, tg, r, reap);
		if (l == LOOK_FOUND)
			return l;
		best = MAX(best, l);
	}
	return best;
}

/* The exit of a tracee that is not the caller's own child, or only a thread of one. */
static bool look_dead_tracee(struct task *t, const struct wait_request *q, struct task *x,
			     struct wait_result *r, struct reap *reap)
{
	struct thread_group *tg = x->tg;
	bool leader = x == tg->leader;

	if (atomic_load(&x->state) != TASK_ZOMBIE || !(q->options & WEXITED) ||
	    (leader && (!tg->zombie || dead_threads_left(tg))))
		return false;
	if (leader && tg->parent == t->tg)
		return false; /* look_children reports it */
	fill_exit(tg, x, leader ? thread_group_status_locked(tg) : x->exit_code, r);
	if (q->options & WNOWAIT)
		return true;
	ptrace_unlink_locked(x);
	if (!leader) {
		reap->leader = task_unhash_locked(x);
		if (tg->zombie && tg->parent)
			waitq_wake(&tg->parent->child_waitq, EPOLLIN);
	} else if (notify_parent_exit_locked(tg))
		thread_group_reap_locked(tg, reap);
	return true;
}

static enum look look_tracees_of(struct task *tracer, const struct wait_request *q,
				 struct wait_result *r, struct reap *reap)
{
	enum look best = LOOK_NONE;
	struct ptrace_state *p, *tmp;

	list_for_each_safe (p, tmp, &tracer->tracees, node) {
		struct task *x = p->tracee;
		siginfo_t si;

		if (!selected(q, x->tg, x->tid))
			continue;
		best = LOOK_EXISTS;
		if (look_dead_tracee(tracer, q, x, r, reap))
			return LOOK_FOUND;
		if (!ptrace_wait_stop_locked(x, !(q->options & WNOWAIT), &si))
			continue;
		r->pid = x->tid;
		r->uid = (int)x->cred->uid;
		r->cld_code = si.si_code;
		r->cld_status = si.si_status;
		r->status = si.si_status << 8 | 0x7f;
		usage_of(x->tg, r);
		return LOOK_FOUND;
	}
	return best;
}

static enum look look_tracees(struct task *t, const struct wait_request *q, struct wait_result *r,
			      struct reap *reap)
{
	enum look best = LOOK_NONE, l;
	struct task *i;

	list_for_each (i, &t->tg->tasks, group_node) {
		if ((q->options & __WNOTHREAD) && i != t)
			continue;
		l = look_tracees_of(i, q, r, reap);
		if (l == LOOK_FOUND)
			return l;
		best = MAX(best, l);
	}
	return best;
}

static s64 wait_once(struct task *t, const struct wait_request *q, struct wait_result *r)
{
	struct reap reap = { 0 };
	enum look l, m;

	mutex_lock(&t->kernel->tasklist_lock);
	l = look_children(t, q, r, &reap);
	if (l != LOOK_FOUND) {
		m = look_tracees(t, q, r, &reap);
		l = MAX(l, m);
	}
	mutex_unlock(&t->kernel->tasklist_lock);
	reap_put(&reap);
	if (l == LOOK_FOUND)
		return r->pid;
	return l == LOOK_NONE ? -ECHILD : -EAGAIN;
}

s64 task_wait(struct task *t, const struct wait_request *req, struct wait_result *ret)
{
	struct waiter w;
	s64 r;

	task_waiter_init(&w, t, EPOLLIN);
	waitq_add(&t->tg->child_waitq, &w);
	for (;;) {
		int e;

		task_block_prepare(t);
		r = wait_once(t, req, ret);
		if (r != -EAGAIN)
			break;
		if (req->options & WNOHANG) {
			r = 0;
			break;
		}
		e = task_block(t, NO_DEADLINE);
		if (e < 0) {
			r = e;
			break;
		}
	}
	waitq_remove(&w);
	return r;
}
