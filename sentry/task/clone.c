/*
 * clone, fork, vfork, clone3.
 *
 * The parent prepares everything, makes the child's platform context and
 * publishes the child: it enters the group and the pid table, if the parent has
 * not been killed meanwhile. Only then has the clone happened; before, every
 * failure unwinds to an errno. A worker then runs the child. Where a context
 * belongs to the thread that made it (ptrace), the worker does the second half
 * and the parent waits for it.
 */
#include "base/host_sync.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "sentry/exec/exec.h"
#include "sentry/fd/fdtable.h"
#include "sentry/fd/pidfd.h"
#include "sentry/task/internal.h"
#include "sentry/task/seccomp_guest.h"
#include "sentry/time/timers.h"

#include <linux/capability.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <stdlib.h>
#include <string.h>

#define GUEST_ADDR_END 0x7ffffffff000UL
#define NS_UNSUPPORTED                                                                             \
	(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWCGROUP |            \
	 CLONE_NEWTIME)

struct clone_start {
	struct task *parent, *child;
	const struct clone_args_k *args;
	struct pid_entry *entry; /* reserved */
	int event;		 /* PTRACE_EVENT_* of this kind of clone */
	u8 *xstate;
	size_t xstate_size;
	int result;
	_Atomic u32 done;
};

/* ---- vfork ---- */

static struct vfork_done *vfork_new(struct task *waiter)
{
	struct vfork_done *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	refs_init(&v->refs, "vfork_done");
	v->waiter = task_get(waiter);
	return v;
}

static void vfork_put(struct vfork_done *v)
{
	if (!v || !refs_put(&v->refs))
		return;
	task_put(v->waiter);
	free(v);
}

void vfork_release(struct task *t)
{
	struct vfork_done *v = t->vfork_done;

	if (!v)
		return;
	t->vfork_done = NULL;
	atomic_store(&v->done, true);
	task_wake(v->waiter);
	vfork_put(v);
}

static void vfork_wait(struct task *t, struct vfork_done *v)
{
	for (;;) {
		task_block_prepare(t);
		if (atomic_load(&v->done) || task_block_killable(t, NO_DEADLINE) == -EINTR)
			return;
	}
}

/* ---- checks ---- */

static int check_namespaces(struct task *t, u64 flags)
{
	if (!(flags & (NS_UNSUPPORTED | CLONE_NEWNS | CLONE_NEWUTS)))
		return 0;
	if ((flags & CLONE_NEWUSER) || !cred_capable(t->cred, CAP_SYS_ADMIN))
		return -EPERM;
	return flags & NS_UNSUPPORTED ? -EINVAL : 0;
}

static int check_flags(struct task *t, const struct clone_args_k *a)
{
	u64 f = a->flags;

	if (((f & CLONE_NEWNS) && (f & CLONE_FS)) || ((f & CLONE_NEWUSER) && (f & CLONE_FS)) ||
	    ((f & CLONE_THREAD) && !(f & CLONE_SIGHAND)) ||
	    ((f & CLONE_SIGHAND) && !(f & CLONE_VM)) ||
	    ((f & CLONE_SIGHAND) && (f & CLONE_CLEAR_SIGHAND)) ||
	    ((f & CLONE_THREAD) && (f & (CLONE_NEWUSER | CLONE_NEWPID))) ||
	    ((f & CLONE_PIDFD) && (f & (CLONE_THREAD | CLONE_DETACHED))) ||
	    ((f & CLONE_PARENT) && t->tg == t->kernel->init))
		return -EINVAL;
	if ((f & CLONE_PIDFD) && (f & CLONE_PARENT_SETTID) && a->pidfd.v == a->parent_tid.v)
		return -EINVAL;
	if (f & CLONE_INTO_CGROUP)
		return -EOPNOTSUPP;
	if ((f & CLONE_SETTLS) && a->tls >= GUEST_ADDR_END)
		return -EPERM;
	if (a->set_tid_count > 1)
		return -EINVAL; /* one level of pid namespaces */
	if (a->set_tid_count) {
		if (a->set_tid[0] < 1 || a->set_tid[0] >= PID_LIMIT)
			return -EINVAL;
		if (!cred_capable(t->cred, CAP_SYS_ADMIN) &&
		    !cred_capable(t->cred, CAP_CHECKPOINT_RESTORE))
			return -EPERM;
	}
	return check_namespaces(t, f);
}

