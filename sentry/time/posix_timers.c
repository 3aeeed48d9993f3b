/* POSIX timers: timer_create and its family (man 2 timer_create, timer_settime). */
#include "base/log.h"
#include "sentry/time/timers_impl.h"

#include <limits.h>
#include <stdlib.h>

/* gt->lock held. */
static struct posix_timer *find_timer(struct group_timers *gt, int id)
{
	struct posix_timer *pt;

	list_for_each (pt, &gt->posix, node)
		if (pt->id == id)
			return pt;
	return NULL;
}

/* Is the signal that we queued still there? It may have been flushed, or merged with another of its
 * number. */
static bool signal_still_queued(const struct posix_timer *pt)
{
	struct task *t = pt->target ? task_get(pt->target) : thread_group_any_task(pt->gt->tg);
	bool queued = t && (signal_pending_set(t) & sigbit(pt->signo));

	task_put(t);
	return queued;
}

static void send_signal(const struct posix_timer *pt, int overrun)
{
	siginfo_t si = { .si_signo = pt->signo, .si_code = SI_TIMER };

	si.si_timerid = pt->id;
	si.si_overrun = overrun;
	si.si_value = pt->value;
	if (pt->target)
		signal_send_task(pt->target, &si);
	else
		signal_send_group(pt->gt->tg, &si);
}

static bool on_cpu_clock(const struct posix_timer *pt)
{
	return pt->clock < 0;
}

/* gt->lock held: the next look at a wall-clock timer. */
static void arm(struct posix_timer *pt, u64 at)
{
	ktimer_set(pt->gt->tg->kernel->timers, &pt->ktimer, at);
}

/* A timer whose time may have come. now is on the timer's own clock. The pt stays: the caller holds
 * off deletion. */
static void expire(struct posix_timer *pt, u64 now)
{
	struct group_timers *gt = pt->gt;
	bool was_queued, send = false;
	int overrun = 0;
	u64 n;

	mutex_lock(&gt->lock);
	was_queued = pt->queued;
	mutex_unlock(&gt->lock);
	if (was_queued)
		was_queued = signal_still_queued(pt);
	mutex_lock(&gt->lock);
	if (pt->deadline_ns == 0 || pt->deadline_ns > now) {
		if (pt->deadline_ns && !on_cpu_clock(pt))
			arm(pt, pt->deadline_ns);
		mutex_unlock(&gt->lock);
		return;
	}
	n = timer_advance(now, &pt->deadline_ns, pt->interval_ns);
	if (was_queued && pt->queued) {
		pt->overrun += n;
	} else {
		pt->overrun = n - 1;
		pt->queued = send = true;
		overrun = (int)MIN(pt->overrun, (u64)INT_MAX);
	}
	/* Delivery of the signal re-arms exactly (posix_timer_dequeued). */
	if (pt->deadline_ns && !on_cpu_clock(pt))
		arm(pt, MAX(pt->deadline_ns, now + TIMER_BUSY_NS));
	mutex_unlock(&gt->lock);
	if (send)
		send_signal(pt, overrun);
}

static void timer_fires(struct ktimer *kt, void *arg)
{
	expire(arg, clock_monotonic_ns());
}

void posix_timer_dequeued(struct thread_group *tg, siginfo_t *info)
{
	struct group_timers *gt = __atomic_load_n(&tg->timers, __ATOMIC_ACQUIRE);
	struct posix_timer *pt;
	u64 now;

	if (gt == NULL)
		return;
	now = clock_monotonic_ns();
	MUTEX_GUARD(&gt->lock);
	pt = find_timer(gt, info->si_timerid);
	if (pt == NULL || !pt->queued)
		return;
	if (!on_cpu_clock(pt) && pt->deadline_ns && pt->interval_ns) {
		if (pt->deadline_ns <= now)
			pt->overrun += timer_advance(now, &pt->deadline_ns, pt->interval_ns);
		arm(pt, pt->deadline_ns);
	}
	pt->overrun_last = (int)MIN(pt->overrun, (u64)INT_MAX);
	pt->overrun = 0;
	pt->queued = false;
	info->si_overrun = pt->overrun_last;
}

u64 posix_timers_check_cpu(struct group_timers *gt)
{
	u64 nearest = UINT64_MAX;
	int last = -1;

	/* One at a time: clocks are read, and signals sent, without the lock. Only this
	 * thread's ktimers can be cancelled under us, so a timer found here is kept by cpu_tick. */
	for (;;) {
		struct posix_timer *pt, *found = NULL;
		u64 now;

		mutex_lock(&gt->lock);
		list_for_each (pt, &gt->posix, node) {
			if (pt->id > last && on_cpu_clock(pt) && pt->deadline_ns &&
			    pt->notify != SIGEV_NONE) {
				found = pt;
				last = pt->id;
				break;
			}
		}
		mutex_unlock(&gt->lock);
		if (found == NULL)
			return nearest;
		if (cpu_clock_read(gt->tg->kernel, found->clock, &now) < 0)
			continue; /* its thread has ended: it never comes */
		expire(found, now);
		mutex_lock(&gt->lock);
		if (found->deadline_ns)
			nearest = MIN(nearest,
				      found->deadline_ns > now ? found->deadline_ns - now : 0);
		mutex_unlock(&gt->lock);
	}
}

