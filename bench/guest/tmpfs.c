/*
 * tmpfs: new pages by write, fallocate and mapping, old ones again, and names. In --dir tmpfs,
 * which must be a tmpfs, or every row is skipped. Rows of a whole file at a time (append,
 * fallocate, dd) do it SAMPLES times with a new file each, whose removal between the samples is in
 * the phase's host CPU time but not in the value; the others find their files made, and leave them
 * to after the end.
 */
#include "bench/guest/program.h"
#include "bench/guest/groups.h"
#include "bench/guest/scratch.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define US 1000.0
#define MS 1000000.0
#define SAMPLES 3
#define SLOW_NS (1000 * 1000000UL)
#define BATCHES 10
#define BIG_SIZE (256 * MIB)
#define SPARE_SIZE (32 * MIB)
#define PWRITE_SIZE (48 * MIB)
#define MAP_SIZE (32 * MIB)
#define HOT_SIZE MIB
#define BATCH_FILES 500
#define LIST_FILES 1000
#define DD_BS 40960UL
#define DD_COUNT (BIG_SIZE / DD_BS)

static char block[MIB];

/* A folder on tmpfs with `size` bytes free; false when the row was skipped, or has failed. */
static bool ready(struct scratch *s, const char *row, size_t size)
{
	const char *base = scratch_base("tmpfs");
	struct statfs st;

	if (statfs(base, &st)) {
		bench_fail(row, "statfs %s", base);
		return false;
	}
	if (st.f_type != TMPFS_MAGIC) {
		bench_skip(row, "%s is not on tmpfs", base);
		return false;
	}
	if ((uint64_t)st.f_bavail * (uint64_t)st.f_bsize < size) {
		bench_skip(row, "%s has less than %lu MiB free", base, size / MIB);
		return false;
	}
	bench_touch(block, sizeof(block), PAGE_SIZE);
	return scratch_make(s, row, "tmpfs") == 0;
}

static double mb_s(uint64_t bytes, uint64_t ns)
{
	return (double)bytes * 1000 / (double)ns;
}

/* Writes `size` bytes in pieces of bs to a new file; the time of the writes in ns; 0 on failure. */
static uint64_t append(struct scratch *s, size_t bs, size_t size)
{
	int fd = scratch_file(s, "file", 0);
	uint64_t start = bench_now(), ns = 0;
	size_t done = 0;

	if (fd < 0)
		return 0;
	while (done < size) {
		size_t want = size - done < bs ? size - done : bs;

		if (write(fd, block, want) != (ssize_t)want)
			break;
		done += want;
	}
	if (done >= size)
		ns = bench_now() - start;
	close(fd);
	return unlink(s->path) ? 0 : ns;
}

/* Whether a row that began at `begun` takes one more sample of a whole file. */
static bool another(size_t count, uint64_t begun)
{
	return count == 0 || (count < SAMPLES && bench_now() - begun < SLOW_NS);
}

static void run_append(const struct bench_row *row)
{
	double samples[SAMPLES];
	struct scratch s;
	uint64_t begun, ns = 0;
	size_t count = 0;

	if (!ready(&s, row->name, BIG_SIZE + SPARE_SIZE))
		return;
	append(&s, row->arg, MIB);
	bench_begin(row->name);
	begun = bench_now();
	while (another(count, begun)) {
		ns = append(&s, row->arg, BIG_SIZE);
		if (!ns)
			break;
		samples[count++] = mb_s(BIG_SIZE, ns);
	}
	if (ns)
		bench_end(row->name, bench_median(samples, count), count * (BIG_SIZE / row->arg));
	else
		bench_fail(row->name, "writing %s", s.path);
	scratch_remove(&s);
}

static void run_fallocate(const struct bench_row *row)
{
	double samples[SAMPLES];
	struct scratch s;
	int failed = 0;

	if (!ready(&s, row->name, BIG_SIZE + SPARE_SIZE))
		return;
	bench_begin(row->name);
	for (int i = 0; i < SAMPLES && !failed; i++) {
		int fd = scratch_file(&s, "file", 0);
		uint64_t start = bench_now();

		failed = fallocate(fd, 0, 0, BIG_SIZE);
		samples[i] = (double)(bench_now() - start) / MS;
		if (failed)
			bench_fail(row->name, "fallocate");
		close(fd);
		unlink(s.path);
	}
	if (!failed)
		bench_end(row->name, bench_median(samples, SAMPLES), SAMPLES);
	scratch_remove(&s);
}

