/*
 * Contexts: guest threads. Creation and retirement are the same for both
 * platforms; running is not.
 */
#include "base/host_proc.h"
#include "base/host_sync.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "base/tsc.h"
#include "platform/internal.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define RETIRE_LIMIT_NS (10ULL * NSEC_PER_SEC)
#define USER_CS 0x33
#define USER_DS 0x2b
/* CF PF AF ZF SF TF DF OF RF AC: what rt_sigreturn lets through (FIX_EFLAGS), and IF, bit 1. */
#define EFLAGS_USER 0x50dd5
#define EFLAGS_FIXED 0x202

/* The context that the calling sentry thread owns and last switched to. */
static _Thread_local struct platform_context *current;

/* ---- local slots ---- */

static int slot_grow_locked(struct platform_as *as)
{
	u32 capacity = as->slot_capacity ? as->slot_capacity * 2 : 4;
	u32 *control, *free_stack;

	if (as->slot_count < as->slot_capacity)
		return 0;
	control = realloc(as->slot_control, capacity * sizeof(u32));
	if (!control)
		return -ENOMEM;
	as->slot_control = control;
	free_stack = realloc(as->slot_free, capacity * sizeof(u32));
	if (!free_stack)
		return -ENOMEM;
	as->slot_free = free_stack;
	as->slot_capacity = capacity;
	return 0;
}

/* A local slot: index or -errno. */
static int slot_take_locked(struct platform_as *as)
{
	int ret;

	if (as->slot_free_count > 0)
		return (int)as->slot_free[--as->slot_free_count];
	if (as->slot_count >= STUB_SLOT_MAX)
		return -EAGAIN;
	ret = slot_grow_locked(as);
	if (ret < 0)
		return ret;
	ret = control_alloc(&as->platform->control);
	if (ret < 0)
		return ret;
	as->slot_control[as->slot_count] = (u32)ret | SLOT_NOT_MAPPED;
	return (int)as->slot_count++;
}

static void slot_give_locked(struct platform_as *as, u32 local)
{
	as->slot_free[as->slot_free_count++] = local;
}

/* Retired threads looked at each time: thousands may leave at once, and each look is a host call.
 */
#define COLLECT_MAX 4

/*
 * Threads that were told to exit and have. Who has not done so in a long time
 * holds on to a thread that the sentry does not count any more: hostile.
 */
static void collect_retired_locked(struct platform_as *as, u32 max)
{
	struct retired_thread *r;

	for (u32 i = 0; i < max && !list_empty(&as->retired); i++) {
		r = list_first(&as->retired, struct retired_thread, node);
		list_del(&r->node);
		if (host_tgkill(as->pid, r->tid, 0) == -ESRCH) {
			slot_give_locked(as, r->local_slot);
			free(r);
			continue;
		}
		list_push_back(&as->retired, &r->node);
		if (host_clock_ns(CLOCK_MONOTONIC) - r->since_ns > RETIRE_LIMIT_NS) {
			log_warn("platform: a thread of stub %d does not exit; killed", as->pid);
			as_kill_locked(as);
			return;
		}
	}
}

bool context_all_gone(struct platform_as *as, u64 deadline_ns)
{
	struct retired_thread *r;
	struct stub_ctx *shared;

	MUTEX_GUARD(&as->lock);
	while (!list_empty(&as->retired)) {
		r = list_first(&as->retired, struct retired_thread, node);
		if (host_tgkill(as->pid, r->tid, 0) != -ESRCH) {
			if (host_clock_ns(CLOCK_MONOTONIC) > deadline_ns)
				return false;
			/* The kernel's wake at its exit, or a hostile one, or none. */
			shared = control_slot(&as->platform->control,
					      as->slot_control[r->local_slot] & ~SLOT_NOT_MAPPED);
			if (host_futex_wait(&shared->word, TURN_EXIT, NSEC_PER_SEC / 1000, false) ==
			    -EAGAIN)
				host_yield();
			continue;
		}
		list_del(&r->node);
		slot_give_locked(as, r->local_slot);
		free(r);
	}
	return !as->lost_thread && !atomic_load(&as->dead);
}

