/*
 * platform/internal.h: what the files of platform/ share.
 *
 * control.c	the control file: slots shared with stubs
 * filters.c	seccomp filters of zygote, mapper and guest threads, from one table
 * zygote.c	starting it and asking it for stubs
 * as.c		address spaces: commands to the mapper
 * late.c	mappings that the mapper makes before a guest thread goes on
 * pool.c	stubs whose guest is gone, emptied for the next one
 * context.c	guest threads: slots, creation, retirement, CPU time
 * ptrace/, seccomp/	how a guest thread is run: struct platform_ops
 *
 * Locks: platform->lock (RANK_PLATFORM_GLOBAL) for the zygote's socket;
 * as->lock (RANK_PLATFORM) for the command page, the mapper and the contexts
 * of an address space; control's lock is a leaf.
 */
#ifndef MINISENTRY_PLATFORM_INTERNAL_H
#define MINISENTRY_PLATFORM_INTERNAL_H

#include "base/list.h"
#include "base/lock.h"
#include "base/refs.h"
#include "platform/clock.h"
#include "platform/platform.h"
#include "platform/stub/abi.h"
#include <pthread.h>
#include <stdatomic.h>

#define NSEC_PER_SEC 1000000000LL

/* ---- control file ---- */

struct control {
	int fd;	  /* immutable */
	u8 *base; /* immutable: all slots, mapped */
	/* Immutable: bytes that a signal frame may take. At a slot's end there is room for the
	 * sentry's own frame, and before it for the kernel's. */
	size_t frame_size;
	struct mutex lock;
	u32 used;	/* slots that were ever handed out; protected by lock */
	u32 free_count; /* protected by lock */
	u32 *free;	/* [CONTROL_SLOTS], protected by lock */
};

int control_init(struct control *c, size_t frame_size);
void control_destroy(struct control *c);
/* A zeroed slot, its context page and frame area committed. Index or -ENOMEM. */
int control_alloc(struct control *c);
/* Gives it back; no stub maps it any more, or only the one that had it before. */
void control_free(struct control *c, u32 slot);
/* Part of the file behind the slots, which stubs map privately. */
static inline u8 *control_zone(const struct control *c, u64 offset)
{
	return c->base + offset;
}
/* The futex word that goes with a slot; STUB_BELLS in stubs. It is changed before who sleeps on it
 * is woken: all are, for any guest may sleep there. */
static inline _Atomic u32 *control_bell(const struct control *c, u32 slot)
{
	return (_Atomic u32 *)(c->base + CONTROL_BELLS) + slot;
}
static inline u64 stub_bell(u32 slot)
{
	return STUB_BELLS + (u64)slot * sizeof(u32);
}
static inline void *control_slot(const struct control *c, u32 slot)
{
	return c->base + (size_t)slot * STUB_SLOT_SIZE;
}

/* ---- filters ---- */

/* Writes the programs and their stub_prog into the config slot, as config's flags say. */
void filters_write(struct stub_config *config, const struct stub_header *stub);

/* ---- vDSO ---- */

/* Addresses in stubs of the functions VDSO_* (abi.h); 0 where the host has none. */
void vdso_find_functions(const struct platform_vdso *vdso, u64 ret[3]);

/* ---- platform ---- */

struct xstate_format {
	u32 size;	   /* of the XSAVE area */
	u32 extended_size; /* with the trailing magic */
	u64 features;	   /* user xfeatures */
	u32 mxcsr_mask;
	u8 sw_bytes[48]; /* as the kernel writes them into a frame */
};
int xstate_probe(struct xstate_format *ret);
/* Makes a state that came from elsewhere acceptable to the kernel. size <= format->size. */
void xstate_sanitise(const struct xstate_format *format, void *buf, size_t size);

struct platform_ops {
	/* The thread ctx->tid exists; make it ready for the first switch. as->lock held. */
	int (*context_start)(struct platform_context *ctx);
	/* Makes the thread leave (as is alive). Owner thread. */
	void (*context_stop)(struct platform_context *ctx);
	void (*run)(struct platform_context *ctx, struct user_regs_struct *regs,
		    struct platform_stop *stop);
	/* See platform_context_complete; NULL: nothing is ever missing. */
	void (*complete)(struct platform_context *ctx, struct user_regs_struct *regs);
	int (*get_xstate)(struct platform_context *ctx, void *buf, size_t size);
	int (*set_xstate)(struct platform_context *ctx, const void *buf, size_t size);
	/* True when the guest thread will do it (ctx->fp_save, fp_load); NULL: never. save: 0, or
	 * where to save what it has; load: what comes then. */
	bool (*move_xstate)(struct platform_context *ctx, u64 save, u64 load);
	/* The stub is dead: wake whoever waits for ctx. Any thread, as->lock held. */
	void (*wake_dead)(struct platform_context *ctx);
};
void pairs_init(struct platform *p); /* without it there are none */
struct spin_limits;
/* A sleeper has been woken, in so many ticks of the TSC: how long to spin follows from that. */
void spin_limits_adapt(struct spin_limits *limits, u64 wake_tsc);
/* The context is at its end: its threads stay where they are, for the next ones; the mapper is free
 * unless it is on a pair. Owner thread. */
