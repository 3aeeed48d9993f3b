#include "bench/guest/capture.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int spawn(char *const argv[], int fd, int out, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int rc = posix_spawn_file_actions_init(&actions);

	if (rc)
		return -rc;
	for (int i = 0; i <= 2 && !rc; i++)
		if (i != fd)
			rc = posix_spawn_file_actions_addopen(&actions, i, "/dev/null", O_RDWR, 0);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&actions, out, fd);
	if (!rc)
		rc = posix_spawnp(ret_pid, argv[0], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}

/* To the end of the pipe, whatever fits. */
static void drain(int fd, char *text, size_t size)
{
	char rest[4096];
	size_t used = 0;
	ssize_t n;

	for (;;) {
		if (used < size - 1)
			n = read(fd, text + used, size - 1 - used);
		else
			n = read(fd, rest, sizeof(rest));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (used < size - 1)
			used += (size_t)n;
	}
	text[used] = '\0';
}

int capture(char *const argv[], int fd, char *text, size_t size)
{
	int fds[2], rc, status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	rc = spawn(argv, fd, fds[1], &pid);
	close(fds[1]);
	if (!rc)
		drain(fds[0], text, size);
	close(fds[0]);
	if (rc)
		return rc;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
