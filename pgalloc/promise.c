/* Promised memory. */
#include "pgalloc/promise.h"

#include <errno.h>
#include <stdatomic.h>

#define USER_SHARE 32

void promise_init(struct promise *p, u64 total)
{
	*p = (struct promise){ .total = total, .mode = PROMISE_GUESS, .ratio = 50 };
}

u64 promise_limit(const struct promise *p)
{
	u64 kbytes = atomic_load_explicit(&p->kbytes, memory_order_relaxed);
	u64 pages = p->total / PAGE_SIZE;

	if (kbytes)
		return MIN(kbytes, UINT64_MAX >> 10) << 10 & PAGE_MASK;
	return pages * atomic_load_explicit(&p->ratio, memory_order_relaxed) / 100 * PAGE_SIZE;
}

static bool allowed(const struct promise *p, u64 bytes, u64 promised, u64 space, bool admin)
{
	u64 limit, kept;

	switch (atomic_load_explicit(&p->mode, memory_order_relaxed)) {
	case PROMISE_ALWAYS: return true;
	case PROMISE_GUESS: return bytes <= p->total;
	}
	limit = promise_limit(p);
	kept = (admin ? 0 : PROMISE_ADMIN_RESERVE) + MIN(space / USER_SHARE, PROMISE_USER_RESERVE);
	return limit > kept && promised < limit - kept;
}

int promise_take(struct promise *p, u64 bytes, u64 space, bool admin)
{
	u64 promised;

	if (bytes > INT64_MAX / 2)
		return -ENOMEM;
	promised = atomic_fetch_add_explicit(&p->bytes, bytes, memory_order_relaxed) + bytes;
	if (allowed(p, bytes, promised, space, admin))
		return 0;
	promise_add(p, -(s64)bytes);
	return -ENOMEM;
}

void promise_add(struct promise *p, s64 bytes)
{
	atomic_fetch_add_explicit(&p->bytes, (u64)bytes, memory_order_relaxed);
}
