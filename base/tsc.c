#include "base/tsc.h"
#include "base/host_sync.h"

#include <time.h>

/* The first instant on both clocks: the longer ago, the better the ratio. */
static u64 base_tsc, base_ns;

static void __attribute__((constructor)) remember_start(void)
{
	base_ns = host_clock_ns(CLOCK_MONOTONIC);
	base_tsc = tsc_now();
}

u64 tsc_to_ns(u64 ticks)
{
	u64 d_tsc = tsc_now() - base_tsc, d_ns = host_clock_ns(CLOCK_MONOTONIC) - base_ns;

	return d_tsc ? (u64)((unsigned __int128)ticks * d_ns / d_tsc) : 0;
}

u64 tsc_from_ns(u64 ns)
{
	u64 d_tsc = tsc_now() - base_tsc, d_ns = host_clock_ns(CLOCK_MONOTONIC) - base_ns;

	return d_ns ? (u64)((unsigned __int128)ns * d_tsc / d_ns) : 0;
}
