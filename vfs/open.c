#include "vfs/dentry.h"
#include "vfs/file.h"
#include "vfs/mount.h"
#include "vfs/pipe.h"
#include "vfs/walk.h"
#include <linux/capability.h>
#include <stdio.h>
#include <sys/inotify.h>

#define O_TMPFILE_BIT (O_TMPFILE & ~O_DIRECTORY)
/* What stays in file->flags of what open(2) was given. */
#define OPEN_ONCE                                                                                  \
	(O_CREAT | O_EXCL | O_TRUNC | VFS_O_EXEC) /* and O_NOCTTY, once the device has seen it */

static int access_mask(u32 flags)
{
	static const int by_mode[4] = { MAY_READ, MAY_WRITE, MAY_READ | MAY_WRITE,
					MAY_READ | MAY_WRITE };
	int mask;

	if (flags & VFS_O_EXEC)
		return MAY_EXEC;
	mask = by_mode[flags & O_ACCMODE];
	return flags & O_TRUNC ? mask | MAY_WRITE : mask;
}

/* Normalises the flags of an open, or refuses them. */
static int check_flags(u32 *flags)
{
	u32 f = *flags;

	if (f & O_PATH) {
		*flags = f & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		return 0;
	}
	if ((f & (O_CREAT | O_DIRECTORY)) == (O_CREAT | O_DIRECTORY))
		return -EINVAL;
	if (f & O_TMPFILE_BIT) {
		if (!(f & O_DIRECTORY) || (f & O_CREAT))
			return -EINVAL;
		if (!(access_mask(f) & MAY_WRITE))
			return -EINVAL;
	}
	return 0;
}

/* may_open of Linux: by type, permission, mount. */
static int check_open(const struct path *p, u32 flags, const struct cred *cred)
{
	struct inode *inode = p->dentry->inode;
	u32 mflags = p->mnt ? mount_flags(p->mnt) : 0;
	int mask = access_mask(flags), err;
	struct kstat st;

	switch (inode->type) {
	case S_IFLNK: return -ELOOP;
	case S_IFDIR:
		if (mask & MAY_WRITE)
			return -EISDIR;
		if (mask & MAY_EXEC)
			return -EACCES;
		break;
	case S_IFBLK:
	case S_IFCHR:
		if (mflags & MS_NODEV)
			return -EACCES;
		/* fall through */
	case S_IFIFO:
	case S_IFSOCK:
		if (mask & MAY_EXEC)
			return -EACCES;
		break;
	default:
		if ((mask & MAY_EXEC) && (mflags & MS_NOEXEC))
			return -EACCES;
	}
	err = path_permission(p, cred, mask);
	if (err || !(flags & O_NOATIME))
		return err;
	err = inode_getattr(inode, &st);
	if (err)
		return err;
	return st.uid == cred->fsuid || cred_capable(cred, CAP_FOWNER) ? 0 : -EPERM;
}

static int truncate_for_open(struct inode *inode, const struct cred *cred)
{
	struct iattr attr = { .mask = ATTR_SIZE | ATTR_MTIME_NOW };
	int err = file_remove_privs(inode, cred);

	if (err)
		return err;
	return inode->ops->setattr ? inode->ops->setattr(inode, &attr) : 0;
}

static int open_by_type(struct inode *inode, struct file *f)
{
	int err;

	switch (inode->type) {
	case S_IFCHR:
	case S_IFBLK: return vfs_open_device(inode, f);
	case S_IFIFO: err = fifo_open(inode, f); return err == -EAGAIN ? 0 : err;
	case S_IFSOCK: return -ENXIO;
	default: return inode->ops->open ? inode->ops->open(inode, f) : -ENXIO;
	}
}

static const struct file_ops path_file_ops = { .kind = "path" };

