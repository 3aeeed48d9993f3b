#include "vfs/hostfs_internal.h"
#include "base/log.h"
#include <linux/fs.h>
#include <linux/xattr.h>
#include <stdlib.h>
#include <string.h>

#define IOV_BATCH 64

/* ---- the page cache's way to the host ---- */

static ssize_t cache_read(struct inode *inode, void *dst, size_t len, u64 offset)
{
	struct hostfs_inode *hi = hostfs_inode(inode);
	struct hostfs_fd *fd;
	ssize_t n;
	int err = hostfs_fd_get(hi, HFD_READ, &fd);

	/* A file without a name can be read through its writing descriptor alone. */
	if (err)
		err = hostfs_fd_get(hi, HFD_WRITE, &fd);
	if (err)
		return err;
	n = host_pread(fd->fd, dst, len, offset);
	hostfs_fd_put(fd);
	return n;
}

static int cache_write(struct inode *inode, const void *src, size_t len, u64 offset)
{
	struct hostfs_fd *fd;
	int err = hostfs_fd_get(hostfs_inode(inode), HFD_WRITE, &fd);

	if (err)
		return err;
	err = host_pwrite_all(fd->fd, src, len, offset);
	hostfs_fd_put(fd);
	return err;
}

/* Without attr_lock: the cache's lock is held. */
static int cache_size(struct inode *inode, u64 *ret)
{
	struct hostfs *fs = hostfs_of(inode->sb);
	struct hostfs_inode *hi = hostfs_inode(inode);
	struct hostfs_fd *fd = NULL;
	struct stat st;
	int err;

	if (fs->read_only && !fs->shared) {
		*ret = __atomic_load_n(&inode->size, __ATOMIC_RELAXED);
		return 0;
	}
	fd = hostfs_fd_peek(hi, HFD_KINDS);
	err = fd ? 0 : hostfs_fd_get(hi, HFD_READ, &fd);
	if (err)
		return err;
	err = host_fstat(fd->fd, &st);
	hostfs_fd_put(fd);
	if (!err)
		*ret = (u64)st.st_size;
	return err;
}

static const struct pagecache_ops hostfs_cache_ops = {
	.read = cache_read,
	.write = cache_write,
	.size = cache_size,
};

void hostfs_free_cache(struct hostfs_inode *hi)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);

	mutex_lock(&fs->table_lock);
	list_del(&hi->idle_node);
	mutex_unlock(&fs->table_lock);
	pagecache_free(atomic_load(&hi->cache));
}

/*
 * The coldest inode whose pages nobody maps, when all of those exceed the limit; with a reference.
 * It goes to the warm end, so that one that cannot be shrunk is not found again at once.
 */
static struct hostfs_inode *cache_victim(struct hostfs *fs, u64 limit)
{
	struct hostfs_inode *hi, *victim = NULL;
	u64 total = 0;

	MUTEX_GUARD(&fs->table_lock);
	list_for_each (hi, &fs->idle, idle_node) {
		struct pagecache *pc = atomic_load(&hi->cache);
		u64 bytes = atomic_load(&pc->bytes);

		if (!bytes || atomic_load(&pc->mapping_count))
			continue;
		total += bytes;
		if (!victim)
			victim = hi;
	}
	if (total <= limit || !victim || !refs_tryget(&victim->inode.refs))
		return NULL;
	list_del(&victim->idle_node);
	list_push_back(&fs->idle, &victim->idle_node);
	return victim;
}

/* Drops idle caches until the rest is within the limit or enough is freed. */
static u64 trim(struct hostfs *fs, u64 limit, u64 enough)
{
	struct hostfs_inode *hi;
	u64 freed = 0, n;

	while (freed < enough && (hi = cache_victim(fs, limit)) != NULL) {
		n = pagecache_shrink(atomic_load(&hi->cache));
		inode_put(&hi->inode);
		if (!n)
			break;
		freed += n;
	}
	return freed;
}

void hostfs_trim_caches(struct hostfs *fs)
{
	trim(fs, HOSTFS_IDLE_CACHE_MAX, UINT64_MAX);
}

