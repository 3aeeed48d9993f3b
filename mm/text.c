/* The use of patched chunks by address spaces. */
#include "mm/text_table.h"
#include "mm/mm_impl.h"

#include <stdlib.h>
#include <string.h>

/* Traps in a chunk's code, of all processes, before it is patched: it costs as much as many of
 * them, and short programs make few calls. And of a site that is patched for one process alone. */
#define TRAPS_TO_PATCH 24
#define TRAPS_TO_PATCH_ALONE 8

/* Is [from, to) of the chunk the file's content but for the edits? */
static bool matches(const struct chunk *c, const u8 *copy, const u8 *file, u64 from, u64 to)
{
	u64 at = from;

	for (size_t i = 0; i < c->edit_count && at < to; i++) {
		const struct text_edit *e = &c->edits[i];
		u64 start = MAX(e->offset, at), end = MIN(e->offset + PATCH_EDIT_MAX, to);

		if (e->offset + PATCH_EDIT_MAX <= at || e->offset >= to)
			continue;
		if (memcmp(copy + at, file + (at - from), start - at) != 0 ||
		    memcmp(e->original + (start - e->offset), file + (start - from), end - start) !=
			    0)
			return false;
		at = end;
	}
	return at >= to || memcmp(copy + at, file + (at - from), to - at) == 0;
}

static bool known_same(const struct chunk *c, u64 content, u64 from, u64 to)
{
	return content && c->content == content && c->same_from <= from && to <= c->same_to;
}

/* Cuts *tr, around the chunk at base, to what has no patched chunks: those come by themselves. */
static void leave_patched_locked(struct text *t, const struct file_id *id, u64 bias, u64 owner,
				 u64 base, struct translation *tr)
{
	u64 start = base, end = base + TEXT_CHUNK, to = tr->offset + mem_range_len(tr->range);
	struct mem_range all = tr->range;

	while (start > tr->offset && !chunk_patched(t, id, start - TEXT_CHUNK, bias, owner))
		start -= TEXT_CHUNK;
	while (end < to && !chunk_patched(t, id, end, bias, owner))
		end += TEXT_CHUNK;
	if (end < to) {
		tr->range.end -= to - end;
		memfile_put(tr->file, (struct mem_range){ tr->range.end, all.end });
	}
	if (start > tr->offset) {
		tr->range.start += start - tr->offset;
		tr->offset = start;
		memfile_put(tr->file, (struct mem_range){ all.start, tr->range.start });
	}
}

/*
 * Replaces *tr by the chunk's memory if there is a chunk for it, cut to the
 * chunk around file offset `page`. True when it did. Else *tr is cut to what has none.
 */
static bool use_chunk(struct mm *mm, struct mappable *m, u64 bias, u64 page, struct translation *tr)
{
	struct text *t = mm->text;
	u64 owner = mm->text_owner;
	u64 base = page & ~(TEXT_CHUNK - 1), run;
	u64 from = MAX(tr->offset, base);
	u64 to = MIN(tr->offset + mem_range_len(tr->range), base + TEXT_CHUNK);
	struct file_id id = text_identify(m);
	const u8 *file, *copy;
	struct chunk *c;
	struct mem_range r;

	MUTEX_GUARD(&t->lock);
	c = chunk_patched(t, &id, base, bias, owner);
	if (!c) {
		leave_patched_locked(t, &id, bias, owner, base, tr);
		return false;
	}
	file = tr->file->ops->map(tr->file, tr->range.start + (from - tr->offset), &run);
	if (!file || run < to - from)
		return false;
	copy = t->memfile->ops->map(t->memfile, c->range.start, &run);
	if (!copy)
		return false;
	if (!known_same(c, tr->content, from, to) &&
	    !matches(c, copy, file, from - base, to - base)) {
		chunk_drop(t, c);
		return false;
	}
	r = (struct mem_range){ c->range.start + (from - base), c->range.start + (to - base) };
	c->content = tr->content;
	c->same_from = from;
	c->same_to = to;
	chunk_use(mm, c);
	memfile_get(t->memfile, r);
	memfile_put(tr->file, tr->range);
	*tr = (struct translation){ .file = t->memfile, .offset = from, .range = r, .text = true };
	return true;
}

