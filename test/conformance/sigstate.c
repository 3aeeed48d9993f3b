/*
 * The extended state (x87, SSE, AVX, AVX-512) and signals: kept over handlers, initial in them, and
 * taken back from the frame by rt_sigreturn. Signals come from system calls of the C library, which
 * the sandbox patches once they are frequent.
 */
#include "conf.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/time.h>
#include <ucontext.h>

#define SIGNALS 20000
#define MXCSR_INITIAL 0x1f80
#define FCW_INITIAL 0x37f
#define MXCSR_OTHER 0x7f80 /* rounds towards zero */
#define FCW_OTHER 0xf7f

struct vectors {
	uint8_t reg[32][64];
	uint64_t mask[8];
} __attribute__((aligned(64)));

enum { XMM, YMM, ZMM };

/* fn(args[0] to args[4]) with the vector registers from in; what they are then goes to out. */
long vector_call(struct vectors *in, struct vectors *out, long level, long *args, void *fn);
__asm__(".text\n"
	/* Numbered registers: \op one way or the other. */
	".macro each op, kind, count, to_memory, base\n"
	".altmacro\n"
	".set n, 0\n"
	".rept \\count\n"
	"one \\op, \\kind, %n, \\to_memory, \\base\n"
	".set n, n + 1\n"
	".endr\n"
	".noaltmacro\n"
	".endm\n"
	".macro one op, kind, n, to_memory, base\n"
	".if \\to_memory\n"
	"\\op %\\kind\\n, \\n*64(%\\base)\n"
	".else\n"
	"\\op \\n*64(%\\base), %\\kind\\n\n"
	".endif\n"
	".endm\n"
	".macro masks to_memory, base\n"
	".irp n, 0, 1, 2, 3, 4, 5, 6, 7\n"
	".if \\to_memory\n"
	"kmovq %k\\n, 2048+\\n*8(%\\base)\n"
	".else\n"
	"kmovq 2048+\\n*8(%\\base), %k\\n\n"
	".endif\n"
	".endr\n"
	".endm\n"
	".globl vector_call\n"
	"vector_call:\n"
	"push %rbx\n push %r12\n push %r13\n"
	"mov %rsi, %r12\n mov %rdx, %r13\n mov %r8, %rbx\n mov %rcx, %rax\n"
	"cmp $1, %r13\n je 1f\n ja 2f\n"
	"each movaps, xmm, 16, 0, rdi\n jmp 3f\n"
	"1: each vmovaps, ymm, 16, 0, rdi\n jmp 3f\n"
	"2: each vmovdqa64, zmm, 32, 0, rdi\n masks 0, rdi\n"
	"3: mov (%rax), %rdi\n mov 8(%rax), %rsi\n mov 16(%rax), %rdx\n mov 24(%rax), %rcx\n mov "
	"32(%rax), %r8\n"
	"xor %eax, %eax\n"
	"call *%rbx\n"
	"cmp $1, %r13\n je 1f\n ja 2f\n"
	"each movaps, xmm, 16, 1, r12\n jmp 3f\n"
	"1: each vmovaps, ymm, 16, 1, r12\n vzeroupper\n jmp 3f\n"
	"2: each vmovdqa64, zmm, 32, 1, r12\n masks 1, r12\n vzeroupper\n"
	"3: pop %r13\n pop %r12\n pop %rbx\n ret\n");

static long level(void)
{
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512bw"))
		return ZMM;
	return __builtin_cpu_supports("avx") ? YMM : XMM;
}

static void pattern(struct vectors *v, unsigned seed)
{
	uint8_t *p = (uint8_t *)v;

	for (size_t i = 0; i < sizeof(*v); i++)
		p[i] = (uint8_t)(seed = seed * 1103515245 + 12345, seed >> 16);
}

static bool same(const struct vectors *a, const struct vectors *b, long how)
{
	size_t width = how == ZMM ? 64 : how == YMM ? 32 : 16;

	for (int i = 0; i < (how == ZMM ? 32 : 16); i++)
		if (memcmp(a->reg[i], b->reg[i], width))
			return false;
	return how != ZMM || memcmp(a->mask, b->mask, sizeof(a->mask)) == 0;
}

