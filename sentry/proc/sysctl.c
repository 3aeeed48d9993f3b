/*
 * /proc/sys. What can be set takes effect (hostname, domainname, vm/overcommit_*); everything else
 * shows how this kernel behaves and is read-only, as in most containers.
 */
#include "sentry/proc/internal.h"
#include "base/host_time.h"
#include "pgalloc/promise.h"
#include "sentry/ipc/shm.h"
#include "sentry/tty/tty.h"
#include "vfs/pipe.h"
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

#define STRINGIFY2(x) #x
#define STRINGIFY(x) STRINGIFY2(x)
_Static_assert(PIPE_MAX_SIZE == 1048576, "pipe-max-size below");
_Static_assert(PID_LIMIT == 4194304, "pid_max below");

/* ---- names ---- */

static struct uts_ns *my_uts(void)
{
	struct nsproxy *ns = current_task ? proc_task_ns(current_task) : NULL;
	struct uts_ns *uts = ns ? uts_ns_get(ns->uts) : NULL;

	if (ns)
		nsproxy_put(ns);
	return uts;
}

/* Index 0: nodename, 1: domainname. */
static int show_uts(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct uts_ns *uts = my_uts();

	if (!uts)
		return -ESRCH;
	mutex_lock(&uts->lock);
	textbuf_printf(out, "%s\n", c->entry->index ? uts->domainname : uts->nodename);
	mutex_unlock(&uts->lock);
	uts_ns_put(uts);
	return 0;
}

static ssize_t store_uts(const struct proc_ctx *c, struct file *f, const char *data, size_t len)
{
	struct uts_ns *uts;
	size_t n = strcspn(data, "\n");

	if (!cred_capable(f->cred, CAP_SYS_ADMIN))
		return -EPERM;
	uts = my_uts();
	if (!uts)
		return -ESRCH;
	n = MIN(n, sizeof(uts->nodename) - 1);
	mutex_lock(&uts->lock);
	snprintf(c->entry->index ? uts->domainname : uts->nodename, n + 1, "%s", data);
	mutex_unlock(&uts->lock);
	uts_ns_put(uts);
	return (ssize_t)len;
}

/* ---- random ---- */

static void put_uuid(struct textbuf *out, u8 id[16])
{
	id[6] = (id[6] & 0x0f) | 0x40; /* version 4 */
	id[8] = (id[8] & 0x3f) | 0x80;
	for (int i = 0; i < 16; i++)
		textbuf_printf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			       id[i]);
	textbuf_printf(out, "\n");
}

static int show_uuid(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	u8 id[16];
	int err = host_getrandom(id, sizeof(id), 0);

	if (!err)
		put_uuid(out, id);
	return err;
}

static int show_boot_id(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	u8 id[16];

	memcpy(id, proc_sb_of(c)->boot_id, sizeof(id));
	put_uuid(out, id);
	return 0;
}

/* ---- counted ---- */

static void count_group(struct thread_group *tg, void *arg)
{
	*(int *)arg += tg->task_count;
}

static int show_file_nr(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	int tasks = 0;

	/* open files are not counted as a whole: a few for each task */
	thread_group_for_each(c->kernel, count_group, &tasks);
	textbuf_printf(out, "%d\t0\t9223372036854775807\n", tasks * 4);
	return 0;
}

static int show_pty_nr(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "%d\n", tty_count(c->kernel));
	return 0;
}

static int show_threads_max(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "%lu\n", MIN(c->kernel->memory_limit / (PAGE_SIZE * 32), 4194304UL));
	return 0;
}

static int show_osrelease(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "%s\n", c->entry->index ? GUEST_VERSION : GUEST_OSRELEASE);
	return 0;
}

static int show_min_addr(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "65536\n");
	return 0;
}

static int show_shm_max(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "%lu\n", SHM_BYTES_MAX);
	return 0;
}

/* ---- promised memory ---- */

enum { OVERCOMMIT_MODE, OVERCOMMIT_RATIO, OVERCOMMIT_KBYTES };

static int show_overcommit(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	const struct promise *p = pgalloc_promise(c->kernel->memory);
	u64 value = c->entry->index == OVERCOMMIT_MODE	  ? p->mode
		    : c->entry->index == OVERCOMMIT_RATIO ? p->ratio
							  : p->kbytes;

	textbuf_printf(out, "%lu\n", value);
	return 0;
}

