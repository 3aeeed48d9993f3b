/*
 * fork: what fork costs beside much memory, and what is paid for it later.
 *
 * One heap grows from row to row (the table is in the order of sizes), so each page is touched
 * once. Children leave only after the time was taken; the last one lives until after `end`.
 */
#include "bench/guest/groups.h"
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAP_MAX (2048 * MIB)
#define FORKS 5 /* "best of five" */
#define REPS 3	/* median */

/* The process's heap with its first `size` bytes touched. */
static char *heap_of(size_t size)
{
	static char *heap;
	static size_t touched;

	if (!heap)
		heap = bench_map(HEAP_MAX);
	if (size > touched) {
		bench_touch(heap + touched, size - touched, PAGE_SIZE);
		touched = size;
	}
	return heap;
}

static int reap(int pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	errno = 0;
	return status ? -1 : 0;
}

/* A child that waits in read; the time of the fork alone in *ret_ms. bench_release ends it. */
static int timed_fork(int *ret_fd, double *ret_ms)
{
	int fds[2], pid;
	uint64_t start;
	char c;

	if (pipe(fds))
		return -1;
	start = bench_now();
	pid = fork();
	if (pid == 0) {
		close(fds[1]);
		_exit(read(fds[0], &c, 1) != 0);
	}
	*ret_ms = (double)(bench_now() - start) / 1e6;
	close(fds[0]);
	if (pid < 0)
		close(fds[1]);
	*ret_fd = fds[1];
	return pid;
}

static double least(const double *samples, size_t count)
{
	double best = samples[0];

	for (size_t i = 1; i < count; i++)
		if (samples[i] < best)
			best = samples[i];
	return best;
}

/* fork_SIZE: the best of five with nothing written between. */
static void run_fork(const struct bench_row *row)
{
	double ms[FORKS];
	int pid, fd;

	heap_of(row->arg);
	bench_begin(row->name);
	for (int i = 0; i < FORKS; i++) {
		pid = timed_fork(&fd, &ms[i]);
		if (pid < 0) {
			bench_fail(row->name, "fork");
			return;
		}
		if (i < FORKS - 1)
			bench_release(pid, fd);
	}
	bench_end(row->name, least(ms, FORKS), FORKS);
	bench_release(pid, fd);
}

/*
 * rewrite_after_fork_SIZE: every page is written once the child is gone.
 * fork_rewritten_SIZE: the fork just after that.
 * The second's set-up is the first's phase, so whichever row comes first does both. Only the last
 * repetition lies in the phases; the values are the medians of all.
 */
static int rewrite_and_fork(size_t size, const char *rewrite_row, const char *fork_row)
{
	double rewrite_ms[REPS], fork_ms[REPS];
	int pid, fd;

	for (int i = 0; i < REPS; i++) {
		bool last = i == REPS - 1;
		char *heap = heap_of(size);
		uint64_t start;

		/* The fork that the rewriting comes after; later ones follow the last fork. */
		if (i == 0) {
			pid = timed_fork(&fd, &fork_ms[0]);
			if (pid < 0)
				return -1;
			bench_release(pid, fd);
		}
		if (last && rewrite_row)
			bench_begin(rewrite_row);
		start = bench_now();
		bench_touch(heap, size, PAGE_SIZE);
		rewrite_ms[i] = (double)(bench_now() - start) / 1e6;
		if (last && rewrite_row)
			bench_end(rewrite_row, bench_median(rewrite_ms, REPS), 1);
		if (last && fork_row)
			bench_begin(fork_row);
		pid = timed_fork(&fd, &fork_ms[i]);
		if (pid < 0)
			return -1;
		if (last && fork_row)
			bench_end(fork_row, bench_median(fork_ms, REPS), 1);
		bench_release(pid, fd);
	}
	return 0;
}

static void run_rewrite(const struct bench_row *row)
{
	static size_t done; /* the sizes come in rising order */
	char rewrite[64], after[64];
	size_t mib = row->arg / MIB;

	if (row->arg <= done)
		return;
	done = row->arg;
	snprintf(rewrite, sizeof(rewrite), "rewrite_after_fork_%zuM", mib);
	snprintf(after, sizeof(after), "fork_rewritten_%zuM", mib);
	if (rewrite_and_fork(row->arg, bench_wanted(rewrite) ? rewrite : NULL,
			     bench_wanted(after) ? after : NULL))
		bench_fail(row->name, "fork");
}

/* posix_spawn_SIZE: the best of five calls, which return when the new program has begun. */
static void run_spawn(const struct bench_row *row)
{
	char *argv[] = { "/bin/true", NULL }, *env[] = { NULL };
	double ms[FORKS];
	uint64_t start;
	int pid, error;

	if (access(argv[0], X_OK)) {
		bench_skip(row->name, "there is no /bin/true: apt-get install coreutils");
		return;
	}
	heap_of(row->arg);
	for (int i = -1; i < FORKS; i++) {
		if (i == 0)
			bench_begin(row->name);
		start = bench_now();
		error = posix_spawn(&pid, argv[0], NULL, NULL, argv, env);
		if (i >= 0)
			ms[i] = (double)(bench_now() - start) / 1e6;
		if (error || reap(pid)) {
			errno = error;
			bench_fail(row->name, "posix_spawn of /bin/true");
			return;
		}
	}
	bench_end(row->name, least(ms, FORKS), FORKS);
}

/* What a child that uses its parent's memory measures; in memory shared with it. */
struct usage {
	double ms, minflt, rss_mib, pss_mib;
};

