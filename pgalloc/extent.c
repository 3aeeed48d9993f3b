#include "pgalloc/extent.h"

#include "base/log.h"

#include <stdlib.h>

#define POOL_SLAB 64
/* Refilled below this: a get or put splits at most twice, a take once. */
#define POOL_LOW 8
#define MAX_ACCT_IDS 4096

struct extent_slab {
	struct extent_slab *next;
	struct extent e[POOL_SLAB];
};

static struct extent *of(const struct avl_node *n)
{
	return n ? container_of(n, struct extent, node) : NULL;
}

static struct extent *next_of(struct extent *e)
{
	return of(avl_next(&e->node));
}

static void free_update(struct avl_node *n)
{
	struct extent *e = of(n), *l = of(n->left), *r = of(n->right);

	e->longest = e->end - e->start;
	if (l && l->longest > e->longest)
		e->longest = l->longest;
	if (r && r->longest > e->longest)
		e->longest = r->longest;
}

/* ---- node pool ---- */

static void node_free(struct extents *x, struct extent *e)
{
	e->node.parent = x->pool ? &x->pool->node : NULL;
	x->pool = e;
	x->pool_count++;
}

static bool pool_fill(struct extents *x)
{
	struct extent_slab *slab;

	if (x->pool_count >= POOL_LOW)
		return true;
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return false;
	slab->next = x->slabs;
	x->slabs = slab;
	for (int i = 0; i < POOL_SLAB; i++)
		node_free(x, &slab->e[i]);
	return true;
}

static struct extent *node_new(struct extents *x, u64 start, u64 end)
{
	struct extent *e = x->pool;

	if (!e)
		PANIC("pgalloc: no memory for an extent");
	x->pool = of(e->node.parent);
	x->pool_count--;
	*e = (struct extent){ .start = start, .end = end };
	return e;
}

/* ---- trees ---- */

static void tree_insert(struct avl_root *root, struct extent *e)
{
	struct avl_node *parent = NULL, **link = &root->top;

	while (*link) {
		parent = *link;
		link = e->start < of(parent)->start ? &parent->left : &parent->right;
	}
	avl_insert(root, &e->node, parent, link);
}

/* The extent that holds offset, or else the next one. */
static struct extent *tree_at_or_after(const struct avl_root *root, u64 offset)
{
	struct avl_node *n = root->top;
	struct extent *best = NULL;

