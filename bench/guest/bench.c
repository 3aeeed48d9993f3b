#include "bench/guest/bench.h"
#include "bench/guest/groups.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCHES 10
#define DIRS_MAX 8

static struct {
	uint64_t loop_ns;
	uint64_t begun;		    /* by the guest's clock, after the driver's answer */
	const char *dirs[DIRS_MAX]; /* NAME=PATH */
	int dir_count;
	char **wanted; /* rows asked for; none means all */
	int wanted_count;
} bench = { .loop_ns = 60 * 1000000UL };

uint64_t bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000UL + (uint64_t)ts.tv_nsec;
}

const char *bench_dir(const char *name)
{
	size_t n = strlen(name);

	for (int i = 0; i < bench.dir_count; i++)
		if (strncmp(bench.dirs[i], name, n) == 0 && bench.dirs[i][n] == '=')
			return bench.dirs[i] + n + 1;
	return NULL;
}

bool bench_wanted(const char *row)
{
	for (int i = 0; i < bench.wanted_count; i++)
		if (strcmp(bench.wanted[i], row) == 0)
			return true;
	return bench.wanted_count == 0;
}

/* One line, in one write: the driver reads nothing half-written even if a child dies in between. */
static void say(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		_exit(2);
}

/* The driver went away, or wants no more, when there is no answer. */
static void await_answer(void)
{
	char c;
	ssize_t n;

	do {
		n = read(STDIN_FILENO, &c, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(2);
}

void bench_begin(const char *row)
{
	say("begin %s", row);
	await_answer();
	bench.begun = bench_now();
}

void bench_end(const char *row, double value, uint64_t ops)
{
	uint64_t elapsed = bench_now() - bench.begun;

	say("end %s %.9g %lu %lu", row, value, ops, elapsed);
	await_answer();
}

void bench_value(const char *row, double value)
{
	if (bench_wanted(row))
		say("value %s %.9g", row, value);
}

void bench_skip(const char *row, const char *why, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, why);
	vsnprintf(text, sizeof(text), why, ap);
	va_end(ap);
	say("skip %s %s", row, text);
}

void bench_fail(const char *row, const char *why, ...)
{
	int error = errno;
	char text[256];
	va_list ap;

	va_start(ap, why);
	vsnprintf(text, sizeof(text), why, ap);
	va_end(ap);
	say("fail %s %s%s%s", row, text, error ? ": " : "", error ? strerror(error) : "");
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *samples, size_t count)
{
	qsort(samples, count, sizeof(*samples), compare_doubles);
	return count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
}

/* The number of operations that takes about `goal` ns, at least one; 0 when op failed. */
static uint64_t calibrate(int (*op)(void *, uint64_t), void *arg, uint64_t goal)
{
	uint64_t n = 1;

	for (;;) {
		uint64_t start = bench_now(), took;

		if (op(arg, n))
			return 0;
		took = bench_now() - start;
		if (took >= goal / 2 || n >= 1UL << 30) {
			n = (uint64_t)((double)n * (double)goal / (double)(took ? took : 1));
			return n ? n : 1;
		}
		n *= took < goal / 20 ? 8 : 2;
	}
}

/* What is called often may become faster (a call whose site is patched): counts again until not. */
#define CALIBRATIONS 6

static uint64_t warm_up(int (*op)(void *, uint64_t), void *arg, uint64_t goal)
{
	uint64_t n = 0, start;

	for (int i = 0; i < CALIBRATIONS; i++) {
		n = calibrate(op, arg, goal);
		start = bench_now();
		if (!n || op(arg, n))
			return 0;
		if (bench_now() - start >= goal / 2)
			break;
	}
	return n;
}

double bench_loop(const char *row, int (*op)(void *arg, uint64_t n), void *arg, uint64_t *ret_ops)
{
	double batch[BATCHES];
	uint64_t n = warm_up(op, arg, bench.loop_ns / BATCHES);

	if (!n) {
		bench_fail(row, "the operation failed");
		return -1;
	}
	bench_begin(row);
	for (int i = 0; i < BATCHES; i++) {
		uint64_t start = bench_now();

		if (op(arg, n)) {
			bench_fail(row, "the operation failed");
			return -1;
		}
		batch[i] = (double)(bench_now() - start) / (double)n;
	}
	*ret_ops = n * BATCHES;
	return bench_median(batch, BATCHES);
}

void bench_loop_row(const char *row, int (*op)(void *arg, uint64_t n), void *arg, double scale)
{
	uint64_t ops = 0;
	double ns = bench_loop(row, op, arg, &ops);

	if (ns >= 0)
		bench_end(row, ns / scale, ops);
}

void *bench_map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		fprintf(stderr, "mmap of %zu bytes: %s\n", size, strerror(errno));
		exit(2);
	}
	madvise(p, size, MADV_NOHUGEPAGE);
	return p;
}

