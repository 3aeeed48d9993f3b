/* unit: base pgalloc mm */
/* The results of mm's calls: compared with the host kernel's, and single behaviours. */
#include "mm_fixture.h"

#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* ---- the host kernel as the oracle of results (by raw calls: a sanitizer watches libc's) ---- */

#define HOST_PAGES 64
#define HOST_SIZE (HOST_PAGES * PAGE_SIZE)

/* What is sealed stays: the next round needs another place. */
static u64 host_base = 0x30000000;
static bool sealing;

static u64 odd_addr(void)
{
	static const u64 strange[] = { 0,    1,	       4096,	 0x7ffffffff000, 0x7ffffffff001,
				       ~0UL, ~0xfffUL, 1UL << 63 };

	if (rnd(40) == 0)
		return strange[rnd(ARRAY_SIZE(strange))];
	return host_base + rnd(HOST_PAGES) * PAGE_SIZE + (rnd(20) ? 0 : rnd(PAGE_SIZE));
}

static u64 odd_len(u64 addr)
{
	static const u64 strange[] = {
		0, 1, 4095, 4097, 0x7ffffffff000, 0x800000000000, ~0UL, ~0xfffUL, 1UL << 63
	};
	u64 pages = 1 + rnd(12), room;

	if (rnd(25) == 0)
		return strange[rnd(ARRAY_SIZE(strange))];
	room = addr >= host_base && addr < host_base + HOST_SIZE
		       ? (host_base + HOST_SIZE - page_down(addr)) / PAGE_SIZE
		       : 1;
	return MIN(pages, room) * PAGE_SIZE - (rnd(20) ? 0 : rnd(PAGE_SIZE));
}

static s64 host(long r)
{
	return r == -1 ? -errno : r;
}

/* Would the call reach what the test itself lives on? */
static bool outside(u64 addr, u64 len)
{
	return addr < host_base || len > HOST_SIZE || addr + len > host_base + HOST_SIZE;
}

static void compare_maps(struct mm *mm)
{
	FILE *f = fopen("/proc/self/maps", "r");
	struct mm_vma_info info;
	char line[512], perms[8];
	u64 start, end, at = host_base;

	while (fgets(line, sizeof(line), f)) {
		assert_int_equal(sscanf(line, "%lx-%lx %4s", &start, &end, perms), 3);
		if (end <= host_base || start >= host_base + HOST_SIZE)
			continue;
		assert_true(mm_vma_at_or_after(mm, at, false, &info));
		if (info.start != start || info.end != end)
			print_error("host %lx-%lx, mm %lx-%lx\n", start, end, info.start, info.end);
		assert_int_equal(info.start, start);
		assert_int_equal(info.end, end);
		assert_int_equal(info.prot & PROT_READ ? 'r' : '-', perms[0]);
		assert_int_equal(info.prot & PROT_WRITE ? 'w' : '-', perms[1]);
		assert_int_equal(info.prot & PROT_EXEC ? 'x' : '-', perms[2]);
		at = end;
	}
	fclose(f);
	assert_false(mm_vma_at_or_after(mm, at, false, &info));
}

/* Linux cuts before it looks at what a cut gave, and leaves it so: advice joins that again. */
static void join_all(struct mm *mm)
{
	static const int advices[] = { MADV_RANDOM, MADV_NORMAL };

	for (size_t i = 0; i < ARRAY_SIZE(advices); i++) {
		syscall(SYS_madvise, host_base, HOST_SIZE, advices[i]);
		mm_madvise(mm, host_base, HOST_SIZE, advices[i], &no_limits);
	}
}

