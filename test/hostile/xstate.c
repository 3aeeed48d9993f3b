/* The stub moves a guest's extended state to and from its signal frames, as the guest: whatever the
 * guest does meanwhile to frame, stack or context page. */
#include "test/hostile/lib/hostile.h"
#include <pthread.h>
#include <ucontext.h>

#define OFTEN 100
#define RUN_MS (full() ? 20000 : 1500)
#define STACK_SIZE 65536
/* struct stub_ctx */
#define CTX_KIND 0x04
#define CTX_FP_SAVE 0xd8
#define CTX_FP_LOAD 0xe0
#define CONFIG 0x7fffe0010000UL

static char *stack;
static volatile long signals;

static void count(int sig)
{
	signals++;
}

/* Signals to itself, on a stack of their own, through patched calls. */
static void prepare(void)
{
	stack_t st = { .ss_size = STACK_SIZE };
	struct sigaction sa = { .sa_handler = count, .sa_flags = SA_ONSTACK };

	catch_setup();
	/* The faults' handlers run on the same stack, and die with it. */
	stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	st.ss_sp = stack;
	sigaltstack(&st, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	for (int i = 0; i < OFTEN; i++)
		kill(getpid(), SIGUSR1);
}

/* What another thread does, all the time. */
struct meanwhile {
	void *(*run)(void *);
};

static void signal_oneself(void *arg)
{
	const struct meanwhile *other = arg;
	pthread_t t;

	prepare();
	pthread_create(&t, NULL, other->run, NULL);
	for (;;)
		CATCH(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
}

static void attack_with(void *(*run)(void *))
{
	struct meanwhile other = { run };
	uint64_t end = now_ms() + (uint64_t)RUN_MS;

	while (now_ms() < end) {
		rnd_seed(rnd());
		in_child(signal_oneself, &other, 300, NULL);
	}
}

static uint64_t odd_address(void)
{
	static const uint64_t odd[] = {
		0,
		1,
		64,
		0x10000,
		0x7ffffffff000,
		0xffff800000000000,
		~0UL,
		STUB_AREA,
		CONFIG,
		CONFIG + 0x3000,
		STUB_SLOTS,
		STUB_SLOTS + 0x400,
		STUB_SLOTS + 0x7000,
		0xffffffffff600000,
	};

	switch (rnd() % 4) {
	case 0: return (uint64_t)stack + rnd() % STACK_SIZE;
	case 1: return ((uint64_t)stack + rnd() % STACK_SIZE) & ~63UL;
	case 2: return STUB_SLOTS + rnd() % (8 * STUB_SLOT_SIZE);
	default: return odd[rnd() % (sizeof(odd) / sizeof(odd[0]))];
	}
}

/* ---- the frame ---- */

static void *spoil_frames(void *arg)
{
	for (;;) {
		/* Frames are near the stack's end. */
		uint64_t *words = (uint64_t *)(stack + STACK_SIZE - 4096);

		words[rnd() % 512] = rnd() % 2 ? rnd() : odd_address();
		if (rnd() % 16 == 0)
			memset(words, 0, 4096);
	}
	return NULL;
}

ATTACK(frame_changed_meanwhile)
{
	attack_with(spoil_frames);
}

static void *spoil_headers(void *arg)
{
	/* Where the header is depends on the processor: found by its magic. */
	for (;;)
		for (uint32_t *p = (uint32_t *)stack; p < (uint32_t *)(stack + STACK_SIZE - 256);
		     p++)
			if (p[0] == 0x46505853)
				p[rnd() % 2 ? 12 + rnd() % 16 : rnd() % 12] =
					rnd() % 2 ? (uint32_t)rnd() : (uint32_t)rnd() % 8;
	return NULL;
}

ATTACK(header_changed_meanwhile)
{
	attack_with(spoil_headers);
}

/* ---- the stack ---- */

static void *change_stack(void *arg)
{
	for (;;) {
		char *at = stack + STACK_SIZE - 4096 * (1 + rnd() % 4);

		switch (rnd() % 4) {
		case 0: mprotect(at, 4096, PROT_READ); break;
		case 1: mprotect(at, 4096, PROT_NONE); break;
		case 2: madvise(at, 4096, MADV_DONTNEED); break;
		default:
			mmap(stack, STACK_SIZE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		}
		mprotect(stack, STACK_SIZE, PROT_READ | PROT_WRITE);
	}
	return NULL;
}

ATTACK(stack_changed_meanwhile)
{
	attack_with(change_stack);
}

/* ---- the context page ---- */

static void *forge_moves(void *arg)
{
	static const uint32_t kinds[] = { 0, 1, 2, 3, 0x403, 0x603, 0x703, 0x400, 4 };

	for (;;) {
		char *page = (char *)(STUB_SLOTS + rnd() % 4 * STUB_SLOT_SIZE);

		CATCH(switch (rnd() % 3) {
			case 0: *(uint64_t *)(page + CTX_FP_SAVE) = odd_address(); break;
			case 1: *(uint64_t *)(page + CTX_FP_LOAD) = odd_address(); break;
			default: *(uint32_t *)(page + CTX_KIND) = kinds[rnd() % 9];
		});
	}
	return NULL;
}

ATTACK(addresses_forged)
{
	attack_with(forge_moves);
}

/* ---- jumps ---- */

struct jumps {
	_Atomic uint64_t at;
};

static void jump(uint64_t to)
{
	uint64_t a = rnd() % 400, b = odd_address(), c = odd_address(), d = rnd() % 4096;

	__asm__ volatile("call *%4"
			 : "+a"(a), "+D"(b), "+c"(c), "+d"(d)
			 : "r"(to)
			 : "rbx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
			   "memory");
}

static void jumping(void *arg)
{
	struct jumps *j = arg;

	prepare();
	while (++j->at < STUB_AREA + 0x1100) {
		for (uint64_t s = 0; s < 4; s++) {
			char *page = (char *)(STUB_SLOTS + s * STUB_SLOT_SIZE);

			CATCH(*(uint64_t *)(page + CTX_FP_SAVE) = odd_address();
			      *(uint64_t *)(page + CTX_FP_LOAD) = odd_address());
		}
		CATCH(jump(j->at));
		CATCH(kill(getpid(), SIGUSR1));
	}
}

ATTACK(jumps_to_every_byte)
{
	struct jumps *j = shared_memory(4096);
	uint64_t end = now_ms() + 5 * (uint64_t)RUN_MS;

	j->at = STUB_AREA + 0x900; /* the mapper's code has attacks of its own */
	while (j->at < STUB_AREA + 0x1100 && now_ms() < end) {
		rnd_seed(rnd());
		in_child(jumping, j, 500, NULL);
	}
}

HOSTILE_MAIN
