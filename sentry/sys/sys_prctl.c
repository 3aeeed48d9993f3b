/* prctl, arch_prctl, personality. */
#include "sentry/signal/signal.h"
#include "sentry/sys/handlers.h"
#include "sentry/task/seccomp_guest.h"
#include <asm/prctl.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/securebits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ANON_NAME_MAX 80 /* with the NUL */
#define SLACK_DEFAULT_NS 50000
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif
#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif
#ifndef PR_MDWE_NO_INHERIT
#define PR_MDWE_NO_INHERIT 2
#endif
#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

typedef s64 option_fn(struct task *t, const u64 a[6]);

static bool rest_zero(const u64 a[6], int from)
{
	for (int i = from; i < 5; i++)
		if (a[i])
			return false;
	return true;
}

static s64 int_out(struct task *t, u64 addr, int v)
{
	return copy_out(t, ua(addr), &v, sizeof(v));
}

/* ---- names, death signal, dumpable ---- */

static s64 set_name(struct task *t, const u64 a[6])
{
	char name[TASK_COMM_LEN] = { 0 };
	ssize_t n = mm_copy_in_str(t->mm, name, sizeof(name), ua(a[1]));

	if (n == -ENAMETOOLONG) /* cut, as Linux does; the first 15 bytes are there to be read */
		n = copy_in(t, name, ua(a[1]), sizeof(name) - 1);
	if (n < 0)
		return n;
	name[sizeof(name) - 1] = '\0';
	mutex_lock(&t->lock);
	memcpy(t->comm, name, sizeof(name));
	mutex_unlock(&t->lock);
	return 0;
}

static s64 get_name(struct task *t, const u64 a[6])
{
	char name[TASK_COMM_LEN] = { 0 };

	mutex_lock(&t->lock);
	memcpy(name, t->comm, sizeof(name) - 1);
	mutex_unlock(&t->lock);
	return copy_out(t, ua(a[1]), name, sizeof(name));
}

static s64 set_pdeathsig(struct task *t, const u64 a[6])
{
	if (a[1] > SIGNAL_COUNT)
		return -EINVAL;
	t->pdeath_signal = (u32)a[1];
	return 0;
}

static s64 get_pdeathsig(struct task *t, const u64 a[6])
{
	return int_out(t, a[1], (int)t->pdeath_signal);
}

static s64 set_dumpable(struct task *t, const u64 a[6])
{
	if (a[1] > 1)
		return -EINVAL;
	mm_set_dumpable(t->mm, (int)a[1]);
	return 0;
}

static s64 get_dumpable(struct task *t, const u64 a[6])
{
	return mm_dumpable(t->mm);
}

static s64 set_subreaper(struct task *t, const u64 a[6])
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);
	t->tg->is_subreaper = a[1] != 0;
	return 0;
}

static s64 get_subreaper(struct task *t, const u64 a[6])
{
	bool on;

	mutex_lock(&t->kernel->tasklist_lock);
	on = t->tg->is_subreaper;
	mutex_unlock(&t->kernel->tasklist_lock);
	return int_out(t, a[1], on);
}

/* ---- privileges ---- */

static s64 set_no_new_privs(struct task *t, const u64 a[6])
{
	if (a[1] != 1 || !rest_zero(a, 2))
		return -EINVAL;
	t->no_new_privs = true;
	return 0;
}

static s64 get_no_new_privs(struct task *t, const u64 a[6])
{
	return rest_zero(a, 1) ? t->no_new_privs : -EINVAL;
}

/* Publishes one changed field of the credentials. */
static s64 set_securebits_value(struct task *t, u32 bits)
{
	struct cred *new = cred_dup(t->cred);

	if (new == NULL)
		return -ENOMEM;
	new->securebits = bits;
	t->keep_caps = bits & SECBIT_KEEP_CAPS;
	task_set_cred(t, new);
	return 0;
}

static s64 set_keepcaps(struct task *t, const u64 a[6])
{
	u32 bits = t->cred->securebits;

	if (a[1] > 1)
		return -EINVAL;
	if (bits & SECBIT_KEEP_CAPS_LOCKED)
		return -EPERM;
	return set_securebits_value(t,
				    a[1] ? bits | SECBIT_KEEP_CAPS : bits & ~(u32)SECBIT_KEEP_CAPS);
}

static s64 get_keepcaps(struct task *t, const u64 a[6])
{
	return (t->cred->securebits & SECBIT_KEEP_CAPS) != 0;
}

