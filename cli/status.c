/* The launcher's end of `minisentry list` and `minisentry stats`; see status.h. */
#include "cli/status.h"
#include "sentry/task/task.h"
#include "cli/cli.h"
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A sandbox that lives for less is not worth a socket. */
#define SOCKET_AFTER_MS 20
/* The sentry is asked again, and the answer goes out without figures, after so long. */
#define ASK_AGAIN_NS 100000000UL
#define GIVE_UP_NS 1000000000UL
/* Figures that are not older answer without asking. */
#define FRESH_NS 10000000UL
#define REPLY_MAX 8192
#define PROGRAM_MAX 1024
#define STALE_ANSWERS 64

#define FIGURE(name_, label_, unit_)                                                               \
	{                                                                                          \
#name_, label_, STATUS_##unit_, offsetof(struct kernel_stats, name_)               \
	}

const struct status_figure status_figures[] = {
	FIGURE(processes, "processes", COUNT),
	FIGURE(tasks, "threads", COUNT),
	FIGURE(address_spaces, "address spaces", COUNT),
	FIGURE(forks, "processes and threads made", COUNT),
	FIGURE(memory_limit, "memory limit", BYTES),
	FIGURE(committed, "committed by the host", BYTES),
	FIGURE(reserved, "reserved", BYTES),
	FIGURE(anonymous, "  for processes", BYTES),
	FIGURE(tmpfs, "  for tmpfs and shared memory", BYTES),
	FIGURE(page_cache, "  for the page cache", BYTES),
	FIGURE(shared, "shared by fork", BYTES),
	FIGURE(kept, "kept for reuse", BYTES),
	FIGURE(minor_faults, "minor faults", COUNT),
	FIGURE(major_faults, "major faults", COUNT),
	FIGURE(cow_copied, "copied on write and by fork", BYTES),
	FIGURE(break_copy, "  breaks that copied", COUNT),
	FIGURE(break_owner, "  breaks without another owner", COUNT),
	FIGURE(break_file, "  breaks of private file pages", COUNT),
	FIGURE(fork_copy, "  pieces copied by fork", COUNT),
	FIGURE(oom_kills, "killed for lack of memory", COUNT),
};
const size_t status_figure_count = ARRAY_SIZE(status_figures);

/* ---- the folder ---- */

static bool own_and_private(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 077);
}

void status_dir(int i, bool make, char *ret, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	struct stat st;
	char base[64];
	int n;

	snprintf(base, sizeof(base), "/run/user/%u", geteuid());
	if (i == 0 && (!runtime || runtime[0] != '/')) {
		*ret = '\0';
		return;
	}
	if (i < 2) {
		/* Given to the user by whoever logs him in; nothing is put where it is missing. */
		n = snprintf(ret, size, "%s/minisentry", i == 0 ? runtime : base);
		if (stat(i == 0 ? runtime : base, &st) < 0 || st.st_uid != geteuid())
			n = -1;
	} else {
		n = snprintf(ret, size, "/tmp/minisentry-%u", geteuid());
	}
	if (n > 0 && (size_t)n < size && make)
		(void)mkdir(ret, 0700);
	if (n <= 0 || (size_t)n >= size || !own_and_private(ret))
		*ret = '\0';
}

/* ---- life ---- */

