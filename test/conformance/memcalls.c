/* Calls about memory that few make: PR_SET_MDWE, process_mrelease, cachestat, remap_file_pages,
 * MAP_DROPPABLE. */
#include "conf.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/utsname.h>

#define PG 4096UL
#define RW (PROT_READ | PROT_WRITE)
#define RWX (RW | PROT_EXEC)
#define RX (PROT_READ | PROT_EXEC)
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#define REFUSE_EXEC_GAIN 1
#define NO_INHERIT 2
#define NR_process_mrelease 448
#define NR_cachestat 451

/* The version that uname tells, as 1000 * major + minor. */
static int version(void)
{
	struct utsname u;
	int major, minor;
	OK(uname(&u));
	CHECK_EQ(sscanf(u.release, "%d.%d", &major, &minor), 2);
	return major * 1000 + minor;
}
static char *map(int prot)
{
	return mmap(NULL, 4 * PG, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void mdwe(unsigned long bits)
{
	if (version() < 6003)
		SKIP("PR_SET_MDWE is of Linux 6.3");
	OK(prctl(PR_SET_MDWE, bits, 0, 0, 0));
	CHECK_EQ(prctl(PR_GET_MDWE, 0, 0, 0, 0), bits);
}

CASE(mdwe_arguments)
{
	if (version() < 6003)
		SKIP("PR_SET_MDWE is of Linux 6.3");
	CHECK_EQ(prctl(PR_GET_MDWE, 0, 0, 0, 0), 0);
	OK(prctl(PR_SET_MDWE, 0, 0, 0, 0));
	CHECK_ERR(prctl(PR_SET_MDWE, NO_INHERIT, 0, 0, 0), EINVAL);
	CHECK_ERR(prctl(PR_SET_MDWE, 4, 0, 0, 0), EINVAL);
	CHECK_ERR(prctl(PR_SET_MDWE, 1, 1, 0, 0), EINVAL);
	CHECK_ERR(prctl(PR_SET_MDWE, 1, 0, 1, 0), EINVAL);
	CHECK_ERR(prctl(PR_SET_MDWE, 1, 0, 0, 1), EINVAL);
	CHECK_ERR(prctl(PR_GET_MDWE, 1, 0, 0, 0), EINVAL);
	CHECK_ERR(prctl(PR_GET_MDWE, 0, 0, 0, 1), EINVAL);
	mdwe(REFUSE_EXEC_GAIN);
	OK(prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0));
	CHECK_ERR(prctl(PR_SET_MDWE, 0, 0, 0, 0), EPERM);
	CHECK_ERR(prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN | NO_INHERIT, 0, 0, 0), EPERM);
}
CASE(mdwe_refuses)
{
	char *before = map(RWX), *writable = map(RW), *code = map(RX), *data = map(PROT_READ);
	CHECK(before != MAP_FAILED && writable != MAP_FAILED && code != MAP_FAILED);
	mdwe(REFUSE_EXEC_GAIN);
	CHECK(map(RWX) == MAP_FAILED && errno == EACCES);
	CHECK(map(PROT_WRITE | PROT_EXEC) == MAP_FAILED && errno == EACCES);
	CHECK(mmap(NULL, PG, RWX, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == EACCES);
	CHECK(map(RX) != MAP_FAILED);
	CHECK(map(RW) != MAP_FAILED);
	CHECK_ERR(mprotect(writable, PG, RX), EACCES);
	CHECK_ERR(mprotect(writable, PG, RWX), EACCES);
	CHECK_ERR(mprotect(data, PG, RX), EACCES);
	CHECK_ERR(mprotect(code, PG, RWX), EACCES);
	OK(mprotect(code, PG, RX));
	OK(mprotect(code, PG, PROT_READ));
	CHECK_ERR(mprotect(code, PG, RX), EACCES);
	OK(mprotect(code + PG, PG, RW));
	CHECK_ERR(mprotect(code + PG, PG, RX), EACCES);
	/* What there was stays, until it changes. */
	before[0] = 1;
	CHECK_ERR(mprotect(before, PG, RWX), EACCES);
	OK(mprotect(before, PG, RX));
	OK(mprotect(writable, PG, PROT_NONE));
	int id = OK(shmget(IPC_PRIVATE, PG, 0700));
	CHECK(shmat(id, NULL, SHM_EXEC) == (void *)-1 && errno == EACCES);
	char *s = shmat(id, NULL, SHM_RDONLY | SHM_EXEC);
	int err = errno;
	OK(shmctl(id, IPC_RMID, NULL));
	CHECK(s != (void *)-1 || err == EACCES);
}
CASE(mdwe_is_inherited)
{
	mdwe(REFUSE_EXEC_GAIN);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(prctl(PR_GET_MDWE, 0, 0, 0, 0), REFUSE_EXEC_GAIN);
		CHECK(map(RWX) == MAP_FAILED && errno == EACCES);
		/* A program still starts, and has it too. */
		execl("/bin/true", "true", NULL);
		_exit(9);
	}
	conf_join(pid);
}
CASE(mdwe_is_not_inherited)
{
	if (version() < 6003)
		SKIP("PR_SET_MDWE is of Linux 6.3");
	if (prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN | NO_INHERIT, 0, 0, 0) < 0)
		SKIP("PR_MDWE_NO_INHERIT is of Linux 6.7");
	CHECK(map(RWX) == MAP_FAILED && errno == EACCES);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(prctl(PR_GET_MDWE, 0, 0, 0, 0), 0);
		CHECK(map(RWX) != MAP_FAILED);
		_exit(0);
	}
	conf_join(pid);
}