/* ---- life ---- */

static int start_thread_locked(struct platform_context *ctx)
{
	struct platform_as *as = ctx->as;
	struct stub_cmd *cmd = as->cmd;
	bool mapped = !(as->slot_control[ctx->local_slot] & SLOT_NOT_MAPPED);
	s64 tid;

	as_settle_locked(as);
	memset(ctx->mem, 0, PAGE_SIZE);
	ctx->shared->bell = stub_bell(ctx->slot);
	cmd->slot = ctx->stub_addr;
	cmd->altstack_sp = ctx->stub_addr + PAGE_SIZE;
	cmd->altstack_flags = 0;
	cmd->altstack_size = STUB_SLOT_SIZE - PAGE_SIZE;
	atomic_store(&cmd->go, 0);
	atomic_store(&ctx->shared->word, TURN_SENTRY | TURN_STUB_SLEEPS);
	cmd->ops[0] = (struct stub_op){ SYS_mmap,
					{ ctx->stub_addr, STUB_SLOT_SIZE, PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_FIXED, STUB_FD_CONTROL,
					  (u64)ctx->slot * STUB_SLOT_SIZE },
					0 };
	tid = as_submit_locked(as, CMD_KIND_THREAD, mapped ? 0 : 1);
	if (tid < 0)
		return (int)tid;
	ctx->bound = as->mapper_bound; /* which it has inherited */
	as->slot_control[ctx->local_slot] &= ~SLOT_NOT_MAPPED;
	/* The mapper is trusted, but running guest code in it would be the end. */
	if (tid == 0 || tid == as->pid) {
		as_kill_locked(as);
		return -ESRCH;
	}
	ctx->tid = (int)tid;
	if (as->mapper_cpu && !ctx->bound)
		host_unbind_cpu(ctx->tid);
	return as->platform->ops->context_start(ctx);
}

static void enter_locked(struct platform_context *ctx)
{
	list_push_back(&ctx->as->contexts, &ctx->node);
	atomic_fetch_add(&ctx->as->context_count, 1);
}

static void leave_locked(struct platform_context *ctx)
{
	ctx->as->gone_tsc += atomic_load_explicit(&ctx->clock.wall, memory_order_relaxed);
	list_del(&ctx->node);
	atomic_fetch_sub(&ctx->as->context_count, 1);
}

/* A thread of as that has given up its context, with a slot; NULL: there is none. */
static struct platform_context *unpark_locked(struct platform_as *as)
{
	struct platform_context *ctx;

	if (list_empty(&as->parked))
		return NULL;
	ctx = list_first(&as->parked, struct platform_context, node);
	list_del(&ctx->node);
	as->parked_count--;
	return ctx;
}

/* A context without a thread. */
static struct platform_context *context_alloc(struct platform_as *as)
{
	struct platform_context *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->xbuf = malloc(XSTATE_BUF_SIZE);
	if (!ctx->xbuf) {
		free(ctx);
		return NULL;
	}
	list_init(&ctx->node);
	ctx->idle = true;
	ctx->as = as;
	ctx->platform = as->platform;
	return ctx;
}

static void context_release(struct platform_context *ctx)
{
	free(ctx->xbuf);
	free(ctx);
}

