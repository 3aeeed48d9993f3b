/*
 * mm/legacies.h: the legacies of a parent (legacies.c), for who leaves or inherits one (legacy.c).
 */
#ifndef MINISENTRY_MM_LEGACIES_H
#define MINISENTRY_MM_LEGACIES_H

#include "mm/mm_impl.h"

/* Bytes of private pages that a legacy may have whatever they are. */
#define LEGACY_BYTES_FEW (512UL << 10)

/* One of the sandbox's: before it is made, and when it is no more. False: there are enough. */
bool legacies_reserve(void);
void legacies_unreserve(void);
/* x takes another one, of a child from that era. */
bool legacies_want(struct legacies *x, u32 era);
/* Gives it l, or discards that. */
void legacies_add(struct legacies *x, u32 era, struct legacy *l);
/* Takes records out of l up to one of private pages, whose reference is the caller's. */
bool legacy_next_private(struct legacy *l, struct held *ret);

#endif