static void host_step(struct mm *mm)
{
	static const int prots[] = { 0,	  1,	2,	   3,	      4,	 5,	   7,
				     0x8, 0x10, 0x1000000, 0x2000000, 0x3000000, 0x1000003 };
	static const int advices[] = { 0,  1,  2,  3,  4,  8,  9,  10, 11, 14, 15,
				       16, 17, 18, 19, 20, 21, 24, 5,  99, -1 };
	static const int msyncs[] = { 0, 1, 2, 4, 5, 6, 8 };
	u64 addr = odd_addr(), len = odd_len(addr), to = odd_addr(), new_len = odd_len(to);
	int arg = 0, flags;
	s64 want = 0, got = 0;
	const char *what = "";

	switch (rnd(sealing ? 8 : 7)) {
	case 0:
	case 1: {
		struct mm_mmap_args a = { .addr = addr, .len = len, .limits = no_limits };

		what = "mmap";
		a.prot = prots[rnd(7)];
		a.flags =
			MAP_ANONYMOUS | MAP_NORESERVE | (rnd(4) ? MAP_FIXED : MAP_FIXED_NOREPLACE);
		arg = rnd(30) ? MAP_PRIVATE : (int)rnd(4) & ~MAP_SHARED;
		a.flags |= arg;
		/* Low addresses depend on privilege; at the very top Linux takes the address for an
		 * errno. */
		if (addr + len >= addr && outside(addr, len) && addr < 1UL << 48 && len < 1UL << 48)
			return;
		if (addr < FAKE_MIN || addr > -PAGE_SIZE)
			return;
		want = host(syscall(SYS_mmap, addr, len, a.prot, a.flags, -1, 0));
		got = mm_mmap(mm, &a);
		break;
	}
	case 2:
		what = "munmap";
		if (addr + len >= addr && outside(addr, len) && addr < 1UL << 48 && len < 1UL << 48)
			return;
		want = host(syscall(SYS_munmap, addr, len));
		got = mm_munmap(mm, addr, len);
		break;
	case 3:
		what = "mprotect";
		arg = prots[rnd(ARRAY_SIZE(prots))];
		if (outside(addr, len) && len < 1UL << 48 && addr < 1UL << 48 && len)
			return;
		if ((arg & PROT_GROWSDOWN) && outside(addr, len))
			return;
		want = host(syscall(SYS_mprotect, addr, len, arg));
		got = mm_mprotect(mm, addr, len, arg, &no_limits);
		break;
	case 4:
		what = "mremap";
		flags = rnd(3) ? MREMAP_MAYMOVE | MREMAP_FIXED : 0;
		if (rnd(4) == 0)
			flags |= MREMAP_DONTUNMAP;
		if (rnd(20) == 0)
			flags |= 8;
		arg = flags;
		if (rnd(3) == 0 || (flags & MREMAP_DONTUNMAP))
			new_len = len;
		if (!(flags & MREMAP_FIXED) && outside(addr, new_len) && new_len < 1UL << 47)
			return;
		if (outside(addr, len) || ((flags & MREMAP_FIXED) && outside(to, new_len)))
			return;
		want = host(syscall(SYS_mremap, addr, len, new_len, flags, to));
		got = mm_mremap(mm, addr, len, new_len, flags, to, &no_limits);
		break;
	case 5:
		what = "madvise";
		arg = advices[rnd(ARRAY_SIZE(advices))];
		if (outside(addr, len) && addr + len >= addr && len)
			return;
		want = host(syscall(SYS_madvise, addr, len, arg));
		got = mm_madvise(mm, addr, len, arg, &no_limits);
		break;
	case 6:
		if (outside(addr, len))
			return;
		if (rnd(2)) {
			what = "msync";
			arg = msyncs[rnd(ARRAY_SIZE(msyncs))];
			want = host(msync((void *)addr, len, arg));
			got = mm_msync(mm, addr, len, arg);
		} else {
			u8 hv[HOST_PAGES + 2], mv[HOST_PAGES + 2];

			what = "mincore";
			memset(hv, 0, sizeof(hv));
			want = host(mincore((void *)addr, len, hv));
			got = mm_mincore(mm, addr, len, mv);
		}
		break;
	case 7:
		what = "mseal";
		if (rnd(8) || (outside(addr, len) && addr + len >= addr && len))
			return;
		len = rnd(4) ? MIN(len, 2 * PAGE_SIZE) : len;
		want = host(syscall(SYS_mseal, addr, len, 0));
		got = mm_mseal(mm, addr, len);
		break;
	}
	if (want != got)
		print_error("%s(%lx, %lx, to %lx, %lx, %x): host %ld, mm %ld\n", what, addr, len,
			    to, new_len, arg, want, got);
	assert_int_equal(got, want);
	if (sealing && got == -EPERM)
		join_all(mm);
}

