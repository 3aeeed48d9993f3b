/* Connected sockets: byte streams and sequenced packets; see socket.h. */
#include "base/log.h"
#include "sentry/net/socket.h"
#include "sentry/net/unix_gc.h"
#include <stdlib.h>
#include <string.h>

#define READ_EVENTS (EPOLLIN | EPOLLRDNORM)
#define WRITE_EVENTS (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)
#define END_EVENTS (READ_EVENTS | WRITE_EVENTS | EPOLLRDHUP | EPOLLHUP)

void socket_wake(struct socket *s, u32 events)
{
	waitq_wake(&s->waitq, events);
}

int socket_take_error(struct socket *s)
{
	if (atomic_load(&s->error) == 0)
		return 0;
	return atomic_exchange(&s->error, 0);
}

static bool is_unix(const struct socket *s)
{
	return s->family == AF_UNIX;
}

static struct socket *peer_of(struct socket *s)
{
	return s->state == SOCK_CONNECTED ? atomic_load(&s->peer) : NULL;
}

size_t socket_outq(struct socket *s)
{
	struct socket *peer = peer_of(s);

	return peer ? atomic_load(&peer->rq.bytes) : 0;
}

size_t socket_inq(struct socket *s)
{
	if (!s->ops->records || s->type == SOCK_SEQPACKET)
		return atomic_load(&s->rq.bytes);
	return record_next_len(s);
}

size_t record_next_len(struct socket *s)
{
	struct sock_buf *b;

	MUTEX_GUARD(&s->lock);
	if (list_empty(&s->rq.bufs))
		return 0;
	b = list_first(&s->rq.bufs, struct sock_buf, node);
	return b->end - b->start;
}

/* ---- sending ---- */

/* Why s cannot send to its peer now: 0 or -errno. peer->lock held. */
static int send_check(struct socket *s, struct socket *peer)
{
	if (s->shut & SHUT_SND)
		return -EPIPE;
	if (is_unix(s) && (peer->dead || (peer->shut & SHUT_RCV)))
		return -EPIPE;
	return 0;
}

/* TCP: the first write to a closed peer is accepted and answered by a reset. */
static bool tcp_sent_to_dead(struct socket *s, struct socket *peer)
{
	if (is_unix(s) || !peer->dead)
		return false;
	MUTEX_GUARD(&s->lock);
	if (!s->in.reset_sent) {
		s->in.reset_sent = true;
		s->error = EPIPE;
		s->shut |= SHUT_BOTH;
		return true;
	}
	return false;
}

/* Appends up to `space` bytes to peer's queue. peer->lock held. Bytes or -errno. */
static ssize_t append_bytes(struct socket *peer, struct sock_msg *m, struct kiov *k, size_t space)
{
	struct sock_queue *q = &peer->rq;
	size_t total = 0;

	while (k->remaining && total < space) {
		struct sock_buf *tail = list_empty(&q->bufs)
						? NULL
						: container_of(q->bufs.prev, struct sock_buf, node);
		size_t want = MIN(k->remaining, space - total);
		ssize_t n;

		if (tail && !tail->fds && !m->fds && tail->end < tail->cap &&
		    sock_cred_equal(&tail->cred, &m->cred)) {
			n = kiov_get(k, tail->data + tail->end, MIN(want, tail->cap - tail->end));
			if (n <= 0)
				return total ? (ssize_t)total : n;
			tail->end += (u32)n;
			q->bytes += (size_t)n;
			q->cost += (size_t)n;
			total += (size_t)n;
			continue;
		}
		struct sock_buf *b = sock_queue_alloc(q, MIN(want, SOCK_BUF_LARGE));
		if (!b)
			return total ? (ssize_t)total : -ENOBUFS;
		n = kiov_get(k, b->data, MIN(want, b->cap));
		if (n <= 0) {
			sock_queue_recycle(q, b);
			return total ? (ssize_t)total : n;
		}
		b->end = (u32)n;
		b->cred = m->cred;
		b->fds = m->fds;
		m->fds = NULL;
		sock_queue_push(q, b);
		total += (size_t)n;
	}
	return (ssize_t)total;
}

