/*
 * Bad pointers: each system call that reads or writes guest memory, with addresses that are
 * unmapped, in the kernel's half, at the end of the address space, crossing into a hole, and (for
 * results) read-only: EFAULT, and the process lives.
 */
#include "conf.h"
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

#define PG 4096UL
/* NO_CROSS: a part before the hole is transferred, or alignment is looked at first. */
enum kind { IN = 1, OUT = 2, NO_CROSS = 4 };

static unsigned char *hole, *ro, *cross;
static int dirfd_, file, pipe_[2], sock, ep, tfd, evfd;

static void set_up(void)
{
	unsigned char *p =
		mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	hole = p + PG;
	OK(munmap(hole, PG));
	ro = p + 2 * PG;
	memset(ro, 0, PG);
	OK(mprotect(ro, PG, PROT_READ));
	cross = hole - 1; /* one good byte, then the hole */
	*cross = 'x';
	dirfd_ = OK(open(conf_tmpdir(), O_RDONLY | O_DIRECTORY));
	file = OK(open(conf_path("f"), O_RDWR | O_CREAT, 0600));
	CHECK_EQ(write(file, "0123456789", 10), 10);
	OK(lseek(file, 0, SEEK_SET));
	OK(pipe(pipe_));
	sock = OK(socket(AF_UNIX, SOCK_DGRAM, 0));
	ep = OK(epoll_create1(0));
	tfd = OK(timerfd_create(CLOCK_MONOTONIC, 0));
	evfd = OK(dup(pipe_[0]));
}

/* Calls nr with args where argument `at` is each bad address in turn. */
static void check_bad(const char *name, long nr, int at, enum kind kind, const long *args)
{
	set_up();
	const struct {
		const char *what;
		uintptr_t addr;
	} bad[] = { { "unmapped", (uintptr_t)hole },	{ "low", 8 },
		    { "kernel", 0xffff800000000000UL }, { "last page", 0xfffffffffffff000UL },
		    { "user end", 0x7ffffffff000UL },	{ "crossing", (uintptr_t)cross },
		    { "read-only", (uintptr_t)ro } };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		long a[6];
		memcpy(a, args, sizeof(a));
		if (bad[i].addr == (uintptr_t)ro && !(kind & OUT))
			continue;
		if (bad[i].addr == (uintptr_t)cross && (kind & NO_CROSS))
			continue;
		a[at] = (long)bad[i].addr;
		/* Descriptors are known only now. */
		for (int k = 0; k < 6; k++) {
			if (k == at)
				continue;
			switch (a[k]) {
			case -1001: a[k] = dirfd_; break;
			case -1002: a[k] = file; break;
			case -1003: a[k] = pipe_[0]; break;
			case -1004: a[k] = pipe_[1]; break;
			case -1005: a[k] = sock; break;
			case -1006: a[k] = ep; break;
			case -1007: a[k] = tfd; break;
			default: break;
			}
		}
		if (nr == SYS_read)
			CHECK_EQ(lseek(file, 0, SEEK_SET), 0);
		errno = 0;
		long r = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (r != -1 || errno != EFAULT)
			conf_fail(__FILE__, __LINE__,
				  "%s, %s pointer in argument %d: result %ld errno %d (%s)", name,
				  bad[i].what, at, r, errno, strerror(errno));
	}
}

