#include "bench/driver/results.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *alloc(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size);

	if (!p) {
		fputs("minisentry bench: out of memory\n", stderr);
		exit(125);
	}
	return p;
}

void results_init(struct results *r, int rounds)
{
	int cells = r->row_count * r->runtime_count;

	r->rounds = rounds;
	r->cells = alloc((size_t)cells, sizeof(*r->cells));
	for (int i = 0; i < cells; i++) {
		struct cell *cell = &r->cells[i];

		cell->samples = alloc((size_t)rounds, sizeof(*cell->samples));
		for (int k = 0; k < rounds; k++)
			cell->samples[k] = (struct sample){ NAN, NAN, NAN, NAN, NAN };
	}
}

void results_free(struct results *r)
{
	for (int i = 0; r->cells && i < r->row_count * r->runtime_count; i++)
		free(r->cells[i].samples);
	free(r->cells);
	free(r->rows);
	free(r->command);
}

struct cell *results_cell(const struct results *r, int row, int runtime)
{
	return &r->cells[row * r->runtime_count + runtime];
}

/* One member of every sample, by its offset. */
static double *column(const struct results *r, int row, int runtime, size_t offset)
{
	const struct cell *cell = results_cell(r, row, runtime);
	double *values = alloc((size_t)r->rounds, sizeof(*values));

	for (int i = 0; i < r->rounds; i++)
		memcpy(&values[i], (const char *)&cell->samples[i] + offset, sizeof(values[i]));
	return values;
}

struct summary results_summary(const struct results *r, int row, int runtime)
{
	size_t n = (size_t)r->rounds;
	double *value = column(r, row, runtime, offsetof(struct sample, value));
	double *native = column(r, row, 0, offsetof(struct sample, value));
	double *cpu = column(r, row, runtime, offsetof(struct sample, cpu_ns));
	double *native_cpu = column(r, row, 0, offsetof(struct sample, cpu_ns));
	double *growth = column(r, row, runtime, offsetof(struct sample, growth));
	struct summary s = {
		.median = stats_median(value, n),
		.min = stats_min(value, n),
		.max = stats_max(value, n),
		.ratio = stats_ratio(value, native, n),
		.cpu_ns = stats_median(cpu, n),
		.cpu_ratio = stats_ratio(cpu, native_cpu, n).value,
		.growth = stats_median(growth, n),
	};

	for (size_t i = 0; i < n; i++)
		s.count += !isnan(value[i]);
	s.cost = r->rows[row]->flags & ROW_HIGHER ? 1 / s.ratio.value : s.ratio.value;
	free(value);
	free(native);
	free(cpu);
	free(native_cpu);
	free(growth);
	return s;
}

double results_geomean(const struct results *r, int suite, int runtime, int *ret_rows)
{
	double *costs = alloc((size_t)r->row_count, sizeof(*costs)), mean;
	int n = 0;

	for (int i = 0; i < r->row_count; i++) {
		double cost;

		if (row_suite(r->rows[i]) != suite || (r->rows[i]->flags & ROW_COUNT) ||
		    results_cell(r, i, runtime)->clock_lies)
			continue;
		cost = results_summary(r, i, runtime).cost;
		if (!isnan(cost))
			costs[n++] = cost;
	}
	mean = stats_geomean(costs, (size_t)n);
	free(costs);
	if (ret_rows)
		*ret_rows = n;
	return mean;
}

void results_fact(struct results *r, const char *name, const char *fmt, ...)
{
	struct fact *fact;
	va_list ap;

	if (r->fact_count == FACTS_MAX)
		return;
	fact = &r->facts[r->fact_count++];
	snprintf(fact->name, sizeof(fact->name), "%s", name);
	va_start(ap, fmt);
	vsnprintf(fact->text, sizeof(fact->text), fmt, ap);
	va_end(ap);
}

bool results_complete(const struct results *r)
{
	for (int i = 0; i < r->row_count; i++)
		for (int k = 0; k < r->runtime_count; k++)
			if (results_summary(r, i, k).count == 0 || *results_cell(r, i, k)->why ||
			    results_cell(r, i, k)->clock_lies)
				return false;
	return true;
}

/* Length of the UTF-8 letter that text begins with; 0 if there is none. */
static size_t letter_length(const unsigned char *text)
{
	size_t n = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;

	for (size_t i = 1; i < n; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	/* Not too long, no surrogates, nothing beyond U+10FFFF. */
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f) ||
	    (text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4)
		return 0;
	/* Control characters, U+0080 to U+009F among them, would reach the terminal. */
	if (text[0] < ' ' || text[0] == 0x7f || (text[0] == 0xc2 && text[1] < 0xa0))
		return 0;
	return n;
}

void clean_text(char *text)
{
	while (*text) {
		size_t n = letter_length((const unsigned char *)text);

		if (n == 0)
			*text = *text == '\t' || *text == '\n' ? ' ' : '?';
		text += n ? n : 1;
	}
}

void format_number(char *buf, size_t size, double value)
{
	double magnitude = fabs(value);

	if (isnan(value))
		snprintf(buf, size, "-");
	else if (magnitude >= 99.95 || magnitude == 0)
		snprintf(buf, size, "%.0f", value);
	else if (magnitude >= 9.995)
		snprintf(buf, size, "%.1f", value);
	else if (magnitude >= 0.9995)
		snprintf(buf, size, "%.2f", value);
	else
		snprintf(buf, size, "%.*f", (int)fmin(9, 2 - floor(log10(magnitude * 1.0005))),
			 value);
}

void format_value(char *buf, size_t size, double value, const char *unit)
{
	char number[32];

	format_number(number, sizeof(number), value);
	if (isnan(value))
		snprintf(buf, size, "-");
	else
		snprintf(buf, size, "%s %s", number, unit);
}

static void format_scaled(char *buf, size_t size, double value, double step,
			  const char *const *units)
{
	int i = 0;

	while (units[i + 1] && fabs(value) >= step * 0.9995) {
		value /= step;
		i++;
	}
	format_value(buf, size, value, units[i]);
}

void format_ns(char *buf, size_t size, double ns)
{
	static const char *const units[] = { "ns", "us", "ms", "s", NULL };

	format_scaled(buf, size, ns, 1000, units);
}

void format_bytes(char *buf, size_t size, double bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", NULL };

	format_scaled(buf, size, bytes, 1024, units);
}
