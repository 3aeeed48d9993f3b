/*
 * System call sites of every form, called so often that a sentry that rewrites sites does: the
 * registers are the guest's, jumps into the middle arrive, text reads and changes as written.
 * (Loads of one's own code may show the rewritten bytes; nothing else does.) Linked so that the
 * text is in reach of trampolines: static-pie; patch_low is the same at fixed low addresses.
 */
#include "conf.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <ucontext.h>

#define OFTEN 80
#define NO_PGRP 0x7ffffff1
#define PAGE 4096UL

/*
 * Sites on a page of their own. NAME_call and NAME_after: `syscall` and what is behind it. Unwind
 * tables (.cfi_) tell where instructions begin; `plain_` sites have none.
 */
#define STR_(x) #x
#define STR(x) STR_(x)
#define SITE(name, before, after)                                                                  \
	".balign 16\n" #name ": .cfi_startproc\n" before "\n" #name "_call: syscall\n" #name       \
	"_after: " after "\nret\n.cfi_endproc\n.type " #name ", @function\n.size " #name           \
	", . - " #name "\n"
#define PLAIN(name, before, after)                                                                 \
	".balign 16\n" #name ": " before "\n" #name "_call: syscall\n" #name "_after: " after      \
	"\nret\n.type " #name ", @function\n.size " #name ", . - " #name "\n"
#define MOVQ_IMM(nr) ".byte 0x48, 0xc7, 0xc0; .long " STR(nr)

