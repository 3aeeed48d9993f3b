#include "bench/driver/session.h"
#include "bench/driver/proctree.h"
#include "bench/driver/workload.h"
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_LENGTH 1024
/* Far more than any group says; the rest of what a process says is babble, and no sign of life. */
#define WORDS_MAX 2000
#define PROBE_TIMEOUT_S 30
#define TRUE_RUNS 10
/* Shorter phases are mostly our own questions and answers: no CPU time is given for them. */
#define CPU_PHASE_LEAST_NS 1e6
#define SETTLE_LOOKS 20
#define SETTLE_NS 10000000
#define SETTLE_BYTES 65536
/*
 * The guest's interval lies within ours: more is a lie, and so is less by more than hand-over can
 * take. One phase of 60 ms allows for a preempted process; the sum over a process is stricter.
 */
#define CLOCK_OVER 1.005
#define CLOCK_UNDER 0.95
#define CLOCK_SLACK_NS 1e6
#define CLOCK_PHASE_HANDOVER_NS 50e6
#define CLOCK_SUM_SLACK_NS 20e6
#define CLOCK_SUM_HANDOVER_NS 4e6

struct session {
	const struct session_host *host;
	int group, runtime, round;
	int timeout_s;
	struct workload workload;
	char line[LINE_MAX_LENGTH];
	size_t line_length;
	double heard_ns; /* when the last word of the protocol came */
	int words;
	/* The phase under way. */
	int row;	   /* index into results.rows; -1: none, or one that nobody asked for */
	char row_name[80]; /* "" outside a phase */
	double begun_ns, cpu_ns, memory;
	/* All phases of the process, by both clocks: long enough to show a clock that is a little
	 * off. */
	double guest_sum_ns, host_sum_ns;
	int phases;
	bool *pending; /* [results.row_count]; NULL in a probe */
	bool probe_ended;
	char probe_why[WHY_MAX];
};

/* Only what this process was asked for: it has no say in other groups' rows, nor twice in one. */
static int find_pending(const struct session *s, const char *name)
{
	for (int i = 0; s->pending && i < s->host->results->row_count; i++)
		if (s->pending[i] && strcmp(s->host->results->rows[i]->name, name) == 0)
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
	clean_text(cell->why);
}

static bool start(struct session *s, const struct command *c)
{
	bool sentry = s->host->results->runtimes[s->runtime].kind == RUNTIME_SENTRY;

	s->line_length = 0;
	s->words = 0;
	s->row_name[0] = '\0';
	s->row = -1;
	s->guest_sum_ns = s->host_sum_ns = 0;
	s->phases = 0;
	/* minisentry shows the guest the current folder; a peer's words may be relative to the
	 * user's. */
	return workload_start(&s->workload, c->words, sentry ? s->host->env->home : NULL,
			      s->host->sampler);
}

/* ---- the lines of a workload (bench/guest/bench.h) ---- */

static void answer(struct session *s)
{
	/* One that died, or that reads no answers, is seen by its silence. */
	if (write(s->workload.in, "\n", 1) != 1)
		return;
}

/* Startup time is a row of the idle group: from spawning to the first word of a workload at rest.
 */
static void record_startup(struct session *s, const char *idle_row)
{
	char name[128];
	int row;

	if (strncmp(idle_row, "idle_", strlen("idle_")) != 0)
		return;
	snprintf(name, sizeof(name), "startup_%s", idle_row + strlen("idle_"));
	row = find_pending(s, name);
	if (row >= 0) {
		sample_of(s, row)->value = (workload_now_ns() - *s->workload.started_ns) / 1e6;
		s->pending[row] = false;
	}
}

static void record_value(struct session *s, const char *name, double value)
{
	int row = find_pending(s, name);

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
	double kernel;

	proctree_free(&t);
	snprintf(name, sizeof(name), "%s_memfile", idle_row);
	record_value(s, name, m.memfile / 1e6);
	snprintf(name, sizeof(name), "%s_kernel", idle_row);
	kernel = sampler_kernel_memory(s->host->sampler);
	if (isnan(kernel) && find_pending(s, name) >= 0)
		set_why(s, find_pending(s, name), "needs a cgroup with the memory controller");
	record_value(s, name, kernel / 1e6);
	return m.pss / 1e6;
}

/*
 * Memory at the start of a phase. What an earlier row freed may still be on its way back to the
 * kernel: waits until two looks agree, but not for long, since other things may move too.
 */
static double settled_memory(const struct session *s)
{
	double before = sampler_memory(s->host->sampler), now = before;

	for (int i = 0; i < SETTLE_LOOKS; i++) {
		nanosleep(&(struct timespec){ .tv_nsec = SETTLE_NS }, NULL);
		now = sampler_memory(s->host->sampler);
		if (!(fabs(now - before) > SETTLE_BYTES))
			break;
		before = now;
	}
	return now;
}

