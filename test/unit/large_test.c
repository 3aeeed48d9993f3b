/* unit: base pgalloc mm */
/* Copies of 2 MiB on huge pages (mm/cow.c) against a model: what else a process does with parts of
 * them, in several processes that have them from each other. */
#include "base/host_mem.h"
#include "mm/mm_impl.h"
#include "mm_fixture.h"

#define AT 0x40000000UL
#define COUNT 3072     /* pages */
#define COUNT_MAX 1000 /* that one operation is for */
#define STEPS 2500

struct large_proc {
	struct mm *mm;
	u32 value[COUNT]; /* 0: never written */
	bool mapped[COUNT];
};

static struct large_proc large_procs[4];
static u32 next;

static u64 at(int i)
{
	return AT + (u64)i * PAGE_SIZE;
}

static void put(struct large_proc *p, int i)
{
	u32 v = ++next;
	int want = p->mapped[i] ? 0 : UNMAPPED;

	assert_int_equal(fake_access(p->mm, at(i) + spot[i & 1], &v, 4, true), want);
	if (!want)
		p->value[i] = v;
}

static void check(struct large_proc *p, int i)
{
	int want = p->mapped[i] ? 0 : UNMAPPED;
	u32 got = 0;

	assert_int_equal(fake_access(p->mm, at(i) + spot[i & 1], &got, 4, false), want);
	if (!want)
		assert_int_equal(got, p->value[i]);
}

static void put_all(struct large_proc *p, int first, int n)
{
	for (int i = first; i < first + n; i++)
		put(p, i);
}

static void op_end(struct large_proc *p)
{
	mm_user_put(p->mm);
	mm_put(p->mm);
	p->mm = NULL;
}

/* Of p; over another one, unless that is p. */
static struct large_proc *op_fork(struct large_proc *p)
{
	struct large_proc *c = &large_procs[rnd(ARRAY_SIZE(large_procs))];
	struct mm *mm;

	if (c == p)
		return p;
	if (c->mm)
		op_end(c);
	assert_int_equal(rnd(2) ? fake_fork(p->mm, &mm) : fake_fork_moving(p->mm, &mm), 0);
	*c = *p;
	c->mm = mm;
	return c;
}

/* Read into by the sentry while the process forks. */
static void op_pin(struct large_proc *p, int i)
{
	struct iovec seg[4];
	struct mm_pin pins[4];
	u32 v = ++next;
	int count;
	ssize_t n = mm_pin(p->mm, ua(at(i)), PAGE_SIZE, true, seg, pins, 4, &count);

	if (!p->mapped[i]) {
		assert_int_equal(n, -EFAULT);
		return;
	}
	assert_int_equal(n, PAGE_SIZE);
	op_fork(p);
	switch (rnd(3)) {
	case 0: put(p, i); break;
	case 1: /* who pins it has it, whatever the process does */
		assert_int_equal(mm_munmap(p->mm, at(i), PAGE_SIZE), 0);
		p->mapped[i] = false;
		break;
	}
	memcpy((char *)seg[0].iov_base + spot[i & 1], &v, 4);
	mm_unpin(pins, count);
	if (p->mapped[i])
		p->value[i] = v;
}

static void op_move(struct large_proc *p, int from, int to, int n)
{
	s64 r;

	if (abs(from - to) < n)
		return;
	for (int i = 0; i < n; i++)
		if (!p->mapped[from + i])
			return;
	r = mm_mremap(p->mm, at(from), (u64)n * PAGE_SIZE, (u64)n * PAGE_SIZE,
		      MREMAP_MAYMOVE | MREMAP_FIXED, at(to), &no_limits);
	assert_int_equal(r, (s64)at(to));
	for (int i = 0; i < n; i++) {
		/* Its place in a page goes by its number. */
		p->mapped[to + i] = true;
		p->mapped[from + i] = false;
		p->value[to + i] = p->value[from + i];
	}
}

static void op_map(struct large_proc *p, int first, int n)
{
	assert_int_equal(map_anon(p->mm, at(first), (u64)n * PAGE_SIZE, PROT_READ | PROT_WRITE,
				  MAP_FIXED, &no_limits),
			 (s64)at(first));
	for (int i = first; i < first + n; i++) {
		p->mapped[i] = true;
		p->value[i] = 0;
	}
}

