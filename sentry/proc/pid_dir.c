/* The table of /proc/PID, and its small files. */
#include "sentry/proc/internal.h"
#include "sentry/task/oom.h"
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AREA_MAX (4UL << 20) /* cmdline and environ: at most what exec accepts */
#define OOM_ADJ_LIMIT 1000

/* ---- from memory ---- */

/* Appends guest memory [start, end) of mm. */
static void put_area(struct textbuf *out, struct mm *mm, u64 start, u64 end)
{
	u8 chunk[4096];

	if (end - start > AREA_MAX)
		end = start + AREA_MAX;
	while (start < end) {
		size_t want = MIN(end - start, sizeof(chunk) - (start & (sizeof(chunk) - 1)));
		ssize_t n = mm_access_remote(mm, start, chunk, want, false);

		if (n <= 0)
			return;
		textbuf_write(out, chunk, (size_t)n);
		start += (u64)n;
	}
}

/*
 * The arguments; a program that overwrote the last zero byte (setproctitle) shows one string that
 * may go on in the environment's place.
 */
static int show_cmdline(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct mm_marks m;
	struct mm *mm;
	int err = proc_task_mm(c, f->cred, false, &mm);

	if (err || !mm)
		return err;
	mm_get_marks(mm, &m);
	if (m.arg_end > m.arg_start) {
		put_area(out, mm, m.arg_start, m.arg_end);
		if (out->len && out->data[out->len - 1] && m.env_start == m.arg_end &&
		    m.env_end > m.env_start) {
			size_t first = strnlen(out->data, out->len), end;

			if (first == out->len)
				put_area(out, mm, m.env_start, m.env_end);
			end = strnlen(out->data, out->len);
			out->len = MIN(out->len, end + 1);
		}
	}
	mm_put(mm);
	return 0;
}

static int show_environ(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct mm_marks m;
	struct mm *mm;
	int err = proc_task_mm(c, f->cred, true, &mm);

	if (err || !mm)
		return err;
	mm_get_marks(mm, &m);
	if (m.env_end > m.env_start)
		put_area(out, mm, m.env_start, m.env_end);
	mm_put(mm);
	return 0;
}

static int show_auxv(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct mm_marks m;
	struct mm *mm;
	int err = proc_task_mm(c, f->cred, true, &mm);

	if (err || !mm)
		return err;
	mm_get_marks(mm, &m);
	textbuf_write(out, m.auxv, MIN(m.auxv_count, ARRAY_SIZE(m.auxv)) * sizeof(m.auxv[0]));
	mm_put(mm);
	return 0;
}

/* ---- of the task ---- */

static int show_comm(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);
	char comm[TASK_COMM_LEN];

	if (!t)
		return -ESRCH;
	proc_task_comm(t, comm);
	task_put(t);
	textbuf_printf(out, "%s\n", comm);
	return 0;
}

static ssize_t store_comm(const struct proc_ctx *c, struct file *f, const char *data, size_t len)
{
	struct task *t = proc_task(c);
	size_t n = MIN(len, (size_t)TASK_COMM_LEN - 1);

	if (!t)
		return -ESRCH;
	if (!current_task || current_task->tg != t->tg) {
		task_put(t);
		return -EINVAL;
	}
	if (n == len && n && data[n - 1] == '\n')
		n--;
	mutex_lock(&t->lock);
	memset(t->comm, 0, sizeof(t->comm));
	memcpy(t->comm, data, strnlen(data, n));
	mutex_unlock(&t->lock);
	task_put(t);
	return (ssize_t)len;
}

static int show_limits(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	static const struct {
		const char *name, *unit;
	} rows[RLIM_NLIMITS] = {
		[RLIMIT_CPU] = { "Max cpu time", "seconds" },
		[RLIMIT_FSIZE] = { "Max file size", "bytes" },
		[RLIMIT_DATA] = { "Max data size", "bytes" },
		[RLIMIT_STACK] = { "Max stack size", "bytes" },
		[RLIMIT_CORE] = { "Max core file size", "bytes" },
		[RLIMIT_RSS] = { "Max resident set", "bytes" },
		[RLIMIT_NPROC] = { "Max processes", "processes" },
		[RLIMIT_NOFILE] = { "Max open files", "files" },
		[RLIMIT_MEMLOCK] = { "Max locked memory", "bytes" },
		[RLIMIT_AS] = { "Max address space", "bytes" },
		[RLIMIT_LOCKS] = { "Max file locks", "locks" },
		[RLIMIT_SIGPENDING] = { "Max pending signals", "signals" },
		[RLIMIT_MSGQUEUE] = { "Max msgqueue size", "bytes" },
		[RLIMIT_NICE] = { "Max nice priority", "" },
		[RLIMIT_RTPRIO] = { "Max realtime priority", "" },
		[RLIMIT_RTTIME] = { "Max realtime timeout", "us" },
	};
	struct task *t = proc_task(c);

	if (!t)
		return -ESRCH;
	textbuf_printf(out, "%-25s %-20s %-20s %-10s\n", "Limit", "Soft Limit", "Hard Limit",
		       "Units");
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit64 l = task_rlimit_both(t, i);
		char soft[24], hard[24];

		snprintf(soft, sizeof(soft), l.rlim_cur == RLIM64_INFINITY ? "unlimited" : "%lu",
			 l.rlim_cur);
		snprintf(hard, sizeof(hard), l.rlim_max == RLIM64_INFINITY ? "unlimited" : "%lu",
			 l.rlim_max);
		textbuf_printf(out, "%-25s %-20s %-20s ", rows[i].name, soft, hard);
		textbuf_printf(out, rows[i].unit[0] ? "%-10s\n" : "%s\n", rows[i].unit);
	}
	task_put(t);
	return 0;
}

