/*
 * Random memory operations of many processes against shadow copies.
 *
 * Each process plays in an arena of its own and keeps a shadow of each page: how it is mapped
 * and a number for each half, from which its words follow (0: zeros). Some pages map objects
 * (memfds and shared anonymous memory) that all processes share: their numbers are in shared
 * memory, under a lock for each object. A fork's child goes on with the arena and the shadow
 * as they were; a process also plays with threads, each in a part of the arena. What nobody
 * did must not show, and when all processes are gone so is their memory.
 *
 * Where Linux's answer depends on how it merged vmas, nothing is asked: pages with the same
 * `run` are certainly in one vma.
 */
#include "test/random/lib/random.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARENA 0x10000000000UL
#define PAGES 256UL
#define HALF (PAGE / 2)
#define OBJECTS 6
#define MEMFDS 4 /* the first objects; the others are shared anonymous memory */
#define OBJECT_PAGES 64UL
#define THREADS 4
#define MAX_GENERATION 24
#define CLAIM 64 /* operations that a process claims at a time */

enum kind { ANON, SHARED, PRIVATE };

struct page {
	uint32_t run; /* 0: not mapped */
	uint8_t kind, prot;
	bool dontfork, wipe;
	bool own;  /* PRIVATE: written, no longer the object's content */
	bool lazy; /* MADV_FREE: its old content or zeros, until the next store */
	uint16_t object, object_page;
	uint32_t value[2];
};

struct object {
	pthread_mutex_t lock;
	uint32_t value[OBJECT_PAGES][2];
};

struct shared {
	_Atomic uint64_t claimed;
	_Atomic int live;
	uint64_t ops;
	int most_live;
	struct object object[OBJECTS];
};

/* A thread that plays in pages [first, first + count). */
struct player {
	struct random_stream rs;
	size_t first, count;
	unsigned generation;
	bool threaded; /* others play elsewhere in the arena */
	int pipe[2];
};

static struct shared *shared;
static int object_fd[OBJECTS];
static char *object_base[OBJECTS];
static struct page shadow[PAGES];
static _Atomic uint32_t last_run;
static __thread struct player *me;
static __thread volatile bool armed; /* a fault is expected */
static __thread sigjmp_buf fault_return;
static __thread volatile int fault_code;
static __thread void *volatile fault_address;

static _Noreturn void play_process(struct player *p);

/* ---- pages and their content ---- */

static char *at(size_t page)
{
	return (char *)(ARENA + page * PAGE);
}

static uint64_t word_of(uint32_t value, size_t index)
{
	return value ? value * 0x9e3779b97f4a7c15ULL + index * 0x100000001b3ULL : 0;
}

static void fill_half(void *to, uint32_t value)
{
	uint64_t *word = to;

	for (size_t i = 0; i < HALF / 8; i++)
		word[i] = word_of(value, i);
}

/* Bytes until the first word that is wrong; HALF: none. */
static size_t first_wrong(const void *from, uint32_t value)
{
	const uint64_t *word = from;
	size_t i = 0;

	while (i < HALF / 8 && word[i] == word_of(value, i))
		i++;
	return i * 8;
}

static void check_half(size_t page, int half, uint32_t value)
{
	const char *start = at(page) + (size_t)half * HALF;
	size_t wrong = first_wrong(start, value);

	if (wrong == HALF)
		return;
	random_fail(&me->rs, "page %zu (kind %d, %sown, %slazy), byte %#zx: %#llx, not %#llx", page,
		    shadow[page].kind, shadow[page].own ? "" : "not ",
		    shadow[page].lazy ? "" : "not ", (size_t)half * HALF + wrong,
		    *(const unsigned long long *)(start + wrong),
		    (unsigned long long)word_of(value, wrong / 8));
}

/* The object that decides what the page shows, locked; NULL: the page's own numbers do. */
static struct object *lock_object(const struct page *p)
{
	struct object *o = &shared->object[p->object];

	if (p->kind == ANON || (p->kind == PRIVATE && p->own))
		return NULL;
	/* Its holder found a difference and is gone. */
	if (pthread_mutex_lock(&o->lock) != 0)
		_exit(0);
	return o;
}

static void unlock_object(struct object *o)
{
	if (o)
		pthread_mutex_unlock(&o->lock);
}