#define DIRFD -1001
#define FILE_ -1002
#define PIPER -1003
#define PIPEW -1004
#define SOCK -1005
#define EPOLL -1006
#define TIMER -1007
#define BAD(case_, name_, at_, kind_, ...)                                                         \
	CASE(case_)                                                                                \
	{                                                                                          \
		static char buf[65536] __attribute__((aligned(64)));                               \
		(void)buf;                                                                         \
		long args[6] = { __VA_ARGS__ };                                                    \
		check_bad(#name_, SYS_##name_, at_, (enum kind)(kind_), args);                     \
	}
#define P(x) ((long)(uintptr_t)(x))

BAD(read_buf, read, 1, OUT | NO_CROSS, FILE_, 0, 8)
BAD(pread64_buf, pread64, 1, OUT | NO_CROSS, FILE_, 0, 8, 0)
BAD(readv_iov, readv, 1, IN, FILE_, 0, 2)
BAD(writev_iov, writev, 1, IN, FILE_, 0, 2)
BAD(open_path, open, 0, IN, 0, O_RDONLY)
BAD(openat_path, openat, 1, IN, DIRFD, 0, O_RDONLY)
BAD(openat2_how, openat2, 2, IN, DIRFD, P("f"), 0, sizeof(struct open_how))
BAD(stat_path, stat, 0, IN, 0, P(buf))
BAD(stat_buf, stat, 1, OUT, P("/"), 0)
BAD(lstat_buf, lstat, 1, OUT, P("/"), 0)
BAD(fstat_buf, fstat, 1, OUT, FILE_, 0)
BAD(newfstatat_path, newfstatat, 1, IN, DIRFD, 0, P(buf), 0)
BAD(newfstatat_buf, newfstatat, 2, OUT, DIRFD, P("f"), 0, 0)
BAD(statx_path, statx, 1, IN, DIRFD, 0, 0, 0x7ff, P(buf))
BAD(statx_buf, statx, 4, OUT, DIRFD, P("f"), 0, 0x7ff, 0)
BAD(statfs_buf, statfs, 1, OUT, P("/"), 0)
BAD(fstatfs_buf, fstatfs, 1, OUT, FILE_, 0)
BAD(access_path, access, 0, IN, 0, 0)
BAD(faccessat_path, faccessat, 1, IN, DIRFD, 0, 0)
BAD(mkdir_path, mkdir, 0, IN, 0, 0700)
BAD(rmdir_path, rmdir, 0, IN, 0)
BAD(unlink_path, unlink, 0, IN, 0)
BAD(unlinkat_path, unlinkat, 1, IN, DIRFD, 0, 0)
BAD(rename_old, rename, 0, IN, 0, P("x"))
BAD(rename_new, rename, 1, IN, P("/none"), 0)
BAD(renameat2_new, renameat2, 3, IN, DIRFD, P("f"), DIRFD, 0, 0)
BAD(link_old, link, 0, IN, 0, P("x"))
BAD(link_new, linkat, 3, IN, DIRFD, P("f"), DIRFD, 0, 0)
BAD(symlink_target, symlink, 0, IN, 0, P("/tmp/never"))
BAD(symlink_path, symlink, 1, IN, P("t"), 0)
BAD(readlink_path, readlink, 0, IN, 0, P(buf), 100)
BAD(readlink_buf, readlink, 1, OUT, P("/proc/self/exe"), 0, 100)
BAD(chmod_path, chmod, 0, IN, 0, 0600)
BAD(chown_path, chown, 0, IN, 0, -1, -1)
BAD(truncate_path, truncate, 0, IN, 0, 0)
BAD(chdir_path, chdir, 0, IN, 0)
BAD(getcwd_buf, getcwd, 0, OUT, 0, 4096)
BAD(utimensat_path, utimensat, 1, IN, DIRFD, 0, 0, AT_SYMLINK_NOFOLLOW)
BAD(utimensat_times, utimensat, 2, IN, DIRFD, P("f"), 0, 0)
BAD(mknod_path, mknod, 0, IN, 0, S_IFREG | 0600, 0)
BAD(getdents64_buf, getdents64, 1, OUT, DIRFD, 0, 4096)
BAD(getxattr_path, getxattr, 0, IN, 0, P("user.a"), P(buf), 10)
BAD(getxattr_name, getxattr, 1, IN, P("/"), 0, P(buf), 10)
BAD(setxattr_value, fsetxattr, 2, IN, FILE_, P("user.a"), 0, 10, 0)
BAD(pipe_fds, pipe, 0, OUT, 0)
BAD(pipe2_fds, pipe2, 0, OUT, 0, 0)
BAD(sendfile_offset, sendfile, 2, OUT, PIPEW, FILE_, 0, 4)
BAD(copy_file_range_off, copy_file_range, 1, IN, FILE_, 0, FILE_, 0, 4, 0)
BAD(poll_fds, poll, 0, IN, 0, 2, 0)
BAD(ppoll_timeout, ppoll, 2, IN, 0, 0, 0, 0, 8)
BAD(select_set, select, 1, IN, 64, 0, 0, 0, 0)
BAD(epoll_ctl_event, epoll_ctl, 3, IN, EPOLL, EPOLL_CTL_ADD, PIPER, 0)
BAD(socketpair_fds, socketpair, 3, OUT, AF_UNIX, SOCK_STREAM, 0, 0)
BAD(bind_addr, bind, 1, IN, SOCK, 0, 16)
BAD(connect_addr, connect, 1, IN, SOCK, 0, 16)
BAD(getsockname_len, getsockname, 2, OUT, SOCK, P(buf), 0)
BAD(sendto_addr, sendto, 4, IN, SOCK, P(buf), 1, 0, 0, 16)
BAD(sendmsg_msg, sendmsg, 1, IN, SOCK, 0, 0)
BAD(recvmsg_msg, recvmsg, 1, IN, SOCK, 0, MSG_DONTWAIT)
BAD(setsockopt_value, setsockopt, 3, IN, SOCK, SOL_SOCKET, SO_PASSCRED, 0, 4)
BAD(getsockopt_len, getsockopt, 4, OUT, SOCK, SOL_SOCKET, SO_TYPE, P(buf), 0)
BAD(nanosleep_req, nanosleep, 0, IN, 0, 0)
BAD(clock_gettime_buf, clock_gettime, 1, OUT, CLOCK_MONOTONIC, 0)
BAD(clock_getres_buf, clock_getres, 1, OUT, CLOCK_MONOTONIC, 0)
BAD(clock_nanosleep_req, clock_nanosleep, 2, IN, CLOCK_MONOTONIC, 0, 0, 0)
BAD(gettimeofday_buf, gettimeofday, 0, OUT, 0, 0)
BAD(timer_create_id, timer_create, 2, OUT, CLOCK_MONOTONIC, 0, 0)
BAD(timerfd_settime_new, timerfd_settime, 2, IN, TIMER, 0, 0, 0)
BAD(timerfd_gettime_buf, timerfd_gettime, 1, OUT, TIMER, 0)
BAD(setitimer_new, setitimer, 1, IN, 0, 0, 0)
BAD(getitimer_buf, getitimer, 1, OUT, 0, 0)
BAD(rt_sigaction_new, rt_sigaction, 1, IN, SIGUSR1, 0, 0, 8)
BAD(rt_sigaction_old, rt_sigaction, 2, OUT, SIGUSR1, 0, 0, 8)
BAD(rt_sigprocmask_new, rt_sigprocmask, 1, IN, SIG_BLOCK, 0, 0, 8)
BAD(rt_sigprocmask_old, rt_sigprocmask, 2, OUT, SIG_BLOCK, 0, 0, 8)
BAD(rt_sigpending_set, rt_sigpending, 0, OUT, 0, 8)
BAD(rt_sigtimedwait_set, rt_sigtimedwait, 0, IN, 0, 0, 0, 8)
BAD(rt_sigsuspend_set, rt_sigsuspend, 0, IN, 0, 8)
BAD(rt_sigqueueinfo_info, rt_sigqueueinfo, 2, IN, 0, SIGUSR1, 0)
BAD(sigaltstack_new, sigaltstack, 0, IN, 0, 0)
BAD(sigaltstack_old, sigaltstack, 1, OUT, 0, 0)
BAD(uname_buf, uname, 0, OUT, 0)
BAD(sysinfo_buf, sysinfo, 0, OUT, 0)
BAD(getrusage_buf, getrusage, 1, OUT, 0, 0)
BAD(getrlimit_buf, getrlimit, 1, OUT, 7, 0)
BAD(setrlimit_buf, setrlimit, 1, IN, 7, 0)
BAD(prlimit64_old, prlimit64, 3, OUT, 0, 7, 0, 0)
BAD(times_buf, times, 0, OUT, 0)
BAD(getresuid_first, getresuid, 0, OUT, 0, P(buf), P(buf))
BAD(getresgid_last, getresgid, 2, OUT, P(buf), P(buf), 0)
BAD(capget_header, capget, 0, IN, 0, P(buf))
BAD(sched_getaffinity_mask, sched_getaffinity, 2, OUT, 0, 8, 0)
BAD(sched_setaffinity_mask, sched_setaffinity, 2, IN, 0, 8, 0)
BAD(sched_getparam_buf, sched_getparam, 1, OUT, 0, 0)
BAD(getrandom_buf, getrandom, 0, OUT | NO_CROSS, 0, 16, 0)
BAD(mincore_vec, mincore, 2, OUT, P(buf) & ~4095L, 8192, 0)
BAD(execve_path, execve, 0, IN, 0, 0, 0)
BAD(execve_argv, execve, 1, IN, P("/bin/true"), 0, 0)
BAD(execve_envp, execve, 2, IN, P("/bin/true"), 0, 0)
BAD(clone3_args, clone3, 0, IN, 0, sizeof(struct clone_args))
BAD(futex_word, futex, 0, IN | NO_CROSS, 0, 0, 0, 0, 0, 0)
BAD(memfd_create_name, memfd_create, 0, IN, 0, 0)
BAD(prctl_set_name, prctl, 1, IN, 15, 0)
BAD(prctl_get_name, prctl, 1, OUT, 16, 0)
BAD(arch_prctl_get_fs, arch_prctl, 1, OUT, 0x1003, 0)
BAD(fcntl_getlk, fcntl, 2, IN, FILE_, F_GETLK, 0)
BAD(ioctl_fionread, ioctl, 2, OUT, PIPER, 0x541b, 0)
BAD(get_robust_list_head, get_robust_list, 1, OUT, 0, 0, P(buf))
BAD(getgroups_list, setgroups, 1, IN, 4, 0)
BAD(process_vm_readv_local, process_vm_readv, 1, IN, 0, 0, 1, P(buf), 1, 0)

CASE(strings_may_end_at_a_hole)
{
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(munmap(p + PG, PG));
	strcpy(p + PG - 2, "/");
	struct stat st;
	OK(stat(p + PG - 2, &st));
	memset(p + PG - 100, '/', 100);
	CHECK_ERR(stat(p + PG - 100, &st), EFAULT);
}
CASE(results_may_end_at_a_hole)
{
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	OK(munmap(p + PG, PG));
	OK(clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(p + PG - sizeof(struct timespec))));
	OK(syscall(SYS_uname, p + PG - 390));
}
static void huge_counts(void *arg)
{
	static char buf[64];
	(void)arg;
	syscall(SYS_poll, buf, 0xffffffffUL, 0);
	syscall(SYS_readv, 0, buf, 0x7fffffffffffffffUL);
	syscall(SYS_select, 0x7fffffff, buf, 0, 0, buf);
	syscall(SYS_setgroups, 0x7fffffff, buf);
	syscall(SYS_getgroups, 0x7fffffff, buf);
	syscall(SYS_epoll_wait, 0, buf, 0x7fffffff, 0);
	syscall(SYS_sendmmsg, 0, buf, 0xffffffffU, 0);
	syscall(SYS_getdents64, 0, buf, 0xffffffffUL);
	syscall(SYS_getrandom, (void *)0x1000, 0x7ffffffffffUL, 0);
	syscall(SYS_mincore, buf, 0x7ffffffff000UL, buf);
	syscall(SYS_msync, 0, 0x7ffffffff000UL, 0);
	syscall(SYS_madvise, 0, 0x7ffffffff000UL, 3);
	syscall(SYS_process_vm_readv, getpid(), buf, 0x7fffffff, buf, 0x7fffffff, 0);
	syscall(SYS_sched_setaffinity, 0, 0x7fffffffU, buf);
	syscall(SYS_setxattr, "/", "user.x", buf, 0x7fffffffffffUL, 0);
	syscall(SYS_listxattr, "/", buf, 0x7fffffffffffUL);
	syscall(SYS_fallocate, 0, 0, 0x7fffffffffffffffL, 0x7fffffffffffffffL);
	syscall(SYS_splice, 0, 0, 1, 0, 0xffffffffffffffffUL, 0);
}
CASE(huge_counts_do_no_harm)
{
	conf_signal_of(huge_counts, NULL);
}
CONF_MAIN