static s64 set_securebits(struct task *t, const u64 a[6])
{
	u32 old = t->cred->securebits, new = (u32)a[1];

	/* Locked bits and locks stay; unknown bits and the capability are Linux's cap_prctl. */
	if (((old & SECURE_ALL_LOCKS) >> 1) & (old ^ new))
		return -EPERM;
	if ((old & SECURE_ALL_LOCKS & ~new) ||
	    (a[1] & ~(u64)(SECURE_ALL_LOCKS | SECURE_ALL_BITS)) ||
	    !cred_capable(t->cred, CAP_SETPCAP))
		return -EPERM;
	return set_securebits_value(t, new);
}

static s64 get_securebits(struct task *t, const u64 a[6])
{
	return t->cred->securebits;
}

static s64 capbset_read(struct task *t, const u64 a[6])
{
	if (a[1] > CAP_LAST_CAP)
		return -EINVAL;
	return (t->cred->cap_bounding >> a[1]) & 1;
}

static s64 capbset_drop(struct task *t, const u64 a[6])
{
	struct cred *new;

	if (!cred_capable(t->cred, CAP_SETPCAP))
		return -EPERM;
	if (a[1] > CAP_LAST_CAP)
		return -EINVAL;
	new = cred_dup(t->cred);
	if (new == NULL)
		return -ENOMEM;
	new->cap_bounding &= ~(1ULL << a[1]);
	task_set_cred(t, new);
	return 0;
}

static s64 cap_ambient(struct task *t, const u64 a[6])
{
	const struct cred *c = t->cred;
	struct cred *new;
	u64 bit;

	if (a[1] == PR_CAP_AMBIENT_CLEAR_ALL) {
		if (!rest_zero(a, 2))
			return -EINVAL;
		bit = 0;
	} else {
		if (!rest_zero(a, 3) || a[2] > CAP_LAST_CAP)
			return -EINVAL;
		bit = 1ULL << a[2];
		if (a[1] == PR_CAP_AMBIENT_IS_SET)
			return (c->cap_ambient & bit) != 0;
		if (a[1] != PR_CAP_AMBIENT_RAISE && a[1] != PR_CAP_AMBIENT_LOWER)
			return -EINVAL;
		if (a[1] == PR_CAP_AMBIENT_RAISE &&
		    (!(c->cap_permitted & c->cap_inheritable & bit) ||
		     (c->securebits & SECBIT_NO_CAP_AMBIENT_RAISE)))
			return -EPERM;
	}
	new = cred_dup(c);
	if (new == NULL)
		return -ENOMEM;
	if (a[1] == PR_CAP_AMBIENT_CLEAR_ALL)
		new->cap_ambient = 0;
	else if (a[1] == PR_CAP_AMBIENT_RAISE)
		new->cap_ambient |= bit;
	else
		new->cap_ambient &= ~bit;
	task_set_cred(t, new);
	return 0;
}

static s64 set_seccomp(struct task *t, const u64 a[6])
{
	return seccomp_prctl_set(t, a[1], ua(a[2]));
}

static s64 get_seccomp(struct task *t, const u64 a[6])
{
	return seccomp_prctl_get(t);
}

/* ---- timing ---- */

static s64 set_timing(struct task *t, const u64 a[6])
{
	return a[1] == PR_TIMING_STATISTICAL ? 0 : -EINVAL;
}

static s64 get_timing(struct task *t, const u64 a[6])
{
	return PR_TIMING_STATISTICAL;
}

static s64 set_timerslack(struct task *t, const u64 a[6])
{
	u64 normal = t->misc.default_slack_ns ? t->misc.default_slack_ns : SLACK_DEFAULT_NS;

	t->timer_slack_ns = (s64)a[1] > 0 ? a[1] : normal;
	return 0;
}

static s64 get_timerslack(struct task *t, const u64 a[6])
{
	return (s64)(t->timer_slack_ns ? t->timer_slack_ns : SLACK_DEFAULT_NS);
}

static s64 get_tsc(struct task *t, const u64 a[6])
{
	return int_out(t, a[1], PR_TSC_ENABLE);
}

/* The counter cannot be taken from guest code here. */
static s64 set_tsc(struct task *t, const u64 a[6])
{
	return a[1] == PR_TSC_ENABLE ? 0 : -EINVAL;
}

/* ---- small flags ---- */