/* True when a call that raises a signal, or any other one, leaves the registers as they were. */
static bool kept(unsigned seed, long nr, long a, long b, long c)
{
	static long (*const fn)(long, ...) = syscall;
	struct vectors in, out;
	long args[5] = { nr, a, b, c, 8 }, how = level();

	pattern(&in, seed);
	memset(&out, 0, sizeof(out));
	vector_call(&in, &out, how, args, (void *)fn);
	return same(&in, &out, how);
}

static unsigned mxcsr(void)
{
	unsigned v;

	__asm__ volatile("stmxcsr %0" : "=m"(v));
	return v;
}

static void set_mxcsr(unsigned v)
{
	__asm__ volatile("ldmxcsr %0" : : "m"(v));
}

static unsigned fcw(void)
{
	unsigned short v;

	__asm__ volatile("fnstcw %0" : "=m"(v));
	return v;
}

static void set_fcw(unsigned short v)
{
	__asm__ volatile("fldcw %0" : : "m"(v));
}

static void spoil(void)
{
	struct vectors v, out;
	long args[5] = { SYS_getppid };

	pattern(&v, 77);
	vector_call(&v, &out, level(), args, (void *)syscall);
	set_mxcsr(0x3f80);
	set_fcw(0xb7f);
	__asm__ volatile("fldpi\n fld1");
}

static volatile long calls;
static volatile unsigned mxcsr_seen, fcw_seen;
static volatile int nest;

static void handler(int sig)
{
	(void)sig;
	mxcsr_seen = mxcsr();
	fcw_seen = fcw();
	calls++;
	spoil();
	if (nest > 0) {
		nest--;
		if (!kept((unsigned)nest, SYS_tgkill, getpid(), gettid(), SIGUSR1))
			_exit(3);
	}
}

static void catch (int sig, void (*fn)(int), int flags)
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = flags };

	OK(sigaction(sig, &sa, NULL));
}

static void other_control_words(void)
{
	set_mxcsr(MXCSR_OTHER);
	set_fcw(FCW_OTHER);
}

static void check_control_words(void)
{
	CHECK_EQ(mxcsr_seen, MXCSR_INITIAL);
	CHECK_EQ(fcw_seen, FCW_INITIAL);
	CHECK_EQ(mxcsr(), MXCSR_OTHER);
	CHECK_EQ(fcw(), FCW_OTHER);
}

CASE(handler_begins_with_initial_state)
{
	catch (SIGUSR1, handler, 0);
	other_control_words();
	for (int i = 0; i < 300; i++) {
		mxcsr_seen = fcw_seen = 0;
		kill(getpid(), SIGUSR1);
		check_control_words();
	}
	CHECK_EQ(calls, 300);
}

static char *page;

