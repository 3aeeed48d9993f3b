/*
 * mm/mm_impl.h: what the files of mm/ share.
 *
 * Locks. Changing the vma set needs map_lock for write and active_lock; reading
 * it needs either. So faults and copies, which are the frequent operations,
 * take active_lock only. What fork shares of the vmas is never changed (vma_own), so
 * no lock is needed between the sets that share it. A mappable's add, remove, put and sync are
 * called under map_lock but never under active_lock; translate under active_lock.
 *
 * Rule of revocation: memory goes back to its file (memfile_put) only after the
 * stub call that unmapped or replaced it has returned. What is left to a guest
 * thread (platform_as_defer) is no such call. Rule of copy-on-write: a pma with
 * `cow` is never mapped through the writable descriptor (PMA_MAP_WRITE), so its
 * pages cannot change while they are copied. A guest can undo any mprotect, so
 * the right to write is taken away by mapping anew or unmapping alone.
 */
#ifndef MINISENTRY_MM_IMPL_H
#define MINISENTRY_MM_IMPL_H

#include "base/lock.h"
#include "base/log.h"
#include "mm/hot.h"
#include "mm/mm.h"
#include "mm/pma_set.h"
#include "mm/text.h"
#include "mm/vma_set.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* Linux's default vm.max_map_count. */
#define MM_MAX_VMAS 65530
/* Host mappings of a stub before all are dropped and refaulted; the host's own limit is 65530. */
#define MM_MAX_HOST_VMAS 60000
/* Stretches of guest memory whose sentry address is remembered; a power of two. */
#define MM_SPANS 8
/* Trapping sites that are remembered, and how often one is tried. */
#define MM_TEXT_SEEN 64
#define MM_TEXT_TRIES 32
#define MM_TEXT_CHUNKS 1024
#define MM_PROT_ALL (PROT_READ | PROT_WRITE | PROT_EXEC)

/* A reference that the stub may still need; held.c. */
#define HELD_MAX 8
#define HELD_BYTES_MAX HUGE_PAGE_SIZE
#define NEAR_PAUSE 32

struct held {
	struct memfile *file;
	struct mem_range range;
};

struct mm {
	struct refs refs;
	_Atomic u32 users;

	/* immutable */
	struct platform *platform;
	struct platform_as *as;
	struct pgalloc *memory;
	struct memfile *memfile;
	u32 acct_id;
	struct mm_totals *totals;
	bool fork_wait, fork_reuse;
	u64 min, max; /* guest addresses */

	struct rwlock map_lock;
	/* changed under map_lock (write) and active_lock, read under either */
	struct vma_set vmas;
	/* bytes of vmas: all, private writable, VMA_LOCKED, VMA_ACCOUNT */
	u64 total, data, locked, accounted;
	u64 promised; /* what of the memory file's promises is for this mm: `accounted`, between
			 operations */
	u64 mmap_base;
	u32 future_lock; /* VMA_LOCKED | VMA_LOCKONFAULT of MCL_FUTURE */
	struct mm_limits limits;
	struct mm_marks marks;
	bool torn_down;
	_Atomic bool leftover; /* torn down, and memory and mappings are still to be released */
	u64 leftover_bytes;    /* that count as kept meanwhile; protected by active_lock */

