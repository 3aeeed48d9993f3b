/*
 * Guest seccomp: checking and running classic BPF over struct seccomp_data.
 *
 * The checker follows the kernel's: known opcodes only, loads aligned and
 * within the data, jumps forward and inside the program, a return at the end,
 * scratch memory written before it is read. The interpreter may then run
 * without checks.
 */
#include "sentry/task/seccomp_guest.h"

#include "base/log.h"
#include "sentry/task/internal.h"

#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/bpf_common.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>

/* As in Linux, each filter counts a little more than its instructions. */
#define FILTER_PENALTY 4
#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

struct seccomp_filter {
	struct refs refs;
	struct seccomp_filter *prev; /* a reference */
	bool log;
	u32 total; /* cost of the chain */
	u16 len;
	struct sock_filter insn[];
};

struct seccomp_filter *seccomp_filter_get(struct seccomp_filter *f)
{
	if (f)
		refs_get(&f->refs);
	return f;
}

void seccomp_filter_put(struct seccomp_filter *f)
{
	while (f && refs_put(&f->refs)) {
		struct seccomp_filter *prev = f->prev;

		free(f);
		f = prev;
	}
}

/* ---- checking ---- */

static bool opcode_known(u16 code)
{
	switch (code) {
	case BPF_LD | BPF_W | BPF_ABS:
	case BPF_LD | BPF_W | BPF_LEN:
	case BPF_LDX | BPF_W | BPF_LEN:
	case BPF_LD | BPF_IMM:
	case BPF_LDX | BPF_IMM:
	case BPF_LD | BPF_MEM:
	case BPF_LDX | BPF_MEM:
	case BPF_ST:
	case BPF_STX:
	case BPF_MISC | BPF_TAX:
	case BPF_MISC | BPF_TXA:
	case BPF_RET | BPF_K:
	case BPF_RET | BPF_A:
	case BPF_JMP | BPF_JA:
	case BPF_ALU | BPF_NEG: return true;
	}
	switch (BPF_CLASS(code)) {
	case BPF_ALU:
		return (code & 0xff00) == 0 && BPF_OP(code) <= BPF_XOR && BPF_OP(code) != BPF_NEG &&
		       BPF_OP(code) != BPF_MOD;
	case BPF_JMP:
		return (code & 0xff00) == 0 &&
		       (BPF_OP(code) == BPF_JEQ || BPF_OP(code) == BPF_JGT ||
			BPF_OP(code) == BPF_JGE || BPF_OP(code) == BPF_JSET);
	}
	return false;
}

static bool insn_ok(const struct sock_filter *f, u32 pc, u32 len)
{
	if (!opcode_known(f->code))
		return false;
	switch (f->code) {
	case BPF_LD | BPF_W | BPF_ABS: return f->k < sizeof(struct seccomp_data) && (f->k & 3) == 0;
	case BPF_LD | BPF_MEM:
	case BPF_LDX | BPF_MEM:
	case BPF_ST:
	case BPF_STX: return f->k < BPF_MEMWORDS;
	case BPF_ALU | BPF_DIV | BPF_K: return f->k != 0;
	case BPF_ALU | BPF_LSH | BPF_K:
	case BPF_ALU | BPF_RSH | BPF_K: return f->k < 32;
	case BPF_JMP | BPF_JA: return f->k < len - pc - 1;
	}
	if (BPF_CLASS(f->code) == BPF_JMP)
		return pc + f->jt + 1 < len && pc + f->jf + 1 < len;
	return true;
}

/* Scratch words are stored before they are loaded, on every path. masks: per instruction, which are
 * valid. */
static bool memory_ok(const struct sock_filter *f, u32 len, u16 *masks)
{
	u16 valid = 0;

	memset(masks, 0xff, len * sizeof(*masks));
	for (u32 pc = 0; pc < len; pc++) {
		valid &= masks[pc];
		switch (f[pc].code) {
		case BPF_ST:
		case BPF_STX: valid |= (u16)(1 << f[pc].k); break;
		case BPF_LD | BPF_MEM:
		case BPF_LDX | BPF_MEM:
			if (!(valid & (1 << f[pc].k)))
				return false;
			break;
		case BPF_JMP | BPF_JA:
			masks[pc + 1 + f[pc].k] &= valid;
			valid = 0xffff;
			break;
		default:
			if (BPF_CLASS(f[pc].code) != BPF_JMP)
				break;
			masks[pc + 1 + f[pc].jt] &= valid;
			masks[pc + 1 + f[pc].jf] &= valid;
			valid = 0xffff;
		}
	}
	return true;
}

