/*
 * Servers that a workload runs in the background and loads.
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

#include "bench/guest/program.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
