/*
 * cli/audit/report.h: what the audit prints: a table for people, a line of JSON for tools.
 */
#ifndef MINISENTRY_CLI_AUDIT_REPORT_H
#define MINISENTRY_CLI_AUDIT_REPORT_H

#include "cli/audit/expect.h"
#include <stdio.h>

/* colour: findings are red. Returns the number of findings. */
size_t report_text(FILE *out, bool colour, const struct audit_snapshot *s,
		   const struct audit_tables *tables);
size_t report_json(FILE *out, enum platform_kind platform, int exit_code,
		   const struct audit_snapshot *s, const struct audit_tables *tables);
/* What happened between two moments: a block of lines, findings in red. */
void report_live(FILE *out, bool colour, const struct audit_snapshot *before,
		 const struct audit_snapshot *now, const struct audit_tables *tables);

#endif
