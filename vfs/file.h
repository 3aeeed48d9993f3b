/*
 * vfs/file.h: open files (open file descriptions) and their operations.
 *
 * A file is what descriptors refer to: an inode, flags, an offset. Operations
 * never sleep: where Linux would, they return -EAGAIN, and the caller (system
 * call layer) waits on file_waitq() unless the file is O_NONBLOCK.
 *
 * read/write move bytes through a kiov: pinned guest memory or sentry buffers.
 * Regular files get the offset to use; streams ignore it.
 */
#ifndef MINISENTRY_VFS_FILE_H
#define MINISENTRY_VFS_FILE_H

#include "base/kiov.h"
#include "vfs/inode.h"
#include "vfs/path.h"
#include <fcntl.h>
#include <sys/epoll.h>

struct file;

/* getdents: emit returns false when the reader's buffer is full (the entry is then not consumed).
 */
struct dir_emit {
	bool (*emit)(struct dir_emit *e, const char *name, size_t name_len, u64 ino, u8 type,
		     u64 next_pos);
};

#define FILE_POS_OWN UINT64_MAX

struct file_ops {
	const char *kind; /* "tmpfs", "pipe", "eventfd", ... for logs and /proc/PID/fd texts */
	/* The position is the file's own matter (shared with the host): read and write get
	 * FILE_POS_OWN as offset when the caller gave none. */
	bool own_pos;
	/* Last reference gone. */
	void (*release)(struct file *f);
	/* Bytes, 0 at end of file, -EAGAIN when it would block. flags: RWF_*. write with RWF_APPEND
	 * (vfs_write sets it for O_APPEND too): the file system ignores offset and writes at the
	 * end, atomically. */
	ssize_t (*read)(struct file *f, struct kiov *dst, u64 offset, int flags);
	ssize_t (*write)(struct file *f, struct kiov *src, u64 offset, int flags);
	/* New position for lseek; NULL: -ESPIPE. file->pos_lock held. */
	s64 (*seek)(struct file *f, s64 offset, int whence);
	/* Lists entries from *pos on ("." and ".." included), updating *pos. 0 or -errno. pos_lock
	 * held. */
	int (*iterate)(struct file *f, struct dir_emit *e, u64 *pos);
	/* EPOLL* bits that hold now. NULL: always EPOLLIN|EPOLLOUT|EPOLLRDNORM|EPOLLWRNORM. */
	u32 (*poll)(struct file *f);
	/* The queue woken when poll's answer may have changed. NULL: never changes. */
	struct waitq *(*waitq)(struct file *f);
	/* arg is the raw third argument; implementations in sentry/ copy through the current task.
	 * -ENOTTY. */
	s64 (*ioctl)(struct file *f, u32 cmd, u64 arg);
	int (*mappable)(struct file *f, struct mappable **ret); /* NULL: -ENODEV */
	int (*fsync)(struct file *f, bool data_only);		/* NULL: -EINVAL for non-regular */
	int (*fallocate)(struct file *f, int mode, u64 offset, u64 len);
	/* F_SETFL changed flags; may refuse. NULL: accept. */
	int (*set_flags)(struct file *f, u32 flags);
	/* A descriptor of this file is being closed by a task (flush; POSIX locks are the vfs's
	 * matter). */
	void (*flush)(struct file *f);
	/* memfd seals and F_*PIPE_SZ. NULL: -EINVAL. */
	s64 (*fcntl)(struct file *f, int cmd, u64 arg);
	/* Text for /proc/PID/fdinfo after the common lines; may be NULL. */
	void (*fdinfo)(struct file *f, char *dst, size_t size);
	/* What file_text answers instead of a path or kind ("/memfd:name (deleted)"). NULL: the
	 * rule there. */
	ssize_t (*text)(struct file *f, char *dst, size_t size);
	/* Message kinds (datagrams): read and write must see the whole buffer in one kiov. NULL:
	 * no. */
	bool (*whole_io)(struct file *f);
	/* How long a blocking read (write) waits before -EAGAIN, ns (SO_RCVTIMEO); 0 or NULL: for
	 * ever. */
	u64 (*io_timeout)(struct file *f, bool write);
	/* The file whose read and overwrite do f's work now, if these only copy: they take no lock
	 * of a lower rank than RANK_MAPPABLE and call nobody back. Borrowed. NULL: there is none.
	 */
	struct file *(*direct)(struct file *f);
	/* As write, but only into memory that is there: -EAGAIN when any must be allocated. */
	ssize_t (*overwrite)(struct file *f, struct kiov *src, u64 offset);
};

/*
 * The memory of a file is only ever reused for another file, so that whoever finds a stale pointer
 * may still try for a reference (file_tryget) and then look whether the file is the one it meant.
 */
struct file {
	struct refs refs;
	const struct file_ops *ops; /* immutable after open */
	struct path path;	    /* immutable; holds references; mnt NULL for anonymous kinds */
	struct inode
		*inode; /* immutable; holds a reference; never NULL (anon inodes for fd kinds) */
	const struct cred *cred; /* immutable: the opener's */
	_Atomic u32 flags; /* O_* : access mode and creation flags immutable; O_APPEND, O_NONBLOCK,
			      O_DIRECT, O_NOATIME, O_ASYNC by F_SETFL */
	struct mutex pos_lock; /* RANK_FILE_POS */
	u64 pos;	       /* protected by pos_lock */
	void *private;	       /* the kind's own */
	_Atomic int owner_pid; /* F_SETOWN */
	_Atomic int owner_sig;
	struct list epoll_items;    /* protected by sentry/fd/epoll: items that watch this file */
	_Atomic(void *) epoll_hook; /* non-NULL once any epoll watched it */
	bool holds_write;	    /* immutable after open: counted in inode->write_count */
	void (*on_last_put)(
		struct file *f); /* epoll's: called first when the last reference goes */
	struct file *next_free;	 /* of a free one */
};

