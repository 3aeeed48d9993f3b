#include "tmpfs/ktree.h"

static struct knode *to_knode(struct avl_node *n)
{
	return n ? container_of(n, struct knode, avl) : NULL;
}

void ktree_insert(struct ktree *t, struct knode *n)
{
	struct avl_node *parent = NULL, **link = &t->root.top;

	while (*link) {
		parent = *link;
		link = n->key < to_knode(parent)->key ? &parent->left : &parent->right;
	}
	avl_insert(&t->root, &n->avl, parent, link);
}

void ktree_remove(struct ktree *t, struct knode *n)
{
	avl_remove(&t->root, &n->avl);
}

struct knode *ktree_floor(const struct ktree *t, u64 key)
{
	struct avl_node *n = t->root.top, *best = NULL;

	while (n) {
		if (to_knode(n)->key <= key) {
			best = n;
			n = n->right;
		} else {
			n = n->left;
		}
	}
	return to_knode(best);
}

struct knode *ktree_ceil(const struct ktree *t, u64 key)
{
	struct avl_node *n = t->root.top, *best = NULL;

	while (n) {
		if (to_knode(n)->key >= key) {
			best = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return to_knode(best);
}

struct knode *ktree_pop_any(struct ktree *t)
{
	struct avl_node *n = t->root.top;

	if (!n)
		return NULL;
	while (n->left || n->right)
		n = n->left ? n->left : n->right;
	if (!n->parent)
		t->root.top = NULL;
	else if (n->parent->left == n)
		n->parent->left = NULL;
	else
		n->parent->right = NULL;
	return to_knode(n);
}
