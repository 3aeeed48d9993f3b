/*
 * The process of a workload: started with pipes for its standard input and output and a file for
 * its standard error, in a process group of its own; ended with everything that it left behind.
 */
#ifndef BENCH_DRIVER_WORKLOAD_H
#define BENCH_DRIVER_WORKLOAD_H

#include "bench/driver/sampler.h"
#include <stdbool.h>
#include <sys/types.h>

struct workload {
	pid_t pid;
	int in, out, err; /* we write its input, read its output, never blocking; err is a memfd */
	off_t trimmed;	  /* so much of err is gone */
	/*
	 * CLOCK_MONOTONIC, just before it executes the program and after its exit. Memory shared
	 * with the child, which sets it after it has joined the cgroup: the kernel may take 20 ms
	 * for that.
	 */
	const volatile double *started_ns;
	double ended_ns;
};

double workload_now_ns(void);

/*
 * Runs argv in `folder`, or in the current one with NULL (PATH is the standard one, so every
 * runtime finds the same programs), in the sampler's cgroup, if there is a sampler. False when the
 * host cannot start a process.
 */
bool workload_start(struct workload *w, char **argv, const char *folder,
		    const struct sampler *sampler);

/* Frees the memory of a long standard error, but for its end. To be called now and then. */
void workload_trim(struct workload *w);

/*
 * Ends it: waits a moment for its exit unless `kill`, kills and reaps all our descendants, closes
 * the descriptors. Writes how it ended into `how`, with the last line of its standard error. True
 * if it ended by itself with exit code 0.
 */
bool workload_finish(struct workload *w, bool kill, char *how, size_t size);

#endif
