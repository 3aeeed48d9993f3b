/*
 * base/host_time.h: the host's clocks, sleeping on a word until a time, randomness.
 *
 * Results are 0 or positive, or -errno.
 */
#ifndef MINISENTRY_BASE_HOST_TIME_H
#define MINISENTRY_BASE_HOST_TIME_H

#include "base/types.h"
#include <time.h>

/* A host clock in ns (CLOCK_REALTIME, CLOCK_MONOTONIC, ..., through the vDSO). -EINVAL. */
int host_clock_read(int clock, u64 *ret_ns);
int host_clock_resolution_ns(int clock, u64 *ret_ns);
/* Sleeps while *word == expected, until host_word_wake or deadline_ns (CLOCK_MONOTONIC absolute,
 * UINT64_MAX: none). 0 (maybe spuriously), -ETIMEDOUT, -EAGAIN, -EINTR. */
int host_word_wait(_Atomic u32 *word, u32 expected, u64 deadline_ns);
void host_word_wake(_Atomic u32 *word, int count);
/* Fills dst with random bytes; flags: GRND_*. Loops until done; 0, -EINVAL, -EAGAIN. */
int host_getrandom(void *dst, size_t size, u32 flags);
/* membarrier(2): a barrier on every cpu of the host (MEMBARRIER_CMD_GLOBAL). 0, -EINVAL, -ENOSYS.
 * Slow: milliseconds. */
int host_membarrier_all(void);
bool host_membarrier_available(void);
/* The host cpu (and NUMA node) that the calling thread is on. */
void host_getcpu(u32 *ret_cpu, u32 *ret_node);

#endif
