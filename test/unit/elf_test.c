/* unit: sentry base */
/* ELF headers and #! lines: good files, each kind of damage, random mutation. */
#include "sentry/exec/elf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIMIT 0x7ffffffff000ULL
#define MUTATIONS 200000

struct sample {
	Elf64_Ehdr h;
	Elf64_Phdr ph[5];
};

/* A PIE with interpreter, code, data with bss, stack header. */
static struct sample sample(void)
{
	struct sample s = { .h = { .e_type = ET_DYN,
				   .e_machine = EM_X86_64,
				   .e_version = 1,
				   .e_entry = 0x1000,
				   .e_phoff = sizeof(Elf64_Ehdr),
				   .e_phentsize = sizeof(Elf64_Phdr),
				   .e_phnum = 5 } };

	memcpy(s.h.e_ident, ELFMAG, SELFMAG);
	s.h.e_ident[EI_CLASS] = ELFCLASS64;
	s.ph[0] = (Elf64_Phdr){ .p_type = PT_INTERP, .p_offset = 0x200, .p_filesz = 28 };
	s.ph[1] = (Elf64_Phdr){ .p_type = PT_LOAD,
				.p_flags = PF_R,
				.p_filesz = 0x800,
				.p_memsz = 0x800,
				.p_align = 0x1000 };
	s.ph[2] = (Elf64_Phdr){ .p_type = PT_LOAD,
				.p_flags = PF_R | PF_X,
				.p_offset = 0x1000,
				.p_vaddr = 0x1000,
				.p_filesz = 0x2345,
				.p_memsz = 0x2345,
				.p_align = 0x200000 };
	s.ph[3] = (Elf64_Phdr){ .p_type = PT_LOAD,
				.p_flags = PF_R | PF_W,
				.p_offset = 0x4000,
				.p_vaddr = 0x5000,
				.p_filesz = 0x10,
				.p_memsz = 0x5000,
				.p_align = 0x1000 };
	s.ph[4] = (Elf64_Phdr){ .p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W };
	return s;
}

static void good_file(void **state)
{
	struct sample s = sample();
	const Elf64_Phdr *interp;
	struct elf_plan plan;
	Elf64_Ehdr h;

	assert_int_equal(elf_check_header(&s, sizeof(s), &h), 0);
	assert_int_equal(elf_make_plan(&h, s.ph, LIMIT, &plan), 0);
	assert_int_equal(plan.start, 0);
	assert_int_equal(plan.end, 0xa000);
	assert_int_equal(plan.align, 0x200000);
	assert_int_equal(plan.phdr, sizeof(Elf64_Ehdr));
	assert_int_equal(plan.brk, 0xa000);
	assert_int_equal(plan.start_code, 0x1000);
	assert_int_equal(plan.end_code, 0x3345);
	assert_int_equal(plan.start_data, 0x5000);
	assert_int_equal(plan.end_data, 0x5010);
	assert_int_equal(elf_find_interp(&h, s.ph, &interp), 0);
	assert_ptr_equal(interp, &s.ph[0]);
	assert_false(elf_exec_stack(&h, s.ph));
	s.ph[4].p_flags |= PF_X;
	assert_true(elf_exec_stack(&h, s.ph));
	assert_int_equal(elf_prot(PF_R | PF_X), PROT_READ | PROT_EXEC);
}

static int header_result(const struct sample *s, size_t len)
{
	Elf64_Ehdr h;

	return elf_check_header(s, len, &h);
}

static void bad_headers(void **state)
{
	struct sample s = sample();

	for (size_t len = 0; len < sizeof(Elf64_Ehdr); len++)
		assert_int_equal(header_result(&s, len), -ENOEXEC);
	s.h.e_ident[0] = 'E';
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
	s = sample();
	s.h.e_ident[EI_CLASS] = ELFCLASS32;
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
	s = sample();
	s.h.e_machine = EM_AARCH64;
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
	s = sample();
	s.h.e_type = ET_REL;
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
	s = sample();
	s.h.e_phentsize = 32;
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
	s = sample();
	s.h.e_phnum = 0;
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
	s.h.e_phnum = 0xffff;
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
	s = sample();
	s.h.e_phoff = UINT64_MAX - 8;
	assert_int_equal(header_result(&s, sizeof(s)), -ENOEXEC);
}

static int plan_result(const struct sample *s)
{
	struct elf_plan plan;

	return elf_make_plan(&s->h, s->ph, LIMIT, &plan);
}

