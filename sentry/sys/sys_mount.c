/* mount(2), umount2 and pivot_root. The newer calls (fsopen & co.) answer -ENOSYS. */
#include "sentry/proc/procfs.h"
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"
#include "tmpfs/tmpfs.h"

#include <limits.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mount.h>

#define MS_MAGIC_VALUE 0xc0ed0000u
#define MS_MAGIC_MASK 0xffff0000u
#define MOUNT_DATA_SIZE PAGE_SIZE
/* What a mount keeps of the flags. */
#define MOUNT_FLAGS                                                                                \
	(MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME | MS_RELATIME | \
	 MS_STRICTATIME)
#define MS_PROPAGATION (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE)

struct mount_call {
	char source[PATH_MAX], type[64];
	char data[MOUNT_DATA_SIZE];
	bool has_source;
};

static int new_tmpfs(struct task *t, const struct mount_call *c, struct superblock **ret)
{
	struct tmpfs_options o = { .store = t->kernel->memory,
				   .mode = 01777,
				   .uid = t->cred->fsuid,
				   .gid = t->cred->fsgid,
				   .acct_id = MEMORY_OF_TMPFS,
				   .source = c->has_source ? c->source : "none" };
	int err = tmpfs_parse_options(c->data, t->kernel->memory_limit, &o);

	return err < 0 ? err : tmpfs_new(&o, ret);
}

/* A superblock of the named type, with a reference. */
static int new_superblock(struct task *t, const struct mount_call *c, struct superblock **ret)
{
	if (!strcmp(c->type, "tmpfs") || !strcmp(c->type, "ramfs"))
		return new_tmpfs(t, c, ret);
	if (!strcmp(c->type, "proc"))
		return procfs_new(t->kernel, ret);
	if (!strcmp(c->type, "sysfs"))
		return sysfs_new(t->kernel, ret);
	if (!strcmp(c->type, "devpts") && t->kernel->devpts) {
		*ret = superblock_get(t->kernel->devpts);
		return 0;
	}
	return -ENODEV;
}

static int mount_new_fs(struct task *t, const struct mount_call *c, const struct path *at,
			u32 flags)
{
	struct superblock *sb;
	int err = new_superblock(t, c, &sb);

	if (err < 0)
		return err;
	err = mount_add(t->ns->mnt, at, sb, flags & MOUNT_FLAGS);
	if (err < 0 && !atomic_load(&sb->mounts) && sb->root)
		superblock_drop_root(sb);
	superblock_put(sb);
	return err;
}

/* bind and move take another path as their source. */
static int mount_from_path(struct task *t, const struct mount_call *c, const struct path *at,
			   u32 flags)
{
	struct sys_walk w;
	struct path from;
	int err;

	if (!c->has_source || !c->source[0])
		return c->has_source ? -ENOENT : -EINVAL;
	err = sys_walk_begin(t, AT_FDCWD, c->source, &w);
	if (err < 0)
		return err;
	err = vfs_walk(&w.w, c->source, WALK_FOLLOW, &from);
	sys_walk_end(&w);
	if (err < 0)
		return err;
	if (!from.mnt)
		err = -EINVAL;
	else if (flags & MS_MOVE)
		err = mount_move(t->ns->mnt, &from, at);
	else
		err = mount_bind(t->ns->mnt, &from, at, mount_flags(from.mnt), flags & MS_REC);
	path_put(&from);
	return err;
}

static int remount(struct task *t, const struct mount_call *c, const struct path *at, u32 flags)
{
	int err = 0;

	/* MS_BIND: only this mount's flags; otherwise the file system's options too. */
	if (!(flags & MS_BIND) && !strcmp(path_inode(at)->sb->type, "tmpfs") && c->data[0])
		err = tmpfs_remount(path_inode(at)->sb, c->data, t->kernel->memory_limit);
	return err < 0 ? err : mount_remount(t->ns->mnt, at, flags & MOUNT_FLAGS);
}

