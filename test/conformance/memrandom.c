/*
 * Random memory operations against a shadow copy that each process keeps:
 * map, write, read, protect, remap, discard, unmap, fork, exit, and system
 * calls that read and write guest memory. What a process did not do must not
 * show in it.
 */
#include "conf.h"
#include <pthread.h>
#include <sys/uio.h>

#define BASE 0x10000000000UL
#define PAGES 192
#define PAGE 4096UL
#define DEPTH 3

struct page {
	bool mapped, dontfork, wipe;
	int prot;
	uint32_t value;
};
struct shadow {
	struct page page[PAGES];
	uint64_t seed;
	int depth, pipe[2];
};

static uint64_t rnd(struct shadow *s, uint64_t n)
{
	s->seed ^= s->seed << 13;
	s->seed ^= s->seed >> 7;
	s->seed ^= s->seed << 17;
	return s->seed % n;
}
static char *at(uint64_t page)
{
	return (char *)(BASE + page * PAGE);
}
static volatile uint32_t *word(uint64_t page, int i)
{
	return (volatile uint32_t *)(at(page) + (i ? PAGE - 8 : 64));
}
static void check_page(struct shadow *s, uint64_t i)
{
	struct page *p = &s->page[i];

	if (!p->mapped || !(p->prot & PROT_READ))
		return;
	for (int k = 0; k < 2; k++) {
		uint32_t got = *word(i, k);

		if (got != p->value)
			conf_fail(__FILE__, __LINE__, "page %d: %x, expected %x", (int)i, got,
				  p->value);
	}
}
static void write_page(struct shadow *s, uint64_t i)
{
	struct page *p = &s->page[i];
	uint32_t v = (uint32_t)rnd(s, 1UL << 32);

	if (!p->mapped || !(p->prot & PROT_WRITE) || !(p->prot & PROT_READ))
		return;
	if (rnd(s, 4)) {
		*word(i, 0) = v;
	} else { /* the kernel writes into it */
		CHECK_EQ(write(s->pipe[1], &v, 4), 4);
		CHECK_EQ(read(s->pipe[0], (void *)word(i, 0), 4), 4);
	}
	*word(i, 1) = v;
	p->value = v;
	if (rnd(s, 6) == 0) { /* the kernel reads it */
		uint32_t got;

		CHECK_EQ(write(s->pipe[1], (void *)word(i, 1), 4), 4);
		CHECK_EQ(read(s->pipe[0], &got, 4), 4);
		CHECK_EQ(got, v);
	}
}
static void range(struct shadow *s, uint64_t most, uint64_t *first, uint64_t *n)
{
	*first = rnd(s, PAGES);
	*n = 1 + rnd(s, most);
	if (*n > PAGES - *first)
		*n = PAGES - *first;
}
static void op_map(struct shadow *s)
{
	uint64_t first, n;

	range(s, 40, &first, &n);
	CHECK_EQ(mmap(at(first), n * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at(first),
		 1);
	for (uint64_t i = first; i < first + n; i++)
		s->page[i] = (struct page){ .mapped = true, .prot = PROT_READ | PROT_WRITE };
}
static void op_unmap(struct shadow *s)
{
	uint64_t first, n;

	range(s, 12, &first, &n);
	CHECK_EQ(munmap(at(first), n * PAGE), 0);
	memset(&s->page[first], 0, n * sizeof(s->page[0]));
}
static void op_protect(struct shadow *s)
{
	uint64_t first, n, i;
	int prot = rnd(s, 3) ? PROT_READ | PROT_WRITE : rnd(s, 2) ? PROT_READ : PROT_NONE, err = 0;

	range(s, 24, &first, &n);
	for (i = first; i < first + n; i++) {
		if (!s->page[i].mapped) {
			err = -1;
			break;
		}
		s->page[i].prot = prot;
	}
	CHECK_EQ(mprotect(at(first), n * PAGE, prot), err);
}
static void op_advise(struct shadow *s)
{
	static const int advices[] = { MADV_DONTNEED, MADV_DONTNEED,   MADV_DONTFORK,
				       MADV_DOFORK,   MADV_WIPEONFORK, MADV_KEEPONFORK };
	int advice = advices[rnd(s, 6)], err = 0;
	uint64_t first, n;

	range(s, 24, &first, &n);
	for (uint64_t i = first; i < first + n; i++) {
		struct page *p = &s->page[i];

		if (!p->mapped) {
			err = -1;
			continue;
		}
		if (advice == MADV_DONTNEED)
			p->value = 0;
		if (advice == MADV_DONTFORK || advice == MADV_DOFORK)
			p->dontfork = advice == MADV_DONTFORK;
		if (advice == MADV_WIPEONFORK || advice == MADV_KEEPONFORK)
			p->wipe = advice == MADV_WIPEONFORK;
	}
	CHECK_EQ(madvise(at(first), n * PAGE, advice), err);
}
/* One page at a time: it cannot span what the kernel keeps apart. */
static void op_remap(struct shadow *s)
{
	uint64_t from = rnd(s, PAGES), to = rnd(s, PAGES);

	if (!s->page[from].mapped || from == to)
		return;
	CHECK_EQ(mremap(at(from), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(to)) == at(to), 1);
	s->page[to] = s->page[from];
	memset(&s->page[from], 0, sizeof(s->page[0]));
}
static void play(struct shadow *s, int steps);
static void check_all(struct shadow *s)
{
	for (uint64_t i = 0; i < PAGES; i++)
		check_page(s, i);
}
static void op_fork(struct shadow *s, int steps)
{
	pid_t pid;

	if (s->depth == DEPTH)
		return;
	pid = OK(fork());
	if (pid == 0) {
		s->depth++;
		s->seed = s->seed * 6364136223846793005UL + 1442695040888963407UL;
		if (pipe(s->pipe) < 0)
			_exit(1);
		for (int i = 0; i < PAGES; i++) {
			if (s->page[i].dontfork)
				s->page[i] = (struct page){ 0 };
			if (s->page[i].wipe)
				s->page[i].value = 0;
		}
		play(s, steps / 3);
		_exit(0);
	}
	/* Both sides go on at once. */
	play(s, steps / 6);
	conf_join(pid);
	check_all(s);
}
static void play(struct shadow *s, int steps)
{
	for (int i = 0; i < steps; i++) {
		uint64_t op = rnd(s, 100), first, n;

		if (op < 40) {
			range(s, rnd(s, 4) ? 1 : 40, &first, &n);
			for (uint64_t k = first; k < first + n; k++)
				write_page(s, k);
		} else if (op < 70) {
			check_page(s, rnd(s, PAGES));
		} else if (op < 78) {
			op_map(s);
		} else if (op < 83) {
			op_unmap(s);
		} else if (op < 88) {
			op_protect(s);
		} else if (op < 93) {
			op_advise(s);
		} else if (op < 98) {
			op_remap(s);
		} else {
			op_fork(s, steps);
		}
	}
	check_all(s);
}
static void run(uint64_t seed, int steps)
{
	static struct shadow s;

	memset(&s, 0, sizeof(s));
	s.seed = seed * 0x9e3779b97f4a7c15UL | 1;
	OK(pipe(s.pipe));
	play(&s, steps);
	CHECK_EQ(munmap(at(0), PAGES * PAGE), 0);
}
static void run_from(void *seed)
{
	for (uint64_t i = 0; i < 2; i++)
		run((uint64_t)(uintptr_t)seed + i, 200);
}

CASE(one_process_and_its_children)
{
	for (uint64_t seed = 1; seed < 4; seed++)
		run(seed, 300);
}
CASE(eight_families_at_once)
{
	pid_t pid[8];

	for (uintptr_t i = 0; i < 8; i++)
		pid[i] = conf_fork(run_from, (void *)(100 + i * 10));
	for (int i = 0; i < 8; i++)
		conf_join(pid[i]);
}

/* Threads that write each its own words of shared pages, while the process forks. */
#define THREADS 4
#define SPAN 256
static char *area;
static _Atomic bool stop;
static void *thread_writer(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	uint32_t n = 0;

	while (!stop || n < SPAN * 4) {
		volatile uint32_t *w = (volatile uint32_t *)(area + (n % SPAN) * PAGE + me * 128);

		if (*w != n / SPAN)
			return (void *)1;
		*w = n / SPAN + 1;
		n++;
	}
	return NULL;
}
static void child_checks(void *arg)
{
	uint32_t seen[SPAN];

	for (int i = 0; i < SPAN; i++)
		seen[i] = *(volatile uint32_t *)(area + i * PAGE);
	for (int i = 0; i < SPAN; i++)
		*(volatile uint32_t *)(area + i * PAGE + 1024) = 7;
	for (int i = 0; i < SPAN; i++) {
		CHECK_EQ(*(volatile uint32_t *)(area + i * PAGE), seen[i]);
		CHECK_EQ(*(volatile uint32_t *)(area + i * PAGE + 1024), 7);
	}
}
CASE(threads_write_while_the_process_forks)
{
	pthread_t t[THREADS];

	area = mmap(NULL, SPAN * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(area != MAP_FAILED, 1);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, thread_writer, (void *)i), 0);
	for (int i = 0; i < 20; i++)
		conf_join(conf_fork(child_checks, NULL));
	stop = true;
	for (int i = 0; i < THREADS; i++) {
		void *r;

		CHECK_EQ(pthread_join(t[i], &r), 0);
		CHECK_EQ(r == NULL, 1);
	}
	for (int i = 0; i < SPAN; i++)
		CHECK_EQ(*(uint32_t *)(area + i * PAGE + 1024), 0);
}

