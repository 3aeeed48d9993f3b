/*
 * Signal frames of x86-64: struct rt_sigframe as the kernel builds it
 * (arch/x86/kernel/signal_64.c and fpu/signal.c describe the layout), with the
 * XSAVE area in standard format behind it:
 *
 *	sp -> pretcode | ucontext | siginfo | gap | fpstate (64-aligned) | MAGIC2
 *
 * What comes back through rt_sigreturn is hostile: registers are masked here,
 * the vector state is sanitised by the platform, or loaded by the guest thread
 * itself, which may have any that the processor takes.
 *
 * The handler begins with the initial vector state (the kernel's
 * fpu__clear_user_states).
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
#define XSTATE_ALIGN 64
#define LEGACY_ALIGN 16
#define MXCSR_OFFSET 24
#define MXCSR_KNOWN 0x2ffffU /* of any processor */
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

static const u32 xstate_magic2 = XSTATE_MAGIC2;

/* What a frame says of a vector state of such a size. */
static struct sw_bytes sw_bytes_of(struct task *t, size_t size)
{
	struct sw_bytes sw = { 0 };

	if (size <= LEGACY_SIZE)
		return sw;
	sw.magic1 = XSTATE_MAGIC1;
	sw.extended_size = (u32)size + sizeof(xstate_magic2);
	sw.xfeatures = platform_xstate_features(t->kernel->platform);
	sw.xstate_size = (u32)size;
	return sw;
}

static void set_initial_xstate(struct task *t)
{
	size_t size = platform_xstate_size(t->kernel->platform);
	u8 buf[PLATFORM_XSTATE_MAX];

	platform_init_xstate(buf, size);
	platform_set_xstate(t->ctx, buf, size);
}

/* The vector state into the frame at fp by way of the sentry; t has the initial one then. */
static int copy_xstate_out(struct task *t, u64 fp)
{
	size_t size = platform_xstate_size(t->kernel->platform);
	u8 buf[PLATFORM_XSTATE_MAX + sizeof(xstate_magic2)];
	struct sw_bytes sw = sw_bytes_of(t, size);

	if (platform_get_xstate(t->ctx, buf, size) < 0)
		return -EFAULT;
	xstate_complete(buf, size);
	memcpy(buf + SW_BYTES_OFFSET, &sw, sizeof(sw));
	memcpy(buf + size, &xstate_magic2, sizeof(xstate_magic2));
	if (copy_out(t, ua(fp), buf, frame_xstate_space(size)) < 0)
		return -EFAULT;
	set_initial_xstate(t);
	return 0;
}

/*
 * Has t's own guest thread save it there, which spares two copies from one CPU to another. Only
 * what says how it is to be read comes from here, before it and behind: on its first and last page,
 * if it is not longer than two. False: not possible.
 */
static bool save_xstate_in_guest(struct task *t, u64 fp)
{
	size_t size = platform_xstate_size(t->kernel->platform);
	struct sw_bytes sw = sw_bytes_of(t, size);

	/* A tracer reads the frame when it has been told of the handler. */
	return size > LEGACY_SIZE && !task_traced(t) &&
	       copy_out(t, ua(fp + SW_BYTES_OFFSET), &sw, sizeof(sw)) == 0 &&
	       copy_out(t, ua(fp + size), &xstate_magic2, sizeof(xstate_magic2)) == 0 &&
	       platform_xstate_to_guest(t->ctx, fp);
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
	sp = (sp - fp_size) & ~(XSTATE_ALIGN - 1ULL);
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
	struct rt_sigframe frame;
	u64 sp, fp;

	if (!(act->flags & SA_RESTORER))
		return -EFAULT; /* x86-64 has no other way back */
	if (place_frame(t, act, fp_size, &sp, &fp) < 0)
		return -EFAULT;
	if (arch_settle_xstate(t) < 0)
		return -EFAULT;
	memset(&frame, 0, sizeof(frame));
	frame.pretcode = act->restorer;
	fill_context(t, &frame.uc, saved_mask, fault, fp, size > LEGACY_SIZE);
	frame.info = *info;
	if (copy_out(t, ua(sp), &frame, sizeof(frame)) < 0)
		return -EFAULT;
	if (!save_xstate_in_guest(t, fp) && copy_xstate_out(t, fp) < 0)
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

static u64 xgetbv(void)
{
	u32 low, high;

	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (u64)high << 32 | low;
}

/* Would XRSTOR raise #GP (Intel's manual, vol. 1, 13.8)? The kernel makes that SIGSEGV. */
static bool xstate_is_broken(const u8 *buf, size_t have)
{
	u64 header[3]; /* XSTATE_BV, XCOMP_BV, reserved */
	u32 mxcsr;

	memcpy(&mxcsr, buf + MXCSR_OFFSET, sizeof(mxcsr));
	if (mxcsr & ~MXCSR_KNOWN)
		return true;
	if (have <= LEGACY_SIZE)
		return false;
	memcpy(header, buf + LEGACY_SIZE, sizeof(header));
	return (header[0] & ~xgetbv()) || header[1] || header[2];
}

/* Takes the vector state of the frame at fp by way of the sentry. */
static int copy_xstate_in(struct task *t, u64 fp)
{
	size_t size = platform_xstate_size(t->kernel->platform), have;
	u8 buf[PLATFORM_XSTATE_MAX + sizeof(u32)];
	u64 features = 3;
	ssize_t got;

	got = mm_copy_in_partial(t->mm, buf, ua(fp), frame_xstate_space(size));
	if (got < LEGACY_SIZE)
		return -EFAULT;
	have = frame_xstate_size(buf, (size_t)got, size);
	if (fp % (have > LEGACY_SIZE ? XSTATE_ALIGN : LEGACY_ALIGN) || xstate_is_broken(buf, have))
		return -EFAULT;
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
	platform_set_xstate(t->ctx, buf, size); /* a dead stub shows at the next switch */
	return 0;
}

/* Has t's own guest thread load it, if the frame says that all of it is there. */
static bool load_xstate_in_guest(struct task *t, u64 fp)
{
	size_t size = platform_xstate_size(t->kernel->platform);
	struct sw_bytes sw, want = sw_bytes_of(t, size);
	u32 magic2;

	if (size <= LEGACY_SIZE || fp % XSTATE_ALIGN || task_traced(t) ||
	    copy_in(t, &sw, ua(fp + SW_BYTES_OFFSET), sizeof(sw)) < 0 || sw.magic1 != want.magic1 ||
	    sw.extended_size != want.extended_size || sw.xfeatures != want.xfeatures ||
	    sw.xstate_size != want.xstate_size ||
	    copy_in(t, &magic2, ua(fp + size), sizeof(magic2)) < 0 || magic2 != xstate_magic2)
		return false;
	return platform_xstate_from_guest(t->ctx, fp);
}

static int restore_xstate(struct task *t, u64 fp)
{
	if (fp == 0)
		set_initial_xstate(t);
	else if (!load_xstate_in_guest(t, fp))
		return copy_xstate_in(t, fp);
	return 0;
}

int arch_settle_xstate(struct task *t)
{
	u64 save, load;
	int r = 0;

	if (!platform_xstate_take_back(t->ctx, &save, &load))
		return 0;
	if (save)
		r = copy_xstate_out(t, save);
	else if (load)
		r = copy_xstate_in(t, load);
	if (r < 0 || (!save && !load))
		set_initial_xstate(t);
	return r;
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
