/*
 * sentry/exec/exec.h: loading programs.
 *
 * exec_prepare() opens the program, follows #! lines, reads and checks ELF
 * headers of program and interpreter, works out the new credentials, and makes
 * an empty mm; anything wrong is an errno and nothing has changed.
 * exec_map() then maps the segments, builds the stack and gives the registers;
 * for a running task it comes after the point of no return, where Linux kills
 * with SIGSEGV on failure.
 *
 *	exec_args_new(&args); exec_args_add(...)       strings, in sentry memory
 *	exec_prepare(&req, &e);
 *	task_exec_kill_others(t);                      running task only
 *	exec_map(e, &result);
 *	task_exec_commit(t, result.mm, &result.regs, result.comm, result.cred);
 *	exec_free(e);
 *
 * The result's mm (with its first user) and cred are references for the caller,
 * who passes them on to task_exec_commit or task_spawn_init.
 */
#ifndef MINISENTRY_SENTRY_EXEC_EXEC_H
#define MINISENTRY_SENTRY_EXEC_EXEC_H

#include "base/cred.h"
#include "mm/mm.h"
#include "sentry/task/task.h"
#include "vfs/file.h"
#include "vfs/path.h"

struct kernel;
struct exec;

#define EXEC_STRING_MAX (128UL << 10)
#define EXEC_ARGS_MAX (6UL << 20)   /* all strings and pointers, below RLIMIT_STACK / 4 */
#define EXEC_ARGS_MIN (128UL << 10) /* always granted */
#define EXEC_SCRIPT_DEPTH 5
#define EXEC_SCRIPT_LINE 256

/* argv and envp, packed: argc strings, then envc strings, each with its NUL. */
struct exec_args {
	char *data;
	size_t used, capacity;
	u32 *lens; /* with the NUL; argv's then envp's */
	u32 count, lens_capacity;
	u32 argc;
	size_t limit; /* of used + 8 * count */
};
/* stack_rlimit: RLIMIT_STACK (soft). */
void exec_args_init(struct exec_args *a, u64 stack_rlimit);
void exec_args_destroy(struct exec_args *a);
/* One more string; all of argv (is_env false) before all of envp. -E2BIG, -ENOMEM. */
int exec_args_add(struct exec_args *a, bool is_env, const char *s, size_t len);
/* From NULL-terminated sentry arrays (boot). */
int exec_args_add_arrays(struct exec_args *a, char *const argv[], char *const envp[]);
/* From the current task's guest arrays (execve); a NULL array is empty. -EFAULT, -E2BIG, -ENOMEM.
 */
int exec_args_copy_in(struct task *t, struct exec_args *a, uaddr argv, uaddr envp);

struct exec_request {
	struct kernel *kernel;
	const struct walk_context
		*walk; /* borrowed: root, cwd (execveat: dirfd's path), cred for path */
	const struct walk_context *interp_walk; /* for #! and PT_INTERP paths; NULL: walk */
	const char *path;	  /* walked from walk->cwd; "" with at_empty: walk->cwd itself */
	const char *display_name; /* AT_EXECFN and argv of scripts; NULL: path */
	bool no_follow, at_empty,
		fd_cloexec;	   /* execveat; fd_cloexec: a script could not open display_name */
	struct exec_args *args;	   /* changed by #! lines; borrowed */
	const struct cred *cred;   /* the caller's */
	bool no_new_privs, traced; /* set-id is not honoured */
	u32 personality;
	u32 mm_policy; /* mm_policy_inherited of the caller's mm */
	struct mm_limits limits;
	u64 stack_rlimit;
};

struct exec_result {
	struct mm *mm;		 /* a reference */
	const struct cred *cred; /* a reference; after set-id and file capabilities */
	struct user_regs_struct regs;
	char comm[TASK_COMM_LEN];
	bool secure; /* AT_SECURE: privileges were gained */
	u32 personality;
};

/* -ENOENT, -EACCES, -ENOEXEC, -ELOOP, -ELIBBAD, -EIO, -ETXTBSY, -E2BIG, -ENOMEM, ... */
int exec_prepare(const struct exec_request *req, struct exec **ret);
/* Once. */
int exec_map(struct exec *e, struct exec_result *ret);
void exec_free(struct exec *e); /* NULL is fine */
/* prepare + map, for the first program. */
int exec_load(const struct exec_request *req, struct exec_result *ret);

/*
 * The executable that hangs on an mm (mm_set_exe): keeps writers out (ETXTBSY).
 * fork: mm_set_exe(child, mm_get_exe(parent, exec_exe_get), exec_exe_put). Readers that only want
 * the file (procfs) use file_get / file_put through mm_get_exe.
 */
void exec_exe_get(void *file);
void exec_exe_put(void *file);

#endif
