/*
 * pgalloc/pgalloc.h: the memory file that backs guest memory.
 *
 * One memfd (or an unlinked disk file), mapped into the sentry in 1 GiB chunks
 * on first use, whose pages are handed out as ranges and counted per page.
 * Allocation reserves offsets; commit makes host pages exist (fallocate);
 * populate also maps them in the sentry, by range and never by chunk
 * (MADV_POPULATE_WRITE). The last put frees: the pages are punched out of the
 * file, and the offsets can be handed out again only then, so fresh memory
 * always reads as zero.
 *
 * Accounting: each range belongs to an accounting id (memory cgroup); ranges
 * of different ids never merge. Usage figures are exact.
 *
 * Lock: RANK_PGALLOC, internal. get/put/map are lock-cheap and may be called
 * under any lock of lower rank.
 */
#ifndef MINISENTRY_PGALLOC_PGALLOC_H
#define MINISENTRY_PGALLOC_PGALLOC_H

#include "base/list.h"
#include "base/memfile.h"

struct pgalloc; /* embeds a struct memfile */

#define PGALLOC_CHUNK_SIZE (1UL << 30)
/* What the large file gives out: a huge page of the host, or several. */
#define PGALLOC_LARGE_UNIT (2UL << 20)

enum pgalloc_mode {
	PGALLOC_ALLOCATE, /* reserve offsets, commit nothing */
	PGALLOC_COMMIT,	  /* fallocate */
	PGALLOC_POPULATE, /* commit, and map the pages in the sentry (memory-backed only; else
			     commit) */
};

enum pgalloc_dir { PGALLOC_UP, PGALLOC_DOWN };

struct pgalloc_opts {
	enum pgalloc_mode mode;
	enum pgalloc_dir dir; /* where the next neighbour is likely to be allocated */
	u32 acct_id;
	bool alone;    /* the hint is for a neighbour in time only: a small copy may go anywhere */
	bool huge;     /* 2 MiB alignment and huge-page advice */
	bool optional; /* the caller can do with less: nobody's memory is trimmed for it */
	/* Prefer the offset right behind (UP) or before (DOWN) this one, so that
	 * neighbours in the guest are neighbours here; 0: no preference. */
	u64 hint;
	/* Bytes to leave free next to a range that is placed without the hint, so
	 * that hints of later neighbours succeed; 0: fit tightly. */
	u64 room;
	/* Fills the new pages (PGALLOC_COMMIT implied): gets sentry memory, returns bytes
	 * read, which may be few; 0: the rest stays zero; -errno: frees the range again. */
	ssize_t (*reader)(void *arg, void *dst, size_t len);
	void *reader_arg;
};

struct pgalloc_usage {
	u64 reserved;  /* bytes handed out */
	u64 committed; /* bytes the host has allocated (st_blocks) */
};

/* Creates the memory file over host_fd (takes the fd). limit: bytes that may be handed out. */
int pgalloc_new(int host_fd, bool disk_backed, int stub_slot, u64 limit, struct pgalloc **ret);
/* memfd_create + pgalloc_new. */
int pgalloc_new_memfd(int stub_slot, u64 limit, struct pgalloc **ret);
void pgalloc_free(struct pgalloc *p);
/*
 * A second memory file beside p's, on a host file whose pages are huge wherever the host has some
 * (host_mem_create_large): one page of 2 MiB is allocated, mapped and freed for what 512 small
 * ones cost several times as much. Any commit there takes all of a huge page, so only multiples of
 * PGALLOC_LARGE_UNIT are allocated, and committed before use; they may be freed by parts. It shares
 * p's limit, reclaim and usage figures, and is freed with p. Takes the fd, when it succeeds.
 */
int pgalloc_add_large(struct pgalloc *p, int host_fd, int stub_slot);
/* That file's allocator, or NULL. */
struct pgalloc *pgalloc_large(struct pgalloc *p);
/*
 * Another memfd of small pages beside p's: the host lets one thread at a time write to a file, so
 * two copy to both of them twice as fast. It shares p's limit, reclaim and usage figures, and is
 * freed with p.
 */
int pgalloc_add_second(struct pgalloc *p, int stub_slot);
struct pgalloc *pgalloc_second(struct pgalloc *p);
/*
 * Who can give memory back when an allocation meets the limit (the page cache of files that nobody
 * maps): called without pgalloc's lock but under the caller's, so it takes others by trylock alone.
 * Returns the bytes that it freed; the allocation is tried again while that is not 0. Set once, at
 * start.
 */
void pgalloc_set_reclaim(struct pgalloc *p, u64 (*reclaim)(void *arg, u64 bytes), void *arg);
struct memfile *pgalloc_file(struct pgalloc *p);
/* The pgalloc that owns f: every memfile of the sentry is one. */
struct pgalloc *pgalloc_of(struct memfile *f);

/*
 * Allocates len bytes (page multiple, > 0) with one reference per page.
 * 0; -ENOMEM (limit or host), reader's error. *ret untouched on failure.
 */
int pgalloc_allocate(struct pgalloc *p, u64 len, const struct pgalloc_opts *opts,
		     struct mem_range *ret);
