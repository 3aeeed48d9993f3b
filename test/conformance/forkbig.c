/* Forks of processes that have written much memory, where the parent may go on in other clothes. */
#include "conf.h"
#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>

#define PG 4096UL
#define BIG (48UL << 20)
#define RW (PROT_READ | PROT_WRITE)

static char *big_new(size_t size)
{
	char *p = mmap(NULL, size, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}
static void fill(char *p, size_t size, uint64_t v)
{
	for (size_t i = 0; i < size; i += PG)
		*(volatile uint64_t *)(p + i) = v + i;
}
static void must_be(const char *p, size_t size, uint64_t v)
{
	for (size_t i = 0; i < size; i += PG)
		CHECK_EQ(*(const volatile uint64_t *)(p + i), v + i);
}
static void reap(pid_t pid)
{
	int st;
	CHECK_EQ(waitpid(pid, &st, 0), pid);
	CHECK_EQ(st, 0);
}

CASE(each_side_has_its_own)
{
	char *p = big_new(BIG);
	for (int round = 0; round < 4; round++) {
		int go[2];
		char c;
		pid_t pid;
		fill(p, BIG, (uint64_t)round << 40);
		CHECK_EQ(pipe(go), 0);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			CHECK_EQ(read(go[0], &c, 1), 1);
			must_be(p, BIG, (uint64_t)round << 40);
			fill(p, BIG, 77ULL << 40);
			must_be(p, BIG, 77ULL << 40);
			_exit(0);
		}
		fill(p, BIG / 2, 99ULL << 40);
		CHECK_EQ(write(go[1], "x", 1), 1);
		reap(pid);
		must_be(p, BIG / 2, 99ULL << 40);
		for (size_t i = BIG / 2; i < BIG; i += PG)
			CHECK_EQ(*(volatile uint64_t *)(p + i), ((uint64_t)round << 40) + i);
		close(go[0]);
		close(go[1]);
	}
}

/* Everything that is not ordinary memory of its own. */
CASE(other_mappings_stay)
{
	char *p = big_new(BIG), *shared, *file, *ro, *hole, path[] = "/tmp/forkbigXXXXXX";
	int fd = mkstemp(path);
	CHECK(fd >= 0);
	unlink(path);
	CHECK_EQ(ftruncate(fd, 64 * PG), 0);
	shared = mmap(NULL, 64 * PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	file = mmap(NULL, 64 * PG, RW, MAP_SHARED, fd, 0);
	ro = big_new(16 * PG);
	hole = big_new(16 * PG);
	CHECK(shared != MAP_FAILED && file != MAP_FAILED);
	memset(ro, 5, 16 * PG);
	CHECK_EQ(mprotect(ro, 16 * PG, PROT_READ), 0);
	CHECK_EQ(*(volatile char *)(hole + PG), 0); /* the zero page */
	for (int round = 1; round < 6; round++) {
		pid_t pid;
		fill(p, BIG, (uint64_t)round);
		shared[PG] = file[PG] = (char)round;
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			CHECK_EQ(shared[PG], round);
			CHECK_EQ(file[PG], round);
			shared[2 * PG] = file[2 * PG] = (char)(round + 100);
			CHECK_EQ(ro[3], 5);
			CHECK_EQ(hole[5 * PG], 0);
			_exit(0);
		}
		reap(pid);
		CHECK_EQ(shared[2 * PG], (char)(round + 100));
		CHECK_EQ(file[2 * PG], (char)(round + 100));
		CHECK_EQ(ro[3], 5);
		CHECK_EQ(hole[PG], 0);
		must_be(p, BIG, (uint64_t)round);
		CHECK_EQ(munmap(p, BIG), 0);
		p = big_new(BIG);
		CHECK_EQ(*(volatile uint64_t *)(p + 8 * PG), 0);
	}
}

static void clobber(int sig)
{
	__asm__ volatile("pxor %%xmm9, %%xmm9" ::: "xmm9");
}

