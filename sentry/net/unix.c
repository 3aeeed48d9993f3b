/* Unix sockets: names, connecting, stream and seqpacket operations; see socket.h. */
#include "base/log.h"
#include "sentry/kernel/kernel.h"
#include "sentry/net/socket.h"
#include "sentry/net/unix_gc.h"
#include "sentry/sys/syscall.h"
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UN_PATH_OFFSET offsetof(struct sockaddr_un, sun_path)
#define INFLIGHT_PRIVILEGED 65536

int unix_addr_check(const struct sockaddr_storage *addr, u32 len)
{
	if (len <= UN_PATH_OFFSET || len > sizeof(struct sockaddr_un))
		return -EINVAL;
	return addr->ss_family == AF_UNIX ? 0 : -EINVAL;
}

static bool is_abstract(const struct sockaddr_storage *addr)
{
	return ((const struct sockaddr_un *)addr)->sun_path[0] == 0;
}

/* ---- abstract names ---- */

static size_t name_hash(const void *addr, u32 len, int type)
{
	const u8 *p = addr;
	u32 h = (u32)type * 2654435761U;

	for (u32 i = 0; i < len; i++)
		h = (h ^ p[i]) * 16777619U;
	return (h ^ h >> 16) % NET_HASH;
}

static struct socket *abstract_find_locked(struct net *net, const void *addr, u32 len, int type)
{
	struct socket *s;

	mutex_assert_held(&net->lock);
	list_for_each (s, &net->abstract[name_hash(addr, len, type)], un.name_node)
		if (s->type == type && s->un.name->len == len &&
		    !memcmp(s->un.name->addr, addr, len))
			return s;
	return NULL;
}

/* Publishes s under an abstract name. -EADDRINUSE. s->lock held; takes n's reference on success. */
static int abstract_bind_locked(struct socket *s, struct sock_name *n)
{
	struct net *net = s->net;

	mutex_assert_held(&s->lock);
	MUTEX_GUARD(&net->lock);
	if (abstract_find_locked(net, n->addr, n->len, s->type))
		return -EADDRINUSE;
	s->un.name = n;
	s->un.bound = true;
	list_push_back(&net->abstract[name_hash(n->addr, n->len, s->type)], &s->un.name_node);
	return 0;
}

int unix_autobind(struct socket *s)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	for (u32 tries = 0; tries < 1 << 20; tries++) {
		struct sock_name *n;
		char digits[8];
		u32 number;
		int ret;

		mutex_lock(&s->net->lock);
		number = s->net->autobind_next++ & 0xfffff;
		mutex_unlock(&s->net->lock);
		snprintf(digits, sizeof(digits), "%05x", number);
		memcpy(un.sun_path + 1, digits, 5);
		n = sock_name_new(&un, UN_PATH_OFFSET + 6);
		if (!n)
			return -ENOMEM;
		mutex_lock(&s->lock);
		if (s->un.name) {
			mutex_unlock(&s->lock);
			sock_name_put(n);
			return 0;
		}
		ret = abstract_bind_locked(s, n);
		mutex_unlock(&s->lock);
		if (ret == 0)
			return 0;
		sock_name_put(n);
	}
	return -ENOSPC;
}

/* ---- names in file systems ---- */

static int path_bind(struct socket *s, struct task *t, const char *path, struct sock_name *n)
{
	struct sys_walk w;
	struct path p;
	struct inode *inode;
	int ret = sys_walk_begin(t, AT_FDCWD, path, &w);

	if (ret < 0)
		return ret;
	ret = vfs_mknod(&w.w, path, S_IFSOCK | 0777, 0, 0, &p);
	sys_walk_end(&w);
	if (ret < 0)
		return ret == -EEXIST ? -EADDRINUSE : ret;
	inode = path_inode(&p);
	mutex_lock(&s->lock);
	if (s->un.name) {
		mutex_unlock(&s->lock);
		path_put(&p);
		return -EINVAL;
	}
	s->un.name = n;
	s->un.path = p;
	mutex_lock(&s->net->lock);
	s->un.bound = true;
	atomic_store(&inode->bound_socket, s);
	mutex_unlock(&s->net->lock);
	mutex_unlock(&s->lock);
	return 0;
}

