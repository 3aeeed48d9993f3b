/* mseal: what a sealed mapping refuses, what it allows, and what becomes of the seal. */
#include "conf.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <time.h>

#define PG 4096UL
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define NR_mseal 462
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static int seal(const void *p, size_t len)
{
	return (int)syscall(NR_mseal, p, len, 0);
}
/* Natively before Linux 6.10 there is none. */
static void need_mseal(void)
{
	if (!conf_in_sandbox() && seal(NULL, 0) < 0 && errno == ENOSYS)
		SKIP("mseal is of Linux 6.10");
}
static char *map(size_t pages, int prot)
{
	char *p = mmap(NULL, pages * PG, prot, PRIVATE, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}
/* pages of RW memory that hold their numbers, with unmapped pages around them. */
static char *numbered(size_t pages)
{
	char *p = map(pages + 2, RW);
	OK(munmap(p, PG));
	OK(munmap(p + (pages + 1) * PG, PG));
	p += PG;
	for (size_t i = 0; i < pages; i++)
		p[i * PG] = (char)(i + 1);
	return p;
}
/* A free place. */
static char *room(size_t pages)
{
	char *p = map(pages, PROT_NONE);
	OK(munmap(p, pages * PG));
	return p;
}
static bool sealed(const char *p)
{
	return strstr(conf_smaps_row(p, "VmFlags:"), " sl");
}
static unsigned long size_at(const char *p)
{
	return conf_bytes(conf_smaps_row(p, "Size:")) / PG;
}
static bool mapped(char *p)
{
	unsigned char vec;
	return mincore(p, 1, &vec) == 0;
}
/* Nothing has happened to numbered memory. */
static void check_intact(char *p, size_t pages)
{
	for (size_t i = 0; i < pages; i++) {
		CHECK_EQ(p[i * PG], i + 1);
		p[i * PG + 1] = 1;
	}
}
static char *moved(char *p, size_t old, size_t new, int flags, char *to)
{
	return mremap(p, old * PG, new *PG, flags, to);
}
#define REFUSES_MOVE(err_, ...)                                                                    \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK(moved(__VA_ARGS__) == MAP_FAILED);                                           \
		CHECK_EQ(errno, err_);                                                             \
	} while (0)

/* ---- the call ---- */