bool text_translate(struct mm *mm, const struct vma *v, u64 page, struct translation *tr)
{
	if (!mm->text || !(v->prot & PROT_EXEC) || (v->prot & PROT_WRITE) ||
	    (v->flags & VMA_SHARED) || !v->mappable->ops->identify || platform_as_own_gs(mm->as))
		return false;
	/* Before it is compared with the file: who writes to that from now on tells us. */
	if (v->mappable->ops->watch)
		v->mappable->ops->watch(v->mappable);
	return use_chunk(mm, v->mappable, v->start - v->offset, page, tr);
}

/* Moves the last edit to where it belongs. */
static void sort_last(struct text_edit *edits, size_t count)
{
	struct text_edit last = edits[count - 1];
	size_t i = count - 1;

	for (; i > 0 && edits[i - 1].offset > last.offset; i--)
		edits[i] = edits[i - 1];
	edits[i] = last;
}

/* Takes the memory and edits of `made` into c. */
static void chunk_take_locked(struct text *t, struct chunk *c, const struct chunk *made)
{
	if (c->patched)
		memfile_put(t->memfile, c->range);
	free(c->edits);
	c->range = made->range;
	c->edits = made->edits;
	c->edit_count = made->edit_count;
	c->content = 0;
	c->patched = true;
}

/* Room for a chunk's copy and its edits. *ret_copy is the sentry's address of it. */
static int chunk_room(struct text *t, u32 acct_id, struct chunk *ret, u8 **ret_copy)
{
	struct pgalloc_opts opts = { .mode = PGALLOC_POPULATE, .acct_id = acct_id };
	u64 run;

	ret->edit_count = 0;
	ret->edits = malloc(TEXT_MAX_EDITS * sizeof(*ret->edits));
	if (!ret->edits)
		return -ENOMEM;
	if (pgalloc_allocate(t->memory, TEXT_CHUNK, &opts, &ret->range) < 0) {
		free(ret->edits);
		return -ENOMEM;
	}
	*ret_copy = t->memfile->ops->map(t->memfile, ret->range.start, &run);
	if (*ret_copy)
		return 0;
	memfile_put(t->memfile, ret->range);
	free(ret->edits);
	return -ENOMEM;
}

static void chunk_unmake(struct text *t, struct chunk *made)
{
	for (size_t i = 0; i < made->edit_count; i++)
		if (!made->edits[i].inherited)
			patch_forget(t->patcher, made->edits[i].entry);
	memfile_put(t->memfile, made->range);
	free(made->edits);
}

/* The chunk for everybody, made when its code has trapped often enough. True: there is one. */
static bool shared_chunk(struct text *t, const struct file_id *id, const struct text_part *part,
			 u32 acct_id)
{
	u64 base = part->start & ~(TEXT_CHUNK - 1);
	struct chunk made, *c;
	u8 *copy;
	int err;

	{
		MUTEX_GUARD(&t->lock);
		c = chunk_get(t, id, base, part->bias, 0);
		if (!c || c->patched)
			return c;
		if (c->hopeless || ++c->traps < TRAPS_TO_PATCH)
			return false;
	}
	if (chunk_room(t, acct_id, &made, &copy) < 0)
		return false;
	err = text_read(part->mappable, base, copy, TEXT_CHUNK);
	if (err == 0)
		made.edit_count =
			text_patch_proved(t->patcher, part, copy, made.edits, TEXT_MAX_EDITS);
	MUTEX_GUARD(&t->lock);
	c = chunk_get(t, id, base, part->bias, 0);
	if (c && !c->patched && made.edit_count) {
		chunk_take_locked(t, c, &made);
		return true;
	}
	if (c && !made.edit_count)
		c->hopeless = true;
	chunk_unmake(t, &made);
	return c && c->patched;
}

/* What is taken over from the shared chunk stays that one's. */
static void copy_edits(struct chunk *made, const struct chunk *from)
{
	made->edit_count = from->edit_count;
	memcpy(made->edits, from->edits, from->edit_count * sizeof(*from->edits));
	for (size_t i = 0; i < made->edit_count; i++)
		made->edits[i].inherited |= from->owner == 0;
}