static int path_find(struct socket *s, struct task *t, const char *path, struct socket **ret)
{
	struct sys_walk w;
	struct path p;
	struct inode *inode;
	struct socket *found = NULL;
	int err = sys_walk_begin(t, AT_FDCWD, path, &w);

	if (err < 0)
		return err;
	err = vfs_walk(&w.w, path, WALK_FOLLOW, &p);
	sys_walk_end(&w);
	if (err < 0)
		return err;
	inode = path_inode(&p);
	err = vfs_access(&p, t->cred, MAY_WRITE);
	if (err == 0 && !S_ISSOCK(inode->type))
		err = -ECONNREFUSED;
	if (err == 0) {
		mutex_lock(&s->net->lock);
		found = atomic_load(&inode->bound_socket);
		if (found && !refs_tryget(&found->refs))
			found = NULL;
		mutex_unlock(&s->net->lock);
		if (!found)
			err = -ECONNREFUSED;
	}
	path_put(&p);
	if (err == 0)
		*ret = found;
	return err;
}

/* sun_path need not end in NUL. */
static void path_of(const struct sockaddr_storage *addr, u32 len, char dst[109])
{
	size_t n = len - UN_PATH_OFFSET;

	memcpy(dst, ((const struct sockaddr_un *)addr)->sun_path, n);
	dst[n] = 0;
}

int unix_find(struct socket *s, struct task *t, const struct sockaddr_storage *addr, u32 len,
	      struct socket **ret)
{
	struct socket *found = NULL;
	char path[109];
	int err;

	if (is_abstract(addr)) {
		MUTEX_GUARD(&s->net->lock);
		found = abstract_find_locked(s->net, addr, len, s->type);
		if (!found || !refs_tryget(&found->refs))
			return -ECONNREFUSED;
		*ret = found;
		return 0;
	}
	path_of(addr, len, path);
	err = path_find(s, t, path, &found);
	if (err)
		return err;
	if (found->type != s->type) {
		socket_put(found);
		return -EPROTOTYPE;
	}
	*ret = found;
	return 0;
}

int unix_bind(struct socket *s, struct task *t, const struct sockaddr_storage *addr, u32 len)
{
	struct sock_name *n;
	char path[109];
	int ret;

	if (len == sizeof(sa_family_t) && addr->ss_family == AF_UNIX)
		return s->un.bound ? -EINVAL : unix_autobind(s);
	ret = unix_addr_check(addr, len);
	if (ret < 0)
		return ret;
	if (s->un.bound)
		return -EINVAL;
	if (!is_abstract(addr)) {
		path_of(addr, len, path);
		len = UN_PATH_OFFSET + (u32)strlen(path) + 1;
	}
	n = sock_name_new(addr, len);
	if (!n)
		return -ENOMEM;
	if (!is_abstract(addr)) {
		n->addr[len - 1] = 0;
		ret = path_bind(s, t, path, n);
	} else {
		mutex_lock(&s->lock);
		ret = s->un.name ? -EINVAL : abstract_bind_locked(s, n);
		mutex_unlock(&s->lock);
	}
	if (ret < 0)
		sock_name_put(n);
	return ret;
}

void unix_unbind(struct socket *s)
{
	mutex_lock(&s->net->lock);
	list_del(&s->un.name_node);
	if (s->un.path.dentry) {
		struct inode *inode = path_inode(&s->un.path);

		if (atomic_load(&inode->bound_socket) == s)
			atomic_store(&inode->bound_socket, NULL);
	}
	mutex_unlock(&s->net->lock);
}

