/*
 * The end of tasks and groups.
 *
 * task_finish() runs at the end of each task's thread: it gives up the task's
 * resources, and the last task of a group turns the group into a zombie: its
 * children move to the nearest subreaper (or to the sandbox's reaper, a parent
 * of NULL, whose children reap themselves), the parent is told, and the group
 * waits to be reaped.
 */
#include "base/host_sync.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "sentry/futex/futex.h"
#include "sentry/task/internal.h"
#include "sentry/time/timers.h"
#include "sentry/tty/tty.h"

#include <linux/ptrace.h>
#include <sys/epoll.h>

#define NS_PER_TICK 10000000UL
#define KILL_ALL_TIMEOUT_NS (10ULL * 1000000000)

void task_exit(struct task *t, int status)
{
	t->exiting = true;
	t->exit_code = status;
}

void task_group_exit(struct task *t, int status)
{
	struct sighand *sh = sighand_lock(t->tg);

	signal_begin_group_exit_locked(t->tg, status, t);
	t->exit_code = t->tg->exit_status;
	sighand_unlock(sh);
	t->exiting = true;
}

int thread_group_status_locked(struct thread_group *tg)
{
	return tg->group_exiting ? tg->exit_status : tg->leader->exit_code;
}

/* ---- telling the parent ---- */

static void child_info(siginfo_t *si, struct thread_group *tg, int cld, int status)
{
	siginfo_kernel(si, SIGCHLD, cld);
	si->si_pid = tg->tgid;
	si->si_uid = tg->leader ? tg->leader->cred->uid : 0;
	si->si_status = status;
	si->si_utime = (clock_t)(tg->dead_utime_ns / NS_PER_TICK);
	si->si_stime = (clock_t)(tg->dead_stime_ns / NS_PER_TICK);
}

void notify_parent_stop_locked(struct thread_group *tg, int cld)
{
	struct thread_group *p = tg->parent;
	struct sighand *sh;
	siginfo_t si;

	if (!p)
		return;
	child_info(&si, tg, cld, cld == CLD_CONTINUED ? SIGCONT : tg->stop_signal);
	sh = sighand_lock(p);
	if (sh->action[SIGCHLD - 1].handler != (u64)SIG_IGN &&
	    !(sh->action[SIGCHLD - 1].flags & SA_NOCLDSTOP))
		signal_send_locked(NULL, p, &si);
	sighand_unlock(sh);
	waitq_wake(&p->child_waitq, EPOLLIN);
}

bool notify_parent_exit_locked(struct thread_group *tg)
{
	struct thread_group *p = tg->parent;
	int status = thread_group_status_locked(tg), sig = tg->exit_signal;
	bool autoreap = false;
	struct sighand *sh;
	siginfo_t si;

	if (!p)
		return true;
	if (status & 0x7f)
		child_info(&si, tg, CLD_KILLED, status & 0x7f);
	else
		child_info(&si, tg, CLD_EXITED, status >> 8);
	sh = sighand_lock(p);
	if (sig == SIGCHLD) {
		const struct k_sigaction *act = &sh->action[SIGCHLD - 1];

		if (act->handler == (u64)SIG_IGN) {
			autoreap = true;
			sig = 0;
		} else if (act->flags & SA_NOCLDWAIT) {
			autoreap = true;
		}
	}
	if (sig > 0 && sig <= SIGNAL_COUNT) {
		si.si_signo = sig;
		signal_send_locked(NULL, p, &si);
	}
	sighand_unlock(sh);
	waitq_wake(&p->child_waitq, EPOLLIN);
	return autoreap;
}

/* ---- reaping ---- */

void thread_group_waited_locked(struct thread_group *tg)
{
	struct thread_group *p = tg->parent;

	p->child_utime_ns += tg->dead_utime_ns + tg->child_utime_ns;
	p->child_stime_ns += tg->dead_stime_ns + tg->child_stime_ns;
	p->child_minflt += tg->dead_minflt + tg->child_minflt;
	p->child_majflt += tg->dead_majflt + tg->child_majflt;
	p->child_maxrss = MAX(p->child_maxrss, MAX(tg->dead_maxrss, tg->child_maxrss));
}

