/* unit: base pgalloc mm */
/* mm against a naive model: for each process an array of pages with what each must hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_mappable.h"
#include "fake_platform.h"

#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

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
static struct fake_file *constant, *shared; /* private mappings map `constant`, shared ones `shared` */
static u32 constant_value[FAKE_FILE_PAGES], shared_value[FAKE_FILE_PAGES];
static struct proc procs[PROCS];
static u32 next_value = 1;
static const struct mm_limits no_limits = { RLIM_INFINITY, RLIM_INFINITY, RLIM_INFINITY,
					    RLIM_INFINITY, true };

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

static int expected_access(const struct mpage *m, bool write)
{
	if (!m->mapped)
		return UNMAPPED;
	if (write ? !(m->prot & PROT_WRITE) : !m->prot)
		return DENIED;
	if (m->kind == FILE_SHARED && (u64)m->fpage * PAGE_SIZE >= shared->size)
		return BEYOND;
	return 0;
}

static u32 expected_value(const struct mpage *m)
{
	if (m->kind == FILE_SHARED)
		return shared_value[m->fpage];
	if (m->kind == FILE_PRIVATE && !m->copied)
		return constant_value[m->fpage];
	return m->value;
}

static void check_read(struct proc *p, int i)
{
	u32 got;
	int want = expected_access(&p->page[i], false);

	for (int s = 0; s < 2; s++) {
		int r = rnd(3) ? fake_access(p->mm, address(i) + spot[s], &got, 4, false) :
				 mm_copy_in(p->mm, &got, ua(address(i) + spot[s]), 4);

		assert_int_equal(r == -EFAULT && want ? want : r, want);
		if (!want)
			assert_int_equal(got, expected_value(&p->page[i]));
	}
}

static void write_page(struct proc *p, int i)
{
	struct mpage *m = &p->page[i];
	u32 value = next_value++;
	int want = expected_access(m, true);

	for (int s = 0; s < 2; s++) {
		int r = rnd(3) ? fake_access(p->mm, address(i) + spot[s], &value, 4, true) :
				 mm_copy_out(p->mm, ua(address(i) + spot[s]), &value, 4);

		assert_int_equal(r == -EFAULT && want ? want : r, want);
	}
	if (want)
		return;
	if (m->kind == FILE_SHARED) {
		shared_value[m->fpage] = value;
	} else {
		m->copied = true;
		m->value = value;
	}
}

