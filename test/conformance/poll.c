/* poll, ppoll, select, pselect. */
#include "conf.h"
#include <sys/personality.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>

static volatile sig_atomic_t signals;
static void on_signal(int sig)
{
	signals++;
}
static void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_handler = on_signal, .sa_flags = flags };
	OK(sigaction(sig, &sa, NULL));
}

CASE(poll_readiness)
{
	int p[2];
	OK(pipe(p));
	struct pollfd f[2] = { { p[0], POLLIN, 0 }, { p[1], POLLOUT, 0 } };
	CHECK_EQ(poll(f, 2, 0), 1);
	CHECK_EQ(f[0].revents, 0);
	CHECK_EQ(f[1].revents, POLLOUT);
	OK(write(p[1], "x", 1));
	CHECK_EQ(poll(f, 2, -1), 2);
	CHECK_EQ(f[0].revents, POLLIN);
	close(p[1]);
	f[1].fd = -1;
	CHECK_EQ(poll(f, 2, -1), 1);
	CHECK_EQ(f[0].revents, POLLIN | POLLHUP);
	CHECK_EQ(f[1].revents, 0);
}
CASE(poll_bad_fds)
{
	struct pollfd f[3] = { { 0x7ffe, POLLIN, 0 },
			       { -1, POLLIN, 99 },
			       { OK(open("/tmp", O_PATH)), POLLIN, 0 } };
	CHECK_EQ(poll(f, 3, -1), 2);
	CHECK_EQ(f[0].revents, POLLNVAL);
	CHECK_EQ(f[1].revents, 0);
	CHECK_EQ(f[2].revents, POLLNVAL);
}
CASE(poll_errors)
{
	struct rlimit rl;
	CHECK_ERR(poll((void *)8, 1, 0), EFAULT);
	OK(getrlimit(RLIMIT_NOFILE, &rl));
	rl.rlim_cur = 16;
	OK(setrlimit(RLIMIT_NOFILE, &rl));
	struct pollfd f[17];
	for (int i = 0; i < 17; i++)
		f[i] = (struct pollfd){ -1, 0, 0 };
	CHECK_EQ(poll(f, 16, 0), 0);
	CHECK_ERR(poll(f, 17, 0), EINVAL);
	CHECK_EQ(poll(NULL, 0, 0), 0);
}
CASE(poll_files_always_ready)
{
	struct pollfd f[3] = { { OK(open(conf_path("f"), O_CREAT | O_RDWR, 0600)), POLLIN | POLLOUT,
				 0 },
			       { OK(open("/dev/null", O_RDWR)), POLLIN | POLLOUT, 0 },
			       { OK(open("/dev/urandom", O_RDONLY)), POLLIN, 0 } };
	CHECK_EQ(poll(f, 3, -1), 3);
	CHECK_EQ(f[0].revents, POLLIN | POLLOUT);
	CHECK_EQ(f[1].revents, POLLIN | POLLOUT);
	CHECK_EQ(f[2].revents, POLLIN);
}
CASE(poll_pipe_without_readers)
{
	int p[2];
	OK(pipe(p));
	close(p[0]);
	struct pollfd f = { p[1], POLLOUT, 0 };
	CHECK_EQ(poll(&f, 1, -1), 1);
	CHECK_EQ(f.revents, POLLOUT | POLLERR);
}
CASE(poll_pipe_nearly_full)
{
	int p[2];
	char kb[1024];
	memset(kb, 'x', sizeof(kb));
	OK(pipe2(p, O_NONBLOCK));
	for (int i = 0; i < 63; i++)
		CHECK_EQ(write(p[1], kb, 1024), 1024);
	CHECK_EQ(write(p[1], kb, 1023), 1023);
	struct pollfd f = { p[1], POLLOUT, 0 };
	CHECK_EQ(poll(&f, 1, 0), 0);
}
static void *writer(void *arg)
{
	ssize_t n = write(*(int *)arg, "x", 1);
	return (void *)(intptr_t)(n != 1);
}
CASE(poll_wakes)
{
	int p[2], q[2];
	pthread_t t;
	OK(pipe(p));
	OK(pipe(q));
	struct pollfd f[2] = { { q[0], POLLIN, 0 }, { p[0], POLLIN, 0 } };
	CHECK_EQ(pthread_create(&t, NULL, writer, &p[1]), 0);
	CHECK_EQ(poll(f, 2, -1), 1);
	CHECK_EQ(f[1].revents, POLLIN);
	pthread_join(t, NULL);
}
CASE(poll_wakes_on_close)
{
	int p[2];
	OK(pipe(p));
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	close(p[1]);
	struct pollfd f = { p[0], POLLIN, 0 };
	CHECK_EQ(poll(&f, 1, 10000), 1);
	CHECK_EQ(f.revents, POLLHUP);
	conf_join(pid);
}
CASE(poll_timeout)
{
	int p[2];
	OK(pipe(p));
	struct pollfd f = { p[0], POLLIN, 7 };
	CHECK_EQ(poll(&f, 1, 20), 0);
	CHECK_EQ(f.revents, 0);
}
CASE(poll_many)
{
	static struct pollfd f[900];
	int p[2], n = 0;
	OK(pipe(p));
	while (n < 900) {
		int fd = dup(p[0]);
		if (fd < 0)
			break;
		f[n++] = (struct pollfd){ fd, POLLIN, 0 };
	}
	CHECK_EQ(poll(f, (nfds_t)n, 0), 0);
	OK(write(p[1], "x", 1));
	CHECK_EQ(poll(f, (nfds_t)n, -1), n);
}
CASE(poll_same_fd_twice)
{
	int f = OK(eventfd(0, 0));
	struct pollfd p[2] = { { f, POLLIN, 0 }, { f, POLLOUT, 0 } };
	CHECK_EQ(poll(p, 2, -1), 1);
	CHECK_EQ(p[1].revents, POLLOUT);
}
CASE(poll_interrupted)
{
	handle(SIGALRM, 0);
	ualarm(20000, 0);
	CHECK_ERR(poll(NULL, 0, -1), EINTR);
	handle(SIGALRM, SA_RESTART);
	ualarm(20000, 0);
	/* poll is not restarted after a handler. */
	CHECK_ERR(poll(NULL, 0, -1), EINTR);
	CHECK_EQ(signals, 2);
}
static void *stop_and_go(void *arg)
{
	int *p = arg;
	kill(getpid(), SIGCONT);
	for (int i = 0; i < 100; i++)
		sched_yield();
	ssize_t n = write(p[1], "x", 1);
	return (void *)(intptr_t)(n != 1);
}
CASE(poll_restarts_without_handler)
{
	int p[2];
	pthread_t t;
	OK(pipe(p));
	CHECK_EQ(pthread_create(&t, NULL, stop_and_go, p), 0);
	struct pollfd f = { p[0], POLLIN, 0 };
	CHECK_EQ(poll(&f, 1, -1), 1);
	pthread_join(t, NULL);
}
CASE(ppoll_mask)
{
	sigset_t block, none, now;
	handle(SIGUSR1, 0);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, NULL);
	raise(SIGUSR1);
	CHECK_EQ(signals, 0);
	struct timespec ts = { 100, 0 };
	CHECK_ERR(ppoll(NULL, 0, &ts, &none), EINTR);
	CHECK_EQ(signals, 1);
	sigprocmask(SIG_SETMASK, NULL, &now);
	CHECK(sigismember(&now, SIGUSR1));
}
CASE(ppoll_ready_wins)
{
	sigset_t block, none;
	int f = OK(eventfd(1, 0));
	struct pollfd p = { f, POLLIN, 0 };
	handle(SIGUSR1, 0);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, NULL);
	raise(SIGUSR1);
	CHECK_EQ(ppoll(&p, 1, NULL, &none), 1);
	/* Ready at once: the mask went back before signals were looked at. */
	CHECK_EQ(signals, 0);
}
CASE(ppoll_arguments)
{
	struct timespec bad = { 0, 1000000000 }, neg = { -1, 0 };
	sigset_t none;
	sigemptyset(&none);
	CHECK_ERR(ppoll(NULL, 0, &bad, NULL), EINVAL);
	CHECK_ERR(ppoll(NULL, 0, &neg, NULL), EINVAL);
	CHECK_ERR(syscall(SYS_ppoll, NULL, 0, (void *)8, NULL, 0), EFAULT);
	struct timespec zero = { 0, 0 };
	CHECK_ERR(syscall(SYS_ppoll, NULL, 0, &zero, &none, 16), EINVAL);
}
CASE(ppoll_writes_remaining)
{
	int f = OK(eventfd(1, 0));
	struct pollfd p = { f, POLLIN, 0 };
	struct timespec ts = { 1000, 0 };
	CHECK_EQ(syscall(SYS_ppoll, &p, 1, &ts, NULL, 8), 1);
	CHECK(ts.tv_sec >= 900 && ts.tv_sec <= 1000);
	CHECK(ts.tv_sec < 1000 || ts.tv_nsec == 0);
}
CASE(select_readiness)
{
	int p[2];
	fd_set r, w;
	OK(pipe(p));
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(p[0], &r);
	FD_SET(p[1], &w);
	CHECK_EQ(select(p[1] + 1, &r, &w, NULL, NULL), 1);
	CHECK(!FD_ISSET(p[0], &r) && FD_ISSET(p[1], &w));
	OK(write(p[1], "x", 1));
	FD_SET(p[0], &r);
	CHECK_EQ(select(p[1] + 1, &r, &w, NULL, NULL), 2);
	close(p[1]);
	FD_ZERO(&r);
	FD_SET(p[0], &r);
	CHECK_EQ(select(p[0] + 1, &r, NULL, NULL, NULL), 1);
}
CASE(select_errors)
{
	fd_set r;
	struct timeval neg = { -1, 0 }, zero = { 0, 0 };
	FD_ZERO(&r);
	FD_SET(500, &r);
	OK(dup2(0, 501));
	CHECK_ERR(select(502, &r, NULL, NULL, &zero), EBADF);
	CHECK_ERR(select(-1, NULL, NULL, NULL, &zero), EINVAL);
	CHECK_ERR(select(0, NULL, NULL, NULL, &neg), EINVAL);
	CHECK_ERR(select(5, (void *)8, NULL, NULL, &zero), EFAULT);
}
CASE(select_regular_file)
{
	int f = OK(open(conf_path("f"), O_CREAT | O_RDWR, 0600));
	fd_set r, w, x;
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_ZERO(&x);
	FD_SET(f, &r);
	FD_SET(f, &w);
	FD_SET(f, &x);
	struct timeval tv = { 10, 0 };
	CHECK_EQ(select(f + 1, &r, &w, &x, &tv), 2);
	CHECK(FD_ISSET(f, &r) && FD_ISSET(f, &w) && !FD_ISSET(f, &x));
	CHECK(tv.tv_sec >= 9);
}
CASE(select_timeout)
{
	struct timeval tv = { 0, 20000 };
	CHECK_EQ(select(0, NULL, NULL, NULL, &tv), 0);
	CHECK(tv.tv_sec == 0 && tv.tv_usec == 0);
}
CASE(select_sticky_timeout)
{
	struct timeval tv = { 0, 1000 };

	OK(personality(STICKY_TIMEOUTS));
	CHECK_EQ(syscall(SYS_select, 0, NULL, NULL, NULL, &tv), 0);
	CHECK_EQ(tv.tv_usec, 1000);
	struct timespec ts = { 0, 1000000 };
	CHECK_EQ(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &ts, NULL), 0);
	CHECK_EQ(ts.tv_nsec, 1000000);
	CHECK_EQ(syscall(SYS_ppoll, NULL, 0, &ts, NULL, 8), 0);
	CHECK_EQ(ts.tv_nsec, 1000000);
	OK(personality(0));
	CHECK_EQ(syscall(SYS_select, 0, NULL, NULL, NULL, &tv), 0);
	CHECK_EQ(tv.tv_usec, 0);
}
CASE(select_high_descriptors)
{
	struct rlimit rl;
	OK(getrlimit(RLIMIT_NOFILE, &rl));
	if (rl.rlim_max < 5000)
		SKIP("descriptor limit");
	rl.rlim_cur = 5000;
	OK(setrlimit(RLIMIT_NOFILE, &rl));
	int p[2];
	OK(pipe(p));
	OK(dup2(p[0], 4500));
	OK(write(p[1], "x", 1));
	static unsigned long set[5000 / 64 + 1];
	set[4500 / 64] |= 1UL << (4500 % 64);
	CHECK_EQ(syscall(SYS_select, 4501, set, NULL, NULL, NULL), 1);
	CHECK(set[4500 / 64] & 1UL << (4500 % 64));
}
CASE(select_interrupted)
{
	handle(SIGALRM, SA_RESTART);
	ualarm(20000, 0);
	CHECK_ERR(select(0, NULL, NULL, NULL, NULL), EINTR);
}
CASE(pselect_mask)
{
	sigset_t block, none;
	handle(SIGUSR1, 0);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, NULL);
	raise(SIGUSR1);
	CHECK_ERR(pselect(0, NULL, NULL, NULL, NULL, &none), EINTR);
	CHECK_EQ(signals, 1);
}
CASE(select_exceptional_nothing)
{
	int s[2];
	fd_set x;
	struct timeval zero = { 0, 0 };
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	FD_ZERO(&x);
	FD_SET(s[0], &x);
	CHECK_EQ(select(s[0] + 1, NULL, NULL, &x, &zero), 0);
}
CONF_MAIN
