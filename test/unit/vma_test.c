/* unit: base pgalloc mm */
/* The vma set, and sets that share by fork, against arrays of pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "mm/vma_set.h"

#define N 512
#define SETS 3
/* Enough vmas for several levels of nodes. */
#define MANY 5000

/* A set, and what each of its pages belongs to. */
struct model {
	struct vma_set s;
	struct vma *owner[N];
};

static u64 rnd(u64 n)
{
	return (u64)random() % n;
}

static void check_shape(const struct model *m)
{
	const struct vma_set *s = &m->s;
	struct vma *v = vma_set_first(s), *prev = NULL;
	size_t count = 0;

	for (; v; prev = v, v = vma_next(s, v)) {
		assert_ptr_equal(vma_prev(s, v), prev);
		assert_true(!prev || prev->end <= v->start);
		for (u64 i = v->start / PAGE_SIZE; i < v->end / PAGE_SIZE; i++)
			assert_ptr_equal(m->owner[i], v);
		count++;
	}
	assert_int_equal(count, vma_set_count(s));
	for (u64 i = 0; i < N; i++) {
		struct vma *at = vma_set_find(s, i * PAGE_SIZE + rnd(PAGE_SIZE)), *next;
		u64 k = i;

		assert_ptr_equal(at, m->owner[i]);
		while (k < N && !m->owner[k])
			k++;
		next = vma_set_seek(s, i * PAGE_SIZE);
		assert_ptr_equal(next, k < N ? m->owner[k] : NULL);
		while (k < N && !(m->owner[k] && m->owner[k]->flags & VMA_DONTFORK))
			k++;
		next = vma_set_marked(s, i * PAGE_SIZE, VMA_DONTFORK);
		assert_ptr_equal(next, k < N ? m->owner[k] : NULL);
	}
}

