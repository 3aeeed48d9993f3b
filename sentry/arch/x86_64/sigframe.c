/*
 * Signal frames of x86-64: struct rt_sigframe as the kernel builds it
 * (arch/x86/kernel/signal_64.c and fpu/signal.c describe the layout), with the
 * XSAVE area in standard format behind it:
 *
 *	sp -> pretcode | ucontext | siginfo | gap | fpstate (64-aligned) | MAGIC2
 *
 * What comes back through rt_sigreturn is hostile: registers are masked here,
 * the vector state is sanitised by the platform.
 */
#include "base/log.h"
#include "sentry/kernel/kernel.h"
#include "sentry/task/internal.h"

#include <stdlib.h>
#include <string.h>

#define UC_FP_XSTATE 1
#define UC_SIGCONTEXT_SS 2
#define UC_STRICT_RESTORE_SS 4
#define XSTATE_MAGIC1 0x46505853U
#define XSTATE_MAGIC2 0x46505845U
#define LEGACY_SIZE 512
#define HEADER_SIZE 64
#define SW_BYTES_OFFSET 464
#define RED_ZONE 128
#define USER_CS 0x33
#define USER_SS 0x2b
#define FLAG_TF 0x100ULL
#define FLAG_DF 0x400ULL
#define FLAG_RF 0x10000ULL
/* What rt_sigreturn may change: AC RF OF DF TF SF ZF AF PF CF. */
#define FLAGS_RESTORABLE 0x50dd5ULL

struct k_sigcontext {
	u64 r8, r9, r10, r11, r12, r13, r14, r15;
	u64 di, si, bp, bx, dx, ax, cx, sp, ip, flags;
	u16 cs, gs, fs, ss;
	u64 err, trapno, oldmask, cr2;
	u64 fpstate;
	u64 reserved[8];
};

struct k_ucontext {
	u64 flags;
	u64 link;
	u64 ss_sp;
	s32 ss_flags;
	u32 pad;
	u64 ss_size;
	struct k_sigcontext mc;
	u64 sigmask;
};

struct rt_sigframe {
	u64 pretcode;
	struct k_ucontext uc;
	siginfo_t info;
};
_Static_assert(sizeof(struct k_sigcontext) == 256, "sigcontext of the kernel ABI");
_Static_assert(sizeof(struct k_ucontext) == 304, "ucontext of the kernel ABI");
_Static_assert(sizeof(siginfo_t) == 128, "siginfo of the kernel ABI");

struct sw_bytes {
	u32 magic1, extended_size;
	u64 xfeatures;
	u32 xstate_size, padding[7];
};
_Static_assert(sizeof(struct sw_bytes) == LEGACY_SIZE - SW_BYTES_OFFSET, "fpx_sw_bytes");

static bool within_altstack(const struct task *t, u64 sp)
{
	u64 base = (u64)t->altstack.ss_sp;

	return sp > base && sp - base <= t->altstack.ss_size;
}

bool signal_on_altstack(struct task *t, u64 sp)
{
	if (t->altstack.ss_flags & (int)SS_AUTODISARM)
		return false; /* it was given up on entry */
	return within_altstack(t, sp);
}

/* Components in their initial state may hold anything: a frame shows them as initial. */
static void xstate_complete(u8 *x, size_t size)
{
	u64 bv;

	if (size < LEGACY_SIZE + HEADER_SIZE)
		return;
	memcpy(&bv, x + LEGACY_SIZE, sizeof(bv));
	if (!(bv & 1)) {
		u16 fcw = 0x37f;

		memset(x, 0, 24);
		memcpy(x, &fcw, sizeof(fcw));
		memset(x + 32, 0, 128);
	}
	if (!(bv & 2))
		memset(x + 160, 0, 256);
	bv |= 3;
	memcpy(x + LEGACY_SIZE, &bv, sizeof(bv));
}

/* What the vector state takes in a frame. */
static size_t frame_xstate_space(size_t size)
{
	return size > LEGACY_SIZE ? size + sizeof(u32) : size;
}

/* Fills buf with the vector state as a frame holds it. -ESRCH: lost the stub. */
static int xstate_for_frame(struct task *t, u8 *buf, size_t size)
{
	struct sw_bytes sw;
	u32 magic2 = XSTATE_MAGIC2;

	if (platform_get_xstate(t->ctx, buf, size) < 0)
		return -ESRCH;
	memset(&sw, 0, sizeof(sw));
	xstate_complete(buf, size);
	if (size > LEGACY_SIZE) {
		sw.magic1 = XSTATE_MAGIC1;
		sw.extended_size = (u32)size + sizeof(magic2);
		sw.xfeatures = platform_xstate_features(t->kernel->platform);
		sw.xstate_size = (u32)size;
		memcpy(buf + size, &magic2, sizeof(magic2));
	}
	memcpy(buf + SW_BYTES_OFFSET, &sw, sizeof(sw));
	return 0;
}

