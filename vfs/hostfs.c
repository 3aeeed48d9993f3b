#include "vfs/hostfs_internal.h"
#include "base/host_spawn.h"
#include "base/log.h"
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define HOSTFS_MAGIC 0xef53 /* as ext4: programs look at it to choose methods, never to refuse */

/* ---- ids ---- */

/*
 * In a user namespace that maps only the caller, the host shows every other owner as the overflow
 * id. Most of those files are the system's, and programs insist that they belong to root, so root
 * is what guests see.
 */
#define OVERFLOW_ID 65534

/* Does this map (/proc/self/uid_map: inside, outside, count) leave out id 0? */
static bool id_unmapped(const char *map_path)
{
	char text[4096], *line, *save = NULL;

	if (host_read_text(map_path, text, sizeof(text)) <= 0)
		return false;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (strtoul(line, NULL, 10) == 0)
			return false;
	return true;
}

static u32 uid_to_guest(const struct hostfs *fs, u32 uid)
{
	if (uid == fs->host_uid)
		return fs->guest_uid;
	return uid == OVERFLOW_ID && fs->root_uid_unmapped ? 0 : uid;
}

static u32 gid_to_guest(const struct hostfs *fs, u32 gid)
{
	if (gid == fs->host_gid)
		return fs->guest_gid;
	return gid == OVERFLOW_ID && fs->root_gid_unmapped ? 0 : gid;
}

u32 hostfs_uid_to_host(const struct hostfs *fs, u32 uid)
{
	return uid == fs->guest_uid ? fs->host_uid : uid;
}

u32 hostfs_gid_to_host(const struct hostfs *fs, u32 gid)
{
	return gid == fs->guest_gid ? fs->host_gid : gid;
}

static u64 dev_of(const struct statx *st)
{
	return ((u64)st->stx_dev_major << 32) | st->stx_dev_minor;
}

static u64 stat_dev(const struct statx *st)
{
	/* The encoding of struct stat.st_dev. */
	u64 major = st->stx_dev_major, minor = st->stx_dev_minor;

	return ((major & 0xfffff000ULL) << 32) | ((major & 0xfffULL) << 8) |
	       ((minor & 0xffffff00ULL) << 12) | (minor & 0xffULL);
}

/* One device number is shown for all; inode numbers of other host devices are moved out of the way.
 */
static u64 guest_ino(const struct hostfs *fs, const struct statx *st)
{
	u64 dev = dev_of(st);

	if (stat_dev(st) == fs->root_dev)
		return st->stx_ino;
	/* Bits 40 to 50: JavaScript keeps 53 bits exactly. */
	return st->stx_ino ^ ((dev * 0x9e3779b97f4a7c15ULL) >> 54 << 40);
}

/* ---- the inode table ---- */

static struct hostfs_inode **bucket(struct hostfs *fs, u64 dev, u64 ino)
{
	u64 h = (ino ^ dev * 31) * 0x9e3779b97f4a7c15ULL;

	return &fs->buckets[(h >> 40) % HOSTFS_BUCKETS];
}

static void unhash_locked(struct hostfs *fs, struct hostfs_inode *hi)
{
	struct hostfs_inode **p;

	if (!hi->hashed)
		return;
	for (p = bucket(fs, hi->host_dev, hi->host_ino); *p != hi; p = &(*p)->hash_next)
		;
	*p = hi->hash_next;
	hi->hashed = false;
}

void hostfs_unhash(struct hostfs_inode *hi)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);

	MUTEX_GUARD(&fs->table_lock);
	unhash_locked(fs, hi);
}

static void hash_locked(struct hostfs *fs, struct hostfs_inode *hi)
{
	struct hostfs_inode **b = bucket(fs, hi->host_dev, hi->host_ino);

	hi->hash_next = *b;
	*b = hi;
	hi->hashed = true;
}

