/*
 * Random socket, epoll and descriptor operations from several threads and
 * processes. There is nothing to compare with: the sentry must survive, and
 * nothing may hang. Usage: sockets [seed [rounds [processes [threads]]]].
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define POOL 48

static int pool[POOL];
static unsigned rounds = 20000;

static uint32_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return (uint32_t)(*s >> 16);
}

static int any(uint64_t *s)
{
	return __atomic_load_n(&pool[rnd(s) % POOL], __ATOMIC_RELAXED);
}

/* Puts fd in a random place and closes what was there. */
static void keep(uint64_t *s, int fd)
{
	int old;

	if (fd < 0)
		return;
	old = __atomic_exchange_n(&pool[rnd(s) % POOL], fd, __ATOMIC_RELAXED);
	if (old > 2)
		close(old);
}

static socklen_t name(uint64_t *s, struct sockaddr_storage *ss)
{
	struct sockaddr_un *un = (void *)ss;
	struct sockaddr_in *in = (void *)ss;
	struct sockaddr_in6 *in6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	switch (rnd(s) % 5) {
	case 0:
		un->sun_family = AF_UNIX;
		snprintf(un->sun_path, sizeof(un->sun_path), "/tmp/fuzz-%u", rnd(s) % 4);
		if (rnd(s) % 4 == 0)
			unlink(un->sun_path);
		return sizeof(*un);
	case 1:
		un->sun_family = AF_UNIX;
		un->sun_path[1] = (char)('a' + rnd(s) % 4);
		return sizeof(sa_family_t) + 2;
	case 2:
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)(2000 + rnd(s) % 4));
		in->sin_addr.s_addr = htonl(rnd(s) % 3 ? INADDR_LOOPBACK : INADDR_ANY);
		return sizeof(*in);
	case 3:
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)(2000 + rnd(s) % 4));
		in6->sin6_addr = rnd(s) % 3 ? in6addr_loopback : in6addr_any;
		return sizeof(*in6);
	default:
		for (size_t i = 0; i < sizeof(*ss); i++)
			((uint8_t *)ss)[i] = (uint8_t)rnd(s);
		ss->ss_family = (sa_family_t)(rnd(s) % 20);
		return rnd(s) % (sizeof(*ss) + 8);
	}
}

static void make(uint64_t *s)
{
	static const int families[] = { AF_UNIX, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK };
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW };
	int type = types[rnd(s) % 4] | SOCK_NONBLOCK, p[2];
	sigset_t set;

	switch (rnd(s) % 9) {
	case 0:
	case 1: keep(s, socket(families[rnd(s) % 5], type, 0)); break;
	case 2:
	case 3:
		if (socketpair(AF_UNIX, type, 0, p) == 0) {
			keep(s, p[0]);
			keep(s, p[1]);
		}
		break;
	case 4: keep(s, epoll_create1(0)); break;
	case 5:
		keep(s, eventfd(rnd(s) % 3, EFD_NONBLOCK | (rnd(s) % 2 ? EFD_SEMAPHORE : 0)));
		break;
	case 6: keep(s, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)); break;
	case 7:
		if (pipe2(p, O_NONBLOCK) == 0) {
			keep(s, p[0]);
			keep(s, p[1]);
		}
		break;
	default:
		sigemptyset(&set);
		sigaddset(&set, SIGUSR1);
		keep(s, rnd(s) % 2 ? signalfd(-1, &set, SFD_NONBLOCK) : inotify_init1(IN_NONBLOCK));
		break;
	}
}

static void message(uint64_t *s, int fd)
{
	static char data[70000];
	union {
		char b[1024];
		struct cmsghdr h;
	} c;
	struct iovec iov[3];
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = rnd(s) % 4 };
	struct sockaddr_storage ss;
	int flags = MSG_DONTWAIT | MSG_NOSIGNAL;

	memset(&c, 0, sizeof(c));
	for (int i = 0; i < 3; i++)
		iov[i] = (struct iovec){ data, rnd(s) % 8 ? rnd(s) % 300 : rnd(s) % sizeof(data) };
	if (rnd(s) % 20 == 0)
		iov[0].iov_base = (void *)(uintptr_t)(rnd(s) % 3 * 4096);
	if (rnd(s) % 3 == 0) {
		m.msg_name = &ss;
		m.msg_namelen = name(s, &ss);
	}
	if (rnd(s) % 2) {
		int n = (int)(rnd(s) % 6);

		m.msg_control = c.b;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		c.h = (struct cmsghdr){ CMSG_LEN((size_t)n * sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
		if (rnd(s) % 8 == 0)
			c.h.cmsg_len = rnd(s);
		for (int i = 0; i < n; i++)
			((int *)CMSG_DATA(&c.h))[i] = any(s);
	}
	if (rnd(s) % 2) {
		sendmsg(fd, &m, flags | (int)(rnd(s) & (MSG_OOB | MSG_EOR | MSG_MORE)));
		return;
	}
	m.msg_controllen = m.msg_control ? rnd(s) % sizeof(c) : 0;
	flags |= (int)(rnd(s) & (MSG_PEEK | MSG_TRUNC | MSG_WAITALL | MSG_CMSG_CLOEXEC));
	if (recvmsg(fd, &m, flags) < 0 || !m.msg_control)
		return;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
			keep(s, ((int *)CMSG_DATA(h))[i]);
	}
}

