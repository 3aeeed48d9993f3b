#include "base/host_sync.h"
#include "vfs/hostfs_internal.h"
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define EVICT_BATCH 16

void hostfs_fd_put(struct hostfs_fd *f)
{
	if (!f || atomic_fetch_sub(&f->refs, 1) != 1)
		return;
	host_close(f->fd);
	free(f);
}

/* Takes f out of its slot; the slot's reference passes to the caller. table_lock held. */
static void unslot(struct hostfs *fs, struct hostfs_fd *f)
{
	f->owner->slot[f->kind] = NULL;
	f->owner = NULL;
	list_del(&f->lru);
	fs->fd_count--;
}

/* Closes the descriptors that were not used for longest, above `keep`. */
static void evict(struct hostfs *fs, size_t keep)
{
	struct hostfs_fd *out[EVICT_BATCH];
	size_t n = 0, scan = 4 * EVICT_BATCH;
	struct list *p;

	mutex_lock(&fs->table_lock);
	for (p = fs->fd_lru.prev;
	     p != &fs->fd_lru && fs->fd_count > keep && n < EVICT_BATCH && scan--;) {
		struct hostfs_fd *f = list_entry(p, struct hostfs_fd, lru);

		p = p->prev;
		if (f->owner->pinned)
			continue;
		unslot(fs, f);
		out[n++] = f;
	}
	mutex_unlock(&fs->table_lock);
	while (n)
		hostfs_fd_put(out[--n]);
}

struct hostfs_fd *hostfs_fd_peek(struct hostfs_inode *hi, enum hostfs_fd_kind kind)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	struct hostfs_fd *f = NULL;

	MUTEX_GUARD(&fs->table_lock);
	if (kind != HFD_KINDS)
		f = hi->slot[kind];
	for (int k = 0; kind == HFD_KINDS && k < HFD_KINDS && !f; k++)
		f = hi->slot[k];
	if (!f)
		return NULL;
	atomic_fetch_add(&f->refs, 1);
	list_del(&f->lru);
	list_push_front(&fs->fd_lru, &f->lru);
	return f;
}

struct hostfs_fd *hostfs_fd_install(struct hostfs_inode *hi, enum hostfs_fd_kind kind, int fd,
				    bool write_only)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	struct hostfs_fd *f = calloc(1, sizeof(*f)), *there;

	if (!f) {
		host_close(fd);
		return NULL;
	}
	f->fd = fd;
	f->kind = kind;
	f->write_only = write_only;
	list_init(&f->lru);
	mutex_lock(&fs->table_lock);
	there = hi->slot[kind];
	if (there) {
		atomic_init(&f->refs, 1);
		atomic_fetch_add(&there->refs, 1);
	} else {
		atomic_init(&f->refs, 2); /* the slot's and the caller's */
		f->owner = hi;
		hi->slot[kind] = f;
		list_push_front(&fs->fd_lru, &f->lru);
		fs->fd_count++;
	}
	mutex_unlock(&fs->table_lock);
	if (there) {
		hostfs_fd_put(f);
		return there;
	}
	evict(fs, fs->fd_max);
	return f;
}

void hostfs_fd_release_all(struct hostfs_inode *hi)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	struct hostfs_fd *out[HFD_KINDS];

	mutex_lock(&fs->table_lock);
	for (int k = 0; k < HFD_KINDS; k++) {
		out[k] = hi->slot[k];
		if (out[k])
			unslot(fs, out[k]);
	}
	mutex_unlock(&fs->table_lock);
	for (int k = 0; k < HFD_KINDS; k++)
		hostfs_fd_put(out[k]);
}

/* ---- opening ---- */

#define MOVE_TRIES 100

static int open_flags(const struct hostfs_inode *hi, enum hostfs_fd_kind kind)
{
	int dir = S_ISDIR(hi->inode.type) ? O_DIRECTORY : 0;

	switch (kind) {
	case HFD_PATH: return O_PATH | dir;
	case HFD_READ: return O_RDONLY | O_NONBLOCK | O_NOCTTY | dir;
	default: return O_RDWR | O_NONBLOCK | O_NOCTTY;
	}
}

/* Is fd the file that hi stands for? */
static int verify(const struct hostfs_inode *hi, int fd)
{
	struct stat st;
	int err = host_fstat(fd, &st);

	if (err)
		return err;
	return st.st_dev == hi->host_dev && st.st_ino == hi->host_ino ? 0 : -ESTALE;
}

static int try_open(struct hostfs *fs, int dir_fd, const char *name, int flags)
{
	int fd = host_openat(dir_fd, name, flags, 0);

	for (int tries = 0; (fd == -EMFILE || fd == -ENFILE) && tries < 8; tries++) {
		size_t half;

		mutex_lock(&fs->table_lock);
		half = fs->fd_count / 2;
		mutex_unlock(&fs->table_lock);
		evict(fs, half);
		fd = host_openat(dir_fd, name, flags, 0);
	}
	return fd;
}

