/* madvise, msync, mincore. Argument checks follow Linux's mm/madvise.c, msync.c and mincore.c. */
#include "mm/mm_impl.h"

#include <string.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static bool known(int advice)
{
	switch (advice) {
	case MADV_NORMAL:
	case MADV_RANDOM:
	case MADV_SEQUENTIAL:
	case MADV_WILLNEED:
	case MADV_DONTNEED:
	case MADV_FREE:
	case MADV_REMOVE:
	case MADV_DONTFORK:
	case MADV_DOFORK:
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_DONTDUMP:
	case MADV_DODUMP:
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
	case MADV_DONTNEED_LOCKED: return true;
	}
	return false;
}

/*
 * Throws private pages away. Anonymous memory that nobody shares is emptied in place,
 * which needs no word with the stub: the host takes the pages out of its page
 * tables.
 */
static int discard(struct mm *mm, const struct vma *v, u64 start, u64 end)
{
	struct pma *p;

	mm->ahead += end - start;
	while (start < end && (p = pma_set_seek(&mm->pmas, start)) && p->start < end) {
		u64 from = MAX(p->start, start), to = MIN(p->end, end);
		bool mine = !v->mappable && p->file && p->owned && !p->cow &&
			    p->file == mm->memfile &&
			    pgalloc_exclusive(mm->memory, pma_subrange(p, from, to));

		if (!mine || pgalloc_decommit(mm->memory, pma_subrange(p, from, to)) < 0) {
			int err = p->file ? backing_drop(mm, from, to, false) : 0;

			if (err < 0)
				return err;
		}
		start = to;
	}
	return 0;
}

/* Sealed, and its guest could not write what the advice takes away: can_madvise_modify of Linux. */
static bool seal_forbids(const struct vma *v, int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
	case MADV_REMOVE:
	case MADV_DONTFORK:
	case MADV_WIPEONFORK:
		return (v->flags & VMA_SEALED) && vma_is_anon(v) && !(v->prot & PROT_WRITE);
	}
	return false;
}

/* New flags of a vma under this advice, or -EINVAL. */
static int new_flags(const struct vma *v, int advice, u32 *ret)
{
	u32 f = v->flags;

	switch (advice) {
	case MADV_NORMAL: f &= ~(u32)(VMA_RANDOM | VMA_SEQUENTIAL); break;
	case MADV_RANDOM: f = (f | VMA_RANDOM) & ~(u32)VMA_SEQUENTIAL; break;
	case MADV_SEQUENTIAL: f = (f | VMA_SEQUENTIAL) & ~(u32)VMA_RANDOM; break;
	case MADV_DONTFORK: f |= VMA_DONTFORK; break;
	case MADV_DOFORK: f &= ~(u32)VMA_DONTFORK; break;
	case MADV_DONTDUMP: f |= VMA_DONTDUMP; break;
	case MADV_DODUMP:
		if (f & VMA_DROPPABLE)
			return -EINVAL;
		f &= ~(u32)VMA_DONTDUMP;
		break;
	case MADV_WIPEONFORK:
		if (v->mappable || (f & VMA_SHARED))
			return -EINVAL;
		f |= VMA_WIPEONFORK;
		break;
	case MADV_KEEPONFORK:
		if (f & VMA_DROPPABLE)
			return -EINVAL;
		f &= ~(u32)VMA_WIPEONFORK;
		break;
	case MADV_HUGEPAGE: f = (f | VMA_HUGE) & ~(u32)VMA_NOHUGE; break;
	case MADV_NOHUGEPAGE: f = (f | VMA_NOHUGE) & ~(u32)VMA_HUGE; break;
	}
	*ret = f;
	return 0;
}

