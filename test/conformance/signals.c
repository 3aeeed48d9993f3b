/* Signals: masks, handlers, queues, restarts, stops, frames. */
#include "conf.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <immintrin.h>

static volatile sig_atomic_t hits, last_sig, last_code, last_value, order[64], order_n;
static volatile pid_t last_pid;
static void count(int sig, siginfo_t *si, void *u)
{
	(void)u;
	hits++;
	last_sig = sig;
	last_code = si->si_code;
	last_pid = si->si_pid;
	last_value = si->si_value.sival_int;
	if (order_n < 64)
		order[order_n++] = sig == SIGRTMIN + 1 ? si->si_value.sival_int : sig;
}
static void handle(int sig, int flags)
{
	struct sigaction sa = { .sa_sigaction = count, .sa_flags = SA_SIGINFO | flags };
	OK(sigaction(sig, &sa, NULL));
}
static sigset_t set_of(int a, int b)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, a);
	if (b)
		sigaddset(&s, b);
	return s;
}
static void block(int a, int b)
{
	sigset_t s = set_of(a, b);
	OK(sigprocmask(SIG_BLOCK, &s, NULL));
}
static void unblock(int a, int b)
{
	sigset_t s = set_of(a, b);
	OK(sigprocmask(SIG_UNBLOCK, &s, NULL));
}

