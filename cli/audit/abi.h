/*
 * cli/audit/abi.h: what the audit's BPF programs (audit.bpf.c) and the command share.
 *
 * A thread of the sandbox has a role; roles move forward only:
 *
 *	sentry:  SENTRY_START -> SENTRY           (the process's filter is loaded)
 *	zygote:  ZYGOTE_START -> ZYGOTE           (its filter is loaded)
 *	stub:    STUB_START -> MAPPER             (first call from the mapper's code)
 *	         GUEST_START -> GUEST             (user dispatch is on, or its filter is loaded)
 *
 * A STUB_START thread runs the zygote's code under the zygote's rows, a GUEST_START
 * thread the mapper's. Included by BPF C too: no headers, plain types.
 */
#ifndef MINISENTRY_CLI_AUDIT_ABI_H
#define MINISENTRY_CLI_AUDIT_ABI_H

enum audit_role {
	AUDIT_SENTRY_START,
	AUDIT_SENTRY,
	AUDIT_ZYGOTE_START,
	AUDIT_ZYGOTE,
	AUDIT_STUB_START,
	AUDIT_MAPPER,
	AUDIT_GUEST_START,
	AUDIT_GUEST,
	AUDIT_ROLES,
};

#define AUDIT_NRS 512
/* Rows that are no number of the x86-64 table. */
#define AUDIT_NR_COMPAT (AUDIT_NRS - 2) /* a 32-bit entry: int 0x80, sysenter */
#define AUDIT_NR_OTHER (AUDIT_NRS - 1)	/* out of range, x32 */

struct audit_stat {
	unsigned long long count;   /* calls that reached the host */
	unsigned long long errors;  /* of these, returned -errno */
	unsigned long long time_ns; /* of these, from entry to exit */
	unsigned long long blocked; /* exits without an entry: stopped by a filter or SYSEMU */
	unsigned long long
		astray; /* of count, from an address outside the code that this role runs */
};

struct audit_role_stat {
	unsigned long long threads; /* that began in this role */
	unsigned long long user_faults,
		kernel_faults; /* host page faults, by where the access stood */
};

enum audit_call_state { AUDIT_IDLE, AUDIT_IN_CALL, AUDIT_BORN };

/* Task-private; created for the sentry by the command, for the others when they are forked. */
struct audit_thread {
	unsigned int role;
	unsigned int call_state;
	unsigned int call_role; /* the rest: of the call that it is in */
	unsigned int call_nr;
	unsigned int confines; /* it confines the caller, if it succeeds */
	unsigned int pad;
	unsigned long long start_ns;
};

#endif
