/*
 * The ptrace platform: each guest thread is traced by the sentry thread that
 * owns its context, and runs under PTRACE_SYSEMU. The reference: slow, but
 * nothing about the guest thread's state is ever in the guest's hands.
 *
 * Faults. ptrace shows no error code, so a SIGSEGV or SIGBUS is delivered with
 * PTRACE_SINGLESTEP: the kernel writes its signal frame (with trapno, err and
 * cr2) into the thread's slot and stops at the handler's first instruction.
 * The sentry reads the frame, then restores registers and extended state.
 */
#include "base/host_proc.h"
#include "base/host_sync.h"
#include "base/log.h"
#include "platform/internal.h"
#include <elf.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <ucontext.h>

#define TRAP_PAGE_FAULT 14
#define PF_WRITE 2
#define PF_EXEC 16

static bool is_stop(int status)
{
	return WIFSTOPPED(status);
}

/* Resumes and waits for the next stop. False: the thread is gone. */
static bool resume(struct platform_context *ctx, int request, int sig, int *ret_status)
{
	if (host_ptrace_cont(request, ctx->tid, sig) < 0 ||
	    host_wait_tid(ctx->tid, 0, ret_status) < 0 || !is_stop(*ret_status)) {
		ctx->dead = true;
		return false;
	}
	return true;
}

