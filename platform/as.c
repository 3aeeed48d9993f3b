/*
 * Address spaces: a stub process, its mapper, and the commands to it.
 *
 * A command is a list of system calls in a page that the stub maps read-only.
 * The mapper reports on an eventfd to which no guest thread can write, so a
 * result is the kernel's evidence that the calls are over.
 */
#include "base/host_mem.h"
#include "base/host_proc.h"
#include "base/host_spawn.h"
#include "base/host_sync.h"
#include "base/log.h"
#include "base/tsc.h"
#include "platform/internal.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* A mapper that has not answered for this long is given up; longer while it uses CPU time. */
#define MAPPER_TICK_NS NSEC_PER_SEC
#define MAPPER_IDLE_TICKS 15
#define MAPPER_MAX_TICKS 120

int platform_as_new(struct platform *p, struct platform_as **ret)
{
	struct platform_as *as = pool_take(p);
	int err = -ENOMEM;

	if (as) {
		*ret = as;
		return 0;
	}
	as = calloc(1, sizeof(*as));
	if (!as)
		return -ENOMEM;
	as->platform = p;
	as->clean = true;
	list_init(&as->node);
	list_init(&as->contexts);
	list_init(&as->retired);
	list_init(&as->parked);
	list_init(&as->pool_node);
	mutex_init(&as->lock, RANK_PLATFORM, "platform_as");
	err = control_alloc(&p->control);
	if (err < 0)
		goto fail;
	as->cmd_slot = (u32)err;
	as->cmd = control_slot(&p->control, as->cmd_slot);
	as->cmd->bell = stub_bell(as->cmd_slot);
	atomic_store(control_bell(&p->control, as->cmd_slot), as->seq);
	as->done_fd = host_eventfd();
	if (as->done_fd < 0) {
		err = -ENOMEM;
		goto fail_slot;
	}
	as->pid = zygote_fork(p, as->cmd_slot, as->done_fd);
	if (as->pid < 0) {
		err = as->pid;
		goto fail_fd;
	}
	as->pidfd = host_pidfd_open(as->pid);
	if (as->pidfd < 0) {
		err = -ENOMEM;
		goto fail_stub;
	}
	refs_init(&as->refs, "platform_as");
	if (reaper_add(p, as) < 0) {
		reaper_remove(p, as);
		err = -ENOMEM;
		goto fail_pidfd;
	}
	*ret = as;
	return 0;
fail_pidfd:
	refs_put(&as->refs);
	host_mem_close(as->pidfd);
fail_stub:
	host_kill(as->pid, SIGKILL);
	host_reap(as->pid);
fail_fd:
	host_mem_close(as->done_fd);
fail_slot:
	control_free(&p->control, as->cmd_slot);
fail:
	mutex_destroy(&as->lock);
	free(as);
	return err;
}

struct platform_as *platform_as_get(struct platform_as *as)
{
	refs_get(&as->refs);
	return as;
}

void as_destroy(struct platform_as *as)
{
	struct platform *p = as->platform;
	struct retired_thread *r, *tmp;
	/* As the init of a PID namespace we end when all others are gone: the host waits for them.
	 */
	bool leave = atomic_load(&p->ending) && host_getpid() == 1;

	ASSERT(list_empty(&as->contexts));

	reaper_remove(p, as);
	host_kill(as->pid, SIGKILL);
	if (!leave)
		host_reap(as->pid);
	contexts_retire_parked(as);
	list_for_each_safe (r, tmp, &as->retired, node) {
		list_del(&r->node);
		free(r);
	}
	/* Nobody has these pages mapped any more. */
	for (u32 i = 0; i < as->slot_count && !leave; i++)
		control_free(&p->control, as->slot_control[i] & ~SLOT_NOT_MAPPED);
	if (!leave)
		control_free(&p->control, as->cmd_slot);
	host_mem_close(as->pidfd);
	host_mem_close(as->done_fd);
	mutex_destroy(&as->lock);
	free(as->slot_control);
	free(as->slot_free);
	free(as);
}

void platform_as_put(struct platform_as *as)
{
	if (as && refs_put(&as->refs) && !pool_keep(as))
		as_destroy(as);
}

bool platform_as_dead(struct platform_as *as)
{
	return atomic_load(&as->dead);
}

void platform_as_kill(struct platform_as *as)
{
	MUTEX_GUARD(&as->lock);
	as_kill_locked(as);
}

void as_kill_nowait(struct platform_as *as)
{
	host_kill(as->pid, SIGKILL);
}

static void mark_dead_locked(struct platform_as *as)
{
	struct platform_context *ctx;

	mutex_assert_held(&as->lock);
	atomic_store(&as->dead, true);
	list_for_each (ctx, &as->contexts, node)
		as->platform->ops->wake_dead(ctx);
}

