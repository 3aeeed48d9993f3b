#include "sentry/fd/epoll.h"
#include "base/avl.h"
#include "base/log.h"
#include "sentry/fd/signalfd.h"
#include <stdio.h>
#include <stdlib.h>

#define PRIVATE_BITS (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)
#define EXCLUSIVE_OK                                                                               \
	(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)
/* Tasks in epoll_wait; not what other instances and polls of this one wait for. */
#define EPOLL_NEXT EPOLLMSG
#define STACK_EVENTS 32

struct epoll {
	struct refs refs; /* one of the file, one of each item */
	struct mutex lock;
	struct avl_root items;	/* lock */
	_Atomic u32 item_count; /* lock to write */
	/* graph_lock: longest chains found by the walks of these generations */
	u64 below_walk, above_walk;
	int below, above;
	struct file *file; /* borrowed; valid while items can exist */
	struct mutex ready_lock;
	struct list ready; /* ready_lock */
	struct waitq waitq;
};

struct epoll_item {
	struct avl_node node;
	struct epoll *ep; /* a reference */
	struct file *file;
	int fd;
	struct epoll_event ev; /* ep->lock */
	struct waiter waiter;
	struct list ready_node;	 /* ep->ready_lock */
	bool ready;		 /* ep->ready_lock: on ready or on a scan's list */
	struct list file_node;	 /* links_lock */
	struct thread_group *tg; /* signalfd: owner of the queue, a reference */
};

static struct mutex graph_lock = MUTEX_INIT(RANK_EPOLL, "epoll_graph");
static struct mutex links_lock = MUTEX_INIT(RANK_LEAF, "epoll_links");
static u64 graph_generation; /* graph_lock */
static _Atomic u32 watch_total;

static void epoll_put(struct epoll *ep)
{
	if (!refs_put(&ep->refs))
		return;
	waitq_destroy(&ep->waitq);
	mutex_destroy(&ep->ready_lock);
	mutex_destroy(&ep->lock);
	free(ep);
}

/* ---- items ---- */

static int compare(struct file *file, int fd, const struct epoll_item *it)
{
	if (file != it->file)
		return (uintptr_t)file < (uintptr_t)it->file ? -1 : 1;
	return fd < it->fd ? -1 : fd > it->fd;
}

static struct epoll_item *find_item(struct epoll *ep, struct file *file, int fd)
{
	struct avl_node *n = ep->items.top;

	mutex_assert_held(&ep->lock);
	while (n) {
		struct epoll_item *it = container_of(n, struct epoll_item, node);
		int c = compare(file, fd, it);

		if (c == 0)
			return it;
		n = c < 0 ? n->left : n->right;
	}
	return NULL;
}

static void insert_item(struct epoll *ep, struct epoll_item *it)
{
	struct avl_node *parent = NULL, **link = &ep->items.top;

	while (*link) {
		parent = *link;
		link = compare(it->file, it->fd, container_of(parent, struct epoll_item, node)) < 0
			       ? &parent->left
			       : &parent->right;
	}
	avl_insert(&ep->items, &it->node, parent, link);
	ep->item_count++;
}

/* To the end of the ready list, unless it is there already. ready_lock held. */
static void push_ready(struct epoll *ep, struct epoll_item *it)
{
	if (it->ready)
		return;
	it->ready = true;
	list_push_back(&ep->ready, &it->ready_node);
}

static void mark_ready(struct epoll *ep, struct epoll_item *it)
{
	mutex_lock(&ep->ready_lock);
	push_ready(ep, it);
	mutex_unlock(&ep->ready_lock);
}

/* Runs under the watched file's queue lock. */
static void item_event(struct waiter *w, u32 events)
{
	struct epoll_item *it = w->arg;
	struct epoll *ep = it->ep;

	mark_ready(ep, it);
	waitq_wake_nested(&ep->waitq, EPOLLIN | EPOLLRDNORM);
}

static void watch(struct epoll_item *it)
{
	struct waitq *q = vfs_waitq(it->file);

	it->waiter = (struct waiter){
		.events = it->ev.events & ~PRIVATE_BITS,
		.exclusive = it->ev.events & EPOLLEXCLUSIVE,
		.fn = item_event,
		.arg = it,
	};
	if (!q)
		return;
	list_init(&it->waiter.node);
	waitq_add(q, &it->waiter);
}

