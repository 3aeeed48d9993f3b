#include "sentry/fd/inotify.h"
#include "sentry/task/task.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

#define READ_EVENTS (EPOLLIN | EPOLLRDNORM)
/* Events about an object itself; the rest are about entries of a directory. */
#define SELF_EVENTS                                                                                \
	(IN_ACCESS | IN_MODIFY | IN_ATTRIB | IN_CLOSE | IN_OPEN | IN_DELETE_SELF | IN_MOVE_SELF)
#define CHILD_EVENTS                                                                               \
	(IN_ACCESS | IN_MODIFY | IN_ATTRIB | IN_CLOSE | IN_OPEN | IN_MOVE | IN_CREATE | IN_DELETE)

/* struct inotify_event without its name, which follows padded */
struct event_head {
	s32 wd;
	u32 mask, cookie, len;
};
_Static_assert(sizeof(struct event_head) == sizeof(struct inotify_event), "ABI");

struct event {
	struct list node;
	struct event_head ev;
	char name[];
};

struct inotify {
	struct list watches; /* watch.instance_node */
	struct list events;
	u32 event_count;
	size_t event_bytes;
	int next_wd;
	bool overflowed; /* the overflow event is queued */
	struct waitq waitq;
};

struct watch {
	struct list instance_node, inode_node;
	struct inotify *in;
	struct inode *inode; /* a reference */
	int wd;
	u32 mask;
};

/* inode->watches */
struct watch_head {
	struct list list; /* watch.inode_node */
};

static struct mutex lock = MUTEX_INIT(RANK_PIPE, "inotify"); /* everything above */
static _Atomic u32 instances;
static u32 watch_total;	    /* lock */
static size_t queued_total; /* lock */

/* ---- queueing ---- */

static bool same_as_last(struct inotify *in, int wd, u32 mask, u32 cookie, const char *name)
{
	struct event *last;

	if (list_empty(&in->events))
		return false;
	last = container_of(in->events.prev, struct event, node);
	return last->ev.wd == wd && last->ev.mask == mask && last->ev.cookie == cookie &&
	       strcmp(last->ev.len ? last->name : "", name) == 0;
}

static void queue_event(struct inotify *in, int wd, u32 mask, u32 cookie, const char *name)
{
	size_t len = *name ? (strlen(name) + 1 + 15) / 16 * 16 : 0;
	struct event *e;

	mutex_assert_held(&lock);
	if (same_as_last(in, wd, mask, cookie, name))
		return;
	if (in->event_count >= INOTIFY_MAX_EVENTS || queued_total >= INOTIFY_MAX_EVENT_BYTES) {
		if (in->overflowed)
			return;
		in->overflowed = true;
		wd = -1;
		mask = IN_Q_OVERFLOW;
		cookie = 0;
		len = 0;
	}
	e = calloc(1, sizeof(*e) + len);
	if (!e)
		return;
	e->ev = (struct event_head){ .wd = wd, .mask = mask, .cookie = cookie, .len = (u32)len };
	if (len)
		strcpy(e->name, name);
	list_push_back(&in->events, &e->node);
	in->event_count++;
	in->event_bytes += sizeof(e->ev) + len;
	queued_total += sizeof(*e) + len;
	waitq_wake(&in->waitq, READ_EVENTS);
}

/* Unlinks and frees w; its inode's reference is the caller's to put, after the lock. */
static struct inode *drop_watch(struct watch *w, bool tell)
{
	struct inode *inode = w->inode;
	struct watch_head *head = atomic_load(&inode->watches);

	mutex_assert_held(&lock);
	if (tell)
		queue_event(w->in, w->wd, IN_IGNORED, 0, "");
	list_del(&w->instance_node);
	list_del(&w->inode_node);
	watch_total--;
	free(w);
	if (list_empty(&head->list)) {
		atomic_store(&inode->watches, NULL);
		free(head);
	}
	return inode;
}

/* Watches that ended inside the hook; their inodes are put by whoever comes next without locks. */
struct dead_inode {
	struct dead_inode *next;
	struct inode *inode;
};
static struct dead_inode *dead_inodes; /* lock */

static void put_dead_inodes(void)
{
	for (;;) {
		struct dead_inode *d;

		mutex_lock(&lock);
		d = dead_inodes;
		if (d)
			dead_inodes = d->next;
		mutex_unlock(&lock);
		if (!d)
			return;
		inode_put(d->inode);
		free(d);
	}
}

