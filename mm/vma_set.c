#include "mm/vma_set.h"

#include "base/mappable.h"

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

/* ---- a vma ---- */

struct vma *vma_new(void)
{
	struct vma *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	refs_init(&v->refs, "vma");
	list_init(&v->reg_node);
	return v;
}

static struct vma *of(const struct tree_span *s)
{
	return s ? container_of(s, struct vma, span) : NULL;
}

static void release(struct tree_span *s)
{
	struct vma *v = of(s);

	if (v->mappable)
		v->mappable->ops->put(v->mappable);
	vma_name_put(v->name);
	vma_name_put(v->anon_name);
	free(v);
}

void vma_put(struct vma *v)
{
	if (v && refs_put(&v->refs))
		release(&v->span);
}

u64 vma_guarded_start(const struct vma *v)
{
	if (!(v->flags & VMA_GROWSDOWN))
		return v->start;
	return v->start > STACK_GUARD_GAP ? v->start - STACK_GUARD_GAP : 0;
}

static u32 marks_of(const struct vma *v)
{
	return v->flags | (v->reg ? VMA_MARK_FILE : 0);
}

/* ---- the set ---- */

void vma_set_init(struct vma_set *s)
{
	span_tree_init(&s->tree, release);
	s->generation = 0;
}

void vma_set_clear(struct vma_set *s)
{
	span_tree_clear(&s->tree);
	s->generation++;
}

void vma_set_share(struct vma_set *s, struct vma_set *from)
{
	span_tree_share(&s->tree, &from->tree);
	s->generation++;
}

int vma_set_own(struct vma_set *s, u64 start, u64 end)
{
	return span_tree_own(&s->tree, start, end);
}

void vma_set_insert(struct vma_set *s, struct vma *v)
{
	v->low = vma_guarded_start(v);
	v->marks = marks_of(v);
	span_tree_insert(&s->tree, &v->span);
	s->generation++;
}

void vma_set_remove(struct vma_set *s, struct vma *v)
{
	span_tree_remove(&s->tree, &v->span);
	s->generation++;
}

void vma_set_replace(struct vma_set *s, struct vma *v, struct vma *copy)
{
	copy->low = vma_guarded_start(copy);
	copy->marks = marks_of(copy);
	span_tree_replace(&s->tree, &v->span, &copy->span);
	s->generation++;
}

void vma_set_resize(struct vma_set *s, struct vma *v, u64 start, u64 end)
{
	struct vma after = { .start = start, .flags = v->flags };

	span_tree_resize(&s->tree, &v->span, start, end, vma_guarded_start(&after));
	s->generation++;
}

void vma_set_touch(struct vma_set *s, struct vma *v)
{
	v->low = vma_guarded_start(v);
	v->marks = marks_of(v);
	span_tree_changed(&s->tree, &v->span);
	s->generation++;
}

struct vma *vma_set_marked(const struct vma_set *s, u64 addr, u32 marks)
{
	return of(span_tree_marked(&s->tree, addr, marks));
}

struct vma *vma_set_seek(const struct vma_set *s, u64 addr)
{
	return of(span_tree_seek(&s->tree, addr));
}

struct vma *vma_set_find(const struct vma_set *s, u64 addr)
{
	struct vma *v = vma_set_seek(s, addr);

	return v && v->start <= addr ? v : NULL;
}

struct vma *vma_set_first(const struct vma_set *s)
{
	return vma_set_seek(s, 0);
}

struct vma *vma_next(const struct vma_set *s, const struct vma *v)
{
	return vma_set_seek(s, v->end);
}

struct vma *vma_prev(const struct vma_set *s, const struct vma *v)
{
	return of(span_tree_before(&s->tree, v->start));
}

bool vma_set_find_gap(const struct vma_set *s, const struct gap_query *q, u64 *ret_start)
{
	return span_tree_find_gap(&s->tree, q, ret_start);
}
