/* devpts: the file system of terminal slaves, and the table of terminals by index. */
#include "sentry/tty/internal.h"
#include "vfs/synth.h"
#include <dirent.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TTY_GROUP 5 /* gid of new slaves, as the usual gid=5 mount option */
#define PTMX_INO 2
#define FIRST_SLAVE_INO 3

struct devpts {
	struct superblock sb;
	struct mutex lock; /* RANK_LEAF */
	/* lock; borrowed: an entry lives until its tty's last put */
	struct tty *table[TTY_PTY_LIMIT];
	_Atomic int count;
};

struct pts_inode {
	struct inode inode;
	struct tty *tty; /* a reference */
};

static struct devpts *of_kernel(struct kernel *k)
{
	return k->devpts ? container_of(k->devpts, struct devpts, sb) : NULL;
}

static int pts_open(struct inode *inode, struct file *file)
{
	return tty_slave_open(container_of(inode, struct pts_inode, inode)->tty, file);
}

static void pts_destroy(struct inode *inode)
{
	struct pts_inode *p = container_of(inode, struct pts_inode, inode);

	tty_put(p->tty);
	inode_fini(inode);
	free(p);
}

static const struct inode_ops pts_ops = {
	.getattr = vfs_generic_getattr,
	.setattr = vfs_generic_setattr,
	.open = pts_open,
	.destroy = pts_destroy,
};

static const struct inode_ops ptmx_ops = {
	.getattr = vfs_generic_getattr,
	.setattr = vfs_generic_setattr,
	.open = vfs_open_device,
};

static int ptmx_inode(struct superblock *sb, struct inode **ret)
{
	struct inode_create how = { .mode = S_IFCHR | 0666,
				    .rdev_major = TTY_AUX_MAJOR,
				    .rdev_minor = 2 };
	struct inode *inode = calloc(1, sizeof(*inode));

	if (!inode)
		return -ENOMEM;
	inode_init(inode, sb, &ptmx_ops, PTMX_INO, &how);
	*ret = inode;
	return 0;
}

/* Decimal without sign or leading zeros, or -1. */
static int parse_index(const char *name)
{
	char check[16];
	int n = atoi(name);

	snprintf(check, sizeof(check), "%d", n);
	return n >= 0 && n < TTY_PTY_LIMIT && !strcmp(check, name) ? n : -1;
}

static struct inode *slave_inode(struct devpts *d, int index)
{
	struct tty *t;
	struct inode *inode;

	mutex_lock(&d->lock);
	t = d->table[index];
	if (t && !refs_tryget(&t->refs))
		t = NULL;
	mutex_unlock(&d->lock);
	if (!t)
		return NULL;
	tty_lock(t);
	inode = t->inode ? inode_get(t->inode) : NULL;
	tty_unlock(t);
	tty_put(t);
	return inode;
}

static int root_lookup(struct inode *dir, void *arg, const char *name, struct inode **ret)
{
	int index = parse_index(name);

	if (!strcmp(name, "ptmx"))
		return ptmx_inode(dir->sb, ret);
	*ret = index < 0 ? NULL : slave_inode(arg, index);
	return *ret ? 0 : -ENOENT;
}

static int root_list(struct inode *dir, void *arg, struct dir_emit *e, u64 *pos)
{
	if (*pos <= PTMX_INO) {
		if (!e->emit(e, "ptmx", 4, PTMX_INO, DT_CHR, PTMX_INO + 1))
			return 0;
		*pos = PTMX_INO + 1;
	}
	for (u64 i = *pos - FIRST_SLAVE_INO; i < TTY_PTY_LIMIT; i++) {
		struct inode *inode = slave_inode(arg, (int)i);
		char name[16];
		int len = snprintf(name, sizeof(name), "%d", (int)i);

		if (!inode)
			continue;
		inode_put(inode);
		*pos = i + FIRST_SLAVE_INO;
		if (!e->emit(e, name, len, i + FIRST_SLAVE_INO, DT_CHR, *pos + 1))
			return 0;
	}
	*pos = TTY_PTY_LIMIT + FIRST_SLAVE_INO;
	return 0;
}