void pair_end(struct platform_context *ctx);
const struct platform_ops *ptrace_ops(void);
const struct platform_ops *seccomp_ops(void);

/* CPUs that contexts which call often are bound to, see seccomp/pair.c. */
#define CPU_PAIRS_MAX 64
struct cpu_pairs {
	u32 count; /* immutable */
	struct {
		u32 stubs, owners; /* immutable */
		_Atomic u32 members;
		_Atomic u32
			spinner; /* control slot of a context whose stub may spin there; 0: none */
	} pair[CPU_PAIRS_MAX];
};

struct platform {
	enum platform_kind kind;	/* immutable */
	const struct platform_ops *ops; /* immutable */
	bool fsgsbase;			/* immutable */
	bool dispatch;		 /* immutable: syscall user dispatch confines guest threads */
	bool spin;		 /* immutable */
	bool patch;		 /* immutable: system call sites are patched */
	bool reuse, late;	 /* immutable */
	struct patcher *patcher; /* immutable, NULL without patch */
	struct spin_limits {
		_Atomic u64 window_tsc;	 /* the longest wait that is spun for */
		_Atomic u32 stub_rounds; /* of the stub's loop in that time */
		_Atomic u64 wake_tsc;	 /* average of what waking a sleeper takes */
		u32 pause_tsc;		 /* of one round of either loop; immutable */
	} spin_limits;
	int cpus; /* immutable */
	struct cpu_pairs pairs;
	u64 guest_min;		     /* immutable */
	struct platform_vdso vdso;   /* immutable */
	struct stub_header stub;     /* immutable */
	struct xstate_format xstate; /* immutable */
	struct control control;
	int zygote_pid, zygote_socket, zygote_pidfd; /* immutable */
	_Atomic bool zygote_dead;
	_Atomic bool ending; /* platform_end was called */
	struct mutex lock;   /* the zygote's socket; spaces */
	struct list spaces;  /* protected by lock */
	int reaper_epoll;    /* immutable; -1 without reaper */
	int reaper_event;
	pthread_t reaper;
	bool reaper_started;
	_Atomic int active;    /* contexts whose owner does not sleep for its guest */
	_Atomic int computing; /* those of them that need a CPU of their own */
	struct stub_pool {
		struct mutex lock;
		struct list ready; /* platform_as.pool_node, without references */
		int count;
		bool closed;
	} pool;
};

/* For tests: as on a host without syscall user dispatch. */
extern bool platform_test_no_dispatch;
/* What of the host a platform of that kind uses: wrfsbase & co., syscall user dispatch. */
void platform_host_features(enum platform_kind kind, bool *ret_fsgsbase, bool *ret_dispatch);

int zygote_start(struct platform *p, const struct platform_config *config, char *reason,
		 size_t reason_size);
void zygote_stop(struct platform *p);
/* Forks a stub that serves command slot `slot` and reports on done_fd. pid or -EAGAIN, -ENOMEM. */
int zygote_fork(struct platform *p, u32 slot, int done_fd);
int reaper_start(struct platform *p);
void reaper_stop(struct platform *p);
int reaper_add(struct platform *p, struct platform_as *as);
void reaper_remove(struct platform *p, struct platform_as *as);

/* ---- address spaces ---- */

/* In slot_control: the stub has not mapped the slot, or not for certain. */
#define SLOT_NOT_MAPPED 0x80000000U

/* Mappings that wait for a guest thread to go on. */
#define LATE_MAX 28

