/*
 * Stubs to be used again. Making one costs several host processes' switches and
 * a host fork; emptying one costs an munmap.
 *
 * A stub may serve another guest process when nothing of the former one is left
 * in it, on the kernel's evidence:
 *	- its guest threads have exited (tgkill says ESRCH; only the mapper makes
 *	  threads, when told to),
 *	- then, whatever it had mapped below STUB_AREA is gone (the mapper's munmap
 *	  has returned), and nobody is left who could map or touch anything,
 *	- its slots are overwritten.
 * What else a process has, guest threads cannot change: descriptors, signal
 * actions, limits, timers, filters. A thread's signal mask, pending signals,
 * alternate stack, FS and GS ended with it.
 */
#include "base/host_mem.h"
#include "base/host_proc.h"
#include "base/host_sync.h"
#include "platform/internal.h"
#include <signal.h>
#include <string.h>

#define POOL_MAX 6
/* A stub with more slots than this had an unusual guest. */
#define POOL_SLOTS_MAX 16
#define LEAVE_LIMIT_NS (20ULL * 1000000)

void pool_init(struct platform *p)
{
	mutex_init(&p->pool.lock, RANK_LEAF, "stub pool");
	list_init(&p->pool.ready);
	p->pool.closed = !p->reuse;
}

static bool room(struct stub_pool *pool)
{
	MUTEX_GUARD(&pool->lock);
	return !pool->closed && pool->count < POOL_MAX;
}

/* What the former guest left in its slots. 0 or -errno. */
static int clean_slots(struct platform_as *as)
{
	struct control *c = &as->platform->control;
	size_t frames = 2 * c->frame_size, middle = STUB_SLOT_SIZE - PAGE_SIZE - frames;

	for (u32 i = 0; i < as->slot_count; i++) {
		u32 slot = as->slot_control[i] & ~SLOT_NOT_MAPPED;
		u8 *mem = control_slot(c, slot);
		int err = host_mem_punch(c->fd, (u64)slot * STUB_SLOT_SIZE + PAGE_SIZE, middle);

		if (err < 0)
			return err;
		memset(mem, 0, PAGE_SIZE);
		memset(mem + PAGE_SIZE + middle, 0, frames);
	}
	return 0;
}

bool platform_as_evacuate(struct platform_as *as)
{
	contexts_retire_parked(as);
	return !atomic_load(&as->context_count) &&
	       context_all_gone(as, host_clock_ns(CLOCK_MONOTONIC) + LEAVE_LIMIT_NS);
}

void platform_as_retire(struct platform_as *as)
{
	if (!platform_as_evacuate(as))
		platform_as_kill(as);
	as->spent = true;
	as_kill_nowait(as);
}

static bool reusable(const struct platform_as *as)
{
	return as->platform->reuse && !as->spent && !platform_contexts_bound(as->platform) &&
	       as->slot_count <= POOL_SLOTS_MAX;
}

/* A thread waits for the next guest, which finds nothing of the former one but what is mapped. */
static bool make_ready(struct platform_as *as)
{
	if (clean_slots(as) < 0 || context_spare(as) < 0 || atomic_load(&as->dead))
		return false;
	as->former_cpu_ns = as_cpu_ns(as);
	atomic_store(&as->wall_tsc, 0);
	as->gone_tsc = 0;
	atomic_store(&as->own_gs, false);
	return true;
}

bool platform_as_park(struct platform_as *as)
{
	struct platform *p = as->platform;

	/* "Everything else is unmapped" must not mean a vdso that could not be moved away. */
	if (!reusable(as) || platform_as_own_gs(as) || atomic_load(&p->ending) ||
	    (p->vdso.end && p->vdso.start < STUB_AREA) || !platform_as_evacuate(as))
		return false;
	return platform_as_settle(as) == 0 && make_ready(as);
}

bool pool_keep(struct platform_as *as)
{
	struct platform *p = as->platform;

	if (!reusable(as) || !room(&p->pool) || !platform_as_evacuate(as))
		return false;
	atomic_store(&as->late_count, 0); /* whose they were is gone */
	platform_as_settle(as);
	as->failed = false;
	if (!as->clean && platform_as_unmap(as, p->guest_min, STUB_AREA - p->guest_min) < 0)
		return false;
	if (!make_ready(as))
		return false;
	MUTEX_GUARD(&p->pool.lock);
	if (p->pool.closed || p->pool.count >= POOL_MAX)
		return false;
	list_push_front(&p->pool.ready, &as->pool_node);
	p->pool.count++;
	return true;
}

static struct platform_as *pop(struct stub_pool *pool)
{
	struct platform_as *as;

	MUTEX_GUARD(&pool->lock);
	if (list_empty(&pool->ready))
		return NULL;
	as = list_first(&pool->ready, struct platform_as, pool_node);
	list_del(&as->pool_node);
	pool->count--;
	return as;
}

struct platform_as *pool_take(struct platform *p)
{
	struct platform_as *as;

	while ((as = pop(&p->pool))) {
		refs_init(&as->refs, "platform_as");
		/* A death is told to whoever holds a reference, else noted in the stub. */
		if (!platform_as_dead(as))
			return as;
		platform_as_put(as);
	}
	return NULL;
}

static void close_pool(struct platform *p)
{
	MUTEX_GUARD(&p->pool.lock);
	p->pool.closed = true;
}

void platform_end(struct platform *p)
{
	close_pool(p);
	atomic_store(&p->ending, true);
	/* It dies beside the guest's last steps. */
	atomic_store(&p->zygote_dead, true);
	host_kill(p->zygote_pid, SIGKILL);
}

void pool_close(struct platform *p)
{
	struct platform_as *as;

	close_pool(p);
	while ((as = pop(&p->pool)))
		as_destroy(as);
}
