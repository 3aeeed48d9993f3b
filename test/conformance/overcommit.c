/* Promised memory: vm.overcommit_memory and its like, CommitLimit and Committed_AS. */
#include "conf.h"
#include <setjmp.h>
#include <sys/shm.h>
#include <sys/sysinfo.h>

#define MB (1UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define SHARED (MAP_SHARED | MAP_ANONYMOUS)

static char *map(size_t size, int prot, int flags)
{
	return mmap(NULL, size, prot, flags, -1, 0);
}
static bool maps(size_t size, int prot, int flags)
{
	char *p = map(size, prot, flags);
	if (p == MAP_FAILED) {
		CHECK_EQ(errno, ENOMEM);
		return false;
	}
	OK(munmap(p, size));
	return true;
}
/* All that there is, and a bit. */
static size_t too_much(void)
{
	struct sysinfo si;
	OK(sysinfo(&si));
	return ((si.totalram + si.totalswap) * si.mem_unit + 512 * MB) & ~(MB - 1);
}
static unsigned long meminfo(const char *name)
{
	return conf_bytes(conf_row("/proc/meminfo", name));
}
static unsigned long get(const char *name)
{
	char path[128], text[32] = "";
	snprintf(path, sizeof(path), "/proc/sys/vm/%s", name);
	int fd = OK(open(path, O_RDONLY));
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtoul(text, NULL, 10);
}
static int set_text(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof(path), "/proc/sys/vm/%s", name);
	int fd = open(path, O_WRONLY);
	if (fd < 0)
		return -1;
	int r = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
	int err = errno;
	close(fd);
	errno = err;
	return r;
}
static int set(const char *name, unsigned long v)
{
	char text[32];
	snprintf(text, sizeof(text), "%lu\n", v);
	return set_text(name, text);
}

