/* Addresses and ports of the loopback stack; see inet.h. */
#include "sentry/net/inet.h"
#include "sentry/kernel/kernel.h"
#include <arpa/inet.h>
#include <linux/capability.h>
#include <string.h>

#define SIN6_LEN_MIN 24 /* sockaddr_in6 of RFC 2133, without scope */

static struct in6_addr map_v4(u32 host_order)
{
	struct in6_addr ip = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	u32 be = htonl(host_order);

	memcpy(ip.s6_addr + 12, &be, 4);
	return ip;
}

static u32 v4_of(const struct in6_addr *ip)
{
	u32 be;

	memcpy(&be, ip->s6_addr + 12, 4);
	return ntohl(be);
}

bool inet_is_v4(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_V4MAPPED(ip);
}

bool inet_is_any(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_UNSPECIFIED(ip) || (inet_is_v4(ip) && v4_of(ip) == INADDR_ANY);
}

bool inet_is_loopback(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_LOOPBACK(ip) || (inet_is_v4(ip) && v4_of(ip) >> 24 == 127);
}

struct in6_addr inet_any(const struct socket *s)
{
	return s->family == AF_INET ? map_v4(INADDR_ANY) : in6addr_any;
}

struct in6_addr inet_source(const struct in6_addr *to)
{
	return inet_is_v4(to) ? map_v4(INADDR_LOOPBACK) : in6addr_loopback;
}

int inet_addr_parse(struct socket *s, const struct sockaddr_storage *ss, u32 len,
		    struct inet_addr *ret)
{
	if (len < sizeof(sa_family_t))
		return -EINVAL;
	if (s->family == AF_INET) {
		struct sockaddr_in in;

		if (len < sizeof(in))
			return -EINVAL;
		memcpy(&in, ss, sizeof(in));
		if (in.sin_family != AF_INET &&
		    (in.sin_family != AF_UNSPEC || in.sin_addr.s_addr != htonl(INADDR_ANY)))
			return -EAFNOSUPPORT;
		*ret = (struct inet_addr){ map_v4(ntohl(in.sin_addr.s_addr)), ntohs(in.sin_port) };
		return 0;
	}
	struct sockaddr_in6 in6;
	memset(&in6, 0, sizeof(in6));
	if (ss->ss_family != AF_INET6)
		return -EAFNOSUPPORT;
	if (len < SIN6_LEN_MIN)
		return -EINVAL;
	memcpy(&in6, ss, MIN(len, (u32)sizeof(in6)));
	*ret = (struct inet_addr){ in6.sin6_addr, ntohs(in6.sin6_port) };
	return 0;
}

int inet_addr_format(int family, const struct inet_addr *a, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (family == AF_INET) {
		struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(a->port) };

		if (inet_is_v4(&a->ip))
			in.sin_addr.s_addr = htonl(v4_of(&a->ip));
		memcpy(ret, &in, sizeof(in));
		return sizeof(in);
	}
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6,
				    .sin6_port = htons(a->port),
				    .sin6_addr = a->ip };
	memcpy(ret, &in6, sizeof(in6));
	return sizeof(in6);
}

int inet_route(struct socket *s, struct inet_addr *to)
{
	if (inet_is_any(&to->ip))
		to->ip = inet_is_v4(&to->ip) ? map_v4(INADDR_LOOPBACK) : in6addr_loopback;
	if (!inet_is_loopback(&to->ip))
		return -ENETUNREACH;
	if (inet_is_v4(&to->ip) && s->family == AF_INET6 && s->in.v6only)
		return -ENETUNREACH;
	return 0;
}

/* ---- ports ---- */

static struct list *port_list(struct net *net, u16 port)
{
	return &net->ports[port % NET_HASH];
}

/* Whether two local addresses can both be meant by one destination. */
static bool overlaps(const struct socket *a, const struct in6_addr *ip, bool v6only, int family)
{
	bool a_any = inet_is_any(&a->in.local.ip), b_any = inet_is_any(ip);
	bool a_v6 = !inet_is_v4(&a->in.local.ip), b_v6 = !inet_is_v4(ip);

	if (a_v6 != b_v6) {
		/* Different families meet only in a dual-stack wildcard. */
		if (a_v6)
			return a_any && !a->in.v6only;
		return b_any && family == AF_INET6 && !v6only;
	}
	return a_any || b_any || IN6_ARE_ADDR_EQUAL(&a->in.local.ip, ip);
}

static bool may_share(const struct socket *a, const struct socket *s)
{
	if (a->in.reuse_port && s->in.reuse_port)
		return true;
	if (!a->reuse_addr || !s->reuse_addr)
		return false;
	return s->type == SOCK_DGRAM || (a->state != SOCK_LISTENING && s->state != SOCK_LISTENING);
}

static bool port_taken(struct socket *s, const struct in6_addr *ip, u16 port)
{
	struct socket *a;

	mutex_assert_held(&s->net->lock);
	list_for_each (a, port_list(s->net, port), in.port_node)
		if (a != s && a->in.local.port == port && a->type == s->type &&
		    overlaps(a, ip, s->in.v6only, s->family) && !may_share(a, s))
			return true;
	return false;
}

/* Any socket of this type at all: ephemeral ports are not shared. */
static bool port_used(struct socket *s, u16 port)
{
	struct socket *a;

	list_for_each (a, port_list(s->net, port), in.port_node)
		if (a->in.local.port == port && a->type == s->type)
			return true;
	return false;
}

