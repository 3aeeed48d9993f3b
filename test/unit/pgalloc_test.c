/* unit: base pgalloc */
/* pgalloc against a naive model: an array of reference counts and expected bytes per page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/host_mem.h"
#include "base/safecopy.h"
#include "pgalloc/pgalloc.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 400
#define LIMIT (64UL << 20)

struct held {
	struct mem_range r;
	u32 tag; /* what its pages hold: 0 means never written */
};

static struct pgalloc *make(u64 limit)
{
	struct pgalloc *p;

	assert_int_equal(safecopy_init(), 0);
	assert_int_equal(pgalloc_new_memfd(0, limit, &p), 0);
	return p;
}

static void stamp(struct pgalloc *p, struct mem_range r, u32 tag)
{
	u64 words[2] = { tag, 0 };

	for (u64 o = r.start; o < r.end; o += PAGE_SIZE) {
		words[1] = o;
		assert_int_equal(pgalloc_write(p, o + 24, words, sizeof(words)), 0);
	}
}

static void check(struct pgalloc *p, struct mem_range r, u32 tag)
{
	u64 words[2];

	for (u64 o = r.start; o < r.end; o += PAGE_SIZE) {
		assert_int_equal(pgalloc_read(p, o + 24, words, sizeof(words)), 0);
		assert_int_equal(words[0], tag);
		assert_int_equal(words[1], tag ? o : 0);
	}
}

static void assert_baseline(struct pgalloc *p)
{
	struct pgalloc_usage u;

	pgalloc_usage(p, &u);
	assert_int_equal(u.reserved, 0);
	assert_int_equal(u.committed, 0);
}

/* Ranges held at random, each holder with its own reference; contents must survive until the last.
 */
static void test_random(void **state)
{
	struct pgalloc *p = make(LIMIT);
	struct memfile *f = pgalloc_file(p);
	static struct held held[MAX_RANGES];
	size_t count = 0;
	u32 next_tag = 1;

	srandom(7);
	for (int step = 0; step < 60000; step++) {
		int op = (int)(random() % 100);

		if (op < 35 && count < MAX_RANGES) {
			struct pgalloc_opts o = {
				.mode = (enum pgalloc_mode)(random() % 3),
				.dir = random() % 2 ? PGALLOC_UP : PGALLOC_DOWN,
				.acct_id = (u32)(random() % 3),
				.room = random() % 3 ? 0 : (u64)(random() % 64) * PAGE_SIZE,
				.huge = random() % 20 == 0,
			};
			u64 len = (1 + (u64)random() % 24) * PAGE_SIZE;
			struct held *h = &held[count];
			int err;

			if (count && random() % 2)
				o.hint = o.dir == PGALLOC_UP ? held[random() % count].r.end
							     : held[random() % count].r.start;
			err = pgalloc_allocate(p, len, &o, &h->r);
			if (err == -ENOMEM)
				continue;
			assert_int_equal(err, 0);
			assert_int_equal(mem_range_len(h->r), len);
			h->tag = 0;
			if (random() % 8 == 0)
				check(p, h->r, 0);
			if (random() % 2) {
				h->tag = next_tag++;
				stamp(p, h->r, h->tag);
			}
			assert_true(pgalloc_exclusive(p, h->r));
			count++;
		} else if (op < 55 && count && count < MAX_RANGES) {
			/* another holder of a part of an existing range */
			struct held *h = &held[random() % count];
			u64 pages = mem_range_len(h->r) / PAGE_SIZE, a = (u64)random() % pages;
			u64 b = a + 1 + (u64)random() % (pages - a);
			struct mem_range r = { h->r.start + a * PAGE_SIZE,
					       h->r.start + b * PAGE_SIZE };

			memfile_get(f, r);
			held[count++] = (struct held){ r, h->tag };
			assert_false(pgalloc_exclusive(p, r));
		} else if (count) {
			size_t i = (size_t)random() % count;

			check(p, held[i].r, held[i].tag);
			memfile_put(f, held[i].r);
			held[i] = held[--count];
		}
		if (step % 5000 == 0) {
			/* exact counts, page by page */
			for (size_t i = 0; i < count; i++)
				for (u64 o = held[i].r.start; o < held[i].r.end; o += PAGE_SIZE) {
					struct mem_range run;
					u32 refs = 0;

					for (size_t j = 0; j < count; j++)
						refs += held[j].r.start <= o && o < held[j].r.end;
					assert_int_equal(
						pgalloc_refs(p,
							     (struct mem_range){ o, o + PAGE_SIZE },
							     &run),
						refs);
				}
		}
	}
	while (count) {
		check(p, held[count - 1].r, held[count - 1].tag);
		memfile_put(f, held[--count].r);
	}
	assert_baseline(p);
	for (u32 id = 0; id < 3; id++)
		assert_int_equal(pgalloc_acct_usage(p, id), 0);
	pgalloc_free(p);
}

