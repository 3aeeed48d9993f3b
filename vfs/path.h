/*
 * vfs/path.h: dentries, mounts, mount namespaces, and walking paths.
 *
 * A dentry is a name in a directory and the inode it leads to; a mount puts a
 * file system's root over a dentry; a path is (mount, dentry). Both are
 * refcounted. The walk holds references, not locks, between components.
 *
 * Symlinks: at most 40 a walk (-ELOOP). Paths: at most PATH_MAX - 1 bytes,
 * components 255. Mount crossing goes to the topmost mount on a dentry; ".."
 * stops at the caller's root.
 *
 * Locks: RANK_RENAME (the file system's), RANK_DIR, RANK_MOUNT (mount
 * tree), RANK_DENTRY (dentry hash and parents). See docs/LOCKING.md.
 */
#ifndef MINISENTRY_VFS_PATH_H
#define MINISENTRY_VFS_PATH_H

#include "vfs/inode.h"

struct dentry;
struct mount;
struct mount_ns;

struct path {
	struct mount *mnt;
	struct dentry *dentry;
};

/* Takes references. */
void path_get(const struct path *p);
void path_put(const struct path *p); /* members may be NULL */
static inline bool path_equal(const struct path *a, const struct path *b)
{
	return a->mnt == b->mnt && a->dentry == b->dentry;
}
/* The inode of a (positive) path; borrowed. */
struct inode *path_inode(const struct path *p);

/* What a walk needs of its caller; filled by the system call layer from the current task. */
struct walk_context {
	const struct cred *cred;
	struct path root; /* borrowed */
	struct path cwd;  /* borrowed: start of relative paths (the cwd or a dirfd's path) */
	u32 umask;
	/* RESOLVE_* of openat2; 0 otherwise */
	u64 resolve;
};

enum {
	WALK_FOLLOW = 1 << 0,	 /* follow a symlink in the last place */
	WALK_DIRECTORY = 1 << 1, /* the result must be a directory (-ENOTDIR) */
	WALK_EMPTY = 1 << 2,	 /* "" means cwd itself (AT_EMPTY_PATH) */
};

/* Walks to an existing object. Returns references. -ENOENT, -ENOTDIR, -EACCES, -ELOOP,
 * -ENAMETOOLONG. */
int vfs_walk(const struct walk_context *w, const char *path, u32 flags, struct path *ret);

/* ---- operations by path (each does walk, permission, read-only and mount checks) ---- */

struct file;
/* Linux's __FMODE_EXEC, for exec's own opens: checks MAY_EXEC instead of MAY_READ, and noexec
 * mounts. */
#define VFS_O_EXEC 0x20
struct open_how_k {
	u32 flags; /* O_* */
	u32 mode;  /* permission bits before umask */
};
/* open(2): all of Linux's flag rules, alike in every file system (O_CREAT, O_EXCL, O_DIRECTORY,
 * O_NOFOLLOW, O_PATH, O_TMPFILE, O_TRUNC, trailing slashes). Returns a file. A FIFO whose other
 * side is missing is returned too: when file_is_pipe(f) and not fifo_open_ready(f), the caller
 * waits. */
int vfs_open(const struct walk_context *w, const char *path, const struct open_how_k *how,
	     struct file **ret);
/* Opens an already walked path (exec, /proc/self/fd reopen). */
int vfs_open_path(const struct path *p, u32 flags, const struct cred *cred, struct file **ret);
int vfs_mkdir(const struct walk_context *w, const char *path, u32 mode);
int vfs_mknod(const struct walk_context *w, const char *path, u32 mode, u32 major, u32 minor,
	      struct path *ret_or_null);
int vfs_symlink(const struct walk_context *w, const char *target, const char *path);
int vfs_link(const struct path *old, const struct walk_context *w, const char *path);
int vfs_unlink(const struct walk_context *w, const char *path);
int vfs_rmdir(const struct walk_context *w, const char *path);
int vfs_rename(const struct walk_context *from, const char *old_path, const struct walk_context *to,
	       const char *new_path, u32 flags);
ssize_t vfs_readlink(const struct path *p, char *dst, size_t size);
int vfs_getattr(const struct path *p, struct kstat *ret);
/* Checks ownership rules (chmod, chown, utimes, truncate) against cred, then the inode's setattr.
 */
