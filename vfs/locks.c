#include "vfs/locks.h"
#include "base/log.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>

#define LOCKS_PER_INODE_MAX 65536
#define DEADLOCK_DEPTH_MAX 64
/* A fruitless search for a cycle ends after so many steps (a crowd of readers can branch widely).
 */
#define DEADLOCK_STEPS_MAX 10000

struct range_lock {
	struct list node; /* in vfs_locks.posix: an owner's together, by start */
	const void *owner;
	int pid, type;
	s64 start, end; /* inclusive */
};

struct flock_lock {
	struct list node;
	const void *owner;
	int type; /* LOCK_SH, LOCK_EX */
};

struct vfs_locks {
	struct waitq waitq;
	/* protected by locks_lock */
	struct list posix, flocks;
	u32 count;
};

/* A POSIX lock request that sleeps; for the search for cycles. */
struct waiting {
	struct list node;
	const void *owner;
	struct inode *inode; /* borrowed: the waiter has the file open */
	int type;
	s64 start, end;
};

/* One lock for all inodes: the search for cycles crosses them. */
static struct mutex locks_lock = MUTEX_INIT(RANK_LEAF, "vfs.locks");
static struct list all_waiting = LIST_INIT(all_waiting); /* protected by locks_lock */

static struct vfs_locks *locks_get(struct inode *inode)
{
	struct vfs_locks *l = atomic_load(&inode->locks), *mine;

	if (l)
		return l;
	mine = calloc(1, sizeof(*mine));
	if (!mine)
		return NULL;
	waitq_init(&mine->waitq);
	list_init(&mine->posix);
	list_init(&mine->flocks);
	if (atomic_compare_exchange_strong(&inode->locks, &l, mine))
		return mine;
	waitq_destroy(&mine->waitq);
	free(mine);
	return l;
}

void vfs_locks_free(struct inode *inode)
{
	struct vfs_locks *l = atomic_exchange(&inode->locks, NULL);
	struct range_lock *r, *rt;
	struct flock_lock *f, *ft;

	if (!l)
		return;
	list_for_each_safe (r, rt, &l->posix, node) {
		list_del(&r->node);
		free(r);
	}
	list_for_each_safe (f, ft, &l->flocks, node) {
		list_del(&f->node);
		free(f);
	}
	waitq_destroy(&l->waitq);
	free(l);
}

struct waitq *vfs_locks_waitq(struct inode *inode)
{
	struct vfs_locks *l = locks_get(inode);

	return l ? &l->waitq : NULL;
}

static void wake(struct vfs_locks *l)
{
	waitq_wake(&l->waitq, EPOLLIN | EPOLLOUT);
}

/* ---- flock ---- */

/* Removes owner's lock; true if there was one. locks_lock held. */
static bool flock_remove(struct vfs_locks *l, const void *owner)
{
	struct flock_lock *f;

	list_for_each (f, &l->flocks, node)
		if (f->owner == owner) {
			list_del(&f->node);
			l->count--;
			free(f);
			return true;
		}
	return false;
}

static int flock_add(struct vfs_locks *l, const void *owner, int type)
{
	struct flock_lock *f;

	list_for_each (f, &l->flocks, node)
		if (f->owner != owner && (type == LOCK_EX || f->type == LOCK_EX))
			return -EAGAIN;
	if (l->count >= LOCKS_PER_INODE_MAX || !(f = calloc(1, sizeof(*f))))
		return -ENOLCK;
	f->owner = owner;
	f->type = type;
	list_push_back(&l->flocks, &f->node);
	l->count++;
	return 0;
}

/* flock(2): a conversion removes the old lock first, so that it may be lost to somebody else. */
int vfs_flock(struct inode *inode, const struct lock_owner *owner, int op)
{
	int type = op & ~LOCK_NB, err = 0;
	struct vfs_locks *l;
	struct flock_lock *f;
	bool removed = false, same = false;

	if (type != LOCK_SH && type != LOCK_EX && type != LOCK_UN)
		return -EINVAL;
	l = locks_get(inode);
	if (!l)
		return -ENOLCK;
	mutex_lock(&locks_lock);
	list_for_each (f, &l->flocks, node)
		if (f->owner == owner->id && f->type == type)
			same = true;
	if (!same) {
		removed = flock_remove(l, owner->id);
		if (type != LOCK_UN)
			err = flock_add(l, owner->id, type);
	}
	mutex_unlock(&locks_lock);
	if (removed)
		wake(l);
	return err;
}

