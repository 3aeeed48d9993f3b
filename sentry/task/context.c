/* A task's context on the platform: made with a new program's vector registers or another's, and
 * changed. */
#include "sentry/task/internal.h"

#include <stdlib.h>

int task_context_new(struct kernel *k, struct platform_as *as, struct platform_context *from,
		     struct platform_context **ret)
{
	size_t size = platform_xstate_size(k->platform);
	struct platform_context *ctx;
	void *xstate = calloc(1, size);
	int r = xstate ? 0 : -ENOMEM;

	if (r == 0 && from)
		r = platform_get_xstate(from, xstate, size);
	else if (r == 0)
		platform_init_xstate(xstate, size);
	if (r == 0)
		r = platform_context_new(as, &ctx);
	if (r == 0) {
		platform_set_xstate(ctx, xstate, size);
		*ret = ctx;
	}
	free(xstate);
	return r;
}

struct platform_context *task_change_context_locked(struct task *t, struct platform_context *ctx)
{
	struct platform_context *old = t->ctx;

	mutex_assert_held(&t->lock);
	t->prior_utime_ns += platform_context_cpu_ns(old);
	t->served_tsc += platform_context_served_tsc(old);
	t->ctx = ctx;
	return old;
}
