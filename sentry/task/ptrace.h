/*
 * sentry/task/ptrace.h: the guest's own ptrace(2): trace stops.
 *
 * A traced task has t->ptrace. It stops in ptrace_stop(): state TASK_TRACED,
 * its tracer is told (SIGCHLD, wait), and it sleeps until the tracer resumes it
 * or a SIGKILL comes. Everything here is called by the tracee's own thread on
 * its way through the signal code, the system call path, clone, exec and exit;
 * requests by the tracer are in ptrace.c and sys_ptrace.c.
 *
 * Locks: who traces whom is under tasklist; the stop's own state under the
 * tracee's sighand lock. t->ptrace changes under both.
 */
#ifndef MINISENTRY_SENTRY_TASK_PTRACE_H
#define MINISENTRY_SENTRY_TASK_PTRACE_H

#include "sentry/task/task.h"

enum ptrace_resume { RESUME_CONT, RESUME_SYSCALL, RESUME_STEP, RESUME_SYSEMU, RESUME_SYSEMU_STEP };

/* The vector state, saved by the tracee when it stops, put back when it goes on. */
struct ptrace_xstate {
	u8 *data;
	size_t size;
	bool changed;
};

struct ptrace_state {
	struct task *tracee; /* immutable */
	struct task *tracer; /* immutable; no reference: it unlinks its tracees when it exits */
	struct list node;    /* tasklist: tracer->tracees */
	/* tracee's sighand */
	u32 options; /* PTRACE_O_* */
	bool seized;
	bool trap_pending;  /* stop as soon as possible: PTRACE_INTERRUPT, a new seized child */
	bool listening;	    /* PTRACE_LISTEN */
	bool stopped;	    /* in ptrace_stop, may be resumed */
	bool stop_waitable; /* wait4 has not reported this stop */
	bool killed;	    /* PTRACE_KILL */
	int stop_code;	    /* si_status of the stop: sig | event << 8 */
	u64 message;	    /* PTRACE_GETEVENTMSG */
	siginfo_t info;	    /* of the stop */
	enum ptrace_resume resume;
	u8 syscall_op; /* PTRACE_SYSCALL_INFO_* of the stop */
	u16 seccomp_data;
	struct ptrace_xstate *xstate; /* while stopped: on the tracee's stack */
};

/* A hint without a lock: whoever goes on with it asks again under the sighand lock. */
static inline bool task_traced(struct task *t)
{
	return __atomic_load_n(&t->ptrace, __ATOMIC_RELAXED);
}
/* Sighand held, for all three. */
static inline bool ptrace_trap_pending(struct task *t)
{
	return t->ptrace && t->ptrace->trap_pending;
}
/* The group stops and t, a tracee, has not reported that stop. */
static inline bool ptrace_stop_unseen(struct task *t)
{
	return t->ptrace && (t->tg->stop_pending || t->tg->stopped) &&
	       t->stop_seen != t->tg->stop_gen;
}
/* The group's stop begins or ends: a seized task traps (again), so that its tracer hears of it. */
void ptrace_notify_group_locked(struct task *t);
/* Ends t's stop. */
void ptrace_resume_locked(struct task *t, enum ptrace_resume how, int sig);
/* Both are called and return with t's sighand locked; the lock is given up while stopped. */
struct sighand *ptrace_do_trap(struct task *t, struct sighand *sh);
/* A dequeued signal: the tracer may change or cancel it (*sig = 0). */
struct sighand *ptrace_signal(struct task *t, struct sighand *sh, int *sig, siginfo_t *info);
/* Single-stepping stops after a handler's frame was pushed. No lock held, as for all below. */
void ptrace_handler_entered(struct task *t);
/* Before / after a system call. enter: false when the call is to be skipped. */
bool ptrace_syscall_enter(struct task *t);
void ptrace_syscall_exit(struct task *t);
/* An event stop if its option is set. */
void ptrace_event(struct task *t, int event, u64 message);
bool ptrace_event_enabled(struct task *t, int event);
/* A new child of a traced parent is traced as well when the parent's options say so. tasklist held.
 */
void ptrace_inherit_locked(struct task *parent, struct task *child, int event);
/* exec: the event, or the SIGTRAP of old. */
void ptrace_exec(struct task *t);
struct reap;
/* Exit: lets go of one of t's tracees; false: there are none left. tasklist held; ret for a later
 * reap_put. */
bool ptrace_release_one_locked(struct task *t, struct reap *ret);
/* Starts and ends the tracing of t. tasklist held. -EPERM: traced already; -ENOMEM. */
int ptrace_link_locked(struct task *tracer, struct task *t, u32 options, bool seized);
void ptrace_unlink_locked(struct task *t);
/* A traced task's exit is reported to its tracer, which then reaps it. tasklist held for all four.
 */
bool ptrace_reports_exit_locked(struct task *t);
void ptrace_notify_exit_locked(struct task *t);
/* The tracer is not in the real parent's group. */
bool ptrace_foreign_tracer_locked(struct task *t);
/* wait4: what a tracee of `tracer` has to report; see wait.c. */
bool ptrace_wait_stop_locked(struct task *tracee, bool consume, siginfo_t *ret);
/* seccomp's SECCOMP_RET_TRACE: false without a tracer that wants it. */
bool ptrace_seccomp_event(struct task *t, u16 data);
/* TF is to be set for the next switch. */
bool ptrace_stepping(struct task *t);
/* PTRACE_MODE_ATTACH: may t look into and change target? 0 or -EPERM. No lock held. */
int ptrace_may_access(struct task *t, struct task *target);
int ptrace_tracer_tid(struct task *t); /* 0: none */

#endif
