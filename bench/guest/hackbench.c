#include "bench/guest/groups.h"
#include "bench/guest/program.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPETITIONS 3

static char *const sockets[] = { "hackbench", "-g", "2", "-l", "200", NULL };
static char *const pipes[] = { "hackbench", "-p", "-g", "2", "-l", "200", NULL };
static char *const pipe_threads[] = { "hackbench", "-p", "-T", "-g", "2", "-l", "200", NULL };

/* What hackbench's own "Time: 0.283" says, in ms: without starting its 80 tasks. Negative: failed.
 */
static double run_once(const char *row, char *const argv[])
{
	char out[1024];
	int code = program_run(argv, -1, STDOUT_FILENO, out, sizeof(out));
	const char *line = strstr(out, "Time: ");

	if (code || !line) {
		errno = 0;
		bench_fail(row, "hackbench ended with %d", code);
		return -1;
	}
	return strtod(line + strlen("Time: "), NULL) * 1000;
}

/* The median of three runs; fewer where they take longer than a second together. */
static void hackbench(const struct bench_row *row)
{
	char *const *argv = (char *const *)row->arg;
	char *const warm_up[] = { "hackbench", "-g", "1", "-l", "10", NULL };
	double samples[REPETITIONS];
	uint64_t begun;
	int done = 0;

	if (!program_found(row->name, "hackbench", "rt-tests") || run_once(row->name, warm_up) < 0)
		return;
	bench_begin(row->name);
	begun = bench_now();
	while (done < REPETITIONS && (done == 0 || bench_now() - begun < 1000000000UL)) {
		samples[done] = run_once(row->name, argv);
		if (samples[done++] < 0)
			return;
	}
	bench_end(row->name, bench_median(samples, (size_t)done), (uint64_t)done);
}

static const struct bench_row rows[] = {
	{ "hackbench_sockets", hackbench, (uintptr_t)sockets },
	{ "hackbench_pipes", hackbench, (uintptr_t)pipes },
	{ "hackbench_pipe_threads", hackbench, (uintptr_t)pipe_threads },
};
BENCH_GROUP(hackbench, rows);
