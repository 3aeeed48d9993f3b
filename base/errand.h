/*
 * base/errand.h: work that another thread does if it comes to it. Who asked for it goes on
 * meanwhile, and may take it back until it has begun: the other thread may get no CPU.
 */
#ifndef MINISENTRY_BASE_ERRAND_H
#define MINISENTRY_BASE_ERRAND_H

struct errand;

/* fn(arg) in a worker (host_thread.h), on another CPU than the caller's. NULL: there is none, no
 * thread or no memory; or threads that were asked before have got no CPU yet. */
struct errand *errand_begin(void (*fn)(void *arg), void *arg);
/* fn has returned, or will never be called. e may be NULL. */
void errand_end(struct errand *e);

#endif
