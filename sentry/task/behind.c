/* Work that nobody waits for, on a thread of the sentry's own. */
#include "base/host_thread.h"
#include "sentry/task/internal.h"

#include <stdlib.h>

struct behind {
	struct kernel *kernel;
	void (*fn)(void *arg);
	void *arg;
};

static void run(void *arg)
{
	struct behind b = *(struct behind *)arg;

	free(arg);
	host_unbind_self();
	b.fn(b.arg);
	task_thread_gone(b.kernel);
}

void task_do_behind(struct kernel *k, void (*fn)(void *arg), void *arg)
{
	struct behind *b = malloc(sizeof(*b));
	struct host_worker *w;

	if (!b || host_worker_get(&w) < 0) {
		free(b);
		fn(arg);
		return;
	}
	*b = (struct behind){ k, fn, arg };
	atomic_fetch_add(&k->pids->threads, 1);
	host_worker_start(w, run, b);
}
