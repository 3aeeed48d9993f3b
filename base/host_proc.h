/*
 * base/host_proc.h: host processes and threads: signals, waits, ptrace.
 *
 * Results are 0 or positive, or -errno. Waits are repeated on EINTR.
 */
#ifndef MINISENTRY_BASE_HOST_PROC_H
#define MINISENTRY_BASE_HOST_PROC_H

#include "base/types.h"
#include <signal.h>
#include <sys/user.h>

int host_kill(int pid, int sig);
int host_tgkill(int pid, int tid, int sig);
/* pidfd_open: close-on-exec descriptor, readable once the process is dead. */
int host_pidfd_open(int pid);
/* Reaps the child pid (its whole thread group is gone). 0, -ECHILD. */
int host_reap(int pid);
/* waitid(WEXITED|WNOWAIT|__WALL): waits until thread or child `tid` has exited; does not reap. */
int host_wait_exit_peek(int tid);
/* wait4(tid, __WALL | flags): tid, or 0 with WNOHANG. */
int host_wait_tid(int tid, int flags, int *ret_status);

int host_ptrace_seize(int tid, u64 options);
int host_ptrace_cont(int request, int tid, int sig);
int host_ptrace_getregs(int tid, struct user_regs_struct *ret);
int host_ptrace_setregs(int tid, const struct user_regs_struct *regs);
/* NT_* register sets: get returns the size that the kernel filled. */
ssize_t host_ptrace_getregset(int tid, int note, void *buf, size_t size);
int host_ptrace_setregset(int tid, int note, const void *buf, size_t size);
int host_ptrace_getsiginfo(int tid, siginfo_t *ret);
/* AUDIT_ARCH_* of the system call at a syscall stop, or -errno. */
s64 host_ptrace_syscall_arch(int tid);

#endif
