#include "vfs/synth.h"
#include "vfs/dentry.h"
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYNTH_WRITE_MAX 65536
#define TEXTBUF_MAX (64UL << 20)
/* What all open synthetic files together keep of their texts: a guest may hold very many open. */
#define SYNTH_TEXT_TOTAL (256L << 20)

static _Atomic long text_total;

/* ---- text ---- */

static bool textbuf_reserve(struct textbuf *b, size_t more)
{
	size_t cap = b->cap ? b->cap : 1024;
	char *p;

	if (b->failed || more > TEXTBUF_MAX - b->len) {
		b->failed = true;
		return false;
	}
	if (b->len + more <= b->cap)
		return true;
	while (cap < b->len + more)
		cap *= 2;
	p = realloc(b->data, cap);
	if (!p) {
		b->failed = true;
		return false;
	}
	b->data = p;
	b->cap = cap;
	return true;
}

void textbuf_write(struct textbuf *b, const void *data, size_t len)
{
	if (!len || !textbuf_reserve(b, len))
		return;
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

void textbuf_printf(struct textbuf *b, const char *fmt, ...)
{
	size_t room = b->cap - b->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(b->data ? b->data + b->len : NULL, room, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n >= room) {
		if (!textbuf_reserve(b, (size_t)n + 1))
			return;
		va_start(ap, fmt);
		vsnprintf(b->data + b->len, b->cap - b->len, fmt, ap);
		va_end(ap);
	}
	b->len += (size_t)n;
}

void textbuf_free(struct textbuf *b)
{
	free(b->data);
	*b = (struct textbuf){ 0 };
}

/* ---- inodes ---- */

struct synth_inode {
	struct inode inode;
	void *arg;
	void (*put_arg)(void *arg);
	union {
		const struct synth_file_ops *file;
		const struct synth_link_ops *link;
		const struct synth_dir_ops *dir;
	} ops;
};

static struct synth_inode *synth(struct inode *inode)
{
	return container_of(inode, struct synth_inode, inode);
}

void *synth_arg(struct inode *inode)
{
	return synth(inode)->arg;
}

static void synth_destroy(struct inode *inode)
{
	struct synth_inode *s = synth(inode);

	if (s->put_arg)
		s->put_arg(s->arg);
	inode_fini(inode);
	free(s);
}

/* Truncation by O_TRUNC means nothing here; owners and modes do not change. */
static int synth_setattr(struct inode *inode, const struct iattr *attr)
{
	return attr->mask & (ATTR_MODE | ATTR_UID | ATTR_GID) ? -EPERM : 0;
}

static int synth_new(struct superblock *sb, const struct inode_ops *ops, u64 ino,
		     const struct inode_create *how, void *arg, void (*put_arg)(void *),
		     struct synth_inode **ret)
{
	struct synth_inode *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	inode_init(&s->inode, sb, ops, ino, how);
	s->arg = arg;
	s->put_arg = put_arg;
	*ret = s;
	return 0;
}

/* ---- files ---- */

struct synth_open {
	struct mutex lock; /* RANK_FILE_POS, nested: show may take any lock */
	struct textbuf text;
	size_t charged; /* of text_total */
	bool ready;
};

static void drop_text(struct synth_open *o)
{
	atomic_fetch_sub(&text_total, (long)o->charged);
	o->charged = 0;
	textbuf_free(&o->text);
	o->ready = false;
}

/* The text of this open counts against the total; false when that is used up. */
static bool charge_text(struct synth_open *o)
{
	long more = (long)o->text.cap - (long)o->charged;

	if (atomic_fetch_add(&text_total, more) + more > SYNTH_TEXT_TOTAL && more > 0) {
		atomic_fetch_sub(&text_total, more);
		return false;
	}
	o->charged = o->text.cap;
	return true;
}

static void synth_file_release(struct file *f)
{
	struct synth_open *o = f->private;

	drop_text(o);
	mutex_destroy(&o->lock);
	free(o);
}

static int synth_produce(struct file *f, struct synth_open *o, u64 offset)
{
	struct synth_inode *s = synth(f->inode);
	int err;

	if (o->ready && offset > 0)
		return 0;
	o->ready = false;
	o->text.len = 0;
	o->text.failed = false;
	err = s->ops.file->show(f, s->arg, &o->text);
	if (!err && (o->text.failed || !charge_text(o)))
		err = -ENOMEM;
	o->ready = !err;
	if (err)
		drop_text(o);
	return err;
}

static ssize_t synth_file_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct synth_open *o = f->private;
	ssize_t n = 0;

	if (!synth(f->inode)->ops.file->show)
		return -EINVAL;
	mutex_lock_nested(&o->lock);
	n = synth_produce(f, o, offset);
	if (!n && offset < o->text.len)
		n = kiov_put(dst, o->text.data + offset, MIN(dst->remaining, o->text.len - offset));
	mutex_unlock(&o->lock);
	return n;
}

static ssize_t synth_file_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct synth_inode *s = synth(f->inode);
	size_t len = MIN(src->remaining, (size_t)SYNTH_WRITE_MAX);
	char *buf;
	ssize_t n;

	if (!s->ops.file->store)
		return -EINVAL;
	buf = malloc(len + 1);
	if (!buf)
		return -ENOMEM;
	n = len ? kiov_get(src, buf, len) : 0;
	if (n >= 0) {
		buf[n] = '\0';
		n = s->ops.file->store(f, s->arg, buf, (size_t)n);
	}
	free(buf);
	return n;
}

