/*
 * sentry/signal/signal.h: signals.
 *
 * Handlers are shared by a thread group (struct sighand, also by CLONE_SIGHAND
 * groups). Pending signals sit in queues, one per task and one per group:
 * standard signals once, real-time signals in order, bounded by
 * RLIMIT_SIGPENDING. A signal set is a u64, bit n-1 for signal n, as in the
 * kernel ABI.
 *
 * All state is under sighand->lock (RANK_SIGHAND).
 */
#ifndef MINISENTRY_SENTRY_SIGNAL_SIGNAL_H
#define MINISENTRY_SENTRY_SIGNAL_SIGNAL_H

#include "base/list.h"
#include "base/lock.h"
#include "base/refs.h"
#include "base/types.h"
#include <signal.h>

struct task;
struct thread_group;
struct kernel;
struct process_group;

/* What a fault tells the frame's ucontext. */
struct signal_frame_info {
	u64 trapno, error, cr2;
};

#define SIGNAL_COUNT 64
#define MINSIGSTKSZ_KERNEL 2048
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000
#endif
static inline u64 sigbit(int sig)
{
	return 1ULL << (sig - 1);
}

/* The kernel's sigaction layout (rt_sigaction). */
struct k_sigaction {
	u64 handler; /* SIG_DFL, SIG_IGN or a guest address */
	u64 flags;   /* SA_* */
	u64 restorer;
	u64 mask;
};

struct sighand {
	struct refs refs;
	struct mutex lock;			 /* RANK_SIGHAND */
	struct k_sigaction action[SIGNAL_COUNT]; /* lock; [sig - 1] */
	struct sighand *retired; /* keeps the group's former one alive for late lockers */
};
struct sighand *sighand_new(void);
struct sighand *sighand_dup(struct sighand *s); /* fork */
struct sighand *sighand_get(struct sighand *s);
void sighand_put(struct sighand *s);
void sighand_reset_on_exec(struct sighand *s); /* handlers to default, ignored stay */

struct sigqueue_head {
	u64 set;	     /* which signals are queued */
	struct list entries; /* struct sigqueue */
	size_t count;
	_Atomic u32 *total; /* immutable: entries of all queues of the kernel */
};
void sigqueue_init(struct sigqueue_head *q, _Atomic u32 *total);
void sigqueue_flush(struct sigqueue_head *q, u64 mask);

/* siginfo builders; si_pid and si_uid from sender (NULL: kernel). */
void siginfo_user(siginfo_t *si, int sig, int code, struct task *sender);
void siginfo_kernel(siginfo_t *si, int sig, int code);
void siginfo_fault(siginfo_t *si, int sig, int code, u64 addr);

/*
 * Sending. info->si_signo is the signal. 0; -EAGAIN when a real-time signal
 * finds the queue full. To a task (tgkill) or to its group (kill). No
 * permission checks here.
 */
int signal_send_task(struct task *t, const siginfo_t *info);
int signal_send_group(struct thread_group *tg, const siginfo_t *info);
/* Every member; 0 if at least one was reached, -ESRCH otherwise. */
int signal_send_pgrp(struct process_group *pg, const siginfo_t *info);
/* Forced by a fault of its own: cannot be blocked or ignored (then default action kills). */
void signal_force(struct task *t, const siginfo_t *info);
/* For fault signals: trapno, error code, cr2 for the frame's ucontext. */
void signal_force_fault(struct task *t, const siginfo_t *info, u64 trapno, u64 error, u64 cr2);
/* kill(2)'s rule. */
int signal_may_send(struct task *sender, struct task *target, int sig);
/* By pid and pgid numbers, with permission checks: kill(2)'s meaning of pid. */
int signal_kill(struct task *sender, int pid, const siginfo_t *info);

/*
 * Run by the task loop before it returns to the guest: takes signals, stops,
 * kills, builds frames, converts restart codes of a just finished system call
 * (the only place). Returns false when the task must exit.
 */
bool signal_deliver(struct task *t);
/* arch_settle_xstate, and SIGSEGV when that fails. */
void signal_settle_xstate(struct task *t);

/* Blocks/unblocks for the current task. how: SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK. */
void signal_set_mask(struct task *t, u64 mask);
/* For ppoll & co.: installs mask until the system call ends (restored by signal_deliver). */
void signal_set_temp_mask(struct task *t, u64 mask);
/* Takes one pending signal out of set; 0 when none. For sigtimedwait and signalfd. */
int signal_dequeue(struct task *t, u64 set, siginfo_t *ret);
/* Pending (queued) signals of task and group. */
u64 signal_pending_set(struct task *t);
/*
 * tg's handlers, locked (exec may exchange them meanwhile); unlock with
 * sighand_unlock. Never two at a time.
 */
struct sighand *sighand_lock(struct thread_group *tg);
void sighand_unlock(struct sighand *s);
/* sigaltstack state as rt_sigframe and sigaltstack(2) show it. */
bool signal_on_altstack(struct task *t, u64 sp);
/* True if sig would be ignored by the group now. */
bool signal_ignored(struct task *t, int sig);

/* arch/x86_64 frames. 0, or -EFAULT when the frame cannot be written (SIGSEGV kills). */
int arch_push_signal_frame(struct task *t, const struct k_sigaction *act, const siginfo_t *info,
			   u64 saved_mask, const struct signal_frame_info *fault);
/* rt_sigreturn: restores registers, vector state, mask, altstack. 0 or -EFAULT. */
int arch_pop_signal_frame(struct task *t);
/*
 * Both leave it to the guest thread to move the vector state to or from the frame, on its way to
 * guest code. Does here what of that is not done yet: before anybody asks for the state, and at
 * PLATFORM_STOP_XSTATE. -EFAULT: the frame's memory is gone (SIGSEGV); the state is the initial
 * one.
 */
int arch_settle_xstate(struct task *t);

#endif
