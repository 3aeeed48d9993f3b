#include "bench/driver/options.h"
#include "bench/driver/names.h"
#include <ctype.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_DEFAULT 5
#define ROUNDS_MAX 1000
#define LOOP_MS_DEFAULT 60
#define TIMEOUT_S_DEFAULT 120

static const char help_text[] =
	"Usage: minisentry bench [OPTIONS] [SUITE|GROUP|ROW]...\n"
	"Runs workloads natively, in minisentry and under other sandboxes, side by side, and "
	"compares.\n"
	"Names may be patterns ('cow64M_*'); without any, every suite runs.\n"
	"\n"
	"What to run\n"
	"  --list                 the suites and their rows\n"
	"  --rounds N             (default 5; the order of runtimes turns around with each)\n"
	"  --platform P,...       seccomp, ptrace, or native for no sandbox of ours\n"
	"                         (default: seccomp,ptrace); native always runs\n"
	"  --peer NAME='WORDS'    also run under another sandbox: WORDS, for a shell, come before "
	"the\n"
	"                         workload's command. May be repeated. --peer null= runs natively\n"
	"                         again, to see how large differences are that mean nothing\n"
	"  --ms N                 how long a measured loop takes (default 60)\n"
	"  --timeout S            give up on a workload that says nothing for so long (default "
	"120)\n"
	"  --disk DIR             where the overlay and bind rows keep files (default /var/tmp)\n"
	"  --minisentry FILE      the minisentry to measure (default: this one)\n"
	"  --no-cgroup            measure memory and CPU time without a cgroup\n"
	"\n"
	"What to write\n"
	"  --json FILE            everything, for --compare and other programs\n"
	"  --csv FILE             a line per row and runtime\n"
	"  --markdown FILE        the tables for a document\n"
	"  --report DIR           a page with tables and plots, and the plots as PNG (needs "
	"gnuplot)\n"
	"  --compare OLD.json     what changed since that run, and whether it is more than noise\n"
	"  --quiet                no progress\n"
	"  --help\n"
	"\n"
	"Exit code: 0 when every row asked for ran everywhere, 1 when some did not (the table "
	"says\n"
	"why), 125 for a mistake on the command line, 130 after Ctrl-C (what was done is kept).\n";

enum {
	OPT_LIST = 256,
	OPT_ROUNDS,
	OPT_PLATFORM,
	OPT_PEER,
	OPT_MS,
	OPT_TIMEOUT,
	OPT_DISK,
	OPT_MINISENTRY,
	OPT_NO_CGROUP,
	OPT_JSON,
	OPT_CSV,
	OPT_MARKDOWN,
	OPT_REPORT,
	OPT_COMPARE,
	OPT_QUIET,
	OPT_HELP,
};

static const struct option long_options[] = {
	{ "list", no_argument, NULL, OPT_LIST },
	{ "rounds", required_argument, NULL, OPT_ROUNDS },
	{ "platform", required_argument, NULL, OPT_PLATFORM },
	{ "peer", required_argument, NULL, OPT_PEER },
	{ "ms", required_argument, NULL, OPT_MS },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
	{ "disk", required_argument, NULL, OPT_DISK },
	{ "minisentry", required_argument, NULL, OPT_MINISENTRY },
	{ "no-cgroup", no_argument, NULL, OPT_NO_CGROUP },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "csv", required_argument, NULL, OPT_CSV },
	{ "markdown", required_argument, NULL, OPT_MARKDOWN },
	{ "report", required_argument, NULL, OPT_REPORT },
	{ "compare", required_argument, NULL, OPT_COMPARE },
	{ "quiet", no_argument, NULL, OPT_QUIET },
	{ "help", no_argument, NULL, OPT_HELP },
	{},
};

void bench_error(const char *hint, const char *fmt, ...)
{
	va_list ap;

	fputs("minisentry bench: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	if (hint)
		fprintf(stderr, "  try: %s\n", hint);
}

static bool parse_number(const char *option, const char *text, int max, int *ret)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || n < 1 || n > max) {
		bench_error(NULL, "%s takes a number from 1 to %d, not \"%s\"", option, max, text);
		return false;
	}
	*ret = (int)n;
	return true;
}

static bool add_runtime(struct results *r, enum runtime_kind kind, const char *name,
			const char *prefix)
{
	for (int i = 0; i < r->runtime_count; i++)
		if (strcmp(r->runtimes[i].name, name) == 0) {
			bench_error(NULL, "two runtimes have the name \"%s\"", name);
			return false;
		}
	if (r->runtime_count == RUNTIMES_MAX) {
		bench_error(NULL, "at most %d runtimes", RUNTIMES_MAX);
		return false;
	}
	r->runtimes[r->runtime_count++] =
		(struct runtime){ .kind = kind, .name = name, .prefix = prefix };
	return true;
}

