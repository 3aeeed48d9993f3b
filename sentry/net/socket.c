#include "sentry/net/socket.h"
#include "sentry/net/unix_gc.h"
#include "sentry/fd/fdtable.h"
#include "sentry/kernel/kernel.h"
#include <linux/sockios.h>
#include <linux/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "sentry/net/netdev.h"

struct net *net_of(struct kernel *k)
{
	struct net *n = atomic_load(&k->net), *fresh;

	if (n)
		return n;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NULL;
	mutex_init(&fresh->lock, RANK_LEAF, "net");
	for (size_t i = 0; i < NET_HASH; i++) {
		list_init(&fresh->abstract[i]);
		list_init(&fresh->ports[i]);
	}
	fresh->port_next = NET_PORT_FIRST;
	if (atomic_compare_exchange_strong(&k->net, &n, fresh))
		return fresh;
	mutex_destroy(&fresh->lock);
	free(fresh);
	return n;
}

void net_free(struct kernel *k)
{
	struct net *n = atomic_exchange(&k->net, NULL);

	if (!n)
		return;
	mutex_destroy(&n->lock);
	free(n);
}

struct sock_cred sock_cred_of(struct task *t)
{
	return (struct sock_cred){ t->tg->tgid, t->cred->euid, t->cred->egid };
}

struct sock_cred sock_msg_cred(struct task *t)
{
	return (struct sock_cred){ t->tg->tgid, t->cred->uid, t->cred->gid };
}

struct socket *socket_new(struct net *net, const struct sock_ops *ops, int family, int type,
			  int protocol)
{
	struct socket *s;

	if (atomic_fetch_add(&net->sockets, 1) >= NET_MAX_SOCKETS) {
		atomic_fetch_sub(&net->sockets, 1);
		return NULL;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		atomic_fetch_sub(&net->sockets, 1);
		return NULL;
	}
	refs_init(&s->refs, "socket");
	s->ops = ops;
	s->net = net;
	s->family = family;
	s->type = type;
	s->protocol = protocol;
	s->cookie = atomic_fetch_add(&net->next_cookie, 1) + 1;
	mutex_init(&s->lock, RANK_SOCKET, "socket");
	waitq_init(&s->waitq);
	sock_queue_init(&s->rq);
	list_init(&s->accept_queue);
	list_init(&s->accept_node);
	s->sndbuf = SOCK_BUF_DEFAULT;
	s->rcvbuf = SOCK_BUF_DEFAULT;
	s->rcvlowat = 1;
	s->peek_off = -1;
	if (family == AF_UNIX) {
		list_init(&s->un.name_node);
		list_init(&s->un.senders);
		list_init(&s->un.sender_node);
	} else if (family != AF_NETLINK) {
		list_init(&s->in.port_node);
		s->in.opts = calloc(1, sizeof(*s->in.opts));
		if (!s->in.opts) {
			socket_put(s);
			return NULL;
		}
	}
	return s;
}

struct socket *socket_get(struct socket *s)
{
	refs_get(&s->refs);
	return s;
}

void socket_put(struct socket *s)
{
	struct list bufs;

	if (!s || !refs_put(&s->refs))
		return;
	list_init(&bufs);
	sock_queue_take_all(&s->rq, &bufs);
	sock_buf_free_list(&bufs);
	socket_put(atomic_load(&s->peer));
	if (s->family == AF_UNIX) {
		sock_name_put(s->un.name);
		if (s->un.path.dentry)
			path_put(&s->un.path);
	} else if (s->family != AF_NETLINK) {
		free(s->in.opts);
	}
	waitq_destroy(&s->waitq);
	mutex_destroy(&s->lock);
	atomic_fetch_sub(&s->net->sockets, 1);
	free(s);
}

int socket_create(struct task *t, int family, int type, int protocol, struct socket **ret)
{
	if (type < 0 || type >= 11)
		return -EINVAL;
	switch (family) {
	case AF_UNIX: return unix_create(t, type, protocol, ret);
	case AF_INET:
	case AF_INET6: return inet_create(t, family, type, protocol, ret);
	case AF_NETLINK: return netlink_create(t, type, protocol, ret);
	default: return -EAFNOSUPPORT;
	}
}

