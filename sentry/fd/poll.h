/*
 * sentry/fd/poll.h: waiting for several files at once: the core of poll and select.
 *
 * The first pass only asks; waiters are queued when nothing was ready and time
 * is left. After a wake only files whose queue was woken are asked again.
 */
#ifndef MINISENTRY_SENTRY_FD_POLL_H
#define MINISENTRY_SENTRY_FD_POLL_H

#include "sentry/task/task.h"
#include "vfs/file.h"
#include <sys/epoll.h>

struct poll_one {
	int fd;	     /* in: negative is skipped */
	u32 events;  /* in: EPOLL* (= POLL*) bits; ERR and HUP are always meant */
	u32 revents; /* out; POLLNVAL for a descriptor that is not open */
	/* private to poll.c */
	struct file *file;
	struct waiter waiter;
	u32 sequence; /* of the wait queue when it was asked */
	_Atomic bool fired;
};

#define POLL_MAX_ENTRIES (1 << 21) /* in all calls under way; then -ENOMEM */

/* Memory for count entries, or NULL. poll_free also takes NULL. */
struct poll_one *poll_alloc(size_t count);
void poll_free(struct poll_one *p, size_t count);
/* Entries with revents, 0 at the deadline (deadline 0: ask only), -ERESTARTSYS. */
s64 poll_files(struct task *t, struct poll_one *p, size_t count, u64 deadline);

#endif
