/*
 * ptrace(2): the tracer's requests. A tracee that is stopped sleeps in
 * ptrace_stop (sentry/task/ptrace.c); its registers are in its task struct and
 * are read and changed here under its sighand lock.
 */
#include "sentry/sys/handlers.h"
#include "sentry/task/internal.h"

#include <elf.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/ptrace.h>
#include <stdlib.h>
#include <string.h>
#include <sys/user.h>

#define GUEST_ADDR_END 0x7ffffffff000UL
#define USER_CS 0x33
#define USER_SS 0x2b
#define FLAGS_CHANGEABLE 0x50dd5ULL
#define PTRACE_OPTIONS_KNOWN                                                                       \
	(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |  \
	 PTRACE_O_TRACEEXEC | PTRACE_O_TRACEVFORKDONE | PTRACE_O_TRACEEXIT |                       \
	 PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL)
#ifndef PTRACE_SYSEMU
#define PTRACE_SYSEMU 31
#define PTRACE_SYSEMU_SINGLESTEP 32
#endif
#define LEGACY_FP_SIZE 512

/* ---- becoming tracer and tracee ---- */

static s64 traceme(struct task *t)
{
	struct thread_group *p;
	struct task *tracer;

	MUTEX_GUARD(&t->kernel->tasklist_lock);
	p = t->tg->parent;
	tracer = p ? (t->tg->parent_task ? t->tg->parent_task : p->leader) : NULL;
	if (!tracer || tracer->leaving)
		return -EPERM;
	return ptrace_link_locked(tracer, t, 0, false);
}

static s64 attach(struct task *t, int pid, bool seize, u64 options)
{
	struct task *x = task_find(t->kernel, pid);
	siginfo_t si;
	s64 r = -EPERM;

	if (!x)
		return -ESRCH;
	if (x->tg != t->tg)
		r = ptrace_may_access(t, x);
	if (r == 0) {
		MUTEX_GUARD(&t->kernel->tasklist_lock);

		if (x->leaving || atomic_load(&x->state) >= TASK_ZOMBIE)
			r = -EPERM;
		else
			r = ptrace_link_locked(t, x, (u32)options, seize);
	}
	if (r == 0) {
		struct sighand *sh = sighand_lock(x->tg);

		/* A stop of the group that is under way or done is reported at once. */
		if (x->ptrace && (x->tg->stopped || x->tg->stop_pending))
			task_kick(x);
		sighand_unlock(sh);
		if (!seize) {
			siginfo_kernel(&si, SIGSTOP, SI_USER);
			signal_send_task(x, &si);
		}
	}
	task_put(x);
	return r;
}

/* ---- registers ---- */

static void regs_shown(struct task *x, struct user_regs_struct *ret)
{
	*ret = x->regs;
	ret->cs = USER_CS;
	ret->ss = USER_SS;
	ret->ds = ret->es = ret->fs = ret->gs = 0;
}

static int regs_change(struct task *x, const struct user_regs_struct *r)
{
	u64 flags = x->regs.eflags;

	if (r->fs_base >= GUEST_ADDR_END || r->gs_base >= GUEST_ADDR_END)
		return -EIO;
	x->regs = *r;
	x->regs.eflags = (flags & ~FLAGS_CHANGEABLE) | (r->eflags & FLAGS_CHANGEABLE);
	return 0;
}

/* A word of struct user at offset off. */
static int user_word(struct task *x, u64 off, u64 *word, bool write)
{
	struct user_regs_struct r;

	if ((off & 7) || off >= sizeof(struct user))
		return -EIO;
	if (off >= sizeof(r)) {
		/* Debug registers: there are none to give; a debugger then steps instead. */
		if (write && *word)
			return -EINVAL;
		if (!write)
			*word = 0;
		return 0;
	}
	regs_shown(x, &r);
	if (!write) {
		memcpy(word, (char *)&r + off, sizeof(*word));
		return 0;
	}
	memcpy((char *)&r + off, word, sizeof(*word));
	return regs_change(x, &r);
}

struct regset_buf {
	u8 *data;
	size_t size;
};

