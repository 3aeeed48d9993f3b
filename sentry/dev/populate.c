/* What /dev contains. */
#include "sentry/dev/dev.h"
#include "sentry/tty/tty.h"
#include <limits.h>
#include <stdio.h>

struct node {
	const char *name;
	u32 mode, major, minor;
};

static const struct node nodes[] = {
	{ "null", 0666, MEM_MAJOR, 3 },	       { "zero", 0666, MEM_MAJOR, 5 },
	{ "full", 0666, MEM_MAJOR, 7 },	       { "random", 0666, MEM_MAJOR, 8 },
	{ "urandom", 0666, MEM_MAJOR, 9 },     { "tty", 0666, TTY_AUX_MAJOR, 0 },
	{ "console", 0600, TTY_AUX_MAJOR, 1 }, { "ptmx", 0666, TTY_AUX_MAJOR, 2 },
};

static const char *const links[][2] = {
	{ "fd", "/proc/self/fd" },
	{ "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" },
};

static const struct node dirs[] = {
	{ "pts", 0755, 0, 0 },
	{ "shm", 01777, 0, 0 },
};

int dev_populate(const struct walk_context *w, const char *dir)
{
	char path[PATH_MAX];
	int err = 0;

	for (size_t i = 0; !err && i < ARRAY_SIZE(nodes); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, nodes[i].name);
		err = vfs_mknod(w, path, S_IFCHR | nodes[i].mode, nodes[i].major, nodes[i].minor,
				NULL);
	}
	for (size_t i = 0; !err && i < ARRAY_SIZE(links); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, links[i][0]);
		err = vfs_symlink(w, links[i][1], path);
	}
	for (size_t i = 0; !err && i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, dirs[i].name);
		err = vfs_mkdir(w, path, dirs[i].mode);
	}
	return err;
}
