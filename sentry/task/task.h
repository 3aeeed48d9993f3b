/*
 * sentry/task/task.h: guest tasks, thread groups, process groups, sessions.
 *
 * A *task* is a guest thread: one sentry pthread that loops in task_run():
 * switch to the guest, serve what stopped it, deliver signals. A *thread
 * group* is a guest process. Thread groups belong to a process group, which
 * belongs to a session.
 *
 * States of a task: NEW -> RUNNING (in guest or in a handler) <-> BLOCKED (in
 * task_block) / STOPPED (job control) / TRACED (ptrace stop) -> ZOMBIE -> DEAD.
 *
 * Who may touch what: fields marked "own" are read and written by the task's
 * own thread only; "immutable" never change after task_new; "tasklist" is
 * kernel->tasklist_lock; "sighand" is tg->sighand->lock. Other tasks reach a
 * task through signals and task_wake.
 *
 * Sleeping: a handler registers a waiter with a queue, checks its condition,
 * and calls task_block. It holds no lock there. -ERESTARTSYS and friends go
 * back unchanged to the system-call exit path, which alone converts them.
 */
#ifndef MINISENTRY_SENTRY_TASK_TASK_H
#define MINISENTRY_SENTRY_TASK_TASK_H

#include "base/cred.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/waitq.h"
#include "mm/mm.h"
#include "platform/platform.h"
#include "sentry/signal/signal.h"
#include "vfs/path.h"
#include <pthread.h>
#include <sys/resource.h>

struct kernel;
struct fd_table;
struct task;
struct thread_group;

#define TASK_COMM_LEN 16
#define PID_LIMIT 4194304
/* The sandbox's reaper of orphans: no task, only a number that getppid() shows. Its children reap
 * themselves. */
#define PID_REAPER 1
/* The first program. */
#define PID_INIT 2

enum task_state {
	TASK_NEW,
	TASK_RUNNING,
	TASK_BLOCKED,
	TASK_STOPPED,
	TASK_TRACED,
	TASK_ZOMBIE,
	TASK_DEAD
};

/* cwd, root, umask: shared by CLONE_FS. */
struct fs_context {
	struct refs refs;
	struct mutex lock; /* RANK_FS_CONTEXT */
	struct path root, cwd;
	u32 umask;
};
struct fs_context *fs_context_new(const struct path *root, const struct path *cwd, u32 umask);
struct fs_context *fs_context_dup(struct fs_context *fs);
struct fs_context *fs_context_get(struct fs_context *fs);
void fs_context_put(struct fs_context *fs);

/* Small attributes that only system calls read and write. clone copies the whole struct; all "own".
 */
struct task_misc {
	u32 personality;
	u32 ioprio;	 /* ioprio_set; 0: default */
	u32 sched_flags; /* SCHED_FLAG_*, SCHED_RESET_ON_FORK as a flag */
	u64 sched_runtime, sched_deadline, sched_period; /* sched_setattr, as told */
	u64 default_slack_ns;				 /* PR_SET_TIMERSLACK 0 goes back to it */
	u32 mce_kill, io_flusher, tsc_mode;
	u32 mempolicy;	     /* MPOL_*; there is one node */
	bool mempolicy_node; /* its node mask holds node 0 */
};

/* Namespaces of a task. Immutable set, replaced as a whole by unshare/setns/clone. */
struct nsproxy {
	struct refs refs;
	struct mount_ns *mnt;
	struct uts_ns *uts;
};
struct uts_ns {
	struct refs refs;
	struct mutex lock; /* RANK_LEAF */
	char nodename[65], domainname[65];
};
struct nsproxy *nsproxy_get(struct nsproxy *ns);
void nsproxy_put(struct nsproxy *ns);

struct process_group {
	struct refs refs;
	struct kernel *kernel; /* immutable */
	int pgid;
	struct session *session; /* immutable, a reference */
	struct list members;	 /* tasklist: thread_group.pgrp_node */
};

