/* timerfd. */
#include "conf.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>

static void set(int fd, int flags, int64_t value_ns, int64_t interval_ns)
{
	struct itimerspec v = { { interval_ns / 1000000000, interval_ns % 1000000000 },
				{ value_ns / 1000000000, value_ns % 1000000000 } };
	OK(timerfd_settime(fd, flags, &v, NULL));
}
static uint64_t ticks(int fd)
{
	uint64_t v = 0;
	CHECK_EQ(read(fd, &v, 8), 8);
	return v;
}
static int64_t now_ns(int clock)
{
	struct timespec ts;
	OK(clock_gettime(clock, &ts));
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

CASE(one_shot)
{
	int f = OK(timerfd_create(CLOCK_MONOTONIC, 0));
	int64_t t = now_ns(CLOCK_MONOTONIC);
	set(f, 0, 20000000, 0);
	CHECK_EQ(ticks(f), 1);
	CHECK(now_ns(CLOCK_MONOTONIC) - t >= 20000000);
	struct itimerspec v;
	OK(timerfd_gettime(f, &v));
	CHECK(v.it_value.tv_sec == 0 && v.it_value.tv_nsec == 0);
}
CASE(interval_counts)
{
	int f = OK(timerfd_create(CLOCK_MONOTONIC, 0));
	int64_t t = now_ns(CLOCK_MONOTONIC);
	set(f, 0, 1000000, 1000000);
	uint64_t n = 0;
	while (n < 20)
		n += ticks(f);
	int64_t spent = now_ns(CLOCK_MONOTONIC) - t;
	CHECK(spent >= 20 * 1000000);
	CHECK((int64_t)n <= spent / 1000000 + 1);
}
CASE(tiny_interval)
{
	int f = OK(timerfd_create(CLOCK_MONOTONIC, 0));
	set(f, 0, 1, 1);
	CHECK(ticks(f) >= 1);
	CHECK(ticks(f) >= 1);
}
CASE(absolute)
{
	static const int clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME };
	for (int i = 0; i < 3; i++) {
		int f = OK(timerfd_create(clocks[i], 0));
		int64_t when = now_ns(clocks[i]) + 10000000;
		set(f, TFD_TIMER_ABSTIME, when, 0);
		CHECK_EQ(ticks(f), 1);
		CHECK(now_ns(clocks[i]) >= when);
		/* The past fires at once. */
		set(f, TFD_TIMER_ABSTIME, 1, 0);
		CHECK_EQ(ticks(f), 1);
	}
}
CASE(poll_and_nonblock)
{
	int f = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	uint64_t v;
	struct pollfd p = { f, POLLIN, 0 };
	CHECK_EQ(fcntl(f, F_GETFD), FD_CLOEXEC);
	CHECK_ERR(read(f, &v, 8), EAGAIN);
	set(f, 0, 5000000, 0);
	CHECK_EQ(poll(&p, 1, 10000), 1);
	CHECK_EQ(p.revents, POLLIN);
	CHECK_EQ(ticks(f), 1);
	CHECK_EQ(poll(&p, 1, 0), 0);
}
CASE(disarm_and_rearm)
{
	int f = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	struct pollfd p = { f, POLLIN, 0 };
	set(f, 0, 5000000, 0);
	set(f, 0, 0, 0);
	CHECK_EQ(poll(&p, 1, 30), 0);
	set(f, 0, 1000000000000, 0);
	set(f, 0, 5000000, 0);
	CHECK_EQ(poll(&p, 1, 10000), 1);
	/* Setting again forgets what had expired. */
	set(f, 0, 1000000000000, 0);
	CHECK_EQ(poll(&p, 1, 0), 0);
}
CASE(old_value)
{
	int f = OK(timerfd_create(CLOCK_MONOTONIC, 0));
	struct itimerspec v = { { 7, 0 }, { 100, 0 } }, old = { { 9, 9 }, { 9, 9 } };
	OK(timerfd_settime(f, 0, &v, &old));
	CHECK(old.it_value.tv_sec == 0 && old.it_interval.tv_sec == 0);
	OK(timerfd_settime(f, 0, &v, &old));
	CHECK_EQ(old.it_interval.tv_sec, 7);
	CHECK(old.it_value.tv_sec == 99 || old.it_value.tv_sec == 100);
	OK(timerfd_gettime(f, &old));
	CHECK(old.it_value.tv_sec == 99 || old.it_value.tv_sec == 100);
}
CASE(errors)
{
	struct itimerspec bad = { { 0, 0 }, { 0, 1000000000 } }, ok = { { 0, 0 }, { 1, 0 } };
	int f = OK(timerfd_create(CLOCK_MONOTONIC, 0)), p[2];
	uint64_t v;
	CHECK_ERR(timerfd_create(99, 0), EINVAL);
	CHECK_ERR(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0), EINVAL);
	CHECK_ERR(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
	CHECK_ERR(timerfd_settime(f, 0, &bad, NULL), EINVAL);
	bad.it_value = (struct timespec){ -1, 0 };
	CHECK_ERR(timerfd_settime(f, 0, &bad, NULL), EINVAL);
	CHECK_ERR(timerfd_settime(f, 0x100, &ok, NULL), EINVAL);
	CHECK_ERR(timerfd_settime(f, 0, (void *)8, NULL), EFAULT);
	CHECK_ERR(timerfd_settime(0x7ffe, 0, &ok, NULL), EBADF);
	OK(pipe(p));
	CHECK_ERR(timerfd_settime(p[0], 0, &ok, NULL), EINVAL);
	CHECK_ERR(timerfd_gettime(p[0], &ok), EINVAL);
	CHECK_ERR(timerfd_gettime(f, (void *)8), EFAULT);
	CHECK_ERR(read(f, &v, 4), EINVAL);
	OK(timerfd_settime(OK(timerfd_create(CLOCK_REALTIME, 0)),
			   TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &ok, NULL));
}
CASE(huge_times)
{
	int f = OK(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
	struct itimerspec v = { { INT64_MAX, 999999999 }, { INT64_MAX, 999999999 } };
	struct pollfd p = { f, POLLIN, 0 };
	OK(timerfd_settime(f, 0, &v, NULL));
	OK(timerfd_settime(f, TFD_TIMER_ABSTIME, &v, NULL));
	CHECK_EQ(poll(&p, 1, 20), 0);
}
CASE(close_armed)
{
	for (int i = 0; i < 500; i++) {
		int f = OK(timerfd_create(CLOCK_MONOTONIC, 0));
		set(f, 0, 1 + i * 1000, 100000);
		close(f);
	}
}
CONF_MAIN
