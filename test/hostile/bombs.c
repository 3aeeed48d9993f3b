/* Everything a guest can make grow: until it is refused. Run with --memory=512M. */
#include "test/hostile/lib/hostile.h"
#include <limits.h>
#include <pthread.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/xattr.h>
#include <time.h>
#include <grp.h>

#define LIMIT_MS 700 /* a bomb has that long, 6 s in full */

static uint64_t end_ms;

static bool time_left(void)
{
	if (!end_ms)
		end_ms = now_ms() + (full() ? 6000 : LIMIT_MS);
	return now_ms() < end_ms;
}

static void set_limit(int what, rlim_t n)
{
	struct rlimit r = { n, n };

	setrlimit(what, &r);
}

/* As many descriptors as the sandbox allows. */
static void many_fds(void)
{
	struct rlimit r;

	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

/* ---- processes and threads ---- */

static _Atomic long *count;

static void forks(void)
{
	while (time_left()) {
		pid_t pid = fork();

		if (pid < 0) {
			if (errno != EAGAIN && errno != ENOMEM)
				breach("fork: %s", strerror(errno));
			return;
		}
		if (pid == 0)
			for (;;)
				pause();
		++*count;
	}
}

ATTACK(fork_bomb_rlimit)
{
	count = shared_memory(4096);
	if (setuid(12345) < 0)
		skip("setuid: %s", strerror(errno));
	set_limit(RLIMIT_NPROC, 100);
	forks();
	if (*count > 100)
		breach("%ld processes in spite of RLIMIT_NPROC", *count);
}

ATTACK(fork_bomb)
{
	count = shared_memory(4096);
	forks();
}

ATTACK(fork_bomb_exponential)
{
	pid_t first = getpid();

	count = shared_memory(4096);
	while (time_left() && *count < 3000)
		if (fork() > 0)
			++*count;
	while (getpid() != first)
		pause();
}

static void *sleeper(void *arg)
{
	for (;;)
		pause();
	return arg;
}

ATTACK(thread_bomb)
{
	pthread_attr_t attr;
	pthread_t t;
	int r = 0, n = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	while (time_left() && (r = pthread_create(&t, &attr, sleeper, NULL)) == 0)
		n++;
	if (r != 0 && r != EAGAIN && r != ENOMEM)
		breach("pthread_create: %s after %d", strerror(r), n);
}

static void *spinner(void *arg)
{
	for (;;)
		;
	return arg;
}

/* More runnable threads than processors: the bystander and the end come all the same. */
ATTACK(busy_thread_bomb)
{
	pthread_attr_t attr;
	pthread_t t;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	for (int i = 0; i < 200 && time_left(); i++)
		if (pthread_create(&t, &attr, spinner, NULL) != 0)
			break;
	poll(NULL, 0, 500);
}

/* ---- memory ---- */

ATTACK(maps_bomb)
{
	long n = 0;

	/* Neighbours that cannot merge. */
	while (time_left() && n < 200000) {
		void *p = mmap((void *)(0x100000000 + n * 8192), 4096,
			       n % 2 ? PROT_READ : PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

		if (p == MAP_FAILED) {
			if (errno != ENOMEM)
				breach("mmap: %s", strerror(errno));
			return;
		}
		n++;
	}
	if (n >= 200000)
		breach("no limit on mappings");
}

ATTACK(touched_maps_bomb)
{
	for (long n = 0; time_left() && n < 100000; n++) {
		char *p = mmap((void *)(0x100000000 + n * 8192), 4096, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

		if (p == MAP_FAILED)
			return;
		*p = 1;
	}
}

ATTACK(split_bomb)
{
	char *p = mmap(NULL, 1UL << 30, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	for (long i = 0; time_left() && i < 1L << 17; i += 2)
		if (mprotect(p + i * 4096, 4096, PROT_READ) < 0) {
			if (errno != ENOMEM)
				breach("mprotect: %s", strerror(errno));
			return;
		}
}

static void eat(void *arg)
{
	size_t size = 2UL << 30;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return;
	for (size_t i = 0; i < size; i += 4096)
		p[i] = 1;
	breach("2 GiB of 512 MiB");
}
ATTACK(memory_bomb)
{
	in_child(eat, NULL, 30000, NULL);
}

static void huge(void *arg)
{
	for (unsigned bits = 29; bits < 48; bits += 9) {
		void *p = mmap(NULL, 1UL << bits, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

		if (p != MAP_FAILED)
			munmap(p, 1UL << bits);
		p = mmap(NULL, 1UL << bits, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p != MAP_FAILED) {
			mlock(p, 1UL << bits);
			madvise(p, 1UL << bits, 23 /* MADV_POPULATE_WRITE */);
			munmap(p, 1UL << bits);
		}
	}
}
ATTACK(populate_bomb)
{
	in_child(huge, NULL, 30000, NULL);
}

/* ---- descriptors and kernel objects ---- */

static void until_refused(int (*make)(void), const char *what, long no_more_than)
{
	long n = 0;

	many_fds();
	while (time_left() && make() >= 0)
		if (++n > no_more_than)
			breach("%ld %s and no limit", n, what);
}

static int make_dup(void)
{
	return dup(0);
}
ATTACK(fd_bomb)
{
	until_refused(make_dup, "descriptors", 1200000);
}
static int make_file(void)
{
	return open("/tmp/f", O_CREAT | O_RDWR, 0600);
}
ATTACK(open_file_bomb)
{
	until_refused(make_file, "open files", 1200000);
}
static int make_host_file(void)
{
	return open("/usr/bin/env", O_RDONLY);
}
ATTACK(open_host_file_bomb)
{
	until_refused(make_host_file, "open host files", 1200000);
}
static int make_epoll(void)
{
	return epoll_create1(0);
}
ATTACK(epoll_bomb)
{
	until_refused(make_epoll, "epolls", 1200000);
}
static int make_inotify(void)
{
	return inotify_init1(0);
}
ATTACK(inotify_bomb)
{
	until_refused(make_inotify, "inotify instances", 100000);
}
static int make_timerfd(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0);
}
ATTACK(timerfd_bomb)
{
	until_refused(make_timerfd, "timerfds", 1200000);
}
static int make_pty(void)
{
	return posix_openpt(O_RDWR | O_NOCTTY);
}
ATTACK(pty_bomb)
{
	until_refused(make_pty, "ptys", 10000);
}
static int make_udp(void)
{
	return socket(AF_INET, SOCK_DGRAM, 0);
}
ATTACK(inet_bomb)
{
	until_refused(make_udp, "inet sockets", 1200000);
}
static int make_timer(void)
{
	struct sigevent ev = { .sigev_notify = SIGEV_NONE };
	timer_t t;

	return timer_create(CLOCK_MONOTONIC, &ev, &t);
}
ATTACK(posix_timer_bomb)
{
	until_refused(make_timer, "timers", 200000);
}

/* Timers that all fire all the time. */
ATTACK(timer_storm)
{
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct itimerspec it = { { 0, 1 }, { 0, 1 } };
	sigset_t s;
	timer_t t;

	sigfillset(&s);
	sigprocmask(SIG_BLOCK, &s, NULL);
	for (int i = 0; i < 3000 && timer_create(CLOCK_MONOTONIC, &ev, &t) == 0; i++)
		timer_settime(t, 0, &it, NULL);
	poll(NULL, 0, 1000);
}

static int watch_fd;
static int make_watch(void)
{
	static long n;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/w%ld", n++);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	return inotify_add_watch(watch_fd, path, IN_ALL_EVENTS);
}
ATTACK(inotify_watch_bomb)
{
	watch_fd = inotify_init();
	until_refused(make_watch, "watches", 2000000);
}

ATTACK(inotify_queue_bomb)
{
	int fd = inotify_init(), f;

	mkdir("/tmp/q", 0700);
	inotify_add_watch(fd, "/tmp/q", IN_ALL_EVENTS);
	for (long i = 0; time_left() && i < 100000; i++) {
		f = open(i % 2 ? "/tmp/q/a" : "/tmp/q/b", O_CREAT | O_RDWR, 0600);
		if (f < 0)
			return;
		close(f);
	}
}

/* Each pipe or socket is filled. */
static char megabyte[1 << 20];

static void fill(int fd)
{
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (write(fd, megabyte, sizeof(megabyte)) > 0)
		;
}

static int make_full_pipe(void)
{
	int fd[2];

	if (pipe(fd) < 0)
		return -1;
	fcntl(fd[1], F_SETPIPE_SZ, 1 << 20);
	fill(fd[1]);
	return 0;
}
ATTACK(pipe_memory_bomb)
{
	until_refused(make_full_pipe, "full pipes", 1200000);
}

static int make_full_socket(void)
{
	int fd[2], size = INT_MAX;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0)
		return -1;
	for (int i = 0; i < 2; i++) {
		setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
		setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
		setsockopt(fd[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
		setsockopt(fd[i], SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
		fill(fd[i]);
	}
	return 0;
}
ATTACK(socket_memory_bomb)
{
	until_refused(make_full_socket, "full sockets", 1200000);
}

static int make_full_dgram(void)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) < 0)
		return -1;
	fcntl(fd[0], F_SETFL, O_NONBLOCK);
	while (write(fd[0], megabyte, 60000) > 0)
		;
	return 0;
}
ATTACK(dgram_memory_bomb)
{
	until_refused(make_full_dgram, "full sockets", 1200000);
}

/* Sockets sent through sockets, in a cycle, and forgotten. */
static int make_cycle(void)
{
	int fd[2];
	union {
		struct cmsghdr h;
		char b[CMSG_SPACE(2 * sizeof(int))];
	} c = { .h = { .cmsg_len = CMSG_LEN(2 * sizeof(int)),
		       .cmsg_level = SOL_SOCKET,
		       .cmsg_type = SCM_RIGHTS } };
	struct iovec v = { "x", 1 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)
	};

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0)
		return -1;
	memcpy(CMSG_DATA(&c.h), fd, sizeof(fd));
	for (int i = 0; i < 2; i++)
		if (sendmsg(fd[i], &m, MSG_DONTWAIT) < 0)
			i = 2;
	close(fd[0]);
	close(fd[1]);
	return 0;
}
ATTACK(fd_cycle_bomb)
{
	for (long n = 0; time_left() && n < 200000; n++)
		if (make_cycle() < 0)
			breach("sockets in cycles are not collected: %s after %ld", strerror(errno),
			       n);
}

/* A chain: each socket carries the one before. Closing the last must not recurse. */
ATTACK(fd_chain_bomb)
{
	int last = -1, n = 0;

	while (time_left() && n < 100000) {
		int fd[2];
		union {
			struct cmsghdr h;
			char b[CMSG_SPACE(sizeof(int))];
		} c = { .h = { .cmsg_len = CMSG_LEN(sizeof(int)),
			       .cmsg_level = SOL_SOCKET,
			       .cmsg_type = SCM_RIGHTS } };
		struct iovec v = { "x", 1 };
		struct msghdr m = { .msg_iov = &v,
				    .msg_iovlen = 1,
				    .msg_control = &c,
				    .msg_controllen = sizeof(c) };

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0)
			break;
		if (last >= 0) {
			memcpy(CMSG_DATA(&c.h), &last, sizeof(int));
			if (sendmsg(fd[0], &m, MSG_DONTWAIT) < 0)
				break;
			close(last);
		}
		close(fd[0]);
		last = fd[1];
		n++;
	}
	close(last);
}

