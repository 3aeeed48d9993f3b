/* execve, execveat. */
#include "base/log.h"
#include "sentry/exec/exec.h"
#include "sentry/signal/signal.h"
#include "sentry/sys/handlers.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* What task_exec_commit does not know of. */
static void leave_old_program(struct task *t, const struct exec_result *res)
{
	if (res->secure)
		t->pdeath_signal = 0;
	t->misc.personality = res->personality;
	atomic_store(&t->tg->membarrier, 0);
}

/* From a complete request on. */
static s64 exec_request_run(struct task *t, const struct exec_request *req)
{
	struct exec_result res;
	struct exec *e;
	int r = exec_prepare(req, &e);

	if (r < 0)
		return r;
	r = task_exec_kill_others(t);
	if (r < 0) {
		exec_free(e);
		return r;
	}
	r = exec_map(e, &res);
	exec_free(e);
	if (r < 0) {
		/* The other threads are gone, so there is no program to return an error to (as in
		 * Linux). */
		log_info("exec of %s: cannot map it: error %d", req->path, -r);
		task_group_exit(t, SIGSEGV);
		return r;
	}
	leave_old_program(t, &res);
	task_exec_commit(t, res.mm, &res.regs, res.comm, res.cred);
	return 0;
}

/* AT_EMPTY_PATH: the walk starts at, and stays on, the file of dirfd. */
static int start_at_fd(struct task *t, int dirfd, struct sys_walk *w)
{
	struct fd_ref f = fd_ref_any(t->fds, dirfd);

	if (!f.file)
		return -EBADF;
	if (!f.file->path.dentry) {
		fd_ref_put(f);
		return -EACCES; /* pipes, sockets and their like */
	}
	w->dir = f;
	w->w.cwd = f.file->path;
	return 0;
}

static s64 exec_at(struct task *t, int dirfd, uaddr argv, uaddr envp, int flags)
{
	const char *path = t->scratch_path;
	bool by_fd = dirfd != AT_FDCWD && path[0] != '/', at_empty = path[0] == '\0';
	struct exec_request req = { .kernel = t->kernel,
				    .path = path,
				    .personality = t->misc.personality };
	struct sys_walk w, here;
	struct exec_args args;
	char *display = NULL;
	s64 r;

	if (at_empty && !(flags & AT_EMPTY_PATH))
		return -ENOENT;
	r = sys_walk_begin(t, AT_FDCWD, path, &here);
	if (r < 0)
		return r;
	r = sys_walk_begin(t, at_empty ? AT_FDCWD : dirfd, path, &w);
	if (r < 0)
		goto out_here;
	if (at_empty && by_fd)
		r = start_at_fd(t, dirfd, &w);
	if (r < 0)
		goto out_walk;
	if (by_fd) {
		if (asprintf(&display, at_empty ? "/dev/fd/%d" : "/dev/fd/%d/%s", dirfd, path) <
		    0) {
			display = NULL;
			r = -ENOMEM;
			goto out_walk;
		}
		req.fd_cloexec = fd_get_cloexec(t->fds, dirfd) == 1;
	}
	exec_args_init(&args, task_rlimit(t, RLIMIT_STACK));
	r = exec_args_copy_in(t, &args, argv, envp);
	if (r == 0) {
		req.walk = &w.w;
		req.interp_walk = &here.w;
		req.display_name = display;
		req.no_follow = flags & AT_SYMLINK_NOFOLLOW;
		req.at_empty = at_empty;
		req.args = &args;
		req.cred = t->cred;
		req.no_new_privs = t->no_new_privs;
		req.traced = t->ptrace != NULL;
		req.stack_rlimit = task_rlimit(t, RLIMIT_STACK);
		req.mm_policy = mm_policy_inherited(t->mm);
		task_mm_limits(t, &req.limits);
		r = exec_request_run(t, &req);
	}
	exec_args_destroy(&args);
	free(display);
out_walk:
	sys_walk_end(&w);
out_here:
	sys_walk_end(&here);
	return r;
}

s64 sys_execve(struct task *t, const u64 a[6])
{
	int r = sys_copy_path(t, ua(a[0]), t->scratch_path);

	return r < 0 ? r : exec_at(t, AT_FDCWD, ua(a[1]), ua(a[2]), 0);
}

s64 sys_execveat(struct task *t, const u64 a[6])
{
	int flags = (int)a[4], r;

	if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
		return -EINVAL;
	r = sys_copy_path(t, ua(a[1]), t->scratch_path);
	return r < 0 ? r : exec_at(t, (int)a[0], ua(a[2]), ua(a[3]), flags);
}
