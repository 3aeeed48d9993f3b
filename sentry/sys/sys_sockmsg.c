/* send*, recv*: messages of sockets. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sockmsg.h"
#include <stdlib.h>
#include <string.h>

#define READ_WAIT (EPOLLIN | EPOLLRDNORM | EPOLLRDHUP)
#define WRITE_WAIT (EPOLLOUT | EPOLLWRNORM | EPOLLRDHUP)

/* ---- moving the payload ---- */

struct transfer {
	struct task *t;
	struct socket *s;
	struct sock_msg *m;
	struct sys_iov *iov;
};

static ssize_t send_piece(void *arg, struct kiov *k)
{
	struct transfer *x = arg;
	ssize_t n = x->s->ops->send(x->s, x->m, k);

	if (n > 0)
		x->m->done += (size_t)n;
	return n;
}

static s64 send_try(void *arg)
{
	struct transfer *x = arg;

	if (x->iov->total == 0) {
		struct kiov none;

		kiov_init(&none, NULL, 0);
		return x->s->ops->send(x->s, x->m, &none);
	}
	return sys_iov_transfer(x->t, x->iov, x->m->done, false, x->s->ops->records, send_piece, x);
}

static void raise_sigpipe(struct task *t)
{
	siginfo_t si;

	siginfo_user(&si, SIGPIPE, SI_USER, t);
	signal_send_task(t, &si);
}

/* Sends iov as m says. Bytes or -errno. */
static s64 do_send(struct task *t, struct file *f, struct socket *s, struct sys_iov *iov,
		   struct sock_msg *m)
{
	struct transfer x = { t, s, m, iov };
	bool nonblock = (m->flags & MSG_DONTWAIT) || (file_flags(f) & O_NONBLOCK);
	u64 timeout = s->snd_timeout_ns, deadline = sock_deadline(timeout);
	s64 ret = s->ops->send_begin ? s->ops->send_begin(s, t, m) : 0;

	while (ret >= 0) {
		struct waitq *q = m->target ? &m->target->waitq : &s->waitq;

		ret = task_block_on(t, q, m->target ? EPOLL_ROOM : WRITE_WAIT, nonblock, deadline,
				    send_try, &x);
		if (ret <= 0 || s->ops->records || m->done >= iov->total)
			break;
	}
	socket_put(m->target);
	m->target = NULL;
	sock_name_put(m->from);
	m->from = NULL;
	if (m->done)
		return (s64)m->done;
	if (ret == -EPIPE && s->ops->stream && !(m->flags & MSG_NOSIGNAL))
		raise_sigpipe(t);
	return sock_intr(ret, timeout);
}

static ssize_t recv_piece(void *arg, struct kiov *k)
{
	struct transfer *x = arg;
	ssize_t n = x->s->ops->recv(x->s, x->m, k);

	if (n > 0)
		x->m->done += (size_t)n;
	return n;
}

/* Nothing to take: known without pinning guest memory. */
static bool recv_would_block(struct socket *s)
{
	if (!s->ops->records && s->state != SOCK_CONNECTED)
		return false;
	return s->rq.cost == 0 && s->error == 0 && !(s->shut & SHUT_RCV);
}

static s64 recv_try(void *arg)
{
	struct transfer *x = arg;
	struct socket *s = x->s;
	struct sys_iov part = *x->iov;
	size_t left = x->iov->total - x->m->done, have;
	s64 ret;

	if (x->iov->guest == x->iov->inline_seg)
		part.guest = part.inline_seg;
	if ((left || s->ops->records) && recv_would_block(s))
		return -EAGAIN;
	if (!left) {
		struct kiov none;

		kiov_init(&none, NULL, 0);
		x->m->room = 0;
		return s->ops->recv(s, x->m, &none);
	}
	x->m->room = x->iov->total;
	do {
		/* Pin no more than there is to be had. */
		have = s->ops->records ? record_next_len(s) : atomic_load(&s->rq.bytes);
		have = MAX(have, 1UL);
		part.total = MIN(x->iov->total, x->m->done + have);
		part.total = MIN(part.total, x->m->done + SYS_IOV_WHOLE_MAX);
		ret = sys_iov_transfer(x->t, &part, x->m->done, true, s->ops->records, recv_piece,
				       x);
	} while (ret == -EAGAIN && x->m->retry);
	return ret;
}

static s64 do_recv(struct task *t, struct file *f, struct socket *s, struct sys_iov *iov,
		   struct sock_msg *m)
{
	struct transfer x = { t, s, m, iov };
	bool nonblock = (m->flags & MSG_DONTWAIT) || (file_flags(f) & O_NONBLOCK);
	u64 timeout = s->rcv_timeout_ns, deadline = sock_deadline(timeout);
	s64 ret;

