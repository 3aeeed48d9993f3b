/*
 * A timer fires once and then waits for a reader; the expirations in between
 * are counted when somebody asks. So a tiny interval costs the timer thread
 * one wake per read, as in Linux.
 */
#include "sentry/fd/timerfd.h"
#include "base/host_time.h"
#include "sentry/kernel/kernel.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>

#define NSEC 1000000000ULL
#define READ_EVENTS (EPOLLIN | EPOLLRDNORM)
#ifndef TFD_IOC_SET_TICKS
#define TFD_IOC_SET_TICKS _IOW('T', 0, u64)
#endif

struct timerfd {
	struct kernel *kernel;
	int clock;
	struct mutex lock; /* RANK_PIPE */
	bool armed;	   /* lock: expiry_ns is meant */
	bool fired;	   /* lock: expiry_ns has passed, not yet counted into ticks */
	int set_flags;	   /* lock */
	u64 expiry_ns;	   /* lock: CLOCK_MONOTONIC */
	u64 realtime_ns;   /* lock: the same as absolute time of the timer's clock, or 0 */
	u64 interval_ns;   /* lock */
	u64 ticks;	   /* lock: counted and not read */
	struct ktimer timer;
	struct waitq waitq;
};

static u64 clock_now(int clock)
{
	u64 ns = 0;

	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_ALARM: host_clock_read(CLOCK_REALTIME, &ns); break;
	case CLOCK_BOOTTIME:
	case CLOCK_BOOTTIME_ALARM: host_clock_read(CLOCK_BOOTTIME, &ns); break;
	default: ns = clock_monotonic_ns(); break;
	}
	return ns;
}

/* Timer thread. */
static void timer_fired(struct ktimer *t, void *arg)
{
	struct timerfd *tf = arg;
	bool wake = false;

	mutex_lock(&tf->lock);
	if (tf->armed && !tf->fired) {
		u64 now = clock_monotonic_ns();

		if (tf->realtime_ns) {
			/* The clock may have been set back meanwhile. */
			u64 real = clock_now(tf->clock);

			if (real < tf->realtime_ns)
				tf->expiry_ns = now + (tf->realtime_ns - real);
		}
		if (now >= tf->expiry_ns)
			tf->fired = wake = true;
		else
			ktimer_set(tf->kernel->timers, &tf->timer, tf->expiry_ns);
	}
	mutex_unlock(&tf->lock);
	if (wake)
		waitq_wake(&tf->waitq, READ_EVENTS);
}

/* Counts what has expired and arms the next. lock held. */
static void count_ticks(struct timerfd *tf)
{
	u64 now, n;

	mutex_assert_held(&tf->lock);
	if (!tf->fired)
		return;
	tf->fired = false;
	if (!tf->interval_ns) {
		tf->ticks++;
		tf->armed = false;
		return;
	}
	now = clock_monotonic_ns();
	n = now > tf->expiry_ns ? (now - tf->expiry_ns) / tf->interval_ns + 1 : 1;
	tf->ticks += n;
	if (__builtin_mul_overflow(n, tf->interval_ns, &n) ||
	    __builtin_add_overflow(tf->expiry_ns, n, &tf->expiry_ns))
		tf->expiry_ns = NO_DEADLINE - 1;
	tf->realtime_ns = 0;
	ktimer_set(tf->kernel->timers, &tf->timer, tf->expiry_ns);
}

static ssize_t ticks_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct timerfd *tf = f->private;
	u64 ticks;

	if (dst->remaining < sizeof(ticks))
		return -EINVAL;
	mutex_lock(&tf->lock);
	count_ticks(tf);
	ticks = tf->ticks;
	tf->ticks = 0;
	mutex_unlock(&tf->lock);
	if (!ticks)
		return -EAGAIN;
	return kiov_put(dst, &ticks, sizeof(ticks)) == sizeof(ticks) ? (ssize_t)sizeof(ticks)
								     : -EFAULT;
}

static u32 timerfd_poll(struct file *f)
{
	struct timerfd *tf = f->private;

	MUTEX_GUARD(&tf->lock);
	return tf->fired || tf->ticks ? READ_EVENTS : 0;
}

static struct waitq *timerfd_waitq(struct file *f)
{
	struct timerfd *tf = f->private;

	return &tf->waitq;
}

static s64 set_ticks(struct file *f, u64 arg)
{
	struct timerfd *tf = f->private;
	u64 ticks;

	if (!current_task || copy_in(current_task, &ticks, ua(arg), sizeof(ticks)) < 0)
		return -EFAULT;
	if (!ticks)
		return -EINVAL;
	mutex_lock(&tf->lock);
	tf->ticks = ticks;
	mutex_unlock(&tf->lock);
	waitq_wake(&tf->waitq, READ_EVENTS);
	return 0;
}