/* What holds now of what the item asks for; 0 for a spent one-shot item. */
static u32 item_poll(struct epoll_item *it)
{
	u32 wanted = it->ev.events & ~PRIVATE_BITS;

	if (!wanted)
		return 0;
	return vfs_poll(it->file) & wanted;
}

/* ep->lock held. The file's list entry goes last: until then the file cannot be freed. */
static void remove_item(struct epoll_item *it)
{
	struct epoll *ep = it->ep;

	mutex_assert_held(&ep->lock);
	waitq_remove(&it->waiter);
	mutex_lock(&ep->ready_lock);
	list_del(&it->ready_node);
	mutex_unlock(&ep->ready_lock);
	avl_remove(&ep->items, &it->node);
	ep->item_count--;
	mutex_lock(&links_lock);
	list_del(&it->file_node);
	mutex_unlock(&links_lock);
	thread_group_put(it->tg);
	atomic_fetch_sub(&watch_total, 1);
	free(it);
}

/* file->on_last_put: nothing may watch a file that goes. */
static void watched_file_gone(struct file *f)
{
	for (;;) {
		struct epoll_item *it;
		struct epoll *ep;
		int fd;

		mutex_lock(&links_lock);
		if (list_empty(&f->epoll_items)) {
			mutex_unlock(&links_lock);
			return;
		}
		it = list_first(&f->epoll_items, struct epoll_item, file_node);
		ep = it->ep;
		fd = it->fd;
		refs_get(&ep->refs);
		mutex_unlock(&links_lock);
		/* The instance may have removed it meanwhile: look it up again by key. */
		mutex_lock(&ep->lock);
		it = find_item(ep, f, fd);
		if (it) {
			remove_item(it);
			mutex_unlock(&ep->lock);
			epoll_put(ep);
		} else {
			mutex_unlock(&ep->lock);
		}
		epoll_put(ep);
	}
}

/* ---- collecting ---- */

struct collected {
	struct epoll_event ev;
	struct file *file; /* a key, not to be followed */
	int fd;
	u32 events; /* as they were: one-shot may have been spent */
};

static void splice_front(struct list *head, struct list *from)
{
	if (list_empty(from))
		return;
	from->prev->next = head->next;
	head->next->prev = from->prev;
	head->next = from->next;
	from->next->prev = head;
	list_init(from);
}

static struct epoll_item *pop_ready(struct epoll *ep, struct list *from)
{
	struct epoll_item *it = NULL;

	mutex_lock(&ep->ready_lock);
	if (!list_empty(from)) {
		it = list_first(from, struct epoll_item, ready_node);
		list_del(&it->ready_node);
		it->ready = false; /* before the poll: a later event counts again */
	}
	mutex_unlock(&ep->ready_lock);
	return it;
}

/*
 * Takes at most max events off the ready list. Level-triggered items go back to its end, so that
 * all get their turn; what was the end before is the last one to look at. *ret_more: something is
 * still on the list.
 */
static int collect(struct epoll *ep, struct collected *out, int max, bool *ret_more)
{
	struct epoll_item *it, *last = NULL;
	int n = 0;

	mutex_lock(&ep->lock);
	mutex_lock(&ep->ready_lock);
	if (!list_empty(&ep->ready))
		last = list_entry(ep->ready.prev, struct epoll_item, ready_node);
	while (n < max && last) {
		u32 events;

		it = list_first(&ep->ready, struct epoll_item, ready_node);
		list_del(&it->ready_node);
		it->ready = false; /* before the poll: a later event counts again */
		if (it == last)
			last = NULL;
		mutex_unlock(&ep->ready_lock);
		events = item_poll(it);
		mutex_lock(&ep->ready_lock);
		if (!events)
			continue;
		out[n++] = (struct collected){
			{ events, it->ev.data }, it->file, it->fd, it->ev.events
		};
		if (it->ev.events & EPOLLONESHOT)
			it->ev.events &= PRIVATE_BITS;
		else if (!(it->ev.events & EPOLLET))
			push_ready(ep, it);
	}
	*ret_more = !list_empty(&ep->ready);
	mutex_unlock(&ep->ready_lock);
	mutex_unlock(&ep->lock);
	return n;
}

/* The guest's buffer was bad: the events are still to be had. */
static void give_back(struct epoll *ep, const struct collected *got, int n)
{
	MUTEX_GUARD(&ep->lock);
	for (int i = 0; i < n; i++) {
		struct epoll_item *it = find_item(ep, got[i].file, got[i].fd);

		if (!it)
			continue;
		if (!(it->ev.events & ~PRIVATE_BITS))
			it->ev.events = got[i].events;
		mark_ready(ep, it);
	}
}

