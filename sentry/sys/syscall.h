/*
 * sentry/sys/syscall.h: the system call table.
 *
 * One table (table.c) drives dispatch, --strace, docs/SYSCALLS.md and
 * `minisentry syscalls`. A handler decodes its arguments, fetches each piece of
 * guest memory once, and calls the module that owns the matter. It returns the
 * result or -errno (also -ERESTART* from task_block, unchanged).
 *
 * Argument formats, one letter an argument: d int, u unsigned, l long, x hex,
 * p pointer, s string (path or text), f fd, o octal mode, z size, S signal,
 * t pointer to timespec, and what strace.c documents.
 */
#ifndef MINISENTRY_SENTRY_SYS_SYSCALL_H
#define MINISENTRY_SENTRY_SYS_SYSCALL_H

#include "sentry/fd/fdtable.h"
#include "sentry/kernel/kernel.h"
#include "sentry/task/task.h"

typedef s64 sys_fn(struct task *t, const u64 a[6]);

enum sys_support { SYS_MISSING, SYS_FULL, SYS_PARTIAL, SYS_STUB };

struct sys_entry {
	const char *name;
	sys_fn *fn;
	const char *args;
	enum sys_support support;
	const char *note;
};

#define SYS_TABLE_SIZE 480
extern const struct sys_entry sys_table[SYS_TABLE_SIZE];

/* Serves one system call of the current task: dispatch, strace, guest seccomp, missing-call log. */
s64 sys_dispatch(struct task *t, u64 nr, const u64 a[6]);

/* Helpers of the handlers. */

/* Copies a path argument into t->scratch_path-like storage `dst` of PATH_MAX. 0, -EFAULT,
 * -ENAMETOOLONG. */
int sys_copy_path(struct task *t, uaddr path, char *dst);
/*
 * A walk context from the current task and dirfd (AT_FDCWD or a descriptor), good until walk_end.
 * path decides: absolute paths ignore dirfd. -EBADF, -ENOTDIR. It holds references only on what
 * another task could take away: the credentials are the task's own to change, root and cwd too
 * while no CLONE_FS shares them.
 */
struct sys_walk {
	struct walk_context w;
	struct path root, cwd; /* references, if counted */
	bool counted;
	struct fd_ref dir; /* where w.cwd is from a descriptor */
};
int sys_walk_begin(struct task *t, int dirfd, const char *path, struct sys_walk *ret);
void sys_walk_end(struct sys_walk *w);
/* path from guest + walk, in one: returns the path (references). flags: AT_SYMLINK_NOFOLLOW,
 * AT_EMPTY_PATH (also with an fd that is not a directory). */
int sys_path_at(struct task *t, int dirfd, uaddr path, int at_flags, struct path *ret);
/* Opens a path for the sentry itself on behalf of t (exec). */

/* Timespec from the guest -> absolute deadline for task_block. NULL address: NO_DEADLINE. -EFAULT,
 * -EINVAL. */
int sys_deadline_in(struct task *t, uaddr ts, u64 *ret_deadline);
int sys_deadline_from(const struct timespec *ts, u64 *ret_deadline);
/* Writes back the remaining time (select, ppoll, clock_nanosleep). */
int sys_remaining_out(struct task *t, uaddr ts, u64 deadline);
int sys_timespec_in(struct task *t, uaddr a, struct timespec *ret);
int sys_timespec_out(struct task *t, uaddr a, const struct timespec *ts);
/* sigset argument with its size: -EINVAL unless size is 8. SIGKILL and SIGSTOP removed. */
int sys_sigset_in(struct task *t, uaddr set, u64 size, u64 *ret);

/* [addr, addr + len) is the last that has a removed segment of shared memory attached. */
bool sys_shm_ends(struct task *t, u64 addr, u64 len);

/* Pins guest memory for I/O in bounded pieces; see sys_iov.c. */
#define SYS_IOV_SEGS 64
#define MAX_RW_COUNT 0x7ffff000UL /* no call moves more */
struct sys_iov {
	struct iovec *guest; /* guest segments: iov_base is a guest address */
	int guest_count;
	size_t total; /* clipped to MAX_RW_COUNT */
	struct iovec inline_seg[8];
};
/* From a guest iovec array (readv & co.) or one buffer. -EINVAL (an array), -EFAULT, -ENOMEM. */
int sys_iov_import(struct task *t, uaddr iov, u64 vlen, struct sys_iov *ret);
int sys_iov_single(struct task *t, uaddr buf, u64 len, struct sys_iov *ret);
void sys_iov_free(struct sys_iov *iov);
/*
 * Runs op over [skip, total) of the guest segments, piece by piece: each piece is pinned, op moves
 * bytes through the kiov. Stops at a short transfer, an error or the end. Bytes moved, or the first
 * error if none. whole: one piece must cover everything (datagrams): up to `SYS_IOV_WHOLE_MAX`
 * bytes, else -EMSGSIZE.
 */
#define SYS_IOV_WHOLE_MAX (4UL << 20)
ssize_t sys_iov_transfer(struct task *t, const struct sys_iov *iov, size_t skip, bool to_guest,
			 bool whole, ssize_t (*op)(void *arg, struct kiov *k), void *arg);

#endif