static bool same_birth(const struct statx_timestamp *a, const struct statx_timestamp *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The live inode of that number with a reference. One that is something else by now is unhashed. */
static struct hostfs_inode *find_locked(struct hostfs *fs, const struct statx *st)
{
	u64 dev = stat_dev(st);
	struct hostfs_inode *hi;

	for (hi = *bucket(fs, dev, st->stx_ino); hi; hi = hi->hash_next)
		if (hi->host_dev == dev && hi->host_ino == st->stx_ino)
			break;
	if (!hi || !refs_tryget(&hi->inode.refs))
		return NULL;
	if (hi->inode.type == (u32)(st->stx_mode & S_IFMT) &&
	    same_birth(&hi->birth, &st->stx_btime))
		return hi;
	unhash_locked(fs, hi);
	/* The caller drops the reference: not under the lock. */
	return hi;
}

void hostfs_set_stat(struct hostfs_inode *hi, const struct statx *st)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	struct inode *inode = &hi->inode;
	u32 mode = st->stx_mode;

	/* An empty directory with nothing to hide may be entered by all. */
	if (hi->hidden)
		mode = S_IFDIR | 0755;
	MUTEX_GUARD(&inode->attr_lock);
	hi->st = *st;
	hi->st.stx_mode = (u16)mode;
	inode_set_perm(inode, mode, uid_to_guest(fs, st->stx_uid), gid_to_guest(fs, st->stx_gid));
	inode->nlink = st->stx_nlink;
	__atomic_store_n(&inode->size, st->stx_size, __ATOMIC_RELAXED);
}

/* ---- hidden paths ---- */

/* The path of dir/name below the root, or -ENAMETOOLONG. */
static int rel_path(struct hostfs *fs, struct hostfs_inode *dir, const char *name, char *dst)
{
	char *p = dst + PATH_MAX - 1;
	size_t n = strlen(name);

	*p = '\0';
	MUTEX_GUARD(&fs->table_lock);
	for (;;) {
		if ((size_t)(p - dst) < n + 1)
			return -ENAMETOOLONG;
		p -= n;
		memcpy(p, name, n);
		if (!dir || !dir->parent)
			break;
		*--p = '/';
		name = dir->name;
		n = strlen(name);
		dir = dir->parent;
	}
	memmove(dst, p, strlen(p) + 1);
	return 0;
}

static void mark_hidden(struct hostfs *fs, struct hostfs_inode *dir, struct hostfs_inode *hi,
			const char *name)
{
	char path[PATH_MAX];
	size_t len;

	if (!dir->above_hidden || !S_ISDIR(hi->inode.type) || rel_path(fs, dir, name, path))
		return;
	len = strlen(path);
	for (char **h = fs->hidden; *h; h++) {
		if (strncmp(*h, path, len) != 0)
			continue;
		if ((*h)[len] == '\0')
			hi->hidden = true;
		else if ((*h)[len] == '/')
			hi->above_hidden = true;
	}
}

/* ---- making inodes ---- */

static struct hostfs_inode *inode_alloc(struct hostfs *fs, const struct statx *st)
{
	struct inode_create how = {
		.mode = st->stx_mode,
		.rdev_major = st->stx_rdev_major,
		.rdev_minor = st->stx_rdev_minor,
	};
	struct hostfs_inode *hi = calloc(1, sizeof(*hi));

	if (!hi)
		return NULL;
	inode_init(&hi->inode, &fs->sb, &hostfs_inode_ops, guest_ino(fs, st), &how);
	hi->host_dev = stat_dev(st);
	hi->host_ino = st->stx_ino;
	hi->birth = st->stx_btime;
	list_init(&hi->idle_node);
	return hi;
}

void hostfs_set_place(struct hostfs_inode *hi, struct hostfs_inode *parent, const char *name)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	char *copy, *old_name;
	struct hostfs_inode *old_parent;

	mutex_lock(&fs->table_lock);
	if (hi->parent == parent && hi->name && strcmp(hi->name, name) == 0 && !hi->unlinked) {
		mutex_unlock(&fs->table_lock);
		return;
	}
	mutex_unlock(&fs->table_lock);
	copy = strdup(name);
	if (!copy)
		return;
	inode_get(&parent->inode);
	mutex_lock(&fs->table_lock);
	old_name = hi->name;
	old_parent = hi->parent;
	hi->name = copy;
	hi->parent = parent;
	hi->pinned = hi->unlinked = false;
	mutex_unlock(&fs->table_lock);
	free(old_name);
	if (old_parent)
		inode_put(&old_parent->inode);
}

void hostfs_lose_name(struct hostfs_inode *hi)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);

	MUTEX_GUARD(&fs->table_lock);
	hi->pinned = hi->unlinked = true;
}

