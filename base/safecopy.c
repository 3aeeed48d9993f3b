#include "base/safecopy.h"
#include "base/arch/x86_64/safecopy_asm.h"
#include <string.h>

static bool in_code(u64 rip, const char *begin, const char *end)
{
	return rip >= (u64)begin && rip < (u64)end;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	u64 rip = (u64)uc->uc_mcontext.gregs[REG_RIP];

	(void)info;
	if (in_code(rip, safecopy_asm_begin, safecopy_asm_copy_end)) {
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)safecopy_asm_copy_fault;
		return;
	}
	if (in_code(rip, safecopy_asm_copy_end, safecopy_asm_end)) {
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)safecopy_asm_word_fault;
		return;
	}
	/* The sentry's own mistake: die by the default action, with the fault's address in the
	 * core. */
	signal(sig, SIG_DFL);
}

int safecopy_init(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	if (sigaction(SIGSEGV, &sa, NULL) < 0 || sigaction(SIGBUS, &sa, NULL) < 0)
		return -errno;
	return 0;
}

size_t safe_memcpy(void *dst, const void *src, size_t n)
{
	return safecopy_asm_copy(dst, src, n);
}

size_t safe_memzero(void *dst, size_t n)
{
	return safecopy_asm_zero(dst, n);
}

int safe_load32(const void *p, u32 *ret)
{
	return safecopy_asm_load32(p, ret) ? -EFAULT : 0;
}

int safe_store32(void *p, u32 v)
{
	return safecopy_asm_store32(p, v) ? -EFAULT : 0;
}

int safe_swap32(void *p, u32 v, u32 *ret_old)
{
	return safecopy_asm_swap32(p, v, ret_old) ? -EFAULT : 0;
}

int safe_cmpxchg32(void *p, u32 expected, u32 desired, u32 *ret_old)
{
	return safecopy_asm_cmpxchg32(p, expected, desired, ret_old) ? -EFAULT : 0;
}
