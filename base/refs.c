#include "base/refs.h"
#include "base/log.h"

#ifdef MINISENTRY_DEBUG
/* Live objects per class name (string literals, compared by address). */
#define MAX_CLASSES 128
static struct {
	_Atomic(const char *) name;
	_Atomic long live;
} classes[MAX_CLASSES];

static void count_class(const char *name, long delta)
{
	for (size_t i = 0; i < MAX_CLASSES; i++) {
		const char *seen = atomic_load(&classes[i].name);
		if (!seen && atomic_compare_exchange_strong(&classes[i].name, &seen, name))
			seen = name;
		if (seen == name) {
			atomic_fetch_add(&classes[i].live, delta);
			return;
		}
	}
}
#endif

void refs_init(struct refs *r, const char *class_name)
{
	atomic_store_explicit(&r->count, 1, memory_order_relaxed);
#ifdef MINISENTRY_DEBUG
	r->class_name = class_name;
	count_class(class_name, 1);
#else
	(void)class_name;
#endif
}

void refs_get(struct refs *r)
{
	u32 old = atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);

	if (old == 0 || old >= UINT32_MAX / 2)
		PANIC("reference count %u cannot be raised", old);
}

bool refs_tryget(struct refs *r)
{
	u32 old = atomic_load_explicit(&r->count, memory_order_relaxed);

	do {
		if (old == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&r->count, &old, old + 1, memory_order_acquire, memory_order_relaxed));
	return true;
}

bool refs_put(struct refs *r)
{
	u32 old = atomic_fetch_sub_explicit(&r->count, 1, memory_order_acq_rel);

	ASSERT(old != 0);
#ifdef MINISENTRY_DEBUG
	if (old == 1)
		count_class(r->class_name, -1);
#endif
	return old == 1;
}

u32 refs_read(const struct refs *r)
{
	return atomic_load_explicit(&r->count, memory_order_relaxed);
}

size_t refs_report_leaks(void)
{
	size_t leaked = 0;

#ifdef MINISENTRY_DEBUG
	for (size_t i = 0; i < MAX_CLASSES; i++) {
		const char *name = atomic_load(&classes[i].name);
		long live = atomic_load(&classes[i].live);
		if (name && live > 0) {
			log_warn("leaked: %ld x %s", live, name);
			leaked += (size_t)live;
		}
	}
#endif
	return leaked;
}
