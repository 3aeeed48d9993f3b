/*
 * Single system calls, each in a loop: what a program pays for the boundary itself. Files are on
 * tmpfs (--dir tmpfs), so no disk is in the way.
 */
#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define US 1000.0
#define DEEP "1/2/3/4/5"

static int op_getppid(void *arg, uint64_t n)
{
	while (n--)
		if (getppid() < 0)
			return -1;
	return 0;
}

static int op_clock_vdso(void *arg, uint64_t n)
{
	struct timespec ts;

	while (n--)
		if (clock_gettime(CLOCK_MONOTONIC, &ts))
			return -1;
	return 0;
}

static int op_clock_syscall(void *arg, uint64_t n)
{
	struct timespec ts;

	while (n--)
		if (syscall(__NR_clock_gettime, CLOCK_MONOTONIC, &ts))
			return -1;
	return 0;
}

static void run_getppid(const struct bench_row *row)
{
	bench_loop_row(row->name, op_getppid, NULL, US);
}

static void run_clock_gettime(const struct bench_row *row)
{
	bench_loop_row(row->name, row->arg ? op_clock_syscall : op_clock_vdso, NULL, US);
}

static int op_open_close(void *arg, uint64_t n)
{
	while (n--) {
		int fd = open(arg, O_RDONLY);

		if (fd < 0 || close(fd))
			return -1;
	}
	return 0;
}

/* `op` on the path of a file; arg is how many folders deep it is, 0 or 5. */
static void run_path(const struct bench_row *row, int (*op)(void *, uint64_t))
{
	static const char *const dirs[] = { "1", "1/2", "1/2/3", "1/2/3/4", DEEP };
	struct scratch s;
	int fd;

	if (scratch_make(&s, row->name, "tmpfs"))
		return;
	for (size_t i = 0; i < row->arg; i++)
		if (mkdir(scratch_path(&s, dirs[i]), 0700))
			bench_fail(row->name, "mkdir %s", s.path);
	fd = scratch_file(&s, row->arg ? DEEP "/file" : "file", 1);
	if (fd < 0) {
		bench_fail(row->name, "cannot make %s", s.path);
	} else {
		close(fd);
		bench_loop_row(row->name, op, s.path, US);
	}
	scratch_remove(&s);
}

static void run_open_close(const struct bench_row *row)
{
	run_path(row, op_open_close);
}

static void run_stat(const struct bench_row *row)
{
	run_path(row, scratch_stat);
}

struct transfer {
	int fd;
	size_t size;
	char *buf;
};

/* At offset 0 each time: the file and the buffer are in the cache, where they fit. */
static int op_pread(void *arg, uint64_t n)
{
	struct transfer *t = arg;

	while (n--)
		if (pread(t->fd, t->buf, t->size, 0) != (ssize_t)t->size)
			return -1;
	return 0;
}

static int op_pwrite(void *arg, uint64_t n)
{
	struct transfer *t = arg;

	while (n--)
		if (pwrite(t->fd, t->buf, t->size, 0) != (ssize_t)t->size)
			return -1;
	return 0;
}

static void run_transfer(const struct bench_row *row, int (*op)(void *, uint64_t))
{
	struct transfer t = { .size = row->arg };
	struct scratch s;

	if (scratch_make(&s, row->name, "tmpfs"))
		return;
	t.fd = scratch_file(&s, "file", MIB);
	t.buf = calloc(1, MIB);
	if (t.fd < 0 || !t.buf) {
		bench_fail(row->name, "cannot make %s", s.path);
	} else {
		bench_touch(t.buf, MIB, PAGE_SIZE);
		bench_loop_row(row->name, op, &t, US);
	}
	free(t.buf);
	close(t.fd);
	scratch_remove(&s);
}

static void run_pread(const struct bench_row *row)
{
	run_transfer(row, op_pread);
}

static void run_pwrite(const struct bench_row *row)
{
	run_transfer(row, op_pwrite);
}

static int op_epoll(void *arg, uint64_t n)
{
	struct epoll_event event;

	while (n--)
		if (epoll_wait(*(int *)arg, &event, 1, -1) != 1)
			return -1;
	return 0;
}

/* One descriptor, ready all the time (level-triggered), so that no call sleeps. */
static void run_epoll(const struct bench_row *row)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ready = eventfd(1, EFD_CLOEXEC), epoll = epoll_create1(EPOLL_CLOEXEC);

	if (ready < 0 || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, ready, &event))
		bench_fail(row->name, "epoll_ctl");
	else
		bench_loop_row(row->name, op_epoll, &epoll, US);
	close(epoll);
	close(ready);
}

static volatile uint64_t signals;

static void count_signal(int sig)
{
	signals = signals + 1;
}

/* kill() of oneself returns after the handler: the signal is pending before the call's end. */
static int op_signal(void *arg, uint64_t n)
{
	pid_t self = getpid();
	uint64_t want = signals + n;

	while (n--)
		if (kill(self, SIGUSR1))
			return -1;
	if (signals != want) {
		errno = EPROTO;
		return -1;
	}
	return 0;
}

static void run_signal_self(const struct bench_row *row)
{
	struct sigaction action = { .sa_handler = count_signal }, before;

	if (sigaction(SIGUSR1, &action, &before)) {
		bench_fail(row->name, "sigaction");
		return;
	}
	bench_loop_row(row->name, op_signal, NULL, US);
	sigaction(SIGUSR1, &before, NULL);
}

static const struct bench_row rows[] = {
	{ "getppid", run_getppid, 0 },
	{ "clock_gettime", run_clock_gettime, 0 },
	{ "clock_gettime_syscall", run_clock_gettime, 1 },
	{ "open_close", run_open_close, 0 },
	{ "stat", run_stat, 0 },
	{ "stat_depth5", run_stat, 5 },
	{ "pread_1B", run_pread, 1 },
	{ "pread_4K", run_pread, 4 * KIB },
	{ "pread_1M", run_pread, MIB },
	{ "pwrite_1M_overwrite", run_pwrite, MIB },
	{ "epoll_wait_ready", run_epoll, 0 },
	{ "signal_self", run_signal_self, 0 },
};
BENCH_GROUP(syscall, rows);
