/* unit: base pgalloc mm */
/* mm against a naive model: for each process an array of pages with what each must hold. */
#include "mm/mm_impl.h"
#include "mm_fixture.h"

static u32 next_value = 1;

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
		int r = rnd(3) ? fake_access(p->mm, address(i) + spot[s], &got, 4, false)
			       : mm_copy_in(p->mm, &got, ua(address(i) + spot[s]), 4);

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
		int r = rnd(3) ? fake_access(p->mm, address(i) + spot[s], &value, 4, true)
			       : mm_copy_out(p->mm, ua(address(i) + spot[s]), &value, 4);

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
	assert_int_equal(mm_mprotect(p->mm, address(first), (u64)n * PAGE_SIZE, prot, &no_limits),
			 want);
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
		m->dontfork = advice == MADV_DONTFORK ? true
			      : advice == MADV_DOFORK ? false
						      : m->dontfork;
		m->wipe = advice == MADV_WIPEONFORK   ? true
			  : advice == MADV_KEEPONFORK ? false
						      : m->wipe;
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
	/* File pieces that were mapped separately are separate vmas, as is what was writable once
	 * beside what never was: refused, nothing changed. */
	if (r == -EFAULT && n > 1)
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
	if (rnd(3) || fake.threads)
		assert_int_equal(fake_fork(p->mm, &c->mm), 0);
	else
		assert_int_equal(fake_fork_moving(p->mm, &c->mm), 0);
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
				assert_int_equal(info.offset / PAGE_SIZE +
							 (address(i) - info.start) / PAGE_SIZE,
						 p->page[i].fpage);
		}
	}
	for (; i < PAGES; i++)
		assert_false(p->page[i].mapped);
}

