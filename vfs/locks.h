/*
 * vfs/locks.h: advisory locks of an inode: flock(2), POSIX and OFD record locks.
 *
 * Nothing here sleeps: lock calls return -EAGAIN, and a blocking caller waits
 * on vfs_locks_waitq and tries again. Deadlock detection (-EDEADLK) for POSIX
 * locks walks owners that registered as waiting.
 */
#ifndef MINISENTRY_VFS_LOCKS_H
#define MINISENTRY_VFS_LOCKS_H

#include "vfs/inode.h"

/* The owner of a lock: a thread group's fd table for POSIX locks, the open file for OFD and flock.
 */
struct lock_owner {
	const void *id;
	int pid; /* reported by F_GETLK; -1 for OFD */
};

int vfs_flock(struct inode *inode, const struct lock_owner *owner, int op /* LOCK_SH, EX, UN */);
/* type F_RDLCK, F_WRLCK, F_UNLCK; [start, end], end inclusive, INT64_MAX = to the end. */
int vfs_posix_lock(struct inode *inode, const struct lock_owner *owner, int type, s64 start,
		   s64 end);
/* The first conflicting lock; *ret_type = F_UNLCK when there is none. */
void vfs_posix_getlk(struct inode *inode, const struct lock_owner *owner, int type, s64 start,
		     s64 end, int *ret_type, s64 *ret_start, s64 *ret_end, int *ret_pid);
/* All record locks of owner go (close of any fd of the file; release of an OFD). */
void vfs_posix_drop(struct inode *inode, const void *owner_id);
void vfs_flock_drop(struct inode *inode, const void *owner_id);
/* -EDEADLK when waiting would close a cycle; otherwise registers the wait until vfs_posix_wait_end.
 */
int vfs_posix_wait_begin(struct inode *inode, const struct lock_owner *owner, int type, s64 start,
			 s64 end);
void vfs_posix_wait_end(const struct lock_owner *owner);
struct waitq *vfs_locks_waitq(struct inode *inode);
void vfs_locks_free(struct inode *inode); /* by inode destruction */

#endif