static int pidfd(pid_t pid)
{
	return (int)OK(syscall(SYS_pidfd_open, pid, 0));
}
CASE(mrelease_arguments)
{
	int p[2];
	if (version() < 5015)
		SKIP("process_mrelease is of Linux 5.15");
	OK(pipe(p));
	CHECK_ERR(syscall(NR_process_mrelease, -1, 0), EBADF);
	CHECK_ERR(syscall(NR_process_mrelease, p[0], 0), EBADF);
	CHECK_ERR(syscall(NR_process_mrelease, pidfd(getpid()), 1), EINVAL);
	/* Only of those who die anyway. */
	CHECK_ERR(syscall(NR_process_mrelease, pidfd(getpid()), 0), EINVAL);
}
static void hog(void *arg)
{
	char *p = mmap(NULL, 64 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(p, 1, 64 << 20);
	CHECK_EQ(write(*(int *)arg, "x", 1), 1);
	for (;;)
		pause();
}
CASE(mrelease_of_the_killed)
{
	int p[2];
	char c;
	if (version() < 5015)
		SKIP("process_mrelease is of Linux 5.15");
	OK(pipe(p));
	for (int i = 0; i < 8; i++) {
		pid_t pid = conf_fork(hog, &p[1]);
		int fd = pidfd(pid);
		CHECK_EQ(read(p[0], &c, 1), 1);
		CHECK_ERR(syscall(NR_process_mrelease, fd, 0), EINVAL);
		OK(kill(pid, SIGKILL));
		if (syscall(NR_process_mrelease, fd, 0) < 0)
			CHECK_EQ(errno, ESRCH); /* it was faster */
		int status = conf_wait_status(pid);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		CHECK_ERR(syscall(NR_process_mrelease, fd, 0), ESRCH);
		close(fd);
	}
}
static int sharer(void *arg)
{
	for (;;)
		pause();
	return 0;
}
CASE(mrelease_leaves_what_others_use)
{
	static char stack[65536];
	char *mine = map(RW);
	if (version() < 5015)
		SKIP("process_mrelease is of Linux 5.15");
	mine[0] = 7;
	pid_t pid = OK(clone(sharer, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
	int fd = pidfd(pid);
	CHECK_ERR(syscall(NR_process_mrelease, fd, 0), EINVAL);
	OK(kill(pid, SIGKILL));
	CHECK_EQ(syscall(NR_process_mrelease, fd, 0), -1);
	CHECK(errno == EINVAL || errno == ESRCH);
	conf_wait_status(pid);
	CHECK_EQ(mine[0], 7);
}

struct range {
	uint64_t off, len;
};
struct counts {
	uint64_t cache, dirty, writeback, evicted, recently_evicted;
};
static uint64_t cached(int fd, uint64_t off, uint64_t len)
{
	struct range r = { off, len };
	struct counts c = { .cache = 99 };
	OK(syscall(NR_cachestat, fd, &r, &c, 0));
	CHECK_EQ(c.writeback, 0);
	return c.cache;
}
CASE(cachestat_counts_pages)
{
	if (version() < 6005)
		SKIP("cachestat is of Linux 6.5");
	int fd = OK(memfd_create("m", 0));
	CHECK_EQ(cached(fd, 0, 0), 0);
	OK(ftruncate(fd, 100 * PG));
	CHECK_EQ(cached(fd, 0, 0), 0);
	CHECK_EQ(pwrite(fd, "x", 1, 5 * PG), 1);
	CHECK_EQ(pwrite(fd, "x", 1, 50 * PG), 1);
	CHECK_EQ(cached(fd, 0, 0), 2);
	CHECK_EQ(cached(fd, 6 * PG, 0), 1);
	CHECK_EQ(cached(fd, 0, 50 * PG), 1);
	CHECK_EQ(cached(fd, 0, 50 * PG + 1), 2);
	CHECK_EQ(cached(fd, 5 * PG + 4000, 1), 1);
	CHECK_EQ(cached(fd, 1000 * PG, 10), 0);
	CHECK_EQ(cached(fd, UINT64_MAX - PG, 0), 0);
	char *p = mmap(NULL, 100 * PG, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	memset(p + 60 * PG, 1, 10 * PG);
	CHECK_EQ(cached(fd, 0, 0), 12);
	OK(ftruncate(fd, 65 * PG));
	CHECK_EQ(cached(fd, 0, 0), 7);
}
CASE(cachestat_arguments)
{
	struct range r = { 0, 0 };
	struct counts c;
	if (version() < 6005)
		SKIP("cachestat is of Linux 6.5");
	int fd = OK(memfd_create("m", 0)), p[2];
	OK(pipe(p));
	CHECK_ERR(syscall(NR_cachestat, -1, &r, &c, 0), EBADF);
	CHECK_ERR(syscall(NR_cachestat, fd, NULL, &c, 0), EFAULT);
	CHECK_ERR(syscall(NR_cachestat, fd, &r, NULL, 0), EFAULT);
	CHECK_ERR(syscall(NR_cachestat, fd, &r, &c, 1), EINVAL);
	CHECK_EQ(cached(p[0], 0, 0), 0);
	CHECK_EQ(cached(OK(open("/dev/null", O_RDONLY)), 0, 0), 0);
	int exe = OK(open("/proc/self/exe", O_RDONLY));
	CHECK(cached(exe, 0, 0) > 0);
}

/* A file whose pages begin with a, b, c ... */
static int lettered(int pages)
{
	int fd = OK(memfd_create("m", 0));
	for (int i = 0; i < pages; i++) {
		char c = (char)('a' + i);
		CHECK_EQ(pwrite(fd, &c, 1, i * (off_t)PG), 1);
	}
	return fd;
}
static int remap(char *p, size_t pages, size_t first)
{
	return (int)syscall(SYS_remap_file_pages, p, pages * PG, 0, first, 0);
}
CASE(remap_file_pages_rearranges)
{
	int fd = lettered(16);
	char *p = mmap(NULL, 8 * PG, RW, MAP_SHARED, fd, 0), c;
	CHECK(p != MAP_FAILED);
	for (size_t i = 0; i < 8; i++)
		OK(remap(p + i * PG, 1, 15 - 2 * i));
	for (size_t i = 0; i < 8; i++)
		CHECK_EQ(p[i * PG], 'a' + 15 - 2 * (int)i);
	/* It is the file's memory. */
	p[3 * PG] = 'X';
	CHECK_EQ(pread(fd, &c, 1, 9 * PG), 1);
	CHECK_EQ(c, 'X');
	OK(remap(p, 8, 4));
	CHECK(p[0] == 'e' && p[5 * PG] == 'X' && p[7 * PG] == 'l');
	/* The end of the range is rounded down, its start too. */
	OK(syscall(SYS_remap_file_pages, p + 1, PG + 1, 0, 0, -1));
	CHECK(p[0] == 'a' && p[PG] == 'f');
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(p[0] == 'a' && p[PG] == 'f');
		p[PG] = 'Y';
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(p[PG], 'Y');
	/* So is memory without a file; rights and locks stay. */
	char *s = mmap(NULL, 4 * PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(s != MAP_FAILED);
	s[2 * PG] = 7;
	OK(remap(s, 1, 2));
	CHECK_EQ(s[0], 7);
	s = mmap(NULL, 4 * PG, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(s != MAP_FAILED);
	OK(mlock(s, PG));
	OK(remap(s, 1, 3));
	CHECK_EQ(s[0], 'd');
	const char *flags = conf_smaps_row(s, "VmFlags:");
	CHECK(strstr(flags, " lo") && strstr(flags, " mw") && !strstr(flags, " wr"));
	OK(mprotect(s, PG, RW));
}
/* The last attach of a removed segment: it goes, and then there is nothing to map. */
CASE(remap_file_pages_of_segments)
{
	unsigned char vec;
	int id = OK(shmget(IPC_PRIVATE, 4 * PG, 0600));
	char *p = shmat(id, NULL, 0), *q = shmat(id, NULL, 0);
	OK(shmctl(id, IPC_RMID, NULL));
	CHECK(p != (void *)-1 && q != (void *)-1);
	q[2 * PG] = 'x';
	OK(remap(p, 1, 2)); /* not the last one */
	CHECK_EQ(p[0], 'x');
	OK(remap(p, 4, 0));
	OK(munmap(q, 4 * PG));
	CHECK_EQ(p[2 * PG], 'x');
	CHECK_ERR(remap(p, 4, 0), EINVAL);
	CHECK_ERR(mincore(p, 4 * PG, &vec), ENOMEM);
}
CASE(remap_file_pages_arguments)
{
	char *p = mmap(NULL, 8 * PG, RW, MAP_SHARED, lettered(16), 0);
	char *private = mmap(NULL, PG, RW, MAP_PRIVATE, lettered(1), 0);
	CHECK(p != MAP_FAILED && private != MAP_FAILED);
	CHECK_ERR(syscall(SYS_remap_file_pages, p, PG, PROT_READ, 5, 0), EINVAL);
	CHECK_ERR(syscall(SYS_remap_file_pages, p, 100, 0, 5, 0), EINVAL);
	CHECK_ERR(remap(p, 0, 5), EINVAL);
	CHECK_ERR(remap(p, -1UL, 5), EINVAL);
	CHECK_ERR(remap(p, 1, -1UL), EINVAL);
	CHECK_ERR(remap(p, 1, 1UL << 51), EOVERFLOW);
	CHECK_ERR(remap(private, 1, 0), EINVAL);
	CHECK_ERR(remap(map(RW), 1, 0), EINVAL);
	CHECK_ERR(remap(NULL, 1, 0), EINVAL);
	CHECK_EQ(p[0], 'a');
	/* One file, rights that are alike, no hole. */
	OK(mprotect(p + 4 * PG, PG, PROT_READ));
	CHECK_ERR(remap(p + 2 * PG, 4, 0), EINVAL);
	OK(remap(p + 4 * PG, 1, 0));
	OK(mprotect(p + 4 * PG, PG, RW));
	OK(remap(p + 2 * PG, 4, 0));
	CHECK_EQ(p[5 * PG], 'd');
	OK(munmap(p + 3 * PG, PG));
	CHECK_ERR(remap(p + 2 * PG, 3, 0), EINVAL);
	CHECK_ERR(remap(p + 3 * PG, 1, 0), EINVAL);
}
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
static char *droppable(int flags)
{
	return mmap(NULL, 4 * PG, RW, MAP_DROPPABLE | flags, -1, 0);
}
static bool flag(const char *p, const char *name)
{
	return strstr(conf_smaps_row(p, "VmFlags:"), name);
}
CASE(droppable_memory)
{
	char *p = droppable(MAP_ANONYMOUS);
	if (p == MAP_FAILED && !conf_in_sandbox())
		SKIP("MAP_DROPPABLE is of Linux 6.11");
	CHECK(p != MAP_FAILED);
	CHECK(flag(p, " dp") && flag(p, " wf") && flag(p, " dd") && flag(p, " nr"));
	memset(p, 1, 4 * PG);
	CHECK(p[0] == 1 && p[3 * PG] == 1);
	OK(madvise(p, 2 * PG, MADV_PAGEOUT)); /* there is no other place for it */
	if (conf_in_sandbox())
		CHECK(p[0] == 0 && p[PG] == 0);
	CHECK_EQ(p[2 * PG], 1);
	CHECK_ERR(madvise(p, PG, MADV_KEEPONFORK), EINVAL);
	CHECK_ERR(madvise(p, PG, MADV_DODUMP), EINVAL);
	OK(madvise(p, PG, MADV_WIPEONFORK));
	OK(madvise(p, PG, MADV_FREE));
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(p[2 * PG], 0);
		CHECK(flag(p, " dp"));
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(p[2 * PG], 1);
	/* It is not locked, and nobody says so. */
	OK(mlock(p, 2 * PG));
	CHECK(!flag(p, " lo"));
	if (mlockall(MCL_FUTURE) == 0) {
		p = droppable(MAP_ANONYMOUS);
		CHECK(p != MAP_FAILED && !flag(p, " lo"));
	}
}
CASE(droppable_arguments)
{
	if (droppable(MAP_ANONYMOUS) == MAP_FAILED && !conf_in_sandbox())
		SKIP("MAP_DROPPABLE is of Linux 6.11");
	static const int wrong[] = { MAP_SHARED,    MAP_PRIVATE, MAP_LOCKED,
				     MAP_GROWSDOWN, MAP_HUGETLB, MAP_HUGETLB | MAP_LOCKED };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(droppable(MAP_ANONYMOUS | wrong[i]) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, PG, RW, MAP_DROPPABLE, lettered(1), 0) == MAP_FAILED && errno == EINVAL);
	CHECK(droppable(MAP_ANONYMOUS | MAP_POPULATE | MAP_NORESERVE) != MAP_FAILED);
}
CASE(thp_disable_is_of_the_process)
{
	CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
	OK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
		OK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
	CHECK_ERR(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 1), EINVAL);
	CHECK_ERR(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0), EINVAL);
	OK(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
	CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 0);
}
/* Lengths and offsets at the end of what a register can say. */
CASE(overflowing_ranges)
{
	char *p = OK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	const off_t last = INT64_MAX - 8191;
	int fd = OK(memfd_create("x", 0));

	OK(mlock(p, SIZE_MAX)); /* no page at all */
	OK(munlock(p, SIZE_MAX));
	CHECK_ERR(mlock((void *)-1L, 1), EINVAL);
	OK(msync(p, SIZE_MAX, MS_SYNC));
	CHECK_ERR(msync(p, SIZE_MAX - 4096, MS_SYNC), ENOMEM);
	CHECK_ERR(madvise(p, SIZE_MAX, MADV_NORMAL), EINVAL);
	CHECK_ERR(mprotect(p, SIZE_MAX, PROT_READ), ENOMEM);
	OK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, last));
	CHECK_ERR((long)mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, last), EOVERFLOW);
	CHECK_ERR((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, -4096), EOVERFLOW);
}
CONF_MAIN
