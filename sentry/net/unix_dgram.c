/* Unix datagram sockets; see socket.h. */
#include "sentry/net/socket.h"
#include "sentry/net/unix_gc.h"
#include <stdlib.h>
#include <string.h>

#define WRITE_EVENTS (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)

/* Serialises changes of who is connected to whom; taken before socket locks. */
static struct mutex link_lock = MUTEX_INIT(RANK_SOCKET, "unix_dgram_links");

/* Connects s to `to` (NULL: to nothing); takes to's reference. */
static void set_peer(struct socket *s, struct socket *to)
{
	struct socket *old;

	mutex_lock(&link_lock);
	mutex_lock_nested(&s->lock);
	old = s->un.dgram_peer;
	s->un.dgram_peer = to;
	mutex_unlock(&s->lock);
	if (old) {
		mutex_lock_nested(&old->lock);
		list_del(&s->un.sender_node);
		mutex_unlock(&old->lock);
	}
	if (to) {
		mutex_lock_nested(&to->lock);
		list_push_back(&to->un.senders, &s->un.sender_node);
		mutex_unlock(&to->lock);
	}
	mutex_unlock(&link_lock);
	socket_put(old);
}

/* A reference or NULL. */
static struct socket *get_peer(struct socket *s)
{
	MUTEX_GUARD(&s->lock);
	return s->un.dgram_peer ? socket_get(s->un.dgram_peer) : NULL;
}

/* A connected socket receives only from its peer. to->lock held. */
static bool accepts_from(struct socket *to, struct socket *s)
{
	return !to->un.dgram_peer || to->un.dgram_peer == s;
}

static bool is_full(struct socket *to, struct socket *s, size_t len)
{
	if (to->un.dgram_peer != s && to->rq.count > UNIX_DGRAM_QLEN)
		return true;
	return to->rq.cost && to->rq.cost + len + SOCK_BUF_OVERHEAD > s->sndbuf;
}

static int dgram_connect(struct socket *s, struct task *t, const struct sockaddr_storage *addr,
			 u32 len, bool nonblock)
{
	struct socket *to;
	int ret;

	if (len >= sizeof(sa_family_t) && addr->ss_family == AF_UNSPEC) {
		set_peer(s, NULL);
		return 0;
	}
	ret = unix_addr_check(addr, len);
	if (ret < 0)
		return ret;
	if (s->passcred && !s->un.bound && (ret = unix_autobind(s)) < 0)
		return ret;
	ret = unix_find(s, t, addr, len, &to);
	if (ret < 0)
		return ret;
	mutex_lock(&to->lock);
	if (to->dead)
		ret = -ECONNREFUSED;
	else if (!accepts_from(to, s))
		ret = -EPERM;
	mutex_unlock(&to->lock);
	if (ret < 0) {
		socket_put(to);
		return ret;
	}
	set_peer(s, to);
	socket_wake(s, WRITE_EVENTS);
	return 0;
}

