/* AF_INET and AF_INET6 on the loopback: TCP, UDP, names, route netlink. */
#include "conf.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static struct sockaddr_in lo(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}
static int port_of(int fd)
{
	struct sockaddr_in a;
	socklen_t len = sizeof(a);
	OK(getsockname(fd, (void *)&a, &len));
	return ntohs(a.sin_port);
}
static int tcp(void)
{
	return OK(socket(AF_INET, SOCK_STREAM, 0));
}
static int udp(void)
{
	return OK(socket(AF_INET, SOCK_DGRAM, 0));
}
static int bound(int type)
{
	struct sockaddr_in a = lo(0);
	int fd = OK(socket(AF_INET, type, 0));
	OK(bind(fd, (void *)&a, sizeof(a)));
	return fd;
}
static int listening(void)
{
	int fd = bound(SOCK_STREAM);
	OK(listen(fd, 16));
	return fd;
}
/* A connected pair over a listener. */
static void connection(int s[2])
{
	int l = listening();
	struct sockaddr_in a = lo(port_of(l));
	s[0] = tcp();
	OK(connect(s[0], (void *)&a, sizeof(a)));
	s[1] = OK(accept(l, NULL, NULL));
	close(l);
}
/* Waits (the peer's packets take a moment natively) until revents has all of `want`. */
static int wait_events(int fd, int want)
{
	struct pollfd p = { fd, (short)(want | POLLIN | POLLRDHUP), 0 };
	for (int i = 0; i < 10000; i++) {
		OK(poll(&p, 1, 10000));
		if ((p.revents & want) == want)
			break;
	}
	return p.revents;
}

