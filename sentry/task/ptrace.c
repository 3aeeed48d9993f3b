/* Trace stops: the tracee's side of the guest's ptrace(2). See ptrace.h. */
#include "sentry/task/ptrace.h"

#include "base/log.h"
#include "sentry/kernel/kernel.h"
#include "sentry/task/internal.h"

#include <linux/capability.h>
#include <linux/ptrace.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define EVENTMSG_ENTRY 1
#define EVENTMSG_EXIT 2

/* ---- links ---- */

int ptrace_link_locked(struct task *tracer, struct task *t, u32 options, bool seized)
{
	struct ptrace_state *p;
	struct sighand *sh;

	if (t->ptrace)
		return -EPERM;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->tracee = t;
	p->tracer = tracer;
	p->options = options;
	p->seized = seized;
	list_push_back(&tracer->tracees, &p->node);
	sh = sighand_lock(t->tg);
	__atomic_store_n(&t->ptrace, p, __ATOMIC_RELAXED);
	t->stop_seen = t->tg->stop_gen - 1;
	sighand_unlock(sh);
	task_ids_changed(t);
	return 0;
}

void ptrace_unlink_locked(struct task *t)
{
	struct ptrace_state *p = t->ptrace;
	struct sighand *sh;

	if (!p)
		return;
	list_del(&p->node);
	sh = sighand_lock(t->tg);
	__atomic_store_n(&t->ptrace, NULL, __ATOMIC_RELAXED);
	task_kick(t); /* ends a stop, or joins a stop of the group */
	sighand_unlock(sh);
	atomic_store(&t->ids_stale, true);
	free(p);
}

bool ptrace_release_one_locked(struct task *t, struct reap *ret)
{
	struct ptrace_state *p;
	struct thread_group *tg;
	struct task *x;

	if (list_empty(&t->tracees))
		return false;
	p = list_first(&t->tracees, struct ptrace_state, node);
	x = p->tracee;
	tg = x->tg;
	if (p->options & PTRACE_O_EXITKILL) {
		siginfo_t si;

		siginfo_kernel(&si, SIGKILL, SI_KERNEL);
		signal_send_group(tg, &si);
	}
	ptrace_unlink_locked(x);
	if (atomic_load(&x->state) != TASK_ZOMBIE)
		return true;
	if (x != tg->leader) {
		ret->leader = task_unhash_locked(x);
		if (tg->zombie && tg->parent)
			waitq_wake(&tg->parent->child_waitq, EPOLLIN);
	} else if (tg->zombie && notify_parent_exit_locked(tg))
		thread_group_reap_locked(tg, ret);
	return true;
}

void ptrace_inherit_locked(struct task *parent, struct task *child, int event)
{
	struct ptrace_state *p = parent->ptrace;
	siginfo_t si;

	if (!p || !event || !(p->options & (1U << event)))
		return;
	if (ptrace_link_locked(p->tracer, child, p->options, p->seized) < 0) {
		log_warn("no memory to trace task %d", child->tid);
		return;
	}
	if (p->seized) {
		child->ptrace->trap_pending = true;
		return;
	}
	siginfo_kernel(&si, SIGSTOP, SI_USER);
	signal_send_task(child, &si);
}

/* ---- the stop ---- */

static void tell_tracer(struct task *t, int code, int status)
{
	struct thread_group *to;
	struct sighand *sh;
	siginfo_t si;

	mutex_lock(&t->kernel->tasklist_lock);
	if (t->ptrace) {
		to = t->ptrace->tracer->tg;
		siginfo_kernel(&si, SIGCHLD, code);
		si.si_pid = t->tid;
		si.si_uid = t->cred->uid;
		si.si_status = status & 0x7f;
		sh = sighand_lock(to);
		if (sh->action[SIGCHLD - 1].handler != (u64)SIG_IGN &&
		    !(sh->action[SIGCHLD - 1].flags & SA_NOCLDSTOP))
			signal_send_locked(NULL, to, &si);
		sighand_unlock(sh);
		waitq_wake(&to->child_waitq, EPOLLIN);
	}
	mutex_unlock(&t->kernel->tasklist_lock);
}

