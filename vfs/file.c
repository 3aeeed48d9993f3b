#include "vfs/file.h"
#include "base/log.h"
#include "vfs/dentry.h"
#include "vfs/locks.h"
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20 /* newer than this system's headers */
#endif

void (*_Atomic vfs_notify_hook)(struct inode *inode, struct inode *parent, const char *name,
				u32 mask, u32 cookie);

/* ---- life ---- */

static struct mutex free_lock = MUTEX_INIT(RANK_LEAF, "vfs.free_files");
static struct file *free_files; /* protected by free_lock */

/* All zero but for the count of references, which is zero for whoever still looks. */
static struct file *file_alloc(void)
{
	const size_t head = offsetof(struct file, refs) + sizeof(struct refs);
	struct file *f;

	mutex_lock(&free_lock);
	f = free_files;
	if (f)
		free_files = f->next_free;
	mutex_unlock(&free_lock);
	if (!f)
		return calloc(1, sizeof(*f));
	memset((char *)f + head, 0, sizeof(*f) - head);
	return f;
}

int file_new(struct inode *inode, const struct path *path, u32 flags, const struct cred *cred,
	     const struct file_ops *ops, void *private, struct file **ret)
{
	struct file *f = file_alloc();

	if (!f)
		return -ENOMEM;
	f->ops = ops;
	if (path) {
		f->path = *path;
		path_get(path);
	}
	f->inode = inode_get(inode);
	f->cred = cred_get(cred);
	atomic_init(&f->flags, flags);
	mutex_init(&f->pos_lock, RANK_FILE_POS, "file.pos_lock");
	f->private = private;
	list_init(&f->epoll_items);
	refs_init(&f->refs, "file");
	*ret = f;
	return 0;
}

struct file *file_get(struct file *f)
{
	refs_get(&f->refs);
	return f;
}

bool file_tryget(struct file *f)
{
	return refs_tryget(&f->refs);
}

/* Frees a file whose open never succeeded, or the remains of a released one. */
static void file_free(struct file *f)
{
	path_put(&f->path);
	inode_put(f->inode);
	cred_put(f->cred);
	mutex_destroy(&f->pos_lock);
	mutex_lock(&free_lock);
	f->next_free = free_files;
	free_files = f;
	mutex_unlock(&free_lock);
}

void file_discard(struct file *f)
{
	/* Who took the file for an earlier one in its place may be the last to let go of it. */
	f->ops = NULL;
	f->holds_write = false;
	atomic_fetch_or(&f->flags, (u32)O_PATH);
	file_put(f);
}

void file_put(struct file *f)
{
	u32 flags;

	if (!f || !refs_put(&f->refs))
		return;
	if (f->on_last_put)
		f->on_last_put(f);
	flags = file_flags(f);
	if (!(flags & O_PATH) && f->path.mnt)
		vfs_notify_path(&f->path, file_writable(f) ? IN_CLOSE_WRITE : IN_CLOSE_NOWRITE);
	if (atomic_load(&f->inode->locks)) {
		vfs_flock_drop(f->inode, f);
		vfs_posix_drop(f->inode, f);
	}
	if (f->ops && f->ops->release)
		f->ops->release(f);
	if (f->holds_write)
		inode_put_write(f->inode);
	file_free(f);
}

/* ---- anonymous inodes ---- */

struct anon_inode {
	struct inode inode;
	const char *name; /* a string literal of the caller's */
};

static struct superblock *anon_sb;
static struct mutex anon_lock = MUTEX_INIT(RANK_LEAF, "vfs.anon_lock");

static void anon_destroy(struct inode *inode)
{
	inode_fini(inode);
	free(container_of(inode, struct anon_inode, inode));
}

static const struct inode_ops anon_inode_ops = { .destroy = anon_destroy };
static const struct superblock_ops anon_sb_ops = { 0 };

