/*
 * mm/vma_set.h: the ordered set of a guest address space's vmas.
 *
 * A balanced tree by address, augmented with the largest gap below each node,
 * so that a free range is found in O(log n). Entries never overlap. The set
 * holds no references and takes no locks: mm/ protects it (see mm_impl.h).
 */
#ifndef MINISENTRY_MM_VMA_SET_H
#define MINISENTRY_MM_VMA_SET_H

#include "base/avl.h"
#include "base/list.h"
#include "base/refs.h"

enum {
	VMA_SHARED = 1 << 0,
	VMA_LOCKED = 1 << 1,
	VMA_LOCKONFAULT = 1 << 2,
	VMA_GROWSDOWN = 1 << 3,
	VMA_STACK = 1 << 4, /* the main stack */
	VMA_DONTFORK = 1 << 5,
	VMA_WIPEONFORK = 1 << 6,
	VMA_DONTDUMP = 1 << 7,
	VMA_HUGE = 1 << 8,
	VMA_NOHUGE = 1 << 9,
	VMA_NORESERVE = 1 << 10,
	VMA_RESERVED = 1 << 11, /* vdso: not ours to map or unmap */
	VMA_HEAP = 1 << 12,	/* made by brk; merges only with its like */
	VMA_RANDOM = 1 << 13,	/* MADV_RANDOM, MADV_SEQUENTIAL: only remembered */
	VMA_SEQUENTIAL = 1 << 14,
};

/* An immutable, shared name: a file's path, or what PR_SET_VMA_ANON_NAME gave. */
struct vma_name {
	struct refs refs;
	char text[];
};

struct vma_name *vma_name_new(const char *text); /* NULL: no memory */
struct vma_name *vma_name_get(struct vma_name *n);
void vma_name_put(struct vma_name *n);

struct mappable;
struct vma_reg;

struct vma {
	struct avl_node node;
	u64 start, end; /* changed only through the set */
	/* augmented: the first one's guarded start, the last one's end and the largest inner gap of
	 * the subtree */
	u64 low, high, gap;

	u8 prot, max_prot;
	u32 flags;
	struct mappable *mappable; /* reference; NULL: anonymous */
	u64 offset;		   /* of start in mappable */
	struct vma_reg *reg;	   /* the registration with mappable; counted in reg->users */
	struct list reg_node;
	struct vma_name *name;	    /* reference; path shown in maps */
	struct vma_name *anon_name; /* reference */
	struct vma *dead_next;	    /* chain of removed vmas, see struct mm_op */
};

struct vma_set {
	struct avl_root root;
	size_t count;
	u64 generation; /* rises with every change of bounds or rights */
};

void vma_set_init(struct vma_set *s);
void vma_set_insert(struct vma_set *s, struct vma *v);
void vma_set_remove(struct vma_set *s, struct vma *v);
/* New bounds that keep v's place in the order. */
void vma_set_resize(struct vma_set *s, struct vma *v, u64 start, u64 end);
/* After a change of flags that matter to the gaps (VMA_GROWSDOWN). */
void vma_set_touch(struct vma_set *s, struct vma *v);
/* The first vma that ends after addr, or NULL. */
struct vma *vma_set_seek(const struct vma_set *s, u64 addr);
/* The vma that contains addr, or NULL. */
struct vma *vma_set_find(const struct vma_set *s, u64 addr);
struct vma *vma_set_first(const struct vma_set *s);
struct vma *vma_next(const struct vma *v);
struct vma *vma_prev(const struct vma *v);

static inline u64 vma_len(const struct vma *v)
{
	return v->end - v->start;
}

struct gap_query {
	u64 len, align; /* align: power of two >= page */
	u64 low, high;	/* the result lies in [low, high) */
	bool top_down;	/* the highest fit, else the lowest */
};
/* Guard gaps below vmas that grow down are not free. True and the start of a free range, or false.
 */
bool vma_set_find_gap(const struct vma_set *s, const struct gap_query *q, u64 *ret_start);

/* Where v begins for others: its guard gap included (Linux's stack_guard_gap, 256 pages). */
#define STACK_GUARD_GAP (256 * PAGE_SIZE)
u64 vma_guarded_start(const struct vma *v);

#endif
