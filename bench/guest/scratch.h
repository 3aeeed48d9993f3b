/*
 * A folder of a row's own, in one of the folders that the driver gave (--dir NAME=PATH).
 *
 *     struct scratch s;
 *     if (scratch_make(&s, row, "tmpfs"))
 *             return;
 *     fd = open(scratch_path(&s, "file"), ...);   // row's work
 *     scratch_remove(&s);                         // with all that is in it
 */
#ifndef BENCH_GUEST_SCRATCH_H
#define BENCH_GUEST_SCRATCH_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct scratch {
	char root[PATH_MAX / 2];
	char path[PATH_MAX]; /* what scratch_path returned last */
};

/* The folder of --dir NAME; /dev/shm for `tmpfs` when it was not given; or else NULL. */
const char *scratch_base(const char *name);
/* Makes the folder in scratch_base(name). 0, or -1: then the row has failed (reported here). */
int scratch_make(struct scratch *s, const char *row, const char *name);
/* The path of `name` in it; borrowed, until the next call. */
const char *scratch_path(struct scratch *s, const char *name);
/* A new file for reading and writing, with `size` bytes written to it; -1 with errno. */
int scratch_file(struct scratch *s, const char *name, size_t size);
/* stat(2) of a path, n times: for bench_loop. */
int scratch_stat(void *path, uint64_t n);
/* Removes the folder and what is in it, also after a row that failed half-way. */
void scratch_remove(struct scratch *s);

#endif