#define RECLAIM_MAX_FS 64

static struct mutex all_lock = MUTEX_INIT(RANK_LEAF, "hostfs.all");
static struct list all = LIST_INIT(all); /* protected by all_lock */

void hostfs_register(struct hostfs *fs)
{
	MUTEX_GUARD(&all_lock);
	list_push_back(&all, &fs->all_node);
}

void hostfs_unregister(struct hostfs *fs)
{
	MUTEX_GUARD(&all_lock);
	list_del(&fs->all_node);
}

/* References on all hostfs superblocks. */
static size_t all_hostfs(struct hostfs *v[RECLAIM_MAX_FS])
{
	struct hostfs *fs;
	size_t count = 0;

	MUTEX_GUARD(&all_lock);
	list_for_each (fs, &all, all_node)
		if (count < RECLAIM_MAX_FS && refs_tryget(&fs->sb.refs))
			v[count++] = fs;
	return count;
}

u64 hostfs_reclaim(u64 bytes)
{
	struct hostfs *v[RECLAIM_MAX_FS];
	size_t count = all_hostfs(v);
	u64 freed = 0;

	for (size_t i = 0; i < count; i++) {
		if (freed < bytes)
			freed += trim(v[i], 0, bytes - freed);
		superblock_put(&v[i]->sb);
	}
	if (freed < bytes)
		freed += hostfd_reclaim(bytes - freed, false);
	return freed;
}

/* The coldest inode with cached pages, mapped or not, with a reference; it goes to the warm end. */
static struct hostfs_inode *coldest(struct hostfs *fs)
{
	struct hostfs_inode *hi;

	MUTEX_GUARD(&fs->table_lock);
	list_for_each (hi, &fs->idle, idle_node)
		if (atomic_load(&atomic_load(&hi->cache)->bytes) && refs_tryget(&hi->inode.refs)) {
			list_del(&hi->idle_node);
			list_push_back(&fs->idle, &hi->idle_node);
			return hi;
		}
	return NULL;
}

u64 hostfs_reclaim_mapped(u64 bytes)
{
	struct hostfs *v[RECLAIM_MAX_FS];
	size_t count = all_hostfs(v);
	u64 freed = 0;

	for (size_t i = 0; i < count; i++) {
		struct hostfs_inode *hi;
		u64 n = 1;

		while (n && freed < bytes && (hi = coldest(v[i])) != NULL) {
			n = pagecache_drop_clean(atomic_load(&hi->cache));
			inode_put(&hi->inode);
			freed += n;
		}
		superblock_put(&v[i]->sb);
	}
	if (freed < bytes)
		freed += hostfd_reclaim(bytes - freed, true);
	return freed;
}

static int make_cache(struct hostfs *fs, struct hostfs_inode *hi)
{
	struct pagecache *pc = NULL;
	int err = 0;

	/* Writers hold dir_lock for reading while they go past a cache that is not there. (Nested:
	 * an overlay has its own inode locked.) */
	rwlock_wrlock_nested(&hi->inode.dir_lock);
	if (!atomic_load(&hi->cache))
		err = pagecache_new(&hi->inode, &hostfs_cache_ops, fs->memory, !fs->read_only, &pc);
	if (pc) {
		mutex_lock(&fs->table_lock);
		atomic_store(&hi->cache, pc);
		list_push_back(&fs->idle, &hi->idle_node);
		mutex_unlock(&fs->table_lock);
	}
	rwlock_unlock(&hi->inode.dir_lock);
	return err;
}

int hostfs_mappable(struct inode *inode, struct mappable **ret)
{
	struct hostfs *fs = hostfs_of(inode->sb);
	struct hostfs_inode *hi = hostfs_inode(inode);
	int err;

	if (!S_ISREG(inode->type) || !fs->memory)
		return -ENODEV;
	if (!atomic_load(&hi->cache)) {
		err = make_cache(fs, hi);
		if (err)
			return err;
		hostfs_trim_caches(fs);
	} else {
		mutex_lock(&fs->table_lock);
		list_del(&hi->idle_node);
		list_push_back(&fs->idle, &hi->idle_node);
		mutex_unlock(&fs->table_lock);
	}
	inode_get(inode);
	*ret = &atomic_load(&hi->cache)->mappable;
	return 0;
}

