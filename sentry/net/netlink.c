/* Route netlink, as much as getifaddrs and getaddrinfo ask: dumps of the one interface, lo. */
#include "sentry/kernel/kernel.h"
#include "sentry/net/netdev.h"
#include "sentry/net/socket.h"
#include <arpa/inet.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_arp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>

#define NETLINK_REQUEST_MAX 8192
#define NETLINK_QUEUE_MAX 256
#define READ_EVENTS (EPOLLIN | EPOLLRDNORM)

/* ---- building messages ---- */

struct reply {
	u8 data[2048];
	u32 len;
};

static struct nlmsghdr *begin(struct reply *r, const struct nlmsghdr *req, u16 type, u16 flags,
			      u32 body)
{
	struct nlmsghdr *h = (struct nlmsghdr *)(r->data + r->len);

	memset(h, 0, NLMSG_SPACE(body));
	h->nlmsg_len = NLMSG_LENGTH(body);
	h->nlmsg_type = type;
	h->nlmsg_flags = flags;
	h->nlmsg_seq = req->nlmsg_seq;
	h->nlmsg_pid = req->nlmsg_pid;
	return h;
}

static void attr(struct nlmsghdr *h, u16 type, const void *data, u16 len)
{
	struct rtattr *a = (struct rtattr *)((u8 *)h + NLMSG_ALIGN(h->nlmsg_len));

	memset(a, 0, RTA_SPACE(len));
	a->rta_type = type;
	a->rta_len = (u16)RTA_LENGTH(len);
	memcpy(RTA_DATA(a), data, len);
	h->nlmsg_len = NLMSG_ALIGN(h->nlmsg_len) + RTA_ALIGN(a->rta_len);
}

static void end(struct reply *r, struct nlmsghdr *h)
{
	r->len += NLMSG_ALIGN(h->nlmsg_len);
}

static void add_link(struct reply *r, const struct nlmsghdr *req, u16 flags)
{
	struct nlmsghdr *h = begin(r, req, RTM_NEWLINK, flags, sizeof(struct ifinfomsg));
	struct ifinfomsg *ifi = NLMSG_DATA(h);
	u32 mtu = NETDEV_LO_MTU, qlen = 1000, group = 0;
	u8 mac[6] = { 0 }, oper = 0;

	ifi->ifi_family = AF_UNSPEC;
	ifi->ifi_type = ARPHRD_LOOPBACK;
	ifi->ifi_index = NETDEV_LO_INDEX;
	ifi->ifi_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING | IFF_LOWER_UP;
	attr(h, IFLA_IFNAME, "lo", 3);
	attr(h, IFLA_TXQLEN, &qlen, 4);
	attr(h, IFLA_OPERSTATE, &oper, 1);
	attr(h, IFLA_MTU, &mtu, 4);
	attr(h, IFLA_GROUP, &group, 4);
	attr(h, IFLA_ADDRESS, mac, 6);
	attr(h, IFLA_BROADCAST, mac, 6);
	attr(h, IFLA_QDISC, "noqueue", 8);
	end(r, h);
}

static void add_addr(struct reply *r, const struct nlmsghdr *req, u8 family)
{
	struct nlmsghdr *h = begin(r, req, RTM_NEWADDR, NLM_F_MULTI, sizeof(struct ifaddrmsg));
	struct ifaddrmsg *ifa = NLMSG_DATA(h);
	struct ifa_cacheinfo ci = { UINT32_MAX, UINT32_MAX, 0, 0 };
	struct in6_addr lo6 = in6addr_loopback;
	u32 lo4 = htonl(INADDR_LOOPBACK), flags = IFA_F_PERMANENT;

	ifa->ifa_family = family;
	ifa->ifa_prefixlen = family == AF_INET ? 8 : 128;
	ifa->ifa_flags = IFA_F_PERMANENT;
	ifa->ifa_scope = RT_SCOPE_HOST;
	ifa->ifa_index = NETDEV_LO_INDEX;
	if (family == AF_INET) {
		attr(h, IFA_ADDRESS, &lo4, 4);
		attr(h, IFA_LOCAL, &lo4, 4);
		attr(h, IFA_LABEL, "lo", 3);
	} else {
		attr(h, IFA_ADDRESS, &lo6, 16);
	}
	attr(h, IFA_FLAGS, &flags, 4);
	attr(h, IFA_CACHEINFO, &ci, sizeof(ci));
	end(r, h);
}

static void add_status(struct reply *r, const struct nlmsghdr *req, int err)
{
	struct nlmsghdr *h = begin(r, req, NLMSG_ERROR, 0, sizeof(struct nlmsgerr));
	struct nlmsgerr *e = NLMSG_DATA(h);

	e->error = err;
	e->msg = *req;
	end(r, h);
}