static s64 hand_out(struct task *t, struct epoll *ep, const struct collected *got, int n,
		    uaddr events)
{
	for (int i = 0; i < n; i++)
		if (copy_out(t, ua_add(events, (u64)i * sizeof(got[i].ev)), &got[i].ev,
			     sizeof(got[i].ev)) < 0) {
			give_back(ep, got + i, n - i);
			return i ? i : -EFAULT;
		}
	return n;
}

/* Collects, sleeping until there is something. The number, 0, or -errno of task_block. */
static int collect_wait(struct task *t, struct epoll *ep, struct collected *out, int max,
			u64 deadline, bool *ret_more)
{
	struct waiter w;
	int n = collect(ep, out, max, ret_more), err = 0;

	while (n == 0 && err == 0 && deadline != 0) {
		task_waiter_init(&w, t, EPOLLIN | EPOLLRDNORM | EPOLL_NEXT);
		w.exclusive = true;
		task_block_prepare(t);
		waitq_add(&ep->waitq, &w);
		n = collect(ep, out, max, ret_more);
		if (n == 0)
			err = task_block(t, deadline);
		waitq_remove(&w);
		/* Even when a signal or the clock ended it: an exclusive wake must not be lost. */
		if (n == 0)
			n = collect(ep, out, max, ret_more);
	}
	if (n == 0 && err < 0 && err != -ETIMEDOUT)
		return err == -ERESTARTSYS ? -EINTR : err;
	return n;
}

s64 epoll_wait_events(struct task *t, struct file *epf, uaddr events, int max, u64 deadline)
{
	struct epoll *ep = epf->private;
	struct collected few[STACK_EVENTS], *got = few;
	bool more = false;
	u32 items = atomic_load_explicit(&ep->item_count, memory_order_relaxed);
	s64 ret;
	int n, cap;

	cap = (int)MIN((u32)max, MAX(items, (u32)STACK_EVENTS));
	if (cap > STACK_EVENTS) {
		got = malloc((size_t)cap * sizeof(*got));
		if (!got) {
			got = few;
			cap = STACK_EVENTS;
		}
	}
	n = collect_wait(t, ep, got, cap, deadline, &more);
	ret = n > 0 ? hand_out(t, ep, got, n, events) : n;
	/* Who waits has looked under ep->lock, before collect did: it is counted by now. */
	if (more && waitq_active(&ep->waitq))
		waitq_wake(&ep->waitq, EPOLL_NEXT);
	if (got != few)
		free(got);
	return ret;
}

/* ---- the file ---- */

/* True readiness of an inner instance: drops stale entries, keeps the rest. */
static u32 epoll_file_poll(struct file *f)
{
	struct epoll *ep = f->private;
	struct list scan;
	struct epoll_item *it;
	u32 mask = 0;

	list_init(&scan);
	mutex_lock_nested(&ep->lock);
	mutex_lock(&ep->ready_lock);
	splice_front(&scan, &ep->ready);
	mutex_unlock(&ep->ready_lock);
	while (!mask && (it = pop_ready(ep, &scan)))
		if (item_poll(it)) {
			mark_ready(ep, it);
			mask = EPOLLIN | EPOLLRDNORM;
		}
	mutex_lock(&ep->ready_lock);
	splice_front(&ep->ready, &scan);
	mutex_unlock(&ep->ready_lock);
	mutex_unlock(&ep->lock);
	return mask;
}

static struct waitq *epoll_file_waitq(struct file *f)
{
	struct epoll *ep = f->private;

	return &ep->waitq;
}

static void epoll_file_release(struct file *f)
{
	struct epoll *ep = f->private;
	struct avl_node *n;
	u32 removed = 0;

	mutex_lock(&ep->lock);
	while ((n = avl_first(&ep->items))) {
		remove_item(container_of(n, struct epoll_item, node));
		removed++;
	}
	mutex_unlock(&ep->lock);
	while (removed--)
		epoll_put(ep);
	epoll_put(ep);
}