/*
 * Adds a site to the chunk of one address space: a new copy takes the old one's
 * place, as code is not changed where a thread may be running it. True: done.
 */
static bool private_chunk(struct text *t, const struct file_id *id, const struct text_part *part,
			  u64 owner, u64 offset, u64 nr, u32 acct_id)
{
	u64 base = part->start & ~(TEXT_CHUNK - 1), run;
	struct chunk made, *c, *from;
	const u8 *old;
	u8 *copy;
	bool done;

	if (chunk_room(t, acct_id, &made, &copy) < 0)
		return false;
	if (text_read(part->mappable, base, copy, TEXT_CHUNK) < 0) {
		chunk_unmake(t, &made);
		return false;
	}
	MUTEX_GUARD(&t->lock);
	from = chunk_patched(t, id, base, part->bias, owner);
	old = from ? t->memfile->ops->map(t->memfile, from->range.start, &run) : NULL;
	if (old) {
		memcpy(copy, old, TEXT_CHUNK);
		copy_edits(&made, from);
	}
	if (made.edit_count == TEXT_MAX_EDITS ||
	    !text_patch_trapped(t->patcher, part, copy, offset, nr, &made.edits[made.edit_count])) {
		made.edit_count = 0; /* all of them are those of `from` */
		chunk_unmake(t, &made);
		return false;
	}
	made.edits[made.edit_count++].inherited = false;
	if (from)
		from->users++; /* while room is made for another */
	c = chunk_get(t, id, base, part->bias, owner);
	done = c != NULL;
	if (done) {
		sort_last(made.edits, made.edit_count);
		chunk_take_locked(t, c, &made);
		if (old && from != c && !c->parent) {
			c->parent = from;
			from->users++;
		}
	} else {
		patch_forget(t->patcher, made.edits[made.edit_count - 1].entry);
		made.edit_count = 0;
		chunk_unmake(t, &made);
	}
	if (from)
		chunk_user_gone(t, from);
	return done;
}

/* The code of v in one chunk. */
static struct text_part part_of(const struct vma *v, u64 offset)
{
	u64 base = offset & ~(TEXT_CHUNK - 1);

	return (struct text_part){
		.mappable = v->mappable,
		.start = MAX(base, v->offset),
		.end = MIN(base + TEXT_CHUNK, v->offset + vma_len(v)),
		.bias = v->start - v->offset,
	};
}

/* What p maps of the file in [from, to), as the file has it, from `from` on. */
static int file_pages(const struct text_part *part, const struct pma *p, u64 from, u64 to,
		      struct translation *ret)
{
	u64 offset = from - part->bias;

	if (p->text)
		return part->mappable->ops->translate(part->mappable, offset, offset,
						      to - part->bias, false, ret);
	*ret = (struct translation){
		.file = p->file,
		.offset = offset,
		.range = pma_subrange(p, from, to),
	};
	memfile_get(ret->file, ret->range);
	return 0;
}

/* Maps the chunk in place of what is mapped of the file, or of an older chunk. */
static void remap(struct mm *mm, struct vma *v, const struct text_part *part)
{
	u64 addr = part->bias + part->start, end = part->bias + part->end;
	struct translation tr;
	struct pma *p, value;

	while (addr < end && (p = pma_set_seek(&mm->pmas, addr)) && p->start < end) {
		u64 from = MAX(p->start, addr), to = MIN(p->end, end);

		addr = to;
		if (!p->file || p->owned || file_pages(part, p, from, to, &tr) < 0)
			continue;
		addr = from + mem_range_len(tr.range);
		if (text_translate(mm, v, tr.offset, &tr)) {
			value = (struct pma){
				.start = from,
				.end = from + mem_range_len(tr.range),
				.file = tr.file,
				.offset = tr.range.start,
				.text = true,
			};
			addr = value.end;
			if (backing_install(mm, v, &value, false) == 0)
				continue;
		}
		memfile_put(tr.file, tr.range);
	}
}