/* Linux's overcommit_policy_handler and its like: ratio and kbytes exclude each other. */
static ssize_t store_overcommit(const struct proc_ctx *c, struct file *f, const char *data,
				size_t len)
{
	struct promise *p = pgalloc_promise(c->kernel->memory);
	s64 value;

	if (proc_parse_value(data, len, &value) < 0 || value < 0)
		return -EINVAL;
	switch (c->entry->index) {
	case OVERCOMMIT_MODE:
		if (value > PROMISE_NEVER)
			return -EINVAL;
		p->mode = (u32)value;
		break;
	case OVERCOMMIT_RATIO:
		if (value > INT32_MAX)
			return -EINVAL;
		p->ratio = (u32)value;
		p->kbytes = 0;
		break;
	default: p->kbytes = (u64)value; p->ratio = 0;
	}
	return (ssize_t)len;
}

#define OVERCOMMIT(name_, index_)                                                                  \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | 0644, .show = show_overcommit,                  \
		.store = store_overcommit, .index = (index_)                                       \
	}

/* ---- tables ---- */

static const struct proc_entry random_entries[] = {
	PROC_FILE("boot_id", 0444, show_boot_id),
	PROC_TEXT("entropy_avail", "256\n"),
	PROC_TEXT("poolsize", "256\n"),
	PROC_TEXT("urandom_min_reseed_secs", "60\n"),
	PROC_FILE("uuid", 0444, show_uuid),
	PROC_TEXT("write_wakeup_threshold", "256\n"),
	{ 0 },
};

static const struct proc_entry pty_entries[] = {
	PROC_TEXT("max", STRINGIFY(TTY_PTY_LIMIT) "\n"),
	PROC_FILE("nr", 0444, show_pty_nr),
	PROC_TEXT("reserve", "0\n"),
	{ 0 },
};

static const struct proc_entry seccomp_entries[] = {
	PROC_TEXT("actions_avail",
		  "kill_process kill_thread trap errno user_notif trace log allow\n"),
	PROC_TEXT("actions_logged", "kill_process kill_thread trap errno user_notif trace log\n"),
	{ 0 },
};

#define UTS(name_, index_)                                                                         \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | 0644, .show = show_uts, .store = store_uts,     \
		.index = (index_)                                                                  \
	}

static const struct proc_entry kernel_entries[] = {
	PROC_TEXT("cap_last_cap", "40\n"),
	PROC_TEXT("core_pattern", "core\n"),
	PROC_TEXT("core_uses_pid", "0\n"),
	PROC_TEXT("ctrl-alt-del", "0\n"),
	PROC_TEXT("dmesg_restrict", "1\n"),
	UTS("domainname", 1),
	UTS("hostname", 0),
	PROC_TEXT("kptr_restrict", "1\n"),
	PROC_TEXT("msgmax", "8192\n"),
	PROC_TEXT("msgmnb", "16384\n"),
	PROC_TEXT("msgmni", "32000\n"),
	PROC_TEXT("ngroups_max", "65536\n"),
	PROC_FILE("osrelease", 0444, show_osrelease),
	PROC_TEXT("ostype", "Linux\n"),
	PROC_TEXT("overflowgid", "65534\n"),
	PROC_TEXT("overflowuid", "65534\n"),
	PROC_TEXT("panic", "0\n"),
	PROC_TEXT("perf_event_paranoid", "3\n"),
	PROC_TEXT("pid_max", "4194304\n"),
	PROC_TEXT("printk", "4\t4\t1\t7\n"),
	PROC_DIR("pty", pty_entries),
	PROC_DIR("random", random_entries),
	PROC_TEXT("randomize_va_space", "2\n"),
	PROC_TEXT("sched_child_runs_first", "0\n"),
	PROC_TEXT("sched_rr_timeslice_ms", "100\n"),
	PROC_TEXT("sched_rt_period_us", "1000000\n"),
	PROC_TEXT("sched_rt_runtime_us", "950000\n"),
	PROC_DIR("seccomp", seccomp_entries),
	PROC_TEXT("sem", "32000\t1024000000\t500\t32000\n"),
	PROC_FILE("shmall", 0444, show_shm_max),
	PROC_FILE("shmmax", 0444, show_shm_max),
	PROC_TEXT("shmmni", "4096\n"),
	PROC_TEXT("sysrq", "0\n"),
	PROC_TEXT("tainted", "0\n"),
	PROC_FILE("threads-max", 0444, show_threads_max),
	PROC_TEXT("unprivileged_bpf_disabled", "2\n"),
	{ .name = "version", .mode = S_IFREG | 0444, .show = show_osrelease, .index = 1 },
	{ 0 },
};

