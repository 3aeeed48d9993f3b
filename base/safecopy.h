/*
 * base/safecopy.h: memory access that survives SIGBUS and SIGSEGV.
 *
 * The sentry's mapping of a memory file can fault when the host has no page to
 * give, or when a host file was truncated. These routines recover; nothing else
 * in the sentry may touch guest-backed memory directly.
 *
 * Implementation: assembly with known fault addresses and a handler that
 * moves rip to the recovery label (arch/x86_64/safecopy.S).
 */
#ifndef MINISENTRY_BASE_SAFECOPY_H
#define MINISENTRY_BASE_SAFECOPY_H

#include "base/types.h"
#include <signal.h>
#include <ucontext.h>

/* Installs the SIGSEGV/SIGBUS handler of the sentry. 0 or -errno. */
int safecopy_init(void);

/* Copies n bytes; returns how many were NOT copied (0 on success). */
size_t safe_memcpy(void *dst, const void *src, size_t n);
/* Sets n bytes to zero; returns how many were not. */
size_t safe_memzero(void *dst, size_t n);
/* Atomic 32-bit operations on guest words (4-byte aligned). 0 or -EFAULT. */
int safe_load32(const void *p, u32 *ret);
int safe_store32(void *p, u32 v);
int safe_swap32(void *p, u32 v, u32 *ret_old);
/* Stores `desired` if *p == expected; *ret_old is what was there. */
int safe_cmpxchg32(void *p, u32 expected, u32 desired, u32 *ret_old);

#endif
