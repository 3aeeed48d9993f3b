/*
 * sentry/proc/procfs.h: /proc and a small /sys.
 *
 * Both are file systems of synthetic files (vfs/synth.h). Nothing is cached:
 * an entry of /proc/PID is made at lookup, holds a reference on the task, and
 * answers -ESRCH once the task is gone. Numbers come from the owning modules
 * (mm_get_stats, thread_group_cpu_times, ...).
 */
#ifndef MINISENTRY_SENTRY_PROC_PROCFS_H
#define MINISENTRY_SENTRY_PROC_PROCFS_H

#include "sentry/kernel/kernel.h"
#include "vfs/file.h"

/* A procfs / sysfs for kernel k (outlives it). 0 or -ENOMEM. */
int procfs_new(struct kernel *k, struct superblock **ret);
int sysfs_new(struct kernel *k, struct superblock **ret);
/* The host's /proc/cpuinfo, opened by boot before confinement, and read when a guest first asks:
 * the host asks each of its processors. Without it (-1) a minimal cpuinfo is made from cpuid. */
void procfs_set_host_cpuinfo(int fd);
/* The process of an open directory /proc/PID, borrowed as long as f is; NULL for any other file. */
struct thread_group *procfs_group_of(struct file *f);
/* What uname, /proc/version and /proc/sys/kernel report. */
#define GUEST_OSRELEASE "6.6.0"
#define GUEST_VERSION "#1 SMP PREEMPT_DYNAMIC Mon Jan  1 00:00:00 UTC 2024"

#endif
