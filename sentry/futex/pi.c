/*
 * PI futexes (Linux: Documentation/locking/pi-futex.rst, man 2 futex).
 *
 * The word's protocol is kept, not the inheritance: the sentry does not
 * schedule. A waiter in the queue with `pi` set waits for the lock; owner_tid
 * says whose exit must hand it on. Who unlocks writes the next owner's tid into
 * the word before waking it, so a woken waiter owns the lock.
 *
 * An owner that exits: sets futex_released, then searches the buckets. A waiter
 * is queued and counted, then looks at futex_released. So one of them sees the other.
 */
#include "base/host_sync.h"
#include "sentry/futex/futex_impl.h"

/* The first waiter for the PI lock `key`, or NULL. Bucket lock held. */
static struct futex_waiter *first_pi_waiter(struct futex_bucket *b, const struct mm_futex_key *key)
{
	struct futex_waiter *w;

	list_for_each (w, &b->waiters, node)
		if (w->pi && futex_key_equal(&w->key, key))
			return w;
	return NULL;
}

/* Writes `new` if the word is still `old`; -EAGAIN when it is not. */
static int word_update(struct mm *mm, uaddr addr, u32 old, u32 new)
{
	u32 seen;
	int r = mm_cmpxchg32(mm, addr, old, new, &seen);

	if (r == 0 && seen != old)
		r = -EAGAIN;
	return r;
}

/* What a try to take the lock needs to know of the word's owner, looked up without locks. */
struct owner_ref {
	struct task *task; /* a reference or NULL */
	u32 tid;
};

static void owner_put(struct owner_ref *o)
{
	task_put(o->task);
	*o = (struct owner_ref){ 0 };
}

static int owner_lookup(struct task *t, u32 tid, struct owner_ref *o)
{
	owner_put(o);
	o->task = task_find(t->kernel, (int)tid);
	o->tid = tid;
	return o->task ? 0 : -ESRCH;
}

enum pi_step {
	PI_TAKEN,      /* the word names the taker now */
	PI_WAIT,       /* FUTEX_WAITERS is set; queue with *ret_owner */
	PI_FIND_OWNER, /* look up *ret_owner without locks, then again */
	PI_AGAIN,      /* the word changed, or its owner is exiting: again */
	PI_ERROR,
};

/*
 * Tries to take the PI word `addr` (in mm) for the thread `tid`. b is the word's
 * bucket, locked. try_only: do not announce a waiter.
 */
static enum pi_step pi_try(struct task *t, struct futex_bucket *b, const struct mm_futex_key *key,
			   uaddr addr, u32 tid, const struct owner_ref *known, bool try_only,
			   bool keep_waiters, u32 *ret_owner, s64 *ret_error)
{
	struct futex_waiter *top = first_pi_waiter(b, key);
	u32 cur, owner;
	int r = mm_load32(t->mm, addr, &cur);

	if (r < 0)
		goto error;
	owner = cur & FUTEX_TID_MASK;
	if (owner == tid) {
		r = -EDEADLK;
		goto error;
	}
	if (owner == 0 && top == NULL) {
		u32 new = tid | (cur & FUTEX_OWNER_DIED) | (keep_waiters ? FUTEX_WAITERS : 0);

		r = word_update(t->mm, addr, cur, new);
		if (r == -EAGAIN)
			return PI_AGAIN;
		if (r < 0)
			goto error;
		return PI_TAKEN;
	}
	if (top && owner != top->owner_tid && !(cur & FUTEX_OWNER_DIED)) {
		r = -EINVAL; /* the guest wrote over a word that has waiters */
		goto error;
	}
	if (try_only) {
		r = -EAGAIN;
		goto error;
	}
	*ret_owner = top ? top->owner_tid : owner;
	if (known->tid != *ret_owner || known->task == NULL)
		return PI_FIND_OWNER;
	switch (atomic_load(&known->task->futex_released)) {
	case 1: return PI_AGAIN;
	case 2: r = -ESRCH; goto error;
	}
	if (!(cur & FUTEX_WAITERS)) {
		r = word_update(t->mm, addr, cur, cur | FUTEX_WAITERS);
		if (r == -EAGAIN)
			return PI_AGAIN;
		if (r < 0)
			goto error;
	}
	return PI_WAIT;
error:
	*ret_error = r;
	return PI_ERROR;
}

