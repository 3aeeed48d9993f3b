#include "test/hostile/lib/hostile.h"
#include <poll.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <time.h>

#define ATTACK_LIMIT_MS (full() ? 500000 : 45000)
#define BYSTANDER_LIMIT_MS 20000
#define PATTERN_SIZE (1 << 20)

struct verdict {
	_Atomic int state; /* 0: nothing said, 1: breach, 2: skip */
	char text[400];
};

static struct verdict *verdict; /* NULL: not mapped here */
static int verdict_fd;		/* then */
static uint64_t rnd_state = 1;
__thread sigjmp_buf catch_env;
__thread volatile int catch_armed, catch_signal;

static void map_verdict(void)
{
	verdict = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, verdict_fd, 0);
	if (verdict == MAP_FAILED)
		syscall(SYS_exit_group, 66);
}

static _Noreturn void say(int state, const char *fmt, va_list ap)
{
	int none = 0;

	if (!verdict)
		map_verdict();
	if (__atomic_compare_exchange_n((int *)&verdict->state, &none, 100, false, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST)) {
		vsnprintf(verdict->text, sizeof(verdict->text), fmt, ap);
		verdict->state = state;
	}
	syscall(SYS_exit_group, state == 1 ? 66 : 77);
	__builtin_unreachable();
}

_Noreturn void breach(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(1, fmt, ap);
}

_Noreturn void skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(2, fmt, ap);
}

uint64_t rnd(void)
{
	uint64_t z = (rnd_state += 0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

void rnd_seed(uint64_t seed)
{
	rnd_state = seed;
}

bool full(void)
{
	return getenv("HOSTILE_FULL") != NULL;
}

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void *shared_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		skip("no shared memory: %s", strerror(errno));
	return p;
}

/* True when pid ended in time. (Looks again and again: a traced zombie is its tracer's first.) */
static bool wait_limited(pid_t pid, int limit_ms, int *ret_status)
{
	uint64_t end = now_ms() + (uint64_t)limit_ms;
	struct pollfd p = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };
	bool ended;

	for (;;) {
		/* A child that has made us its tracer reports its stops, too. */
		ended = waitpid(pid, ret_status, WNOHANG) == pid && !WIFSTOPPED(*ret_status);
		if (ended || now_ms() >= end)
			break;
		if (p.fd < 0 || poll(&p, 1, (int)(end - now_ms()) + 1) > 0)
			poll(NULL, 0, 2);
	}
	if (p.fd >= 0)
		close(p.fd);
	return ended;
}

void must_die(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	if (!wait_limited(pid, BYSTANDER_LIMIT_MS, &status))
		breach("process %d survives SIGKILL", pid);
}

int in_child(void (*fn)(void *), void *arg, int limit_ms, bool *ret_late)
{
	int status = 0;
	bool late;
	pid_t pid = fork();

	if (pid < 0)
		skip("no child: %s", strerror(errno));
	if (pid == 0) {
		fn(arg);
		syscall(SYS_exit_group, 0);
	}
	late = !wait_limited(pid, limit_ms, &status);
	if (late) {
		must_die(pid);
		status = SIGKILL;
	}
	if (ret_late)
		*ret_late = late;
	return status;
}

struct unshared {
	void (*fn)(void *);
	void *arg;
};

static void unshare(void *arg)
{
	const struct unshared *u = arg;

	munmap(verdict, 4096);
	verdict = NULL;
	u->fn(u->arg);
}

int in_child_unshared(void (*fn)(void *), void *arg, int limit_ms, bool *ret_late)
{
	struct unshared u = { fn, arg };
	struct verdict v = { 0 };
	int status;

	verdict_fd = memfd_create("verdict", 0);
	if (verdict_fd < 0 || ftruncate(verdict_fd, 4096) < 0)
		skip("no memfd");
	status = in_child(unshare, &u, limit_ms, ret_late);
	if (pread(verdict_fd, &v, sizeof(v), 0) == sizeof(v) && v.state == 2)
		skip("%s", v.text);
	if (v.state)
		breach("%s", v.text);
	close(verdict_fd);
	return status;
}

