/*
 * cli/audit/collect.h: the audit's BPF programs in the kernel: loading them,
 * pointing them at a sandbox, reading what they counted.
 *
 * audit_collect_start() once per process, while the sentry waits at its start;
 * audit_collect_read() from any thread, any number of times; audit_collect_stop().
 */
#ifndef MINISENTRY_CLI_AUDIT_COLLECT_H
#define MINISENTRY_CLI_AUDIT_COLLECT_H

#include "base/types.h"
#include "cli/audit/abi.h"
#include <sys/types.h>

/* What was counted up to a moment. */
struct audit_snapshot {
	struct audit_stat stats[AUDIT_ROLES][AUDIT_NRS];
	struct audit_role_stat roles[AUDIT_ROLES];
	u64 lost;	    /* threads that could not be followed: the audit has a hole */
	bool sentry_killed; /* by its own filter */
	u64 elapsed_ns;
};

/* Can BPF programs be loaded by this process? 0, or -errno with one line in reason. */
int audit_probe(char *reason, size_t reason_size);
/* Loads, attaches, follows the process `sentry` (a child of ours). 0 or -errno with reason. */
int audit_collect_start(pid_t sentry, char *reason, size_t reason_size);
int audit_collect_read(struct audit_snapshot *ret);
void audit_collect_stop(void);

#endif
