/*
 * pgalloc/known.h: what is known about the pages of a memory file without asking the host.
 *
 * Two bits a page. *There*: the page is committed; it stays so until it is punched out. *Still*:
 * nobody can commit it, because it is shared copy-on-write and so not writable anywhere, and what
 * the first bit says is all there is to say. The second is taken back before its last user may
 * write (pgalloc_unstill), both when the page is freed.
 *
 * Not locked: bits are set and cleared atomically, by those who hold a reference on the page.
 */
#ifndef MINISENTRY_PGALLOC_KNOWN_H
#define MINISENTRY_PGALLOC_KNOWN_H

#include "base/memfile.h"

#include <stdatomic.h>

/* Of one chunk of the file; one bit a page. */
struct known;

struct known_pages {
	_Atomic(struct known *) *chunks; /* [chunk of the file], each made on first use */
	u64 count;
};

enum known_state { KNOWN_NOTHING, KNOWN_THERE, KNOWN_HOLE };

/* 0 or -ENOMEM. chunks: how many of PGALLOC_CHUNK_SIZE the file can have. */
int known_init(struct known_pages *k, u64 chunks);
void known_destroy(struct known_pages *k);
/* The state of the page at r.start, and in *ret_run how far in r the pages share it. */
enum known_state known_run(const struct known_pages *k, struct mem_range r,
			   struct mem_range *ret_run);
/* Without memory they forget. */
void known_set_there(struct known_pages *k, struct mem_range r);
void known_set_still(struct known_pages *k, struct mem_range r);
void known_clear_still(struct known_pages *k, struct mem_range r);
void known_clear(struct known_pages *k, struct mem_range r);

#endif
