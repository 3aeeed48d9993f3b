/* exec: errors, scripts, arguments, files in use and broken ones, spawn and vfork. */
#include "conf.h"
#include <spawn.h>
#include <sys/prctl.h>

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
CONF_MAIN
