/*
 * Compiles the allowlist of filter_table.c into the BPF programs that filter.c loads, when
 * minisentry is built: at each start it would take as long as making all of the guest kernel.
 * Writes a C header to its output.
 */
#include "sentry/confine/filter_table.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <termios.h>
#include <unistd.h>

/* A sanitizer's run-time library makes calls of its own; release builds never have this. */
#ifdef MINISENTRY_SANITIZER
#define ON_VIOLATION SCMP_ACT_LOG
#else
#define ON_VIOLATION SCMP_ACT_KILL_PROCESS
#endif

static const u64 tty_requests[] = { TCGETS,	TCSETS,	  TCSETSW,   TCSETSF,
				    TIOCGWINSZ, FIONREAD, TIOCGPGRP, TIOCOUTQ };

static int add_row(scmp_filter_ctx ctx, const struct filter_row *row, bool ptrace)
{
	int nr = row->rule.nr, ret = 0;

	switch (row->condition) {
	case ANY:
		if (nr == __NR_clone3)
			return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), nr, 0);
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
	case NO_EXEC:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	case NO_FOLLOW:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A2(SCMP_CMP_MASKED_EQ, O_NOFOLLOW, O_NOFOLLOW));
	case THREAD_ONLY:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	case TTY_ONLY:
		for (size_t i = 0; ret == 0 && i < ARRAY_SIZE(tty_requests); i++)
			ret = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					       SCMP_A1(SCMP_CMP_EQ, tty_requests[i], 0));
		return ret;
	case PRCTL_NAME:
		return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME, 0));
	case PTRACE_ONLY: return ptrace ? seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0) : 0;
	}
	return -EINVAL;
}

/* libseccomp writes its programs to descriptors. */
static int print_program(scmp_filter_ctx ctx, const char *name)
{
	struct sock_filter f;
	FILE *file = tmpfile();
	int ret;

	if (!file)
		return -errno;
	ret = seccomp_export_bpf(ctx, fileno(file));
	rewind(file);
	printf("static const struct sock_filter %s[] = {\n", name);
	while (ret == 0 && fread(&f, sizeof(f), 1, file) == 1)
		printf("\t{ %#x, %u, %u, %#x },\n", f.code, f.jt, f.jf, f.k);
	printf("};\n");
	fclose(file);
	return ret;
}

static int compile(const char *name, bool ptrace)
{
	const struct filter_row *rows;
	size_t count = filter_table(&rows);
	scmp_filter_ctx ctx = seccomp_init(ON_VIOLATION);
	int ret = ctx ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < count; i++)
		ret = add_row(ctx, &rows[i], ptrace);
	/* A balanced tree of comparisons instead of a list: the sentry calls often. */
	if (ret == 0)
		(void)seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (ret == 0)
		ret = print_program(ctx, name);
	seccomp_release(ctx);
	return ret;
}

int main(void)
{
	int ret;

	/* For any kernel that minisentry runs on, not for the one that builds it. */
	ret = seccomp_api_set(3);
	if (ret == 0)
		ret = compile("filter_seccomp", false);
	if (ret == 0)
		ret = compile("filter_ptrace", true);
	if (ret < 0)
		fprintf(stderr, "filter_gen: %s\n", strerror(-ret));
	return ret < 0 || fflush(stdout) != 0;
}
