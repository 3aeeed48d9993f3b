/*
 * platform/platform.h: how guest code runs.
 *
 * Model. A *platform* (ptrace or seccomp) makes *address spaces*: each is one
 * host process, the stub, forked from a tiny zygote, whose user mappings below
 * guest_limits().max are exactly what the sentry asked for. A *context* is one
 * guest thread: one host thread in the stub of its address space. The sentry
 * thread that owns a context calls platform_switch(), which runs the guest
 * until it needs the sentry.
 *
 * Typical sequence:
 *	platform_new(kind, files, n, &p);            before the sentry grows threads
 *	platform_as_new(p, &as);
 *	platform_context_new(as, &ctx);              in the task's own sentry thread
 *	for (;;) { platform_switch(ctx, &regs, &stop); ... }
 *	platform_context_free(ctx);                  in the same thread
 *	platform_as_put(as);                         gives the stub up
 *
 * Trust. Nothing that a stub can write is believed: registers are checked,
 * and as_unmap/as_protect return only on the kernel's evidence that the change
 * happened (the mapper thread's own system call returned, or the stub is dead),
 * so the caller may reuse the pages afterwards.
 *
 * Locks: as_* functions may be called by any thread, take RANK_PLATFORM, and
 * wait for the mapper thread at most a bounded time (a stub that does not
 * answer is killed and the functions succeed: its mappings are gone). No mm
 * lock may be held while calling platform_switch; mm's active lock may be held
 * across as_*.
 */
#ifndef MINISENTRY_PLATFORM_PLATFORM_H
#define MINISENTRY_PLATFORM_PLATFORM_H

#include "base/memfile.h"
#include "base/types.h"
#include <sys/user.h>

struct platform;
struct platform_as;
struct platform_context;

enum platform_kind { PLATFORM_AUTO, PLATFORM_SECCOMP, PLATFORM_PTRACE };

/* Memory files that stubs can map; their fds are inherited by the zygote. */
#define PLATFORM_MAX_FILES 4

struct platform_config {
	enum platform_kind kind;
	bool spin;  /* --spin=auto: spin before sleeping where it helps */
	bool pairs; /* --pairs=auto: and bind to pairs of CPUs what calls often */
	bool patch; /* --patch=auto: system call sites may be rewritten */
	bool reuse; /* --reuse=auto: stubs and their threads serve one guest after the other */
	bool late;  /* --late=auto: platform_as_map_late */
	struct memfile *files[PLATFORM_MAX_FILES]; /* [i]->stub_slot == i */
	int file_count;
	/* Called for each explanation line ("seccomp refused: ...; using ptrace"). May be NULL. */
	void (*explain)(const char *line);
};

/*
 * Starts the zygote and probes the mechanism. Must run before the sentry is
 * confined. With PLATFORM_AUTO, seccomp is tried
 * first, ptrace second. The calling thread must live as long as the sentry: the
 * host kills the stubs when the thread that made the zygote exits. SIGCHLD must
 * not be ignored by SIG_IGN. 0, or -errno after an explain() line that says which
 * mechanism was refused and why.
 */
int platform_new(const struct platform_config *config, struct platform **ret);
/* Second half of start-up: threads of the platform's own (reaper). After confinement's
 * first half, before the first as_new. 0 or -errno. */
int platform_start(struct platform *p);
/* Kills and reaps the zygote and every stub. */
/* There is a CPU for each side of each context that runs, so one for who works in a sentry thread's
 * place while its guest waits. */
bool platform_cpus_to_spare(const struct platform *p);
void platform_free(struct platform *p);
enum platform_kind platform_kind_of(const struct platform *p);
/* True: a context is its maker's, who alone may switch or free it (ptrace). False: it is its
 * user's, one thread at a time. */
bool platform_contexts_bound(const struct platform *p);
const char *platform_name(enum platform_kind kind);
/* -EINVAL for an unknown name. */
int platform_kind_parse(const char *name, enum platform_kind *ret);
/* For doctor: 0 when usable here, else -errno with one line in reason. */
int platform_probe(enum platform_kind kind, char *reason, size_t reason_size);

