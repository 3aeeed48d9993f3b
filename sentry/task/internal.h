/*
 * sentry/task/internal.h: what the files of sentry/task and sentry/signal share
 * among themselves.
 *
 * Lock order: tasklist > sighand > task.lock. A group's list of tasks changes
 * under tasklist and sighand both, so either suffices to read it. References
 * are never put under the tasklist lock when the put could be the last: the
 * put_later list below collects them.
 */
#ifndef MINISENTRY_SENTRY_TASK_INTERNAL_H
#define MINISENTRY_SENTRY_TASK_INTERNAL_H

#include "base/tsc.h"
#include "base/avl.h"
#include "sentry/kernel/kernel.h"
#include "sentry/task/ptrace.h"
#include "sentry/task/task.h"

#include <signal.h>

/* After a wrap, low numbers stay with the programs that booted, as in Linux. */
#define PID_RESERVED 300

/* ---- pid.c: numbers. All under the tasklist lock. ---- */
struct pid_entry {
	struct avl_node node;
	int nr;
	bool reserved;		    /* allocated, its task not yet published */
	struct task *task;	    /* holds a reference */
	struct thread_group *tg;    /* holds a reference until reaped */
	struct process_group *pgrp; /* no reference: leaves with its last member */
	struct session *session;    /* likewise */
};
struct pid_table {
	struct avl_root root;
	int last;
	u32 entry_count;
	u32 limit;	     /* immutable: of threads */
	_Atomic u32 threads; /* sentry threads of tasks; futex word of kernel_kill_all */
	u32 tasks;	     /* published and not yet exited */
};
struct pid_entry *pid_lookup(struct kernel *k, int nr);
/* The first entry with nr > after, or NULL. */
struct pid_entry *pid_next(struct kernel *k, int after);
/* want 0: the next free number. -EAGAIN, -EEXIST, -ENOMEM. */
int pid_alloc(struct kernel *k, int want, struct pid_entry **ret);
/* Frees the entry once nothing refers to it. */
void pid_entry_drop(struct kernel *k, struct pid_entry *e);

/* ---- move.c ---- */
/* A child's mm by fork. A parent with much memory in use goes on in a stub of its own. */
int task_fork_mm(struct task *t, struct mm **ret);
/* mm_fault has said -ESTALE: t's mm goes back to the stub that it had, or forgets it. */
void task_go_home(struct task *t);

/* ---- task.c ---- */
struct task *task_new(struct kernel *k, struct thread_group *tg);
struct thread_group *thread_group_new(struct kernel *k, int tgid, struct sighand *sh);
/* Takes the task out of its group and the pid table; returns the table's reference for a later put.
 */
struct task *task_unhash_locked(struct task *t);
/* Leaves mm, fs, fds, ns (exit, failed clone). Own thread or not yet started. */
void task_drop_resources(struct task *t);
/* The same, but for a reference to the mm, which is returned: putting the last one empties a stub,
 * and that can wait until the parent has been told. May be NULL. */
struct mm *task_leave_resources(struct task *t);
/* Takes the reference and the user count that goes with it (a fresh mm has one). */
void task_install_mm(struct task *t, struct mm *mm);

/* ---- context.c ---- */
/* A context in as with the vector registers of `from`, whose owner the caller is; NULL: those of a
 * new program. 0, -ENOMEM, -ESRCH (a stub is dead). *ret is the caller's. */
int task_context_new(struct kernel *k, struct platform_as *as, struct platform_context *from,
		     struct platform_context **ret);
/* t goes on in ctx, its CPU time with it. Under t->lock. The former context, which the caller
 * frees. */
struct platform_context *task_change_context_locked(struct task *t, struct platform_context *ctx);

/* ---- group.c ---- */
/* Under tasklist: puts tg into pgrp pgid of its session, making it if needed. *ret_old: put it
 * later. */
int pgrp_join_locked(struct thread_group *tg, int pgid, struct session *s,
		     struct process_group **ret_old);
void pgrp_leave_locked(struct thread_group *tg, struct process_group **ret_old);
/* setsid: a session and group named after tg. */
int session_start_locked(struct thread_group *tg, struct process_group **ret_old);
/* No member has a parent outside the group but in its session (ignoring `without`). tasklist. */
bool pgrp_orphaned_locked(struct process_group *pg, struct thread_group *without);
/* SIGHUP and SIGCONT to the group if it is becoming orphaned with stopped members. tasklist. */
void pgrp_kill_if_orphaned_locked(struct process_group *pg, struct session *s,
				  struct thread_group *dying);

