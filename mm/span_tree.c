#include "mm/span_tree.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define FANOUT 32
/* Neighbours that have no more than that together become one. */
#define MERGE_MAX (FANOUT * 3 / 4)
/* Two neighbours have more than that, so this is far above what a tree of 2^32 spans needs. */
#define MAX_LEVELS 16

struct span_node {
	struct refs refs;
	u16 count, level; /* level 0: the items are spans, else nodes */
	u32 marks;
	u64 low, high, gap;
	u64 first[FANOUT]; /* the start of an item's first span */
	void *item[FANOUT];
};

/* A place on the way from the root to a leaf. */
struct step {
	struct span_node *node;
	u32 at;
};

static struct span_node *child(const struct span_node *n, u32 i)
{
	return n->item[i];
}

static struct tree_span *span(const struct span_node *n, u32 i)
{
	return n->item[i];
}

static u64 item_low(const struct span_node *n, u32 i)
{
	return n->level ? child(n, i)->low : span(n, i)->low;
}

static u64 item_high(const struct span_node *n, u32 i)
{
	return n->level ? child(n, i)->high : span(n, i)->end;
}

static u64 distance(u64 from, u64 to)
{
	return to > from ? to - from : 0;
}

static bool only_one(const struct refs *r)
{
	/* Pairs with the put of who shared it before. */
	return atomic_load_explicit(&r->count, memory_order_acquire) == 1;
}

bool span_exclusive(const struct tree_span *s)
{
	return only_one(&s->refs);
}

/* ---- nodes ---- */

static void spare_push(struct span_tree *t, struct span_node *n)
{
	n->item[0] = t->spare;
	t->spare = n;
	t->spare_count++;
}

static struct span_node *spare_pop(struct span_tree *t)
{
	struct span_node *n = t->spare;

	ASSERT(n);
	t->spare = n->item[0];
	t->spare_count--;
	return n;
}

static size_t levels(const struct span_tree *t)
{
	return t->root ? t->root->level + 1U : 0;
}

/* Each insertion may split a node on every level and then needs a new root. */
static size_t spares_wanted(const struct span_tree *t)
{
	return SPAN_INSERTS * (levels(t) + 1);
}

static int spares_fill(struct span_tree *t)
{
	while (t->spare_count < spares_wanted(t)) {
		struct span_node *n = malloc(sizeof(*n));

		if (!n)
			return -ENOMEM;
		spare_push(t, n);
	}
	return 0;
}

static struct span_node *node_new(struct span_tree *t, u16 level)
{
	struct span_node *n = spare_pop(t);

	refs_init(&n->refs, "span_node");
	n->count = 0;
	n->level = level;
	return n;
}

/* Its items have moved elsewhere, or it has none. */
static void node_free(struct span_tree *t, struct span_node *n)
{
	bool last = refs_put(&n->refs);

	ASSERT(last);
	if (t->spare_count < spares_wanted(t))
		spare_push(t, n);
	else
		free(n);
}

static void item_get(const struct span_node *n, u32 i)
{
	refs_get(n->level ? &child(n, i)->refs : &span(n, i)->refs);
}

static void node_put(struct span_tree *t, struct span_node *n)
{
	if (!refs_put(&n->refs))
		return;
	for (u32 i = 0; i < n->count; i++) {
		if (n->level)
			node_put(t, child(n, i));
		else if (refs_put(&span(n, i)->refs))
			t->free(span(n, i));
	}
	free(n);
}

static void move_items(struct span_node *to, u32 at, const struct span_node *from, u32 i, u32 count)
{
	memmove(&to->first[at], &from->first[i], count * sizeof(to->first[0]));
	memmove(&to->item[at], &from->item[i], count * sizeof(to->item[0]));
}

static struct span_node *node_copy(const struct span_node *n)
{
	struct span_node *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	refs_init(&copy->refs, "span_node");
	copy->count = n->count;
	copy->level = n->level;
	copy->marks = n->marks;
	copy->low = n->low;
	copy->high = n->high;
	copy->gap = n->gap;
	move_items(copy, 0, n, 0, n->count);
	for (u32 i = 0; i < n->count; i++)
		item_get(n, i);
	return copy;
}