static void settle_lazy(size_t page)
{
	struct page *p = &shadow[page];

	if (first_wrong(at(page), p->value[0]) == HALF &&
	    first_wrong(at(page) + HALF, p->value[1]) == HALF)
		return;
	p->value[0] = p->value[1] = 0;
}

/* ---- faults ---- */

static void on_fault(int sig, siginfo_t *si, void *context)
{
	if (!armed)
		random_fail(&me->rs, "signal %d, code %d, at %p", sig, si->si_code, si->si_addr);
	armed = false;
	fault_code = si->si_code;
	fault_address = si->si_addr;
	siglongjmp(fault_return, sig);
}

static int touch(size_t page, bool store)
{
	volatile char *byte = at(page) + random_below(&me->rs, PAGE);
	int sig = sigsetjmp(fault_return, 0);

	if (sig) {
		EXPECT(&me->rs, fault_address == byte);
		return sig;
	}
	armed = true;
	if (store)
		*byte = 1;
	else
		(void)*byte;
	armed = false;
	return 0;
}

static void check_refused(size_t page, bool store)
{
	int code = shadow[page].run ? SEGV_ACCERR : SEGV_MAPERR;

	me->rs.doing = store ? "refused store" : "refused load";
	if (random_below(&me->rs, 8))
		return;
	EXPECT_EQ(&me->rs, touch(page, store), SIGSEGV);
	EXPECT_EQ(&me->rs, fault_code, code);
	if (store)
		EXPECT(&me->rs, pread(object_fd[0], at(page), 8, 0) < 0 && errno == EFAULT);
	else
		EXPECT(&me->rs, write(me->pipe[1], at(page), 8) < 0 && errno == EFAULT);
}

static void check_page(size_t page)
{
	struct page *p = &shadow[page];
	const uint32_t *value = p->value;
	struct object *o;

	me->rs.doing = "check";
	if (!p->run || !(p->prot & PROT_READ)) {
		check_refused(page, false);
		return;
	}
	o = lock_object(p);
	if (o)
		value = o->value[p->object_page];
	else if (p->lazy)
		settle_lazy(page);
	for (int half = 0; half < 2; half++)
		check_half(page, half, value[half]);
	unlock_object(o);
}

/* ---- stores ---- */

/* By the processor, or by the kernel in one of several ways. */
static void store_half(char *to, uint32_t value)
{
	uint64_t words[HALF / 8];
	struct iovec from = { words, HALF }, dest = { to, HALF };

	switch (random_below(&me->rs, 8)) {
	case 0:
		fill_half(words, value);
		EXPECT_EQ(&me->rs, write(me->pipe[1], words, HALF), HALF);
		EXPECT_EQ(&me->rs, read(me->pipe[0], to, HALF), HALF);
		break;
	case 1:
		fill_half(words, value);
		EXPECT_EQ(&me->rs, process_vm_writev(getpid(), &from, 1, &dest, 1, 0), HALF);
		break;
	default: fill_half(to, value);
	}
}

static void write_half(size_t page, int half, uint32_t value)
{
	struct page *p = &shadow[page];
	struct object *o = lock_object(p);

	store_half(at(page) + (size_t)half * HALF, value);
	if (p->kind == SHARED) {
		o->value[p->object_page][half] = value;
	} else {
		if (o)
			memcpy(p->value, o->value[p->object_page], sizeof(p->value));
		p->own = true;
		if (p->lazy &&
		    first_wrong(at(page) + (size_t)!half * HALF, p->value[!half]) != HALF)
			p->value[!half] = 0;
		p->lazy = false;
		p->value[half] = value;
	}
	unlock_object(o);
}

static void write_page(size_t page)
{
	uint32_t value =
		random_below(&me->rs, 16) ? (uint32_t)random_below(&me->rs, UINT32_MAX) : 0;
	uint64_t which = random_below(&me->rs, 3);

	me->rs.doing = "write";
	if (!(shadow[page].prot & PROT_WRITE)) {
		check_refused(page, true);
		return;
	}
	for (int half = 0; half < 2; half++)
		if (which == 2 || which == (uint64_t)half)
			write_half(page, half, value + (uint32_t)half);
}

