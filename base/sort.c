#include "base/sort.h"
#include "base/log.h"
#include <string.h>

static void swap(u8 *a, u8 *b, size_t size)
{
	u8 t[SORT_SIZE_MAX];

	memcpy(t, a, size);
	memcpy(a, b, size);
	memcpy(b, t, size);
}

/* Heap sort: lets element i sink to its place among the first `count`. */
static void sink(u8 *base, size_t i, size_t count, size_t size,
		 int (*compare)(const void *, const void *))
{
	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= count)
			return;
		if (child + 1 < count &&
		    compare(base + child * size, base + (child + 1) * size) < 0)
			child++;
		if (compare(base + i * size, base + child * size) >= 0)
			return;
		swap(base + i * size, base + child * size, size);
		i = child;
	}
}

void sort(void *base, size_t count, size_t size, int (*compare)(const void *, const void *))
{
	ASSERT(size <= SORT_SIZE_MAX);
	for (size_t i = count / 2; i-- > 0;)
		sink(base, i, count, size, compare);
	for (size_t n = count; n > 1; n--) {
		swap(base, (u8 *)base + (n - 1) * size, size);
		sink(base, 0, n - 1, size, compare);
	}
}