/* ---- open files ---- */

static struct hostfs_fd *fd_of(struct file *f)
{
	return f->private;
}

static void file_release(struct file *f)
{
	struct hostfs_inode *hi = hostfs_inode(f->inode);
	struct pagecache *pc = atomic_load(&hi->cache);

	if (pc && file_writable(f))
		pagecache_sync(pc, 0, UINT64_MAX - PAGE_SIZE);
	hostfs_fd_put(fd_of(f));
}

/* The next segments of k as an iovec. */
static int to_iov(const struct kiov *k, struct iovec *iov)
{
	struct kiov c = *k;
	int n = 0;

	while (n < IOV_BATCH && kiov_peek(&c, &iov[n])) {
		kiov_advance(&c, iov[n].iov_len);
		n++;
	}
	return n;
}

static ssize_t file_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct hostfs_inode *hi = hostfs_inode(f->inode);
	struct hostfs *fs = hostfs_of(f->inode->sb);
	struct pagecache *pc = atomic_load(&hi->cache);
	struct iovec iov[IOV_BATCH];
	ssize_t done = 0;

	if (pc && !fs->read_only)
		return pagecache_read(pc, dst, offset);
	while (dst->remaining) {
		size_t want = 0;
		int count = to_iov(dst, iov);
		ssize_t n = host_preadv(fd_of(f)->fd, iov, count, offset);

		if (n < 0)
			return done ? done : n;
		for (int i = 0; i < count; i++)
			want += iov[i].iov_len;
		kiov_advance(dst, (size_t)n);
		done += n;
		offset += (u64)n;
		if ((size_t)n < want)
			break;
	}
	return done;
}

static int rwf_of(struct file *f, int flags)
{
	int rwf = flags & (RWF_DSYNC | RWF_SYNC);

	if ((file_flags(f) & O_SYNC) == O_SYNC)
		rwf |= RWF_SYNC;
	else if (file_flags(f) & O_DSYNC)
		rwf |= RWF_DSYNC;
	return rwf;
}

static ssize_t write_plain(struct file *f, struct kiov *src, u64 offset, int rwf)
{
	struct iovec iov[IOV_BATCH];
	ssize_t done = 0;

	while (src->remaining) {
		size_t want = 0;
		int count = to_iov(src, iov);
		ssize_t n = host_pwritev(fd_of(f)->fd, iov, count, offset, rwf);

		if (n < 0)
			return done ? done : n;
		for (int i = 0; i < count; i++)
			want += iov[i].iov_len;
		kiov_advance(src, (size_t)n);
		done += n;
		offset += (u64)n;
		if ((size_t)n < want)
			break;
	}
	return done;
}

static ssize_t write_cached(struct file *f, struct pagecache *pc, struct kiov *src, u64 offset,
			    int rwf)
{
	ssize_t n = pagecache_write(pc, src, offset);

	if (n > 0 && (rwf & (RWF_SYNC | RWF_DSYNC)))
		host_fsync(fd_of(f)->fd, !(rwf & RWF_SYNC));
	return n;
}

static ssize_t file_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct inode *inode = f->inode;
	struct hostfs_inode *hi = hostfs_inode(inode);
	bool append = flags & RWF_APPEND;
	int rwf = rwf_of(f, flags);
	struct pagecache *pc;
	struct stat st;
	ssize_t n;

	rwlock_rdlock(&inode->dir_lock);
	pc = atomic_load(&hi->cache);
	if (!pc || !append) {
		n = pc ? write_cached(f, pc, src, offset, rwf)
		       : write_plain(f, src, offset, append ? rwf | RWF_APPEND : rwf);
		rwlock_unlock(&inode->dir_lock);
		return n;
	}
	rwlock_unlock(&inode->dir_lock);
	rwlock_wrlock(&inode->dir_lock);
	n = host_fstat(fd_of(f)->fd, &st);
	if (n == 0)
		n = write_cached(f, pc, src, (u64)st.st_size, rwf);
	rwlock_unlock(&inode->dir_lock);
	return n;
}