static s64 timerfd_ioctl(struct file *f, u32 cmd, u64 arg)
{
	return cmd == TFD_IOC_SET_TICKS ? set_ticks(f, arg) : -ENOTTY;
}

static void free_timerfd(struct timerfd *tf)
{
	waitq_destroy(&tf->waitq);
	mutex_destroy(&tf->lock);
	free(tf);
}

static void timerfd_release(struct file *f)
{
	struct timerfd *tf = f->private;

	ktimer_cancel(tf->kernel->timers, &tf->timer);
	free_timerfd(tf);
}

static u64 ns_of(const struct timespec *ts)
{
	u64 ns;

	if (__builtin_mul_overflow((u64)ts->tv_sec, NSEC, &ns) || ns > INT64_MAX - NSEC)
		return INT64_MAX;
	return ns + (u64)ts->tv_nsec;
}

static struct timespec ts_of(u64 ns)
{
	return (struct timespec){ (time_t)(ns / NSEC), (long)(ns % NSEC) };
}

static void get_locked(struct timerfd *tf, struct itimerspec *ret)
{
	u64 now = clock_monotonic_ns();

	mutex_assert_held(&tf->lock);
	if (tf->fired && tf->interval_ns)
		count_ticks(tf);
	ret->it_interval = ts_of(tf->interval_ns);
	if (!tf->armed || tf->fired)
		ret->it_value = ts_of(0);
	else /* armed and about to fire: never shown as disarmed */
		ret->it_value = ts_of(tf->expiry_ns > now ? tf->expiry_ns - now : 1);
}

static void timerfd_fdinfo(struct file *f, char *dst, size_t size)
{
	struct timerfd *tf = f->private;
	struct itimerspec v;

	MUTEX_GUARD(&tf->lock);
	get_locked(tf, &v);
	snprintf(dst, size,
		 "clockid: %d\nticks: %llu\nsettime flags: 0%o\nit_value: (%lld, %ld)\n"
		 "it_interval: (%lld, %ld)\n",
		 tf->clock, (unsigned long long)tf->ticks, (unsigned)tf->set_flags,
		 (long long)v.it_value.tv_sec, v.it_value.tv_nsec, (long long)v.it_interval.tv_sec,
		 v.it_interval.tv_nsec);
}

static const struct file_ops timerfd_ops = {
	.kind = "timerfd",
	.release = timerfd_release,
	.read = ticks_read,
	.poll = timerfd_poll,
	.waitq = timerfd_waitq,
	.ioctl = timerfd_ioctl,
	.fdinfo = timerfd_fdinfo,
};

bool file_is_timerfd(struct file *f)
{
	return f->ops == &timerfd_ops;
}

void timerfd_get(struct file *f, struct itimerspec *ret)
{
	struct timerfd *tf = f->private;

	MUTEX_GUARD(&tf->lock);
	get_locked(tf, ret);
}

void timerfd_set(struct file *f, int flags, const struct itimerspec *value,
		 struct itimerspec *ret_old)
{
	struct timerfd *tf = f->private;
	u64 v = ns_of(&value->it_value);

	MUTEX_GUARD(&tf->lock);
	get_locked(tf, ret_old);
	tf->armed = v != 0;
	tf->fired = false;
	tf->ticks = 0;
	tf->interval_ns = ns_of(&value->it_interval);
	tf->set_flags = flags;
	tf->realtime_ns = 0;
	if (!v)
		return; /* the old arming may still fire; it will find nothing to do */
	u64 now = clock_monotonic_ns();
	if (flags & TFD_TIMER_ABSTIME) {
		u64 clock = clock_now(tf->clock);

		if (tf->clock != CLOCK_MONOTONIC)
			tf->realtime_ns = v;
		tf->expiry_ns = v > clock ? now + (v - clock) : now - MIN(now, clock - v);
		if (tf->expiry_ns <= now && tf->clock == CLOCK_MONOTONIC)
			tf->expiry_ns = v;
	} else {
		tf->expiry_ns = now + v;
	}
	ktimer_set(tf->kernel->timers, &tf->timer, tf->expiry_ns);
}

int timerfd_new(struct kernel *k, const struct cred *cred, int clock, u32 flags, struct file **ret)
{
	struct timerfd *tf = calloc(1, sizeof(*tf));
	struct inode *inode;
	int err;

	if (!tf)
		return -ENOMEM;
	tf->kernel = k;
	tf->clock = clock;
	mutex_init(&tf->lock, RANK_PIPE, "timerfd");
	waitq_init(&tf->waitq);
	ktimer_init(&tf->timer, timer_fired, tf);
	err = vfs_anon_inode("timerfd", 0600, cred, &inode);
	if (err == 0) {
		err = file_new(inode, NULL, O_RDWR | (flags & O_NONBLOCK), cred, &timerfd_ops, tf,
			       ret);
		inode_put(inode);
	}
	if (err < 0)
		free_timerfd(tf);
	return err;
}
