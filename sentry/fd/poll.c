#include "sentry/fd/poll.h"
#include "sentry/fd/fdtable.h"
#include <poll.h>
#include <stdlib.h>

static _Atomic size_t entries_total;

struct poll_one *poll_alloc(size_t count)
{
	struct poll_one *p = NULL;

	if (atomic_fetch_add(&entries_total, count) + count <= POLL_MAX_ENTRIES)
		p = malloc(count * sizeof(*p));
	if (!p)
		atomic_fetch_sub(&entries_total, count);
	return p;
}

void poll_free(struct poll_one *p, size_t count)
{
	if (!p)
		return;
	free(p);
	atomic_fetch_sub(&entries_total, count);
}

static void poll_event(struct waiter *w, u32 events)
{
	struct poll_one *p = container_of(w, struct poll_one, waiter);

	atomic_store(&p->fired, true);
	task_wake(w->arg);
}

static bool ask(struct poll_one *p)
{
	p->revents = vfs_poll(p->file) & (p->events | EPOLLERR | EPOLLHUP);
	return p->revents != 0;
}

/* Resolves descriptors and asks each once. Entries that are ready or bad. */
static size_t first_pass(struct task *t, struct poll_one *p, size_t count)
{
	size_t ready = 0;

	for (size_t i = 0; i < count; i++) {
		struct waitq *q;

		p[i].revents = 0;
		p[i].waiter.queue = NULL;
		p[i].file = p[i].fd >= 0 ? fd_get(t->fds, p[i].fd) : NULL;
		q = p[i].file ? vfs_waitq(p[i].file) : NULL;
		p[i].sequence = q ? waitq_sequence(q) : 0;
		if (p[i].file)
			ready += ask(&p[i]);
		else if (p[i].fd >= 0) {
			p[i].revents = POLLNVAL;
			ready++;
		}
	}
	return ready;
}

static void queue_all(struct task *t, struct poll_one *p, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct waitq *q = p[i].file ? vfs_waitq(p[i].file) : NULL;

		atomic_store(&p[i].fired, false);
		if (!q)
			continue;
		p[i].waiter = (struct waiter){
			.events = p[i].events | EPOLLERR | EPOLLHUP,
			.fn = poll_event,
			.arg = t,
		};
		list_init(&p[i].waiter.node);
		waitq_add(q, &p[i].waiter);
		/* Whatever came before the waiter was queued is seen by asking once more. */
		if (!waitq_unchanged(q, p[i].sequence))
			atomic_store(&p[i].fired, true);
	}
}

static size_t ask_fired(struct poll_one *p, size_t count)
{
	size_t ready = 0;

	for (size_t i = 0; i < count; i++)
		if (p[i].file && atomic_exchange(&p[i].fired, false))
			ready += ask(&p[i]);
	return ready;
}

s64 poll_files(struct task *t, struct poll_one *p, size_t count, u64 deadline)
{
	size_t ready = first_pass(t, p, count);
	int err = 0;

	if (!ready && deadline != 0) {
		task_block_prepare(t);
		queue_all(t, p, count);
		while (!(ready = ask_fired(p, count))) {
			if (err)
				break;
			err = task_block(t, deadline);
			task_block_prepare(t);
		}
		for (size_t i = 0; i < count; i++)
			waitq_remove(&p[i].waiter);
	}
	for (size_t i = 0; i < count; i++)
		if (p[i].file)
			file_put(p[i].file);
	if (ready || err == -ETIMEDOUT)
		return (s64)ready;
	return err;
}