/* The kernel reads the page. */
static void pass_page(size_t page)
{
	struct page *p = &shadow[page];
	uint64_t words[HALF / 8];
	int half = (int)random_below(&me->rs, 2);
	struct object *o;

	me->rs.doing = "system call that reads";
	if (!p->run || !(p->prot & PROT_READ) || p->lazy)
		return;
	o = lock_object(p);
	EXPECT_EQ(&me->rs, write(me->pipe[1], at(page) + (size_t)half * HALF, HALF), HALF);
	EXPECT_EQ(&me->rs, read(me->pipe[0], words, HALF), HALF);
	EXPECT_EQ(&me->rs, first_wrong(words, o ? o->value[p->object_page][half] : p->value[half]),
		  HALF);
	unlock_object(o);
}

/* ---- ranges ---- */

struct range {
	size_t first, count;
};

static struct range pick(size_t most)
{
	struct range r = { .first = me->first + random_below(&me->rs, me->count) };

	r.count = 1 + random_below(&me->rs, most);
	if (r.count > me->first + me->count - r.first)
		r.count = me->first + me->count - r.first;
	return r;
}

/* What ends here and what begins here may be two vmas from now on. */
static void cut(size_t page)
{
	uint32_t run, fresh;

	if (page == me->first || page >= me->first + me->count)
		return;
	run = shadow[page].run;
	if (!run || shadow[page - 1].run != run)
		return;
	fresh = ++last_run;
	for (size_t i = page; i < me->first + me->count && shadow[i].run == run; i++)
		shadow[i].run = fresh;
}

static void cut_range(struct range r)
{
	cut(r.first);
	cut(r.first + r.count);
}

/* The part of one vma that begins with the range. */
static struct range in_one_run(struct range r)
{
	size_t n = 1;

	while (n < r.count && shadow[r.first + n].run == shadow[r.first].run)
		n++;
	return (struct range){ r.first, n };
}

static bool unmapped(size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		if (shadow[i].run)
			return false;
	return true;
}

static void forget(size_t first, size_t count)
{
	memset(&shadow[first], 0, count * sizeof(shadow[0]));
}

/* Pages as `like` would be when mapped anew, its object's pages going on. */
static void set_fresh(struct range r, struct page like)
{
	like.own = like.lazy = false;
	like.value[0] = like.value[1] = 0;
	for (size_t i = 0; i < r.count; i++) {
		shadow[r.first + i] = like;
		shadow[r.first + i].object_page = (uint16_t)(like.object_page + i);
	}
}

/* ---- mmap, munmap, mprotect ---- */

static int random_prot(void)
{
	static const int prots[] = { PROT_READ, PROT_NONE };

	return random_below(&me->rs, 5) ? PROT_READ | PROT_WRITE : prots[random_below(&me->rs, 2)];
}

static void *map_pages(struct range r, const struct page *p)
{
	int flags = p->kind == SHARED ? MAP_SHARED : MAP_PRIVATE, fd = -1;
	size_t size = r.count * PAGE, offset = 0;

	if (p->kind == SHARED && p->object >= MEMFDS)
		return mremap(object_base[p->object] + p->object_page * PAGE, 0, size,
			      MREMAP_MAYMOVE | MREMAP_FIXED, at(r.first));
	if (p->kind == ANON) {
		flags |= MAP_ANONYMOUS | (random_below(&me->rs, 2) ? MAP_NORESERVE : 0);
	} else {
		fd = object_fd[p->object];
		offset = p->object_page * PAGE;
	}
	/* Populating writes to private pages: it would copy the object's. */
	if (p->kind != PRIVATE && !random_below(&me->rs, 8))
		flags |= MAP_POPULATE;
	flags |= random_below(&me->rs, 8) || !unmapped(r.first, r.count) ? MAP_FIXED
									 : MAP_FIXED_NOREPLACE;
	return mmap(at(r.first), size, p->prot, flags, fd, (off_t)offset);
}