__asm__(".text\n.balign 4096\nsites:\n"
	/* clang-format off */
	SITE(s_mov, "mov $121, %eax", "")
	SITE(s_movq, MOVQ_IMM(121), "")
	SITE(s_lea, "lea 0x12345(%rdi), %rsi", "")
	SITE(s_redzone, ".byte 0x48, 0x89, 0x7c, 0x24, 0xf8", "") /* mov %rdi, -8(%rsp) */
	SITE(s_add, "add $0x100000, %r12", "")
	SITE(s_xor, "xor %eax, %eax", "cmp $-4095, %rax")
	SITE(s_behind_mov, "mov %ebx, %eax", "mov $0x1234567, %edx")
	SITE(s_behind_short, "mov %ebx, %eax", "mov %rax, %rdx")
	SITE(s_both, "mov %rbx, %rax", "")
	SITE(s_none, "push %rbx; pop %rax", "")
	SITE(s_lone, "", "")
	SITE(s_relative, "lea sites(%rip), %rdx", "")
	SITE(s_behind_relative, "mov %ebx, %eax", "lea sites(%rip), %rdx")
	SITE(s_behind_jump, "mov %ebx, %eax", "jmp 1f; 1: nop")
	PLAIN(plain_mov, "mov $121, %eax", "")
	PLAIN(plain_movq, MOVQ_IMM(121), "")
	PLAIN(plain_behind, "mov %ebx, %eax", "cmp $-4095, %rax")
	PLAIN(plain_both, "mov %rbx, %rax", "")
	/* clang-format on */
	".balign 4096\nsites_end:\n"
	/* Loads everything from probe_in, calls probe_site, stores everything in probe_out. */
	"probe: push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"lea -136(%rsp), %rdi; lea probe_in+128(%rip), %rsi; mov $16, %ecx; rep movsq\n"
	"ldmxcsr probe_in+768(%rip)\n"
	".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"movdqu probe_in+256+\\i*32(%rip), %xmm\\i\n.endr\n"
	"cmpb $0, probe_avx(%rip); je 1f\n"
	".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"vmovdqu probe_in+256+\\i*32(%rip), %ymm\\i\n.endr\n1:\n"
	"mov probe_in+0(%rip), %rax; mov probe_in+8(%rip), %rbx; mov probe_in+16(%rip), %rdx\n"
	"mov probe_in+24(%rip), %rsi; mov probe_in+32(%rip), %rdi; mov probe_in+40(%rip), %rbp\n"
	"mov probe_in+48(%rip), %r8; mov probe_in+56(%rip), %r9; mov probe_in+64(%rip), %r10\n"
	"mov probe_in+72(%rip), %r12; mov probe_in+80(%rip), %r13; mov probe_in+88(%rip), %r14\n"
	"mov probe_in+96(%rip), %r15; mov %rsp, probe_in+104(%rip)\n"
	"call *probe_site(%rip)\n"
	"mov %rsp, probe_out+104(%rip); mov probe_in+104(%rip), %rsp\n"
	"mov %rax, probe_out+0(%rip); mov %rbx, probe_out+8(%rip); mov %rdx, probe_out+16(%rip)\n"
	"mov %rsi, probe_out+24(%rip); mov %rdi, probe_out+32(%rip); mov %rbp, probe_out+40(%rip)\n"
	"mov %r8, probe_out+48(%rip); mov %r9, probe_out+56(%rip); mov %r10, probe_out+64(%rip)\n"
	"mov %r12, probe_out+72(%rip); mov %r13, probe_out+80(%rip); mov %r14, probe_out+88(%rip)\n"
	"mov %r15, probe_out+96(%rip)\n"
	"cld; lea -136(%rsp), %rsi; lea probe_out+128(%rip), %rdi; mov $16, %ecx; rep movsq\n"
	"stmxcsr probe_out+768(%rip)\n"
	".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"movdqu %xmm\\i, probe_out+256+\\i*32(%rip)\n.endr\n"
	"cmpb $0, probe_avx(%rip); je 1f\n"
	".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
	"vmovdqu %ymm\\i, probe_out+256+\\i*32(%rip)\n.endr\nvzeroupper\n1:\n"
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret\n");

enum { RAX, RBX, RDX, RSI, RDI, RBP, R8, R9, R10, R12, R13, R14, R15, RSP, GPRS };

struct probe {
	uint64_t gpr[16];
	uint64_t red_zone[16]; /* the last one right below the site's rsp */
	uint8_t ymm[16][32];
	uint32_t mxcsr, pad[3];
};

_Static_assert(offsetof(struct probe, mxcsr) == 768, "as in the assembly");

struct probe probe_in __attribute__((visibility("hidden")));
struct probe probe_out __attribute__((visibility("hidden")));
const char *probe_site __attribute__((visibility("hidden")));
char probe_avx __attribute__((visibility("hidden")));
extern const char sites[], sites_end[];
void probe(void);

struct site {
	const char *name, *start, *call, *after;
	int changes; /* a register; RAX: none */
	uint64_t to; /* what it becomes, or what is added to it */
	bool adds, behind, reads;
};

#define DECLARE(n) extern const char n[], n##_call[], n##_after[]
#define ROW(n, ...)                                                                                \
	{                                                                                          \
		.name = #n, .start = n, .call = n##_call, .after = n##_after, __VA_ARGS__          \
	}
DECLARE(s_mov);
DECLARE(s_movq);
DECLARE(s_lea);
DECLARE(s_redzone);
DECLARE(s_add);
DECLARE(s_xor);
DECLARE(s_behind_mov);
DECLARE(s_behind_short);
DECLARE(s_both);
DECLARE(s_none);
DECLARE(s_lone);
DECLARE(s_relative);
DECLARE(s_behind_relative);
DECLARE(s_behind_jump);
DECLARE(plain_mov);
DECLARE(plain_movq);
DECLARE(plain_behind);
DECLARE(plain_both);

static const struct site all[] = {
	ROW(s_mov),
	ROW(s_movq),
	ROW(s_lea, .changes = RSI, .to = 0x12345 + (uint64_t)NO_PGRP),
	ROW(s_redzone),
	ROW(s_add, .changes = R12, .to = 0x100000, .adds = true),
	ROW(s_xor, .reads = true),
	ROW(s_behind_mov, .changes = RDX, .to = 0x1234567, .behind = true),
	ROW(s_behind_short, .changes = RDX, .to = (uint64_t)-ESRCH, .behind = true),
	ROW(s_both),
	ROW(s_none),
	ROW(s_lone),
	ROW(s_relative, .changes = RDX, .to = (uint64_t)sites),
	ROW(s_behind_relative, .changes = RDX, .to = (uint64_t)sites, .behind = true),
	ROW(s_behind_jump),
	ROW(plain_mov),
	ROW(plain_movq),
	ROW(plain_behind),
	ROW(plain_both),
};
#define SITES (sizeof(all) / sizeof(all[0]))

static uint64_t seed = 1;

static uint64_t next_random(void)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return seed ^ seed >> 29;
}

