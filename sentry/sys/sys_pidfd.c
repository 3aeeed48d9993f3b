/* Other processes by descriptor, and what processes share: pidfds, unshare, setns, kcmp. */
#include "sentry/fd/pidfd.h"
#include "sentry/proc/procfs.h"
#include "sentry/sys/handlers.h"
#include "sentry/task/internal.h"

#include <linux/capability.h>
#include <linux/kcmp.h>
#include <linux/sched.h>
#include <string.h>

#define NS_UNSUPPORTED                                                                             \
	(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWCGROUP | CLONE_NEWTIME)
#define UNSHARE_FLAGS                                                                              \
	(CLONE_THREAD | CLONE_FS | CLONE_NEWNS | CLONE_SIGHAND | CLONE_VM | CLONE_FILES |          \
	 CLONE_SYSVSEM | CLONE_NEWUTS | CLONE_NEWUSER | NS_UNSUPPORTED)

s64 sys_pidfd_open(struct task *t, const u64 a[6])
{
	int pid = (int)a[0], r;
	struct thread_group *tg;
	struct file *f;

	if ((a[1] & 0xffffffff & ~(u64)O_NONBLOCK) || pid <= 0)
		return -EINVAL;
	tg = thread_group_find(t->kernel, pid);
	if (!tg) {
		struct task *thread = task_find(t->kernel, pid);

		task_put(thread);
		return thread ? -EINVAL : -ESRCH;
	}
	r = pidfd_new(tg, t->cred, (u32)a[1], &f);
	thread_group_put(tg);
	if (r < 0)
		return r;
	r = fd_install(t->fds, f, 0, true, task_rlimit(t, RLIMIT_NOFILE));
	if (r < 0)
		file_put(f);
	return r;
}

/* A pidfd argument: the file, referenced, and its group. */
static int pidfd_arg(struct task *t, int fd, struct file **ret, struct thread_group **ret_tg)
{
	struct file *f = fd_get(t->fds, fd);

	if (!f)
		return -EBADF;
	*ret_tg = pidfd_group(f);
	if (!*ret_tg) {
		file_put(f);
		return -EBADF;
	}
	*ret = f;
	return 0;
}

/* Instead of a descriptor: the caller's own thread, or its process. */
#define PIDFD_SELF_THREAD_ (-10000)
#define PIDFD_SELF_GROUP_ (-10001)

int sys_pidfd_arg(struct task *t, int fd, struct file **ret, struct thread_group **ret_tg)
{
	if (fd != PIDFD_SELF_THREAD_ && fd != PIDFD_SELF_GROUP_)
		return pidfd_arg(t, fd, ret, ret_tg);
	*ret = NULL;
	*ret_tg = t->tg;
	return 0;
}

/* Whom a signal is for: the thread that leads the group, the group (as without a flag), the process
 * group of its number. */
#define TO_THREAD 1u
#define TO_GROUP 2u
#define TO_PGRP 4u

static int pidfd_info(struct task *t, uaddr addr, int sig, u32 scope, struct thread_group *tg,
		      siginfo_t *ret)
{
	int r;

	if (addr.v == 0) {
		siginfo_user(ret, sig, scope == TO_THREAD ? SI_TKILL : SI_USER, t);
		return 0;
	}
	r = copy_in(t, ret, addr, sizeof(*ret));
	if (r < 0)
		return r;
	if (ret->si_signo != sig)
		return -EINVAL;
	if ((tg != t->tg || scope == TO_PGRP) && (ret->si_code >= 0 || ret->si_code == SI_TKILL))
		return -EPERM;
	return 0;
}

/* A pidfd, or a directory /proc/PID, which does too (killall uses it). */
static int signal_target_arg(struct task *t, int fd, struct file **ret,
			     struct thread_group **ret_tg)
{
	struct file *f = fd_get(t->fds, fd);
	struct thread_group *tg = f ? procfs_group_of(f) : NULL;

	if (!tg) {
		file_put(f);
		return sys_pidfd_arg(t, fd, ret, ret_tg);
	}
	*ret = f;
	*ret_tg = tg;
	return 0;
}

static int send_to_group(struct task *t, struct thread_group *tg, struct task *thread,
			 const siginfo_t *si)
{
	struct task *target = thread ? task_get(thread) : NULL;
	int r;

	if (!target) {
		mutex_lock(&t->kernel->tasklist_lock);
		target = tg->leader ? task_get(tg->leader) : NULL;
		mutex_unlock(&t->kernel->tasklist_lock);
	}
	r = target ? signal_may_send(t, target, si->si_signo) : -ESRCH;
	if (r == 0 && si->si_signo)
		r = thread ? signal_send_task(target, si) : signal_send_group(tg, si);
	task_put(target);
	return r;
}