CASE(arguments)
{
	need_mseal();
	char *p = map(8, RW);
	CHECK_ERR(syscall(NR_mseal, p, PG, 1), EINVAL);
	CHECK_ERR(syscall(NR_mseal, p, 0, 1UL << 40), EINVAL);
	CHECK_ERR(seal(p + 1, PG), EINVAL);
	CHECK_ERR(seal(p + 1, 0), EINVAL);
	CHECK_ERR(seal(p, (size_t)-1), EINVAL);
	CHECK_ERR(seal(p, -PG), EINVAL);
	CHECK_ERR(seal((void *)-PG, PG), EINVAL);
	CHECK_ERR(seal(NULL, PG), ENOMEM);
	CHECK_ERR(seal(p, 1UL << 50), ENOMEM);
	CHECK_ERR(seal((void *)(1UL << 62), PG), ENOMEM);
	OK(seal(p, 0));
	OK(seal(NULL, 0));
	OK(seal((void *)(1UL << 62), 0));
	CHECK(!sealed(p));
	OK(munmap(p, 8 * PG));
}
CASE(a_gap_seals_nothing)
{
	need_mseal();
	char *p = numbered(8);
	OK(munmap(p + 4 * PG, PG));
	CHECK_ERR(seal(p, 8 * PG), ENOMEM);
	CHECK_ERR(seal(p + 4 * PG, PG), ENOMEM);
	CHECK_ERR(seal(p + 4 * PG, 2 * PG), ENOMEM);
	CHECK_ERR(seal(p + 5 * PG, 4 * PG), ENOMEM);
	CHECK(!sealed(p) && !sealed(p + 5 * PG));
	OK(munmap(p, 8 * PG));
}
CASE(splits_and_merges)
{
	need_mseal();
	char *p = numbered(8);
	OK(seal(p + PG, 1)); /* of a page */
	CHECK(!sealed(p) && sealed(p + PG) && !sealed(p + 2 * PG));
	CHECK_EQ(size_at(p), 1);
	CHECK_EQ(size_at(p + PG), 1);
	CHECK_EQ(size_at(p + 2 * PG), 6);
	OK(seal(p + PG, PG));
	OK(seal(p + 2 * PG, 2 * PG));
	CHECK_EQ(size_at(p + PG), 3);
	OK(seal(p, 8 * PG));
	CHECK_EQ(size_at(p), 8);
	CHECK(sealed(p));
	/* What is like it but for the seal stays apart. */
	CHECK(mmap(p + 8 * PG, PG, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == p + 8 * PG);
	CHECK_EQ(size_at(p), 8);
	CHECK(!sealed(p + 8 * PG));
	check_intact(p, 8);
}
CASE(of_several_mappings)
{
	need_mseal();
	int fd = OK(memfd_create("m", 0));
	OK(ftruncate(fd, 2 * PG));
	char *p = numbered(6);
	CHECK(mmap(p + 2 * PG, 2 * PG, RW, MAP_SHARED | MAP_FIXED, fd, 0) == p + 2 * PG);
	OK(mprotect(p + 4 * PG, PG, PROT_READ));
	OK(seal(p + PG, 4 * PG));
	CHECK(!sealed(p) && !sealed(p + 5 * PG));
	for (int i = 1; i < 5; i++) {
		CHECK(sealed(p + (size_t)i * PG));
		CHECK_ERR(munmap(p + (size_t)i * PG, PG), EPERM);
	}
	OK(munmap(p, PG));
	OK(munmap(p + 5 * PG, PG));
}

/* ---- what is refused ---- */

CASE(munmap_refused)
{
	need_mseal();
	char *p = numbered(8);
	OK(seal(p + 4 * PG, 2 * PG));
	CHECK_ERR(munmap(p, 8 * PG), EPERM);
	CHECK_ERR(munmap(p, 5 * PG), EPERM);
	CHECK_ERR(munmap(p + 5 * PG, 3 * PG), EPERM);
	CHECK_ERR(munmap(p + 4 * PG, 1), EPERM);
	CHECK_ERR(munmap(p + 4 * PG, 0), EINVAL);
	check_intact(p, 8);
	OK(munmap(p, 4 * PG));
	OK(munmap(p + 6 * PG, 2 * PG));
	CHECK_ERR(munmap(p, 8 * PG), EPERM);
	CHECK_EQ(p[5 * PG], 6);
}
CASE(map_over_refused)
{
	need_mseal();
	char *p = numbered(8);
	OK(seal(p + 4 * PG, 2 * PG));
	for (size_t i = 0; i < 6; i++) {
		char *q = mmap(p + i * PG, 3 * PG, RW, PRIVATE | MAP_FIXED, -1, 0);
		if (i < 2)
			CHECK(q == p + i * PG);
		else
			CHECK(q == MAP_FAILED && errno == EPERM);
	}
	CHECK(mmap(p, 8 * PG, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      MAP_FAILED &&
	      errno == EPERM);
	CHECK(mmap(p, 8 * PG, RW, PRIVATE | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED &&
	      errno == EEXIST);
	CHECK_EQ(p[4 * PG], 5);
	CHECK_EQ(p[5 * PG], 6);
	CHECK_EQ(p[7 * PG], 8);
	int id = OK(shmget(IPC_PRIVATE, 8 * PG, 0600));
	char *s = shmat(id, p, SHM_REMAP);
	int err = errno;
	OK(shmctl(id, IPC_RMID, NULL));
	CHECK(s == (void *)-1 && err == EPERM);
	s = mmap(NULL, 2 * PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(s != MAP_FAILED);
	OK(seal(s, PG));
	CHECK_ERR(syscall(SYS_remap_file_pages, s, 2 * PG, 0, 0, 0), EINVAL);
	CHECK_ERR(syscall(SYS_remap_file_pages, s, PG, 0, 0, 0), EPERM);
}
/* Part by part, as Linux since 6.12: what comes before the sealed part has changed. */
CASE(mprotect_refused)
{
	need_mseal();
	char *p = numbered(8);
	OK(seal(p + 4 * PG, 2 * PG));
	CHECK_ERR(mprotect(p + 4 * PG, PG, PROT_READ), EPERM);
	CHECK_ERR(mprotect(p + 5 * PG, PG, PROT_NONE), EPERM);
	CHECK_ERR(mprotect(p + 4 * PG, 2 * PG, RW), EPERM); /* no change at all */
	CHECK_ERR(mprotect(p + 4 * PG, 2 * PG, RW | PROT_EXEC), EPERM);
	CHECK_ERR(syscall(SYS_pkey_mprotect, p + 4 * PG, PG, PROT_READ, -1), EPERM);
	CHECK_ERR(mprotect(p + 4 * PG, PG, 0x100), EINVAL);
	CHECK_ERR(mprotect(p + 4 * PG, 8 * PG, PROT_READ), EPERM); /* before the hole */
	OK(mprotect(p + 4 * PG, 0, PROT_READ));
	OK(mprotect(p + 6 * PG, 2 * PG, PROT_READ));
	OK(mprotect(p + 6 * PG, 2 * PG, RW));
	check_intact(p, 8);
}
CASE(mprotect_checks_other_things_first)
{
	need_mseal();
	int fd = OK(open("/proc/self/exe", O_RDONLY));
	char *f = mmap(NULL, PG, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(f != MAP_FAILED);
	OK(seal(f, PG));
	CHECK_ERR(mprotect(f, PG, RW), EACCES);
	CHECK_ERR(mprotect(f, PG, PROT_READ), EPERM);
	struct rlimit lim;
	OK(getrlimit(RLIMIT_DATA, &lim));
	char *p = map(1, PROT_READ);
	OK(seal(p, PG));
	lim.rlim_cur = 1 << 20;
	OK(setrlimit(RLIMIT_DATA, &lim));
	CHECK_ERR(mprotect(p, PG, RW), EPERM);
}
CASE(mremap_refused)
{
	need_mseal();
	char *p = numbered(8), *q = room(16), *s = p + 4 * PG;
	OK(seal(s, 2 * PG));
	REFUSES_MOVE(EPERM, s, 2, 2, 0, NULL);
	REFUSES_MOVE(EPERM, s, 2, 1, 0, NULL);
	REFUSES_MOVE(EPERM, s, 2, 4, 0, NULL);
	REFUSES_MOVE(EPERM, s, 2, 4, MREMAP_MAYMOVE, NULL);
	REFUSES_MOVE(EPERM, s, 2, 2, MREMAP_MAYMOVE, NULL);
	REFUSES_MOVE(EPERM, s, 2, 2, MREMAP_MAYMOVE | MREMAP_FIXED, q);
	REFUSES_MOVE(EPERM, s, 1, 1, MREMAP_MAYMOVE | MREMAP_FIXED, q);
	REFUSES_MOVE(EPERM, s, 2, 2, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	REFUSES_MOVE(EPERM, s, 2, 2, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, q);
	REFUSES_MOVE(EPERM, s, 0, 2, MREMAP_MAYMOVE, NULL);
	REFUSES_MOVE(EPERM, s, 3, 1, 0, NULL);
	REFUSES_MOVE(EPERM, s, 3, 4, 0, NULL); /* not EFAULT */
	REFUSES_MOVE(EINVAL, s, 2, 2, 64, NULL);
	REFUSES_MOVE(EINVAL, s, 2, 0, 0, NULL);
	/* What begins before it. */
	REFUSES_MOVE(EPERM, p, 8, 1, 0, NULL);
	REFUSES_MOVE(ENOMEM, p + 3 * PG, 1, 2, 0, NULL);
	check_intact(p, 8);
	CHECK(!mapped(q));
}
CASE(mremap_onto_it_refused)
{
	need_mseal();
	char *p = numbered(8), *s = p + 4 * PG;
	OK(seal(s, 2 * PG));
	REFUSES_MOVE(EPERM, p, 2, 2, MREMAP_MAYMOVE | MREMAP_FIXED, p + 3 * PG);
	REFUSES_MOVE(EPERM, p, 1, 1, MREMAP_MAYMOVE | MREMAP_FIXED, s);
	REFUSES_MOVE(EPERM, p, 3, 1, MREMAP_MAYMOVE | MREMAP_FIXED, s);
	REFUSES_MOVE(EPERM, p, 2, 2, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, s);
	check_intact(p, 8);
	CHECK(moved(p, 1, 1, MREMAP_MAYMOVE | MREMAP_FIXED, p + 7 * PG) == p + 7 * PG);
	CHECK_EQ(p[7 * PG], 1);
}
/* A move of several goes as far as the sealed one. */
CASE(mremap_of_several)
{
	need_mseal();
	char *p = numbered(6), *q = room(16);
	OK(mprotect(p + 2 * PG, 2 * PG, PROT_READ));
	OK(seal(p + 2 * PG, 2 * PG));
	CHECK(moved(p, 6, 6, 0, NULL) == p); /* nothing to do, only the first is looked at */
	errno = 0;
	char *r = moved(p, 6, 6, MREMAP_MAYMOVE | MREMAP_FIXED, q);
	if (!conf_in_sandbox() && errno == EFAULT)
		SKIP("moves of several mappings are of Linux 6.17");
	CHECK(r == MAP_FAILED && errno == EPERM);
	CHECK(!mapped(p) && q[0] == 1 && q[PG] == 2);
	CHECK(p[2 * PG] == 3 && p[5 * PG] == 6);
	/* A cut-off end that is sealed: what was in the new place has gone. */
	p = numbered(6);
	q = map(2, PROT_NONE);
	OK(seal(p + 4 * PG, PG));
	REFUSES_MOVE(EPERM, p, 6, 2, MREMAP_MAYMOVE | MREMAP_FIXED, q);
	check_intact(p, 6);
	CHECK(!mapped(q));
}
CASE(brk_refused)
{
	need_mseal();
	char *p = sbrk(0);
	p += -(uintptr_t)p & (PG - 1);
	OK(brk(p + 8 * PG));
	memset(p, 1, 8 * PG);
	OK(seal(p + 4 * PG, 4 * PG));
	OK(syscall(SYS_brk, p + PG));
	CHECK(sbrk(0) == p + 8 * PG);
	CHECK_EQ(syscall(SYS_brk, p + 2 * PG), (long)(p + 8 * PG));
	CHECK_EQ(p[3 * PG], 1);
	/* It grows all the same, and shrinks so far. */
	OK(brk(p + 16 * PG));
	p[12 * PG] = 1;
	CHECK(sealed(p + 7 * PG) && !sealed(p + 8 * PG));
	CHECK_EQ(syscall(SYS_brk, p + 8 * PG), (long)(p + 8 * PG));
	CHECK(!mapped(p + 8 * PG));
}
/* Detaching says yes, and what is sealed stays. */
CASE(shmdt_leaves_it)
{
	need_mseal();
	int id = OK(shmget(IPC_PRIVATE, 4 * PG, 0600));
	char *p = shmat(id, NULL, 0);
	OK(shmctl(id, IPC_RMID, NULL));
	CHECK(p != (void *)-1);
	p[0] = p[3 * PG] = 1;
	OK(seal(p, PG));
	OK(shmdt(p));
	CHECK_EQ(p[0], 1);
	CHECK(!mapped(p + PG) && !mapped(p + 3 * PG));
}

/* ---- madvise ---- */

static const int discards[] = { MADV_DONTNEED, MADV_FREE, MADV_DONTNEED_LOCKED, MADV_DONTFORK,
				MADV_WIPEONFORK };
static const int others[] = { MADV_RANDOM, MADV_SEQUENTIAL, MADV_NORMAL, MADV_WILLNEED,
			      MADV_DOFORK, MADV_DONTDUMP,   MADV_DODUMP, MADV_KEEPONFORK };
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

CASE(discard_refused_where_not_writable)
{
	need_mseal();
	for (int prot = 0; prot < 2; prot++) {
		char *p = numbered(4);
		OK(mprotect(p, 4 * PG, prot ? PROT_READ : PROT_NONE));
		OK(seal(p, 4 * PG));
		for (size_t i = 0; i < COUNT(discards); i++)
			CHECK_ERR(madvise(p, 2 * PG, discards[i]), EPERM);
		CHECK_ERR(madvise(p, PG, MADV_REMOVE), EPERM);
		struct iovec v = { p, PG };
		int fd = (int)OK(syscall(SYS_pidfd_open, getpid(), 0));
		CHECK_EQ(syscall(SYS_process_madvise, fd, &v, 1, MADV_DONTNEED, 0), -1);
		CHECK(errno == EPERM || errno == EINVAL); /* advice for oneself is of 6.13 */
		for (size_t i = 0; i < COUNT(others); i++)
			OK(madvise(p, 2 * PG, others[i]));
		CHECK(!prot || p[PG] == 2);
		CHECK_EQ(size_at(p), 4);
	}
}
CASE(discard_allowed_where_writable)
{
	need_mseal();
	char *p = numbered(4);
	OK(seal(p, 4 * PG));
	for (size_t i = 0; i < COUNT(discards); i++)
		OK(madvise(p, 2 * PG, discards[i]));
	CHECK_ERR(madvise(p, PG, MADV_REMOVE), EINVAL);
	CHECK(p[0] == 0 && p[PG] == 0 && p[2 * PG] == 3);
}
CASE(discard_of_files_allowed)
{
	need_mseal();
	int fd = OK(memfd_create("m", 0));
	OK(ftruncate(fd, 4 * PG));
	CHECK_EQ(pwrite(fd, "file", 4, 0), 4);
	char *p = mmap(NULL, 4 * PG, RW, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED);
	p[0] = 'x';
	OK(mprotect(p, 4 * PG, PROT_READ));
	OK(seal(p, 4 * PG));
	OK(madvise(p, PG, MADV_DONTNEED));
	CHECK_EQ(p[0], 'f');
	OK(madvise(p, PG, MADV_DONTFORK));
	CHECK_ERR(madvise(p, PG, MADV_FREE), EINVAL);
	CHECK_ERR(madvise(p, PG, MADV_WIPEONFORK), EINVAL);
	p = mmap(NULL, 4 * PG, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	OK(seal(p, 4 * PG));
	OK(madvise(p, PG, MADV_DONTNEED));
	OK(madvise(p, PG, MADV_REMOVE));
	CHECK_EQ(p[0], 0);
	p = mmap(NULL, 4 * PG, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	OK(seal(p, 4 * PG));
	OK(madvise(p, PG, MADV_DONTNEED));
	OK(madvise(p, PG, MADV_DONTFORK));
}
/* As far as the sealed part; a hole matters less. */
CASE(discard_stops_at_it)
{
	need_mseal();
	char *p = numbered(5);
	OK(mprotect(p, 5 * PG, PROT_READ));
	OK(seal(p + 2 * PG, PG));
	OK(munmap(p + PG, PG));
	CHECK_ERR(madvise(p, 5 * PG, MADV_DONTNEED), EPERM);
	CHECK(p[0] == 0 && p[2 * PG] == 3 && p[3 * PG] == 4);
}

/* ---- what is allowed, and what becomes of the seal ---- */

CASE(contents_and_locks_stay_free)
{
	need_mseal();
	char *p = numbered(8);
	OK(seal(p, 8 * PG));
	check_intact(p, 8);
	OK(mlock(p + PG, PG));
	CHECK(sealed(p + PG));
	CHECK_EQ(size_at(p), 1);
	OK(munlock(p + PG, PG));
	CHECK_EQ(size_at(p), 8);
	OK(msync(p, 8 * PG, MS_SYNC));
	if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, PG, "name") < 0)
		CHECK_EQ(errno, EINVAL); /* no CONFIG_ANON_VMA_NAME */
	CHECK(sealed(p));
	int fd = OK(open("/dev/zero", O_RDONLY));
	CHECK_EQ(read(fd, p, 8 * PG), 8 * PG);
	CHECK_EQ(p[7 * PG], 0);
}
static void write_below(void *arg)
{
	volatile char *p = arg;
	p[-1] = 1;
	CHECK(sealed(arg) && sealed((char *)arg - 1));
	CHECK_ERR(munmap((char *)arg - PG, PG), EPERM);
}
CASE(stacks_grow)
{
	need_mseal();
	char *p = room(1024) + 512 * PG;
	CHECK(mmap(p, PG, RW, PRIVATE | MAP_FIXED | MAP_GROWSDOWN, -1, 0) == p);
	OK(seal(p, PG));
	conf_join(conf_fork(write_below, p));
	CHECK_ERR(mprotect(p, PG, PROT_READ | PROT_GROWSDOWN), EPERM);
}
CASE(fork_inherits)
{
	need_mseal();
	char *p = numbered(4);
	OK(seal(p + PG, PG));
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(!sealed(p) && sealed(p + PG));
		CHECK_ERR(munmap(p + PG, PG), EPERM);
		CHECK_ERR(mprotect(p + PG, PG, PROT_READ), EPERM);
		check_intact(p, 4);
		OK(seal(p, PG)); /* its own */
		_exit(0);
	}
	conf_join(pid);
	CHECK(!sealed(p));
	OK(munmap(p, PG));
	/* One made after it in the child is not of the parent, nor the other way round. */
	pid = fork();
	if (pid == 0) {
		OK(munmap(p + 2 * PG, PG));
		CHECK_ERR(munmap(p + PG, PG), EPERM);
		_exit(0);
	}
	conf_join(pid);
	OK(seal(p + 2 * PG, PG));
	CHECK_EQ(p[2 * PG], 3);
}
CASE(exec_and_exit_end_it)
{
	need_mseal();
	OK(seal(numbered(4), 4 * PG));
	pid_t pid = fork();
	if (pid == 0) {
		/* All that there is, but for the stack that execve builds anew. */
		static char maps[64 << 10];
		int fd = OK(open("/proc/self/maps", O_RDONLY));
		size_t len = 0;
		for (ssize_t n; (n = OK(read(fd, maps + len, sizeof(maps) - 1 - len))) > 0;)
			len += (size_t)n;
		for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
			unsigned long start, end;
			CHECK_EQ(sscanf(line, "%lx-%lx", &start, &end), 2);
			if (start < 1UL << 63)
				OK(seal((void *)start, end - start));
		}
		execl("/bin/sh", "sh", "-c", "! grep -q '^VmFlags:.* sl' /proc/self/smaps", NULL);
		_exit(9);
	}
	conf_join(pid);
}
/* In one piece only, natively too. */
CASE(of_the_vdso)
{
	need_mseal();
	char line[512];
	unsigned long start = 0, end = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f) && !strstr(line, "[vdso]"))
		;
	fclose(f);
	if (!strstr(line, "[vdso]"))
		SKIP("no vdso");
	CHECK_EQ(sscanf(line, "%lx-%lx", &start, &end), 2);
	if (end - start > PG)
		CHECK_ERR(seal((void *)start, PG), EINVAL);
	OK(seal((void *)start, end - start));
	OK(seal((void *)start, end - start));
	CHECK(sealed((char *)start));
	CHECK_ERR(munmap((void *)start, end - start), EPERM);
	CHECK_ERR(mprotect((void *)start, end - start, PROT_NONE), EPERM);
	struct timespec ts;
	OK(clock_gettime(CLOCK_MONOTONIC, &ts));
}
CONF_MAIN