/* ---- run.c ---- */
void task_run(struct task *t);
/* The end of a task's thread; in exit.c. */
void task_finish(struct task *t);
void task_thread_gone(struct kernel *k);
/* fn(arg) on another thread, soon; by the caller itself when there is none. */
void task_do_behind(struct kernel *k, void (*fn)(void *arg), void *arg);

/* ---- clone.c ---- */
struct vfork_done {
	struct refs refs;
	_Atomic bool done;
	struct task *waiter; /* holds a reference */
};
void vfork_release(struct task *t); /* the child execs or exits */

/* ---- fs_context.c ---- */
/* A set with new namespaces by flags (CLONE_NEWNS, CLONE_NEWUTS); fs: whose paths move into a new
 * mount namespace, not shared with anybody. A reference. -ENOMEM, -ENOSPC. */
int nsproxy_unshare(struct nsproxy *ns, u64 flags, struct fs_context *fs, struct nsproxy **ret);

/* ---- exit.c / wait.c ---- */
/* A group without live tasks: removes it and its leader from every list. tasklist; puts happen
 * later. */
struct reap {
	struct task *leader;
	struct thread_group *tg;
	struct process_group *pgrp;
};
void thread_group_reap_locked(struct thread_group *tg, struct reap *ret);
/* Before that, when its parent has waited for it: what it used counts as its parent's children's.
 * What nobody waits for counts nowhere. */
void thread_group_waited_locked(struct thread_group *tg);
void reap_put(struct reap *r);
/* Wait status of a group without live tasks. */
int thread_group_status_locked(struct thread_group *tg);
/* Tells the parent of a state change (CLD_STOPPED, CLD_CONTINUED). tasklist. */
void notify_parent_stop_locked(struct thread_group *tg, int cld);
/* The death of tg. True when nobody will wait for it (reap now). tasklist. */
bool notify_parent_exit_locked(struct thread_group *tg);

/* Before t->regs is used for more than a call's number, arguments and result: gets the rest. */
static inline void task_complete_regs(struct task *t)
{
	if (t->ctx)
		platform_context_complete(t->ctx, &t->regs);
}

/*
 * Patched calls for ids and clocks are answered in the guest (platform_ids). Whoever changes what
 * they depend on (credentials, parent, seccomp, tracing) calls task_ids_changed afterwards, from
 * any thread; the task's own thread publishes the new ones when it next enters guest code.
 */
void task_ids_changed(struct task *t);
void task_ids_publish(struct task *t);

/* ---- signal ---- */
#define SIGNALS_STOP (sigbit(SIGSTOP) | sigbit(SIGTSTP) | sigbit(SIGTTIN) | sigbit(SIGTTOU))
#define SIGNALS_IGNORED_BY_DEFAULT                                                                 \
	(sigbit(SIGCONT) | sigbit(SIGCHLD) | sigbit(SIGWINCH) | sigbit(SIGURG))
/* Queued signals one queue holds at most, whatever RLIMIT_SIGPENDING says. */
#define SIGQUEUE_MAX 65536
/* And all queues together: beyond, real-time signals are refused and standard ones lose their
 * details. */
#define SIGQUEUE_TOTAL_MAX 262144
bool sigqueue_full(const struct sigqueue_head *q, size_t limit);
/* Marks the signal; false when its details could not be kept (limit, memory). */
bool sigqueue_push(struct sigqueue_head *q, const siginfo_t *info, size_t limit);
void sigqueue_take(struct sigqueue_head *q, int sig, siginfo_t *ret);
int sigqueue_synchronous(struct sigqueue_head *q, u64 mask);
int signal_dequeue_locked(struct task *t, u64 mask, siginfo_t *ret);
/* Sends with tg's sighand lock held. */
int signal_send_locked(struct task *t, struct thread_group *tg, const siginfo_t *info);
/* Sets t's hint from the queues; sighand held. */
void signal_recalc_locked(struct task *t);
/* Every other thread of tg must leave; sighand held. */
void signal_kill_others_locked(struct thread_group *tg, struct task *except);
bool signal_begin_group_exit_locked(struct thread_group *tg, int status, struct task *self);
/* A thread leaves while the group is stopping: may complete the stop. tasklist + sighand not held.
 */
void signal_stop_recheck(struct thread_group *tg);
/* Others that could take the group's signals of `set`, which t will not. */
void signal_retarget_locked(struct task *t, u64 set);
/* Participates in a group stop; called with the sighand locked, returns with it unlocked. */
void signal_group_stop(struct task *t, struct sighand *sh);

#endif