CASE(handler_gets_info)
{
	handle(SIGUSR1, 0);
	OK(kill(getpid(), SIGUSR1));
	CHECK_EQ(hits, 1);
	CHECK_EQ(last_code, SI_USER);
	CHECK_EQ(last_pid, getpid());
	OK(raise(SIGUSR1));
	CHECK_EQ(last_code, SI_TKILL);
}
CASE(ignored_is_discarded)
{
	signal(SIGUSR1, SIG_IGN);
	block(SIGUSR1, 0);
	OK(kill(getpid(), SIGUSR1));
	sigset_t p;
	sigpending(&p);
	signal(SIGUSR1, SIG_IGN); /* drops what is pending */
	sigpending(&p);
	CHECK_EQ(sigismember(&p, SIGUSR1), 0);
}
CASE(blocked_stays_pending)
{
	handle(SIGUSR1, 0);
	block(SIGUSR1, 0);
	OK(kill(getpid(), SIGUSR1));
	OK(kill(getpid(), SIGUSR1));
	CHECK_EQ(hits, 0);
	sigset_t p;
	sigpending(&p);
	CHECK_EQ(sigismember(&p, SIGUSR1), 1);
	unblock(SIGUSR1, 0);
	CHECK_EQ(hits, 1); /* standard signals coalesce */
}
CASE(realtime_queue_in_order)
{
	handle(SIGRTMIN + 1, 0);
	block(SIGRTMIN + 1, 0);
	for (int i = 0; i < 10; i++)
		OK(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = i }));
	unblock(SIGRTMIN + 1, 0);
	CHECK_EQ(hits, 10);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(order[i], i);
	CHECK_EQ(last_code, SI_QUEUE);
}
CASE(lower_numbers_first)
{
	handle(SIGUSR1, 0);
	handle(SIGRTMIN + 2, 0);
	handle(SIGHUP, 0);
	sigset_t s;
	sigfillset(&s);
	OK(sigprocmask(SIG_BLOCK, &s, NULL));
	OK(raise(SIGRTMIN + 2));
	OK(raise(SIGUSR1));
	OK(raise(SIGHUP));
	sigset_t u = set_of(SIGUSR1, SIGHUP);
	sigaddset(&u, SIGRTMIN + 2);
	OK(sigprocmask(SIG_UNBLOCK, &u, NULL));
	CHECK_EQ(hits, 3);
	/* Frames stack up: the handler built last (the highest number) runs first. */
	CHECK_EQ(order[0], SIGRTMIN + 2);
	CHECK_EQ(order[2], SIGHUP);
}
static void mask_inside(int sig)
{
	sigset_t s;
	sigprocmask(SIG_BLOCK, NULL, &s);
	hits = sigismember(&s, sig) + 10 * sigismember(&s, SIGUSR2);
}
CASE(mask_during_handler)
{
	struct sigaction sa = { .sa_handler = mask_inside };
	sigaddset(&sa.sa_mask, SIGUSR2);
	OK(sigaction(SIGUSR1, &sa, NULL));
	raise(SIGUSR1);
	CHECK_EQ(hits, 11);
	sigset_t s;
	sigprocmask(SIG_BLOCK, NULL, &s);
	CHECK_EQ(sigismember(&s, SIGUSR1) + sigismember(&s, SIGUSR2), 0);
	sa.sa_flags = SA_NODEFER;
	OK(sigaction(SIGUSR1, &sa, NULL));
	raise(SIGUSR1);
	CHECK_EQ(hits, 10);
}
CASE(resethand)
{
	handle(SIGUSR1, SA_RESETHAND);
	raise(SIGUSR1);
	struct sigaction sa;
	OK(sigaction(SIGUSR1, NULL, &sa));
	CHECK(sa.sa_handler == SIG_DFL);
}
CASE(sigaction_errors)
{
	struct sigaction sa = { .sa_handler = SIG_IGN };
	CHECK_ERR(sigaction(SIGKILL, &sa, NULL), EINVAL);
	CHECK_ERR(sigaction(SIGSTOP, &sa, NULL), EINVAL);
	CHECK_ERR(sigaction(0, &sa, NULL), EINVAL);
	CHECK_ERR(sigaction(65, &sa, NULL), EINVAL);
	CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, (void *)1, NULL, 8), EFAULT);
	CHECK_ERR(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4), EINVAL);
	CHECK_ERR(syscall(SYS_rt_sigprocmask, 99, &(unsigned long){ 0 }, NULL, 8), EINVAL);
}
CASE(kill_cannot_be_blocked)
{
	sigset_t s, now;
	sigfillset(&s);
	OK(sigprocmask(SIG_SETMASK, &s, NULL));
	sigprocmask(SIG_BLOCK, NULL, &now);
	CHECK_EQ(sigismember(&now, SIGKILL) + sigismember(&now, SIGSTOP), 0);
}
CASE(kill_errors)
{
	CHECK_ERR(kill(getpid(), 65), EINVAL);
	CHECK_ERR(kill(getpid(), -1), EINVAL);
	CHECK_ERR(kill(2000000000, 0), ESRCH);
	CHECK_EQ(kill(getpid(), 0), 0);
	CHECK_ERR(syscall(SYS_tgkill, getpid(), 0, SIGUSR1), EINVAL);
	CHECK_ERR(syscall(SYS_tgkill, getpid(), 2000000000, 0), ESRCH);
	CHECK_ERR(syscall(SYS_tkill, -1, 0), EINVAL);
}
static void default_death(void *arg)
{
	raise((int)(intptr_t)arg);
}
CASE(default_actions)
{
	static const int killers[] = { SIGHUP,	SIGINT,	 SIGQUIT, SIGILL,  SIGABRT, SIGFPE,
				       SIGKILL, SIGSEGV, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1,
				       SIGBUS,	SIGSYS,	 SIGXCPU, SIGTRAP };
	static const int ignored[] = { SIGCHLD, SIGURG, SIGWINCH, SIGCONT };
	for (size_t i = 0; i < sizeof(killers) / sizeof(int); i++)
		CHECK_EQ(conf_signal_of(default_death, (void *)(intptr_t)killers[i]), killers[i]);
	for (size_t i = 0; i < 4; i++)
		CHECK_EQ(conf_signal_of(default_death, (void *)(intptr_t)ignored[i]), 0);
	CHECK_EQ(conf_signal_of(default_death, (void *)(intptr_t)SIGRTMAX), SIGRTMAX);
}

