/* mmap, munmap, brk. Checks and their order follow Linux's mm/mmap.c and mm/vma.c. */
#include "mm/mm_impl.h"
#include "pgalloc/promise.h"

#include <linux/mman.h>
#include <stdlib.h>

/* Flags that MAP_SHARED_VALIDATE knows for any file. */
#define MAP_KNOWN                                                                                  \
	(MAP_TYPE | MAP_FIXED | MAP_ANONYMOUS | MAP_DENYWRITE | MAP_EXECUTABLE | MAP_GROWSDOWN |   \
	 MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | MAP_STACK | MAP_HUGETLB |      \
	 MAP_32BIT | MAP_FIXED_NOREPLACE | MAP_UNINITIALIZED | (0x3fUL << MAP_HUGE_SHIFT))
#ifndef MAP_UNINITIALIZED
#define MAP_UNINITIALIZED 0x4000000
#endif
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
/* What goes together with being droppable, and what cannot. */
#define DROPPABLE_FLAGS ((u32)(VMA_DROPPABLE | VMA_NORESERVE | VMA_WIPEONFORK | VMA_DONTDUMP))
#define NOT_DROPPABLE (MAP_LOCKED | MAP_HUGETLB | MAP_GROWSDOWN)
#define LOW_32BIT 0x40000000UL
#define HIGH_32BIT 0x80000000UL

/* ---- places ---- */

static bool place_free(struct mm *mm, u64 addr, u64 len)
{
	struct vma *v = vma_set_seek(&mm->vmas, addr);

	return addr >= mm->min && len <= mm->max && addr <= mm->max - len &&
	       (!v || addr + len <= vma_guarded_start(v));
}

int mm_find_place(struct mm *mm, u64 hint, u64 len, int map_flags, bool huge_align, u64 *ret)
{
	struct gap_query q = {
		.len = len,
		.align = huge_align ? HUGE_PAGE_SIZE : PAGE_SIZE,
		.low = mm->min,
		.high = mm->mmap_base,
		.top_down = true,
	};

	if (len > mm->max - mm->min)
		return -ENOMEM;
	if (hint) {
		hint = MAX(page_down(hint), mm->min);
		if (place_free(mm, hint, len)) {
			*ret = hint;
			return 0;
		}
	}
	if (map_flags & MAP_32BIT) {
		q.low = MAX(LOW_32BIT, mm->min);
		q.high = MIN(HIGH_32BIT, mm->max);
		q.top_down = false;
		return vma_set_find_gap(&mm->vmas, &q, ret) ? 0 : -ENOMEM;
	}
	if (vma_set_find_gap(&mm->vmas, &q, ret))
		return 0;
	q.align = PAGE_SIZE;
	if (huge_align && vma_set_find_gap(&mm->vmas, &q, ret))
		return 0;
	/* Linux falls back to bottom-up over all of the address space. */
	q.low = MAX(mm->min, page_down(mm->max / 3));
	q.high = mm->max;
	q.top_down = false;
	if (vma_set_find_gap(&mm->vmas, &q, ret))
		return 0;
	q.low = mm->min;
	return vma_set_find_gap(&mm->vmas, &q, ret) ? 0 : -ENOMEM;
}

/* ---- munmap ---- */

int mm_unmap_range(struct mm_op *op, u64 start, u64 end)
{
	struct mm *mm = op->mm;
	struct vma *v = vma_set_seek(&mm->vmas, start), *next;
	int err;

	if (!v || v->start >= end)
		return 0;
	for (next = v; next && next->start < end; next = vma_next(&mm->vmas, next))
		if (next->flags & (VMA_RESERVED | VMA_SEALED))
			return -EPERM;
	err = vma_cut(mm, start, end);
	if (err < 0)
		return err;
	stub_leave_room(mm);
	err = backing_release(mm, start, end);
	if (err < 0)
		return err;
	for (v = vma_set_seek(&mm->vmas, start); v && v->start < end; v = next) {
		next = vma_next(&mm->vmas, v);
		vma_leave(op, v);
	}
	return 0;
}

