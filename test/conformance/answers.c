/* Ids and clocks, which a sandbox may answer without its kernel: as they are now, for who may ask.
 */
#include "conf.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>

#define OFTEN 80
#define USER 12345

static long raw(long nr, long a, long b, long c)
{
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return ret;
}

static long often(long nr, long expected)
{
	for (int i = 0; i < OFTEN; i++)
		CHECK_EQ(syscall(nr), expected);
	return expected;
}

static void own_ids(void *arg)
{
	pid_t parent = *(pid_t *)arg, pid = (pid_t)often(SYS_getpid, syscall(SYS_getpid));

	CHECK(pid != parent);
	often(SYS_getppid, parent);
	often(SYS_gettid, pid);
}

CASE(forked_child_has_its_own)
{
	pid_t pid = getpid();

	often(SYS_getpid, pid);
	for (int i = 0; i < 3; i++)
		conf_join(conf_fork(own_ids, &pid));
	often(SYS_getpid, pid);
}

CASE(orphan_sees_its_new_parent)
{
	int told[2], go[2];
	pid_t parent, seen = 0;
	char c;

	OK(pipe(told));
	OK(pipe(go));
	parent = OK(fork());
	if (parent == 0) {
		if (OK(fork()) == 0) {
			often(SYS_getppid, getppid());
			CHECK_EQ(write(told[1], "", 1), 1);
			CHECK_EQ(read(go[0], &c, 1), 1);
			seen = (pid_t)syscall(SYS_getppid);
			CHECK_EQ(write(told[1], &seen, sizeof(seen)), sizeof(seen));
			_exit(0);
		}
		CHECK_EQ(read(told[0], &c, 1), 1);
		_exit(0);
	}
	conf_join(parent);
	CHECK_EQ(write(go[1], "", 1), 1);
	CHECK_EQ(read(told[0], &seen, sizeof(seen)), sizeof(seen));
	CHECK(seen != parent);
}

static void become_another(void *arg)
{
	often(SYS_getuid, 0);
	often(SYS_getegid, 0);
	OK(syscall(SYS_setresgid, USER + 1, USER + 2, 0));
	OK(syscall(SYS_setresuid, USER + 3, USER + 4, 0));
	often(SYS_getgid, USER + 1);
	often(SYS_getegid, USER + 2);
	often(SYS_getuid, USER + 3);
	often(SYS_geteuid, USER + 4);
}

CASE(changed_ids_show_at_once)
{
	if (geteuid() != 0)
		SKIP("needs root");
	conf_join(conf_fork(become_another, NULL));
}

static void *one_thread_changes(void *arg)
{
	pid_t tid = (pid_t)often(SYS_gettid, syscall(SYS_gettid));

	CHECK(tid != getpid());
	often(SYS_getpid, *(pid_t *)arg);
	OK(syscall(SYS_setresuid, -1, USER, -1));
	often(SYS_geteuid, USER);
	return NULL;
}

CASE(a_thread_changes_its_own)
{
	pid_t pid = getpid();
	pthread_t t;

	if (geteuid() != 0)
		SKIP("needs root");
	often(SYS_geteuid, 0);
	pthread_create(&t, NULL, one_thread_changes, &pid);
	pthread_join(t, NULL);
	often(SYS_geteuid, 0);
}

static int shares_memory(void *arg)
{
	own_ids(arg);
	return 0;
}

CASE(clone_with_shared_memory)
{
	static char stack[65536] __attribute__((aligned(16)));
	pid_t pid = getpid();

	often(SYS_getpid, pid);
	for (int i = 0; i < 3; i++)
		conf_join(OK(clone(shares_memory, stack + sizeof(stack),
				   CLONE_VM | CLONE_VFORK * (i & 1) | SIGCHLD, &pid)));
	often(SYS_getpid, pid);
}

/* ---- who is filtered ---- */

static void deny_getpid(unsigned flags)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 42),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(f) / sizeof(f[0]), f };

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog), 0);
}

CASE(filter_denies_what_was_answered)
{
	struct timespec ts;

	often(SYS_getpid, getpid());
	for (int i = 0; i < OFTEN; i++)
		OK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts));
	deny_getpid(0);
	for (int i = 0; i < OFTEN; i++) {
		CHECK_ERR(syscall(SYS_getpid), 42);
		CHECK_ERR(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts), 42);
	}
}

static _Atomic int denied, asking;

static void *ask(void *arg)
{
	while (!denied)
		asking += syscall(SYS_getpid) > 0;
	for (int i = 0; i < OFTEN; i++)
		CHECK_ERR(syscall(SYS_getpid), 42);
	return NULL;
}

CASE(filter_for_all_threads)
{
	pthread_t t;

	pthread_create(&t, NULL, ask, NULL);
	while (asking < OFTEN)
		sched_yield();
	deny_getpid(SECCOMP_FILTER_FLAG_TSYNC);
	denied = 1;
	pthread_join(t, NULL);
}

static void strictly(void *arg)
{
	often(SYS_getpid, getpid());
	OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0));
	raw(SYS_getpid, 0, 0, 0);
	raw(SYS_exit, 0, 0, 0);
}

CASE(strict_mode_kills)
{
	CHECK_EQ(conf_signal_of(strictly, NULL), SIGKILL);
}

/* ---- clocks ---- */

CASE(every_clock)
{
	static const int good[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct timespec ts[2];

	for (int round = 0; round < OFTEN; round++) {
		for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
			CHECK_EQ(raw(SYS_clock_gettime, good[i], (long)&ts[0], 0), 0);
			CHECK_EQ(raw(SYS_clock_gettime, good[i], (long)&ts[1], 0), 0);
			CHECK(ts[0].tv_nsec >= 0 && ts[0].tv_nsec < 1000000000);
			CHECK(ts[1].tv_sec > ts[0].tv_sec || ts[1].tv_nsec >= ts[0].tv_nsec);
		}
		CHECK_EQ(raw(SYS_clock_gettime, 10, (long)ts, 0), -EINVAL);
		CHECK_EQ(raw(SYS_clock_gettime, 99, (long)ts, 0), -EINVAL);
		CHECK_EQ(raw(SYS_clock_gettime, 0x7fffffff, (long)ts, 0), -EINVAL);
	}
}

CASE(bad_pointers)
{
	char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long bad[5];

	CHECK(m != MAP_FAILED);
	OK(mprotect(m + 4096, 4096, PROT_READ));
	bad[0] = 8;
	bad[1] = (long)m + 4096;
	bad[2] = (long)m + 4096 - 8; /* half of it can be written */
	bad[3] = -4096;
	bad[4] = 1L << 62;
	for (int i = 0; i < OFTEN; i++) {
		long p = bad[i % 5];

		CHECK_EQ(raw(SYS_clock_gettime, CLOCK_MONOTONIC, p, 0), -EFAULT);
		CHECK_EQ(raw(SYS_clock_gettime, CLOCK_REALTIME_COARSE, p, 0), -EFAULT);
		CHECK_EQ(raw(SYS_clock_gettime, CLOCK_REALTIME, 0, 0), -EFAULT);
		CHECK_EQ(raw(SYS_gettimeofday, p, 0, 0), -EFAULT);
		CHECK_EQ(raw(SYS_gettimeofday, 0, p == bad[2] ? 8 : p, 0), -EFAULT);
		CHECK_EQ(raw(SYS_gettimeofday, 0, 0, 0), 0);
		CHECK_EQ(raw(SYS_getcpu, p == bad[2] ? 8 : p, 0, 0), -EFAULT);
		CHECK_EQ(raw(SYS_getcpu, 0, 0, 0), 0);
	}
}

CONF_MAIN