static void test_limit(void **state)
{
	struct pgalloc *p = make(1UL << 20);
	struct pgalloc_opts o = { .mode = PGALLOC_ALLOCATE };
	struct mem_range a, b = { 1, 2 };

	assert_int_equal(pgalloc_allocate(p, 1UL << 20, &o, &a), 0);
	assert_int_equal(pgalloc_allocate(p, PAGE_SIZE, &o, &b), -ENOMEM);
	assert_int_equal(b.start, 1);
	memfile_put(pgalloc_file(p), a);
	assert_int_equal(pgalloc_allocate(p, 1UL << 62, &o, &b), -ENOMEM);
	assert_int_equal(pgalloc_allocate(p, PAGE_SIZE, &o, &b), 0);
	memfile_put(pgalloc_file(p), b);
	assert_baseline(p);
	pgalloc_free(p);
}

/* Reading a hole commits nothing; a copy copies only what exists. */
static void test_committed(void **state)
{
	struct pgalloc *p = make(LIMIT);
	struct pgalloc_opts o = { .mode = PGALLOC_ALLOCATE };
	struct mem_range src, dst, run;
	struct pgalloc_usage u;
	static char buf[64 * PAGE_SIZE];

	assert_int_equal(pgalloc_allocate(p, sizeof(buf), &o, &src), 0);
	memset(buf, 1, sizeof(buf));
	assert_int_equal(pgalloc_read(p, src.start, buf, sizeof(buf)), 0);
	for (size_t i = 0; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 0);
	pgalloc_usage(p, &u);
	assert_int_equal(u.committed, 0);
	assert_false(pgalloc_next_committed(p, src, &run));

	assert_int_equal(pgalloc_write(p, src.start + 5 * PAGE_SIZE + 4090, "hello world", 11), 0);
	assert_int_equal(pgalloc_write(p, src.start + 63 * PAGE_SIZE, "x", 1), 0);
	assert_true(pgalloc_next_committed(p, src, &run));
	assert_int_equal(run.start, src.start + 5 * PAGE_SIZE);
	assert_int_equal(run.end, src.start + 7 * PAGE_SIZE);
	assert_int_equal(pgalloc_allocate(p, sizeof(buf), &o, &dst), 0);
	assert_int_equal(pgalloc_copy_committed(p, src, dst), 0);
	pgalloc_usage(p, &u);
	assert_int_equal(u.committed, 6 * PAGE_SIZE);
	assert_int_equal(pgalloc_read(p, dst.start + 5 * PAGE_SIZE + 4090, buf, 11), 0);
	assert_memory_equal(buf, "hello world", 11);
	assert_int_equal(pgalloc_decommit(p, dst), 0);
	assert_int_equal(pgalloc_read(p, dst.start + 5 * PAGE_SIZE + 4090, buf, 11), 0);
	assert_int_equal(buf[0], 0);
	memfile_put(pgalloc_file(p), src);
	memfile_put(pgalloc_file(p), dst);
	assert_baseline(p);
	pgalloc_free(p);
}

static ssize_t short_reader(void *arg, void *dst, size_t len)
{
	int *calls = arg;

	if ((*calls)++)
		return 0;
	memset(dst, 'r', 5000);
	return 5000;
}

static ssize_t bad_reader(void *arg, void *dst, size_t len)
{
	return -EIO;
}

static void test_reader(void **state)
{
	struct pgalloc *p = make(LIMIT);
	int calls = 0;
	struct pgalloc_opts o = { .reader = short_reader, .reader_arg = &calls };
	struct mem_range r;
	char c[2];

	assert_int_equal(pgalloc_allocate(p, 4 * PAGE_SIZE, &o, &r), 0);
	assert_int_equal(pgalloc_read(p, r.start + 4999, c, 2), 0);
	assert_int_equal(c[0], 'r');
	assert_int_equal(c[1], 0);
	memfile_put(pgalloc_file(p), r);
	o.reader = bad_reader;
	assert_int_equal(pgalloc_allocate(p, 4 * PAGE_SIZE, &o, &r), -EIO);
	assert_baseline(p);
	pgalloc_free(p);
}

