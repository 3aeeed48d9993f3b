/*
 * Plain futexes: buckets, wait, wake, requeue, wake_op.
 */
#include "base/log.h"
#include "sentry/futex/futex_impl.h"

#include <stdlib.h>

struct futex_table *futex_table_new(void)
{
	struct futex_table *ft = aligned_alloc(CACHE_LINE, sizeof(*ft));

	if (ft == NULL)
		return NULL;
	for (size_t i = 0; i < FUTEX_BUCKETS; i++) {
		mutex_init(&ft->bucket[i].lock, RANK_FUTEX, "futex bucket");
		list_init(&ft->bucket[i].waiters);
	}
	atomic_init(&ft->pi_waiters, 0);
	return ft;
}

void futex_table_free(struct futex_table *ft)
{
	if (ft == NULL)
		return;
	for (size_t i = 0; i < FUTEX_BUCKETS; i++) {
		ASSERT(list_empty(&ft->bucket[i].waiters));
		mutex_destroy(&ft->bucket[i].lock);
	}
	free(ft);
}

/* ---- keys and buckets ---- */

int futex_key(struct task *t, uaddr addr, bool private_, struct mm_futex_key *ret)
{
	if (addr.v % sizeof(u32))
		return -EINVAL;
	return mm_futex_key(t->mm, addr, private_, ret);
}

bool futex_key_equal(const struct mm_futex_key *a, const struct mm_futex_key *b)
{
	return a->object == b->object && a->offset == b->offset;
}

static void key_dup(struct mm_futex_key *dst, const struct mm_futex_key *src)
{
	*dst = *src;
	if (src->shared) {
		struct mappable *m = src->object;

		m->ops->get(m);
	}
}

struct futex_bucket *futex_bucket_of(struct futex_table *ft, const struct mm_futex_key *key)
{
	u64 h = (u64)(uintptr_t)key->object * 0x9e3779b97f4a7c15ULL;

	h ^= key->offset >> 2;
	h *= 0xff51afd7ed558ccdULL;
	return &ft->bucket[(h >> 32) % FUTEX_BUCKETS];
}

void futex_lock_two(struct futex_bucket *a, struct futex_bucket *b)
{
	if (a > b) {
		struct futex_bucket *swap = a;

		a = b;
		b = swap;
	}
	mutex_lock(&a->lock);
	if (a != b)
		mutex_lock_nested(&b->lock);
}

void futex_unlock_two(struct futex_bucket *a, struct futex_bucket *b)
{
	mutex_unlock(&a->lock);
	if (a != b)
		mutex_unlock(&b->lock);
}

/* ---- waiters ---- */

/* Ends a wake list: not NULL, which means "on no list". */
#define WAKE_LIST_END ((struct task *)1)

static void wake_list_add(struct wake_list *wl, struct task *t)
{
	struct task *none = NULL;

	if (!atomic_compare_exchange_strong(&t->futex_wake_next, &none, WAKE_LIST_END))
		return;
	task_get(t);
	if (wl->tail)
		atomic_store(&wl->tail->futex_wake_next, t);
	else
		wl->head = t;
	wl->tail = t;
}

void wake_list_flush(struct wake_list *wl)
{
	struct task *t = wl->head;

	while (t && t != WAKE_LIST_END) {
		struct task *next = atomic_exchange(&t->futex_wake_next, NULL);

		task_wake(t);
		task_put(t);
		t = next;
	}
	*wl = (struct wake_list){ 0 };
}

void futex_enqueue(struct futex_bucket *b, struct futex_waiter *w)
{
	mutex_assert_held(&b->lock);
	atomic_store(&w->bucket, b);
	list_push_back(&b->waiters, &w->node);
}

int futex_enqueue_if(struct task *t, struct futex_waiter *w, uaddr addr, u32 val)
{
	struct futex_bucket *b = futex_bucket_of(t->kernel->futexes, &w->key);
	u32 cur;
	int r;

	MUTEX_GUARD(&b->lock);
	r = mm_load32(t->mm, addr, &cur);
	if (r == 0 && cur != val)
		r = -EAGAIN;
	if (r == 0)
		futex_enqueue(b, w);
	return r;
}

void futex_wake_waiter(struct futex_table *ft, struct futex_waiter *w, s64 result,
		       struct wake_list *wl)
{
	struct task *t = w->task;

	list_del(&w->node);
	if (w->pi)
		atomic_fetch_sub(&ft->pi_waiters, 1);
	w->result = result;
	/* The waiter's thread cannot be gone before `woken` is stored; the list's reference keeps
	 * the task after. */
	wake_list_add(wl, t);
	atomic_store(&w->woken, true);
}

void futex_move(struct futex_waiter *w, struct futex_bucket *to, const struct mm_futex_key *key)
{
	struct mm_futex_key old = w->key;

	list_del(&w->node);
	key_dup(&w->key, key);
	/* Never the last reference: the requeueing task holds one. */
	mm_futex_key_put(&old);
	futex_enqueue(to, w);
}

