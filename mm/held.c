/*
 * Held references: to pages that a mapping left for later (stub_map_late) takes the place of.
 *
 * Until the mapper has reported that one, the guest can still read the old pages, so they must not
 * pass to somebody else. They are given back when the next fault finds the report.
 */
#include "mm/mm_impl.h"

static u64 give_back(struct mm *mm)
{
	u64 bytes = mm->held_bytes;

	for (u32 i = 0; i < mm->held_count; i++)
		memfile_put(mm->held[i].file, mm->held[i].range);
	pgalloc_account_kept(mm->memory, -(s64)bytes);
	mm->held_count = 0;
	mm->held_bytes = 0;
	return bytes;
}

bool held_room(const struct mm *mm, u32 pieces, u64 bytes)
{
	return mm->held_count + pieces <= HELD_MAX && mm->held_bytes + bytes <= HELD_BYTES_MAX;
}

void held_add(struct mm *mm, struct memfile *file, struct mem_range r)
{
	mutex_assert_held(&mm->active_lock);
	ASSERT(mm->held_count < HELD_MAX);
	mm->held[mm->held_count++] = (struct held){ file, r };
	mm->held_bytes += mem_range_len(r);
	pgalloc_account_kept(mm->memory, (s64)mem_range_len(r));
}

u64 held_release(struct mm *mm)
{
	mutex_assert_held(&mm->active_lock);
	return mm->held_count && platform_as_settled(mm->as) ? give_back(mm) : 0;
}

void held_give_back(struct mm *mm)
{
	mutex_assert_held(&mm->active_lock);
	give_back(mm);
}