struct session {
	struct refs refs;
	struct kernel *kernel; /* immutable */
	u32 pgrp_count;	       /* tasklist: leaves the pid table at zero */
	int sid;
	struct thread_group *leader; /* tasklist; NULL when gone */
	struct tty *tty; /* tasklist: controlling terminal, a reference; see sentry/tty/tty.h */
	struct process_group
		*tty_old_pgrp; /* tasklist, a reference: foreground group of a tty that hung up */
};

/* POSIX timers, itimers, cpu timers of a thread group: sentry/time. */
struct group_timers;

struct thread_group {
	struct refs refs;
	struct kernel *kernel;	/* immutable */
	int tgid;		/* immutable */
	struct task *leader;	/* tasklist (exec may change it) */
	struct list tasks;	/* tasklist: task.group_node */
	_Atomic int task_count; /* tasklist to write: live tasks */
	int present_count;	/* tasklist: tasks that have not been through exit_notify */
	struct thread_group
		*parent;      /* tasklist: who reaps it; NULL: the sandbox's reaper (PID_REAPER) */
	struct list children; /* tasklist: thread_group.sibling */
	struct list sibling;  /* tasklist */
	struct process_group *pgrp; /* tasklist, a reference */
	struct list pgrp_node;	    /* tasklist */
	bool did_exec;		    /* tasklist */
	bool is_subreaper;	    /* tasklist */
	bool tty_detached;	    /* tasklist: TIOCNOTTY; inherited by fork, cleared by setsid */
	int exit_signal;	    /* tasklist: sent to the parent when the group dies; -1 none */

	struct sighand *sighand;      /* immutable but for exec (sighand) */
	struct sigqueue_head pending; /* sighand: group-wide queue */
	bool group_exiting;	      /* sighand: exit_group or fatal signal under way */
	int exit_status;	      /* sighand: wait status of the group */
	struct task *exec_task;	      /* sighand: execs, waits for the others to die */
	/* job control; sighand */
	bool stop_pending, stopped;
	int stop_signal;
	u32 stop_gen;			       /* counts stops */
	bool notify_stopped, notify_continued; /* for wait4 WUNTRACED / WCONTINUED */
	struct waitq child_waitq;	       /* woken on any child's change of state */
	struct waitq exit_waitq;   /* woken when this group becomes a zombie: pidfds (EPOLLIN) */
	struct waitq signal_waitq; /* woken when a signal is queued: signalfd, sigtimedwait */

	struct mutex limit_lock;	      /* RANK_LEAF */
	struct rlimit64 limits[RLIM_NLIMITS]; /* limit_lock; a soft one alone is read without */
	struct group_timers *timers;	      /* created on first use; own lock */
	/* usage of dead threads and reaped children; tasklist */
	u64 dead_utime_ns, dead_stime_ns, child_utime_ns, child_stime_ns;
	u64 dead_minflt, dead_majflt, child_minflt, child_majflt, child_maxrss;
	u64 start_time_ns; /* immutable: CLOCK_MONOTONIC */
	_Atomic int oom_score_adj;
	_Atomic u32 membarrier; /* registered commands (MEMBARRIER_CMD_REGISTER_*); exec clears */
	struct task
		*parent_task; /* tasklist: the parent's thread that made it (__WNOTHREAD, pdeath) */
	int cont_notify; /* sighand: CLD_* that the next thread on its way out reports; 0 none */
	bool zombie;	 /* tasklist: all tasks have exited, the parent may wait for it */
	bool reaped;	 /* tasklist: waited for, no longer in the pid table */
	u64 dead_maxrss; /* tasklist: KiB, of exited threads' mms */
	u64 dead_nvcsw;	 /* tasklist */
};

