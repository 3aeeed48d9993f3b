/* unit: base pgalloc */
/* What is known about pages, against one byte a page; and that it follows what happens to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/safecopy.h"
#include "pgalloc/known.h"
#include "pgalloc/pgalloc.h"

#include <stdlib.h>
#include <string.h>

/* Around the boundary of two chunks. */
#define PAGES 700UL
#define BASE (PGALLOC_CHUNK_SIZE - 300 * PAGE_SIZE)
#define THERE 1
#define STILL 2

static struct mem_range pages(u64 from, u64 to)
{
	return (struct mem_range){ BASE + from * PAGE_SIZE, BASE + to * PAGE_SIZE };
}

static enum known_state state_of(u8 m)
{
	return m & THERE ? KNOWN_THERE : m & STILL ? KNOWN_HOLE : KNOWN_NOTHING;
}

static void test_model(void **state)
{
	static u8 model[PAGES];
	struct known_pages k;
	unsigned seed = 1;

	assert_int_equal(known_init(&k, 4), 0);
	for (int i = 0; i < 20000; i++) {
		u64 a = (u64)rand_r(&seed) % PAGES, n = 1 + (u64)rand_r(&seed) % 150;
		u64 b = MIN(a + n, PAGES), to;
		struct mem_range run;
		enum known_state s;

		switch (rand_r(&seed) % 6) {
		case 0:
			known_set_there(&k, pages(a, b));
			for (u64 p = a; p < b; p++)
				model[p] |= THERE;
			break;
		case 1:
			known_set_still(&k, pages(a, b));
			for (u64 p = a; p < b; p++)
				model[p] |= STILL;
			break;
		case 2:
			known_clear_still(&k, pages(a, b));
			for (u64 p = a; p < b; p++)
				model[p] &= THERE;
			break;
		case 3:
			known_clear(&k, pages(a, b));
			memset(model + a, 0, b - a);
			break;
		default:
			s = known_run(&k, pages(a, b), &run);
			assert_int_equal(s, state_of(model[a]));
			for (to = a; to < b && state_of(model[to]) == s; to++)
				;
			assert_int_equal(run.start, pages(a, b).start);
			assert_int_equal(run.end, pages(a, to).end);
		}
	}
	known_destroy(&k);
}

/* A hole that is said to stay one is not asked for again until it may be written. */
static void test_still(void **state)
{
	struct pgalloc_opts o = { 0 };
	struct mem_range r, run;
	struct pgalloc *p;

	assert_int_equal(safecopy_init(), 0);
	assert_int_equal(pgalloc_new_memfd(0, 64UL << 20, &p), 0);
	assert_int_equal(pgalloc_allocate(p, 64 * PAGE_SIZE, &o, &r), 0);
	assert_int_equal(pgalloc_write(p, r.start + 10 * PAGE_SIZE, "x", 1), 0);
	assert_true(pgalloc_next_committed_still(p, r, &run));
	assert_int_equal(run.start, r.start + 10 * PAGE_SIZE);
	assert_int_equal(run.end, r.start + 11 * PAGE_SIZE);
	run.start = run.end;
	run.end = r.end;
	assert_false(pgalloc_next_committed_still(p, run, &run));
	pgalloc_unstill(p, r);
	assert_int_equal(pgalloc_write(p, r.start + 40 * PAGE_SIZE, "y", 1), 0);
	assert_true(pgalloc_next_committed(p, (struct mem_range){ r.start + 11 * PAGE_SIZE, r.end },
					   &run));
	assert_int_equal(run.start, r.start + 40 * PAGE_SIZE);
	/* Freed and allocated again: nothing is there, whatever was. */
	memfile_put(pgalloc_file(p), r);
	assert_int_equal(pgalloc_allocate(p, 64 * PAGE_SIZE, &o, &r), 0);
	assert_false(pgalloc_next_committed(p, r, &run));
	memfile_put(pgalloc_file(p), r);
	pgalloc_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_still),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
