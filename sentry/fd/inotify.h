/*
 * sentry/fd/inotify.h: inotify instances.
 *
 * The vfs reports what happens through vfs_notify_hook: (inode, NULL, "", mask)
 * about an object itself, (NULL, dir, name, mask) about an entry of a
 * directory, or both at once. A watch holds its inode; inode->watches heads the
 * list of watches of an inode.
 *
 * Lock: one for all instances and watches (RANK_PIPE); the hook may be called
 * with directory and inode locks held, so it puts no inode and wakes under it.
 */
#ifndef MINISENTRY_SENTRY_FD_INOTIFY_H
#define MINISENTRY_SENTRY_FD_INOTIFY_H

#include "vfs/file.h"

#define INOTIFY_MAX_EVENTS 16384
#define INOTIFY_MAX_EVENT_BYTES (32UL << 20) /* queued in all instances */
#define INOTIFY_MAX_WATCHES 262144	     /* of all instances */
#define INOTIFY_MAX_INSTANCES 256

/* flags: O_NONBLOCK. -EMFILE. Sets vfs_notify_hook on first use. */
int inotify_new(const struct cred *cred, u32 flags, struct file **ret);
bool file_is_inotify(struct file *f);
/* The watch descriptor. -ENOSPC, -EEXIST (IN_MASK_CREATE), -ENOMEM. */
int inotify_add(struct file *f, struct inode *inode, u32 mask);
int inotify_remove(struct file *f, int wd); /* -EINVAL */

#endif
