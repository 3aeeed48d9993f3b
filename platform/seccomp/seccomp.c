/*
 * The seccomp platform ("trap"): what a guest thread may not do raises SIGSYS
 * (or the fault's own signal) in it; the stub's handler, on the thread's
 * alternate stack in its slot, hands over to the sentry and waits. The kernel's
 * signal frame in the slot holds the guest's registers and extended state; the
 * sentry reads them there, writes the new ones there, and the handler returns
 * through the frame.
 *
 * The whole slot is writable by the guest's threads. So: offsets come from the
 * stub but are checked against the slot each time; what is used is copied first;
 * pointers are never followed. A guest that corrupts its own frames gets
 * registers of its own making, which it could have had anyway.
 *
 * Turns. ctx->word says whose turn it is and who sleeps. Both sides spin for a
 * short time first where that pays: two cores, no more runnable guest threads
 * than half of them, and the other side last seen on another core. A side that
 * had to wake the other does not spin.
 */
#include "base/host_proc.h"
#include "base/host_spawn.h"
#include "base/host_sync.h"
#include "base/log.h"
#include "platform/internal.h"
#include <linux/audit.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define TRAP_PAGE_FAULT 14
#define PF_WRITE 2
#define PF_EXEC 16
#define UC_FLAGS 7 /* UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS, asm/ucontext.h */
#define CSGSFS (0x33ULL | 0x2bULL << 48)
#define FRAME_SIZE (UC_SIGINFO + sizeof(siginfo_t))

#define WAIT_TICK_NS (NSEC_PER_SEC / 2)
/* A thread that ignores interrupts this long is hostile: it has blocked the signal by a forged
 * frame. Sooner when its process has had time to take it. */
#define INTERRUPT_TICKS 20
#define INTERRUPT_BUSY_TICKS 4
#define INTERRUPT_BUSY_NS 200000000ULL
#define SPIN_NS 20000
#define STUB_SPIN_ROUNDS 400
#define SPIN_MAX_PENALTY 256

/* ---- frames ---- */

static ucontext_t *frame(struct platform_context *ctx)
{
	return (ucontext_t *)(ctx->mem + ctx->uc);
}

/*
 * The offset that the stub reports, if a frame can be there: within the pages
 * at the slot's end that are committed, where the kernel's frame always is
 * unless the guest moves its stack pointer into its slot.
 */
static bool frame_check(struct platform_context *ctx)
{
	u32 uc = *(volatile u32 *)&ctx->shared->uc;

	if (uc < STUB_SLOT_SIZE - ctx->platform->control.frame_size ||
	    uc > STUB_SLOT_SIZE - FRAME_SIZE || uc % 8 != 0)
		return false;
	ctx->uc = uc;
	return true;
}

/* Offset in the slot of the frame's extended state; 0 when the frame is not as the kernel makes
 * them. */
static u32 xstate_offset(struct platform_context *ctx)
{
	const struct xstate_format *format = &ctx->platform->xstate;
	u64 addr = *(volatile u64 *)&frame(ctx)->uc_mcontext.fpregs;
	u64 offset = addr - ctx->stub_addr;

	if (offset < STUB_SLOT_SIZE - ctx->platform->control.frame_size ||
	    offset > STUB_SLOT_SIZE - format->extended_size || offset % 64 != 0)
		return 0;
	return (u32)offset;
}

/* Shared memory -> private, once: the compiler may not read the source again. */
static void fetch(void *dst, const void *src, size_t size)
{
	memcpy(dst, src, size);
	__asm__ volatile("" : : "r"(dst) : "memory");
}

static void xstate_store(struct platform_context *ctx, u32 offset, const void *area)
{
	const struct xstate_format *format = &ctx->platform->xstate;
	u32 magic2 = FP_XSTATE_MAGIC2;
	u8 *p = ctx->mem + offset;

	memcpy(p, area, format->size);
	memcpy(p + 512 - sizeof(format->sw_bytes), format->sw_bytes, sizeof(format->sw_bytes));
	memcpy(p + format->size, &magic2, sizeof(magic2));
}

