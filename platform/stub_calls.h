/*
 * platform/stub_calls.h: the host system calls that code in a stub may make.
 *
 * The seccomp filters are generated from this one table, and so are the
 * documentation, `minisentry doctor` and the audit's expectation. Either filters
 * stack (a mapper is also under the zygote's, a guest thread under all three), or
 * there is one that gives each part of the stub's code its role's rows, and guest
 * threads are under syscall user dispatch. What no row allows raises SIGSYS, which is a system call
 * stop for a guest thread and death for the others (they block all signals).
 */
#ifndef MINISENTRY_PLATFORM_STUB_CALLS_H
#define MINISENTRY_PLATFORM_STUB_CALLS_H

#include "base/types.h"
#include "platform/platform.h"

enum stub_role { STUB_ZYGOTE, STUB_MAPPER, STUB_GUEST };

struct stub_arg_check {
	enum {
		CHECK_NONE,
		CHECK_EQ,    /* arg == value */
		CHECK_BELOW, /* arg < value */
		CHECK_FROM,  /* arg >= value, which fits in its low half */
		CHECK_RANGE, /* value <= arg < limit, equal upper halves, and arg & mask == 0 */
		CHECK_MASK,  /* (low half of arg) & mask == value */
		CHECK_LOW,   /* low half of arg == value: for int arguments */
	} kind;
	int arg;
	u64 value, limit, mask;
};

enum stub_call_when {
	WHEN_ALWAYS,
	WHEN_SECCOMP,
	WHEN_PTRACE,
	WHEN_DISPATCH, /* seccomp platform with syscall user dispatch: one filter, by place */
	WHEN_FILTERS,  /* ptrace, or a host without it: a filter a role */
	WHEN_NO_FSGSBASE,
};

struct stub_call {
	int nr;
	enum stub_role role; /* the last role that may make it */
	enum stub_call_when when;
	const char *why;
	struct stub_arg_check checks[4];
};

const struct stub_call *platform_stub_calls(size_t *ret_count);

/* For the audit: has this role's filter a row for nr, with that platform on this host? kind is not
 * AUTO. */
bool platform_stub_may_call(enum platform_kind kind, enum stub_role role, int nr);

/* Where the stub's code is mapped, and its parts of which only one role makes calls. */
struct stub_sections {
	u64 text, end;
	u64 mapper_start, mapper_end;
	u64 guest_start, guest_end;
};
void platform_stub_sections(struct stub_sections *ret);

/* The host calls that the sentry's side of platform/ makes after platform_start. */
struct host_call_reason {
	int nr;
	const char *why;
};
const struct host_call_reason *platform_host_calls(size_t *ret_count);

#endif
