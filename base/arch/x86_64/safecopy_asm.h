/*
 * base/arch/x86_64/safecopy_asm.h: the fault-tolerant primitives of safecopy.S.
 *
 * Each routine's faulting instructions lie between its begin and end labels; the
 * signal handler moves rip to safecopy_fault, which returns a failure value.
 */
#ifndef MINISENTRY_BASE_ARCH_SAFECOPY_ASM_H
#define MINISENTRY_BASE_ARCH_SAFECOPY_ASM_H

#include "base/types.h"

/* Bytes not copied / not zeroed. */
size_t safecopy_asm_copy(void *dst, const void *src, size_t n);
size_t safecopy_asm_zero(void *dst, size_t n);
/* 0, or -1 on a fault; *old receives the previous value. */
int safecopy_asm_load32(const void *p, u32 *old);
int safecopy_asm_store32(void *p, u32 v);
int safecopy_asm_swap32(void *p, u32 v, u32 *old);
int safecopy_asm_cmpxchg32(void *p, u32 expected, u32 desired, u32 *old);

/* The code range that may fault, and where a fault in it continues. */
extern const char safecopy_asm_begin[], safecopy_asm_copy_end[], safecopy_asm_end[];
extern const char safecopy_asm_copy_fault[], safecopy_asm_word_fault[];

#endif
