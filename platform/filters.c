#include "base/log.h"
#include "platform/arch/x86_64/stub_image.h"
#include "platform/internal.h"
#include "platform/stub_calls.h"
#include <asm/prctl.h>
#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/mman.h>

#define GUEST_WORD                                                                                 \
	{                                                                                          \
		.kind = CHECK_RANGE, .arg = 0, .value = STUB_SLOTS, .limit = STUB_SLOTS_END,       \
		.mask = STUB_SLOT_SIZE - 1                                                         \
	}
#define BELL                                                                                       \
	{                                                                                          \
		.kind = CHECK_RANGE, .arg = 0, .value = STUB_BELLS,                                \
		.limit = STUB_BELLS + STUB_BELLS_SIZE, .mask = 3                                   \
	}
#define LOW(n, v)                                                                                  \
	{                                                                                          \
		.kind = CHECK_LOW, .arg = (n), .value = (v)                                        \
	}
#define EQ(n, v)                                                                                   \
	{                                                                                          \
		.kind = CHECK_EQ, .arg = (n), .value = (v)                                         \
	}
#define BELOW(n, v)                                                                                \
	{                                                                                          \
		.kind = CHECK_BELOW, .arg = (n), .value = (v)                                      \
	}
#define FROM(n, v)                                                                                 \
	{                                                                                          \
		.kind = CHECK_FROM, .arg = (n), .value = (v)                                       \
	}
#define MASK(n, m, v)                                                                              \
	{                                                                                          \
		.kind = CHECK_MASK, .arg = (n), .mask = (m), .value = (v)                          \
	}
#define RANGE(n, a, b)                                                                             \
	{                                                                                          \
		.kind = CHECK_RANGE, .arg = (n), .value = (a), .limit = (b)                        \
	}

