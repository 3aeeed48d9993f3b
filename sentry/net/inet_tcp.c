/* TCP on the loopback: connections are joined pairs; see inet.h, stream.c. */
#include "sentry/kernel/kernel.h"
#include "sentry/net/inet.h"
#include <string.h>

static int tcp_listen(struct socket *s, struct task *t, int backlog)
{
	struct net *net = s->net;
	struct socket *a;
	int ret;

	if (s->state != SOCK_CLOSED && s->state != SOCK_LISTENING)
		return -EINVAL;
	ret = inet_autobind(s);
	if (ret < 0)
		return ret == -EAGAIN ? -EADDRINUSE : ret;
	mutex_lock(&net->lock);
	list_for_each (a, &net->ports[s->in.local.port % NET_HASH], in.port_node)
		if (a != s && a->type == SOCK_STREAM && a->state == SOCK_LISTENING &&
		    a->in.local.port == s->in.local.port &&
		    !(a->in.reuse_port && s->in.reuse_port) &&
		    IN6_ARE_ADDR_EQUAL(&a->in.local.ip, &s->in.local.ip))
			ret = -EADDRINUSE;
	mutex_unlock(&net->lock);
	return ret < 0 ? ret : stream_listen(s, t, backlog);
}

struct connect_try {
	struct socket *l, *s, *server;
};

static s64 try_enqueue(void *arg)
{
	struct connect_try *c = arg;

	return stream_enqueue(c->l, c->s, c->server, MAX(c->l->backlog, (u32)NET_SOMAXCONN));
}

static void inherit(struct socket *server, struct socket *l)
{
	server->sndbuf = (u32)l->sndbuf;
	server->rcvbuf = (u32)l->rcvbuf;
	server->keepalive = (bool)l->keepalive;
	server->linger_on = (int)l->linger_on;
	server->linger_s = (int)l->linger_s;
	server->reuse_addr = (bool)l->reuse_addr;
	server->in.v6only = l->in.v6only;
	for (size_t i = 0; i < ARRAY_SIZE(server->in.opts->tcp); i++)
		server->in.opts->tcp[i] = (int)l->in.opts->tcp[i];
}

/* Finds the listener and joins: 0 or -errno; the caller has set s CONNECTING and s->in.remote. */
static int tcp_join(struct socket *s, struct task *t, bool nonblock)
{
	struct connect_try c = { .s = s };
	u64 timeout = s->snd_timeout_ns;
	s64 ret;

	c.l = inet_lookup(s->net, SOCK_STREAM, &s->in.remote, NULL);
	if (!c.l)
		return -ECONNREFUSED;
	c.server = socket_new(s->net, s->ops, c.l->family, SOCK_STREAM, IPPROTO_TCP);
	if (!c.server) {
		socket_put(c.l);
		return -ENOBUFS;
	}
	inherit(c.server, c.l);
	c.server->in.local = s->in.remote;
	c.server->in.remote = s->in.local;
	ret = task_block_on(t, &c.l->waitq, EPOLL_ROOM, nonblock,
			    timeout ? clock_monotonic_ns() + timeout : NO_DEADLINE, try_enqueue,
			    &c);
	if (ret < 0)
		socket_put(c.server);
	socket_put(c.l);
	if (ret == -EAGAIN)
		ret = -ETIMEDOUT;
	return ret == -ERESTARTSYS && timeout ? -EINTR : (int)ret;
}

/* Answers a connect while, or after, another one: 1 when a new attempt may begin. */
static int tcp_connect_state(struct socket *s)
{
	MUTEX_GUARD(&s->lock);
	switch (atomic_load(&s->state)) {
	case SOCK_CONNECTED:
		if (s->in.connect_pending) {
			s->in.connect_pending = false;
			return 0;
		}
		return -EISCONN;
	case SOCK_CONNECTING: return -EALREADY;
	case SOCK_LISTENING: return -EISCONN;
	default:
		if (s->in.connect_pending) {
			int err = atomic_exchange(&s->error, 0);

			s->in.connect_pending = false;
			return err ? -err : -ECONNABORTED;
		}
		s->state = SOCK_CONNECTING;
		return 1;
	}
}

static int tcp_connect(struct socket *s, struct task *t, const struct sockaddr_storage *addr,
		       u32 len, bool nonblock)
{
	struct inet_addr to;
	int ret;

	if (len >= sizeof(sa_family_t) && addr->ss_family == AF_UNSPEC)
		return s->state == SOCK_CLOSED ? 0 : -EOPNOTSUPP;
	ret = inet_addr_parse(s, addr, len, &to);
	if (ret < 0)
		return ret;
	ret = tcp_connect_state(s);
	if (ret <= 0)
		return ret;
	ret = inet_route(s, &to);
	if (ret == 0)
		ret = inet_autobind(s);
	if (ret == -EAGAIN)
		ret = -EADDRNOTAVAIL;
	if (ret == 0 && to.port == 0)
		ret = -ECONNREFUSED;
	if (ret == 0) {
		mutex_lock(&s->lock);
		mutex_lock(&s->net->lock);
		if (inet_is_any(&s->in.local.ip))
			s->in.local.ip = inet_source(&to.ip);
		s->in.remote = to;
		mutex_unlock(&s->net->lock);
		mutex_unlock(&s->lock);
		ret = tcp_join(s, t, nonblock);
	}
	mutex_lock(&s->lock);
	if (ret < 0)
		s->state = SOCK_CLOSED;
	/* A non-blocking caller hears the result from SO_ERROR, poll or a second connect. */
	if (nonblock && (ret == 0 || ret == -ECONNREFUSED || ret == -ETIMEDOUT)) {
		s->in.connect_pending = true;
		s->error = -ret;
		ret = -EINPROGRESS;
	}
	mutex_unlock(&s->lock);
	if (ret == -EINPROGRESS && s->error)
		socket_wake(s, EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP);
	return ret;
}

static int tcp_send_begin(struct socket *s, struct task *t, struct sock_msg *m)
{
	if (m->flags & MSG_FASTOPEN)
		return -EOPNOTSUPP;
	/* Urgent data travels in line. The name of a connected socket's peer is ignored. */
	return 0;
}

static void tcp_release(struct socket *s)
{
	inet_unbind(s);
	stream_release(s);
}

const struct sock_ops inet_tcp_ops = {
	.bind = inet_bind,
	.listen = tcp_listen,
	.connect = tcp_connect,
	.name = inet_name,
	.send_begin = tcp_send_begin,
	.send = stream_send,
	.recv = stream_recv,
	.shutdown = stream_shutdown,
	.setsockopt = inet_setsockopt,
	.getsockopt = inet_getsockopt,
	.poll = stream_poll,
	.release = tcp_release,
	.stream = true,
};
