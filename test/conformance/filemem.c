/* Pages of files in memory: what mincore tells of them, major faults, SEEK_DATA of what fallocate
 * has made. */
#include "conf.h"
#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/vfs.h>

#define PG 4096UL
#define RW (PROT_READ | PROT_WRITE)

static int in_memory(void)
{
	int fd = OK(open("/dev/shm", O_TMPFILE | O_RDWR, 0600));
	return fd;
}
static char *map(int fd, size_t pages, int prot, int flags)
{
	char *p = mmap(NULL, pages * PG, prot, flags, fd, 0);
	CHECK(p != MAP_FAILED);
	return p;
}
/* "1101": residency of pages. */
static const char *residency(char *p, size_t pages)
{
	static char text[65];
	unsigned char vec[64];
	CHECK(pages < sizeof(text));
	OK(mincore(p, pages * PG, vec));
	for (size_t i = 0; i < pages; i++)
		text[i] = vec[i] & 1 ? '1' : '0';
	text[pages] = '\0';
	return text;
}
/* "2-3 5-6": the data that SEEK_DATA and SEEK_HOLE tell of, in pages. */
static const char *data_of(int fd)
{
	static char text[400];
	off_t at = 0, end;
	text[0] = '\0';
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = OK(lseek(fd, at, SEEK_HOLE));
		CHECK(end > at);
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%ld-%ld",
			 text[0] ? " " : "", (long)(at / (off_t)PG),
			 (long)(((size_t)end + PG - 1) / PG));
		at = end;
	}
	CHECK_EQ(errno, ENXIO);
	return text;
}

CASE(fallocated_is_a_hole_until_written)
{
	int fd = in_memory();
	char page[PG] = "";
	struct stat st;
	OK(fallocate(fd, 0, 0, 16 * PG));
	CHECK_STR(data_of(fd), "");
	CHECK_EQ(lseek(fd, 0, SEEK_HOLE), 0);
	CHECK_EQ(lseek(fd, 5 * PG + 7, SEEK_HOLE), 5 * PG + 7);
	CHECK_EQ(pread(fd, page, PG, PG), PG);
	CHECK_STR(data_of(fd), "");
	CHECK_EQ(pwrite(fd, "x", 1, 2 * PG), 1);
	CHECK_STR(data_of(fd), "2-3");
	CHECK_EQ(pwrite(fd, page, PG, 5 * PG), PG);
	CHECK_EQ(pwrite(fd, page, PG, 6 * PG - 1), PG);
	CHECK_STR(data_of(fd), "2-3 5-7");
	OK(fstat(fd, &st));
	CHECK_EQ(st.st_blocks, 16 * 8);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PG, PG));
	CHECK_STR(data_of(fd), "5-7");
	/* What had been allocated is written by a second fallocate, with zeros. */
	OK(fallocate(fd, 0, 0, 4 * PG));
	CHECK_STR(data_of(fd), "0-2 3-4 5-7");
	OK(ftruncate(fd, 6 * PG));
	OK(ftruncate(fd, 16 * PG));
	CHECK_STR(data_of(fd), "0-2 3-4 5-6");
	OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 16 * PG, 4 * PG));
	OK(ftruncate(fd, 20 * PG));
	CHECK_STR(data_of(fd), "0-2 3-4 5-6");
	CHECK_EQ(pwrite(fd, "x", 1, 18 * PG), 1);
	CHECK_STR(data_of(fd), "0-2 3-4 5-6 18-19");
}
CASE(fallocated_is_data_when_mapped)
{
	int fd = in_memory();
	OK(fallocate(fd, 0, 0, 8 * PG));
	char *p = map(fd, 8, RW, MAP_SHARED);
	CHECK_EQ(p[3 * PG], 0);
	off_t at = OK(lseek(fd, 3 * PG, SEEK_DATA));
	CHECK_EQ(at, 3 * PG);
	/* What a mapping has is never told as a hole. */
	p[5 * PG] = 1;
	CHECK_EQ(lseek(fd, 5 * PG, SEEK_DATA), 5 * PG);
	CHECK(lseek(fd, 5 * PG, SEEK_HOLE) >= (off_t)(6 * PG));
}
/* Each second page is written; then the rest, backwards. */
CASE(fallocated_in_many_pieces)
{
	int fd = in_memory();
	size_t n = 2000;
	OK(fallocate(fd, 0, 0, (off_t)(n * PG)));
	for (size_t i = 0; i < n; i += 2)
		CHECK_EQ(pwrite(fd, &i, sizeof(i), (off_t)(i * PG + 100)), sizeof(i));
	for (size_t i = 0; i < n; i += 2) {
		CHECK_EQ(lseek(fd, (off_t)(i * PG), SEEK_DATA), i * PG);
		CHECK_EQ(lseek(fd, (off_t)(i * PG), SEEK_HOLE), (i + 1) * PG);
		if (i + 2 < n)
			CHECK_EQ(lseek(fd, (off_t)((i + 1) * PG), SEEK_DATA), (i + 2) * PG);
	}
	for (size_t i = n - 1; i < n; i -= 2)
		CHECK_EQ(pwrite(fd, &i, sizeof(i), (off_t)(i * PG + 100)), sizeof(i));
	CHECK_EQ(lseek(fd, 0, SEEK_HOLE), n * PG);
	for (size_t i = 0; i < n; i++) {
		size_t v;
		CHECK_EQ(pread(fd, &v, sizeof(v), (off_t)(i * PG + 100)), sizeof(v));
		CHECK_EQ(v, i);
	}
}

