/* Interval timers, the watch over CPU time, and the life of group_timers. */
#include "sentry/time/timers_impl.h"

#include <stdlib.h>
#include <sys/time.h>

/* Between two SIGALRMs, whatever the interval. */
#define REAL_MIN_GAP_NS 50000UL
#define CPU_TICK_MIN_NS 1000000UL
#define CPU_TICK_MAX_NS (10 * NS_PER_SEC)

static void send_kernel_signal(struct thread_group *tg, int sig)
{
	siginfo_t si;

	siginfo_kernel(&si, sig, SI_KERNEL);
	signal_send_group(tg, &si);
}

static void real_fires(struct ktimer *kt, void *arg)
{
	struct group_timers *gt = arg;
	u64 now = clock_monotonic_ns();
	bool due;

	mutex_lock(&gt->lock);
	due = gt->real_deadline_ns && gt->real_deadline_ns <= now;
	if (due)
		timer_advance(now, &gt->real_deadline_ns, gt->real_interval_ns);
	if (gt->real_deadline_ns)
		ktimer_set(gt->tg->kernel->timers, &gt->real,
			   MAX(gt->real_deadline_ns, due ? now + REAL_MIN_GAP_NS : 0));
	mutex_unlock(&gt->lock);
	if (due)
		send_kernel_signal(gt->tg, SIGALRM);
}

/* ---- CPU time ---- */

/* gt->lock held. True when the timer expired; *nearest: shrinks to the time it still needs. */
static bool check_cpu_itimer(struct cpu_itimer *it, u64 now, u64 *nearest)
{
	bool due = it->expires_ns && it->expires_ns <= now;

	if (due)
		timer_advance(now, &it->expires_ns, it->interval_ns);
	if (it->expires_ns)
		*nearest = MIN(*nearest, it->expires_ns - now);
	return due;
}

/* RLIMIT_CPU: SIGXCPU at the soft limit and each second after it, SIGKILL at the hard one. gt->lock
 * held. */
static int check_cpu_limit(struct group_timers *gt, const struct rlimit64 *limit, u64 now,
			   u64 *nearest)
{
	if (limit->rlim_max != RLIM64_INFINITY && now / NS_PER_SEC >= limit->rlim_max)
		return SIGKILL;
	if (limit->rlim_cur == RLIM64_INFINITY) {
		gt->xcpu_next_ns = 0;
		return 0;
	}
	if (gt->xcpu_next_ns == 0 || gt->xcpu_next_ns / NS_PER_SEC < limit->rlim_cur)
		gt->xcpu_next_ns = MIN(limit->rlim_cur, TIME_MAX_NS / NS_PER_SEC) * NS_PER_SEC;
	if (now < gt->xcpu_next_ns) {
		*nearest = MIN(*nearest, gt->xcpu_next_ns - now);
		return 0;
	}
	gt->xcpu_next_ns = now + NS_PER_SEC;
	*nearest = MIN(*nearest, NS_PER_SEC);
	return SIGXCPU;
}

static void cpu_tick(struct ktimer *kt, void *arg)
{
	struct group_timers *gt = arg;
	struct thread_group *tg = gt->tg;
	u64 utime, stime, nearest, wait;
	bool virt_due, prof_due;
	struct rlimit64 limit;
	int limit_sig;

	thread_group_cpu_times(tg, &utime, &stime);
	mutex_lock(&tg->limit_lock);
	limit = tg->limits[RLIMIT_CPU];
	mutex_unlock(&tg->limit_lock);
	nearest = posix_timers_check_cpu(gt);
	mutex_lock(&gt->lock);
	virt_due = check_cpu_itimer(&gt->virt, utime, &nearest);
	prof_due = check_cpu_itimer(&gt->prof, utime + stime, &nearest);
	limit_sig = check_cpu_limit(gt, &limit, utime + stime, &nearest);
	if (nearest != UINT64_MAX && limit_sig != SIGKILL) {
		/* So many cpus can use it up at once. */
		wait = nearest / (u64)MAX(tg->kernel->cpu_count, 1);
		wait = MIN(MAX(wait, CPU_TICK_MIN_NS), CPU_TICK_MAX_NS);
		ktimer_set(tg->kernel->timers, &gt->cpu_tick, clock_monotonic_ns() + wait);
	}
	mutex_unlock(&gt->lock);
	if (virt_due)
		send_kernel_signal(tg, SIGVTALRM);
	if (prof_due)
		send_kernel_signal(tg, SIGPROF);
	if (limit_sig)
		send_kernel_signal(tg, limit_sig);
}

