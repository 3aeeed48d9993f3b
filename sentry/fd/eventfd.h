/* sentry/fd/eventfd.h: a 64-bit counter as a file (eventfd(2)). */
#ifndef MINISENTRY_SENTRY_FD_EVENTFD_H
#define MINISENTRY_SENTRY_FD_EVENTFD_H

#include "vfs/file.h"

/* flags: EFD_SEMAPHORE, EFD_NONBLOCK. */
int eventfd_new(const struct cred *cred, u64 count, u32 flags, struct file **ret);

#endif
