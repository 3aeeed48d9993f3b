/*
 * What happens on the way back to the guest: dying, stopping, signals with
 * their default actions, handlers' frames, and the restart of interrupted
 * system calls (the only place that sees -ERESTART* and converts it).
 */
#include "base/log.h"
#include "sentry/task/internal.h"

#include <asm/unistd.h>
#include <string.h>

static bool group_has_stopped(struct thread_group *tg)
{
	struct task *i;

	list_for_each (i, &tg->tasks, group_node) {
		enum task_state st = atomic_load(&i->state);

		if (!i->leaving && st != TASK_STOPPED && st != TASK_TRACED)
			return false;
	}
	return true;
}

/* Sighand held. True when this call completed the stop: the parent is to be told. */
static bool stop_completed(struct thread_group *tg)
{
	if (!tg->stop_pending || !group_has_stopped(tg))
		return false;
	tg->stop_pending = false;
	tg->stopped = true;
	tg->notify_stopped = true;
	tg->notify_continued = false;
	return true;
}

static void tell_parent(struct thread_group *tg, int cld)
{
	mutex_lock(&tg->kernel->tasklist_lock);
	notify_parent_stop_locked(tg, cld);
	mutex_unlock(&tg->kernel->tasklist_lock);
}

void signal_stop_recheck(struct thread_group *tg)
{
	struct sighand *sh = sighand_lock(tg);
	bool tell = stop_completed(tg);

	sighand_unlock(sh);
	if (tell)
		tell_parent(tg, CLD_STOPPED);
}

void signal_group_stop(struct task *t, struct sighand *sh)
{
	struct thread_group *tg = t->tg;
	bool tell, go = false;

	atomic_store(&t->state, TASK_STOPPED);
	tell = stop_completed(tg);
	sighand_unlock(sh);
	if (tell)
		tell_parent(tg, CLD_STOPPED);
	while (!go) {
		task_block_prepare(t);
		sh = sighand_lock(tg);
		go = !(tg->stop_pending || tg->stopped) || atomic_load(&t->killed) ||
		     tg->group_exiting || t->ptrace;
		if (go)
			atomic_store(&t->state, TASK_RUNNING);
		sighand_unlock(sh);
		if (!go)
			task_sleep(t, NO_DEADLINE);
	}
}

static bool pgrp_is_orphaned(struct thread_group *tg)
{
	MUTEX_GUARD(&tg->kernel->tasklist_lock);

	return pgrp_orphaned_locked(tg->pgrp, NULL);
}

/* Default action "stop". Called and returns with the sighand locked. */
static struct sighand *default_stop(struct task *t, struct sighand *sh, int sig)
{
	struct thread_group *tg = t->tg;
	struct task *i;

	if (sig != SIGSTOP) {
		bool orphaned;

		sighand_unlock(sh);
		orphaned = pgrp_is_orphaned(tg);
		sh = sighand_lock(tg);
		if (orphaned)
			return sh; /* nobody could continue it */
	}
	if (!t->stop_dequeued || tg->group_exiting)
		return sh; /* a SIGCONT came in between */
	if (!tg->stop_pending && !tg->stopped) {
		tg->stop_pending = true;
		tg->stop_signal = sig;
		tg->stop_gen++;
		list_for_each (i, &tg->tasks, group_node) {
			if (i == t)
				continue;
			ptrace_notify_group_locked(i);
			task_kick(i);
		}
	}
	return sh;
}

/* The task or its group must go: sets what the run loop needs. Sighand held. */
static bool must_exit(struct task *t)
{
	struct thread_group *tg = t->tg;

	if (!atomic_load(&t->killed) && !tg->group_exiting)
		return false;
	t->exiting = true;
	t->exit_code = tg->group_exiting ? tg->exit_status : SIGKILL;
	return true;
}

/*
 * The next signal with a handler: its number, info and action. 0: none left.
 * -1: the task exits. Default actions happen in here.
 */
