#include "bench/driver/sampler.h"
#include "bench/driver/proctree.h"
#include <limits.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct sampler {
	/* Folders of the cgroups made; "" where none. v2 has one for both. */
	char memory[256], cpu[256];
	bool unified;
};

/* Reads one number after `key` ("" for a file that is one number). NAN when it is not there. */
static double read_key(const char *dir, const char *file, const char *key)
{
	char path[320], line[128];
	double value = NAN;
	size_t n = strlen(key);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (n == 0 || (strncmp(line, key, n) == 0 && line[n] == ' ')) {
			value = strtod(line + n, NULL);
			break;
		}
	if (f)
		fclose(f);
	return value;
}

static bool has_file(const char *dir, const char *file)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return access(path, R_OK) == 0;
}

/* Where a hierarchy is mounted: controller "memory", "cpuacct", or "" for v2. */
static bool find_mount(const char *controller, char *ret, size_t size)
{
	char line[1024], point[256], type[32], options[512];
	bool found = false;
	FILE *f = fopen("/proc/self/mounts", "re");

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %255s %31s %511s", point, type, options) != 3)
			continue;
		if (*controller ? strcmp(type, "cgroup") == 0 && strstr(options, controller)
				: strcmp(type, "cgroup2") == 0) {
			snprintf(ret, size, "%s", point);
			found = true;
		}
	}
	if (f)
		fclose(f);
	return found;
}

/* Our own group in a hierarchy: a new one goes below it, which a delegated user may make. */
static void own_group(const char *controller, char *ret, size_t size)
{
	char line[512];
	FILE *f = fopen("/proc/self/cgroup", "re");

	ret[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		path[strcspn(path, "\n")] = '\0';
		if (*controller ? strstr(names + 1, controller) != NULL : names[1] == '\0')
			snprintf(ret, size, "%s", path);
	}
	if (f)
		fclose(f);
}

/*
 * Makes a group below our own, or else at the hierarchy's root (inside a container the path in
 * /proc/self/cgroup may not exist), which must have the file that we read.
 */
static bool make_group(const char *controller, const char *file, char *ret, size_t size)
{
	char point[256], own[256], path[640];

	if (!find_mount(controller, point, sizeof(point)))
		return false;
	own_group(controller, own, sizeof(own));
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s%s/minisentry-bench.%d", point, i == 0 ? own : "",
			 getpid());
		if (strlen(path) >= size || mkdir(path, 0755) != 0)
			continue;
		if (has_file(path, file)) {
			snprintf(ret, size, "%s", path);
			return true;
		}
		rmdir(path);
	}
	return false;
}

struct sampler *sampler_new(bool use_cgroup, char *text, size_t size)
{
	struct sampler *s = calloc(1, sizeof(*s));

	if (!s) {
		fputs("minisentry bench: out of memory\n", stderr);
		exit(125);
	}
	if (use_cgroup && make_group("", "memory.current", s->memory, sizeof(s->memory))) {
		s->unified = true;
		snprintf(s->cpu, sizeof(s->cpu), "%s", s->memory);
		snprintf(text, size,
			 "cgroup v2: memory without page cache other than shmem and without "
			 "reclaimable slab; CPU time of the cgroup");
		return s;
	}
	if (use_cgroup) {
		make_group("memory", "memory.usage_in_bytes", s->memory, sizeof(s->memory));
		make_group("cpuacct", "cpuacct.usage", s->cpu, sizeof(s->cpu));
		if (!*s->cpu && make_group("", "cpu.stat", s->cpu, sizeof(s->cpu)))
			s->unified = true;
	}
	snprintf(text, size, "%s; CPU time of %s%s",
		 *s->memory ? "cgroup v1: memory without page cache other than shmem"
			    : "Pss_Anon of the processes and blocks of their memory files",
		 *s->cpu ? "the cgroup" : "the living processes (dead ones to 10 ms)",
		 use_cgroup && !*s->memory ? " (no cgroup could be made: needs root or delegation)"
					   : "");
	return s;
}

static void join(const char *dir)
{
	char path[320];
	int fd;

	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		/* Fails only if the group went away: then the samples read NAN or 0, which shows.
		 */
		if (write(fd, "0", 1) != 1)
			perror(path);
		close(fd);
	}
}

void sampler_join(const struct sampler *s)
{
	if (*s->memory)
		join(s->memory);
	if (*s->cpu && strcmp(s->cpu, s->memory) != 0)
		join(s->cpu);
}

double sampler_cpu_ns(const struct sampler *s)
{
	struct proctree t;
	double ns;

	if (*s->cpu)
		return s->unified ? read_key(s->cpu, "cpu.stat", "usage_usec") * 1000
				  : read_key(s->cpu, "cpuacct.usage", "");
	t = proctree_take();
	ns = proctree_cpu_ns(&t);
	proctree_free(&t);
	return ns;
}

double sampler_memory(const struct sampler *s)
{
	struct proctree_memory m;
	struct proctree t;

	if (*s->memory && strcmp(s->memory, s->cpu) == 0)
		return read_key(s->memory, "memory.current", "") -
		       read_key(s->memory, "memory.stat", "file") +
		       read_key(s->memory, "memory.stat", "shmem") -
		       read_key(s->memory, "memory.stat", "slab_reclaimable");
	if (*s->memory)
		return read_key(s->memory, "memory.usage_in_bytes", "") -
		       read_key(s->memory, "memory.stat", "total_cache") +
		       read_key(s->memory, "memory.stat", "total_shmem");
	t = proctree_take();
	m = proctree_memory(&t);
	proctree_free(&t);
	return m.pss_anon + m.memfile;
}

double sampler_kernel_memory(const struct sampler *s)
{
	if (!*s->memory)
		return NAN;
	return strcmp(s->memory, s->cpu) == 0
		       ? read_key(s->memory, "memory.stat", "kernel")
		       : read_key(s->memory, "memory.kmem.usage_in_bytes", "");
}

/* A group can be removed once its last process is reaped everywhere; that may take a moment. */
static void remove_group(const char *dir)
{
	for (int i = 0; *dir && i < 100 && rmdir(dir) != 0 && errno == EBUSY; i++)
		usleep(10000);
}

void sampler_free(struct sampler *s)
{
	remove_group(s->memory);
	if (strcmp(s->cpu, s->memory) != 0)
		remove_group(s->cpu);
	free(s);
}