/* Guest addresses run from min (inclusive) to max (exclusive), page-aligned; the stub lives above.
 */
void platform_guest_limits(const struct platform *p, u64 *ret_min, u64 *ret_max);
/* Where the host's vDSO (and vvar) are in every stub: one range that mm must keep
 * reserved if it lies below max; ehdr is AT_SYSINFO_EHDR. */
struct platform_vdso {
	u64 start, end; /* vvar and vdso together */
	u64 ehdr;
	u64 vdso_end; /* [ehdr, vdso_end) is [vdso], [start, ehdr) is [vvar] */
};
void platform_get_vdso(const struct platform *p, struct platform_vdso *ret);

/* ---- address spaces ---- */

/* A new stub with nothing mapped below max (but the vdso). 0, -ENOMEM, -EAGAIN. */
int platform_as_new(struct platform *p, struct platform_as **ret);
struct platform_as *platform_as_get(struct platform_as *as);
/* The last put empties the stub for another as_new or kills and reaps it; this may take a while. */
void platform_as_put(struct platform_as *as);

/*
 * Map [addr, addr+len) of the guest to `file` at `offset`, with PROT_* prot,
 * replacing what was there. `populate` asks for the page tables to be filled.
 * Without PROT_WRITE, the guest cannot make it writable by itself; with it, it
 * can, whatever platform_as_protect says later: to take that away, map or unmap.
 * 0; -ENOMEM when the host refuses (map count: the caller drops others and
 * retries); -ESRCH when the stub is dead (harmless: the guest is being killed).
 */
int platform_as_map(struct platform_as *as, u64 addr, u64 len, struct memfile *file, u64 offset,
		    int prot, bool populate);
/* Anonymous private read-only zero pages: for read faults on untouched anonymous memory. */
int platform_as_map_zero(struct platform_as *as, u64 addr, u64 len, int prot);
/* After 0 no guest instruction can reach the old pages through [addr, addr+len). -ENOMEM: the host
 * could not split a mapping (map count); the range is as it was. A dead stub: 0. */
int platform_as_unmap(struct platform_as *as, u64 addr, u64 len);
int platform_as_protect(struct platform_as *as, u64 addr, u64 len, int prot);
/* A number of changes, in one hand-over where the platform can. Same errors: stops at the first
 * failure. */
struct platform_op {
	enum { PLATFORM_OP_MAP, PLATFORM_OP_MAP_ZERO, PLATFORM_OP_UNMAP, PLATFORM_OP_PROTECT } kind;
	u64 addr, len;
	struct memfile *file;
	u64 offset;
	int prot;
	bool populate;
	/* MAP: the guest may write there for as long as this mapping lives. Implied by PROT_WRITE.
	 */
	bool writable;
};
int platform_as_batch(struct platform_as *as, const struct platform_op *ops, size_t count);
/*
 * A batch (64 at most) that runs on while the caller does something else; whatever comes next in
 * as, or platform_as_settle, waits for it. If it fails, the next batch does, with -ENOMEM, and so
 * does platform_as_settle until then.
 */
void platform_as_batch_begin(struct platform_as *as, const struct platform_op *ops, size_t count);
int platform_as_settle(struct platform_as *as);
/*
 * MAPs (and MAP_ZEROs) that the mapper makes as the calling thread's guest thread goes on, which it
 * then wakes itself: two switches less than platform_as_batch. Whatever comes next in as is done
 * after them; if one fails, the next batch fails with -ENOMEM. What they replace is gone when
 * platform_as_settled says so. 0; -EOPNOTSUPP, -ENOSPC: use platform_as_batch.
 */
