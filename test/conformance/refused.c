/* System calls that are refused: unknown ones, by int 0x80, by the caller's own seccomp filters. */
#include "conf.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

CASE(unknown_syscalls)
{
	CHECK_ERR(syscall(9999), ENOSYS);
	CHECK_ERR(syscall(-1), ENOSYS);
	CHECK_ERR(syscall(0x40000000L + 39), ENOSYS);
}
static void compat_call(void *arg)
{
	long r = 20; /* getpid in the 32-bit table */
	(void)arg;
	__asm__ volatile("int $0x80" : "+a"(r)::"memory");
}
CASE(int80_does_no_harm)
{
	int sig = conf_signal_of(compat_call, NULL);
	CHECK(sig == 0 || sig == SIGSEGV || sig == SIGSYS);
}

/* ---- seccomp inside ---- */
static void install(uint32_t action)
{
	struct sock_filter f[] = { { BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 },
				   { BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_getppid },
				   { BPF_RET | BPF_K, 0, 0, action },
				   { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW } };
	struct sock_fprog prog = { 4, f };
	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog));
}
CASE(seccomp_errno)
{
	install(SECCOMP_RET_ERRNO | 77);
	CHECK_ERR(syscall(SYS_getppid), 77);
	CHECK(getpid() > 0);
}
static void killed_by_filter(void *arg)
{
	(void)arg;
	install(SECCOMP_RET_KILL_PROCESS);
	syscall(SYS_getppid);
}
CASE(seccomp_kill)
{
	CHECK_EQ(conf_signal_of(killed_by_filter, NULL), SIGSYS);
}
static volatile int sys_nr;
static void on_sys(int sig, siginfo_t *si, void *u)
{
	(void)sig;
	(void)u;
	sys_nr = si->si_syscall;
}
CASE(seccomp_trap)
{
	struct sigaction sa = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };
	OK(sigaction(SIGSYS, &sa, NULL));
	install(SECCOMP_RET_TRAP);
	syscall(SYS_getppid);
	CHECK_EQ(sys_nr, SYS_getppid);
}
static void strict(void *arg)
{
	(void)arg;
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	syscall(SYS_getppid);
	syscall(SYS_exit, 0);
}
CASE(seccomp_strict)
{
	CHECK_EQ(conf_signal_of(strict, NULL), SIGKILL);
}
CASE(seccomp_errors)
{
	CHECK_ERR(syscall(SYS_seccomp, 99, 0, NULL), EINVAL);
	CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (void *)1), EFAULT);
	uint32_t a = SECCOMP_RET_TRAP, b = 0x12340000;
	OK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &a));
	CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &b), EOPNOTSUPP);
}
CONF_MAIN
