/*
 * Pairs of CPUs, one for stubs and one for the sentry's threads that serve them.
 *
 * A guest that does little but call the sentry costs two switches a call when its
 * sides take turns on one CPU, and two wake-ups through an idle CPU when they
 * sleep on two. So contexts that call often are put on a pair: their stubs all on
 * one CPU, their owners all on the other, where both sides may spin however many
 * contexts share the pair. The host's scheduler then runs a stub and its owner side
 * by side, until one of them blocks or has had its slice. Who wakes another
 * context's owner is on its CPU already: a switch, and no interrupt.
 *
 * It does not pay for guests that compute, two CPUs then do the work of one, unless a context is
 * alone: with its sides apart it would be moved apart again and again by a scheduler that likes to
 * pack what wakes each other. What decides is CPU time a stop, of both sides, which queueing does
 * not distort. It is looked at once in a while; a context that computes for long is freed at once.
 *
 * Away from a pair most of it may be switches and futex calls, which a pair would
 * spare; they do not count, as far as they can be told.
 *
 * Nor does it pay beside guests that compute and leave no two CPUs to it. Where there is no CPU to
 * spare, the three threads of a context (the stub's, its owner, the mapper) take turns on one CPU,
 * wherever the scheduler has the stub: to wake one is a switch then. Left to themselves, they are
 * woken on the other CPU, which is busy, while theirs goes idle.
 */
#include "base/host_proc.h"
#include "base/host_spawn.h"
#include "base/host_thread.h"
#include "base/host_sync.h"
#include "base/tsc.h"
#include "platform/seccomp/seccomp.h"

#include <limits.h>

#define SAMPLE_STOPS 64
#define SAMPLE_NS 1000000
/* Of CPU time a stop, without spinning and sleeping. */
#define JOIN_NS 8000
#define LEAVE_NS 16000
/* The same for a context that seldom blocks: nobody waits for it, so only its own calls gain. */
#define JOIN_BUSY_NS 4000
#define LEAVE_BUSY_NS 7500
#define SELDOM 8 /* not once in so many stops */
/* Of the guest's alone: it needs a CPU of its own, until it computes less than JOIN_NS. */
#define COMPUTES_NS 24000
/* So many samples in a row have to find the CPUs of a pair needed by others. */
#define CROWDED_SAMPLES 4
/* An owner goes to the CPU where its stub was seen so many times in a row. */
#define STAYS_TURNS 4
/* What it takes to send one side to sleep and to wake it: 3 to 8 us, as the host's caches have it.
 */
#define SLEEP_NS 6000
/* How long a stub on a pair may compute before it is looked at. */
#define WATCH_NS 2000000
/* And how long one that is alone is left unwatched: another one may begin on the same pair. */
#define WATCH_LONE_NS 16000000

void pairs_init(struct platform *p)
{
	struct cpu_pairs *pairs = &p->pairs;
	struct host_cpus all;
	u32 first = 0;
	bool half = false;

	host_cpus(&all);
	for (u32 cpu = 0; cpu < HOST_CPUS_MAX && pairs->count < CPU_PAIRS_MAX; cpu++) {
		if (!(all.bits[cpu / 64] >> (cpu % 64) & 1))
			continue;
		if (half) {
			pairs->pair[pairs->count].stubs = first;
			pairs->pair[pairs->count++].owners = cpu;
		}
		first = cpu;
		half = !half;
	}
}

/* The host tells no thread's CPU time to another process: all threads of a stub count as one. */
static struct pace_sample sample_now(const struct platform_context *ctx)
{
	const struct platform_as *as = ctx->as;

	return (struct pace_sample){ host_clock_ns(CLOCK_THREAD_CPUTIME_ID), as_cpu_ns(as),
				     atomic_load(&as->stops), atomic_load(&as->spun_tsc) };
}

/* For each stop: of `worked` ns without those that were spun. */
static u64 per_stop(u64 worked, u64 spun_tsc, u64 stops)
{
	return (worked - MIN(worked, tsc_to_ns(spun_tsc))) / MAX(stops, 1UL);
}

