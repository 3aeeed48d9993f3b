#include "base/lock.h"
#include "base/host_sync.h"
#include "base/log.h"
#include <limits.h>

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

/* The holder's identity: the address of one of its thread-locals. */
static __thread char self_mark;

void mutex_note_lock(struct mutex *m, bool nested)
{
	note_lock(m, m->rank, m->name, nested);
}

void mutex_note_locked(struct mutex *m)
{
	atomic_store_explicit(&m->owner, &self_mark, memory_order_relaxed);
}

void mutex_note_unlock(struct mutex *m)
{
	note_unlock(m, m->name);
	atomic_store_explicit(&m->owner, NULL, memory_order_relaxed);
}

void rwlock_note_lock(struct rwlock *l, bool nested)
{
	note_lock(l, l->rank, l->name, nested);
}

void rwlock_note_written(struct rwlock *l)
{
	atomic_store_explicit(&l->owner, &self_mark, memory_order_relaxed);
}

void rwlock_note_unlock(struct rwlock *l)
{
	note_unlock(l, l->name);
	if (atomic_load_explicit(&l->owner, memory_order_relaxed) == &self_mark)
		atomic_store_explicit(&l->owner, NULL, memory_order_relaxed);
}

void mutex_assert_held(struct mutex *m)
{
	ASSERT(atomic_load_explicit(&m->owner, memory_order_relaxed) == &self_mark);
}

void rwlock_assert_held(struct rwlock *l)
{
	ASSERT(is_held(l));
}

void rwlock_assert_write_held(struct rwlock *l)
{
	ASSERT(atomic_load_explicit(&l->owner, memory_order_relaxed) == &self_mark);
}
#else
void mutex_assert_held(struct mutex *m)
{
}

void rwlock_assert_held(struct rwlock *l)
{
}

void rwlock_assert_write_held(struct rwlock *l)
{
}

void assert_no_locks(void)
{
}
#endif

/* Long enough for a short critical section on the other core, far below what a sleep costs. */
#define SPINS 100

/* ---- mutexes ---- */

void mutex_init(struct mutex *m, enum lock_rank rank, const char *name)
{
	*m = (struct mutex)MUTEX_INIT(rank, name);
}

void mutex_destroy(struct mutex *m)
{
	(void)m;
}

static bool try_take(struct mutex *m)
{
	u32 free = 0;

	return atomic_load_explicit(&m->word, memory_order_relaxed) == 0 &&
	       atomic_compare_exchange_strong_explicit(&m->word, &free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

void mutex_lock_slow(struct mutex *m)
{
	for (int i = 0; i < SPINS; i++) {
		if (try_take(m))
			return;
		__builtin_ia32_pause();
	}
	while (atomic_exchange_explicit(&m->word, 2, memory_order_acquire) != 0)
		host_futex_wait(&m->word, 2, -1, true);
}

void mutex_unlock_slow(struct mutex *m)
{
	host_futex_wake(&m->word, 1, true);
}

bool mutex_trylock(struct mutex *m)
{
	if (!try_take(m))
		return false;
		/* A trylock cannot deadlock, so any order is allowed. */
#ifdef MINISENTRY_DEBUG
	ASSERT(held_count < MAX_HELD);
	held[held_count++] = (struct held){ m, m->rank, m->name };
#endif
	mutex_note_locked(m);
	return true;
}

/* ---- readers and writers ---- */

void rwlock_init(struct rwlock *l, enum lock_rank rank, const char *name)
{
	*l = (struct rwlock){ .rank = rank, .name = name };
}

void rwlock_destroy(struct rwlock *l)
{
	(void)l;
}

/* `taken` is what getting the lock adds, `against` what stands in its way. */
static void wait_and_take(struct rwlock *l, u32 taken, u32 against)
{
	u32 seen;

	for (int spins = 0;;) {
		seen = atomic_load_explicit(&l->word, memory_order_relaxed);
		if (!(seen & against)) {
			if (atomic_compare_exchange_weak_explicit(&l->word, &seen, seen + taken,
								  memory_order_acquire,
								  memory_order_relaxed))
				return;
		} else if (spins < SPINS) {
			spins++;
			__builtin_ia32_pause();
		} else if ((seen & RWLOCK_WAITERS) ||
			   atomic_compare_exchange_weak_explicit(
				   &l->word, &seen, seen | RWLOCK_WAITERS, memory_order_relaxed,
				   memory_order_relaxed)) {
			host_futex_wait(&l->word, seen | RWLOCK_WAITERS, -1, true);
		}
	}
}

void rwlock_rdlock_slow(struct rwlock *l)
{
	wait_and_take(l, 1, RWLOCK_WRITER | RWLOCK_WAITERS);
}

void rwlock_wrlock_slow(struct rwlock *l)
{
	/* Whoever sleeps stays marked: this writer's unlock wakes them. */
	wait_and_take(l, RWLOCK_WRITER, ~RWLOCK_WAITERS);
}

void rwlock_unlock_slow(struct rwlock *l)
{
	u32 seen = atomic_load_explicit(&l->word, memory_order_relaxed), rest;

	do {
		rest = seen & RWLOCK_WRITER ? 0 : seen - 1;
		if (rest == RWLOCK_WAITERS)
			rest = 0;
	} while (!atomic_compare_exchange_weak_explicit(&l->word, &seen, rest, memory_order_release,
							memory_order_relaxed));
	if ((seen & RWLOCK_WAITERS) && rest == 0)
		host_futex_wake(&l->word, INT_MAX, true);
}
