/* Serving one system call: the guest's own seccomp, the table, --strace, the log of missing calls.
 */
#include "base/log.h"
#include "sentry/sys/handlers.h"
#include "sentry/sys/strace.h"
#include "sentry/task/seccomp_guest.h"

#include <stdlib.h>

/* Bit n: call n was logged as missing. */
struct sys_caught {
	_Atomic u64 bits[(SYS_TABLE_SIZE + 63) / 64];
	_Atomic bool other; /* a number beyond the table */
};

static struct sys_caught *caught_of(struct kernel *k)
{
	struct sys_caught *c = __atomic_load_n(&k->missing, __ATOMIC_ACQUIRE), *expected = NULL;

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	if (__atomic_compare_exchange_n(&k->missing, &expected, c, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return c;
	free(c);
	return expected;
}

static void log_missing(struct task *t, u64 nr)
{
	struct sys_caught *c = caught_of(t->kernel);
	const char *name = sys_name(nr);
	bool seen = true;

	if (c && nr < SYS_TABLE_SIZE)
		seen = atomic_fetch_or(&c->bits[nr / 64], 1ULL << (nr % 64)) >> (nr % 64) & 1;
	else if (c)
		seen = atomic_exchange(&c->other, true);
	if (seen)
		return;
	if (name)
		log_info("missing system call: %s (first by %s, pid %d)", name, t->comm,
			 t->tg->tgid);
	else
		log_info("missing system call: number %llu (first by %s, pid %d)",
			 (unsigned long long)nr, t->comm, t->tg->tgid);
}

static s64 call(struct task *t, u64 nr, const u64 a[6])
{
	sys_fn *fn = nr < SYS_TABLE_SIZE ? sys_table[nr].fn : NULL;

	if (fn)
		return fn(t, a);
	log_missing(t, nr);
	return -ENOSYS;
}

static s64 call_traced(struct task *t, u64 nr, const u64 a[6])
{
	struct strace_line line;
	s64 ret;

	strace_enter(t, nr, a, &line);
	ret = call(t, nr, a);
	strace_leave(t, &line, ret);
	return ret;
}

s64 sys_dispatch(struct task *t, u64 nr, const u64 a[6])
{
	s64 ret;

	if (atomic_load_explicit(&t->seccomp_mode, memory_order_relaxed) &&
	    !seccomp_check(t, nr, a, &ret))
		return ret;
	if (t->kernel->strace && strace_wanted(t->kernel, nr))
		return call_traced(t, nr, a);
	return call(t, nr, a);
}
