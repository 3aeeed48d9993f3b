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

static void reg_count(struct vma_reg *reg, int delta)
{
	if (reg->mappable->ops->count)
		reg->mappable->ops->count(reg->mappable, delta);
}

void vma_reg_use(struct vma_reg *reg)
{
	reg->users++;
	reg_count(reg, 1);
}

void vma_reg_release(struct vma_reg *reg)
{
	if (!reg)
		return;
	if (--reg->users) {
		reg_count(reg, -1);
		return;
	}
	reg->mappable->ops->remove(reg->mappable, &reg->m);
	reg_unref(reg);
}

/* ---- life ---- */

struct vma *vma_dup(const struct vma *v, u64 start, u64 end)
{
	struct vma *n = vma_new();

	if (!n)
		return NULL;
	n->start = start;
	n->end = end;
	n->prot = v->prot;
	n->max_prot = v->max_prot;
	n->flags = v->flags;
	n->mappable = v->mappable;
	if (n->mappable) {
		/* Unsigned wrap is intended: a copy may lie below v. */
		n->offset = v->offset + (start - v->start);
		n->mappable->ops->get(n->mappable);
	}
	n->name = vma_name_get(v->name);
	n->anon_name = vma_name_get(v->anon_name);
	return n;
}

struct vma *vma_own(struct mm *mm, struct vma *v)
{
	struct vma *n;

	if (vma_set_own(&mm->vmas, v->start, v->end) < 0)
		return NULL;
	if (span_exclusive(&v->span))
		return v;
	ASSERT(!v->reg);
	n = vma_dup(v, v->start, v->end);
	if (!n)
		return NULL;
	vma_set_replace(&mm->vmas, v, n);
	vma_put(v);
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
	if (v->flags & VMA_ACCOUNT)
		mm->accounted += len;
	if (mm->total > mm->peak_vm)
		mm->peak_vm = mm->total;
}

bool mm_may_expand(const struct mm *mm, const struct mm_limits *l, u8 prot, u32 flags, u64 add,
		   u64 replaced)
{
	u64 total = mm->total - MIN(replaced, mm->total);

	if (add > mm->max || total + add > l->as)
		return false;
	return !is_data(prot, flags) || mm->data + add <= mm_data_limit(l);
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
	if (!v->reg && !span_exclusive(&v->span)) {
		vma_put(v);
		return;
	}
	v->dead_next = op->dead;
	op->dead = v;
}

void vma_exchange(struct mm *mm, struct vma *v, struct vma *n)
{
	account(mm, v, (u64)-1);
	if (!n) {
		vma_set_remove(&mm->vmas, v);
		return;
	}
	vma_set_replace(&mm->vmas, v, n);
	if (n->reg)
		list_push_back(&n->reg->vmas, &n->reg_node);
	account(mm, n, 1);
}

void vma_share_all(struct mm *mm, struct mm *from)
{
	vma_set_share(&mm->vmas, &from->vmas);
	mm->total = from->total;
	mm->data = from->data;
	mm->locked = from->locked;
	mm->accounted = from->accounted;
}

struct vma *vma_leave_all(struct mm *mm)
{
	struct vma *dead = NULL, *v = vma_set_marked(&mm->vmas, 0, VMA_MARK_FILE);

	for (; v; v = vma_set_marked(&mm->vmas, v->end, VMA_MARK_FILE)) {
		/* A fork that failed has left some of its parent's. */
		if (v->reg->mm != mm)
			continue;
		list_del(&v->reg_node);
		refs_get(&v->refs);
		v->dead_next = dead;
		dead = v;
	}
	vma_set_clear(&mm->vmas);
	mm->total = mm->data = mm->locked = mm->accounted = 0;
	return dead;
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
	ASSERT(span_exclusive(&v->span));
	v->prot = prot;
	v->flags = flags;
	mm->vmas.generation++;
	account(mm, v, 1);
	if (changed)
		vma_set_touch(&mm->vmas, v);
}

/* Cuts v at addr; v may go. -ENOMEM. */
static int split(struct mm *mm, struct vma *v, u64 addr)
{
	struct vma *upper;
	u64 end = v->end;

	ASSERT(v->start < addr && addr < v->end);
	if (vma_set_count(&mm->vmas) >= MM_MAX_VMAS)
		return -ENOMEM;
	v = vma_own(mm, v);
	upper = v ? vma_dup(v, addr, end) : NULL;
	if (!upper)
		return -ENOMEM;
	upper->reg = v->reg;
	if (upper->reg)
		vma_reg_use(upper->reg);
	vma_resize(mm, v, v->start, addr);
	vma_enter(mm, upper);
	return 0;
}

int vma_cut(struct mm *mm, u64 start, u64 end)
{
	struct vma *v = vma_set_find(&mm->vmas, start);
	int err = 0;

	if (v && v->start < start)
		err = split(mm, v, start);
	v = err == 0 ? vma_set_find(&mm->vmas, end) : NULL;
	if (v && v->start < end)
		err = split(mm, v, end);
	return err < 0 ? err : vma_set_own(&mm->vmas, start, end);
}

int vma_change_part(struct mm_op *op, u64 start, u64 end, u32 flags)
{
	struct mm *mm = op->mm;
	struct vma *v;
	int err = vma_cut(mm, start, end);

	if (err < 0)
		return err;
	v = vma_own(mm, vma_set_find(&mm->vmas, start));
	if (!v)
		return -ENOMEM;
	vma_change(mm, v, v->prot, flags);
	vma_merge(op, v);
	return 0;
}

static bool alike(const struct vma *a, const struct vma *b)
{
	return a->end == b->start && a->prot == b->prot && a->max_prot == b->max_prot &&
	       a->flags == b->flags && !(a->flags & VMA_RESERVED) && a->mappable == b->mappable &&
	       a->reg == b->reg && a->name == b->name && a->anon_name == b->anon_name &&
	       (!a->mappable || (a->offset + vma_len(a) == b->offset && !a->mappable->ops->count));
}

struct vma *vma_merge(struct mm_op *op, struct vma *v)
{
	struct mm *mm = op->mm;
	struct vma *next = vma_next(&mm->vmas, v), *prev, *own;

	/* Without memory they stay apart. */
	if (next && alike(v, next) && (own = vma_own(mm, v))) {
		u64 end = next->end;

		v = own;
		vma_leave(op, next);
		vma_resize(mm, v, v->start, end);
	}
	prev = vma_prev(&mm->vmas, v);
	if (prev && alike(prev, v) && (own = vma_own(mm, prev))) {
		u64 end = v->end;

		vma_leave(op, v);
		v = own;
		vma_resize(mm, v, v->start, end);
	}
	return v;
}