/* ---- interruption and restart ---- */
static void *poke(void *arg)
{
	/* Waits until the main thread sleeps in its call, seen from /proc. */
	char path[64], text[256];
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", getpid());
	for (;;) {
		int fd = open(path, O_RDONLY);
		ssize_t n = read(fd, text, 255);
		close(fd);
		text[n > 0 ? n : 0] = 0;
		char *p = strrchr(text, ')');
		if (p && p[2] == 'S')
			break;
	}
	pthread_kill(*(pthread_t *)arg, SIGUSR1);
	return NULL;
}
static pthread_t main_thread;
static void poke_main(void)
{
	pthread_t t;
	main_thread = pthread_self();
	block(SIGUSR1, 0);
	pthread_create(&t, NULL, poke, &main_thread);
	unblock(SIGUSR1, 0);
}
CASE(read_is_interrupted)
{
	int p[2];
	char c;
	OK(pipe(p));
	handle(SIGUSR1, 0);
	poke_main();
	CHECK_ERR(read(p[0], &c, 1), EINTR);
}
static int restart_pipe[2];
static void feed(int sig)
{
	(void)sig;
	hits++;
	if (write(restart_pipe[1], "r", 1) != 1)
		abort();
}
CASE(read_is_restarted)
{
	char c;
	OK(pipe(restart_pipe));
	struct sigaction sa = { .sa_handler = feed, .sa_flags = SA_RESTART };
	OK(sigaction(SIGUSR1, &sa, NULL));
	poke_main();
	CHECK_EQ(read(restart_pipe[0], &c, 1), 1);
	CHECK_EQ(hits, 1);
}
CASE(nanosleep_reports_rest)
{
	struct timespec ts = { 20, 0 }, rem = { 0, 0 };
	handle(SIGUSR1, SA_RESTART);
	poke_main();
	CHECK_ERR(nanosleep(&ts, &rem), EINTR);
	CHECK(rem.tv_sec >= 1 && rem.tv_sec <= 20);
}
CASE(pause_returns_eintr)
{
	handle(SIGUSR1, SA_RESTART);
	poke_main();
	CHECK_ERR(pause(), EINTR);
	CHECK_EQ(hits, 1);
}
CASE(sigsuspend_swaps_mask)
{
	handle(SIGUSR1, 0);
	block(SIGUSR1, 0);
	raise(SIGUSR1);
	sigset_t none;
	sigemptyset(&none);
	CHECK_EQ(hits, 0);
	CHECK_ERR(sigsuspend(&none), EINTR);
	CHECK_EQ(hits, 1);
	sigset_t now;
	sigprocmask(SIG_BLOCK, NULL, &now);
	CHECK_EQ(sigismember(&now, SIGUSR1), 1);
}
CASE(wait_is_interrupted)
{
	handle(SIGUSR1, 0);
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	poke_main();
	CHECK_ERR(waitpid(pid, NULL, 0), EINTR);
	kill(pid, SIGKILL);
	conf_wait_status(pid);
}
CASE(ignored_signal_does_not_interrupt)
{
	int p[2];
	char c;
	OK(pipe(p));
	signal(SIGUSR1, SIG_IGN);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 50; i++)
			kill(parent, SIGUSR1);
		_exit(write(p[1], "z", 1) == 1 ? 0 : 1);
	}
	CHECK_EQ(read(p[0], &c, 1), 1);
	conf_join(pid);
}

/* ---- sigtimedwait ---- */
CASE(sigtimedwait_takes_pending)
{
	block(SIGUSR1, SIGUSR2);
	sigset_t s = set_of(SIGUSR1, SIGUSR2);
	siginfo_t si;
	raise(SIGUSR2);
	CHECK_EQ(sigwaitinfo(&s, &si), SIGUSR2);
	CHECK_EQ(si.si_signo, SIGUSR2);
	struct timespec zero = { 0, 0 };
	CHECK_ERR(sigtimedwait(&s, &si, &zero), EAGAIN);
	struct timespec bad = { 0, -1 };
	CHECK_ERR(sigtimedwait(&s, &si, &bad), EINVAL);
}
CASE(sigwait_from_another_process)
{
	block(SIGUSR1, 0);
	sigset_t s = set_of(SIGUSR1, 0);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0)
		_exit(sigqueue(parent, SIGUSR1, (union sigval){ .sival_int = 5 }) ? 1 : 0);
	siginfo_t si;
	CHECK_EQ(sigwaitinfo(&s, &si), SIGUSR1);
	CHECK_EQ(si.si_pid, pid);
	CHECK_EQ(si.si_value.sival_int, 5);
	conf_join(pid);
}
CASE(sigqueueinfo_rules)
{
	siginfo_t si = { .si_code = SI_QUEUE };
	block(SIGUSR1, 0);
	OK(syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR1, &si));
	si.si_code = SI_USER;
	pid_t pid = fork();
	if (pid == 0)
		_exit(syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR1, &si) == -1 && errno == EPERM
			      ? 0
			      : 1);
	conf_join(pid);
}