CASE(mincore_tells_of_the_file)
{
	int fd = in_memory();
	OK(ftruncate(fd, 6 * PG));
	char *p = map(fd, 8, RW, MAP_SHARED), *q = map(fd, 8, RW, MAP_PRIVATE);
	CHECK_STR(residency(p, 8), "00000000");
	CHECK_EQ(pwrite(fd, "x", 1, PG), 1);
	/* Nobody has touched the mappings. */
	CHECK_STR(residency(p, 8), "01000000");
	CHECK_STR(residency(q, 8), "01000000");
	p[3 * PG] = 1;
	CHECK_STR(residency(p, 8), "01010000");
	CHECK_STR(residency(q, 8), "01010000");
	q[5 * PG] = 1; /* its own, and the file's */
	CHECK_STR(residency(q, 8), "01010100");
	OK(fallocate(fd, 0, 0, PG));
	CHECK_EQ(residency(p, 8)[0], '0');
	CHECK_STR(residency(p + PG, 3), "101");
	OK(ftruncate(fd, 2 * PG));
	CHECK_STR(residency(p, 8), "01000000");
	CHECK_STR(residency(q, 8), "01000000");
}
static void other_writes(void *p)
{
	((char *)p)[2 * PG] = 1;
}
CASE(mincore_sees_what_others_touched)
{
	char *p = map(-1, 4, RW, MAP_SHARED | MAP_ANONYMOUS);
	conf_join(conf_fork(other_writes, p));
	CHECK_STR(residency(p, 4), "0010");
	int id = OK(shmget(IPC_PRIVATE, 4 * PG, 0600));
	char *s = shmat(id, NULL, 0);
	CHECK(s != (void *)-1);
	OK(shmctl(id, IPC_RMID, NULL));
	conf_join(conf_fork(other_writes, s));
	CHECK_STR(residency(s, 4), "0010");
	char *a = map(-1, 4, RW, MAP_PRIVATE | MAP_ANONYMOUS);
	a[PG] = 1;
	conf_join(conf_fork(other_writes, a));
	CHECK_STR(residency(a, 4), "0100");
}

