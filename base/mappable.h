/*
 * base/mappable.h: what mm/ needs of a file, a memfd or shared memory to map it.
 *
 * mm and tmpfs (and hostfs's page cache) meet only here. A mappable hands out
 * memory file ranges for its offsets, and tells the address spaces that map it
 * when a range goes away (truncate, punch hole).
 *
 * Lock order: mm's map lock > mappable (for add/remove), mm's active lock >
 * mappable (for translate). A mappable calls mapping_ops.invalidate while it
 * holds no lock of its own.
 */
#ifndef MINISENTRY_BASE_MAPPABLE_H
#define MINISENTRY_BASE_MAPPABLE_H

#include "base/list.h"
#include "base/memfile.h"
#include "base/refs.h"

struct mappable;

/* One address space's interest in a range of a mappable: a vma's registration. */
struct mapping {
	struct list node; /* the mappable's, protected by its own lock */
	u64 start, end;	  /* bytes of the mappable */
	bool shared;	  /* MAP_SHARED */
	bool writable;	  /* MAP_SHARED and may become PROT_WRITE (counts for seals, ETXTBSY) */
	bool proxy; /* stands for the mappings of a mappable on top of this one (an overlay's):
		       told of changes, but not a user by itself, see mappable_ops.use */
	/*
	 * The mappable's pages [start, end) are gone or changed: the mm drops its
	 * pmas of that range. With `private_too`, also private copies
	 * (truncate); without, only pages shared with the file. Called without
	 * the mappable's lock; returns once no guest can reach the old pages.
	 */
	void (*invalidate)(struct mapping *m, u64 start, u64 end, bool private_too);
	/* Keeps m valid across an invalidate that runs without the mappable's lock.
	 * tryget is called under the mappable's lock; put without it. */
	bool (*tryget)(struct mapping *m);
	void (*put)(struct mapping *m);
};

/* Answer of translate: [offset, offset + len(range)) of the mappable is `range`. */
struct translation {
	struct memfile *file;
	u64 offset;
	struct mem_range range; /* one reference on each page, the caller's */
	u64 content;		/* not 0: names bytes that never change, wherever they are read */
	bool text;		/* mm/text.h has put patched text in */
	bool writable;		/* false: the caller must map it read-only (e.g. a hole's zero page,
				   or writes must be announced first) */
};

struct mappable_ops {
	void (*get)(struct mappable *m);
	void (*put)(struct mappable *m);
	/*
	 * Makes the page at `offset` available for read or (for_write) shared
	 * write, allocating and filling it as needed, and returns the largest
	 * convenient range around it within [want_start, want_end).
	 * -EFAULT beyond the end of file (SIGBUS), -ENOMEM, -ENOSPC, -EIO.
	 */
	int (*translate)(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
			 bool for_write, struct translation *ret);
	/*
	 * The same for reading, but only what is there already: no i/o, nothing
	 * allocated; -EAGAIN otherwise. May be NULL.
	 */
	int (*peek)(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
		    struct translation *ret);
	/*
	 * Sets vec[i] to 1 for each page of [start, end) (aligned) whose contents are in memory;
	 * leaves the others. True: those have to be read from elsewhere first (a major fault). May
	 * be NULL: false.
	 */
	bool (*resident)(struct mappable *m, u64 start, u64 end, u8 *vec);
	/* Registers / unregisters a mapping. add may refuse (-EPERM for seals). */
	int (*add)(struct mappable *m, struct mapping *mapping);
	void (*remove)(struct mappable *m, struct mapping *mapping);
	/*
	 * delta vmas more have the mapping than the one that add has told of: it was cut, or a part
	 * of it left. Called with mm's locks held. May be NULL: nobody counts them. Such vmas are
	 * not joined again (as Linux's with a close operation).
	 */
	void (*count)(struct mappable *m, int delta);
	/* delta mappings behind a proxy came or went; only counts. May be NULL. */
	void (*use)(struct mappable *m, int delta);
	/* msync: writes dirty pages of the range to where they belong. May be NULL. */
	int (*sync)(struct mappable *m, u64 start, u64 end);
	/* madvise(MADV_REMOVE): frees [start, end) as fallocate(PUNCH_HOLE). May be NULL:
	 * -EOPNOTSUPP. */
	int (*punch)(struct mappable *m, u64 start, u64 end);
	/* For /proc/PID/maps. */
	void (*identify)(struct mappable *m, u32 *ret_dev_major, u32 *ret_dev_minor, u64 *ret_ino);
	/*
	 * From now on a write to the file invalidates its range, too: the caller maps copies of it.
	 * Who has written before is done. What mappings write by themselves is not told. May be
	 * NULL: nobody is told.
	 */
	void (*watch)(struct mappable *m);
};

struct mappable {
	const struct mappable_ops *ops;
	_Atomic bool watched; /* set under the mappable's lock, for its own use */
};

/* The lock of a list of mappings. */
struct mappings_lock {
	void (*lock)(void *arg);
	void (*unlock)(void *arg);
	void *arg;
};
/*
 * Invalidates what all mappings of the list have of [start, end): each is called without the lock.
 * One that registers meanwhile need not be told. Nobody else may take an entry's neighbours for
 * mappings that he knows: there are marks in the list.
 */
void mappings_invalidate(struct list *mappings, const struct mappings_lock *l, u64 start, u64 end,
			 bool private_too);

#endif
