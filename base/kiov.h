/*
 * base/kiov.h: a cursor over sentry-addressable segments of (pinned) guest memory
 * or of sentry buffers: what file read and write operations move bytes through.
 *
 * The system call layer pins guest memory (mm_pin) before any inode lock is
 * taken and hands the segments down, so file systems copy without faulting
 * into mm. All copies use safe_memcpy.
 */
#ifndef MINISENTRY_BASE_KIOV_H
#define MINISENTRY_BASE_KIOV_H

#include "base/types.h"
#include <sys/uio.h>

struct kiov {
	struct iovec *seg; /* borrowed; consumed front to back (the array is not changed) */
	int count;
	int index;	  /* current segment */
	size_t seg_off;	  /* bytes of the current segment that are done */
	size_t remaining; /* bytes left in all */
};

void kiov_init(struct kiov *k, struct iovec *seg, int count);
/* A kiov over one sentry buffer; `one` must outlive it. */
void kiov_init_buf(struct kiov *k, struct iovec *one, void *buf, size_t len);
/* Copy into / out of the cursor and advance. Returns bytes moved, or -EFAULT when none could be. */
ssize_t kiov_put(struct kiov *k, const void *src, size_t n);
ssize_t kiov_get(struct kiov *k, void *dst, size_t n);
/* Writes n zero bytes. */
ssize_t kiov_zero(struct kiov *k, size_t n);
void kiov_advance(struct kiov *k, size_t n);
/* The rest of the current segment, for host preadv or direct copies; false when empty. */
bool kiov_peek(const struct kiov *k, struct iovec *ret);
/* Limits `remaining` to n. */
void kiov_truncate(struct kiov *k, size_t n);

#endif
