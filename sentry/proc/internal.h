/*
 * sentry/proc/internal.h: how the entries of /proc and /sys are described.
 *
 * A directory is a table of struct proc_entry, ended by a NULL name. An entry
 * shows text (`show`, or constant `text`), takes writes (`store`), is a link, a
 * directory, or makes its own inode (`make`). Every inode carries a proc_ctx: which
 * entry it is, and for /proc/PID which process (tg) and thread (tid; 0: the process).
 *
 * show and store run without vfs locks but file positions', so they may take
 * task, mm and fs locks.
 */
#ifndef MINISENTRY_SENTRY_PROC_INTERNAL_H
#define MINISENTRY_SENTRY_PROC_INTERNAL_H

#include "sentry/kernel/kernel.h"
#include "sentry/proc/procfs.h"
#include "sentry/task/task.h"
#include "vfs/synth.h"

#define TICKS_PER_SECOND 100 /* USER_HZ */
#define NS_PER_TICK (1000000000UL / TICKS_PER_SECOND)

struct proc_entry;

struct proc_ctx {
	struct kernel *kernel;
	struct superblock *sb;		/* borrowed: the inode holds it */
	const struct proc_entry *entry; /* immutable, static or owned by the sb */
	struct thread_group *tg;	/* a reference; NULL outside /proc/PID */
	int tid;			/* 0: the process as a whole */
	u64 number;			/* what the entry's family needs: fd, index of a cpu, ... */
};

struct proc_entry {
	const char *name;
	u32 mode; /* type and permission bits */
	int (*show)(const struct proc_ctx *c, struct file *f, struct textbuf *out);
	ssize_t (*store)(const struct proc_ctx *c, struct file *f, const char *data, size_t len);
	const char *text; /* instead of show: constant; links: the target */
	ssize_t (*link)(const struct proc_ctx *c, char *dst, size_t size);
	int (*follow)(const struct proc_ctx *c, struct path *ret);
	const struct proc_entry *children;
	/* Directories with computed names: after the static children. */
	int (*lookup)(struct inode *dir, const struct proc_ctx *c, const char *name,
		      struct inode **ret);
	int (*list)(const struct proc_ctx *c, struct dir_emit *e, u64 *pos);
	int (*permission)(struct inode *dir, const struct proc_ctx *c, const struct cred *cred,
			  int mask);
	/* Makes the inode itself. */
	int (*make)(const struct proc_ctx *c, struct inode **ret);
	u32 index; /* for show functions shared by several entries */
};

#define PROC_DIR(name_, children_)                                                                 \
	{                                                                                          \
		.name = (name_), .mode = S_IFDIR | 0555, .children = (children_)                   \
	}
#define PROC_FILE(name_, mode_, show_)                                                             \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | (mode_), .show = (show_)                        \
	}
#define PROC_RW(name_, mode_, show_, store_)                                                       \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | (mode_), .show = (show_), .store = (store_)     \
	}
#define PROC_TEXT(name_, text_)                                                                    \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | 0444, .text = (text_)                           \
	}
#define PROC_LINK(name_, target_)                                                                  \
	{                                                                                          \
		.name = (name_), .mode = S_IFLNK | 0777, .text = (target_)                         \
	}

/* Positions of static children in listings start here; computed ones follow. */
#define PROC_POS_STATIC 2
#define PROC_POS_DYNAMIC 0x10000ULL

/* ---- node.c ---- */
/* An inode for e; c gives kernel, sb, tg, tid, number (a reference on tg is taken). */
int proc_inode_new(const struct proc_ctx *c, const struct proc_entry *e, struct inode **ret);
const struct proc_entry *proc_find_entry(const struct proc_entry *table, const char *name);
/* Emits table's entries from *pos on. False when the reader is full. */
bool proc_list_entries(const struct proc_ctx *c, const struct proc_entry *table, struct dir_emit *e,
		       u64 *pos);
u64 proc_ino(const struct proc_ctx *c, const struct proc_entry *e);
/* Decimal without sign or leading zeros below limit, or -1. */
s64 proc_parse_number(const char *name, s64 limit);

