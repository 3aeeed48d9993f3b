/* Memory that is unmapped, protected and mapped again, over and over at one place. */
#include "conf.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/time.h>

#define PG 4096UL
#define RW (PROT_READ | PROT_WRITE)

static _Thread_local sigjmp_buf back;
static _Thread_local volatile sig_atomic_t code;

static void on_fault(int sig, siginfo_t *si, void *uc)
{
	code = si->si_code;
	siglongjmp(back, 1);
}
static void catch_faults(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	CHECK_EQ(sigaction(SIGSEGV, &sa, NULL), 0);
}
/* 0, or the code of the SIGSEGV, in this very process. */
static int touch(volatile char *p, bool write)
{
	if (sigsetjmp(back, 1))
		return code;
	if (write)
		*p = 1;
	else
		(void)*p;
	return 0;
}
static char *map_at(void *at, size_t size, int prot)
{
	char *p = mmap(at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}
static void must_be_zero(const char *p, size_t size)
{
	for (size_t i = 0; i < size; i += 8)
		CHECK_EQ(*(const uint64_t *)(p + i), 0);
}

CASE(unmapped_at_once)
{
	catch_faults();
	for (int i = 0; i < 200; i++) {
		char *p = map_at(NULL, 16 * PG, RW);
		p[(size_t)i % 16 * PG] = 1;
		CHECK_EQ(munmap(p, 16 * PG), 0);
		CHECK_EQ(touch(p + (size_t)i % 16 * PG, i & 1), SEGV_MAPERR);
	}
}
CASE(fresh_memory_is_zero)
{
	static const size_t sizes[] = { 1, 3, 16, 17, 64, 500, 512, 513, 4096, 20000 };
	for (int i = 0; i < 60; i++) {
		size_t size = sizes[(size_t)i * 7 % 10] * PG;
		char *p = map_at(NULL, size, RW);
		if (i % 3 == 0) {
			must_be_zero(p, size);
		} else if (i % 3 == 1) {
			for (size_t n = 0, at = 0; n < 50; n++, at = (at * 77 + 13 * PG + 8) % size)
				CHECK_EQ(*(uint64_t *)(p + (at & ~7UL)), 0);
		}
		memset(p, 0x55, size);
		CHECK_EQ(munmap(p, size), 0);
	}
}
CASE(holes_in_the_middle)
{
	catch_faults();
	char *p = map_at(NULL, 64 * PG, RW);
	for (int i = 0; i < 100; i++) {
		size_t at = (size_t)i * 11 % 56 * PG;
		memset(p, 0x77, 64 * PG);
		CHECK_EQ(munmap(p + at, 8 * PG), 0);
		CHECK_EQ(touch(p + at, false), SEGV_MAPERR);
		CHECK_EQ(touch(p + at + 8 * PG - 1, true), SEGV_MAPERR);
		if (at)
			CHECK_EQ(p[at - 1], 0x77);
		CHECK_EQ(p[at + 8 * PG], 0x77);
		map_at(p + at, 8 * PG, i & 1 ? RW : PROT_READ);
		must_be_zero(p + at, 8 * PG);
		CHECK_EQ(touch(p + at + PG, true), i & 1 ? 0 : SEGV_ACCERR);
		CHECK_EQ(mprotect(p + at, 8 * PG, RW), 0);
	}
}
CASE(other_things_take_the_place)
{
	int fd = OK(open(conf_path("file"), O_RDWR | O_CREAT, 0600));
	char page[PG];
	memset(page, 'f', PG);
	CHECK_EQ(write(fd, page, PG), PG);
	catch_faults();
	char *p = map_at(NULL, 16 * PG, RW);
	for (int i = 0; i < 100; i++) {
		memset(p, 1, 16 * PG);
		CHECK_EQ(munmap(p, 16 * PG), 0);
		CHECK(mmap(p + 4 * PG, PG, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == p + 4 * PG);
		CHECK_EQ(p[4 * PG + 9], 'f');
		CHECK_EQ(touch(p + 4 * PG, true), SEGV_ACCERR);
		CHECK_EQ(touch(p, false), SEGV_MAPERR);
		map_at(p, 2 * PG, PROT_NONE);
		CHECK_EQ(touch(p + PG, false), SEGV_ACCERR);
		map_at(p, 16 * PG, RW);
		must_be_zero(p, 16 * PG);
	}
}
CASE(protect_takes_and_gives)
{
	static const int prots[] = { PROT_NONE, PROT_READ, RW, PROT_READ | PROT_EXEC };
	char *p = map_at(NULL, 16 * PG, RW);
	catch_faults();
	memset(p, 3, 16 * PG);
	for (int i = 0; i < 300; i++) {
		size_t at = (size_t)i * 5 % 12 * PG;
		int prot = prots[i * 3 % 7 % 4];
		CHECK_EQ(mprotect(p + at, 4 * PG, prot), 0);
		CHECK_EQ(touch(p + at, false), prot ? 0 : SEGV_ACCERR);
		CHECK_EQ(touch(p + at + 4 * PG - 1, true), prot & PROT_WRITE ? 0 : SEGV_ACCERR);
		CHECK_EQ(mprotect(p + at, 4 * PG, RW), 0);
		CHECK_EQ(p[at + 8], 3);
	}
}
CASE(fork_between)
{
	for (int i = 0; i < 30; i++) {
		char *p = map_at(NULL, 16 * PG, RW), *q;
		memset(p, 1, 16 * PG);
		CHECK_EQ(munmap(p, 8 * PG), 0);
		pid_t pid = fork();
		CHECK(pid >= 0);
		q = map_at(p, 8 * PG, RW);
		must_be_zero(q, 8 * PG);
		memset(q, pid ? 4 : 5, 8 * PG);
		CHECK_EQ(p[8 * PG], 1);
		p[8 * PG] = pid ? 6 : 7;
		if (!pid)
			_exit(q[PG] != 5 || p[8 * PG] != 7);
		conf_join(pid);
		CHECK_EQ(q[PG], 4);
		CHECK_EQ(p[8 * PG], 6);
		CHECK_EQ(munmap(p, 16 * PG), 0);
	}
}

/* A handler runs right behind the call, before the caller's next instruction. */
static char *volatile place;
static volatile int expected, wrong, handled;

static void on_signal(int sig)
{
	sigjmp_buf saved;
	memcpy(saved, back, sizeof(saved));
	if (touch(place, false) != expected)
		wrong++;
	memcpy(back, saved, sizeof(saved));
	handled++;
}
CASE(signal_between)
{
	sigset_t usr1, old;
	signal(SIGUSR1, on_signal);
	catch_faults();
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	for (int i = 0; i < 50; i++) {
		place = map_at(NULL, 4 * PG, RW);
		*place = 1;
		expected = 0;
		raise(SIGUSR1);
		sigprocmask(SIG_BLOCK, &usr1, &old);
		raise(SIGUSR1);
		CHECK_EQ(i & 1 ? munmap(place, 4 * PG) : mprotect(place, 4 * PG, PROT_NONE), 0);
		expected = i & 1 ? SEGV_MAPERR : SEGV_ACCERR;
		sigprocmask(SIG_SETMASK, &old, NULL);
		if (!(i & 1))
			munmap(place, 4 * PG);
	}
	CHECK_EQ(wrong, 0);
	CHECK_EQ(handled, 100);
}
CASE(timer_between)
{
	struct itimerval it = { { 0, 300 }, { 0, 300 } };
	catch_faults();
	place = map_at(NULL, PG, RW);
	expected = 0;
	*place = 1;
	signal(SIGALRM, on_signal);
	setitimer(ITIMER_REAL, &it, NULL);
	for (int i = 0; i < 2000; i++) {
		char *p = map_at(NULL, 8 * PG, RW);
		CHECK_EQ(p[PG], 0);
		p[PG] = 1;
		CHECK_EQ(mprotect(p, 8 * PG, PROT_READ), 0);
		CHECK_EQ(p[PG], 1);
		CHECK_EQ(mprotect(p, 8 * PG, RW), 0);
		p[PG] = 2;
		CHECK_EQ(munmap(p, 8 * PG), 0);
	}
	it = (struct itimerval){ 0 };
	setitimer(ITIMER_REAL, &it, NULL);
	CHECK_EQ(wrong, 0);
}

/* ---- threads ---- */

static _Atomic int turn;
static char *_Atomic shared;

static void wait_for(int n)
{
	while (atomic_load(&turn) != n)
		sched_yield();
}
static void *other(void *arg)
{
	for (int i = 0; i < 300; i++) {
		wait_for(4 * i + 1);
		CHECK_EQ(touch(shared, true), 0);
		atomic_store(&turn, 4 * i + 2);
		wait_for(4 * i + 3);
		/* It has returned in the first thread: it holds in this one. */
		CHECK_EQ(touch(shared, i & 1), i % 3 ? SEGV_MAPERR : SEGV_ACCERR);
		atomic_store(&turn, 4 * i + 4);
	}
	return NULL;
}
CASE(seen_by_other_threads)
{
	pthread_t t;
	catch_faults();
	CHECK_EQ(pthread_create(&t, NULL, other, NULL), 0);
	for (int i = 0; i < 300; i++) {
		char *p = map_at(NULL, 4 * PG, RW);
		CHECK_EQ(*p, 0);
		shared = p;
		atomic_store(&turn, 4 * i + 1);
		wait_for(4 * i + 2);
		CHECK_EQ(*p, 1);
		CHECK_EQ(i % 3 ? munmap(p, 4 * PG) : mprotect(p, 4 * PG, PROT_NONE), 0);
		atomic_store(&turn, 4 * i + 3);
		wait_for(4 * i + 4);
		if (i % 3 == 0)
			CHECK_EQ(munmap(p, 4 * PG), 0);
	}
	pthread_join(t, NULL);
}
static void *churn(void *arg)
{
	char mark = (char)(uintptr_t)arg;
	for (int i = 0; i < 1000; i++) {
		size_t size = (1 + (size_t)(i * 7 % 40)) * PG;
		char *p = map_at(NULL, size, RW);
		for (size_t at = 0; at < size; at += PG) {
			CHECK_EQ(p[at + 16], 0);
			p[at + 16] = mark;
		}
		if (i % 5 == 0) {
			CHECK_EQ(mprotect(p, size, PROT_READ), 0);
			CHECK_EQ(mprotect(p, size, RW), 0);
		}
		for (size_t at = 0; at < size; at += PG)
			CHECK_EQ(p[at + 16], mark);
		CHECK_EQ(munmap(p, size), 0);
	}
	return NULL;
}
CASE(threads_map_and_unmap)
{
	pthread_t t[4];
	for (uintptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	churn((void *)9);
}
CASE(threads_and_forks)
{
	pthread_t t;
	CHECK_EQ(pthread_create(&t, NULL, churn, (void *)1), 0);
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			churn((void *)2);
			_exit(0);
		}
		CHECK(pid > 0);
		churn((void *)3);
		conf_join(pid);
	}
	pthread_join(t, NULL);
}

CONF_MAIN
/* A length that goes beyond all addresses: to shrink it is an munmap, to grow it a fault. */
CASE(beyond_the_end)
{
	char *p = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t giant[] = { -4096UL, 1UL << 47, 1UL << 46 };

	for (int i = 0; i < 3; i++) {
		CHECK(mremap(p, giant[i], 4096, 0) == MAP_FAILED && errno == EINVAL);
		CHECK(mremap(p, giant[i], 4096, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	}
	CHECK(mremap(p, 1UL << 46, 1UL << 46, 0) == p);
	CHECK(mremap(p, 1UL << 46, (1UL << 46) + 4096, MREMAP_MAYMOVE) == MAP_FAILED &&
	      errno == EFAULT);
	OK(munmap(p, 4 * 4096));
	CHECK(mremap(p, 1UL << 47, 4096, 0) == MAP_FAILED && errno == EFAULT);
}
