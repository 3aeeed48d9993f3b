#include "vfs/dentry.h"
#include "vfs/file.h"
#include "vfs/mount.h"
#include "vfs/walk.h"
#include <linux/capability.h>
#include <linux/falloc.h>
#include <linux/xattr.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/statvfs.h>

#define ST_VALID 0x20 /* include/linux/statfs.h: f_flags is filled in */
#define ATTR_OWNER_CHANGES (ATTR_UID | ATTR_GID)

ssize_t vfs_readlink(const struct path *p, char *dst, size_t size)
{
	struct inode *inode = p->dentry->inode;

	if (!S_ISLNK(inode->type) || !inode->ops->readlink)
		return -EINVAL;
	return inode->ops->readlink(inode, dst, size);
}

int vfs_getattr(const struct path *p, struct kstat *ret)
{
	return inode_getattr(p->dentry->inode, ret);
}

/* ---- changing attributes ---- */

static int check_owner_change(const struct kstat *st, const struct cred *cred,
			      const struct iattr *attr)
{
	bool owner = st->uid == cred->fsuid;

	if (cred_capable(cred, CAP_CHOWN))
		return 0;
	if ((attr->mask & ATTR_UID) && !(owner && attr->uid == st->uid))
		return -EPERM;
	if ((attr->mask & ATTR_GID) &&
	    !(owner && (attr->gid == st->gid || cred_in_group(cred, attr->gid))))
		return -EPERM;
	return 0;
}

static int check_times(struct inode *inode, const struct kstat *st, const struct cred *cred,
		       u32 mask)
{
	if (st->uid == cred->fsuid || cred_capable(cred, CAP_FOWNER))
		return 0;
	/* Only "both now" is a matter of write permission. */
	if ((mask & (ATTR_ATIME_NOW | ATTR_MTIME_NOW)) == (ATTR_ATIME_NOW | ATTR_MTIME_NOW))
		return vfs_permission(inode, cred, MAY_WRITE);
	return -EPERM;
}

/* setattr_prepare of Linux; may adjust attr. */
static int check_setattr(struct inode *inode, const struct cred *cred, struct iattr *attr)
{
	const u32 times = ATTR_ATIME | ATTR_MTIME | ATTR_ATIME_NOW | ATTR_MTIME_NOW;
	struct kstat st;
	int err = inode_getattr(inode, &st);

	if (err)
		return err;
	if (attr->mask & ATTR_SIZE) {
		if (S_ISDIR(inode->type))
			return -EISDIR;
		if (!S_ISREG(inode->type))
			return -EINVAL;
		if (attr->size > INT64_MAX)
			return -EINVAL;
		err = vfs_permission(inode, cred, MAY_WRITE);
	}
	if (!err && (attr->mask & ATTR_OWNER_CHANGES)) {
		err = check_owner_change(&st, cred, attr);
		if (!S_ISDIR(inode->type))
			attr->mask |= ATTR_KILL_SUID;
	}
	if (!err && (attr->mask & ATTR_MODE)) {
		u32 gid = attr->mask & ATTR_GID ? attr->gid : st.gid;

		if (S_ISLNK(inode->type))
			return -EOPNOTSUPP;
		if (st.uid != cred->fsuid && !cred_capable(cred, CAP_FOWNER))
			return -EPERM;
		if (!cred_in_group(cred, gid) && !cred_capable(cred, CAP_FSETID))
			attr->mode &= ~S_ISGID;
	}
	if (!err && (attr->mask & times) && !(attr->mask & ATTR_SIZE))
		err = check_times(inode, &st, cred, attr->mask);
	return err;
}

static int apply_setattr(struct inode *inode, const struct iattr *attr)
{
	int err;

	if ((attr->mask & ATTR_KILL_SUID) && inode->ops->removexattr) {
		err = inode->ops->removexattr(inode, "security.capability");
		if (err && err != -ENODATA && err != -EOPNOTSUPP)
			return err;
	}
	err = inode->ops->setattr ? inode->ops->setattr(inode, attr)
				  : vfs_generic_setattr(inode, attr);
	if (attr->mask & ATTR_MODE)
		atomic_fetch_and(&inode->iflags, ~INODE_NOSEC);
	return err;
}

int vfs_setattr(const struct path *p, const struct cred *cred, const struct iattr *attr)
{
	struct inode *inode = p->dentry->inode;
	struct iattr a = *attr;
	bool counted = false;
	int err;

	if (path_read_only(p))
		return -EROFS;
	err = check_setattr(inode, cred, &a);
	if (!err && (a.mask & ATTR_SIZE)) {
		err = inode_get_write(inode);
		counted = !err;
		if (!err)
			err = file_remove_privs(inode, cred);
		a.mask |= ATTR_MTIME_NOW;
	}
	if (!err)
		err = apply_setattr(inode, &a);
	if (counted)
		inode_put_write(inode);
	if (!err)
		vfs_notify_path(p, a.mask & ATTR_SIZE ? IN_MODIFY : IN_ATTRIB);
	return err;
}

