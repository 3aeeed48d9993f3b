/*
 * Memory used again: what is mapped where something was, what is written after each of many forks,
 * rights that change all the time. A sentry that keeps memory, copies early or changes mappings
 * late shows none of it.
 */
#include "conf.h"

#include <pthread.h>

#define PAGE 4096UL
#define OFTEN 60

static char *map_at(void *at, size_t len, int prot)
{
	char *m = mmap(at, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	CHECK(m != MAP_FAILED);
	return m;
}

static void must_be(const char *m, size_t len, char value)
{
	for (size_t i = 0; i < len; i++)
		if (m[i] != value)
			conf_fail(__FILE__, __LINE__, "byte %zu is %d, not %d", i, m[i], value);
}

static void load(void *at)
{
	(void)*(volatile char *)at;
}

static void store(void *at)
{
	*(volatile char *)at = 1;
}

/* ---- where something was ---- */

static const size_t sizes[] = { PAGE, 4 * PAGE, 16 * PAGE, 64 * PAGE, 600 * PAGE };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

CASE(new_memory_is_zero)
{
	for (int i = 0; i < OFTEN; i++) {
		size_t len = sizes[(size_t)i % SIZES];
		char *m = map_at(NULL, len, PROT_READ | PROT_WRITE);

		must_be(m, len, 0);
		memset(m, 0x55, i % 3 ? len : PAGE / 2);
		OK(munmap(m, len));
		m = map_at(m, len, PROT_READ | PROT_WRITE);
		must_be(m, len, 0);
		m[len - 1] = 1;
		OK(munmap(m, len));
	}
}

CASE(a_part_goes)
{
	for (int i = 0; i < OFTEN; i++) {
		char *m = map_at(NULL, 16 * PAGE, PROT_READ | PROT_WRITE);
		size_t page = (size_t)i % 16;

		memset(m, 0x33, 16 * PAGE);
		OK(munmap(m + page * PAGE, PAGE));
		must_be(m, page * PAGE, 0x33);
		must_be(m + (page + 1) * PAGE, (15 - page) * PAGE, 0x33);
		map_at(m + page * PAGE, PAGE, PROT_READ | PROT_WRITE);
		must_be(m + page * PAGE, PAGE, 0);
		must_be(m, page * PAGE, 0x33);
		OK(munmap(m, 16 * PAGE));
	}
}

CASE(what_is_unmapped_faults)
{
	int p[2];

	OK(pipe(p));
	CHECK_EQ(write(p[1], "abcdefgh", 8), 8);
	for (int i = 0; i < OFTEN / 4; i++) {
		char *m = map_at(NULL, 8 * PAGE, PROT_READ | PROT_WRITE);

		memset(m, 1, 8 * PAGE);
		OK(munmap(m, 8 * PAGE));
		CHECK_ERR(read(p[0], m + PAGE, 1), EFAULT);
		CHECK_ERR(write(p[1], m + PAGE, 1), EFAULT);
		CHECK_ERR(msync(m, 8 * PAGE, MS_ASYNC), ENOMEM);
		CHECK_EQ(conf_signal_of(load, m + PAGE), SIGSEGV);
		CHECK_EQ(conf_signal_of(store, m + PAGE), SIGSEGV);
	}
}

CASE(something_else_comes)
{
	int fd = OK(open(conf_path("file"), O_RDWR | O_CREAT, 0600));
	char page[PAGE], *m;

	memset(page, 0x77, PAGE);
	CHECK_EQ(write(fd, page, PAGE), PAGE);
	for (int i = 0; i < OFTEN; i++) {
		m = map_at(NULL, PAGE, PROT_READ | PROT_WRITE);
		memset(m, 1, PAGE);
		OK(munmap(m, PAGE));
		CHECK(mmap(m, PAGE, PROT_READ | PROT_WRITE,
			   MAP_FIXED | (i % 2 ? MAP_SHARED : MAP_PRIVATE), fd, 0) == m);
		must_be(m, PAGE, 0x77);
		OK(munmap(m, PAGE));
		m = map_at(m, PAGE, PROT_READ);
		must_be(m, PAGE, 0);
		CHECK_EQ(conf_signal_of(store, m), SIGSEGV);
		OK(munmap(m, PAGE));
	}
}

static void *unmap_and_map(void *arg)
{
	for (int i = 0; i < 5 * OFTEN; i++) {
		char *m = map_at(NULL, 32 * PAGE, PROT_READ | PROT_WRITE);

		must_be(m, 32 * PAGE, 0);
		memset(m, (int)(intptr_t)arg, 32 * PAGE);
		must_be(m, 32 * PAGE, (char)(intptr_t)arg);
		OK(munmap(m, 32 * PAGE));
	}
	return NULL;
}

CASE(threads_map_and_unmap)
{
	pthread_t t[4];

	for (intptr_t i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, unmap_and_map, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

/* ---- rights ---- */

CASE(rights_hold_at_once)
{
	char *m = map_at(NULL, 4 * PAGE, PROT_READ | PROT_WRITE);

	for (int i = 0; i < OFTEN / 4; i++) {
		memset(m, i, 4 * PAGE);
		OK(mprotect(m + PAGE, PAGE, PROT_READ));
		must_be(m, 4 * PAGE, (char)i);
		CHECK_EQ(conf_signal_of(store, m + PAGE), SIGSEGV);
		CHECK_EQ(conf_signal_of(store, m + 2 * PAGE), 0);
		OK(mprotect(m + PAGE, PAGE, PROT_NONE));
		CHECK_EQ(conf_signal_of(load, m + PAGE), SIGSEGV);
		CHECK_ERR(write(-1, m, 0), EBADF);
		OK(mprotect(m + PAGE, PAGE, PROT_READ | PROT_WRITE));
	}
}

static int go[2], done[2];

static void *stores(void *at)
{
	char c;

	for (;;) {
		CHECK_EQ(read(go[0], &c, 1), 1);
		store(at);
		CHECK_EQ(write(done[1], "", 1), 1);
	}
	return NULL;
}

static void forbid_the_other(void *at)
{
	pthread_t t;
	char c;

	CHECK_EQ(pthread_create(&t, NULL, stores, at), 0);
	for (int i = 0; i < 8; i++) {
		CHECK_EQ(write(go[1], "", 1), 1);
		CHECK_EQ(read(done[0], &c, 1), 1);
		OK(mprotect(at, PAGE, PROT_READ));
		OK(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
	}
	OK(mprotect(at, PAGE, PROT_READ));
	CHECK_EQ(write(go[1], "", 1), 1);
	pthread_join(t, NULL);
}

CASE(rights_hold_for_other_threads)
{
	OK(pipe(go));
	OK(pipe(done));
	for (int i = 0; i < 8; i++)
		CHECK_EQ(conf_signal_of(forbid_the_other,
					map_at(NULL, PAGE, PROT_READ | PROT_WRITE)),
			 SIGSEGV);
}

/* ---- forks ---- */

/* Pieces that are written on both sides after each fork; more than anybody will remember. */
#define PIECES 40
#define STRIDE (8 * PAGE)

static char *pieces;

static void check_pieces(char value)
{
	for (size_t i = 0; i < PIECES; i++)
		CHECK_EQ(pieces[i * STRIDE], value);
}

static void write_pieces(char value)
{
	for (size_t i = 0; i < PIECES; i++)
		pieces[i * STRIDE] = value;
}

static void child_writes(void *arg)
{
	char value = (char)(intptr_t)arg;

	check_pieces(value);
	write_pieces(100);
	check_pieces(100);
}

CASE(both_sides_of_a_fork_write)
{
	pieces = map_at(NULL, PIECES * STRIDE, PROT_READ | PROT_WRITE);
	for (int i = 0; i < OFTEN; i++) {
		pid_t pid;

		write_pieces((char)i);
		pid = conf_fork(child_writes, (void *)(intptr_t)i);
		if (i % 2)
			conf_join(pid);
		check_pieces((char)i);
		write_pieces(101);
		check_pieces(101);
		if (i % 2 == 0)
			conf_join(pid);
	}
}

static void descend(void *arg)
{
	intptr_t left = (intptr_t)arg;

	check_pieces((char)left);
	write_pieces((char)(left - 1));
	if (left > 1)
		conf_join(conf_fork(descend, (void *)(left - 1)));
	check_pieces((char)(left - 1));
}

CASE(generations_write)
{
	pieces = map_at(NULL, PIECES * STRIDE, PROT_READ | PROT_WRITE);
	for (int i = 0; i < 4; i++) {
		write_pieces(12);
		conf_join(conf_fork(descend, (void *)12L));
		check_pieces(12);
	}
}

static void sees_other_mappings(void *arg)
{
	/* Gone, read only, not for children, wiped, shared. */
	CHECK_EQ(conf_signal_of(load, pieces), SIGSEGV);
	CHECK_EQ(pieces[STRIDE], 1);
	CHECK_EQ(conf_signal_of(store, pieces + STRIDE), SIGSEGV);
	CHECK_EQ(conf_signal_of(load, pieces + 2 * STRIDE), SIGSEGV);
	CHECK_EQ(pieces[3 * STRIDE], 0);
	CHECK_EQ(pieces[4 * STRIDE], 2);
	pieces[4 * STRIDE] = 3;
	CHECK_EQ(pieces[5 * STRIDE], 1);
	pieces[5 * STRIDE] = 9;
}

CASE(what_was_written_changes)
{
	pieces = map_at(NULL, PIECES * STRIDE, PROT_READ | PROT_WRITE);
	for (int i = 0; i < 8; i++) {
		write_pieces(1);
		conf_join(conf_fork(child_writes, (void *)1L));
		write_pieces(1);
	}
	OK(munmap(pieces, PAGE));
	OK(mprotect(pieces + STRIDE, PAGE, PROT_READ));
	OK(madvise(pieces + 2 * STRIDE, PAGE, MADV_DONTFORK));
	OK(madvise(pieces + 3 * STRIDE, PAGE, MADV_WIPEONFORK));
	CHECK(mmap(pieces + 4 * STRIDE, PAGE, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == pieces + 4 * STRIDE);
	for (int i = 0; i < 8; i++) {
		pieces[4 * STRIDE] = 2;
		pieces[5 * STRIDE] = 1;
		conf_join(conf_fork(sees_other_mappings, NULL));
		CHECK_EQ(pieces[4 * STRIDE], 3);
		CHECK_EQ(pieces[5 * STRIDE], 1);
	}
}

CONF_MAIN
