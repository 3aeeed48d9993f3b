#include "sentry/task/oom.h"
#include "base/log.h"
#include "sentry/signal/signal.h"
#include "sentry/task/internal.h"
#include <stdlib.h>
#include <string.h>

#define ADJ_NEVER (-1000)
/* How long a victim may take to go before somebody else is chosen, and between looks at it. */
#define VICTIM_TIMEOUT_NS 5000000000UL
#define LOOK_NS 1000000UL

struct groups {
	struct thread_group **v;
	size_t count, cap;
};

struct victim {
	struct thread_group *tg;
	struct mm *mm;
	s64 points;
	u64 rss;
	bool dying;
};

s64 oom_points(const struct kernel *k, u64 rss, int adj)
{
	if (adj == ADJ_NEVER)
		return INT64_MIN;
	return (s64)(rss / PAGE_SIZE) + (s64)adj * (s64)(k->memory_limit / PAGE_SIZE) / 1000;
}

static void add_group(struct thread_group *tg, void *arg)
{
	struct groups *g = arg;

	if (tg->zombie)
		return;
	if (g->count == g->cap) {
		size_t cap = g->cap ? 2 * g->cap : 64;
		struct thread_group **more = realloc(g->v, cap * sizeof(*more));

		if (!more)
			return;
		g->v = more;
		g->cap = cap;
	}
	g->v[g->count++] = thread_group_get(tg);
}

static struct mm *mm_of(struct thread_group *tg)
{
	struct task *t = thread_group_any_task(tg);
	struct mm *mm = t ? task_get_mm(t) : NULL;

	task_put(t);
	return mm;
}

static bool is_dying(struct thread_group *tg)
{
	MUTEX_GUARD(&tg->sighand->lock);

	return tg->group_exiting;
}

static void victim_put(struct victim *v)
{
	mm_put(v->mm);
	thread_group_put(v->tg);
}

static void consider(struct kernel *k, struct thread_group *tg, struct victim *best)
{
	struct victim v = { .tg = tg, .mm = mm_of(tg), .dying = is_dying(tg) };
	struct mm_stats stats;

	if (!v.mm)
		return;
	mm_get_stats(v.mm, &stats);
	v.rss = stats.rss_anon + stats.rss_file + stats.rss_shmem;
	v.points = oom_points(k, v.rss, atomic_load(&tg->oom_score_adj));
	/* Who goes anyway, and has something, is waited for. */
	if (v.dying)
		v.points = v.rss ? INT64_MAX : INT64_MIN;
	if (v.points == INT64_MIN || (best->tg && v.points <= best->points)) {
		mm_put(v.mm);
		return;
	}
	victim_put(best);
	v.tg = thread_group_get(tg);
	*best = v;
}

static bool choose(struct kernel *k, const struct groups *g, struct victim *ret)
{
	*ret = (struct victim){ 0 };
	for (size_t i = 0; i < g->count; i++)
		consider(k, g->v[i], ret);
	return ret->tg != NULL;
}

static void kill_group(struct task *t, struct thread_group *tg)
{
	siginfo_t si;

	if (tg == t->tg) {
		task_group_exit(t, SIGKILL);
		return;
	}
	siginfo_kernel(&si, SIGKILL, SI_KERNEL);
	signal_send_group(tg, &si);
}

static void kill_victim(struct task *t, const struct groups *g, const struct victim *v, u64 addr)
{
	struct kernel *k = t->kernel;
	char name[TASK_COMM_LEN] = "?";
	struct task *any = thread_group_any_task(v->tg);

	if (any) {
		mutex_lock(&any->lock);
		memcpy(name, any->comm, sizeof(name));
		mutex_unlock(&any->lock);
		task_put(any);
	}
	log_warn("out of memory: process %d (%s) killed, which has %llu MiB (limit %llu MiB; asked "
		 "for by process %d (%s), address %#llx)",
		 v->tg->tgid, name, (unsigned long long)(v->rss >> 20),
		 (unsigned long long)(k->memory_limit >> 20), t->tg->tgid, t->comm,
		 (unsigned long long)addr);
	atomic_fetch_add(&k->oom_kills, 1);
	for (size_t i = 0; i < g->count; i++) {
		struct mm *mm = mm_of(g->v[i]);

		if (mm == v->mm)
			kill_group(t, g->v[i]);
		mm_put(mm);
	}
}

static void look_again(struct task *t)
{
	task_block_prepare(t);
	task_sleep(t, clock_monotonic_ns() + LOOK_NS);
}

void out_of_memory(struct task *t, u64 addr)
{
	struct kernel *k = t->kernel;
	u64 deadline = clock_monotonic_ns() + VICTIM_TIMEOUT_NS;
	struct groups g = { 0 };
	struct victim v;

	/* One at a time: what another one frees may do. */
	if (atomic_exchange(&k->oom_busy, true)) {
		look_again(t);
		return;
	}
	thread_group_for_each(k, add_group, &g);
	if (!choose(k, &g, &v)) {
		log_warn("out of memory: nobody may be killed but process %d (%s), which asks",
			 t->tg->tgid, t->comm);
		task_group_exit(t, SIGKILL);
	} else if (!v.dying) {
		kill_victim(t, &g, &v, addr);
	}
	while (v.tg && !t->exiting && !atomic_load(&t->killed) && !mm_emptied(v.mm) &&
	       clock_monotonic_ns() < deadline)
		look_again(t);
	/* If it does not go, the next choice must be another one. */
	victim_put(&v);
	for (size_t i = 0; i < g.count; i++)
		thread_group_put(g.v[i]);
	free(g.v);
	atomic_store(&k->oom_busy, false);
}