void thread_group_reap_locked(struct thread_group *tg, struct reap *ret)
{
	struct kernel *k = tg->kernel;
	struct pid_entry *e = pid_lookup(k, tg->tgid);
	struct sighand *sh;

	ASSERT(e && e->tg == tg && tg->zombie && !tg->reaped);
	tg->reaped = true;
	k->reaped_minflt += tg->dead_minflt;
	k->reaped_majflt += tg->dead_majflt;
	list_del(&tg->sibling);
	tg->parent = NULL;
	tg->parent_task = NULL;
	ret->tg = tg;
	e->tg = NULL;
	/* The leader's entry is the group's too: it goes with the last of both. */
	ret->leader = task_unhash_locked(tg->leader);
	sh = sighand_lock(tg);
	tg->leader = NULL;
	sighand_unlock(sh);
	pgrp_leave_locked(tg, &ret->pgrp);
	waitq_wake(&tg->exit_waitq, EPOLLIN | EPOLLHUP);
}

void reap_put(struct reap *r)
{
	process_group_put(r->pgrp);
	task_put(r->leader);
	thread_group_put(r->tg);
	*r = (struct reap){ 0 };
}

/* Reaped groups and tasks whose references go once the tasklist lock is released. */
#define PUT_BATCH 16
struct put_list {
	struct reap reaps[PUT_BATCH];
	int count;
};

/* ---- children of a dying group ---- */

static struct thread_group *find_reaper(struct thread_group *tg)
{
	struct thread_group *p;

	for (p = tg->parent; p; p = p->parent)
		if (p->is_subreaper && p->task_count)
			return p;
	return NULL;
}

static struct task *live_task(struct thread_group *tg, struct task *except)
{
	struct task *t;

	list_for_each (t, &tg->tasks, group_node)
		if (t != except && !t->leaving)
			return t;
	return NULL;
}

/* PR_SET_PDEATHSIG of a child's threads: their creator's thread exits. */
static void send_pdeath(struct thread_group *child)
{
	struct task *t;
	siginfo_t si;

	list_for_each (t, &child->tasks, group_node) {
		if (!t->pdeath_signal)
			continue;
		siginfo_kernel(&si, (int)t->pdeath_signal, SI_USER);
		signal_send_group(child, &si);
	}
}

/* Gives one child to its new parent. True when it is a zombie that nobody waits for. */
static bool reparent(struct thread_group *child, struct thread_group *from, struct thread_group *to)
{
	struct task *t;

	list_del(&child->sibling);
	child->parent = to;
	child->parent_task = to ? to->leader : NULL;
	if (to)
		list_push_back(&to->children, &child->sibling);
	child->exit_signal = SIGCHLD;
	list_for_each (t, &child->tasks, group_node)
		task_ids_changed(t);
	if (from->pgrp && child->pgrp && from->pgrp != child->pgrp)
		pgrp_kill_if_orphaned_locked(child->pgrp, from->pgrp->session, NULL);
	/* A tracer that is left is another group's, and gives the zombie to its parent when it has
	 * seen it. */
	return child->zombie && !child->leader->ptrace && notify_parent_exit_locked(child);
}

/* t exits: its children see it; the last task's children move away. Fills list; false: call again.
 */
static bool leave_children(struct task *t, bool last, struct put_list *list)
{
	struct thread_group *tg = t->tg, *child, *tmp, *to = last ? find_reaper(tg) : NULL;
	struct task *heir = last ? NULL : live_task(tg, t);

	list_for_each_safe (child, tmp, &tg->children, sibling) {
		if (list->count == PUT_BATCH)
			return false;
		if (child->parent_task == t) {
			send_pdeath(child);
			child->parent_task = heir;
		}
		if (last && reparent(child, tg, to))
			thread_group_reap_locked(child, &list->reaps[list->count++]);
	}
	return true;
}

