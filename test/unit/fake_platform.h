/*
 * test/unit/fake_platform.h: platform_as_* in process memory, for tests of mm/.
 *
 * An address space is a table of pages as a host would have them. fake_access
 * does what a guest instruction does: it uses the table, faults into mm_fault,
 * and checks on each access that the page it reaches still has a reference (a
 * stale mapping is the worst bug that mm can have). Failures can be injected.
 * Include in exactly one file of a test.
 */
#ifndef MINISENTRY_TEST_FAKE_PLATFORM_H
#define MINISENTRY_TEST_FAKE_PLATFORM_H

#include "base/safecopy.h"
#include "mm/mm.h"
#include "platform/patch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FAKE_MIN 0x10000UL
#define FAKE_MAX 0x7ffff0000000UL
#define FAKE_BUCKETS 4096
#define FAKE_LATE 8

struct fake_page {
	struct fake_page *next;
	u64 page;
	struct memfile *file;
	u64 offset;
	int prot;
	bool writable;
};

struct platform_as {
	bool hostile; /* does nothing of what is left to it, and writes wherever it can */
	pthread_mutex_t lock, late_lock; /* the latter first */
	int refs;
	size_t count;
	_Atomic int failed;		    /* of a begun batch, for the next */
	struct platform_op late[FAKE_LATE]; /* protected by lock */
	_Atomic size_t late_count;
	struct fake_page *bucket[FAKE_BUCKETS];
};

static struct {
	size_t as_count, maps, unmaps, protects;
	size_t as_max;		 /* the host has room for no more; 0: any number */
	unsigned fail_map_every; /* inject -ENOMEM into every nth map, 0 never */
	unsigned fail_unmap_every;
	unsigned refuse_defer_every;
	unsigned refuse_late_every;
	unsigned refuse_park_every;
	bool threads;
} fake;

static struct fake_page **fake_slot(struct platform_as *as, u64 page)
{
	struct fake_page **at = &as->bucket[(page >> PAGE_SHIFT) % FAKE_BUCKETS];

	while (*at && (*at)->page != page)
		at = &(*at)->next;
	return at;
}

static void fake_remove(struct platform_as *as, struct fake_page **at)
{
	struct fake_page *p = *at;

	*at = p->next;
	free(p);
	as->count--;
}

static void fake_unmap(struct platform_as *as, u64 addr, u64 len)
{
	if (len / PAGE_SIZE < as->count) {
		for (u64 a = addr; a < addr + len; a += PAGE_SIZE) {
			struct fake_page **at = fake_slot(as, a);

			if (*at)
				fake_remove(as, at);
		}
		return;
	}
	for (size_t b = 0; b < FAKE_BUCKETS; b++)
		for (struct fake_page **at = &as->bucket[b]; *at;) {
			if ((*at)->page >= addr && (*at)->page < addr + len)
				fake_remove(as, at);
			else
				at = &(*at)->next;
		}
}

void platform_guest_limits(const struct platform *p, u64 *ret_min, u64 *ret_max)
{
	*ret_min = FAKE_MIN;
	*ret_max = FAKE_MAX;
}

void platform_get_vdso(const struct platform *p, struct platform_vdso *ret)
{
	*ret = (struct platform_vdso){ 0 };
}

int platform_as_new(struct platform *p, struct platform_as **ret)
{
	struct platform_as *as;

	if (fake.as_max && fake.as_count >= fake.as_max)
		return -EAGAIN;
	as = calloc(1, sizeof(*as));
	pthread_mutex_init(&as->lock, NULL);
	pthread_mutex_init(&as->late_lock, NULL);
	as->refs = 1;
	__atomic_add_fetch(&fake.as_count, 1, __ATOMIC_SEQ_CST);
	*ret = as;
	return 0;
}

void platform_as_put(struct platform_as *as)
{
	if (!as || __atomic_sub_fetch(&as->refs, 1, __ATOMIC_SEQ_CST))
		return;
	fake_unmap(as, 0, FAKE_MAX);
	__atomic_sub_fetch(&fake.as_count, 1, __ATOMIC_SEQ_CST);
	free(as);
}

