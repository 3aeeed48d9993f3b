/* Idle sandboxes: the driver takes their memory, CPU time and how long they took to get here. */
#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include "bench/guest/server.h"
#include <unistd.h>

#define IDLE_US 1000000

/* The one sleep that is meant: idling is what is measured. */
static void stay_idle(const char *row)
{
	bench_begin(row);
	usleep(IDLE_US);
	bench_end(row, 1, 1);
}

static void idle_empty(const struct bench_row *row)
{
	stay_idle(row->name);
}

static void idle_nginx(const struct bench_row *row)
{
	struct scratch scratch;
	struct server server;
	uint16_t port;

	if (!program_found(row->name, "nginx", "nginx-light") ||
	    scratch_make(&scratch, row->name, "tmpfs"))
		return;
	if (server_start_nginx(row->name, scratch.root, &port, &server) == 0) {
		stay_idle(row->name);
		server_stop(&server);
	}
	scratch_remove(&scratch);
}

static void idle_node(const struct bench_row *row)
{
	char script[256];
	char *const argv[] = { "node", "-e", script, NULL };
	struct server_options options = { .argv = argv,
					  .port = server_free_port(),
					  .request = "GET / HTTP/1.0\r\n\r\n",
					  .answer = "HTTP/1.1 200" };
	struct server server;

	if (!program_found(row->name, "node", "nodejs"))
		return;
	snprintf(script, sizeof(script),
		 "require('http').createServer((request, answer) => answer.end('up\\n'))"
		 ".listen(%u, '127.0.0.1')",
		 options.port);
	if (server_start(row->name, &server, &options) == 0) {
		stay_idle(row->name);
		server_stop(&server);
	}
}

static const struct bench_row rows[] = {
	{ "idle_empty", idle_empty, 0 },
	{ "idle_nginx", idle_nginx, 0 },
	{ "idle_node", idle_node, 0 },
};
BENCH_GROUP(idle, rows);
