#include "vfs/overlay_internal.h"
#include "vfs/dentry.h"
#include "vfs/listing.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/*
 * Listing. A directory in one layer is listed by that layer's own file, with numbers translated.
 * One in both is read as a whole, once an open (and again from position 0): names of the upper
 * layer, then those of the lower one that are not whited out. By the whiteout invariant no name
 * comes twice.
 */
enum listing_kind { LIST_NONE, LIST_UPPER, LIST_LOWER, LIST_MERGED };

struct merged_entry {
	u64 ino;
	u32 name; /* offset in names */
	u16 len;
	u8 type;
};

struct ovl_dir_file {
	enum listing_kind kind;
	struct file *upper, *lower;
	/* LIST_MERGED */
	struct merged_entry *entries;
	size_t count, cap;
	char *names;
	size_t names_len, names_cap;
	size_t charged; /* see listing_charge */
};

static void listing_clear(struct ovl_dir_file *d)
{
	listing_charge(&d->charged, 0);
	file_put(d->upper);
	file_put(d->lower);
	free(d->entries);
	free(d->names);
	*d = (struct ovl_dir_file){ 0 };
}

static void dir_release(struct file *f)
{
	listing_clear(f->private);
	free(f->private);
}

static bool is_dot(const char *name, size_t len)
{
	return name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.'));
}

/* ---- reading a whole layer ---- */

struct layer_reader {
	struct dir_emit emit;
	struct ovl_dir_file *into; /* NULL: only count */
	struct ovl_inode *dir;
	bool lower;
	size_t seen;
	int err;
};

static int append(struct ovl_dir_file *d, const char *name, size_t len, u64 ino, u8 type)
{
	if (d->count == d->cap) {
		size_t cap = d->cap ? 2 * d->cap : 64;
		struct merged_entry *e = realloc(d->entries, cap * sizeof(*e));

		if (!e)
			return -ENOMEM;
		d->entries = e;
		d->cap = cap;
	}
	if (d->names_len + len > d->names_cap) {
		size_t cap = d->names_cap ? 2 * d->names_cap : 1024;
		char *p = cap <= UINT32_MAX ? realloc(d->names, cap) : NULL;

		if (!p)
			return -ENOMEM;
		d->names = p;
		d->names_cap = cap;
	}
	memcpy(d->names + d->names_len, name, len);
	d->entries[d->count++] = (struct merged_entry){ ino, (u32)d->names_len, (u16)len, type };
	d->names_len += len;
	return 0;
}

static bool reader_emit(struct dir_emit *e, const char *name, size_t len, u64 ino, u8 type,
			u64 next_pos)
{
	struct layer_reader *r = container_of(e, struct layer_reader, emit);
	char copy[NAME_MAX + 1];

	if (is_dot(name, len) || len > NAME_MAX)
		return true;
	memcpy(copy, name, len);
	copy[len] = '\0';
	if (r->lower && whiteouts_has(&r->dir->whiteouts, copy))
		return true;
	r->seen++;
	if (!r->into)
		return false; /* one is enough */
	if (!r->lower)
		ino = ovl_shown_ino(overlay_of(r->dir->inode.sb), ino);
	r->err = append(r->into, name, len, ino, type);
	return r->err == 0;
}

/* Reads one layer of a directory. Its dir_lock is held (whiteouts are looked at). */
static int read_layer(struct ovl_inode *dir, struct inode *real, bool lower,
		      struct ovl_dir_file *into, size_t *io_seen)
{
	struct layer_reader r = {
		.emit = { reader_emit }, .into = into, .dir = dir, .lower = lower
	};
	struct file *f;
	u64 pos = 0;
	int err = ovl_open_layer(overlay_of(dir->inode.sb), real, O_RDONLY | O_DIRECTORY, &f);

	if (err)
		return err;
	err = f->ops->iterate(f, &r.emit, &pos);
	file_put(f);
	*io_seen += r.seen;
	return err ? err : r.err;
}

int ovl_check_empty(struct ovl_inode *dir)
{
	struct inode *upper = ovl_upper(dir);
	size_t seen = 0;
	int err = upper ? read_layer(dir, upper, false, NULL, &seen) : 0;

	if (!err && !seen && dir->lower)
		err = read_layer(dir, dir->lower, true, NULL, &seen);
	return err ? err : seen ? -ENOTEMPTY : 0;
}

