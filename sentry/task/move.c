/* Tasks that go on in another stub: mm_fork_moving, mm_go_home. */
#include "sentry/task/internal.h"

static void put_as(void *as)
{
	platform_as_put(as);
}

/* The last put of a stub may take long. */
static void put_behind(struct task *t, struct platform_as *as)
{
	if (as)
		task_do_behind(t->kernel, put_as, as);
}

/* t's context in another stub. 0 or -errno, and nothing has changed. */
static int change_stub(struct task *t, struct platform_as *as)
{
	struct platform_context *ctx, *old;
	int r = task_context_new(t->kernel, as, t->ctx, &ctx);

	if (r < 0)
		return r;
	task_complete_regs(t);
	mutex_lock(&t->lock);
	old = task_change_context_locked(t, ctx);
	mutex_unlock(&t->lock);
	platform_context_succeed(ctx, old);
	task_ids_changed(t);
	platform_context_free(old);
	return 0;
}

int task_fork_mm(struct task *t, struct mm **ret)
{
	struct platform_as *fresh, *old;
	int r;

	if (task_traced(t) || !mm_fork_wants_stub(t->mm) ||
	    platform_as_new(t->kernel->platform, &fresh) < 0)
		return mm_fork(t->mm, ret);
	if (change_stub(t, fresh) < 0) {
		platform_as_put(fresh);
		return mm_fork(t->mm, ret);
	}
	r = mm_fork_moving(t->mm, fresh, &old, ret);
	put_behind(t, old);
	platform_as_settle(fresh);
	return r;
}

void task_go_home(struct task *t)
{
	struct platform_as *home = task_traced(t) ? NULL : mm_home(t->mm);

	assert_no_locks();
	if (home && change_stub(t, home) == 0)
		put_behind(t, mm_go_home(t->mm));
	else
		put_behind(t, mm_forget_home(t->mm));
}
