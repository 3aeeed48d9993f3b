/*
 * Program text that a sentry has rewritten, and mappings that change around it: parts go, come
 * back, move, get other rights, are written to through the file. Linked like patch.c.
 */
#include "conf.h"

#include <elf.h>
#include <link.h>

#define PAGE 4096UL
#define OFTEN 80
#define NO_PGRP 0x7ffffff1
#define PLAIN_SITES 64
#define PLAIN_SIZE 16

/*
 * Four pages: `across` with its instructions on both sides of the first boundary, `behind` of the
 * second, and the rest on the third. `plain` are sites without unwind tables, 16 bytes each; what
 * a sentry rewrites of them it rewrites for this process alone.
 */
__asm__(".text\n.balign 4096\ntext:\n"
	".skip 4096 - 3\n"
	"across: .cfi_startproc\nmov $121, %eax\nsyscall\nret\n.cfi_endproc\n"
	".type across, @function\n.size across, . - across\n"
	".skip 8192 - (. - text) - 6\n"
	"behind: .cfi_startproc\nmov %ebx, %eax\nnop\nnop\nsyscall\ncmp $-4095, %rax\nret\n"
	".cfi_endproc\n.type behind, @function\n.size behind, . - behind\n"
	".balign 64\n"
	"middle: .cfi_startproc\nmov $121, %eax\nsyscall\nret\n.cfi_endproc\n"
	".type middle, @function\n.size middle, . - middle\n"
	".balign 4096\n"
	"plain: .rept 64\n.balign 16\nmov $121, %eax\nsyscall\nret\n.endr\n"
	".balign 4096\ntext_end:\n");
extern const char text[], text_end[], across[], behind[], middle[], plain[];
#define SIZE ((size_t)(text_end - text))
#define PAGES 4

static long call(const char *at)
{
	long ret;

	__asm__ volatile("call *%1"
			 : "=a"(ret)
			 : "r"(at), "D"((long)NO_PGRP), "b"((long)SYS_getpgid)
			 : "rcx", "r11", "cc", "memory");
	return ret;
}

static void call_all(const char *m)
{
	CHECK_EQ(call(m + (across - text)), -ESRCH);
	CHECK_EQ(call(m + (behind - text)), -ESRCH);
	CHECK_EQ(call(m + (middle - text)), -ESRCH);
	CHECK_EQ(call(m + (plain - text)), -ESRCH);
}

static void call_often(const char *m)
{
	for (int i = 0; i < OFTEN; i++)
		call_all(m);
}

static uint64_t file_offset;

static int find_offset(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uint64_t at = (uint64_t)text - info->dlpi_addr;

		if (p->p_type == PT_LOAD && at >= p->p_vaddr && at - p->p_vaddr < p->p_filesz)
			file_offset = at - p->p_vaddr + p->p_offset;
	}
	return 1;
}

/* A copy of this program's file, and the text in a mapping of it, where a library would be. */
static int copy_of_file(void)
{
	int from = OK(open("/proc/self/exe", O_RDONLY)), to;
	char buf[65536];
	ssize_t n;

	dl_iterate_phdr(find_offset, NULL);
	to = OK(open(conf_path("library"), O_RDWR | O_CREAT, 0700));
	while ((n = OK(read(from, buf, sizeof(buf)))) > 0)
		CHECK_EQ(write(to, buf, (size_t)n), n);
	close(from);
	return to;
}

static char *map_library(int fd)
{
	struct stat st;
	char *m;

	OK(fstat(fd, &st));
	m = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	CHECK(m != MAP_FAILED);
	return m + file_offset;
}

/* The same page of the file again. */
static void map_again(int fd, const char *m, int page)
{
	char *at = (char *)m + page * PAGE;

	CHECK(mmap(at, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd,
		   (off_t)(file_offset + (uint64_t)page * PAGE)) == at);
}

/* ---- parts of it ---- */

CASE(a_page_is_mapped_anew)
{
	int fd = copy_of_file();
	const char *m = map_library(fd);

	call_often(m);
	for (int page = 0; page < PAGES; page++) {
		map_again(fd, m, page);
		call_all(m);
		call_often(m);
	}
}