int platform_as_map_late(struct platform_as *as, const struct platform_op *ops, size_t count);
/* True when nothing that was begun or left for later is outstanding. Does not wait. */
bool platform_as_settled(struct platform_as *as);
/* The sandbox ends: no more stubs are made, and those whose guest ends are not kept for another. */
void platform_end(struct platform *p);
/*
 * Leaves an UNMAP or PROTECT to the calling thread's guest thread, which does it before its next
 * instruction (an honest one does; the caller must be safe if it never happens: no page changes
 * hands on the strength of this). Calls after it to platform_as_batch & co. by the same thread find
 * it done. If the host refuses it, the range ends up unmapped. 0; -EOPNOTSUPP, -ENOSPC: use
 * platform_as_batch.
 */
int platform_as_defer(struct platform_as *as, const struct platform_op *op);
/* True when the caller's guest thread is the only one of as. */
bool platform_as_alone(struct platform_as *as);
/* True when the stub died without our asking (killed by host OOM, filter violation, ...). */
/* Ends the guest threads of as, which has no context left. True: on the kernel's evidence, nothing
 * runs guest code there from then on, whatever is still mapped, until it has a context again. */
bool platform_as_evacuate(struct platform_as *as);
/*
 * Ends the guest threads of as, which has no context left, on the kernel's evidence: nothing runs
 * guest code there from then on, whatever is still mapped. It is not used again, and its last put
 * takes as long as the kernel takes to tear its page tables down. Seccomp platform.
 */
void platform_as_retire(struct platform_as *as);
/*
 * Makes as, which has no context left, ready for another guest with what is mapped there: the
 * former one's threads are gone, on the kernel's evidence, and so is what they left in their slots.
 * False: it cannot be, or the platform does not reuse stubs; it is only good for its last put.
 */
bool platform_as_park(struct platform_as *as);
bool platform_as_dead(struct platform_as *as);
/* Kills the stub, for when its mappings cannot be brought into a known state. Its guest has no
 * access to memory afterwards. */
void platform_as_kill(struct platform_as *as);

/* ---- contexts ---- */

/*
 * Makes a guest thread in as. Where platform_contexts_bound, called by the sentry
 * thread that will own the context (the ptracer is a thread).
 * 0, -ENOMEM, -EAGAIN, -ESRCH (dead stub).
 */
int platform_context_new(struct platform_as *as, struct platform_context **ret);
void platform_context_free(struct platform_context *ctx);
/* ctx, new, is to go on where `from` has stopped, in another stub; registers and extended state are
 * the caller's to move. What platform_xstate_take_back has not taken yet is to be taken from ctx.
 */
void platform_context_succeed(struct platform_context *ctx, const struct platform_context *from);

enum platform_stop_reason {
	PLATFORM_STOP_SYSCALL, /* regs->orig_rax is the number, regs->rax == -ENOSYS, rip behind it
				*/
	PLATFORM_STOP_FAULT,   /* memory: info filled; access_* say what was tried */
	PLATFORM_STOP_EXCEPTION,   /* SIGILL, SIGFPE, SIGTRAP, SIGBUS (alignment), #GP SIGSEGV */
	PLATFORM_STOP_INTERRUPTED, /* platform_context_interrupt, or nothing in particular: go round
				    */
	PLATFORM_STOP_XSTATE, /* what platform_xstate_to_guest or from_guest has begun cannot be
			       * done in the guest: take it back, do it, go round */
	PLATFORM_STOP_DEAD,   /* the stub is gone: kill the guest process (SIGKILL) */
};

struct platform_stop {
	enum platform_stop_reason reason;
	int signo, si_code; /* FAULT, EXCEPTION: as the host kernel gave them */
	u64 fault_addr;	    /* si_addr */
	u64 trapno, error_code, cr2;
	bool access_write, access_exec; /* FAULT: from the page-fault error code */
	bool fault;			/* XSTATE: because of memory; as with FAULT */
	bool trapped;			/* SYSCALL: from a site that is not patched */
	bool syscall_is_compat; /* SYSCALL by int 0x80 or sysenter: the sentry answers -ENOSYS */
};

