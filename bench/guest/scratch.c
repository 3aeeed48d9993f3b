#include "bench/guest/scratch.h"
#include "bench/guest/bench.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *scratch_base(const char *name)
{
	const char *base = bench_dir(name);

	if (!base && strcmp(name, "tmpfs") == 0)
		base = "/dev/shm";
	return base;
}

int scratch_make(struct scratch *s, const char *row, const char *name)
{
	const char *base = scratch_base(name);
	int n;

	if (!base) {
		bench_skip(row, "no folder was given as --dir %s", name);
		return -1;
	}
	n = snprintf(s->root, sizeof(s->root), "%s/minisentry-bench.XXXXXX", base);
	if (n >= (int)sizeof(s->root)) {
		errno = ENAMETOOLONG;
		bench_fail(row, "%s", base);
		return -1;
	}
	if (!mkdtemp(s->root)) {
		bench_fail(row, "cannot make a folder in %s", base);
		return -1;
	}
	return 0;
}

const char *scratch_path(struct scratch *s, const char *name)
{
	snprintf(s->path, sizeof(s->path), "%s/%s", s->root, name);
	return s->path;
}

int scratch_file(struct scratch *s, const char *name, size_t size)
{
	static const char block[MIB];
	int fd = open(scratch_path(s, name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	size_t done = 0;

	while (fd >= 0 && done < size) {
		size_t want = size - done < sizeof(block) ? size - done : sizeof(block);
		ssize_t n = write(fd, block, want);

		if (n <= 0) {
			int error = n ? errno : EIO;

			close(fd);
			errno = error;
			return -1;
		}
		done += (size_t)n;
	}
	return fd;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

void scratch_remove(struct scratch *s)
{
	int error = errno;

	nftw(s->root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	errno = error;
}

int scratch_stat(void *path, uint64_t n)
{
	struct stat st;

	while (n--)
		if (stat(path, &st))
			return -1;
	return 0;
}