/* ---- stop and continue ---- */
CASE(stop_and_continue)
{
	int status, hold[2];
	char c;
	OK(pipe(hold));
	pid_t pid = fork();
	if (pid == 0) {
		close(hold[1]);
		raise(SIGSTOP);
		/* Not dead before the parent has seen it continued. */
		_exit(read(hold[0], &c, 1) == 0 ? 7 : 1);
	}
	close(hold[0]);
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK_EQ(waitpid(pid, &status, WUNTRACED | WNOHANG), 0);
	OK(kill(pid, SIGCONT));
	CHECK_EQ(waitpid(pid, &status, WCONTINUED), pid);
	CHECK(WIFCONTINUED(status));
	close(hold[1]);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(WEXITSTATUS(status), 7);
}
CASE(sigcont_discards_pending_stops)
{
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGTSTP, SIG_DFL);
		block(SIGTSTP, 0);
		raise(SIGTSTP);
		kill(getpid(), SIGCONT);
		unblock(SIGTSTP, 0);
		_exit(0);
	}
	conf_join(pid);
}
CASE(kill_ends_a_stopped_process)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		raise(SIGSTOP);
		_exit(7);
	}
	CHECK_EQ(waitpid(pid, &status, WUNTRACED), pid);
	OK(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
}
CASE(sigchld_info)
{
	handle(SIGCHLD, 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(3);
	conf_wait_status(pid);
	CHECK_EQ(hits, 1);
	CHECK_EQ(last_code, CLD_EXITED);
	CHECK_EQ(last_pid, pid);
}
CASE(nocldstop)
{
	int status;
	handle(SIGCHLD, SA_NOCLDSTOP);
	pid_t pid = fork();
	if (pid == 0) {
		raise(SIGSTOP);
		_exit(3);
	}
	while (waitpid(pid, &status, WUNTRACED) < 0)
		;
	CHECK_EQ(hits, 0);
	kill(pid, SIGCONT);
	conf_wait_status(pid);
	CHECK_EQ(hits, 1);
}

/* ---- frames ---- */
static char alt[65536] __attribute__((aligned(64)));
static void on_alt(int sig)
{
	char here;
	stack_t ss;
	(void)sig;
	sigaltstack(NULL, &ss);
	hits = &here >= alt && &here < alt + sizeof(alt) && (ss.ss_flags & SS_ONSTACK) &&
	       sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, NULL) == -1 && errno == EPERM;
}
CASE(altstack)
{
	struct sigaction sa = { .sa_handler = on_alt, .sa_flags = SA_ONSTACK };
	OK(sigaltstack(&(stack_t){ .ss_sp = alt, .ss_size = sizeof(alt) }, NULL));
	OK(sigaction(SIGUSR1, &sa, NULL));
	raise(SIGUSR1);
	CHECK_EQ(hits, 1);
	CHECK_ERR(sigaltstack(&(stack_t){ .ss_sp = alt, .ss_size = 100 }, NULL), ENOMEM);
	CHECK_ERR(sigaltstack(&(stack_t){ .ss_sp = alt, .ss_size = 65536, .ss_flags = 99 }, NULL),
		  EINVAL);
	OK(sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, NULL));
}
static void segv_on_alt(int sig)
{
	(void)sig;
	_exit(9);
}
static int runaway(int n)
{
	volatile char pad[2000];
	pad[0] = (char)n;
	return n < 0 ? 0 : runaway(n + 1) + pad[0];
}
CASE(stack_overflow_on_altstack)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct sigaction sa = { .sa_handler = segv_on_alt, .sa_flags = SA_ONSTACK };
		sigaltstack(&(stack_t){ .ss_sp = alt, .ss_size = sizeof(alt) }, NULL);
		sigaction(SIGSEGV, &sa, NULL);
		runaway(0);
	}
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 9);
}
static void skip_instruction(int sig, siginfo_t *si, void *u)
{
	ucontext_t *uc = u;
	(void)sig;
	last_code = si->si_code;
	last_sig = sig;
	uc->uc_mcontext.gregs[REG_RIP] += 2;
}
CASE(illegal_instruction)
{
	struct sigaction sa = { .sa_sigaction = skip_instruction, .sa_flags = SA_SIGINFO };
	OK(sigaction(SIGILL, &sa, NULL));
	__asm__ volatile("ud2");
	CHECK_EQ(last_sig, SIGILL);
	CHECK_EQ(last_code, ILL_ILLOPN);
}
CASE(divide_error)
{
	struct sigaction sa = { .sa_sigaction = skip_instruction, .sa_flags = SA_SIGINFO };
	OK(sigaction(SIGFPE, &sa, NULL));
	__asm__ volatile("xor %%ecx, %%ecx; mov $1, %%eax; xor %%edx, %%edx; div %%ecx" ::
				 : "eax", "ecx", "edx");
	CHECK_EQ(last_code, FPE_INTDIV);
}
static void on_trap(int sig, siginfo_t *si, void *u)
{
	ucontext_t *uc = u;
	(void)sig;
	hits++;
	last_code = si->si_code;
	uc->uc_mcontext.gregs[REG_EFL] &= ~0x100L;
}
CASE(breakpoint)
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	OK(sigaction(SIGTRAP, &sa, NULL));
	__asm__ volatile("int3");
	CHECK_EQ(hits, 1);
	CHECK_EQ(last_code, SI_KERNEL);
}
CASE(single_step)
{
	struct sigaction sa = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	OK(sigaction(SIGTRAP, &sa, NULL));
	__asm__ volatile(
		"sub $128, %%rsp; pushf; orl $0x100, (%%rsp); popf; nop; nop; add $128, %%rsp" ::
			: "memory", "cc");
	CHECK_EQ(hits, 1);
	CHECK_EQ(last_code, TRAP_TRACE);
}
static void edit_registers(int sig, siginfo_t *si, void *u)
{
	ucontext_t *uc = u;
	(void)sig;
	(void)si;
	uc->uc_mcontext.gregs[REG_R12] = 0x1234567890;
}
CASE(handler_edits_registers)
{
	struct sigaction sa = { .sa_sigaction = edit_registers, .sa_flags = SA_SIGINFO };
	OK(sigaction(SIGUSR1, &sa, NULL));
	long out, pid = getpid();
	__asm__ volatile("xor %%r12, %%r12; mov %2, %%rdi; mov %3, %%esi; mov $62, %%eax; syscall; "
			 "mov %%r12, %0"
			 : "=r"(out), "=&a"(hits)
			 : "r"(pid), "i"(SIGUSR1)
			 : "rcx", "r11", "rdi", "rsi", "r12", "memory");
	CHECK_EQ(out, 0x1234567890);
}
static void clobber_vectors(int sig)
{
	(void)sig;
	__asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm9, %%xmm9; fninit" ::: "xmm0", "xmm9");
	hits++;
}
CASE(vector_state_survives_handler)
{
	struct sigaction sa = { .sa_handler = clobber_vectors };
	OK(sigaction(SIGUSR1, &sa, NULL));
	unsigned char in[16], out[16], out9[16];
	for (int i = 0; i < 16; i++)
		in[i] = (unsigned char)(i * 7);
	__asm__ volatile("movdqu %3, %%xmm0; movdqu %3, %%xmm9; mov $39, %%eax; syscall; mov "
			 "%%rax, %%rdi; mov $10, "
			 "%%esi; mov $62, %%eax; syscall; movdqu %%xmm0, %0; movdqu %%xmm9, %1"
			 : "=m"(out), "=m"(out9), "=&a"(last_code)
			 : "m"(in)
			 : "rcx", "r11", "rdi", "rsi", "xmm0", "xmm9", "memory");
	CHECK_EQ(hits, 1);
	CHECK_MEM(in, out, 16);
	CHECK_MEM(in, out9, 16);
}
__attribute__((target("avx512f"))) static int check_zmm(void)
{
	unsigned char in[64], out[64];
	for (int i = 0; i < 64; i++)
		in[i] = (unsigned char)(i * 3 + 1);
	__asm__ volatile("vmovdqu64 %2, %%zmm17; mov $39, %%eax; syscall; mov %%rax, %%rdi; mov "
			 "$10, %%esi; mov $62, "
			 "%%eax; syscall; vmovdqu64 %%zmm17, %0"
			 : "=m"(out), "=&a"(last_code)
			 : "m"(in)
			 : "rcx", "r11", "rdi", "rsi", "memory");
	return memcmp(in, out, 64);
}
CASE(avx512_survives_handler)
{
	if (!__builtin_cpu_supports("avx512f"))
		SKIP("no AVX-512 on this processor");
	handle(SIGUSR1, 0);
	CHECK_EQ(check_zmm(), 0);
	CHECK_EQ(hits, 1);
}
CASE(red_zone_survives)
{
	handle(SIGUSR1, 0);
	long bad;
	__asm__ volatile("movq $0x5a5a, -8(%%rsp); movq $0xa5a5, -120(%%rsp); mov $39, %%eax; "
			 "syscall; mov %%rax, "
			 "%%rdi; mov $10, %%esi; mov $62, %%eax; syscall; mov -8(%%rsp), %%rdx; "
			 "sub $0x5a5a, %%rdx; mov "
			 "-120(%%rsp), %0; sub $0xa5a5, %0; or %%rdx, %0"
			 : "=&r"(bad)
			 :
			 : "rax", "rcx", "rdx", "r11", "rdi", "rsi", "memory");
	CHECK_EQ(bad, 0);
	CHECK_EQ(hits, 1);
}
CASE(registers_survive_a_call)
{
	unsigned long rbx, r15, rdx, r8;
	__asm__ volatile("mov $1, %%rbx; mov $2, %%r15; mov $3, %%rdx; mov $4, %%r8; mov $39, "
			 "%%eax; syscall; mov %%rbx, "
			 "%0; mov %%r15, %1; mov %%rdx, %2; mov %%r8, %3"
			 : "=m"(rbx), "=m"(r15), "=m"(rdx), "=m"(r8)
			 :
			 : "rax", "rbx", "r15", "rcx", "r11", "rdx", "r8", "memory");
	CHECK(rbx == 1 && r15 == 2 && rdx == 3 && r8 == 4);
}
static void nest(int sig)
{
	hits++;
	if (hits < 5)
		raise(sig);
}
CASE(nested_handlers)
{
	struct sigaction sa = { .sa_handler = nest, .sa_flags = SA_NODEFER };
	OK(sigaction(SIGUSR1, &sa, NULL));
	raise(SIGUSR1);
	CHECK_EQ(hits, 5);
}
static void bad_stack(void *arg)
{
	struct sigaction sa = { .sa_handler = nest };
	(void)arg;
	sigaction(SIGUSR1, &sa, NULL);
	long pid = getpid();
	__asm__ volatile(
		"mov $16, %%rsp; mov %0, %%rdi; mov $10, %%esi; mov $62, %%eax; syscall" ::"r"(pid)
		: "memory", "rdi", "rsi", "rax");
}
CASE(unwritable_frame_kills)
{
	CHECK_EQ(conf_signal_of(bad_stack, NULL), SIGSEGV);
}
static void bad_sigreturn(void *arg)
{
	(void)arg;
	__asm__ volatile("mov $8, %%rsp; mov $15, %%eax; syscall" ::: "memory", "rax");
}
CASE(sigreturn_from_nowhere_kills)
{
	CHECK_EQ(conf_signal_of(bad_sigreturn, NULL), SIGSEGV);
}

