/* Options of `minisentry run`: the command line, and the same words in a --config file. */
#include "cli/cli.h"
#include "sentry/sys/syscall.h"
#include <ctype.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENV_MAX 4096
#define CONFIG_LINE_MAX 4096

extern char **environ;

/* What is gathered before it becomes a run_config. */
struct gathered {
	struct run_config *config;
	const char *env[ENV_MAX + 1]; /* --env, in order */
	int env_count;
	bool env_all, clear_env;
	bool uid_given, gid_given;
	int depth; /* of --config files */
};

static const char help_text[] =
	"Usage: minisentry run [OPTIONS] [--] PROGRAM [ARGS]\n"
	"Runs PROGRAM in a sandbox whose system calls never reach the host.\n"
	"\n"
	"Files\n"
	"  --rootfs DIR            use DIR as the root instead of a view of the host's /\n"
	"  --overlay KIND          where the guest's changes to the root go: memory (default, "
	"gone\n"
	"                          at the end), self (an unlinked file beside the root), dir=PATH\n"
	"                          (an unlinked file in PATH), none (they reach the host)\n"
	"  --ro SRC[:DST]          show the host's SRC at DST (or at SRC), read-only\n"
	"  --rw SRC[:DST]          the same, writable: changes reach the host\n"
	"  --tmpfs DST[:size=N]    an empty tmpfs on DST\n"
	"  --chdir DIR             start in DIR (default: the current folder)\n"
	"  --pass-fd N             give the open descriptor N to the guest\n"
	"\n"
	"Environment and identity\n"
	"  --env K=V               set a variable; --env K passes the caller's\n"
	"  --env-all               pass the caller's whole environment\n"
	"  --clear-env             start from an empty environment\n"
	"  --hostname NAME         (default: minisentry)\n"
	"  --uid N, --gid N        inside (default: 0)\n"
	"\n"
	"Resources and mechanism\n"
	"  --memory N[K|M|G]       memory of the guest (default: the host's)\n"
	"  --cpus N                processors that the guest sees\n"
	"  --platform KIND         auto (default), seccomp, ptrace\n"
	"  --spin auto|off         spin briefly before sleeping (default: auto)\n"
	"  --pairs auto|off        give guests that call often a pair of processors\n"
	"  --patch auto|off        rewrite system call sites so that they need no signal\n"
	"  --reuse auto|off        keep processes and threads of the platform for later guests\n"
	"                          (default: auto)\n"
	"  --late auto|off         make mappings as the guest goes on, without waiting for them\n"
	"  --fork-wait auto|off    let who has forked wait a little for its child to execute a\n"
	"                          program or to exit, rather than copy what it writes meanwhile\n"
	"  --fork-reuse auto|off   let a forked child begin in the host process of an earlier one\n"
	"                          of the same parent, with what is mapped there\n"
	"  --no-namespaces         do without host namespaces\n"
	"\n"
	"Watching\n"
	"  --strace[=NAMES]        print the guest's system calls (names separated by commas)\n"
	"  --strace-file FILE      ... to FILE instead of standard error\n"
	"  --log LEVEL             error, warn (default), info, debug\n"
	"  --config FILE           options from FILE: one a line, without the dashes\n"
	"  --help\n"
	"\n"
	"Exit code: the guest's own; 128+n when a signal n killed it; 127 PROGRAM not found,\n"
	"126 not executable, 125 minisentry itself failed.\n";

enum option_id {
	OPT_ROOTFS = 256,
	OPT_OVERLAY,
	OPT_RO,
	OPT_RW,
	OPT_TMPFS,
	OPT_CHDIR,
	OPT_ENV,
	OPT_ENV_ALL,
	OPT_CLEAR_ENV,
	OPT_HOSTNAME,
	OPT_UID,
	OPT_GID,
	OPT_MEMORY,
	OPT_CPUS,
	OPT_PLATFORM,
	OPT_SPIN,
	OPT_PAIRS,
	OPT_PATCH,
	OPT_REUSE,
	OPT_LATE,
	OPT_FORK_WAIT,
	OPT_FORK_REUSE,
	OPT_PASS_FD,
	OPT_CONFIG,
	OPT_STRACE,
	OPT_STRACE_FILE,
	OPT_LOG,
	OPT_NO_NAMESPACES,
	OPT_NO_LANDLOCK,
	OPT_HELP,
};

