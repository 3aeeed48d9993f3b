/*
 * sentry/net/socket.h: sockets: the common object and its families' operations.
 *
 * A socket is what a file of kind "socket" refers to; the file holds one
 * reference, peers and queues hold others. Families: unix (unix.c,
 * unix_dgram.c), inet and inet6 on the loopback (inet.c, inet_udp.c), route
 * netlink (netlink.c). Connected byte streams and sequenced packets of all
 * families share stream.c: each end has a receive queue that the other end
 * fills; nothing is copied twice.
 *
 * Locks: socket->lock (RANK_SOCKET) protects what is marked so. Code holds the
 * lock of one socket at a time, except the collector (unix_gc.h). Wakes are
 * done after the lock is dropped. Names live under net->lock.
 *
 * Operations never hold a lock while they sleep; send and recv do not sleep but
 * return -EAGAIN (sys_sockmsg.c waits), connect sleeps by itself.
 */
#ifndef MINISENTRY_SENTRY_NET_SOCKET_H
#define MINISENTRY_SENTRY_NET_SOCKET_H

#include "base/waitq.h"
#include "sentry/net/net.h"
#include "sentry/net/sockbuf.h"
#include "sentry/task/task.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

struct socket;

enum sock_state { SOCK_CLOSED, SOCK_CONNECTING, SOCK_CONNECTED, SOCK_LISTENING };
enum { SHUT_RCV = 1, SHUT_SND = 2, SHUT_BOTH = 3 }; /* socket->shut */

/* Private event: room in an accept queue or a datagram queue, for those that wait on the target. */
#define EPOLL_ROOM EPOLLMSG
#define SOCK_BUF_DEFAULT 212992
#define SOCK_BUF_MAX (4 << 20)
#define SOCK_BUF_MIN 4608
#define UNIX_DGRAM_QLEN 512

/* One send or receive, which may take several pieces (kiovs) and waits. */
struct sock_msg {
	int flags; /* MSG_* as given */
	/* send: a copy of the destination; recv: filled with the source */
	struct sockaddr_storage name;
	u32 name_len;		/* 0: none */
	struct sock_cred cred;	/* send: what is attached; recv: the first buffer's */
	struct scm_fds *fds;	/* send: owned until sent; recv: received, the caller's */
	struct socket *target;	/* send: the datagram's destination, a reference */
	struct sock_name *from; /* send: the sender's name for datagrams; a reference */
	size_t done;		/* payload moved by earlier pieces */
	size_t real_len;	/* recv of a record: its length */
	size_t room; /* recv of a record: the guest's whole buffer, of which the kiov is a part */
	bool retry;  /* recv of a record: the kiov was too small a part, nothing was taken */
	size_t peek_offset; /* MSG_PEEK: bytes looked at by earlier pieces */
	bool has_cred;	    /* recv: cred is valid */
	bool stop;	    /* recv: a boundary was met, or the record was taken */
	u32 out_flags;	    /* recv: MSG_TRUNC, MSG_EOR, ... */
};

struct sock_ops {
	int (*bind)(struct socket *s, struct task *t, const struct sockaddr_storage *addr, u32 len);
	int (*listen)(struct socket *s, struct task *t, int backlog);
	int (*connect)(struct socket *s, struct task *t, const struct sockaddr_storage *addr,
		       u32 len, bool nonblock);
	/* Fills ret; the address's length, or -ENOTCONN. */
	int (*name)(struct socket *s, bool peer, struct sockaddr_storage *ret);
	/* Resolves the destination before any piece: sets target, from. */
	int (*send_begin)(struct socket *s, struct task *t, struct sock_msg *m);
	ssize_t (*send)(struct socket *s, struct sock_msg *m, struct kiov *k);
	ssize_t (*recv)(struct socket *s, struct sock_msg *m, struct kiov *k);
	int (*shutdown)(struct socket *s, int how); /* SHUT_RCV | SHUT_SND */
	/* Levels and options that sockopt.c does not know. -ENOPROTOOPT. */
	int (*setsockopt)(struct socket *s, struct task *t, int level, int opt, const void *val,
			  u32 len);
	int (*getsockopt)(struct socket *s, struct task *t, int level, int opt, void *val,
			  u32 *len);
	u32 (*poll)(struct socket *s);
	/* The socket's file is gone. */
	void (*release)(struct socket *s);
	bool records; /* one message a send; receives take whole messages */
	bool stream;  /* byte stream: SIGPIPE on EPIPE */
};

