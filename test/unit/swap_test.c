/* unit: base pgalloc mm */
/*
 * Guest memory that the host has swapped out is not lost: mincore does not see it, and a
 * copy-on-write break and a scan for what is committed must. Needs the right to swapon, for a small
 * file, and a memory cgroup, from which the pages are reclaimed. The swap is taken away at the end,
 * whatever happens.
 */
#include "mm_fixture.h"

#include "base/host_mem.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

#define SWAP_BYTES (16UL << 20)
#define PAGES_USED 300

static const char *refusal; /* why there is no swap; NULL: there is */

/* ---- the swap ---- */

/* A swap header as mkswap writes it: version 1, the last page, and the magic at the page's end. */
static int write_swap(int fd)
{
	static char page[PAGE_SIZE];
	u32 header[2] = { 1, SWAP_BYTES / PAGE_SIZE - 1 };

	for (u64 at = 0; at < SWAP_BYTES; at += PAGE_SIZE)
		if (pwrite(fd, page, PAGE_SIZE, (off_t)at) != (ssize_t)PAGE_SIZE)
			return -1;
	memcpy(page + 1024, header, sizeof(header));
	memcpy(page + PAGE_SIZE - 10, "SWAPSPACE2", 10);
	return pwrite(fd, page, PAGE_SIZE, 0) == (ssize_t)PAGE_SIZE ? fsync(fd) : -1;
}

static const char *swap_on(char *path)
{
	int fd = mkstemp(path), r;

	if (fd < 0)
		return "no place for a swap file";
	r = write_swap(fd) < 0;
	close(fd);
	if (r)
		return "no space for a swap file";
	return swapon(path, 0) < 0 ? "the host does not allow swapon here" : NULL;
}

static void need_swap(void)
{
	if (refusal) {
		print_message("%s\n", refusal);
		skip();
	}
}

static char group[128]; /* a memory cgroup of our own */

static int write_text(const char *name, const char *text)
{
	char path[256];
	int fd, r;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	fd = open(path, O_WRONLY);
	r = fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
	if (fd >= 0)
		close(fd);
	return r;
}

/* Only what is charged to a cgroup can be reclaimed alone. */
static const char *join_group(void)
{
	char pid[32];

	snprintf(group, sizeof(group), "/sys/fs/cgroup/memory/swap-test-%d", getpid());
	snprintf(pid, sizeof(pid), "%d", getpid());
	if (mkdir(group, 0700) < 0)
		return "no cgroup v1 of memory to reclaim from";
	write_text("memory.swappiness", "100");
	return write_text("cgroup.procs", pid) < 0 ? "the cgroup takes nobody" : NULL;
}

/* Sends out what it can of all pages; true when the page at offset has left. */
static bool page_out(u64 offset)
{
	unsigned char vec = 1;
	u64 len;
	char *m = pgalloc_file(memory)->ops->map(pgalloc_file(memory), offset, &len);

	host_madvise(m, PAGE_SIZE, MADV_PAGEOUT);
	write_text("memory.force_empty", "0");
	host_mincore(m, PAGE_SIZE, &vec);
	return !(vec & 1);
}

/* ---- tests ---- */

static bool used(u64 page)
{
	return page % 7 == 0 || page % 64 == 3 || page % 64 == 4;
}