static struct superblock *anon_superblock(void)
{
	MUTEX_GUARD(&anon_lock);
	if (!anon_sb) {
		struct superblock *sb = calloc(1, sizeof(*sb));

		if (!sb)
			return NULL;
		superblock_init(sb, &anon_sb_ops, "anon_inodefs", "anon_inodefs", 0x09041934, 0);
		anon_sb = sb;
	}
	return anon_sb;
}

int vfs_anon_inode(const char *name, u32 mode, const struct cred *cred, struct inode **ret)
{
	struct inode_create how = { .mode = mode, .uid = cred->fsuid, .gid = cred->fsgid };
	struct superblock *sb = anon_superblock();
	struct anon_inode *a = sb ? calloc(1, sizeof(*a)) : NULL;

	if (!a)
		return -ENOMEM;
	inode_init(&a->inode, sb, &anon_inode_ops, vfs_next_ino(), &how);
	a->inode.nlink = 1;
	a->name = name;
	*ret = &a->inode;
	return 0;
}

const char *vfs_anon_name(const struct inode *inode)
{
	if (inode->ops != &anon_inode_ops)
		return NULL;
	return container_of(inode, const struct anon_inode, inode)->name;
}

ssize_t file_text(struct file *f, const struct path *root, char *dst, size_t size)
{
	const char *name = vfs_anon_name(f->inode);
	int n;

	if (f->ops && f->ops->text)
		return f->ops->text(f, dst, size);
	if (f->path.mnt)
		return path_text(&f->path, root, dst, size);
	if (!name && f->path.dentry)
		return path_text(&f->path, root, dst, size);
	if (!name)
		name = f->ops && f->ops->kind ? f->ops->kind : "file";
	if (S_ISFIFO(f->inode->type) || S_ISSOCK(f->inode->type))
		n = snprintf(dst, size, "%s:[%llu]", name, (unsigned long long)f->inode->ino);
	else if (vfs_anon_name(f->inode))
		n = snprintf(dst, size, "anon_inode:[%s]", name);
	else
		n = snprintf(dst, size, "%s:[%llu]", name, (unsigned long long)f->inode->ino);
	return n >= 0 && (size_t)n < size ? n : -ERANGE;
}

/* ---- reading and writing ---- */

/* inode: f's, or that of the layer below it that keeps the times. */
static void file_accessed(struct file *f, struct inode *inode)
{
	u32 mflags = f->path.mnt ? mount_flags(f->path.mnt) : 0;

	if ((inode->sb->flags & SB_OWN_TIMES) || (file_flags(f) & O_NOATIME) ||
	    (mflags & (MS_NOATIME | MS_RDONLY)))
		return;
	if (inode->type != S_IFREG && inode->type != S_IFDIR)
		return;
	if (inode->type == S_IFDIR && (mflags & MS_NODIRATIME))
		return;
	inode_accessed(inode);
}

static ssize_t do_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	ssize_t n;

	if (offset > INT64_MAX && !f->ops->own_pos)
		return -EINVAL;
	if (offset <= INT64_MAX && dst->remaining > INT64_MAX - offset)
		return -EINVAL;
	n = f->ops->read(f, dst, offset, flags);
	if (n > 0) {
		file_accessed(f, f->inode);
		if (vfs_notify_hook && f->path.mnt)
			vfs_notify_path(&f->path, IN_ACCESS);
	}
	return n;
}

ssize_t vfs_read(struct file *f, struct kiov *dst, const u64 *offset, int flags)
{
	ssize_t n;

	if (!file_readable(f))
		return -EBADF;
	if (inode_is_dir(f->inode))
		return -EISDIR;
	if (!f->ops->read)
		return -EINVAL;
	if (offset)
		return f->ops->seek ? do_read(f, dst, *offset, flags) : -ESPIPE;
	if (!f->ops->seek)
		return do_read(f, dst, 0, flags);
	if (f->ops->own_pos)
		return do_read(f, dst, FILE_POS_OWN, flags);
	MUTEX_GUARD(&f->pos_lock);
	n = do_read(f, dst, f->pos, flags);
	if (n > 0)
		f->pos += (u64)n;
	return n;
}

