/*
 * base/host_mem.h: the host's memory and memory-file system calls.
 *
 * Thin wrappers: results are 0 or positive, or -errno. Calls that a signal can
 * interrupt are repeated.
 */
#ifndef MINISENTRY_BASE_HOST_MEM_H
#define MINISENTRY_BASE_HOST_MEM_H

#include "base/types.h"

/* A new memfd (close-on-exec, sealable not): descriptor or -errno. */
int host_memfd_create(const char *name);
/*
 * An unlinked file of a tmpfs of its own, in which write(2) and fallocate(2) allocate huge pages.
 * Every mapping of this process and of those it starts keeps faulting in small ones: it gives up
 * transparent huge pages (PR_SET_THP_DISABLE). Before confinement, in a mount namespace that is
 * ours. Descriptor, or -errno where the host does not let us.
 */
int host_mem_create_large(void);
int host_mem_truncate(int fd, u64 size);
/* mode: FALLOC_FL_*. */
int host_mem_fallocate(int fd, int mode, u64 offset, u64 len);
/* FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE. */
int host_mem_punch(int fd, u64 offset, u64 len);
/* The first data / hole offset at or after `offset`; -ENXIO when there is none. */
s64 host_mem_seek_data(int fd, u64 offset);
s64 host_mem_seek_hole(int fd, u64 offset);
/* Positioned transfers that go on after a short count; bytes moved, -errno when none were. */
ssize_t host_mem_pread(int fd, void *dst, size_t len, u64 offset);
ssize_t host_mem_pwrite(int fd, const void *src, size_t len, u64 offset);
/* Copies within the host, perhaps less than asked for. Bytes or -errno (-EXDEV, -EINVAL,
 * -EOPNOTSUPP where the host cannot). */
ssize_t host_mem_copy_range(int fd_in, u64 src, int fd_out, u64 dst, size_t len);
/* Bytes that the host has allocated for the file (st_blocks). */
int host_mem_allocated(int fd, u64 *ret);
int host_mem_close(int fd);
/* The same file, read-only: a new open file description. Before confinement only. fd or -errno. */
int host_mem_open_read_only(int fd);

int host_mmap(void *addr, size_t len, int prot, int flags, int fd, u64 offset, void **ret);
int host_munmap(void *addr, size_t len);
int host_madvise(void *addr, size_t len, int advice);
int host_mincore(void *addr, size_t len, unsigned char *vec);
/* What the host can swap out to, in bytes; all of it, used or not. ~0 when it does not say. */
u64 host_swap_bytes(void);

#endif