/* A thread for it. 0 or -errno, and the context is as it was. */
static int context_populate_locked(struct platform_context *ctx)
{
	struct platform_as *as = ctx->as;
	int err;

	collect_retired_locked(as, as->slot_count < STUB_SLOT_MAX ? COLLECT_MAX : STUB_SLOT_MAX);
	err = slot_take_locked(as);
	if (err < 0)
		return err;
	ctx->local_slot = (u32)err;
	ctx->slot = as->slot_control[err] & ~SLOT_NOT_MAPPED;
	ctx->mem = control_slot(&as->platform->control, ctx->slot);
	ctx->shared = (struct stub_ctx *)ctx->mem;
	ctx->stub_addr = STUB_SLOTS + (u64)ctx->local_slot * STUB_SLOT_SIZE;
	err = start_thread_locked(ctx);
	if (err < 0)
		slot_give_locked(as, ctx->local_slot);
	return err;
}

int context_spare(struct platform_as *as)
{
	struct platform_context *ctx = context_alloc(as);
	int err;

	if (!ctx)
		return -ENOMEM;
	MUTEX_GUARD(&as->lock);
	err = context_populate_locked(ctx);
	if (err < 0) {
		context_release(ctx);
		return err;
	}
	list_push_back(&as->parked, &ctx->node);
	as->parked_count++;
	return 0;
}

int platform_context_new(struct platform_as *as, struct platform_context **ret)
{
	struct platform_context *ctx;
	int err = 0;

	{
		MUTEX_GUARD(&as->lock);
		ctx = unpark_locked(as);
		if (ctx)
			enter_locked(ctx);
	}
	if (ctx) {
		err = as->platform->ops->context_start(ctx);
		ASSERT(err == 0);
	} else {
		ctx = context_alloc(as);
		if (!ctx)
			return -ENOMEM;
		MUTEX_GUARD(&as->lock);
		err = context_populate_locked(ctx);
		if (err == 0)
			enter_locked(ctx);
	}
	if (err < 0) {
		context_release(ctx);
		return err;
	}
	platform_as_get(as);
	*ret = ctx;
	return 0;
}

/* The thread leaves, it has been told; ctx is of no more use. */
static void retire_locked(struct platform_context *ctx)
{
	struct platform_as *as = ctx->as;
	struct retired_thread *r;

	if (!atomic_load(&as->dead)) {
		r = malloc(sizeof(*r));
		if (r) {
			r->tid = ctx->tid;
			r->local_slot = ctx->local_slot;
			r->since_ns = host_clock_ns(CLOCK_MONOTONIC);
			list_push_back(&as->retired, &r->node);
		} else {
			/* Nothing to remember it by: the slot is lost until the stub dies. */
			as->lost_thread = true;
		}
	}
	context_release(ctx);
}

void contexts_retire_parked(struct platform_as *as)
{
	struct platform_context *ctx;

	MUTEX_GUARD(&as->lock);
	while ((ctx = unpark_locked(as))) {
		ctx->platform->ops->context_stop(ctx);
		retire_locked(ctx);
	}
}

/*
 * The thread stays, for the next context of its address space: it waits for its
 * turn. The other threads of its process can make it run, as they could at any
 * time; what it does is their doing, and nobody listens to it.
 */
static bool park_locked(struct platform_context *ctx)
{
	struct platform_as *as = ctx->as;

	if (!ctx->platform->reuse || platform_contexts_bound(ctx->platform) || ctx->dead ||
	    atomic_load(&as->dead) || as->parked_count >= PARKED_MAX)
		return false;
	leave_locked(ctx);
	ctx->deferred_count = 0;
	ctx->shared->deferred = 0;
	atomic_store(&ctx->interrupted, false);
	ctx->clock = (struct context_clock){ 0 };
	ctx->pace = (struct turn_pace){ 0 };
	list_push_front(&as->parked, &ctx->node);
	as->parked_count++;
	return true;
}

static void count_active(struct platform_context *ctx, int n)
{
	atomic_fetch_add_explicit(&ctx->platform->active, n, memory_order_relaxed);
	if (ctx->pace.computes)
		atomic_fetch_add_explicit(&ctx->platform->computing, n, memory_order_relaxed);
}