/* The first frame, as if the thread had been interrupted before its first instruction. */
static int seccomp_context_start(struct platform_context *ctx)
{
	const struct xstate_format *format = &ctx->platform->xstate;
	u32 fp = (STUB_SLOT_SIZE - format->extended_size) & ~63U;
	u32 uc = (fp - (u32)FRAME_SIZE) & ~15U;
	ucontext_t *f;

	platform_init_xstate(ctx->xbuf, format->size);
	ctx->uc = uc;
	f = frame(ctx);
	memset(f, 0, UC_SIGINFO);
	f->uc_flags = UC_FLAGS;
	f->uc_stack.ss_sp = (void *)(ctx->stub_addr + PAGE_SIZE);
	f->uc_stack.ss_size = STUB_SLOT_SIZE - PAGE_SIZE;
	*(u64 *)&f->uc_mcontext.fpregs = ctx->stub_addr + fp;
	xstate_store(ctx, fp, ctx->xbuf);
	return 0;
}

static int seccomp_get_xstate(struct platform_context *ctx, void *buf, size_t size)
{
	u32 offset = xstate_offset(ctx);

	if (offset == 0) {
		platform_init_xstate(buf, size);
		return 0;
	}
	fetch(buf, ctx->mem + offset, size);
	xstate_sanitise(&ctx->platform->xstate, buf, size);
	return 0;
}

static int seccomp_set_xstate(struct platform_context *ctx, const void *buf, size_t size)
{
	const struct xstate_format *format = &ctx->platform->xstate;
	u32 offset = xstate_offset(ctx);

	if (offset == 0)
		return -ESRCH;
	memset(ctx->xbuf, 0, format->size);
	memcpy(ctx->xbuf, buf, size);
	xstate_sanitise(format, ctx->xbuf, format->size);
	xstate_store(ctx, offset, ctx->xbuf);
	return 0;
}

/* ---- registers ---- */

static void regs_to_frame(struct platform_context *ctx, const struct user_regs_struct *r)
{
	ucontext_t *f = frame(ctx);
	greg_t *g = f->uc_mcontext.gregs;

	g[REG_R8] = (greg_t)r->r8;
	g[REG_R9] = (greg_t)r->r9;
	g[REG_R10] = (greg_t)r->r10;
	g[REG_R11] = (greg_t)r->r11;
	g[REG_R12] = (greg_t)r->r12;
	g[REG_R13] = (greg_t)r->r13;
	g[REG_R14] = (greg_t)r->r14;
	g[REG_R15] = (greg_t)r->r15;
	g[REG_RDI] = (greg_t)r->rdi;
	g[REG_RSI] = (greg_t)r->rsi;
	g[REG_RBP] = (greg_t)r->rbp;
	g[REG_RBX] = (greg_t)r->rbx;
	g[REG_RDX] = (greg_t)r->rdx;
	g[REG_RAX] = (greg_t)r->rax;
	g[REG_RCX] = (greg_t)r->rcx;
	g[REG_RSP] = (greg_t)r->rsp;
	g[REG_RIP] = (greg_t)r->rip;
	g[REG_EFL] = (greg_t)r->eflags;
	g[REG_CSGSFS] = (greg_t)CSGSFS;
	f->uc_flags = UC_FLAGS;
	memcpy(&f->uc_sigmask,
	       &((struct stub_config *)control_slot(&ctx->platform->control, 0))->sigmask,
	       sizeof(u64));
	ctx->shared->fs = r->fs_base;
	ctx->shared->gs = r->gs_base;
	ctx->shared->uc = ctx->uc;
}

static void regs_from_frame(struct platform_context *ctx, const greg_t *g,
			    struct user_regs_struct *r)
{
	r->r8 = (u64)g[REG_R8];
	r->r9 = (u64)g[REG_R9];
	r->r10 = (u64)g[REG_R10];
	r->r11 = (u64)g[REG_R11];
	r->r12 = (u64)g[REG_R12];
	r->r13 = (u64)g[REG_R13];
	r->r14 = (u64)g[REG_R14];
	r->r15 = (u64)g[REG_R15];
	r->rdi = (u64)g[REG_RDI];
	r->rsi = (u64)g[REG_RSI];
	r->rbp = (u64)g[REG_RBP];
	r->rbx = (u64)g[REG_RBX];
	r->rdx = (u64)g[REG_RDX];
	r->rax = (u64)g[REG_RAX];
	r->rcx = (u64)g[REG_RCX];
	r->rsp = (u64)g[REG_RSP];
	r->rip = (u64)g[REG_RIP];
	r->eflags = (u64)g[REG_EFL];
	r->fs_base = *(volatile u64 *)&ctx->shared->fs;
	r->gs_base = *(volatile u64 *)&ctx->shared->gs;
}

