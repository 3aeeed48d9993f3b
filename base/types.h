/*
 * base/types.h: the few types and macros that every module uses.
 *
 * A guest address is a `uaddr`. It is a struct so that the compiler refuses to
 * dereference it or to mix it with sentry pointers; guest memory is reached
 * only through mm/ (copy_in, copy_out, mm_pin).
 */
#ifndef MINISENTRY_BASE_TYPES_H
#define MINISENTRY_BASE_TYPES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

typedef struct {
	u64 v;
} uaddr;

static inline uaddr ua(u64 v)
{
	return (uaddr){ v };
}

static inline uaddr ua_add(uaddr a, u64 n)
{
	return (uaddr){ a.v + n };
}

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define HUGE_PAGE_SIZE (2UL << 20)

static inline u64 page_down(u64 x)
{
	return x & PAGE_MASK;
}

/* Rounds up to a page; false when the result does not fit in 64 bits. */
static inline bool page_up(u64 x, u64 *ret)
{
	if (x > UINT64_MAX - (PAGE_SIZE - 1))
		return false;
	*ret = (x + PAGE_SIZE - 1) & PAGE_MASK;
	return true;
}

/* Rounds up to a page where the caller knows that it cannot overflow. */
static inline u64 page_up_nofail(u64 x)
{
	return (x + PAGE_SIZE - 1) & PAGE_MASK;
}

static inline bool page_aligned(u64 x)
{
	return (x & (PAGE_SIZE - 1)) == 0;
}

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) ((type *)((char *)(p)-offsetof(type, member)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define CACHE_LINE 64

/*
 * Internal results of a blocked system call; they never reach a guest. The
 * signal code (sentry/signal) turns them into -EINTR or a restart, and nothing
 * else may. Numbers as in Linux's include/linux/errno.h.
 */
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516

#endif
