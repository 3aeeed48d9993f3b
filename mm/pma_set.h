/*
 * mm/pma_set.h: what backs guest memory now, and what the stub has mapped.
 *
 * A pma says that [start, end) of the guest is memory file range
 * [offset, offset + len) (file == NULL: the host's zero page), and how all of it
 * is mapped in the stub: host_map, and with which protection: host_prot (0 in
 * what is mapped: reserved, the page tables are kept). host_map is exact, so a
 * pma is split where a mapping ends, and the number of mapped pmas bounds the
 * number of host vmas. host_prot is what an honest stub has: the guest's threads
 * can change it themselves, within what host_map allows.
 *
 * A pma holds one reference on each page of its range; the set's functions
 * move references, they never take or drop them.
 *
 * Not locked: mm's active lock protects it. Nodes come from a pool of the set,
 * filled by pma_set_reserve, so that splits in the middle of a change cannot fail.
 */
#ifndef MINISENTRY_MM_PMA_SET_H
#define MINISENTRY_MM_PMA_SET_H

#include "base/avl.h"
#include "base/memfile.h"

enum pma_map {
	PMA_UNMAPPED,
	PMA_MAP_READ,  /* through the read-only descriptor: the guest cannot write there */
	PMA_MAP_WRITE, /* the guest may write there at any time, whatever host_prot says */
};

struct pma {
	struct avl_node node;
	u64 start, end;
	struct memfile *file; /* NULL: zero page (always mapped) */
	u64 offset;
	bool owned;    /* private to this mm (anonymous or a private copy), maybe shared by fork */
	bool cow;      /* owned: others may have it too; check before a write */
	bool text;     /* not owned: a patched copy of the file's text */
	bool writable; /* not owned: the mappable allows shared writes */
	u8 host_prot;  /* PROT_* in the stub, of every page */
	u8 host_map;   /* enum pma_map, of every page */
};

struct pma_set {
	struct avl_root root;
	size_t count, mapped; /* pmas; those that are mapped */
	u64 generation;	      /* rises when guest memory may lead elsewhere than before */
	struct pma *pool;
	size_t pool_count;
};

void pma_set_init(struct pma_set *s);
/* The set must be empty. */
void pma_set_destroy(struct pma_set *s);
/* Room for `count` new nodes. 0, -ENOMEM. Any single change needs at most PMA_RESERVE. */
#define PMA_RESERVE 8
int pma_set_reserve(struct pma_set *s, size_t count);

/* The first pma that ends after addr, or NULL. */
struct pma *pma_set_seek(const struct pma_set *s, u64 addr);
struct pma *pma_set_find(const struct pma_set *s, u64 addr);
struct pma *pma_next(const struct pma *p);
struct pma *pma_prev(const struct pma *p);
static inline struct pma *pma_set_first(const struct pma_set *s)
{
	return pma_set_seek(s, 0);
}

/* Enters a copy of *value; returns the node. Uses a reserved node. */
struct pma *pma_set_add(struct pma_set *s, const struct pma *value);
/* The same, merged with what is before it, for what lies behind all of s. */
void pma_set_append(struct pma_set *s, const struct pma *value);
/* Takes p out and returns its node to the pool (copy what you need before). */
void pma_set_drop(struct pma_set *s, struct pma *p);
/* Makes [start, end) begin and end at pma boundaries; uses up to 2 reserved nodes. */
void pma_set_split(struct pma_set *s, u64 start, u64 end);
/* p, cut to [start, end), which it contains; uses up to 2 reserved nodes. */
struct pma *pma_set_isolate(struct pma_set *s, struct pma *p, u64 start, u64 end);
void pma_set_host(struct pma_set *s, struct pma *p, enum pma_map map, u8 prot);
/* Merges p with both neighbours where they continue each other; returns what p is part of now. */
struct pma *pma_set_merge(struct pma_set *s, struct pma *p);

static inline struct mem_range pma_range(const struct pma *p)
{
	return (struct mem_range){ p->offset, p->offset + (p->end - p->start) };
}

/* The memory file range behind [start, end) of p. */
static inline struct mem_range pma_subrange(const struct pma *p, u64 start, u64 end)
{
	return (struct mem_range){ p->offset + (start - p->start), p->offset + (end - p->start) };
}

/* A guest may write through it without asking. */
static inline bool pma_may_write(const struct pma *p)
{
	return p->file && (p->owned ? !p->cow : p->writable);
}

#endif
