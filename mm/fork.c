/*
 * fork: the child gets copies of the vmas; private memory is shared
 * copy-on-write. The child's stub starts empty and fills by faults; the
 * parent's is write-protected before mm_fork returns.
 */
#include "mm/mm_impl.h"

#include <stdlib.h>

/* A child may always map what its parent maps, whatever seals say to newcomers. */
static int copy_reg(struct mm *child, const struct vma *v, struct vma_reg **ret)
{
	struct vma_reg *reg = v->reg;
	int err = vma_reg_new(child, v->mappable, reg->m.start, reg->m.end, reg->m.shared,
			      reg->m.writable, ret);

	if (err < 0 && err != -ENOMEM)
		err = vma_reg_new(child, v->mappable, reg->m.start, reg->m.end, reg->m.shared,
				  false, ret);
	return err;
}

static int copy_vma(struct mm *child, struct vma *v)
{
	struct vma_reg *reg = NULL;
	struct vma *n;
	int err;

	if (v->mappable) {
		err = copy_reg(child, v, &reg);
		if (err < 0)
			return err;
	}
	n = malloc(sizeof(*n));
	if (!n) {
		vma_reg_release(reg);
		return -ENOMEM;
	}
	*n = *v;
	n->reg = reg;
	n->flags &= ~(u32)(VMA_LOCKED | VMA_LOCKONFAULT);
	list_init(&n->reg_node);
	if (n->mappable)
		n->mappable->ops->get(n->mappable);
	vma_name_get(n->name);
	vma_name_get(n->anon_name);
	/* The file may already tell the child of a truncation. */
	mutex_lock(&child->active_lock);
	vma_enter(child, n);
	mutex_unlock(&child->active_lock);
	return 0;
}

static int copy_vmas(struct mm *parent, struct mm *child)
{
	struct vma *v;
	int err = 0;

	for (v = vma_set_first(&parent->vmas); v && err == 0; v = vma_next(v))
		if (!(v->flags & VMA_DONTFORK))
			err = copy_vma(child, v);
	child->mmap_base = parent->mmap_base;
	child->limits = parent->limits;
	child->marks = parent->marks;
	return err;
}

/*
 * The sentry may be writing into p's pages for the parent right now (a read
 * that another thread waits in): such pages are not shared, the child gets its
 * own copy. Finds the first such part of p, in guest addresses.
 */
static bool pinned_for_write(const struct mm *parent, const struct pma *p, u64 *ret_start,
			     u64 *ret_end)
{
	struct mem_range r = pma_range(p);
	bool found = false;

	for (struct mm_write_pin *pin = parent->write_pins; pin; pin = pin->next) {
		u64 start = MAX(pin->range.start, r.start), end = MIN(pin->range.end, r.end);

		if (pin->file != p->file || start >= end)
			continue;
		start = p->start + (start - r.start);
		end = p->start + (end - r.start);
		if (!found || start < *ret_start) {
			*ret_start = start;
			*ret_end = end;
		}
		found = true;
	}
	return found;
}

static int give_copy(struct mm *child, const struct vma *v, struct pma *value)
{
	struct mem_range dst, src = pma_range(value);
	int err = backing_allocate(child, v, value->start, value->end, &dst);

	if (err < 0)
		return -ENOMEM;
	err = pgalloc_copy_between(pgalloc_of(value->file), src, child->memory, dst);
	if (err < 0) {
		memfile_put(child->memfile, dst);
		return -ENOMEM;
	}
	value->file = child->memfile;
	value->offset = dst.start;
	value->cow = false;
	pma_set_merge(&child->pmas, pma_set_add(&child->pmas, value));
	return 0;
}

/*
 * Gives the child its share of p within v, and marks the parent's part too
 * (stub_protect_cow follows). *p is left at the last part that was dealt with.
 */
