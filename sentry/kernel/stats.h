/*
 * sentry/kernel/stats.h: a running sandbox's figures, for `minisentry stats`.
 *
 * The launcher asks by a signal, the sentry's main thread answers with one
 * struct in a pipe: no call that the sentry does not need anyway, and nobody but
 * the launcher, who is outside, meets those who ask. Everything is counted
 * anyway or cheap to collect; no lock is held for long.
 */
#ifndef MINISENTRY_SENTRY_KERNEL_STATS_H
#define MINISENTRY_SENTRY_KERNEL_STATS_H

#include "sentry/kernel/kernel.h"
#include <limits.h>

#define KERNEL_STATS_MAGIC 0x7374617473303031ULL

/* Sizes in bytes. */
struct kernel_stats {
	u64 magic;
	u64 platform; /* enum platform_kind */
	u64 tasks, processes, address_spaces;
	u64 memory_limit;
	u64 committed; /* what the host has given: memory, tmpfs and page cache */
	u64 reserved;  /* handed out, committed or not */
	u64 shared;    /* of the memory of processes: what several have since a fork */
	u64 kept;      /* unmapped by guests, kept for their next mapping; counts as free */
	u64 anonymous, tmpfs, page_cache; /* parts of `reserved` */
	u64 minor_faults, major_faults;
	u64 forks;
	u64 cow_copied; /* bytes, by breaks and by fork */
	u64 break_copy, break_owner, break_file, fork_copy;
	u64 oom_kills;
};
_Static_assert(sizeof(struct kernel_stats) <= PIPE_BUF, "written at once");

void kernel_stats(struct kernel *k, struct kernel_stats *ret);
/* Writes them to k->stats_fd, which never blocks. */
void kernel_stats_report(struct kernel *k);

#endif