enum { FRESH, ALLOCATED };

/* Every page of a file once, by 4 KiB writes, in batches; the file is a hole, or allocated. */
static void run_pwrite_new(const struct bench_row *row)
{
	const size_t pages = PWRITE_SIZE / PAGE_SIZE / BATCHES;
	double samples[BATCHES];
	bool failed = false;
	struct scratch s;
	off_t at = 0;
	int fd;

	if (!ready(&s, row->name, PWRITE_SIZE + SPARE_SIZE))
		return;
	append(&s, PAGE_SIZE, MIB);
	fd = scratch_file(&s, "file", 0);
	if (row->arg == ALLOCATED ? fallocate(fd, 0, 0, PWRITE_SIZE) : ftruncate(fd, PWRITE_SIZE)) {
		bench_fail(row->name, "making a file of %lu bytes", PWRITE_SIZE);
		goto out;
	}
	bench_begin(row->name);
	for (int i = 0; i < BATCHES && !failed; i++) {
		uint64_t start = bench_now();

		for (size_t n = 0; n < pages && !failed; n++, at += PAGE_SIZE)
			failed = pwrite(fd, block, PAGE_SIZE, at) != PAGE_SIZE;
		samples[i] = (double)(bench_now() - start) / US / (double)pages;
	}
	if (failed)
		bench_fail(row->name, "pwrite");
	else
		bench_end(row->name, bench_median(samples, BATCHES), pages * BATCHES);
out:
	close(fd);
	scratch_remove(&s);
}

static int op_overwrite(void *arg, uint64_t n)
{
	off_t at = 0;

	while (n--) {
		if (pwrite(*(int *)arg, block, PAGE_SIZE, at) != PAGE_SIZE)
			return -1;
		at = (at + PAGE_SIZE) % HOT_SIZE;
	}
	return 0;
}

static void run_overwrite(const struct bench_row *row)
{
	struct scratch s;
	int fd;

	if (!ready(&s, row->name, SPARE_SIZE))
		return;
	fd = scratch_file(&s, "file", HOT_SIZE);
	if (fd < 0)
		bench_fail(row->name, "writing %s", s.path);
	else
		bench_loop_row(row->name, op_overwrite, &fd, US);
	close(fd);
	scratch_remove(&s);
}

/* us a page of a new file's mapping, touched from its start to its end. It stays mapped. */
static double map_touch(int fd, void **ret_base)
{
	const size_t pages = MAP_SIZE / PAGE_SIZE;
	uint64_t start;
	void *base;

	if (ftruncate(fd, MAP_SIZE))
		return -1;
	base = mmap(NULL, MAP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -1;
	start = bench_now();
	bench_touch(base, MAP_SIZE, PAGE_SIZE);
	*ret_base = base;
	return (double)(bench_now() - start) / US / (double)pages;
}

static void run_mmap_touch(const struct bench_row *row)
{
	void *base[SAMPLES] = { 0 };
	double samples[SAMPLES] = { 0 };
	struct scratch s;
	int failed = 0;

	if (!ready(&s, row->name, SAMPLES * MAP_SIZE + SPARE_SIZE))
		return;
	bench_begin(row->name);
	for (int i = 0; i < SAMPLES && !failed; i++) {
		int fd = scratch_file(&s, i == 0 ? "0" : i == 1 ? "1" : "2", 0);

		samples[i] = map_touch(fd, &base[i]);
		failed = samples[i] < 0;
		if (failed)
			bench_fail(row->name, "mapping %s", s.path);
		close(fd);
	}
	if (!failed)
		bench_end(row->name, bench_median(samples, SAMPLES),
			  SAMPLES * MAP_SIZE / PAGE_SIZE);
	for (int i = 0; i < SAMPLES; i++)
		if (base[i])
			munmap(base[i], MAP_SIZE);
	scratch_remove(&s);
}

static int op_create_unlink(void *arg, uint64_t n)
{
	while (n--) {
		int fd = open(arg, O_RDWR | O_CREAT | O_EXCL, 0600);

		if (fd < 0 || close(fd) || unlink(arg))
			return -1;
	}
	return 0;
}

static int op_statfs(void *arg, uint64_t n)
{
	struct statfs st;

	while (n--)
		if (statfs(arg, &st))
			return -1;
	return 0;
}

/* `op` on the path of a file, which is there when `made`. */
static void run_path(const char *row, int (*op)(void *, uint64_t), bool made)
{
	struct scratch s;
	int fd;

	if (!ready(&s, row, SPARE_SIZE))
		return;
	fd = scratch_file(&s, "file", 0);
	close(fd);
	if (fd < 0 || (!made && unlink(s.path)))
		bench_fail(row, "making %s", s.path);
	else
		bench_loop_row(row, op, s.path, US);
	scratch_remove(&s);
}

static void run_create_close_unlink(const struct bench_row *row)
{
	run_path(row->name, op_create_unlink, false);
}

static void run_stat(const struct bench_row *row)
{
	run_path(row->name, scratch_stat, true);
}

static void run_statfs(const struct bench_row *row)
{
	run_path(row->name, op_statfs, true);
}

static int create(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);

	return fd < 0 || close(fd) ? -1 : 0;
}