/* Neighbours asked for by hint lie next to each other, both ways. */
static void test_hints(void **state)
{
	struct pgalloc *p = make(LIMIT);
	struct pgalloc_opts o = { .dir = PGALLOC_UP, .room = 1UL << 20 };
	struct mem_range up[8], down[8];

	for (int i = 0; i < 8; i++) {
		o.dir = PGALLOC_UP;
		o.hint = i ? up[i - 1].end : 0;
		assert_int_equal(pgalloc_allocate(p, 16 * PAGE_SIZE, &o, &up[i]), 0);
		o.dir = PGALLOC_DOWN;
		o.hint = i ? down[i - 1].start : 0;
		assert_int_equal(pgalloc_allocate(p, 16 * PAGE_SIZE, &o, &down[i]), 0);
	}
	for (int i = 1; i < 8; i++) {
		assert_int_equal(up[i].start, up[i - 1].end);
		assert_int_equal(down[i].end, down[i - 1].start);
	}
	for (int i = 0; i < 8; i++) {
		memfile_put(pgalloc_file(p), up[i]);
		memfile_put(pgalloc_file(p), down[i]);
	}
	assert_baseline(p);
	pgalloc_free(p);
}

/* Whole units go to the large file, all of whose pages exist, and may be freed by parts. */
static void test_copy_large(void **state)
{
	const u64 unit = PGALLOC_LARGE_UNIT;
	struct pgalloc_opts opts = { .dir = PGALLOC_UP };
	struct pgalloc *p = make(LIMIT), *large;
	struct mem_range src, dst = { 0 }, run;
	struct pgalloc_usage u;

	assert_int_equal(pgalloc_add_large(p, host_memfd_create("large"), 1), 0);
	large = pgalloc_large(p);
	assert_int_equal(pgalloc_allocate(p, unit, &opts, &src), 0);
	/* A hole would be filled by the copy. */
	stamp(p, (struct mem_range){ src.start, src.end - PAGE_SIZE }, 7);
	assert_int_equal(pgalloc_copy_large(p, src, true, large, 0, &dst), -ENODATA);
	pgalloc_usage(p, &u);
	assert_int_equal(u.committed, unit - PAGE_SIZE);
	pgalloc_unstill(p, src);
	stamp(p, (struct mem_range){ src.end - PAGE_SIZE, src.end }, 7);
	assert_int_equal(pgalloc_copy_large(p, src, true, large, 0, &dst), 0);
	assert_int_equal(mem_range_len(dst), unit);
	assert_int_equal(dst.start & (unit - 1), 0);
	assert_true(pgalloc_copied(p) >= unit);
	for (u64 o = 0; o < unit; o += PAGE_SIZE) {
		u64 a[512], b[512];

		assert_int_equal(pgalloc_read(p, src.start + o, a, sizeof(a)), 0);
		assert_int_equal(pgalloc_read(large, dst.start + o, b, sizeof(b)), 0);
		assert_memory_equal(a, b, sizeof(a));
	}
	assert_true(pgalloc_next_committed(large, dst, &run));
	assert_int_equal(mem_range_len(run), unit);
	run = (struct mem_range){ dst.start + PAGE_SIZE, dst.start + 5 * PAGE_SIZE };
	memfile_get(pgalloc_file(large), run);
	assert_int_equal(pgalloc_shared(p, 0), 4 * PAGE_SIZE);
	memfile_put(pgalloc_file(large), run);
	assert_int_equal(pgalloc_shared(p, 0), 0);
	memfile_put(pgalloc_file(large),
		    (struct mem_range){ dst.start, dst.start + 3 * PAGE_SIZE });
	memfile_put(pgalloc_file(large), (struct mem_range){ dst.start + 3 * PAGE_SIZE, dst.end });
	memfile_put(pgalloc_file(p), src);
	assert_baseline(p);
	/* Within the limit of both. */
	for (u64 n = 1, copies = 0; (n + copies) * unit < LIMIT; n++) {
		assert_int_equal(pgalloc_allocate(p, unit, &opts, &src), 0);
		stamp(p, src, 1);
		/* Where huge pages are slow, it pauses. */
		copies += pgalloc_copy_large(p, src, true, large, 0, &dst) == 0;
		assert_int_equal(pgalloc_room(p), LIMIT - (n + copies) * unit);
	}
	pgalloc_free(p);
}

