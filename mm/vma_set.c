#include "mm/vma_set.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

struct vma_name *vma_name_new(const char *text)
{
	size_t len = strlen(text);
	struct vma_name *n = malloc(sizeof(*n) + len + 1);

	if (!n)
		return NULL;
	refs_init(&n->refs, "vma_name");
	memcpy(n->text, text, len + 1);
	return n;
}

struct vma_name *vma_name_get(struct vma_name *n)
{
	if (n)
		refs_get(&n->refs);
	return n;
}

void vma_name_put(struct vma_name *n)
{
	if (n && refs_put(&n->refs))
		free(n);
}

static struct vma *of(const struct avl_node *n)
{
	return n ? container_of(n, struct vma, node) : NULL;
}

u64 vma_guarded_start(const struct vma *v)
{
	if (!(v->flags & VMA_GROWSDOWN))
		return v->start;
	return v->start > STACK_GUARD_GAP ? v->start - STACK_GUARD_GAP : 0;
}

static u64 distance(u64 from, u64 to)
{
	return to > from ? to - from : 0;
}

static void update(struct avl_node *n)
{
	struct vma *v = of(n), *l = of(n->left), *r = of(n->right);
	u64 start = vma_guarded_start(v);

	v->low = start;
	v->high = v->end;
	v->gap = 0;
	if (l) {
		v->low = l->low;
		v->gap = MAX(l->gap, distance(l->high, start));
	}
	if (r) {
		v->high = r->high;
		v->gap = MAX(v->gap, MAX(r->gap, distance(v->end, r->low)));
	}
}

void vma_set_init(struct vma_set *s)
{
	*s = (struct vma_set){ .root = { .update = update } };
}

void vma_set_insert(struct vma_set *s, struct vma *v)
{
	struct avl_node *parent = NULL, **link = &s->root.top;

	ASSERT(v->start < v->end);
	while (*link) {
		parent = *link;
		ASSERT(v->end <= of(parent)->start || v->start >= of(parent)->end);
		link = v->start < of(parent)->start ? &parent->left : &parent->right;
	}
	avl_insert(&s->root, &v->node, parent, link);
	s->count++;
	s->generation++;
}

void vma_set_remove(struct vma_set *s, struct vma *v)
{
	avl_remove(&s->root, &v->node);
	s->count--;
	s->generation++;
}

void vma_set_resize(struct vma_set *s, struct vma *v, u64 start, u64 end)
{
	ASSERT(start < end);
	v->start = start;
	v->end = end;
	avl_updated(&s->root, &v->node);
	s->generation++;
}

void vma_set_touch(struct vma_set *s, struct vma *v)
{
	avl_updated(&s->root, &v->node);
}

struct vma *vma_set_seek(const struct vma_set *s, u64 addr)
{
	struct avl_node *n = s->root.top;
	struct vma *best = NULL;

	while (n) {
		if (of(n)->end > addr) {
			best = of(n);
			if (best->start <= addr)
				break;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

struct vma *vma_set_find(const struct vma_set *s, u64 addr)
{
	struct vma *v = vma_set_seek(s, addr);

	return v && v->start <= addr ? v : NULL;
}

struct vma *vma_set_first(const struct vma_set *s)
{
	return of(avl_first(&s->root));
}

struct vma *vma_next(const struct vma *v)
{
	return of(avl_next(&v->node));
}

struct vma *vma_prev(const struct vma *v)
{
	return of(avl_prev(&v->node));
}

/*
 * Searches [low, high), whose vmas are all in the subtree n. `limit` is where
 * the last gap ends: below high when what follows has a guard gap. (As in
 * Linux, a guard gap reaches down to the next vma at most.)
 */
static bool find(const struct avl_node *n, const struct gap_query *q, u64 low, u64 high, u64 limit,
		 u64 *ret)
{
	struct vma *v = of(n);
	u64 before;

	if (high <= low || high - low < q->len)
		return false;
	if (!v) {
		u64 start;

		if (limit <= low || limit - low < q->len)
			return false;
		start = q->top_down ? (limit - q->len) & ~(q->align - 1)
				    : (low + q->align - 1) & ~(q->align - 1);
		if (start < low || start > limit - q->len)
			return false;
		*ret = start;
		return true;
	}
	if (v->gap < q->len && distance(low, v->low) < q->len && distance(v->high, limit) < q->len)
		return false;
	before = MIN(high, vma_guarded_start(v));
	if (q->top_down)
		return find(n->right, q, MAX(low, v->end), high, limit, ret) ||
		       find(n->left, q, low, MIN(high, v->start), before, ret);
	return find(n->left, q, low, MIN(high, v->start), before, ret) ||
	       find(n->right, q, MAX(low, v->end), high, limit, ret);
}

bool vma_set_find_gap(const struct vma_set *s, const struct gap_query *q, u64 *ret_start)
{
	return find(s->root.top, q, q->low, q->high, q->high, ret_start);
}
