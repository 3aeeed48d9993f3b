#include "bench/driver/command.h"
#include "bench/driver/workload.h"
#include <ctype.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_LINE_S 3

bool bench_env_init(struct bench_env *env, const struct bench_options *o)
{
	char path[280];
	ssize_t n;

	*env = (struct bench_env){ .options = o };
	n = readlink("/proc/self/exe", env->home, sizeof(env->home) - 1);
	if (n < 0) {
		bench_error(NULL, "cannot find my own program: %s", strerror(errno));
		return false;
	}
	env->home[n] = '\0';
	*strrchr(env->home, '/') = '\0';
	snprintf(path, sizeof(path), "%s/minisentry-bench-guest", env->home);
	if (access(path, X_OK) != 0) {
		bench_error("make, or make install", "%s: %s", path, strerror(errno));
		return false;
	}
	if ((size_t)snprintf(env->work, sizeof(env->work), "%s/minisentry-bench.XXXXXX", o->disk) >=
		    sizeof(env->work) ||
	    !mkdtemp(env->work)) {
		bench_error("--disk DIR, a folder that you can write",
			    "no folder for files in %s: %s", o->disk, strerror(errno));
		return false;
	}
	strcpy(env->shm, "/dev/shm/minisentry-bench.XXXXXX");
	if (!mkdtemp(env->shm)) /* no /dev/shm: the rows that need it will say so */
		strcpy(env->shm, "/dev/shm");
	snprintf(path, sizeof(path), "%s/files", env->work);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/upper", env->work);
	mkdir(path, 0755);
	return true;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	/* What cannot be removed stays; the folder itself is not ours to remove here. */
	if (ftw->level > 0)
		(void)!remove(path);
	return 0;
}

static void empty(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static bool shm_is_ours(const struct bench_env *env)
{
	return strcmp(env->shm, "/dev/shm") != 0;
}

void bench_env_clean(const struct bench_env *env)
{
	char path[280];

	snprintf(path, sizeof(path), "%s/files", env->work);
	empty(path);
	if (shm_is_ours(env))
		empty(env->shm);
}

void bench_env_remove(struct bench_env *env)
{
	empty(env->work);
	rmdir(env->work);
	if (shm_is_ours(env)) {
		empty(env->shm);
		rmdir(env->shm);
	}
}

void command_add(struct command *c, const char *fmt, ...)
{
	char **words = realloc(c->words, (size_t)(c->count + 2) * sizeof(*words));
	va_list ap;

	va_start(ap, fmt);
	if (!words || vasprintf(&words[c->count], fmt, ap) < 0) {
		fputs("minisentry bench: out of memory\n", stderr);
		exit(125);
	}
	va_end(ap);
	c->words = words;
	c->words[++c->count] = NULL;
}

void command_free(struct command *c)
{
	for (int i = 0; i < c->count; i++)
		free(c->words[i]);
	free(c->words);
	*c = (struct command){};
}

/*
 * A prefix of plain words is split here; one that needs a shell gets one, which then replaces
 * itself by the peer.
 */
static void add_peer(struct command *c, const struct runtime *rt)
{
	char *words, *save = NULL;

	if (strpbrk(rt->prefix, "'\"`$\\;&|<>()*?[]{}~#=%!\n")) {
		command_add(c, "/bin/sh");
		command_add(c, "-c");
		command_add(c, "exec %s \"$@\"", rt->prefix);
		command_add(c, "%s", rt->name);
		return;
	}
	words = strdup(rt->prefix);
	for (char *w = words ? strtok_r(words, " \t", &save) : NULL; w;
	     w = strtok_r(NULL, " \t", &save))
		command_add(c, "%s", w);
	free(words);
}

void command_add_runtime(struct command *c, const struct bench_env *env, const struct runtime *rt,
			 enum group_place place)
{
	switch (rt->kind) {
	case RUNTIME_NATIVE: return;
	case RUNTIME_PEER: add_peer(c, rt); return;
	case RUNTIME_SENTRY: break;
	}
	command_add(c, "%s", env->options->minisentry);
	command_add(c, "run");
	command_add(c, "--platform=%s", rt->name);
	command_add(c, "--ro=%s", env->home);
	if (place == PLACE_OVERLAY_DISK)
		command_add(c, "--overlay=dir=%s/upper", env->work);
	if (place == PLACE_BIND)
		command_add(c, "--rw=%s/files", env->work);
	command_add(c, "--");
}

void command_add_group(struct command *c, const struct bench_env *env, const struct group *group,
		       const char *const *rows, int row_count)
{
	static const char *const places[] = { [PLACE_OVERLAY_MEMORY] = "overlay_memory",
					      [PLACE_OVERLAY_DISK] = "overlay_disk",
					      [PLACE_BIND] = "bind" };

	if (group->kind == GROUP_SCRIPT) {
		command_add(c, "%s", group->interpreter);
		command_add(c, "%s/%s", env->home, group->script);
	} else {
		command_add(c, "%s/minisentry-bench-guest", env->home);
		command_add(c, "%s", group->guest);
	}
	command_add(c, "--ms");
	command_add(c, "%d", env->options->loop_ms);
	command_add(c, "--dir");
	if (group->place == PLACE_TMPFS)
		command_add(c, "tmpfs=%s", env->shm);
	else
		command_add(c, "%s=%s/files", places[group->place], env->work);
	for (int i = 0; i < row_count; i++)
		command_add(c, "%s", rows[i]);
}

/* The first line with a digit, past a banner; or else the first line. */
static void telling_line(const char *text, size_t length, char *buf, size_t size)
{
	const char *end = text + length, *best = NULL;

	for (const char *line = text, *next; line < end && !best; line = next + 1) {
		next = memchr(line, '\n', (size_t)(end - line)) ?: end;
		for (const char *c = line; c < next && !best; c++)
			if (*c >= '0' && *c <= '9')
				best = line;
	}
	snprintf(buf, size, "%.*s", (int)length, best ? "" : text);
	/* Past what a banner draws to its left. */
	while (best && !isalnum((unsigned char)*best))
		best++;
	if (best)
		snprintf(buf, size, "%.*s", (int)(end - best), best);
	buf[strcspn(buf, "\n")] = '\0';
}

void command_first_line(const char *shell_command, char *buf, size_t size)
{
	char *argv[] = { "/bin/sh", "-c", NULL, NULL }, text[4096], how[160];
	double limit_ns = workload_now_ns() + FIRST_LINE_S * 1e9;
	struct workload w;
	ssize_t n = -1;
	size_t length = 0;

	buf[0] = '\0';
	if (asprintf(&argv[2], "exec 2>&1; %s", shell_command) < 0)
		return;
	if (workload_start(&w, argv, "/", NULL)) {
		while (n != 0 && workload_now_ns() < limit_ns) {
			struct pollfd p = { w.out, POLLIN, 0 };

			/* An interrupt ends it; the rest of a long text must not block the command.
			 */
			if (poll(&p, 1, FIRST_LINE_S * 1000) <= 0)
				break;
			n = read(w.out, text + length, sizeof(text) - length);
			if (n > 0 && (length += (size_t)n) == sizeof(text))
				length = size < sizeof(text) / 2 ? size : sizeof(text) / 2;
		}
		if (workload_finish(&w, n != 0, how, sizeof(how)))
			telling_line(text, length, buf, size);
		clean_text(buf);
	}
	free(argv[2]);
}
