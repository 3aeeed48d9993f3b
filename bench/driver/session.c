#include "bench/driver/session.h"
#include "bench/driver/proctree.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_LENGTH 1024
#define PROBE_TIMEOUT_S 30
#define TRUE_RUNS 10
#define EXIT_TIMEOUT_MS 5000
/* Shorter phases are mostly our own questions and answers: no CPU time is given for them. */
#define CPU_PHASE_LEAST_NS 1e6
/* The guest's interval lies within ours; more is a lie, less by more than hand-over is too. */
#define CLOCK_OVER 1.01
#define CLOCK_UNDER 0.9
#define CLOCK_SLACK_NS 1e6
#define CLOCK_HANDOVER_NS 50e6

struct session {
	const struct session_host *host;
	int group, runtime, round;
	int timeout_s;
	pid_t pid;
	int in, out, err; /* its standard input (we write), output (we read), error (a memfd) */
	char line[LINE_MAX_LENGTH];
	size_t line_length;
	double spawned_ns, ended_ns;
	/* The phase under way. */
	int row; /* index into results.rows; -1: none, or one that nobody asked for */
	char row_name[80]; /* "" outside a phase */
	double begun_ns, cpu_ns, memory;
	bool *pending; /* [results.row_count] */
	bool probe_ended;
	char probe_why[WHY_MAX];
};

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static int find_row(const struct results *r, const char *name)
{
	for (int i = 0; i < r->row_count; i++)
		if (strcmp(r->rows[i]->name, name) == 0)
			return i;
	return -1;
}

static struct sample *sample_of(const struct session *s, int row)
{
	return &results_cell(s->host->results, row, s->runtime)->samples[s->round];
}

static void set_why(struct session *s, int row, const char *why)
{
	struct cell *cell = results_cell(s->host->results, row, s->runtime);

	if (!*cell->why)
		snprintf(cell->why, sizeof(cell->why), "%s", why);
}

/* ---- starting and ending ---- */

