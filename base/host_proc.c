#include "base/host_proc.h"
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

int host_kill(int pid, int sig)
{
	return kill(pid, sig) < 0 ? -errno : 0;
}

int host_tgkill(int pid, int tid, int sig)
{
	return syscall(SYS_tgkill, pid, tid, sig) < 0 ? -errno : 0;
}

int host_pidfd_open(int pid)
{
	long fd = syscall(SYS_pidfd_open, pid, 0);

	return fd < 0 ? -errno : (int)fd;
}

int host_reap(int pid)
{
	int status, n;

	do
		n = waitpid(pid, &status, __WALL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int host_wait_exit_peek(int tid)
{
	siginfo_t info;
	int n;

	do
		n = waitid(P_PID, (id_t)tid, &info, WEXITED | WNOWAIT | __WALL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int host_wait_tid(int tid, int flags, int *ret_status)
{
	int status = 0, n;

	do
		n = waitpid(tid, &status, __WALL | flags);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	*ret_status = status;
	return n;
}

static long trace(int request, int tid, void *addr, void *data)
{
	long n = ptrace((enum __ptrace_request)request, tid, addr, data);

	return n < 0 ? -errno : n;
}

int host_ptrace_seize(int tid, u64 options)
{
	return (int)trace(PTRACE_SEIZE, tid, NULL, (void *)options);
}

int host_ptrace_cont(int request, int tid, int sig)
{
	return (int)trace(request, tid, NULL, (void *)(long)sig);
}

int host_ptrace_getregs(int tid, struct user_regs_struct *ret)
{
	return (int)trace(PTRACE_GETREGS, tid, NULL, ret);
}

int host_ptrace_setregs(int tid, const struct user_regs_struct *regs)
{
	return (int)trace(PTRACE_SETREGS, tid, NULL, (void *)regs);
}

ssize_t host_ptrace_getregset(int tid, int note, void *buf, size_t size)
{
	struct iovec iov = { buf, size };
	long n = trace(PTRACE_GETREGSET, tid, (void *)(long)note, &iov);

	return n < 0 ? n : (ssize_t)iov.iov_len;
}

int host_ptrace_setregset(int tid, int note, const void *buf, size_t size)
{
	struct iovec iov = { (void *)buf, size };

	return (int)trace(PTRACE_SETREGSET, tid, (void *)(long)note, &iov);
}

int host_ptrace_getsiginfo(int tid, siginfo_t *ret)
{
	return (int)trace(PTRACE_GETSIGINFO, tid, NULL, ret);
}

s64 host_ptrace_syscall_arch(int tid)
{
	struct __ptrace_syscall_info info;
	long n = trace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof(info), &info);

	return n < 0 ? n : (s64)info.arch;
}