	struct mutex active_lock;
	/* protected by active_lock */
	struct pma_set pmas;
	struct pma_set kept;	    /* see keep.c; disjoint from what is mapped of pmas */
	struct held held[HELD_MAX]; /* see held.c */
	u32 held_count;
	u64 held_bytes; /* that count as kept */
	u64 kept_bytes;
	struct pgalloc_keeper keeper;  /* immutable but for its place in the list */
	u32 early_mappings;	       /* backed at once, see backing_ahead */
	u64 anon_vma_end, anon_window; /* where memory was brought in last, and how much */
	u64 ahead;		       /* brought in unasked since the last trim; 0: all is used */
	u32 keep_used;		    /* mappings over kept memory that were touched, in sequence */
	u64 keep_next, keep_window; /* where a sequential user of kept memory goes on */
	struct mm_write_pin *write_pins;
	u64 cow_next, cow_window; /* where a sequential writer would break COW next; its window */
	struct hot_set *hot_set;  /* a reference; NULL before the first fork */
	u32 hot_child;		  /* its name there; 0: no fork has made it */
	struct hot_piece *hot;	  /* of the fork under way */
	int hot_count;
	u64 born_ns;	       /* immutable; CLOCK_MONOTONIC, of what a fork made; else 0 */
	bool executed;	       /* its process goes on with another program */
	struct fork_patience { /* fork_watch.c */
		struct fork_watch *child; /* the last one, if it is waited for; a reference */
		u32 breaks;		  /* since that fork */
		u32 usual_breaks;	  /* after one whose child was not waited for */
		bool spared;		  /* the last one was, and gone in time */
		u32 skip, in_vain;	  /* forks not to wait for, and how many they were last */
		u64 until_ns;		  /* to wait now */
		u64 typical_ns;		  /* how long children had their memory */
	} patience;
	struct legacies *legacies,
		*bequest;	    /* legacy.c: for its children, and its parent's; each a
				       reference or NULL; the first protected by active_lock */
	u32 bequest_era;	    /* immutable */
	bool leaving;		    /* legacy_expect */
	_Atomic bool apart;	    /* mm_trust_changed */
	struct home *home;	    /* home.c; protected by active_lock */
	struct home_watch *away;    /* of the one whose memory it shares since fork; a reference */
	struct fork_watch *watched; /* by its parent, as long as it has memory; a reference */
	u64 second_next; /* in the second memory file, behind the last half copied there */
	u64 copy_next;	 /* in the memory file, behind the last copy that lies alone */
	bool loose; /* there may be mappings that no pma tells of: unmapped by the guest, or not */
	u64 spurious_addr; /* last fault that found its page mapped, and how often */
	u32 spurious_count;
	u32 near_pause; /* faults without backing_map_near, after all mappings were lost */
	u64 peak_vm, peak_rss;
	/* Where the last copies and transfers went (access.c), of that generation of both sets. */
	struct mm_span {
		u64 start, end; /* guest addresses */
		char *ptr;
		bool writable;
	} spans[MM_SPANS];
	u64 spans_generation;

	struct text *text; /* immutable */
	u64 text_owner;	   /* immutable */
	bool text_private; /* there are chunks of this owner */
	/* The chunks it is a user of (text_table.h); protected by that table's lock. */
	bool text_user;
	u64 text_used[MM_TEXT_CHUNKS / 64];
	struct {
		u64 addr;
		u32 traps;
	} text_seen[MM_TEXT_SEEN]; /* sites that trapped lately */

	_Atomic bool starved; /* a copy failed for lack of memory */
	_Atomic u64 minor_faults, major_faults;
	_Atomic int dumpable;
	_Atomic u32 policy; /* MM_MDWE_*, MM_THP_DISABLE */

	struct mutex exe_lock; /* RANK_LEAF */
	void *exe;	       /* protected by exe_lock */
	void (*exe_put)(void *);
};

#define MM_COUNT(mm, what) atomic_fetch_add_explicit(&(mm)->totals->what, 1, memory_order_relaxed)

/* Memory that the sentry may write through a pin: fork must not leave it shared. */
struct mm_write_pin {
	struct mm_write_pin *next;
	struct memfile *file;
	struct mem_range range;
};

/* mm_new with a stub that there is, whose reference it takes over; NULL: a new one. */
int mm_new_in(const struct mm_config *config, struct platform_as *as, struct mm **ret);
/* Releases what tear-down has left. active_lock held. */
void mm_empty_locked(struct mm *mm);

/* ---- an operation on the map: locks, and what to release after them (mm.c) ---- */

struct mm_op {
	struct mm *mm;
	struct vma *dead; /* removed vmas */
	u64 promised;	  /* taken for what is to become VMA_ACCOUNT */
};

void mm_op_begin(struct mm *mm, struct mm_op *op);
/* Unlocks, then unregisters and frees the dead vmas. */
void mm_op_end(struct mm_op *op);

/* -ENOMEM when that many more bytes cannot be promised (pgalloc/promise.h); the operation's end
 * gives back what no vma accounts for then. */
int mm_promise(struct mm_op *op, const struct mm_limits *l, u64 bytes);
/* The same for all that fork's child has copied of its parent's vmas. */
int mm_promise_child(struct mm *child, const struct mm *parent);
/* Brings mm's promise to what its vmas account for; `taken` has been taken beside it. */
void mm_promise_settle(struct mm *mm, u64 taken);

/* ---- vmas (vma.c); map_lock (write) and active_lock held ---- */

