/*
 * mm/hot.h: what is written soon after each fork (stack, allocator, thread and library data; or the
 * objects that a worker of a pool uses, whose references are counted in them).
 *
 * Writes that came after two forks are likely to come after the next one too, on the side that made
 * them, so fork copies these pieces at once and spares both sides the fault. Address spaces that
 * descend from each other by fork share one set: mostly it is the short-lived child that writes,
 * and its sibling that gains.
 *
 *	fork:	hot_take() before sharing, the child takes a reference
 *	fault:	hot_note() when a shared page is written
 *	end:	hot_child_ended() when a child has given its memory up
 *
 * A parent that is away (home.c) is spared its faults when its child soon gives the memory up; what
 * it was seen to write until then does not count.
 */
#ifndef MINISENTRY_MM_HOT_H
#define MINISENTRY_MM_HOT_H

#include "base/types.h"

/* Pieces (of 16 KiB or less, found separately) that a fork copies; and where children were seen to
 * use their memory. */
#define HOT_FEW 128
#define HOT_MANY 2048
/* Of each, at most. */
#define HOT_BYTES (16UL << 10)

struct hot_piece {
	u64 start, end;
	u32 serial;
};

struct hot_set;

/* One reference, or NULL without memory. */
struct hot_set *hot_new(void);
struct hot_set *hot_get(struct hot_set *h);
void hot_put(struct hot_set *h);

/* [start, end) was copied on a write, of that child of hot_take; or 0. Two children count as two
 * forks. h may be NULL, here and below. */
void hot_note(struct hot_set *h, u64 start, u64 end, u32 child, bool away);

/*
 * A page that is to be written has been noted before: then what lies before it is copied with it
 * only as far as it was written, too. Most write from low to high addresses, so the next fork
 * copies little that is not. False: it was not noted.
 */
bool hot_window(struct hot_set *h, u64 page, u32 child, u64 *ret_start, u64 *ret_end);

/* How much of [start, end) is hot, or may become so. */
u64 hot_bytes(struct hot_set *h, u64 start, u64 end);
/* How much there is of it anywhere; roughly. */
u64 hot_size(struct hot_set *h);

/* A child has ended. used: long enough after its start, and it has executed nothing. The first one
 * of a family does not count. */
void hot_child_ended(struct hot_set *h, bool used);
/* Lately children used their memory: the next fork gets HOT_MANY. */
bool hot_children_stay(struct hot_set *h);

/*
 * The pieces for a fork, which counts, in the order of addresses and none beside another. Those
 * that have been hot for long are tried without then. spared: what was noted by a parent that is
 * away does not count. waits: the parent will rather wait for the child than write to
 * much; what only parents write is left out, unless it is little. most: so many at most.
 * *ret_child: a name for the child, not 0. *ret: to be freed, or NULL.
 */
int hot_take(struct hot_set *h, bool spared, bool waits, int most, u32 *ret_child,
	     struct hot_piece **ret);

#endif
