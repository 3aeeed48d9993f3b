/* Processes: fork, clone, exec, wait, groups, sessions, credentials, limits. */
#include "conf.h"
#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/utsname.h>

CASE(exit_codes)
{
	for (int code = 0; code < 256; code += 51) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(code);
		int status = conf_wait_status(pid);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
	}
}
CASE(ids_of_parent_and_child)
{
	pid_t self = getpid();
	pid_t pid = fork();
	if (pid == 0)
		_exit(getppid() == self && getpid() != self &&
				      getpid() == (pid_t)syscall(SYS_gettid)
			      ? 0
			      : 1);
	conf_join(pid);
}
CASE(wait_errors)
{
	int status;
	CHECK_ERR(wait(&status), ECHILD);
	CHECK_ERR(waitpid(getpid(), &status, 0), ECHILD);
	CHECK_ERR(waitpid(-1, &status, 0x1000), EINVAL);
	CHECK_ERR(syscall(SYS_wait4, (int)0x80000000, &status, 0, NULL), ESRCH);
	siginfo_t si;
	CHECK_ERR(waitid(P_ALL, 0, &si, 0), EINVAL);
	CHECK_ERR(waitid(9, 0, &si, WEXITED), EINVAL);
	CHECK_ERR(waitid(P_ALL, 0, &si, WEXITED), ECHILD);
}
CASE(wait_nohang)
{
	int p[2], status;
	OK(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		char c;
		close(p[1]);
		_exit(read(p[0], &c, 1) == 0 ? 3 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, WNOHANG), 0);
	siginfo_t si = { .si_pid = 99 };
	OK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG));
	CHECK_EQ(si.si_pid, 0);
	close(p[1]);
	CHECK_EQ(waitpid(-1, &status, 0), pid);
	CHECK_EQ(WEXITSTATUS(status), 3);
}
CASE(waitid_nowait_keeps)
{
	siginfo_t si;
	pid_t pid = fork();
	if (pid == 0)
		_exit(4);
	for (int i = 0; i < 2; i++) {
		OK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT));
		CHECK_EQ(si.si_pid, pid);
		CHECK_EQ(si.si_status, 4);
		CHECK_EQ(si.si_code, CLD_EXITED);
	}
	OK(waitid(P_PID, (id_t)pid, &si, WEXITED));
	CHECK_ERR(waitid(P_PID, (id_t)pid, &si, WEXITED), ECHILD);
}
CASE(wait_reports_core_and_signal)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		abort();
	}
	int status = conf_wait_status(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
CASE(wait_any_reaps_all)
{
	int seen = 0, status;
	for (int i = 0; i < 20; i++)
		if (fork() == 0)
			_exit(i);
	while (wait(&status) > 0)
		seen += WEXITSTATUS(status);
	CHECK_EQ(seen, 190);
	CHECK_EQ(errno, ECHILD);
}
CASE(sigchld_ignored_reaps)
{
	signal(SIGCHLD, SIG_IGN);
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	CHECK_ERR(waitpid(pid, NULL, 0), ECHILD);
}
CASE(orphan_gets_a_new_parent)
{
	int p[2];
	pid_t parent;
	OK(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		pid_t middle = getpid();
		if (fork() == 0) {
			while (getppid() == middle)
				sched_yield();
			parent = getppid();
			_exit(write(p[1], &parent, sizeof(parent)) == sizeof(parent) ? 0 : 1);
		}
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(read(p[0], &parent, sizeof(parent)), sizeof(parent));
	CHECK(parent != pid);
}
CASE(subreaper)
{
	int status, p[2];
	OK(pipe(p));
	OK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
	int on = 0;
	OK(prctl(PR_GET_CHILD_SUBREAPER, &on, 0, 0, 0));
	CHECK_EQ(on, 1);
	pid_t self = getpid(), pid = fork();
	if (pid == 0) {
		pid_t middle = getpid();
		if (fork() == 0) {
			while (getppid() == middle)
				sched_yield();
			_exit(getppid() == self ? 6 : 1);
		}
		_exit(0);
	}
	conf_join(pid);
	CHECK(waitpid(-1, &status, 0) > 0);
	CHECK_EQ(WEXITSTATUS(status), 6);
}
CASE(parent_death_signal)
{
	int p[2];
	OK(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		if (fork() == 0) {
			close(p[0]);
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (write(p[1], "r", 1) != 1)
				_exit(1);
			pause();
			_exit(0);
		}
		char c;
		_exit(read(p[0], &c, 1) == 1 ? 0 : 1);
	}
	close(p[1]);
	conf_join(pid);
	char c;
	CHECK_EQ(read(p[0], &c, 1), 0); /* all writers are dead */
}

/* ---- clone ---- */
CASE(clone_errors)
{
	CHECK_ERR(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_ERR(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_ERR(syscall(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0), EINVAL);
	struct clone_args ca = { .flags = 0, .exit_signal = 100 };
	CHECK_ERR(syscall(SYS_clone3, &ca, sizeof(ca)), EINVAL);
	CHECK_ERR(syscall(SYS_clone3, &ca, 8), EINVAL);
	CHECK_ERR(syscall(SYS_clone3, (void *)1, sizeof(ca)), EFAULT);
	ca = (struct clone_args){ .exit_signal = SIGCHLD, .stack = 0x1000 };
	CHECK_ERR(syscall(SYS_clone3, &ca, sizeof(ca)), EINVAL);
}
CASE(clone3_tid_pointers)
{
	int child_tid = 0, parent_tid = 0;
	struct clone_args ca = { .flags = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID,
				 .exit_signal = SIGCHLD,
				 .child_tid = (uintptr_t)&child_tid,
				 .parent_tid = (uintptr_t)&parent_tid };
	pid_t pid = (pid_t)OK(syscall(SYS_clone3, &ca, sizeof(ca)));
	if (pid == 0)
		_exit(child_tid == getpid() ? 0 : 1);
	CHECK_EQ(parent_tid, pid);
	conf_join(pid);
}
CASE(clone_parent)
{
	int status;
	pid_t middle = fork();
	if (middle == 0) {
		pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(8);
		_exit(0);
	}
	int sum = 0;
	for (int i = 0; i < 2; i++) {
		CHECK(wait(&status) > 0);
		sum += WEXITSTATUS(status);
	}
	CHECK_EQ(sum, 8);
}
CASE(clone_files_shared)
{
	int p[2];
	OK(pipe(p));
	pid_t pid = (pid_t)OK(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
	if (pid == 0) {
		close(p[0]);
		_exit(0);
	}
	conf_join(pid);
	CHECK_ERR(fcntl(p[0], F_GETFD), EBADF);
}
CASE(clone_fs_shared)
{
	char cwd[256];
	pid_t pid = (pid_t)OK(syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0));
	if (pid == 0)
		_exit(chdir("/usr") ? 1 : 0);
	conf_join(pid);
	CHECK_STR(getcwd(cwd, sizeof(cwd)), "/usr");
}
CASE(exit_signal_other)
{
	int status;
	pid_t pid = (pid_t)OK(syscall(SYS_clone, 0, 0, 0, 0, 0));
	if (pid == 0)
		_exit(2);
	CHECK_ERR(waitpid(pid, &status, 0), ECHILD);
	CHECK_EQ(waitpid(pid, &status, __WCLONE), pid);
	CHECK_EQ(WEXITSTATUS(status), 2);
}

/* ---- threads ---- */
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
CASE(exit_group_from_a_thread)
{
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t t;
		pthread_create(&t, NULL, exit_process, NULL);
		pause();
	}
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 11);
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
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t t;
		pthread_create(&t, NULL, exec_it, NULL);
		for (;;)
			pause();
	}
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 13);
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

/* ---- exec ---- */
static int run_status(const char *path, char *const argv[])
{
	pid_t pid = fork();
	if (pid == 0) {
		execv(path, argv);
		_exit(errno);
	}
	return WEXITSTATUS(conf_wait_status(pid));
}
static void make_file(const char *path, const char *text, int mode)
{
	int fd = OK(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700));
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	OK(fchmod(fd, (mode_t)mode));
	OK(close(fd));
}
CASE(exec_errors)
{
	char *argv[] = { "x", NULL };
	CHECK_EQ(run_status("/nonexistent", argv), ENOENT);
	CHECK_EQ(run_status("/etc", argv), EACCES);
	CHECK_EQ(run_status("/etc/passwd/x", argv), ENOTDIR);
	make_file(conf_path("plain"), "not a program", 0644);
	if (geteuid())
		CHECK_EQ(run_status(conf_path("plain"), argv), EACCES);
	make_file(conf_path("text"), "not a program", 0755);
	CHECK_EQ(run_status(conf_path("text"), argv), ENOEXEC);
	make_file(conf_path("empty"), "", 0755);
	CHECK_EQ(run_status(conf_path("empty"), argv), ENOEXEC);
	CHECK_ERR(syscall(SYS_execve, (void *)1, argv, NULL), EFAULT);
	CHECK_ERR(syscall(SYS_execve, "/bin/true", (void *)1, NULL), EFAULT);
}
CASE(exec_script)
{
	char *argv[] = { "x", NULL };
	make_file(conf_path("s"), "#!/bin/sh\nexit 21\n", 0755);
	CHECK_EQ(run_status(conf_path("s"), argv), 21);
	make_file(conf_path("s2"), "#! /bin/sh -e\nfalse\nexit 0\n", 0755);
	CHECK_EQ(run_status(conf_path("s2"), argv), 1);
	make_file(conf_path("s3"), "#!/nonexistent/interp\n", 0755);
	CHECK_EQ(run_status(conf_path("s3"), argv), ENOENT);
	make_file(conf_path("s4"), "#!\n", 0755);
	CHECK_EQ(run_status(conf_path("s4"), argv), ENOEXEC);
}
CASE(exec_script_nesting)
{
	char *argv[] = { "x", NULL }, line[600];
	for (int i = 0; i < 8; i++) {
		snprintf(line, sizeof(line), "#!%s/n%d\n", conf_tmpdir(), i + 1);
		char name[8];
		snprintf(name, sizeof(name), "n%d", i);
		make_file(conf_path(name), line, 0755);
	}
	CHECK_EQ(run_status(conf_path("n0"), argv), ELOOP);
}
CASE(exec_too_big)
{
	size_t n = 3 << 20;
	char *big = malloc(n + 1), *small = malloc(140 << 10);
	memset(big, 'x', n);
	big[n] = 0;
	memset(small, 'y', 140 << 10);
	small[(140 << 10) - 1] = 0;
	char *argv[] = { "x", big, NULL }, *argv2[] = { "x", small, NULL };
	CHECK_EQ(run_status("/bin/true", argv), E2BIG);
	CHECK_EQ(run_status("/bin/true", argv2), E2BIG);
}
CASE(exec_many_args)
{
	static char *argv[2002];
	argv[0] = "sh";
	argv[1] = "-c";
	argv[2] = "exit $(( $# / 10 ))";
	for (int i = 3; i < 2001; i++)
		argv[i] = "argument";
	argv[1003] = NULL;
	CHECK_EQ(run_status("/bin/sh", argv), 99);
}
CASE(exec_environment)
{
	pid_t pid = fork();
	if (pid == 0) {
		char *argv[] = { "sh", "-c", "test \"$A\" = 1 && test \"$B\" = two", NULL };
		char *env[] = { "A=1", "B=two", NULL };
		execve("/bin/sh", argv, env);
		_exit(99);
	}
	conf_join(pid);
}
CASE(exec_null_argv)
{
	pid_t pid = fork();
	if (pid == 0) {
		syscall(SYS_execve, "/bin/true", NULL, NULL);
		_exit(99);
	}
	conf_join(pid);
}
CASE(execveat_forms)
{
	char *argv[] = { "true", NULL };
	for (int i = 0; i < 2; i++) {
		int dir = OK(open("/bin", O_RDONLY | O_DIRECTORY)),
		    file = OK(open("/bin/true", O_RDONLY));
		pid_t pid = fork();
		if (pid == 0) {
			if (i == 0)
				syscall(SYS_execveat, dir, "true", argv, NULL, 0);
			else
				syscall(SYS_execveat, file, "", argv, NULL, AT_EMPTY_PATH);
			_exit(1);
		}
		conf_join(pid);
	}
	CHECK_ERR(syscall(SYS_execveat, -1, "true", argv, NULL, 0), EBADF);
	CHECK_ERR(syscall(SYS_execveat, AT_FDCWD, "/bin/true", argv, NULL, 0x8000000), EINVAL);
}
CASE(cloexec)
{
	int keep = OK(open("/dev/null", O_RDONLY)),
	    gone = OK(open("/dev/null", O_RDONLY | O_CLOEXEC));
	char script[200];
	snprintf(script, sizeof(script), "test -e /proc/self/fd/%d && ! test -e /proc/self/fd/%d",
		 keep, gone);
	char *argv[] = { "sh", "-c", script, NULL };
	CHECK_EQ(run_status("/bin/sh", argv), 0);
}
CASE(etxtbsy)
{
	char buf[65536];
	int in = OK(open("/bin/sleep", O_RDONLY)),
	    out = OK(open(conf_path("prog"), O_WRONLY | O_CREAT, 0755));
	ssize_t n;
	while ((n = read(in, buf, sizeof(buf))) > 0)
		CHECK_EQ(write(out, buf, (size_t)n), n);
	char *argv[] = { "sleep", "0", NULL };
	CHECK_EQ(run_status(conf_path("prog"), argv), ETXTBSY);
	close(out);
	CHECK_EQ(run_status(conf_path("prog"), argv), 0);
}
CASE(truncated_elf)
{
	char buf[4096], *argv[] = { "x", NULL };
	int in = OK(open("/bin/true", O_RDONLY));
	CHECK_EQ(read(in, buf, 4096), 4096);
	for (size_t n = 4; n < 4096; n += 60) {
		int fd = OK(open(conf_path("cut"), O_WRONLY | O_CREAT | O_TRUNC, 0755));
		CHECK_EQ(write(fd, buf, n), n);
		close(fd);
		pid_t pid = fork();
		if (pid == 0) {
			execv(conf_path("cut"), argv);
			_exit(99);
		}
		int status = conf_wait_status(pid);
		CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);
	}
}
CASE(mutated_elf)
{
	char buf[4096], *argv[] = { "x", NULL };
	int in = OK(open("/bin/true", O_RDONLY));
	struct stat st;
	OK(fstat(in, &st));
	char *whole = malloc((size_t)st.st_size);
	CHECK_EQ(pread(in, whole, (size_t)st.st_size, 0), st.st_size);
	memcpy(buf, whole, 4096);
	unsigned seed = 12345;
	for (int i = 0; i < 60; i++) {
		memcpy(whole, buf, 4096);
		for (int k = 0; k < 3; k++) {
			seed = seed * 1103515245 + 12345;
			whole[(seed >> 8) % 800] = (char)(seed >> 20);
		}
		int fd = OK(open(conf_path("mut"), O_WRONLY | O_CREAT | O_TRUNC, 0755));
		CHECK_EQ(write(fd, whole, (size_t)st.st_size), st.st_size);
		close(fd);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(2);
			dup2(open("/dev/null", O_WRONLY), 2);
			execv(conf_path("mut"), argv);
			_exit(99);
		}
		conf_wait_status(pid);
	}
}
CASE(posix_spawn_works)
{
	pid_t pid;
	char *argv[] = { "sh", "-c", "exit 17", NULL };
	CHECK_EQ(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, NULL), 0);
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 17);
	CHECK_EQ(posix_spawn(&pid, "/nonexistent", NULL, NULL, argv, NULL), ENOENT);
}
CASE(vfork_then_exec)
{
	static volatile int mark;
	pid_t pid = vfork();
	if (pid == 0) {
		mark = 3;
		execl("/bin/sh", "sh", "-c", "exit 4", NULL);
		_exit(1);
	}
	CHECK_EQ(mark, 3);
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 4);
}
CASE(comm_follows_exec_and_prctl)
{
	char name[17] = "";
	OK(prctl(PR_SET_NAME, "a very long thread name"));
	OK(prctl(PR_GET_NAME, name));
	CHECK_STR(name, "a very long thr");
	char *argv[] = { "sh", "-c", "read n < /proc/self/comm; test \"$n\" = sh", NULL };
	CHECK_EQ(run_status("/bin/sh", argv), 0);
}

