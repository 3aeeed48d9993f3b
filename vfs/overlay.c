#include "vfs/overlay_internal.h"
#include "base/log.h"
#include <fcntl.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>

#define OVERLAYFS_MAGIC 0x794c7630

/* ---- tables ---- */

static struct ovl_inode **lower_bucket(struct overlay *o, const struct inode *lower)
{
	return &o->by_lower[((uintptr_t)lower * 0x9e3779b97f4a7c15ULL) >> 52];
}

static struct ovl_inode **upper_bucket(struct overlay *o, u64 ino)
{
	return &o->by_upper[(ino * 0x9e3779b97f4a7c15ULL) >> 52];
}

_Static_assert(OVL_BUCKETS == 1 << 12, "the hashes above give 12 bits");

static struct ovl_inode *find_lower_locked(struct overlay *o, const struct inode *lower)
{
	struct ovl_inode *oi;

	for (oi = *lower_bucket(o, lower); oi; oi = oi->lower_next)
		if (oi->lower == lower && refs_tryget(&oi->inode.refs))
			return oi;
	return NULL;
}

static void insert_lower_locked(struct overlay *o, struct ovl_inode *oi)
{
	struct ovl_inode **b = lower_bucket(o, oi->lower);

	oi->lower_next = *b;
	*b = oi;
	oi->in_lower = true;
}

static void remove_locked(struct overlay *o, struct ovl_inode *oi)
{
	struct ovl_inode **p;

	if (oi->in_lower) {
		for (p = lower_bucket(o, oi->lower); *p != oi; p = &(*p)->lower_next)
			;
		*p = oi->lower_next;
		oi->in_lower = false;
	}
	if (oi->in_upper) {
		for (p = upper_bucket(o, ovl_upper(oi)->ino); *p != oi; p = &(*p)->upper_next)
			;
		*p = oi->upper_next;
		oi->in_upper = false;
	}
}

struct inode *ovl_find_upper(struct overlay *o, struct inode *upper)
{
	struct ovl_inode *oi;

	MUTEX_GUARD(&o->table_lock);
	for (oi = *upper_bucket(o, upper->ino); oi; oi = oi->upper_next)
		if (ovl_upper(oi) == upper && refs_tryget(&oi->inode.refs))
			return &oi->inode;
	return NULL;
}

u64 ovl_shown_ino(struct overlay *o, u64 upper_ino)
{
	struct ovl_inode *oi;

	MUTEX_GUARD(&o->table_lock);
	for (oi = *upper_bucket(o, upper_ino); oi; oi = oi->upper_next)
		if (ovl_upper(oi)->ino == upper_ino)
			return oi->inode.ino;
	return upper_ino | OVL_UPPER_INO;
}

static void pin_locked(struct ovl_inode *oi)
{
	if (oi->pinned)
		return;
	refs_get(&oi->inode.refs);
	oi->pinned = true;
}

void ovl_enter_upper(struct overlay *o, struct ovl_inode *oi)
{
	struct ovl_inode **b = upper_bucket(o, ovl_upper(oi)->ino);
	bool named = ovl_nlink(oi) > 0;

	MUTEX_GUARD(&o->table_lock);
	oi->upper_next = *b;
	*b = oi;
	oi->in_upper = true;
	if (named)
		pin_locked(oi);
}

u32 ovl_nlink(struct ovl_inode *oi)
{
	MUTEX_GUARD(&oi->inode.attr_lock);
	return oi->inode.nlink;
}

/* Pins what must be remembered, lets go of what is gone. */
static void nlink_changed(struct ovl_inode *oi, bool gone)
{
	struct overlay *o = overlay_of(oi->inode.sb);
	bool unpin = false;

	if (gone)
		ovl_drop_pool_name(o, oi);
	mutex_lock(&o->table_lock);
	if (!gone) {
		pin_locked(oi);
	} else {
		unpin = oi->pinned;
		oi->pinned = false;
	}
	mutex_unlock(&o->table_lock);
	/* Never the last one: the caller has its own. */
	if (unpin)
		inode_put(&oi->inode);
}

