/*
 * `--compare OLD.json`: what changed since an older run of the same rows.
 *
 * Machines differ from day to day, so what is compared is not times but each round's ratio to the
 * native run beside it. A row is flagged when Mann and Whitney's test, after Holm's correction over
 * all rows and runtimes compared, rejects at 1 % that both come from one distribution, and the
 * change is at least 3 %; otherwise `~` stands there, as Go's benchstat prints it. What changes
 * slower than a run lasts (neighbours on a shared machine) looks like a change of the program all
 * the same; to be sure, run the older build as a peer, whose rounds are interleaved.
 */
#ifndef BENCH_DRIVER_COMPARE_H
#define BENCH_DRIVER_COMPARE_H

#include "bench/driver/json.h"
#include "bench/driver/results.h"
#include <stdio.h>

void compare_print(const struct results *r, const struct json_run *old, const char *old_path,
		   FILE *out);

#endif