/* Tasks of the same user; RLIMIT_NPROC counts threads. */
static u32 count_of_user(struct kernel *k, u32 uid)
{
	u32 n = 0;

	for (struct pid_entry *e = pid_next(k, 0); e; e = pid_next(k, e->nr)) {
		const struct cred *c;

		if (!e->task || atomic_load(&e->task->state) >= TASK_ZOMBIE)
			continue;
		c = task_get_cred(e->task);
		n += c->uid == uid;
		cred_put(c);
	}
	return n;
}

/* Reserves a number for the child, within all limits. */
static int reserve_pid(struct task *t, const struct clone_args_k *a, struct pid_entry **ret)
{
	struct kernel *k = t->kernel;
	u64 limit = task_rlimit(t, RLIMIT_NPROC);
	bool limited = t->cred->uid != 0 && !cred_capable(t->cred, CAP_SYS_RESOURCE) &&
		       !cred_capable(t->cred, CAP_SYS_ADMIN);

	MUTEX_GUARD(&k->tasklist_lock);

	if (atomic_load(&k->pids->threads) >= k->pids->limit)
		return -EAGAIN;
	if (limited && k->pids->tasks >= limit && count_of_user(k, t->cred->uid) >= limit)
		return -EAGAIN;
	return pid_alloc(k, a->set_tid_count ? a->set_tid[0] : 0, ret);
}

static void release_pid(struct kernel *k, struct pid_entry *e)
{
	MUTEX_GUARD(&k->tasklist_lock);

	e->reserved = false;
	pid_entry_drop(k, e);
}

/* ---- the child's state ---- */

static void copy_sched(struct task *t, struct task *c)
{
	c->nice = t->nice;
	c->sched_policy = t->sched_policy;
	c->sched_priority = t->sched_priority;
	c->misc = t->misc;
	if (c->misc.sched_flags & SCHED_FLAG_RESET_ON_FORK) {
		c->misc.sched_flags &= ~(u32)SCHED_FLAG_RESET_ON_FORK;
		c->sched_policy = SCHED_NORMAL;
		c->sched_priority = 0;
		c->nice = MAX(c->nice, 0);
	}
	mutex_lock(&t->lock);
	memcpy(c->affinity, t->affinity, sizeof(c->affinity));
	memcpy(c->comm, t->comm, sizeof(c->comm));
	mutex_unlock(&t->lock);
	c->timer_slack_ns = t->timer_slack_ns;
	c->misc.default_slack_ns = t->timer_slack_ns;
}

static void copy_plain(struct task *t, struct task *c, const struct clone_args_k *a)
{
	task_complete_regs(t);
	c->regs = t->regs;
	c->regs.rax = 0;
	c->regs.orig_rax = (u64)-1;
	if (a->stack)
		c->regs.rsp = a->stack + a->stack_size;
	if (a->flags & CLONE_SETTLS)
		c->regs.fs_base = a->tls;
	if (a->flags & CLONE_CHILD_CLEARTID)
		c->clear_child_tid = a->child_tid;
	copy_sched(t, c);
	c->sigmask = t->restore_sigmask ? t->saved_sigmask : t->sigmask;
	if (!(a->flags & CLONE_VM) || (a->flags & CLONE_VFORK))
		c->altstack = t->altstack;
	else
		c->altstack = (stack_t){ .ss_flags = SS_DISABLE };
	if (!(a->flags & CLONE_VM)) {
		c->rseq = t->rseq;
		c->rseq_len = t->rseq_len;
		c->rseq_sig = t->rseq_sig;
	}
	c->no_new_privs = t->no_new_privs;
	c->keep_caps = t->keep_caps;
	c->seccomp = seccomp_filter_get(t->seccomp);
	atomic_store(&c->seccomp_mode, atomic_load(&t->seccomp_mode));
	c->cred = cred_get(t->cred);
}