static const struct option options[] = {
	{ "rootfs", required_argument, NULL, OPT_ROOTFS },
	{ "overlay", required_argument, NULL, OPT_OVERLAY },
	{ "ro", required_argument, NULL, OPT_RO },
	{ "rw", required_argument, NULL, OPT_RW },
	{ "tmpfs", required_argument, NULL, OPT_TMPFS },
	{ "chdir", required_argument, NULL, OPT_CHDIR },
	{ "env", required_argument, NULL, OPT_ENV },
	{ "env-all", no_argument, NULL, OPT_ENV_ALL },
	{ "clear-env", no_argument, NULL, OPT_CLEAR_ENV },
	{ "hostname", required_argument, NULL, OPT_HOSTNAME },
	{ "uid", required_argument, NULL, OPT_UID },
	{ "gid", required_argument, NULL, OPT_GID },
	{ "memory", required_argument, NULL, OPT_MEMORY },
	{ "cpus", required_argument, NULL, OPT_CPUS },
	{ "platform", required_argument, NULL, OPT_PLATFORM },
	{ "spin", required_argument, NULL, OPT_SPIN },
	{ "pairs", required_argument, NULL, OPT_PAIRS },
	{ "patch", required_argument, NULL, OPT_PATCH },
	{ "reuse", required_argument, NULL, OPT_REUSE },
	{ "late", required_argument, NULL, OPT_LATE },
	{ "fork-wait", required_argument, NULL, OPT_FORK_WAIT },
	{ "fork-reuse", required_argument, NULL, OPT_FORK_REUSE },
	{ "pass-fd", required_argument, NULL, OPT_PASS_FD },
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "strace", optional_argument, NULL, OPT_STRACE },
	{ "strace-file", required_argument, NULL, OPT_STRACE_FILE },
	{ "log", required_argument, NULL, OPT_LOG },
	{ "no-namespaces", no_argument, NULL, OPT_NO_NAMESPACES },
	{ "no-landlock", no_argument, NULL, OPT_NO_LANDLOCK },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 },
};

void options_print_help(void)
{
	fputs(help_text, stdout);
}

bool options_takes_value(const char *arg)
{
	size_t n = strlen(arg);

	if (n < 3 || strncmp(arg, "--", 2) != 0)
		return false;
	/* getopt_long takes any beginning of a name. */
	for (const struct option *o = options; o->name; o++)
		if (strncmp(o->name, arg + 2, n - 2) == 0)
			return o->has_arg == required_argument;
	return false;
}

static int bad(const char *option, const char *value, const char *wanted)
{
	cli_error("minisentry run --help", "--%s %s: %s", option, value, wanted);
	return -1;
}

static int auto_or_off(const char *option, const char *v, bool *ret)
{
	if (strcmp(v, "auto") != 0 && strcmp(v, "off") != 0)
		return bad(option, v, "expected auto or off");
	*ret = strcmp(v, "auto") == 0;
	return 0;
}

/* "10", "64K", "1.5G" are not all numbers: integers with one unit letter are. */
static int parse_size(const char *text, u64 *ret)
{
	static const char units[] = "KMGT";
	char *end;
	u64 n, shift = 0;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	if (*end) {
		const char *u = strchr(units, toupper((unsigned char)*end));
		if (!u ||
		    (end[1] && strcasecmp(end + 1, "iB") != 0 && strcasecmp(end + 1, "B") != 0))
			return -EINVAL;
		shift = 10 * (u64)(u - units + 1);
	}
	if (shift && n > UINT64_MAX >> shift)
		return -ERANGE;
	*ret = n << shift;
	return 0;
}

static int parse_u32(const char *text, u32 max, u32 *ret)
{
	char *end;
	unsigned long n;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || *end || n > max)
		return -EINVAL;
	*ret = (u32)n;
	return 0;
}