/* Most frequent first. Rows of one number stand together. */
static const struct stub_call calls[] = {
	{ __NR_futex,
	  STUB_GUEST,
	  WHEN_SECCOMP,
	  "sleep until the sentry has answered",
	  { GUEST_WORD, LOW(1, FUTEX_WAIT) } },
	{ __NR_futex,
	  STUB_GUEST,
	  WHEN_SECCOMP,
	  "wake the sentry",
	  { GUEST_WORD, LOW(1, FUTEX_WAKE), LOW(2, 1) } },
	{ __NR_futex, STUB_GUEST, WHEN_SECCOMP, "the same", { BELL, LOW(1, FUTEX_WAIT) } },
	{ __NR_futex,
	  STUB_GUEST,
	  WHEN_SECCOMP,
	  "wake a mapper, or another thread, for the sentry",
	  { BELL, LOW(1, FUTEX_WAKE) } },
	{ __NR_sched_yield, STUB_GUEST, WHEN_SECCOMP, "let that run", {} },
	{ __NR_futex,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "wait for a command",
	  { BELL, LOW(1, FUTEX_WAIT) } },
	{ __NR_futex,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "a new thread: wait for its tracer",
	  { RANGE(0, STUB_CMD, STUB_CMD + PAGE_SIZE), LOW(1, FUTEX_WAIT) } },
	{ __NR_futex,
	  STUB_MAPPER,
	  WHEN_SECCOMP,
	  "the same, where it sleeps on its bell",
	  { BELL, LOW(1, FUTEX_WAKE_BITSET) } },
	{ __NR_futex,
	  STUB_MAPPER,
	  WHEN_SECCOMP,
	  "wake a guest thread that waited for a mapping",
	  { GUEST_WORD, LOW(1, FUTEX_WAKE_BITSET), LOW(2, 1) } },
	{ __NR_rt_sigreturn, STUB_GUEST, WHEN_SECCOMP, "back to guest code", {} },
	{ __NR_mprotect,
	  STUB_GUEST,
	  WHEN_SECCOMP,
	  "deferred change of guest memory",
	  { FROM(0, STUB_DEFER_START), BELOW(0, STUB_DEFER_END), BELOW(1, STUB_DEFER_LEN),
	    MASK(2, ~7U, 0) } },
	{ __NR_munmap,
	  STUB_GUEST,
	  WHEN_SECCOMP,
	  "deferred unmapping of guest memory",
	  { FROM(0, STUB_DEFER_START), BELOW(0, STUB_DEFER_END), BELOW(1, STUB_DEFER_LEN) } },
	{ __NR_exit, STUB_GUEST, WHEN_ALWAYS, "end of a guest thread", {} },
	{ __NR_arch_prctl, STUB_GUEST, WHEN_NO_FSGSBASE, "read FS base", { LOW(0, ARCH_GET_FS) } },
	{ __NR_arch_prctl, STUB_GUEST, WHEN_NO_FSGSBASE, "read GS base", { LOW(0, ARCH_GET_GS) } },
	{ __NR_arch_prctl, STUB_GUEST, WHEN_NO_FSGSBASE, "set FS base", { LOW(0, ARCH_SET_FS) } },
	{ __NR_arch_prctl, STUB_GUEST, WHEN_NO_FSGSBASE, "set GS base", { LOW(0, ARCH_SET_GS) } },
	{ __NR_write,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "report to the sentry",
	  { LOW(0, STUB_FD_DONE), EQ(2, 8) } },
	{ __NR_write, STUB_ZYGOTE, WHEN_ALWAYS, "answer the sentry", { LOW(0, STUB_FD_SOCKET) } },
	{ __NR_mmap,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "guest memory",
	  { BELOW(0, STUB_AREA), MASK(2, ~7U, 0), MASK(3, MAP_FIXED, MAP_FIXED),
	    RANGE(4, STUB_FD_FILES, STUB_FD_END) } },
	{ __NR_mmap,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "zero pages for read faults",
	  { BELOW(0, STUB_AREA), MASK(2, ~(u32)(PROT_READ | PROT_EXEC), 0),
	    MASK(3, MAP_FIXED | MAP_ANONYMOUS | MAP_TYPE,
		 MAP_FIXED | MAP_ANONYMOUS | MAP_PRIVATE) } },
	{ __NR_mmap,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "slot of a new guest thread",
	  { RANGE(0, STUB_SLOTS, STUB_SLOTS_END), EQ(1, STUB_SLOT_SIZE),
	    LOW(2, PROT_READ | PROT_WRITE), LOW(4, STUB_FD_CONTROL) } },
	{ __NR_mmap,
	  STUB_ZYGOTE,
	  WHEN_ALWAYS,
	  "command page of a new stub",
	  { EQ(0, STUB_CMD), EQ(1, STUB_SLOT_SIZE), LOW(2, PROT_READ), LOW(4, STUB_FD_CONTROL) } },
	{ __NR_munmap, STUB_MAPPER, WHEN_ALWAYS, "guest memory", { BELOW(0, STUB_AREA) } },
	{ __NR_munmap,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "the zygote's stack",
	  { EQ(0, STUB_STACK), EQ(1, STUB_STACK_SIZE) } },
	{ __NR_mprotect,
	  STUB_MAPPER,
	  WHEN_ALWAYS,
	  "guest memory",
	  { BELOW(0, STUB_AREA), MASK(2, ~7U, 0) } },
	{ __NR_clone, STUB_MAPPER, WHEN_ALWAYS, "guest threads", { EQ(0, STUB_THREAD_FLAGS) } },
	{ __NR_clone, STUB_ZYGOTE, WHEN_ALWAYS, "stubs", { EQ(0, STUB_FORK_FLAGS) } },
	{ __NR_sigaltstack, STUB_MAPPER, WHEN_PTRACE, "start of a guest thread", {} },
	{ __NR_rt_sigprocmask, STUB_MAPPER, WHEN_PTRACE, "start of a guest thread", {} },
	{ __NR_prctl,
	  STUB_MAPPER,
	  WHEN_DISPATCH,
	  "a new guest thread gives up all calls but its own code's",
	  { LOW(0, PR_SET_SYSCALL_USER_DISPATCH), EQ(1, PR_SYS_DISPATCH_ON), EQ(4, 0) } },
	{ __NR_seccomp,
	  STUB_MAPPER,
	  WHEN_FILTERS,
	  "a guest thread's own filter",
	  { LOW(0, SECCOMP_SET_MODE_FILTER), EQ(1, 0), EQ(2, STUB_CONFIG + CONFIG_PROG_GUEST) } },
	{ __NR_seccomp,
	  STUB_ZYGOTE,
	  WHEN_FILTERS,
	  "the mapper's filter",
	  { LOW(0, SECCOMP_SET_MODE_FILTER), EQ(1, 0), EQ(2, STUB_CONFIG + CONFIG_PROG_MAPPER) } },
	{ __NR_getppid, STUB_MAPPER, WHEN_ALWAYS, "notice the sentry's death", {} },
	{ __NR_exit_group, STUB_MAPPER, WHEN_ALWAYS, "the end of a stub", {} },
	{ __NR_exit_group, STUB_ZYGOTE, WHEN_DISPATCH, "the end of the zygote", {} },
	{ __NR_getppid, STUB_ZYGOTE, WHEN_DISPATCH, "a new stub checks that its sentry lives", {} },
	{ __NR_recvmsg,
	  STUB_ZYGOTE,
	  WHEN_ALWAYS,
	  "requests of the sentry",
	  { LOW(0, STUB_FD_SOCKET) } },
	{ __NR_close, STUB_ZYGOTE, WHEN_ALWAYS, "descriptors that are not the stub's", {} },
	{ __NR_prctl,
	  STUB_ZYGOTE,
	  WHEN_ALWAYS,
	  "die with the sentry",
	  { LOW(0, PR_SET_PDEATHSIG) } },
};