static void on_signal(int sig, siginfo_t *info, void *uc)
{
	catch_signal = sig;
	if (catch_armed) {
		catch_armed = 0;
		siglongjmp(catch_env, sig);
	}
	if (sig != SIGALRM)
		syscall(SYS_exit_group, 99);
}

void catch_setup(void)
{
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGALRM };
	stack_t st = { .ss_size = 65536 };
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	st.ss_sp =
		mmap(NULL, st.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaltstack(&st, NULL);
	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
		sigaction(sigs[i], &sa, NULL);
}

/* ---- the bystander ---- */

static bool vector_state_holds(void)
{
	uint64_t in = 0x1122334455667788, out = 0;

	__asm__ volatile("movq %1, %%xmm9; mov %2, %%eax; syscall; movq %%xmm9, %0"
			 : "=r"(out)
			 : "r"(in), "i"(SYS_getppid)
			 : "rax", "rcx", "r11", "xmm9", "memory");
	return in == out;
}

static const char *bystander_check(const uint8_t *pattern)
{
	static const char path[] = "/tmp/bystander";
	char buf[64];
	int fd, status;
	pid_t pid;
	uint8_t *m;

	for (size_t i = 0; i < PATTERN_SIZE; i++)
		if (pattern[i] != (uint8_t)(i * 31 + (i >> 12)))
			return "its memory has changed";
	if (!vector_state_holds())
		return "its vector registers have changed";
	m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return "it cannot map memory";
	for (size_t i = 0; i < 1 << 20; i++)
		if (m[i])
			return "fresh memory is not zero";
	memset(m, 1, 1 << 20);
	munmap(m, 1 << 20);
	for (int tries = 0;; tries++) {
		pid = fork();
		if (pid >= 0)
			break;
		if (tries == 100)
			return "it cannot fork";
		poll(NULL, 0, 50); /* the attack's processes may be dying still */
	}
	if (pid == 0)
		_exit(pattern[5] == (uint8_t)(5 * 31) ? 5 : 6);
	if (waitpid(pid, &status, 0) != pid || status != 5 << 8)
		return "its child did not do as told";
	unlink(path);
	fd = open(path, O_CREAT | O_RDWR | O_EXCL, 0600);
	if (fd < 0)
		return "it cannot create a file";
	if (write(fd, "still here", 10) != 10 || pread(fd, buf, sizeof(buf), 0) != 10 ||
	    memcmp(buf, "still here", 10) != 0)
		return "its file is not as written";
	close(fd);
	return NULL;
}

static pid_t bystander_start(int *ret_go, int *ret_done)
{
	int go[2], done[2];
	pid_t pid;

	if (pipe(go) < 0 || pipe(done) < 0)
		abort();
	pid = fork();
	if (pid == 0) {
		uint8_t *pattern = mmap(NULL, PATTERN_SIZE, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		const char *why;
		char c;

		setpgid(0, 0);
		for (size_t i = 0; i < PATTERN_SIZE; i++)
			pattern[i] = (uint8_t)(i * 31 + (i >> 12));
		if (write(done[1], "", 1) != 1 || read(go[0], &c, 1) != 1)
			_exit(1);
		why = bystander_check(pattern);
		if (why && write(done[1], why, strlen(why)) < 0)
			_exit(1);
		_exit(0);
	}
	close(go[0]);
	close(done[1]);
	*ret_go = go[1];
	*ret_done = done[0];
	return pid;
}

/* NULL: it is well. */
static const char *bystander_ask(pid_t pid, int go, int done)
{
	static char text[200];
	struct pollfd p = { .fd = done, .events = POLLIN };
	ssize_t n;

	if (write(go, "", 1) != 1 || poll(&p, 1, BYSTANDER_LIMIT_MS) != 1)
		return "the bystander does not answer";
	n = read(done, text, sizeof(text) - 1);
	if (n > 0) {
		text[n] = 0;
		return text;
	}
	waitpid(pid, (int *)&n, 0);
	return (int)n == 0 ? NULL : "the bystander died";
}

static void reap_all(pid_t group)
{
	uint64_t end = now_ms() + BYSTANDER_LIMIT_MS;

	kill(-group, SIGKILL);
	while (now_ms() < end && kill(-group, 0) == 0) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		poll(NULL, 0, 5);
		kill(-group, SIGKILL);
	}
}