/* The registration of one or more vmas, split from one, with their mappable. */
struct vma_reg {
	struct mapping m;
	struct refs refs; /* one for all users, one per tryget */
	struct mm *mm;
	struct mappable *mappable; /* reference */
	u32 users;		   /* vmas; protected by mm->map_lock */
	struct list vmas;	   /* protected by mm->active_lock */
};

/* Registers; one user. No locks but map_lock. 0, -ENOMEM, or the mappable's refusal. */
int vma_reg_new(struct mm *mm, struct mappable *mappable, u64 start, u64 end, bool shared,
		bool writable, struct vma_reg **ret);
/* One user more: another vma. */
void vma_reg_use(struct vma_reg *reg);
/* One user fewer; the last unregisters. Not under active_lock. */
void vma_reg_release(struct vma_reg *reg);

/*
 * Before a vma is changed: v, or a copy that took its place if fork has shared it. Its place and
 * what is beside it are the set's own then (vma_set_own). NULL: no memory.
 */
struct vma *vma_own(struct mm *mm, struct vma *v);
/* After vma_set_own: enters v (attached to its registration's list; takes over the reference) /
 * takes it out, onto op's dead list if it was its own. */
void vma_enter(struct mm *mm, struct vma *v);
void vma_leave(struct mm_op *op, struct vma *v);
/* For fork. Gives mm, which has none, all vmas of `from`; those that are not to be shared have to
 * be exchanged, with map_lock of `from` held. */
void vma_share_all(struct mm *mm, struct mm *from);
/* After vma_set_own: n (NULL: nothing) for v, which is in the set of another mm as well. */
void vma_exchange(struct mm *mm, struct vma *v, struct vma *n);
/* Takes out all. Those with registrations, linked by dead_next and referenced: for release without
 * active_lock. */
struct vma *vma_leave_all(struct mm *mm);
/* v is exclusive (vma_own). */
void vma_resize(struct mm *mm, struct vma *v, u64 start, u64 end);
/* A copy of v's attributes for [start, end), with references, but not registered; in no set. */
struct vma *vma_dup(const struct vma *v, u64 start, u64 end);
/* Joins v with its neighbours where they are alike; returns the vma that v is part of now. */
struct vma *vma_merge(struct mm_op *op, struct vma *v);
/* Changes prot and flags with the accounting; v is exclusive (vma_own). */
void vma_change(struct mm *mm, struct vma *v, u8 prot, u32 flags);
/* The same with the flags of [start, end), a part of one vma that is cut there. -ENOMEM. */
int vma_change_part(struct mm_op *op, u64 start, u64 end, u32 flags);
/* Makes the vma boundary run through start and end, and [start, end) the set's own, so that vmas
 * there can go and, with vma_own, change. -ENOMEM. */
int vma_cut(struct mm *mm, u64 start, u64 end);
static inline u64 vma_offset_at(const struct vma *v, u64 addr)
{
	return v->offset + (addr - v->start);
}
static inline bool vma_is_anon(const struct vma *v)
{
	return !v->mappable && !(v->flags & VMA_RESERVED);
}
/* prot is what the guest itself has forbidden by PR_SET_MDWE; `had`: its rights before. */
static inline bool mm_denies(const struct mm *mm, u8 had, u8 prot)
{
	return (mm->policy & MM_MDWE_REFUSE_EXEC_GAIN) && (prot & PROT_EXEC) &&
	       ((prot & PROT_WRITE) || !(had & PROT_EXEC));
}
static inline u64 mm_data_limit(const struct mm_limits *l)
{
	return l->data ? l->data : l->data_max;
}
/* Room for `add` more bytes under RLIMIT_AS, and RLIMIT_DATA when private writable. */
bool mm_may_expand(const struct mm *mm, const struct mm_limits *l, u8 prot, u32 flags, u64 add,
		   u64 replaced);
/* -EPERM, -EAGAIN or 0: `add` more locked bytes. */
int mm_may_lock(const struct mm *mm, const struct mm_limits *l, u64 add);
/* Unmaps [start, end), aligned and in bounds. 0, -ENOMEM, -EPERM (a part is reserved or sealed). */
int mm_unmap_range(struct mm_op *op, u64 start, u64 end);
/* A free place as mmap chooses it. 0 or -ENOMEM. */
int mm_find_place(struct mm *mm, u64 hint, u64 len, int map_flags, bool huge_align, u64 *ret);

/* ---- the stub's mappings (stub.c); active_lock held ---- */