	if (m->flags & MSG_OOB)
		return s->family == AF_UNIX ? -EOPNOTSUPP : -EINVAL;
	if ((m->flags & MSG_ERRQUEUE) && s->family != AF_UNIX)
		return -EAGAIN;
	for (;;) {
		ret = task_block_on(t, &s->waitq, READ_WAIT, nonblock, deadline, recv_try, &x);
		if (ret <= 0 || m->stop || s->ops->records || m->done >= iov->total)
			break;
		if (!(m->flags & MSG_WAITALL) && s->rq.bytes == 0)
			break;
		if (!(m->flags & MSG_WAITALL))
			nonblock = true;
	}
	if (s->ops->records && ret >= 0)
		return m->flags & MSG_TRUNC ? (s64)m->real_len : ret;
	if (m->done)
		return (s64)m->done;
	return sock_intr(ret, timeout);
}

/* ---- one buffer ---- */

s64 sys_sendto(struct task *t, const u64 a[6])
{
	struct sock_msg m = { .flags = (int)a[3], .cred = sock_msg_cred(t) };
	struct sys_iov iov;
	struct socket *s;
	struct file *f;
	s64 ret = sys_iov_single(t, ua(a[1]), MIN(a[2], MAX_RW_COUNT), &iov);

	if (ret < 0)
		return ret;
	ret = sock_from_fd(t, (int)a[0], &f, &s);
	if (ret < 0) {
		sys_iov_free(&iov);
		return ret;
	}
	if (a[4]) {
		ret = sock_addr_in(t, ua(a[4]), a[5], &m.name);
		m.name_len = (u32)a[5];
	}
	if (ret == 0)
		ret = do_send(t, f, s, &iov, &m);
	file_put(f);
	sys_iov_free(&iov);
	return ret;
}

s64 sys_recvfrom(struct task *t, const u64 a[6])
{
	struct sock_msg m = { .flags = (int)a[3] };
	struct sys_iov iov;
	struct socket *s;
	struct file *f;
	s64 ret = sys_iov_single(t, ua(a[1]), MIN(a[2], MAX_RW_COUNT), &iov);

	if (ret < 0)
		return ret;
	ret = sock_from_fd(t, (int)a[0], &f, &s);
	if (ret < 0) {
		sys_iov_free(&iov);
		return ret;
	}
	ret = do_recv(t, f, s, &iov, &m);
	scm_fds_free(m.fds);
	if (ret >= 0 && a[4]) {
		int err = sock_addr_out(t, ua(a[4]), ua(a[5]), &m.name, m.name_len);

		if (err < 0)
			ret = err;
	}
	file_put(f);
	sys_iov_free(&iov);
	return ret;
}

/* ---- msghdr ---- */

static int msghdr_in(struct task *t, uaddr at, struct msghdr *h)
{
	if (copy_in(t, h, at, sizeof(*h)) < 0)
		return -EFAULT;
	if (h->msg_iovlen > UIO_MAXIOV)
		return -EMSGSIZE;
	if (!h->msg_name)
		h->msg_namelen = 0;
	if ((int)h->msg_namelen < 0)
		return -EINVAL;
	h->msg_namelen = MIN(h->msg_namelen, (u32)sizeof(struct sockaddr_storage));
	return 0;
}

static uaddr ua_of(const void *p)
{
	return ua((u64)(uintptr_t)p);
}

/* extra_flags: MSG_DONTWAIT of sendmmsg's later messages. */
static s64 send_one(struct task *t, struct file *f, struct socket *s, uaddr at, int flags)
{
	struct sock_msg m = { .flags = flags, .cred = sock_msg_cred(t) };
	struct msghdr h;
	struct sys_iov iov;
	s64 ret = msghdr_in(t, at, &h);

	if (ret < 0)
		return ret;
	if (h.msg_namelen) {
		ret = sock_addr_in(t, ua_of(h.msg_name), h.msg_namelen, &m.name);
		m.name_len = h.msg_namelen;
	}
	if (ret == 0)
		ret = sys_iov_import(t, ua_of(h.msg_iov), h.msg_iovlen, &iov);
	if (ret < 0)
		return ret;
	if (h.msg_control && h.msg_controllen)
		ret = sock_control_in(t, s, ua_of(h.msg_control), h.msg_controllen, &m);
	if (ret == 0)
		ret = do_send(t, f, s, &iov, &m);
	scm_fds_free(m.fds);
	sys_iov_free(&iov);
	return ret;
}