static void test_scan(void **state)
{
	struct pgalloc_opts opts = { .mode = PGALLOC_ALLOCATE }, copy = opts;
	struct mem_range r, to, run, rest;
	u64 len, out = 0, next = 0, word;

	(void)state;
	need_swap();
	assert_int_equal(safecopy_init(), 0);
	assert_int_equal(pgalloc_new_memfd(0, 1UL << 30, &memory), 0);
	assert_int_equal(pgalloc_allocate(memory, PAGES_USED * PAGE_SIZE, &opts, &r), 0);
	/* As a guest does it, unseen. */
	for (u64 i = 0; i < PAGES_USED; i++)
		if (used(i)) {
			u64 *m = pgalloc_file(memory)->ops->map(pgalloc_file(memory),
								r.start + i * PAGE_SIZE, &len);

			m[9] = 4000 + i;
		}
	out = page_out(r.start) + page_out(r.start + 7 * PAGE_SIZE);
	if (!out) {
		print_message("the host keeps the pages\n");
		skip();
	}
	assert_int_equal(pgalloc_allocate_copy(memory, r, true, memory, &copy, &to), 0);
	for (u64 i = 0; i < PAGES_USED; i++) {
		assert_int_equal(pgalloc_read(memory, to.start + i * PAGE_SIZE + 72, &word, 8), 0);
		assert_int_equal(word, used(i) ? 4000 + i : 0);
	}
	page_out(to.start);
	/* Exactly what there is. */
	for (rest = to; pgalloc_next_committed(memory, rest, &run); rest.start = run.end)
		for (u64 at = run.start; at < run.end; at += PAGE_SIZE) {
			while (!used(next))
				next++;
			assert_int_equal((at - to.start) / PAGE_SIZE, next);
			next++;
		}
	while (next < PAGES_USED && !used(next))
		next++;
	assert_int_equal(next, PAGES_USED);
	memfile_put(pgalloc_file(memory), r);
	memfile_put(pgalloc_file(memory), to);
	assert_baseline();
	pgalloc_free(memory);
}

/* Where in the memory file the page is. */
static u64 mapped_at(struct mm *mm, int i)
{
	u64 word;

	assert_int_equal(fake_access(mm, address(i), &word, 8, false), 0);
	return (*fake_slot(mm_as(mm), address(i)))->offset;
}

static void check(struct mm *mm, int i, u64 want)
{
	u64 got = ~0UL;

	assert_int_equal(fake_access(mm, address(i) + 72, &got, 8, false), 0);
	assert_int_equal(got, want);
}

static void test_break(void **state)
{
	struct mm *mm, *child;
	u64 value, out;

	(void)state;
	need_swap();
	begin();
	mm = procs[0].mm;
	assert_int_equal(map_anon(mm, address(0), PAGES_USED * PAGE_SIZE, PROT_READ | PROT_WRITE,
				  MAP_FIXED, &no_limits),
			 (s64)address(0));
	for (int i = 0; i < PAGES_USED; i++) {
		value = 5000 + (u64)i;
		if (used((u64)i))
			assert_int_equal(fake_access(mm, address(i) + 72, &value, 8, true), 0);
	}
	out = page_out(mapped_at(mm, 0));
	assert_int_equal(fake_fork(mm, &child), 0);
	procs[1].mm = child;
	out += page_out(mapped_at(mm, 0));
	/* Breaks in many places; each copies what is around it. */
	for (int i = 5; i < PAGES_USED; i += 11) {
		value = 9000 + (u64)i;
		assert_int_equal(fake_access(child, address(i) + 2048, &value, 8, true), 0);
		if (i % 2)
			page_out(mapped_at(mm, 0));
	}
	for (int i = 0; i < PAGES_USED; i++) {
		check(child, i, used((u64)i) ? 5000 + (u64)i : 0);
		check(mm, i, used((u64)i) ? 5000 + (u64)i : 0);
	}
	end();
	if (!out) {
		print_message("the host keeps the pages\n");
		skip();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_break),
	};
	char path[] = "/var/tmp/swap-test-XXXXXX";
	int status = 0;
	pid_t pid;

	refusal = geteuid() == 0 ? swap_on(path) : "needs root";
	/* A child, so that the swap goes even if it crashes. */
	pid = fork();
	if (pid == 0 && !refusal)
		refusal = join_group();
	if (pid == 0)
		_exit(cmocka_run_group_tests(tests, NULL, NULL));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		status = 1;
	if (!refusal)
		swapoff(path);
	snprintf(group, sizeof(group), "/sys/fs/cgroup/memory/swap-test-%d", pid);
	rmdir(group);
	unlink(path);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