/* A field of smaps_rollup, in MiB; negative if it is not there. */
static double smaps_mib(const char *text, const char *field)
{
	const char *at = strstr(text, field);

	return at ? strtod(at + strlen(field), NULL) / 1024 : -1;
}

/* Leaves both negative where the kernel, or the sandbox, has no smaps_rollup. */
static void read_smaps(struct usage *usage)
{
	char text[4096];
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	size_t n;

	usage->rss_mib = usage->pss_mib = -1;
	if (!file)
		return;
	n = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[n] = '\0';
	usage->rss_mib = smaps_mib(text, "\nRss:");
	usage->pss_mib = smaps_mib(text, "\nPss:");
}

static void use_heap(char *heap, size_t size, bool writes, struct usage *usage)
{
	struct rusage before, after;
	uint64_t start;

	getrusage(RUSAGE_SELF, &before);
	start = bench_now();
	if (writes)
		bench_touch(heap, size, PAGE_SIZE);
	else
		for (size_t at = 0; at < size; at += PAGE_SIZE)
			(void)((volatile char *)heap)[at];
	usage->ms = (double)(bench_now() - start) / 1e6;
	getrusage(RUSAGE_SELF, &after);
	usage->minflt = (double)(after.ru_minflt - before.ru_minflt);
}

/* A child that has used the heap, and waits for bench_release. */
static int fork_user(size_t size, bool writes, bool smaps, struct usage *usage, int *ret_fd)
{
	char *heap = heap_of(size), c;
	int life[2], done[2], pid;
	bool ok;

	if (pipe(life))
		return -1;
	if (pipe(done)) {
		close(life[0]);
		close(life[1]);
		return -1;
	}
	pid = fork();
	if (pid == 0) {
		close(life[1]);
		use_heap(heap, size, writes, usage);
		if (smaps)
			read_smaps(usage);
		if (write(done[1], "", 1) == 1)
			_exit(read(life[0], &c, 1) != 0);
		_exit(1);
	}
	close(life[0]);
	close(done[1]);
	ok = pid > 0 && read(done[0], &c, 1) == 1;
	close(done[0]);
	*ret_fd = life[1];
	if (ok)
		return pid;
	if (pid > 0)
		bench_release(pid, life[1]);
	else
		close(life[1]);
	return -1;
}

static void report_mib(const char *name, double mib)
{
	if (mib >= 0)
		bench_value(name, mib);
	else if (bench_wanted(name))
		bench_skip(name, "no /proc/self/smaps_rollup here");
}

static void report_values(size_t size, bool writes, const struct usage *usage)
{
	size_t mib = size / MIB;
	char name[64];

	snprintf(name, sizeof(name), "fork_child_%s_%zuM_minflt", writes ? "writes" : "reads", mib);
	bench_value(name, usage->minflt);
	if (!writes) {
		snprintf(name, sizeof(name), "fork_shared_rss_%zuM", mib);
		report_mib(name, usage->rss_mib);
	}
	snprintf(name, sizeof(name), "fork_%s_pss_%zuM", writes ? "copied" : "shared", mib);
	report_mib(name, usage->pss_mib);
}

/*
 * The child uses a byte of every page: its time and faults, and what smaps_rollup says of it then.
 * That takes long itself, so a first child, the warm-up, reads it before the phase.
 */
static void measure_use(const struct bench_row *row, bool writes)
{
	struct usage *usage = mmap(NULL, sizeof(*usage), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int pid, fd;

	if (usage == MAP_FAILED) {
		bench_fail(row->name, "mmap");
		return;
	}
	heap_of(row->arg);
	pid = fork_user(row->arg, writes, true, usage, &fd);
	if (pid < 0)
		goto out;
	bench_release(pid, fd);
	bench_begin(row->name);
	pid = fork_user(row->arg, writes, false, usage, &fd);
	if (pid < 0)
		goto out;
	report_values(row->arg, writes, usage);
	bench_end(row->name, usage->ms, 1);
	bench_release(pid, fd);
out:
	if (pid < 0)
		bench_fail(row->name, "no child, or it did not live to use the heap");
	munmap(usage, sizeof(*usage));
}

static void run_reads(const struct bench_row *row)
{
	measure_use(row, false);
}

static void run_writes(const struct bench_row *row)
{
	measure_use(row, true);
}

#define SIZE_ROWS(mib)                                                                             \
	{ "fork_" #mib "M", run_fork, (mib)*MIB },                                                 \
	{                                                                                          \
		"posix_spawn_" #mib "M", run_spawn, (mib)*MIB                                      \
	}
#define REWRITE_ROWS(mib)                                                                          \
	{ "rewrite_after_fork_" #mib "M", run_rewrite, (mib)*MIB },                                \
	{                                                                                          \
		"fork_rewritten_" #mib "M", run_rewrite, (mib)*MIB                                 \
	}

static const struct bench_row rows[] = {
	SIZE_ROWS(0),
	SIZE_ROWS(64),
	REWRITE_ROWS(64),
	SIZE_ROWS(256),
	REWRITE_ROWS(256),
	SIZE_ROWS(1024),
	REWRITE_ROWS(1024),
	{ "fork_child_reads_1024M", run_reads, 1024 * MIB },
	{ "fork_child_writes_1024M", run_writes, 1024 * MIB },
	SIZE_ROWS(2048),
	REWRITE_ROWS(2048),
};
BENCH_GROUP(fork, rows);
