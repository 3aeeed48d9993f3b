/* unit: base pgalloc mm */
/* What is written after each fork: noted, confirmed, tried without, forgotten. */
#include "mm/hot.h"
#include "base/types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PIECE 0x4000UL

static struct hot_piece taken[HOT_MAX];

static u64 piece(u64 i)
{
	return 0x100000 + i * PIECE;
}

static void note(struct hot_set *h, u64 i)
{
	hot_note(h, piece(i), piece(i), piece(i + 1), false);
}

static bool has(int count, u64 i)
{
	for (int k = 0; k < count; k++)
		if (taken[k].start == piece(i))
			return true;
	return false;
}

/* Forks until piece i, which is hot, is tried without. */
static int forks_until_tried(struct hot_set *h, u64 i)
{
	int forks = 0;

	while (has(hot_take(h, false, taken), i)) {
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
	assert_int_equal(hot_take(h, false, taken), 0);
	note(h, 1);
	assert_int_equal(hot_take(h, false, taken), 1);
	assert_int_equal(taken[0].start, piece(1));
	hot_put(h);
}

static void test_tried_without(void **state)
{
	struct hot_set *h = hot_new();
	int first, second;

	note(h, 1);
	hot_take(h, false, taken);
	note(h, 1);
	first = forks_until_tried(h, 1);
	/* One note is enough now, and it stays for longer. */
	note(h, 1);
	second = forks_until_tried(h, 1);
	assert_true(second >= 2 * first - 1);
	/* Without one it is forgotten. */
	for (int i = 0; i < 20; i++)
		assert_int_equal(hot_take(h, false, taken), 0);
	note(h, 1);
	assert_int_equal(hot_take(h, false, taken), 0);
	hot_put(h);
}

/* A set full of what was hot once has room for what is now. */
static void test_full(void **state)
{
	struct hot_set *h = hot_new();
	int count;

	for (int fork = 0; fork < 2; fork++) {
		for (u64 i = 0; i < 4 * HOT_MAX; i++)
			note(h, i);
		hot_take(h, false, taken);
	}
	for (int fork = 0; fork < 2; fork++) {
		for (u64 i = 5000; i < 5032; i++)
			note(h, i);
		count = hot_take(h, false, taken);
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
		hot_note(h, piece(1), piece(1), piece(2), true);
		assert_int_equal(hot_take(h, true, taken), 0);
	}
	for (int fork = 0; fork < 2; fork++) {
		hot_note(h, piece(1), piece(1), piece(2), true);
		assert_int_equal(hot_take(h, false, taken), fork);
	}
	hot_put(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_forks),
		cmocka_unit_test(test_tried_without),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