static bool add_platforms(struct results *r, char *list)
{
	char *save = NULL;

	for (char *p = strtok_r(list, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		if (strcmp(p, "native") == 0)
			continue;
		if (strcmp(p, "seccomp") != 0 && strcmp(p, "ptrace") != 0) {
			bench_error("--platform seccomp,ptrace", "no platform \"%s\"", p);
			return false;
		}
		if (!add_runtime(r, RUNTIME_SENTRY, p, NULL))
			return false;
	}
	return true;
}

/* NAME=WORDS; splits arg in place. The name appears in file formats and tables: plain characters.
 */
static bool add_peer(struct results *r, char *arg)
{
	char *equals = strchr(arg, '=');

	for (char *c = arg; equals && c < equals; c++)
		if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
			equals = NULL;
	if (!equals || equals == arg) {
		bench_error("--peer bwrap='bwrap --dev-bind / /'",
			    "--peer takes NAME='COMMAND PREFIX', not \"%s\"", arg);
		return false;
	}
	*equals = '\0';
	return add_runtime(r, RUNTIME_PEER, arg, equals + 1);
}

static void print_list(void)
{
	for (size_t s = 0; s < suite_count; s++) {
		int group = -1;

		printf("%s: %s\n", suites[s].name, suites[s].text);
		for (size_t i = 0; i < row_count; i++) {
			if (row_suite(&rows[i]) != (int)s)
				continue;
			if (rows[i].group != group)
				printf("  %s\n", groups[rows[i].group].name);
			group = rows[i].group;
			printf("    %-34s %s\n", rows[i].name, rows[i].unit);
		}
	}
}

/* Whether the suite, group or row of `row` matches; an exact name beats a pattern's characters. */
static bool matches(const char *name, const struct row *row)
{
	const char *names[] = { suites[row_suite(row)].name, groups[row->group].name, row->name };

	for (int i = 0; i < 3; i++)
		if (strcmp(name, names[i]) == 0 || fnmatch(name, names[i], 0) == 0)
			return true;
	return false;
}

static bool choose_rows(struct results *r, char **names, int count)
{
	char near[200];

	r->rows = calloc(row_count, sizeof(struct row *));
	if (!r->rows)
		return false;
	for (int k = 0; k < count; k++) {
		bool found = false;

		for (size_t i = 0; i < row_count && !found; i++)
			found = matches(names[k], &rows[i]);
		if (!found) {
			names_nearest(names[k], near, sizeof(near));
			bench_error("minisentry bench --list",
				    "no suite, group or row \"%s\"; nearest: %s", names[k], near);
			return false;
		}
	}
	for (size_t i = 0; i < row_count; i++) {
		bool wanted = count == 0;

		for (int k = 0; k < count && !wanted; k++)
			wanted = matches(names[k], &rows[i]);
		if (wanted)
			r->rows[r->row_count++] = &rows[i];
	}
	return true;
}

/* One word for a shell: quoted only when it must be. */
static void quote(FILE *out, const char *word)
{
	if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				  "-_=./,:+") == strlen(word)) {
		fputs(word, out);
		return;
	}
	fputc('\'', out);
	for (; *word; word++)
		fputs(*word == '\'' ? "'\\''" : (char[]){ *word, '\0' }, out);
	fputc('\'', out);
}

/* The command line as text; --minisentry is how `minisentry bench` starts us, not what was typed.
 */
static char *command_text(int argc, char **argv)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("minisentry bench", out);
	for (int i = 1; i < argc; i++) {
		if (i == 1 && strncmp(argv[i], "--minisentry=", 13) == 0)
			continue;
		fputc(' ', out);
		quote(out, argv[i]);
	}
	fclose(out);
	return text;
}

static bool take_option(int opt, char *arg, struct bench_options *o, struct results *r,
			char **ret_platforms)
{
	switch (opt) {
	case OPT_ROUNDS: return parse_number("--rounds", arg, ROUNDS_MAX, &o->rounds);
	case OPT_MS: return parse_number("--ms", arg, 60000, &o->loop_ms);
	case OPT_TIMEOUT: return parse_number("--timeout", arg, 86400, &o->timeout_s);
	case OPT_PLATFORM: *ret_platforms = arg; return true;
	case OPT_PEER: return add_peer(r, arg);
	case OPT_DISK: o->disk = arg; return true;
	case OPT_MINISENTRY: o->minisentry = arg; return true;
	case OPT_JSON: o->json = arg; return true;
	case OPT_CSV: o->csv = arg; return true;
	case OPT_MARKDOWN: o->markdown = arg; return true;
	case OPT_REPORT: o->report = arg; return true;
	case OPT_COMPARE: o->compare = arg; return true;
	case OPT_NO_CGROUP: return o->no_cgroup = true;
	case OPT_QUIET: return o->quiet = true;
	default: fputs("  try: minisentry bench --help\n", stderr); return false;
	}
}

enum options_action options_parse(int argc, char **argv, struct bench_options *o, struct results *r)
{
	static char both[] = "seccomp,ptrace";
	static char program[] = "minisentry bench";
	char *platforms = both;
	struct runtime peers[RUNTIMES_MAX];
	int opt, peer_count;

	*o = (struct bench_options){ .rounds = ROUNDS_DEFAULT,
				     .loop_ms = LOOP_MS_DEFAULT,
				     .timeout_s = TIMEOUT_S_DEFAULT,
				     .disk = "/var/tmp" };
	r->command = command_text(argc, argv);
	argv[0] = program;
	while ((opt = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (opt == OPT_HELP || opt == 'h') {
			fputs(help_text, stdout);
			return OPTIONS_DONE;
		}
		if (opt == OPT_LIST) {
			print_list();
			return OPTIONS_DONE;
		}
		if (!take_option(opt, optarg, o, r, &platforms))
			return OPTIONS_BAD;
	}
	/* Native first, then ours, then peers, whatever the order on the command line. */
	peer_count = r->runtime_count;
	memcpy(peers, r->runtimes, sizeof(peers));
	r->runtime_count = 0;
	if (!add_runtime(r, RUNTIME_NATIVE, "native", NULL) || !add_platforms(r, platforms))
		return OPTIONS_BAD;
	for (int i = 0; i < peer_count; i++)
		if (!add_runtime(r, RUNTIME_PEER, peers[i].name, peers[i].prefix))
			return OPTIONS_BAD;
	return choose_rows(r, argv + optind, argc - optind) ? OPTIONS_RUN : OPTIONS_BAD;
}