static void fill(const struct site *s)
{
	uint8_t *in = (uint8_t *)&probe_in;

	for (size_t i = 0; i < sizeof(probe_in); i++)
		in[i] = (uint8_t)next_random();
	probe_in.mxcsr = 0x1f80 | (next_random() & 3) << 13;
	probe_in.gpr[RAX] = probe_in.gpr[RBX] = SYS_getpgid;
	probe_in.gpr[RDI] = NO_PGRP;
	if (s->reads)
		probe_in.gpr[RDI] = ~0UL;
}

/* Calls at `entry` of s, whose code is `bias` away from where it was linked. */
static void call_at(const struct site *s, const char *entry, uint64_t bias)
{
	bool whole = entry == s->start;
	uint64_t expected, result = (uint64_t)(s->reads && whole ? -EBADF : -ESRCH);

	probe_avx = (char)__builtin_cpu_supports("avx");
	fill(s);
	probe_site = entry + bias;
	probe();
	if (entry == s->after)
		result = probe_in.gpr[RAX];
	if (probe_out.gpr[RAX] != result)
		conf_fail(__FILE__, __LINE__, "%s+%d: result %ld", s->name, (int)(entry - s->start),
			  (long)probe_out.gpr[RAX]);
	for (int r = RBX; r < GPRS; r++) {
		expected = probe_in.gpr[r];
		if (r == s->changes && (whole || s->behind)) {
			expected = s->adds ? expected + s->to : s->to;
			if (s->to == (uint64_t)sites)
				expected += bias;
			else if (s->to == (uint64_t)-ESRCH)
				expected = result;
		}
		if (probe_out.gpr[r] != expected)
			conf_fail(__FILE__, __LINE__, "%s+%d: register %d is %#lx, not %#lx",
				  s->name, (int)(entry - s->start), r,
				  (unsigned long)probe_out.gpr[r], (unsigned long)expected);
	}
	if (whole && s->start == s_redzone)
		probe_in.red_zone[15] = NO_PGRP;
	if (whole && s->start == s_none)
		probe_in.red_zone[15] = SYS_getpgid;
	CHECK_MEM(probe_in.red_zone, probe_out.red_zone, sizeof(probe_in.red_zone));
	for (int i = 0; i < 16; i++)
		CHECK_MEM(probe_in.ymm[i], probe_out.ymm[i], probe_avx ? 32 : 16);
	CHECK_EQ(probe_out.mxcsr, probe_in.mxcsr);
}

static void warm_up(uint64_t bias)
{
	for (int i = 0; i < OFTEN; i++)
		for (size_t s = 0; s < SITES; s++)
			call_at(&all[s], all[s].start, bias);
}

static void enter_everywhere(uint64_t bias)
{
	for (size_t i = 0; i < SITES; i++) {
		call_at(&all[i], all[i].call, bias);
		call_at(&all[i], all[i].after, bias);
	}
}

CASE(registers)
{
	warm_up(0);
}

/* Is the jump at this place? By a load, as the sentry would show what the file has. */
static bool is_jump(const char *at)
{
	return *(volatile const uint8_t *)at == 0xe9;
}

