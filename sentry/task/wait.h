/* sentry/task/wait.h: waiting for children: the work of wait4(2) and waitid(2). */
#ifndef MINISENTRY_SENTRY_TASK_WAIT_H
#define MINISENTRY_SENTRY_TASK_WAIT_H

#include "sentry/task/task.h"

enum wait_kind { WAIT_FOR_ANY, WAIT_FOR_PID, WAIT_FOR_PGID, WAIT_FOR_GROUP /* pidfd */ };

struct wait_request {
	enum wait_kind kind;
	int id;				  /* WAIT_FOR_PID, WAIT_FOR_PGID */
	const struct thread_group *group; /* WAIT_FOR_GROUP */
	int options; /* WEXITED, WSTOPPED, WCONTINUED, WNOHANG, WNOWAIT, __WALL, __WCLONE,
			__WNOTHREAD */
};

struct wait_result {
	int pid, uid;
	int status;   /* as wait4 stores it */
	int cld_code; /* CLD_* */
	int cld_status;
	struct rusage usage;
};

/* The child's pid; 0: WNOHANG and nothing to report. -ECHILD, -ERESTARTSYS. */
s64 task_wait(struct task *t, const struct wait_request *req, struct wait_result *ret);

#endif
