/* Address spaces in very many pieces: as many as vm.max_map_count lets a guest have, and more than
 * that in what a stub has to map. */
#include "conf.h"
#include <setjmp.h>

#define PG 4096UL
#define RW (PROT_READ | PROT_WRITE)
#define LIMIT 65530
#define PIECES 64000UL
#define BREAKS 32000UL
#define SPACE 140000UL

static char *map(size_t pages)
{
	char *p = mmap(NULL, pages * PG, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}
static volatile uint64_t *word(char *p, size_t page)
{
	return (volatile uint64_t *)(p + page * PG);
}
static void fill(char *p, size_t pages, uint64_t v)
{
	for (size_t i = 0; i < pages; i++)
		*word(p, i) = v + i;
}
static void must_be(char *p, size_t pages, uint64_t v)
{
	for (size_t i = 0; i < pages; i++)
		CHECK_EQ(*word(p, i), v + i);
}
static void usual_limit(void)
{
	int fd = OK(open("/proc/sys/vm/max_map_count", O_RDONLY));
	char text[32] = "";
	CHECK(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	if (atoi(text) != LIMIT)
		SKIP("max_map_count is %d", atoi(text));
}
/* As Linux counts: [vsyscall] is none of the process's. */
static int map_count(void)
{
	static char buf[1 << 16];
	int fd = OK(open("/proc/self/maps", O_RDONLY)), count = 0;
	ssize_t n;
	while ((n = OK(read(fd, buf, sizeof(buf)))) > 0)
		for (ssize_t i = 0; i < n; i++)
			count += buf[i] == '\n' &&
				 !(i >= 10 && !memcmp(buf + i - 10, "[vsyscall]", 10));
	close(fd);
	return count;
}
/* Cuts off pages by their rights until only `left` more mappings are allowed; the next page to
 * take. */
static size_t use_up(char *p, int left)
{
	size_t page = 1;
	for (int n = LIMIT - left - map_count(); n >= 2; n -= 2, page += 2)
		OK(mprotect(p + page * PG, PG, PROT_READ));
	if ((LIMIT - left - map_count()) & 1) /* by one: the last page */
		OK(mprotect(p + (SPACE - 1) * PG, PG, PROT_EXEC));
	CHECK_EQ(map_count(), LIMIT - left);
	return page + 1;
}

CASE(splits_end_at_the_limit)
{
	usual_limit();
	char *p = map(SPACE);
	size_t page = use_up(p, 1);
	CHECK_ERR(mprotect(p + page * PG, PG, PROT_READ), ENOMEM);
	/* A split that needs one only is done; that the second had no room is seen too. */
	CHECK(map_count() <= LIMIT);
	OK(munmap(p, SPACE * PG));
	OK(mprotect(map(3) + PG, PG, PROT_READ));
}
CASE(maps_end_at_the_limit)
{
	usual_limit();
	char *p = map(SPACE), *hole = map(4);
	OK(munmap(hole, 4 * PG));
	size_t page = use_up(p, 1);
	/* Linux's mmap looks before it adds, and its limit counts from one more than a split's
	 * does. */
	for (int i = 0; i < 2; i++)
		CHECK(mmap(hole + i * 2 * PG, PG, i ? PROT_READ : PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	CHECK_EQ(map_count(), LIMIT + 1);
	CHECK(mmap(NULL, PG, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(mmap(NULL, PG, PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED &&
	      errno == ENOMEM);
	CHECK(mremap(p, PG, 2 * PG, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
	CHECK_ERR(munmap(p + (page + 4) * PG, PG), ENOMEM);
	CHECK_ERR(madvise(p + (page + 4) * PG, PG, MADV_DONTFORK), EAGAIN);
	CHECK_ERR(mlock(p + (page + 4) * PG, PG), ENOMEM);
	char *brk_now = sbrk(0);
	CHECK(sbrk(1 << 20) == (void *)-1 || sbrk(0) > (void *)brk_now);
	/* What needs no split goes on. */
	memset(p + (page + 4) * PG, 1, 100 * PG);
	OK(madvise(p + (page + 4) * PG, PG, MADV_DONTNEED));
	CHECK_EQ(p[(page + 4) * PG], 0);
	OK(munmap(hole, PG));
	OK(munmap(hole + 2 * PG, PG));
	CHECK_EQ(map_count(), LIMIT - 1);
}
CASE(fork_and_exit_at_the_limit)
{
	usual_limit();
	char *p = map(SPACE);
	size_t page = use_up(p, 0);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_EQ(map_count(), LIMIT);
		CHECK_ERR(mprotect(p + page * PG, PG, PROT_READ), ENOMEM);
		OK(munmap(p, SPACE * PG));
		_exit(0);
	}
	conf_join(pid);
	CHECK_EQ(map_count(), LIMIT);
}

static sigjmp_buf faulted;
static void on_fault(int sig)
{
	siglongjmp(faulted, sig);
}
static bool may_write(char *p)
{
	if (sigsetjmp(faulted, 1))
		return false;
	*(volatile char *)p = 1;
	return true;
}
/* Each piece is mapped in the stub when it is cut off, so the host's own limit comes in between. */
CASE(rights_hold_at_the_limit)
{
	size_t pages = LIMIT + 1000, page = 1;
	char *p = map(pages);
	usual_limit();
	signal(SIGSEGV, on_fault);
	fill(p, pages, 0);
	while (mprotect(p + page * PG, PG, PROT_READ) == 0)
		page += 2;
	CHECK_EQ(errno, ENOMEM);
	CHECK(page > LIMIT - 200);
	for (size_t i = page - 2000; i < page; i++)
		CHECK_EQ(may_write(p + i * PG), !(i & 1));
	for (size_t i = 1; i < page; i += 2)
		OK(mprotect(p + i * PG, PG, PROT_NONE));
	for (size_t i = page - 2000; i < page; i++)
		CHECK_EQ(may_write(p + i * PG), !(i & 1));
	for (size_t i = 1; i < page; i += 2)
		OK(munmap(p + i * PG, PG));
	for (size_t i = page - 2000; i < page; i++)
		CHECK_EQ(may_write(p + i * PG), !(i & 1));
}

/* Every second page may not be written; each page has its own value. */
CASE(pieces_by_rights)
{
	char *p = map(PIECES);
	fill(p, PIECES, 1000);
	for (size_t i = 1; i < PIECES; i += 2)
		OK(mprotect(p + i * PG, PG, PROT_READ));
	must_be(p, PIECES, 1000);
	for (size_t i = 0; i < PIECES; i += 2)
		++*word(p, i);
	for (size_t i = 1; i < PIECES; i += 2) {
		OK(mprotect(p + i * PG, PG, RW));
		++*word(p, i);
		OK(mprotect(p + i * PG, PG, PROT_READ));
	}
	must_be(p, PIECES, 1001);
	OK(mprotect(p, PIECES * PG, RW));
	fill(p, PIECES, 5);
	must_be(p, PIECES, 5);
}
CASE(pieces_of_a_shared_file)
{
	int fd = OK(memfd_create("pieces", 0));
	OK(ftruncate(fd, PIECES * PG));
	char *p = mmap(NULL, PIECES * PG, RW, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	fill(p, PIECES, 7);
	for (size_t i = 1; i < PIECES; i += 2)
		OK(mprotect(p + i * PG, PG, PROT_READ));
	must_be(p, PIECES, 7);
	OK(ftruncate(fd, 100 * PG));
	must_be(p, 100, 7);
	OK(ftruncate(fd, PIECES * PG));
	for (size_t i = 100; i < PIECES; i += 3)
		CHECK_EQ(*word(p, i), 0);
	must_be(p, 100, 7);
}
CASE(pieces_are_forked)
{
	char *p = map(PIECES);
	fill(p, PIECES, 1000);
	for (size_t i = 1; i < PIECES; i += 2)
		OK(mprotect(p + i * PG, PG, PROT_READ));
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t i = 0; i < PIECES; i += 16)
			*word(p, i) = i;
		for (size_t i = 0; i < PIECES; i += 17)
			CHECK_EQ(*word(p, i), i % 16 ? 1000 + i : i);
		_exit(0);
	}
	conf_join(pid);
	for (size_t i = 0; i < PIECES; i += 8)
		*word(p, i) = ~i;
	for (size_t i = 0; i < PIECES; i += 3)
		CHECK_EQ(*word(p, i), i % 8 ? 1000 + i : ~i);
}

/* One vma, of which a fork's two sides copy every second page: 64,000 pieces that the guest knows
 * nothing of. */
static void scattered_breaks(bool in_child, bool in_parent)
{
	char *p = map(2 * BREAKS);
	int ready[2];
	char c;
	fill(p, 2 * BREAKS, 3000);
	OK(pipe(ready));
	pid_t pid = fork();
	if (pid == 0) {
		uint64_t before = 3000;
		if (in_child) {
			for (size_t i = 0; i < 2 * BREAKS; i += 2)
				*word(p, (i * 31) % (2 * BREAKS)) = 1;
			for (size_t i = 0; i < 2 * BREAKS; i++)
				CHECK_EQ(*word(p, i), i & 1 ? before + i : 1);
		}
		CHECK_EQ(write(ready[1], "x", 1), 1);
		for (size_t i = 1; i < 2 * BREAKS; i += 2)
			CHECK_EQ(*word(p, i), before + i);
		_exit(0);
	}
	if (in_parent)
		for (size_t i = 0; i < 2 * BREAKS; i += 2)
			*word(p, (i * 31) % (2 * BREAKS)) = 2;
	CHECK_EQ(read(ready[0], &c, 1), 1);
	conf_join(pid);
	for (size_t i = 0; i < 2 * BREAKS; i++)
		CHECK_EQ(*word(p, i), !in_parent || i & 1 ? 3000 + i : 2);
	fill(p, 2 * BREAKS, 9);
	must_be(p, 2 * BREAKS, 9);
}
CASE(scattered_breaks_in_the_parent)
{
	scattered_breaks(false, true);
}
CASE(scattered_breaks_in_the_child)
{
	scattered_breaks(true, false);
}
CASE(scattered_breaks_on_both_sides)
{
	scattered_breaks(true, true);
}
/* Both at once: the guest's own pieces, each broken in two. */
CASE(breaks_within_pieces)
{
	size_t pages = 4 * 17000;
	char *p = map(pages);
	fill(p, pages, 0);
	for (size_t i = 0; i < pages; i += 4) /* neighbours of different rights: 34,000 vmas */
		OK(mprotect(p + i * PG, 2 * PG, RW | PROT_EXEC));
	pid_t pid = fork();
	if (pid == 0) {
		for (size_t i = 0; i < pages; i += 2)
			*word(p, i) = ~0UL;
		for (size_t i = 0; i < pages; i += 3)
			CHECK_EQ(*word(p, i), i & 1 ? i : ~0UL);
		_exit(0);
	}
	for (size_t i = 1; i < pages; i += 2)
		*word(p, i) = 1;
	conf_join(pid);
	for (size_t i = 0; i < pages; i++)
		CHECK_EQ(*word(p, i), i & 1 ? 1 : i);
}

/* Tens of thousands of faults a case: on a busy machine they take their time. */
int main(int argc, char **argv)
{
	setenv("CONF_TIMEOUT", "150", 0);
	return conf_main(argc, argv, __start_conf_cases, __stop_conf_cases);
}
