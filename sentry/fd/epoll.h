/*
 * sentry/fd/epoll.h: epoll instances.
 *
 * An instance keeps items, one per (file, descriptor number), each with a waiter
 * on its file's wait queue. An event puts the item on the ready list; waiting
 * collects from that list and asks each file what really holds (vfs_poll), so a
 * stale entry costs a poll and is never reported. An item does not keep its
 * file open: when the file's last reference goes, file->on_last_put removes it.
 *
 * Locks: epoll->lock (RANK_EPOLL; outer instance before inner): items, scans.
 * ready_lock (RANK_LEAF): ready list, taken by wake callbacks. One lock for
 * all file->epoll_items lists (RANK_LEAF). Adding an epoll to an epoll is
 * serialised by a graph lock taken first, which keeps the nesting acyclic and
 * at most EPOLL_MAX_NESTING deep.
 */
#ifndef MINISENTRY_SENTRY_FD_EPOLL_H
#define MINISENTRY_SENTRY_FD_EPOLL_H

#include "sentry/task/task.h"
#include "vfs/file.h"
#include <sys/epoll.h>

#define EPOLL_MAX_NESTING 5	    /* instances in a chain */
#define EPOLL_MAX_PARENTS 256	    /* instances that watch one instance */
#define EPOLL_MAX_WATCHES (1 << 20) /* items of all instances (max_user_watches) */
#define EPOLL_MAX_EVENTS (INT32_MAX / (int)sizeof(struct epoll_event))

int epoll_file_new(const struct cred *cred, struct file **ret);
bool file_is_epoll(struct file *f);
/* epoll_ctl on files: -EPERM, -EEXIST, -ENOENT, -EINVAL, -ELOOP, -ENOSPC, -ENOMEM. event NULL for
 * DEL. */
int epoll_control(struct file *epf, int op, int fd, struct file *target,
		  const struct epoll_event *event);
/* Waits and copies out at most max events: their number, 0 at the deadline (0: do not wait),
 * -EINTR, -EFAULT. */
s64 epoll_wait_events(struct task *t, struct file *epf, uaddr events, int max, u64 deadline);

#endif
