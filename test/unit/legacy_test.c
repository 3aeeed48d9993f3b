/* unit: base pgalloc mm */
/* A child begins in the stub of an earlier one: what is the same stays mapped, nothing else does.
 */
#include "mm/mm_impl.h"
#include "mm_fixture.h"

#include <pthread.h>
#include <unistd.h>

#define PIECES 32
#define STEP (64UL << 10)
#define HOT 4 /* pieces that children write */

static struct mm_totals totals;

static u64 piece(u64 i)
{
	return BASE + i * STEP;
}

static void begin_reusing(bool reuse)
{
	begin_as((struct mm_config){ .totals = &totals, .fork_reuse = reuse });
	/* Each its own vma, so that each is a mapping of its own. */
	for (u32 i = 0; i < PIECES; i++) {
		map_anon(procs[0].mm, piece(i), STEP / 2, PROT_READ | PROT_WRITE, MAP_FIXED,
			 &no_limits);
		assert_int_equal(fake_access(procs[0].mm, piece(i), &i, 4, true), 0);
	}
}

static void write_hot(struct mm *mm, u32 v)
{
	for (u64 i = 0; i < HOT; i++)
		assert_int_equal(fake_access(mm, piece(i), &v, 4, true), 0);
}

static void write_three(struct mm *mm, u32 v)
{
	for (u64 i = 0; i < 3; i++)
		assert_int_equal(fake_access(mm, piece(i), &v, 4, true), 0);
}

static void check_reads(struct mm *mm, u64 from, u64 to)
{
	u32 v;

	for (u64 i = from; i < to; i++) {
		assert_int_equal(fake_access(mm, piece(i), &v, 4, false), 0);
		assert_int_equal(v, i);
	}
}

/* Children that read all and write a little. Returns what the last one took. */
static size_t maps_of_last_child(void)
{
	size_t before = 0;

	for (u32 n = 0; n < 6; n++) {
		struct mm *child = fork_child();

		before = fake.maps;
		check_reads(child, 0, PIECES);
		write_hot(child, 1000 + n);
		check_reads(procs[0].mm, 0, PIECES);
		end_child(child);
	}
	return fake.maps - before;
}

static void test_spares_mappings(void **state)
{
	size_t with, without, forks;
	struct mm *child;

	begin_reusing(true);
	with = maps_of_last_child();
	forks = fake.maps;
	child = fork_child();
	forks = fake.maps - forks;
	end_child(child);
	end();
	begin_reusing(false);
	maps_of_last_child();
	without = fake.maps;
	child = fork_child();
	without = fake.maps - without;
	end_child(child);
	end();
	assert_int_equal(with, 0); /* all that it needs is there from the start */
	/* The parent's own mappings of what became shared again do not differ. */
	assert_true(forks + PIECES / 2 < without);
}

