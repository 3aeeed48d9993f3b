/* Making, finding and freeing tasks and thread groups; the pointers that others may read. */
#include "base/log.h"
#include "sentry/fd/fdtable.h"
#include "sentry/task/internal.h"
#include "sentry/task/seccomp_guest.h"
#include "sentry/time/timers.h"

#include <limits.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

/* Room for a path and what handlers put around it. */
#define SCRATCH_SIZE (PATH_MAX + 256)

__thread struct task *current_task;

struct thread_group *thread_group_get(struct thread_group *tg)
{
	refs_get(&tg->refs);
	return tg;
}

void thread_group_put(struct thread_group *tg)
{
	if (!tg || !refs_put(&tg->refs))
		return;
	ASSERT(list_empty(&tg->tasks) && list_empty(&tg->children));
	sigqueue_flush(&tg->pending, ~0ULL);
	sighand_put(tg->sighand);
	process_group_put(tg->pgrp);
	waitq_destroy(&tg->child_waitq);
	waitq_destroy(&tg->exit_waitq);
	waitq_destroy(&tg->signal_waitq);
	mutex_destroy(&tg->limit_lock);
	free(tg);
}

struct thread_group *thread_group_new(struct kernel *k, int tgid, struct sighand *sh)
{
	struct thread_group *tg = calloc(1, sizeof(*tg));

	if (!tg)
		return NULL;
	refs_init(&tg->refs, "thread_group");
	tg->kernel = k;
	tg->tgid = tgid;
	list_init(&tg->tasks);
	list_init(&tg->children);
	list_init(&tg->sibling);
	list_init(&tg->pgrp_node);
	tg->sighand = sighand_get(sh);
	sigqueue_init(&tg->pending, &k->queued_signals);
	waitq_init(&tg->child_waitq);
	waitq_init(&tg->exit_waitq);
	waitq_init(&tg->signal_waitq);
	mutex_init(&tg->limit_lock, RANK_LEAF, "rlimits");
	tg->start_time_ns = clock_monotonic_ns();
	return tg;
}

struct task *task_get(struct task *t)
{
	refs_get(&t->refs);
	return t;
}

void task_put(struct task *t)
{
	if (!t || !refs_put(&t->refs))
		return;
	ASSERT(!t->mm && !t->ctx && list_empty(&t->group_node) && list_empty(&t->tracees));
	sigqueue_flush(&t->pending, ~0ULL);
	seccomp_filter_put(t->seccomp);
	cred_put(t->cred);
	thread_group_put(t->tg);
	mutex_destroy(&t->lock);
	free(t->scratch_path);
	free(t);
}

struct task *task_new(struct kernel *k, struct thread_group *tg)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->scratch_path = malloc(SCRATCH_SIZE);
	if (!t->scratch_path) {
		free(t);
		return NULL;
	}
	refs_init(&t->refs, "task");
	t->kernel = k;
	t->tg = thread_group_get(tg);
	list_init(&t->group_node);
	list_init(&t->tracees);
	mutex_init(&t->lock, RANK_TASK, "task");
	sigqueue_init(&t->pending, &k->queued_signals);
	atomic_store(&t->state, TASK_NEW);
	atomic_store(&t->ids_stale, true);
	t->syscall_nr = (u64)-1;
	t->start_time_ns = clock_monotonic_ns();
	return t;
}

struct task *task_unhash_locked(struct task *t)
{
	struct kernel *k = t->kernel;
	struct pid_entry *e = pid_lookup(k, t->tid);
	struct sighand *sh;

	ASSERT(e && e->task == t);
	e->task = NULL;
	pid_entry_drop(k, e);
	sh = sighand_lock(t->tg);
	list_del(&t->group_node);
	sighand_unlock(sh);
	atomic_store(&t->state, TASK_DEAD);
	return t;
}

void task_install_mm(struct task *t, struct mm *mm)
{
	mutex_lock(&t->lock);
	ASSERT(!t->mm);
	t->mm = mm;
	mutex_unlock(&t->lock);
}

struct mm *task_leave_resources(struct task *t)
{
	struct mm *mm;
	struct fs_context *fs;
	struct fd_table *fds;
	struct nsproxy *ns;

	mutex_lock(&t->lock);
	mm = t->mm;
	fs = t->fs;
	fds = t->fds;
	ns = t->ns;
	t->mm = NULL;
	t->fs = NULL;
	t->fds = NULL;
	t->ns = NULL;
	mutex_unlock(&t->lock);
	if (mm)
		mm_user_put(mm);
	fd_table_put(fds);
	fs_context_put(fs);
	nsproxy_put(ns);
	return mm;
}

void task_drop_resources(struct task *t)
{
	mm_finish(task_leave_resources(t));
}

/* ---- pointers of a task, for any thread ---- */

const struct cred *task_get_cred(struct task *t)
{
	MUTEX_GUARD(&t->lock);

	return cred_get(t->cred);
}