static void test_results_as_host(void **state)
{
	for (unsigned seed = 1; seed <= 10; seed++) {
		begin();
		srandom(seed);
		for (int i = 0; i < 20000; i++) {
			host_step(procs[0].mm);
			if (i % 50 == 0)
				compare_maps(procs[0].mm);
		}
		syscall(SYS_munmap, host_base, HOST_SIZE);
		end();
	}
}

static void test_seals(void **state)
{
	int refused = 0;

	if (syscall(SYS_mseal, 0, 0, 0) < 0)
		skip();
	sealing = true;
	for (unsigned seed = 1; seed <= 200; seed++) {
		begin();
		srandom(seed);
		for (int i = 0; i < 400; i++) {
			host_step(procs[0].mm);
			if (i % 10 == 0)
				compare_maps(procs[0].mm);
		}
		refused += mm_munmap(procs[0].mm, host_base, HOST_SIZE) == -EPERM;
		host_base += 2 * HOST_SIZE;
		end();
	}
	sealing = false;
	assert_true(refused > 100);
}

/* ---- single behaviours ---- */

static void test_brk(void **state)
{
	struct mm_limits l = no_limits;
	struct mm_vma_info info;
	struct mm *mm;
	u32 v = 7;

	begin();
	mm = procs[0].mm;
	mm_set_brk_start(mm, BASE + 100);
	assert_int_equal(mm_brk(mm, 0, &l), BASE + 100);
	assert_int_equal(mm_brk(mm, BASE + 3 * PAGE_SIZE, &l), BASE + 3 * PAGE_SIZE);
	assert_int_equal(fake_access(mm, BASE + PAGE_SIZE, &v, 4, true), 0);
	assert_true(mm_vma_at_or_after(mm, BASE, false, &info));
	assert_string_equal(info.name, "[heap]");
	assert_int_equal(mm_brk(mm, BASE + 4 * PAGE_SIZE + 1, &l), BASE + 4 * PAGE_SIZE + 1);
	assert_int_equal(mm_brk(mm, BASE + PAGE_SIZE, &l), BASE + PAGE_SIZE);
	assert_int_equal(fake_access(mm, BASE + PAGE_SIZE, &v, 4, false), UNMAPPED);
	/* refused: the answer is the old break */
	assert_int_equal(mm_brk(mm, BASE, &l), BASE + PAGE_SIZE);
	l.data = 2 * PAGE_SIZE;
	assert_int_equal(mm_brk(mm, BASE + 4 * PAGE_SIZE, &l), BASE + PAGE_SIZE);
	assert_int_equal(mm_brk(mm, ~0UL, &no_limits), BASE + PAGE_SIZE);
	map_anon(mm, BASE + 8 * PAGE_SIZE, PAGE_SIZE, PROT_READ, MAP_FIXED, &no_limits);
	assert_int_equal(mm_brk(mm, BASE + 9 * PAGE_SIZE, &no_limits), BASE + PAGE_SIZE);
	end();
}

