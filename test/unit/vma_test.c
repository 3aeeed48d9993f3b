/* unit: base pgalloc mm */
/* The vma set against an array of pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include "mm/vma_set.h"

#define N 512

static struct vma *owner[N];

static u64 rnd(u64 n)
{
	return (u64)random() % n;
}

static void check_shape(const struct vma_set *s)
{
	struct vma *v = vma_set_first(s), *prev = NULL;
	size_t count = 0;

	for (; v; prev = v, v = vma_next(v)) {
		assert_ptr_equal(vma_prev(v), prev);
		assert_true(!prev || prev->end <= v->start);
		for (u64 i = v->start / PAGE_SIZE; i < v->end / PAGE_SIZE; i++)
			assert_ptr_equal(owner[i], v);
		count++;
	}
	assert_int_equal(count, s->count);
	for (u64 i = 0; i < N; i++) {
		struct vma *at = vma_set_find(s, i * PAGE_SIZE + rnd(PAGE_SIZE)), *next;
		u64 k = i;

		assert_ptr_equal(at, owner[i]);
		while (k < N && !owner[k])
			k++;
		next = vma_set_seek(s, i * PAGE_SIZE);
		assert_ptr_equal(next, k < N ? owner[k] : NULL);
	}
}

/* The same search, page by page. */
static bool naive_gap(const struct gap_query *q, u64 *ret)
{
	u64 pages = q->len / PAGE_SIZE, best = 0;
	bool found = false;

	for (u64 i = q->low / PAGE_SIZE; i + pages <= q->high / PAGE_SIZE; i++) {
		bool ok = !((i * PAGE_SIZE) & (q->align - 1));

		for (u64 k = i; ok && k < i + pages; k++)
			ok = k >= N || !owner[k];
		/* the next vma, if it grows down, keeps 256 pages free below it */
		for (u64 k = i + pages; ok && k < MIN(i + pages + 256, N); k++) {
			if (!owner[k])
				continue;
			ok = !(owner[k]->flags & VMA_GROWSDOWN);
			break;
		}
		if (ok && (!found || q->top_down)) {
			best = i * PAGE_SIZE;
			found = true;
		}
	}
	if (found)
		*ret = best;
	return found;
}

static void check_gap(const struct vma_set *s)
{
	struct gap_query q = {
		.len = (1 + rnd(20)) * PAGE_SIZE,
		.align = PAGE_SIZE << rnd(4),
		.low = rnd(N / 2) * PAGE_SIZE,
		.top_down = rnd(2),
	};
	u64 want = 0, got = 0;
	bool found;

	q.high = q.low + rnd(N) * PAGE_SIZE;
	found = naive_gap(&q, &want);
	assert_int_equal(vma_set_find_gap(s, &q, &got), found);
	assert_int_equal(got, want);
}

static void test_random(void **state)
{
	struct vma_set s;

	srandom(3);
	vma_set_init(&s);
	for (int step = 0; step < 60000; step++) {
		u64 i = rnd(N), n = 1 + rnd(6);
		struct vma *v = owner[i];

		if (!v) {
			u64 end = i;

			while (end < N && end < i + n && !owner[end])
				end++;
			v = calloc(1, sizeof(*v));
			v->start = i * PAGE_SIZE;
			v->end = end * PAGE_SIZE;
			v->flags = rnd(40) ? 0 : VMA_GROWSDOWN;
			vma_set_insert(&s, v);
			for (u64 k = i; k < end; k++)
				owner[k] = v;
		} else if (rnd(3)) {
			vma_set_remove(&s, v);
			for (u64 k = v->start / PAGE_SIZE; k < v->end / PAGE_SIZE; k++)
				owner[k] = NULL;
			free(v);
		} else {
			u64 start = v->start / PAGE_SIZE + rnd(2),
			    end = v->end / PAGE_SIZE - rnd(2);

			if (start >= end)
				continue;
			for (u64 k = v->start / PAGE_SIZE; k < v->end / PAGE_SIZE; k++)
				owner[k] = k >= start && k < end ? v : NULL;
			vma_set_resize(&s, v, start * PAGE_SIZE, end * PAGE_SIZE);
		}
		check_gap(&s);
		if (step % 500 == 0)
			check_shape(&s);
	}
	while (vma_set_first(&s)) {
		struct vma *v = vma_set_first(&s);

		vma_set_remove(&s, v);
		free(v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