/* What the stub may have for p under v's protection; 0: nothing. */
u8 stub_prot(const struct vma *v, const struct pma *p);
/* How p is to be mapped there: PMA_MAP_WRITE if v allows its guest to write p at any time. */
enum pma_map stub_map_kind(const struct vma *v, const struct pma *p);
/*
 * Maps before the calling thread's guest thread goes on, without waiting: what was mapped there is
 * gone only when platform_as_settled says so. A failure shows as another fault. False: stub_map.
 */
bool stub_map_late(struct mm *mm, u64 start, u64 end, struct memfile *file, u64 offset,
		   enum pma_map map, u8 prot);
/* 0 or -ENOMEM; then the stub has nothing mapped at all. */
int stub_map(struct mm *mm, u64 start, u64 end, struct memfile *file, u64 offset, enum pma_map map,
	     u8 prot, bool populate);
/* Other rights for a mapping that there is. 0 or -errno. */
/* 0 or -ENOMEM; then the stub has nothing mapped at all. */
int stub_protect(struct mm *mm, u64 start, u64 end, u8 prot);
/* Never fails; the pmas' host_map is the caller's to change. */
void stub_unmap(struct mm *mm, u64 start, u64 end);
/* Nothing is mapped any more, or it is in another stub: says so in the pmas, and frees what was
 * kept. */
void stub_forget_all(struct mm *mm);
/* Unmaps everything and says so in the pmas. */
void stub_drop_all(struct mm *mm);
/* Before a change that splits host mappings, and may be left to the guest's thread: near the host's
 * limit nothing stays mapped, so the host never refuses to split. */
static inline void stub_leave_room(struct mm *mm)
{
	if (mm->pmas.mapped + mm->kept.count >= MM_MAX_HOST_VMAS)
		stub_drop_all(mm);
}
/*
 * Takes rights away from what is mapped in [start, end), so that no more than
 * `allowed` is left; exactly: gives what is new of them too, before the caller's
 * guest thread goes on, but maybe not yet when this returns.
 */
void stub_restrict(struct mm *mm, u64 start, u64 end, u8 allowed, bool exactly);

/* Many changes in few hand-overs to the stub. */
#define STUB_BATCH 64
struct stub_batch {
	struct mm *mm;
	struct platform_op ops[STUB_BATCH];
	size_t count;
	bool defer; /* the guest's only thread may do it; for changes that need no evidence */
	bool failed;
};
void stub_batch_begin(struct mm *mm, struct stub_batch *b);
/* prot of what is mapped, or 0 and no file: unmap. Contiguous changes of a kind become one. */
void stub_batch_protect(struct stub_batch *b, u64 start, u64 end, u8 prot);
void stub_batch_unmap(struct stub_batch *b, u64 start, u64 end);
/* Maps p as far as v reaches, unless it is mapped. It counts as mapped at once: no pma may change
 * until the end. */
void stub_batch_map(struct stub_batch *b, const struct vma *v, struct pma *p);
/* Takes the right to write from every pma with cow, for good. */
void stub_protect_cow(struct mm *mm, struct stub_batch *b);
/* When anything failed, nothing at all is mapped. */
void stub_batch_end(struct stub_batch *b);
/* The same for one of maps only, without waiting: a failure shows at the next change. */
void stub_batch_end_maps(struct stub_batch *b);
/* As stub_map_late. */
void stub_batch_end_late(struct stub_batch *b);

/* ---- held.c ---- */

/* Takes over a reference to pages that stub_map_late has replaced; HELD_MAX at most. */
void held_add(struct mm *mm, struct memfile *file, struct mem_range r);
/* Gives back what is held if the stub is known to have lost it. */
/* Bytes. */
u64 held_release(struct mm *mm);
/* There may be so many more. */
bool held_room(const struct mm *mm, u32 pieces, u64 bytes);
/* The same where nothing is mapped, or nobody runs in the stub any more. */
void held_give_back(struct mm *mm);

/* ---- backing (backing.c, cow.c); active_lock held ---- */

/* References of dropped pmas, given back in as few calls as possible. */
struct mm_puts {
	struct memfile *file;
	struct mem_range r;
	struct mm *holder; /* the stub may have the pages until later */
};
void mm_puts_add(struct mm_puts *q, struct memfile *file, struct mem_range r);
void mm_puts_flush(struct mm_puts *q);

/*
 * Enters memory file pages (whose references it takes over) as the backing of
 * [start, end), replacing what was there, in the stub too when any of it was
 * mapped or map_now is set. 0, -ENOMEM (references stay with the caller).
 */