static void fill_context(struct task *t, struct k_ucontext *uc, u64 saved_mask,
			 const struct signal_frame_info *fault, u64 fpstate, bool xsave)
{
	const struct user_regs_struct *r = &t->regs;

	uc->flags = UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS | (xsave ? UC_FP_XSTATE : 0);
	uc->ss_sp = (u64)t->altstack.ss_sp;
	uc->ss_flags = t->altstack.ss_flags;
	uc->ss_size = t->altstack.ss_size;
	uc->mc = (struct k_sigcontext){
		.r8 = r->r8,
		.r9 = r->r9,
		.r10 = r->r10,
		.r11 = r->r11,
		.r12 = r->r12,
		.r13 = r->r13,
		.r14 = r->r14,
		.r15 = r->r15,
		.di = r->rdi,
		.si = r->rsi,
		.bp = r->rbp,
		.bx = r->rbx,
		.dx = r->rdx,
		.ax = r->rax,
		.cx = r->rcx,
		.sp = r->rsp,
		.ip = r->rip,
		.flags = r->eflags,
		.cs = USER_CS,
		.ss = USER_SS,
		.err = fault->error,
		.trapno = fault->trapno,
		.cr2 = fault->cr2,
		.oldmask = saved_mask,
		.fpstate = fpstate,
	};
	uc->sigmask = saved_mask;
}

/* Where the frame and its fpstate go. -EFAULT: not on the alternate stack it should be on. */
static int place_frame(struct task *t, const struct k_sigaction *act, size_t fp_size, u64 *ret_sp,
		       u64 *ret_fp)
{
	u64 sp = t->regs.rsp;
	bool nested = signal_on_altstack(t, sp), entering = false;

	sp -= RED_ZONE;
	if ((act->flags & SA_ONSTACK) && t->altstack.ss_size && !signal_on_altstack(t, sp)) {
		sp = (u64)t->altstack.ss_sp + t->altstack.ss_size;
		entering = true;
	}
	sp = (sp - fp_size) & ~63ULL;
	*ret_fp = sp;
	sp = ((sp - sizeof(struct rt_sigframe)) & ~15ULL) - 8;
	if ((nested || entering) && !within_altstack(t, sp))
		return -EFAULT;
	*ret_sp = sp;
	return 0;
}

static void enter_handler(struct task *t, const struct k_sigaction *act, int sig, u64 sp)
{
	struct user_regs_struct *r = &t->regs;

	r->rdi = (u64)sig;
	r->rax = 0;
	r->rsi = sp + offsetof(struct rt_sigframe, info);
	r->rdx = sp + offsetof(struct rt_sigframe, uc);
	r->rip = act->handler;
	r->rsp = sp;
	r->eflags &= ~(FLAG_TF | FLAG_DF | FLAG_RF);
}

int arch_push_signal_frame(struct task *t, const struct k_sigaction *act, const siginfo_t *info,
			   u64 saved_mask, const struct signal_frame_info *fault)
{
	size_t size = platform_xstate_size(t->kernel->platform), fp_size = frame_xstate_space(size);
	u8 image[sizeof(struct rt_sigframe) + 128 + PLATFORM_XSTATE_MAX + sizeof(u32)];
	struct rt_sigframe *frame = (struct rt_sigframe *)image;
	u64 sp, fp;

	if (!(act->flags & SA_RESTORER))
		return -EFAULT; /* x86-64 has no other way back */
	if (place_frame(t, act, fp_size, &sp, &fp) < 0)
		return -EFAULT;
	ASSERT(fp + fp_size - sp <= sizeof(image));
	memset(image, 0, fp - sp);
	if (xstate_for_frame(t, image + (fp - sp), size) < 0)
		return -EFAULT;
	frame->pretcode = act->restorer;
	fill_context(t, &frame->uc, saved_mask, fault, fp, size > LEGACY_SIZE);
	frame->info = *info;
	if (copy_out(t, ua(sp), image, fp + fp_size - sp) < 0)
		return -EFAULT;
	if (t->altstack.ss_flags & (int)SS_AUTODISARM)
		t->altstack = (stack_t){ .ss_flags = SS_DISABLE };
	enter_handler(t, act, info->si_signo, sp);
	return 0;
}

