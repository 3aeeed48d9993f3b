/*
 * test/unit/platform_fixture.h: small guests, assembled in the test, on both
 * platforms and on seccomp with filters alone. Include in exactly one file of a test.
 *
 *	GUEST(g_one, "mov $500,%eax; syscall");
 *	guest_new(&g, g_one, g_one_end);
 *	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
 *	guest_free(&g);
 */
#ifndef MINISENTRY_TEST_PLATFORM_FIXTURE_H
#define MINISENTRY_TEST_PLATFORM_FIXTURE_H

#include "platform/internal.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CODE 0x10000000UL
#define DATA 0x20000000UL
#define FILE_SIZE (64UL << 20)
#define CODE_OFF 0UL
#define DATA_OFF 0x100000UL

static struct memfile file;
static u8 *file_mem;
static struct platform *plat;

/* A guest program: GUEST(name, "instructions"); its bytes are name .. name_end. */
#define GUEST(name, text)                                                                          \
	extern const u8 name[], name##_end[];                                                      \
	__asm__(".pushsection .rodata\n.globl " #name "\n" #name ":\n" text "\n" #name             \
		"_end:\n.popsection\n")

static void setup(enum platform_kind kind, bool start)
{
	struct platform_config config = {
		.kind = kind, .reuse = true, .spin = true, .pairs = true, .late = true
	};

	if (!file_mem) {
		file.host_fd = memfd_create("guest", MFD_CLOEXEC);
		file.stub_slot = 0;
		assert_true(file.host_fd >= 0);
		assert_int_equal(ftruncate(file.host_fd, FILE_SIZE), 0);
		file_mem =
			mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file.host_fd, 0);
		assert_true(file_mem != MAP_FAILED);
	}
	config.files[0] = &file;
	config.file_count = 1;
	assert_int_equal(platform_new(&config, &plat), 0);
	if (start)
		assert_int_equal(platform_start(plat), 0);
}

static int setup_ptrace(void **state)
{
	setup(PLATFORM_PTRACE, true);
	return 0;
}

static int setup_seccomp(void **state)
{
	setup(PLATFORM_SECCOMP, true);
	return 0;
}

static int setup_filters(void **state)
{
	platform_test_no_dispatch = true;
	setup(PLATFORM_SECCOMP, true);
	platform_test_no_dispatch = false;
	return 0;
}

static int teardown(void **state)
{
	platform_free(plat);
	plat = NULL;
	return 0;
}

struct guest {
	struct platform_as *as;
	struct platform_context *ctx;
	struct user_regs_struct regs;
	struct platform_stop stop;
};

static void guest_load(const u8 *start, const u8 *end)
{
	memcpy(file_mem + CODE_OFF, start, (size_t)(end - start));
}

static void guest_map(struct platform_as *as)
{
	assert_int_equal(
		platform_as_map(as, CODE, 0x10000, &file, CODE_OFF, PROT_READ | PROT_EXEC, false),
		0);
	assert_int_equal(
		platform_as_map(as, DATA, 0x10000, &file, DATA_OFF, PROT_READ | PROT_WRITE, false),
		0);
}

static void guest_new(struct guest *g, const u8 *start, const u8 *end)
{
	memset(g, 0, sizeof(*g));
	guest_load(start, end);
	assert_int_equal(platform_as_new(plat, &g->as), 0);
	guest_map(g->as);
	assert_int_equal(platform_context_new(g->as, &g->ctx), 0);
	g->regs.rip = CODE;
	g->regs.rsp = DATA + 0x8000;
}

static void guest_free(struct guest *g)
{
	platform_context_free(g->ctx);
	platform_as_put(g->as);
}

static void guest_run(struct guest *g)
{
	do
		platform_switch(g->ctx, &g->regs, &g->stop);
	while (g->stop.reason == PLATFORM_STOP_INTERRUPTED);
}

#define EXPECT_STOP(g, what) assert_int_equal((guest_run(g), (g)->stop.reason), (what))

GUEST(g_syscall, "mov $39,%eax; mov $1,%edi; mov $2,%esi; mov $3,%edx; mov $4,%r10d; mov $5,%r8d; "
		 "mov $6,%r9d\n"
		 "mov $0x1111,%ebx; mov $0x2222,%r12d; mov $0x3333,%r15d; stc; syscall\n"
		 "mov %rax,%rbx; mov $500,%eax; syscall; 1: jmp 1b");

GUEST(g_fault, "mov (%rdi),%rax; syscall; movq $7,(%rdi); syscall; jmp *%rdi");

static inline void expect_fault(struct guest *g, u64 addr, bool write, bool exec)
{
	EXPECT_STOP(g, PLATFORM_STOP_FAULT);
	assert_int_equal(g->stop.signo, SIGSEGV);
	assert_int_equal(g->stop.fault_addr, addr);
	assert_int_equal(g->stop.cr2, addr);
	assert_int_equal(g->stop.access_write, write);
	assert_int_equal(g->stop.access_exec, exec);
}

GUEST(g_loop, "1: incl (%rdi); jmp 1b");

/* A second guest thread, owned by its own sentry thread. */
struct second {
	struct platform_as *as;
	struct guest g;
	_Atomic bool ready;
};

/* The cases on each platform, or on the one that the first argument names; a second one filters
 * them. */
#define RUN_CASES(argc, argv, cases)                                                               \
	({                                                                                         \
		int failed_ = 0;                                                                   \
		setvbuf(stdout, NULL, _IOLBF, 0);                                                  \
		if ((argc) > 2)                                                                    \
			cmocka_set_test_filter((argv)[2]);                                         \
		for (size_t i_ = 0; i_ < ARRAY_SIZE(fixture_kinds); i_++)                          \
			if ((argc) <= 1 || strcmp((argv)[1], fixture_kinds[i_].name) == 0)         \
				failed_ += cmocka_run_group_tests_name(                            \
					fixture_kinds[i_].name, cases, fixture_kinds[i_].setup,    \
					teardown);                                                 \
		failed_;                                                                           \
	})

static const struct {
	const char *name;
	CMFixtureFunction setup;
} fixture_kinds[] = { { "ptrace", setup_ptrace },
		      { "seccomp", setup_seccomp },
		      { "filters", setup_filters } };

#endif