/* SRC[:DST] or DST[:size=N]. The text is copied: getopt's may be a line of a file. */
static int add_mount(struct gathered *g, enum mount_kind kind, const char *name, const char *value)
{
	struct run_config *c = g->config;
	struct run_mount m = { .kind = kind, .source_fd = -1 };
	char *text = strdup(value), *colon = text ? strrchr(text, ':') : NULL;

	if (!text || c->mount_count == RUN_MAX_MOUNTS)
		return bad(name, value, "too many mounts");
	if (colon)
		*colon = '\0';
	if (kind == RUN_MOUNT_TMPFS) {
		m.destination = text;
		if (colon &&
		    (strncmp(colon + 1, "size=", 5) != 0 || parse_size(colon + 6, &m.size) < 0))
			return bad(name, value, "expected DST[:size=N[K|M|G]]");
	} else {
		m.source = realpath(text, NULL);
		if (!m.source)
			return bad(name, value, strerror(errno));
		m.destination = colon ? colon + 1 : m.source;
	}
	if (m.destination[0] != '/')
		return bad(name, value, "the guest path must be absolute");
	c->mounts[c->mount_count++] = m;
	return 0;
}

static int set_overlay(struct run_config *c, const char *value)
{
	if (strcmp(value, "memory") == 0)
		c->overlay = OVERLAY_MEMORY;
	else if (strcmp(value, "none") == 0)
		c->overlay = OVERLAY_NONE;
	else if (strcmp(value, "self") == 0)
		c->overlay = OVERLAY_SELF;
	else if (strncmp(value, "dir=", 4) == 0 && value[4]) {
		c->overlay = OVERLAY_DIR;
		c->overlay_dir = strdup(value + 4);
	} else
		return bad("overlay", value, "expected memory, none, self or dir=PATH");
	return 0;
}

static int add_env(struct gathered *g, const char *value)
{
	if (g->env_count == ENV_MAX)
		return bad("env", value, "too many variables");
	if (!strchr(value, '=')) {
		const char *v = getenv(value);
		char *text;
		if (!v)
			return 0;
		if (asprintf(&text, "%s=%s", value, v) < 0)
			return -1;
		g->env[g->env_count++] = text;
		return 0;
	}
	g->env[g->env_count++] = strdup(value);
	return 0;
}

static int apply_files_option(struct gathered *g, int id, const char *v)
{
	struct run_config *c = g->config;
	struct stat st;

	switch (id) {
	case OPT_ROOTFS:
		c->rootfs = realpath(v, NULL);
		if (!c->rootfs)
			return bad("rootfs", v, strerror(errno));
		return stat(c->rootfs, &st) == 0 && S_ISDIR(st.st_mode)
			       ? 0
			       : bad("rootfs", v, "not a folder");
	case OPT_OVERLAY: return set_overlay(c, v);
	case OPT_RO: return add_mount(g, RUN_MOUNT_RO, "ro", v);
	case OPT_RW: return add_mount(g, RUN_MOUNT_RW, "rw", v);
	case OPT_TMPFS: return add_mount(g, RUN_MOUNT_TMPFS, "tmpfs", v);
	case OPT_CHDIR: c->chdir = strdup(v); return 0;
	default: break;
	}
	u32 fd;
	if (parse_u32(v, INT_MAX, &fd) < 0)
		return bad("pass-fd", v, "expected a descriptor number");
	if (c->pass_fd_count == RUN_MAX_PASS_FDS)
		return bad("pass-fd", v, "too many descriptors");
	c->pass_fds[c->pass_fd_count++] = (int)fd;
	return 0;
}

/* A mistyped name would match nothing, silently. */
static int check_strace_names(const char *names)
{
	for (const char *p = names; *p;) {
		size_t n = strcspn(p, ","), nr = 0;

		while (nr < SYS_TABLE_SIZE &&
		       !(sys_table[nr].name && strlen(sys_table[nr].name) == n &&
			 memcmp(sys_table[nr].name, p, n) == 0))
			nr++;
		if (n > 0 && nr == SYS_TABLE_SIZE) {
			cli_error("minisentry syscalls",
				  "--strace %s: no system call is named \"%.*s\"", names, (int)n,
				  p);
			return -1;
		}
		p += n + (p[n] == ',');
	}
	return 0;
}