/* A read that waits while another thread forks and writes to the buffer's page: the data arrive
 * here. */
static int waiting[2];
static void *reader(void *buf)
{
	return (void *)(uintptr_t)(read(waiting[0], buf, 4) == 4);
}
static void child_reads_page(void *page)
{
	CHECK_EQ(*(volatile uint32_t *)((char *)page + 2048), 5);
}
CASE(waiting_read_across_fork)
{
	for (int round = 0; round < 20; round++) {
		char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
		pthread_t t;
		void *ok;
		pid_t pid;

		OK(pipe(waiting));
		*(volatile uint32_t *)(page + 2048) = 5;
		CHECK_EQ(pthread_create(&t, NULL, reader, page), 0);
		pid = conf_fork(child_reads_page, page);
		*(volatile uint32_t *)(page + 2048) = 6;
		CHECK_EQ(write(waiting[1], "abcd", 4), 4);
		CHECK_EQ(pthread_join(t, &ok), 0);
		CHECK_EQ(ok != NULL, 1);
		CHECK_EQ(memcmp(page, "abcd", 4), 0);
		CHECK_EQ(*(volatile uint32_t *)(page + 2048), 6);
		conf_join(pid);
		close(waiting[0]);
		close(waiting[1]);
		munmap(page, PAGE);
	}
}
CONF_MAIN
