/* The command line of `minisentry bench`. */
#ifndef BENCH_DRIVER_OPTIONS_H
#define BENCH_DRIVER_OPTIONS_H

#include "bench/driver/results.h"

struct bench_options {
	int rounds;
	int loop_ms;   /* that a measured loop takes in the guest */
	int timeout_s; /* without a word from a workload */
	bool no_cgroup;
	bool quiet;
	const char *json, *csv, *markdown, *report, *compare; /* paths, or NULL */
	const char *minisentry;				      /* the program under test */
	const char *disk; /* a folder on disk for the overlay and bind rows */
};

/* What the caller does after parsing. */
enum options_action { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_BAD };

/*
 * Fills in the options, and of *r: command, rows and runtimes (native first). OPTIONS_DONE: --help
 * or --list was printed; OPTIONS_BAD: after a message on standard error.
 */
enum options_action options_parse(int argc, char **argv, struct bench_options *o,
				  struct results *r);

/* "minisentry bench: ..." and the hint, in the form of minisentry's own messages. */
void bench_error(const char *hint, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
