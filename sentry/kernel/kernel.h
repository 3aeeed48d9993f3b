/*
 * sentry/kernel/kernel.h: one guest kernel ("container"): what all its tasks share.
 *
 * Built by kernel_new from a run configuration, before any guest task; there
 * are no other mutable globals. Order of destruction is the reverse.
 */
#ifndef MINISENTRY_SENTRY_KERNEL_KERNEL_H
#define MINISENTRY_SENTRY_KERNEL_KERNEL_H

#include "base/lock.h"
#include "mm/mm.h"
#include "pgalloc/pgalloc.h"
#include "platform/platform.h"
#include "sentry/task/task.h"

struct pid_table;     /* sentry/task/pid.c */
struct timer_service; /* sentry/time/timer.c: a thread that fires timers */
struct futex_table;   /* sentry/futex */
struct net;	      /* sentry/net */
struct tty;
struct shm_table;

/* Whose a range of guest memory is, for its accounting. */
enum memory_user { MEMORY_OF_SPACES = 1, MEMORY_OF_TMPFS, MEMORY_OF_CACHE };

struct kernel {
	struct platform *platform;
	struct pgalloc *memory;
	struct text *text;		  /* NULL: system call sites are not patched */
	struct mutex tasklist_lock;	  /* RANK_TASKLIST */
	struct pid_table *pids;		  /* tasklist */
	u64 reaped_minflt, reaped_majflt; /* tasklist: of processes that are gone */
	u64 host_task_room; /* tasks that the host grants us, read before confinement */
	struct timer_service *timers;
	struct futex_table *futexes;
	struct superblock *internal_tmpfs; /* memfd, shm */
	_Atomic(struct shm_table *)
		shm; /* sentry/ipc/shm.h; created on first use, freed with the kernel */
	struct superblock *devpts;
	struct tty *console; /* borrowed: controlling terminal of the first program; NULL: none */
	struct thread_group
		*init; /* immutable once guests run, a reference: the first program's group */
	struct waitq init_exit; /* woken when init's group is dead */
	_Atomic bool shutting_down;
	int init_status;  /* wait status; valid after init_exit */
	u64 memory_limit; /* bytes shown to the guest and enforced */
	u64 boot_monotonic_ns, boot_realtime_ns;
	int cpu_count; /* shown to the guest */
	u64 cpu_mask[16];
	_Atomic u32 queued_signals; /* entries of all signal queues */
	_Atomic u64 forks, context_switches, interrupts;
	struct mm_totals mm_totals;
	bool fork_wait, fork_reuse; /* immutable */
	_Atomic u64 oom_kills;
	_Atomic bool oom_busy; /* somebody looks for a process to kill, or waits for its end */
	int stats_fd;	       /* where the launcher reads kernel_stats; -1: nobody asks */
	bool strace;
	const char *strace_filter; /* comma-separated names, NULL all */
	int strace_fd;
	char hostname[65];
	u8 random_bytes[32];
	struct sys_caught *missing; /* which missing calls were logged */
	_Atomic(struct net *)
		net; /* sockets' names and ports; made on first use (sentry/net/net.h) */
};

/* Kills every guest task and waits for them: shutdown. False: some have not ended in time. */
bool kernel_kill_all(struct kernel *k);

/* For timers (sentry/time/timer.c). fn runs in the timer thread, holds no lock, must not block. */
struct ktimer {
	struct list node;
	u64 deadline_ns; /* CLOCK_MONOTONIC */
	void (*fn)(struct ktimer *t, void *arg);
	void *arg;
	size_t heap_index; /* timer service's */
	bool running;
};
struct timer_service *timer_service_new(void); /* starts its thread */
void timer_service_free(struct timer_service *s);
void ktimer_init(struct ktimer *t, void (*fn)(struct ktimer *, void *), void *arg);
void ktimer_set(struct timer_service *s, struct ktimer *t, u64 deadline_ns);
/* After it returns, fn is not running and will not. Must not be called from fn, nor with locks fn
 * takes. */
void ktimer_cancel(struct timer_service *s, struct ktimer *t);
/* Remaining ns, 0 if not armed. */
u64 ktimer_remaining(struct timer_service *s, struct ktimer *t);

#endif