static void step(void)
{
	struct large_proc *p = &large_procs[rnd(ARRAY_SIZE(large_procs))];
	int n = 1 + (int)rnd(rnd(2) ? 8 : COUNT_MAX), first = (int)rnd((u64)(COUNT - n));
	u32 v = 0;

	if (!p->mm)
		return;
	switch (rnd(12)) {
	case 0:
		op_map(p, 0, COUNT);
		put_all(p, 0, COUNT);
		/* fall through */
	case 1:
	case 2: put_all(op_fork(p), 0, COUNT); break;
	case 3:
		assert_int_equal(mm_munmap(p->mm, at(first), (u64)n * PAGE_SIZE), 0);
		memset(&p->mapped[first], 0, (size_t)n);
		break;
	case 4:
		mm_madvise(p->mm, at(first), (u64)n * PAGE_SIZE, MADV_DONTNEED, &no_limits);
		for (int i = first; i < first + n; i++)
			p->value[i] = 0;
		break;
	case 5: op_map(p, first, n); break;
	case 6: op_move(p, first, (first & 1) + 2 * (int)rnd((u64)(COUNT - n) / 2), n); break;
	case 7: op_pin(p, first); break;
	case 8:
		put_all(p, first, n);
		if (p->mapped[first]) {
			assert_int_equal(mm_copy_in(p->mm, &v, ua(at(first) + spot[first & 1]), 4),
					 0);
			assert_int_equal(v, p->value[first]);
		}
		break;
	case 9: pgalloc_drain(memory); break;
	case 10:
		if (p != &large_procs[0])
			op_end(p);
		break;
	case 11:
		for (int i = 0; i < COUNT; i++)
			check(p, i);
		break;
	}
}

/* Of p in the large file. */
static u64 large_pages(struct large_proc *p)
{
	struct memfile *large = pgalloc_file(pgalloc_large(memory));
	u64 n = 0;

	for (struct pma *q = pma_set_first(&p->mm->pmas); q; q = pma_next(q))
		if (q->file == large)
			n += (q->end - q->start) >> PAGE_SHIFT;
	return n;
}

static void begin_large(void)
{
	begin();
	assert_int_equal(pgalloc_add_large(memory, host_memfd_create("large"), 1), 0);
	memset(large_procs, 0, sizeof(large_procs));
	large_procs[0].mm = procs[0].mm;
	procs[0].mm = NULL;
}

static void end_large(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(large_procs); i++)
		if (large_procs[i].mm)
			op_end(&large_procs[i]);
	end();
}

static void test_random(void **state)
{
	u64 large = 0;

	srandom(5);
	begin_large();
	for (int i = 0; i < STEPS; i++) {
		struct large_proc *p = &large_procs[i % (int)ARRAY_SIZE(large_procs)];

		if (p->mm)
			large = MAX(large, large_pages(p));
		step();
	}
	print_message("%lu pages on huge pages at most\n", large);
	end_large();
}

/* Offsets of the large file say nothing about where in the other one new memory should lie. */
static void test_placement(void **state)
{
	struct memfile *large;
	struct large_proc *c;
	struct pma *before, *p;

	begin_large();
	large = pgalloc_file(pgalloc_large(memory));
	op_map(&large_procs[0], 0, 2048);
	put_all(&large_procs[0], 0, 2048);
	while ((c = op_fork(&large_procs[0])) == &large_procs[0])
		;
	put_all(c, 0, 2048);
	op_map(c, 2048, 16);
	put(c, 2048);
	before = pma_set_find(&c->mm->pmas, at(2047));
	p = pma_set_find(&c->mm->pmas, at(2048));
	assert_ptr_equal(p->file, pgalloc_file(memory));
	if (before->file == large)
		assert_int_not_equal(p->offset, pma_range(before).end);
	else
		print_message("huge pages are slow here\n");
	end_large();
}

/* What copies have reserved and nobody has touched is given back wherever it lies. */
static void test_trim(void **state)
{
	const u64 limit = 24UL << 20, len = 16UL << 20, fresh = 20UL << 20;
	struct mm_config config;
	struct mm *mm, *child;
	u32 v = 1;

	begin();
	assert_int_equal(pgalloc_new_memfd(1, limit, &memory), 0);
	assert_int_equal(pgalloc_add_second(memory, 2), 0);
	config = (struct mm_config){ .memory = memory, .fork_reuse = true };
	assert_int_equal(mm_new(&config, &mm), 0);
	map_anon(mm, AT, len, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	for (u64 a = AT; a < AT + len; a += 16 * PAGE_SIZE)
		assert_int_equal(fake_access(mm, a, &v, 4, true), 0);
	assert_int_equal(fake_fork(mm, &child), 0);
	for (u64 a = AT; a < AT + len; a += 16 * PAGE_SIZE)
		assert_int_equal(fake_access(child, a, &v, 4, true), 0);
	map_anon(child, AT + len, fresh, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_NORESERVE,
		 &no_limits);
	for (u64 a = AT + len; a < AT + len + fresh; a += PAGE_SIZE)
		assert_int_equal(fake_access(child, a, &v, 4, true), 0);
	end_own_memory(mm, child);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_placement),
		cmocka_unit_test(test_trim),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