static __thread unsigned fake_calls;

static bool fake_fails(unsigned every)
{
	return every && ++fake_calls % every == 0;
}

/* A batch that was only begun has failed: the next call says so, once; the one after it works. */
static bool fake_failed(struct platform_as *as)
{
	if (atomic_exchange(&as->failed, 0) >= 0)
		return false;
	fake_calls = 0;
	return true;
}

static int fake_map(struct platform_as *as, u64 addr, u64 len, struct memfile *file, u64 offset,
		    int prot, bool writable)
{
	if (addr < FAKE_MIN || len > FAKE_MAX || addr + len > FAKE_MAX ||
	    (addr | len) % PAGE_SIZE || !len || (prot & ~7) || !prot)
		abort();
	if (fake_failed(as))
		return -ENOMEM;
	pthread_mutex_lock(&as->lock);
	__atomic_add_fetch(&fake.maps, 1, __ATOMIC_RELAXED);
	fake_unmap(as, addr, len);
	if (fake_fails(fake.fail_map_every)) {
		pthread_mutex_unlock(&as->lock);
		return -ENOMEM;
	}
	for (u64 a = addr; a < addr + len; a += PAGE_SIZE) {
		struct fake_page **at = fake_slot(as, a), *p = malloc(sizeof(*p));

		*p = (struct fake_page){ *at, a, file, offset + (a - addr), prot, writable };
		*at = p;
		as->count++;
	}
	pthread_mutex_unlock(&as->lock);
	return 0;
}

/* Until now the guest could reach what these mappings replace. */
static void fake_check_replaced(struct platform_as *as, const struct platform_op *o)
{
	for (u64 a = o->addr; a < o->addr + o->len; a += PAGE_SIZE) {
		struct fake_page *p = *fake_slot(as, a);
		struct mem_range r;

		if (!p || !p->file)
			continue;
		r = (struct mem_range){ p->offset, p->offset + PAGE_SIZE };
		if (pgalloc_refs(pgalloc_of(p->file), r, &r) == 0)
			abort();
	}
}

static void fake_run_late(struct platform_as *as)
{
	struct platform_op ops[FAKE_LATE];
	size_t count;

	/* Who comes meanwhile waits until they are done. */
	pthread_mutex_lock(&as->late_lock);
	pthread_mutex_lock(&as->lock);
	count = as->late_count;
	memcpy(ops, as->late, sizeof(ops));
	as->late_count = 0;
	for (size_t i = 0; i < count; i++)
		fake_check_replaced(as, &ops[i]);
	pthread_mutex_unlock(&as->lock);
	for (size_t i = 0; i < count; i++) {
		const struct platform_op *o = &ops[i];

		/* as the host at its map count: refused, and what was there stays */
		if (fake_fails(fake.fail_map_every)) {
			as->failed = -ENOMEM;
			break;
		}
		if (fake_map(as, o->addr, o->len, o->file, o->offset, o->prot,
			     o->writable || o->prot & PROT_WRITE) < 0)
			as->failed = -ENOMEM;
	}
	pthread_mutex_unlock(&as->late_lock);
}

/* Done when the guest goes on, or with whatever comes first. */
int platform_as_map_late(struct platform_as *as, const struct platform_op *ops, size_t count)
{
	int err = -ENOSPC;

	if (fake_fails(fake.refuse_late_every) || as->failed)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&as->lock);
	if (as->late_count + count <= FAKE_LATE) {
		memcpy(as->late + as->late_count, ops, count * sizeof(*ops));
		as->late_count += count;
		err = 0;
	}
	pthread_mutex_unlock(&as->lock);
	return err;
}

bool platform_as_settled(struct platform_as *as)
{
	return !as->late_count && !as->failed;
}

int platform_as_settle(struct platform_as *as)
{
	fake_run_late(as);
	return as->failed < 0 ? -ENOMEM : 0;
}

bool platform_as_dead(struct platform_as *as)
{
	return false;
}

bool platform_as_evacuate(struct platform_as *as)
{
	return !fake_fails(fake.refuse_park_every);
}