static void refresh(struct span_node *n)
{
	n->low = item_low(n, 0);
	n->high = item_high(n, n->count - 1U);
	n->gap = 0;
	n->marks = 0;
	for (u32 i = 0; i < n->count; i++) {
		n->marks |= n->level ? child(n, i)->marks : span(n, i)->marks;
		if (n->level)
			n->gap = MAX(n->gap, child(n, i)->gap);
		if (i)
			n->gap = MAX(n->gap, distance(item_high(n, i - 1), item_low(n, i)));
	}
}

/* How many items begin at or below addr. */
static u32 rank(const struct span_node *n, u64 addr)
{
	u32 low = 0, high = n->count;

	while (low < high) {
		u32 mid = (low + high) / 2;

		if (n->first[mid] <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The item that addr leads to. */
static u32 index_of(const struct span_node *n, u64 addr)
{
	u32 r = rank(n, addr);

	return r ? r - 1 : 0;
}

static void cut(struct span_node *n, u32 i)
{
	n->count--;
	move_items(n, i, n, i + 1, n->count - i);
}

/* Puts an item in at i. The new right neighbour, if n was full, or NULL. */
static struct span_node *put_in(struct span_tree *t, struct span_node *n, u32 i, u64 first,
				void *item)
{
	struct span_node *into = n, *right = NULL;

	if (n->count == FANOUT) {
		/* Who appends is likely to go on. */
		u32 keep = i == FANOUT ? FANOUT - FANOUT / 8 : FANOUT / 2;

		right = node_new(t, n->level);
		right->count = (u16)(n->count - keep);
		move_items(right, 0, n, keep, right->count);
		n->count = (u16)keep;
		if (i > keep) {
			into = right;
			i -= keep;
		}
	}
	move_items(into, i + 1, into, i, into->count - i);
	into->first[i] = first;
	into->item[i] = item;
	into->count++;
	refresh(n);
	if (right)
		refresh(right);
	return right;
}

/* ---- ways through the tree ---- */

/* The way to where a span that starts at `start` is; all of it is t's own. Returns its length. */
static u32 descend(const struct span_tree *t, u64 start, struct step path[MAX_LEVELS])
{
	struct span_node *n = t->root;
	u32 depth = 0;

	for (;; n = child(n, path[depth - 1].at)) {
		ASSERT(n && depth < MAX_LEVELS && only_one(&n->refs));
		path[depth++] = (struct step){ n, index_of(n, start) };
		if (!n->level)
			return depth;
	}
}

static u32 descend_to(const struct span_tree *t, const struct tree_span *s,
		      struct step path[MAX_LEVELS])
{
	u32 depth = descend(t, s->start, path);

	ASSERT(span(path[depth - 1].node, path[depth - 1].at) == s);
	return depth;
}

static void refresh_path(struct step *path, u32 depth)
{
	while (depth-- > 0) {
		struct span_node *n = path[depth].node;

		if (n->level)
			n->first[path[depth].at] = child(n, path[depth].at)->first[0];
		refresh(n);
	}
}

struct tree_span *span_tree_seek(const struct span_tree *t, u64 addr)
{
	struct span_node *n = t->root;
	u32 i;

	if (!n || n->high <= addr)
		return NULL;
	for (;; n = child(n, i)) {
		i = index_of(n, addr);
		if (item_high(n, i) <= addr)
			i++; /* there is one, as n ends after addr */
		if (!n->level)
			return span(n, i);
	}
}

struct tree_span *span_tree_before(const struct span_tree *t, u64 addr)
{
	struct span_node *n = t->root;

	if (!n || n->first[0] >= addr)
		return NULL;
	while (n->level)
		n = child(n, rank(n, addr - 1) - 1);
	return span(n, rank(n, addr - 1) - 1);
}

static struct tree_span *marked(const struct span_node *n, u64 addr, u32 marks)
{
	for (u32 i = index_of(n, addr); i < n->count; i++) {
		struct tree_span *s = NULL;

		if (item_high(n, i) <= addr)
			continue;
		if (!n->level && (span(n, i)->marks & marks))
			return span(n, i);
		if (n->level && (child(n, i)->marks & marks))
			s = marked(child(n, i), addr, marks);
		if (s)
			return s;
	}
	return NULL;
}

struct tree_span *span_tree_marked(const struct span_tree *t, u64 addr, u32 marks)
{
	return t->root && (t->root->marks & marks) ? marked(t->root, addr, marks) : NULL;
}

/* ---- life ---- */

void span_tree_init(struct span_tree *t, void (*free)(struct tree_span *s))
{
	*t = (struct span_tree){ .free = free };
}

void span_tree_clear(struct span_tree *t)
{
	if (t->root)
		node_put(t, t->root);
	t->root = NULL;
	t->count = 0;
	t->shared = false;
	while (t->spare)
		free(spare_pop(t));
}

void span_tree_share(struct span_tree *t, struct span_tree *from)
{
	ASSERT(!t->root);
	t->shared = from->shared = true;
	if (from->root)
		refs_get(&from->root->refs);
	t->root = from->root;
	t->count = from->count;
}

/* Makes *link and what lies between the spans that start at `low` and `high` the tree's own. */
static int own(struct span_tree *t, void **link, u64 low, u64 high)
{
	struct span_node *n = *link;
	int err = 0;

	if (!only_one(&n->refs)) {
		struct span_node *copy = node_copy(n);

		if (!copy)
			return -ENOMEM;
		node_put(t, n);
		*link = n = copy;
	}
	if (!n->level)
		return 0;
	for (u32 i = index_of(n, low), end = index_of(n, high); i <= end && err == 0; i++)
		err = own(t, &n->item[i], low, high);
	return err;
}

int span_tree_own(struct span_tree *t, u64 start, u64 end)
{
	struct tree_span *low, *high;
	void *root = t->root;
	int err;

	if (spares_fill(t) < 0)
		return -ENOMEM;
	if (!root || !t->shared)
		return 0;
	low = span_tree_before(t, start);
	high = span_tree_seek(t, end);
	err = own(t, &root, low ? low->start : 0, high ? high->start : UINT64_MAX);
	t->root = root;
	return err;
}

/* ---- changes ---- */

static struct span_node *insert(struct span_tree *t, struct span_node *n, struct tree_span *s)
{
	struct span_node *more;
	u32 i;

	ASSERT(only_one(&n->refs));
	if (!n->level)
		return put_in(t, n, rank(n, s->start), s->start, s);
	i = index_of(n, s->start);
	more = insert(t, child(n, i), s);
	n->first[i] = child(n, i)->first[0];
	if (more)
		return put_in(t, n, i + 1, more->first[0], more);
	refresh(n);
	return NULL;
}

void span_tree_insert(struct span_tree *t, struct tree_span *s)
{
	struct tree_span *next = span_tree_seek(t, s->start);
	struct span_node *left, *right;

	ASSERT(s->start < s->end && (!next || s->end <= next->start));
	if (!t->root)
		t->root = node_new(t, 0);
	left = t->root;
	right = insert(t, left, s);
	t->count++;
	if (!right)
		return;
	t->root = node_new(t, (u16)(left->level + 1));
	put_in(t, t->root, 0, left->first[0], left);
	put_in(t, t->root, 1, right->first[0], right);
}

/* Moves all items of `from`, a child of n's own or shared, into n at i, and drops it. */
static void take_items(struct span_tree *t, struct span_node *n, u32 i, struct span_node *from)
{
	bool shared = !only_one(&from->refs);

	for (u32 k = 0; shared && k < from->count; k++)
		item_get(from, k);
	move_items(n, i + from->count, n, i, n->count - i);
	move_items(n, i, from, 0, from->count);
	n->count += from->count;
	refresh(n);
	if (shared)
		node_put(t, from);
	else
		node_free(t, from);
}

/* Joins the i-th child, which is the tree's own, with a neighbour if both are small. */
static void absorb(struct span_tree *t, struct span_node *parent, u32 i)
{
	struct span_node *n = child(parent, i);

	if (i + 1 < parent->count && n->count + child(parent, i + 1)->count <= MERGE_MAX) {
		take_items(t, n, n->count, child(parent, i + 1));
		cut(parent, i + 1);
	} else if (i > 0 && n->count + child(parent, i - 1)->count <= MERGE_MAX) {
		take_items(t, n, 0, child(parent, i - 1));
		cut(parent, i - 1);
		parent->first[i - 1] = n->first[0];
	}
}

/* Leaves out levels with a single node. */
static void lower_root(struct span_tree *t)
{
	while (t->root->level && t->root->count == 1) {
		struct span_node *old = t->root;

		/* What a root that is shared leads to is shared as well. */
		if (!only_one(&old->refs))
			return;
		t->root = child(old, 0);
		node_free(t, old);
	}
}

void span_tree_remove(struct span_tree *t, struct tree_span *s)
{
	struct step path[MAX_LEVELS];
	u32 depth = descend_to(t, s, path);

	cut(path[depth - 1].node, path[depth - 1].at);
	t->count--;
	while (--depth > 0) {
		struct span_node *n = path[depth].node, *parent = path[depth - 1].node;
		u32 i = path[depth - 1].at;

		if (!n->count) {
			cut(parent, i);
			node_free(t, n);
			continue;
		}
		refresh(n);
		parent->first[i] = n->first[0];
		absorb(t, parent, i);
	}
	if (!t->root->count) {
		struct span_node *old = t->root;

		t->root = NULL;
		node_free(t, old);
		return;
	}
	refresh(t->root);
	lower_root(t);
}

void span_tree_replace(struct span_tree *t, struct tree_span *s, struct tree_span *to)
{
	struct step path[MAX_LEVELS];
	u32 depth = descend_to(t, s, path);

	ASSERT(to->start == s->start && to->end == s->end && to->low == s->low);
	path[depth - 1].node->item[path[depth - 1].at] = to;
	if (to->marks != s->marks)
		refresh_path(path, depth);
}

void span_tree_resize(struct span_tree *t, struct tree_span *s, u64 start, u64 end, u64 low)
{
	struct step path[MAX_LEVELS];
	u32 depth = descend_to(t, s, path);

	ASSERT(start < end && span_exclusive(s));
	s->start = start;
	s->end = end;
	s->low = low;
	path[depth - 1].node->first[path[depth - 1].at] = start;
	refresh_path(path, depth);
}

void span_tree_changed(struct span_tree *t, struct tree_span *s)
{
	struct step path[MAX_LEVELS];

	refresh_path(path, descend_to(t, s, path));
}

/* ---- gaps ---- */

static bool fits(const struct gap_query *q, u64 from, u64 to, u64 *ret)
{
	u64 start;

	from = MAX(from, q->low);
	to = MIN(to, q->high);
	if (to <= from || to - from < q->len)
		return false;
	start = q->top_down ? (to - q->len) & ~(q->align - 1)
			    : (from + q->align - 1) & ~(q->align - 1);
	if (start < from || start > to - q->len)
		return false;
	*ret = start;
	return true;
}

/* Between what is in n; the sides are its parent's. */
static bool find_between(const struct span_node *n, const struct gap_query *q, u64 *ret)
{
	if (n->gap < q->len || n->high <= q->low || n->low >= q->high)
		return false;
	for (u32 k = 0; k < n->count; k++) {
		u32 i = q->top_down ? n->count - 1U - k : k;
		bool inside = n->level && !q->top_down && find_between(child(n, i), q, ret);

		if (inside ||
		    (i + 1U < n->count && fits(q, item_high(n, i), item_low(n, i + 1), ret)) ||
		    (n->level && q->top_down && find_between(child(n, i), q, ret)))
			return true;
	}
	return false;
}

bool span_tree_find_gap(const struct span_tree *t, const struct gap_query *q, u64 *ret_start)
{
	const struct span_node *n = t->root;

	if (!n)
		return fits(q, q->low, q->high, ret_start);
	if (q->top_down)
		return fits(q, n->high, UINT64_MAX, ret_start) || find_between(n, q, ret_start) ||
		       fits(q, 0, n->low, ret_start);
	return fits(q, 0, n->low, ret_start) || find_between(n, q, ret_start) ||
	       fits(q, n->high, UINT64_MAX, ret_start);
}
