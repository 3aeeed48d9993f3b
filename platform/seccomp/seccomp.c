/*
 * The seccomp platform ("trap"): what a guest thread may not do raises SIGSYS
 * (or the fault's own signal) in it; the stub's handler, on the thread's
 * alternate stack in its slot, hands over to the sentry and waits. A patched
 * system call (patch.h) hands over without a signal: its registers are in the
 * context page, its extended state stays in the thread. Where that has to go to
 * guest memory or comes from there (signals), the thread moves it itself.
 *
 * GS. Trampolines find the context page by it, so while guest code runs GS is
 * the slot's address, unless the guest uses GS itself: then the address space
 * is no longer patched, and the guest has its own.
 */
#include "platform/seccomp/seccomp.h"
#include "base/host_proc.h"
#include "base/host_sync.h"
#include "base/log.h"
#include "platform/patch.h"
#include <linux/audit.h>
#include <string.h>

#define TRAP_PAGE_FAULT 14
#define PF_WRITE 2
#define PF_EXEC 16
#define EFLAGS_AFTER_CALL 0x246 /* IF ZF PF, as good as any */
#define EFLAGS_TF 0x100
#define EFLAGS_STATUS 0x8d5 /* OF SF ZF AF PF CF */
/* Requests to save the extended state that other stops may interrupt. */
#define SAVE_ATTEMPTS 64

/* Also makes the context page ready for the thread's first turn. */
static int seccomp_context_start(struct platform_context *ctx)
{
	u32 index = MIN(ctx->local_slot, (u32)INFO_MAX);
	u8 *initial =
		(u8 *)ctx->xbuf + PLATFORM_XSTATE_MAX; /* frame_set_xstate uses the other half */

	platform_init_xstate(initial, ctx->platform->xstate.size);
	ctx->in_call = ctx->saved = false;
	ctx->raw_rip = ctx->fp_save = ctx->fp_load = 0;
	ctx->shared->self = ctx->stub_addr;
	ctx->shared->bell = stub_bell(ctx->slot);
	ctx->shared->pending = ctx->shared->deferred = ctx->shared->spin = 0;
	platform_context_set_ids(ctx, &(struct platform_ids){ 0 });
	ctx->shared->info = STUB_CMD + CMD_INFO + index * INFO_SIZE;
	frame_home(ctx);
	return frame_set_xstate(ctx, initial, ctx->platform->xstate.size);
}

/* ---- what a stop means ---- */

static void stop_dead(struct platform_context *ctx, struct platform_stop *stop, const char *why)
{
	if (why)
		log_warn("platform: stub %d: %s; killed", ctx->as->pid, why);
	as_kill_nowait(ctx->as);
	stop->reason = PLATFORM_STOP_DEAD;
}

/*
 * The registers of the call that the context page holds: number and arguments.
 * The rest is on another cache line, which costs as much again to get from the
 * stub's CPU and is seldom needed: complete_call().
 */
static void read_call(struct platform_context *ctx, struct user_regs_struct *r,
		      struct platform_stop *stop)
{
	const struct stub_ctx *c = ctx->shared;

	r->orig_rax = *(volatile u64 *)&c->rax;
	r->rdi = *(volatile u64 *)&c->rdi;
	r->rsi = *(volatile u64 *)&c->rsi;
	r->rdx = *(volatile u64 *)&c->rdx;
	r->r10 = *(volatile u64 *)&c->r10;
	r->r8 = *(volatile u64 *)&c->r8;
	r->r9 = *(volatile u64 *)&c->r9;
	r->rax = (u64)-ENOSYS;
	r->eflags = EFLAGS_AFTER_CALL;
	stop->reason = PLATFORM_STOP_SYSCALL;
}

static void complete_call(struct platform_context *ctx, struct user_regs_struct *r)
{
	const struct stub_ctx *c = ctx->shared;

	r->rip = patch_show(ctx->platform->patcher, *(volatile u64 *)&c->rip);
	r->rsp = *(volatile u64 *)&c->rsp;
	r->rbx = *(volatile u64 *)&c->rbx;
	r->rbp = *(volatile u64 *)&c->rbp;
	r->r12 = *(volatile u64 *)&c->r12;
	r->r13 = *(volatile u64 *)&c->r13;
	r->r14 = *(volatile u64 *)&c->r14;
	r->r15 = *(volatile u64 *)&c->r15;
	r->rcx = r->rip;
	r->r11 = EFLAGS_AFTER_CALL;
}