/* Queues (or moves) a counted PI waiter; false when the owner began to exit meanwhile: it is not
 * queued then. */
static bool count_pi_waiter(struct futex_table *ft, struct futex_waiter *w,
			    const struct owner_ref *owner)
{
	atomic_fetch_add(&ft->pi_waiters, 1);
	if (atomic_load(&owner->task->futex_released) != 0) {
		atomic_fetch_sub(&ft->pi_waiters, 1);
		return false;
	}
	w->pi = true;
	w->owner_tid = owner->tid;
	return true;
}

s64 futex_lock_pi(struct task *t, uaddr addr, bool private_, u64 deadline_ns, bool try_only)
{
	struct futex_table *ft = t->kernel->futexes;
	struct futex_waiter w = { .task = t, .bitset = FUTEX_BITSET_MATCH_ANY, .addr = addr };
	struct owner_ref owner = { 0 };
	struct futex_bucket *b;
	s64 r = futex_key(t, addr, private_, &w.key);

	if (r < 0)
		return r;
	b = futex_bucket_of(ft, &w.key);
	for (;;) {
		enum pi_step step;
		u32 owner_tid = 0;

		mutex_lock(&b->lock);
		step = pi_try(t, b, &w.key, addr, (u32)t->tid, &owner, try_only, false, &owner_tid,
			      &r);
		if (step == PI_WAIT) {
			if (count_pi_waiter(ft, &w, &owner))
				futex_enqueue(b, &w);
			else
				step = PI_AGAIN;
		}
		mutex_unlock(&b->lock);
		if (step == PI_WAIT)
			break;
		if (step == PI_TAKEN)
			r = 0;
		if (step == PI_TAKEN || step == PI_ERROR)
			goto out;
		if (step == PI_FIND_OWNER && (r = owner_lookup(t, owner_tid, &owner)) < 0)
			goto out;
		if (step == PI_AGAIN)
			host_yield();
		if (task_signal_pending(t)) {
			r = -ERESTARTNOINTR;
			goto out;
		}
	}
	r = futex_sleep(t, &w, deadline_ns);
	if (!futex_unqueue(ft, &w, NULL))
		r = w.result;
	else if (r == -ERESTARTSYS)
		r = -ERESTARTNOINTR;
out:
	owner_put(&owner);
	mm_futex_key_put(&w.key);
	return r;
}

/*
 * Gives the lock to `next`: writes its tid over `cur` through mm and wakes it; the other
 * waiters then wait for it. Bucket locked. -EAGAIN when the word changed.
 */
static int hand_over(struct futex_table *ft, struct futex_bucket *b, struct futex_waiter *next,
		     struct mm *mm, uaddr addr, u32 cur, u32 extra_bits, struct wake_list *wl)
{
	struct mm_futex_key key = next->key;
	u32 tid = (u32)next->task->tid;
	struct futex_waiter *w;
	int r = word_update(mm, addr, cur, tid | FUTEX_WAITERS | extra_bits);

	if (r < 0)
		return r;
	list_for_each (w, &b->waiters, node)
		if (w->pi && futex_key_equal(&w->key, &key))
			w->owner_tid = tid;
	futex_wake_waiter(ft, next, 0, wl);
	return 0;
}

s64 futex_unlock_pi(struct task *t, uaddr addr, bool private_)
{
	struct futex_table *ft = t->kernel->futexes;
	struct wake_list wl = { 0 };
	struct mm_futex_key key;
	struct futex_bucket *b;
	s64 r = futex_key(t, addr, private_, &key);

	if (r < 0)
		return r;
	b = futex_bucket_of(ft, &key);
	do {
		struct futex_waiter *next;
		u32 cur;

		mutex_lock(&b->lock);
		next = first_pi_waiter(b, &key);
		r = mm_load32(t->mm, addr, &cur);
		if (r < 0)
			;
		else if ((cur & FUTEX_TID_MASK) != (u32)t->tid)
			r = -EPERM;
		else if (next == NULL)
			r = word_update(t->mm, addr, cur, 0);
		else if (next->owner_tid != (u32)t->tid)
			r = -EINVAL;
		else
			r = hand_over(ft, b, next, t->mm, addr, cur, 0, &wl);
		mutex_unlock(&b->lock);
	} while (r == -EAGAIN && !atomic_load(&t->killed));
	wake_list_flush(&wl);
	mm_futex_key_put(&key);
	return r == -EAGAIN ? -EINTR : r;
}

