/* mremap: Linux's mm/mremap.c; remap_file_pages. */
#include "mm/mm_impl.h"

struct remap {
	u64 old, old_len, new, new_len; /* page-aligned lengths */
	int flags;
	const struct mm_limits *limits;
	u64 populate_from, populate_to; /* of locked memory that grew */
};

/* Moves the pmas of [from, from + len) to `to`, where nothing is. The stub has neither range mapped
 * after it. */
static int move_pmas(struct mm *mm, u64 from, u64 len, u64 to)
{
	struct pma *p, *next;
	bool mapped = false;

	if (pma_set_reserve(&mm->pmas, 2 * PMA_RESERVE) < 0)
		return -ENOMEM;
	pma_set_split(&mm->pmas, from, from + len);
	for (p = pma_set_seek(&mm->pmas, from); p && p->start < from + len; p = pma_next(p))
		mapped |= p->host_map != PMA_UNMAPPED;
	if (mapped) {
		stub_unmap(mm, from, from + len);
		/* It may have merged across the borders. */
		pma_set_split(&mm->pmas, from, from + len);
	}
	for (p = pma_set_seek(&mm->pmas, from); p && p->start < from + len; p = next) {
		struct pma value = *p;

		next = pma_next(p);
		pma_set_drop(&mm->pmas, p);
		if (!value.file)
			continue;
		value.start = value.start - from + to;
		value.end = value.end - from + to;
		value.host_prot = PROT_NONE;
		value.host_map = PMA_UNMAPPED;
		pma_set_add(&mm->pmas, &value);
	}
	p = pma_set_seek(&mm->pmas, to);
	if (p && p->start < to + len)
		pma_set_merge(&mm->pmas, p);
	return 0;
}

/*
 * A registration that covers [start, end) of v's file; v's own when it does already. A user is
 * added. The file may be telling of a change just now: it reaches v by its old registration, or
 * not any more, and not by one that is newer than the change. So the file's pages do not come along
 * to a new registration, faults ask for them again.
 */
static int reg_for(struct mm *mm, struct vma *v, u64 start, u64 end, struct vma_reg **ret)
{
	struct vma_reg *reg = v->reg;
	int err;

	*ret = NULL;
	if (!reg)
		return 0;
	if (reg->m.start <= start && end <= reg->m.end) {
		vma_reg_use(reg);
		*ret = reg;
		return 0;
	}
	/* map_lock keeps v in place meanwhile. */
	mutex_unlock(&mm->active_lock);
	err = vma_reg_new(mm, v->mappable, start, end, reg->m.shared, reg->m.writable, ret);
	if (err == -EPERM) /* a seal that came after this mapping does not concern it */
		err = vma_reg_new(mm, v->mappable, start, end, reg->m.shared, false, ret);
	mutex_lock(&mm->active_lock);
	if (err < 0)
		return err;
	err = backing_drop(mm, v->start, v->end, true);
	if (err < 0) {
		mutex_unlock(&mm->active_lock);
		vma_reg_release(*ret);
		mutex_lock(&mm->active_lock);
	}
	return err;
}

/* Puts v (in the set) under another registration; its old one loses a user when op ends. */
static void reg_replace(struct mm_op *op, struct vma *v, struct vma_reg *reg)
{
	struct vma_reg *old = v->reg;

	if (!old || !reg)
		return;
	if (old != reg) {
		list_del(&v->reg_node);
		v->reg = reg;
		list_push_back(&reg->vmas, &v->reg_node);
	}
	mutex_unlock(&op->mm->active_lock);
	vma_reg_release(old);
	mutex_lock(&op->mm->active_lock);
}

static int grow_in_place(struct mm_op *op, struct remap *r, struct vma *v)
{
	struct mm *mm = op->mm;
	struct vma_reg *reg;
	u32 flags = v->flags;
	int err;

	v = vma_own(mm, v);
	if (!v)
		return -ENOMEM;
	err = reg_for(mm, v, v->offset, v->offset + (r->old - v->start) + r->new_len, &reg);
	if (err < 0)
		return err;
	vma_resize(mm, v, v->start, r->old + r->new_len);
	reg_replace(op, v, reg);
	vma_merge(op, v);
	if (flags & VMA_LOCKED) {
		r->populate_from = r->old + r->old_len;
		r->populate_to = r->old + r->new_len;
	}
	return 0;
}