/* epolls in epolls. */
ATTACK(epoll_nesting)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	int first, last;

	many_fds();
	first = last = eventfd(0, 0);
	for (int i = 0; i < 20000 && time_left(); i++) {
		int n = epoll_create1(0);

		if (n < 0 || epoll_ctl(n, EPOLL_CTL_ADD, last, &e) < 0)
			break;
		last = n;
	}
	epoll_ctl(last, EPOLL_CTL_ADD, last, &e);
	if (write(first, &(uint64_t){ 1 }, 8) != 8)
		breach("eventfd");
	epoll_wait(last, &e, 1, 0);
}

/* Wide: N epolls each watch N others. */
ATTACK(epoll_fan)
{
	struct epoll_event e = { .events = EPOLLIN };
	int fds[400], event = eventfd(0, 0);

	for (int i = 0; i < 400; i++)
		fds[i] = epoll_create1(0);
	for (int i = 0; i < 400 && time_left(); i++) {
		epoll_ctl(fds[i], EPOLL_CTL_ADD, event, &e);
		for (int j = 0; j < i && time_left(); j++)
			epoll_ctl(fds[i], EPOLL_CTL_ADD, fds[j], &e);
	}
	for (int i = 0; i < 200 && time_left(); i++)
		if (write(event, &(uint64_t){ 1 }, 8) != 8)
			breach("eventfd");
}