struct platform_as {
	struct refs refs;
	struct platform *platform;
	struct list node;	 /* platform->spaces, protected by platform->lock */
	int pid, pidfd, done_fd; /* immutable */
	u32 cmd_slot;		 /* immutable */
	struct stub_cmd *cmd;	 /* immutable */
	_Atomic bool dead;	 /* all its threads have exited, or are about to by SIGKILL */
	struct mutex lock;
	/* protected by lock */
	u32 seq;
	struct list contexts; /* platform_context.node */
	struct list retired;  /* threads told to exit: struct retired_thread */
	u32 *slot_control; /* [local slot] its control slot, mapped in the stub as long as it lives
			    */
	u32 *slot_free;	   /* stack of local slots without a thread */
	u32 slot_count, slot_free_count, slot_capacity;
	struct stub_op late[LATE_MAX]; /* platform_as_map_late: not begun yet */
	_Atomic u32 late_count;
	bool pending;	    /* a command is under way whose result nobody waits for */
	bool unwoken;	    /* a command is there that a guest's thread is to wake the mapper for */
	u64 pending_sum;    /* of its completion, what has come */
	bool failed;	    /* ... and one has failed: the next batch says so */
	struct list parked; /* platform_context.node: threads that wait for the next context */
	u32 parked_count;
	bool spent;	       /* platform_as_retire: not for reuse */
	bool lost_thread;      /* one left that nobody remembers: not for reuse */
	bool clean;	       /* nothing of a guest is mapped, by the mapper's word */
	u32 mapper_cpu;	       /* that the mapper is bound to, from 1; 0: none */
	u32 mapper_bound;      /* the pair whose stubs' CPU the mapper is bound to; 0: none */
	_Atomic u64 wall_tsc;  /* time in guest code of all contexts: the last sum */
	u64 gone_tsc;	       /* of contexts that are gone; protected by lock */
	_Atomic bool own_gs;   /* the guest uses GS, or is stepped: no patched calls any more */
	u64 former_cpu_ns;     /* immutable between reuses: CPU time of former guests */
	struct list pool_node; /* protected by pool.lock */
	_Atomic u32 context_count;
	/* seccomp, pair.c: how often its threads have stopped, and how long they have spun */
	_Atomic u64 stops, spun_tsc;
};
/* Kills and reaps the stub, frees. Nobody refers to it. */
void as_destroy(struct platform_as *as);

/* ---- reuse of stubs ---- */

void pool_init(struct platform *p);
/* The last reference to as is gone. True when the pool has it now. May take some time. */
bool pool_keep(struct platform_as *as);
/* A stub as if new with one reference, or NULL. */
struct platform_as *pool_take(struct platform *p);
/* Destroys those in the pool; it takes no more. */
void pool_close(struct platform *p);

/* Wakes who sleeps on the bell of that slot. */
void ring_bell(struct platform *p, u32 slot);
/* Has a stub that spins on the pair's CPU (1 and up; 0: none) do so. It may not obey: whoever
 * relies on it has to ring_bell after a while. False: none does. */
bool pair_ring(struct platform *p, u32 pair, u32 slot);
/* `word` was the word of a context that was taken back from its stub: it may not have rung for us.
 */
void ring_if_asked(struct platform *p, u32 word);
/* Tells the mapper to go, waits for the result: >= 0, or -errno; -ESRCH when the stub is dead. */
s64 as_submit_locked(struct platform_as *as, u32 kind, u32 count);
/* Begins a command: as->pending. wake: or else a guest's thread will. False: the stub is dead. */
bool as_begin_locked(struct platform_as *as, u32 kind, u32 count, bool wake);
/* Waits for a command that was only begun. Before anything is written to the command page. */
void as_settle_locked(struct platform_as *as);
/* The same without waiting. False: it is still under way. */
bool as_try_settle_locked(struct platform_as *as);
int as_encode(const struct platform_as *as, const struct platform_op *op, struct stub_op *ret);
/* Moves the mappings that wait to the beginning of the command page. Returns how many. */
u32 late_take_locked(struct platform_as *as);
/* The mapper makes the mappings that wait, and gives the turn to ctx's thread. False: there are
 * none (any more). */
bool late_begin(struct platform_context *ctx);
/* The context that the calling thread runs or has run last, or NULL. */
struct platform_context *context_current(void);
/* munmaps by the mapper. 0 or -errno. */
int as_unmap_locked(struct platform_as *as, const struct stub_deferred *ranges, u32 count);
/* -EOPNOTSUPP: not for a guest thread. */
int as_encode_deferred(const struct platform_as *as, const struct platform_op *op,
		       struct stub_deferred *ret);
/* Kills the stub; returns when no instruction of its guest threads can run any more. */
void as_kill_locked(struct platform_as *as);
/* CPU time of the whole stub, 0 when it is dead. */
u64 as_cpu_ns(const struct platform_as *as);
/* Kills without waiting; for threads that wait for a context of it. */
void as_kill_nowait(struct platform_as *as);
/* The stub is dead, by the kernel's word: marks it and wakes its contexts' owners. */
void as_note_death(struct platform_as *as);
/* A thread that leaves, or has left. Its local slot may be given to another one afterwards. */
struct retired_thread {
	struct list node; /* as->retired */
	int tid;
	u32 local_slot;
	u64 since_ns;
};

