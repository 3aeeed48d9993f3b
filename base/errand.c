#include "base/errand.h"

#include "base/host_sync.h"
#include "base/host_thread.h"

#include <stdatomic.h>
#include <stdlib.h>

struct errand {
	void (*fn)(void *arg);
	void *arg;
	_Atomic u32 state; /* futex */
};

enum { ASKED, BEGUN, DONE, REFUSED };

static void run(void *arg)
{
	struct errand *e = arg;
	u32 asked = ASKED;

	if (atomic_compare_exchange_strong(&e->state, &asked, BEGUN)) {
		e->fn(e->arg);
		host_unbind_cpu(0);
		atomic_store(&e->state, DONE);
		host_futex_wake(&e->state, 1, true);
	} else {
		host_unbind_cpu(0);
		free(e); /* it came too late */
	}
}

struct errand *errand_begin(void (*fn)(void *arg), void *arg)
{
	struct errand *e = malloc(sizeof(*e));
	struct host_worker *w;

	if (!e || host_worker_get(&w) < 0) {
		free(e);
		return NULL;
	}
	*e = (struct errand){ .fn = fn, .arg = arg };
	host_worker_start_apart(w, run, e);
	return e;
}

void errand_end(struct errand *e)
{
	u32 state = ASKED;

	if (!e || atomic_compare_exchange_strong(&e->state, &state, REFUSED))
		return;
	while ((state = atomic_load(&e->state)) != DONE)
		host_futex_wait_until(&e->state, state, UINT64_MAX);
	free(e);
}