/*
 * Runs the guest with *regs (struct user_regs_struct: fs_base and gs_base are
 * the guest's thread pointers; segment registers are ignored and set by the
 * platform) until it stops; *regs is then its new state. Always succeeds;
 * STOP_DEAD is the failure. The caller holds no lock. rip, flags and bases are
 * sanitised here (canonical, user bits only).
 */
void platform_switch(struct platform_context *ctx, struct user_regs_struct *regs,
		     struct platform_stop *ret_stop);

/*
 * After a STOP_SYSCALL only rax, orig_rax, the six argument registers, eflags, fs_base and gs_base
 * of regs are sure to be the guest's. Gets the others; before anybody reads or changes them. Owner
 * thread.
 */
void platform_context_complete(struct platform_context *ctx, struct user_regs_struct *regs);
/* Makes a running or next platform_switch return soon. Any thread; sticky until it takes effect. */
void platform_context_interrupt(struct platform_context *ctx);

/*
 * The extended state (XSAVE area, standard format as in a signal frame and
 * NT_X86_XSTATE) of a stopped context. Owner thread only. get fills up to
 * platform_xstate_size() bytes; set sanitises (xcomp_bv, reserved mxcsr bits,
 * xstate_bv within what the host supports). 0 or -ESRCH.
 */
size_t platform_xstate_size(const struct platform *p);
#define PLATFORM_XSTATE_MAX (16 * 1024) /* no host has more */
/* The components that such an area holds (XCR0 without those that a program must ask for). */
u64 platform_xstate_features(const struct platform *p);
int platform_get_xstate(struct platform_context *ctx, void *buf, size_t size);
int platform_set_xstate(struct platform_context *ctx, const void *buf, size_t size);
/*
 * The same without a copy in between: the guest thread itself saves its extended state at addr, an
 * address of its own, and goes on with the initial one; or loads it from there. It does so as guest
 * code would, before its next instruction. addr: 64-aligned, for an XSAVE area. False: not possible
 * now; use get and set, and platform_init_xstate. Owner thread.
 */
bool platform_xstate_to_guest(struct platform_context *ctx, u64 addr);
bool platform_xstate_from_guest(struct platform_context *ctx, u64 addr);
/*
 * After PLATFORM_STOP_XSTATE, and before get or set while the guest has not yet run: takes back
 * what of that is still to be done. False: nothing. True: save at *ret_save what get says, if that
 * is not 0; then set what is at *ret_load, if that is not 0, or else the initial state.
 */
bool platform_xstate_take_back(struct platform_context *ctx, u64 *ret_save, u64 *ret_load);
/* The state after exec: x87 and SSE defaults, the rest init. */
void platform_init_xstate(void *buf, size_t size);

/* The owner sleeps for its guest (or no longer does): its CPU is free. Owner thread only. */
void platform_context_idle(struct platform_context *ctx, bool idle);
/* Where the guest goes on although regs->rip of the last stop says `shown`: see patch.h. */
void platform_context_continue_at(struct platform_context *ctx, u64 shown, u64 rip);
/* True for good once the guest has set GS or is stepped through: its code must not be patched any
 * more. */
bool platform_as_own_gs(struct platform_as *as);
void platform_as_set_own_gs(struct platform_as *as);

/* What guest code may read instead of asking (see stub/abi.h, struct stub_info). Any thread. */
struct platform_ids {
	bool ids, clocks; /* which answers may be given; the rest is then valid */
	u32 pid, tid, ppid, uid, euid, gid, egid;
};
void platform_context_set_ids(struct platform_context *ctx, const struct platform_ids *ids);

/* Host CPU time (ns) that this context's guest code has used; for times() and getrusage. */
u64 platform_context_cpu_ns(struct platform_context *ctx);
/* TSC ticks from this context's stops to its next switches. Owner thread only. */
u64 platform_context_served_tsc(const struct platform_context *ctx);
/* Host thread id and process id, for affinity, priority and the audit. */
int platform_context_host_tid(struct platform_context *ctx);

#endif
