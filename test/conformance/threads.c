/* Threads: ids, ends, exec from one, and state that is each one's own. */
#include "conf.h"
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

static void *thread_body(void *arg)
{
	*(int *)arg = (int)syscall(SYS_gettid);
	return arg;
}
CASE(threads_share_pid)
{
	int tids[16];
	pthread_t t[16];
	for (int i = 0; i < 16; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, thread_body, &tids[i]), 0);
	for (int i = 0; i < 16; i++) {
		pthread_join(t[i], NULL);
		CHECK(tids[i] != getpid());
	}
}
static void *exit_process(void *arg)
{
	(void)arg;
	_exit(11);
}
/* Exit code of a process whose second thread runs fn while the first one pauses. */
static int code_with_thread(void *(*fn)(void *))
{
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t t;
		pthread_create(&t, NULL, fn, NULL);
		for (;;)
			pause();
	}
	return WEXITSTATUS(conf_wait_status(pid));
}
CASE(exit_group_from_a_thread)
{
	CHECK_EQ(code_with_thread(exit_process), 11);
}
CASE(leader_exits_first)
{
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t t;
		pthread_create(&t, NULL, exit_process, NULL);
		syscall(SYS_exit, 99);
	}
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 11);
}
static void *exec_it(void *arg)
{
	(void)arg;
	execl("/bin/sh", "sh", "-c", "exit 13", NULL);
	_exit(1);
}
CASE(exec_from_a_thread)
{
	CHECK_EQ(code_with_thread(exec_it), 13);
}
static __thread int tls_value = 5;
static void *tls_body(void *arg)
{
	tls_value += (int)(intptr_t)arg;
	sched_yield();
	return (void *)(intptr_t)tls_value;
}
CASE(thread_local_storage)
{
	pthread_t t[8];
	for (intptr_t i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, tls_body, (void *)i);
	for (intptr_t i = 0; i < 8; i++) {
		void *r;
		pthread_join(t[i], &r);
		CHECK_EQ((intptr_t)r, 5 + i);
	}
	CHECK_EQ(tls_value, 5);
}
CASE(arch_prctl_bases)
{
	unsigned long fs = 0, gs = 1;
	OK(syscall(SYS_arch_prctl, 0x1003, &fs));
	OK(syscall(SYS_arch_prctl, 0x1001, 0x123456000UL));
	OK(syscall(SYS_arch_prctl, 0x1004, &gs));
	CHECK_EQ(gs, 0x123456000UL);
	CHECK(fs != 0);
	getpid();
	sched_yield();
	OK(syscall(SYS_arch_prctl, 0x1004, &gs));
	CHECK_EQ(gs, 0x123456000UL);
	CHECK_ERR(syscall(SYS_arch_prctl, 0x1001, 0x8000000000000000UL), EPERM);
	CHECK_ERR(syscall(SYS_arch_prctl, 0x9999, 0), EINVAL);
}

/* What one thread has done to its state is not the next one's. */
struct thread_state {
	unsigned mxcsr;
	unsigned short x87;
	sigset_t mask, pending;
	stack_t altstack;
	char name[16];
};

static void look_at_state(struct thread_state *s)
{
	memset(s, 0, sizeof(*s));
	__asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(s->mxcsr), "=m"(s->x87));
	pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
	sigpending(&s->pending);
	sigaltstack(NULL, &s->altstack);
	prctl(PR_GET_NAME, s->name);
}

static void *spoil_state(void *arg)
{
	static char stack[4][65536];
	stack_t ss = { .ss_sp = stack[(uintptr_t)arg % 4], .ss_size = sizeof(stack[0]) };
	unsigned mxcsr = 0x7f80;
	unsigned short x87 = 0x0f7f;
	sigset_t all;

	__asm__ volatile("ldmxcsr %0; fldcw %1; movq %2, %%xmm15"
			 :
			 : "m"(mxcsr), "m"(x87), "r"(0x0123456789abcdefUL)
			 : "xmm15");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_kill(pthread_self(), SIGUSR1);
	sigaltstack(&ss, NULL);
	prctl(PR_SET_NAME, "spoilt");
	return NULL;
}

static void *check_state(void *arg)
{
	look_at_state(arg);
	return NULL;
}

static void expect_same(const struct thread_state *a, const struct thread_state *b)
{
	CHECK_EQ(a->mxcsr, b->mxcsr);
	CHECK_EQ(a->x87, b->x87);
	CHECK(memcmp(&a->mask, &b->mask, 8) == 0 && memcmp(&a->pending, &b->pending, 8) == 0);
	CHECK_EQ(b->altstack.ss_flags, SS_DISABLE);
	CHECK(strcmp(a->name, b->name) == 0);
}

CASE(thread_state_is_its_own)
{
	struct thread_state mine, seen;
	pthread_t t;

	look_at_state(&mine);
	for (uintptr_t i = 0; i < 40; i++) {
		CHECK_EQ(pthread_create(&t, NULL, spoil_state, (void *)i), 0);
		pthread_join(t, NULL);
		CHECK_EQ(pthread_create(&t, NULL, check_state, &seen), 0);
		pthread_join(t, NULL);
		expect_same(&mine, &seen);
	}
}

static __attribute__((noinline)) pid_t child_of_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0)
		_exit(7);
	return pid;
}

static __attribute__((noinline)) pid_t child_of_fork(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(7);
	return pid;
}

static void *fork_a_lot(void *arg)
{
	for (int i = 0; i < 30; i++) {
		pid_t pid = i % 3 ? child_of_fork() : child_of_vfork();
		int status = conf_wait_status(pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	return arg;
}

/* Threads end and start while others of their process fork. */
CASE(threads_end_while_forking)
{
	pthread_t forkers[2], t;

	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&forkers[i], NULL, fork_a_lot, NULL), 0);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(pthread_create(&t, NULL, spoil_state, NULL), 0);
		pthread_join(t, NULL);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(forkers[i], NULL);
}
CONF_MAIN
static int exits(void *arg)
{
	(void)arg;
	syscall(SYS_exit, 0);
	return 0;
}
/* What clone writes before there is a second thread is there for both: here, into memory that is
 * shared with the parent. */
CASE(parent_settid_in_memory_shared_by_fork)
{
	enum { PIECES = 400, PIECE = 16384 };
	char *m = mmap(NULL, PIECES * PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	static _Alignas(64) char stack[16384];
	CHECK(m != MAP_FAILED);
	memset(m, 1, PIECES * PIECE);
	for (int i = 0; i < PIECES; i++) {
		volatile pid_t *tid = (volatile pid_t *)(m + i * PIECE);
		pid_t pid = fork();
		if (pid == 0) {
			stack[sizeof(stack) - 1] = 2;
			int before = *tid;
			int r = clone(exits, stack + sizeof(stack) - 128,
				      CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
					      CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID,
				      NULL, tid);
			int now = *tid;
			syscall(SYS_exit_group, now == r && r != before ? 0 : 1);
		}
		conf_join(pid);
	}
	OK(munmap(m, PIECES * PIECE));
}
