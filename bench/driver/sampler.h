/*
 * How much memory and CPU time a runtime's processes use, read from outside.
 *
 * With a cgroup (v1 or v2, made when the session has the rights): every process that the runtime
 * starts counts, dead ones too. Memory is what cannot be reclaimed: usage without page cache other
 * than shmem, and without reclaimable slab where the kernel tells it (v2). Without one: Pss_Anon of
 * the living processes and the allocated blocks of the memfds they hold, each file once.
 */
#ifndef BENCH_DRIVER_SAMPLER_H
#define BENCH_DRIVER_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>

struct sampler;

/* Never NULL. Describes in `text` what it will do, and why no cgroup if so. */
struct sampler *sampler_new(bool use_cgroup, char *text, size_t size);
/* In a new child, before exec: joins the cgroup, if there is one. */
void sampler_join(const struct sampler *s);
/* CPU time so far, in ns, and non-reclaimable memory now, in bytes; NAN when it cannot be read. */
double sampler_cpu_ns(const struct sampler *s);
double sampler_memory(const struct sampler *s);
/* Kernel memory of the cgroup, in bytes; NAN without one. */
double sampler_kernel_memory(const struct sampler *s);
void sampler_free(struct sampler *s);

#endif
