/* Costs relative to native: a suite's rows from top to bottom, one mark a runtime. */
#include "bench/driver/canvas.h"
#include "bench/driver/gnuplot.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DODGE 6.5 /* px between the marks of two runtimes */

static double cost_goal(const struct row *row)
{
	if (row->goal <= 0)
		return NAN;
	return row->flags & ROW_HIGHER ? 1 / row->goal : row->goal;
}

struct cost_row {
	int row;  /* in results.rows */
	double y; /* downwards, in rows */
};

struct costs {
	struct cost_row *rows;
	int count;
	double low, high; /* of the axis */
	double bottom;	  /* y of its end, in rows */
	size_t points;
};

/* A row is in when some runtime has a cost for it. False when there is no memory. */
static bool costs_collect(const struct results *r, int suite, struct costs *costs)
{
	int group = -1;

	*costs = (struct costs){ .low = 1, .high = 1 };
	costs->rows = calloc((size_t)r->row_count + 1, sizeof(costs->rows[0]));
	for (int i = 0; costs->rows && i < r->row_count; i++) {
		const struct row *row = r->rows[i];
		double goal = cost_goal(row);
		size_t before = costs->points;

		if (row_suite(row) != suite || row->flags & ROW_COUNT)
			continue;
		for (int k = 1; k < r->runtime_count; k++) {
			struct point p;

			if (!runtime_works(r, k) || !cost_point(r, i, k, &p))
				continue;
			costs->points++;
			costs->low = fmin(costs->low, p.value);
			costs->high = fmax(costs->high, p.value);
		}
		if (costs->points == before)
			continue;
		costs->low = fmin(costs->low, goal); /* fmin ignores a NAN */
		costs->high = fmax(costs->high, goal);
		if (costs->count > 0)
			costs->bottom += row->group != group ? 1.5 : 1;
		group = row->group;
		costs->rows[costs->count++] = (struct cost_row){ i, costs->bottom };
	}
	return costs->rows != NULL;
}

static void put_cost_data(const struct canvas *c, const struct costs *costs, double step)
{
	/* Wide intervals of few rounds must not squeeze the points: they end outside the picture.
	 */
	for (int k = 0; k < c->shown_count; k++) {
		fprintf(c->out, "$cost%d << EOD\n", k);
		for (int i = 0; i < costs->count; i++) {
			double y = costs->rows[i].y + (k - (c->shown_count - 1) / 2.0) * step;
			struct point p;

			if (cost_point(c->r, costs->rows[i].row, c->shown[k], &p))
				fprintf(c->out, "%.6g %.4f %.6g %.6g\n", p.value, y,
					fmax(p.low, costs->low / 10),
					fmin(p.high, costs->high * 10));
		}
		fprintf(c->out, "NaN NaN NaN NaN\nEOD\n$missing%d << EOD\n", k);
		for (int i = 0; i < costs->count; i++) {
			double y = costs->rows[i].y + (k - (c->shown_count - 1) / 2.0) * step;
			struct point p;

			if (!cost_point(c->r, costs->rows[i].row, c->shown[k], &p))
				fprintf(c->out, "%.6g %.4f\n", costs->high / 1.06, y);
		}
		fputs("NaN NaN\nEOD\n", c->out);
	}
	fputs("$goals << EOD\n", c->out);
	for (int i = 0; i < costs->count; i++) {
		double goal = cost_goal(c->r->rows[costs->rows[i].row]);

		if (isfinite(goal))
			fprintf(c->out, "%.6g %.4f\n", goal, costs->rows[i].y - 0.42);
	}
	fputs("NaN NaN\nEOD\n", c->out);
}