static const struct synth_dir_ops root_ops = {
	.lookup = root_lookup,
	.list = root_list,
};

static int devpts_statfs(struct superblock *sb, struct statfs *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->f_type = DEVPTS_SUPER_MAGIC;
	ret->f_bsize = ret->f_frsize = PAGE_SIZE;
	ret->f_namelen = 255;
	return 0;
}

static void devpts_destroy(struct superblock *sb)
{
	struct devpts *d = container_of(sb, struct devpts, sb);

	mutex_destroy(&d->lock);
	free(d);
}

static void show_options(struct superblock *sb, char *dst, size_t size)
{
	snprintf(dst, size, ",gid=%d,mode=620,ptmxmode=666", TTY_GROUP);
}

static const struct superblock_ops sb_ops = {
	.statfs = devpts_statfs,
	.destroy = devpts_destroy,
	.show_options = show_options,
};

int devpts_new(struct kernel *k, struct superblock **ret)
{
	struct devpts *d = calloc(1, sizeof(*d));
	int err;

	if (!d)
		return -ENOMEM;
	superblock_init(&d->sb, &sb_ops, "devpts", "devpts", DEVPTS_SUPER_MAGIC, SB_NO_DCACHE);
	mutex_init(&d->lock, RANK_LEAF, "devpts.lock");
	err = synth_dir_new(&d->sb, 0755, 0, 0, &root_ops, d, NULL, 1, &d->sb.root);
	if (err) {
		superblock_put(&d->sb);
		return err;
	}
	*ret = &d->sb;
	return 0;
}

/* lock. The lowest free index, or -1. */
static int free_index_locked(struct devpts *d)
{
	for (int i = 0; i < TTY_PTY_LIMIT; i++) {
		if (!d->table[i])
			return i;
	}
	return -1;
}

int devpts_add(struct tty *t, const struct cred *owner)
{
	struct devpts *d = of_kernel(t->kernel);
	struct inode_create how = { .mode = S_IFCHR | 0620,
				    .uid = owner->fsuid,
				    .gid = TTY_GROUP,
				    .rdev_major = TTY_SLAVE_MAJOR };
	struct pts_inode *p;

	if (!d)
		return -ENODEV;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	mutex_lock(&d->lock);
	t->index = free_index_locked(d);
	if (t->index >= 0)
		d->table[t->index] = t;
	mutex_unlock(&d->lock);
	if (t->index < 0) {
		free(p);
		return -ENOSPC;
	}
	atomic_fetch_add(&d->count, 1);
	how.rdev_minor = (u32)t->index;
	inode_init(&p->inode, &d->sb, &pts_ops, (u64)t->index + FIRST_SLAVE_INO, &how);
	p->tty = tty_get(t);
	tty_lock(t);
	t->inode = &p->inode;
	tty_unlock(t);
	return 0;
}

void devpts_remove(struct tty *t)
{
	struct inode *inode;

	tty_lock(t);
	inode = t->inode;
	t->inode = NULL;
	tty_unlock(t);
	if (!inode)
		return;
	mutex_lock(&inode->attr_lock);
	inode->nlink = 0;
	mutex_unlock(&inode->attr_lock);
	inode_put(inode);
}

void devpts_release_index(struct kernel *k, int index)
{
	struct devpts *d = of_kernel(k);

	mutex_lock(&d->lock);
	d->table[index] = NULL;
	mutex_unlock(&d->lock);
	atomic_fetch_sub(&d->count, 1);
}

struct tty *devpts_find(struct kernel *k, int index)
{
	struct devpts *d = of_kernel(k);
	struct tty *t;

	if (!d || index < 0 || index >= TTY_PTY_LIMIT)
		return NULL;
	mutex_lock(&d->lock);
	t = d->table[index];
	if (t && !refs_tryget(&t->refs))
		t = NULL;
	mutex_unlock(&d->lock);
	return t;
}

int tty_count(struct kernel *k)
{
	struct devpts *d = of_kernel(k);

	return d ? atomic_load(&d->count) : 0;
}
