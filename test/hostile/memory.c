/* The stub's memory: what can be written is overwritten, what can be executed is jumped into. */
#include "test/hostile/lib/hostile.h"
#include <pthread.h>
#include <sys/time.h>

#define PAGE 4096UL

/* ---- looking ---- */

static bool readable(uint64_t addr)
{
	return CATCH((void)*(volatile uint8_t *)addr);
}

static bool writable(uint64_t addr)
{
	return CATCH(__asm__ volatile("lock orb $0, (%0)" : : "r"(addr) : "memory"));
}

struct found {
	unsigned count;
	uint64_t page[2048];
};

static void look_at(struct found *f, uint64_t addr)
{
	if (f->count < 2048 && writable(addr))
		f->page[f->count++] = addr;
}

/* Writable pages that no mmap of this process has made. */
static void find_writable(struct found *f)
{
	f->count = 0;
	for (uint64_t a = STUB_AREA - 16 * PAGE; a < STUB_SLOTS + 8 * STUB_SLOT_SIZE; a += PAGE)
		look_at(f, a);
	for (uint64_t s = 8; s < STUB_SLOT_MAX; s = s * 5 / 4)
		look_at(f, STUB_SLOTS + s * STUB_SLOT_SIZE);
	for (uint64_t a = STUB_SLOTS + STUB_SLOT_MAX * STUB_SLOT_SIZE; a < 0x7fffffffffff;
	     a += 0x31f0000)
		look_at(f, a);
	for (int i = 0; i < 500; i++)
		look_at(f, STUB_AREA + (rnd() % 0x1ffff) * PAGE);
	look_at(f, 0x7ffffffff000);
	look_at(f, 0);
	look_at(f, 0x1000);
	look_at(f, 0xffffffffff600000);
	look_at(f, 0xffff888000000000);
}

static void write_all(void *arg)
{
	struct found f;
	unsigned how = (unsigned)(uintptr_t)arg;

	catch_setup();
	find_writable(&f);
	for (unsigned i = 0; i < f.count; i++) {
		volatile uint8_t *p = (uint8_t *)f.page[i];

		for (unsigned j = 0; j < PAGE; j++) {
			CATCH(p[j] = how == 0 ? 0xff : how == 1 ? 0 : (uint8_t)rnd(););
			if (how == 3 && j % 64 == 0)
				syscall(SYS_getppid);
		}
		syscall(SYS_getppid);
	}
	for (int i = 0; i < 100; i++)
		getppid();
}

ATTACK(overwrite_everything)
{
	for (uintptr_t how = 0; how < 4; how++)
		for (int i = 0; i < (full() ? 10 : 1); i++)
			in_child(write_all, (void *)how, 20000, NULL);
}

/* The stub's code and constants, the configuration and the commands are not writable by anything.
 */