static void regs_from_frame(struct platform_context *ctx, const struct frame_stop *f,
			    struct user_regs_struct *r)
{
	const greg_t *g = f->g;

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
	r->fs_base = f->fs;
	/* The slot's address stands for what the guest believes to have. */
	if (f->gs != ctx->stub_addr || !ctx->platform->patch)
		r->gs_base = f->gs;
}

static void read_signal(const struct frame_stop *f, struct user_regs_struct *regs,
			struct platform_stop *stop)
{
	const siginfo_t *info = &f->info;

	switch (info->si_signo) {
	case SIGSYS:
		stop->reason = PLATFORM_STOP_SYSCALL;
		stop->syscall_is_compat = info->si_arch != AUDIT_ARCH_X86_64;
		stop->trapped = true;
		regs->orig_rax = (u64)(u32)info->si_syscall;
		regs->rax = (u64)-ENOSYS;
		return;
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGTRAP: break;
	default: stop->reason = PLATFORM_STOP_INTERRUPTED; return;
	}
	if (info->si_code <= 0) { /* sent by a process of the host */
		stop->reason = PLATFORM_STOP_INTERRUPTED;
		return;
	}
	stop->signo = info->si_signo;
	stop->si_code = info->si_code;
	stop->fault_addr = (u64)info->si_addr;
	stop->trapno = (u64)f->g[REG_TRAPNO];
	stop->error_code = (u64)f->g[REG_ERR];
	stop->cr2 = (u64)f->g[REG_CR2];
	if (stop->trapno == TRAP_PAGE_FAULT) {
		stop->reason = PLATFORM_STOP_FAULT;
		stop->access_write = stop->error_code & PF_WRITE;
		stop->access_exec = stop->error_code & PF_EXEC;
	} else {
		stop->reason = PLATFORM_STOP_EXCEPTION;
	}
}

/* A stop within the code of a patched call, before it has handed over or after it was answered. */
static void stop_in_call_code(struct platform_context *ctx, struct user_regs_struct *regs,
			      struct platform_stop *stop)
{
	const struct stub_header *stub = &ctx->platform->stub;
	u64 behind = *(volatile u64 *)&ctx->shared->rip;

	if (regs->rip == stub->call_entry)
		behind = regs->rcx; /* not stored yet */
	behind = patch_show(ctx->platform->patcher, behind);
	if (regs->rip == stub->call_answered || regs->rip == stub->call_vdso_answered) {
		regs->rip = behind;
		return;
	}
	/* As if the call had not begun. What it touched is no business of the guest's. */
	regs->rip = behind - 2;
	if (stop->reason != PLATFORM_STOP_EXCEPTION)
		stop->reason = PLATFORM_STOP_INTERRUPTED;
}

/* Stops in code that the guest does not know of look as if they were beside it. */
static void hide_own_code(struct platform_context *ctx, struct user_regs_struct *regs,
			  struct platform_stop *stop)
{
	const struct stub_header *stub = &ctx->platform->stub;
	u64 shown;

	ctx->raw_rip = 0;
	if (!ctx->platform->patch)
		return;
	if (regs->rsp - ctx->stub_addr <= PAGE_SIZE) {
		/* In the vDSO, called from call_vdso: the sentry makes the call. */
		stop->trapped = stop->syscall_is_compat = false;
		read_call(ctx, regs, stop);
		complete_call(ctx, regs);
		return;
	}
	if (regs->rip >= stub->call_entry && regs->rip < stub->call_code_end) {
		stop_in_call_code(ctx, regs, stop);
		return;
	}
	shown = patch_show(ctx->platform->patcher, regs->rip);
	if (shown == regs->rip)
		return;
	ctx->raw_rip = regs->rip;
	ctx->shown_rip = regs->rip = shown;
}

/* RESUME_FP may have been interrupted half-way. */
static void note_fp_saved(struct platform_context *ctx, u32 resumed)
{
	if ((resumed & RESUME_FP) && !*(volatile u64 *)&ctx->shared->fp_save)
		ctx->fp_save = 0;
}

/*
 * The thread was on its way to guest code, with registers as the sentry left them, and could not
 * reach the memory where its extended state is to go or to come from. What it has of that state is
 * in the signal's frame now.
 */
static bool failed_to_move_fp(const struct platform_context *ctx, u32 resumed,
			      const struct frame_stop *f)
{
	const struct stub_header *stub = &ctx->platform->stub;
	u64 rip = (u64)f->g[REG_RIP];

	return (resumed & RESUME_FP) && rip >= stub->call_fp && rip < stub->call_fp_end;
}

/* Why it stopped. What the stub says is the guest's word about itself, no more. */
static void read_stop(struct platform_context *ctx, u32 resumed, struct user_regs_struct *regs,
		      struct platform_stop *stop)
{
	struct frame_stop f;