/* net->lock held. 0 when all are taken. */
static u16 pick_port(struct socket *s)
{
	struct net *net = s->net;

	for (u32 i = NET_PORT_FIRST; i <= NET_PORT_LAST; i++) {
		u16 port = (u16)net->port_next;

		if (++net->port_next > NET_PORT_LAST)
			net->port_next = NET_PORT_FIRST;
		if (!port_used(s, port))
			return port;
	}
	return 0;
}

static int bind_to(struct socket *s, const struct in6_addr *ip, u16 port)
{
	struct net *net = s->net;

	MUTEX_GUARD(&net->lock);
	if (s->in.bound)
		return -EINVAL;
	s->in.user_port = port != 0;
	if (port == 0)
		port = pick_port(s);
	else if (port_taken(s, ip, port))
		return -EADDRINUSE;
	if (port == 0)
		return -EADDRINUSE;
	s->in.local = (struct inet_addr){ *ip, port };
	s->in.bound = true;
	list_push_back(port_list(net, port), &s->in.port_node);
	return 0;
}

int inet_bind(struct socket *s, struct task *t, const struct sockaddr_storage *addr, u32 len)
{
	struct inet_addr a;
	int ret = inet_addr_parse(s, addr, len, &a);

	if (ret < 0)
		return ret;
	if (!inet_is_any(&a.ip) && !inet_is_loopback(&a.ip))
		return -EADDRNOTAVAIL;
	if (s->family == AF_INET6 && inet_is_v4(&a.ip) && s->in.v6only)
		return -EINVAL;
	if (a.port && a.port < IPPORT_RESERVED && !cred_capable(t->cred, CAP_NET_BIND_SERVICE))
		return -EACCES;
	if (s->state != SOCK_CLOSED)
		return -EINVAL;
	return bind_to(s, &a.ip, a.port);
}

int inet_autobind(struct socket *s)
{
	struct in6_addr any = inet_any(s);
	int ret;

	if (s->in.bound)
		return 0;
	ret = bind_to(s, &any, 0);
	/* Someone else was first: fine. */
	return ret == -EINVAL ? 0 : (ret == -EADDRINUSE ? -EAGAIN : ret);
}

void inet_unbind(struct socket *s)
{
	MUTEX_GUARD(&s->net->lock);
	list_del(&s->in.port_node);
	s->in.bound = false;
}

/* How well a takes `to`; 0 not at all. */
static int match(struct socket *a, const struct inet_addr *to, const struct inet_addr *from)
{
	const struct in6_addr *ip = &a->in.local.ip;
	int score = 1;

	if (a->in.local.port != to->port)
		return 0;
	if (inet_is_any(ip)) {
		if (inet_is_v4(ip) != inet_is_v4(&to->ip) && (inet_is_v4(ip) || a->in.v6only))
			return 0;
		if (inet_is_v4(ip) == inet_is_v4(&to->ip))
			score++;
	} else if (IN6_ARE_ADDR_EQUAL(ip, &to->ip)) {
		score += 4;
	} else {
		return 0;
	}
	if (a->in.udp_connected) {
		if (!from || a->in.remote.port != from->port ||
		    !IN6_ARE_ADDR_EQUAL(&a->in.remote.ip, &from->ip))
			return 0;
		score += 8;
	}
	return score;
}

struct socket *inet_lookup(struct net *net, int type, const struct inet_addr *to,
			   const struct inet_addr *from)
{
	struct socket *a, *best = NULL;
	int best_score = 0;

	MUTEX_GUARD(&net->lock);
	list_for_each (a, port_list(net, to->port), in.port_node) {
		int score = a->type == type ? match(a, to, from) : 0;

		if (type == SOCK_STREAM && a->state != SOCK_LISTENING)
			score = 0;
		if (score > best_score) {
			best = a;
			best_score = score;
		}
	}
	return best && refs_tryget(&best->refs) ? best : NULL;
}

int inet_name(struct socket *s, bool peer, struct sockaddr_storage *ret)
{
	struct inet_addr a;
	bool connected;

	mutex_lock(&s->lock);
	connected = s->state == SOCK_CONNECTED || s->in.udp_connected;
	mutex_lock(&s->net->lock);
	a = peer ? s->in.remote : s->in.local;
	mutex_unlock(&s->net->lock);
	mutex_unlock(&s->lock);
	if (peer && !connected)
		return -ENOTCONN;
	return inet_addr_format(s->family, &a, ret);
}

int inet_create(struct task *t, int family, int type, int protocol, struct socket **ret)
{
	struct net *net = net_of(t->kernel);
	const struct sock_ops *ops;
	struct socket *s;

	if (protocol < 0 || protocol >= IPPROTO_MAX)
		return -EINVAL;
	switch (type) {
	case SOCK_STREAM:
		if (protocol && protocol != IPPROTO_TCP)
			return -EPROTONOSUPPORT;
		ops = &inet_tcp_ops;
		protocol = IPPROTO_TCP;
		break;
	case SOCK_DGRAM:
		if (protocol && protocol != IPPROTO_UDP)
			return -EPROTONOSUPPORT;
		ops = &inet_udp_ops;
		protocol = IPPROTO_UDP;
		break;
	case SOCK_RAW: return cred_capable(t->cred, CAP_NET_RAW) ? -EPROTONOSUPPORT : -EPERM;
	default: return -ESOCKTNOSUPPORT;
	}
	if (!net)
		return -ENOMEM;
	s = socket_new(net, ops, family, type, protocol);
	if (!s)
		return -ENFILE;
	s->in.local.ip = inet_any(s);
	s->in.remote.ip = inet_any(s);
	s->own_cred = sock_cred_of(t);
	*ret = s;
	return 0;
}