ATTACK(stub_is_read_only)
{
	catch_setup();
	for (uint64_t a = STUB_AREA; a < STUB_SLOTS; a += PAGE)
		if (writable(a))
			breach("%#lx is writable", (unsigned long)a);
	/* Nor by the sentry for the guest. */
	for (uint64_t a = STUB_AREA; a < STUB_SLOTS + 4 * STUB_SLOT_SIZE; a += PAGE) {
		int fd = open("/dev/zero", O_RDONLY), mem = open("/proc/self/mem", O_RDWR);

		if (read(fd, (void *)a, 64) > 0)
			breach("read(2) writes to %#lx", (unsigned long)a);
		if (pwrite(mem, "x", 1, (off_t)a) > 0)
			breach("/proc/self/mem writes to %#lx", (unsigned long)a);
		if (mprotect((void *)a, PAGE, PROT_READ | PROT_WRITE) == 0)
			breach("mprotect of %#lx", (unsigned long)a);
		if (munmap((void *)a, PAGE) == 0)
			breach("munmap of %#lx", (unsigned long)a);
		if (mmap((void *)a, PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
			breach("mmap over %#lx", (unsigned long)a);
		if (madvise((void *)a, PAGE, MADV_DONTNEED) == 0)
			breach("madvise of %#lx", (unsigned long)a);
		close(fd);
		close(mem);
	}
}

/* ---- corrupting the register page while calls are made ---- */

struct corrupt {
	int kind;
	volatile int stop;
	struct found f;
};

static const uint32_t words[] = {
	0,    1,	  2,	      3, 0x101, 0x102, 0x103, 0x201, 0x202, 0x203, 0x301, 0x302,
	0xff, 0xffffffff, 0x80000001, 4, 0x104, 0x204, 0x304, 0x404, 0x504, 0x604, 0x704, 0x10404
};

static void *corrupter(void *arg)
{
	struct corrupt *c = arg;
	uint64_t end = now_ms() + 700;

	rnd_seed(rnd() + (uint64_t)c->kind);
	while (now_ms() < end) {
		for (int i = 0; i < 2000; i++) {
			uint64_t page = c->f.page[rnd() % c->f.count];
			uint64_t slot = page & ~(STUB_SLOT_SIZE - 1);
			volatile uint32_t *w = (uint32_t *)slot;

			switch (c->kind) {
			case 0: /* turns */ w[0] = words[rnd() % (sizeof(words) / 4)]; break;
			case 1: /* where the frame is */
				w[1] = rnd() % 2 ? (uint32_t)rnd() & 0x7ff8 : (uint32_t)rnd();
				break;
			case 2: /* segment bases, spin count */
				w[2 + rnd() % 6] = (uint32_t)rnd();
				break;
			case 3: /* the frames: anything */
				((volatile uint8_t *)page)[rnd() % PAGE] = (uint8_t)rnd();
				break;
			case 4: { /* qwords of the frame area to interesting values */
				static const uint64_t values[] = { 0,
								   15,
								   0x800000000000,
								   0x7fffffffffff,
								   STUB_AREA,
								   STUB_SLOTS,
								   ~0UL,
								   0x33,
								   0x23,
								   0x2b00000000000033,
								   0x46505853,
								   0x46505845,
								   0xffffffff };

				((volatile uint64_t *)(slot + STUB_SLOT_SIZE -
						       2 * PAGE))[rnd() % 1024] =
					values[rnd() % (sizeof(values) / 8)];
				break;
			}
			default: /* turns and where, together */
				w[rnd() % 2] = rnd() % 2 ? words[rnd() % 12]
							 : (uint32_t)(0x7000 + rnd() % 0xf00);
			}
		}
		if (c->kind >= 3)
			getppid();
	}
	c->stop = 1;
	return NULL;
}

static void corrupt_child(void *arg)
{
	struct corrupt c = { .kind = (int)(intptr_t)arg };
	pthread_t t;
	volatile uint32_t x = 0;

	catch_setup();
	if (pthread_create(&t, NULL, corrupter, &(struct corrupt){ .stop = 1 }) != 0)
		return;
	pthread_join(t, NULL);
	find_writable(&c.f);
	if (c.f.count == 0)
		return; /* ptrace: maybe nothing is mapped yet */
	if (pthread_create(&t, NULL, corrupter, &c) != 0)
		return;
	while (!c.stop) {
		void *m = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);

		CATCH(*(volatile int *)m = 1;);
		munmap(m, 4 * PAGE);
		getppid();
		for (int i = 0; i < 1000; i++)
			x += 1;
	}
}

static void corrupt(int kind)
{
	uint64_t end = now_ms() + (full() ? 10000 : 1000);

	while (now_ms() < end)
		in_child(corrupt_child, (void *)(intptr_t)kind, 20000, NULL);
}

ATTACK(corrupt_turns)
{
	corrupt(0);
}
ATTACK(corrupt_frame_offset)
{
	corrupt(1);
}
ATTACK(corrupt_bases)
{
	corrupt(2);
}
ATTACK(corrupt_frames)
{
	corrupt(3);
}
ATTACK(corrupt_frame_words)
{
	corrupt(4);
}

/* ---- jumping into the stub's code ---- */

struct jump_regs {
	uint64_t rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, rsp, rip;
};

static __thread struct jump_regs jump_to;

/* Never returns but through a signal handler. */
static void jump(struct jump_regs *r)
{
	__asm__ volatile("mov %0, %%rax\n"
			 "mov 8(%%rax), %%rbx\n mov 16(%%rax), %%rcx\n mov 24(%%rax), %%rdx\n"
			 "mov 32(%%rax), %%rsi\n mov 40(%%rax), %%rdi\n mov 48(%%rax), %%rbp\n"
			 "mov 56(%%rax), %%r8\n mov 64(%%rax), %%r9\n mov 72(%%rax), %%r10\n"
			 "mov 80(%%rax), %%r11\n mov 88(%%rax), %%r12\n mov 96(%%rax), %%r13\n"
			 "mov 104(%%rax), %%r14\n mov 112(%%rax), %%r15\n mov 120(%%rax), %%rsp\n"
			 "push 128(%%rax)\n mov (%%rax), %%rax\n ret\n"
			 :
			 : "r"(r)
			 : "memory", "rax");
}

#define TARGET 0x123450000000UL
#define OWN_CODE 0x223450000000UL

struct jumps {
	_Atomic uint64_t at;
	uint64_t end, step;
	int kind;
	bool threads;
};

static void set(struct jump_regs *r, uint64_t nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
		uint64_t e)
{
	r->rax = nr;
	r->rdi = a;
	r->rsi = b;
	r->rdx = c;
	r->r10 = d;
	r->r8 = e;
}

static void fill(struct jump_regs *r, int kind, uint64_t *stack)
{
	memset(r, 0, sizeof(*r));
	r->rsp = (uint64_t)stack;
	r->r12 = (uint64_t)stack;
	r->rbp = STUB_AREA + 0x20000;
	r->r14 = STUB_AREA + 0x20040;
	switch (kind) {
	case 0: /* map the memory file, writable */
		set(r, SYS_mmap, TARGET, 16 * PAGE, 3, MAP_SHARED | MAP_FIXED, 3);
		break;
	case 1: /* write permission to the stub's code */
		set(r, SYS_mprotect, STUB_AREA, PAGE, 7, 0, 0);
		break;
	case 2: /* write permission to the command page */
		set(r, SYS_mprotect, STUB_AREA + 0x20000, PAGE, 3, 0, 0);
		break;
	case 3: /* for the mapper's loop over commands: r14 commands of our own */
		set(r, SYS_mmap, TARGET, PAGE, 3, MAP_SHARED | MAP_FIXED, 2);
		r->r14 = (uint64_t)(stack + 64);
		r->rbp = (uint64_t)(stack + 64) - 0x40;
		r->r13 = 1;
		stack[56] = 1UL << 32 | 12345; /* seq, kind */
		stack[57] = 1;
		memcpy(stack + 64,
		       (uint64_t[]){ SYS_mmap, TARGET, PAGE, 3, MAP_SHARED | MAP_FIXED, 3, 0 }, 56);
		break;
	default: /* a thread without dispatch */
		if (kind == 4)
			set(r, SYS_clone, 0x250f00, 0, 0, 0, 0);
		else
			set(r, SYS_prctl, 59, 0, 0, 0, 0);
		r->r12 = STUB_SLOTS;
	}
}

/* By a call of its own: a jump may end as one with other flags, and map anonymous memory. */
static bool guest_has(uint64_t addr)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long start, end;
	char line[512];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= addr && addr < end;
	if (f)
		fclose(f);
	return found;
}

