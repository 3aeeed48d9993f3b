/*
 * platform/clock.h: how long a context's guest code and the sentry's service for
 * it take.
 *
 * Reading the TSC costs as much as handing over (a hypervisor may offset it), so
 * short calls do without: a stop that comes within the first rounds of a spin is
 * dated by counting them, and while service is brief the counter is read at one
 * switch in several, which divides the time since the last reading.
 */
#ifndef MINISENTRY_PLATFORM_CLOCK_H
#define MINISENTRY_PLATFORM_CLOCK_H

#include "base/tsc.h"
#include <stdatomic.h>

#define CLOCK_SKIP 7

/* Owner thread only, but for the atomics; ticks of the TSC. */
struct context_clock {
	u64 anchor;	   /* when the counter was last read */
	u64 guest;	   /* in guest code since then, by rounds of spinning */
	u32 unread;	   /* switches since then */
	bool brief;	   /* service takes less than brief_limit */
	u64 service;	   /* moving average: from a stop to the next switch */
	u64 served;	   /* in all, from stops to switches */
	_Atomic u64 wall;  /* in all, in guest code */
	_Atomic u64 since; /* about when it entered guest code; 0: it is not there */
};

static inline void clock_add_wall(struct context_clock *c, u64 ticks)
{
	atomic_store_explicit(&c->wall,
			      atomic_load_explicit(&c->wall, memory_order_relaxed) + ticks,
			      memory_order_relaxed);
}

/* Looks at the counter and divides what has passed. limit: a cap for the average. */
static inline void clock_read(struct context_clock *c, u64 limit)
{
	u64 now = tsc_now(), elapsed = c->anchor ? now - c->anchor : 0;
	u64 guest = c->guest < elapsed ? c->guest : elapsed, service;

	clock_add_wall(c, guest);
	c->served += elapsed - guest;
	service = (elapsed - guest) / (c->unread + 1);
	c->service = (c->service * 3 + (service < 4 * limit ? service : 4 * limit)) / 4;
	c->brief = service < limit / 8;
	c->anchor = now;
	c->guest = c->unread = 0;
}

/* Guest code is about to run. */
static inline void clock_enter(struct context_clock *c, u64 limit)
{
	if (c->brief && c->unread < CLOCK_SKIP)
		c->unread++;
	else
		clock_read(c, limit);
	atomic_store_explicit(&c->since, c->anchor, memory_order_relaxed);
}

/* The owner sleeps, and does so no longer: that is nobody's time. */
static inline void clock_pause(struct context_clock *c, u64 limit)
{
	clock_read(c, limit);
	c->brief = false;
}

static inline void clock_resume(struct context_clock *c)
{
	if (c->anchor)
		c->anchor = tsc_now();
}

/* It has stopped, after so many ticks. */
static inline void clock_stop_after(struct context_clock *c, u64 ticks)
{
	c->guest += ticks;
	atomic_store_explicit(&c->since, 0, memory_order_relaxed);
}

/* It has stopped just now. Returns the ticks that it ran. */
static inline u64 clock_stop(struct context_clock *c)
{
	u64 now = tsc_now(), elapsed = now - c->anchor, service = c->unread * c->service;

	if (service > elapsed)
		service = elapsed;
	clock_add_wall(c, elapsed - service);
	c->served += service;
	c->anchor = now;
	c->guest = c->unread = 0;
	c->brief = false;
	atomic_store_explicit(&c->since, 0, memory_order_relaxed);
	return elapsed - service;
}

#endif
