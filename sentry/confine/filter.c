/*
 * The sentry's seccomp allowlist: a row a call, with the reason it is there.
 * Anything else kills the process. Argument conditions narrow what a
 * compromised sentry could do with a call that it must have.
 */
#include "sentry/confine/confine.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <termios.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A sanitizer's run-time library makes calls of its own; release builds never have this. */
#ifdef MINISENTRY_SANITIZER
#define ON_VIOLATION SCMP_ACT_LOG
#else
#define ON_VIOLATION SCMP_ACT_KILL_PROCESS
#endif

enum condition {
	ANY,
	NO_EXEC,     /* mmap, mprotect: never PROT_EXEC in argument 2 */
	NO_FOLLOW,   /* openat: O_NOFOLLOW always, so a name is one component or fails on links */
	THREAD_ONLY, /* clone: CLONE_THREAD, never a new process */
	TTY_ONLY,    /* ioctl: the few requests on terminals and host descriptors */
	PTRACE_ONLY, /* only with the ptrace platform */
	PRCTL_NAME,  /* prctl: thread names */
};

struct filter_row {
	struct confine_rule rule;
	enum condition condition;
};

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
	ROW(copy_file_range, ANY, "copies between --rw files"),
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

static const u64 tty_requests[] = { TCGETS,	TCSETS,	  TCSETSW,   TCSETSF,
				    TIOCGWINSZ, FIONREAD, TIOCGPGRP, TIOCOUTQ };

size_t confine_filter_rules(const struct confine_rule **ret)
{
	static struct confine_rule rules[ARRAY_SIZE(rows)];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		rules[i] = rows[i].rule;
	*ret = rules;
	return ARRAY_SIZE(rows);
}

static int add_row(scmp_filter_ctx ctx, const struct filter_row *row, enum platform_kind kind)
{
	int nr = row->rule.nr, ret = 0;

	switch (row->condition) {
	case ANY:
		if (nr == __NR_clone3)
			return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), nr, 0);
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
	case NO_EXEC:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	case NO_FOLLOW:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A2(SCMP_CMP_MASKED_EQ, O_NOFOLLOW, O_NOFOLLOW));
	case THREAD_ONLY:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	case TTY_ONLY:
		for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(tty_requests); i++)
			ret = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					       SCMP_A1(SCMP_CMP_EQ, tty_requests[i], 0));
		return ret;
	case PRCTL_NAME:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME, 0));
	case PTRACE_ONLY:
		return kind == PLATFORM_PTRACE ? seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0) : 0;
	}
	return -EINVAL;
}

/* The compiled program. Set at start-up only, by one thread. */
static struct {
	struct sock_fprog prog; /* filter NULL: there is none */
	enum platform_kind kind;
} ready;

/* libseccomp writes its programs to descriptors. */
static int export_program(scmp_filter_ctx ctx, struct sock_fprog *ret)
{
	int fd = memfd_create("filter", MFD_CLOEXEC), err = fd < 0 ? -errno : 0;
	off_t size = 0;

	if (err == 0)
		err = seccomp_export_bpf(ctx, fd);
	if (err == 0) {
		size = lseek(fd, 0, SEEK_END);
		ret->len = (unsigned short)(size / (off_t)sizeof(*ret->filter));
		ret->filter = malloc((size_t)size);
		if (size <= 0 || !ret->filter || pread(fd, ret->filter, (size_t)size, 0) != size)
			err = -ENOMEM;
	}
	if (fd >= 0)
		close(fd);
	return err;
}

int confine_prepare_filter(enum platform_kind kind)
{
	scmp_filter_ctx ctx = seccomp_init(ON_VIOLATION);
	int ret = ctx ? 0 : -ENOMEM;

	free(ready.prog.filter);
	ready.prog.filter = NULL;
	for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(rows); i++)
		ret = add_row(ctx, &rows[i], kind);
	/* A balanced tree of comparisons instead of a list: the sentry calls often. */
	if (ret == 0)
		(void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (ret == 0)
		ret = export_program(ctx, &ready.prog);
	seccomp_release(ctx);
	if (ret < 0) {
		free(ready.prog.filter);
		ready.prog.filter = NULL;
	}
	ready.kind = kind;
	return ret;
}

int confine_load_filter(enum platform_kind kind, struct confine_state *state)
{
	long tid;
	int ret = 0;

	if (!ready.prog.filter || ready.kind != kind)
		ret = confine_prepare_filter(kind);
	if (ret < 0)
		return ret;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	tid = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &ready.prog);
	ret = tid < 0 ? -errno : tid > 0 ? -ECANCELED : 0; /* a thread that could not follow */
	free(ready.prog.filter);
	ready.prog.filter = NULL;
	if (ret < 0)
		return ret;
	state->seccomp = true;
	return 0;
}