static s64 synth_file_seek(struct file *f, s64 offset, int whence)
{
	if (whence != SEEK_SET && whence != SEEK_CUR)
		return -EINVAL;
	return vfs_generic_seek(f, offset, whence, 0);
}

static const struct file_ops synth_file_file_ops = {
	.kind = "synth",
	.release = synth_file_release,
	.read = synth_file_read,
	.write = synth_file_write,
	.seek = synth_file_seek,
};

static int synth_file_open(struct inode *inode, struct file *f)
{
	struct synth_open *o;

	if (file_writable(f) && !synth(inode)->ops.file->store)
		return -EACCES;
	o = calloc(1, sizeof(*o));
	if (!o)
		return -ENOMEM;
	mutex_init(&o->lock, RANK_FILE_POS, "synth.open");
	f->ops = &synth_file_file_ops;
	f->private = o;
	return 0;
}

static const struct inode_ops synth_file_inode_ops = {
	.open = synth_file_open,
	.setattr = synth_setattr,
	.destroy = synth_destroy,
};

int synth_file_new(struct superblock *sb, u32 mode, u32 uid, u32 gid,
		   const struct synth_file_ops *ops, void *arg, void (*put_arg)(void *), u64 ino,
		   struct inode **ret)
{
	struct inode_create how = { .mode = S_IFREG | (mode & 07777), .uid = uid, .gid = gid };
	struct synth_inode *s;
	int err = synth_new(sb, &synth_file_inode_ops, ino, &how, arg, put_arg, &s);

	if (err)
		return err;
	s->ops.file = ops;
	*ret = &s->inode;
	return 0;
}

/* ---- links ---- */

static ssize_t synth_readlink(struct inode *inode, char *dst, size_t size)
{
	struct synth_inode *s = synth(inode);

	return s->ops.link->text ? s->ops.link->text(s->arg, dst, size) : -EINVAL;
}

static int synth_follow(struct inode *inode, struct path *ret)
{
	struct synth_inode *s = synth(inode);

	return s->ops.link->follow(s->arg, ret);
}

static const struct inode_ops synth_link_inode_ops = {
	.readlink = synth_readlink,
	.setattr = synth_setattr,
	.destroy = synth_destroy,
};

static const struct inode_ops synth_magic_inode_ops = {
	.readlink = synth_readlink,
	.follow = synth_follow,
	.setattr = synth_setattr,
	.destroy = synth_destroy,
};

int synth_link_new(struct superblock *sb, const struct synth_link_ops *ops, void *arg,
		   void (*put_arg)(void *), u64 ino, struct inode **ret)
{
	struct inode_create how = { .mode = S_IFLNK | 0777 };
	struct synth_inode *s;
	int err = synth_new(sb, ops->follow ? &synth_magic_inode_ops : &synth_link_inode_ops, ino,
			    &how, arg, put_arg, &s);

	if (err)
		return err;
	s->ops.link = ops;
	*ret = &s->inode;
	return 0;
}

/* ---- directories ---- */

static int synth_dir_lookup(struct inode *dir, const char *name, struct inode **ret)
{
	struct synth_inode *s = synth(dir);

	return s->ops.dir->lookup ? s->ops.dir->lookup(dir, s->arg, name, ret) : -ENOENT;
}

static int synth_dir_permission(struct inode *dir, const struct cred *cred, int mask)
{
	struct synth_inode *s = synth(dir);

	if (s->ops.dir->permission)
		return s->ops.dir->permission(dir, s->arg, cred, mask);
	return vfs_permission_bits(dir->mode, dir->uid, dir->gid, cred, mask);
}

static int synth_dir_iterate(struct file *f, struct dir_emit *e, u64 *pos)
{
	struct synth_inode *s = synth(f->inode);

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
	return s->ops.dir->list ? s->ops.dir->list(f->inode, s->arg, e, pos) : 0;
}

static const struct file_ops synth_dir_file_ops = {
	.kind = "directory",
	.iterate = synth_dir_iterate,
};

static int synth_dir_open(struct inode *inode, struct file *f)
{
	f->ops = &synth_dir_file_ops;
	return 0;
}

static const struct inode_ops synth_dir_inode_ops = {
	.lookup = synth_dir_lookup,
	.permission = synth_dir_permission,
	.open = synth_dir_open,
	.setattr = synth_setattr,
	.destroy = synth_destroy,
};

int synth_dir_new(struct superblock *sb, u32 mode, u32 uid, u32 gid,
		  const struct synth_dir_ops *ops, void *arg, void (*put_arg)(void *), u64 ino,
		  struct inode **ret)
{
	struct inode_create how = { .mode = S_IFDIR | (mode & 07777), .uid = uid, .gid = gid };
	struct synth_inode *s;
	int err = synth_new(sb, &synth_dir_inode_ops, ino, &how, arg, put_arg, &s);

	if (err)
		return err;
	rwlock_destroy(&s->inode.dir_lock);
	rwlock_init(&s->inode.dir_lock, RANK_SYNTH_DIR, "synth.dir_lock");
	s->ops.dir = ops;
	*ret = &s->inode;
	return 0;
}
