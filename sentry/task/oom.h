/*
 * sentry/task/oom.h: who goes when memory is short.
 *
 * As Linux's mm/oom_kill.c: the process with the most memory, shifted by its
 * oom_score_adj (-1000: never), and whoever shares its address space. The
 * sentry itself is not up for choice: its own memory is none of the guest's.
 */
#ifndef MINISENTRY_SENTRY_TASK_OOM_H
#define MINISENTRY_SENTRY_TASK_OOM_H

#include "sentry/task/task.h"

/*
 * t got no memory at addr (0: for a system call), all that can be given back has been.
 * Ends a process, maybe t's, and waits until its memory is free, or for a while. No locks.
 */
void out_of_memory(struct task *t, u64 addr);
/* What /proc/PID/oom_score is computed from: pages, shifted by adj; INT64_MIN: not to be killed. */
s64 oom_points(const struct kernel *k, u64 rss, int adj);

#endif
