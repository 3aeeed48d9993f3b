/*
 * sentry/exec/elf.h: reading ELF headers and #! lines. Pure: bytes in, a plan
 * out; no guest, no files. Every value comes from a file that a guest may have
 * written, so each sum is checked.
 */
#ifndef MINISENTRY_SENTRY_EXEC_ELF_H
#define MINISENTRY_SENTRY_EXEC_ELF_H

#include "base/types.h"
#include <elf.h>

#define ELF_PHDRS_MAX (65536 / sizeof(Elf64_Phdr))

/* A well-formed header of an x86-64 program or shared object; -ENOEXEC. len may be short. */
int elf_check_header(const void *data, size_t len, Elf64_Ehdr *ret);

/* What the program headers ask for; addresses are the file's own (no bias). */
struct elf_plan {
	u64 start, end; /* page-aligned bounds of all PT_LOAD; end > start */
	u64 align;	/* largest power-of-two p_align, at least a page */
	u64 phdr;	/* address of the program headers, 0 if not loaded */
	u64 brk;	/* end of the highest segment, not rounded */
	u64 start_code, end_code, start_data, end_data;
};
/* limit: the guest's highest address. -EINVAL for segments that wrap, are larger in the file than
 * in memory, or lie beyond limit; -ENOEXEC without PT_LOAD. */
int elf_make_plan(const Elf64_Ehdr *h, const Elf64_Phdr *ph, u64 limit, struct elf_plan *ret);

/* The PT_INTERP header or NULL; -ENOEXEC when its size is impossible. */
int elf_find_interp(const Elf64_Ehdr *h, const Elf64_Phdr *ph, const Elf64_Phdr **ret);
/* PT_GNU_STACK asks for an executable stack. */
bool elf_exec_stack(const Elf64_Ehdr *h, const Elf64_Phdr *ph);
int elf_prot(u32 p_flags);

/* "#!" line: pointers into buf, which is cut into strings. -ENOEXEC when it is none, or its
 * interpreter name does not end (by blank, newline or NUL) within size bytes. buf[size] must exist.
 */
struct script_line {
	char *interpreter;
	char *argument; /* NULL: none */
};
int script_parse(char *buf, size_t size, struct script_line *ret);

#endif