/* ---- task access (access.c) ---- */
/* The task that c speaks of, a reference; NULL: gone. A zombie counts until it is reaped. */
struct task *proc_task(const struct proc_ctx *c);
/* Its mm, a reference; NULL: none (zombie). -ESRCH when the task is gone, -EACCES when `cred` (with
 * its effective ids: the opener's) may not look. */
int proc_task_mm(const struct proc_ctx *c, const struct cred *cred, bool check, struct mm **ret);
/* ptrace's rule for reading: same user and dumpable, the same process, or CAP_SYS_PTRACE. */
bool proc_may_access(struct thread_group *tg, const struct cred *cred);
/* Owner of /proc/PID: effective ids, or root for undumpable processes. */
void proc_owner(const struct proc_ctx *c, u32 *ret_uid, u32 *ret_gid);
void proc_task_comm(struct task *t, char dst[TASK_COMM_LEN]);
struct nsproxy *proc_task_ns(struct task *t); /* a reference or NULL */
/* Root of the current task (for texts of paths); references; empty when there is none. */
void proc_reader_root(struct path *ret);

/* ---- text helpers (format.c) ---- */
void proc_put_escaped(struct textbuf *b, const char *s, const char *escape);
/* Cpu masks: "3" / "ff,ffffffff" and "0-3,5". bits: how many the machine has. */
void proc_put_mask(struct textbuf *b, const u64 *mask, int bits);
void proc_put_mask_list(struct textbuf *b, const u64 *mask, int bits);
int proc_cpu_bits(struct kernel *k); /* highest cpu number + 1 */
bool proc_cpu_present(struct kernel *k, int cpu);
/* The whole of data as a decimal number, blanks around it allowed. */
int proc_parse_value(const char *data, size_t len, s64 *ret);
u64 proc_uptime_ns(struct kernel *k);

/* ---- families ---- */
extern const struct proc_entry proc_root_entries[];
extern const struct proc_entry proc_pid_entries[];
extern const struct proc_entry proc_reaper_entry;
extern const struct proc_entry proc_tid_entries[]; /* /proc/PID/task/TID */
extern const struct proc_entry proc_sys_entries[];
extern const struct proc_entry proc_sysvipc_entries[];
extern const struct proc_entry proc_net_entries[];
extern const struct proc_entry proc_fd_entry, proc_fdinfo_entry, proc_task_entry;
extern const struct proc_entry sysfs_root_entries[];
/* Magic links by entry->index: 0 cwd, 1 root, 2 exe. follow returns references. */
ssize_t proc_special_link(const struct proc_ctx *c, char *dst, size_t size);
int proc_special_follow(const struct proc_ctx *c, struct path *ret);
int proc_make_mem(const struct proc_ctx *c, struct inode **ret);
int proc_make_pagemap(const struct proc_ctx *c, struct inode **ret);
int proc_show_stat(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_statm(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_status(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_sched(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_schedstat(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_maps(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_smaps(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_smaps_rollup(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_mounts(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_mountinfo(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_mountstats(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_cpuinfo(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_system_stat(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_loadavg(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_meminfo(const struct proc_ctx *c, struct file *f, struct textbuf *out);
int proc_show_vmstat(const struct proc_ctx *c, struct file *f, struct textbuf *out);
extern const struct proc_entry proc_ns_entries[];

/* ---- the superblock ---- */
struct proc_sb {
	struct superblock sb;
	struct kernel *kernel;
	struct proc_entry root;
	u8 boot_id[16];
	struct mutex lock; /* RANK_LEAF */
	/* lock: what must never go back, and the load average */
	u64 seen_user_ns, seen_system_ns;
	u64 load_time_ns, load_cpu_ns;
	double load[3];
};
static inline struct proc_sb *proc_sb_of(const struct proc_ctx *c)
{
	return container_of(c->sb, struct proc_sb, sb);
}
/* User and system time of everything that ever ran; never goes back. */
void proc_total_cpu(const struct proc_ctx *c, u64 *ret_user_ns, u64 *ret_system_ns);

#endif
