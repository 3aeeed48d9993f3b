/* The task loop: run the guest, serve what stopped it, deliver signals; and the first task. */
#include "base/host_sync.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "sentry/fd/fdtable.h"
#include "sentry/sys/syscall.h"
#include "sentry/task/internal.h"
#include "sentry/task/oom.h"
#include "sentry/tty/tty.h"
#include "vfs/hostfs.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PF_PROTECTION 1ULL /* page-fault error code: the page was present */
#define FLAG_TF 0x100ULL

static bool is_restart(const struct task *t)
{
	switch ((s64)t->regs.rax) {
	case -ERESTARTSYS:
	case -ERESTARTNOINTR:
	case -ERESTARTNOHAND:
	case -ERESTART_RESTARTBLOCK: return (s64)t->regs.orig_rax != -1;
	}
	return false;
}

static void serve_syscall(struct task *t, const struct platform_stop *stop)
{
	struct user_regs_struct *r = &t->regs;
	s64 ret = -ENOSYS;

	if (stop->trapped)
		mm_text_trap(t->mm, r->rip, r->orig_rax);
	if (task_traced(t))
		task_complete_regs(t);
	t->in_syscall = true;
	t->syscall_nr = r->orig_rax;
	if (stop->syscall_is_compat) {
		log_info("task %d (%s): 32-bit system call %lld", t->tid, t->comm,
			 (long long)r->orig_rax);
	} else if (!task_traced(t) || ptrace_syscall_enter(t)) {
		u64 args[6] = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 };

		ret = sys_dispatch(t, r->orig_rax, args);
	} else {
		ret = (s64)r->rax; /* the tracer's answer */
	}
	if (ret == -EFAULT && mm_take_starved(t->mm))
		out_of_memory(t, 0);
	if (!t->exiting)
		r->rax = (u64)ret;
	if (task_traced(t) && !t->exiting)
		ptrace_syscall_exit(t);
	t->in_syscall = false;
	t->syscall_nr = (u64)-1;
}

#define FAULT_RECLAIMS 4
#define FAULT_RECLAIM_SIZE (16UL << 20)
#define CACHE_SHARE 16 /* of the memory: what mapped files keep when it is short */

static bool cache_is_large(struct kernel *k)
{
	return pgalloc_acct_usage(k->memory, MEMORY_OF_CACHE) > k->memory_limit / CACHE_SHARE;
}

static int resolve_fault(struct task *t, const struct platform_stop *stop, int *ret_sig,
			 int *ret_code)
{
	int r;

	for (;;) {
		r = mm_fault(t->mm, stop->fault_addr, stop->access_write, stop->access_exec,
			     ret_sig, ret_code);
		if (r == -ESTALE) {
			task_go_home(t);
			continue;
		}
		if (r != -EAGAIN)
			return r;
		assert_no_locks();
		platform_context_idle(t->ctx, true);
		mm_await_child(t->mm);
		platform_context_idle(t->ctx, false);
	}
}

static void serve_fault(struct task *t, const struct platform_stop *stop)
{
	siginfo_t si;
	int sig = SIGSEGV, code = SEGV_MAPERR, r;
	u64 error = stop->error_code;

	r = resolve_fault(t, stop, &sig, &code);
	*(r == 1 ? &t->majflt : &t->minflt) += 1;
	if (r >= 0)
		return;
	/* Before anybody is killed, mapped files give their clean pages back. The last of them are
	 * what is running: to read them again and again for each page that is asked for helps
	 * nobody. */
	for (int i = 0; r == -ENOMEM && i < FAULT_RECLAIMS && cache_is_large(t->kernel) &&
			hostfs_reclaim_mapped(FAULT_RECLAIM_SIZE);
	     i++)
		r = resolve_fault(t, stop, &sig, &code);
	if (r >= 0)
		return;
	if (r == -ENOMEM) {
		out_of_memory(t, stop->fault_addr);
		return;
	}
	/* Nothing is mapped, whatever the stub's page tables held. */
	if (code == SEGV_MAPERR && sig == SIGSEGV)
		error &= ~PF_PROTECTION;
	siginfo_fault(&si, sig, code, stop->fault_addr);
	signal_force_fault(t, &si, stop->trapno, error, stop->cr2);
}