/* Checks a guest range for munmap and the like. */
static int check_range(const struct mm *mm, u64 addr, u64 len, u64 *ret_end)
{
	u64 aligned;

	if (!page_aligned(addr) || addr > mm->max || len > mm->max - addr)
		return -EINVAL;
	if (!page_up(len, &aligned) || !aligned || aligned > mm->max - addr)
		return -EINVAL;
	*ret_end = addr + aligned;
	return 0;
}

int mm_munmap(struct mm *mm, u64 addr, u64 len)
{
	struct mm_op op;
	u64 end;
	int err = check_range(mm, addr, len, &end);

	if (err < 0)
		return err;
	mm_op_begin(mm, &op);
	err = mm_unmap_range(&op, addr, end);
	mm_op_end(&op);
	return err;
}

/* ---- mmap ---- */

static u32 flags_of(const struct mm *mm, const struct mm_mmap_args *a)
{
	u32 flags = mm->future_lock;

	if ((a->flags & MAP_TYPE) == MAP_DROPPABLE)
		return DROPPABLE_FLAGS;
	if ((a->flags & MAP_TYPE) != MAP_PRIVATE)
		flags |= VMA_SHARED;
	if (a->flags & MAP_LOCKED)
		flags |= VMA_LOCKED;
	if (a->flags & MAP_GROWSDOWN)
		flags |= VMA_GROWSDOWN;
	if (a->grow_stack)
		flags |= VMA_GROWSDOWN | VMA_STACK;
	if ((a->flags & MAP_NORESERVE) && pgalloc_promise(mm->memory)->mode != PROMISE_NEVER)
		flags |= VMA_NORESERVE;
	if ((a->prot & PROT_WRITE) && !(flags & (VMA_SHARED | VMA_NORESERVE)))
		flags |= VMA_ACCOUNT;
	return flags;
}

/* Everything that can be said without the locks. *ret_len: page-aligned. */
static int check_args(const struct mm *mm, const struct mm_mmap_args *a, u64 *ret_len)
{
	if (!a->len)
		return -EINVAL;
	if (!page_up(a->len, ret_len))
		return -ENOMEM;
	if (!page_aligned(a->offset))
		return -EINVAL;
	if (a->mappable && a->offset + *ret_len < a->offset)
		return -EOVERFLOW;
	if ((a->flags & MAP_TYPE) == MAP_DROPPABLE && (a->flags & NOT_DROPPABLE))
		return -EINVAL;
	if (a->flags & MAP_HUGETLB)
		return -ENOMEM; /* as a host with no huge pages set aside */
	if (a->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
		if (*ret_len > mm->max || a->addr > mm->max - *ret_len)
			return -ENOMEM;
		if (!page_aligned(a->addr))
			return -EINVAL;
		if (a->addr < mm->min)
			return -EPERM;
	} else if (*ret_len > mm->max) {
		return -ENOMEM;
	}
	return 0;
}

static int check_type(const struct mm_mmap_args *a)
{
	int type = a->flags & MAP_TYPE;

	if (!a->mappable || (a->flags & MAP_ANONYMOUS)) {
		if (type != MAP_PRIVATE && type != MAP_DROPPABLE &&
		    (type != MAP_SHARED || !a->mappable))
			return -EINVAL;
		if (type == MAP_SHARED && (a->flags & MAP_GROWSDOWN))
			return -EINVAL;
		return 0;
	}
	if (type == MAP_SHARED_VALIDATE && (a->flags & ~(int)MAP_KNOWN))
		return -EOPNOTSUPP;
	if (type != MAP_PRIVATE && type != MAP_SHARED && type != MAP_SHARED_VALIDATE)
		return -EINVAL;
	if (a->flags & MAP_GROWSDOWN)
		return -EINVAL;
	return a->prot & MM_PROT_ALL & ~a->max_prot ? -EACCES : 0;
}

static struct vma *vma_from(const struct mm_mmap_args *a, u8 prot, struct vma_reg *reg)
{
	struct vma *v = vma_new();

