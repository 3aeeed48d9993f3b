/* Guest faults, stack growth, prefaulting. */
#include "mm/mm_impl.h"

#include <signal.h>

#define ZERO_WINDOW HUGE_PAGE_SIZE
/* A page that is mapped and still faults: after so many times the cause is sought. */
#define SPURIOUS_REMAP 3
#define SPURIOUS_RETRIES 8
/* Populated under the lock at a time. */
#define POPULATE_STEP (16UL << 20)

/* A read fault on untouched anonymous memory: the host's zero page, on all sides. */
static int map_zero_window(struct mm *mm, const struct vma *v, u64 page)
{
	u64 start = page & ~(ZERO_WINDOW - 1);
	u64 low = MAX(start, v->start), high = MIN(start + ZERO_WINDOW, v->end);
	struct pma *p, value = { 0 };

	for (p = pma_set_seek(&mm->pmas, low); p && p->start < high; p = pma_next(p)) {
		if (!p->file)
			continue;
		if (p->end <= page) {
			low = MAX(low, p->end);
		} else {
			high = p->start;
			break;
		}
	}
	value.start = low;
	value.end = high;
	value.host_map = PMA_MAP_READ;
	return backing_install(mm, v, &value, true);
}

/* Maps p anew as far as v reaches. */
static int remap(struct mm *mm, const struct vma *v, struct pma *p)
{
	if (pma_set_reserve(&mm->pmas, 2 * PMA_RESERVE) < 0) /* for backing_map, too */
		return -ENOMEM;
	p = pma_set_isolate(&mm->pmas, p, MAX(p->start, v->start), MIN(p->end, v->end));
	pma_set_host(&mm->pmas, p, PMA_UNMAPPED, PROT_NONE);
	return backing_map(mm, v, p, false);
}

/*
 * The stub has the mapping and faulted all the same. Mostly another thread was
 * faster. If not, a deferred call of another thread came late and took rights that
 * had been given anew; or the host had no page to give: find out by asking for one.
 */
static int spurious(struct mm *mm, const struct vma *v, struct pma *p, u64 page)
{
	struct mem_range r;
	int err;

	if (mm->spurious_addr != page) {
		mm->spurious_addr = page;
		mm->spurious_count = 0;
	}
	if (++mm->spurious_count == SPURIOUS_REMAP)
		return remap(mm, v, p);
	if (mm->spurious_count < SPURIOUS_RETRIES)
		return 0;
	mm->spurious_count = 0;
	if (p->file) {
		r = pma_subrange(p, page, page + PAGE_SIZE);
		err = pgalloc_populate(pgalloc_of(p->file), r);
		if (err < 0)
			return p->owned ? -ENOMEM : -EFAULT;
	}
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return -ENOMEM;
	p = pma_set_isolate(&mm->pmas, p, page, page + PAGE_SIZE);
	return backing_map(mm, v, p, true);
}

static bool access_allowed(const struct vma *v, bool write, bool exec)
{
	if (v->flags & VMA_RESERVED)
		return false;
	if (write)
		return v->prot & PROT_WRITE;
	if (exec)
		return v->prot & PROT_EXEC;
	return v->prot != PROT_NONE;
}

/* Whether the page of a file has to be read from where the file is. */
static bool must_read(const struct vma *v, u64 page)
{
	u64 offset = vma_offset_at(v, page);
	u8 there = 0;

	return v->mappable && v->mappable->ops->resident &&
	       v->mappable->ops->resident(v->mappable, offset, offset + PAGE_SIZE, &there) &&
	       !there;
}

/* As mm_fault. */
static int fault_locked(struct mm *mm, struct vma *v, u64 page, bool write, bool exec)
{
	u8 need = write ? PROT_WRITE : exec ? PROT_EXEC : PROT_READ;
	struct pma *p = pma_set_find(&mm->pmas, page);
	bool around = !p && backing_has_around(v), near = p && p->owned && !p->host_map,
	     major = !p && must_read(v, page);
	int err;

	if (p && (p->host_prot & need))
		return spurious(mm, v, p, page);
	mm->spurious_count = 0;
	if (mm->fork_wait && write && p && p->owned && p->cow && !v->mappable &&
	    !pgalloc_exclusive(pgalloc_of(p->file), pma_subrange(p, page, page + PAGE_SIZE)) &&
	    fork_watch_wants_wait(mm))
		return -EAGAIN;
	/* Memory that is kept for this place is better than a zero page. */
	if (!p && !v->mappable && pma_set_find(&mm->kept, page))
		write = true;
	err = backing_resolve(mm, v, page, write, !around, &p);
	if (err < 0)
		return err;
	if (!p)
		return map_zero_window(mm, v, page);
	/* What cannot be mapped in such a batch, the next fault maps alone. */
	if (around)
		backing_map_around(mm, v, p, page);
	else
		err = backing_map(mm, v, p, false);
	if (err == 0 && near)
		backing_map_near(mm, v, page);
	if (err == 0 && major)
		atomic_fetch_add_explicit(&mm->major_faults, 1, memory_order_relaxed);
	return err < 0 ? err : major;
}

static int fault_signal(int sig, int code, int *ret_sig, int *ret_code)
{
	*ret_sig = sig;
	*ret_code = code;
	return -EFAULT;
}