ssize_t stream_send(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	struct socket *peer = peer_of(s);
	ssize_t ret;
	int err;

	if (!is_unix(s) && (err = socket_take_error(s)))
		return -err;
	if (!peer)
		return is_unix(s) ? -ENOTCONN : -EPIPE;
	mutex_lock(&peer->lock);
	ret = send_check(s, peer);
	if (ret == 0 && peer->dead) {
		size_t n = k->remaining;

		mutex_unlock(&peer->lock);
		if (!tcp_sent_to_dead(s, peer))
			return -EPIPE;
		socket_wake(s, END_EVENTS | EPOLLERR);
		kiov_advance(k, n);
		return (ssize_t)n;
	}
	if (ret == 0) {
		size_t limit = s->sndbuf, cost = peer->rq.cost;

		if (cost >= limit && k->remaining)
			ret = -EAGAIN;
		else
			ret = append_bytes(peer, m, k, cost >= limit ? 0 : limit - cost);
	}
	mutex_unlock(&peer->lock);
	if (ret > 0)
		socket_wake(peer, READ_EVENTS);
	return ret;
}

int record_fill(struct sock_msg *m, struct kiov *k, struct sock_buf **ret)
{
	size_t len = k->remaining;
	struct sock_buf *b = sock_buf_new(len);

	if (!b)
		return -ENOBUFS;
	if (len) {
		ssize_t n = kiov_get(k, b->data, len);

		if (n != (ssize_t)len) {
			sock_buf_free(b);
			return -EFAULT;
		}
	}
	b->end = (u32)len;
	b->cred = m->cred;
	*ret = b;
	return 0;
}

ssize_t record_send(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	struct socket *peer = peer_of(s);
	size_t len = k->remaining;
	struct sock_buf *b;
	int ret;

	if (!peer)
		return -ENOTCONN;
	if (len > s->sndbuf - 32)
		return -EMSGSIZE;
	mutex_lock(&peer->lock);
	ret = send_check(s, peer);
	if (ret == 0 && peer->rq.cost && peer->rq.cost + len + SOCK_BUF_OVERHEAD > s->sndbuf)
		ret = -EAGAIN;
	/* The copy is done under the lock so that order and room hold; it cannot sleep (pinned
	 * memory). */
	if (ret == 0)
		ret = record_fill(m, k, &b);
	if (ret == 0) {
		b->fds = m->fds;
		m->fds = NULL;
		sock_queue_push(&peer->rq, b);
	}
	mutex_unlock(&peer->lock);
	if (ret < 0)
		return ret;
	socket_wake(peer, READ_EVENTS);
	return (ssize_t)len;
}

/* ---- receiving ---- */

/* What an empty queue means. s->lock held. */
static ssize_t recv_empty(struct socket *s)
{
	int err = socket_take_error(s);

	if (err)
		return -err;
	if (s->shut & SHUT_RCV)
		return 0;
	return -EAGAIN;
}

/*
 * Hands the files of b to the message: a copy when peeking. The in-flight count of taken files is
 * dropped by the caller, after the lock.
 */
static int recv_fds(struct sock_buf *b, struct sock_msg *m)
{
	if (!b->fds || m->fds)
		return 0;
	if (m->flags & MSG_PEEK) {
		m->fds = scm_fds_dup(b->fds);
		return m->fds ? 0 : -ENOBUFS;
	}
	m->fds = b->fds;
	b->fds = NULL;
	return 0;
}

/* True when the sender may now be woken: queue fell under a quarter of its buffer, or is empty. */
static bool room_made(struct socket *s, struct socket *peer, size_t before)
{
	size_t mark = peer ? peer->sndbuf / 4 : 0;

	return peer && s->rq.cost < before &&
	       (s->rq.cost == 0 || (before > mark && s->rq.cost <= mark));
}

