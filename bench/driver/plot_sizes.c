/* Values against a size, one line a runtime: what a page of memory, or a larger block, costs. */
#include "bench/driver/canvas.h"
#include "bench/driver/gnuplot.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PANELS_MAX 3
#define POINTS_MAX 32
#define PANEL_GAP 56

/* Rows "PREFIX<digits>UNIT", where UNIT is K or M, in either case. */
struct panel {
	const char *title, *prefix;
};

struct chart {
	struct chart_text text;
	const char *y_label, *x_label;
	char x_unit;  /* K or M */
	bool density; /* few bytes a write are dense: they go to the right */
	struct panel panels[PANELS_MAX];
};

#define SPREAD_CAPTION "Points are medians; bars go from the least to the greatest of the rounds."

static const struct chart charts[] = {
	{ .text = { "cow-density", "Copy-on-write breaks against density",
		    "32 writes to a 64 MiB heap after fork, of which one page in so many KiB "
		    "was touched. " SPREAD_CAPTION },
	  .y_label = "time",
	  .x_label = "heap for each page touched (right: denser)",
	  .x_unit = 'K',
	  .density = true,
	  .panels = { { "", "CopyOnWriteBreaks/1page-per-" } } },
	{ .text = { "fork-time", "fork against memory touched",
		    "A flat line: the cost does not grow with the parent. " SPREAD_CAPTION },
	  .y_label = "time",
	  .x_label = "memory touched",
	  .x_unit = 'M',
	  .panels = { { "fork", "fork_" },
		      { "fork, all pages just rewritten", "fork_rewritten_" },
		      { "posix_spawn", "posix_spawn_" } } },
	{ .text = { "tmpfs-blocks", "tmpfs bandwidth against block size",
		    "More is better. " SPREAD_CAPTION },
	  .y_label = "bandwidth",
	  .x_label = "block size",
	  .x_unit = 'K',
	  .panels = { { "append, 256 MiB file", "append_256M_bs" },
		      { "fio write", "fio_tmpfs_write_" },
		      { "fio read", "fio_tmpfs_read_" } } },
};
#define CHARTS (sizeof(charts) / sizeof(charts[0]))

/* The size in a row's name; -1 when the row is of another family. */
static long panel_size(const struct chart *chart, const struct panel *panel, const char *name)
{
	size_t length = strlen(panel->prefix);
	char *end, unit;
	long size;

	if (strncmp(name, panel->prefix, length) != 0 || !isdigit((unsigned char)name[length]))
		return -1;
	size = strtol(name + length, &end, 10);
	unit = (char)toupper((unsigned char)*end);
	if ((unit != 'K' && unit != 'M') || end[1] != '\0' || (unit == 'K' && chart->x_unit == 'M'))
		return -1;
	return unit == 'M' && chart->x_unit == 'K' ? size * 1024 : size;
}

struct panel_rows {
	int rows[POINTS_MAX];
	long sizes[POINTS_MAX];
	int count;
	double low, high; /* of the values */
};

static bool row_has_value(const struct results *r, int row, double *low, double *high)
{
	bool any = false;

	for (int k = 0; k < r->runtime_count; k++) {
		struct point p;

		if (!runtime_works(r, k) || !value_point(r, row, k, &p))
			continue;
		*low = any ? fmin(*low, p.low) : p.low;
		*high = any ? fmax(*high, p.high) : p.high;
		any = true;
	}
	return any;
}

/* Whether there are two points at least, sorted by size; one unit throughout. */
static bool panel_collect(const struct results *r, const struct chart *chart,
			  const struct panel *panel, struct panel_rows *ret)
{
	*ret = (struct panel_rows){ .low = INFINITY, .high = 0 };
	if (!panel->prefix)
		return false;
	for (int i = 0; i < r->row_count && ret->count < POINTS_MAX; i++) {
		long size = panel_size(chart, panel, r->rows[i]->name);
		double low = NAN, high = NAN;
		int at = ret->count;

		if (size < 0 || (chart->density && size == 0) || !row_has_value(r, i, &low, &high))
			continue;
		if (at > 0 && strcmp(r->rows[i]->unit, r->rows[ret->rows[0]]->unit) != 0)
			continue;
		for (; at > 0 && ret->sizes[at - 1] > size; at--) {
			ret->rows[at] = ret->rows[at - 1];
			ret->sizes[at] = ret->sizes[at - 1];
		}
		ret->rows[at] = i;
		ret->sizes[at] = size;
		ret->count++;
		ret->low = fmin(ret->low, low);
		ret->high = fmax(ret->high, high);
	}
	return ret->count >= 2;
}

/* log2 of the size; 0, which has none, goes two steps left of the least. */
static double panel_x(const struct chart *chart, const struct panel_rows *rows, int i)
{
	if (rows->sizes[i] == 0)
		return rows->count > 1 ? log2((double)rows->sizes[1]) - 2 : 0;
	return chart->density ? -log2((double)rows->sizes[i]) : log2((double)rows->sizes[i]);
}

/* "64K", "1M": the shortest, as the greater ones are close to each other. */
static void put_size(FILE *out, long size, char unit)
{
	static const char units[] = "KMG";
	const char *at = strchr(units, unit);

	for (; size > 0 && size % 1024 == 0 && at[1]; at++)
		size /= 1024;
	if (size == 0)
		putc('0', out);
	else
		fprintf(out, "%ld%c", size, *at);
}