struct unix_sock {
	struct sock_name *name; /* socket lock; NULL unbound. Immutable once set */
	struct list name_node;	/* net->lock: abstract names */
	struct path path;	/* bound in a file system: references; immutable once set */
	_Atomic bool bound;
	struct socket *dgram_peer; /* socket lock: connected datagram sockets; a reference */
	struct list senders; /* socket lock: unix_sock.sender_node of datagram sockets connected to
				us */
	struct list sender_node; /* dgram_peer's lock */
	/* unix_gc.c */
	u64 inflight;
	struct file *file;
	struct list gc_node, gc_work;
	s64 gc_left;
	bool gc_candidate;
};

struct inet_addr {
	struct in6_addr ip; /* IPv4 as ::ffff:a.b.c.d */
	u16 port;	    /* host order */
};

/* Options of inet sockets that are only kept and shown; value + 1, 0 for the default. */
struct inet_opts {
	_Atomic int tcp[64];
	_Atomic int ip[256]; /* IP, and from 128 on IPv6 */
};

struct inet_sock {
	struct inet_addr local, remote; /* socket lock */
	bool bound;			/* net->lock: on a port list */
	bool user_port;			/* net->lock: bound by bind(2) */
	struct list port_node;		/* net->lock */
	bool v6only, reuse_port;	/* socket lock */
	bool connect_pending; /* socket lock: non-blocking connect whose result nobody asked for */
	int connect_error;
	bool reset_sent;	/* socket lock: wrote to a closed peer */
	bool udp_connected;	/* socket lock */
	struct inet_opts *opts; /* owned, immutable pointer */
};

struct netlink_sock {
	u32 pid, groups, dst_pid;
	bool bound;
};

struct socket {
	struct refs refs;
	const struct sock_ops *ops; /* immutable */
	struct net *net;	    /* immutable, borrowed */
	int family, type, protocol; /* immutable */
	u64 cookie;
	struct mutex lock; /* RANK_SOCKET */
	struct waitq waitq;
	_Atomic int state;    /* enum sock_state; written under lock */
	_Atomic u32 shut;     /* SHUT_*; written under lock */
	_Atomic int error;    /* pending SO_ERROR, positive; written under lock */
	bool dead;	      /* lock: its file is gone */
	struct sock_queue rq; /* lock */
	/* The other end: set once before state becomes CONNECTED, a reference, dropped on release.
	 */
	_Atomic(struct socket *) peer;
	/* lock: listeners */
	struct list accept_queue; /* accept_node; holds references */
	struct list accept_node;  /* listener's lock */
	u32 accept_count, backlog;
	struct sock_cred
		own_cred; /* of the creator, listener or connecter; immutable once connected */
	struct sock_cred peer_cred; /* set with peer */
	bool has_peer_cred;
	/* options; atomic */
	_Atomic u32 sndbuf, rcvbuf;
	_Atomic u64 rcv_timeout_ns, snd_timeout_ns; /* 0: none */
	_Atomic bool passcred, reuse_addr, keepalive, broadcast, oobinline, dontroute, timestamp;
	_Atomic int priority, mark, rcvlowat, linger_on, linger_s, peek_off, incoming_cpu,
		busy_poll;
	union {
		struct unix_sock un;
		struct inet_sock in;
		struct netlink_sock nl;
	};
};

/* -EAFNOSUPPORT, -ESOCKTNOSUPPORT, -EPROTONOSUPPORT, -EPERM (raw), -ENOBUFS. Returns a reference.
 */
int socket_create(struct task *t, int family, int type, int protocol, struct socket **ret);
/* A bare socket with these operations: for the families. */
struct socket *socket_new(struct net *net, const struct sock_ops *ops, int family, int type,
			  int protocol);