int vfs_setattr(const struct path *p, const struct cred *cred, const struct iattr *attr);
/* ftruncate: -EINVAL unless open for writing on a regular file; no permission is asked again. */
int vfs_ftruncate(struct file *f, u64 size);
/* fallocate with Linux's checks (-EBADF, -ESPIPE, -ENODEV, -EINVAL, -EFBIG). */
int vfs_fallocate(struct file *f, int mode, s64 offset, s64 len, u64 fsize_limit);
int vfs_access(const struct path *p, const struct cred *cred,
	       int mask); /* MAY_*; read-only mounts too */
int vfs_statfs(const struct path *p, struct statfs *ret);
ssize_t vfs_getxattr(const struct path *p, const struct cred *cred, const char *name, void *dst,
		     size_t size);
int vfs_setxattr(const struct path *p, const struct cred *cred, const char *name, const void *value,
		 size_t size, int flags);
ssize_t vfs_listxattr(const struct path *p, const struct cred *cred, char *dst, size_t size);
int vfs_removexattr(const struct path *p, const struct cred *cred, const char *name);

/* Text of a path as seen from root (getcwd, /proc/PID/fd, maps): into dst[size]; " (deleted)"
 * appended for unlinked names, "(unreachable)" prefixed when outside root. Length, or -ERANGE. */
ssize_t path_text(const struct path *p, const struct path *root, char *dst, size_t size);
/* True when the dentry's name has been removed. */
bool path_deleted(const struct path *p);

/* ---- mounts ---- */

/* A namespace whose root mount is sb at "/". */
int mount_ns_new(struct superblock *root_sb, u32 mount_flags, struct mount_ns **ret);
struct mount_ns *mount_ns_get(struct mount_ns *ns);
void mount_ns_put(struct mount_ns *ns);
/* CLONE_NEWNS: a copy of the tree; fix1 and fix2 (the task's root and cwd; may be NULL) move to the
 * copy. */
int mount_ns_copy(struct mount_ns *ns, struct path *fix1, struct path *fix2, struct mount_ns **ret);
/* The top mount on "/" (R2.3). Returns references. */
void mount_ns_root(struct mount_ns *ns, struct path *ret);
/* Mounts sb over `at` (MS_RDONLY, MS_NOEXEC, MS_NOSUID, MS_NODEV, MS_NOATIME in flags). */
int mount_add(struct mount_ns *ns, const struct path *at, struct superblock *sb, u32 flags);
/* Bind mount of `from` (subtree root) over `at`. */
int mount_bind(struct mount_ns *ns, const struct path *from, const struct path *at, u32 flags,
	       bool recursive);
int mount_remove(struct mount_ns *ns, const struct path *at, int umount_flags);
int mount_remount(struct mount_ns *ns, const struct path *at, u32 flags);
u32 mount_flags(const struct mount *m);
/* MS_MOVE: the mount whose root is `from` goes onto `to`. -ELOOP when `to` is below it. */
int mount_move(struct mount_ns *ns, const struct path *from, const struct path *to);
/* pivot_root(2): new_root (a mount's root) comes where the mount of root, the caller's "/", is;
 * that goes onto put_old (below new_root). */
int mount_pivot_root(struct mount_ns *ns, const struct path *root, const struct path *new_root,
		     const struct path *put_old);
u64 mount_ns_id(const struct mount_ns *ns); /* inode number for /proc/PID/ns/mnt */
/* For /proc/PID/{mounts,mountinfo}: calls fn for each mount, in order. */
struct mount_info {
	int id, parent_id;
	u32 dev_major, dev_minor, flags;
	char root[4096], point[4096];
	const char *type, *source;
	char options[256];
};
int mount_ns_list(struct mount_ns *ns, const struct path *root,
		  int (*fn)(const struct mount_info *, void *), void *arg);

/* The dentry that keeps an unnamed or pseudo inode reachable as a path. */
int dentry_new_root(struct inode *inode, struct dentry **ret);
struct dentry *dentry_get(struct dentry *d);
void dentry_put(struct dentry *d);
struct inode *dentry_inode(struct dentry *d); /* borrowed */

#endif