	if (!v)
		return NULL;
	if (a->name && !(v->name = vma_name_new(a->name))) {
		vma_put(v);
		return NULL;
	}
	v->prot = prot;
	v->max_prot = a->mappable ? a->max_prot & MM_PROT_ALL : MM_PROT_ALL;
	v->mappable = a->mappable;
	v->offset = a->mappable ? a->offset : 0;
	v->reg = reg;
	if (v->mappable)
		v->mappable->ops->get(v->mappable);
	return v;
}

/* Picks or checks the place. */
static s64 place(struct mm *mm, const struct mm_mmap_args *a, u64 len)
{
	struct vma *v;
	bool huge = !a->mappable && len >= HUGE_PAGE_SIZE && !(len & (HUGE_PAGE_SIZE - 1));
	u64 addr;
	int err;

	if (!(a->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))) {
		/* An image from its beginning has its own place in the sandbox. */
		if (mm->text && a->mappable && !a->addr && !a->offset &&
		    (a->flags & MAP_TYPE) == MAP_PRIVATE) {
			addr = text_place(mm->text, a->mappable, len);
			if (addr && place_free(mm, addr, len))
				return (s64)addr;
		}
		err = mm_find_place(mm, a->addr, len, a->flags, huge, &addr);
		return err < 0 ? err : (s64)addr;
	}
	v = vma_set_seek(&mm->vmas, a->addr);
	if ((a->flags & MAP_FIXED_NOREPLACE) && v && v->start < a->addr + len)
		return -EEXIST;
	return (s64)a->addr;
}

static u64 bytes_mapped(struct mm *mm, u64 start, u64 end, u64 *ret_accounted)
{
	struct vma *v = vma_set_seek(&mm->vmas, start);
	u64 sum = 0;

	*ret_accounted = 0;
	for (; v && v->start < end; v = vma_next(&mm->vmas, v)) {
		u64 len = MIN(v->end, end) - MAX(v->start, start);

		sum += len;
		if (v->flags & VMA_ACCOUNT)
			*ret_accounted += len;
	}
	return sum;
}

static s64 map_locked(struct mm_op *op, const struct mm_mmap_args *a, struct vma *v, u64 len)
{
	struct mm *mm = op->mm;
	u64 replaced, accounted;
	s64 addr;
	int err;

	v->flags = flags_of(mm, a);
	if (vma_set_count(&mm->vmas) > MM_MAX_VMAS)
		return -ENOMEM;
	addr = place(mm, a, len);
	if (addr < 0)
		return addr;
	v->start = (u64)addr;
	v->end = v->start + len;
	if (v->flags & VMA_LOCKED) {
		err = mm_may_lock(mm, &a->limits, len);
		if (err < 0)
			return a->flags & MAP_LOCKED ? err : -EAGAIN;
	}
	err = check_type(a);
	if (err == 0 && mm_denies(mm, v->prot, v->prot))
		err = -EACCES;
	if (err < 0)
		return err;
	replaced = bytes_mapped(mm, v->start, v->end, &accounted);
	if (!mm_may_expand(mm, &a->limits, v->prot, v->flags, len, replaced))
		return -ENOMEM;
	if ((v->flags & VMA_ACCOUNT) && accounted < len)
		err = mm_promise(op, &a->limits, len - accounted);
	if (err == 0)
		err = vma_set_own(&mm->vmas, v->start, v->end);
	if (err == 0)
		err = mm_unmap_range(op, v->start, v->end);
	if (err < 0)
		return err;
	vma_enter(mm, v);
	v = vma_merge(op, v);
	backing_ahead(mm, v, (u64)addr, (u64)addr + len);
	return addr;
}

