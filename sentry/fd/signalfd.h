/*
 * sentry/fd/signalfd.h: signals as a file.
 *
 * A read takes pending signals of the reading task, as in Linux, so the queue
 * to wait on is the reader's group's: vfs_waitq answers for the current task,
 * and who keeps a waiter there for longer (epoll) holds the group.
 */
#ifndef MINISENTRY_SENTRY_FD_SIGNALFD_H
#define MINISENTRY_SENTRY_FD_SIGNALFD_H

#include "sentry/task/task.h"
#include "vfs/file.h"

int signalfd_new(const struct cred *cred, u64 mask, u32 flags, struct file **ret);
bool file_is_signalfd(struct file *f);
void signalfd_set_mask(struct file *f, u64 mask);

#endif