/* ---- exit of an owner ---- */

static struct futex_waiter *first_waiting_for(struct futex_bucket *b, u32 owner_tid)
{
	struct futex_waiter *w;

	list_for_each (w, &b->waiters, node)
		if (w->pi && w->owner_tid == owner_tid)
			return w;
	return NULL;
}

#define HANDOVER_TRIES 64

/* Hands every lock of the bucket that `tid` owns to its first waiter. Bucket locked. */
static void release_bucket(struct futex_table *ft, struct futex_bucket *b, u32 tid,
			   struct wake_list *wl)
{
	struct futex_waiter *w;

	while ((w = first_waiting_for(b, tid)) != NULL) {
		/* The waiter sleeps and cannot leave its mm before it has been taken off the queue.
		 */
		struct mm *mm = w->task->mm;
		int r = -EAGAIN;

		for (int i = 0; i < HANDOVER_TRIES && r == -EAGAIN; i++) {
			u32 cur;

			r = mm_load32(mm, w->addr, &cur);
			if (r == 0)
				r = hand_over(ft, b, w, mm, w->addr, cur, FUTEX_OWNER_DIED, wl);
		}
		if (r < 0) /* its word is gone or keeps changing: it is told instead */
			futex_wake_waiter(ft, w, r == -EAGAIN ? -ESRCH : r, wl);
	}
}

void futex_pi_release(struct task *t)
{
	struct futex_table *ft = t->kernel->futexes;
	struct wake_list wl = { 0 };

	if (atomic_load(&ft->pi_waiters) == 0)
		return;
	for (size_t i = 0; i < FUTEX_BUCKETS; i++) {
		struct futex_bucket *b = &ft->bucket[i];

		mutex_lock(&b->lock);
		release_bucket(ft, b, (u32)t->tid, &wl);
		mutex_unlock(&b->lock);
		wake_list_flush(&wl);
	}
}

/* ---- condition variables: wait on a plain word, be moved to a PI word ---- */

s64 futex_wait_requeue_pi(struct task *t, uaddr addr, bool private_, u32 val, u32 bitset,
			  u64 deadline_ns, uaddr to)
{
	struct futex_table *ft = t->kernel->futexes;
	struct futex_waiter w = { .task = t, .bitset = bitset, .addr = to, .requeue_pi = true };
	bool on_pi = false;
	s64 r;

	if (bitset == 0)
		return -EINVAL;
	r = futex_key(t, addr, private_, &w.key);
	if (r < 0)
		return r;
	r = futex_key(t, to, private_, &w.to_key);
	if (r < 0)
		goto out_key;
	r = -EINVAL;
	if (futex_key_equal(&w.key, &w.to_key))
		goto out;
	r = futex_enqueue_if(t, &w, addr, val);
	if (r < 0)
		goto out;
	r = futex_sleep(t, &w, deadline_ns);
	if (!futex_unqueue(ft, &w, &on_pi))
		r = w.result;
	else if (r == -ERESTARTSYS) /* once moved, the first word has changed: a restart would be
				       wrong */
		r = on_pi ? -EAGAIN : -ERESTARTNOINTR;
out:
	mm_futex_key_put(&w.to_key);
out_key:
	mm_futex_key_put(&w.key);
	return r;
}

/* Both buckets locked, the word checked, its lock taken for the first waiter or announced as waited
 * for. */
static s64 requeue_pi_locked(struct futex_table *ft, struct futex_bucket *b1,
			     const struct mm_futex_key *from, struct futex_bucket *b2,
			     const struct mm_futex_key *to, bool first_has_it,
			     const struct owner_ref *owner, int count, struct wake_list *wl)
{
	struct owner_ref new_owner = *owner;
	struct futex_waiter *w, *tmp;
	s64 done = 0;

	list_for_each_safe (w, tmp, &b1->waiters, node) {
		if (done >= count)
			break;
		if (w->pi || !futex_key_equal(&w->key, from))
			continue;
		if (!w->requeue_pi || !futex_key_equal(&w->to_key, to))
			return -EINVAL;
		if (first_has_it && done == 0) {
			/* Borrowed: its exit needs b2's lock before it can be seen in the queue. */
			new_owner = (struct owner_ref){ w->task, (u32)w->task->tid };
			w->requeue_pi = false;
			futex_wake_waiter(ft, w, 0, wl);
			done++;
			continue;
		}
		w->requeue_pi = false;
		w->pi = true;
		w->owner_tid = new_owner.tid;
		atomic_fetch_add(&ft->pi_waiters, 1);
		futex_move(w, b2, to);
		done++;
	}
	return done;
}