struct task {
	struct refs refs;
	struct kernel *kernel;	 /* immutable */
	struct thread_group *tg; /* immutable */
	int tid;		 /* tasklist (exec of a non-leader takes the leader's) */
	struct list group_node;	 /* tasklist */
	_Atomic enum task_state state;

	/* own */
	struct user_regs_struct regs;
	struct platform_context *ctx;
	u64 syscall_nr; /* number being served; -1 outside */
	bool in_syscall;
	struct restart_block {
		s64 (*fn)(struct task *t, struct restart_block *rb); /* sys_restart_syscall */
		u64 arg[6];
	} restart;
	uaddr clear_child_tid, robust_list;
	u64 robust_list_len;
	int nice; /* own; read racy by others */
	u32 sched_policy, sched_priority;
	u64 affinity[16]; /* bit per cpu; atomic enough: written under RANK_TASK lock */
	u32 pdeath_signal;
	u64 timer_slack_ns;
	struct task_misc misc;	    /* own; children get a copy */
	_Atomic u32 futex_released; /* futex_release: 0 no, 1 under way, 2 done; PI waiters may
				       count on this owner only at 0 */
	uaddr rseq;
	u32 rseq_len, rseq_sig;

	struct mutex lock; /* RANK_TASK: mm, fs, fds, ns, cred, comm pointers as seen by others */
	struct mm *mm;	   /* own writes under lock; NULL once exiting */
	struct fs_context *fs;	  /* likewise */
	struct fd_table *fds;	  /* likewise */
	struct nsproxy *ns;	  /* likewise */
	const struct cred *cred;  /* likewise; others use task_get_cred */
	char comm[TASK_COMM_LEN]; /* lock */
	bool no_new_privs;	  /* own */
	bool keep_caps;

	/* signals */
	struct sigqueue_head pending; /* sighand: this thread's queue */
	u64 sigmask;		      /* own writes under sighand; others read under sighand */
	u64 saved_sigmask;	      /* own: for rt_sigsuspend, ppoll, pselect, epoll_pwait */
	bool restore_sigmask;	      /* own */
	stack_t altstack;	      /* own: ss_sp as guest address */
	_Atomic bool sig_pending;     /* hint: recalculate; set under sighand */
	_Atomic bool killed;	      /* SIGKILL or group exit: leave as soon as possible */
	u64 sigwait_set;	      /* sighand: what sigtimedwait waits for */

	_Atomic bool leaving; /* sighand to write: exit has begun, takes no more signals */
	bool stop_dequeued;   /* sighand: took a stop signal that no SIGCONT has undone */
	struct signal_frame_info fault; /* own: last fault, for frames */

	/* sleeping */
	_Atomic(struct task *) futex_wake_next; /* futex wake lists: NULL when on none */
	bool exiting;				/* own: the run loop leaves */
	_Atomic u32 wake;			/* futex word of task_block */

	/* vfork: the parent waits until the child execs or exits */
	struct vfork_done *vfork_done; /* own */
	int exit_code;		       /* wait status of this task */
	struct ptrace_state *ptrace;   /* tasklist and sighand to write: NULL unless traced */
	struct list tracees; /* tasklist: ptrace_state.node of those whom this task traces */
	int ptrace_inject;   /* sighand: signal that the tracer gave with its resume */
	u32 stop_seen;	     /* sighand: the group stop (tg->stop_gen) that a tracee has reported */
	int pre_exec_tid;    /* own: number before exec made it the leader */
	struct seccomp_filter *seccomp; /* lock; guest's own filters, sentry/task/seccomp_guest.h */
	_Atomic bool ids_stale;		/* task_ids_publish is due before guest code runs */
	_Atomic u32 seccomp_mode;

