#include "cli/audit/report.h"
#include <stdlib.h>
#include <string.h>

#define FINDINGS_MAX 256
#define RED "\033[1;31m"
#define PLAIN "\033[0m"

struct totals {
	unsigned long long confined, start_up, intercepted, user_faults,
		kernel_faults; /* for %llu */
};

static struct totals totals_of(const struct audit_snapshot *s)
{
	struct totals t = { 0 };

	for (int role = 0; role < AUDIT_ROLES; role++) {
		for (int nr = 0; nr < AUDIT_NRS; nr++) {
			const struct audit_stat *stat = &s->stats[role][nr];

			*(audit_role_confined(role) ? &t.confined : &t.start_up) += stat->count;
			if (role == AUDIT_GUEST || role == AUDIT_GUEST_START)
				t.intercepted += stat->blocked;
		}
		t.user_faults += s->roles[role].user_faults;
		t.kernel_faults += s->roles[role].kernel_faults;
	}
	return t;
}

static bool has_finding(const struct audit_finding *f, size_t count, int role, int nr)
{
	for (size_t i = 0; i < MIN(count, FINDINGS_MAX); i++)
		if ((int)f[i].role == role && f[i].nr == nr)
			return true;
	return false;
}

static unsigned long long outside_of(const struct audit_finding *f, size_t count)
{
	unsigned long long sum = 0;

	for (size_t i = 0; i < MIN(count, FINDINGS_MAX); i++)
		sum += f[i].count;
	return sum;
}

/* ---- the table ---- */

struct call_row {
	int nr;
	const struct audit_stat *stat;
};

/* Most frequent first, then by number. */
static int by_count(const void *a, const void *b)
{
	const struct call_row *x = a, *y = b;

	if (x->stat->count != y->stat->count)
		return x->stat->count < y->stat->count ? 1 : -1;
	return x->nr - y->nr;
}

static size_t rows_of(const struct audit_snapshot *s, int role, struct call_row *ret)
{
	size_t count = 0;

	for (int nr = 0; nr < AUDIT_NRS; nr++) {
		const struct audit_stat *stat = &s->stats[role][nr];
		bool intercepted = role == AUDIT_GUEST || role == AUDIT_GUEST_START;

		if (stat->count || (stat->blocked && !intercepted))
			ret[count++] = (struct call_row){ nr, stat };
	}
	qsort(ret, count, sizeof(*ret), by_count);
	return count;
}

static void print_row(FILE *out, const char *role, const struct call_row *row, bool red)
{
	const struct audit_stat *s = row->stat;

	fprintf(out, "%s%-19s %-24s %10llu %9llu %12.3f %10.1f %9llu%s\n", red ? RED : "", role,
		audit_call_name(row->nr), s->count, s->errors, (double)s->time_ns / 1e6,
		s->count ? (double)s->time_ns / 1e3 / (double)s->count : 0.0, s->blocked,
		red ? PLAIN : "");
}

static void print_findings(FILE *out, bool colour, const struct audit_snapshot *s,
			   const struct audit_finding *f, size_t count)
{
	const char *red = colour ? RED : "", *plain = colour ? PLAIN : "";

	if (count || s->sentry_killed || s->lost)
		fprintf(out, "\n%soutside the tables:%s\n", red, plain);
	for (size_t i = 0; i < MIN(count, FINDINGS_MAX); i++)
		fprintf(out, "%s  %-19s %-24s %10llu  %s%s\n", red, audit_role_name(f[i].role),
			audit_call_name(f[i].nr), (unsigned long long)f[i].count,
			audit_finding_text(f[i].kind), plain);
	if (s->sentry_killed)
		fprintf(out, "%s  the sentry was killed by its filter%s\n", red, plain);
	if (s->lost)
		fprintf(out,
			"%s  %llu threads could not be followed: this audit is not complete%s\n",
			red, (unsigned long long)s->lost, plain);
}

size_t report_text(FILE *out, bool colour, const struct audit_snapshot *s,
		   const struct audit_tables *tables)
{
	struct audit_finding findings[FINDINGS_MAX];
	size_t count = audit_findings(s, tables, findings, FINDINGS_MAX);
	struct call_row rows[AUDIT_NRS];
	struct totals t = totals_of(s);
	unsigned long long outside = outside_of(findings, count);

	fprintf(out, "\n%s%llu host system calls, %llu outside the tables%s\n",
		colour && outside ? RED : "", t.confined, outside, colour && outside ? PLAIN : "");
	fprintf(out,
		"and %llu before confinement; %llu host page faults; %llu system calls of the "
		"guest stopped at the host's door\n\n",
		t.start_up, t.user_faults + t.kernel_faults, t.intercepted);
	fprintf(out, "%-19s %-24s %10s %9s %12s %10s %9s\n", "role", "call", "count", "errors",
		"total ms", "avg us", "stopped");
	for (int role = 0; role < AUDIT_ROLES; role++) {
		size_t n = rows_of(s, role, rows);

		for (size_t i = 0; i < n; i++)
			print_row(out, audit_role_name(role), &rows[i],
				  colour && has_finding(findings, count, role, rows[i].nr));
	}
	fprintf(out, "\n%-19s %10s %18s %18s\n", "role", "threads", "faults (user)",
		"faults (kernel)");
	for (int role = 0; role < AUDIT_ROLES; role++) {
		const struct audit_role_stat *r = &s->roles[role];

		fprintf(out, "%-19s %10llu %18llu %18llu\n", audit_role_name(role), r->threads,
			r->user_faults, r->kernel_faults);
	}
	print_findings(out, colour, s, findings, count);
	fflush(out);
	return count;
}

