/* Sleeping, clocks and timers. */
#include "base/host_time.h"
#include "sentry/signal/signal.h"
#include "sentry/sys/handlers.h"
#include "sentry/time/timers.h"
#include <sys/time.h>
#include <sys/times.h>

#define NS_PER_SEC 1000000000ULL
#define NS_PER_TICK (NS_PER_SEC / 100)

static u64 timespec_ns(const struct timespec *ts)
{
	u64 ns;

	if (__builtin_mul_overflow((u64)ts->tv_sec, NS_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, (u64)ts->tv_nsec, &ns) || ns > INT64_MAX)
		return INT64_MAX;
	return ns;
}

static struct timespec ns_timespec(u64 ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_SEC),
				  .tv_nsec = (long)(ns % NS_PER_SEC) };
}

static int timeval_in(struct task *t, uaddr a, struct timeval *ret)
{
	struct timeval tv;
	int r = copy_in(t, &tv, a, sizeof(tv));

	if (r < 0)
		return r;
	if (tv.tv_sec < 0 || (u64)tv.tv_usec >= 1000000)
		return -EINVAL;
	*ret = tv;
	return 0;
}

/* ---- sleeping ---- */

/* 0 when the time has come, -ERESTARTSYS for a signal. */
static int block_until(struct task *t, u64 deadline)
{
	for (;;) {
		int r;

		task_block_prepare(t);
		r = task_block(t, deadline);
		if (r == -ETIMEDOUT)
			return 0;
		if (r < 0)
			return r;
	}
}

static s64 sleep_until(struct task *t, u64 deadline, uaddr rem);

static s64 sleep_restart(struct task *t, struct restart_block *rb)
{
	return sleep_until(t, rb->arg[0], ua(rb->arg[1]));
}

/* A relative sleep: interrupted by a signal it tells what remains, and a restart keeps the end. */
static s64 sleep_until(struct task *t, u64 deadline, uaddr rem)
{
	int r = block_until(t, deadline);

	if (r == 0)
		return 0;
	r = sys_remaining_out(t, rem, deadline);
	if (r < 0)
		return r;
	t->restart = (struct restart_block){ .fn = sleep_restart, .arg = { deadline, rem.v } };
	return -ERESTART_RESTARTBLOCK;
}

s64 sys_nanosleep(struct task *t, const u64 a[6])
{
	struct timespec ts;
	u64 deadline = 0;
	int r = sys_timespec_in(t, ua(a[0]), &ts);

	if (r == 0)
		r = sys_deadline_from(&ts, &deadline);
	return r < 0 ? r : sleep_until(t, deadline, ua(a[1]));
}

static s64 cpu_sleep(struct task *t, int clock, u64 until, uaddr rem, bool absolute);

static s64 cpu_sleep_restart(struct task *t, struct restart_block *rb)
{
	return cpu_sleep(t, (int)rb->arg[0], rb->arg[1], ua(rb->arg[2]), false);
}

/* Sleeps on a CPU clock by looking again when its remaining time could be used up. */
static s64 cpu_sleep(struct task *t, int clock, u64 until, uaddr rem, bool absolute)
{
	struct timespec left;
	u64 now, wait;
	int r;

	for (;;) {
		r = clock_read_ns(t, clock, &now);
		if (r < 0)
			return r;
		if (now >= until)
			return 0;
		wait = (until - now) / (u64)MAX(t->kernel->cpu_count, 1);
		r = block_until(t, clock_monotonic_ns() + MAX(wait, 1000000UL));
		if (r < 0)
			break;
	}
	if (absolute)
		return -ERESTARTNOHAND;
	left = ns_timespec(until - now);
	if (rem.v && (r = sys_timespec_out(t, rem, &left)) < 0)
		return r;
	t->restart = (struct restart_block){ .fn = cpu_sleep_restart,
					     .arg = { (u64)(s64)clock, until, rem.v } };
	return -ERESTART_RESTARTBLOCK;
}

