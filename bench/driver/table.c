#include "bench/driver/table.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GREEN "\033[32m"
#define YELLOW "\033[33m"
#define RED "\033[31m"
#define ALARM "\033[1;41;97m"
#define BOLD "\033[1m"
#define DIM "\033[2m"
#define RESET "\033[0m"

bool table_colour(FILE *out)
{
	const char *no = getenv("NO_COLOR");

	return isatty(fileno(out)) && !(no && *no);
}

struct table {
	const struct results *r;
	FILE *out;
	bool colour;
	int row_width, runtime_width;
};

static const char *paint(const struct table *t, const char *code)
{
	return t->colour ? code : "";
}

/* Up to native's cost is good, up to twice is bearable. */
static const char *cost_colour(double cost)
{
	return isnan(cost) ? "" : cost <= 1.05 ? GREEN : cost <= 2 ? YELLOW : RED;
}

static void print_header(const struct table *t)
{
	const struct results *r = t->r;

	for (int i = 0; i < r->fact_count; i++)
		fprintf(t->out, "%-14s %s\n", r->facts[i].name, r->facts[i].text);
	for (int i = 0; i < r->runtime_count; i++)
		if (*r->runtimes[i].version)
			fprintf(t->out, "%-14s %s\n", r->runtimes[i].name, r->runtimes[i].version);
	fprintf(t->out, "%-14s %s\n", "command", r->command);
	fprintf(t->out, "%-14s %d of %d%s, %.0f s\n", "rounds", r->rounds_done, r->rounds,
		r->interrupted ? " (interrupted)" : "", r->seconds);
	fprintf(t->out, "%-14s %s\n", "method", r->memory_method);
}

static void print_columns(const struct table *t)
{
	fprintf(t->out, "%s%-*s %-*s %12s %10s %10s  %-23s %10s %8s %11s%s\n", paint(t, BOLD),
		t->row_width, "row", t->runtime_width, "runtime", "median", "min", "max",
		"x native [95 %]", "cpu/op", "cpu x", "growth", paint(t, RESET));
}

static void print_ratio(const struct table *t, const struct summary *s)
{
	char value[16], low[16], high[16], text[64];

	if (isnan(s->ratio.value)) {
		fprintf(t->out, "  %-23s", "");
		return;
	}
	format_number(value, sizeof(value), s->ratio.value);
	format_number(low, sizeof(low), s->ratio.low);
	format_number(high, sizeof(high), s->ratio.high);
	if (isnan(s->ratio.low))
		snprintf(text, sizeof(text), "%6s", value);
	else
		snprintf(text, sizeof(text), "%6s [%s, %s]", value, low, high);
	fprintf(t->out, "  %s%-23s%s", paint(t, cost_colour(s->cost)), text, paint(t, RESET));
}

static void print_cell(const struct table *t, int row, int runtime)
{
	const struct results *r = t->r;
	const struct row *info = r->rows[row];
	const struct cell *cell = results_cell(r, row, runtime);
	struct summary s = results_summary(r, row, runtime);
	char median[40], min[16], max[16], cpu[24], growth[24], cpu_ratio[16];

	fprintf(t->out, "%-*s %-*s", t->row_width, runtime == 0 ? info->name : "", t->runtime_width,
		r->runtimes[runtime].name);
	if (s.count) {
		format_value(median, sizeof(median), s.median, info->unit);
		format_number(min, sizeof(min), s.min);
		format_number(max, sizeof(max), s.max);
		format_ns(cpu, sizeof(cpu), s.cpu_ns);
		format_bytes(growth, sizeof(growth), info->flags & ROW_GROWTH ? s.growth : NAN);
		format_number(cpu_ratio, sizeof(cpu_ratio), runtime == 0 ? NAN : s.cpu_ratio);
		fprintf(t->out, " %12s %10s %10s", median, min, max);
		if (runtime == 0)
			fprintf(t->out, "  %-23s", "");
		else
			print_ratio(t, &s);
		fprintf(t->out, " %10s %8s %11s", isnan(s.cpu_ns) ? "" : cpu,
			isnan(s.cpu_ratio) || runtime == 0 ? "" : cpu_ratio,
			info->flags & ROW_GROWTH ? growth : "");
	}
	if (*cell->why)
		fprintf(t->out, " %s%s%s", paint(t, cell->skipped ? DIM : RED), cell->why,
			paint(t, RESET));
	else if (s.count == 0)
		fprintf(t->out, " %snot run%s", paint(t, DIM), paint(t, RESET));
	if (cell->clock_lies)
		fprintf(t->out,
			" %s!! CLOCK LIES: the guest's clock disagrees with the host's !!%s",
			paint(t, ALARM), paint(t, RESET));
	fputc('\n', t->out);
}

