/* How a workload is started under each runtime. */
#ifndef BENCH_DRIVER_COMMAND_H
#define BENCH_DRIVER_COMMAND_H

#include "bench/driver/options.h"
#include "bench/driver/results.h"

/* Folders of this session. */
struct bench_env {
	const struct bench_options *options;
	char home[256]; /* where this program is, and the guest's programs */
	char work[256]; /* ours on disk, below --disk: "files" and "upper" in it */
	char shm[64];	/* ours in /dev/shm; a sandbox with its own /dev/shm makes it there */
};

/* Finds `home` and makes the folders; false after a message. */
bool bench_env_init(struct bench_env *env, const struct bench_options *o);
/* Empties the folders: a workload that was killed leaves its files. */
void bench_env_clean(const struct bench_env *env);
void bench_env_remove(struct bench_env *env);

/* A NULL-terminated vector of copied words. */
struct command {
	char **words;
	int count;
};

void command_add(struct command *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void command_free(struct command *c);

/* Adds what comes before a guest's command under a runtime. */
void command_add_runtime(struct command *c, const struct bench_env *env, const struct runtime *rt,
			 enum group_place place);
/* Adds the group's own command with the rows asked for (all when row_count is 0). */
void command_add_group(struct command *c, const struct bench_env *env, const struct group *group,
		       const char *const *rows, int row_count);

/* First line (cleaned) that a command prints, on either output; "" when it fails or takes over 3 s.
 */
void command_first_line(const char *shell_command, char *buf, size_t size);

#endif
