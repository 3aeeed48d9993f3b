#include "tmpfs/internal.h"
#include <linux/limits.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>

struct tmpfs_xattr {
	struct tmpfs_xattr *next;
	size_t size;
	u8 *value;
	char name[];
};

static bool has_prefix(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

/*
 * Which names this file system stores, as Linux's tmpfs; who may is the vfs's
 * matter. user. names belong to files and directories only.
 */
static int check_name(struct inode *inode, const char *name)
{
	if (strlen(name) > XATTR_NAME_MAX)
		return -ERANGE;
	if (has_prefix(name, XATTR_USER_PREFIX))
		return inode_is_reg(inode) || inode_is_dir(inode) ? 0 : -EPERM;
	if (has_prefix(name, XATTR_SECURITY_PREFIX) || has_prefix(name, XATTR_TRUSTED_PREFIX))
		return 0;
	return tmpfs_sb(inode->sb)->allow_any_xattr ? 0 : -EOPNOTSUPP;
}

static struct tmpfs_xattr **find_locked(struct tmpfs_inode *i, const char *name)
{
	struct tmpfs_xattr **link = &i->xattrs;

	mutex_assert_held(&i->inode.attr_lock);
	while (*link && strcmp((*link)->name, name) != 0)
		link = &(*link)->next;
	return link;
}

static size_t cost(const struct tmpfs_xattr *x)
{
	return sizeof(*x) + strlen(x->name) + 1 + x->size;
}

static void xattr_free(struct tmpfs_xattr *x)
{
	if (!x)
		return;
	free(x->value);
	free(x);
}

ssize_t tmpfs_getxattr(struct inode *inode, const char *name, void *dst, size_t size)
{
	struct tmpfs_xattr *x;
	int err = check_name(inode, name);

	if (err < 0)
		return err == -EPERM ? -ENODATA : err;
	MUTEX_GUARD(&inode->attr_lock);
	x = *find_locked(tmpfs_inode(inode), name);
	if (!x)
		return -ENODATA;
	if (!size)
		return (ssize_t)x->size;
	if (size < x->size)
		return -ERANGE;
	if (x->size)
		memcpy(dst, x->value, x->size);
	return (ssize_t)x->size;
}

static struct tmpfs_xattr *xattr_new(const char *name, const void *value, size_t size)
{
	struct tmpfs_xattr *x = malloc(sizeof(*x) + strlen(name) + 1);

	if (!x)
		return NULL;
	x->next = NULL;
	x->size = size;
	x->value = malloc(MAX(size, 1u));
	if (!x->value) {
		free(x);
		return NULL;
	}
	if (size)
		memcpy(x->value, value, size);
	strcpy(x->name, name);
	return x;
}

/* Replaces what *link points at (or appends). Takes x on success. */
static int replace_locked(struct tmpfs_inode *i, struct tmpfs_xattr *x, int flags)
{
	struct tmpfs_xattr **link = find_locked(i, x->name), *old = *link;
	size_t bytes = i->xattr_bytes - (old ? cost(old) : 0) + cost(x);

	if (old && (flags & XATTR_CREATE))
		return -EEXIST;
	if (!old && (flags & XATTR_REPLACE))
		return -ENODATA;
	if (bytes > TMPFS_XATTR_TOTAL_MAX)
		return -ENOSPC;
	x->next = old ? old->next : NULL;
	*link = x;
	i->xattr_bytes = bytes;
	i->inode.ctime = inode_now(&i->inode);
	if (!strcmp(x->name, XATTR_NAME_CAPS))
		i->has_capability_xattr = true;
	xattr_free(old);
	return 0;
}

int tmpfs_setxattr(struct inode *inode, const char *name, const void *value, size_t size, int flags)
{
	struct tmpfs_xattr *x;
	int err = check_name(inode, name);

	if (err < 0)
		return err;
	if (flags & ~(XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	if (size > XATTR_SIZE_MAX)
		return -E2BIG;
	x = xattr_new(name, value, size);
	if (!x)
		return -ENOMEM;
	mutex_lock(&inode->attr_lock);
	err = replace_locked(tmpfs_inode(inode), x, flags);
	mutex_unlock(&inode->attr_lock);
	if (err < 0)
		xattr_free(x);
	return err;
}

ssize_t tmpfs_listxattr(struct inode *inode, char *dst, size_t size)
{
	size_t used = 0;

	MUTEX_GUARD(&inode->attr_lock);
	for (struct tmpfs_xattr *x = tmpfs_inode(inode)->xattrs; x; x = x->next) {
		size_t n = strlen(x->name) + 1;

		if (size) {
			if (n > size - used)
				return -ERANGE;
			memcpy(dst + used, x->name, n);
		}
		used += n;
	}
	return (ssize_t)used;
}

static bool remove_locked(struct tmpfs_inode *i, const char *name)
{
	struct tmpfs_xattr **link = find_locked(i, name), *x = *link;

	if (!x)
		return false;
	*link = x->next;
	i->xattr_bytes -= cost(x);
	if (!strcmp(name, XATTR_NAME_CAPS))
		i->has_capability_xattr = false;
	xattr_free(x);
	return true;
}

int tmpfs_removexattr(struct inode *inode, const char *name)
{
	int err = check_name(inode, name);

	if (err < 0)
		return err;
	MUTEX_GUARD(&inode->attr_lock);
	if (!remove_locked(tmpfs_inode(inode), name))
		return -ENODATA;
	inode->ctime = inode_now(inode);
	return 0;
}

void tmpfs_drop_capability_xattr(struct tmpfs_inode *i)
{
	if (!i->has_capability_xattr)
		return;
	MUTEX_GUARD(&i->inode.attr_lock);
	remove_locked(i, XATTR_NAME_CAPS);
}

void tmpfs_xattrs_free(struct tmpfs_inode *i)
{
	while (i->xattrs) {
		struct tmpfs_xattr *x = i->xattrs;

		i->xattrs = x->next;
		xattr_free(x);
	}
}
