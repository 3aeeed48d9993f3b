/* `minisentry audit` of a build without libbpf, clang or bpftool; the real one is in cli/audit/. */
#include "cli/cli.h"

#ifndef MINISENTRY_HAVE_AUDIT
int cli_audit(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	return cli_error("./setup, then make clean all",
			 "this build has no audit: libbpf, clang or bpftool was missing");
}
#endif
