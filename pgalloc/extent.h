/*
 * pgalloc/extent.h: which parts of a memory file are in use and how often.
 *
 * Two trees keyed by offset. The *used* set holds extents of pages with the
 * same reference count and accounting id: it splits and merges as references
 * differ and meet again. The *free* set holds what can be handed out, and
 * knows the longest free run below each node, so that a first fit is found in
 * O(log n). Pages that lost their last reference are in neither set until the
 * owner has made them zero and gives them back (extents_release).
 *
 * Not locked; see pgalloc.c. Nodes come from a pool that never shrinks and is
 * filled by extents_reserve, so that taking and dropping references cannot fail.
 */
#ifndef MINISENTRY_PGALLOC_EXTENT_H
#define MINISENTRY_PGALLOC_EXTENT_H

#include "base/avl.h"
#include "base/memfile.h"

struct extent {
	struct avl_node node;
	u64 start, end;
	u32 refs, acct; /* used set */
	u64 longest;	/* free set: longest extent in this subtree */
};

struct extents {
	struct avl_root used, free;
	struct extent *pool; /* linked by node.parent */
	size_t pool_count;
	struct extent_slab *slabs;
	u64 reserved; /* bytes in the used set */
	struct acct_usage {
		u32 id;
		u64 bytes;
	} * acct;
	size_t acct_count;
};

/* A run of pages whose last reference went. */
struct dead_run {
	u64 start, end;
};

/* All of [0, capacity) free. 0, -ENOMEM. */
int extents_init(struct extents *x, u64 capacity);
void extents_destroy(struct extents *x);
/* Makes sure that the pool can serve an allocation and that acct has a row. 0, -ENOMEM. */
int extents_reserve(struct extents *x, u32 acct);

struct fit {
	u64 len, align; /* align: power of two, at least a page */
	u64 hint;	/* 0 none */
	bool down;
	u64 room;  /* bytes wanted free around it for growth, 0: fit tightly */
	u64 start; /* search from here when the hint fails */
};
/* Takes a range out of the free set. False when nothing fits. Not yet in the used set. */
bool extents_take(struct extents *x, const struct fit *fit, struct mem_range *ret);
/* Enters a taken range into the used set with one reference. */
void extents_use(struct extents *x, struct mem_range r, u32 acct);
/* Gives a taken or dead range (all zero again) to the free set. */
void extents_release(struct extents *x, struct mem_range r);

/* One more reference on each page. Panics on a page that is not in use. */
void extents_get(struct extents *x, struct mem_range r);
/*
 * One fewer, as far as `max` dead runs can be told: returns the offset reached
 * (r.end when done). Dead pages leave the used set and `reserved`.
 */
u64 extents_put(struct extents *x, struct mem_range r, struct dead_run *ret_dead, size_t max,
		size_t *ret_count);
/* References of the page at offset (0: free); *ret_end is where that extent ends. */
u32 extents_refs(const struct extents *x, u64 offset, u64 *ret_end);
/* Adds to *io_bytes what has several references in the next `max` extents from `from` on. Where to
 * go on; 0: that was all. */
u64 extents_shared(const struct extents *x, u64 from, u32 acct, size_t max, u64 *io_bytes);
u64 extents_acct(const struct extents *x, u32 acct);

#endif