/* Reports to inode's watches. Ends one-shot watches, and all when the object is gone. */
static void report(struct inode *inode, u32 mask, u32 cookie, const char *name)
{
	struct watch_head *head = inode ? atomic_load(&inode->watches) : NULL;
	u32 what = mask & IN_ALL_EVENTS;
	bool gone = mask & IN_EXCL_UNLINK;
	struct watch *w, *tmp;

	if (!head)
		return;
	mask &= ~(u32)IN_EXCL_UNLINK;
	/* The last drop frees head: find the end first. */
	struct watch *last = container_of(head->list.prev, struct watch, inode_node);
	for (w = list_first(&head->list, struct watch, inode_node); w; w = tmp) {
		bool ends = what & IN_DELETE_SELF;

		tmp = w == last ? NULL : list_first(&w->inode_node, struct watch, inode_node);
		if ((w->mask & what) && !(gone && (w->mask & IN_EXCL_UNLINK))) {
			queue_event(w->in, w->wd, mask, cookie, name);
			ends |= (w->mask & IN_ONESHOT) != 0;
		}
		if (ends) {
			struct dead_inode *d = malloc(sizeof(*d));

			if (!d)
				continue;
			*d = (struct dead_inode){ dead_inodes, drop_watch(w, true) };
			dead_inodes = d;
		}
	}
}

static void notify(struct inode *inode, struct inode *parent, const char *name, u32 mask,
		   u32 cookie)
{
	if (!(parent && atomic_load(&parent->watches)) && !(inode && atomic_load(&inode->watches)))
		return;
	MUTEX_GUARD(&lock);
	if (parent && (mask & CHILD_EVENTS))
		report(parent, mask, cookie, name ? name : "");
	/* As ever, the kind of what is gone or moved is not told. */
	if (mask & (IN_DELETE_SELF | IN_MOVE_SELF))
		mask &= ~(u32)IN_ISDIR;
	if (inode && (mask & SELF_EVENTS))
		report(inode, mask, cookie, "");
}

/* ---- the file ---- */

static ssize_t events_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct inotify *in = f->private;
	ssize_t total = 0, err = -EAGAIN;

	put_dead_inodes();
	MUTEX_GUARD(&lock);
	while (!list_empty(&in->events)) {
		struct event *e = list_first(&in->events, struct event, node);
		size_t size = sizeof(e->ev) + e->ev.len;

		if (size > dst->remaining) {
			err = -EINVAL;
			break;
		}
		if (kiov_put(dst, &e->ev, sizeof(e->ev)) != sizeof(e->ev) ||
		    (e->ev.len && kiov_put(dst, e->name, e->ev.len) != (ssize_t)e->ev.len)) {
			err = -EFAULT;
			break;
		}
		total += (ssize_t)size;
		list_del(&e->node);
		in->event_count--;
		in->event_bytes -= size;
		queued_total -= sizeof(*e) + e->ev.len;
		if (e->ev.mask == IN_Q_OVERFLOW)
			in->overflowed = false;
		free(e);
	}
	return total ? total : err;
}

static u32 inotify_poll(struct file *f)
{
	struct inotify *in = f->private;

	MUTEX_GUARD(&lock);
	return list_empty(&in->events) ? 0 : READ_EVENTS;
}

static struct waitq *inotify_waitq(struct file *f)
{
	struct inotify *in = f->private;

	return &in->waitq;
}

static s64 inotify_ioctl(struct file *f, u32 cmd, u64 arg)
{
	struct inotify *in = f->private;
	int value;

	if (cmd != FIONREAD)
		return -ENOTTY;
	mutex_lock(&lock);
	value = (int)in->event_bytes;
	mutex_unlock(&lock);
	return copy_out(current_task, ua(arg), &value, sizeof(value));
}

static void inotify_release(struct file *f)
{
	struct inotify *in = f->private;

	for (;;) {
		struct inode *inode = NULL;

		mutex_lock(&lock);
		if (!list_empty(&in->watches))
			inode = drop_watch(list_first(&in->watches, struct watch, instance_node),
					   false);
		mutex_unlock(&lock);
		if (!inode)
			break;
		inode_put(inode);
	}
	mutex_lock(&lock);
	while (!list_empty(&in->events)) {
		struct event *e = list_first(&in->events, struct event, node);

		queued_total -= sizeof(*e) + e->ev.len;
		list_del(&e->node);
		free(e);
	}
	mutex_unlock(&lock);
	waitq_destroy(&in->waitq);
	free(in);
	atomic_fetch_sub(&instances, 1);
	put_dead_inodes();
}