static int show_io(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	if (!proc_may_access(c->tg, f->cred))
		return -EACCES;
	textbuf_printf(out,
		       "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n"
		       "cancelled_write_bytes: 0\n");
	return 0;
}

static int show_oom_score(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct mm_stats s = { 0 };
	struct mm *mm;
	s64 score;
	int err = proc_task_mm(c, f->cred, false, &mm);

	if (err)
		return err;
	if (mm)
		mm_get_stats(mm, &s);
	mm_put(mm);
	score = oom_points(c->kernel, s.rss_anon + s.rss_file + s.rss_shmem,
			   atomic_load(&c->tg->oom_score_adj));
	/* As proc_oom_score of Linux; 0: not to be killed. */
	if (score == INT64_MIN)
		score = 0;
	else
		score = (1000 + score * 1000 / (s64)(c->kernel->memory_limit / PAGE_SIZE)) * 2 / 3;
	textbuf_printf(out, "%ld\n", MAX(score, 0));
	return 0;
}

static int show_oom_adj(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	int adj = atomic_load(&c->tg->oom_score_adj);

	/* index 1: the old scale of -17..15 */
	if (c->entry->index)
		adj = adj == OOM_ADJ_LIMIT ? 15 : adj * 17 / OOM_ADJ_LIMIT;
	textbuf_printf(out, "%d\n", adj);
	return 0;
}

static ssize_t store_oom_adj(const struct proc_ctx *c, struct file *f, const char *data, size_t len)
{
	s64 v;
	int err = proc_parse_value(data, len, &v);

	if (err)
		return err;
	if (c->entry->index)
		v = v == 15 ? OOM_ADJ_LIMIT : v * OOM_ADJ_LIMIT / 17;
	if (v < -OOM_ADJ_LIMIT || v > OOM_ADJ_LIMIT)
		return -EINVAL;
	if (v < atomic_load(&c->tg->oom_score_adj) && !cred_capable(f->cred, CAP_SYS_RESOURCE))
		return -EACCES;
	atomic_store(&c->tg->oom_score_adj, (int)v);
	return (ssize_t)len;
}

static int show_timerslack(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);

	if (!t)
		return -ESRCH;
	textbuf_printf(out, "%lu\n", t->timer_slack_ns);
	task_put(t);
	return 0;
}

static ssize_t store_timerslack(const struct proc_ctx *c, struct file *f, const char *data,
				size_t len)
{
	struct task *t = proc_task(c);
	s64 v;
	int err = proc_parse_value(data, len, &v);

	if (!t)
		return -ESRCH;
	if (!err && t != current_task && !cred_capable(f->cred, CAP_SYS_NICE))
		err = -EPERM;
	if (!err && v < 0)
		err = -EINVAL;
	if (!err)
		t->timer_slack_ns = v ? (u64)v : t->misc.default_slack_ns;
	task_put(t);
	return err ? err : (ssize_t)len;
}

static int show_personality(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);

	if (!t)
		return -ESRCH;
	textbuf_printf(out, "%08x\n", t->misc.personality);
	task_put(t);
	return 0;
}

static int show_syscall(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct task *t = proc_task(c);

	if (!t)
		return -ESRCH;
	if (!proc_may_access(c->tg, f->cred)) {
		task_put(t);
		return -EPERM;
	}
	if (atomic_load(&t->state) != TASK_BLOCKED) {
		textbuf_printf(out, "running\n");
	} else {
		/* another thread's registers: a racy look, as on Linux */
		struct user_regs_struct r = t->regs;

		textbuf_printf(out, "%ld 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx 0x%llx\n",
			       (long)t->syscall_nr, r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9, r.rsp,
			       r.rip);
	}
	task_put(t);
	return 0;
}

static ssize_t store_nothing(const struct proc_ctx *c, struct file *f, const char *data, size_t len)
{
	return (ssize_t)len;
}

static int show_invalid(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	return -EINVAL; /* no security module */
}

/* TIDs of the children of a thread, for pstree and pgrep. */
static int show_children(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct thread_group *child;

	mutex_lock(&c->kernel->tasklist_lock);
	list_for_each (child, &c->tg->children, sibling) {
		if (!c->tid || !child->parent_task || child->parent_task->tid == c->tid)
			textbuf_printf(out, "%d ", child->tgid);
	}
	mutex_unlock(&c->kernel->tasklist_lock);
	return 0;
}