void vfs_flock_drop(struct inode *inode, const void *owner_id)
{
	struct vfs_locks *l = atomic_load(&inode->locks);
	bool removed;

	if (!l)
		return;
	mutex_lock(&locks_lock);
	removed = flock_remove(l, owner_id);
	mutex_unlock(&locks_lock);
	if (removed)
		wake(l);
}

/* ---- record locks; locks_lock held in this part ---- */

static bool conflicts(const struct range_lock *r, const void *owner, int type, s64 start, s64 end)
{
	return r->owner != owner && r->start <= end && start <= r->end &&
	       (type == F_WRLCK || r->type == F_WRLCK);
}

static struct range_lock *find_conflict(struct vfs_locks *l, const void *owner, int type, s64 start,
					s64 end)
{
	struct range_lock *r;

	list_for_each (r, &l->posix, node)
		if (conflicts(r, owner, type, start, end))
			return r;
	return NULL;
}

/* Room for what a change may need, so that it cannot fail half-way. */
struct spare {
	struct range_lock *a, *b;
};

static bool spare_alloc(struct spare *s)
{
	s->a = calloc(1, sizeof(*s->a));
	s->b = calloc(1, sizeof(*s->b));
	return s->a && s->b;
}

static void spare_free(struct spare *s)
{
	free(s->a);
	free(s->b);
}

/* Among its owner's, which F_GETLK finds in their order, else at the end. */
static void range_insert(struct vfs_locks *l, struct range_lock *r)
{
	struct list *before = &l->posix;
	bool seen = false;
	struct range_lock *other;

	list_for_each (other, &l->posix, node) {
		if (other->owner == r->owner ? other->start > r->start : seen) {
			before = &other->node;
			break;
		}
		seen |= other->owner == r->owner;
	}
	list_insert_between(&r->node, before->prev, before);
	l->count++;
}

static void range_delete(struct vfs_locks *l, struct range_lock *r)
{
	list_del(&r->node);
	l->count--;
	free(r);
}

/* Cuts [start, end] out of owner's locks; at most one of them is split in two. True if anything
 * changed. */
static bool range_cut(struct vfs_locks *l, const void *owner, s64 start, s64 end, struct spare *s)
{
	struct range_lock *r, *tmp;
	bool changed = false;

	list_for_each_safe (r, tmp, &l->posix, node) {
		if (r->owner != owner || r->start > end || start > r->end)
			continue;
		changed = true;
		if (r->start < start && r->end > end) {
			struct range_lock *tail = s->b;

			s->b = NULL;
			*tail = *r;
			tail->start = end + 1;
			r->end = start - 1;
			range_insert(l, tail);
			return true;
		}
		if (r->start < start)
			r->end = start - 1;
		else if (r->end > end)
			r->start = end + 1;
		else
			range_delete(l, r);
	}
	return changed;
}

/* Adds a lock on a range that owner does not hold, joined with equal neighbours. */
static void range_add(struct vfs_locks *l, const struct lock_owner *owner, int type, s64 start,
		      s64 end, struct spare *s)
{
	struct range_lock *n = s->a, *r, *tmp;

	s->a = NULL;
	*n = (struct range_lock){
		.owner = owner->id, .pid = owner->pid, .type = type, .start = start, .end = end
	};
	list_for_each_safe (r, tmp, &l->posix, node) {
		if (r->owner != owner->id || r->type != type)
			continue;
		if (r->end != INT64_MAX && r->end + 1 == n->start)
			n->start = r->start;
		else if (n->end != INT64_MAX && n->end + 1 == r->start)
			n->end = r->end;
		else
			continue;
		range_delete(l, r);
	}
	range_insert(l, n);
}

/* Does owner already hold exactly this over the whole range? Then nothing changes and nobody is
 * woken. */
static bool range_held(struct vfs_locks *l, const void *owner, int type, s64 start, s64 end)
{
	struct range_lock *r;

	list_for_each (r, &l->posix, node)
		if (r->owner == owner && r->type == type && r->start <= start && r->end >= end)
			return true;
	return false;
}