static int copy_mm(struct task *t, struct task *c, u64 flags)
{
	struct mm *mm;
	void *exe;
	int r;

	if (flags & CLONE_VM) {
		mm_user_get(t->mm);
		task_install_mm(c, mm_get(t->mm));
		return 0;
	}
	r = task_fork_mm(t, &mm);
	if (r < 0)
		return r;
	exe = mm_get_exe(t->mm, exec_exe_get);
	if (exe)
		mm_set_exe(mm, exe, exec_exe_put);
	mm_set_dumpable(mm, mm_dumpable(t->mm));
	task_install_mm(c, mm);
	c->minflt = 1; /* mm_fork has resolved the child's first one ahead */
	return 0;
}

static int copy_ns(struct task *t, struct task *c, u64 flags)
{
	if (!(flags & (CLONE_NEWNS | CLONE_NEWUTS))) {
		c->ns = nsproxy_get(t->ns);
		return 0;
	}
	return nsproxy_unshare(t->ns, flags, c->fs, &c->ns);
}

static int copy_shared(struct task *t, struct task *c, u64 flags)
{
	int r;

	c->fs = flags & CLONE_FS ? fs_context_get(t->fs) : fs_context_dup(t->fs);
	if (!c->fs)
		return -ENOMEM;
	c->fds = flags & CLONE_FILES ? fd_table_get(t->fds) : fd_table_dup(t->fds);
	if (!c->fds)
		return -ENOMEM;
	r = copy_ns(t, c, flags);
	return r < 0 ? r : copy_mm(t, c, flags);
}

/* The child's group: the parent's own for a thread, else a new one. A reference. */
static struct thread_group *child_group(struct task *t, const struct clone_args_k *a, int tgid)
{
	struct thread_group *ptg = t->tg, *tg;
	struct sighand *sh;

	if (a->flags & CLONE_THREAD)
		return thread_group_get(ptg);
	sh = a->flags & CLONE_SIGHAND ? sighand_get(ptg->sighand) : sighand_dup(ptg->sighand);
	if (!sh)
		return NULL;
	if (a->flags & CLONE_CLEAR_SIGHAND)
		sighand_reset_on_exec(sh);
	tg = thread_group_new(t->kernel, tgid, sh);
	sighand_put(sh);
	if (!tg)
		return NULL;
	mutex_lock(&ptg->limit_lock);
	memcpy(tg->limits, ptg->limits, sizeof(tg->limits));
	mutex_unlock(&ptg->limit_lock);
	atomic_store(&tg->oom_score_adj, atomic_load(&ptg->oom_score_adj));
	tg->exit_signal = a->exit_signal;
	return tg;
}

/* A whole unpublished child, or an errno and nothing. */
static int child_new(struct task *t, const struct clone_args_k *a, int tid, struct task **ret)
{
	struct thread_group *tg = child_group(t, a, tid);
	struct task *c;
	int r;

	if (!tg)
		return -ENOMEM;
	c = task_new(t->kernel, tg);
	/* A new group's first reference is for the pid table; task_discard drops it. */
	if (a->flags & CLONE_THREAD || !c)
		thread_group_put(tg);
	if (!c)
		return -ENOMEM;
	c->tid = tid;
	copy_plain(t, c, a);
	r = copy_shared(t, c, a->flags);
	if (r == 0 && (a->flags & CLONE_VFORK)) {
		c->vfork_done = vfork_new(t);
		if (!c->vfork_done)
			r = -ENOMEM;
	}
	*ret = c;
	return r;
}

/* An unpublished child goes again. */
static void child_discard(struct task *c, u64 flags)
{
	struct thread_group *tg = c->tg;

	task_drop_resources(c);
	vfork_put(c->vfork_done);
	c->vfork_done = NULL;
	if (!(flags & CLONE_THREAD))
		thread_group_put(tg);
	task_put(c);
}

/* ---- publishing ---- */

