/* vmas: registration with mappables, split, merge, accounting. */
#include "mm/mm_impl.h"

#include <stdlib.h>

/* ---- registration ---- */

static bool reg_tryget(struct mapping *m)
{
	struct vma_reg *reg = container_of(m, struct vma_reg, m);

	if (!refs_tryget(&reg->mm->refs))
		return false;
	if (refs_tryget(&reg->refs))
		return true;
	mm_put(reg->mm);
	return false;
}

static void reg_unref(struct vma_reg *reg)
{
	struct mappable *mappable = reg->mappable;

	if (!refs_put(&reg->refs))
		return;
	free(reg);
	mappable->ops->put(mappable);
}

static void reg_put(struct mapping *m)
{
	struct vma_reg *reg = container_of(m, struct vma_reg, m);
	struct mm *mm = reg->mm;

	reg_unref(reg);
	mm_put(mm);
}

/* The mappable's pages [start, end) went away: drop what maps them. */
static void reg_invalidate(struct mapping *m, u64 start, u64 end, bool private_too)
{
	struct vma_reg *reg = container_of(m, struct vma_reg, m);
	struct mm *mm = reg->mm;
	struct vma *v;

	mutex_lock(&mm->active_lock);
	list_for_each (v, &reg->vmas, reg_node) {
		u64 from = MAX(start, v->offset), to = MIN(end, v->offset + vma_len(v));

		if (from < to)
			backing_drop(mm, v->start + (from - v->offset), v->start + (to - v->offset),
				     !private_too);
	}
	mutex_unlock(&mm->active_lock);
}

int vma_reg_new(struct mm *mm, struct mappable *mappable, u64 start, u64 end, bool shared,
		bool writable, struct vma_reg **ret)
{
	struct vma_reg *reg = calloc(1, sizeof(*reg));
	int err;

	if (!reg)
		return -ENOMEM;
	reg->m = (struct mapping){
		.start = start,
		.end = end,
		.shared = shared,
		.writable = shared && writable,
		.invalidate = reg_invalidate,
		.tryget = reg_tryget,
		.put = reg_put,
	};
	list_init(&reg->m.node);
	refs_init(&reg->refs, "vma_reg");
	reg->mm = mm;
	reg->mappable = mappable;
	reg->users = 1;
	list_init(&reg->vmas);
	mappable->ops->get(mappable);
	err = mappable->ops->add(mappable, &reg->m);
	if (err < 0) {
		reg_unref(reg);
		return err;
	}
	*ret = reg;
	return 0;
}

void vma_reg_release(struct vma_reg *reg)
{
	if (!reg || --reg->users)
		return;
	reg->mappable->ops->remove(reg->mappable, &reg->m);
	reg_unref(reg);
}

/* ---- life ---- */

void vma_free(struct vma *v)
{
	if (v->mappable)
		v->mappable->ops->put(v->mappable);
	vma_name_put(v->name);
	vma_name_put(v->anon_name);
	free(v);
}

struct vma *vma_dup(struct vma *v, u64 start, u64 end)
{
	struct vma *n = malloc(sizeof(*n));

	if (!n)
		return NULL;
	*n = *v;
	n->start = start;
	n->end = end;
	if (n->mappable) {
		/* Unsigned wrap is intended: a copy may lie below v. */
		n->offset = v->offset + (start - v->start);
		n->mappable->ops->get(n->mappable);
	}
	if (n->reg)
		n->reg->users++;
	vma_name_get(n->name);
	vma_name_get(n->anon_name);
	list_init(&n->reg_node);
	return n;
}

/* ---- accounting ---- */

static bool is_data(u8 prot, u32 flags)
{
	return (prot & PROT_WRITE) && !(flags & (VMA_SHARED | VMA_GROWSDOWN | VMA_RESERVED));
}

static void account(struct mm *mm, const struct vma *v, u64 sign)
{
	u64 len = vma_len(v) * sign;

	mm->total += len;
	if (is_data(v->prot, v->flags))
		mm->data += len;
	if (v->flags & VMA_LOCKED)
		mm->locked += len;
	if (mm->total > mm->peak_vm)
		mm->peak_vm = mm->total;
}

