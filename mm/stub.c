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

enum pma_map stub_map_kind(const struct vma *v, const struct pma *p)
{
	return pma_may_write(p) && (v->max_prot & PROT_WRITE) ? PMA_MAP_WRITE : PMA_MAP_READ;
}

void stub_unmap(struct mm *mm, u64 start, u64 end)
{
	int err = platform_as_unmap(mm->as, start, end - start);

	/* A dead stub has no mappings. Else the host could not split a mapping: drop all of them.
	 */
	if (err < 0 && err != -ESRCH)
		stub_drop_all(mm);
	else
		keep_forget(mm, start, end);
}

void stub_forget_all(struct mm *mm)
{
	struct pma *p, *next;

	mutex_assert_held(&mm->active_lock);
	for (p = pma_set_first(&mm->pmas); p; p = next) {
		next = pma_next(p);
		if (!p->file)
			pma_set_drop(&mm->pmas, p);
		else
			pma_set_host(&mm->pmas, p, PMA_UNMAPPED, PROT_NONE);
	}
	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p))
		p = pma_set_merge(&mm->pmas, p);
	keep_forget(mm, mm->min, mm->max);
}

void stub_drop_all(struct mm *mm)
{
	int err;

	mutex_assert_held(&mm->active_lock);
	/* "All" leaves the vdso: the platform sees to that. */
	err = platform_as_unmap(mm->as, mm->min, mm->max - mm->min);
	/* A host short of memory may refuse even that. */
	if (err < 0 && err != -ESRCH) {
		log_warn("mm: a stub cannot be unmapped (error %d); killed", -err);
		platform_as_kill(mm->as);
	}
	stub_forget_all(mm);
	mm->near_pause = NEAR_PAUSE;
}

static bool too_many_mapped(const struct mm *mm)
{
	return mm->pmas.mapped + mm->kept.count >= MM_MAX_HOST_VMAS;
}

static struct platform_op map_op(u64 start, u64 end, struct memfile *file, u64 offset,
				 enum pma_map map, u8 prot)
{
	return (struct platform_op){
		.kind = file ? PLATFORM_OP_MAP : PLATFORM_OP_MAP_ZERO,
		.addr = start,
		.len = end - start,
		.file = file,
		.offset = offset,
		.prot = prot,
		.writable = map == PMA_MAP_WRITE,
	};
}

bool stub_map_late(struct mm *mm, u64 start, u64 end, struct memfile *file, u64 offset,
		   enum pma_map map, u8 prot)
{
	struct platform_op op = map_op(start, end, file, offset, map, prot);
	struct pma *k = pma_set_seek(&mm->kept, start);

	mutex_assert_held(&mm->active_lock);
	return !too_many_mapped(mm) && (!k || k->start >= end) &&
	       platform_as_map_late(mm->as, &op, 1) == 0;
}

int stub_map(struct mm *mm, u64 start, u64 end, struct memfile *file, u64 offset, enum pma_map map,
	     u8 prot, bool populate)
{
	struct platform_op op = map_op(start, end, file, offset, map, prot);
	int err;

	mutex_assert_held(&mm->active_lock);
	op.populate = populate;
	if (too_many_mapped(mm))
		stub_drop_all(mm);
	for (int tries = 0; tries < 2; tries++) {
		err = platform_as_batch(mm->as, &op, 1);
		if (err == 0 || err == -ESRCH) {
			keep_forget(mm, start, end);
			return 0;
		}
		/* The host may have unmapped the range before it failed: start from a known state.
		 */
		stub_drop_all(mm);
	}
	return -ENOMEM;
}

int stub_protect(struct mm *mm, u64 start, u64 end, u8 prot)
{
	struct platform_op op = {
		.kind = PLATFORM_OP_PROTECT, .addr = start, .len = end - start, .prot = prot
	};
	int err;

	mutex_assert_held(&mm->active_lock);
	if (platform_as_alone(mm->as) && platform_as_defer(mm->as, &op) == 0)
		return 0;
	err = platform_as_batch(mm->as, &op, 1);
	if (err == -ESRCH)
		return 0;
	/* Perhaps it was an earlier mapping that has failed: start from a known state. */
	if (err < 0)
		stub_drop_all(mm);
	return err;
}

/* ---- many at once ---- */

void stub_batch_begin(struct mm *mm, struct stub_batch *b)
{
	b->mm = mm;
	b->count = 0;
	b->defer = false;
	b->failed = false;
}