static bool can_grow_in_place(const struct mm *mm, const struct remap *r, const struct vma *v)
{
	struct vma *next = vma_next(&mm->vmas, v);
	u64 end = r->old + r->new_len;

	return r->old + r->old_len == v->end && end > r->old && end <= mm->max &&
	       (!next || next->start >= end);
}

/* Moves the vma part [old, old + old_len) to r->new, which is free, with new_len. */
static int move(struct mm_op *op, struct remap *r, struct vma *v)
{
	struct mm *mm = op->mm;
	bool keep = (r->flags & MREMAP_DONTUNMAP) || !r->old_len;
	struct vma_reg *reg;
	struct vma *n;
	u64 offset = vma_offset_at(v, r->old);
	bool unlock;
	int err;

	if (vma_set_count(&mm->vmas) >= MM_MAX_VMAS - 3)
		return -ENOMEM;
	if ((r->flags & MREMAP_DONTUNMAP) &&
	    (!mm_may_expand(mm, r->limits, v->prot, v->flags, r->old_len, 0) ||
	     ((v->flags & VMA_ACCOUNT) && mm_promise(op, r->limits, r->old_len) < 0)))
		return -ENOMEM;
	err = vma_set_own(&mm->vmas, r->new, r->new + r->new_len);
	if (err == 0 && r->old_len && !keep)
		err = vma_cut(mm, r->old, r->old + r->old_len);
	if (err < 0)
		return err;
	v = vma_set_find(&mm->vmas, r->old);
	/* What is left behind is unlocked, as its pages go. */
	unlock = keep && r->old_len && (v->flags & VMA_LOCKED);
	if (unlock && !(v = vma_own(mm, v)))
		return -ENOMEM;
	err = reg_for(mm, v, v->reg ? MIN(offset, v->reg->m.start) : 0,
		      v->reg ? MAX(offset + r->new_len, v->reg->m.end) : 0, &reg);
	if (err < 0)
		return err;
	n = vma_dup(v, r->new, r->new + r->new_len);
	if (v->mappable) /* patched text is for one address */
		text_drop(mm, r->old, r->old + r->old_len);
	if (n && r->old_len)
		err = move_pmas(mm, r->old, r->old_len, r->new);
	if (!n || err < 0) {
		mutex_unlock(&mm->active_lock);
		vma_reg_release(reg);
		vma_put(n);
		mutex_lock(&mm->active_lock);
		return -ENOMEM;
	}
	n->reg = reg;
	n->offset = v->mappable ? offset : 0;
	if (!keep)
		vma_leave(op, v);
	else if (unlock)
		vma_change(mm, v, v->prot, v->flags & ~(u32)(VMA_LOCKED | VMA_LOCKONFAULT));
	vma_enter(mm, n);
	if (n->flags & VMA_LOCKED) {
		r->populate_from = n->start;
		r->populate_to = n->end;
	}
	vma_merge(op, n);
	return 0;
}

/* What no mremap takes: -EFAULT, -EPERM. */
static int refused(const struct vma *v)
{
	if (!v || (v->flags & VMA_RESERVED))
		return -EFAULT;
	return v->flags & VMA_SEALED ? -EPERM : 0;
}