int backing_install(struct mm *mm, const struct vma *v, const struct pma *value, bool map_now);
/*
 * Makes the page backed so that the access can be done through its pma. *ret
 * NULL: untouched anonymous memory, reads as zero. -EFAULT: beyond the end of
 * file, or the file system has no space (SIGBUS); -ENOMEM.
 */
int backing_resolve(struct mm *mm, struct vma *v, u64 page, bool write, bool map_now,
		    struct pma **ret);
/* The same without giving memory back when there is none, for work while a stub_batch is open: what
 * it has not mapped yet must not go. */
int backing_resolve_only(struct mm *mm, struct vma *v, u64 page, bool write, struct pma **ret);
/* The same for the sentry's own access: never patched text. */
int backing_resolve_data(struct mm *mm, struct vma *v, u64 page, bool write, struct pma **ret);
/* Maps p in the stub as far as v reaches, with all the rights that both allow. */
int backing_map(struct mm *mm, const struct vma *v, struct pma *p, bool populate);
/* v is a segment of a program or a library: another one of the same file beside it is executable.
 */
bool backing_is_image(const struct mm *mm, const struct vma *v);
/*
 * After a fault at page on a file, p is its new pma: maps that, what is at hand around it, and in
 * the vmas beside v that map the same file. Only where backing_has_around(v).
 */
bool backing_has_around(const struct vma *v);
void backing_map_around(struct mm *mm, struct vma *v, struct pma *p, u64 page);
/* Maps what has no mapping near page, which had none either. What is left, faults map. */
void backing_map_near(struct mm *mm, struct vma *v, u64 page);
/* Drops the pmas of [start, end), unmapping them first. only_shared: those of files only. */
int backing_drop(struct mm *mm, u64 start, u64 end, bool only_shared);
/* The same for munmap: what can be is kept, and unmapped by the guest's thread. */
int backing_release(struct mm *mm, u64 start, u64 end);
/* p, which nobody else has any more, is not shared. */
void cow_own(struct pma *p);
/* A private copy of p's part around page, or p itself when nobody else has it. */
int cow_break(struct mm *mm, struct vma *v, struct pma *p, u64 page, bool map_now);
/* After mmap: what is kept for [start, end) of v, or, early in a program, new memory backs it at
 * once, where that pays. */
void backing_ahead(struct mm *mm, struct vma *v, u64 start, u64 end);
/* Allocates [start, end) of guest memory, uncommitted, next to its neighbours' memory. */
int backing_allocate(struct mm *mm, const struct vma *v, u64 start, u64 end, struct mem_range *ret);
/* The same, with a copy of what src has for those addresses. */
int backing_allocate_copy(struct mm *mm, const struct vma *v, const struct pma *src,
			  struct mem_range *ret);

/* The same on a huge page, of the memory's large file, for 2 MiB that all exist. Huge pages or not,
 * the guest's memory is as much. -ENODATA: not for these. */
int backing_copy_large(struct mm *mm, const struct pma *src, struct mem_range *ret);

/* The same in two halves of src, the second one in the memory's second file. -ENODATA: too little,
 * or there is no CPU for it. */
int backing_copy_halves(struct mm *mm, const struct vma *v, const struct pma *src,
			struct mem_range ret[2]);

/* ---- kept memory (keep.c); active_lock held ---- */

/* p may be kept: nobody else has its memory, the stub may write there anyway. */
bool keep_suits(struct mm *mm, const struct pma *p);
/* Room for that much, freeing what has been kept so far if need be. */
bool keep_room(struct mm *mm, u64 bytes);
/* Takes over p's memory and the stub's mapping of it; a reserved node is used. */
void keep_add(struct mm *mm, const struct pma *p);
/*
 * Kept memory for page and what is around it within [low, high), all zero: *ret is a value for the
 * pma set, mapped without rights, whose memory is the caller's now. False: there is none.
 */
bool keep_take(struct mm *mm, u64 page, u64 low, u64 high, struct pma *ret);
/* The same for all of a new mapping, if it is likely to be touched soon. */
bool keep_take_all(struct mm *mm, u64 start, u64 end, struct pma *ret);
/* The stub's mapping of [start, end) has been removed or replaced: frees what was kept there. */
void keep_forget(struct mm *mm, u64 start, u64 end);
/* Unmaps and frees all of it. */
void keep_drain(struct mm *mm);
/* Gives back anonymous memory that was never touched (trim.c). Bytes. */
u64 mm_trim_locked(struct mm *mm);
/* A new mm's, and its end: the memory file may ask it for what it keeps in between. No locks. */
void keep_init(struct mm *mm);
void keep_destroy(struct mm *mm);