CASE(guess_refuses_what_can_never_be)
{
	size_t size = too_much();
	if (get("overcommit_memory") != 0)
		SKIP("overcommit_memory is not 0");
	CHECK(!maps(size, RW, PRIVATE));
	CHECK(!maps(size, PROT_WRITE, PRIVATE));
	CHECK(!maps(size, RW, SHARED));
	CHECK(!maps(size, PROT_READ, SHARED));
	CHECK(maps(size, RW, PRIVATE | MAP_NORESERVE));
	CHECK(maps(size, RW, SHARED | MAP_NORESERVE));
	CHECK(maps(size, PROT_READ, PRIVATE));
	CHECK(maps(size, PROT_NONE, PRIVATE));
	CHECK(maps(size / 2, RW, PRIVATE));
	CHECK_ERR(shmget(IPC_PRIVATE, size, 0600), ENOMEM);
}
CASE(guess_looks_at_each_request_alone)
{
	size_t size = too_much() / 2;
	char *p[8];
	if (get("overcommit_memory") != 0)
		SKIP("overcommit_memory is not 0");
	for (int i = 0; i < 8; i++)
		CHECK((p[i] = map(size, RW | (i & 1 ? PROT_EXEC : 0), PRIVATE)) != MAP_FAILED);
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	conf_join(pid);
	/* One mapping of neighbours that are alike is one request to fork. */
	for (int i = 0; i < 8; i++)
		OK(mprotect(p[i], size, RW));
	CHECK_EQ(fork(), -1);
	CHECK_EQ(errno, ENOMEM);
	CHECK(mremap(p[0], size, too_much() * 2, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	for (int i = 0; i < 8; i++)
		OK(munmap(p[i], size));
}
CASE(guess_of_mprotect)
{
	size_t size = too_much();
	if (get("overcommit_memory") != 0)
		SKIP("overcommit_memory is not 0");
	char *p = map(size, PROT_NONE, PRIVATE);
	CHECK(p != MAP_FAILED);
	CHECK_ERR(mprotect(p, size, RW), ENOMEM);
	OK(mprotect(p, size / 2, RW));
	p[0] = 1;
	OK(mprotect(p, size, PROT_READ));
	CHECK_EQ(p[0], 1);
	OK(munmap(p, size));
	p = map(size, PROT_NONE, PRIVATE | MAP_NORESERVE);
	CHECK(p != MAP_FAILED);
	OK(mprotect(p, size, RW));
	OK(munmap(p, size));
}
CASE(guess_of_brk)
{
	if (get("overcommit_memory") != 0)
		SKIP("overcommit_memory is not 0");
	CHECK_EQ(sbrk((intptr_t)too_much()), -1);
	CHECK_EQ(errno, ENOMEM);
	CHECK(sbrk(MB) != (void *)-1);
}

/* Natively others move it too, for a while. */
static void moved(long before, long expected)
{
	long slack = conf_in_sandbox() ? 0 : 200 * (long)MB, now = 0;

	for (int tries = conf_in_sandbox() ? 1 : 200; tries; tries--) {
		now = (long)meminfo("Committed_AS:") - before;
		if (now >= expected - slack && now <= expected + slack)
			return;
		if (tries > 1)
			usleep(50000);
	}
	conf_fail(__FILE__, __LINE__, "Committed_AS moved by %ld kB, not %ld", now >> 10,
		  expected >> 10);
}
/* It is compared with much. */
CASE(committed_as_follows)
{
	const long S = 1024 * (long)MB;
	size_t size = (size_t)S;
	char *p, *q;
	long before;
	p = map(MB, RW, PRIVATE); /* what the first read needs is there */
	CHECK(p != MAP_FAILED);
	meminfo("Committed_AS:");
	before = (long)meminfo("Committed_AS:");
	CHECK((p = map(size, RW, PRIVATE)) != MAP_FAILED);
	moved(before, S);
	OK(munmap(p, size / 2));
	moved(before, S / 2);
	OK(munmap(p, size));
	moved(before, 0);
	CHECK((p = map(size, RW, PRIVATE | MAP_NORESERVE)) != MAP_FAILED);
	moved(before, 0);
	OK(munmap(p, size));
	CHECK((p = map(size, PROT_NONE, PRIVATE)) != MAP_FAILED);
	moved(before, 0);
	OK(mprotect(p, size / 2, RW));
	moved(before, S / 2);
	p[0] = 1;
	OK(mprotect(p, size, PROT_READ));
	moved(before, S / 2); /* what has been written may be there still */
	CHECK((q = mmap(p, size, PROT_READ, PRIVATE | MAP_FIXED, -1, 0)) == p);
	moved(before, 0);
	OK(munmap(p, size));
	CHECK((p = map(size, PROT_READ, SHARED)) != MAP_FAILED);
	moved(before, S);
	OK(munmap(p, size / 2));
	moved(before, S);
	OK(munmap(p, size));
	moved(before, 0);
	CHECK((p = map(size, RW, SHARED | MAP_NORESERVE)) != MAP_FAILED);
	moved(before, 0);
	OK(munmap(p, size));
}
CASE(committed_as_of_forks_and_moves)
{
	const long S = 1024 * (long)MB;
	size_t size = (size_t)S;
	int up[2], down[2];
	char c;
	long before = (long)meminfo("Committed_AS:");
	char *p = map(size, RW, PRIVATE), *q = map(size, RW, PRIVATE);
	CHECK(p != MAP_FAILED && q != MAP_FAILED);
	OK(madvise(q, size, MADV_DONTFORK));
	moved(before, 2 * S);
	if (!conf_in_sandbox()) {
		OK(pipe(up));
		OK(pipe(down));
		pid_t pid = fork();
		if (pid == 0) {
			CHECK_EQ(write(up[1], "x", 1), 1);
			CHECK_EQ(read(down[0], &c, 1), 1);
			_exit(0);
		}
		CHECK_EQ(read(up[0], &c, 1), 1);
		moved(before, 3 * S);
		CHECK_EQ(write(down[1], "x", 1), 1);
		conf_join(pid);
	} else { /* exact but for the child's own small things */
		OK(pipe(up));
		pid_t pid = fork();
		if (pid == 0) {
			long now = (long)meminfo("Committed_AS:");
			CHECK(now >= before + 3 * S && now < before + 3 * S + 32 * (long)MB);
			_exit(0);
		}
		conf_join(pid);
	}
	moved(before, 2 * S);
	CHECK((p = mremap(p, size, 2 * size, MREMAP_MAYMOVE)) != MAP_FAILED);
	moved(before, 3 * S);
	CHECK((p = mremap(p, 2 * size, size, 0)) != MAP_FAILED);
	moved(before, 2 * S);
	char *old = p;
	CHECK((p = mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL)) != MAP_FAILED);
	moved(before, 3 * S);
	OK(munmap(old, size));
	OK(munmap(p, size));
	OK(munmap(q, size));
	moved(before, 0);
}
CASE(committed_as_of_files_in_memory)
{
	const long S = 256 * (long)MB;
	int fd = OK(memfd_create("m", 0));
	long before = (long)meminfo("Committed_AS:");
	OK(ftruncate(fd, 4 * S));
	moved(before, 0);
	OK(fallocate(fd, 0, 0, S));
	moved(before, S);
	char *p = mmap(NULL, (size_t)S, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	p[0] = 1;
	moved(before, S);
	OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, S / 2));
	moved(before, S / 2);
	OK(munmap(p, (size_t)S));
	close(fd);
	moved(before, 0);
	int id = OK(shmget(IPC_PRIVATE, (size_t)S, 0600));
	moved(before, S);
	CHECK((p = shmat(id, NULL, 0)) != (void *)-1);
	memset(p, 1, 4 * MB);
	moved(before, S);
	OK(shmctl(id, IPC_RMID, NULL));
	OK(shmdt(p));
	moved(before, 0);
}