static s64 set_mce_kill(struct task *t, const u64 a[6])
{
	if (!rest_zero(a, 3))
		return -EINVAL;
	if (a[1] == PR_MCE_KILL_CLEAR) {
		if (a[2])
			return -EINVAL;
		t->misc.mce_kill = 0;
		return 0;
	}
	if (a[1] != PR_MCE_KILL_SET || a[2] > PR_MCE_KILL_DEFAULT)
		return -EINVAL;
	t->misc.mce_kill = a[2] == PR_MCE_KILL_DEFAULT ? 0 : (u32)a[2] + 1;
	return 0;
}

static s64 get_mce_kill(struct task *t, const u64 a[6])
{
	if (!rest_zero(a, 1))
		return -EINVAL;
	return t->misc.mce_kill ? (s64)t->misc.mce_kill - 1 : PR_MCE_KILL_DEFAULT;
}

static s64 set_thp_disable(struct task *t, const u64 a[6])
{
	if (!rest_zero(a, 2))
		return -EINVAL;
	mm_set_policy(t->mm,
		      (mm_policy(t->mm) & ~(u32)MM_THP_DISABLE) | (a[1] ? MM_THP_DISABLE : 0));
	return 0;
}

static s64 get_thp_disable(struct task *t, const u64 a[6])
{
	return rest_zero(a, 1) ? !!(mm_policy(t->mm) & MM_THP_DISABLE) : -EINVAL;
}

_Static_assert(PR_MDWE_REFUSE_EXEC_GAIN == MM_MDWE_REFUSE_EXEC_GAIN, "mm.h");
_Static_assert(PR_MDWE_NO_INHERIT == MM_MDWE_NO_INHERIT, "mm.h");

static s64 set_mdwe(struct task *t, const u64 a[6])
{
	u32 now = mm_policy(t->mm);

	if (!rest_zero(a, 2) || (a[1] & ~(u64)MM_MDWE))
		return -EINVAL;
	if (a[1] == PR_MDWE_NO_INHERIT)
		return -EINVAL;
	/* What has been forbidden stays so. */
	if ((now & MM_MDWE) && (now & MM_MDWE) != a[1])
		return -EPERM;
	mm_set_policy(t->mm, now | (u32)a[1]);
	return 0;
}

static s64 get_mdwe(struct task *t, const u64 a[6])
{
	return rest_zero(a, 1) ? (s64)(mm_policy(t->mm) & MM_MDWE) : -EINVAL;
}

static s64 set_io_flusher(struct task *t, const u64 a[6])
{
	if (!cred_capable(t->cred, CAP_SYS_RESOURCE))
		return -EPERM;
	if (!rest_zero(a, 2) || a[1] > 1)
		return -EINVAL;
	t->misc.io_flusher = (u32)a[1];
	return 0;
}

static s64 get_io_flusher(struct task *t, const u64 a[6])
{
	if (!cred_capable(t->cred, CAP_SYS_RESOURCE))
		return -EPERM;
	return rest_zero(a, 1) ? (s64)t->misc.io_flusher : -EINVAL;
}

static s64 nothing_to_do(struct task *t, const u64 a[6])
{
	return 0;
}

static s64 get_tid_address(struct task *t, const u64 a[6])
{
	u64 addr = t->clear_child_tid.v;

	return copy_out(t, ua(a[1]), &addr, sizeof(addr));
}

static s64 get_speculation(struct task *t, const u64 a[6])
{
	if (!rest_zero(a, 2))
		return -EINVAL;
	return a[1] <= PR_SPEC_L1D_FLUSH ? PR_SPEC_NOT_AFFECTED : -ENODEV;
}

static s64 set_speculation(struct task *t, const u64 a[6])
{
	if (!rest_zero(a, 3))
		return -EINVAL;
	return a[1] <= PR_SPEC_L1D_FLUSH ? -ENXIO : -ENODEV;
}

/* ---- memory ---- */

static s64 set_vma(struct task *t, const u64 a[6])
{
	char name[ANON_NAME_MAX];
	ssize_t n;

	if (a[1] != PR_SET_VMA_ANON_NAME)
		return -EINVAL;
	if (a[4] == 0)
		return mm_set_anon_name(t->mm, a[2], a[3], NULL);
	n = mm_copy_in_str(t->mm, name, sizeof(name), ua(a[4]));
	if (n < 0)
		return n == -ENAMETOOLONG ? -EINVAL : n;
	for (ssize_t i = 0; i < n; i++)
		if (name[i] < ' ' || name[i] > '~' || strchr("\\`$[]", name[i]))
			return -EINVAL;
	return mm_set_anon_name(t->mm, a[2], a[3], name);
}

