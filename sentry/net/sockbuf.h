/*
 * sentry/net/sockbuf.h: what travels between sockets: buffers, queues, rights.
 *
 * A sock_buf is a run of bytes with the sender's credentials, possibly open
 * files (SCM_RIGHTS) and, for datagrams, the sender's name. A sock_queue is a
 * socket's receive queue. Streams append to the last buffer where it has room
 * and nothing forbids it; record sockets keep one buffer a message.
 *
 * Not locked: the receiving socket's lock protects its queue. Buffers that
 * hold files are freed without any lock held (sock_buf_free runs releases).
 */
#ifndef MINISENTRY_SENTRY_NET_SOCKBUF_H
#define MINISENTRY_SENTRY_NET_SOCKBUF_H

#include "base/kiov.h"
#include "base/list.h"
#include "base/refs.h"
#include "vfs/file.h"
#include <sys/socket.h>

#define SOCK_SCM_MAX_FD 253	     /* SCM_MAX_FD of Linux */
#define SOCK_BUF_OVERHEAD 256	     /* charged per buffer, so that tiny messages are bounded too */
#define SOCK_BUF_SMALL 3840	     /* capacity of the usual stream buffer */
#define SOCK_BUF_TOTAL (256UL << 20) /* of all sockets together; then sends fail with ENOBUFS */
#define SOCK_BUF_LARGE 65536	     /* largest stream buffer */

struct sock_cred {
	s32 pid;
	u32 uid, gid;
};

/* Open files in flight; immutable. Holds a reference to each. */
struct scm_fds {
	int count;
	struct file *file[];
};

/* A socket address, refcounted and immutable. */
struct sock_name {
	struct refs refs;
	u32 len;
	u8 addr[sizeof(struct sockaddr_storage)];
};
struct sock_name *sock_name_new(const void *addr, u32 len); /* NULL: no memory */
struct sock_name *sock_name_get(struct sock_name *n);	    /* NULL stays NULL */
void sock_name_put(struct sock_name *n);

struct sock_buf {
	struct list node;
	struct sock_cred cred;
	struct scm_fds *fds;	/* owned; NULL none. Counted in flight (unix_gc.h) */
	struct sock_name *from; /* owned; datagrams only */
	u32 start, end, cap;
	u8 data[];
};

struct sock_queue {
	struct list bufs;
	size_t count;
	_Atomic size_t bytes; /* payload */
	_Atomic size_t cost;  /* payload and overhead: what limits are compared with */
	struct sock_buf *spare;
};

void sock_queue_init(struct sock_queue *q);
/* Moves every buffer to `to` (an empty list), also drops the spare. */
void sock_queue_take_all(struct sock_queue *q, struct list *to);
void sock_queue_push(struct sock_queue *q, struct sock_buf *b);
/* Unlinks b, which the caller then owns. */
void sock_queue_unlink(struct sock_queue *q, struct sock_buf *b);
/* The first n payload bytes of b are consumed. */
void sock_queue_consume(struct sock_queue *q, struct sock_buf *b, size_t n);
/* The spare buffer if it is large enough, or a new one; NULL: no memory. */
struct sock_buf *sock_queue_alloc(struct sock_queue *q, size_t want);
/* Keeps a plain buffer for reuse, or frees it. No files, no name. */
void sock_queue_recycle(struct sock_queue *q, struct sock_buf *b);

/* NULL: no memory, or more than SOCK_BUF_TOTAL is in use. */
struct sock_buf *sock_buf_new(size_t cap);
/* Frees b, its name, and its files (with the in-flight count). No lock held. NULL is fine. */
void sock_buf_free(struct sock_buf *b);
void sock_buf_free_list(struct list *bufs);

/* Puts every file; safe against long chains of sockets in sockets (no recursion). No lock held. */
void scm_fds_free(struct scm_fds *fds);
/* True inside of scm_fds_free on this thread. */
bool scm_fds_freeing(void);
/* A copy with its own references; NULL: no memory. */
struct scm_fds *scm_fds_dup(const struct scm_fds *fds);

static inline bool sock_cred_equal(const struct sock_cred *a, const struct sock_cred *b)
{
	return a->pid == b->pid && a->uid == b->uid && a->gid == b->gid;
}

#endif
