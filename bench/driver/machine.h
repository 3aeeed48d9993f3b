/* The header of a run: the machine, its settings that matter to the figures, and versions. */
#ifndef BENCH_DRIVER_MACHINE_H
#define BENCH_DRIVER_MACHINE_H

#include "bench/driver/options.h"
#include "bench/driver/results.h"

/* Adds the facts and the runtimes' versions. Runs each program's --version. */
void machine_describe(struct results *r, const struct bench_options *o);

#endif