/* Copies out of s->rq. s->lock held; bytes or -errno. */
static ssize_t take_bytes(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	bool peek = m->flags & MSG_PEEK;
	size_t skip = peek ? m->peek_offset : 0, total = 0;
	struct sock_buf *b, *tmp;

	list_for_each_safe (b, tmp, &s->rq.bufs, node) {
		size_t len = b->end - b->start;
		bool had_fds = b->fds != NULL;
		ssize_t n;

		if (!k->remaining || m->stop)
			break;
		if (skip >= len) {
			skip -= len;
			continue;
		}
		if (m->has_cred && s->passcred && !sock_cred_equal(&m->cred, &b->cred)) {
			m->stop = true;
			break;
		}
		n = kiov_put(k, b->data + b->start + skip, len - skip);
		if (n <= 0)
			return total ? (ssize_t)total : (n < 0 ? n : -EFAULT);
		if (!m->has_cred) {
			m->cred = b->cred;
			m->has_cred = true;
		}
		if (recv_fds(b, m) < 0 || had_fds)
			m->stop = true;
		total += (size_t)n;
		skip = 0;
		if (peek)
			continue;
		sock_queue_consume(&s->rq, b, (size_t)n);
		if (b->start == b->end) {
			sock_queue_unlink(&s->rq, b);
			sock_queue_recycle(&s->rq, b);
		}
	}
	if (peek)
		m->peek_offset += total;
	return (ssize_t)total;
}

/* Bytes thrown away instead of copied: TCP's MSG_TRUNC. s->lock held. */
static ssize_t drop_bytes(struct socket *s, size_t want)
{
	size_t total = 0;
	struct sock_buf *b, *tmp;

	list_for_each_safe (b, tmp, &s->rq.bufs, node) {
		size_t n = MIN(want - total, (size_t)(b->end - b->start));

		sock_queue_consume(&s->rq, b, n);
		total += n;
		if (b->start == b->end) {
			sock_queue_unlink(&s->rq, b);
			sock_queue_recycle(&s->rq, b);
		}
		if (total == want)
			break;
	}
	return (ssize_t)total;
}

ssize_t stream_recv(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	struct socket *peer;
	struct scm_fds *had = m->fds;
	bool wake;
	ssize_t ret;

	if (s->state != SOCK_CONNECTED) {
		int err = socket_take_error(s);

		if (err)
			return -err;
		return is_unix(s) ? -EINVAL : -ENOTCONN;
	}
	if (m->stop)
		return 0;
	peer = atomic_load(&s->peer);
	mutex_lock(&s->lock);
	size_t before = s->rq.cost;
	if (!k->remaining)
		ret = 0;
	else if (!is_unix(s) && (m->flags & (MSG_TRUNC | MSG_PEEK)) == MSG_TRUNC && before)
		ret = drop_bytes(s, k->remaining);
	else
		ret = take_bytes(s, m, k);
	if (ret == 0 && k->remaining && !m->stop) {
		if (m->done == 0)
			ret = recv_empty(s);
		else if (!s->error && !(s->shut & SHUT_RCV))
			ret = -EAGAIN;
	}
	wake = room_made(s, peer, before);
	mutex_unlock(&s->lock);
	if (m->fds && m->fds != had) {
		if (m->flags & MSG_PEEK)
			unix_gc_barrier();
		else
			unix_gc_not_in_flight(m->fds);
	}
	if (wake)
		socket_wake(peer, WRITE_EVENTS);
	return ret;
}

static void wake_senders(struct socket *s)
{
	struct socket *d;

	mutex_assert_held(&s->lock);
	list_for_each (d, &s->un.senders, un.sender_node)
		waitq_wake(&d->waitq, WRITE_EVENTS);
}

