/* epoll: interest lists, triggering, nesting, waiting. */
#include "conf.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

static int ep_new(void)
{
	return OK(epoll_create1(0));
}
static int ctl(int ep, int op, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };
	return epoll_ctl(ep, op, fd, &ev);
}
static int add(int ep, int fd, uint32_t events)
{
	return ctl(ep, EPOLL_CTL_ADD, fd, events);
}
/* Events of the only ready descriptor, 0 when none is. */
static uint32_t one(int ep)
{
	struct epoll_event ev[4];
	int n = OK(epoll_wait(ep, ev, 4, 0));
	CHECK(n <= 1);
	return n ? ev[0].events : 0;
}
static void put(int fd)
{
	uint64_t v = 1;
	CHECK_EQ(write(fd, &v, 8), 8);
}
static void take(int fd)
{
	uint64_t v;
	CHECK_EQ(read(fd, &v, 8), 8);
}

CASE(create_arguments)
{
	CHECK_ERR(epoll_create(0), EINVAL);
	CHECK_ERR(epoll_create(-1), EINVAL);
	CHECK_ERR(epoll_create1(1), EINVAL);
	int e = OK(epoll_create1(EPOLL_CLOEXEC));
	CHECK_EQ(fcntl(e, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(OK(epoll_create(1)), F_GETFD), 0);
}
CASE(ctl_errors)
{
	int e = ep_new(), f = OK(eventfd(0, 0));
	struct epoll_event ev = { .events = EPOLLIN };
	CHECK_ERR(epoll_ctl(e, EPOLL_CTL_ADD, 0x7fff, &ev), EBADF);
	CHECK_ERR(epoll_ctl(0x7fff, EPOLL_CTL_ADD, f, &ev), EBADF);
	CHECK_ERR(epoll_ctl(f, EPOLL_CTL_ADD, e, &ev), EINVAL);
	CHECK_ERR(epoll_ctl(e, EPOLL_CTL_ADD, e, &ev), EINVAL);
	CHECK_ERR(epoll_ctl(e, 99, f, &ev), EINVAL);
	CHECK_ERR(epoll_ctl(e, EPOLL_CTL_MOD, f, &ev), ENOENT);
	CHECK_ERR(epoll_ctl(e, EPOLL_CTL_DEL, f, NULL), ENOENT);
	CHECK_ERR(epoll_ctl(e, EPOLL_CTL_ADD, f, (void *)8), EFAULT);
	OK(epoll_ctl(e, EPOLL_CTL_ADD, f, &ev));
	CHECK_ERR(epoll_ctl(e, EPOLL_CTL_ADD, f, &ev), EEXIST);
	OK(epoll_ctl(e, EPOLL_CTL_DEL, f, NULL));
}
CASE(wait_errors)
{
	int e = ep_new(), f = OK(eventfd(0, 0));
	struct epoll_event ev;
	CHECK_ERR(epoll_wait(e, &ev, 0, 0), EINVAL);
	CHECK_ERR(epoll_wait(e, &ev, -1, 0), EINVAL);
	CHECK_ERR(epoll_wait(e, &ev, 0x7fffffff, 0), EINVAL);
	CHECK_ERR(epoll_wait(f, &ev, 1, 0), EINVAL);
	CHECK_ERR(epoll_wait(0x7fff, &ev, 1, 0), EBADF);
	put(f);
	OK(add(e, f, EPOLLIN));
	CHECK_ERR(epoll_wait(e, (void *)8, 1, 0), EFAULT);
	/* The event was not lost. */
	CHECK_EQ(one(e), EPOLLIN);
}
CASE(regular_files_refused)
{
	int e = ep_new(), f = OK(open(conf_path("f"), O_CREAT | O_RDWR, 0600));
	CHECK_ERR(add(e, f, EPOLLIN), EPERM);
	CHECK_ERR(add(e, OK(open("/tmp", O_RDONLY | O_DIRECTORY)), EPOLLIN), EPERM);
	CHECK_ERR(add(e, OK(open("/dev/null", O_RDWR)), EPOLLIN), EPERM);
	CHECK_ERR(add(e, OK(open("/tmp", O_PATH)), EPOLLIN), EBADF);
}
CASE(level_triggered)
{
	int e = ep_new(), f = OK(eventfd(0, 0));
	OK(add(e, f, EPOLLIN));
	CHECK_EQ(one(e), 0);
	put(f);
	CHECK_EQ(one(e), EPOLLIN);
	CHECK_EQ(one(e), EPOLLIN);
	take(f);
	CHECK_EQ(one(e), 0);
}
CASE(edge_triggered)
{
	int e = ep_new(), f = OK(eventfd(0, 0));
	OK(add(e, f, EPOLLIN | EPOLLET));
	put(f);
	CHECK_EQ(one(e), EPOLLIN);
	CHECK_EQ(one(e), 0);
	put(f);
	CHECK_EQ(one(e), EPOLLIN);
	CHECK_EQ(one(e), 0);
}
CASE(edge_ready_at_add)
{
	int e = ep_new(), f = OK(eventfd(1, 0));
	OK(add(e, f, EPOLLIN | EPOLLOUT | EPOLLET));
	CHECK_EQ(one(e), EPOLLIN | EPOLLOUT);
	CHECK_EQ(one(e), 0);
	OK(ctl(e, EPOLL_CTL_MOD, f, EPOLLIN | EPOLLET));
	CHECK_EQ(one(e), EPOLLIN);
}
CASE(one_shot)
{
	int e = ep_new(), f = OK(eventfd(1, 0));
	OK(add(e, f, EPOLLIN | EPOLLONESHOT));
	CHECK_EQ(one(e), EPOLLIN);
	CHECK_EQ(one(e), 0);
	put(f);
	CHECK_EQ(one(e), 0);
	OK(ctl(e, EPOLL_CTL_MOD, f, EPOLLIN | EPOLLONESHOT));
	CHECK_EQ(one(e), EPOLLIN);
	CHECK_EQ(one(e), 0);
}
CASE(modify_mask)
{
	int e = ep_new(), f = OK(eventfd(1, 0));
	OK(add(e, f, 0));
	CHECK_EQ(one(e), 0);
	OK(ctl(e, EPOLL_CTL_MOD, f, EPOLLOUT));
	CHECK_EQ(one(e), EPOLLOUT);
	OK(ctl(e, EPOLL_CTL_MOD, f, EPOLLIN));
	CHECK_EQ(one(e), EPOLLIN);
	OK(epoll_ctl(e, EPOLL_CTL_DEL, f, NULL));
	CHECK_EQ(one(e), 0);
}
CASE(hangup_always_reported)
{
	int e = ep_new(), p[2];
	OK(pipe(p));
	OK(add(e, p[0], 0));
	CHECK_EQ(one(e), 0);
	close(p[1]);
	CHECK_EQ(one(e), EPOLLHUP);
	int q[2];
	OK(pipe(q));
	int e2 = ep_new();
	OK(add(e2, q[1], 0));
	close(q[0]);
	CHECK_EQ(one(e2), EPOLLERR);
}
CASE(rdhup)
{
	int e = ep_new(), s[2];
	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	OK(add(e, s[0], EPOLLIN | EPOLLRDHUP));
	OK(shutdown(s[1], SHUT_WR));
	CHECK_EQ(one(e), EPOLLIN | EPOLLRDHUP);
	close(s[1]);
	CHECK_EQ(one(e), EPOLLIN | EPOLLRDHUP | EPOLLHUP);
}
CASE(close_removes)
{
	int e = ep_new(), f = OK(eventfd(1, 0));
	OK(add(e, f, EPOLLIN));
	close(f);
	CHECK_EQ(one(e), 0);
	/* The number is free for another file. */
	int g = OK(eventfd(1, 0));
	CHECK_EQ(g, f);
	OK(add(e, g, EPOLLIN));
	CHECK_EQ(one(e), EPOLLIN);
}
CASE(dup_keeps)
{
	int e = ep_new(), f = OK(eventfd(1, 0)), g = OK(dup(f));
	OK(add(e, f, EPOLLIN));
	/* The same file under another number is another item. */
	OK(add(e, g, EPOLLIN));
	OK(epoll_ctl(e, EPOLL_CTL_DEL, g, NULL));
	close(f);
	CHECK_EQ(one(e), EPOLLIN);
	close(g);
	CHECK_EQ(one(e), 0);
}
CASE(data_is_kept)
{
	int e = ep_new(), f = OK(eventfd(1, 0));
	struct epoll_event ev = { .events = EPOLLIN, .data.u64 = 0x1122334455667788ULL }, got;
	OK(epoll_ctl(e, EPOLL_CTL_ADD, f, &ev));
	CHECK_EQ(epoll_wait(e, &got, 1, -1), 1);
	CHECK(got.data.u64 == ev.data.u64);
}
CASE(many_ready_are_fair)
{
	int e = ep_new(), f[50], seen[50] = { 0 };
	struct epoll_event ev[10];
	for (int i = 0; i < 50; i++) {
		struct epoll_event w = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
		f[i] = OK(eventfd(1, 0));
		OK(epoll_ctl(e, EPOLL_CTL_ADD, f[i], &w));
	}
	for (int round = 0; round < 5; round++) {
		CHECK_EQ(epoll_wait(e, ev, 10, 0), 10);
		for (int i = 0; i < 10; i++)
			seen[ev[i].data.u32]++;
	}
	for (int i = 0; i < 50; i++)
		CHECK_EQ(seen[i], 1);
}
CASE(thousand_at_once)
{
	int e = ep_new(), base = OK(eventfd(1, 0));
	static struct epoll_event ev[1000];
	for (int i = 0; i < 1000; i++) {
		int fd = dup(base);
		if (fd < 0)
			SKIP("descriptor limit");
		OK(add(e, fd, EPOLLIN));
	}
	CHECK_EQ(epoll_wait(e, ev, 1000, 0), 1000);
}
CASE(nested_keeps_events)
{
	int e1 = ep_new(), e2 = ep_new(), l = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(un);
	OK(bind(l, (void *)&un, sizeof(sa_family_t)));
	OK(getsockname(l, (void *)&un, &len));
	OK(listen(l, 8));
	OK(add(e1, l, EPOLLIN));
	OK(add(e2, e1, EPOLLIN));
	CHECK_EQ(one(e2), 0);
	for (int i = 0; i < 3; i++) {
		int c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
		OK(connect(c, (void *)&un, len));
		CHECK_EQ(one(e2), EPOLLIN);
		CHECK_EQ(one(e1), EPOLLIN);
		close(OK(accept(l, NULL, NULL)));
		CHECK_EQ(one(e2), 0);
		close(c);
	}
}
CASE(epoll_is_pollable)
{
	int e = ep_new(), f = OK(eventfd(0, 0));
	struct pollfd p = { e, POLLIN, 0 };
	OK(add(e, f, EPOLLIN));
	CHECK_EQ(poll(&p, 1, 0), 0);
	put(f);
	CHECK_EQ(poll(&p, 1, 0), 1);
	take(f);
	CHECK_EQ(poll(&p, 1, 0), 0);
}
CASE(loops_refused)
{
	int e[8];
	for (int i = 0; i < 8; i++)
		e[i] = ep_new();
	OK(add(e[0], e[1], EPOLLIN));
	CHECK_ERR(add(e[1], e[0], EPOLLIN), ELOOP);
	OK(add(e[1], e[2], EPOLLIN));
	CHECK_ERR(add(e[2], e[0], EPOLLIN), ELOOP);
	OK(add(e[2], e[3], EPOLLIN));
	OK(add(e[3], e[4], EPOLLIN));
	CHECK_ERR(add(e[4], e[5], EPOLLIN), ELOOP);
	CHECK_ERR(add(e[5], e[0], EPOLLIN), ELOOP);
	/* Where the chain is short there is room. */
	OK(add(e[5], e[6], EPOLLIN));
}
CASE(exclusive_rules)
{
	int e = ep_new(), e2 = ep_new(), f = OK(eventfd(1, 0));
	CHECK_ERR(add(e, e2, EPOLLIN | EPOLLEXCLUSIVE), EINVAL);
	CHECK_ERR(add(e, f, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT), EINVAL);
	OK(add(e, f, EPOLLIN | EPOLLEXCLUSIVE));
	CHECK_EQ(one(e), EPOLLIN);
	CHECK_ERR(ctl(e, EPOLL_CTL_MOD, f, EPOLLIN), EINVAL);
	OK(epoll_ctl(e, EPOLL_CTL_DEL, f, NULL));
	OK(add(e, f, EPOLLIN));
	CHECK_ERR(ctl(e, EPOLL_CTL_MOD, f, EPOLLIN | EPOLLEXCLUSIVE), EINVAL);
}
static void *putter(void *arg)
{
	put(*(int *)arg);
	return NULL;
}
CASE(wait_wakes)
{
	int e = ep_new(), f = OK(eventfd(0, 0));
	struct epoll_event ev;
	pthread_t t;
	OK(add(e, f, EPOLLIN));
	CHECK_EQ(pthread_create(&t, NULL, putter, &f), 0);
	CHECK_EQ(epoll_wait(e, &ev, 1, -1), 1);
	pthread_join(t, NULL);
}
static void *late_adder(void *arg)
{
	int *a = arg;
	OK(add(a[0], a[1], EPOLLIN));
	return NULL;
}
CASE(add_while_waiting)
{
	int a[2] = { ep_new(), OK(eventfd(1, 0)) };
	struct epoll_event ev;
	pthread_t t;
	CHECK_EQ(pthread_create(&t, NULL, late_adder, a), 0);
	CHECK_EQ(epoll_wait(a[0], &ev, 1, 10000), 1);
	pthread_join(t, NULL);
}
CASE(timeout_passes)
{
	int e = ep_new();
	struct epoll_event ev;
	CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
	CHECK_EQ(epoll_wait(e, &ev, 1, 20), 0);
}
static volatile sig_atomic_t alarms;
static void on_alarm(int sig)
{
	alarms++;
}
CASE(interrupted)
{
	int e = ep_new();
	struct epoll_event ev;
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	sigaction(SIGALRM, &sa, NULL);
	ualarm(20000, 0);
	/* Never restarted, whatever SA_RESTART says. */
	CHECK_ERR(epoll_wait(e, &ev, 1, -1), EINTR);
	CHECK_EQ(alarms, 1);
}
CASE(pwait_mask)
{
	int e = ep_new();
	struct epoll_event ev;
	struct sigaction sa = { .sa_handler = on_alarm };
	sigset_t block, none, now;
	sigaction(SIGUSR1, &sa, NULL);
	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	sigprocmask(SIG_BLOCK, &block, NULL);
	raise(SIGUSR1);
	CHECK_EQ(alarms, 0);
	CHECK_ERR(epoll_pwait(e, &ev, 1, -1, &none), EINTR);
	CHECK_EQ(alarms, 1);
	sigprocmask(SIG_SETMASK, NULL, &now);
	CHECK(sigismember(&now, SIGUSR1));
	CHECK_ERR(syscall(SYS_epoll_pwait, e, &ev, 1, 0, &none, 4), EINVAL);
}
#define WORKERS 4
#define TOKENS 4000
static struct {
	int ep, fd;
	int taken[WORKERS];
} pool;
static void *worker(void *arg)
{
	int me = (int)(intptr_t)arg;
	for (;;) {
		struct epoll_event ev;
		uint64_t v;
		if (epoll_wait(pool.ep, &ev, 1, -1) != 1)
			return (void *)1;
		if (ev.data.fd != pool.fd)
			return NULL;
		if (read(pool.fd, &v, 8) == 8)
			__atomic_add_fetch(&pool.taken[me], 1, __ATOMIC_SEQ_CST);
	}
}
CASE(workers_lose_nothing)
{
	pthread_t t[WORKERS];
	int quit = OK(eventfd(0, 0)), sum = 0;
	pool.ep = ep_new();
	pool.fd = OK(eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK));
	OK(add(pool.ep, pool.fd, EPOLLIN));
	for (int i = 0; i < WORKERS; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, worker, (void *)(intptr_t)i), 0);
	for (int i = 0; i < TOKENS; i++)
		put(pool.fd);
	struct pollfd p = { pool.fd, POLLIN, 0 };
	while (poll(&p, 1, 0) == 1)
		sched_yield();
	OK(add(pool.ep, quit, EPOLLIN));
	put(quit);
	for (int i = 0; i < WORKERS; i++) {
		void *r;
		pthread_join(t[i], &r);
		CHECK(!r);
		sum += pool.taken[i];
	}
	CHECK_EQ(sum, TOKENS);
}
static void *closer(void *arg)
{
	for (int i = 0; i < 2000; i++) {
		int f = eventfd(1, 0);
		if (f < 0 || add(*(int *)arg, f, EPOLLIN) < 0)
			return (void *)1;
		close(f);
	}
	return NULL;
}
CASE(close_races_with_wait)
{
	int e = ep_new();
	pthread_t t[2];
	struct epoll_event ev[8];
	void *r;
	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, closer, &e), 0);
	for (int i = 0; i < 4000; i++)
		CHECK(epoll_wait(e, ev, 8, 0) >= 0);
	for (int i = 0; i < 2; i++) {
		pthread_join(t[i], &r);
		CHECK(!r);
	}
	CHECK_EQ(epoll_wait(e, ev, 8, 0), 0);
}
CASE(shared_after_fork)
{
	int e = ep_new(), f = OK(eventfd(0, 0));
	struct epoll_event ev;
	OK(add(e, f, EPOLLIN));
	pid_t pid = fork();
	if (pid == 0) {
		put(f);
		_exit(0);
	}
	CHECK_EQ(epoll_wait(e, &ev, 1, 10000), 1);
	conf_join(pid);
}
CONF_MAIN
