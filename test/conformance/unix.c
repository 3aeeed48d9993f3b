/* Unix sockets: names, streams, records, datagrams, control data, options. */
#include "conf.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static void pair(int type, int fd[2])
{
	OK(socketpair(AF_UNIX, type, 0, fd));
}
static socklen_t path_addr(struct sockaddr_un *un, const char *path)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	CHECK(strlen(path) < sizeof(un->sun_path));
	strcpy(un->sun_path, path);
	return sizeof(*un);
}
static socklen_t abstract_addr(struct sockaddr_un *un, const char *tag)
{
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	int n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "conf-%d-%s", (int)getpid(),
			 tag);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}
static int listener(int type, struct sockaddr_un *un, socklen_t *len, const char *tag, int backlog)
{
	int fd = OK(socket(AF_UNIX, type, 0));
	*len = abstract_addr(un, tag);
	OK(bind(fd, (void *)un, *len));
	OK(listen(fd, backlog));
	return fd;
}
static ssize_t send_fds(int s, const void *buf, size_t len, const int *fds, int count)
{
	union {
		char b[CMSG_SPACE(300 * sizeof(int))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { (void *)buf, len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = c.b,
			    .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int)) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(h), fds, (size_t)count * sizeof(int));
	return sendmsg(s, &m, 0);
}
/* Returns bytes; *count: room in, descriptors out. */
static ssize_t recv_fds(int s, void *buf, size_t len, int *fds, int *count, int flags,
			int *out_flags)
{
	union {
		char b[CMSG_SPACE(300 * sizeof(int))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { buf, len };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = c.b,
			    .msg_controllen =
				    *count ? CMSG_SPACE((size_t)*count * sizeof(int)) : 0 };
	ssize_t n = recvmsg(s, &m, flags);
	*count = 0;
	if (n < 0)
		return n;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h))
		if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
			*count = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(h), (size_t)*count * sizeof(int));
		}
	if (out_flags)
		*out_flags = m.msg_flags;
	return n;
}

