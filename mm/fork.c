/*
 * fork: the child shares the tree of the vmas, but for those of files, and gets its own of
 * these; private memory is shared copy-on-write. The child's stub starts empty and fills by faults;
 * the parent's is write-protected before mm_fork returns.
 */
#include "mm/mm_impl.h"

#include "base/host_sync.h"

#include <stdlib.h>
#include <string.h>

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

/* Before the parent's may change: those that are in the child's set still belong to it. */
static void drop_vmas(struct mm *child)
{
	struct vma *v, *next;

	mutex_lock(&child->active_lock);
	v = vma_leave_all(child);
	mutex_unlock(&child->active_lock);
	for (; v; v = next) {
		next = v->dead_next;
		vma_reg_release(v->reg);
		vma_put(v);
	}
}

/* What a child does not simply share with its parent. */
#define VMA_UNLIKE (VMA_MARK_FILE | VMA_DONTFORK | VMA_LOCKED | VMA_LOCKONFAULT)

/* Puts the child's own vma in the place of v, which is its parent's, or nothing. */
static int copy_vma(struct mm *child, struct vma *v)
{
	struct vma_reg *reg = NULL;
	struct vma *n = NULL;
	int err = 0;

	if (!(v->flags & VMA_DONTFORK)) {
		if (v->reg)
			err = copy_reg(child, v, &reg);
		if (err < 0)
			return err;
		n = vma_dup(v, v->start, v->end);
		if (!n) {
			vma_reg_release(reg);
			return -ENOMEM;
		}
		n->reg = reg;
		n->flags &= ~(u32)(VMA_LOCKED | VMA_LOCKONFAULT);
	}
	/* The file may already tell the child of a truncation. */
	mutex_lock(&child->active_lock);
	err = vma_set_own(&child->vmas, v->start, v->end);
	if (err == 0)
		vma_exchange(child, v, n);
	mutex_unlock(&child->active_lock);
	if (err == 0) {
		vma_put(v); /* the parent's set has it, too */
	} else if (n) {
		vma_reg_release(reg);
		vma_put(n);
	}
	return err;
}

static int copy_vmas(struct mm *parent, struct mm *child)
{
	struct vma *v;
	int err = 0;

	mutex_lock(&child->active_lock);
	vma_share_all(child, parent);
	mutex_unlock(&child->active_lock);
	for (v = vma_set_marked(&parent->vmas, 0, VMA_UNLIKE); v && err == 0;
	     v = vma_set_marked(&parent->vmas, v->end, VMA_UNLIKE))
		err = copy_vma(child, v);
	if (err == 0)
		err = mm_promise_child(child, parent);
	child->peak_vm = child->total;
	child->mmap_base = parent->mmap_base;
	child->limits = parent->limits;
	child->marks = parent->marks;
	if (err < 0)
		drop_vmas(child);
	return err;
}

