/* Options of IP, IPv6, TCP and UDP: most are accepted, kept and shown; nothing leaves the loopback.
 */
#include "sentry/net/inet.h"
#include <linux/in6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <string.h>

#ifndef IP_MTU
#define IP_MTU 14
#endif
#define IP_TOS_ 1
#define IP_TTL_ 2
#define IP_ADD_MEMBERSHIP_ 35
#define IP_DROP_MEMBERSHIP_ 36
#define IP_MULTICAST_TTL_ 33
#define IP_MULTICAST_LOOP_ 34
#define IP_MTU_DISCOVER_ 10
#define IP_HDRINCL_ 3
/* Group memberships, of IP and IPv6 alike: nothing here has multicast. */
#define MCAST_FIRST_ 42 /* MCAST_JOIN_GROUP */
#define MCAST_LAST_ 48	/* MCAST_MSFILTER */

/* Options whose value is stored as given; the index keeps value + 1, so that 0 means "default". */
static void store(_Atomic int *slot, int v)
{
	*slot = v == INT32_MAX ? v : v + 1;
}

static int stored(_Atomic int *slot, int fallback)
{
	int v = *slot;

	return v ? v - 1 : fallback;
}

static int set_tcp(struct socket *s, int opt, const void *val, u32 len)
{
	int v;

	if (s->type != SOCK_STREAM)
		return -ENOPROTOOPT;
	if (opt == TCP_CONGESTION)
		return len >= 4 && (!strncmp(val, "cubic", MIN(len, 5U)) ||
				    !strncmp(val, "reno", 4))
			       ? 0
			       : -ENOENT;
	if (opt == TCP_ULP || opt == TCP_MD5SIG || opt == TCP_REPAIR || opt == TCP_INFO ||
	    opt < 0 || opt >= (int)ARRAY_SIZE(s->in.opts->tcp))
		return -ENOPROTOOPT;
	if (len < sizeof(v))
		return -EINVAL;
	memcpy(&v, val, sizeof(v));
	switch (opt) {
	case TCP_NODELAY:
	case TCP_CORK:
	case TCP_QUICKACK: v = v != 0; break;
	case TCP_KEEPIDLE:
	case TCP_KEEPINTVL:
		if (v < 1 || v > 32767)
			return -EINVAL;
		break;
	case TCP_KEEPCNT:
	case TCP_SYNCNT:
		if (v < 1 || v > 127)
			return -EINVAL;
		break;
	case TCP_USER_TIMEOUT:
	case TCP_FASTOPEN:
		if (v < 0)
			return -EINVAL;
		break;
	case TCP_MAXSEG:
		if (v && (v < 88 || v > 32767))
			return -EINVAL;
		break;
	}
	store(&s->in.opts->tcp[opt], v);
	return 0;
}

static int tcp_default(int opt)
{
	switch (opt) {
	case TCP_KEEPIDLE: return 7200;
	case TCP_KEEPINTVL: return 75;
	case TCP_KEEPCNT: return 9;
	case TCP_SYNCNT: return 6;
	case TCP_LINGER2: return 60;
	case TCP_QUICKACK: return 1;
	case TCP_NOTSENT_LOWAT: return -1;
	default: return 0;
	}
}

static void put_out(void *val, u32 *len, const void *src, u32 size)
{
	*len = MIN(*len, size);
	memcpy(val, src, *len);
}

static int tcp_info_state(struct socket *s)
{
	switch (atomic_load(&s->state)) {
	case SOCK_CONNECTED:
		if ((s->shut & SHUT_BOTH) == SHUT_BOTH)
			return 7; /* TCP_CLOSE */
		return s->shut & SHUT_RCV   ? 8
		       : s->shut & SHUT_SND ? 5
					    : 1; /* CLOSE_WAIT, FIN_WAIT2, ESTABLISHED */
	case SOCK_LISTENING: return 10;
	case SOCK_CONNECTING: return 2;
	default: return 7;
	}
}

static int get_tcp(struct socket *s, int opt, void *val, u32 *len)
{
	int v;

	if (opt == TCP_INFO) {
		struct tcp_info ti = { .tcpi_state = (u8)tcp_info_state(s),
				       .tcpi_snd_mss = 65483,
				       .tcpi_rcv_mss = 536,
				       .tcpi_pmtu = 65535,
				       .tcpi_advmss = 65483 };

		put_out(val, len, &ti, sizeof(ti));
		return 0;
	}
	if (opt == TCP_CONGESTION) {
		put_out(val, len, "cubic\0\0\0\0\0\0\0\0\0\0", 16);
		return 0;
	}
	if (opt <= 0 || opt >= (int)ARRAY_SIZE(s->in.opts->tcp) || opt == TCP_ULP ||
	    opt == TCP_MD5SIG)
		return -ENOPROTOOPT;
	v = stored(&s->in.opts->tcp[opt], tcp_default(opt));
	if (opt == TCP_MAXSEG)
		v = s->state == SOCK_CONNECTED ? 65483 : (v ? v : 536);
	put_out(val, len, &v, sizeof(v));
	return 0;
}

static int int_in(const void *val, u32 len, int *ret)
{
	*ret = 0;
	if (len >= sizeof(int))
		memcpy(ret, val, sizeof(int));
	else if (len >= 1)
		*ret = *(const u8 *)val;
	else
		return -EINVAL;
	return 0;
}