int hostfs_inode_for(struct hostfs *fs, struct hostfs_inode *dir, const char *name,
		     const struct statx *st, struct inode **ret)
{
	struct hostfs_inode *hi, *stale = NULL, *mine = NULL;

	mutex_lock(&fs->table_lock);
	hi = find_locked(fs, st);
	if (hi && !hi->hashed) {
		stale = hi;
		hi = NULL;
	}
	mutex_unlock(&fs->table_lock);
	if (stale)
		inode_put(&stale->inode);
	if (!hi) {
		mine = inode_alloc(fs, st);
		if (!mine)
			return -ENOMEM;
		mark_hidden(fs, dir, mine, name);
		hostfs_set_place(mine, dir, name);
		hostfs_set_stat(mine, st);
		mutex_lock(&fs->table_lock);
		hi = find_locked(fs, st);
		if (hi && !hi->hashed)
			stale = hi, hi = NULL;
		else
			stale = NULL;
		if (!hi)
			hash_locked(fs, mine);
		mutex_unlock(&fs->table_lock);
		if (stale)
			inode_put(&stale->inode);
		if (!hi) {
			*ret = &mine->inode;
			return 0;
		}
		inode_put(&mine->inode);
	}
	/* A known inode: in a file system that changes, the newest name is the surest. */
	mark_hidden(fs, dir, hi, name);
	if (!fs->read_only || fs->shared || hi->unlinked) {
		hostfs_set_place(hi, dir, name);
		hostfs_set_stat(hi, st);
	}
	*ret = &hi->inode;
	return 0;
}

int hostfs_inode_unnamed(struct hostfs *fs, struct hostfs_inode *dir, const struct statx *st,
			 struct inode **ret)
{
	struct hostfs_inode *hi = inode_alloc(fs, st);

	if (!hi)
		return -ENOMEM;
	hostfs_set_stat(hi, st);
	hi->pinned = hi->unlinked = true;
	mutex_lock(&fs->table_lock);
	hash_locked(fs, hi);
	mutex_unlock(&fs->table_lock);
	*ret = &hi->inode;
	return 0;
}

int hostfs_lookup(struct inode *dir, const char *name, struct inode **ret)
{
	struct hostfs *fs = hostfs_of(dir->sb);
	struct hostfs_inode *hd = hostfs_inode(dir);
	struct hostfs_fd *fd;
	struct statx st;
	int err;

	if (hd->hidden)
		return -ENOENT;
	err = hostfs_fd_get(hd, HFD_PATH, &fd);
	if (err)
		return err;
	err = host_statx(fd->fd, name, &st);
	hostfs_fd_put(fd);
	return err ? err : hostfs_inode_for(fs, hd, name, &st, ret);
}

static void hostfs_destroy(struct inode *inode)
{
	struct hostfs_inode *hi = hostfs_inode(inode);

	hostfs_unhash(hi);
	hostfs_free_cache(hi);
	hostfs_fd_release_all(hi);
	if (hi->parent)
		inode_put(&hi->parent->inode);
	free(hi->name);
	free(atomic_load(&hi->link_text));
	inode_fini(inode);
	free(hi);
}

/* ---- attributes ---- */

static int try_stat(struct hostfs_inode *hi, struct statx *st)
{
	struct hostfs_fd *fd = hostfs_fd_peek(hi, HFD_KINDS);
	char name[NAME_MAX + 1] = "";
	int err = fd ? 0 : hostfs_place(hi, &fd, name);

	if (err)
		return err;
	err = host_statx(fd->fd, name, st);
	hostfs_fd_put(fd);
	if (!err && *name && (stat_dev(st) != hi->host_dev || st->stx_ino != hi->host_ino))
		err = -ESTALE;
	return err;
}

/* statx of hi by whatever is open, else by its name. */
static int stat_now(struct hostfs_inode *hi, struct statx *st)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	struct hostfs_attempt attempt = hostfs_attempt(fs);
	int err;

	do
		err = try_stat(hi, st);
	while (hostfs_moved(fs, &attempt, err));
	return err;
}

int hostfs_refresh(struct hostfs_inode *hi)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	struct statx st;
	int err;

	if (fs->read_only && !fs->shared)
		return 0;
	err = stat_now(hi, &st);
	if (!err)
		hostfs_set_stat(hi, &st);
	return err;
}

