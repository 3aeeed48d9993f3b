/* unit: platform base */
/*
 * platform_threads_test [PLATFORM [CASE]]: stubs and their threads, many at once, reused,
 * interrupted, killed.
 */
#include "base/host_thread.h"
#include "platform/seccomp/seccomp.h"
#include "platform/stub_calls.h"
#include "test/unit/platform_fixture.h"
#include <limits.h>
#include <sys/prctl.h>

/* A guest that counts, and how far it has come. */
static void counting_new(struct guest *g)
{
	guest_new(g, g_loop, g_loop_end);
	g->regs.rdi = DATA;
}

static u32 counted(void)
{
	return *(volatile u32 *)(file_mem + DATA_OFF);
}

/* Returns when it has counted on, or after so many turns. */
static void await_counting(int turns)
{
	u32 seen = counted();

	for (int i = 0; counted() == seen && i < turns; i++)
		sched_yield();
}

static void *interrupter(void *arg)
{
	struct guest *g = arg;

	await_counting(1000000);
	platform_context_interrupt(g->ctx);
	return NULL;
}

static void test_interrupt(void **state)
{
	struct guest g;
	pthread_t t;

	counting_new(&g);
	platform_context_interrupt(g.ctx); /* sticky */
	platform_switch(g.ctx, &g.regs, &g.stop);
	assert_int_equal(g.stop.reason, PLATFORM_STOP_INTERRUPTED);
	for (int i = 0; i < 50; i++) {
		u32 seen = counted();

		pthread_create(&t, NULL, interrupter, &g);
		/* One interrupt may stop it twice. */
		do {
			platform_switch(g.ctx, &g.regs, &g.stop);
			assert_int_equal(g.stop.reason, PLATFORM_STOP_INTERRUPTED);
		} while (counted() == seen);
		pthread_join(t, NULL);
	}
	assert_true(platform_context_cpu_ns(g.ctx) > 0);
	guest_free(&g);
}

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
	u32 v;

	counting_new(&g);
	s.as = g.as;
	pthread_create(&t, NULL, second_main, &s);
	await_counting(INT_MAX);
	/* It runs, and writes. After unmap it cannot. */
	assert_int_equal(platform_as_unmap(g.as, DATA, 0x10000), 0);
	v = counted();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(counted(), v);
	pthread_join(t, &ret);
	assert_null(ret);
	assert_int_equal(s.g.stop.reason, PLATFORM_STOP_FAULT);
	assert_int_equal(s.g.stop.fault_addr, DATA);
	assert_true(s.g.stop.access_write);
	/* The first one works as before. */
	EXPECT_STOP(&g, PLATFORM_STOP_FAULT);
	guest_free(&g);
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

	await_counting(INT_MAX);
	kill(g->as->pid, SIGKILL);
	return NULL;
}

