#include "vfs/hostfs_internal.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The descriptor to make or remove names below dir. */
static int writable_dir(struct inode *dir, struct hostfs_fd **ret)
{
	if (hostfs_of(dir->sb)->read_only || hostfs_inode(dir)->hidden)
		return -EROFS;
	return hostfs_fd_get(hostfs_inode(dir), HFD_PATH, ret);
}

/*
 * Owner and exact mode of a new object. The owner is what the host gives unless we may choose; a
 * host that refuses chown (unprivileged callers, some mounts) is no error: the object belongs to
 * the caller.
 */
static void adopt(struct hostfs *fs, int dir_fd, const char *name, const struct inode_create *how,
		  struct statx *st)
{
	u32 uid = hostfs_uid_to_host(fs, how->uid), gid = hostfs_gid_to_host(fs, how->gid);
	bool changed = false;

	if (st->stx_uid != uid || st->stx_gid != gid)
		changed = host_fchownat(dir_fd, name, uid, gid) == 0;
	if ((st->stx_mode & 07777) != (how->mode & 07777) && !S_ISLNK(how->mode))
		changed |= host_fchmodat(dir_fd, name, how->mode & 07777) == 0;
	if (changed)
		host_statx(dir_fd, name, st);
}

static int make_on_host(int dir_fd, const char *name, u32 mode, int *ret_fd)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		*ret_fd = host_openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOCTTY,
				      mode & 07777);
		return *ret_fd < 0 ? *ret_fd : 0;
	case S_IFDIR: return host_mkdirat(dir_fd, name, mode & 07777);
	default: return host_mknodat(dir_fd, name, mode);
	}
}

/* What was just made becomes an inode; fd (or -1) is its descriptor, taken over. */
static int made(struct inode *dir, int dir_fd, const char *name, const struct inode_create *how,
		int fd, struct inode **ret)
{
	struct hostfs *fs = hostfs_of(dir->sb);
	struct statx st;
	int err = host_statx(dir_fd, name, &st);

	if (!err) {
		adopt(fs, dir_fd, name, how, &st);
		err = hostfs_inode_for(fs, hostfs_inode(dir), name, &st, ret);
	}
	if (err)
		host_close(fd);
	else if (fd >= 0)
		hostfs_fd_put(hostfs_fd_install(hostfs_inode(*ret), HFD_WRITE, fd, false));
	return err;
}

int hostfs_create(struct inode *dir, const char *name, const struct inode_create *how,
		  struct inode **ret)
{
	struct hostfs_fd *d;
	int fd = -1, err = writable_dir(dir, &d);

	if (err)
		return err;
	err = make_on_host(d->fd, name, how->mode, &fd);
	if (!err)
		err = made(dir, d->fd, name, how, fd, ret);
	hostfs_fd_put(d);
	return err;
}

int hostfs_symlink(struct inode *dir, const char *name, const char *target,
		   const struct inode_create *how, struct inode **ret)
{
	struct hostfs_fd *d;
	int err = writable_dir(dir, &d);

	if (err)
		return err;
	err = host_symlinkat(target, d->fd, name);
	if (!err)
		err = made(dir, d->fd, name, how, -1, ret);
	hostfs_fd_put(d);
	return err;
}

int hostfs_tmpfile(struct inode *dir, const struct inode_create *how, struct inode **ret)
{
	struct hostfs *fs = hostfs_of(dir->sb);
	struct hostfs_fd *d;
	struct statx st;
	int fd, err = writable_dir(dir, &d);

	if (err)
		return err;
	fd = host_openat(d->fd, ".", O_TMPFILE | O_RDWR, how->mode & 07777);
	hostfs_fd_put(d);
	if (fd < 0)
		return fd;
	err = host_statx(fd, "", &st);
	if (!err) {
		adopt(fs, fd, "", how, &st);
		err = hostfs_inode_unnamed(fs, hostfs_inode(dir), &st, ret);
	}
	if (err) {
		host_close(fd);
		return err;
	}
	hostfs_fd_put(hostfs_fd_install(hostfs_inode(*ret), HFD_WRITE, fd, false));
	return 0;
}