CASE(a_page_goes_and_comes_back)
{
	int fd = copy_of_file();
	const char *m = map_library(fd);

	for (int page = 0; page < PAGES; page++) {
		call_often(m);
		OK(munmap((char *)m + page * PAGE, PAGE));
		if (page != 2)
			CHECK_EQ(call(m + (middle - text)), -ESRCH);
		if (page != 3)
			CHECK_EQ(call(m + (plain - text)), -ESRCH);
		map_again(fd, m, page);
		call_all(m);
	}
}

CASE(a_page_becomes_a_copy)
{
	int fd = copy_of_file();
	const char *m = map_library(fd);
	char page_copy[PAGE];

	for (int page = 0; page < PAGES; page++) {
		char *at = (char *)m + page * PAGE;

		call_often(m);
		CHECK_EQ(pread(fd, page_copy, PAGE, (off_t)(file_offset + page * PAGE)), PAGE);
		CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
			   MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == at);
		memcpy(at, page_copy, PAGE);
		call_often(m);
	}
}

CASE(a_page_gets_other_rights)
{
	static const int rights[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
				      PROT_READ | PROT_WRITE | PROT_EXEC };
	const char *m = map_library(copy_of_file());

	for (size_t r = 0; r < sizeof(rights) / sizeof(rights[0]); r++) {
		for (int page = 0; page < PAGES; page++) {
			char *at = (char *)m + page * PAGE;

			call_often(m);
			OK(mprotect(at, PAGE, rights[r]));
			if (rights[r] & PROT_EXEC)
				call_all(m);
			OK(mprotect(at, PAGE, PROT_READ | PROT_EXEC));
			call_all(m);
		}
	}
}

static void must_fault(void *at)
{
	call(at);
}

CASE(rights_hold_for_rewritten_text)
{
	char *m = map_library(copy_of_file());

	call_often(m);
	OK(mprotect(m + 2 * PAGE, PAGE, PROT_READ));
	CHECK_EQ(conf_signal_of(must_fault, m + (middle - text)), SIGSEGV);
	CHECK_EQ(call(m + (plain - text)), -ESRCH);
	OK(munmap(m + 2 * PAGE, PAGE));
	CHECK_EQ(conf_signal_of(must_fault, m + (middle - text)), SIGSEGV);
	CHECK_EQ(call(m + (plain - text)), -ESRCH);
}

