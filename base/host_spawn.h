/*
 * base/host_spawn.h: starting a host process from a program image, and talking to it.
 *
 * Used while the sentry has one thread. Results are 0 or positive, or -errno.
 */
#ifndef MINISENTRY_BASE_HOST_SPAWN_H
#define MINISENTRY_BASE_HOST_SPAWN_H

#include "base/types.h"

/* A sealed, executable memfd with these bytes: descriptor. */
int host_image_memfd(const char *name, const void *bytes, size_t size);
/*
 * Runs image_fd in a child with empty arguments and environment, in its own
 * session, with no core dumps, no_new_privs, no capabilities, all signals
 * blocked, and exactly the descriptors fds[i] as i (-1: closed). pid.
 */
int host_spawn_image(int image_fd, const int *fds, size_t count);

/* AF_UNIX SOCK_SEQPACKET, close-on-exec. */
int host_socketpair(int ret[2]);
/* One message, with a descriptor unless fd < 0. */
int host_send_msg(int sock, const void *buf, size_t size, int fd);
/* One message of exactly `size` bytes; -EPROTO for another size, -EPIPE at the end, -ETIMEDOUT. */
int host_recv_msg(int sock, void *buf, size_t size, s64 timeout_ns);

int host_epoll_create(void);
int host_epoll_add(int epfd, int fd, u32 events, u64 data);
int host_epoll_del(int epfd, int fd);
/* One event: 1 with *ret_data, 0 for none (EINTR), -errno. Waits for ever. */
int host_epoll_wait_one(int epfd, u64 *ret_data);

/* Up to size - 1 bytes of a (proc) file, terminated. Length or -errno. */
ssize_t host_read_text(const char *path, char *buf, size_t size);
int host_getpid(void);
/* prctl(PR_SET_SYSCALL_USER_DISPATCH) exists (Linux 5.11). */
bool host_has_syscall_dispatch(void);
int host_cpu_count(void); /* this process may run on */
int host_current_cpu(void);
/* Moves the calling thread to another CPU, once: it may come back. 0 or -errno (no other). */
int host_leave_cpu(u32 cpu);

#endif