	while (n) {
		struct extent *e = of(n);

		if (e->end > offset) {
			best = e;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

int extents_init(struct extents *x, u64 capacity)
{
	*x = (struct extents){ .free = { .update = free_update } };
	if (!pool_fill(x))
		return -ENOMEM;
	tree_insert(&x->free, node_new(x, 0, capacity));
	return 0;
}

void extents_destroy(struct extents *x)
{
	while (x->slabs) {
		struct extent_slab *next = x->slabs->next;

		free(x->slabs);
		x->slabs = next;
	}
	free(x->acct);
}

/* ---- accounting ---- */

static struct acct_usage *acct_row(const struct extents *x, u32 acct)
{
	for (size_t i = 0; i < x->acct_count; i++)
		if (x->acct[i].id == acct)
			return &x->acct[i];
	return NULL;
}

int extents_reserve(struct extents *x, u32 acct)
{
	struct acct_usage *rows;

	if (!pool_fill(x))
		return -ENOMEM;
	if (acct_row(x, acct))
		return 0;
	/* A row without bytes belongs to an id that is gone, or not yet in use: take it over. */
	for (size_t i = 0; i < x->acct_count; i++) {
		if (x->acct[i].bytes == 0) {
			x->acct[i].id = acct;
			return 0;
		}
	}
	if (x->acct_count >= MAX_ACCT_IDS)
		return -ENOMEM;
	rows = realloc(x->acct, (x->acct_count + 1) * sizeof(*rows));
	if (!rows)
		return -ENOMEM;
	x->acct = rows;
	rows[x->acct_count++] = (struct acct_usage){ .id = acct };
	return 0;
}

static void account(struct extents *x, u32 acct, u64 add, u64 sub)
{
	struct acct_usage *row = acct_row(x, acct);

	ASSERT(row && row->bytes + add >= sub);
	row->bytes += add - sub;
	x->reserved += add - sub;
}

u64 extents_acct(const struct extents *x, u32 acct)
{
	struct acct_usage *row = acct_row(x, acct);

	return row ? row->bytes : 0;
}

/* ---- the free set ---- */

static void carve(struct extents *x, struct extent *e, u64 start, u64 end)
{
	u64 tail_end = e->end;

	ASSERT(e->start <= start && end <= e->end);
	if (start > e->start) {
		e->end = start;
		avl_updated(&x->free, &e->node);
		if (end < tail_end)
			tree_insert(&x->free, node_new(x, end, tail_end));
	} else if (end < tail_end) {
		e->start = end; /* order is kept */
		avl_updated(&x->free, &e->node);
	} else {
		avl_remove(&x->free, &e->node);
		node_free(x, e);
	}
}

/* The lowest free run that starts at or after `from` (or contains it) with at least len bytes after
 * from; pruned by `longest`. */
static struct extent *first_fit(struct avl_node *n, u64 len, u64 from)
{
	struct extent *e = of(n), *found;

	if (!e || e->longest < len)
		return NULL;
	if (e->start > from) {
		found = first_fit(n->left, len, from);
		if (found)
			return found;
	}
	if (e->end > from && e->end - MAX(e->start, from) >= len)
		return e;
	return first_fit(n->right, len, from);
}

static bool take_hint(struct extents *x, const struct fit *fit, struct mem_range *ret)
{
	struct extent *e;
	u64 start;

	if (fit->down) {
		if (fit->hint < fit->len)
			return false;
		start = fit->hint - fit->len;
	} else {
		start = fit->hint;
	}
	e = tree_at_or_after(&x->free, start);
	if (!e || e->start > start || e->end - start < fit->len || (start & (fit->align - 1)))
		return false;
	carve(x, e, start, start + fit->len);
	*ret = (struct mem_range){ start, start + fit->len };
	return true;
}

static bool take_from(struct extents *x, const struct fit *fit, u64 from, u64 room,
		      struct mem_range *ret)
{
	u64 slack = fit->align - PAGE_SIZE, start;
	struct extent *e;

	if (fit->len > UINT64_MAX / 4 || room > UINT64_MAX / 8)
		return false;
	e = first_fit(x->free.top, fit->len + slack + 2 * room, from);
	if (!e)
		return false;
	start = MAX(e->start, from) + room;
	start = (start + fit->align - 1) & ~(fit->align - 1);
	carve(x, e, start, start + fit->len);
	*ret = (struct mem_range){ start, start + fit->len };
	return true;
}

bool extents_take(struct extents *x, const struct fit *fit, struct mem_range *ret)
{
	if (fit->hint && take_hint(x, fit, ret))
		return true;
	return take_from(x, fit, fit->start, fit->room, ret) ||
	       (fit->room && take_from(x, fit, fit->start, 0, ret)) ||
	       (fit->start && take_from(x, fit, 0, 0, ret));
}

void extents_release(struct extents *x, struct mem_range r)
{
	struct extent *next = tree_at_or_after(&x->free, r.start), *prev;

	ASSERT(!next || next->start >= r.end);
	prev = next ? of(avl_prev(&next->node)) : of(avl_last(&x->free));
	if (prev && prev->end == r.start) {
		prev->end = r.end;
		if (next && next->start == r.end) {
			prev->end = next->end;
			avl_remove(&x->free, &next->node);
			node_free(x, next);
		}
		avl_updated(&x->free, &prev->node);
	} else if (next && next->start == r.end) {
		next->start = r.start;
		avl_updated(&x->free, &next->node);
	} else {
		pool_fill(x); /* node_new panics when this failed and the pool is empty */
		tree_insert(&x->free, node_new(x, r.start, r.end));
	}
}

/* ---- the used set ---- */

/* Merges e with its left neighbour when they are alike; returns the one that stays. */
static struct extent *merge_left(struct extents *x, struct extent *e)
{
	struct extent *prev = of(avl_prev(&e->node));

	if (!prev || prev->end != e->start || prev->refs != e->refs || prev->acct != e->acct)
		return e;
	prev->end = e->end;
	avl_remove(&x->used, &e->node);
	node_free(x, e);
	return prev;
}

/* The used extent that starts at offset exactly, splitting the one that holds it. */
static struct extent *split_at(struct extents *x, struct extent *e, u64 offset)
{
	struct extent *right;

	ASSERT(e && e->start <= offset && offset < e->end);
	if (e->start == offset)
		return e;
	right = node_new(x, offset, e->end);
	right->refs = e->refs;
	right->acct = e->acct;
	e->end = offset;
	tree_insert(&x->used, right);
	return right;
}

void extents_use(struct extents *x, struct mem_range r, u32 acct)
{
	struct extent *e = node_new(x, r.start, r.end), *next;

	e->refs = 1;
	e->acct = acct;
	tree_insert(&x->used, e);
	account(x, acct, mem_range_len(r), 0);
	e = merge_left(x, e);
	next = next_of(e);
	if (next)
		merge_left(x, next);
}

void extents_get(struct extents *x, struct mem_range r)
{
	struct extent *e;
	u64 pos = r.start;

	if (!pool_fill(x) && x->pool_count < 2)
		PANIC("pgalloc: no memory for an extent");
	e = split_at(x, tree_at_or_after(&x->used, pos), pos);
	while (pos < r.end) {
		ASSERT(e && e->start == pos);
		if (e->end > r.end)
			split_at(x, e, r.end);
		ASSERT(e->refs < UINT32_MAX);
		e->refs++;
		pos = e->end;
		e = next_of(merge_left(x, e));
	}
	if (e)
		merge_left(x, e);
}

static void add_dead(struct dead_run *dead, size_t *count, u64 start, u64 end)
{
	if (*count && dead[*count - 1].end == start)
		dead[*count - 1].end = end;
	else
		dead[(*count)++] = (struct dead_run){ start, end };
}

u64 extents_put(struct extents *x, struct mem_range r, struct dead_run *ret_dead, size_t max,
		size_t *ret_count)
{
	struct extent *e, *next;
	size_t count = 0;
	u64 pos = r.start;

	if (!pool_fill(x) && x->pool_count < 2)
		PANIC("pgalloc: no memory for an extent");
	e = split_at(x, tree_at_or_after(&x->used, pos), pos);
	while (pos < r.end && count < max) {
		ASSERT(e && e->start == pos);
		if (e->end > r.end)
			split_at(x, e, r.end);
		pos = e->end;
		if (--e->refs == 0) {
			next = next_of(e);
			account(x, e->acct, 0, e->end - e->start);
			add_dead(ret_dead, &count, e->start, e->end);
			avl_remove(&x->used, &e->node);
			node_free(x, e);
			e = next;
		} else {
			e = next_of(merge_left(x, e));
		}
	}
	if (e)
		merge_left(x, e);
	*ret_count = count;
	return pos;
}

u32 extents_refs(const struct extents *x, u64 offset, u64 *ret_end)
{
	struct extent *e = tree_at_or_after(&x->used, offset);

	if (!e || e->start > offset) {
		*ret_end = e ? e->start : UINT64_MAX;
		return 0;
	}
	*ret_end = e->end;
	return e->refs;
}

u64 extents_shared(const struct extents *x, u64 from, u32 acct, size_t max, u64 *io_bytes)
{
	struct extent *e = tree_at_or_after(&x->used, from);

	for (; e && max; e = next_of(e), max--)
		if (e->refs > 1 && e->acct == acct)
			*io_bytes += e->end - MAX(e->start, from);
	return e ? e->start : 0;
}
