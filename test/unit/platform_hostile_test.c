/* unit: platform base */
/*
 * platform_hostile_test [PLATFORM [CASE]]: guests that use the stub's own code and memory against
 * it.
 */
#include "platform/arch/x86_64/stub_image.h"
#include "platform/stub_calls.h"
#include "test/unit/platform_fixture.h"
#include <sys/time.h>
#include <ucontext.h>

/* As another guest thread could do: gives ctx's thread its turn, at code that never stops. */
static void hijack(struct platform_context *ctx, u64 rip)
{
	ucontext_t *f = (ucontext_t *)(ctx->mem + ctx->uc);

	f->uc_mcontext.gregs[REG_RIP] = (greg_t)rip;
	atomic_store(&ctx->shared->word, TURN_STUB);
	ring_bell(ctx->platform, ctx->slot);
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
		/* It may have been about to sleep, and only the sentry can change the bell. */
		while (*counter == v) {
			sched_yield();
			ring_bell(plat, second->slot);
		}
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

int main(int argc, char **argv)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(test_hostile_parked), cmocka_unit_test(test_jump_everywhere),
		cmocka_unit_test(test_no_mapping),     cmocka_unit_test(test_scribble),
		cmocka_unit_test(test_forged_frame),
	};
#ifdef __SANITIZE_THREAD__
	/* Its alarms end guests that loop; TSan holds signals back until the next call into libc.
	 */
	return 0;
#endif
	return RUN_CASES(argc, argv, cases);
}
