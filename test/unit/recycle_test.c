/* unit: base pgalloc */
/* Freed pages that still hold something are only ever handed out to be overwritten. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/safecopy.h"
#include "pgalloc/pgalloc.h"
#include "pgalloc/recycle.h"

#include <string.h>

#define LEN (4 * PAGE_SIZE)

static char buf[LEN];

static struct mem_range filled(struct pgalloc *p, char c)
{
	struct pgalloc_opts o = { .mode = PGALLOC_COMMIT };
	struct mem_range r;

	assert_int_equal(pgalloc_allocate(p, LEN, &o, &r), 0);
	memset(buf, c, LEN);
	assert_int_equal(pgalloc_write(p, r.start, buf, LEN), 0);
	return r;
}

static void must_hold(struct pgalloc *p, struct mem_range r, u64 from, u64 len, char c)
{
	char want[LEN];

	memset(want, c, len);
	assert_int_equal(pgalloc_read(p, r.start + from, buf, len), 0);
	assert_memory_equal(buf, want, len);
}

static void test_pages(void **state)
{
	struct pgalloc_opts o = { .alone = true };
	struct mem_range old, r, src;
	struct pgalloc_usage u;
	struct pgalloc *p;

	assert_int_equal(safecopy_init(), 0);
	assert_int_equal(pgalloc_new_memfd(0, 64UL << 20, &p), 0);
	old = filled(p, 'o');
	memfile_put(pgalloc_file(p), old);
	pgalloc_usage(p, &u);
	assert_int_equal(u.reserved, 0);
	assert_int_equal(u.committed, 0);
	/* An ordinary allocation is zero, and another place. */
	assert_int_equal(pgalloc_allocate(p, LEN, &o, &r), 0);
	assert_int_not_equal(r.start, old.start);
	must_hold(p, r, 0, LEN, 0);
	memfile_put(pgalloc_file(p), r);
	/* A copy gets the old pages, holes and all overwritten. */
	assert_int_equal(pgalloc_allocate(p, LEN, &o, &src), 0);
	assert_int_equal(pgalloc_write(p, src.start + PAGE_SIZE, "x", 1), 0);
	assert_int_equal(pgalloc_allocate_copy(p, src, false, p, &o, &r), 0);
	assert_int_equal(r.start, old.start);
	must_hold(p, r, 0, PAGE_SIZE, 0);
	must_hold(p, r, PAGE_SIZE, 1, 'x');
	must_hold(p, r, PAGE_SIZE + 1, LEN - PAGE_SIZE - 1, 0);
	memfile_put(pgalloc_file(p), r);
	memfile_put(pgalloc_file(p), src);
	pgalloc_free(p);
}

static void test_ranges(void **state)
{
	struct recycle x = { 0 };
	struct mem_range r;
	u64 bytes = 0;

	for (u64 i = 0; i < RECYCLE_BYTES / LEN; i++)
		assert_true(recycle_add(&x, (struct mem_range){ 2 * i * LEN, (2 * i + 1) * LEN }));
	assert_false(recycle_add(&x, (struct mem_range){ 200 * LEN, 201 * LEN }));
	/* Beside another it needs no place of its own, if there is room. */
	assert_int_equal(x.bytes, RECYCLE_BYTES);
	assert_true(recycle_take(&x, LEN, 10 * LEN, &r));
	assert_int_equal(r.start, 10 * LEN);
	assert_true(recycle_add(&x, (struct mem_range){ 3 * LEN, 4 * LEN }));
	assert_true(recycle_take(&x, 2 * LEN, 0, &r));
	assert_int_equal(mem_range_len(r), 2 * LEN);
	assert_false(recycle_take(&x, 5 * LEN, 0, &r));
	while (recycle_take(&x, PAGE_SIZE, 0, &r))
		bytes += mem_range_len(r);
	assert_int_equal(bytes, RECYCLE_BYTES - 2 * LEN);
	assert_int_equal(x.bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
