/*
 * base/host_term.h: the host terminal: settings, size, bytes. -errno on failure.
 * Everything here is async-signal-safe.
 */
#ifndef MINISENTRY_BASE_HOST_TERM_H
#define MINISENTRY_BASE_HOST_TERM_H

#include "base/types.h"

#define HOST_TERM_KEYS 19

/* The kernel's struct termios (asm/termbits.h), which C libraries redefine. */
struct host_term_settings {
	u32 iflag, oflag, cflag, lflag;
	u8 line;
	u8 keys[HOST_TERM_KEYS];
};

struct host_term_size {
	u16 rows, columns, width, height;
};

int host_term_get(int fd, struct host_term_settings *ret);
/* drain: what was written goes out under the old settings first. */
int host_term_set(int fd, const struct host_term_settings *s, bool drain);
int host_term_get_size(int fd, struct host_term_size *ret);
/* An own open file description of fd's terminal: read-write, non-blocking. Before confinement. */
int host_term_reopen(int fd);
ssize_t host_term_read(int fd, void *dst, size_t len);
ssize_t host_term_write(int fd, const void *src, size_t len);
bool host_term_nonblocking(int fd); /* O_NONBLOCK is set */

#endif