static int ptrace_context_start(struct platform_context *ctx)
{
	struct platform_as *as = ctx->as;
	struct user_regs_struct regs;
	int status, ret;

	ret = host_ptrace_seize(ctx->tid, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
	if (ret < 0)
		goto hostile;
	atomic_store(&as->cmd->go, 1);
	host_futex_wake(&as->cmd->go, 1, false);
	/* Its int3, behind the filter. A host's signals may come first. */
	for (;;) {
		ret = host_wait_tid(ctx->tid, 0, &status);
		if (ret < 0 || !is_stop(status))
			goto hostile;
		ret = host_ptrace_getregs(ctx->tid, &regs);
		if (ret < 0)
			goto hostile;
		if (WSTOPSIG(status) == SIGTRAP && regs.rip == as->platform->stub.ptrace_ready)
			break;
		ret = host_ptrace_cont(PTRACE_CONT, ctx->tid, 0);
		if (ret < 0)
			goto hostile;
	}
	return 0;
hostile:
	as_kill_nowait(as);
	host_wait_tid(ctx->tid, 0, &status);
	return -ESRCH;
}

static void ptrace_context_stop(struct platform_context *ctx)
{
	struct user_regs_struct regs;
	int status = 0;

	if (!ctx->dead && host_ptrace_getregs(ctx->tid, &regs) == 0) {
		regs.rip = ctx->platform->stub.exit_gadget;
		regs.orig_rax = (u64)-1;
		regs.eflags = 0x202;
		if (host_ptrace_setregs(ctx->tid, &regs) == 0)
			host_ptrace_cont(PTRACE_CONT, ctx->tid, 0);
	}
	/* Until it is gone. A signal that arrives on the way is dropped. */
	while (host_wait_tid(ctx->tid, 0, &status) > 0 && is_stop(status))
		if (host_ptrace_cont(PTRACE_CONT, ctx->tid, 0) < 0)
			break;
}

static void ptrace_wake_dead(struct platform_context *ctx)
{
	/* Its owner waits for the thread itself. */
}

static ssize_t read_xstate(struct platform_context *ctx)
{
	ssize_t n = host_ptrace_getregset(ctx->tid, NT_X86_XSTATE, ctx->xbuf, XSTATE_BUF_SIZE);

	if (n > 0)
		ctx->xbuf_size = (size_t)n;
	return n;
}

static int ptrace_get_xstate(struct platform_context *ctx, void *buf, size_t size)
{
	ssize_t n = read_xstate(ctx);

	if (n < 0)
		return -ESRCH;
	memcpy(buf, ctx->xbuf, MIN(size, (size_t)n));
	if (size > (size_t)n)
		memset((u8 *)buf + n, 0, size - (size_t)n);
	return 0;
}

static int ptrace_set_xstate(struct platform_context *ctx, const void *buf, size_t size)
{
	ssize_t n = read_xstate(ctx); /* the kernel wants its own size back */

	if (n < 0)
		return -ESRCH;
	memcpy(ctx->xbuf, buf, MIN(size, (size_t)n));
	xstate_sanitise(&ctx->platform->xstate, ctx->xbuf, (size_t)n);
	return host_ptrace_setregset(ctx->tid, NT_X86_XSTATE, ctx->xbuf, (size_t)n) < 0 ? -ESRCH
											: 0;
}

/*
 * Has the kernel write its frame for `sig`, reads trapno, err and cr2, and puts
 * everything back. False when the thread died over it.
 */
static bool read_fault(struct platform_context *ctx, int sig, const struct user_regs_struct *regs,
		       struct platform_stop *stop)
{
	struct user_regs_struct in_handler, back = *regs;
	greg_t *gregs;
	int status;
	u64 uc;

	if (read_xstate(ctx) < 0 || !resume(ctx, PTRACE_SINGLESTEP, sig, &status) ||
	    host_ptrace_getregs(ctx->tid, &in_handler) < 0)
		return false;
	if (in_handler.rip == ctx->platform->stub.signal_entry) {
		/* rdx: the ucontext's address, from the kernel. The content may have been
		 * changed by the guest's other threads, to their own harm. */
		uc = in_handler.rdx - ctx->stub_addr;
		if (uc < STUB_SLOT_SIZE - sizeof(ucontext_t)) {
			gregs = ((ucontext_t *)(ctx->mem + uc))->uc_mcontext.gregs;
			stop->trapno = (u64)gregs[REG_TRAPNO];
			stop->error_code = (u64)gregs[REG_ERR];
			stop->cr2 = (u64)gregs[REG_CR2];
		}
	}
	back.orig_rax = (u64)-1;
	return host_ptrace_setregs(ctx->tid, &back) == 0 &&
	       host_ptrace_setregset(ctx->tid, NT_X86_XSTATE, ctx->xbuf, ctx->xbuf_size) == 0;
}

static u64 usual_trapno(int sig, int code)
{
	switch (sig) {
	case SIGILL: return 6;
	case SIGFPE: return code == FPE_INTDIV || code == FPE_INTOVF ? 0 : 19;
	case SIGTRAP: return code == SI_KERNEL ? 3 : 1;
	default: return 0;
	}
}

static void on_signal(struct platform_context *ctx, int sig, struct user_regs_struct *regs,
		      struct platform_stop *stop)
{
	siginfo_t info;

	stop->reason = PLATFORM_STOP_INTERRUPTED;
	if (host_ptrace_getsiginfo(ctx->tid, &info) < 0) {
		stop->reason = PLATFORM_STOP_DEAD;
		return;
	}
	if (info.si_code <= 0) /* sent by somebody, not by the hardware */
		return;
	switch (sig) {
	case SIGSYS: /* the filter's: vsyscall, which SYSEMU does not see */
		stop->reason = PLATFORM_STOP_SYSCALL;
		regs->orig_rax = (u64)(u32)info.si_syscall;
		regs->rax = (u64)-ENOSYS;
		return;
	case SIGSEGV:
	case SIGBUS:
		if (!read_fault(ctx, sig, regs, stop)) {
			stop->reason = PLATFORM_STOP_DEAD;
			return;
		}
		break;
	case SIGILL:
	case SIGFPE:
	case SIGTRAP: stop->trapno = usual_trapno(sig, info.si_code); break;
	default: return;
	}
	stop->reason =
		stop->trapno == TRAP_PAGE_FAULT ? PLATFORM_STOP_FAULT : PLATFORM_STOP_EXCEPTION;
	stop->signo = sig;
	stop->si_code = info.si_code;
	stop->fault_addr = (u64)info.si_addr;
	stop->access_write = stop->trapno == TRAP_PAGE_FAULT && stop->error_code & PF_WRITE;
	stop->access_exec = stop->trapno == TRAP_PAGE_FAULT && stop->error_code & PF_EXEC;
}

static void run_until_stop(struct platform_context *ctx, struct user_regs_struct *regs,
			   struct platform_stop *stop)
{
	int status, sig;

	/* Who interrupts sets `interrupted` and then looks at in_guest, we the other way round. Set
	 * again, for the order: -fsanitize=thread knows no fences. */
	atomic_store(&ctx->in_guest, true);
	if (atomic_load(&ctx->interrupted)) {
		stop->reason = PLATFORM_STOP_INTERRUPTED;
		return;
	}

	if (host_ptrace_setregs(ctx->tid, regs) < 0 || !resume(ctx, PTRACE_SYSEMU, 0, &status) ||
	    host_ptrace_getregs(ctx->tid, regs) < 0) {
		stop->reason = PLATFORM_STOP_DEAD;
		ctx->dead = true;
		return;
	}
	sig = WSTOPSIG(status);
	if (sig == (SIGTRAP | 0x80)) {
		s64 arch = host_ptrace_syscall_arch(ctx->tid);

		stop->reason = PLATFORM_STOP_SYSCALL;
		stop->syscall_is_compat = arch >= 0 && arch != AUDIT_ARCH_X86_64;
		return;
	}
	if (status >> 16) /* PTRACE_EVENT_STOP */
		stop->reason = PLATFORM_STOP_INTERRUPTED;
	else
		on_signal(ctx, sig, regs, stop);
}

static void ptrace_run(struct platform_context *ctx, struct user_regs_struct *regs,
		       struct platform_stop *stop)
{
	run_until_stop(ctx, regs, stop);
	clock_stop(&ctx->clock);
}

const struct platform_ops *ptrace_ops(void)
{
	static const struct platform_ops ops = {
		.context_start = ptrace_context_start,
		.context_stop = ptrace_context_stop,
		.run = ptrace_run,
		.get_xstate = ptrace_get_xstate,
		.set_xstate = ptrace_set_xstate,
		.wake_dead = ptrace_wake_dead,
	};

	return &ops;
}