static void bad_segments(void **state)
{
	struct sample s = sample();
	const Elf64_Phdr *interp;

	s.ph[3].p_filesz = s.ph[3].p_memsz + 1;
	assert_int_equal(plan_result(&s), -EINVAL);
	s = sample();
	s.ph[3].p_vaddr = UINT64_MAX - 0x1000;
	assert_int_equal(plan_result(&s), -EINVAL);
	s = sample();
	s.ph[3].p_memsz = LIMIT;
	assert_int_equal(plan_result(&s), -EINVAL);
	s = sample();
	s.ph[3].p_offset = INT64_MAX;
	assert_int_equal(plan_result(&s), -EINVAL);
	s = sample();
	s.ph[2].p_align = 3; /* not a power of two: ignored */
	assert_int_equal(plan_result(&s), 0);
	s.ph[2].p_align = 1ULL << 63;
	assert_int_equal(plan_result(&s), -EINVAL);
	s = sample();
	for (size_t i = 1; i < 4; i++)
		s.ph[i].p_type = PT_NOTE;
	assert_int_equal(plan_result(&s), -ENOEXEC);
	s = sample();
	s.ph[0].p_filesz = 1;
	assert_int_equal(elf_find_interp(&s.h, s.ph, &interp), -ENOEXEC);
	s.ph[0].p_filesz = 4097;
	assert_int_equal(elf_find_interp(&s.h, s.ph, &interp), -ENOEXEC);
}

/* Whatever the bytes, an accepted plan describes segments that fit. */
static void random_mutation(void **state)
{
	unsigned int seed = 1;
	size_t accepted = 0;

	for (int n = 0; n < MUTATIONS; n++) {
		struct sample s = sample();
		struct elf_plan plan;
		Elf64_Ehdr h;

		for (int i = rand_r(&seed) % 6; i >= 0; i--) {
			size_t at = (size_t)rand_r(&seed) % sizeof(s);

			((u8 *)&s)[at] = (u8)(rand_r(&seed) % 3 ? rand_r(&seed) : 0xff);
		}
		if (elf_check_header(&s, sizeof(s), &h) < 0 || h.e_phnum > 5 ||
		    elf_make_plan(&h, s.ph, LIMIT, &plan) < 0)
			continue;
		accepted++;
		assert_true(plan.start < plan.end && page_aligned(plan.start) &&
			    page_aligned(plan.end));
		assert_true(plan.end <= LIMIT + PAGE_SIZE && plan.brk <= plan.end);
		assert_int_equal(plan.align & (plan.align - 1), 0);
		for (size_t i = 0; i < h.e_phnum; i++) {
			if (s.ph[i].p_type != PT_LOAD)
				continue;
			assert_true(s.ph[i].p_vaddr >= plan.start &&
				    s.ph[i].p_filesz <= s.ph[i].p_memsz);
			assert_true(s.ph[i].p_memsz <= plan.end - s.ph[i].p_vaddr);
			assert_true(s.ph[i].p_offset + s.ph[i].p_filesz >= s.ph[i].p_offset);
		}
	}
	assert_true(accepted > MUTATIONS / 100);
}

static int parse(const char *text, struct script_line *ret)
{
	static char buf[257];

	memset(buf, 0, sizeof(buf));
	memcpy(buf, text, strnlen(text, 256));
	return script_parse(buf, 256, ret);
}

static void scripts(void **state)
{
	struct script_line s;
	char longest[300];

	assert_int_equal(parse("#!/bin/sh\necho\n", &s), 0);
	assert_string_equal(s.interpreter, "/bin/sh");
	assert_null(s.argument);
	assert_int_equal(parse("#! \t/usr/bin/env  python3 -u \t\nx", &s), 0);
	assert_string_equal(s.interpreter, "/usr/bin/env");
	assert_string_equal(s.argument, "python3 -u");
	assert_int_equal(parse("#!/bin/sh -e\n", &s), 0);
	assert_string_equal(s.argument, "-e");
	assert_int_equal(parse("#!\n", &s), -ENOEXEC);
	assert_int_equal(parse("#!   \t \n", &s), -ENOEXEC);
	assert_int_equal(parse("#", &s), -ENOEXEC);
	assert_int_equal(parse("echo\n", &s), -ENOEXEC);
	/* No newline: fine when the name ends, not when it may have been cut. */
	assert_int_equal(parse("#!/bin/sh", &s), 0);
	assert_int_equal(parse("#!/bin/sh x", &s), 0);
	memset(longest, 'a', sizeof(longest));
	memcpy(longest, "#!", 2);
	longest[299] = '\0';
	assert_int_equal(parse(longest, &s), -ENOEXEC);
	longest[100] = ' ';
	assert_int_equal(parse(longest, &s), 0);
	assert_int_equal(strlen(s.argument), 155);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_file),	cmocka_unit_test(bad_headers),
		cmocka_unit_test(bad_segments), cmocka_unit_test(random_mutation),
		cmocka_unit_test(scripts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