CASE(sites_are_rewritten)
{
	static const char *const rewritten[] = {
		s_mov,
		s_movq,
		s_lea,
		s_redzone,
		s_add,
		s_xor_call,
		s_behind_mov_call,
		s_behind_short_call,
		s_both,
		plain_mov,
		plain_movq,
		plain_behind_call,
	};
	static const char *const kept[] = { s_none_call, s_lone, s_relative_call,
					    s_behind_relative_call, s_behind_jump_call };

	warm_up(0);
	if (!is_jump(s_mov))
		SKIP("nothing is rewritten here");
	for (size_t i = 0; i < sizeof(rewritten) / sizeof(rewritten[0]); i++)
		if (!is_jump(rewritten[i]))
			conf_fail(__FILE__, __LINE__, "site %zu is as it was", i);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		CHECK(!is_jump(kept[i]));
}

CASE(jumps_into_sites)
{
	enter_everywhere(0);
	warm_up(0);
	for (int i = 0; i < OFTEN; i++)
		enter_everywhere(0);
	warm_up(0);
}

CASE(direction_flag)
{
	long ret;

	for (int i = 0; i < OFTEN; i++) {
		__asm__ volatile("std; mov $228, %%eax; syscall; cld"
				 : "=a"(ret)
				 : "D"(1L), "S"(probe_in.gpr)
				 : "rcx", "r11", "memory");
		CHECK_EQ(ret, 0);
	}
}

/* ---- flags ---- */

#define STATUS_FLAGS 0x8d5UL

/* What the code behind a call with these flags sees; the red zone is left alone. */
#define FLAGS_OVER(name, nr, behind)                                                               \
	static __attribute__((noinline)) uint64_t name(uint64_t flags)                             \
	{                                                                                          \
		uint64_t seen = 0;                                                                 \
		__asm__ volatile(                                                                  \
			"lea -128(%%rsp), %%rsp; push %1; popf; mov %2, %%eax; syscall\n" behind   \
			"\nlea 128(%%rsp), %%rsp"                                                  \
			: "+&b"(seen)                                                              \
			: "r"(flags), "i"(nr), "D"((long)NO_PGRP)                                  \
			: "rax", "rcx", "r11", "cc", "memory");                                    \
		return seen;                                                                       \
	}

FLAGS_OVER(flags_pushed, SYS_getpgid, "pushf; pop %0")
FLAGS_OVER(flags_answered, SYS_getpid, "pushf; pop %0")
FLAGS_OVER(flags_carry, SYS_getpgid, "mov $0x12345, %0; setc %b0; movzbl %b0, %k0")
FLAGS_OVER(flags_added, SYS_getpgid, "adc $0, %0")
FLAGS_OVER(flags_past_inc, SYS_getpgid, "inc %%ecx; sbb %0, %0; neg %0")
FLAGS_OVER(flags_past_shift, SYS_getpgid,
	   "xchg %%ecx, %%eax; mov $0, %%ecx; shl %%cl, %%eax; setc %b0")
FLAGS_OVER(flags_at_jump, SYS_getpgid, "jmp 2f; 1: setc %b0; jmp 3f; 2: mov $0, %%ecx; jmp 1b; 3:")
FLAGS_OVER(flags_at_branch, SYS_getpgid,
	   "mov %%eax, %%ecx; jrcxz 2f; jc 1f; 2: jmp 3f; 1: mov $1, %%ebx; 3:")
FLAGS_OVER(flags_past_call, SYS_getpgid, "mov $39, %%eax; syscall; setc %b0")

CASE(flags_over_calls)
{
	for (uint64_t i = 0; i < 4 * OFTEN; i++) {
		uint64_t flags = 0x202 | (next_random() & STATUS_FLAGS), carry = flags & 1;

		CHECK_EQ(flags_pushed(flags), flags);
		CHECK_EQ(flags_answered(flags), flags);
		CHECK_EQ(flags_carry(flags), carry);
		CHECK_EQ(flags_added(flags), carry);
		CHECK_EQ(flags_past_inc(flags), carry);
		CHECK_EQ(flags_past_shift(flags), carry);
		CHECK_EQ(flags_at_jump(flags), carry);
		CHECK_EQ(flags_at_branch(flags), carry);
		CHECK_EQ(flags_past_call(flags), carry);
	}
}