int vfs_ftruncate(struct file *f, u64 size)
{
	struct iattr attr = { .mask = ATTR_SIZE | ATTR_MTIME_NOW, .size = size };
	struct inode *inode = f->inode;
	int err;

	if (file_flags(f) & O_PATH)
		return -EBADF;
	if (!S_ISREG(inode->type) || !file_writable(f) || size > INT64_MAX)
		return -EINVAL;
	err = file_remove_privs(inode, f->cred);
	if (!err)
		err = inode->ops->setattr ? inode->ops->setattr(inode, &attr) : -EINVAL;
	if (!err && f->path.mnt)
		vfs_notify_path(&f->path, IN_MODIFY);
	return err;
}

int vfs_fallocate(struct file *f, int mode, s64 offset, s64 len, u64 fsize_limit)
{
	struct kstat st;
	s64 end;
	int err;

	if (!file_writable(f))
		return -EBADF;
	if (offset < 0 || len <= 0)
		return -EINVAL;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE |
		     FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE | FALLOC_FL_UNSHARE_RANGE))
		return -EOPNOTSUPP;
	if ((mode & FALLOC_FL_PUNCH_HOLE) && !(mode & FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	if (S_ISFIFO(f->inode->type))
		return -ESPIPE;
	if (S_ISDIR(f->inode->type))
		return -EISDIR;
	if (!S_ISREG(f->inode->type))
		return -ENODEV;
	if (__builtin_add_overflow(offset, len, &end))
		return -EFBIG;
	if (!(mode & FALLOC_FL_KEEP_SIZE) && (u64)end > fsize_limit) {
		err = inode_getattr(f->inode, &st);
		if (err < 0 || (u64)end > st.size)
			return err < 0 ? err : -EFBIG;
	}
	if (!f->ops->fallocate)
		return -EOPNOTSUPP;
	err = file_remove_privs(f->inode, f->cred);
	if (!err)
		err = f->ops->fallocate(f, mode, (u64)offset, (u64)len);
	if (!err && f->path.mnt)
		vfs_notify_path(&f->path, IN_MODIFY);
	return err;
}

int vfs_access(const struct path *p, const struct cred *cred, int mask)
{
	struct inode *inode = p->dentry->inode;

	if ((mask & MAY_EXEC) && S_ISREG(inode->type) && p->mnt &&
	    (mount_flags(p->mnt) & MS_NOEXEC))
		return -EACCES;
	return path_permission(p, cred, mask);
}

int vfs_statfs(const struct path *p, struct statfs *ret)
{
	struct superblock *sb = p->dentry->sb;
	u32 mflags = p->mnt ? mount_flags(p->mnt) : 0;
	int err = 0;

	memset(ret, 0, sizeof(*ret));
	ret->f_type = (__fsword_t)sb->magic;
	ret->f_bsize = ret->f_frsize = PAGE_SIZE;
	ret->f_namelen = NAME_MAX;
	if (sb->ops->statfs)
		err = sb->ops->statfs(sb, ret);
	ret->f_flags = ST_VALID | (mflags & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC |
					     MS_NOATIME | MS_NODIRATIME));
	if (sb->flags & SB_READ_ONLY)
		ret->f_flags |= ST_RDONLY;
	if (!(mflags & (MS_NOATIME | MS_STRICTATIME)))
		ret->f_flags |= ST_RELATIME;
	return err;
}

/* ---- extended attributes ---- */

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static int check_name(const char *name)
{
	size_t len = strnlen(name, XATTR_NAME_MAX + 1);

	return len == 0 || len > XATTR_NAME_MAX ? -ERANGE : 0;
}

static int check_user_xattr(struct inode *inode, const struct cred *cred, int mask)
{
	struct kstat st;

	if (!S_ISREG(inode->type) && !S_ISDIR(inode->type))
		return mask & MAY_WRITE ? -EPERM : -ENODATA;
	if (!S_ISDIR(inode->type) || !(mask & MAY_WRITE) || inode_getattr(inode, &st))
		return 0;
	if ((st.mode & S_ISVTX) && st.uid != cred->fsuid && !cred_capable(cred, CAP_FOWNER))
		return -EPERM;
	return 0;
}

