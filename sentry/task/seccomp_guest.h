/*
 * sentry/task/seccomp_guest.h: seccomp(2) of the guest: strict mode and classic
 * BPF filters over the guest's own system calls.
 *
 * A filter is immutable, refcounted, and points to the one installed before it:
 * all of a task's filters run, the most severe answer wins. clone shares the
 * chain; TSYNC gives it to the other threads.
 */
#ifndef MINISENTRY_SENTRY_TASK_SECCOMP_GUEST_H
#define MINISENTRY_SENTRY_TASK_SECCOMP_GUEST_H

#include "sentry/task/task.h"

struct seccomp_filter;

/* All filters of a task together, in instructions with a fixed cost each, as in Linux. */
#define SECCOMP_CHAIN_INSNS_MAX (32768U)

struct seccomp_filter *seccomp_filter_get(struct seccomp_filter *f); /* NULL is fine */
void seccomp_filter_put(struct seccomp_filter *f);

/* prctl(PR_SET_SECCOMP, mode, prog) and PR_GET_SECCOMP. */
s64 seccomp_prctl_set(struct task *t, u64 mode, uaddr prog);
s64 seccomp_prctl_get(struct task *t);
/* seccomp(2). */
s64 seccomp_call(struct task *t, u32 op, u32 flags, uaddr args);
/* Before a system call is served: true to go on; false: *ret is the result (the task may be dying).
 */
bool seccomp_check(struct task *t, u64 nr, const u64 a[6], s64 *ret);

#endif
