/*
 * Held references: to pages that a mapping left for later (stub_map_late) takes the place of.
 *
 * Until the mapper has reported that one, the guest can still read the old pages, so they must not
 * pass to somebody else. They are given back when the next fault finds the report.
 */
#include "mm/mm_impl.h"

static void give_back(struct mm *mm)
{
	for (u32 i = 0; i < mm->held_count; i++)
		memfile_put(mm->held[i].file, mm->held[i].range);
	mm->held_count = 0;
}

void held_add(struct mm *mm, struct memfile *file, struct mem_range r)
{
	mutex_assert_held(&mm->active_lock);
	ASSERT(mm->held_count < HELD_MAX);
	mm->held[mm->held_count++] = (struct held){ file, r };
}

void held_release(struct mm *mm)
{
	mutex_assert_held(&mm->active_lock);
	if (mm->held_count && platform_as_settled(mm->as))
		give_back(mm);
}

void held_give_back(struct mm *mm)
{
	mutex_assert_held(&mm->active_lock);
	give_back(mm);
}
