/*
 * sentry/exec/exec_impl.h: what the files of sentry/exec share.
 */
#ifndef MINISENTRY_SENTRY_EXEC_EXEC_IMPL_H
#define MINISENTRY_SENTRY_EXEC_EXEC_IMPL_H

#include "sentry/exec/elf.h"
#include "sentry/exec/exec.h"

/* An opened program or interpreter and its headers. */
struct elf_image {
	struct file *file; /* a reference; the main program's also denies writers */
	Elf64_Ehdr header;
	Elf64_Phdr *phdrs; /* owned; header.e_phnum */
};

struct exec {
	struct exec_request req;       /* borrows as the request did */
	struct elf_image main, interp; /* interp.file NULL: none */
	const struct cred *cred;
	struct mm *mm;
	char *name; /* AT_EXECFN, owned */
	char comm[TASK_COMM_LEN];
	bool secure;
	bool not_dumpable;
	u64 random[8]; /* [0..1] AT_RANDOM, the rest for the layout */
};

/* Where things went; filled by load.c, used by stack.c. */
struct exec_layout {
	u64 guest_min, guest_max;
	u64 stack_top;
	u64 entry;	   /* of the interpreter if there is one */
	u64 program_entry; /* AT_ENTRY */
	u64 interp_base;
	u64 phdr;
	struct mm_marks marks;
};

/* Replaces argv[0] by the strings (#! lines). */
int exec_args_replace_first(struct exec_args *a, const char *const *strings, size_t count);

/* creds.c: the new program's credentials from its file (set-id bits, file capabilities).
 * May clear bits of *personality. 0, -EPERM, -ENOMEM. */
int exec_creds(const struct exec_request *req, struct file *file, u32 *personality,
	       const struct cred **ret, bool *ret_secure);

/* load.c: maps program and interpreter, picks the layout. */
int exec_map_images(struct exec *e, struct exec_layout *l);

/* stack.c: maps and fills the stack; the stack pointer. */
int exec_build_stack(struct exec *e, struct exec_layout *l, u64 *ret_sp);

#define PER_NO_RANDOMIZE 0x0040000

#endif