/* Why it stopped. The frame's content is the guest's word about itself, no more. */
static void read_stop(struct platform_context *ctx, struct user_regs_struct *regs,
		      struct platform_stop *stop)
{
	greg_t g[NGREG];
	siginfo_t info;

	if (!frame_check(ctx)) {
		log_warn("platform: stub %d: impossible signal frame; killed", ctx->as->pid);
		as_kill_nowait(ctx->as);
		stop->reason = PLATFORM_STOP_DEAD;
		return;
	}
	fetch(g, frame(ctx)->uc_mcontext.gregs, sizeof(g));
	fetch(&info, ctx->mem + ctx->uc + UC_SIGINFO, sizeof(info));
	regs_from_frame(ctx, g, regs);
	switch (info.si_signo) {
	case SIGSYS:
		stop->reason = PLATFORM_STOP_SYSCALL;
		stop->syscall_is_compat = info.si_arch != AUDIT_ARCH_X86_64;
		regs->orig_rax = (u64)(u32)info.si_syscall;
		regs->rax = (u64)-ENOSYS;
		return;
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGTRAP: break;
	default: stop->reason = PLATFORM_STOP_INTERRUPTED; return;
	}
	if (info.si_code <= 0) { /* sent by a process of the host */
		stop->reason = PLATFORM_STOP_INTERRUPTED;
		return;
	}
	stop->signo = info.si_signo;
	stop->si_code = info.si_code;
	stop->fault_addr = (u64)info.si_addr;
	stop->trapno = (u64)g[REG_TRAPNO];
	stop->error_code = (u64)g[REG_ERR];
	stop->cr2 = (u64)g[REG_CR2];
	if (stop->trapno == TRAP_PAGE_FAULT) {
		stop->reason = PLATFORM_STOP_FAULT;
		stop->access_write = stop->error_code & PF_WRITE;
		stop->access_exec = stop->error_code & PF_EXEC;
	} else {
		stop->reason = PLATFORM_STOP_EXCEPTION;
	}
}

/* ---- turns ---- */

static bool may_spin(struct platform_context *ctx)
{
	struct platform *p = ctx->platform;

	if (!p->spin || (atomic_load_explicit(&p->running, memory_order_relaxed) + 1) * 2 > p->cpus)
		return false;
	if (ctx->spin_credit < 0) {
		ctx->spin_credit++;
		return false;
	}
	return ((*(volatile u32 *)&ctx->shared->cpu) & 0xfff) != (u32)host_current_cpu();
}

/* True when the stub has handed over meanwhile. */
static bool spin(struct platform_context *ctx)
{
	u64 end = host_clock_ns(CLOCK_MONOTONIC) + SPIN_NS;

	do {
		for (int i = 0; i < 16; i++) {
			if ((atomic_load_explicit(&ctx->shared->word, memory_order_acquire) &
			     TURN_MASK) != TURN_STUB) {
				ctx->spin_penalty = 4;
				return true;
			}
			__builtin_ia32_pause();
		}
	} while (host_clock_ns(CLOCK_MONOTONIC) < end);
	/* The guest computes: no more spinning for a while. */
	ctx->spin_credit = -ctx->spin_penalty;
	ctx->spin_penalty = MIN(MAX(ctx->spin_penalty, 2) * 2, SPIN_MAX_PENALTY);
	return false;
}

struct patience {
	int ticks;  /* that an interrupt has been ignored */
	u64 cpu_ns; /* the process's CPU time when it began */
};

/* One tick without news. False: the stub is gone, or as good as. */
static bool still_there(struct platform_context *ctx, struct patience *patience)
{
	struct platform_as *as = ctx->as;
	u64 cpu;

	if (atomic_load(&as->dead) || host_tgkill(as->pid, ctx->tid, 0) == -ESRCH)
		return false;
	if (!atomic_load(&ctx->interrupted)) {
		patience->ticks = 0;
		return true;
	}
	host_tgkill(as->pid, ctx->tid, STUB_INTERRUPT_SIGNAL);
	cpu = as_cpu_ns(as);
	if (patience->ticks++ == 0)
		patience->cpu_ns = cpu;
	if (patience->ticks < INTERRUPT_TICKS &&
	    (patience->ticks < INTERRUPT_BUSY_TICKS || cpu - patience->cpu_ns < INTERRUPT_BUSY_NS))
		return true;
	log_warn("platform: a thread of stub %d ignores interrupts; killed", as->pid);
	return false;
}