struct socket *socket_get(struct socket *s);
void socket_put(struct socket *s);
/* A file for s; takes the reference, also on failure. flags: O_NONBLOCK. */
int socket_file_new(struct task *t, struct socket *s, u32 flags, struct file **ret);
/* The socket of a file, borrowed; NULL when it is not one. */
struct socket *socket_of_file(struct file *f);
/* As SO_PEERCRED (effective ids) and as SCM_CREDENTIALS (real ids) show t. */
struct sock_cred sock_cred_of(struct task *t);
struct sock_cred sock_msg_cred(struct task *t);

/* ---- families ---- */
int unix_create(struct task *t, int type, int protocol, struct socket **ret);
int unix_pair(struct task *t, int type, struct socket *ret[2]);
int inet_create(struct task *t, int family, int type, int protocol, struct socket **ret);
int netlink_create(struct task *t, int type, int protocol, struct socket **ret);
extern const struct sock_ops unix_stream_ops, unix_seqpacket_ops, unix_dgram_ops;

/* unix.c, for unix_dgram.c */
int unix_bind(struct socket *s, struct task *t, const struct sockaddr_storage *addr, u32 len);
int unix_autobind(struct socket *s);
int unix_name(struct socket *s, bool peer, struct sockaddr_storage *ret);
/* The socket bound to addr: a reference. -ECONNREFUSED, -EPROTOTYPE, path errors. */
int unix_find(struct socket *s, struct task *t, const struct sockaddr_storage *addr, u32 len,
	      struct socket **ret);
int unix_addr_check(const struct sockaddr_storage *addr, u32 len);
void unix_unbind(struct socket *s);
int unix_sockopt_set(struct socket *s, struct task *t, int level, int opt, const void *val,
		     u32 len);
int unix_sockopt_get(struct socket *s, struct task *t, int level, int opt, void *val, u32 *len);
/* Charges m->fds in flight before they are queued. */
int unix_fds_attach(struct sock_msg *m);

/* ---- stream.c ---- */
ssize_t stream_send(struct socket *s, struct sock_msg *m, struct kiov *k);
ssize_t stream_recv(struct socket *s, struct sock_msg *m, struct kiov *k);
/* Sequenced packets of a connected pair. */
ssize_t record_send(struct socket *s, struct sock_msg *m, struct kiov *k);
/* Takes one message of s->rq: also datagrams. s->lock not held. */
ssize_t record_recv(struct socket *s, struct sock_msg *m, struct kiov *k);
/* Length of the first message, 0 if none. */
size_t record_next_len(struct socket *s);
/* Fills a new message buffer from k; 0 or -errno. */
int record_fill(struct sock_msg *m, struct kiov *k, struct sock_buf **ret);
u32 stream_poll(struct socket *s);
int stream_listen(struct socket *s, struct task *t, int backlog);
/* Takes the first unaccepted socket: its reference. -EAGAIN, -EINVAL. */
int stream_accept(struct socket *s, struct socket **ret);
/* Joins two fresh sockets (references are taken); peer credentials from own_cred. */
void stream_join(struct socket *a, struct socket *b);
/* Queues `server` (its reference is taken on success), already prepared, on listener l and joins it
 * with s. -EAGAIN: no room; -ECONNREFUSED. */
int stream_enqueue(struct socket *l, struct socket *s, struct socket *server, u32 limit);
int stream_shutdown(struct socket *s, int how);
void stream_release(struct socket *s);
/* Pending error, positive, cleared. */
int socket_take_error(struct socket *s);
void socket_wake(struct socket *s, u32 events);
size_t socket_outq(struct socket *s);
size_t socket_inq(struct socket *s);

/* sockopt.c */
int socket_setsockopt(struct socket *s, struct task *t, int level, int opt, const void *val,
		      u32 len);
/* *len: room in, length out (at most room). */
int socket_getsockopt(struct socket *s, struct task *t, int level, int opt, void *val, u32 *len);
#define SOCK_OPT_MAX 4096

#endif
