#include "base/host_file.h"
#include "base/host_spawn.h"
#include "base/host_sync.h"
#include "base/host_thread.h"
#include "base/log.h"
#include "vfs/hostfs_internal.h"
#include <linux/fs.h>
#include <linux/limits.h>
#include <stdlib.h>

#define IOV_BATCH 64
#define WATCHER_STACK (64UL << 10)
/* A ready pipe takes this much without blocking; larger writes go piece by piece. */
#define WRITE_PIECE PIPE_BUF
#define RECLAIM_MAX 64

s64 (*hostfs_ioctl_hook)(struct file *f, int host_fd, u32 cmd, u64 arg);

/* Files over inherited host descriptors. The descriptions are shared with the user's shell, so
 * their O_NONBLOCK flag is left alone: readiness is asked before each transfer. */
struct host_inode {
	struct inode inode;
	int fd;				     /* immutable; owned */
	struct waitq waitq;		     /* woken by the watcher */
	const struct vfs_memory_ops *memory; /* immutable */
	_Atomic(struct pagecache *) cache;   /* of a regular file that was mapped; set once */
	/* protected by watch_lock */
	struct list watch_node;
	u64 watch_id;		/* 0: not watched */
	struct list cache_node; /* in the list of those with a cache */
};

static struct host_inode *host_inode(struct inode *i)
{
	return container_of(i, struct host_inode, inode);
}

static int fd_of(struct file *f)
{
	return host_inode(f->inode)->fd;
}

/* ---- the watcher thread ---- */

static struct mutex watch_lock = MUTEX_INIT(RANK_LEAF, "hostfd.watch");
static int watch_epoll = -1;			 /* protected by watch_lock */
static int watch_stop = -1;			 /* eventfd; protected by watch_lock */
static struct list watched = LIST_INIT(watched); /* protected by watch_lock */
static u64 next_watch_id = 1;			 /* protected by watch_lock */

/* The watched inode of that number with a reference; NULL when it is gone. */
static struct host_inode *find_watched(u64 id)
{
	struct host_inode *h;

	MUTEX_GUARD(&watch_lock);
	list_for_each (h, &watched, watch_node)
		if (h->watch_id == id)
			return refs_tryget(&h->inode.refs) ? h : NULL;
	return NULL;
}

static void *watcher(void *arg)
{
	int epfd = (int)(intptr_t)arg;

	for (;;) {
		struct host_inode *h;
		u64 data = 0;
		int n = host_epoll_wait_one(epfd, &data);

		if (n < 0 || (n > 0 && data == 0))
			return NULL;
		h = n > 0 ? find_watched(data) : NULL;
		if (!h)
			continue;
		waitq_wake(&h->waitq, EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM | EPOLLRDHUP |
					      EPOLLHUP | EPOLLERR);
		inode_put(&h->inode);
	}
}

/* Starts the watcher on first use; watch_lock held. The epoll descriptor, or -errno. */
static int watch_start(void)
{
	int err;

	if (watch_epoll >= 0)
		return watch_epoll;
	watch_epoll = host_epoll_create();
	if (watch_epoll < 0)
		return watch_epoll;
	watch_stop = host_eventfd();
	err = watch_stop < 0 ? watch_stop : host_epoll_add(watch_epoll, watch_stop, EPOLLIN, 0);
	if (!err)
		err = host_thread_start(watcher, (void *)(intptr_t)watch_epoll, WATCHER_STACK);
	if (err >= 0)
		return watch_epoll;
	log_warn("cannot watch host descriptors: error %d", -err);
	host_close(watch_stop);
	host_close(watch_epoll);
	watch_stop = watch_epoll = -1;
	return err;
}

/* What epoll refuses (regular files behind a device node, say) is always ready. */
static void watch(struct host_inode *h)
{
	int epfd;

	MUTEX_GUARD(&watch_lock);
	if (h->watch_id)
		return;
	epfd = watch_start();
	if (epfd < 0)
		return;
	h->watch_id = next_watch_id++;
	list_push_back(&watched, &h->watch_node);
	host_epoll_add(epfd, h->fd, EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLET,
		       h->watch_id);
}

static void unwatch(struct host_inode *h)
{
	MUTEX_GUARD(&watch_lock);
	if (!h->watch_id)
		return;
	list_del(&h->watch_node);
	host_epoll_del(watch_epoll, h->fd);
}

