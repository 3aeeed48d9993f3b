#include "base/lock.h"
#include "base/log.h"
#include <stdatomic.h>

#ifdef MINISENTRY_DEBUG
#define MAX_HELD 24
static __thread struct held {
	const void *lock;
	enum lock_rank rank;
	const char *name;
} held[MAX_HELD];
static __thread int held_count;

static void note_lock(const void *lock, enum lock_rank rank, const char *name, bool nested)
{
	for (int i = 0; i < held_count; i++) {
		if (held[i].lock == lock)
			PANIC("lock %s taken twice", name);
		if (held[i].rank > rank || (held[i].rank == rank && !nested))
			PANIC("lock order: %s (rank %d) taken while holding %s (rank %d)", name,
			      rank, held[i].name, held[i].rank);
	}
	ASSERT(held_count < MAX_HELD);
	held[held_count++] = (struct held){ lock, rank, name };
}

static void note_unlock(const void *lock, const char *name)
{
	for (int i = held_count - 1; i >= 0; i--) {
		if (held[i].lock == lock) {
			held[i] = held[--held_count];
			return;
		}
	}
	PANIC("lock %s released by a thread that does not hold it", name);
}

static bool is_held(const void *lock)
{
	for (int i = 0; i < held_count; i++)
		if (held[i].lock == lock)
			return true;
	return false;
}

void assert_no_locks(void)
{
	if (held_count)
		PANIC("may not sleep while holding lock %s", held[0].name);
}
#else
#define note_lock(lock, rank, name, nested) ((void)0)
#define note_unlock(lock, name) ((void)0)
#define is_held(lock) true

void assert_no_locks(void)
{
}
#endif

/* The holder's identity: the address of one of its thread-locals. */
static __thread char self_mark;

void mutex_init(struct mutex *m, enum lock_rank rank, const char *name)
{
	pthread_mutex_init(&m->m, NULL);
	m->rank = rank;
	m->name = name;
	atomic_store(&m->owner, NULL);
}

void mutex_destroy(struct mutex *m)
{
	pthread_mutex_destroy(&m->m);
}

static void lock_mutex(struct mutex *m, bool nested)
{
	note_lock(m, m->rank, m->name, nested);
	(void)nested;
	pthread_mutex_lock(&m->m);
	atomic_store_explicit(&m->owner, &self_mark, memory_order_relaxed);
}

void mutex_lock(struct mutex *m)
{
	lock_mutex(m, false);
}

void mutex_lock_nested(struct mutex *m)
{
	lock_mutex(m, true);
}

bool mutex_trylock(struct mutex *m)
{
	if (pthread_mutex_trylock(&m->m) != 0)
		return false;
		/* A trylock cannot deadlock, so any order is allowed. */
#ifdef MINISENTRY_DEBUG
	ASSERT(held_count < MAX_HELD);
	held[held_count++] = (struct held){ m, m->rank, m->name };
#endif
	atomic_store_explicit(&m->owner, &self_mark, memory_order_relaxed);
	return true;
}

void mutex_unlock(struct mutex *m)
{
	note_unlock(m, m->name);
	atomic_store_explicit(&m->owner, NULL, memory_order_relaxed);
	pthread_mutex_unlock(&m->m);
}

void mutex_assert_held(struct mutex *m)
{
	ASSERT(atomic_load_explicit(&m->owner, memory_order_relaxed) == &self_mark);
}

void rwlock_init(struct rwlock *l, enum lock_rank rank, const char *name)
{
	pthread_rwlockattr_t attr;

	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&l->l, &attr);
	pthread_rwlockattr_destroy(&attr);
	l->rank = rank;
	l->name = name;
	atomic_store(&l->owner, NULL);
}

void rwlock_destroy(struct rwlock *l)
{
	pthread_rwlock_destroy(&l->l);
}

static void lock_write(struct rwlock *l, bool nested)
{
	note_lock(l, l->rank, l->name, nested);
	(void)nested;
	pthread_rwlock_wrlock(&l->l);
	atomic_store_explicit(&l->owner, &self_mark, memory_order_relaxed);
}

static void lock_read(struct rwlock *l, bool nested)
{
	note_lock(l, l->rank, l->name, nested);
	(void)nested;
	pthread_rwlock_rdlock(&l->l);
}

void rwlock_rdlock(struct rwlock *l)
{
	lock_read(l, false);
}

void rwlock_rdlock_nested(struct rwlock *l)
{
	lock_read(l, true);
}

void rwlock_wrlock(struct rwlock *l)
{
	lock_write(l, false);
}

void rwlock_wrlock_nested(struct rwlock *l)
{
	lock_write(l, true);
}

void rwlock_unlock(struct rwlock *l)
{
	note_unlock(l, l->name);
	if (atomic_load_explicit(&l->owner, memory_order_relaxed) == &self_mark)
		atomic_store_explicit(&l->owner, NULL, memory_order_relaxed);
	pthread_rwlock_unlock(&l->l);
}

void rwlock_assert_held(struct rwlock *l)
{
	ASSERT(is_held(l));
	(void)l;
}

void rwlock_assert_write_held(struct rwlock *l)
{
	ASSERT(atomic_load_explicit(&l->owner, memory_order_relaxed) == &self_mark);
}
