/*
 * Sending signals: what a signal does at once to its target (stop and continue
 * cancel each other, ignored ones vanish, deadly ones start the group's exit),
 * which thread it goes to, and who may send.
 */
#include "base/log.h"
#include "sentry/task/internal.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/epoll.h>

static bool handler_ignores(const struct sighand *sh, int sig)
{
	u64 h = sh->action[sig - 1].handler;

	return h == (u64)SIG_IGN ||
	       (h == (u64)SIG_DFL && (sigbit(sig) & SIGNALS_IGNORED_BY_DEFAULT));
}

bool signal_ignored(struct task *t, int sig)
{
	struct sighand *sh = sighand_lock(t->tg);
	bool r = handler_ignores(sh, sig);

	sighand_unlock(sh);
	return r;
}

void signal_recalc_locked(struct task *t)
{
	struct thread_group *tg = t->tg;
	bool pending = ((t->pending.set | tg->pending.set) & ~t->sigmask) ||
		       atomic_load(&t->killed) || tg->group_exiting || tg->cont_notify ||
		       ptrace_trap_pending(t) ||
		       (t->ptrace ? ptrace_stop_unseen(t) : tg->stop_pending || tg->stopped);

	atomic_store(&t->sig_pending, pending);
}

bool task_signal_pending(struct task *t)
{
	struct sighand *sh;

	if (!atomic_load(&t->sig_pending))
		return false;
	sh = sighand_lock(t->tg);
	signal_recalc_locked(t);
	sighand_unlock(sh);
	return atomic_load(&t->sig_pending);
}

void signal_kill_others_locked(struct thread_group *tg, struct task *except)
{
	struct task *t;

	list_for_each (t, &tg->tasks, group_node) {
		if (t == except || atomic_load(&t->killed))
			continue;
		atomic_store(&t->killed, true);
		task_kick(t);
	}
}

bool signal_begin_group_exit_locked(struct thread_group *tg, int status, struct task *self)
{
	if (tg->group_exiting)
		return false;
	tg->group_exiting = true;
	tg->exit_status = status;
	tg->stop_pending = tg->stopped = false;
	tg->notify_stopped = tg->notify_continued = false;
	tg->cont_notify = 0;
	signal_kill_others_locked(tg, self);
	return true;
}

/* SIGCONT undoes stop signals and a stop; the first thread on its way out tells the parent. */
static void continue_group(struct thread_group *tg)
{
	struct task *t;

	sigqueue_flush(&tg->pending, SIGNALS_STOP);
	list_for_each (t, &tg->tasks, group_node) {
		sigqueue_flush(&t->pending, SIGNALS_STOP);
		t->stop_dequeued = false;
	}
	if (!tg->stopped && !tg->stop_pending)
		return;
	tg->cont_notify = tg->stopped ? CLD_CONTINUED : CLD_STOPPED;
	tg->stopped = tg->stop_pending = false;
	tg->notify_stopped = false;
	tg->notify_continued = true;
	list_for_each (t, &tg->tasks, group_node) {
		ptrace_notify_group_locked(t);
		task_kick(t);
	}
}

/* The immediate effects. False: the signal is not queued. */
static bool prepare(struct sighand *sh, struct thread_group *tg, struct task *t, int sig)
{
	struct task *i;

	if (tg->group_exiting)
		return false;
	if (sigbit(sig) & SIGNALS_STOP) {
		sigqueue_flush(&tg->pending, sigbit(SIGCONT));
		list_for_each (i, &tg->tasks, group_node)
			sigqueue_flush(&i->pending, sigbit(SIGCONT));
	} else if (sig == SIGCONT) {
		continue_group(tg);
	}
	if (t->sigmask & sigbit(sig))
		return true;
	if (t->ptrace && sig != SIGKILL)
		return true; /* the tracer decides */
	return !handler_ignores(sh, sig);
}

static bool wants(struct task *t, int sig)
{
	enum task_state st = atomic_load(&t->state);

	if (t->leaving || (t->sigmask & ~t->sigwait_set & sigbit(sig)))
		return false;
	if (sig == SIGKILL)
		return true;
	if (st == TASK_STOPPED || st == TASK_TRACED)
		return false;
	return t == current_task || !atomic_load(&t->sig_pending);
}