/* Allocates a file on inode (takes its own references), ops set by the caller or by
 * inode->ops->open. */
int file_new(struct inode *inode, const struct path *path, u32 flags, const struct cred *cred,
	     const struct file_ops *ops, void *private, struct file **ret);
struct file *file_get(struct file *f);
/* Frees a file whose open failed: no release, no notification. */
void file_discard(struct file *f);
bool file_tryget(struct file *f);
void file_put(struct file *f);
/* An inode for anonymous kinds (eventfd, epoll, pipes, sockets): mode as given, on the named pseudo
 * fs; name is what /proc/PID/fd shows before ":[ino]" or "anon_inode:[name]". Returns a reference.
 */
int vfs_anon_inode(const char *name, u32 mode, const struct cred *cred, struct inode **ret);

/* What /proc/PID/fd/N shows: a path as seen from root, "pipe:[ino]", "anon_inode:[name]". Length or
 * -ERANGE. */
ssize_t file_text(struct file *f, const struct path *root, char *dst, size_t size);
/* The name given to vfs_anon_inode; NULL for any other inode. */
const char *vfs_anon_name(const struct inode *inode);

static inline u32 file_flags(struct file *f)
{
	return atomic_load_explicit(&f->flags, memory_order_relaxed);
}
static inline bool file_readable(struct file *f)
{
	u32 acc = file_flags(f) & O_ACCMODE;
	return !(file_flags(f) & O_PATH) && (acc == O_RDONLY || acc == O_RDWR);
}
static inline bool file_writable(struct file *f)
{
	u32 acc = file_flags(f) & O_ACCMODE;
	return !(file_flags(f) & O_PATH) && (acc == O_WRONLY || acc == O_RDWR);
}

/*
 * Reads and writes with Linux's checks: access mode (-EBADF), directory (-EISDIR), O_APPEND,
 * file size limit (fsize_limit, -EFBIG; the caller raises SIGXFSZ), setuid bits dropped on write,
 * inotify/time updates. offset NULL: use and advance f->pos (if seekable).
 */
ssize_t vfs_read(struct file *f, struct kiov *dst, const u64 *offset, int flags);
ssize_t vfs_write(struct file *f, struct kiov *src, const u64 *offset, int flags, u64 fsize_limit);
/*
 * The same to or from memory that is only at hand between begin and end, with mm's lock held: for
 * files with ops->direct. False: do it the usual way.
 */
struct vfs_direct {
	void *(*begin)(struct vfs_direct *d); /* NULL: not at hand */
	void (*end)(struct vfs_direct *d);
	size_t len;
};
bool vfs_read_direct(struct file *f, struct vfs_direct *d, const u64 *offset, ssize_t *ret);
bool vfs_write_direct(struct file *f, struct vfs_direct *d, const u64 *offset, u64 fsize_limit,
		      ssize_t *ret);
s64 vfs_lseek(struct file *f, s64 offset, int whence);
/* The position of a seekable file, wherever it is kept; 0 or -errno. Takes pos_lock. */
int vfs_pos(struct file *f, u64 *ret);
void vfs_set_pos(struct file *f, u64 pos);
int vfs_iterate(struct file *f, struct dir_emit *e);
/* Of an open directory: the inode number for "..", its own where it is a root or has no name. */
u64 file_parent_ino(struct file *f);
u32 vfs_poll(struct file *f);
struct waitq *vfs_waitq(struct file *f); /* NULL when readiness never changes */
/* Whole-file helpers for the sentry (exec, config): loops; bytes or -errno. */
ssize_t vfs_read_buf(struct file *f, void *dst, size_t len, u64 offset);
ssize_t vfs_write_buf(struct file *f, const void *src, size_t len, u64 offset);
/* Drops setuid bits and file capabilities before data changes (write, truncate, fallocate). 0 or
 * -errno. */
int file_remove_privs(struct inode *inode, const struct cred *cred);
/* Generic lseek for files with a size (SEEK_DATA/HOLE: all data). */
s64 vfs_generic_seek(struct file *f, s64 offset, int whence, u64 size);

/*
 * Device nodes, on whatever file system they are, open through a table by major number.
 * Registration happens at start, before any open. open sets file->ops (and private).
 * 0, -EBUSY when taken. Unregistered majors, block devices: -ENXIO.
 */
int vfs_register_chrdev(u32 major, int (*open)(struct inode *inode, struct file *file));
/* Calls vfs_notify_hook if the path's inode or its parent is watched. */
void vfs_notify_path(const struct path *p, u32 mask);
int vfs_open_device(struct inode *inode, struct file *file);

/* Hook for inotify, set once (at start or with the first watch) by sentry/fd: mask is IN_*, with
 * IN_EXCL_UNLINK for what happens by a name that is gone. May be NULL. Called without locks, only
 * for inodes with `watches` set or whose parent has them. */
extern void (*_Atomic vfs_notify_hook)(struct inode *inode, struct inode *parent, const char *name,
				       u32 mask, u32 cookie);

#endif
