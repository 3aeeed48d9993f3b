/* mprotect, mseal and anonymous names. */
#include "mm/mm_impl.h"

#ifndef PROT_SEM
#define PROT_SEM 0x8
#endif
#define PROT_GROWS (PROT_GROWSDOWN | PROT_GROWSUP)

/* Nothing has been written there since it was mapped. */
static bool untouched(struct mm *mm, const struct vma *v)
{
	struct pma *p = pma_set_seek(&mm->pmas, v->start);

	while (p && p->start < v->end && !p->file)
		p = pma_next(p);
	return !p || p->start >= v->end;
}

/* The flags of [start, end) of v when its rights change to prot: what may be written is promised
 * from then on, what never was written not any more (mprotect_fixup of Linux). */
static int new_account(struct mm_op *op, const struct vma *v, u64 len, u8 prot,
		       const struct mm_limits *limits, u32 *ret_flags)
{
	int err = 0;

	*ret_flags = v->flags;
	if (prot & PROT_WRITE) {
		if (v->flags & (VMA_ACCOUNT | VMA_SHARED | VMA_NORESERVE))
			return 0;
		err = mm_promise(op, limits, len);
		if (err == 0)
			*ret_flags |= VMA_ACCOUNT;
	} else if ((v->flags & VMA_ACCOUNT) && vma_is_anon(v) && untouched(op->mm, v)) {
		*ret_flags &= ~(u32)VMA_ACCOUNT;
	}
	return err;
}

/* Changes one vma's part [start, end); the vma is cut there. */
static int protect_part(struct mm_op *op, struct vma *v, u64 start, u64 end, u8 prot,
			const struct mm_limits *limits, struct vma **ret)
{
	struct mm *mm = op->mm;
	u64 grows = 0;
	u32 flags;
	int err;

	*ret = v;
	if (v->flags & VMA_RESERVED)
		return -EPERM;
	if ((prot & ~v->max_prot) || mm_denies(mm, v->prot, prot))
		return -EACCES;
	if (v->flags & VMA_SEALED)
		return -EPERM;
	if (prot == v->prot)
		return 0;
	if ((prot & PROT_WRITE) && !(v->prot & PROT_WRITE) && !(v->flags & VMA_SHARED)) {
		grows = end - start;
		if (!(v->flags & VMA_GROWSDOWN) && mm->data + grows > mm_data_limit(limits))
			return -ENOMEM;
	}
	err = new_account(op, v, end - start, prot, limits, &flags);
	if (err == 0)
		err = vma_cut(mm, start, end);
	if (err < 0)
		return err;
	v = vma_own(mm, vma_set_find(&mm->vmas, start));
	if (!v)
		return -ENOMEM;
	vma_change(mm, v, prot, flags);
	/* Who is about to change code looks at it before. */
	if ((prot & PROT_WRITE) && v->mappable)
		text_drop(mm, start, end);
	*ret = vma_merge(op, v);
	return 0;
}

/* Linux's do_mprotect_pkey. */
int mm_mprotect(struct mm *mm, u64 addr, u64 len, int prot, const struct mm_limits *limits)
{
	u8 new_prot = (u8)(prot & MM_PROT_ALL);
	u8 host = new_prot ? new_prot | PROT_READ : PROT_NONE;
	int grows = prot & PROT_GROWS;
	struct mm_op op;
	struct vma *v;
	u64 end, pos, populate_from = 0, populate_to = 0;
	int err = 0;

	if (grows == PROT_GROWS || !page_aligned(addr))
		return -EINVAL;
	if (!len)
		return 0;
	if (!page_up(len, &len) || !len || addr + len <= addr)
		return -ENOMEM;
	if (prot & ~(MM_PROT_ALL | PROT_SEM | PROT_GROWS))
		return -EINVAL;
	end = addr + len;
	mm_op_begin(mm, &op);
	mm->limits = *limits;
	v = vma_set_seek(&mm->vmas, addr);
	if (!v || (grows & PROT_GROWSDOWN ? v->start >= end : v->start > addr)) {
		err = -ENOMEM;
	} else if (grows & PROT_GROWSUP) {
		err = -EINVAL; /* x86 has no such vma */
	} else if (grows) {
		if (v->flags & VMA_GROWSDOWN)
			addr = v->start;
		else
			err = -EINVAL;
	}
	for (pos = addr; err == 0 && pos < end;) {
		u64 to;

		if (!v || v->start > pos) {
			err = -ENOMEM;
			break;
		}
		to = MIN(v->end, end);
		if ((v->flags & VMA_LOCKED) && (new_prot & PROT_WRITE) && !populate_from) {
			populate_from = pos;
			populate_to = to;
		}
		err = protect_part(&op, v, pos, to, new_prot, limits, &v);
		if (err == 0) {
			/* Rights that go must be gone in the stub before we return; what is mapped
			 * gets the new ones with the same call, since it is likely to be used. */
			stub_leave_room(mm);
			stub_restrict(mm, pos, to, host, true);
			pos = to;
			v = vma_set_seek(&mm->vmas, pos);
		}
	}
	mm_op_end(&op);
	if (err == 0 && populate_from)
		mm_populate(mm, populate_from, populate_to, false, false);
	return err;
}