/* Advice on [start, end) of one vma; *ret the vma after it. */
static int advise_part(struct mm_op *op, struct vma *v, u64 start, u64 end, int advice)
{
	struct mm *mm = op->mm;
	u32 flags;
	int err;

	if (v->flags & VMA_RESERVED)
		return advice == MADV_DONTNEED || advice == MADV_FREE ? -EINVAL : 0;
	if (seal_forbids(v, advice))
		return -EPERM;
	switch (advice) {
	case MADV_DONTNEED:
		if (v->flags & VMA_LOCKED)
			return -EINVAL;
		return discard(mm, v, start, end);
	case MADV_DONTNEED_LOCKED: return discard(mm, v, start, end);
	case MADV_FREE:
		if (v->mappable || (v->flags & VMA_LOCKED))
			return -EINVAL;
		return discard(mm, v, start, end);
	case MADV_COLD: return v->flags & VMA_LOCKED ? -EINVAL : 0;
	case MADV_PAGEOUT:
		if (v->flags & VMA_DROPPABLE)
			return discard(mm, v, start, end);
		return v->flags & VMA_LOCKED ? -EINVAL : 0;
	}
	err = new_flags(v, advice, &flags);
	if (err < 0 || flags == v->flags)
		return err;
	err = vma_change_part(op, start, end, flags);
	return err == -ENOMEM ? -EAGAIN : err;
}

static int advise_range(struct mm *mm, u64 start, u64 end, int advice)
{
	struct mm_op op;
	bool hole = false;
	int err = 0;

	mm_op_begin(mm, &op);
	while (start < end) {
		struct vma *v = vma_set_seek(&mm->vmas, start);
		u64 to;

		if (!v || v->start >= end) {
			hole = true;
			break;
		}
		if (v->start > start) {
			hole = true;
			start = v->start;
		}
		to = MIN(v->end, end);
		err = advise_part(&op, v, start, to, advice);
		if (err < 0)
			break;
		start = to;
	}
	mm_op_end(&op);
	return err < 0 ? err : hole ? -ENOMEM : 0;
}

int mm_release(struct mm *mm)
{
	struct mm_op op;
	struct vma *v;
	int err = 0;

	mm_op_begin(mm, &op);
	for (v = vma_set_first(&mm->vmas); v && err == 0; v = vma_next(&mm->vmas, v))
		if (!(v->flags & (VMA_SHARED | VMA_RESERVED)))
			err = discard(mm, v, v->start, v->end);
	mm_op_end(&op);
	return err;
}

/*
 * The next vma of [*start, end) for work on its mappable without locks.
 * *ret: a reference, or NULL (not a shared file). 0, or -ENOMEM when a hole begins at *start.
 */
static int next_mappable(struct mm *mm, u64 start, u64 end, struct vma *ret, u64 *ret_start)
{
	struct vma *v;
	int err = 0;

	rwlock_rdlock(&mm->map_lock);
	v = vma_set_seek(&mm->vmas, start);
	if (!v || v->start >= end) {
		err = -ENOMEM;
	} else {
		*ret = (struct vma){
			.start = v->start,
			.end = v->end,
			.flags = v->flags,
			.prot = v->prot,
			.max_prot = v->max_prot,
			.mappable = v->mappable,
			.offset = v->offset,
		};
		*ret_start = MAX(v->start, start);
		if (ret->mappable)
			ret->mappable->ops->get(ret->mappable);
	}
	rwlock_unlock(&mm->map_lock);
	return err;
}

static int remove_range(struct mm *mm, u64 start, u64 end)
{
	bool hole = false;

	while (start < end) {
		struct vma v;
		u64 from, to;
		int err = next_mappable(mm, start, end, &v, &from);

		if (err < 0)
			return err;
		hole |= from > start;
		to = MIN(v.end, end);
		if (seal_forbids(&v, MADV_REMOVE))
			err = -EPERM;
		else if (v.flags & VMA_LOCKED)
			err = -EINVAL;
		else if (!v.mappable)
			err = -EINVAL;
		else if (!(v.flags & VMA_SHARED) || !(v.max_prot & PROT_WRITE))
			err = -EACCES;
		else if (!v.mappable->ops->punch)
			err = -EOPNOTSUPP;
		else
			err = v.mappable->ops->punch(v.mappable, vma_offset_at(&v, from),
						     vma_offset_at(&v, to));
		if (v.mappable)
			v.mappable->ops->put(v.mappable);
		if (err < 0)
			return err;
		start = to;
	}
	return hole ? -ENOMEM : 0;
}