static void serve_xstate(struct task *t, const struct platform_stop *stop)
{
	int sig, code;

	/* For the next time: what the sentry writes does not map the page for the guest. */
	if (stop->fault)
		resolve_fault(t, stop, &sig, &code);
	signal_settle_xstate(t);
}

static void serve_exception(struct task *t, const struct platform_stop *stop)
{
	siginfo_t si;
	u64 at;

	if (stop->signo == SIGILL && mm_text_landing(t->mm, t->regs.rip, &at)) {
		platform_context_continue_at(t->ctx, t->regs.rip, at);
		return;
	}
	siginfo_fault(&si, stop->signo, stop->si_code, stop->fault_addr);
	signal_force_fault(t, &si, stop->trapno, stop->error_code, stop->cr2);
}

static void serve_stop(struct task *t, const struct platform_stop *stop)
{
	if (stop->reason != PLATFORM_STOP_SYSCALL)
		t->regs.orig_rax = (u64)-1;
	switch (stop->reason) {
	case PLATFORM_STOP_SYSCALL: serve_syscall(t, stop); break;
	case PLATFORM_STOP_FAULT: serve_fault(t, stop); break;
	case PLATFORM_STOP_EXCEPTION: serve_exception(t, stop); break;
	case PLATFORM_STOP_INTERRUPTED: break;
	case PLATFORM_STOP_XSTATE: serve_xstate(t, stop); break;
	case PLATFORM_STOP_DEAD:
		log_info("task %d (%s): its stub is gone", t->tid, t->comm);
		task_group_exit(t, SIGKILL);
		break;
	}
}

/* One stay in the guest. A kick ends it at once. */
static void run_guest(struct task *t, struct platform_stop *stop)
{
	bool step;

	if (atomic_load_explicit(&t->ids_stale, memory_order_relaxed))
		task_ids_publish(t);
	step = task_traced(t) && ptrace_stepping(t);
	/* Patched calls need GS, and who steps shall see the program's own instructions. */
	if ((t->regs.gs_base || step) && !platform_as_own_gs(mm_as(t->mm))) {
		platform_as_set_own_gs(mm_as(t->mm));
		mm_text_off(t->mm);
	}
	if (step)
		t->regs.eflags |= FLAG_TF;
	platform_switch(t->ctx, &t->regs, stop);
	/* Without the time asleep: processor time, as good as preemption lets it be. */
	atomic_store_explicit(&t->sys_tsc, t->served_tsc + platform_context_served_tsc(t->ctx),
			      memory_order_relaxed);
	if (step)
		t->regs.eflags &= ~FLAG_TF;
}

void task_run(struct task *t)
{
	struct platform_stop stop;

	while (!t->exiting) {
		if (atomic_load(&t->sig_pending) || t->restore_sigmask || is_restart(t)) {
			if (!signal_deliver(t))
				break;
			continue;
		}
		run_guest(t, &stop);
		serve_stop(t, &stop);
	}
	task_finish(t);
}

/* ---- the first task ---- */

struct first {
	struct task *task;
	int result;
	_Atomic u32 done;
};

static void first_main(void *arg)
{
	struct first *f = arg;
	struct task *t = f->task;
	struct kernel *k = t->kernel;
	int r;

	current_task = t;
	r = task_context_new(k, mm_as(t->mm), NULL, &t->ctx);
	if (r == 0)
		platform_as_settle(mm_as(t->mm)); /* mm_map_ahead's mappings */
	else
		current_task = NULL;
	f->result = r;
	atomic_store(&f->done, 1);
	host_futex_wake(&f->done, 1, true);
	if (r == 0)
		task_run(t);
	else
		task_thread_gone(k);
}