/* What Linux checks of the vma before it grows or moves. */
static int check_vma(struct mm_op *op, const struct remap *r, const struct vma *v)
{
	const struct mm *mm = op->mm;
	u64 offset, grow;
	int err = refused(v);

	if (err < 0)
		return err;
	if (!r->old_len && !(v->flags & VMA_SHARED))
		return -EINVAL;
	/* What a shrinking remap cuts off may belong to other vmas. */
	if (MIN(r->old_len, r->new_len) > v->end - r->old)
		return -EFAULT;
	if (r->new_len <= r->old_len)
		return 0;
	offset = vma_offset_at(v, r->old);
	if (v->mappable && offset + r->new_len < offset)
		return -EINVAL;
	grow = r->new_len - r->old_len;
	if ((v->flags & VMA_LOCKED) && mm_may_lock(mm, r->limits, grow) < 0)
		return -EAGAIN;
	if (!mm_may_expand(mm, r->limits, v->prot, v->flags, grow, 0))
		return -ENOMEM;
	return v->flags & VMA_ACCOUNT ? mm_promise(op, r->limits, grow) : 0;
}

/* Moves one vma's part to a fixed place, unmapping what is there. */
static int move_to(struct mm_op *op, struct remap *r)
{
	struct mm *mm = op->mm;
	struct vma *v;
	int err;

	if (vma_set_count(&mm->vmas) >= MM_MAX_VMAS - 3)
		return -ENOMEM;
	err = check_vma(op, r, vma_set_find(&mm->vmas, r->old));
	if (err < 0)
		return err;
	err = mm_unmap_range(op, r->new, r->new + r->new_len);
	if (err < 0)
		return err;
	if (r->old_len > r->new_len) {
		err = mm_unmap_range(op, r->old + r->new_len, r->old + r->old_len);
		if (err < 0)
			return err;
		r->old_len = r->new_len;
	}
	v = vma_set_find(&mm->vmas, r->old);
	if (!v)
		return -EFAULT;
	return move(op, r, v);
}

/* Since Linux 6.17 a move without a change of size takes all vmas of the range, holes between them
 * too. */
static int move_all(struct mm_op *op, struct remap *r)
{
	u64 end = r->old + r->old_len, pos = r->old;
	struct vma *v = vma_set_find(&op->mm->vmas, pos);
	u64 populate_from = 0;

	if (!v)
		return -EFAULT;
	for (; v && v->start < end; v = vma_set_seek(&op->mm->vmas, pos)) {
		struct remap one = *r;
		int err;

		one.old = MAX(pos, v->start);
		pos = MIN(end, v->end);
		one.new = r->new + (one.old - r->old);
		one.old_len = one.new_len = pos - one.old;
		err = move_to(op, &one);
		if (err < 0)
			return err;
		if (one.populate_to) {
			populate_from = populate_from ? populate_from : one.populate_from;
			r->populate_from = populate_from;
			r->populate_to = one.populate_to;
		}
		if (pos >= end)
			break;
	}
	return 0;
}

static s64 remap_locked(struct mm_op *op, struct remap *r)
{
	struct mm *mm = op->mm;
	bool beyond = r->old_len > mm->max - r->old;
	struct vma *v;
	int err;

	if (beyond && (r->flags & MREMAP_FIXED))
		return -EFAULT;
	if (r->flags & MREMAP_FIXED) {
		err = r->new < mm->min		 ? -EPERM
		      : r->old_len == r->new_len ? move_all(op, r)
						 : move_to(op, r);
		return err < 0 ? err : (s64)r->new;
	}
	v = vma_set_find(&mm->vmas, r->old);
	err = refused(v);
	if (err < 0)
		return err;
	if (!(r->flags & MREMAP_DONTUNMAP) && r->old_len >= r->new_len && r->new_len) {
		if (r->old_len == r->new_len)
			return (s64)r->old;
		/* The rest goes as by munmap. */
		if (beyond)
			return -EINVAL;
		err = mm_unmap_range(op, r->old + r->new_len, r->old + r->old_len);
		return err < 0 ? err : (s64)r->old;
	}
	err = beyond ? -EFAULT : check_vma(op, r, v);
	if (err < 0)
		return err;
	if (!(r->flags & MREMAP_DONTUNMAP) && r->old_len && can_grow_in_place(mm, r, v)) {
		err = grow_in_place(op, r, v);
		return err < 0 ? err : (s64)r->old;
	}
	if (!(r->flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	err = mm_find_place(mm, r->flags & MREMAP_DONTUNMAP ? r->new : 0, r->new_len, 0, false,
			    &r->new);
	if (err == 0)
		err = move(op, r, v);
	return err < 0 ? err : (s64)r->new;
}

/* check_mremap_params of Linux; rounds the lengths up. */
static int check_params(const struct mm *mm, struct remap *r)
{
	if (r->flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP))
		return -EINVAL;
	if (!page_aligned(r->old))
		return -EINVAL;
	/* Linux's PAGE_ALIGN wraps around to zero. */
	r->old_len = page_up_nofail(r->old_len);
	r->new_len = page_up_nofail(r->new_len);
	if (!r->new_len || r->new_len > mm->max)
		return -EINVAL;
	if (!(r->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)))
		return 0;
	if (!page_aligned(r->new) || r->new > mm->max - r->new_len || !(r->flags & MREMAP_MAYMOVE))
		return -EINVAL;
	if ((r->flags & MREMAP_DONTUNMAP) && r->old_len != r->new_len)
		return -EINVAL;
	if (r->old + r->old_len > r->new && r->new + r->new_len > r->old)
		return -EINVAL;
	return 0;
}

