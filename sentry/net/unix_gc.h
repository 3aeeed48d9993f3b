/*
 * sentry/net/unix_gc.h: unix sockets that only messages refer to.
 *
 * SCM_RIGHTS can put a socket into its own (or its peer's) queue; when all
 * descriptors are closed, nothing can ever receive it. Every unix socket
 * counts how many times its file is in flight; a socket whose file has no
 * other references, and that no live socket's queue leads to, is garbage, and
 * its queue is emptied. The collector runs when a unix socket is released, or
 * a descriptor of one in flight is closed, so nothing outlives the last process.
 *
 * Lock: one, RANK_SOCKET, taken before socket locks (nested).
 */
#ifndef MINISENTRY_SENTRY_NET_UNIX_GC_H
#define MINISENTRY_SENTRY_NET_UNIX_GC_H

#include "sentry/net/sockbuf.h"

/*
 * The files go into a queue: call before the buffer is pushed. -ETOOMANYREFS
 * when more than `limit` unix sockets would be in flight.
 */
int unix_gc_in_flight(struct scm_fds *fds, u64 limit);
/* They left a queue (received, or freed). */
void unix_gc_not_in_flight(struct scm_fds *fds);
/* After MSG_PEEK copied references out of a queue, before the receiving socket's file is put. */
void unix_gc_barrier(void);
/*
 * Collects if anything is in flight. closing (or NULL): a file of which the caller will put one
 * more reference in any case. No lock held. Long runs are rationed.
 */
void unix_gc_run(struct file *closing);
/* A descriptor of f goes: perhaps the last reference from outside the queues. */
void unix_gc_closing(struct file *f);

#endif
