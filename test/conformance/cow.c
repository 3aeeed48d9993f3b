/* fork and copy-on-write: every process sees its own snapshot. */
#include "conf.h"
#include <pthread.h>
#include <sys/prctl.h>

#define PG 4096UL
static char *rw(size_t pages)
{
	char *p =
		mmap(NULL, pages * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}
struct sync_pipe {
	int fd[2];
};
static void sp_init(struct sync_pipe *s)
{
	OK(pipe(s->fd));
}
static void sp_post(struct sync_pipe *s)
{
	CHECK_EQ(write(s->fd[1], "x", 1), 1);
}
static void sp_wait(struct sync_pipe *s)
{
	char c;
	CHECK_EQ(read(s->fd[0], &c, 1), 1);
}
CASE(parent_write_after_fork_unseen)
{
	char *p = rw(1);
	struct sync_pipe go;
	sp_init(&go);
	p[0] = 1;
	pid_t pid = fork();
	if (pid == 0) {
		sp_wait(&go);
		_exit(p[0] == 1 ? 0 : 1);
	}
	p[0] = 2;
	sp_post(&go);
	conf_join(pid);
	CHECK_EQ(p[0], 2);
}
CASE(child_write_after_fork_unseen)
{
	char *p = rw(1);
	p[0] = 1;
	pid_t pid = fork();
	if (pid == 0) {
		p[0] = 3;
		_exit(p[0] == 3 ? 0 : 1);
	}
	conf_join(pid);
	CHECK_EQ(p[0], 1);
}
CASE(neighbours_survive_a_break)
{
	size_t n = 600;
	char *p = rw(n);
	for (size_t i = 0; i < n; i += 3)
		p[i * PG] = (char)i;
	struct sync_pipe go;
	sp_init(&go);
	pid_t pid = fork();
	if (pid == 0) {
		sp_wait(&go);
		for (size_t i = 0; i < n; i++)
			if (p[i * PG] != (i % 3 ? 0 : (char)i))
				_exit(1);
		_exit(0);
	}
	for (size_t i = 0; i < n; i += 7)
		p[i * PG + 8] = 9;
	for (size_t i = 0; i < n; i++) {
		CHECK_EQ(p[i * PG], i % 3 ? 0 : (char)i);
		CHECK_EQ(p[i * PG + 8], i % 7 ? 0 : 9);
	}
	sp_post(&go);
	conf_join(pid);
}
CASE(nested_forks)
{
	int *p = (int *)rw(4);
	for (int i = 0; i < 4; i++)
		p[i * 1024] = i;
	for (int depth = 0; depth < 6; depth++) {
		p[0] = depth;
		pid_t pid = fork();
		if (pid > 0) {
			p[1024] = 1000;
			int status = conf_wait_status(pid);
			if (!WIFEXITED(status) || WEXITSTATUS(status) || p[0] != depth)
				_exit(1);
			if (depth == 0)
				return;
			_exit(0);
		}
		if (p[0] != depth || p[1024] != 1)
			_exit(1);
	}
	_exit(0);
}
CASE(many_children_share)
{
	size_t n = 1024;
	char *p = rw(n);
	memset(p, 7, n * PG);
	pid_t pids[50];
	struct sync_pipe go;
	sp_init(&go);
	for (int i = 0; i < 50; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			p[(size_t)i * 20 * PG] = (char)i;
			sp_wait(&go);
			for (size_t k = 0; k < n; k++)
				if (p[k * PG] != (k == (size_t)i * 20 ? (char)i : 7))
					_exit(1);
			_exit(0);
		}
	}
	for (int i = 0; i < 50; i++)
		sp_post(&go);
	for (int i = 0; i < 50; i++)
		conf_join(pids[i]);
	for (size_t k = 0; k < n; k++)
		CHECK_EQ(p[k * PG], 7);
}
CASE(fork_of_cow_memory_after_break)
{
	char *p = rw(32);
	memset(p, 1, 32 * PG);
	for (int round = 2; round < 12; round++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(p[5 * PG] == round - 1 ? 0 : 1);
		memset(p, round, 32 * PG);
		conf_join(pid);
	}
}
CASE(kernel_write_breaks_cow)
{
	char *p = rw(2);
	struct sync_pipe go;
	int data[2];
	sp_init(&go);
	OK(pipe(data));
	memset(p, 'o', 2 * PG);
	pid_t pid = fork();
	if (pid == 0) {
		sp_wait(&go);
		_exit(p[0] == 'o' && p[PG] == 'o' ? 0 : 1);
	}
	CHECK_EQ(write(data[1], "new", 3), 3);
	CHECK_EQ(read(data[0], p, 3), 3);
	CHECK_EQ(p[0], 'n');
	sp_post(&go);
	conf_join(pid);
}
CASE(kernel_read_sees_own_copy)
{
	char *p = rw(1), buf[4] = "";
	int data[2];
	OK(pipe(data));
	strcpy(p, "old");
	pid_t pid = fork();
	if (pid == 0) {
		strcpy(p, "kid");
		_exit(write(data[1], p, 3) == 3 ? 0 : 1);
	}
	conf_join(pid);
	CHECK_EQ(read(data[0], buf, 3), 3);
	CHECK_STR(buf, "kid");
	CHECK_STR(p, "old");
}
CASE(shared_memory_stays_shared)
{
	int *s = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct sync_pipe a, b;
	sp_init(&a);
	sp_init(&b);
	pid_t pid = fork();
	if (pid == 0) {
		sp_wait(&a);
		if (s[0] != 1)
			_exit(1);
		s[0] = 2;
		sp_post(&b);
		_exit(0);
	}
	s[0] = 1;
	sp_post(&a);
	sp_wait(&b);
	CHECK_EQ(s[0], 2);
	conf_join(pid);
}
CASE(private_file_copy_is_shared_cow)
{
	int fd = OK(open(conf_path("f"), O_RDWR | O_CREAT, 0600));
	OK(ftruncate(fd, 2 * (off_t)PG));
	char *p = mmap(NULL, 2 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	p[0] = 5;
	pid_t pid = fork();
	if (pid == 0) {
		p[0] = 6;
		p[PG] = 6;
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(p[0], 5);
	CHECK_EQ(p[PG], 0);
}
static void *hammer(void *arg)
{
	volatile int *p = arg;
	for (int i = 0; i < 20000; i++)
		p[(i % 64) * 1024] = p[(i % 64) * 1024] + 1;
	return NULL;
}
/* What the process has not written follows the file, also behind a writer that goes on page by
 * page. */
CASE(private_file_pages_follow_the_file)
{
	enum { COUNT = 64 };
	int fd = OK(memfd_create("file", MFD_CLOEXEC));
	char *m;

	OK(ftruncate(fd, COUNT * 4096));
	m = OK(mmap(NULL, COUNT * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
	for (int i = 0; i < COUNT; i++)
		CHECK_EQ(m[i * 4096L], 0);
	for (int i = 0; i < COUNT / 2; i++)
		m[i * 4096L] = 'w';
	for (int i = 0; i < COUNT; i++)
		CHECK_EQ(pwrite(fd, "f", 1, i * 4096L), 1);
	for (int i = 0; i < COUNT; i++)
		CHECK_EQ(m[i * 4096L], i < COUNT / 2 ? 'w' : 'f');
}
CASE(fork_while_threads_write)
{
	int *p = (int *)rw(64);
	pthread_t t;
	pthread_create(&t, NULL, hammer, p);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			int snap[64];
			for (int k = 0; k < 64; k++)
				snap[k] = p[k * 1024];
			for (int n = 0; n < 200; n++)
				for (int k = 0; k < 64; k++)
					if (p[k * 1024] != snap[k])
						_exit(1);
			_exit(0);
		}
		conf_join(pid);
	}
	pthread_join(t, NULL);
	int sum = 0;
	for (int k = 0; k < 64; k++)
		sum += p[k * 1024];
	CHECK_EQ(sum, 20000);
}
static void *write_own(void *arg)
{
	char *p = arg;
	for (size_t i = 0; i < 256; i++)
		p[i * PG] = 2;
	return NULL;
}
CASE(threads_break_the_same_range)
{
	char *p = rw(256);
	struct sync_pipe go;
	sp_init(&go);
	memset(p, 1, 256 * PG);
	pid_t pid = fork();
	if (pid == 0) {
		sp_wait(&go);
		for (size_t i = 0; i < 256; i++)
			if (p[i * PG] != 1)
				_exit(1);
		_exit(0);
	}
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, write_own, p + i);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < 256; i++)
		for (int k = 0; k < 4; k++)
			CHECK_EQ(p[i * PG + (size_t)k], 2);
	sp_post(&go);
	conf_join(pid);
}
CASE(last_owner_keeps_content)
{
	char *p = rw(512);
	for (size_t i = 0; i < 512; i++)
		p[i * PG] = (char)i;
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	conf_join(pid);
	for (size_t i = 0; i < 512; i++) {
		CHECK_EQ(p[i * PG], (char)i);
		p[i * PG] = (char)(i + 1);
	}
	for (size_t i = 0; i < 512; i++)
		CHECK_EQ(p[i * PG], (char)(i + 1));
}
CASE(mremap_and_fork)
{
	char *p = rw(16);
	memset(p, 3, 16 * PG);
	pid_t pid = fork();
	if (pid == 0) {
		char *q = mremap(p, 16 * PG, 64 * PG, MREMAP_MAYMOVE);
		q[0] = 4;
		_exit(q[15 * PG] == 3 && q[16 * PG] == 0 ? 0 : 1);
	}
	conf_join(pid);
	CHECK_EQ(p[0], 3);
}
CASE(mprotect_and_fork)
{
	char *p = rw(4);
	memset(p, 3, 4 * PG);
	OK(mprotect(p, 4 * PG, PROT_READ));
	pid_t pid = fork();
	if (pid == 0) {
		OK(mprotect(p, 4 * PG, PROT_READ | PROT_WRITE));
		p[0] = 9;
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(p[0], 3);
	OK(mprotect(p, 4 * PG, PROT_READ | PROT_WRITE));
	p[0] = 8;
	CHECK_EQ(p[0], 8);
}
CASE(dontneed_on_cow_leaves_other)
{
	char *p = rw(4);
	memset(p, 3, 4 * PG);
	pid_t pid = fork();
	if (pid == 0) {
		OK(madvise(p, 4 * PG, MADV_DONTNEED));
		_exit(p[0] == 0 ? 0 : 1);
	}
	conf_join(pid);
	CHECK_EQ(p[3 * PG], 3);
}
CASE(exec_in_child_leaves_parent)
{
	char *p = rw(64);
	memset(p, 3, 64 * PG);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	conf_join(pid);
	CHECK_EQ(p[63 * PG], 3);
}
CASE(vfork_shares_memory)
{
	static volatile int v;
	v = 1;
	pid_t pid = vfork();
	if (pid == 0) {
		v = 42;
		_exit(0);
	}
	CHECK_EQ(v, 42);
	conf_join(pid);
}
CASE(stack_is_copied)
{
	volatile int local = 1;
	pid_t pid = fork();
	if (pid == 0) {
		local = 2;
		_exit(local == 2 ? 0 : 1);
	}
	conf_join(pid);
	CHECK_EQ(local, 1);
}
/* fork by a bare system call; the child writes one byte at p, before anything else, and exits. */
static pid_t fork_to_write(volatile char *p)
{
	long pid;

	__asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n movb $0x55, (%1)\n"
			 "mov %2, %%eax\n xor %%edi, %%edi\n syscall\n 1:"
			 : "=a"(pid)
			 : "r"(p), "i"(SYS_exit), "0"(SYS_fork)
			 : "rcx", "r11", "rdi", "memory");
	return (pid_t)pid;
}
/* The child's first write to memory that it shares, at the lowest addresses, too. */
CASE(first_write_at_low_address)
{
	static const size_t at[] = { 0x110000, 0x180000, 0x1f0000, 0x10000000 };
	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		volatile char *p = mmap((void *)at[i], 16 * PG, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		CHECK(p == (void *)at[i]);
		memset((char *)p, 7, 16 * PG);
		conf_join(fork_to_write(p));
		for (size_t k = 0; k < 16; k++)
			CHECK_EQ(p[k * PG], 7);
	}
}
CASE(repeated_fork_is_stable)
{
	char *p = rw(256);
	memset(p, 1, 256 * PG);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(p[(size_t)i * PG] == 1 ? 0 : 1);
		conf_join(pid);
	}
}
/* Private_Dirty of the mapping at p, kB. */
static long own_kb(const char *p)
{
	return strtol(conf_smaps_row(p, "Private_Dirty:"), NULL, 10);
}
/* What many children write a few bytes each of is theirs; the rest stays their parent's. */
static void write_it(void *arg)
{
	*(volatile char *)arg = 9;
}
static void check_marks(const char *p, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		CHECK_EQ(p[i * PG], 1);
}
/* What children write is theirs at once; what the parent makes read-only between two, is so for the
 * next. */
