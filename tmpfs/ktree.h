/*
 * tmpfs/ktree.h: an intrusive ordered set keyed by u64, over base/avl.h.
 *
 * File extents (key: file offset) and directory entries (key: readdir cookie)
 * live in one. Keys are unique; the owner may move a node's key as long as it
 * passes no neighbour. Not locked: the owner says which lock protects it.
 */
#ifndef MINISENTRY_TMPFS_KTREE_H
#define MINISENTRY_TMPFS_KTREE_H

#include "base/avl.h"

struct knode {
	struct avl_node avl;
	u64 key;
};

struct ktree {
	struct avl_root root;
};

/* n->key is set by the caller and not in the tree. */
void ktree_insert(struct ktree *t, struct knode *n);
/* n is in the tree. */
void ktree_remove(struct ktree *t, struct knode *n);
/* The greatest key <= key, the smallest key >= key; NULL when none. */
struct knode *ktree_floor(const struct ktree *t, u64 key);
struct knode *ktree_ceil(const struct ktree *t, u64 key);
/* Takes some leaf out without rebalancing, for tearing the whole tree down; NULL when empty. */
struct knode *ktree_pop_any(struct ktree *t);

static inline bool ktree_empty(const struct ktree *t)
{
	return !t->root.top;
}

#endif