static void add_done(struct reply *r, const struct nlmsghdr *req)
{
	struct nlmsghdr *h = begin(r, req, NLMSG_DONE, NLM_F_MULTI, sizeof(int));

	end(r, h);
}

/* Queues a reply as one message from the kernel (port 0). */
static int queue_reply(struct socket *s, const struct reply *r)
{
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK };
	struct sock_buf *b;

	if (!r->len)
		return 0;
	b = sock_buf_new(r->len);
	if (!b)
		return -ENOBUFS;
	memcpy(b->data, r->data, r->len);
	b->end = r->len;
	b->from = sock_name_new(&nl, sizeof(nl));
	mutex_lock(&s->lock);
	if (s->rq.count >= NETLINK_QUEUE_MAX) {
		s->error = ENOBUFS;
		mutex_unlock(&s->lock);
		sock_buf_free(b);
		return 0;
	}
	sock_queue_push(&s->rq, b);
	mutex_unlock(&s->lock);
	socket_wake(s, READ_EVENTS);
	return 0;
}

static int get_link(struct socket *s, const struct nlmsghdr *req, const u8 *body, u32 len)
{
	struct reply r = { .len = 0 };
	struct ifinfomsg ifi = { 0 };
	bool dump = (req->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;

	memcpy(&ifi, body, MIN(len, (u32)sizeof(ifi)));
	if (!dump) {
		if (ifi.ifi_index > NETDEV_LO_INDEX || ifi.ifi_index < 0)
			add_status(&r, req, -ENODEV);
		else
			add_link(&r, req, 0);
		return queue_reply(s, &r);
	}
	add_link(&r, req, NLM_F_MULTI);
	int ret = queue_reply(s, &r);
	if (ret < 0)
		return ret;
	r.len = 0;
	add_done(&r, req);
	return queue_reply(s, &r);
}

static int get_addr(struct socket *s, const struct nlmsghdr *req, const u8 *body, u32 len)
{
	struct reply r = { .len = 0 };
	u8 family = len ? body[0] : AF_UNSPEC;
	int ret;

	if (family == AF_UNSPEC || family == AF_INET)
		add_addr(&r, req, AF_INET);
	if (family == AF_UNSPEC || family == AF_INET6)
		add_addr(&r, req, AF_INET6);
	ret = queue_reply(s, &r);
	if (ret < 0)
		return ret;
	r.len = 0;
	add_done(&r, req);
	return queue_reply(s, &r);
}

static int serve(struct socket *s, const struct nlmsghdr *req, const u8 *body, u32 len)
{
	struct reply r = { .len = 0 };
	bool dump = (req->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;

	if (!(req->nlmsg_flags & NLM_F_REQUEST) || req->nlmsg_type < NLMSG_MIN_TYPE)
		goto ack;
	switch (req->nlmsg_type) {
	case RTM_GETLINK: return get_link(s, req, body, len);
	case RTM_GETADDR: return get_addr(s, req, body, len);
	case RTM_GETROUTE:
	case RTM_GETNEIGH:
	case RTM_GETRULE:
		if (dump)
			add_done(&r, req);
		else
			add_status(&r, req, -ENETUNREACH);
		return queue_reply(s, &r);
	default:
		/* Verbs come in fours: NEW, DEL, GET, SET. Only the kernel's owner may change
		 * things. */
		add_status(&r, req, (req->nlmsg_type & 3) == 2 ? -EOPNOTSUPP : -EPERM);
		return queue_reply(s, &r);
	}
ack:
	if (req->nlmsg_flags & NLM_F_ACK)
		add_status(&r, req, 0);
	return queue_reply(s, &r);
}

/* ---- the socket ---- */

static int netlink_bind(struct socket *s, struct task *t, const struct sockaddr_storage *addr,
			u32 len)
{
	struct sockaddr_nl nl;

	if (len < sizeof(nl))
		return -EINVAL;
	memcpy(&nl, addr, sizeof(nl));
	if (nl.nl_family != AF_NETLINK)
		return -EINVAL;
	MUTEX_GUARD(&s->lock);
	if (s->nl.bound && nl.nl_pid && nl.nl_pid != s->nl.pid)
		return -EINVAL;
	if (!s->nl.bound)
		s->nl.pid = nl.nl_pid ? nl.nl_pid : (u32)t->tg->tgid;
	s->nl.bound = true;
	s->nl.groups = nl.nl_groups;
	return 0;
}

static int netlink_connect(struct socket *s, struct task *t, const struct sockaddr_storage *addr,
			   u32 len, bool nonblock)
{
	struct sockaddr_nl nl;

	if (len < sizeof(sa_family_t))
		return -EINVAL;
	if (addr->ss_family == AF_UNSPEC)
		return 0;
	if (len < sizeof(nl) || addr->ss_family != AF_NETLINK)
		return -EINVAL;
	memcpy(&nl, addr, sizeof(nl));
	MUTEX_GUARD(&s->lock);
	s->nl.dst_pid = nl.nl_pid;
	if (!s->nl.bound)
		s->nl.pid = (u32)t->tg->tgid;
	s->nl.bound = true;
	return 0;
}

static int netlink_name(struct socket *s, bool peer, struct sockaddr_storage *ret)
{
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK };

	MUTEX_GUARD(&s->lock);
	nl.nl_pid = peer ? s->nl.dst_pid : s->nl.pid;
	nl.nl_groups = peer ? 0 : s->nl.groups;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &nl, sizeof(nl));
	return sizeof(nl);
}

