/*
 * pgalloc/pgalloc_impl.h: what the files of pgalloc/ share.
 */
#ifndef MINISENTRY_PGALLOC_IMPL_H
#define MINISENTRY_PGALLOC_IMPL_H

#include "base/lock.h"
#include "pgalloc/extent.h"
#include "pgalloc/known.h"
#include "pgalloc/pgalloc.h"
#include "pgalloc/promise.h"
#include "pgalloc/recycle.h"

#include <stdatomic.h>

/* Offsets that a file can have: bounded by what the sentry can map. */
#define PGALLOC_MAX_CHUNKS 16384
/* Ranges with room for growth are placed from here up, tight ones below, so that many small
 * tight ones share page tables. */
#define PGALLOC_ROOMY_START (1UL << 40)

struct pgalloc {
	struct memfile file;		      /* immutable */
	u64 limit;			      /* immutable */
	u64 (*reclaim)(void *arg, u64 bytes); /* set before use; may be NULL */
	void *reclaim_arg;

	struct pgalloc *large, *second; /* set before use; each may be NULL */
	struct pgalloc *parent;		/* immutable: whose large or second file this is; or NULL */
	bool whole_units;		/* immutable: a large file */

	struct mutex lock;	/* RANK_PGALLOC */
	struct extents extents; /* protected by lock */
	u64 file_size;		/* protected by lock */
	u64 leaked; /* protected by lock: ranges that could not be emptied, never reused */
	u64 lent;   /* protected by lock: bytes of the limit that the large file has handed out */

	struct promise promise;

	struct known_pages known;

	struct recycle recycle; /* protected by lock */

	struct mutex keepers_lock; /* RANK_KEEPERS */
	struct list keepers;	   /* protected by keepers_lock */
	_Atomic u64 kept;	   /* bytes that are reserved and can be had back */

	/* Of a large file: no copies into it until then, and how often that was so. */
	_Atomic u64 pause_until_ns;
	_Atomic u32 slow;

	_Atomic u64 copied; /* bytes, by copies of committed pages */

	struct mutex chunk_lock;		    /* RANK_LEAF: makes a mapping once */
	_Atomic(void *) chunks[PGALLOC_MAX_CHUNKS]; /* set once, never cleared before free */
};

/* An allocation of pages that have to be overwritten. False: there are none. */
bool pgalloc_take_recycled(struct pgalloc *p, u64 len, const struct pgalloc_opts *opts,
			   struct mem_range *ret);
/*
 * The first committed run of r. still_pages: nobody can commit any; how many pages to look at, at a
 * time, PGALLOC_LOOK_FIRST to begin with. Or NULL. False: there is none.
 */
#define PGALLOC_LOOK_FIRST 32
bool pgalloc_next_run(struct pgalloc *p, struct mem_range r, u64 *still_pages,
		      struct mem_range *ret);
/* Every page of r is committed. still: as above. */
bool pgalloc_all_committed(struct pgalloc *p, struct mem_range r, bool still);
/* Zeros (from: NULL), or the contents of src, over what dst has. 0, -ENOMEM. */
int pgalloc_overwrite(struct pgalloc *from, u64 src, struct pgalloc *to, u64 dst, u64 len);
/* The sentry's mapping at offset and how far it reaches; NULL when the host refuses. */
void *pgalloc_map(struct memfile *f, u64 offset, u64 *ret_len);

#endif