static void trap_locked(struct mm *mm, u64 addr, u64 nr, u32 traps)
{
	struct vma *v = vma_set_seek(&mm->vmas, addr);
	struct pma *p = pma_set_find(&mm->pmas, addr);
	struct text_part part;
	struct file_id id;

	if (!v || v->start > addr || !v->mappable || (v->flags & VMA_SHARED) ||
	    (v->prot & (PROT_EXEC | PROT_WRITE)) != PROT_EXEC || !v->mappable->ops->identify ||
	    !p || !p->file || p->owned)
		return;
	part = part_of(v, vma_offset_at(v, addr));
	id = text_identify(v->mappable);
	/* First by the file's own proof, for everybody. */
	if (!p->text && shared_chunk(mm->text, &id, &part, mm->acct_id)) {
		remap(mm, v, &part);
		return;
	}
	/* A site that is not among the proved ones: for this address space alone. */
	if (traps < TRAPS_TO_PATCH_ALONE || !private_chunk(mm->text, &id, &part, mm->text_owner,
							   vma_offset_at(v, addr), nr, mm->acct_id))
		return;
	mm->text_private = true;
	remap(mm, v, &part);
}

void mm_text_trap(struct mm *mm, u64 rip, u64 nr)
{
	u64 addr = rip - 2;
	u32 slot = (u32)(addr >> 1) % MM_TEXT_SEEN;

	if (!mm->text || platform_as_own_gs(mm->as))
		return;
	MUTEX_GUARD(&mm->active_lock);
	/* A site that keeps trapping cannot be patched: it is looked at ever more seldom. */
	if (mm->text_seen[slot].addr != addr) {
		mm->text_seen[slot].addr = addr;
		mm->text_seen[slot].traps = 0;
	}
	if (++mm->text_seen[slot].traps > MM_TEXT_TRIES)
		return;
	if (atomic_load(&mm->users) == 1)
		text_table_outside(mm);
	trap_locked(mm, addr, nr, mm->text_seen[slot].traps);
}

bool mm_text_landing(struct mm *mm, u64 rip, u64 *ret)
{
	struct text *t = mm->text;
	struct vma *v;
	struct pma *p;
	struct file_id id;
	struct chunk *c;

	if (!t)
		return false;
	MUTEX_GUARD(&mm->active_lock);
	v = vma_set_seek(&mm->vmas, rip);
	p = pma_set_find(&mm->pmas, rip);
	if (!v || v->start > rip || !v->mappable || !p || !p->text)
		return false;
	id = text_identify(v->mappable);
	MUTEX_GUARD(&t->lock);
	c = chunk_at(t, &id, vma_offset_at(v, rip) & ~(TEXT_CHUNK - 1),
		     p->offset + (rip - p->start));
	for (size_t i = 0; c && i < c->edit_count; i++) {
		if (c->edits[i].landing == rip) {
			*ret = c->edits[i].landing_to;
			return true;
		}
	}
	return false;
}

/* The page as the file has it, for who reads it as data or changes it. */
int text_restore(struct mm *mm, struct vma *v, u64 page)
{
	struct translation tr;
	struct pma value;
	u64 offset = vma_offset_at(v, page);
	int err = v->mappable->ops->translate(v->mappable, offset, offset, offset + PAGE_SIZE,
					      false, &tr);

	if (err < 0)
		return err == -ENOMEM ? -ENOMEM : -EFAULT;
	value = (struct pma){
		.start = page, .end = page + PAGE_SIZE, .file = tr.file, .offset = tr.range.start
	};
	err = backing_install(mm, v, &value, false);
	if (err < 0)
		memfile_put(tr.file, tr.range);
	return err;
}

void text_drop(struct mm *mm, u64 start, u64 end)
{
	struct pma *p;

	mutex_assert_held(&mm->active_lock);
	while (start < end && (p = pma_set_seek(&mm->pmas, start)) && p->start < end) {
		u64 from = MAX(p->start, start), to = MIN(p->end, end);

		if (p->text)
			backing_drop(mm, from, to, false);
		start = to;
	}
}

void mm_text_off(struct mm *mm)
{
	MUTEX_GUARD(&mm->active_lock);
	text_drop(mm, 0, UINT64_MAX);
}

void text_mm_init(struct mm *mm, struct text *t)
{
	mm->text = t;
	mm->text_owner = t ? atomic_fetch_add(&t->next_owner, 1) : 0;
}

void text_mm_gone(struct mm *mm)
{
	if (mm->text)
		text_table_leave(mm);
}
