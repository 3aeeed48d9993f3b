/* unit: platform base */
/*
 * platform_test [bench]: small guests, assembled here, on both platforms.
 */
#include "base/log.h"
#include "base/safecopy.h"
#include "platform/arch/x86_64/stub_image.h"
#include "platform/internal.h"
#include "platform/stub_calls.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
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
	struct platform_config config = { .kind = kind, .reuse = true, .spin = true };

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

/* ---- cases ---- */

GUEST(g_syscall, "mov $39,%eax; mov $1,%edi; mov $2,%esi; mov $3,%edx; mov $4,%r10d; mov $5,%r8d; "
		 "mov $6,%r9d\n"
		 "mov $0x1111,%ebx; mov $0x2222,%r12d; mov $0x3333,%r15d; stc; syscall\n"
		 "mov %rax,%rbx; mov $500,%eax; syscall; 1: jmp 1b");

static void test_syscall(void **state)
{
	struct guest g;

	guest_new(&g, g_syscall, g_syscall_end);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal(g.regs.orig_rax, 39);
	assert_int_equal((s64)g.regs.rax, -ENOSYS);
	assert_int_equal(g.regs.rdi, 1);
	assert_int_equal(g.regs.rsi, 2);
	assert_int_equal(g.regs.rdx, 3);
	assert_int_equal(g.regs.r10, 4);
	assert_int_equal(g.regs.r8, 5);
	assert_int_equal(g.regs.r9, 6);
	assert_int_equal(g.regs.rbx, 0x1111);
	assert_int_equal(g.regs.r12, 0x2222);
	assert_int_equal(g.regs.r15, 0x3333);
	assert_int_equal(g.regs.rsp, DATA + 0x8000);
	assert_int_equal(g.regs.rcx, g.regs.rip);
	assert_int_equal(g.regs.r11 & 1, 1);
	assert_int_equal(g.regs.eflags & 1, 1);
	assert_false(g.stop.syscall_is_compat);
	g.regs.rax = 4711;
	g.regs.rsi = 77;
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal(g.regs.orig_rax, 500);
	assert_int_equal(g.regs.rbx, 4711);
	assert_int_equal(g.regs.rsi, 77);
	/* Numbers that a host could take for restarts. */
	for (int e = 510; e < 520; e++) {
		g.regs.rip = CODE;
		g.regs.rax = (u64)-e;
		EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
		assert_int_equal(g.regs.orig_rax, 39);
	}
	guest_free(&g);
}

GUEST(g_fault, "mov (%rdi),%rax; syscall; movq $7,(%rdi); syscall; jmp *%rdi");

static void expect_fault(struct guest *g, u64 addr, bool write, bool exec)
{
	EXPECT_STOP(g, PLATFORM_STOP_FAULT);
	assert_int_equal(g->stop.signo, SIGSEGV);
	assert_int_equal(g->stop.fault_addr, addr);
	assert_int_equal(g->stop.cr2, addr);
	assert_int_equal(g->stop.access_write, write);
	assert_int_equal(g->stop.access_exec, exec);
}

static void test_faults(void **state)
{
	struct guest g;
	u64 addr = 0x30000000;

	guest_new(&g, g_fault, g_fault_end);
	g.regs.rdi = addr;
	memset(file_mem + DATA_OFF + 0x20000, 0x5a, 8);
	expect_fault(&g, addr, false, false);
	assert_int_equal(g.stop.si_code, SEGV_MAPERR);
	assert_int_equal(g.regs.rip, CODE);
	expect_fault(&g, addr, false, false);
	assert_int_equal(platform_as_map_zero(g.as, addr, 4096, PROT_READ), 0);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal((s64)g.regs.rax, -ENOSYS);
	expect_fault(&g, addr, true, false);
	assert_int_equal(g.stop.si_code, SEGV_ACCERR);
	/* Read-only, then writable: as copy-on-write does. */
	struct platform_op readable = { PLATFORM_OP_MAP,    addr,      4096,  &file,
					DATA_OFF + 0x20000, PROT_READ, false, true };
	assert_int_equal(platform_as_batch(g.as, &readable, 1), 0);
	expect_fault(&g, addr, true, false);
	assert_int_equal(platform_as_protect(g.as, addr, 4096, PROT_READ | PROT_WRITE), 0);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal(file_mem[DATA_OFF + 0x20000], 7);
	assert_int_equal(file_mem[DATA_OFF + 0x20001], 0);
	expect_fault(&g, addr, false, true);
	assert_int_equal(g.regs.rip, addr);
	/* Through a batch. */
	struct platform_op ops[] = {
		{ PLATFORM_OP_UNMAP, addr, 4096, NULL, 0, 0, false, false },
		{ PLATFORM_OP_MAP, addr + 4096, 4096, &file, DATA_OFF, PROT_READ, true, false },
		{ PLATFORM_OP_PROTECT, addr + 4096, 4096, NULL, 0, PROT_NONE, false, false },
	};
	assert_int_equal(platform_as_batch(g.as, ops, 3), 0);
	g.regs.rip = CODE;
	expect_fault(&g, addr, false, false);
	assert_int_equal(g.stop.si_code, SEGV_MAPERR);
	g.regs.rdi = addr + 4096;
	expect_fault(&g, addr + 4096, false, false);
	assert_int_equal(g.stop.si_code, SEGV_ACCERR);
	/* Errors of the mapper. */
	assert_int_equal(platform_as_protect(g.as, 0x50000000, 4096, PROT_READ), -ENOMEM);
	assert_int_equal(platform_as_map(g.as, STUB_TEXT, 4096, &file, 0, PROT_READ, false),
			 -EINVAL);
	assert_int_equal(platform_as_unmap(g.as, STUB_TEXT - 4096, 8192), -EINVAL);
	assert_int_equal(platform_as_unmap(g.as, 4096, STUB_AREA - 4096), 0);
	expect_fault(&g, CODE, false, true);
	assert_int_equal(platform_as_unmap(g.as, 4096, STUB_AREA - 4096), 0);
	guest_map(g.as);
	expect_fault(&g, addr + 4096, false, false);
	guest_free(&g);
}

