/* Processes and threads: clone, exit, wait, numbers, groups and sessions. */
#include "sentry/fd/pidfd.h"
#include "sentry/sys/handlers.h"
#include "sentry/task/internal.h"
#include "sentry/task/wait.h"
#include "sentry/tty/tty.h"

#include <limits.h>
#include <linux/sched.h>
#include <string.h>
#include <sys/wait.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#define GUEST_ADDR_END 0x7ffffffff000UL
#define CLONE_LEGACY_FLAGS 0xffffffffULL
#define SET_TID_LEVELS_MAX 32

/* ---- clone ---- */

s64 sys_clone(struct task *t, const u64 a[6])
{
	struct clone_args_k args = {
		.flags = (u32)a[0] & ~(u64)CSIGNAL,
		.exit_signal = (int)(a[0] & CSIGNAL),
		.stack = a[1],
		.parent_tid = ua(a[2]),
		.pidfd = ua(a[2]),
		.child_tid = ua(a[3]),
		.tls = a[4],
	};

	return task_clone(t, &args);
}

s64 sys_fork(struct task *t, const u64 a[6])
{
	struct clone_args_k args = { .exit_signal = SIGCHLD };

	return task_clone(t, &args);
}

s64 sys_vfork(struct task *t, const u64 a[6])
{
	struct clone_args_k args = { .flags = CLONE_VFORK | CLONE_VM, .exit_signal = SIGCHLD };

	return task_clone(t, &args);
}

/* Reads a struct that may be shorter or, with zeros at the end, longer than ours. */
static int clone_args_in(struct task *t, uaddr addr, u64 size, struct clone_args *ret)
{
	char rest[256];
	u64 done = sizeof(*ret);
	int r;

	if (size > PAGE_SIZE)
		return -E2BIG;
	if (size < CLONE_ARGS_SIZE_VER0)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	r = copy_in(t, ret, addr, MIN(size, sizeof(*ret)));
	while (r == 0 && done < size) {
		u64 n = MIN(size - done, sizeof(rest));

		r = copy_in(t, rest, ua_add(addr, done), n);
		for (u64 i = 0; r == 0 && i < n; i++)
			if (rest[i])
				r = -E2BIG;
		done += n;
	}
	return r;
}

static int clone3_check(const struct clone_args *c, u64 size)
{
	if (c->flags & ~(CLONE_LEGACY_FLAGS | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP))
		return -EINVAL;
	if (c->flags & (CLONE_DETACHED | (CSIGNAL & ~(u64)CLONE_NEWTIME)))
		return -EINVAL;
	if ((c->flags & (CLONE_SIGHAND | CLONE_CLEAR_SIGHAND)) ==
	    (CLONE_SIGHAND | CLONE_CLEAR_SIGHAND))
		return -EINVAL;
	if ((c->flags & (CLONE_THREAD | CLONE_PARENT)) && c->exit_signal)
		return -EINVAL;
	if (c->exit_signal > SIGNAL_COUNT)
		return -EINVAL;
	if (!c->stack != !c->stack_size || c->stack > GUEST_ADDR_END ||
	    c->stack_size > GUEST_ADDR_END - c->stack)
		return -EINVAL;
	if (c->set_tid_size > SET_TID_LEVELS_MAX || !c->set_tid != !c->set_tid_size)
		return -EINVAL;
	if ((c->flags & CLONE_INTO_CGROUP) && (c->cgroup > INT_MAX || size < CLONE_ARGS_SIZE_VER2))
		return -EINVAL;
	return 0;
}

s64 sys_clone3(struct task *t, const u64 a[6])
{
	struct clone_args c;
	struct clone_args_k args;
	int r = clone_args_in(t, ua(a[0]), a[1], &c);

	if (r == 0)
		r = clone3_check(&c, a[1]);
	if (r < 0)
		return r;
	args = (struct clone_args_k){
		.flags = c.flags,
		.pidfd = ua(c.pidfd),
		.child_tid = ua(c.child_tid),
		.parent_tid = ua(c.parent_tid),
		.exit_signal = (int)c.exit_signal,
		.stack = c.stack,
		.stack_size = c.stack_size,
		.tls = c.tls,
		.set_tid_count = c.set_tid_size,
	};
	if (c.set_tid_size > ARRAY_SIZE(args.set_tid))
		return -EINVAL;
	if (c.set_tid_size) {
		r = copy_in(t, args.set_tid, ua(c.set_tid), c.set_tid_size * sizeof(int));
		if (r < 0)
			return r;
	}
	return task_clone(t, &args);
}

