/* Signals: rt_sig*, kill and its kin, sigaltstack, pause, restart_syscall. */
#include "sentry/sys/handlers.h"
#include "sentry/task/internal.h"

#include <sched.h>
#include <string.h>

#define ALL_SA_FLAGS                                                                               \
	(SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER |         \
	 SA_RESETHAND | SA_RESTORER | 0x00000800 /* SA_EXPOSE_TAGBITS */)

static bool signal_valid(int sig)
{
	return sig >= 1 && sig <= SIGNAL_COUNT;
}

/* A new action makes queued signals vanish if it ignores them. Sighand held. */
static void drop_ignored(struct task *t, int sig, const struct k_sigaction *act)
{
	bool ignored = act->handler == (u64)SIG_IGN ||
		       (act->handler == (u64)SIG_DFL && (sigbit(sig) & SIGNALS_IGNORED_BY_DEFAULT));
	struct task *i;

	if (!ignored)
		return;
	sigqueue_flush(&t->tg->pending, sigbit(sig));
	list_for_each (i, &t->tg->tasks, group_node)
		sigqueue_flush(&i->pending, sigbit(sig));
}

s64 sys_rt_sigaction(struct task *t, const u64 a[6])
{
	int sig = (int)a[0], r;
	uaddr new = ua(a[1]), old = ua(a[2]);
	struct k_sigaction act, before;
	struct sighand *sh;

	if (a[3] != sizeof(u64))
		return -EINVAL;
	if (new.v) {
		r = copy_in(t, &act, new, sizeof(act));
		if (r < 0)
			return r;
	}
	if (!signal_valid(sig) || (new.v && (sig == SIGKILL || sig == SIGSTOP)))
		return -EINVAL;
	sh = sighand_lock(t->tg);
	before = sh->action[sig - 1];
	if (new.v) {
		/* Unknown flags are cleared, so that programs can probe for new ones. */
		act.flags &= (u64)(u32)ALL_SA_FLAGS;
		act.mask &= ~(sigbit(SIGKILL) | sigbit(SIGSTOP));
		sh->action[sig - 1] = act;
		drop_ignored(t, sig, &act);
	}
	sighand_unlock(sh);
	if (old.v)
		return copy_out(t, old, &before, sizeof(before));
	return 0;
}

s64 sys_rt_sigprocmask(struct task *t, const u64 a[6])
{
	int how = (int)a[0], r;
	uaddr new = ua(a[1]), old = ua(a[2]);
	u64 before = t->sigmask, set;

	if (a[3] != sizeof(u64))
		return -EINVAL;
	if (new.v) {
		r = sys_sigset_in(t, new, a[3], &set);
		if (r < 0)
			return r;
		switch (how) {
		case SIG_BLOCK: set |= before; break;
		case SIG_UNBLOCK: set = before & ~set; break;
		case SIG_SETMASK: break;
		default: return -EINVAL;
		}
		if (set != before)
			signal_set_mask(t, set);
	}
	if (old.v)
		return copy_out(t, old, &before, sizeof(before));
	return 0;
}

s64 sys_rt_sigreturn(struct task *t, const u64 a[6])
{
	siginfo_t si;

	task_complete_regs(t);
	if (arch_pop_signal_frame(t) < 0) {
		t->regs.orig_rax = (u64)-1;
		siginfo_kernel(&si, SIGSEGV, SI_KERNEL);
		signal_force(t, &si);
	}
	return (s64)t->regs.rax; /* stays what the frame said */
}

s64 sys_rt_sigpending(struct task *t, const u64 a[6])
{
	u64 set = signal_pending_set(t) & t->sigmask;

	if (a[1] > sizeof(set))
		return -EINVAL;
	return copy_out(t, ua(a[0]), &set, a[1]);
}

s64 sys_rt_sigsuspend(struct task *t, const u64 a[6])
{
	u64 set;
	int r = sys_sigset_in(t, ua(a[0]), a[1], &set);

	if (r < 0)
		return r;
	signal_set_temp_mask(t, set);
	do
		task_block_prepare(t);
	while (task_block(t, NO_DEADLINE) == 0);
	return -ERESTARTNOHAND;
}

s64 sys_pause(struct task *t, const u64 a[6])
{
	do
		task_block_prepare(t);
	while (task_block(t, NO_DEADLINE) == 0);
	return -ERESTARTNOHAND;
}

/* Takes a signal of set, or says (under the lock) that one is waited for. */
static int sigwait_try(struct task *t, u64 set, siginfo_t *info)
{
	struct sighand *sh = sighand_lock(t->tg);
	int sig = signal_dequeue_locked(t, set, info);

	t->sigwait_set = sig ? 0 : set;
	signal_recalc_locked(t);
	sighand_unlock(sh);
	return sig;
}

static void sigwait_end(struct task *t)
{
	struct sighand *sh = sighand_lock(t->tg);

	t->sigwait_set = 0;
	sighand_unlock(sh);
}

