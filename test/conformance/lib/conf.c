#include "test/conformance/conf.h"
#include <ftw.h>
#include <poll.h>
#include <time.h>

#define EXIT_SKIP 77
#define MESSAGE_MAX 600

/* The case's child writes its one message here; the parent reads it after its death. */
static int message_fd = -1;
static char tmpdir[128];

static void say(const char *fmt, va_list ap, const char *prefix)
{
	char text[MESSAGE_MAX];
	int n = snprintf(text, sizeof(text), "%s", prefix);

	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	if (write(message_fd, text, strlen(text)) < 0)
		perror("conf: message");
}

_Noreturn void conf_fail(const char *file, int line, const char *fmt, ...)
{
	char prefix[128];
	const char *base = strrchr(file, '/');
	va_list ap;

	snprintf(prefix, sizeof(prefix), "%s:%d: ", base ? base + 1 : file, line);
	va_start(ap, fmt);
	say(fmt, ap, prefix);
	va_end(ap);
	_exit(1);
}

_Noreturn void conf_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap, "");
	va_end(ap);
	_exit(EXIT_SKIP);
}

bool conf_in_sandbox(void)
{
	return getenv("MINISENTRY_CONF") != NULL;
}

const char *conf_tmpdir(void)
{
	return tmpdir;
}

const char *conf_path(const char *name)
{
	static char ring[8][600];
	static unsigned next;
	char *p = ring[next++ % 8];

	snprintf(p, sizeof(ring[0]), "%s/%s", tmpdir, name);
	return p;
}

pid_t conf_fork(void (*fn)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid < 0)
		conf_fail(__FILE__, __LINE__, "fork: %s", strerror(errno));
	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	return pid;
}

int conf_wait_status(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			conf_fail(__FILE__, __LINE__, "waitpid: %s", strerror(errno));
	}
	return status;
}

void conf_join(pid_t pid)
{
	int status = conf_wait_status(pid);

	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
		_exit(EXIT_SKIP);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		conf_fail(__FILE__, __LINE__, "helper process ended with status 0x%x", status);
}

int conf_signal_of(void (*fn)(void *), void *arg)
{
	int status = conf_wait_status(conf_fork(fn, arg));

	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Reads all of the file at path into text, NUL-terminated. */
static void slurp(const char *path, char *text, size_t size)
{
	int fd = OK(open(path, O_RDONLY));
	size_t len = 0;
	ssize_t n;

	while ((n = OK(read(fd, text + len, size - 1 - len))) > 0)
		len += (size_t)n;
	CHECK(len < size - 1);
	text[len] = '\0';
	close(fd);
}

/* Is this line of smaps the head of a mapping's rows? */
static bool smaps_head(const char *line, unsigned long *ret_start, unsigned long *ret_end)
{
	return sscanf(line, "%lx-%lx ", ret_start, ret_end) == 2 &&
	       strchr(line, '-') < strchr(line, ' ');
}

static const char *find_row(const char *path, const void *addr, const char *name)
{
	static char text[256 << 10]; /* no memory that the case would find in what it reads */
	unsigned long start, end;
	bool in = !addr;
	char *rest;

	slurp(path, text, sizeof(text));
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (addr && smaps_head(line, &start, &end))
			in = start <= (uintptr_t)addr && (uintptr_t)addr < end;
		else if (in && !strncmp(line, name, strlen(name)))
			return line + strlen(name);
	}
	conf_fail(__FILE__, __LINE__, "%s: no row %s", path, name);
}

const char *conf_row(const char *path, const char *name)
{
	return find_row(path, NULL, name);
}

const char *conf_smaps_row(const void *addr, const char *name)
{
	return find_row("/proc/self/smaps", addr, name);
}

unsigned long conf_bytes(const char *row)
{
	return strtoul(row, NULL, 10) << 10;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	remove(path);
	return 0;
}

/* $CONF_TIMEOUT: for cases that go on for long (make stress). */
static int timeout_s(void)
{
	const char *given = getenv("CONF_TIMEOUT");

	return given ? atoi(given) : CONF_TIMEOUT_S;
}

/* Waits for the case's child; kills its process group when the time is over. False: timed out. */
static bool wait_limited(pid_t pid, int *ret_status)
{
	sigset_t set;
	struct timespec limit = { .tv_sec = timeout_s() };

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (;;) {
		pid_t got = waitpid(pid, ret_status, WNOHANG);
		if (got == pid)
			return true;
		if (sigtimedwait(&set, NULL, &limit) < 0 && errno == EAGAIN)
			break;
	}
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
	waitpid(pid, ret_status, 0);
	return false;
}

static int run_case(const struct conf_case *c)
{
	char message[MESSAGE_MAX + 1] = "";
	const char *base = getenv("TMPDIR");
	int fds[2], status = 0;
	bool in_time;
	pid_t pid;
	ssize_t n;

	snprintf(tmpdir, sizeof(tmpdir), "%s/conf.XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(tmpdir) || pipe2(fds, O_CLOEXEC) < 0) {
		printf("not ok %s: set-up: %s\n", c->name, strerror(errno));
		return 1;
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setpgid(0, 0);
		close(fds[0]);
		message_fd = fcntl(fds[1], F_DUPFD_CLOEXEC, 900);
		if (message_fd < 0)
			message_fd = fds[1];
		else
			close(fds[1]);
		c->fn();
		_exit(0);
	}
	close(fds[1]);
	in_time = pid > 0 && wait_limited(pid, &status);
	kill(-pid, SIGKILL);
	/* Helpers of the case may keep the pipe open: never wait for its end. */
	fcntl(fds[0], F_SETFL, O_NONBLOCK);
	n = read(fds[0], message, MESSAGE_MAX);
	message[n > 0 ? n : 0] = '\0';
	close(fds[0]);
	nftw(tmpdir, remove_one, 16, FTW_DEPTH | FTW_PHYS);

	if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		printf("ok %s\n", c->name);
		return 0;
	}
	if (in_time && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP) {
		printf("skip %s: %s\n", c->name, message);
		return 0;
	}
	if (!in_time)
		printf("not ok %s: no end after %d s %s\n", c->name, timeout_s(), message);
	else if (WIFSIGNALED(status))
		printf("not ok %s: killed by signal %d %s\n", c->name, WTERMSIG(status), message);
	else
		printf("not ok %s: %s\n", c->name, message);
	return 1;
}

int conf_main(int argc, char **argv, const struct conf_case *begin, const struct conf_case *end)
{
	sigset_t chld;
	int failed = 0;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	if (argc == 2 && strcmp(argv[1], "list") == 0) {
		for (const struct conf_case *c = begin; c < end; c++)
			puts(c->name);
		return 0;
	}
	for (int i = 1; i < argc; i++) {
		bool found = false;
		for (const struct conf_case *c = begin; c < end; c++)
			found |= strcmp(c->name, argv[i]) == 0;
		if (!found) {
			fprintf(stderr, "%s: no case %s; `list` shows them\n", argv[0], argv[i]);
			return 2;
		}
	}
	for (const struct conf_case *c = begin; c < end; c++) {
		bool wanted = argc == 1;
		for (int i = 1; i < argc; i++)
			wanted |= strcmp(c->name, argv[i]) == 0;
		if (wanted)
			failed += run_case(c);
	}
	fflush(stdout);
	return failed ? 1 : 0;
}