/* `op` on the files 0 to `count` - 1 of the scratch folder's folder `dir`. */
static int each_file(struct scratch *s, const char *dir, int count, int (*op)(const char *path))
{
	char path[PATH_MAX], *end;

	strcpy(path, scratch_path(s, dir));
	end = path + strlen(path);
	for (int i = 0; i < count; i++) {
		/* Digits by hand: snprintf would be a tenth of a fast call's time. */
		end[0] = '/';
		for (int d = 4, rest = i; d > 0; d--, rest /= 10)
			end[d] = (char)('0' + rest % 10);
		end[5] = '\0';
		if (op(path))
			return -1;
	}
	return 0;
}

/* The folders that the batches of a row work in; `filled` with their files. */
static int make_batches(struct scratch *s, bool filled)
{
	char name[] = "0";

	for (int i = 0; i < BATCHES; i++, name[0]++)
		if (mkdir(scratch_path(s, name), 0700) ||
		    (filled && each_file(s, name, BATCH_FILES, create)))
			return -1;
	return 0;
}

/* Creates files of new names, or unlinks files, BATCH_FILES in each folder of BATCHES. */
static void run_batches(const char *row, int (*op)(const char *path), bool filled)
{
	double samples[BATCHES];
	char name[] = "0";
	struct scratch s;
	int failed = 0;

	if (!ready(&s, row, SPARE_SIZE))
		return;
	if (make_batches(&s, filled)) {
		bench_fail(row, "making files");
		goto out;
	}
	bench_begin(row);
	for (int i = 0; i < BATCHES && !failed; i++, name[0]++) {
		uint64_t start = bench_now();

		failed = each_file(&s, name, BATCH_FILES, op);
		samples[i] = (double)(bench_now() - start) / US / BATCH_FILES;
	}
	if (failed)
		bench_fail(row, "the operation failed");
	else
		bench_end(row, bench_median(samples, BATCHES), BATCHES * BATCH_FILES);
out:
	scratch_remove(&s);
}

static void run_create(const struct bench_row *row)
{
	run_batches(row->name, create, false);
}

static void run_unlink(const struct bench_row *row)
{
	run_batches(row->name, unlink, true);
}

/* Entries in a block that getdents64 filled. */
static int count_entries(const char *buf, ssize_t size)
{
	int count = 0;

	for (ssize_t at = 0; at < size; count++)
		at += ((const struct dirent64 *)(buf + at))->d_reclen;
	return count;
}

/* The whole folder each time, with a 32 KiB buffer as glibc's readdir has it. */
static int op_getdents(void *arg, uint64_t n)
{
	static char buf[32 * KIB] __attribute__((aligned(8)));

	while (n--) {
		int fd = open(arg, O_RDONLY | O_DIRECTORY), count = 0;
		ssize_t got;

		if (fd < 0)
			return -1;
		while ((got = getdents64(fd, buf, sizeof(buf))) > 0)
			count += count_entries(buf, got);
		close(fd);
		if (got < 0)
			return -1;
		if (count != LIST_FILES + 2) {
			errno = EBADMSG;
			return -1;
		}
	}
	return 0;
}