GUEST(g_touch, "mov (%rdi),%al; movb $7,(%rdi); syscall");

static int defer(struct guest *g, int kind, u64 addr, u64 len, int prot)
{
	struct platform_op op = { .kind = kind, .addr = addr, .len = len, .prot = prot };

	return platform_as_defer(g->as, &op);
}

static void expect_fault_code(struct guest *g, u64 addr, bool write, int code)
{
	g->regs.rip = CODE;
	expect_fault(g, addr, write, false);
	assert_int_equal(g->stop.si_code, code);
}

static void expect_access(struct guest *g)
{
	g->regs.rip = CODE;
	EXPECT_STOP(g, PLATFORM_STOP_SYSCALL);
}

/* What a guest thread does itself on its way back. */
static void test_deferred(void **state)
{
	struct guest g;
	u64 addr = 0x30000000;
	int rw = PROT_READ | PROT_WRITE;

	guest_new(&g, g_touch, g_touch_end);
	g.regs.rdi = addr;
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr, 4096, 0), -EOPNOTSUPP);
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	assert_true(platform_as_alone(g.as));
	if (plat->kind == PLATFORM_PTRACE) {
		assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr, 4096, 0), -EOPNOTSUPP);
		guest_free(&g);
		return;
	}
	assert_int_equal(platform_as_map(g.as, addr, 8192, &file, DATA_OFF, rw, false), 0);
	assert_int_equal(defer(&g, PLATFORM_OP_PROTECT, addr, 4096, PROT_NONE), 0);
	expect_fault_code(&g, addr, false, SEGV_ACCERR);
	assert_int_equal(defer(&g, PLATFORM_OP_PROTECT, addr, 4096, PROT_READ), 0);
	expect_fault_code(&g, addr, true, SEGV_ACCERR);
	for (int i = 0; i < CTX_DEFERRED_MAX; i++)
		assert_int_equal(defer(&g, PLATFORM_OP_PROTECT, addr, 4096, i & 1 ? rw : PROT_NONE),
				 0);
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr, 4096, 0), -ENOSPC);
	expect_access(&g);
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr, 4096, 0), 0);
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	/* The mapper does first what has been deferred. */
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr, 8192, 0), 0);
	assert_int_equal(platform_as_map(g.as, addr, 4096, &file, DATA_OFF, rw, false), 0);
	expect_access(&g);
	/* What fails ends up unmapped: no memory there ... */
	assert_int_equal(defer(&g, PLATFORM_OP_PROTECT, addr, 8192, rw), 0);
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	/* ... a mapping that may never be written, in the middle of a list ... */
	assert_int_equal(platform_as_map(g.as, addr, 4096, &file, DATA_OFF, PROT_READ, false), 0);
	assert_int_equal(platform_as_map(g.as, addr + 8192, 4096, &file, DATA_OFF, rw, false), 0);
	assert_int_equal(defer(&g, PLATFORM_OP_PROTECT, addr, 4096, rw), 0);
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr + 8192, 4096, 0), 0);
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	g.regs.rdi = addr + 8192;
	expect_fault_code(&g, addr + 8192, false, SEGV_MAPERR);
	/* ... the zero page: copies of it would be nobody's memory. */
	g.regs.rdi = addr;
	assert_int_equal(platform_as_map_zero(g.as, addr, 16 << 20, PROT_READ), 0);
	assert_int_equal(defer(&g, PLATFORM_OP_PROTECT, addr, 16 << 20, rw), 0);
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	/* Out of bounds for a guest thread. */
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr, STUB_DEFER_LEN, 0), -EOPNOTSUPP);
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, STUB_DEFER_END, 4096, 0), -EOPNOTSUPP);
	guest_free(&g);
}

GUEST(g_exceptions, "ud2\n"
		    "xor %edx,%edx; xor %ecx,%ecx; div %ecx\n"
		    "int3\n"
		    "pushfq; orl $0x100,(%rsp); popfq; nop; nop\n"
		    "hlt\n"
		    "movabs $0x8000000000000000,%rax; mov (%rax),%rax\n");

static void expect_exception(struct guest *g, int signo, u64 rip_offset)
{
	EXPECT_STOP(g, PLATFORM_STOP_EXCEPTION);
	assert_int_equal(g->stop.signo, signo);
	assert_int_equal(g->regs.rip, CODE + rip_offset);
}

static void test_exceptions(void **state)
{
	struct guest g;

	guest_new(&g, g_exceptions, g_exceptions_end);
	expect_exception(&g, SIGILL, 0);
	g.regs.rip += 2;
	expect_exception(&g, SIGFPE, 6);
	assert_int_equal(g.stop.si_code, FPE_INTDIV);
	assert_int_equal(g.stop.fault_addr, CODE + 6);
	g.regs.rip += 2;
	expect_exception(&g, SIGTRAP, 9);
	assert_int_equal(g.stop.si_code, SI_KERNEL);
	expect_exception(&g, SIGTRAP, 19);
	assert_int_equal(g.stop.si_code, TRAP_TRACE);
	assert_int_equal(g.regs.eflags & 0x100, 0x100);
	expect_exception(&g, SIGTRAP, 20);
	g.regs.eflags &= ~0x100UL;
	expect_exception(&g, SIGSEGV, 20);
	assert_int_equal(g.stop.si_code, SI_KERNEL);
	g.regs.rip += 1;
	expect_exception(&g, SIGSEGV, 31);
	/* State that no processor could take. */
	g.regs.rip = 0x8000000000000000;
	EXPECT_STOP(&g, PLATFORM_STOP_EXCEPTION);
	assert_int_equal(g.stop.signo, SIGSEGV);
	g.regs.rip = CODE;
	g.regs.fs_base = 0xffff800000000000;
	EXPECT_STOP(&g, PLATFORM_STOP_EXCEPTION);
	g.regs.fs_base = 0;
	g.regs.eflags = ~0UL & ~0x100UL;
	expect_exception(&g, SIGILL, 0);
	guest_free(&g);
}