static void link_group_locked(struct clone_start *s)
{
	struct task *t = s->parent, *c = s->child;
	struct thread_group *tg = c->tg, *ptg = t->tg;
	bool sibling = s->args->flags & CLONE_PARENT;

	tg->leader = c;
	list_push_back(&tg->tasks, &c->group_node);
	tg->task_count = tg->present_count = 1;
	tg->parent = sibling ? ptg->parent : ptg;
	tg->parent_task = sibling ? ptg->parent_task : t;
	if (sibling)
		tg->exit_signal = ptg->exit_signal;
	if (tg->parent)
		list_push_back(&tg->parent->children, &tg->sibling);
	tg->pgrp = process_group_get(ptg->pgrp);
	list_push_back(&tg->pgrp->members, &tg->pgrp_node);
	tg->tty_detached = ptg->tty_detached;
	s->entry->tg = tg;
}

static int publish(struct clone_start *s)
{
	struct task *t = s->parent, *c = s->child;
	struct kernel *k = t->kernel;
	struct sighand *sh;

	MUTEX_GUARD(&k->tasklist_lock);

	sh = sighand_lock(t->tg);
	if (atomic_load(&t->killed) || t->tg->group_exiting || atomic_load(&k->shutting_down)) {
		sighand_unlock(sh);
		return -ERESTARTNOINTR; /* the parent is about to die */
	}
	if (s->args->flags & CLONE_THREAD) {
		list_push_back(&t->tg->tasks, &c->group_node);
		t->tg->task_count++;
		t->tg->present_count++;
	}
	sighand_unlock(sh);
	if (!(s->args->flags & CLONE_THREAD))
		link_group_locked(s);
	s->entry->reserved = false;
	s->entry->task = c;
	k->pids->tasks++;
	/* It looks for a stop under way before it first enters the guest. */
	atomic_store(&c->sig_pending, true);
	atomic_store(&c->state, TASK_RUNNING);
	ptrace_inherit_locked(t, c, s->event);
	return 0;
}

static int child_begin(struct clone_start *s)
{
	struct task *c = s->child;
	struct platform_context *ctx;
	int r = platform_context_new(mm_as(c->mm), &ctx);

	if (r < 0)
		return r == -ESRCH ? -EAGAIN : r;
	platform_set_xstate(ctx, s->xstate, s->xstate_size);
	mutex_lock(&c->lock);
	c->ctx = ctx;
	mutex_unlock(&c->lock);
	if (s->args->flags & CLONE_CHILD_SETTID)
		mm_copy_out(c->mm, s->args->child_tid, &c->tid, sizeof(c->tid));
	r = publish(s);
	if (r < 0) {
		mutex_lock(&c->lock);
		c->ctx = NULL;
		mutex_unlock(&c->lock);
		platform_context_free(ctx);
	}
	return r;
}

static void run_child(void *arg)
{
	struct task *c = arg;

	current_task = c;
	mm_settle(c->mm);
	task_run(c);
}

/* Where a context belongs to the thread that made it. */
static void begin_and_run_child(void *arg)
{
	struct clone_start *s = arg;
	struct task *c = s->child;
	struct kernel *k = c->kernel;
	int r = child_begin(s);

	s->result = r;
	atomic_store(&s->done, 1);
	/* s may be gone from here on: a wake of a stale word is harmless. */
	host_futex_wake(&s->done, 1, true);
	if (r == 0)
		run_child(c);
	else
		task_thread_gone(k);
}

static int begin_in_worker(struct clone_start *s, struct host_worker *w)
{
	host_worker_start(w, begin_and_run_child, s);
	while (!atomic_load(&s->done))
		host_futex_wait_until(&s->done, 0, NO_DEADLINE);
	return s->result;
}