/* ---- timers as signals, threads ---- */
CASE(alarm_and_itimer)
{
	struct itimerval it = { .it_value = { 0, 1000 } }, old;
	handle(SIGALRM, 0);
	CHECK_EQ(alarm(100), 0);
	CHECK_EQ(alarm(0), 100);
	block(SIGALRM, 0);
	OK(setitimer(ITIMER_REAL, &it, &old));
	sigset_t s = set_of(SIGALRM, 0);
	CHECK_EQ(sigwaitinfo(&s, NULL), SIGALRM);
	OK(getitimer(ITIMER_REAL, &old));
	CHECK_EQ(old.it_value.tv_sec + old.it_value.tv_usec, 0);
	CHECK_ERR(setitimer(99, &it, NULL), EINVAL);
	it.it_value.tv_usec = 2000000;
	CHECK_ERR(setitimer(ITIMER_REAL, &it, NULL), EINVAL);
}
static void *idle_thread(void *arg)
{
	sigset_t s = set_of(SIGUSR1, 0);
	int sig = 0;
	(void)arg;
	sigwait(&s, &sig);
	return (void *)(intptr_t)sig;
}
CASE(thread_directed)
{
	block(SIGUSR1, 0);
	pthread_t t;
	void *ret;
	pthread_create(&t, NULL, idle_thread, NULL);
	CHECK_EQ(pthread_kill(t, SIGUSR1), 0);
	pthread_join(t, &ret);
	CHECK_EQ((intptr_t)ret, SIGUSR1);
}
static pthread_t handler_thread;
static void note_thread(int sig)
{
	(void)sig;
	handler_thread = pthread_self();
	hits++;
}
static void *take_signal(void *arg)
{
	unblock(SIGUSR1, 0);
	(void)arg;
	while (!hits)
		usleep(100);
	return NULL;
}
CASE(process_signal_finds_unblocked_thread)
{
	signal(SIGUSR1, note_thread);
	block(SIGUSR1, 0);
	pthread_t t;
	pthread_create(&t, NULL, take_signal, NULL);
	OK(kill(getpid(), SIGUSR1));
	pthread_join(t, NULL);
	CHECK(pthread_equal(handler_thread, t));
}
static void *spin_forever(void *arg)
{
	(void)arg;
	for (volatile int i = 0;; i++)
		;
	return NULL;
}
CASE(fatal_signal_ends_busy_threads)
{
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t t;
		pthread_create(&t, NULL, spin_forever, NULL);
		raise(SIGTERM);
		_exit(0);
	}
	int status = conf_wait_status(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}