static void put_cost_labels(const struct canvas *c, const struct costs *costs)
{
	fputs("set ytics scale 0 (", c->out);
	for (int i = 0; i < costs->count; i++) {
		fputs(i > 0 ? ", " : "", c->out);
		gnuplot_string(c->out, c->r->rows[costs->rows[i].row]->name);
		fprintf(c->out, " %.4f", costs->rows[i].y);
	}
	fputs(")\n", c->out);
	for (int i = 0; i < costs->count; i++) /* bands lead the eye from a name to its marks */
		if (i % 2 == 0)
			fprintf(c->out,
				"set object rectangle from graph 0, first %.4f to graph 1, first "
				"%.4f behind"
				" fc rgb '%s' fillstyle solid noborder\n",
				costs->rows[i].y - 0.5, costs->rows[i].y + 0.5, c->palette->band);
	for (int i = 1; i < costs->count; i++) /* a rule between groups */
		if (costs->rows[i].y - costs->rows[i - 1].y > 1)
			fprintf(c->out,
				"set arrow from graph 0, first %.4f to graph 1, first %.4f nohead "
				"back"
				" lw 1 lc rgb '%s'\n",
				costs->rows[i].y - 0.75, costs->rows[i].y - 0.75,
				c->palette->frame);
}

static void put_cost_plot(const struct canvas *c)
{
	const char *separator = "plot ";

	fprintf(c->out, "set arrow from 1, graph 0 to 1, graph 1 nohead back lw 1.5 lc rgb '%s'\n",
		c->palette->muted);
	if (c->goals) {
		fprintf(c->out,
			"plot $goals using 1:2:(0):(0.84) with vectors nohead lw 2.5 lc rgb '%s' "
			"notitle",
			c->palette->goal);
		separator = ", ";
	}
	for (int k = 0; k < c->shown_count; k++) {
		fprintf(c->out, "%s$cost%d using 1:2:3:4 with xerrorbars", separator, k);
		canvas_style(c, c->shown[k], 0.7);
		fprintf(c->out,
			" notitle, $missing%d using 1:2 with points pt 2 ps 0.5 lw 1.5"
			" lc rgb '%s' notitle",
			k, plot_colour(c->look, c->shown[k]));
		separator = ", ";
	}
	canvas_key_entries(c);
	putc('\n', c->out);
}

/* How many runtimes of the key have something in the picture, and what else it needs. */
static void costs_legend(struct canvas *c, const struct costs *costs)
{
	canvas_show(c, 1);
	for (int i = 0; i < costs->count; i++) {
		struct point p;

		c->goals |= isfinite(cost_goal(c->r->rows[costs->rows[i].row]));
		for (int k = 0; k < c->shown_count; k++)
			c->missing |= !cost_point(c->r, costs->rows[i].row, c->shown[k], &p);
	}
}

bool costs_wanted(const struct results *r, int suite)
{
	struct costs costs;
	bool wanted = costs_collect(r, suite, &costs) && costs.points >= 2;

	free(costs.rows);
	return wanted;
}

int costs_put(struct canvas *c)
{
	struct costs costs;
	double row_height;
	size_t longest = 0;
	bool tall;

	if (!costs_collect(c->r, c->plot->suite, &costs))
		return -ENOMEM;
	c->width = CANVAS_WIDTH;
	costs_legend(c, &costs);
	row_height = fmax(20, c->shown_count * DODGE + 10);
	tall = costs.count > 20;
	for (int i = 0; i < costs.count; i++)
		if (strlen(c->r->rows[costs.rows[i].row]->name) > longest)
			longest = strlen(c->r->rows[costs.rows[i].row]->name);
	c->left = (int)fmin((double)longest * LETTER_WIDTH + 18, c->width * 0.45);
	c->right = c->width - 24;
	c->top = canvas_head(c) + (tall ? 24 : 4);
	c->bottom = c->top + (int)((costs.bottom + 1.2) * row_height);
	c->height = c->bottom + CANVAS_FOOT;
	canvas_widen(&costs.low, &costs.high, 1.25);

	canvas_begin(c);
	canvas_frame(c);
	canvas_margins(c, c->left, c->right);
	canvas_key(c);
	canvas_log_axis(c, "x", costs.low, costs.high, "\u00d7");
	if (tall)
		canvas_log_axis(c, "x2", costs.low, costs.high, "\u00d7");
	fprintf(c->out, "set yrange [%.4f:-0.6]\n", costs.bottom + 0.6);
	fprintf(c->out,
		"set xlabel 'cost, \u00d7 native, log scale: left of 1\u00d7 is faster than native,"
		" right is slower' textcolor rgb '%s'\n",
		c->palette->muted);
	fputs("set grid noytics\n", c->out);
	put_cost_labels(c, &costs);
	put_cost_data(c, &costs, DODGE / row_height);
	put_cost_plot(c);
	free(costs.rows);
	return 0;
}