/* ---- system calls ---- */

static int check_clock(struct task *t, int clock, int *ret_clock)
{
	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_MONOTONIC:
	case CLOCK_BOOTTIME:
	case CLOCK_TAI: *ret_clock = clock; return 0;
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_REALTIME_COARSE:
	case CLOCK_MONOTONIC_COARSE:
	case CLOCK_REALTIME_ALARM:
	case CLOCK_BOOTTIME_ALARM: return -EOPNOTSUPP;
	default: return clock_is_cpu(clock) ? cpu_clock_resolve(t, clock, ret_clock) : -EINVAL;
	}
}

/* Fills in who is told and how. */
static int set_event(struct task *t, struct posix_timer *pt, const struct sigevent *ev)
{
	if (ev == NULL) {
		pt->notify = SIGEV_SIGNAL;
		pt->signo = SIGALRM;
		pt->value.sival_ptr = NULL;
		pt->value.sival_int = pt->id;
		return 0;
	}
	pt->notify = ev->sigev_notify;
	pt->signo = ev->sigev_signo;
	pt->value = ev->sigev_value;
	if (pt->notify == SIGEV_NONE)
		return 0;
	/* SIGEV_THREAD is the library's; the kernel sends the signal. */
	if (pt->notify != SIGEV_SIGNAL && pt->notify != SIGEV_THREAD &&
	    pt->notify != SIGEV_THREAD_ID)
		return -EINVAL;
	if (pt->signo < 1 || pt->signo > SIGNAL_COUNT)
		return -EINVAL;
	if (pt->notify == SIGEV_THREAD_ID) {
		pt->target = task_find(t->kernel, ev->_sigev_un._tid);
		if (pt->target == NULL || pt->target->tg != t->tg)
			return -EINVAL;
	}
	return 0;
}

static void free_timer(struct posix_timer *pt)
{
	task_put(pt->target);
	free(pt);
}

s64 posix_timer_create(struct task *t, int clock, const struct sigevent *ev_or_null, int *ret_id)
{
	struct group_timers *gt = group_timers_get(t->tg);
	struct posix_timer *pt;
	u64 limit;
	int r;

	r = check_clock(t, clock, &clock);
	if (r < 0)
		return r;
	if (gt == NULL || (pt = calloc(1, sizeof(*pt))) == NULL)
		return -EAGAIN;
	pt->gt = gt;
	pt->clock = clock;
	ktimer_init(&pt->ktimer, timer_fires, pt);
	limit = MIN(task_rlimit(t, RLIMIT_SIGPENDING), (u64)POSIX_TIMERS_MAX);
	mutex_lock(&gt->lock);
	if (gt->posix_count >= limit || gt->next_id == INT_MAX) {
		r = -EAGAIN;
	} else {
		gt->posix_count++;
		pt->id = gt->next_id++;
	}
	mutex_unlock(&gt->lock);
	if (r < 0) {
		free(pt);
		return r;
	}
	r = set_event(t, pt, ev_or_null);
	mutex_lock(&gt->lock);
	if (r < 0)
		gt->posix_count--;
	else
		list_push_back(&gt->posix, &pt->node);
	mutex_unlock(&gt->lock);
	if (r < 0) {
		free_timer(pt);
		return r;
	}
	*ret_id = pt->id;
	return 0;
}

static u64 timespec_ns(const struct timespec *ts)
{
	u64 ns;

	if (__builtin_mul_overflow((u64)ts->tv_sec, NS_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, (u64)ts->tv_nsec, &ns) || ns > TIME_MAX_NS)
		return TIME_MAX_NS;
	return ns;
}

static struct timespec ns_timespec(u64 ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_SEC),
				  .tv_nsec = (long)(ns % NS_PER_SEC) };
}

/* gt->lock held; now on the timer's clock. */
static void report(const struct posix_timer *pt, u64 now, struct itimerspec *ret)
{
	u64 deadline = pt->deadline_ns, left = 0;

	if (deadline && pt->interval_ns && deadline <= now)
		timer_advance(now, &deadline, pt->interval_ns);
	if (deadline > now)
		left = deadline - now;
	else if (deadline && pt->notify != SIGEV_NONE)
		left = 1; /* about to fire: not "disarmed" */
	ret->it_value = ns_timespec(left);
	ret->it_interval = ns_timespec(pt->interval_ns);
}

/* The clock that deadlines of pt are on, read without locks. */
static u64 timer_now(struct task *t, int clock)
{
	u64 now = 0;

	if (clock < 0)
		cpu_clock_read(t->kernel, clock, &now);
	else
		now = clock_monotonic_ns();
	return now;
}