void status_init(struct status_socket *c, struct run_config *config)
{
	*c = (struct status_socket){ .config = config, .listen_fd = -1, .signal_fd = -1 };
	c->started_ns = clock_monotonic_ns();
	if (pipe2(c->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		c->pipe[0] = c->pipe[1] = -1;
	config->stats_fd = c->pipe[1];
}

void status_sentry(struct status_socket *c)
{
	if (c->pipe[0] >= 0)
		close(c->pipe[0]);
}

void status_launcher(struct status_socket *c, pid_t sentry)
{
	c->sentry = sentry;
	if (c->pipe[1] >= 0)
		close(c->pipe[1]);
}

void status_report_end(int fd, int code)
{
	struct status_end_message m = { STATUS_END_MAGIC, code };

	(void)!write(fd, &m, sizeof(m));
}

/*
 * Listens at dir/ID, once and for all: who finds a socket that refuses takes it for one whose owner
 * is gone and removes it. So it begins under another name, and takes the place of one that is left
 * there of somebody with our number.
 */
static bool listen_at(int fd, const char *dir, struct sockaddr_un *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const size_t size = sizeof(a.sun_path);
	mode_t old;
	bool ok;

	*ret = a;
	if ((size_t)snprintf(a.sun_path, size, "%s/.%d", dir, getpid()) >= size ||
	    (size_t)snprintf(ret->sun_path, size, "%s/%d", dir, getpid()) >= size)
		return false;
	(void)unlink(a.sun_path);
	old = umask(077);
	ok = bind(fd, (const struct sockaddr *)&a, sizeof(a)) == 0;
	umask(old);
	if (ok && (listen(fd, 16) < 0 || rename(a.sun_path, ret->sun_path) < 0)) {
		unlink(a.sun_path);
		ok = false;
	}
	return ok;
}

/* Without one the sandbox runs all the same, and is not listed. */
static void open_socket(struct status_socket *c)
{
	char dir[sizeof(c->address.sun_path)];

	c->tried = true;
	if (c->pipe[0] < 0)
		return;
	for (int i = 0; i < STATUS_DIRS && c->listen_fd < 0; i++) {
		status_dir(i, true, dir, sizeof(dir));
		if (!dir[0])
			continue;
		c->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (c->listen_fd >= 0 && !listen_at(c->listen_fd, dir, &c->address)) {
			close(c->listen_fd);
			c->listen_fd = -1;
		}
	}
}

void status_end(struct status_socket *c)
{
	for (int i = 0; i < c->client_count; i++)
		close(c->client[i]);
	c->client_count = 0;
	if (c->listen_fd >= 0) {
		unlink(c->address.sun_path);
		close(c->listen_fd);
	}
	c->listen_fd = -1;
}

/* ---- answers ---- */

/* Bytes of the UTF-8 character at p that may be shown; 0: it is none, or a control character. */
static size_t shown_character(const unsigned char *p)
{
	/* What may come second says what is too long a form, a surrogate or beyond the last. */
	static const struct {
		unsigned char first, last, second_min, second_max, len;
	} forms[] = {
		{ ' ', '~', 0, 0xff, 1 },
		{ 0xc2, 0xc2, 0xa0, 0xbf, 2 }, /* below are controls */
		{ 0xc3, 0xdf, 0x80, 0xbf, 2 },
		{ 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 },
		{ 0xe1, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 },
		{ 0xf1, 0xf3, 0x80, 0xbf, 4 },
		{ 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (*p < forms[i].first || *p > forms[i].last)
			continue;
		if (p[1] < forms[i].second_min || p[1] > forms[i].second_max)
			return 0;
		for (size_t n = 2; n < forms[i].len; n++)
			if ((p[n] & 0xc0) != 0x80)
				return 0;
		return forms[i].len;
	}
	return 0;
}

/* The program and its arguments on one line: text, without what a terminal would obey. */
static void put_program(FILE *f, char **argv)
{
	size_t n = 0;

	fputs("program ", f);
	for (char **a = argv; *a && n < PROGRAM_MAX; a++, n++) {
		const unsigned char *p = (const unsigned char *)*a;

		if (n)
			fputc(' ', f);
		while (*p && n < PROGRAM_MAX) {
			size_t len = shown_character(p);

			if (len)
				fwrite(p, 1, len, f);
			else
				fputc('?', f);
			p += MAX(len, 1u);
			n += MAX(len, 1u);
		}
	}
	fputc('\n', f);
}

static size_t compose(const struct status_socket *c, bool figures, char *buf, size_t size)
{
	u64 now = clock_monotonic_ns();
	FILE *f = fmemopen(buf, size, "w");
	long len;

	if (!f)
		return 0;
	fprintf(f, "version %s\nid %d\nsentry_pid %d\nuptime_ms %lu\n", MINISENTRY_VERSION,
		getpid(), c->sentry, (now - c->started_ns) / 1000000);
	put_program(f, c->config->argv);
	if (figures) {
		fprintf(f, "platform %s\n",
			c->stats.platform == PLATFORM_PTRACE ? "ptrace" : "seccomp");
		for (size_t i = 0; i < status_figure_count; i++)
			fprintf(f, "%s %lu\n", status_figures[i].name,
				*(const u64 *)((const char *)&c->stats + status_figures[i].offset));
	}
	fputs("end\n", f);
	fflush(f);
	len = ftell(f);
	fclose(f);
	return len > 0 ? (size_t)len : 0;
}

static void answer_all(struct status_socket *c, bool figures)
{
	char reply[REPLY_MAX];
	size_t len = compose(c, figures, reply, sizeof(reply));

	for (int i = 0; i < c->client_count; i++) {
		/* Fits the socket's buffer: nobody is waited for. */
		if (len)
			(void)!send(c->client[i], reply, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		close(c->client[i]);
	}
	c->client_count = 0;
}

static void ask(struct status_socket *c)
{
	c->asked_ns = clock_monotonic_ns();
	kill(c->sentry, SIGURG);
}

enum message { MESSAGE_NONE, MESSAGE_FIGURES, MESSAGE_END };

union status_message {
	struct kernel_stats stats;
	struct status_end_message end;
};

static enum message read_message(struct status_socket *c, union status_message *ret)
{
	ssize_t n = read(c->pipe[0], ret, sizeof(*ret));

	if (n == sizeof(ret->end) && ret->end.magic == STATUS_END_MAGIC) {
		c->ended = true;
		c->code = ret->end.code & 0xff;
		return MESSAGE_END;
	}
	if (n == 0) /* the sentry is dead: a signal says how */
		c->writer_gone = true;
	return n == sizeof(ret->stats) && ret->stats.magic == KERNEL_STATS_MAGIC ? MESSAGE_FIGURES
										 : MESSAGE_NONE;
}

static void accept_one(struct status_socket *c)
{
	union status_message m;
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
	    (peer.uid != geteuid() && peer.uid != 0)) {
		close(fd);
		return;
	}
	c->client[c->client_count++] = fd;
	if (c->stats_ns && clock_monotonic_ns() - c->stats_ns < FRESH_NS) {
		answer_all(c, true);
	} else if (c->client_count == 1) {
		/* What came too late for others is not for this one. */
		for (int i = 0; i < STALE_ANSWERS && read_message(c, &m) == MESSAGE_FIGURES; i++)
			;
		ask(c);
		c->since_ns = c->asked_ns;
	}
}

static void take_message(struct status_socket *c)
{
	union status_message m;

	if (read_message(c, &m) != MESSAGE_FIGURES)
		return;
	c->stats = m.stats;
	c->stats_ns = clock_monotonic_ns();
	answer_all(c, true);
}

static void look_at_clock(struct status_socket *c)
{
	u64 now = clock_monotonic_ns();

	if (!c->client_count)
		return;
	if (now - c->since_ns >= GIVE_UP_NS)
		answer_all(c, false);
	else if (now - c->asked_ns >= ASK_AGAIN_NS)
		ask(c); /* it may not have been ready for the signal */
}

static int next_signal(struct status_socket *c, siginfo_t *ret)
{
	struct signalfd_siginfo si;

	if (read(c->signal_fd, &si, sizeof(si)) != sizeof(si))
		return -1;
	*ret = (siginfo_t){ .si_signo = (int)si.ssi_signo, .si_code = si.ssi_code };
	return ret->si_signo;
}

static int timeout_ms(const struct status_socket *c)
{
	if (!c->tried)
		return SOCKET_AFTER_MS;
	return c->client_count ? (int)(ASK_AGAIN_NS / 1000000) : -1;
}

int status_wait(struct status_socket *c, const sigset_t *set, siginfo_t *ret, int *ret_code)
{
	if (c->signal_fd < 0)
		c->signal_fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (c->signal_fd < 0)
		return sigwaitinfo(set, ret);
	for (;;) {
		struct pollfd p[] = {
			{ .fd = c->signal_fd, .events = POLLIN },
			{ .fd = c->client_count < STATUS_CLIENTS ? c->listen_fd : -1,
			  .events = POLLIN },
			{ .fd = c->writer_gone ? -1 : c->pipe[0], .events = POLLIN },
		};
		int n = poll(p, ARRAY_SIZE(p), timeout_ms(c));

		if (n < 0 && errno != EINTR)
			return -1;
		if (p[0].revents)
			return next_signal(c, ret);
		if (p[2].revents)
			take_message(c);
		if (p[1].revents && !c->ended)
			accept_one(c);
		if (c->ended) {
			*ret_code = c->code;
			return STATUS_ENDED;
		}
		if (n == 0 && !c->tried)
			open_socket(c);
		look_at_clock(c);
	}
}