static void print_geomeans(const struct table *t, int suite)
{
	const struct results *r = t->r;

	for (int i = 1; i < r->runtime_count; i++) {
		char text[16];
		int count;
		double mean = results_geomean(r, suite, i, &count);

		if (isnan(mean))
			continue;
		format_number(text, sizeof(text), mean);
		fprintf(t->out, "%-*s %-*s %s%s x native's cost%s, geometric mean of %d row%s\n",
			t->row_width, i == 1 ? suites[suite].name : "", t->runtime_width,
			r->runtimes[i].name, paint(t, cost_colour(mean)), text, paint(t, RESET),
			count, count == 1 ? "" : "s");
	}
}

void table_print(const struct results *r, FILE *out)
{
	struct table t = { r, out, table_colour(out), 10, 7 };
	int suite = -1;

	for (int i = 0; i < r->row_count; i++)
		if ((int)strlen(r->rows[i]->name) > t.row_width)
			t.row_width = (int)strlen(r->rows[i]->name);
	for (int i = 0; i < r->runtime_count; i++)
		if ((int)strlen(r->runtimes[i].name) > t.runtime_width)
			t.runtime_width = (int)strlen(r->runtimes[i].name);
	print_header(&t);
	for (int i = 0; i < r->row_count; i++) {
		if (row_suite(r->rows[i]) != suite) {
			if (suite >= 0)
				print_geomeans(&t, suite);
			suite = row_suite(r->rows[i]);
			fprintf(out, "\n%s%s%s: %s\n", paint(&t, BOLD), suites[suite].name,
				paint(&t, RESET), suites[suite].text);
			print_columns(&t);
		}
		for (int k = 0; k < r->runtime_count; k++)
			print_cell(&t, i, k);
	}
	if (suite >= 0)
		print_geomeans(&t, suite);
	fputs("\nx native is the ratio of values (a bandwidth below 1 is slower); a geometric mean "
	      "is of costs (above 1 is slower).\n",
	      out);
}

/* A field that may hold commas and quotes. */
static void csv_text(FILE *f, const char *text)
{
	fputc('"', f);
	for (; *text; text++)
		fputs(*text == '"' ? "\"\"" : (char[]){ *text, '\0' }, f);
	fputc('"', f);
}

static void csv_number(FILE *f, double value)
{
	if (isnan(value))
		fputc(',', f);
	else
		fprintf(f, ",%.9g", value);
}

int csv_write(const struct results *r, const char *path)
{
	FILE *f = fopen(path, "we");
	bool failed;

	if (!f)
		return -errno;
	fputs("suite,row,unit,better,runtime,rounds,median,min,max,ratio,ratio_low,ratio_high,"
	      "cpu_ns_per_op,cpu_ratio,growth_bytes,clock_lies,why\n",
	      f);
	for (int i = 0; i < r->row_count; i++)
		for (int k = 0; k < r->runtime_count; k++) {
			const struct row *row = r->rows[i];
			const struct cell *cell = results_cell(r, i, k);
			struct summary s = results_summary(r, i, k);
			double numbers[] = { s.median,	    s.min,	 s.max,
					     s.ratio.value, s.ratio.low, s.ratio.high,
					     s.cpu_ns,	    s.cpu_ratio, s.growth };

			fprintf(f, "%s,%s,%s,%s,%s,%zu", suites[row_suite(row)].name, row->name,
				row->unit, row->flags & ROW_HIGHER ? "higher" : "lower",
				r->runtimes[k].name, s.count);
			for (size_t n = 0; n < sizeof(numbers) / sizeof(numbers[0]); n++)
				csv_number(f, numbers[n]);
			fprintf(f, ",%d,", cell->clock_lies);
			csv_text(f, cell->why);
			fputc('\n', f);
		}
	failed = ferror(f);
	errno = EIO; /* fclose knows better only if it fails itself */
	return fclose(f) != 0 || failed ? -errno : 0;
}
