/* unit: base pgalloc vfs tmpfs mm */
/* wrap: host_mem_fallocate host_mem_truncate host_mem_pwrite host_mem_copy_range host_mmap host_madvise */
/*
 * The host runs out of memory or space: each of its calls fails in turn, in the middle of a
 * copy-on-write break and of a file's filling. No half-copied page is ever seen, all is as it was
 * or as it should be, the next try works, and in the end nothing is in use.
 */
#include "mm_fixture.h"

#include "base/host_mem.h"
#include "pgalloc/promise.h"
#include "tmpfs/tmpfs.h"
#include <fcntl.h>
#include <linux/falloc.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

/* ---- the host that fails ---- */

static int countdown; /* the call that fails: 1 the next one; 0: none */
static int failure;   /* its error */
static bool short_write;

static bool fails(void)
{
	return countdown > 0 && --countdown == 0;
}

int __real_host_mem_fallocate(int fd, int mode, u64 offset, u64 len);
int __wrap_host_mem_fallocate(int fd, int mode, u64 offset, u64 len)
{
	return fails() ? -failure : __real_host_mem_fallocate(fd, mode, offset, len);
}

int __real_host_mem_truncate(int fd, u64 size);
int __wrap_host_mem_truncate(int fd, u64 size)
{
	return fails() ? -failure : __real_host_mem_truncate(fd, size);
}

/* What is written before the error stays, as the host does it. */
ssize_t __real_host_mem_pwrite(int fd, const void *src, size_t len, u64 offset);
ssize_t __wrap_host_mem_pwrite(int fd, const void *src, size_t len, u64 offset)
{
	if (!fails())
		return __real_host_mem_pwrite(fd, src, len, offset);
	if (!short_write || len < 3000)
		return -failure;
	return __real_host_mem_pwrite(fd, src, len / 2 + 100, offset);
}

ssize_t __real_host_mem_copy_range(int fd_in, u64 src, int fd_out, u64 dst, size_t len);
ssize_t __wrap_host_mem_copy_range(int fd_in, u64 src, int fd_out, u64 dst, size_t len)
{
	if (!fails())
		return __real_host_mem_copy_range(fd_in, src, fd_out, dst, len);
	if (!short_write || len < 3000)
		return -failure;
	return __real_host_mem_copy_range(fd_in, src, fd_out, dst, len / 2 + 100);
}

int __real_host_mmap(void *addr, size_t len, int prot, int flags, int fd, u64 offset, void **ret);
int __wrap_host_mmap(void *addr, size_t len, int prot, int flags, int fd, u64 offset, void **ret)
{
	return fails() ? -ENOMEM : __real_host_mmap(addr, len, prot, flags, fd, offset, ret);
}

int __real_host_madvise(void *addr, size_t len, int advice);
int __wrap_host_madvise(void *addr, size_t len, int advice)
{
	return fails() ? -ENOMEM : __real_host_madvise(addr, len, advice);
}

static void fail_at(int n, int err, bool part)
{
	countdown = n;
	failure = err;
	short_write = part;
}

/* True when the failure has happened; none will from now on. */
static bool failed(void)
{
	bool yes = countdown == 0;

	countdown = 0;
	return yes;
}

/* ---- copy-on-write ---- */

#define BREAK_PAGES 40

static void fill_page(u64 *page, u64 seed)
{
	for (size_t i = 0; i < PAGE_SIZE / 8; i++)
		page[i] = seed * 1000003 + i;
}

static void write_page(struct mm *mm, int n, u64 seed)
{
	u64 page[PAGE_SIZE / 8];

	fill_page(page, seed);
	assert_int_equal(fake_access(mm, address(n), page, PAGE_SIZE, true), 0);
}

/* first: what the first word is now, 0: as it was. */
static void assert_page_but(struct mm *mm, int n, u64 seed, u64 first)
{
	u64 want[PAGE_SIZE / 8], got[PAGE_SIZE / 8];

	fill_page(want, seed);
	want[0] = first ? first : want[0];
	assert_int_equal(fake_access(mm, address(n), got, PAGE_SIZE, false), 0);
	assert_memory_equal(want, got, PAGE_SIZE);
}

