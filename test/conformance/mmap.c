/* Address spaces: mmap, munmap, mprotect, mremap, brk, madvise, msync, mincore, mlock. */
#include "conf.h"
#include <sched.h>
#include <sys/resource.h>
#include <ucontext.h>

#define PG 4096UL
static char *map(size_t pages, int prot)
{
	char *p = mmap(NULL, pages * PG, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}
static char *rw(size_t pages)
{
	return map(pages, PROT_READ | PROT_WRITE);
}
static int temp_file(size_t size)
{
	int fd = OK(open(conf_path("file"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	char page[PG];
	for (size_t off = 0; off < size; off += PG) {
		memset(page, 'a' + (int)(off / PG % 26), PG);
		size_t n = size - off < PG ? size - off : PG;
		CHECK_EQ(write(fd, page, n), n);
	}
	return fd;
}
static void read_byte(void *p)
{
	*(volatile char *)p;
}
static void write_byte(void *p)
{
	*(volatile char *)p = 1;
}

CASE(anon_is_zero)
{
	char *p = rw(16);
	for (size_t i = 0; i < 16 * PG; i++)
		CHECK_EQ(p[i], 0);
	memset(p, 7, 16 * PG);
	CHECK_EQ(p[16 * PG - 1], 7);
	CHECK_EQ(munmap(p, 16 * PG), 0);
	CHECK_EQ(conf_signal_of(read_byte, p), SIGSEGV);
}
CASE(zero_after_remap_in_place)
{
	char *p = rw(4);
	memset(p, 9, 4 * PG);
	CHECK(mmap(p, 4 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == p);
	for (size_t i = 0; i < 4 * PG; i++)
		CHECK_EQ(p[i], 0);
}
CASE(big_sparse_map)
{
	size_t size = 64UL << 30;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED);
	for (size_t off = 0; off < size; off += 1UL << 30)
		p[off] = (char)(off >> 30);
	for (size_t off = 0; off < size; off += 1UL << 30)
		CHECK_EQ(p[off], (char)(off >> 30));
	CHECK_EQ(p[size - 1], 0);
	CHECK_EQ(munmap(p, size), 0);
}
CASE(len_zero)
{
	CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == EINVAL);
	CHECK_ERR(munmap(rw(1), 0), EINVAL);
}
CASE(len_overflow)
{
	CHECK(mmap(NULL, SIZE_MAX, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(mmap(NULL, SIZE_MAX - 100, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		      MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(mmap(NULL, 1UL << 47, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK_ERR(munmap(rw(1), SIZE_MAX), EINVAL);
}
CASE(type_missing)
{
	CHECK(mmap(NULL, PG, PROT_READ, MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(NULL, PG, PROT_READ, MAP_ANONYMOUS | 0x0c, -1, 0) == MAP_FAILED &&
	      errno == EINVAL);
}
CASE(bad_fd)
{
	CHECK(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == EBADF);
	CHECK(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, 9999, 0) == MAP_FAILED && errno == EBADF);
}
CASE(unmappable_fds)
{
	int p[2];
	OK(pipe(p));
	CHECK(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, p[0], 0) == MAP_FAILED && errno == ENODEV);
	int d = OK(open("/", O_RDONLY | O_DIRECTORY));
	CHECK(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, d, 0) == MAP_FAILED && errno == ENODEV);
}
CASE(file_access_modes)
{
	int fd = temp_file(PG);
	int ro = OK(open(conf_path("file"), O_RDONLY)), wo = OK(open(conf_path("file"), O_WRONLY));
	CHECK(mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0) == MAP_FAILED &&
	      errno == EACCES);
	CHECK(mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, ro, 0) != MAP_FAILED);
	CHECK(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, wo, 0) == MAP_FAILED && errno == EACCES);
	char *p = mmap(NULL, PG, PROT_READ, MAP_SHARED, ro, 0);
	CHECK(p != MAP_FAILED);
	CHECK_ERR(mprotect(p, PG, PROT_READ | PROT_WRITE), EACCES);
	CHECK(mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
}
CASE(file_offset_alignment)
{
	int fd = temp_file(2 * PG);
	CHECK(mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 100) == MAP_FAILED && errno == EINVAL);
	char *p = mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, PG);
	CHECK(p != MAP_FAILED);
	CHECK_EQ(p[0], 'b');
}
CASE(fixed_unaligned)
{
	char *p = rw(4);
	CHECK(mmap(p + 1, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		      MAP_FAILED &&
	      errno == EINVAL);
	char *q = mmap(p + 1, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(q != MAP_FAILED && ((uintptr_t)q & (PG - 1)) == 0);
}
CASE(fixed_noreplace)
{
	char *p = rw(4);
	memset(p, 5, 4 * PG);
	CHECK(mmap(p + PG, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		   0) == MAP_FAILED &&
	      errno == EEXIST);
	CHECK_EQ(p[PG], 5);
	OK(munmap(p + PG, PG));
	CHECK(mmap(p + PG, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		   0) == p + PG);
	CHECK_EQ(p[PG], 0);
}
CASE(hint_honoured_when_free)
{
	char *p = rw(8);
	OK(munmap(p, 8 * PG));
	CHECK(mmap(p, PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == p);
}
CASE(hint_occupied_falls_back)
{
	char *p = rw(1);
	char local;
	size_t size = 64 << 20;
	char *hints[] = { p, &local, (char *)0x7fffffffe000, (char *)read_byte, (char *)~0xfffUL };
	for (size_t i = 0; i < 5; i++) {
		char *q = mmap(hints[i], size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			       -1, 0);
		CHECK(q != MAP_FAILED && q != (char *)((uintptr_t)hints[i] & ~(PG - 1)));
		q[0] = q[size - 1] = 1;
		OK(munmap(q, size));
	}
}
CASE(map_32bit)
{
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
		       -1, 0);
	CHECK(p != MAP_FAILED && (uintptr_t)p < (1UL << 31));
	p[0] = 1;
}
CASE(address_limits)
{
	CHECK(mmap((void *)(1UL << 47), PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(mmap((void *)~(PG - 1), PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK_ERR(munmap((void *)(1UL << 47), PG), EINVAL);
	CHECK_ERR(mprotect((void *)(1UL << 47), PG, PROT_READ), ENOMEM);
}
CASE(populate)
{
	char *p = mmap(NULL, 16 * PG, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	unsigned char vec[16];
	CHECK(p != MAP_FAILED);
	OK(mincore(p, 16 * PG, vec));
	for (int i = 0; i < 16; i++)
		CHECK_EQ(vec[i] & 1, 1);
}
CASE(locked_within_limit)
{
	struct rlimit lim;
	OK(getrlimit(RLIMIT_MEMLOCK, &lim));
	char *p = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
	CHECK(p != MAP_FAILED);
	p[0] = 1;
	OK(munlock(p, 4 * PG));
}
CASE(growsdown)
{
	char *p = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	CHECK(p != MAP_FAILED);
	p[0] = 1;
	CHECK(mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_GROWSDOWN,
		   -1, 0) == MAP_FAILED &&
	      errno == EINVAL);
}
CASE(munmap_middle)
{
	char *p = rw(3);
	memset(p, 3, 3 * PG);
	OK(munmap(p + PG, PG));
	CHECK_EQ(p[0] + p[2 * PG], 6);
	CHECK_EQ(conf_signal_of(read_byte, p + PG), SIGSEGV);
	OK(munmap(p + PG, PG)); /* nothing there: still fine */
	CHECK_ERR(munmap(p + 1, PG), EINVAL);
}
CASE(munmap_spans_holes)
{
	char *p = rw(9);
	for (int i = 1; i < 9; i += 2)
		OK(munmap(p + (size_t)i * PG, PG));
	OK(munmap(p, 9 * PG));
	for (int i = 0; i < 9; i++)
		CHECK_EQ(conf_signal_of(read_byte, p + (size_t)i * PG), SIGSEGV);
}
CASE(mprotect_takes_rights)
{
	char *p = rw(2);
	p[0] = p[PG] = 1;
	OK(mprotect(p, PG, PROT_READ));
	CHECK_EQ(conf_signal_of(write_byte, p), SIGSEGV);
	CHECK_EQ(conf_signal_of(write_byte, p + PG), 0);
	OK(mprotect(p, PG, PROT_NONE));
	CHECK_EQ(conf_signal_of(read_byte, p), SIGSEGV);
	OK(mprotect(p, PG, PROT_READ | PROT_WRITE));
	CHECK_EQ(p[0], 1);
	p[0] = 2;
}
CASE(mprotect_errors)
{
	char *p = rw(3);
	OK(munmap(p + PG, PG));
	CHECK_ERR(mprotect(p + 1, PG, PROT_READ), EINVAL);
	CHECK_ERR(mprotect(p, 3 * PG, PROT_READ), ENOMEM);
	/* The part before the hole has been changed. */
	CHECK_EQ(conf_signal_of(write_byte, p), SIGSEGV);
	CHECK_EQ(mprotect(p, 0, PROT_READ), 0);
	CHECK_ERR(mprotect(p, PG, 0x100), EINVAL);
	CHECK_ERR(mprotect(p, PG, PROT_READ | PROT_GROWSDOWN | PROT_GROWSUP), EINVAL);
}
CASE(mprotect_splits_and_merges)
{
	char *p = rw(64);
	memset(p, 1, 64 * PG);
	for (int i = 0; i < 64; i += 2)
		OK(mprotect(p + (size_t)i * PG, PG, PROT_READ));
	for (int i = 0; i < 64; i++)
		CHECK_EQ(p[(size_t)i * PG], 1);
	OK(mprotect(p, 64 * PG, PROT_READ | PROT_WRITE));
	memset(p, 2, 64 * PG);
}
static void run_code(void *p)
{
	CHECK_EQ(((int (*)(void))p)(), 42);
}
CASE(exec_permission)
{
	static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
	char *p = rw(1);
	memcpy(p, code, sizeof(code));
	CHECK_EQ(conf_signal_of(run_code, p), SIGSEGV);
	OK(mprotect(p, PG, PROT_READ | PROT_EXEC));
	CHECK_EQ(conf_signal_of(run_code, p), 0);
	OK(mprotect(p, PG, PROT_READ | PROT_WRITE | PROT_EXEC));
	p[1] = 43;
	CHECK_EQ(((int (*)(void))p)(), 43);
}

/* ---- faults ---- */
static volatile int got_code, got_trap, got_err;
static void *volatile got_addr, *volatile got_cr2;
static void on_segv(int sig, siginfo_t *si, void *u)
{
	ucontext_t *uc = u;
	got_code = si->si_code;
	got_addr = si->si_addr;
	got_trap = (int)uc->uc_mcontext.gregs[REG_TRAPNO];
	got_err = (int)uc->uc_mcontext.gregs[REG_ERR];
	got_cr2 = (void *)uc->uc_mcontext.gregs[REG_CR2];
	if (sig == SIGBUS)
		_exit(got_code == BUS_ADRERR ? 103 : 105);
	_exit(got_code == SEGV_MAPERR ? 101 : got_code == SEGV_ACCERR ? 102 : 104);
}
static void want_fault(char *addr, bool write, int code, int err)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct sigaction sa = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO };
		sigaction(SIGSEGV, &sa, NULL);
		sigaction(SIGBUS, &sa, NULL);
		(write ? write_byte : read_byte)(addr);
		_exit(0);
	}
	int status = conf_wait_status(pid);
	(void)err;
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), code);
}
CASE(fault_code_unmapped)
{
	char *p = rw(1);
	OK(munmap(p, PG));
	want_fault(p + 8, false, 101, 4);
	want_fault(NULL, true, 101, 6);
}
CASE(fault_code_prot_none)
{
	char *p = rw(1);
	p[0] = 1;
	OK(mprotect(p, PG, PROT_NONE));
	want_fault(p + 16, false, 102, 5);
	want_fault(map(1, PROT_NONE), false, 102, 4);
}
CASE(fault_code_read_only)
{
	want_fault(map(1, PROT_READ), true, 102, 7);
}
static void on_fault_check(int sig, siginfo_t *si, void *u)
{
	ucontext_t *uc = u;
	(void)sig;
	got_addr = si->si_addr;
	got_trap = (int)uc->uc_mcontext.gregs[REG_TRAPNO];
	got_err = (int)uc->uc_mcontext.gregs[REG_ERR];
	got_cr2 = (void *)uc->uc_mcontext.gregs[REG_CR2];
	mprotect((void *)((uintptr_t)si->si_addr & ~(PG - 1)), PG, PROT_READ | PROT_WRITE);
}
CASE(fault_context)
{
	struct sigaction sa = { .sa_sigaction = on_fault_check, .sa_flags = SA_SIGINFO };
	char *p = map(2, PROT_NONE);
	OK(sigaction(SIGSEGV, &sa, NULL));
	write_byte(p + 24);
	CHECK(got_addr == p + 24 && got_cr2 == p + 24);
	CHECK_EQ(got_trap, 14);
	CHECK_EQ(got_err & 6, 6);
	read_byte(p + PG + 3);
	CHECK(got_addr == p + PG + 3);
	CHECK_EQ(got_err & 6, 4);
	CHECK_EQ(p[24], 1);
}
CASE(fault_noncanonical)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct sigaction sa = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO };
		sigaction(SIGSEGV, &sa, NULL);
		read_byte((void *)0x8000000000000000UL);
		_exit(0);
	}
	CHECK_EQ(WEXITSTATUS(conf_wait_status(pid)), 104); /* SI_KERNEL */
}

/* ---- files ---- */
CASE(private_file_cow)
{
	int fd = temp_file(2 * PG);
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0), c;
	CHECK_EQ(p[0], 'a');
	p[0] = 'X';
	CHECK_EQ(pread(fd, &c, 1, 0), 1);
	CHECK_EQ(c, 'a');
	CHECK_EQ(p[1], 'a');
	CHECK_EQ(p[PG], 'b');
}
CASE(shared_file_coherent)
{
	int fd = temp_file(2 * PG);
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), c;
	CHECK(p != MAP_FAILED);
	p[5] = 'M';
	CHECK_EQ(pread(fd, &c, 1, 5), 1);
	CHECK_EQ(c, 'M');
	CHECK_EQ(pwrite(fd, "W", 1, 6), 1);
	CHECK_EQ(p[6], 'W');
	pid_t pid = fork();
	if (pid == 0) {
		int fd2 = open(conf_path("file"), O_RDWR);
		_exit(pwrite(fd2, "C", 1, PG + 1) == 1 ? 0 : 1);
	}
	conf_join(pid);
	CHECK_EQ(p[PG + 1], 'C');
}
CASE(map_beyond_eof_is_sigbus)
{
	int fd = temp_file(100);
	char *p = mmap(NULL, 3 * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK_EQ(p[99], 'a');
	CHECK_EQ(p[100], 0);
	want_fault(p + PG, false, 103, 0);
	want_fault(p + 2 * PG, true, 103, 0);
}
CASE(map_of_empty_file_then_grow)
{
	int fd = OK(open(conf_path("grow"), O_RDWR | O_CREAT, 0600));
	char *p = mmap(NULL, 4 * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), buf[8];
	CHECK(p != MAP_FAILED);
	CHECK_EQ(pwrite(fd, "x", 1, 2 * PG - 1), 1);
	memset(p, 'q', 2 * PG);
	CHECK_EQ(pread(fd, buf, 8, PG), 8);
	CHECK_EQ(buf[0], 'q');
	CHECK_EQ(conf_signal_of(read_byte, p + 3 * PG), SIGBUS);
}
CASE(truncate_under_map)
{
	int fd = temp_file(3 * PG);
	char *p = mmap(NULL, 3 * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *q = mmap(NULL, 3 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	q[2 * PG] = 1; /* a private copy: it goes too */
	OK(ftruncate(fd, (off_t)PG / 2));
	CHECK_EQ(p[0], 'a');
	CHECK_EQ(conf_signal_of(read_byte, p + PG), SIGBUS);
	CHECK_EQ(conf_signal_of(read_byte, q + 2 * PG), SIGBUS);
	OK(ftruncate(fd, 3 * (off_t)PG));
	CHECK_EQ(p[PG / 2], 0);
	CHECK_EQ(p[2 * PG], 0);
	CHECK_EQ(p[PG / 2 - 1], 'a');
}
CASE(map_survives_close_and_unlink)
{
	int fd = temp_file(PG);
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	OK(close(fd));
	OK(unlink(conf_path("file")));
	CHECK_EQ(p[7], 'a');
	p[7] = 'z';
	CHECK_EQ(p[7], 'z');
}
CASE(shared_anon_between_processes)
{
	int *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = fork();
	if (pid == 0) {
		p[0] = 77;
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(p[0], 77);
}
CASE(private_map_of_dev_zero)
{
	int fd = OK(open("/dev/zero", O_RDWR));
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK_EQ(p[PG], 0);
	p[PG] = 3;
	CHECK_EQ(p[PG], 3);
}
CASE(msync_rules)
{
	int fd = temp_file(2 * PG);
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	p[0] = 'S';
	OK(msync(p, 2 * PG, MS_SYNC));
	OK(msync(p, 2 * PG, MS_ASYNC));
	CHECK_ERR(msync(p, 2 * PG, MS_ASYNC | MS_SYNC), EINVAL);
	CHECK_ERR(msync(p + 1, PG, MS_SYNC), EINVAL);
	CHECK_ERR(msync(p, PG, 0x80), EINVAL);
	OK(munmap(p + PG, PG));
	CHECK_ERR(msync(p, 2 * PG, MS_SYNC), ENOMEM);
}
CASE(mincore_rules)
{
	char *p = rw(4);
	unsigned char vec[4];
	p[0] = 1;
	OK(mincore(p, 4 * PG, vec));
	CHECK_EQ(vec[0] & 1, 1);
	CHECK_ERR(mincore(p + 1, PG, vec), EINVAL);
	CHECK_ERR(mincore(p, PG, (void *)1), EFAULT);
	OK(munmap(p + PG, PG));
	CHECK_ERR(mincore(p, 4 * PG, vec), ENOMEM);
}

/* ---- mremap ---- */
CASE(mremap_shrink_and_grow)
{
	char *p = rw(8);
	memset(p, 4, 8 * PG);
	CHECK(mremap(p, 8 * PG, 4 * PG, 0) == p);
	CHECK_EQ(conf_signal_of(read_byte, p + 4 * PG), SIGSEGV);
	char *q = mremap(p, 4 * PG, 64 * PG, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	CHECK_EQ(q[4 * PG - 1], 4);
	CHECK_EQ(q[4 * PG], 0);
	q[64 * PG - 1] = 1;
}
CASE(mremap_must_not_overwrite_neighbour)
{
	char *p = rw(3);
	OK(munmap(p, 3 * PG));
	for (int i = 0; i < 2; i++)
		CHECK(mmap(p + (size_t)i * PG, PG, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	memset(p, 1, PG);
	memset(p + PG, 2, PG);
	CHECK(mremap(p, PG, 2 * PG, 0) == MAP_FAILED && errno == ENOMEM);
	char *q = mremap(p, PG, 2 * PG, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && q != p);
	CHECK_EQ(q[0], 1);
	CHECK_EQ(q[PG], 0);
	CHECK_EQ(p[PG], 2);
}
CASE(mremap_private_file_grow)
{
	int fd = temp_file(PG);
	char *p = mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0);
	for (size_t n = 1; n < 11; n++) {
		p = mremap(p, n * PG, (n + 1) * PG, MREMAP_MAYMOVE);
		CHECK(p != MAP_FAILED);
		CHECK_EQ(p[0], 'a');
	}
	CHECK_EQ(conf_signal_of(read_byte, p + 5 * PG), SIGBUS);
}
CASE(mremap_fixed)
{
	char *p = rw(2), *dst = rw(4);
	memset(p, 6, 2 * PG);
	CHECK(mremap(p, 2 * PG, 2 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, dst) == dst);
	CHECK_EQ(dst[2 * PG - 1], 6);
	CHECK_EQ(dst[2 * PG], 0);
	CHECK_EQ(conf_signal_of(read_byte, p), SIGSEGV);
}
CASE(mremap_errors)
{
	char *p = rw(4);
	CHECK(mremap(p + 1, PG, PG, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(p, PG, 0, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(p, PG, PG, MREMAP_FIXED, p + 2 * PG) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(p, PG, PG, MREMAP_MAYMOVE | MREMAP_FIXED, p + 1) == MAP_FAILED &&
	      errno == EINVAL);
	CHECK(mremap(p, 2 * PG, 2 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, p + PG) == MAP_FAILED &&
	      errno == EINVAL);
	CHECK(mremap(p, PG, PG, 0x80) == MAP_FAILED && errno == EINVAL);
	OK(munmap(p, PG));
	CHECK(mremap(p, PG, 2 * PG, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
}
CASE(mremap_old_size_zero_duplicates_shared)
{
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p[0] = 1;
	char *q = mremap(p, 0, PG, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && q != p);
	q[0] = 2;
	CHECK_EQ(p[0], 2);
	CHECK(mremap(rw(1), 0, PG, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
}
CASE(mremap_dontunmap)
{
	char *p = rw(2);
	memset(p, 8, 2 * PG);
	char *q = (char *)syscall(SYS_mremap, p, 2 * PG, 2 * PG,
				  MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */, 0);
	CHECK(q != MAP_FAILED);
	CHECK_EQ(q[PG], 8);
	CHECK_EQ(p[PG], 0);
	p[0] = 1;
	CHECK_EQ(q[0], 8);
}

/* ---- brk ---- */
/* A mapping that grows and moves while the file's page is taken away does not keep the old page. */
static struct {
	_Atomic unsigned round, done;
} * turns;
static void punch_and_write(void *arg)
{
	int fd = *(int *)arg;

	for (unsigned i = 1; i <= 2000; i++) {
		while (turns->round != i)
			sched_yield();
		OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
		CHECK_EQ(pwrite(fd, &i, sizeof(i), 0), sizeof(i));
		turns->done = i;
	}
}
CASE(mremap_races_with_punch)
{
	int fd = OK(memfd_create("file", MFD_CLOEXEC));
	pid_t pid;

	OK(ftruncate(fd, 2 * 4096));
	turns = OK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	pid = conf_fork(punch_and_write, &fd);
	for (unsigned i = 1; i <= 2000; i++) {
		unsigned *p =
			OK(mmap(NULL, 4096, PROT_READ, i & 1 ? MAP_PRIVATE : MAP_SHARED, fd, 0));

		CHECK_EQ(*(volatile unsigned *)p, i - 1);
		turns->round = i;
		for (volatile unsigned wait = 0; wait < i % 400; wait++)
			;
		p = OK(mremap(p, 4096, 2 * 4096, MREMAP_MAYMOVE));
		while (turns->done != i)
			sched_yield();
		CHECK_EQ(*(volatile unsigned *)p, i);
		OK(munmap(p, 2 * 4096));
	}
	conf_join(pid);
}
CASE(brk_grows_and_shrinks)
{
	char *b = (char *)syscall(SYS_brk, 0);
	char *e = (char *)syscall(SYS_brk, b + 10 * PG);
	CHECK(e == b + 10 * PG);
	memset(b, 1, 10 * PG);
	CHECK((char *)syscall(SYS_brk, b) == b);
	CHECK((char *)syscall(SYS_brk, b + PG) == b + PG);
	CHECK_EQ(b[16], 0);
	CHECK((char *)syscall(SYS_brk, 1) == b + PG);
	CHECK((char *)syscall(SYS_brk, ~0UL) == b + PG);
}

/* ---- madvise ---- */
CASE(madvise_dontneed_zeroes)
{
	char *p = rw(4);
	memset(p, 5, 4 * PG);
	OK(madvise(p + PG, 2 * PG, MADV_DONTNEED));
	CHECK_EQ(p[0], 5);
	CHECK_EQ(p[PG], 0);
	CHECK_EQ(p[3 * PG - 1], 0);
	CHECK_EQ(p[3 * PG], 5);
}
CASE(madvise_dontneed_through_prot_none)
{
	char *p = rw(1);
	p[0] = 9;
	OK(mprotect(p, PG, PROT_NONE));
	OK(madvise(p, PG, MADV_DONTNEED));
	OK(mprotect(p, PG, PROT_READ | PROT_WRITE));
	CHECK_EQ(p[0], 0);
}
CASE(madvise_dontneed_file_private)
{
	int fd = temp_file(PG);
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	p[0] = 'Z';
	OK(madvise(p, PG, MADV_DONTNEED));
	CHECK_EQ(p[0], 'a');
}
CASE(madvise_dontneed_shared_keeps)
{
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	p[0] = 3;
	OK(madvise(p, PG, MADV_DONTNEED));
	CHECK_EQ(p[0], 3);
}
CASE(madvise_holes)
{
	char *p = rw(3);
	memset(p, 5, 3 * PG);
	OK(munmap(p + PG, PG));
	CHECK_ERR(madvise(p, 3 * PG, MADV_WILLNEED), ENOMEM);
	CHECK_ERR(madvise(p, 3 * PG, MADV_DONTNEED), ENOMEM);
	CHECK_EQ(p[0], 0);
	CHECK_EQ(p[2 * PG], 0);
}
CASE(madvise_errors)
{
	int fd = temp_file(PG);
	char *p = rw(2), *f = mmap(NULL, PG, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK_ERR(madvise(p + 1, PG, MADV_NORMAL), EINVAL);
	CHECK_ERR(madvise(p, PG, 9999), EINVAL);
	CHECK_EQ(madvise(p, 0, MADV_DONTNEED), 0);
	CHECK_ERR(madvise(f, PG, MADV_FREE), EINVAL);
	CHECK_ERR(madvise(p, SIZE_MAX - 100, MADV_NORMAL), EINVAL);
	CHECK_ERR(madvise(f, PG, MADV_WIPEONFORK), EINVAL);
}
CASE(madvise_free_readable)
{
	char *p = rw(2);
	memset(p, 5, 2 * PG);
	OK(madvise(p, 2 * PG, MADV_FREE));
	CHECK(p[0] == 5 || p[0] == 0);
	p[0] = 6;
	CHECK_EQ(p[0], 6);
}
CASE(madvise_remove_shared)
{
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memset(p, 5, 2 * PG);
	OK(madvise(p, PG, MADV_REMOVE));
	CHECK_EQ(p[0], 0);
	CHECK_EQ(p[PG], 5);
	CHECK_ERR(madvise(rw(1), PG, MADV_REMOVE), EINVAL);
}
CASE(madvise_dontfork)
{
	char *p = rw(2);
	memset(p, 5, 2 * PG);
	OK(madvise(p, PG, MADV_DONTFORK));
	pid_t pid = fork();
	if (pid == 0)
		_exit(p[PG] == 5 && conf_signal_of(read_byte, p) == SIGSEGV ? 0 : 1);
	conf_join(pid);
	CHECK_EQ(p[0], 5);
	OK(madvise(p, PG, MADV_DOFORK));
	CHECK_EQ(conf_signal_of(read_byte, p), 0);
}
CASE(madvise_wipeonfork)
{
	char *p = rw(1);
	p[0] = 5;
	OK(madvise(p, PG, MADV_WIPEONFORK));
	pid_t pid = fork();
	if (pid == 0)
		_exit(p[0] == 0 ? 0 : 1);
	conf_join(pid);
	CHECK_EQ(p[0], 5);
}
CASE(madvise_populate)
{
	char *p = rw(4);
	OK(madvise(p, 4 * PG, 23 /* MADV_POPULATE_WRITE */));
	OK(madvise(p, 4 * PG, 22 /* MADV_POPULATE_READ */));
	unsigned char vec[4];
	OK(mincore(p, 4 * PG, vec));
	CHECK_EQ(vec[3] & 1, 1);
	CHECK_ERR(madvise(map(1, PROT_READ), PG, 23), EINVAL);
}
CASE(madvise_hugepage_accepted)
{
	char *p = rw(1024);
	OK(madvise(p, 1024 * PG, MADV_NOHUGEPAGE));
	OK(madvise(p, 1024 * PG, MADV_HUGEPAGE));
	OK(madvise(p, 1024 * PG, MADV_SEQUENTIAL));
	OK(madvise(p, 1024 * PG, MADV_RANDOM));
	OK(madvise(p, 1024 * PG, MADV_DONTDUMP));
	OK(madvise(p, 1024 * PG, MADV_DODUMP));
	OK(madvise(p, 1024 * PG, MADV_COLD));
	p[0] = 1;
}

/* ---- mlock ---- */
CASE(mlock_rules)
{
	char *p = rw(4);
	OK(mlock(p, 2 * PG));
	OK(munlock(p, 2 * PG));
	OK((int)syscall(SYS_mlock2, p, PG, 1));
	CHECK_ERR(syscall(SYS_mlock2, p, PG, 2), EINVAL);
	OK(munmap(p + PG, PG));
	CHECK_ERR(mlock(p, 4 * PG), ENOMEM);
	CHECK_ERR(mlockall(0), EINVAL);
	CHECK_ERR(mlockall(0x100), EINVAL);
	OK(munlockall());
}
CASE(mlock_limit)
{
	if (geteuid() == 0)
		OK(setresuid(65534, 65534, 65534));
	struct rlimit lim = { 2 * PG, 2 * PG };
	OK(setrlimit(RLIMIT_MEMLOCK, &lim));
	char *p = rw(8);
	CHECK_ERR(mlock(p, 8 * PG), ENOMEM);
	OK(mlock(p, PG));
	CHECK(mmap(NULL, 8 * PG, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0) ==
		      MAP_FAILED &&
	      errno == EAGAIN);
	lim.rlim_cur = lim.rlim_max = 0;
	OK(setrlimit(RLIMIT_MEMLOCK, &lim));
	CHECK_ERR(mlock(p + PG, PG), EPERM);
}

/* ---- limits ---- */
CASE(rlimit_as)
{
	struct rlimit lim = { 256 << 20, 256 << 20 };
	OK(setrlimit(RLIMIT_AS, &lim));
	CHECK(mmap(NULL, 512 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}
static int deep(int n)
{
	volatile char pad[4000];
	pad[0] = (char)n;
	return n ? deep(n - 1) + pad[0] : pad[0];
}
CASE(stack_grows)
{
	deep(1500); /* 6 MB of the usual 8 */
}
static void overflow(void *arg)
{
	(void)arg;
	deep(1000000);
}
CASE(stack_overflow_is_sigsegv)
{
	CHECK_EQ(conf_signal_of(overflow, NULL), SIGSEGV);
}
CASE(many_maps)
{
	char *p = map(20000, PROT_READ | PROT_WRITE);
	for (size_t i = 0; i < 20000; i += 2)
		OK(mprotect(p + i * PG, PG, PROT_READ));
	for (size_t i = 1; i < 20000; i += 2)
		p[i * PG] = 1;
	for (size_t i = 0; i < 20000; i++)
		CHECK_EQ(p[i * PG], (int)(i & 1));
	OK(munmap(p, 20000 * PG));
}
CASE(map_count_limit)
{
	size_t n = 140000;
	char *p = mmap(NULL, n * PG, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int failed = 0;
	CHECK(p != MAP_FAILED);
	for (size_t i = 0; i < n && !failed; i += 2)
		if (mprotect(p + i * PG, PG, PROT_NONE) < 0) {
			CHECK_EQ(errno, ENOMEM);
			failed = 1;
		}
	CHECK_EQ(failed, 1);
	OK(munmap(p, n * PG));
}
CASE(anon_name)
{
	char *p = rw(2);
	int r = (int)syscall(SYS_prctl, 0x53564d41, 0, p, PG, "conf name");
	if (r < 0 && errno == EINVAL && !conf_in_sandbox())
		SKIP("this kernel lacks CONFIG_ANON_VMA_NAME");
	CHECK_EQ(r, 0);
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	bool found = false;
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, "[anon:conf name]") != NULL;
	CHECK(found);
	CHECK_ERR(syscall(SYS_prctl, 0x53564d41, 99, p, PG, "x"), EINVAL);
	CHECK_ERR(syscall(SYS_prctl, 0x53564d41, 0, p, PG, "bad[name"), EINVAL);
	CHECK_ERR(syscall(SYS_prctl, 0x53564d41, 0, p + 1, PG, "x"), EINVAL);
	CHECK_EQ(syscall(SYS_prctl, 0x53564d41, 0, p, PG, NULL), 0);
}
CASE(copy_into_readonly_is_efault)
{
	int p[2];
	char *ro = map(1, PROT_READ), *none = map(1, PROT_NONE);
	OK(pipe(p));
	OK(write(p[1], "hello", 5));
	CHECK_ERR(read(p[0], ro, 5), EFAULT);
	CHECK_ERR(read(p[0], none, 5), EFAULT);
	CHECK_ERR(write(p[1], none, 5), EFAULT);
	char buf[8];
	CHECK_EQ(read(p[0], buf, 5), 5);
}
CASE(read_into_untouched_memory)
{
	int fd = temp_file(4 * PG);
	char *p = rw(8);
	OK(lseek(fd, 0, SEEK_SET));
	CHECK_EQ(read(fd, p + PG / 2, 4 * PG), 4 * (long)PG);
	CHECK_EQ(p[PG / 2], 'a');
	CHECK_EQ(p[PG / 2 + PG], 'b');
	CHECK_EQ(p[PG / 2 - 1], 0);
}
CASE(write_from_untouched_memory)
{
	int fd = OK(open(conf_path("zeros"), O_RDWR | O_CREAT, 0600));
	char *p = rw(4), buf[16];
	CHECK_EQ(write(fd, p, 4 * PG), 4 * (long)PG);
	CHECK_EQ(pread(fd, buf, 16, 2 * PG), 16);
	CHECK_EQ(buf[3], 0);
}
/* Who has asked for no huge pages is told that there are none. */
CASE(collapse_is_honest)
{
	char *p = mmap(NULL, 4UL << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	memset(p, 1, 4UL << 20);
	if (madvise(p, 4UL << 20, MADV_NOHUGEPAGE) == 0)
		CHECK_ERR(madvise(p, 4UL << 20, 25 /* MADV_COLLAPSE */), EINVAL);
}

CONF_MAIN
