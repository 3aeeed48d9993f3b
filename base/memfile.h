/*
 * base/memfile.h: the memory file interface.
 *
 * A memory file is a host file whose pages back guest memory: pgalloc's memfd,
 * or a disk-backed filestore. mm/ and tmpfs/ speak of guest pages only as
 * ranges of a memory file. Offsets and lengths are bytes, page-aligned.
 *
 * References count per page. Whoever stores a range (a pma, a tmpfs extent, a
 * page cache, a pin) holds one reference on each of its pages.
 */
#ifndef MINISENTRY_BASE_MEMFILE_H
#define MINISENTRY_BASE_MEMFILE_H

#include "base/types.h"

struct memfile;

struct mem_range {
	u64 start, end; /* [start, end), page-aligned */
};

static inline u64 mem_range_len(struct mem_range r)
{
	return r.end - r.start;
}

struct memfile_ops {
	/* One more / one fewer reference on each page of r. */
	void (*get)(struct memfile *f, struct mem_range r);
	void (*put)(struct memfile *f, struct mem_range r);
	/*
	 * Sentry address of `offset`. Contiguous at least up to the end of the
	 * 1 GiB chunk that holds it; *ret_len is that distance. The mapping lives
	 * as long as the file. NULL when the host refuses a mapping.
	 */
	void *(*map)(struct memfile *f, u64 offset, u64 *ret_len);
};

struct memfile {
	const struct memfile_ops *ops;
	int host_fd; /* immutable; what stubs map */
	int read_fd; /* the same opened read-only, where it cannot be opened again by now; 0: it can
		      */
	int stub_slot;	  /* immutable; which of the stub's descriptors it is, see platform.h */
	bool disk_backed; /* immutable */
};

static inline void memfile_get(struct memfile *f, struct mem_range r)
{
	f->ops->get(f, r);
}

static inline void memfile_put(struct memfile *f, struct mem_range r)
{
	f->ops->put(f, r);
}

#endif