static void on_begin(struct session *s, const char *name)
{
	snprintf(s->row_name, sizeof(s->row_name), "%s", name);
	s->row = find_pending(s, name);
	if (s->pending && groups[s->group].kind == GROUP_IDLE)
		record_startup(s, name);
	if (s->host->progress)
		s->host->progress(s->host->progress_arg, name);
	s->memory = s->row >= 0 && (s->host->results->rows[s->row]->flags & ROW_GROWTH)
			    ? settled_memory(s)
			    : sampler_memory(s->host->sampler);
	s->cpu_ns = sampler_cpu_ns(s->host->sampler);
	s->begun_ns = workload_now_ns();
	answer(s);
}

static bool clock_lies(double guest_ns, double host_ns, double handover_ns)
{
	return guest_ns > host_ns * CLOCK_OVER + CLOCK_SLACK_NS ||
	       guest_ns < host_ns * CLOCK_UNDER - handover_ns;
}

/* Flags all rows of the group when the process's phases together show a clock that lies. */
static void check_clock_sum(struct session *s)
{
	const struct results *r = s->host->results;

	if (!clock_lies(s->guest_sum_ns, s->host_sum_ns,
			CLOCK_SUM_SLACK_NS + s->phases * CLOCK_SUM_HANDOVER_NS))
		return;
	for (int i = 0; i < r->row_count; i++)
		if (r->rows[i]->group == s->group && sample_of(s, i)->host_ns > 0)
			results_cell(r, i, s->runtime)->clock_lies = true;
}

static bool plausible(double reported)
{
	return isfinite(reported) && reported >= 0;
}

static void on_end(struct session *s, const char *name, double value, double ops, double guest_ns)
{
	double host_ns = workload_now_ns() - s->begun_ns;
	double cpu_ns = sampler_cpu_ns(s->host->sampler) - s->cpu_ns;
	double growth = sampler_memory(s->host->sampler) - s->memory;

	if (strcmp(name, s->row_name) != 0)
		return;
	if (!plausible(value) || !plausible(ops) || !plausible(guest_ns)) {
		s->row_name[0] = '\0';
		if (s->pending && s->row >= 0) {
			set_why(s, s->row, "reported a value, count or time that cannot be");
			s->pending[s->row] = false;
		}
		s->row = -1;
		answer(s);
		return;
	}
	s->guest_sum_ns += guest_ns;
	s->host_sum_ns += host_ns;
	s->phases++;
	if (s->pending && groups[s->group].kind == GROUP_IDLE)
		value = record_idle(s, name);
	if (s->pending && s->row >= 0) {
		struct sample *sample = sample_of(s, s->row);

		*sample = (struct sample){
			.value = value,
			.cpu_ns = ops > 0 && host_ns >= CPU_PHASE_LEAST_NS ? cpu_ns / ops : NAN,
			.growth = growth,
			.guest_ns = guest_ns,
			.host_ns = host_ns,
		};
		s->pending[s->row] = false;
		if (clock_lies(guest_ns, host_ns, CLOCK_PHASE_HANDOVER_NS))
			results_cell(s->host->results, s->row, s->runtime)->clock_lies = true;
	}
	if (!s->pending && strcmp(name, "probe") == 0) {
		s->probe_ended = true;
		if (clock_lies(guest_ns, host_ns, CLOCK_PHASE_HANDOVER_NS))
			snprintf(s->probe_why, sizeof(s->probe_why),
				 "its clock says %.0f ms for what took %.0f ms", guest_ns / 1e6,
				 host_ns / 1e6);
	}
	s->row_name[0] = '\0';
	s->row = -1;
	answer(s);
}

/*
 * Whether `row` cannot be measured when the workload refuses `refused`: that row itself, its
 * further values (they follow in the catalog), and all of a server's rows, which have one process.
 */
static bool falls_with(const struct session *s, const struct row *row, const char *refused)
{
	if (groups[s->group].kind == GROUP_IDLE)
		return true;
	for (; strcmp(row->name, refused) != 0; row--)
		if (!(row->flags & ROW_VALUE))
			return false;
	return true;
}

static void on_refusal(struct session *s, const char *name, const char *why, bool skipped)
{
	const struct results *r = s->host->results;

	for (int i = 0; s->pending && i < r->row_count; i++)
		if ((s->pending[i] && falls_with(s, r->rows[i], name)) ||
		    /* Also after its end: a check that failed. */
		    (r->rows[i]->group == s->group && strcmp(r->rows[i]->name, name) == 0)) {
			set_why(s, i, *why ? why : "refused, without a reason");
			results_cell(r, i, s->runtime)->skipped |= skipped;
			s->pending[i] = false;
		}
	if (strcmp(name, s->row_name) == 0) {
		s->row_name[0] = '\0';
		s->row = -1;
	}
}

