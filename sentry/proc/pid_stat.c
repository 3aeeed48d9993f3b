/* /proc/PID/{stat,statm,status,sched,schedstat}: see proc_pid_stat(5) and its siblings. */
#include "sentry/proc/internal.h"
#include "sentry/fd/fdtable.h"
#include "sentry/task/ptrace.h"
#include "sentry/tty/tty.h"
#include <linux/sched.h>
#include <string.h>

/* What both stat and status need, collected piece by piece under the pieces' own locks. */
struct snapshot {
	char comm[TASK_COMM_LEN];
	char state;
	int pid, tgid, ppid, tracer, pgid, sid, threads, exit_signal, exit_code;
	u64 utime, stime, cutime, cstime, minflt, cminflt, majflt, cmajflt;
	u64 pending, shared_pending, blocked, ignored, caught;
	size_t queued;
	u64 start_ns;
	struct mm *mm; /* a reference or NULL */
	struct mm_stats mem;
	struct mm_marks marks;
};

static char state_letter(struct task *t)
{
	switch (atomic_load(&t->state)) {
	case TASK_NEW:
	case TASK_RUNNING: return 'R';
	/* Woken, though its thread has not gone on yet. */
	case TASK_BLOCKED: return atomic_load(&t->wake) ? 'R' : 'S';
	case TASK_STOPPED: return 'T';
	case TASK_TRACED: return 't';
	case TASK_ZOMBIE: return 'Z';
	default: return 'X';
	}
}

static const char *state_name(char letter)
{
	switch (letter) {
	case 'R': return "R (running)";
	case 'S': return "S (sleeping)";
	case 'T': return "T (stopped)";
	case 't': return "t (tracing stop)";
	case 'Z': return "Z (zombie)";
	default: return "X (dead)";
	}
}

/* Times, faults and relations. */
static void collect_group(const struct proc_ctx *c, struct task *t, struct snapshot *s)
{
	struct thread_group *tg = t->tg;
	struct task *other;

	if (c->tid)
		task_cpu_times(t, &s->utime, &s->stime);
	else
		thread_group_cpu_times(tg, &s->utime, &s->stime);
	mutex_lock(&c->kernel->tasklist_lock);
	s->pid = c->tid ? t->tid : tg->tgid;
	s->tgid = tg->tgid;
	s->ppid = tg->parent ? tg->parent->tgid : PID_REAPER;
	s->tracer = t->ptrace && t->ptrace->tracer ? t->ptrace->tracer->tid : 0;
	s->pgid = tg->pgrp ? tg->pgrp->pgid : 0;
	s->sid = tg->pgrp ? tg->pgrp->session->sid : 0;
	s->threads = tg->task_count;
	s->exit_signal = c->tid && t != tg->leader ? -1 : tg->exit_signal;
	s->start_ns = c->tid ? t->start_time_ns : tg->start_time_ns;
	s->minflt = t->minflt;
	s->majflt = t->majflt;
	if (!c->tid) {
		s->minflt = tg->dead_minflt;
		s->majflt = tg->dead_majflt;
		list_for_each (other, &tg->tasks, group_node) {
			s->minflt += other->minflt;
			s->majflt += other->majflt;
		}
	}
	s->cminflt = tg->child_minflt;
	s->cmajflt = tg->child_majflt;
	s->cutime = tg->child_utime_ns;
	s->cstime = tg->child_stime_ns;
	mutex_unlock(&c->kernel->tasklist_lock);
}

static void collect_signals(struct task *t, struct snapshot *s)
{
	struct sighand *sh = t->tg->sighand;

	MUTEX_GUARD(&sh->lock);
	s->pending = t->pending.set;
	s->shared_pending = t->tg->pending.set;
	s->queued = t->pending.count + t->tg->pending.count;
	s->blocked = t->sigmask;
	for (int sig = 1; sig <= SIGNAL_COUNT; sig++) {
		u64 handler = sh->action[sig - 1].handler;

		if (handler == (u64)(uintptr_t)SIG_IGN)
			s->ignored |= sigbit(sig);
		else if (handler != (u64)(uintptr_t)SIG_DFL)
			s->caught |= sigbit(sig);
	}
	s->exit_code = t->tg->group_exiting ? t->tg->exit_status : t->exit_code;
}

static void collect(const struct proc_ctx *c, struct task *t, struct snapshot *s)
{
	memset(s, 0, sizeof(*s));
	proc_task_comm(t, s->comm);
	s->state = state_letter(t);
	collect_group(c, t, s);
	collect_signals(t, s);
	s->mm = task_get_mm(t);
	if (s->mm) {
		mm_get_stats(s->mm, &s->mem);
		mm_get_marks(s->mm, &s->marks);
	}
}

static u64 start_ticks(const struct proc_ctx *c, const struct snapshot *s)
{
	u64 boot = c->kernel->boot_monotonic_ns;

	return s->start_ns > boot ? (s->start_ns - boot) / NS_PER_TICK : 0;
}

