#include "bench/guest/groups.h"

const struct bench_group *const bench_groups[] = {
	&cow_group,   &fork_group,     &fork_vmas_group, &syscall_group,
	&ipc_group,   &process_group,  &memory_group,	 &tmpfs_group,
	&fio_group,   &programs_group, &hackbench_group, &cxx_group,
	&nginx_group, &redis_group,    &sqlite_group,	 &idle_group,
};
const size_t bench_group_count = ARRAY_SIZE(bench_groups);
