/* A small /sys: processors, one memory node, the loopback device, and the folders that programs
 * look for. */
#include "sentry/proc/internal.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const struct proc_entry empty[] = { { 0 } };

/* ---- processors ---- */

static int show_cpu_list(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	proc_put_mask_list(out, c->kernel->cpu_mask, proc_cpu_bits(c->kernel));
	textbuf_printf(out, "\n");
	return 0;
}

static int show_kernel_max(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	textbuf_printf(out, "%d\n", proc_cpu_bits(c->kernel) - 1);
	return 0;
}

/* Every processor is a core of its own. Index 0: its number; 1, 2: as mask, as list. */
static int show_topology(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	u64 mask[16] = { 0 };
	int bits = proc_cpu_bits(c->kernel);
	const u64 *which = mask;

	if (c->entry->index >= 3)
		which = c->kernel->cpu_mask; /* the package: all */
	mask[c->number / 64] |= 1ULL << (c->number % 64);
	switch (c->entry->index) {
	case 0: textbuf_printf(out, "%lu\n", c->number); return 0;
	case 1:
	case 3: proc_put_mask(out, which, bits); break;
	default: proc_put_mask_list(out, which, bits);
	}
	textbuf_printf(out, "\n");
	return 0;
}

#define TOPOLOGY(name_, index_)                                                                    \
	{                                                                                          \
		.name = (name_), .mode = S_IFREG | 0444, .show = show_topology, .index = (index_)  \
	}

static const struct proc_entry topology_entries[] = {
	TOPOLOGY("core_cpus", 1),
	TOPOLOGY("core_cpus_list", 2),
	TOPOLOGY("core_id", 0),
	TOPOLOGY("core_siblings", 3),
	TOPOLOGY("core_siblings_list", 4),
	TOPOLOGY("package_cpus", 3),
	TOPOLOGY("package_cpus_list", 4),
	PROC_TEXT("physical_package_id", "0\n"),
	TOPOLOGY("thread_siblings", 1),
	TOPOLOGY("thread_siblings_list", 2),
	{ 0 },
};

static const struct proc_entry cpu_entries[] = {
	PROC_TEXT("online", "1\n"),
	PROC_DIR("topology", topology_entries),
	{ 0 },
};

static const struct proc_entry cpu_dir = PROC_DIR("", cpu_entries);

static int cpu_lookup(struct inode *dir, const struct proc_ctx *c, const char *name,
		      struct inode **ret)
{
	struct proc_ctx of = *c;
	s64 n = strncmp(name, "cpu", 3) ? -1 : proc_parse_number(name + 3, 1024);

	if (n < 0 || !proc_cpu_present(c->kernel, (int)n))
		return -ENOENT;
	of.number = (u64)n;
	return proc_inode_new(&of, &cpu_dir, ret);
}

static int cpu_list(const struct proc_ctx *c, struct dir_emit *e, u64 *pos)
{
	for (u64 n = *pos - PROC_POS_DYNAMIC; n < (u64)proc_cpu_bits(c->kernel); n++) {
		struct proc_ctx of = *c;
		char name[16];
		int len = snprintf(name, sizeof(name), "cpu%d", (int)n);

		if (!proc_cpu_present(c->kernel, (int)n))
			continue;
		of.number = n;
		if (!e->emit(e, name, (size_t)len, proc_ino(&of, &cpu_dir), DT_DIR,
			     PROC_POS_DYNAMIC + n + 1))
			return 0;
		*pos = PROC_POS_DYNAMIC + n + 1;
	}
	return 0;
}

static const struct proc_entry cpu_system_entries[] = {
	PROC_TEXT("isolated", "\n"),
	PROC_FILE("kernel_max", 0444, show_kernel_max),
	PROC_TEXT("offline", "\n"),
	PROC_FILE("online", 0444, show_cpu_list),
	PROC_FILE("possible", 0444, show_cpu_list),
	PROC_FILE("present", 0444, show_cpu_list),
	{ 0 },
};

/* ---- the memory node ---- */

static int show_node_meminfo(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	struct pgalloc_usage u;
	u64 total = c->kernel->memory_limit, used;

	pgalloc_usage(c->kernel->memory, &u);
	used = MIN(MIN(u.committed, u.reserved), total);
	textbuf_printf(out,
		       "Node 0 MemTotal:       %8lu kB\nNode 0 MemFree:        %8lu kB\n"
		       "Node 0 MemUsed:        %8lu kB\n",
		       total >> 10, (total - used) >> 10, used >> 10);
	return 0;
}