	/* accounting */
	u64 start_time_ns;
	_Atomic u64
		sys_tsc; /* time in handlers without sleep, in TSC ticks; read by task_cpu_times */
	u64 served_tsc;	 /* own: platform_context_served_tsc of former contexts */
	u64 prior_utime_ns;		    /* lock: of contexts before an exec */
	u64 final_utime_ns, final_stime_ns; /* tasklist: once exited */
	_Atomic u64 minflt, majflt;	    /* own writes; procfs reads */
	_Atomic u64 nvcsw, nivcsw;
	/* per-task scratch memory for handlers: no allocation on hot paths */
	char *scratch_path; /* PATH_MAX + some, own */
};

/* The running task of this sentry thread; NULL in service threads. */
extern __thread struct task *current_task;

/* The task's own copy of a table that CLONE_FILES or CLONE_FS shares (unshare, close_range). 0,
 * -ENOMEM. */
int task_unshare_files(struct task *t);
int task_unshare_fs(struct task *t);

struct task *task_get(struct task *t);
void task_put(struct task *t);
struct thread_group *thread_group_get(struct thread_group *tg);
void thread_group_put(struct thread_group *tg);

/* ---- blocking ---- */

#define NO_DEADLINE UINT64_MAX
/*
 * Sleeps until task_wake(t), an unblocked signal or kill, or `deadline_ns`
 * (CLOCK_MONOTONIC, absolute). Wakes recorded since the last task_block_prepare
 * count, so: prepare, check the condition, block. 0 = woken (check again),
 * -ETIMEDOUT, -ERESTARTSYS. The caller holds no lock.
 */
void task_block_prepare(struct task *t);
int task_block(struct task *t, u64 deadline_ns);
/* As task_block, but only a fatal signal ends it (uninterruptible but killable: vfork, exec).
 * -EINTR then. */
int task_block_killable(struct task *t, u64 deadline_ns);
void task_wake(struct task *t);
/* The bare sleep under all of them: until task_wake or the deadline, signals or not. 0 or
 * -ETIMEDOUT. */
int task_sleep(struct task *t, u64 deadline_ns);
/* A waiter whose callback is task_wake(current). */
void task_waiter_init(struct waiter *w, struct task *t, u32 events);
/*
 * The usual loop: calls try(arg) until it returns something other than -EAGAIN,
 * sleeping on q (NULL: q never changes, the -EAGAIN is returned) in between.
 * nonblock: returns -EAGAIN at once. A timeout gives -EAGAIN (sockets) - callers map it.
 */
s64 task_block_on(struct task *t, struct waitq *q, u32 events, bool nonblock, u64 deadline_ns,
		  s64 (*try)(void *arg), void *arg);
/* An unblocked, not ignored signal (or kill) is pending. */
bool task_signal_pending(struct task *t);
/* Makes t look at its signals: leaves the guest, or task_block. Any thread. */
void task_kick(struct task *t);

/* ---- life ---- */

/* Guest tasks alive at once (-EAGAIN beyond): with their stubs they leave a host of 32768 pids a
 * quarter for itself. Lower where the host grants less. */
#define TASK_COUNT_MAX 8192
/* By boot; host_room: host_task_room(). NULL: no memory. */
struct pid_table *pid_table_new(u64 host_room);
void pid_table_free(struct pid_table *pt);

struct clone_args_k {
	u64 flags; /* CLONE_* without the exit signal */
	uaddr pidfd, child_tid, parent_tid;
	int exit_signal;
	u64 stack, stack_size; /* stack 0: the parent's sp */
	u64 tls;
	int set_tid[8];
	size_t set_tid_count;
};
/* clone, fork, vfork, clone3: the child's tid or -errno. */
s64 task_clone(struct task *t, const struct clone_args_k *args);
/*
 * The first task of the first process (PID_INIT, own session and group): state
 * given by boot. Takes all references, on failure too; k->console becomes its
 * controlling terminal; then its thread starts.
 */
int task_spawn_init(struct kernel *k, struct mm *mm, struct fs_context *fs, struct fd_table *fds,
		    struct nsproxy *ns, const struct cred *cred,
		    const struct user_regs_struct *regs, const char *comm, struct task **ret);