static void check_nothing_won(int kind)
{
	if (readable(TARGET) && guest_has(TARGET))
		munmap((void *)TARGET, 16 * PAGE);
	if (readable(TARGET))
		breach("the memory file is mapped (registers %d)", kind);
	if (writable(STUB_AREA))
		breach("the stub's code is writable (registers %d)", kind);
	if (writable(STUB_AREA + 0x20000))
		breach("the command page is writable (registers %d)", kind);
}

static void *jumper(void *arg)
{
	struct jumps *j = arg;
	uint64_t *stack =
		mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *mid = stack + 32 * PAGE / 8;

	catch_setup();
	while (j->at < j->end) {
		for (int i = 0; i < 600; i++)
			mid[i] = 0;
		fill(&jump_to, j->kind, mid);
		jump_to.rip = j->at;
		CATCH(jump(&jump_to));
		j->at += j->step;
		check_nothing_won(j->kind);
	}
	return NULL;
}

static void *caller(void *arg)
{
	struct jumps *j = arg;

	catch_setup();
	while (j->at < j->end) {
		void *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);

		CATCH(*(volatile int *)m = 1;);
		munmap(m, PAGE);
	}
	return NULL;
}

static void jumps_child(void *arg)
{
	struct jumps *j = arg;
	struct itimerval it = { { 0, 2000 }, { 0, 2000 } };
	pthread_t t;

	catch_setup();
	setitimer(ITIMER_REAL, &it, NULL);
	if (j->threads) {
		pthread_create(&t, NULL, jumper, j);
		caller(j);
		pthread_join(t, NULL);
	} else {
		jumper(j);
	}
}

