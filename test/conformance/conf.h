/*
 * test/conformance/conf.h: the frame of a conformance program.
 *
 * A family is one plain C program, FAMILY.c, with named cases:
 *
 *	#include "conf.h"
 *	CASE(pipe_atomic_write)
 *	{
 *		CHECK_EQ(write(fd, buf, 1), 1);
 *		CHECK_ERR(write(-1, buf, 1), EBADF);
 *	}
 *	CONF_MAIN
 *
 * Each case runs in a child of its own, in a new process group, with a time
 * limit; the program prints one line a case: `ok NAME`, `not ok NAME: why`, or
 * `skip NAME: why`. `FAMILY list` lists, `FAMILY NAME...` runs some. The exit code
 * is 0 when nothing failed. The same binary runs natively and in the sandbox;
 * a case may ask conf_in_sandbox() only to skip natively what the host lacks.
 *
 * Rules: no sleeping to wait for something (use pipes, waitpid, poll); leave no
 * files behind (conf_tmpdir() is removed afterwards); loopback only.
 */
#ifndef MINISENTRY_TEST_CONF_H
#define MINISENTRY_TEST_CONF_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONF_TIMEOUT_S 30

struct conf_case {
	const char *name;
	void (*fn)(void);
};

/* Ends the calling case (also from a forked helper process of it): exit codes 1 and 77. */
_Noreturn void conf_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void conf_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool conf_in_sandbox(void);
/* A fresh directory of this case under $TMPDIR or /tmp; removed when the case has ended. */
const char *conf_tmpdir(void);
/* A path in conf_tmpdir(), from a small ring of static buffers. */
const char *conf_path(const char *name);
/* fork; the child runs fn(arg) and _exits with 0 (CHECKs in it work: they exit 1). Returns its pid.
 */
pid_t conf_fork(void (*fn)(void *), void *arg);
/* Waits for pid and fails the case unless it exited with 0. */
void conf_join(pid_t pid);
/* Wait status of pid. */
int conf_wait_status(pid_t pid);
/* Runs access(addr) in a forked child and returns the signal that killed it (0: none). */
int conf_signal_of(void (*fn)(void *), void *arg);
/* What the row `name` of a file in /proc says, and that of smaps about the mapping of addr; valid
 * until the next one is asked for. */
const char *conf_row(const char *path, const char *name);
const char *conf_smaps_row(const void *addr, const char *name);
/* Of a row in kB. */
unsigned long conf_bytes(const char *row);
int conf_main(int argc, char **argv, const struct conf_case *begin, const struct conf_case *end);

#define CASE(name_)                                                                                \
	static void case_##name_(void);                                                            \
	static const struct conf_case conf_entry_##name_                                           \
		__attribute__((section("conf_cases"), used)) = { #name_, case_##name_ };           \
	static void case_##name_(void)

extern const struct conf_case __start_conf_cases[], __stop_conf_cases[];
#define CONF_MAIN                                                                                  \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return conf_main(argc, argv, __start_conf_cases, __stop_conf_cases);               \
	}

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			conf_fail(__FILE__, __LINE__, "%s (errno %d)", #cond, errno);              \
	} while (0)
#define CHECK_EQ(a, b)                                                                             \
	do {                                                                                       \
		long long a_ = (long long)(a), b_ = (long long)(b);                                \
		if (a_ != b_)                                                                      \
			conf_fail(__FILE__, __LINE__, "%s is %lld, not %lld (errno %d)", #a, a_,   \
				  b_, errno);                                                      \
	} while (0)
/* The expression returns -1 and sets errno to err. */
#define CHECK_ERR(expr, err)                                                                       \
	do {                                                                                       \
		errno = 0;                                                                         \
		long long r_ = (long long)(expr);                                                  \
		int e_ = errno;                                                                    \
		if (r_ != -1 || e_ != (err))                                                       \
			conf_fail(__FILE__, __LINE__,                                              \
				  "%s: result %lld errno %d (%s), expected %s", #expr, r_, e_,     \
				  strerror(e_), #err);                                             \
	} while (0)
/* Not an error; evaluates to the result. */
#define OK(expr)                                                                                   \
	({                                                                                         \
		long long r_ = (long long)(expr);                                                  \
		if (r_ == -1)                                                                      \
			conf_fail(__FILE__, __LINE__, "%s: errno %d (%s)", #expr, errno,           \
				  strerror(errno));                                                \
		(__typeof__(expr))r_;                                                              \
	})
#define CHECK_MEM(a, b, n)                                                                         \
	do {                                                                                       \
		if (memcmp((a), (b), (n)) != 0)                                                    \
			conf_fail(__FILE__, __LINE__, "%s and %s differ", #a, #b);                 \
	} while (0)
#define CHECK_STR(a, b)                                                                            \
	do {                                                                                       \
		const char *s_ = (a), *t_ = (b);                                                   \
		if (strcmp(s_, t_) != 0)                                                           \
			conf_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #a, s_, t_);     \
	} while (0)
#define SKIP(...) conf_skip(__VA_ARGS__)

#endif
