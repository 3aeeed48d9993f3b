/* Processes: fork, clone, wait, groups, sessions, pidfds. */
#include "conf.h"
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

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
CASE(cpuid_cannot_be_switched_off)
{
	char line[8192];
	FILE *f = fopen("/proc/cpuinfo", "r");

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, " cpuid_fault"))
			SKIP("this processor can");
	}
	fclose(f);
	CHECK_ERR(syscall(SYS_arch_prctl, 0x1012 /* ARCH_SET_CPUID */, 0), ENODEV);
	CHECK_ERR(syscall(SYS_arch_prctl, 0x1012, 1), ENODEV);
	CHECK_EQ(syscall(SYS_arch_prctl, 0x1011 /* ARCH_GET_CPUID */, 0), 1);
}
CONF_MAIN