/* The one with the fewest contexts; of several the caller's own. */
static u32 choose(const struct cpu_pairs *pairs)
{
	u32 best = 0, cpu = (u32)host_current_cpu();
	u32 fewest = UINT_MAX;

	for (u32 i = 0; i < pairs->count; i++) {
		u32 members = atomic_load(&pairs->pair[i].members);
		bool own = pairs->pair[i].stubs == cpu || pairs->pair[i].owners == cpu;

		if (members < fewest || (members == fewest && own)) {
			best = i;
			fewest = members;
		}
	}
	return best;
}

/*
 * The mapper has the CPU of its stub's threads: one that needs a mapping can wake it by a switch,
 * and no other CPU has page tables to be told of. It is the stub's first thread.
 */
static void bind_mapper(struct platform_as *as, u32 pair, u32 cpu)
{
	MUTEX_GUARD(&as->lock);
	if (as->mapper_bound == pair && as->mapper_cpu == cpu + 1)
		return;
	as->mapper_bound = pair;
	as->mapper_cpu = cpu + 1;
	if (host_bind_cpu(as->pid, cpu) < 0)
		as->mapper_bound = as->mapper_cpu = 0;
}

/* If it is bound for a pair, or for one context's sake. */
static void unbind_mapper(struct platform_as *as, bool pair)
{
	MUTEX_GUARD(&as->lock);
	if (!as->mapper_cpu || pair != (as->mapper_bound != 0))
		return;
	host_unbind_cpu(as->pid);
	as->mapper_bound = as->mapper_cpu = 0;
}

static void join(struct platform_context *ctx)
{
	struct cpu_pairs *pairs = &ctx->platform->pairs;
	u32 i = choose(pairs);

	if ((ctx->bound != i + 1 && host_bind_cpu(ctx->tid, pairs->pair[i].stubs) < 0) ||
	    host_bind_self(pairs->pair[i].owners) < 0) {
		host_unbind_cpu(ctx->tid);
		ctx->bound = 0;
		return;
	}
	atomic_fetch_add(&pairs->pair[i].members, 1);
	ctx->bound = ctx->pace.pair = i + 1;
	ctx->pace.beside = 0;
	bind_mapper(ctx->as, i + 1, pairs->pair[i].stubs);
}

static void leave_members(struct platform_context *ctx)
{
	if (ctx->pace.pair)
		atomic_fetch_sub(&ctx->platform->pairs.pair[ctx->pace.pair - 1].members, 1);
	ctx->pace.pair = 0;
}

void pair_end(struct platform_context *ctx)
{
	leave_members(ctx);
	/* The next context looks after what a pair has left bound, but not after that. */
	if (ctx->pace.beside && !atomic_load(&ctx->as->dead))
		unbind_mapper(ctx->as, false);
	ctx->pace.beside = 0;
}

/* Or does not begin on one. */
static void pair_leave(struct platform_context *ctx)
{
	bool joined = ctx->pace.pair;

	leave_members(ctx);
	if (ctx->bound)
		host_unbind_cpu(ctx->tid);
	ctx->bound = 0;
	/* Others of its process may be on the pair still: they do without the mapper beside them.
	 */
	if (joined || (!ctx->pace.sample_tsc && atomic_load(&ctx->as->context_count) == 1))
		unbind_mapper(ctx->as, true);
	host_unbind_self();
}

/* Of a context that is not idle. */
static void set_computes(struct platform_context *ctx, bool computes)
{
	if (ctx->pace.computes == computes)
		return;
	ctx->pace.computes = computes;
	if (!ctx->idle)
		atomic_fetch_add_explicit(&ctx->platform->computing, computes ? 1 : -1,
					  memory_order_relaxed);
}

/* Others leave no two CPUs for the sides of ctx. */
static bool others_compute(const struct platform_context *ctx)
{
	const struct platform *p = ctx->platform;
	int others = atomic_load_explicit(&p->computing, memory_order_relaxed) -
		     (ctx->pace.computes && !ctx->idle);

	return others > 0 && others + 2 > p->cpus;
}