CASE(socket_arguments)
{
	CHECK_ERR(socket(AF_UNIX, SOCK_STREAM, 99), EPROTONOSUPPORT);
	CHECK_ERR(socket(AF_UNIX, SOCK_RDM, 0), ESOCKTNOSUPPORT);
	CHECK_ERR(socket(12345, SOCK_STREAM, 0), EAFNOSUPPORT);
	CHECK_ERR(socket(AF_UNIX, SOCK_STREAM | 0x10000, 0), EINVAL);
	CHECK_ERR(socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)8), EFAULT);
	CHECK_ERR(bind(0x7fff, NULL, 0), EBADF);
	int p[2];
	OK(pipe(p));
	CHECK_ERR(listen(p[0], 1), ENOTSOCK);
	int fd = OK(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
}
CASE(pair_both_ways)
{
	int s[2];
	char b[8];
	pair(SOCK_STREAM, s);
	CHECK_EQ(write(s[0], "abc", 3), 3);
	CHECK_EQ(send(s[1], "xy", 2, 0), 2);
	CHECK_EQ(read(s[1], b, 8), 3);
	CHECK_MEM(b, "abc", 3);
	CHECK_EQ(recv(s[0], b, 8, 0), 2);
	CHECK_MEM(b, "xy", 2);
	CHECK_ERR(recv(s[0], b, 8, MSG_DONTWAIT), EAGAIN);
}
CASE(stream_end_of_file)
{
	int s[2];
	char b[8];
	pair(SOCK_STREAM, s);
	OK(write(s[0], "abc", 3));
	close(s[0]);
	CHECK_EQ(read(s[1], b, 8), 3);
	CHECK_EQ(read(s[1], b, 8), 0);
	CHECK_ERR(send(s[1], "x", 1, MSG_NOSIGNAL), EPIPE);
}
static void write_to_closed(void *arg)
{
	int fd = *(int *)arg;
	ssize_t n = write(fd, "x", 1);
	(void)n;
}
CASE(sigpipe)
{
	int s[2];
	pair(SOCK_STREAM, s);
	close(s[1]);
	CHECK_EQ(conf_signal_of(write_to_closed, &s[0]), SIGPIPE);
}
CASE(close_with_unread_data_resets)
{
	int s[2], err;
	char b[8];
	socklen_t len = sizeof(err);
	pair(SOCK_STREAM, s);
	OK(write(s[0], "abc", 3));
	close(s[1]);
	CHECK_ERR(read(s[0], b, 8), ECONNRESET);
	CHECK_EQ(read(s[0], b, 8), 0);
	OK(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &err, &len));
	CHECK_EQ(err, 0);
}
CASE(listener_closed_with_unaccepted)
{
	struct sockaddr_un un;
	socklen_t len, olen = sizeof(int);
	char b[4];
	int err, l = listener(SOCK_STREAM, &un, &len, "un", 5);
	int c = OK(socket(AF_UNIX, SOCK_STREAM, 0)), d = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	OK(connect(c, (void *)&un, len));
	OK(connect(d, (void *)&un, len));
	close(l);
	struct pollfd p = { c, POLLIN, 0 };
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK((p.revents & (POLLHUP | POLLERR)) == (POLLHUP | POLLERR));
	CHECK_ERR(read(c, b, 4), ECONNRESET);
	OK(getsockopt(d, SOL_SOCKET, SO_ERROR, &err, &olen));
	CHECK_EQ(err, ECONNRESET);
	CHECK_ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), ECONNREFUSED);
}
CASE(waitall_and_closed_peer)
{
	int s[2];
	char b[32];
	pair(SOCK_STREAM, s);
	close(s[0]);
	CHECK_EQ(recv(s[1], b, 32, MSG_WAITALL), 0);
}
static void *slow_writer(void *arg)
{
	int fd = *(int *)arg;
	for (int i = 0; i < 16; i++)
		if (write(fd, "abcd", 4) != 4)
			return (void *)1;
	return NULL;
}
CASE(waitall_gathers)
{
	int s[2];
	char b[64];
	void *r;
	pthread_t t;
	pair(SOCK_STREAM, s);
	CHECK_EQ(pthread_create(&t, NULL, slow_writer, &s[0]), 0);
	CHECK_EQ(recv(s[1], b, 64, MSG_WAITALL), 64);
	pthread_join(t, &r);
	CHECK(!r);
	OK(write(s[0], "abc", 3));
	close(s[0]);
	CHECK_EQ(recv(s[1], b, 64, MSG_WAITALL), 3);
}
CASE(waitall_peek)
{
	int s[2];
	char b[16];
	pair(SOCK_STREAM, s);
	OK(write(s[0], "0123456789", 10));
	CHECK_EQ(recv(s[1], b, 10, MSG_WAITALL | MSG_PEEK), 10);
	CHECK_EQ(recv(s[1], b, 10, MSG_WAITALL), 10);
	CHECK_MEM(b, "0123456789", 10);
}
CASE(peek_stream)
{
	int s[2];
	char b[8] = "";
	pair(SOCK_STREAM, s);
	OK(write(s[0], "hello", 5));
	CHECK_EQ(recv(s[1], b, 8, MSG_PEEK), 5);
	CHECK_EQ(recv(s[1], b, 3, MSG_PEEK), 3);
	CHECK_EQ(recv(s[1], b, 8, 0), 5);
	CHECK_MEM(b, "hello", 5);
}
CASE(peek_gives_fds_each_time)
{
	int s[2], p[2], got[8], count = 8;
	char b[8];
	pair(SOCK_STREAM, s);
	OK(pipe(p));
	CHECK_EQ(send_fds(s[0], "hello", 5, &p[1], 1), 5);
	CHECK_EQ(recv_fds(s[1], b, 8, got, &count, MSG_PEEK, NULL), 5);
	CHECK_EQ(count, 1);
	int first = got[0];
	count = 8;
	CHECK_EQ(recv_fds(s[1], b, 8, got, &count, MSG_PEEK, NULL), 5);
	CHECK_EQ(count, 1);
	CHECK(got[0] != first);
	CHECK_EQ(write(first, "1", 1), 1);
	CHECK_EQ(write(got[0], "2", 1), 1);
	CHECK_EQ(recv(s[1], b, 8, 0), 5);
	CHECK_EQ(read(p[0], b, 8), 2);
}
CASE(fds_arrive)
{
	int s[2], p[2], got[8], count = 8, flags;
	char b[4];
	pair(SOCK_STREAM, s);
	OK(pipe(p));
	CHECK_EQ(send_fds(s[0], "x", 1, p, 2), 1);
	CHECK_EQ(recv_fds(s[1], b, 4, got, &count, MSG_CMSG_CLOEXEC, &flags), 1);
	CHECK_EQ(count, 2);
	CHECK(!(flags & MSG_CTRUNC));
	CHECK_EQ(fcntl(got[0], F_GETFD), FD_CLOEXEC);
	OK(write(got[1], "z", 1));
	CHECK_EQ(read(p[0], b, 4), 1);
}
CASE(fds_of_a_closed_sender_live)
{
	int s[2], p[2], got[8], count = 8;
	char b[4];
	pair(SOCK_STREAM, s);
	OK(pipe(p));
	CHECK_EQ(send_fds(s[0], "x", 1, &p[1], 1), 1);
	close(p[1]);
	close(s[0]);
	CHECK_EQ(recv_fds(s[1], b, 4, got, &count, 0, NULL), 1);
	CHECK_EQ(count, 1);
	OK(write(got[0], "q", 1));
	CHECK_EQ(read(p[0], b, 4), 1);
	close(got[0]);
	CHECK_EQ(read(p[0], b, 4), 0);
}
CASE(fds_truncated)
{
	int s[2], p[2], got[8], count = 1, flags;
	char b[4];
	pair(SOCK_STREAM, s);
	OK(pipe(p));
	int three[3] = { p[0], p[1], p[0] };
	CHECK_EQ(send_fds(s[0], "x", 1, three, 3), 1);
	/* CMSG_SPACE(4) has room for two. */
	CHECK_EQ(recv_fds(s[1], b, 4, got, &count, 0, &flags), 1);
	CHECK(count >= 1 && count <= 2);
	CHECK(flags & MSG_CTRUNC);
	CHECK_EQ(send_fds(s[0], "x", 1, three, 3), 1);
	count = 0;
	CHECK_EQ(recv_fds(s[1], b, 4, got, &count, 0, &flags), 1);
	CHECK(flags & MSG_CTRUNC);
}
CASE(fds_dropped_by_plain_recv)
{
	int s[2], p[2];
	char b[4];
	pair(SOCK_STREAM, s);
	OK(pipe(p));
	CHECK_EQ(send_fds(s[0], "x", 1, &p[1], 1), 1);
	close(p[1]);
	CHECK_EQ(recv(s[1], b, 4, 0), 1);
	CHECK_EQ(read(p[0], b, 4), 0);
}
CASE(fds_bad_and_too_many)
{
	int s[2], many[254], bad = 0x7ffe;
	pair(SOCK_STREAM, s);
	CHECK_ERR(send_fds(s[0], "x", 1, &bad, 1), EBADF);
	for (int i = 0; i < 254; i++)
		many[i] = s[0];
	CHECK_ERR(send_fds(s[0], "x", 1, many, 254), EINVAL);
	CHECK_EQ(send_fds(s[0], "x", 1, many, 253), 1);
}
CASE(fds_end_a_read)
{
	int s[2], p[2], got[8], count = 8;
	char b[16];
	pair(SOCK_STREAM, s);
	OK(pipe(p));
	OK(write(s[0], "aa", 2));
	CHECK_EQ(send_fds(s[0], "bb", 2, &p[0], 1), 2);
	OK(write(s[0], "cc", 2));
	/* Data before may be joined with the carrier; nothing after it. */
	CHECK_EQ(recv_fds(s[1], b, 16, got, &count, 0, NULL), 4);
	CHECK_EQ(count, 1);
	CHECK_EQ(read(s[1], b, 16), 2);
	CHECK_MEM(b, "cc", 2);
}
CASE(fds_cycle_is_collected)
{
	/* Each round leaves a pair that only its own queues hold. */
	struct rlimit rl;
	OK(getrlimit(RLIMIT_NOFILE, &rl));
	for (int i = 0; i < 3000; i++) {
		int s[2];
		pair(SOCK_STREAM, s);
		CHECK_EQ(send_fds(s[0], "x", 1, &s[1], 1), 1);
		CHECK_EQ(send_fds(s[1], "x", 1, &s[0], 1), 1);
		close(s[0]);
		close(s[1]);
	}
}
CASE(fds_nested_deeply)
{
	/* A chain of sockets in sockets: dropping it must not need a deep stack. */
	int s[2], prev = OK(dup(0));
	for (int i = 0; i < 2000; i++) {
		pair(SOCK_DGRAM, s);
		if (send_fds(s[0], "x", 1, &prev, 1) < 0) {
			CHECK_EQ(errno, ETOOMANYREFS);
			close(s[0]);
			close(s[1]);
			break;
		}
		close(s[0]);
		close(prev);
		prev = s[1];
	}
	close(prev);
}
CASE(creds_passed)
{
	int s[2], on = 1;
	char b[4];
	union {
		char b[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} c;
	struct ucred u;
	struct iovec iov = { b, 4 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.b, .msg_controllen = sizeof(c.b)
	};
	pair(SOCK_STREAM, s);
	OK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)));
	OK(write(s[0], "x", 1));
	CHECK_EQ(recvmsg(s[1], &m, 0), 1);
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	CHECK(h && h->cmsg_type == SCM_CREDENTIALS);
	memcpy(&u, CMSG_DATA(h), sizeof(u));
	CHECK_EQ(u.pid, getpid());
	CHECK_EQ(u.uid, getuid());
	CHECK_EQ(u.gid, getgid());
}
static int send_cred(int s, pid_t pid, uid_t uid)
{
	union {
		char b[CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} c = { 0 };
	struct ucred u = { pid, uid, getgid() };
	struct iovec iov = { "x", 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.b, .msg_controllen = sizeof(c.b)
	};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_CREDENTIALS;
	h->cmsg_len = CMSG_LEN(sizeof(u));
	memcpy(CMSG_DATA(h), &u, sizeof(u));
	return (int)sendmsg(s, &m, 0);
}
static void forge(void *arg)
{
	int *s = arg;
	if (getuid() == 0) {
		OK(setresgid(65534, 65534, 65534));
		OK(setresuid(65534, 65534, 65534));
	}
	CHECK_EQ(send_cred(s[0], getpid(), getuid()), 1);
	CHECK_ERR(send_cred(s[0], getppid(), getuid()), EPERM);
	CHECK_ERR(send_cred(s[0], getpid(), 0), EPERM);
}
CASE(creds_forged)
{
	int s[2];
	pair(SOCK_STREAM, s);
	conf_join(conf_fork(forge, s));
}
CASE(control_malformed)
{
	int s[2];
	struct cmsghdr h = { .cmsg_len = 3, .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	struct iovec iov = { "x", 1 };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &h, .msg_controllen = sizeof(h)
	};
	pair(SOCK_STREAM, s);
	CHECK_ERR(sendmsg(s[0], &m, 0), EINVAL);
	h.cmsg_len = 4096;
	CHECK_ERR(sendmsg(s[0], &m, 0), EINVAL);
	m.msg_control = (void *)8;
	CHECK_ERR(sendmsg(s[0], &m, 0), EFAULT);
	m.msg_control = NULL;
	m.msg_iovlen = 1025;
	CHECK_ERR(sendmsg(s[0], &m, 0), EMSGSIZE);
	CHECK_ERR(sendmsg(s[0], (void *)8, 0), EFAULT);
	CHECK_ERR(recvmsg(s[0], (void *)8, MSG_DONTWAIT), EFAULT);
}
CASE(seqpacket_records)
{
	int s[2], flags, count = 0;
	char b[8];
	pair(SOCK_SEQPACKET, s);
	OK(send(s[0], "first", 5, 0));
	OK(send(s[0], "2nd", 3, 0));
	CHECK_EQ(recv_fds(s[1], b, 2, NULL, &count, 0, &flags), 2);
	CHECK(flags & MSG_TRUNC);
	CHECK_EQ(recv(s[1], b, 2, MSG_PEEK | MSG_TRUNC), 3);
	CHECK_EQ(recv(s[1], b, 8, 0), 3);
	CHECK_MEM(b, "2nd", 3);
	close(s[0]);
	CHECK_EQ(recv(s[1], b, 8, 0), 0);
}
CASE(dgram_pair)
{
	int s[2];
	char b[8];
	pair(SOCK_DGRAM, s);
	CHECK_EQ(send(s[0], "", 0, 0), 0);
	OK(send(s[0], "abc", 3, 0));
	CHECK_EQ(recv(s[1], b, 8, 0), 0);
	CHECK_EQ(recv(s[1], b, 8, 0), 3);
	close(s[1]);
	CHECK_ERR(send(s[0], "abc", 3, MSG_NOSIGNAL), ECONNREFUSED);
}
CASE(dgram_names)
{
	struct sockaddr_un ua, ub, from;
	int a = OK(socket(AF_UNIX, SOCK_DGRAM, 0)), b = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
	socklen_t la = abstract_addr(&ua, "a"), lb = abstract_addr(&ub, "b"), lf = sizeof(from);
	char buf[8];
	OK(bind(a, (void *)&ua, la));
	OK(bind(b, (void *)&ub, lb));
	CHECK_EQ(sendto(a, "hi", 2, 0, (void *)&ub, lb), 2);
	CHECK_EQ(recvfrom(b, buf, 8, 0, (void *)&from, &lf), 2);
	CHECK_EQ(lf, la);
	CHECK_MEM(&from, &ua, la);
	CHECK_ERR(send(a, "x", 1, 0), ENOTCONN);
	OK(connect(a, (void *)&ub, lb));
	CHECK_EQ(send(a, "x", 1, 0), 1);
	/* b is now spoken to by a only if b itself is connected. */
	OK(connect(b, (void *)&ua, la));
	int c = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
	CHECK_ERR(sendto(c, "x", 1, 0, (void *)&ub, lb), EPERM);
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	OK(connect(b, &none, sizeof(none)));
	CHECK_EQ(sendto(c, "x", 1, 0, (void *)&ub, lb), 1);
}
CASE(dgram_queue_is_bounded)
{
	struct sockaddr_un ua;
	int a = OK(socket(AF_UNIX, SOCK_DGRAM, 0)),
	    b = OK(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)), n = 0;
	socklen_t la = abstract_addr(&ua, "q");
	char buf[64] = "";
	OK(bind(a, (void *)&ua, la));
	OK(connect(b, (void *)&ua, la));
	while (send(b, buf, 64, 0) == 64)
		CHECK(++n < 100000);
	CHECK_EQ(errno, EAGAIN);
	struct pollfd p = { b, POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 0);
	for (int i = 0; i < n; i++)
		CHECK_EQ(recv(a, buf, 64, 0), 64);
	CHECK_EQ(poll(&p, 1, 10000), 1);
	CHECK_EQ(send(b, buf, 64, 0), 64);
}
static void *drain_one(void *arg)
{
	char b[64];
	for (int i = 0; i < 2000; i++)
		if (recv(*(int *)arg, b, 64, 0) != 64)
			return (void *)1;
	return NULL;
}
CASE(dgram_blocking_sender)
{
	struct sockaddr_un ua;
	int a = OK(socket(AF_UNIX, SOCK_DGRAM, 0)), b = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
	socklen_t la = abstract_addr(&ua, "q");
	char buf[64] = "";
	pthread_t t;
	void *r;
	OK(bind(a, (void *)&ua, la));
	CHECK_EQ(pthread_create(&t, NULL, drain_one, &a), 0);
	for (int i = 0; i < 2000; i++)
		CHECK_EQ(sendto(b, buf, 64, 0, (void *)&ua, la), 64);
	pthread_join(t, &r);
	CHECK(!r);
}
CASE(message_too_big)
{
	int s[2], size = 4608;
	static char big[1 << 20];
	pair(SOCK_DGRAM, s);
	OK(setsockopt(s[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)));
	CHECK_ERR(send(s[0], big, sizeof(big), 0), EMSGSIZE);
}
CASE(path_names)
{
	struct sockaddr_un un, got;
	socklen_t len = path_addr(&un, conf_path("sock")), glen = sizeof(got);
	struct stat st;
	int l = OK(socket(AF_UNIX, SOCK_STREAM, 0)), c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	CHECK_ERR(connect(c, (void *)&un, len), ENOENT);
	OK(bind(l, (void *)&un, len));
	OK(stat(un.sun_path, &st));
	CHECK(S_ISSOCK(st.st_mode));
	CHECK_ERR(connect(c, (void *)&un, len), ECONNREFUSED);
	CHECK_ERR(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), EADDRINUSE);
	struct sockaddr_un other;
	CHECK_ERR(bind(l, (void *)&other, path_addr(&other, conf_path("other"))), EINVAL);
	OK(listen(l, 1));
	int d = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
	CHECK_ERR(connect(d, (void *)&un, len), EPROTOTYPE);
	OK(connect(c, (void *)&un, len));
	CHECK_ERR(connect(c, (void *)&un, len), EISCONN);
	OK(getpeername(c, (void *)&got, &glen));
	CHECK_STR(got.sun_path, un.sun_path);
	CHECK_EQ(glen, offsetof(struct sockaddr_un, sun_path) + strlen(un.sun_path) + 1);
	glen = sizeof(got);
	int a = OK(accept(l, (void *)&got, &glen));
	CHECK_EQ(glen, sizeof(sa_family_t));
	glen = sizeof(got);
	OK(getsockname(a, (void *)&got, &glen));
	CHECK_STR(got.sun_path, un.sun_path);
	CHECK_ERR(open(un.sun_path, O_RDWR), ENXIO);
	OK(unlink(un.sun_path));
	CHECK_ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), ENOENT);
}
CASE(path_not_a_socket)
{
	struct sockaddr_un un;
	socklen_t len = path_addr(&un, conf_path("plain"));
	close(OK(open(un.sun_path, O_CREAT | O_RDWR, 0600)));
	CHECK_ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), ECONNREFUSED);
	CHECK_ERR(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), EADDRINUSE);
	len = path_addr(&un, "/nonexistent/dir/sock");
	CHECK_ERR(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), ENOENT);
}
CASE(stale_path)
{
	struct sockaddr_un un;
	socklen_t len = path_addr(&un, conf_path("stale"));
	int l = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	OK(bind(l, (void *)&un, len));
	OK(listen(l, 1));
	close(l);
	CHECK_ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), ECONNREFUSED);
}
CASE(abstract_names)
{
	struct sockaddr_un un, got;
	socklen_t len, glen = sizeof(got);
	int l = listener(SOCK_STREAM, &un, &len, "abs", 1);
	OK(getsockname(l, (void *)&got, &glen));
	CHECK_EQ(glen, len);
	CHECK_MEM(&got, &un, len);
	CHECK_ERR(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), EADDRINUSE);
	/* Names end by length: one byte less is another name. */
	OK(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len - 1));
	CHECK_ERR(connect(OK(socket(AF_UNIX, SOCK_DGRAM, 0)), (void *)&un, len), ECONNREFUSED);
	close(l);
	CHECK_ERR(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len), ECONNREFUSED);
	OK(bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len));
}
CASE(autobind)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX }, got;
	socklen_t glen = sizeof(got);
	int s = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
	OK(bind(s, (void *)&un, sizeof(sa_family_t)));
	OK(getsockname(s, (void *)&got, &glen));
	CHECK_EQ(glen, sizeof(sa_family_t) + 6);
	CHECK_EQ(got.sun_path[0], 0);
}
CASE(bad_addresses)
{
	struct sockaddr_un un = { .sun_family = AF_INET };
	int s = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	CHECK_ERR(bind(s, (void *)&un, sizeof(un)), EINVAL);
	un.sun_family = AF_UNIX;
	CHECK_ERR(connect(s, (void *)&un, 2), EINVAL);
	CHECK_ERR(bind(s, (void *)&un, 1), EINVAL);
	CHECK_ERR(bind(s, (void *)8, sizeof(un)), EFAULT);
	CHECK_ERR(bind(s, (void *)&un, 4096), EINVAL);
	CHECK_ERR(listen(s, 1), EINVAL);
}
CASE(unconnected)
{
	int s = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	struct sockaddr_un un;
	socklen_t len = sizeof(un);
	char b[4];
	CHECK_ERR(recv(s, b, 4, 0), EINVAL);
	CHECK_ERR(send(s, b, 4, MSG_NOSIGNAL), ENOTCONN);
	CHECK_ERR(getpeername(s, (void *)&un, &len), ENOTCONN);
	OK(getsockname(s, (void *)&un, &len));
	CHECK_EQ(len, 2);
	CHECK_ERR(accept(s, NULL, NULL), EINVAL);
	struct pollfd p = { s, POLLIN | POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLOUT | POLLHUP);
}
CASE(full_backlog)
{
	struct sockaddr_un un;
	socklen_t len;
	int l = listener(SOCK_STREAM, &un, &len, "full", 0), n = 0, c;
	for (;;) {
		c = OK(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
		if (connect(c, (void *)&un, len) < 0)
			break;
		CHECK(++n < 10);
	}
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(n, 1);
	struct timeval tv = { 0, 20000 };
	int d = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	OK(setsockopt(d, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)));
	CHECK_ERR(connect(d, (void *)&un, len), EAGAIN);
	OK(accept(l, NULL, NULL));
	OK(connect(c, (void *)&un, len));
}
static void connect_late(void *arg)
{
	struct sockaddr_un *un = arg;
	int c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	OK(connect(c, (void *)un,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			       strlen(un->sun_path + 1))));
	char b;
	CHECK_EQ(read(c, &b, 1), 1);
}
CASE(blocked_connect_goes_on)
{
	struct sockaddr_un un;
	socklen_t len;
	int l = listener(SOCK_STREAM, &un, &len, "late", 0);
	pid_t pid[4];
	for (int i = 0; i < 4; i++)
		pid[i] = conf_fork(connect_late, &un);
	for (int i = 0; i < 4; i++) {
		int a = OK(accept(l, NULL, NULL));
		OK(write(a, "x", 1));
	}
	for (int i = 0; i < 4; i++)
		conf_join(pid[i]);
}
CASE(accept_nonblocking)
{
	struct sockaddr_un un;
	socklen_t len;
	int l = listener(SOCK_STREAM | SOCK_NONBLOCK, &un, &len, "nb", 4);
	CHECK_ERR(accept(l, NULL, NULL), EAGAIN);
	OK(connect(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (void *)&un, len));
	int a = OK(accept4(l, NULL, NULL, SOCK_CLOEXEC));
	CHECK_EQ(fcntl(a, F_GETFD), FD_CLOEXEC);
	CHECK(!(fcntl(a, F_GETFL) & O_NONBLOCK));
	CHECK_ERR(accept4(l, NULL, NULL, 1), EINVAL);
}
CASE(options)
{
	struct sockaddr_un un;
	socklen_t len, olen = sizeof(int), ulen = sizeof(struct ucred);
	struct ucred u;
	int v, l = listener(SOCK_STREAM, &un, &len, "opt", 4),
	       c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	OK(getsockopt(l, SOL_SOCKET, SO_ACCEPTCONN, &v, &olen));
	CHECK_EQ(v, 1);
	OK(getsockopt(l, SOL_SOCKET, SO_DOMAIN, &v, &olen));
	CHECK_EQ(v, AF_UNIX);
	OK(getsockopt(l, SOL_SOCKET, SO_TYPE, &v, &olen));
	CHECK_EQ(v, SOCK_STREAM);
	OK(getsockopt(c, SOL_SOCKET, SO_ACCEPTCONN, &v, &olen));
	CHECK_EQ(v, 0);
	OK(connect(c, (void *)&un, len));
	int a = OK(accept(l, NULL, NULL));
	OK(getsockopt(a, SOL_SOCKET, SO_PEERCRED, &u, &ulen));
	CHECK_EQ(u.pid, getpid());
	CHECK_EQ(u.uid, geteuid());
	OK(getsockopt(c, SOL_SOCKET, SO_PEERCRED, &u, &ulen));
	CHECK_EQ(u.pid, getpid());
	CHECK_ERR(getsockopt(a, SOL_SOCKET, 12345, &v, &olen), ENOPROTOOPT);
	CHECK_ERR(setsockopt(a, SOL_SOCKET, SO_TYPE, &v, olen), ENOPROTOOPT);
	CHECK_ERR(setsockopt(a, SOL_SOCKET, SO_RCVBUF, &v, 1), EINVAL);
	CHECK_ERR(getsockopt(a, SOL_SOCKET, SO_TYPE, (void *)8, &olen), EFAULT);
	struct linger lg = { 1, 5 };
	olen = sizeof(lg);
	OK(setsockopt(a, SOL_SOCKET, SO_LINGER, &lg, sizeof(lg)));
	memset(&lg, 0, sizeof(lg));
	OK(getsockopt(a, SOL_SOCKET, SO_LINGER, &lg, &olen));
	CHECK(lg.l_onoff == 1 && lg.l_linger == 5);
}
CASE(receive_timeout)
{
	int s[2];
	char b[4];
	struct timeval tv = { 0, 30000 };
	pair(SOCK_STREAM, s);
	OK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
	CHECK_ERR(recv(s[0], b, 4, 0), EAGAIN);
	CHECK_ERR(read(s[0], b, 4), EAGAIN);
	tv.tv_usec = 1000000;
	CHECK_ERR(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), EDOM);
}
CASE(shutdown_halves)
{
	int s[2];
	char b[4];
	pair(SOCK_STREAM, s);
	OK(shutdown(s[0], SHUT_WR));
	CHECK_ERR(send(s[0], "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK_EQ(read(s[1], b, 4), 0);
	OK(write(s[1], "yy", 2));
	CHECK_EQ(read(s[0], b, 4), 2);
	struct pollfd p = { s[1], POLLIN | POLLRDHUP, 0 };
	CHECK_EQ(poll(&p, 1, 0), 1);
	CHECK_EQ(p.revents, POLLIN | POLLRDHUP);
	OK(shutdown(s[0], SHUT_RD));
	CHECK_ERR(send(s[1], "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK_EQ(read(s[0], b, 4), 0);
	CHECK_ERR(shutdown(s[0], 3), EINVAL);
}
CASE(send_buffer_full)
{
	int s[2];
	static char buf[4096];
	size_t n = 0;
	pair(SOCK_STREAM | SOCK_NONBLOCK, s);
	for (;;) {
		ssize_t r = write(s[0], buf, sizeof(buf));
		if (r < 0)
			break;
		n += (size_t)r;
		CHECK(n < 64 << 20);
	}
	CHECK_EQ(errno, EAGAIN);
	struct pollfd p = { s[0], POLLOUT, 0 };
	CHECK_EQ(poll(&p, 1, 0), 0);
	size_t got = 0;
	ssize_t r;
	while ((r = read(s[1], buf, sizeof(buf))) > 0)
		got += (size_t)r;
	CHECK_EQ(got, n);
	CHECK_EQ(poll(&p, 1, 0), 1);
}
#define BULK (8 << 20)
static void *bulk_writer(void *arg)
{
	char *b = malloc(BULK);
	for (size_t i = 0; i < BULK; i++)
		b[i] = (char)(i * 7 >> 3);
	ssize_t n = write(*(int *)arg, b, BULK);
	free(b);
	close(*(int *)arg);
	return n == BULK ? NULL : (void *)1;
}
CASE(bulk_transfer)
{
	int s[2];
	static char buf[100000];
	size_t n = 0;
	ssize_t r;
	void *res;
	pthread_t t;
	pair(SOCK_STREAM, s);
	CHECK_EQ(pthread_create(&t, NULL, bulk_writer, &s[0]), 0);
	while ((r = read(s[1], buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < r; i++, n++)
			if (buf[i] != (char)(n * 7 >> 3))
				conf_fail(__FILE__, __LINE__, "byte %zu differs", n);
	CHECK_EQ(n, BULK);
	pthread_join(t, &res);
	CHECK(!res);
}
CASE(queued_bytes)
{
	int s[2], v;
	pair(SOCK_STREAM, s);
	OK(write(s[0], "12345", 5));
	OK(ioctl(s[1], FIONREAD, &v));
	CHECK_EQ(v, 5);
	int d[2];
	pair(SOCK_DGRAM, d);
	OK(send(d[0], "123", 3, 0));
	OK(send(d[0], "4567", 4, 0));
	OK(ioctl(d[1], FIONREAD, &v));
	CHECK_EQ(v, 3);
	CHECK_ERR(ioctl(s[1], FIONREAD, 8), EFAULT);
	CHECK_ERR(ioctl(s[1], 0x5401 /* TCGETS */, &v), ENOTTY);
}
CASE(vectors_and_mmsg)
{
	int s[2];
	char a[3], b[3];
	struct iovec out[2] = { { "ab", 2 }, { "cde", 3 } }, in[2] = { { a, 3 }, { b, 3 } };
	pair(SOCK_DGRAM, s);
	CHECK_EQ(writev(s[0], out, 2), 5);
	CHECK_EQ(readv(s[1], in, 2), 5);
	CHECK_MEM(a, "abc", 3);
	CHECK_MEM(b, "de", 2);
	struct mmsghdr m[3] = { { { .msg_iov = &out[0], .msg_iovlen = 1 }, 0 },
				{ { .msg_iov = &out[1], .msg_iovlen = 1 }, 0 },
				{ { .msg_iov = out, .msg_iovlen = 2 }, 0 } };
	CHECK_EQ(sendmmsg(s[0], m, 3, 0), 3);
	CHECK_EQ(m[2].msg_len, 5);
	struct mmsghdr r[4];
	memset(r, 0, sizeof(r));
	for (int i = 0; i < 4; i++)
		r[i].msg_hdr = (struct msghdr){ .msg_iov = in, .msg_iovlen = 2 };
	CHECK_EQ(recvmmsg(s[1], r, 4, MSG_WAITFORONE, NULL), 3);
	CHECK_EQ(r[0].msg_len, 2);
	CHECK_EQ(r[1].msg_len, 3);
	CHECK_EQ(r[2].msg_len, 5);
	CHECK_ERR(sendmmsg(s[0], (void *)8, 1, 0), EFAULT);
}
CASE(bad_buffers)
{
	int s[2];
	char b[4];
	pair(SOCK_STREAM, s);
	CHECK_ERR(send(s[0], (void *)8, 4, 0), EFAULT);
	OK(write(s[0], "abcd", 4));
	CHECK_ERR(recv(s[1], (void *)8, 4, 0), EFAULT);
	CHECK_EQ(recv(s[1], b, 4, 0), 4);
	CHECK_ERR(recv(s[1], b, 4, MSG_DONTWAIT), EAGAIN);
}
static void on_alarm(int sig)
{
}
CASE(interrupted_receive)
{
	int s[2];
	char b[4];
	struct sigaction sa = { .sa_handler = on_alarm };
	pair(SOCK_STREAM, s);
	sigaction(SIGALRM, &sa, NULL);
	ualarm(20000, 0);
	CHECK_ERR(recv(s[0], b, 4, 0), EINTR);
}
static void *close_soon(void *arg)
{
	OK(shutdown(*(int *)arg, SHUT_RDWR));
	return NULL;
}
CASE(shutdown_wakes_accept)
{
	struct sockaddr_un un;
	socklen_t len;
	int l = listener(SOCK_STREAM, &un, &len, "wake", 1);
	pthread_t t;
	CHECK_EQ(pthread_create(&t, NULL, close_soon, &l), 0);
	CHECK_ERR(accept(l, NULL, NULL), EINVAL);
	pthread_join(t, NULL);
}
static void *ping(void *arg)
{
	char c;
	for (int i = 0; i < 2000; i++)
		if (read(*(int *)arg, &c, 1) != 1 || write(*(int *)arg, &c, 1) != 1)
			return (void *)1;
	return NULL;
}
CASE(ping_pong)
{
	int s[2];
	char c = 'x';
	void *r;
	pthread_t t;
	pair(SOCK_STREAM, s);
	CHECK_EQ(pthread_create(&t, NULL, ping, &s[1]), 0);
	for (int i = 0; i < 2000; i++) {
		CHECK_EQ(write(s[0], &c, 1), 1);
		CHECK_EQ(read(s[0], &c, 1), 1);
	}
	pthread_join(t, &r);
	CHECK(!r);
}
CASE(sockets_do_not_leak)
{
	for (int i = 0; i < 20000; i++)
		close(OK(socket(AF_UNIX, SOCK_STREAM, 0)));
}
CONF_MAIN
