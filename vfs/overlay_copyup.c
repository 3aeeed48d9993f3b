#include "vfs/overlay_internal.h"
#include "base/log.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/xattr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_CHUNK (1UL << 20)

void ovl_pool_name(char dst[24], u64 id)
{
	snprintf(dst, 24, "%llu", (unsigned long long)id);
}

int ovl_open_layer(struct overlay *o, struct inode *real, u32 flags, struct file **ret)
{
	struct file *f;
	int err = file_new(real, NULL, flags, o->cred, NULL, NULL, &f);

	if (err)
		return err;
	err = real->ops->open ? real->ops->open(real, f) : -ENXIO;
	if (err)
		file_discard(f);
	else
		*ret = f;
	return err;
}

/* ---- data ---- */

/* The next run of data at or behind offset; false: only a hole is left. */
static bool next_data(struct file *f, u64 size, u64 offset, u64 *ret_start, u64 *ret_end)
{
	s64 data, hole;

	*ret_start = offset;
	*ret_end = size;
	if (!f->ops->seek)
		return true;
	data = f->ops->seek(f, (s64)offset, SEEK_DATA);
	if (data == -ENXIO)
		return false;
	if (data < 0)
		return true;
	hole = f->ops->seek(f, data, SEEK_HOLE);
	*ret_start = (u64)data;
	if (hole > data)
		*ret_end = MIN((u64)hole, size);
	return *ret_start < size;
}

static int copy_run(struct file *from, struct file *to, u64 start, u64 end, char *buf)
{
	while (start < end) {
		ssize_t n = vfs_read_buf(from, buf, MIN(COPY_CHUNK, end - start), start), w;

		if (n <= 0)
			return n ? (int)n : 0; /* shorter than it was */
		w = vfs_write_buf(to, buf, (size_t)n, start);
		if (w != n)
			return w < 0 ? (int)w : -ENOSPC;
		start += (u64)n;
	}
	return 0;
}

static int copy_data(struct overlay *o, struct inode *lower, struct inode *upper, u64 size)
{
	struct iattr attr = { .mask = ATTR_SIZE, .size = size };
	struct file *from = NULL, *to = NULL;
	u64 at = 0, start, end;
	char *buf = NULL;
	int err;

	if (!size)
		return 0;
	err = ovl_open_layer(o, lower, O_RDONLY, &from);
	if (!err)
		err = ovl_open_layer(o, upper, O_RDWR, &to);
	if (!err && !(buf = malloc(MIN(COPY_CHUNK, size))))
		err = -ENOMEM;
	if (!err)
		err = upper->ops->setattr(upper, &attr);
	while (!err && at < size && next_data(from, size, at, &start, &end)) {
		err = copy_run(from, to, start, end, buf);
		at = end;
	}
	free(buf);
	file_put(from);
	file_put(to);
	return err;
}

/* ---- attributes ---- */

static int copy_xattr(struct inode *lower, struct inode *upper, const char *name)
{
	ssize_t n = lower->ops->getxattr(lower, name, NULL, 0);
	char *value;
	int err;

	if (n < 0)
		return 0; /* gone meanwhile */
	value = malloc((size_t)n + 1);
	if (!value)
		return -ENOMEM;
	n = lower->ops->getxattr(lower, name, value, (size_t)n);
	err = n < 0 ? 0 : upper->ops->setxattr(upper, name, value, (size_t)n, 0);
	free(value);
	/* What the upper layer does not store is lost, not fatal. */
	return err == -EOPNOTSUPP || err == -EPERM ? 0 : err;
}

static int copy_xattrs(struct inode *lower, struct inode *upper)
{
	char *list;
	ssize_t n;
	int err = 0;

	if (!lower->ops->listxattr || !lower->ops->getxattr || !upper->ops->setxattr)
		return 0;
	n = lower->ops->listxattr(lower, NULL, 0);
	if (n <= 0)
		return 0;
	list = malloc((size_t)n);
	if (!list)
		return -ENOMEM;
	n = lower->ops->listxattr(lower, list, (size_t)n);
	for (ssize_t i = 0; i < n && !err; i += (ssize_t)strlen(list + i) + 1)
		err = copy_xattr(lower, upper, list + i);
	free(list);
	return err;
}