/* A register set as bytes, copied out of the stopped tracee. */
static int regset_load(struct task *x, u32 type, struct regset_buf *b)
{
	const struct ptrace_xstate *xs = x->ptrace->xstate;

	switch (type) {
	case NT_PRSTATUS: b->size = sizeof(struct user_regs_struct); break;
	case NT_PRFPREG: b->size = LEGACY_FP_SIZE; break;
	case NT_X86_XSTATE: b->size = xs->size; break;
	default: return -EINVAL;
	}
	if (type != NT_PRSTATUS && b->size > xs->size)
		return -ENODEV;
	b->data = calloc(1, b->size);
	if (!b->data)
		return -ENOMEM;
	if (type == NT_PRSTATUS)
		regs_shown(x, (struct user_regs_struct *)b->data);
	else
		memcpy(b->data, xs->data, b->size);
	return 0;
}

static int regset_store(struct task *x, u32 type, const struct regset_buf *b)
{
	struct ptrace_xstate *xs = x->ptrace->xstate;

	if (type == NT_PRSTATUS)
		return regs_change(x, (const struct user_regs_struct *)b->data);
	memcpy(xs->data, b->data, b->size);
	if (type == NT_PRFPREG && xs->size >= LEGACY_FP_SIZE + 8)
		xs->data[LEGACY_FP_SIZE] |= 3; /* x87 and SSE are in use now */
	xs->changed = true;
	return 0;
}

/* ---- a stopped tracee ---- */

/* Locks x's sighand if x is stopped by t; NULL: -ESRCH. */
static struct sighand *lock_stopped(struct task *t, struct task *x)
{
	struct sighand *sh = sighand_lock(x->tg);

	if (x->ptrace && x->ptrace->tracer == t && x->ptrace->stopped && !x->ptrace->listening &&
	    atomic_load(&x->state) == TASK_TRACED)
		return sh;
	sighand_unlock(sh);
	return NULL;
}

static s64 regset(struct task *t, struct task *x, u32 type, uaddr addr, size_t *len, bool write)
{
	struct regset_buf b = { NULL, 0 };
	struct sighand *sh = lock_stopped(t, x);
	s64 r;

	if (!sh)
		return -ESRCH;
	r = regset_load(x, type, &b);
	sighand_unlock(sh);
	if (r < 0)
		return r;
	*len = MIN(*len, b.size);
	r = write ? copy_in(t, b.data, addr, *len) : copy_out(t, addr, b.data, *len);
	if (r == 0 && write) {
		sh = lock_stopped(t, x);
		r = sh ? regset_store(x, type, &b) : -ESRCH;
		if (sh)
			sighand_unlock(sh);
	}
	free(b.data);
	return r;
}

static s64 regset_iov(struct task *t, struct task *x, u32 type, uaddr arg, bool write)
{
	struct iovec iov;
	size_t len;
	s64 r = copy_in(t, &iov, arg, sizeof(iov));

	if (r < 0)
		return r;
	len = iov.iov_len;
	if (type == NT_PRSTATUS && (len % 8))
		return -EINVAL;
	r = regset(t, x, type, ua((u64)iov.iov_base), &len, write);
	if (r < 0)
		return r;
	iov.iov_len = len;
	return copy_out(t, arg, &iov, sizeof(iov));
}

static s64 remote_word(struct task *x, u64 addr, u64 *word, bool write)
{
	struct mm *mm = task_get_mm(x);
	ssize_t n = mm ? mm_access_remote(mm, addr, word, sizeof(*word), write) : -EIO;

	mm_put(mm);
	return n == sizeof(*word) ? 0 : -EIO;
}

static s64 peek_poke(struct task *t, struct task *x, u32 req, u64 addr, u64 data)
{
	bool write = req == PTRACE_POKETEXT || req == PTRACE_POKEDATA || req == PTRACE_POKEUSR;
	bool user = req == PTRACE_PEEKUSR || req == PTRACE_POKEUSR;
	u64 word = data;
	s64 r;

	if (user) {
		struct sighand *sh = lock_stopped(t, x);

		if (!sh)
			return -ESRCH;
		r = user_word(x, addr, &word, write);
		sighand_unlock(sh);
	} else {
		r = remote_word(x, addr, &word, write);
	}
	if (r < 0 || write)
		return r;
	return copy_out(t, ua(data), &word, sizeof(word));
}

static s64 resume(struct task *t, struct task *x, enum ptrace_resume how, u64 sig)
{
	struct sighand *sh;

	if (sig > SIGNAL_COUNT)
		return -EIO;
	sh = lock_stopped(t, x);
	if (!sh)
		return -ESRCH;
	ptrace_resume_locked(x, how, (int)sig);
	sighand_unlock(sh);
	return 0;
}