/* Starts the child, published, on a thread of its own. */
static int child_start(struct clone_start *s)
{
	struct kernel *k = s->parent->kernel;
	struct host_worker *w;
	int r;

	s->xstate_size = platform_xstate_size(k->platform);
	s->xstate = malloc(s->xstate_size);
	if (!s->xstate)
		return -ENOMEM;
	platform_get_xstate(s->parent->ctx, s->xstate, s->xstate_size);
	task_get(s->child); /* the thread's */
	atomic_fetch_add(&k->pids->threads, 1);
	r = host_worker_get(&w);
	if (r < 0) {
		task_thread_gone(k);
		r = -EAGAIN;
	} else if (platform_contexts_bound(k->platform)) {
		r = begin_in_worker(s, w);
	} else {
		r = child_begin(s);
		if (r == 0) {
			host_worker_start(w, run_child, s->child);
		} else {
			host_worker_put(w);
			task_thread_gone(k);
		}
	}
	if (r < 0)
		task_put(s->child);
	free(s->xstate);
	return r;
}

/* ---- the parent's side ---- */

struct pidfd_slot {
	int fd;
	struct file *file;
};

static int pidfd_prepare(struct task *t, struct task *c, const struct clone_args_k *a,
			 struct pidfd_slot *ret)
{
	int r;

	ret->fd = -1;
	ret->file = NULL;
	if (!(a->flags & CLONE_PIDFD))
		return 0;
	r = fd_reserve(t->fds, 0, task_rlimit(t, RLIMIT_NOFILE));
	if (r < 0)
		return r;
	ret->fd = r;
	r = pidfd_new(c->tg, t->cred, 0, &ret->file);
	if (r == 0)
		r = copy_out(t, a->pidfd, &ret->fd, sizeof(ret->fd));
	return r;
}

static void pidfd_finish(struct task *t, struct pidfd_slot *s, bool ok)
{
	if (s->fd < 0)
		return;
	if (ok) {
		fd_install_reserved(t->fds, s->fd, s->file, true);
		return;
	}
	fd_release_reserved(t->fds, s->fd);
	if (s->file)
		file_put(s->file);
}

static int clone_event(const struct clone_args_k *a)
{
	if (a->flags & CLONE_UNTRACED)
		return 0;
	if (a->flags & CLONE_VFORK)
		return PTRACE_EVENT_VFORK;
	return a->exit_signal != SIGCHLD ? PTRACE_EVENT_CLONE : PTRACE_EVENT_FORK;
}

static void inherit_cpu_limit(struct task *c)
{
	if (task_rlimit(c, RLIMIT_CPU) != RLIM64_INFINITY)
		cpu_limit_changed(c->tg);
}

s64 task_clone(struct task *t, const struct clone_args_k *a)
{
	struct clone_start s = { .parent = t, .args = a, .event = clone_event(a) };
	struct vfork_done *vfork = NULL;
	struct pidfd_slot pidfd = { -1, NULL };
	int tid, r = check_flags(t, a);

	if (r < 0)
		return r;
	if (task_signal_pending(t))
		return -ERESTARTNOINTR;
	r = reserve_pid(t, a, &s.entry);
	if (r < 0)
		return r == -ENOMEM || r == -EEXIST ? r : -EAGAIN;
	tid = s.entry->nr;
	r = child_new(t, a, tid, &s.child);
	if (r == 0)
		r = pidfd_prepare(t, s.child, a, &pidfd);
	if (r == 0 && s.child->vfork_done) {
		vfork = s.child->vfork_done;
		refs_get(&vfork->refs);
	}
	if (r == 0) {
		if (a->flags & CLONE_PARENT_SETTID)
			copy_out(t, a->parent_tid, &tid, sizeof(tid));
		if (!(a->flags & CLONE_THREAD))
			inherit_cpu_limit(s.child);
		r = child_start(&s);
	}
	pidfd_finish(t, &pidfd, r == 0);
	if (r < 0) {
		vfork_put(vfork);
		if (s.child) {
			if (!(a->flags & CLONE_THREAD))
				group_timers_exit(s.child->tg);
			child_discard(s.child, a->flags);
		}
		release_pid(t->kernel, s.entry);
		return r;
	}
	atomic_fetch_add(&t->kernel->forks, 1);
	if (s.event)
		ptrace_event(t, s.event, (u64)tid);
	if (vfork) {
		vfork_wait(t, vfork);
		vfork_put(vfork);
		ptrace_event(t, PTRACE_EVENT_VFORK_DONE, (u64)tid);
	}
	return tid;
}