static void epoll_file_fdinfo(struct file *f, char *dst, size_t size)
{
	struct epoll *ep = f->private;
	size_t len = 0;

	if (size)
		dst[0] = 0;
	MUTEX_GUARD(&ep->lock);
	for (struct avl_node *n = avl_first(&ep->items); n && len < size; n = avl_next(n)) {
		struct epoll_item *it = container_of(n, struct epoll_item, node);
		int w = snprintf(dst + len, size - len,
				 "tfd: %8d events: %8x data: %16llx  pos:%lli ino:%llx sdev:%x\n",
				 it->fd, it->ev.events, (unsigned long long)it->ev.data.u64, 0LL,
				 (unsigned long long)it->file->inode->ino, 0U);

		if (w < 0)
			return;
		len += (size_t)w;
	}
}

static const struct file_ops epoll_ops = {
	.kind = "eventpoll",
	.release = epoll_file_release,
	.poll = epoll_file_poll,
	.waitq = epoll_file_waitq,
	.fdinfo = epoll_file_fdinfo,
};

bool file_is_epoll(struct file *f)
{
	return f->ops == &epoll_ops;
}

int epoll_file_new(const struct cred *cred, struct file **ret)
{
	struct epoll *ep = calloc(1, sizeof(*ep));
	struct inode *inode;
	int err;

	if (!ep)
		return -ENOMEM;
	err = vfs_anon_inode("eventpoll", 0600, cred, &inode);
	if (err < 0) {
		free(ep);
		return err;
	}
	refs_init(&ep->refs, "epoll");
	mutex_init(&ep->lock, RANK_EPOLL, "epoll");
	mutex_init(&ep->ready_lock, RANK_LEAF, "epoll_ready");
	list_init(&ep->ready);
	waitq_init(&ep->waitq);
	err = file_new(inode, NULL, O_RDWR, cred, &epoll_ops, ep, ret);
	inode_put(inode);
	if (err < 0) {
		epoll_put(ep);
		return err;
	}
	ep->file = *ret;
	return 0;
}

/* ---- nesting ---- */

/*
 * Longest chain of instances from ep downwards, ep counted; more than the limit if it meets
 * `avoid`. Each instance is walked once a generation. graph_lock held.
 */
static int depth_below(struct epoll *ep, struct epoll *avoid, int level)
{
	int deepest = 0;

	mutex_assert_held(&graph_lock);
	if (ep == avoid || level > EPOLL_MAX_NESTING)
		return EPOLL_MAX_NESTING + 1;
	if (ep->below_walk == graph_generation)
		return ep->below;
	mutex_lock_nested(&ep->lock);
	for (struct avl_node *n = avl_first(&ep->items); n; n = avl_next(n)) {
		struct epoll_item *it = container_of(n, struct epoll_item, node);
		int d;

		if (!file_is_epoll(it->file))
			continue;
		d = depth_below(it->file->private, avoid, level + 1);
		deepest = MAX(deepest, d);
		if (deepest > EPOLL_MAX_NESTING)
			break;
	}
	mutex_unlock(&ep->lock);
	ep->below_walk = graph_generation;
	ep->below = deepest + 1;
	return ep->below;
}

/* Takes references to the instances that watch ep. Their number, at most EPOLL_MAX_PARENTS. */
static int parents_of(struct epoll *ep, struct epoll *up[EPOLL_MAX_PARENTS])
{
	struct epoll_item *it;
	int count = 0;

	mutex_lock(&links_lock);
	list_for_each (it, &ep->file->epoll_items, file_node) {
		if (count == EPOLL_MAX_PARENTS)
			break;
		refs_get(&it->ep->refs);
		up[count++] = it->ep;
	}
	mutex_unlock(&links_lock);
	return count;
}

/* Longest chain upwards, ep counted. graph_lock held. */
static int depth_above(struct epoll *ep, int level)
{
	struct epoll *up[EPOLL_MAX_PARENTS];
	int count, deepest = 0;

	mutex_assert_held(&graph_lock);
	if (level > EPOLL_MAX_NESTING)
		return 1;
	if (ep->above_walk == graph_generation)
		return ep->above;
	count = parents_of(ep, up);
	for (int i = 0; i < count; i++) {
		int d = depth_above(up[i], level + 1);

		deepest = MAX(deepest, d);
		epoll_put(up[i]);
	}
	ep->above_walk = graph_generation;
	ep->above = deepest + 1;
	return ep->above;
}

static int check_nesting(struct epoll *ep, struct epoll *target)
{
	struct epoll *up[EPOLL_MAX_PARENTS];
	int count, below;

	mutex_assert_held(&graph_lock);
	graph_generation++;
	below = depth_below(target, ep, 1);
	if (below > EPOLL_MAX_NESTING || depth_above(ep, 1) + below > EPOLL_MAX_NESTING)
		return -ELOOP;
	count = parents_of(target, up);
	for (int i = 0; i < count; i++)
		epoll_put(up[i]);
	return count >= EPOLL_MAX_PARENTS ? -EINVAL : 0;
}

