/*
 * test/unit/mm_fixture.h: an mm over the fake platform, two fake files, and the
 * model of what processes must see. Include in exactly one file of a test.
 */
#ifndef MINISENTRY_TEST_MM_FIXTURE_H
#define MINISENTRY_TEST_MM_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_mappable.h"
#include "fake_platform.h"

#include <signal.h>
#include <stdio.h>

#define BASE 0x20000000UL
#define PAGES 320
#define PROCS 6
#define UNMAPPED (SIGSEGV | SEGV_MAPERR << 8)
#define DENIED (SIGSEGV | SEGV_ACCERR << 8)
#define BEYOND (SIGBUS | BUS_ADRERR << 8)

enum kind { ANON, FILE_PRIVATE, FILE_SHARED };

struct mpage {
	bool mapped, dontfork, wipe;
	int prot;
	enum kind kind;
	int fpage;
	bool copied; /* FILE_PRIVATE: value is its own */
	u32 value;
};

struct proc {
	struct mm *mm;
	struct mpage page[PAGES];
};

static struct pgalloc *memory;
static struct fake_file *constant,
	*shared; /* private mappings map `constant`, shared ones `shared` */
static u32 constant_value[FAKE_FILE_PAGES], shared_value[FAKE_FILE_PAGES];
static struct proc procs[PROCS];
static const struct mm_limits no_limits = {
	RLIM_INFINITY, RLIM_INFINITY, RLIM_INFINITY, RLIM_INFINITY, true, true, 0
};

static u64 rnd(u64 n)
{
	return (u64)random() % n;
}

static u64 address(int page)
{
	return BASE + (u64)page * PAGE_SIZE;
}

/* Where in a page its value is written. */
static const u64 spot[2] = { 72, 4088 };

static __attribute__((unused)) void map_pages(struct proc *p, int first, int n, enum kind kind,
					      int fpage, int prot)
{
	struct mm_mmap_args a = {
		.addr = address(first),
		.len = (u64)n * PAGE_SIZE,
		.prot = prot,
		.flags = MAP_FIXED | (kind == FILE_SHARED ? MAP_SHARED : MAP_PRIVATE) |
			 (kind == ANON ? MAP_ANONYMOUS : 0) | (rnd(10) == 0 ? MAP_POPULATE : 0),
		.mappable = kind == ANON	   ? NULL
			    : kind == FILE_PRIVATE ? &constant->m
						   : &shared->m,
		.offset = (u64)fpage * PAGE_SIZE,
		.max_prot = 7,
		.limits = no_limits,
	};

	assert_int_equal(mm_mmap(p->mm, &a), (s64)a.addr);
	for (int i = 0; i < n; i++)
		p->page[first + i] = (struct mpage){
			.mapped = true, .prot = prot, .kind = kind, .fpage = fpage + i
		};
}

static s64 map_anon(struct mm *mm, u64 addr, u64 len, int prot, int flags,
		    const struct mm_limits *l)
{
	struct mm_mmap_args a = { .addr = addr,
				  .len = len,
				  .prot = prot,
				  .flags = MAP_PRIVATE | MAP_ANONYMOUS | flags,
				  .limits = *l };

	return mm_mmap(mm, &a);
}

static void assert_baseline(void)
{
	struct pgalloc_usage u;

	pgalloc_usage(memory, &u);
	assert_int_equal(u.reserved, 0);
	assert_int_equal(u.committed, 0);
	assert_int_equal(fake.as_count, 0);
}

static void begin(void)
{
	struct mm_config config;

	assert_int_equal(safecopy_init(), 0);
	assert_int_equal(pgalloc_new_memfd(0, 1UL << 30, &memory), 0);
	assert_int_equal(pgalloc_add_second(memory, 1), 0);
	config = (struct mm_config){ .memory = memory, .fork_reuse = true };
	memset(procs, 0, sizeof(procs));
	assert_int_equal(mm_new(&config, &procs[0].mm), 0);
	constant = fake_file_new(memory, FAKE_FILE_PAGES * PAGE_SIZE);
	shared = fake_file_new(memory, FAKE_FILE_PAGES * PAGE_SIZE);
	memset(shared_value, 0, sizeof(shared_value));
	for (int i = 0; i < FAKE_FILE_PAGES; i++) {
		constant_value[i] = 0x40000000 + (u32)i;
		assert_int_equal(fake_file_page(constant, (u64)i), 0);
		for (int s = 0; s < 2; s++)
			pgalloc_write(memory, constant->page[i] + spot[s], &constant_value[i], 4);
	}
}

/* The same, but for how the first address space is made; its memory is `memory`. */
__attribute__((unused)) static void begin_as(struct mm_config config)
{
	begin();
	mm_user_put(procs[0].mm);
	mm_put(procs[0].mm);
	config.memory = memory;
	assert_int_equal(mm_new(&config, &procs[0].mm), 0);
}

static void end(void)
{
	for (int i = 0; i < PROCS; i++) {
		if (!procs[i].mm)
			continue;
		mm_user_put(procs[i].mm);
		mm_put(procs[i].mm);
	}
	assert_int_equal(constant->mapping_count, 0);
	assert_int_equal(shared->mapping_count, 0);
	fake_file_put(&constant->m);
	fake_file_put(&shared->m);
	assert_baseline();
	pgalloc_free(memory);
}

/* Of the first process, and its end as exit has it. */
__attribute__((unused)) static struct mm *fork_child(void)
{
	struct mm *child;

	assert_int_equal(fake_fork(procs[0].mm, &child), 0);
	return child;
}

__attribute__((unused)) static void end_child(struct mm *child)
{
	mm_user_put(child);
	mm_finish(child);
}

/* The end of a test that has made a memory file of its own, and these two in it. */
static inline void end_own_memory(struct mm *mm, struct mm *child)
{
	mm_user_put(child);
	mm_put(child);
	mm_user_put(mm);
	mm_put(mm);
	pgalloc_free(memory);
	memory = constant->p;
	end();
}

#endif
