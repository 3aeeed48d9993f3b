/*
 * sentry/sys/sys_file.h: what the file system call families share.
 *
 * A handler takes a file by fd_get (a reference), works, and puts it. Blocking
 * goes through sys_rw_iov and sys_wait_file, which hold no lock while they sleep.
 */
#ifndef MINISENTRY_SENTRY_SYS_SYS_FILE_H
#define MINISENTRY_SENTRY_SYS_SYS_FILE_H

#include "sentry/sys/syscall.h"

/* The kernel's O_LARGEFILE: glibc's is 0 on x86-64, but F_GETFL shows this one. */
#define KERNEL_O_LARGEFILE 0100000

#define POLL_IN_EVENTS (EPOLLIN | EPOLLRDNORM | EPOLLHUP | EPOLLERR | EPOLLRDHUP)
#define POLL_OUT_EVENTS (EPOLLOUT | EPOLLWRNORM | EPOLLHUP | EPOLLERR)

/* ---- sys_rw.c ---- */

struct sys_rw {
	bool write;
	bool nonblock;	   /* besides the file's own O_NONBLOCK */
	const u64 *offset; /* NULL: the file's position */
	int flags;	   /* RWF_* */
	bool some;	   /* a write that waits for room only while it has written nothing */
};
/*
 * Moves bytes between the guest's segments and f, waiting as the file demands,
 * raising SIGPIPE and SIGXFSZ. Bytes, or -errno when none were moved.
 */
s64 sys_rw_iov(struct task *t, struct file *f, const struct sys_iov *iov, const struct sys_rw *rw);
/* Writes a sentry buffer as a guest's write would (blocking, signals). *io_offset NULL: position.
 */
s64 sys_write_buf(struct task *t, struct file *f, void *buf, size_t len, u64 *io_offset,
		  bool nonblock);
/* Sends SIGXFSZ after -EFBIG from a limit and SIGPIPE after -EPIPE; returns err. */
s64 sys_write_failed(struct task *t, s64 err);
/* -EFBIG with SIGXFSZ when inode would grow to a `size` above RLIMIT_FSIZE. */
int sys_check_fsize(struct task *t, struct inode *inode, u64 size);
/* Sleeps until f may be ready for `events`. 0: try again; -EAGAIN when it never changes. */
int sys_wait_file(struct task *t, struct file *f, u32 events, bool (*ready)(struct file *f));

/* ---- sys_stat.c ---- */

/* Attributes of any open file, with or without a path. */
int sys_file_getattr(struct file *f, struct kstat *ret);
int sys_file_setattr(struct task *t, struct file *f, const struct iattr *attr);
/* As sys_path_at with other credentials (access(2)'s real ids). */
int sys_path_at_cred(struct task *t, int dirfd, uaddr path, int at_flags, const struct cred *cred,
		     struct path *ret);
/* True when `path` is NULL or "" and at_flags has AT_EMPTY_PATH: the descriptor itself is meant. */
int sys_means_fd(struct task *t, uaddr path, int at_flags, bool *ret);

#endif
