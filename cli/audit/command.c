/* `minisentry audit`: a run with the audit's programs attached, and the report. */
#include "cli/audit/collect.h"
#include "cli/audit/expect.h"
#include "cli/audit/report.h"
#include "cli/cli.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIVE_PERIOD_S 1

static const char help_text[] =
	"Usage: minisentry audit [OPTIONS] [RUN OPTIONS] [--] PROGRAM [ARGS]\n"
	"Runs PROGRAM like `minisentry run` and reports, when it ends, every system call that the\n"
	"sandbox's own processes made on the host, by role, and their page faults.\n"
	"\n"
	"  --json[=FILE]   a line of JSON on standard output (or in FILE) instead of the table\n"
	"                  on standard error\n"
	"  --live          also print what happened in each second\n"
	"  --help\n"
	"\n"
	"Roles: the sentry; the zygote, from which stubs are forked; in stubs the mapper thread\n"
	"and the guest threads. Calls made before a process has confined itself count apart.\n"
	"\n"
	"Needs root, or CAP_BPF and CAP_PERFMON. All options of `minisentry run --help` work.\n"
	"Exit code: 1 when a call was outside the filter tables, else as `minisentry run`.\n";

struct audit {
	struct run_config config;
	bool json, live, started;
	const char *json_path;
	pthread_t live_thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ended; /* protected by lock */
};

/* Takes our options out of argv, up to the program. The new argc; -1 after a message; -2 help. */
static int take_options(struct audit *a, int argc, char **argv)
{
	int out = 1, i;

	for (i = 1; i < argc; i++) {
		const char *arg = argv[i];

		if (arg[0] != '-' || strcmp(arg, "--") == 0)
			break;
		if (strcmp(arg, "--json") == 0) {
			a->json = true;
		} else if (strncmp(arg, "--json=", 7) == 0) {
			a->json = true;
			a->json_path = arg + 7;
		} else if (strcmp(arg, "--live") == 0) {
			a->live = true;
		} else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
			return -2;
		} else {
			argv[out++] = argv[i];
			if (options_takes_value(arg) && i + 1 < argc)
				argv[out++] = argv[++i];
		}
	}
	while (i < argc)
		argv[out++] = argv[i++];
	argv[out] = NULL;
	return out;
}

static bool colour(FILE *f)
{
	const char *no = getenv("NO_COLOR");

	return isatty(fileno(f)) && !(no && *no);
}

static void sleep_until_ended(struct audit *a)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LIVE_PERIOD_S;
	while (!a->ended && pthread_cond_timedwait(&a->cond, &a->lock, &until) == 0) {
	}
}

static void *live_main(void *arg)
{
	struct audit *a = arg;
	struct audit_snapshot *before = calloc(1, sizeof(*before)), *now = calloc(1, sizeof(*now)),
			      *t;
	struct audit_tables *tables = malloc(sizeof(*tables));

	pthread_mutex_lock(&a->lock);
	while (before && now && tables && !a->ended) {
		sleep_until_ended(a);
		if (a->ended || audit_collect_read(now) < 0)
			break;
		audit_tables_make(audit_platform(a->config.platform, now), tables);
		report_live(stderr, colour(stderr), before, now, tables);
		t = before;
		before = now;
		now = t;
	}
	pthread_mutex_unlock(&a->lock);
	free(tables);
	free(before);
	free(now);
	return NULL;
}

/* The sentry exists and waits. The programs are loaded only now: it must not inherit them. */
static bool on_start(pid_t sentry, void *arg)
{
	struct audit *a = arg;
	char reason[256];

	if (audit_collect_start(sentry, reason, sizeof(reason)) < 0) {
		cli_error("minisentry doctor", "audit: %s", reason);
		return false;
	}
	a->started = true;
	if (a->live && pthread_create(&a->live_thread, NULL, live_main, a) != 0)
		a->live = false;
	return true;
}

static void stop_live(struct audit *a)
{
	if (!a->live)
		return;
	pthread_mutex_lock(&a->lock);
	a->ended = true;
	pthread_cond_signal(&a->cond);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->live_thread, NULL);
}

/* The exit code, after the report. */
static int report(struct audit *a, FILE *json, int code)
{
	struct audit_snapshot *s = calloc(1, sizeof(*s));
	struct audit_tables *tables = malloc(sizeof(*tables));
	enum platform_kind platform;
	size_t findings;

	if (!s || !tables || audit_collect_read(s) < 0) {
		free(s);
		free(tables);
		return cli_error(NULL, "audit: cannot read what was counted");
	}
	platform = audit_platform(a->config.platform, s);
	audit_tables_make(platform, tables);
	if (a->json)
		findings = report_json(json, platform, code, s, tables);
	else
		findings = report_text(stderr, colour(stderr), s, tables);
	if (findings || s->sentry_killed || s->lost)
		code = 1;
	free(s);
	free(tables);
	return code;
}

int cli_audit(int argc, char **argv)
{
	static struct audit a = { .lock = PTHREAD_MUTEX_INITIALIZER,
				  .cond = PTHREAD_COND_INITIALIZER };
	FILE *file = NULL;
	int ret, code;

	argc = take_options(&a, argc, argv);
	if (argc == -2) {
		fputs(help_text, stdout);
		return 0;
	}
	ret = options_parse(argc, argv, &a.config);
	if (ret)
		return ret > 0 ? 0 : 125;
	if (a.json_path) {
		file = fopen(a.json_path, "we");
		if (!file)
			return cli_error(NULL, "audit: --json=%s: %s", a.json_path,
					 strerror(errno));
	}
	code = launcher_run(&a.config, on_start, &a);
	if (a.started) {
		stop_live(&a);
		code = report(&a, file ? file : stdout, code);
		audit_collect_stop();
	}
	if (file && fclose(file) != 0)
		return cli_error(NULL, "audit: %s: %s", a.json_path, strerror(errno));
	return code;
}