	switch (*(volatile u32 *)&ctx->shared->kind) {
	case STOP_CALL:
		if (!ctx->platform->patch)
			break;
		ctx->fp_save = ctx->fp_load = 0;
		ctx->in_call = true;
		ctx->saved = false;
		ctx->uc = ctx->home_uc;
		read_call(ctx, regs, stop);
		ctx->complete = ctx->load = false;
		ctx->call_fs = regs->fs_base;
		ctx->call_gs = regs->gs_base;
		return;
	case STOP_INTERRUPT:
		/* As the sentry left it. */
		note_fp_saved(ctx, resumed);
		ctx->in_call = resumed != RESUME_FRAME;
		stop->reason = PLATFORM_STOP_INTERRUPTED;
		return;
	case STOP_FRAME:
		ctx->in_call = false;
		if (!frame_fetch(ctx, &f))
			break;
		note_fp_saved(ctx, resumed);
		if (failed_to_move_fp(ctx, resumed, &f)) {
			read_signal(&f, regs, stop);
			stop->fault = stop->reason == PLATFORM_STOP_FAULT;
			stop->reason = PLATFORM_STOP_XSTATE;
			return;
		}
		ctx->fp_save = ctx->fp_load = 0;
		regs_from_frame(ctx, &f, regs);
		read_signal(&f, regs, stop);
		hide_own_code(ctx, regs, stop);
		return;
	}
	stop_dead(ctx, stop, "impossible signal frame");
}

/* ---- running ---- */

/*
 * Has the call changed no more than its result? The context page says what the
 * registers were; a guest that changes it meanwhile gets what it asks for.
 */
static bool only_result(const struct platform_context *ctx, const struct user_regs_struct *r)
{
	const struct stub_ctx *c = ctx->shared;

	if (r->rdi != c->rdi || r->rsi != c->rsi || r->rdx != c->rdx || r->r10 != c->r10 ||
	    r->r8 != c->r8 || r->r9 != c->r9 || (r->eflags ^ EFLAGS_AFTER_CALL) & ~EFLAGS_STATUS ||
	    r->fs_base != ctx->call_fs || r->gs_base != ctx->call_gs)
		return false;
	/* Who has not asked for the rest has not changed it. */
	return !ctx->complete ||
	       (r->rip == patch_show(ctx->platform->patcher, c->rip) && r->rsp == c->rsp &&
		r->rbx == c->rbx && r->rbp == c->rbp && r->r12 == c->r12 && r->r13 == c->r13 &&
		r->r14 == c->r14 && r->r15 == c->r15);
}

static void seccomp_complete(struct platform_context *ctx, struct user_regs_struct *regs)
{
	if (!ctx->in_call || ctx->complete)
		return;
	ctx->complete = true;
	complete_call(ctx, regs);
}

/* Has the stub save the extended state of a call in the home frame. False: the stub is gone. */
static bool save_xstate(struct platform_context *ctx)
{
	if (!ctx->in_call || ctx->saved)
		return true;
	frame_home(ctx);
	/* The header of the area decides what a restore loads; XSAVE leaves much of it alone. */
	memset(ctx->mem + ctx->home_fp + 512, 0, 64);
	for (int i = 0; i < SAVE_ATTEMPTS; i++) {
		ctx->shared->xstate = ctx->home_fp;
		if (!turn_run(ctx, RESUME_SAVE))
			return false;
		switch (*(volatile u32 *)&ctx->shared->kind) {
		case STOP_SAVED:
			frame_home(ctx);
			ctx->saved = true;
			return true;
		case STOP_INTERRUPT: atomic_store(&ctx->interrupted, true); break;
		default: return false;
		}
	}
	return false;
}

static int seccomp_get_xstate(struct platform_context *ctx, void *buf, size_t size)
{
	if (!save_xstate(ctx))
		return -ESRCH;
	frame_get_xstate(ctx, buf, size);
	return 0;
}

static int seccomp_set_xstate(struct platform_context *ctx, const void *buf, size_t size)
{
	if (ctx->in_call)
		frame_home(ctx);
	ctx->saved = true;
	return frame_set_xstate(ctx, buf, size);
}

static bool seccomp_move_xstate(struct platform_context *ctx, u64 save, u64 load)
{
	/* The state is not in the thread but in a frame or, saved, in the home frame. */
	if (!ctx->in_call || (save && ctx->saved))
		return false;
	ctx->saved = false;
	ctx->fp_save = save;
	ctx->fp_load = load;
	return true;
}

