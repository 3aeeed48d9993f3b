/*
 * The host side of `minisentry bench`: measures workloads natively, in minisentry and under peers.
 * It knows minisentry only as a program to run (DESIGN: folders and includes).
 */
#include "bench/driver/compare.h"
#include "bench/driver/json.h"
#include "bench/driver/machine.h"
#include "bench/driver/markdown.h"
#include "bench/driver/report.h"
#include "bench/driver/schedule.h"
#include "bench/driver/table.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signo)
{
	(void)signo;
	interrupted = 1;
}

/* The first Ctrl-C ends the run in order; a second one kills us. */
static void set_signals(void)
{
	struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	/* A workload that died is seen by its exit, not by writing to it. */
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static double seconds_since(const struct timespec *begun)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - begun->tv_sec) + (double)(now.tv_nsec - begun->tv_nsec) / 1e9;
}

static void measure(struct results *r, const struct bench_options *o, const struct bench_env *env)
{
	struct sampler *sampler =
		sampler_new(!o->no_cgroup, r->memory_method, sizeof(r->memory_method));
	struct timespec begun;

	r->started = time(NULL);
	clock_gettime(CLOCK_MONOTONIC, &begun);
	results_init(r, o->rounds);
	machine_describe(r, o);
	schedule_run(r, env, sampler, &interrupted);
	r->seconds = seconds_since(&begun);
	sampler_free(sampler);
}

static bool written(int error, const char *path)
{
	if (error)
		bench_error(NULL, "cannot write %s: %s", path, strerror(-error));
	return error == 0;
}

/* A reader that has seen enough (head) is no error. */
static bool printed(void)
{
	bool failed = ferror(stdout);

	errno = EIO;
	if ((fflush(stdout) == 0 && !failed) || errno == EPIPE)
		return true;
	bench_error(NULL, "cannot write the table: %s", strerror(errno));
	return false;
}

/* Whether an output can be made there, as far as can be told without making it; or a message. */
static bool can_write(const char *path, bool folder)
{
	char parent[PATH_MAX];
	struct stat st;
	int error = 0;

	if (!path)
		return true;
	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode) != folder)
			error = folder ? -ENOTDIR : -EISDIR;
		else if (access(path, folder ? W_OK | X_OK : W_OK) != 0)
			error = -errno;
	} else if (!folder) { /* the report makes the folders that lead to it, too */
		snprintf(parent, sizeof(parent), "%s", path);
		if (access(dirname(parent), W_OK | X_OK) != 0)
			error = -errno;
	}
	return written(error, path);
}

/* Whether everything asked for was written. */
static bool output(const struct results *r, const struct bench_options *o,
		   const struct json_run *old)
{
	bool ok = true;

	table_print(r, stdout);
	if (old)
		compare_print(r, old, o->compare, stdout);
	ok &= printed();
	if (o->json && json_write(r, o->json) != 0)
		ok = false;
	if (o->csv)
		ok &= written(csv_write(r, o->csv), o->csv);
	if (o->markdown)
		ok &= written(markdown_write(r, o->markdown), o->markdown);
	if (o->report && report_write(r, o->report) != 0)
		ok = false;
	return ok;
}

/* Workloads start in other folders: makes what was given absolute. False after a message. */
static bool find_paths(struct bench_options *o)
{
	char *minisentry = realpath(o->minisentry, NULL), *disk;

	if (!minisentry || access(minisentry, X_OK) != 0) {
		bench_error("--minisentry FILE, a program", "%s: %s", o->minisentry,
			    strerror(errno));
		free(minisentry);
		return false;
	}
	disk = realpath(o->disk, NULL);
	if (!disk) {
		bench_error("--disk DIR, a folder that you can write",
			    "no folder for files in %s: %s", o->disk, strerror(errno));
		free(minisentry);
		return false;
	}
	o->minisentry = minisentry;
	o->disk = disk;
	return true;
}

int main(int argc, char **argv)
{
	struct results *r = calloc(1, sizeof(*r));
	struct json_run *old = NULL;
	struct bench_options o;
	struct bench_env env;
	bool complete;

	if (!r)
		return 125;
	switch (options_parse(argc, argv, &o, r)) {
	case OPTIONS_DONE: return 0;
	case OPTIONS_BAD: return 125;
	case OPTIONS_RUN: break;
	}
	if (!o.minisentry) {
		bench_error("minisentry bench", "start this program as `minisentry bench`");
		return 125;
	}
	if (!find_paths(&o))
		return 125;
	/* Before minutes of measuring, not after. */
	if (o.compare && !(old = json_read(o.compare)))
		return 125;
	if (!can_write(o.json, false) || !can_write(o.csv, false) ||
	    !can_write(o.markdown, false) || !can_write(o.report, true) ||
	    !bench_env_init(&env, &o))
		return 125;
	set_signals();
	measure(r, &o, &env);
	bench_env_remove(&env);
	complete = output(r, &o, old) && results_complete(r);
	json_free(old);
	interrupted = r->interrupted;
	results_free(r);
	free(r);
	return interrupted ? 130 : complete ? 0 : 1;
}