static int filter_check(const struct sock_filter *f, u32 len)
{
	u16 *masks;
	bool ok;

	for (u32 pc = 0; pc < len; pc++)
		if (!insn_ok(&f[pc], pc, len))
			return -EINVAL;
	if (BPF_CLASS(f[len - 1].code) != BPF_RET)
		return -EINVAL;
	masks = malloc(len * sizeof(*masks));
	if (!masks)
		return -ENOMEM;
	ok = memory_ok(f, len, masks);
	free(masks);
	return ok ? 0 : -EINVAL;
}

/* ---- running ---- */

static u32 alu(u16 code, u32 a, u32 v, bool *stop)
{
	switch (BPF_OP(code)) {
	case BPF_ADD: return a + v;
	case BPF_SUB: return a - v;
	case BPF_MUL: return a * v;
	case BPF_DIV:
		if (v == 0) {
			*stop = true;
			return 0;
		}
		return a / v;
	case BPF_OR: return a | v;
	case BPF_AND: return a & v;
	case BPF_XOR: return a ^ v;
	case BPF_LSH: return a << (v & 31);
	case BPF_RSH: return a >> (v & 31);
	case BPF_NEG: return -a;
	}
	return a;
}

static bool jump_taken(u16 code, u32 a, u32 v)
{
	switch (BPF_OP(code)) {
	case BPF_JEQ: return a == v;
	case BPF_JGT: return a > v;
	case BPF_JGE: return a >= v;
	}
	return a & v; /* BPF_JSET */
}

static u32 filter_run(const struct seccomp_filter *flt, const struct seccomp_data *data)
{
	u32 a = 0, x = 0, mem[BPF_MEMWORDS] = { 0 };
	bool stop = false;

	for (const struct sock_filter *f = flt->insn;; f++) {
		u32 v = BPF_SRC(f->code) == BPF_X ? x : f->k;

		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)data + f->k, sizeof(a));
			continue;
		case BPF_LD | BPF_W | BPF_LEN: a = sizeof(*data); continue;
		case BPF_LDX | BPF_W | BPF_LEN: x = sizeof(*data); continue;
		case BPF_LD | BPF_IMM: a = f->k; continue;
		case BPF_LDX | BPF_IMM: x = f->k; continue;
		case BPF_LD | BPF_MEM: a = mem[f->k]; continue;
		case BPF_LDX | BPF_MEM: x = mem[f->k]; continue;
		case BPF_ST: mem[f->k] = a; continue;
		case BPF_STX: mem[f->k] = x; continue;
		case BPF_MISC | BPF_TAX: x = a; continue;
		case BPF_MISC | BPF_TXA: a = x; continue;
		case BPF_RET | BPF_K: return f->k;
		case BPF_RET | BPF_A: return a;
		case BPF_JMP | BPF_JA: f += f->k; continue;
		}
		if (BPF_CLASS(f->code) == BPF_JMP) {
			f += jump_taken(f->code, a, v) ? f->jt : f->jf;
			continue;
		}
		a = alu(f->code, a, v, &stop);
		if (stop)
			return 0; /* division by zero ends a program with 0: KILL_THREAD */
	}
}

/* All filters run; the smallest action (as a signed number) wins, the newest among equals. */
static u32 chain_run(const struct seccomp_filter *f, const struct seccomp_data *data, bool *ret_log)
{
	u32 best = SECCOMP_RET_ALLOW;

	for (; f; f = f->prev) {
		u32 r = filter_run(f, data);

		*ret_log |= f->log;
		if ((s32)(r & SECCOMP_RET_ACTION_FULL) < (s32)(best & SECCOMP_RET_ACTION_FULL))
			best = r;
	}
	return best;
}

static void kill_by_seccomp(struct task *t, u64 nr, bool whole)
{
	bool single;

	log_info("task %d (%s): killed by its seccomp filter at system call %llu", t->tid, t->comm,
		 (unsigned long long)nr);
	mutex_lock(&t->kernel->tasklist_lock);
	single = t->tg->task_count == 1;
	mutex_unlock(&t->kernel->tasklist_lock);
	if (whole || single)
		task_group_exit(t, SIGSYS);
	else
		task_exit(t, SIGSYS);
}

static void raise_sigsys(struct task *t, u64 nr, u32 data)
{
	siginfo_t si;

	siginfo_kernel(&si, SIGSYS, SYS_SECCOMP);
	si.si_errno = (int)data;
	si.si_call_addr = (void *)t->regs.rip;
	si.si_syscall = (int)nr;
	si.si_arch = AUDIT_ARCH_X86_64;
	/* The handler sees the registers of the call, not a result. */
	t->regs.rax = nr;
	signal_force(t, &si);
}