/* ---- groups and sessions ---- */
CASE(setsid_rules)
{
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(setsid(), getpid());
		CHECK_EQ(getsid(0), getpid());
		CHECK_EQ(getpgrp(), getpid());
		CHECK_ERR(setsid(), EPERM);
		CHECK_ERR(setpgid(0, 0), EPERM);
		_exit(0);
	}
	conf_join(pid);
}
CASE(setpgid_rules)
{
	int p[2];
	OK(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		char c;
		close(p[1]);
		_exit(read(p[0], &c, 1) == 0 ? 0 : 1);
	}
	OK(setpgid(pid, pid));
	CHECK_EQ(getpgid(pid), pid);
	CHECK_ERR(setpgid(pid, 999999), EPERM);
	CHECK_ERR(setpgid(999999, 0), ESRCH);
	CHECK_ERR(setpgid(pid, -1), EINVAL);
	CHECK_ERR(getpgid(999999), ESRCH);
	OK(setpgid(pid, getpgrp()));
	close(p[1]);
	conf_join(pid);
}
CASE(setpgid_after_exec_is_eacces)
{
	int p[2];
	OK(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		dup2(p[0], 0);
		close(p[1]);
		execl("/bin/sh", "sh", "-c", "read x", NULL);
		_exit(1);
	}
	/* Its exec is visible in /proc. */
	char path[64], comm[16] = "";
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	while (strncmp(comm, "sh", 2) != 0) {
		int fd = OK(open(path, O_RDONLY));
		CHECK(read(fd, comm, 15) > 0);
		close(fd);
	}
	CHECK_ERR(setpgid(pid, pid), EACCES);
	close(p[1]);
	conf_wait_status(pid);
}
CASE(kill_a_group)
{
	pid_t leader = fork();
	if (leader == 0) {
		setpgid(0, 0);
		for (int i = 0; i < 3; i++)
			if (fork() == 0)
				pause();
		kill(0, SIGTERM);
		pause();
	}
	int status = conf_wait_status(leader);
	CHECK_EQ(WTERMSIG(status), SIGTERM);
	CHECK_ERR(kill(-999999, 0), ESRCH);
}