GUEST(g_bases, "1: mov %fs:0,%rax; mov %gs:8,%rbx; syscall; jmp 1b");

static void test_bases(void **state)
{
	struct guest g;

	guest_new(&g, g_bases, g_bases_end);
	*(u64 *)(file_mem + DATA_OFF + 0x100) = 0xabcdef;
	*(u64 *)(file_mem + DATA_OFF + 0x208) = 0x123456;
	g.regs.fs_base = DATA + 0x100;
	g.regs.gs_base = DATA + 0x200;
	for (int i = 0; i < 10; i++) {
		EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
		assert_int_equal(g.regs.orig_rax, 0xabcdef);
		assert_int_equal(g.regs.rbx, 0x123456);
		assert_int_equal(g.regs.fs_base, DATA + 0x100);
		assert_int_equal(g.regs.gs_base, DATA + 0x200);
	}
	guest_free(&g);
}

GUEST(g_vector, "movabs $0x1122334455667788,%rax; movq %rax,%xmm3; vpbroadcastq %xmm3,%ymm7\n"
		"movl $0x1f00,(%rsp); ldmxcsr (%rsp); fldpi\n"
		"mov $1,%eax; syscall\n"
		"mov (%rdi),%rbx\n"
		"1: vmovdqu %ymm7,(%rsp); stmxcsr 64(%rsp); movq %xmm3,80(%rsp); mov $2,%eax; "
		"syscall; jmp 1b");

/* The bits of MXCSR that this processor has; AMD's have one more (misaligned accesses) than
 * Intel's. */
static u32 mxcsr_mask(void)
{
	_Alignas(16) u8 area[512] = { 0 };
	u32 mask;

	__builtin_ia32_fxsave(area);
	memcpy(&mask, area + 28, sizeof(mask));
	return mask ? mask : 0xffbf; /* as the manual has it for processors that report none */
}

static void test_vector(void **state)
{
	struct guest g;
	size_t size = platform_xstate_size(plat);
	u8 *x = malloc(size), *y = malloc(size);
	u64 *stack = (u64 *)(file_mem + DATA_OFF + 0x8000);
	u64 bv;

	if (!__builtin_cpu_supports("avx2"))
		skip();
	guest_new(&g, g_vector, g_vector_end);
	/* Before the first run: the initial state. */
	assert_int_equal(platform_get_xstate(g.ctx, x, size), 0);
	assert_int_equal(*(u32 *)(x + 24), 0x1f80);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	g.regs.rdi = 0x40000000;
	EXPECT_STOP(&g, PLATFORM_STOP_FAULT); /* a fault keeps it too */
	g.regs.rdi = DATA;
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	for (int i = 0; i < 4; i++)
		assert_int_equal(stack[i], 0x1122334455667788);
	assert_int_equal(*(u32 *)&stack[8], 0x1f00);
	assert_int_equal(platform_get_xstate(g.ctx, x, size), 0);
	assert_int_equal(*(u64 *)(x + 160 + 16 * 3), 0x1122334455667788);
	assert_int_equal(*(u32 *)(x + 24), 0x1f00);
	memcpy(&bv, x + 512, 8);
	assert_int_equal(bv & 7, 7);
	/* Change it, with things the kernel would refuse. */
	*(u64 *)(x + 160 + 16 * 3) = 0x99;
	*(u32 *)(x + 24) = 0xffff1f80;
	*(u64 *)(x + 520) = ~0UL;
	*(u64 *)(x + 512) |= 1UL << 40;
	memset(x + 528, 0xff, 48);
	assert_int_equal(platform_set_xstate(g.ctx, x, size), 0);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal(stack[10], 0x99);
	assert_int_equal(stack[0], 0x1122334455667788);
	assert_int_equal(*(u32 *)&stack[8] & ~mxcsr_mask(), 0);
	platform_init_xstate(y, size);
	assert_int_equal(platform_set_xstate(g.ctx, y, size), 0);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal(stack[10], 0);
	assert_int_equal(stack[0], 0);
	assert_int_equal(*(u32 *)&stack[8], 0x1f80);
	guest_free(&g);
	/* Before the first run of another one: as clone does. */
	guest_new(&g, g_vector, g_vector_end);
	assert_int_equal(platform_set_xstate(g.ctx, x, size), 0);
	memset(y, 0, size);
	assert_int_equal(platform_get_xstate(g.ctx, y, size), 0);
	assert_int_equal(*(u64 *)(y + 160 + 16 * 3), 0x99);
	g.regs.rip = CODE + (u64)(g_vector_end - g_vector) - 28;
	guest_free(&g);
	free(x);
	free(y);
}

GUEST(g_loop, "1: incl (%rdi); jmp 1b");

static void *interrupter(void *arg)
{
	struct guest *g = arg;
	volatile u32 *counter = (u32 *)(file_mem + DATA_OFF);
	u32 seen = *counter;

	for (int i = 0; *counter == seen && i < 1000000; i++)
		sched_yield();
	platform_context_interrupt(g->ctx);
	return NULL;
}

static void test_interrupt(void **state)
{
	struct guest g;
	pthread_t t;

	guest_new(&g, g_loop, g_loop_end);
	g.regs.rdi = DATA;
	platform_context_interrupt(g.ctx); /* sticky */
	platform_switch(g.ctx, &g.regs, &g.stop);
	assert_int_equal(g.stop.reason, PLATFORM_STOP_INTERRUPTED);
	for (int i = 0; i < 50; i++) {
		volatile u32 *counter = (u32 *)(file_mem + DATA_OFF);
		u32 seen = *counter;

		pthread_create(&t, NULL, interrupter, &g);
		/* One interrupt may stop it twice. */
		do {
			platform_switch(g.ctx, &g.regs, &g.stop);
			assert_int_equal(g.stop.reason, PLATFORM_STOP_INTERRUPTED);
		} while (*counter == seen);
		pthread_join(t, NULL);
	}
	assert_true(platform_context_cpu_ns(g.ctx) > 0);
	guest_free(&g);
}

