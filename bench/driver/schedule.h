/*
 * The order of a run: rounds; in each, every group; of each group, every runtime, in turn forwards
 * and backwards (A B B A), so that neither a machine that warms up nor one that wears out favours
 * one of them. What was done is kept when the user interrupts.
 */
#ifndef BENCH_DRIVER_SCHEDULE_H
#define BENCH_DRIVER_SCHEDULE_H

#include "bench/driver/command.h"
#include "bench/driver/results.h"
#include "bench/driver/sampler.h"
#include <signal.h>

void schedule_run(struct results *r, const struct bench_env *env, const struct sampler *sampler,
		  const volatile sig_atomic_t *interrupted);

#endif
