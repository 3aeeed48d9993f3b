/*
 * The statistics of a benchmark run; all of them free of assumptions about the distribution of
 * times, which is skewed and has outliers.
 *
 * Ratios: round i gives a pair (value, native value), measured next to each other in time. The
 * ratio is estimated on log(value / native) by Hodges and Lehmann's pseudo-median, with the
 * interval that inverts Wilcoxon's signed-rank test (Hollander, Wolfe, Chicken: Nonparametric
 * Statistical Methods, ch. 3). Below 6 pairs no such interval reaches 95 %: Student's t on the
 * logarithms is used there, and below 3 there is no interval.
 * Comparisons of two runs: Mann and Whitney's U, exact without ties for small samples, else the
 * normal approximation with corrections for ties and continuity; Holm's step-down correction over
 * all rows.
 */
#ifndef BENCH_DRIVER_STATS_H
#define BENCH_DRIVER_STATS_H

#include <stdbool.h>
#include <stddef.h>

struct ratio {
	double value, low, high; /* 95 % interval; NAN each when there are too few pairs */
	size_t pairs;
};

/* All skip NAN samples; NAN when nothing is left. */
double stats_median(const double *samples, size_t count);
double stats_min(const double *samples, size_t count);
double stats_max(const double *samples, size_t count);

/* Pairs with a NAN, or a value that is not positive, are left out. */
struct ratio stats_ratio(const double *values, const double *base, size_t count);

/* Two-sided p of the hypothesis that a and b come from one distribution; 1 when either is empty. */
double stats_mann_whitney(const double *a, size_t a_count, const double *b, size_t b_count);

/* The least p that samples of these sizes can give: says whether a comparison can find anything. */
double stats_mann_whitney_least(size_t a_count, size_t b_count);

/* Replaces p[0..count) by the values to compare with the level, after Holm. NANs are left out. */
void stats_holm(double *p, size_t count);

/* Of the positive, finite values; NAN when there are none. */
double stats_geomean(const double *values, size_t count);

#endif
