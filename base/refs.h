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

#ifdef MINISENTRY_DEBUG
void refs_count_class(const char *name, long delta);
#endif
_Noreturn void refs_bad(u32 count);

/* Starts a count at 1. class_name is a string literal. */
static inline void refs_init(struct refs *r, const char *class_name)
{
#ifdef MINISENTRY_DEBUG
	r->class_name = class_name;
	refs_count_class(class_name, 1);
#else
	(void)class_name;
#endif
	atomic_store_explicit(&r->count, 1, memory_order_release);
}

/* Aborts when the count was zero or would overflow. */
static inline void refs_get(struct refs *r)
{
	u32 old = atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);

	if (__builtin_expect(old - 1 >= UINT32_MAX / 2 - 1, 0))
		refs_bad(old);
}

/* True when a reference was taken, false when the object is being destroyed. */
static inline bool refs_tryget(struct refs *r)
{
	u32 old = atomic_load_explicit(&r->count, memory_order_relaxed);

	do {
		if (old == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&r->count, &old, old + 1, memory_order_acquire, memory_order_relaxed));
	return true;
}

/* True when this was the last reference: the caller destroys the object. */
static inline bool refs_put(struct refs *r)
{
	u32 old = atomic_fetch_sub_explicit(&r->count, 1, memory_order_acq_rel);

	if (__builtin_expect(old == 0, 0))
		refs_bad(old);
#ifdef MINISENTRY_DEBUG
	if (old == 1)
		refs_count_class(r->class_name, -1);
#endif
	return old == 1;
}

static inline u32 refs_read(const struct refs *r)
{
	return atomic_load_explicit(&r->count, memory_order_relaxed);
}

/* Prints a line per class with live objects to the log; returns their number. */
size_t refs_report_leaks(void);

#endif