static s64 detach(struct task *t, struct task *x, u64 sig)
{
	struct sighand *sh;

	if (sig > SIGNAL_COUNT)
		return -EIO;
	MUTEX_GUARD(&t->kernel->tasklist_lock);
	sh = lock_stopped(t, x);
	if (!sh)
		return -ESRCH;
	ptrace_resume_locked(x, RESUME_CONT, (int)sig);
	sighand_unlock(sh);
	ptrace_unlink_locked(x);
	return 0;
}

static s64 siginfo(struct task *t, struct task *x, uaddr addr, bool write)
{
	struct sighand *sh;
	siginfo_t si;
	s64 r = write ? copy_in(t, &si, addr, sizeof(si)) : 0;

	if (r < 0)
		return r;
	sh = lock_stopped(t, x);
	if (!sh)
		return -ESRCH;
	if (write)
		x->ptrace->info = si;
	else
		si = x->ptrace->info;
	sighand_unlock(sh);
	return write ? 0 : copy_out(t, addr, &si, sizeof(si));
}

static s64 tracee_sigmask(struct task *t, struct task *x, u64 size, uaddr addr, bool write)
{
	struct sighand *sh;
	u64 set;
	s64 r;

	if (size != sizeof(set))
		return -EINVAL;
	r = write ? copy_in(t, &set, addr, sizeof(set)) : 0;
	if (r < 0)
		return r;
	sh = lock_stopped(t, x);
	if (!sh)
		return -ESRCH;
	if (write) {
		x->sigmask = set & ~(sigbit(SIGKILL) | sigbit(SIGSTOP));
		signal_recalc_locked(x);
	} else {
		set = x->restore_sigmask ? x->saved_sigmask : x->sigmask;
	}
	sighand_unlock(sh);
	return write ? 0 : copy_out(t, addr, &set, sizeof(set));
}

static s64 set_options(struct task *t, struct task *x, u64 options)
{
	struct sighand *sh;

	if (options & ~(u64)PTRACE_OPTIONS_KNOWN)
		return -EINVAL;
	sh = lock_stopped(t, x);
	if (!sh)
		return -ESRCH;
	x->ptrace->options = (u32)options;
	sighand_unlock(sh);
	return 0;
}

static s64 event_message(struct task *t, struct task *x, uaddr addr)
{
	struct sighand *sh = lock_stopped(t, x);
	u64 m;

	if (!sh)
		return -ESRCH;
	m = x->ptrace->message;
	sighand_unlock(sh);
	return copy_out(t, addr, &m, sizeof(m));
}

static void syscall_info_fill(struct task *x, struct ptrace_syscall_info *i, size_t *ret_size)
{
	const struct user_regs_struct *r = &x->regs;
	const u64 args[6] = { r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 };

	memset(i, 0, sizeof(*i));
	i->op = x->ptrace->syscall_op;
	i->arch = AUDIT_ARCH_X86_64;
	i->instruction_pointer = r->rip;
	i->stack_pointer = r->rsp;
	*ret_size = offsetof(struct ptrace_syscall_info, entry);
	switch (i->op) {
	case PTRACE_SYSCALL_INFO_ENTRY:
		i->entry.nr = r->orig_rax;
		memcpy(i->entry.args, args, sizeof(args));
		*ret_size = offsetof(struct ptrace_syscall_info, entry.args) + sizeof(args);
		break;
	case PTRACE_SYSCALL_INFO_EXIT:
		i->exit.rval = (s64)r->rax;
		i->exit.is_error = (s64)r->rax < 0 && (s64)r->rax >= -4095;
		*ret_size = offsetof(struct ptrace_syscall_info, exit.is_error) +
			    sizeof(i->exit.is_error);
		break;
	case PTRACE_SYSCALL_INFO_SECCOMP:
		i->seccomp.nr = r->orig_rax;
		memcpy(i->seccomp.args, args, sizeof(args));
		i->seccomp.ret_data = (u32)x->ptrace->message;
		*ret_size = offsetof(struct ptrace_syscall_info, seccomp.ret_data) + sizeof(u32);
		break;
	}
}

static s64 syscall_info(struct task *t, struct task *x, u64 user_size, uaddr addr)
{
	struct sighand *sh = lock_stopped(t, x);
	struct ptrace_syscall_info i;
	size_t size;
	s64 r;

	if (!sh)
		return -ESRCH;
	syscall_info_fill(x, &i, &size);
	sighand_unlock(sh);
	r = copy_out(t, addr, &i, MIN(size, user_size));
	return r < 0 ? r : (s64)size;
}

