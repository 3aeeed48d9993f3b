#include "cli/audit/expect.h"
#include "platform/stub_calls.h"
#include "sentry/confine/confine.h"
#include "sentry/sys/strace.h"
#include <asm/unistd.h>
#include <stdlib.h>
#include <string.h>

/* The table that holds a role: a stub's beginnings still have their creator's. */
static const struct {
	const char *name;
	bool confined;
	enum stub_role stub; /* from AUDIT_ZYGOTE on */
} role_info[AUDIT_ROLES] = {
	[AUDIT_SENTRY_START] = { "sentry (start-up)", false, 0 },
	[AUDIT_SENTRY] = { "sentry", true, 0 },
	[AUDIT_ZYGOTE_START] = { "zygote (start-up)", false, 0 },
	[AUDIT_ZYGOTE] = { "zygote", true, STUB_ZYGOTE },
	[AUDIT_STUB_START] = { "stub: new process", true, STUB_ZYGOTE },
	[AUDIT_MAPPER] = { "stub: mapper", true, STUB_MAPPER },
	[AUDIT_GUEST_START] = { "stub: new thread", true, STUB_MAPPER },
	[AUDIT_GUEST] = { "stub: guest thread", true, STUB_GUEST },
};

const char *audit_role_name(enum audit_role role)
{
	return role_info[role].name;
}

bool audit_role_confined(enum audit_role role)
{
	return role_info[role].confined;
}

const char *audit_finding_text(enum audit_finding_kind kind)
{
	switch (kind) {
	case FINDING_OUTSIDE: return "reached the host, has no row in the table";
	case FINDING_ASTRAY: return "reached the host, from foreign code";
	case FINDING_STOPPED: return "stopped by the filter";
	}
	return "";
}

const char *audit_call_name(int nr)
{
	const char *name;

	if (nr == AUDIT_NR_COMPAT)
		return "32-bit call";
	if (nr == AUDIT_NR_OTHER)
		return "unknown number";
	name = sys_name((u64)nr);
	return name ? name : "?";
}

enum platform_kind audit_platform(enum platform_kind asked, const struct audit_snapshot *s)
{
	if (asked != PLATFORM_AUTO)
		return asked;
	return s->stats[AUDIT_SENTRY][__NR_ptrace].count ? PLATFORM_PTRACE : PLATFORM_SECCOMP;
}

static bool listed(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; p && *p; p += strcspn(p, ","), p += *p == ',')
		if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
			return true;
	return false;
}

void audit_tables_make(enum platform_kind kind, struct audit_tables *ret)
{
	const char *without = getenv("MINISENTRY_AUDIT_WITHOUT");
	const struct confine_rule *rules;
	size_t count = confine_filter_rules(&rules);

	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < count; i++)
		if (rules[i].nr != __NR_ptrace || kind == PLATFORM_PTRACE)
			ret->allowed[AUDIT_SENTRY][rules[i].nr] = true;
	for (int role = AUDIT_ZYGOTE; role < AUDIT_ROLES; role++)
		for (int nr = 0; nr < AUDIT_NR_COMPAT; nr++)
			ret->allowed[role][nr] =
				platform_stub_may_call(kind, role_info[role].stub, nr);
	for (int nr = 0; without && nr < AUDIT_NR_COMPAT; nr++)
		if (listed(without, audit_call_name(nr)))
			for (int role = 0; role < AUDIT_ROLES; role++)
				ret->allowed[role][nr] = false;
}

/*
 * Is a call that was stopped a finding? A guest thread's is not: whatever the
 * guest tries shows like that (SYSEMU, a trap). The sentry's clone3 is refused on purpose.
 */
static bool stopped_matters(enum audit_role role, int nr)
{
	if (role == AUDIT_GUEST || role == AUDIT_GUEST_START)
		return false;
	return role != AUDIT_SENTRY || nr != __NR_clone3;
}

size_t audit_findings(const struct audit_snapshot *s, const struct audit_tables *tables,
		      struct audit_finding *ret, size_t max)
{
	size_t count = 0;

	for (int role = 0; role < AUDIT_ROLES; role++) {
		if (!audit_role_confined(role))
			continue;
		for (int nr = 0; nr < AUDIT_NRS; nr++) {
			const struct audit_stat *stat = &s->stats[role][nr];
			const struct audit_finding found[] = {
				{ role, nr, FINDING_OUTSIDE,
				  tables->allowed[role][nr] ? 0 : stat->count },
				{ role, nr, FINDING_ASTRAY, stat->astray },
				{ role, nr, FINDING_STOPPED,
				  stopped_matters(role, nr) ? stat->blocked : 0 },
			};

			for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
				if (found[i].count == 0)
					continue;
				if (count < max)
					ret[count] = found[i];
				count++;
			}
		}
	}
	return count;
}
