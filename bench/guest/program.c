#include "bench/guest/program.h"
#include "bench/guest/bench.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define REPETITIONS_MAX 16

/* Fixed, because the driver's own environment (a pyenv, a locale) does not pass into sandboxes. */
static char *const program_env[] = { "PATH=" PROGRAM_PATH, "HOME=/", "LANG=C.UTF-8", NULL };

/* The first executable `program` in PROGRAM_PATH; false when there is none. */
static bool find_program(const char *program, char path[PATH_MAX])
{
	const char *at = PROGRAM_PATH;

	if (strchr(program, '/')) {
		snprintf(path, PATH_MAX, "%s", program);
		return access(path, X_OK) == 0;
	}
	while (*at) {
		size_t n = strcspn(at, ":");

		snprintf(path, PATH_MAX, "%.*s/%s", (int)n, at, program);
		if (access(path, X_OK) == 0)
			return true;
		at += n + (at[n] == ':');
	}
	return false;
}

bool program_found(const char *row, const char *program, const char *package)
{
	char path[PATH_MAX];
	bool found = find_program(program, path);

	if (!found)
		bench_skip(row, "%s is not installed: apt-get install %s", program, package);
	errno = 0;
	return found;
}

pid_t program_spawn(char *const argv[], int in_fd, int out_fd, int err_fd)
{
	char path[PATH_MAX];
	pid_t pid;

	if (!find_program(argv[0], path))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		dup2(in_fd, STDIN_FILENO);
		dup2(out_fd, STDOUT_FILENO);
		if (err_fd >= 0)
			dup2(err_fd, STDERR_FILENO);
		execve(path, argv, program_env);
		_exit(127);
	}
	return pid;
}

int program_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Reads to the end of file, and past what fits, so that the writer never blocks. */
static void drain(int fd, char *out, size_t size)
{
	char rest[4096];
	size_t used = 0;
	ssize_t n;

	do {
		if (used + 1 < size)
			n = read(fd, out + used, size - 1 - used);
		else
			n = read(fd, rest, sizeof(rest));
		if (n > 0 && used + 1 < size)
			used += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	out[used] = '\0';
}

int program_run(char *const argv[], int in_fd, int out_fd, char *out, size_t size)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[2] = { -1, null };
	int code = -1;
	pid_t pid;

	if (out)
		out[0] = '\0';
	if (null < 0 || (out && pipe2(fds, O_CLOEXEC)))
		goto out;
	if (in_fd < 0)
		in_fd = null;
	pid = out_fd == STDERR_FILENO ? program_spawn(argv, in_fd, null, fds[1])
				      : program_spawn(argv, in_fd, fds[1], -1);
	if (out)
		close(fds[1]);
	if (pid < 0)
		goto out;
	if (out)
		drain(fds[0], out, size);
	code = program_wait(pid);
out:
	if (fds[0] >= 0)
		close(fds[0]);
	if (null >= 0)
		close(null);
	return code;
}

double program_time(const char *row, char *const argv[], int repetitions, uint64_t *ret_ops)
{
	double samples[REPETITIONS_MAX];
	uint64_t begun;
	int done = 0;
	int code = program_run(argv, -1, STDOUT_FILENO, NULL, 0);

	if (code) {
		bench_fail(row, "%s ended with %d", argv[0], code);
		return -1;
	}
	bench_begin(row);
	begun = bench_now();
	while (done < repetitions && done < REPETITIONS_MAX &&
	       (done == 0 || bench_now() - begun < 1000000000UL)) {
		uint64_t start = bench_now();

		code = program_run(argv, -1, STDOUT_FILENO, NULL, 0);
		if (code) {
			bench_fail(row, "%s ended with %d", argv[0], code);
			return -1;
		}
		samples[done++] = (double)(bench_now() - start) / 1e6;
	}
	*ret_ops = (uint64_t)done;
	return bench_median(samples, (size_t)done);
}
