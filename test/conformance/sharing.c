/* What processes share and how they reach each other: unshare, setns, kcmp, pidfds, seccomp for
 * threads. */
#include "conf.h"

#include <linux/filter.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/utsname.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static int pidfd_open(pid_t pid, unsigned flags)
{
	return (int)syscall(SYS_pidfd_open, pid, flags);
}

static long kcmp(pid_t a, pid_t b, int type, unsigned long x, unsigned long y)
{
	return syscall(SYS_kcmp, a, b, type, x, y);
}

/* A child that lives until its pipe is closed. */
static pid_t sleeper(int *ret_fd)
{
	int p[2];
	pid_t pid;
	char c;

	OK(pipe(p));
	pid = fork();
	if (pid == 0) {
		close(p[1]);
		_exit(read(p[0], &c, 1) == 0 ? 31 : 1);
	}
	close(p[0]);
	*ret_fd = p[1];
	return pid;
}

CASE(unshare_files)
{
	int fd = OK(open("/dev/null", O_RDONLY)), status;
	pid_t pid;

	/* A child that shares the table, until it unshares it. */
	pid = (pid_t)OK(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
	if (pid == 0) {
		if (unshare(CLONE_FILES) != 0)
			_exit(1);
		close(fd);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	OK(fcntl(fd, F_GETFD));
}
CASE(unshare_fs)
{
	char here[4096];
	pid_t pid;

	OK(chdir("/"));
	pid = (pid_t)OK(syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0));
	if (pid == 0)
		_exit(unshare(CLONE_FS) == 0 && chdir("/dev") == 0 ? 0 : 1);
	conf_join(pid);
	CHECK(getcwd(here, sizeof(here)));
	CHECK_STR(here, "/");
}
/* A process enters another's mount namespace and sees what is mounted there alone. */
struct namespaces {
	int ready[2], over[2];
};
static void mount_in_own_namespace(void *arg)
{
	struct namespaces *n = arg;
	char c = 0;

	if (unshare(CLONE_NEWNS) < 0)
		SKIP("unshare: %s", strerror(errno));
	OK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	OK(mount("own", conf_tmpdir(), "tmpfs", 0, NULL));
	OK(close(OK(open(conf_path("inside"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600))));
	CHECK_EQ(write(n->ready[1], &c, 1), 1);
	close(n->over[1]);
	CHECK_EQ(read(n->over[0], &c, 1), 0);
}
CASE(setns_mount_namespace)
{
	struct namespaces n;
	char c;
	pid_t pid;
	int fd;

	OK(pipe(n.ready));
	OK(pipe(n.over));
	pid = conf_fork(mount_in_own_namespace, &n);
	close(n.ready[1]);
	if (read(n.ready[0], &c, 1) != 1)
		conf_join(pid);
	CHECK_ERR(access(conf_path("inside"), F_OK), ENOENT);
	fd = OK(pidfd_open(pid, 0));
	CHECK_ERR(setns(fd, 0), EINVAL);
	OK(setns(fd, CLONE_NEWNS));
	OK(access(conf_path("inside"), F_OK));
	CHECK_ERR(setns(n.over[0], CLONE_NEWNS), EINVAL);
	CHECK_ERR(setns(-1, CLONE_NEWNS), EBADF);
	close(n.over[1]);
	conf_join(pid);
}
CASE(unshare_errors)
{
	CHECK_ERR(unshare(0x1), EINVAL);
	CHECK_ERR(unshare(CLONE_PARENT_SETTID), EINVAL);
	OK(unshare(0));
	OK(unshare(CLONE_THREAD));
	if (setresuid(65534, 65534, 65534) == 0)
		CHECK_ERR(unshare(CLONE_NEWUTS), EPERM);
}
CASE(unshare_uts)
{
	struct utsname before, after;
	pid_t pid;

	OK(uname(&before));
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWUTS) < 0)
			_exit(errno == EPERM ? 0 : 1);
		if (sethostname("other", 5) < 0 || uname(&after) < 0)
			_exit(2);
		_exit(strcmp(after.nodename, "other") ? 3 : 0);
	}
	conf_join(pid);
	OK(uname(&after));
	CHECK_STR(after.nodename, before.nodename);
}
CASE(kcmp_orders)
{
	int a = OK(open("/dev/null", O_RDONLY)), b = OK(dup(a)),
	    c = OK(open("/dev/null", O_RDONLY)), hold;
	pid_t me = getpid(), pid = sleeper(&hold);
	long r;

	if (kcmp(me, me, KCMP_FILE, a, b) < 0 && errno == ENOSYS)
		SKIP("no kcmp");
	CHECK_EQ(kcmp(me, me, KCMP_FILE, a, b), 0);
	r = kcmp(me, me, KCMP_FILE, a, c);
	CHECK(r == 1 || r == 2);
	CHECK_EQ(kcmp(me, me, KCMP_FILE, c, a), 3 - r);
	CHECK_EQ(kcmp(me, pid, KCMP_FILE, a, a), 0);
	CHECK(kcmp(me, pid, KCMP_FILES, 0, 0) > 0);
	CHECK(kcmp(me, pid, KCMP_VM, 0, 0) > 0);
	CHECK_EQ(kcmp(me, me, KCMP_VM, 0, 0), 0);
	CHECK_ERR(kcmp(me, me, KCMP_FILE, a, 999), EBADF);
	CHECK_ERR(kcmp(me, me, 99, 0, 0), EINVAL);
	CHECK_ERR(kcmp(me, 4000000, KCMP_VM, 0, 0), ESRCH);
	close(hold);
	waitpid(pid, NULL, 0);
}
CASE(pidfd_polls_and_waits)
{
	int hold, fd;
	pid_t pid = sleeper(&hold);
	siginfo_t si;
	struct pollfd p;

	fd = OK(pidfd_open(pid, 0));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	p = (struct pollfd){ .fd = fd, .events = POLLIN };
	CHECK_EQ(poll(&p, 1, 0), 0);
	CHECK_EQ(waitid((idtype_t)P_PIDFD, (id_t)fd, &si, WEXITED | WNOHANG), 0);
	close(hold);
	CHECK_EQ(poll(&p, 1, -1), 1);
	CHECK(p.revents & POLLIN);
	OK(waitid((idtype_t)P_PIDFD, (id_t)fd, &si, WEXITED));
	CHECK_EQ(si.si_pid, pid);
	CHECK_EQ(si.si_status, 31);
	CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), ESRCH);
	CHECK_ERR(waitid((idtype_t)P_PIDFD, (id_t)fd, &si, WEXITED), ECHILD);
}
CASE(pidfd_errors)
{
	CHECK_ERR(pidfd_open(-1, 0), EINVAL);
	CHECK_ERR(pidfd_open(0, 0), EINVAL);
	CHECK_ERR(pidfd_open(getpid(), 0x40), EINVAL);
	CHECK_ERR(pidfd_open(4000000, 0), ESRCH);
	CHECK_ERR(syscall(SYS_pidfd_send_signal, 999, 0, NULL, 0), EBADF);
	CHECK_ERR(syscall(SYS_pidfd_getfd, 999, 0, 0), EBADF);
}
#define PIDFD_SELF_THREAD_ (-10000)
#define PIDFD_SELF_GROUP_ (-10001)
static long pidfd_send(int fd, int sig, unsigned flags)
{
	return syscall(SYS_pidfd_send_signal, fd, sig, NULL, flags);
}
static void take_signal(int sig, int code)
{
	const struct timespec none = { 0 };
	sigset_t set;
	siginfo_t si;

	sigemptyset(&set);
	sigaddset(&set, sig);
	/* The library's call makes SI_USER of SI_TKILL. */
	CHECK_EQ(syscall(SYS_rt_sigtimedwait, &set, &si, &none, 8), sig);
	CHECK_EQ(si.si_code, code);
	CHECK_EQ(si.si_pid, getpid());
}

