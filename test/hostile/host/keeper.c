/*
 * Runs a command and tells what it leaves behind. On the host, around minisentry.
 * keeper SECONDS COMMAND...: the command's exit code, 128 + signal; 124 when it
 * had to be killed; prints `leftover: N` to descriptor 3 when processes
 * descended from it outlive it by more than 3 s.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Children of ours that are left, ended ones collected. */
static int children(pid_t watch, int *ret_status, int *ret_watch_ended)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		if (pid == watch) {
			*ret_status = status;
			*ret_watch_ended = 1;
		}
	}
	return pid == 0; /* -1: ECHILD */
}

int main(int argc, char **argv)
{
	int status = 0, ended = 0, late = 0, left;
	double end;
	pid_t pid;

	if (argc < 3)
		return 2;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	end = now() + atof(argv[1]);
	pid = fork();
	if (pid == 0) {
		close(3);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	while (children(pid, &status, &ended), !ended) {
		if (now() > end) {
			late = 1;
			kill(pid, SIGKILL);
			end += 1e6;
		}
		poll(NULL, 0, 5);
	}
	end = now() + 3;
	while ((left = children(pid, &status, &ended)) && now() < end)
		poll(NULL, 0, 5);
	if (left)
		dprintf(3, "leftover\n");
	if (late)
		return 124;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