static int kill_with_vector(pid_t pid, int value)
{
	__m128i in = _mm_set1_epi32(value), out;
	register __m128i *to __asm__("r12") = &out;

	__asm__ volatile("mov %%rsp, %%rbx\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\t"
			 "movdqu (%0), %%xmm9\n\tcall *%2\n\tmovdqu %%xmm9, (%1)\n\t"
			 "mov %%rbx, %%rsp"
			 :
			 : "r"(&in), "r"(to), "r"(kill), "D"(pid), "S"(SIGUSR1)
			 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc",
			   "xmm9");
	return _mm_cvtsi128_si32(out);
}

/* The first page that the parent needs after its child is gone is its alternate stack's: for the
 * vector registers, on their way to a handler's frame. */
CASE(vectors_survive_a_handler)
{
	enum { ROUNDS = 24, STACK = 64 << 10 };
	struct sigaction sa = { .sa_handler = clobber, .sa_flags = SA_ONSTACK };
	char *p = big_new(BIG), *stacks = big_new(ROUNDS * STACK);
	stack_t st = { .ss_sp = stacks, .ss_size = STACK };
	int go[2];
	char c = 0;

	CHECK_EQ(pipe(go), 0);
	CHECK_EQ(sigaction(SIGUSR1, &sa, NULL), 0);
	CHECK_EQ(sigaltstack(&st, NULL), 0);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(kill_with_vector(getpid(), i), i);
	fill(p, BIG, 1);
	memset(stacks, 1, ROUNDS * STACK);
	for (int round = 0; round < ROUNDS; round++) {
		struct timespec ms = { 0, 1000000 };
		pid_t pid, self = getpid();

		st.ss_sp = stacks + round * STACK;
		CHECK_EQ(sigaltstack(&st, NULL), 0);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			_exit(read(go[0], &c, 1) != 1);
		CHECK_EQ(write(go[1], &c, 1), 1);
		reap(pid);
		nanosleep(&ms, NULL); /* its memory is the parent's again, most likely */
		CHECK_EQ(kill_with_vector(self, round + 1), round + 1);
	}
	must_be(p, BIG, 1);
	close(go[0]);
	close(go[1]);
}

static __thread int mine;

/* Registers, vector state, thread pointer and clocks go on as if nothing had been. */
CASE(state_goes_on)
{
	char *p = big_new(BIG);
	unsigned csr = _mm_getcsr();
	struct timespec before, after;
	mine = 4711;
	for (int round = 0; round < 4; round++) {
		register __m128i x __asm__("xmm9") = _mm_set1_epi32(round + 1);
		register long b __asm__("r14") = round * 3;
		pid_t pid;
		fill(p, BIG, 1);
		_mm_setcsr(csr | 0x8000); /* flush to zero */
		CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before), 0);
		__asm__ volatile("" : "+x"(x), "+r"(b));
		pid = fork();
		__asm__ volatile("" : "+x"(x), "+r"(b));
		CHECK_EQ(b, round * 3);
		CHECK_EQ(_mm_getcsr() & 0x8000, 0x8000);
		CHECK_EQ(mine, 4711);
		if (pid == 0)
			_exit(0);
		CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after), 0);
		CHECK(after.tv_sec > before.tv_sec ||
		      (after.tv_sec == before.tv_sec && after.tv_nsec >= before.tv_nsec));
		reap(pid);
		_mm_setcsr(csr);
		CHECK_EQ(getpid(), gettid());
	}
}

static atomic_int ticks;
static void on_alarm(int sig)
{
	atomic_fetch_add(&ticks, 1);
}