/*
 * Where there is but one pair, a context begins on it: it costs next to nothing while its thread
 * sleeps, and a scheduler that puts all of a short-lived process on one CPU would have its sides
 * moved apart again and again.
 */
static bool begin_joined(const struct platform_context *ctx)
{
	return ctx->platform->pairs.count == 1;
}

/* No other context runs: both CPUs of the only pair are for this one, whatever it does. */
static bool alone(const struct platform_context *ctx)
{
	struct platform *p = ctx->platform;

	return p->pairs.count == 1 && atomic_load_explicit(&p->active, memory_order_relaxed) <= 1;
}

static void sample(struct platform_context *ctx, u64 now)
{
	bool lone = alone(ctx), crowded;
	struct turn_pace *pace = &ctx->pace;
	struct pace_sample s = sample_now(ctx), *last = &pace->sample;
	u64 guest = per_stop(s.as_ns - last->as_ns, s.as_spun_tsc - last->as_spun_tsc,
			     s.as_stops - last->as_stops);
	u64 each = guest + per_stop(s.own_ns - last->own_ns, pace->spun_tsc, pace->stops);
	u64 asleep = SLEEP_NS * (u64)pace->sleeps / MAX(pace->stops, 1u);
	u64 join_ns = JOIN_NS, leave_ns = LEAVE_NS;

	each -= MIN(each, asleep);
	guest -= MIN(guest, asleep);
	if (pace->blocked * SELDOM < pace->stops) {
		join_ns = JOIN_BUSY_NS;
		leave_ns = LEAVE_BUSY_NS;
	}
	if (pace->sample_tsc)
		set_computes(ctx, guest > (pace->computes ? JOIN_NS : COMPUTES_NS));
	crowded = !lone && others_compute(ctx);
	pace->crowded = crowded ? pace->crowded + 1 : 0;
	if (pace->pair && !lone && (each > leave_ns || pace->crowded >= CROWDED_SAMPLES))
		pair_leave(ctx);
	else if (!pace->pair && !crowded &&
		 (pace->sample_tsc ? each < join_ns || lone : begin_joined(ctx)))
		join(ctx);
	else if (!pace->pair && !pace->beside)
		pair_leave(ctx); /* where former contexts have left its threads */
	pace->stops = pace->sleeps = pace->blocked = 0;
	pace->spun_tsc = 0;
	pace->sample_tsc = now;
	pace->sample = s;
}

/* Has enough happened for a sample? The clock is asked once in a while. */
static bool sample_due(struct platform_context *ctx, u64 *ret_now)
{
	struct turn_pace *pace = &ctx->pace;

	if (pace->sample_tsc && ++pace->recent < SAMPLE_STOPS)
		return false;
	*ret_now = tsc_now();
	atomic_fetch_add(&ctx->as->stops, pace->recent);
	atomic_fetch_add(&ctx->as->spun_tsc, pace->stub_spun_tsc);
	pace->stops += pace->recent;
	pace->recent = 0;
	pace->stub_spun_tsc = 0;
	return !pace->sample_tsc || *ret_now - pace->sample_tsc > tsc_from_ns(SAMPLE_NS);
}

bool pair_update(struct platform_context *ctx)
{
	u64 now;

	if (!ctx->platform->pairs.count)
		return false;
	if (sample_due(ctx, &now))
		sample(ctx, now);
	return ctx->pace.pair;
}

bool pair_join_alone(struct platform_context *ctx, u64 gap_tsc)
{
	u64 now;

	/* The clock comes last: it costs as much as a turn. */
	if (!alone(ctx))
		return false;
	now = tsc_now();
	if (now - ctx->pace.moved_tsc < gap_tsc)
		return false;
	join(ctx);
	if (ctx->pace.pair)
		ctx->pace.moved_tsc = now;
	return ctx->pace.pair;
}

/* ---- on one CPU ---- */

