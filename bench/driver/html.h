/*
 * The frame of the report's page: its style sheet and the escaping of text. The page needs nothing
 * beside itself, and runs no script.
 */
#ifndef BENCH_DRIVER_HTML_H
#define BENCH_DRIVER_HTML_H

#include <stdio.h>

/* Text that means itself, in an element or in a quoted attribute. */
void html_text(FILE *out, const char *text);
/* From <!DOCTYPE> to <body>, and to </html>. */
void html_begin(FILE *out, const char *title);
void html_end(FILE *out);

#endif