/* ---- text as data ---- */

static uint64_t file_offset;

static int find_offset(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uint64_t at = (uint64_t)sites - info->dlpi_addr;

		if (p->p_type == PT_LOAD && at >= p->p_vaddr && at - p->p_vaddr < p->p_filesz)
			file_offset = at - p->p_vaddr + p->p_offset;
	}
	return 1;
}

/* The sites as the file has them. */
static const char *original(void)
{
	static char bytes[PAGE];
	int fd = OK(open("/proc/self/exe", O_RDONLY));

	CHECK_EQ(sites_end - sites, PAGE);
	dl_iterate_phdr(find_offset, NULL);
	CHECK_EQ(pread(fd, bytes, PAGE, (off_t)file_offset), PAGE);
	close(fd);
	return bytes;
}

static void stop_here(void *arg)
{
	warm_up(0);
	OK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	raise(SIGSTOP);
}

CASE(text_reads_as_in_the_file)
{
	const char *expected = original();
	char got[PAGE];
	int p[2], fd, status;
	struct iovec local = { got, PAGE }, remote = { (char *)sites, PAGE };
	pid_t pid;
	char *m;

	warm_up(0);
	OK(pipe(p));
	CHECK_EQ(write(p[1], sites, PAGE), PAGE);
	CHECK_EQ(read(p[0], got, PAGE), PAGE);
	CHECK_MEM(got, expected, PAGE);
	fd = OK(open("/proc/self/mem", O_RDONLY));
	CHECK_EQ(pread(fd, got, PAGE, (off_t)sites), PAGE);
	CHECK_MEM(got, expected, PAGE);
	fd = OK(open("/proc/self/exe", O_RDONLY));
	m = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, (off_t)file_offset);
	CHECK(m != MAP_FAILED);
	CHECK_MEM(m, expected, PAGE);
	m = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, (off_t)file_offset);
	CHECK(m != MAP_FAILED);
	CHECK_MEM(m, expected, PAGE);
	pid = conf_fork(stop_here, NULL);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(process_vm_readv(pid, &local, 1, &remote, 1, 0), PAGE);
	CHECK_MEM(got, expected, PAGE);
	for (size_t i = 0; i < PAGE; i += 8) {
		errno = 0;
		*(long *)(got + i) = ptrace(PTRACE_PEEKTEXT, pid, sites + i, NULL);
		CHECK_EQ(errno, 0);
	}
	CHECK_MEM(got, expected, PAGE);
	kill(pid, SIGKILL);
	conf_wait_status(pid);
}

/* ---- text that changes ---- */

static long call_mov(const char *site)
{
	long ret;

	__asm__ volatile("call *%1"
			 : "=a"(ret)
			 : "r"(site), "D"((long)NO_PGRP)
			 : "rcx", "r11", "memory");
	return ret;
}

static void set_number(const char *site, uint32_t nr)
{
	memcpy((char *)site + 1, &nr, 4);
}

static void call_mov_often(const char *site, long expected)
{
	for (int i = 0; i < OFTEN; i++)
		CHECK_EQ(call_mov(site), expected);
}

