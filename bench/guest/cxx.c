/* Builds the C++ library of cxxlib/ with make -j2, sources and results on the file system measured.
 */
#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include "bench/guest/program.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy_file(int from, int to, const char *name)
{
	int in = openat(from, name, O_RDONLY | O_CLOEXEC), out = -1, result = -1;
	char buffer[16 * KIB];
	ssize_t n;

	if (in >= 0)
		out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (out >= 0) {
		while ((n = read(in, buffer, sizeof(buffer))) > 0)
			if (write(out, buffer, (size_t)n) != n)
				break;
		result = n == 0 ? 0 : -1;
		close(out);
	}
	if (in >= 0)
		close(in);
	return result;
}

/* Copies the sources, which are beside this program, to `to`: a flat folder. */
static int copy_sources(const char *to)
{
	char path[PATH_MAX] = "";
	int target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = -1;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("/cxxlib"));
	struct dirent *entry;
	DIR *dir = NULL;

	if (target >= 0 && n > 0) {
		strcpy(strrchr(path, '/'), "/cxxlib");
		dir = opendir(path);
	}
	if (dir) {
		result = 0;
		while (result == 0 && (entry = readdir(dir)))
			if (entry->d_name[0] != '.')
				result = copy_file(dirfd(dir), target, entry->d_name);
		closedir(dir);
	}
	if (target >= 0)
		close(target);
	return result;
}

/* 0 when the archive is there and the library's own test program passes. */
static int check_result(const char *dir)
{
	char selftest[PATH_MAX + 16], out[4096];
	char *const argv[] = { selftest, NULL };
	struct stat st;

	snprintf(selftest, sizeof(selftest), "%s/libtoolbox.a", dir);
	if (stat(selftest, &st) || st.st_size < 100000)
		return -1;
	snprintf(selftest, sizeof(selftest), "%s/selftest", dir);
	if (program_run(argv, -1, STDOUT_FILENO, out, sizeof(out)))
		return -1;
	return strstr(out, "all passed") ? 0 : -1;
}

/* One build. The compiler has read most headers once before (make warm-up). */
static void build(const struct bench_row *row)
{
	struct scratch scratch;
	const char *place = (const char *)row->arg;
	char *dir = scratch.root, tmpdir[PATH_MAX + 8];
	/* The compiler's temporary files belong to what is measured, wherever /tmp is. */
	char *const warm_up[] = { "make", "-s", "-C", dir, tmpdir, "warm-up", NULL };
	char *const make[] = { "make", "-s", "-j2", "-C", dir, tmpdir, "all", NULL };
	uint64_t start;
	double seconds;
	int code;

	/* The driver has overlays of two kinds, of which this is the default one. */
	if (strcmp(place, "overlay") == 0 && bench_dir("overlay_memory"))
		place = "overlay_memory";
	if (!program_found(row->name, "g++", "g++") || !program_found(row->name, "make", "make") ||
	    scratch_make(&scratch, row->name, place))
		return;
	snprintf(tmpdir, sizeof(tmpdir), "TMPDIR=%s", dir);
	if (copy_sources(dir) || program_run(warm_up, -1, STDOUT_FILENO, NULL, 0)) {
		bench_fail(row->name, "cannot set the build up in %s", dir);
		goto out;
	}
	bench_begin(row->name);
	start = bench_now();
	code = program_run(make, -1, STDOUT_FILENO, NULL, 0);
	seconds = (double)(bench_now() - start) / 1e9;
	errno = 0;
	if (code || check_result(dir))
		bench_fail(row->name, "make ended with %d, or its result does not work", code);
	else
		bench_end(row->name, seconds, 1);
out:
	scratch_remove(&scratch);
}

static const struct bench_row rows[] = {
	{ "cxx_build_bind", build, (uintptr_t) "bind" },
	{ "cxx_build_tmpfs", build, (uintptr_t) "tmpfs" },
	{ "cxx_build_overlay", build, (uintptr_t) "overlay" },
};
BENCH_GROUP(cxx, rows);