void pair_stay_beside(struct platform_context *ctx, u32 cpu)
{
	struct turn_pace *pace = &ctx->pace;

	if (cpu != pace->seen_cpu) {
		pace->seen_cpu = cpu;
		pace->seen = 0;
	}
	/* The stub says where it is; one that the scheduler moves about is not followed. */
	if (++pace->seen < STAYS_TURNS || host_bind_self(cpu) < 0 || pace->beside == cpu + 1)
		return;
	pace->beside = cpu + 1;
	if (atomic_load(&ctx->as->context_count) == 1)
		bind_mapper(ctx->as, 0, cpu);
	else
		unbind_mapper(ctx->as, false);
}

void pair_move_away(struct platform_context *ctx)
{
	host_unbind_self();
	if (!ctx->pace.beside)
		return;
	ctx->pace.beside = 0;
	unbind_mapper(ctx->as, false);
}

bool pair_shared(const struct platform_context *ctx)
{
	return !alone(ctx) &&
	       atomic_load_explicit(&ctx->platform->pairs.pair[ctx->pace.pair - 1].members,
				    memory_order_relaxed) > 1;
}

struct pair_watch pair_watch_begin(u64 now)
{
	return (struct pair_watch){ WATCH_NS, now + WATCH_NS, 0 };
}

u64 pair_watch(struct platform_context *ctx, struct pair_watch *w, u64 now)
{
	struct turn_pace *pace = &ctx->pace;
	bool lone = alone(ctx);
	u64 cpu, ran;

	if (now < w->next_ns)
		return w->next_ns;
	cpu = as_cpu_ns(ctx->as);
	ran = cpu - w->cpu_ns;
	/* One that is alone has its CPU to itself, unless somebody else uses it, too. Others that
	 * compute may have half of it each, or less. */
	if (w->cpu_ns && (lone ? ran > w->interval_ns / 16 && ran < w->interval_ns * 7 / 8
			       : ran > w->interval_ns / 4)) {
		set_computes(ctx, true);
		pair_leave(ctx);
	} else if (!lone && others_compute(ctx) && ++pace->crowded >= CROWDED_SAMPLES) {
		/* Turns that take a time slice each: it would be a second until the samples say so.
		 */
		pair_leave(ctx);
	}
	if (w->cpu_ns && (!lone || w->interval_ns < WATCH_LONE_NS))
		w->interval_ns *= 2;
	w->cpu_ns = cpu;
	w->next_ns = now + w->interval_ns;
	return w->next_ns;
}

/* ---- waking without another CPU ---- */

/*
 * To wake a stub's thread from the owners' CPU takes an interrupt, and more if its CPU has gone
 * idle meanwhile. Mostly it has not: the stub whose call has led to the wake spins there for its
 * answer. It wakes the other one itself, and lets it run.
 */
void pair_note_spinner(struct platform_context *ctx)
{
	_Atomic u32 *spinner;

	if (!ctx->pace.pair)
		return;
	spinner = &ctx->platform->pairs.pair[ctx->pace.pair - 1].spinner;
	if (atomic_load_explicit(spinner, memory_order_relaxed) != ctx->slot)
		atomic_store_explicit(spinner, ctx->slot, memory_order_relaxed);
}

bool pair_ring(struct platform *p, u32 pair, u32 slot)
{
	u32 spinner, word = TURN_SENTRY;

	if (!pair)
		return false;
	spinner = atomic_load_explicit(&p->pairs.pair[pair - 1].spinner, memory_order_relaxed);
	/* Whoever has that slot by now: if its stub spins, it will do. */
	return spinner && spinner != slot &&
	       atomic_compare_exchange_strong(
		       &((struct stub_ctx *)control_slot(&p->control, spinner))->word, &word,
		       TURN_SENTRY | TURN_RING | slot << TURN_BELL_SHIFT);
}

void ring_bell(struct platform *p, u32 slot)
{
	host_futex_wake(control_bell(&p->control, slot), INT_MAX, false);
}

void ring_if_asked(struct platform *p, u32 word)
{
	if ((word & (TURN_MASK | TURN_RING)) == (TURN_SENTRY | TURN_RING))
		ring_bell(p, word >> TURN_BELL_SHIFT);
}