/* A second guest thread, owned by its own sentry thread. */
struct second {
	struct platform_as *as;
	struct guest g;
	_Atomic bool ready;
};

static void *second_main(void *arg)
{
	struct second *s = arg;

	s->g.as = s->as;
	if (platform_context_new(s->as, &s->g.ctx) < 0)
		return (void *)1;
	s->g.regs.rip = CODE;
	s->g.regs.rdi = DATA;
	s->g.regs.rsp = DATA + 0x4000;
	atomic_store(&s->ready, true);
	guest_run(&s->g);
	platform_context_free(s->g.ctx);
	return NULL;
}

static void test_two_threads_unmap(void **state)
{
	struct guest g;
	struct second s = { 0 };
	pthread_t t;
	void *ret;
	volatile u32 *counter = (u32 *)(file_mem + DATA_OFF);
	u32 v;

	guest_new(&g, g_loop, g_loop_end);
	s.as = g.as;
	pthread_create(&t, NULL, second_main, &s);
	v = *counter;
	while (*counter == v)
		sched_yield();
	/* It runs, and writes. After unmap it cannot. */
	assert_int_equal(platform_as_unmap(g.as, DATA, 0x10000), 0);
	v = *counter;
	for (int i = 0; i < 1000; i++)
		assert_int_equal(*counter, v);
	pthread_join(t, &ret);
	assert_null(ret);
	assert_int_equal(s.g.stop.reason, PLATFORM_STOP_FAULT);
	assert_int_equal(s.g.stop.fault_addr, DATA);
	assert_true(s.g.stop.access_write);
	/* The first one works as before. */
	g.regs.rdi = DATA;
	EXPECT_STOP(&g, PLATFORM_STOP_FAULT);
	guest_free(&g);
}

/* ---- reuse of stubs and threads ---- */

GUEST(g_dirty, "mov %rdi,%rax; mov %rax,0x800(%rsi); mov %rax,0x4000(%rsi); mov %rax,0x7ff8(%rsi)\n"
	       "movq %rax,%xmm5; mov $500,%eax; syscall");
GUEST(g_look,
      "mov 0x800(%rsi),%rbx; mov 0x4000(%rsi),%r12; mov 0x7ff8(%rsi),%r13; movq %xmm5,%r14\n"
      "mov $500,%eax; syscall");

/* The next guest of a stub finds nothing of the former one, and its time is not its own. */
static void test_reuse(void **state)
{
	bool reused = plat->kind == PLATFORM_SECCOMP;
	u64 mark = 0xfeedfacecafebeef, before;
	struct guest g;
	int pid, tid;

	for (int i = 0; i < 20; i++) {
		guest_new(&g, g_dirty, g_dirty_end);
		pid = g.as->pid;
		tid = g.ctx->tid;
		g.regs.rdi = mark;
		g.regs.rsi = STUB_SLOTS + (g.ctx->local_slot ^ 1) * STUB_SLOT_SIZE;
		g.regs.fs_base = g.regs.gs_base = DATA;
		g.regs.eflags |= 0x400; /* DF */
		if (reused) {
			struct platform_context *second;

			assert_int_equal(platform_context_new(g.as, &second), 0);
			EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
			platform_context_free(second);
		}
		guest_free(&g);
		guest_new(&g, g_look, g_look_end);
		assert_int_equal(g.as->pid == pid, reused);
		assert_int_not_equal(g.ctx->tid, tid);
		before = platform_context_cpu_ns(g.ctx);
		assert_true(before < NSEC_PER_SEC / 100);
		g.regs.rsi = STUB_SLOTS + (g.ctx->local_slot ^ 1) * STUB_SLOT_SIZE;
		if (reused) {
			EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
			assert_int_equal(g.regs.rbx | g.regs.r12 | g.regs.r13 | g.regs.r14, 0);
			assert_int_equal(g.regs.eflags & 0x400, 0);
			assert_int_equal(g.regs.fs_base | g.regs.gs_base, 0);
		}
		/* Nothing is mapped but what is asked for. */
		assert_int_equal(platform_as_unmap(g.as, DATA, 0x10000), 0);
		guest_load(g_fault, g_fault_end);
		g.regs.rip = CODE;
		g.regs.rdi = DATA;
		expect_fault(&g, DATA, false, false);
		assert_int_equal(g.stop.si_code, SEGV_MAPERR);
		guest_free(&g);
	}
}

/* As another guest thread could do: gives ctx's thread its turn, at code that never stops. */
static void hijack(struct platform_context *ctx, u64 rip)
{
	ucontext_t *f = (ucontext_t *)(ctx->mem + ctx->uc);

	f->uc_mcontext.gregs[REG_RIP] = (greg_t)rip;
	atomic_store(&ctx->shared->word, TURN_STUB);
	syscall(SYS_futex, &ctx->shared->word, 1 /* FUTEX_WAKE */, 1);
}

static long kill_thread(int pid, int tid, int sig)
{
	return syscall(SYS_tgkill, pid, tid, sig);
}

GUEST(g_spin, "mov $500,%eax; syscall; 1: incq (%rdi); jmp 1b");

