/*
 * base/host_thread.h: threads of the sentry, and their sleep with a deadline.
 *
 * Results are 0 or positive, or -errno.
 */
#ifndef MINISENTRY_BASE_HOST_THREAD_H
#define MINISENTRY_BASE_HOST_THREAD_H

#include "base/types.h"

/*
 * Sleeps while *word == expected, at most until deadline_ns (CLOCK_MONOTONIC,
 * absolute; UINT64_MAX: no limit); private futex. 0 when woken, -EAGAIN when
 * the word had another value, -ETIMEDOUT, -EINTR. May return 0 without a wake.
 */
int host_futex_wait_until(_Atomic u32 *word, u32 expected, u64 deadline_ns);

/*
 * Starts a detached thread with a small stack and a guard page; all signals are
 * blocked but those that report the thread's own faults. -EAGAIN, -ENOMEM.
 */
int host_thread_start(void *(*fn)(void *arg), void *arg, size_t stack_size);

/*
 * Workers: threads as above with a stack of HOST_WORKER_STACK, kept for the next
 * use when their function returns (a few of them).
 *	host_worker_get(&w); ... host_worker_start(w, fn, arg);
 */
#define HOST_WORKER_STACK (256UL << 10)
struct host_worker;
/* A worker that sleeps. 0, -EAGAIN, -ENOMEM. */
int host_worker_get(struct host_worker **ret);
/* Runs fn(arg) in it. It belongs to nobody from here on. */
void host_worker_start(struct host_worker *w, void (*fn)(void *arg), void *arg);
/* The same on another CPU than the caller's: a thread that is woken there by one that goes on would
 * wait for it. fn ends with host_unbind_cpu(0). */
void host_worker_start_apart(struct host_worker *w, void (*fn)(void *arg), void *arg);
/* Gives back one that was not started. */
void host_worker_put(struct host_worker *w);

/* The CPUs that this process may run on, as seen by the first call, which comes before any binding.
 */
#define HOST_CPUS_MAX 1024
struct host_cpus {
	u64 bits[HOST_CPUS_MAX / 64];
};
void host_cpus(struct host_cpus *ret);
/* Keeps a thread (0: the calling one) on one CPU of those, or no longer. 0 or -errno. Threads that
 * a bound one starts by host_thread_start are free; others call host_unbind(0) first. */
int host_bind_cpu(int tid, u32 cpu);
int host_unbind_cpu(int tid);
/* The same for the calling thread, without a host call where nothing changes. */
int host_bind_self(u32 cpu);
void host_unbind_self(void);

/*
 * How many tasks the host lets this user have, by RLIMIT_NPROC, threads-max,
 * pid_max and the cgroup's pids.max, as far as they can be read (before
 * confinement); UINT64_MAX when nothing is known.
 */
u64 host_task_room(void);

#endif