/* The first hot piece that ends behind addr: they are in order. */
static int first_hot(const struct mm *mm, u64 addr)
{
	int low = 0, high = mm->hot_count;

	while (low < high) {
		int mid = (low + high) / 2;

		if (mm->hot[mid].end > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/*
 * Some pages are not shared, the child gets its own copy at once: those that
 * the sentry may be writing for the parent right now (a read that another
 * thread waits in), and those that either side is sure to write soon (hot.h).
 * Finds the first such part of [*start, *end) of p, in guest addresses.
 */
static bool find_unshared(const struct mm *parent, const struct pma *p, u64 *start, u64 *end)
{
	struct mem_range r = pma_subrange(p, *start, *end);
	u64 best = *end, best_end = *end;
	int hot;

	for (struct mm_write_pin *pin = parent->write_pins; pin; pin = pin->next) {
		u64 from = MAX(pin->range.start, r.start), to = MIN(pin->range.end, r.end);

		if (pin->file == p->file && from < to && *start + (from - r.start) < best) {
			best = *start + (from - r.start);
			best_end = *start + (to - r.start);
		}
	}
	hot = first_hot(parent, *start);
	if (hot < parent->hot_count && parent->hot[hot].start < best) {
		best = MAX(parent->hot[hot].start, *start);
		best_end = MIN(parent->hot[hot].end, *end);
	}
	if (best == *end)
		return false;
	*start = best;
	*end = best_end;
	return true;
}

/* Copies are no more than this part of what memory is left: who gets them may never write. */
#define HOT_SHARE 16

/* Both active locks held. */
static void take_hot(struct mm *parent, struct mm *child)
{
	u64 most = pgalloc_room(parent->memory) / HOT_SHARE / HOT_BYTES;

	if (!parent->hot_set)
		parent->hot_set = hot_new();
	child->hot_set = hot_get(parent->hot_set);
	child->ahead = parent->ahead;
	child->born_ns = host_clock_ns(CLOCK_MONOTONIC);
	parent->hot_count = hot_take(parent->hot_set, fork_watch_was_quick(parent),
				     fork_watch_will_wait(parent), (int)MIN(most, HOT_MANY),
				     &child->hot_child, &parent->hot);
}

static void forget_hot(struct mm *parent)
{
	free(parent->hot);
	parent->hot = NULL;
	parent->hot_count = 0;
}

/* Copies must be of one moment: the parent's other threads are held off, in one hand-over. */
static void hold_hot(struct mm *parent)
{
	struct stub_batch b;
	int i;

	if (atomic_load(&parent->users) == 1)
		return;
	stub_batch_begin(parent, &b);
	for (i = 0; i < parent->hot_count; i++) {
		const struct hot_piece *hot = &parent->hot[i];
		struct pma *p = pma_set_seek(&parent->pmas, hot->start);

		for (; p && p->start < hot->end; p = pma_next(p)) {
			u8 prot = p->host_prot & (u8)~PROT_WRITE;

			if (!p->owned || p->host_map != PMA_MAP_WRITE || prot == p->host_prot)
				continue;
			if (pma_set_reserve(&parent->pmas, PMA_RESERVE) < 0)
				goto out;
			p = pma_set_isolate(&parent->pmas, p, MAX(p->start, hot->start),
					    MIN(p->end, hot->end));
			stub_batch_protect(&b, p->start, p->end, prot);
			pma_set_host(&parent->pmas, p, p->host_map, prot);
		}
	}
out:
	parent->hot_count = i; /* those that could not be held are shared */
	stub_batch_end(&b);
}

/* What the parent has kept to itself it may write to again. */
static void release_hot(struct mm *parent, struct stub_batch *b)
{
	if (atomic_load(&parent->users) == 1)
		return;
	for (int i = 0; i < parent->hot_count; i++) {
		const struct hot_piece *hot = &parent->hot[i];
		struct pma *p = pma_set_seek(&parent->pmas, hot->start);

		for (; p && p->start < hot->end; p = pma_next(p)) {
			const struct vma *v = vma_set_seek(&parent->vmas, p->start);
			u8 prot;

			if (p->host_map != PMA_MAP_WRITE || !p->owned || !v ||
			    v->start > p->start || v->end < p->end)
				continue;
			prot = stub_prot(v, p);
			if (prot == p->host_prot || !p->host_prot)
				continue;
			stub_batch_protect(b, p->start, p->end, prot);
			pma_set_host(&parent->pmas, p, p->host_map, prot);
		}
	}
}

/* Shares what parent has with child. Both active locks held, until the references are taken. */
struct sharing {
	struct mm *parent, *child;
	struct legacy *legacy;	       /* that the child begins with, or NULL */
	struct pgalloc_copies *copies; /* to what that has, or NULL */
	u64 plain_until;	       /* so far all vmas are alike for fork */
	/* References that the child still has to take, for many pmas at once. */
	struct memfile *file;
	struct mem_range range;
};

static int give_copy(struct sharing *s, const struct vma *v, struct pma *value)
{
	struct mm *child = s->child;
	struct mem_range dst;
	int err;

	if (!legacy_copy(child, s->legacy, v, value, s->copies)) {
		err = backing_allocate_copy(child, v, value, &dst);
		if (err < 0)
			return err;
		value->file = child->memfile;
		value->offset = dst.start;
		value->cow = false;
	}
	MM_COUNT(child, fork_copy);
	pma_set_merge(&child->pmas, pma_set_add(&child->pmas, value));
	return 0;
}

/* Ranges with these are looked at vma by vma. */
#define VMA_APART (VMA_SHARED | VMA_WIPEONFORK | VMA_RESERVED | VMA_DONTFORK)

/* Where what begins at start, in v, and can be shared at once ends: many vmas may be alike in that.
 */
static u64 alike_until(const struct mm *parent, const struct vma *v, u64 start, u64 end)
{
	const struct vma *apart = vma_set_marked(&parent->vmas, start, VMA_APART);

	return apart && apart->start < end ? MIN(v->end, end) : end;
}

static void take_references(struct sharing *s)
{
	if (s->file)
		memfile_get(s->file, s->range);
	s->file = NULL;
}

static void give_shared(struct sharing *s, const struct pma *value)
{
	struct mem_range r = pma_range(value);

	if (s->file == value->file && s->range.end == r.start) {
		s->range.end = r.end;
	} else {
		take_references(s);
		s->file = value->file;
		s->range = r;
	}
	pma_set_append(&s->child->pmas, value);
}

/* All of p is shared as it is. */
static bool plain(struct sharing *s, const struct pma *p)
{
	u64 start = p->start, end = p->end;

	if (start >= s->plain_until) {
		const struct vma *apart = vma_set_marked(&s->parent->vmas, start, VMA_APART);

		s->plain_until = apart ? apart->start : UINT64_MAX;
	}
	return end <= s->plain_until && !find_unshared(s->parent, p, &start, &end);
}

static int share_plain(struct sharing *s, struct pma *p)
{
	struct pma value = *p;

	if (pma_set_reserve(&s->child->pmas, 1) < 0)
		return -ENOMEM;
	value.host_prot = PROT_NONE;
	value.host_map = PMA_UNMAPPED;
	value.cow = p->cow = true;
	give_shared(s, &value);
	return 0;
}

/*
 * Gives the child its share of p from *at on, which is in v, and marks the parent's part too
 * (stub_protect_cow follows). *at goes to the end of what was dealt with.
 */
static int share(struct sharing *s, const struct vma *v, struct pma *p, u64 *at)
{
	struct mm *parent = s->parent, *child = s->child;
	struct pma value;
	u64 start = MAX(*at, v->start), end = alike_until(parent, v, start, p->end);
	bool alone = false;
	int err;

	if (pma_set_reserve(&child->pmas, PMA_RESERVE) < 0 ||
	    pma_set_reserve(&parent->pmas, 2 * PMA_RESERVE) < 0)
		return -ENOMEM;
	if (parent->write_pins || parent->hot_count) {
		u64 from = start, to = end;

		/* What is beside it must not become cow by the way: it may be pinned. */
		p = pma_set_isolate(&parent->pmas, p, start, end);
		if (find_unshared(parent, p, &from, &to)) {
			alone = from == start;
			/* What is written is mapped with the rights of its vma alone. */
			end = alone ? legacy_alike_until(s->legacy, start, MIN(to, v->end)) : from;
			p = pma_set_isolate(&parent->pmas, p, start, end);
		}
	}
	*at = end;
	if (alone && atomic_load(&parent->users) > 1) {
		/* The copy must be of one moment: hold the parent's other threads off. */
		stub_restrict(parent, start, end, PROT_READ | PROT_EXEC, false);
		p = pma_set_isolate(&parent->pmas, pma_set_find(&parent->pmas, start), start, end);
	}
	value = *p;
	value.start = start;
	value.end = end;
	value.offset += start - p->start;
	value.host_prot = PROT_NONE;
	value.host_map = PMA_UNMAPPED;
	if (alone) {
		err = give_copy(s, v, &value);
		if (err == -ENOMEM && parent->hot_count) {
			/* Once more: what is hot can be shared, what is pinned cannot. */
			parent->hot_count = 0;
			*at = start;
			err = 0;
		}
		return err;
	}
	value.cow = p->cow = true;
	give_shared(s, &value);
	return 0;
}

static int share_pmas(struct mm *parent, struct mm *child, struct legacy *legacy,
		      struct pgalloc_copies *copies)
{
	struct sharing s = { .parent = parent, .child = child, .legacy = legacy, .copies = copies };
	struct pma *p = pma_set_first(&parent->pmas);
	u64 at = 0;
	int err = 0;

	while (p && err == 0) {
		struct vma *v = NULL;

		if (p->file && p->owned && at <= p->start && plain(&s, p)) {
			err = share_plain(&s, p);
			p = pma_next(p);
			continue;
		}
		at = MAX(at, p->start);
		if (p->file && p->owned)
			v = vma_set_seek(&child->vmas, at);
		if (!v || v->start >= p->end)
			at = p->end;
		else if (v->flags & VMA_APART)
			at = MIN(v->end, p->end);
		else
			err = share(&s, v, p, &at);
		p = pma_set_seek(&parent->pmas, at);
	}
	take_references(&s);
	parent->pmas.generation++;
	return err;
}

/* Beyond this the child fills by faults: most of it would not be touched before an exec. */
#define PREFAULT_MAX 128

static u32 prefault_part(struct mm *child, struct vma *v, const struct pma *p, struct stub_batch *b)
{
	u64 start = MAX(p->start, v->start), end = MIN(p->end, v->end);
	struct pma *c;
	u32 count = 0;

	/* Data files that were read once, such as locales, are seldom read by children. */
	if (v->mappable && !p->owned && !(v->flags & VMA_SHARED) && !backing_is_image(child, v))
		return 0;
	/* What is one piece here may be several there: unpatched text beside patched. */
	for (; start < end; start = c->end) {
		if (v->mappable && !p->owned &&
		    backing_resolve_only(child, v, start, false, &c) < 0)
			break;
		c = pma_set_find(&child->pmas, start);
		if (!c || pma_set_reserve(&child->pmas, PMA_RESERVE) < 0)
			break;
		c = pma_set_isolate(&child->pmas, c, start, MIN(c->end, end));
		stub_batch_map(b, v, c);
		count++;
	}
	atomic_fetch_add_explicit(&child->minor_faults, count, memory_order_relaxed);
	return count;
}

/* Of files, or anonymous memory: up to `room` pieces. Returns how many. */
static u32 prefault_kind(struct mm *parent, struct mm *child, bool files, u32 room,
			 struct stub_batch *b)
{
	struct pma *p = pma_set_first(&parent->pmas);
	u32 count = 0;

	for (; p && count < room; p = pma_next(p)) {
		struct vma *v =
			p->file && p->host_map ? vma_set_seek(&child->vmas, p->start) : NULL;

		for (; v && v->start < p->end && count < room; v = vma_next(&child->vmas, v))
			if (!(v->flags & VMA_WIPEONFORK) && !v->mappable != files)
				count += prefault_part(child, v, p, b);
	}
	return count;
}

/*
 * What the parent has mapped, the child is likely to touch: it is mapped in one
 * hand-over instead of a fault each, which goes on while the parent does. Where that is too much,
 * programs and libraries come first: they are in many small pieces. Pages of files are asked
 * for again, so that a truncation under way is not missed. Both active locks held.
 */
static void prefault(struct mm *parent, struct mm *child, struct legacy *legacy)
{
	struct stub_batch b;
	u32 count;

	stub_batch_begin(child, &b);
	if (legacy)
		stub_adopt(child, &legacy->pmas, false, legacy->exact, &b);
	count = prefault_kind(parent, child, true, PREFAULT_MAX, &b);
	prefault_kind(parent, child, false, PREFAULT_MAX - MIN(count, PREFAULT_MAX), &b);
	stub_batch_end_maps(&b);
	if (legacy)
		legacy_adopted(child, legacy);
}

/*
 * To protect what is mapped, the host looks at each page: some 40 us for a MiB that was written.
 * A new stub costs as much as this; the old one's page tables go while both sides run on.
 */
#define MOVE_BYTES (24UL << 20)
/* A mapping that is replaced costs some us, too. */
#define MOVE_COUNT 512

/* What fork would have to protect: the writable mappings, but for what it copies at once. */
static bool much_to_protect(struct mm *parent, bool without_hot)
{
	u64 bytes = 0;
	u32 count = 0;

	for (struct pma *p = pma_set_first(&parent->pmas); p; p = pma_next(p)) {
		u64 len = p->end - p->start;

		if (!p->owned || p->host_map != PMA_MAP_WRITE)
			continue;
		if (without_hot)
			len -= hot_bytes(parent->hot_set, p->start, p->end);
		bytes += len;
		count += len > 0;
		if (bytes >= MOVE_BYTES || count >= MOVE_COUNT)
			return true;
	}
	return false;
}

bool mm_fork_wants_stub(struct mm *parent)
{
	if (platform_contexts_bound(parent->platform))
		return false;
	MUTEX_GUARD(&parent->active_lock);
	if (atomic_load(&parent->users) > 1 || !platform_as_alone(parent->as))
		return false;
	return much_to_protect(parent, false) && much_to_protect(parent, true);
}

/* Maps p anew, in the vmas that it is in. */
static void map_again(struct mm *mm, struct pma *p, struct stub_batch *b)
{
	u64 at = p->start, end = p->end;
	struct vma *v;

	for (v = vma_set_seek(&mm->vmas, at); v && v->start < end; v = vma_next(&mm->vmas, v)) {
		p = pma_set_find(&mm->pmas, MAX(at, v->start));
		if (p)
			stub_batch_map(b, v, p);
	}
}

/* The parent goes on in another stub, where its memory is shared from the start. */
static struct platform_as *move(struct mm *mm, struct platform_as *fresh)
{
	struct platform_as *old = mm->as, *former;
	struct pma *p, *next;
	struct stub_batch b;
	u32 again = 0;

	mutex_assert_held(&mm->active_lock);
	/* It has done much where it is, since it left another one. */
	former = home_forget(mm);
	if (home_leave(mm)) {
		old = former;
	} else {
		platform_as_put(former);
		platform_as_retire(old);
	}
	held_give_back(mm);
	if (platform_as_own_gs(mm->as))
		platform_as_set_own_gs(fresh);
	mm->as = fresh;
	keep_forget(mm, mm->min, mm->max);
	stub_batch_begin(mm, &b);
	for (p = pma_set_first(&mm->pmas); p; p = next) {
		bool mapped = p->host_map;
		u64 end = p->end;

		next = pma_next(p);
		if (!p->file) {
			pma_set_drop(&mm->pmas, p);
			continue;
		}
		pma_set_host(&mm->pmas, p, PMA_UNMAPPED, PROT_NONE);
		if (!mapped || again++ >= PREFAULT_MAX)
			continue;
		map_again(mm, p, &b);
		next = pma_set_seek(&mm->pmas, end);
	}
	stub_batch_end_maps(&b);
	return old;
}

/* So few are not worth a list for another thread, which comes when many of them wait. */
#define COPIES_MIN 128

static struct pgalloc_copies *begin_copies(const struct mm *parent, const struct legacy *legacy)
{
	if (!legacy || parent->hot_count < COPIES_MIN)
		return NULL;
	return pgalloc_copies_begin(2 * (u32)parent->hot_count);
}

/* The parent may not write to what it shares now. */
static void protect(struct mm *parent)
{
	struct stub_batch b;

	stub_batch_begin(parent, &b);
	stub_protect_cow(parent, &b);
	release_hot(parent, &b);
	stub_batch_end(&b);
}

static int fork_mm(struct mm *parent, struct platform_as *fresh, struct platform_as **ret_old,
		   struct mm **ret_child)
{
	struct mm_config config = {
		.platform = parent->platform,
		.memory = parent->memory,
		.acct_id = parent->acct_id,
		.text = parent->text,
		.totals = parent->totals,
		.fork_wait = parent->fork_wait,
		.fork_reuse = parent->fork_reuse,
	};
	struct legacy *legacy = legacy_take(parent);
	struct pgalloc_copies *copies;
	struct mm *child = NULL;
	int r, err = mm_new_in(&config, legacy ? legacy->as : NULL, &child);

	if (err == 0) {
		child->dumpable = parent->dumpable;
		child->policy = mm_policy_inherited(parent);
		if (legacy)
			legacy->as = NULL;
	} else {
		legacy_return(parent, legacy);
		if (!fresh)
			return err;
	}
	rwlock_wrlock(&parent->map_lock);
	if (err == 0)
		err = copy_vmas(parent, child);
	mutex_lock(&parent->active_lock);
	if (err == 0) {
		mutex_lock_nested(&child->active_lock);
		take_hot(parent, child);
		hold_hot(parent);
		copies = begin_copies(parent, legacy);
		err = share_pmas(parent, child, legacy, copies);
		if (err == 0) {
			fork_watch_begin(parent, child);
			legacy_begin(parent, child);
			prefault(parent, child, legacy);
			legacy = NULL;
		}
		r = pgalloc_copies_end(copies);
		err = err < 0 ? err : r;
		mutex_unlock(&child->active_lock);
	}
	/* Also after a failure: what is marked cow must not be writable. */
	if (fresh)
		*ret_old = move(parent, fresh);
	else
		protect(parent);
	forget_hot(parent);
	if (err == 0)
		home_child_begin(parent, child);
	mutex_unlock(&parent->active_lock);
	rwlock_unlock(&parent->map_lock);
	if (err < 0) {
		if (child) {
			mm_put(child);
			legacy_return(parent, legacy);
		}
		return err;
	}
	*ret_child = child;
	return 0;
}

int mm_fork(struct mm *parent, struct mm **ret_child)
{
	return fork_mm(parent, NULL, NULL, ret_child);
}

int mm_fork_moving(struct mm *parent, struct platform_as *fresh, struct platform_as **ret_old,
		   struct mm **ret_child)
{
	return fork_mm(parent, fresh, ret_old, ret_child);
}