static s64 recv_one(struct task *t, struct file *f, struct socket *s, uaddr at, int flags)
{
	struct sock_msg m = { .flags = flags };
	struct msghdr h;
	struct sys_iov iov;
	u32 out_flags, name_len = 0;
	u64 control_len;
	s64 used, ret = msghdr_in(t, at, &h);

	if (ret == 0)
		ret = sys_iov_import(t, ua_of(h.msg_iov), h.msg_iovlen, &iov);
	if (ret < 0)
		return ret;
	ret = do_recv(t, f, s, &iov, &m);
	sys_iov_free(&iov);
	if (ret < 0) {
		scm_fds_free(m.fds);
		return ret;
	}
	used = sock_control_out(t, s, ua_of(h.msg_control), h.msg_controllen, &m);
	scm_fds_free(m.fds);
	if (used < 0)
		return used;
	control_len = (u64)used;
	if (h.msg_name) {
		name_len = m.name_len;
		if (copy_out(t, ua_of(h.msg_name), &m.name, MIN(name_len, h.msg_namelen)) < 0)
			return -EFAULT;
	}
	out_flags = m.out_flags | ((u32)flags & MSG_CMSG_CLOEXEC);
	if (copy_out(t, ua_add(at, offsetof(struct msghdr, msg_namelen)), &name_len,
		     sizeof(name_len)) < 0 ||
	    copy_out(t, ua_add(at, offsetof(struct msghdr, msg_flags)), &out_flags,
		     sizeof(out_flags)) < 0 ||
	    copy_out(t, ua_add(at, offsetof(struct msghdr, msg_controllen)), &control_len,
		     sizeof(control_len)) < 0)
		return -EFAULT;
	return ret;
}

s64 sys_sendmsg(struct task *t, const u64 a[6])
{
	struct socket *s;
	struct file *f;
	s64 ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	ret = send_one(t, f, s, ua(a[1]), (int)a[2]);
	file_put(f);
	return ret;
}

s64 sys_recvmsg(struct task *t, const u64 a[6])
{
	struct socket *s;
	struct file *f;
	s64 ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	ret = recv_one(t, f, s, ua(a[1]), (int)a[2]);
	file_put(f);
	return ret;
}

s64 sys_sendmmsg(struct task *t, const u64 a[6])
{
	u32 count = (u32)MIN(a[2], (u64)UIO_MAXIOV), done = 0;
	struct socket *s;
	struct file *f;
	s64 ret = sock_from_fd(t, (int)a[0], &f, &s);

	if (ret < 0)
		return ret;
	while (done < count) {
		uaddr at = ua_add(ua(a[1]), done * sizeof(struct mmsghdr));
		u32 len;

		ret = send_one(t, f, s, at, (int)a[3]);
		if (ret < 0)
			break;
		len = (u32)ret;
		done++;
		if (copy_out(t, ua_add(at, offsetof(struct mmsghdr, msg_len)), &len, sizeof(len)) <
		    0) {
			ret = -EFAULT;
			break;
		}
		if (task_signal_pending(t))
			break;
	}
	file_put(f);
	return done ? (s64)done : (count ? ret : 0);
}

s64 sys_recvmmsg(struct task *t, const u64 a[6])
{
	u32 count = (u32)MIN(a[2], (u64)UIO_MAXIOV), done = 0;
	u64 deadline = NO_DEADLINE;
	int flags = (int)a[3];
	struct socket *s;
	struct file *f;
	s64 ret;

	if (a[4] && (ret = sys_deadline_in(t, ua(a[4]), &deadline)) < 0)
		return ret;
	ret = sock_from_fd(t, (int)a[0], &f, &s);
	if (ret < 0)
		return ret;
	while (done < count) {
		uaddr at = ua_add(ua(a[1]), done * sizeof(struct mmsghdr));
		u32 len;

		ret = recv_one(t, f, s, at, flags & ~MSG_WAITFORONE);
		if (ret < 0)
			break;
		len = (u32)ret;
		done++;
		if (copy_out(t, ua_add(at, offsetof(struct mmsghdr, msg_len)), &len, sizeof(len)) <
		    0) {
			ret = -EFAULT;
			break;
		}
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (deadline != NO_DEADLINE && clock_monotonic_ns() >= deadline)
			break;
	}
	file_put(f);
	if (done && a[4] && deadline != NO_DEADLINE && sys_remaining_out(t, ua(a[4]), deadline) < 0)
		return -EFAULT;
	return done ? (s64)done : (count ? ret : 0);
}