/* Requests that do not need a stopped tracee. */
static s64 request_running(struct task *t, struct task *x, u32 req)
{
	struct sighand *sh = sighand_lock(x->tg);
	struct ptrace_state *p = x->ptrace;
	siginfo_t si;
	s64 r = 0;

	if (!p || p->tracer != t) {
		r = -ESRCH;
	} else if (req == PTRACE_KILL) {
		if (p->stopped)
			ptrace_resume_locked(x, RESUME_CONT, SIGKILL);
		siginfo_kernel(&si, SIGKILL, SI_USER);
		signal_send_locked(NULL, x->tg, &si);
	} else if (!p->seized) {
		r = -EIO;
	} else if (req == PTRACE_INTERRUPT) {
		p->trap_pending = true;
		if (p->stopped && p->listening)
			ptrace_resume_locked(x, RESUME_CONT, 0);
		task_kick(x);
	} else { /* PTRACE_LISTEN */
		if (!p->stopped || p->stop_code >> 8 != PTRACE_EVENT_STOP)
			r = -EIO;
		else
			p->listening = true;
		/* Something happened since the trap: trap again. */
		if (r == 0 && p->trap_pending)
			ptrace_resume_locked(x, RESUME_CONT, 0);
	}
	sighand_unlock(sh);
	return r;
}

static s64 request(struct task *t, struct task *x, u32 req, u64 addr, u64 data)
{
	size_t len = sizeof(struct user_regs_struct);

	switch (req) {
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSR:
	case PTRACE_POKETEXT:
	case PTRACE_POKEDATA:
	case PTRACE_POKEUSR: return peek_poke(t, x, req, addr, data);
	case PTRACE_CONT: return resume(t, x, RESUME_CONT, data);
	case PTRACE_SYSCALL: return resume(t, x, RESUME_SYSCALL, data);
	case PTRACE_SINGLESTEP: return resume(t, x, RESUME_STEP, data);
	case PTRACE_SYSEMU: return resume(t, x, RESUME_SYSEMU, data);
	case PTRACE_SYSEMU_SINGLESTEP: return resume(t, x, RESUME_SYSEMU_STEP, data);
	case PTRACE_GETREGS:
	case PTRACE_SETREGS:
		return regset(t, x, NT_PRSTATUS, ua(data), &len, req == PTRACE_SETREGS);
	case PTRACE_GETFPREGS:
	case PTRACE_SETFPREGS:
		len = LEGACY_FP_SIZE;
		return regset(t, x, NT_PRFPREG, ua(data), &len, req == PTRACE_SETFPREGS);
	case PTRACE_GETREGSET:
	case PTRACE_SETREGSET:
		return regset_iov(t, x, (u32)addr, ua(data), req == PTRACE_SETREGSET);
	case PTRACE_GETSIGINFO:
	case PTRACE_SETSIGINFO: return siginfo(t, x, ua(data), req == PTRACE_SETSIGINFO);
	case PTRACE_GETSIGMASK:
	case PTRACE_SETSIGMASK:
		return tracee_sigmask(t, x, addr, ua(data), req == PTRACE_SETSIGMASK);
	case PTRACE_SETOPTIONS:
	case PTRACE_OLDSETOPTIONS: return set_options(t, x, data);
	case PTRACE_GETEVENTMSG: return event_message(t, x, ua(data));
	case PTRACE_GET_SYSCALL_INFO: return syscall_info(t, x, addr, ua(data));
	case PTRACE_DETACH: return detach(t, x, data);
	}
	return -EIO;
}

s64 sys_ptrace(struct task *t, const u64 a[6])
{
	u32 req = (u32)a[0];
	struct sighand *sh;
	struct task *x;
	s64 r;

	if (req == PTRACE_TRACEME)
		return traceme(t);
	if (req == PTRACE_ATTACH)
		return attach(t, (int)a[1], false, 0);
	if (req == PTRACE_SEIZE) {
		if (a[2] || (a[3] & ~(u64)PTRACE_OPTIONS_KNOWN))
			return -EIO;
		return attach(t, (int)a[1], true, a[3]);
	}
	x = task_find(t->kernel, (int)a[1]);
	if (!x)
		return -ESRCH;
	if (req == PTRACE_KILL || req == PTRACE_INTERRUPT || req == PTRACE_LISTEN) {
		r = request_running(t, x, req);
	} else {
		sh = lock_stopped(t, x);
		if (sh)
			sighand_unlock(sh);
		r = sh ? request(t, x, req, a[2], a[3]) : -ESRCH;
	}
	task_put(x);
	return r;
}