static void batch_flush(struct stub_batch *b)
{
	size_t done = 0;
	int err = 0;

	while (b->defer && done < b->count && platform_as_defer(b->mm->as, &b->ops[done]) == 0)
		if (b->ops[done++].kind == PLATFORM_OP_UNMAP)
			b->mm->loose = true;
	/* The platform does first what has been deferred: the order stays. */
	if (done < b->count && !b->failed)
		err = platform_as_batch(b->mm->as, b->ops + done, b->count - done);
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

/* p continues the last mapping: one call for both, as it is one mapping to the host. */
static bool joins_last(const struct stub_batch *b, const struct pma *p, enum pma_map map, u8 prot)
{
	const struct platform_op *last = b->count ? &b->ops[b->count - 1] : NULL;

	return last && last->kind == PLATFORM_OP_MAP && last->file == p->file &&
	       last->prot == prot && last->writable == (map == PMA_MAP_WRITE) &&
	       last->addr + last->len == p->start && last->offset + last->len == p->offset;
}

static void batch_map(struct stub_batch *b, const struct pma *p, enum pma_map map, u8 prot)
{
	if (joins_last(b, p, map, prot)) {
		b->ops[b->count - 1].len += p->end - p->start;
		return;
	}
	if (b->count == STUB_BATCH)
		batch_flush(b);
	b->ops[b->count++] = (struct platform_op){
		.kind = PLATFORM_OP_MAP,
		.addr = p->start,
		.len = p->end - p->start,
		.file = p->file,
		.offset = p->offset,
		.prot = prot,
		.writable = map == PMA_MAP_WRITE,
	};
}

void stub_batch_end_late(struct stub_batch *b)
{
	if (b->failed || (b->count && platform_as_map_late(b->mm->as, b->ops, b->count) < 0))
		stub_batch_end(b);
}

void stub_batch_end_maps(struct stub_batch *b)
{
	if (b->failed)
		stub_drop_all(b->mm);
	else if (b->count)
		platform_as_batch_begin(b->mm->as, b->ops, b->count);
}

void stub_batch_map(struct stub_batch *b, const struct vma *v, struct pma *p)
{
	struct mm *mm = b->mm;
	u8 prot = stub_prot(v, p);
	enum pma_map map = stub_map_kind(v, p);
	struct pma *k;

	if (!prot || !p->file || p->host_map || too_many_mapped(mm) ||
	    pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return;
	p = pma_set_isolate(&mm->pmas, p, MAX(p->start, v->start), MIN(p->end, v->end));
	k = pma_set_seek(&mm->kept, p->start);
	if (k && k->start < p->end)
		return; /* a fault replaces it */
	batch_map(b, p, map, prot);
	pma_set_host(&mm->pmas, p, map, prot);
}

static void batch_add(struct stub_batch *b, const struct platform_op *op)
{
	struct platform_op *last = b->count ? &b->ops[b->count - 1] : NULL;

	if (last && last->kind == op->kind && last->prot == op->prot &&
	    last->addr + last->len == op->addr) {
		last->len += op->len;
		return;
	}
	if (b->count == STUB_BATCH)
		batch_flush(b);
	b->ops[b->count++] = *op;
}

void stub_batch_protect(struct stub_batch *b, u64 start, u64 end, u8 prot)
{
	batch_add(b, &(struct platform_op){ .kind = PLATFORM_OP_PROTECT,
					    .addr = start,
					    .len = end - start,
					    .prot = prot });
}

void stub_batch_unmap(struct stub_batch *b, u64 start, u64 end)
{
	batch_add(b, &(struct platform_op){
			     .kind = PLATFORM_OP_UNMAP, .addr = start, .len = end - start });
}

/* The rights that p, which is mapped, is to have. */
static u8 restricted(const struct pma *p, u8 allowed, bool exactly)
{
	u8 prot = exactly ? allowed : p->host_prot & allowed;

	/* What may not be written now gets that right from a fault, by another mapping. */
	return p->host_map == PMA_MAP_WRITE && pma_may_write(p) ? prot : prot & (u8)~PROT_WRITE;
}

void stub_restrict(struct mm *mm, u64 start, u64 end, u8 allowed, bool exactly)
{
	struct stub_batch b;
	struct pma *p, *next;

	mutex_assert_held(&mm->active_lock);
	stub_batch_begin(mm, &b);
	/* With several threads, two changes of rights could change places. */
	b.defer = exactly && platform_as_alone(mm->as);
	for (p = pma_set_seek(&mm->pmas, start); p && p->start < end; p = next) {
		u64 from = MAX(p->start, start), to = MIN(p->end, end);
		u8 prot = restricted(p, allowed, exactly);

		if (!p->host_map || prot == p->host_prot) {
			next = pma_next(p);
			continue;
		}
		/* No memory to split with: the whole pma loses the rights and gets them back by
		 * faults. */
		if (pma_set_reserve(&mm->pmas, PMA_RESERVE) == 0)
			p = pma_set_isolate(&mm->pmas, p, from, to);
		if (!prot && !p->file) {
			stub_batch_unmap(&b, p->start, p->end);
			next = pma_next(p);
			pma_set_drop(&mm->pmas, p);
			continue;
		}
		stub_batch_protect(&b, p->start, p->end, prot);
		pma_set_host(&mm->pmas, p, p->host_map, prot);
		next = pma_next(pma_set_merge(&mm->pmas, p));
	}
	stub_batch_end(&b);
}

void stub_protect_cow(struct mm *mm, struct stub_batch *b)
{
	struct pma *p;

	mutex_assert_held(&mm->active_lock);
	for (p = pma_set_first(&mm->pmas); p; p = pma_next(p)) {
		if (p->cow && p->host_map == PMA_MAP_WRITE) {
			u8 prot = p->host_prot & (u8)~PROT_WRITE;

			if (prot)
				batch_map(b, p, PMA_MAP_READ, prot);
			else
				stub_batch_unmap(b, p->start, p->end);
			pma_set_host(&mm->pmas, p, prot ? PMA_MAP_READ : PMA_UNMAPPED, prot);
		}
		p = pma_set_merge(&mm->pmas, p);
	}
}