static s64 get_auxv(struct task *t, const u64 a[6])
{
	struct mm_marks marks;
	u64 size = sizeof(marks.auxv);

	if (a[3] || a[4])
		return -EINVAL;
	mm_get_marks(t->mm, &marks);
	if (copy_out(t, ua(a[1]), marks.auxv, MIN(a[2], size)) < 0)
		return -EFAULT;
	return (s64)size;
}

/* The mark that PR_SET_MM's option names, or NULL. */
static u64 *mm_mark(struct mm_marks *m, u64 option)
{
	switch (option) {
	case PR_SET_MM_START_CODE: return &m->start_code;
	case PR_SET_MM_END_CODE: return &m->end_code;
	case PR_SET_MM_START_DATA: return &m->start_data;
	case PR_SET_MM_END_DATA: return &m->end_data;
	case PR_SET_MM_START_STACK: return &m->start_stack;
	case PR_SET_MM_START_BRK: return &m->start_brk;
	case PR_SET_MM_BRK: return &m->brk;
	case PR_SET_MM_ARG_START: return &m->arg_start;
	case PR_SET_MM_ARG_END: return &m->arg_end;
	case PR_SET_MM_ENV_START: return &m->env_start;
	case PR_SET_MM_ENV_END: return &m->env_end;
	default: return NULL;
	}
}

static s64 set_mm_auxv(struct task *t, struct mm_marks *marks, u64 addr, u64 size)
{
	if (size > sizeof(marks->auxv))
		return -EINVAL;
	memset(marks->auxv, 0, sizeof(marks->auxv));
	if (copy_in(t, marks->auxv, ua(addr), size) < 0)
		return -EFAULT;
	marks->auxv[ARRAY_SIZE(marks->auxv) - 2] = marks->auxv[ARRAY_SIZE(marks->auxv) - 1] = 0;
	marks->auxv_count = size / sizeof(u64);
	return 0;
}

/* PR_SET_MM_MAP: all marks at once; needs no capability. */
static s64 set_mm_map(struct task *t, const u64 a[6], struct mm_marks *m)
{
	struct prctl_mm_map map;
	s64 r;

	if (a[1] == PR_SET_MM_MAP_SIZE) {
		u32 size = sizeof(map);

		return copy_out(t, ua(a[2]), &size, sizeof(size));
	}
	if (a[3] != sizeof(map))
		return -EINVAL;
	r = copy_in(t, &map, ua(a[2]), sizeof(map));
	if (r < 0)
		return r;
	if (map.exe_fd != (u32)-1)
		return -EPERM; /* the executable stays what it is */
	if (map.start_code > map.end_code || map.start_data > map.end_data ||
	    map.arg_start > map.arg_end || map.env_start > map.env_end || map.start_brk > map.brk)
		return -EINVAL;
	if (map.auxv_size && (r = set_mm_auxv(t, m, (u64)(uintptr_t)map.auxv, map.auxv_size)) < 0)
		return r;
	m->start_code = map.start_code;
	m->end_code = map.end_code;
	m->start_data = map.start_data;
	m->end_data = map.end_data;
	m->start_stack = map.start_stack;
	m->arg_start = map.arg_start;
	m->arg_end = map.arg_end;
	m->env_start = map.env_start;
	m->env_end = map.env_end;
	mm_set_marks(t->mm, m);
	return 0;
}

static s64 set_mm(struct task *t, const u64 a[6])
{
	struct mm_marks marks;
	u64 *mark;
	s64 r;

	if (a[4] ||
	    (a[3] && a[1] != PR_SET_MM_AUXV && a[1] != PR_SET_MM_MAP && a[1] != PR_SET_MM_MAP_SIZE))
		return -EINVAL;
	mm_get_marks(t->mm, &marks);
	if (a[1] == PR_SET_MM_MAP || a[1] == PR_SET_MM_MAP_SIZE)
		return set_mm_map(t, a, &marks);
	if (!cred_capable(t->cred, CAP_SYS_RESOURCE))
		return -EPERM;
	if (a[1] == PR_SET_MM_EXE_FILE)
		return -EPERM;
	if (a[1] == PR_SET_MM_AUXV) {
		r = set_mm_auxv(t, &marks, a[2], a[3]);
	} else {
		struct mm_vma_info *info;

		mark = mm_mark(&marks, a[1]);
		if (mark == NULL)
			return -EINVAL;
		info = malloc(sizeof(*info));
		if (info == NULL)
			return -ENOMEM;
		/* Inside something mapped. The break itself moves only by brk(2). */
		r = mm_vma_at_or_after(t->mm, a[2], false, info) && info->start <= a[2] ? 0
											: -EINVAL;
		free(info);
		*mark = a[2];
	}
	if (r == 0)
		mm_set_marks(t->mm, &marks);
	return r;
}