void as_note_death(struct platform_as *as)
{
	MUTEX_GUARD(&as->lock);
	mark_dead_locked(as);
}

/*
 * The evidence is the exit of every guest thread. A traced thread stays a zombie
 * until its owner reaps it, which holds back the process's own, so ask for each.
 */
void as_kill_locked(struct platform_as *as)
{
	struct pollfd pfd = { .fd = as->pidfd, .events = POLLIN };
	struct platform_context *ctx;

	mutex_assert_held(&as->lock);
	host_kill(as->pid, SIGKILL);
	if (as->platform->kind == PLATFORM_PTRACE) {
		list_for_each (ctx, &as->contexts, node)
			host_wait_exit_peek(ctx->tid);
	} else {
		while (host_poll(&pfd, 1, -1) == -EINTR)
			;
	}
	mark_dead_locked(as);
}

u64 as_cpu_ns(const struct platform_as *as)
{
	/* A process's CPU clock by number, see clock_getcpuclockid(3). */
	return host_clock_ns((clockid_t)((~(unsigned)as->pid) << 3 | 2 /* CPUCLOCK_SCHED */));
}

/* What has come of a completion so far; true with DONE. */
static bool read_done_locked(struct platform_as *as, u64 *sum)
{
	u64 v;

	if (host_eventfd_read(as->done_fd, &v) == 0)
		*sum += v;
	return *sum & (1ULL << DONE_BIT);
}

/* The caller has a CPU to itself and the mapper another one: to sleep would cost a wake-up. */
static bool spin_done_locked(struct platform_as *as, u64 *sum)
{
	struct platform_context *ctx = context_current();
	u64 began = tsc_now();

	if (!ctx || ctx->as != as || !ctx->pace.pair || ctx->bound != as->mapper_bound ||
	    atomic_load_explicit(&as->platform->active, memory_order_relaxed) > 1)
		return false;
	while (!read_done_locked(as, sum))
		if (tsc_now() - began > as->platform->spin_limits.window_tsc)
			return false;
	return true;
}

static void wake_mapper(struct platform_as *as)
{
	as->unwoken = false;
	ring_bell(as->platform, as->cmd_slot);
}

/* Waits for DONE, of which `sum` has come. Value or -ESRCH. */
static s64 wait_done_locked(struct platform_as *as, u64 sum)
{
	struct pollfd fds[2] = { { .fd = as->done_fd, .events = POLLIN },
				 { .fd = as->pidfd, .events = POLLIN } };
	u64 v, cpu = 0, tick = 0, now = 0;
	int idle = 0, ticks = 0, n;

	if (spin_done_locked(as, &sum))
		return (s64)(sum & ~(1ULL << DONE_BIT));
	if (as->unwoken)
		wake_mapper(as);
	for (;;) {
		n = host_poll(fds, 2, tick > now ? (s64)(tick - now) : MAPPER_TICK_NS);
		if (n > 0 && fds[0].revents) {
			if (read_done_locked(as, &sum))
				return (s64)(sum & ~(1ULL << DONE_BIT));
			continue;
		}
		if (n > 0 && fds[1].revents) {
			mark_dead_locked(as);
			return -ESRCH;
		}
		/* A tick goes by the clock: signals to this thread may come at any rate. */
		now = host_clock_ns(CLOCK_MONOTONIC);
		if (tick == 0 && n < 0)
			tick = now + MAPPER_TICK_NS;
		if (n < 0 && now < tick)
			continue;
		tick = now + MAPPER_TICK_NS;
		v = as_cpu_ns(as);
		idle = v > cpu + MAPPER_TICK_NS / 20 ? 0 : idle + 1;
		cpu = v;
		if (idle >= MAPPER_IDLE_TICKS || ++ticks >= MAPPER_MAX_TICKS) {
			log_warn("platform: stub %d does not answer; killed", as->pid);
			as_kill_locked(as);
			return -ESRCH;
		}
	}
}

bool as_begin_locked(struct platform_as *as, u32 kind, u32 count, bool wake)
{
	mutex_assert_held(&as->lock);
	ASSERT(!as->pending);
	if (atomic_load(&as->dead))
		return false;
	as->cmd->kind = kind;
	as->cmd->count = count;
	atomic_store_explicit(&as->cmd->seq, ++as->seq, memory_order_release);
	atomic_store(control_bell(&as->platform->control, as->cmd_slot), as->seq);
	/* Whose thread waits for a mapping has nobody who would see to it that it is woken. */
	if (!wake ||
	    (kind != CMD_KIND_RESUME && pair_ring(as->platform, as->mapper_bound, as->cmd_slot)))
		as->unwoken = true;
	else
		wake_mapper(as);
	return true;
}