/* Through the frame: everything is loaded. False: the stub is gone. */
static bool prepare_frame(struct platform_context *ctx, struct user_regs_struct *regs)
{
	struct user_regs_struct r;

	seccomp_complete(ctx, regs);
	if (!save_xstate(ctx))
		return false;
	r = *regs;
	ctx->in_call = false;
	if (ctx->raw_rip && r.rip == ctx->shown_rip && !platform_as_own_gs(ctx->as))
		r.rip = ctx->raw_rip;
	ctx->raw_rip = 0;
	if (ctx->platform->patch && !r.gs_base && !platform_as_own_gs(ctx->as))
		r.gs_base = ctx->stub_addr;
	frame_store(ctx, &r);
	return true;
}

/* Through the context page: everything but a changed GS and the trap flag. */
static u32 prepare_regs(struct platform_context *ctx, struct user_regs_struct *regs)
{
	struct stub_ctx *c = ctx->shared;

	seccomp_complete(ctx, regs);
	ctx->load = true;
	c->rax = regs->rax;
	c->rdi = regs->rdi;
	c->rsi = regs->rsi;
	c->rdx = regs->rdx;
	c->r10 = regs->r10;
	c->r8 = regs->r8;
	c->r9 = regs->r9;
	c->rip = regs->rip;
	c->rsp = regs->rsp;
	c->rbx = regs->rbx;
	c->rbp = regs->rbp;
	c->r12 = regs->r12;
	c->r13 = regs->r13;
	c->r14 = regs->r14;
	c->r15 = regs->r15;
	c->rcx = regs->rcx;
	c->r11 = regs->r11;
	c->eflags = regs->eflags;
	c->fs = regs->fs_base;
	c->xstate = ctx->home_fp;
	c->fp_save = ctx->fp_save;
	c->fp_load = ctx->fp_load;
	if (ctx->fp_load)
		return RESUME_REGS | RESUME_FP;
	return RESUME_REGS | (ctx->saved ? RESUME_XSTATE : 0);
}

/* How the stub shall go on. False: it cannot, and *stop says why. */
static bool prepare(struct platform_context *ctx, struct user_regs_struct *regs,
		    struct platform_stop *stop, u32 *ret_resume)
{
	if (ctx->in_call && !ctx->load && !ctx->saved && !ctx->fp_load && only_result(ctx, regs)) {
		ctx->shared->rax = regs->rax;
		*ret_resume = RESUME_CALL;
		return true;
	}
	if (ctx->in_call && regs->gs_base == ctx->call_gs && !(regs->eflags & EFLAGS_TF)) {
		*ret_resume = prepare_regs(ctx, regs);
		return true;
	}
	if (ctx->fp_load) {
		stop->reason = PLATFORM_STOP_XSTATE;
		clock_stop_after(&ctx->clock, 0);
		return false;
	}
	*ret_resume = RESUME_FRAME;
	if (prepare_frame(ctx, regs))
		return true;
	stop_dead(ctx, stop, NULL);
	return false;
}

static void seccomp_run(struct platform_context *ctx, struct user_regs_struct *regs,
			struct platform_stop *stop)
{
	u32 resume;

	if (!prepare(ctx, regs, stop, &resume))
		return;
	if (!turn_run(ctx, resume)) {
		stop_dead(ctx, stop, NULL);
		return;
	}
	if (context_settle_deferred(ctx)) {
		read_stop(ctx, resume, regs, stop);
		return;
	}
	/* The guest has not gone on yet. */
	ctx->in_call = resume != RESUME_FRAME;
	stop->reason = PLATFORM_STOP_INTERRUPTED;
}

static void seccomp_context_stop(struct platform_context *ctx)
{
	u32 old = atomic_exchange(&ctx->shared->word, TURN_EXIT);

	ring_if_asked(ctx->platform, old);
	if (!(old & TURN_STUB_SLEEPS))
		return;
	atomic_fetch_add(control_bell(&ctx->platform->control, ctx->slot), 1);
	ring_bell(ctx->platform, ctx->slot);
}

static void seccomp_wake_dead(struct platform_context *ctx)
{
	ring_if_asked(ctx->platform, atomic_exchange(&ctx->shared->word, TURN_GONE));
	host_futex_wake(&ctx->shared->word, 1, false);
}

const struct platform_ops *seccomp_ops(void)
{
	static const struct platform_ops ops = {
		.context_start = seccomp_context_start,
		.context_stop = seccomp_context_stop,
		.run = seccomp_run,
		.complete = seccomp_complete,
		.get_xstate = seccomp_get_xstate,
		.set_xstate = seccomp_set_xstate,
		.move_xstate = seccomp_move_xstate,
		.wake_dead = seccomp_wake_dead,
	};

	return &ops;
}