void task_set_cred(struct task *t, const struct cred *cred)
{
	const struct cred *old;

	mutex_lock(&t->lock);
	old = t->cred;
	t->cred = cred;
	mutex_unlock(&t->lock);
	cred_put(old);
	task_ids_changed(t);
	if (t->mm)
		mm_trust_changed(t->mm);
}

/* ---- what guest code reads without the sentry ---- */

void task_ids_changed(struct task *t)
{
	atomic_store(&t->ids_stale, true);
	MUTEX_GUARD(&t->lock);
	if (t->ctx)
		platform_context_set_ids(t->ctx, &(struct platform_ids){ 0 });
}

void task_ids_publish(struct task *t)
{
	struct platform_ids ids = { 0 };

	atomic_store(&t->ids_stale, false);
	MUTEX_GUARD(&t->kernel->tasklist_lock);
	if (atomic_load(&t->seccomp_mode) || t->kernel->strace || task_traced(t))
		return;
	ids = (struct platform_ids){
		.ids = true,
		.clocks = true,
		.pid = (u32)t->tg->tgid,
		.tid = (u32)t->tid,
		.ppid = (u32)(t->tg->parent ? t->tg->parent->tgid : PID_REAPER),
		.uid = t->cred->uid,
		.euid = t->cred->euid,
		.gid = t->cred->gid,
		.egid = t->cred->egid,
	};
	platform_context_set_ids(t->ctx, &ids);
}

struct mm *task_get_mm(struct task *t)
{
	MUTEX_GUARD(&t->lock);

	return t->mm ? mm_get(t->mm) : NULL;
}

struct fs_context *task_get_fs(struct task *t)
{
	MUTEX_GUARD(&t->lock);

	return t->fs ? fs_context_get(t->fs) : NULL;
}

struct fd_table *task_get_fds(struct task *t)
{
	MUTEX_GUARD(&t->lock);

	return t->fds ? fd_table_get(t->fds) : NULL;
}

struct nsproxy *task_get_ns(struct task *t)
{
	MUTEX_GUARD(&t->lock);

	return t->ns ? nsproxy_get(t->ns) : NULL;
}

void task_set_ns(struct task *t, struct nsproxy *ns)
{
	struct nsproxy *old;

	mutex_lock(&t->lock);
	old = t->ns;
	t->ns = ns;
	mutex_unlock(&t->lock);
	nsproxy_put(old);
}

int task_unshare_files(struct task *t)
{
	struct fd_table *copy, *old = t->fds;

	if (!fd_table_shared(old))
		return 0;
	copy = fd_table_dup(old);
	if (!copy)
		return -ENOMEM;
	mutex_lock(&t->lock);
	t->fds = copy;
	mutex_unlock(&t->lock);
	fd_table_put(old);
	return 0;
}

int task_unshare_fs(struct task *t)
{
	struct fs_context *copy, *old = t->fs;

	if (refs_read(&old->refs) == 1)
		return 0;
	copy = fs_context_dup(old);
	if (!copy)
		return -ENOMEM;
	mutex_lock(&t->lock);
	t->fs = copy;
	mutex_unlock(&t->lock);
	fs_context_put(old);
	return 0;
}

struct task *thread_group_any_task(struct thread_group *tg)
{
	MUTEX_GUARD(&tg->kernel->tasklist_lock);
	struct task *t, *best = NULL;

	list_for_each (t, &tg->tasks, group_node) {
		if (atomic_load(&t->state) >= TASK_ZOMBIE)
			continue;
		if (!best || t == tg->leader)
			best = t;
	}
	return best ? task_get(best) : NULL;
}

/* ---- limits ---- */

struct rlimit64 task_rlimit_both(struct task *t, int resource)
{
	MUTEX_GUARD(&t->tg->limit_lock);

	return t->tg->limits[resource];
}

u64 task_rlimit(struct task *t, int resource)
{
	return __atomic_load_n(&t->tg->limits[resource].rlim_cur, __ATOMIC_RELAXED);
}

static void limits_of(struct task *t, const struct cred *cred, struct mm_limits *ret)
{
	mutex_lock(&t->tg->limit_lock);
	ret->as = t->tg->limits[RLIMIT_AS].rlim_cur;
	ret->data = t->tg->limits[RLIMIT_DATA].rlim_cur;
	ret->data_max = t->tg->limits[RLIMIT_DATA].rlim_max;
	ret->stack = t->tg->limits[RLIMIT_STACK].rlim_cur;
	ret->memlock = t->tg->limits[RLIMIT_MEMLOCK].rlim_cur;
	mutex_unlock(&t->tg->limit_lock);
	ret->may_lock = cred_capable(cred, CAP_IPC_LOCK);
	ret->admin = cred_capable(cred, CAP_SYS_ADMIN);
}

void task_mm_limits(struct task *t, struct mm_limits *ret)
{
	limits_of(t, t->cred, ret);
}

void task_limits_changed(struct task *t)
{
	struct mm *mm = task_get_mm(t);
	const struct cred *cred = task_get_cred(t);
	struct mm_limits limits;

	if (mm) {
		limits_of(t, cred, &limits);
		mm_set_limits(mm, &limits);
	}
	cred_put(cred);
	mm_put(mm);
}