static bool strict_allows(u64 nr)
{
	return nr == __NR_read || nr == __NR_write || nr == __NR_exit || nr == __NR_rt_sigreturn;
}

static bool apply(struct task *t, u64 nr, u32 answer, s64 *ret)
{
	u32 data = answer & SECCOMP_RET_DATA;

	switch (answer & SECCOMP_RET_ACTION_FULL) {
	case SECCOMP_RET_ALLOW: return true;
	case SECCOMP_RET_LOG:
		log_info("task %d (%s): seccomp logs system call %llu", t->tid, t->comm,
			 (unsigned long long)nr);
		return true;
	case SECCOMP_RET_ERRNO: *ret = -(s64)MIN(data, 4095U); return false;
	case SECCOMP_RET_TRAP:
		raise_sigsys(t, nr, data);
		*ret = (s64)nr;
		return false;
	case SECCOMP_RET_TRACE: *ret = -ENOSYS; return ptrace_seccomp_event(t, (u16)data);
	case SECCOMP_RET_USER_NOTIF:
		*ret = -ENOSYS; /* nobody listens */
		return false;
	case SECCOMP_RET_KILL_THREAD: kill_by_seccomp(t, nr, false); break;
	default: kill_by_seccomp(t, nr, true);
	}
	*ret = -ENOSYS;
	return false;
}

bool seccomp_check(struct task *t, u64 nr, const u64 a[6], s64 *ret)
{
	struct seccomp_data data = { .nr = (int)nr, .arch = AUDIT_ARCH_X86_64 };
	struct seccomp_filter *f;
	bool log = false;
	u32 answer;

	if (atomic_load(&t->seccomp_mode) == SECCOMP_MODE_STRICT) {
		if (strict_allows(nr))
			return true;
		task_exit(t, SIGKILL);
		*ret = -ENOSYS;
		return false;
	}
	task_complete_regs(t);
	data.instruction_pointer = t->regs.rip;
	for (int i = 0; i < 6; i++)
		data.args[i] = a[i];
	mutex_lock(&t->lock);
	f = seccomp_filter_get(t->seccomp);
	mutex_unlock(&t->lock);
	answer = chain_run(f, &data, &log);
	seccomp_filter_put(f);
	return apply(t, nr, answer, ret);
}

/* ---- installing ---- */

static int filter_in(struct task *t, uaddr prog, struct seccomp_filter **ret)
{
	struct {
		u16 len;
		u16 pad[3];
		u64 filter;
	} p;
	struct seccomp_filter *f;
	int r = copy_in(t, &p, prog, sizeof(p));

	if (r < 0)
		return r;
	if (p.len == 0 || p.len > BPF_MAXINSNS)
		return -EINVAL;
	if (!t->no_new_privs && !cred_capable(t->cred, CAP_SYS_ADMIN))
		return -EACCES;
	f = calloc(1, sizeof(*f) + p.len * sizeof(struct sock_filter));
	if (!f)
		return -ENOMEM;
	refs_init(&f->refs, "seccomp_filter");
	f->len = p.len;
	r = copy_in(t, f->insn, ua(p.filter), p.len * sizeof(struct sock_filter));
	if (r == 0)
		r = filter_check(f->insn, p.len);
	if (r < 0) {
		seccomp_filter_put(f);
		return r;
	}
	*ret = f;
	return 0;
}

static bool is_ancestor(const struct seccomp_filter *a, const struct seccomp_filter *f)
{
	if (!a)
		return true;
	for (; f; f = f->prev)
		if (f == a)
			return true;
	return false;
}

/* The first other thread whose filters are not a part of t's; 0. tasklist. */
static int tsync_conflict_locked(struct task *t)
{
	struct task *i;

	list_for_each (i, &t->tg->tasks, group_node) {
		bool bad;

		if (i == t || i->leaving)
			continue;
		mutex_lock(&i->lock);
		bad = atomic_load(&i->seccomp_mode) == SECCOMP_MODE_STRICT ||
		      (i->seccomp && !is_ancestor(i->seccomp, t->seccomp));
		mutex_unlock(&i->lock);
		if (bad)
			return i->tid;
	}
	return 0;
}

static void set_filter(struct task *t, struct seccomp_filter *f, bool nnp)
{
	struct seccomp_filter *old;

	mutex_lock(&t->lock);
	old = t->seccomp;
	t->seccomp = f;
	mutex_unlock(&t->lock);
	if (nnp)
		t->no_new_privs = true;
	atomic_store(&t->seccomp_mode, SECCOMP_MODE_FILTER);
	task_ids_changed(t);
	seccomp_filter_put(old);
}