int hostfs_link(struct inode *dir, const char *name, struct inode *target)
{
	struct hostfs_inode *hi = hostfs_inode(target);
	struct hostfs_fd *d, *from;
	char from_name[NAME_MAX + 1];
	struct statx st;
	int err = writable_dir(dir, &d);

	if (err)
		return err;
	err = hostfs_place(hi, &from, from_name);
	if (!err) {
		err = host_linkat(from->fd, from_name, d->fd, name);
		hostfs_fd_put(from);
	} else if ((from = hostfs_fd_peek(hi, HFD_WRITE)) != NULL) {
		err = host_link_fd(from->fd, d->fd, name);
		hostfs_fd_put(from);
	}
	/* Another host process may have put something else there: then it is not our link. */
	if (!err)
		err = host_statx(d->fd, name, &st);
	if (!err && st.stx_ino != hi->host_ino) {
		host_unlinkat(d->fd, name, false);
		err = -ENOENT;
	}
	if (!err) {
		hostfs_set_place(hi, hostfs_inode(dir), name);
		hostfs_set_stat(hi, &st);
	}
	hostfs_fd_put(d);
	return err;
}

/* ---- removing ---- */

/* Before a name goes: whoever still uses the inode keeps a descriptor to reach it by. */
static void keep_reachable(struct hostfs_inode *hi)
{
	struct hostfs_fd *fd = hostfs_fd_peek(hi, HFD_KINDS);

	if (!fd && hostfs_fd_get(hi, HFD_PATH, &fd))
		return;
	hostfs_fd_put(fd);
}

/* After the name dir/name went: is it the place that hi remembers? Then hi has none, until found
 * again. */
static void name_gone(struct hostfs_inode *hi, struct inode *dir, const char *name)
{
	struct hostfs *fs = hostfs_of(dir->sb);
	bool ours, last;

	mutex_lock(&fs->table_lock);
	ours = hi->parent == hostfs_inode(dir) && strcmp(hi->name, name) == 0;
	mutex_unlock(&fs->table_lock);
	if (!ours)
		return;
	hostfs_lose_name(hi);
	hostfs_refresh(hi);
	mutex_lock(&hi->inode.attr_lock);
	last = hi->st.stx_nlink == 0;
	mutex_unlock(&hi->inode.attr_lock);
	if (last || inode_is_dir(&hi->inode))
		hostfs_unhash(hi);
}

static int remove_name(struct inode *dir, const char *name, struct inode *target, bool is_dir)
{
	struct hostfs_inode *hi = hostfs_inode(target);
	struct hostfs_fd *d;
	int err = writable_dir(dir, &d);

	if (err)
		return err;
	keep_reachable(hi);
	err = host_unlinkat(d->fd, name, is_dir);
	hostfs_fd_put(d);
	if (!err)
		name_gone(hi, dir, name);
	return err;
}

int hostfs_unlink(struct inode *dir, const char *name, struct inode *target)
{
	return remove_name(dir, name, target, false);
}

int hostfs_rmdir(struct inode *dir, const char *name, struct inode *target)
{
	return remove_name(dir, name, target, true);
}

/* Renames, and says where source and, if they change places, other are now. */
static int move_on_host(struct hostfs_fd *from, struct inode *old_dir, const char *old_name,
			struct hostfs_inode *source, struct hostfs_fd *to, struct inode *new_dir,
			const char *new_name, struct hostfs_inode *other, u32 flags)
{
	struct hostfs *fs = hostfs_of(old_dir->sb);
	int err;

	atomic_fetch_add(&fs->moves_begun, 1);
	err = host_renameat(from->fd, old_name, to->fd, new_name, flags);
	if (!err)
		hostfs_set_place(source, hostfs_inode(new_dir), new_name);
	if (!err && other)
		hostfs_set_place(other, hostfs_inode(old_dir), old_name);
	atomic_fetch_add(&fs->moves_ended, 1);
	return err;
}

int hostfs_rename(struct inode *old_dir, const char *old_name, struct inode *source,
		  struct inode *new_dir, const char *new_name, struct inode *target, u32 flags)
{
	bool exchange = target && flags & RENAME_EXCHANGE;
	struct hostfs_fd *from, *to;
	int err = writable_dir(old_dir, &from);