/* ---- the file ---- */

static void socket_file_release(struct file *f)
{
	struct socket *s = f->private;

	s->ops->release(s);
	socket_put(s);
}

static ssize_t socket_file_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct socket *s = f->private;
	struct sock_msg m = { .flags = 0 };
	ssize_t ret = s->ops->recv(s, &m, dst);

	scm_fds_free(m.fds);
	return ret;
}

static ssize_t socket_file_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct socket *s = f->private;
	struct sock_msg m = { .flags = 0 };
	int err;
	ssize_t ret;

	if (current_task)
		m.cred = sock_msg_cred(current_task);
	err = s->ops->send_begin ? s->ops->send_begin(s, current_task, &m) : 0;
	ret = err < 0 ? err : s->ops->send(s, &m, src);
	socket_put(m.target);
	sock_name_put(m.from);
	return ret;
}

static u32 socket_file_poll(struct file *f)
{
	struct socket *s = f->private;

	return s->ops->poll(s);
}

static struct waitq *socket_file_waitq(struct file *f)
{
	struct socket *s = f->private;

	return &s->waitq;
}

static bool socket_file_whole(struct file *f)
{
	struct socket *s = f->private;

	return s->ops->records;
}

static u64 socket_file_timeout(struct file *f, bool write)
{
	struct socket *s = f->private;

	return write ? s->snd_timeout_ns : s->rcv_timeout_ns;
}

static s64 socket_file_ioctl(struct file *f, u32 cmd, u64 arg)
{
	struct socket *s = f->private;
	struct task *t = current_task;
	int value;

	switch (cmd) {
	case FIONREAD: /* SIOCINQ */
		if (s->state == SOCK_LISTENING)
			return -EINVAL;
		value = (int)MIN(socket_inq(s), (size_t)INT32_MAX);
		return copy_out(t, ua(arg), &value, sizeof(value));
	case SIOCOUTQ: /* TIOCOUTQ */
		if (s->state == SOCK_LISTENING)
			return -EINVAL;
		value = (int)MIN(socket_outq(s), (size_t)INT32_MAX);
		return copy_out(t, ua(arg), &value, sizeof(value));
	case SIOCATMARK:
		if (s->type == SOCK_DGRAM)
			return -ENOTTY;
		value = 0;
		return copy_out(t, ua(arg), &value, sizeof(value));
	case FIOSETOWN:
	case SIOCSPGRP:
		if (copy_in(t, &value, ua(arg), sizeof(value)) < 0)
			return -EFAULT;
		f->owner_pid = value;
		return 0;
	case FIOGETOWN:
	case SIOCGPGRP: value = f->owner_pid; return copy_out(t, ua(arg), &value, sizeof(value));
	default: return netdev_ioctl(t, cmd, ua(arg));
	}
}

static const struct file_ops socket_file_ops = {
	.kind = "socket",
	.release = socket_file_release,
	.flush = unix_gc_closing,
	.read = socket_file_read,
	.write = socket_file_write,
	.poll = socket_file_poll,
	.waitq = socket_file_waitq,
	.ioctl = socket_file_ioctl,
	.whole_io = socket_file_whole,
	.io_timeout = socket_file_timeout,
};

struct socket *socket_of_file(struct file *f)
{
	return f->ops == &socket_file_ops ? f->private : NULL;
}

int socket_file_new(struct task *t, struct socket *s, u32 flags, struct file **ret)
{
	struct inode *inode;
	int err = vfs_anon_inode("socket", S_IFSOCK | 0777, t->cred, &inode);

	if (err < 0) {
		s->ops->release(s);
		socket_put(s);
		return err;
	}
	err = file_new(inode, NULL, O_RDWR | (flags & O_NONBLOCK), t->cred, &socket_file_ops, s,
		       ret);
	inode_put(inode);
	if (err < 0) {
		s->ops->release(s);
		socket_put(s);
	}
	return err;
}
