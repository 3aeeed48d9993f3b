/* ptrace(2): stops, registers, memory, options and events, as strace and gdb use them. */
#include "conf.h"

#include <elf.h>
#include <linux/ptrace.h>
#include <pthread.h>
#include <sys/uio.h>
#include <sys/user.h>

static long pt(long request, pid_t pid, void *addr, void *data)
{
	return syscall(SYS_ptrace, request, pid, addr, data);
}

static int wait_for(pid_t pid)
{
	int status;

	CHECK_EQ(waitpid(pid, &status, __WALL), pid);
	return status;
}

/* A traced child stopped by its own SIGSTOP; fn runs in it afterwards. */
static pid_t traced(void (*fn)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (pt(PTRACE_TRACEME, 0, 0, 0) < 0)
			_exit(99);
		raise(SIGSTOP);
		fn();
		_exit(0);
	}
	status = wait_for(pid);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(WSTOPSIG(status), SIGSTOP);
	return pid;
}

static void ends_with(pid_t pid, int code)
{
	int status = wait_for(pid);

	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), code);
}

static volatile long shared_word = 0x1234;

static void exit_by_word(void)
{
	_exit((int)shared_word);
}

static void do_getppid(void)
{
	_exit(syscall(SYS_getppid) == 4242 ? 5 : 6);
}

static void raise_usr1(void)
{
	signal(SIGUSR1, SIG_IGN);
	raise(SIGUSR1);
	_exit(3);
}

static void fork_once(void)
{
	pid_t p = fork();

	if (p == 0)
		_exit(11);
	waitpid(p, NULL, 0);
	_exit(12);
}

static void exec_true(void)
{
	execl("/bin/true", "true", (char *)NULL);
	_exit(98);
}

