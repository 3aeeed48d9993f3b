#include "vfs/overlay_internal.h"
#include "base/log.h"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * An open file of the overlay has an open file of the layer that holds the data. When the object is
 * copied up after that, the next operation opens the upper one: later reads see later writes,
 * whoever made them. The lower one stays until release, because another thread may be inside it.
 */
struct ovl_file {
	_Atomic(struct file *) lower, upper;
};

static struct overlay *fs_of(struct file *f)
{
	return overlay_of(f->inode->sb);
}

/* Opens the layer's file if nobody has yet. */
static int open_once(struct overlay *o, struct inode *real, u32 flags, _Atomic(struct file *) *slot,
		     struct file **ret)
{
	struct file *have = atomic_load(slot), *mine;
	int err;

	if (have) {
		*ret = have;
		return 0;
	}
	err = ovl_open_layer(o, real, flags, &mine);
	if (err)
		return err;
	if (atomic_compare_exchange_strong(slot, &have, mine)) {
		*ret = mine;
		return 0;
	}
	file_put(mine);
	*ret = have;
	return 0;
}

static int real_file(struct file *f, struct file **ret)
{
	struct ovl_file *of = f->private;
	struct ovl_inode *oi = ovl(f->inode);
	struct inode *upper = ovl_upper(oi);
	u32 flags = file_flags(f) & (O_ACCMODE | O_SYNC | O_DSYNC | O_LARGEFILE);

	if (upper)
		return open_once(fs_of(f), upper, flags, &of->upper, ret);
	return open_once(fs_of(f), oi->lower, O_RDONLY, &of->lower, ret);
}

static void file_release(struct file *f)
{
	struct ovl_file *of = f->private;

	file_put(atomic_load(&of->lower));
	file_put(atomic_load(&of->upper));
	free(of);
}

static ssize_t file_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct inode *upper;
	struct file *real;
	int err = real_file(f, &real);
	ssize_t n;

	if (err)
		return err;
	if (!real->ops->read)
		return -EINVAL;
	n = real->ops->read(real, dst, offset, flags);
	upper = ovl_upper(ovl(f->inode));
	if (n > 0 && upper && !(file_flags(f) & O_NOATIME))
		inode_accessed(upper);
	return n;
}

static ssize_t file_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct file *real;
	int err = real_file(f, &real);
	ssize_t n;

	if (err)
		return err;
	if (!real->ops->write)
		return -EINVAL;
	n = real->ops->write(real, src, offset, flags);
	if (n > 0)
		inode_touch(real->inode, ATTR_MTIME);
	return n;
}

static s64 file_seek(struct file *f, s64 offset, int whence)
{
	struct file *real;
	struct kstat st = { 0 };
	int err = 0;

	if (whence == SEEK_DATA || whence == SEEK_HOLE) {
		err = real_file(f, &real);
		if (!err && real->ops->seek)
			return real->ops->seek(real, offset, whence);
	}
	if (!err && whence != SEEK_SET && whence != SEEK_CUR)
		err = inode_getattr(f->inode, &st);
	return err ? err : vfs_generic_seek(f, offset, whence, st.size);
}

static int file_mappable(struct file *f, struct mappable **ret)
{
	return ovl_mappable(f->inode, ret);
}

static int file_fsync(struct file *f, bool data_only)
{
	struct file *real;
	int err = real_file(f, &real);

	if (err)
		return err;
	return real->ops->fsync ? real->ops->fsync(real, data_only) : 0;
}

static int file_fallocate(struct file *f, int mode, u64 offset, u64 len)
{
	struct file *real;
	int err = real_file(f, &real);

	if (err)
		return err;
	return real->ops->fallocate ? real->ops->fallocate(real, mode, offset, len) : -EOPNOTSUPP;
}

static s64 file_ioctl(struct file *f, u32 cmd, u64 arg)
{
	struct file *real;
	int err = real_file(f, &real);

	if (err)
		return err;
	return real->ops->ioctl ? real->ops->ioctl(real, cmd, arg) : -ENOTTY;
}

/* The upper layer's file, once it was used; direct if that layer is. */
static struct file *file_direct(struct file *f)
{
	struct file *real = atomic_load(&((struct ovl_file *)f->private)->upper);

	return real && real->ops->direct ? real->ops->direct(real) : NULL;
}

static const struct file_ops ovl_file_ops = {
	.kind = "overlay",
	.direct = file_direct,
	.release = file_release,
	.read = file_read,
	.write = file_write,
	.seek = file_seek,
	.ioctl = file_ioctl,
	.mappable = file_mappable,
	.fsync = file_fsync,
	.fallocate = file_fallocate,
};

