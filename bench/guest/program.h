/*
 * Other programs that a workload runs. All of them get the same small environment and the usual
 * PATH, natively and in a sandbox, no input unless given, and a SIGTERM should the workload die
 * first. Functions that take a row report with bench_skip or bench_fail what stopped them.
 */
#ifndef BENCH_GUEST_PROGRAM_H
#define BENCH_GUEST_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether the program is in one of the usual folders; otherwise the row has been skipped. */
bool program_found(const char *row, const char *program, const char *package);

/*
 * Starts argv with these descriptors as its standard ones; err_fd -1: the workload's own. Its pid,
 * or -1 with errno.
 */
pid_t program_spawn(char *const argv[], int in_fd, int out_fd, int err_fd);
/* Waits for its end: its exit code, 128+n after signal n, or -1 with errno. */
int program_wait(pid_t pid);

/*
 * Runs argv and waits for its end. in_fd: its standard input, or -1 for none. What it writes to
 * out_fd, its standard output or standard error, goes to `out`, cut to `size` - 1 bytes and
 * terminated by a NUL; or nowhere with NULL. Its exit code, 128+n after signal n, or -1 with errno
 * when it could not be started.
 */
int program_run(char *const argv[], int in_fd, int out_fd, char *out, size_t size);

/*
 * The same for a row of the time from spawning to reaping: one warm-up, then up to `repetitions` in
 * a phase, as many as start within a second. The median, in ms; -1 when a run failed (reported).
 */
double program_time(const char *row, char *const argv[], int repetitions, uint64_t *ret_ops);

#endif
