/*
 * mm/span_tree.h: an ordered set of spans that do not overlap, which fork shares in O(1).
 *
 * A B+-tree whose nodes and spans have references. Sharing gives the other tree a reference on the
 * root: a reference stands for all that is below. What has several is never changed: a tree that is
 * about to change makes the nodes on the way to the place its own first (span_tree_own), by
 * copying them, which gives each thing they lead to another reference. So dropping a tree touches
 * only what no other tree shares.
 *
 *	span_tree_share(&child, &parent);
 *	err = span_tree_own(&child, start, end);	the only step that can fail
 *	span_tree_remove(&child, s);			then up to SPAN_INSERTS insertions, and any
 *	span_tree_insert(&child, other);		other change at and beside [start, end)
 *
 * A span's own fields may be changed only when span_exclusive() after span_tree_own; else it is
 * replaced by a copy. Pointers to spans hold until that, whatever happens to the nodes.
 *
 * Each node knows of what is below: where it begins and ends, the largest gap between two spans,
 *and the union of their marks, so that a free range and spans with a mark are found without a walk.
 *
 * Not locked: the owner's locks protect each tree. Trees that share may be used and changed at the
 * same time by different threads; reading a shared part needs nothing.
 */
#ifndef MINISENTRY_MM_SPAN_TREE_H
#define MINISENTRY_MM_SPAN_TREE_H

#include "base/refs.h"

/* low: where it begins for those that look for a gap, at most start. */
#define SPAN_FIELDS                                                                                \
	struct refs refs;                                                                          \
	u32 marks;                                                                                 \
	u64 start, end, low

struct tree_span {
	SPAN_FIELDS;
};

struct span_node;

struct span_tree {
	struct span_node *root;
	size_t count;
	bool shared;		 /* some of it may be */
	struct span_node *spare; /* linked by item[0] */
	size_t spare_count;
	void (*free)(struct tree_span *s); /* of a span without references */
};

void span_tree_init(struct span_tree *t, void (*free)(struct tree_span *s));
/* Drops all references, and the spare nodes. t stays usable. */
void span_tree_clear(struct span_tree *t);
/* t, which is empty, gets all that `from` has. */
void span_tree_share(struct span_tree *t, struct span_tree *from);

/* After this, changes of and between what is in [start, end) or beside it cannot fail, and so many
 * insertions there. 0, -ENOMEM (then nothing has changed for readers). */
#define SPAN_INSERTS 3
int span_tree_own(struct span_tree *t, u64 start, u64 end);
/* Nobody else has s, which lies in what is t's own. */
bool span_exclusive(const struct tree_span *s);

/* Takes over the caller's reference. */
void span_tree_insert(struct span_tree *t, struct tree_span *s);
/* The reference is the caller's now. */
void span_tree_remove(struct span_tree *t, struct tree_span *s);
/* `to`, which has the same start, end and low, takes the place of s; references as above. */
void span_tree_replace(struct span_tree *t, struct tree_span *s, struct tree_span *to);
/* New bounds that keep the place of s in the order; s is exclusive, in these too. */
void span_tree_resize(struct span_tree *t, struct tree_span *s, u64 start, u64 end, u64 low);
/* After s->marks or s->low has changed. */
void span_tree_changed(struct span_tree *t, struct tree_span *s);

/* The first span that ends after addr, or NULL. */
struct tree_span *span_tree_seek(const struct span_tree *t, u64 addr);
/* The last span that begins before addr, or NULL. */
struct tree_span *span_tree_before(const struct span_tree *t, u64 addr);
/* The first span that ends after addr and has one of the marks, or NULL. */
struct tree_span *span_tree_marked(const struct span_tree *t, u64 addr, u32 marks);

struct gap_query {
	u64 len, align; /* align: power of two >= page */
	u64 low, high;	/* the result lies in [low, high) */
	bool top_down;	/* the highest fit, else the lowest */
};
/* A free range between the spans, from an end to the next low. Its start, or false. */
bool span_tree_find_gap(const struct span_tree *t, const struct gap_query *q, u64 *ret_start);

#endif
