#include "sentry/kernel/stats.h"
#include "base/host_file.h"
#include "sentry/task/internal.h"

static void add_group(struct thread_group *tg, void *arg)
{
	struct kernel_stats *s = arg;
	struct task *t;

	s->processes += !tg->zombie;
	s->tasks += (u64)tg->task_count;
	s->minor_faults += tg->dead_minflt;
	s->major_faults += tg->dead_majflt;
	list_for_each (t, &tg->tasks, group_node) {
		s->minor_faults += t->minflt;
		s->major_faults += t->majflt;
	}
}

static void add_memory(struct kernel *k, struct kernel_stats *s)
{
	struct pgalloc_usage usage;

	pgalloc_usage(k->memory, &usage);
	s->memory_limit = k->memory_limit;
	s->committed = usage.committed;
	s->reserved = usage.reserved;
	s->kept = pgalloc_kept(k->memory);
	s->anonymous = pgalloc_acct_usage(k->memory, MEMORY_OF_SPACES);
	s->anonymous -= MIN(s->anonymous, s->kept);
	s->tmpfs = pgalloc_acct_usage(k->memory, MEMORY_OF_TMPFS);
	s->page_cache = pgalloc_acct_usage(k->memory, MEMORY_OF_CACHE);
	s->shared = pgalloc_shared(k->memory, MEMORY_OF_SPACES);
	s->cow_copied = pgalloc_copied(k->memory);
}

void kernel_stats(struct kernel *k, struct kernel_stats *ret)
{
	struct mm_totals *m = &k->mm_totals;
	struct kernel_stats s = { .magic = KERNEL_STATS_MAGIC,
				  .platform = platform_kind_of(k->platform),
				  .address_spaces = atomic_load(&m->spaces),
				  .break_copy = atomic_load(&m->break_copy),
				  .break_owner = atomic_load(&m->break_owner),
				  .break_file = atomic_load(&m->break_file),
				  .fork_copy = atomic_load(&m->fork_copy),
				  .forks = atomic_load(&k->forks),
				  .oom_kills = atomic_load(&k->oom_kills) };

	thread_group_for_each(k, add_group, &s);
	mutex_lock(&k->tasklist_lock);
	s.minor_faults += k->reaped_minflt;
	s.major_faults += k->reaped_majflt;
	mutex_unlock(&k->tasklist_lock);
	add_memory(k, &s);
	*ret = s;
}

void kernel_stats_report(struct kernel *k)
{
	struct kernel_stats s;
	struct iovec iov = { &s, sizeof(s) };

	if (k->stats_fd < 0)
		return;
	kernel_stats(k, &s);
	/* A full pipe means that nobody reads: then nobody misses it. */
	(void)host_writev(k->stats_fd, &iov, 1);
}
