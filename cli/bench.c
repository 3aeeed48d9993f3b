/* `minisentry bench`: starts the driver (bench/driver), a program of its own that runs us in turn.
 */
#include "cli/cli.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Relative to the folder that this program is in: the build tree's place, and the installed one. */
static const char *const places[] = { "bench/minisentry-bench",
				      "../libexec/minisentry/minisentry-bench" };

int cli_bench(int argc, char **argv)
{
	char self[PATH_MAX], driver[PATH_MAX + 64], option[PATH_MAX + 64];
	char **args = calloc((size_t)argc + 2, sizeof(*args));
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (!args || n < 0)
		return cli_error(NULL, "cannot find my own program: %s", strerror(errno));
	self[n] = '\0';
	snprintf(option, sizeof(option), "--minisentry=%s", self);
	*strrchr(self, '/') = '\0';
	args[0] = driver;
	args[1] = option;
	memcpy(args + 2, argv + 1, (size_t)argc * sizeof(*args)); /* with the NULL at its end */
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		snprintf(driver, sizeof(driver), "%s/%s", self, places[i]);
		execv(driver, args);
	}
	free(args);
	return cli_error("./setup, then make; or make install",
			 "no driver for benchmarks beside %s: %s", self, strerror(errno));
}