CASE(traceme_and_continue)
{
	pid_t pid = traced(exit_by_word);

	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 0x34);
}
CASE(errors)
{
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	CHECK_ERR(pt(PTRACE_CONT, pid, 0, 0), ESRCH);
	CHECK_ERR(pt(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
	CHECK_ERR(pt(PTRACE_ATTACH, 4000000, 0, 0), ESRCH);
	CHECK_ERR(pt(PTRACE_SEIZE, pid, (void *)1, 0), EIO);
	CHECK_ERR(pt(PTRACE_SEIZE, pid, 0, (void *)0x80000000UL), EIO);
	kill(pid, SIGKILL);
	wait_for(pid);
}
CASE(peek_and_poke_memory)
{
	pid_t pid = traced(exit_by_word);
	long word = 0;

	CHECK_EQ(pt(PTRACE_PEEKDATA, pid, (void *)&shared_word, &word), 0);
	CHECK_EQ(word, 0x1234);
	CHECK_EQ(pt(PTRACE_POKEDATA, pid, (void *)&shared_word, (void *)77), 0);
	CHECK_EQ(shared_word, 0x1234);
	CHECK_ERR(pt(PTRACE_PEEKDATA, pid, (void *)8, &word), EIO);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 77);
}
CASE(registers_are_read_and_written)
{
	pid_t pid = traced(exit_by_word);
	struct user_regs_struct r;
	struct iovec iov = { &r, sizeof(r) };
	long rip;

	CHECK_EQ(pt(PTRACE_GETREGS, pid, 0, &r), 0);
	CHECK_EQ(r.cs, 0x33);
	CHECK_EQ(r.ss, 0x2b);
	CHECK_EQ(pt(PTRACE_PEEKUSR, pid, (void *)offsetof(struct user_regs_struct, rip), &rip), 0);
	CHECK_EQ((unsigned long)rip, r.rip);
	CHECK_ERR(pt(PTRACE_PEEKUSR, pid, (void *)3, &rip), EIO);
	CHECK_EQ(pt(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &iov), 0);
	CHECK_EQ(iov.iov_len, sizeof(r));
	/* It goes on in another function. */
	r.rip = (unsigned long)_exit;
	r.rdi = 42;
	r.rsp = (r.rsp & ~15UL) - 8;
	r.orig_rax = (unsigned long)-1;
	CHECK_EQ(pt(PTRACE_SETREGS, pid, 0, &r), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 42);
}
CASE(vector_registers)
{
	pid_t pid = traced(exit_by_word);
	static unsigned char buf[16384];
	struct iovec iov = { buf, sizeof(buf) };
	struct user_fpregs_struct fp;

	CHECK_EQ(pt(PTRACE_GETFPREGS, pid, 0, &fp), 0);
	CHECK_EQ(fp.cwd, 0x37f);
	CHECK_EQ(pt(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &iov), 0);
	CHECK(iov.iov_len >= 576);
	CHECK_EQ(pt(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &iov), 0);
	iov.iov_len = sizeof(buf);
	CHECK_ERR(pt(PTRACE_GETREGSET, pid, (void *)0x7777, &iov), EINVAL);
	CHECK_EQ(pt(PTRACE_KILL, pid, 0, 0), 0);
	CHECK(WIFSIGNALED(wait_for(pid)));
}
CASE(system_call_stops)
{
	pid_t pid = traced(do_getppid);
	struct user_regs_struct r;
	int status;

	CHECK_EQ(pt(PTRACE_SETOPTIONS, pid, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	for (;;) {
		CHECK_EQ(pt(PTRACE_SYSCALL, pid, 0, 0), 0);
		status = wait_for(pid);
		CHECK(WIFSTOPPED(status));
		CHECK_EQ(WSTOPSIG(status), SIGTRAP | 0x80);
		CHECK_EQ(pt(PTRACE_GETREGS, pid, 0, &r), 0);
		if (r.orig_rax == SYS_getppid)
			break;
	}
	CHECK_EQ(r.rax, (unsigned long)-ENOSYS);
	CHECK_EQ(pt(PTRACE_SYSCALL, pid, 0, 0), 0);
	CHECK_EQ(WSTOPSIG(wait_for(pid)), SIGTRAP | 0x80);
	CHECK_EQ(pt(PTRACE_GETREGS, pid, 0, &r), 0);
	CHECK_EQ(r.rax, (unsigned long)getpid());
	r.rax = 4242;
	CHECK_EQ(pt(PTRACE_SETREGS, pid, 0, &r), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 5);
}
CASE(system_call_info)
{
	pid_t pid = traced(do_getppid);
	struct ptrace_syscall_info info;

	CHECK_EQ(pt(PTRACE_SETOPTIONS, pid, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	CHECK(pt(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) > 0);
	CHECK_EQ(info.op, PTRACE_SYSCALL_INFO_NONE);
	do {
		CHECK_EQ(pt(PTRACE_SYSCALL, pid, 0, 0), 0);
		wait_for(pid);
		CHECK(pt(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) > 0);
	} while (info.op != PTRACE_SYSCALL_INFO_ENTRY || info.entry.nr != SYS_getppid);
	CHECK_EQ(pt(PTRACE_SYSCALL, pid, 0, 0), 0);
	wait_for(pid);
	CHECK(pt(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) > 0);
	CHECK_EQ(info.op, PTRACE_SYSCALL_INFO_EXIT);
	CHECK_EQ(info.exit.rval, getpid());
	CHECK_EQ(info.exit.is_error, 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 6);
}
CASE(skipped_system_call)
{
	pid_t pid = traced(do_getppid);
	struct user_regs_struct r;

	do {
		CHECK_EQ(pt(PTRACE_SYSCALL, pid, 0, 0), 0);
		wait_for(pid);
		CHECK_EQ(pt(PTRACE_GETREGS, pid, 0, &r), 0);
	} while (r.orig_rax != SYS_getppid);
	r.orig_rax = (unsigned long)-1;
	CHECK_EQ(pt(PTRACE_SETREGS, pid, 0, &r), 0);
	CHECK_EQ(pt(PTRACE_SYSCALL, pid, 0, 0), 0);
	wait_for(pid);
	CHECK_EQ(pt(PTRACE_GETREGS, pid, 0, &r), 0);
	CHECK_EQ(r.rax, (unsigned long)-ENOSYS);
	r.rax = 4242;
	CHECK_EQ(pt(PTRACE_SETREGS, pid, 0, &r), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 5);
}
CASE(signals_stop_first)
{
	pid_t pid = traced(raise_usr1);
	siginfo_t si;
	int status;

	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	status = wait_for(pid);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(WSTOPSIG(status), SIGUSR1);
	CHECK_EQ(pt(PTRACE_GETSIGINFO, pid, 0, &si), 0);
	CHECK_EQ(si.si_signo, SIGUSR1);
	CHECK_EQ(si.si_code, SI_TKILL);
	/* Another signal in its place: the process dies by it. */
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, (void *)SIGTERM), 0);
	status = wait_for(pid);
	CHECK(WIFSIGNALED(status));
	CHECK_EQ(WTERMSIG(status), SIGTERM);
}
CASE(signals_can_be_swallowed)
{
	pid_t pid = traced(raise_usr1);

	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	CHECK_EQ(WSTOPSIG(wait_for(pid)), SIGUSR1);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 3);
}
CASE(single_steps)
{
	pid_t pid = traced(exit_by_word);
	struct user_regs_struct r;
	unsigned long last = 0;

	for (int i = 0; i < 20; i++) {
		CHECK_EQ(pt(PTRACE_SINGLESTEP, pid, 0, 0), 0);
		CHECK_EQ(WSTOPSIG(wait_for(pid)), SIGTRAP);
		CHECK_EQ(pt(PTRACE_GETREGS, pid, 0, &r), 0);
		CHECK(r.rip != last);
		CHECK_EQ(r.eflags & 0x100, 0);
		last = r.rip;
	}
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 0x34);
}
CASE(breakpoints)
{
	pid_t pid = traced(exit_by_word);
	struct user_regs_struct r;
	long word = 0, at = (long)exit_by_word;

	CHECK_EQ(pt(PTRACE_PEEKTEXT, pid, (void *)at, &word), 0);
	CHECK_EQ(pt(PTRACE_POKETEXT, pid, (void *)at, (void *)((word & ~0xffL) | 0xcc)), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	CHECK_EQ(WSTOPSIG(wait_for(pid)), SIGTRAP);
	CHECK_EQ(pt(PTRACE_GETREGS, pid, 0, &r), 0);
	CHECK_EQ(r.rip, (unsigned long)at + 1);
	CHECK_EQ(pt(PTRACE_POKETEXT, pid, (void *)at, (void *)word), 0);
	r.rip = (unsigned long)at;
	CHECK_EQ(pt(PTRACE_SETREGS, pid, 0, &r), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 0x34);
}
CASE(fork_event_traces_the_child)
{
	pid_t pid = traced(fork_once);
	unsigned long child = 0;
	int status, seen = 0;

	CHECK_EQ(pt(PTRACE_SETOPTIONS, pid, 0, (void *)(PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE)),
		 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	status = wait_for(pid);
	CHECK_EQ(status >> 8, SIGTRAP | PTRACE_EVENT_FORK << 8);
	CHECK_EQ(pt(PTRACE_GETEVENTMSG, pid, 0, &child), 0);
	status = wait_for((pid_t)child);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(WSTOPSIG(status), SIGSTOP);
	CHECK_EQ(pt(PTRACE_CONT, (pid_t)child, 0, 0), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	while (seen < 2) {
		pid_t w = waitpid(-1, &status, __WALL);

		CHECK(w > 0);
		if (WIFEXITED(status)) {
			CHECK_EQ(WEXITSTATUS(status), w == pid ? 12 : 11);
			seen++;
		} else {
			CHECK_EQ(pt(PTRACE_CONT, w, 0,
				    (void *)(long)(WSTOPSIG(status) == SIGCHLD ? SIGCHLD : 0)),
				 0);
		}
	}
}
CASE(exec_event)
{
	pid_t pid = traced(exec_true);
	unsigned long message = 0;

	CHECK_EQ(pt(PTRACE_SETOPTIONS, pid, 0, (void *)PTRACE_O_TRACEEXEC), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGTRAP | PTRACE_EVENT_EXEC << 8);
	CHECK_EQ(pt(PTRACE_GETEVENTMSG, pid, 0, &message), 0);
	CHECK_EQ(message, (unsigned long)pid);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 0);
}
CASE(exec_without_option_raises_sigtrap)
{
	pid_t pid = traced(exec_true);

	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGTRAP);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 0);
}
CASE(exit_event)
{
	pid_t pid = traced(exit_by_word);
	unsigned long message = 0;

	CHECK_EQ(pt(PTRACE_SETOPTIONS, pid, 0, (void *)PTRACE_O_TRACEEXIT), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGTRAP | PTRACE_EVENT_EXIT << 8);
	CHECK_EQ(pt(PTRACE_GETEVENTMSG, pid, 0, &message), 0);
	CHECK_EQ(message, 0x3400);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	ends_with(pid, 0x34);
}
CASE(attach_and_detach)
{
	int go[2];
	pid_t pid;
	char c;

	CHECK_EQ(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		close(go[1]);
		_exit(read(go[0], &c, 1) == 0 ? 21 : 22);
	}
	close(go[0]);
	CHECK_EQ(pt(PTRACE_ATTACH, pid, 0, 0), 0);
	CHECK_EQ(WSTOPSIG(wait_for(pid)), SIGSTOP);
	CHECK_ERR(pt(PTRACE_ATTACH, pid, 0, 0), EPERM);
	CHECK_EQ(pt(PTRACE_DETACH, pid, 0, 0), 0);
	CHECK_ERR(pt(PTRACE_CONT, pid, 0, 0), ESRCH);
	close(go[1]);
	ends_with(pid, 21);
}
CASE(seize_and_interrupt)
{
	pid_t pid = fork();
	siginfo_t si;

	if (pid == 0) {
		for (;;)
			;
	}
	CHECK_EQ(pt(PTRACE_SEIZE, pid, 0, 0), 0);
	CHECK_EQ(pt(PTRACE_INTERRUPT, pid, 0, 0), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGTRAP | PTRACE_EVENT_STOP << 8);
	CHECK_EQ(pt(PTRACE_GETSIGINFO, pid, 0, &si), 0);
	CHECK_EQ(si.si_code, SIGTRAP | PTRACE_EVENT_STOP << 8);
	/* An event stop injects no signal. */
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, (void *)SIGKILL), 0);
	CHECK_EQ(pt(PTRACE_INTERRUPT, pid, 0, 0), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGTRAP | PTRACE_EVENT_STOP << 8);
	kill(pid, SIGKILL);
	CHECK(WIFSIGNALED(wait_for(pid)));
}
CASE(listen_hears_of_sigcont)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	CHECK_EQ(pt(PTRACE_SEIZE, pid, 0, 0), 0);
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGSTOP); /* the signal */
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, (void *)SIGSTOP), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGSTOP | PTRACE_EVENT_STOP << 8); /* the group's stop */
	CHECK_EQ(pt(PTRACE_LISTEN, pid, 0, 0), 0);
	CHECK_EQ(kill(pid, SIGCONT), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGTRAP | PTRACE_EVENT_STOP << 8);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	CHECK_EQ(wait_for(pid) >> 8, SIGCONT);
	kill(pid, SIGKILL);
	CHECK(WIFSIGNALED(wait_for(pid)));
}
CASE(signal_mask)
{
	pid_t pid = traced(raise_usr1);
	uint64_t set = 0;

	CHECK_EQ(pt(PTRACE_GETSIGMASK, pid, (void *)8, &set), 0);
	CHECK_ERR(pt(PTRACE_GETSIGMASK, pid, (void *)4, &set), EINVAL);
	set = 1ULL << (SIGUSR1 - 1);
	CHECK_EQ(pt(PTRACE_SETSIGMASK, pid, (void *)8, &set), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	/* Blocked now: raise() leaves it pending, and it exits. */
	ends_with(pid, 3);
}
CASE(exitkill)
{
	int up[2];
	pid_t tracer, tracee = 0;
	char c;

	CHECK_EQ(pipe(up), 0);
	tracer = fork();
	if (tracer == 0) {
		pid_t p = fork();

		if (p == 0) {
			close(up[0]);
			for (;;)
				pause();
		}
		if (pt(PTRACE_SEIZE, p, 0, (void *)PTRACE_O_EXITKILL) < 0)
			_exit(1);
		_exit(write(up[1], &p, sizeof(p)) == sizeof(p) ? 0 : 1);
	}
	close(up[1]);
	CHECK_EQ(read(up[0], &tracee, sizeof(tracee)), (ssize_t)sizeof(tracee));
	ends_with(tracer, 0);
	/* The tracee holds the pipe's other end until it is killed. */
	CHECK_EQ(read(up[0], &c, 1), 0);
}

static void *thread_main(void *arg)
{
	return arg;
}

static void two_threads(void)
{
	pthread_t th;

	pthread_create(&th, NULL, thread_main, NULL);
	pthread_join(th, NULL);
	_exit(9);
}
CASE(threads_are_traced)
{
	pid_t pid = traced(two_threads);
	int status, threads = 0;

	CHECK_EQ(pt(PTRACE_SETOPTIONS, pid, 0, (void *)PTRACE_O_TRACECLONE), 0);
	CHECK_EQ(pt(PTRACE_CONT, pid, 0, 0), 0);
	for (;;) {
		pid_t w = waitpid(-1, &status, __WALL);

		CHECK(w > 0);
		if (w == pid && WIFEXITED(status))
			break;
		if (WIFEXITED(status)) {
			threads++;
			continue;
		}
		CHECK(WIFSTOPPED(status));
		CHECK_EQ(pt(PTRACE_CONT, w, 0, 0), 0);
	}
	CHECK_EQ(WEXITSTATUS(status), 9);
	CHECK_EQ(threads, 1);
}
CONF_MAIN
