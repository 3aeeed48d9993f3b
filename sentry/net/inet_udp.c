/* UDP on the loopback; see inet.h. */
#include "sentry/net/inet.h"
#include <stdlib.h>
#include <string.h>

#define UDP_MAX_PAYLOAD 65507
#define READ_EVENTS (EPOLLIN | EPOLLRDNORM)
#define WRITE_EVENTS (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)

static int udp_listen(struct socket *s, struct task *t, int backlog)
{
	return -EOPNOTSUPP;
}

static void disconnect(struct socket *s)
{
	MUTEX_GUARD(&s->lock);
	MUTEX_GUARD(&s->net->lock);
	s->in.udp_connected = false;
	s->in.remote = (struct inet_addr){ inet_any(s), 0 };
	if (!s->in.user_port)
		s->in.local.ip = inet_any(s);
}

static int udp_connect(struct socket *s, struct task *t, const struct sockaddr_storage *addr,
		       u32 len, bool nonblock)
{
	struct inet_addr to;
	int ret;

	if (len >= sizeof(sa_family_t) && addr->ss_family == AF_UNSPEC) {
		disconnect(s);
		return 0;
	}
	ret = inet_addr_parse(s, addr, len, &to);
	if (ret == 0)
		ret = inet_route(s, &to);
	if (ret == 0)
		ret = inet_autobind(s);
	if (ret < 0)
		return ret;
	MUTEX_GUARD(&s->lock);
	MUTEX_GUARD(&s->net->lock);
	if (inet_is_any(&s->in.local.ip))
		s->in.local.ip = inet_source(&to.ip);
	s->in.remote = to;
	s->in.udp_connected = true;
	return 0;
}

static int udp_send_begin(struct socket *s, struct task *t, struct sock_msg *m)
{
	struct inet_addr to, from;
	int ret = 0;

	if (m->flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (m->name_len)
		ret = inet_addr_parse(s, &m->name, m->name_len, &to);
	if (ret == 0 && m->name_len && to.port == 0)
		ret = -EINVAL;
	if (ret == 0 && m->name_len)
		ret = inet_route(s, &to);
	if (ret == 0)
		ret = inet_autobind(s);
	if (ret < 0)
		return ret;
	mutex_lock(&s->lock);
	mutex_lock(&s->net->lock);
	if (!m->name_len && !s->in.udp_connected)
		ret = -EDESTADDRREQ;
	if (!m->name_len)
		to = s->in.remote;
	from = s->in.local;
	mutex_unlock(&s->net->lock);
	mutex_unlock(&s->lock);
	if (ret < 0)
		return ret;
	if (inet_is_any(&from.ip))
		from.ip = inet_source(&to.ip);
	m->target = inet_lookup(s->net, SOCK_DGRAM, &to, &from);
	if (m->target) {
		struct sockaddr_storage ss;
		int len = inet_addr_format(m->target->family, &from, &ss);

		m->from = sock_name_new(&ss, (u32)len);
		if (!m->from)
			return -ENOBUFS;
	}
	return 0;
}

static ssize_t udp_send(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	size_t len = k->remaining;
	struct socket *to = m->target;
	struct sock_buf *b;
	bool queued = false;
	int ret = socket_take_error(s);

	if (ret)
		return -ret;
	if (s->shut & SHUT_SND)
		return -EPIPE;
	if (len > UDP_MAX_PAYLOAD)
		return -EMSGSIZE;
	if (!to) {
		/* Nobody there: a connected socket is told (ICMP), the next time it asks. */
		if (s->in.udp_connected) {
			mutex_lock(&s->lock);
			s->error = ECONNREFUSED;
			mutex_unlock(&s->lock);
			socket_wake(s, READ_EVENTS | EPOLLERR);
		}
		kiov_advance(k, len);
		return (ssize_t)len;
	}
	ret = record_fill(m, k, &b);
	if (ret < 0)
		return ret;
	b->from = sock_name_get(m->from);
	mutex_lock(&to->lock);
	/* A full or closed receiver loses it, as a network would. */
	if (!to->dead && !(to->shut & SHUT_RCV) &&
	    to->rq.cost + len + SOCK_BUF_OVERHEAD <= to->rcvbuf) {
		sock_queue_push(&to->rq, b);
		queued = true;
	}
	mutex_unlock(&to->lock);
	if (queued)
		socket_wake(to, READ_EVENTS);
	else
		sock_buf_free(b);
	return (ssize_t)len;
}

static u32 udp_poll(struct socket *s)
{
	u32 mask = WRITE_EVENTS, shut = s->shut;

	if (s->error)
		mask |= EPOLLERR;
	if (shut == SHUT_BOTH)
		mask |= EPOLLHUP;
	if (shut & SHUT_RCV)
		mask |= EPOLLRDHUP | READ_EVENTS;
	if (s->rq.cost)
		mask |= READ_EVENTS;
	return mask;
}

static int udp_shutdown(struct socket *s, int how)
{
	mutex_lock(&s->lock);
	bool connected = s->in.udp_connected;
	s->shut |= (u32)how;
	mutex_unlock(&s->lock);
	socket_wake(s, READ_EVENTS | WRITE_EVENTS | EPOLLRDHUP | EPOLLHUP);
	return connected ? 0 : -ENOTCONN;
}

static void udp_release(struct socket *s)
{
	struct list bufs;

	inet_unbind(s);
	list_init(&bufs);
	mutex_lock(&s->lock);
	s->dead = true;
	s->shut = SHUT_BOTH;
	sock_queue_take_all(&s->rq, &bufs);
	mutex_unlock(&s->lock);
	sock_buf_free_list(&bufs);
}

const struct sock_ops inet_udp_ops = {
	.bind = inet_bind,
	.listen = udp_listen,
	.connect = udp_connect,
	.name = inet_name,
	.send_begin = udp_send_begin,
	.send = udp_send,
	.recv = record_recv,
	.shutdown = udp_shutdown,
	.setsockopt = inet_setsockopt,
	.getsockopt = inet_getsockopt,
	.poll = udp_poll,
	.release = udp_release,
	.records = true,
};
