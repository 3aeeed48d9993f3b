/*
 * base/avl.h: intrusive balanced binary tree with augmentation.
 *
 * The owner searches by itself (following left and right), so keys and
 * comparison stay in its own code:
 *
 *	struct avl_node *parent = NULL, **link = &root->top;
 *	while (*link) {
 *		parent = *link;
 *		link = key < key_of(parent) ? &parent->left : &parent->right;
 *	}
 *	avl_insert(root, &x->node, parent, link);
 *
 * An augmented tree sets root->update, which recomputes what a node keeps about
 * its subtree from its children and itself; the tree calls it bottom-up on
 * every node whose subtree changed. After changing a node's own data in place
 * the owner calls avl_updated().
 *
 * Not locked.
 */
#ifndef MINISENTRY_BASE_AVL_H
#define MINISENTRY_BASE_AVL_H

#include "base/types.h"

struct avl_node {
	struct avl_node *left, *right, *parent;
	int height;
};

struct avl_root {
	struct avl_node *top;
	void (*update)(struct avl_node *n); /* NULL: not augmented */
};

void avl_insert(struct avl_root *root, struct avl_node *n, struct avl_node *parent,
		struct avl_node **link);
void avl_remove(struct avl_root *root, struct avl_node *n);
/* Recomputes the augmented data from n up to the root. */
void avl_updated(struct avl_root *root, struct avl_node *n);
struct avl_node *avl_first(const struct avl_root *root);
struct avl_node *avl_last(const struct avl_root *root);
struct avl_node *avl_next(const struct avl_node *n);
struct avl_node *avl_prev(const struct avl_node *n);

#endif