/* The code's last byte that is not zero. */
static uint64_t code_end(void)
{
	uint64_t end = STUB_AREA;

	for (uint64_t a = STUB_AREA; a < STUB_TEXT_END && readable(a); a++)
		if (*(uint8_t *)a)
			end = a + 1;
	return end;
}

static void jump_everywhere(int kind, bool threads)
{
	struct jumps *j = shared_memory(4096);
	uint64_t end;
	bool late;

	catch_setup();
	end = code_end();
	if (end == STUB_AREA)
		skip("no stub code in sight");
	j->kind = kind;
	j->threads = threads;
	j->step = full() || (kind == 0 && !threads) ? 1 : kind == 4 ? 37 : threads ? 17 : 7;
	j->end = end;
	j->at = STUB_AREA;
	while (j->at < end) {
		in_child(jumps_child, j, 3000, &late);
		if (j->at < end)
			j->at += j->step; /* it has died of this one */
	}
}

ATTACK(jump_map_memory_file)
{
	jump_everywhere(0, false);
}
ATTACK(jump_protect_code)
{
	jump_everywhere(1, false);
}
ATTACK(jump_protect_commands)
{
	jump_everywhere(2, false);
}
ATTACK(jump_own_commands)
{
	jump_everywhere(3, false);
}
ATTACK(jump_clone)
{
	jump_everywhere(4, false);
}
ATTACK(jump_dispatch_off)
{
	jump_everywhere(5, false);
}
ATTACK(jump_second_thread_map)
{
	jump_everywhere(0, true);
}
ATTACK(jump_second_thread_protect)
{
	jump_everywhere(1, true);
}

/* ---- calls that the stub's code leaves to guest threads ---- */

static void need_stub_calls(void)
{
	if (!stub_calls_work())
		skip("no stub code in sight that makes deferred calls");
}

#define FAR (64UL << 20)