/* How much of the `got` bytes in buf is valid XSAVE state: its size, or 512 for the legacy part
 * only. */
static size_t frame_xstate_size(const u8 *buf, size_t got, size_t max)
{
	struct sw_bytes sw;
	u32 magic2;

	memcpy(&sw, buf + SW_BYTES_OFFSET, sizeof(sw));
	if (max <= LEGACY_SIZE || sw.magic1 != XSTATE_MAGIC1 ||
	    sw.xstate_size < LEGACY_SIZE + HEADER_SIZE || sw.xstate_size > max ||
	    sw.xstate_size > sw.extended_size || got < sw.xstate_size + sizeof(magic2))
		return LEGACY_SIZE;
	memcpy(&magic2, buf + sw.xstate_size, sizeof(magic2));
	return magic2 == XSTATE_MAGIC2 ? sw.xstate_size : LEGACY_SIZE;
}

static int restore_xstate(struct task *t, u64 fp)
{
	size_t size = platform_xstate_size(t->kernel->platform), have;
	u8 buf[PLATFORM_XSTATE_MAX + sizeof(u32)];
	u64 features = 3;
	ssize_t got;

	if (fp == 0) {
		platform_init_xstate(buf, size);
	} else {
		got = mm_copy_in_partial(t->mm, buf, ua(fp), frame_xstate_space(size));
		if (got < LEGACY_SIZE)
			return -EFAULT;
		have = frame_xstate_size(buf, (size_t)got, size);
		if (have > LEGACY_SIZE) {
			memcpy(&features, buf + LEGACY_SIZE, sizeof(features));
			features &= platform_xstate_features(t->kernel->platform);
		}
		if (have < size)
			memset(buf + have, 0, size - have);
		if (size > LEGACY_SIZE) {
			memset(buf + LEGACY_SIZE, 0, HEADER_SIZE);
			memcpy(buf + LEGACY_SIZE, &features, sizeof(features));
		}
		memset(buf + SW_BYTES_OFFSET, 0, sizeof(struct sw_bytes));
	}
	platform_set_xstate(t->ctx, buf, size); /* a dead stub shows at the next switch */
	return 0;
}

static void restore_regs(struct task *t, const struct k_sigcontext *mc)
{
	struct user_regs_struct *r = &t->regs;

	r->r8 = mc->r8;
	r->r9 = mc->r9;
	r->r10 = mc->r10;
	r->r11 = mc->r11;
	r->r12 = mc->r12;
	r->r13 = mc->r13;
	r->r14 = mc->r14;
	r->r15 = mc->r15;
	r->rdi = mc->di;
	r->rsi = mc->si;
	r->rbp = mc->bp;
	r->rbx = mc->bx;
	r->rdx = mc->dx;
	r->rax = mc->ax;
	r->rcx = mc->cx;
	r->rsp = mc->sp;
	r->rip = mc->ip;
	r->eflags = (r->eflags & ~FLAGS_RESTORABLE) | (mc->flags & FLAGS_RESTORABLE);
	r->orig_rax = (u64)-1;
}

/* As do_sigaltstack with all errors but bad memory ignored: a stack in use stays. */
static void restore_altstack(struct task *t, const struct k_ucontext *uc, u64 sp)
{
	int mode = uc->ss_flags & ~(int)SS_AUTODISARM;

	if (signal_on_altstack(t, sp) || (mode != 0 && mode != SS_ONSTACK && mode != SS_DISABLE))
		return;
	if (mode == SS_DISABLE) {
		t->altstack = (stack_t){ .ss_flags = uc->ss_flags };
		return;
	}
	if (uc->ss_size < MINSIGSTKSZ_KERNEL)
		return;
	t->altstack.ss_sp = (void *)uc->ss_sp;
	t->altstack.ss_size = uc->ss_size;
	t->altstack.ss_flags = uc->ss_flags;
}

int arch_pop_signal_frame(struct task *t)
{
	u64 sp = t->regs.rsp - 8;
	struct rt_sigframe frame;

	if (copy_in(t, &frame, ua(sp), offsetof(struct rt_sigframe, info)) < 0)
		return -EFAULT;
	if (restore_xstate(t, frame.uc.mc.fpstate) < 0)
		return -EFAULT;
	signal_set_mask(t, frame.uc.sigmask);
	restore_regs(t, &frame.uc.mc);
	restore_altstack(t, &frame.uc, t->regs.rsp);
	return 0;
}
