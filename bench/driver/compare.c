#include "bench/driver/compare.h"
#include "bench/driver/table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Stricter than 5 %: the rounds of one run share the machine's state of that hour. */
#define LEVEL 0.01
#define LEAST_CHANGE 0.03

/* One row under one runtime, in both runs. */
struct pair {
	int row, runtime;
	double old_median, new_median, p; /* of ratios to native; p after Holm's correction */
};

/* value / native, round by round, in place. */
static void divide(double *values, const double *native, size_t count)
{
	for (size_t i = 0; i < count; i++)
		values[i] = native[i] > 0 ? values[i] / native[i] : NAN;
}

static double *old_ratios(const struct json_run *old, const char *row, const char *runtime,
			  size_t *ret_count)
{
	size_t count, native_count;
	double *values = json_values(old, row, runtime, &count);
	double *native = json_values(old, row, "native", &native_count);

	if (values && native && native_count == count) {
		divide(values, native, count);
		*ret_count = count;
	} else {
		free(values);
		values = NULL;
		*ret_count = 0;
	}
	free(native);
	return values;
}

static double *new_ratios(const struct results *r, int row, int runtime)
{
	double *values = calloc((size_t)r->rounds, sizeof(*values));

	for (int i = 0; values && i < r->rounds; i++) {
		double native = results_cell(r, row, 0)->samples[i].value;

		values[i] =
			native > 0 ? results_cell(r, row, runtime)->samples[i].value / native : NAN;
	}
	return values;
}

/* All pairs that both runs have; *ret_least is the least p that any could have. The caller frees.
 */
static struct pair *take_pairs(const struct results *r, const struct json_run *old,
			       size_t *ret_count, double *ret_least)
{
	struct pair *pairs = calloc((size_t)(r->row_count * r->runtime_count) + 1, sizeof(*pairs));
	size_t count = 0;

	*ret_least = 1;
	for (int i = 0; pairs && i < r->row_count; i++)
		for (int k = 1; k < r->runtime_count; k++) {
			size_t old_count;
			double *was =
				old_ratios(old, r->rows[i]->name, r->runtimes[k].name, &old_count);
			double *is = new_ratios(r, i, k);
			double least = stats_mann_whitney_least((size_t)r->rounds, old_count);
			struct pair p = { i, k, stats_median(was, old_count),
					  stats_median(is, (size_t)r->rounds), NAN };

			if (was && is && !isnan(p.old_median) && !isnan(p.new_median)) {
				p.p = stats_mann_whitney(is, (size_t)r->rounds, was, old_count);
				pairs[count++] = p;
				*ret_least = fmin(*ret_least, least);
			}
			free(was);
			free(is);
		}
	*ret_count = count;
	return pairs;
}

static void correct(struct pair *pairs, size_t count)
{
	double *p = calloc(count + 1, sizeof(*p));

	for (size_t i = 0; p && i < count; i++)
		p[i] = pairs[i].p;
	if (p)
		stats_holm(p, count);
	for (size_t i = 0; p && i < count; i++)
		pairs[i].p = p[i];
	free(p);
}

static bool flagged(const struct pair *p)
{
	return p->p < LEVEL && fabs(p->new_median / p->old_median - 1) >= LEAST_CHANGE;
}

static void print_pair(const struct results *r, const struct pair *p, FILE *out)
{
	const struct row *row = r->rows[p->row];
	char was[16], is[16], change[24];
	double ratio = p->new_median / p->old_median;
	bool worse = row->flags & ROW_HIGHER ? ratio < 1 : ratio > 1;
	const char *colour = !table_colour(out) ? NULL : worse ? "\033[31m" : "\033[32m";

	format_number(was, sizeof(was), p->old_median);
	format_number(is, sizeof(is), p->new_median);
	if (flagged(p))
		snprintf(change, sizeof(change), "%+.1f %% %s", (ratio - 1) * 100,
			 worse ? "worse" : "better");
	else
		snprintf(change, sizeof(change), "~");
	fprintf(out, "%-34s %-10s %8s %8s  %s%-16s%s p=%.3g\n", row->name,
		r->runtimes[p->runtime].name, was, is, colour && flagged(p) ? colour : "", change,
		colour && flagged(p) ? "\033[0m" : "", p->p);
}

void compare_print(const struct results *r, const struct json_run *old, const char *old_path,
		   FILE *out)
{
	size_t count, found = 0, asked = (size_t)r->row_count * (size_t)(r->runtime_count - 1);
	double least;
	struct pair *pairs = take_pairs(r, old, &count, &least);

	if (!pairs)
		return;
	correct(pairs, count);
	fprintf(out, "\ncompared with %s: medians of the ratios to native\n", old_path);
	fprintf(out, "%-34s %-10s %8s %8s  %-16s %s\n", "row", "runtime", "old", "new", "change",
		"corrected p");
	for (size_t i = 0; i < count; i++) {
		print_pair(r, &pairs[i], out);
		found += flagged(&pairs[i]);
	}
	fprintf(out,
		"%zu of %zu changed (Mann-Whitney U with Holm's correction below %.2f, and at "
		"least %.0f %%); ~: no significant change\n",
		found, count, LEVEL, LEAST_CHANGE * 100);
	if (count < asked)
		fprintf(out, "note: %zu of %zu rows and runtimes have no values in both runs\n",
			asked - count, asked);
	if (count && least * (double)count > LEVEL)
		fprintf(out,
			"note: so few rounds cannot show a change among %zu comparisons; use more "
			"--rounds, or name fewer rows\n",
			count);
	free(pairs);
}
