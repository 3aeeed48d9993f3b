/* The table of /proc itself, and its system-wide files. */
#include "pgalloc/promise.h"
#include "sentry/proc/internal.h"
#include <stdio.h>
#include <string.h>

static ssize_t self_link(const struct proc_ctx *c, char *dst, size_t size)
{
	int n;

	if (!current_task)
		return -ENOENT;
	if (c->entry->index)
		n = snprintf(dst, size, "%d/task/%d", current_task->tg->tgid, current_task->tid);
	else
		n = snprintf(dst, size, "%d", current_task->tg->tgid);
	return n;
}

static int show_uptime(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	u64 up = proc_uptime_ns(c->kernel), user, system, idle, all;

	proc_total_cpu(c, &user, &system);
	all = up * (u64)c->kernel->cpu_count;
	idle = all > user + system ? all - user - system : 0;
	textbuf_printf(out, "%lu.%02lu %lu.%02lu\n", up / 1000000000, up % 1000000000 / 10000000,
		       idle / 1000000000, idle % 1000000000 / 10000000);
	return 0;
}

static int show_version(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "Linux version %s (minisentry@minisentry) (cc) %s\n", GUEST_OSRELEASE,
		       GUEST_VERSION);
	return 0;
}

static int show_interrupts(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "%*s", 4, "");
	for (int i = 0; i < proc_cpu_bits(c->kernel); i++) {
		if (proc_cpu_present(c->kernel, i))
			textbuf_printf(out, "       CPU%d", i);
	}
	textbuf_printf(out, "\n");
	return 0;
}

