/*
 * base/refs.h: atomic reference counts.
 *
 * Convention: x_new() returns an object with one reference, x_get() takes
 * another, x_tryget() fails when the count has reached zero, x_put() drops one
 * and destroys at zero; put accepts NULL.
 *
 * Debug builds count live objects per class name and print what leaked at exit
 * (refs_report_leaks).
 */
#ifndef MINISENTRY_BASE_REFS_H
#define MINISENTRY_BASE_REFS_H

#include "base/types.h"
#include <stdatomic.h>

struct refs {
	_Atomic u32 count;
#ifdef MINISENTRY_DEBUG
	const char *class_name;
#endif
};

/* Starts a count at 1. class_name is a string literal. */
void refs_init(struct refs *r, const char *class_name);
/* Aborts when the count was zero or would overflow. */
void refs_get(struct refs *r);
/* True when a reference was taken, false when the object is being destroyed. */
bool refs_tryget(struct refs *r);
/* True when this was the last reference: the caller destroys the object. */
bool refs_put(struct refs *r);
u32 refs_read(const struct refs *r);
/* Prints a line per class with live objects to the log; returns their number. */
size_t refs_report_leaks(void);

#endif
