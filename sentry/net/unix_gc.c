#include "sentry/net/unix_gc.h"
#include "base/host_time.h"
#include "sentry/net/socket.h"

/* A longer run in vain makes the next ones wait, so that they cost a small part of the time. */
#define CHEAP_RUN_NS 200000
#define DUTY 16

/* In flight: unix_sock.inflight > 0 and on `inflight_list`. */
static struct mutex gc_lock = MUTEX_INIT(RANK_SOCKET, "unix_gc");
static struct list inflight_list = LIST_INIT(inflight_list); /* gc_lock: unix_sock.gc_node */
static u64 inflight_total; /* gc_lock: fds of all kinds in queues */
static _Atomic u32 inflight_sockets;
static _Atomic u64 next_run_ns; /* CLOCK_MONOTONIC */

static struct socket *unix_socket_of(struct file *f)
{
	struct socket *s = socket_of_file(f);

	return s && s->family == AF_UNIX ? s : NULL;
}

int unix_gc_in_flight(struct scm_fds *fds, u64 limit)
{
	MUTEX_GUARD(&gc_lock);
	if (inflight_total + (u64)fds->count > limit)
		return -ETOOMANYREFS;
	inflight_total += (u64)fds->count;
	for (int i = 0; i < fds->count; i++) {
		struct socket *s = unix_socket_of(fds->file[i]);

		if (!s)
			continue;
		if (s->un.inflight++ == 0) {
			s->un.file = fds->file[i];
			list_push_back(&inflight_list, &s->un.gc_node);
			inflight_sockets++;
		}
	}
	return 0;
}

void unix_gc_not_in_flight(struct scm_fds *fds)
{
	MUTEX_GUARD(&gc_lock);
	inflight_total -= (u64)fds->count;
	for (int i = 0; i < fds->count; i++) {
		struct socket *s = unix_socket_of(fds->file[i]);

		if (s && --s->un.inflight == 0) {
			list_del(&s->un.gc_node);
			inflight_sockets--;
		}
	}
}

void unix_gc_barrier(void)
{
	mutex_lock(&gc_lock);
	mutex_unlock(&gc_lock);
}

/* Calls fn for each unix socket in flight in s's receive queue and, for a listener, its unaccepted
 * peers'. */
static void for_each_queued(struct socket *s, void (*fn)(struct socket *, void *), void *arg)
{
	struct sock_buf *b;
	struct socket *embryo;

	mutex_lock_nested(&s->lock);
	list_for_each (b, &s->rq.bufs, node)
		for (int i = 0; b->fds && i < b->fds->count; i++) {
			struct socket *q = unix_socket_of(b->fds->file[i]);

			if (q)
				fn(q, arg);
		}
	list_for_each (embryo, &s->accept_queue, accept_node) {
		/* Nobody else locks an unaccepted socket while holding another lock. */
		mutex_lock_nested(&embryo->lock);
		list_for_each (b, &embryo->rq.bufs, node)
			for (int i = 0; b->fds && i < b->fds->count; i++) {
				struct socket *q = unix_socket_of(b->fds->file[i]);

				if (q)
					fn(q, arg);
			}
		mutex_unlock(&embryo->lock);
	}
	mutex_unlock(&s->lock);
}

static void uncount(struct socket *q, void *arg)
{
	if (q->un.gc_candidate)
		q->un.gc_left--;
}

/* q can be received by someone: it is not garbage, and neither is what it leads to. */
static void mark_live(struct socket *q, void *arg)
{
	struct list *work = arg;

	if (!q->un.gc_candidate)
		return;
	q->un.gc_candidate = false;
	list_del(&q->un.gc_work);
	list_push_back(work, &q->un.gc_work);
}

/* closing: a file whose caller is about to put a reference. */
static void collect_candidates(struct list *cand, struct file *closing)
{
	struct socket *s;

	list_for_each (s, &inflight_list, un.gc_node) {
		u64 own = s->un.file == closing;

		s->un.gc_candidate = refs_read(&s->un.file->refs) == s->un.inflight + own;
		s->un.gc_left = (s64)s->un.inflight;
		list_init(&s->un.gc_work);
		if (s->un.gc_candidate)
			list_push_back(cand, &s->un.gc_work);
	}
}

/* Takes every garbage socket's queue. gc_lock held. */
static void find_garbage(struct list *doomed, struct file *closing)
{
	struct list cand, work;
	struct socket *s, *tmp;

	list_init(&cand);
	list_init(&work);
	collect_candidates(&cand, closing);
	list_for_each (s, &cand, un.gc_work)
		for_each_queued(s, uncount, NULL);
	/* References left over come from queues of sockets that are alive. */
	/* The list's head is in no socket, and not looked into as one.
	 * NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult) */
	list_for_each_safe (s, tmp, &cand, un.gc_work) {
		if (s->un.gc_left > 0) {
			list_del(&s->un.gc_work);
			s->un.gc_candidate = false;
			list_push_back(&work, &s->un.gc_work);
		}
	}
	while (!list_empty(&work)) {
		s = list_first(&work, struct socket, un.gc_work);
		list_del(&s->un.gc_work);
		for_each_queued(s, mark_live, &work);
	}
	list_for_each (s, &inflight_list, un.gc_node) {
		struct sock_buf *b, *btmp;
		struct socket *embryo;

		if (!s->un.gc_candidate)
			continue;
		s->un.gc_candidate = false;
		mutex_lock_nested(&s->lock);
		list_for_each_safe (b, btmp, &s->rq.bufs, node) {
			sock_queue_unlink(&s->rq, b);
			list_push_back(doomed, &b->node);
		}
		list_for_each (embryo, &s->accept_queue, accept_node) {
			mutex_lock_nested(&embryo->lock);
			list_for_each_safe (b, btmp, &embryo->rq.bufs, node) {
				sock_queue_unlink(&embryo->rq, b);
				list_push_back(doomed, &b->node);
			}
			mutex_unlock(&embryo->lock);
		}
		mutex_unlock(&s->lock);
	}
}

void unix_gc_run(struct file *closing)
{
	struct list doomed;
	u64 began = 0, ended = 0;

	if (atomic_load(&inflight_sockets) == 0 || scm_fds_freeing())
		return;
	host_clock_read(CLOCK_MONOTONIC, &began);
	if (began < atomic_load(&next_run_ns))
		return;
	list_init(&doomed);
	mutex_lock(&gc_lock);
	find_garbage(&doomed, closing);
	mutex_unlock(&gc_lock);
	host_clock_read(CLOCK_MONOTONIC, &ended);
	if (list_empty(&doomed) && ended - began > CHEAP_RUN_NS)
		atomic_store(&next_run_ns, ended + (ended - began) * DUTY);
	sock_buf_free_list(&doomed);
}

void unix_gc_closing(struct file *f)
{
	struct socket *s = unix_socket_of(f);
	bool in_flight;

	if (!s || atomic_load(&inflight_sockets) == 0)
		return;
	mutex_lock(&gc_lock);
	in_flight = s->un.inflight > 0;
	mutex_unlock(&gc_lock);
	if (in_flight)
		unix_gc_run(f);
}