/* Commits / populates part of an allocated range. 0, -ENOMEM, -ENOSPC. */
int pgalloc_commit(struct pgalloc *p, struct mem_range r);
int pgalloc_populate(struct pgalloc *p, struct mem_range r);
/* Gives the host pages of r back; it reads as zero again. The caller owns the only reference. */
int pgalloc_decommit(struct pgalloc *p, struct mem_range r);
/* True when every page of r has exactly one reference (the caller's). */
bool pgalloc_exclusive(struct pgalloc *p, struct mem_range r);
/*
 * The first committed run at or after r.start: *ret is clipped to r.
 * False when there is none. Never commits a page. SEEK_DATA, so swapped pages count.
 */
bool pgalloc_next_committed(struct pgalloc *p, struct mem_range r, struct mem_range *ret);
/*
 * The same where nobody can commit pages: memory that is shared copy-on-write. What is learned
 * about its holes is remembered until pgalloc_unstill, which who may write to it again calls first.
 */
bool pgalloc_next_committed_still(struct pgalloc *p, struct mem_range r, struct mem_range *ret);
void pgalloc_unstill(struct pgalloc *p, struct mem_range r);

/* Copies between sentry buffers and the file, by mapping or (disk-backed) by host pread/pwrite.
 * 0 or -errno (-EFAULT, -ENOSPC, -EIO). read of uncommitted pages gives zeros and commits nothing.
 */
int pgalloc_read(struct pgalloc *p, u64 offset, void *dst, size_t len);
int pgalloc_write(struct pgalloc *p, u64 offset, const void *src, size_t len);
/* Copies the committed pages of src to the (uncommitted, exclusively owned) dst of equal length. */
int pgalloc_copy_committed(struct pgalloc *p, struct mem_range src, struct mem_range dst);
/*
 * Allocates (opts, mode allocate) and copies what src has. still: src is as for
 * pgalloc_next_committed_still. Small copies go over pages that were freed lately. 0, -ENOMEM.
 */
int pgalloc_allocate_copy(struct pgalloc *from, struct mem_range src, bool still,
			  struct pgalloc *to, const struct pgalloc_opts *opts,
			  struct mem_range *ret);
/*
 * Allocates two ranges for the halves of src (of whole pages), in p and in its second file (opts
 * and second_hint, mode allocate), and copies what src has, in two threads if the host has one to
 * spare. still: as above. 0, -ENOMEM.
 */
int pgalloc_copy_halves(struct pgalloc *from, struct mem_range src, bool still, struct pgalloc *p,
			const struct pgalloc_opts *opts, u64 second_hint, struct mem_range ret[2]);
/*
 * Copies that another thread makes while the caller goes on to add to them. Until the end the
 * sources hold still, nobody else looks at what is copied to, and both keep their references.
 * most: in all. NULL without memory.
 */
struct pgalloc_copies *pgalloc_copies_begin(u32 most);
/* All have been made; c is freed, or NULL. 0, -ENOMEM (some have not). */
int pgalloc_copies_end(struct pgalloc_copies *c);
/* Copies src, all of it committed, over dst, which the caller alone has and whatever is in it: with
 * `later`, or at once (NULL, or no room). still: as above. 0, -ENODATA (a page of src is not
 * committed; dst is unchanged), -ENOMEM. */
int pgalloc_copy_onto(struct pgalloc *from, struct mem_range src, bool still, struct pgalloc *to,
		      struct mem_range dst, struct pgalloc_copies *later);

/*
 * Copies src, all of it committed and PGALLOC_LARGE_UNIT long, to a new huge page. still: as above.
 * 0, -ENODATA (src does not do; nothing was allocated), -ENOMEM.
 */
int pgalloc_copy_large(struct pgalloc *from, struct mem_range src, bool still,
		       struct pgalloc *large, u32 acct_id, struct mem_range *ret);

/* References of the page at r.start; *ret_run is the part of r, from its start, with the same
 * count. */
u32 pgalloc_refs(struct pgalloc *p, struct mem_range r, struct mem_range *ret_run);

void pgalloc_usage(struct pgalloc *p, struct pgalloc_usage *ret);
/*
 * Memory that its holder keeps only to use it again (mm/keep.c): it stays reserved, but counts as
 * free in pgalloc_usage, and is asked back before an allocation fails.
 */
struct pgalloc_keeper {
	struct list node;
	/* Gives back all it can; bytes. Under any lock of the allocating thread, so by trylock. */
	u64 (*drain)(struct pgalloc_keeper *k);
	/* Gives back what it has reserved and not used, the same way; for when nothing else is
	 * left. */
	u64 (*trim)(struct pgalloc_keeper *k);
};
void pgalloc_keeper_add(struct pgalloc *p, struct pgalloc_keeper *k);
void pgalloc_keeper_remove(struct pgalloc *p, struct pgalloc_keeper *k);
/* All keepers give back what they keep, and what they hold with it. */
void pgalloc_drain(struct pgalloc *p);
void pgalloc_account_kept(struct pgalloc *p, s64 bytes);
u64 pgalloc_kept(struct pgalloc *p);
u64 pgalloc_limit(const struct pgalloc *p);		/* as given to pgalloc_new */
struct promise *pgalloc_promise(struct pgalloc *p);	/* pgalloc/promise.h; of that limit */
u64 pgalloc_room(struct pgalloc *p);			/* bytes that can still be handed out */
u64 pgalloc_acct_usage(struct pgalloc *p, u32 acct_id); /* bytes reserved under this id */
/* Bytes under this id that have more than one reference. Walks all ranges, letting others in now
 * and then. */
u64 pgalloc_shared(struct pgalloc *p, u32 acct_id);
/* Bytes copied into p so far by the calls above. */
u64 pgalloc_copied(const struct pgalloc *p);

#endif
