/* ELF headers and #! lines; see elf.h. Rules as in Linux's fs/binfmt_elf.c and binfmt_script.c. */
#include "sentry/exec/elf.h"

#include <limits.h>
#include <string.h>
#include <sys/mman.h>

int elf_check_header(const void *data, size_t len, Elf64_Ehdr *ret)
{
	Elf64_Ehdr h;

	if (len < sizeof(h))
		return -ENOEXEC;
	memcpy(&h, data, sizeof(h));
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
	    h.e_machine != EM_X86_64 || (h.e_type != ET_EXEC && h.e_type != ET_DYN) ||
	    h.e_phentsize != sizeof(Elf64_Phdr) || h.e_phnum == 0 || h.e_phnum > ELF_PHDRS_MAX ||
	    h.e_phoff > INT64_MAX - 65536)
		return -ENOEXEC;
	*ret = h;
	return 0;
}

int elf_prot(u32 p_flags)
{
	return (p_flags & PF_R ? PROT_READ : 0) | (p_flags & PF_W ? PROT_WRITE : 0) |
	       (p_flags & PF_X ? PROT_EXEC : 0);
}

/* One PT_LOAD: does it fit the address space and the file offsets? */
static bool segment_ok(const Elf64_Phdr *p, u64 limit)
{
	return p->p_filesz <= p->p_memsz && p->p_memsz <= limit &&
	       p->p_vaddr <= limit - p->p_memsz && p->p_offset <= INT64_MAX - PAGE_SIZE &&
	       p->p_filesz <= INT64_MAX - PAGE_SIZE - p->p_offset;
}

static void plan_marks(const Elf64_Phdr *p, struct elf_plan *plan)
{
	u64 file_end = p->p_vaddr + p->p_filesz;

	if ((p->p_flags & PF_X) && p->p_vaddr < plan->start_code)
		plan->start_code = p->p_vaddr;
	if ((p->p_flags & PF_X) && file_end > plan->end_code)
		plan->end_code = file_end;
	if (p->p_vaddr > plan->start_data)
		plan->start_data = p->p_vaddr;
	if (file_end > plan->end_data)
		plan->end_data = file_end;
	if (p->p_vaddr + p->p_memsz > plan->brk)
		plan->brk = p->p_vaddr + p->p_memsz;
}

int elf_make_plan(const Elf64_Ehdr *h, const Elf64_Phdr *ph, u64 limit, struct elf_plan *ret)
{
	struct elf_plan plan = { .start = UINT64_MAX,
				 .align = PAGE_SIZE,
				 .start_code = UINT64_MAX };
	bool any = false;

	if (limit > INT64_MAX)
		limit = INT64_MAX;
	for (size_t i = 0; i < h->e_phnum; i++) {
		const Elf64_Phdr *p = &ph[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (!segment_ok(p, limit))
			return -EINVAL;
		any = true;
		if (page_down(p->p_vaddr) < plan.start)
			plan.start = page_down(p->p_vaddr);
		if (page_up_nofail(p->p_vaddr + p->p_memsz) > plan.end)
			plan.end = page_up_nofail(p->p_vaddr + p->p_memsz);
		/* An impossible alignment is ignored, like Linux. */
		if (p->p_align > plan.align && (p->p_align & (p->p_align - 1)) == 0)
			plan.align = p->p_align;
		if (plan.phdr == 0 && p->p_offset <= h->e_phoff &&
		    h->e_phoff < p->p_offset + p->p_filesz)
			plan.phdr = h->e_phoff - p->p_offset + p->p_vaddr;
		plan_marks(p, &plan);
	}
	if (!any)
		return -ENOEXEC;
	if (plan.end <= plan.start || plan.align > limit / 2)
		return -EINVAL;
	if (plan.start_code == UINT64_MAX)
		plan.start_code = plan.start;
	*ret = plan;
	return 0;
}

int elf_find_interp(const Elf64_Ehdr *h, const Elf64_Phdr *ph, const Elf64_Phdr **ret)
{
	*ret = NULL;
	for (size_t i = 0; i < h->e_phnum; i++) {
		if (ph[i].p_type != PT_INTERP)
			continue;
		if (ph[i].p_filesz < 2 || ph[i].p_filesz > PATH_MAX ||
		    ph[i].p_offset > INT64_MAX - PATH_MAX)
			return -ENOEXEC;
		*ret = &ph[i];
		return 0;
	}
	return 0;
}

bool elf_exec_stack(const Elf64_Ehdr *h, const Elf64_Phdr *ph)
{
	bool exec = false;

	for (size_t i = 0; i < h->e_phnum; i++)
		if (ph[i].p_type == PT_GNU_STACK)
			exec = ph[i].p_flags & PF_X;
	return exec;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

int script_parse(char *buf, size_t size, struct script_line *ret)
{
	char *p, *end, *name_end;

	if (size < 2 || buf[0] != '#' || buf[1] != '!')
		return -ENOEXEC;
	end = memchr(buf, '\n', size);
	if (end == NULL) {
		/* Cut off, or a file without newline: the name at least must be whole. */
		end = buf + size;
		for (p = buf + 2; p < end && is_blank(*p); p++)
			;
		while (p < end && *p != '\0' && !is_blank(*p))
			p++;
		if (p == end)
			return -ENOEXEC;
	}
	while (end > buf + 2 && is_blank(end[-1]))
		end--;
	*end = '\0';
	for (p = buf + 2; is_blank(*p); p++)
		;
	if (*p == '\0')
		return -ENOEXEC;
	for (name_end = p; *name_end != '\0' && !is_blank(*name_end); name_end++)
		;
	ret->interpreter = p;
	ret->argument = NULL;
	if (*name_end != '\0') {
		*name_end++ = '\0';
		while (is_blank(*name_end))
			name_end++;
		if (*name_end != '\0')
			ret->argument = name_end;
	}
	return 0;
}
