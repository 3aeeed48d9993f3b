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
/* Which CPU one is on is not free to ask: once known, it holds for so many turns without sleep. */
#define APART_TURNS 32
/*
 * A turn that takes long may have been but a slow wake-up, and will be again as long as both sides
 * sleep. So once in so many turns a few in a row are spun for, enough for the averages to fall.
 */
#define PROBE_EVERY 64
#define PROBE_TURNS 6
/* On a pair a stub spins for this part of a window: its owner may have made way for another one,
 * whose stub then waits for this CPU. */
#define PAIR_STUB_PART 8
/* And alone on one, at most for so many windows: a write of 1 MiB takes 200 us. */
#define STUB_WINDOWS 8

/*
 * Spinning as long as sleeping would take costs at most twice the best choice. The call that wakes
 * a sleeper is a third or a quarter of that: 15 us in a guest of two hypervisors, 2 on bare metal.
 */
#define WINDOW_WAKES 4
#define WINDOW_MIN_NS 25000
#define WINDOW_MAX_NS 100000

void spin_limits_adapt(struct spin_limits *limits, u64 wake_tsc)
{
	u64 least = tsc_from_ns(WINDOW_MIN_NS), most = tsc_from_ns(WINDOW_MAX_NS), window;
	u64 old = atomic_load_explicit(&limits->wake_tsc, memory_order_relaxed);

	/* The host may have taken the CPU away in between. */
	wake_tsc = (old * 7 + MIN(wake_tsc, most)) / 8;
	window = MAX(least, MIN(most, wake_tsc * WINDOW_WAKES));
	atomic_store_explicit(&limits->wake_tsc, wake_tsc, memory_order_relaxed);
	atomic_store_explicit(&limits->window_tsc, window, memory_order_relaxed);
	atomic_store_explicit(&limits->stub_rounds, (u32)(window / limits->pause_tsc),
			      memory_order_relaxed);
}

static u32 stub_cpu(struct platform_context *ctx)
{
	return *(volatile u32 *)&ctx->shared->cpu & 0xfff;
}

static void note_guest_turn(struct platform_context *ctx, u64 ticks)
{
	u64 window = ctx->platform->spin_limits.window_tsc;

	ctx->pace.guest_tsc = (ctx->pace.guest_tsc * 3 + MIN(ticks, 4 * window)) / 4;
}

/* True when the stub is on another CPU, which is arranged if it is not. */
static bool apart(struct platform_context *ctx)
{
	u32 cpu;
	u64 now;

	if (ctx->pace.apart_turns) {
		ctx->pace.apart_turns--;
		return true;
	}
	cpu = stub_cpu(ctx);
	if (cpu != (u32)host_current_cpu()) {
		ctx->pace.apart_turns = APART_TURNS;
		return true;
	}
	now = tsc_now();
	if (now - ctx->pace.moved_tsc < ctx->platform->spin_limits.window_tsc * MOVE_WINDOWS)
		return false;
	ctx->pace.moved_tsc = now;
	return host_leave_cpu(cpu) == 0;
}

/* Spins without a look at the clock for so many rounds, which is most of the time enough. */
#define BLIND_ROUNDS 32

static u32 turn(struct platform_context *ctx)
{
	return atomic_load_explicit(&ctx->shared->word, memory_order_acquire) & TURN_MASK;
}

static bool handed_over(struct platform_context *ctx)
{
	return turn(ctx) != TURN_STUB;
}

/* The mapper may need this CPU, unless it is beside the stub; that is not back before it is done.
 * True: it is. */
static bool spin_for_mapper(struct platform_context *ctx)
{
	bool beside =
		atomic_load_explicit(&ctx->shared->word, memory_order_relaxed) & TURN_WAKE_MAPPER;
	u64 began = tsc_now();

	while (turn(ctx) == TURN_MAPPER) {
		if (tsc_now() - began > 2 * ctx->platform->spin_limits.window_tsc)
			return false;
		if (beside)
			__builtin_ia32_pause();
		else
			host_yield();
	}
	return true;
}

/* True when the stub has handed over meanwhile; stops the clock. */
static bool spin(struct platform_context *ctx)
{
	const struct spin_limits *limits = &ctx->platform->spin_limits;
	u64 began, ran;

	for (u32 rounds = 0; rounds < BLIND_ROUNDS; rounds++) {
		if (handed_over(ctx)) {
			ran = (u64)rounds * limits->pause_tsc;
			clock_stop_after(&ctx->clock, ran);
			note_guest_turn(ctx, ran);
			ctx->pace.spun_tsc += ran;
			return true;
		}
		__builtin_ia32_pause();
	}
	began = tsc_now();
	do {
		for (int i = 0; i < 8; i++) {
			if (handed_over(ctx)) {
				ran = clock_stop(&ctx->clock);
				note_guest_turn(ctx, ran);
				ctx->pace.spun_tsc += ran;
				return true;
			}
			__builtin_ia32_pause();
		}
	} while (tsc_now() - began < 2 * limits->window_tsc);
	ctx->pace.spun_tsc += 2 * limits->window_tsc;
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
	u64 cpu, busy_ns;

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
	/* The time of its other threads counts, too. */
	busy_ns = INTERRUPT_BUSY_NS * MAX(atomic_load(&as->context_count), 1U);
	if (patience->ticks < INTERRUPT_TICKS &&
	    (patience->ticks < INTERRUPT_BUSY_TICKS || cpu - patience->cpu_ns < busy_ns))
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
		if (((w & TURN_MASK) != TURN_STUB && (w & TURN_MASK) != TURN_MAPPER) ||
		    atomic_load(&ctx->as->dead))
			return false;
		if (!(w & TURN_SENTRY_SLEEPS) &&
		    !atomic_compare_exchange_strong(word, &w, w | TURN_SENTRY_SLEEPS))
			continue;
		/* Other guest threads may wake us as often as they like: ticks go by the clock. */
		if (now >= tick) {
			if (!still_there(ctx, &patience))
				return false;
			tick = now + WAIT_TICK_NS;
		}
		until = ctx->pace.pair ? MIN(tick, pair_watch(ctx, &watch, now)) : tick;
		host_futex_wait_bits(word, w | TURN_SENTRY_SLEEPS, until, TURN_WAKES_SENTRY);
		now = host_clock_ns(CLOCK_MONOTONIC);
	}
}