s64 sys_clock_nanosleep(struct task *t, const u64 a[6])
{
	int clock = (int)a[0], flags = (int)a[1], r;
	uaddr rem = ua(a[3]);
	struct timespec ts;
	u64 now, ns;

	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_MONOTONIC:
	case CLOCK_BOOTTIME:
	case CLOCK_TAI: break;
	case CLOCK_THREAD_CPUTIME_ID: return -EOPNOTSUPP; /* to the C library it is EINVAL */
	case CLOCK_PROCESS_CPUTIME_ID: break;
	default:
		if (!clock_is_cpu(clock))
			return clock > CLOCK_TAI ? -EINVAL : -EOPNOTSUPP;
	}
	r = sys_timespec_in(t, ua(a[2]), &ts);
	if (r < 0)
		return r;
	ns = timespec_ns(&ts);
	if (clock_is_cpu(clock)) {
		r = clock_read_ns(t, clock, &now);
		if (r < 0)
			return r;
		if (!(flags & TIMER_ABSTIME))
			ns = MIN(now + ns, (u64)INT64_MAX);
		return cpu_sleep(t, clock, ns, rem, flags & TIMER_ABSTIME);
	}
	if (flags & TIMER_ABSTIME) {
		r = block_until(t, clock_to_monotonic(clock, ns));
		return r < 0 ? -ERESTARTNOHAND : 0;
	}
	return sleep_until(t, MIN(clock_monotonic_ns() + ns, (u64)INT64_MAX), rem);
}

/* ---- clocks ---- */

s64 sys_clock_gettime(struct task *t, const u64 a[6])
{
	struct timespec ts;
	u64 ns;
	int r = clock_read_ns(t, (int)a[0], &ns);

	if (r < 0)
		return r;
	ts = ns_timespec(ns);
	return sys_timespec_out(t, ua(a[1]), &ts);
}

s64 sys_clock_getres(struct task *t, const u64 a[6])
{
	struct timespec ts;
	u64 ns;
	int r = clock_resolution_ns(t, (int)a[0], &ns);

	if (r < 0 || a[1] == 0)
		return r;
	ts = ns_timespec(ns);
	return sys_timespec_out(t, ua(a[1]), &ts);
}

/* The guest shares the host's clocks (its vDSO reads them), so nobody may set them. */
s64 sys_clock_settime(struct task *t, const u64 a[6])
{
	struct timespec ts;
	int r;

	if ((int)a[0] != CLOCK_REALTIME)
		return -EINVAL;
	r = sys_timespec_in(t, ua(a[1]), &ts);
	return r < 0 ? r : -EPERM;
}

s64 sys_gettimeofday(struct task *t, const u64 a[6])
{
	u64 now = clock_realtime_ns();
	struct timeval tv = { .tv_sec = (time_t)(now / NS_PER_SEC),
			      .tv_usec = (suseconds_t)(now % NS_PER_SEC / 1000) };
	struct timezone tz = { 0, 0 };
	int r = 0;

	if (a[0])
		r = copy_out(t, ua(a[0]), &tv, sizeof(tv));
	if (r == 0 && a[1])
		r = copy_out(t, ua(a[1]), &tz, sizeof(tz));
	return r;
}

s64 sys_time(struct task *t, const u64 a[6])
{
	s64 now = (s64)(clock_realtime_ns() / NS_PER_SEC);

	if (a[0] && copy_out(t, ua(a[0]), &now, sizeof(now)) < 0)
		return -EFAULT;
	return now;
}

s64 sys_times(struct task *t, const u64 a[6])
{
	struct tms tms;
	u64 utime, stime;

	if (a[0]) {
		thread_group_cpu_times(t->tg, &utime, &stime);
		tms.tms_utime = (clock_t)(utime / NS_PER_TICK);
		tms.tms_stime = (clock_t)(stime / NS_PER_TICK);
		mutex_lock(&t->kernel->tasklist_lock);
		tms.tms_cutime = (clock_t)(t->tg->child_utime_ns / NS_PER_TICK);
		tms.tms_cstime = (clock_t)(t->tg->child_stime_ns / NS_PER_TICK);
		mutex_unlock(&t->kernel->tasklist_lock);
		if (copy_out(t, ua(a[0]), &tms, sizeof(tms)) < 0)
			return -EFAULT;
	}
	return (s64)(clock_monotonic_ns() / NS_PER_TICK);
}