/* The first plain waiter on `from`, and whether there are more. Bucket locked. */
static struct futex_waiter *first_requeue_waiter(struct futex_bucket *b,
						 const struct mm_futex_key *from)
{
	struct futex_waiter *w;

	list_for_each (w, &b->waiters, node)
		if (!w->pi && futex_key_equal(&w->key, from))
			return w;
	return NULL;
}

struct requeue_pi {
	uaddr from, to;
	struct mm_futex_key key1, key2;
	int requeue;
	u32 expected;
};

/* One try under both locks. PI_WAIT and PI_TAKEN: done, *ret is the count (or an error). */
static enum pi_step requeue_pi_step(struct task *t, const struct requeue_pi *q,
				    struct owner_ref *owner, u32 *ret_owner, s64 *ret,
				    struct wake_list *wl)
{
	struct futex_table *ft = t->kernel->futexes;
	struct futex_bucket *b1 = futex_bucket_of(ft, &q->key1),
			    *b2 = futex_bucket_of(ft, &q->key2);
	enum pi_step step = PI_ERROR;
	struct futex_waiter *first;
	u32 cur;

	futex_lock_two(b1, b2);
	*ret = mm_load32(t->mm, q->from, &cur);
	if (*ret == 0 && cur != q->expected)
		*ret = -EAGAIN;
	if (*ret < 0)
		goto out;
	first = first_requeue_waiter(b1, &q->key1);
	if (first == NULL)
		goto out;
	*ret = -EINVAL;
	if (!first->requeue_pi || !futex_key_equal(&first->to_key, &q->key2))
		goto out;
	step = pi_try(t, b2, &q->key2, q->to, (u32)first->task->tid, owner, false, q->requeue > 0,
		      ret_owner, ret);
	if (step == PI_TAKEN) {
		*ret = requeue_pi_locked(ft, b1, &q->key1, b2, &q->key2, true, owner,
					 1 + q->requeue, wl);
	} else if (step == PI_WAIT) {
		/* Counted before the owner's state is read, so that its exit cannot miss the moved
		 * waiters. */
		atomic_fetch_add(&ft->pi_waiters, 1);
		if (atomic_load(&owner->task->futex_released) != 0)
			step = PI_AGAIN;
		else
			*ret = requeue_pi_locked(ft, b1, &q->key1, b2, &q->key2, false, owner,
						 1 + q->requeue, wl);
		atomic_fetch_sub(&ft->pi_waiters, 1);
	}
out:
	futex_unlock_two(b1, b2);
	return step;
}

s64 futex_cmp_requeue_pi(struct task *t, uaddr from, uaddr to, bool private_, int wake, int requeue,
			 u32 expected)
{
	struct requeue_pi q = {
		.from = from, .to = to, .requeue = MIN(requeue, INT32_MAX - 1), .expected = expected
	};
	struct owner_ref owner = { 0 };
	struct wake_list wl = { 0 };
	s64 r;

	if (wake != 1 || requeue < 0)
		return -EINVAL;
	r = futex_key(t, from, private_, &q.key1);
	if (r < 0)
		return r;
	r = futex_key(t, to, private_, &q.key2);
	if (r < 0)
		goto out_key1;
	if (futex_key_equal(&q.key1, &q.key2)) {
		r = -EINVAL;
		goto out;
	}
	for (;;) {
		u32 owner_tid = 0;
		enum pi_step step = requeue_pi_step(t, &q, &owner, &owner_tid, &r, &wl);

		if (step == PI_TAKEN || step == PI_WAIT || step == PI_ERROR)
			break;
		if (step == PI_FIND_OWNER && (r = owner_lookup(t, owner_tid, &owner)) < 0)
			break;
		if (step == PI_AGAIN)
			host_yield();
		if (task_signal_pending(t)) {
			r = -ERESTARTNOINTR;
			break;
		}
	}
out:
	wake_list_flush(&wl);
	owner_put(&owner);
	mm_futex_key_put(&q.key2);
out_key1:
	mm_futex_key_put(&q.key1);
	return r;
}