static int netlink_send_begin(struct socket *s, struct task *t, struct sock_msg *m)
{
	struct sockaddr_nl nl = { 0 };

	if (m->flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (m->name_len) {
		if (m->name_len < sizeof(nl) || m->name.ss_family != AF_NETLINK)
			return -EINVAL;
		memcpy(&nl, &m->name, sizeof(nl));
		if (nl.nl_pid)
			return -ECONNREFUSED;
	}
	MUTEX_GUARD(&s->lock);
	if (!s->nl.bound)
		s->nl.pid = (u32)t->tg->tgid;
	s->nl.bound = true;
	return 0;
}

static ssize_t netlink_send(struct socket *s, struct sock_msg *m, struct kiov *k)
{
	size_t len = k->remaining, pos = 0;
	int ret = 0;
	u8 *buf;

	if (len > NETLINK_REQUEST_MAX)
		return -EMSGSIZE;
	if (!len)
		return 0;
	buf = malloc(len);
	if (!buf)
		return -ENOBUFS;
	if (kiov_get(k, buf, len) != (ssize_t)len) {
		free(buf);
		return -EFAULT;
	}
	while (ret == 0 && len - pos >= sizeof(struct nlmsghdr)) {
		struct nlmsghdr h;

		memcpy(&h, buf + pos, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > len - pos)
			break;
		h.nlmsg_pid = s->nl.pid;
		ret = serve(s, &h, buf + pos + NLMSG_HDRLEN, h.nlmsg_len - NLMSG_HDRLEN);
		if (NLMSG_ALIGN(h.nlmsg_len) >= len - pos)
			break;
		pos += NLMSG_ALIGN(h.nlmsg_len);
	}
	free(buf);
	return ret < 0 ? ret : (ssize_t)len;
}

static u32 netlink_poll(struct socket *s)
{
	return EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND | (s->error ? EPOLLERR : 0) |
	       (s->rq.cost ? READ_EVENTS : 0);
}

static int netlink_shutdown(struct socket *s, int how)
{
	return -EOPNOTSUPP;
}

static int netlink_setsockopt(struct socket *s, struct task *t, int level, int opt, const void *val,
			      u32 len)
{
	return level == SOL_NETLINK ? 0 : -ENOPROTOOPT;
}

static int netlink_getsockopt(struct socket *s, struct task *t, int level, int opt, void *val,
			      u32 *len)
{
	return -ENOPROTOOPT;
}

static void netlink_release(struct socket *s)
{
	mutex_lock(&s->lock);
	s->dead = true;
	mutex_unlock(&s->lock);
}

static const struct sock_ops netlink_ops = {
	.bind = netlink_bind,
	.connect = netlink_connect,
	.name = netlink_name,
	.send_begin = netlink_send_begin,
	.send = netlink_send,
	.recv = record_recv,
	.shutdown = netlink_shutdown,
	.setsockopt = netlink_setsockopt,
	.getsockopt = netlink_getsockopt,
	.poll = netlink_poll,
	.release = netlink_release,
	.records = true,
};

int netlink_create(struct task *t, int type, int protocol, struct socket **ret)
{
	struct net *net = net_of(t->kernel);

	if (type != SOCK_RAW && type != SOCK_DGRAM)
		return -ESOCKTNOSUPPORT;
	if (protocol != NETLINK_ROUTE)
		return -EPROTONOSUPPORT;
	if (!net)
		return -ENOMEM;
	*ret = socket_new(net, &netlink_ops, AF_NETLINK, type, protocol);
	return *ret ? 0 : -ENFILE;
}