static int show_cpu_map(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	proc_put_mask(out, c->kernel->cpu_mask, proc_cpu_bits(c->kernel));
	textbuf_printf(out, "\n");
	return 0;
}

static const struct proc_entry node0_entries[] = {
	PROC_FILE("cpulist", 0444, show_cpu_list),
	PROC_FILE("cpumap", 0444, show_cpu_map),
	PROC_TEXT("distance", "10\n"),
	PROC_FILE("meminfo", 0444, show_node_meminfo),
	{ 0 },
};

static const struct proc_entry node_entries[] = {
	PROC_TEXT("has_cpu", "0\n"),
	PROC_TEXT("has_memory", "0\n"),
	PROC_TEXT("has_normal_memory", "0\n"),
	PROC_DIR("node0", node0_entries),
	PROC_TEXT("online", "0\n"),
	PROC_TEXT("possible", "0\n"),
	{ 0 },
};

static const struct proc_entry system_entries[] = {
	{ .name = "cpu",
	  .mode = S_IFDIR | 0755,
	  .children = cpu_system_entries,
	  .lookup = cpu_lookup,
	  .list = cpu_list },
	PROC_DIR("node", node_entries),
	{ 0 },
};

/* ---- the loopback device ---- */

static const struct proc_entry lo_statistics[] = {
	PROC_TEXT("rx_bytes", "0\n"),
	PROC_TEXT("rx_dropped", "0\n"),
	PROC_TEXT("rx_errors", "0\n"),
	PROC_TEXT("rx_packets", "0\n"),
	PROC_TEXT("tx_bytes", "0\n"),
	PROC_TEXT("tx_dropped", "0\n"),
	PROC_TEXT("tx_errors", "0\n"),
	PROC_TEXT("tx_packets", "0\n"),
	{ 0 },
};

static const struct proc_entry lo_entries[] = {
	PROC_TEXT("address", "00:00:00:00:00:00\n"),
	PROC_TEXT("carrier", "1\n"),
	PROC_TEXT("flags", "0x9\n"),
	PROC_TEXT("ifindex", "1\n"),
	PROC_TEXT("mtu", "65536\n"),
	PROC_TEXT("operstate", "unknown\n"),
	PROC_DIR("statistics", lo_statistics),
	PROC_TEXT("type", "772\n"),
	{ 0 },
};

static const struct proc_entry virtual_net_entries[] = {
	PROC_DIR("lo", lo_entries),
	{ 0 },
};

static const struct proc_entry virtual_entries[] = {
	PROC_DIR("net", virtual_net_entries),
	{ 0 },
};

static const struct proc_entry class_net_entries[] = {
	PROC_LINK("lo", "../../devices/virtual/net/lo"),
	{ 0 },
};

static const struct proc_entry class_entries[] = {
	PROC_DIR("net", class_net_entries),
	{ 0 },
};

/* ---- the rest ---- */

static const struct proc_entry devices_entries[] = {
	PROC_DIR("system", system_entries),
	PROC_DIR("virtual", virtual_entries),
	{ 0 },
};

static const struct proc_entry fs_entries[] = {
	PROC_DIR("cgroup", empty),
	{ 0 },
};

static const struct proc_entry thp_entries[] = {
	PROC_TEXT("defrag", "always defer defer+madvise [madvise] never\n"),
	PROC_TEXT("enabled", "always [madvise] never\n"),
	PROC_TEXT("hpage_pmd_size", "2097152\n"),
	PROC_TEXT("shmem_enabled", "always within_size advise [never] deny force\n"),
	{ 0 },
};

static const struct proc_entry mm_entries[] = {
	PROC_DIR("hugepages", empty),
	PROC_DIR("transparent_hugepage", thp_entries),
	{ 0 },
};

static const struct proc_entry dev_entries[] = {
	PROC_DIR("block", empty),
	PROC_DIR("char", empty),
	{ 0 },
};

static const struct proc_entry kernel_entries[] = {
	PROC_DIR("mm", mm_entries),
	{ 0 },
};

const struct proc_entry sysfs_root_entries[] = {
	PROC_DIR("block", empty),
	PROC_DIR("bus", empty),
	PROC_DIR("class", class_entries),
	PROC_DIR("dev", dev_entries),
	PROC_DIR("devices", devices_entries),
	PROC_DIR("firmware", empty),
	PROC_DIR("fs", fs_entries),
	PROC_DIR("kernel", kernel_entries),
	PROC_DIR("module", empty),
	{ 0 },
};