static void inotify_fdinfo(struct file *f, char *dst, size_t size)
{
	struct inotify *in = f->private;
	struct watch *w;
	size_t len = 0;

	if (size)
		dst[0] = 0;
	MUTEX_GUARD(&lock);
	list_for_each (w, &in->watches, instance_node) {
		int n;

		if (len >= size)
			break;
		n = snprintf(dst + len, size - len,
			     "inotify wd:%x ino:%llx sdev:%x mask:%x ignored_mask:0\n",
			     (unsigned)w->wd, (unsigned long long)w->inode->ino,
			     w->inode->sb ? w->inode->sb->dev_minor : 0, w->mask);
		if (n < 0)
			break;
		len += (size_t)n;
	}
}

static ssize_t inotify_text(struct file *f, char *dst, size_t size)
{
	int n = snprintf(dst, size, "anon_inode:inotify");

	return (size_t)n < size ? n : -ERANGE;
}

static const struct file_ops inotify_ops = {
	.kind = "inotify",
	.release = inotify_release,
	.read = events_read,
	.poll = inotify_poll,
	.waitq = inotify_waitq,
	.ioctl = inotify_ioctl,
	.fdinfo = inotify_fdinfo,
	.text = inotify_text,
};

bool file_is_inotify(struct file *f)
{
	return f->ops == &inotify_ops;
}

int inotify_new(const struct cred *cred, u32 flags, struct file **ret)
{
	struct inotify *in;
	struct inode *inode;
	int err;

	if (atomic_fetch_add(&instances, 1) >= INOTIFY_MAX_INSTANCES) {
		atomic_fetch_sub(&instances, 1);
		return -EMFILE;
	}
	in = calloc(1, sizeof(*in));
	if (!in) {
		atomic_fetch_sub(&instances, 1);
		return -ENOMEM;
	}
	list_init(&in->watches);
	list_init(&in->events);
	in->next_wd = 1;
	waitq_init(&in->waitq);
	err = vfs_anon_inode("inotify", 0600, cred, &inode);
	if (err == 0) {
		err = file_new(inode, NULL, O_RDONLY | (flags & O_NONBLOCK), cred, &inotify_ops, in,
			       ret);
		inode_put(inode);
	}
	if (err < 0) {
		waitq_destroy(&in->waitq);
		free(in);
		atomic_fetch_sub(&instances, 1);
		return err;
	}
	vfs_notify_hook = notify;
	return 0;
}

static struct watch *find_watch(struct inotify *in, struct inode *inode, int wd)
{
	struct watch_head *head;
	struct watch *w;

	mutex_assert_held(&lock);
	if (inode) {
		head = atomic_load(&inode->watches);
		if (!head)
			return NULL;
		list_for_each (w, &head->list, inode_node)
			if (w->in == in)
				return w;
		return NULL;
	}
	list_for_each (w, &in->watches, instance_node)
		if (w->wd == wd)
			return w;
	return NULL;
}

static int new_watch(struct inotify *in, struct inode *inode, u32 mask)
{
	struct watch_head *head = atomic_load(&inode->watches);
	struct watch *w;

	mutex_assert_held(&lock);
	if (watch_total >= INOTIFY_MAX_WATCHES || in->next_wd == INT32_MAX)
		return -ENOSPC;
	w = calloc(1, sizeof(*w));
	if (w && !head) {
		head = malloc(sizeof(*head));
		if (head) {
			list_init(&head->list);
			atomic_store(&inode->watches, head);
		}
	}
	if (!w || !head) {
		free(w);
		return -ENOMEM;
	}
	w->in = in;
	w->inode = inode_get(inode);
	w->mask = mask;
	w->wd = in->next_wd++;
	list_push_back(&in->watches, &w->instance_node);
	list_push_back(&head->list, &w->inode_node);
	watch_total++;
	return w->wd;
}

int inotify_add(struct file *f, struct inode *inode, u32 mask)
{
	struct inotify *in = f->private;
	u32 kept = mask & (IN_ALL_EVENTS | IN_ONESHOT | IN_EXCL_UNLINK);
	struct watch *w;

	put_dead_inodes();
	MUTEX_GUARD(&lock);
	w = find_watch(in, inode, 0);
	if (!w)
		return new_watch(in, inode, kept);
	if (mask & IN_MASK_CREATE)
		return -EEXIST;
	w->mask = mask & IN_MASK_ADD ? w->mask | kept : kept;
	return w->wd;
}

int inotify_remove(struct file *f, int wd)
{
	struct inotify *in = f->private;
	struct inode *inode = NULL;
	struct watch *w;

	mutex_lock(&lock);
	w = find_watch(in, NULL, wd);
	if (w)
		inode = drop_watch(w, true);
	mutex_unlock(&lock);
	if (!w)
		return -EINVAL;
	inode_put(inode);
	put_dead_inodes();
	return 0;
}