static int share(struct mm *parent, struct mm *child, const struct vma *v, struct pma **p)
{
	struct pma value;
	u64 start, end;
	bool pinned = false;

	if (pma_set_reserve(&child->pmas, PMA_RESERVE) < 0 ||
	    pma_set_reserve(&parent->pmas, 2 * PMA_RESERVE) < 0)
		return -ENOMEM;
	start = MAX((*p)->start, v->start);
	end = MIN((*p)->end, v->end);
	if (parent->write_pins) {
		u64 pin_start = 0, pin_end = 0;

		*p = pma_set_isolate(&parent->pmas, *p, start, end);
		if (pinned_for_write(parent, *p, &pin_start, &pin_end)) {
			pinned = pin_start == start;
			end = pinned ? pin_end : pin_start;
			*p = pma_set_isolate(&parent->pmas, *p, start, end);
		}
	}
	value = **p;
	value.start = start;
	value.end = end;
	value.offset += start - (*p)->start;
	value.host_prot = PROT_NONE;
	if (pinned)
		return give_copy(child, v, &value);
	value.cow = true;
	memfile_get(value.file, pma_range(&value));
	pma_set_merge(&child->pmas, pma_set_add(&child->pmas, &value));
	(*p)->cow = true;
	return 0;
}

static int share_pmas(struct mm *parent, struct mm *child)
{
	struct vma *v;
	struct pma *p;
	int err = 0;

	for (v = vma_set_first(&child->vmas); v; v = vma_next(v)) {
		if ((v->flags & (VMA_SHARED | VMA_WIPEONFORK | VMA_RESERVED)))
			continue;
		p = pma_set_seek(&parent->pmas, v->start);
		for (; p && p->start < v->end; p = pma_next(p)) {
			if (!p->file || !p->owned)
				continue;
			err = share(parent, child, v, &p);
			if (err < 0)
				return err;
		}
	}
	return 0;
}

/* Beyond this the child fills by faults: most of it would not be touched before an exec. */
#define PREFAULT_MAX 96

/*
 * What the parent has mapped, the child is likely to touch: it is mapped in one
 * hand-over instead of a fault each. Pages of files are asked for again, so that
 * a truncation under way is not missed. Both active locks held.
 */
static void prefault(struct mm *parent, struct mm *child)
{
	struct stub_batch b;
	struct pma *p;

	if (parent->pmas.mapped > PREFAULT_MAX)
		return;
	stub_batch_begin(child, &b);
	for (p = pma_set_first(&parent->pmas); p; p = pma_next(p)) {
		struct vma *v = p->file && p->host_prot ? vma_set_find(&child->vmas, p->start) : NULL;
		struct pma *c;

		if (!v || v->end < p->end || (v->flags & VMA_WIPEONFORK))
			continue;
		if (v->mappable && !p->owned &&
		    backing_resolve(child, v, p->start, false, false, &c) < 0)
			continue;
		c = pma_set_find(&child->pmas, p->start);
		if (!c || pma_set_reserve(&child->pmas, PMA_RESERVE) < 0)
			continue;
		c = pma_set_isolate(&child->pmas, c, MAX(c->start, p->start), MIN(c->end, p->end));
		stub_batch_map(&b, v, c);
	}
	stub_batch_end(&b);
}

int mm_fork(struct mm *parent, struct mm **ret_child)
{
	struct mm_config config = {
		.platform = parent->platform,
		.memory = parent->memory,
		.acct_id = parent->acct_id,
	};
	struct mm *child;
	int err = mm_new(&config, &child);

	if (err < 0)
		return err;
	child->dumpable = parent->dumpable;
	rwlock_wrlock(&parent->map_lock);
	err = copy_vmas(parent, child);
	if (err == 0) {
		mutex_lock(&parent->active_lock);
		mutex_lock_nested(&child->active_lock);
		err = share_pmas(parent, child);
		if (err == 0)
			prefault(parent, child);
		mutex_unlock(&child->active_lock);
		/* Also after a failure: what is marked cow must not be writable. */
		stub_protect_cow(parent);
		mutex_unlock(&parent->active_lock);
	}
	rwlock_unlock(&parent->map_lock);
	if (err < 0) {
		mm_put(child);
		return err;
	}
	*ret_child = child;
	return 0;
}