CASE(guest_writes_its_text)
{
	const char *expected = original();

	warm_up(0);
	OK(mprotect((char *)sites, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
	CHECK_MEM(sites, expected, PAGE);
	call_mov_often(s_mov, -ESRCH);
	CHECK_MEM(sites, expected, PAGE);
	set_number(s_mov, SYS_getpid);
	call_mov_often(s_mov, getpid());
	set_number(s_mov, SYS_getpgid);
	call_mov_often(s_mov, -ESRCH);
	warm_up(0);
	CHECK_MEM(sites, expected, PAGE);
	OK(mprotect((char *)sites, PAGE, PROT_READ | PROT_EXEC));
	warm_up(0);
}

CASE(write_or_execute)
{
	warm_up(0);
	for (int i = 0; i < 16; i++) {
		OK(mprotect((char *)sites, PAGE, PROT_READ | PROT_WRITE));
		set_number(s_mov, i % 2 ? SYS_getpgid : SYS_getppid);
		OK(mprotect((char *)sites, PAGE, PROT_READ | PROT_EXEC));
		call_mov_often(s_mov, i % 2 ? -ESRCH : getppid());
	}
}

/* By another's hand: breakpoints in patched text, as debuggers set them. */
CASE(text_written_through_proc_mem)
{
	int fd = OK(open("/proc/self/mem", O_RDWR));
	uint32_t nr = SYS_getpid;

	warm_up(0);
	CHECK_EQ(pwrite(fd, &nr, 4, (off_t)(s_mov + 1)), 4);
	call_mov_often(s_mov, getpid());
	CHECK_EQ(s_mov[0], (char)0xb8);
}

/* A copy of this program's file. */
static int copy_of_file(const char *name)
{
	int from = OK(open("/proc/self/exe", O_RDONLY)), to;
	char buf[65536];
	ssize_t n;

	original();
	to = OK(open(conf_path(name), O_RDWR | O_CREAT, 0700));
	while ((n = OK(read(from, buf, sizeof(buf)))) > 0)
		CHECK_EQ(write(to, buf, (size_t)n), n);
	close(from);
	return to;
}

/* The sites in a mapping of the whole file: as a library, it gets a place where it can be patched.
 */
static const char *map_sites(int fd)
{
	struct stat st;
	const char *m;

	OK(fstat(fd, &st));
	m = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	CHECK(m != MAP_FAILED);
	return m + file_offset;
}

static void unmap_sites(int fd, const char *m)
{
	struct stat st;

	OK(fstat(fd, &st));
	OK(munmap((char *)m - file_offset, (size_t)st.st_size));
}

CASE(file_is_rewritten_in_place)
{
	int fd = copy_of_file("library");
	const char *m = map_sites(fd);
	uint32_t nr;

	warm_up((uint64_t)(m - sites));
	for (int i = 0; i < 6; i++) {
		nr = i % 2 ? SYS_getpgid : SYS_getpid;
		CHECK_EQ(pwrite(fd, &nr, 4, (off_t)(file_offset + 1)), 4);
		if (i % 3 == 0) /* here what is mapped already may show either */
			for (int j = 0; j < OFTEN; j++)
				call_mov(m);
		unmap_sites(fd, m);
		m = map_sites(fd);
		call_mov_often(m, i % 2 ? -ESRCH : getpid());
	}
	warm_up((uint64_t)(m - sites));
}

CASE(file_is_replaced)
{
	int fd = copy_of_file("library"), other = copy_of_file("new");
	uint32_t nr = SYS_getpid;
	const char *m = map_sites(fd), *n;

	CHECK_EQ(pwrite(other, &nr, 4, (off_t)(file_offset + 1)), 4);
	call_mov_often(m, -ESRCH);
	OK(rename(conf_path("new"), conf_path("library")));
	n = map_sites(OK(open(conf_path("library"), O_RDONLY)));
	call_mov_often(n, getpid());
	call_mov_often(m, -ESRCH);
	warm_up((uint64_t)(m - sites));
}

CASE(code_in_anonymous_memory)
{
	const char *expected = original();

	for (int shared = 0; shared < 2; shared++) {
		char *m = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
			       MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);

		CHECK(m != MAP_FAILED);
		memcpy(m, expected, PAGE);
		warm_up((uint64_t)(m - sites));
		enter_everywhere((uint64_t)(m - sites));
		CHECK_MEM(m, expected, PAGE);
	}
}

/* ---- threads and processes ---- */

static const char *race_at;
static pthread_barrier_t race_start;

static void *race(void *arg)
{
	pthread_barrier_wait(&race_start);
	for (int i = 0; i < 3 * OFTEN; i++) {
		CHECK_EQ(call_mov(race_at + (s_mov - sites)), -ESRCH);
		CHECK_EQ(call_mov(race_at + (s_movq - sites)), -ESRCH);
		CHECK_EQ(call_mov(race_at + (plain_mov - sites)), -ESRCH);
	}
	return NULL;
}

CASE(threads_race_with_the_patch)
{
	pthread_t t[6];

	for (int round = 0; round < 8; round++) {
		int fd = copy_of_file("library");

		race_at = map_sites(fd);
		pthread_barrier_init(&race_start, NULL, 6);
		for (int i = 0; i < 6; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, race, NULL), 0);
		for (int i = 0; i < 6; i++)
			pthread_join(t[i], NULL);
		close(fd);
		OK(unlink(conf_path("library")));
	}
}

