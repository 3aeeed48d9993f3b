/*
 * The new program's stack, from the top (x86-64 psABI, Linux's create_elf_tables):
 *
 *	8 zero bytes, AT_EXECFN's string, envp strings, argv strings   <- one block, `strings`
 *	platform name, 16 random bytes
 *	auxv, envp[], argv[], argc                                     <- one block, sp points here
 */
#include "sentry/exec/exec_impl.h"
#include "sentry/kernel/kernel.h"

#include <linux/auxvec.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define STACK_EXTRA (128UL << 10) /* mapped below the pointer from the start, as Linux does */
#define CLOCK_TICKS 100
#define AUXV_MAX 24
static const char platform_string[16] = "x86_64";

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

struct auxv {
	u64 *v;
	size_t count; /* u64s */
};

static void aux(struct auxv *a, u64 type, u64 value)
{
	a->v[a->count++] = type;
	a->v[a->count++] = value;
}

static void fill_auxv(const struct exec *e, const struct exec_layout *l, u64 random_addr,
		      u64 platform_addr, u64 execfn_addr, struct auxv *a)
{
	struct platform_vdso vdso;
	const struct cred *c = e->cred;

	platform_get_vdso(e->req.kernel->platform, &vdso);
	if (vdso.ehdr)
		aux(a, AT_SYSINFO_EHDR, vdso.ehdr);
	aux(a, AT_MINSIGSTKSZ, MAX(getauxval(AT_MINSIGSTKSZ), 2048UL));
	aux(a, AT_HWCAP, getauxval(AT_HWCAP));
	aux(a, AT_PAGESZ, PAGE_SIZE);
	aux(a, AT_CLKTCK, CLOCK_TICKS);
	aux(a, AT_PHDR, l->phdr);
	aux(a, AT_PHENT, sizeof(Elf64_Phdr));
	aux(a, AT_PHNUM, e->main.header.e_phnum);
	aux(a, AT_BASE, l->interp_base);
	aux(a, AT_FLAGS, 0);
	aux(a, AT_ENTRY, l->program_entry);
	aux(a, AT_UID, c->uid);
	aux(a, AT_EUID, c->euid);
	aux(a, AT_GID, c->gid);
	aux(a, AT_EGID, c->egid);
	aux(a, AT_SECURE, e->secure);
	aux(a, AT_RANDOM, random_addr);
	/* FSGSBASE, the one interesting bit, is not promised to guests. */
	aux(a, AT_HWCAP2, 0);
	aux(a, AT_EXECFN, execfn_addr);
	aux(a, AT_PLATFORM, platform_addr);
	aux(a, AT_NULL, 0);
}

/* Appends the strings' own tail: AT_EXECFN and the last 8 zero bytes. */
static int finish_strings(struct exec *e, size_t *ret_execfn)
{
	struct exec_args *a = e->req.args;
	size_t name = strlen(e->name) + 1;

	if (a->used + name + 8 > a->capacity) {
		char *data = realloc(a->data, a->used + name + 8);

		if (data == NULL)
			return -ENOMEM;
		a->data = data;
		a->capacity = a->used + name + 8;
	}
	*ret_execfn = a->used;
	memcpy(a->data + a->used, e->name, name);
	memset(a->data + a->used + name, 0, 8);
	a->used += name + 8;
	return 0;
}

static int map_stack(struct exec *e, u64 start, u64 top)
{
	struct mm_mmap_args args = { .addr = start,
				     .len = top - start,
				     .prot = PROT_READ | PROT_WRITE,
				     .flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
					      MAP_GROWSDOWN | MAP_STACK,
				     .max_prot = PROT_READ | PROT_WRITE | PROT_EXEC,
				     .name = "[stack]",
				     .limits = e->req.limits,
				     .grow_stack = true };
	s64 r;

	if (elf_exec_stack(&e->main.header, e->main.phdrs))
		args.prot |= PROT_EXEC;
	r = mm_mmap(e->mm, &args);
	return r < 0 ? (int)r : 0;
}

/* argc, pointers and auxv; strings start at `strings`. Returns u64s used. */
static void fill_pointers(const struct exec *e, struct exec_layout *l, u64 strings, u64 *block,
			  u64 random_addr, size_t execfn)
{
	const struct exec_args *a = e->req.args;
	struct auxv auxv;
	u64 at = strings;
	size_t n = 0;

	block[n++] = a->argc;
	l->marks.arg_start = strings;
	l->marks.arg_end = l->marks.env_end = strings;
	for (u32 i = 0; i < a->count; i++) {
		if (i == a->argc)
			block[n++] = 0;
		block[n++] = at;
		at += a->lens[i];
		if (i < a->argc)
			l->marks.arg_end = at;
	}
	if (a->count == a->argc)
		block[n++] = 0;
	block[n++] = 0;
	l->marks.env_start = l->marks.arg_end;
	l->marks.env_end = at;
	auxv = (struct auxv){ .v = block + n };
	fill_auxv(e, l, random_addr, random_addr + 16, strings + execfn, &auxv);
	memcpy(l->marks.auxv, auxv.v, auxv.count * sizeof(u64));
	l->marks.auxv_count = auxv.count;
}

int exec_build_stack(struct exec *e, struct exec_layout *l, u64 *ret_sp)
{
	struct exec_args *a = e->req.args;
	size_t execfn, block_size, tail_size;
	u64 strings, random_addr, sp, low;
	char *block;
	int r = finish_strings(e, &execfn);

	if (r < 0)
		return r;
	strings = l->stack_top - a->used;
	/* As Linux, the pointer's low bits vary too. */
	random_addr = strings - (e->req.personality & PER_NO_RANDOMIZE ? 0 : e->random[6] % 8192);
	random_addr = (random_addr - 32) & ~15UL;
	block_size = (1 + (size_t)a->count + 2 + 2 * AUXV_MAX) * sizeof(u64);
	sp = (random_addr - block_size) & ~15UL;
	tail_size = random_addr + 32 - sp;
	low = page_down(sp - MIN(STACK_EXTRA, e->req.stack_rlimit));
	r = map_stack(e, low, l->stack_top);
	if (r < 0)
		return r;
	block = calloc(1, tail_size);
	if (block == NULL)
		return -ENOMEM;
	fill_pointers(e, l, strings, (u64 *)(void *)block, random_addr, execfn);
	memcpy(block + (random_addr - sp), e->random, 16);
	memcpy(block + (random_addr - sp) + 16, platform_string, sizeof(platform_string));
	r = mm_copy_out(e->mm, ua(sp), block, tail_size);
	free(block);
	if (r == 0)
		r = mm_copy_out(e->mm, ua(strings), a->data, a->used);
	if (r < 0)
		return r;
	l->marks.start_stack = sp;
	*ret_sp = sp;
	return 0;
}
