#include "vfs/hostfs_internal.h"
#include "vfs/dentry.h"
#include "vfs/listing.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define READ_SIZE (32UL << 10)
#define LISTING_MAX (256UL << 20) /* bytes of host records of one directory */

/* The host's record: linux_dirent64 of getdents64(2). */
struct host_dirent {
	u64 ino;
	s64 off;
	u16 reclen;
	u8 type;
	char name[];
};

/*
 * A directory is read from the host as a whole, once an open (and again from position 0), so
 * positions are indexes that stay good while entries are removed.
 */
struct listing {
	bool read;
	char *buf;
	size_t len, cap;
	u32 *index; /* offsets of records in buf */
	size_t count, index_cap;
	size_t charged; /* see listing_charge */
};

static void listing_clear(struct listing *l)
{
	listing_charge(&l->charged, 0);
	free(l->buf);
	free(l->index);
	*l = (struct listing){ 0 };
}

static int add_record(struct listing *l, size_t offset)
{
	if (l->count == l->index_cap) {
		size_t cap = l->index_cap ? 2 * l->index_cap : 64;
		u32 *p = realloc(l->index, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		l->index = p;
		l->index_cap = cap;
	}
	l->index[l->count++] = (u32)offset;
	return 0;
}

static int parse(struct listing *l, size_t from)
{
	for (size_t at = from; at < l->len;) {
		struct host_dirent *d = (struct host_dirent *)(l->buf + at);
		int err = 0;

		if (d->reclen < sizeof(*d) || d->reclen > l->len - at)
			return -EIO;
		if (strcmp(d->name, ".") != 0 && strcmp(d->name, "..") != 0)
			err = add_record(l, at);
		if (err)
			return err;
		at += d->reclen;
	}
	return 0;
}

static int read_all(struct listing *l, int fd)
{
	for (;;) {
		ssize_t n;
		int err;

		if (l->cap - l->len < READ_SIZE) {
			size_t cap = l->cap ? 2 * l->cap : READ_SIZE;
			char *p = cap <= LISTING_MAX ? realloc(l->buf, cap) : NULL;

			if (!p)
				return -ENOMEM;
			l->buf = p;
			l->cap = cap;
		}
		n = host_getdents(fd, l->buf + l->len, l->cap - l->len);
		if (n <= 0)
			return (int)n;
		l->len += (size_t)n;
		err = parse(l, l->len - (size_t)n);
		if (err)
			return err;
	}
}

static int listing_fill(struct listing *l, struct hostfs_inode *hi)
{
	struct hostfs_fd *path;
	int fd, err;

	listing_clear(l);
	if (hi->hidden) {
		l->read = true;
		return 0;
	}
	err = hostfs_fd_get(hi, HFD_PATH, &path);
	if (err)
		return err;
	fd = host_openat(path->fd, ".", O_RDONLY | O_DIRECTORY, 0);
	hostfs_fd_put(path);
	if (fd < 0)
		return fd;
	err = read_all(l, fd);
	host_close(fd);
	if (!err && !listing_charge(&l->charged, l->cap + l->index_cap * sizeof(*l->index)))
		err = -ENOMEM;
	if (err)
		listing_clear(l);
	else
		l->read = true;
	return err;
}

static void dir_release(struct file *f)
{
	listing_clear(f->private);
	free(f->private);
}

static int dir_iterate(struct file *f, struct dir_emit *e, u64 *pos)
{
	struct listing *l = f->private;
	int err = *pos == 0 || !l->read ? listing_fill(l, hostfs_inode(f->inode)) : 0;

	if (err)
		return err;
	if (*pos == 0) {
		if (!e->emit(e, ".", 1, f->inode->ino, DT_DIR, 1))
			return 0;
		*pos = 1;
	}
	if (*pos == 1) {
		if (!e->emit(e, "..", 2, file_parent_ino(f), DT_DIR, 2))
			return 0;
		*pos = 2;
	}
	while (*pos - 2 < l->count) {
		struct host_dirent *d = (struct host_dirent *)(l->buf + l->index[*pos - 2]);

		if (!e->emit(e, d->name, strlen(d->name), d->ino, d->type, *pos + 1))
			break;
		++*pos;
	}
	return 0;
}

static const struct file_ops hostfs_dir_ops = {
	.kind = "hostfs directory",
	.release = dir_release,
	.iterate = dir_iterate,
};

int hostfs_open_dir(struct inode *inode, struct file *f)
{
	struct listing *l =
		calloc(1, sizeof(*l)); /* filled by the first read: many opens never list */

	if (!l)
		return -ENOMEM;
	f->private = l;
	f->ops = &hostfs_dir_ops;
	return 0;
}
