/*
 * How a task's thread sleeps and is woken.
 *
 * task->wake is the futex word: prepare sets it to 0, a wake to 1. Whatever
 * happens between prepare and sleep leaves 1 behind, so no wake is lost. A
 * signal first sets sig_pending and then wakes; the sleeper looks at
 * sig_pending after prepare, so no signal is lost either.
 *
 * A task in the guest is reached by platform_context_interrupt, which sticks:
 * platform_switch looks after it has said that it is in the guest.
 */
#include "base/host_sync.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "sentry/task/internal.h"

void task_wake(struct task *t)
{
	wake_word(&t->wake);
}

static void waiter_wake_task(struct waiter *w, u32 events)
{
	task_wake(w->arg);
}

void task_waiter_init(struct waiter *w, struct task *t, u32 events)
{
	*w = (struct waiter){ .events = events, .fn = waiter_wake_task, .arg = t };
	list_init(&w->node);
}

void task_kick(struct task *t)
{
	atomic_store(&t->sig_pending, true);
	if (t == current_task)
		return;
	task_wake(t);
	mutex_lock(&t->lock); /* the owner frees its context only without it */
	if (t->ctx)
		platform_context_interrupt(t->ctx);
	mutex_unlock(&t->lock);
}

void task_block_prepare(struct task *t)
{
	atomic_store(&t->wake, 0);
}

int task_sleep(struct task *t, u64 deadline_ns)
{
	int r = 0;

	assert_no_locks();
	task_complete_regs(t); /* for /proc/PID/syscall */
	ASSERT(!wake_is_held());
	if (t->ctx)
		platform_context_idle(t->ctx, true);
	while (atomic_load(&t->wake) == 0) {
		r = host_futex_wait_until(&t->wake, 0, deadline_ns);
		if (r == -ETIMEDOUT)
			break;
		r = 0;
	}
	if (t->ctx)
		platform_context_idle(t->ctx, false);
	t->nvcsw++;
	atomic_fetch_add_explicit(&t->kernel->context_switches, 1, memory_order_relaxed);
	return r;
}

static int sleep_blocked(struct task *t, u64 deadline_ns)
{
	int r;

	atomic_store(&t->state, TASK_BLOCKED);
	r = task_sleep(t, deadline_ns);
	atomic_store(&t->state, TASK_RUNNING);
	return r;
}

int task_block(struct task *t, u64 deadline_ns)
{
	ASSERT(t == current_task);
	if (atomic_load(&t->wake))
		return 0;
	if (task_signal_pending(t))
		return -ERESTARTSYS;
	/* A kick ends the sleep as a wake: the caller comes back, and then the signal shows. */
	return sleep_blocked(t, deadline_ns);
}

int task_block_killable(struct task *t, u64 deadline_ns)
{
	if (atomic_load(&t->killed))
		return -EINTR;
	if (atomic_load(&t->wake))
		return 0;
	return sleep_blocked(t, deadline_ns);
}

s64 task_block_on(struct task *t, struct waitq *q, u32 events, bool nonblock, u64 deadline_ns,
		  s64 (*try)(void *arg), void *arg)
{
	struct waiter w;
	u32 sequence = q ? waitq_sequence(q) : 0;
	s64 r = try(arg);
	int e = 0;

	if (r != -EAGAIN || nonblock || !q)
		return r;
	task_waiter_init(&w, t, events);
	task_block_prepare(t);
	waitq_add(q, &w);
	if (!waitq_unchanged(q, sequence))
		r = try(arg);
	while (r == -EAGAIN && e != -ETIMEDOUT) {
		e = task_block(t, deadline_ns);
		if (e < 0 && e != -ETIMEDOUT) {
			r = e;
			break;
		}
		task_block_prepare(t);
		r = try(arg);
	}
	waitq_remove(&w);
	return r;
}