static void on_value(struct session *s, const char *name, double value)
{
	if (isfinite(value))
		record_value(s, name, value);
	else
		on_refusal(s, name, "reported a value that cannot be", false);
}

/* Anything that is not a line of the protocol (a runtime's own messages) is passed over. */
static void take_line(struct session *s, char *line)
{
	char name[80];
	double value, ops, ns;
	int at = 0;

	if (s->words == WORDS_MAX)
		return;
	if (sscanf(line, "begin %79s", name) == 1)
		on_begin(s, name);
	else if (sscanf(line, "end %79s %lf %lf %lf", name, &value, &ops, &ns) == 4)
		on_end(s, name, value, ops, ns);
	else if (sscanf(line, "value %79s %lf", name, &value) == 2)
		on_value(s, name, value);
	else if (sscanf(line, "skip %79s %n", name, &at) == 1 && at > 0)
		on_refusal(s, name, line + at, true);
	else if (sscanf(line, "fail %79s %n", name, &at) == 1 && at > 0)
		on_refusal(s, name, line + at, false);
	else
		return;
	s->words++;
	s->heard_ns = workload_now_ns();
}

static void take_bytes(struct session *s, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count && !*s->host->interrupted; i++) {
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
	char bytes[4096];

	s->heard_ns = workload_now_ns();
	for (;;) {
		struct pollfd p = { s->workload.out, POLLIN, 0 };
		int ready = poll(&p, 1, 250);
		ssize_t n;

		if (*s->host->interrupted)
			return INTERRUPTED;
		if (s->host->progress)
			s->host->progress(s->host->progress_arg, NULL);
		workload_trim(&s->workload);
		if (workload_now_ns() - s->heard_ns > s->timeout_s * 1e9)
			return HUNG;
		if (ready <= 0)
			continue;
		n = read(s->workload.out, bytes, sizeof(bytes));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return ENDED;
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
	bool ok;

	command_add_runtime(&c, s->host->env, rt, group->place);
	command_add_group(&c, s->host->env, group, names, count);
	if (!start(s, &c)) {
		fail_pending(s, "the host could not start a process");
		command_free(&c);
		return ENDED;
	}
	ending = converse(s);
	ok = workload_finish(&s->workload, ending != ENDED, how, sizeof(how));
	check_clock_sum(s);
	bench_env_clean(s->host->env);
	command_free(&c);
	if (ending == HUNG) {
		snprintf(why, sizeof(why), "hung: no word for %d s%s%s", s->timeout_s,
			 *s->row_name ? " in " : "", s->row_name);
		fail_culprit(s, why);
	} else if (ending == ENDED && any_pending(s)) {
		fail_culprit(s, ok ? "the workload ended without a word of it" : how);
	}
	return ending;
}

/* Each server of the idle group needs a runtime of its own: its start is what is measured. */
static enum ending run_idle(struct session *s, const bool *asked)
{
	static const char *const kinds[] = { "empty", "nginx", "node" };
	const struct results *r = s->host->results;
	enum ending ending = ENDED;

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]) && ending == ENDED; k++) {
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
		ending = run_process(s, names, 1);
		if (ending != INTERRUPTED)
			fail_pending(s, "the workload did not come so far");
	}
	return ending;
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
		bool ok;

		if (!start(s, &c)) {
			set_why(s, row, "the host could not start a process");
			break;
		}
		ending = converse(s);
		ok = workload_finish(&s->workload, ending != ENDED, how, sizeof(how));
		if (ending == INTERRUPTED)
			break;
		ms[i] = (s->workload.ended_ns - *s->workload.started_ns) / 1e6;
		if (!ok) {
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
	if (first >= 0 && groups[group].kind == GROUP_SCRIPT &&
	    access(groups[group].interpreter, X_OK) != 0) {
		char why[WHY_MAX];

		snprintf(why, sizeof(why), "%s is not installed", groups[group].interpreter);
		for (int i = first; i < r->row_count; i++)
			results_cell(r, i, runtime)->skipped |= s.pending[i];
		fail_pending(&s, why);
	} else if (first >= 0) {
		if (groups[group].kind == GROUP_IDLE)
			alive = run_idle(&s, asked) != HUNG;
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
	if (start(&s, &c)) {
		ending = converse(&s);
		workload_finish(&s.workload, ending != ENDED, how, sizeof(how));
		if (ending == HUNG)
			snprintf(rt->why, sizeof(rt->why), "hung: no word for %d s", s.timeout_s);
		else if (ending == ENDED && !s.probe_ended)
			snprintf(rt->why, sizeof(rt->why), "does not run programs: %.160s", how);
		else
			snprintf(rt->why, sizeof(rt->why), "%s", s.probe_why);
	} else {
		snprintf(rt->why, sizeof(rt->why), "the host could not start a process");
	}
	clean_text(rt->why);
	command_free(&c);
}
