/* The stub's mappings: a cache of the pmas. */
#include "mm/mm_impl.h"

u8 stub_prot(const struct vma *v, const struct pma *p)
{
	u8 prot = v->prot;

	if (!prot || (v->flags & VMA_RESERVED))
		return PROT_NONE;
	/* x86: what can be written or executed can be read. */
	prot |= PROT_READ;
	if (!pma_may_write(p))
		prot &= (u8)~PROT_WRITE;
	return prot;
}

void stub_unmap(struct mm *mm, u64 start, u64 end)
{
	int err = platform_as_unmap(mm->as, start, end - start);

	/* A dead stub has no mappings. Else the host could not split a mapping: drop all of them.
	 */
	if (err < 0 && err != -ESRCH)
		stub_drop_all(mm);
}

void stub_drop_all(struct mm *mm)
{
	struct pma *p, *next;
	int err;

	mutex_assert_held(&mm->active_lock);
	/* "All" leaves the vdso: the platform sees to that. */
	err = platform_as_unmap(mm->as, mm->min, mm->max - mm->min);
	/* A host short of memory may refuse even that. */
	if (err < 0 && err != -ESRCH) {
		log_warn("mm: a stub cannot be unmapped (error %d); killed", -err);
		platform_as_kill(mm->as);
	}
	for (p = pma_set_first(&mm->pmas); p; p = next) {
		next = pma_next(p);
		if (!p->file)
			pma_set_drop(&mm->pmas, p);
		else
			pma_set_host_prot(&mm->pmas, p, PROT_NONE);
	}
	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p))
		p = pma_set_merge(&mm->pmas, p);
}

static int map_once(struct mm *mm, u64 start, u64 end, struct memfile *file, u64 offset, u8 prot,
		    bool populate)
{
	int err = file ? platform_as_map(mm->as, start, end - start, file, offset, prot, populate)
		       : platform_as_map_zero(mm->as, start, end - start, prot);

	return err == -ESRCH ? 0 : err;
}

int stub_map(struct mm *mm, u64 start, u64 end, struct memfile *file, u64 offset, u8 prot,
	     bool populate)
{
	int err;

	mutex_assert_held(&mm->active_lock);
	if (mm->pmas.mapped >= MM_MAX_HOST_VMAS)
		stub_drop_all(mm);
	err = map_once(mm, start, end, file, offset, prot, populate);
	if (err == 0)
		return 0;
	/* The host may have unmapped the range before it failed: start from a known state. */
	stub_drop_all(mm);
	err = map_once(mm, start, end, file, offset, prot, populate);
	if (err == 0)
		return 0;
	stub_drop_all(mm);
	return -ENOMEM;
}

int stub_map_zero(struct mm *mm, u64 start, u64 end, u8 prot)
{
	return stub_map(mm, start, end, NULL, 0, prot, false);
}

void stub_batch_begin(struct mm *mm, struct stub_batch *b)
{
	b->mm = mm;
	b->count = 0;
	b->failed = false;
}

static void batch_flush(struct stub_batch *b)
{
	int err = 0;

	if (b->count && !b->failed)
		err = platform_as_batch(b->mm->as, b->ops, b->count);
	if (err < 0 && err != -ESRCH)
		b->failed = true;
	b->count = 0;
}

void stub_batch_end(struct stub_batch *b)
{
	batch_flush(b);
	if (b->failed)
		stub_drop_all(b->mm);
}

void stub_batch_map(struct stub_batch *b, const struct vma *v, struct pma *p)
{
	struct pma_set *set = &b->mm->pmas;
	u8 prot = stub_prot(v, p);

	if (!prot || !p->file || p->host_prot || set->mapped >= MM_MAX_HOST_VMAS ||
	    pma_set_reserve(set, PMA_RESERVE) < 0)
		return;
	p = pma_set_isolate(set, p, MAX(p->start, v->start), MIN(p->end, v->end));
	if (b->count == STUB_BATCH)
		batch_flush(b);
	b->ops[b->count++] = (struct platform_op){
		.kind = PLATFORM_OP_MAP,
		.addr = p->start,
		.len = p->end - p->start,
		.file = p->file,
		.offset = p->offset,
		.prot = prot,
	};
	pma_set_host_prot(set, p, prot);
}

/* prot 0: unmap. Contiguous changes of a kind become one. */
static void batch_add(struct stub_batch *b, u64 start, u64 end, u8 prot)
{
	struct platform_op *last = b->count ? &b->ops[b->count - 1] : NULL;
	struct platform_op op = {
		.kind = prot ? PLATFORM_OP_PROTECT : PLATFORM_OP_UNMAP,
		.addr = start,
		.len = end - start,
		.prot = prot,
	};

	if (last && last->kind == op.kind && last->prot == op.prot &&
	    last->addr + last->len == start) {
		last->len += op.len;
		return;
	}
	if (b->count == STUB_BATCH)
		batch_flush(b);
	b->ops[b->count++] = op;
}

void stub_restrict(struct mm *mm, u64 start, u64 end, u8 allowed, bool exactly)
{
	struct stub_batch b;
	struct pma *p, *next;

	mutex_assert_held(&mm->active_lock);
	stub_batch_begin(mm, &b);
	for (p = pma_set_seek(&mm->pmas, start); p && p->start < end; p = next) {
		u64 from = MAX(p->start, start), to = MIN(p->end, end);
		u8 prot = p->host_prot & allowed;

		if (exactly && p->host_prot)
			prot = pma_may_write(p) ? allowed : allowed & (u8)~PROT_WRITE;
		if (prot == p->host_prot) {
			next = pma_next(p);
			continue;
		}
		/* No memory to split with: the whole pma loses the rights and gets them back by
		 * faults. */
		if (pma_set_reserve(&mm->pmas, PMA_RESERVE) == 0)
			p = pma_set_isolate(&mm->pmas, p, from, to);
		batch_add(&b, p->start, p->end, prot);
		if (!prot && !p->file) {
			next = pma_next(p);
			pma_set_drop(&mm->pmas, p);
			continue;
		}
		pma_set_host_prot(&mm->pmas, p, prot);
		next = pma_next(pma_set_merge(&mm->pmas, p));
	}
	stub_batch_end(&b);
}

void stub_protect_cow(struct mm *mm)
{
	struct stub_batch b;
	struct pma *p;

	mutex_assert_held(&mm->active_lock);
	stub_batch_begin(mm, &b);
	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p)) {
		if (p->cow && (p->host_prot & PROT_WRITE)) {
			u8 prot = p->host_prot & (u8)~PROT_WRITE;

			batch_add(&b, p->start, p->end, prot);
			pma_set_host_prot(&mm->pmas, p, prot);
		}
		p = pma_set_merge(&mm->pmas, p);
	}
	stub_batch_end(&b);
}
