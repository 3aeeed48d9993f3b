/*
 * The host calls that the sentry's side of platform/ makes after
 * platform_start: sentry/confine builds its allowlist from this table.
 */
#include "platform/stub_calls.h"
#include <asm/unistd.h>

static const struct host_call_reason reasons[] = {
	{ __NR_futex, "hand over to stubs, wait for them" },
	{ __NR_sendmsg, "ask the zygote for a stub" },
	{ __NR_recvfrom, "the zygote's answer" },
	{ __NR_ppoll, "wait for the zygote and for mappers, with a limit" },
	{ __NR_eventfd2, "completion of a mapper's commands" },
	{ __NR_read, "read that eventfd" },
	{ __NR_write, "stop the reaper thread" },
	{ __NR_pidfd_open, "notice a stub's death" },
	{ __NR_epoll_ctl, "the reaper's set of pidfds" },
	{ __NR_epoll_pwait, "the reaper waits" },
	{ __NR_close, "a dead stub's descriptors" },
	{ __NR_fallocate, "commit and give back control slots" },
	{ __NR_kill, "kill a stub" },
	{ __NR_tgkill, "interrupt a guest thread; is it still there" },
	{ __NR_wait4, "reap stubs; ptrace stops" },
	{ __NR_waitid, "ptrace: is a killed thread gone" },
	{ __NR_ptrace, "the ptrace platform" },
	{ __NR_clock_gettime, "CPU time of stubs (others are answered by the vDSO)" },
	{ __NR_getcpu, "spin only while the stub is on another core (if without rseq)" },
	{ __NR_sched_getaffinity,
	  "leave the CPU of a stub that is waited for by spinning; which CPUs there are" },
	{ __NR_sched_setaffinity, "the same; put stubs and owners on a pair of CPUs" },
	{ __NR_mmap, "heap" },
	{ __NR_munmap, "heap" },
	{ __NR_madvise, "heap" },
	{ __NR_brk, "heap" },
	{ __NR_mprotect, "heap of threads" },
};

const struct host_call_reason *platform_host_calls(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(reasons);
	return reasons;
}