/* xattr(7): who may do what in which namespace. */
static int xattr_permission(const struct path *p, const struct cred *cred, const char *name,
			    int mask)
{
	struct inode *inode = p->dentry->inode;
	int err = check_name(name);

	if (err)
		return err;
	if ((mask & MAY_WRITE) && path_read_only(p))
		return -EROFS;
	if (has_prefix(name, XATTR_SECURITY_PREFIX) || has_prefix(name, XATTR_SYSTEM_PREFIX))
		return 0;
	if (has_prefix(name, XATTR_TRUSTED_PREFIX)) {
		if (!cred_capable(cred, CAP_SYS_ADMIN))
			return mask & MAY_WRITE ? -EPERM : -ENODATA;
		return 0;
	}
	if (has_prefix(name, XATTR_USER_PREFIX)) {
		err = check_user_xattr(inode, cred, mask);
		if (err)
			return err;
	}
	return vfs_permission(inode, cred, mask);
}

static int security_permission(const struct path *p, const struct cred *cred, const char *name)
{
	struct kstat st;
	int err;

	if (has_prefix(name, XATTR_SYSTEM_PREFIX)) {
		err = inode_getattr(p->dentry->inode, &st);
		if (err)
			return err;
		return st.uid == cred->fsuid || cred_capable(cred, CAP_FOWNER) ? 0 : -EPERM;
	}
	if (!has_prefix(name, XATTR_SECURITY_PREFIX))
		return 0;
	return cred_capable(cred, strcmp(name, XATTR_NAME_CAPS) == 0 ? CAP_SETFCAP : CAP_SYS_ADMIN)
		       ? 0
		       : -EPERM;
}

ssize_t vfs_getxattr(const struct path *p, const struct cred *cred, const char *name, void *dst,
		     size_t size)
{
	struct inode *inode = p->dentry->inode;
	int err = xattr_permission(p, cred, name, MAY_READ);

	if (err)
		return err;
	return inode->ops->getxattr ? inode->ops->getxattr(inode, name, dst, size) : -EOPNOTSUPP;
}

int vfs_setxattr(const struct path *p, const struct cred *cred, const char *name, const void *value,
		 size_t size, int flags)
{
	struct inode *inode = p->dentry->inode;
	int err = xattr_permission(p, cred, name, MAY_WRITE);

	if (flags & ~(XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	if (!err && size > XATTR_SIZE_MAX)
		err = -E2BIG;
	if (!err)
		err = security_permission(p, cred, name);
	if (err)
		return err;
	if (!inode->ops->setxattr)
		return -EOPNOTSUPP;
	atomic_fetch_and(&inode->iflags, ~INODE_NOSEC);
	err = inode->ops->setxattr(inode, name, value, size, flags);
	/* Again: a writer may have looked in between and found none. */
	atomic_fetch_and(&inode->iflags, ~INODE_NOSEC);
	if (!err)
		vfs_notify_path(p, IN_ATTRIB);
	return err;
}

/* Removes what cred may not see (trusted.*) from a listing of len bytes; the new length. */
static size_t filter_list(char *list, size_t len)
{
	size_t out = 0;

	for (size_t in = 0; in < len;) {
		size_t n = strnlen(list + in, len - in) + 1;

		if (!has_prefix(list + in, XATTR_TRUSTED_PREFIX)) {
			memmove(list + out, list + in, n);
			out += n;
		}
		in += n;
	}
	return out;
}

ssize_t vfs_listxattr(const struct path *p, const struct cred *cred, char *dst, size_t size)
{
	struct inode *inode = p->dentry->inode;
	char buf[4096];
	ssize_t n;

	if (!inode->ops->listxattr)
		return 0;
	n = inode->ops->listxattr(inode, dst, size);
	if (n <= 0 || cred_capable(cred, CAP_SYS_ADMIN))
		return n;
	if (size)
		return (ssize_t)filter_list(dst, (size_t)n);
	/* The length alone is asked for: filter a copy where one fits, else say the larger bound.
	 */
	n = inode->ops->listxattr(inode, buf, sizeof(buf));
	return n > 0 ? (ssize_t)filter_list(buf, (size_t)n) : inode->ops->listxattr(inode, dst, 0);
}

int vfs_removexattr(const struct path *p, const struct cred *cred, const char *name)
{
	struct inode *inode = p->dentry->inode;
	int err = xattr_permission(p, cred, name, MAY_WRITE);

	if (!err)
		err = security_permission(p, cred, name);
	if (err)
		return err;
	if (!inode->ops->removexattr)
		return -EOPNOTSUPP;
	err = inode->ops->removexattr(inode, name);
	if (!err)
		vfs_notify_path(p, IN_ATTRIB);
	return err;
}
