/*
 * sentry/fd/fdtable.h: descriptor tables.
 *
 * fd -> open file and FD_CLOEXEC. Shared by CLONE_FILES. Lookups return
 * references and take no lock. Lock: RANK_FD_TABLE, internal.
 */
#ifndef MINISENTRY_SENTRY_FD_FDTABLE_H
#define MINISENTRY_SENTRY_FD_FDTABLE_H

#include "vfs/file.h"

struct fd_table;
#define FD_TABLE_MAX (1 << 20)

struct fd_table *fd_table_new(void);
struct fd_table *fd_table_dup(struct fd_table *t); /* fork; NULL: no memory */
struct fd_table *fd_table_get(struct fd_table *t);
void fd_table_put(struct fd_table *t);	  /* last: closes all */
bool fd_table_shared(struct fd_table *t); /* more than one user: exec and unshare copy */
void fd_table_close_on_exec(struct fd_table *t);

/* A reference, or NULL (-EBADF): not open, or (fd_get) opened with O_PATH. */
struct file *fd_get(struct fd_table *t, int fd);
struct file *fd_get_any(struct fd_table *t, int fd); /* O_PATH too */
/*
 * The file for the length of a system call of t's own task (Linux's fdget): no reference is taken
 * while no other task shares t, for then nobody else can close it. NULL file: -EBADF, as above.
 *
 *	struct fd_ref f = fd_ref(t->fds, fd);
 *	if (!f.file)
 *		return -EBADF;
 *	...
 *	fd_ref_put(f);
 *
 * Not for a call that closes descriptors of t before it puts.
 */
struct fd_ref {
	struct file *file;
	struct file *counted; /* file, when there is a reference to put */
};
struct fd_ref fd_ref(struct fd_table *t, int fd);
struct fd_ref fd_ref_any(struct fd_table *t, int fd); /* O_PATH too */
static inline void fd_ref_put(struct fd_ref r)
{
	if (r.counted)
		file_put(r.counted);
}
/* Lowest free descriptor >= min below limit: takes file's reference on success only.
 * The descriptor, -EMFILE, -ENOMEM, -EINVAL (min >= limit). */
int fd_install(struct fd_table *t, struct file *f, int min, bool cloexec, u64 limit);
/* Reserves without publishing (clone pidfd, accept): install or release later. */
int fd_reserve(struct fd_table *t, int min, u64 limit);
void fd_install_reserved(struct fd_table *t, int fd, struct file *f, bool cloexec);
void fd_release_reserved(struct fd_table *t, int fd);
/* dup2/dup3: replaces what is there. Takes the reference on success. */
int fd_replace(struct fd_table *t, int fd, struct file *f, bool cloexec, u64 limit);
/* Removes; the file through ret (a reference) so that the caller flushes and puts. -EBADF. */
int fd_remove(struct fd_table *t, int fd, struct file **ret);
/* close(2)'s work: flush, POSIX locks dropped, put. 0 or -EBADF. */
int fd_close(struct fd_table *t, int fd);
int fd_close_range(struct fd_table *t, u32 first, u32 last, bool cloexec_only);
int fd_get_cloexec(struct fd_table *t, int fd); /* 0, 1, -EBADF */
int fd_set_cloexec(struct fd_table *t, int fd, bool cloexec);
/* The lowest open fd >= from, or -1: for /proc/PID/fd. */
int fd_next(struct fd_table *t, int from);
size_t fd_count(struct fd_table *t);

#endif
