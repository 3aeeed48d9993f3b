/*
 * pgalloc/recycle.h: freed pages that still have their contents, for copies that overwrite them.
 *
 * To punch pages out and to have the host make others a moment later costs more than to copy a
 * few pages. So small freed ranges, all of whose pages are there, wait here for a copy as small.
 * They count as free.
 *
 * Not locked; see pgalloc.c. They are neither in the used nor in the free set of extents.
 */
#ifndef MINISENTRY_PGALLOC_RECYCLE_H
#define MINISENTRY_PGALLOC_RECYCLE_H

#include "base/memfile.h"

#define RECYCLE_COUNT 64
#define RECYCLE_BYTES (512UL << 10)
/* Larger copies had better lie beside their neighbours. */
#define RECYCLE_COPY_MAX (16UL << 10)

struct recycle {
	struct mem_range ranges[RECYCLE_COUNT];
	u32 count;
	u64 bytes;
};

/* False: no room. */
bool recycle_add(struct recycle *x, struct mem_range r);
/* len bytes, from hint on if they are there. False: there are none. */
bool recycle_take(struct recycle *x, u64 len, u64 hint, struct mem_range *ret);

#endif