void ovl_change_nlink(struct ovl_inode *oi, int delta)
{
	struct inode *inode = &oi->inode;
	u32 n;

	mutex_lock(&inode->attr_lock);
	n = inode->nlink;
	if (!inode_is_dir(inode))
		n = delta < 0 && n < (u32)-delta ? 0 : n + (u32)delta;
	else if (n >= 2) /* host file systems that do not count subdirectories say 1 */
		n = MAX(n + (u32)delta, 2U);
	inode->nlink = n;
	mutex_unlock(&inode->attr_lock);
	nlink_changed(oi, n == 0);
}

void ovl_dir_gone(struct ovl_inode *oi)
{
	mutex_lock(&oi->inode.attr_lock);
	oi->inode.nlink = 0;
	mutex_unlock(&oi->inode.attr_lock);
	nlink_changed(oi, true);
}

/* ---- making inodes ---- */

static struct ovl_inode *inode_alloc(struct overlay *o, struct inode *real, u64 ino)
{
	struct inode_create how = {
		.mode = real->type,
		.rdev_major = real->rdev_major,
		.rdev_minor = real->rdev_minor,
	};
	struct ovl_inode *oi = calloc(1, sizeof(*oi));

	if (!oi)
		return NULL;
	inode_init(&oi->inode, &o->sb, &ovl_inode_ops, ino, &how);
	mutex_init(&oi->copy_lock, RANK_DIR, "ovl_inode.copy_lock");
	ovl_map_init(oi);
	return oi;
}

void ovl_sync_attr(struct ovl_inode *oi)
{
	struct inode *real = ovl_real(oi);
	u32 mode, uid, gid;
	u64 size;

	mutex_lock(&real->attr_lock);
	mode = real->mode;
	uid = real->uid;
	gid = real->gid;
	size = real->size;
	mutex_unlock(&real->attr_lock);
	mutex_lock(&oi->inode.attr_lock);
	inode_set_perm(&oi->inode, mode, uid, gid);
	oi->inode.size = size;
	mutex_unlock(&oi->inode.attr_lock);
}

int ovl_inode_for_lower(struct overlay *o, struct inode *lower, struct inode **ret)
{
	struct ovl_inode *oi, *mine;

	mutex_lock(&o->table_lock);
	oi = find_lower_locked(o, lower);
	mutex_unlock(&o->table_lock);
	if (oi) {
		inode_put(lower);
		*ret = &oi->inode;
		return 0;
	}
	mine = inode_alloc(o, lower, lower->ino);
	if (!mine) {
		inode_put(lower);
		return -ENOMEM;
	}
	mine->lower = lower;
	ovl_sync_attr(mine);
	mine->inode.nlink = lower->nlink;
	mutex_lock(&o->table_lock);
	oi = find_lower_locked(o, lower);
	if (!oi)
		insert_lower_locked(o, mine);
	mutex_unlock(&o->table_lock);
	*ret = oi ? &oi->inode : &mine->inode;
	if (oi)
		inode_put(&mine->inode);
	return 0;
}

int ovl_inode_for_upper(struct overlay *o, struct inode *upper, u32 nlink, struct inode **ret)
{
	struct ovl_inode *oi = inode_alloc(o, upper, upper->ino | OVL_UPPER_INO);

	if (!oi) {
		inode_put(upper);
		return -ENOMEM;
	}
	atomic_store(&oi->upper, upper);
	ovl_sync_attr(oi);
	oi->inode.nlink = nlink;
	ovl_enter_upper(o, oi);
	*ret = &oi->inode;
	return 0;
}

static void ovl_destroy(struct inode *inode)
{
	struct ovl_inode *oi = ovl(inode);
	struct overlay *o = overlay_of(inode->sb);

	mutex_lock(&o->table_lock);
	remove_locked(o, oi);
	mutex_unlock(&o->table_lock);
	ovl_map_free(oi);
	whiteouts_free(&oi->whiteouts);
	inode_put(ovl_upper(oi));
	inode_put(oi->lower);
	mutex_destroy(&oi->copy_lock);
	inode_fini(inode);
	free(oi);
}

/* ---- attributes ---- */