	if (err)
		return err;
	err = writable_dir(new_dir, &to);
	if (err) {
		hostfs_fd_put(from);
		return err;
	}
	if (flags & RENAME_WHITEOUT)
		err = -EINVAL;
	if (!err && target)
		keep_reachable(hostfs_inode(target));
	if (!err)
		err = move_on_host(from, old_dir, old_name, hostfs_inode(source), to, new_dir,
				   new_name, exchange ? hostfs_inode(target) : NULL, flags);
	hostfs_fd_put(from);
	hostfs_fd_put(to);
	if (!err && target && !exchange)
		name_gone(hostfs_inode(target), new_dir, new_name);
	return err;
}

/* ---- attributes ---- */

/* A way to name hi in a host call: *ret_fd with name "" or a name below it. */
static int handle(struct hostfs_inode *hi, struct hostfs_fd **ret_fd)
{
	struct hostfs_fd *fd = hostfs_fd_peek(hi, HFD_KINDS);

	if (!fd)
		return hostfs_fd_get(hi, HFD_PATH, ret_fd);
	*ret_fd = fd;
	return 0;
}

static int set_size(struct hostfs_inode *hi, u64 size)
{
	struct hostfs_fd *fd;
	struct pagecache *pc;
	int err = hostfs_fd_get(hi, HFD_WRITE, &fd);

	if (err)
		return err;
	rwlock_wrlock(&hi->inode.dir_lock);
	pc = atomic_load(&hi->cache);
	if (pc)
		pagecache_resized(pc, size);
	err = host_ftruncate(fd->fd, size);
	/* Again: a fault in between may have read what was cut off. */
	if (pc && !err)
		pagecache_resized(pc, size);
	rwlock_unlock(&hi->inode.dir_lock);
	hostfs_fd_put(fd);
	return err;
}

static struct timespec time_arg(const struct iattr *a, u32 set, u32 now, const struct timespec *t)
{
	if (a->mask & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (a->mask & set)
		return *t;
	return (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_owner(struct hostfs *fs, int fd, const struct iattr *a)
{
	u32 uid = a->mask & ATTR_UID ? hostfs_uid_to_host(fs, a->uid) : (u32)-1;
	u32 gid = a->mask & ATTR_GID ? hostfs_gid_to_host(fs, a->gid) : (u32)-1;

	return host_fchownat(fd, "", uid, gid);
}

static int kill_suid(struct hostfs_inode *hi, int fd)
{
	u32 mode = hi->inode.mode, want = mode & ~S_ISUID;

	if (S_ISDIR(mode))
		return 0;
	if (mode & S_IXGRP)
		want &= ~S_ISGID;
	return want == mode ? 0 : host_fchmodat(fd, "", want & 07777);
}

int hostfs_setattr(struct inode *inode, const struct iattr *a)
{
	const u32 times = ATTR_ATIME | ATTR_MTIME | ATTR_ATIME_NOW | ATTR_MTIME_NOW;
	struct hostfs *fs = hostfs_of(inode->sb);
	struct hostfs_inode *hi = hostfs_inode(inode);
	struct hostfs_fd *fd;
	int err = 0;

	if (fs->read_only || hi->hidden)
		return -EROFS;
	if (a->mask & ATTR_SIZE) {
		err = set_size(hi, a->size);
		if (err)
			return err;
	}
	err = handle(hi, &fd);
	if (err)
		return err;
	if (a->mask & (ATTR_UID | ATTR_GID))
		err = set_owner(fs, fd->fd, a);
	if (!err && (a->mask & ATTR_MODE))
		err = host_fchmodat(fd->fd, "", a->mode & 07777);
	if (!err && (a->mask & ATTR_KILL_SUID) && !(a->mask & ATTR_MODE))
		err = kill_suid(hi, fd->fd);
	/* Truncation sets the modification time by itself. */
	if (!err && (a->mask & times) && !(a->mask & ATTR_SIZE)) {
		struct timespec t[2] = {
			time_arg(a, ATTR_ATIME, ATTR_ATIME_NOW, &a->atime),
			time_arg(a, ATTR_MTIME, ATTR_MTIME_NOW, &a->mtime),
		};
		err = host_utimensat(fd->fd, "", t);
	}
	hostfs_fd_put(fd);
	if (!err)
		hostfs_refresh(hi);
	return err;
}
