/* Whom an entry of /proc/PID speaks of, and who may look. */
#include "sentry/proc/internal.h"
#include <linux/capability.h>
#include <string.h>

struct task *proc_task(const struct proc_ctx *c)
{
	struct task *t = task_find(c->kernel, c->tid ? c->tid : c->tg->tgid);

	if (t && t->tg == c->tg)
		return t;
	task_put(t);
	return c->tid ? NULL : thread_group_any_task(c->tg);
}

static bool same_user(const struct cred *viewer, const struct cred *target)
{
	return viewer->fsuid == target->euid && viewer->fsuid == target->suid &&
	       viewer->fsuid == target->uid && viewer->fsgid == target->egid &&
	       viewer->fsgid == target->sgid && viewer->fsgid == target->gid;
}

bool proc_may_access(struct thread_group *tg, const struct cred *cred)
{
	struct task *t;
	const struct cred *target;
	struct mm *mm;
	bool ok;

	if (!current_task || current_task->tg == tg || cred_capable(cred, CAP_SYS_PTRACE))
		return true;
	t = thread_group_any_task(tg);
	if (!t)
		return false;
	target = task_get_cred(t);
	ok = same_user(cred, target);
	cred_put(target);
	mm = ok ? task_get_mm(t) : NULL;
	if (mm) {
		ok = mm_dumpable(mm) == 1;
		mm_put(mm);
	}
	task_put(t);
	return ok;
}

int proc_task_mm(const struct proc_ctx *c, const struct cred *cred, bool check, struct mm **ret)
{
	struct task *t = proc_task(c);

	if (!t)
		return -ESRCH;
	if (check && !proc_may_access(c->tg, cred)) {
		task_put(t);
		return -EACCES;
	}
	*ret = task_get_mm(t);
	task_put(t);
	return 0;
}

void proc_owner(const struct proc_ctx *c, u32 *ret_uid, u32 *ret_gid)
{
	struct task *t = proc_task(c);
	const struct cred *cred;
	struct mm *mm;

	*ret_uid = *ret_gid = 0;
	if (!t)
		return;
	mm = task_get_mm(t);
	if (!mm || mm_dumpable(mm) == 1) {
		cred = task_get_cred(t);
		*ret_uid = cred->euid;
		*ret_gid = cred->egid;
		cred_put(cred);
	}
	mm_put(mm);
	task_put(t);
}

void proc_task_comm(struct task *t, char dst[TASK_COMM_LEN])
{
	MUTEX_GUARD(&t->lock);
	memcpy(dst, t->comm, TASK_COMM_LEN);
	dst[TASK_COMM_LEN - 1] = '\0';
}

struct nsproxy *proc_task_ns(struct task *t)
{
	MUTEX_GUARD(&t->lock);
	return t->ns ? nsproxy_get(t->ns) : NULL;
}

void proc_reader_root(struct path *ret)
{
	struct fs_context *fs = current_task ? task_get_fs(current_task) : NULL;

	*ret = (struct path){ 0 };
	if (!fs)
		return;
	mutex_lock(&fs->lock);
	*ret = fs->root;
	path_get(ret);
	mutex_unlock(&fs->lock);
	fs_context_put(fs);
}
