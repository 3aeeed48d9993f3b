/*
 * platform/patch.h: rewriting system call sites.
 *
 * A site becomes a jump to a *trampoline*, which does what the jump displaced
 * and hands over to the sentry by the context page (stub/arch/x86_64/guest.S).
 * Trampolines are in the zones (stub/abi.h), which every stub maps read-only and
 * only the sentry writes. They are made for one address of a site and do not
 * change while they are in use, so a thread may be in one at any time.
 *
 * Three forms; which one fits depends on what stands around `syscall`:
 *
 *	before	an instruction of 5 bytes or more before it is displaced; `syscall`
 *		itself stays, so who jumps to it or is sent back to it traps as ever
 *	behind	the jump replaces `syscall` and the instruction of 3 bytes or more
 *		behind it
 *	both	a 3-byte instruction before it and `syscall`
 *
 * In the last two an instruction's beginning is covered by the jump's own bytes.
 * The trampoline's address is chosen so that the byte there is one that no x86-64
 * processor executes: code that arrives there raises SIGILL, and the sentry moves
 * it to the right place in the trampoline (the *landing*).
 *
 * The guest never sees an address in a zone: patch_show() says which address of
 * its own code a trampoline's stands for.
 */
#ifndef MINISENTRY_PLATFORM_PATCH_H
#define MINISENTRY_PLATFORM_PATCH_H

#include "base/types.h"

struct platform;
struct patcher;

struct patch_site {
	u64 addr;	 /* of `syscall` */
	const u8 *code;	 /* the bytes there */
	size_t size;	 /* of them that may be read and changed */
	size_t before;	 /* and before them, that may be read */
	size_t prev_len; /* of the instruction that ends before `syscall`, no more than before;
			    0: not known */
};

#define PATCH_EDIT_MAX 5
struct patch_edit {
	int start; /* first byte to change, relative to `syscall` */
	u8 bytes[PATCH_EDIT_MAX];
	int landing;	/* relative to `syscall`: where SIGILL means "continue at landing_to" */
	u64 landing_to; /* 0: no such place */
	u64 entry;	/* the trampoline's address */
};

/* 0; -ENOTSUP: no form fits, or the code behind reads flags that the call would lose (flags.h);
 * -ENOSPC: no room in reach. */
int patch_site(struct patcher *p, const struct patch_site *site, struct patch_edit *ret);

/* The trampoline at `entry` may become another: no thread is in it, or will come or return to it.
 */
void patch_forget(struct patcher *p, u64 entry);

/* Length of the instruction at code, 0 when there is none within size bytes. */
size_t patch_insn_length(struct patcher *p, const u8 *code, size_t size);

/* The guest's own address that rip stands for; rip itself outside the zones. */
u64 patch_show(struct patcher *p, u64 rip);

/* The patcher of a platform, NULL when it does not patch. */
struct patcher *platform_patcher(struct platform *p);
/* Where code has to be for patches: [*ret_start, *ret_end) of an address space is in reach. */
void patch_reach(const struct patcher *p, u64 *ret_start, u64 *ret_end);

/* high, low: the zones as the sentry maps them; call_entry: where trampolines go. 0 or -ENOMEM. */
int patcher_new(u8 *high, u8 *low, u64 call_entry, struct patcher **ret);
void patcher_free(struct patcher *p);

#endif
