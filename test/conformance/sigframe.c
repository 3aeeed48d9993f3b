/* The x86-64 signal frame in detail: what is where, and what rt_sigreturn takes back. */
#include "conf.h"

#include <ucontext.h>

#define UC_FP_XSTATE 1
#define MAGIC1 0x46505853U
#define MAGIC2 0x46505845U

struct sw {
	uint32_t magic1, extended_size;
	uint64_t xfeatures;
	uint32_t xstate_size, pad[7];
};

static ucontext_t *volatile seen;
static void (*edit)(ucontext_t *);
static volatile int called;
static unsigned long frame_sp, flags_in_handler;
static struct sw sw_seen;
static uint32_t magic2_seen;
static uint64_t bv_seen, uc_flags_seen, mask_seen, err_seen, trap_seen, cr2_seen, fp_seen, ip_seen;
static stack_t stack_seen;

static uint64_t *mask_word(ucontext_t *uc)
{
	return (uint64_t *)&uc->uc_sigmask;
}

static void handler(int sig, siginfo_t *si, void *arg)
{
	ucontext_t *uc = arg;
	char *fp = (char *)uc->uc_mcontext.fpregs;

	__asm__ volatile("pushfq; popq %0" : "=r"(flags_in_handler));
	called = sig;
	seen = uc;
	uc_flags_seen = uc->uc_flags;
	mask_seen = *mask_word(uc);
	stack_seen = uc->uc_stack;
	err_seen = (uint64_t)uc->uc_mcontext.gregs[REG_ERR];
	trap_seen = (uint64_t)uc->uc_mcontext.gregs[REG_TRAPNO];
	cr2_seen = (uint64_t)uc->uc_mcontext.gregs[REG_CR2];
	ip_seen = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
	fp_seen = (uint64_t)fp;
	frame_sp = (unsigned long)uc - 8;
	memcpy(&sw_seen, fp + 464, sizeof(sw_seen));
	if (sw_seen.magic1 == MAGIC1) {
		memcpy(&magic2_seen, fp + sw_seen.xstate_size, 4);
		memcpy(&bv_seen, fp + 512, 8);
	}
	if ((unsigned long)si != (unsigned long)uc + 304)
		called = -1;
	if (edit)
		edit(uc);
}

static void catch (int sig, int flags)
{
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	OK(sigaction(sig, &sa, NULL));
}

CASE(layout)
{
	catch (SIGUSR1, 0);
	raise(SIGUSR1);
	CHECK_EQ(called, SIGUSR1);
	CHECK_EQ(uc_flags_seen, UC_FP_XSTATE | 2 | 4);
	CHECK_EQ(frame_sp % 16, 8);
	CHECK_EQ(fp_seen % 64, 0);
	CHECK(fp_seen > frame_sp);
	CHECK_EQ(flags_in_handler & 0x500, 0);
}
CASE(xstate_is_announced)
{
	uint32_t lo, hi;

	catch (SIGUSR1, 0);
	raise(SIGUSR1);
	CHECK_EQ(sw_seen.magic1, MAGIC1);
	CHECK_EQ(magic2_seen, MAGIC2);
	CHECK(sw_seen.xstate_size >= 576);
	CHECK_EQ(sw_seen.extended_size, sw_seen.xstate_size + 4);
	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	CHECK_EQ(sw_seen.xfeatures & ~((uint64_t)hi << 32 | lo), 0);
	CHECK_EQ(sw_seen.xfeatures & 7, lo & 7);
	CHECK_EQ(bv_seen & 3, 3);
}
CASE(saved_mask_and_stack)
{
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	sigprocmask(SIG_SETMASK, &s, NULL);
	catch (SIGUSR1, 0);
	raise(SIGUSR1);
	CHECK_EQ(mask_seen, 1ULL << (SIGUSR2 - 1));
	CHECK_EQ(stack_seen.ss_size, 0);
}
static char *page;

