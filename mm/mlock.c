/* mlock and its family: Linux's mm/mlock.c. */
#include "mm/mm_impl.h"

#define LOCK_FLAGS ((u32)(VMA_LOCKED | VMA_LOCKONFAULT))

/* Sets the lock flags of [start, end). -ENOMEM at a hole, with the part before it done. */
static int set_locked(struct mm_op *op, u64 start, u64 end, u32 lock)
{
	struct mm *mm = op->mm;

	while (start < end) {
		struct vma *v = vma_set_find(&mm->vmas, start);
		u64 to;
		int err;

		if (!v)
			return -ENOMEM;
		to = MIN(v->end, end);
		if (!(v->flags & (VMA_RESERVED | VMA_DROPPABLE)) &&
		    (v->flags & LOCK_FLAGS) != lock) {
			err = vma_change_part(op, start, to, (v->flags & ~LOCK_FLAGS) | lock);
			if (err < 0)
				return err;
		}
		start = to;
	}
	return 0;
}

/* Bytes of [start, end) that are locked already. */
static u64 locked_in(struct mm *mm, u64 start, u64 end)
{
	struct vma *v = vma_set_seek(&mm->vmas, start);
	u64 sum = 0;

	for (; v && v->start < end; v = vma_next(&mm->vmas, v))
		if (v->flags & VMA_LOCKED)
			sum += MIN(v->end, end) - MAX(v->start, start);
	return sum;
}

static int page_bounds(u64 addr, u64 len, u64 *ret_start, u64 *ret_end)
{
	u64 start = page_down(addr);

	if (!page_up(len + (addr - start), &len) || start + len < start)
		return -EINVAL;
	*ret_start = start;
	*ret_end = start + len;
	return 0;
}

/* Prefaults; Linux reports what cannot be read as ENOMEM. */
static int populate_error(int err)
{
	return err == -EFAULT ? -ENOMEM : err == -ENOMEM ? -EAGAIN : err;
}

int mm_mlock(struct mm *mm, u64 addr, u64 len, bool onfault, const struct mm_limits *limits)
{
	u32 lock = onfault ? LOCK_FLAGS : VMA_LOCKED;
	struct mm_op op;
	u64 start, end;
	int err;

	if (!limits->may_lock && !limits->memlock)
		return -EPERM;
	err = page_bounds(addr, len, &start, &end);
	if (err < 0 || start == end)
		return err;
	mm_op_begin(mm, &op);
	if (!limits->may_lock && limits->memlock != RLIM_INFINITY &&
	    mm->locked - locked_in(mm, start, end) + (end - start) > page_down(limits->memlock))
		err = -ENOMEM;
	if (err == 0)
		err = set_locked(&op, start, end, lock);
	mm_op_end(&op);
	if (err == 0 && !onfault)
		err = populate_error(mm_populate(mm, start, end, false, false));
	return err;
}

int mm_munlock(struct mm *mm, u64 addr, u64 len)
{
	struct mm_op op;
	u64 start, end;
	int err = page_bounds(addr, len, &start, &end);

	if (err < 0 || start == end)
		return err;
	mm_op_begin(mm, &op);
	err = set_locked(&op, start, end, 0);
	mm_op_end(&op);
	return err;
}

/* Applies to all vmas; what cannot be locked is left, as in Linux. */
static void lock_all(struct mm_op *op, u32 lock)
{
	struct mm *mm = op->mm;
	struct vma *v, *own, *next;

	for (v = vma_set_first(&mm->vmas); v; v = next) {
		if (!(v->flags & VMA_RESERVED) && (v->flags & LOCK_FLAGS) != lock &&
		    (own = vma_own(mm, v))) {
			vma_change(mm, own, own->prot, (own->flags & ~LOCK_FLAGS) | lock);
			v = vma_merge(op, own);
		}
		next = vma_next(&mm->vmas, v);
	}
}

int mm_mlockall(struct mm *mm, int flags, const struct mm_limits *limits)
{
	u32 lock = flags & MCL_ONFAULT ? LOCK_FLAGS : VMA_LOCKED;
	struct mm_op op;
	u64 pos = 0;

	if (!flags || (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) || flags == MCL_ONFAULT)
		return -EINVAL;
	if (!limits->may_lock && !limits->memlock)
		return -EPERM;
	mm_op_begin(mm, &op);
	if ((flags & MCL_CURRENT) && !limits->may_lock && limits->memlock != RLIM_INFINITY &&
	    mm->total > page_down(limits->memlock)) {
		mm_op_end(&op);
		return -ENOMEM;
	}
	mm->future_lock = flags & MCL_FUTURE ? lock : 0;
	if (flags & MCL_CURRENT)
		lock_all(&op, lock);
	mm_op_end(&op);
	/* Errors of single mappings are ignored: they may be unreadable. */
	while ((flags & MCL_CURRENT) && !(flags & MCL_ONFAULT)) {
		struct vma *v;
		u64 start = 0, end = 0;

		mutex_lock(&mm->active_lock);
		v = vma_set_seek(&mm->vmas, pos);
		if (v) {
			start = v->start;
			end = v->end;
		}
		mutex_unlock(&mm->active_lock);
		if (!v)
			break;
		mm_populate(mm, start, end, false, false);
		pos = end;
	}
	return 0;
}

int mm_munlockall(struct mm *mm)
{
	struct mm_op op;

	mm_op_begin(mm, &op);
	mm->future_lock = 0;
	lock_all(&op, 0);
	mm_op_end(&op);
	return 0;
}
