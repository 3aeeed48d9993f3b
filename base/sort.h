/*
 * base/sort.h: sorting in place, without memory and without system calls.
 *
 * libc's qsort asks the host for its memory size (sysinfo) before it sorts more
 * than a few hundred elements, which the sentry's filter answers with death.
 */
#ifndef MINISENTRY_BASE_SORT_H
#define MINISENTRY_BASE_SORT_H

#include "base/types.h"

/* As qsort(3), O(n log n) in the worst case; not stable. size <= SORT_SIZE_MAX. */
#define SORT_SIZE_MAX 64
void sort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *));

#endif
