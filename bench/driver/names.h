/* Names that people mistype. */
#ifndef BENCH_DRIVER_NAMES_H
#define BENCH_DRIVER_NAMES_H

#include <stddef.h>

/* Levenshtein's distance, ignoring case. */
size_t names_distance(const char *a, const char *b);

/* Writes the up to three suites, groups and rows nearest to `name` into buf: "a, b or c". */
void names_nearest(const char *name, char *buf, size_t size);

#endif
