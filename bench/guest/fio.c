/*
 * Bandwidth of Debian's fio, as published figures are given: sequential reads and writes of one
 * file by one job, in a folder on each kind of mount (--dir tmpfs, overlay_memory, overlay_disk,
 * bind).
 *
 * How it is run, and why so:
 *   --ioengine=sync             one read(2) or write(2) a block
 *   --thread                    the job is a thread of fio's process: no fork in the measured time
 *   --fallocate=none            a write allocates what it writes, as it does for most programs
 *   --invalidate=0              no posix_fadvise(DONTNEED): what is read is in the page cache
 *   --clocksource=clock_gettime no calibration of the cycle counter (80 ms of start-up), and no
 *                               second clock that a sandbox may see otherwise than the host
 *   --gtod_reduce=1, --scramble_buffers=0
 *                               a block's cost is the call's, not fio's statistics and buffer
 * filling
 *   --eta=never                 no progress thread's output, terminal or not
 * The value is io_bytes / runtime from its JSON, where runtime has a resolution of 1 ms: each row
 * transfers enough for 100 ms or so. Files that are read are written in the set-up, and are read
 * again from their start where io_size is more than their size.
 */
#include "bench/guest/program.h"
#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTPUT_SIZE (64 * KIB)
#define FILE_MIB 128UL

static const struct shape {
	bool reads;
	unsigned kib; /* a block's size */
	unsigned mib; /* what is transferred; more than the file's size: it is read again */
} shapes[] = {
	{ false, 4, 48 }, { false, 64, 128 }, { false, 1024, 256 },
	{ true, 4, 96 },  { true, 64, 512 },  { true, 1024, 768 },
};
static const char *const dirs[] = { "tmpfs", "overlay_memory", "overlay_disk", "bind" };

/* arg: which folder, which shape. */
#define ARG(dir, shape) ((dir)*16 + (shape))
#define ROWS(dir, name)                                                                            \
	{ "fio_" name "_write_4K", run_fio, ARG(dir, 0) },                                         \
		{ "fio_" name "_write_64K", run_fio, ARG(dir, 1) },                                \
		{ "fio_" name "_write_1M", run_fio, ARG(dir, 2) },                                 \
		{ "fio_" name "_read_4K", run_fio, ARG(dir, 3) },                                  \
		{ "fio_" name "_read_64K", run_fio, ARG(dir, 4) },                                 \
	{                                                                                          \
		"fio_" name "_read_1M", run_fio, ARG(dir, 5)                                       \
	}

/* The number of "key" : N that comes next in *text, which moves past it; negative: there is none.
 */
static double next_number(const char **text, const char *key)
{
	double value;
	char *end;

	*text = strstr(*text, key);
	if (!*text)
		return -1;
	*text += strlen(key);
	*text += strspn(*text, " \t\n:");
	value = strtod(*text, &end);
	return end == *text ? -1 : value;
}

/*
 * MB/s of the only job's reads or writes. Each job is an object with "error", then the objects
 * "read", "write" and "trim", whose keys stand in the order that fio writes them. Negative when
 * the text is something else, or not all was transferred.
 */
static double parse_bandwidth(const char *json, const struct shape *shape)
{
	const char *at = strstr(json, "\"jobs\"");
	double bytes, ms;

	if (!at || next_number(&at, "\"error\"") != 0)
		return -1;
	at = strstr(at, shape->reads ? "\"read\" : {" : "\"write\" : {");
	if (!at)
		return -1;
	bytes = next_number(&at, "\"io_bytes\"");
	ms = at ? next_number(&at, "\"runtime\"") : -1;
	if (bytes != (double)shape->mib * (double)MIB || ms <= 0)
		return -1;
	return bytes / ms / 1000;
}

/* Runs fio on `path`; its exit code as program_run() has it. */
static int fio(const char *path, const struct shape *shape, char *json)
{
	unsigned long size = shape->reads ? FILE_MIB : shape->mib;
	char file[PATH_MAX + 16], bs[32], sizes[32], io_size[32];
	char *argv[] = {
		(char *)"fio",
		(char *)"--name=bench",
		file,
		bs,
		sizes,
		io_size,
		(char *)(shape->reads ? "--rw=read" : "--rw=write"),
		(char *)"--ioengine=sync",
		(char *)"--thread",
		(char *)"--fallocate=none",
		(char *)"--invalidate=0",
		(char *)"--clocksource=clock_gettime",
		(char *)"--gtod_reduce=1",
		(char *)"--scramble_buffers=0",
		(char *)"--eta=never",
		(char *)"--output-format=json",
		NULL,
	};

	snprintf(file, sizeof(file), "--filename=%s", path);
	snprintf(bs, sizeof(bs), "--bs=%uk", shape->kib);
	snprintf(sizes, sizeof(sizes), "--size=%luM", size);
	snprintf(io_size, sizeof(io_size), "--io_size=%uM", shape->mib);
	return program_run(argv, -1, STDOUT_FILENO, json, OUTPUT_SIZE);
}

/* fio is there, and the row's file when it is to be read. False: the row is over. */
static bool prepare(const char *row, struct scratch *s, const struct shape *shape)
{
	int fd;

	if (!program_found(row, "fio", "fio"))
		return false;
	if (!shape->reads)
		return true;
	fd = scratch_file(s, "file", FILE_MIB * MIB);
	if (fd < 0)
		bench_fail(row, "writing %s", s->path);
	close(fd);
	return fd >= 0;
}

/* One run of fio a row: the driver's rounds repeat it. */
static void run_fio(const struct bench_row *row)
{
	const struct shape *shape = &shapes[row->arg % 16];
	char *json = malloc(OUTPUT_SIZE);
	struct scratch s;
	double mb_s;
	int rc;

	if (!json || !bench_dir(dirs[row->arg / 16]) ||
	    scratch_make(&s, row->name, dirs[row->arg / 16])) {
		free(json);
		return;
	}
	if (prepare(row->name, &s, shape)) {
		bench_begin(row->name);
		rc = fio(scratch_path(&s, "file"), shape, json);
		mb_s = rc ? -1 : parse_bandwidth(json, shape);
		if (mb_s < 0)
			bench_fail(row->name, "fio ended with %d: %.*s", rc,
				   (int)strcspn(json, "\n"), json);
		else
			bench_end(row->name, mb_s, shape->mib * KIB / shape->kib);
	}
	scratch_remove(&s);
	free(json);
}

static const struct bench_row rows[] = {
	ROWS(0, "tmpfs"),
	ROWS(1, "overlay_memory"),
	ROWS(2, "overlay_disk"),
	ROWS(3, "bind"),
};
BENCH_GROUP(fio, rows);