/* The stub has nothing mapped that mm does not know of. */
static void check_stub(struct mm *mm)
{
	struct platform_as *as = mm_as(mm);

	fake_run_late(as);
	if (as->failed)
		return;
	for (size_t b = 0; b < FAKE_BUCKETS; b++)
		for (struct fake_page *p = as->bucket[b]; p; p = p->next) {
			const struct pma *q = pma_set_find(&mm->pmas, p->page);

			assert_true((q && q->host_map) || pma_set_find(&mm->kept, p->page));
		}
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

static void run(unsigned seed, int steps, bool small_answers)
{
	begin();
	srandom(seed);
	constant->small_answers = shared->small_answers = small_answers;
	for (int i = 0; i < steps; i++) {
		step();
		for (int p = 0; p < PROCS && i % 20 == 0; p++)
			if (procs[p].mm)
				check_stub(procs[p].mm);
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
	fake.refuse_park_every = 3;
	for (unsigned seed = 11; seed <= 14; seed++)
		run(seed, 20000, seed % 2);
	fake.fail_map_every = fake.fail_unmap_every = fake.refuse_park_every = 0;
}

/* Deferred changes are refused now and then; or there are other threads, and fewer can be. */
static void test_random_deferred(void **state)
{
	fake.refuse_defer_every = 3;
	fake.refuse_late_every = 4;
	run(21, 20000, false);
	fake.refuse_defer_every = fake.refuse_late_every = 0;
	fake.threads = true;
	run(22, 20000, true);
	fake.threads = false;
}

/* What a hostile guest writes to: every page that is mapped so that an mprotect could make it
 * writable. */
static void fake_scribble(struct platform_as *as, u32 v)
{
	for (size_t b = 0; b < FAKE_BUCKETS; b++)
		for (struct fake_page *p = as->bucket[b]; p; p = p->next) {
			struct mem_range r = { p->offset, p->offset + PAGE_SIZE };
			u64 n;

			if (!p->writable)
				continue;
			if (pgalloc_refs(pgalloc_of(p->file), r, &r) != 1)
				abort(); /* not its own */
			for (u64 i = 0; i < PAGE_SIZE; i += 8)
				*(u32 *)((char *)p->file->ops->map(p->file, p->offset, &n) + i) = v;
		}
}

static void hostile_step(struct proc *p)
{
	u32 v = (u32)rnd(1UL << 32);

	switch (rnd(8)) {
	case 0: {
		int first = (int)rnd(PAGES - 40);

		map_pages(p, first, 1 + (int)rnd(40), rnd(3) ? ANON : FILE_PRIVATE, 0,
			  PROT_READ | PROT_WRITE);
		break;
	}
	case 1: op_unmap(p); break;
	case 2: op_protect(p); break;
	case 3: mm_copy_out(p->mm, ua(address((int)rnd(PAGES))), &v, 4); break;
	case 4: fake_scribble(mm_as(p->mm), v); break;
	default: fake_access(p->mm, address((int)rnd(PAGES)), &v, 4, rnd(2)); break;
	}
}

/* One process keeps all access that nobody takes by the mapper, and uses it: the others never see
 * that. */
static void test_hostile(void **state)
{
	struct proc hostile = { 0 };
	struct mm_config config = { .acct_id = 1, .fork_reuse = true };

	begin();
	srandom(31);
	config.memory = memory;
	assert_int_equal(mm_new(&config, &hostile.mm), 0);
	mm_as(hostile.mm)->hostile = true;
	for (int i = 0; i < 40000; i++) {
		hostile_step(&hostile);
		step();
	}
	mm_user_put(hostile.mm);
	mm_put(hostile.mm);
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

		if (fake_fork(w->mm, &child))
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
	fake.threads = true;
	for (int i = 0; i <= THREADS; i++) {
		w[i] = (struct worker){ .mm = procs[0].mm, .index = i, .seed = (unsigned)i };
		mm_user_get(procs[0].mm);
		assert_int_equal(
			pthread_create(&t[i], NULL, i < THREADS ? work : fork_and_check, &w[i]), 0);
	}
	for (int i = 0; i <= THREADS; i++)
		pthread_join(t[i], NULL);
	fake.threads = false;
	for (int i = 0; i <= THREADS; i++)
		mm_user_put(procs[0].mm);
	for (int k = 0; k < THREADS; k++)
		for (int i = 0; i < OWN; i++) {
			u32 got;

			assert_int_equal(mm_copy_in(w[k].mm, &got,
						    ua(address(worker_page(&w[k], i)) + spot[0]),
						    4),
					 0);
			assert_int_equal(got, w[k].value[i]);
		}
	end();
}

/* Memory is short in the middle of a fork that collects mappings: what they map must stay. */
static void test_trim_in_batch(void **state)
{
	struct mm_mmap_args a = { .addr = 0x50000000,
				  .len = PAGE_SIZE,
				  .prot = PROT_READ | PROT_WRITE,
				  .flags = MAP_FIXED | MAP_SHARED,
				  .max_prot = 7,
				  .limits = no_limits };
	struct mm *child;
	u32 v = 7, got = 0;

	begin();
	a.mappable = &shared->m;
	assert_true(map_anon(procs[0].mm, 0x40000000, 2UL << 20, 3, MAP_FIXED, &no_limits) > 0);
	assert_int_equal(fake_access(procs[0].mm, 0x40000000, &v, 4, true), 0);
	assert_true(mm_mmap(procs[0].mm, &a) > 0);
	assert_int_equal(fake_access(procs[0].mm, 0x50000000, &v, 4, true), 0);
	fake_translate_fail = 1;
	assert_int_equal(fake_fork(procs[0].mm, &child), 0);
	fake_translate_fail = 0;
	mm_user_put(procs[0].mm);
	mm_put(procs[0].mm);
	assert_int_equal(fake_access(child, 0x40000000 + 64 * 4096, &got, 4, false), 0);
	mm_user_put(child);
	mm_put(child);
	procs[0].mm = NULL;
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trim_in_batch),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_random_host_refusals),
		cmocka_unit_test(test_random_deferred),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_threads),
	};

	setvbuf(stdout, NULL, _IONBF, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