static int send_scoped(struct task *t, int fd, struct thread_group *tg, u32 scope,
		       const siginfo_t *si)
{
	struct task *thread = NULL;
	int r;

	if (scope == TO_PGRP) /* 1 is the reaper, and -1 everybody */
		return tg->tgid > 1 ? signal_kill(t, -tg->tgid, si) : -ESRCH;
	if (scope != TO_THREAD)
		return send_to_group(t, tg, NULL, si);
	if (fd == PIDFD_SELF_THREAD_)
		return send_to_group(t, tg, t, si);
	thread = task_find(t->kernel, tg->tgid);
	r = thread ? send_to_group(t, tg, thread, si) : -ESRCH;
	task_put(thread);
	return r;
}

s64 sys_pidfd_send_signal(struct task *t, const u64 a[6])
{
	int sig = (int)a[1], r;
	u32 scope = (u32)a[3];
	struct thread_group *tg;
	struct file *f;
	siginfo_t si;

	if (scope & ~(TO_THREAD | TO_GROUP | TO_PGRP) || (scope & (scope - 1)))
		return -EINVAL;
	r = signal_target_arg(t, (int)a[0], &f, &tg);
	if (r < 0)
		return r;
	if (!scope && (int)a[0] == PIDFD_SELF_THREAD_)
		scope = TO_THREAD;
	r = pidfd_info(t, ua(a[2]), sig, scope, tg, &si);
	if (r == 0 && (sig < 0 || sig > SIGNAL_COUNT))
		r = -EINVAL;
	if (r == 0)
		r = send_scoped(t, (int)a[0], tg, scope, &si);
	file_put(f);
	return r;
}

static int getfd(struct task *t, struct thread_group *tg, int fd)
{
	struct task *target = thread_group_any_task(tg);
	struct fd_table *fds;
	struct file *f;
	int r;

	if (!target)
		return -ESRCH;
	r = ptrace_may_access(t, target);
	fds = r == 0 ? task_get_fds(target) : NULL;
	task_put(target);
	if (!fds)
		return r < 0 ? r : -ESRCH;
	f = fd_get_any(fds, fd);
	fd_table_put(fds);
	if (!f)
		return -EBADF;
	r = fd_install(t->fds, f, 0, true, task_rlimit(t, RLIMIT_NOFILE));
	if (r < 0)
		file_put(f);
	return r;
}

s64 sys_pidfd_getfd(struct task *t, const u64 a[6])
{
	struct thread_group *tg;
	struct file *f;
	int r;

	if ((u32)a[2])
		return -EINVAL;
	r = pidfd_arg(t, (int)a[0], &f, &tg);
	if (r < 0)
		return r;
	r = getfd(t, tg, (int)a[1]);
	file_put(f);
	return r;
}

/* ---- sharing ---- */

static bool alone(struct task *t)
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);

	return t->tg->task_count == 1;
}

static int unshare_ns(struct task *t, u64 flags)
{
	struct nsproxy *ns;
	int r = nsproxy_unshare(t->ns, flags, t->fs, &ns);

	if (r == 0)
		task_set_ns(t, ns);
	return r;
}

s64 sys_unshare(struct task *t, const u64 a[6])
{
	u64 flags = a[0];
	int r = 0;

	if (flags & ~(u64)UNSHARE_FLAGS)
		return -EINVAL;
	if (flags & CLONE_NEWUSER)
		return alone(t) ? -EPERM : -EINVAL;
	if ((flags & (CLONE_THREAD | CLONE_SIGHAND | CLONE_VM)) && !alone(t))
		return -EINVAL;
	if (flags & (CLONE_NEWNS | CLONE_NEWUTS | NS_UNSUPPORTED)) {
		if (!cred_capable(t->cred, CAP_SYS_ADMIN))
			return -EPERM;
		if (flags & NS_UNSUPPORTED)
			return -EINVAL;
	}
	if (flags & (CLONE_FS | CLONE_NEWNS))
		r = task_unshare_fs(t);
	if (r == 0 && (flags & CLONE_FILES))
		r = task_unshare_files(t);
	if (r == 0 && (flags & (CLONE_NEWNS | CLONE_NEWUTS)))
		r = unshare_ns(t, flags);
	return r;
}

