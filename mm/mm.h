/*
 * mm/mm.h: a guest address space.
 *
 * Two sets describe it. A *vma* says what the guest asked for: range,
 * protection, flags, backing (anonymous, or a mappable and an offset). A *pma*
 * says which memory file range backs which part now, whether it is private to
 * this mm (anonymous, or a private copy) and whether it is shared copy-on-write
 * after a fork. The stub's host mappings are a cache of the pmas: filled by
 * faults, dropped at will.
 *
 * Locks: map_lock (RANK_MM_MAP, rwlock) protects vmas, brk, limits;
 * active_lock (RANK_MM_ACTIVE, mutex) protects pmas and what is mapped in the
 * stub. Calls into a mappable follow base/mappable.h. No mm lock is held while
 * guest code is waited for.
 *
 * Everything takes guest ranges from the guest: all of it checks for overflow,
 * alignment and limits and answers with Linux's errno.
 */
#ifndef MINISENTRY_MM_MM_H
#define MINISENTRY_MM_MM_H

#include "base/kiov.h"
#include "base/mappable.h"
#include "base/types.h"
#include "pgalloc/pgalloc.h"
#include "platform/platform.h"
#include <sys/resource.h>

struct mm;

/* ---- life ---- */

/* Limits that the thread group's rlimits impose; read at each call. */
struct mm_limits {
	u64 as, data, stack, memlock; /* RLIM_INFINITY = none */
	bool may_lock;		      /* CAP_IPC_LOCK */
	bool admin;		      /* CAP_SYS_ADMIN: promised memory's reserve is for it */
	u64 data_max; /* counts for mappings where data is 0: Linux's may_expand_vm */
};

/* The limits that stack growth by a fault obeys; each call with limits sets them too. */
void mm_set_limits(struct mm *mm, const struct mm_limits *limits);

/* What has happened in all address spaces of a sandbox. */
struct mm_totals {
	_Atomic u64 spaces;	 /* alive */
	_Atomic u64 break_copy;	 /* copy-on-write: memory shared by fork was copied ... */
	_Atomic u64 break_owner; /* ... or had no other owner any more */
	_Atomic u64 break_file;	 /* first writes to pages of private file mappings */
	_Atomic u64 fork_copy;	 /* pieces that fork copied at once */
};

struct mm_config {
	struct platform *platform;
	struct pgalloc *memory;
	u32 acct_id;
	struct text *text;	  /* NULL: system call sites are not patched */
	struct mm_totals *totals; /* NULL: not counted */
	bool fork_wait;		  /* the caller of mm_fault is one that can wait: -EAGAIN */
	bool fork_reuse;	  /* children go on in stubs of earlier ones, see mm/legacy.c */
};

/* An empty address space with a stub. One reference; the caller is its first user. 0, -ENOMEM,
 * -EAGAIN. */
int mm_new(const struct mm_config *config, struct mm **ret);
struct mm *mm_get(struct mm *mm);
void mm_put(struct mm *mm); /* last: unmaps, frees */
struct platform_as *mm_as(struct mm *mm);
/* Before a guest thread of a new child of fork first runs: what fork has left to the stub is done,
 * or nothing is mapped there at all. */
void mm_settle(struct mm *mm);
/* Several tasks may use an mm; users reaching zero (exit, exec) unmaps all at once: files know it
 * when mm_user_put returns, emptying the stub and the memory may be left to mm_finish.
 * mm_new and mm_fork return with one user, their caller. */
void mm_user_get(struct mm *mm);
void mm_user_put(struct mm *mm);
/* mm's process goes on with another program; before mm_user_put. */
void mm_executes(struct mm *mm);
/* mm's guest has other rights than before (credentials, a seccomp filter): from now on it shares no
 * stub with its parent's other children, nor do its own with those from before. No locks. */
void mm_trust_changed(struct mm *mm);
/* mm_put soon after mm_user_put, with what that has left to do. */
void mm_finish(struct mm *mm);
/*
 * The child's copy for fork: vmas copied, private pmas shared copy-on-write, both sides'
 * stubs write-protected before it returns. The exe hook is not copied. 0, -ENOMEM, -EAGAIN.
 */
