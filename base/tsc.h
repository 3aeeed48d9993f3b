/*
 * base/tsc.h: the time-stamp counter, for intervals that are measured too often
 * for a clock. It counts at one rate on all CPUs (constant_tsc); where a host
 * has only a poor one, intervals are wrong and nothing else is.
 */
#ifndef MINISENTRY_BASE_TSC_H
#define MINISENTRY_BASE_TSC_H

#include "base/types.h"

static inline u64 tsc_now(void)
{
	return __builtin_ia32_rdtsc();
}

/* Ticks as nanoseconds and back, by the rate since the program's start. */
u64 tsc_to_ns(u64 ticks);
u64 tsc_from_ns(u64 ns);

#endif