/* Nothing runs in it until the next mm_settle: what is mapped need not have references. */
bool platform_as_park(struct platform_as *as)
{
	return !fake_fails(fake.refuse_park_every) && platform_as_settle(as) == 0;
}

int platform_as_map(struct platform_as *as, u64 addr, u64 len, struct memfile *file, u64 offset,
		    int prot, bool populate)
{
	fake_run_late(as);
	return fake_map(as, addr, len, file, offset, prot, prot & PROT_WRITE);
}

int platform_as_map_zero(struct platform_as *as, u64 addr, u64 len, int prot)
{
	if (prot & PROT_WRITE)
		abort();
	fake_run_late(as);
	return fake_map(as, addr, len, NULL, 0, prot, false);
}

int platform_as_unmap(struct platform_as *as, u64 addr, u64 len)
{
	if (addr < FAKE_MIN || addr + len > FAKE_MAX || (addr | len) % PAGE_SIZE || !len)
		abort();
	fake_run_late(as);
	if ((fake_failed(as) || fake_fails(fake.fail_unmap_every)) && len < 1UL << 40)
		return -ENOMEM;
	pthread_mutex_lock(&as->lock);
	__atomic_add_fetch(&fake.unmaps, 1, __ATOMIC_RELAXED);
	fake_unmap(as, addr, len);
	pthread_mutex_unlock(&as->lock);
	return 0;
}

void platform_as_kill(struct platform_as *as)
{
	if (!fake.refuse_park_every)
		abort(); /* everything can always be unmapped here */
	fake_unmap(as, 0, FAKE_MAX);
}

int platform_as_protect(struct platform_as *as, u64 addr, u64 len, int prot)
{
	int err = 0;

	fake_run_late(as);
	if (fake_failed(as))
		return -ENOMEM;
	pthread_mutex_lock(&as->lock);
	__atomic_add_fetch(&fake.protects, 1, __ATOMIC_RELAXED);
	for (u64 a = addr; a < addr + len && err == 0; a += PAGE_SIZE) {
		struct fake_page *p = *fake_slot(as, a);

		if (!p || (prot & PROT_WRITE && !p->writable))
			abort(); /* mm's picture of the stub is wrong */
		p->prot = prot;
	}
	pthread_mutex_unlock(&as->lock);
	return err;
}

int platform_as_batch(struct platform_as *as, const struct platform_op *ops, size_t count)
{
	int err = 0;

	fake_run_late(as);
	for (size_t i = 0; i < count && err == 0; i++) {
		const struct platform_op *o = &ops[i];

		switch (o->kind) {
		case PLATFORM_OP_MAP:
			err = fake_map(as, o->addr, o->len, o->file, o->offset, o->prot,
				       o->writable || o->prot & PROT_WRITE);
			break;
		case PLATFORM_OP_MAP_ZERO:
			err = platform_as_map_zero(as, o->addr, o->len, o->prot);
			break;
		case PLATFORM_OP_UNMAP: err = platform_as_unmap(as, o->addr, o->len); break;
		case PLATFORM_OP_PROTECT:
			err = platform_as_protect(as, o->addr, o->len, o->prot);
			break;
		}
	}
	return err;
}

void platform_as_batch_begin(struct platform_as *as, const struct platform_op *ops, size_t count)
{
	as->failed = platform_as_batch(as, ops, count);
}

/* As an honest guest does, before its next access. */
int platform_as_defer(struct platform_as *as, const struct platform_op *op)
{
	if (fake_fails(fake.refuse_defer_every))
		return -ENOSPC;
	fake_run_late(as);
	if (as->failed) { /* nothing there: what the guest's thread cannot do ends unmapped */
		pthread_mutex_lock(&as->lock);
		fake_unmap(as, op->addr, op->len);
		pthread_mutex_unlock(&as->lock);
		return 0;
	}
	return as->hostile ? 0 : platform_as_batch(as, op, 1);
}

bool platform_as_alone(struct platform_as *as)
{
	return !fake.threads;
}