ATTACK(signal_queue_bomb)
{
	union sigval v = { 0 };
	sigset_t s;
	long n = 0;

	sigfillset(&s);
	sigprocmask(SIG_BLOCK, &s, NULL);
	while (time_left() && sigqueue(getpid(), SIGRTMIN + 3, v) == 0)
		if (++n > 200000)
			breach("%ld queued signals", n);
}

ATTACK(record_lock_bomb)
{
	int fd = open("/tmp/locks", O_CREAT | O_RDWR, 0600);

	for (long n = 0; time_left() && n < 100000; n++) {
		struct flock l = { .l_type = F_WRLCK, .l_start = n * 2, .l_len = 1 };

		if (fcntl(fd, F_SETLK, &l) < 0)
			return;
	}
}

static int make_shm(void)
{
	int id = shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600);
	char *p = id < 0 ? (void *)-1 : shmat(id, NULL, 0);

	shmctl(id, IPC_RMID, NULL); /* or it would outlive us and leave others no memory */
	if (p == (void *)-1)
		return -1;
	for (int i = 0; i < 1 << 20; i += 4096)
		p[i] = 1;
	return 0;
}
static void shm_child(void *arg)
{
	until_refused(make_shm, "shm segments", 10000);
}
ATTACK(shm_bomb)
{
	in_child(shm_child, NULL, 20000, NULL);
}

