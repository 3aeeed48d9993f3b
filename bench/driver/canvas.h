/*
 * What the plots have in common: a gnuplot script in the making, its looks, key and axes, and which
 * of a run's values can be shown. Private to plot.c, plot_costs.c and plot_sizes.c.
 *
 * A plot's function counts what the key needs (shown, goals, missing), sets the places, and then
 * writes canvas_begin, canvas_frame, canvas_margins, canvas_key, its axes and data, and `plot` with
 * its own curves followed by canvas_key_entries.
 */
#ifndef BENCH_DRIVER_CANVAS_H
#define BENCH_DRIVER_CANVAS_H

#include "bench/driver/plot.h"
#include <stdio.h>

#define CANVAS_WIDTH 960
#define CANVAS_FOOT 54	 /* px below the plot area: ticks and label */
#define LETTER_WIDTH 7.2 /* about the mean width of a letter, in px */

struct palette {
	const char *text, *muted, *grid, *band, *frame, *goal;
};

/* Places are in px from the top left, so that the picture's size may follow from its contents. */
struct canvas {
	const struct results *r;
	const struct plot *plot;
	enum plot_look look;
	const struct palette *palette;
	FILE *out;		      /* the script */
	int width, height;	      /* of the picture */
	int top, bottom, left, right; /* of the plot area */
	int shown[RUNTIMES_MAX];      /* the runtimes in it */
	int shown_count;
	bool goals, missing; /* whether the key has them */
};

const struct palette *canvas_palette(enum plot_look look);
/* Begins the script; the canvas has its places by now. */
void canvas_begin(const struct canvas *c);
/* Border, ticks and grid. */
void canvas_frame(const struct canvas *c);
void canvas_margins(const struct canvas *c, double left, double right);
/* How far the plot area is from the top, by title and key; the width is known by now. */
int canvas_head(const struct canvas *c);
void canvas_key(const struct canvas *c);
/* Entries of the key come from empty plots: one a runtime, whatever the data look like. */
void canvas_key_entries(const struct canvas *c);
/* The mark and colour of a runtime, after `with ...`. */
void canvas_style(const struct canvas *c, int runtime, double size);
/* Room for 1-2-5 ticks, of which two at least are visible. */
void canvas_widen(double *low, double *high, double factor);
void canvas_log_axis(const struct canvas *c, const char *axis, double low, double high,
		     const char *suffix);
/* The runtimes from `first` on that work. */
void canvas_show(struct canvas *c, int first);

/* ---- what can be shown ---- */

struct point {
	double value, low, high;
};

bool runtime_works(const struct results *r, int runtime);
/* False where there is none; a time by a lying clock is none. */
bool cost_point(const struct results *r, int row, int runtime, struct point *ret_point);
bool value_point(const struct results *r, int row, int runtime, struct point *ret_point);

/* ---- the two kinds of plots: whether there is data for it, and the script (0 or -ENOMEM) ---- */

bool costs_wanted(const struct results *r, int suite);
int costs_put(struct canvas *c);

struct chart_text {
	const char *name, *title, *caption;
};

size_t sizes_count(void);
/* Whether chart number `chart` has data, in which suite, and its texts. */
bool sizes_wanted(const struct results *r, int chart, int *ret_suite, struct chart_text *ret_text);
int sizes_put(struct canvas *c);

#endif