/* ---- contexts ---- */

/* Threads that an address space keeps for later. */
#define PARKED_MAX 8

/* Makes a thread that waits for its first context. 0 or -errno. */
int context_spare(struct platform_as *as);
/* Tells parked threads to leave. */
void contexts_retire_parked(struct platform_as *as);
/* Waits until all threads but the mapper are gone, by the kernel's word. False: not in time. */
bool context_all_gone(struct platform_as *as, u64 deadline_ns);
/* The seccomp platform's: what follows from the clock for spinning (turn.c, pair.c). */
struct turn_pace {
	u64 guest_tsc;	    /* moving average: how long the guest has its turn */
	u64 moved_tsc;	    /* when the owner was last moved to another CPU */
	u64 spun_tsc;	    /* by the owner, since the last sample */
	u64 stub_spun_tsc;  /* by the stub, since pair_update told its address space */
	u32 apart_turns;    /* that the two sides are taken to be on different CPUs */
	u32 turns;	    /* apart, and not on a pair */
	bool stub_spins;    /* while the owner has its turn */
	bool rung;	    /* another stub is to wake this one */
	u32 pair;	    /* that the context is on, from 1; 0: none */
	u32 stops, recent;  /* since the last sample of CPU time; since it was last thought of */
	u32 blocked;	    /* times that it has become idle since the last sample */
	u32 sleeps;	    /* of both sides, since the last sample */
	u32 crowded;	    /* samples in a row that found the pair's CPUs needed by others */
	bool computes;	    /* more than it calls; counted in platform->computing unless idle */
	u32 seen_cpu, seen; /* where the stub was last, and for how many turns */
	u32 beside;	/* the stub's CPU, where its owner and mapper are kept; from 1; 0: none */
	u64 sample_tsc; /* when; 0: never */
	struct pace_sample {
		u64 own_ns;			  /* CPU time of the owner */
		u64 as_ns, as_stops, as_spun_tsc; /* and of all threads of the stub */
	} sample;
};

/* Twice what any XSAVE area takes that a kernel hands out (AMX: 11 KiB). */
#define XSTATE_BUF_SIZE (2 * PLATFORM_XSTATE_MAX)

struct platform_context {
	struct platform_as *as; /* immutable, a reference */
	struct platform *platform;
	struct list node;	  /* protected by as->lock */
	int tid;		  /* immutable */
	u32 slot;		  /* immutable: control slot */
	u32 local_slot;		  /* immutable: index in STUB_SLOTS */
	u8 *mem;		  /* immutable: the slot in the sentry */
	struct stub_ctx *shared;  /* == mem */
	u64 stub_addr;		  /* immutable: the slot in the stub */
	_Atomic bool interrupted; /* sticky until platform_switch sees it */
	_Atomic bool in_guest;	  /* a signal reaches it */
	struct context_clock clock;
	/* owner thread only */
	struct stub_deferred deferred[CTX_DEFERRED_MAX]; /* copies of what is in `shared` */
	u32 deferred_count;
	bool dead;
	u32 uc;		      /* seccomp: offset of the current ucontext, validated */
	u32 home_uc, home_fp; /* seccomp: where a frame is that the sentry makes itself */
	bool in_call;	      /* seccomp: stopped in a patched call, not in a frame */
	bool load;	      /* in_call: the stub has been told to load all registers */
	bool complete;	      /* in_call: all registers have been read */
	bool saved;	      /* in_call: the extended state is in the home frame */
	/* Addresses in the stub: where the guest thread is to save its extended state, and what it
	 * is to load then, before it goes on. fp_load 0: nothing of it is to be done. */
	u64 fp_save, fp_load;
	bool idle;		/* not counted in platform->active */
	u64 raw_rip, shown_rip; /* seccomp: in a trampoline at raw_rip, which the sentry sees as
				   shown_rip */
	u64 call_fs, call_gs;	/* in_call: as they were at the stop */
	u32 bound;		/* the pair whose CPU the thread is bound to, from 1; 0: none */
	struct turn_pace pace;
	void *xbuf;	  /* XSTATE_BUF_SIZE, scratch for extended state */
	size_t xbuf_size; /* ptrace: what the kernel's register set takes */
};

/*
 * The stub thread has handed over. False: a deferred call has failed in it, and the mapper has
 * unmapped its range instead: give the turn back, nothing has happened in the guest.
 */
bool context_settle_deferred(struct platform_context *ctx);
/* Takes back what the calling thread has deferred since its last switch. Returns how many. */
u32 context_take_deferred(struct platform_as *as, struct stub_deferred ret[CTX_DEFERRED_MAX]);

#endif
