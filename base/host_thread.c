#include "base/host_thread.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sanitizers put more on a stack than plain builds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_FACTOR 8
#else
#define STACK_FACTOR 1
#endif

int host_futex_wait_until(_Atomic u32 *word, u32 expected, u64 deadline_ns)
{
	struct timespec ts, *tp = NULL;

	if (deadline_ns != UINT64_MAX) {
		ts.tv_sec = (time_t)(deadline_ns / 1000000000);
		ts.tv_nsec = (long)(deadline_ns % 1000000000);
		tp = &ts;
	}
	if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected, tp, NULL,
		    FUTEX_BITSET_MATCH_ANY) < 0)
		return -errno;
	return 0;
}

/* ---- CPUs ---- */

static struct host_cpus all_cpus; /* immutable once set */
static _Atomic bool threads_bound;
static _Thread_local u32 bound_to; /* a CPU, from 1; 0: none */

void host_cpus(struct host_cpus *ret)
{
	static _Atomic bool known;

	if (!atomic_exchange(&known, true))
		sched_getaffinity(0, sizeof(all_cpus), (cpu_set_t *)&all_cpus);
	*ret = all_cpus;
}

int host_bind_cpu(int tid, u32 cpu)
{
	struct host_cpus all, one = { { 0 } };

	host_cpus(&all);
	if (cpu >= HOST_CPUS_MAX || !(all.bits[cpu / 64] >> (cpu % 64) & 1))
		return -EINVAL;
	one.bits[cpu / 64] = 1ULL << (cpu % 64);
	atomic_store(&threads_bound, true);
	return sched_setaffinity(tid, sizeof(one), (const cpu_set_t *)&one) < 0 ? -errno : 0;
}

int host_unbind_cpu(int tid)
{
	if (!atomic_load_explicit(&threads_bound, memory_order_relaxed))
		return 0;
	if (sched_setaffinity(tid, sizeof(all_cpus), (const cpu_set_t *)&all_cpus) < 0)
		return -errno;
	if (!tid)
		bound_to = 0;
	return 0;
}

int host_bind_self(u32 cpu)
{
	int err = bound_to == cpu + 1 ? 0 : host_bind_cpu(0, cpu);

	if (err == 0)
		bound_to = cpu + 1;
	return err;
}

void host_unbind_self(void)
{
	if (bound_to && host_unbind_cpu(0) == 0)
		bound_to = 0;
}

/* ---- threads ---- */

int host_thread_start(void *(*fn)(void *arg), void *arg, size_t stack_size)
{
	static const int own_faults[] = {
		SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT
	};
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int r = pthread_attr_init(&attr);

	if (r)
		return -r;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, stack_size * STACK_FACTOR);
	if (atomic_load_explicit(&threads_bound, memory_order_relaxed))
		pthread_attr_setaffinity_np(&attr, sizeof(all_cpus), (cpu_set_t *)&all_cpus);
	sigfillset(&all);
	for (size_t i = 0; i < ARRAY_SIZE(own_faults); i++)
		sigdelset(&all, own_faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&thread, &attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -r;
}

/* ---- workers ---- */

#define IDLE_MAX 8

struct host_worker {
	_Atomic u32 busy; /* futex */
	_Atomic int tid;  /* 0: it has not run yet */
	void (*fn)(void *arg);
	void *arg;
	struct host_worker *next;
};

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_worker *idle; /* protected by idle_lock, as is its number */
static int idle_count;

/* False: there are enough. */
static bool make_idle(struct host_worker *w)
{
	bool room;

	pthread_mutex_lock(&idle_lock);
	room = idle_count < IDLE_MAX;
	if (room) {
		w->next = idle;
		idle = w;
		idle_count++;
	}
	pthread_mutex_unlock(&idle_lock);
	return room;
}

static void *worker_main(void *arg)
{
	struct host_worker *w = arg;

	atomic_store(&w->tid, (int)syscall(SYS_gettid));
	do {
		while (!atomic_load(&w->busy))
			host_futex_wait_until(&w->busy, 0, UINT64_MAX);
		if (!w->fn)
			break;
		w->fn(w->arg);
		atomic_store(&w->busy, 0);
	} while (make_idle(w));
	free(w);
	return NULL;
}

int host_worker_get(struct host_worker **ret)
{
	struct host_worker *w;
	int r;

	pthread_mutex_lock(&idle_lock);
	w = idle;
	if (w) {
		idle = w->next;
		idle_count--;
	}
	pthread_mutex_unlock(&idle_lock);
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return -ENOMEM;
		r = host_thread_start(worker_main, w, HOST_WORKER_STACK);
		if (r < 0) {
			free(w);
			return r;
		}
	}
	*ret = w;
	return 0;
}

void host_worker_start(struct host_worker *w, void (*fn)(void *arg), void *arg)
{
	w->fn = fn;
	w->arg = arg;
	atomic_store(&w->busy, 1);
	syscall(SYS_futex, &w->busy, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
}

void host_worker_start_apart(struct host_worker *w, void (*fn)(void *arg), void *arg)
{
	int tid = atomic_load(&w->tid), cpu = sched_getcpu();
	struct host_cpus others;

	host_cpus(&others);
	if (tid && cpu >= 0 && cpu < HOST_CPUS_MAX) {
		others.bits[cpu / 64] &= ~(1ULL << (cpu % 64));
		atomic_store(&threads_bound, true);
		/* Where there is no other, the host refuses. */
		sched_setaffinity(tid, sizeof(others), (const cpu_set_t *)&others);
	}
	host_worker_start(w, fn, arg);
}

void host_worker_put(struct host_worker *w)
{
	if (!make_idle(w))
		host_worker_start(w, NULL, NULL);
}

/* A number in a file; UINT64_MAX when it is absent or says "max". */
static u64 number_in(const char *path)
{
	char buf[32];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0 || buf[0] < '0' || buf[0] > '9')
		return UINT64_MAX;
	buf[n] = 0;
	return strtoull(buf, NULL, 10);
}

u64 host_task_room(void)
{
	static const char *const files[] = { "/proc/sys/kernel/threads-max",
					     "/proc/sys/kernel/pid_max",
					     "/sys/fs/cgroup/pids.max" };
	struct rlimit r;
	u64 room = UINT64_MAX;

	if (getrlimit(RLIMIT_NPROC, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
		room = r.rlim_cur;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		room = MIN(room, number_in(files[i]));
	return room;
}