ssize_t record_recv(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	struct sock_buf *b;
	struct socket *peer;
	bool peek = m->flags & MSG_PEEK, wake;
	ssize_t ret = 0;

	if (m->stop)
		return 0;
	mutex_lock(&s->lock);
	if (list_empty(&s->rq.bufs)) {
		ret = recv_empty(s);
		mutex_unlock(&s->lock);
		m->stop = ret == 0;
		return ret;
	}
	peer = peer_of(s);
	b = list_first(&s->rq.bufs, struct sock_buf, node);
	m->real_len = b->end - b->start;
	m->retry = k->remaining < MIN(m->real_len, m->room);
	if (m->retry) {
		mutex_unlock(&s->lock);
		return -EAGAIN;
	}
	if (k->remaining < m->real_len)
		m->out_flags |= MSG_TRUNC;
	if (k->remaining && m->real_len)
		ret = kiov_put(k, b->data + b->start, MIN(k->remaining, m->real_len));
	if (ret < 0) {
		mutex_unlock(&s->lock);
		return ret;
	}
	m->stop = true;
	m->cred = b->cred;
	m->has_cred = true;
	if (b->from) {
		memcpy(&m->name, b->from->addr, b->from->len);
		m->name_len = b->from->len;
	}
	size_t before = s->rq.cost;
	recv_fds(b, m);
	if (!peek)
		sock_queue_unlink(&s->rq, b);
	wake = !peek && room_made(s, peer, before);
	if (!peek && !peer && is_unix(s))
		wake_senders(s);
	mutex_unlock(&s->lock);
	if (m->fds) {
		if (peek)
			unix_gc_barrier();
		else
			unix_gc_not_in_flight(m->fds);
	}
	if (!peek) {
		sock_buf_free(b);
		if (!peer)
			socket_wake(s, EPOLL_ROOM);
	}
	if (wake)
		socket_wake(peer, WRITE_EVENTS);
	return ret;
}

/* ---- readiness ---- */

u32 stream_poll(struct socket *s)
{
	u32 mask = 0, shut = s->shut;
	int state = s->state;
	struct socket *peer;

	if (s->error)
		mask |= EPOLLERR;
	if (state == SOCK_LISTENING) {
		MUTEX_GUARD(&s->lock);
		if (!list_empty(&s->accept_queue))
			mask |= READ_EVENTS;
		if (is_unix(s))
			mask |= WRITE_EVENTS;
		return mask;
	}
	if (state == SOCK_CONNECTING)
		return mask;
	if (shut == SHUT_BOTH || state == SOCK_CLOSED)
		mask |= EPOLLHUP;
	if (shut & SHUT_RCV)
		mask |= EPOLLRDHUP | READ_EVENTS;
	if (s->rq.bytes || (s->ops->records && s->rq.cost))
		mask |= READ_EVENTS;
	peer = peer_of(s);
	if (!peer || (shut & SHUT_SND) || atomic_load(&peer->rq.cost) <= s->sndbuf / 4)
		mask |= WRITE_EVENTS;
	return mask;
}

/* ---- connecting ---- */

int stream_listen(struct socket *s, struct task *t, int backlog)
{
	u32 limit = backlog < 0 || backlog > NET_SOMAXCONN ? NET_SOMAXCONN : (u32)backlog;
	bool room;

	mutex_lock(&s->lock);
	if (s->state != SOCK_CLOSED && s->state != SOCK_LISTENING) {
		mutex_unlock(&s->lock);
		return -EINVAL;
	}
	room = s->state == SOCK_LISTENING && limit > s->backlog;
	s->backlog = limit;
	s->own_cred = sock_cred_of(t);
	s->peer_cred = s->own_cred;
	s->has_peer_cred = true;
	s->state = SOCK_LISTENING;
	mutex_unlock(&s->lock);
	if (room)
		socket_wake(s, EPOLL_ROOM);
	return 0;
}

int stream_accept(struct socket *s, struct socket **ret)
{
	struct socket *a;

	mutex_lock(&s->lock);
	if (s->state != SOCK_LISTENING) {
		mutex_unlock(&s->lock);
		return -EINVAL;
	}
	if (list_empty(&s->accept_queue)) {
		int shut = s->shut & SHUT_RCV;

		mutex_unlock(&s->lock);
		return shut ? -EINVAL : -EAGAIN;
	}
	a = list_first(&s->accept_queue, struct socket, accept_node);
	list_del(&a->accept_node);
	s->accept_count--;
	mutex_unlock(&s->lock);
	socket_wake(s, EPOLL_ROOM);
	*ret = a;
	return 0;
}

