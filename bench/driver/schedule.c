#include "bench/driver/schedule.h"
#include "bench/driver/progress.h"
#include "bench/driver/session.h"
#include <stdio.h>
#include <stdlib.h>

#define GROUPS_MAX 64
/* A runtime that hangs in so many groups will hang in the others too. */
#define HANGS_MAX 2

struct schedule {
	struct session_host host;
	struct progress *progress;
	int groups[GROUPS_MAX]; /* that have rows asked for */
	int group_count;
	bool hung[GROUPS_MAX][RUNTIMES_MAX];
	int hangs[RUNTIMES_MAX];
};

static void list_groups(struct schedule *s)
{
	const struct results *r = s->host.results;

	for (int i = 0; i < r->row_count; i++) {
		int group = r->rows[i]->group;

		if (s->group_count == 0 || s->groups[s->group_count - 1] != group)
			s->groups[s->group_count++] = group;
	}
}

static void refuse_runtime(struct results *r, int runtime)
{
	for (int i = 0; i < r->row_count; i++) {
		struct cell *cell = results_cell(r, i, runtime);

		if (!*cell->why)
			snprintf(cell->why, sizeof(cell->why), "%s", r->runtimes[runtime].why);
	}
}

static void probe_all(struct schedule *s)
{
	struct results *r = s->host.results;

	for (int i = 0; i < r->runtime_count && !*s->host.interrupted; i++) {
		session_probe(&s->host, i);
		if (*r->runtimes[i].why) {
			fprintf(stderr, "minisentry bench: %s: %s\n", r->runtimes[i].name,
				r->runtimes[i].why);
			refuse_runtime(r, i);
		}
	}
}

static void run_group(struct schedule *s, int round, int at, int runtime)
{
	struct results *r = s->host.results;
	struct runtime *rt = &r->runtimes[runtime];
	int group = s->groups[at];

	progress_step(s->progress, round, at, groups[group].name, runtime, rt->name);
	if (!*rt->why && !s->hung[at][runtime] && !session_run(&s->host, group, runtime, round)) {
		s->hung[at][runtime] = true;
		if (++s->hangs[runtime] >= HANGS_MAX) {
			snprintf(rt->why, sizeof(rt->why), "given up: it hung %d times", HANGS_MAX);
			refuse_runtime(r, runtime);
		}
	}
	progress_done(s->progress);
}

void schedule_run(struct results *r, const struct bench_env *env, const struct sampler *sampler,
		  const volatile sig_atomic_t *interrupted)
{
	struct schedule s = {
		.host = { .results = r, .env = env, .sampler = sampler, .interrupted = interrupted }
	};

	list_groups(&s);
	probe_all(&s);
	s.progress = progress_new(env->options->quiet, s.group_count, r->runtime_count, r->rounds);
	s.host.progress = progress_row;
	s.host.progress_arg = s.progress;
	for (int round = 0; round < r->rounds && !*interrupted; round++) {
		for (int at = 0; at < s.group_count && !*interrupted; at++)
			for (int k = 0; k < r->runtime_count && !*interrupted; k++)
				run_group(&s, round, at,
					  round % 2 == 0 ? k : r->runtime_count - 1 - k);
		r->rounds_done += !*interrupted;
	}
	r->interrupted = *interrupted;
	progress_free(s.progress);
}