void platform_context_idle(struct platform_context *ctx, bool idle)
{
	u32 turn = TURN_SENTRY;

	if (ctx->idle == idle)
		return;
	ctx->idle = idle;
	count_active(ctx, idle ? -1 : 1);
	if (!idle) {
		clock_resume(&ctx->clock);
		return;
	}
	ctx->pace.blocked++;
	clock_pause(&ctx->clock, ctx->platform->spin_limits.window_tsc);
	/* A stub that waits for us may sleep too; one that spins does so at once. */
	ctx->shared->spin = 0;
	atomic_compare_exchange_strong(&ctx->shared->word, &turn, TURN_SENTRY | TURN_STUB_SLEEPS);
}

void platform_context_continue_at(struct platform_context *ctx, u64 shown, u64 rip)
{
	ctx->shown_rip = shown;
	ctx->raw_rip = rip;
}

void platform_context_succeed(struct platform_context *ctx, const struct platform_context *from)
{
	ctx->shown_rip = from->shown_rip;
	ctx->raw_rip = from->raw_rip;
	ctx->fp_save = from->fp_save;
	ctx->fp_load = from->fp_load;
}

void platform_as_set_own_gs(struct platform_as *as)
{
	atomic_store_explicit(&as->own_gs, true, memory_order_relaxed);
}

bool platform_as_own_gs(struct platform_as *as)
{
	return atomic_load_explicit(&as->own_gs, memory_order_relaxed);
}

void platform_context_set_ids(struct platform_context *ctx, const struct platform_ids *ids)
{
	struct stub_info *all = (void *)((u8 *)ctx->as->cmd + CMD_INFO), *info;
	u32 flags = (ids->ids ? INFO_IDS : 0) | (ids->clocks ? INFO_CLOCKS : 0);

	if (!ctx->platform->patch || ctx->local_slot >= INFO_MAX)
		return;
	info = &all[ctx->local_slot];
	info->pid = ids->pid;
	info->tid = ids->tid;
	info->ppid = ids->ppid;
	info->uid = ids->uid;
	info->euid = ids->euid;
	info->gid = ids->gid;
	info->egid = ids->egid;
	__atomic_store_n(&info->flags, flags, __ATOMIC_RELEASE);
}

void platform_context_free(struct platform_context *ctx)
{
	struct platform_as *as;
	bool parked;

	if (!ctx)
		return;
	platform_context_idle(ctx, true);
	pair_end(ctx);
	as = ctx->as;
	if (current == ctx)
		current = NULL;
	{
		MUTEX_GUARD(&as->lock);
		parked = park_locked(ctx);
	}
	if (!parked) {
		ctx->platform->ops->context_stop(ctx);
		MUTEX_GUARD(&as->lock);
		leave_locked(ctx);
		retire_locked(ctx);
		collect_retired_locked(as, COLLECT_MAX);
	}
	platform_as_put(as);
}

/* ---- deferred calls ---- */

int platform_as_defer(struct platform_as *as, const struct platform_op *op)
{
	struct platform_context *ctx = current;
	struct stub_deferred d;
	int err;

	/* What waits for the guest to go on would come after it, if somebody else took both. */
	if (!ctx || ctx->as != as || ctx->dead || ctx->platform->kind != PLATFORM_SECCOMP ||
	    atomic_load(&as->late_count))
		return -EOPNOTSUPP;
	if (ctx->deferred_count == CTX_DEFERRED_MAX)
		return -ENOSPC;
	err = as_encode_deferred(as, op, &d);
	if (err < 0)
		return err;
	((struct stub_deferred *)(ctx->mem + CTX_DEFERRED_OPS))[ctx->deferred_count] = d;
	ctx->deferred[ctx->deferred_count++] = d;
	ctx->shared->deferred = ctx->deferred_count;
	return 0;
}

struct platform_context *context_current(void)
{
	return current;
}

bool platform_as_alone(struct platform_as *as)
{
	return current && current->as == as && atomic_load(&as->context_count) == 1;
}

