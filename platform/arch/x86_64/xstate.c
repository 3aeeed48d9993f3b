/*
 * The extended state: what a signal frame of this host looks like (taken from a
 * real one), and what the kernel accepts back. Format: Intel SDM volume 1,
 * chapter 13; struct _fpx_sw_bytes in asm/sigcontext.h.
 */
#include "base/log.h"
#include "platform/internal.h"
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define LEGACY_SIZE 512
#define HEADER_SIZE 64
#define MXCSR_OFFSET 24
#define MXCSR_MASK_OFFSET 28
#define MXCSR_DEFAULT 0x1f80
#define MXCSR_MASK_DEFAULT 0xffbf
#define FCW_DEFAULT 0x37f

static struct {
	struct _fpx_sw_bytes sw;
	u32 mxcsr_mask;
	bool seen;
} probe;

/* ucontext_t's fpregs points at the kernel's struct _xstate, as in rt_sigframe. */
static void on_probe(int signo, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	const u8 *fp = (const u8 *)uc->uc_mcontext.fpregs;

	if (!fp)
		return;
	memcpy(&probe.sw, fp + LEGACY_SIZE - sizeof(probe.sw), sizeof(probe.sw));
	memcpy(&probe.mxcsr_mask, fp + MXCSR_MASK_OFFSET, sizeof(u32));
	probe.seen = true;
}

int xstate_probe(struct xstate_format *ret)
{
	struct sigaction act = { .sa_sigaction = on_probe, .sa_flags = SA_SIGINFO }, old;
	sigset_t set, old_set;

	_Static_assert(sizeof(probe.sw) == sizeof(ret->sw_bytes), "size of _fpx_sw_bytes");
	sigemptyset(&act.sa_mask);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	if (sigaction(SIGUSR1, &act, &old) < 0)
		return -errno;
	pthread_sigmask(SIG_UNBLOCK, &set, &old_set);
	raise(SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &old_set, NULL);
	sigaction(SIGUSR1, &old, NULL);
	if (!probe.seen || probe.sw.magic1 != FP_XSTATE_MAGIC1 ||
	    probe.sw.xstate_size < LEGACY_SIZE + HEADER_SIZE ||
	    probe.sw.extended_size < probe.sw.xstate_size + FP_XSTATE_MAGIC2_SIZE ||
	    probe.sw.extended_size > XSTATE_BUF_SIZE / 2)
		return -EOPNOTSUPP; /* a host without XSAVE */
	ret->size = probe.sw.xstate_size;
	ret->extended_size = probe.sw.extended_size;
	ret->features = probe.sw.xstate_bv;
	ret->mxcsr_mask = probe.mxcsr_mask ? probe.mxcsr_mask : MXCSR_MASK_DEFAULT;
	memcpy(ret->sw_bytes, &probe.sw, sizeof(ret->sw_bytes));
	return 0;
}

void xstate_sanitise(const struct xstate_format *format, void *buf, size_t size)
{
	u8 *p = buf;
	u64 bv = 0;
	u32 mxcsr;

	if (size < LEGACY_SIZE + HEADER_SIZE)
		return;
	memcpy(&bv, p + LEGACY_SIZE, sizeof(bv));
	bv &= format->features;
	memset(p + LEGACY_SIZE, 0, HEADER_SIZE);
	memcpy(p + LEGACY_SIZE, &bv, sizeof(bv));
	memcpy(&mxcsr, p + MXCSR_OFFSET, sizeof(mxcsr));
	mxcsr &= format->mxcsr_mask;
	memcpy(p + MXCSR_OFFSET, &mxcsr, sizeof(mxcsr));
}

void platform_init_xstate(void *buf, size_t size)
{
	u16 fcw = FCW_DEFAULT;
	u32 mxcsr = MXCSR_DEFAULT;

	memset(buf, 0, size);
	if (size < LEGACY_SIZE)
		return;
	memcpy(buf, &fcw, sizeof(fcw));
	memcpy((u8 *)buf + MXCSR_OFFSET, &mxcsr, sizeof(mxcsr));
}
