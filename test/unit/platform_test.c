/* unit: platform base */
/*
 * platform_test [PLATFORM [CASE] | bench]: what a guest does arrives as it did it, and what the
 * sentry says is done.
 */
#include "base/safecopy.h"
#include "test/unit/platform_fixture.h"

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

static int map_late(struct guest *g, u64 addr, u64 offset, int prot)
{
	struct platform_op op = { .kind = PLATFORM_OP_MAP,
				  .addr = addr,
				  .len = 4096,
				  .file = &file,
				  .offset = offset,
				  .prot = prot };

	return platform_as_map_late(g->as, &op, 1);
}

/* What the mapper does as the guest goes on. */
static void test_late(void **state)
{
	struct guest g;
	u64 addr = 0x30000000, other = DATA_OFF + 0x20000;
	int rw = PROT_READ | PROT_WRITE, count = 0;

	guest_new(&g, g_touch, g_touch_end);
	g.regs.rdi = addr;
	assert_int_equal(map_late(&g, addr, DATA_OFF, rw), -EOPNOTSUPP);
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	if (plat->kind == PLATFORM_PTRACE) {
		assert_int_equal(map_late(&g, addr, DATA_OFF, rw), -EOPNOTSUPP);
		guest_free(&g);
		return;
	}
	/* Behind a fault, and behind a call; what was there is replaced. */
	for (int i = 0; i < 200; i++) {
		u64 at = i & 1 ? other : DATA_OFF;

		file_mem[at] = (u8)i;
		assert_int_equal(map_late(&g, addr, at, rw), 0);
		assert_false(platform_as_settled(g.as));
		expect_access(&g);
		assert_int_equal(file_mem[at], 7);
		assert_int_equal(g.regs.orig_rax & 0xff, (u8)i);
		while (!platform_as_settled(g.as)) /* the report comes after the turn */
			;
	}
	/* Another command takes them along. */
	assert_int_equal(map_late(&g, addr, other, rw), 0);
	assert_int_equal(platform_as_unmap(g.as, addr, 4096), 0);
	assert_true(platform_as_settled(g.as));
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	assert_int_equal(map_late(&g, addr, other, PROT_READ), 0);
	platform_as_settle(g.as);
	assert_true(platform_as_settled(g.as));
	expect_fault_code(&g, addr, true, SEGV_ACCERR);
	/* Not behind what was deferred before. */
	assert_int_equal(defer(&g, PLATFORM_OP_UNMAP, addr, 4096, 0), 0);
	assert_int_equal(map_late(&g, addr, other, rw), -EOPNOTSUPP);
	expect_fault_code(&g, addr, false, SEGV_MAPERR);
	while (map_late(&g, addr + 4096 * (u64)count, other, rw) == 0)
		count++;
	assert_int_equal(count, LATE_MAX);
	expect_access(&g);
	/* The fault is there again, and the next command has failed. */
	assert_int_equal(map_late(&g, addr, 1UL << 63, rw), 0);
	expect_access(&g);
	platform_as_settle(g.as); /* the report comes after the turn */
	assert_int_equal(map_late(&g, addr, other, rw), -EOPNOTSUPP);
	assert_false(platform_as_settled(g.as));
	assert_int_equal(platform_as_protect(g.as, addr, 4096, PROT_READ), -ENOMEM);
	assert_int_equal(platform_as_protect(g.as, addr, 4096, PROT_READ), 0);
	/* Nobody is left who could wait for it. */
	assert_int_equal(map_late(&g, addr, other, rw), 0);
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

int main(int argc, char **argv)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(test_syscall),	   cmocka_unit_test(test_faults),
		cmocka_unit_test(test_deferred),   cmocka_unit_test(test_late),
		cmocka_unit_test(test_exceptions), cmocka_unit_test(test_bases),
		cmocka_unit_test(test_vector),	   cmocka_unit_test(test_other_entries),
	};
	const struct CMUnitTest single[] = { cmocka_unit_test(test_probe) };
	const struct CMUnitTest benches[] = { cmocka_unit_test(bench) };

	if (argc > 1 && strcmp(argv[1], "bench") == 0)
		return RUN_CASES(1, argv, benches);
	return RUN_CASES(argc, argv, cases) +
	       (argc > 1 ? 0 : cmocka_run_group_tests(single, NULL, NULL));
}