void stream_join(struct socket *a, struct socket *b)
{
	a->peer_cred = b->own_cred;
	b->peer_cred = a->own_cred;
	a->has_peer_cred = b->has_peer_cred = true;
	atomic_store(&a->peer, socket_get(b));
	atomic_store(&b->peer, socket_get(a));
	a->state = SOCK_CONNECTED;
	b->state = SOCK_CONNECTED;
}

int stream_enqueue(struct socket *l, struct socket *s, struct socket *server, u32 limit)
{
	mutex_lock(&l->lock);
	if (l->dead || l->state != SOCK_LISTENING || (l->shut & SHUT_RCV)) {
		mutex_unlock(&l->lock);
		return -ECONNREFUSED;
	}
	if (l->accept_count > limit) {
		mutex_unlock(&l->lock);
		return -EAGAIN;
	}
	server->own_cred = l->own_cred;
	server->passcred = l->passcred;
	stream_join(s, server);
	list_push_back(&l->accept_queue, &server->accept_node);
	l->accept_count++;
	mutex_unlock(&l->lock);
	socket_wake(l, READ_EVENTS);
	socket_wake(s, WRITE_EVENTS);
	return 0;
}

int stream_shutdown(struct socket *s, int how)
{
	struct socket *peer = peer_of(s);
	u32 theirs = 0;

	if (!is_unix(s) && s->state != SOCK_CONNECTED && s->state != SOCK_LISTENING)
		return -ENOTCONN;
	mutex_lock(&s->lock);
	s->shut |= (u32)how;
	mutex_unlock(&s->lock);
	if (how & SHUT_SND)
		theirs |= SHUT_RCV;
	if ((how & SHUT_RCV) && is_unix(s))
		theirs |= SHUT_SND;
	if (peer) {
		mutex_lock(&peer->lock);
		peer->shut |= theirs;
		mutex_unlock(&peer->lock);
		socket_wake(peer, END_EVENTS);
	}
	socket_wake(s, END_EVENTS | EPOLL_ROOM);
	return 0;
}

/* The end of one side. reset: the peer sees ECONNRESET (never accepted). */
static void stream_close(struct socket *s, bool reset)
{
	struct socket *peer;
	struct list bufs;

	list_init(&bufs);
	mutex_lock(&s->lock);
	s->dead = true;
	s->shut = SHUT_BOTH;
	reset |= s->rq.cost != 0;
	sock_queue_take_all(&s->rq, &bufs);
	mutex_unlock(&s->lock);
	peer = s->state == SOCK_CONNECTED ? atomic_exchange(&s->peer, NULL) : NULL;
	if (peer) {
		mutex_lock(&peer->lock);
		if (reset && !peer->dead)
			peer->error = ECONNRESET;
		peer->shut |= is_unix(s) || reset ? SHUT_BOTH : SHUT_RCV;
		mutex_unlock(&peer->lock);
		socket_wake(peer, END_EVENTS | (reset ? EPOLLERR : 0));
		socket_put(peer);
	}
	sock_buf_free_list(&bufs);
}

void stream_release(struct socket *s)
{
	struct list embryos;

	list_init(&embryos);
	mutex_lock(&s->lock);
	s->dead = true;
	while (!list_empty(&s->accept_queue)) {
		struct socket *e = list_first(&s->accept_queue, struct socket, accept_node);

		list_del(&e->accept_node);
		list_push_back(&embryos, &e->accept_node);
	}
	s->accept_count = 0;
	mutex_unlock(&s->lock);
	while (!list_empty(&embryos)) {
		struct socket *e = list_first(&embryos, struct socket, accept_node);

		list_del(&e->accept_node);
		stream_close(e, true);
		socket_put(e);
	}
	/* SO_LINGER with no time: a reset instead of an orderly end. */
	stream_close(s, !is_unix(s) && s->linger_on && s->linger_s == 0);
	socket_wake(s, END_EVENTS | EPOLL_ROOM);
}