int futex_sleep(struct task *t, struct futex_waiter *w, u64 deadline_ns)
{
	for (;;) {
		int r;

		task_block_prepare(t);
		if (atomic_load(&w->woken))
			return 0;
		r = task_block(t, deadline_ns);
		if (r < 0)
			return r;
	}
}

bool futex_unqueue(struct futex_table *ft, struct futex_waiter *w, bool *ret_pi)
{
	struct futex_bucket *b;
	bool queued;

	if (atomic_load(&w->woken))
		return false;
	for (;;) { /* a requeue may move it between load and lock */
		b = atomic_load(&w->bucket);
		mutex_lock(&b->lock);
		if (b == atomic_load(&w->bucket))
			break;
		mutex_unlock(&b->lock);
	}
	queued = !atomic_load(&w->woken);
	if (queued) {
		list_del(&w->node);
		if (w->pi)
			atomic_fetch_sub(&ft->pi_waiters, 1);
		if (ret_pi)
			*ret_pi = w->pi;
	}
	mutex_unlock(&b->lock);
	return queued;
}

/* ---- wait ---- */

static s64 wait_restart(struct task *t, struct restart_block *rb)
{
	return futex_wait(t, ua(rb->arg[0]), rb->arg[4], (u32)rb->arg[1], (u32)rb->arg[3],
			  rb->arg[2], true);
}

s64 futex_wait(struct task *t, uaddr addr, bool private_, u32 val, u32 bitset, u64 deadline_ns,
	       bool relative)
{
	struct futex_table *ft = t->kernel->futexes;
	struct futex_waiter w = { .task = t, .bitset = bitset, .addr = addr };
	s64 r;

	if (bitset == 0)
		return -EINVAL;
	r = futex_key(t, addr, private_, &w.key);
	if (r < 0)
		return r;
	r = futex_enqueue_if(t, &w, addr, val);
	if (r == 0) {
		r = futex_sleep(t, &w, deadline_ns);
		if (!futex_unqueue(ft, &w, NULL))
			r = w.result;
	}
	mm_futex_key_put(&w.key);
	if (r == -ERESTARTSYS && deadline_ns != NO_DEADLINE) {
		/* The deadline is absolute by now, whatever it was: a second run must not start it
		 * anew. */
		t->restart = (struct restart_block){
			.fn = wait_restart, .arg = { addr.v, val, deadline_ns, bitset, private_ }
		};
		r = -ERESTART_RESTARTBLOCK;
	}
	return r;
}

/* ---- wake ---- */

/* Bucket lock held. Like Linux, wakes at least one. PI waiters on the word are a mistake: -EINVAL.
 */
static s64 wake_locked(struct futex_table *ft, struct futex_bucket *b,
		       const struct mm_futex_key *key, u32 bitset, int count, struct wake_list *wl)
{
	struct futex_waiter *w, *tmp;
	s64 woken = 0;

	list_for_each_safe (w, tmp, &b->waiters, node) {
		if (!futex_key_equal(&w->key, key))
			continue;
		if (w->pi || w->requeue_pi)
			return -EINVAL;
		if (!(w->bitset & bitset))
			continue;
		futex_wake_waiter(ft, w, 0, wl);
		if (++woken >= count)
			break;
	}
	return woken;
}

s64 futex_wake(struct task *t, uaddr addr, bool private_, u32 bitset, int count)
{
	struct futex_table *ft = t->kernel->futexes;
	struct wake_list wl = { 0 };
	struct mm_futex_key key;
	struct futex_bucket *b;
	s64 r;

	if (bitset == 0)
		return -EINVAL;
	r = futex_key(t, addr, private_, &key);
	if (r < 0)
		return r;
	b = futex_bucket_of(ft, &key);
	mutex_lock(&b->lock);
	r = wake_locked(ft, b, &key, bitset, count, &wl);
	mutex_unlock(&b->lock);
	wake_list_flush(&wl);
	mm_futex_key_put(&key);
	return r;
}

s64 futex_wake_addr(struct task *t, uaddr addr, int count)
{
	return futex_wake(t, addr, false, FUTEX_BITSET_MATCH_ANY, count);
}

void futex_clear_child_tid(struct task *t)
{
	uaddr addr = t->clear_child_tid;

	t->clear_child_tid = ua(0);
	if (addr.v == 0 || t->mm == NULL)
		return;
	/* Nobody left to tell about an address that has become bad. */
	if (copy_out(t, addr, &(u32){ 0 }, sizeof(u32)) == 0)
		futex_wake_addr(t, addr, 1);
}

/* ---- requeue ---- */

/* Both buckets locked. */
static s64 requeue_locked(struct futex_table *ft, struct futex_bucket *b1,
			  const struct mm_futex_key *from, struct futex_bucket *b2,
			  const struct mm_futex_key *to, int wake, int requeue,
			  struct wake_list *wl)
{
	struct futex_waiter *w, *tmp;
	s64 done = 0;

	list_for_each_safe (w, tmp, &b1->waiters, node) {
		if (done - wake >= requeue)
			break;
		if (!futex_key_equal(&w->key, from))
			continue;
		if (w->pi || w->requeue_pi)
			return -EINVAL;
		if (++done <= wake)
			futex_wake_waiter(ft, w, 0, wl);
		else if (!futex_key_equal(from, to))
			futex_move(w, b2, to);
	}
	return done;
}

