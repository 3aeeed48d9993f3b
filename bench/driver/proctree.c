#include "bench/driver/proctree.h"
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct process {
	pid_t pid, parent;
	uint64_t child_ticks; /* CPU time of reaped children */
};

/* Fields of /proc/PID/stat after the name, which may hold anything but ends with the last ')'. */
static bool read_stat(pid_t pid, struct process *ret)
{
	char path[64], text[1024], *after;
	unsigned long utime, stime;
	long cutime, cstime;
	int parent;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	after = strrchr(text, ')');
	if (!after ||
	    sscanf(after + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld",
		   &parent, &utime, &stime, &cutime, &cstime) != 5)
		return false;
	*ret = (struct process){ pid, parent, (uint64_t)(cutime + cstime) };
	return true;
}

static struct process *list_processes(size_t *ret_count)
{
	size_t count = 0, room = 0;
	struct process *all = NULL, one;
	DIR *dir = opendir("/proc");
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		if (!isdigit((unsigned char)e->d_name[0]) || !read_stat(atoi(e->d_name), &one))
			continue;
		if (count == room) {
			struct process *more = realloc(all, (room = room * 2 + 64) * sizeof(*all));

			if (!more)
				break;
			all = more;
		}
		all[count++] = one;
	}
	if (dir)
		closedir(dir);
	*ret_count = count;
	return all;
}

struct proctree proctree_take(void)
{
	struct proctree t = {};
	size_t count, done = 0;
	struct process *all = list_processes(&count);

	t.pids = calloc(count + 1, sizeof(*t.pids));
	if (t.pids)
		t.pids[t.count++] = getpid();
	/* Breadth first: every found process takes its children along. */
	for (; t.pids && done < t.count; done++)
		for (size_t i = 0; i < count; i++)
			if (all[i].parent == t.pids[done] && t.count <= count)
				t.pids[t.count++] = all[i].pid;
	free(all);
	if (t.count) {
		t.count--;
		memmove(t.pids, t.pids + 1, t.count * sizeof(*t.pids));
	}
	return t;
}

void proctree_free(struct proctree *t)
{
	free(t->pids);
	*t = (struct proctree){};
}

void proctree_kill(void)
{
	/* New processes may appear between listing and killing: until none is left. */
	for (int round = 0; round < 200; round++) {
		struct proctree t = proctree_take();
		bool none = t.count == 0;

		for (size_t i = 0; i < t.count; i++)
			kill(t.pids[i], SIGKILL);
		proctree_free(&t);
		if (none)
			return;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}

double proctree_cpu_ns(const struct proctree *t)
{
	double total = 0, tick_ns = 1e9 / (double)sysconf(_SC_CLK_TCK);

	for (size_t i = 0; i < t->count; i++) {
		struct process p;
		struct timespec ts;
		clockid_t clock;

		if (clock_getcpuclockid(t->pids[i], &clock) == 0 && clock_gettime(clock, &ts) == 0)
			total += (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
		if (read_stat(t->pids[i], &p))
			total += (double)p.child_ticks * tick_ns;
	}
	return total;
}

static void add_rollup(pid_t pid, struct proctree_memory *m)
{
	char path[64], line[128];
	unsigned long kib;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss: %lu", &kib) == 1)
			m->pss += (double)kib * 1024;
		else if (sscanf(line, "Pss_Anon: %lu", &kib) == 1)
			m->pss_anon += (double)kib * 1024;
	if (f)
		fclose(f);
}

#define MEMFDS_MAX 256

struct memfds {
	ino_t seen[MEMFDS_MAX];
	size_t count;
};

static void add_memfds(pid_t pid, struct memfds *files, struct proctree_memory *m)
{
	char path[64], target[64];
	struct dirent *e;
	struct stat st;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target) - 1);
		bool seen = false;

		if (n < 7 || strncmp(target, "/memfd:", 7) != 0 ||
		    fstatat(dirfd(dir), e->d_name, &st, 0) != 0)
			continue;
		for (size_t i = 0; i < files->count && !seen; i++)
			seen = files->seen[i] == st.st_ino;
		if (seen || files->count == MEMFDS_MAX)
			continue;
		files->seen[files->count++] = st.st_ino;
		m->memfile += (double)st.st_blocks * 512;
	}
	if (dir)
		closedir(dir);
}

struct proctree_memory proctree_memory(const struct proctree *t)
{
	struct proctree_memory m = {};
	struct memfds files = {};

	for (size_t i = 0; i < t->count; i++) {
		add_rollup(t->pids[i], &m);
		add_memfds(t->pids[i], &files, &m);
	}
	return m;
}
