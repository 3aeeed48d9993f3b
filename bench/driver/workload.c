#include "bench/driver/workload.h"
#include "bench/driver/proctree.h"
#include "bench/driver/results.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Kept of its standard error, at least and at most (unless it writes very fast). */
#define ERROR_KEEP 65536
#define ERROR_MOST (16 << 20)
/* That a process may take to exit after it closed its output. */
#define EXIT_TIMEOUT_MS 5000
#define EXIT_LOOK_MS 250
#define STANDARD_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

double workload_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* When the latest workload executed its program; one page, shared with every child. */
static volatile double *started;

static bool map_started(void)
{
	void *page = mmap(NULL, sizeof(*started), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return false;
	started = page;
	return true;
}

static _Noreturn void child(const struct workload *w, char **argv, const char *folder,
			    const struct sampler *sampler, int in, int out, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	/* Ctrl-C is for us: the workload is ended in order, and does not outlive us if we are
	 * killed. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
	if (sampler)
		sampler_join(sampler);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(w->err, STDERR_FILENO);
	setenv("PATH", STANDARD_PATH, 1);
	if (folder && chdir(folder) != 0)
		perror(folder);
	*started = workload_now_ns();
	execvp(argv[0], argv);
	dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

bool workload_start(struct workload *w, char **argv, const char *folder,
		    const struct sampler *sampler)
{
	pid_t self = getpid();
	int in[2], out[2];

	*w = (struct workload){ .pid = -1 };
	if (!started && !map_started())
		return false;
	w->err = memfd_create("minisentry-bench-stderr", MFD_CLOEXEC);
	if (w->err < 0)
		return false;
	if (pipe2(in, O_CLOEXEC) != 0) {
		close(w->err);
		return false;
	}
	if (pipe2(out, O_CLOEXEC) != 0) {
		close(w->err);
		close(in[0]);
		close(in[1]);
		return false;
	}
	/* Ours only: the other ends have file descriptions of their own. */
	fcntl(in[1], F_SETFL, O_NONBLOCK);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fflush(NULL);
	*started = workload_now_ns();
	w->started_ns = started;
	w->pid = fork();
	if (w->pid == 0)
		child(w, argv, folder, sampler, in[0], out[1], self);
	close(in[0]);
	close(out[1]);
	w->in = in[1];
	w->out = out[0];
	if (w->pid > 0)
		return true;
	close(w->in);
	close(w->out);
	close(w->err);
	return false;
}

/* The last line that is not empty of what it wrote to standard error. */
static void last_error(const struct workload *w, char *buf, size_t size)
{
	char text[4096], *line, *save = NULL, *last = NULL;
	off_t end = lseek(w->err, 0, SEEK_END);
	ssize_t n = pread(w->err, text, sizeof(text) - 1,
			  end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0);

	text[n > 0 ? n : 0] = '\0';
	for (line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
		if (line[strspn(line, " \t")])
			last = line;
	snprintf(buf, size, "%s", last ? last : "");
	clean_text(buf);
}

void workload_trim(struct workload *w)
{
	struct stat st;
	off_t end;

	if (fstat(w->err, &st) != 0 || st.st_size - w->trimmed < ERROR_MOST)
		return;
	end = (st.st_size - ERROR_KEEP) & ~(off_t)(ERROR_KEEP - 1);
	if (fallocate(w->err, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, w->trimmed,
		      end - w->trimmed) == 0)
		w->trimmed = end;
}

/* Whether the process ended within the time that one may take after closing its output. */
static bool await_exit(struct workload *w)
{
	int fd = (int)syscall(SYS_pidfd_open, w->pid, 0);
	struct pollfd p = { fd, POLLIN, 0 };
	int ready = 0;

	if (fd < 0)
		return false;
	for (int ms = 0; ready <= 0 && ms < EXIT_TIMEOUT_MS; ms += EXIT_LOOK_MS) {
		ready = poll(&p, 1, EXIT_LOOK_MS);
		workload_trim(w);
	}
	close(fd);
	return ready == 1;
}

bool workload_finish(struct workload *w, bool kill, char *how, size_t size)
{
	char error[160];
	int status = 0;
	pid_t pid = -1;

	close(w->in);
	close(w->out);
	if (!kill && await_exit(w))
		pid = waitpid(w->pid, &status, WNOHANG);
	w->ended_ns = workload_now_ns();
	proctree_kill();
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	last_error(w, error, sizeof(error));
	close(w->err);
	if (pid != w->pid)
		snprintf(how, size, "did not end by itself%s%s", *error ? ": " : "", error);
	else if (WIFSIGNALED(status))
		snprintf(how, size, "killed by signal %d%s%s", WTERMSIG(status), *error ? ": " : "",
			 error);
	else
		snprintf(how, size, "exit code %d%s%s", WEXITSTATUS(status), *error ? ": " : "",
			 error);
	return pid == w->pid && status == 0;
}