CASE(signals_in_between)
{
	struct itimerval it = { { 0, 700 }, { 0, 700 } }, off = { 0 };
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	char *p = big_new(BIG);
	CHECK_EQ(sigaction(SIGALRM, &sa, NULL), 0);
	CHECK_EQ(setitimer(ITIMER_REAL, &it, NULL), 0);
	for (int round = 0; round < 6; round++) {
		pid_t pid;
		fill(p, BIG, (uint64_t)round);
		do
			pid = fork();
		while (pid < 0 && errno == EINTR);
		CHECK(pid >= 0);
		if (pid == 0) {
			must_be(p, BIG, (uint64_t)round);
			_exit(0);
		}
		reap(pid);
		must_be(p, BIG, (uint64_t)round);
	}
	CHECK_EQ(setitimer(ITIMER_REAL, &off, NULL), 0);
	CHECK(atomic_load(&ticks) > 0);
}

static void *count(void *arg)
{
	for (int i = 0; i < 1000; i++)
		(*(volatile int *)arg)++;
	return arg;
}

/* Threads before and after; a fork while there are some. */
CASE(threads_before_and_after)
{
	char *p = big_new(BIG);
	for (int round = 0; round < 4; round++) {
		pthread_t th[3];
		int n[3] = { 0 };
		pid_t pid;
		for (int i = 0; i < 3; i++)
			CHECK_EQ(pthread_create(&th[i], NULL, count, &n[i]), 0);
		fill(p, BIG, (uint64_t)round);
		if (round & 1) {
			pid = fork();
			if (pid == 0)
				_exit(0);
			reap(pid);
		}
		for (int i = 0; i < 3; i++)
			CHECK_EQ(pthread_join(th[i], NULL), 0);
		fill(p, BIG, (uint64_t)round + 5);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			must_be(p, BIG, (uint64_t)round + 5);
			CHECK_EQ(pthread_create(&th[0], NULL, count, &n[0]), 0);
			CHECK_EQ(pthread_join(th[0], NULL), 0);
			_exit(n[0] == 2000 ? 0 : 1);
		}
		reap(pid);
		for (int i = 0; i < 3; i++)
			CHECK_EQ(n[i], 1000);
	}
}

CASE(children_of_children)
{
	char *p = big_new(BIG);
	pid_t pid;
	fill(p, BIG, 1);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		fill(p, BIG, 2);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			must_be(p, BIG, 2);
			fill(p, BIG, 3);
			if (fork() == 0) {
				must_be(p, BIG, 3);
				_exit(0);
			}
			must_be(p, BIG, 3);
			CHECK(wait(NULL) > 0);
			_exit(0);
		}
		must_be(p, BIG, 2);
		reap(pid);
		must_be(p, BIG, 2);
		_exit(0);
	}
	fill(p, BIG, 9);
	reap(pid);
	must_be(p, BIG, 9);
}

/* A parent that is killed while its former self may still be going. */
CASE(killed_after_fork)
{
	for (int round = 0; round < 5; round++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			char *p = big_new(BIG);
			fill(p, BIG, 3);
			if (fork() == 0)
				_exit(0);
			kill(getpid(), SIGKILL);
		}
		int st;
		CHECK_EQ(waitpid(pid, &st, 0), pid);
		CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	}
}

/* ---- many mappings, of which each side changes its own ---- */

#define SPREAD 1000

static struct {
	int prot; /* -1: not mapped */
	uint64_t value;
} spread[SPREAD];
static char *spread_at;
static int zero_fd;

static unsigned next_random(unsigned *seed)
{
	*seed = *seed * 1103515245 + 12345;
	return *seed >> 16;
}

static void check_spread(void)
{
	for (size_t i = 0; i < SPREAD; i++) {
		char *at = spread_at + i * PG;
		unsigned char vec;
		if (spread[i].prot < 0) {
			CHECK_ERR(mincore(at, PG, &vec), ENOMEM);
			continue;
		}
		CHECK_EQ(mincore(at, PG, &vec), 0);
		if (spread[i].prot & PROT_READ)
			CHECK_EQ(*(volatile uint64_t *)(at + 8), spread[i].value);
		if (spread[i].prot & PROT_WRITE)
			CHECK_EQ(read(zero_fd, at, 1), 1);
		else
			CHECK_ERR(read(zero_fd, at, 1), EFAULT);
	}
}

