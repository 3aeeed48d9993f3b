/* Extended attributes, by path, by link itself, by descriptor. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <linux/limits.h>
#include <linux/xattr.h>
#include <stdlib.h>

/* Where the attribute is: a path with AT_ flags, or a descriptor's path. */
static int target_path(struct task *t, u64 path, int at_flags, struct path *ret)
{
	return sys_path_at(t, AT_FDCWD, ua(path), at_flags, ret);
}

static int target_fd(struct task *t, int fd, struct path *ret)
{
	struct file *f = fd_get(t->fds, fd);
	int err = 0;

	if (!f)
		return -EBADF;
	*ret = f->path;
	if (f->path.dentry)
		path_get(ret);
	else
		err = dentry_new_root(f->inode, &ret->dentry);
	file_put(f);
	return err;
}

static int copy_name(struct task *t, u64 addr, char name[XATTR_NAME_MAX + 1])
{
	ssize_t n = mm_copy_in_str(t->mm, name, XATTR_NAME_MAX + 1, ua(addr));

	if (n == -ENAMETOOLONG || n == 0)
		return -ERANGE;
	return n < 0 ? (int)n : 0;
}

/* ---- set ---- */

static s64 set_on(struct task *t, const struct path *p, const u64 a[6])
{
	char name[XATTR_NAME_MAX + 1];
	void *value;
	s64 r;

	if ((int)a[4] & ~(XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	r = copy_name(t, a[1], name);
	if (r < 0)
		return r;
	if (a[3] > XATTR_SIZE_MAX)
		return -E2BIG;
	value = malloc(MAX(a[3], 1u));
	if (!value)
		return -ENOMEM;
	r = a[3] ? copy_in(t, value, ua(a[2]), a[3]) : 0;
	if (!r)
		r = vfs_setxattr(p, t->cred, name, value, a[3], (int)a[4]);
	free(value);
	return r;
}

/* ---- get, list ---- */

static s64 get_on(struct task *t, const struct path *p, const u64 a[6])
{
	u64 size = MIN(a[3], (u64)XATTR_SIZE_MAX);
	char name[XATTR_NAME_MAX + 1];
	void *value;
	s64 r = copy_name(t, a[1], name);

	if (r < 0)
		return r;
	value = malloc(MAX(size, 1u));
	if (!value)
		return -ENOMEM;
	r = vfs_getxattr(p, t->cred, name, value, size);
	if (r > 0 && size && copy_out(t, ua(a[2]), value, (size_t)r) < 0)
		r = -EFAULT;
	free(value);
	return r;
}

static s64 list_on(struct task *t, const struct path *p, const u64 a[6])
{
	u64 size = MIN(a[2], (u64)XATTR_LIST_MAX);
	char *list = malloc(MAX(size, 1u));
	s64 r;

	if (!list)
		return -ENOMEM;
	r = vfs_listxattr(p, t->cred, list, size);
	if (r > 0 && size && copy_out(t, ua(a[1]), list, (size_t)r) < 0)
		r = -EFAULT;
	free(list);
	return r;
}

static s64 remove_on(struct task *t, const struct path *p, const u64 a[6])
{
	char name[XATTR_NAME_MAX + 1];
	int err = copy_name(t, a[1], name);

	return err < 0 ? err : vfs_removexattr(p, t->cred, name);
}

/* ---- the twelve calls ---- */

typedef s64 xattr_fn(struct task *t, const struct path *p, const u64 a[6]);

static s64 on_path(struct task *t, const u64 a[6], int at_flags, xattr_fn *fn)
{
	struct path p;
	s64 r = target_path(t, a[0], at_flags, &p);

	if (r < 0)
		return r;
	r = fn(t, &p, a);
	path_put(&p);
	return r;
}

static s64 on_fd(struct task *t, const u64 a[6], xattr_fn *fn)
{
	struct path p;
	s64 r = target_fd(t, (int)a[0], &p);

	if (r < 0)
		return r;
	r = fn(t, &p, a);
	path_put(&p);
	return r;
}

s64 sys_setxattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, 0, set_on);
}

s64 sys_lsetxattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, AT_SYMLINK_NOFOLLOW, set_on);
}

s64 sys_fsetxattr(struct task *t, const u64 a[6])
{
	return on_fd(t, a, set_on);
}

s64 sys_getxattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, 0, get_on);
}

s64 sys_lgetxattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, AT_SYMLINK_NOFOLLOW, get_on);
}

s64 sys_fgetxattr(struct task *t, const u64 a[6])
{
	return on_fd(t, a, get_on);
}

s64 sys_listxattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, 0, list_on);
}

s64 sys_llistxattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, AT_SYMLINK_NOFOLLOW, list_on);
}

s64 sys_flistxattr(struct task *t, const u64 a[6])
{
	return on_fd(t, a, list_on);
}

s64 sys_removexattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, 0, remove_on);
}

s64 sys_lremovexattr(struct task *t, const u64 a[6])
{
	return on_path(t, a, AT_SYMLINK_NOFOLLOW, remove_on);
}

s64 sys_fremovexattr(struct task *t, const u64 a[6])
{
	return on_fd(t, a, remove_on);
}