/* ---- credentials ---- */
CASE(setuid_drops)
{
	if (geteuid() != 0)
		SKIP("needs root");
	OK(setgroups(0, NULL));
	OK(setresgid(1000, 1000, 1000));
	OK(setresuid(1000, 1001, 1002));
	uid_t r, e, s;
	OK(getresuid(&r, &e, &s));
	CHECK(r == 1000 && e == 1001 && s == 1002);
	OK(seteuid(1002));
	CHECK_ERR(setuid(0), EPERM);
	CHECK_ERR(setgid(0), EPERM);
	CHECK_ERR(setgroups(0, NULL), EPERM);
}
CASE(supplementary_groups)
{
	if (geteuid() != 0)
		SKIP("needs root");
	gid_t in[3] = { 30, 10, 20 }, out[8];
	OK(setgroups(3, in));
	CHECK_EQ(getgroups(0, NULL), 3);
	CHECK_EQ(getgroups(8, out), 3);
	CHECK_ERR(getgroups(2, out), EINVAL);
	CHECK_ERR(setgroups(65537, in), EINVAL);
}
CASE(capabilities_after_setuid)
{
	if (geteuid() != 0)
		SKIP("needs root");
	struct {
		uint32_t version;
		int pid;
	} h = { 0x20080522, 0 };
	struct {
		uint32_t eff, perm, inh;
	} d[2];
	OK(syscall(SYS_capget, &h, d));
	OK(setuid(1000));
	OK(syscall(SYS_capget, &h, d));
	CHECK_EQ(d[0].eff | d[0].perm, 0);
	h.version = 1;
	CHECK_ERR(syscall(SYS_capget, &h, d), EINVAL);
	CHECK_EQ(h.version, 0x20080522);
}
CASE(no_new_privs)
{
	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	CHECK_ERR(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
}
CASE(prctl_errors)
{
	CHECK_ERR(prctl(99999, 0, 0, 0, 0), EINVAL);
	CHECK_ERR(prctl(PR_SET_PDEATHSIG, 100), EINVAL);
	CHECK_ERR(prctl(PR_SET_NAME, 1), EFAULT);
	int dumpable = prctl(PR_GET_DUMPABLE);
	CHECK(dumpable == 1 || dumpable == 0);
	CHECK_ERR(prctl(PR_SET_DUMPABLE, 2), EINVAL);
}

/* ---- limits, usage, names ---- */
CASE(rlimits)
{
	struct rlimit a, b = { 100, 200 };
	OK(setrlimit(RLIMIT_NOFILE, &b));
	OK(getrlimit(RLIMIT_NOFILE, &a));
	CHECK(a.rlim_cur == 100 && a.rlim_max == 200);
	b.rlim_cur = 300;
	CHECK_ERR(setrlimit(RLIMIT_NOFILE, &b), EINVAL);
	CHECK_ERR(getrlimit(99, &a), EINVAL);
	pid_t pid = fork();
	if (pid == 0) {
		OK(getrlimit(RLIMIT_NOFILE, &a));
		_exit(a.rlim_cur == 100 ? 0 : 1);
	}
	conf_join(pid);
}
CASE(nofile_limit)
{
	struct rlimit lim = { 10, 10 };
	OK(setrlimit(RLIMIT_NOFILE, &lim));
	int fd, n = 0;
	while ((fd = dup(0)) >= 0)
		n++;
	CHECK_EQ(errno, EMFILE);
	CHECK(n < 10);
	CHECK_ERR(dup2(0, 10), EBADF);
}
CASE(nproc_limit)
{
	if (geteuid() == 0)
		OK(setresuid(64999, 64999, 64999));
	struct rlimit lim = { 10, 10 };
	OK(setrlimit(RLIMIT_NPROC, &lim));
	int n = 0;
	pid_t pids[50];
	while (n < 50 && (pids[n] = fork()) > 0)
		n++;
	if (n < 50 && pids[n] == 0)
		_exit(0 * pause());
	int err = errno;
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	CHECK(n < 11);
	CHECK_EQ(err, EAGAIN);
}
CASE(rusage_grows)
{
	struct rusage a;
	volatile unsigned long x = 0;
	OK(getrusage(RUSAGE_SELF, &a));
	struct timespec t0, t1;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t0);
	do {
		for (int i = 0; i < 100000; i++)
			x += (unsigned long)i;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t1);
	} while ((t1.tv_sec - t0.tv_sec) * 1000000000L + t1.tv_nsec - t0.tv_nsec < 50000000);
	OK(getrusage(RUSAGE_SELF, &a));
	CHECK(a.ru_utime.tv_sec * 1000000 + a.ru_utime.tv_usec > 20000);
	CHECK(a.ru_maxrss > 100);
	CHECK(a.ru_minflt > 0);
	CHECK_ERR(getrusage(99, &a), EINVAL);
	CHECK(times(NULL) != -1);
}
static void touch_32m(void *arg)
{
	memset(arg, 1, 32 << 20);
}
CASE(rusage_children_maxrss_in_kib)
{
	struct rusage a;
	char *p = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	conf_join(conf_fork(touch_32m, p));
	OK(getrusage(RUSAGE_CHILDREN, &a));
	CHECK(a.ru_maxrss >= 32 << 10);
	CHECK(a.ru_maxrss < 64 << 10);
}
CASE(vfork_child_keeps_parents_peak)
{
	char *p = mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rusage a;
	pid_t pid;

	CHECK(p != MAP_FAILED);
	memset(p, 1, 32 << 20);
	pid = vfork();
	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	conf_join(pid);
	/* A child that shares its parent's memory neither ends it nor changes what it weighs. */
	OK(getrusage(RUSAGE_SELF, &a));
	CHECK(a.ru_maxrss >= 32 << 10);
}
CASE(uname_is_linux)
{
	struct utsname u;
	OK(uname(&u));
	CHECK_STR(u.sysname, "Linux");
	CHECK_STR(u.machine, "x86_64");
	CHECK_ERR(syscall(SYS_uname, (void *)8), EFAULT);
}
CASE(priorities)
{
	CHECK_EQ(getpriority(PRIO_PROCESS, 0), 0);
	OK(setpriority(PRIO_PROCESS, 0, 5));
	CHECK_EQ(getpriority(PRIO_PROCESS, 0), 5);
	OK(setpriority(PRIO_PROCESS, 0, 100));
	CHECK_EQ(getpriority(PRIO_PROCESS, 0), 19);
	CHECK_ERR(getpriority(99, 0), EINVAL);
	CHECK_ERR(getpriority(PRIO_PROCESS, 999999), ESRCH);
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

CASE(affinity_matches_nproc)
{
	cpu_set_t s;
	OK(sched_getaffinity(0, sizeof(s), &s));
	CHECK_EQ(CPU_COUNT(&s), sysconf(_SC_NPROCESSORS_ONLN));
	cpu_set_t one;
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &s)) {
			CPU_SET(i, &one);
			break;
		}
	OK(sched_setaffinity(0, sizeof(one), &one));
	OK(sched_getaffinity(0, sizeof(s), &s));
	CHECK_EQ(CPU_COUNT(&s), 1);
	CPU_ZERO(&one);
	CHECK_ERR(sched_setaffinity(0, sizeof(one), &one), EINVAL);
}
CASE(getrandom_fills)
{
	unsigned char a[64] = { 0 }, b[64] = { 0 };
	CHECK_EQ(syscall(SYS_getrandom, a, 64, 0), 64);
	CHECK_EQ(syscall(SYS_getrandom, b, 64, 0), 64);
	CHECK(memcmp(a, b, 64) != 0);
	CHECK_ERR(syscall(SYS_getrandom, a, 64, 0x100), EINVAL);
	CHECK_ERR(syscall(SYS_getrandom, (void *)1, 64, 0), EFAULT);
}
CASE(unknown_syscalls)
{
	CHECK_ERR(syscall(9999), ENOSYS);
	CHECK_ERR(syscall(-1), ENOSYS);
	CHECK_ERR(syscall(0x40000000L + 39), ENOSYS);
}
static void compat_call(void *arg)
{
	long r = 20; /* getpid in the 32-bit table */
	(void)arg;
	__asm__ volatile("int $0x80" : "+a"(r)::"memory");
}
CASE(int80_does_no_harm)
{
	int sig = conf_signal_of(compat_call, NULL);
	CHECK(sig == 0 || sig == SIGSEGV || sig == SIGSYS);
}