bool mm_may_expand(const struct mm *mm, const struct mm_limits *l, u8 prot, u32 flags, u64 add,
		   u64 replaced)
{
	u64 total = mm->total - MIN(replaced, mm->total);

	if (add > mm->max || total + add > l->as)
		return false;
	return !is_data(prot, flags) || mm->data + add <= l->data;
}

int mm_may_lock(const struct mm *mm, const struct mm_limits *l, u64 add)
{
	if (l->may_lock)
		return 0;
	if (!l->memlock)
		return -EPERM;
	return add > mm->max || mm->locked + add > page_down(l->memlock) ? -EAGAIN : 0;
}

/* ---- the set ---- */

void vma_enter(struct mm *mm, struct vma *v)
{
	vma_set_insert(&mm->vmas, v);
	if (v->reg)
		list_push_back(&v->reg->vmas, &v->reg_node);
	account(mm, v, 1);
}

static void take_out(struct mm *mm, struct vma *v)
{
	account(mm, v, (u64)-1);
	vma_set_remove(&mm->vmas, v);
	if (v->reg)
		list_del(&v->reg_node);
}

void vma_leave(struct mm_op *op, struct vma *v)
{
	take_out(op->mm, v);
	v->dead_next = op->dead;
	op->dead = v;
}

void vma_resize(struct mm *mm, struct vma *v, u64 start, u64 end)
{
	account(mm, v, (u64)-1);
	if (v->mappable)
		v->offset += start - v->start;
	vma_set_resize(&mm->vmas, v, start, end);
	account(mm, v, 1);
}

void vma_change(struct mm *mm, struct vma *v, u8 prot, u32 flags)
{
	u32 changed = v->flags ^ flags;

	account(mm, v, (u64)-1);
	v->prot = prot;
	v->flags = flags;
	mm->vmas.generation++;
	account(mm, v, 1);
	if (changed & VMA_GROWSDOWN)
		vma_set_touch(&mm->vmas, v);
}

int vma_split(struct mm *mm, struct vma *v, u64 addr, struct vma **ret_upper)
{
	struct vma *upper;
	u64 end = v->end;

	ASSERT(v->start < addr && addr < v->end);
	if (mm->vmas.count >= MM_MAX_VMAS)
		return -ENOMEM;
	upper = vma_dup(v, addr, end);
	if (!upper)
		return -ENOMEM;
	vma_resize(mm, v, v->start, addr);
	vma_enter(mm, upper);
	if (ret_upper)
		*ret_upper = upper;
	return 0;
}

int vma_cut(struct mm *mm, u64 start, u64 end)
{
	struct vma *v = vma_set_find(&mm->vmas, start);
	int err = 0;

	if (v && v->start < start)
		err = vma_split(mm, v, start, NULL);
	v = err == 0 ? vma_set_find(&mm->vmas, end) : NULL;
	if (v && v->start < end)
		err = vma_split(mm, v, end, NULL);
	return err;
}

static bool alike(const struct vma *a, const struct vma *b)
{
	return a->end == b->start && a->prot == b->prot && a->max_prot == b->max_prot &&
	       a->flags == b->flags && !(a->flags & VMA_RESERVED) && a->mappable == b->mappable &&
	       a->reg == b->reg && a->name == b->name && a->anon_name == b->anon_name &&
	       (!a->mappable || a->offset + vma_len(a) == b->offset);
}

struct vma *vma_merge(struct mm_op *op, struct vma *v)
{
	struct vma *next = vma_next(v), *prev = vma_prev(v);

	if (next && alike(v, next)) {
		u64 end = next->end;

		vma_leave(op, next);
		vma_resize(op->mm, v, v->start, end);
	}
	if (prev && alike(prev, v)) {
		u64 end = v->end;

		vma_leave(op, v);
		vma_resize(op->mm, prev, prev->start, end);
		v = prev;
	}
	return v;
}
