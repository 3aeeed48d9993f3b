/*
 * cli/audit/expect.h: what each role may call, from the same tables that the
 * filters are made of, and what was counted that they do not have.
 */
#ifndef MINISENTRY_CLI_AUDIT_EXPECT_H
#define MINISENTRY_CLI_AUDIT_EXPECT_H

#include "cli/audit/collect.h"
#include "platform/platform.h"

struct audit_tables {
	bool allowed[AUDIT_ROLES][AUDIT_NRS];
};

enum audit_finding_kind {
	FINDING_OUTSIDE, /* reached the host, and the role's table has no row for it */
	FINDING_ASTRAY,	 /* reached the host, from code that is not the role's */
	FINDING_STOPPED, /* a filter stopped it: nothing happened, but nothing should have tried */
};

struct audit_finding {
	enum audit_role role;
	int nr; /* or AUDIT_NR_COMPAT, AUDIT_NR_OTHER */
	enum audit_finding_kind kind;
	u64 count;
};

const char *audit_role_name(enum audit_role role);
const char *audit_finding_text(enum audit_finding_kind kind);
/* False before its filter is loaded: such calls are start-up, and no table is for them. */
bool audit_role_confined(enum audit_role role);
/* AUTO resolved by what the sentry did. */
enum platform_kind audit_platform(enum platform_kind asked, const struct audit_snapshot *s);
/* "futex", or "32-bit call", "unknown number" for the special rows. */
const char *audit_call_name(int nr);

/*
 * The tables of that platform on this host. A comma-separated list of names in the
 * environment's MINISENTRY_AUDIT_WITHOUT is taken out: a hook for the test that
 * shows that a missing row is noticed.
 */
void audit_tables_make(enum platform_kind kind, struct audit_tables *ret);
/* At most max findings to ret; returns how many there are. */
size_t audit_findings(const struct audit_snapshot *s, const struct audit_tables *tables,
		      struct audit_finding *ret, size_t max);

#endif