u32 context_take_deferred(struct platform_as *as, struct stub_deferred ret[CTX_DEFERRED_MAX])
{
	struct platform_context *ctx = current;
	u32 count;

	if (!ctx || ctx->as != as || !ctx->deferred_count)
		return 0;
	count = ctx->deferred_count;
	memcpy(ret, ctx->deferred, count * sizeof(*ret));
	ctx->deferred_count = 0;
	ctx->shared->deferred = 0;
	return count;
}

bool context_settle_deferred(struct platform_context *ctx)
{
	u32 count = ctx->deferred_count, left;
	int err;

	if (!count)
		return true;
	ctx->deferred_count = 0;
	left = MIN(*(volatile u32 *)&ctx->shared->deferred, count);
	if (!left)
		return true;
	ctx->shared->deferred = 0;
	MUTEX_GUARD(&ctx->as->lock);
	err = as_unmap_locked(ctx->as, ctx->deferred + count - left, left);
	if (err < 0 && err != -ESRCH)
		as_kill_locked(ctx->as);
	return false;
}

/* ---- running ---- */

static void stop_bad_state(struct platform_stop *stop)
{
	stop->reason = PLATFORM_STOP_EXCEPTION;
	stop->signo = SIGSEGV;
	stop->si_code = SI_KERNEL;
	stop->trapno = 13; /* general protection */
}

static void sanitise(struct user_regs_struct *regs)
{
	regs->eflags = (regs->eflags & EFLAGS_USER) | EFLAGS_FIXED;
	regs->cs = USER_CS;
	regs->ss = USER_DS;
	regs->ds = regs->es = regs->fs = regs->gs = 0;
	regs->orig_rax = (u64)-1; /* no restart logic of the host */
}

void platform_switch(struct platform_context *ctx, struct user_regs_struct *regs,
		     struct platform_stop *ret_stop)
{
	memset(ret_stop, 0, sizeof(*ret_stop));
	assert_no_locks();
	current = ctx;
	if (ctx->dead) {
		ret_stop->reason = PLATFORM_STOP_DEAD;
		return;
	}
	platform_context_idle(ctx, false);
	sanitise(regs);
	if (regs->rip >= STUB_TASK_MAX || regs->fs_base >= STUB_TASK_MAX ||
	    regs->gs_base >= STUB_TASK_MAX) {
		stop_bad_state(ret_stop);
		/* Or the signal's handler could not run either. */
		if (regs->fs_base >= STUB_TASK_MAX)
			regs->fs_base = 0;
		if (regs->gs_base >= STUB_TASK_MAX)
			regs->gs_base = 0;
		return;
	}
	if (atomic_load_explicit(&ctx->interrupted, memory_order_relaxed)) {
		atomic_store(&ctx->interrupted, false);
		ret_stop->reason = PLATFORM_STOP_INTERRUPTED;
		return;
	}
	clock_enter(&ctx->clock, ctx->platform->spin_limits.window_tsc);
	atomic_store_explicit(&ctx->in_guest, true, memory_order_relaxed);
	/* Has a full barrier, looks for interrupts after it, and stops the clock. */
	ctx->platform->ops->run(ctx, regs, ret_stop);
	atomic_store_explicit(&ctx->in_guest, false, memory_order_release);
	regs->cs = USER_CS;
	regs->ss = USER_DS;
	regs->ds = regs->es = regs->fs = regs->gs = 0;
	if (ret_stop->reason == PLATFORM_STOP_DEAD)
		ctx->dead = true;
	else if (ret_stop->reason != PLATFORM_STOP_SYSCALL)
		regs->orig_rax = (u64)-1;
	if (ret_stop->reason == PLATFORM_STOP_INTERRUPTED)
		atomic_store(&ctx->interrupted, false);
}

void platform_context_complete(struct platform_context *ctx, struct user_regs_struct *regs)
{
	if (ctx->platform->ops->complete)
		ctx->platform->ops->complete(ctx, regs);
}