static void assert_page(struct mm *mm, int n, u64 seed)
{
	assert_page_but(mm, n, seed, 0);
}

/* Breaks a page with the n-th host call failing; false when there are not so many. */
static bool one_break(int n, int err, bool part)
{
	struct mm *mm, *child;
	u64 value = 77;
	bool happened;
	int r;

	begin();
	mm = procs[0].mm;
	assert_int_equal(map_anon(mm, address(0), BREAK_PAGES * PAGE_SIZE, PROT_READ | PROT_WRITE,
				  MAP_FIXED, &no_limits),
			 (s64)address(0));
	for (int i = 0; i < BREAK_PAGES; i += 1 + i % 3)
		write_page(mm, i, (u64)i);
	assert_int_equal(fake_fork(mm, &child), 0);
	procs[1].mm = child;
	fail_at(n, err, part);
	for (int i = 0; i < BREAK_PAGES && countdown; i += 1 + i % 3) {
		r = fake_access(child, address(i), &value, sizeof(value), true);
		if (r < 0)
			assert_int_equal(r, -ENOMEM);
		else
			assert_int_equal(r, 0);
		assert_page_but(child, i, (u64)i, r == 0 ? value : 0);
	}
	happened = failed();
	/* The parent has its own, whatever became of the child's. */
	for (int i = 0; i < BREAK_PAGES; i += 1 + i % 3)
		assert_page(mm, i, (u64)i);
	for (int i = 0; i < BREAK_PAGES; i += 1 + i % 3) {
		write_page(child, i, 2000 + (u64)i);
		assert_page(mm, i, (u64)i);
	}
	for (int i = 0; i < BREAK_PAGES; i += 1 + i % 3)
		assert_page(child, i, 2000 + (u64)i);
	end();
	return happened;
}

static void test_break(void **state)
{
	static const int errors[] = { ENOMEM, ENOSPC, EFAULT };

	(void)state;
	for (size_t e = 0; e < ARRAY_SIZE(errors); e++) {
		int n = 1;

		while (one_break(n, errors[e], false))
			n++;
		assert_true(n > 1); /* the host was asked for something */
		for (n = 1; one_break(n, errors[e], true);)
			n++;
	}
}

/* First writes to anonymous memory, and fork itself. */
static bool one_touch(int n)
{
	struct mm *mm, *child = NULL;
	u64 value = 1;
	bool happened;
	int r;

	begin();
	mm = procs[0].mm;
	fail_at(n, ENOMEM, false);
	assert_int_equal(map_anon(mm, address(0), 64 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_FIXED,
				  &no_limits),
			 (s64)address(0));
	for (int i = 0; i < 64; i += 7) {
		r = fake_access(mm, address(i), &value, sizeof(value), true);
		assert_true(r == 0 || r == -ENOMEM);
	}
	r = fake_fork(mm, &child);
	assert_true(r == 0 || r == -ENOMEM);
	procs[1].mm = r == 0 ? child : NULL;
	happened = failed();
	for (int i = 0; i < 64; i++)
		write_page(mm, i, (u64)i);
	for (int i = 0; i < 64; i++)
		assert_page(mm, i, (u64)i);
	end();
	return happened;
}

static void test_touch(void **state)
{
	int n = 1;

	(void)state;
	while (one_touch(n))
		n++;
	assert_true(n > 1);
}

/* ---- files in memory ---- */

#define FILE_PAGES 48

static struct superblock *sb;
static const struct cred *root;

static void begin_files(int disk_fd)
{
	struct tmpfs_options o = { .mode = 01777, .size_limit = 64UL << 20, .inode_limit = 100 };

	assert_int_equal(safecopy_init(), 0);
	if (disk_fd >= 0)
		assert_int_equal(pgalloc_new(disk_fd, true, 0, 1UL << 32, &memory), 0);
	else
		assert_int_equal(pgalloc_new_memfd(0, 1UL << 32, &memory), 0);
	o.store = memory;
	assert_int_equal(tmpfs_new(&o, &sb), 0);
	root = cred_new(0, 0, ~0ULL);
}

