/*
 * sentry/confine/confine.h: what the sentry gives up before a guest runs.
 *
 * Layers, each used where the host grants it, none of them required but the
 * last three:
 *	namespaces	user, mount, PID, network, IPC, UTS	namespaces.c
 *	root view	a tmpfs with bind mounts, pivot_root	rootview.c
 *	Landlock	path allowlist				landlock.c
 *	capabilities	all dropped (libcap), no_new_privs	caps.c
 *	seccomp		allowlist (built by libseccomp), kill	filter.c
 *
 * Order: clone into namespaces -> network namespace, and at the same time open
 * host files and root view -> landlock -> make the kernel -> caps -> filter ->
 * start threads.
 */
#ifndef MINISENTRY_SENTRY_CONFINE_CONFINE_H
#define MINISENTRY_SENTRY_CONFINE_CONFINE_H

#include "sentry/kernel/config.h"

/* Which layers are active; for doctor and the log. A reason is "" when active. */
struct confine_state {
	bool user_ns, mount_ns, pid_ns, net_ns, ipc_ns, root_view, landlock, seccomp, caps_dropped;
	int landlock_abi;
	char ns_reason[160], root_view_reason[160], landlock_reason[160];
};

/* ---- namespaces.c ---- */

/*
 * Forks the sentry into as many new namespaces as the host grants, falling
 * back to fewer, at last to a plain fork. In the parent returns the child's pid, in
 * the child 0. -errno when even fork fails. Single-threaded callers only.
 */
pid_t confine_fork(bool no_namespaces, struct confine_state *ret);
/*
 * The calling thread's network namespace, and that of all that it starts from here on: of its own,
 * because the kernel takes longer to make it than all others. 0 or -errno.
 */
int confine_network(struct confine_state *state);

/* ---- rootview.c ---- */

/* Paths of the host's / that guests see by default. NULL-terminated. */
extern const char *const confine_visible_paths[];
/*
 * In a mount namespace: builds a tmpfs holding bind mounts of the visible paths
 * (or of rootfs alone) and of the caller's folder in /root, a procfs of the new PID
 * namespace in /proc, and pivots into it. CONFINE_VIEW is then the guest's root. 0, or -errno with
 * state->root_view_reason; then "/" is unchanged.
 */
#define CONFINE_VIEW "/root"
int confine_root_view(const struct run_config *config, struct confine_state *state);
/*
 * Takes the host's root away, which no name leads to any more. Of its own, for the kernel waits for
 * other CPUs; before anything is confined. 0 or -errno.
 */
int confine_leave_host_root(void);
/* Without a root view: which entries of the host's / must look empty. Allocated, NULL-terminated.
 */
char **confine_hidden_paths(const struct run_config *config);
/* True when the caller's folder may be shown (not an ancestor of $HOME, not /). */
bool confine_cwd_visible(const struct run_config *config);

/* ---- landlock.c ---- */

/* A path that stays reachable: an open descriptor, and whether it may be written beneath. */
struct confine_path {
	int fd;
	bool write;
};
int confine_landlock(const struct confine_path *paths, size_t count, struct confine_state *state);
/* The ABI version of the running kernel, or -errno. */
int confine_landlock_abi(void);

/* ---- caps.c ---- */

/* no_new_privs, bounding set and all capability sets emptied. 0 or -errno. */
int confine_drop_caps(struct confine_state *state);

/* ---- filter.c, filter_table.c ---- */

struct confine_rule {
	int nr;
	const char *name;
	const char *why;
};
/* The allowlist as a table, for docs, doctor and the audit. Returns the count. */
size_t confine_filter_rules(const struct confine_rule **ret);
/* Loads it (TSYNC: every thread). kind decides whether ptrace is in it. */
int confine_load_filter(enum platform_kind kind, struct confine_state *state);

#endif
