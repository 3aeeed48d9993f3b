/*
 * Signal frames. The kernel's frame in a thread's slot holds the guest's
 * registers and extended state; the sentry reads them there, writes new ones
 * there, and the stub returns through the frame. After a patched call there is
 * no frame; the home frame is made by the sentry when one is needed. It lies
 * behind the alternate stack: while a thread waits in a patched call, a signal
 * may put a frame of the kernel's there.
 *
 * The whole slot is writable by the guest's threads. So: offsets come from the
 * stub but are checked against the slot each time; what is used is copied first;
 * pointers are never followed. A guest that corrupts its own frames gets
 * registers of its own making, which it could have had anyway.
 */
#include "platform/seccomp/seccomp.h"
#include <string.h>

#define UC_FLAGS 7 /* UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS, asm/ucontext.h */
#define CSGSFS (0x33ULL | 0x2bULL << 48)
#define FRAME_SIZE (UC_SIGINFO + sizeof(siginfo_t))

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

	if (uc < STUB_SLOT_SIZE - 2 * ctx->platform->control.frame_size ||
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

	if (offset < STUB_SLOT_SIZE - 2 * ctx->platform->control.frame_size ||
	    offset > STUB_SLOT_SIZE - format->extended_size || offset % 64 != 0)
		return 0;
	return (u32)offset;
}

/* What the kernel wants to see around an XSAVE area in a frame. */
static void xstate_frame_it(struct platform_context *ctx, u32 offset)
{
	const struct xstate_format *format = &ctx->platform->xstate;
	u32 magic2 = FP_XSTATE_MAGIC2;
	u8 *p = ctx->mem + offset;

	memcpy(p + 512 - sizeof(format->sw_bytes), format->sw_bytes, sizeof(format->sw_bytes));
	memcpy(p + format->size, &magic2, sizeof(magic2));
}

void frame_home(struct platform_context *ctx)
{
	const struct xstate_format *format = &ctx->platform->xstate;
	ucontext_t *f;

	ctx->home_fp = (STUB_SLOT_SIZE - format->extended_size) & ~63U;
	ctx->home_uc = (ctx->home_fp - (u32)FRAME_SIZE) & ~15U;
	ctx->uc = ctx->home_uc;
	f = frame(ctx);
	memset(f, 0, UC_SIGINFO);
	f->uc_flags = UC_FLAGS;
	f->uc_stack.ss_sp = (void *)(ctx->stub_addr + PAGE_SIZE);
	f->uc_stack.ss_size = STUB_SLOT_SIZE - PAGE_SIZE - ctx->platform->control.frame_size;
	*(u64 *)&f->uc_mcontext.fpregs = ctx->stub_addr + ctx->home_fp;
	xstate_frame_it(ctx, ctx->home_fp);
}

void frame_get_xstate(struct platform_context *ctx, void *buf, size_t size)
{
	u32 offset = xstate_offset(ctx);

	if (offset == 0) {
		platform_init_xstate(buf, size);
		return;
	}
	fetch(buf, ctx->mem + offset, size);
	xstate_sanitise(&ctx->platform->xstate, buf, size);
}

int frame_set_xstate(struct platform_context *ctx, const void *buf, size_t size)
{
	const struct xstate_format *format = &ctx->platform->xstate;
	u32 offset = xstate_offset(ctx);

	if (offset == 0)
		return -ESRCH;
	memset(ctx->xbuf, 0, format->size);
	memcpy(ctx->xbuf, buf, size);
	xstate_sanitise(format, ctx->xbuf, format->size);
	memcpy(ctx->mem + offset, ctx->xbuf, format->size);
	xstate_frame_it(ctx, offset);
	return 0;
}

void frame_store(struct platform_context *ctx, const struct user_regs_struct *r)
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

bool frame_fetch(struct platform_context *ctx, struct frame_stop *ret)
{
	if (!frame_check(ctx))
		return false;
	fetch(ret->g, frame(ctx)->uc_mcontext.gregs, sizeof(ret->g));
	fetch(&ret->info, ctx->mem + ctx->uc + UC_SIGINFO, sizeof(ret->info));
	ret->fs = *(volatile u64 *)&ctx->shared->fs;
	ret->gs = *(volatile u64 *)&ctx->shared->gs;
	return true;
}
