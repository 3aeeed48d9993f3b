/*
 * base/host_sync.h: futexes, clocks and threads of the host.
 *
 * Results are 0 or positive, or -errno. Futexes are process-private.
 */
#ifndef MINISENTRY_BASE_HOST_SYNC_H
#define MINISENTRY_BASE_HOST_SYNC_H

#include "base/types.h"
#include <time.h>

/*
 * Sleeps while *word == expected, at most until deadline_ns (CLOCK_MONOTONIC,
 * absolute; UINT64_MAX: no limit). 0 when woken, -EAGAIN when the word had
 * another value, -ETIMEDOUT, -EINTR. May return 0 without a wake.
 */
int host_futex_wait(_Atomic u32 *word, u32 expected, u64 deadline_ns);
/* Wakes at most `count` sleepers; how many. */
int host_futex_wake(_Atomic u32 *word, int count);

u64 host_clock_ns(clockid_t clock);
/* CPU time of the calling thread. */
u64 host_thread_cpu_ns(void);

/*
 * Starts a detached thread with a small stack and a guard page; all signals are
 * blocked but those that report the thread's own faults. -EAGAIN, -ENOMEM.
 */
int host_thread_start(void *(*fn)(void *arg), void *arg, size_t stack_size);

#endif