static void settled_locked(struct platform_as *as, s64 value)
{
	as->pending = false;
	as->pending_sum = 0;
	if (value >= 0 && value & (1LL << DONE_ERROR_BIT))
		as->failed = true;
}

bool as_try_settle_locked(struct platform_as *as)
{
	mutex_assert_held(&as->lock);
	if (as->pending && read_done_locked(as, &as->pending_sum))
		settled_locked(as, (s64)(as->pending_sum & ~(1ULL << DONE_BIT)));
	return !as->pending;
}

void as_settle_locked(struct platform_as *as)
{
	if (as_try_settle_locked(as))
		return;
	/* Not to depend on when the guest's thread is there. */
	if (as->unwoken)
		wake_mapper(as);
	settled_locked(as, wait_done_locked(as, as->pending_sum));
}

s64 as_submit_locked(struct platform_as *as, u32 kind, u32 count)
{
	s64 value;

	if (!as_begin_locked(as, kind, count, true))
		return -ESRCH;
	value = wait_done_locked(as, 0);
	if (value >= 0 && value & (1LL << DONE_ERROR_BIT))
		return -(value & 0xfff);
	return value;
}

static bool range_ok(const struct platform_as *as, u64 addr, u64 len)
{
	const struct platform_vdso *v = &as->platform->vdso;

	return page_aligned(addr) && page_aligned(len) && len > 0 && len <= STUB_AREA &&
	       addr <= STUB_AREA - len && (addr >= v->end || addr + len <= v->start);
}

int as_encode(const struct platform_as *as, const struct platform_op *op, struct stub_op *ret)
{
	u64 flags = MAP_FIXED | MAP_SHARED | (op->populate ? MAP_POPULATE : 0);
	u64 prot = (u64)(u32)op->prot;
	u64 fd = op->writable || prot & PROT_WRITE ? STUB_FD_FILES : STUB_FD_FILES_READ;

	if (!range_ok(as, op->addr, op->len) || prot & ~(u64)(PROT_READ | PROT_WRITE | PROT_EXEC))
		return -EINVAL;
	switch (op->kind) {
	case PLATFORM_OP_MAP:
		if (!page_aligned(op->offset))
			return -EINVAL;
		*ret = (struct stub_op){ SYS_mmap,
					 { op->addr, op->len, prot, flags,
					   fd + (u64)op->file->stub_slot, op->offset },
					 0 };
		return 0;
	case PLATFORM_OP_MAP_ZERO:
		*ret = (struct stub_op){ SYS_mmap,
					 { op->addr, op->len, prot & ~(u64)PROT_WRITE,
					   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
					   (u64)-1, 0 },
					 0 };
		return 0;
	case PLATFORM_OP_UNMAP:
		*ret = (struct stub_op){ SYS_munmap, { op->addr, op->len }, 0 };
		return 0;
	case PLATFORM_OP_PROTECT:
		*ret = (struct stub_op){ SYS_mprotect, { op->addr, op->len, prot }, 0 };
		return 0;
	}
	return -EINVAL;
}

/* What a dead stub's answer is: its mappings are gone, so only new ones fail. */
static int dead_result(const struct platform_op *ops, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (ops[i].kind == PLATFORM_OP_MAP || ops[i].kind == PLATFORM_OP_MAP_ZERO)
			return -ESRCH;
	return 0;
}

/* What the calling thread's guest thread has not been told yet, the mapper does first. */
static s64 run_deferred_locked(struct platform_as *as)
{
	struct stub_deferred d[CTX_DEFERRED_MAX];
	u32 count = context_take_deferred(as, d);

	for (u32 i = 0; i < count; i++)
		as->cmd->ops[i] =
			(struct stub_op){ d[i].nr, { d[i].addr, d[i].len, d[i].prot }, 0 };
	return count ? as_submit_locked(as, CMD_KIND_BATCH, count) : 0;
}

int as_unmap_locked(struct platform_as *as, const struct stub_deferred *ranges, u32 count)
{
	as_settle_locked(as);
	for (u32 i = 0; i < count; i++)
		as->cmd->ops[i] =
			(struct stub_op){ SYS_munmap, { ranges[i].addr, ranges[i].len }, 0 };
	return (int)as_submit_locked(as, CMD_KIND_BATCH, count);
}

int as_encode_deferred(const struct platform_as *as, const struct platform_op *op,
		       struct stub_deferred *ret)
{
	struct stub_op o;

	if (as_encode(as, op, &o) < 0 || (o.nr != SYS_munmap && o.nr != SYS_mprotect) ||
	    op->addr < STUB_DEFER_START || op->addr >= STUB_DEFER_END || op->len >= STUB_DEFER_LEN)
		return -EOPNOTSUPP;
	*ret = (struct stub_deferred){ o.nr, o.args[0], o.args[1], o.args[2] };
	return 0;
}

