/*
 * One run of a group of rows under one runtime: starts the workload, answers its lines, samples
 * memory, CPU time and both clocks at each phase, and fills in the round's samples.
 *
 * What a workload or a runtime does wrong ends in the cells' `why`: an exit before all rows are
 * done (the last line of its standard error is quoted), silence longer than the timeout (it is
 * killed), a row that failed. A row that broke its process is left out and the others are tried
 * again. Nothing of it stays behind: all descendants are killed and reaped.
 */
#ifndef BENCH_DRIVER_SESSION_H
#define BENCH_DRIVER_SESSION_H

#include "bench/driver/command.h"
#include "bench/driver/results.h"
#include "bench/driver/sampler.h"
#include <signal.h>

struct session_host {
	struct results *results;
	const struct bench_env *env;
	const struct sampler *sampler;
	const volatile sig_atomic_t *interrupted;
	/* Called some times a second and at each row; may be NULL. */
	void (*progress)(void *arg, const char *row);
	void *progress_arg;
};

/*
 * Runs all rows of `group` that were asked for and have not failed before in this runtime.
 * False when the runtime hung (it was killed): it should not be asked for more of this group.
 */
bool session_run(const struct session_host *host, int group, int runtime, int round);

/* A short workload that says whether the runtime works at all; fills in runtime->why if not. */
void session_probe(const struct session_host *host, int runtime);

#endif