/* Opens hi as `name` below dir_fd and puts it into its slot. */
static int open_at(struct hostfs_inode *hi, int dir_fd, const char *name, enum hostfs_fd_kind kind,
		   struct hostfs_fd **ret)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);
	int flags = open_flags(hi, kind), err;
	bool write_only = false;
	int fd = try_open(fs, dir_fd, name, flags);

	if (fd == -EACCES && kind == HFD_WRITE) {
		write_only = true;
		fd = try_open(fs, dir_fd, name, O_WRONLY | O_NONBLOCK | O_NOCTTY);
	}
	if (fd < 0)
		return fd;
	err = verify(hi, fd);
	if (err) {
		host_close(fd);
		return err;
	}
	*ret = hostfs_fd_install(hi, kind, fd, write_only);
	return *ret ? 0 : -ENOMEM;
}

/* The parent (with a reference) and name of hi. */
static int place_of(struct hostfs_inode *hi, struct hostfs_inode **ret_parent, char *name)
{
	struct hostfs *fs = hostfs_of(hi->inode.sb);

	MUTEX_GUARD(&fs->table_lock);
	if (!hi->parent || hi->unlinked)
		return -ESTALE;
	inode_get(&hi->parent->inode);
	*ret_parent = hi->parent;
	memcpy(name, hi->name, strlen(hi->name) + 1);
	return 0;
}

/*
 * Finds the lowest inode on the way from the root to hi (hi included) whose directory is open, so
 * that it can be opened next. *ret_dir is that directory's descriptor.
 */
static int next_to_open(struct hostfs_inode *hi, struct hostfs_inode **ret_next,
			struct hostfs_fd **ret_dir, char *name)
{
	struct hostfs_inode *cur = hostfs_inode(inode_get(&hi->inode));

	for (;;) {
		struct hostfs_inode *parent;
		struct hostfs_fd *dir;
		int err = place_of(cur, &parent, name);

		if (err) {
			inode_put(&cur->inode);
			return err;
		}
		dir = hostfs_fd_peek(parent, HFD_PATH);
		if (dir) {
			inode_put(&parent->inode);
			*ret_next = cur;
			*ret_dir = dir;
			return 0;
		}
		inode_put(&cur->inode);
		cur = parent;
	}
}

/* Opens directories downwards until hi's own parent is open. */
int hostfs_place(struct hostfs_inode *hi, struct hostfs_fd **ret_dir, char *name)
{
	for (;;) {
		struct hostfs_inode *next;
		struct hostfs_fd *dir, *opened;
		int err = next_to_open(hi, &next, &dir, name);

		if (err)
			return err;
		if (next == hi) {
			inode_put(&next->inode);
			*ret_dir = dir;
			return 0;
		}
		err = open_at(next, dir->fd, name, HFD_PATH, &opened);
		hostfs_fd_put(dir);
		inode_put(&next->inode);
		if (err)
			return err;
		hostfs_fd_put(opened);
	}
}

bool hostfs_moved(const struct hostfs *fs, struct hostfs_attempt *a, int err)
{
	u64 begun = atomic_load(&fs->moves_begun);

	if (err >= 0 || begun == a->ended || ++a->tries > MOVE_TRIES)
		return false;
	while (atomic_load(&fs->moves_ended) < begun)
		host_yield();
	a->ended = atomic_load(&fs->moves_ended);
	return true;
}

static int open_by_place(struct hostfs_inode *hi, enum hostfs_fd_kind kind, struct hostfs_fd **ret)
{
	char name[NAME_MAX + 1];
	struct hostfs_fd *dir;
	int err = hostfs_place(hi, &dir, name);

	if (err)
		return err;
	err = open_at(hi, dir->fd, name, kind, ret);
	hostfs_fd_put(dir);
	return err;
}

int hostfs_fd_get(struct hostfs_inode *hi, enum hostfs_fd_kind kind, struct hostfs_fd **ret)
{
	struct hostfs_attempt attempt = hostfs_attempt(hostfs_of(hi->inode.sb));
	struct hostfs_fd *f = hostfs_fd_peek(hi, kind), *dir;
	int err;

	if (f) {
		*ret = f;
		return 0;
	}
	/* A directory is opened for listing through its own path descriptor. */
	if (S_ISDIR(hi->inode.type) && kind == HFD_READ) {
		err = hostfs_fd_get(hi, HFD_PATH, &dir);
		if (err)
			return err;
		err = open_at(hi, dir->fd, ".", kind, ret);
		hostfs_fd_put(dir);
		return err;
	}
	do
		err = open_by_place(hi, kind, ret);
	while (hostfs_moved(hostfs_of(hi->inode.sb), &attempt, err));
	return err;
}