static struct timespec timespec_of(const struct statx_timestamp *t)
{
	return (struct timespec){ .tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec };
}

static int hostfs_getattr(struct inode *inode, struct kstat *ret)
{
	struct hostfs_inode *hi = hostfs_inode(inode);
	int err = hostfs_refresh(hi);

	if (err)
		return err;
	MUTEX_GUARD(&inode->attr_lock);
	*ret = (struct kstat){
		.dev_major = inode->sb->dev_major,
		.dev_minor = inode->sb->dev_minor,
		.ino = inode->ino,
		.mode = inode->mode,
		.nlink = hi->st.stx_nlink,
		.uid = inode->uid,
		.gid = inode->gid,
		.rdev_major = hi->st.stx_rdev_major,
		.rdev_minor = hi->st.stx_rdev_minor,
		.size = hi->st.stx_size,
		.blocks = hi->st.stx_blocks,
		.blksize = hi->st.stx_blksize,
		.atime = timespec_of(&hi->st.stx_atime),
		.mtime = timespec_of(&hi->st.stx_mtime),
		.ctime = timespec_of(&hi->st.stx_ctime),
		.btime = timespec_of(&hi->st.stx_btime),
	};
	if (hi->hidden) {
		ret->nlink = 2;
		ret->uid = ret->gid = 0;
	}
	return 0;
}

static ssize_t try_readlink(struct hostfs_inode *hi, char *dst, size_t size)
{
	struct hostfs_fd *fd = hostfs_fd_peek(hi, HFD_PATH);
	char name[NAME_MAX + 1] = "";
	ssize_t n;
	int err = fd ? 0 : hostfs_place(hi, &fd, name);

	if (err)
		return err;
	n = host_readlinkat(fd->fd, name, dst, size);
	hostfs_fd_put(fd);
	return n;
}

static ssize_t readlink_host(struct hostfs_inode *hi, char *dst, size_t size)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	struct hostfs_attempt attempt = hostfs_attempt(fs);
	ssize_t n;

	/* Another link's text is no failure, so whatever was read beside a rename is read again. */
	do
		n = try_readlink(hi, dst, size);
	while (hostfs_moved(fs, &attempt, -ESTALE));
	return n;
}

/* The text of a symlink that cannot change, kept for the inode's life. NULL: not kept. */
static const char *link_text(struct hostfs_inode *hi)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	char *have = atomic_load(&hi->link_text), *mine, buf[PATH_MAX];
	ssize_t n;

	if (have || !fs->read_only || fs->shared)
		return have;
	n = readlink_host(hi, buf, sizeof(buf));
	if (n <= 0 || n >= PATH_MAX)
		return NULL;
	mine = strndup(buf, (size_t)n);
	if (!mine || atomic_compare_exchange_strong(&hi->link_text, &have, mine))
		return mine;
	free(mine);
	return have;
}

static ssize_t hostfs_readlink(struct inode *inode, char *dst, size_t size)
{
	struct hostfs_inode *hi = hostfs_inode(inode);
	const char *text = link_text(hi);
	ssize_t n;

	if (text) {
		n = (ssize_t)MIN(strlen(text), size);
		memcpy(dst, text, (size_t)n);
	} else {
		n = readlink_host(hi, dst, size);
	}
	if (n >= 0 && (size_t)n < size)
		dst[n] = '\0';
	return n;
}

static int hostfs_any_open(struct inode *inode, struct file *file)
{
	return inode_is_dir(inode) ? hostfs_open_dir(inode, file) : hostfs_open(inode, file);
}

const struct inode_ops hostfs_inode_ops = {
	.lookup = hostfs_lookup,
	.create = hostfs_create,
	.symlink = hostfs_symlink,
	.link = hostfs_link,
	.unlink = hostfs_unlink,
	.rmdir = hostfs_rmdir,
	.rename = hostfs_rename,
	.tmpfile = hostfs_tmpfile,
	.readlink = hostfs_readlink,
	.getattr = hostfs_getattr,
	.setattr = hostfs_setattr,
	.open = hostfs_any_open,
	.mappable = hostfs_mappable,
	.getxattr = hostfs_getxattr,
	.setxattr = hostfs_setxattr,
	.listxattr = hostfs_listxattr,
	.removexattr = hostfs_removexattr,
	.destroy = hostfs_destroy,
};

