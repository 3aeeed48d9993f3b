/*
 * The audit's programs: BTF raw tracepoints. They follow the sandbox's threads
 * from fork to fork and count in arrays that the command reads. CO-RE: vmlinux.h
 * is made at build time from the running kernel's BTF, offsets are fixed at load time.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "cli/audit/abi.h"

char LICENSE[] SEC("license") = "GPL"; /* of this object: task storage is a GPL helper */

#define NR_RT_SIGRETURN 15
#define NR_PRCTL 157
#define NR_SECCOMP 317
#define SET_MODE_FILTER 1
#define SET_DISPATCH 59
#define THREAD_COMPAT 0x0002 /* TS_COMPAT, asm/thread_info.h */
#define SIGNAL_SYS 31

/* Where system call instructions stand in a stub. */
const volatile __u64 stub_text, stub_end, mapper_start, mapper_end, guest_start, guest_end;

__u64 lost; /* threads that could not be followed */
__u32 sentry_confined, sentry_killed;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AUDIT_ROLES *AUDIT_NRS);
	__type(key, __u32);
	__type(value, struct audit_stat);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AUDIT_ROLES);
	__type(key, __u32);
	__type(value, struct audit_role_stat);
} roles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct audit_thread);
} followed SEC(".maps");

static __always_inline struct audit_thread *current_thread(void)
{
	return bpf_task_storage_get(&followed, bpf_get_current_task_btf(), NULL, 0);
}

static __always_inline bool within(__u64 ip, __u64 start, __u64 end)
{
	return ip > start && ip <= end; /* ip is behind the instruction */
}

/* The thread's role now. The sentry's threads become confined all at once. */
static __always_inline __u32 role_of(struct audit_thread *t)
{
	if (t->role == AUDIT_SENTRY_START && sentry_confined)
		t->role = AUDIT_SENTRY;
	return t->role;
}

/* ... at a system call: a stub's first thread is its mapper as soon as it runs that code. */
static __always_inline __u32 caller_role(struct audit_thread *t, const struct pt_regs *regs)
{
	if (t->role == AUDIT_STUB_START && within(regs->ip, mapper_start, mapper_end))
		t->role = AUDIT_MAPPER;
	return role_of(t);
}

static __always_inline bool is_astray(__u32 role, __u64 ip)
{
	switch (role) {
	case AUDIT_ZYGOTE:
	case AUDIT_STUB_START: return !within(ip, stub_text, stub_end);
	case AUDIT_MAPPER:
	case AUDIT_GUEST_START: return !within(ip, mapper_start, mapper_end);
	case AUDIT_GUEST: return !within(ip, guest_start, guest_end);
	default: /* the sentry, and a zygote that is not in place yet: any code */ return false;
	}
}

static __always_inline struct audit_stat *stat_of(__u32 role, __u64 nr)
{
	__u32 index = nr < AUDIT_NR_COMPAT ? (__u32)nr : AUDIT_NR_OTHER;

	if (bpf_get_current_task_btf()->thread_info.status & THREAD_COMPAT)
		index = AUDIT_NR_COMPAT;
	index += role * AUDIT_NRS;
	return bpf_map_lookup_elem(&stats, &index);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_enter, struct pt_regs *regs, long nr)
{
	struct audit_thread *t = current_thread();
	struct audit_stat *stat;
	__u32 role;

	if (!t)
		return 0;
	role = caller_role(t, regs);
	stat = stat_of(role, (__u64)nr);
	if (!stat)
		return 0;
	__sync_fetch_and_add(&stat->count, 1);
	if (is_astray(role, regs->ip))
		__sync_fetch_and_add(&stat->astray, 1);
	t->call_role = role;
	t->call_nr = (__u32)nr;
	t->confines = (nr == NR_SECCOMP && regs->di == SET_MODE_FILTER) ||
		      (nr == NR_PRCTL && regs->di == SET_DISPATCH);
	t->start_ns = bpf_ktime_get_ns();
	t->call_state = AUDIT_IN_CALL;
	return 0;
}

static __always_inline void note_confined(struct audit_thread *t)
{
	switch (t->call_role) {
	case AUDIT_SENTRY_START:
		if (t->call_nr == NR_SECCOMP)
			sentry_confined = 1;
		break;
	case AUDIT_ZYGOTE_START: t->role = AUDIT_ZYGOTE; break;
	case AUDIT_GUEST_START: t->role = AUDIT_GUEST; break;
	}
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_exit, struct pt_regs *regs, long ret)
{
	struct audit_thread *t = current_thread();
	__u32 state;
	struct audit_stat *stat;

	if (!t)
		return 0;
	state = t->call_state;
	t->call_state = AUDIT_IDLE;
	if (state == AUDIT_BORN) /* a child's return from fork */
		return 0;
	if (state != AUDIT_IN_CALL) {
		stat = stat_of(caller_role(t, regs), (__u64)regs->orig_ax);
		if (stat)
			__sync_fetch_and_add(&stat->blocked, 1);
		return 0;
	}
	stat = stat_of(t->call_role, t->call_nr);
	if (!stat)
		return 0;
	__sync_fetch_and_add(&stat->time_ns, bpf_ktime_get_ns() - t->start_ns);
	/* rt_sigreturn returns the interrupted code's own rax. */
	if (ret < 0 && ret >= -4095 && t->call_nr != NR_RT_SIGRETURN)
		__sync_fetch_and_add(&stat->errors, 1);
	if (t->confines && ret == 0)
		note_confined(t);
	return 0;
}

static __always_inline __u32 child_role(__u32 role, bool new_process)
{
	switch (role) {
	case AUDIT_SENTRY_START:
	case AUDIT_SENTRY: return new_process ? AUDIT_ZYGOTE_START : role;
	case AUDIT_ZYGOTE: return AUDIT_STUB_START;
	case AUDIT_MAPPER: return new_process ? AUDIT_MAPPER : AUDIT_GUEST_START;
	default: /* none of these should have any; what they do is held to the same rows */
		return role;
	}
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	struct audit_thread *t = bpf_task_storage_get(&followed, parent, NULL, 0), *c;
	struct audit_role_stat *stat;
	__u32 role;

	if (!t)
		return 0;
	role = child_role(role_of(t), parent->tgid != child->tgid);
	c = bpf_task_storage_get(&followed, child, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!c) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	c->role = role;
	c->call_state = AUDIT_BORN;
	stat = bpf_map_lookup_elem(&roles, &role);
	if (stat)
		__sync_fetch_and_add(&stat->threads, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_death, struct task_struct *task)
{
	struct audit_thread *t = bpf_task_storage_get(&followed, task, NULL, 0);

	if (t && role_of(t) == AUDIT_SENTRY && (task->exit_code & 0x7f) == SIGNAL_SYS)
		sentry_killed = 1;
	return 0;
}

static __always_inline struct audit_role_stat *current_role_stat(void)
{
	struct audit_thread *t = current_thread();
	__u32 role;

	if (!t)
		return NULL;
	role = role_of(t);
	return bpf_map_lookup_elem(&roles, &role);
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_user_fault)
{
	struct audit_role_stat *stat = current_role_stat();

	if (stat)
		__sync_fetch_and_add(&stat->user_faults, 1);
	return 0;
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(on_kernel_fault)
{
	struct audit_role_stat *stat = current_role_stat();

	if (stat)
		__sync_fetch_and_add(&stat->kernel_faults, 1);
	return 0;
}