static void must_refuse_ranges(uint64_t nr)
{
	static const struct {
		uint64_t addr, len;
	} r[] = {
		{ STUB_AREA, PAGE },
		{ STUB_AREA + 0x10000, PAGE },
		{ STUB_AREA + 0x20000, PAGE },
		{ STUB_AREA, 0x40000 },
		{ STUB_AREA - PAGE, 2 * PAGE },
		{ STUB_AREA - FAR, FAR + PAGE },
		{ STUB_AREA - FAR - PAGE, FAR + 2 * PAGE },
		{ STUB_AREA - 2 * FAR, 2 * FAR + PAGE },
		{ STUB_AREA - (1UL << 32), (1UL << 32) + 0x40000 },
		{ PAGE, STUB_AREA },
		{ PAGE, -PAGE },
		{ -PAGE, STUB_AREA + 2 * PAGE },
		{ 0, -PAGE },
		{ STUB_AREA | 1UL << 63, PAGE },
	};

	need_stub_calls();
	for (size_t i = 0; i < sizeof(r) / sizeof(r[0]); i++) {
		stub_call(nr, r[i].addr, r[i].len, 7);
		for (uint64_t a = STUB_AREA; a < STUB_AREA + 0x30000; a += 0x10000)
			if (!readable(a) || writable(a))
				breach("call %lu on %#lx, %#lx reaches %#lx", (unsigned long)nr,
				       (unsigned long)r[i].addr, (unsigned long)r[i].len,
				       (unsigned long)a);
	}
	need_stub_calls(); /* still */
}

ATTACK(deferred_protect_out_of_bounds)
{
	must_refuse_ranges(SYS_mprotect);
}
ATTACK(deferred_munmap_out_of_bounds)
{
	must_refuse_ranges(SYS_munmap);
}

#define SHARED_SIZE (16 * PAGE)

static void write_shared(void *arg)
{
	char *m = arg;

	catch_setup();
	for (size_t i = 0; i < SHARED_SIZE; i += PAGE)
		CATCH((void)*(volatile char *)(m + i)); /* mapped in this stub */
	stub_call(SYS_mprotect, (uint64_t)m, SHARED_SIZE, PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < SHARED_SIZE; i += PAGE)
		CATCH(*(volatile char *)(m + i) = 2);
}

/* What others see: only the sentry may let the guest write there. */
ATTACK(deferred_protect_what_is_shared)
{
	int fd = open("/tmp/read-only", O_CREAT | O_RDWR, 0600), ro;
	char *m, buf[SHARED_SIZE];

	need_stub_calls();
	m = mmap(NULL, SHARED_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(m, 1, SHARED_SIZE);
	if (fd < 0 || pwrite(fd, m, SHARED_SIZE, 0) != SHARED_SIZE)
		skip("no file in /tmp");
	in_child(write_shared, m, 5000, NULL);
	for (size_t i = 0; i < SHARED_SIZE; i++)
		if (m[i] != 1)
			breach("a child writes to its parent's memory");
	ro = open("/tmp/read-only", O_RDONLY);
	in_child(write_shared, mmap(NULL, SHARED_SIZE, PROT_READ, MAP_SHARED, ro, 0), 5000, NULL);
	in_child(write_shared, mmap(NULL, SHARED_SIZE, PROT_READ, MAP_PRIVATE, ro, 0), 5000, NULL);
	if (pread(fd, buf, SHARED_SIZE, 0) != SHARED_SIZE)
		breach("the file cannot be read");
	for (size_t i = 0; i < SHARED_SIZE; i++)
		if (buf[i] != 1)
			breach("a file opened to be read is written to");
	unlink("/tmp/read-only");
}

#define FUTEX_WAIT_NR 0
#define FUTEX_WAKE_NR 1
/* What mappers and other stubs' threads sleep on; this many are in use, at most. */
#define BELLS 0x7ffff0080000
#define BELL_COUNT 64

/* Its own, and those of others, read and written. */
static void write_with_children(void *arg)
{
	volatile char *m =
		mmap(NULL, SHARED_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t end = now_ms() + 500;
	int pid, status;

	catch_setup();
	for (int round = 1; now_ms() < end; round++) {
		memset((char *)m, round, SHARED_SIZE);
		pid = fork();
		for (size_t i = 0; i < SHARED_SIZE; i += PAGE) {
			if (m[i] != (char)round)
				_exit(1);
			m[i] = (char)(pid ? -1 : -2);
		}
		if (pid == 0)
			_exit(0);
		if (waitpid(pid, &status, 0) != pid || status)
			_exit(1);
	}
	*(int *)arg = 1;
}

static void ring_all(void)
{
	for (uint64_t i = 0; i < BELL_COUNT; i++)
		stub_call(SYS_futex, BELLS + 4 * i, FUTEX_WAKE_NR, 0x7fffffff);
}

static void *waker(void *arg)
{
	while (!*(volatile int *)arg)
		ring_all();
	return NULL;
}

static void wake_while_writing(void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, waker, arg))
		return;
	write_with_children(arg);
	pthread_join(t, NULL);
}