CASE(rights_of_what_children_write)
{
	const size_t pages = 64;
	char *p = rw(pages);
	memset(p, 1, pages * PG);
	for (int round = 0; round < 12; round++) {
		size_t n = round < 8 ? pages : pages / 2;
		if (round == 8)
			OK(mprotect(p + pages / 2 * PG, pages / 2 * PG, PROT_READ));
		pid_t pid = OK(fork());
		if (pid == 0) {
			check_marks(p, pages);
			for (size_t i = n; i > 0; i--)
				p[(i - 1) * PG] = 2;
			if (round >= 8)
				CHECK_EQ(conf_signal_of(write_it, p + (pages - 1) * PG), SIGSEGV);
			if (round >= 8)
				write_it(p + pages / 2 * PG);
			_exit(0);
		}
		int status = conf_wait_status(pid);
		if (round < 8)
			CHECK_EQ(status, 0);
		else
			CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		check_marks(p, pages);
	}
}
CASE(children_own_what_they_write)
{
	size_t size = 4UL << 20;
	char *p = rw(size / PG);
	struct sync_pipe ready, go;
	pid_t pids[50];
	memset(p, 7, size);
	sp_init(&ready);
	sp_init(&go);
	for (int i = 0; i < 50; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			memcpy(p + (size_t)i * 80000, &i, sizeof(i));
			sp_post(&ready);
			sp_wait(&go); /* all have written */
			long kb = own_kb(p);
			if (kb < 4 || kb > 512) /* not a huge page, nor a window of one */
				conf_fail(__FILE__, __LINE__, "4 bytes written, %ld kB private",
					  kb);
			_exit(0);
		}
	}
	for (int i = 0; i < 50; i++)
		sp_wait(&ready);
	for (int i = 0; i < 50; i++)
		sp_post(&go);
	for (int i = 0; i < 50; i++)
		conf_join(pids[i]);
	for (size_t i = 0; i < size; i += PG)
		CHECK_EQ(p[i], 7);
}
CONF_MAIN
/* A process that goes through much memory in order may get its copies by 2 MiB at a time: all that
 * is done with parts of them works as ever. */
