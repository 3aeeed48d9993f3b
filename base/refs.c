#include "base/refs.h"
#include "base/log.h"

#ifdef MINISENTRY_DEBUG
/* Live objects per class name (string literals, compared by address). */
#define MAX_CLASSES 128
static struct {
	_Atomic(const char *) name;
	_Atomic long live;
} classes[MAX_CLASSES];

void refs_count_class(const char *name, long delta)
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

void refs_bad(u32 count)
{
	PANIC("reference count %u cannot change", count);
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