static int dgram_send_begin(struct socket *s, struct task *t, struct sock_msg *m)
{
	int ret;

	if (m->flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (s->passcred && !s->un.bound && (ret = unix_autobind(s)) < 0)
		return ret;
	if (m->name_len) {
		ret = unix_addr_check(&m->name, m->name_len);
		if (ret == 0)
			ret = unix_find(s, t, &m->name, m->name_len, &m->target);
		if (ret < 0)
			return ret;
	} else {
		m->target = get_peer(s);
		if (!m->target)
			return -ENOTCONN;
	}
	MUTEX_GUARD(&s->lock);
	m->from = sock_name_get(s->un.name);
	return 0;
}

/* Queues on the target; b's fields are complete but for the files. */
static int dgram_deliver(struct socket *s, struct socket *to, struct sock_msg *m,
			 struct sock_buf *b)
{
	size_t len = b->end;

	MUTEX_GUARD(&to->lock);
	if (to->dead)
		return -ECONNREFUSED;
	if (!accepts_from(to, s))
		return -EPERM;
	if ((to->shut & SHUT_RCV) || (s->shut & SHUT_SND))
		return -EPIPE;
	if (is_full(to, s, len))
		return -EAGAIN;
	b->fds = m->fds;
	m->fds = NULL;
	b->from = sock_name_get(m->from);
	sock_queue_push(&to->rq, b);
	return 0;
}

static ssize_t dgram_send(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	struct scm_fds *fds = m->fds;
	size_t len = k->remaining;
	struct sock_buf *b;
	int ret;

	if (s->shut & SHUT_SND)
		return -EPIPE;
	if (len > s->sndbuf - 32)
		return -EMSGSIZE;
	ret = unix_fds_attach(m);
	if (ret < 0)
		return ret;
	struct kiov whole = *k;
	ret = record_fill(m, &whole, &b);
	if (ret == 0) {
		ret = dgram_deliver(s, m->target, m, b);
		if (ret < 0)
			sock_buf_free(b);
	}
	if (ret < 0) {
		if (fds)
			unix_gc_not_in_flight(fds);
		if (ret == -ECONNREFUSED && !m->name_len)
			set_peer(s, NULL);
		return ret;
	}
	kiov_advance(k, len);
	socket_wake(m->target, EPOLLIN | EPOLLRDNORM);
	return (ssize_t)len;
}

static u32 dgram_poll(struct socket *s)
{
	u32 mask = 0, shut = s->shut;
	struct socket *to;
	bool writable = true;

	if (s->error)
		mask |= EPOLLERR;
	if (shut == SHUT_BOTH)
		mask |= EPOLLHUP;
	if (shut & SHUT_RCV)
		mask |= EPOLLRDHUP | EPOLLIN | EPOLLRDNORM;
	if (s->rq.cost)
		mask |= EPOLLIN | EPOLLRDNORM;
	to = get_peer(s);
	if (to) {
		mutex_lock(&to->lock);
		if (!to->dead)
			writable = !is_full(to, s, 0) && to->rq.cost <= MAX(s->sndbuf / 4, 1U);
		if (!to->dead && to->un.dgram_peer != s)
			writable = to->rq.count <= UNIX_DGRAM_QLEN;
		mutex_unlock(&to->lock);
		socket_put(to);
	}
	return writable ? mask | WRITE_EVENTS : mask;
}

/* The peer learns nothing: that is for connection-based types. */
static int dgram_shutdown(struct socket *s, int how)
{
	mutex_lock(&s->lock);
	s->shut |= (u32)how;
	mutex_unlock(&s->lock);
	socket_wake(s, EPOLLIN | EPOLLRDNORM | EPOLLRDHUP | EPOLLHUP | WRITE_EVENTS);
	return 0;
}

static void dgram_release(struct socket *s)
{
	struct list bufs;
	struct socket *d;

	unix_unbind(s);
	list_init(&bufs);
	mutex_lock(&s->lock);
	s->dead = true;
	s->shut = SHUT_BOTH;
	sock_queue_take_all(&s->rq, &bufs);
	list_for_each (d, &s->un.senders, un.sender_node)
		waitq_wake(&d->waitq, WRITE_EVENTS);
	mutex_unlock(&s->lock);
	set_peer(s, NULL);
	socket_wake(s, EPOLL_ROOM);
	sock_buf_free_list(&bufs);
	unix_gc_run(NULL);
}

static int dgram_listen(struct socket *s, struct task *t, int backlog)
{
	return -EOPNOTSUPP;
}

const struct sock_ops unix_dgram_ops = {
	.bind = unix_bind,
	.listen = dgram_listen,
	.connect = dgram_connect,
	.name = unix_name,
	.send_begin = dgram_send_begin,
	.send = dgram_send,
	.recv = record_recv,
	.shutdown = dgram_shutdown,
	.setsockopt = unix_sockopt_set,
	.getsockopt = unix_sockopt_get,
	.poll = dgram_poll,
	.release = dgram_release,
	.records = true,
};

int unix_pair(struct task *t, int type, struct socket *ret[2])
{
	struct socket *a, *b;
	int err = unix_create(t, type, 0, &a);

	if (err < 0)
		return err;
	err = unix_create(t, type, 0, &b);
	if (err < 0) {
		a->ops->release(a);
		socket_put(a);
		return err;
	}
	if (a->type == SOCK_DGRAM) {
		set_peer(a, socket_get(b));
		set_peer(b, socket_get(a));
		a->peer_cred = b->peer_cred = a->own_cred;
		a->has_peer_cred = b->has_peer_cred = true;
	} else {
		stream_join(a, b);
	}
	ret[0] = a;
	ret[1] = b;
	return 0;
}
