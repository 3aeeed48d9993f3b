/* sentry/sys/fdpair.h: pipe and socketpair: two new files become two descriptors. */
#ifndef MINISENTRY_SENTRY_SYS_FDPAIR_H
#define MINISENTRY_SENTRY_SYS_FDPAIR_H

#include "sentry/sys/syscall.h"

/* Takes both references; writes int[2] to out. 0, or -errno with everything undone. */
s64 sys_install_pair(struct task *t, struct file *f[2], bool cloexec, uaddr out);

#endif