/* ---- the end ---- */

s64 sys_exit(struct task *t, const u64 a[6])
{
	task_exit(t, (int)(a[0] & 0xff) << 8);
	return 0;
}

s64 sys_exit_group(struct task *t, const u64 a[6])
{
	task_group_exit(t, (int)(a[0] & 0xff) << 8);
	return 0;
}

/* ---- wait ---- */

static void wait_select(struct task *t, int pid, struct wait_request *q)
{
	q->kind = pid == -1 ? WAIT_FOR_ANY : pid > 0 ? WAIT_FOR_PID : WAIT_FOR_PGID;
	q->id = pid > 0 ? pid : pid == 0 ? task_pgid(t) : -pid;
}

s64 sys_wait4(struct task *t, const u64 a[6])
{
	int pid = (int)a[0], options = (int)a[2], r;
	struct wait_request q = { .options = options | WEXITED };
	struct wait_result res;
	s64 got;

	if (options & ~(WNOHANG | WUNTRACED | WCONTINUED | (int)(__WNOTHREAD | __WCLONE | __WALL)))
		return -EINVAL;
	if (pid == INT_MIN)
		return -ESRCH;
	wait_select(t, pid, &q);
	got = task_wait(t, &q, &res);
	if (got <= 0)
		return got;
	if (a[1]) {
		r = copy_out(t, ua(a[1]), &res.status, sizeof(res.status));
		if (r < 0)
			return r;
	}
	if (a[3]) {
		r = copy_out(t, ua(a[3]), &res.usage, sizeof(res.usage));
		if (r < 0)
			return r;
	}
	return got;
}

/* The start of siginfo_t as waitid fills it. */
struct wait_info {
	s32 signo, err, code, pad;
	s32 pid, uid, status;
};

static s64 waitid_out(struct task *t, const u64 a[6], s64 got, const struct wait_result *res)
{
	struct wait_info info = { 0 };
	int r = 0;

	if (got > 0) {
		info = (struct wait_info){ .signo = SIGCHLD,
					   .code = res->cld_code,
					   .pid = res->pid,
					   .uid = res->uid,
					   .status = res->cld_status };
		if (a[4])
			r = copy_out(t, ua(a[4]), &res->usage, sizeof(res->usage));
	}
	if (r == 0 && a[2])
		r = copy_out(t, ua(a[2]), &info, sizeof(info));
	return r;
}

/* P_PIDFD: the file is held by the caller. */
static int waitid_pidfd(struct task *t, int fd, struct wait_request *q, struct file **ret,
			bool *ret_nonblock)
{
	struct file *f;

	if (fd < 0)
		return -EINVAL;
	f = fd_get(t->fds, fd);
	if (!f)
		return -EBADF;
	q->kind = WAIT_FOR_GROUP;
	q->group = pidfd_group(f);
	if (!q->group) {
		file_put(f);
		return -EBADF;
	}
	*ret_nonblock = (file_flags(f) & O_NONBLOCK) && !(q->options & WNOHANG);
	if (*ret_nonblock)
		q->options |= WNOHANG;
	*ret = f;
	return 0;
}

s64 sys_waitid(struct task *t, const u64 a[6])
{
	int id = (int)a[1], options = (int)a[3], r = 0;
	struct wait_request q = { .options = options };
	struct wait_result res;
	struct file *f = NULL;
	bool nonblock = false;
	s64 got;

	if (options & ~(WNOHANG | WNOWAIT | WEXITED | WSTOPPED | WCONTINUED |
			(int)(__WNOTHREAD | __WCLONE | __WALL)))
		return -EINVAL;
	if (!(options & (WEXITED | WSTOPPED | WCONTINUED)))
		return -EINVAL;
	switch ((int)a[0]) {
	case P_ALL: q.kind = WAIT_FOR_ANY; break;
	case P_PID:
		if (id <= 0)
			return -EINVAL;
		q.kind = WAIT_FOR_PID;
		q.id = id;
		break;
	case P_PGID:
		if (id < 0)
			return -EINVAL;
		q.kind = WAIT_FOR_PGID;
		q.id = id ? id : task_pgid(t);
		break;
	case P_PIDFD: r = waitid_pidfd(t, id, &q, &f, &nonblock); break;
	default: return -EINVAL;
	}
	if (r < 0)
		return r;
	got = task_wait(t, &q, &res);
	if (f)
		file_put(f);
	if (got == 0 && nonblock)
		return -EAGAIN;
	return got < 0 ? got : waitid_out(t, a, got, &res);
}