static int run(const struct attack *a)
{
	int go, done, status = 0;
	const char *why = NULL;
	pid_t bystander, pid;
	bool ended;
	char c;

	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	verdict = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bystander = bystander_start(&go, &done);
	if (read(done, &c, 1) != 1)
		return 1;
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		close(go);
		close(done);
		rnd_seed(getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1);
		a->fn();
		syscall(SYS_exit_group, 0);
	}
	setpgid(pid, pid);
	ended = wait_limited(pid, ATTACK_LIMIT_MS, &status);
	if (!ended)
		why = "the attack does not end";
	reap_all(pid);
	if (verdict->state == 2) {
		printf("\nskip %s: %s\n", a->name, verdict->text);
		return 0;
	}
	if (verdict->state)
		why = verdict->text;
	if (!why)
		why = bystander_ask(bystander, go, done);
	if (why)
		printf("\nnot ok %s: %s (status %#x)\n", a->name, why, status);
	else
		printf("\nok %s\n", a->name);
	fflush(stdout);
	return why != NULL;
}

int hostile_main(int argc, char **argv, const struct attack *begin, const struct attack *end)
{
	for (const struct attack *a = begin; a < end; a++) {
		if (argc == 2 && strcmp(argv[1], "list") == 0)
			puts(a->name);
		else if (argc == 2 && strcmp(argv[1], a->name) == 0)
			return run(a);
	}
	return argc == 2 && strcmp(argv[1], "list") == 0 ? 0 : 2;
}

/* mov 0x18(%rbx), %rdx; syscall: frame_return in platform/stub/arch/x86_64/guest.S. */
static const uint8_t deferred_call[] = { 0x48, 0x8b, 0x53, 0x18, 0x0f, 0x05 };

static uint64_t find_deferred_call(void)
{
	static volatile uint64_t found;

	for (uint64_t at = STUB_AREA; !found && at < STUB_TEXT_END; at += 4096)
		CATCH({
			for (uint64_t i = at; !found && i < at + 4096 - 8; i++)
				if (!memcmp((void *)i, deferred_call, sizeof(deferred_call)))
					found = i + 4;
		});
	return found;
}

/* So many traps get any site patched. */
#define CALLS 40

/*
 * The stub's code then writes to `page`, which faults; that shows as a fault, or as the last
 * patched call being made once more: by then `jumped` is set, and it returns to behind the jump.
 */
static __attribute__((noinline)) void jump_to_call(uint64_t code, char *page, uint64_t nr,
						   uint64_t a, uint64_t b, uint64_t c)
{
	static __thread volatile bool jumped;

	jumped = false;
	CATCH({
		for (int i = 0; i < CALLS && !jumped; i++) /* it is to be a patched one */
			syscall(SYS_close, -1);
		if (!jumped) {
			register uint64_t at __asm__("r9") = code;
			register char *slot __asm__("r12") = page;

			jumped = true;
			__asm__ volatile("sub $128, %%rsp\n\t"
					 "lea 1f(%%rip), %%rcx\n\t"
					 "push %%rcx\n\t"
					 "jmp *%[at]\n"
					 "1:	add $128, %%rsp"
					 : "+a"(nr)
					 : [at] "r"(at), "r"(slot), "D"(a), "S"(b), "d"(c)
					 : "rbx", "rcx", "r11", "r13", "memory", "cc");
		}
	});
}

void stub_call(uint64_t nr, uint64_t a, uint64_t b, uint64_t c)
{
	static char *page; /* read-only */
	uint64_t code;

	catch_setup();
	code = find_deferred_call();
	if (!page)
		page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code && page != MAP_FAILED)
		jump_to_call(code, page, nr, a, b, c);
}

void stub_exit(void)
{
	__asm__ volatile("jmp *%0" : : "r"(find_deferred_call()), "a"(SYS_exit), "D"(0UL));
	__builtin_unreachable();
}

bool stub_calls_work(void)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	*page = (char)0xc3; /* ret */
	stub_call(SYS_mprotect, (uint64_t)page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
	if (!CATCH(((void (*)(void))page)()))
		return false;
	munmap(page, 4096);
	return true;
}