/* ---- the group's end ---- */

static void own_pgrp_orphaned(struct thread_group *tg)
{
	struct thread_group *p = tg->parent;

	if (p && p->pgrp && tg->pgrp && p->pgrp != tg->pgrp &&
	    p->pgrp->session == tg->pgrp->session)
		pgrp_kill_if_orphaned_locked(tg->pgrp, tg->pgrp->session, tg);
}

static void kill_everyone_locked(struct kernel *k)
{
	for (struct pid_entry *e = pid_next(k, 0); e; e = pid_next(k, e->nr)) {
		struct sighand *sh;

		if (!e->tg)
			continue;
		sh = sighand_lock(e->tg);
		signal_begin_group_exit_locked(e->tg, SIGKILL, NULL);
		/* Also those that are already exiting but sleep in their way out. */
		signal_kill_others_locked(e->tg, NULL);
		sighand_unlock(sh);
	}
}

static void init_died_locked(struct kernel *k, struct thread_group *tg)
{
	k->init_status = thread_group_status_locked(tg);
	atomic_store(&k->shutting_down, true);
	platform_end(k->platform);
	kill_everyone_locked(k);
	waitq_wake(&k->init_exit, EPOLLIN);
}

/* The last task is out: zombie. Reaps at once when nobody waits. */
static void group_dead_locked(struct task *t, struct reap *ret)
{
	struct thread_group *tg = t->tg;
	struct kernel *k = t->kernel;

	tg->zombie = true;
	if (tg->pgrp->session->leader == tg)
		tg->pgrp->session->leader = NULL;
	own_pgrp_orphaned(tg);
	waitq_wake(&tg->exit_waitq, EPOLLIN);
	if (tg == k->init)
		init_died_locked(k, tg);
	if (ptrace_reports_exit_locked(tg->leader)) {
		ptrace_notify_exit_locked(tg->leader);
		if (ptrace_foreign_tracer_locked(tg->leader))
			return; /* the real parent hears of it when the tracer has */
	}
	if (notify_parent_exit_locked(tg)) {
		ptrace_unlink_locked(tg->leader);
		thread_group_reap_locked(tg, ret);
	}
}

/* A thread that execs counts its siblings under the tasklist lock, held here, so it lives. */
static void wake_exec(struct thread_group *tg)
{
	struct sighand *sh = sighand_lock(tg);
	struct task *exec_task = tg->exec_task;

	sighand_unlock(sh);
	if (exec_task)
		task_wake(exec_task);
}

static void exit_notify(struct task *t)
{
	struct thread_group *tg = t->tg;
	struct kernel *k = t->kernel;
	struct reap self = { 0 };
	struct put_list list;
	struct task *gone = NULL;
	bool last;

	mutex_lock(&k->tasklist_lock);
	while (ptrace_release_one_locked(t, &self)) {
		mutex_unlock(&k->tasklist_lock);
		reap_put(&self);
		mutex_lock(&k->tasklist_lock);
	}
	for (;;) {
		/* Whoever is the last to come here finishes the group. */
		last = tg->present_count == 1;
		list.count = 0;
		if (leave_children(t, last, &list))
			break;
		mutex_unlock(&k->tasklist_lock);
		for (int i = 0; i < list.count; i++)
			reap_put(&list.reaps[i]);
		mutex_lock(&k->tasklist_lock);
	}
	tg->present_count--;
	k->pids->tasks--;
	atomic_store(&t->state, TASK_ZOMBIE);
	if (t != tg->leader) {
		if (ptrace_reports_exit_locked(t))
			ptrace_notify_exit_locked(t);
		else
			gone = task_unhash_locked(t);
	}
	if (last)
		group_dead_locked(t, &self);
	wake_exec(tg);
	mutex_unlock(&k->tasklist_lock);
	for (int i = 0; i < list.count; i++)
		reap_put(&list.reaps[i]);
	task_put(gone);
	reap_put(&self);
}

