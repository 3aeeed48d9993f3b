/*
 * Other programs that a workload runs: to completion, with what they say captured, or as a server
 * in the background. All of them get the same small environment and the usual PATH, natively and in
 * a sandbox, no input unless given, and a SIGTERM should the workload die first.
 *
 *     if (!program_found(row, "nginx", "nginx-light") || scratch_make(&scratch, row, "tmpfs"))
 *             return;
 *     if (server_start(row, &server, &options) == 0) {
 *             ... load ...
 *             server_stop(&server);
 *     }
 *     scratch_remove(&scratch);
 *
 * Functions that take a row report with bench_skip or bench_fail what stopped them.
 */
#ifndef BENCH_GUEST_SERVER_H
#define BENCH_GUEST_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Whether the program is in one of the usual folders; otherwise the row has been skipped. */
bool program_found(const char *row, const char *program, const char *package);

/*
 * Runs argv and waits for its end. in_fd: its standard input, or -1 for none. What it writes to its
 * standard output goes to `out`, cut to `size` - 1 bytes and terminated by a NUL; or nowhere with
 * NULL. Its exit code, 128+n after signal n, or -1 with errno when it could not be started.
 */
int program_run(char *const argv[], int in_fd, char *out, size_t size);

/*
 * The same for a row of the time from spawning to reaping: one warm-up, then up to `repetitions` in
 * a phase, as many as start within a second. The median, in ms; -1 when a run failed (reported).
 */
double program_time(const char *row, char *const argv[], int repetitions, uint64_t *ret_ops);

struct server_options {
	char *const *argv;
	const char *socket_path; /* a unix socket, or NULL: 127.0.0.1 */
	uint16_t port;
	const char *request; /* what to send, */
	const char *answer;  /* and how the answer begins */
};

struct server {
	pid_t pid;
	int output; /* a pipe of what it says */
};

/* Starts a server and waits until it answers a request. -1 when it did not (reported). */
int server_start(const char *row, struct server *server, const struct server_options *options);
/* Ends it with SIGTERM and waits. */
void server_stop(struct server *server);

/* nginx with one worker, which serves the files of `dir` (its own scratch folder, too). */
int server_start_nginx(const char *row, const char *dir, uint16_t *ret_port, struct server *server);

/* A port of 127.0.0.1 that nobody listens on right now; 0 with errno. */
uint16_t server_free_port(void);

#endif
