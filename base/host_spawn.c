#include "base/host_spawn.h"
#include "base/host_sync.h"
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/memfd.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

int host_image_memfd(const char *name, const void *bytes, size_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	size_t done = 0;

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	while (done < size) {
		ssize_t n = write(fd, (const char *)bytes + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int err = n < 0 ? errno : EIO;

			close(fd);
			return -err;
		}
		done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

static void drop_caps(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &head, data) < 0)
		_exit(120);
}

/* In the child. All sources are moved out of the way first. */
static void place_fds(int image_fd, const int *fds, size_t count, int *ret_image)
{
	enum { BASE = 64, MAX = 32 };
	int moved[MAX];

	if (count > MAX)
		_exit(121);
	for (size_t i = 0; i < count; i++) {
		moved[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD, BASE);
		if (fds[i] >= 0 && moved[i] < 0)
			_exit(122);
	}
	*ret_image = fcntl(image_fd, F_DUPFD_CLOEXEC, BASE);
	if (*ret_image < 0)
		_exit(122);
	for (size_t i = 0; i < count; i++)
		if (moved[i] >= 0 && dup2(moved[i], (int)i) < 0)
			_exit(122);
	for (size_t i = 0; i < count; i++)
		if (moved[i] < 0)
			close((int)i);
	/* All others: closed by exec, so that the image's own can be found. */
	if (syscall(SYS_close_range, count, BASE - 1, 0) < 0)
		for (int fd = (int)count; fd < BASE; fd++)
			close(fd);
	if (syscall(SYS_close_range, BASE, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */) < 0) {
		struct rlimit rl;
		int max =
			getrlimit(RLIMIT_NOFILE, &rl) == 0 ? (int)MIN(rl.rlim_cur, 1 << 20) : 65536;

		for (int fd = BASE; fd < max; fd++)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	}
}

/* When memory is short the host should take a stub, not the sentry. */
static void prefer_as_victim(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "500", 3) != 3) { /* a nicety */
	}
	close(fd);
}

struct spawn {
	int image_fd;
	const int *fds;
	size_t count;
};

static int spawn_child(void *arg)
{
	static char empty[] = "";
	const struct spawn *s = arg;
	char *argv[] = { empty, NULL }, *envp[] = { NULL };
	struct rlimit no_core = { 0, 0 };
	int image;

	setsid();
	prefer_as_victim();
	place_fds(s->image_fd, s->fds, s->count, &image);
	setrlimit(RLIMIT_CORE, &no_core);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(123);
	drop_caps();
	personality(ADDR_NO_RANDOMIZE); /* a nicety: the zygote moves itself anyway */
	syscall(SYS_execveat, image, "", argv, envp, AT_EMPTY_PATH);
	_exit(124);
}

/*
 * The child borrows our memory until it has exec'd, and we sleep so long: nothing is copied, at the
 * fork or by page faults later. It makes system calls only.
 */
#ifdef MINISENTRY_SANITIZER
#define BORROW_MEMORY 0 /* its code in the child would use our thread's data */
#else
#define BORROW_MEMORY (CLONE_VM | CLONE_VFORK)
#endif
#define SPAWN_STACK 32768

int host_spawn_image(int image_fd, const int *fds, size_t count)
{
	_Alignas(16) char stack[SPAWN_STACK];
	struct spawn s = { image_fd, fds, count };
	sigset_t all, old;
	int ret;

	/* The image wants them blocked, and no handler may run in the child. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	ret = clone(spawn_child, stack + sizeof(stack), BORROW_MEMORY | SIGCHLD, &s);
	if (ret < 0)
		ret = -errno;
	sigprocmask(SIG_SETMASK, &old, NULL);
	return ret;
}

int host_socketpair(int ret[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0 ? -errno : 0;
}

int host_send_msg(int sock, const void *buf, size_t size, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { (void *)buf, size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		struct cmsghdr *c;

		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EPROTO;
}

int host_recv_msg(int sock, void *buf, size_t size, s64 timeout_ns)
{
	struct pollfd pfd = { .fd = sock, .events = POLLIN };
	ssize_t n;
	int ret;

	do
		ret = host_poll(&pfd, 1, timeout_ns);
	while (ret == -EINTR);
	if (ret <= 0)
		return ret < 0 ? ret : -ETIMEDOUT;
	do
		n = recv(sock, buf, size, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return -EPIPE;
	return (size_t)n == size ? 0 : -EPROTO;
}

int host_epoll_create(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int host_epoll_add(int epfd, int fd, u32 events, u64 data)
{
	struct epoll_event ev = { .events = events, .data.u64 = data };

	return epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

int host_epoll_del(int epfd, int fd)
{
	return epoll_ctl(epfd, EPOLL_CTL_DEL, fd, NULL) < 0 ? -errno : 0;
}

int host_epoll_wait_one(int epfd, u64 *ret_data)
{
	struct epoll_event ev;
	int n = epoll_pwait(epfd, &ev, 1, -1, NULL);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	if (n > 0)
		*ret_data = ev.data.u64;
	return n;
}

ssize_t host_read_text(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t done = 0;

	if (fd < 0)
		return -errno;
	while (done < size - 1) {
		ssize_t n = read(fd, buf + done, size - 1 - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	close(fd);
	buf[done] = 0;
	return (ssize_t)done;
}

bool host_has_syscall_dispatch(void)
{
	return prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 0 /* off */, 0, 0, 0) == 0;
}

int host_getpid(void)
{
	return getpid();
}

int host_cpu_count(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return (int)sysconf(_SC_NPROCESSORS_ONLN);
	return CPU_COUNT(&set);
}

int host_leave_cpu(u32 cpu)
{
	cpu_set_t all, others;

	if (cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(all), &all) < 0)
		return -EINVAL;
	others = all;
	CPU_CLR(cpu, &others);
	if (CPU_COUNT(&others) == 0)
		return -EINVAL;
	if (sched_setaffinity(0, sizeof(others), &others) < 0)
		return -errno;
	return sched_setaffinity(0, sizeof(all), &all) < 0 ? -errno : 0;
}

int host_current_cpu(void)
{
	return sched_getcpu();
}