static int apply_resource_option(struct gathered *g, int id, const char *v)
{
	struct run_config *c = g->config;
	u32 n;

	switch (id) {
	case OPT_MEMORY:
		if (parse_size(v, &c->memory) < 0 || c->memory < (8UL << 20))
			return bad("memory", v, "expected N[K|M|G], at least 8M");
		return 0;
	case OPT_CPUS:
		if (parse_u32(v, 1024, &n) < 0 || n == 0)
			return bad("cpus", v, "expected a number from 1 to 1024");
		c->cpus = (int)n;
		return 0;
	case OPT_PLATFORM:
		return platform_kind_parse(v, &c->platform) < 0
			       ? bad("platform", v, "expected auto, seccomp or ptrace")
			       : 0;
	case OPT_SPIN: return auto_or_off("spin", v, &c->spin);
	case OPT_PAIRS: return auto_or_off("pairs", v, &c->pairs);
	case OPT_PATCH: return auto_or_off("patch", v, &c->patch);
	case OPT_REUSE: return auto_or_off("reuse", v, &c->reuse);
	case OPT_LATE: return auto_or_off("late", v, &c->late);
	case OPT_FORK_REUSE: return auto_or_off("fork-reuse", v, &c->fork_reuse);
	case OPT_FORK_WAIT: return auto_or_off("fork-wait", v, &c->fork_wait);
	case OPT_STRACE:
		if (*v && check_strace_names(v) < 0)
			return -1;
		c->strace = true;
		c->strace_filter = *v ? strdup(v) : NULL;
		return 0;
	case OPT_STRACE_FILE:
		c->strace = true;
		c->strace_file = strdup(v);
		return 0;
	case OPT_LOG:
		return log_level_parse(v, &c->log) < 0
			       ? bad("log", v, "expected error, warn, info or debug")
			       : 0;
	case OPT_NO_NAMESPACES: c->no_namespaces = true; return 0;
	default: c->no_landlock = true; return 0;
	}
}

static int read_config_file(struct gathered *g, const char *path);

/* v: "" for an option without a value. */
static int apply(struct gathered *g, int id, const char *v)
{
	struct run_config *c = g->config;

	switch (id) {
	case OPT_ENV: return add_env(g, v);
	case OPT_ENV_ALL: g->env_all = true; return 0;
	case OPT_CLEAR_ENV: g->clear_env = true; return 0;
	case OPT_HOSTNAME:
		if (strlen(v) > 64)
			return bad("hostname", v, "longer than 64 characters");
		c->hostname = strdup(v);
		return 0;
	case OPT_UID:
		return parse_u32(v, UINT32_MAX - 1, &c->uid) < 0
			       ? bad("uid", v, "expected a number")
			       : 0;
	case OPT_GID:
		return parse_u32(v, UINT32_MAX - 1, &c->gid) < 0
			       ? bad("gid", v, "expected a number")
			       : 0;
	case OPT_CONFIG: return read_config_file(g, v);
	case OPT_ROOTFS:
	case OPT_OVERLAY:
	case OPT_RO:
	case OPT_RW:
	case OPT_TMPFS:
	case OPT_CHDIR:
	case OPT_PASS_FD: return apply_files_option(g, id, v);
	default: return apply_resource_option(g, id, v);
	}
}

/* One line of a --config file: "name", "name value" or "name=value"; # starts a comment. */
static int apply_line(struct gathered *g, const char *path, int number, char *line)
{
	char *name = line + strspn(line, " \t"), *value;

	name[strcspn(name, "\r\n")] = '\0';
	if (!*name || *name == '#')
		return 0;
	value = name + strcspn(name, " \t=");
	if (*value) {
		*value++ = '\0';
		value += strspn(value, " \t=");
	} else {
		value = NULL;
	}
	for (const struct option *o = options; o->name; o++) {
		if (strcmp(o->name, name) != 0)
			continue;
		if (o->has_arg == required_argument && !value)
			break;
		return apply(g, o->val, value ? value : "");
	}
	cli_error("option names of `minisentry run --help`, without the dashes",
		  "%s:%d: \"%s\" is no option, or lacks its value", path, number, name);
	return -1;
}

