/*
 * sentry/kernel/config.h: what a sandbox run was asked to be.
 *
 * Filled by cli/ (options, configuration file), read by boot. Strings are
 * borrowed from the command line or owned by the cli for the whole run.
 */
#ifndef MINISENTRY_SENTRY_KERNEL_CONFIG_H
#define MINISENTRY_SENTRY_KERNEL_CONFIG_H

#include "base/log.h"
#include "platform/platform.h"

enum overlay_kind { OVERLAY_MEMORY, OVERLAY_NONE, OVERLAY_SELF, OVERLAY_DIR };
enum mount_kind { RUN_MOUNT_RO, RUN_MOUNT_RW, RUN_MOUNT_TMPFS };

#define RUN_MAX_MOUNTS 64
#define RUN_MAX_PASS_FDS 64

struct run_mount {
	enum mount_kind kind;
	const char *source;	 /* host path; NULL for tmpfs */
	const char *destination; /* guest path, absolute */
	u64 size;		 /* tmpfs: bytes, 0 = half of the memory */
	/* Filled by the host set-up, before confinement. */
	int source_fd;
	bool source_is_dir;
	int parent_fd; /* of a source that is no folder: hostfs opens it by name from here */
};

struct run_config {
	const char *rootfs; /* NULL: a view of the host's / */
	enum overlay_kind overlay;
	const char *overlay_dir; /* OVERLAY_DIR */
	struct run_mount mounts[RUN_MAX_MOUNTS];
	int mount_count;
	const char *chdir; /* guest path; NULL: the caller's folder, or / */
	const char **env;  /* NULL-terminated: the guest's whole environment */
	const char *hostname;
	u32 uid, gid; /* of the first process, inside */
	u64 memory;   /* bytes; 0: the host's */
	int cpus;     /* 0: the host's affinity mask */
	enum platform_kind platform;
	bool spin;
	bool pairs;
	bool patch;
	bool reuse;			/* of stubs and their threads */
	bool late;			/* mappings that nobody waits for */
	bool fork_wait;			/* for a child to be gone, see mm/fork_watch.c */
	bool fork_reuse;		/* of stubs by the next child, see mm/legacy.c */
	int pass_fds[RUN_MAX_PASS_FDS]; /* host fd = guest fd */
	int pass_fd_count;
	bool strace;
	const char *strace_filter;
	const char *strace_file;
	enum log_level log;
	bool no_namespaces; /* for tests and doctor: do without */
	bool no_landlock;
	char **argv; /* the program and its arguments, NULL-terminated */
	/* Filled by the launcher. */
	char *caller_cwd; /* host's absolute path or NULL */
	u32 host_uid, host_gid;
	int stats_fd; /* the sentry writes its figures there on SIGURG; -1: nobody asks */
};

#endif