/* ---- the table ---- */

struct option {
	int number;
	option_fn *fn;
};

/* Options that are not here answer -EINVAL, as on a kernel without them. */
static const struct option options[] = {
	{ PR_SET_NAME, set_name },
	{ PR_GET_NAME, get_name },
	{ PR_SET_VMA, set_vma },
	{ PR_SET_PDEATHSIG, set_pdeathsig },
	{ PR_GET_PDEATHSIG, get_pdeathsig },
	{ PR_SET_DUMPABLE, set_dumpable },
	{ PR_GET_DUMPABLE, get_dumpable },
	{ PR_SET_NO_NEW_PRIVS, set_no_new_privs },
	{ PR_GET_NO_NEW_PRIVS, get_no_new_privs },
	{ PR_SET_SECCOMP, set_seccomp },
	{ PR_GET_SECCOMP, get_seccomp },
	{ PR_SET_KEEPCAPS, set_keepcaps },
	{ PR_GET_KEEPCAPS, get_keepcaps },
	{ PR_CAPBSET_READ, capbset_read },
	{ PR_CAPBSET_DROP, capbset_drop },
	{ PR_CAP_AMBIENT, cap_ambient },
	{ PR_SET_SECUREBITS, set_securebits },
	{ PR_GET_SECUREBITS, get_securebits },
	{ PR_SET_CHILD_SUBREAPER, set_subreaper },
	{ PR_GET_CHILD_SUBREAPER, get_subreaper },
	{ PR_SET_TIMERSLACK, set_timerslack },
	{ PR_GET_TIMERSLACK, get_timerslack },
	{ PR_SET_TIMING, set_timing },
	{ PR_GET_TIMING, get_timing },
	{ PR_SET_TSC, set_tsc },
	{ PR_GET_TSC, get_tsc },
	{ PR_MCE_KILL, set_mce_kill },
	{ PR_MCE_KILL_GET, get_mce_kill },
	{ PR_SET_THP_DISABLE, set_thp_disable },
	{ PR_GET_THP_DISABLE, get_thp_disable },
	{ PR_SET_MDWE, set_mdwe },
	{ PR_GET_MDWE, get_mdwe },
	{ PR_SET_IO_FLUSHER, set_io_flusher },
	{ PR_GET_IO_FLUSHER, get_io_flusher },
	{ PR_TASK_PERF_EVENTS_DISABLE, nothing_to_do }, /* there are none */
	{ PR_TASK_PERF_EVENTS_ENABLE, nothing_to_do },
	{ PR_SET_PTRACER, nothing_to_do }, /* no Yama: whoever may trace, may */
	{ PR_GET_TID_ADDRESS, get_tid_address },
	{ PR_GET_SPECULATION_CTRL, get_speculation },
	{ PR_SET_SPECULATION_CTRL, set_speculation },
	{ PR_SET_MM, set_mm },
	{ PR_GET_AUXV, get_auxv },
};

s64 sys_prctl(struct task *t, const u64 a[6])
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (options[i].number == (int)a[0])
			return options[i].fn(t, a);
	return -EINVAL;
}

/* ---- arch_prctl, personality ---- */

#define USER_MAX 0x7ffffffff000ULL

s64 sys_arch_prctl(struct task *t, const u64 a[6])
{
	switch ((int)a[0]) {
	case ARCH_SET_FS:
		if (a[1] >= USER_MAX)
			return -EPERM;
		t->regs.fs_base = a[1];
		return 0;
	case ARCH_SET_GS:
		if (a[1] >= USER_MAX)
			return -EPERM;
		t->regs.gs_base = a[1];
		return 0;
	case ARCH_GET_FS: {
		u64 base = t->regs.fs_base;

		return copy_out(t, ua(a[1]), &base, sizeof(base));
	}
	case ARCH_GET_GS: {
		u64 base = t->regs.gs_base;

		return copy_out(t, ua(a[1]), &base, sizeof(base));
	}
	case ARCH_GET_CPUID: return 1; /* cpuid works and cannot be switched off */
	case ARCH_SET_CPUID: return -ENODEV;
	default: return -EINVAL;
	}
}

s64 sys_personality(struct task *t, const u64 a[6])
{
	u32 old = t->misc.personality;

	if ((u32)a[0] != 0xffffffff)
		t->misc.personality = (u32)a[0];
	return old;
}