/* Halves go to two files, what does not exist stays so, and both count as one memory. */
static void test_copy_halves(void **state)
{
	const u64 len = 1UL << 20;
	struct pgalloc_opts opts = { .dir = PGALLOC_UP };
	struct pgalloc *p = make(LIMIT), *files[2] = { p };
	struct mem_range src, dst[2], run;
	struct pgalloc_usage u;
	u64 hint = 0;

	assert_int_equal(pgalloc_add_second(p, 1), 0);
	files[1] = pgalloc_second(p);
	assert_int_equal(pgalloc_allocate(p, len, &opts, &src), 0);
	stamp(p, (struct mem_range){ src.start, src.start + 5 * PAGE_SIZE }, 7);
	stamp(p, (struct mem_range){ src.start + len / 2 - PAGE_SIZE, src.end - 3 * PAGE_SIZE }, 7);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(pgalloc_copy_halves(p, src, true, p, &opts, hint, dst), 0);
		for (u64 o = 0; o < len; o += PAGE_SIZE) {
			int half = o >= len / 2;
			u64 at = dst[half].start + o % (len / 2), a[512], b[512];

			assert_int_equal(pgalloc_read(p, src.start + o, a, sizeof(a)), 0);
			assert_int_equal(pgalloc_read(files[half], at, b, sizeof(b)), 0);
			assert_memory_equal(a, b, sizeof(a));
		}
		pgalloc_usage(p, &u);
		assert_int_equal(u.reserved, 2 * len);
		assert_int_equal(u.committed, 2 * (len - (len / 2 - 3 * PAGE_SIZE)));
		assert_true(pgalloc_next_committed(files[1], dst[1], &run));
		assert_int_equal(mem_range_len(run), len / 2 - 3 * PAGE_SIZE);
		hint = dst[1].end;
		for (int half = 0; half < 2; half++)
			memfile_put(pgalloc_file(files[half]), dst[half]);
	}
	/* The limit is one for both. */
	for (u64 left = pgalloc_room(p); left >= len; left -= len)
		assert_int_equal(pgalloc_copy_halves(p, src, true, p, &opts, 0, dst), 0);
	assert_int_equal(pgalloc_copy_halves(p, src, true, p, &opts, 0, dst), -ENOMEM);
	assert_int_equal(pgalloc_room(p), 0);
	pgalloc_free(p);
}

/* Copies of another thread, of the caller at the end, and those that find no room in the list. */
static void test_copies(void **state)
{
	const u64 pages = 300;
	struct pgalloc_opts opts = { .dir = PGALLOC_UP };
	struct pgalloc *p = make(LIMIT);
	struct mem_range src, dst;

	assert_int_equal(pgalloc_allocate(p, pages * PAGE_SIZE, &opts, &src), 0);
	assert_int_equal(pgalloc_allocate(p, pages * PAGE_SIZE, &opts, &dst), 0);
	stamp(p, (struct mem_range){ src.start, src.end - PAGE_SIZE }, 7);
	for (u32 i = 0; i < 50; i++) {
		struct pgalloc_copies *c = pgalloc_copies_begin(i * 10);

		stamp(p, dst, i);
		assert_non_null(c);
		for (u64 o = 0; o < pages * PAGE_SIZE; o += PAGE_SIZE) {
			struct mem_range from = { src.start + o, src.start + o + PAGE_SIZE };
			struct mem_range to = { dst.start + o, dst.start + o + PAGE_SIZE };
			int want = from.end == src.end ? -ENODATA : 0;

			assert_int_equal(pgalloc_copy_onto(p, from, true, p, to, c), want);
		}
		assert_int_equal(pgalloc_copies_end(c), 0);
		for (u64 o = 0; o < pages * PAGE_SIZE; o += PAGE_SIZE) {
			u64 a[2], b[2];

			assert_int_equal(pgalloc_read(p, src.start + o + 24, a, sizeof(a)), 0);
			assert_int_equal(pgalloc_read(p, dst.start + o + 24, b, sizeof(b)), 0);
			assert_int_equal(b[0], o == (pages - 1) * PAGE_SIZE ? i : 7);
			assert_true(b[0] == i || b[1] == a[1]);
		}
	}
	assert_int_equal(pgalloc_copies_end(NULL), 0);
	memfile_put(pgalloc_file(p), src);
	memfile_put(pgalloc_file(p), dst);
	pgalloc_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),	    cmocka_unit_test(test_limit),
		cmocka_unit_test(test_committed),   cmocka_unit_test(test_reader),
		cmocka_unit_test(test_hints),	    cmocka_unit_test(test_copy_large),
		cmocka_unit_test(test_copy_halves), cmocka_unit_test(test_copies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
