/*
 * The frame of a guest workload: what a row of `minisentry bench` is made of, and how it talks with
 * the driver (bench/driver), which sits outside the sandbox.
 *
 * The guest program is one static binary with groups of rows; the driver starts it as
 *     minisentry-bench-guest GROUP [--ms N] [--dir NAME=PATH]... [ROW...]
 * natively, in a sandbox, or under a peer. The two speak lines, over the guest's standard output
 * and input, so that any runtime that passes these on will do:
 *
 *     begin ROW                        the driver samples memory and CPU time, and answers "\n"
 *     end ROW VALUE OPS ELAPSED_NS     it samples again, and answers "\n"
 *     value ROW VALUE                  a further row of the same phase (faults, bytes); no answer
 *     skip ROW WHY...                  cannot run here; says what is missing
 *     fail ROW WHY...
 *
 * VALUE is in the row's unit (the driver's catalog has it). OPS is how many operations were made
 * between `begin` and `end`, and ELAPSED_NS what the guest's clock says of that time: the driver
 * divides host CPU time by OPS, and compares ELAPSED_NS with its own clock, so a guest clock that
 * lies is seen. A phase is what a row costs: set up before bench_begin, clean up after bench_end.
 * Memory growth is sampled at the same two points, so keep children alive across bench_end where
 * growth with both alive is the question.
 *
 * Scripts (py_agent.py, node_exec.js, subshells.sh) speak the same lines.
 */
#ifndef BENCH_GUEST_BENCH_H
#define BENCH_GUEST_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define PAGE_SIZE 4096UL
#define KIB 1024UL
#define MIB (1024 * KIB)

struct bench_row {
	const char *name;
	void (*run)(const struct bench_row *row);
	uintptr_t arg; /* the row's own: a size, a stride */
};

struct bench_group {
	const char *name;
	const struct bench_row *rows;
	size_t count;
};

#define BENCH_GROUP(group, table)                                                                  \
	const struct bench_group group##_group = { #group, table, ARRAY_SIZE(table) }

/* CLOCK_MONOTONIC, in ns. */
uint64_t bench_now(void);

/* The folder that the driver gave as --dir NAME=PATH, or NULL. The caller makes its own files in
 * it. */
const char *bench_dir(const char *name);

/* A phase; ops may be 0 when operations cannot be counted. Both wait for the driver. */
void bench_begin(const char *row);
void bench_end(const char *row, double value, uint64_t ops);
void bench_value(const char *row, double value);
void bench_skip(const char *row, const char *why, ...) __attribute__((format(printf, 2, 3)));
/* Says why and errno's text when errno is not 0. The row ends; the program goes on with the next.
 */
void bench_fail(const char *row, const char *why, ...) __attribute__((format(printf, 2, 3)));
/* Whether `row`, a further value of another row's phase, was asked for (to save its work). */
bool bench_wanted(const char *row);

/*
 * Measures op(arg, n), which makes n operations: finds the n that takes about a tenth of
 * the time of a loop (--ms), runs it once more as warm-up, then ten times between begin and end.
 * The median batch's time for one operation, in ns, and *ret_ops, what was done in the phase.
 * The caller reports with bench_end. `op` returns 0, or -1 with errno set: then the row has failed
 * (reported here) and the result is negative.
 */
double bench_loop(const char *row, int (*op)(void *arg, uint64_t n), void *arg, uint64_t *ret_ops);
/* bench_loop and bench_end with `scale` ns a unit (1000 for us); a row of one call. */
void bench_loop_row(const char *row, int (*op)(void *arg, uint64_t n), void *arg, double scale);

double bench_median(double *samples, size_t count); /* sorts them */

/* mmap of private anonymous memory without THP; ends the program when there is none. */
void *bench_map(size_t size);
/* Writes one byte in every `stride` bytes. */
void bench_touch(void *base, size_t size, size_t stride);
/* A child that waits until bench_release(); -1 with errno. The pipe's write end is in *ret_fd. */
int bench_fork_waiter(int *ret_fd);
/* Ends a child of bench_fork_waiter and reaps it. */
void bench_release(int pid, int fd);

#endif
