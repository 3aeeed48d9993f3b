/* Names, limits, usage, randomness. */
#include "base/host_time.h"
#include "sentry/proc/procfs.h"
#include "sentry/sys/handlers.h"
#include "sentry/time/timers.h"
#include <linux/capability.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#define NS_PER_SEC 1000000000ULL
#define LOAD_SHIFT 16

s64 sys_uname(struct task *t, const u64 a[6])
{
	struct utsname u = { .sysname = "Linux",
			     .release = GUEST_OSRELEASE,
			     .version = GUEST_VERSION,
			     .machine = "x86_64" };
	struct uts_ns *uts = t->ns->uts;

	mutex_lock(&uts->lock);
	memcpy(u.nodename, uts->nodename, sizeof(u.nodename));
	memcpy(u.domainname, uts->domainname, sizeof(u.domainname));
	mutex_unlock(&uts->lock);
	return copy_out(t, ua(a[0]), &u, sizeof(u));
}

static s64 set_uts(struct task *t, const u64 a[6], bool domain)
{
	struct uts_ns *uts = t->ns->uts;
	char name[65] = { 0 };
	int len = (int)a[1], r;

	if (!cred_capable(t->cred, CAP_SYS_ADMIN))
		return -EPERM;
	if (len < 0 || len > 64)
		return -EINVAL;
	r = copy_in(t, name, ua(a[0]), (size_t)len);
	if (r < 0)
		return r;
	MUTEX_GUARD(&uts->lock);
	memcpy(domain ? uts->domainname : uts->nodename, name, sizeof(name));
	return 0;
}

s64 sys_sethostname(struct task *t, const u64 a[6])
{
	return set_uts(t, a, false);
}

s64 sys_setdomainname(struct task *t, const u64 a[6])
{
	return set_uts(t, a, true);
}

struct task_counts {
	u32 tasks, running;
};

static void count_group(struct thread_group *tg, void *arg)
{
	struct task_counts *c = arg;
	struct task *t;

	list_for_each (t, &tg->tasks, group_node) {
		c->tasks++;
		if (atomic_load(&t->state) == TASK_RUNNING)
			c->running++;
	}
}

s64 sys_sysinfo(struct task *t, const u64 a[6])
{
	struct kernel *k = t->kernel;
	struct task_counts counts = { 0 };
	struct pgalloc_usage usage;
	struct sysinfo si = { .mem_unit = 1 };

	thread_group_for_each(k, count_group, &counts);
	pgalloc_usage(k->memory, &usage);
	si.uptime = (long)((clock_monotonic_ns() - k->boot_monotonic_ns) / NS_PER_SEC);
	si.totalram = k->memory_limit;
	si.freeram = k->memory_limit > usage.committed ? k->memory_limit - usage.committed : 0;
	si.procs = (u16)MIN(counts.tasks, 65535U);
	for (size_t i = 0; i < ARRAY_SIZE(si.loads); i++)
		si.loads[i] = (unsigned long)counts.running << LOAD_SHIFT;
	return copy_out(t, ua(a[0]), &si, sizeof(si));
}

/* ---- usage ---- */

static void set_times(struct rusage *ru, u64 utime, u64 stime)
{
	ru->ru_utime.tv_sec = (time_t)(utime / NS_PER_SEC);
	ru->ru_utime.tv_usec = (suseconds_t)(utime % NS_PER_SEC / 1000);
	ru->ru_stime.tv_sec = (time_t)(stime / NS_PER_SEC);
	ru->ru_stime.tv_usec = (suseconds_t)(stime % NS_PER_SEC / 1000);
}

static void add_task(struct rusage *ru, const struct task *t)
{
	ru->ru_minflt += (long)t->minflt;
	ru->ru_majflt += (long)t->majflt;
	ru->ru_nvcsw += (long)t->nvcsw;
	ru->ru_nivcsw += (long)t->nivcsw;
}

static void group_usage(struct task *t, struct rusage *ru)
{
	struct thread_group *tg = t->tg;
	u64 utime, stime;
	struct task *i;

	thread_group_cpu_times(tg, &utime, &stime);
	set_times(ru, utime, stime);
	MUTEX_GUARD(&t->kernel->tasklist_lock);
	ru->ru_minflt = (long)tg->dead_minflt;
	ru->ru_majflt = (long)tg->dead_majflt;
	list_for_each (i, &tg->tasks, group_node)
		add_task(ru, i);
}

s64 sys_getrusage(struct task *t, const u64 a[6])
{
	struct thread_group *tg = t->tg;
	struct rusage ru = { 0 };
	struct mm_stats stats;
	u64 utime, stime;

	switch ((int)a[0]) {
	case RUSAGE_SELF: group_usage(t, &ru); break;
	case RUSAGE_THREAD:
		task_cpu_times(t, &utime, &stime);
		set_times(&ru, utime, stime);
		add_task(&ru, t);
		break;
	case RUSAGE_CHILDREN:
		mutex_lock(&t->kernel->tasklist_lock);
		set_times(&ru, tg->child_utime_ns, tg->child_stime_ns);
		ru.ru_minflt = (long)tg->child_minflt;
		ru.ru_majflt = (long)tg->child_majflt;
		ru.ru_maxrss = (long)tg->child_maxrss;
		mutex_unlock(&t->kernel->tasklist_lock);
		break;
	default: return -EINVAL;
	}
	if ((int)a[0] != RUSAGE_CHILDREN) {
		mm_get_stats(t->mm, &stats);
		ru.ru_maxrss = (long)(stats.peak_rss / 1024);
	}
	return copy_out(t, ua(a[1]), &ru, sizeof(ru));
}

