/*
 * sentry/time/timers.h: a process's POSIX timers, interval timers and CPU timers; clocks.
 *
 * struct group_timers hangs off a thread group, made on first use. Wall-clock
 * timers are ktimers of the kernel's timer service. Timers on CPU clocks share
 * one ktimer that looks at the consumed time, armed only while such a timer is.
 *
 * A periodic timer keeps at most one signal queued: expirations while it waits
 * count as overruns, and it is then looked at no more often than once a
 * TIMER_BUSY_NS, so that a 1 ns interval costs nothing.
 *
 * Locks: group_timers.lock (RANK_TIMER, so it may be taken under sighand);
 * signals are sent without it. The timer service's lock is RANK_LEAF.
 */
#ifndef MINISENTRY_SENTRY_TIME_TIMERS_H
#define MINISENTRY_SENTRY_TIME_TIMERS_H

#include "sentry/kernel/kernel.h"
#include "sentry/task/task.h"
#include <time.h>

#define TIMER_BUSY_NS 1000000UL
/* The named limit beside RLIMIT_SIGPENDING. */
#define POSIX_TIMERS_MAX 16384

/* The last task of tg is gone: stops and frees everything. No locks held. */
void group_timers_exit(struct thread_group *tg);
/* exec: POSIX timers go, interval timers stay. */
void group_timers_exec(struct thread_group *tg);
/*
 * signal_dequeue calls it for a siginfo with si_code SI_TIMER that it takes off
 * a queue (sighand lock may be held): fills in si_overrun and lets the timer queue again.
 */
void posix_timer_dequeued(struct thread_group *tg, siginfo_t *info);

/* ---- for sys_time.c ---- */
s64 posix_timer_create(struct task *t, int clock, const struct sigevent *ev_or_null, int *ret_id);
s64 posix_timer_settime(struct task *t, int id, int flags, const struct itimerspec *new,
			struct itimerspec *ret_old);
s64 posix_timer_gettime(struct task *t, int id, struct itimerspec *ret);
s64 posix_timer_getoverrun(struct task *t, int id);
s64 posix_timer_delete(struct task *t, int id);

/* which: ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF. Values in ns; new NULL only reads. */
struct itimer_ns {
	u64 value, interval;
};
s64 itimer_change(struct task *t, int which, const struct itimer_ns *new_or_null,
		  struct itimer_ns *ret_old);
/* RLIMIT_CPU changed (setrlimit) or was inherited: seconds; starts the watch. */
void cpu_limit_changed(struct thread_group *tg);

/* ---- clocks ---- */
/* Reads any clock id that clock_gettime takes, CPU clocks of other processes included. 0, -EINVAL.
 */
int clock_read_ns(struct task *t, int clock, u64 *ret_ns);
/* Resolution in ns; -EINVAL for an unknown clock. */
int clock_resolution_ns(struct task *t, int clock, u64 *ret_ns);
/* A CPU clock (CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID or a dynamic one). */
bool clock_is_cpu(int clock);
/* Absolute time on a wall clock -> deadline on CLOCK_MONOTONIC; what is over stays so (1 at least).
 */
u64 clock_to_monotonic(int clock, u64 ns);

#endif