static int set_ip(struct socket *s, int opt, const void *val, u32 len)
{
	int v, ret = int_in(val, len, &v);

	if (ret < 0)
		return ret;
	if (opt <= 0 || opt >= 128)
		return -ENOPROTOOPT;
	if (opt >= MCAST_FIRST_ && opt <= MCAST_LAST_)
		return -ENODEV;
	switch (opt) {
	case IP_TTL_:
		if (v != -1 && (v < 1 || v > 255))
			return -EINVAL;
		v = v == -1 ? 64 : v;
		break;
	case IP_ADD_MEMBERSHIP_:
	case IP_DROP_MEMBERSHIP_: return s->type == SOCK_STREAM ? -EPROTO : -ENODEV;
	case IP_HDRINCL_: return -ENOPROTOOPT;
	case IP_MTU_DISCOVER_:
		if (v < 0 || v > 5)
			return -EINVAL;
		break;
	}
	store(&s->in.opts->ip[opt], v);
	return 0;
}

static int get_ip(struct socket *s, int opt, void *val, u32 *len)
{
	int v = 0;

	if (opt <= 0 || opt >= 128)
		return -ENOPROTOOPT;
	switch (opt) {
	case IP_TTL_: v = 64; break;
	case IP_MULTICAST_TTL_: v = 1; break;
	case IP_MULTICAST_LOOP_: v = 1; break;
	case IP_MTU_DISCOVER_: v = 1; break;
	case IP_MTU:
		if (s->state != SOCK_CONNECTED && !s->in.udp_connected)
			return -ENOTCONN;
		v = 65535;
		break;
	case 4: /* IP_OPTIONS: none set */ *len = 0; return 0;
	}
	v = stored(&s->in.opts->ip[opt], v);
	put_out(val, len, &v, sizeof(v));
	return 0;
}

static int set_ipv6(struct socket *s, int opt, const void *val, u32 len)
{
	int v, ret = int_in(val, len, &v);

	if (s->family != AF_INET6)
		return -ENOPROTOOPT;
	if (ret < 0)
		return ret;
	if (opt <= 0 || opt >= 128)
		return -ENOPROTOOPT;
	if (opt == IPV6_V6ONLY) {
		MUTEX_GUARD(&s->net->lock);
		if (s->in.bound)
			return -EINVAL;
		s->in.v6only = v != 0;
		return 0;
	}
	if (opt == IPV6_ADD_MEMBERSHIP || opt == IPV6_DROP_MEMBERSHIP)
		return s->type == SOCK_STREAM ? -EPROTO : -ENODEV;
	if (opt >= MCAST_FIRST_ && opt <= MCAST_LAST_)
		return -ENODEV;
	if (opt == IPV6_UNICAST_HOPS && (v < -1 || v > 255))
		return -EINVAL;
	store(&s->in.opts->ip[128 + opt], v);
	return 0;
}

static int get_ipv6(struct socket *s, int opt, void *val, u32 *len)
{
	int v = 0;

	if (opt <= 0 || opt >= 128)
		return -ENOPROTOOPT;
	if (opt == IPV6_V6ONLY)
		v = s->in.v6only;
	else if (opt == IPV6_UNICAST_HOPS)
		v = stored(&s->in.opts->ip[128 + opt], 64);
	else if (opt == IPV6_MTU)
		v = 65536;
	else
		v = stored(&s->in.opts->ip[128 + opt], 0);
	put_out(val, len, &v, sizeof(v));
	return 0;
}

static int set_udp(struct socket *s, int opt, const void *val, u32 len)
{
	int v;

	if (s->type != SOCK_DGRAM)
		return -ENOPROTOOPT;
	if (opt == UDP_CORK || opt == UDP_NO_CHECK6_TX || opt == UDP_NO_CHECK6_RX)
		return int_in(val, len, &v);
	return -ENOPROTOOPT; /* UDP_SEGMENT, UDP_GRO: programs fall back */
}

static int get_udp(struct socket *s, int opt, void *val, u32 *len)
{
	int v = 0;

	switch (opt) {
	case UDP_CORK:
	case UDP_ENCAP:
	case UDP_NO_CHECK6_TX:
	case UDP_NO_CHECK6_RX: put_out(val, len, &v, sizeof(v)); return 0;
	default: return -ENOPROTOOPT;
	}
}

int inet_setsockopt(struct socket *s, struct task *t, int level, int opt, const void *val, u32 len)
{
	switch (level) {
	case IPPROTO_TCP: return set_tcp(s, opt, val, len);
	case IPPROTO_UDP: return set_udp(s, opt, val, len);
	case IPPROTO_IP: return set_ip(s, opt, val, len);
	case IPPROTO_IPV6: return set_ipv6(s, opt, val, len);
	default: return -ENOPROTOOPT;
	}
}

int inet_getsockopt(struct socket *s, struct task *t, int level, int opt, void *val, u32 *len)
{
	if (level == IPPROTO_TCP && s->type == SOCK_STREAM)
		return get_tcp(s, opt, val, len);
	if (level == IPPROTO_UDP && s->type == SOCK_DGRAM)
		return get_udp(s, opt, val, len);
	if (level == IPPROTO_IP)
		return get_ip(s, opt, val, len);
	if (level == IPPROTO_IPV6 && s->family == AF_INET6)
		return get_ipv6(s, opt, val, len);
	/* What IPv4's do_ip_getsockopt says of levels that are not its own, and IPv6's. */
	return s->family == AF_INET ? -EOPNOTSUPP : -ENOPROTOOPT;
}