void ptrace_resume_locked(struct task *t, enum ptrace_resume how, int sig)
{
	struct ptrace_state *p = t->ptrace;

	p->resume = how;
	p->stopped = p->stop_waitable = p->listening = false;
	t->ptrace_inject = sig;
	task_wake(t);
}

void ptrace_notify_group_locked(struct task *t)
{
	struct ptrace_state *p = t->ptrace;

	if (!p || !p->seized)
		return;
	p->trap_pending = true;
	if (p->listening)
		ptrace_resume_locked(t, RESUME_CONT, 0);
}

/* Sleeps until the stop is over; returns with the sighand locked. */
static struct sighand *stop_sleep(struct task *t)
{
	struct thread_group *tg = t->tg;

	for (;;) {
		struct sighand *sh;
		struct ptrace_state *p;

		task_block_prepare(t);
		sh = sighand_lock(tg);
		p = t->ptrace;
		if (!p || !p->stopped || atomic_load(&t->killed)) {
			atomic_store(&t->state, TASK_RUNNING);
			if (p) {
				p->stopped = p->stop_waitable = false;
				p->xstate = NULL;
			}
			return sh;
		}
		sighand_unlock(sh);
		task_sleep(t, NO_DEADLINE);
	}
}

static bool may_stop(struct task *t)
{
	/* The thread that began its group's exit still stops for PTRACE_EVENT_EXIT. */
	return t->ptrace && !atomic_load(&t->killed);
}

/*
 * Stops with si_status `code`. Sighand locked before and after. The tracer
 * changes regs, info and inject meanwhile. False: not stopped, or being killed.
 */
static bool stop_locked(struct task *t, struct sighand **sh, int code, const siginfo_t *info,
			u64 message)
{
	struct ptrace_xstate x = { .size = platform_xstate_size(t->kernel->platform) };
	struct thread_group *tg = t->tg;
	struct ptrace_state *p;

	task_complete_regs(t);
	sighand_unlock(*sh);
	signal_settle_xstate(t);
	x.data = calloc(1, x.size);
	if (x.data)
		platform_get_xstate(t->ctx, x.data, x.size);
	*sh = sighand_lock(tg);
	if (!x.data || !may_stop(t)) {
		free(x.data);
		return false;
	}
	p = t->ptrace;
	p->stop_code = code;
	p->info = *info;
	p->message = message;
	p->xstate = &x;
	p->stopped = p->stop_waitable = true;
	t->ptrace_inject = 0;
	atomic_store(&t->state, TASK_TRACED);
	sighand_unlock(*sh);
	tell_tracer(t, CLD_TRAPPED, code);
	signal_stop_recheck(tg);
	*sh = stop_sleep(t);
	if (x.changed) {
		sighand_unlock(*sh);
		platform_set_xstate(t->ctx, x.data, x.size);
		*sh = sighand_lock(tg);
	}
	free(x.data);
	return !atomic_load(&t->killed);
}

static void trap_info(struct task *t, siginfo_t *si, int sig, int code)
{
	siginfo_kernel(si, sig, code);
	si->si_pid = t->tid;
	si->si_uid = t->cred->uid;
}

/* A signal that the tracer gave when it ended a stop that was not about a signal. */
static void send_injected(struct task *t)
{
	siginfo_t si;

	if (!t->ptrace_inject)
		return;
	siginfo_kernel(&si, t->ptrace_inject, SI_USER);
	t->ptrace_inject = 0;
	signal_send_locked(t, t->tg, &si);
}

struct sighand *ptrace_do_trap(struct task *t, struct sighand *sh)
{
	struct thread_group *tg = t->tg;
	struct ptrace_state *p = t->ptrace;
	bool group = tg->stop_pending || tg->stopped;
	int sig = group ? tg->stop_signal : SIGTRAP, code = sig;
	siginfo_t si;