/* ---- what changes the kernel's settings: never the host's ---- */

/* Runs fn in a helper with the settings put back after it. */
static void with_settings(void (*fn)(void *))
{
	unsigned long mode = get("overcommit_memory"), ratio = get("overcommit_ratio");
	if (!conf_in_sandbox())
		SKIP("it would change the host's overcommit settings");
	if (geteuid() != 0)
		SKIP("needs root");
	int status = conf_wait_status(conf_fork(fn, NULL));
	OK(set("overcommit_memory", mode));
	OK(set("overcommit_ratio", ratio));
	CHECK_EQ(status, 0);
}
static void settings(void *arg)
{
	struct stat st;
	OK(stat("/proc/sys/vm/overcommit_memory", &st));
	CHECK_EQ(st.st_mode, S_IFREG | 0644);
	CHECK_ERR(set_text("overcommit_memory", "3\n"), EINVAL);
	CHECK_ERR(set_text("overcommit_memory", "-1\n"), EINVAL);
	CHECK_ERR(set_text("overcommit_memory", "x\n"), EINVAL);
	OK(set("overcommit_memory", 1));
	CHECK_EQ(get("overcommit_memory"), 1);
	OK(set("overcommit_ratio", 30));
	unsigned long total = meminfo("MemTotal:"), limit = meminfo("CommitLimit:");
	CHECK(limit <= total * 30 / 100 && limit + 8 * MB > total * 30 / 100);
	CHECK_EQ(get("overcommit_kbytes"), 0);
	OK(set("overcommit_kbytes", 123456));
	CHECK_EQ(get("overcommit_ratio"), 0);
	CHECK_EQ(meminfo("CommitLimit:"), 123456UL << 10);
	OK(set("overcommit_ratio", 200));
	CHECK_EQ(get("overcommit_kbytes"), 0);
	CHECK(meminfo("CommitLimit:") > total);
	OK(setresuid(1000, 1000, 1000));
	CHECK_ERR(set("overcommit_memory", 0), EACCES);
	CHECK_ERR(set("overcommit_ratio", 1), EACCES);
	CHECK_EQ(get("overcommit_memory"), 1);
}
CASE(settings_are_kept)
{
	with_settings(settings);
}
static void always(void *arg)
{
	OK(set("overcommit_memory", 1));
	CHECK(maps(1UL << 40, RW, PRIVATE));
	CHECK(maps(1UL << 40, RW, SHARED));
	char *p = map(1UL << 40, PROT_NONE, PRIVATE);
	CHECK(p != MAP_FAILED);
	OK(mprotect(p, 1UL << 40, RW));
	p[123 * MB] = 1;
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(p[123 * MB], 1);
		_exit(0);
	}
	conf_join(pid);
}
CASE(always_refuses_nothing)
{
	with_settings(always);
}
/* Room for 600 MB more, beside what is kept for others. */
static void never_with_room(void)
{
	OK(set("overcommit_kbytes", (meminfo("Committed_AS:") + 600 * MB) >> 10));
	OK(set("overcommit_memory", 2));
}
static void never(void *arg)
{
	never_with_room();
	CHECK(!maps(700 * MB, RW, PRIVATE));
	CHECK(!maps(700 * MB, RW, PRIVATE | MAP_NORESERVE)); /* counts in this mode */
	CHECK(!maps(700 * MB, RW, SHARED));
	CHECK(!maps(700 * MB, RW, SHARED | MAP_NORESERVE));
	CHECK(maps(700 * MB, PROT_READ, PRIVATE));
	CHECK_ERR(shmget(IPC_PRIVATE, 700 * MB, 0600), ENOMEM);
	char *p = map(400 * MB, RW, PRIVATE), *q;
	CHECK(p != MAP_FAILED);
	CHECK(!maps(400 * MB, RW, PRIVATE));
	CHECK_EQ(sbrk(400 * (intptr_t)MB), -1);
	CHECK(mremap(p, 400 * MB, 800 * MB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	CHECK(mremap(p, 400 * MB, 400 * MB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) ==
		      MAP_FAILED &&
	      errno == ENOMEM);
	CHECK((q = map(400 * MB, PROT_NONE, PRIVATE)) != MAP_FAILED);
	CHECK_ERR(mprotect(q, 400 * MB, RW), ENOMEM);
	OK(mprotect(q, 50 * MB, RW));
	memset(q, 1, MB);
	CHECK_EQ(fork(), -1);
	CHECK_EQ(errno, ENOMEM);
	OK(madvise(p, 400 * MB, MADV_DONTFORK));
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	conf_join(pid);
	/* Replacing takes no more. */
	CHECK(mmap(p, 400 * MB, RW, PRIVATE | MAP_FIXED, -1, 0) == p);
	OK(munmap(p, 400 * MB));
	CHECK(maps(400 * MB, RW, PRIVATE));
	/* Within what has been promised all can be written. */
	CHECK((p = map(64 * MB, RW, PRIVATE)) != MAP_FAILED);
	memset(p, 1, 64 * MB);
}
CASE(never_refuses_beyond_the_limit)
{
	with_settings(never);
}
static sigjmp_buf faulted;
static void on_fault(int sig)
{
	siglongjmp(faulted, sig);
}
static int signal_of_write(char *p)
{
	int sig = sigsetjmp(faulted, 1);
	if (!sig)
		*(volatile char *)p = 1;
	return sig;
}
static void never_files(void *arg)
{
	static char buf[1 << 20];
	int fd = OK(memfd_create("m", 0));
	size_t written = 0;
	ssize_t n;
	never_with_room();
	CHECK_ERR(fallocate(fd, 0, 0, 700 * MB), ENOSPC);
	OK(ftruncate(fd, 2000 * MB));
	while ((n = write(fd, buf, sizeof(buf))) > 0)
		written += (size_t)n;
	CHECK(n == -1 && errno == ENOSPC);
	CHECK(written > 300 * MB && written <= 600 * MB);
	char *p = mmap(NULL, 2000 * MB, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	signal(SIGBUS, on_fault);
	CHECK_EQ(signal_of_write(p + 1000 * MB), SIGBUS);
	OK(set("overcommit_memory", 0));
	CHECK_EQ(signal_of_write(p + 1000 * MB), 0);
}
CASE(never_limits_files_in_memory)
{
	with_settings(never_files);
}
static void stack_user(void *arg)
{
	volatile char big[4 << 20];
	for (size_t i = 0; i < sizeof(big); i += 4096)
		big[sizeof(big) - 1 - i] = 1;
}
static void never_rest(void *arg)
{
	OK(set("overcommit_kbytes", 1));
	OK(set("overcommit_memory", 2));
	CHECK(!maps(4096, RW, PRIVATE));
	CHECK(maps(4096, PROT_READ, PRIVATE));
	CHECK_EQ(fork(), -1);
	CHECK_EQ(errno, ENOMEM);
	OK(set("overcommit_memory", 0));
	pid_t pid = fork();
	if (pid == 0) {
		OK(set("overcommit_memory", 2));
		stack_user(NULL);
		_exit(0);
	}
	int status = conf_wait_status(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV); /* the stack may not grow */
	OK(set("overcommit_memory", 0));
}
CASE(never_with_nothing_left)
{
	with_settings(never_rest);
}
CASE(processes_leave_nothing)
{
	if (!conf_in_sandbox())
		SKIP("others' promises move all the time");
	long before = (long)meminfo("Committed_AS:");
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			map(100 * MB, RW, PRIVATE);
			map(100 * MB, RW, SHARED);
			if (i & 1)
				execl("/bin/true", "true", NULL);
			_exit(0);
		}
		conf_wait_status(pid);
	}
	moved(before, 0);
}
CONF_MAIN