_Static_assert(PROMISE_ADMIN_RESERVE == 8192UL << 10, "admin_reserve_kbytes below");
_Static_assert(PROMISE_USER_RESERVE == 131072UL << 10, "user_reserve_kbytes below");

static const struct proc_entry vm_entries[] = {
	PROC_TEXT("admin_reserve_kbytes", "8192\n"),
	PROC_TEXT("dirty_background_ratio", "10\n"),
	PROC_TEXT("dirty_ratio", "20\n"),
	PROC_TEXT("drop_caches", "0\n"),
	PROC_TEXT("max_map_count", "65530\n"),
	PROC_TEXT("min_free_kbytes", "67584\n"),
	PROC_FILE("mmap_min_addr", 0444, show_min_addr),
	PROC_TEXT("nr_hugepages", "0\n"),
	PROC_TEXT("oom_kill_allocating_task", "0\n"),
	OVERCOMMIT("overcommit_kbytes", OVERCOMMIT_KBYTES),
	OVERCOMMIT("overcommit_memory", OVERCOMMIT_MODE),
	OVERCOMMIT("overcommit_ratio", OVERCOMMIT_RATIO),
	PROC_TEXT("panic_on_oom", "0\n"),
	PROC_TEXT("swappiness", "60\n"),
	PROC_TEXT("unprivileged_userfaultfd", "0\n"),
	PROC_TEXT("user_reserve_kbytes", "131072\n"),
	PROC_TEXT("vfs_cache_pressure", "100\n"),
	{ 0 },
};

static const struct proc_entry inotify_entries[] = {
	PROC_TEXT("max_queued_events", "16384\n"),
	PROC_TEXT("max_user_instances", "128\n"),
	PROC_TEXT("max_user_watches", "65536\n"),
	{ 0 },
};

static const struct proc_entry epoll_entries[] = {
	PROC_TEXT("max_user_watches", "1048576\n"),
	{ 0 },
};

static const struct proc_entry mqueue_entries[] = {
	PROC_TEXT("msg_default", "10\n"),	PROC_TEXT("msg_max", "10\n"),
	PROC_TEXT("msgsize_default", "8192\n"), PROC_TEXT("msgsize_max", "8192\n"),
	PROC_TEXT("queues_max", "256\n"),	{ 0 },
};

static const struct proc_entry fs_entries[] = {
	PROC_TEXT("aio-max-nr", "65536\n"),
	PROC_TEXT("aio-nr", "0\n"),
	PROC_TEXT("dentry-state", "0\t0\t45\t0\t0\t0\n"),
	PROC_DIR("epoll", epoll_entries),
	PROC_TEXT("file-max", "9223372036854775807\n"),
	PROC_FILE("file-nr", 0444, show_file_nr),
	PROC_TEXT("inode-nr", "0\t0\n"),
	PROC_TEXT("inode-state", "0\t0\t0\t0\t0\t0\t0\n"),
	PROC_DIR("inotify", inotify_entries),
	PROC_TEXT("lease-break-time", "45\n"),
	PROC_TEXT("leases-enable", "1\n"),
	PROC_TEXT("mount-max", "100000\n"),
	PROC_DIR("mqueue", mqueue_entries),
	PROC_TEXT("nr_open", "1048576\n"),
	PROC_TEXT("overflowgid", "65534\n"),
	PROC_TEXT("overflowuid", "65534\n"),
	PROC_TEXT("pipe-max-size", "1048576\n"),
	PROC_TEXT("pipe-user-pages-hard", "0\n"),
	PROC_TEXT("pipe-user-pages-soft", "16384\n"),
	PROC_TEXT("protected_fifos", "0\n"),
	PROC_TEXT("protected_hardlinks", "0\n"),
	PROC_TEXT("protected_regular", "0\n"),
	PROC_TEXT("protected_symlinks", "0\n"),
	PROC_TEXT("suid_dumpable", "0\n"),
	{ 0 },
};

