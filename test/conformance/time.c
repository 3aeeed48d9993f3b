/* Clocks, sleeping and timers. */
#include "conf.h"
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

static long long ns(clockid_t c)
{
	struct timespec t;
	OK(clock_gettime(c, &t));
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}
CASE(clocks_exist)
{
	static const clockid_t clocks[] = {
		CLOCK_REALTIME,		 CLOCK_MONOTONIC,     CLOCK_PROCESS_CPUTIME_ID,
		CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
		CLOCK_MONOTONIC_COARSE,	 CLOCK_BOOTTIME,      CLOCK_TAI
	};
	struct timespec t;
	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
		OK(clock_gettime(clocks[i], &t));
		CHECK(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
		OK(syscall(SYS_clock_gettime, clocks[i], &t));
		OK(clock_getres(clocks[i], &t));
	}
	CHECK_ERR(clock_gettime(99, &t), EINVAL);
	CHECK_ERR(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, (void *)1), EFAULT);
}
CASE(vdso_and_call_agree)
{
	for (int i = 0; i < 100; i++) {
		struct timespec a, b, c;
		clock_gettime(CLOCK_MONOTONIC, &a);
		syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &b);
		clock_gettime(CLOCK_MONOTONIC, &c);
		long long x = a.tv_sec * 1000000000LL + a.tv_nsec,
			  y = b.tv_sec * 1000000000LL + b.tv_nsec,
			  z = c.tv_sec * 1000000000LL + c.tv_nsec;
		CHECK(x <= y && y <= z);
	}
}
CASE(monotonic_never_goes_back)
{
	long long last = ns(CLOCK_MONOTONIC);
	for (int i = 0; i < 10000; i++) {
		long long t = ns(CLOCK_MONOTONIC);
		CHECK(t >= last);
		last = t;
	}
}
CASE(nanosleep_sleeps)
{
	long long t = ns(CLOCK_MONOTONIC);
	struct timespec d = { 0, 20000000 };
	OK(nanosleep(&d, NULL));
	CHECK(ns(CLOCK_MONOTONIC) - t >= 20000000);
	d.tv_nsec = 1000000000;
	CHECK_ERR(nanosleep(&d, NULL), EINVAL);
	d = (struct timespec){ -1, 0 };
	CHECK_ERR(nanosleep(&d, NULL), EINVAL);
	CHECK_ERR(syscall(SYS_nanosleep, (void *)1, NULL), EFAULT);
}
CASE(clock_nanosleep_absolute)
{
	struct timespec t;
	OK(clock_gettime(CLOCK_MONOTONIC, &t));
	t.tv_nsec += 10000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_nsec -= 1000000000;
		t.tv_sec++;
	}
	CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL), 0);
	CHECK(ns(CLOCK_MONOTONIC) >= t.tv_sec * 1000000000LL + t.tv_nsec);
	CHECK_EQ(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL), 0); /* in the past */
	CHECK_EQ(clock_nanosleep(99, 0, &t, NULL), EINVAL);
	CHECK_EQ(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &t, NULL), EINVAL);
	CHECK_ERR(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &t, NULL), EOPNOTSUPP);
}
CASE(gettimeofday_and_time)
{
	struct timeval tv;
	OK(gettimeofday(&tv, NULL));
	CHECK(llabs(tv.tv_sec - (long long)time(NULL)) <= 1);
	OK(syscall(SYS_gettimeofday, &tv, NULL));
	CHECK(syscall(SYS_time, NULL) >= tv.tv_sec);
}
CASE(cpu_clock_counts_work)
{
	long long t = ns(CLOCK_PROCESS_CPUTIME_ID), th = ns(CLOCK_THREAD_CPUTIME_ID);
	volatile long x = 0;
	/* Some ticks long: a host counts what runs elsewhere with each of its own. */
	for (long i = 0; i < 100000000; i++)
		x += i;
	CHECK(ns(CLOCK_PROCESS_CPUTIME_ID) - t > 1000000);
	CHECK(ns(CLOCK_THREAD_CPUTIME_ID) - th > 1000000);
}
CASE(cpu_clock_ignores_sleep)
{
	long long t = ns(CLOCK_PROCESS_CPUTIME_ID);
	struct timespec d = { 0, 100000000 };
	nanosleep(&d, NULL);
	CHECK(ns(CLOCK_PROCESS_CPUTIME_ID) - t < 80000000);
}
CASE(clock_of_another_process)
{
	clockid_t c;
	CHECK_EQ(clock_getcpuclockid(getpid(), &c), 0);
	CHECK(ns(c) > 0);
	CHECK_EQ(clock_getcpuclockid(99999999, &c), ESRCH);
}
CASE(clock_settime_refused)
{
	struct timespec t = { 0, -1 };
	CHECK_ERR(clock_settime(CLOCK_REALTIME, &t), EINVAL);
	CHECK_ERR(clock_settime(CLOCK_MONOTONIC, &(struct timespec){ 0, 0 }), EINVAL);
}
static sigset_t block_alarm(int sig)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, sig);
	sigprocmask(SIG_BLOCK, &s, NULL);
	return s;
}
CASE(timer_signal)
{
	timer_t id;
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL,
			       .sigev_signo = SIGUSR1,
			       .sigev_value.sival_int = 42 };
	sigset_t s = block_alarm(SIGUSR1);
	siginfo_t si;
	OK(timer_create(CLOCK_MONOTONIC, &ev, &id));
	struct itimerspec its = { .it_value = { 0, 1000000 } };
	OK(timer_settime(id, 0, &its, NULL));
	CHECK_EQ(sigwaitinfo(&s, &si), SIGUSR1);
	CHECK_EQ(si.si_code, SI_TIMER);
	CHECK_EQ(si.si_value.sival_int, 42);
	OK(timer_delete(id));
	CHECK_ERR(timer_delete(id), EINVAL);
}
CASE(timer_periodic_overrun)
{
	timer_t id;
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	sigset_t s = block_alarm(SIGUSR1);
	siginfo_t si;
	OK(timer_create(CLOCK_MONOTONIC, &ev, &id));
	struct itimerspec its = { { 0, 1000000 }, { 0, 1000000 } }, cur;
	OK(timer_settime(id, 0, &its, NULL));
	struct timespec d = { 0, 30000000 };
	nanosleep(&d, NULL);
	CHECK_EQ(sigwaitinfo(&s, &si), SIGUSR1);
	CHECK(si.si_overrun >= 5);
	CHECK(timer_getoverrun(id) >= 5);
	OK(timer_gettime(id, &cur));
	CHECK_EQ(cur.it_interval.tv_nsec, 1000000);
	its = (struct itimerspec){ 0 };
	OK(timer_settime(id, 0, &its, &cur));
	OK(timer_gettime(id, &cur));
	CHECK_EQ(cur.it_value.tv_sec + cur.it_value.tv_nsec, 0);
}
CASE(timer_errors)
{
	timer_t id;
	struct sigevent ev = { .sigev_notify = 77 };
	CHECK_ERR(timer_create(CLOCK_MONOTONIC, &ev, &id), EINVAL);
	CHECK_ERR(timer_create(99, NULL, &id), EINVAL);
	ev = (struct sigevent){ .sigev_notify = SIGEV_SIGNAL, .sigev_signo = 999 };
	CHECK_ERR(timer_create(CLOCK_MONOTONIC, &ev, &id), EINVAL);
	ev = (struct sigevent){ .sigev_notify = SIGEV_NONE };
	OK(timer_create(CLOCK_REALTIME, &ev, &id));
	struct itimerspec bad = { .it_value = { 0, -1 } };
	CHECK_ERR(timer_settime(id, 0, &bad, NULL), EINVAL);
}
CASE(itimer_virtual)
{
	sigset_t s = block_alarm(SIGVTALRM), pending;
	struct itimerval it = { .it_value = { 0, 20000 } };
	OK(setitimer(ITIMER_VIRTUAL, &it, NULL));
	do {
		for (volatile int i = 0; i < 1000000; i++)
			;
		sigpending(&pending);
	} while (!sigismember(&pending, SIGVTALRM));
	CHECK_EQ(sigwaitinfo(&s, NULL), SIGVTALRM);
}
CASE(itimer_real_periodic)
{
	sigset_t s = block_alarm(SIGALRM);
	struct itimerval it = { { 0, 2000 }, { 0, 2000 } };
	OK(setitimer(ITIMER_REAL, &it, NULL));
	for (int i = 0; i < 5; i++)
		CHECK_EQ(sigwaitinfo(&s, NULL), SIGALRM);
}
CASE(times_call)
{
	struct tms t;
	CHECK(times(&t) > 0);
	CHECK(t.tms_cutime == 0);
	CHECK_ERR(syscall(SYS_times, (void *)8), EFAULT);
}
/* A timer that should have gone off long ago has done so many times. */
CASE(timer_in_the_past)
{
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec it = { .it_interval.tv_nsec = 1000 };
	siginfo_t si;
	sigset_t set;
	timer_t id;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	OK(timer_create(CLOCK_REALTIME, &ev, &id));
	OK(clock_gettime(CLOCK_REALTIME, &it.it_value));
	it.it_value.tv_sec -= 4;
	OK(timer_settime(id, TIMER_ABSTIME, &it, NULL));
	CHECK_EQ(sigwaitinfo(&set, &si), SIGUSR1);
	CHECK(si.si_overrun >= 4000000);
	OK(timer_delete(id));
}
/* The kernel's own meaning of SIGEV_THREAD: a signal. */
CASE(timer_for_a_thread)
{
	struct sigevent ev = { .sigev_notify = SIGEV_THREAD, .sigev_signo = SIGUSR1 };
	struct itimerspec it = { .it_value.tv_nsec = 1000 };
	sigset_t set;
	int id;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	OK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id));
	OK(syscall(SYS_timer_settime, id, 0, &it, NULL));
	CHECK_EQ(sigwaitinfo(&set, NULL), SIGUSR1);
	ev.sigev_signo = 0;
	CHECK_ERR(syscall(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id), EINVAL);
}
CONF_MAIN
