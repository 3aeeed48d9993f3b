/*
 * cli/cli.h: the `minisentry` command: its subcommands and their shared parts.
 */
#ifndef MINISENTRY_CLI_CLI_H
#define MINISENTRY_CLI_CLI_H

#include "sentry/kernel/config.h"

#define MINISENTRY_VERSION "0.1"

/* Subcommands: arguments after the name; the exit code. */
int cli_run(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_syscalls(int argc, char **argv);
int cli_list(int argc, char **argv);
int cli_stats(int argc, char **argv);
int cli_audit(int argc, char **argv);
int cli_bench(int argc, char **argv);

/*
 * options.c: fills config from run options. 0; -1 after an error message (exit
 * code 125); 1 when --help was printed. *ret_first: index of PROGRAM in argv.
 */
int options_parse(int argc, char **argv, struct run_config *config);
void options_print_help(void);
/* Is `arg` ("--name") a run option whose value is the next argument? */
bool options_takes_value(const char *arg);

/*
 * launcher.c: forks the sentry into its namespaces, forwards signals, restores
 * the terminal however it ends. Returns the exit code. on_start (may be NULL) is
 * called with the sentry's pid before it does anything; when it returns false (after a
 * message) the sentry is ended and 125 returned.
 */
int launcher_run(struct run_config *config, bool (*on_start)(pid_t sentry, void *arg), void *arg);

/* One line to stderr: "minisentry: ...", and a hint line; returns 125. */
int cli_error(const char *hint, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