static long majors(void)
{
	struct rusage ru;
	OK(getrusage(RUSAGE_SELF, &ru));
	return ru.ru_majflt;
}
static long stat_majors(void)
{
	char text[1024] = "";
	long v;
	int fd = OK(open("/proc/self/stat", O_RDONLY));
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	CHECK_EQ(sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %ld", &v), 1);
	return v;
}
/* A mapping whose page *ret_page is not in memory, but in a file that is elsewhere. */
static char *not_in_memory(size_t *ret_page)
{
	if (!conf_in_sandbox()) {
		static char block[1 << 20];
		int fd = OK(open(conf_path("big"), O_RDWR | O_CREAT, 0600));
		memset(block, 'x', sizeof(block));
		for (int i = 0; i < 8; i++)
			CHECK_EQ(write(fd, block, sizeof(block)), sizeof(block));
		OK(fsync(fd));
		OK(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
		*ret_page = 1000;
		return map(fd, 2048, PROT_READ, MAP_SHARED);
	}
	/* Of the host's programs some have not been run in this sandbox. */
	DIR *d = opendir("/usr/bin");
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));) {
		struct stat st;
		char path[300];
		snprintf(path, sizeof(path), "/usr/bin/%s", e->d_name);
		int fd = open(path, O_RDONLY);
		if (fd < 0)
			continue;
		OK(fstat(fd, &st));
		if (S_ISREG(st.st_mode) && st.st_size > 1 << 20) {
			size_t pages = (size_t)st.st_size / PG;
			char *p = map(fd, pages, PROT_READ, MAP_PRIVATE);
			*ret_page = pages / 2;
			if (residency(p + pages / 2 * PG, 1)[0] == '0')
				return p;
		}
		close(fd);
	}
	SKIP("no large program in /usr/bin");
}
CASE(reading_a_file_is_a_major_fault)
{
	size_t page;
	char *p = not_in_memory(&page);
	if (residency(p + page * PG, 1)[0] != '0')
		SKIP("the page cache keeps the file");
	long before = majors(), before_stat = stat_majors();
	*(volatile char *)(p + page * PG);
	CHECK_STR(residency(p + page * PG, 1), "1");
	CHECK_EQ(majors(), before + 1);
	CHECK_EQ(stat_majors(), before_stat + 1);
	*(volatile char *)(p + page * PG);
	CHECK_EQ(majors(), before + 1);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(majors(), 0);
		*(volatile char *)(p + page * PG);
		CHECK_EQ(majors(), 0);
		_exit(0);
	}
	conf_join(pid);
}
CASE(memory_is_never_a_major_fault)
{
	long before = majors();
	char *p = map(-1, 64, RW, MAP_PRIVATE | MAP_ANONYMOUS);
	memset(p, 1, 64 * PG);
	int fd = in_memory();
	OK(ftruncate(fd, 64 * PG));
	p = map(fd, 64, RW, MAP_SHARED);
	memset(p, 1, 64 * PG);
	CHECK_EQ(majors(), before);
}

/* ---- what is given back: in a file system of the case's own, where nobody else allocates ---- */

static void own_tmpfs(void)
{
	const char *dir = conf_path("own");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		SKIP("no mount namespaces here (errno %d)", errno);
	OK(mkdir(dir, 0755));
	if (mount("none", dir, "tmpfs", 0, "size=64m,nr_inodes=1000") < 0)
		SKIP("may not mount here (errno %d)", errno);
	OK(chdir(dir));
}
static struct statfs space(void)
{
	struct statfs st;
	OK(statfs(".", &st));
	return st;
}
CASE(overwritten_files_give_memory_back)
{
	static char block[1 << 20];
	own_tmpfs();
	struct statfs begin = space();
	memset(block, 1, sizeof(block));
	for (int i = 0; i < 30; i++) {
		int fd = OK(open("temp", O_CREAT | O_EXCL | O_WRONLY, 0600));
		for (int mb = 0; mb < 16; mb++)
			CHECK_EQ(write(fd, block, sizeof(block)), sizeof(block));
		close(fd);
		OK(rename("temp", "target"));
		CHECK_EQ(begin.f_bfree - space().f_bfree, 16 << 8);
	}
	int fd = OK(open("target", O_RDWR));
	char *p = mmap(NULL, 16 << 20, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	OK(unlink("target"));
	CHECK_EQ(begin.f_bfree - space().f_bfree, 16 << 8);
	close(fd);
	CHECK_EQ(p[0], 1);
	CHECK_EQ(begin.f_bfree - space().f_bfree, 16 << 8);
	OK(munmap(p, 16 << 20));
	CHECK_EQ(begin.f_bfree, space().f_bfree);
	CHECK_EQ(begin.f_ffree, space().f_ffree);
}
CASE(ever_new_names_leave_nothing)
{
	char name[32];
	own_tmpfs();
	struct statfs begin = space();
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "name-%d", i);
		int fd = OK(open(name, O_CREAT | O_EXCL | O_WRONLY, 0600));
		CHECK_EQ(write(fd, name, sizeof(name)), sizeof(name));
		OK(unlink(name));
		OK(close(fd));
	}
	CHECK_EQ(begin.f_bfree, space().f_bfree);
	CHECK_EQ(begin.f_ffree, space().f_ffree);
}
CONF_MAIN
