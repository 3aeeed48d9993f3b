#include "base/host_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif

/* Runs a call again while a signal interrupts it. */
#define RETRY(call)                                                                                \
	({                                                                                         \
		long retry_r_;                                                                     \
		do                                                                                 \
			retry_r_ = (long)(call);                                                   \
		while (retry_r_ < 0 && errno == EINTR);                                            \
		retry_r_ < 0 ? -(long)errno : retry_r_;                                            \
	})

int host_openat(int dir_fd, const char *name, int flags, u32 mode)
{
	return (int)RETRY(openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, mode));
}

void host_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

int host_statx(int dir_fd, const char *name, struct statx *ret)
{
	int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH);

	return (int)RETRY(statx(dir_fd, name, flags, STATX_BASIC_STATS | STATX_BTIME, ret));
}

int host_fstat(int fd, struct stat *ret)
{
	return (int)RETRY(fstat(fd, ret));
}

ssize_t host_readlinkat(int dir_fd, const char *name, char *dst, size_t size)
{
	return RETRY(readlinkat(dir_fd, name, dst, size));
}

ssize_t host_getdents(int fd, void *buf, size_t size)
{
	return RETRY(syscall(SYS_getdents64, fd, buf, size));
}

ssize_t host_preadv(int fd, const struct iovec *iov, int count, u64 offset)
{
	return RETRY(preadv(fd, iov, count, (off_t)offset));
}

ssize_t host_pwritev(int fd, const struct iovec *iov, int count, u64 offset, int flags)
{
	return RETRY(pwritev2(fd, iov, count, (off_t)offset, flags));
}

ssize_t host_pread(int fd, void *buf, size_t len, u64 offset)
{
	struct iovec one = { buf, len };

	return host_preadv(fd, &one, 1, offset);
}

int host_pwrite_all(int fd, const void *buf, size_t len, u64 offset)
{
	size_t done = 0;

	while (done < len) {
		struct iovec one = { (char *)(uintptr_t)buf + done, len - done };
		ssize_t n = host_pwritev(fd, &one, 1, offset + done, 0);

		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}

ssize_t host_readv(int fd, const struct iovec *iov, int count)
{
	ssize_t n = readv(fd, iov, count);

	return n < 0 ? -errno : n;
}

ssize_t host_writev(int fd, const struct iovec *iov, int count)
{
	ssize_t n = writev(fd, iov, count);

	return n < 0 ? -errno : n;
}

ssize_t host_readv_nowait(int fd, const struct iovec *iov, int count)
{
	ssize_t n = preadv2(fd, iov, count, -1, RWF_NOWAIT);

	return n < 0 ? -errno : n;
}

ssize_t host_writev_nowait(int fd, const struct iovec *iov, int count)
{
	ssize_t n = pwritev2(fd, iov, count, -1, RWF_NOWAIT);

	return n < 0 ? -errno : n;
}

s64 host_lseek(int fd, s64 offset, int whence)
{
	return RETRY(lseek(fd, offset, whence));
}

int host_ftruncate(int fd, u64 size)
{
	return (int)RETRY(ftruncate(fd, (off_t)size));
}

int host_fallocate(int fd, int mode, u64 offset, u64 len)
{
	return (int)RETRY(fallocate(fd, mode, (off_t)offset, (off_t)len));
}

int host_fsync(int fd, bool data_only)
{
	return (int)RETRY(data_only ? fdatasync(fd) : fsync(fd));
}

int host_fstatfs(int fd, struct statfs *ret)
{
	return (int)RETRY(fstatfs(fd, ret));
}

int host_mkdirat(int dir_fd, const char *name, u32 mode)
{
	return (int)RETRY(mkdirat(dir_fd, name, mode));
}

int host_mknodat(int dir_fd, const char *name, u32 mode)
{
	if (!S_ISFIFO(mode) && !S_ISSOCK(mode))
		return -EPERM;
	return (int)RETRY(mknodat(dir_fd, name, mode, 0));
}

int host_symlinkat(const char *target, int dir_fd, const char *name)
{
	return (int)RETRY(symlinkat(target, dir_fd, name));
}

int host_linkat(int from_fd, const char *from, int to_fd, const char *to)
{
	return (int)RETRY(linkat(from_fd, from, to_fd, to, 0));
}

int host_link_fd(int fd, int to_fd, const char *to)
{
	return (int)RETRY(linkat(fd, "", to_fd, to, AT_EMPTY_PATH));
}

int host_unlinkat(int dir_fd, const char *name, bool is_dir)
{
	return (int)RETRY(unlinkat(dir_fd, name, is_dir ? AT_REMOVEDIR : 0));
}

int host_renameat(int from_fd, const char *from, int to_fd, const char *to, u32 flags)
{
	return (int)RETRY(syscall(SYS_renameat2, from_fd, from, to_fd, to, flags));
}

int host_fchmodat(int dir_fd, const char *name, u32 mode)
{
	int flags = AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH);
	long r = RETRY(syscall(__NR_fchmodat2, dir_fd, name, mode, flags));

	/* Before Linux 6.6 only an opened file's mode can be changed without following a link. */
	if ((r == -ENOSYS || r == -EPERM) && !*name) {
		long old = RETRY(fchmod(dir_fd, mode));

		if (old != -EBADF)
			r = old;
	}
	return (int)r;
}

int host_fchownat(int dir_fd, const char *name, u32 uid, u32 gid)
{
	int flags = AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH);

	return (int)RETRY(fchownat(dir_fd, name, uid, gid, flags));
}

int host_utimensat(int dir_fd, const char *name, const struct timespec times[2])
{
	int flags = AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH);

	return (int)RETRY(syscall(SYS_utimensat, dir_fd, name, times, flags));
}

ssize_t host_fgetxattr(int fd, const char *name, void *dst, size_t size)
{
	return RETRY(fgetxattr(fd, name, dst, size));
}

int host_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	return (int)RETRY(fsetxattr(fd, name, value, size, flags));
}

ssize_t host_flistxattr(int fd, char *dst, size_t size)
{
	return RETRY(flistxattr(fd, dst, size));
}

int host_fremovexattr(int fd, const char *name)
{
	return (int)RETRY(fremovexattr(fd, name));
}

int host_fd_flags(int fd)
{
	return (int)RETRY(fcntl(fd, F_GETFL));
}

int host_ioctl_get(int fd, unsigned long request, void *ret)
{
	return (int)RETRY(ioctl(fd, request, ret));
}

u64 host_fd_limit(void)
{
	struct rlimit r;

	return getrlimit(RLIMIT_NOFILE, &r) < 0 ? 1024 : r.rlim_cur;
}
