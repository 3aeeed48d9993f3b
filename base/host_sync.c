#include "base/host_sync.h"
#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NSEC_PER_SEC 1000000000LL

static struct timespec to_timespec(s64 ns)
{
	return (struct timespec){ .tv_sec = ns / NSEC_PER_SEC, .tv_nsec = ns % NSEC_PER_SEC };
}

int host_futex_wait(_Atomic u32 *word, u32 expected, s64 timeout_ns, bool private)
{
	struct timespec ts = to_timespec(timeout_ns < 0 ? 0 : timeout_ns);
	int op = FUTEX_WAIT | (private ? FUTEX_PRIVATE_FLAG : 0);

	if (syscall(SYS_futex, word, op, expected, timeout_ns < 0 ? NULL : &ts, NULL, 0) < 0)
		return -errno;
	return 0;
}

int host_futex_wait_bits(_Atomic u32 *word, u32 expected, u64 deadline_ns, u32 bits)
{
	struct timespec ts = to_timespec((s64)deadline_ns);

	if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, &ts, NULL, bits) < 0)
		return -errno;
	return 0;
}

int host_futex_wake(_Atomic u32 *word, int count, bool private)
{
	int op = FUTEX_WAKE | (private ? FUTEX_PRIVATE_FLAG : 0);
	long n = syscall(SYS_futex, word, op, count, NULL, NULL, 0);

	return n < 0 ? -errno : (int)n;
}

int host_eventfd(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

int host_eventfd_read(int fd, u64 *ret)
{
	u64 v;
	ssize_t n;

	do
		n = read(fd, &v, sizeof(v));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*ret = v;
	return 0;
}

int host_eventfd_write(int fd, u64 value)
{
	ssize_t n;

	do
		n = write(fd, &value, sizeof(value));
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int host_poll(struct pollfd *fds, size_t count, s64 timeout_ns)
{
	struct timespec ts = to_timespec(timeout_ns < 0 ? 0 : timeout_ns);
	int n = ppoll(fds, count, timeout_ns < 0 ? NULL : &ts, NULL);

	return n < 0 ? -errno : n;
}

u64 host_clock_ns(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		return 0;
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

void host_yield(void)
{
	sched_yield();
}
