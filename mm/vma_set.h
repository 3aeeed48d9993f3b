/*
 * mm/vma_set.h: the ordered set of a guest address space's vmas.
 *
 * A span tree (span_tree.h): fork shares it. The set holds a reference on each vma. A vma that
 * other sets may have as well is not changed but replaced by a copy (vma_own in mm_impl.h); one
 * that is registered with a mappable is in one set only. Takes no locks: mm/ protects it (see
 * mm_impl.h).
 */
#ifndef MINISENTRY_MM_VMA_SET_H
#define MINISENTRY_MM_VMA_SET_H

#include "base/list.h"
#include "mm/span_tree.h"

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
	VMA_ACCOUNT = 1 << 15,	 /* counts as promised memory */
	VMA_SEALED = 1 << 16,	 /* mseal: stays as it is */
	VMA_DROPPABLE = 1 << 17, /* MAP_DROPPABLE: never locked, kept or dumped */
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

/* Beside VMA_*, a mark of the span: it has a registration. */
#define VMA_MARK_FILE (1U << 31)

struct vma {
	union {
		struct tree_span span;
		struct {
			SPAN_FIELDS; /* bounds, changed only through the set */
		};
	};

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

/* One reference, all else zero. NULL: no memory. */
struct vma *vma_new(void);
/* The last one frees v with its references; not under active_lock if v has a mappable. */
void vma_put(struct vma *v);

struct vma_set {
	struct span_tree tree;
	u64 generation; /* rises with every change of bounds or rights */
};

void vma_set_init(struct vma_set *s);
/* Drops all of it. Who has a mappable must be held by others. */
void vma_set_clear(struct vma_set *s);
/* s, which is empty, gets all that `from` has. */
void vma_set_share(struct vma_set *s, struct vma_set *from);
/* What follows needs this for the place (span_tree_own). 0, -ENOMEM. */
int vma_set_own(struct vma_set *s, u64 start, u64 end);
/* Takes over the reference. */
void vma_set_insert(struct vma_set *s, struct vma *v);
/* The reference is the caller's. */
void vma_set_remove(struct vma_set *s, struct vma *v);
/* A copy takes v's place; references as above. */
void vma_set_replace(struct vma_set *s, struct vma *v, struct vma *copy);
/* New bounds that keep v's place in the order; v is exclusive. */
void vma_set_resize(struct vma_set *s, struct vma *v, u64 start, u64 end);
/* After a change of v's flags. */
void vma_set_touch(struct vma_set *s, struct vma *v);
/* The first vma that ends after addr and has one of these VMA_* or VMA_MARK_*, or NULL. */
struct vma *vma_set_marked(const struct vma_set *s, u64 addr, u32 marks);
/* The first vma that ends after addr, or NULL. */
struct vma *vma_set_seek(const struct vma_set *s, u64 addr);
/* The vma that contains addr, or NULL. */
struct vma *vma_set_find(const struct vma_set *s, u64 addr);
struct vma *vma_set_first(const struct vma_set *s);
struct vma *vma_next(const struct vma_set *s, const struct vma *v);
struct vma *vma_prev(const struct vma_set *s, const struct vma *v);

static inline size_t vma_set_count(const struct vma_set *s)
{
	return s->tree.count;
}

static inline u64 vma_len(const struct vma *v)
{
	return v->end - v->start;
}

/* Guard gaps below vmas that grow down are not free. True and the start of a free range, or false.
 */
bool vma_set_find_gap(const struct vma_set *s, const struct gap_query *q, u64 *ret_start);

/* Where v begins for others: its guard gap included (Linux's stack_guard_gap, 256 pages). */
#define STACK_GUARD_GAP (256 * PAGE_SIZE)
u64 vma_guarded_start(const struct vma *v);

#endif