void hostfs_poll_stop(void)
{
	MUTEX_GUARD(&watch_lock);
	if (watch_stop >= 0)
		host_eventfd_write(watch_stop, 1);
}

/* ---- operations ---- */

static bool ready(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	return host_poll(&p, 1, 0) > 0;
}

static int to_iov(const struct kiov *k, size_t limit, struct iovec *iov)
{
	struct kiov c = *k;
	int n = 0;

	kiov_truncate(&c, limit);
	while (n < IOV_BATCH && kiov_peek(&c, &iov[n])) {
		kiov_advance(&c, iov[n].iov_len);
		n++;
	}
	return n;
}

/* What the host says when it cannot promise not to wait for this kind of file. */
static bool cannot_tell(ssize_t err)
{
	return err == -EOPNOTSUPP || err == -EINVAL || err == -ENOSYS || err == -ESPIPE;
}

static ssize_t stream_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct iovec iov[IOV_BATCH];
	int count = to_iov(dst, SIZE_MAX, iov);
	ssize_t n;

	if (!count)
		return 0;
	n = host_readv_nowait(fd_of(f), iov, count);
	if (cannot_tell(n)) {
		if (!ready(fd_of(f), POLLIN | POLLRDHUP))
			return -EAGAIN;
		n = host_readv(fd_of(f), iov, count);
	}
	if (n == -EINTR)
		return -EAGAIN;
	if (n > 0)
		kiov_advance(dst, (size_t)n);
	return n;
}

static ssize_t write_some(int fd, const struct kiov *src)
{
	struct iovec iov[IOV_BATCH];
	ssize_t n = host_writev_nowait(fd, iov, to_iov(src, SIZE_MAX, iov));

	if (!cannot_tell(n))
		return n;
	if (!ready(fd, POLLOUT))
		return -EAGAIN;
	return host_writev(fd, iov, to_iov(src, WRITE_PIECE, iov));
}

static ssize_t stream_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	ssize_t done = 0;

	while (src->remaining) {
		ssize_t n = write_some(fd_of(f), src);

		if (n == -EINTR)
			n = -EAGAIN;
		if (n <= 0)
			return done ? done : n;
		kiov_advance(src, (size_t)n);
		done += n;
	}
	return done;
}

static u32 stream_poll(struct file *f)
{
	struct pollfd p = { .fd = fd_of(f),
			    .events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM |
				      POLLWRNORM };

	if (host_poll(&p, 1, 0) <= 0)
		return 0;
	return (u16)p.revents & ~(u32)POLLNVAL;
}

/* Whoever asks for the queue is about to wait: from now on the watcher tells of changes. */
static struct waitq *stream_waitq(struct file *f)
{
	struct host_inode *h = host_inode(f->inode);

	watch(h);
	return &h->waitq;
}

static s64 host_ioctl_op(struct file *f, u32 cmd, u64 arg)
{
	return hostfs_ioctl_hook ? hostfs_ioctl_hook(f, fd_of(f), cmd, arg) : -ENOTTY;
}

static ssize_t reg_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct iovec iov[IOV_BATCH];
	int count = to_iov(dst, SIZE_MAX, iov);
	ssize_t n;

	if (!count)
		return 0;
	do
		n = offset == FILE_POS_OWN ? host_readv(fd_of(f), iov, count)
					   : host_preadv(fd_of(f), iov, count, offset);
	while (n == -EINTR);
	if (n > 0)
		kiov_advance(dst, (size_t)n);
	return n;
}

/* The guest may have set O_APPEND for itself: the host's own flag does not change. */
static ssize_t reg_write_once(int fd, const struct iovec *iov, int count, u64 offset, bool append)
{
	if (append) /* also where offset is FILE_POS_OWN, which to the host says the same */
		return host_pwritev(fd, iov, count, offset, RWF_APPEND);
	return offset == FILE_POS_OWN ? host_writev(fd, iov, count)
				      : host_pwritev(fd, iov, count, offset, 0);
}

