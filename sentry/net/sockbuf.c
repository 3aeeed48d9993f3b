#include "sentry/net/sockbuf.h"
#include "sentry/net/unix_gc.h"
#include <stdlib.h>
#include <string.h>

struct sock_name *sock_name_new(const void *addr, u32 len)
{
	struct sock_name *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	refs_init(&n->refs, "sock_name");
	n->len = MIN(len, sizeof(n->addr));
	memcpy(n->addr, addr, n->len);
	return n;
}

struct sock_name *sock_name_get(struct sock_name *n)
{
	if (n)
		refs_get(&n->refs);
	return n;
}

void sock_name_put(struct sock_name *n)
{
	if (n && refs_put(&n->refs))
		free(n);
}

void sock_queue_init(struct sock_queue *q)
{
	list_init(&q->bufs);
	q->count = 0;
	atomic_init(&q->bytes, 0);
	atomic_init(&q->cost, 0);
	q->spare = NULL;
}

static size_t buf_len(const struct sock_buf *b)
{
	return b->end - b->start;
}

void sock_queue_take_all(struct sock_queue *q, struct list *to)
{
	if (!list_empty(&q->bufs)) {
		*to = q->bufs;
		to->next->prev = to;
		to->prev->next = to;
		list_init(&q->bufs);
	}
	q->count = 0;
	q->bytes = 0;
	q->cost = 0;
	if (q->spare)
		sock_buf_free(q->spare);
	q->spare = NULL;
}

void sock_queue_push(struct sock_queue *q, struct sock_buf *b)
{
	list_push_back(&q->bufs, &b->node);
	q->count++;
	q->bytes += buf_len(b);
	q->cost += buf_len(b) + SOCK_BUF_OVERHEAD;
}

void sock_queue_unlink(struct sock_queue *q, struct sock_buf *b)
{
	list_del(&b->node);
	q->count--;
	q->bytes -= buf_len(b);
	q->cost -= buf_len(b) + SOCK_BUF_OVERHEAD;
}

void sock_queue_consume(struct sock_queue *q, struct sock_buf *b, size_t n)
{
	b->start += (u32)n;
	q->bytes -= n;
	q->cost -= n;
}

struct sock_buf *sock_queue_alloc(struct sock_queue *q, size_t want)
{
	if (q->spare && want <= q->spare->cap) {
		struct sock_buf *b = q->spare;

		q->spare = NULL;
		b->start = b->end = 0;
		return b;
	}
	return sock_buf_new(MAX(want, SOCK_BUF_SMALL));
}

void sock_queue_recycle(struct sock_queue *q, struct sock_buf *b)
{
	if (!q->spare && b->cap == SOCK_BUF_SMALL)
		q->spare = b;
	else
		sock_buf_free(b);
}

/* Bytes in buffers of all sockets. */
static _Atomic size_t total_bytes;

static void release_buf(struct sock_buf *b)
{
	atomic_fetch_sub(&total_bytes, sizeof(*b) + b->cap);
	free(b);
}

struct sock_buf *sock_buf_new(size_t cap)
{
	size_t size = sizeof(struct sock_buf) + cap;
	struct sock_buf *b = NULL;

	if (atomic_fetch_add(&total_bytes, size) + size <= SOCK_BUF_TOTAL)
		b = malloc(size);
	if (!b) {
		atomic_fetch_sub(&total_bytes, size);
		return NULL;
	}
	memset(b, 0, sizeof(*b));
	list_init(&b->node);
	b->cap = (u32)cap;
	return b;
}

void sock_buf_free(struct sock_buf *b)
{
	if (!b)
		return;
	sock_name_put(b->from);
	if (b->fds) {
		unix_gc_not_in_flight(b->fds);
		scm_fds_free(b->fds);
	}
	release_buf(b);
}

void sock_buf_free_list(struct list *bufs)
{
	while (!list_empty(bufs)) {
		struct sock_buf *b = list_first(bufs, struct sock_buf, node);

		list_del(&b->node);
		sock_buf_free(b);
	}
}

/*
 * A file in flight may be the last reference to a socket whose queue holds
 * another such file, and so on, as long as a guest cares to make it. The
 * outermost call of a thread works through a list instead of recursing.
 */

static __thread struct {
	bool active;
	struct scm_fds **stack;
	size_t count, cap;
} pending;

static bool pending_push(struct scm_fds *fds)
{
	if (pending.count == pending.cap) {
		size_t cap = pending.cap ? pending.cap * 2 : 16;
		struct scm_fds **stack = realloc(pending.stack, cap * sizeof(*stack));

		if (!stack)
			return false;
		pending.stack = stack;
		pending.cap = cap;
	}
	pending.stack[pending.count++] = fds;
	return true;
}

static void put_files(struct scm_fds *fds)
{
	for (int i = 0; i < fds->count; i++)
		file_put(fds->file[i]);
	free(fds);
}

void scm_fds_free(struct scm_fds *fds)
{
	if (!fds)
		return;
	/* Without memory for the list, recursion is what remains. */
	if (pending.active && pending_push(fds))
		return;
	bool outer = !pending.active;
	pending.active = true;
	put_files(fds);
	if (!outer)
		return;
	while (pending.count)
		put_files(pending.stack[--pending.count]);
	free(pending.stack);
	pending.stack = NULL;
	pending.cap = 0;
	pending.active = false;
	unix_gc_run(NULL);
}

bool scm_fds_freeing(void)
{
	return pending.active;
}

struct scm_fds *scm_fds_dup(const struct scm_fds *fds)
{
	struct scm_fds *copy = malloc(sizeof(*copy) + (size_t)fds->count * sizeof(fds->file[0]));

	if (!copy)
		return NULL;
	copy->count = fds->count;
	for (int i = 0; i < fds->count; i++)
		copy->file[i] = file_get(fds->file[i]);
	return copy;
}
