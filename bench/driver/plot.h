/*
 * The plots of a report. plot_list says which ones a run has data for; each is then drawn by
 * gnuplot as SVG for the page (light or dark, transparent, in the page's font) and as a PNG file.
 *
 *     struct plot plots[PLOTS_MAX];
 *     size_t count = plot_list(r, plots);
 *     plot_svg(r, &plots[0], PLOT_DARK, &svg);
 *     plot_png(r, &plots[0], "out");              writes out/NAME.png
 */
#ifndef BENCH_DRIVER_PLOT_H
#define BENCH_DRIVER_PLOT_H

#include "bench/driver/results.h"

#define PLOTS_MAX 32
#define PLOT_COSTS (-1)

enum plot_look { PLOT_LIGHT, PLOT_DARK, PLOT_PNG };

struct plot {
	char name[40]; /* of the file and in ids: letters, digits, '-' */
	char title[160];
	const char *caption; /* how to read it */
	int suite;
	int chart; /* values against a size: which of them; PLOT_COSTS: costs of a suite's rows */
};

/* Those of all suites, in their order; a plot has two points at least. */
size_t plot_list(const struct results *r, struct plot plots[PLOTS_MAX]);

/* 0 and an <svg> element to be freed, or as gnuplot_run. */
int plot_svg(const struct results *r, const struct plot *plot, enum plot_look look, char **ret_svg);

/* 0, or -Exxx after a message; -ENOENT without one when gnuplot is not installed. */
int plot_png(const struct results *r, const struct plot *plot, const char *dir);

/* "#rrggbb" and a character like its mark: what the page's tables show of a runtime. */
const char *plot_colour(enum plot_look look, int runtime);
const char *plot_mark(int runtime);

#endif
