/* Clocks of the sentry and the CPU time of tasks and groups. */
#include "base/host_sync.h"
#include "sentry/task/internal.h"

u64 clock_monotonic_ns(void)
{
	return host_clock_ns(CLOCK_MONOTONIC);
}

u64 clock_realtime_ns(void)
{
	return host_clock_ns(CLOCK_REALTIME);
}

/* tasklist or own thread. */
static void times_of(struct task *t, u64 *ret_utime, u64 *ret_stime)
{
	*ret_utime = t->final_utime_ns;
	mutex_lock(&t->lock);
	if (t->ctx)
		/* Short turns are counted later: who asks has run all the same. */
		*ret_utime = MAX(t->prior_utime_ns + platform_context_cpu_ns(t->ctx), 1UL);
	mutex_unlock(&t->lock);
	*ret_stime = t->final_stime_ns ? t->final_stime_ns : tsc_to_ns(atomic_load(&t->sys_tsc));
}

void task_cpu_times(struct task *t, u64 *ret_utime_ns, u64 *ret_stime_ns)
{
	times_of(t, ret_utime_ns, ret_stime_ns);
}

void thread_group_cpu_times(struct thread_group *tg, u64 *ret_utime_ns, u64 *ret_stime_ns)
{
	MUTEX_GUARD(&tg->kernel->tasklist_lock);
	u64 u = tg->dead_utime_ns, s = tg->dead_stime_ns;
	struct task *t;

	list_for_each (t, &tg->tasks, group_node) {
		u64 tu, ts;

		if (atomic_load(&t->state) >= TASK_ZOMBIE)
			continue; /* counted in dead_* */
		times_of(t, &tu, &ts);
		u += tu;
		s += ts;
	}
	*ret_utime_ns = u;
	*ret_stime_ns = s;
}