static void repair(int sig)
{
	handler(sig);
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

CASE(and_after_a_fault)
{
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	catch (SIGSEGV, repair, 0);
	other_control_words();
	*(volatile char *)page = 1;
	check_control_words();
}

CASE(registers_survive)
{
	pid_t pid = getpid();

	catch (SIGUSR1, handler, 0);
	for (unsigned i = 0; i < SIGNALS; i++)
		if (!kept(i, SYS_kill, pid, SIGUSR1, 0))
			conf_fail(__FILE__, __LINE__, "changed by signal %u", i);
	CHECK_EQ(calls, SIGNALS);
}

CASE(registers_survive_nested_signals)
{
	catch (SIGUSR1, handler, SA_NODEFER);
	for (unsigned i = 0; i < SIGNALS / 20; i++) {
		nest = 5;
		CHECK(kept(i, SYS_kill, getpid(), SIGUSR1, 0));
	}
	CHECK_EQ(calls, SIGNALS / 20 * 6);
}

CASE(x87_registers_survive)
{
	catch (SIGUSR1, handler, 0);
	for (int i = 0; i < 500; i++) {
		long double value = i * 1.25L, got;

		__asm__ volatile("fldt %0" : : "m"(value));
		syscall(SYS_kill, getpid(), SIGUSR1);
		__asm__ volatile("fstpt %0" : "=m"(got));
		CHECK(got == value);
	}
}

CASE(registers_survive_alarms_within_calls)
{
	struct itimerval it = { { 0, 150 }, { 0, 150 } }, off = { 0 };
	unsigned i = 0;

	catch (SIGALRM, handler, SA_RESTART);
	setitimer(ITIMER_REAL, &it, NULL);
	for (; calls < 2000; i++) {
		if (!kept(i, i % 2 ? SYS_getpgid : SYS_getppid, 0, 0, 0))
			conf_fail(__FILE__, __LINE__, "changed in call %u", i);
	}
	setitimer(ITIMER_REAL, &off, NULL);
}

/* ---- two signals before the first handler has run ---- */

static uint8_t first_reg[2][16];
static volatile int frames;

static void look(int sig, siginfo_t *si, void *arg)
{
	ucontext_t *uc = arg;

	(void)sig;
	(void)si;
	if (frames < 2)
		memcpy(first_reg[frames++], (char *)uc->uc_mcontext.fpregs + 160, 16);
	spoil();
}

CASE(two_frames_at_once)
{
	struct sigaction sa = { .sa_sigaction = look, .sa_flags = SA_SIGINFO };
	static const uint8_t initial[16];
	struct vectors want;
	sigset_t both;

	OK(sigaction(SIGUSR1, &sa, NULL));
	OK(sigaction(SIGUSR2, &sa, NULL));
	sigemptyset(&both);
	sigaddset(&both, SIGUSR1);
	sigaddset(&both, SIGUSR2);
	for (unsigned i = 0; i < 300; i++) {
		frames = 0;
		sigprocmask(SIG_BLOCK, &both, NULL);
		kill(getpid(), SIGUSR1);
		kill(getpid(), SIGUSR2);
		CHECK(kept(i, SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&both, 0));
		CHECK_EQ(frames, 2);
		pattern(&want, i);
		CHECK_MEM(first_reg[0], initial, 16); /* of SIGUSR2, over SIGUSR1's */
		CHECK_MEM(first_reg[1], want.reg[0], 16);
	}
}

/* SIGUSR2 becomes pending in SIGUSR1's handler and is let in by its rt_sigreturn. */
static void raise_other(int sig)
{
	(void)sig;
	spoil();
	kill(getpid(), SIGUSR2);
}

CASE(frame_in_place_of_the_last)
{
	struct sigaction sa = { .sa_handler = raise_other };

	sigaddset(&sa.sa_mask, SIGUSR2);
	OK(sigaction(SIGUSR1, &sa, NULL));
	catch (SIGUSR2, handler, 0);
	for (unsigned i = 0; i < 300; i++)
		CHECK(kept(i, SYS_kill, getpid(), SIGUSR1, 0));
	CHECK_EQ(calls, 300);
}

/* ---- what a handler does to its frame ---- */

static void (*edit)(ucontext_t *uc, char *fp);

static void editor(int sig, siginfo_t *si, void *arg)
{
	ucontext_t *uc = arg;

	(void)sig;
	(void)si;
	calls++;
	edit(uc, (char *)uc->uc_mcontext.fpregs);
}

static void edit_at(void (*fn)(ucontext_t *, char *))
{
	struct sigaction sa = { .sa_sigaction = editor, .sa_flags = SA_SIGINFO };

	edit = fn;
	OK(sigaction(SIGUSR1, &sa, NULL));
}

static void new_values(ucontext_t *uc, char *fp)
{
	unsigned v = MXCSR_OTHER;

	(void)uc;
	memcpy(fp + 24, &v, sizeof(v));
	v = FCW_OTHER;
	memcpy(fp, &v, 2);
	for (int i = 0; i < 16; i++)
		memset(fp + 160 + 16 * i, 0x40 + i, 16);
}

static void raise_edited(struct vectors *out)
{
	struct vectors in;
	long args[5] = { SYS_kill, getpid(), SIGUSR1, 0, 0 };

	memset(&in, 0, sizeof(in));
	vector_call(&in, out, XMM, args, (void *)syscall);
}

static void check_new_values(void)
{
	struct vectors out;
	uint8_t want[16];

	set_mxcsr(MXCSR_INITIAL);
	set_fcw(FCW_INITIAL);
	raise_edited(&out);
	CHECK_EQ(mxcsr(), MXCSR_OTHER);
	CHECK_EQ(fcw(), FCW_OTHER);
	for (int i = 0; i < 16; i++) {
		memset(want, 0x40 + i, 16);
		CHECK_MEM(out.reg[i], want, 16);
	}
}

CASE(edited_state_takes_effect)
{
	edit_at(new_values);
	for (int i = 0; i < 300; i++)
		check_new_values();
}

static char *elsewhere;
static size_t moved_by;

static void move_state(ucontext_t *uc, char *fp)
{
	uint32_t size;

	memcpy(&size, fp + 468, 4);
	memcpy(elsewhere + moved_by, fp, size);
	memset(fp, 0x55, size);
	*(char **)&uc->uc_mcontext.fpregs = elsewhere + moved_by;
	new_values(uc, elsewhere + moved_by);
}

static void map_elsewhere(void)
{
	elsewhere = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

CASE(state_elsewhere_takes_effect)
{
	map_elsewhere();
	edit_at(move_state);
	for (int i = 0; i < 300; i++) {
		moved_by = (size_t)i % 64 * 64;
		check_new_values();
	}
}

/* It need not be writable, nor ever have been loaded by the processor. */
static void move_state_to_file(ucontext_t *uc, char *fp)
{
	static int fd = -1;

	move_state(uc, fp);
	if (fd < 0)
		fd = memfd_create("state", 0);
	pwrite(fd, elsewhere, 32768, 0);
	munmap(elsewhere, 32768);
	elsewhere = mmap(elsewhere, 32768, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
}

CASE(state_in_a_file)
{
	edit_at(move_state_to_file);
	for (int i = 0; i < 100; i++) {
		map_elsewhere();
		check_new_values();
		munmap(elsewhere, 32768);
	}
}

static void nowhere(ucontext_t *uc, char *fp)
{
	move_state(uc, fp);
	if (calls > 200)
		munmap(elsewhere, 32768);
}

static void no_header(ucontext_t *uc, char *fp)
{
	(void)uc;
	if (calls > 200)
		fp[512 + 8] = 1; /* xcomp_bv */
}

static void reserved_header(ucontext_t *uc, char *fp)
{
	(void)uc;
	if (calls > 200)
		fp[512 + 16] = 1;
}

static void reserved_mxcsr(ucontext_t *uc, char *fp)
{
	(void)uc;
	if (calls > 200)
		memset(fp + 24, 0xff, 4);
}

static void legacy_reserved_mxcsr(ucontext_t *uc, char *fp)
{
	reserved_mxcsr(uc, fp);
	memset(fp + 464, 0, 4);
}

static void unaligned(ucontext_t *uc, char *fp)
{
	moved_by = 0;
	move_state(uc, fp);
	if (calls > 200) {
		moved_by = 8;
		move_state(uc, elsewhere);
	}
}

static void too_many_components(ucontext_t *uc, char *fp)
{
	(void)uc;
	if (calls > 200)
		fp[512 + 7] = 0x40;
}

static sigjmp_buf after_fault;
static siginfo_t fault;

static void on_fault(int sig, siginfo_t *si, void *arg)
{
	(void)arg;
	fault = *si;
	mxcsr_seen = mxcsr();
	siglongjmp(after_fault, sig);
}

/* rt_sigreturn, at first as good as any, is refused; and the process may go on. */
static void refused(void (*fn)(ucontext_t *, char *))
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	struct vectors out;

	calls = 0;
	map_elsewhere();
	moved_by = 0;
	edit_at(fn);
	OK(sigaction(SIGSEGV, &sa, NULL));
	for (int i = 0; i < 200; i++)
		raise_edited(&out);
	memset(&fault, 0, sizeof(fault));
	if (!sigsetjmp(after_fault, 1)) {
		raise_edited(&out);
		conf_fail(__FILE__, __LINE__, "taken");
	}
	CHECK_EQ(fault.si_signo, SIGSEGV);
	CHECK_EQ(fault.si_code, SI_KERNEL);
	CHECK_EQ(mxcsr_seen, MXCSR_INITIAL);
	catch (SIGUSR1, handler, 0);
	for (unsigned i = 0; i < 50; i++)
		CHECK(kept(i, SYS_kill, getpid(), SIGUSR1, 0));
}

CASE(state_nowhere_is_refused)
{
	refused(nowhere);
}
CASE(compacted_state_is_refused)
{
	refused(no_header);
}
CASE(reserved_header_is_refused)
{
	refused(reserved_header);
}
CASE(reserved_mxcsr_is_refused)
{
	refused(reserved_mxcsr);
}
CASE(legacy_reserved_mxcsr_is_refused)
{
	refused(legacy_reserved_mxcsr);
}
CASE(unaligned_state_is_refused)
{
	refused(unaligned);
}
CASE(unknown_components_are_refused)
{
	refused(too_many_components);
}

/* ---- stacks ---- */

static char *stack;
#define STACK_SIZE (16 * 4096)

static void on_stack(int prot)
{
	stack_t ss = { .ss_size = STACK_SIZE };

	stack = mmap(NULL, STACK_SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ss.ss_sp = stack;
	OK(sigaltstack(&ss, NULL));
	catch (SIGUSR1, handler, SA_ONSTACK);
}

CASE(untouched_stack)
{
	on_stack(PROT_READ | PROT_WRITE);
	for (unsigned i = 0; i < 1000; i++) {
		CHECK(kept(i, SYS_kill, getpid(), SIGUSR1, 0));
		OK(madvise(stack, STACK_SIZE, MADV_DONTNEED));
	}
	CHECK_EQ(calls, 1000);
}

CASE(read_only_stack)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		on_stack(PROT_READ | PROT_WRITE);
		for (int i = 0; i < 200; i++)
			kill(getpid(), SIGUSR1);
		/* Of the frame only the vector state is on this page, or a part of it. */
		mprotect(stack + STACK_SIZE - 4096, 4096, PROT_READ);
		kill(getpid(), SIGUSR1);
		_exit(0);
	}
	status = conf_wait_status(pid);
	CHECK(WIFSIGNALED(status));
	CHECK_EQ(WTERMSIG(status), SIGSEGV);
}

/* Forks write-protect the stack, between a frame's parts as well. */
static _Atomic bool done;

static void *fork_on(void *arg)
{
	(void)arg;
	for (int i = 0; i < 100 && !done; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (waitpid(pid, NULL, 0) != pid)
			return (void *)1;
	}
	done = true;
	return NULL;
}

CASE(stack_being_forked)
{
	pthread_t t;
	void *bad;
	sigset_t set;

	catch (SIGUSR1, handler, 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_create(&t, NULL, fork_on, NULL);
	for (unsigned i = 0; !done; i++)
		if (!kept(i, SYS_tgkill, getpid(), gettid(), SIGUSR1)) {
			done = true;
			conf_fail(__FILE__, __LINE__, "changed by signal %u", i);
		}
	pthread_join(t, &bad);
	CHECK(bad == NULL);
}

static volatile pid_t child;

static void forker(int sig)
{
	handler(sig);
	child = fork();
}

CASE(fork_in_a_handler)
{
	catch (SIGUSR1, forker, 0);
	for (unsigned i = 0; i < 60; i++) {
		bool ok = kept(i, SYS_kill, getpid(), SIGUSR1, 0);

		if (child == 0)
			_exit(ok && kept(i, SYS_getppid, 0, 0, 0) ? 0 : 1);
		CHECK(ok);
		conf_join(child);
	}
}

static sigjmp_buf out_of_handler;

static void jumper(int sig)
{
	handler(sig);
	siglongjmp(out_of_handler, 1);
}

CASE(jump_out_of_a_handler)
{
	for (volatile unsigned i = 0; i < 500; i++) {
		catch (SIGUSR1, jumper, 0);
		if (!sigsetjmp(out_of_handler, 1)) {
			kill(getpid(), SIGUSR1);
			conf_fail(__FILE__, __LINE__, "returned");
		}
		set_mxcsr(MXCSR_OTHER);
		catch (SIGUSR1, handler, 0);
		CHECK(kept(i, SYS_kill, getpid(), SIGUSR1, 0));
		CHECK_EQ(mxcsr_seen, MXCSR_INITIAL);
		CHECK_EQ(mxcsr(), MXCSR_OTHER);
	}
}

/* ---- threads ---- */

static void quiet(int sig)
{
	(void)sig;
	spoil();
}

static void *signal_oneself(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < SIGNALS / 10; i++)
		if (!kept(i, SYS_tgkill, getpid(), gettid(), SIGUSR1))
			return (void *)1;
	return NULL;
}

CASE(threads)
{
	pthread_t t[4];
	void *bad;

	catch (SIGUSR1, quiet, 0);
	for (int i = 0; i < 4; i++)
		OK(0 - pthread_create(&t[i], NULL, signal_oneself, NULL));
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		CHECK(bad == NULL);
	}
}
CONF_MAIN
