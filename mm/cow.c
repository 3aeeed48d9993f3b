/*
 * Breaking copy-on-write. The source is read-only in every stub that maps it
 * (see mm_impl.h), so its pages hold still while they are copied; the
 * destination becomes visible only when it is complete.
 */
#include "mm/mm_impl.h"

/* A lone write copies little; writes that follow on copy more and more at a time. */
#define COW_WINDOW_MIN (16UL << 10)
#define COW_WINDOW_MAX HUGE_PAGE_SIZE
/* Who writes page by page through much more is served best by windows that nothing cuts: what these
 * copy is not noted (hot.h). */
#define NOTE_MAX (4 * COW_WINDOW_MIN)
/*
 * Pages of a private file mapping follow the file until they are written, so
 * copying more than is written shows. It is done only for images of programs,
 * which nobody changes in place, and whose data a linker relocates throughout.
 */
#define IMAGE_WINDOW (64UL << 10)

/* Who writes page by page comes past here without a break: nothing, pages that are its own, or
 * shared ones that do not exist. */
static bool passable(const struct mm *mm, u64 start, u64 end)
{
	const struct pma *p = pma_set_seek(&mm->pmas, start);
	struct mem_range run;

	for (; p && p->start < end; p = pma_next(p))
		if (p->file &&
		    (!p->owned ||
		     (p->cow &&
		      pgalloc_next_committed_still(
			      pgalloc_of(p->file),
			      pma_subrange(p, MAX(p->start, start), MIN(p->end, end)), &run))))
			return false;
	return true;
}

/*
 * The writer goes on where the last break ended: right there, or at the next
 * page that exists and is shared, with nothing but holes and pages of its own between.
 */
static bool follows_on(const struct mm *mm, const struct pma *p, u64 page)
{
	if (!mm->cow_window) /* nothing was broken yet */
		return false;
	if (page == mm->cow_next)
		return true;
	return p->owned && page > mm->cow_next && page - mm->cow_next <= COW_WINDOW_MAX &&
	       passable(mm, mm->cow_next, page);
}

static void choose_window(struct mm *mm, const struct vma *v, const struct pma *p, u64 page,
			  u64 *ret_start, u64 *ret_end)
{
	bool follows = follows_on(mm, p, page), file = !p->owned;
	u64 size = !file ? COW_WINDOW_MIN : backing_is_image(mm, v) ? IMAGE_WINDOW : PAGE_SIZE;
	u64 start = page & ~(size - 1), end;

	if (follows && !file) {
		size = MIN(mm->cow_window * 2, COW_WINDOW_MAX);
		start = page;
	}
	mm->cow_window = size;
	end = start + size;
	/* Whole huge pages from then on. */
	if (size == COW_WINDOW_MAX)
		end &= ~(COW_WINDOW_MAX - 1);
	if (p->owned && size <= NOTE_MAX)
		hot_window(mm->hot_set, page, mm->hot_child, &start, &end);
	*ret_start = MAX(start, MAX(p->start, v->start));
	*ret_end = MIN(end, MIN(p->end, v->end));
	mm->cow_next = *ret_end;
	ASSERT(*ret_start <= page && page < *ret_end);
}

void cow_own(struct pma *p)
{
	pgalloc_unstill(pgalloc_of(p->file), pma_range(p));
	p->cow = false;
}

/* The last user gets the pages without a copy. */
static int take_over(struct mm *mm, struct vma *v, struct pma *p, bool map_now)
{
	MM_COUNT(mm, break_owner);
	cow_own(p);
	return map_now ? backing_map(mm, v, p, false) : 0;
}

/* Where a copy is, in the order of the guest's addresses. */
struct copies {
	int count;
	struct memfile *file[2];
	struct mem_range r[2];
};

static void drop_copies(const struct copies *c, int from)
{
	for (int i = from; i < c->count; i++)
		memfile_put(c->file[i], c->r[i]);
}

static int make_copies(struct mm *mm, const struct vma *v, const struct pma *part,
		       struct copies *ret)
{
	*ret = (struct copies){ .count = 1, .file = { mm->memfile } };
	if (backing_copy_large(mm, part, &ret->r[0]) == 0) {
		ret->file[0] = pgalloc_file(pgalloc_large(mm->memory));
		return 0;
	}
	if (backing_copy_halves(mm, v, part, ret->r) == 0) {
		ret->count = 2;
		ret->file[1] = pgalloc_file(pgalloc_second(mm->memory));
		return 0;
	}
	return backing_allocate_copy(mm, v, part, &ret->r[0]);
}

static int install(struct mm *mm, const struct vma *v, u64 start, const struct copies *c,
		   bool map_now)
{
	for (int i = 0; i < c->count; i++) {
		struct pma value = {
			.start = start,
			.end = start + mem_range_len(c->r[i]),
			.file = c->file[i],
			.offset = c->r[i].start,
			.owned = true,
		};

		if (backing_install(mm, v, &value, map_now) < 0) {
			drop_copies(c, i);
			/* The rest is shared as before: its turn comes. */
			return i ? 0 : -ENOMEM;
		}
		start = value.end;
	}
	return 0;
}

/* VARIANT=-DMINISENTRY_SLOW_COW copies twice: what `minisentry bench --compare` has to notice. */
static int copy(struct mm *mm, struct vma *v, struct pma *p, u64 start, u64 end, bool map_now)
{
	struct pma part = *p;
	struct copies copies;
	bool owned = p->owned;
	int err;

	part.start = start;
	part.end = end;
	part.offset = pma_subrange(p, start, end).start;
	ASSERT(p->host_map != PMA_MAP_WRITE);
	err = make_copies(mm, v, &part, &copies);
#ifdef MINISENTRY_SLOW_COW
	if (err == 0) {
		drop_copies(&copies, 0);
		err = make_copies(mm, v, &part, &copies);
	}
#endif
	if (err == 0)
		err = install(mm, v, start, &copies, map_now);
	if (err < 0)
		return err;
	mm->ahead += end - start - PAGE_SIZE; /* holes of the source, too */
	if (owned)
		MM_COUNT(mm, break_copy);
	else
		MM_COUNT(mm, break_file);
	return 0;
}

static void note_hot(struct mm *mm, u64 start, u64 end)
{
	if (end - start <= NOTE_MAX)
		hot_note(mm->hot_set, start, end, mm->hot_child, mm->home != NULL);
}

int cow_break(struct mm *mm, struct vma *v, struct pma *p, u64 page, bool map_now)
{
	u64 start, end;
	int err;

	mutex_assert_held(&mm->active_lock);
	if (pma_set_reserve(&mm->pmas, PMA_RESERVE) < 0)
		return -ENOMEM;
	if (p->owned && pgalloc_exclusive(pgalloc_of(p->file), pma_range(p))) {
		note_hot(mm, page, page + PAGE_SIZE);
		return take_over(mm, v, p, map_now);
	}
	choose_window(mm, v, p, page, &start, &end);
	if (p->owned)
		note_hot(mm, start, end);
	if (p->owned && pgalloc_exclusive(pgalloc_of(p->file), pma_subrange(p, start, end)))
		return take_over(mm, v, pma_set_isolate(&mm->pmas, p, start, end), map_now);
	err = copy(mm, v, p, start, end, map_now);
	if (err == -ENOMEM && end - start > PAGE_SIZE) {
		/* The failed attempt may have merged pmas: look again. */
		p = pma_set_find(&mm->pmas, page);
		err = copy(mm, v, p, page, page + PAGE_SIZE, map_now);
	}
	return err;
}