static s64 install(struct task *t, struct seccomp_filter *f, u32 flags)
{
	struct task *i;
	int bad;

	f->log = flags & SECCOMP_FILTER_FLAG_LOG;
	f->total = f->len + FILTER_PENALTY + (t->seccomp ? t->seccomp->total : 0);
	if (f->total > SECCOMP_CHAIN_INSNS_MAX) {
		seccomp_filter_put(f);
		return -ENOMEM;
	}
	MUTEX_GUARD(&t->kernel->tasklist_lock);
	if (flags & SECCOMP_FILTER_FLAG_TSYNC) {
		bad = tsync_conflict_locked(t);
		if (bad) {
			seccomp_filter_put(f);
			return flags & SECCOMP_FILTER_FLAG_TSYNC_ESRCH ? -ESRCH : bad;
		}
	}
	f->prev = seccomp_filter_get(t->seccomp);
	set_filter(t, f, false);
	if (flags & SECCOMP_FILTER_FLAG_TSYNC)
		list_for_each (i, &t->tg->tasks, group_node)
			if (i != t && !i->leaving)
				set_filter(i, seccomp_filter_get(f), t->no_new_privs);
	return 0;
}

static s64 set_mode_filter(struct task *t, u32 flags, uaddr prog)
{
	const u32 known = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_LOG |
			  SECCOMP_FILTER_FLAG_SPEC_ALLOW | SECCOMP_FILTER_FLAG_NEW_LISTENER |
			  SECCOMP_FILTER_FLAG_TSYNC_ESRCH | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	struct seccomp_filter *f;
	int r;

	if (flags & ~known)
		return -EINVAL;
	if ((flags & SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) &&
	    !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER))
		return -EINVAL;
	if (atomic_load(&t->seccomp_mode) == SECCOMP_MODE_STRICT)
		return -EINVAL;
	r = filter_in(t, prog, &f);
	if (r < 0)
		return r;
	if (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER) {
		seccomp_filter_put(f);
		return -EINVAL; /* as a kernel without user notification */
	}
	r = (int)install(t, f, flags);
	mm_trust_changed(t->mm);
	return r;
}

static s64 set_mode_strict(struct task *t)
{
	u32 mode = atomic_load(&t->seccomp_mode);

	if (mode && mode != SECCOMP_MODE_STRICT)
		return -EINVAL;
	atomic_store(&t->seccomp_mode, SECCOMP_MODE_STRICT);
	task_ids_changed(t);
	mm_trust_changed(t->mm);
	return 0;
}

static s64 action_available(struct task *t, uaddr arg)
{
	u32 action;
	int r = copy_in(t, &action, arg, sizeof(action));

	if (r < 0)
		return r;
	switch (action) {
	case SECCOMP_RET_KILL_PROCESS:
	case SECCOMP_RET_KILL_THREAD:
	case SECCOMP_RET_TRAP:
	case SECCOMP_RET_ERRNO:
	case SECCOMP_RET_TRACE:
	case SECCOMP_RET_LOG:
	case SECCOMP_RET_ALLOW: return 0;
	}
	return -EOPNOTSUPP; /* SECCOMP_RET_USER_NOTIF too */
}

s64 seccomp_call(struct task *t, u32 op, u32 flags, uaddr args)
{
	struct seccomp_notif_sizes sizes = { sizeof(struct seccomp_notif),
					     sizeof(struct seccomp_notif_resp),
					     sizeof(struct seccomp_data) };

	switch (op) {
	case SECCOMP_SET_MODE_STRICT: return flags || args.v ? -EINVAL : set_mode_strict(t);
	case SECCOMP_SET_MODE_FILTER: return set_mode_filter(t, flags, args);
	case SECCOMP_GET_ACTION_AVAIL: return flags ? -EINVAL : action_available(t, args);
	case SECCOMP_GET_NOTIF_SIZES:
		return flags ? -EINVAL : copy_out(t, args, &sizes, sizeof(sizes));
	}
	return -EINVAL;
}

s64 seccomp_prctl_set(struct task *t, u64 mode, uaddr prog)
{
	if (mode == SECCOMP_MODE_STRICT)
		return set_mode_strict(t);
	if (mode == SECCOMP_MODE_FILTER)
		return set_mode_filter(t, 0, prog);
	return -EINVAL;
}

s64 seccomp_prctl_get(struct task *t)
{
	return atomic_load(&t->seccomp_mode);
}