/* What the parent has no more, and what lies elsewhere now, the next child does not find. */
static void test_changed_parent(void **state)
{
	struct mm *child, *other;
	u32 v = 77, got;

	begin_reusing(true);
	maps_of_last_child();
	mm_munmap(procs[0].mm, piece(5), STEP / 2);
	mm_munmap(procs[0].mm, piece(7), STEP / 2);
	map_anon(procs[0].mm, piece(7), STEP / 2, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	assert_int_equal(mm_mprotect(procs[0].mm, piece(9), STEP / 2, PROT_NONE, &no_limits), 0);
	/* Memory that was the parent's, and a legacy's, is somebody else's now. */
	for (u64 i = 0; i < PIECES; i++)
		map_anon(procs[0].mm, piece(PIECES + i), STEP / 2, PROT_READ | PROT_WRITE,
			 MAP_FIXED, &no_limits);
	other = fork_child();
	for (u64 i = 0; i < PIECES; i++)
		assert_int_equal(fake_access(other, piece(PIECES + i), &v, 4, true), 0);
	child = fork_child();
	assert_int_not_equal(fake_access(child, piece(5), &got, 4, false), 0);
	assert_int_equal(fake_access(child, piece(7), &got, 4, false), 0);
	assert_int_equal(got, 0);
	assert_int_not_equal(fake_access(child, piece(9), &got, 4, false), 0);
	check_reads(child, 10, PIECES);
	for (u64 i = 0; i < PIECES; i++) {
		assert_int_equal(fake_access(child, piece(PIECES + i), &got, 4, false), 0);
		assert_int_equal(got, 0);
	}
	end_child(other);
	end_child(child);
	end();
}

#define USED 600 /* pages of a worker's memory, a window apart */
#define USED_BASE (BASE + 4 * PIECES * STEP)

/* Not in the order of addresses. */
static u64 used(u64 i)
{
	return USED_BASE + i * 97 % USED * STEP / 2;
}

static void write_used(struct mm *mm, u64 count)
{
	for (u32 i = 0; i < count; i++)
		assert_int_equal(fake_access(mm, used(i), &i, 4, true), 0);
}

/* Children that write to much of their memory, and live for long, are soon spared all breaks. */
static void test_used_memory(void **state)
{
	u64 breaks = 0;
	u32 v, got;

	begin_reusing(true);
	map_anon(procs[0].mm, USED_BASE, USED * STEP / 2, PROT_READ | PROT_WRITE, MAP_FIXED,
		 &no_limits);
	for (u32 i = 0; i < USED; i++)
		assert_int_equal(fake_access(procs[0].mm, used(i), &i, 4, true), 0);
	for (u32 n = 0; n < 5; n++) {
		struct mm *child = fork_child();

		breaks = atomic_load(&totals.break_copy);
		for (u32 i = 0; i < USED; i++) {
			assert_int_equal(fake_access(child, used(i), &got, 4, false), 0);
			assert_int_equal(got, i);
			v = 1000 * n + i;
			assert_int_equal(fake_access(child, used(i), &v, 4, true), 0);
		}
		breaks = atomic_load(&totals.break_copy) - breaks;
		/* The parent writes to the same, but fork need not protect what it copies. */
		write_used(procs[0].mm, USED);
		assert_true(n < 3 || !mm_fork_wants_stub(procs[0].mm));
		usleep(10000);
		for (u32 i = 0; i < USED; i++) {
			assert_int_equal(fake_access(procs[0].mm, used(i), &got, 4, false), 0);
			assert_int_equal(got, i);
			assert_int_equal(fake_access(child, used(i), &got, 4, false), 0);
			assert_int_equal(got, 1000 * n + i);
		}
		end_child(child);
	}
	assert_int_equal(breaks, 0);
	/* What they leave is asked back when memory is short. */
	assert_true(pgalloc_kept(memory) >= USED * PAGE_SIZE);
	pgalloc_drain(memory);
	assert_true(pgalloc_kept(memory) < USED * PAGE_SIZE);
	end();
}

/* What became read-only stays so in what the next child's copies are mapped over. */
static void test_lost_rights(void **state)
{
	struct mm *child;
	u32 v = 9;

	begin_reusing(true);
	for (u64 at = 0; at < STEP / 2; at += PAGE_SIZE)
		assert_int_equal(fake_access(procs[0].mm, piece(1) + at, &(u32){ 1 }, 4, true), 0);
	maps_of_last_child();
	assert_int_equal(
		mm_mprotect(procs[0].mm, piece(1) + PAGE_SIZE, PAGE_SIZE, PROT_READ, &no_limits),
		0);
	child = fork_child();
	assert_int_equal(fake_access(child, piece(1), &v, 4, true), 0);
	assert_int_equal(fake_access(child, piece(1) + PAGE_SIZE, &v, 4, true), DENIED);
	end_child(child);
	end();
}

/* Where there is no memory for copies, a fork shares. */
static void test_no_memory_for_copies(void **state)
{
	struct pgalloc_opts opts = { .mode = PGALLOC_ALLOCATE };
	struct mem_range most;
	struct mm *child;
	u64 copied;
	u32 got;

	begin_reusing(true);
	map_anon(procs[0].mm, USED_BASE, USED * STEP / 2, PROT_READ | PROT_WRITE, MAP_FIXED,
		 &no_limits);
	write_used(procs[0].mm, USED);
	for (u32 n = 0; n < 4; n++) {
		child = fork_child();
		write_used(child, USED);
		usleep(5000);
		end_child(child);
	}
	pgalloc_drain(memory);
	for (u64 left = 8 * PAGE_SIZE; left <= 32 * HOT_BYTES; left *= 2) {
		assert_int_equal(
			pgalloc_allocate(memory, pgalloc_room(memory) - left, &opts, &most), 0);
		copied = pgalloc_copied(memory);
		child = fork_child();
		/* What is left is for writes, too. */
		assert_true(pgalloc_copied(memory) - copied <= left / 2);
		for (u32 i = 0; i < USED; i++) {
			assert_int_equal(fake_access(child, used(i), &got, 4, false), 0);
			assert_int_equal(got, i);
		}
		end_child(child);
		memfile_put(pgalloc_file(memory), most);
	}
	end();
}

static _Atomic bool drained_enough;

static void *drain_on(void *arg)
{
	while (!atomic_load(&drained_enough))
		pgalloc_drain(memory);
	return arg;
}

/* Children that own much and leave, or cannot, beside somebody who asks for all that is kept. */
static void test_leave_beside_drain(void **state)
{
	pthread_t drainer;

	begin_reusing(true);
	map_anon(procs[0].mm, USED_BASE, 1UL << 20, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	atomic_store(&drained_enough, false);
	assert_int_equal(pthread_create(&drainer, NULL, drain_on, NULL), 0);
	for (u32 n = 0; n < 300; n++) {
		struct mm *child = fork_child();

		fake.refuse_park_every = n % 2;
		for (u64 at = 0; at < 1UL << 20; at += 4 * PAGE_SIZE)
			assert_int_equal(fake_access(child, USED_BASE + at, &n, 4, true), 0);
		end_child(child);
		fake.refuse_park_every = 0;
	}
	atomic_store(&drained_enough, true);
	pthread_join(drainer, NULL);
	end();
}

/* A parent that writes has its memory to itself as soon as the child is gone. */
static void test_parent_owns(void **state)
{
	u64 copied;

	begin_reusing(true);
	maps_of_last_child();
	copied = atomic_load(&totals.break_copy);
	for (u32 i = HOT; i < PIECES; i++)
		assert_int_equal(fake_access(procs[0].mm, piece(i), &i, 4, true), 0);
	assert_int_equal(atomic_load(&totals.break_copy), copied);
	end();
}

/* Two children at once, a grandchild, a child that outlives its parent. */
static void test_families(void **state)
{
	struct mm *a, *b, *grandchild;

	begin_reusing(true);
	maps_of_last_child();
	for (u32 n = 0; n < 4; n++) {
		a = fork_child();
		b = fork_child();
		write_hot(a, 1);
		write_hot(b, 2);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(fake_fork(a, &grandchild), 0);
			check_reads(grandchild, HOT, PIECES);
			write_hot(grandchild, 3);
			end_child(grandchild);
		}
		check_reads(procs[0].mm, 0, PIECES);
		end_child(a);
		end_child(b);
	}
	a = fork_child();
	end_child(procs[0].mm);
	procs[0].mm = NULL;
	check_reads(a, 0, PIECES);
	end_child(a);
	end();
}

/* Who has other rights than before shares no stub with those of before. */
static void test_trust(void **state)
{
	struct mm *child;

	begin_reusing(true);
	maps_of_last_child();
	assert_true(fake.as_count > 1);
	mm_trust_changed(procs[0].mm);
	assert_int_equal(fake.as_count, 1);
	maps_of_last_child();
	assert_true(fake.as_count > 1);
	mm_trust_changed(procs[0].mm);
	for (int how = 0; how < 3; how++) {
		child = fork_child();
		if (how == 0)
			mm_trust_changed(child);
		else if (how == 1)
			mm_set_dumpable(child, 0);
		else
			mm_trust_changed(procs[0].mm);
		end_child(child);
		assert_int_equal(fake.as_count, 1);
	}
	/* One that others look at gives up its memory at once. */
	child = fork_child();
	mm_get(child);
	write_hot(child, 3);
	end_child(child);
	assert_int_equal(pgalloc_kept(memory), 0);
	mm_put(child);
	end();
}

/* A fork reads no file for what an earlier child has read. */
static void test_reads_nothing(void **state)
{
	struct mm *child;
	u32 v;

	begin_reusing(true);
	assert_int_equal(mm_munmap(procs[0].mm, piece(0), PIECES * STEP), 0);
	map_pages(&procs[0], 0, FAKE_FILE_PAGES, FILE_PRIVATE, 0, PROT_READ);
	for (int n = 0; n < 3; n++) {
		child = fork_child();
		for (int i = 0; i < FAKE_FILE_PAGES; i++) {
			assert_int_equal(fake_access(child, address(i) + spot[0], &v, 4, false), 0);
			if (n == 0)
				assert_int_equal(v, constant_value[i]);
		}
		end_child(child);
		fake_file_drop(constant, 0);
		child = fork_child();
		for (int i = 0; i < FAKE_FILE_PAGES; i++)
			assert_false(constant->present[i]);
		end_child(child);
	}
	end();
}

/* What a legacy keeps is given back when memory runs out. */
static void test_drained(void **state)
{
	struct pgalloc_opts opts = { .mode = PGALLOC_ALLOCATE };
	struct mem_range all;

	begin_reusing(true);
	maps_of_last_child();
	assert_true(pgalloc_kept(memory) >= HOT * PAGE_SIZE);
	assert_int_equal(pgalloc_allocate(memory, pgalloc_room(memory) + PAGE_SIZE, &opts, &all),
			 0);
	assert_int_equal(pgalloc_kept(memory), 0);
	memfile_put(pgalloc_file(memory), all);
	maps_of_last_child();
	end();
}

/* Where the host has no room for another stub, what lies idle makes some. */
static void test_makes_room(void **state)
{
	struct mm *child, *other;
	size_t before;

	begin_reusing(true);
	before = fake.as_count;
	maps_of_last_child();
	assert_int_equal(fake.as_count, before + 1);
	fake.as_max = fake.as_count;
	child = fork_child(); /* in the legacy */
	assert_int_equal(mm_fork(child, &other), -EAGAIN);
	end_child(child);
	assert_int_equal(mm_new(&(struct mm_config){ .memory = memory }, &other), 0);
	fake.as_max = 0;
	end_child(other);
	end();
}

/* A parent that has moved and comes back finds its memory mapped as it was. */
static void test_home(void **state)
{
	struct mm *child, *stays;
	size_t maps, faults;
	u32 got;

	begin_reusing(true);
	for (u32 round = 0; round < 3; round++) {
		assert_int_equal(fake_fork_moving(procs[0].mm, &child), 0);
		assert_non_null(mm_home(procs[0].mm));
		check_reads(child, 0, PIECES);
		write_hot(child, 5);
		/* Piece 9 is copied while it is away. */
		assert_int_equal(fake_access(procs[0].mm, piece(9), &(u32){ 9 }, 4, true), 0);
		end_child(child);
		maps = fake.maps;
		faults = atomic_load(&procs[0].mm->minor_faults);
		for (u32 i = 0; i < PIECES; i++)
			if (i != 9)
				assert_int_equal(fake_access(procs[0].mm, piece(i), &i, 4, true),
						 0);
		assert_null(mm_home(procs[0].mm));
		assert_int_equal(fake.maps, maps);
		assert_in_range(atomic_load(&procs[0].mm->minor_faults) - faults, 1, 2);
		check_reads(procs[0].mm, 0, PIECES);
	}
	/* What a child still has, or what is gone, is not there. */
	assert_int_equal(fake_fork_moving(procs[0].mm, &child), 0);
	assert_int_equal(fake_fork(child, &stays), 0);
	assert_int_equal(mm_munmap(procs[0].mm, piece(3), STEP / 2), 0);
	end_child(child);
	assert_non_null(mm_home(procs[0].mm));
	write_three(procs[0].mm, 6); /* the grandchild shares it */
	assert_non_null(mm_home(procs[0].mm));
	mm_munmap(stays, piece(4), (PIECES - 4) * STEP);
	end_child(stays);
	assert_int_equal(fake_access(procs[0].mm, piece(4), &(u32){ 4 }, 4, true), 0);
	assert_null(mm_home(procs[0].mm));
	assert_int_not_equal(fake_access(procs[0].mm, piece(3), &got, 4, false), 0);
	assert_int_equal(fake_access(procs[0].mm, piece(2), &got, 4, false), 0);
	assert_int_equal(got, 6);
	check_reads(procs[0].mm, 4, PIECES);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spares_mappings),
		cmocka_unit_test(test_changed_parent),
		cmocka_unit_test(test_parent_owns),
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_drained),
		cmocka_unit_test(test_home),
		cmocka_unit_test(test_makes_room),
		cmocka_unit_test(test_trust),
		cmocka_unit_test(test_reads_nothing),
		cmocka_unit_test(test_used_memory),
		cmocka_unit_test(test_lost_rights),
		cmocka_unit_test(test_no_memory_for_copies),
		cmocka_unit_test(test_leave_beside_drain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