static int ovl_getattr(struct inode *inode, struct kstat *ret)
{
	struct ovl_inode *oi = ovl(inode);
	int err = inode_getattr(ovl_real(oi), ret);

	if (err)
		return err;
	ret->dev_major = inode->sb->dev_major;
	ret->dev_minor = inode->sb->dev_minor;
	ret->ino = inode->ino;
	ret->nlink = ovl_nlink(oi);
	return 0;
}

static int ovl_setattr(struct inode *inode, const struct iattr *attr)
{
	struct ovl_inode *oi = ovl(inode);
	struct inode *upper;
	int err = ovl_copy_up(oi, !((attr->mask & ATTR_SIZE) && attr->size == 0));

	if (err)
		return err;
	upper = ovl_upper(oi);
	err = upper->ops->setattr ? upper->ops->setattr(upper, attr)
				  : vfs_generic_setattr(upper, attr);
	ovl_sync_attr(oi);
	return err;
}

static ssize_t ovl_readlink(struct inode *inode, char *dst, size_t size)
{
	struct inode *real = ovl_real(ovl(inode));

	return real->ops->readlink ? real->ops->readlink(real, dst, size) : -EINVAL;
}

/* The upper layer may store any name; the guest sees Linux's namespaces alone. */
static bool known_xattr(const char *name)
{
	static const char *const prefixes[] = { XATTR_USER_PREFIX, XATTR_TRUSTED_PREFIX,
						XATTR_SECURITY_PREFIX };

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static ssize_t ovl_getxattr(struct inode *inode, const char *name, void *dst, size_t size)
{
	struct inode *real = ovl_real(ovl(inode));

	if (!known_xattr(name))
		return -EOPNOTSUPP;
	return real->ops->getxattr ? real->ops->getxattr(real, name, dst, size) : -EOPNOTSUPP;
}

static ssize_t ovl_listxattr(struct inode *inode, char *dst, size_t size)
{
	struct inode *real = ovl_real(ovl(inode));

	return real->ops->listxattr ? real->ops->listxattr(real, dst, size) : 0;
}

static int ovl_setxattr(struct inode *inode, const char *name, const void *value, size_t size,
			int flags)
{
	struct inode *upper;
	int err = known_xattr(name) ? ovl_copy_up(ovl(inode), true) : -EOPNOTSUPP;

	if (err)
		return err;
	upper = ovl_upper(ovl(inode));
	return upper->ops->setxattr ? upper->ops->setxattr(upper, name, value, size, flags)
				    : -EOPNOTSUPP;
}

static int ovl_removexattr(struct inode *inode, const char *name)
{
	struct inode *upper;
	ssize_t n;
	int err;

	/* Nothing to remove is no reason to copy. */
	n = ovl_getxattr(inode, name, NULL, 0);
	if (n < 0)
		return (int)n;
	err = ovl_copy_up(ovl(inode), true);
	if (err)
		return err;
	upper = ovl_upper(ovl(inode));
	return upper->ops->removexattr ? upper->ops->removexattr(upper, name) : -EOPNOTSUPP;
}

static int ovl_any_open(struct inode *inode, struct file *file)
{
	return inode_is_dir(inode) ? ovl_open_dir(inode, file) : ovl_open(inode, file);
}

const struct inode_ops ovl_inode_ops = {
	.lookup = ovl_lookup,
	.create = ovl_create,
	.symlink = ovl_symlink,
	.link = ovl_link,
	.unlink = ovl_unlink,
	.rmdir = ovl_rmdir,
	.rename = ovl_rename,
	.tmpfile = ovl_tmpfile,
	.readlink = ovl_readlink,
	.getattr = ovl_getattr,
	.setattr = ovl_setattr,
	.open = ovl_any_open,
	.mappable = ovl_mappable,
	.getxattr = ovl_getxattr,
	.setxattr = ovl_setxattr,
	.listxattr = ovl_listxattr,
	.removexattr = ovl_removexattr,
	.destroy = ovl_destroy,
};

/* ---- the superblock ---- */

static int ovl_statfs(struct superblock *sb, struct statfs *ret)
{
	struct superblock *upper = overlay_of(sb)->upper;
	int err = upper->ops->statfs ? upper->ops->statfs(upper, ret) : 0;

	ret->f_type = (__fsword_t)sb->magic;
	return err;
}

static int ovl_sync(struct superblock *sb)
{
	struct superblock *upper = overlay_of(sb)->upper;

	return upper->ops->sync ? upper->ops->sync(upper) : 0;
}

/* Unpins one inode of the bucket; NULL when none is left in it. */
static struct ovl_inode *take_pinned(struct overlay *o, size_t bucket)
{
	struct ovl_inode *oi;

	MUTEX_GUARD(&o->table_lock);
	for (oi = o->by_upper[bucket]; oi; oi = oi->upper_next)
		if (oi->pinned)
			break;
	for (oi = oi ? oi : o->by_lower[bucket]; oi && !oi->pinned; oi = oi->lower_next)
		;
	if (oi)
		oi->pinned = false;
	return oi;
}

static void ovl_unmounted(struct superblock *sb)
{
	struct ovl_inode *oi;

	for (size_t i = 0; i < OVL_BUCKETS; i++)
		while ((oi = take_pinned(overlay_of(sb), i)) != NULL)
			inode_put(&oi->inode);
}

static void ovl_sb_destroy(struct superblock *sb)
{
	struct overlay *o = overlay_of(sb);

	inode_put(o->upper_root);
	inode_put(o->pool);
	superblock_drop_root(o->upper);
	superblock_drop_root(o->lower);
	superblock_put(o->upper);
	superblock_put(o->lower);
	cred_put(o->cred);
	mutex_destroy(&o->table_lock);
	free(o);
}

static const struct superblock_ops ovl_sb_ops = {
	.statfs = ovl_statfs,
	.sync = ovl_sync,
	.destroy = ovl_sb_destroy,
	.unmounted = ovl_unmounted,
};

/* A directory of the upper layer's root with the mode and owner of `like`. */
static int make_layer_dir(struct overlay *o, const char *name, struct inode *like,
			  struct inode **ret)
{
	struct inode *top = o->upper->root;
	struct kstat st;
	struct inode_create how;
	int err = inode_getattr(like, &st);

	if (err)
		return err;
	how = (struct inode_create){ .mode = S_IFDIR | (st.mode & 07777),
				     .uid = st.uid,
				     .gid = st.gid };
	rwlock_wrlock(&top->dir_lock);
	err = top->ops->create(top, name, &how, ret);
	rwlock_unlock(&top->dir_lock);
	return err;
}

static int make_root(struct overlay *o)
{
	struct inode *root;
	int err = make_layer_dir(o, "root", o->lower->root, &o->upper_root);

	if (!err)
		err = make_layer_dir(o, "pool", o->lower->root, &o->pool);
	if (!err)
		err = ovl_inode_for_lower(o, inode_get(o->lower->root), &root);
	if (err)
		return err;
	atomic_store(&ovl(root)->upper, inode_get(o->upper_root));
	ovl_sync_attr(ovl(root));
	ovl_enter_upper(o, ovl(root));
	o->sb.root = root;
	return 0;
}

int overlay_new(const struct overlay_options *opt, struct superblock **ret)
{
	struct overlay *o = calloc(1, sizeof(*o));
	u32 flags = SB_OWN_TIMES;
	int err;

	if (!o)
		return -ENOMEM;
	flags |= opt->lower->flags & (SB_REVALIDATE | SB_NEGATIVE_OK);
	superblock_init(&o->sb, &ovl_sb_ops, "overlay", opt->source ? opt->source : "overlay",
			OVERLAYFS_MAGIC, flags);
	o->upper = superblock_get(opt->upper);
	o->lower = superblock_get(opt->lower);
	o->cred = cred_new(0, 0, ~0ULL);
	mutex_init(&o->table_lock, RANK_LEAF, "overlay.table_lock");
	atomic_init(&o->next_pool_id, 1);
	err = o->cred ? make_root(o) : -ENOMEM;
	if (err) {
		superblock_put(&o->sb);
		return err;
	}
	*ret = &o->sb;
	return 0;
}
