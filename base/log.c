#include "base/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINE_MAX 1024

enum log_level log_threshold = LOG_WARN;
static int log_fd = 2;
static const char *const level_names[] = { "error", "warn", "info", "debug" };

void log_init(int fd, enum log_level threshold)
{
	log_fd = fd;
	log_threshold = threshold;
}

int log_level_parse(const char *name, enum log_level *ret_level)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
		if (strcmp(name, level_names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

static void write_line(const char *prefix, const char *fmt, va_list ap)
{
	char line[LOG_LINE_MAX];
	int saved = errno;
	size_t len = (size_t)snprintf(line, sizeof(line), "minisentry: %s", prefix);
	int n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);

	if (n > 0)
		len = MIN(len + (size_t)n, sizeof(line) - 2);
	line[len++] = '\n';
	if (write(log_fd, line, len) < 0) {
		/* There is nowhere left to complain to. */
	}
	errno = saved;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char prefix[16];
	va_list ap;

	snprintf(prefix, sizeof(prefix), "%s: ", level_names[level]);
	va_start(ap, fmt);
	write_line(prefix, fmt, ap);
	va_end(ap);
}

_Noreturn void panic_at(const char *file, int line, const char *fmt, ...)
{
	char prefix[256];
	va_list ap;

	snprintf(prefix, sizeof(prefix), "fatal: %s:%d: ", file, line);
	va_start(ap, fmt);
	write_line(prefix, fmt, ap);
	va_end(ap);
	abort();
}