static void map_page(ucontext_t *uc)
{
	(void)uc;
	mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
CASE(fault_details)
{
	pid_t pid = fork();

	if (pid == 0) {
		page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		munmap(page, 4096);
		catch (SIGSEGV, SA_RESETHAND);
		edit = map_page;
		*(volatile char *)(page + 16) = 1;
		_exit(called == SIGSEGV && trap_seen == 14 && err_seen == 6 &&
				      cr2_seen == (uint64_t)page + 16 && page[16] == 1
			      ? 0
			      : 1);
	}
	conf_join(pid);
}

static void set_xmm0(ucontext_t *uc)
{
	memset((char *)uc->uc_mcontext.fpregs + 160, 0x5a, 16);
}
CASE(vector_state_can_be_edited)
{
	unsigned char out[16], want[16];

	memset(want, 0x5a, 16);
	catch (SIGUSR1, 0);
	edit = set_xmm0;
	long pid = getpid(), nr = SYS_kill;
	__asm__ volatile("pxor %%xmm0, %%xmm0\n\tsyscall\n\tmovdqu %%xmm0, %1"
			 : "+a"(nr), "=m"(out)
			 : "D"(pid), "S"((long)SIGUSR1)
			 : "rcx", "r11", "memory", "xmm0");
	CHECK_EQ(called, SIGUSR1);
	CHECK_MEM(out, want, 16);
}

static void no_fpstate(ucontext_t *uc)
{
	uc->uc_mcontext.fpregs = NULL;
}
CASE(no_fpstate_means_initial)
{
	unsigned char out[16], want[16] = { 0 };
	unsigned mxcsr = 0;

	catch (SIGUSR1, 0);
	edit = no_fpstate;
	long pid = getpid(), nr = SYS_kill;
	__asm__ volatile("pcmpeqb %%xmm0, %%xmm0\n\tsyscall\n\tmovdqu %%xmm0, %1\n\tstmxcsr %2"
			 : "+a"(nr), "=m"(out), "=m"(mxcsr)
			 : "D"(pid), "S"((long)SIGUSR1)
			 : "rcx", "r11", "memory", "xmm0");
	CHECK_MEM(out, want, 16);
	CHECK_EQ(mxcsr, 0x1f80);
}

static void bad_magic(ucontext_t *uc)
{
	memset((char *)uc->uc_mcontext.fpregs + 464, 0, 4);
	memset((char *)uc->uc_mcontext.fpregs + 160, 0x11, 16);
	/* An XSAVE header full of nonsense, which must not be looked at. */
	memset((char *)uc->uc_mcontext.fpregs + 512, 0xff, 64);
}
CASE(without_magic_only_the_legacy_part)
{
	unsigned char out[16], want[16];

	memset(want, 0x11, 16);
	catch (SIGUSR1, 0);
	edit = bad_magic;
	long pid = getpid(), nr = SYS_kill;
	__asm__ volatile("syscall\n\tmovdqu %%xmm0, %1"
			 : "+a"(nr), "=m"(out)
			 : "D"(pid), "S"((long)SIGUSR1)
			 : "rcx", "r11", "memory", "xmm0");
	CHECK_MEM(out, want, 16);
}

static void hostile_header(ucontext_t *uc)
{
	char *fp = (char *)uc->uc_mcontext.fpregs;

	memset(fp + 512, 0xff, 64); /* xstate_bv, xcomp_bv, reserved */
	memset(fp + 24, 0xff, 8);   /* mxcsr and its mask */
}
CASE(hostile_xsave_header_does_no_harm)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		catch (SIGUSR1, 0);
		edit = hostile_header;
		raise(SIGUSR1);
		_exit(0);
	}
	/* The kernel may refuse (SIGSEGV) or mask: both keep the process in its bounds. */
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
}

static void hostile_registers(ucontext_t *uc)
{
	uc->uc_mcontext.gregs[REG_EFL] = -1;
	uc->uc_mcontext.gregs[REG_EFL] &= ~0x40500L; /* not AC, TF, DF */
	uc->uc_mcontext.gregs[REG_CSGSFS] = 0x002b000000000033L;
}
CASE(flags_are_masked)
{
	unsigned long flags;

	catch (SIGUSR1, 0);
	edit = hostile_registers;
	raise(SIGUSR1);
	__asm__ volatile("pushfq; popq %0" : "=r"(flags));
	CHECK_EQ(flags & 0x3000, 0); /* IOPL */
	CHECK(flags & 0x200);	     /* IF */
}

static void odd_rip(ucontext_t *uc)
{
	uc->uc_mcontext.gregs[REG_RIP] = 0x4141414141414141L;
}
CASE(non_canonical_rip_is_a_sigsegv)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		catch (SIGUSR1, 0);
		edit = odd_rip;
		raise(SIGUSR1);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
	CHECK_EQ(WTERMSIG(status), SIGSEGV);
}

static stack_t inside;
static void look_inside(ucontext_t *uc)
{
	(void)uc;
	sigaltstack(NULL, &inside);
}
CASE(autodisarm)
{
	static char mem[65536];
	stack_t ss = { .ss_sp = mem, .ss_size = sizeof(mem), .ss_flags = (int)(1U << 31) }, now;

	OK(sigaltstack(&ss, NULL));
	catch (SIGUSR1, SA_ONSTACK);
	edit = look_inside;
	raise(SIGUSR1);
	CHECK(frame_sp > (unsigned long)mem && frame_sp < (unsigned long)mem + sizeof(mem));
	CHECK_EQ(inside.ss_flags & SS_DISABLE, SS_DISABLE);
	CHECK_EQ(stack_seen.ss_size, sizeof(mem));
	OK(sigaltstack(NULL, &now));
	CHECK_EQ(now.ss_size, sizeof(mem));
	CHECK(now.ss_sp == mem);
}
CASE(altstack_rules)
{
	static char mem[65536];
	stack_t ss = { .ss_sp = mem, .ss_size = sizeof(mem) }, now;

	ss.ss_flags = 77;
	CHECK_ERR(sigaltstack(&ss, NULL), EINVAL);
	ss.ss_flags = 0;
	ss.ss_size = 100;
	CHECK_ERR(sigaltstack(&ss, NULL), ENOMEM);
	OK(sigaltstack(NULL, &now));
	CHECK_EQ(now.ss_flags, SS_DISABLE);
	ss.ss_size = sizeof(mem);
	OK(sigaltstack(&ss, NULL));
	catch (SIGUSR1, SA_ONSTACK);
	edit = look_inside;
	raise(SIGUSR1);
	CHECK_EQ(inside.ss_flags, SS_ONSTACK);
}
CONF_MAIN