/* ---- fork_watch.c; active_lock held, of both where there are two ---- */

void fork_watch_begin(struct mm *parent, struct mm *child);
/* child has given its memory up. */
void fork_watch_gone(struct mm *child);
/* mm itself goes; no lock needed. */
void fork_watch_end(struct mm *mm);
/* The last child of mm has given its memory up, and soon. */
bool fork_watch_was_quick(const struct mm *mm);
/* If it writes to much beside the child that it is about to fork. */
bool fork_watch_will_wait(struct mm *mm);
/* A page of mm that is shared since fork is to be written: mm_await_child first. */
bool fork_watch_wants_wait(struct mm *mm);

/* ---- legacy.c ---- */

/* A stub, a reference, with the record of what it has mapped. What is mapped for writing are
 * private pages, with references to them; what is mapped for reading may belong to anybody by now.
 */
struct legacy {
	struct platform_as *as;
	struct pma_set pmas;
	bool exact; /* there is nothing else */
	u64 bytes;  /* private; they count as kept */
};

/* mm, torn down, has a parent that may use its stub for another child. */
bool legacy_wanted(struct mm *mm);
/* mm, which has ended, owns so much: its parent's next fork may wait until it has left it. */
void legacy_expect(struct mm *mm, u64 bytes);
/* It has, or leaves nothing. Under active_lock, or by who alone still has mm. */
void legacy_left(struct mm *mm);
/* By the last who has a reference, legacy_wanted: mm's memory is given up and mm->as is NULL, or
 * nothing has changed. No locks. */
void legacy_leave(struct mm *mm);
/* mm itself goes. No locks. */
void legacy_end(struct mm *mm);
/* What an earlier child has left, for one whose mm->as is the legacy's, or NULL. No locks. */
struct legacy *legacy_take(struct mm *parent);
/* It was not used after all, and its `as` is still the legacy's. */
void legacy_return(struct mm *parent, struct legacy *l);
/* child, of parent, may leave one in its turn. active_lock of both. */
void legacy_begin(struct mm *parent, struct mm *child);
/* Where that what l has private pages for begins or ends next behind start; `end` at most. l may be
 * NULL. */
u64 legacy_alike_until(const struct legacy *l, u64 start, u64 end);
/* value is to be the child's own copy: over private pages of l, and mapped, if there are some for
 * it. Then value is the child's. False: it is as it was. l may be NULL. */
bool legacy_copy(struct mm *child, struct legacy *l, const struct vma *v, struct pma *value,
		 struct pgalloc_copies *copies);
/* b has been begun. Frees l. The child's guest may run after mm_settle. */
void legacy_adopted(struct mm *child, struct legacy *l);

/* ---- adopt.c; active_lock held ---- */

/*
 * mm->as, where no guest runs, has mapped what `record` says or less. What mm has there just so
 * counts as mapped, all the rest is unmapped in b. owner: mm itself had it mapped; what it shares
 * with nobody any more is its own again. Else, what is mapped for writing is not mm's.
 */
void stub_adopt(struct mm *mm, const struct pma_set *record, bool owner, bool exact,
		struct stub_batch *b);

/* ---- home.c; active_lock held, of both where there are two ---- */

/* mm, which has none, is about to go on in another stub: mm->as, without guest threads from now on,
 * becomes its home. False: it does not, and is the caller's. */
bool home_leave(struct mm *mm);
/* child shares memory with parent, until it has given it up. */
void home_child_begin(struct mm *parent, struct mm *child);
void home_child_gone(struct mm *child);
/* mm had a fault; it had better go home now. */
bool home_calls(struct mm *mm);
/* The stub, for its last put, if there is one. Also by the last who has a reference to mm, without
 * lock. */
struct platform_as *home_forget(struct mm *mm);

/* Faults in [start, end) as mlock and MAP_POPULATE do. Takes active_lock itself. 0, -EFAULT,
 * -ENOMEM. */
int mm_populate(struct mm *mm, u64 start, u64 end, bool for_write, bool respect_prot);
/* Grows a VMA_GROWSDOWN vma down to addr. Takes both locks. 0, -EFAULT, -ENOMEM. */
int mm_grow_down(struct mm *mm, u64 addr);

#endif
