/* The processes below one of ours, and what /proc says of them. */
#ifndef BENCH_DRIVER_PROCTREE_H
#define BENCH_DRIVER_PROCTREE_H

#include <stddef.h>
#include <sys/types.h>

struct proctree {
	pid_t *pids;
	size_t count;
};

/* The descendants of this process; free with proctree_free. */
struct proctree proctree_take(void);
void proctree_free(struct proctree *t);

/* Kills every descendant and reaps them all; orphans come to us (PR_SET_CHILD_SUBREAPER). */
void proctree_kill(void);

/*
 * CPU time of the processes and of their reaped children, in ns: exact for the living, in steps of
 * the kernel's clock tick for the reaped (proc_pid_stat(5)).
 */
double proctree_cpu_ns(const struct proctree *t);

struct proctree_memory {
	double pss; /* bytes, sum over the processes (smaps_rollup) */
	double pss_anon;
	double memfile; /* allocated blocks of the memfds they hold, each file once */
};

struct proctree_memory proctree_memory(const struct proctree *t);

#endif