static s64 file_seek(struct file *f, s64 offset, int whence)
{
	struct kstat st;
	int err;

	if (whence == SEEK_DATA || whence == SEEK_HOLE)
		return host_lseek(fd_of(f)->fd, offset, whence);
	err = whence == SEEK_END ? inode_getattr(f->inode, &st) : 0;
	return err ? err : vfs_generic_seek(f, offset, whence, whence == SEEK_END ? st.size : 0);
}

static int file_mappable(struct file *f, struct mappable **ret)
{
	return hostfs_mappable(f->inode, ret);
}

static int file_fsync(struct file *f, bool data_only)
{
	struct pagecache *pc = atomic_load(&hostfs_inode(f->inode)->cache);
	int err = pc ? pagecache_sync(pc, 0, UINT64_MAX - PAGE_SIZE) : 0;

	if (err || hostfs_of(f->inode->sb)->read_only)
		return err;
	return host_fsync(fd_of(f)->fd, data_only);
}

static int file_fallocate(struct file *f, int mode, u64 offset, u64 len)
{
	struct pagecache *pc;
	struct stat st;
	int err;

	rwlock_wrlock(&f->inode->dir_lock);
	pc = atomic_load(&hostfs_inode(f->inode)->cache);
	if (pc && mode)
		pagecache_sync(pc, 0, UINT64_MAX - PAGE_SIZE);
	err = host_fallocate(fd_of(f)->fd, mode, offset, len);
	if (!err && pc && mode)
		pagecache_forget(pc, offset, MIN(offset + len, UINT64_MAX - PAGE_SIZE));
	if (!err && pc && host_fstat(fd_of(f)->fd, &st) == 0)
		pagecache_resized(pc, (u64)st.st_size);
	rwlock_unlock(&f->inode->dir_lock);
	return err;
}

static const struct file_ops hostfs_file_ops = {
	.kind = "hostfs",
	.release = file_release,
	.read = file_read,
	.write = file_write,
	.seek = file_seek,
	.mappable = file_mappable,
	.fsync = file_fsync,
	.fallocate = file_fallocate,
};

int hostfs_open(struct inode *inode, struct file *f)
{
	enum hostfs_fd_kind kind = file_writable(f) ? HFD_WRITE : HFD_READ;
	struct hostfs_fd *fd;
	int err;

	if (!S_ISREG(inode->type))
		return -ENXIO;
	if (kind == HFD_WRITE && hostfs_of(inode->sb)->read_only)
		return -EROFS;
	err = hostfs_fd_get(hostfs_inode(inode), kind, &fd);
	/* A file without a name was opened for writing when it was made. */
	if (err == -ESTALE && kind == HFD_READ)
		err = hostfs_fd_get(hostfs_inode(inode), HFD_WRITE, &fd);
	if (err)
		return err;
	if (fd->write_only && file_readable(f)) {
		hostfs_fd_put(fd);
		return -EACCES;
	}
	f->ops = &hostfs_file_ops;
	f->private = fd;
	return 0;
}

/* ---- extended attributes ---- */

/* Only what concerns guests: not the host's labels, ACLs and overlays. */
static bool xattr_shown(const char *name)
{
	return strncmp(name, XATTR_USER_PREFIX, XATTR_USER_PREFIX_LEN) == 0 ||
	       strcmp(name, XATTR_NAME_CAPS) == 0;
}

static bool has_xattrs(const struct inode *inode)
{
	return S_ISREG(inode->type) || S_ISDIR(inode->type);
}

static int xattr_fd(struct inode *inode, struct hostfs_fd **ret)
{
	struct hostfs_inode *hi = hostfs_inode(inode);
	struct hostfs_fd *fd = hostfs_fd_peek(hi, HFD_WRITE);

	if (!fd)
		return hostfs_fd_get(hi, HFD_READ, ret);
	*ret = fd;
	return 0;
}

