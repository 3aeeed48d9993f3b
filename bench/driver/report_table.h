/*
 * The tables of a report's page: rows against runtimes, for one suite, and the suites' means.
 */
#ifndef BENCH_DRIVER_REPORT_TABLE_H
#define BENCH_DRIVER_REPORT_TABLE_H

#include "bench/driver/results.h"
#include <stdio.h>

/* The class of a cost's colour: "f2" (much faster than native) to "s4" (much slower). */
const char *cost_class(double cost);

/* A runtime's name after its mark in the plots. */
void report_runtime(FILE *out, const struct results *r, int runtime);

/* All rows of a suite; a row's id is "row-NUMBER". */
void report_table(FILE *out, const struct results *r, int suite);

/* The geometric means of all suites that were asked for. */
void report_overview(FILE *out, const struct results *r);

bool report_has_suite(const struct results *r, int suite);

/* "guest 20 ms, host 64 ms": of the round in which they were farthest apart. */
void report_clocks(char *buf, size_t size, const struct results *r, int row, int runtime);

#endif