/* ---- live ---- */

static void subtract(const struct audit_snapshot *before, const struct audit_snapshot *now,
		     struct audit_snapshot *ret)
{
	*ret = *now;
	for (int role = 0; role < AUDIT_ROLES; role++) {
		for (int nr = 0; nr < AUDIT_NRS; nr++) {
			const struct audit_stat *b = &before->stats[role][nr];
			struct audit_stat *r = &ret->stats[role][nr];

			r->count -= b->count;
			r->errors -= b->errors;
			r->time_ns -= b->time_ns;
			r->blocked -= b->blocked;
			r->astray -= b->astray;
		}
		ret->roles[role].threads -= before->roles[role].threads;
		ret->roles[role].user_faults -= before->roles[role].user_faults;
		ret->roles[role].kernel_faults -= before->roles[role].kernel_faults;
	}
	ret->elapsed_ns -= before->elapsed_ns;
}

void report_live(FILE *out, bool colour, const struct audit_snapshot *before,
		 const struct audit_snapshot *now, const struct audit_tables *tables)
{
	struct audit_finding findings[FINDINGS_MAX];
	struct audit_snapshot *d = malloc(sizeof(*d));
	struct call_row rows[AUDIT_NRS];
	struct totals t;
	size_t count;

	if (!d)
		return;
	subtract(before, now, d);
	t = totals_of(d);
	count = audit_findings(d, tables, findings, FINDINGS_MAX);
	fprintf(out,
		"-- %.1f s: %llu host system calls, %llu page faults, %llu guest calls stopped\n",
		(double)now->elapsed_ns / 1e9, t.confined + t.start_up,
		t.user_faults + t.kernel_faults, t.intercepted);
	for (int role = 0; role < AUDIT_ROLES; role++) {
		size_t n = rows_of(d, role, rows);

		for (size_t i = 0; i < n; i++)
			print_row(out, audit_role_name(role), &rows[i],
				  colour && has_finding(findings, count, role, rows[i].nr));
	}
	if (count)
		print_findings(out, colour, d, findings, count);
	fflush(out);
	free(d);
}

/* ---- JSON ---- */

static void json_role(FILE *out, const struct audit_snapshot *s, int role,
		      const struct audit_tables *tables)
{
	const struct audit_role_stat *r = &s->roles[role];
	struct call_row rows[AUDIT_NRS];
	bool confined = audit_role_confined(role);
	size_t n = rows_of(s, role, rows);
	unsigned long long stopped = 0;

	for (int nr = 0; nr < AUDIT_NRS; nr++)
		stopped += s->stats[role][nr].blocked;
	fprintf(out,
		"{\"role\":\"%s\",\"confined\":%s,\"threads\":%llu,\"user_faults\":%llu,"
		"\"kernel_faults\":%llu,\"stopped\":%llu,\"calls\":[",
		audit_role_name(role), confined ? "true" : "false", r->threads, r->user_faults,
		r->kernel_faults, stopped);
	for (size_t i = 0; i < n; i++) {
		const struct audit_stat *c = rows[i].stat;

		fprintf(out,
			"%s{\"name\":\"%s\",\"nr\":%d,\"count\":%llu,\"errors\":%llu,\"time_ns\":%"
			"llu,"
			"\"stopped\":%llu,\"in_table\":%s}",
			i ? "," : "", audit_call_name(rows[i].nr), rows[i].nr, c->count, c->errors,
			c->time_ns, c->blocked,
			!confined			    ? "null"
			: tables->allowed[role][rows[i].nr] ? "true"
							    : "false");
	}
	fputs("]}", out);
}

size_t report_json(FILE *out, enum platform_kind platform, int exit_code,
		   const struct audit_snapshot *s, const struct audit_tables *tables)
{
	struct audit_finding f[FINDINGS_MAX];
	size_t count = audit_findings(s, tables, f, FINDINGS_MAX);
	struct totals t = totals_of(s);

	fprintf(out,
		"{\"platform\":\"%s\",\"exit_code\":%d,\"elapsed_ns\":%llu,\"calls\":%llu,"
		"\"start_up_calls\":%llu,\"outside\":%llu,\"guest_calls_stopped\":%llu,"
		"\"user_faults\":%llu,\"kernel_faults\":%llu,\"sentry_killed\":%s,\"lost_threads\":"
		"%llu,"
		"\"roles\":[",
		platform_name(platform), exit_code, (unsigned long long)s->elapsed_ns, t.confined,
		t.start_up, outside_of(f, count), t.intercepted, t.user_faults, t.kernel_faults,
		s->sentry_killed ? "true" : "false", (unsigned long long)s->lost);
	for (int role = 0; role < AUDIT_ROLES; role++) {
		fputs(role ? "," : "", out);
		json_role(out, s, role, tables);
	}
	fputs("],\"findings\":[", out);
	for (size_t i = 0; i < MIN(count, FINDINGS_MAX); i++)
		fprintf(out,
			"%s{\"role\":\"%s\",\"name\":\"%s\",\"nr\":%d,\"count\":%llu,\"what\":\"%"
			"s\"}",
			i ? "," : "", audit_role_name(f[i].role), audit_call_name(f[i].nr), f[i].nr,
			(unsigned long long)f[i].count, audit_finding_text(f[i].kind));
	fputs("]}\n", out);
	fflush(out);
	return count;
}