static void test_death(void **state)
{
	struct guest g;
	pthread_t t;

	/* While it runs. */
	counting_new(&g);
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
	int pid, tid, again = 0;
	bool kept;

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
		/* Where the machine is busy a thread may be too late: its stub goes. */
		kept = g.as->pid == pid;
		assert_true(reused || !kept);
		again += kept;
		assert_int_not_equal(g.ctx->tid, tid);
		before = platform_context_cpu_ns(g.ctx);
		assert_true(before < NSEC_PER_SEC / 100);
		g.regs.rsi = STUB_SLOTS + (g.ctx->local_slot ^ 1) * STUB_SLOT_SIZE;
		if (kept) {
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
	assert_true(!reused || again > 0);
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

/* ---- on which CPU ---- */

static int cpus_of(int tid)
{
	cpu_set_t set;

	assert_int_equal(sched_getaffinity(tid, sizeof(set), &set), 0);
	return CPU_COUNT(&set);
}

/* Without a CPU to spare the owner and the mapper stay with their stub's thread, which stays free.
 */
static void test_beside(void **state)
{
	struct platform_context *second;
	u32 pairs = plat->pairs.count;
	bool spin = plat->spin;
	struct guest g;
	int all;

	if (plat->kind != PLATFORM_SECCOMP)
		return; /* there the owner is a tracer */
	host_unbind_self();
	all = cpus_of(0);
	if (all < 2)
		skip();
	plat->spin = false;
	plat->pairs.count = 0;
	guest_new(&g, g_syscall, g_syscall_end);
	/* The scheduler may move it meanwhile. */
	for (int i = 0; i < 10000 && !g.ctx->pace.beside; i++) {
		g.regs.rip = CODE;
		EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	}
	assert_int_equal(cpus_of(0), 1);
	assert_int_equal(g.ctx->pace.beside, sched_getcpu() + 1);
	assert_int_equal(cpus_of(g.as->pid), 1);
	/* One that was used before may still be where that was. */
	assert_int_equal(cpus_of(g.ctx->tid), g.ctx->bound ? 1 : all);
	assert_int_equal(platform_context_new(g.as, &second), 0);
	assert_int_equal(cpus_of(second->tid), all);
	platform_context_free(second);
	/* A stub may say anything. */
	for (u32 cpu = 0; cpu <= 0xfff; cpu++)
		for (int i = 0; i < 8; i++)
			pair_stay_beside(g.ctx, cpu);
	assert_int_equal(cpus_of(0), 1);
	pair_move_away(g.ctx);
	assert_int_equal(cpus_of(0), all);
	assert_int_equal(cpus_of(g.as->pid), all);
	guest_free(&g);
	assert_int_equal(atomic_load(&plat->active), 0);
	assert_int_equal(atomic_load(&plat->computing), 0);
	plat->spin = spin;
	plat->pairs.count = pairs;
}

/* What a context has bound is free when it ends, for the next one may be elsewhere. */
static void test_beside_ends(void **state)
{
	struct cpu_pairs *pairs = &plat->pairs;
	u32 count = pairs->count;
	bool spin = plat->spin;
	struct guest g;
	int all, pid;

	if (plat->kind != PLATFORM_SECCOMP)
		return;
	host_unbind_self();
	all = cpus_of(0);
	if (all < 2)
		skip();
	for (int on_pair = 0; on_pair < 2; on_pair++) {
		plat->spin = false;
		pairs->count = on_pair;
		guest_new(&g, g_syscall, g_syscall_end);
		pid = g.as->pid;
		for (int i = 0; i < 10000 && !g.ctx->pace.beside && !g.ctx->pace.pair; i++) {
			g.regs.rip = CODE;
			EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
		}
		assert_int_equal(cpus_of(pid), 1);
		guest_free(&g);
		/* Others need the CPUs of the pair now, and then this one has some to spare. */
		atomic_fetch_add(&plat->active, 2);
		atomic_fetch_add(&plat->computing, plat->cpus);
		guest_new(&g, g_syscall, g_syscall_end);
		EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
		atomic_fetch_sub(&plat->active, 2);
		atomic_fetch_sub(&plat->computing, plat->cpus);
		plat->spin = true;
		pairs->count = 0;
		g.regs.rip = CODE;
		EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
		assert_int_equal(cpus_of(0), all);
		assert_int_equal(cpus_of(g.ctx->tid), all);
		if (g.as->pid == pid) /* or a thread of the former guest was too late */
			assert_int_equal(cpus_of(pid), all);
		guest_free(&g);
	}
	plat->spin = spin;
	pairs->count = count;
}

/* Turns that take a time slice each make a context leave a pair whose CPUs others need, too. */
static void test_leaves_crowded(void **state)
{
	struct pair_watch watch = { .interval_ns = 1 };
	u32 count = plat->pairs.count;
	struct guest g;

	if (plat->kind != PLATFORM_SECCOMP)
		return;
	host_unbind_self();
	if (cpus_of(0) < 2)
		skip();
	plat->pairs.count = 1;
	guest_new(&g, g_syscall, g_syscall_end);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	assert_int_equal(g.ctx->pace.pair, 1);
	/* Its stub does not run. */
	atomic_fetch_add(&plat->active, 2);
	for (int i = 0; i < 8; i++)
		pair_watch(g.ctx, &watch, UINT64_MAX);
	assert_int_equal(g.ctx->pace.pair, 1);
	atomic_fetch_add(&plat->computing, plat->cpus);
	for (int i = 0; i < 8 && g.ctx->pace.pair; i++)
		pair_watch(g.ctx, &watch, UINT64_MAX);
	assert_int_equal(g.ctx->pace.pair, 0);
	atomic_fetch_sub(&plat->computing, plat->cpus);
	atomic_fetch_sub(&plat->active, 2);
	guest_free(&g);
	plat->pairs.count = count;
}

/* Wherever a stub says it is, its owner and the mapper stay on the sentry's CPUs. */
static void test_only_own_cpus(void **state)
{
	struct host_cpus all;
	struct guest g;
	int cpu;

	if (plat->kind != PLATFORM_SECCOMP)
		return;
	host_cpus(&all);
	guest_new(&g, g_syscall, g_syscall_end);
	EXPECT_STOP(&g, PLATFORM_STOP_SYSCALL);
	for (u32 said = 0; said <= 0xfff; said++) {
		for (int i = 0; i < 8; i++)
			pair_stay_beside(g.ctx, said);
		cpu = sched_getcpu();
		assert_true(all.bits[cpu / 64] >> (cpu % 64) & 1);
	}
	pair_move_away(g.ctx);
	guest_free(&g);
}

/* The same where the sentry has but one CPU of several. */
static void test_confined(void **state)
{
	int pid = fork(), status;

	assert_true(pid >= 0);
	if (pid == 0) {
		struct host_cpus one = { { 0 } };
		int cpu = sched_getcpu();

		one.bits[cpu / 64] = 1ULL << (cpu % 64);
		if (sched_setaffinity(0, sizeof(one), (const cpu_set_t *)&one) == 0)
			execl("/proc/self/exe", "platform_threads_test", "seccomp",
			      "test_only_own_cpus", NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- the sentry's death ---- */

static bool group_alive(int pgid)
{
	return kill(-pgid, 0) == 0;
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
			counting_new(&g);
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
		assert_true(group_alive(zygote));
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		/* Its children are ours now, in the zygote's group: every one of them ends. */
		while (waitpid(-zygote, &status, __WALL) > 0)
			;
		assert_false(group_alive(zygote));
		close(pipe_fds[0]);
		close(pipe_fds[1]);
	}
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

static _Atomic bool stop_all;
GUEST(g_call_and_read, "1: mov $39, %eax; syscall; mov (%rdi), %rax; jmp 1b");

/*
 * Maps beside a guest whose own mappings are left for later: either side may wake the mapper. With
 * pauses: a lock that is taken again at once is kept from whoever has to wake up first. And fewer
 * than 1 << 16 times: a guest that waits for a command that is over must not meet its number again.
 */
static void *map_beside(void *arg)
{
	struct timespec pause = { 0, 20000 };
	struct guest *g = arg;

	for (int i = 0; i < 1 << 15 && !atomic_load(&stop_all); i++) {
		platform_as_map(g->as, DATA + 0x100000, 0x1000, &file, DATA_OFF + 0x20000,
				PROT_READ, false);
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void test_late_beside_others(void **state)
{
	struct platform_op op = { .kind = PLATFORM_OP_MAP,
				  .addr = DATA + 0x200000,
				  .len = 0x1000,
				  .file = &file,
				  .offset = DATA_OFF + 0x30000,
				  .prot = PROT_READ };
	struct guest g;
	pthread_t t;

	guest_new(&g, g_call_and_read, g_call_and_read_end);
	g.regs.rdi = DATA;
	atomic_store(&stop_all, false);
	pthread_create(&t, NULL, map_beside, &g);
	for (int i = 0; i < 20000; i++) {
		platform_switch(g.ctx, &g.regs, &g.stop);
		assert_int_equal(g.stop.reason, PLATFORM_STOP_SYSCALL);
		platform_as_map_late(g.as, &op, 1);
	}
	atomic_store(&stop_all, true);
	pthread_join(t, NULL);
	guest_free(&g);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(test_interrupt),     cmocka_unit_test(test_two_threads_unmap),
		cmocka_unit_test(test_reuse),	      cmocka_unit_test(test_death_in_pool),
		cmocka_unit_test(test_many),	      cmocka_unit_test(test_death),
		cmocka_unit_test(test_parallel),      cmocka_unit_test(test_late_beside_others),
		cmocka_unit_test(test_beside),	      cmocka_unit_test(test_beside_ends),
		cmocka_unit_test(test_only_own_cpus), cmocka_unit_test(test_leaves_crowded),
	};
	const struct CMUnitTest single[] = { cmocka_unit_test(test_sentry_killed),
					     cmocka_unit_test(test_confined) };

	return RUN_CASES(argc, argv, cases) +
	       (argc > 1 ? 0 : cmocka_run_group_tests(single, NULL, NULL));
}