static int copy_attr(struct inode *upper, const struct kstat *st)
{
	struct iattr attr = {
		.mask = ATTR_UID | ATTR_GID | ATTR_ATIME | ATTR_MTIME,
		.mode = st->mode,
		.uid = st->uid,
		.gid = st->gid,
		.atime = st->atime,
		.mtime = st->mtime,
	};

	if (!S_ISLNK(st->mode))
		attr.mask |= ATTR_MODE;
	return upper->ops->setattr ? upper->ops->setattr(upper, &attr)
				   : vfs_generic_setattr(upper, &attr);
}

/* ---- the object ---- */

static int make_in_pool(struct overlay *o, struct ovl_inode *oi, const struct kstat *st,
			const char *name, struct inode **ret)
{
	struct inode_create how = { .mode = st->mode,
				    .uid = st->uid,
				    .gid = st->gid,
				    .rdev_major = st->rdev_major,
				    .rdev_minor = st->rdev_minor };
	struct inode *lower = oi->lower;
	char target[PATH_MAX];
	ssize_t n = 0;
	int err;

	if (S_ISLNK(st->mode)) {
		n = lower->ops->readlink(lower, target, sizeof(target));
		if (n < 0 || n >= PATH_MAX)
			return n < 0 ? (int)n : -ENAMETOOLONG;
		target[n] = '\0';
	}
	rwlock_wrlock_nested(&o->pool->dir_lock);
	if (S_ISLNK(st->mode))
		err = o->pool->ops->symlink(o->pool, name, target, &how, ret);
	else
		err = o->pool->ops->create(o->pool, name, &how, ret);
	rwlock_unlock(&o->pool->dir_lock);
	return err;
}

static void remove_from_pool(struct overlay *o, const char *name, struct inode *upper)
{
	rwlock_wrlock_nested(&o->pool->dir_lock);
	if (inode_is_dir(upper)) {
		rwlock_wrlock_nested(&upper->dir_lock);
		o->pool->ops->rmdir(o->pool, name, upper);
		rwlock_unlock(&upper->dir_lock);
	} else {
		o->pool->ops->unlink(o->pool, name, upper);
	}
	rwlock_unlock(&o->pool->dir_lock);
}

void ovl_drop_pool_name(struct overlay *o, struct ovl_inode *oi)
{
	char name[24];

	mutex_lock_nested(&oi->copy_lock);
	if (oi->pool_id) {
		ovl_pool_name(name, oi->pool_id);
		oi->pool_id = 0;
		remove_from_pool(o, name, ovl_upper(oi));
	}
	mutex_unlock(&oi->copy_lock);
}

/* copy_lock held. */
static int copy_up_locked(struct overlay *o, struct ovl_inode *oi, bool with_data)
{
	u64 id = atomic_fetch_add(&o->next_pool_id, 1);
	struct inode *upper;
	struct kstat st;
	char name[24];
	int err = inode_getattr(oi->lower, &st);

	if (err)
		return err;
	ovl_pool_name(name, id);
	err = make_in_pool(o, oi, &st, name, &upper);
	if (err)
		return err;
	if (S_ISREG(st.mode) && with_data)
		err = copy_data(o, oi->lower, upper, st.size);
	if (!err)
		err = copy_xattrs(oi->lower, upper);
	if (!err)
		err = copy_attr(upper, &st);
	if (err) {
		remove_from_pool(o, name, upper);
		inode_put(upper);
		return err;
	}
	oi->pool_id = id;
	/* Ordered against get_layer_map of the lower layer and the check after it: one side sees
	 * the other. */
	atomic_store(&oi->upper, upper);
	ovl_enter_upper(o, oi);
	return 0;
}

int ovl_copy_up(struct ovl_inode *oi, bool with_data)
{
	struct overlay *o = overlay_of(oi->inode.sb);
	bool nameless;
	int err = 0;

	if (ovl_upper(oi))
		return 0;
	mutex_lock_nested(&oi->copy_lock);
	if (!ovl_upper(oi))
		err = copy_up_locked(o, oi, with_data);
	/* An object that lost its last name while it was lower keeps none in the pool either. */
	nameless = !err && ovl_nlink(oi) == 0;
	mutex_unlock(&oi->copy_lock);
	if (nameless)
		ovl_drop_pool_name(o, oi);
	if (!err)
		ovl_sync_attr(oi);
	return err ? err : ovl_map_switch(oi);
}