static int mount_at(struct task *t, const struct mount_call *c, const struct path *at, u32 flags)
{
	if (!at->mnt)
		return -EINVAL;
	if (flags & MS_REMOUNT)
		return remount(t, c, at, flags);
	if (flags & (MS_BIND | MS_MOVE))
		return mount_from_path(t, c, at, flags);
	/* One kernel, no propagation between namespaces: every mount is private already. */
	if (flags & MS_PROPAGATION)
		return at->dentry && __builtin_popcount(flags & MS_PROPAGATION) == 1 ? 0 : -EINVAL;
	return mount_new_fs(t, c, at, flags);
}

static int copy_text(struct task *t, u64 addr, char *dst, size_t size)
{
	ssize_t n;

	dst[0] = '\0';
	if (!addr)
		return 0;
	n = mm_copy_in_str(t->mm, dst, size, ua(addr));
	if (n == -ENAMETOOLONG)
		return -EINVAL;
	return n < 0 ? (int)n : 0;
}

s64 sys_mount(struct task *t, const u64 a[6])
{
	u32 flags = (u32)a[3];
	struct mount_call c;
	struct path at;
	int err;

	if ((flags & MS_MAGIC_MASK) == MS_MAGIC_VALUE)
		flags &= ~MS_MAGIC_MASK;
	err = copy_text(t, a[2], c.type, sizeof(c.type));
	if (!err)
		err = copy_text(t, a[0], c.source, sizeof(c.source));
	if (!err)
		err = copy_text(t, a[4], c.data, sizeof(c.data));
	if (err < 0)
		return err;
	c.has_source = a[0] != 0;
	err = sys_path_at(t, AT_FDCWD, ua(a[1]), 0, &at);
	if (err < 0)
		return err;
	err = cred_capable(t->cred, CAP_SYS_ADMIN) ? 0 : -EPERM;
	if (!err && !a[2] && !(flags & (MS_REMOUNT | MS_BIND | MS_MOVE | MS_PROPAGATION)))
		err = -EINVAL;
	if (!err)
		err = mount_at(t, &c, &at, flags);
	path_put(&at);
	return err;
}

s64 sys_umount2(struct task *t, const u64 a[6])
{
	int flags = (int)a[1], err;
	struct path at;

	if (flags & ~(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW))
		return -EINVAL;
	if (!cred_capable(t->cred, CAP_SYS_ADMIN))
		return -EPERM;
	err = sys_path_at(t, AT_FDCWD, ua(a[0]), flags & UMOUNT_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0,
			  &at);
	if (err < 0)
		return err;
	err = at.mnt ? mount_remove(t->ns->mnt, &at, flags) : -EINVAL;
	path_put(&at);
	return err;
}

/* Moves the caller's root and cwd from the old root to the new one. */
static void follow_pivot(struct task *t, const struct path *old_root, const struct path *new_root)
{
	struct path *slots[2] = { &t->fs->root, &t->fs->cwd }, dropped[2] = { 0 };

	mutex_lock(&t->fs->lock);
	for (int i = 0; i < 2; i++) {
		if (!path_equal(slots[i], old_root))
			continue;
		dropped[i] = *slots[i];
		*slots[i] = *new_root;
		path_get(slots[i]);
	}
	mutex_unlock(&t->fs->lock);
	path_put(&dropped[0]);
	path_put(&dropped[1]);
}

s64 sys_pivot_root(struct task *t, const u64 a[6])
{
	struct path new_root, put_old, old_root;
	int err;

	if (!cred_capable(t->cred, CAP_SYS_ADMIN))
		return -EPERM;
	err = sys_path_at(t, AT_FDCWD, ua(a[0]), 0, &new_root);
	if (err < 0)
		return err;
	err = sys_path_at(t, AT_FDCWD, ua(a[1]), 0, &put_old);
	if (err < 0) {
		path_put(&new_root);
		return err;
	}
	mutex_lock(&t->fs->lock);
	old_root = t->fs->root;
	path_get(&old_root);
	mutex_unlock(&t->fs->lock);
	if (!inode_is_dir(path_inode(&new_root)) || !inode_is_dir(path_inode(&put_old)))
		err = -ENOTDIR;
	else if (!old_root.mnt || !new_root.mnt || !put_old.mnt)
		err = -EINVAL;
	else
		err = mount_pivot_root(t->ns->mnt, &old_root, &new_root, &put_old);
	if (!err)
		follow_pivot(t, &old_root, &new_root);
	path_put(&old_root);
	path_put(&put_old);
	path_put(&new_root);
	return err;
}