static void options(uint64_t *s, int fd)
{
	static const int levels[] = { SOL_SOCKET, SOL_SOCKET,	IPPROTO_TCP,
				      IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP };
	int v[4] = { (int)rnd(s) % 3, 1, 0, 0 };
	socklen_t len = rnd(s) % 17;
	int level = levels[rnd(s) % 6], opt = (int)(rnd(s) % 80);

	/* Receive timeouts would let a later blocking call wait: none is made here. */
	if (rnd(s) % 2)
		setsockopt(fd, level, opt, v, len);
	else
		getsockopt(fd, level, opt, v, &len);
}

static void watch(uint64_t *s, int fd)
{
	struct epoll_event ev[8] = { { .events =
					       rnd(s) & (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET |
							 EPOLLONESHOT | EPOLLEXCLUSIVE) } };
	struct pollfd p[6];
	struct itimerspec t = { { 0, rnd(s) % 2000 }, { 0, rnd(s) % 100000 } };

	switch (rnd(s) % 5) {
	case 0:
	case 1: epoll_ctl(fd, 1 + (int)(rnd(s) % 3), any(s), ev); break;
	case 2: epoll_wait(fd, ev, 8, (int)(rnd(s) % 2)); break;
	case 3:
		for (int i = 0; i < 6; i++)
			p[i] = (struct pollfd){ any(s), (short)(rnd(s) & 0x3f), 0 };
		poll(p, 6, (int)(rnd(s) % 2));
		break;
	default: timerfd_settime(fd, 0, &t, NULL); break;
	}
}

static void step(uint64_t *s)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	char b[300];
	int fd = any(s), v;
	ssize_t n = 0;

	switch (rnd(s) % 18) {
	case 0:
	case 1: make(s); break;
	case 2:
		len = name(s, &ss);
		bind(fd, (void *)&ss, len);
		break;
	case 3: listen(fd, (int)(rnd(s) % 6)); break;
	case 4:
	case 5:
		len = name(s, &ss);
		connect(fd, (void *)&ss, len);
		break;
	case 6: keep(s, accept4(fd, (void *)&ss, &len, SOCK_NONBLOCK)); break;
	case 7:
	case 8:
	case 9: message(s, fd); break;
	case 10: n = write(fd, b, rnd(s) % sizeof(b)); break;
	case 11: n = read(fd, b, rnd(s) % sizeof(b)); break;
	case 12: shutdown(fd, (int)(rnd(s) % 3)); break;
	case 13: options(s, fd); break;
	case 14:
		rnd(s) % 2 ? getsockname(fd, (void *)&ss, &len)
			   : getpeername(fd, (void *)&ss, &len);
		break;
	case 15: ioctl(fd, rnd(s) % 2 ? FIONREAD : TIOCOUTQ, &v); break;
	case 16:
		if (rnd(s) % 2)
			keep(s, dup(fd));
		else
			keep(s, eventfd(0, EFD_NONBLOCK)); /* closes something */
		break;
	default: watch(s, fd); break;
	}
	(void)n;
}

static void *worker(void *arg)
{
	uint64_t s = (uint64_t)(uintptr_t)arg * 0x9e3779b97f4a7c15ULL | 1;

	for (unsigned i = 0; i < rounds; i++)
		step(&s);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
	unsigned processes = argc > 3 ? (unsigned)atoi(argv[3]) : 2,
		 threads = argc > 4 ? (unsigned)atoi(argv[4]) : 3;
	pthread_t t[16];
	int bad = 0, status;

	if (argc > 2)
		rounds = (unsigned)atoi(argv[2]);
	signal(SIGPIPE, SIG_IGN);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < POOL; i++)
		pool[i] = -1;
	for (unsigned p = 0; p < processes; p++) {
		if (fork() != 0)
			continue;
		if (threads > 16)
			threads = 16;
		for (unsigned i = 0; i < threads; i++)
			pthread_create(&t[i], NULL, worker,
				       (void *)(uintptr_t)(seed * 64 + p * 16 + i + 1));
		for (unsigned i = 0; i < threads; i++)
			pthread_join(t[i], NULL);
		_exit(0);
	}
	while (wait(&status) > 0)
		bad |= status;
	printf("%s\n", bad ? "not ok" : "ok");
	return bad ? 1 : 0;
}
