/*
 * The process that the user started. It stays outside the sandbox, holds the
 * terminal's settings, forwards signals to the sentry, and turns its end into an exit code.
 */
#include "cli/status.h"
#include "cli/cli.h"
#include "sentry/confine/confine.h"
#include "sentry/kernel/boot.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static const int forwarded[] = { SIGTERM,  SIGINT,  SIGHUP,  SIGQUIT,
				 SIGWINCH, SIGUSR1, SIGCONT, SIGALRM };

static void block_all(sigset_t *old)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		sigaddset(&set, forwarded[i]);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, old);
}

/* The sentry's process: dies with the launcher, runs, exits. */
_Noreturn static void run_sentry(struct run_config *config, struct confine_state *state,
				 pid_t launcher, const sigset_t *old, int go_fd)
{
	char c;
	int code;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* In a new PID namespace the parent is 0 by definition; otherwise it must still be there.
	 */
	if (!state->pid_ns && getppid() != launcher)
		_exit(EXIT_OURS);
	sigprocmask(SIG_SETMASK, old, NULL);
	if (go_fd >= 0) {
		if (read(go_fd, &c, 1) != 1)
			_exit(EXIT_OURS);
		close(go_fd);
	}
	code = sentry_run(config, state);
	fflush(NULL);
	/* The host takes a while to undo our memory and namespaces: nobody has to wait for that. */
	if (state->pid_ns)
		status_report_end(config->stats_fd, code);
	_exit(code);
}

static int wait_for_sentry(pid_t pid, struct status_socket *socket)
{
	sigset_t set;
	siginfo_t info;
	int status, code;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		sigaddset(&set, forwarded[i]);
	sigaddset(&set, SIGCHLD);
	for (;;) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			break;
		int sig = status_wait(socket, &set, &info, &code);
		if (sig == STATUS_ENDED) {
			/* The init of its PID namespace: nothing of the sandbox outlives it. */
			kill(pid, SIGKILL);
			return code;
		}
		/* What the terminal sends reaches the sentry by itself: it is in the same group. */
		if (sig > 0 && sig != SIGCHLD && info.si_code <= 0)
			kill(pid, sig);
		else if (sig == SIGWINCH || sig == SIGCONT)
			kill(pid, sig);
	}
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	/* SIGSYS, SIGSEGV and the like are ours; only the host sends a SIGKILL. */
	return cli_error(
		WTERMSIG(status) == SIGKILL
			? "a smaller --memory, if the host ran out of memory (dmesg says so)"
			: "running it again with --log=debug; this is a defect of minisentry",
		"the sentry was killed by signal %d (%s)", WTERMSIG(status),
		strsignal(WTERMSIG(status)));
}

int launcher_run(struct run_config *config, bool (*on_start)(pid_t sentry, void *arg), void *arg)
{
	struct confine_state state = { 0 };
	struct termios saved;
	bool have_tty = isatty(0) && tcgetattr(0, &saved) == 0;
	pid_t self = getpid(), pid;
	int go[2] = { -1, -1 }, code;
	struct status_socket status;
	sigset_t old;

	if (on_start && pipe2(go, 02000000 /* O_CLOEXEC */) < 0)
		return cli_error(NULL, "pipe: %s", strerror(errno));
	block_all(&old);
	status_init(&status, config);
	pid = confine_fork(config->no_namespaces, &state);
	if (pid == 0) {
		status_sentry(&status);
		if (go[1] >= 0)
			close(go[1]);
		run_sentry(config, &state, self, &old, go[0]);
	}
	if (pid < 0) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		return cli_error(NULL, "cannot start the sentry: %s", strerror(-pid));
	}
	status_launcher(&status, pid);
	if (on_start) {
		close(go[0]);
		bool go_on = on_start(pid, arg);
		if (!go_on || write(go[1], "x", 1) != 1)
			kill(pid, SIGKILL);
		close(go[1]);
		if (!go_on) {
			waitpid(pid, NULL, 0);
			sigprocmask(SIG_SETMASK, &old, NULL);
			return EXIT_OURS;
		}
	}
	code = wait_for_sentry(pid, &status);
	status_end(&status);
	/* In the background the terminal is somebody else's, and its settings too. */
	if (have_tty && tcgetpgrp(0) == getpgrp()) {
		signal(SIGTTOU, SIG_IGN);
		tcsetattr(0, TCSADRAIN, &saved);
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
	return code;
}