int file_remove_privs(struct inode *inode, const struct cred *cred)
{
	u32 mode = __atomic_load_n(&inode->mode, __ATOMIC_RELAXED);
	struct iattr attr = { .mask = ATTR_KILL_SUID };
	bool kill;
	int err = 0;

	if (inode->type != S_IFREG || (atomic_load(&inode->iflags) & INODE_NOSEC))
		return 0;
	kill = (mode & S_ISUID) || (mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
	if (inode->ops->getxattr && inode->ops->removexattr &&
	    inode->ops->getxattr(inode, "security.capability", NULL, 0) >= 0) {
		err = inode->ops->removexattr(inode, "security.capability");
		if (err == -ENODATA)
			err = 0;
	}
	if (kill && (!cred || !cred_capable(cred, CAP_FSETID)))
		err = inode->ops->setattr ? inode->ops->setattr(inode, &attr)
					  : vfs_generic_setattr(inode, &attr);
	else if (!kill && !err)
		atomic_fetch_or(&inode->iflags, INODE_NOSEC);
	return err;
}

/* How many bytes may be written at offset under the limit; 0 with *ret_err set. */
static int write_limit(struct file *f, struct kiov *src, u64 offset, u64 limit)
{
	u64 max = limit < INT64_MAX ? limit : INT64_MAX;

	if (f->inode->type != S_IFREG)
		return 0;
	if (offset >= max)
		return -EFBIG;
	if (src->remaining > max - offset)
		kiov_truncate(src, max - offset);
	return 0;
}

static int append_offset(struct file *f, u64 *ret)
{
	struct kstat st;
	int err = inode_getattr(f->inode, &st);

	if (!err)
		*ret = st.size;
	return err;
}

/* *io_offset becomes the position after the write. */
static ssize_t do_write(struct file *f, struct kiov *src, u64 *io_offset, int flags, u64 limit)
{
	struct inode *inode = f->inode;
	bool append =
		inode->type == S_IFREG &&
		(((file_flags(f) & O_APPEND) && !(flags & RWF_NOAPPEND)) || (flags & RWF_APPEND));
	u64 offset = *io_offset;
	ssize_t n;
	int err;

	/* Where the host has the position, its place does not matter without a limit. */
	if (inode->type == S_IFREG && (offset != FILE_POS_OWN || limit < INT64_MAX)) {
		if (src->remaining == 0)
			return 0;
		if (offset == FILE_POS_OWN && (err = vfs_pos(f, &offset)) < 0)
			return err;
		if (offset > INT64_MAX || src->remaining > INT64_MAX - offset)
			return -EINVAL;
		if (append && (err = append_offset(f, &offset)) < 0)
			return err;
		err = write_limit(f, src, offset, limit);
		if (!err && !f->ops->own_pos)
			err = file_remove_privs(inode, f->cred);
		if (err)
			return err;
	}
	n = f->ops->write(f, src, f->ops->own_pos ? *io_offset : offset,
			  append ? flags | RWF_APPEND : flags & ~RWF_APPEND);
	if (n <= 0)
		return n;
	if (inode->type == S_IFREG && !(inode->sb->flags & SB_OWN_TIMES))
		inode_touch(inode, ATTR_MTIME);
	if (append && !f->ops->own_pos && append_offset(f, &offset) == 0)
		*io_offset = offset;
	else
		*io_offset = offset + (u64)n;
	if (vfs_notify_hook && f->path.mnt)
		vfs_notify_path(&f->path, IN_MODIFY);
	return n;
}

ssize_t vfs_write(struct file *f, struct kiov *src, const u64 *offset, int flags, u64 fsize_limit)
{
	u64 pos = offset ? *offset : f->ops->own_pos ? FILE_POS_OWN : 0;

	if (!file_writable(f))
		return -EBADF;
	if (!f->ops->write)
		return -EINVAL;
	if (offset)
		return f->ops->seek ? do_write(f, src, &pos, flags, fsize_limit) : -ESPIPE;
	if (!f->ops->seek || f->ops->own_pos)
		return do_write(f, src, &pos, flags, fsize_limit);
	MUTEX_GUARD(&f->pos_lock);
	return do_write(f, src, &f->pos, flags, fsize_limit);
}

/* ---- without pinned memory ---- */

/* One transfer of all of d at offset, which the file system can do at once; else false. */
static bool transfer_direct(struct file *f, struct vfs_direct *d, u64 offset, bool write,
			    ssize_t *ret)
{
	struct file *real = f->ops->direct(f);
	struct iovec seg;
	struct kiov k;
	void *p;

	if (!real || offset > INT64_MAX - d->len || (write && !real->ops->overwrite))
		return false;
	p = d->begin(d);
	if (!p)
		return false;
	kiov_init_buf(&k, &seg, p, d->len);
	*ret = write ? real->ops->overwrite(real, &k, offset)
		     : real->ops->read(real, &k, offset, 0);
	d->end(d);
	if (*ret < 0)
		return false;
	if (write)
		inode_touch(real->inode, ATTR_MTIME);
	else if (*ret > 0)
		file_accessed(f, real->inode);
	if (vfs_notify_hook && f->path.mnt && *ret > 0)
		vfs_notify_path(&f->path, write ? IN_MODIFY : IN_ACCESS);
	return true;
}

/* The same at the file's position when offset is NULL. */
static bool transfer_direct_at(struct file *f, struct vfs_direct *d, const u64 *offset, bool write,
			       ssize_t *ret)
{
	bool done;

	if (offset)
		return transfer_direct(f, d, *offset, write, ret);
	MUTEX_GUARD(&f->pos_lock);
	done = transfer_direct(f, d, f->pos, write, ret);
	if (done)
		f->pos += (u64)*ret;
	return done;
}

bool vfs_read_direct(struct file *f, struct vfs_direct *d, const u64 *offset, ssize_t *ret)
{
	return file_readable(f) && transfer_direct_at(f, d, offset, false, ret);
}

bool vfs_write_direct(struct file *f, struct vfs_direct *d, const u64 *offset, u64 fsize_limit,
		      ssize_t *ret)
{
	/* Data that is there is within the limit of whoever wrote it, but maybe not of this one. */
	if (!file_writable(f) || (file_flags(f) & O_APPEND) || fsize_limit < INT64_MAX)
		return false;
	if (!(atomic_load_explicit(&f->inode->iflags, memory_order_relaxed) & INODE_NOSEC))
		return false;
	return transfer_direct_at(f, d, offset, true, ret);
}

ssize_t vfs_read_buf(struct file *f, void *dst, size_t len, u64 offset)
{
	size_t done = 0;

	if (!f->ops->read || inode_is_dir(f->inode))
		return -EINVAL;
	while (done < len) {
		struct iovec one;
		struct kiov k;
		ssize_t n;

		kiov_init_buf(&k, &one, (char *)dst + done, len - done);
		n = f->ops->read(f, &k, offset + done, 0);
		if (n < 0 && !done)
			return n;
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	if (done && vfs_notify_hook && f->path.mnt)
		vfs_notify_path(&f->path, IN_ACCESS);
	return (ssize_t)done;
}

ssize_t vfs_write_buf(struct file *f, const void *src, size_t len, u64 offset)
{
	size_t done = 0;

	if (!f->ops->write)
		return -EINVAL;
	while (done < len) {
		struct iovec one;
		struct kiov k;
		ssize_t n;

		kiov_init_buf(&k, &one, (char *)(uintptr_t)src + done, len - done);
		n = f->ops->write(f, &k, offset + done, 0);
		if (n < 0)
			return done ? (ssize_t)done : n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* ---- positions, listing, readiness ---- */

s64 vfs_generic_seek(struct file *f, s64 offset, int whence, u64 size)
{
	s64 pos;

	switch (whence) {
	case SEEK_SET: pos = offset; break;
	case SEEK_CUR:
		if (__builtin_add_overflow((s64)f->pos, offset, &pos))
			return -EINVAL;
		break;
	case SEEK_END:
		if (__builtin_add_overflow((s64)size, offset, &pos))
			return -EINVAL;
		break;
	case SEEK_DATA:
	case SEEK_HOLE:
		if (offset < 0 || (u64)offset >= size)
			return -ENXIO;
		pos = whence == SEEK_DATA ? offset : (s64)size;
		break;
	default: return -EINVAL;
	}
	return pos < 0 ? -EINVAL : pos;
}

int vfs_pos(struct file *f, u64 *ret)
{
	s64 pos;

	MUTEX_GUARD(&f->pos_lock);
	pos = f->ops->own_pos ? f->ops->seek(f, 0, SEEK_CUR) : (s64)f->pos;
	if (pos < 0)
		return (int)pos;
	*ret = (u64)pos;
	return 0;
}

void vfs_set_pos(struct file *f, u64 pos)
{
	MUTEX_GUARD(&f->pos_lock);
	f->pos = pos;
	if (f->ops->own_pos)
		f->ops->seek(f, (s64)pos, SEEK_SET);
}

s64 vfs_lseek(struct file *f, s64 offset, int whence)
{
	s64 pos;

	if (file_flags(f) & O_PATH)
		return -EBADF;
	if (whence < 0 || whence > SEEK_HOLE)
		return -EINVAL;
	if (!f->ops->seek && !f->ops->iterate)
		return -ESPIPE;
	MUTEX_GUARD(&f->pos_lock);
	if (f->ops->seek)
		pos = f->ops->seek(f, offset, whence);
	else if (whence == SEEK_SET || whence == SEEK_CUR)
		pos = vfs_generic_seek(f, offset, whence, 0);
	else
		pos = -EINVAL;
	if (pos >= 0)
		f->pos = (u64)pos;
	return pos;
}

int vfs_iterate(struct file *f, struct dir_emit *e)
{
	int err;

	if (file_flags(f) & O_PATH)
		return -EBADF;
	if (!f->ops->iterate)
		return -ENOTDIR;
	if (f->path.dentry && path_deleted(&f->path))
		return -ENOENT;
	mutex_lock(&f->pos_lock);
	err = f->ops->iterate(f, e, &f->pos);
	mutex_unlock(&f->pos_lock);
	if (!err) {
		file_accessed(f, f->inode);
		if (vfs_notify_hook && f->path.mnt)
			vfs_notify_path(&f->path, IN_ACCESS | IN_ISDIR);
	}
	return err;
}

u64 file_parent_ino(struct file *f)
{
	struct dentry *parent;
	u64 ino;

	if (!f->path.dentry)
		return f->inode->ino;
	parent = dentry_parent(f->path.dentry);
	ino = parent->inode->ino;
	dentry_put(parent);
	return ino;
}

u32 vfs_poll(struct file *f)
{
	if (f->ops->poll)
		return f->ops->poll(f);
	return EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM;
}

struct waitq *vfs_waitq(struct file *f)
{
	return f->ops->waitq ? f->ops->waitq(f) : NULL;
}

/* ---- device nodes ---- */

#define CHRDEV_MAX_MAJOR 4096

static int (*chrdev_open[CHRDEV_MAX_MAJOR])(struct inode *inode, struct file *file);

int vfs_register_chrdev(u32 major, int (*open)(struct inode *inode, struct file *file))
{
	if (major >= CHRDEV_MAX_MAJOR)
		return -EINVAL;
	if (chrdev_open[major])
		return -EBUSY;
	chrdev_open[major] = open;
	return 0;
}

int vfs_open_device(struct inode *inode, struct file *file)
{
	if (inode->type != S_IFCHR || inode->rdev_major >= CHRDEV_MAX_MAJOR ||
	    !chrdev_open[inode->rdev_major])
		return -ENXIO;
	return chrdev_open[inode->rdev_major](inode, file);
}
