/* `--markdown FILE`: the results as tables for a document (docs/BENCHMARKS.md is made so). */
#ifndef BENCH_DRIVER_MARKDOWN_H
#define BENCH_DRIVER_MARKDOWN_H

#include "bench/driver/results.h"

/* 0 or -errno. */
int markdown_write(const struct results *r, const char *path);

#endif
