/*
 * sentry/time/timers_impl.h: what the timer files share; see timers.h.
 */
#ifndef MINISENTRY_SENTRY_TIME_TIMERS_IMPL_H
#define MINISENTRY_SENTRY_TIME_TIMERS_IMPL_H

#include "sentry/signal/signal.h"
#include "sentry/time/timers.h"

#define NS_PER_SEC 1000000000ULL
/* An armed timer whose time is "never" stays within signed arithmetic. */
#define TIME_MAX_NS ((u64)INT64_MAX)

struct posix_timer {
	struct list node;	 /* group_timers.posix */
	struct group_timers *gt; /* immutable, as the next six */
	int id;
	int clock;  /* CPU clocks in their dynamic form */
	int notify; /* SIGEV_* */
	int signo;
	union sigval value;
	struct task *target; /* SIGEV_THREAD_ID: a reference */
	/* gt->lock */
	u64 deadline_ns; /* CLOCK_MONOTONIC, or the CPU clock's time; 0: not armed */
	u64 interval_ns;
	u64 overrun;	  /* since the queued signal */
	int overrun_last; /* of the signal delivered last */
	bool queued;	  /* our signal waits in a queue, as far as we know */
	struct ktimer ktimer;
};

/* An interval timer on consumed CPU time. */
struct cpu_itimer {
	u64 expires_ns, interval_ns; /* CPU time; 0: not armed */
};

struct group_timers {
	struct thread_group *tg; /* immutable; outlives this */
	struct mutex lock;	 /* RANK_TIMER */
	/* lock */
	struct list posix; /* by id */
	int next_id;
	u32 posix_count;
	u64 real_deadline_ns, real_interval_ns;
	struct cpu_itimer virt, prof;
	u64 xcpu_next_ns; /* CPU time of the next SIGXCPU; 0: not watching */
	struct ktimer real;
	struct ktimer cpu_tick;
};

/* Created on first use; NULL: no memory. Own thread group of a live task. */
struct group_timers *group_timers_get(struct thread_group *tg);
/* Something on CPU time was armed: look soon. gt->lock may be held. */
void cpu_tick_start(struct group_timers *gt);

/* ---- posix_timers.c, for the CPU tick ---- */
/* Fires what is due among the timers on CPU clocks; the time to the nearest one left, or
 * UINT64_MAX. */
u64 posix_timers_check_cpu(struct group_timers *gt);
void posix_timers_destroy(struct group_timers *gt);

/* Expirations of a periodic (or single) timer that are due, and the next deadline (0: none). */
static inline u64 timer_advance(u64 now, u64 *deadline_ns, u64 interval_ns)
{
	u64 n;

	if (interval_ns == 0) {
		*deadline_ns = 0;
		return 1;
	}
	n = (now - *deadline_ns) / interval_ns + 1;
	*deadline_ns += n * interval_ns;
	return n;
}

/* A CPU clock in dynamic form. 0 or -EINVAL when its process or thread is gone. */
int cpu_clock_read(struct kernel *k, int clock, u64 *ret_ns);
/* From any form, checked for `t`; the dynamic form. -EINVAL. */
int cpu_clock_resolve(struct task *t, int clock, int *ret_clock);

#endif