/* Default action is to end the process, without first running code of its own thread. */
static bool deadly(const struct sighand *sh, int sig)
{
	const u64 core = sigbit(SIGQUIT) | sigbit(SIGILL) | sigbit(SIGTRAP) | sigbit(SIGABRT) |
			 sigbit(SIGBUS) | sigbit(SIGFPE) | sigbit(SIGSEGV) | sigbit(SIGXCPU) |
			 sigbit(SIGXFSZ) | sigbit(SIGSYS);

	return sh->action[sig - 1].handler == (u64)SIG_DFL &&
	       !(sigbit(sig) & (core | SIGNALS_STOP | SIGNALS_IGNORED_BY_DEFAULT));
}

/* Finds a thread for a queued signal and wakes it. */
static void complete(struct sighand *sh, struct thread_group *tg, struct task *t, bool to_group,
		     int sig)
{
	struct task *target = NULL, *i;

	waitq_wake(&tg->signal_waitq, EPOLLIN);
	if (wants(t, sig)) {
		target = t;
	} else if (to_group) {
		list_for_each (i, &tg->tasks, group_node) {
			if (wants(i, sig)) {
				target = i;
				break;
			}
		}
	}
	if (!target)
		return; /* whoever unblocks it first will find it */
	if (deadly(sh, sig) && !(target->sigwait_set & sigbit(sig)) &&
	    (sig == SIGKILL || !target->ptrace)) {
		signal_begin_group_exit_locked(tg, sig, NULL);
		return;
	}
	task_kick(target);
}

static size_t queue_limit(struct thread_group *tg)
{
	u64 soft;

	mutex_lock(&tg->limit_lock);
	soft = tg->limits[RLIMIT_SIGPENDING].rlim_cur;
	mutex_unlock(&tg->limit_lock);
	return MIN(soft, SIGQUEUE_MAX);
}

int signal_send_locked(struct task *t, struct thread_group *tg, const siginfo_t *info)
{
	struct sighand *sh = tg->sighand;
	int sig = info->si_signo;
	struct task *main = t ? t : tg->leader;
	struct sigqueue_head *q = t ? &t->pending : &tg->pending;
	size_t limit;

	mutex_assert_held(&sh->lock);
	ASSERT(sig > 0 && sig <= SIGNAL_COUNT);
	if (!main || tg->task_count == 0 || !prepare(sh, tg, main, sig))
		return 0;
	if (sig < 32 && (q->set & sigbit(sig)))
		return 0; /* standard signals count once */
	limit = queue_limit(tg);
	if (sig < 32 && info->si_code >= 0)
		limit = SIGQUEUE_MAX; /* the kernel's own are kept */
	if (sigqueue_full(q, limit) && sig >= 32 && info->si_code != SI_USER)
		return -EAGAIN;
	sigqueue_push(q, info, limit);
	complete(sh, tg, main, !t, sig);
	return 0;
}

int signal_send_task(struct task *t, const siginfo_t *info)
{
	struct sighand *sh = sighand_lock(t->tg);
	int r = t->leaving ? 0 : signal_send_locked(t, t->tg, info);

	sighand_unlock(sh);
	return r;
}

int signal_send_group(struct thread_group *tg, const siginfo_t *info)
{
	struct sighand *sh = sighand_lock(tg);
	int r = signal_send_locked(NULL, tg, info);

	sighand_unlock(sh);
	return r;
}

int signal_send_pgrp(struct process_group *pg, const siginfo_t *info)
{
	MUTEX_GUARD(&pg->kernel->tasklist_lock);
	struct thread_group *tg;
	int r = -ESRCH;

	list_for_each (tg, &pg->members, pgrp_node) {
		int e = signal_send_group(tg, info);

		if (r != 0)
			r = e;
	}
	return r;
}

void signal_force(struct task *t, const siginfo_t *info)
{
	struct sighand *sh = sighand_lock(t->tg);
	u64 bit = sigbit(info->si_signo);
	struct k_sigaction *act = &sh->action[info->si_signo - 1];

	if ((t->sigmask & bit) || act->handler == (u64)SIG_IGN) {
		act->handler = (u64)SIG_DFL;
		t->sigmask &= ~bit;
	}
	signal_send_locked(t, t->tg, info);
	signal_recalc_locked(t);
	sighand_unlock(sh);
}

