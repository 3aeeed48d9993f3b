/* `minisentry list` and `minisentry stats`: the asking side of status.h. */
#include "cli/status.h"
#include "cli/cli.h"
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* A launcher answers within GIVE_UP_NS unless it is stopped. */
#define ANSWER_TIMEOUT_S 3
#define REPLY_MAX 8192
#define INSTANCES_MAX 4096

/* ---- one answer ---- */

enum found { FOUND, FOUND_STALE, FOUND_SILENT };

static enum found read_answer(int fd, char *buf, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len + 1 < size && (n = recv(fd, buf + len, size - 1 - len, 0)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
	return len >= 4 && strcmp(buf + len - 4, "end\n") == 0 ? FOUND : FOUND_SILENT;
}

static enum found ask_path(const char *path, char *buf, size_t size)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const struct timeval patience = { .tv_sec = ANSWER_TIMEOUT_S };
	enum found ret;
	int fd;

	if (strlen(path) >= sizeof(a.sun_path))
		return FOUND_SILENT;
	strcpy(a.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return FOUND_SILENT;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		ret = errno == ECONNREFUSED || errno == ENOENT ? FOUND_STALE : FOUND_SILENT;
	else
		ret = read_answer(fd, buf, size);
	close(fd);
	return ret;
}

/* The value of a line "name value", NUL-terminated in dst; false: there is none. */
static bool value_of(const char *answer, const char *name, char *dst, size_t size)
{
	size_t n = strlen(name);

	for (const char *p = answer; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL) {
		if (strncmp(p, name, n) != 0 || p[n] != ' ')
			continue;
		p += n + 1;
		snprintf(dst, size, "%.*s", (int)strcspn(p, "\n"), p);
		return true;
	}
	return false;
}

static bool number_of(const char *answer, const char *name, u64 *ret)
{
	char text[32];

	if (!value_of(answer, name, text, sizeof(text)) || !isdigit((unsigned char)text[0]))
		return false;
	*ret = strtoull(text, NULL, 10);
	return true;
}

/* ---- all sandboxes ---- */

static bool is_id(const char *name)
{
	return *name && strlen(name) <= 10 && strspn(name, "0123456789") == strlen(name);
}

static int by_number(const void *a, const void *b)
{
	long x = atol(*(char *const *)a), y = atol(*(char *const *)b);

	return x < y ? -1 : x > y;
}

/* Calls fn for each socket of a folder, in order; removes those that nobody listens on. */
static void each_in(const char *dir, void (*fn)(const char *id, const char *answer, void *arg),
		    void *arg)
{
	DIR *d = opendir(dir);
	char *ids[INSTANCES_MAX], path[128], answer[REPLY_MAX];
	size_t count = 0;
	struct dirent *e;

	while (d && (e = readdir(d)) && count < INSTANCES_MAX)
		if (is_id(e->d_name) && (ids[count] = strdup(e->d_name)))
			count++;
	if (d)
		closedir(d);
	qsort(ids, count, sizeof(ids[0]), by_number);
	for (size_t i = 0; i < count; i++) {
		enum found found;

		snprintf(path, sizeof(path), "%s/%s", dir, ids[i]);
		found = ask_path(path, answer, sizeof(answer));
		if (found == FOUND_STALE)
			unlink(path);
		else
			fn(ids[i], found == FOUND ? answer : "", arg);
		free(ids[i]);
	}
}

static void each_sandbox(void (*fn)(const char *id, const char *answer, void *arg), void *arg)
{
	char dir[STATUS_DIRS][100];

	for (int i = 0; i < STATUS_DIRS; i++) {
		bool seen = false;

		status_dir(i, false, dir[i], sizeof(dir[i]));
		for (int j = 0; j < i; j++)
			seen |= strcmp(dir[j], dir[i]) == 0;
		if (dir[i][0] && !seen)
			each_in(dir[i], fn, arg);
	}
}

/* ---- printing ---- */

static const char *size_text(u64 bytes, char *buf, size_t size)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)bytes;
	size_t i = 0;

	for (; v >= 1024 && i + 1 < ARRAY_SIZE(units); i++)
		v /= 1024;
	snprintf(buf, size, i ? "%.1f %s" : "%.0f %s", v, units[i]);
	return buf;
}

static const char *age_text(u64 ms, char *buf, size_t size)
{
	u64 s = ms / 1000;

	if (s < 100)
		snprintf(buf, size, "%lu.%lus", s, ms % 1000 / 100);
	else if (s < 6000)
		snprintf(buf, size, "%lum%02lus", s / 60, s % 60);
	else
		snprintf(buf, size, "%luh%02lum", s / 3600, s / 60 % 60);
	return buf;
}

static void put_json_text(const char *text)
{
	putchar('"');
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p == '"' || *p == '\\')
			printf("\\%c", *p);
		else if (*p < ' ' || *p == 127)
			printf("\\u%04x", *p);
		else
			putchar(*p);
	}
	putchar('"');
}