s64 mm_mremap(struct mm *mm, u64 old, u64 old_len, u64 new_len, int flags, u64 new_addr,
	      const struct mm_limits *limits)
{
	struct remap r = {
		.old = old,
		.old_len = old_len,
		.new = new_addr,
		.new_len = new_len,
		.flags = flags,
		.limits = limits,
	};
	struct mm_op op;
	s64 ret = check_params(mm, &r);

	if (ret < 0)
		return ret;
	if (old >= mm->max)
		return -EFAULT;
	mm_op_begin(mm, &op);
	mm->limits = *limits;
	ret = remap_locked(&op, &r);
	mm_op_end(&op);
	if (ret >= 0 && r.populate_from < r.populate_to)
		mm_populate(mm, r.populate_from, r.populate_to, false, false);
	return ret;
}

/* ---- remap_file_pages: mapped anew, as Linux emulates it since 4.0 ---- */

/* From v on, up to end, there are mappings of one file that are alike. */
static bool one_shared_file(const struct mm *mm, const struct vma *v, u64 end)
{
	if (!v || !(v->flags & VMA_SHARED))
		return false;
	while (v->end < end) {
		const struct vma *next = vma_next(&mm->vmas, v);

		if (!next || next->start != v->end || next->mappable != v->mappable ||
		    next->flags != v->flags || next->prot != v->prot ||
		    next->max_prot != v->max_prot)
			return false;
		v = next;
	}
	return true;
}

int mm_remap_file_pages(struct mm *mm, u64 addr, u64 len, u64 pgoff, const struct mm_limits *limits)
{
	struct mm_mmap_args a = {
		.addr = page_down(addr),
		.len = page_down(len),
		.flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE,
		.offset = pgoff << PAGE_SHIFT,
		.limits = *limits,
	};
	struct vma_name *name = NULL;
	struct vma *v;
	s64 r;

	if (a.addr + a.len <= a.addr || pgoff + a.len / PAGE_SIZE < pgoff)
		return -EINVAL;
	rwlock_rdlock(&mm->map_lock);
	v = vma_set_find(&mm->vmas, a.addr);
	if (one_shared_file(mm, v, a.addr + a.len)) {
		a.prot = v->prot;
		a.max_prot = v->max_prot;
		a.flags |= v->flags & VMA_LOCKED ? MAP_LOCKED : 0;
		a.mappable = v->mappable;
		a.mappable->ops->get(a.mappable);
		name = vma_name_get(v->name);
		a.name = name ? name->text : NULL;
	}
	rwlock_unlock(&mm->map_lock);
	if (!a.mappable)
		return -EINVAL;
	r = pgoff > INT64_MAX >> PAGE_SHIFT ? -EOVERFLOW : mm_mmap(mm, &a);
	vma_name_put(name);
	a.mappable->ops->put(a.mappable);
	return r < 0 ? (int)r : 0;
}