/* The task enters another mount namespace at its root. */
static void enter_root(struct task *t, struct mount_ns *mnt)
{
	struct path root, old_root, old_cwd;

	mount_ns_root(mnt, &root);
	mutex_lock(&t->fs->lock);
	old_root = t->fs->root;
	old_cwd = t->fs->cwd;
	t->fs->root = root;
	t->fs->cwd = root;
	path_get(&root);
	mutex_unlock(&t->fs->lock);
	path_put(&old_root);
	path_put(&old_cwd);
}

static int setns_group(struct task *t, struct thread_group *tg, u64 kinds)
{
	struct task *target = thread_group_any_task(tg);
	struct nsproxy *from, *ns;
	int r;

	if (!target)
		return -ESRCH;
	r = ptrace_may_access(t, target);
	from = r == 0 ? task_get_ns(target) : NULL;
	task_put(target);
	if (!from)
		return r < 0 ? r : -ESRCH;
	ns = nsproxy_new(mount_ns_get(kinds & CLONE_NEWNS ? from->mnt : t->ns->mnt),
			 uts_ns_get(kinds & CLONE_NEWUTS ? from->uts : t->ns->uts));
	nsproxy_put(from);
	if (!ns)
		return -ENOMEM;
	if (kinds & CLONE_NEWNS)
		enter_root(t, ns->mnt);
	task_set_ns(t, ns);
	return 0;
}

s64 sys_setns(struct task *t, const u64 a[6])
{
	u64 kinds = (u32)a[1];
	struct thread_group *tg;
	struct file *f = fd_get(t->fds, (int)a[0]);
	int r = 0;

	if (!f)
		return -EBADF;
	tg = pidfd_group(f);
	if (!tg || !kinds || (kinds & ~(u64)(CLONE_NEWNS | CLONE_NEWUTS)))
		r = -EINVAL;
	else if (!cred_capable(t->cred, CAP_SYS_ADMIN))
		r = -EPERM;
	else if ((kinds & CLONE_NEWNS) && refs_read(&t->fs->refs) > 1)
		r = -EINVAL;
	else
		r = setns_group(t, tg, kinds);
	file_put(f);
	return r;
}

/* ---- kcmp ---- */

/* An order of objects that tells nothing about where they are. */
static int compare(struct kernel *k, const void *x, const void *y)
{
	u64 key, mix, vx, vy;

	memcpy(&key, k->random_bytes, sizeof(key));
	memcpy(&mix, k->random_bytes + 8, sizeof(mix));
	vx = ((u64)x ^ key) * (mix | 1);
	vy = ((u64)y ^ key) * (mix | 1);
	return vx == vy ? 0 : vx < vy ? 1 : 2;
}

static const void *file_of(struct task *t, int fd)
{
	struct fd_table *fds = task_get_fds(t);
	struct file *f = fds ? fd_get_any(fds, fd) : NULL;
	const void *id = f; /* only compared */

	if (f)
		file_put(f);
	fd_table_put(fds);
	return id;
}

static s64 kcmp_tasks(struct task *t, struct task *x, struct task *y, int type, const u64 a[6])
{
	struct kernel *k = t->kernel;
	const void *fx, *fy;

	switch (type) {
	case KCMP_FILE:
		fx = file_of(x, (int)a[3]);
		fy = file_of(y, (int)a[4]);
		return fx && fy ? compare(k, fx, fy) : -EBADF;
	case KCMP_VM:
		return compare(k, __atomic_load_n(&x->mm, __ATOMIC_RELAXED),
			       __atomic_load_n(&y->mm, __ATOMIC_RELAXED));
	case KCMP_FILES:
		return compare(k, __atomic_load_n(&x->fds, __ATOMIC_RELAXED),
			       __atomic_load_n(&y->fds, __ATOMIC_RELAXED));
	case KCMP_FS:
		return compare(k, __atomic_load_n(&x->fs, __ATOMIC_RELAXED),
			       __atomic_load_n(&y->fs, __ATOMIC_RELAXED));
	case KCMP_SIGHAND: return compare(k, x->tg->sighand, y->tg->sighand);
	case KCMP_IO:
	case KCMP_SYSVSEM: return compare(k, NULL, NULL); /* no such objects: all share none */
	case KCMP_EPOLL_TFD: return -EOPNOTSUPP;
	}
	return -EINVAL;
}

s64 sys_kcmp(struct task *t, const u64 a[6])
{
	struct task *x = task_find(t->kernel, (int)a[0]), *y = task_find(t->kernel, (int)a[1]);
	s64 r = -ESRCH;

	if (x && y) {
		r = ptrace_may_access(t, x);
		if (r == 0)
			r = ptrace_may_access(t, y);
		if (r == 0)
			r = kcmp_tasks(t, x, y, (int)a[2], a);
	}
	task_put(x);
	task_put(y);
	return r;
}
