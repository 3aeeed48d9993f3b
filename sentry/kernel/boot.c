/* The order of a sandbox's life; see boot.h and confine.h. */
#include "sentry/kernel/boot.h"
#include "base/host_sync.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "mm/text.h"
#include "base/safecopy.h"
#include "sentry/dev/dev.h"
#include "sentry/exec/exec.h"
#include "sentry/fd/fdtable.h"
#include "sentry/futex/futex.h"
#include "sentry/kernel/supervise.h"
#include "sentry/proc/procfs.h"
#include "sentry/tty/host_tty.h"
#include "sentry/tty/tty.h"
#include "tmpfs/tmpfs.h"
#include "vfs/hostfs.h"
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MALLOC_ARENAS 4
#define ALL_CAPS ((1ULL << 41) - 1)

static void explain(const char *line)
{
	fprintf(stderr, "minisentry: %s\n", line);
}

/* Everything that a run owns, in the order of its making. */
struct boot {
	struct run_config *config;
	struct confine_state *state;
	struct boot_host host;
	struct kernel kernel;
	struct pgalloc *disk_store; /* NULL: memory */
	const struct cred *root_cred, *user_cred;
	struct mount_ns *mounts;
	struct host_tty *tty;
	struct preparation {
		pthread_t thread;
		cpu_set_t cpus; /* that the process may use */
		bool started;
		_Atomic u32 collected; /* futex: 0, then 1 when host and memory are there */
		int error, kernel_error;
	} preparation;
};

static int make_memory(struct boot *b)
{
	struct kernel *k = &b->kernel;
	int err;

	k->memory_limit = b->config->memory ? b->config->memory : b->host.memory;
	err = pgalloc_new_memfd(0, k->memory_limit, &k->memory);
	if (err == 0 && b->host.overlay_fd >= 0)
		err = pgalloc_new(b->host.overlay_fd, true, 1, UINT64_MAX >> 1, &b->disk_store);
	if (err == 0 && b->disk_store)
		pgalloc_file(b->disk_store)->read_fd = b->host.overlay_read_fd;
	if (err == 0 && b->host.large_fd >= 0)
		err = pgalloc_add_large(k->memory, b->host.large_fd, b->disk_store ? 2 : 1);
	if (err == 0 && pgalloc_large(k->memory))
		pgalloc_file(pgalloc_large(k->memory))->read_fd = b->host.large_read_fd;
	if (err == 0)
		err = pgalloc_add_second(k->memory,
					 1 + !!b->disk_store + !!pgalloc_large(k->memory));
	if (err < 0)
		return boot_error(err, NULL, "cannot make the guest's memory file");
	return 0;
}

static int start_platform(struct boot *b)
{
	struct platform_config pc = { .kind = b->config->platform,
				      .spin = b->config->spin,
				      .pairs = b->config->pairs,
				      .patch = b->config->patch,
				      .reuse = b->config->reuse,
				      .late = b->config->late,
				      .explain = explain };
	int err;

	pc.files[pc.file_count++] = pgalloc_file(b->kernel.memory);
	if (b->disk_store)
		pc.files[pc.file_count++] = pgalloc_file(b->disk_store);
	if (pgalloc_large(b->kernel.memory))
		pc.files[pc.file_count++] = pgalloc_file(pgalloc_large(b->kernel.memory));
	pc.files[pc.file_count++] = pgalloc_file(pgalloc_second(b->kernel.memory));
	err = platform_new(&pc, &b->kernel.platform);
	if (err < 0)
		return boot_error(err, "`minisentry doctor`, or another --platform",
				  "cannot start platform %s", platform_name(b->config->platform));
	b->kernel.fork_wait = b->config->fork_wait;
	b->kernel.fork_reuse = b->config->fork_reuse;
	err = text_new(b->kernel.platform, b->kernel.memory, &b->kernel.text);
	if (err < 0)
		return boot_error(err, NULL, "cannot patch system calls");
	return 0;
}