/* The same search, page by page. */
static bool naive_gap(const struct model *m, const struct gap_query *q, u64 *ret)
{
	u64 pages = q->len / PAGE_SIZE, best = 0;
	bool found = false;

	for (u64 i = q->low / PAGE_SIZE; i + pages <= q->high / PAGE_SIZE; i++) {
		bool ok = !((i * PAGE_SIZE) & (q->align - 1));

		for (u64 k = i; ok && k < i + pages; k++)
			ok = k >= N || !m->owner[k];
		/* the next vma, if it grows down, keeps 256 pages free below it */
		for (u64 k = i + pages; ok && k < MIN(i + pages + 256, N); k++) {
			if (!m->owner[k])
				continue;
			ok = !(m->owner[k]->flags & VMA_GROWSDOWN);
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

static void check_gap(const struct model *m)
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
	found = naive_gap(m, &q, &want);
	assert_int_equal(vma_set_find_gap(&m->s, &q, &got), found);
	assert_int_equal(got, want);
}

static void fill(struct model *m, u64 start, u64 end, struct vma *v)
{
	for (u64 k = start / PAGE_SIZE; k < end / PAGE_SIZE; k++)
		m->owner[k] = v;
}

/* v, or the copy that takes its place (as vma_own does). */
static struct vma *own(struct model *m, struct vma *v)
{
	struct vma *copy;

	assert_int_equal(vma_set_own(&m->s, v->start, v->end), 0);
	if (span_exclusive(&v->span))
		return v;
	copy = vma_new();
	copy->start = v->start;
	copy->end = v->end;
	copy->flags = v->flags;
	vma_set_replace(&m->s, v, copy);
	fill(m, v->start, v->end, copy);
	vma_put(v);
	return copy;
}

static void add(struct model *m, u64 i, u64 n)
{
	struct vma *v = vma_new();
	u64 end = i;

	while (end < N && end < i + n && !m->owner[end])
		end++;
	v->start = i * PAGE_SIZE;
	v->end = end * PAGE_SIZE;
	v->flags = rnd(40) ? 0 : rnd(2) ? VMA_GROWSDOWN : VMA_DONTFORK;
	assert_int_equal(vma_set_own(&m->s, v->start, v->end), 0);
	vma_set_insert(&m->s, v);
	fill(m, v->start, v->end, v);
}

static void change(struct model *m, struct vma *v)
{
	u64 start = v->start + rnd(2) * PAGE_SIZE, end = v->end - rnd(2) * PAGE_SIZE;

	v = own(m, v);
	if (rnd(8) == 0) {
		v->flags ^= VMA_DONTFORK;
		vma_set_touch(&m->s, v);
	} else if (start < end) {
		fill(m, v->start, v->end, NULL);
		vma_set_resize(&m->s, v, start, end);
		fill(m, start, end, v);
	}
}

/* All that begins in a range goes, with one step that could fail. */
static void remove_range(struct model *m, u64 start, u64 end)
{
	struct vma *v, *next;

	assert_int_equal(vma_set_own(&m->s, start, end), 0);
	for (v = vma_set_seek(&m->s, start); v && v->start < end; v = next) {
		next = vma_next(&m->s, v);
		vma_set_remove(&m->s, v);
		fill(m, v->start, v->end, NULL);
		vma_put(v);
	}
}

static void fork_set(struct model *to, struct model *from)
{
	vma_set_clear(&to->s);
	vma_set_share(&to->s, &from->s);
	memcpy(to->owner, from->owner, sizeof(to->owner));
}

static void step_one(struct model *m)
{
	u64 i = rnd(N), n = 1 + rnd(6);

	if (rnd(300) == 0)
		remove_range(m, i * PAGE_SIZE, (i + rnd(N)) * PAGE_SIZE);
	else if (!m->owner[i])
		add(m, i, n);
	else if (rnd(3))
		remove_range(m, m->owner[i]->start, m->owner[i]->end);
	else
		change(m, m->owner[i]);
	check_gap(m);
}

/* Several sets that are made from each other; each is compared with its own array. */
static void test_random(void **state)
{
	static struct model models[SETS];

	srandom(3);
	for (int i = 0; i < SETS; i++)
		vma_set_init(&models[i].s);
	for (int step = 0; step < 100000; step++) {
		struct model *m = &models[rnd(SETS)], *to = &models[rnd(SETS)];

		if (rnd(200) == 0 && to != m)
			fork_set(to, m);
		else
			step_one(m);
		if (step % 300 == 0)
			for (int k = 0; k < SETS; k++)
				check_shape(&models[k]);
	}
	for (int i = 0; i < SETS; i++)
		vma_set_clear(&models[i].s);
}

/* A child that changes a little has a few nodes and vmas of its own, and the parent sees nothing.
 */
static void test_fork_of_many(void **state)
{
	struct vma_set parent, child;
	struct vma *v, *copy;

	vma_set_init(&parent);
	vma_set_init(&child);
	for (u64 i = 0; i < MANY; i++) {
		v = vma_new();
		v->start = i * PAGE_SIZE;
		v->end = v->start + PAGE_SIZE;
		assert_int_equal(vma_set_own(&parent, v->start, v->end), 0);
		vma_set_insert(&parent, v);
	}
	vma_set_share(&child, &parent);
	v = vma_set_find(&child, MANY / 2 * PAGE_SIZE);
	assert_int_equal(vma_set_own(&child, v->start, v->end), 0);
	assert_false(span_exclusive(&v->span));
	copy = vma_new();
	copy->start = v->start;
	copy->end = v->end;
	vma_set_replace(&child, v, copy);
	vma_put(v);
	assert_true(span_exclusive(&v->span));
	for (u64 i = 0; i < MANY; i++) {
		struct vma *p = vma_set_find(&parent, i * PAGE_SIZE);
		struct vma *c = vma_set_find(&child, i * PAGE_SIZE);

		assert_true((p == c) == (i != MANY / 2));
	}
	vma_set_clear(&child);
	for (u64 i = 0; i < MANY; i += 2) {
		v = vma_set_find(&parent, i * PAGE_SIZE);
		assert_int_equal(vma_set_own(&parent, v->start, v->end), 0);
		assert_true(span_exclusive(&v->span));
		vma_set_remove(&parent, v);
		vma_put(v);
	}
	assert_int_equal(vma_set_count(&parent), MANY / 2);
	vma_set_clear(&parent);
}

static void *change_mine(void *arg)
{
	struct model *m = arg;

	for (int step = 0; step < 1000; step++)
		step_one(m);
	check_shape(m);
	return NULL;
}

/* Who shares needs no common lock (`make tsan` looks on). */
static void test_threads(void **state)
{
	static struct model models[SETS];
	pthread_t threads[SETS];

	for (int i = 0; i < SETS; i++)
		vma_set_init(&models[i].s);
	for (int round = 0; round < 20; round++) {
		for (int step = 0; step < 300; step++)
			step_one(&models[0]);
		for (int i = 1; i < SETS; i++)
			fork_set(&models[i], &models[0]);
		for (int i = 0; i < SETS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, change_mine, &models[i]),
					 0);
		for (int i = 0; i < SETS; i++)
			assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
	for (int i = 0; i < SETS; i++)
		vma_set_clear(&models[i].s);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random),
					    cmocka_unit_test(test_fork_of_many),
					    cmocka_unit_test(test_threads) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