ssize_t hostfs_listxattr(struct inode *inode, char *dst, size_t size)
{
	struct hostfs *fs = hostfs_of(inode->sb);
	struct hostfs_inode *hi = hostfs_inode(inode);
	struct hostfs_fd *fd;
	char *buf;
	ssize_t n, out = 0;

	if (!has_xattrs(inode) || hi->hidden || atomic_load(&hi->no_xattrs))
		return 0;
	if (xattr_fd(inode, &fd))
		return 0; /* not readable: then it has none for us */
	buf = malloc(XATTR_LIST_MAX);
	n = buf ? host_flistxattr(fd->fd, buf, XATTR_LIST_MAX) : -ENOMEM;
	hostfs_fd_put(fd);
	if (n == -EOPNOTSUPP)
		n = 0;
	for (ssize_t i = 0; i < n; i += (ssize_t)strlen(buf + i) + 1) {
		size_t len = strlen(buf + i) + 1;

		if (!xattr_shown(buf + i))
			continue;
		if (size && (size_t)out + len > size) {
			n = -ERANGE;
			break;
		}
		if (size)
			memcpy(dst + out, buf + i, len);
		out += (ssize_t)len;
	}
	free(buf);
	if (n < 0)
		return n;
	if (!out && fs->read_only && !fs->shared)
		atomic_store(&hi->no_xattrs, true);
	return out;
}

ssize_t hostfs_getxattr(struct inode *inode, const char *name, void *dst, size_t size)
{
	struct hostfs *fs = hostfs_of(inode->sb);
	struct hostfs_inode *hi = hostfs_inode(inode);
	struct hostfs_fd *fd;
	ssize_t n;

	if (strncmp(name, XATTR_USER_PREFIX, XATTR_USER_PREFIX_LEN) != 0 &&
	    strncmp(name, XATTR_TRUSTED_PREFIX, XATTR_TRUSTED_PREFIX_LEN) != 0 &&
	    strncmp(name, XATTR_SECURITY_PREFIX, XATTR_SECURITY_PREFIX_LEN) != 0)
		return -EOPNOTSUPP;
	if (!has_xattrs(inode) || hi->hidden || !xattr_shown(name))
		return -ENODATA;
	if (fs->read_only && !fs->shared) {
		/* One listing answers every later question about a file without attributes. */
		if (!atomic_load(&hi->no_xattrs))
			hostfs_listxattr(inode, NULL, 0);
		if (atomic_load(&hi->no_xattrs))
			return -ENODATA;
	}
	if (xattr_fd(inode, &fd))
		return -ENODATA;
	n = host_fgetxattr(fd->fd, name, dst, size);
	hostfs_fd_put(fd);
	return n == -EOPNOTSUPP ? -ENODATA : n;
}

int hostfs_setxattr(struct inode *inode, const char *name, const void *value, size_t size,
		    int flags)
{
	struct hostfs_fd *fd;
	int err;

	if (hostfs_of(inode->sb)->read_only)
		return -EROFS;
	if (!has_xattrs(inode) || !xattr_shown(name))
		return -EOPNOTSUPP;
	err = xattr_fd(inode, &fd);
	if (err)
		return err;
	err = host_fsetxattr(fd->fd, name, value, size, flags);
	hostfs_fd_put(fd);
	return err;
}

int hostfs_removexattr(struct inode *inode, const char *name)
{
	struct hostfs_fd *fd;
	int err;

	if (hostfs_of(inode->sb)->read_only)
		return -EROFS;
	if (!has_xattrs(inode) || !xattr_shown(name))
		return -ENODATA;
	err = xattr_fd(inode, &fd);
	if (err)
		return err;
	/* Without the right to remove it the host says so before it says that there is none. */
	err = host_fremovexattr(fd->fd, name);
	if (err == -EPERM && host_fgetxattr(fd->fd, name, NULL, 0) == -ENODATA)
		err = -ENODATA;
	hostfs_fd_put(fd);
	return err;
}
