#include "bench/driver/stats.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEVEL 0.95
/* Above this, counting all rank assignments costs more than the normal approximation errs. */
#define EXACT_MAX 30

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A sorted copy without NANs; the caller frees it. NULL when nothing is left (or no memory is). */
static double *sorted(const double *samples, size_t count, size_t *ret_count)
{
	double *copy = malloc((count ? count : 1) * sizeof(*copy));
	size_t n = 0;

	*ret_count = 0;
	if (!copy)
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (!isnan(samples[i]))
			copy[n++] = samples[i];
	if (n == 0) {
		free(copy);
		return NULL;
	}
	qsort(copy, n, sizeof(*copy), compare);
	*ret_count = n;
	return copy;
}

static double median_of_sorted(const double *s, size_t n)
{
	return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

double stats_median(const double *samples, size_t count)
{
	size_t n;
	double *s = sorted(samples, count, &n);
	double median = s ? median_of_sorted(s, n) : NAN;

	free(s);
	return median;
}

double stats_min(const double *samples, size_t count)
{
	double min = NAN;

	for (size_t i = 0; i < count; i++)
		min = fmin(min, samples[i]);
	return min;
}

double stats_max(const double *samples, size_t count)
{
	double max = NAN;

	for (size_t i = 0; i < count; i++)
		max = fmax(max, samples[i]);
	return max;
}

/* Two-sided 95 % point of Student's t; for more degrees of freedom the signed ranks are used. */
static double student_t(size_t degrees)
{
	static const double t[] = { NAN, 12.706, 4.303, 3.182, 2.776, 2.571 };

	return degrees < sizeof(t) / sizeof(t[0]) ? t[degrees] : 1.96;
}

/*
 * How many Walsh averages to leave out at each end for an interval of at least LEVEL: the largest k
 * with P(W < k) <= (1 - LEVEL) / 2, W the signed-rank statistic of n. The number of subsets of
 * {1..n} with a given sum is its distribution times 2^n.
 */
static size_t signed_rank_cut(size_t n)
{
	size_t max = n * (n + 1) / 2, k = 0;
	double *ways, total = pow(2, (double)n), below = 0;

	if (n > 50) {
		double mean = (double)max / 2, sd = sqrt((double)(max * (2 * n + 1)) / 12);

		return (size_t)fmax(0, floor(mean - 1.96 * sd));
	}
	ways = calloc(max + 1, sizeof(*ways));
	if (!ways)
		return 0;
	ways[0] = 1;
	for (size_t rank = 1; rank <= n; rank++)
		for (size_t sum = max; sum >= rank; sum--)
			ways[sum] += ways[sum - rank];
	while (k < max && below + ways[k] <= (1 - LEVEL) / 2 * total)
		below += ways[k++];
	free(ways);
	return k;
}

/* Pseudo-median of d and its interval, for at least 6 differences. */
static void hodges_lehmann(const double *d, size_t n, double *ret_centre, double *ret_low,
			   double *ret_high)
{
	size_t count = n * (n + 1) / 2, at = 0, cut = signed_rank_cut(n);
	double *walsh = calloc(count + 1, sizeof(*walsh));

	*ret_centre = *ret_low = *ret_high = NAN;
	if (!walsh)
		return;
	for (size_t i = 0; i < n; i++)
		for (size_t j = i; j < n; j++)
			walsh[at++] = (d[i] + d[j]) / 2;
	qsort(walsh, count, sizeof(*walsh), compare);
	/* P(W < cut) is what is left out: the interval runs from the cut-th smallest (from 1). */
	cut = cut ? cut - 1 : 0;
	*ret_centre = median_of_sorted(walsh, count);
	*ret_low = walsh[cut];
	*ret_high = walsh[count - 1 - cut];
	free(walsh);
}

static void student(const double *d, size_t n, double *ret_centre, double *ret_low,
		    double *ret_high)
{
	double mean = 0, var = 0, half;

	for (size_t i = 0; i < n; i++)
		mean += d[i] / (double)n;
	for (size_t i = 0; i < n; i++)
		var += (d[i] - mean) * (d[i] - mean);
	half = n > 2 ? student_t(n - 1) * sqrt(var / (double)(n - 1) / (double)n) : NAN;
	*ret_centre = mean;
	*ret_low = mean - half;
	*ret_high = mean + half;
}

struct ratio stats_ratio(const double *values, const double *base, size_t count)
{
	struct ratio r = { NAN, NAN, NAN, 0 };
	double *d = malloc((count ? count : 1) * sizeof(*d)), centre, low, high;
	size_t n = 0;

	for (size_t i = 0; d && i < count; i++)
		if (values[i] > 0 && base[i] > 0) /* false for NAN */
			d[n++] = log(values[i] / base[i]);
	if (n) {
		if (n >= 6)
			hodges_lehmann(d, n, &centre, &low, &high);
		else
			student(d, n, &centre, &low, &high);
		r = (struct ratio){ exp(centre), exp(low), exp(high), n };
	}
	free(d);
	return r;
}

/* P(U <= u) for samples of m and n without ties: counts of the partitions behind U, by dynamic
 * programming. */
static double u_at_most(size_t u, size_t m, size_t n)
{
	size_t max = m * n;
	double *ways = calloc((m + 1) * (max + 1), sizeof(*ways)), total = 0, below = 0;

	if (!ways)
		return 1;
	/* ways[k][s]: choices of k of the first i ranks whose U is s; i grows in the outer loop. */
	ways[0] = 1;
	for (size_t i = 1; i <= m + n; i++)
		for (size_t k = (i < m ? i : m); k >= 1; k--) {
			double *row = ways + k * (max + 1), *less = ways + (k - 1) * (max + 1);
			size_t add = i - k;

			for (size_t s = max + 1; s-- > add;)
				row[s] += less[s - add];
		}
	for (size_t s = 0; s <= max; s++) {
		total += ways[m * (max + 1) + s];
		if (s <= u)
			below += ways[m * (max + 1) + s];
	}
	free(ways);
	return below / total;
}

struct ranked {
	double value;
	bool of_a;
};

static int compare_ranked(const void *a, const void *b)
{
	return compare(&((const struct ranked *)a)->value, &((const struct ranked *)b)->value);
}

/* U of the first sample (ties count half) and the sum of t^3 - t over groups of ties. */
static double u_statistic(const double *a, size_t m, const double *b, size_t n, double *ret_ties)
{
	struct ranked *all = malloc((m + n) * sizeof(*all));
	double rank_sum = 0;

	*ret_ties = 0;
	if (!all)
		return (double)(m * n) / 2;
	for (size_t i = 0; i < m + n; i++)
		all[i] = (struct ranked){ i < m ? a[i] : b[i - m], i < m };
	qsort(all, m + n, sizeof(*all), compare_ranked);
	for (size_t i = 0, j; i < m + n; i = j) {
		for (j = i; j < m + n && all[j].value == all[i].value; j++)
			;
		for (size_t k = i; k < j; k++)
			if (all[k].of_a)
				rank_sum += (double)(i + j + 1) / 2;
		*ret_ties += pow((double)(j - i), 3) - (double)(j - i);
	}
	free(all);
	return rank_sum - (double)(m * (m + 1)) / 2;
}

double stats_mann_whitney(const double *a, size_t a_count, const double *b, size_t b_count)
{
	size_t m, n;
	double *x = sorted(a, a_count, &m), *y = sorted(b, b_count, &n);
	double p = 1, ties, u;

	if (x && y) {
		u = u_statistic(x, m, y, n, &ties);
		if (ties == 0 && m <= EXACT_MAX && n <= EXACT_MAX) {
			double smaller = fmin(u, (double)(m * n) - u);

			p = 2 * u_at_most((size_t)smaller, m, n);
		} else {
			double all = (double)(m + n), mean = (double)(m * n) / 2;
			double var = (double)(m * n) / 12 * (all + 1 - ties / (all * (all - 1)));
			double z = var > 0 ? (fabs(u - mean) - 0.5) / sqrt(var) : 0;

			p = erfc(fmax(z, 0) / sqrt(2));
		}
		p = fmin(p, 1);
	}
	free(x);
	free(y);
	return p;
}

double stats_mann_whitney_least(size_t a_count, size_t b_count)
{
	if (a_count == 0 || b_count == 0)
		return 1;
	/* 2 / C(a + b, a) */
	return fmin(1, 2 * exp(lgamma((double)a_count + 1) + lgamma((double)b_count + 1) -
			       lgamma((double)(a_count + b_count) + 1)));
}

static const double *holm_p;

static int compare_by_p(const void *a, const void *b)
{
	return compare(&holm_p[*(const size_t *)a], &holm_p[*(const size_t *)b]);
}

void stats_holm(double *p, size_t count)
{
	size_t *order = malloc((count ? count : 1) * sizeof(*order)), n = 0;
	double running = 0;

	if (!order)
		return;
	for (size_t i = 0; i < count; i++)
		if (!isnan(p[i]))
			order[n++] = i;
	holm_p = p;
	qsort(order, n, sizeof(*order), compare_by_p);
	for (size_t i = 0; i < n; i++) {
		running = fmax(running, fmin(1, p[order[i]] * (double)(n - i)));
		p[order[i]] = running;
	}
	free(order);
}

double stats_geomean(const double *values, size_t count)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		if (values[i] > 0 && isfinite(values[i])) {
			sum += log(values[i]);
			n++;
		}
	return n ? exp(sum / (double)n) : NAN;
}