CASE(a_page_is_written_to)
{
	char *m = map_library(copy_of_file());
	uint32_t nr = SYS_getpid;

	call_often(m);
	OK(mprotect(m + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
	memcpy(m + (middle - text) + 1, &nr, sizeof(nr));
	for (int i = 0; i < OFTEN; i++) {
		CHECK_EQ(call(m + (middle - text)), getpid());
		CHECK_EQ(call(m + (across - text)), -ESRCH);
		CHECK_EQ(call(m + (behind - text)), -ESRCH);
	}
}

/* ---- moves ---- */

CASE(text_moves)
{
	char *m = map_library(copy_of_file()), *to, *n;

	call_often(m);
	to = mmap(NULL, SIZE + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED);
	n = mremap(m, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to + PAGE);
	CHECK(n == to + PAGE);
	call_all(n);
	call_often(n);
	CHECK(mremap(n, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, m) == m);
	call_often(m);
}

CASE(a_page_of_text_moves)
{
	char *m = map_library(copy_of_file()), *to;

	call_often(m);
	to = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED);
	CHECK(mremap(m + 2 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	for (int i = 0; i < OFTEN; i++) {
		CHECK_EQ(call(to + (middle - text) - 2 * PAGE), -ESRCH);
		CHECK_EQ(call(m + (across - text)), -ESRCH);
	}
	CHECK(mremap(to, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, m + 2 * PAGE) == m + 2 * PAGE);
	call_often(m);
}

CASE(text_shrinks)
{
	char *m = map_library(copy_of_file());

	call_often(m);
	CHECK(mremap(m, SIZE, 2 * PAGE, 0) == m);
	for (int i = 0; i < OFTEN; i++)
		CHECK_EQ(call(m + (across - text)), -ESRCH);
}

/* ---- the file changes ---- */

static void change(int fd, uint32_t nr)
{
	CHECK_EQ(pwrite(fd, &nr, sizeof(nr), (off_t)(file_offset + (middle - text) + 1)),
		 sizeof(nr));
}

CASE(a_write_to_the_file_shows)
{
	int fd = copy_of_file();
	const char *m = map_library(fd), *n = map_library(fd);

	for (int i = 0; i < 4; i++) {
		call_often(m);
		call_often(n);
		change(fd, SYS_getpid);
		CHECK_EQ(call(m + (middle - text)), getpid());
		CHECK_EQ(call(n + (middle - text)), getpid());
		for (int j = 0; j < OFTEN; j++)
			CHECK_EQ(call(m + (middle - text)), getpid());
		change(fd, SYS_getpgid);
		call_all(m);
		call_all(n);
	}
}

/* With a pipe each way: one byte, the other's turn. */
static int ask[2], answer[2];
static const char *others;

static void other_process(void *arg)
{
	char c;

	call_often(others);
	CHECK_EQ(write(answer[1], "", 1), 1);
	while (read(ask[0], &c, 1) == 1 && c) {
		CHECK_EQ(call(others + (middle - text)), c == 1 ? getpid() : -ESRCH);
		CHECK_EQ(write(answer[1], "", 1), 1);
	}
}

CASE(a_write_shows_in_other_processes)
{
	int fd = copy_of_file();
	pid_t pid;
	char c;

	OK(pipe(ask));
	OK(pipe(answer));
	others = map_library(fd);
	call_often(others);
	pid = conf_fork(other_process, NULL);
	CHECK_EQ(read(answer[0], &c, 1), 1);
	for (int i = 0; i < 8; i++) {
		c = (char)(i % 2 ? 2 : 1);
		change(fd, c == 1 ? SYS_getpid : SYS_getpgid);
		CHECK_EQ(write(ask[1], &c, 1), 1);
		CHECK_EQ(read(answer[0], &c, 1), 1);
	}
	c = 0;
	CHECK_EQ(write(ask[1], &c, 1), 1);
	conf_join(pid);
}

static void truncated_call(void *at)
{
	call(at);
}

CASE(the_file_is_truncated)
{
	int fd = copy_of_file();
	char *m = map_library(fd);

	call_often(m);
	OK(ftruncate(fd, (off_t)(file_offset + 2 * PAGE)));
	CHECK_EQ(conf_signal_of(truncated_call, m + (middle - text)), SIGBUS);
	for (int i = 0; i < OFTEN; i++)
		CHECK_EQ(call(m + (across - text)), -ESRCH);
}

/* ---- many of them ---- */

static bool rewritten(const char *at)
{
	return *(const volatile uint8_t *)at == 0xe9;
}

/* An image of two pages, the second one the plain sites. */
static char *map_small(int round)
{
	Elf64_Ehdr eh = { .e_ident = ELFMAG, .e_type = ET_DYN };
	char name[32], *m;
	int fd;

	snprintf(name, sizeof(name), "library%d", round);
	fd = OK(open(conf_path(name), O_RDWR | O_CREAT, 0700));
	CHECK_EQ(pwrite(fd, &eh, sizeof(eh), 0), sizeof(eh));
	CHECK_EQ(pwrite(fd, plain, PAGE, PAGE), PAGE);
	m = mmap(NULL, 2 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	CHECK(m != MAP_FAILED);
	OK(unlink(conf_path(name)));
	close(fd);
	return m;
}

/* What a sentry keeps of each must not add up to where it rewrites no more. */
CASE(libraries_come_and_go)
{
	bool first = false;

	for (int round = 0; round < 1200; round++) {
		char *m = map_small(round);

		for (int i = 0; i < 40; i++)
			CHECK_EQ(call(m + PAGE), -ESRCH);
		if (round == 0)
			first = rewritten(m + PAGE);
		CHECK_EQ(rewritten(m + PAGE), first);
		OK(munmap(m, 2 * PAGE));
	}
}

static void rewritten_for_itself(void *ret)
{
	for (int site = 0; site < PLAIN_SITES; site++)
		for (int i = 0; i < 20; i++)
			CHECK_EQ(call(plain + site * PLAIN_SIZE), -ESRCH);
	*(bool *)ret = rewritten(plain + (PLAIN_SITES - 1) * PLAIN_SIZE);
}

CASE(processes_come_and_go)
{
	bool *ret = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
	     first = false;

	CHECK(ret != MAP_FAILED);
	for (int round = 0; round < 40; round++) {
		conf_join(conf_fork(rewritten_for_itself, ret));
		if (round == 0)
			first = *ret;
		CHECK_EQ(*ret, first);
	}
}

CONF_MAIN