/* The timer's clock, or -EINVAL (as a positive CLOCK_ cannot be... the id is unknown). */
static int timer_clock(struct group_timers *gt, int id, int *ret_clock)
{
	struct posix_timer *pt;

	if (gt == NULL)
		return -EINVAL;
	MUTEX_GUARD(&gt->lock);
	pt = find_timer(gt, id);
	if (pt == NULL)
		return -EINVAL;
	*ret_clock = pt->clock;
	return 0;
}

static bool timespec_valid(const struct timespec *ts)
{
	return ts->tv_sec >= 0 && (u64)ts->tv_nsec < NS_PER_SEC;
}

/* The new deadline on the clock that pt's deadlines are on; never 0. */
static u64 new_deadline(int clock, int flags, u64 value, u64 now)
{
	u64 deadline;

	if (!(flags & TIMER_ABSTIME))
		deadline = MIN(now + value, TIME_MAX_NS);
	else
		deadline = clock < 0 ? value : clock_to_monotonic(clock, value);
	return MAX(deadline, 1UL);
}

s64 posix_timer_settime(struct task *t, int id, int flags, const struct itimerspec *new,
			struct itimerspec *ret_old)
{
	struct group_timers *gt = __atomic_load_n(&t->tg->timers, __ATOMIC_ACQUIRE);
	u64 value = timespec_ns(&new->it_value), now, deadline;
	struct posix_timer *pt;
	int clock;

	if (!timespec_valid(&new->it_value) || !timespec_valid(&new->it_interval))
		return -EINVAL;
	if (timer_clock(gt, id, &clock) < 0)
		return -EINVAL;
	now = timer_now(t, clock);
	deadline = value ? new_deadline(clock, flags, value, now) : 0;
	MUTEX_GUARD(&gt->lock);
	pt = find_timer(gt, id);
	if (pt == NULL)
		return -EINVAL;
	if (ret_old)
		report(pt, now, ret_old);
	pt->deadline_ns = deadline;
	pt->interval_ns = timespec_ns(&new->it_interval);
	pt->overrun = 0;
	pt->overrun_last = 0;
	pt->queued = false;
	if (pt->notify == SIGEV_NONE)
		return 0;
	if (on_cpu_clock(pt)) {
		if (deadline)
			cpu_tick_start(gt);
	} else {
		arm(pt, deadline ? deadline : UINT64_MAX);
	}
	return 0;
}

s64 posix_timer_gettime(struct task *t, int id, struct itimerspec *ret)
{
	struct group_timers *gt = __atomic_load_n(&t->tg->timers, __ATOMIC_ACQUIRE);
	struct posix_timer *pt;
	int clock;
	u64 now;

	if (timer_clock(gt, id, &clock) < 0)
		return -EINVAL;
	now = timer_now(t, clock);
	MUTEX_GUARD(&gt->lock);
	pt = find_timer(gt, id);
	if (pt == NULL)
		return -EINVAL;
	report(pt, now, ret);
	return 0;
}

s64 posix_timer_getoverrun(struct task *t, int id)
{
	struct group_timers *gt = __atomic_load_n(&t->tg->timers, __ATOMIC_ACQUIRE);
	struct posix_timer *pt;

	if (gt == NULL)
		return -EINVAL;
	MUTEX_GUARD(&gt->lock);
	pt = find_timer(gt, id);
	return pt ? pt->overrun_last : -EINVAL;
}

/* Taken off the list already. Waits for its callbacks: the wall one, and the CPU tick that may hold
 * it. */
static void stop_and_free(struct group_timers *gt, struct posix_timer *pt)
{
	struct timer_service *s = gt->tg->kernel->timers;

	ktimer_cancel(s, &pt->ktimer);
	if (on_cpu_clock(pt)) {
		ktimer_cancel(s, &gt->cpu_tick);
		cpu_tick_start(gt);
	}
	free_timer(pt);
}

s64 posix_timer_delete(struct task *t, int id)
{
	struct group_timers *gt = __atomic_load_n(&t->tg->timers, __ATOMIC_ACQUIRE);
	struct posix_timer *pt;

	if (gt == NULL)
		return -EINVAL;
	mutex_lock(&gt->lock);
	pt = find_timer(gt, id);
	if (pt) {
		list_del(&pt->node);
		gt->posix_count--;
	}
	mutex_unlock(&gt->lock);
	if (pt == NULL)
		return -EINVAL;
	stop_and_free(gt, pt);
	return 0;
}

void posix_timers_destroy(struct group_timers *gt)
{
	for (;;) {
		struct posix_timer *pt = NULL;

		mutex_lock(&gt->lock);
		if (!list_empty(&gt->posix)) {
			pt = list_first(&gt->posix, struct posix_timer, node);
			list_del(&pt->node);
			gt->posix_count--;
		} else {
			gt->next_id = 0;
		}
		mutex_unlock(&gt->lock);
		if (pt == NULL)
			return;
		stop_and_free(gt, pt);
	}
}