int proc_show_stat(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);
	struct snapshot s;
	u32 tty_nr;
	int tpgid, prio;
	u64 rss;
	bool may;

	if (!t)
		return -ESRCH;
	collect(c, t, &s);
	tty_proc_numbers(c->tg, &tty_nr, &tpgid);
	may = proc_may_access(c->tg, f->cred);
	rss = (s.mem.rss_anon + s.mem.rss_file + s.mem.rss_shmem) / PAGE_SIZE;
	prio = t->sched_policy == SCHED_FIFO || t->sched_policy == SCHED_RR
		       ? -1 - (int)t->sched_priority
		       : 20 + t->nice;
	textbuf_printf(out, "%d (%s) %c %d %d %d %d %d %u", s.pid, s.comm, s.state, s.ppid, s.pgid,
		       s.sid, (s32)tty_nr, tpgid, 0x400000U);
	textbuf_printf(out, " %lu %lu %lu %lu %lu %lu %lu %lu", s.minflt, s.cminflt, s.majflt,
		       s.cmajflt, s.utime / NS_PER_TICK, s.stime / NS_PER_TICK,
		       s.cutime / NS_PER_TICK, s.cstime / NS_PER_TICK);
	textbuf_printf(out, " %d %d %d 0 %lu %lu %lu %lu", prio, t->nice, s.threads,
		       start_ticks(c, &s), s.mem.total_vm, rss, task_rlimit(t, RLIMIT_RSS));
	if (may && s.mm)
		textbuf_printf(out, " %lu %lu %lu", s.marks.start_code, s.marks.end_code,
			       s.marks.start_stack);
	else
		textbuf_printf(out, " %d %d 0", s.mm != NULL, s.mm != NULL);
	textbuf_printf(out, " 0 0 %lu %lu %lu %lu", s.pending & 0x7fffffff, s.blocked & 0x7fffffff,
		       s.ignored & 0x7fffffff, s.caught & 0x7fffffff);
	textbuf_printf(out, " %d 0 0 %d %d %u %u 0 0 0", s.state == 'S', s.exit_signal, 0,
		       t->sched_priority, t->sched_policy);
	if (may && s.mm)
		textbuf_printf(out, " %lu %lu %lu %lu %lu %lu %lu", s.marks.start_data,
			       s.marks.end_data, s.marks.start_brk, s.marks.arg_start,
			       s.marks.arg_end, s.marks.env_start, s.marks.env_end);
	else
		textbuf_printf(out, " 0 0 0 0 0 0 0");
	textbuf_printf(out, " %d\n", may ? s.exit_code : 0);
	mm_put(s.mm);
	task_put(t);
	return 0;
}

int proc_show_statm(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct mm_stats s = { 0 };
	struct mm *mm;
	int err = proc_task_mm(c, f->cred, false, &mm);

	if (err)
		return err;
	if (mm)
		mm_get_stats(mm, &s);
	mm_put(mm);
	textbuf_printf(out, "%lu %lu %lu %lu 0 %lu 0\n", s.total_vm / PAGE_SIZE,
		       (s.rss_anon + s.rss_file + s.rss_shmem) / PAGE_SIZE,
		       (s.rss_file + s.rss_shmem) / PAGE_SIZE, s.text / PAGE_SIZE,
		       (s.data + s.stack) / PAGE_SIZE);
	return 0;
}

