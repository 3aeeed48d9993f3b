/* The task's side of execve: being alone in the group, and becoming the new program. */
#include "base/host_thread.h"
#include "base/log.h"
#include "sentry/fd/fdtable.h"
#include "sentry/futex/futex.h"
#include "sentry/task/internal.h"
#include "sentry/time/timers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All others have left; at most the leader is there as a zombie. */
static bool alone_locked(struct task *t)
{
	struct task *i;

	list_for_each (i, &t->tg->tasks, group_node)
		if (i != t && (i != t->tg->leader || atomic_load(&i->state) != TASK_ZOMBIE))
			return false;
	return true;
}

/* t takes the dead leader's place and number. Returns the leader for a put. */
static struct task *become_leader_locked(struct task *t)
{
	struct thread_group *tg = t->tg;
	struct kernel *k = t->kernel;
	struct task *old = tg->leader;
	struct pid_entry *mine = pid_lookup(k, t->tid), *lead = pid_lookup(k, tg->tgid);
	struct sighand *sh;

	if (old == t)
		return NULL;
	ASSERT(mine && mine->task == t && lead && lead->task == old);
	ptrace_unlink_locked(old);
	sh = sighand_lock(tg);
	list_del(&old->group_node);
	tg->leader = t;
	sighand_unlock(sh);
	old->tid = t->tid;
	t->tid = tg->tgid;
	lead->task = t;
	mine->task = NULL;
	pid_entry_drop(k, mine);
	atomic_store(&old->state, TASK_DEAD);
	return old;
}

int task_exec_kill_others(struct task *t)
{
	struct thread_group *tg = t->tg;
	struct task *old = NULL;
	struct sighand *sh = sighand_lock(tg);
	bool alone = false;

	t->pre_exec_tid = t->tid;
	if (atomic_load(&t->killed) || tg->group_exiting || tg->exec_task) {
		sighand_unlock(sh);
		return -EINTR;
	}
	tg->exec_task = t;
	signal_kill_others_locked(tg, t);
	sighand_unlock(sh);
	while (!alone) {
		task_block_prepare(t);
		mutex_lock(&tg->kernel->tasklist_lock);
		alone = alone_locked(t);
		if (alone)
			old = become_leader_locked(t);
		mutex_unlock(&tg->kernel->tasklist_lock);
		if (!alone && task_block_killable(t, NO_DEADLINE) == -EINTR)
			break;
	}
	sh = sighand_lock(tg);
	tg->exec_task = NULL;
	sighand_unlock(sh);
	task_put(old);
	return alone ? 0 : -EINTR;
}

/* Handlers of its own, reset. The former struct stays for those who are about to lock it. */
static int own_sighand(struct thread_group *tg)
{
	struct sighand *old = tg->sighand, *copy;

	if (refs_read(&old->refs) > 1) {
		copy = sighand_dup(old);
		if (!copy)
			return -ENOMEM;
		copy->retired = old; /* takes the group's reference */
		mutex_lock(&tg->kernel->tasklist_lock);
		mutex_lock(&old->lock);
		__atomic_store_n(&tg->sighand, copy, __ATOMIC_RELEASE);
		mutex_unlock(&old->lock);
		mutex_unlock(&tg->kernel->tasklist_lock);
	}
	sighand_reset_on_exec(tg->sighand);
	return 0;
}

static void put_mm(void *mm)
{
	mm_finish(mm);
}

/* Exchanges mm and platform context. */
static int change_mm(struct task *t, struct mm *mm)
{
	struct platform_context *ctx, *old_ctx;
	struct mm *old;
	u64 peak_rss;
	int r = task_context_new(t->kernel, mm_as(mm), NULL, &ctx);

	if (r < 0) {
		mm_user_put(mm);
		mm_put(mm);
		return r;
	}
	futex_release(t);
	if (t->clear_child_tid.v)
		futex_clear_child_tid(t);
	peak_rss = mm_last_peak_rss(t->mm);
	mutex_lock(&t->lock);
	old_ctx = task_change_context_locked(t, ctx);
	old = t->mm;
	t->mm = mm;
	mutex_unlock(&t->lock);
	task_ids_changed(t);
	platform_context_free(old_ctx);
	/* After vfork it is the parent's. */
	if (!t->vfork_done)
		mm_executes(old);
	mm_user_put(old);
	/* The last reference empties a stub: the new program need not wait for that. */
	if (t->vfork_done)
		mm_finish(old);
	else
		task_do_behind(t->kernel, put_mm, old);
	mutex_lock(&t->kernel->tasklist_lock);
	t->tg->dead_maxrss = MAX(t->tg->dead_maxrss, peak_rss / 1024);
	mutex_unlock(&t->kernel->tasklist_lock);
	return 0;
}

static void reset_task(struct task *t, const char *comm)
{
	t->clear_child_tid = ua(0);
	t->robust_list = ua(0);
	t->robust_list_len = 0;
	t->rseq = ua(0);
	t->rseq_len = t->rseq_sig = 0;
	t->altstack = (stack_t){ .ss_flags = SS_DISABLE };
	t->keep_caps = false;
	t->restart.fn = NULL;
	atomic_store(&t->futex_released, false);
	mutex_lock(&t->lock);
	memset(t->comm, 0, sizeof(t->comm));
	snprintf(t->comm, sizeof(t->comm), "%s", comm);
	mutex_unlock(&t->lock);
}

void task_exec_commit(struct task *t, struct mm *mm, const struct user_regs_struct *regs,
		      const char *comm, const struct cred *cred)
{
	struct thread_group *tg = t->tg;
	int r;

	if (cred->euid != t->cred->euid || cred->egid != t->cred->egid)
		t->pdeath_signal = 0;
	r = own_sighand(tg);
	if (r == 0)
		r = task_unshare_files(t);
	if (r < 0) {
		mm_user_put(mm);
		mm_put(mm);
	} else {
		r = change_mm(t, mm);
	}
	task_set_cred(t, cred);
	if (r == 0) {
		/* Before anybody can learn of the exec, from vfork or a descriptor that closes. */
		MUTEX_GUARD(&t->kernel->tasklist_lock);
		tg->did_exec = true;
		tg->exit_signal = SIGCHLD;
	}
	vfork_release(t);
	if (r < 0) {
		log_info("task %d (%s): exec failed after the point of no return: %s", t->tid, comm,
			 strerror(-r));
		task_group_exit(t, SIGKILL);
		return;
	}
	group_timers_exec(tg);
	/* Before anybody can see that it has happened: closed descriptors tell. */
	mutex_lock(&t->kernel->tasklist_lock);
	tg->did_exec = true;
	tg->exit_signal = SIGCHLD;
	mutex_unlock(&t->kernel->tasklist_lock);
	fd_table_close_on_exec(t->fds);
	reset_task(t, comm);
	platform_as_settle(mm_as(mm)); /* mm_map_ahead's mappings */
	t->regs = *regs;
	t->regs.orig_rax = (u64)-1;
	if (task_traced(t))
		ptrace_exec(t);
}
