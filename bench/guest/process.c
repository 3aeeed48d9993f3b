/* The life of a thread or a process that does nothing: made, ended and waited for. */
#include "bench/guest/groups.h"
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define US 1000.0
#define TRUE_PATH "/bin/true"

extern char **environ;

/* 0 when the child ended well. */
static int reap(pid_t pid)
{
	int status;

	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) != pid)
		if (errno != EINTR)
			return -1;
	if (status) {
		errno = ECHILD;
		return -1;
	}
	return 0;
}

static void *thread_start(void *arg)
{
	return arg;
}

static int op_pthread(void *arg, uint64_t n)
{
	pthread_t thread;

	while (n--) {
		errno = pthread_create(&thread, NULL, thread_start, NULL);
		if (!errno)
			errno = pthread_join(thread, NULL);
		if (errno)
			return -1;
	}
	return 0;
}

static int op_fork(void *arg, uint64_t n)
{
	while (n--) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (reap(pid))
			return -1;
	}
	return 0;
}

/* In a frame that nobody else uses: the child runs on it, and gcc warns of shared variables. */
static __attribute__((noinline)) pid_t vfork_and_exit(void)
{
	/* It is what is measured. NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork) */
	pid_t pid = vfork();

	if (pid == 0)
		_exit(0);
	return pid;
}

static int op_vfork(void *arg, uint64_t n)
{
	while (n--)
		if (reap(vfork_and_exit()))
			return -1;
	return 0;
}

static int op_spawn(void *arg, uint64_t n)
{
	char *argv[] = { (char *)"true", NULL };
	pid_t pid;

	while (n--) {
		errno = posix_spawn(&pid, TRUE_PATH, NULL, NULL, argv, environ);
		if (errno || reap(pid))
			return -1;
	}
	return 0;
}

static void run_pthread(const struct bench_row *row)
{
	bench_loop_row(row->name, op_pthread, NULL, US);
}

static void run_fork(const struct bench_row *row)
{
	bench_loop_row(row->name, op_fork, NULL, US);
}

static void run_vfork(const struct bench_row *row)
{
	bench_loop_row(row->name, op_vfork, NULL, US);
}

static void run_spawn(const struct bench_row *row)
{
	if (access(TRUE_PATH, X_OK))
		bench_skip(row->name, "no %s: apt-get install coreutils", TRUE_PATH);
	else
		bench_loop_row(row->name, op_spawn, NULL, US);
}

static const struct bench_row rows[] = {
	{ "pthread_create_join", run_pthread, 0 },
	{ "fork_exit_wait", run_fork, 0 },
	{ "vfork_exit_wait", run_vfork, 0 },
	{ "spawn_exec_wait", run_spawn, 0 },
};
BENCH_GROUP(process, rows);
