/*
 * base/host_file.h: the host's files, as descriptors and names below directory descriptors.
 *
 * Every call returns 0 or positive, or -errno, and is repeated on EINTR unless it
 * says otherwise. Descriptors are made close-on-exec. Nothing follows a symlink in
 * the last component. Host calls used: openat close statx newfstatat readlinkat
 * getdents64 preadv pwritev2 preadv2 readv writev lseek ftruncate fallocate fsync
 * fdatasync fstatfs mkdirat mknodat symlinkat linkat unlinkat renameat2 fchmod
 * fchmodat2 fchownat utimensat fgetxattr fsetxattr flistxattr fremovexattr fcntl
 * ioctl(FIONREAD, TIOCGWINSZ, TCGETS) prlimit64 geteuid.
 */
#ifndef MINISENTRY_BASE_HOST_FILE_H
#define MINISENTRY_BASE_HOST_FILE_H

#include "base/types.h"
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <time.h>

/* O_NOFOLLOW and O_CLOEXEC are added. */
int host_openat(int dir_fd, const char *name, int flags, u32 mode);
void host_close(int fd); /* negative: nothing */
/* AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT; name "" is dir_fd itself. */
int host_statx(int dir_fd, const char *name, struct statx *ret);
int host_fstat(int fd, struct stat *ret);
ssize_t host_readlinkat(int dir_fd, const char *name, char *dst, size_t size);
/* Raw linux_dirent64 records. */
ssize_t host_getdents(int fd, void *buf, size_t size);

ssize_t host_preadv(int fd, const struct iovec *iov, int count, u64 offset);
/* flags: RWF_APPEND, RWF_DSYNC ...; -EINTR is passed on when nothing was written. */
ssize_t host_pwritev(int fd, const struct iovec *iov, int count, u64 offset, int flags);
ssize_t host_pread(int fd, void *buf, size_t len, u64 offset);
/* Writes all of it or fails. */
int host_pwrite_all(int fd, const void *buf, size_t len, u64 offset);
/* At the descriptor's own position; not repeated on EINTR. */
ssize_t host_readv(int fd, const struct iovec *iov, int count);
ssize_t host_writev(int fd, const struct iovec *iov, int count);
/* readv that never waits: -EAGAIN; -EOPNOTSUPP where the host's file cannot tell. */
ssize_t host_readv_nowait(int fd, const struct iovec *iov, int count);
/* writev that never waits: short, or -EAGAIN; -EOPNOTSUPP likewise. */
ssize_t host_writev_nowait(int fd, const struct iovec *iov, int count);
s64 host_lseek(int fd, s64 offset, int whence);

int host_ftruncate(int fd, u64 size);
int host_fallocate(int fd, int mode, u64 offset, u64 len);
int host_fsync(int fd, bool data_only);
int host_fstatfs(int fd, struct statfs *ret);

int host_mkdirat(int dir_fd, const char *name, u32 mode);
/* FIFOs and sockets only. */
int host_mknodat(int dir_fd, const char *name, u32 mode);
int host_symlinkat(const char *target, int dir_fd, const char *name);
int host_linkat(int from_fd, const char *from, int to_fd, const char *to);
/* An O_TMPFILE descriptor gets a name (AT_EMPTY_PATH). */
int host_link_fd(int fd, int to_fd, const char *to);
int host_unlinkat(int dir_fd, const char *name, bool is_dir);
int host_renameat(int from_fd, const char *from, int to_fd, const char *to, u32 flags);

/* name "" is dir_fd itself, which may be an O_PATH descriptor. */
int host_fchmodat(int dir_fd, const char *name, u32 mode);
int host_fchownat(int dir_fd, const char *name, u32 uid, u32 gid);
int host_utimensat(int dir_fd, const char *name, const struct timespec times[2]);

ssize_t host_fgetxattr(int fd, const char *name, void *dst, size_t size);
int host_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
ssize_t host_flistxattr(int fd, char *dst, size_t size);
int host_fremovexattr(int fd, const char *name);

/* O_* of F_GETFL, or -errno. */
int host_fd_flags(int fd);
/* Reads only: FIONREAD, TIOCGWINSZ, TCGETS, TIOCOUTQ into a buffer of the request's size. */
int host_ioctl_get(int fd, unsigned long request, void *ret);
/* The soft limit of open descriptors. */
u64 host_fd_limit(void);

#endif