static __attribute__((noinline)) long raw_fork(void)
{
	long ret;

	__asm__ volatile("mov $57, %%eax; syscall" : "=a"(ret) : : "rcx", "r11", "memory");
	return ret;
}

CASE(fork_at_a_patched_site)
{
	for (int i = 0; i < OFTEN; i++) {
		long pid = raw_fork();

		CHECK(pid >= 0);
		if (pid == 0)
			syscall(SYS_exit_group, syscall(SYS_getpid) != getppid() ? 5 : 6);
		CHECK_EQ(conf_wait_status((pid_t)pid), 5 << 8);
	}
}

CASE(vfork_at_a_patched_site)
{
	for (int i = 0; i < OFTEN; i++) {
		pid_t pid = vfork();

		CHECK(pid >= 0);
		if (pid == 0) {
			syscall(SYS_getppid);
			_exit(5);
		}
		CHECK_EQ(conf_wait_status(pid), 5 << 8);
	}
}

/* ---- signals ---- */

extern const char __executable_start[], etext[];
static volatile unsigned ticks;
static volatile uint64_t strange;

static void on_tick(int sig, siginfo_t *si, void *arg)
{
	uint64_t rip = (uint64_t)((ucontext_t *)arg)->uc_mcontext.gregs[REG_RIP];

	ticks++;
	if ((rip < (uint64_t)__executable_start || rip >= (uint64_t)etext) &&
	    rip - getauxval(AT_SYSINFO_EHDR) > 4 * PAGE)
		strange = rip;
}

CASE(timer_storm)
{
	struct sigaction sa = { .sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval often = { { 0, 150 }, { 0, 150 } };
	struct timespec ts;

	warm_up(0);
	OK(sigaction(SIGALRM, &sa, NULL));
	OK(setitimer(ITIMER_REAL, &often, NULL));
	while (ticks < 1000) {
		CHECK_EQ(call_mov(s_mov), -ESRCH);
		CHECK_EQ(call_mov(plain_movq), -ESRCH);
		CHECK_EQ(syscall(SYS_getpid), getpid());
		OK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts));
	}
	CHECK_EQ(strange, 0);
}

/* ---- GS ---- */

static uint64_t area[64] = { 0x600d };

static uint64_t gs_word(void)
{
	uint64_t v;

	__asm__ volatile("mov %%gs:0, %0" : "=r"(v));
	return v;
}

static void calls_with_gs(void)
{
	for (int i = 0; i < OFTEN; i++) {
		uint64_t base = 0;

		call_at(&all[0], s_mov, 0);
		CHECK_EQ(gs_word(), 0x600d);
		OK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base));
		CHECK_EQ(base, (uint64_t)area);
	}
	for (size_t i = 1; i < 64; i++)
		CHECK_EQ(area[i], 0);
	CHECK_EQ(area[0], 0x600d);
}

CASE(gs_by_arch_prctl)
{
	uint64_t base = 1;

	OK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base));
	CHECK_EQ(base, 0);
	warm_up(0);
	OK(syscall(SYS_arch_prctl, ARCH_SET_GS, area));
	calls_with_gs();
	conf_join(conf_fork((void (*)(void *))calls_with_gs, NULL));
	OK(syscall(SYS_arch_prctl, ARCH_SET_GS, 0));
	OK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base));
	CHECK_EQ(base, 0);
	warm_up(0);
}