/* A parked thread that runs all the same: it is the next context's, or ends the stub. */
static void test_hostile_parked(void **state)
{
	volatile u64 *counter = (u64 *)(file_mem + DATA_OFF);
	struct platform_context *second, *third;
	struct guest g;
	u64 rip, v;
	int pid, tid;

	if (plat->kind == PLATFORM_PTRACE)
		return; /* threads are not kept there */
	for (int round = 0; round < 2; round++) {
		guest_new(&g, g_spin, g_spin_end);
		pid = g.as->pid;
		g.regs.rdi = DATA;
		assert_int_equal(platform_context_new(g.as, &second), 0);
		platform_context_free(g.ctx);
		g.ctx = second;
		EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
		rip = g.regs.rip;
		tid = second->tid;
		assert_int_equal(platform_context_new(g.as, &third), 0);
		g.ctx = third;
		platform_context_free(second);
		hijack(second, rip);
		v = *counter;
		while (*counter == v)
			sched_yield();
		if (round == 0) {
			/* It can be interrupted, and does then what its owner says. */
			platform_context_free(third);
			assert_int_equal(platform_context_new(g.as, &third), 0);
			assert_int_equal(platform_context_new(g.as, &g.ctx), 0);
			assert_int_equal(g.ctx->tid, tid);
			assert_int_equal(kill_thread(pid, tid, STUB_INTERRUPT_SIGNAL), 0);
			while ((atomic_load(&g.ctx->shared->word) & TURN_MASK) != TURN_SENTRY)
				sched_yield();
			g.regs.rip = CODE;
			EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
			platform_context_free(third);
		}
		guest_free(&g);
		v = *counter;
		for (int i = 0; i < 1000; i++)
			assert_int_equal(*counter, v);
		if (round == 1) {
			assert_int_equal(kill(pid, 0), -1); /* it was reaped, not kept */
			guest_new(&g, g_spin, g_spin_end);
			assert_int_not_equal(g.as->pid, pid);
			guest_free(&g);
		}
	}
}

/* A stub that dies in the pool is dead, and known to be before long. */
static void test_death_in_pool(void **state)
{
	struct platform_as *as;
	struct guest g;
	int pid, ret;

	for (int i = 0; i < 20; i++) {
		guest_new(&g, g_syscall, g_syscall_end);
		pid = g.as->pid;
		guest_free(&g);
		kill(pid, SIGKILL);
		do {
			assert_int_equal(platform_as_new(plat, &as), 0);
			ret = platform_as_map(as, DATA, 4096, &file, DATA_OFF, PROT_READ, false);
			assert_true(ret == 0 || ret == -ESRCH);
			assert_true(ret == 0 || platform_as_dead(as));
			platform_as_put(as);
		} while (ret < 0);
	}
}

static void test_many(void **state)
{
	struct guest g[20];

	for (int round = 0; round < 5; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(g); i++) {
			guest_new(&g[i], g_syscall, g_syscall_end);
			EXPECT_STOP(&g[i], PLATFORM_STOP_SYSCALL);
		}
		for (size_t i = 0; i < ARRAY_SIZE(g); i++)
			guest_free(&g[i]);
	}
	guest_new(&g[0], g_syscall, g_syscall_end);
	for (int i = 0; i < 200; i++) {
		struct platform_context *ctx[3];

		for (int j = 0; j < 3; j++) {
			assert_int_equal(platform_context_new(g[0].as, &ctx[j]), 0);
			g[0].regs.rip = CODE;
			platform_switch(ctx[j], &g[0].regs, &g[0].stop);
			assert_int_equal(g[0].stop.reason, PLATFORM_STOP_SYSCALL);
		}
		for (int j = 0; j < 3; j++)
			platform_context_free(ctx[j]);
	}
	guest_free(&g[0]);
}

static void *killer(void *arg)
{
	struct guest *g = arg;
	volatile u32 *counter = (u32 *)(file_mem + DATA_OFF);
	u32 seen = *counter;

	while (*counter == seen)
		sched_yield();
	kill(g->as->pid, SIGKILL);
	return NULL;
}

static void test_death(void **state)
{
	struct guest g;
	pthread_t t;

	/* While it runs. */
	guest_new(&g, g_loop, g_loop_end);
	g.regs.rdi = DATA;
	pthread_create(&t, NULL, killer, &g);
	EXPECT_STOP(&g, PLATFORM_STOP_DEAD);
	EXPECT_STOP(&g, PLATFORM_STOP_DEAD);
	pthread_join(t, NULL);
	assert_int_equal(platform_as_unmap(g.as, DATA, 4096), 0);
	assert_int_equal(platform_as_map(g.as, DATA, 4096, &file, 0, PROT_READ, false), -ESRCH);
	assert_true(platform_as_dead(g.as));
	struct platform_context *ctx;
	assert_int_equal(platform_context_new(g.as, &ctx), -ESRCH);
	guest_free(&g);
	/* While it is stopped. */
	guest_new(&g, g_syscall, g_syscall_end);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	kill(g.as->pid, SIGKILL);
	EXPECT_STOP(&g, PLATFORM_STOP_DEAD);
	guest_free(&g);
	/* Before its first run, and not noticed by anyone. */
	guest_new(&g, g_syscall, g_syscall_end);
	kill(g.as->pid, SIGKILL);
	guest_free(&g);
}

GUEST(g_vsyscall, "mov %rdi,%rbx; call *%rdx; mov %rax,%rbx; mov $500,%eax; syscall");
GUEST(g_int80, "mov $20,%eax; int $0x80; mov %rax,%rbx; mov $500,%eax; syscall");
GUEST(g_x32, "mov $0x40000027,%eax; syscall; mov %rax,%rbx; mov $500,%eax; syscall");