CASE(handlers_reset_on_exec)
{
	handle(SIGUSR1, 0);
	signal(SIGUSR2, SIG_IGN);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "kill -USR2 $$; kill -USR1 $$; exit 0", NULL);
		_exit(1);
	}
	int status = conf_wait_status(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}
CASE(mask_kept_on_exec)
{
	block(SIGUSR1, 0);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "kill -USR1 $$; exit 5", NULL);
		_exit(1);
	}
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 5);
}
CASE(sigpending_limit)
{
	struct rlimit lim = { 5, 5 };
	if (geteuid() == 0)
		OK(setresuid(65533, 65533, 65533));
	OK(setrlimit(RLIMIT_SIGPENDING, &lim));
	block(SIGRTMIN + 1, 0);
	int n = 0;
	while (n < 100 && sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ 0 }) == 0)
		n++;
	CHECK(n <= 5);
	CHECK_EQ(errno, EAGAIN);
}
CASE(sigpipe_and_epipe)
{
	int p[2];
	OK(pipe(p));
	close(p[0]);
	handle(SIGPIPE, 0);
	CHECK_ERR(write(p[1], "x", 1), EPIPE);
	CHECK_EQ(hits, 1);
}
CASE(permission)
{
	if (geteuid() != 0)
		SKIP("needs root to become two users");
	pid_t victim = fork();
	if (victim == 0) {
		pause();
		_exit(0);
	}
	pid_t pid = fork();
	if (pid == 0) {
		OK(setresuid(65533, 65533, 65533));
		CHECK_ERR(kill(victim, SIGTERM), EPERM);
		CHECK_ERR(kill(victim, 0), EPERM);
		_exit(0);
	}
	conf_join(pid);
	kill(victim, SIGKILL);
	conf_wait_status(victim);
}
CASE(tgkill_finds_no_room)
{
	const struct rlimit none = { 0, 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	OK(setrlimit(RLIMIT_SIGPENDING, &none));
	CHECK_ERR(syscall(SYS_tgkill, getpid(), gettid(), SIGRTMIN), EAGAIN);
	CHECK_ERR(syscall(SYS_tkill, gettid(), SIGRTMIN), EAGAIN);
	/* These are noted without. */
	OK(kill(getpid(), SIGRTMIN));
	OK(syscall(SYS_tgkill, getpid(), gettid(), SIGUSR1));
	OK(sigpending(&set));
	CHECK(sigismember(&set, SIGRTMIN) && sigismember(&set, SIGUSR1));
}
CONF_MAIN
