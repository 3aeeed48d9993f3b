/* unit: base pgalloc mm */
/* A parent that writes waits a little for its child to be gone, and learns whether that helps. */
#include "mm_fixture.h"

#include <time.h>

#define PIECES 16
#define STEP (64UL << 10) /* so that each write needs a copy of its own */
#define LONGEST_MS 100	  /* of a wait, with all that may delay a test */

static struct mm_totals totals;

static void begin_counted(void)
{
	u32 v = 1;

	begin_as((struct mm_config){ .totals = &totals, .fork_wait = true, .fork_reuse = true });
	map_anon(procs[0].mm, BASE, PIECES * STEP, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	for (u64 i = 0; i < PIECES; i++)
		assert_int_equal(fake_access(procs[0].mm, BASE + i * STEP, &v, 4, true), 0);
}

static int write_fault(u64 piece)
{
	int sig, code;

	return mm_fault(procs[0].mm, BASE + piece * STEP, true, false, &sig, &code);
}

/* The first writes are not worth a wait. Which one is? */
static u64 first_wait(void)
{
	for (u64 i = 0; i < PIECES; i++) {
		int r = write_fault(i);

		if (r == -EAGAIN)
			return i;
		assert_int_equal(r, 0);
	}
	return PIECES;
}

static s64 now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000L + t.tv_nsec / 1000000;
}

/* Writes that a later fork may spare. */
static void write_all(void)
{
	u32 v = 2;

	for (u64 i = 0; i < PIECES; i++)
		assert_int_equal(fake_access(procs[0].mm, BASE + i * STEP, &v, 4, true), 0);
}

static void test_child_that_goes(void **state)
{
	struct mm *child;
	u64 copied;

	begin_counted();
	/* Of the first one nothing is known. */
	child = fork_child();
	assert_int_equal(first_wait(), PIECES);
	end_child(child);
	/* A machine that stands still for a while makes children seem slow. */
	for (int round = 0;; round++) {
		child = fork_child();
		if (first_wait() < PIECES)
			break;
		end_child(child);
		assert_true(round < 50);
	}
	copied = atomic_load(&totals.break_copy);
	end_child(child);
	mm_await_child(procs[0].mm);
	write_all();
	assert_int_equal(atomic_load(&totals.break_copy), copied);
	end();
}

static void test_child_that_stays(void **state)
{
	struct mm *child[12], *quick;
	u64 waits = 0;

	begin_counted();
	quick = fork_child();
	assert_int_equal(first_wait(), PIECES);
	end_child(quick);
	for (size_t i = 0; i < ARRAY_SIZE(child); i++) {
		s64 began = now_ms();

		child[i] = fork_child();
		if (first_wait() == PIECES)
			continue;
		waits++;
		mm_await_child(procs[0].mm);
		assert_true(now_ms() - began < LONGEST_MS);
		/* Once is enough. */
		assert_int_equal(first_wait(), PIECES);
	}
	/* One that is still there says that children stay. */
	assert_true(waits <= 1);
	for (size_t i = 0; i < ARRAY_SIZE(child); i++)
		end_child(child[i]);
	end();
}

/* A parent that goes first, and one with several threads. */
static void test_no_wait(void **state)
{
	struct mm *child, *grandchild;

	begin_counted();
	child = fork_child();
	mm_user_get(procs[0].mm);
	assert_int_equal(first_wait(), PIECES);
	mm_user_put(procs[0].mm);
	assert_int_equal(fake_fork(child, &grandchild), 0);
	end_child(child);
	end_child(grandchild);
	mm_await_child(procs[0].mm); /* nobody is there */
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_that_goes),
		cmocka_unit_test(test_child_that_stays),
		cmocka_unit_test(test_no_wait),
	};

	setvbuf(stdout, NULL, _IONBF, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