int mm_fork(struct mm *parent, struct mm **ret_child);
/*
 * The same, and the parent goes on in the empty stub `fresh`, whatever is returned. The caller has
 * moved the parent's only context there, and puts *ret_old, the stub that the parent had, which
 * takes long; NULL: it is the parent's home (mm_home).
 */
int mm_fork_moving(struct mm *parent, struct platform_as *fresh, struct platform_as **ret_old,
		   struct mm **ret_child);
/*
 * A parent that has moved may go home, to the stub where it was, when its children have given its
 * memory up: mm_fault says -ESTALE then, with nothing done. The caller, the mm's only thread, takes
 * its context to mm_home and calls mm_go_home, which returns the stub that it came from, to be put;
 * or, where it cannot (NULL: it should not), puts what mm_forget_home returns, which may be NULL,
 * and repeats.
 */
struct platform_as *mm_home(struct mm *mm);
struct platform_as *mm_go_home(struct mm *mm);
struct platform_as *mm_forget_home(struct mm *mm);
/* Taking away the right to write from all that the parent has mapped would take longer than to
 * begin again in an empty stub: mm_fork_moving. Called by the parent's only thread. */
bool mm_fork_wants_stub(struct mm *parent);

/* ---- the system calls' work; handlers only decode ---- */

struct mm_mmap_args {
	u64 addr, len;
	int prot, flags; /* PROT_*, MAP_* as given */
	/* NULL: anonymous private; borrowed (a reference is taken). MAP_SHARED | MAP_ANONYMOUS
	 * comes with a fresh shared-memory mappable from the caller. */
	struct mappable *mappable;
	u64 offset;
	u8 max_prot;	  /* PROT_* that mprotect may ever grant (file open mode, seals) */
	const char *name; /* for maps: path of the file; copied; NULL none */
	struct mm_limits limits;
	bool grow_stack; /* internal: [stack] */
};
/* Result address or -errno. MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_LOCKED, MAP_POPULATE,
 * MAP_NORESERVE, MAP_STACK, MAP_HUGETLB (-> EINVAL/ENOMEM as a host without huge pages), MAP_32BIT,
 * MAP_SYNC... */
s64 mm_mmap(struct mm *mm, const struct mm_mmap_args *args);
int mm_munmap(struct mm *mm, u64 addr, u64 len);
int mm_mprotect(struct mm *mm, u64 addr, u64 len, int prot, const struct mm_limits *limits);
s64 mm_mremap(struct mm *mm, u64 old, u64 old_len, u64 new_len, int flags, u64 new_addr,
	      const struct mm_limits *limits);
/* pgoff: in pages. */
int mm_remap_file_pages(struct mm *mm, u64 addr, u64 len, u64 pgoff,
			const struct mm_limits *limits);
void mm_set_brk_start(struct mm *mm, u64 start);
u64 mm_brk(struct mm *mm, u64 addr,
	   const struct mm_limits *limits); /* the new break, as brk(2) raw */
int mm_mseal(struct mm *mm, u64 addr, u64 len);
int mm_madvise(struct mm *mm, u64 addr, u64 len, int advice, const struct mm_limits *limits);
/* process_mrelease: throws away the private memory of a process that dies. */
int mm_release(struct mm *mm);
int mm_msync(struct mm *mm, u64 addr, u64 len, int flags);
/* vec: one byte per page, sentry memory of (len + 4095) / 4096 bytes. */
int mm_mincore(struct mm *mm, u64 addr, u64 len, u8 *vec);
int mm_mlock(struct mm *mm, u64 addr, u64 len, bool onfault, const struct mm_limits *limits);
int mm_munlock(struct mm *mm, u64 addr, u64 len);
int mm_mlockall(struct mm *mm, int flags, const struct mm_limits *limits);
int mm_munlockall(struct mm *mm);
/* PR_SET_VMA_ANON_NAME: name NULL clears. */
int mm_set_anon_name(struct mm *mm, u64 addr, u64 len, const char *name);

/* Reserved ranges (vdso): shown in maps under `name`, cannot be unmapped. */
int mm_reserve(struct mm *mm, u64 start, u64 end, int prot, const char *name);
/* Layout picked by exec: top of the mmap area, allocation goes down from it. */
void mm_set_layout(struct mm *mm, u64 mmap_base);

/* ---- faults ---- */

