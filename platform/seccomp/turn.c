/*
 * Turns. ctx->shared->word says whose turn it is and who sleeps.
 *
 * A hand-over between two CPUs that both spin takes a fraction of a microsecond;
 * one that wakes a sleeper takes many. Spinning pays where a CPU is free for it
 * and the other side is likely to answer soon, so each context keeps averages of
 * how long guest and sentry had their turns. Two sides that spin on one CPU wait
 * for each other's time slice: then the sentry's thread moves away first.
 */
#include "base/host_proc.h"
#include "base/host_spawn.h"
#include "base/host_sync.h"
#include "base/log.h"
#include "base/tsc.h"
#include "platform/seccomp/seccomp.h"

#define WAIT_TICK_NS (NSEC_PER_SEC / 2)
/* A thread that ignores interrupts this long is hostile: it has blocked the signal by a forged
 * frame. Sooner when its process has had time to take it. */
#define INTERRUPT_TICKS 20
#define INTERRUPT_BUSY_TICKS 4
#define INTERRUPT_BUSY_NS 200000000ULL
/* Moves to another CPU are at least so many windows apart. */
#define MOVE_WINDOWS 16
/* On a pair a stub spins for this part of a window: its owner may have made way for another one,
 * whose stub then waits for this CPU. */
#define PAIR_STUB_PART 8

static u32 stub_cpu(struct platform_context *ctx)
{
	return *(volatile u32 *)&ctx->shared->cpu & 0xfff;
}

/* A CPU for each side of each context that runs. */
static bool cpus_to_spare(struct platform *p)
{
	return p->spin && atomic_load_explicit(&p->active, memory_order_relaxed) * 2 <= p->cpus;
}

static u64 average(u64 old, u64 sample, u64 cap)
{
	return (old * 3 + MIN(sample, cap)) / 4;
}

/* True when the stub is on another CPU, which is arranged if it is not. */
static bool apart(struct platform_context *ctx, u64 now)
{
	u32 cpu = stub_cpu(ctx);
	u64 rest = ctx->platform->spin_limits.window_tsc * MOVE_WINDOWS;

	if (cpu != (u32)host_current_cpu())
		return true;
	if (now - ctx->pace.moved_tsc < rest)
		return false;
	ctx->pace.moved_tsc = now;
	return host_leave_cpu(cpu) == 0;
}

/* True when the stub has handed over meanwhile. */
static bool spin(struct platform_context *ctx, u64 until)
{
	do {
		for (int i = 0; i < 16; i++) {
			if ((atomic_load_explicit(&ctx->shared->word, memory_order_acquire) &
			     TURN_MASK) != TURN_STUB)
				return true;
			__builtin_ia32_pause();
		}
	} while (tsc_now() < until);
	return false;
}

struct patience {
	int ticks;  /* that an interrupt has been ignored */
	u64 cpu_ns; /* the process's CPU time when it began */
};

/* One tick without news. False: the stub is gone, or as good as. */
static bool still_there(struct platform_context *ctx, struct patience *patience)
{
	struct platform_as *as = ctx->as;
	u64 cpu;

	if (atomic_load(&as->dead) || host_tgkill(as->pid, ctx->tid, 0) == -ESRCH)
		return false;
	if (!atomic_load(&ctx->interrupted)) {
		patience->ticks = 0;
		return true;
	}
	host_tgkill(as->pid, ctx->tid, STUB_INTERRUPT_SIGNAL);
	cpu = as_cpu_ns(as);
	if (patience->ticks++ == 0)
		patience->cpu_ns = cpu;
	if (patience->ticks < INTERRUPT_TICKS &&
	    (patience->ticks < INTERRUPT_BUSY_TICKS || cpu - patience->cpu_ns < INTERRUPT_BUSY_NS))
		return true;
	log_warn("platform: a thread of stub %d ignores interrupts; killed", as->pid);
	return false;
}

/* Sleeps until it is the sentry's turn. False: the stub is gone. */
static bool wait_turn(struct platform_context *ctx)
{
	_Atomic u32 *word = &ctx->shared->word;
	struct patience patience = { 0, 0 };
	u64 now = host_clock_ns(CLOCK_MONOTONIC), tick = now + WAIT_TICK_NS, until;
	struct pair_watch watch = pair_watch_begin(now);
	u32 w;

	for (;;) {
		w = atomic_load_explicit(word, memory_order_acquire);
		if ((w & TURN_MASK) == TURN_SENTRY)
			return true;
		if ((w & TURN_MASK) != TURN_STUB || atomic_load(&ctx->as->dead))
			return false;
		if (w == TURN_STUB &&
		    !atomic_compare_exchange_strong(word, &w, TURN_STUB | TURN_SENTRY_SLEEPS))
			continue;
		/* Other guest threads may wake us as often as they like: ticks go by the clock. */
		if (now >= tick) {
			if (!still_there(ctx, &patience))
				return false;
			tick = now + WAIT_TICK_NS;
		}
		until = ctx->pace.pair ? MIN(tick, pair_watch(ctx, &watch, now)) : tick;
		host_futex_wait(word, TURN_STUB | TURN_SENTRY_SLEEPS, (s64)(until - now), false);
		now = host_clock_ns(CLOCK_MONOTONIC);
	}
}

bool turn_run(struct platform_context *ctx, u32 resume)
{
	struct platform *p = ctx->platform;
	struct turn_pace *pace = &ctx->pace;
	u64 window = p->spin_limits.window_tsc, began = tsc_now();
	bool spinning = false, there;
	u32 old, rounds = 0;

	if (!pace->slept_tsc)
		pace->sentry_tsc = average(pace->sentry_tsc, began - pace->stop_tsc, 4 * window);
	if (pace->rounds)
		pace->spun_tsc +=
			MIN((pace->slept_tsc ? pace->slept_tsc : began) - pace->stop_tsc, window);
	pace->slept_tsc = 0;
	if (pair_update(ctx, began)) {
		spinning = true;
		rounds = p->spin_limits.stub_rounds / PAIR_STUB_PART;
	} else if (cpus_to_spare(p) && apart(ctx, began)) {
		spinning = pace->guest_tsc < window;
		if (pace->sentry_tsc < window)
			rounds = p->spin_limits.stub_rounds;
	}
	pace->rounds = rounds;
	if (*(volatile u32 *)&ctx->shared->spin != rounds)
		ctx->shared->spin = rounds;
	if (ctx->deferred_count && resume != RESUME_SAVE)
		resume |= RESUME_DEFERRED;
	ctx->shared->kind = resume;
	old = atomic_exchange(&ctx->shared->word, TURN_STUB);
	if (old & TURN_STUB_SLEEPS)
		host_futex_wake(&ctx->shared->word, 1, false);
	/* Death between the last stop and now: its word would be lost. */
	if (atomic_load(&ctx->as->dead))
		there = false;
	else if (spinning && spin(ctx, began + 2 * window))
		there = (atomic_load(&ctx->shared->word) & TURN_MASK) == TURN_SENTRY;
	else
		there = wait_turn(ctx);
	pace->stop_tsc = tsc_now();
	if (spinning)
		pace->spun_tsc += MIN(pace->stop_tsc - began, 2 * window);
	pace->guest_tsc = average(pace->guest_tsc, pace->stop_tsc - began, 4 * window);
	return there;
}
