/*
 * The sentry's seccomp allowlist: a row a call, with the reason it is there.
 * Anything else kills the process. Argument conditions narrow what a
 * compromised sentry could do with a call that it must have.
 */
#include "sentry/confine/filter_table.h"
#include <sys/syscall.h>

#define ROW(name_, condition_, why_)                                                               \
	{                                                                                          \
		{ __NR_##name_, #name_, why_ }, condition_                                         \
	}

static const struct filter_row rows[] = {
	/* memory */
	ROW(mmap, NO_EXEC, "memory file chunks, thread stacks, heap"),
	ROW(munmap, ANY, "stacks of ended threads, heap"),
	ROW(mprotect, NO_EXEC, "heap growth and stack guards of malloc"),
	ROW(mremap, ANY, "realloc of big blocks"),
	ROW(brk, ANY, "malloc"),
	ROW(madvise, ANY, "populate memory-file pages, release heap and stacks"),
	ROW(mincore, ANY, "find committed pages when copy-on-write is broken"),
	ROW(sysinfo, ANY, "the same: whether any of them may be swapped out"),
	ROW(fallocate, ANY, "commit and punch memory-file pages; fallocate on --rw files"),
	ROW(ftruncate, ANY, "grow the memory file; truncate --rw files"),
	ROW(lseek, ANY, "SEEK_DATA on memory files; offsets of inherited files"),
	/* files */
	ROW(openat, NO_FOLLOW, "hostfs: one component beneath a held directory"),
	ROW(close, ANY, "hostfs descriptors"),
	ROW(read, ANY, "inherited descriptors, event counters"),
	ROW(write, ANY, "inherited descriptors, event counters, the log"),
	ROW(readv, ANY, "inherited descriptors"),
	ROW(writev, ANY, "inherited descriptors"),
	ROW(pread64, ANY, "hostfs reads, page cache, disk-backed memory files"),
	ROW(pwrite64, ANY, "writes to --rw files, disk-backed memory files"),
	ROW(preadv, ANY, "hostfs reads straight into guest memory"),
	ROW(pwritev, ANY, "--rw writes straight from guest memory"),
	ROW(preadv2, ANY, "reads of inherited descriptors that must not block"),
	ROW(pwritev2, ANY, "writes to inherited descriptors that must not block"),
	ROW(fstat, ANY, "hostfs attributes"),
	ROW(newfstatat, ANY, "hostfs attributes of a name"),
	ROW(statx, ANY, "hostfs attributes with birth time"),
	ROW(fstatfs, ANY, "statfs of hostfs"),
	ROW(getdents64, ANY, "hostfs directories"),
	ROW(readlinkat, ANY, "hostfs symlinks"),
	ROW(faccessat2, ANY, "what the caller may do with a hostfs file"),
	ROW(mkdirat, ANY, "--rw"),
	ROW(mknodat, ANY, "--rw: FIFOs and sockets"),
	ROW(unlinkat, ANY, "--rw"),
	ROW(renameat2, ANY, "--rw"),
	ROW(linkat, ANY, "--rw"),
	ROW(symlinkat, ANY, "--rw"),
	ROW(fchmod, ANY, "--rw"),
	ROW(fchmodat, ANY, "--rw"),
	{ { 452, "fchmodat2", "--rw: modes of symlinks are refused, not followed" }, ANY },
	ROW(fchown, ANY, "--rw"),
	ROW(fchownat, ANY, "--rw"),
	ROW(utimensat, ANY, "--rw"),
	ROW(fsync, ANY, "--rw: fsync reaches the host"),
	ROW(fdatasync, ANY, "--rw: fdatasync reaches the host"),
	ROW(fgetxattr, ANY, "extended attributes of hostfs files"),
	ROW(fsetxattr, ANY, "--rw"),
	ROW(flistxattr, ANY, "extended attributes of hostfs files"),
	ROW(fremovexattr, ANY, "--rw"),
	ROW(copy_file_range, ANY, "copies between --rw files and within memory files"),
	ROW(fcntl, ANY, "close-on-exec, flags of inherited descriptors"),
	ROW(dup, ANY, "hostfs descriptors"),
	ROW(ioctl, TTY_ONLY, "the host terminal: settings, window size, bytes waiting"),
	/* waiting */
	ROW(futex, ANY, "locks, sleeping tasks, hand-over to stubs"),
	ROW(ppoll, ANY, "the terminal relay"),
	ROW(poll, ANY, "readiness of inherited descriptors"),
	ROW(epoll_wait, ANY, "watcher of inherited descriptors"),
	ROW(epoll_pwait, ANY, "watcher of inherited descriptors"),
	ROW(epoll_ctl, ANY, "watcher of inherited descriptors"),
	ROW(epoll_create1, ANY, "watcher of inherited descriptors"),
	ROW(eventfd2, ANY, "completion counter of a stub's mapper, wake-ups of service threads"),
	ROW(nanosleep, ANY, "bounded back-off"),
	ROW(clock_nanosleep, ANY, "bounded back-off"),
	ROW(clock_gettime, ANY, "CPU clocks of stubs; where the vDSO does not answer"),
	ROW(clock_getres, ANY, "clock resolutions shown to the guest"),
	ROW(gettimeofday, ANY, "where the vDSO does not answer"),
	/* threads and signals */
	ROW(clone, THREAD_ONLY, "a thread for each guest task"),
	ROW(clone3, ANY,
	    "answered with ENOSYS so that libc uses clone, whose flags can be checked"),
	ROW(set_robust_list, ANY, "thread start"),
	ROW(rseq, ANY, "thread start"),
	ROW(gettid, ANY, "thread identity"),
	ROW(getpid, ANY, "raise, abort"),
	ROW(exit, ANY, "thread end"),
	ROW(exit_group, ANY, "end"),
	ROW(rt_sigprocmask, ANY, "thread start, abort"),
	ROW(rt_sigaction, ANY, "abort; recovery of guest memory faults"),
	ROW(rt_sigreturn, ANY, "return from the fault handler"),
	ROW(rt_sigtimedwait, ANY, "signals from outside"),
	ROW(sigaltstack, ANY, "thread end"),
	ROW(tgkill, ANY, "interrupt a stub thread, wake the main thread, abort"),
	ROW(kill, ANY, "end a stub"),
	ROW(wait4, ANY, "reap stubs; ptrace stops"),
	ROW(waitid, ANY, "ptrace: is a killed thread gone"),
	ROW(restart_syscall, ANY, "a wait interrupted by a stop of the whole process"),
	ROW(sched_yield, ANY, "spinning politely"),
	ROW(sched_getaffinity, ANY, "libc's count of processors"),
	ROW(sched_setaffinity, ANY, "affinity of guest threads"),
	ROW(membarrier, ANY, "membarrier of the guest"),
	ROW(getcpu, ANY, "spinning only while another core answers"),
	ROW(prctl, PRCTL_NAME, "thread names"),
	ROW(getrandom, ANY, "randomness for the guest"),
	/* channels */
	ROW(sendmsg, ANY, "descriptors for a new stub"),
	ROW(recvfrom, ANY, "the zygote's answers"),
	ROW(pidfd_open, ANY, "notice a stub's death"),
	ROW(ptrace, PTRACE_ONLY, "the ptrace platform"),
};

size_t filter_table(const struct filter_row **ret)
{
	*ret = rows;
	return ARRAY_SIZE(rows);
}

size_t confine_filter_rules(const struct confine_rule **ret)
{
	static struct confine_rule rules[ARRAY_SIZE(rows)];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		rules[i] = rows[i].rule;
	*ret = rules;
	return ARRAY_SIZE(rows);
}