const struct stub_call *platform_stub_calls(size_t *ret_count)
{
	*ret_count = ARRAY_SIZE(calls);
	return calls;
}

/* ---- program generation ---- */

#define PROG_MAX 400 /* a rule is shorter than the 8 bits of a conditional jump */

struct prog {
	struct sock_filter *insn;
	u32 len;
	u32 fix[16]; /* jumps of the current rule to "does not match" */
	u32 fix_count;
};

static void emit(struct prog *p, u16 code, u32 k, u8 jt, u8 jf)
{
	ASSERT(p->len < PROG_MAX);
	p->insn[p->len++] = (struct sock_filter){ code, jt, jf, k };
}

/* A conditional whose false branch leaves the rule. */
static void emit_must(struct prog *p, u16 op, u32 k)
{
	p->fix[p->fix_count++] = p->len;
	emit(p, BPF_JMP | op | BPF_K, k, 0, 0);
}

/* ... whose true branch leaves it: jt is fixed up. */
static void emit_must_not(struct prog *p, u16 op, u32 k)
{
	p->fix[p->fix_count++] = p->len | 0x80000000;
	emit(p, BPF_JMP | op | BPF_K, k, 0, 0);
}

static void emit_load(struct prog *p, size_t offset)
{
	emit(p, BPF_LD | BPF_W | BPF_ABS, (u32)offset, 0, 0);
}

static void emit_check(struct prog *p, const struct stub_arg_check *c)
{
	size_t low = offsetof(struct seccomp_data, args) + 8 * (size_t)c->arg, high = low + 4;

	switch (c->kind) {
	case CHECK_NONE: return;
	case CHECK_EQ:
		emit_load(p, high);
		emit_must(p, BPF_JEQ, (u32)(c->value >> 32));
		emit_load(p, low);
		emit_must(p, BPF_JEQ, (u32)c->value);
		return;
	case CHECK_LOW:
		emit_load(p, low);
		emit_must(p, BPF_JEQ, (u32)c->value);
		return;
	case CHECK_MASK:
		emit_load(p, low);
		emit(p, BPF_ALU | BPF_AND | BPF_K, (u32)c->mask, 0, 0);
		emit_must(p, BPF_JEQ, (u32)c->value);
		return;
	case CHECK_BELOW: /* high > limit: no; high < limit: yes; else compare the low half */
		emit_load(p, high);
		emit_must_not(p, BPF_JGT, (u32)(c->value >> 32));
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, (u32)(c->value >> 32), 0, 2);
		emit_load(p, low);
		emit_must_not(p, BPF_JGE, (u32)c->value);
		return;
	case CHECK_FROM:
		emit_load(p, high);
		emit(p, BPF_JMP | BPF_JGT | BPF_K, 0, 2, 0);
		emit_load(p, low);
		emit_must(p, BPF_JGE, (u32)c->value);
		return;
	case CHECK_RANGE:
		ASSERT(c->value >> 32 == c->limit >> 32);
		emit_load(p, high);
		emit_must(p, BPF_JEQ, (u32)(c->value >> 32));
		emit_load(p, low);
		emit_must(p, BPF_JGE, (u32)c->value);
		emit_must_not(p, BPF_JGE, (u32)c->limit);
		if (c->mask) {
			emit(p, BPF_ALU | BPF_AND | BPF_K, (u32)c->mask, 0, 0);
			emit_must(p, BPF_JEQ, 0);
		}
		return;
	}
}

static void emit_rule(struct prog *p, const struct stub_call *call)
{
	u32 start = p->len, end;
	bool checks = call->checks[0].kind != CHECK_NONE;

	p->fix_count = 0;
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, (u32)call->nr, 0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(call->checks); i++)
		emit_check(p, &call->checks[i]);
	emit(p, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
	end = p->len;
	if (checks) /* what failed a check has lost the number */
		emit_load(p, offsetof(struct seccomp_data, nr));
	p->insn[start].jf = (u8)(p->len - start - 1);
	for (u32 i = 0; i < p->fix_count; i++) {
		u32 at = p->fix[i] & 0x7fffffff;

		if (p->fix[i] & 0x80000000)
			p->insn[at].jt = (u8)(end - at - 1);
		else
			p->insn[at].jf = (u8)(end - at - 1);
	}
}

/* Rows of other hosts and platforms. */
static bool present(const struct stub_call *call, const struct stub_config *config)
{
	switch (call->when) {
	case WHEN_SECCOMP: return !config->ptrace;
	case WHEN_PTRACE: return config->ptrace;
	case WHEN_FILTERS: return !config->dispatch;
	case WHEN_DISPATCH: return config->dispatch;
	case WHEN_NO_FSGSBASE: return !config->ptrace && !config->fsgsbase;
	default: return true;
	}
}