/* Unmaps all of the guest's addresses; in two parts around a vdso that could not be moved. */
static bool is_everything(const struct platform_as *as, const struct platform_op *ops, size_t count)
{
	const struct platform_op *last = &ops[count - 1];

	return count >= 1 && count <= 2 && ops->kind == PLATFORM_OP_UNMAP &&
	       last->kind == PLATFORM_OP_UNMAP && ops->addr <= as->platform->guest_min &&
	       last->addr + last->len >= STUB_AREA;
}

int platform_as_batch(struct platform_as *as, const struct platform_op *ops, size_t count)
{
	bool everything = is_everything(as, ops, count), failed;
	u32 first;
	s64 ret;

	MUTEX_GUARD(&as->lock);
	as_settle_locked(as);
	failed = as->failed;
	as->failed = false;
	if (failed && !everything)
		return -ENOMEM;
	if (dead_result(ops, count) < 0) /* something is mapped */
		as->clean = false;
	ret = run_deferred_locked(as);
	if (everything)
		atomic_store(&as->late_count, 0); /* what waits would be unmapped at once */
	else if (ret < 0)
		return ret == -ESRCH ? dead_result(ops, count) : -ENOMEM;
	for (first = late_take_locked(as); count > 0; first = 0) {
		size_t n = MIN(count, (size_t)CMD_MAX_OPS - first);

		for (size_t i = 0; i < n; i++) {
			int err = as_encode(as, &ops[i], &as->cmd->ops[first + i]);

			if (err < 0)
				return err;
		}
		ret = as_submit_locked(as, CMD_KIND_BATCH, first + (u32)n);
		atomic_store(&as->late_count, 0);
		if (ret == -ESRCH)
			return dead_result(ops, count);
		if (ret < 0)
			return ret == -EAGAIN ? -ENOMEM : (int)ret;
		as->clean = as->clean || everything;
		ops += n;
		count -= n;
	}
	return 0;
}

void platform_as_batch_begin(struct platform_as *as, const struct platform_op *ops, size_t count)
{
	u32 first;

	MUTEX_GUARD(&as->lock);
	as_settle_locked(as);
	first = late_take_locked(as);
	atomic_store(&as->late_count, 0);
	ASSERT(first + count <= CMD_MAX_OPS);
	for (size_t i = 0; i < count; i++)
		if (as_encode(as, &ops[i], &as->cmd->ops[first + i]) < 0) {
			as->failed = true;
			return;
		}
	as->clean = false;
	as->pending = as_begin_locked(as, CMD_KIND_BATCH, first + (u32)count, true);
}

int platform_as_settle(struct platform_as *as)
{
	u32 count;

	MUTEX_GUARD(&as->lock);
	as_settle_locked(as);
	count = late_take_locked(as);
	if (count && as_submit_locked(as, CMD_KIND_BATCH, count) < 0)
		as->failed = true;
	atomic_store(&as->late_count, 0);
	return as->failed ? -ENOMEM : 0;
}

int platform_as_map(struct platform_as *as, u64 addr, u64 len, struct memfile *file, u64 offset,
		    int prot, bool populate)
{
	struct platform_op op = { PLATFORM_OP_MAP, addr, len, file, offset, prot, populate, false };

	return platform_as_batch(as, &op, 1);
}

int platform_as_map_zero(struct platform_as *as, u64 addr, u64 len, int prot)
{
	struct platform_op op = {
		.kind = PLATFORM_OP_MAP_ZERO, .addr = addr, .len = len, .prot = prot
	};

	return platform_as_batch(as, &op, 1);
}

int platform_as_unmap(struct platform_as *as, u64 addr, u64 len)
{
	const struct platform_vdso *v = &as->platform->vdso;
	struct platform_op ops[2] = { { .kind = PLATFORM_OP_UNMAP, .addr = addr, .len = len } };
	size_t n = 1;

	/* "Everything" does not mean the vdso, where the host did not let us move it. */
	if (len <= STUB_AREA && addr < v->start && addr + len > v->end) {
		ops[0].len = v->start - addr;
		ops[1] = (struct platform_op){ .kind = PLATFORM_OP_UNMAP,
					       .addr = v->end,
					       .len = addr + len - v->end };
		n = 2;
	}
	return platform_as_batch(as, ops, n);
}

int platform_as_protect(struct platform_as *as, u64 addr, u64 len, int prot)
{
	struct platform_op op = {
		.kind = PLATFORM_OP_PROTECT, .addr = addr, .len = len, .prot = prot
	};

	return platform_as_batch(as, &op, 1);
}