s64 sys_rt_sigtimedwait(struct task *t, const u64 a[6])
{
	u64 set, deadline;
	siginfo_t info;
	int sig, e = 0, r = sys_sigset_in(t, ua(a[0]), a[3], &set);

	if (r < 0)
		return r;
	r = sys_deadline_in(t, ua(a[2]), &deadline);
	if (r < 0)
		return r;
	for (;;) {
		task_block_prepare(t);
		sig = sigwait_try(t, set, &info);
		if (sig || e < 0)
			break;
		e = task_block(t, deadline);
	}
	sigwait_end(t);
	if (!sig)
		return e == -ETIMEDOUT ? -EAGAIN : -EINTR;
	if (a[1]) {
		r = copy_out(t, ua(a[1]), &info, sizeof(info));
		if (r < 0)
			return r;
	}
	return sig;
}

/* ---- sending ---- */

s64 sys_kill(struct task *t, const u64 a[6])
{
	int sig = (int)a[1];
	siginfo_t si;

	if (sig < 0 || sig > SIGNAL_COUNT)
		return -EINVAL;
	siginfo_user(&si, sig, SI_USER, t);
	return signal_kill(t, (int)a[0], &si);
}

/* To thread tid of group tgid (0: any group). */
static s64 send_thread(struct task *t, int tgid, int tid, const siginfo_t *si)
{
	struct task *target = task_find(t->kernel, tid);
	s64 r;

	if (!target)
		return -ESRCH;
	if (tgid > 0 && target->tg->tgid != tgid) {
		task_put(target);
		return -ESRCH;
	}
	r = signal_may_send(t, target, si->si_signo);
	if (r == 0 && si->si_signo)
		r = signal_send_task(target, si);
	task_put(target);
	return r;
}

s64 sys_tgkill(struct task *t, const u64 a[6])
{
	int tgid = (int)a[0], tid = (int)a[1], sig = (int)a[2];
	siginfo_t si;

	if (tgid <= 0 || tid <= 0 || sig < 0 || sig > SIGNAL_COUNT)
		return -EINVAL;
	siginfo_user(&si, sig, SI_TKILL, t);
	return send_thread(t, tgid, tid, &si);
}

s64 sys_tkill(struct task *t, const u64 a[6])
{
	int tid = (int)a[0], sig = (int)a[1];
	siginfo_t si;

	if (tid <= 0 || sig < 0 || sig > SIGNAL_COUNT)
		return -EINVAL;
	siginfo_user(&si, sig, SI_TKILL, t);
	return send_thread(t, 0, tid, &si);
}

/* Nobody may pretend to be the kernel or kill() to others. */
static int siginfo_in(struct task *t, uaddr addr, int sig, int target_tgid, siginfo_t *ret)
{
	int r = copy_in(t, ret, addr, sizeof(*ret));

	if (r < 0)
		return r;
	if (sig < 0 || sig > SIGNAL_COUNT)
		return -EINVAL;
	ret->si_signo = sig;
	if ((ret->si_code >= 0 || ret->si_code == SI_TKILL) && target_tgid != t->tg->tgid)
		return -EPERM;
	return 0;
}

s64 sys_rt_sigqueueinfo(struct task *t, const u64 a[6])
{
	siginfo_t si;
	int pid = (int)a[0], r = siginfo_in(t, ua(a[2]), (int)a[1], pid, &si);

	if (r < 0)
		return r;
	return pid <= 0 ? -ESRCH : signal_kill(t, pid, &si);
}

s64 sys_rt_tgsigqueueinfo(struct task *t, const u64 a[6])
{
	int tgid = (int)a[0], tid = (int)a[1], r;
	siginfo_t si;

	if (tgid <= 0 || tid <= 0)
		return -EINVAL;
	r = siginfo_in(t, ua(a[3]), (int)a[2], tid == t->tid ? t->tg->tgid : 0, &si);
	return r < 0 ? r : send_thread(t, tgid, tid, &si);
}

/* ---- the rest ---- */

static int set_altstack(struct task *t, const stack_t *new)
{
	int mode = new->ss_flags & ~(int)SS_AUTODISARM;

	if (signal_on_altstack(t, t->regs.rsp))
		return -EPERM;
	if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0)
		return -EINVAL;
	if (mode == SS_DISABLE) {
		t->altstack = (stack_t){ .ss_flags = new->ss_flags };
		return 0;
	}
	if (new->ss_size < MINSIGSTKSZ_KERNEL)
		return -ENOMEM;
	t->altstack = *new;
	return 0;
}

s64 sys_sigaltstack(struct task *t, const u64 a[6])
{
	stack_t new, old = t->altstack;
	int r;

	task_complete_regs(t);
	if (!old.ss_size)
		old.ss_flags = SS_DISABLE | (old.ss_flags & (int)SS_AUTODISARM);
	else
		old.ss_flags = (signal_on_altstack(t, t->regs.rsp) ? SS_ONSTACK : 0) |
			       (old.ss_flags & (int)SS_AUTODISARM);
	if (a[0]) {
		r = copy_in(t, &new, ua(a[0]), sizeof(new));
		if (r == 0)
			r = set_altstack(t, &new);
		if (r < 0)
			return r;
	}
	return a[1] ? copy_out(t, ua(a[1]), &old, sizeof(old)) : 0;
}

s64 sys_restart_syscall(struct task *t, const u64 a[6])
{
	if (!t->restart.fn)
		return -EINTR;
	return t->restart.fn(t, &t->restart);
}
