/*
 * Runs gnuplot as a filter: a script goes in by its standard input, a picture comes out of its
 * standard output. No shell, no files of the user's (.gnuplot), no temporary files.
 */
#ifndef BENCH_DRIVER_GNUPLOT_H
#define BENCH_DRIVER_GNUPLOT_H

#include <stddef.h>
#include <stdio.h>

/*
 * 0 and the output, NUL-terminated for text, to be freed; -ENOENT without a message when gnuplot is
 * not installed; another -Exxx after a message on standard error that names `what`.
 */
int gnuplot_run(const char *what, const char *script, size_t script_size, char **ret_data,
		size_t *ret_size);

/* A string of gnuplot, in its quotes: nothing in it has a meaning. */
void gnuplot_string(FILE *script, const char *text);

#endif
