/*
 * sentry/ipc/shm.h: System V shared memory.
 *
 * A segment is a mappable that wraps anonymous shared memory of tmpfs. shm_nattch counts the vmas
 * that map it, as on Linux: an attach of which parts are unmapped or protected differently counts
 * for each part that is left. Times and the last pid follow it. The table holds one reference on
 * each segment until IPC_RMID (and then until the last detach); vmas hold their own.
 *
 * Locks: table->lock (RANK_LEAF) protects the table and every segment's
 * fields; it is never held across calls into other modules.
 */
#ifndef MINISENTRY_SENTRY_IPC_SHM_H
#define MINISENTRY_SENTRY_IPC_SHM_H

#include "base/cred.h"
#include "base/lock.h"
#include "base/mappable.h"
#include <sys/shm.h>

#define SHM_SEGMENTS_MAX 4096 /* as Linux's SHMMNI */
/* What Linux shows as SHMMAX and SHMALL; the guest's memory is the limit in force. */
#define SHM_BYTES_MAX 18446744073692774399UL

struct superblock;
struct shm_table;
struct shm_segment;

/* most_pages: what all segments together may take, for they stay without a process. */
struct shm_table *shm_table_new(u64 most_pages);
void shm_table_free(struct shm_table *t); /* no segment is mapped any more */

/* shmget(2), by the current task: the id. -EEXIST, -ENOENT, -EINVAL, -EACCES, -ENOSPC, -ENOMEM. */
int shm_get(struct shm_table *t, struct superblock *memory, int key, u64 size, int flags,
	    const struct cred *cred);
/* The segment of an id with a reference; want: 4 to read, 2 to write, 1 to execute. -EINVAL,
 * -EACCES. */
int shm_find(struct shm_table *t, int id, const struct cred *cred, u32 want,
	     struct shm_segment **ret);
void shm_put(struct shm_segment *s);
struct mappable *shm_mappable(struct shm_segment *s); /* borrowed */
u64 shm_size(const struct shm_segment *s);
int shm_key(const struct shm_segment *s);

int shm_remove(struct shm_table *t, int id, const struct cred *cred);
int shm_set(struct shm_table *t, int id, const struct cred *cred, const struct shmid_ds *ds);
/* IPC_STAT (by_index false: id, with read permission) and SHM_STAT, SHM_STAT_ANY (by index): the
 * id, or -errno. */
int shm_stat(struct shm_table *t, int id, bool by_index, bool any, const struct cred *cred,
	     struct shmid_ds *ret);
/* The segment at an index (0 to SHM_SEGMENTS_MAX - 1), for /proc/sysvipc: its id, or -EINVAL. */
int shm_at(struct shm_table *t, int index, struct shmid_ds *ret, u64 *ret_resident);
/* SHM_LOCK, SHM_UNLOCK: what IPC_STAT shows; nothing of ours is swapped. limit: RLIMIT_MEMLOCK, for
 * who has no CAP_IPC_LOCK. -EINVAL, -EPERM, -ENOMEM. */
int shm_lock(struct shm_table *t, int id, const struct cred *cred, u64 limit);
int shm_unlock(struct shm_table *t, int id, const struct cred *cred);
/* SHM_INFO and IPC_INFO's answer: the highest used index. */
int shm_totals(struct shm_table *t, struct shm_info *ret);

#endif