static void count_cpus(struct kernel *k, int wanted)
{
	cpu_set_t set;
	int found = 0;

	if (sched_getaffinity(0, sizeof(set), &set) < 0) {
		CPU_ZERO(&set);
		CPU_SET(0, &set);
	}
	for (int cpu = 0; cpu < CPU_SETSIZE && (wanted == 0 || found < wanted); cpu++) {
		if (CPU_ISSET(cpu, &set)) {
			/* The guest's cpus are numbered from 0, whichever of the host's they are.
			 */
			k->cpu_mask[found / 64] |= 1ULL << (found % 64);
			found++;
		}
	}
	k->cpu_count = found ? found : 1;
}

static int open_strace(struct boot *b)
{
	struct kernel *k = &b->kernel;

	k->strace = b->config->strace;
	k->strace_filter = b->config->strace_filter;
	k->strace_fd = 2;
	if (k->strace && b->config->strace_file) {
		k->strace_fd = open(b->config->strace_file,
				    O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
		if (k->strace_fd < 0)
			return boot_error(-errno, NULL, "cannot write --strace-file %s",
					  b->config->strace_file);
	}
	return 0;
}

static int make_kernel(struct boot *b)
{
	struct kernel *k = &b->kernel;
	struct tmpfs_options internal = {
		.store = k->memory, .mode = 0700, .acct_id = MEMORY_OF_TMPFS, .source = "internal"
	};
	int err;

	mutex_init(&k->tasklist_lock, RANK_TASKLIST, "tasklist");
	waitq_init(&k->init_exit);
	k->stats_fd = b->config->stats_fd;
	k->boot_monotonic_ns = clock_monotonic_ns();
	k->boot_realtime_ns = clock_realtime_ns();
	count_cpus(k, b->config->cpus);
	snprintf(k->hostname, sizeof(k->hostname), "%s", b->config->hostname);
	if (getrandom(k->random_bytes, sizeof(k->random_bytes), 0) < 0)
		return boot_error(-errno, NULL, "getrandom");
	k->pids = pid_table_new(k->host_task_room);
	k->futexes = futex_table_new();
	b->root_cred = cred_new(0, 0, ALL_CAPS);
	b->user_cred = cred_new(b->config->uid, b->config->gid, b->config->uid == 0 ? ALL_CAPS : 0);
	if (!k->pids || !k->futexes || !b->root_cred || !b->user_cred)
		return boot_error(-ENOMEM, NULL, "cannot make the guest kernel");
	procfs_set_host_cpuinfo(b->host.cpuinfo_fd);
	dev_init(k);
	tty_register_devices(k);
	err = tmpfs_new(&internal, &k->internal_tmpfs);
	if (err == 0)
		err = devpts_new(k, &k->devpts);
	if (err < 0)
		return boot_error(err, NULL, "cannot make the guest kernel");
	err = boot_mounts(k, b->config, &b->host, b->disk_store ? b->disk_store : k->memory,
			  b->root_cred, &b->mounts);
	return err;
}

/*
 * Everything that the run needs of the host's files is open by now. Before the zygote: the stubs
 * must be in the same Landlock domain as the sentry, or it may not trace them.
 */
static void confine_files(struct boot *b)
{
	struct confine_path paths[RUN_MAX_MOUNTS + 4];

	if (!b->config->no_landlock)
		confine_landlock(paths, boot_host_paths(b->config, &b->host, paths), b->state);
	else
		snprintf(b->state->landlock_reason, sizeof(b->state->landlock_reason),
			 "switched off");
}

/*
 * Half of the start is done by a thread that ends before anything is confined: the mounts and the
 * guest kernel, while the first thread makes the network namespace, which is of the thread that
 * makes it and so of the zygote and of all later threads, and the platform.
 */
static void *prepare_main(void *arg)
{
	struct boot *b = arg;
	struct preparation *p = &b->preparation;

	b->kernel.host_task_room = host_task_room();
	/* The root view hides the caller's folders, so what is written there is opened before. */
	p->error = open_strace(b);
	if (p->error == 0)
		p->error = boot_host_collect(b->config, b->state, &b->host);
	if (p->error == 0)
		p->error = make_memory(b);
	atomic_store(&p->collected, 1);
	host_futex_wake(&p->collected, 1, true);
	if (p->error < 0)
		return NULL;
	if (b->state->root_view)
		p->kernel_error = confine_leave_host_root();
	if (p->kernel_error < 0)
		boot_error(p->kernel_error, NULL, "cannot leave the host's root");
	else
		p->kernel_error = make_kernel(b);
	return NULL;
}

static void *prepare_elsewhere(void *arg)
{
	struct boot *b = arg;

	sched_setaffinity(0, sizeof(b->preparation.cpus), &b->preparation.cpus);
	return prepare_main(b);
}

/* On another CPU than ours: a scheduler that packs threads would let the new one wait for us. */
static bool start_elsewhere(struct boot *b)
{
	struct preparation *p = &b->preparation;
	int cpu = sched_getcpu();
	cpu_set_t others;
	pthread_attr_t attr;
	bool ok;

	if (pthread_attr_init(&attr) != 0)
		return false;
	if (cpu >= 0 && sched_getaffinity(0, sizeof(p->cpus), &p->cpus) == 0 &&
	    CPU_COUNT(&p->cpus) > 1) {
		others = p->cpus;
		CPU_CLR(cpu, &others);
		pthread_attr_setaffinity_np(&attr, sizeof(others), &others);
		ok = pthread_create(&p->thread, &attr, prepare_elsewhere, b) == 0;
	} else {
		ok = pthread_create(&p->thread, NULL, prepare_main, b) == 0;
	}
	pthread_attr_destroy(&attr);
	return ok;
}

/* 0 when the host's files are open and the guest's memory is there. */
static int prepare_begin(struct boot *b)
{
	struct preparation *p = &b->preparation;

	p->started = start_elsewhere(b);
	if (!b->config->no_namespaces)
		(void)confine_network(b->state);
	if (!p->started)
		prepare_main(b);
	while (!atomic_load(&p->collected))
		host_futex_wait(&p->collected, 0, -1, true);
	return p->error;
}

/* 0 when the guest kernel is there, too. */
static int prepare_end(struct boot *b)
{
	if (b->preparation.started)
		pthread_join(b->preparation.thread, NULL);
	return b->preparation.kernel_error;
}

/* The last steps before threads: nothing that follows may need more of the host. */
static int confine(struct boot *b)
{
	int err = confine_drop_caps(b->state);

	if (err < 0)
		return boot_error(err, NULL, "cannot drop capabilities");
	err = confine_load_filter(platform_kind_of(b->kernel.platform), b->state);
	if (err < 0)
		return boot_error(err, "a kernel with CONFIG_SECCOMP_FILTER",
				  "cannot load the sentry's seccomp filter");
	return 0;
}

static int start_threads(struct boot *b)
{
	int err = platform_start(b->kernel.platform);

	if (err < 0)
		return boot_error(err, NULL, "cannot start the platform's threads");
	b->kernel.timers = timer_service_new();
	if (!b->kernel.timers)
		return boot_error(-ENOMEM, NULL, "cannot start the timer thread");
	if (b->host.tty_fd >= 0) {
		err = host_tty_start(&b->kernel, b->host.tty_fd, b->user_cred, &b->tty);
		if (err < 0)
			return boot_error(err, "redirecting standard input",
					  "cannot take over the terminal");
	}
	return 0;
}

/* A host descriptor as a guest file: the terminal's become the pty, the others pass through. */
static int import_fd(struct boot *b, const struct walk_context *w, int fd, struct file **ret)
{
	struct stat st, tty_st;

	if (b->tty && isatty(fd) && fstat(fd, &st) == 0 && fstat(b->host.tty_fd, &tty_st) == 0 &&
	    st.st_rdev == tty_st.st_rdev)
		return host_tty_open(b->tty, w, O_RDWR, ret);
	return hostfs_file_from_fd(fd, b->user_cred, boot_cache_memory(&b->kernel), ret);
}

static int import_fds(struct boot *b, const struct walk_context *w, struct fd_table *fds)
{
	int wanted[3 + RUN_MAX_PASS_FDS] = { 0, 1, 2 }, count = 3;

	for (int i = 0; i < b->config->pass_fd_count; i++)
		wanted[count++] = b->config->pass_fds[i];
	for (int i = 0; i < count; i++) {
		struct file *f;
		int err;

		if (fcntl(wanted[i], F_GETFD) < 0) {
			if (i < 3)
				continue;
			return boot_error(-EBADF, "open it in the calling shell: N<file",
					  "--pass-fd %d", wanted[i]);
		}
		err = import_fd(b, w, wanted[i], &f);
		if (err == 0)
			err = fd_replace(fds, wanted[i], f, false, FD_TABLE_MAX);
		if (err < 0)
			return boot_error(err, NULL, "cannot give descriptor %d to the guest",
					  wanted[i]);
	}
	return 0;
}

/* The first folder: --chdir must exist; the caller's may be hidden, then "/". */
static int first_folder(struct boot *b, struct walk_context *w, struct path *ret)
{
	const char *wanted = b->config->chdir ? b->config->chdir : b->config->caller_cwd;
	int err = -ENOENT;

	if (wanted)
		err = vfs_walk(w, wanted, WALK_FOLLOW | WALK_DIRECTORY, ret);
	if (err < 0 && b->config->chdir)
		return boot_error(err, "a folder that the guest can see", "--chdir %s", wanted);
	if (err < 0)
		err = vfs_walk(w, "/", WALK_FOLLOW | WALK_DIRECTORY, ret);
	return err;
}

/* Finds the program along the guest's PATH, as a shell would. 0 with the path in dst. */
static int find_program(struct boot *b, const struct walk_context *w, char *dst, size_t size)
{
	const char *name = b->config->argv[0], *path = "/usr/local/bin:/usr/bin:/bin";
	int found = -ENOENT;

	if (strchr(name, '/')) {
		snprintf(dst, size, "%s", name);
		return 0;
	}
	for (const char **e = b->config->env; *e; e++)
		if (strncmp(*e, "PATH=", 5) == 0)
			path = *e + 5;
	while (*path && *name) {
		size_t n = strcspn(path, ":");
		struct path p;
		if (n + strlen(name) + 2 < size) {
			snprintf(dst, size, "%.*s%s%s", (int)n, path, n ? "/" : "", name);
			if (vfs_walk(w, dst, WALK_FOLLOW, &p) == 0) {
				bool ok = inode_is_reg(path_inode(&p)) &&
					  vfs_access(&p, w->cred, MAY_EXEC) == 0;
				path_put(&p);
				if (ok)
					return 0;
				found = -EACCES;
			}
		}
		path += n + (path[n] == ':');
	}
	return found;
}

static int load_program(struct boot *b, const struct walk_context *w, struct exec_result *ret)
{
	char program[4096];
	struct exec_args args;
	struct exec_request req = {
		.kernel = &b->kernel,
		.walk = w,
		.path = program,
		.args = &args,
		.cred = b->user_cred,
		.limits = { RLIM_INFINITY, RLIM_INFINITY, 8UL << 20, 8UL << 20, true },
		.stack_rlimit = 8UL << 20,
	};
	int err = find_program(b, w, program, sizeof(program));

	if (err == 0) {
		exec_args_init(&args, req.stack_rlimit);
		err = exec_args_add_arrays(&args, b->config->argv, (char *const *)b->config->env);
		if (err == 0)
			err = exec_load(&req, ret);
		exec_args_destroy(&args);
	}
	if (err < 0)
		boot_error(err, NULL, "cannot run %s", b->config->argv[0]);
	return err;
}

static int exit_code_of_error(int err)
{
	if (err == -ENOENT || err == -ENOTDIR)
		return EXIT_NOT_FOUND;
	if (err == -EACCES || err == -ENOEXEC || err == -EISDIR || err == -EPERM ||
	    err == -ELIBBAD || err == -ETXTBSY || err == -EINVAL || err == -ELOOP || err == -EIO)
		return EXIT_NOT_EXECUTABLE;
	return EXIT_OURS;
}

static struct nsproxy *first_namespaces(struct boot *b)
{
	struct uts_ns *uts = uts_ns_new(b->kernel.hostname, "(none)");

	return uts ? nsproxy_new(mount_ns_get(b->mounts), uts) : NULL;
}

/* Starts the first program. 0 and a referenced init group, or an exit code > 0. */
static int start_guest(struct boot *b)
{
	struct walk_context w = { .cred = b->user_cred };
	struct exec_result prog;
	struct fs_context *fs = NULL;
	struct fd_table *fds = fd_table_new();
	struct nsproxy *ns = first_namespaces(b);
	struct task *init;
	struct path root, cwd;
	int err;

	mount_ns_root(b->mounts, &root);
	w.root = w.cwd = root;
	if (!fds || !ns)
		return EXIT_OURS;
	if (first_folder(b, &w, &cwd) < 0)
		return EXIT_OURS;
	w.cwd = cwd;
	if (import_fds(b, &w, fds) < 0)
		return EXIT_OURS;
	fs = fs_context_new(&root, &cwd, 022);
	if (!fs)
		return EXIT_OURS;
	err = load_program(b, &w, &prog);
	path_put(&root);
	path_put(&cwd);
	if (err)
		return exit_code_of_error(err);
	b->kernel.console = b->tty ? host_tty_tty(b->tty) : NULL;
	err = task_spawn_init(&b->kernel, prog.mm, fs, fds, ns, prog.cred, &prog.regs, prog.comm,
			      &init);
	if (err < 0) {
		boot_error(err, NULL, "cannot start the first task");
		return EXIT_OURS;
	}
	task_put(init);
	return 0;
}

static int wait_status_code(int status)
{
	if (WIFSIGNALED(status))
		return EXIT_SIGNAL_BASE + WTERMSIG(status);
	return WEXITSTATUS(status);
}

static void report_layers(const struct confine_state *s)
{
	log_info("namespaces: user %d mount %d pid %d net %d ipc %d %s", s->user_ns, s->mount_ns,
		 s->pid_ns, s->net_ns, s->ipc_ns, s->ns_reason);
	log_info("root view: %s; Landlock: %s", s->root_view ? "yes" : s->root_view_reason,
		 s->landlock ? "yes" : s->landlock_reason);
	if (!s->root_view && !s->landlock)
		log_warn("neither Landlock nor a mount namespace here: only the sentry's own code "
			 "keeps "
			 "it from other files of the caller (minisentry doctor says why)");
}

int sentry_run(struct run_config *config, struct confine_state *state)
{
	/* Static: big, and every thread of the process refers to it until the process ends. */
	static struct boot boot;
	struct boot *b = &boot;
	bool all_ended;
	int code;

	b->config = config;
	b->state = state;
	log_init(2, config->log);
	prctl(PR_SET_NAME, "minisentry");
	/* Left alone, malloc counts the host's cpus, by files that the filter refuses. */
	mallopt(M_ARENA_MAX, MALLOC_ARENAS);
	/* Nor may it shrink an arena: it would read /proc/sys/vm/overcommit_memory first. */
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	supervise_block_signals();
	if (prepare_begin(b) < 0)
		return EXIT_OURS;
	confine_files(b);
	report_layers(state);
	if (safecopy_init() < 0 || start_platform(b) < 0 || prepare_end(b) < 0 || confine(b) < 0 ||
	    start_threads(b) < 0)
		return EXIT_OURS;
	code = start_guest(b);
	if (code == 0)
		code = wait_status_code(supervise(&b->kernel, b->tty));
	all_ended = kernel_kill_all(&b->kernel);
	if (b->tty)
		host_tty_stop(b->tty);
	/* Threads that are on their way still use it; it ends with us all the same, and at once
	 * where we are the init of a PID namespace. */
	if (all_ended && !state->pid_ns)
		platform_free(b->kernel.platform);
	return code;
}