static const struct proc_entry core_entries[] = {
	PROC_TEXT("netdev_max_backlog", "1000\n"), PROC_TEXT("optmem_max", "131072\n"),
	PROC_TEXT("rmem_default", "212992\n"),	   PROC_TEXT("rmem_max", "212992\n"),
	PROC_TEXT("somaxconn", "4096\n"),	   PROC_TEXT("wmem_default", "212992\n"),
	PROC_TEXT("wmem_max", "212992\n"),	   { 0 },
};

static const struct proc_entry ipv4_entries[] = {
	PROC_TEXT("icmp_echo_ignore_all", "0\n"),
	PROC_TEXT("ip_default_ttl", "64\n"),
	PROC_TEXT("ip_forward", "0\n"),
	PROC_TEXT("ip_local_port_range", "32768\t60999\n"),
	PROC_TEXT("ip_local_reserved_ports", "\n"),
	PROC_TEXT("ip_unprivileged_port_start", "1024\n"),
	PROC_TEXT("ping_group_range", "1\t0\n"),
	PROC_TEXT("tcp_available_congestion_control", "reno cubic\n"),
	PROC_TEXT("tcp_congestion_control", "cubic\n"),
	PROC_TEXT("tcp_fastopen", "0\n"),
	PROC_TEXT("tcp_fin_timeout", "60\n"),
	PROC_TEXT("tcp_keepalive_intvl", "75\n"),
	PROC_TEXT("tcp_keepalive_probes", "9\n"),
	PROC_TEXT("tcp_keepalive_time", "7200\n"),
	PROC_TEXT("tcp_max_syn_backlog", "4096\n"),
	PROC_TEXT("tcp_mem", "95073\t126766\t190146\n"),
	PROC_TEXT("tcp_rmem", "4096\t131072\t6291456\n"),
	PROC_TEXT("tcp_sack", "1\n"),
	PROC_TEXT("tcp_syncookies", "1\n"),
	PROC_TEXT("tcp_timestamps", "1\n"),
	PROC_TEXT("tcp_tw_reuse", "2\n"),
	PROC_TEXT("tcp_window_scaling", "1\n"),
	PROC_TEXT("tcp_wmem", "4096\t16384\t4194304\n"),
	{ 0 },
};

static const struct proc_entry ipv6_conf_entries[] = {
	PROC_TEXT("accept_ra", "1\n"),
	PROC_TEXT("disable_ipv6", "0\n"),
	PROC_TEXT("forwarding", "0\n"),
	{ 0 },
};

static const struct proc_entry ipv6_confs[] = {
	PROC_DIR("all", ipv6_conf_entries),
	PROC_DIR("default", ipv6_conf_entries),
	PROC_DIR("lo", ipv6_conf_entries),
	{ 0 },
};

static const struct proc_entry ipv6_entries[] = {
	PROC_TEXT("bindv6only", "0\n"),
	PROC_DIR("conf", ipv6_confs),
	{ 0 },
};

static const struct proc_entry net_unix_entries[] = {
	PROC_TEXT("max_dgram_qlen", "10\n"),
	{ 0 },
};

static const struct proc_entry net_entries[] = {
	PROC_DIR("core", core_entries),
	PROC_DIR("ipv4", ipv4_entries),
	PROC_DIR("ipv6", ipv6_entries),
	PROC_DIR("unix", net_unix_entries),
	{ 0 },
};

static const struct proc_entry tty_entries[] = {
	PROC_TEXT("ldisc_autoload", "0\n"),
	PROC_TEXT("legacy_tiocsti", "0\n"),
	{ 0 },
};

static const struct proc_entry dev_entries[] = {
	PROC_DIR("tty", tty_entries),
	{ 0 },
};

static const struct proc_entry user_entries[] = {
	PROC_TEXT("max_inotify_instances", "128\n"), PROC_TEXT("max_inotify_watches", "65536\n"),
	PROC_TEXT("max_mnt_namespaces", "63508\n"),  PROC_TEXT("max_pid_namespaces", "0\n"),
	PROC_TEXT("max_user_namespaces", "0\n"),     { 0 },
};

const struct proc_entry proc_sys_entries[] = {
	PROC_DIR("dev", dev_entries),
	PROC_DIR("fs", fs_entries),
	PROC_DIR("kernel", kernel_entries),
	PROC_DIR("net", net_entries),
	PROC_DIR("user", user_entries),
	PROC_DIR("vm", vm_entries),
	{ 0 },
};