#define DENSE_PAGES 6144UL
static void fill_dense(char *p, int who)
{
	for (size_t i = 0; i < DENSE_PAGES; i++)
		*(size_t *)(p + i * PG + i % 500 * 8) = i * 16 + (size_t)who;
}
static void check_dense(const char *p, size_t from, size_t to, int who)
{
	for (size_t i = from; i < to; i++)
		CHECK_EQ(*(size_t *)(p + i * PG + i % 500 * 8), i * 16 + (size_t)who);
}
static void check_zero(const char *p, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		CHECK_EQ(*(size_t *)(p + i * PG + i % 500 * 8), 0);
}
static void use_dense_parts(char *p)
{
	char *end = p + DENSE_PAGES * PG;
	fill_dense(p, 2);
	check_dense(p, 0, DENSE_PAGES, 2);
	/* Shared once more, and written here and there on both sides. */
	pid_t pid = OK(fork());
	for (size_t i = 3; i < DENSE_PAGES; i += 700)
		*(size_t *)(p + i * PG + i % 500 * 8) += pid ? 1 : 2;
	for (size_t i = 0; i < DENSE_PAGES; i++)
		CHECK_EQ(*(size_t *)(p + i * PG + i % 500 * 8),
			 i * 16 + 2 + (i % 700 == 3 ? (pid ? 1UL : 2UL) : 0));
	if (pid == 0)
		_exit(0);
	conf_join(pid);
	fill_dense(p, 3);
	OK(madvise(p + 5 * PG, 600 * PG, MADV_DONTNEED));
	check_zero(p, 5, 605);
	check_dense(p, 605, DENSE_PAGES, 3);
	OK(munmap(p + 1024 * PG, 513 * PG));
	check_dense(p, 605, 1024, 3);
	check_dense(p, 1537, DENSE_PAGES, 3);
	/* Moved by an odd number of pages, grown and cut. */
	char *to = rw(1600) + PG;
	char *moved =
		mremap(p + 2048 * PG, 1500 * PG, 1501 * PG, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	CHECK(moved == to);
	for (size_t i = 0; i < 1500; i++)
		CHECK_EQ(*(size_t *)(to + i * PG + (i + 2048) % 500 * 8), (i + 2048) * 16 + 3);
	OK(mprotect(p + 3600 * PG, 100 * PG, PROT_READ));
	check_dense(p, 3548, DENSE_PAGES, 3);
	/* Read by way of the kernel, and written. */
	int fd[2];
	OK(pipe(fd));
	CHECK_EQ(write(fd[1], p + 4000 * PG, PG), PG);
	CHECK_EQ(read(fd[0], p + 4100 * PG, PG), PG);
	CHECK_EQ(memcmp(p + 4000 * PG, p + 4100 * PG, PG), 0);
	OK(munmap(end - 700 * PG, 700 * PG));
	check_dense(p, 4200, DENSE_PAGES - 700, 3);
}
CASE(dense_writers_of_much)
{
	for (int advice = 0; advice < 3; advice++) {
		char *p = rw(DENSE_PAGES);
		if (advice)
			madvise(p, DENSE_PAGES * PG, advice == 1 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
		fill_dense(p, 1);
		pid_t pid = OK(fork());
		if (pid == 0) {
			use_dense_parts(p);
			_exit(0);
		}
		conf_join(pid);
		check_dense(p, 0, DENSE_PAGES, 1);
		/* And the parent's side, while a child still has the former pages. */
		struct sync_pipe go;
		sp_init(&go);
		pid = OK(fork());
		if (pid == 0) {
			sp_wait(&go);
			check_dense(p, 0, DENSE_PAGES, 1);
			_exit(0);
		}
		fill_dense(p, 4);
		sp_post(&go);
		conf_join(pid);
		use_dense_parts(p);
	}
}
