/* Credentials, limits, usage, priorities, and what the system says of itself. */
#include "conf.h"
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* ---- credentials ---- */
CASE(setuid_drops)
{
	if (geteuid() != 0)
		SKIP("needs root");
	OK(setgroups(0, NULL));
	OK(setresgid(1000, 1000, 1000));
	OK(setresuid(1000, 1001, 1002));
	uid_t r, e, s;
	OK(getresuid(&r, &e, &s));
	CHECK(r == 1000 && e == 1001 && s == 1002);
	OK(seteuid(1002));
	CHECK_ERR(setuid(0), EPERM);
	CHECK_ERR(setgid(0), EPERM);
	CHECK_ERR(setgroups(0, NULL), EPERM);
}
CASE(supplementary_groups)
{
	if (geteuid() != 0)
		SKIP("needs root");
	gid_t in[3] = { 30, 10, 20 }, out[8];
	OK(setgroups(3, in));
	CHECK_EQ(getgroups(0, NULL), 3);
	CHECK_EQ(getgroups(8, out), 3);
	CHECK_ERR(getgroups(2, out), EINVAL);
	CHECK_ERR(setgroups(65537, in), EINVAL);
}
CASE(capabilities_after_setuid)
{
	if (geteuid() != 0)
		SKIP("needs root");
	struct {
		uint32_t version;
		int pid;
	} h = { 0x20080522, 0 };
	struct {
		uint32_t eff, perm, inh;
	} d[2];
	OK(syscall(SYS_capget, &h, d));
	OK(setuid(1000));
	OK(syscall(SYS_capget, &h, d));
	CHECK_EQ(d[0].eff | d[0].perm, 0);
	h.version = 1;
	CHECK_ERR(syscall(SYS_capget, &h, d), EINVAL);
	CHECK_EQ(h.version, 0x20080522);
}
CASE(no_new_privs)
{
	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	CHECK_ERR(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
}
CASE(prctl_errors)
{
	CHECK_ERR(prctl(99999, 0, 0, 0, 0), EINVAL);
	CHECK_ERR(prctl(PR_SET_PDEATHSIG, 100), EINVAL);
	CHECK_ERR(prctl(PR_SET_NAME, 1), EFAULT);
	int dumpable = prctl(PR_GET_DUMPABLE);
	CHECK(dumpable == 1 || dumpable == 0);
	CHECK_ERR(prctl(PR_SET_DUMPABLE, 2), EINVAL);
}

/* ---- limits, usage, names ---- */
CASE(rlimits)
{
	struct rlimit a, b = { 100, 200 };
	OK(setrlimit(RLIMIT_NOFILE, &b));
	OK(getrlimit(RLIMIT_NOFILE, &a));
	CHECK(a.rlim_cur == 100 && a.rlim_max == 200);
	b.rlim_cur = 300;
	CHECK_ERR(setrlimit(RLIMIT_NOFILE, &b), EINVAL);
	CHECK_ERR(getrlimit(99, &a), EINVAL);
	pid_t pid = fork();
	if (pid == 0) {
		OK(getrlimit(RLIMIT_NOFILE, &a));
		_exit(a.rlim_cur == 100 ? 0 : 1);
	}
	conf_join(pid);
	/* Nobody has set this one. */
	OK(getrlimit(RLIMIT_RTTIME, &a));
	CHECK(a.rlim_cur == RLIM_INFINITY && a.rlim_max == RLIM_INFINITY);
}
CASE(nofile_limit)
{
	struct rlimit lim = { 10, 10 };
	OK(setrlimit(RLIMIT_NOFILE, &lim));
	int fd, n = 0;
	while ((fd = dup(0)) >= 0)
		n++;
	CHECK_EQ(errno, EMFILE);
	CHECK(n < 10);
	CHECK_ERR(dup2(0, 10), EBADF);
}
CASE(nproc_limit)
{
	if (geteuid() == 0)
		OK(setresuid(64999, 64999, 64999));
	struct rlimit lim = { 10, 10 };
	OK(setrlimit(RLIMIT_NPROC, &lim));
	int n = 0;
	pid_t pids[50];
	while (n < 50 && (pids[n] = fork()) > 0)
		n++;
	if (n < 50 && pids[n] == 0)
		_exit(0 * pause());
	int err = errno;
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	CHECK(n < 11);
	CHECK_EQ(err, EAGAIN);
}
CASE(rusage_grows)
{
	struct rusage a;
	volatile unsigned long x = 0;
	OK(getrusage(RUSAGE_SELF, &a));
	struct timespec t0, t1;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
	do {
		for (int i = 0; i < 100000; i++)
			x += (unsigned long)i;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
	} while ((t1.tv_sec - t0.tv_sec) * 1000000000L + t1.tv_nsec - t0.tv_nsec < 50000000);
	OK(getrusage(RUSAGE_SELF, &a));
	CHECK(a.ru_utime.tv_sec * 1000000 + a.ru_utime.tv_usec > 20000);
	CHECK(a.ru_maxrss > 100);
	CHECK(a.ru_minflt > 0);
	CHECK_ERR(getrusage(99, &a), EINVAL);
	CHECK(times(NULL) != -1);
}
static void touch_32m(void *arg)
{
	memset(arg, 1, 32 << 20);
}
CASE(rusage_children_maxrss_in_kib)
{
	struct rusage a;
	char *p = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	conf_join(conf_fork(touch_32m, p));
	OK(getrusage(RUSAGE_CHILDREN, &a));
	CHECK(a.ru_maxrss >= 32 << 10);
	CHECK(a.ru_maxrss < 64 << 10);
}
/* Of a child that nobody can wait for nothing is counted. */
CASE(rusage_without_unwaited_children)
{
	char *p = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rusage a;

	CHECK(p != MAP_FAILED);
	CHECK(signal(SIGCHLD, SIG_IGN) != SIG_ERR);
	if (!OK(fork())) {
		touch_32m(p);
		_exit(0);
	}
	CHECK_ERR(wait(NULL), ECHILD);
	OK(getrusage(RUSAGE_CHILDREN, &a));
	CHECK_EQ(a.ru_maxrss, 0);
	CHECK_EQ(a.ru_minflt, 0);
}
CASE(vfork_child_keeps_parents_peak)
{
	char *p = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rusage a;
	pid_t pid;

	CHECK(p != MAP_FAILED);
	memset(p, 1, 32 << 20);
	pid = vfork();
	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	conf_join(pid);
	/* A child that shares its parent's memory neither ends it nor changes what it weighs. */
	OK(getrusage(RUSAGE_SELF, &a));
	CHECK(a.ru_maxrss >= 32 << 10);
}
CASE(uname_is_linux)
{
	struct utsname u;
	OK(uname(&u));
	CHECK_STR(u.sysname, "Linux");
	CHECK_STR(u.machine, "x86_64");
	CHECK_ERR(syscall(SYS_uname, (void *)8), EFAULT);
}
CASE(priorities)
{
	CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
	OK(setpriority(PRIO_PROCESS, 0, 5));
	CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5);
	OK(setpriority(PRIO_PROCESS, 0, 100));
	CHECK_EQ(getpriority(PRIO_PROCESS, 0), 19);
	CHECK_ERR(getpriority(99, 0), EINVAL);
	CHECK_ERR(getpriority(PRIO_PROCESS, 999999), ESRCH);
}
CASE(affinity_matches_nproc)
{
	cpu_set_t s;
	OK(sched_getaffinity(0, sizeof(s), &s));
	CHECK_EQ(CPU_COUNT(&s), sysconf(_SC_NPROCESSORS_ONLN));
	cpu_set_t one;
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &s)) {
			CPU_SET(i, &one);
			break;
		}
	OK(sched_setaffinity(0, sizeof(one), &one));
	OK(sched_getaffinity(0, sizeof(s), &s));
	CHECK_EQ(CPU_COUNT(&s), 1);
	CPU_ZERO(&one);
	CHECK_ERR(sched_setaffinity(0, sizeof(one), &one), EINVAL);
}
CASE(getrandom_fills)
{
	unsigned char a[64] = { 0 }, b[64] = { 0 };
	CHECK_EQ(syscall(SYS_getrandom, a, 64, 0), 64);
	CHECK_EQ(syscall(SYS_getrandom, b, 64, 0), 64);
	CHECK(memcmp(a, b, 64) != 0);
	CHECK_ERR(syscall(SYS_getrandom, a, 64, 0x100), EINVAL);
	CHECK_ERR(syscall(SYS_getrandom, (void *)1, 64, 0), EFAULT);
	/* Up to the end of memory, and to the byte. */
	unsigned char *p =
		OK(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	OK(munmap(p + 4096, 4096));
	CHECK_EQ(syscall(SYS_getrandom, p + 10, 8192, 0), 4086);
	CHECK_EQ(syscall(SYS_getrandom, p + 10, SIZE_MAX, 0), 4086);
}
/* Of an int Linux takes 32 bits, whatever else the register holds. */
CASE(upper_halves_do_not_matter)
{
	const long high = 1L << 32;
	int fd, p[2], sv[2];
	struct iovec v = { (char *)"x", 1 };
	void *head;
	size_t len;

	fd = (int)OK(syscall(SYS_memfd_create, "x", high));
	CHECK_EQ(syscall(SYS_fcntl, fd, F_DUPFD, high | 50), 50);
	CHECK_EQ(syscall(SYS_copy_file_range, fd, NULL, 50, NULL, 0, high), 0);
	OK(pipe(p));
	CHECK_EQ(syscall(SYS_vmsplice, p[1], &v, 1, high), 1);
	OK(pipe(sv));
	CHECK_EQ(syscall(SYS_tee, p[0], sv[1], 1, high), 1);
	CHECK_EQ(syscall(SYS_splice, p[0], NULL, fd, NULL, 1, high), 1);
	OK(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, high, sv));
	OK(syscall(SYS_getpriority, high, 0));
	OK(syscall(SYS_get_robust_list, high, &head, &len));
	/* These are longs. */
	CHECK_ERR(syscall(SYS_mprotect, 0, 4096, high), EINVAL);
	CHECK_ERR(syscall(SYS_mremap, 0, 4096, 4096, high | 1, 0), EINVAL);
}
CONF_MAIN