/* Who makes mappings for a guest is woken by its threads: too early, too late, and all the time. */
ATTACK(mapper_woken_at_will)
{
	int *done = shared_memory(4096);

	need_stub_calls();
	for (int i = 0; i < 100; i++)
		ring_all();
	in_child(write_with_children, done, 5000, NULL);
	if (!*done)
		breach("memory is not what was written to it");
	*done = 0;
	in_child(wake_while_writing, done, 5000, NULL);
	if (!*done)
		breach("memory is not what was written to it while the mapper was woken");
	need_stub_calls(); /* still */
}

/* To and fro in a second. Who computes beside them may have the CPU for some ms each way; a wake
 * that does not come is made up for after half a second. */
#define BALLS_MIN 20

/* Two that wake each other all the time, by pipes. */
static void play(void *arg)
{
	int there[2], back[2], balls = 0;
	uint64_t end = now_ms() + 1000;
	char c = 0;

	if (pipe(there) || pipe(back))
		_exit(1);
	if (fork() == 0) {
		while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1)
			;
		_exit(0);
	}
	close(there[0]);
	for (; now_ms() < end; balls++)
		if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			_exit(1);
	*(int *)arg = balls;
}

/* Hands over like a call, spins as who waits for an answer, and rings for nobody. */
static void spin_deaf(volatile int *stop)
{
	volatile uint32_t *word;
	uint64_t *slot;

	__asm__ volatile("rdgsbase %0" : "=r"(slot));
	for (int i = 0; i < 300; i++)
		syscall(SYS_getpgid, 0);
	word = (volatile uint32_t *)slot;
	while (!*stop) {
		slot[CTX_RAX] = SYS_getpgid;
		slot[CTX_RAX + 1] = 0;
		word[1] = STOP_CALL;
		__atomic_exchange_n(word, TURN_SENTRY, __ATOMIC_SEQ_CST);
		while ((*word & TURN_MASK) == TURN_SENTRY && !*stop)
			;
	}
}

/* Sleeps on bells of others, so that it is woken in their place. */
static void sleep_on_all(volatile int *stop)
{
	for (uint64_t i = 0; !*stop; i = (i + 1) % BELL_COUNT)
		stub_call(SYS_futex, BELLS + 4 * i, FUTEX_WAIT_NR,
			  *(volatile uint32_t *)(BELLS + 4 * i));
}

static void play_beside(void (*enemy)(volatile int *stop))
{
	int *shared = shared_memory(4096), pid = fork();

	if (pid == 0) {
		enemy(shared + 1);
		_exit(0);
	}
	usleep(50000);
	in_child(play, shared, 10000, NULL);
	shared[1] = 1;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (*shared < BALLS_MIN)
		breach("others wait for each other: %d rounds in a second", *shared);
}

ATTACK(bells_of_others)
{
	static volatile uint64_t gs;

	need_stub_calls();
	if (!readable(BELLS))
		skip("there are no bells");
	if (writable(BELLS))
		breach("bells can be written to");
	catch_setup();
	CATCH(__asm__ volatile("rdgsbase %0" : "=r"(gs)));
	play_beside(sleep_on_all);
	if (gs)
		play_beside(spin_deaf);
	need_stub_calls(); /* still */
}

HOSTILE_MAIN