static ssize_t write_all(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct iovec iov[IOV_BATCH];
	ssize_t done = 0;

	while (src->remaining) {
		int count = to_iov(src, SIZE_MAX, iov);
		u64 at = offset == FILE_POS_OWN ? offset : offset + (u64)done;
		ssize_t n;

		do
			n = reg_write_once(fd_of(f), iov, count, at, flags & RWF_APPEND);
		while (n == -EINTR);
		if (n <= 0)
			return done ? done : n;
		kiov_advance(src, (size_t)n);
		done += n;
	}
	return done;
}

static ssize_t reg_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	ssize_t n = write_all(f, src, offset, flags);
	struct pagecache *pc = atomic_load(&host_inode(f->inode)->cache);

	/* Where it went is the host's matter. */
	if (pc && n > 0)
		pagecache_forget(pc, 0, UINT64_MAX - PAGE_SIZE);
	return n;
}

static s64 reg_seek(struct file *f, s64 offset, int whence)
{
	return host_lseek(fd_of(f), offset, whence);
}

static int reg_fsync(struct file *f, bool data_only)
{
	return host_fsync(fd_of(f), data_only);
}

/* ---- mappings of regular files ---- */

/* Pages of what is only read through a mapping: private ones, and shared ones of a descriptor that
 * cannot write. The caches are few, one a descriptor, and are freed with it. */
static struct list caches = LIST_INIT(caches); /* protected by watch_lock */

static ssize_t cache_read(struct inode *inode, void *dst, size_t len, u64 offset)
{
	return host_pread(host_inode(inode)->fd, dst, len, offset);
}

static int cache_write(struct inode *inode, const void *src, size_t len, u64 offset)
{
	return -EROFS; /* nothing is ever dirty */
}

static int cache_size(struct inode *inode, u64 *ret)
{
	struct stat st;
	int err = host_fstat(host_inode(inode)->fd, &st);

	if (!err)
		*ret = (u64)st.st_size;
	return err;
}

static const struct pagecache_ops cache_ops = {
	.read = cache_read,
	.write = cache_write,
	.size = cache_size,
};

static int reg_mappable(struct file *f, struct mappable **ret)
{
	struct host_inode *h = host_inode(f->inode);
	struct pagecache *pc, *none = NULL;
	int err;

	if (!S_ISREG(f->inode->type) || !h->memory)
		return -ENODEV;
	if (!atomic_load(&h->cache)) {
		err = pagecache_new(&h->inode, &cache_ops, h->memory, false, &pc);
		if (err)
			return err;
		if (atomic_compare_exchange_strong(&h->cache, &none, pc)) {
			MUTEX_GUARD(&watch_lock);
			list_push_back(&caches, &h->cache_node);
		} else {
			pagecache_free(pc);
		}
	}
	inode_get(&h->inode);
	*ret = &atomic_load(&h->cache)->mappable;
	return 0;
}

static void drop_cache(struct host_inode *h)
{
	mutex_lock(&watch_lock);
	list_del(&h->cache_node);
	mutex_unlock(&watch_lock);
	pagecache_free(atomic_load(&h->cache));
}

u64 hostfd_reclaim(u64 bytes, bool mapped)
{
	struct host_inode *v[RECLAIM_MAX], *h;
	size_t count = 0;
	u64 freed = 0;

	mutex_lock(&watch_lock);
	list_for_each (h, &caches, cache_node)
		if (count < RECLAIM_MAX && refs_tryget(&h->inode.refs))
			v[count++] = h;
	mutex_unlock(&watch_lock);
	for (size_t i = 0; i < count; i++) {
		struct pagecache *pc = atomic_load(&v[i]->cache);

		if (freed < bytes)
			freed += mapped ? pagecache_drop_clean(pc) : pagecache_shrink(pc);
		inode_put(&v[i]->inode);
	}
	return freed;
}

static const struct file_ops stream_ops[] = {
#define STREAM_OPS(name)                                                                           \
	{                                                                                          \
		.kind = name, .read = stream_read, .write = stream_write, .poll = stream_poll,     \
		.waitq = stream_waitq, .ioctl = host_ioctl_op,                                     \
	}
	STREAM_OPS("pipe"),
	STREAM_OPS("socket"),
	STREAM_OPS("host"),
};

static const struct file_ops regular_ops = {
	.kind = "file",
	.own_pos = true,
	.read = reg_read,
	.write = reg_write,
	.seek = reg_seek,
	.mappable = reg_mappable,
	.fsync = reg_fsync,
	.ioctl = host_ioctl_op,
};