void cpu_tick_start(struct group_timers *gt)
{
	ktimer_set(gt->tg->kernel->timers, &gt->cpu_tick, 0);
}

void cpu_limit_changed(struct thread_group *tg)
{
	struct group_timers *gt;
	struct rlimit64 limit;

	mutex_lock(&tg->limit_lock);
	limit = tg->limits[RLIMIT_CPU];
	mutex_unlock(&tg->limit_lock);
	if (limit.rlim_cur == RLIM64_INFINITY && limit.rlim_max == RLIM64_INFINITY)
		return;
	gt = group_timers_get(tg);
	if (gt)
		cpu_tick_start(gt);
}

/* ---- system calls ---- */

static s64 change_real(struct group_timers *gt, const struct itimer_ns *new, struct itimer_ns *old)
{
	u64 now = clock_monotonic_ns();

	MUTEX_GUARD(&gt->lock);
	old->interval = gt->real_interval_ns;
	old->value = 0;
	if (gt->real_deadline_ns)
		old->value = gt->real_deadline_ns > now ? gt->real_deadline_ns - now : 1;
	if (new) {
		gt->real_interval_ns = new->interval;
		gt->real_deadline_ns = new->value ? MIN(now + new->value, TIME_MAX_NS) : 0;
		ktimer_set(gt->tg->kernel->timers, &gt->real,
			   gt->real_deadline_ns ? gt->real_deadline_ns : UINT64_MAX);
	}
	return 0;
}

s64 itimer_change(struct task *t, int which, const struct itimer_ns *new_or_null,
		  struct itimer_ns *ret_old)
{
	struct group_timers *gt = group_timers_get(t->tg);
	struct cpu_itimer *it;
	u64 utime, stime, now;

	if (gt == NULL)
		return -ENOMEM;
	if (which == ITIMER_REAL)
		return change_real(gt, new_or_null, ret_old);
	if (which != ITIMER_VIRTUAL && which != ITIMER_PROF)
		return -EINVAL;
	thread_group_cpu_times(t->tg, &utime, &stime);
	now = which == ITIMER_VIRTUAL ? utime : utime + stime;
	MUTEX_GUARD(&gt->lock);
	it = which == ITIMER_VIRTUAL ? &gt->virt : &gt->prof;
	ret_old->interval = it->interval_ns;
	ret_old->value = it->expires_ns == 0 ? 0 : it->expires_ns > now ? it->expires_ns - now : 1;
	if (new_or_null) {
		it->interval_ns = new_or_null->interval;
		it->expires_ns =
			new_or_null->value ? MIN(now + new_or_null->value, TIME_MAX_NS) : 0;
		if (it->expires_ns)
			cpu_tick_start(gt);
	}
	return 0;
}

/* ---- life ---- */

struct group_timers *group_timers_get(struct thread_group *tg)
{
	struct group_timers *gt = __atomic_load_n(&tg->timers, __ATOMIC_ACQUIRE), *none = NULL;

	if (gt)
		return gt;
	gt = calloc(1, sizeof(*gt));
	if (gt == NULL)
		return NULL;
	gt->tg = tg;
	mutex_init(&gt->lock, RANK_TIMER, "group timers");
	list_init(&gt->posix);
	ktimer_init(&gt->real, real_fires, gt);
	ktimer_init(&gt->cpu_tick, cpu_tick, gt);
	/* Threads of the group may race to make it. */
	if (__atomic_compare_exchange_n(&tg->timers, &none, gt, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return gt;
	mutex_destroy(&gt->lock);
	free(gt);
	return none;
}

void group_timers_exec(struct thread_group *tg)
{
	if (tg->timers)
		posix_timers_destroy(tg->timers);
	/* A limit that was inherited is watched from here on. */
	cpu_limit_changed(tg);
}

void group_timers_exit(struct thread_group *tg)
{
	struct group_timers *gt = tg->timers;

	if (gt == NULL)
		return;
	posix_timers_destroy(gt);
	ktimer_cancel(tg->kernel->timers, &gt->real);
	ktimer_cancel(tg->kernel->timers, &gt->cpu_tick);
	__atomic_store_n(&tg->timers, NULL, __ATOMIC_RELEASE);
	mutex_destroy(&gt->lock);
	free(gt);
}
