/* What boot needs of the host, collected before the sentry gives up its rights. */
#include "sentry/kernel/boot.h"
#include "base/host_mem.h"
#include "base/log.h"
#include "sentry/tty/host_tty.h"
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

int boot_error(int err, const char *hint, const char *fmt, ...)
{
	char text[768];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	n = strlen(text);
	if (err)
		snprintf(text + n, sizeof(text) - n, ": %s", strerror(-err));
	fprintf(stderr, "minisentry: %s\n", text);
	if (hint)
		fprintf(stderr, "  try: %s\n", hint);
	return err ? err : -EINVAL;
}

/*
 * The caller's limits are for its own files and memory. Ours are a few big sparse mappings of
 * memory files and a few descriptors for each guest process, so each limit is raised as far as it
 * goes, and one that is still below what an empty guest takes is reported by name.
 */
static const struct host_limit {
	int resource;
	u64 least;
	const char *name;
} host_limits[] = {
	{ RLIMIT_NOFILE, 128, "open files (ulimit -n)" },
	{ RLIMIT_FSIZE, RLIM_INFINITY, "the size of files (ulimit -f)" },
	{ RLIMIT_AS, 5UL << 30, "address space (ulimit -v)" },
};

static int raise_limits(void)
{
	const struct rlimit no_core = { 0, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(host_limits); i++) {
		const struct host_limit *l = &host_limits[i];
		struct rlimit lim;

		if (getrlimit(l->resource, &lim) < 0)
			continue;
		if (lim.rlim_cur < lim.rlim_max) {
			lim.rlim_cur = lim.rlim_max;
			setrlimit(l->resource, &lim);
		}
		if (lim.rlim_cur < l->least)
			return boot_error(0, "raising it or making it unlimited",
					  "the caller's limit on %s is too low: %llu", l->name,
					  (unsigned long long)lim.rlim_cur);
	}
	setrlimit(RLIMIT_CORE, &no_core);
	return 0;
}

/* Folder that holds a file source; its path is absolute and resolved. */
static int open_parent(const char *source)
{
	char dir[PATH_MAX];
	char *slash;

	if (strlen(source) >= sizeof(dir))
		return -1;
	strcpy(dir, source);
	slash = strrchr(dir, '/');
	slash[slash == dir] = '\0';
	return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int open_sources(struct run_config *config)
{
	for (int i = 0; i < config->mount_count; i++) {
		struct run_mount *m = &config->mounts[i];
		struct stat st;

		m->source_fd = -1;
		if (!m->source)
			continue;
		m->source_fd = open(m->source, O_PATH | O_CLOEXEC);
		if (m->source_fd < 0 || fstat(m->source_fd, &st) < 0)
			return boot_error(-errno, "check the path given to --ro or --rw",
					  "cannot open %s", m->source);
		m->source_is_dir = S_ISDIR(st.st_mode);
		m->parent_fd = m->source_is_dir ? -1 : open_parent(m->source);
		if (!m->source_is_dir && (!S_ISREG(st.st_mode) || m->parent_fd < 0))
			return boot_error(0, "a folder or a regular file",
					  "%s cannot be shown in the guest", m->source);
	}
	return 0;
}

static int open_overlay_store(const struct run_config *config, struct boot_host *host)
{
	const char *dir = config->overlay == OVERLAY_DIR ? config->overlay_dir
			  : config->rootfs		 ? config->rootfs
							 : "/var/tmp";

	host->overlay_fd = -1;
	if (config->overlay != OVERLAY_SELF && config->overlay != OVERLAY_DIR)
		return 0;
	host->overlay_fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (host->overlay_fd < 0)
		return boot_error(
			-errno,
			"--overlay=dir=PATH with a folder that you may write, or --overlay=memory",
			"cannot make the overlay's file in %s", dir);
	host->overlay_read_fd = host_mem_open_read_only(host->overlay_fd);
	if (host->overlay_read_fd < 0)
		return boot_error(host->overlay_read_fd, "--overlay=memory",
				  "cannot open the overlay's file in %s to read", dir);
	return 0;
}

/* Only a faster way to keep files: whatever is missing, all memory is in small pages then. */
static void open_large_memory(const struct confine_state *state, struct boot_host *host)
{
	int fd = state->mount_ns ? host_mem_create_large() : -EPERM;

	host->large_read_fd = fd < 0 ? fd : host_mem_open_read_only(fd);
	if (fd >= 0 && host->large_read_fd < 0)
		host_mem_close(fd);
	host->large_fd = host->large_read_fd < 0 ? -1 : fd;
	if (host->large_fd < 0)
		log_info("no memory file of huge pages: %s", strerror(-host->large_read_fd));
}

static int open_root(const struct run_config *config, struct confine_state *state,
		     struct boot_host *host)
{
	const char *root = config->rootfs ? config->rootfs : "/";

	host->hidden = NULL;
	host->cwd_fd = -1;
	if (config->overlay == OVERLAY_NONE) {
		/* Writes go to the host's own folder, so the read-only view cannot serve. */
		snprintf(state->root_view_reason, sizeof(state->root_view_reason),
			 "--overlay=none shares the root itself");
	} else if (confine_root_view(config, state) == 0) {
		root = CONFINE_VIEW;
	}
	host->proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	host->root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (host->root_fd < 0)
		return boot_error(-errno, "--rootfs takes a folder that holds a root file system",
				  "cannot open root folder %s", root);
	if (!state->root_view && !config->rootfs && config->overlay != OVERLAY_NONE) {
		host->hidden = confine_hidden_paths(config);
		if (!host->hidden)
			return -ENOMEM;
		if (confine_cwd_visible(config))
			host->cwd_fd = open(config->caller_cwd, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	return 0;
}

int boot_host_collect(struct run_config *config, struct confine_state *state, struct boot_host *ret)
{
	struct boot_host host = { .root_fd = -1, .overlay_fd = -1, .tty_fd = -1, .cwd_fd = -1 };
	struct sysinfo si;
	int err;

	err = raise_limits();
	if (err < 0)
		return err;
	host.cpuinfo_fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	if (sysinfo(&si) < 0)
		return boot_error(-errno, NULL, "sysinfo");
	host.memory = (u64)si.totalram * si.mem_unit;
	if (isatty(0))
		host.tty_fd = host_tty_reopen(0); /* while /proc is still the host's */
	err = open_sources(config);
	if (err == 0)
		err = open_overlay_store(config, &host);
	open_large_memory(state, &host);
	if (err == 0)
		err = open_root(config, state, &host);
	if (err < 0)
		return err;
	*ret = host;
	return 0;
}

size_t boot_host_paths(const struct run_config *config, const struct boot_host *host,
		       struct confine_path *paths)
{
	size_t n = 0;

	paths[n++] = (struct confine_path){ host->root_fd, config->overlay == OVERLAY_NONE };
	if (host->proc_fd >= 0)
		paths[n++] = (struct confine_path){ host->proc_fd, false };
	if (host->cwd_fd >= 0)
		paths[n++] = (struct confine_path){ host->cwd_fd, false };
	for (int i = 0; i < config->mount_count; i++)
		if (config->mounts[i].source_fd >= 0)
			paths[n++] =
				(struct confine_path){ config->mounts[i].source_fd,
						       config->mounts[i].kind == RUN_MOUNT_RW };
	return n;
}
