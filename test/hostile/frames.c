/* Forged signal frames: for the guest's rt_sigreturn, and for the stub's. */
#include "test/hostile/lib/hostile.h"
#include <pthread.h>
#include <sched.h>
#include <sys/time.h>
#include <ucontext.h>

/* What the kernel finds at rsp at rt_sigreturn, as far as it matters: ucontext, siginfo. */
struct frame {
	ucontext_t uc;
	uint8_t siginfo[128];
	uint8_t fp[16384] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

static struct frame *frame;
static volatile int landed;

static void landing(void)
{
	landed = 1;
	/* On whatever stack: back by a longjmp only. */
	catch_armed = 0;
	siglongjmp(catch_env, 1);
}

static void sigreturn_at(uint64_t rip, struct frame *f)
{
	__asm__ volatile("mov %0, %%rsp\n mov $15, %%eax\n jmp *%1"
			 :
			 : "r"(f), "r"(rip)
			 : "memory", "rax");
}

extern const char own_syscall[];
__asm__(".text\nown_syscall: syscall\n hlt\n");

/* A frame that the kernel takes: as it would write it. */
static void good(struct frame *f)
{
	memset(f, 0, sizeof(*f));
	f->uc.uc_flags = 6;
	f->uc.uc_mcontext.gregs[REG_RIP] = (greg_t)landing;
	f->uc.uc_mcontext.gregs[REG_RSP] =
		(greg_t)((uintptr_t)f - 4096 + 8 * (((uintptr_t)f & 15) == 0)) & ~15;
	f->uc.uc_mcontext.gregs[REG_RSP] -= 8;
	f->uc.uc_mcontext.gregs[REG_EFL] = 0x202;
	f->uc.uc_mcontext.gregs[REG_CSGSFS] = 0x002b000000000033;
}

static void with_fp(struct frame *f, uint32_t size, uint64_t features)
{
	uint32_t magic1 = 0x46505853, magic2 = 0x46505845, extended = size + 4;
	uint16_t fcw = 0x37f;
	uint32_t mxcsr = 0x1f80;

	*(void **)&f->uc.uc_mcontext.fpregs = f->fp;
	f->uc.uc_flags |= 1;
	memcpy(f->fp, &fcw, 2);
	memcpy(f->fp + 24, &mxcsr, 4);
	memcpy(f->fp + 464, &magic1, 4);
	memcpy(f->fp + 468, &extended, 4);
	memcpy(f->fp + 472, &features, 8);
	memcpy(f->fp + 480, &size, 4);
	memcpy(f->fp + 512, &features, 8);
	if (size < sizeof(f->fp) - 4)
		memcpy(f->fp + size, &magic2, 4);
}

static uint64_t odd_value(void)
{
	static const uint64_t odd[] = {
		0,
		1,
		0x33,
		0x23,
		0x2b,
		0x800000000000,
		0x7fffffffffff,
		0x7ffffffff000,
		0xffff800000000000,
		~0UL,
		STUB_AREA,
		STUB_SLOTS,
		STUB_SLOTS + 0x7000,
		0xffffffffff600000,
		0x8000000000000000,
		0x7fffdffffff0,
		0x44000,
		0x4100,
		0x3000,
		0x20100,
		0x002b000000000023,
		0x10000000000,
		0xdead000000000000,
	};

	return rnd() % 4 ? odd[rnd() % (sizeof(odd) / 8)] : rnd();
}

static void spoil(struct frame *f)
{
	uint64_t *words = (uint64_t *)f;
	int n = 1 + (int)(rnd() % 4);

	for (int i = 0; i < n; i++) {
		switch (rnd() % 5) {
		case 0: /* any field of the frame */
			words[rnd() % (sizeof(f->uc) / 8)] = odd_value();
			break;
		case 1: /* a register */
			f->uc.uc_mcontext.gregs[rnd() % NGREG] = (greg_t)odd_value();
			break;
		case 2: /* the FP state's bookkeeping */
			((uint64_t *)f->fp)[(464 + rnd() % 112) / 8] = odd_value();
			break;
		case 3: /* where it is */
			*(uint64_t *)&f->uc.uc_mcontext.fpregs =
				rnd() % 2 ? odd_value() : (uint64_t)f->fp + rnd() % 256;
			break;
		default: ((uint64_t *)f->fp)[rnd() % 128] = rnd() % 2 ? rnd() : odd_value();
		}
	}
}

struct rounds {
	_Atomic uint64_t done;
	uint64_t seed, count;
	uint64_t rip; /* of the syscall instruction */
};

static void sigreturns(void *arg)
{
	struct rounds *r = arg;
	struct itimerval it = { { 0, 10000 }, { 0, 10000 } };
	uint8_t *m =
		mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	frame = (struct frame *)(m + 16384);
	while (r->done < r->count) {
		rnd_seed(r->seed + r->done++);
		catch_setup();
		setitimer(ITIMER_REAL, &it, NULL);
		good(frame);
		if (rnd() % 2)
			with_fp(frame, rnd() % 2 ? 2696 : (uint32_t)rnd() % 12000,
				rnd() % 2 ? 7 : 0xe7);
		spoil(frame);
		CATCH(sigreturn_at(r->rip, frame));
	}
}

static void many_sigreturns(uint64_t rip, uint64_t count)
{
	struct rounds *r = shared_memory(4096);
	uint64_t end = now_ms() + 7000;

	r->seed = rnd();
	r->count = count;
	r->rip = rip;
	while (r->done < count && now_ms() < end)
		in_child(sigreturns, r, 3000, NULL);
}

ATTACK(sigreturn_garbage)
{
	many_sigreturns((uint64_t)own_syscall, full() ? 20000 : 1200);
}

static void sigreturn_bytes(void *arg)
{
	struct rounds *r = arg;

	catch_setup();
	frame = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (r->done < r->count) {
		rnd_seed(r->seed + r->done++);
		for (size_t i = 0; i < sizeof(*frame) / 8; i++)
			((uint64_t *)frame)[i] = rnd();
		CATCH(sigreturn_at((uint64_t)own_syscall, frame));
	}
}

ATTACK(sigreturn_random_bytes)
{
	struct rounds *r = shared_memory(4096);

	r->seed = rnd();
	r->count = 200;
	while (r->done < r->count)
		in_child(sigreturn_bytes, r, 3000, NULL);
}

/* ---- with the stub's own system calls ---- */

static uint64_t stub_syscall[64];
static int stub_syscalls;

static void find_syscalls(void)
{
	catch_setup();
	stub_syscalls = 0;
	for (uint64_t a = STUB_AREA; a < STUB_TEXT_END - 1; a++) {
		volatile uint8_t *p = (uint8_t *)a;
		bool hit = false;

		if (!CATCH(hit = p[0] == 0x0f && p[1] == 0x05;))
			break;
		if (hit && stub_syscalls < 64)
			stub_syscall[stub_syscalls++] = a;
	}
	if (stub_syscalls == 0)
		skip("no system call instruction of the stub in sight");
}

static void forge(void *arg)
{
	sigreturn_at((uint64_t)arg, frame);
}

static void spin(void)
{
	landed = 1;
	for (volatile uint64_t i = 0;; i++)
		;
}

static void call_on(void)
{
	for (;;)
		__asm__ volatile("syscall" : : "a"(SYS_getppid) : "rcx", "r11", "memory");
}

static void fault_on(void)
{
	*(volatile int *)8 = 1;
}

static void prepare(void (*then)(void), uint64_t mask, uint64_t altstack)
{
	uint8_t *m = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	frame = (struct frame *)(m + 16384);
	good(frame);
	frame->uc.uc_mcontext.gregs[REG_RIP] = (greg_t)then;
	memcpy(&frame->uc.uc_sigmask, &mask, 8);
	frame->uc.uc_stack.ss_sp = (void *)altstack;
	frame->uc.uc_stack.ss_size = altstack ? 32768 : 0;
	frame->uc.uc_stack.ss_flags = altstack ? 0 : SS_DISABLE;
}

/* For every system call of the stub: forge the frame, do `then`; the process can be ended all the
 * same. */
static void forge_each(void (*then)(void), uint64_t mask, uint64_t altstack, int limit_ms)
{
	find_syscalls();
	for (int i = 0; i < stub_syscalls; i++) {
		prepare(then, mask, altstack);
		in_child(forge, (void *)stub_syscall[i], limit_ms, NULL);
	}
}

ATTACK(stub_frame_blocks_signals_and_spins)
{
	forge_each(spin, ~0UL, STUB_SLOTS + 4096, 30);
}
ATTACK(stub_frame_blocks_signals_and_calls)
{
	forge_each(call_on, ~0UL, STUB_SLOTS + 4096, 50);
}
ATTACK(stub_frame_blocks_signals_and_faults)
{
	forge_each(fault_on, ~0UL, 0, 200);
}
ATTACK(stub_frame_moves_alternate_stack)
{
	uint8_t *own =
		mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t at[] = { (uint64_t)own, ((uint64_t)own + 0x10000) & ~0x7fffUL,
			  STUB_SLOTS,	 STUB_SLOTS + 0x8000,
			  STUB_AREA,	 0x10000,
			  0x7fffffff0000 };

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		forge_each(i % 2 ? call_on : fault_on, 0, at[i], 8);
}
ATTACK(stub_frame_no_alternate_stack)
{
	forge_each(call_on, 0, 0, 20);
}
ATTACK(stub_frame_garbage)
{
	find_syscalls();
	many_sigreturns(stub_syscall[stub_syscalls - 1], full() ? 3000 : 300);
}

/* ---- guests that never come back by themselves ---- */

static void busy(void *arg)
{
	spin();
}

ATTACK(busy_loop_can_be_killed)
{
	bool late;

	in_child(busy, NULL, 300, &late);
	if (!late)
		breach("a busy loop ended");
}

static void busy_with_everything_blocked(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int i = 1; i < 65; i++)
		signal(i, SIG_IGN);
	spin();
}

ATTACK(busy_loop_ignoring_signals_can_be_killed)
{
	in_child(busy_with_everything_blocked, NULL, 300, NULL);
}

static void busy_handler(int sig)
{
	spin();
}

/* Signals at any rate to one that does not look: nothing is exhausted. */
ATTACK(signal_flood)
{
	pid_t pid;
	uint64_t end = now_ms() + 1500;

	find_syscalls();
	prepare(spin, ~0UL, STUB_SLOTS + 4096);
	pid = fork();
	if (pid == 0) {
		for (int i = 1; i < 32; i++)
			signal(i, landed ? SIG_IGN : SIG_DFL);
		for (int i = 34; i < 65; i++)
			signal(i, busy_handler);
		sigreturn_at(stub_syscall[stub_syscalls - 1], frame);
	}
	while (now_ms() < end && !landed)
		for (int i = 0; i < 1000; i++)
			kill(pid, 34 + i % 30);
	must_die(pid);
}

HOSTILE_MAIN