CASE(tcp_talks)
{
	int s[2];
	char b[8];
	connection(s);
	CHECK_EQ(write(s[0], "abc", 3), 3);
	CHECK_EQ(recv(s[1], b, 3, MSG_WAITALL), 3);
	CHECK_EQ(write(s[1], "xy", 2), 2);
	CHECK_EQ(recv(s[0], b, 2, MSG_WAITALL), 2);
	CHECK_ERR(recv(s[0], b, 8, MSG_DONTWAIT), EAGAIN);
}
CASE(tcp_names)
{
	int l = listening(), c = tcp();
	struct sockaddr_in a = lo(port_of(l)), got, peer;
	socklen_t len = sizeof(got);
	OK(connect(c, (void *)&a, sizeof(a)));
	int s = OK(accept(l, (void *)&peer, &len));
	CHECK_EQ(len, sizeof(peer));
	OK(getsockname(c, (void *)&got, &len));
	CHECK_EQ(got.sin_port, peer.sin_port);
	CHECK_EQ(ntohl(peer.sin_addr.s_addr), INADDR_LOOPBACK);
	OK(getpeername(c, (void *)&got, &len));
	CHECK_EQ(got.sin_port, a.sin_port);
	OK(getsockname(s, (void *)&got, &len));
	CHECK_EQ(got.sin_port, a.sin_port);
	CHECK_ERR(getpeername(l, (void *)&got, &len), ENOTCONN);
}
CASE(tcp_refused)
{
	int f = bound(SOCK_STREAM), c = tcp();
	struct sockaddr_in a = lo(port_of(f));
	CHECK_ERR(connect(c, (void *)&a, sizeof(a)), ECONNREFUSED);
	/* The socket can be used again. */
	OK(listen(f, 1));
	OK(connect(c, (void *)&a, sizeof(a)));
	CHECK_ERR(connect(c, (void *)&a, sizeof(a)), EISCONN);
}
CASE(tcp_nonblocking_connect)
{
	int l = listening(), err;
	socklen_t len = sizeof(err);
	struct sockaddr_in a = lo(port_of(l));
	int c = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	if (connect(c, (void *)&a, sizeof(a)) < 0)
		CHECK_EQ(errno, EINPROGRESS);
	CHECK(wait_events(c, POLLOUT) & POLLOUT);
	OK(getsockopt(c, SOL_SOCKET, SO_ERROR, &err, &len));
	CHECK_EQ(err, 0);
	OK(write(c, "x", 1));
}
CASE(tcp_nonblocking_refused)
{
	int f = bound(SOCK_STREAM), err = 0;
	socklen_t len = sizeof(err);
	struct sockaddr_in a = lo(port_of(f));
	int c = OK(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	CHECK_EQ(connect(c, (void *)&a, sizeof(a)), -1);
	if (errno == EINPROGRESS) {
		CHECK(wait_events(c, POLLOUT | POLLERR) & POLLERR);
		OK(getsockopt(c, SOL_SOCKET, SO_ERROR, &err, &len));
		CHECK_EQ(err, ECONNREFUSED);
	} else {
		CHECK_EQ(errno, ECONNREFUSED);
	}
}
CASE(tcp_close_events)
{
	int s[2];
	char b[4];
	connection(s);
	close(s[1]);
	CHECK_EQ(wait_events(s[0], POLLIN | POLLRDHUP), POLLIN | POLLRDHUP);
	CHECK_EQ(read(s[0], b, 4), 0);
	OK(shutdown(s[0], SHUT_WR));
	CHECK_EQ(wait_events(s[0], POLLHUP), POLLIN | POLLRDHUP | POLLHUP);
}
CASE(tcp_half_close)
{
	int s[2];
	char b[4];
	connection(s);
	OK(shutdown(s[0], SHUT_WR));
	CHECK_ERR(send(s[0], "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK_EQ(read(s[1], b, 4), 0);
	OK(write(s[1], "ok", 2));
	CHECK_EQ(recv(s[0], b, 2, MSG_WAITALL), 2);
	CHECK_ERR(shutdown(tcp(), SHUT_RDWR), ENOTCONN);
}
CASE(tcp_reset_on_unread)
{
	int s[2], v;
	char b[4];
	connection(s);
	OK(write(s[0], "abc", 3));
	CHECK(wait_events(s[1], POLLIN) & POLLIN);
	close(s[1]);
	CHECK(wait_events(s[0], POLLHUP | POLLERR) & POLLERR);
	OK(ioctl(s[0], FIONREAD, &v));
	CHECK_ERR(read(s[0], b, 4), ECONNRESET);
	CHECK_EQ(read(s[0], b, 4), 0);
	CHECK_ERR(send(s[0], "x", 1, MSG_NOSIGNAL), EPIPE);
}
CASE(tcp_linger_zero_resets)
{
	int s[2];
	char b[4];
	struct linger lg = { 1, 0 };
	connection(s);
	OK(setsockopt(s[1], SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)));
	close(s[1]);
	CHECK_ERR(read(s[0], b, 4), ECONNRESET);
}
CASE(tcp_write_after_close)
{
	int s[2];
	connection(s);
	close(s[1]);
	CHECK(wait_events(s[0], POLLRDHUP) & POLLRDHUP);
	CHECK_EQ(send(s[0], "x", 1, MSG_NOSIGNAL), 1);
	CHECK(wait_events(s[0], POLLERR) & POLLERR);
	CHECK_ERR(send(s[0], "x", 1, MSG_NOSIGNAL), EPIPE);
}
CASE(tcp_peek_and_trunc)
{
	int s[2];
	char b[8];
	connection(s);
	OK(write(s[0], "hello", 5));
	CHECK_EQ(recv(s[1], b, 5, MSG_PEEK | MSG_WAITALL), 5);
	CHECK_EQ(recv(s[1], b, 2, 0), 2);
	CHECK_EQ(recv(s[1], b, 3, 0), 3);
	CHECK_MEM(b, "llo", 3);
}
CASE(tcp_unconnected)
{
	int c = tcp();
	char b[4];
	CHECK_ERR(recv(c, b, 4, 0), ENOTCONN);
	CHECK_ERR(send(c, b, 4, MSG_NOSIGNAL), EPIPE);
	CHECK_ERR(accept(c, NULL, NULL), EINVAL);
	struct pollfd p = { c, POLLIN | POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLOUT | POLLHUP);
}
#define BULK (4 << 20)
static void *bulk(void *arg)
{
	char *b = malloc(BULK);
	for (size_t i = 0; i < BULK; i++)
		b[i] = (char)(i * 5 >> 2);
	ssize_t n = write(*(int *)arg, b, BULK);
	free(b);
	close(*(int *)arg);
	return (void *)(intptr_t)(n != BULK);
}
CASE(tcp_bulk)
{
	int s[2];
	static char buf[70000];
	size_t n = 0;
	ssize_t r;
	void *res;
	pthread_t t;
	connection(s);
	CHECK_EQ(pthread_create(&t, NULL, bulk, &s[0]), 0);
	while ((r = read(s[1], buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < r; i++, n++)
			CHECK(buf[i] == (char)(n * 5 >> 2));
	CHECK_EQ(n, BULK);
	pthread_join(t, &res);
	CHECK(!res);
}
CASE(bind_conflicts)
{
	int l = listening(), a = tcp(), on = 1;
	struct sockaddr_in same = lo(port_of(l)), any = same, other = same;
	CHECK_ERR(bind(a, (void *)&same, sizeof(same)), EADDRINUSE);
	any.sin_addr.s_addr = htonl(INADDR_ANY);
	CHECK_ERR(bind(a, (void *)&any, sizeof(any)), EADDRINUSE);
	OK(setsockopt(a, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	CHECK_ERR(bind(a, (void *)&same, sizeof(same)), EADDRINUSE);
	/* Another loopback address, and UDP, are other names. */
	other.sin_addr.s_addr = htonl(0x7f000002);
	OK(bind(a, (void *)&other, sizeof(other)));
	OK(bind(udp(), (void *)&same, sizeof(same)));
	CHECK_ERR(bind(a, (void *)&other, sizeof(other)), EINVAL);
}
CASE(bind_reuse)
{
	int a = tcp(), b = tcp(), on = 1;
	struct sockaddr_in n = lo(0);
	OK(setsockopt(a, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	OK(setsockopt(b, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
	OK(bind(a, (void *)&n, sizeof(n)));
	n = lo(port_of(a));
	OK(bind(b, (void *)&n, sizeof(n)));
	OK(listen(a, 1));
	CHECK_ERR(listen(b, 1), EADDRINUSE);
}
CASE(bind_errors)
{
	struct sockaddr_in a = lo(0);
	a.sin_addr.s_addr = htonl(0x08080808);
	CHECK_ERR(bind(tcp(), (void *)&a, sizeof(a)), EADDRNOTAVAIL);
	a = lo(0);
	CHECK_ERR(bind(tcp(), (void *)&a, 4), EINVAL);
	a.sin_family = AF_UNIX;
	CHECK_ERR(bind(tcp(), (void *)&a, sizeof(a)), EAFNOSUPPORT);
	CHECK_ERR(connect(tcp(), (void *)&a, 1), EINVAL);
	CHECK_ERR(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	CHECK_ERR(socket(AF_INET, SOCK_SEQPACKET, 0), ESOCKTNOSUPPORT);
	CHECK_ERR(socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){ 0 }), EOPNOTSUPP);
}
CASE(connect_to_any)
{
	int l = tcp(), c = tcp();
	struct sockaddr_in a = { .sin_family = AF_INET };
	OK(bind(l, (void *)&a, sizeof(a)));
	OK(listen(l, 1));
	a.sin_port = htons((uint16_t)port_of(l));
	OK(connect(c, (void *)&a, sizeof(a)));
	struct sockaddr_in got;
	socklen_t len = sizeof(got);
	OK(getpeername(c, (void *)&got, &len));
	CHECK_EQ(ntohl(got.sin_addr.s_addr), INADDR_LOOPBACK);
}
CASE(ipv6_loopback)
{
	int l = socket(AF_INET6, SOCK_STREAM, 0);
	if (l < 0)
		SKIP("no IPv6");
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t len = sizeof(a);
	if (bind(l, (void *)&a, sizeof(a)) < 0)
		SKIP("no ::1");
	OK(listen(l, 1));
	OK(getsockname(l, (void *)&a, &len));
	int c = OK(socket(AF_INET6, SOCK_STREAM, 0));
	OK(connect(c, (void *)&a, sizeof(a)));
	struct sockaddr_in6 p;
	OK(accept(l, (void *)&p, &len));
	CHECK(IN6_IS_ADDR_LOOPBACK(&p.sin6_addr));
}
CASE(ipv6_dual_stack)
{
	int l = socket(AF_INET6, SOCK_STREAM, 0), off = 0;
	if (l < 0)
		SKIP("no IPv6");
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	socklen_t len = sizeof(a);
	OK(setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)));
	OK(bind(l, (void *)&a, sizeof(a)));
	OK(listen(l, 1));
	OK(getsockname(l, (void *)&a, &len));
	struct sockaddr_in v4 = lo(ntohs(a.sin6_port));
	OK(connect(tcp(), (void *)&v4, sizeof(v4)));
	struct sockaddr_in6 p;
	OK(accept(l, (void *)&p, &len));
	CHECK(IN6_IS_ADDR_V4MAPPED(&p.sin6_addr));
}
CASE(ipv6_only)
{
	int l = socket(AF_INET6, SOCK_STREAM, 0), on = 1;
	if (l < 0)
		SKIP("no IPv6");
	struct sockaddr_in6 a = { .sin6_family = AF_INET6 };
	socklen_t len = sizeof(a);
	OK(setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)));
	OK(bind(l, (void *)&a, sizeof(a)));
	OK(listen(l, 1));
	OK(getsockname(l, (void *)&a, &len));
	struct sockaddr_in v4 = lo(ntohs(a.sin6_port));
	CHECK_ERR(connect(tcp(), (void *)&v4, sizeof(v4)), ECONNREFUSED);
	/* And IPv4 may have the port for itself. */
	OK(bind(tcp(), (void *)&v4, sizeof(v4)));
}
CASE(udp_talks)
{
	int a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM);
	struct sockaddr_in to = lo(port_of(b)), from;
	socklen_t len = sizeof(from);
	char buf[8];
	CHECK_EQ(sendto(a, "hey", 3, 0, (void *)&to, sizeof(to)), 3);
	CHECK_EQ(recvfrom(b, buf, 8, 0, (void *)&from, &len), 3);
	CHECK_EQ(ntohs(from.sin_port), port_of(a));
	CHECK_EQ(ntohl(from.sin_addr.s_addr), INADDR_LOOPBACK);
	CHECK_ERR(send(a, "x", 1, 0), EDESTADDRREQ);
	OK(connect(a, (void *)&to, sizeof(to)));
	CHECK_EQ(send(a, "", 0, 0), 0);
	CHECK_EQ(recv(b, buf, 8, 0), 0);
	CHECK_EQ(send(a, "123456789", 9, 0), 9);
	CHECK_EQ(recv(b, buf, 4, MSG_TRUNC), 9);
}
CASE(udp_connected_filters)
{
	int a = bound(SOCK_DGRAM), b = bound(SOCK_DGRAM), c = bound(SOCK_DGRAM);
	struct sockaddr_in na = lo(port_of(a)), nb = lo(port_of(b));
	char buf[8];
	OK(connect(b, (void *)&na, sizeof(na)));
	CHECK_EQ(sendto(c, "no", 2, 0, (void *)&nb, sizeof(nb)), 2);
	CHECK_EQ(sendto(a, "yes", 3, 0, (void *)&nb, sizeof(nb)), 3);
	CHECK_EQ(recv(b, buf, 8, 0), 3);
	CHECK_ERR(recv(b, buf, 8, MSG_DONTWAIT), EAGAIN);
}
CASE(udp_refused)
{
	int f = bound(SOCK_DGRAM), c = udp();
	struct sockaddr_in a = lo(port_of(f));
	char b[4];
	close(f);
	OK(connect(c, (void *)&a, sizeof(a)));
	CHECK_EQ(send(c, "x", 1, 0), 1);
	CHECK_ERR(recv(c, b, 4, 0), ECONNREFUSED);
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	OK(connect(c, &none, sizeof(none)));
	CHECK_ERR(send(c, "x", 1, 0), EDESTADDRREQ);
}
CASE(udp_limits)
{
	int c = udp(), v;
	static char big[70000];
	struct sockaddr_in a = lo(9);
	CHECK_ERR(sendto(c, big, sizeof(big), 0, (void *)&a, sizeof(a)), EMSGSIZE);
	CHECK_ERR(listen(c, 1), EOPNOTSUPP);
	CHECK_ERR(accept(c, NULL, NULL), EOPNOTSUPP);
	OK(ioctl(c, FIONREAD, &v));
	CHECK_EQ(v, 0);
	struct pollfd p = { c, POLLIN | POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLOUT);
}
CASE(options)
{
	int c = tcp(), v = 1;
	socklen_t len = sizeof(v);
	OK(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &v, len));
	v = 0;
	OK(getsockopt(c, IPPROTO_TCP, TCP_NODELAY, &v, &len));
	CHECK(v);
	v = 30;
	OK(setsockopt(c, IPPROTO_TCP, TCP_KEEPIDLE, &v, len));
	v = 0;
	OK(getsockopt(c, IPPROTO_TCP, TCP_KEEPIDLE, &v, &len));
	CHECK_EQ(v, 30);
	v = 1;
	OK(setsockopt(c, SOL_SOCKET, SO_KEEPALIVE, &v, len));
	OK(getsockopt(c, SOL_SOCKET, SO_PROTOCOL, &v, &len));
	CHECK_EQ(v, IPPROTO_TCP);
	CHECK_ERR(setsockopt(c, IPPROTO_TCP, 9999, &v, len), ENOPROTOOPT);
	v = 0;
	CHECK_ERR(setsockopt(c, IPPROTO_TCP, TCP_KEEPCNT, &v, len), EINVAL);
	struct tcp_info ti;
	len = sizeof(ti);
	OK(getsockopt(c, IPPROTO_TCP, TCP_INFO, &ti, &len));
	CHECK_EQ(ti.tcpi_state, TCP_CLOSE);
}
CASE(no_pairs)
{
	int sv[2], v;

	CHECK_ERR(socketpair(AF_INET, SOCK_STREAM, IPPROTO_TCP, sv), EOPNOTSUPP);
	CHECK_ERR(socketpair(AF_INET6, SOCK_DGRAM, 0, sv), EOPNOTSUPP);
	CHECK_ERR(socketpair(AF_INET, SOCK_STREAM, IPPROTO_ICMP, sv), EPROTONOSUPPORT);
	CHECK_ERR(socketpair(AF_INET, SOCK_DGRAM, IPPROTO_TCP, sv), EPROTONOSUPPORT);
	CHECK_ERR(socketpair(AF_INET, 15, 0, sv), EINVAL);
	OK(ioctl(tcp(), SIOCATMARK, &v));
	CHECK_ERR(ioctl(OK(socket(AF_INET, SOCK_DGRAM, 0)), SIOCATMARK, &v), ENOTTY);
}
CASE(option_levels)
{
	static const int levels[] = { 500, IPPROTO_UDP, IPPROTO_IPV6, IPPROTO_RAW };
	int t4 = tcp(), t6 = OK(socket(AF_INET6, SOCK_STREAM, 0)),
	    u4 = OK(socket(AF_INET, SOCK_DGRAM, 0)), u6 = OK(socket(AF_INET6, SOCK_DGRAM, 0)), v;
	socklen_t len = sizeof(v);

	for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++) {
		CHECK_ERR(getsockopt(t4, levels[i], 10, &v, &len), EOPNOTSUPP);
		CHECK_ERR(setsockopt(t4, levels[i], 10, &v, len), ENOPROTOOPT);
	}
	CHECK_ERR(getsockopt(t6, IPPROTO_UDP, 10, &v, &len), ENOPROTOOPT);
	CHECK_ERR(getsockopt(u4, IPPROTO_TCP, 1, &v, &len), EOPNOTSUPP);
	CHECK_ERR(getsockopt(u6, IPPROTO_TCP, 1, &v, &len), ENOPROTOOPT);
	OK(getsockopt(u4, IPPROTO_UDP, 1 /* UDP_CORK */, &v, &len));
	CHECK_EQ(v, 0);
	OK(getsockopt(u6, IPPROTO_UDP, 101 /* UDP_NO_CHECK6_TX */, &v, &len));
	CHECK_ERR(getsockopt(u4, IPPROTO_UDP, 9999, &v, &len), ENOPROTOOPT);
}
/* A group that is left and was not joined: an error of some kind, where there is no multicast, too.
 */
CASE(multicast_membership)
{
	struct group_req r = { 0 };
	struct sockaddr_in *a = (void *)&r.gr_group;
	struct ip_mreq m = { .imr_multiaddr.s_addr = htonl(0xe0000101) };
	int t = tcp();

	a->sin_family = AF_INET;
	a->sin_addr = m.imr_multiaddr;
	CHECK(setsockopt(t, IPPROTO_IP, MCAST_LEAVE_GROUP, &r, sizeof(r)) == -1);
	CHECK(errno == ENODEV || errno == EADDRNOTAVAIL);
	CHECK_ERR(setsockopt(t, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)), EPROTO);
}
CASE(interfaces)
{
	struct ifaddrs *list, *i;
	bool v4 = false;
	OK(getifaddrs(&list));
	for (i = list; i; i = i->ifa_next)
		if (!strcmp(i->ifa_name, "lo") && i->ifa_addr &&
		    i->ifa_addr->sa_family == AF_INET) {
			CHECK_EQ(ntohl(((struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr),
				 INADDR_LOOPBACK);
			CHECK(i->ifa_flags & IFF_LOOPBACK);
			v4 = true;
		}
	CHECK(v4);
	freeifaddrs(list);
	CHECK_EQ(if_nametoindex("lo"), 1);
	char name[IF_NAMESIZE];
	CHECK(if_indextoname(1, name));
	CHECK_STR(name, "lo");
	CHECK_EQ(if_nametoindex("nope0"), 0);
}
CASE(resolve_localhost)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *r;
	CHECK_EQ(getaddrinfo("localhost", "80", &hints, &r), 0);
	CHECK_EQ(ntohl(((struct sockaddr_in *)r->ai_addr)->sin_addr.s_addr), INADDR_LOOPBACK);
	freeaddrinfo(r);
}
CASE(netlink_dump)
{
	int s = OK(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
	struct sockaddr_nl me = { .nl_family = AF_NETLINK };
	socklen_t len = sizeof(me);
	struct {
		struct nlmsghdr h;
		struct rtgenmsg g;
	} req = { { sizeof(req), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 7, 0 }, { AF_UNSPEC } };
	char buf[16384];
	bool lo_seen = false, done = false;
	OK(bind(s, (void *)&me, sizeof(me)));
	OK(getsockname(s, (void *)&me, &len));
	CHECK(me.nl_pid != 0);
	OK(send(s, &req, sizeof(req), 0));
	while (!done) {
		int n = (int)OK(recv(s, buf, sizeof(buf), 0));
		for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (unsigned)n);
		     h = NLMSG_NEXT(h, n)) {
			CHECK_EQ(h->nlmsg_seq, 7);
			CHECK_EQ(h->nlmsg_pid, me.nl_pid);
			done |= h->nlmsg_type == NLMSG_DONE;
			if (h->nlmsg_type == RTM_NEWLINK)
				lo_seen |= ((struct ifinfomsg *)NLMSG_DATA(h))->ifi_index == 1;
		}
	}
	CHECK(lo_seen);
}
static void *serve_echo(void *arg)
{
	int l = *(int *)arg;
	for (int i = 0; i < 200; i++) {
		char b[16];
		int s = accept(l, NULL, NULL);
		ssize_t n = read(s, b, 16);
		if (n <= 0 || write(s, b, (size_t)n) != n)
			return (void *)1;
		close(s);
	}
	return NULL;
}
CASE(many_connections)
{
	int l = listening();
	struct sockaddr_in a = lo(port_of(l));
	pthread_t t;
	void *r;
	CHECK_EQ(pthread_create(&t, NULL, serve_echo, &l), 0);
	for (int i = 0; i < 200; i++) {
		char b[16];
		int c = tcp();
		OK(connect(c, (void *)&a, sizeof(a)));
		CHECK_EQ(write(c, "ping", 4), 4);
		CHECK_EQ(recv(c, b, 4, MSG_WAITALL), 4);
		CHECK_EQ(read(c, b, 4), 0);
		close(c);
	}
	pthread_join(t, &r);
	CHECK(!r);
}
CONF_MAIN
