#include "mm/pma_set.h"

#include "base/log.h"

#include <stdlib.h>

/* Nodes kept for reuse; more are given back to the allocator. */
#define POOL_MAX 64

static struct pma *of(const struct avl_node *n)
{
	return n ? container_of(n, struct pma, node) : NULL;
}

void pma_set_init(struct pma_set *s)
{
	*s = (struct pma_set){ 0 };
}

static struct pma *pool_pop(struct pma_set *s)
{
	struct pma *p = s->pool;

	ASSERT(p);
	s->pool = of(p->node.parent);
	s->pool_count--;
	return p;
}

static void pool_push(struct pma_set *s, struct pma *p)
{
	p->node.parent = s->pool ? &s->pool->node : NULL;
	s->pool = p;
	s->pool_count++;
}

void pma_set_destroy(struct pma_set *s)
{
	ASSERT(s->count == 0);
	while (s->pool)
		free(pool_pop(s));
}

int pma_set_reserve(struct pma_set *s, size_t count)
{
	while (s->pool_count < count) {
		struct pma *p = malloc(sizeof(*p));

		if (!p)
			return -ENOMEM;
		pool_push(s, p);
	}
	return 0;
}

struct pma *pma_set_seek(const struct pma_set *s, u64 addr)
{
	struct avl_node *n = s->root.top;
	struct pma *best = NULL;

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

struct pma *pma_set_find(const struct pma_set *s, u64 addr)
{
	struct pma *p = pma_set_seek(s, addr);

	return p && p->start <= addr ? p : NULL;
}

struct pma *pma_next(const struct pma *p)
{
	return of(avl_next(&p->node));
}

struct pma *pma_prev(const struct pma *p)
{
	return of(avl_prev(&p->node));
}

struct pma *pma_set_add(struct pma_set *s, const struct pma *value)
{
	struct pma *p = pool_pop(s);
	struct avl_node *parent = NULL, **link = &s->root.top;

	*p = *value;
	ASSERT(p->start < p->end);
	while (*link) {
		parent = *link;
		ASSERT(p->end <= of(parent)->start || p->start >= of(parent)->end);
		link = p->start < of(parent)->start ? &parent->left : &parent->right;
	}
	avl_insert(&s->root, &p->node, parent, link);
	s->count++;
	s->mapped += p->host_map != PMA_UNMAPPED;
	s->generation++;
	return p;
}

void pma_set_drop(struct pma_set *s, struct pma *p)
{
	avl_remove(&s->root, &p->node);
	s->count--;
	s->mapped -= p->host_map != PMA_UNMAPPED;
	s->generation++;
	if (s->pool_count < POOL_MAX)
		pool_push(s, p);
	else
		free(p);
}

static void split_at(struct pma_set *s, u64 addr)
{
	struct pma *p = pma_set_find(s, addr);
	struct pma right;

	if (!p || p->start == addr)
		return;
	right = *p;
	right.start = addr;
	right.offset += addr - p->start;
	p->end = addr;
	pma_set_add(s, &right);
}

void pma_set_split(struct pma_set *s, u64 start, u64 end)
{
	split_at(s, start);
	split_at(s, end);
}

struct pma *pma_set_isolate(struct pma_set *s, struct pma *p, u64 start, u64 end)
{
	if (p->start == start && p->end == end)
		return p;
	pma_set_split(s, start, end);
	return pma_set_find(s, start);
}

void pma_set_host(struct pma_set *s, struct pma *p, enum pma_map map, u8 prot)
{
	s->mapped -= p->host_map != PMA_UNMAPPED;
	s->mapped += map != PMA_UNMAPPED;
	p->host_map = map;
	p->host_prot = prot;
}

static bool continues(const struct pma *a, const struct pma *b)
{
	return a->end == b->start && a->file == b->file &&
	       (!a->file || a->offset + (a->end - a->start) == b->offset) && a->owned == b->owned &&
	       a->cow == b->cow && a->text == b->text && a->writable == b->writable &&
	       a->host_prot == b->host_prot && a->host_map == b->host_map;
}

void pma_set_append(struct pma_set *s, const struct pma *value)
{
	struct avl_node *last = avl_last(&s->root);
	struct pma *p;

	ASSERT(!last || of(last)->end <= value->start);
	s->generation++;
	if (last && continues(of(last), value)) {
		of(last)->end = value->end;
		return;
	}
	p = pool_pop(s);
	*p = *value;
	avl_insert(&s->root, &p->node, last, last ? &last->right : &s->root.top);
	s->count++;
	s->mapped += p->host_map != PMA_UNMAPPED;
}

struct pma *pma_set_merge(struct pma_set *s, struct pma *p)
{
	struct pma *prev = pma_prev(p), *next = pma_next(p);
	u64 end = p->end;

	if (next && continues(p, next)) {
		end = next->end;
		pma_set_drop(s, next);
		p->end = end;
	}
	if (prev && continues(prev, p)) {
		pma_set_drop(s, p);
		prev->end = end;
		p = prev;
	}
	return p;
}
