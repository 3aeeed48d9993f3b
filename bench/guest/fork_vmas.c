/*
 * fork_vmas: what fork costs for address spaces of many vmas, named and not.
 *
 * The vmas are pages of one untouched mapping, made by mprotect of every other one. "64K" is 65,000
 * everywhere: Linux allows a process 65,530 (vm.max_map_count), the program's own included.
 */
#include "bench/guest/groups.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define FORKS 5 /* the best of them counts, as in fork.c */
#define NAMED 1UL
#define COUNT(arg) ((arg) >> 1)

/* Names are a few dozen bytes in practice, and differ. */
static int name_vmas(char *base, size_t count)
{
	char name[64];

	for (size_t i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "minisentry-bench: arena %zu", i);
		if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, base + i * PAGE_SIZE, PAGE_SIZE, name))
			return -1;
	}
	return 0;
}

static int make_vmas(char *base, size_t count)
{
	for (size_t i = 0; i < count; i += 2)
		if (mprotect(base + i * PAGE_SIZE, PAGE_SIZE, PROT_READ))
			return -1;
	return 0;
}

static int best_fork(const char *row, double *ret_ms, int *ret_pid, int *ret_fd)
{
	for (int i = 0; i < FORKS; i++) {
		uint64_t start = bench_now();
		double ms;

		/* Makes a pipe, too: a few us among ms. */
		*ret_pid = bench_fork_waiter(ret_fd);
		ms = (double)(bench_now() - start) / 1e6;
		if (*ret_pid < 0) {
			bench_fail(row, "fork");
			return -1;
		}
		if (i == 0 || ms < *ret_ms)
			*ret_ms = ms;
		if (i < FORKS - 1)
			bench_release(*ret_pid, *ret_fd);
	}
	return 0;
}

static void run_vmas(const struct bench_row *row)
{
	size_t count = COUNT(row->arg);
	char *base = bench_map(count * PAGE_SIZE);
	double ms;
	int pid, fd;

	if (make_vmas(base, count)) {
		bench_fail(row->name, "mprotect");
		goto out;
	}
	if (row->arg & NAMED && name_vmas(base, count)) {
		/* What a kernel without them says. */
		if (errno == EINVAL)
			bench_skip(row->name, "the kernel does not name anonymous memory "
					      "(CONFIG_ANON_VMA_NAME)");
		else
			bench_fail(row->name, "PR_SET_VMA_ANON_NAME");
		goto out;
	}
	bench_begin(row->name);
	if (!best_fork(row->name, &ms, &pid, &fd)) {
		bench_end(row->name, ms, FORKS);
		bench_release(pid, fd);
	}
out:
	munmap(base, count * PAGE_SIZE);
}

#define VMAS(count, flags) ((count) << 1 | (flags))

static const struct bench_row rows[] = {
	{ "fork_32K_vmas", run_vmas, VMAS(32768UL, 0) },
	{ "fork_64K_vmas", run_vmas, VMAS(65000UL, 0) },
	{ "fork_32K_vmas_named", run_vmas, VMAS(32768UL, NAMED) },
	{ "fork_64K_vmas_named", run_vmas, VMAS(65000UL, NAMED) },
};
BENCH_GROUP(fork_vmas, rows);