/* ---- epoll_ctl ---- */

static int add_item(struct epoll *ep, int fd, struct file *target, const struct epoll_event *event)
{
	struct epoll_item *it;

	mutex_assert_held(&ep->lock);
	if (find_item(ep, target, fd))
		return -EEXIST;
	if (atomic_fetch_add(&watch_total, 1) >= EPOLL_MAX_WATCHES) {
		atomic_fetch_sub(&watch_total, 1);
		return -ENOSPC;
	}
	it = calloc(1, sizeof(*it));
	if (!it) {
		atomic_fetch_sub(&watch_total, 1);
		return -ENOMEM;
	}
	refs_get(&ep->refs);
	it->ep = ep;
	it->file = target;
	it->fd = fd;
	it->ev = *event;
	it->ev.events |= EPOLLERR | EPOLLHUP; /* spent one-shot items lose these too */
	list_init(&it->ready_node);
	if (file_is_signalfd(target) && current_task)
		it->tg = thread_group_get(current_task->tg);
	insert_item(ep, it);
	mutex_lock(&links_lock);
	target->on_last_put = watched_file_gone;
	atomic_store(&target->epoll_hook, (void *)ep);
	list_push_back(&target->epoll_items, &it->file_node);
	mutex_unlock(&links_lock);
	watch(it);
	if (item_poll(it)) {
		mark_ready(ep, it);
		waitq_wake(&ep->waitq, EPOLLIN | EPOLLRDNORM);
	}
	return 0;
}

static int modify_item(struct epoll *ep, struct epoll_item *it, const struct epoll_event *event)
{
	mutex_assert_held(&ep->lock);
	if ((it->ev.events | event->events) & EPOLLEXCLUSIVE)
		return -EINVAL;
	waitq_remove(&it->waiter);
	it->ev = *event;
	it->ev.events |= EPOLLERR | EPOLLHUP;
	watch(it);
	if (item_poll(it)) {
		mark_ready(ep, it);
		waitq_wake(&ep->waitq, EPOLLIN | EPOLLRDNORM);
	}
	return 0;
}

/* Regular files, directories and devices without readiness cannot be watched. */
static bool can_watch(struct file *target)
{
	if (vfs_waitq(target))
		return true;
	return target->ops->poll && !inode_is_reg(target->inode) && !inode_is_dir(target->inode);
}

static int control_locked(struct epoll *ep, int op, int fd, struct file *target,
			  const struct epoll_event *event)
{
	struct epoll_item *it = find_item(ep, target, fd);

	switch (op) {
	case EPOLL_CTL_ADD: return add_item(ep, fd, target, event);
	case EPOLL_CTL_MOD: return it ? modify_item(ep, it, event) : -ENOENT;
	case EPOLL_CTL_DEL:
		if (!it)
			return -ENOENT;
		remove_item(it);
		return 1;
	default: return -EINVAL;
	}
}

int epoll_control(struct file *epf, int op, int fd, struct file *target,
		  const struct epoll_event *event)
{
	struct epoll *ep = epf->private;
	bool nested = op == EPOLL_CTL_ADD && file_is_epoll(target);
	int ret = 0;

	if (!can_watch(target))
		return -EPERM;
	if (target == epf || !file_is_epoll(epf))
		return -EINVAL;
	if (!event && op != EPOLL_CTL_DEL)
		return -EFAULT;
	if (event && (event->events & EPOLLEXCLUSIVE) && op != EPOLL_CTL_DEL &&
	    (op == EPOLL_CTL_MOD || file_is_epoll(target) || (event->events & ~EXCLUSIVE_OK)))
		return -EINVAL;
	if (nested) {
		mutex_lock(&graph_lock);
		ret = check_nesting(ep, target->private);
		mutex_lock_nested(&ep->lock);
	} else {
		mutex_lock(&ep->lock);
	}
	if (ret == 0)
		ret = control_locked(ep, op, fd, target, event);
	mutex_unlock(&ep->lock);
	if (nested)
		mutex_unlock(&graph_lock);
	if (ret == 1) { /* removed: its reference */
		epoll_put(ep);
		ret = 0;
	}
	return ret;
}