static const struct rlimit64 default_limits[RLIM_NLIMITS] = {
	[RLIMIT_CPU] = { RLIM64_INFINITY, RLIM64_INFINITY },
	[RLIMIT_FSIZE] = { RLIM64_INFINITY, RLIM64_INFINITY },
	[RLIMIT_DATA] = { RLIM64_INFINITY, RLIM64_INFINITY },
	[RLIMIT_STACK] = { 8UL << 20, RLIM64_INFINITY },
	[RLIMIT_CORE] = { 0, RLIM64_INFINITY },
	[RLIMIT_RSS] = { RLIM64_INFINITY, RLIM64_INFINITY },
	[RLIMIT_NPROC] = { TASK_COUNT_MAX, TASK_COUNT_MAX },
	[RLIMIT_NOFILE] = { 1024, FD_TABLE_MAX },
	[RLIMIT_MEMLOCK] = { 8UL << 20, 8UL << 20 },
	[RLIMIT_AS] = { RLIM64_INFINITY, RLIM64_INFINITY },
	[RLIMIT_LOCKS] = { RLIM64_INFINITY, RLIM64_INFINITY },
	[RLIMIT_SIGPENDING] = { 16384, 16384 },
	[RLIMIT_MSGQUEUE] = { 819200, 819200 },
	[RLIMIT_RTTIME] = { RLIM64_INFINITY, RLIM64_INFINITY },
};

/* The group, its session, the numbers. */
static int first_publish(struct kernel *k, struct thread_group *tg, struct task *t)
{
	struct pid_entry *e;
	struct process_group *old;
	int r;

	MUTEX_GUARD(&k->tasklist_lock);
	r = pid_alloc(k, PID_INIT, &e);
	if (r < 0)
		return r;
	k->pids->last = PID_INIT;
	e->reserved = false;
	e->task = t;
	e->tg = tg;
	tg->leader = t;
	list_push_back(&tg->tasks, &t->group_node);
	tg->task_count = tg->present_count = 1;
	k->pids->tasks++;
	atomic_store(&t->state, TASK_RUNNING);
	atomic_store(&t->sig_pending, true);
	return session_start_locked(tg, &old);
}

static struct task *first_new(struct kernel *k, struct thread_group **ret_tg)
{
	struct sighand *sh = sighand_new();
	struct thread_group *tg = sh ? thread_group_new(k, PID_INIT, sh) : NULL;
	struct task *t = tg ? task_new(k, tg) : NULL;

	sighand_put(sh);
	if (!t) {
		thread_group_put(tg);
		return NULL;
	}
	memcpy(tg->limits, default_limits, sizeof(tg->limits));
	tg->exit_signal = SIGCHLD;
	t->tid = PID_INIT;
	t->altstack.ss_flags = SS_DISABLE;
	t->timer_slack_ns = t->misc.default_slack_ns = 50000;
	memcpy(t->affinity, k->cpu_mask, sizeof(t->affinity));
	*ret_tg = tg;
	return t;
}

int task_spawn_init(struct kernel *k, struct mm *mm, struct fs_context *fs, struct fd_table *fds,
		    struct nsproxy *ns, const struct cred *cred,
		    const struct user_regs_struct *regs, const char *comm, struct task **ret)
{
	struct first f = { 0 };
	struct thread_group *tg;
	struct task *t = first_new(k, &tg);
	struct host_worker *w;
	int r;

	if (!t)
		return -ENOMEM; /* the sandbox ends: references do not matter any more */
	t->mm = mm;
	t->fs = fs;
	t->fds = fds;
	t->ns = ns;
	t->cred = cred;
	t->regs = *regs;
	t->regs.orig_rax = (u64)-1;
	snprintf(t->comm, sizeof(t->comm), "%s", comm);
	r = first_publish(k, tg, t);
	if (r < 0)
		return r;
	k->init = thread_group_get(tg);
	if (k->console)
		tty_attach_session(k->console, tg);
	task_get(t); /* the thread's */
	task_get(t); /* the caller's */
	f.task = t;
	atomic_fetch_add(&k->pids->threads, 1);
	r = host_worker_get(&w);
	if (r < 0)
		return r;
	host_worker_start(w, first_main, &f);
	while (!atomic_load(&f.done))
		host_futex_wait_until(&f.done, 0, NO_DEADLINE);
	if (f.result == 0)
		*ret = t;
	return f.result;
}