/* Whatever the stub has mapped has a reference, now and then. */
static void fake_check_all(struct platform_as *as)
{
	static unsigned calls;

	if (fake.threads || __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) % 16)
		return;
	for (size_t b = 0; b < FAKE_BUCKETS; b++) {
		for (struct fake_page *p = as->bucket[b]; p; p = p->next) {
			struct mem_range r = { p->offset, p->offset + PAGE_SIZE };

			if (p->file && pgalloc_refs(pgalloc_of(p->file), r, &r) == 0)
				abort();
		}
	}
}

/* A fork whose child may run. */
__attribute__((unused)) static int fake_fork(struct mm *parent, struct mm **ret_child)
{
	int err = mm_fork(parent, ret_child);

	if (err == 0)
		mm_settle(*ret_child);
	return err;
}

/* The same for a parent that moves, as for one with much memory. */
__attribute__((unused)) static int fake_fork_moving(struct mm *parent, struct mm **ret_child)
{
	struct platform_as *fresh, *old;
	int err = platform_as_new(NULL, &fresh);

	if (err == 0)
		err = mm_fork_moving(parent, fresh, &old, ret_child);
	platform_as_put(old);
	if (err == 0)
		mm_settle(*ret_child);
	return err;
}

static void fake_go_home(struct mm *mm)
{
	platform_as_put(mm_home(mm) ? mm_go_home(mm) : mm_forget_home(mm));
}

/* Within one page. 0, or the signal | si_code << 8. */
static int fake_access(struct mm *mm, u64 addr, void *buf, size_t len, bool write)
{
	struct platform_as *as = mm_as(mm);

	for (int tries = 0; tries < 100; tries++) {
		struct fake_page *p;
		int sig = 0, code = 0, err;

		fake_run_late(as);
		pthread_mutex_lock(&as->lock);
		p = *fake_slot(as, addr & PAGE_MASK);
		if (p && (p->prot & (write ? PROT_WRITE : PROT_READ))) {
			u64 off = p->offset + (addr & (PAGE_SIZE - 1)), n;

			if (!p->file) {
				memset(buf, 0, len);
			} else {
				char *m = p->file->ops->map(p->file, off, &n);
				struct mem_range r = { p->offset, p->offset + PAGE_SIZE };

				/* A stub's mapping is its own: the sentry's may fail (exhaustion).
				 */
				if (!m)
					m = p->file->ops->map(p->file, off, &n);
				if (pgalloc_refs(pgalloc_of(p->file), r, &r) == 0)
					abort(); /* a stale mapping */
				if (write)
					memcpy(m, buf, len);
				else
					memcpy(buf, m, len);
			}
			pthread_mutex_unlock(&as->lock);
			return 0;
		}
		pthread_mutex_unlock(&as->lock);
		while ((err = mm_fault(mm, addr, write, false, &sig, &code)) == -EAGAIN ||
		       err == -ESTALE) {
			if (err == -EAGAIN)
				mm_await_child(mm);
			else
				fake_go_home(mm);
		}
		as = mm_as(mm);
		fake_check_all(as);
		if (err == -EFAULT)
			return sig | code << 8;
		if (err < 0)
			return err;
	}
	abort(); /* no progress */
}

/* ---- no patches ---- */

struct patcher *platform_patcher(struct platform *p)
{
	return NULL;
}

void patch_reach(const struct patcher *p, u64 *ret_start, u64 *ret_end)
{
	*ret_start = *ret_end = 0;
}

size_t patch_insn_length(struct patcher *p, const u8 *code, size_t size)
{
	return 0;
}

int patch_site(struct patcher *p, const struct patch_site *site, struct patch_edit *ret)
{
	return -ENOTSUP;
}

void platform_as_set_own_gs(struct platform_as *as)
{
}

void platform_as_retire(struct platform_as *as)
{
}

bool platform_cpus_to_spare(const struct platform *p)
{
	return true;
}

bool platform_contexts_bound(const struct platform *p)
{
	return false;
}

void patch_forget(struct patcher *p, u64 entry)
{
}

bool platform_as_own_gs(struct platform_as *as)
{
	return false;
}

#endif