void platform_context_interrupt(struct platform_context *ctx)
{
	atomic_store(&ctx->interrupted, true);
	if (atomic_load(&ctx->in_guest))
		host_tgkill(ctx->as->pid, ctx->tid, STUB_INTERRUPT_SIGNAL);
}

int platform_get_xstate(struct platform_context *ctx, void *buf, size_t size)
{
	if (ctx->dead)
		return -ESRCH;
	return ctx->platform->ops->get_xstate(ctx, buf, MIN(size, ctx->platform->xstate.size));
}

int platform_set_xstate(struct platform_context *ctx, const void *buf, size_t size)
{
	if (ctx->dead)
		return -ESRCH;
	return ctx->platform->ops->set_xstate(ctx, buf, MIN(size, ctx->platform->xstate.size));
}

#define INITIAL_XSTATE (STUB_CONFIG + CONFIG_XINIT)

static bool move_xstate(struct platform_context *ctx, u64 save, u64 load)
{
	if (ctx->dead || ctx->fp_load || !ctx->platform->ops->move_xstate)
		return false;
	return ctx->platform->ops->move_xstate(ctx, save, load);
}

bool platform_xstate_to_guest(struct platform_context *ctx, u64 addr)
{
	return move_xstate(ctx, addr, INITIAL_XSTATE);
}

bool platform_xstate_from_guest(struct platform_context *ctx, u64 addr)
{
	return move_xstate(ctx, 0, addr);
}

bool platform_xstate_take_back(struct platform_context *ctx, u64 *ret_save, u64 *ret_load)
{
	if (!ctx->fp_load)
		return false;
	*ret_save = ctx->fp_save;
	*ret_load = ctx->fp_load == INITIAL_XSTATE ? 0 : ctx->fp_load;
	ctx->fp_save = ctx->fp_load = 0;
	return true;
}

/* Time since ctx entered guest code, if it is there. */
static u64 running_tsc(struct platform_context *ctx, u64 now)
{
	u64 entered = atomic_load_explicit(&ctx->clock.since, memory_order_relaxed);

	return entered && entered < now ? now - entered : 0;
}

/*
 * A thread's CPU clock is readable only within its process, a process's from
 * anywhere: the process's time is divided as the contexts' time in guest code is.
 * What it takes beyond their sum are stubs that spin, which is not the guest's.
 */
u64 platform_context_cpu_ns(struct platform_context *ctx)
{
	struct platform_as *as = ctx->as;
	u64 now = tsc_now();
	u64 running = running_tsc(ctx, now);
	u64 mine = atomic_load_explicit(&ctx->clock.wall, memory_order_relaxed) + running;
	u64 all = mine;
	u64 cpu = as_cpu_ns(as), former = as->former_cpu_ns;
	struct platform_context *c;

	/* The lock is held while the mapper works; without it the sum of last time must do. */
	if (mutex_trylock(&as->lock)) {
		all = as->gone_tsc;
		list_for_each (c, &as->contexts, node)
			all += atomic_load_explicit(&c->clock.wall, memory_order_relaxed) +
			       running_tsc(c, now);
		atomic_store_explicit(&as->wall_tsc, all, memory_order_relaxed);
		mutex_unlock(&as->lock);
	} else {
		all = MAX(all, atomic_load_explicit(&as->wall_tsc, memory_order_relaxed));
	}
	cpu = cpu > former ? tsc_from_ns(cpu - former) : 0; /* 0 too when it is dead */
	if (cpu == 0 || cpu >= all)
		return tsc_to_ns(mine);
	return tsc_to_ns((u64)((unsigned __int128)cpu * mine / all));
}

u64 platform_context_served_tsc(const struct platform_context *ctx)
{
	return ctx->clock.served;
}

int platform_context_host_tid(struct platform_context *ctx)
{
	return ctx->tid;
}
