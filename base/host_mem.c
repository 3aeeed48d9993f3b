#include "base/host_mem.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

int host_memfd_create(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int host_mem_create_large(void)
{
	int fs, mount = -1, fd = -1, err;

	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
		return -errno;
	fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
	if (fs >= 0 && fsconfig(fs, FSCONFIG_SET_STRING, "huge", "always", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_SET_STRING, "size", "0", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		mount = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (mount >= 0)
		fd = openat(mount, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	err = -errno;
	/* The file keeps its file system. */
	if (mount >= 0)
		close(mount);
	if (fs >= 0)
		close(fs);
	return fd < 0 ? err : fd;
}

int host_mem_truncate(int fd, u64 size)
{
	int r;

	do
		r = ftruncate(fd, (off_t)size);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int host_mem_fallocate(int fd, int mode, u64 offset, u64 len)
{
	int r;

	do
		r = fallocate(fd, mode, (off_t)offset, (off_t)len);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int host_mem_punch(int fd, u64 offset, u64 len)
{
	return host_mem_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, len);
}

s64 host_mem_seek_data(int fd, u64 offset)
{
	off_t r = lseek(fd, (off_t)offset, SEEK_DATA);

	return r < 0 ? -errno : r;
}

s64 host_mem_seek_hole(int fd, u64 offset)
{
	off_t r = lseek(fd, (off_t)offset, SEEK_HOLE);

	return r < 0 ? -errno : r;
}

ssize_t host_mem_pread(int fd, void *dst, size_t len, u64 offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)dst + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return done ? (ssize_t)done : -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t host_mem_pwrite(int fd, const void *src, size_t len, u64 offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n =
			pwrite(fd, (const char *)src + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return done ? (ssize_t)done : -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

ssize_t host_mem_copy_range(int fd_in, u64 src, int fd_out, u64 dst, size_t len)
{
	off_t in = (off_t)src, out = (off_t)dst;
	ssize_t n;

	do
		n = copy_file_range(fd_in, &in, fd_out, &out, len, 0);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int host_mem_allocated(int fd, u64 *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (u64)st.st_blocks * 512;
	return 0;
}

int host_mem_close(int fd)
{
	return close(fd) < 0 ? -errno : 0;
}

int host_mem_open_read_only(int fd)
{
	char path[32];
	int ret;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = open(path, O_RDONLY | O_CLOEXEC);
	return ret < 0 ? -errno : ret;
}

int host_mmap(void *addr, size_t len, int prot, int flags, int fd, u64 offset, void **ret)
{
	void *p = mmap(addr, len, prot, flags, fd, (off_t)offset);

	if (p == MAP_FAILED)
		return -errno;
	*ret = p;
	return 0;
}

int host_munmap(void *addr, size_t len)
{
	return munmap(addr, len) < 0 ? -errno : 0;
}

int host_madvise(void *addr, size_t len, int advice)
{
	int r;

	do
		r = madvise(addr, len, advice);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int host_mincore(void *addr, size_t len, unsigned char *vec)
{
	return mincore(addr, len, vec) < 0 ? -errno : 0;
}

u64 host_swap_bytes(void)
{
	struct sysinfo si;

	return sysinfo(&si) < 0 ? ~0ULL : (u64)si.totalswap * si.mem_unit;
}