static void block_usr1(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

CASE(pidfd_self)
{
	char *page =
		OK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	struct iovec iov = { page, 4096 };

	if (syscall(SYS_pidfd_send_signal, PIDFD_SELF_GROUP_, 0, NULL, 0) < 0 && errno == EBADF)
		SKIP("kernel without PIDFD_SELF");
	block_usr1();
	OK(pidfd_send(PIDFD_SELF_GROUP_, SIGUSR1, 0));
	take_signal(SIGUSR1, SI_USER);
	OK(pidfd_send(PIDFD_SELF_THREAD_, SIGUSR1, 0));
	take_signal(SIGUSR1, SI_TKILL);
	CHECK_ERR(pidfd_send(-10002, 0, 0), EBADF);
	CHECK_ERR(pidfd_send(PIDFD_SELF_GROUP_, 65, 0), EINVAL);
	CHECK_ERR(pidfd_send(PIDFD_SELF_GROUP_, 0, 8), EINVAL);
	OK(syscall(SYS_process_madvise, PIDFD_SELF_GROUP_, &iov, 1, MADV_COLD, 0));
	CHECK_ERR(syscall(SYS_process_mrelease, PIDFD_SELF_GROUP_, 0), EINVAL);
	/* It is no descriptor. */
	CHECK_ERR(syscall(SYS_pidfd_getfd, PIDFD_SELF_GROUP_, 0, 0), EBADF);
	CHECK_ERR(fcntl(PIDFD_SELF_GROUP_, F_GETFD), EBADF);
}

CASE(pidfd_signal_scopes)
{
	int fd = OK(pidfd_open(getpid(), 0));
	siginfo_t si = { .si_signo = SIGUSR1, .si_code = SI_USER };

	if (pidfd_send(fd, 0, 1) < 0 && errno == EINVAL)
		SKIP("kernel without PIDFD_SIGNAL_*");
	block_usr1();
	OK(pidfd_send(fd, SIGUSR1, 1));
	take_signal(SIGUSR1, SI_TKILL);
	OK(pidfd_send(fd, SIGUSR1, 2));
	take_signal(SIGUSR1, SI_USER);
	CHECK_ERR(pidfd_send(fd, 0, 3), EINVAL);
	if (getpgrp() == getpid())
		OK(pidfd_send(fd, SIGUSR1, 4));
	else
		OK(kill(getpid(), SIGUSR1));
	take_signal(SIGUSR1, SI_USER);
	CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, &si, 4), EPERM);
}
CASE(pidfd_nonblock)
{
	int hold, fd;
	pid_t pid = sleeper(&hold);
	siginfo_t si;

	fd = OK(pidfd_open(pid, O_NONBLOCK));
	CHECK_ERR(waitid((idtype_t)P_PIDFD, (id_t)fd, &si, WEXITED), EAGAIN);
	close(hold);
	waitpid(pid, NULL, 0);
}
CASE(pidfd_sends)
{
	int hold, fd, status;
	pid_t pid = sleeper(&hold);
	siginfo_t si = { .si_signo = SIGTERM, .si_code = SI_USER };

	fd = OK(pidfd_open(pid, 0));
	CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, SIGTERM, &si, 0), EPERM);
	si.si_signo = SIGUSR1;
	CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, SIGTERM, &si, 0), EINVAL);
	OK(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	close(hold);
}
CASE(pidfd_getfd_takes_a_file)
{
	int p[2], go[2], fd, got;
	pid_t pid;
	char c = 0;

	OK(pipe(go));
	pid = fork();
	if (pid == 0) {
		/* Its own pipe, in which a byte waits. */
		if (pipe(p) < 0 || dup2(p[0], 200) < 0 || write(p[1], "z", 1) != 1 ||
		    write(go[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	CHECK_EQ(read(go[0], &c, 1), 1);
	fd = OK(pidfd_open(pid, 0));
	got = (int)syscall(SYS_pidfd_getfd, fd, 200, 0);
	if (got < 0 && errno == EPERM) {
		kill(pid, SIGKILL);
		SKIP("ptrace of children is restricted");
	}
	CHECK(got >= 0);
	CHECK_EQ(fcntl(got, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(read(got, &c, 1), 1);
	CHECK_EQ(c, 'z');
	CHECK_ERR(syscall(SYS_pidfd_getfd, fd, 201, 0), EBADF);
	CHECK_ERR(syscall(SYS_pidfd_getfd, fd, 200, 1), EINVAL);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- seccomp beyond one thread ---- */

#define NR (offsetof(struct seccomp_data, nr))
static const struct sock_filter refuse_getppid[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static const struct sock_filter refuse_more[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 78),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static long install(const struct sock_filter *f, unsigned short n, unsigned flags)
{
	struct sock_fprog p = { n, (struct sock_filter *)f };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &p);
}

static int go_pipe[2];
static void *calls_later(void *arg)
{
	char c;

	(void)arg;
	if (read(go_pipe[0], &c, 1) != 1)
		return (void *)1L;
	return syscall(SYS_getppid) == -1 && errno == 77 ? NULL : (void *)2L;
}
CASE(seccomp_tsync)
{
	pthread_t th;
	void *ret;

	OK(pipe(go_pipe));
	CHECK_EQ(pthread_create(&th, NULL, calls_later, NULL), 0);
	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(install(refuse_getppid, 4, SECCOMP_FILTER_FLAG_TSYNC), 0);
	CHECK_EQ(write(go_pipe[1], "x", 1), 1);
	CHECK_EQ(pthread_join(th, &ret), 0);
	CHECK(ret == NULL);
	CHECK_EQ(prctl(PR_GET_SECCOMP), 2);
}
CASE(seccomp_filters_add_up)
{
	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(install(refuse_getppid, 4, 0), 0);
	CHECK_ERR(syscall(SYS_getppid), 77);
	/* The newest filter's answer among equals. */
	CHECK_EQ(install(refuse_more, 4, 0), 0);
	CHECK_ERR(syscall(SYS_getppid), 78);
	OK(syscall(SYS_getuid));
}
CASE(seccomp_is_inherited)
{
	pid_t pid;

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(install(refuse_getppid, 4, 0), 0);
	pid = fork();
	if (pid == 0)
		_exit(syscall(SYS_getppid) == -1 && errno == 77 ? 0 : 1);
	conf_join(pid);
}
CASE(seccomp_checks_programs)
{
	static const struct sock_filter no_ret[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0) };
	static const struct sock_filter odd_load[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	};
	static const struct sock_filter far_load[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	};
	static const struct sock_filter wild_jump[] = {
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, 5),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	};
	static const struct sock_filter unset_mem[] = { BPF_STMT(BPF_LD | BPF_MEM, 3),
							BPF_STMT(BPF_RET | BPF_A, 0) };
	static const struct sock_filter division[] = { BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0),
						       BPF_STMT(BPF_RET | BPF_A, 0) };

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_ERR(install(no_ret, 1, 0), EINVAL);
	CHECK_ERR(install(odd_load, 2, 0), EINVAL);
	CHECK_ERR(install(far_load, 2, 0), EINVAL);
	CHECK_ERR(install(wild_jump, 2, 0), EINVAL);
	CHECK_ERR(install(unset_mem, 2, 0), EINVAL);
	CHECK_ERR(install(division, 2, 0), EINVAL);
	CHECK_ERR(install(no_ret, 0, 0), EINVAL);
	CHECK_ERR(install(refuse_getppid, 4, 0x1000), EINVAL);
	CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (void *)8), EFAULT);
}
CASE(seccomp_computes)
{
	/* (nr * 3 - 2) / 2 ... through A, X and memory: getppid gives 77, all else passes. */
	static const struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
		BPF_STMT(BPF_ST, 1),
		BPF_STMT(BPF_LDX | BPF_MEM, 1),
		BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, 3),
		BPF_STMT(BPF_ALU | BPF_SUB | BPF_X, 0),
		BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 1), /* nr again */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 3),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SYS_getppid, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, SYS_getppid, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 77),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(install(f, 11, 0), 0);
	CHECK_ERR(syscall(SYS_getppid), 77);
	OK(syscall(SYS_getuid));
	OK(syscall(SYS_getpgrp));
}
CONF_MAIN