s64 futex_requeue(struct task *t, uaddr from, uaddr to, bool private_, int wake, int requeue,
		  const u32 *expected_or_null)
{
	struct futex_table *ft = t->kernel->futexes;
	struct mm_futex_key key1, key2;
	struct futex_bucket *b1, *b2;
	struct wake_list wl = { 0 };
	u32 cur;
	s64 r;

	if (wake < 0 || requeue < 0)
		return -EINVAL;
	r = futex_key(t, from, private_, &key1);
	if (r < 0)
		return r;
	r = futex_key(t, to, private_, &key2);
	if (r < 0)
		goto out_key1;
	b1 = futex_bucket_of(ft, &key1);
	b2 = futex_bucket_of(ft, &key2);
	futex_lock_two(b1, b2);
	if (expected_or_null) {
		r = mm_load32(t->mm, from, &cur);
		if (r == 0 && cur != *expected_or_null)
			r = -EAGAIN;
	}
	if (r == 0)
		r = requeue_locked(ft, b1, &key1, b2, &key2, wake, requeue, &wl);
	futex_unlock_two(b1, b2);
	wake_list_flush(&wl);
	mm_futex_key_put(&key2);
out_key1:
	mm_futex_key_put(&key1);
	return r;
}

/* ---- wake_op ---- */

static s32 sign_extend12(u32 x)
{
	return (s32)(x << 20) >> 20;
}

/* The operation of FUTEX_WAKE_OP on the second word; *ret_old is its former value. -EFAULT,
 * -ENOSYS. */
static int wake_op_apply(struct task *t, uaddr addr, u32 encoded, u32 *ret_old)
{
	u32 op = (encoded >> 28) & 7, old, new, seen;
	u32 arg = (u32)sign_extend12((encoded >> 12) & 0xfff);
	int r;

	if (encoded & ((u32)FUTEX_OP_OPARG_SHIFT << 28))
		arg = 1U << (arg & 31);
	r = mm_load32(t->mm, addr, &old);
	while (r == 0) {
		switch (op) {
		case FUTEX_OP_SET: new = arg; break;
		case FUTEX_OP_ADD: new = old + arg; break;
		case FUTEX_OP_OR: new = old | arg; break;
		case FUTEX_OP_ANDN: new = old & ~arg; break;
		case FUTEX_OP_XOR: new = old ^ arg; break;
		default: return -ENOSYS;
		}
		r = mm_cmpxchg32(t->mm, addr, old, new, &seen);
		if (r == 0 && seen == old) {
			*ret_old = old;
			return 0;
		}
		old = seen;
		/* Guest threads can change the word for as long as they like. */
		if (atomic_load_explicit(&t->killed, memory_order_relaxed))
			return -EINTR;
	}
	return r;
}

/* 1 when the old value passes the comparison, 0 when not, -ENOSYS for an unknown one. */
static int wake_op_compare(u32 encoded, u32 old_value)
{
	s32 arg = sign_extend12(encoded & 0xfff), old = (s32)old_value;

	switch ((encoded >> 24) & 15) {
	case FUTEX_OP_CMP_EQ: return old == arg;
	case FUTEX_OP_CMP_NE: return old != arg;
	case FUTEX_OP_CMP_LT: return old < arg;
	case FUTEX_OP_CMP_GE: return old >= arg;
	case FUTEX_OP_CMP_LE: return old <= arg;
	case FUTEX_OP_CMP_GT: return old > arg;
	default: return -ENOSYS;
	}
}

s64 futex_wake_op(struct task *t, uaddr a, uaddr b, bool private_, int wake_a, int wake_b, u32 op)
{
	struct futex_table *ft = t->kernel->futexes;
	struct mm_futex_key key1, key2;
	struct futex_bucket *b1, *b2;
	struct wake_list wl = { 0 };
	u32 old = 0;
	s64 r, more;

	r = futex_key(t, a, private_, &key1);
	if (r < 0)
		return r;
	r = futex_key(t, b, private_, &key2);
	if (r < 0)
		goto out_key1;
	b1 = futex_bucket_of(ft, &key1);
	b2 = futex_bucket_of(ft, &key2);
	futex_lock_two(b1, b2);
	r = wake_op_apply(t, b, op, &old);
	if (r == 0)
		r = wake_op_compare(op, old);
	if (r >= 0) {
		bool second = r;

		r = wake_locked(ft, b1, &key1, FUTEX_BITSET_MATCH_ANY, wake_a, &wl);
		if (r >= 0 && second) {
			more = wake_locked(ft, b2, &key2, FUTEX_BITSET_MATCH_ANY, wake_b, &wl);
			r = more < 0 ? more : r + more;
		}
	}
	futex_unlock_two(b1, b2);
	wake_list_flush(&wl);
	mm_futex_key_put(&key2);
out_key1:
	mm_futex_key_put(&key1);
	return r;
}