static void test_other_entries(void **state)
{
	struct guest g;
	static const int nr[] = { SYS_gettimeofday, SYS_time, SYS_getcpu };

	for (u64 i = 0; i < 3; i++) {
		guest_new(&g, g_vsyscall, g_vsyscall_end);
		g.regs.rdx = 0xffffffffff600000 + i * 1024;
		g.regs.rdi = DATA;
		guest_run(&g);
		if (g.stop.reason == PLATFORM_STOP_SYSCALL) { /* else the host has none */
			assert_int_equal(g.regs.orig_rax, nr[i]);
			assert_int_equal(g.regs.rdi, DATA);
			assert_int_equal(g.regs.rip, CODE + 5);
			assert_int_equal(g.regs.rsp, DATA + 0x8000);
			g.regs.rax = 99;
			EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
			assert_int_equal(g.regs.rbx, 99);
		} else {
			assert_int_equal(g.stop.signo, SIGSEGV);
		}
		guest_free(&g);
	}
	guest_new(&g, g_int80, g_int80_end);
	guest_run(&g);
	if (g.stop.reason == PLATFORM_STOP_SYSCALL) {
		assert_true(g.stop.syscall_is_compat);
		assert_int_equal(g.regs.orig_rax, 20);
		g.regs.rax = 98;
		EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
		assert_int_equal(g.regs.rbx, 98);
		assert_false(g.stop.syscall_is_compat);
	} else {
		assert_int_equal(g.stop.signo, SIGSEGV);
	}
	guest_free(&g);
	guest_new(&g, g_x32, g_x32_end);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal(g.regs.orig_rax, 0x40000027);
	guest_free(&g);
}

/* Several sentry threads, each with a context in a shared space and spaces of its own. */
static void *parallel_main(void *arg)
{
	struct platform_as *shared = arg, *own;
	struct platform_context *ctx, *mine;
	struct user_regs_struct regs;
	struct platform_stop stop;
	u64 bad = 0;

	for (int round = 0; round < 20; round++) {
		bad += platform_as_new(plat, &own) < 0;
		bad += platform_as_map(own, CODE, 0x10000, &file, CODE_OFF, PROT_READ | PROT_EXEC,
				       false) < 0;
		bad += platform_context_new(own, &mine) < 0;
		bad += platform_context_new(shared, &ctx) < 0;
		if (bad)
			return (void *)bad;
		for (int i = 0; i < 50; i++) {
			memset(&regs, 0, sizeof(regs));
			regs.rip = CODE;
			regs.rsp = DATA + 0x8000;
			platform_switch(i % 2 ? ctx : mine, &regs, &stop);
			bad += stop.reason != PLATFORM_STOP_SYSCALL || regs.rbx != 0x1111;
			bad += platform_as_map(shared, 0x30000000 + (u64)(i % 7) * 4096, 4096,
					       &file, DATA_OFF, PROT_READ, false) < 0;
			platform_context_interrupt(i % 3 ? ctx : mine);
			platform_switch(i % 3 ? ctx : mine, &regs, &stop);
			bad += stop.reason != PLATFORM_STOP_INTERRUPTED;
		}
		platform_context_free(ctx);
		platform_context_free(mine);
		platform_as_put(own);
	}
	return (void *)bad;
}

static void test_parallel(void **state)
{
	struct guest g;
	pthread_t t[6];
	void *ret;

	guest_new(&g, g_syscall, g_syscall_end);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(pthread_create(&t[i], NULL, parallel_main, g.as), 0);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		pthread_join(t[i], &ret);
		assert_null(ret);
	}
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	guest_free(&g);
}

/* ---- hostile ---- */

GUEST(g_jump, "jmp *%rbx");

/* A jump may end in a loop, which is a guest's right: interrupt it. */
static struct platform_context *watched;

static void on_alarm(int sig)
{
	if (watched)
		platform_context_interrupt(watched);
}

static void watch(struct platform_context *ctx)
{
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval tv = { { 0, 20000 }, { 0, 20000 } };

	if (!ctx)
		memset(&tv, 0, sizeof(tv));
	watched = ctx;
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &tv, NULL);
}

/*
 * Jumps to every byte of the stub with the registers of calls that would break
 * out. What the kernel lets through shows as a mapping, a file change, or a process.
 */
static void test_jump_everywhere(void **state)
{
	struct guest g = { 0 };
	u64 size = plat->stub.end - STUB_TEXT, text = 0;
	static const u64 regs[][7] = {
		{ SYS_mmap, 0x60000000, 0x10000, 7, MAP_FIXED | MAP_SHARED, STUB_FD_FILES, 0 },
		{ SYS_write, STUB_FD_DONE, STUB_TEXT, 8, 0, 0, 0 },
		{ SYS_mprotect, CODE, 0x1000, 7, 0, 0, 0 },
		{ SYS_mprotect, STUB_TEXT, 0x1000, 7, 0, 0, 0 },
		{ SYS_munmap, STUB_AREA - 0x1000, 0x10000, 0, 0, 0, 0 },
	};
	u64 mark = 0;

	for (u64 i = 0; i < size; i++) /* code and constants end where padding begins */
		if (stub_image_blob[i])
			text = i;
	for (size_t r = 0; r < ARRAY_SIZE(regs); r++) {
		for (u64 i = 0; i <= text; i++) {
			if (!g.as || platform_as_dead(g.as) ||
			    g.stop.reason == PLATFORM_STOP_DEAD) {
				if (g.as)
					guest_free(&g);
				guest_new(&g, g_jump, g_jump_end);
			}
			memset(&g.regs, 0, sizeof(g.regs));
			g.regs.rip = CODE;
			g.regs.rsp = DATA + 0x8000;
			g.regs.rbx = g.regs.rcx = STUB_TEXT + i;
			g.regs.rax = regs[r][0];
			g.regs.rdi = regs[r][1];
			g.regs.rsi = regs[r][2];
			g.regs.rdx = regs[r][3];
			g.regs.r10 = regs[r][4];
			g.regs.r8 = regs[r][5];
			g.regs.r9 = regs[r][6];
			g.regs.r12 = g.ctx->stub_addr; /* as the stub's code would have it */
			g.regs.r14 = STUB_CONFIG;
			g.regs.rbp = STUB_CMD;
			watch(g.ctx);
			platform_switch(g.ctx, &g.regs, &g.stop);
			watch(NULL);
			mark++;
		}
	}
	assert_true(mark > 1000);
	/* The space, if alive, still does what its sentry says. */
	if (g.stop.reason != PLATFORM_STOP_DEAD) {
		memset(&g.regs, 0, sizeof(g.regs));
		assert_int_equal(
			platform_as_map(g.as, 0x70000000, 4096, &file, 0, PROT_READ, false), 0);
	}
	guest_free(&g);
}

