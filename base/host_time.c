#include "base/host_time.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NS_PER_SEC 1000000000ULL

int host_clock_read(int clock, u64 *ret_ns)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		return -errno;
	*ret_ns = (u64)ts.tv_sec * NS_PER_SEC + (u64)ts.tv_nsec;
	return 0;
}

int host_clock_resolution_ns(int clock, u64 *ret_ns)
{
	struct timespec ts;

	if (clock_getres(clock, &ts) < 0)
		return -errno;
	*ret_ns = (u64)ts.tv_sec * NS_PER_SEC + (u64)ts.tv_nsec;
	return 0;
}

int host_word_wait(_Atomic u32 *word, u32 expected, u64 deadline_ns)
{
	struct timespec ts = { .tv_sec = (time_t)(deadline_ns / NS_PER_SEC),
			       .tv_nsec = (long)(deadline_ns % NS_PER_SEC) };

	/* WAIT_BITSET takes an absolute CLOCK_MONOTONIC time. */
	if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected,
		    deadline_ns == UINT64_MAX ? NULL : &ts, NULL, FUTEX_BITSET_MATCH_ANY) < 0)
		return -errno;
	return 0;
}

void host_word_wake(_Atomic u32 *word, int count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

int host_getrandom(void *dst, size_t size, u32 flags)
{
	u8 *p = dst;

	while (size > 0) {
		ssize_t n = getrandom(p, size, flags);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

int host_membarrier_all(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) < 0 ? -errno : 0;
}

bool host_membarrier_available(void)
{
	long mask = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	return mask > 0 && (mask & MEMBARRIER_CMD_GLOBAL);
}

void host_getcpu(u32 *ret_cpu, u32 *ret_node)
{
	unsigned int cpu = 0, node = 0;

	getcpu(&cpu, &node);
	*ret_cpu = cpu;
	*ret_node = node;
}