static void put_memory(struct textbuf *out, const struct snapshot *s)
{
	const struct mm_stats *m = &s->mem;
	u64 rss = m->rss_anon + m->rss_file + m->rss_shmem;
	const struct {
		const char *name;
		u64 bytes;
	} rows[] = {
		{ "VmPeak", MAX(m->peak_vm, m->total_vm) },
		{ "VmSize", m->total_vm },
		{ "VmLck", m->locked },
		{ "VmPin", 0 },
		{ "VmHWM", MAX(m->peak_rss, rss) },
		{ "VmRSS", rss },
		{ "RssAnon", m->rss_anon },
		{ "RssFile", m->rss_file },
		{ "RssShmem", m->rss_shmem },
		{ "VmData", m->data },
		{ "VmStk", m->stack },
		{ "VmExe", m->text },
		{ "VmLib", 0 },
		{ "VmPTE", (m->map_count + 1) * 64 + rss / 512 },
		{ "VmSwap", 0 },
		{ "HugetlbPages", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		textbuf_printf(out, "%s:\t%8lu kB\n", rows[i].name, rows[i].bytes >> 10);
	textbuf_printf(out, "CoreDumping:\t0\nTHP_enabled:\t%d\nuntag_mask:\t0xffffffffffffffff\n",
		       !(mm_policy(s->mm) & MM_THP_DISABLE));
}

static void put_identity(const struct proc_ctx *c, struct task *t, const struct snapshot *s,
			 struct textbuf *out)
{
	const struct cred *cred = task_get_cred(t);
	struct fs_context *fs = task_get_fs(t);
	struct fd_table *fds = task_get_fds(t);
	size_t fd_size = fds ? MAX(fd_count(fds), (size_t)64) : 0;

	textbuf_printf(out, "Name:\t");
	proc_put_escaped(out, s->comm, "\n\\");
	textbuf_printf(out, "\n");
	if (fs) {
		mutex_lock(&fs->lock);
		textbuf_printf(out, "Umask:\t%04o\n", fs->umask);
		mutex_unlock(&fs->lock);
	}
	textbuf_printf(out,
		       "State:\t%s\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t%d\n",
		       state_name(s->state), s->tgid, s->pid, s->ppid, s->tracer);
	textbuf_printf(out, "Uid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\n", cred->uid, cred->euid,
		       cred->suid, cred->fsuid, cred->gid, cred->egid, cred->sgid, cred->fsgid);
	textbuf_printf(out, "FDSize:\t%lu\nGroups:\t", fd_size);
	for (size_t i = 0; i < cred->group_count; i++)
		textbuf_printf(out, "%u ", cred->groups[i]);
	textbuf_printf(out, "\nNStgid:\t%d\nNSpid:\t%d\nNSpgid:\t%d\nNSsid:\t%d\n", s->tgid, s->pid,
		       s->pgid, s->sid);
	cred_put(cred);
	fs_context_put(fs);
	fd_table_put(fds);
}

static void put_rights(struct task *t, const struct snapshot *s, struct textbuf *out)
{
	const struct cred *cred = task_get_cred(t);

	textbuf_printf(out, "Threads:\t%d\nSigQ:\t%lu/%lu\n", s->threads, s->queued,
		       task_rlimit(t, RLIMIT_SIGPENDING));
	textbuf_printf(out,
		       "SigPnd:\t%016lx\nShdPnd:\t%016lx\nSigBlk:\t%016lx\nSigIgn:\t%016lx\nSigCgt:"
		       "\t%016lx\n",
		       s->pending, s->shared_pending, s->blocked, s->ignored, s->caught);
	textbuf_printf(out,
		       "CapInh:\t%016lx\nCapPrm:\t%016lx\nCapEff:\t%016lx\nCapBnd:\t%016lx\nCapAmb:"
		       "\t%016lx\n",
		       cred->cap_inheritable, cred->cap_permitted, cred->cap_effective,
		       cred->cap_bounding, cred->cap_ambient);
	textbuf_printf(out, "NoNewPrivs:\t%d\nSeccomp:\t%u\nSeccomp_filters:\t%d\n",
		       t->no_new_privs, atomic_load(&t->seccomp_mode),
		       atomic_load(&t->seccomp_mode) == 2);
	textbuf_printf(
		out,
		"Speculation_Store_Bypass:\tnot vulnerable\nSpeculationIndirectBranch:\tunknown\n");
	cred_put(cred);
}

int proc_show_status(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);
	struct snapshot s;
	u64 affinity[16];
	int bits = proc_cpu_bits(c->kernel);

	if (!t)
		return -ESRCH;
	collect(c, t, &s);
	put_identity(c, t, &s, out);
	if (s.mm)
		put_memory(out, &s);
	put_rights(t, &s, out);
	mutex_lock(&t->lock);
	memcpy(affinity, t->affinity, sizeof(affinity));
	mutex_unlock(&t->lock);
	textbuf_printf(out, "Cpus_allowed:\t");
	proc_put_mask(out, affinity, bits);
	textbuf_printf(out, "\nCpus_allowed_list:\t");
	proc_put_mask_list(out, affinity, bits);
	textbuf_printf(out, "\nMems_allowed:\t00000000,00000001\nMems_allowed_list:\t0\n");
	textbuf_printf(out, "voluntary_ctxt_switches:\t%lu\nnonvoluntary_ctxt_switches:\t%lu\n",
		       t->nvcsw, t->nivcsw);
	mm_put(s.mm);
	task_put(t);
	return 0;
}

int proc_show_sched(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);
	struct snapshot s;
	u64 run;

	if (!t)
		return -ESRCH;
	collect(c, t, &s);
	run = s.utime + s.stime;
	textbuf_printf(out, "%s (%d, #threads: %d)\n", s.comm, s.pid, s.threads);
	textbuf_printf(out,
		       "-------------------------------------------------------------------\n");
	textbuf_printf(out, "%-45s:%20lu.%06lu\n", "se.sum_exec_runtime", run / 1000000,
		       run % 1000000);
	textbuf_printf(out, "%-45s:%21lu\n", "nr_switches", t->nvcsw + t->nivcsw);
	textbuf_printf(out, "%-45s:%21lu\n", "nr_voluntary_switches", t->nvcsw);
	textbuf_printf(out, "%-45s:%21lu\n", "nr_involuntary_switches", t->nivcsw);
	textbuf_printf(out, "%-45s:%21u\n", "policy", t->sched_policy);
	textbuf_printf(out, "%-45s:%21d\n", "prio", 120 + t->nice);
	mm_put(s.mm);
	task_put(t);
	return 0;
}

int proc_show_schedstat(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);
	u64 user, system;

	if (!t)
		return -ESRCH;
	task_cpu_times(t, &user, &system);
	textbuf_printf(out, "%lu 0 %lu\n", user + system, t->nvcsw + t->nivcsw);
	task_put(t);
	return 0;
}