int mm_fault(struct mm *mm, u64 addr, bool write, bool exec, int *ret_sig, int *ret_code)
{
	u64 page = page_down(addr);
	struct vma *v;
	bool grow;
	int err;

	atomic_fetch_add_explicit(&mm->minor_faults, 1, memory_order_relaxed);
	if (page < mm->min || page >= mm->max)
		return fault_signal(SIGSEGV, SEGV_MAPERR, ret_sig, ret_code);
	mutex_lock(&mm->active_lock);
	if (home_calls(mm)) {
		mutex_unlock(&mm->active_lock);
		return -ESTALE;
	}
	v = vma_set_seek(&mm->vmas, page);
	grow = v && v->start > page && (v->flags & VMA_GROWSDOWN);
	if (grow) {
		mutex_unlock(&mm->active_lock);
		err = mm_grow_down(mm, page);
		if (err < 0)
			return fault_signal(SIGSEGV, SEGV_MAPERR, ret_sig, ret_code);
		mutex_lock(&mm->active_lock);
		v = vma_set_seek(&mm->vmas, page);
	}
	if (!v || v->start > page) {
		mutex_unlock(&mm->active_lock);
		return fault_signal(SIGSEGV, SEGV_MAPERR, ret_sig, ret_code);
	}
	if (!access_allowed(v, write, exec)) {
		mutex_unlock(&mm->active_lock);
		return fault_signal(SIGSEGV, SEGV_ACCERR, ret_sig, ret_code);
	}
	held_release(mm);
	err = fault_locked(mm, v, page, write, exec);
	mutex_unlock(&mm->active_lock);
	if (err == -EAGAIN)
		atomic_fetch_sub_explicit(&mm->minor_faults, 1, memory_order_relaxed);
	if (err == -EFAULT)
		return fault_signal(SIGBUS, BUS_ADRERR, ret_sig, ret_code);
	return err;
}

/* mm/vma.c of Linux, expand_downwards. */
int mm_grow_down(struct mm *mm, u64 addr)
{
	u64 page = page_down(addr), grow;
	struct vma *v, *prev;
	struct mm_op op;
	int err = -EFAULT;

	if (page < mm->min)
		return -EFAULT;
	mm_op_begin(mm, &op);
	v = vma_set_seek(&mm->vmas, page);
	if (!v || !(v->flags & VMA_GROWSDOWN))
		goto out;
	if (v->start <= page) {
		err = 0; /* another thread did it */
		goto out;
	}
	prev = vma_prev(&mm->vmas, v);
	if (prev && !(prev->flags & VMA_GROWSDOWN) && prev->prot &&
	    page - prev->end < STACK_GUARD_GAP)
		goto out;
	grow = v->start - page;
	if (v->end - page > mm->limits.stack)
		goto out;
	err = -ENOMEM;
	if (!mm_may_expand(mm, &mm->limits, v->prot, v->flags, grow, 0))
		goto out;
	if ((v->flags & VMA_LOCKED) && mm_may_lock(mm, &mm->limits, grow) < 0)
		goto out;
	if ((v->flags & VMA_ACCOUNT) && mm_promise(&op, &mm->limits, grow) < 0)
		goto out;
	v = vma_own(mm, v);
	if (!v)
		goto out;
	vma_resize(mm, v, page, v->end);
	err = 0;
out:
	mm_op_end(&op);
	return err;
}

/* One step of mm_populate within v: from `page` on. Returns where to go on, or -errno. */
static s64 populate_step(struct mm *mm, struct vma *v, u64 page, u64 end, bool write)
{
	struct pma *p;
	u64 to;
	int err = backing_resolve(mm, v, page, write, false, &p);

	if (err < 0)
		return err;
	if (!p) {
		/* Untouched and not to be written: zero pages need no memory. */
		p = pma_set_seek(&mm->pmas, page);
		while (p && !p->file)
			p = pma_next(p);
		return (s64)(p ? MIN(end, MAX(p->start, page + PAGE_SIZE)) : end);
	}
	to = MIN(MIN(p->end, end), page + POPULATE_STEP);
	if (p->owned) {
		err = pgalloc_populate(pgalloc_of(p->file), pma_subrange(p, page, to));
		if (err < 0)
			return -ENOMEM;
	}
	/* Only this piece: what is before it has been done. */
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return -ENOMEM;
	err = backing_map(mm, v, pma_set_isolate(&mm->pmas, p, page, to), true);
	return err < 0 ? err : (s64)to;
}

int mm_populate(struct mm *mm, u64 start, u64 end, bool for_write, bool respect_prot)
{
	int err = 0;

	while (start < end && err == 0) {
		struct vma *v;
		s64 to;

		mutex_lock(&mm->active_lock);
		v = vma_set_find(&mm->vmas, start);
		if (!v) {
			err = -ENOMEM;
		} else if (v->flags & VMA_RESERVED) {
			start = MIN(v->end, end);
		} else if (respect_prot && !(v->prot & (for_write ? PROT_WRITE : PROT_READ))) {
			err = -EINVAL;
		} else if (!v->prot) {
			err = -EFAULT;
		} else {
			bool write = for_write || (!respect_prot && (v->prot & PROT_WRITE) &&
						   !(v->flags & VMA_SHARED));

			to = populate_step(mm, v, start, MIN(v->end, end), write);
			if (to < 0)
				err = (int)to;
			else
				start = (u64)to;
		}
		mutex_unlock(&mm->active_lock);
	}
	return err;
}
