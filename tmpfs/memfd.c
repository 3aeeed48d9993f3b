#include "tmpfs/internal.h"
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Newer than this system's headers. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

/* glibc's O_LARGEFILE is 0 on x86-64; F_GETFL shows the kernel's. */
#define KERNEL_O_LARGEFILE 0100000

#define ALL_SEALS                                                                                  \
	(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE |          \
	 TMPFS_F_SEAL_EXEC)
#define MEMFD_NAME_MAX (255 - 6) /* without "memfd:" */

static int unnamed_inode(struct superblock *sb, u32 mode, const struct cred *cred,
			 struct inode **ret)
{
	struct inode_create how = { .mode = S_IFREG | mode,
				    .uid = cred ? cred->fsuid : 0,
				    .gid = cred ? cred->fsgid : 0 };
	int err = tmpfs_inode_new(tmpfs_sb(sb), &how, ret);

	if (!err)
		(*ret)->nlink = 0;
	return err;
}

static ssize_t memfd_text(struct file *f, char *dst, size_t size)
{
	int n = snprintf(dst, size, "/memfd:%s (deleted)", tmpfs_inode(f->inode)->memfd_name);

	return n >= 0 && (size_t)n < size ? n : -ERANGE;
}

static u32 initial_seals(u32 flags)
{
	if (flags & MFD_NOEXEC_SEAL)
		return TMPFS_F_SEAL_EXEC;
	return flags & MFD_ALLOW_SEALING ? 0 : F_SEAL_SEAL;
}

int memfd_create_file(struct superblock *sb, const char *name, u32 flags, const struct cred *cred,
		      struct file **ret)
{
	struct path path = { 0 };
	struct inode *inode = NULL;
	int err;

	if (flags & ~(MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_NOEXEC_SEAL | MFD_EXEC |
		      (flags & MFD_HUGETLB ? MFD_HUGE_MASK << MFD_HUGE_SHIFT : 0)))
		return -EINVAL;
	if ((flags & MFD_EXEC) && (flags & MFD_NOEXEC_SEAL))
		return -EINVAL;
	if (strlen(name) > MEMFD_NAME_MAX)
		return -EINVAL;
	if (flags & MFD_HUGETLB) /* as a kernel without hugetlbfs */
		return -ENOSYS;
	err = unnamed_inode(sb, flags & MFD_NOEXEC_SEAL ? 0666 : 0777, cred, &inode);
	if (err < 0)
		return err;
	tmpfs_inode(inode)->data.seals = initial_seals(flags);
	tmpfs_inode(inode)->memfd_name = strdup(name);
	err = -ENOMEM;
	if (tmpfs_inode(inode)->memfd_name)
		err = dentry_new_root(inode, &path.dentry);
	if (!err)
		err = file_new(inode, &path, O_RDWR | KERNEL_O_LARGEFILE, cred, &memfd_file_ops,
			       NULL, ret);
	path_put(&path);
	inode_put(inode);
	return err;
}

int shmem_new(struct superblock *sb, const struct shmem_opts *opts, struct mappable **ret)
{
	struct promise *promise = pgalloc_promise(tmpfs_sb(sb)->store);
	u64 promised = opts->reserve ? page_up_nofail(opts->len) : 0;
	struct inode *inode;
	int err;

	if (opts->len > TMPFS_MAX_SIZE)
		return -EINVAL;
	err = promise_take(promise, promised, opts->space, opts->admin);
	if (err < 0)
		return err;
	err = unnamed_inode(sb, 0600, NULL, &inode);
	if (err < 0) {
		promise_add(promise, -(s64)promised);
		return err;
	}
	tmpfs_inode(inode)->data.size = opts->len;
	tmpfs_inode(inode)->data.promised = promised;
	*ret = &tmpfs_inode(inode)->data.mappable;
	return 0;
}

u64 shmem_allocated(const struct mappable *m)
{
	return container_of(m, struct tmpfs_data, mappable)->page_count << PAGE_SHIFT;
}

/*
 * Adding a write seal is decided under the data lock, which every writer holds
 * for the whole of its copy and every registration takes: no write is half done
 * and no writable mapping is on its way in when the seal is set.
 */
static s64 add_seals(struct file *f, u64 arg)
{
	struct tmpfs_data *d = &tmpfs_inode(f->inode)->data;
	u32 mode = __atomic_load_n(&f->inode->mode, __ATOMIC_RELAXED);
	u32 seals = (u32)arg;
	s64 err = 0;

	if (!file_writable(f))
		return -EPERM;
	if (arg & ~(u64)ALL_SEALS)
		return -EINVAL;
	rwlock_wrlock(&d->lock);
	if (d->seals & F_SEAL_SEAL)
		err = -EPERM;
	else if ((seals & F_SEAL_WRITE) && !(d->seals & F_SEAL_WRITE) && d->writable_mappings)
		err = -EBUSY;
	/* What may be executed and can no longer lose that must not change either. */
	if (!err && (seals & TMPFS_F_SEAL_EXEC) && (mode & 0111))
		seals |= F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
	if (!err)
		d->seals |= seals;
	rwlock_unlock(&d->lock);
	return err;
}

s64 tmpfs_fcntl(struct file *f, int cmd, u64 arg)
{
	struct tmpfs_data *d = &tmpfs_inode(f->inode)->data;
	u32 seals;

	switch (cmd) {
	case F_ADD_SEALS: return add_seals(f, arg);
	case F_GET_SEALS:
		rwlock_rdlock(&d->lock);
		seals = d->seals;
		rwlock_unlock(&d->lock);
		return seals;
	default: return -EINVAL;
	}
}

const struct file_ops memfd_file_ops = {
	.kind = "memfd",
	TMPFS_FILE_OPS,
	.text = memfd_text,
};
