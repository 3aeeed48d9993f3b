/* Runs a program, found along PATH, to its end, and keeps what it said. */
#ifndef BENCH_GUEST_CAPTURE_H
#define BENCH_GUEST_CAPTURE_H

#include <stddef.h>

/*
 * What the program writes to its descriptor `fd` (1 or 2) goes to text, NUL-terminated; more than
 * size - 1 bytes are read and dropped. Its other output, of 1 and 2, goes to /dev/null, and its
 * input comes from there: the guest's own are the driver's. The exit status (0 to 255), 128 + n
 * when a signal n ended it, or -errno: -ENOENT when there is no such program.
 */
int capture(char *const argv[], int fd, char *text, size_t size);

#endif