/* ---- pidfd ---- */
CASE(pidfd_basics)
{
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	int fd = (int)OK(syscall(SYS_pidfd_open, pid, 0));
	CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	CHECK_EQ(poll(&p, 1, 0), 0);
	OK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
	OK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0));
	CHECK_EQ(poll(&p, 1, 10000), 1);
	siginfo_t si;
	OK(waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &si, WEXITED));
	CHECK_EQ(si.si_status, SIGKILL);
	CHECK_ERR(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), ESRCH);
	CHECK_ERR(syscall(SYS_pidfd_open, -1, 0), EINVAL);
	CHECK_ERR(syscall(SYS_pidfd_open, getpid(), 0x1), EINVAL);
}
CASE(clone3_pidfd)
{
	int fd = -1;
	struct clone_args ca = { .flags = CLONE_PIDFD,
				 .exit_signal = SIGCHLD,
				 .pidfd = (uintptr_t)&fd };
	pid_t pid = (pid_t)OK(syscall(SYS_clone3, &ca, sizeof(ca)));
	if (pid == 0)
		_exit(5);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	CHECK_EQ(poll(&p, 1, 10000), 1);
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 5);
}

/* ---- seccomp inside ---- */
#include <linux/filter.h>
#include <linux/seccomp.h>
static void install(uint32_t action)
{
	struct sock_filter f[] = { { BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 },
				   { BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_getppid },
				   { BPF_RET | BPF_K, 0, 0, action },
				   { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW } };
	struct sock_fprog prog = { 4, f };
	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	OK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog));
}
CASE(seccomp_errno)
{
	install(SECCOMP_RET_ERRNO | 77);
	CHECK_ERR(syscall(SYS_getppid), 77);
	CHECK(getpid() > 0);
}
static void killed_by_filter(void *arg)
{
	(void)arg;
	install(SECCOMP_RET_KILL_PROCESS);
	syscall(SYS_getppid);
}
CASE(seccomp_kill)
{
	CHECK_EQ(conf_signal_of(killed_by_filter, NULL), SIGSYS);
}
static volatile int sys_nr;
static void on_sys(int sig, siginfo_t *si, void *u)
{
	(void)sig;
	(void)u;
	sys_nr = si->si_syscall;
}
CASE(seccomp_trap)
{
	struct sigaction sa = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };
	OK(sigaction(SIGSYS, &sa, NULL));
	install(SECCOMP_RET_TRAP);
	syscall(SYS_getppid);
	CHECK_EQ(sys_nr, SYS_getppid);
}
static void strict(void *arg)
{
	(void)arg;
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	syscall(SYS_getppid);
	syscall(SYS_exit, 0);
}
CASE(seccomp_strict)
{
	CHECK_EQ(conf_signal_of(strict, NULL), SIGKILL);
}
CASE(seccomp_errors)
{
	CHECK_ERR(syscall(SYS_seccomp, 99, 0, NULL), EINVAL);
	CHECK_ERR(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (void *)1), EFAULT);
	uint32_t a = SECCOMP_RET_TRAP, b = 0x12340000;
	OK(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &a));
	CHECK_ERR(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &b), EOPNOTSUPP);
}
CONF_MAIN