static void put_panel_axes(const struct canvas *c, const struct panel *panel,
			   const struct panel_rows *rows, bool first)
{
	const struct chart *chart = &charts[c->plot->chart];
	double a = panel_x(chart, rows, 0), b = panel_x(chart, rows, rows->count - 1);
	double room = fabs(b - a) * 0.08;

	fprintf(c->out, "set xrange [%.4f:%.4f]\nset xtics (", fmin(a, b) - room,
		fmax(a, b) + room);
	for (int i = 0; i < rows->count; i++) {
		fputs(i > 0 ? ", '" : "'", c->out);
		put_size(c->out, rows->sizes[i], chart->x_unit);
		fprintf(c->out, "' %.4f", panel_x(chart, rows, i));
	}
	fputs(")\nset title ", c->out);
	gnuplot_string(c->out, panel->title);
	fprintf(c->out, " offset 0,-0.4 textcolor rgb '%s'\n", c->palette->text);
	if (first) {
		char label[64];

		snprintf(label, sizeof(label), "%s, %s", chart->y_label,
			 c->r->rows[rows->rows[0]]->unit);
		fputs("set ylabel ", c->out);
		gnuplot_string(c->out, label);
		fprintf(c->out, " textcolor rgb '%s'\n", c->palette->muted);
	} else {
		fputs("unset ylabel\n", c->out);
	}
	fputs("set xlabel ", c->out);
	gnuplot_string(c->out, chart->x_label);
	fprintf(c->out, " textcolor rgb '%s'\n", c->palette->muted);
}

static void put_panel_data(const struct canvas *c, int number, const struct panel_rows *rows)
{
	for (int k = 0; k < c->shown_count; k++) {
		fprintf(c->out, "$line%d_%d << EOD\n", number, k);
		for (int i = 0; i < rows->count; i++) {
			struct point p;

			if (value_point(c->r, rows->rows[i], c->shown[k], &p))
				fprintf(c->out, "%.4f %.6g %.6g %.6g\n",
					panel_x(&charts[c->plot->chart], rows, i), p.value, p.low,
					p.high);
		}
		fputs("NaN NaN NaN NaN\nEOD\n", c->out);
	}
}

static void put_panel_plot(const struct canvas *c, int number)
{
	for (int k = 0; k < c->shown_count; k++) {
		fprintf(c->out, "%s$line%d_%d using 1:2:3:4 with yerrorlines",
			k > 0 ? ", " : "plot ", number, k);
		canvas_style(c, c->shown[k], 0.8);
		fputs(" notitle", c->out);
	}
	putc('\n', c->out);
}

size_t sizes_count(void)
{
	return CHARTS;
}

bool sizes_wanted(const struct results *r, int chart, int *ret_suite, struct chart_text *ret_text)
{
	const struct chart *found = &charts[chart];

	for (int i = 0; i < PANELS_MAX; i++) {
		struct panel_rows rows;

		if (!panel_collect(r, found, &found->panels[i], &rows))
			continue;
		*ret_suite = row_suite(r->rows[rows.rows[0]]);
		*ret_text = found->text;
		return true;
	}
	return false;
}

/* A plot of its own, without axes: a panel would fold the key into its width. */
static void put_chart_key(const struct canvas *c)
{
	canvas_margins(c, 10, c->width - 10);
	canvas_key(c);
	fputs("unset border\nunset tics\nplot 1 lc rgb '#ffffffff' notitle", c->out);
	canvas_key_entries(c);
	fputs("\nunset key\nunset label 1\n", c->out);
}

static void place_chart(struct canvas *c, int panel_count)
{
	c->width = panel_count > 1 ? CANVAS_WIDTH : 620;
	c->left = 76;
	c->right = c->width - 16;
	c->top = canvas_head(c) + (panel_count > 1 ? 30 : 8);
	c->bottom = c->top + 270;
	c->height = c->bottom + CANVAS_FOOT;
}

int sizes_put(struct canvas *c)
{
	const struct chart *chart = &charts[c->plot->chart];
	struct panel_rows rows[PANELS_MAX];
	int used[PANELS_MAX], count = 0;
	double low = INFINITY, high = 0, width;

	for (int i = 0; i < PANELS_MAX; i++) {
		if (!panel_collect(c->r, chart, &chart->panels[i], &rows[i]))
			continue;
		used[count++] = i;
		low = fmin(low, rows[i].low);
		high = fmax(high, rows[i].high);
	}
	canvas_show(c, 0);
	place_chart(c, count);
	canvas_widen(&low, &high, 1.2);

	canvas_begin(c);
	for (int n = 0; n < count; n++)
		put_panel_data(c, n, &rows[used[n]]);
	fputs("set multiplot\n", c->out);
	put_chart_key(c);
	canvas_frame(c);
	canvas_log_axis(c, "y", low, high, "");
	width = (c->right - c->left + PANEL_GAP) / (double)count;
	for (int n = 0; n < count; n++) {
		double left = c->left + n * width;

		canvas_margins(c, left, left + width - PANEL_GAP);
		put_panel_axes(c, &chart->panels[used[n]], &rows[used[n]], n == 0);
		put_panel_plot(c, n);
	}
	fputs("unset multiplot\n", c->out);
	return 0;
}
