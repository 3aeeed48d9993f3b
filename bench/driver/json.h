/*
 * The JSON file of a run. Its format, "minisentry-bench/1", is described in docs/BENCHMARKS.md;
 * a reader ignores members that it does not know.
 */
#ifndef BENCH_DRIVER_JSON_H
#define BENCH_DRIVER_JSON_H

#include "bench/driver/results.h"

/* 0, or -1 after a message. */
int json_write(const struct results *r, const char *path);

/* What a comparison needs of an older run: the values of a row and runtime, round by round. */
struct json_run;

/* NULL after a message: not readable, not JSON, not a run of ours. */
struct json_run *json_read(const char *path);
void json_free(struct json_run *run);
/* Values of one cell, NAN where a round has none; the caller frees. 0 rounds and NULL if there is
 * none. */
double *json_values(const struct json_run *run, const char *row, const char *runtime,
		    size_t *ret_rounds);

#endif
