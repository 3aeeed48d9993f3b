/* The shadow: see shadow.h. */
#include "test/random/memory/shadow.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct shared *shared;
struct page shadow[PAGES];
__thread struct player *me;
static int object_fd[OBJECTS];
static char *object_base[OBJECTS];
static _Atomic uint32_t last_run;
static __thread volatile bool armed; /* a fault is expected */
static __thread sigjmp_buf fault_return;
static __thread volatile int fault_code;
static __thread void *volatile fault_address;

uint32_t new_run(void)
{
	return ++last_run;
}

int object_descriptor(size_t object)
{
	return object_fd[object];
}

char *object_memory(size_t object)
{
	return object_base[object];
}

/* ---- pages and their content ---- */

char *at(size_t page)
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

struct object *lock_object(const struct page *p)
{
	struct object *o = &shared->object[p->object];

	if (p->kind == ANON || (p->kind == PRIVATE && p->own))
		return NULL;
	/* Its holder found a difference and is gone. */
	if (pthread_mutex_lock(&o->lock) != 0)
		_exit(0);
	return o;
}

void unlock_object(struct object *o)
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

void check_page(size_t page)
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

void write_page(size_t page)
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

void pass_page(size_t page)
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

void check_all(void)
{
	for (size_t i = me->first; i < me->first + me->count; i++)
		check_page(i);
}

/* ---- ranges ---- */

struct range pick(size_t most)
{
	struct range r = { .first = me->first + random_below(&me->rs, me->count) };

	r.count = 1 + random_below(&me->rs, most);
	if (r.count > me->first + me->count - r.first)
		r.count = me->first + me->count - r.first;
	return r;
}

void cut(size_t page)
{
	uint32_t run, fresh;

	if (page == me->first || page >= me->first + me->count)
		return;
	run = shadow[page].run;
	if (!run || shadow[page - 1].run != run)
		return;
	fresh = new_run();
	for (size_t i = page; i < me->first + me->count && shadow[i].run == run; i++)
		shadow[i].run = fresh;
}

void cut_range(struct range r)
{
	cut(r.first);
	cut(r.first + r.count);
}

struct range in_one_run(struct range r)
{
	size_t n = 1;

	while (n < r.count && shadow[r.first + n].run == shadow[r.first].run)
		n++;
	return (struct range){ r.first, n };
}

bool unmapped(size_t first, size_t count)
{
	for (size_t i = first; i < first + count; i++)
		if (shadow[i].run)
			return false;
	return true;
}

void forget(size_t first, size_t count)
{
	memset(&shadow[first], 0, count * sizeof(shadow[0]));
}

void set_fresh(struct range r, struct page like)
{
	like.own = like.lazy = false;
	like.value[0] = like.value[1] = 0;
	for (size_t i = 0; i < r.count; i++) {
		shadow[r.first + i] = like;
		shadow[r.first + i].object_page = (uint16_t)(like.object_page + i);
	}
}

/* ---- the beginning ---- */

void shadow_fill_objects(void)
{
	for (size_t i = 0; i < OBJECTS; i++)
		for (size_t half = 0; half < 2 * OBJECT_PAGES; half++)
			fill_half(object_base[i] + half * HALF,
				  shared->object[i].value[half / 2][half % 2]);
}

void shadow_set_up(const struct random_options *o)
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
	shadow_fill_objects();
}