int ovl_open(struct inode *inode, struct file *f)
{
	struct ovl_file *of;
	struct file *real;
	int err = 0;

	if (!S_ISREG(inode->type))
		return -ENXIO;
	if (file_writable(f))
		err = ovl_copy_up(ovl(inode), true);
	if (err)
		return err;
	of = calloc(1, sizeof(*of));
	if (!of)
		return -ENOMEM;
	f->private = of;
	/* Now, so that what the host forbids fails here and not at the first read. */
	err = real_file(f, &real);
	if (err) {
		free(of);
		return err;
	}
	f->ops = &ovl_file_ops;
	return 0;
}

/* ---- mappings ---- */

static struct ovl_inode *of_mappable(struct mappable *m)
{
	return container_of(m, struct ovl_inode, mappable);
}

/* The layer's mappable that holds the data now; NULL: never asked for. */
static struct mappable *real_map(struct ovl_inode *oi)
{
	struct mappable *m = atomic_load(&oi->upper_map);

	return m ? m : atomic_load(&oi->lower_map);
}

static void map_get(struct mappable *m)
{
	inode_get(&of_mappable(m)->inode);
}

static void map_put(struct mappable *m)
{
	inode_put(&of_mappable(m)->inode);
}

static int map_translate(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
			 bool for_write, struct translation *ret)
{
	struct mappable *real = real_map(of_mappable(m));

	return real ? real->ops->translate(real, offset, want_start, want_end, for_write, ret)
		    : -EFAULT;
}

static int map_peek(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
		    struct translation *ret)
{
	struct mappable *real = real_map(of_mappable(m));

	return real && real->ops->peek ? real->ops->peek(real, offset, want_start, want_end, ret)
				       : -EAGAIN;
}

static bool map_resident(struct mappable *m, u64 start, u64 end, u8 *vec)
{
	struct mappable *real = real_map(of_mappable(m));

	return real && real->ops->resident && real->ops->resident(real, start, end, vec);
}

/* The lower layer may drop what nobody uses. lower_map is set before the first mapping or never. */
static void use_lower(struct ovl_inode *oi, int delta)
{
	struct mappable *lower = atomic_load(&oi->lower_map);

	if (lower && lower->ops->use)
		lower->ops->use(lower, delta);
}

static int map_add(struct mappable *m, struct mapping *mapping)
{
	struct ovl_inode *oi = of_mappable(m);

	use_lower(oi, 1);
	MUTEX_GUARD(&oi->map_lock);
	list_push_back(&oi->mappings, &mapping->node);
	return 0;
}

static void map_remove(struct mappable *m, struct mapping *mapping)
{
	struct ovl_inode *oi = of_mappable(m);

	use_lower(oi, -1);
	MUTEX_GUARD(&oi->map_lock);
	list_del(&mapping->node);
}

static int map_sync(struct mappable *m, u64 start, u64 end)
{
	struct mappable *real = real_map(of_mappable(m));

	return real && real->ops->sync ? real->ops->sync(real, start, end) : 0;
}

static void map_identify(struct mappable *m, u32 *ret_major, u32 *ret_minor, u64 *ret_ino)
{
	struct inode *inode = &of_mappable(m)->inode;

	*ret_major = inode->sb->dev_major;
	*ret_minor = inode->sb->dev_minor;
	*ret_ino = inode->ino;
}

/* After the copy up it is asked for again, as mappings then come anew. */
static void map_watch(struct mappable *m)
{
	struct mappable *real = real_map(of_mappable(m));

	if (real && real->ops->watch)
		real->ops->watch(real);
}

static const struct mappable_ops ovl_mappable_ops = {
	.get = map_get,
	.put = map_put,
	.translate = map_translate,
	.resident = map_resident,
	.peek = map_peek,
	.add = map_add,
	.remove = map_remove,
	.sync = map_sync,
	.identify = map_identify,
	.watch = map_watch,
};

static void lock_mappings(void *inode)
{
	mutex_lock(&((struct ovl_inode *)inode)->map_lock);
}

static void unlock_mappings(void *inode)
{
	mutex_unlock(&((struct ovl_inode *)inode)->map_lock);
}

static void invalidate_all(struct ovl_inode *oi, u64 start, u64 end, bool private_too)
{
	const struct mappings_lock l = { lock_mappings, unlock_mappings, oi };

	mappings_invalidate(&oi->mappings, &l, start, end, private_too);
}