/* Sleeps until it is the sentry's turn. False: the stub is gone. */
static bool wait_turn(struct platform_context *ctx)
{
	_Atomic u32 *word = &ctx->shared->word;
	struct patience patience = { 0, 0 };
	u64 now = host_clock_ns(CLOCK_MONOTONIC), tick = now + WAIT_TICK_NS;
	u32 w;

	for (;;) {
		w = atomic_load_explicit(word, memory_order_acquire);
		if ((w & TURN_MASK) == TURN_SENTRY)
			return true;
		if ((w & TURN_MASK) != TURN_STUB || atomic_load(&ctx->as->dead))
			return false;
		if (w == TURN_STUB &&
		    !atomic_compare_exchange_strong(word, &w, TURN_STUB | TURN_SENTRY_SLEEPS))
			continue;
		/* Other guest threads may wake us as often as they like: ticks go by the clock. */
		if (now >= tick) {
			if (!still_there(ctx, &patience))
				return false;
			tick = now + WAIT_TICK_NS;
		}
		host_futex_wait(word, TURN_STUB | TURN_SENTRY_SLEEPS, (s64)(tick - now), false);
		now = host_clock_ns(CLOCK_MONOTONIC);
	}
}

/* Gives the stub its turn and waits for ours. False: the stub is gone. */
static bool take_turns(struct platform_context *ctx)
{
	struct platform *p = ctx->platform;
	bool spinning = may_spin(ctx), there;
	u32 old;

	atomic_fetch_add_explicit(&p->running, 1, memory_order_relaxed);
	ctx->shared->spin = spinning && ctx->handle_ns < SPIN_NS ? STUB_SPIN_ROUNDS : 0;
	old = atomic_exchange(&ctx->shared->word, TURN_STUB);
	if (old & TURN_STUB_SLEEPS)
		host_futex_wake(&ctx->shared->word, 1, false);
	/* Death between the last stop and now: its word would be lost. */
	if (atomic_load(&ctx->as->dead))
		there = false;
	else if (spinning && spin(ctx))
		there = (atomic_load(&ctx->shared->word) & TURN_MASK) == TURN_SENTRY;
	else
		there = wait_turn(ctx);
	atomic_fetch_sub_explicit(&p->running, 1, memory_order_relaxed);
	return there;
}

static void seccomp_run(struct platform_context *ctx, struct user_regs_struct *regs,
			struct platform_stop *stop)
{
	u64 now = host_clock_ns(CLOCK_MONOTONIC);
	bool there;

	if (ctx->last_stop_ns)
		ctx->handle_ns = (ctx->handle_ns * 3 + MIN(now - ctx->last_stop_ns, 1000000)) / 4;
	regs_to_frame(ctx, regs);
	do
		there = take_turns(ctx);
	while (there && !context_settle_deferred(ctx));
	if (!there) {
		as_kill_nowait(ctx->as);
		stop->reason = PLATFORM_STOP_DEAD;
		return;
	}
	ctx->last_stop_ns = host_clock_ns(CLOCK_MONOTONIC);
	read_stop(ctx, regs, stop);
}

static void seccomp_context_stop(struct platform_context *ctx)
{
	u32 old = atomic_exchange(&ctx->shared->word, TURN_EXIT);

	if (old & TURN_STUB_SLEEPS)
		host_futex_wake(&ctx->shared->word, 1, false);
}

static void seccomp_wake_dead(struct platform_context *ctx)
{
	atomic_store(&ctx->shared->word, TURN_GONE);
	host_futex_wake(&ctx->shared->word, 1, false);
}

const struct platform_ops *seccomp_ops(void)
{
	static const struct platform_ops ops = {
		.context_start = seccomp_context_start,
		.context_stop = seccomp_context_stop,
		.run = seccomp_run,
		.get_xstate = seccomp_get_xstate,
		.set_xstate = seccomp_set_xstate,
		.wake_dead = seccomp_wake_dead,
	};

	return &ops;
}
