#include "bench/driver/canvas.h"
#include "bench/driver/gnuplot.h"
#include <math.h>
#include <string.h>

#define FONT_SIZE 12
#define PNG_SCALE 2
#define KEY_LINE 20
#define TITLE_HEIGHT 30

/* ---- looks ---- */

/* After Okabe and Ito: apart from each other for colour-blind eyes too. Native comes first, in
 * grey. */
static const char *const colours_light[] = { "#57606a", "#0072b2", "#d55e00", "#00875f",
					     "#a8327f", "#7a5c00", "#1b9ad6", "#7048c8" };
static const char *const colours_dark[] = { "#aab4be", "#56b4e9", "#f0803c", "#2cc295",
					    "#e58fc1", "#e6c229", "#8fd0ff", "#b39bff" };
#define COLOURS (sizeof(colours_light) / sizeof(colours_light[0]))

/* gnuplot's point types, filled ones first, and their like in text. */
static const int point_types[] = { 5, 7, 9, 13, 11, 4, 6, 8, 12, 10 };
static const char *const marks[] = { "\u25a0", "\u25cf", "\u25b2", "\u25c6", "\u25bc",
				     "\u25a1", "\u25cb", "\u25b3", "\u25c7", "\u25bd" };
#define POINT_TYPES (sizeof(point_types) / sizeof(point_types[0]))

static const struct palette palettes[] = {
	[PLOT_LIGHT] = { "#1f2328", "#59636e", "#e3e7eb", "#f4f6f8", "#9aa4ae", "#8250df" },
	[PLOT_DARK] = { "#e6edf3", "#9198a1", "#2b323a", "#181d24", "#6e7681", "#d2a8ff" },
	[PLOT_PNG] = { "#1f2328", "#59636e", "#e3e7eb", "#f4f6f8", "#9aa4ae", "#8250df" },
};

const struct palette *canvas_palette(enum plot_look look)
{
	return &palettes[look];
}

const char *plot_colour(enum plot_look look, int runtime)
{
	return (look == PLOT_DARK ? colours_dark : colours_light)[(size_t)runtime % COLOURS];
}

const char *plot_mark(int runtime)
{
	return marks[(size_t)runtime % POINT_TYPES];
}

/* ---- the frame ---- */

static double screen_x(const struct canvas *c, double x)
{
	return x / c->width;
}

static double screen_y(const struct canvas *c, double y)
{
	return 1 - y / c->height;
}

static void put_terminal(const struct canvas *c)
{
	fputs("set encoding utf8\n", c->out);
	if (c->look == PLOT_PNG) /* its fonts are in points of 1/96 inch, as SVG's are in px */
		fprintf(c->out,
			"set terminal pngcairo size %d,%d noenhanced font 'DejaVu Sans,%d'"
			" fontscale %g linewidth %d pointscale %d background '#ffffff'\n",
			c->width * PNG_SCALE, c->height * PNG_SCALE, FONT_SIZE, PNG_SCALE * 0.75,
			PNG_SCALE, PNG_SCALE);
	else
		fprintf(c->out,
			"set terminal svg size %d,%d dynamic noenhanced font 'inherit,%d'\n",
			c->width, c->height, FONT_SIZE);
}

void canvas_begin(const struct canvas *c)
{
	put_terminal(c);
	if (c->look == PLOT_PNG) {
		fputs("set label 1 ", c->out);
		gnuplot_string(c->out, c->plot->title);
		fprintf(c->out,
			" at screen %.4f,%.4f left font 'DejaVu Sans Bold,14' textcolor rgb '%s'\n",
			screen_x(c, 14), screen_y(c, 18), c->palette->text);
	}
}

void canvas_frame(const struct canvas *c)
{
	const struct palette *p = c->palette;

	fprintf(c->out, "set border 3 lw 1 lc rgb '%s'\n", p->frame);
	fprintf(c->out, "set tics nomirror scale 0.5,0.25 textcolor rgb '%s'\n", p->text);
	fputs("set xtics nomirror\nset ytics nomirror\n", c->out);
	fprintf(c->out, "set style line 100 lw 1 lc rgb '%s'\n", p->grid);
	fputs("set grid xtics ytics back ls 100\nset errorbars small\n", c->out);
}

void canvas_margins(const struct canvas *c, double left, double right)
{
	fprintf(c->out, "set lmargin at screen %.5f\nset rmargin at screen %.5f\n",
		screen_x(c, left), screen_x(c, right));
	fprintf(c->out, "set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
		screen_y(c, c->top), screen_y(c, c->bottom));
}

/* ---- the key ---- */