GUEST(g_peek, "mov (%rbx),%rax; syscall");

/* After the attack nothing may be mapped that the sentry did not ask for. */
static void test_no_mapping(void **state)
{
	struct guest g;

	guest_new(&g, g_jump, g_jump_end);
	for (u64 i = 0; i < 0x700; i++) {
		if (g.stop.reason == PLATFORM_STOP_DEAD) {
			guest_free(&g);
			guest_new(&g, g_jump, g_jump_end);
		}
		guest_load(g_jump, g_jump_end);
		memset(&g.regs, 0, sizeof(g.regs));
		g.regs.rip = CODE;
		g.regs.rbx = STUB_TEXT + i;
		g.regs.rax = SYS_mmap;
		g.regs.rdi = 0x60000000;
		g.regs.rsi = 0x10000;
		g.regs.rdx = 7;
		g.regs.r10 = MAP_FIXED | MAP_SHARED;
		g.regs.r8 = STUB_FD_FILES;
		watch(g.ctx);
		platform_switch(g.ctx, &g.regs, &g.stop);
		watch(NULL);
		if (g.stop.reason == PLATFORM_STOP_DEAD)
			continue;
		guest_load(g_peek, g_peek_end);
		memset(&g.regs, 0, sizeof(g.regs));
		g.regs.rip = CODE;
		g.regs.rbx = 0x60000000;
		guest_run(&g);
		if (g.stop.reason != PLATFORM_STOP_DEAD)
			assert_int_equal(g.stop.reason, PLATFORM_STOP_FAULT);
	}
	guest_free(&g);
}

GUEST(g_scribble, "mov %rdi,%r8\n2: mov %rsi,%rcx; mov %r8,%rdi; mov %rdx,%rax; rep stosq; add "
		  "$0x1111,%rdx; jmp 2b");

static void *scribbler(void *arg)
{
	struct second *s = arg;

	if (platform_context_new(s->as, &s->g.ctx) < 0)
		return NULL;
	s->g.regs.rip = CODE + 0x1000;
	s->g.regs.rdi = STUB_SLOTS; /* the first context's slot */
	s->g.regs.rsi = STUB_SLOT_SIZE / 8;
	s->g.regs.rdx = 0x4141414141414141;
	atomic_store(&s->ready, true);
	guest_run(&s->g);
	platform_context_free(s->g.ctx);
	return NULL;
}

/* One guest thread overwrites another one's slot all the time: anything but trouble for us. */
static void test_scribble(void **state)
{
	for (int round = 0; round < 10; round++) {
		struct guest g;
		struct second s = { 0 };
		pthread_t t;
		u8 *x = malloc(platform_xstate_size(plat));

		memcpy(file_mem + CODE_OFF + 0x1000, g_scribble,
		       (size_t)(g_scribble_end - g_scribble));
		guest_new(&g, g_syscall, g_syscall_end);
		s.as = g.as;
		pthread_create(&t, NULL, scribbler, &s);
		for (int i = 0; i < 2000; i++) {
			g.regs.rip = CODE;
			g.regs.fs_base = g.regs.gs_base = 0;
			watch(g.ctx);
			platform_switch(g.ctx, &g.regs, &g.stop);
			watch(NULL);
			if (g.stop.reason == PLATFORM_STOP_DEAD)
				break;
			if (platform_get_xstate(g.ctx, x, platform_xstate_size(plat)) < 0 ||
			    platform_set_xstate(g.ctx, x, platform_xstate_size(plat)) < 0)
				break;
		}
		kill(g.as->pid, SIGKILL);
		pthread_join(t, NULL);
		guest_free(&g);
		free(x);
	}
}

/*
 * A guest forges a signal frame that blocks all signals, returns through it by
 * the stub's own code, and loops: it cannot be interrupted, so it is killed.
 */
static void test_forged_frame(void **state)
{
	struct guest g;
	ucontext_t *uc = (ucontext_t *)(file_mem + DATA_OFF + 0x1000);

	memcpy(file_mem + CODE_OFF + 0x1000, g_loop, (size_t)(g_loop_end - g_loop));
	guest_new(&g, g_jump, g_jump_end);
	memset(uc, 0, 304);
	uc->uc_mcontext.gregs[REG_RIP] = CODE + 0x1000;
	uc->uc_mcontext.gregs[REG_RDI] = DATA;
	uc->uc_mcontext.gregs[REG_CSGSFS] = (greg_t)(0x33 | 0x2bULL << 48);
	memset(&uc->uc_sigmask, 0xff, 8);
	g.regs.rbx = plat->stub.signal_restorer;
	g.regs.rsp = DATA + 0x1000;
	watch(g.ctx);
	platform_switch(g.ctx, &g.regs, &g.stop);
	watch(NULL);
	/* ptrace sees the rt_sigreturn as a system call. */
	assert_int_equal(g.stop.reason, platform_kind_of(plat) == PLATFORM_PTRACE
						? PLATFORM_STOP_SYSCALL
						: PLATFORM_STOP_DEAD);
	guest_free(&g);
}

/* ---- the sentry's death ---- */

/* True while any process of session `sid` other than zombies exists. */
static bool session_alive(int sid)
{
	char cmd[64];

	(void)cmd;
	return kill(-sid, 0) == 0;
}