void signal_force_fault(struct task *t, const siginfo_t *info, u64 trapno, u64 error, u64 cr2)
{
	t->fault = (struct signal_frame_info){ trapno, error, cr2 };
	signal_force(t, info);
}

/* Threads that could take what t will no longer take look at the group's queue. Sighand held. */
void signal_retarget_locked(struct task *t, u64 set)
{
	struct task *i;

	set &= t->tg->pending.set;
	if (!set)
		return;
	list_for_each (i, &t->tg->tasks, group_node)
		if (i != t && !i->leaving && (set & ~i->sigmask))
			task_kick(i);
}

void signal_set_mask(struct task *t, u64 mask)
{
	struct sighand *sh = sighand_lock(t->tg);
	u64 newly;

	mask &= ~(sigbit(SIGKILL) | sigbit(SIGSTOP));
	newly = mask & ~t->sigmask;
	t->sigmask = mask;
	if (newly & t->tg->pending.set)
		signal_retarget_locked(t, newly);
	signal_recalc_locked(t);
	sighand_unlock(sh);
}

void signal_set_temp_mask(struct task *t, u64 mask)
{
	if (!t->restore_sigmask) {
		t->saved_sigmask = t->sigmask;
		t->restore_sigmask = true;
	}
	signal_set_mask(t, mask);
}

/* Tasklist or nothing held. */
static int may_send(const struct cred *c, struct task *sender, struct task *target, int sig,
		    bool same_session)
{
	const struct cred *tc;
	bool ok;

	if (sender->tg == target->tg || cred_capable(c, CAP_KILL))
		return 0;
	tc = task_get_cred(target);
	ok = c->euid == tc->suid || c->euid == tc->uid || c->uid == tc->suid || c->uid == tc->uid;
	cred_put(tc);
	return ok || (sig == SIGCONT && same_session) ? 0 : -EPERM;
}

int signal_may_send(struct task *sender, struct task *target, int sig)
{
	bool same = sig == SIGCONT && task_sid(sender) == task_sid(target);

	return may_send(sender->cred, sender, target, sig, same);
}

static int check_and_send_locked(struct task *sender, struct thread_group *tg,
				 const siginfo_t *info, int sig)
{
	bool same = tg->pgrp && sender->tg->pgrp && tg->pgrp->session == sender->tg->pgrp->session;
	int r = tg->leader ? may_send(sender->cred, sender, tg->leader, sig, same) : -ESRCH;

	if (r == 0 && sig)
		r = signal_send_group(tg, info);
	return r;
}

static int kill_pgrp_locked(struct task *sender, struct process_group *pg, const siginfo_t *info,
			    int sig)
{
	struct thread_group *tg;
	bool sent = false;
	int r = -ESRCH;

	list_for_each (tg, &pg->members, pgrp_node) {
		r = check_and_send_locked(sender, tg, info, sig);
		sent |= r == 0;
	}
	return sent ? 0 : r;
}

static int kill_all_locked(struct task *sender, const siginfo_t *info, int sig)
{
	struct kernel *k = sender->kernel;
	int r = -ESRCH, e;
	bool any = false, ok = false;

	for (struct pid_entry *p = pid_next(k, PID_REAPER); p; p = pid_next(k, p->nr)) {
		if (!p->tg || p->tg == sender->tg || p->tg == k->init)
			continue;
		e = check_and_send_locked(sender, p->tg, info, sig);
		any = true;
		if (e != -EPERM) {
			r = e;
			ok = true;
		}
	}
	return any && !ok ? -EPERM : r;
}

int signal_kill(struct task *sender, int pid, const siginfo_t *info)
{
	struct kernel *k = sender->kernel;
	int sig = info->si_signo;
	struct pid_entry *e;

	if (pid == INT32_MIN)
		return -ESRCH;
	MUTEX_GUARD(&k->tasklist_lock);
	if (pid == -1)
		return kill_all_locked(sender, info, sig);
	if (pid == 0)
		return kill_pgrp_locked(sender, sender->tg->pgrp, info, sig);
	e = pid_lookup(k, pid < 0 ? -pid : pid);
	if (pid < 0)
		return e && e->pgrp ? kill_pgrp_locked(sender, e->pgrp, info, sig) : -ESRCH;
	if (!e || (!e->task && !e->tg))
		return -ESRCH;
	return check_and_send_locked(sender, e->tg ? e->tg : e->task->tg, info, sig);
}
