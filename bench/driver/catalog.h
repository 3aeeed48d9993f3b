/*
 * What can be measured: suites, the groups of rows that one guest process measures together, and
 * the rows with their units. bench/guest has the workloads; test/programs/bench checks that both
 * sides name the same rows.
 */
#ifndef BENCH_DRIVER_CATALOG_H
#define BENCH_DRIVER_CATALOG_H

#include <stdbool.h>
#include <stddef.h>

struct suite {
	const char *name;
	const char *text; /* one line for --list and the report */
};

enum group_kind {
	GROUP_GUEST,  /* a group of minisentry-bench-guest */
	GROUP_SCRIPT, /* a script beside it, run by an interpreter */
	GROUP_IDLE, /* starts something and rests: startup time and idle memory, taken by the driver
		     */
	GROUP_TRUE, /* /bin/true, from spawning the runtime to its end */
};

/* Where a group's files go, besides /dev/shm; minisentry gets the options that make it so. */
enum group_place { PLACE_TMPFS, PLACE_OVERLAY_MEMORY, PLACE_OVERLAY_DISK, PLACE_BIND };

struct group {
	const char *name; /* what the user may ask for */
	int suite;	  /* index into suites */
	enum group_kind kind;
	const char *guest; /* GROUP_GUEST: the guest's group, if it has another name */
	const char *interpreter,
		*script; /* GROUP_SCRIPT: an absolute path, a file beside the guest */
	enum group_place place;
};

enum row_flag {
	ROW_HIGHER = 1, /* a bandwidth: more is better */
	ROW_GROWTH = 2, /* its memory growth is what people look at */
	ROW_COUNT = 4,	/* faults or bytes: not a time, not in the geometric mean */
	ROW_VALUE = 8,	/* comes with another row's phase: no CPU time or growth of its own */
};

struct row {
	const char *name;
	int group;	  /* index into groups */
	const char *unit; /* "us", "MB/s" */
	unsigned flags;
	double goal; /* of FIGURES.md, x native: at most (at least, for ROW_HIGHER); 0: none */
};

extern const struct suite suites[];
extern const struct group groups[];
extern const struct row rows[];
extern const size_t suite_count, group_count, row_count;

static inline int row_suite(const struct row *row)
{
	return groups[row->group].suite;
}

#endif
