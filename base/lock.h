/*
 * base/lock.h: ranked locks.
 *
 * Every lock has a rank from `enum lock_rank`, whose order is the lock order
 * (docs/LOCKING.md explains it). A thread may take a lock only when all the
 * locks that it holds have a lower rank; locks of equal rank may be nested only
 * through mutex_lock_nested (address order, or parent before child). Debug
 * builds (-DMINISENTRY_DEBUG) check this and abort on an inversion;
 * assert_held() and assert_no_locks() then check the caller.
 */
#ifndef MINISENTRY_BASE_LOCK_H
#define MINISENTRY_BASE_LOCK_H

#include "base/types.h"
#include <stdatomic.h>

/* Outermost first. */
enum lock_rank {
	RANK_FILE_POS,	 /* open file offset (held across a read or write) */
	RANK_FS_CONTEXT, /* cwd, root, umask */
	RANK_TTY_CTL,	 /* session <-> tty association */
	RANK_EPOLL,	 /* an epoll instance's interest list; nested by address */
	RANK_RENAME,	 /* per file system: directory renames */
	RANK_SYNTH_DIR,	 /* RANK_DIR of synthetic directories: their lookups ask the pid table and
			    tasks */
	RANK_TASKLIST,	 /* the pid table, parents, children, groups, sessions */
	RANK_SIGHAND,	 /* signal handlers, queues, group stop state */
	RANK_TASK,	 /* small per-task fields read by others */
	RANK_FUTEX,	 /* futex hash buckets; the word is read (may fault in mm) under it */
	RANK_MM_MAP,	 /* vma set, brk */
	RANK_DIR,	 /* directory inode: entries; nested parent before child */
	RANK_MOUNT,	 /* mount tree of a namespace */
	RANK_DENTRY,	 /* dentry cache */
	RANK_INODE,	 /* inode attributes and data */
	RANK_MM_ACTIVE,	 /* pma set */
	RANK_MAPPABLE,	 /* a mappable's data: page cache, tmpfs extents, its rmap */
	RANK_TEXT,	 /* patched program text */
	RANK_SOCKET,	 /* unix sockets; nested by address */
	RANK_PIPE,	 /* pipes, eventfds and other simple fd kinds; ttys */
	RANK_FD_TABLE,	 /* descriptor table */
	RANK_TIMER,	 /* timer queue */
	RANK_KEEPERS,	 /* who keeps freed memory; takes mm active locks by trylock */
	RANK_PGALLOC,	 /* memory file extents */
	RANK_PLATFORM,	 /* an address space's stub command channel */
	RANK_PLATFORM_GLOBAL, /* zygote channel, stub table */
	RANK_WAITQ,	      /* wait queues; callbacks run under it and only set flags */
	RANK_LEAF,	      /* takes no other lock inside */
};

/*
 * A futex word each; the uncontended case is one atomic operation, inline. Who does not get a lock
 * spins shortly (the holder may be about to leave) and then sleeps. May be destroyed as soon as the
 * last holder has unlocked: at worst a wake goes to a word that nobody waits for any more.
 */
struct mutex {
	_Atomic u32 word; /* 0 free, 1 held, 2 held and somebody sleeps */
	enum lock_rank rank;
	const char *name;
#ifdef MINISENTRY_DEBUG
	_Atomic(void *) owner; /* address of a thread-local of the holder */
#endif
};

struct rwlock {
	_Atomic u32 word; /* number of readers, RWLOCK_* */
	enum lock_rank rank;
	const char *name;
#ifdef MINISENTRY_DEBUG
	_Atomic(void *) owner; /* the writer */
#endif
};

#define RWLOCK_WRITER (1U << 31)
#define RWLOCK_WAITERS (1U << 30) /* somebody sleeps: readers queue up behind */

#define MUTEX_INIT(rank_, name_)                                                                   \
	{                                                                                          \
		.rank = (rank_), .name = (name_)                                                   \
	}

void mutex_init(struct mutex *m, enum lock_rank rank, const char *name);
void mutex_destroy(struct mutex *m);
bool mutex_trylock(struct mutex *m);
void rwlock_init(struct rwlock *l, enum lock_rank rank, const char *name);
void rwlock_destroy(struct rwlock *l);