/*
 * How long the stub may spin: on a pair that others use, too, only for a moment; on one of its own
 * twice as long as calls usually take, for large reads and writes take longer than a wake-up.
 */
static u32 stub_rounds(const struct platform_context *ctx, bool crowded)
{
	const struct spin_limits *limits = &ctx->platform->spin_limits;
	u32 rounds = limits->stub_rounds;

	if (crowded)
		return rounds / PAIR_STUB_PART;
	/* What takes longer than that is not waited for, but may be followed by something short. */
	if (!ctx->pace.pair || 2 * ctx->clock.service < limits->window_tsc ||
	    ctx->clock.service > STUB_WINDOWS * limits->window_tsc)
		return rounds;
	return (u32)MIN(2 * ctx->clock.service / limits->pause_tsc, STUB_WINDOWS * (u64)rounds);
}

/* Who spins in this turn; *ret_rounds: how long the stub may. */
static bool decide(struct platform_context *ctx, u32 *ret_rounds)
{
	struct platform *p = ctx->platform;
	struct turn_pace *pace = &ctx->pace;
	u64 window = p->spin_limits.window_tsc;
	bool spinning = false, crowded;

	crowded = pace->pair && pair_shared(ctx);
	if (pace->stub_spins)
		pace->stub_spun_tsc += MIN(ctx->clock.service, window);
	pace->stub_spins = false;
	if (pair_update(ctx) || pair_join_alone(ctx, window * MOVE_WINDOWS)) {
		spinning = pace->stub_spins = true;
	} else if (!platform_cpus_to_spare(p)) {
		pair_stay_beside(ctx, stub_cpu(ctx));
	} else {
		pair_move_away(ctx);
		if (apart(ctx)) {
			bool probe = pace->turns++ % PROBE_EVERY < PROBE_TURNS;

			spinning = probe || pace->guest_tsc < window;
			pace->stub_spins = probe || ctx->clock.service < window;
		}
	}
	*ret_rounds = !pace->stub_spins ? 0 : stub_rounds(ctx, crowded);
	return spinning;
}

/* Wakes the stub's thread; if the caller looks after it for a while, by way of a stub that spins.
 */
static void wake_stub(struct platform_context *ctx, bool spinning)
{
	struct platform *p = ctx->platform;
	u64 began;

	ctx->pace.sleeps++;
	atomic_fetch_add(control_bell(&p->control, ctx->slot), 1);
	if (spinning && pair_ring(p, ctx->pace.pair, ctx->slot)) {
		ctx->pace.rung = true;
		return;
	}
	began = tsc_now();
	ring_bell(p, ctx->slot);
	spin_limits_adapt(&p->spin_limits, tsc_now() - began);
}

/* Gives the turn to the stub's thread. True: by way of the mapper. */
static bool give_turn(struct platform_context *ctx, u32 resume, bool spinning)
{
	u32 old;

	if (atomic_load_explicit(&ctx->as->late_count, memory_order_relaxed) &&
	    resume != RESUME_SAVE && late_begin(ctx))
		return true;
	old = atomic_exchange(&ctx->shared->word, TURN_STUB);
	ring_if_asked(ctx->platform, old);
	if (old & TURN_STUB_SLEEPS)
		wake_stub(ctx, spinning);
	return false;
}

bool turn_run(struct platform_context *ctx, u32 resume)
{
	bool there, spinning, mapping;
	u32 rounds;

	spinning = decide(ctx, &rounds);
	if (*(volatile u32 *)&ctx->shared->spin != rounds)
		ctx->shared->spin = rounds;
	if (ctx->deferred_count && resume != RESUME_SAVE)
		resume |= RESUME_DEFERRED;
	ctx->shared->kind = resume;
	ctx->pace.rung = false;
	mapping = give_turn(ctx, resume, spinning);
	/* Who interrupts sets `interrupted` and then looks at in_guest; we did it the other way
	 * round, and the exchange is a barrier. */
	if (resume != RESUME_SAVE && atomic_load_explicit(&ctx->interrupted, memory_order_relaxed))
		host_tgkill(ctx->as->pid, ctx->tid, STUB_INTERRUPT_SIGNAL);
	/* Death between the last stop and now: its word would be lost. */
	if (atomic_load(&ctx->as->dead))
		return false;
	if (spinning && mapping)
		spinning = spin_for_mapper(ctx);
	if (spinning && spin(ctx)) {
		if (ctx->pace.stub_spins)
			pair_note_spinner(ctx);
		return (atomic_load(&ctx->shared->word) & TURN_MASK) == TURN_SENTRY;
	}
	/* Whoever was to wake the stub may have better things to do. */
	if (ctx->pace.rung)
		ring_bell(ctx->platform, ctx->slot);
	ctx->pace.apart_turns = 0;
	ctx->pace.sleeps++;
	there = wait_turn(ctx);
	note_guest_turn(ctx, clock_stop(&ctx->clock));
	return there;
}