int vfs_posix_lock(struct inode *inode, const struct lock_owner *owner, int type, s64 start,
		   s64 end)
{
	struct vfs_locks *l = type == F_UNLCK ? atomic_load(&inode->locks) : locks_get(inode);
	struct spare s = { 0 };
	bool changed = false;
	int err = 0;

	if (start < 0 || end < start)
		return -EINVAL;
	if (!l)
		return type == F_UNLCK ? 0 : -ENOLCK;
	if (!spare_alloc(&s)) {
		spare_free(&s);
		return -ENOLCK;
	}
	mutex_lock(&locks_lock);
	if (type != F_UNLCK && find_conflict(l, owner->id, type, start, end)) {
		err = -EAGAIN;
	} else if (l->count + 2 > LOCKS_PER_INODE_MAX && type != F_UNLCK) {
		err = -ENOLCK;
	} else if (type == F_UNLCK || !range_held(l, owner->id, type, start, end)) {
		changed = range_cut(l, owner->id, start, end, &s);
		if (type != F_UNLCK)
			range_add(l, owner, type, start, end, &s);
	}
	mutex_unlock(&locks_lock);
	spare_free(&s);
	if (changed)
		wake(l);
	return err;
}

void vfs_posix_getlk(struct inode *inode, const struct lock_owner *owner, int type, s64 start,
		     s64 end, int *ret_type, s64 *ret_start, s64 *ret_end, int *ret_pid)
{
	struct vfs_locks *l = atomic_load(&inode->locks);
	struct range_lock *r = NULL;

	MUTEX_GUARD(&locks_lock);
	if (l)
		r = find_conflict(l, owner->id, type, start, end);
	if (!r) {
		*ret_type = F_UNLCK;
		return;
	}
	*ret_type = r->type;
	*ret_start = r->start;
	*ret_end = r->end;
	*ret_pid = r->pid;
}

void vfs_posix_drop(struct inode *inode, const void *owner_id)
{
	struct vfs_locks *l = atomic_load(&inode->locks);
	struct range_lock *r, *tmp;
	bool any = false;

	if (!l)
		return;
	mutex_lock(&locks_lock);
	list_for_each_safe (r, tmp, &l->posix, node)
		if (r->owner == owner_id) {
			range_delete(l, r);
			any = true;
		}
	mutex_unlock(&locks_lock);
	if (any)
		wake(l);
}

/* ---- deadlocks ---- */

/* Would a request of `owner` wait, through others that wait, for `target`? locks_lock held. */
static bool waits_for(const void *target, const void *owner, struct inode *inode, int type,
		      s64 start, s64 end, int depth, int *steps)
{
	struct vfs_locks *l = atomic_load(&inode->locks);
	struct range_lock *r;
	struct waiting *w;

	if (!l || depth > DEADLOCK_DEPTH_MAX)
		return false;
	list_for_each (r, &l->posix, node) {
		if (!conflicts(r, owner, type, start, end))
			continue;
		if (r->owner == target)
			return true;
		if (++*steps > DEADLOCK_STEPS_MAX)
			return false;
		list_for_each (w, &all_waiting, node)
			if (w->owner == r->owner && waits_for(target, w->owner, w->inode, w->type,
							      w->start, w->end, depth + 1, steps))
				return true;
	}
	return false;
}

int vfs_posix_wait_begin(struct inode *inode, const struct lock_owner *owner, int type, s64 start,
			 s64 end)
{
	struct waiting *w = calloc(1, sizeof(*w));
	int steps = 0;

	if (!w)
		return -ENOLCK;
	*w = (struct waiting){
		.owner = owner->id, .inode = inode, .type = type, .start = start, .end = end
	};
	MUTEX_GUARD(&locks_lock);
	/* OFD locks have no owner that could be said to wait. */
	if (owner->pid != -1 &&
	    waits_for(owner->id, owner->id, inode, type, start, end, 0, &steps)) {
		free(w);
		return -EDEADLK;
	}
	list_push_back(&all_waiting, &w->node);
	return 0;
}

void vfs_posix_wait_end(const struct lock_owner *owner)
{
	struct waiting *w;

	MUTEX_GUARD(&locks_lock);
	list_for_each (w, &all_waiting, node)
		if (w->owner == owner->id) {
			list_del(&w->node);
			free(w);
			return;
		}
}