/* ---- limits ---- */

/* prlimit of another process: the same user through and through, or CAP_SYS_RESOURCE. */
static bool may_limit(struct task *t, struct task *target)
{
	const struct cred *me = t->cred, *c;
	bool ok;

	if (target->tg == t->tg || cred_capable(me, CAP_SYS_RESOURCE))
		return true;
	c = task_get_cred(target);
	ok = me->uid == c->euid && me->uid == c->suid && me->uid == c->uid && me->gid == c->egid &&
	     me->gid == c->sgid && me->gid == c->gid;
	cred_put(c);
	return ok;
}

static int change_limit(struct task *t, struct task *target, u32 resource,
			const struct rlimit64 *new, struct rlimit64 *ret_old)
{
	struct thread_group *tg = target->tg;
	struct rlimit64 *limit;

	if (resource >= RLIM_NLIMITS)
		return -EINVAL;
	if (new &&new->rlim_cur > new->rlim_max)
		return -EINVAL;
	if (new &&resource == RLIMIT_NOFILE &&new->rlim_max > FD_TABLE_MAX)
		return -EPERM;
	mutex_lock(&tg->limit_lock);
	limit = &tg->limits[resource];
	*ret_old = *limit;
	if (new &&new->rlim_max > limit->rlim_max && !cred_capable(t->cred, CAP_SYS_RESOURCE)) {
		mutex_unlock(&tg->limit_lock);
		return -EPERM;
	}
	if (new) {
		__atomic_store_n(&limit->rlim_cur, new->rlim_cur, __ATOMIC_RELAXED);
		limit->rlim_max = new->rlim_max;
	}
	mutex_unlock(&tg->limit_lock);
	/* Another's CPU limit takes effect with its next look at its timers, or at its exec. */
	if (new &&resource == RLIMIT_CPU && tg == t->tg)
		cpu_limit_changed(tg);
	if (new && (resource == RLIMIT_STACK || resource == RLIMIT_AS || resource == RLIMIT_DATA ||
		    resource == RLIMIT_MEMLOCK))
		task_limits_changed(target);
	return 0;
}

s64 sys_getrlimit(struct task *t, const u64 a[6])
{
	struct rlimit64 old;
	int r = change_limit(t, t, (u32)a[0], NULL, &old);

	return r < 0 ? r : copy_out(t, ua(a[1]), &old, sizeof(old));
}

s64 sys_setrlimit(struct task *t, const u64 a[6])
{
	struct rlimit64 new, old;
	int r = copy_in(t, &new, ua(a[1]), sizeof(new));

	return r < 0 ? r : change_limit(t, t, (u32)a[0], &new, &old);
}

s64 sys_prlimit64(struct task *t, const u64 a[6])
{
	struct rlimit64 new, old;
	struct task *target;
	int pid = (int)a[0], r;

	if (a[2] && (r = copy_in(t, &new, ua(a[2]), sizeof(new))) < 0)
		return r;
	target = pid == 0 ? task_get(t) : task_find(t->kernel, pid);
	if (target == NULL)
		return -ESRCH;
	r = may_limit(t, target) ? change_limit(t, target, (u32)a[1], a[2] ? &new : NULL, &old)
				 : -EPERM;
	task_put(target);
	if (r == 0 && a[3])
		r = copy_out(t, ua(a[3]), &old, sizeof(old));
	return r;
}

/* ---- randomness ---- */

s64 sys_getrandom(struct task *t, const u64 a[6])
{
	u64 size = MIN(a[1], MAX_RW_COUNT), done = 0;
	u32 flags = (u32)a[2];
	struct sys_iov iov;
	u8 buf[1024];
	int err;

	if ((flags & ~(u32)(GRND_NONBLOCK | GRND_RANDOM | GRND_INSECURE)) ||
	    (flags & (GRND_RANDOM | GRND_INSECURE)) == (GRND_RANDOM | GRND_INSECURE))
		return -EINVAL;
	err = sys_iov_single(t, ua(a[0]), size, &iov);
	while (!err && done < size) {
		size_t n = MIN(size - done, sizeof(buf));
		ssize_t r = host_getrandom(buf, n, flags);

		if (r == 0)
			r = mm_copy_out_partial(t->mm, ua(a[0] + done), buf, n);
		err = r < 0 ? (int)r : 0;
		done += err ? 0 : (size_t)r;
		if (err || (size_t)r < n || (done < size && task_signal_pending(t)))
			break;
	}
	explicit_bzero(buf, sizeof(buf));
	return done ? (s64)done : err;
}
