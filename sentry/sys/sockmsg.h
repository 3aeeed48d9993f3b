/*
 * sentry/sys/sockmsg.h: sending and receiving messages: msghdr, control data, waiting.
 * Shared by sys_socket.c and sys_sockmsg.c.
 */
#ifndef MINISENTRY_SENTRY_SYS_SOCKMSG_H
#define MINISENTRY_SENTRY_SYS_SOCKMSG_H

#include "sentry/net/socket.h"
#include "sentry/sys/syscall.h"

#define SOCK_CONTROL_MAX 65536

/* The file (a reference) and its socket (borrowed). -EBADF, -ENOTSOCK. */
int sock_from_fd(struct task *t, int fd, struct file **ret_file, struct socket **ret);
/* Copies a guest's address in: -EINVAL for a bad length, -EFAULT. */
int sock_addr_in(struct task *t, uaddr addr, u64 len, struct sockaddr_storage *ret);
/* Value-result: at most *len bytes out, the real length into *len. -EINVAL, -EFAULT. */
int sock_addr_out(struct task *t, uaddr addr, uaddr len, const struct sockaddr_storage *ss,
		  u32 real);
/* Absolute deadline of a socket timeout (0: none). */
u64 sock_deadline(u64 timeout_ns);
/* -ERESTARTSYS under a socket timeout becomes -EINTR. */
s64 sock_intr(s64 ret, u64 timeout_ns);

/* Control messages of the guest -> m->cred, m->fds. */
int sock_control_in(struct task *t, struct socket *s, uaddr control, u64 len, struct sock_msg *m);
/* m's control data -> the guest; installs descriptors. Returns bytes used; may add MSG_CTRUNC to
 * m->out_flags. */
s64 sock_control_out(struct task *t, struct socket *s, uaddr control, u64 len, struct sock_msg *m);

#endif
