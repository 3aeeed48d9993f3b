/* unit: base pgalloc mm */
/* What is written after each fork: noted, confirmed, tried without, forgotten. */
#include "mm/hot.h"
#include "base/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PIECE 0x4000UL

static struct hot_piece taken[HOT_MANY];

static u64 piece(u64 i)
{
	return 0x100000 + i * PIECE;
}

static void note(struct hot_set *h, u64 i)
{
	hot_note(h, piece(i), piece(i + 1), 0, false);
}

static int take(struct hot_set *h, bool spared)
{
	struct hot_piece *p;
	u32 child;
	int count = hot_take(h, spared, false, HOT_MANY, &child, &p);

	assert_in_range(count, 0, HOT_MANY);
	if (count)
		memcpy(taken, p, (size_t)count * sizeof(*p));
	free(p);
	return count;
}

/* Neighbours are one. */
static bool has(int count, u64 i)
{
	for (int k = 0; k < count; k++)
		if (taken[k].start <= piece(i) && taken[k].end >= piece(i + 1))
			return true;
	return false;
}

/* Forks until piece i, which is hot, is tried without. */
static int forks_until_tried(struct hot_set *h, u64 i)
{
	int forks = 0;

	while (has(take(h, false), i)) {
		forks++;
		assert_true(forks < 10000);
	}
	return forks;
}

static void test_two_forks(void **state)
{
	struct hot_set *h = hot_new();

	note(h, 1);
	note(h, 1); /* of the same fork */
	assert_int_equal(take(h, false), 0);
	note(h, 1);
	assert_int_equal(take(h, false), 1);
	assert_int_equal(taken[0].start, piece(1));
	hot_put(h);
}

static void test_tried_without(void **state)
{
	struct hot_set *h = hot_new();
	int first, second;

	note(h, 1);
	take(h, false);
	note(h, 1);
	first = forks_until_tried(h, 1);
	/* One note is enough now, and it stays for longer. */
	note(h, 1);
	second = forks_until_tried(h, 1);
	assert_true(second >= 2 * first - 1);
	/* Without one it is forgotten. */
	for (int i = 0; i < 20; i++)
		assert_int_equal(take(h, false), 0);
	note(h, 1);
	assert_int_equal(take(h, false), 0);
	hot_put(h);
}

/* Where memory is short, the newest alone. */
static void test_few(void **state)
{
	struct hot_set *h = hot_new();
	struct hot_piece *p;
	u32 child;

	for (int fork = 0; fork < 2; fork++) {
		for (u64 i = 0; i < 8; i++)
			note(h, 2 * i);
		take(h, false);
	}
	assert_int_equal(hot_take(h, false, false, 3, &child, &p), 3);
	for (u64 i = 0; i < 3; i++)
		assert_int_equal(p[i].start, piece(2 * (5 + i)));
	free(p);
	assert_int_equal(hot_take(h, false, false, 0, &child, &p), 0);
	free(p);
	hot_put(h);
}

/* A set full of what was hot once has room for what is now. */
static void test_full(void **state)
{
	struct hot_set *h = hot_new();
	int count;

	for (int fork = 0; fork < 2; fork++) {
		for (u64 i = 0; i < 4 * HOT_MANY; i++)
			note(h, i);
		take(h, false);
	}
	for (int fork = 0; fork < 2; fork++) {
		for (u64 i = 5000; i < 5032; i++)
			note(h, i);
		count = take(h, false);
	}
	for (u64 i = 5000; i < 5032; i++)
		assert_true(has(count, i));
	hot_put(h);
}

/* What a parent wrote that was away counts if its child stayed. */
static void test_away(void **state)
{
	struct hot_set *h = hot_new();

	for (int fork = 0; fork < 4; fork++) {
		hot_note(h, piece(1), piece(2), 0, true);
		assert_int_equal(take(h, true), 0);
	}
	for (int fork = 0; fork < 2; fork++) {
		hot_note(h, piece(1), piece(2), 0, true);
		assert_int_equal(take(h, false), fork);
	}
	hot_put(h);
}