/* lock.c: the contended cases, and the debug build's bookkeeping. */
void mutex_lock_slow(struct mutex *m);
void mutex_unlock_slow(struct mutex *m);
void rwlock_rdlock_slow(struct rwlock *l);
void rwlock_wrlock_slow(struct rwlock *l);
void rwlock_unlock_slow(struct rwlock *l);
#ifdef MINISENTRY_DEBUG
void mutex_note_lock(struct mutex *m, bool nested);
void mutex_note_locked(struct mutex *m);
void mutex_note_unlock(struct mutex *m);
void rwlock_note_lock(struct rwlock *l, bool nested);
void rwlock_note_written(struct rwlock *l);
void rwlock_note_unlock(struct rwlock *l);
#else
#define mutex_note_lock(m, nested) ((void)0)
#define mutex_note_locked(m) ((void)0)
#define mutex_note_unlock(m) ((void)0)
#define rwlock_note_lock(l, nested) ((void)0)
#define rwlock_note_written(l) ((void)0)
#define rwlock_note_unlock(l) ((void)0)
#endif

static inline void mutex_lock_as(struct mutex *m, bool nested)
{
	u32 free = 0;

	mutex_note_lock(m, nested);
	(void)nested;
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&m->word, &free, 1,
								      memory_order_acquire,
								      memory_order_relaxed),
			     0))
		mutex_lock_slow(m);
	mutex_note_locked(m);
}

static inline void mutex_lock(struct mutex *m)
{
	mutex_lock_as(m, false);
}

/* For a second lock of equal rank; the caller keeps the order by itself. */
static inline void mutex_lock_nested(struct mutex *m)
{
	mutex_lock_as(m, true);
}

static inline void mutex_unlock(struct mutex *m)
{
	mutex_note_unlock(m);
	if (__builtin_expect(atomic_exchange_explicit(&m->word, 0, memory_order_release) == 2, 0))
		mutex_unlock_slow(m);
}

/* Readers may nest with nothing of the same lock; writers are preferred. */
static inline void rwlock_rdlock_as(struct rwlock *l, bool nested)
{
	u32 seen = atomic_load_explicit(&l->word, memory_order_relaxed);

	rwlock_note_lock(l, nested);
	(void)nested;
	if (__builtin_expect((seen & (RWLOCK_WRITER | RWLOCK_WAITERS)) ||
				     !atomic_compare_exchange_strong_explicit(
					     &l->word, &seen, seen + 1, memory_order_acquire,
					     memory_order_relaxed),
			     0))
		rwlock_rdlock_slow(l);
}

static inline void rwlock_wrlock_as(struct rwlock *l, bool nested)
{
	u32 free = 0;

	rwlock_note_lock(l, nested);
	(void)nested;
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
				     &l->word, &free, RWLOCK_WRITER, memory_order_acquire,
				     memory_order_relaxed),
			     0))
		rwlock_wrlock_slow(l);
	rwlock_note_written(l);
}

static inline void rwlock_rdlock(struct rwlock *l)
{
	rwlock_rdlock_as(l, false);
}

static inline void rwlock_rdlock_nested(struct rwlock *l)
{
	rwlock_rdlock_as(l, true);
}

static inline void rwlock_wrlock(struct rwlock *l)
{
	rwlock_wrlock_as(l, false);
}

static inline void rwlock_wrlock_nested(struct rwlock *l)
{
	rwlock_wrlock_as(l, true);
}

static inline void rwlock_unlock(struct rwlock *l)
{
	u32 seen = atomic_load_explicit(&l->word, memory_order_relaxed);
	u32 rest = seen & RWLOCK_WRITER ? 0 : seen - 1;

	rwlock_note_unlock(l);
	if (__builtin_expect((seen & RWLOCK_WAITERS) ||
				     !atomic_compare_exchange_strong_explicit(&l->word, &seen, rest,
									      memory_order_release,
									      memory_order_relaxed),
			     0))
		rwlock_unlock_slow(l);
}

/* Debug builds abort when the calling thread does not hold it. */
void mutex_assert_held(struct mutex *m);
void rwlock_assert_held(struct rwlock *l); /* read or write */
void rwlock_assert_write_held(struct rwlock *l);
/* Debug builds abort when the calling thread holds any ranked lock. */
void assert_no_locks(void);

/* Scope-bound locking: MUTEX_GUARD(&x->lock); unlocks at the end of the block. */
static inline void mutex_guard_release(struct mutex **m)
{
	if (*m)
		mutex_unlock(*m);
}
#define MUTEX_GUARD_NAME2(l) guard_at_line_##l
#define MUTEX_GUARD_NAME(l) MUTEX_GUARD_NAME2(l)
#define MUTEX_GUARD(lock_)                                                                         \
	__attribute__((cleanup(mutex_guard_release), unused)) struct mutex *MUTEX_GUARD_NAME(      \
		__LINE__) = (mutex_lock(lock_), (lock_))

#endif
