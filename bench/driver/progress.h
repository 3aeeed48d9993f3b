/*
 * What a person sees while a run goes on, on standard error: a bar with the row under way and the
 * time left on a terminal, a line per group of each round otherwise.
 */
#ifndef BENCH_DRIVER_PROGRESS_H
#define BENCH_DRIVER_PROGRESS_H

#include <stdbool.h>

struct progress;

/* Room for `groups` x `runtimes` steps in each of `rounds`. */
struct progress *progress_new(bool quiet, int groups, int runtimes, int rounds);
/* A step begins, and ends; `group` and `runtime` are numbers below those of progress_new. */
void progress_step(struct progress *p, int round, int group, const char *group_name, int runtime,
		   const char *runtime_name);
void progress_done(struct progress *p);
/* The row under way, or NULL: only draw again if it is time to. */
void progress_row(void *progress, const char *row);
/* Removes the bar, and everything. */
void progress_free(struct progress *p);

#endif
