/* unit: bench */
/*
 * The arithmetic of `minisentry bench`. Reference values: scipy.stats.mannwhitneyu 1.17 (exact, and
 * asymptotic for ties), and a count of all 2^8 sign assignments for the signed-rank interval.
 */
#include "bench/driver/names.h"
#include "bench/driver/results.h"
#include "bench/driver/stats.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void near(double got, double want)
{
	if (fabs(got - want) > 1e-9 * fmax(1, fabs(want)))
		fail_msg("got %.12g, expected %.12g", got, want);
}

static void medians_skip_what_is_missing(void **state)
{
	double odd[] = { 3, NAN, 1, 2 }, even[] = { 4, 1, 3, 2 }, none[] = { NAN };

	near(stats_median(odd, 4), 2);
	near(stats_median(even, 4), 2.5);
	near(stats_min(odd, 4), 1);
	near(stats_max(odd, 4), 3);
	assert_true(isnan(stats_median(none, 1)));
	assert_true(isnan(stats_min(none, 1)));
	assert_true(isnan(stats_median(NULL, 0)));
}

static void mann_whitney_agrees_with_reference(void **state)
{
	double a[] = { 1.1, 2.2, 3.3, 4.4, 5.5 }, b[] = { 2, 3, 6, 7, 8, 9 };
	double low[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, high[] = { 9, 10, 11, 12, 13, 14, 15, 16 };
	double tied[] = { 1, 2, 2, 3, 4 }, tied2[] = { 2, 3, 5, 5, 6 };
	double same[] = { 1, 1, 1 };

	near(stats_mann_whitney(a, 5, b, 6), 0.17748917748917747);
	near(stats_mann_whitney(b, 6, a, 5), 0.17748917748917747);
	near(stats_mann_whitney(low, 8, high, 8), 0.0001554001554001554);
	near(stats_mann_whitney_least(8, 8), 0.0001554001554001554);
	near(stats_mann_whitney(tied, 5, tied2, 5), 0.11049202405566802);
	near(stats_mann_whitney(same, 3, same, 3), 1);
	near(stats_mann_whitney(a, 5, NULL, 0), 1);
}

static void signed_rank_interval(void **state)
{
	double d[] = { 0.12, -0.05, 0.31, 0.22, 0.07, -0.11, 0.4, 0.18 };
	double values[8], base[8];
	struct ratio r;

	for (int i = 0; i < 8; i++) {
		base[i] = 2 + i;
		values[i] = base[i] * exp(d[i]);
	}
	r = stats_ratio(values, base, 8);
	near(log(r.value), 0.145);
	near(log(r.low), -0.02);
	near(log(r.high), 0.31);
	assert_int_equal(r.pairs, 8);
	/* Below 6 pairs: Student's t; {0.1, 0.2, 0.3} has mean 0.2 and standard error 0.1/sqrt(3).
	 */
	for (int i = 0; i < 3; i++)
		values[i] = base[i] * exp(0.1 * (i + 1));
	r = stats_ratio(values, base, 3);
	near(log(r.value), 0.2);
	near(log(r.high) - log(r.value), 4.303 * 0.1 / sqrt(3));
	/* Two pairs tell nothing of an interval; missing rounds do not count. */
	values[1] = NAN;
	r = stats_ratio(values, base, 3);
	assert_int_equal(r.pairs, 2);
	assert_true(isnan(r.low) && isnan(r.high));
	values[0] = values[2] = 0;
	assert_true(isnan(stats_ratio(values, base, 3).value));
}

/* The promise of the interval, on a skewed distribution with outliers: it covers the truth. */
static void interval_covers(void **state)
{
	static const size_t rounds[] = { 5, 8, 12 };

	srand48(7);
	for (size_t k = 0; k < 3; k++) {
		int covered = 0, trials = 3000;

		for (int t = 0; t < trials; t++) {
			double a[12], b[12];
			struct ratio r;

			for (size_t i = 0; i < rounds[k]; i++) {
				a[i] = 1 - 0.05 * log(drand48()) + (drand48() < 0.1 ? 1 : 0);
				b[i] = 1 - 0.05 * log(drand48()) + (drand48() < 0.1 ? 1 : 0);
			}
			r = stats_ratio(a, b, rounds[k]);
			covered += r.low <= 1 && r.high >= 1;
		}
		if (covered < trials * 94 / 100)
			fail_msg("%zu rounds: %d of %d intervals cover 1", rounds[k], covered,
				 trials);
	}
}

static void holm_steps_down(void **state)
{
	double p[] = { 0.01, NAN, 0.04, 0.03, 0.005 }, one[] = { 0.6, 0.7 };

	stats_holm(p, 5);
	near(p[4], 0.02);
	near(p[0], 0.03);
	near(p[3], 0.06);
	near(p[2], 0.06); /* not below one before it */
	assert_true(isnan(p[1]));
	stats_holm(one, 2);
	near(one[0], 1);
	near(one[1], 1);
}

static void geometric_mean(void **state)
{
	double v[] = { 1, NAN, 4, INFINITY, 0 };

	near(stats_geomean(v, 5), 2);
	assert_true(isnan(stats_geomean(v, 0)));
}

static void nearest_names(void **state)
{
	char buf[200];

	near((double)names_distance("fork", "frok"), 2);
	near((double)names_distance("", "abc"), 3);
	near((double)names_distance("GetPPID", "getppid"), 0);
	names_nearest("getpid", buf, sizeof(buf));
	assert_int_equal(strncmp(buf, "getppid", 7), 0);
	names_nearest("tmpf", buf, sizeof(buf));
	assert_non_null(strstr(buf, "tmpfs"));
}

static void values_have_three_digits(void **state)
{
	char buf[32];

	format_number(buf, sizeof(buf), 0.0123);
	assert_string_equal(buf, "0.0123");
	format_number(buf, sizeof(buf), 0.09996);
	assert_string_equal(buf, "0.100");
	format_number(buf, sizeof(buf), 0.00473);
	assert_string_equal(buf, "0.00473");
	format_number(buf, sizeof(buf), 0.5);
	assert_string_equal(buf, "0.500");
	format_number(buf, sizeof(buf), 9.999);
	assert_string_equal(buf, "10.0");
	format_number(buf, sizeof(buf), 123.4);
	assert_string_equal(buf, "123");
	format_ns(buf, sizeof(buf), 1500);
	assert_string_equal(buf, "1.50 us");
	format_bytes(buf, sizeof(buf), -2.5 * 1024 * 1024);
	assert_string_equal(buf, "-2.50 MiB");
	format_bytes(buf, sizeof(buf), NAN);
	assert_string_equal(buf, "-");
}

/* A bandwidth that halves costs twice. */
static void costs_of_bandwidths(void **state)
{
	struct results r = { .runtime_count = 2, .row_count = 1 };
	struct summary s;
	size_t i = 0;

	while (!(rows[i].flags & ROW_HIGHER))
		i++;
	r.rows = calloc(1, sizeof(*r.rows));
	r.rows[0] = &rows[i];
	results_init(&r, 3);
	assert_false(results_complete(&r));
	for (int k = 0; k < 3; k++) {
		results_cell(&r, 0, 0)->samples[k].value = 100 + k;
		results_cell(&r, 0, 1)->samples[k].value = 50 + k / 2.0;
	}
	s = results_summary(&r, 0, 1);
	near(s.ratio.value, 0.5);
	near(s.cost, 2);
	near(results_geomean(&r, row_suite(&rows[i]), 1, NULL), 2);
	assert_true(results_complete(&r));
	strcpy(results_cell(&r, 0, 1)->why, "broke later");
	assert_false(results_complete(&r));
	results_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(medians_skip_what_is_missing),
		cmocka_unit_test(mann_whitney_agrees_with_reference),
		cmocka_unit_test(signed_rank_interval),
		cmocka_unit_test(interval_covers),
		cmocka_unit_test(holm_steps_down),
		cmocka_unit_test(geometric_mean),
		cmocka_unit_test(nearest_names),
		cmocka_unit_test(values_have_three_digits),
		cmocka_unit_test(costs_of_bandwidths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