int unix_name(struct socket *s, bool peer, struct sockaddr_storage *ret)
{
	struct socket *of = s;
	struct sock_name *n;

	if (peer) {
		mutex_lock(&s->lock);
		of = s->state == SOCK_CONNECTED ? atomic_load(&s->peer) : s->un.dgram_peer;
		if (of)
			socket_get(of);
		mutex_unlock(&s->lock);
		if (!of)
			return -ENOTCONN;
	}
	mutex_lock(&of->lock);
	n = sock_name_get(of->un.name);
	mutex_unlock(&of->lock);
	if (peer)
		socket_put(of);
	memset(ret, 0, sizeof(*ret));
	ret->ss_family = AF_UNIX;
	if (!n)
		return sizeof(sa_family_t);
	int len = (int)n->len;
	memcpy(ret, n->addr, n->len);
	sock_name_put(n);
	return len;
}

/* ---- connecting ---- */

struct connect_try {
	struct socket *l, *s, *server;
};

static s64 try_enqueue(void *arg)
{
	struct connect_try *c = arg;

	return stream_enqueue(c->l, c->s, c->server, c->l->backlog);
}

static int connect_to(struct socket *s, struct task *t, struct socket *l, bool nonblock)
{
	struct connect_try c = { .l = l, .s = s };
	u64 timeout = s->snd_timeout_ns;
	s64 ret;

	c.server = socket_new(s->net, s->ops, AF_UNIX, s->type, 0);
	if (!c.server)
		return -ENOMEM;
	mutex_lock(&l->lock);
	c.server->un.name = sock_name_get(l->un.name);
	mutex_unlock(&l->lock);
	ret = task_block_on(t, &l->waitq, EPOLL_ROOM, nonblock,
			    timeout ? clock_monotonic_ns() + timeout : NO_DEADLINE, try_enqueue,
			    &c);
	if (ret < 0)
		socket_put(c.server);
	return ret == -ERESTARTSYS && timeout ? -EINTR : (int)ret;
}

static int unix_connect(struct socket *s, struct task *t, const struct sockaddr_storage *addr,
			u32 len, bool nonblock)
{
	struct socket *l;
	int ret = unix_addr_check(addr, len);

	if (ret < 0)
		return ret;
	if (s->passcred && !s->un.bound && (ret = unix_autobind(s)) < 0)
		return ret;
	mutex_lock(&s->lock);
	if (s->state != SOCK_CLOSED) {
		ret = s->state == SOCK_CONNECTED    ? -EISCONN
		      : s->state == SOCK_CONNECTING ? -EALREADY
						    : -EINVAL;
		mutex_unlock(&s->lock);
		return ret;
	}
	s->state = SOCK_CONNECTING;
	s->own_cred = sock_cred_of(t);
	mutex_unlock(&s->lock);
	ret = unix_find(s, t, addr, len, &l);
	if (ret == 0) {
		ret = connect_to(s, t, l, nonblock);
		socket_put(l);
	}
	if (ret < 0) {
		mutex_lock(&s->lock);
		s->state = SOCK_CLOSED;
		mutex_unlock(&s->lock);
	}
	return ret;
}

static int unix_listen(struct socket *s, struct task *t, int backlog)
{
	return s->un.bound ? stream_listen(s, t, backlog) : -EINVAL;
}

static void unix_stream_release(struct socket *s)
{
	unix_unbind(s);
	stream_release(s);
	unix_gc_run(NULL);
}

/* ---- messages ---- */

int unix_fds_attach(struct sock_msg *m)
{
	struct task *t = current_task;
	u64 limit;

	if (!m->fds)
		return 0;
	limit = task_rlimit(t, RLIMIT_NOFILE);
	if (cred_capable(t->cred, CAP_SYS_RESOURCE) || cred_capable(t->cred, CAP_SYS_ADMIN))
		limit = MAX(limit, (u64)INFLIGHT_PRIVILEGED);
	return unix_gc_in_flight(m->fds, MIN(limit, (u64)INFLIGHT_PRIVILEGED));
}

