/*
 * sentry/net/net.h: what a guest kernel's sockets share: names and ports.
 *
 * One per struct kernel, made on first use. Tables are under net->lock (RANK_LEAF):
 * a lookup finds a socket and takes a reference, or fails when it is being destroyed.
 */
#ifndef MINISENTRY_SENTRY_NET_NET_H
#define MINISENTRY_SENTRY_NET_NET_H

#include "base/list.h"
#include "base/lock.h"
#include "base/refs.h"

struct kernel;
struct socket;

#define NET_HASH 256
#define NET_PORT_FIRST 32768 /* ip_local_port_range */
#define NET_PORT_LAST 60999
#define NET_SOMAXCONN 4096
#define NET_MAX_SOCKETS (1 << 18) /* all sockets of a kernel, in-flight ones too */

struct net {
	struct mutex lock;		/* RANK_LEAF */
	struct list abstract[NET_HASH]; /* lock: unix_sock.name_node */
	u32 autobind_next;		/* lock */
	struct list ports[NET_HASH];	/* lock: inet_sock.port_node, TCP and UDP */
	u32 port_next;			/* lock */
	_Atomic u32 sockets;
	_Atomic u64 next_cookie;
};

/* The kernel's, made on first use; NULL: no memory. Lives as long as the kernel. */
struct net *net_of(struct kernel *k);
void net_free(struct kernel *k);

#endif
