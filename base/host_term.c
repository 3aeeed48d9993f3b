#include "base/host_term.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

_Static_assert(sizeof(struct host_term_settings) == 36, "kernel's struct termios");
_Static_assert(sizeof(struct host_term_size) == sizeof(struct winsize), "struct winsize");

int host_term_get(int fd, struct host_term_settings *ret)
{
	return ioctl(fd, TCGETS, ret) < 0 ? -errno : 0;
}

int host_term_set(int fd, const struct host_term_settings *s, bool drain)
{
	return ioctl(fd, drain ? TCSETSW : TCSETS, s) < 0 ? -errno : 0;
}

int host_term_get_size(int fd, struct host_term_size *ret)
{
	return ioctl(fd, TIOCGWINSZ, ret) < 0 ? -errno : 0;
}

int host_term_reopen(int fd)
{
	char name[64];
	int n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = open(name, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return n < 0 ? -errno : n;
}

ssize_t host_term_read(int fd, void *dst, size_t len)
{
	ssize_t n = read(fd, dst, len);

	return n < 0 ? -errno : n;
}

ssize_t host_term_write(int fd, const void *src, size_t len)
{
	ssize_t n = write(fd, src, len);

	return n < 0 ? -errno : n;
}

bool host_term_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_NONBLOCK);
}
