#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include "bench/guest/server.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REQUESTS 20000 /* 0.2 s natively, a few seconds in a slow sandbox */
#define STRING2(x) #x
#define STRING(x) STRING2(x)

/* Requests a second of redis-benchmark's test ("set", "get") with 50 clients; negative: failed. */
static double load(const char *row, char *socket, char *test, char *requests)
{
	char *argv[] = { "redis-benchmark", "-s", socket,  "-t", test, "-n",
			 requests,	    "-q", "--csv", NULL };
	char out[2048];
	int code = program_run(argv, -1, STDOUT_FILENO, out, sizeof(out));
	/* "SET","88339.23",... */
	const char *line = strcasestr(out, test);

	if (code == 0 && line && strncmp(line + strlen(test), "\",\"", 3) == 0)
		return strtod(line + strlen(test) + 3, NULL);
	errno = 0;
	bench_fail(row, "redis-benchmark ended with %d and says: %.80s", code, out);
	return -1;
}

static void benchmark(const struct bench_row *row)
{
	struct scratch scratch;
	char socket[PATH_MAX];
	char *const argv[] = { "redis-server", "--port", "0",	       "--unixsocket",
			       socket,	       "--save", "",	       "--appendonly",
			       "no",	       "--dir",	 scratch.root, "--loglevel",
			       "warning",      NULL };
	struct server_options options = {
		.argv = argv, .socket_path = socket, .request = "PING\r\n", .answer = "+PONG"
	};
	struct server server;
	double rate;

	if (!program_found(row->name, "redis-server", "redis-server") ||
	    !program_found(row->name, "redis-benchmark", "redis-tools") ||
	    scratch_make(&scratch, row->name, "tmpfs"))
		return;
	snprintf(socket, sizeof(socket), "%s", scratch_path(&scratch, "socket"));
	if (server_start(row->name, &server, &options) == 0) {
		/* Both rows warm up with SET, so that GET finds its key. */
		rate = load(row->name, socket, "set", "1000");
		if (rate > 0) {
			bench_begin(row->name);
			rate = load(row->name, socket, (char *)row->arg, STRING(REQUESTS));
			if (rate > 0)
				bench_end(row->name, rate / 1000, REQUESTS);
		}
		server_stop(&server);
	}
	scratch_remove(&scratch);
}

static const struct bench_row rows[] = {
	{ "redis_set", benchmark, (uintptr_t) "set" },
	{ "redis_get", benchmark, (uintptr_t) "get" },
};
BENCH_GROUP(redis, rows);
