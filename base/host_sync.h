/*
 * base/host_sync.h: futexes, eventfds, polling and clocks of the host.
 *
 * Results are 0 or positive, or -errno.
 */
#ifndef MINISENTRY_BASE_HOST_SYNC_H
#define MINISENTRY_BASE_HOST_SYNC_H

#include "base/types.h"
#include <poll.h>
#include <time.h>

/* FUTEX_WAIT (shared between processes, or `private` to this one). timeout_ns < 0: none;
 * relative. 0, -EAGAIN (value differs), -EINTR, -ETIMEDOUT. */
int host_futex_wait(_Atomic u32 *word, u32 expected, s64 timeout_ns, bool private);
/* Number woken. */
int host_futex_wake(_Atomic u32 *word, int count, bool private);

/* EFD_CLOEXEC | EFD_NONBLOCK: descriptor or -errno. */
int host_eventfd(void);
/* -EAGAIN when the counter is zero. */
int host_eventfd_read(int fd, u64 *ret);
int host_eventfd_write(int fd, u64 value);

/* timeout_ns < 0: none. Number ready, 0 on timeout, -EINTR. */
int host_poll(struct pollfd *fds, size_t count, s64 timeout_ns);
u64 host_clock_ns(clockid_t clock); /* 0 when the clock does not exist */
/* On a word that is shared between processes, until a wake that has one of these bits
 * (FUTEX_WAKE has all) or the deadline on CLOCK_MONOTONIC. 0 or -errno. */
int host_futex_wait_bits(_Atomic u32 *word, u32 expected, u64 deadline_ns, u32 bits);
void host_yield(void);

#endif
