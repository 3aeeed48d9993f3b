/* Patched calls: their context page, their trampolines, and sites that are none. */
#include "test/hostile/lib/hostile.h"
#include <pthread.h>

#define ZONE 0x7ffff0100000UL
#define LOW_ZONE 0x10000UL
#define ENTRY 32UL
#define OFTEN 100
#define RUN_MS (full() ? 20000 : 1500)

static void call_often(void)
{
	for (int i = 0; i < OFTEN; i++) {
		syscall(SYS_getpgid, 0);
		syscall(SYS_getppid);
	}
}

/* ---- the context page ---- */

static void *scribble(void *arg)
{
	bool forged = arg != NULL;

	for (;;) {
		uint32_t *page = (uint32_t *)(STUB_SLOTS + rnd() % 8 * STUB_SLOT_SIZE);
		uint64_t value = rnd() % 3 ? rnd() : rnd() % 8;

		/* Either any field, or the kind of a stop. */
		CATCH(page[forged ? 1 : rnd() % 64] = (uint32_t)value);
	}
	return NULL;
}

static void calls_while_scribbled(void *arg)
{
	pthread_t t;

	catch_setup();
	call_often();
	pthread_create(&t, NULL, scribble, arg);
	for (;;)
		CATCH(call_often());
}

static void scribbled(void *forged)
{
	uint64_t end = now_ms() + (uint64_t)RUN_MS;

	while (now_ms() < end) {
		rnd_seed(rnd());
		in_child(calls_while_scribbled, forged, 300, NULL);
	}
}

ATTACK(context_page_corrupted)
{
	scribbled(NULL);
}

ATTACK(stop_kind_forged)
{
	scribbled("");
}

/* ---- jumps ---- */

struct jumps {
	uint64_t from, to, step;
	_Atomic uint64_t at;
};

static void jump(uint64_t to)
{
	uint64_t a = rnd() % 400, b = rnd(), c = STUB_SLOTS + rnd() % 0x100000, d = rnd() % 4096;

	__asm__ volatile("call *%4"
			 : "+a"(a), "+D"(b), "+S"(c), "+d"(d)
			 : "r"(to)
			 : "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory");
}

static void jumping(void *arg)
{
	struct jumps *j = arg;

	catch_setup();
	call_often();
	for (j->at = j->from; j->at < j->to; j->at += j->step)
		CATCH(jump(j->at));
}

static void jump_through(uint64_t from, uint64_t to, uint64_t step)
{
	struct jumps *j = shared_memory(4096);
	uint64_t end = now_ms() + 5 * (uint64_t)RUN_MS;

	j->to = to;
	j->step = step;
	for (j->from = from; j->from < to && now_ms() < end; j->from = j->at + step) {
		j->at = j->from;
		rnd_seed(rnd());
		in_child(jumping, j, 500, NULL);
	}
}

ATTACK(jumps_into_stub_code)
{
	jump_through(STUB_AREA, STUB_AREA + 0x1000, 8);
}

ATTACK(jumps_into_trampolines)
{
	jump_through(ZONE, ZONE + 64 * ENTRY, 3);
	jump_through(LOW_ZONE, LOW_ZONE + 16 * ENTRY, 3);
}

/* ---- trampolines are not the guest's ---- */

static void must_not_write(uint64_t at)
{
	if (CATCH(*(volatile uint8_t *)at = 0xcc))
		breach("a trampoline at %#lx can be written", (unsigned long)at);
}

static void take_zone(uint64_t at)
{
	catch_setup();
	if (!CATCH((void)*(volatile uint8_t *)at))
		skip("no trampolines here");
	must_not_write(at);
	if (syscall(SYS_mprotect, at, 4096, PROT_READ | PROT_WRITE) == 0)
		breach("mprotect of %#lx", (unsigned long)at);
	must_not_write(at);
	if (syscall(SYS_mmap, at, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)at)
		breach("mmap over %#lx", (unsigned long)at);
	must_not_write(at);
	syscall(SYS_munmap, at, 4096);
	must_not_write(at);
	/* The same by the stub's own code. */
	stub_call(SYS_mprotect, at, 4096, PROT_READ | PROT_WRITE);
	must_not_write(at);
	stub_call(SYS_munmap, at, 4096, 0);
	must_not_write(at);
	CATCH(call_often());
}

ATTACK(trampolines_high)
{
	take_zone(ZONE);
}

ATTACK(trampolines_low)
{
	take_zone(LOW_ZONE);
}

/* ---- GS ---- */

static void with_gs(void *arg)
{
	catch_setup();
	call_often();
	CATCH(__asm__ volatile("wrgsbase %0" : : "r"(arg)); call_often(););
	CATCH(call_often());
}

ATTACK(wild_gs)
{
	static const uint64_t wild[] = { 0,
					 1,
					 4096,
					 STUB_AREA,
					 STUB_AREA + 0x10000,
					 STUB_AREA + 0x20000,
					 STUB_SLOTS,
					 STUB_SLOTS + STUB_SLOT_SIZE,
					 ZONE,
					 0x7fffffffffc0 };

	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
		in_child(with_gs, (void *)wild[i], 1000, NULL);
}

/* ---- a site inside another instruction ---- */

/* movabs $0x9090050f00000079, %rbx behind b8: entered one byte late it is mov $121, %eax; syscall.
 */
static const uint8_t code[] = {
	0x53,						   /* push %rbx */
	0x48, 0xbb, 0xb8, 0x79, 0, 0, 0, 0x0f, 0x05, 0xc3, /* movabs: b8 79 0 0 0 0f 05 c3 */
	0x48, 0x89, 0xd8,				   /* mov %rbx, %rax */
	0x5b, 0xc3,					   /* pop %rbx; ret */
};
#define RIGHT 0xc3050f00000079b8UL

static uint8_t *map_code(void)
{
	int fd = open("/tmp/code", O_RDONLY);
	uint8_t *m = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	close(fd);
	if (m == MAP_FAILED)
		skip("no code");
	return m;
}

static void run_from_the_middle(void *arg)
{
	uint8_t *m = map_code();
	long ret;

	catch_setup();
	for (int i = 0; i < OFTEN; i++)
		CATCH(__asm__ volatile("call *%1"
				       : "=a"(ret)
				       : "r"(m + 3), "D"(0L)
				       : "rcx", "r11", "memory"));
}

ATTACK(site_within_an_instruction)
{
	int fd = open("/tmp/code", O_CREAT | O_RDWR | O_TRUNC, 0700);

	if (write(fd, code, sizeof(code)) != (ssize_t)sizeof(code) || ftruncate(fd, 4096) < 0)
		skip("no file");
	close(fd);
	for (int i = 0; i < 3; i++) {
		uint64_t (*right)(void) = (uint64_t(*)(void))map_code();

		if (right() != RIGHT)
			breach("another's instruction is %#lx", (unsigned long)right());
		in_child(run_from_the_middle, NULL, 3000, NULL);
		if (right() != RIGHT || ((uint64_t(*)(void))map_code())() != RIGHT)
			breach("another's instruction has changed");
	}
}

HOSTILE_MAIN