	p->trap_pending = false;
	t->stop_seen = tg->stop_gen;
	if (p->seized)
		code |= PTRACE_EVENT_STOP << 8;
	trap_info(t, &si, sig, p->seized ? code : 0);
	stop_locked(t, &sh, code, &si, 0);
	return sh;
}

struct sighand *ptrace_signal(struct task *t, struct sighand *sh, int *sig, siginfo_t *info)
{
	int asked = *sig;

	if (!stop_locked(t, &sh, *sig, info, 0)) {
		if (atomic_load(&t->killed))
			*sig = 0;
		return sh;
	}
	*sig = t->ptrace_inject;
	t->ptrace_inject = 0;
	if (!*sig)
		return sh;
	if (*sig == asked && t->ptrace)
		*info = t->ptrace->info; /* PTRACE_SETSIGINFO */
	if (*sig != info->si_signo) {
		siginfo_kernel(info, *sig, SI_USER);
		if (t->ptrace) {
			info->si_pid = t->ptrace->tracer->tg->tgid;
			info->si_uid = t->ptrace->tracer->cred->uid;
		}
	}
	if (sigbit(*sig) & SIGNALS_STOP)
		t->stop_dequeued = true;
	if (t->sigmask & sigbit(*sig)) {
		signal_send_locked(t, t->tg, info);
		*sig = 0;
	}
	return sh;
}

/* A stop of its own, outside signal delivery. */
static bool plain_stop(struct task *t, int code, u64 message)
{
	struct sighand *sh = sighand_lock(t->tg);
	siginfo_t si;
	bool r;

	trap_info(t, &si, SIGTRAP, code);
	r = stop_locked(t, &sh, code, &si, message);
	/* Only stops at system calls take a signal; events ignore it. */
	if (r && code >> 8 == 0)
		send_injected(t);
	t->ptrace_inject = 0;
	signal_recalc_locked(t);
	sighand_unlock(sh);
	return r;
}

static enum ptrace_resume resume_of(struct task *t, u32 *ret_options)
{
	struct sighand *sh = sighand_lock(t->tg);
	enum ptrace_resume r = t->ptrace ? t->ptrace->resume : RESUME_CONT;

	*ret_options = t->ptrace ? t->ptrace->options : 0;
	sighand_unlock(sh);
	return r;
}

static void set_syscall_op(struct task *t, u8 op)
{
	struct sighand *sh = sighand_lock(t->tg);

	if (t->ptrace)
		t->ptrace->syscall_op = op;
	sighand_unlock(sh);
}

bool ptrace_stepping(struct task *t)
{
	u32 options;
	enum ptrace_resume r = resume_of(t, &options);

	return r == RESUME_STEP || r == RESUME_SYSEMU_STEP;
}

void ptrace_handler_entered(struct task *t)
{
	if (ptrace_stepping(t))
		plain_stop(t, SIGTRAP, 0);
}

static int syscall_stop_code(u32 options)
{
	return SIGTRAP | (options & PTRACE_O_TRACESYSGOOD ? 0x80 : 0);
}

bool ptrace_syscall_enter(struct task *t)
{
	u32 options;
	enum ptrace_resume r = resume_of(t, &options);

	if (r != RESUME_SYSCALL && r != RESUME_SYSEMU && r != RESUME_SYSEMU_STEP)
		return true;
	set_syscall_op(t, PTRACE_SYSCALL_INFO_ENTRY);
	plain_stop(t, syscall_stop_code(options), EVENTMSG_ENTRY);
	set_syscall_op(t, PTRACE_SYSCALL_INFO_NONE);
	return r == RESUME_SYSCALL && (s64)t->regs.orig_rax != -1;
}

void ptrace_syscall_exit(struct task *t)
{
	u32 options;
	enum ptrace_resume r = resume_of(t, &options);
	siginfo_t si;

	if (r == RESUME_SYSCALL) {
		set_syscall_op(t, PTRACE_SYSCALL_INFO_EXIT);
		plain_stop(t, syscall_stop_code(options), EVENTMSG_EXIT);
		set_syscall_op(t, PTRACE_SYSCALL_INFO_NONE);
	} else if (r == RESUME_STEP) {
		siginfo_fault(&si, SIGTRAP, TRAP_TRACE, t->regs.rip);
		signal_force(t, &si);
	}
}