static int next_handled(struct task *t, siginfo_t *info, struct k_sigaction *act)
{
	struct thread_group *tg = t->tg;
	struct sighand *sh = sighand_lock(tg);
	int sig = 0;

	for (;;) {
		u64 h;

		if (must_exit(t)) {
			sig = -1;
			break;
		}
		if (tg->cont_notify) {
			int cld = tg->cont_notify;

			tg->cont_notify = 0;
			sighand_unlock(sh);
			tell_parent(tg, cld);
			sh = sighand_lock(tg);
			continue;
		}
		if (ptrace_trap_pending(t) || ptrace_stop_unseen(t)) {
			sh = ptrace_do_trap(t, sh);
			continue;
		}
		if (!t->ptrace && (tg->stop_pending || tg->stopped)) {
			signal_group_stop(t, sh);
			sh = sighand_lock(tg);
			continue;
		}
		sig = signal_dequeue_locked(t, ~t->sigmask, info);
		if (!sig)
			break;
		if (t->ptrace && sig != SIGKILL) {
			sh = ptrace_signal(t, sh, &sig, info);
			if (!sig)
				continue;
		}
		h = sh->action[sig - 1].handler;
		if (h == (u64)SIG_IGN)
			continue;
		if (h != (u64)SIG_DFL) {
			*act = sh->action[sig - 1];
			if (act->flags & SA_RESETHAND)
				sh->action[sig - 1].handler = (u64)SIG_DFL;
			break;
		}
		if (sigbit(sig) & SIGNALS_IGNORED_BY_DEFAULT)
			continue;
		if (sigbit(sig) & SIGNALS_STOP) {
			sh = default_stop(t, sh, sig);
			continue;
		}
		log_debug("task %d (%s): killed by signal %d code %d addr %p rip %#llx", t->tid,
			  t->comm, sig, info->si_code, info->si_addr,
			  (unsigned long long)t->regs.rip);
		signal_begin_group_exit_locked(tg, sig, t);
	}
	signal_recalc_locked(t);
	sighand_unlock(sh);
	return sig;
}

/* An interrupted system call when a handler runs: EINTR or again afterwards. */
static void restart_for_handler(struct task *t, const struct k_sigaction *act)
{
	if ((s64)t->regs.orig_rax == -1)
		return;
	switch ((s64)t->regs.rax) {
	case -ERESTARTNOHAND:
	case -ERESTART_RESTARTBLOCK: t->regs.rax = (u64)-EINTR; break;
	case -ERESTARTSYS:
		if (!(act->flags & SA_RESTART)) {
			t->regs.rax = (u64)-EINTR;
			break;
		}
		/* fall through */
	case -ERESTARTNOINTR:
		t->regs.rax = t->regs.orig_rax;
		t->regs.rip -= 2;
		break;
	}
}

static void restart_without_handler(struct task *t)
{
	if ((s64)t->regs.orig_rax == -1)
		return;
	switch ((s64)t->regs.rax) {
	case -ERESTARTNOHAND:
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
		t->regs.rax = t->regs.orig_rax;
		t->regs.rip -= 2;
		break;
	case -ERESTART_RESTARTBLOCK:
		t->regs.rax = __NR_restart_syscall;
		t->regs.rip -= 2;
		break;
	}
	t->regs.orig_rax = (u64)-1;
}

/* A frame that could not be written: SIGSEGV, and without handler if it was SIGSEGV's own. */
static void frame_failed(struct task *t, int sig)
{
	siginfo_t si;

	if (sig == SIGSEGV) {
		struct sighand *sh = sighand_lock(t->tg);

		sh->action[SIGSEGV - 1].handler = (u64)SIG_DFL;
		sighand_unlock(sh);
	}
	siginfo_kernel(&si, SIGSEGV, SI_KERNEL);
	signal_force(t, &si);
}

void signal_settle_xstate(struct task *t)
{
	siginfo_t si;

	if (arch_settle_xstate(t) == 0)
		return;
	siginfo_kernel(&si, SIGSEGV, SI_KERNEL);
	signal_force(t, &si);
}

static void run_handler(struct task *t, int sig, const siginfo_t *info,
			const struct k_sigaction *act)
{
	u64 saved = t->restore_sigmask ? t->saved_sigmask : t->sigmask;
	u64 mask = t->sigmask | act->mask;

	restart_for_handler(t, act);
	t->regs.orig_rax = (u64)-1;
	if (arch_push_signal_frame(t, act, info, saved, &t->fault) < 0) {
		frame_failed(t, sig);
		return;
	}
	t->restore_sigmask = false;
	if (!(act->flags & SA_NODEFER))
		mask |= sigbit(sig);
	signal_set_mask(t, mask);
	if (task_traced(t))
		ptrace_handler_entered(t);
}

static bool call_was_interrupted(const struct task *t)
{
	s64 r = (s64)t->regs.rax;

	return r == -EINTR || r == -ERESTARTNOHAND || r == -ERESTARTSYS || r == -ERESTARTNOINTR ||
	       r == -ERESTART_RESTARTBLOCK;
}

static void restore_mask(struct task *t)
{
	t->restore_sigmask = false;
	signal_set_mask(t, t->saved_sigmask);
}

bool signal_deliver(struct task *t)
{
	struct k_sigaction act;
	siginfo_t info;
	int sig;

	task_complete_regs(t);
	/* A call that succeeded leaves signals that only its temporary mask let in. */
	if (t->restore_sigmask && !call_was_interrupted(t))
		restore_mask(t);
	for (;;) {
		sig = next_handled(t, &info, &act);
		if (sig < 0)
			return false;
		if (sig > 0) {
			run_handler(t, sig, &info, &act);
			if (!atomic_load(&t->sig_pending))
				return true;
			continue;
		}
		restart_without_handler(t);
		if (!t->restore_sigmask)
			return true;
		restore_mask(t);
	}
}
