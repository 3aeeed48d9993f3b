/*
 * mm/hot.h: what is written soon after each fork (stack, allocator, thread and library data).
 *
 * Writes that came after two forks are likely to come after the next one too, on the side that made
 * them, so fork copies these pieces at once and spares both sides the fault. Address spaces that
 * descend from each other by fork share one set: mostly it is the short-lived child that writes,
 * and its sibling that gains.
 *
 *	fork:	hot_take() before sharing, the child takes a reference
 *	fault:	hot_note() when a shared page is written
 *
 * A parent that is away (home.c) is spared its faults when its child soon gives the memory up; what
 *it was seen to write until then does not count.
 */
#ifndef MINISENTRY_MM_HOT_H
#define MINISENTRY_MM_HOT_H

#include "base/types.h"

#define HOT_MAX 128

struct hot_piece {
	u64 start, end;
	u32 forks; /* since it was noted, or became hot */
	u32 span;  /* forks that it is hot for; 0: it never was */
	bool hot;  /* noted after two forks */
	bool away; /* noted since the last fork, by a parent that was away */
};

struct hot_set;

/* One reference, or NULL without memory. */
struct hot_set *hot_new(void);
struct hot_set *hot_get(struct hot_set *h);
void hot_put(struct hot_set *h);

/* [start, end) around page was copied on a write. NULL: nothing. */
void hot_note(struct hot_set *h, u64 page, u64 start, u64 end, bool away);

/* The pieces for a fork, which counts. Those that have been for long are tried without then.
 * spared: what was noted by a parent that is away does not count. */
int hot_take(struct hot_set *h, bool spared, struct hot_piece ret[HOT_MAX]);

#endif