static void child(const struct session *s, char **argv, int in, int out)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* Ctrl-C is for us: the workload is ended in order. */
	setpgid(0, 0);
	sampler_join(s->host->sampler);
	dup2(in, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(s->err, STDERR_FILENO);
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	if (chdir(s->host->env->home) != 0)
		perror(s->host->env->home);
	execv(argv[0], argv);
	dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static bool start(struct session *s, char **argv)
{
	int in[2], out[2];

	s->err = memfd_create("minisentry-bench-stderr", MFD_CLOEXEC);
	if (s->err < 0 || pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
		return false;
	fflush(NULL);
	s->spawned_ns = now_ns();
	s->pid = fork();
	if (s->pid == 0)
		child(s, argv, in[0], out[1]);
	close(in[0]);
	close(out[1]);
	s->in = in[1];
	s->out = out[0];
	s->line_length = 0;
	s->row_name[0] = '\0';
	s->row = -1;
	return s->pid > 0;
}

/* The last line that is not empty of what it wrote to standard error. */
static void last_error(const struct session *s, char *buf, size_t size)
{
	char text[4096], *line, *save = NULL, *last = NULL;
	off_t end = lseek(s->err, 0, SEEK_END);
	ssize_t n = pread(s->err, text, sizeof(text) - 1,
			  end > (off_t)sizeof(text) - 1 ? end - (off_t)sizeof(text) + 1 : 0);

	text[n > 0 ? n : 0] = '\0';
	for (line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
		if (line[strspn(line, " \t")])
			last = line;
	for (char *c = last; c && *c; c++)
		if ((unsigned char)*c < ' ')
			*c = ' ';
	snprintf(buf, size, "%s", last ? last : "");
}

/* Whether the process ended within the time that one may take after closing its output. */
static bool await_exit(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { fd, POLLIN, 0 };
	int ready = -1;

	while (fd >= 0 && (ready = poll(&p, 1, EXIT_TIMEOUT_MS)) < 0 && errno == EINTR)
		;
	close(fd);
	return ready == 1;
}

/* Ends what is left of it and reaps. Says in `why` how it ended. */
static void finish(struct session *s, bool killed, char *why, size_t size)
{
	char error[WHY_MAX - 40];
	int status = 0;
	pid_t pid = -1;

	close(s->in);
	close(s->out);
	if (!killed && await_exit(s->pid))
		pid = waitpid(s->pid, &status, WNOHANG);
	s->ended_ns = now_ns();
	proctree_kill();
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	last_error(s, error, sizeof(error));
	close(s->err);
	if (pid != s->pid)
		snprintf(why, size, "did not end by itself%s%s", *error ? ": " : "", error);
	else if (WIFSIGNALED(status))
		snprintf(why, size, "killed by signal %d%s%s", WTERMSIG(status), *error ? ": " : "",
			 error);
	else
		snprintf(why, size, "exit code %d%s%s", WEXITSTATUS(status), *error ? ": " : "",
			 error);
}

/* ---- the lines of a workload (bench/guest/bench.h) ---- */

static bool answer(struct session *s)
{
	return write(s->in, "\n", 1) == 1;
}

/* Startup time is a row of the idle group: from spawning to the first word of a workload at rest. */
static void record_startup(struct session *s, const char *idle_row)
{
	char name[128];
	int row;

	snprintf(name, sizeof(name), "startup_%s", idle_row + strlen("idle_"));
	row = find_row(s->host->results, name);
	if (row >= 0) {
		sample_of(s, row)->value = (now_ns() - s->spawned_ns) / 1e6;
		s->pending[row] = false;
	}
}

static void record_value(struct session *s, const char *name, double value)
{
	int row = find_row(s->host->results, name);

	if (row >= 0) {
		sample_of(s, row)->value = value;
		s->pending[row] = false;
	}
}

/* Memory of a sandbox at rest; the guest's own value for the row means nothing. */
static double record_idle(struct session *s, const char *idle_row)
{
	struct proctree t = proctree_take();
	struct proctree_memory m = proctree_memory(&t);
	char name[128];

	proctree_free(&t);
	snprintf(name, sizeof(name), "%s_memfile", idle_row);
	record_value(s, name, m.memfile / 1e6);
	snprintf(name, sizeof(name), "%s_kernel", idle_row);
	record_value(s, name, sampler_kernel_memory(s->host->sampler) / 1e6);
	return m.pss / 1e6;
}

static void on_begin(struct session *s, const char *name)
{
	snprintf(s->row_name, sizeof(s->row_name), "%s", name);
	s->row = find_row(s->host->results, name);
	if (groups[s->group].kind == GROUP_IDLE)
		record_startup(s, name);
	if (s->host->progress)
		s->host->progress(s->host->progress_arg, name);
	s->memory = sampler_memory(s->host->sampler);
	s->cpu_ns = sampler_cpu_ns(s->host->sampler);
	s->begun_ns = now_ns();
	answer(s);
}

static bool clock_lies(double guest_ns, double host_ns)
{
	return guest_ns > host_ns * CLOCK_OVER + CLOCK_SLACK_NS ||
	       guest_ns < host_ns * CLOCK_UNDER - CLOCK_HANDOVER_NS;
}

static void on_end(struct session *s, const char *name, double value, double ops, double guest_ns)
{
	double host_ns = now_ns() - s->begun_ns;
	double cpu_ns = sampler_cpu_ns(s->host->sampler) - s->cpu_ns;
	double growth = sampler_memory(s->host->sampler) - s->memory;

	if (strcmp(name, s->row_name) != 0)
		return;
	if (groups[s->group].kind == GROUP_IDLE)
		value = record_idle(s, name);
	if (s->row >= 0) {
		struct sample *sample = sample_of(s, s->row);

		*sample = (struct sample){
			.value = value,
			.cpu_ns = ops > 0 && host_ns >= CPU_PHASE_LEAST_NS ? cpu_ns / ops : NAN,
			.growth = growth,
			.guest_ns = guest_ns,
			.host_ns = host_ns,
		};
		s->pending[s->row] = false;
		if (clock_lies(guest_ns, host_ns))
			results_cell(s->host->results, s->row, s->runtime)->clock_lies = true;
	}
	if (strcmp(name, "probe") == 0) {
		s->probe_ended = true;
		if (clock_lies(guest_ns, host_ns))
			snprintf(s->probe_why, sizeof(s->probe_why),
				 "its clock says %.0f ms for what took %.0f ms", guest_ns / 1e6,
				 host_ns / 1e6);
	}
	s->row_name[0] = '\0';
	s->row = -1;
	answer(s);
}

static void on_refusal(struct session *s, const char *name, const char *why, bool skipped)
{
	int row = find_row(s->host->results, name);

	if (row < 0)
		return;
	set_why(s, row, why);
	results_cell(s->host->results, row, s->runtime)->skipped |= skipped;
	s->pending[row] = false;
	/* A row's further values have no phase of their own and fail with it. */
	for (int i = row + 1; i < s->host->results->row_count &&
			      (s->host->results->rows[i]->flags & ROW_VALUE);
	     i++) {
		set_why(s, i, why);
		s->pending[i] = false;
	}
	s->row_name[0] = '\0';
}

/* Anything that is not a line of the protocol (a runtime's own messages) is passed over. */
static void take_line(struct session *s, char *line)
{
	char name[80];
	double value, ops, ns;
	int at = 0;

	if (sscanf(line, "begin %79s", name) == 1)
		on_begin(s, name);
	else if (sscanf(line, "end %79s %lf %lf %lf", name, &value, &ops, &ns) == 4)
		on_end(s, name, value, ops, ns);
	else if (sscanf(line, "value %79s %lf", name, &value) == 2)
		record_value(s, name, value);
	else if (sscanf(line, "skip %79s %n", name, &at) == 1 && at > 0)
		on_refusal(s, name, line + at, true);
	else if (sscanf(line, "fail %79s %n", name, &at) == 1 && at > 0)
		on_refusal(s, name, line + at, false);
}

static void take_bytes(struct session *s, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (bytes[i] != '\n') {
			if (s->line_length < sizeof(s->line) - 1)
				s->line[s->line_length++] = bytes[i];
			continue;
		}
		s->line[s->line_length] = '\0';
		s->line_length = 0;
		take_line(s, s->line);
	}
}

enum ending { ENDED, HUNG, INTERRUPTED };

static enum ending converse(struct session *s)
{
	double heard_ns = now_ns();
	char bytes[4096];

	for (;;) {
		struct pollfd p = { s->out, POLLIN, 0 };
		int ready = poll(&p, 1, 250);
		ssize_t n;

		if (*s->host->interrupted)
			return INTERRUPTED;
		if (s->host->progress)
			s->host->progress(s->host->progress_arg, NULL);
		if (ready <= 0) {
			if (now_ns() - heard_ns > s->timeout_s * 1e9)
				return HUNG;
			continue;
		}
		n = read(s->out, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ENDED;
		heard_ns = now_ns();
		take_bytes(s, bytes, (size_t)n);
	}
}

/* ---- groups ---- */

/* The rows to name on the command line: none when a value row needs the row that it comes with. */
static int pending_names(const struct session *s, const char **names)
{
	const struct results *r = s->host->results;
	int count = 0;

	for (int i = 0; i < r->row_count; i++) {
		if (!s->pending[i])
			continue;
		if (r->rows[i]->flags & ROW_VALUE)
			return 0;
		names[count++] = r->rows[i]->name;
	}
	return count;
}

static bool any_pending(const struct session *s)
{
	for (int i = 0; i < s->host->results->row_count; i++)
		if (s->pending[i])
			return true;
	return false;
}

static void fail_pending(struct session *s, const char *why)
{
	for (int i = 0; i < s->host->results->row_count; i++)
		if (s->pending[i]) {
			set_why(s, i, why);
			s->pending[i] = false;
		}
}

/* The row that broke the process: the one in its phase, or else the first that never came. */
static void fail_culprit(struct session *s, const char *why)
{
	int row = s->row >= 0 && s->pending[s->row] ? s->row : -1;

	for (int i = 0; row < 0 && i < s->host->results->row_count; i++)
		if (s->pending[i])
			row = i;
	if (row >= 0) {
		set_why(s, row, why);
		s->pending[row] = false;
	}
}

/* One process for `names`. HUNG and INTERRUPTED as converse; rows that it did not do have a why. */
static enum ending run_process(struct session *s, const char *const *names, int count)
{
	const struct runtime *rt = &s->host->results->runtimes[s->runtime];
	const struct group *group = &groups[s->group];
	struct command c = {};
	char how[WHY_MAX], why[WHY_MAX + 64];
	enum ending ending;

	command_add_runtime(&c, s->host->env, rt, group->place);
	command_add_group(&c, s->host->env, group, names, count);
	if (!start(s, c.words)) {
		fail_pending(s, "the host could not start a process");
		command_free(&c);
		return ENDED;
	}
	ending = converse(s);
	finish(s, ending != ENDED, how, sizeof(how));
	command_free(&c);
	if (ending == HUNG) {
		snprintf(why, sizeof(why), "hung: no word for %d s%s%s", s->timeout_s,
			 *s->row_name ? " in " : "", s->row_name);
		fail_culprit(s, why);
	} else if (ending == ENDED && any_pending(s)) {
		fail_culprit(s, how);
	}
	return ending;
}

/* Each server of the idle group needs a runtime of its own: its start is what is measured. */
static bool run_idle(struct session *s, const bool *asked)
{
	static const char *const kinds[] = { "empty", "nginx", "node" };
	const struct results *r = s->host->results;
	bool alive = true;

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]) && alive; k++) {
		char name[32];
		const char *names[] = { name };
		bool wanted = false;

		snprintf(name, sizeof(name), "idle_%s", kinds[k]);
		for (int i = 0; i < r->row_count; i++) {
			s->pending[i] = asked[i] && strstr(r->rows[i]->name, kinds[k]);
			wanted |= s->pending[i];
		}
		if (!wanted)
			continue;
		alive = run_process(s, names, 1) == ENDED;
		if (any_pending(s)) {
			int idle = find_row(r, name);
			const char *why = idle >= 0 ? results_cell(r, idle, s->runtime)->why : "";

			fail_pending(s, *why ? why : "the workload did not come so far");
		}
	}
	return alive;
}

