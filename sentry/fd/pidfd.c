/* Descriptors of processes: see pidfd.h. */
#include "sentry/fd/pidfd.h"

#include "sentry/kernel/kernel.h"
#include "sentry/task/task.h"

#include <stdio.h>

static void pidfd_release(struct file *f)
{
	thread_group_put(f->private);
}

static u32 pidfd_poll(struct file *f)
{
	struct thread_group *tg = f->private;
	MUTEX_GUARD(&tg->kernel->tasklist_lock);

	if (tg->reaped)
		return EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	return tg->zombie ? EPOLLIN | EPOLLRDNORM : 0;
}

static struct waitq *pidfd_waitq(struct file *f)
{
	struct thread_group *tg = f->private;

	return &tg->exit_waitq;
}

static void pidfd_fdinfo(struct file *f, char *dst, size_t size)
{
	struct thread_group *tg = f->private;
	MUTEX_GUARD(&tg->kernel->tasklist_lock);
	int pid = tg->reaped ? -1 : tg->tgid;

	snprintf(dst, size, "Pid:\t%d\nNSpid:\t%d\n", pid, pid);
}

static const struct file_ops pidfd_ops = {
	.kind = "pidfd",
	.release = pidfd_release,
	.poll = pidfd_poll,
	.waitq = pidfd_waitq,
	.fdinfo = pidfd_fdinfo,
};

int pidfd_new(struct thread_group *tg, const struct cred *cred, u32 flags, struct file **ret)
{
	struct inode *inode;
	int r = vfs_anon_inode("pidfd", 0600, cred, &inode);

	if (r < 0)
		return r;
	r = file_new(inode, NULL, O_RDWR | (flags & O_NONBLOCK), cred, &pidfd_ops, tg, ret);
	inode_put(inode);
	if (r == 0)
		thread_group_get(tg);
	return r;
}

struct thread_group *pidfd_group(struct file *f)
{
	return f->ops == &pidfd_ops ? f->private : NULL;
}