/* One object: every figure, the rest as text. An id alone: no answer. */
static void put_json(const char *id, const char *answer)
{
	static const char *const texts[] = { "version", "platform", "program" };
	char text[2048];
	u64 n;

	printf("{\"id\": %s, \"answers\": %s", id, *answer ? "true" : "false");
	if (number_of(answer, "sentry_pid", &n))
		printf(", \"sentry_pid\": %lu", n);
	if (number_of(answer, "uptime_ms", &n))
		printf(", \"uptime_ms\": %lu", n);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (!value_of(answer, texts[i], text, sizeof(text)))
			continue;
		printf(", \"%s\": ", texts[i]);
		put_json_text(text);
	}
	for (size_t i = 0; i < status_figure_count; i++)
		if (number_of(answer, status_figures[i].name, &n))
			printf(", \"%s\": %lu", status_figures[i].name, n);
	putchar('}');
}

struct listing {
	bool json;
	int count;
};

static void list_one(const char *id, const char *answer, void *arg)
{
	struct listing *l = arg;
	char program[2048] = "(does not answer)", platform[32] = "-", age[32] = "-", mem[32] = "-",
	     tasks[32] = "-";
	u64 n;

	if (l->json) {
		fputs(l->count++ ? ",\n " : "", stdout);
		put_json(id, answer);
		return;
	}
	if (!l->count++)
		printf("%-8s %-9s %-9s %7s %11s  %s\n", "ID", "AGE", "PLATFORM", "THREADS",
		       "COMMITTED", "PROGRAM");
	value_of(answer, "program", program, sizeof(program));
	value_of(answer, "platform", platform, sizeof(platform));
	if (number_of(answer, "uptime_ms", &n))
		age_text(n, age, sizeof(age));
	if (number_of(answer, "committed", &n))
		size_text(n, mem, sizeof(mem));
	if (number_of(answer, "tasks", &n))
		snprintf(tasks, sizeof(tasks), "%lu", n);
	printf("%-8s %-9s %-9s %7s %11s  %s\n", id, age, platform, tasks, mem, program);
}

static const char list_help[] =
	"Usage: minisentry list [--json]\n"
	"Names the sandboxes that the user runs: id, age, platform, threads, memory that the host\n"
	"has given, program. Those of less than 20 ms are not listed.\n";

int cli_list(int argc, char **argv)
{
	struct listing l = { .json = argc == 2 && strcmp(argv[1], "--json") == 0 };

	if (argc > 1 && !l.json) {
		bool help = strcmp(argv[1], "--help") == 0;

		fputs(list_help, help ? stdout : stderr);
		return help ? 0 : 125;
	}
	if (l.json)
		putchar('[');
	each_sandbox(list_one, &l);
	if (l.json)
		puts("]");
	return 0;
}

static void print_stats(const char *answer)
{
	char text[2048];
	u64 n;

	if (value_of(answer, "program", text, sizeof(text)))
		printf("%-32s %s\n", "program", text);
	if (value_of(answer, "platform", text, sizeof(text)))
		printf("%-32s %s\n", "platform", text);
	if (number_of(answer, "uptime_ms", &n))
		printf("%-32s %s\n", "age", age_text(n, text, sizeof(text)));
	for (size_t i = 0; i < status_figure_count; i++) {
		const struct status_figure *f = &status_figures[i];

		if (!number_of(answer, f->name, &n))
			continue;
		if (f->unit == STATUS_BYTES)
			printf("%-32s %s\n", f->label, size_text(n, text, sizeof(text)));
		else
			printf("%-32s %lu\n", f->label, n);
	}
}

static const char stats_help[] =
	"Usage: minisentry stats [--json] ID\n"
	"Prints what the sandbox ID (see `minisentry list`) uses now: processes, memory by use,\n"
	"what copy-on-write has copied, faults. --json: one object, sizes in bytes.\n";

int cli_stats(int argc, char **argv)
{
	char dir[100], path[128], answer[REPLY_MAX];
	bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
	const char *id = argc == 2 + json ? argv[1 + json] : NULL;
	enum found found = FOUND_STALE;
	u64 n;

	if (argc > 1 && strcmp(argv[1], "--help") == 0) {
		fputs(stats_help, stdout);
		return 0;
	}
	if (!id || !is_id(id)) {
		fputs(stats_help, stderr);
		return 125;
	}
	for (int i = 0; i < STATUS_DIRS && found == FOUND_STALE; i++) {
		status_dir(i, false, dir, sizeof(dir));
		if (!dir[0])
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, id);
		found = ask_path(path, answer, sizeof(answer));
	}
	if (found == FOUND_STALE)
		return cli_error("minisentry list", "no sandbox %s of this user runs", id);
	if (found == FOUND_SILENT || !number_of(answer, "tasks", &n))
		return cli_error("trying again", "sandbox %s does not answer", id);
	if (json) {
		put_json(id, answer);
		putchar('\n');
	} else {
		print_stats(answer);
	}
	return 0;
}