static int stream_send_begin(struct socket *s, struct task *t, struct sock_msg *m)
{
	if (m->flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (m->name_len)
		return s->state == SOCK_CONNECTED ? -EISCONN : -EOPNOTSUPP;
	return 0;
}

static int seqpacket_send_begin(struct socket *s, struct task *t, struct sock_msg *m)
{
	if (m->flags & MSG_OOB)
		return -EOPNOTSUPP;
	return s->state == SOCK_CONNECTED ? 0 : -ENOTCONN;
}

/* The count in flight rises before the buffer can be seen, and falls again if it was not queued. */
static ssize_t unix_send(struct socket *s, struct sock_msg *m, struct kiov *k,
			 ssize_t (*send)(struct socket *, struct sock_msg *, struct kiov *))
{
	struct scm_fds *fds = m->fds;
	int err = unix_fds_attach(m);
	ssize_t ret;

	if (err < 0)
		return err;
	ret = send(s, m, k);
	if (fds && m->fds == fds)
		unix_gc_not_in_flight(fds);
	return ret;
}

static ssize_t unix_stream_send(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	return unix_send(s, m, k, stream_send);
}

static ssize_t unix_seqpacket_send(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	return unix_send(s, m, k, record_send);
}

static ssize_t unix_seqpacket_recv(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	return s->state == SOCK_CONNECTED ? record_recv(s, m, k) : -ENOTCONN;
}

int unix_sockopt_set(struct socket *s, struct task *t, int level, int opt, const void *val, u32 len)
{
	return level == SOL_SOCKET ? -ENOPROTOOPT : -EOPNOTSUPP;
}

int unix_sockopt_get(struct socket *s, struct task *t, int level, int opt, void *val, u32 *len)
{
	return level == SOL_SOCKET ? -ENOPROTOOPT : -EOPNOTSUPP;
}

const struct sock_ops unix_stream_ops = {
	.bind = unix_bind,
	.listen = unix_listen,
	.connect = unix_connect,
	.name = unix_name,
	.send_begin = stream_send_begin,
	.send = unix_stream_send,
	.recv = stream_recv,
	.shutdown = stream_shutdown,
	.setsockopt = unix_sockopt_set,
	.getsockopt = unix_sockopt_get,
	.poll = stream_poll,
	.release = unix_stream_release,
	.stream = true,
};

const struct sock_ops unix_seqpacket_ops = {
	.bind = unix_bind,
	.listen = unix_listen,
	.connect = unix_connect,
	.name = unix_name,
	.send_begin = seqpacket_send_begin,
	.send = unix_seqpacket_send,
	.recv = unix_seqpacket_recv,
	.shutdown = stream_shutdown,
	.setsockopt = unix_sockopt_set,
	.getsockopt = unix_sockopt_get,
	.poll = stream_poll,
	.release = unix_stream_release,
	.records = true,
};

static const struct sock_ops *ops_of(int type)
{
	switch (type) {
	case SOCK_STREAM: return &unix_stream_ops;
	case SOCK_SEQPACKET: return &unix_seqpacket_ops;
	case SOCK_DGRAM:
	case SOCK_RAW: return &unix_dgram_ops;
	default: return NULL;
	}
}

int unix_create(struct task *t, int type, int protocol, struct socket **ret)
{
	const struct sock_ops *ops = ops_of(type);
	struct net *net = net_of(t->kernel);

	if (protocol && protocol != PF_UNIX)
		return -EPROTONOSUPPORT;
	if (!ops)
		return -ESOCKTNOSUPPORT;
	if (!net)
		return -ENOMEM;
	*ret = socket_new(net, ops, AF_UNIX, type == SOCK_RAW ? SOCK_DGRAM : type, 0);
	if (!*ret)
		return -ENFILE;
	(*ret)->own_cred = sock_cred_of(t);
	return 0;
}
