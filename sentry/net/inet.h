/*
 * sentry/net/inet.h: AF_INET and AF_INET6 on the loopback interface, without packets.
 *
 * Addresses are kept as IPv6, IPv4 ones mapped (::ffff:a.b.c.d). Only loopback
 * addresses exist; the rest is unreachable. A port list (net->ports, under
 * net->lock) holds every bound TCP and UDP socket; accepted sockets are not on
 * it. TCP connections are joined pairs of sockets (stream.c); UDP sockets fill
 * each other's queues.
 */
#ifndef MINISENTRY_SENTRY_NET_INET_H
#define MINISENTRY_SENTRY_NET_INET_H

#include "sentry/net/socket.h"

extern const struct sock_ops inet_tcp_ops, inet_udp_ops;

/* Family-checked parse. -EINVAL (short), -EAFNOSUPPORT. */
int inet_addr_parse(struct socket *s, const struct sockaddr_storage *ss, u32 len,
		    struct inet_addr *ret);
/* As family shows it: sockaddr_in or sockaddr_in6. Length. */
int inet_addr_format(int family, const struct inet_addr *a, struct sockaddr_storage *ret);
bool inet_is_any(const struct in6_addr *ip);
bool inet_is_loopback(const struct in6_addr *ip);
bool inet_is_v4(const struct in6_addr *ip);
/* Destination as it is used: any becomes loopback. -ENETUNREACH for what is not loopback. */
int inet_route(struct socket *s, struct inet_addr *to);
/* The wildcard address of s's family. */
struct in6_addr inet_any(const struct socket *s);
/* The source address for a destination: 127.0.0.1 or ::1. */
struct in6_addr inet_source(const struct in6_addr *to);

int inet_bind(struct socket *s, struct task *t, const struct sockaddr_storage *addr, u32 len);
/* Picks an ephemeral port when unbound. -EADDRINUSE when none is left. */
int inet_autobind(struct socket *s);
void inet_unbind(struct socket *s);
int inet_name(struct socket *s, bool peer, struct sockaddr_storage *ret);
/* The socket of this type that takes what comes from `from` to `to`: a reference or NULL. */
struct socket *inet_lookup(struct net *net, int type, const struct inet_addr *to,
			   const struct inet_addr *from);
int inet_setsockopt(struct socket *s, struct task *t, int level, int opt, const void *val, u32 len);
int inet_getsockopt(struct socket *s, struct task *t, int level, int opt, void *val, u32 *len);

#endif
