#include "base/avl.h"

static int height(const struct avl_node *n)
{
	return n ? n->height : 0;
}

static void refresh(struct avl_root *root, struct avl_node *n)
{
	int l = height(n->left), r = height(n->right);

	n->height = 1 + MAX(l, r);
	if (root->update)
		root->update(n);
}

static void replace_child(struct avl_root *root, struct avl_node *parent, struct avl_node *old,
			  struct avl_node *new)
{
	if (!parent)
		root->top = new;
	else if (parent->left == old)
		parent->left = new;
	else
		parent->right = new;
	if (new)
		new->parent = parent;
}

/* Makes n's left (or right) child the top of n's subtree; returns it. */
static struct avl_node *rotate(struct avl_root *root, struct avl_node *n, bool child_is_left)
{
	struct avl_node *c = child_is_left ? n->left : n->right;
	struct avl_node *middle = child_is_left ? c->right : c->left;

	replace_child(root, n->parent, n, c);
	if (child_is_left) {
		n->left = middle;
		c->right = n;
	} else {
		n->right = middle;
		c->left = n;
	}
	if (middle)
		middle->parent = n;
	n->parent = c;
	refresh(root, n);
	refresh(root, c);
	return c;
}

/* Restores balance and augmented data from n, below which something has changed, up to the root. */
static void fix_up(struct avl_root *root, struct avl_node *n)
{
	while (n) {
		int before = n->height;
		int balance = height(n->left) - height(n->right);

		if (balance > 1) {
			if (height(n->left->left) < height(n->left->right))
				rotate(root, n->left, false);
			n = rotate(root, n, true);
		} else if (balance < -1) {
			if (height(n->right->right) < height(n->right->left))
				rotate(root, n->right, true);
			n = rotate(root, n, false);
		} else {
			refresh(root, n);
		}
		/* Then nothing changes above. */
		if (!root->update && n->height == before)
			return;
		n = n->parent;
	}
}

void avl_insert(struct avl_root *root, struct avl_node *n, struct avl_node *parent,
		struct avl_node **link)
{
	n->left = n->right = NULL;
	n->parent = parent;
	n->height = 1;
	*link = n;
	if (root->update)
		root->update(n);
	fix_up(root, parent);
}

void avl_remove(struct avl_root *root, struct avl_node *n)
{
	struct avl_node *fix;

	if (n->left && n->right) {
		struct avl_node *s = n->right;

		while (s->left)
			s = s->left;
		fix = s->parent == n ? s : s->parent;
		if (s->parent != n) {
			replace_child(root, s->parent, s, s->right);
			s->right = n->right;
			s->right->parent = s;
		}
		s->left = n->left;
		s->left->parent = s;
		s->height = n->height;
		replace_child(root, n->parent, n, s);
	} else {
		fix = n->parent;
		replace_child(root, n->parent, n, n->left ? n->left : n->right);
	}
	n->left = n->right = n->parent = NULL;
	fix_up(root, fix);
}

void avl_updated(struct avl_root *root, struct avl_node *n)
{
	if (!root->update)
		return;
	for (; n; n = n->parent)
		root->update(n);
}

struct avl_node *avl_first(const struct avl_root *root)
{
	struct avl_node *n = root->top;

	while (n && n->left)
		n = n->left;
	return n;
}

struct avl_node *avl_last(const struct avl_root *root)
{
	struct avl_node *n = root->top;

	while (n && n->right)
		n = n->right;
	return n;
}

struct avl_node *avl_next(const struct avl_node *n)
{
	if (n->right) {
		n = n->right;
		while (n->left)
			n = n->left;
		return (struct avl_node *)n;
	}
	while (n->parent && n->parent->right == n)
		n = n->parent;
	return n->parent;
}

struct avl_node *avl_prev(const struct avl_node *n)
{
	if (n->left) {
		n = n->left;
		while (n->right)
			n = n->right;
		return (struct avl_node *)n;
	}
	while (n->parent && n->parent->left == n)
		n = n->parent;
	return n->parent;
}