int mm_madvise(struct mm *mm, u64 addr, u64 len, int advice, const struct mm_limits *limits)
{
	u64 end;

	if (!known(advice) || !page_aligned(addr))
		return -EINVAL;
	if (!page_up(len, &len) || addr + len < addr)
		return -EINVAL;
	end = addr + len;
	if (end == addr)
		return 0;
	switch (advice) {
	case MADV_REMOVE: return remove_range(mm, addr, end);
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
		return mm_populate(mm, addr, end, advice == MADV_POPULATE_WRITE, true);
	}
	return advise_range(mm, addr, end, advice);
}

int mm_msync(struct mm *mm, u64 addr, u64 len, int flags)
{
	bool hole = false;
	u64 end;
	int err = 0;

	if (flags & ~(MS_ASYNC | MS_INVALIDATE | MS_SYNC))
		return -EINVAL;
	if (!page_aligned(addr) || ((flags & MS_ASYNC) && (flags & MS_SYNC)))
		return -EINVAL;
	if (!page_up(len, &len) || addr + len < addr)
		return -ENOMEM;
	end = addr + len;
	while (addr < end && err == 0) {
		struct vma v;
		u64 from, to;

		err = next_mappable(mm, addr, end, &v, &from);
		if (err < 0)
			break;
		hole |= from > addr;
		to = MIN(v.end, end);
		if ((flags & MS_INVALIDATE) && (v.flags & VMA_LOCKED))
			err = -EBUSY;
		else if ((flags & MS_SYNC) && v.mappable && (v.flags & VMA_SHARED) &&
			 v.mappable->ops->sync)
			err = v.mappable->ops->sync(v.mappable, vma_offset_at(&v, from),
						    vma_offset_at(&v, to));
		if (v.mappable)
			v.mappable->ops->put(v.mappable);
		addr = to;
	}
	return err < 0 ? err : hole ? -ENOMEM : 0;
}

/* Marks the committed pages of p's part [start, end) in vec, whose first byte is for `base`. */
static void mark_resident(const struct pma *p, u64 start, u64 end, u64 base, u8 *vec)
{
	struct mem_range rest = pma_subrange(p, start, end), run;

	while (pgalloc_next_committed(pgalloc_of(p->file), rest, &run)) {
		u64 at = p->start + (run.start - p->offset);

		memset(vec + (at - base) / PAGE_SIZE, 1, mem_range_len(run) / PAGE_SIZE);
		rest.start = run.end;
	}
}

int mm_mincore(struct mm *mm, u64 addr, u64 len, u8 *vec)
{
	u64 end, pos;
	int err = 0;

	if (!page_aligned(addr))
		return -EINVAL;
	if (addr > mm->max || len > mm->max - addr)
		return -ENOMEM;
	end = addr + page_up_nofail(len);
	memset(vec, 0, (end - addr) / PAGE_SIZE);
	rwlock_rdlock(&mm->map_lock);
	mutex_lock(&mm->active_lock);
	for (pos = addr; pos < end;) {
		struct vma *v = vma_set_find(&mm->vmas, pos);
		struct pma *p;
		u64 to;

		if (!v) {
			err = -ENOMEM;
			break;
		}
		to = MIN(v->end, end);
		if (v->flags & VMA_RESERVED)
			memset(vec + (pos - addr) / PAGE_SIZE, 1, (to - pos) / PAGE_SIZE);
		if (v->mappable && v->mappable->ops->resident)
			v->mappable->ops->resident(v->mappable, vma_offset_at(v, pos),
						   vma_offset_at(v, to),
						   vec + (pos - addr) / PAGE_SIZE);
		for (p = pma_set_seek(&mm->pmas, pos); p && p->start < to; p = pma_next(p))
			if (p->file && (p->owned || !v->mappable || !v->mappable->ops->resident))
				mark_resident(p, MAX(p->start, pos), MIN(p->end, to), addr, vec);
		pos = to;
	}
	mutex_unlock(&mm->active_lock);
	rwlock_unlock(&mm->map_lock);
	return err;
}