static void test_sentry_killed(void **state)
{
	for (enum platform_kind kind = PLATFORM_SECCOMP; kind <= PLATFORM_PTRACE; kind++) {
		int pipe_fds[2], status, zygote = 0;
		pid_t pid;

		assert_int_equal(pipe(pipe_fds), 0);
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		pid = fork();
		if (pid == 0) {
			struct guest g;

			setup(kind, true);
			guest_new(&g, g_loop, g_loop_end);
			g.regs.rdi = DATA;
			for (int i = 0; i < 5; i++) {
				struct guest other;
				guest_new(&other, g_loop, g_loop_end);
			}
			if (write(pipe_fds[1], &plat->zygote_pid, sizeof(int)) != sizeof(int))
				_exit(1);
			guest_run(&g);
			_exit(0);
		}
		assert_int_equal(read(pipe_fds[0], &zygote, sizeof(int)), sizeof(int));
		assert_true(session_alive(zygote));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		/* Its children are ours now, in the zygote's group: every one of them ends. */
		while (waitpid(-zygote, &status, __WALL) > 0)
			;
		assert_false(session_alive(zygote));
		close(pipe_fds[0]);
		close(pipe_fds[1]);
	}
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static void test_probe(void **state)
{
	char reason[160];

	assert_int_equal(platform_probe(PLATFORM_SECCOMP, reason, sizeof(reason)), 0);
	assert_int_equal(platform_probe(PLATFORM_PTRACE, reason, sizeof(reason)), 0);
}

/* ---- measurements (not asserted) ---- */

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

GUEST(g_getppid, "1: mov $110,%eax; syscall; jmp 1b");

/* Best of BATCHES: the machine has others to serve. */
#define BATCHES 20
#define MEASURE(what, n, statement)                                                                \
	do {                                                                                       \
		u64 best_ = UINT64_MAX;                                                            \
		for (int b_ = 0; b_ < BATCHES; b_++) {                                             \
			u64 t_ = now_ns();                                                         \
			for (int i = 0; i < (n); i++) {                                            \
				statement;                                                         \
			}                                                                          \
			t_ = now_ns() - t_;                                                        \
			best_ = MIN(best_, t_);                                                    \
		}                                                                                  \
		printf("%s: %s %.2f us\n", platform_name(platform_kind_of(plat)), what,            \
		       (double)best_ / (n) / 1e3);                                                 \
	} while (0)

static void bench_process(void)
{
	struct guest g;

	guest_new(&g, g_getppid, g_getppid_end);
	guest_run(&g);
	guest_free(&g);
}

static void bench_fault(struct guest *g, u64 addr)
{
	g->regs.rip = CODE;
	g->regs.rdi = addr;
	guest_run(g);
	platform_as_map(g->as, addr, 4096, &file, 0, PROT_READ, false);
	guest_run(g);
}

static void bench(void **state)
{
	struct guest g;
	struct platform_as *as;
	struct platform_context *ctx;
	u64 addr = 0x50000000;

	guest_new(&g, g_getppid, g_getppid_end);
	MEASURE("round trip", 2000, guest_run(&g));
	MEASURE("map", 100, platform_as_map(g.as, addr += 8192, 4096, &file, 0, PROT_READ, false));
	MEASURE("context_new + free", 10, {
		assert_int_equal(platform_context_new(g.as, &ctx), 0);
		platform_context_free(ctx);
	});
	guest_free(&g);
	MEASURE("as_new + put", 10, {
		assert_int_equal(platform_as_new(plat, &as), 0);
		platform_as_put(as);
	});
	MEASURE("as, 2 maps, context, run, free", 10, bench_process());
	guest_new(&g, g_fault, g_fault_end);
	addr = 0x50000000;
	MEASURE("fault, map, and a system call", 50, bench_fault(&g, addr += 8192));
	guest_free(&g);
}

#define CASES(suffix)                                                                              \
	cmocka_unit_test(test_syscall), cmocka_unit_test(test_faults),                             \
		cmocka_unit_test(test_deferred), cmocka_unit_test(test_exceptions),                \
		cmocka_unit_test(test_bases), cmocka_unit_test(test_vector),                       \
		cmocka_unit_test(test_interrupt), cmocka_unit_test(test_two_threads_unmap),        \
		cmocka_unit_test(test_reuse), cmocka_unit_test(test_hostile_parked),               \
		cmocka_unit_test(test_death_in_pool), cmocka_unit_test(test_many),                 \
		cmocka_unit_test(test_death), cmocka_unit_test(test_other_entries),                \
		cmocka_unit_test(test_parallel), cmocka_unit_test(test_jump_everywhere),           \
		cmocka_unit_test(test_no_mapping), cmocka_unit_test(test_scribble),                \
		cmocka_unit_test(test_forged_frame)

int main(int argc, char **argv)
{
#ifdef __SANITIZE_THREAD__
	/* Its alarms end guests that loop; TSan holds signals back until the next call into libc.
	 */
	return 0;
#endif
	const struct CMUnitTest cases[] = { CASES() };
	const struct CMUnitTest benches[] = { cmocka_unit_test(bench) };
	const struct CMUnitTest single[] = { cmocka_unit_test(test_sentry_killed),
					     cmocka_unit_test(test_probe) };
	int failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && strcmp(argv[1], "bench") == 0) {
		cmocka_run_group_tests_name("ptrace", benches, setup_ptrace, teardown);
		cmocka_run_group_tests_name("seccomp", benches, setup_seccomp, teardown);
		return cmocka_run_group_tests_name("filters", benches, setup_filters, teardown);
	}
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (argc <= 1 || strcmp(argv[1], "ptrace") == 0)
		failed += cmocka_run_group_tests_name("ptrace", cases, setup_ptrace, teardown);
	if (argc <= 1 || strcmp(argv[1], "seccomp") == 0)
		failed += cmocka_run_group_tests_name("seccomp", cases, setup_seccomp, teardown);
	if (argc <= 1 || strcmp(argv[1], "filters") == 0)
		failed += cmocka_run_group_tests_name("seccomp, filters", cases, setup_filters,
						      teardown);
	if (argc <= 1 || strcmp(argv[1], "single") == 0)
		failed += cmocka_run_group_tests_name("single", single, NULL, NULL);
	return failed;
}