static const struct proc_entry attr_entries[] = {
	PROC_RW("current", 0666, show_invalid, store_nothing),
	{ 0 },
};

#define SPECIAL(name_, index_)                                                                     \
	{                                                                                          \
		.name = (name_), .mode = S_IFLNK | 0777, .link = proc_special_link,                \
		.follow = proc_special_follow, .index = (index_)                                   \
	}
#define OOM_ADJ(name_, index_)                                                                     \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | 0644, .show = show_oom_adj,                     \
		.store = store_oom_adj, .index = (index_)                                          \
	}

/* What a process and a thread have in common. */
#define COMMON_ENTRIES                                                                             \
	PROC_DIR("attr", attr_entries), PROC_FILE("auxv", 0400, show_auxv),                        \
		PROC_TEXT("cgroup", "0::/\n"), PROC_FILE("cmdline", 0444, show_cmdline),           \
		PROC_RW("comm", 0644, show_comm, store_comm), PROC_TEXT("cpuset", "/\n"),          \
		SPECIAL("cwd", 0), PROC_FILE("environ", 0400, show_environ), SPECIAL("exe", 2),    \
		PROC_FILE("io", 0400, show_io), PROC_FILE("limits", 0444, show_limits),            \
		{ .name = "loginuid",                                                              \
		  .mode = S_IFREG | 0644,                                                          \
		  .text = "4294967295",                                                            \
		  .store = store_nothing },                                                        \
		PROC_FILE("maps", 0444, proc_show_maps),                                           \
		{ .name = "mem", .mode = S_IFREG | 0600, .make = proc_make_mem },                  \
		PROC_FILE("mountinfo", 0444, proc_show_mountinfo),                                 \
		PROC_FILE("mounts", 0444, proc_show_mounts), PROC_DIR("net", proc_net_entries),    \
		PROC_DIR("ns", proc_ns_entries), OOM_ADJ("oom_adj", 1),                            \
		PROC_FILE("oom_score", 0444, show_oom_score), OOM_ADJ("oom_score_adj", 0),         \
		{ .name = "pagemap", .mode = S_IFREG | 0400, .make = proc_make_pagemap },          \
		PROC_FILE("personality", 0400, show_personality), SPECIAL("root", 1),              \
		PROC_FILE("sched", 0444, proc_show_sched),                                         \
		PROC_FILE("schedstat", 0444, proc_show_schedstat),                                 \
		PROC_TEXT("sessionid", "4294967295"), PROC_FILE("smaps", 0444, proc_show_smaps),   \
		PROC_FILE("smaps_rollup", 0444, proc_show_smaps_rollup),                           \
		PROC_FILE("stat", 0444, proc_show_stat),                                           \
		PROC_FILE("statm", 0444, proc_show_statm),                                         \
		PROC_FILE("status", 0444, proc_show_status),                                       \
		PROC_FILE("syscall", 0400, show_syscall), PROC_TEXT("wchan", "0"),                 \
		PROC_TEXT("projid_map", "         0          0 4294967295\n"),                     \
		PROC_TEXT("uid_map", "         0          0 4294967295\n"),                        \
		PROC_TEXT("gid_map", "         0          0 4294967295\n"),                        \
		PROC_TEXT("setgroups", "allow\n")

/* fd, fdinfo and task are completed below: their entries live with their code. */
static int fd_make(const struct proc_ctx *c, struct inode **ret)
{
	return proc_inode_new(c, &proc_fd_entry, ret);
}

static int fdinfo_make(const struct proc_ctx *c, struct inode **ret)
{
	return proc_inode_new(c, &proc_fdinfo_entry, ret);
}

static int task_make(const struct proc_ctx *c, struct inode **ret)
{
	return proc_inode_new(c, &proc_task_entry, ret);
}

#define MADE_DIR(name_, make_)                                                                     \
	{                                                                                          \
		.name = (name_), .mode = S_IFDIR | 0555, .make = (make_)                           \
	}

const struct proc_entry proc_pid_entries[] = {
	COMMON_ENTRIES,
	MADE_DIR("fd", fd_make),
	MADE_DIR("fdinfo", fdinfo_make),
	MADE_DIR("task", task_make),
	{ .name = "clear_refs", .mode = S_IFREG | 0200, .store = store_nothing },
	{ .name = "coredump_filter",
	  .mode = S_IFREG | 0644,
	  .text = "00000033\n",
	  .store = store_nothing },
	PROC_FILE("mountstats", 0400, proc_show_mountstats),
	PROC_RW("timerslack_ns", 0666, show_timerslack, store_timerslack),
	{ 0 },
};

const struct proc_entry proc_tid_entries[] = {
	COMMON_ENTRIES,
	MADE_DIR("fd", fd_make),
	MADE_DIR("fdinfo", fdinfo_make),
	PROC_FILE("children", 0444, show_children),
	{ 0 },
};