/*
 * Resolves a guest fault. 0: mapped, run again; 1: the same, and data of a file had to be read (a
 * major fault). -EFAULT: *ret_sig and *ret_code say the signal, SIGSEGV with SEGV_MAPERR or
 * SEGV_ACCERR, SIGBUS with BUS_ADRERR; -ENOMEM: out of memory (kill by OOM); -EAGAIN, with
 * fork_wait: a child of fork has the page, too, and may soon give it up. Repeat after
 * mm_await_child; -ESTALE: see mm_home.
 */
int mm_fault(struct mm *mm, u64 addr, bool write, bool exec, int *ret_sig, int *ret_code);
/* Sleeps, 20 ms at most, for a child to execute a program or to exit. The caller holds no lock. */
void mm_await_child(struct mm *mm);

/* Whether a copy or pin has failed for lack of memory since the last call. */
bool mm_take_starved(struct mm *mm);
/* Nothing is mapped any more: the last user has gone, its memory is free. */
bool mm_emptied(struct mm *mm);

/* ---- patched text (mm/text.h) ---- */

/* Call nr trapped at the instruction before rip: patches it when that has happened often enough. */
void mm_text_trap(struct mm *mm, u64 rip, u64 nr);
/* SIGILL at rip: true when that stands for *ret in a trampoline. */
bool mm_text_landing(struct mm *mm, u64 rip, u64 *ret);
/* Back to the files' own code, for good: the guest uses GS. */
void mm_text_off(struct mm *mm);

/* ---- guest memory for the sentry ---- */

/* Copies; 0 or -EFAULT (nothing is guaranteed about a partial copy). Permissions as the guest's own
 * access. */
int mm_copy_in(struct mm *mm, void *dst, uaddr src, size_t len);
int mm_copy_out(struct mm *mm, uaddr dst, const void *src, size_t len);
/* Bytes copied before the first inaccessible byte, or -EFAULT when none. */
ssize_t mm_copy_in_partial(struct mm *mm, void *dst, uaddr src, size_t len);
ssize_t mm_copy_out_partial(struct mm *mm, uaddr dst, const void *src, size_t len);
int mm_zero_out(struct mm *mm, uaddr dst, size_t len);
/* NUL-terminated string into dst[size]: length without NUL, -EFAULT, or -ENAMETOOLONG. */
ssize_t mm_copy_in_str(struct mm *mm, char *dst, size_t size, uaddr src);
/* As the kernel's access_process_vm with FOLL_FORCE (ptrace, /proc/PID/mem). Bytes or -EFAULT. */
ssize_t mm_access_remote(struct mm *mm, u64 addr, void *buf, size_t len, bool write);

/*
 * Short access to one stretch of guest memory, without copy or pin: when all of [addr, addr+len)
 * is one (made writable, for_write), *ret is its sentry address until mm_direct_end. In between the
 * active lock is held: only locks of higher rank may be taken, and nothing may call back into mm.
 * False, without the lock, when it is not so simple: pin or copy then.
 */
bool mm_direct_begin(struct mm *mm, uaddr addr, size_t len, bool for_write, void **ret);
void mm_direct_end(struct mm *mm);
/* Makes the range ready to be written, as a write would. False unless all of it is. */
bool mm_prepare_write(struct mm *mm, uaddr addr, size_t len);

/*
 * Pins guest memory: fills seg[] with sentry addresses of [addr, addr+len), at
 * most max_segs segments; each page is faulted in (for_write: made writable and
 * private) and holds a reference until mm_unpin, so it is not reused meanwhile.
 * Returns bytes pinned (may be short: a hole follows, or max_segs), or -EFAULT.
 */
struct mm_pin {
	struct memfile *file; /* NULL: a stand-in for untouched memory, all zero */
	struct mem_range range;
	struct mm *writer; /* for_write: the mm, a reference; fork gives the child a copy of these
			      pages */
};
ssize_t mm_pin(struct mm *mm, uaddr addr, size_t len, bool for_write, struct iovec *seg,
	       struct mm_pin *pins, int max_segs, int *ret_count);
void mm_unpin(struct mm_pin *pins, int count);