/* Linux's do_mseal. */
int mm_mseal(struct mm *mm, u64 addr, u64 len)
{
	struct mm_op op;
	struct vma *v;
	u64 pos, end, to;
	int err = 0;

	if (!page_aligned(addr) || !page_up(len, &len) || addr + len < addr)
		return -EINVAL;
	end = addr + len;
	mm_op_begin(mm, &op);
	for (pos = addr; pos < end && err == 0; pos = v ? v->end : end) {
		v = vma_set_find(&mm->vmas, pos);
		err = v ? 0 : -ENOMEM;
	}
	for (pos = addr; pos < end && err == 0; pos = to) {
		v = vma_set_find(&mm->vmas, pos);
		to = MIN(v->end, end);
		if ((v->flags & VMA_RESERVED) && (pos > v->start || to < v->end))
			err = -EINVAL; /* the vdso stays in one piece */
		else if (!(v->flags & VMA_SEALED))
			err = vma_change_part(&op, pos, to, v->flags | VMA_SEALED);
	}
	mm_op_end(&op);
	return err;
}

/* PR_SET_VMA_ANON_NAME; Linux's madvise_set_anon_name. */
int mm_set_anon_name(struct mm *mm, u64 addr, u64 len, const char *text)
{
	struct vma_name *name = NULL;
	struct mm_op op;
	struct vma *v;
	u64 pos, end;
	int err = 0;

	if (!page_aligned(addr))
		return -EINVAL;
	if (!page_up(len, &len) || addr + len < addr)
		return -EINVAL;
	end = addr + len;
	if (end == addr)
		return 0;
	if (text && !(name = vma_name_new(text)))
		return -ENOMEM;
	mm_op_begin(mm, &op);
	for (pos = addr; pos < end && err != -EBADF;) {
		struct vma_name *use = name, *near;
		struct vma *prev;
		u64 to;

		v = vma_set_seek(&mm->vmas, pos);
		if (!v || v->start > pos)
			err = -ENOMEM;
		if (!v || v->start >= end)
			break;
		pos = MAX(pos, v->start);
		to = MIN(v->end, end);
		if ((v->flags & VMA_RESERVED) || (v->mappable && !(v->flags & VMA_SHARED))) {
			err = -EBADF;
			break;
		}
		/* A neighbour's equal name is shared, so that the two can merge. */
		prev = vma_prev(&mm->vmas, v);
		near = pos > v->start ? v->anon_name : prev ? prev->anon_name : NULL;
		if (use && near && !__builtin_strcmp(near->text, use->text))
			use = near;
		if (vma_cut(mm, pos, to) < 0) {
			err = -ENOMEM;
			break;
		}
		v = vma_own(mm, vma_set_find(&mm->vmas, pos));
		if (!v) {
			err = -ENOMEM;
			break;
		}
		if (v->anon_name != use) {
			struct vma_name *old = v->anon_name;

			v->anon_name = vma_name_get(use);
			vma_name_put(old);
		}
		vma_merge(&op, v);
		pos = to;
	}
	mm_op_end(&op);
	vma_name_put(name);
	return err;
}