static void end_files(void)
{
	struct pgalloc_usage u;

	superblock_drop_root(sb);
	superblock_put(sb);
	pgalloc_usage(memory, &u);
	assert_int_equal(u.reserved, 0);
	assert_int_equal(u.committed, 0);
	assert_int_equal(pgalloc_promise(memory)->bytes, 0);
	pgalloc_free(memory);
	cred_put(root);
}

static u64 blocks_of(struct file *f)
{
	struct kstat st;

	assert_int_equal(inode_getattr(f->inode, &st), 0);
	return st.blocks;
}

static u64 used_pages(void)
{
	struct statfs st;

	assert_int_equal(sb->ops->statfs(sb, &st), 0);
	return st.f_blocks - st.f_bfree;
}

static ssize_t write_at(struct file *f, const void *src, size_t len, u64 offset)
{
	struct iovec v = { (void *)(uintptr_t)src, len };
	struct kiov k;

	kiov_init(&k, &v, 1);
	return f->ops->write(f, &k, offset, 0);
}

static ssize_t read_at(struct file *f, void *dst, size_t len, u64 offset)
{
	struct iovec v = { dst, len };
	struct kiov k;

	kiov_init(&k, &v, 1);
	return f->ops->read(f, &k, offset, 0);
}

/* What has been written is there, the rest reads as zero, the accounts agree. */
static void assert_file(struct file *f, const char *model, size_t size)
{
	static char got[FILE_PAGES * PAGE_SIZE];

	memset(got, 0, sizeof(got));
	assert_true(read_at(f, got, sizeof(got), 0) >= 0);
	assert_memory_equal(got, model, size);
	assert_int_equal(blocks_of(f) / 8, used_pages());
}

static bool one_fill(int n, int err, bool part, size_t step, bool allocate)
{
	static char model[FILE_PAGES * PAGE_SIZE], data[FILE_PAGES * PAGE_SIZE];
	struct file *f;
	bool happened;

	begin_files(-1);
	memset(model, 0, sizeof(model));
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / PAGE_SIZE + 1);
	assert_int_equal(memfd_create_file(sb, "f", 0, root, &f), 0);
	fail_at(n, err, part);
	for (size_t at = 0; at < sizeof(data) && countdown; at += step) {
		size_t len = MIN(step, sizeof(data) - at);
		ssize_t r;

		if (allocate) {
			r = f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE, at, len);
			assert_true(r == 0 || r == -ENOMEM || r == -ENOSPC || r == -EFAULT);
		}
		r = write_at(f, data + at, len, at);
		assert_true(r > 0 ? (size_t)r <= len
				  : r == -ENOMEM || r == -ENOSPC || r == -EFAULT);
		if (r > 0)
			memcpy(model + at, data + at, (size_t)r);
		if (r < 0 && !countdown)
			break;
	}
	happened = failed();
	assert_file(f, model, sizeof(model));
	for (size_t at = 0; at < sizeof(data); at += step) {
		size_t len = MIN(step, sizeof(data) - at);

		assert_int_equal(write_at(f, data + at, len, at), len);
	}
	assert_file(f, data, sizeof(data));
	assert_int_equal(blocks_of(f), FILE_PAGES * 8);
	file_put(f);
	end_files();
	return happened;
}

static void test_fill(void **state)
{
	static const size_t steps[] = { 1000, PAGE_SIZE, 5 * PAGE_SIZE + 100,
					FILE_PAGES * PAGE_SIZE };
	static const int errors[] = { ENOMEM, ENOSPC };

	(void)state;
	for (size_t s = 0; s < ARRAY_SIZE(steps); s++)
		for (size_t e = 0; e < ARRAY_SIZE(errors); e++)
			for (int way = 0; way < 4; way++) {
				int n = 1;

				while (one_fill(n, errors[e], way & 1, steps[s], way & 2))
					n++;
				assert_true(n > 1);
			}
}

/* A mapping of the file asks for pages: an error, which is SIGBUS or the end by OOM, or the page.
 */