static int key_columns(const struct canvas *c, int *ret_count)
{
	size_t longest = sizeof("no result") - 1;
	int columns;

	*ret_count = c->shown_count + c->goals + c->missing;
	for (int i = 0; i < c->shown_count; i++)
		if (strlen(c->r->runtimes[c->shown[i]].name) > longest)
			longest = strlen(c->r->runtimes[c->shown[i]].name);
	columns = (int)((c->width - 40) / ((double)longest * LETTER_WIDTH + 50));
	return columns < 1 ? 1 : columns;
}

int canvas_head(const struct canvas *c)
{
	int count, columns = key_columns(c, &count);

	return (c->look == PLOT_PNG ? TITLE_HEIGHT : 0) +
	       (count + columns - 1) / columns * KEY_LINE + 10;
}

void canvas_key(const struct canvas *c)
{
	int count, columns = key_columns(c, &count);

	fprintf(c->out,
		"set key at screen %.5f,%.5f left top horizontal Left reverse samplen 2.4"
		" maxcols %d textcolor rgb '%s'\n",
		screen_x(c, 10), screen_y(c, c->look == PLOT_PNG ? TITLE_HEIGHT : 2), columns,
		c->palette->text);
}

void canvas_style(const struct canvas *c, int runtime, double size)
{
	fprintf(c->out, " pt %d ps %g lw 1.5 lc rgb '%s'",
		point_types[(size_t)runtime % POINT_TYPES], size, plot_colour(c->look, runtime));
}

void canvas_key_entries(const struct canvas *c)
{
	for (int i = 0; i < c->shown_count; i++) {
		fputs(", NaN with linespoints", c->out);
		canvas_style(c, c->shown[i], 0.8);
		fputs(" title ", c->out);
		gnuplot_string(c->out, c->r->runtimes[c->shown[i]].name);
	}
	if (c->goals)
		fprintf(c->out, ", NaN with points pt '|' lc rgb '%s' title 'goal'",
			c->palette->goal);
	if (c->missing)
		fprintf(c->out,
			", NaN with points pt 2 ps 0.6 lw 1.5 lc rgb '%s' title 'no result'",
			c->palette->muted);
}

/* ---- axes ---- */

void canvas_widen(double *low, double *high, double factor)
{
	*low /= factor;
	*high *= factor;
	while (*high / *low < 8) {
		*low /= 1.1;
		*high *= 1.1;
	}
}

void canvas_log_axis(const struct canvas *c, const char *axis, double low, double high,
		     const char *suffix)
{
	bool narrow = high / low < 300;
	const char *separator = "";

	fprintf(c->out, "set logscale %s\nset %srange [%.6g:%.6g]\nset %stics (", axis, axis, low,
		high, axis);
	for (int decade = (int)floor(log10(low)); decade <= (int)ceil(log10(high)); decade++) {
		for (int digit = 1; digit <= 9; digit++) {
			double at = digit * pow(10, decade);
			bool label = digit == 1 || (narrow && (digit == 2 || digit == 5));

			if (at < low || at > high)
				continue;
			if (label)
				fprintf(c->out, "%s'%g%s' %.6g", separator, at, suffix, at);
			else
				fprintf(c->out, "%s'' %.6g 1", separator, at);
			separator = ", ";
		}
	}
	fputs(")\n", c->out);
}

void canvas_show(struct canvas *c, int first)
{
	c->shown_count = 0;
	for (int k = first; k < c->r->runtime_count; k++)
		if (runtime_works(c->r, k))
			c->shown[c->shown_count++] = k;
}

/* ---- what can be shown ---- */

bool runtime_works(const struct results *r, int runtime)
{
	return r->runtimes[runtime].why[0] == '\0';
}

static bool has_point(const struct results *r, int row, int runtime, const struct summary *s)
{
	return !results_cell(r, row, runtime)->clock_lies && isfinite(s->median) && s->median > 0;
}

bool cost_point(const struct results *r, int row, int runtime, struct point *ret_point)
{
	struct summary s = results_summary(r, row, runtime);
	bool higher = r->rows[row]->flags & ROW_HIGHER;

	if (!has_point(r, row, runtime, &s) || !isfinite(s.cost) || s.cost <= 0 ||
	    results_cell(r, row, 0)->clock_lies)
		return false;
	ret_point->value = ret_point->low = ret_point->high = s.cost;
	if (s.ratio.low > 0 && isfinite(s.ratio.high)) {
		ret_point->low = higher ? 1 / s.ratio.high : s.ratio.low;
		ret_point->high = higher ? 1 / s.ratio.low : s.ratio.high;
	}
	return true;
}

bool value_point(const struct results *r, int row, int runtime, struct point *ret_point)
{
	struct summary s = results_summary(r, row, runtime);

	if (!has_point(r, row, runtime, &s))
		return false;
	*ret_point = (struct point){ s.median, s.min, s.max };
	return true;
}
