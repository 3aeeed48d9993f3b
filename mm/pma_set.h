/*
 * mm/pma_set.h: what backs guest memory now, and what the stub has mapped.
 *
 * A pma says that [start, end) of the guest is memory file range
 * [offset, offset + len) (file == NULL: the host's zero page), and with which
 * protection all of it is mapped in the stub: host_prot, 0 when none of it is.
 * That is exact, so a pma is split where a mapping ends, and the number of
 * pmas with host_prot bounds the number of host vmas.
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

struct pma {
	struct avl_node node;
	u64 start, end;
	struct memfile *file; /* NULL: zero page (always mapped) */
	u64 offset;
	bool owned;    /* private to this mm (anonymous or a private copy), maybe shared by fork */
	bool cow;      /* owned: others may have it too; check before a write */
	bool writable; /* not owned: the mappable allows shared writes */
	u8 host_prot;  /* PROT_* in the stub, of every page; 0 not mapped */
};

struct pma_set {
	struct avl_root root;
	size_t count, mapped; /* pmas; those with host_prot */
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
/* Takes p out and returns its node to the pool (copy what you need before). */
void pma_set_drop(struct pma_set *s, struct pma *p);
/* Makes [start, end) begin and end at pma boundaries; uses up to 2 reserved nodes. */
void pma_set_split(struct pma_set *s, u64 start, u64 end);
/* p, cut to [start, end), which it contains; uses up to 2 reserved nodes. */
struct pma *pma_set_isolate(struct pma_set *s, struct pma *p, u64 start, u64 end);
void pma_set_host_prot(struct pma_set *s, struct pma *p, u8 prot);
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