static void test_stack_growth(void **state)
{
	struct mm_mmap_args a = { .addr = BASE + 4096 * PAGE_SIZE,
				  .len = 4 * PAGE_SIZE,
				  .prot = PROT_READ | PROT_WRITE,
				  .flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				  .limits = no_limits,
				  .grow_stack = true };
	struct mm_vma_info info;
	struct mm *mm;
	u32 v = 9, got;

	begin();
	mm = procs[0].mm;
	a.limits.stack = 1024 * PAGE_SIZE;
	assert_int_equal(mm_mmap(mm, &a), (s64)a.addr);
	assert_int_equal(fake_access(mm, a.addr - 100 * PAGE_SIZE, &v, 4, true), 0);
	assert_true(mm_vma_at_or_after(mm, BASE, false, &info));
	assert_int_equal(info.start, a.addr - 100 * PAGE_SIZE);
	assert_string_equal(info.name, "[stack]");
	/* by the sentry's own copies too */
	assert_int_equal(mm_copy_out(mm, ua(a.addr - 200 * PAGE_SIZE), &v, 4), 0);
	assert_int_equal(mm_copy_in(mm, &got, ua(a.addr - 200 * PAGE_SIZE), 4), 0);
	assert_int_equal(got, 9);
	/* RLIMIT_STACK, and the guard gap above another mapping */
	assert_int_equal(fake_access(mm, a.addr - 1024 * PAGE_SIZE, &v, 4, true), UNMAPPED);
	map_anon(mm, a.addr - 600 * PAGE_SIZE, PAGE_SIZE, PROT_READ, MAP_FIXED, &no_limits);
	mm_set_limits(mm, &a.limits);
	assert_int_equal(fake_access(mm, a.addr - 500 * PAGE_SIZE, &v, 4, true), UNMAPPED);
	assert_int_equal(fake_access(mm, a.addr - 300 * PAGE_SIZE, &v, 4, true), 0);
	end();
}

static void test_limits(void **state)
{
	struct mm_limits l = no_limits;
	struct mm_stats st;
	struct mm *mm;
	s64 at;

	begin();
	mm = procs[0].mm;
	l.as = 64 * PAGE_SIZE;
	assert_int_equal(map_anon(mm, 0, 65 * PAGE_SIZE, PROT_READ, 0, &l), -ENOMEM);
	at = map_anon(mm, 0, 64 * PAGE_SIZE, PROT_READ, 0, &l);
	assert_true(at > 0);
	assert_int_equal(map_anon(mm, 0, PAGE_SIZE, PROT_READ, 0, &l), -ENOMEM);
	/* replacing does not need more */
	assert_int_equal(map_anon(mm, (u64)at, 64 * PAGE_SIZE, PROT_READ, MAP_FIXED, &l), at);
	assert_int_equal(
		mm_mremap(mm, (u64)at, 64 * PAGE_SIZE, 65 * PAGE_SIZE, MREMAP_MAYMOVE, 0, &l),
		-ENOMEM);
	l.as = RLIM_INFINITY;
	l.data = 10 * PAGE_SIZE;
	assert_int_equal(map_anon(mm, 0, 11 * PAGE_SIZE, PROT_WRITE, 0, &l), -ENOMEM);
	assert_int_equal(mm_mprotect(mm, (u64)at, 11 * PAGE_SIZE, PROT_READ | PROT_WRITE, &l),
			 -ENOMEM);
	assert_int_equal(mm_mprotect(mm, (u64)at, 10 * PAGE_SIZE, PROT_READ | PROT_WRITE, &l), 0);
	l = no_limits;
	l.may_lock = false;
	l.memlock = 4 * PAGE_SIZE;
	assert_int_equal(mm_mlock(mm, (u64)at, 5 * PAGE_SIZE, false, &l), -ENOMEM);
	assert_int_equal(mm_mlock(mm, (u64)at + 1, 3 * PAGE_SIZE, false, &l), 0);
	assert_int_equal(map_anon(mm, 0, PAGE_SIZE, PROT_READ, MAP_LOCKED, &l), -EAGAIN);
	mm_get_stats(mm, &st);
	assert_int_equal(st.locked, 4 * PAGE_SIZE);
	assert_int_equal(st.rss_anon, 4 * PAGE_SIZE);
	assert_int_equal(mm_madvise(mm, (u64)at, PAGE_SIZE, MADV_DONTNEED, &l), -EINVAL);
	assert_int_equal(mm_munlock(mm, (u64)at, 4 * PAGE_SIZE), 0);
	l.memlock = 0;
	assert_int_equal(mm_mlock(mm, (u64)at, PAGE_SIZE, false, &l), -EPERM);
	assert_int_equal(mm_mlock(mm, (u64)at + 64 * PAGE_SIZE, PAGE_SIZE, false, &no_limits),
			 -ENOMEM);
	assert_int_equal(map_anon(mm, 0, 1UL << 40, PROT_WRITE, 0, &no_limits), -ENOMEM);
	end();
}

