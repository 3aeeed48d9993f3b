/* What RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK and RLIMIT_MEMLOCK refuse, and what they do not. */
#include "conf.h"
#include <sys/resource.h>
#include <sys/shm.h>

#define PG 4096UL
#define MB (1UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define SHARED (MAP_SHARED | MAP_ANONYMOUS)

static char *map(size_t size, int prot, int flags)
{
	return mmap(NULL, size, prot, flags, -1, 0);
}
static char *must_map(size_t size, int prot, int flags)
{
	char *p = map(size, prot, flags);
	CHECK(p != MAP_FAILED);
	return p;
}
static bool refused(size_t size, int prot, int flags, int err)
{
	char *p = map(size, prot, flags);
	if (p != MAP_FAILED)
		OK(munmap(p, size));
	return p == MAP_FAILED && errno == err;
}
static void limit(int what, unsigned long soft)
{
	struct rlimit lim;
	OK(getrlimit(what, &lim));
	lim.rlim_cur = soft;
	OK(setrlimit(what, &lim));
}
static unsigned long status(const char *name)
{
	return conf_bytes(conf_row("/proc/self/status", name));
}

/* ---- RLIMIT_AS ---- */

CASE(as_counts_all_mappings)
{
	char *old = must_map(32 * MB, RW, PRIVATE);
	limit(RLIMIT_AS, status("VmSize:") + 64 * MB);
	CHECK(refused(65 * MB, PROT_NONE, PRIVATE, ENOMEM));
	CHECK(refused(65 * MB, PROT_NONE, PRIVATE | MAP_NORESERVE, ENOMEM));
	CHECK(refused(65 * MB, PROT_READ, SHARED, ENOMEM));
	CHECK(!refused(60 * MB, PROT_NONE, PRIVATE, ENOMEM));
	CHECK(mremap(old, 32 * MB, 100 * MB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	CHECK(sbrk(70 * (intptr_t)MB) == (void *)-1 && errno == ENOMEM);
	int id = OK(shmget(IPC_PRIVATE, 70 * MB, 0600));
	CHECK(shmat(id, NULL, 0) == (void *)-1 && errno == ENOMEM);
	OK(shmctl(id, IPC_RMID, NULL));
	/* In the place of something else less is needed; what goes makes room. */
	CHECK(mmap(old, 32 * MB, RW, PRIVATE | MAP_FIXED, -1, 0) == old);
	char *p = must_map(60 * MB, RW, PRIVATE);
	CHECK(refused(32 * MB, RW, PRIVATE, ENOMEM));
	OK(munmap(old, 32 * MB));
	CHECK(!refused(32 * MB, RW, PRIVATE, ENOMEM));
	/* Rights cost nothing; fork does not either. */
	OK(mprotect(p, 60 * MB, PROT_READ));
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(refused(70 * MB, RW, PRIVATE, ENOMEM));
		_exit(0);
	}
	conf_join(pid);
}
CASE(as_may_be_below_what_there_is)
{
	char *p = must_map(64 * MB, RW, PRIVATE);
	limit(RLIMIT_AS, MB);
	CHECK(refused(PG, RW, PRIVATE, ENOMEM));
	memset(p, 1, 64 * MB);
	OK(mprotect(p + MB, MB, PROT_READ));
	OK(munmap(p, 32 * MB));
	CHECK(refused(PG, RW, PRIVATE, ENOMEM));
}

/* ---- RLIMIT_DATA ---- */

CASE(data_counts_what_is_private_and_writable)
{
	char *ro = must_map(64 * MB, PROT_READ, PRIVATE), *rw = must_map(8 * MB, RW, PRIVATE);
	int fd = OK(memfd_create("m", 0));
	limit(RLIMIT_DATA, status("VmData:") + 32 * MB);
	CHECK(refused(33 * MB, RW, PRIVATE, ENOMEM));
	CHECK(refused(33 * MB, RW, PRIVATE | MAP_NORESERVE, ENOMEM));
	CHECK(mmap(NULL, 33 * MB, RW, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == ENOMEM);
	CHECK(!refused(33 * MB, RW, SHARED, ENOMEM));
	CHECK(!refused(33 * MB, PROT_READ, PRIVATE, ENOMEM));
	CHECK(!refused(33 * MB, PROT_NONE, PRIVATE, ENOMEM));
	CHECK(!refused(33 * MB, PROT_READ | PROT_EXEC, PRIVATE, ENOMEM));
	CHECK(!refused(31 * MB, RW, PRIVATE, ENOMEM));
	CHECK_ERR(mprotect(ro, 33 * MB, RW), ENOMEM);
	OK(mprotect(ro, 20 * MB, RW));
	CHECK(refused(20 * MB, RW, PRIVATE, ENOMEM));
	OK(mprotect(ro, 20 * MB, PROT_READ));
	CHECK(!refused(20 * MB, RW, PRIVATE, ENOMEM));
	CHECK(mremap(rw, 8 * MB, 48 * MB, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	CHECK(mremap(ro, 64 * MB, 128 * MB, MREMAP_MAYMOVE) != MAP_FAILED);
	CHECK(sbrk(40 * (intptr_t)MB) == (void *)-1 && errno == ENOMEM);
	/* What grows down is no data. */
	CHECK(!refused(40 * MB, RW, PRIVATE | MAP_GROWSDOWN, ENOMEM));
}
/* Old programs set it to 0: mmap then asks the hard limit (Linux's may_expand_vm), brk does not. */
CASE(data_of_zero)
{
	struct rlimit lim = { 0, RLIM_INFINITY };
	OK(getrlimit(RLIMIT_DATA, &lim));
	lim.rlim_cur = 0;
	OK(setrlimit(RLIMIT_DATA, &lim));
	CHECK(!refused(MB, RW, PRIVATE, ENOMEM));
	char *p = must_map(MB, PROT_READ, PRIVATE);
	OK(mprotect(p, MB, RW));
	CHECK(sbrk(MB) == (void *)-1 && errno == ENOMEM);
	lim.rlim_max = status("VmData:") + 4 * MB;
	OK(setrlimit(RLIMIT_DATA, &lim));
	CHECK(refused(8 * MB, RW, PRIVATE, ENOMEM));
	CHECK(!refused(2 * MB, RW, PRIVATE, ENOMEM));
}

/* ---- RLIMIT_STACK ---- */

static volatile char sink;
static __attribute__((noinline)) void deep(size_t bytes)
{
	volatile char frame[16384];
	frame[0] = 1;
	if (bytes > sizeof(frame))
		deep(bytes - sizeof(frame));
	sink = frame[0];
}
static void deep_child(void *arg)
{
	deep((size_t)arg);
}
static int signal_of_depth(size_t bytes)
{
	return conf_signal_of(deep_child, (void *)bytes);
}
CASE(stack_obeys_the_limit_of_the_moment)
{
	limit(RLIMIT_STACK, 2 * MB);
	CHECK_EQ(signal_of_depth(MB), 0);
	CHECK_EQ(signal_of_depth(4 * MB), SIGSEGV);
	limit(RLIMIT_STACK, 6 * MB);
	CHECK_EQ(signal_of_depth(4 * MB), 0);
	CHECK_EQ(signal_of_depth(8 * MB), SIGSEGV);
	/* What it has grown to stays. */
	deep(4 * MB);
	limit(RLIMIT_STACK, MB);
	CHECK_EQ(signal_of_depth(3 * MB), 0);
	CHECK_EQ(signal_of_depth(5 * MB), SIGSEGV);
}
CASE(stack_obeys_address_space_too)
{
	limit(RLIMIT_STACK, 64 * MB);
	limit(RLIMIT_AS, status("VmSize:") + 4 * MB);
	CHECK_EQ(signal_of_depth(2 * MB), 0);
	CHECK_EQ(signal_of_depth(8 * MB), SIGSEGV);
}
static void write_down(void *arg)
{
	char *p = arg;
	for (size_t i = 0; i < 256; i++)
		p[-(ssize_t)(i * PG) - 1] = 1;
}
CASE(growing_mappings_obey_it)
{
	char *room = must_map(16 * MB, PROT_NONE, PRIVATE), *top = room + 15 * MB;
	OK(munmap(room, 16 * MB));
	char *p = mmap(top, PG, RW, PRIVATE | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
	CHECK(p == top);
	CHECK_EQ(conf_signal_of(write_down, top + PG), 0);
	limit(RLIMIT_STACK, 512 << 10);
	CHECK_EQ(conf_signal_of(write_down, top + PG), SIGSEGV);
}

/* ---- RLIMIT_MEMLOCK ---- */

static void as_nobody(unsigned long bytes)
{
	struct rlimit lim = { bytes, bytes };
	if (setrlimit(RLIMIT_MEMLOCK, &lim) < 0)
		SKIP("RLIMIT_MEMLOCK cannot be set");
	if (geteuid() == 0)
		OK(setresuid(64998, 64998, 64998));
}
CASE(memlock_counts_once)
{
	char *p = must_map(MB, RW, PRIVATE);
	as_nobody(32 * PG);
	OK(mlock(p, 16 * PG));
	OK(mlock(p, 16 * PG));
	OK(mlock(p + 8 * PG, 16 * PG));
	CHECK_EQ(status("VmLck:"), 24 * PG);
	CHECK_ERR(mlock(p, 33 * PG), ENOMEM);
	OK(mlock(p, 32 * PG));
	CHECK_ERR(mlock(p + 64 * PG, PG), ENOMEM);
	OK(munlock(p, 16 * PG));
	OK(mlock(p + 64 * PG, 16 * PG));
	CHECK(refused(PG, RW, PRIVATE | MAP_LOCKED, EAGAIN));
	OK(munmap(p, 32 * PG));
	CHECK_EQ(status("VmLck:"), 16 * PG);
	CHECK(!refused(16 * PG, RW, PRIVATE | MAP_LOCKED, EAGAIN));
	CHECK(refused(17 * PG, RW, PRIVATE | MAP_LOCKED, EAGAIN));
	pid_t pid = fork();
	if (pid == 0) { /* locks stay behind */
		CHECK_EQ(status("VmLck:"), 0);
		OK(mlock(p + 64 * PG, 32 * PG));
		_exit(0);
	}
	conf_join(pid);
}
CASE(memlock_of_growth)
{
	char *p = must_map(16 * PG, RW, PRIVATE);
	as_nobody(32 * PG);
	OK(mlock(p, 16 * PG));
	CHECK(mremap(p, 16 * PG, 33 * PG, MREMAP_MAYMOVE) == MAP_FAILED && errno == EAGAIN);
	CHECK((p = mremap(p, 16 * PG, 24 * PG, MREMAP_MAYMOVE)) != MAP_FAILED);
	CHECK_EQ(status("VmLck:"), 24 * PG);
}
CASE(memlock_of_all)
{
	as_nobody(32 * PG);
	CHECK_ERR(mlockall(MCL_CURRENT), ENOMEM);
	CHECK_EQ(status("VmLck:"), 0);
	OK(mlockall(MCL_FUTURE));
	CHECK(refused(64 * PG, RW, PRIVATE, EAGAIN));
	char *p = must_map(16 * PG, RW, PRIVATE);
	CHECK_EQ(status("VmLck:"), 16 * PG);
	CHECK(sbrk(64 * PG) == (void *)-1);
	OK(munlockall());
	CHECK_EQ(status("VmLck:"), 0);
	CHECK(!refused(64 * PG, RW, PRIVATE, EAGAIN));
	OK(munmap(p, 16 * PG));
}
CASE(memlock_of_nothing)
{
	char *p = must_map(PG, RW, PRIVATE);
	as_nobody(0);
	CHECK_ERR(mlock(p, PG), EPERM);
	CHECK_ERR(mlock2(p, PG, MLOCK_ONFAULT), EPERM);
	CHECK_ERR(mlockall(MCL_CURRENT), EPERM);
	CHECK(refused(PG, RW, PRIVATE | MAP_LOCKED, EPERM));
	OK(munlock(p, PG));
	OK(munlockall());
}
CONF_MAIN
