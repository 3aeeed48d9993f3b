#include "cli/cli.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	int (*fn)(int argc, char **argv);
	const char *text;
} commands[] = {
	{ "run", cli_run, "run a program in a sandbox" },
	{ "list", cli_list, "name the running sandboxes of the user" },
	{ "stats", cli_stats, "say what a running sandbox uses" },
	{ "audit", cli_audit, "run a program and report every host system call of the sandbox" },
	{ "bench", cli_bench, "measure minisentry, native and other sandboxes side by side" },
	{ "doctor", cli_doctor, "say which mechanisms and protections work here, and why not" },
	{ "syscalls", cli_syscalls, "print the table of supported system calls" },
};

int cli_error(const char *hint, const char *fmt, ...)
{
	va_list ap;

	fputs("minisentry: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	if (hint)
		fprintf(stderr, "  try: %s\n", hint);
	return 125;
}

static void print_usage(FILE *out)
{
	fputs("Usage: minisentry COMMAND [OPTIONS] [-- PROGRAM [ARGS]]\n\n", out);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].text);
	fputs("\n`minisentry COMMAND --help` explains a command; `man minisentry` all of them.\n",
	      out);
}

/*
 * A standard descriptor that the caller closed must not become the number of one of our own files:
 * the guest would get it. What takes its place fails reads and writes with EBADF, as a closed one
 * does.
 */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd)
			_exit(125);
}

int main(int argc, char **argv)
{
	fill_standard_fds();
	if (argc < 2) {
		print_usage(stderr);
		return 125;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		print_usage(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0) {
		puts("minisentry " MINISENTRY_VERSION);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].fn(argc - 1, argv + 1);
	return cli_error("minisentry --help", "no command \"%s\"", argv[1]);
}
