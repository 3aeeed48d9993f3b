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
#include <pthread.h>

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
	RANK_SOCKET,	 /* unix sockets; nested by address */
	RANK_PIPE,	 /* pipes, eventfds and other simple fd kinds; ttys */
	RANK_FD_TABLE,	 /* descriptor table */
	RANK_TIMER,	 /* timer queue */
	RANK_PGALLOC,	 /* memory file extents */
	RANK_PLATFORM,	 /* an address space's stub command channel */
	RANK_PLATFORM_GLOBAL, /* zygote channel, stub table */
	RANK_WAITQ,	      /* wait queues; callbacks run under it and only set flags */
	RANK_LEAF,	      /* takes no other lock inside */
};

struct mutex {
	pthread_mutex_t m;
	enum lock_rank rank;
	const char *name;
	_Atomic(void *) owner; /* debug: address of a thread-local of the holder */
};

struct rwlock {
	pthread_rwlock_t l;
	enum lock_rank rank;
	const char *name;
	_Atomic(void *) owner; /* debug: the writer */
};

#define MUTEX_INIT(rank_, name_)                                                                   \
	{                                                                                          \
		.m = PTHREAD_MUTEX_INITIALIZER, .rank = (rank_), .name = (name_)                   \
	}

void mutex_init(struct mutex *m, enum lock_rank rank, const char *name);
void mutex_destroy(struct mutex *m);
void mutex_lock(struct mutex *m);
/* For a second lock of equal rank; the caller keeps the order by itself. */
void mutex_lock_nested(struct mutex *m);
bool mutex_trylock(struct mutex *m);
void mutex_unlock(struct mutex *m);

/* Readers may nest with nothing of the same lock; writers are preferred. */
void rwlock_init(struct rwlock *l, enum lock_rank rank, const char *name);
void rwlock_destroy(struct rwlock *l);
void rwlock_rdlock(struct rwlock *l);
void rwlock_wrlock(struct rwlock *l);
void rwlock_wrlock_nested(struct rwlock *l);
void rwlock_rdlock_nested(struct rwlock *l);
void rwlock_unlock(struct rwlock *l);

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
