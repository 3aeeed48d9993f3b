/* seccomp(2): the work is in sentry/task/seccomp_guest.c. */
#include "sentry/sys/handlers.h"
#include "sentry/task/seccomp_guest.h"

s64 sys_seccomp(struct task *t, const u64 a[6])
{
	return seccomp_call(t, (u32)a[0], (u32)a[1], ua(a[2]));
}
