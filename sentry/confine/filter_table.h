/*
 * sentry/confine/filter_table.h: the rows of the sentry's allowlist, for the program that
 * compiles it into BPF when minisentry is built (filter_gen.c) and for those who show it.
 */
#ifndef MINISENTRY_SENTRY_CONFINE_FILTER_TABLE_H
#define MINISENTRY_SENTRY_CONFINE_FILTER_TABLE_H

#include "sentry/confine/confine.h"

enum filter_condition {
	ANY,
	NO_EXEC,     /* mmap, mprotect: never PROT_EXEC in argument 2 */
	NO_FOLLOW,   /* openat: O_NOFOLLOW always, so a name is one component or fails on links */
	THREAD_ONLY, /* clone: CLONE_THREAD, never a new process */
	TTY_ONLY,    /* ioctl: the few requests on terminals and host descriptors */
	PTRACE_ONLY, /* only with the ptrace platform */
	PRCTL_NAME,  /* prctl: thread names */
};

struct filter_row {
	struct confine_rule rule;
	enum filter_condition condition;
};

/* Returns the count. */
size_t filter_table(const struct filter_row **ret);

#endif