/* ---- interval timers ---- */

static int itimerval_out(struct task *t, uaddr a, const struct itimer_ns *v)
{
	/* Rounded up: an armed timer never reads as zero. */
	u64 us = (v->value + 999) / 1000, interval = v->interval / 1000;
	struct itimerval out = {
		.it_value = { .tv_sec = (time_t)(us / 1000000),
			      .tv_usec = (suseconds_t)(us % 1000000) },
		.it_interval = { .tv_sec = (time_t)(interval / 1000000),
				 .tv_usec = (suseconds_t)(interval % 1000000) },
	};

	return copy_out(t, a, &out, sizeof(out));
}

static u64 timeval_ns(const struct timeval *tv)
{
	struct timespec ts = { .tv_sec = tv->tv_sec, .tv_nsec = tv->tv_usec * 1000 };

	return timespec_ns(&ts);
}

s64 sys_getitimer(struct task *t, const u64 a[6])
{
	struct itimer_ns old;
	s64 r = itimer_change(t, (int)a[0], NULL, &old);

	return r < 0 ? r : itimerval_out(t, ua(a[1]), &old);
}

s64 sys_setitimer(struct task *t, const u64 a[6])
{
	struct itimer_ns new = { 0, 0 }, old;
	struct timeval value, interval;
	s64 r = 0;

	if (a[1]) { /* NULL disarms, a misuse that Linux keeps working */
		r = timeval_in(t, ua(a[1] + offsetof(struct itimerval, it_interval)), &interval);
		if (r == 0)
			r = timeval_in(t, ua(a[1] + offsetof(struct itimerval, it_value)), &value);
		if (r < 0)
			return r;
		new = (struct itimer_ns){ .value = timeval_ns(&value),
					  .interval = timeval_ns(&interval) };
	}
	r = itimer_change(t, (int)a[0], &new, &old);
	if (r == 0 && a[2])
		r = itimerval_out(t, ua(a[2]), &old);
	return r;
}

s64 sys_alarm(struct task *t, const u64 a[6])
{
	struct itimer_ns new = { .value = (u32)a[0] * NS_PER_SEC }, old;
	s64 r = itimer_change(t, ITIMER_REAL, &new, &old);
	u64 seconds, rest;

	if (r < 0)
		return r;
	seconds = old.value / NS_PER_SEC;
	rest = old.value % NS_PER_SEC;
	if ((seconds == 0 && rest) || rest >= NS_PER_SEC / 2)
		seconds++;
	return (s64)seconds;
}

/* ---- POSIX timers ---- */

s64 sys_timer_create(struct task *t, const u64 a[6])
{
	struct sigevent ev;
	int id, r;
	s64 err;

	if (a[1] && (r = copy_in(t, &ev, ua(a[1]), sizeof(ev))) < 0)
		return r;
	err = posix_timer_create(t, (int)a[0], a[1] ? &ev : NULL, &id);
	if (err < 0)
		return err;
	r = copy_out(t, ua(a[2]), &id, sizeof(id));
	if (r < 0)
		posix_timer_delete(t, id);
	return r;
}

s64 sys_timer_settime(struct task *t, const u64 a[6])
{
	struct itimerspec new, old;
	s64 r;

	if (a[2] == 0)
		return -EINVAL;
	r = copy_in(t, &new, ua(a[2]), sizeof(new));
	if (r == 0)
		r = posix_timer_settime(t, (int)a[0], (int)a[1], &new, a[3] ? &old : NULL);
	if (r == 0 && a[3])
		r = copy_out(t, ua(a[3]), &old, sizeof(old));
	return r;
}

s64 sys_timer_gettime(struct task *t, const u64 a[6])
{
	struct itimerspec cur;
	s64 r = posix_timer_gettime(t, (int)a[0], &cur);

	return r < 0 ? r : copy_out(t, ua(a[1]), &cur, sizeof(cur));
}

s64 sys_timer_getoverrun(struct task *t, const u64 a[6])
{
	return posix_timer_getoverrun(t, (int)a[0]);
}

s64 sys_timer_delete(struct task *t, const u64 a[6])
{
	return posix_timer_delete(t, (int)a[0]);
}