int proc_show_meminfo(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct promise *promise = pgalloc_promise(c->kernel->memory);
	struct pgalloc_usage u;
	u64 total = c->kernel->memory_limit, used, mem_free, cache, shmem, anon;

	pgalloc_usage(c->kernel->memory, &u);
	used = MIN(MIN(u.committed, u.reserved), total);
	mem_free = total - used;
	/* What they have reserved: what of it is committed is told of all together only. */
	cache = MIN(pgalloc_acct_usage(c->kernel->memory, MEMORY_OF_CACHE), used);
	shmem = MIN(pgalloc_acct_usage(c->kernel->memory, MEMORY_OF_TMPFS), used - cache);
	anon = used - cache - shmem;
	const struct {
		const char *name;
		u64 bytes;
	} rows[] = {
		{ "MemTotal", total },
		{ "MemFree", mem_free },
		{ "MemAvailable", mem_free + cache },
		{ "Buffers", 0 },
		{ "Cached", cache + shmem },
		{ "SwapCached", 0 },
		{ "Active", used },
		{ "Inactive", 0 },
		{ "Active(anon)", anon + shmem },
		{ "Inactive(anon)", 0 },
		{ "Active(file)", cache },
		{ "Inactive(file)", 0 },
		{ "Unevictable", 0 },
		{ "Mlocked", 0 },
		{ "SwapTotal", 0 },
		{ "SwapFree", 0 },
		{ "Zswap", 0 },
		{ "Zswapped", 0 },
		{ "Dirty", 0 },
		{ "Writeback", 0 },
		{ "AnonPages", anon },
		{ "Mapped", 0 },
		{ "Shmem", shmem },
		{ "KReclaimable", 0 },
		{ "Slab", 0 },
		{ "SReclaimable", 0 },
		{ "SUnreclaim", 0 },
		{ "KernelStack", 0 },
		{ "PageTables", 0 },
		{ "SecPageTables", 0 },
		{ "NFS_Unstable", 0 },
		{ "Bounce", 0 },
		{ "WritebackTmp", 0 },
		{ "CommitLimit", promise_limit(promise) },
		{ "Committed_AS", promise->bytes },
		{ "VmallocTotal", 0x1fffffffffffULL << 2 },
		{ "VmallocUsed", 0 },
		{ "VmallocChunk", 0 },
		{ "Percpu", 0 },
		{ "HardwareCorrupted", 0 },
		{ "AnonHugePages", 0 },
		{ "ShmemHugePages", 0 },
		{ "ShmemPmdMapped", 0 },
		{ "FileHugePages", 0 },
		{ "FilePmdMapped", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int pad = 15 - (int)strlen(rows[i].name);

		textbuf_printf(out, "%s:%*s%8lu kB\n", rows[i].name, MAX(pad, 0), "",
			       rows[i].bytes >> 10);
	}
	textbuf_printf(
		out,
		"HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\n"
		"HugePages_Surp:        0\nHugepagesize:       2048 kB\n"
		"Hugetlb:               0 kB\nDirectMap4k:     %7lu kB\n",
		total >> 10);
	return 0;
}

int proc_show_vmstat(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	static const char *const zeros[] = {
		"nr_inactive_file",
		"nr_active_file",
		"nr_unevictable",
		"nr_mlock",
		"nr_mapped",
		"nr_file_pages",
		"nr_dirty",
		"nr_writeback",
		"nr_shmem",
		"nr_dirtied",
		"nr_written",
		"pgpgin",
		"pgpgout",
		"pswpin",
		"pswpout",
		"pgfault",
		"pgmajfault",
		"pgscan_kswapd",
		"pgscan_direct",
		"pgsteal_kswapd",
		"pgsteal_direct",
		"thp_fault_alloc",
		"thp_collapse_alloc",
	};
	struct pgalloc_usage u;
	u64 total = c->kernel->memory_limit, used;

	pgalloc_usage(c->kernel->memory, &u);
	used = MIN(MIN(u.committed, u.reserved), total);
	textbuf_printf(
		out,
		"nr_free_pages %lu\nnr_inactive_anon 0\nnr_active_anon %lu\nnr_anon_pages %lu\n",
		(total - used) / PAGE_SIZE, used / PAGE_SIZE, used / PAGE_SIZE);
	for (size_t i = 0; i < ARRAY_SIZE(zeros); i++)
		textbuf_printf(out, "%s 0\n", zeros[i]);
	textbuf_printf(out, "oom_kill %lu\n", atomic_load(&c->kernel->oom_kills));
	return 0;
}

const struct proc_entry proc_root_entries[] = {
	{ .name = "self", .mode = S_IFLNK | 0777, .link = self_link },
	{ .name = "thread-self", .mode = S_IFLNK | 0777, .link = self_link, .index = 1 },
	PROC_TEXT("buddyinfo", ""),
	PROC_TEXT("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"),
	PROC_TEXT("cmdline", "console=tty0 root=/dev/root rw\n"),
	PROC_FILE("cpuinfo", 0444, proc_show_cpuinfo),
	PROC_TEXT("devices",
		  "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n"
		  "128 ptm\n136 pts\n\nBlock devices:\n"),
	PROC_TEXT("diskstats", ""),
	PROC_TEXT("filesystems",
		  "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tpipefs\nnodev\tsockfs\n"
		  "nodev\tdevpts\nnodev\toverlay\nnodev\tdevtmpfs\nnodev\tmqueue\n"),
	PROC_FILE("interrupts", 0444, show_interrupts),
	PROC_TEXT("iomem", ""),
	PROC_FILE("loadavg", 0444, proc_show_loadavg),
	PROC_TEXT("locks", ""),
	PROC_FILE("meminfo", 0444, proc_show_meminfo),
	PROC_TEXT("modules", ""),
	PROC_LINK("mounts", "self/mounts"),
	PROC_LINK("net", "self/net"),
	PROC_TEXT("partitions", "major minor  #blocks  name\n\n"),
	PROC_TEXT("softirqs", ""),
	PROC_FILE("stat", 0444, proc_show_system_stat),
	PROC_TEXT("swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
	PROC_DIR("sys", proc_sys_entries),
	PROC_DIR("sysvipc", proc_sysvipc_entries),
	PROC_FILE("uptime", 0444, show_uptime),
	PROC_FILE("version", 0444, show_version),
	PROC_FILE("vmstat", 0444, proc_show_vmstat),
	{ 0 },
};