static void proxy_invalidate(struct mapping *m, u64 start, u64 end, bool private_too)
{
	invalidate_all(container_of(m, struct ovl_inode, proxy), start, end, private_too);
}

static bool proxy_tryget(struct mapping *m)
{
	return refs_tryget(&container_of(m, struct ovl_inode, proxy)->inode.refs);
}

static void proxy_put(struct mapping *m)
{
	inode_put(&container_of(m, struct ovl_inode, proxy)->inode);
}

/* Of no interest any more once the data has moved up. */
static void lower_proxy_invalidate(struct mapping *m, u64 start, u64 end, bool private_too)
{
	struct ovl_inode *oi = container_of(m, struct ovl_inode, lower_proxy);

	if (!atomic_load(&oi->upper_map))
		invalidate_all(oi, start, end, private_too);
}

static bool lower_proxy_tryget(struct mapping *m)
{
	return refs_tryget(&container_of(m, struct ovl_inode, lower_proxy)->inode.refs);
}

static void lower_proxy_put(struct mapping *m)
{
	inode_put(&container_of(m, struct ovl_inode, lower_proxy)->inode);
}

void ovl_map_init(struct ovl_inode *oi)
{
	oi->mappable.ops = &ovl_mappable_ops;
	mutex_init(&oi->map_lock, RANK_MAPPABLE, "ovl_inode.map_lock");
	list_init(&oi->mappings);
	oi->proxy = (struct mapping){
		.end = UINT64_MAX & PAGE_MASK,
		.shared = true,
		.proxy = true,
		.invalidate = proxy_invalidate,
		.tryget = proxy_tryget,
		.put = proxy_put,
	};
	oi->lower_proxy = oi->proxy;
	oi->lower_proxy.invalidate = lower_proxy_invalidate;
	oi->lower_proxy.tryget = lower_proxy_tryget;
	oi->lower_proxy.put = lower_proxy_put;
	list_init(&oi->proxy.node);
	list_init(&oi->lower_proxy.node);
}

void ovl_map_free(struct ovl_inode *oi)
{
	struct mappable *upper = atomic_load(&oi->upper_map);
	struct mappable *lower = atomic_load(&oi->lower_map);

	ASSERT(list_empty(&oi->mappings));
	if (upper) {
		upper->ops->remove(upper, &oi->proxy);
		upper->ops->put(upper);
	}
	if (lower) {
		lower->ops->remove(lower, &oi->lower_proxy);
		lower->ops->put(lower);
	}
	mutex_destroy(&oi->map_lock);
}

/* Sets *slot to the layer's mappable if it is not yet, with the proxy registered. copy_lock
 * serialises. */
static int get_layer_map(struct ovl_inode *oi, struct inode *real, _Atomic(struct mappable *) *slot,
			 struct mapping *proxy)
{
	struct mappable *m;
	int err = 0;

	if (atomic_load(slot))
		return 0;
	mutex_lock_nested(&oi->copy_lock);
	if (!atomic_load(slot)) {
		err = real->ops->mappable ? real->ops->mappable(real, &m) : -ENODEV;
		if (!err) {
			err = m->ops->add(m, proxy);
			if (err)
				m->ops->put(m);
			else
				atomic_store(slot, m);
		}
	}
	mutex_unlock(&oi->copy_lock);
	return err;
}

static int get_upper_map(struct ovl_inode *oi, struct inode *upper)
{
	return get_layer_map(oi, upper, &oi->upper_map, &oi->proxy);
}

int ovl_map_switch(struct ovl_inode *oi)
{
	int err;

	if (!atomic_load(&oi->lower_map) || atomic_load(&oi->upper_map))
		return 0;
	err = get_upper_map(oi, ovl_upper(oi));
	/* Private copies that guests made by writing stay theirs; all else faults again, in the
	 * upper layer. */
	if (!err)
		invalidate_all(oi, 0, UINT64_MAX & PAGE_MASK, false);
	return err;
}

int ovl_mappable(struct inode *inode, struct mappable **ret)
{
	struct ovl_inode *oi = ovl(inode);
	struct inode *upper = ovl_upper(oi);
	int err;

	if (!S_ISREG(inode->type))
		return -ENODEV;
	if (!upper) {
		err = get_layer_map(oi, oi->lower, &oi->lower_map, &oi->lower_proxy);
		/* Copied up meanwhile, maybe before it could know of this mapping. */
		upper = err ? NULL : ovl_upper(oi);
		if (err)
			return err;
	}
	if (upper && (err = get_upper_map(oi, upper)) != 0)
		return err;
	inode_get(inode);
	*ret = &oi->mappable;
	return 0;
}