/* ---- starting a listing ---- */

static int start_listing(struct ovl_dir_file *d, struct ovl_inode *dir)
{
	struct overlay *o = overlay_of(dir->inode.sb);
	struct inode *upper = ovl_upper(dir);
	size_t seen = 0;
	int err = 0;

	listing_clear(d);
	if (!dir->lower) {
		err = ovl_open_layer(o, upper, O_RDONLY | O_DIRECTORY, &d->upper);
		d->kind = LIST_UPPER;
	} else if (!upper) {
		err = ovl_open_layer(o, dir->lower, O_RDONLY | O_DIRECTORY, &d->lower);
		d->kind = LIST_LOWER;
	} else {
		rwlock_rdlock(&dir->inode.dir_lock);
		err = read_layer(dir, upper, false, d, &seen);
		if (!err)
			err = read_layer(dir, dir->lower, true, d, &seen);
		rwlock_unlock(&dir->inode.dir_lock);
		d->kind = LIST_MERGED;
		if (!err &&
		    !listing_charge(&d->charged, d->cap * sizeof(*d->entries) + d->names_cap))
			err = -ENOMEM;
	}
	if (err)
		listing_clear(d);
	return err;
}

/* ---- one layer's own listing, translated ---- */

struct translator {
	struct dir_emit emit, *to;
	struct file *file;
	bool lower;
	u64 *pos;
};

/* Is a lower name gone since the listing began? */
static bool hidden_since(struct ovl_inode *dir, const char *name, size_t len)
{
	char copy[NAME_MAX + 1];
	bool hidden;

	if (len > NAME_MAX)
		return false;
	memcpy(copy, name, len);
	copy[len] = '\0';
	rwlock_rdlock(&dir->inode.dir_lock);
	hidden = whiteouts_has(&dir->whiteouts, copy);
	rwlock_unlock(&dir->inode.dir_lock);
	return hidden;
}

static bool translate_emit(struct dir_emit *e, const char *name, size_t len, u64 ino, u8 type,
			   u64 next_pos)
{
	struct translator *t = container_of(e, struct translator, emit);
	struct inode *inode = t->file->inode;

	if (is_dot(name, len))
		ino = len == 1 ? inode->ino : file_parent_ino(t->file);
	else if (t->lower && hidden_since(ovl(inode), name, len))
		return true;
	else if (!t->lower)
		ino = ovl_shown_ino(overlay_of(inode->sb), ino);
	return t->to->emit(t->to, name, len, ino, type, next_pos);
}

static int iterate_merged(struct file *f, struct ovl_dir_file *d, struct dir_emit *e, u64 *pos)
{
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
	while (*pos - 2 < d->count) {
		struct merged_entry *m = &d->entries[*pos - 2];

		if (!e->emit(e, d->names + m->name, m->len, m->ino, m->type, *pos + 1))
			break;
		++*pos;
	}
	return 0;
}

static int dir_iterate(struct file *f, struct dir_emit *e, u64 *pos)
{
	struct ovl_dir_file *d = f->private;
	struct translator t = { .emit = { translate_emit }, .to = e, .file = f };
	struct file *layer;
	int err = *pos == 0 || d->kind == LIST_NONE ? start_listing(d, ovl(f->inode)) : 0;

	if (err)
		return err;
	if (d->kind == LIST_MERGED)
		return iterate_merged(f, d, e, pos);
	layer = d->kind == LIST_UPPER ? d->upper : d->lower;
	t.lower = d->kind == LIST_LOWER;
	return layer->ops->iterate(layer, &t.emit, pos);
}

static int dir_fsync(struct file *f, bool data_only)
{
	return 0;
}

static const struct file_ops ovl_dir_ops = {
	.kind = "overlay directory",
	.release = dir_release,
	.iterate = dir_iterate,
	.fsync = dir_fsync,
};

int ovl_open_dir(struct inode *inode, struct file *f)
{
	struct ovl_dir_file *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	f->private = d;
	f->ops = &ovl_dir_ops;
	return 0;
}
