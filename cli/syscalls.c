/* `minisentry syscalls`: the support table, as text or as the Markdown of docs/SYSCALLS.md. */
#include "cli/cli.h"
#include "sentry/sys/syscall.h"
#include <stdio.h>
#include <string.h>

static const char *support_name(enum sys_support s)
{
	switch (s) {
	case SYS_FULL: return "full";
	case SYS_PARTIAL: return "partial";
	case SYS_STUB: return "stub";
	case SYS_MISSING: break;
	}
	return "missing";
}

int cli_syscalls(int argc, char **argv)
{
	bool markdown = argc > 1 && strcmp(argv[1], "--markdown") == 0;
	size_t count[4] = { 0 };

	if (argc > 1 && !markdown) {
		bool help = strcmp(argv[1], "--help") == 0;
		fputs("Usage: minisentry syscalls [--markdown]\n"
		      "Prints number, name and support of each system call that is served.\n",
		      help ? stdout : stderr);
		return help ? 0 : 125;
	}
	if (markdown)
		puts("| number | name | support | note |\n| --- | --- | --- | --- |");
	for (size_t nr = 0; nr < SYS_TABLE_SIZE; nr++) {
		const struct sys_entry *e = &sys_table[nr];
		if (!e->name)
			continue;
		count[e->support]++;
		printf(markdown ? "| %zu | %s | %s | %s |\n" : "%4zu  %-24s %-8s %s\n", nr, e->name,
		       support_name(e->support), e->note ? e->note : "");
	}
	printf("%s%zu full, %zu partial, %zu stub; any other number answers ENOSYS.\n",
	       markdown ? "\n" : "", count[SYS_FULL], count[SYS_PARTIAL], count[SYS_STUB]);
	return 0;
}
