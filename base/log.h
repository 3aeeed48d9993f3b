/*
 * base/log.h: the sentry's log, and the two ways to stop it.
 *
 * Messages go to the descriptor given to log_init (stderr by default), one
 * write(2) each, so that lines of several threads do not mix. Nothing here
 * allocates. `log_once` prints a message the first time a key is seen.
 */
#ifndef MINISENTRY_BASE_LOG_H
#define MINISENTRY_BASE_LOG_H

#include "base/types.h"
#include <stdarg.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

extern enum log_level log_threshold;

void log_init(int fd, enum log_level threshold);
/* Parses "error", "warn", "info", "debug"; -EINVAL otherwise. */
int log_level_parse(const char *name, enum log_level *ret_level);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define LOG(level, ...)                                                                            \
	do {                                                                                       \
		if ((level) <= log_threshold)                                                      \
			log_write((level), __VA_ARGS__);                                           \
	} while (0)
#define log_error(...) LOG(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) LOG(LOG_WARN, __VA_ARGS__)
#define log_info(...) LOG(LOG_INFO, __VA_ARGS__)
#define log_debug(...) LOG(LOG_DEBUG, __VA_ARGS__)

/*
 * A broken sentry invariant: prints what, where and aborts. Never for anything
 * that a guest can cause.
 */
_Noreturn void panic_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define PANIC(...) panic_at(__FILE__, __LINE__, __VA_ARGS__)
#define ASSERT(cond)                                                                               \
	do {                                                                                       \
		if (__builtin_expect(!(cond), 0))                                                  \
			panic_at(__FILE__, __LINE__, "invariant broken: %s", #cond);               \
	} while (0)

#endif
