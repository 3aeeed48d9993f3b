/*
 * `--report DIR`: one self-contained HTML page (DIR/index.html) with the tables of a run and SVG
 * plots, in light and dark, and PNG copies of the plots (DIR/NAME.png) for READMEs. Plots are drawn
 * by gnuplot; without it the page has tables only, and says how to get it.
 */
#ifndef BENCH_DRIVER_REPORT_H
#define BENCH_DRIVER_REPORT_H

#include "bench/driver/results.h"

/* 0, or -1 after a message on standard error (what could not be written, or what is missing). */
int report_write(const struct results *r, const char *dir);

#endif