void bench_touch(void *base, size_t size, size_t stride)
{
	for (size_t at = 0; at < size; at += stride)
		((volatile char *)base)[at]++;
}

int bench_fork_waiter(int *ret_fd)
{
	int fds[2], pid;

	if (pipe(fds))
		return -1;
	pid = fork();
	if (pid < 0)
		return -1;
	if (pid == 0) {
		char c;

		close(fds[1]);
		while (read(fds[0], &c, 1) < 0 && errno == EINTR)
			;
		_exit(0);
	}
	close(fds[0]);
	*ret_fd = fds[1];
	return pid;
}

void bench_release(int pid, int fd)
{
	close(fd);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* `probe`: what the driver runs first under every runtime, to see that it works at all. */
static void probe(void)
{
	bench_begin("probe");
	usleep(200000);
	bench_end("probe", 1, 1);
}

static void list_rows(void)
{
	for (size_t g = 0; g < bench_group_count; g++)
		for (size_t r = 0; r < bench_groups[g]->count; r++)
			printf("%s %s\n", bench_groups[g]->name, bench_groups[g]->rows[r].name);
}

/* The driver's folder in /dev/shm is not there in a sandbox that has its own. */
static void add_dir(const char *name_and_path)
{
	const char *path = strchr(name_and_path, '=');

	if (path && mkdir(path + 1, 0755) != 0 && errno != EEXIST)
		perror(path + 1);
	bench.dirs[bench.dir_count++] = name_and_path;
}

static int run_group(const struct bench_group *group)
{
	for (size_t r = 0; r < group->count; r++)
		if (bench_wanted(group->rows[r].name)) {
			errno = 0;
			group->rows[r].run(&group->rows[r]);
		}
	return 0;
}

int main(int argc, char **argv)
{
	int at = 2;

	if (argc < 2) {
		fputs("usage: minisentry-bench-guest GROUP [--ms N] [--dir NAME=PATH]... "
		      "[ROW...]\n",
		      stderr);
		return 2;
	}
	for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
		if (strcmp(argv[at], "--ms") == 0)
			bench.loop_ns = strtoul(argv[at + 1], NULL, 10) * 1000000UL;
		else if (strcmp(argv[at], "--dir") == 0 && bench.dir_count < DIRS_MAX)
			add_dir(argv[at + 1]);
	}
	bench.wanted = argv + at;
	bench.wanted_count = argc - at;
	if (strcmp(argv[1], "probe") == 0) {
		probe();
		return 0;
	}
	if (strcmp(argv[1], "--list") == 0) {
		list_rows();
		return 0;
	}
	for (size_t g = 0; g < bench_group_count; g++)
		if (strcmp(bench_groups[g]->name, argv[1]) == 0)
			return run_group(bench_groups[g]);
	fprintf(stderr, "minisentry-bench-guest: no group %s\n", argv[1]);
	return 2;
}