/* ---- the inode ---- */

static int host_getattr(struct inode *inode, struct kstat *ret)
{
	struct stat st;
	int err = host_fstat(host_inode(inode)->fd, &st);

	if (err)
		return err;
	err = vfs_generic_getattr(inode, ret);
	ret->mode = (ret->mode & S_IFMT) | (st.st_mode & 07777);
	ret->nlink = (u32)st.st_nlink;
	ret->size = (u64)st.st_size;
	ret->blocks = (u64)st.st_blocks;
	ret->blksize = (u32)st.st_blksize;
	ret->atime = st.st_atim;
	ret->mtime = st.st_mtim;
	ret->ctime = st.st_ctim;
	return err;
}

static int host_setattr(struct inode *inode, const struct iattr *a)
{
	struct host_inode *h = host_inode(inode);
	struct pagecache *pc = atomic_load(&h->cache);
	int err;

	if (a->mask & ATTR_SIZE) {
		err = host_ftruncate(h->fd, a->size);
		if (!err && pc)
			pagecache_resized(pc, a->size);
		return err;
	}
	return a->mask & (ATTR_MODE | ATTR_UID | ATTR_GID) ? -EPERM : 0;
}

static void host_destroy(struct inode *inode)
{
	struct host_inode *h = host_inode(inode);

	unwatch(h);
	drop_cache(h);
	host_close(h->fd);
	waitq_destroy(&h->waitq);
	inode_fini(inode);
	free(h);
}

static int host_open(struct inode *inode, struct file *f)
{
	switch (inode->type) {
	case S_IFREG: f->ops = &regular_ops; break;
	case S_IFSOCK: f->ops = &stream_ops[1]; break;
	default: f->ops = &stream_ops[2];
	}
	return 0;
}

static const struct inode_ops host_inode_ops = {
	.getattr = host_getattr,
	.setattr = host_setattr,
	.open = host_open,
	.destroy = host_destroy,
};

static const struct superblock_ops host_sb_ops = { 0 };
static struct superblock *host_sb; /* protected by watch_lock; lives for ever */

static struct superblock *host_superblock(void)
{
	MUTEX_GUARD(&watch_lock);
	if (!host_sb) {
		host_sb = calloc(1, sizeof(*host_sb));
		if (host_sb)
			superblock_init(host_sb, &host_sb_ops, "hostfd", "hostfd", 0x1cd1,
					SB_OWN_TIMES);
	}
	return host_sb;
}

static const struct file_ops *ops_for(u32 mode)
{
	if (S_ISREG(mode) || S_ISDIR(mode))
		return &regular_ops;
	if (S_ISFIFO(mode))
		return &stream_ops[0];
	return S_ISSOCK(mode) ? &stream_ops[1] : &stream_ops[2];
}

int hostfs_file_from_fd(int host_fd, const struct cred *cred, const struct vfs_memory_ops *memory,
			struct file **ret)
{
	struct superblock *sb = host_superblock();
	struct inode_create how;
	struct host_inode *h;
	struct stat st;
	int flags = host_fd_flags(host_fd), err;

	if (flags < 0)
		return flags;
	err = host_fstat(host_fd, &st);
	if (err)
		return err;
	h = sb ? calloc(1, sizeof(*h)) : NULL;
	if (!h)
		return -ENOMEM;
	how = (struct inode_create){ .mode = st.st_mode, .uid = cred->fsuid, .gid = cred->fsgid };
	if (S_ISCHR(st.st_mode)) {
		how.rdev_major = (u32)(st.st_rdev >> 8) & 0xfff;
		how.rdev_minor = (u32)st.st_rdev & 0xff;
	}
	inode_init(&h->inode, sb, &host_inode_ops, st.st_ino, &how);
	h->fd = host_fd;
	h->memory = memory;
	list_init(&h->watch_node);
	list_init(&h->cache_node);
	waitq_init(&h->waitq);
	err = file_new(&h->inode, NULL, (u32)flags & (O_ACCMODE | O_APPEND), cred,
		       ops_for(st.st_mode), NULL, ret);
	if (err)
		h->fd = -1; /* the descriptor stays the caller's */
	inode_put(&h->inode);
	return err;
}

int hostfs_file_fd(struct file *f)
{
	return f->inode->ops == &host_inode_ops ? fd_of(f) : -1;
}
