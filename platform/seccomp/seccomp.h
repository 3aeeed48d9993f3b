/*
 * platform/seccomp/seccomp.h: what the files of the seccomp platform share.
 *
 * frame.c	signal frames: registers and extended state
 * turn.c	handing over: who spins, who sleeps
 * seccomp.c	stops and what they mean
 */
#ifndef MINISENTRY_PLATFORM_SECCOMP_H
#define MINISENTRY_PLATFORM_SECCOMP_H

#include "platform/internal.h"
#include <signal.h>
#include <sys/ucontext.h>

/* ---- frames ---- */

/* Finds the place of the frame that the sentry makes itself, and makes it: registers are not set.
 */
void frame_home(struct platform_context *ctx);
/* Registers into the frame at ctx->uc, and where the stub finds it. */
void frame_store(struct platform_context *ctx, const struct user_regs_struct *r);
/* What the frame says about the stop: false when the stub reports an impossible one. */
struct frame_stop {
	greg_t g[NGREG];
	siginfo_t info;
	u64 fs, gs;
};
bool frame_fetch(struct platform_context *ctx, struct frame_stop *ret);
/* Extended state in the frame at ctx->uc; get gives the initial one where the guest has broken the
 * frame. */
void frame_get_xstate(struct platform_context *ctx, void *buf, size_t size);
int frame_set_xstate(struct platform_context *ctx, const void *buf, size_t size);

/* Shared memory -> private, once: the compiler may not read the source again. */
static inline void fetch(void *dst, const void *src, size_t size)
{
	__builtin_memcpy(dst, src, size);
	__asm__ volatile("" : : "r"(dst) : "memory");
}

/* ---- turns ---- */

/*
 * Gives the stub its turn, to resume as RESUME_* says, and waits until it has
 * handed back. False: the stub is gone or as good as.
 */
bool turn_run(struct platform_context *ctx, u32 resume);

/* ---- pairs of CPUs (pair.c); owner thread ---- */

/* Before each turn of the stub. True: both sides are on a pair, where spinning is always right. */
bool pair_update(struct platform_context *ctx);
/* One that left the only pair to another context: true if it has it to itself now. Not sooner than
 * gap_tsc after its last move. */
bool pair_join_alone(struct platform_context *ctx, u64 gap_tsc);
/* ctx's stub spins now, if it does as it was told: it can ring bells for others (pair_ring). */
void pair_note_spinner(struct platform_context *ctx);
/* Where no CPU is to be spared for spinning: the owner, and the mapper if no other thread needs it,
 * have the CPU of their stub's thread from now on; or no longer. Who wakes them is a switch away.
 */
void pair_stay_beside(struct platform_context *ctx, u32 cpu);
void pair_move_away(struct platform_context *ctx);
/* Other contexts are on the pair that ctx is on. */
bool pair_shared(const struct platform_context *ctx);
/* The owner of a context on a pair sleeps: looks, less and less often, whether the stub computes,
 * and leaves the pair then. Returns when to look again (CLOCK_MONOTONIC, ns). */
struct pair_watch {
	u64 interval_ns, next_ns, cpu_ns;
};
struct pair_watch pair_watch_begin(u64 now);
u64 pair_watch(struct platform_context *ctx, struct pair_watch *w, u64 now);

#endif
