/*
 * mm/text_table.h: the table of patched chunks, and the places of images.
 *
 * A chunk is found by file, offset, address and owner. Who puts it in place of
 * the file's pages becomes a *user* of it for good: a thread of his may be in
 * one of its trampolines, or asleep in a call that returns there, long after
 * the pages are gone. So a chunk whose content is no longer the file's is taken out of the
 * table at once, but its trampolines are given back with the last user:
 *
 *	counting --> patched --> dropped --> gone
 *	             (users, memory)  (users; memory while it is mapped)
 *
 * A user ends with its address space; sooner when the one thread that it has
 * is known to be elsewhere (text_table_outside).
 */
#ifndef MINISENTRY_MM_TEXT_TABLE_H
#define MINISENTRY_MM_TEXT_TABLE_H

#include "base/lock.h"
#include "mm/text.h"

#define TEXT_BUCKETS 256
/* Chunks in all. Beyond, those that nobody maps are dropped, and then no more text is patched. */
#define TEXT_CHUNKS_MAX 1024
/* Images with a place; beyond, the oldest lose theirs. */
#define TEXT_PLACES_MAX 4096

struct file_id {
	u32 major, minor;
	u64 ino;
};

struct chunk {
	struct list node; /* bucket, or of the dropped ones */
	struct file_id id;
	u64 offset; /* in the file */
	u64 bias;
	u64 owner; /* 0: of the file's own proof; else the one mm that may map it */
	struct chunk
		*parent; /* the shared one whose first edits these are: it counts us as a user */
	u32 slot;	 /* bit in an mm's text_used */
	u32 users;
	u32 traps;
	bool patched; /* edits are valid, and range unless `empty` */
	bool hopeless;
	bool dropped, empty;
	struct mem_range range;
	struct text_edit *edits;
	size_t edit_count;
	u64 content, same_from, same_to; /* that part of this content has been compared */
};

struct text {
	struct patcher *patcher;
	struct pgalloc *memory;
	struct memfile *memfile;
	_Atomic u64 next_owner;
	struct mutex lock; /* RANK_TEXT */
	/* protected by lock */
	struct list chunks[TEXT_BUCKETS], places[TEXT_BUCKETS];
	struct list dropped, place_order;
	struct chunk *slots[TEXT_CHUNKS_MAX];
	u32 chunk_count, place_count;
	u64 arena_start, arena_end, arena_next; /* addresses are given out downwards */
};

struct file_id text_identify(struct mappable *m);

/* ---- lock held ---- */

struct chunk *chunk_find(struct text *t, const struct file_id *id, u64 offset, u64 bias, u64 owner);
/* The same, made when there is none. NULL: no room. */
struct chunk *chunk_get(struct text *t, const struct file_id *id, u64 offset, u64 bias, u64 owner);
/* The patched chunk that this owner uses: its own, else the shared one. NULL: neither. */
struct chunk *chunk_patched(struct text *t, const struct file_id *id, u64 offset, u64 bias,
			    u64 owner);
/* The chunk, dropped ones too, whose memory has this byte of the memory file. */
struct chunk *chunk_at(struct text *t, const struct file_id *id, u64 offset, u64 mem);
/* Nobody maps it from now on. */
void chunk_drop(struct text *t, struct chunk *c);
/* mm is a user. */
void chunk_use(struct mm *mm, struct chunk *c);
/* One user less, of those in c->users. */
void chunk_user_gone(struct text *t, struct chunk *c);

/* ---- without it ---- */

/* mm has one thread, which is in no trampoline and returns to none. */
void text_table_outside(struct mm *mm);
/* mm's threads are gone: its chunks and uses end. */
void text_table_leave(struct mm *mm);

#endif