/* ---- the superblock ---- */

static int hostfs_statfs(struct superblock *sb, struct statfs *ret)
{
	int err = host_fstatfs(hostfs_of(sb)->root_fd, ret);

	if (!err)
		ret->f_type = (__fsword_t)sb->magic;
	return err;
}

static void hostfs_sb_destroy(struct superblock *sb)
{
	struct hostfs *fs = hostfs_of(sb);

	/* Every inode is gone; the root's descriptor went with its slot. */
	hostfs_unregister(fs);
	for (char **h = fs->hidden; h && *h; h++)
		free(*h);
	free(fs->hidden);
	mutex_destroy(&fs->table_lock);
	free(fs);
}

static const struct superblock_ops hostfs_sb_ops = {
	.statfs = hostfs_statfs,
	.destroy = hostfs_sb_destroy,
};

static int copy_hidden(struct hostfs *fs, const char *const *hidden)
{
	size_t n = 0;

	while (hidden && hidden[n])
		n++;
	fs->hidden = calloc(n + 1, sizeof(char *));
	if (!fs->hidden)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		size_t len;

		fs->hidden[i] = strdup(hidden[i]);
		if (!fs->hidden[i])
			return -ENOMEM;
		len = strlen(fs->hidden[i]);
		while (len && fs->hidden[i][len - 1] == '/')
			fs->hidden[i][--len] = '\0';
	}
	return 0;
}

/* The descriptor is taken over by the root inode's slot. */
static int make_root(struct hostfs *fs)
{
	struct hostfs_inode *root;
	struct hostfs_fd *fd;
	struct statx st;
	int err = host_statx(fs->root_fd, "", &st);

	if (!err && !S_ISDIR(st.stx_mode))
		err = -ENOTDIR;
	if (err)
		return err;
	fs->root_dev = stat_dev(&st);
	root = inode_alloc(fs, &st);
	if (!root)
		return -ENOMEM;
	root->pinned = true;
	root->above_hidden = fs->hidden[0] != NULL;
	hostfs_set_stat(root, &st);
	fd = hostfs_fd_install(root, HFD_PATH, fs->root_fd, false);
	if (!fd) {
		fs->root_fd = -1;
		inode_put(&root->inode);
		return -ENOMEM;
	}
	hostfs_fd_put(fd);
	mutex_lock(&fs->table_lock);
	hash_locked(fs, root);
	mutex_unlock(&fs->table_lock);
	fs->sb.root = &root->inode;
	return 0;
}

int hostfs_new(const struct hostfs_options *o, struct superblock **ret)
{
	struct hostfs *fs = calloc(1, sizeof(*fs));
	u32 flags = SB_OWN_TIMES;
	int err;

	if (!fs)
		return -ENOMEM;
	flags |= o->shared ? SB_REVALIDATE : SB_NEGATIVE_OK;
	flags |= o->read_only ? SB_READ_ONLY : 0;
	superblock_init(&fs->sb, &hostfs_sb_ops, "hostfs", o->source ? o->source : "host",
			HOSTFS_MAGIC, flags);
	fs->root_fd = o->root_fd;
	fs->read_only = o->read_only;
	fs->shared = o->shared;
	fs->host_uid = o->host_uid;
	fs->host_gid = o->host_gid;
	fs->guest_uid = o->guest_uid;
	fs->guest_gid = o->guest_gid;
	fs->root_uid_unmapped = id_unmapped("/proc/self/uid_map");
	fs->root_gid_unmapped = id_unmapped("/proc/self/gid_map");
	fs->memory = o->memory;
	fs->fd_max = MIN(host_fd_limit() / 2, (u64)HOSTFS_FD_MAX);
	mutex_init(&fs->table_lock, RANK_LEAF, "hostfs.table_lock");
	list_init(&fs->fd_lru);
	list_init(&fs->idle);
	hostfs_register(fs);
	err = copy_hidden(fs, o->hidden);
	if (!err)
		err = make_root(fs);
	if (err) {
		host_close(fs->root_fd);
		superblock_put(&fs->sb);
		return err;
	}
	*ret = &fs->sb;
	return 0;
}
