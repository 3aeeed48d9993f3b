/* The groups of rows that the guest program has; each is defined in a file of its own. */
#ifndef BENCH_GUEST_GROUPS_H
#define BENCH_GUEST_GROUPS_H

#include "bench/guest/bench.h"

extern const struct bench_group *const bench_groups[];
extern const size_t bench_group_count;

extern const struct bench_group cow_group, fork_group, fork_vmas_group, syscall_group, ipc_group,
	process_group, memory_group, tmpfs_group, fio_group, programs_group, hackbench_group,
	cxx_group, nginx_group, redis_group, sqlite_group, idle_group;

#endif
