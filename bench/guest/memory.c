/*
 * Anonymous memory: what the first touch of a page costs, and changes of the address space.
 *
 * The touching rows are samples of a whole mapping each, so that what a mapping costs once is in
 * them, and report the median sample. `anon_touch_seq` must come first in the program, and
 * keeps its mappings to the end: nothing is unmapped, so each sample's memory is new to a sandbox,
 * not taken from what it had kept of an earlier mapping. `anon_touch_seq_reused` is that other
 * case.
 */
#include "bench/guest/groups.h"
#include <errno.h>
#include <sys/mman.h>

#define US 1000.0
#define SAMPLES 5
#define SEQ_SIZE (64 * MIB)
#define SPARSE_SIZE (1024 * MIB)
#define SPARSE_PAGES (SPARSE_SIZE / PAGE_SIZE)
#define RAND_TOUCHES 8192UL
#define SMALL_SIZE (64 * KIB)

/* us a page, for the mapping that is in *ret_base. */
static double touch_seq(void **ret_base)
{
	const size_t pages = SEQ_SIZE / PAGE_SIZE;
	uint64_t start;

	*ret_base = bench_map(SEQ_SIZE);
	start = bench_now();
	bench_touch(*ret_base, SEQ_SIZE, PAGE_SIZE);
	return (double)(bench_now() - start) / US / (double)pages;
}

static void run_touch_seq(const struct bench_row *row)
{
	void *base[SAMPLES], *warm = bench_map(MIB);
	double us[SAMPLES];

	bench_touch(warm, MIB, PAGE_SIZE);
	bench_begin(row->name);
	for (int i = 0; i < SAMPLES; i++)
		us[i] = touch_seq(&base[i]);
	bench_end(row->name, bench_median(us, SAMPLES), SAMPLES * SEQ_SIZE / PAGE_SIZE);
	for (int i = 0; i < SAMPLES; i++)
		munmap(base[i], SEQ_SIZE);
	munmap(warm, MIB);
}

/* The unmapping is in the phase, so in its host CPU time, but not in the samples. */
static void run_touch_seq_reused(const struct bench_row *row)
{
	double us[SAMPLES];
	void *base;

	touch_seq(&base);
	munmap(base, SEQ_SIZE);
	bench_begin(row->name);
	for (int i = 0; i < SAMPLES; i++) {
		us[i] = touch_seq(&base);
		munmap(base, SEQ_SIZE);
	}
	bench_end(row->name, bench_median(us, SAMPLES), SAMPLES * SEQ_SIZE / PAGE_SIZE);
}

/*
 * Touches RAND_TOUCHES pages, none twice: a linear congruence modulo a power of two whose increment
 * is odd and multiplier 1 modulo 4 goes through all pages before it repeats itself.
 */
static double touch_rand(char *base, uint64_t page)
{
	uint64_t start = bench_now();

	for (uint64_t i = 0; i < RAND_TOUCHES; i++) {
		page = (page * 1664525 + 1013904223) % SPARSE_PAGES;
		((volatile char *)base)[page * PAGE_SIZE] = 1;
	}
	return (double)(bench_now() - start) / US / (double)RAND_TOUCHES;
}

static void run_touch_rand(const struct bench_row *row)
{
	void *base[SAMPLES], *warm = bench_map(SPARSE_SIZE);
	double us[SAMPLES];

	touch_rand(warm, 1);
	bench_begin(row->name);
	for (int i = 0; i < SAMPLES; i++) {
		base[i] = bench_map(SPARSE_SIZE);
		us[i] = touch_rand(base[i], (uint64_t)i * 7919);
	}
	bench_end(row->name, bench_median(us, SAMPLES), SAMPLES * RAND_TOUCHES);
	for (int i = 0; i < SAMPLES; i++)
		munmap(base[i], SPARSE_SIZE);
	munmap(warm, SPARSE_SIZE);
}

/* *arg: whether to touch a page, the first of the mapping. */
static int op_mmap(void *arg, uint64_t n)
{
	bool touch = *(bool *)arg;

	while (n--) {
		char *p = mmap(NULL, SMALL_SIZE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return -1;
		if (touch)
			*(volatile char *)p = 1;
		if (munmap(p, SMALL_SIZE))
			return -1;
	}
	return 0;
}

static void run_mmap(const struct bench_row *row)
{
	bool touch = row->arg;

	bench_loop_row(row->name, op_mmap, &touch, US);
}

static int op_mprotect(void *arg, uint64_t n)
{
	while (n--) {
		if (mprotect(arg, SMALL_SIZE, PROT_READ) ||
		    mprotect(arg, SMALL_SIZE, PROT_READ | PROT_WRITE))
			return -1;
		(*(volatile char *)arg)++;
	}
	return 0;
}

static void run_mprotect(const struct bench_row *row)
{
	void *base = bench_map(SMALL_SIZE);

	bench_touch(base, SMALL_SIZE, PAGE_SIZE);
	bench_loop_row(row->name, op_mprotect, base, US);
	munmap(base, SMALL_SIZE);
}

static const struct bench_row rows[] = {
	{ "anon_touch_seq", run_touch_seq, 0 },
	{ "anon_touch_seq_reused", run_touch_seq_reused, 0 },
	{ "anon_touch_rand", run_touch_rand, 0 },
	{ "mmap_munmap", run_mmap, false },
	{ "mmap_touch_munmap", run_mmap, true },
	{ "mprotect_x2_touch", run_mprotect, 0 },
};
BENCH_GROUP(memory, rows);
