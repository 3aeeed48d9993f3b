/* Functions of the host's vDSO, which every process shares with the sentry. */
#include "base/log.h"
#include "platform/internal.h"
#include <elf.h>
#include <string.h>
#include <sys/auxv.h>

/* The host's own image, mapped whole by its kernel: trusted. Value of a symbol, or 0. */
static u64 find_symbol(const u8 *image, const char *name)
{
	const Elf64_Ehdr *eh = (const void *)image;
	const Elf64_Shdr *sh = (const void *)(image + eh->e_shoff);

	for (int i = 0; i < eh->e_shnum; i++) {
		const Elf64_Sym *sym = (const void *)(image + sh[i].sh_offset);
		const char *strings;

		if (sh[i].sh_type != SHT_DYNSYM || sh[i].sh_link >= eh->e_shnum)
			continue;
		strings = (const char *)image + sh[sh[i].sh_link].sh_offset;
		for (u64 n = 0; n < sh[i].sh_size / sizeof(*sym); n++)
			if (sym[n].st_shndx != SHN_UNDEF &&
			    strcmp(strings + sym[n].st_name, name) == 0)
				return sym[n].st_value;
	}
	return 0;
}

void vdso_find_functions(const struct platform_vdso *vdso, u64 ret[3])
{
	static const char *const names[] = {
		[VDSO_CLOCK_GETTIME / 8] = "__vdso_clock_gettime",
		[VDSO_GETTIMEOFDAY / 8] = "__vdso_gettimeofday",
		[VDSO_GETCPU / 8] = "__vdso_getcpu",
	};
	const u8 *image = (const u8 *)getauxval(AT_SYSINFO_EHDR);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		u64 value = image && vdso->ehdr ? find_symbol(image, names[i]) : 0;

		ret[i] = value ? vdso->ehdr + value : 0;
	}
}