static void map_pages(struct proc *p, int first, int n, enum kind kind, int fpage, int prot)
{
	struct mm_mmap_args a = {
		.addr = address(first),
		.len = (u64)n * PAGE_SIZE,
		.prot = prot,
		.flags = MAP_FIXED | (kind == FILE_SHARED ? MAP_SHARED : MAP_PRIVATE) |
			 (kind == ANON ? MAP_ANONYMOUS : 0) | (rnd(10) == 0 ? MAP_POPULATE : 0),
		.mappable = kind == ANON	 ? NULL :
			    kind == FILE_PRIVATE ? &constant->m :
						   &shared->m,
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

static void op_map(struct proc *p)
{
	enum kind kind = rnd(3) ? ANON : rnd(2) ? FILE_PRIVATE : FILE_SHARED;
	int first = (int)rnd(PAGES), n = 1 + (int)rnd(40);
	int prot = rnd(5) ? PROT_READ | PROT_WRITE : (int)rnd(4);

	n = MIN(n, PAGES - first);
	if (kind != ANON)
		n = MIN(n, FAKE_FILE_PAGES / 2);
	map_pages(p, first, n, kind, kind == ANON ? 0 : (int)rnd(FAKE_FILE_PAGES - n), prot);
}

static void op_unmap(struct proc *p)
{
	int first = (int)rnd(PAGES), n = 1 + (int)rnd(12);

	n = MIN(n, PAGES - first);
	assert_int_equal(mm_munmap(p->mm, address(first), (u64)n * PAGE_SIZE), 0);
	memset(&p->page[first], 0, sizeof(p->page[0]) * (size_t)n);
}

static void op_protect(struct proc *p)
{
	int first = (int)rnd(PAGES), n = 1 + (int)rnd(20), prot = (int)rnd(8), want = 0;

	n = MIN(n, PAGES - first);
	for (int i = first; i < first + n; i++) {
		if (!p->page[i].mapped) {
			want = -ENOMEM;
			break;
		}
		p->page[i].prot = prot;
	}
	assert_int_equal(
		mm_mprotect(p->mm, address(first), (u64)n * PAGE_SIZE, prot, &no_limits), want);
}

static void op_advise(struct proc *p)
{
	static const int advices[] = { MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK,
				       MADV_KEEPONFORK };
	int first = (int)rnd(PAGES), n = 1 + (int)rnd(20), want = 0, advice = advices[rnd(5)];

	n = MIN(n, PAGES - first);
	for (int i = first; i < first + n; i++) {
		struct mpage *m = &p->page[i];

		if (!m->mapped) {
			want = -ENOMEM;
			continue;
		}
		if (advice == MADV_WIPEONFORK && m->kind != ANON) {
			want = -EINVAL;
			break;
		}
		if (advice == MADV_DONTNEED) {
			m->value = 0;
			m->copied = false;
		}
		m->dontfork = advice == MADV_DONTFORK ? true :
			      advice == MADV_DOFORK   ? false :
							m->dontfork;
		m->wipe = advice == MADV_WIPEONFORK ? true :
			  advice == MADV_KEEPONFORK ? false :
						      m->wipe;
	}
	assert_int_equal(mm_madvise(p->mm, address(first), (u64)n * PAGE_SIZE, advice, &no_limits),
			 want);
}

/* Moves, grows or shrinks a piece whose pages are alike to a fixed place. */
static void op_remap(struct proc *p)
{
	int first = (int)rnd(PAGES), n = 1, new_n, to;
	struct mpage old[PAGES], *m = &p->page[first];
	bool keep = rnd(4) == 0;
	s64 r;

	while (first + n < PAGES && n < 10 && p->page[first + n].mapped &&
	       p->page[first + n].kind == m->kind && p->page[first + n].prot == m->prot &&
	       p->page[first + n].dontfork == m->dontfork && p->page[first + n].wipe == m->wipe &&
	       (m->kind == ANON || p->page[first + n].fpage == m->fpage + n))
		n++;
	new_n = keep ? n : 1 + (int)rnd(12);
	to = (int)rnd(PAGES - 12);
	if (m->kind != ANON)
		new_n = MIN(new_n, FAKE_FILE_PAGES - m->fpage);
	memcpy(old, p->page, sizeof(old));
	r = mm_mremap(p->mm, address(first), (u64)n * PAGE_SIZE, (u64)new_n * PAGE_SIZE,
		      MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0), address(to),
		      &no_limits);
	if (first < to + new_n && to < first + n) {
		assert_int_equal(r, -EINVAL);
		return;
	}
	if (!old[first].mapped) {
		assert_int_equal(r, -EFAULT);
		return;
	}
	/* File pieces that were mapped separately are separate vmas: refused, nothing changed. */
	if (r == -EFAULT && old[first].kind != ANON)
		return;
	assert_int_equal(r, (s64)address(to));
	for (int i = 0; i < new_n; i++) {
		p->page[to + i] = old[first];
		p->page[to + i].fpage = old[first].fpage + i;
		p->page[to + i].value = i < n ? old[first + i].value : 0;
		p->page[to + i].copied = i < n ? old[first + i].copied : false;
	}
	for (int i = first; i < first + n; i++) {
		if (keep)
			p->page[i].value = p->page[i].copied = 0;
		else
			p->page[i] = (struct mpage){ 0 };
	}
}

static void op_fork(struct proc *p)
{
	struct proc *c = NULL;

	for (int i = 0; i < PROCS && !c; i++)
		if (!procs[i].mm)
			c = &procs[i];
	if (!c)
		return;
	assert_int_equal(mm_fork(p->mm, &c->mm), 0);
	for (int i = 0; i < PAGES; i++) {
		c->page[i] = p->page[i];
		if (c->page[i].dontfork)
			c->page[i] = (struct mpage){ 0 };
		else if (c->page[i].wipe)
			c->page[i].value = 0;
	}
}

static void op_exit(struct proc *p)
{
	int alive = 0;

	for (int i = 0; i < PROCS; i++)
		alive += procs[i].mm != NULL;
	if (alive < 2)
		return;
	mm_user_put(p->mm);
	mm_put(p->mm);
	memset(p, 0, sizeof(*p));
}

static void op_truncate(void)
{
	u64 size = rnd(FAKE_FILE_PAGES + 1) * PAGE_SIZE;

	for (u64 i = MIN(size, shared->size) / PAGE_SIZE; i < FAKE_FILE_PAGES; i++)
		shared_value[i] = 0;
	fake_file_truncate(shared, size);
}

/* A read that was under way while its process forked must land in the parent alone. */
static void op_pin_across_fork(struct proc *p)
{
	struct iovec seg[4];
	struct mm_pin pins[4];
	int i = (int)rnd(PAGES), count;
	u32 value = next_value++;
	struct mpage *m = &p->page[i];
	ssize_t n = mm_pin(p->mm, ua(address(i)), PAGE_SIZE, true, seg, pins, 4, &count);

	if (expected_access(m, true)) {
		assert_int_equal(n, -EFAULT);
		return;
	}
	assert_int_equal(n, PAGE_SIZE);
	assert_int_equal(count, 1);
	op_fork(p);
	if (rnd(2)) /* the parent goes on using the page before the read ends */
		write_page(p, i);
	for (int s = 0; s < 2; s++)
		memcpy((char *)seg[0].iov_base + spot[s], &value, 4);
	mm_unpin(pins, count);
	if (m->kind == FILE_SHARED) {
		shared_value[m->fpage] = value;
	} else {
		m->value = value;
		m->copied = true;
	}
}

/* The vmas must cover exactly what the model says is mapped. */
static void check_map(struct proc *p)
{
	struct mm_vma_info info;
	int i = 0;

	for (u64 at = BASE; mm_vma_at_or_after(p->mm, at, true, &info); at = info.end) {
		for (; i < PAGES && address(i) < info.start; i++)
			assert_false(p->page[i].mapped);
		for (; i < PAGES && address(i) < info.end; i++) {
			assert_true(p->page[i].mapped);
			assert_int_equal(p->page[i].prot, info.prot);
			assert_int_equal(p->page[i].kind == FILE_SHARED, info.shared);
			if (info.ino)
				assert_int_equal(info.offset / PAGE_SIZE + (address(i) - info.start) /
							PAGE_SIZE,
						 p->page[i].fpage);
		}
	}
	for (; i < PAGES; i++)
		assert_false(p->page[i].mapped);
}

static void step(void)
{
	struct proc *p = &procs[rnd(PROCS)];
	u64 op = rnd(100);

	if (!p->mm)
		return;
	if (op < 30) {
		check_read(p, (int)rnd(PAGES));
	} else if (op < 60) {
		int i = (int)rnd(PAGES), n = rnd(4) ? 1 : (int)rnd(30);

		for (; n-- && i < PAGES; i++)
			write_page(p, i);
	} else if (op < 69) {
		op_map(p);
	} else if (op < 74) {
		op_unmap(p);
	} else if (op < 80) {
		op_protect(p);
	} else if (op < 85) {
		op_advise(p);
	} else if (op < 90) {
		op_remap(p);
	} else if (op < 94) {
		op_fork(p);
	} else if (op < 97) {
		op_exit(p);
	} else if (op < 98) {
		op_truncate();
	} else {
		op_pin_across_fork(p);
	}
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
	config = (struct mm_config){ NULL, memory, 0 };
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

static void run(unsigned seed, int steps, bool small_answers)
{
	begin();
	srandom(seed);
	constant->small_answers = shared->small_answers = small_answers;
	for (int i = 0; i < steps; i++) {
		step();
		if (i % 500 == 0)
			for (int p = 0; p < PROCS; p++)
				if (procs[p].mm) {
					check_map(&procs[p]);
					for (int k = 0; k < PAGES; k++)
						check_read(&procs[p], k);
				}
	}
	end();
}

static void test_random(void **state)
{
	for (unsigned seed = 1; seed <= 6; seed++)
		run(seed, 20000, seed % 2);
}

/* The host refuses mappings now and then: the guest must not notice. */
static void test_random_host_refusals(void **state)
{
	fake.fail_map_every = 5;
	fake.fail_unmap_every = 7;
	for (unsigned seed = 11; seed <= 14; seed++)
		run(seed, 20000, seed % 2);
	fake.fail_map_every = fake.fail_unmap_every = 0;
}


/* ---- the host kernel as the oracle of results (by raw calls: a sanitizer watches libc's) ---- */

#define HOST_BASE 0x30000000UL
#define HOST_PAGES 64

static u64 odd_addr(void)
{
	static const u64 strange[] = { 0, 1, 4096, 0x7ffffffff000, 0x7ffffffff001, ~0UL, ~0xfffUL,
				       1UL << 63 };

	if (rnd(40) == 0)
		return strange[rnd(ARRAY_SIZE(strange))];
	return HOST_BASE + rnd(HOST_PAGES) * PAGE_SIZE + (rnd(20) ? 0 : rnd(PAGE_SIZE));
}

static u64 odd_len(u64 addr)
{
	static const u64 strange[] = { 0, 1, 4095, 4097, 0x7ffffffff000, 0x800000000000, ~0UL,
				       ~0xfffUL, 1UL << 63 };
	u64 pages = 1 + rnd(12), room;

	if (rnd(25) == 0)
		return strange[rnd(ARRAY_SIZE(strange))];
	room = addr >= HOST_BASE && addr < HOST_BASE + HOST_PAGES * PAGE_SIZE ?
		       (HOST_BASE + HOST_PAGES * PAGE_SIZE - page_down(addr)) / PAGE_SIZE :
		       1;
	return MIN(pages, room) * PAGE_SIZE - (rnd(20) ? 0 : rnd(PAGE_SIZE));
}

static s64 host(long r)
{
	return r == -1 ? -errno : r;
}

/* Would the call reach what the test itself lives on? */
static bool outside(u64 addr, u64 len)
{
	return addr < HOST_BASE || len > HOST_PAGES * PAGE_SIZE ||
	       addr + len > HOST_BASE + HOST_PAGES * PAGE_SIZE;
}

static void compare_maps(struct mm *mm)
{
	FILE *f = fopen("/proc/self/maps", "r");
	struct mm_vma_info info;
	char line[512], perms[8];
	u64 start, end, at = HOST_BASE;

	while (fgets(line, sizeof(line), f)) {
		assert_int_equal(sscanf(line, "%lx-%lx %4s", &start, &end, perms), 3);
		if (end <= HOST_BASE || start >= HOST_BASE + HOST_PAGES * PAGE_SIZE)
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

static void host_step(struct mm *mm)
{
	static const int prots[] = { 0, 1, 2, 3, 4, 5, 7, 0x8, 0x10, 0x1000000, 0x2000000, 0x3000000,
				     0x1000003 };
	static const int advices[] = { 0,  1,  2,  3,  4,  8,  9,  10, 11, 14, 15, 16, 17, 18,
				       19, 20, 21, 24, 5,	 99, -1 };
	static const int msyncs[] = { 0, 1, 2, 4, 5, 6, 8 };
	u64 addr = odd_addr(), len = odd_len(addr), to = odd_addr(), new_len = odd_len(to);
	int arg = 0, flags;
	s64 want = 0, got = 0;
	const char *what = "";

	switch (rnd(7)) {
	case 0:
	case 1: {
		struct mm_mmap_args a = { .addr = addr, .len = len, .limits = no_limits };

		what = "mmap";
		a.prot = prots[rnd(7)];
		a.flags = MAP_ANONYMOUS | MAP_NORESERVE |
			  (rnd(4) ? MAP_FIXED : MAP_FIXED_NOREPLACE);
		arg = rnd(30) ? MAP_PRIVATE : (int)rnd(4) & ~MAP_SHARED;
		a.flags |= arg;
		/* Low addresses depend on privilege; at the very top Linux takes the address for an errno. */
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
	}
	if (want != got)
		print_error("%s(%lx, %lx, to %lx, %lx, %x): host %ld, mm %ld\n", what, addr, len, to,
			    new_len, arg, want, got);
	assert_int_equal(got, want);
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
		syscall(SYS_munmap, HOST_BASE, HOST_PAGES * PAGE_SIZE);
		end();
	}
}

/* ---- single behaviours ---- */

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
	assert_int_equal(mm_mremap(mm, (u64)at, 64 * PAGE_SIZE, 65 * PAGE_SIZE, MREMAP_MAYMOVE, 0,
				   &l),
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
	config = (struct mm_config){ NULL, memory, 0 };
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
	assert_int_equal(mm_fork(mm, &child), 0);
	v = 6;
	assert_int_equal(fake_access(mm, BASE, &v, 4, true), -ENOMEM);
	assert_int_equal(fake_access(mm, BASE, &got, 4, false), 0);
	assert_int_equal(got, 5);
	assert_int_equal(mm_munmap(child, BASE, 64 * PAGE_SIZE), 0);
	assert_int_equal(fake_access(mm, BASE, &v, 4, true), 0);
	mm_user_put(child);
	mm_put(child);
	mm_user_put(mm);
	mm_put(mm);
	pgalloc_free(memory);
	memory = constant->p;
	end();
}

static void test_futex_keys(void **state)
{
	struct mm_futex_key a, b;
	struct mm *mm, *child;
	u32 old;

	begin();
	mm = procs[0].mm;
	map_pages(&procs[0], 0, 4, FILE_SHARED, 1, PROT_READ | PROT_WRITE);
	map_anon(mm, BASE + 8 * PAGE_SIZE, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED, &no_limits);
	assert_int_equal(mm_fork(mm, &child), 0);
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

/* ---- threads of one mm, with forks among them ---- */

#define THREADS 4
#define OWN 64

struct worker {
	struct mm *mm;
	int index;
	unsigned seed;
	u32 value[OWN];
};

static int worker_page(const struct worker *w, int i)
{
	/* Pages of all threads lie between each other, so that windows are shared. */
	return i * THREADS + w->index;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (int step = 0; step < 4000; step++) {
		int i = rand_r(&w->seed) % OWN;
		u64 addr = address(worker_page(w, i)) + spot[0];
		u32 v = (u32)step << 8 | (u32)w->index, got = 0;

		switch (rand_r(&w->seed) % 6) {
		case 0:
		case 1:
			if (fake_access(w->mm, addr, &v, 4, true))
				abort();
			w->value[i] = v;
			break;
		case 2:
			if (mm_copy_out(w->mm, ua(addr), &v, 4))
				abort();
			w->value[i] = v;
			break;
		case 3:
			if (fake_access(w->mm, addr, &got, 4, false) || got != w->value[i])
				abort();
			break;
		case 4:
			if (mm_copy_in(w->mm, &got, ua(addr), 4) || got != w->value[i])
				abort();
			break;
		case 5:
			if (rand_r(&w->seed) % 8)
				break;
			if (mm_mprotect(w->mm, addr - spot[0], PAGE_SIZE, PROT_READ, &no_limits) ||
			    fake_access(w->mm, addr, &v, 4, true) != DENIED ||
			    mm_mprotect(w->mm, addr - spot[0], PAGE_SIZE, PROT_READ | PROT_WRITE,
					&no_limits) ||
			    mm_madvise(w->mm, addr - spot[0], PAGE_SIZE, MADV_DONTNEED, &no_limits))
				abort();
			w->value[i] = 0;
			break;
		}
	}
	return NULL;
}

/* Children of a busy process: what they hold stands still until they change it themselves. */
static void *fork_and_check(void *arg)
{
	struct worker *w = arg;

	for (int step = 0; step < 120; step++) {
		u32 seen[OWN], got, v = 0xdead0000;
		struct mm *child;

		if (mm_fork(w->mm, &child))
			abort();
		for (int i = 0; i < OWN; i++)
			if (fake_access(child, address(i) + spot[0], &seen[i], 4, false))
				abort();
		for (int i = 0; i < OWN; i++) {
			if (mm_copy_in(child, &got, ua(address(i) + spot[0]), 4) || got != seen[i])
				abort();
			/* A page may have been read-only at the time of the fork. */
			if (rand_r(&w->seed) % 4 == 0) {
				int r = fake_access(child, address(i) + spot[0], &v, 4, true);

				if (r && r != DENIED)
					abort();
			}
		}
		mm_user_put(child);
		mm_put(child);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct worker w[THREADS + 1] = { 0 };
	pthread_t t[THREADS + 1];

	begin();
	map_anon(procs[0].mm, BASE, OWN * THREADS * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED,
		 &no_limits);
	for (int i = 0; i <= THREADS; i++) {
		w[i] = (struct worker){ .mm = procs[0].mm, .index = i, .seed = (unsigned)i };
		assert_int_equal(pthread_create(&t[i], NULL, i < THREADS ? work : fork_and_check,
						&w[i]),
				 0);
	}
	for (int i = 0; i <= THREADS; i++)
		pthread_join(t[i], NULL);
	for (int k = 0; k < THREADS; k++)
		for (int i = 0; i < OWN; i++) {
			u32 got;

			assert_int_equal(mm_copy_in(w[k].mm, &got,
						    ua(address(worker_page(&w[k], i)) + spot[0]), 4),
					 0);
			assert_int_equal(got, w[k].value[i]);
		}
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_host_refusals),
		cmocka_unit_test(test_results_as_host),
		cmocka_unit_test(test_brk),
		cmocka_unit_test(test_stack_growth),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_map_count),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_exhaustion),
		cmocka_unit_test(test_futex_keys),
		cmocka_unit_test(test_reads_commit_nothing),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_threads),
	};

	setvbuf(stdout, NULL, _IONBF, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
