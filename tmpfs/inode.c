#include "tmpfs/internal.h"
#include "vfs/pipe.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int tmpfs_inode_new(struct tmpfs_sb *s, const struct inode_create *how, struct inode **ret)
{
	struct tmpfs_inode *i;

	if (!tmpfs_charge_inode(s))
		return -ENOSPC;
	i = calloc(1, sizeof(*i));
	if (!i) {
		tmpfs_uncharge_inode(s);
		return -ENOMEM;
	}
	inode_init(&i->inode, &s->sb, &tmpfs_inode_ops, vfs_next_ino(), how);
	if (S_ISREG(how->mode))
		tmpfs_data_init(&i->data);
	if (S_ISDIR(how->mode)) {
		i->inode.size = 2 * TMPFS_DIRENT_SIZE;
		i->dir.next_cookie = TMPFS_FIRST_COOKIE;
		i->dir.parent_ino = i->inode.ino;
	}
	*ret = &i->inode;
	return 0;
}

static void inode_destroy(struct inode *inode)
{
	struct tmpfs_inode *i = tmpfs_inode(inode);
	struct tmpfs_sb *s = tmpfs_sb(inode->sb);

	if (inode_is_reg(inode))
		tmpfs_data_destroy(&i->data);
	else if (inode_is_dir(inode))
		tmpfs_dir_destroy(i);
	else if (S_ISLNK(inode->type))
		free(i->target);
	tmpfs_xattrs_free(i);
	free(i->memfd_name);
	tmpfs_uncharge_inode(s);
	inode_fini(inode);
	free(i);
}

int tmpfs_getattr(struct inode *inode, struct kstat *ret)
{
	struct tmpfs_data *d = &tmpfs_inode(inode)->data;

	vfs_generic_getattr(inode, ret);
	ret->blksize = PAGE_SIZE;
	ret->blocks = 0;
	if (inode_is_reg(inode)) {
		ret->size = d->size;
		ret->blocks = d->page_count << (PAGE_SHIFT - 9);
	} else if (S_ISLNK(inode->type)) {
		ret->size = strlen(tmpfs_inode(inode)->target);
	}
	return 0;
}

/* F_SEAL_EXEC freezes the execute bits. */
static bool exec_sealed(struct inode *inode, u32 new_mode)
{
	struct tmpfs_data *d = &tmpfs_inode(inode)->data;
	bool sealed;

	rwlock_rdlock(&d->lock);
	sealed = d->seals & TMPFS_F_SEAL_EXEC;
	rwlock_unlock(&d->lock);
	return sealed && ((inode->mode ^ new_mode) & 0111);
}

int tmpfs_setattr(struct inode *inode, const struct iattr *attr)
{
	struct tmpfs_inode *i = tmpfs_inode(inode);
	struct iattr a = *attr;
	int err;

	if ((a.mask & ATTR_MODE) && inode_is_reg(inode) && exec_sealed(inode, a.mode))
		return -EPERM;
	if (a.mask & ATTR_SIZE) {
		if (!inode_is_reg(inode))
			return inode_is_dir(inode) ? -EISDIR : -EINVAL;
		err = tmpfs_truncate(&i->data, a.size);
		if (err < 0)
			return err;
		a.mask &= ~(u32)ATTR_SIZE;
		if (!(a.mask & (ATTR_MTIME | ATTR_MTIME_NOW)))
			a.mask |= ATTR_MTIME_NOW;
	}
	if (attr->mask & (ATTR_KILL_SUID | ATTR_UID | ATTR_GID | ATTR_SIZE))
		tmpfs_drop_capability_xattr(i);
	return vfs_generic_setattr(inode, &a);
}

static ssize_t tmpfs_readlink(struct inode *inode, char *dst, size_t size)
{
	const char *target = tmpfs_inode(inode)->target;
	size_t len = strlen(target);

	if (!size)
		return -EINVAL;
	len = MIN(len, size - 1);
	memcpy(dst, target, len);
	dst[len] = '\0';
	return (ssize_t)len;
}

static int tmpfs_tmpfile(struct inode *dir, const struct inode_create *how, struct inode **ret)
{
	int err = tmpfs_inode_new(tmpfs_sb(dir->sb), how, ret);

	if (!err)
		(*ret)->nlink = 0;
	return err;
}

static int tmpfs_open(struct inode *inode, struct file *file)
{
	switch (inode->type) {
	case S_IFREG:
		file->ops = tmpfs_inode(inode)->memfd_name ? &memfd_file_ops : &tmpfs_file_ops;
		return 0;
	case S_IFDIR: file->ops = &tmpfs_dir_ops; return 0;
	case S_IFIFO: return fifo_open(inode, file);
	default: return -ENXIO;
	}
}

static int inode_mappable(struct inode *inode, struct mappable **ret)
{
	if (!inode_is_reg(inode))
		return -ENODEV;
	inode_get(inode);
	*ret = &tmpfs_inode(inode)->data.mappable;
	return 0;
}

const struct inode_ops tmpfs_inode_ops = {
	.lookup = tmpfs_lookup,
	.create = tmpfs_create,
	.symlink = tmpfs_symlink,
	.link = tmpfs_link,
	.unlink = tmpfs_unlink,
	.rmdir = tmpfs_rmdir,
	.rename = tmpfs_rename,
	.tmpfile = tmpfs_tmpfile,
	.readlink = tmpfs_readlink,
	.getattr = tmpfs_getattr,
	.setattr = tmpfs_setattr,
	.open = tmpfs_open,
	.mappable = inode_mappable,
	.getxattr = tmpfs_getxattr,
	.setxattr = tmpfs_setxattr,
	.listxattr = tmpfs_listxattr,
	.removexattr = tmpfs_removexattr,
	.destroy = inode_destroy,
};

/* ---- open regular files ---- */

void tmpfs_file_release(struct file *f)
{
	struct tmpfs_data *d = &tmpfs_inode(f->inode)->data;

	if (!file_writable(f))
		return;
	rwlock_wrlock(&d->lock);
	data_drop_window(d);
	rwlock_unlock(&d->lock);
}

int tmpfs_file_mappable(struct file *f, struct mappable **ret)
{
	return inode_mappable(f->inode, ret);
}

int tmpfs_file_fsync(struct file *f, bool data_only)
{
	return 0;
}

const struct file_ops tmpfs_file_ops = {
	.kind = "tmpfs",
	TMPFS_FILE_OPS,
};