/* ---- numbers ---- */

s64 sys_getpid(struct task *t, const u64 a[6])
{
	return t->tg->tgid;
}

s64 sys_gettid(struct task *t, const u64 a[6])
{
	return t->tid;
}

s64 sys_getppid(struct task *t, const u64 a[6])
{
	return task_ppid(t);
}

s64 sys_set_tid_address(struct task *t, const u64 a[6])
{
	t->clear_child_tid = ua(a[0]);
	return t->tid;
}

/* The group of a pid argument (0: the caller's), tasklist held; NULL: no such process. */
static struct thread_group *group_of_locked(struct task *t, int pid)
{
	struct pid_entry *e;

	if (pid == 0)
		return t->tg;
	e = pid < 0 ? NULL : pid_lookup(t->kernel, pid);
	if (!e || (!e->tg && !e->task))
		return NULL;
	return e->tg ? e->tg : e->task->tg;
}

s64 sys_getpgid(struct task *t, const u64 a[6])
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);
	struct thread_group *tg = group_of_locked(t, (int)a[0]);

	return tg && tg->pgrp ? tg->pgrp->pgid : -ESRCH;
}

s64 sys_getpgrp(struct task *t, const u64 a[6])
{
	return task_pgid(t);
}

s64 sys_getsid(struct task *t, const u64 a[6])
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);
	struct thread_group *tg = group_of_locked(t, (int)a[0]);

	return tg && tg->pgrp ? tg->pgrp->session->sid : -ESRCH;
}

static int setpgid_locked(struct task *t, int pid, int pgid, struct process_group **ret_old)
{
	struct pid_entry *e = pid_lookup(t->kernel, pid);
	struct thread_group *tg = e ? e->tg : NULL;
	struct session *s = t->tg->pgrp->session;

	if (!tg && e && e->task)
		return -EINVAL; /* a thread, not a process */
	if (!tg || !tg->pgrp)
		return -ESRCH;
	if (tg->parent == t->tg && tg != t->tg) {
		if (tg->pgrp->session != s)
			return -EPERM;
		if (tg->did_exec)
			return -EACCES;
	} else if (tg != t->tg) {
		return -ESRCH;
	}
	if (tg->pgrp->session->leader == tg)
		return -EPERM;
	if (pgid != pid) {
		e = pid_lookup(t->kernel, pgid);
		if (!e || !e->pgrp || e->pgrp->session != s)
			return -EPERM;
	}
	if (tg->pgrp->pgid == pgid)
		return 0;
	return pgrp_join_locked(tg, pgid, s, ret_old);
}

s64 sys_setpgid(struct task *t, const u64 a[6])
{
	int pid = (int)a[0] ? (int)a[0] : t->tg->tgid, pgid = (int)a[1] ? (int)a[1] : pid, r;
	struct process_group *old = NULL;

	if (pgid < 0)
		return -EINVAL;
	mutex_lock(&t->kernel->tasklist_lock);
	r = setpgid_locked(t, pid, pgid, &old);
	mutex_unlock(&t->kernel->tasklist_lock);
	process_group_put(old);
	return r;
}

s64 sys_setsid(struct task *t, const u64 a[6])
{
	struct thread_group *tg = t->tg;
	struct process_group *old = NULL;
	struct pid_entry *e;
	s64 r = -EPERM;

	mutex_lock(&t->kernel->tasklist_lock);
	e = pid_lookup(t->kernel, tg->tgid);
	if (tg->pgrp->session->leader != tg && !e->pgrp && !e->session)
		r = session_start_locked(tg, &old);
	mutex_unlock(&t->kernel->tasklist_lock);
	process_group_put(old);
	if (r < 0)
		return r;
	tty_setsid(tg);
	return tg->tgid;
}
