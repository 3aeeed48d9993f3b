#include "sentry/fd/eventfd.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#define READ_EVENTS (EPOLLIN | EPOLLRDNORM)
#define WRITE_EVENTS (EPOLLOUT | EPOLLWRNORM)

struct eventfd {
	struct mutex lock; /* RANK_PIPE */
	u64 count;	   /* lock; UINT64_MAX is never reached by writes */
	bool semaphore;
	struct waitq waitq;
};

static ssize_t counter_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct eventfd *e = f->private;
	u64 value;

	if (dst->remaining < sizeof(value))
		return -EINVAL;
	mutex_lock(&e->lock);
	if (!e->count) {
		mutex_unlock(&e->lock);
		return -EAGAIN;
	}
	value = e->semaphore ? 1 : e->count;
	e->count -= value;
	mutex_unlock(&e->lock);
	waitq_wake(&e->waitq, WRITE_EVENTS);
	return kiov_put(dst, &value, sizeof(value)) == sizeof(value) ? (ssize_t)sizeof(value)
								     : -EFAULT;
}

static ssize_t counter_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct eventfd *e = f->private;
	struct kiov in = *src;
	u64 value;

	if (src->remaining < sizeof(value))
		return -EINVAL;
	if (kiov_get(&in, &value, sizeof(value)) != sizeof(value))
		return -EFAULT;
	if (value == UINT64_MAX)
		return -EINVAL;
	mutex_lock(&e->lock);
	if (UINT64_MAX - e->count <= value) {
		mutex_unlock(&e->lock);
		return -EAGAIN;
	}
	e->count += value;
	mutex_unlock(&e->lock);
	*src = in;
	waitq_wake(&e->waitq, READ_EVENTS);
	return sizeof(value);
}

static u32 eventfd_poll(struct file *f)
{
	struct eventfd *e = f->private;
	u32 mask = 0;

	MUTEX_GUARD(&e->lock);
	if (e->count > 0)
		mask |= READ_EVENTS;
	if (e->count == UINT64_MAX)
		mask |= EPOLLERR;
	if (e->count < UINT64_MAX - 1)
		mask |= WRITE_EVENTS;
	return mask;
}

static struct waitq *eventfd_waitq(struct file *f)
{
	struct eventfd *e = f->private;

	return &e->waitq;
}

static void eventfd_release(struct file *f)
{
	struct eventfd *e = f->private;

	waitq_destroy(&e->waitq);
	mutex_destroy(&e->lock);
	free(e);
}

static void eventfd_fdinfo(struct file *f, char *dst, size_t size)
{
	struct eventfd *e = f->private;

	MUTEX_GUARD(&e->lock);
	snprintf(dst, size, "eventfd-count: %16llx\neventfd-semaphore: %d\n",
		 (unsigned long long)e->count, e->semaphore);
}

static const struct file_ops eventfd_ops = {
	.kind = "eventfd",
	.release = eventfd_release,
	.read = counter_read,
	.write = counter_write,
	.poll = eventfd_poll,
	.waitq = eventfd_waitq,
	.fdinfo = eventfd_fdinfo,
};

int eventfd_new(const struct cred *cred, u64 count, u32 flags, struct file **ret)
{
	struct eventfd *e = calloc(1, sizeof(*e));
	struct inode *inode;
	int err;

	if (!e)
		return -ENOMEM;
	mutex_init(&e->lock, RANK_PIPE, "eventfd");
	waitq_init(&e->waitq);
	e->count = count;
	e->semaphore = flags & EFD_SEMAPHORE;
	err = vfs_anon_inode("eventfd", 0600, cred, &inode);
	if (err == 0) {
		err = file_new(inode, NULL, O_RDWR | (flags & O_NONBLOCK), cred, &eventfd_ops, e,
			       ret);
		inode_put(inode);
	}
	if (err < 0) {
		waitq_destroy(&e->waitq);
		mutex_destroy(&e->lock);
		free(e);
	}
	return err;
}
