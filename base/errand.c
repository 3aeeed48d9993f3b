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

/* Those that were taken back and still hold a worker that gets no CPU. Beyond this nobody is asked:
 * each would be one thread more. */
#define LATE_MAX 8
static _Atomic u32 late;

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
		atomic_fetch_sub(&late, 1);
	}
}

static bool other_cpu(void)
{
	struct host_cpus all;
	int count = 0;

	host_cpus(&all);
	for (u32 i = 0; i < ARRAY_SIZE(all.bits) && count < 2; i++)
		count += __builtin_popcountll(all.bits[i]);
	return count > 1;
}

struct errand *errand_begin(void (*fn)(void *arg), void *arg)
{
	bool useful = other_cpu() && atomic_load(&late) < LATE_MAX;
	struct errand *e = useful ? malloc(sizeof(*e)) : NULL;
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

	if (!e)
		return;
	atomic_fetch_add(&late, 1);
	if (atomic_compare_exchange_strong(&e->state, &state, REFUSED))
		return;
	atomic_fetch_sub(&late, 1);
	while ((state = atomic_load(&e->state)) != DONE)
		host_futex_wait_until(&e->state, state, UINT64_MAX);
	free(e);
}