static int make_msgs(void)
{
	struct {
		long type;
		char text[8000];
	} m = { .type = 1 };
	int id = msgget(IPC_PRIVATE, IPC_CREAT | 0600);

	if (id < 0)
		return -1;
	while (msgsnd(id, &m, sizeof(m.text), IPC_NOWAIT) == 0)
		;
	return 0;
}
ATTACK(msg_bomb)
{
	until_refused(make_msgs, "message queues", 50000);
}
static int make_sems(void)
{
	return semget(IPC_PRIVATE, 30000, IPC_CREAT | 0600);
}
ATTACK(sem_bomb)
{
	until_refused(make_sems, "semaphore sets", 50000);
}

/* The sentry sorts these. */
ATTACK(many_groups_and_sockets)
{
	static gid_t groups[65536];
	static char text[1 << 20];
	int fd;

	for (int i = 0; i < 65536; i++)
		groups[i] = (gid_t)rnd();
	if (setgroups(65536, groups) < 0)
		breach("setgroups: %s", strerror(errno));
	many_fds();
	for (int i = 0; i < 3000; i++)
		socket(AF_UNIX, SOCK_STREAM, 0);
	fd = open("/proc/net/unix", O_RDONLY);
	while (read(fd, text, sizeof(text)) > 0)
		;
}

/* ---- files ---- */

ATTACK(tmpfs_fill)
{
	int fd = open("/tmp/big", O_CREAT | O_WRONLY, 0600);
	uint64_t done = 0;
	ssize_t n;

	while (time_left() && (n = write(fd, megabyte, sizeof(megabyte))) > 0)
		if ((done += (uint64_t)n) > 1UL << 30)
			breach("1 GiB of 512 MiB");
	unlink("/tmp/big");
}

ATTACK(dev_shm_fill)
{
	int fd = open("/dev/shm/big", O_CREAT | O_RDWR, 0600);

	for (uint64_t o = 0; time_left(); o += 1 << 20)
		if (fallocate(fd, 0, (off_t)o, 1 << 20) < 0)
			break;
		else if (o > 1UL << 30)
			breach("1 GiB of 512 MiB");
	unlink("/dev/shm/big");
}

ATTACK(overlay_fill)
{
	int fd = open("/usr/big", O_CREAT | O_WRONLY, 0600);
	uint64_t done = 0;
	ssize_t n;

	while (time_left() && (n = write(fd, megabyte, sizeof(megabyte))) > 0)
		if ((done += (uint64_t)n) > 1UL << 30)
			breach("1 GiB of 512 MiB");
	unlink("/usr/big");
}

static int make_name(void)
{
	static long n;
	char path[300];

	memset(path, 'n', sizeof(path));
	path[snprintf(path, sizeof(path), "/tmp/%020ld", n++)] = 'n';
	path[240] = 0;
	return n % 3 == 0 ? symlink(megabyte, path) < 0 && errno != ENOENT ? -1 : mkdir(path, 0700)
			  : close(open(path, O_CREAT | O_WRONLY, 0600));
}
ATTACK(names_bomb)
{
	until_refused(make_name, "names", 5000000);
}

ATTACK(deep_directories)
{
	long n = 0;

	if (chdir("/tmp") < 0)
		return;
	while (time_left() && n < 20000 && mkdir("d", 0700) == 0 && chdir("d") == 0)
		n++;
	if (syscall(SYS_getcwd, megabyte, sizeof(megabyte)) < 0 && errno != ENAMETOOLONG &&
	    errno != ERANGE)
		breach("getcwd: %s", strerror(errno));
	if (rename("/tmp/d", "/tmp/e") < 0)
		breach("rename: %s", strerror(errno));
	open("../../../../../..", O_RDONLY);
}

static int make_mount(void)
{
	return mount("none", "/tmp", "tmpfs", 0, NULL);
}
ATTACK(mount_bomb)
{
	until_refused(make_mount, "mounts", 200000);
}

static int make_bind(void)
{
	return mount("/", "/mnt", NULL, MS_BIND | MS_REC, NULL);
}
ATTACK(bind_mount_doubling)
{
	until_refused(make_bind, "binds", 1000);
}

static int make_xattr(void)
{
	static long n;
	char name[64];

	snprintf(name, sizeof(name), "user.%ld", n++);
	return setxattr("/tmp", name, megabyte, 60000, 0);
}
ATTACK(xattr_bomb)
{
	until_refused(make_xattr, "attributes", 100000);
}

HOSTILE_MAIN