int open_resolved(const struct path *p, u32 flags, const struct cred *cred, bool created,
		  struct file **ret)
{
	struct inode *inode = p->dentry->inode;
	bool writes = (flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR;
	bool counts = S_ISREG(inode->type) && (writes || (flags & O_TRUNC));
	struct file *f;
	int err = file_new(inode, p, flags & ~OPEN_ONCE, cred, NULL, NULL, &f);

	if (err)
		return err;
	if (flags & O_PATH) {
		f->ops = &path_file_ops;
		*ret = f;
		return 0;
	}
	if (counts) {
		err = inode_get_write(inode);
		f->holds_write = err == 0;
	}
	if (!err && (flags & O_TRUNC) && S_ISREG(inode->type) && !created) {
		err = truncate_for_open(inode, cred);
		if (!err)
			vfs_notify_path(p, IN_MODIFY);
	}
	if (f->holds_write && !writes) {
		inode_put_write(inode);
		f->holds_write = false;
	}
	if (!err)
		err = open_by_type(inode, f);
	if (err) {
		if (f->holds_write)
			inode_put_write(inode);
		file_discard(f);
		return err;
	}
	atomic_fetch_and(&f->flags, ~(u32)O_NOCTTY);
	if (p->mnt)
		vfs_notify_path(p, IN_OPEN);
	*ret = f;
	return 0;
}

static int open_checked(const struct path *p, u32 flags, const struct cred *cred, struct file **ret)
{
	int err;

	if ((flags & O_DIRECTORY) && !inode_is_dir(p->dentry->inode))
		return -ENOTDIR;
	if (!(flags & O_PATH)) {
		err = check_open(p, flags, cred);
		if (err)
			return err;
	}
	return open_resolved(p, flags, cred, false, ret);
}

int vfs_open_path(const struct path *p, u32 flags, const struct cred *cred, struct file **ret)
{
	int err = check_flags(&flags);

	return err ? err : open_checked(p, flags & ~(O_CREAT | O_EXCL), cred, ret);
}

/* ---- O_TMPFILE ---- */

static int make_tmpfile(const struct walk_context *w, const struct path *dir,
			const struct open_how_k *how, struct file **ret)
{
	struct inode *inode, *d = dir->dentry->inode;
	struct inode_create c;
	struct path p = { .mnt = dir->mnt };
	char name[32];
	int err, n;

	if (!inode_is_dir(d))
		return -ENOTDIR;
	err = vfs_permission(d, w->cred, MAY_WRITE | MAY_EXEC);
	if (!err && path_read_only(dir))
		err = -EROFS;
	if (!err && !d->ops->tmpfile)
		err = -EOPNOTSUPP;
	if (!err)
		err = init_create(d, w, S_IFREG | (how->mode & 07777), &c);
	if (err)
		return err;
	rwlock_wrlock(&d->dir_lock);
	err = dentry_deleted(dir->dentry) ? -ENOENT : d->ops->tmpfile(d, &c, &inode);
	rwlock_unlock(&d->dir_lock);
	if (err)
		return err;
	if (!(how->flags & O_EXCL))
		atomic_fetch_or(&inode->iflags, INODE_LINKABLE);
	n = snprintf(name, sizeof(name), "#%llu", (unsigned long long)inode->ino);
	p.dentry = dentry_alloc(dir->dentry, name, (size_t)n);
	if (!p.dentry) {
		inode_put(inode);
		return -ENOMEM;
	}
	p.dentry->inode = inode;
	p.dentry->deleted = true;
	err = open_resolved(&p, how->flags & ~(O_TMPFILE | O_EXCL | O_TRUNC), w->cred, true, ret);
	dentry_put(p.dentry);
	return err;
}

static int open_tmpfile(const struct walk_context *w, const char *path,
			const struct open_how_k *how, struct file **ret)
{
	struct path dir;
	u32 follow = how->flags & O_NOFOLLOW ? 0 : WALK_FOLLOW;
	int err = vfs_walk(w, path, follow | WALK_DIRECTORY, &dir);

	if (err)
		return err;
	err = make_tmpfile(w, &dir, how, ret);
	path_put(&dir);
	return err;
}

/* ---- O_CREAT ---- */

#define CREATE_TRIES 1000

/*
 * The name was absent a moment ago. Creates it, with the directory locked. 0 with ws->cur on the
 * new file; -EEXIST when somebody else was faster.
 */
static int create_here(struct walk *ws, u32 mode)
{
	struct dentry *there, *d = NULL;
	struct inode *dir = ws->cur.dentry->inode, *inode;
	struct inode_create c;
	int err;

	rwlock_wrlock(&dir->dir_lock);
	err = dentry_lookup_locked(ws->cur.dentry, ws->name, ws->len, &there);
	if (!err) {
		dentry_put(there);
		err = -EEXIST;
	} else if (err == -ENOENT) {
		err = path_read_only(&ws->cur) ? -EROFS : may_create(&ws->cur, ws->ctx->cred);
		if (!err)
			err = init_create(dir, ws->ctx, S_IFREG | (mode & 07777), &c);
		if (!err && !dir->ops->create)
			err = -EACCES;
		if (!err && !(d = dentry_alloc(ws->cur.dentry, ws->name, ws->len)))
			err = -ENOMEM;
		if (!err)
			err = dir->ops->create(dir, ws->name, &c, &inode);
		if (!err)
			dentry_instantiate(d, inode);
		else if (err == -EEXIST)
			dentry_forget_absence(d);
	}
	rwlock_unlock(&dir->dir_lock);
	if (err) {
		dentry_put(d);
		return err;
	}
	notify_child(dir, ws->name, inode, IN_CREATE, 0);
	dentry_put(ws->cur.dentry);
	ws->cur.dentry = d;
	return 0;
}

/* The last component of an open with O_CREAT: 0, -errno or WALK_AGAIN. */
static int finish_creating(struct walk *ws, const struct open_how_k *how, bool *ret_created)
{
	bool follow = !(how->flags & (O_NOFOLLOW | O_EXCL));
	int err;

	if (ws->last_kind != LAST_NORM)
		return walk_finish(ws, follow);
	if (ws->trailing)
		return -EISDIR;
	/* Whoever is faster each time, or a host that says both, ends it with -EEXIST. */
	for (int tries = 0; tries < CREATE_TRIES; tries++) {
		err = walk_finish(ws, follow);
		if (err != -ENOENT)
			return err;
		err = create_here(ws, how->mode);
		if (!err)
			*ret_created = true;
		if (err != -EEXIST)
			return err;
	}
	return err;
}

/* done: ws->cur is the object already. */
static int open_walked(struct walk *ws, const struct open_how_k *how, bool done, struct file **ret)
{
	bool creating = how->flags & O_CREAT, created = false;
	bool follow = !(how->flags & O_NOFOLLOW);
	int err = done ? 0 : WALK_AGAIN;

	while (err == WALK_AGAIN) {
		err = walk_to_parent(ws);
		if (!err)
			err = creating ? finish_creating(ws, how, &created)
				       : walk_finish(ws, follow);
	}
	if (err)
		return err;
	if (created)
		return open_resolved(&ws->cur, how->flags, ws->ctx->cred, true, ret);
	if (creating && (how->flags & O_EXCL))
		return -EEXIST;
	if (creating && inode_is_dir(ws->cur.dentry->inode))
		return -EISDIR;
	return open_checked(&ws->cur, how->flags, ws->ctx->cred, ret);
}

int vfs_open(const struct walk_context *w, const char *path, const struct open_how_k *how,
	     struct file **ret)
{
	struct open_how_k h = *how;
	struct walk ws;
	int err = check_flags(&h.flags);

	if (err)
		return err;
	if (h.flags & O_TMPFILE_BIT)
		return open_tmpfile(w, path, &h, ret);
	for (int tries = 0; tries < 2; tries++) {
		err = h.flags & O_CREAT ? walk_init(&ws, w, path)
					: walk_init_all(&ws, w, path, !(h.flags & O_NOFOLLOW));
		if (err < 0)
			return err;
		err = open_walked(&ws, &h, err == WALK_DONE, ret);
		/* Replaced on the host behind a cached name: look it up once more. */
		if (err == -ESTALE)
			dentry_recheck(ws.cur.dentry);
		walk_fini(&ws);
		if (err != -ESTALE)
			break;
	}
	dcache_trim();
	return err;
}