s64 mm_mmap(struct mm *mm, const struct mm_mmap_args *a)
{
	u8 prot = (u8)(a->prot & MM_PROT_ALL);
	bool shared = (a->flags & MAP_TYPE) != MAP_PRIVATE;
	struct vma_reg *reg = NULL;
	struct vma *v;
	struct mm_op op;
	u32 flags;
	u64 len;
	s64 addr;
	int err = check_args(mm, a, &len);

	if (err < 0)
		return err;
	if (a->mappable) {
		err = vma_reg_new(mm, a->mappable, a->offset, a->offset + len, shared,
				  a->max_prot & PROT_WRITE, &reg);
		if (err < 0)
			return err;
	}
	v = vma_from(a, prot, reg);
	mm_op_begin(mm, &op);
	mm->limits = a->limits;
	addr = v ? map_locked(&op, a, v, len) : -ENOMEM;
	flags = v ? v->flags : 0; /* v may be merged and dead from here on */
	if (addr < 0) {
		/* Release outside active_lock, as a dead vma. */
		if (v) {
			v->dead_next = op.dead;
			op.dead = v;
		}
	}
	mm_op_end(&op);
	if (!v && reg)
		vma_reg_release(reg);
	if (addr >= 0 && !(flags & VMA_LOCKONFAULT) &&
	    ((flags & VMA_LOCKED) || ((a->flags & MAP_POPULATE) && !(a->flags & MAP_NONBLOCK))))
		mm_populate(mm, (u64)addr, (u64)addr + len, false, false);
	return addr;
}

/* ---- brk ---- */

void mm_set_brk_start(struct mm *mm, u64 start)
{
	struct mm_op op;

	mm_op_begin(mm, &op);
	mm->marks.start_brk = mm->marks.brk = start;
	mm_op_end(&op);
}

static bool brk_grow(struct mm_op *op, u64 start, u64 end, const struct mm_limits *l)
{
	struct mm *mm = op->mm;
	struct vma *next = vma_set_seek(&mm->vmas, start), *v;
	u32 flags = VMA_HEAP | VMA_ACCOUNT | mm->future_lock;

	if (end > mm->max || (next && end + PAGE_SIZE > vma_guarded_start(next)))
		return false;
	if (!mm_may_expand(mm, l, PROT_READ | PROT_WRITE, flags, end - start, 0))
		return false;
	if ((flags & VMA_LOCKED) && mm_may_lock(mm, l, end - start) < 0)
		return false;
	if (vma_set_count(&mm->vmas) > MM_MAX_VMAS || mm_promise(op, l, end - start) < 0)
		return false;
	v = vma_set_own(&mm->vmas, start, end) == 0 ? vma_new() : NULL;
	if (!v)
		return false;
	v->start = start;
	v->end = end;
	v->prot = PROT_READ | PROT_WRITE;
	v->max_prot = MM_PROT_ALL;
	v->flags = flags;
	vma_enter(mm, v);
	vma_merge(op, v);
	return true;
}

/* check_data_rlimit of Linux: data segment and heap together. */
static bool brk_within_limit(const struct mm_marks *m, u64 addr, const struct mm_limits *l)
{
	u64 data = m->end_data > m->start_data ? m->end_data - m->start_data : 0;

	return l->data == RLIM_INFINITY || (addr - m->start_brk) + data <= l->data;
}

u64 mm_brk(struct mm *mm, u64 addr, const struct mm_limits *limits)
{
	struct mm_op op;
	struct mm_marks *m = &mm->marks;
	u64 old_end, new_end = 0, from = 0, to = 0, ret;

	mm_op_begin(mm, &op);
	mm->limits = *limits;
	if (addr < m->start_brk || addr > mm->max || !page_up(addr, &new_end) ||
	    !brk_within_limit(m, addr, limits))
		goto out;
	old_end = page_up_nofail(m->brk);
	if (new_end < old_end) {
		if (mm_unmap_range(&op, new_end, old_end) < 0)
			goto out;
	} else if (new_end > old_end) {
		if (!brk_grow(&op, old_end, new_end, limits))
			goto out;
		if ((mm->future_lock & VMA_LOCKED) && !(mm->future_lock & VMA_LOCKONFAULT)) {
			from = old_end;
			to = new_end;
		}
	}
	m->brk = addr;
out:
	ret = m->brk;
	mm_op_end(&op);
	if (from < to)
		mm_populate(mm, from, to, false, false);
	return ret;
}