/*
 * Identity of a guest word for futexes: private words by (mm, addr), shared ones by
 * (memory, offset) so that processes meet. For a shared mapping the key's object is
 * the mappable (a reference is taken; mm_futex_key_put).
 */
struct mm_futex_key {
	void *object; /* struct mm * or struct mappable * */
	u64 offset;
	bool shared;
};
int mm_futex_key(struct mm *mm, uaddr addr, bool private_hint, struct mm_futex_key *ret);
void mm_futex_key_put(struct mm_futex_key *key);
/* Atomic access to a guest word, faulting it in. 0 or -EFAULT. */
int mm_load32(struct mm *mm, uaddr addr, u32 *ret);
int mm_store32(struct mm *mm, uaddr addr, u32 v);
int mm_cmpxchg32(struct mm *mm, uaddr addr, u32 expected, u32 desired, u32 *ret_old);

/* ---- reports ---- */

struct mm_stats {
	u64 total_vm, rss_anon, rss_file, rss_shmem, data, stack, text, locked, peak_rss, peak_vm;
	u64 minor_faults, major_faults;
	size_t map_count;
};
/* Bytes mapped, without locks. */
u64 mm_space(struct mm *mm);
/* For a new program's first instructions: begins to map what is at hand of its images and stack. */
void mm_map_ahead(struct mm *mm);
/* peak_rss is the highest rss that any call saw. Walks all that is mapped. */
void mm_get_stats(struct mm *mm, struct mm_stats *ret);
/*
 * The peak rss in bytes, for a task that leaves mm by exit or exec. Looks again only if that is the
 * last user: what others use is not over, and a vforked child's exec may not cost a walk of all
 * that its parent has mapped.
 */
u64 mm_last_peak_rss(struct mm *mm);
/* One vma as /proc/PID/maps and smaps show it. */
struct mm_vma_info {
	u64 start, end, offset;
	int prot; /* PROT_* */
	bool shared, locked;
	u32 dev_major, dev_minor;
	u64 ino;
	/* VmFlags of smaps: two letters each, after a blank. */
	char vm_flags[80];
	char name[4096]; /* path, [heap], [stack], [anon:x], or "" */
	/* smaps, bytes: filled only when with_usage */
	u64 rss, pss, shared_clean, shared_dirty, private_clean, private_dirty, referenced,
		anonymous;
};
/* The first vma ending after addr; false when none. */
bool mm_vma_at_or_after(struct mm *mm, u64 addr, bool with_usage, struct mm_vma_info *ret);
/* What /proc/PID/pagemap says of the count pages from addr (aligned) on. A page is present when
 * there is memory behind it; whether the stub has it mapped right now is not the guest's business.
 */
enum { MM_PAGE_PRESENT = 1, MM_PAGE_FILE = 2, MM_PAGE_EXCLUSIVE = 4 };
void mm_page_flags(struct mm *mm, u64 addr, size_t count, u8 *ret_flags);
/* Marks for exec: where code, data, stack, args and env are (prctl PR_SET_MM, /proc/PID/stat,
 * cmdline). */
struct mm_marks {
	u64 start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start,
		arg_end, env_start, env_end;
	u64 auxv[64];
	size_t auxv_count;
};
void mm_get_marks(struct mm *mm, struct mm_marks *ret);
void mm_set_marks(struct mm *mm, const struct mm_marks *marks);

/* Opaque per-mm values that upper layers hang on it: the executable's file; dumpable. */
void mm_set_exe(struct mm *mm, void *exe_file, void (*put)(void *));
void *mm_get_exe(struct mm *mm, void (*get)(void *)); /* calls get under the lock; NULL if none */
/* What prctl has said of the address space as a whole; fork and exec pass it on, in part. */
enum {
	MM_MDWE_REFUSE_EXEC_GAIN = 1, /* PR_SET_MDWE's bits: nothing becomes executable by mprotect,
					 nor is writable too */
	MM_MDWE_NO_INHERIT = 2,
	MM_MDWE = 3,
	MM_THP_DISABLE = 4,
};
u32 mm_policy(struct mm *mm);
void mm_set_policy(struct mm *mm, u32 policy);
/* What a child or the next program gets. */
u32 mm_policy_inherited(struct mm *mm);
int mm_dumpable(struct mm *mm);
void mm_set_dumpable(struct mm *mm, int v);

#endif