static void change_spread(unsigned seed, int count)
{
	while (count--) {
		size_t i = next_random(&seed) % SPREAD, end = i + 1 + next_random(&seed) % 4, k;
		int prot = next_random(&seed) % 3;
		char *at = spread_at + i * PG;
		prot = prot == 0 ? PROT_READ : prot == 1 ? RW : PROT_NONE;
		end = end > SPREAD ? SPREAD : end;
		switch (next_random(&seed) % 4) {
		case 0:
			CHECK_EQ(munmap(at, (end - i) * PG), 0);
			for (; i < end; i++)
				spread[i].prot = -1;
			break;
		case 1:
			CHECK(mmap(at, (end - i) * PG, prot,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
			for (; i < end; i++) {
				spread[i].prot = prot;
				spread[i].value = 0;
			}
			break;
		case 2:
			for (k = i; k < end && spread[k].prot >= 0; k++)
				;
			if (k == i)
				break;
			CHECK_EQ(mprotect(at, (k - i) * PG, prot), 0);
			for (; i < k; i++)
				spread[i].prot = prot;
			break;
		default:
			if (spread[i].prot != RW)
				break;
			spread[i].value = next_random(&seed);
			*(volatile uint64_t *)(at + 8) = spread[i].value;
		}
	}
}

/* Both sides of each fork change what they have, at the same time, and see only that. */
static void fork_spread(int depth, unsigned seed)
{
	for (int round = 0; round < 2; round++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			change_spread(seed + 1000, 400);
			check_spread();
			if (depth)
				fork_spread(depth - 1, seed + 7);
			change_spread(seed + 2000, 4000);
			check_spread();
			_exit(0);
		}
		change_spread(seed + (unsigned)round, 100);
		check_spread();
		reap(pid);
		check_spread();
	}
}

CASE(many_mappings)
{
	zero_fd = open("/dev/zero", O_RDONLY);
	CHECK(zero_fd >= 0);
	spread_at = big_new(SPREAD * PG);
	for (size_t i = 0; i < SPREAD; i++) {
		spread[i].prot = i % 2 ? RW : PROT_READ;
		if (i % 3 == 0)
			*(volatile uint64_t *)(spread_at + i * PG + 8) = spread[i].value = i;
	}
	for (size_t i = 0; i < SPREAD; i += 2)
		CHECK_EQ(mprotect(spread_at + i * PG, PG, PROT_READ), 0);
	check_spread();
	fork_spread(1, 1);
}

/* What a child gets differently, here and there among many mappings. */
CASE(many_mappings_with_advice)
{
	char *p = big_new(SPREAD * PG);
	unsigned char vec;
	pid_t pid;
	for (size_t i = 0; i < SPREAD; i += 2)
		CHECK_EQ(mprotect(p + i * PG, PG, PROT_READ), 0);
	for (size_t i = 1; i < SPREAD; i += 2)
		p[i * PG] = (char)i;
	for (size_t i = 1; i < SPREAD; i += 500) {
		CHECK_EQ(madvise(p + i * PG, PG, MADV_DONTFORK), 0);
		CHECK_EQ(madvise(p + (i + 100) * PG, PG, MADV_WIPEONFORK), 0);
	}
	for (int round = 0; round < 2; round++) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			for (size_t i = 1; i < SPREAD; i += 2) {
				if (i % 500 == 1)
					CHECK_ERR(mincore(p + i * PG, PG, &vec), ENOMEM);
				else
					CHECK_EQ(p[i * PG], i % 500 == 101 ? 0 : (char)i);
			}
			CHECK_EQ(munmap(p, SPREAD * PG), 0);
			_exit(0);
		}
		reap(pid);
		for (size_t i = 1; i < SPREAD; i += 2)
			CHECK_EQ(p[i * PG], (char)i);
	}
}

CONF_MAIN