static void test_map_count(void **state)
{
	struct mm *mm;
	int made = 0;
	s64 at;

	begin();
	mm = procs[0].mm;
	for (;; made++) {
		at = map_anon(mm, BASE + (u64)made * 2 * PAGE_SIZE, PAGE_SIZE, PROT_READ, MAP_FIXED,
			      &no_limits);
		if (at < 0)
			break;
	}
	assert_int_equal(at, -ENOMEM);
	assert_int_equal(made, 65531);
	assert_int_equal(mm_munmap(mm, BASE, PAGE_SIZE), 0);
	end();
}

static void test_names(void **state)
{
	struct mm_vma_info i;
	struct mm *mm;

	begin();
	mm = procs[0].mm;
	map_anon(mm, BASE, 8 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	assert_int_equal(mm_set_anon_name(mm, BASE + PAGE_SIZE, 2 * PAGE_SIZE, "heap"), 0);
	assert_true(mm_vma_at_or_after(mm, BASE + PAGE_SIZE, false, &i));
	assert_int_equal(i.start, BASE + PAGE_SIZE);
	assert_int_equal(i.end, BASE + 3 * PAGE_SIZE);
	assert_string_equal(i.name, "[anon:heap]");
	/* an equal name merges, NULL clears and merges back */
	assert_int_equal(mm_set_anon_name(mm, BASE + 3 * PAGE_SIZE, PAGE_SIZE, "heap"), 0);
	assert_true(mm_vma_at_or_after(mm, BASE + PAGE_SIZE, false, &i));
	assert_int_equal(i.end, BASE + 4 * PAGE_SIZE);
	assert_int_equal(mm_set_anon_name(mm, BASE, 8 * PAGE_SIZE, NULL), 0);
	assert_true(mm_vma_at_or_after(mm, BASE, false, &i));
	assert_int_equal(i.end, BASE + 8 * PAGE_SIZE);
	assert_string_equal(i.name, "");
	assert_int_equal(mm_set_anon_name(mm, BASE, 9 * PAGE_SIZE, "x"), -ENOMEM);
	assert_int_equal(mm_set_anon_name(mm, BASE + 1, PAGE_SIZE, "x"), -EINVAL);
	map_pages(&procs[0], 0, 1, FILE_PRIVATE, 0, PROT_READ);
	assert_int_equal(mm_set_anon_name(mm, BASE, PAGE_SIZE, "x"), -EBADF);
	end();
}

/* Memory runs out: an error, not a crash, and no half-made page. */
static void test_exhaustion(void **state)
{
	struct mm_config config;
	struct mm *mm, *child;
	u32 v = 5, got;
	u64 page;

	begin();
	assert_int_equal(pgalloc_new_memfd(1, 40 * PAGE_SIZE, &memory), 0);
	config = (struct mm_config){ .memory = memory, .fork_reuse = true };
	assert_int_equal(mm_new(&config, &mm), 0);
	map_anon(mm, BASE, 64 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_NORESERVE,
		 &no_limits);
	for (page = 0; fake_access(mm, BASE + page * PAGE_SIZE, &v, 4, true) == 0; page++)
		assert_true(page < 64);
	assert_int_equal(page, 40);
	assert_int_equal(fake_access(mm, BASE + 50 * PAGE_SIZE, &v, 4, true), -ENOMEM);
	assert_int_equal(fake_access(mm, BASE + 50 * PAGE_SIZE, &got, 4, false), 0);
	assert_int_equal(mm_copy_out(mm, ua(BASE + 50 * PAGE_SIZE), &v, 4), -EFAULT);
	/* nothing left for copies after a fork */
	assert_int_equal(fake_fork(mm, &child), 0);
	v = 6;
	assert_int_equal(fake_access(mm, BASE, &v, 4, true), -ENOMEM);
	assert_int_equal(fake_access(mm, BASE, &got, 4, false), 0);
	assert_int_equal(got, 5);
	assert_int_equal(mm_munmap(child, BASE, 64 * PAGE_SIZE), 0);
	assert_int_equal(fake_access(mm, BASE, &v, 4, true), 0);
	end_own_memory(mm, child);
}

static void test_futex_keys(void **state)
{
	struct mm_futex_key a, b;
	struct mm *mm, *child;
	u32 old;

	begin();
	mm = procs[0].mm;
	map_pages(&procs[0], 0, 4, FILE_SHARED, 1, PROT_READ | PROT_WRITE);
	map_anon(mm, BASE + 8 * PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED,
		 &no_limits);
	assert_int_equal(fake_fork(mm, &child), 0);
	assert_int_equal(mm_futex_key(mm, ua(BASE + 8), false, &a), 0);
	assert_int_equal(mm_futex_key(child, ua(BASE + 8), false, &b), 0);
	assert_true(a.shared && a.object == b.object && a.offset == b.offset);
	assert_int_equal(a.offset, PAGE_SIZE + 8);
	mm_futex_key_put(&a);
	mm_futex_key_put(&b);
	assert_int_equal(mm_futex_key(mm, ua(BASE + 8 * PAGE_SIZE), false, &a), 0);
	assert_int_equal(mm_futex_key(child, ua(BASE + 8 * PAGE_SIZE), false, &b), 0);
	assert_true(!a.shared && a.object != b.object);
	assert_int_equal(mm_futex_key(mm, ua(BASE + 9 * PAGE_SIZE), false, &a), -EFAULT);
	assert_int_equal(mm_futex_key(mm, ua(BASE + 2), true, &a), -EINVAL);
	assert_int_equal(mm_store32(mm, ua(BASE + 8), 3), 0);
	assert_int_equal(mm_cmpxchg32(child, ua(BASE + 8), 3, 4, &old), 0);
	assert_int_equal(old, 3);
	assert_int_equal(mm_load32(mm, ua(BASE + 8), &old), 0);
	assert_int_equal(old, 4);
	assert_int_equal(mm_load32(mm, ua(BASE + 20 * PAGE_SIZE), &old), -EFAULT);
	mm_user_put(child);
	mm_put(child);
	end();
}

/* Reading untouched memory allocates nothing, whoever reads. */
static void test_reads_commit_nothing(void **state)
{
	static char buf[64 * PAGE_SIZE];
	struct pgalloc_usage before, after;
	struct iovec seg[4];
	struct mm_pin pins[4];
	struct mm *mm;
	int count;
	u32 v = 1;

	begin();
	mm = procs[0].mm;
	map_anon(mm, BASE, 64 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	pgalloc_usage(memory, &before);
	assert_int_equal(fake_access(mm, BASE, &v, 4, false), 0);
	memset(buf, 1, sizeof(buf));
	assert_int_equal(mm_copy_in(mm, buf, ua(BASE), sizeof(buf)), 0);
	for (size_t i = 0; i < sizeof(buf); i++)
		assert_int_equal(buf[i], 0);
	assert_int_equal(mm_pin(mm, ua(BASE + 5), 9 * PAGE_SIZE, false, seg, pins, 4, &count),
			 9 * PAGE_SIZE);
	mm_unpin(pins, count);
	pgalloc_usage(memory, &after);
	assert_int_equal(after.reserved, before.reserved);
	/* one page written: the rest of its window stays uncommitted under large reads */
	v = 1;
	assert_int_equal(fake_access(mm, BASE + 20 * PAGE_SIZE, &v, 4, true), 0);
	assert_int_equal(mm_copy_in(mm, buf, ua(BASE), sizeof(buf)), 0);
	assert_int_equal(mm_pin(mm, ua(BASE), sizeof(buf), false, seg, pins, 4, &count),
			 sizeof(buf));
	assert_int_equal(count, 3);
	mm_unpin(pins, count);
	pgalloc_usage(memory, &after);
	assert_int_equal(after.committed, before.committed + PAGE_SIZE);
	end();
}

static void test_strings(void **state)
{
	struct mm *mm;
	char buf[64];

	begin();
	mm = procs[0].mm;
	map_anon(mm, BASE, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	assert_int_equal(mm_copy_out(mm, ua(BASE + PAGE_SIZE - 6), "hello", 6), 0);
	assert_int_equal(mm_copy_in_str(mm, buf, sizeof(buf), ua(BASE + PAGE_SIZE - 6)), 5);
	assert_string_equal(buf, "hello");
	assert_int_equal(mm_copy_in_str(mm, buf, 5, ua(BASE + PAGE_SIZE - 6)), -ENAMETOOLONG);
	assert_int_equal(mm_copy_out(mm, ua(BASE + PAGE_SIZE - 1), "x", 1), 0);
	assert_int_equal(mm_copy_in_str(mm, buf, sizeof(buf), ua(BASE + PAGE_SIZE - 6)), -EFAULT);
	assert_int_equal(mm_copy_in_partial(mm, buf, ua(BASE + PAGE_SIZE - 6), 20), 6);
	assert_int_equal(mm_copy_in_partial(mm, buf, ua(BASE + PAGE_SIZE), 20), -EFAULT);
	assert_int_equal(mm_copy_in(mm, buf, ua(~0UL - 3), 8), -EFAULT);
	assert_int_equal(mm_copy_in(mm, buf, ua(~0UL), 0), 0);
	end();
}

/* Truncation takes shared pages and private copies beyond the end, from all that map them. */
static void test_truncate(void **state)
{
	struct mm *mm, *child;
	u32 v = 9, got;

	begin();
	mm = procs[0].mm;
	map_pages(&procs[0], 0, 4, FILE_SHARED, 0, PROT_READ | PROT_WRITE);
	map_pages(&procs[0], 4, 4, FILE_PRIVATE, 0, PROT_READ | PROT_WRITE);
	for (int i = 0; i < 8; i++)
		assert_int_equal(fake_access(mm, address(i) + spot[0], &v, 4, true), 0);
	assert_int_equal(fake_fork(mm, &child), 0);
	fake_file_truncate(shared, PAGE_SIZE);
	fake_file_truncate(constant, PAGE_SIZE);
	for (int k = 0; k < 2; k++) {
		struct mm *m = k ? child : mm;

		assert_int_equal(fake_access(m, address(0) + spot[0], &got, 4, false), 0);
		assert_int_equal(got, 9);
		assert_int_equal(fake_access(m, address(1) + spot[0], &got, 4, false), BEYOND);
		assert_int_equal(fake_access(m, address(4) + spot[0], &got, 4, false), 0);
		assert_int_equal(got, 9);
		assert_int_equal(fake_access(m, address(5) + spot[0], &got, 4, true), BEYOND);
		assert_int_equal(mm_copy_in(m, &got, ua(address(2)), 4), -EFAULT);
	}
	fake_file_truncate(shared, 2 * PAGE_SIZE);
	assert_int_equal(fake_access(child, address(1) + spot[0], &got, 4, false), 0);
	assert_int_equal(got, 0);
	mm_user_put(child);
	mm_put(child);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_results_as_host),
		cmocka_unit_test(test_seals),
		cmocka_unit_test(test_brk),
		cmocka_unit_test(test_stack_growth),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_map_count),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_exhaustion),
		cmocka_unit_test(test_futex_keys),
		cmocka_unit_test(test_reads_commit_nothing),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_truncate),
	};

	setvbuf(stdout, NULL, _IONBF, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