bool platform_stub_may_call(enum platform_kind kind, enum stub_role role, int nr)
{
	struct stub_config config = { .ptrace = kind == PLATFORM_PTRACE };
	bool fsgsbase, dispatch;

	platform_host_features(kind, &fsgsbase, &dispatch);
	config.fsgsbase = fsgsbase;
	config.dispatch = dispatch;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i].nr == nr && present(&calls[i], &config) &&
		    (dispatch ? calls[i].role == role : calls[i].role >= role))
			return true;
	return false;
}

void platform_stub_sections(struct stub_sections *ret)
{
	struct stub_header h;

	memcpy(&h, stub_image_blob, sizeof(h));
	*ret = (struct stub_sections){ STUB_TEXT,    h.end,	    h.mapper_start,
				       h.mapper_end, h.guest_start, h.guest_end };
}

static void emit_arch(struct prog *p)
{
	emit_load(p, offsetof(struct seccomp_data, arch));
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	emit(p, BPF_RET | BPF_K, SECCOMP_RET_TRAP, 0, 0);
}

/* Filters that stack: a role's program allows its own rows and those of later roles. */
static u32 filter_build(struct sock_filter *insn, enum stub_role role,
			const struct stub_config *config)
{
	struct prog p = { .insn = insn };

	emit_arch(&p);
	emit_load(&p, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i].role >= role && present(&calls[i], config))
			emit_rule(&p, &calls[i]);
	emit(&p, BPF_RET | BPF_K, SECCOMP_RET_TRAP, 0, 0);
	return p.len;
}

/* If the system call stands in [start, end): exactly this role's rows. */
static void emit_section(struct prog *p, enum stub_role role, u64 start, u64 end,
			 const struct stub_config *config)
{
	u32 skip;

	emit_load(p, offsetof(struct seccomp_data, instruction_pointer));
	emit(p, BPF_JMP | BPF_JGE | BPF_K, (u32)start, 0, 1);
	emit(p, BPF_JMP | BPF_JGE | BPF_K, (u32)end, 0, 1);
	skip = p->len;
	emit(p, BPF_JMP | BPF_JA, 0, 0, 0);
	emit_load(p, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i].role == role && present(&calls[i], config))
			emit_rule(p, &calls[i]);
	emit(p, BPF_RET | BPF_K, SECCOMP_RET_TRAP, 0, 0);
	p->insn[skip].k = p->len - skip - 1;
}

/*
 * One program for all, that goes by where the call stands. Alone that would be
 * a hole, as guest code can jump anywhere; but a guest thread is under syscall
 * user dispatch, which the kernel checks first and which leaves it nothing but
 * the guest section. (A filter of its own for each stub and thread costs two
 * runs of the JIT: 20 to 150 us each on the project's machines.)
 */
static u32 filter_build_dispatch(struct sock_filter *insn, const struct stub_config *config,
				 const struct stub_header *stub)
{
	struct prog p = { .insn = insn };

	emit_arch(&p);
	emit_load(&p, offsetof(struct seccomp_data, instruction_pointer) + 4);
	emit(&p, BPF_JMP | BPF_JEQ | BPF_K, (u32)(STUB_TEXT >> 32), 1, 0);
	emit(&p, BPF_RET | BPF_K, SECCOMP_RET_TRAP, 0, 0);
	emit_section(&p, STUB_GUEST, stub->guest_start, stub->guest_end, config);
	emit_section(&p, STUB_MAPPER, stub->mapper_start, stub->mapper_end, config);
	emit_section(&p, STUB_ZYGOTE, STUB_TEXT, stub->end, config);
	emit(&p, BPF_RET | BPF_K, SECCOMP_RET_TRAP, 0, 0);
	return p.len;
}

void filters_write(struct stub_config *config, const struct stub_header *stub)
{
	struct stub_prog *progs[] = { [STUB_ZYGOTE] = &config->zygote,
				      [STUB_MAPPER] = &config->mapper,
				      [STUB_GUEST] = &config->guest };
	size_t offset = 256;

	for (size_t role = 0; role < ARRAY_SIZE(progs); role++) {
		struct sock_filter *insn = (void *)((u8 *)config + offset);

		if (config->dispatch && role != STUB_ZYGOTE)
			continue;
		progs[role]->len =
			(u16)(config->dispatch ? filter_build_dispatch(insn, config, stub)
					       : filter_build(insn, (enum stub_role)role, config));
		progs[role]->filter = STUB_CONFIG + offset;
		offset += PROG_MAX * sizeof(*insn);
		ASSERT(offset <= CONFIG_XINIT);
	}
}
