/*
 * sentry/sys/strace.h: --strace: a line per system call, in the manner of strace(1).
 *
 *	strace_enter(t, nr, a, &line);    decodes the arguments before the call can change memory
 *	strace_leave(t, &line, ret);      adds the result, writes the line to kernel->strace_fd
 *
 * Argument letters (syscall.h): d int, u unsigned, l long, x hex, p pointer,
 * s string, f descriptor (AT_FDCWD by name), o octal, z size, S signal,
 * t timespec.
 */
#ifndef MINISENTRY_SENTRY_SYS_STRACE_H
#define MINISENTRY_SENTRY_SYS_STRACE_H

#include "sentry/sys/syscall.h"

#define STRACE_LINE_MAX 512

struct strace_line {
	char text[STRACE_LINE_MAX];
	size_t len;
};

/* The run's filter wants this call. */
bool strace_wanted(struct kernel *k, u64 nr);
void strace_enter(struct task *t, u64 nr, const u64 a[6], struct strace_line *line);
void strace_leave(struct task *t, struct strace_line *line, s64 ret);
/* "read", or NULL. */
const char *sys_name(u64 nr);
/* "ENOENT"; NULL for an unknown number. */
const char *errno_name(int e);
/* "SIGTERM", or NULL. */
const char *signal_name(int sig);

#endif
