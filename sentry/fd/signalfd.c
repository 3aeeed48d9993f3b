#include "sentry/fd/signalfd.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

struct signalfd {
	_Atomic u64 mask;
};

static void fill(const siginfo_t *si, struct signalfd_siginfo *out)
{
	memset(out, 0, sizeof(*out));
	out->ssi_signo = (u32)si->si_signo;
	out->ssi_errno = si->si_errno;
	out->ssi_code = si->si_code;
	if (si->si_code == SI_TIMER) {
		out->ssi_tid = (u32)si->si_timerid;
		out->ssi_overrun = (u32)si->si_overrun;
		out->ssi_ptr = (u64)(uintptr_t)si->si_ptr;
		out->ssi_int = si->si_int;
		return;
	}
	if (si->si_code <= 0 || si->si_code == SI_KERNEL) {
		out->ssi_pid = (u32)si->si_pid;
		out->ssi_uid = si->si_uid;
		if (si->si_code == SI_QUEUE || si->si_code < SI_USER) {
			out->ssi_ptr = (u64)(uintptr_t)si->si_ptr;
			out->ssi_int = si->si_int;
		}
		return;
	}
	switch (si->si_signo) {
	case SIGCHLD:
		out->ssi_pid = (u32)si->si_pid;
		out->ssi_uid = si->si_uid;
		out->ssi_status = si->si_status;
		out->ssi_utime = (u64)si->si_utime;
		out->ssi_stime = (u64)si->si_stime;
		break;
	case SIGILL:
	case SIGFPE:
	case SIGSEGV:
	case SIGBUS:
	case SIGTRAP: out->ssi_addr = (u64)(uintptr_t)si->si_addr; break;
	case SIGPOLL:
		out->ssi_band = (u32)si->si_band;
		out->ssi_fd = si->si_fd;
		break;
	default:
		out->ssi_pid = (u32)si->si_pid;
		out->ssi_uid = si->si_uid;
		break;
	}
}

static ssize_t signalfd_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct signalfd *s = f->private;
	struct signalfd_siginfo out;
	ssize_t total = 0;

	if (dst->remaining < sizeof(out))
		return -EINVAL;
	while (dst->remaining >= sizeof(out)) {
		siginfo_t si;

		if (!current_task || signal_dequeue(current_task, s->mask, &si) <= 0)
			break;
		fill(&si, &out);
		ssize_t n = kiov_put(dst, &out, sizeof(out));
		if (n != (ssize_t)sizeof(out))
			return total ? total : -EFAULT;
		total += n;
	}
	return total ? total : -EAGAIN;
}

static u32 signalfd_poll(struct file *f)
{
	struct signalfd *s = f->private;

	if (current_task && (signal_pending_set(current_task) & s->mask))
		return EPOLLIN | EPOLLRDNORM;
	return 0;
}

static struct waitq *signalfd_waitq(struct file *f)
{
	return current_task ? &current_task->tg->signal_waitq : NULL;
}

static void signalfd_release(struct file *f)
{
	free(f->private);
}

static void signalfd_fdinfo(struct file *f, char *dst, size_t size)
{
	struct signalfd *s = f->private;

	snprintf(dst, size, "sigmask:\t%016llx\n", (unsigned long long)s->mask);
}

static const struct file_ops signalfd_ops = {
	.kind = "signalfd",
	.release = signalfd_release,
	.read = signalfd_read,
	.poll = signalfd_poll,
	.waitq = signalfd_waitq,
	.fdinfo = signalfd_fdinfo,
};

bool file_is_signalfd(struct file *f)
{
	return f->ops == &signalfd_ops;
}

void signalfd_set_mask(struct file *f, u64 mask)
{
	struct signalfd *s = f->private;

	s->mask = mask & ~(sigbit(SIGKILL) | sigbit(SIGSTOP));
	if (current_task)
		waitq_wake(&current_task->tg->signal_waitq, EPOLLIN | EPOLLRDNORM);
}

int signalfd_new(const struct cred *cred, u64 mask, u32 flags, struct file **ret)
{
	struct signalfd *s = calloc(1, sizeof(*s));
	struct inode *inode;
	int err;

	if (!s)
		return -ENOMEM;
	s->mask = mask & ~(sigbit(SIGKILL) | sigbit(SIGSTOP));
	err = vfs_anon_inode("signalfd", 0600, cred, &inode);
	if (err == 0) {
		err = file_new(inode, NULL, O_RDWR | (flags & O_NONBLOCK), cred, &signalfd_ops, s,
			       ret);
		inode_put(inode);
	}
	if (err < 0)
		free(s);
	return err;
}
