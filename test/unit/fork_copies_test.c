/* unit: base pgalloc mm */
/* wrap: pgalloc_copies_end host_worker_get */
/* Fork's copies over what a former child left, with another thread's help and without. */
#include "mm/mm_impl.h"
#include "mm_fixture.h"

#include "base/host_thread.h"

#include <unistd.h>

#define PIECES 600 /* pages, a window apart */
#define STEP (32UL << 10)

/* Not in the order of addresses. */
static u64 piece(u64 i)
{
	return BASE + i * 97 % PIECES * STEP;
}

static u32 asked, many; /* workers; forks with many copies */
static bool no_worker, fail;

int __real_pgalloc_copies_end(struct pgalloc_copies *c);
int __real_host_worker_get(struct host_worker **ret);
int __wrap_pgalloc_copies_end(struct pgalloc_copies *c);
int __wrap_host_worker_get(struct host_worker **ret);

int __wrap_pgalloc_copies_end(struct pgalloc_copies *c)
{
	int err = __real_pgalloc_copies_end(c);

	many += c != NULL;
	return c && fail ? -ENOMEM : err;
}

int __wrap_host_worker_get(struct host_worker **ret)
{
	asked++;
	return no_worker ? -EAGAIN : __real_host_worker_get(ret);
}

static void begin_reusing(void)
{
	static struct mm_totals totals;

	begin_as((struct mm_config){ .totals = &totals, .fork_reuse = true });
	map_anon(procs[0].mm, BASE, PIECES * STEP, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	asked = many = 0;
}

static void write_all(struct mm *mm, u32 base)
{
	for (u32 i = 0; i < PIECES; i++)
		assert_int_equal(fake_access(mm, piece(i), &(u32){ base + i }, 4, true), 0);
}

static void check_all(struct mm *mm, u32 base)
{
	u32 got;

	for (u32 i = 0; i < PIECES; i++) {
		assert_int_equal(fake_access(mm, piece(i), &got, 4, false), 0);
		assert_int_equal(got, base + i);
	}
}

/* Both write to all, and the child lives for long. */
static void one_child(u32 n)
{
	struct mm *child;

	write_all(procs[0].mm, n);
	child = fork_child();
	check_all(child, n);
	write_all(child, 1000 + n);
	write_all(procs[0].mm, 2000 + n);
	usleep(5000);
	check_all(child, 1000 + n);
	end_child(child);
	check_all(procs[0].mm, 2000 + n);
}

static void test_helped(void **state)
{
	begin_reusing();
	for (u32 n = 0; n < 8; n++) {
		no_worker = n == 6;
		one_child(n);
	}
	no_worker = false;
	assert_true(many > 0);
	assert_true(asked > 0);
	end();
}

/* A fork whose copies could not be made leaves nothing, and the next one is as any other. */
static void test_fails_late(void **state)
{
	struct mm *child;
	u32 before;

	begin_reusing();
	for (u32 n = 0; n < 6; n++)
		one_child(n);
	for (u32 n = 6; n < 10; n++) {
		before = many;
		fail = true;
		assert_int_equal(fake_fork(procs[0].mm, &child), -ENOMEM);
		fail = false;
		assert_int_equal(many, before + 1);
		check_all(procs[0].mm, 2000 + n - 1);
		one_child(n);
	}
	end();
}

/* Nobody is asked to help with few. */
static void test_few(void **state)
{
	struct pgalloc_opts opts = { .mode = PGALLOC_COMMIT };
	struct mem_range src, dst;

	begin();
	assert_int_equal(pgalloc_allocate(memory, 200 * PAGE_SIZE, &opts, &src), 0);
	assert_int_equal(pgalloc_allocate(memory, 200 * PAGE_SIZE, &opts, &dst), 0);
	for (u32 count = 0; count <= 200; count += 20) {
		struct pgalloc_copies *c;

		asked = 0;
		c = pgalloc_copies_begin(200);
		for (u64 i = 0; i < count; i++) {
			struct mem_range from = { src.start + i * PAGE_SIZE,
						  src.start + (i + 1) * PAGE_SIZE };
			struct mem_range to = { dst.start + i * PAGE_SIZE,
						dst.start + (i + 1) * PAGE_SIZE };

			assert_int_equal(pgalloc_copy_onto(memory, from, true, memory, to, c), 0);
		}
		assert_int_equal(pgalloc_copies_end(c), 0);
		assert_true(count > 40 || !asked);
		assert_true(asked <= 1);
	}
	memfile_put(pgalloc_file(memory), src);
	memfile_put(pgalloc_file(memory), dst);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_helped),
		cmocka_unit_test(test_fails_late),
		cmocka_unit_test(test_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
