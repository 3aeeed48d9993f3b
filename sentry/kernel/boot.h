/*
 * sentry/kernel/boot.h: from a run configuration to a running guest, and its end.
 *
 * sentry_run() is the life of the sentry process: it prepares what needs the
 * host's full interface, builds the kernel and the guest's mounts, confines
 * itself, starts its threads, loads the first program, forwards signals until
 * that program ends, and returns its exit code.
 */
#ifndef MINISENTRY_SENTRY_KERNEL_BOOT_H
#define MINISENTRY_SENTRY_KERNEL_BOOT_H

#include "sentry/confine/confine.h"
#include "sentry/kernel/config.h"
#include "sentry/kernel/kernel.h"

/* Exit codes of `minisentry run` besides the guest's own. */
enum { EXIT_OURS = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127, EXIT_SIGNAL_BASE = 128 };

/* What was collected from the host before confinement. */
struct boot_host {
	int root_fd;	/* the guest root's host directory */
	int proc_fd;	/* the host's /proc, or a new one of our PID namespace; for the platform */
	int overlay_fd; /* OVERLAY_SELF, OVERLAY_DIR: an unlinked file; else -1 */
	int overlay_read_fd; /* the same, read-only: Landlock keeps us from it later */
	int large_fd;	     /* a memory file of huge pages, or -1 */
	int large_read_fd;
	int cpuinfo_fd;
	u64 memory;    /* bytes of the host */
	int tty_fd;    /* the terminal on stdin, or -1 */
	char **hidden; /* NULL with a root view */
	int cwd_fd;    /* the caller's folder where there is no root view, else -1 */
};

/* Runs in the forked sentry process. The exit code for the launcher; prints errors. */
int sentry_run(struct run_config *config, struct confine_state *state);

/* boot_host.c: opens and reads everything. 0 or -errno after a message to stderr. */
int boot_host_collect(struct run_config *config, struct confine_state *state,
		      struct boot_host *ret);
/* The trees that stay reachable, for Landlock; paths has room for RUN_MAX_MOUNTS + 4. */
size_t boot_host_paths(const struct run_config *config, const struct boot_host *host,
		       struct confine_path *paths);

/* Where pages of mapped host files come from. Lives for ever. */
const struct vfs_memory_ops *boot_cache_memory(struct kernel *k);
/* boot_mounts.c: the guest's mount namespace. store: of the root overlay's upper layer. */
int boot_mounts(struct kernel *k, const struct run_config *config, const struct boot_host *host,
		struct pgalloc *store, const struct cred *root_cred, struct mount_ns **ret);

/* Prints "minisentry: what: reason" to stderr, with a hint line where there is one. Returns err. */
int boot_error(int err, const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
