#include "bench/guest/groups.h"

static const struct bench_row rows[] = {};
BENCH_GROUP(ipc, rows);