/* From starting the runtime to its end, for a program that does nothing. */
static void run_true(struct session *s, int row)
{
	const struct runtime *rt = &s->host->results->runtimes[s->runtime];
	double ms[TRUE_RUNS], cpu = sampler_cpu_ns(s->host->sampler);
	struct command c = {};
	char how[WHY_MAX];

	command_add_runtime(&c, s->host->env, rt, PLACE_TMPFS);
	command_add(&c, "/bin/true");
	for (int i = 0; i < TRUE_RUNS && !*s->host->interrupted; i++) {
		enum ending ending;

		if (!start(s, c.words))
			break;
		ending = converse(s);
		finish(s, ending != ENDED, how, sizeof(how));
		ms[i] = (s->ended_ns - s->spawned_ns) / 1e6;
		if (strcmp(how, "exit code 0") != 0) {
			set_why(s, row, how);
			break;
		}
		if (i + 1 == TRUE_RUNS) {
			cpu = sampler_cpu_ns(s->host->sampler) - cpu;
			*sample_of(s, row) = (struct sample){ stats_median(ms, TRUE_RUNS),
							      cpu / TRUE_RUNS, NAN, NAN, NAN };
		}
	}
	command_free(&c);
	s->pending[row] = false;
}

static bool run_rows(struct session *s)
{
	const char **names = calloc((size_t)s->host->results->row_count + 1, sizeof(*names));
	enum ending ending = ENDED;

	while (names && any_pending(s) && !*s->host->interrupted) {
		int count = pending_names(s, names);

		ending = run_process(s, names, count);
		if (ending != ENDED)
			break;
	}
	free(names);
	if (ending == HUNG)
		fail_pending(s, "not tried: an earlier row of the group hung");
	return ending != HUNG;
}

