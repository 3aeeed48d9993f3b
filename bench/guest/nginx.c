#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include "bench/guest/server.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct load {
	size_t file_size;
	char *connections;
	bool bandwidth; /* MiB/s rather than requests/s */
};

static const struct load loads[] = {
	{ 1 * KIB, "1", false },     { 1 * KIB, "100", false }, { 100 * KIB, "1", false },
	{ 100 * KIB, "100", false }, { 10 * MIB, "1", true },	{ 10 * MIB, "100", true },
};

/* Incompressible and not all zeroes, which a file system could keep as a hole. */
static int make_file(const char *path, size_t size)
{
	FILE *f = fopen(path, "w");
	uint32_t word = 1;

	if (!f)
		return -1;
	for (size_t at = 0; at < size; at += sizeof(word)) {
		word = word * 1664525 + 1013904223;
		if (fwrite(&word, sizeof(word), 1, f) != 1)
			break;
	}
	return (ferror(f) | fclose(f)) ? -1 : 0;
}

/* The number after `label` in wrk's report, scaled from its binary K, M, G; negative: not there. */
static double field(const char *report, const char *label)
{
	const char *at = strstr(report, label);
	double value;
	char *end;

	if (!at)
		return -1;
	value = strtod(at + strlen(label), &end);
	switch (*end) {
	case 'K': return value * (double)KIB;
	case 'M': return value * (double)MIB;
	case 'G': return value * (double)(1024 * MIB);
	default: return value;
	}
}

/*
 * One second of wrk. With 100 clients of 10 MiB a slow sandbox may not finish a request, so that
 * wrk's timeouts are no failure; broken connections and answers other than 200 are.
 */
static void run_wrk(const char *row, const struct load *load, uint16_t port)
{
	char url[64], out[4096];
	char *const argv[] = { "wrk", "-t1", "-c", load->connections, "-d1s", url, NULL };
	double value, requests = 0;
	const char *total;
	int code;

	snprintf(url, sizeof(url), "http://127.0.0.1:%u/file", port);
	bench_begin(row);
	code = program_run(argv, -1, STDOUT_FILENO, out, sizeof(out));
	total = strstr(out, " requests in ");
	while (total && total > out && total[-1] != '\n')
		total--;
	if (total)
		requests = strtod(total, NULL);
	value = load->bandwidth ? field(out, "Transfer/sec:") / (double)MIB
				: field(out, "Requests/sec:");
	if (code || value <= 0 || strstr(out, "Non-2xx") ||
	    (strstr(out, "Socket errors") && !strstr(out, "connect 0, read 0, write 0"))) {
		errno = 0;
		bench_fail(row, "wrk ended with %d; requests: %.0f, value: %.1f", code, requests,
			   value);
		return;
	}
	bench_end(row, value, (uint64_t)requests);
}

/* The start of nginx with its first answer, and wrk's own start, are the warm-up. */
static void benchmark(const struct bench_row *row)
{
	const struct load *load = &loads[row->arg];
	struct scratch scratch;
	struct server server;
	uint16_t port;

	if (!program_found(row->name, "nginx", "nginx-light") ||
	    !program_found(row->name, "wrk", "wrk") || scratch_make(&scratch, row->name, "tmpfs"))
		return;
	if (make_file(scratch_path(&scratch, "file"), load->file_size)) {
		bench_fail(row->name, "cannot write %s", scratch.path);
	} else if (server_start_nginx(row->name, scratch.root, &port, &server) == 0) {
		run_wrk(row->name, load, port);
		server_stop(&server);
	}
	scratch_remove(&scratch);
}

static const struct bench_row rows[] = {
	{ "nginx_1K_1c", benchmark, 0 },   { "nginx_1K_100c", benchmark, 1 },
	{ "nginx_100K_1c", benchmark, 2 }, { "nginx_100K_100c", benchmark, 3 },
	{ "nginx_10M_1c", benchmark, 4 },  { "nginx_10M_100c", benchmark, 5 },
};
BENCH_GROUP(nginx, rows);
