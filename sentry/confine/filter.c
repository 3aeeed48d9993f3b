/* The sentry's seccomp filter: filter_table.c, as filter_gen.c compiled it. */
#include "sentry/confine/confine.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "confine_filter.h"

int confine_load_filter(enum platform_kind kind, struct confine_state *state)
{
	const struct sock_fprog programs[] = {
		{ ARRAY_SIZE(filter_seccomp), (struct sock_filter *)filter_seccomp },
		{ ARRAY_SIZE(filter_ptrace), (struct sock_filter *)filter_ptrace },
	};
	long tid;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	tid = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
		      &programs[kind == PLATFORM_PTRACE]);
	if (tid != 0)
		return tid < 0 ? -errno : -ECANCELED; /* a thread that could not follow */
	state->seccomp = true;
	return 0;
}