bool ptrace_event_enabled(struct task *t, int event)
{
	u32 options;

	if (!task_traced(t))
		return false;
	resume_of(t, &options);
	return options & (1U << event);
}

void ptrace_event(struct task *t, int event, u64 message)
{
	if (ptrace_event_enabled(t, event))
		plain_stop(t, SIGTRAP | event << 8, message);
}

void ptrace_exec(struct task *t)
{
	struct sighand *sh;
	siginfo_t si;
	bool legacy;

	if (ptrace_event_enabled(t, PTRACE_EVENT_EXEC)) {
		plain_stop(t, SIGTRAP | PTRACE_EVENT_EXEC << 8, (u64)t->pre_exec_tid);
		return;
	}
	sh = sighand_lock(t->tg);
	legacy = t->ptrace && !t->ptrace->seized;
	sighand_unlock(sh);
	if (!legacy)
		return;
	siginfo_kernel(&si, SIGTRAP, SI_USER);
	signal_send_task(t, &si);
}

bool ptrace_seccomp_event(struct task *t, u16 data)
{
	if (!ptrace_event_enabled(t, PTRACE_EVENT_SECCOMP))
		return false;
	set_syscall_op(t, PTRACE_SYSCALL_INFO_SECCOMP);
	plain_stop(t, SIGTRAP | PTRACE_EVENT_SECCOMP << 8, data);
	set_syscall_op(t, PTRACE_SYSCALL_INFO_NONE);
	return !atomic_load(&t->killed) && (s64)t->regs.orig_rax >= 0;
}

/* ---- exit and wait ---- */

bool ptrace_reports_exit_locked(struct task *t)
{
	return t->ptrace;
}

void ptrace_notify_exit_locked(struct task *t)
{
	struct thread_group *to = t->ptrace->tracer->tg;
	siginfo_t si;

	siginfo_kernel(&si, SIGCHLD, t->exit_code & 0x7f ? CLD_KILLED : CLD_EXITED);
	si.si_pid = t->tid;
	si.si_uid = t->cred->uid;
	si.si_status = t->exit_code & 0x7f ? t->exit_code & 0x7f : t->exit_code >> 8;
	signal_send_group(to, &si);
	waitq_wake(&to->child_waitq, EPOLLIN);
}

bool ptrace_foreign_tracer_locked(struct task *t)
{
	return t->ptrace && t->ptrace->tracer->tg != t->tg->parent;
}

bool ptrace_wait_stop_locked(struct task *tracee, bool consume, siginfo_t *ret)
{
	struct sighand *sh = sighand_lock(tracee->tg);
	struct ptrace_state *p = tracee->ptrace;
	bool found = p && p->stopped && p->stop_waitable;

	if (found) {
		ret->si_code = CLD_TRAPPED;
		ret->si_status = p->stop_code;
		if (consume)
			p->stop_waitable = false;
	}
	sighand_unlock(sh);
	return found;
}

int ptrace_tracer_tid(struct task *t)
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);

	return t->ptrace ? t->ptrace->tracer->tg->tgid : 0;
}

int ptrace_may_access(struct task *t, struct task *target)
{
	const struct cred *c = t->cred, *tc;
	struct mm *mm;
	bool ok;

	if (t->tg == target->tg || cred_capable(c, CAP_SYS_PTRACE))
		return 0;
	tc = task_get_cred(target);
	ok = c->uid == tc->euid && c->uid == tc->suid && c->uid == tc->uid && c->gid == tc->egid &&
	     c->gid == tc->sgid && c->gid == tc->gid && !(tc->cap_permitted & ~c->cap_permitted);
	cred_put(tc);
	if (!ok)
		return -EPERM;
	mm = task_get_mm(target);
	ok = !mm || mm_dumpable(mm) == 1;
	mm_put(mm);
	return ok ? 0 : -EPERM;
}