/* Marks the calling task as exiting with a wait status; the run loop then leaves. */
void task_exit(struct task *t, int status);	  /* exit: this thread */
void task_group_exit(struct task *t, int status); /* exit_group: whole process */
/* Kills every other task of the group and waits for them (exec). 0 or -EINTR when we are killed. */
int task_exec_kill_others(struct task *t);
/* After exec: new mm, closed cloexec fds, reset handlers, comm, did_exec; releases a vfork parent.
 */
void task_exec_commit(struct task *t, struct mm *mm, const struct user_regs_struct *regs,
		      const char *comm, const struct cred *cred);
/* Snapshot of credentials; a reference. */
const struct cred *task_get_cred(struct task *t);
/* A set of namespaces; takes the references, on failure too. NULL: no memory. */
struct nsproxy *nsproxy_new(struct mount_ns *mnt, struct uts_ns *uts);
struct uts_ns *uts_ns_new(const char *nodename, const char *domainname);
struct uts_ns *uts_ns_get(struct uts_ns *u);
void uts_ns_put(struct uts_ns *u);
void task_set_ns(struct task *t, struct nsproxy *ns);	     /* own task; takes the reference */
struct nsproxy *task_get_ns(struct task *t);		     /* a reference or NULL; any thread */
void task_set_cred(struct task *t, const struct cred *cred); /* own task; takes the reference */
struct mm *task_get_mm(struct task *t);			     /* a reference or NULL; any thread */
struct fs_context *task_get_fs(struct task *t);		     /* likewise */
struct fd_table *task_get_fds(struct task *t);		     /* likewise */

/* ---- lookup; all return references or NULL ---- */
struct task *task_find(struct kernel *k, int tid);
struct thread_group *thread_group_find(struct kernel *k, int tgid);
/* The n-th live thread group with tgid > after; for /proc readdir. Returns tgid or 0. */
int thread_group_next(struct kernel *k, int after);
int task_next_in_group(struct thread_group *tg, int after); /* tid or 0 */
/* Calls fn for each thread group under the tasklist lock. */
void thread_group_for_each(struct kernel *k, void (*fn)(struct thread_group *tg, void *arg),
			   void *arg);
/* A live task of the group (the leader if alive), a reference; NULL when all are gone. */
struct task *thread_group_any_task(struct thread_group *tg);
/* Process groups; find returns a reference or NULL and takes the tasklist lock. put may not hold
 * it. */
struct process_group *process_group_find(struct kernel *k, int pgid);
struct process_group *process_group_get(struct process_group *pg);
void process_group_put(struct process_group *pg);
struct session *session_get(struct session *s);
void session_put(struct session *s); /* last: tty_session_free() */
int task_pgid(struct task *t);
int task_sid(struct task *t);
int task_ppid(struct task *t);

/* ---- limits, time ---- */
u64 task_rlimit(struct task *t, int resource); /* soft limit */
struct rlimit64 task_rlimit_both(struct task *t, int resource);
void task_mm_limits(struct task *t, struct mm_limits *ret);
/* Tells t's mm of its limits, for what no call of its own passes them: stack growth. Any thread. */
void task_limits_changed(struct task *t);
u64 clock_monotonic_ns(void);
u64 clock_realtime_ns(void);
/* User and system time of one task / of a whole group, living and dead threads. */
void task_cpu_times(struct task *t, u64 *ret_utime_ns, u64 *ret_stime_ns);
void thread_group_cpu_times(struct thread_group *tg, u64 *ret_utime_ns, u64 *ret_stime_ns);

/* ---- guest memory, of the current task ---- */
static inline int copy_in(struct task *t, void *dst, uaddr src, size_t len)
{
	return mm_copy_in(t->mm, dst, src, len);
}
static inline int copy_out(struct task *t, uaddr dst, const void *src, size_t len)
{
	return mm_copy_out(t->mm, dst, src, len);
}

#endif
