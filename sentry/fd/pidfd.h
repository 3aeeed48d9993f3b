/* sentry/fd/pidfd.h: descriptors that refer to a process: readable once it is a zombie. */
#ifndef MINISENTRY_SENTRY_FD_PIDFD_H
#define MINISENTRY_SENTRY_FD_PIDFD_H

#include "vfs/file.h"

struct thread_group;
struct cred;

/* A file; takes its own reference on tg. flags: O_NONBLOCK. */
int pidfd_new(struct thread_group *tg, const struct cred *cred, u32 flags, struct file **ret);
/* The group of a pidfd, borrowed while f is held; NULL: another kind of file. */
struct thread_group *pidfd_group(struct file *f);

#endif