CASE(gs_by_instruction)
{
	uint64_t base;

	if (!(getauxval(AT_HWCAP2) & 2))
		SKIP("the kernel does not allow wrgsbase");
	warm_up(0);
	__asm__ volatile("rdgsbase %0" : "=r"(base));
	__asm__ volatile("wrgsbase %0" : : "r"(area));
	calls_with_gs();
	__asm__ volatile("rdgsbase %0" : "=r"(base));
	CHECK_EQ(base, (uint64_t)area);
}

/* ---- ptrace ---- */

static void traced_loop(void *arg)
{
	warm_up(0);
	OK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	raise(SIGSTOP);
	for (int i = 0; i < 10; i++) {
		call_mov(s_mov);
		syscall(SYS_getpid);
	}
	_exit(3);
}

static pid_t start_traced(void (*fn)(void *))
{
	pid_t pid = conf_fork(fn, NULL);
	int status = 0;

	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	return pid;
}

CASE(tracer_sees_every_call)
{
	pid_t pid = start_traced(traced_loop);
	struct user_regs_struct r;
	int status, own = 0, answered = 0;

	for (;;) {
		OK(ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status))
			break;
		OK(ptrace(PTRACE_GETREGS, pid, NULL, &r));
		if (r.orig_rax == SYS_getpgid) {
			own++;
			CHECK_EQ(r.rip, (uint64_t)s_mov_after);
		}
		answered += r.orig_rax == SYS_getpid;
	}
	CHECK_EQ(WEXITSTATUS(status), 3);
	CHECK_EQ(own, 20);
	CHECK_EQ(answered, 20);
}

static void forever(void *arg)
{
	for (;;) {
		call_mov(s_mov);
		syscall(SYS_getpid);
	}
}

CASE(tracer_attaches_to_patched_code)
{
	pid_t pid = conf_fork(forever, NULL);
	struct user_regs_struct r;
	int status, own = 0, answered = 0;

	usleep(50000);
	OK(ptrace(PTRACE_ATTACH, pid, NULL, NULL));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 40; i++) {
		OK(ptrace(PTRACE_SYSCALL, pid, NULL, NULL));
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSTOPPED(status));
		OK(ptrace(PTRACE_GETREGS, pid, NULL, &r));
		own += r.orig_rax == SYS_getpgid;
		answered += r.orig_rax == SYS_getpid;
	}
	CHECK(own >= 19 && answered >= 19 && own + answered == 40);
	OK(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	usleep(20000);
	kill(pid, SIGKILL);
	conf_wait_status(pid);
}

static void single_steps(void *arg)
{
	warm_up(0);
	fill(&all[0]);
	OK(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	raise(SIGSTOP);
	/* Without checks, which are many steps. */
	for (size_t i = 0; i < SITES; i++) {
		probe_site = all[i].start;
		probe();
	}
	_exit(3);
}

CASE(single_steps_over_sites)
{
	pid_t pid = start_traced(single_steps);
	struct user_regs_struct r;
	const char *at = NULL;
	size_t calls = 0, steps = 0;
	int status;

	for (;;) {
		OK(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL));
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (!WIFSTOPPED(status))
			break;
		CHECK_EQ(WSTOPSIG(status), SIGTRAP);
		OK(ptrace(PTRACE_GETREGS, pid, NULL, &r));
		steps++;
		for (size_t i = 0; i < SITES; i++) {
			if (at == all[i].call) {
				CHECK_EQ(r.rip, (uint64_t)all[i].after);
				calls++;
			}
		}
		at = (const char *)r.rip;
	}
	CHECK(WIFEXITED(status));
	CHECK_EQ(WEXITSTATUS(status), 3);
	CHECK_EQ(calls, SITES);
}

CONF_MAIN
