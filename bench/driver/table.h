/* The results as a table for people, coloured only on a terminal (and not with NO_COLOR). */
#ifndef BENCH_DRIVER_TABLE_H
#define BENCH_DRIVER_TABLE_H

#include "bench/driver/results.h"
#include <stdio.h>

void table_print(const struct results *r, FILE *out);
/* One line per row and runtime; 0 or -errno. */
int csv_write(const struct results *r, const char *path);

/* Whether to colour what goes to `out`. */
bool table_colour(FILE *out);

#endif
