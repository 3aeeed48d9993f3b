/* signalfd. */
#include "conf.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

static int open_for(int a, int b, int flags)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, a);
	if (b)
		sigaddset(&s, b);
	OK(sigprocmask(SIG_BLOCK, &s, NULL));
	return OK(signalfd(-1, &s, flags));
}

CASE(reads_signals)
{
	int f = open_for(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
	struct signalfd_siginfo si[4];
	CHECK_ERR(read(f, si, sizeof(si)), EAGAIN);
	kill(getpid(), SIGUSR1);
	kill(getpid(), SIGUSR2);
	CHECK_EQ(read(f, si, sizeof(si)), 2 * (int)sizeof(si[0]));
	CHECK_EQ(si[0].ssi_signo + si[1].ssi_signo, SIGUSR1 + SIGUSR2);
	CHECK_EQ(si[0].ssi_pid, getpid());
	CHECK_EQ(si[0].ssi_uid, getuid());
	CHECK_EQ(si[0].ssi_code, SI_USER);
	CHECK_ERR(read(f, si, sizeof(si)), EAGAIN);
}
CASE(queued_value)
{
	int f = open_for(SIGRTMIN, 0, 0);
	struct signalfd_siginfo si;
	union sigval v = { .sival_int = 4711 };
	OK(sigqueue(getpid(), SIGRTMIN, v));
	CHECK_EQ(read(f, &si, sizeof(si)), sizeof(si));
	CHECK_EQ(si.ssi_int, 4711);
	CHECK_EQ(si.ssi_code, SI_QUEUE);
}
CASE(child_status)
{
	int f = open_for(SIGCHLD, 0, 0);
	struct signalfd_siginfo si;
	pid_t pid = fork();
	if (pid == 0)
		_exit(5);
	CHECK_EQ(read(f, &si, sizeof(si)), sizeof(si));
	CHECK_EQ(si.ssi_signo, SIGCHLD);
	CHECK_EQ(si.ssi_pid, pid);
	CHECK_EQ(si.ssi_status, 5);
	CHECK_EQ(si.ssi_code, CLD_EXITED);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}
CASE(mask_changes)
{
	int f = open_for(SIGUSR1, SIGUSR2, SFD_NONBLOCK);
	struct signalfd_siginfo si;
	sigset_t s;
	kill(getpid(), SIGUSR2);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	CHECK_EQ(signalfd(f, &s, 0), f);
	CHECK_ERR(read(f, &si, sizeof(si)), EAGAIN);
	sigaddset(&s, SIGUSR2);
	CHECK_EQ(signalfd(f, &s, 0), f);
	CHECK_EQ(read(f, &si, sizeof(si)), sizeof(si));
}
CASE(polls)
{
	int f = open_for(SIGUSR1, 0, SFD_CLOEXEC), e = OK(epoll_create1(0));
	struct pollfd p = { f, POLLIN, 0 };
	struct epoll_event ev = { .events = EPOLLIN };
	CHECK_EQ(fcntl(f, F_GETFD), FD_CLOEXEC);
	OK(epoll_ctl(e, EPOLL_CTL_ADD, f, &ev));
	CHECK_EQ(poll(&p, 1, 0), 0);
	CHECK_EQ(epoll_wait(e, &ev, 1, 0), 0);
	kill(getpid(), SIGUSR1);
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(epoll_wait(e, &ev, 1, 0), 1);
}
static void signal_parent(void *arg)
{
	kill(getppid(), SIGUSR1);
}
CASE(epoll_wakes)
{
	int f = open_for(SIGUSR1, 0, 0), e = OK(epoll_create1(0));
	struct epoll_event ev = { .events = EPOLLIN };
	OK(epoll_ctl(e, EPOLL_CTL_ADD, f, &ev));
	pid_t pid = conf_fork(signal_parent, NULL);
	CHECK_EQ(epoll_wait(e, &ev, 1, 10000), 1);
	conf_join(pid);
}
CASE(blocking_read_wakes)
{
	int f = open_for(SIGUSR1, 0, 0);
	struct signalfd_siginfo si;
	pid_t pid = conf_fork(signal_parent, NULL);
	CHECK_EQ(read(f, &si, sizeof(si)), sizeof(si));
	CHECK_EQ(si.ssi_pid, pid);
	conf_join(pid);
}
static void inherit(void *arg)
{
	struct signalfd_siginfo si;
	raise(SIGUSR1);
	CHECK_EQ(read(*(int *)arg, &si, sizeof(si)), sizeof(si));
	CHECK_EQ(si.ssi_pid, getpid());
}
CASE(reads_the_readers_signals)
{
	int f = open_for(SIGUSR1, 0, SFD_NONBLOCK);
	struct signalfd_siginfo si;
	conf_join(conf_fork(inherit, &f));
	CHECK_ERR(read(f, &si, sizeof(si)), EAGAIN);
}
static void watch_in_child(void *arg)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int *a = arg;
	OK(epoll_ctl(a[0], EPOLL_CTL_ADD, a[1], &ev));
}
CASE(watcher_exits)
{
	int a[2] = { OK(epoll_create1(0)), open_for(SIGUSR1, 0, SFD_NONBLOCK) };
	struct epoll_event ev;
	conf_join(conf_fork(watch_in_child, a));
	CHECK(epoll_wait(a[0], &ev, 1, 0) >= 0);
	OK(epoll_ctl(a[0], EPOLL_CTL_DEL, a[1], NULL));
}
CASE(errors)
{
	int f = open_for(SIGUSR1, 0, 0), p[2];
	sigset_t s;
	char b[64];
	sigemptyset(&s);
	CHECK_ERR(read(f, b, 64), EINVAL);
	CHECK_ERR(write(f, b, 64), EINVAL);
	CHECK_ERR(signalfd(-1, &s, 1), EINVAL);
	CHECK_ERR(signalfd(0x7ffe, &s, 0), EBADF);
	OK(pipe(p));
	CHECK_ERR(signalfd(p[0], &s, 0), EINVAL);
	CHECK_ERR(syscall(SYS_signalfd4, -1, &s, 4, 0), EINVAL);
	CHECK_ERR(syscall(SYS_signalfd4, -1, 8, 8, 0), EFAULT);
}
CONF_MAIN
