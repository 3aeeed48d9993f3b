#include "bench/driver/markdown.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Text of others (a runtime's messages) in a table's cell. */
static void put_text(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (strchr("|*_<>`[]\\", *text))
			fputc('\\', f);
		fputc(*text, f);
	}
}

static void put_head(FILE *f, const struct results *r)
{
	fprintf(f, "    %s\n\n| | |\n| --- | --- |\n", r->command);
	for (int i = 0; i < r->fact_count; i++) {
		fprintf(f, "| %s | ", r->facts[i].name);
		put_text(f, r->facts[i].text);
		fputs(" |\n", f);
	}
	for (int i = 0; i < r->runtime_count; i++)
		if (*r->runtimes[i].version || r->runtimes[i].prefix) {
			fprintf(f, "| %s | ", r->runtimes[i].name);
			put_text(f, r->runtimes[i].version);
			if (r->runtimes[i].prefix && *r->runtimes[i].prefix)
				fprintf(f, " (`%s`)", r->runtimes[i].prefix);
			fputs(" |\n", f);
		}
	fprintf(f, "| rounds | %d of %d, %.0f s |\n| memory growth and CPU time | %s |\n",
		r->rounds_done, r->rounds, r->seconds, r->memory_method);
}

static bool has_growth(const struct results *r, int suite)
{
	for (int i = 0; i < r->row_count; i++)
		if (row_suite(r->rows[i]) == suite && (r->rows[i]->flags & ROW_GROWTH))
			return true;
	return false;
}

static void put_columns(FILE *f, const struct results *r, bool growth)
{
	int count = 2;

	fputs("\n| row | unit |", f);
	for (int i = 0; i < r->runtime_count; i++) {
		fprintf(f, " %s |", r->runtimes[i].name);
		count++;
		if (i > 0) {
			fputs(" x native [95 %] | CPU x |", f);
			count += 2;
		}
		if (growth) {
			fputs(" growth |", f);
			count++;
		}
	}
	fputs("\n|", f);
	for (int i = 0; i < count; i++)
		fputs(i < 2 ? " --- |" : " ---: |", f);
	fputc('\n', f);
}

static void put_cell(FILE *f, const struct results *r, int row, int runtime, bool growth)
{
	const struct cell *cell = results_cell(r, row, runtime);
	struct summary s = results_summary(r, row, runtime);
	char text[40], low[24], high[24];

	format_number(text, sizeof(text), s.median);
	if (cell->clock_lies)
		fputs(" **its clock lies** |", f);
	else if (s.count)
		fprintf(f, " %s |", text);
	else {
		fputc(' ', f);
		put_text(f, *cell->why ? cell->why : "not run");
		fputs(" |", f);
	}
	if (runtime > 0 && !isnan(s.ratio.value)) {
		format_number(text, sizeof(text), s.ratio.value);
		format_number(low, sizeof(low), s.ratio.low);
		format_number(high, sizeof(high), s.ratio.high);
		if (isnan(s.ratio.low))
			fprintf(f, " **%s** |", text);
		else
			fprintf(f, " **%s** [%s, %s] |", text, low, high);
		format_number(text, sizeof(text), s.cpu_ratio);
		fprintf(f, " %s |", isnan(s.cpu_ratio) ? "" : text);
	} else if (runtime > 0) {
		fputs(" | |", f);
	}
	if (growth) {
		format_bytes(text, sizeof(text), s.growth);
		fprintf(f, " %s |",
			(r->rows[row]->flags & ROW_GROWTH) && !isnan(s.growth) ? text : "");
	}
}

static void put_means(FILE *f, const struct results *r, int suite)
{
	char text[24];
	bool any = false;

	for (int i = 1; i < r->runtime_count; i++) {
		int count;
		double mean = results_geomean(r, suite, i, &count);

		if (isnan(mean))
			continue;
		format_number(text, sizeof(text), mean);
		fprintf(f, "%s%s **%s** (%d row%s)",
			any ? ", " : "\nGeometric mean of costs, x native: ", r->runtimes[i].name,
			text, count, count == 1 ? "" : "s");
		any = true;
	}
	if (any)
		fputs(".\n", f);
}

int markdown_write(const struct results *r, const char *path)
{
	FILE *f = fopen(path, "we");
	int suite = -1;
	bool growth = false, failed;

	if (!f)
		return -errno;
	put_head(f, r);
	for (int i = 0; i < r->row_count; i++) {
		if (row_suite(r->rows[i]) != suite) {
			if (suite >= 0)
				put_means(f, r, suite);
			suite = row_suite(r->rows[i]);
			growth = has_growth(r, suite);
			fprintf(f, "\n### %s: %s\n", suites[suite].name, suites[suite].text);
			put_columns(f, r, growth);
		}
		fprintf(f, "| %s | %s |", r->rows[i]->name, r->rows[i]->unit);
		for (int k = 0; k < r->runtime_count; k++)
			put_cell(f, r, i, k, growth);
		fputc('\n', f);
	}
	if (suite >= 0)
		put_means(f, r, suite);
	failed = ferror(f);
	errno = EIO;
	return fclose(f) != 0 || failed ? -errno : 0;
}