static void run_getdents(const struct bench_row *row)
{
	struct scratch s;

	if (!ready(&s, row->name, SPARE_SIZE))
		return;
	if (mkdir(scratch_path(&s, "list"), 0700) || each_file(&s, "list", LIST_FILES, create)) {
		bench_fail(row->name, "making files");
	} else {
		scratch_path(&s, "list");
		bench_loop_row(row->name, op_getdents, s.path, US);
	}
	scratch_remove(&s);
}

/* dd's own figure, "N bytes (...) copied, T s, ..." in its last line; negative when it failed. */
static double run_one_dd(struct scratch *s, unsigned long count)
{
	char of[PATH_MAX + 4], counts[32], bs[32], text[1024];
	char *argv[] = { (char *)"dd", (char *)"if=/dev/zero", of, bs, counts, NULL };
	const char *line, *took;
	double bytes, seconds;
	int rc;

	snprintf(of, sizeof(of), "of=%s", scratch_path(s, "file"));
	snprintf(bs, sizeof(bs), "bs=%lu", DD_BS);
	snprintf(counts, sizeof(counts), "count=%lu", count);
	rc = program_run(argv, -1, STDERR_FILENO, text, sizeof(text));
	unlink(s->path);
	if (rc)
		return -1;
	line = strstr(text, " bytes");
	while (line && line > text && line[-1] >= '0' && line[-1] <= '9')
		line--;
	took = line ? strstr(line, "copied, ") : NULL;
	if (!took || sscanf(line, "%lf", &bytes) != 1 ||
	    sscanf(took, "copied, %lf", &seconds) != 1 || seconds <= 0 ||
	    bytes != (double)(DD_BS * count)) {
		errno = EBADMSG;
		return -1;
	}
	return bytes / seconds / 1e6;
}

static void run_dd(const struct bench_row *row)
{
	double samples[SAMPLES] = { 0 };
	bool failed = false;
	struct scratch s;
	uint64_t begun;
	size_t count = 0;

	if (!ready(&s, row->name, BIG_SIZE + SPARE_SIZE))
		return;
	setenv("LC_ALL", "C", 1);
	if (run_one_dd(&s, 25) < 0) {
		if (errno == ENOENT)
			bench_skip(row->name, "dd is not installed: apt-get install coreutils");
		else
			bench_fail(row->name, "dd");
		goto out;
	}
	bench_begin(row->name);
	begun = bench_now();
	while (!failed && another(count, begun)) {
		samples[count] = run_one_dd(&s, DD_COUNT);
		failed = samples[count++] < 0;
	}
	if (failed)
		bench_fail(row->name, "dd");
	else
		bench_end(row->name, bench_median(samples, count), count * DD_COUNT);
out:
	scratch_remove(&s);
}

static const struct bench_row rows[] = {
	{ "append_256M_bs4K", run_append, 4 * KIB },
	{ "append_256M_bs40K", run_append, 40 * KIB },
	{ "append_256M_bs1024K", run_append, 1024 * KIB },
	{ "fallocate_256M", run_fallocate, 0 },
	{ "pwrite_4K_after_fallocate", run_pwrite_new, ALLOCATED },
	{ "pwrite_4K_fresh", run_pwrite_new, FRESH },
	{ "pwrite_4K_overwrite", run_overwrite, 0 },
	{ "mmap_tmpfs_touch", run_mmap_touch, 0 },
	{ "create_close_unlink", run_create_close_unlink, 0 },
	{ "tmpfs_create", run_create, 0 },
	{ "tmpfs_unlink", run_unlink, 0 },
	{ "tmpfs_stat", run_stat, 0 },
	{ "tmpfs_statfs", run_statfs, 0 },
	{ "getdents_1000", run_getdents, 0 },
	{ "dd_bs40960", run_dd, 0 },
};
BENCH_GROUP(tmpfs, rows);