static bool one_translate(int n)
{
	struct mappable *m;
	struct file *f;
	bool happened;
	u32 got = 0;

	begin_files(-1);
	assert_int_equal(memfd_create_file(sb, "f", 0, root, &f), 0);
	assert_int_equal(vfs_ftruncate(f, FILE_PAGES * PAGE_SIZE), 0);
	assert_int_equal(f->ops->mappable(f, &m), 0);
	fail_at(n, ENOMEM, false);
	for (u64 p = 0; p < FILE_PAGES; p++) {
		struct translation t;
		int r = m->ops->translate(m, p * PAGE_SIZE, 0, FILE_PAGES * PAGE_SIZE, true, &t);

		assert_true(r == 0 || r == -ENOMEM || r == -ENOSPC);
		if (r == 0) {
			memfile_put(t.file, t.range);
			got++;
		}
	}
	happened = failed();
	assert_true(got + 1 >= FILE_PAGES);
	assert_int_equal(blocks_of(f) / 8, used_pages());
	m->ops->put(m);
	file_put(f);
	end_files();
	return happened;
}

static void test_translate(void **state)
{
	int n = 1;

	(void)state;
	while (one_translate(n))
		n++;
	assert_true(n > 1);
}

/* ---- a file store on a host's disk that is full ---- */

#define DISK_BYTES (4UL << 20)

/* A file of a small file system that nobody else sees. -1: the host does not let us. */
static int small_disk(void)
{
	char path[] = "/tmp/exhaustion-XXXXXX", name[64];
	int fd = -1;

	if (!mkdtemp(path))
		return -1;
	snprintf(name, sizeof(name), "%s/store", path);
	if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	    mount("none", path, "tmpfs", 0, "size=4m") == 0) {
		fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		unlink(name);
		umount2(path, MNT_DETACH);
	}
	rmdir(path);
	return fd;
}

static void fill_disk(size_t size)
{
	static char block[64 << 10], got[64 << 10];
	int fd = small_disk();
	size_t written = 0, before;
	struct file *f, *g;
	ssize_t n;

	if (fd < 0) {
		print_message("needs the right to mount\n");
		skip();
	}
	begin_files(fd);
	memset(block, 'd', sizeof(block));
	assert_int_equal(memfd_create_file(sb, "f", 0, root, &f), 0);
	assert_int_equal(memfd_create_file(sb, "g", 0, root, &g), 0);
	while ((n = write_at(f, block, size, written)) > 0)
		written += (size_t)n;
	assert_int_equal(n, -ENOSPC);
	assert_true(written > DISK_BYTES / 2 && written <= DISK_BYTES);
	assert_int_equal(write_at(g, "x", 1, 0), -ENOSPC);
	assert_int_equal(g->ops->fallocate(g, 0, 0, 1 << 20), -ENOSPC);
	/* All that was said to be written is there. */
	for (size_t at = 0; at < written; at += (size_t)n) {
		n = read_at(f, got, sizeof(got), at);
		assert_true(n > 0);
		assert_memory_equal(got, block, MIN((size_t)n, written - at));
	}
	/* Space that is given back can be had again. */
	before = written / 2 & PAGE_MASK;
	assert_int_equal(vfs_ftruncate(f, before), 0);
	assert_int_equal(write_at(g, block, sizeof(block), 0), sizeof(block));
	assert_int_equal(read_at(g, got, sizeof(got), 0), sizeof(got));
	assert_memory_equal(got, block, sizeof(block));
	assert_int_equal((blocks_of(f) + blocks_of(g)) / 8, used_pages());
	file_put(f);
	file_put(g);
	end_files();
}

static void test_full_disk(void **state)
{
	fill_disk(64 << 10);
}

/* Small writes in order have pages made ahead of them. */
static void test_full_disk_small(void **state)
{
	fill_disk(4 << 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_break),	  cmocka_unit_test(test_touch),
		cmocka_unit_test(test_fill),	  cmocka_unit_test(test_translate),
		cmocka_unit_test(test_full_disk), cmocka_unit_test(test_full_disk_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