static void op_map(void)
{
	struct page p = { .prot = (uint8_t)random_prot() };
	struct range r = pick(40);

	me->rs.doing = "map";
	p.kind = random_below(&me->rs, 3) ? ANON : 1 + random_below(&me->rs, 2);
	if (p.kind != ANON) {
		p.object = random_below(&me->rs, p.kind == SHARED ? OBJECTS : MEMFDS);
		p.object_page = random_below(&me->rs, OBJECT_PAGES);
		if (r.count > OBJECT_PAGES - p.object_page)
			r.count = OBJECT_PAGES - p.object_page;
		if (p.object >= MEMFDS)
			p.prot = PROT_READ | PROT_WRITE;
	}
	if (!unmapped(r.first, r.count) && !random_below(&me->rs, 8)) {
		void *m = mmap(at(r.first), r.count * PAGE, p.prot,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		EXPECT(&me->rs, m == MAP_FAILED && errno == EEXIST);
	}
	EXPECT(&me->rs, map_pages(r, &p) == at(r.first));
	cut_range(r);
	p.run = ++last_run;
	set_fresh(r, p);
}

static void op_unmap(void)
{
	struct range r = pick(16);

	me->rs.doing = "unmap";
	EXPECT_EQ(&me->rs, munmap(at(r.first), r.count * PAGE), 0);
	cut_range(r);
	forget(r.first, r.count);
}

static void op_protect(void)
{
	struct range r = pick(24);
	int prot = random_prot(), expected = 0;

	me->rs.doing = "mprotect";
	cut_range(r);
	for (size_t i = r.first; i < r.first + r.count && !expected; i++) {
		if (shadow[i].run)
			shadow[i].prot = (uint8_t)prot;
		else
			expected = -1;
	}
	EXPECT_EQ(&me->rs, mprotect(at(r.first), r.count * PAGE, prot), expected);
	if (expected)
		EXPECT_EQ(&me->rs, errno, ENOMEM);
}

/* ---- madvise ---- */

/* What the advice does to a mapped page; the error that Linux gives for it. */
static int advise_page(struct page *p, int advice)
{
	if ((advice == MADV_FREE || advice == MADV_WIPEONFORK) && p->kind != ANON)
		return EINVAL;
	switch (advice) {
	case MADV_FREE: p->lazy = true; break;
	case MADV_DONTNEED:
		if (p->kind == ANON)
			p->value[0] = p->value[1] = 0;
		p->own = p->lazy = false;
		break;
	case MADV_WIPEONFORK: p->wipe = true; break;
	case MADV_KEEPONFORK: p->wipe = false; break;
	case MADV_DONTFORK: p->dontfork = true; break;
	case MADV_DOFORK: p->dontfork = false; break;
	default: break;
	}
	return 0;
}

/* Vma by vma: pages that are not mapped are passed over, an error ends it. */
static void op_advise(void)
{
	static const int advices[] = { MADV_DONTNEED, MADV_DONTNEED,   MADV_FREE,
				       MADV_DONTFORK, MADV_DOFORK,     MADV_WIPEONFORK,
				       MADV_COLD,     MADV_KEEPONFORK, MADV_PAGEOUT };
	int advice = advices[random_below(&me->rs, sizeof(advices) / sizeof(advices[0]))];
	struct range r = pick(24);
	int hole = 0, err = 0;

	me->rs.doing = "madvise";
	cut_range(r);
	for (size_t i = r.first; i < r.first + r.count && !err; i++) {
		if (shadow[i].run)
			err = advise_page(&shadow[i], advice);
		else
			hole = ENOMEM;
	}
	err = err ? err : hole;
	EXPECT_EQ(&me->rs, madvise(at(r.first), r.count * PAGE, advice), err ? -1 : 0);
	if (err)
		EXPECT_EQ(&me->rs, errno, err);
}

static void op_populate(void)
{
	struct range r = pick(24);
	bool write = random_below(&me->rs, 2), allowed = true;
	int ret;

	me->rs.doing = "MADV_POPULATE";
	for (size_t i = r.first; i < r.first + r.count; i++) {
		allowed &= shadow[i].run && (shadow[i].prot & (write ? PROT_WRITE : PROT_READ));
		if (write && shadow[i].kind == PRIVATE)
			return; /* what would be copied, and when, is unknown */
	}
	ret = madvise(at(r.first), r.count * PAGE,
		      write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	EXPECT_EQ(&me->rs, ret, allowed ? 0 : -1);
}

/* MADV_REMOVE: zeros in the object, for all who map it. */
static void op_remove(void)
{
	struct range r = in_one_run(pick(8));
	const struct page *p = &shadow[r.first];
	struct object *o;
	int ret;

	me->rs.doing = "MADV_REMOVE";
	if (!p->run || (p->kind == SHARED && !(p->prot & PROT_WRITE)))
		return;
	if (p->kind != SHARED) {
		EXPECT_EQ(&me->rs, madvise(at(r.first), r.count * PAGE, MADV_REMOVE), -1);
		EXPECT_EQ(&me->rs, errno, p->kind == ANON ? EINVAL : EACCES);
		return;
	}
	o = lock_object(p);
	ret = madvise(at(r.first), r.count * PAGE, MADV_REMOVE);
	memset(o->value[p->object_page], 0, r.count * sizeof(o->value[0]));
	unlock_object(o);
	EXPECT_EQ(&me->rs, ret, 0);
}

/* ---- mremap ---- */

/* Moves the shadow of n pages; what is behind them at the target goes on fresh until `size`. */
static void shadow_moved(struct range from, size_t to, size_t size, bool keep_source)
{
	struct page pages[PAGES], source;
	size_t n = from.count < size ? from.count : size;

	memcpy(pages, &shadow[from.first], from.count * sizeof(pages[0]));
	source = pages[0];
	cut_range(from);
	if (keep_source) {
		source.run = ++last_run;
		set_fresh(from, source);
	} else {
		forget(from.first, from.count);
	}
	cut_range((struct range){ to, size });
	pages[0].run = ++last_run;
	set_fresh((struct range){ to, size }, pages[0]);
	for (size_t i = 0; i < n; i++) {
		shadow[to + i] = pages[i];
		shadow[to + i].run = pages[0].run;
	}
}

static bool overlap(size_t a, size_t na, size_t b, size_t nb)
{
	return a < b + nb && b < a + na;
}

static void remap_fixed(struct range from, size_t size)
{
	size_t to = pick(1).first;
	bool keep =
		shadow[from.first].kind == ANON && size == from.count && !random_below(&me->rs, 4);
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0);
	void *got;

	if (size > me->first + me->count - to)
		return;
	me->rs.doing = keep ? "mremap DONTUNMAP" : "mremap to a place";
	got = mremap(at(from.first), from.count * PAGE, size * PAGE, flags, at(to));
	if (overlap(from.first, from.count, to, size)) {
		EXPECT(&me->rs, got == MAP_FAILED && errno == EINVAL);
		return;
	}
	EXPECT(&me->rs, got == at(to));
	shadow_moved(from, to, size, keep);
}

/* Larger or smaller where it is; refused when something is in the way. */
static void remap_in_place(struct range from, size_t size)
{
	size_t end = from.first + from.count;
	struct page more = shadow[end - 1];
	void *got;

	me->rs.doing = "mremap in place";
	if (size > me->first + me->count - from.first)
		return;
	got = mremap(at(from.first), from.count * PAGE, size * PAGE, 0);
	if (size > from.count && !unmapped(end, size - from.count)) {
		EXPECT(&me->rs, got == MAP_FAILED && errno == ENOMEM);
		return;
	}
	EXPECT(&me->rs, got == at(from.first));
	if (size > from.count) {
		more.object_page++;
		set_fresh((struct range){ end, size - from.count }, more);
	} else {
		cut(from.first + size);
		cut(end);
		forget(from.first + size, from.count - size);
	}
}

/* Larger, wherever the kernel likes; from there back into the arena. */
static void remap_anywhere(struct range from, size_t size)
{
	char *got;

	me->rs.doing = "mremap to anywhere";
	if (size <= from.count || size > me->first + me->count - from.first)
		return;
	got = mremap(at(from.first), from.count * PAGE, size * PAGE, MREMAP_MAYMOVE);
	EXPECT(&me->rs, got != MAP_FAILED);
	if (got != at(from.first))
		EXPECT(&me->rs, mremap(got, size * PAGE, size * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				       at(from.first)) == at(from.first));
	if (got == at(from.first))
		EXPECT(&me->rs, unmapped(from.first + from.count, size - from.count));
	shadow_moved(from, from.first, size, false);
}

static void op_remap(void)
{
	struct range from = in_one_run(pick(20));
	const struct page *p = &shadow[from.first];
	size_t size = random_below(&me->rs, 2) ? from.count : 1 + random_below(&me->rs, 24);

	if (!p->run) {
		me->rs.doing = "mremap of nothing";
		EXPECT(&me->rs, mremap(at(from.first), PAGE, PAGE, MREMAP_MAYMOVE) == MAP_FAILED &&
					errno == EFAULT);
		return;
	}
	if (p->kind != ANON && size > OBJECT_PAGES - p->object_page)
		size = OBJECT_PAGES - p->object_page;
	switch (random_below(&me->rs, 4)) {
	case 0: remap_in_place(from, size); break;
	case 1: remap_anywhere(from, size); break;
	default: remap_fixed(from, size);
	}
}

/* ---- processes and threads ---- */

static void open_pipe(struct player *p)
{
	EXPECT_EQ(&p->rs, pipe2(p->pipe, O_CLOEXEC), 0);
}

static void check_all(void)
{
	for (size_t i = me->first; i < me->first + me->count; i++)
		check_page(i);
}

static _Noreturn void go_on_as_child(struct player p, uint64_t seed)
{
	struct player child = { .count = PAGES, .generation = p.generation + 1 };

	me = &child;
	random_seed(&child.rs, seed, (unsigned)getpid());
	child.rs.doing = "after fork";
	close(p.pipe[0]);
	close(p.pipe[1]);
	open_pipe(&child);
	/* The others were in the middle of something in their parts. */
	EXPECT_EQ(&child.rs, munmap(at(0), p.first * PAGE) == 0 || !p.first, true);
	forget(0, p.first);
	if (p.first + p.count < PAGES) {
		size_t end = p.first + p.count;

		EXPECT_EQ(&child.rs, munmap(at(end), (PAGES - end) * PAGE), 0);
		forget(end, PAGES - end);
	}
	for (size_t i = 0; i < PAGES; i++) {
		if (shadow[i].dontfork)
			forget(i, 1);
		if (shadow[i].wipe) {
			shadow[i].value[0] = shadow[i].value[1] = 0;
			shadow[i].lazy = false;
		}
	}
	if (!random_below(&child.rs, 4))
		check_all();
	play_process(&child);
}

static void op_fork(void)
{
	uint64_t seed = random_below(&me->rs, UINT64_MAX);
	pid_t pid;

	me->rs.doing = "fork";
	if (me->generation == MAX_GENERATION)
		return;
	if (shared->live++ >= shared->most_live) {
		shared->live--;
		return;
	}
	pid = fork();
	EXPECT(&me->rs, pid >= 0);
	if (pid == 0)
		go_on_as_child(*me, seed);
}

/* The child writes to its parent's memory. */
static __attribute__((noinline)) void op_vfork(void)
{
	size_t page = pick(1).first;
	int status = 0;
	pid_t pid;

	me->rs.doing = "vfork";
	pid = vfork();
	if (pid == 0) {
		check_page(page);
		write_page(page);
		_exit(0);
	}
	EXPECT(&me->rs, pid > 0);
	EXPECT_EQ(&me->rs, waitpid(pid, &status, 0), pid);
	EXPECT_EQ(&me->rs, status, 0);
	check_page(page);
}

static void one_operation(void)
{
	uint64_t op = random_below(&me->rs, 1000);
	struct range r;

	me->rs.op++;
	if (op < 400) {
		r = pick(random_below(&me->rs, 8) ? 2 : 40);
		for (size_t i = r.first; i < r.first + r.count; i++)
			write_page(i);
	} else if (op < 640) {
		r = pick(random_below(&me->rs, 8) ? 2 : 40);
		for (size_t i = r.first; i < r.first + r.count; i++)
			check_page(i);
	} else if (op < 700) {
		pass_page(pick(1).first);
	} else if (op < 770) {
		op_map();
	} else if (op < 800) {
		op_unmap();
	} else if (op < 850) {
		op_protect();
	} else if (op < 900) {
		op_advise();
	} else if (op < 910) {
		op_populate();
	} else if (op < 920) {
		op_remove();
	} else if (op < 980) {
		op_remap();
	} else if (op < 996) {
		op_fork();
	} else {
		op_vfork();
	}
}

static void *play_thread(void *arg)
{
	uint64_t n;

	me = arg;
	n = 16 + random_below(&me->rs, 64);
	open_pipe(me);
	for (uint64_t i = 0; i < n && !*random_stop; i++)
		one_operation();
	shared->claimed += n;
	check_all();
	close(me->pipe[0]);
	close(me->pipe[1]);
	return NULL;
}

static void op_threads(void)
{
	struct player part[THREADS], *self = me;
	pthread_t thread[THREADS];

	me->rs.doing = "threads";
	for (size_t i = 0; i < THREADS; i++) {
		part[i] = (struct player){ .first = i * (PAGES / THREADS),
					   .count = PAGES / THREADS,
					   .generation = me->generation };
		cut(part[i].first);
		random_seed(&part[i].rs, random_below(&me->rs, UINT64_MAX), me->rs.process);
	}
	for (size_t i = 1; i < THREADS; i++)
		EXPECT_EQ(&me->rs, pthread_create(&thread[i], NULL, play_thread, &part[i]), 0);
	play_thread(&part[0]);
	me = self;
	for (size_t i = 1; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

static void reap(void)
{
	int status;

	while (waitpid(-1, &status, WNOHANG) > 0)
		if (status)
			random_fail(&me->rs, "a child ended with status %#x", status);
}

static _Noreturn void play_process(struct player *p)
{
	me = p;
	while (!*random_stop && (shared->claimed += CLAIM) < shared->ops + CLAIM) {
		for (unsigned i = 0; i < CLAIM; i++)
			one_operation();
		reap();
		if (!random_below(&me->rs, 8))
			op_threads();
		if (!random_below(&me->rs, 64))
			break;
	}
	check_all();
	shared->live--;
	_exit(0);
}

/* ---- the program ---- */

static void start_process(uint64_t seed)
{
	struct player p = { .count = PAGES };

	shared->live++;
	if (fork() != 0)
		return;
	me = &p;
	random_seed(&p.rs, seed, (unsigned)getpid());
	open_pipe(&p);
	play_process(&p);
}

static void fill_objects(void)
{
	for (size_t i = 0; i < OBJECTS; i++)
		for (size_t half = 0; half < 2 * OBJECT_PAGES; half++)
			fill_half(object_base[i] + half * HALF,
				  shared->object[i].value[half / 2][half % 2]);
}

static void set_up(const struct random_options *o)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };
	size_t size = OBJECT_PAGES * PAGE;
	pthread_mutexattr_t attr;

	shared = random_shared(sizeof(*shared));
	shared->ops = o->ops;
	shared->most_live = (int)o->processes;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	for (size_t i = 0; i < OBJECTS; i++) {
		pthread_mutex_init(&shared->object[i].lock, &attr);
		object_fd[i] = -1;
		if (i < MEMFDS) {
			object_fd[i] = memfd_create("object", MFD_CLOEXEC);
			if (object_fd[i] < 0 || ftruncate(object_fd[i], (off_t)size) < 0)
				exit(2);
		}
		object_base[i] =
			mmap(NULL, size, PROT_READ | PROT_WRITE,
			     MAP_SHARED | (i < MEMFDS ? 0 : MAP_ANONYMOUS), object_fd[i], 0);
		if (object_base[i] == MAP_FAILED)
			exit(2);
	}
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fill_objects();
}

int main(int argc, char **argv)
{
	struct random_options o = { .seed = 1, .ops = 20000, .processes = 64 };
	uint64_t free_before, seeds = 0;
	int status, bad = 0;

	random_options(argc, argv, "memory", &o);
	set_up(&o);
	free_before = random_meminfo("MemFree");
	do {
		while (!bad && shared->live < shared->most_live * 3 / 4 &&
		       shared->claimed < shared->ops)
			start_process(o.seed + ++seeds * 0x9e3779b97f4a7c15);
		status = 0;
		if (wait(&status) < 0 && (bad || shared->claimed >= shared->ops))
			break;
		*random_stop |= status != 0;
		bad |= bad ? 0 : status;
	} while (true);
	if (bad) {
		printf("not ok memory: a process ended with status %#x, seed %llu\n", bad,
		       (unsigned long long)o.seed);
		return 1;
	}
	fill_objects();
	printf("ok memory (%llu operations, %lld kB)\n", (unsigned long long)shared->claimed,
	       (long long)(free_before - random_meminfo("MemFree")));
	return 0;
}