static int read_config_file(struct gathered *g, const char *path)
{
	FILE *f;
	char line[CONFIG_LINE_MAX];
	int ret = 0;

	if (g->depth++ > 4)
		return bad("config", path, "files include each other");
	f = fopen(path, "re");
	if (!f)
		return bad("config", path, strerror(errno));
	for (int n = 1; ret == 0 && fgets(line, sizeof(line), f); n++)
		ret = apply_line(g, path, n, line);
	fclose(f);
	g->depth--;
	return ret;
}

/* ---- the guest's environment ---- */

static bool passed_by_default(const char *var)
{
	static const char *const names[] = { "PATH=", "TERM=", "LANG=", "LC_", NULL };

	for (size_t i = 0; names[i]; i++)
		if (strncmp(var, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

struct env_list {
	const char **v;
	size_t count;
};

static void env_put(struct env_list *l, const char *text)
{
	size_t n = strcspn(text, "=") + 1;

	for (size_t i = 0; i < l->count; i++) {
		if (strncmp(l->v[i], text, n) == 0) {
			l->v[i] = text;
			return;
		}
	}
	if (l->count < ENV_MAX)
		l->v[l->count++] = text;
}

static int build_env(struct gathered *g)
{
	struct env_list l = { .v = calloc(ENV_MAX + 1, sizeof(char *)) };
	static char home[PATH_MAX], user[64];
	bool root = g->config->uid == 0;
	const char *caller_home = getenv("HOME"), *name = getenv("USER");

	if (!l.v)
		return -1;
	if (!g->clear_env) {
		snprintf(home, sizeof(home), "HOME=%s",
			 root	       ? "/root"
			 : caller_home ? caller_home
				       : "/");
		snprintf(user, sizeof(user), "USER=%s", root ? "root" : name ? name : "user");
		env_put(&l, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
		env_put(&l, "SHELL=/bin/sh");
		for (char **e = environ; *e; e++)
			if (strchr(*e, '=') && (g->env_all || passed_by_default(*e)))
				env_put(&l, *e);
		if (!g->env_all) {
			env_put(&l, home);
			env_put(&l, user);
		}
	}
	for (int i = 0; i < g->env_count; i++)
		env_put(&l, g->env[i]);
	g->config->env = l.v;
	return 0;
}

int options_parse(int argc, char **argv, struct run_config *config)
{
	static struct gathered g;
	int id, ret = 0;

	g = (struct gathered){ .config = config };
	*config = (struct run_config){ .hostname = "minisentry",
				       .spin = true,
				       .pairs = true,
				       .patch = true,
				       .reuse = true,
				       .late = true,
				       .fork_wait = true,
				       .fork_reuse = true,
				       .log = LOG_WARN,
				       .stats_fd = -1 };
	config->host_uid = geteuid();
	config->host_gid = getegid();
	config->caller_cwd = getcwd(NULL, 0);
	optind = 1;
	/* "+": the program's own options are not ours. */
	while (ret == 0 && (id = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (id == 'h' || id == OPT_HELP) {
			options_print_help();
			return 1;
		}
		if (id == '?') {
			fputs("  try: minisentry run --help\n", stderr);
			return -1;
		}
		ret = apply(&g, id, optarg ? optarg : "");
	}
	if (ret < 0)
		return -1;
	if (optind >= argc) {
		cli_error("minisentry run -- /bin/sh", "no program to run");
		return -1;
	}
	/* Now, before any of our own files could have such a number. */
	for (int i = 0; i < config->pass_fd_count; i++) {
		if (fcntl(config->pass_fds[i], F_GETFD) < 0) {
			cli_error("opening it in the calling shell: N<file", "--pass-fd %d: %s",
				  config->pass_fds[i], strerror(errno));
			return -1;
		}
	}
	config->argv = argv + optind;
	return build_env(&g);
}