bool session_run(const struct session_host *host, int group, int runtime, int round)
{
	const struct results *r = host->results;
	struct session s = { .host = host,
			     .group = group,
			     .runtime = runtime,
			     .round = round,
			     .timeout_s = host->env->options->timeout_s };
	bool alive = true, *asked = calloc((size_t)r->row_count + 1, sizeof(*asked));
	int first = -1;

	s.pending = calloc((size_t)r->row_count + 1, sizeof(*s.pending));
	for (int i = 0; asked && s.pending && i < r->row_count; i++) {
		asked[i] = r->rows[i]->group == group && !*results_cell(r, i, runtime)->why;
		s.pending[i] = asked[i];
		if (asked[i] && first < 0)
			first = i;
	}
	if (first >= 0) {
		if (groups[group].kind == GROUP_IDLE)
			alive = run_idle(&s, asked);
		else if (groups[group].kind == GROUP_TRUE)
			run_true(&s, first);
		else
			alive = run_rows(&s);
	}
	free(asked);
	free(s.pending);
	return alive;
}

void session_probe(const struct session_host *host, int runtime)
{
	struct runtime *rt = &host->results->runtimes[runtime];
	struct session s = { .host = host, .runtime = runtime, .timeout_s = PROBE_TIMEOUT_S };
	struct command c = {};
	enum ending ending;
	char how[WHY_MAX];

	if (s.timeout_s > host->env->options->timeout_s)
		s.timeout_s = host->env->options->timeout_s;
	command_add_runtime(&c, host->env, rt, PLACE_TMPFS);
	command_add(&c, "%s/minisentry-bench-guest", host->env->home);
	command_add(&c, "probe");
	if (start(&s, c.words)) {
		ending = converse(&s);
		finish(&s, ending != ENDED, how, sizeof(how));
		if (ending == HUNG)
			snprintf(rt->why, sizeof(rt->why), "hung: no word for %d s", s.timeout_s);
		else if (ending == ENDED && !s.probe_ended)
			snprintf(rt->why, sizeof(rt->why), "does not run programs: %.160s", how);
		else
			snprintf(rt->why, sizeof(rt->why), "%s", s.probe_why);
	} else {
		snprintf(rt->why, sizeof(rt->why), "the host could not start a process");
	}
	command_free(&c);
}