/* Where its child wrote the same, that counts. */
static void test_away_and_child(void **state)
{
	struct hot_set *h = hot_new();

	for (int fork = 0; fork < 2; fork++) {
		hot_note(h, piece(1), piece(2), 0, true);
		note(h, 1);
		assert_int_equal(take(h, true), fork);
	}
	hot_put(h);
}

/* Two children of one time say as much as two forks. */
static void test_siblings(void **state)
{
	struct hot_set *h = hot_new();

	for (u32 child = 1; child < 3; child++) {
		hot_note(h, piece(1), piece(2), 1, false);
		hot_note(h, piece(3), piece(4), child, false);
		hot_note(h, piece(5), piece(6), child, true);
		hot_note(h, piece(7), piece(8), child - 1, false);
	}
	assert_int_equal(take(h, false), 1);
	assert_int_equal(taken[0].start, piece(3));
	hot_put(h);
}

/* Many only where a child has used its memory lately. */
static void test_many(void **state)
{
	struct hot_set *h = hot_new();
	int n;

	for (int fork = 0; fork < 2; fork++) {
		for (u64 i = 0; i < 2 * HOT_FEW; i++)
			note(h, 2 * i);
		assert_int_equal(take(h, false), fork * HOT_FEW);
		hot_child_ended(h, true);
		/* The first child says nothing. */
		assert_int_equal(hot_children_stay(h), fork > 0);
	}
	assert_true(hot_children_stay(h));
	for (int i = 0; hot_children_stay(h); i++) {
		assert_in_range(i, 0, 10);
		assert_int_equal(take(h, false), 2 * HOT_FEW);
		hot_child_ended(h, false);
	}
	assert_int_equal(take(h, false), HOT_FEW);
	assert_int_equal(hot_bytes(h, piece(2), piece(3)), PIECE);
	assert_int_equal(hot_bytes(h, piece(1), piece(2)), 0);
	assert_int_equal(hot_bytes(h, piece(1) + PAGE_SIZE, piece(3) - PAGE_SIZE),
			 PIECE - PAGE_SIZE);
	assert_int_equal(hot_size(h), 2 * HOT_FEW * PIECE);
	/* What was missing then comes first. */
	for (u64 i = 0; i < 10; i++)
		note(h, 2 * i);
	n = take(h, false);
	assert_int_equal(n, HOT_FEW);
	for (u64 i = 0; i < 10; i++)
		assert_true(has(n, 2 * i));
	hot_put(h);
}

/* A parent that will wait for its child writes little meanwhile. */
static void test_waiting_parent(void **state)
{
	struct hot_set *h = hot_new();
	struct hot_piece *p;
	u32 child = 0;

	for (int fork = 0; fork < 3; fork++) {
		for (u64 i = 0; i < 40; i++)
			note(h, 10 + 2 * i);
		hot_note(h, piece(3), piece(4), child, false);
		hot_note(h, piece(5), piece(6), 0, false);
		hot_note(h, piece(5), piece(6), child, false);
		assert_in_range(hot_take(h, false, true, HOT_MANY, &child, &p), 0, 2);
		free(p);
	}
	assert_int_equal(hot_take(h, false, true, HOT_MANY, &child, &p), 2);
	assert_int_equal(p[0].start, piece(3));
	assert_int_equal(p[1].start, piece(5));
	free(p);
	assert_int_equal(take(h, false), 42);
	hot_put(h);
	/* A few pieces are no reason to have it wait. */
	h = hot_new();
	for (int fork = 0; fork < 3; fork++) {
		for (u64 i = 0; i < 10; i++)
			note(h, 10 + 2 * i);
		assert_int_equal(hot_take(h, false, true, HOT_MANY, &child, &p), fork ? 10 : 0);
		free(p);
	}
	hot_put(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_forks),      cmocka_unit_test(test_tried_without),
		cmocka_unit_test(test_full),	       cmocka_unit_test(test_few),
		cmocka_unit_test(test_away),	       cmocka_unit_test(test_away_and_child),
		cmocka_unit_test(test_siblings),       cmocka_unit_test(test_many),
		cmocka_unit_test(test_waiting_parent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
