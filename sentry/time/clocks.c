/* Clock ids: the host's clocks for wall time, our accounts for CPU time. */
#include "base/host_time.h"
#include "sentry/time/timers_impl.h"

/* A dynamic CPU clock (Linux's include/linux/posix-timers.h): ~pid << 3 | per-thread bit | kind. */
#define CPU_CLOCK_THREAD 4
#define CPU_CLOCK_KIND 3
enum { CPU_PROF, CPU_VIRT, CPU_SCHED, CPU_FD };

static int cpu_clock_make(int pid, int bits)
{
	return (int)(~(u32)pid << 3) | bits;
}

static int cpu_clock_pid(int clock)
{
	return ~(clock >> 3);
}

bool clock_is_cpu(int clock)
{
	return clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID;
}

int cpu_clock_resolve(struct task *t, int clock, int *ret_clock)
{
	struct task *target;
	int pid, r = 0;

	if (clock == CLOCK_PROCESS_CPUTIME_ID)
		clock = cpu_clock_make(0, CPU_SCHED);
	else if (clock == CLOCK_THREAD_CPUTIME_ID)
		clock = cpu_clock_make(0, CPU_SCHED | CPU_CLOCK_THREAD);
	else if (clock >= 0)
		return -EINVAL;
	if ((clock & CPU_CLOCK_KIND) == CPU_FD)
		return -EINVAL;
	pid = cpu_clock_pid(clock);
	if (pid == 0) {
		pid = clock & CPU_CLOCK_THREAD ? t->tid : t->tg->tgid;
	} else {
		target = task_find(t->kernel, pid);
		if (target == NULL)
			return -EINVAL;
		/* Threads only of one's own process; processes by their tgid. */
		if (clock & CPU_CLOCK_THREAD ? target->tg != t->tg : target->tg->tgid != pid)
			r = -EINVAL;
		task_put(target);
	}
	if (r == 0)
		*ret_clock = cpu_clock_make(pid, clock & 7);
	return r;
}

int cpu_clock_read(struct kernel *k, int clock, u64 *ret_ns)
{
	u64 utime, stime;

	if (clock & CPU_CLOCK_THREAD) {
		struct task *target = task_find(k, cpu_clock_pid(clock));

		if (target == NULL)
			return -EINVAL;
		task_cpu_times(target, &utime, &stime);
		task_put(target);
	} else {
		struct thread_group *tg = thread_group_find(k, cpu_clock_pid(clock));

		if (tg == NULL)
			return -EINVAL;
		thread_group_cpu_times(tg, &utime, &stime);
		thread_group_put(tg);
	}
	*ret_ns = (clock & CPU_CLOCK_KIND) == CPU_VIRT ? utime : utime + stime;
	return 0;
}

/* The host's id for a wall clock, -1 when there is none. Alarm clocks read as their base. */
static int host_clock_of(int clock)
{
	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_REALTIME_COARSE:
	case CLOCK_MONOTONIC_COARSE:
	case CLOCK_BOOTTIME:
	case CLOCK_TAI: return clock;
	case CLOCK_REALTIME_ALARM: return CLOCK_REALTIME;
	case CLOCK_BOOTTIME_ALARM: return CLOCK_BOOTTIME;
	default: return -1;
	}
}

int clock_read_ns(struct task *t, int clock, u64 *ret_ns)
{
	int id, r;

	if (clock_is_cpu(clock)) {
		r = cpu_clock_resolve(t, clock, &id);
		return r < 0 ? r : cpu_clock_read(t->kernel, id, ret_ns);
	}
	id = host_clock_of(clock);
	return id < 0 ? -EINVAL : host_clock_read(id, ret_ns);
}

int clock_resolution_ns(struct task *t, int clock, u64 *ret_ns)
{
	int id, r;

	if (clock_is_cpu(clock)) {
		r = cpu_clock_resolve(t, clock, &id);
		if (r == 0)
			*ret_ns = (id & CPU_CLOCK_KIND) == CPU_SCHED ? 1 : 4000000;
		return r;
	}
	id = host_clock_of(clock);
	return id < 0 ? -EINVAL : host_clock_resolution_ns(id, ret_ns);
}

u64 clock_to_monotonic(int clock, u64 ns)
{
	u64 now_mono = 0, now = 0;
	int id = host_clock_of(clock);

	if (ns > TIME_MAX_NS)
		ns = TIME_MAX_NS;
	if (id == CLOCK_MONOTONIC || id < 0)
		return ns;
	host_clock_read(CLOCK_MONOTONIC, &now_mono);
	host_clock_read(id, &now);
	if (ns <= now)
		return now_mono > now - ns ? now_mono - (now - ns) : 1;
	return MIN(ns - now + now_mono, TIME_MAX_NS);
}