/* Takes no more signals; what only it would have taken goes to others. */
static void stop_signals(struct task *t)
{
	struct thread_group *tg = t->tg;
	struct sighand *sh = sighand_lock(tg);

	t->leaving = true;
	if (tg->group_exiting)
		t->exit_code = tg->exit_status;
	else
		signal_retarget_locked(t, ~0ULL);
	sighand_unlock(sh);
	signal_stop_recheck(tg);
}

/* The platform context and the mm: the guest part of the task is over. */
static void leave_guest(struct task *t)
{
	struct platform_context *ctx;
	u64 utime = t->prior_utime_ns, peak_rss = 0;
	bool only;

	futex_release(t);
	if (t->clear_child_tid.v)
		futex_clear_child_tid(t);
	mutex_lock(&t->kernel->tasklist_lock);
	only = t->tg->task_count == 1;
	mutex_unlock(&t->kernel->tasklist_lock);
	if (only) /* not for every thread: it walks the whole mm */
		peak_rss = mm_last_peak_rss(t->mm);
	mutex_lock(&t->lock);
	ctx = t->ctx;
	if (ctx)
		utime = t->prior_utime_ns + platform_context_cpu_ns(ctx);
	t->ctx = NULL;
	t->final_utime_ns = utime;
	mutex_unlock(&t->lock);
	if (ctx)
		platform_context_free(ctx);
	mutex_lock(&t->kernel->tasklist_lock);
	t->tg->dead_maxrss = MAX(t->tg->dead_maxrss, peak_rss / 1024);
	mutex_unlock(&t->kernel->tasklist_lock);
}

/* Counts the task out. True for the last of its group. */
static bool count_out(struct task *t)
{
	struct thread_group *tg = t->tg;
	MUTEX_GUARD(&t->kernel->tasklist_lock);

	t->final_stime_ns = tsc_to_ns(atomic_load(&t->sys_tsc));
	tg->dead_utime_ns += t->final_utime_ns;
	tg->dead_stime_ns += t->final_stime_ns;
	tg->dead_minflt += t->minflt;
	tg->dead_majflt += t->majflt;
	tg->dead_nvcsw += t->nvcsw;
	return --tg->task_count == 0;
}

void task_thread_gone(struct kernel *k)
{
	atomic_fetch_sub(&k->pids->threads, 1);
	if (atomic_load(&k->shutting_down))
		host_futex_wake(&k->pids->threads, 1, true);
}

void task_finish(struct task *t)
{
	struct kernel *k = t->kernel;
	struct thread_group *tg = t->tg;
	struct mm *mm;
	bool last;

	ptrace_event(t, PTRACE_EVENT_EXIT, (u64)t->exit_code);
	stop_signals(t);
	leave_guest(t);
	mm = task_leave_resources(t);
	vfork_release(t);
	last = count_out(t);
	if (last) {
		group_timers_exit(tg);
		tty_session_leader_exit(k, tg);
	}
	exit_notify(t);
	current_task = NULL;
	task_put(t);
	mm_finish(mm);
	task_thread_gone(k);
}

bool kernel_kill_all(struct kernel *k)
{
	u64 deadline = clock_monotonic_ns() + KILL_ALL_TIMEOUT_NS;
	u32 n;

	mutex_lock(&k->tasklist_lock);
	atomic_store(&k->shutting_down, true);
	kill_everyone_locked(k);
	mutex_unlock(&k->tasklist_lock);
	while ((n = atomic_load(&k->pids->threads)) > 0) {
		if (host_futex_wait_until(&k->pids->threads, n, deadline) == -ETIMEDOUT) {
			log_warn("shutdown: %u guest threads did not end in time", n);
			return false;
		}
	}
	return true;
}
