/* Names: making, linking, renaming, removing and listing them. */
#include "sentry/sys/handlers.h"
#include "sentry/sys/sys_file.h"

#include <limits.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>

#define GETDENTS_BUF_MAX (64UL << 10)

/* Runs a walk operation on a path already in the sentry. */
static int with_walk(struct task *t, int dirfd, const char *path,
		     int (*fn)(const struct walk_context *w, const char *path, void *arg),
		     void *arg)
{
	struct sys_walk w;
	int err = sys_walk_begin(t, dirfd, path, &w);

	if (err < 0)
		return err;
	err = fn(&w.w, path, arg);
	sys_walk_end(&w);
	return err;
}

static int with_guest_path(struct task *t, int dirfd, u64 path,
			   int (*fn)(const struct walk_context *w, const char *path, void *arg),
			   void *arg)
{
	int err = sys_copy_path(t, ua(path), t->scratch_path);

	return err < 0 ? err : with_walk(t, dirfd, t->scratch_path, fn, arg);
}

/* ---- mkdir, mknod ---- */

static int do_mkdir(const struct walk_context *w, const char *path, void *arg)
{
	return vfs_mkdir(w, path, *(u32 *)arg & 01777);
}

s64 sys_mkdir(struct task *t, const u64 a[6])
{
	u32 mode = (u32)a[1];

	return with_guest_path(t, AT_FDCWD, a[0], do_mkdir, &mode);
}

s64 sys_mkdirat(struct task *t, const u64 a[6])
{
	u32 mode = (u32)a[2];

	return with_guest_path(t, (int)a[0], a[1], do_mkdir, &mode);
}

struct mknod_call {
	u32 mode, major, minor;
};

static int do_mknod(const struct walk_context *w, const char *path, void *arg)
{
	struct mknod_call *c = arg;

	return vfs_mknod(w, path, c->mode, c->major, c->minor, NULL);
}

static s64 mknod_at(struct task *t, int dirfd, u64 path, u64 mode, u64 dev)
{
	u32 d = (u32)dev;
	struct mknod_call c = { .mode = (u32)mode & (S_IFMT | 07777),
				.major = (d & 0xfff00) >> 8,
				.minor = (d & 0xff) | ((d >> 12) & 0xfff00) };

	switch (c.mode & S_IFMT) {
	case 0: c.mode |= S_IFREG; break;
	case S_IFREG:
	case S_IFIFO:
	case S_IFSOCK: break;
	case S_IFCHR:
	case S_IFBLK: break;
	case S_IFDIR: return -EPERM;
	default: return -EINVAL;
	}
	return with_guest_path(t, dirfd, path, do_mknod, &c);
}

s64 sys_mknod(struct task *t, const u64 a[6])
{
	return mknod_at(t, AT_FDCWD, a[0], a[1], a[2]);
}

s64 sys_mknodat(struct task *t, const u64 a[6])
{
	return mknod_at(t, (int)a[0], a[1], a[2], a[3]);
}

/* ---- rmdir, unlink ---- */

static int do_rmdir(const struct walk_context *w, const char *path, void *arg)
{
	return vfs_rmdir(w, path);
}

static int do_unlink(const struct walk_context *w, const char *path, void *arg)
{
	return vfs_unlink(w, path);
}

s64 sys_rmdir(struct task *t, const u64 a[6])
{
	return with_guest_path(t, AT_FDCWD, a[0], do_rmdir, NULL);
}

s64 sys_unlink(struct task *t, const u64 a[6])
{
	return with_guest_path(t, AT_FDCWD, a[0], do_unlink, NULL);
}

s64 sys_unlinkat(struct task *t, const u64 a[6])
{
	if ((int)a[2] & ~AT_REMOVEDIR)
		return -EINVAL;
	return with_guest_path(t, (int)a[0], a[1], a[2] & AT_REMOVEDIR ? do_rmdir : do_unlink,
			       NULL);
}

/* ---- links ---- */

static int do_link(const struct walk_context *w, const char *path, void *arg)
{
	return vfs_link(arg, w, path);
}

static s64 link_at(struct task *t, int old_fd, u64 old, int new_fd, u64 new, int flags)
{
	int at = (flags & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW) | (flags & AT_EMPTY_PATH);
	struct path p;
	int err;

	if (flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	if ((flags & AT_EMPTY_PATH) && !cred_capable(t->cred, CAP_DAC_READ_SEARCH)) {
		bool empty;

		err = sys_means_fd(t, ua(old), AT_EMPTY_PATH, &empty);
		if (err < 0 || empty)
			return err < 0 ? err : -ENOENT;
	}
	err = sys_path_at(t, old_fd, ua(old), at, &p);
	if (err < 0)
		return err;
	err = with_guest_path(t, new_fd, new, do_link, &p);
	path_put(&p);
	return err;
}

s64 sys_link(struct task *t, const u64 a[6])
{
	return link_at(t, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
}

s64 sys_linkat(struct task *t, const u64 a[6])
{
	return link_at(t, (int)a[0], a[1], (int)a[2], a[3], (int)a[4]);
}

static int do_symlink(const struct walk_context *w, const char *path, void *arg)
{
	return vfs_symlink(w, arg, path);
}

static s64 symlink_at(struct task *t, u64 target, int dirfd, u64 path)
{
	char text[PATH_MAX];
	int err = sys_copy_path(t, ua(target), text);

	if (err < 0)
		return err;
	return text[0] ? with_guest_path(t, dirfd, path, do_symlink, text) : -ENOENT;
}

s64 sys_symlink(struct task *t, const u64 a[6])
{
	return symlink_at(t, a[0], AT_FDCWD, a[1]);
}

s64 sys_symlinkat(struct task *t, const u64 a[6])
{
	return symlink_at(t, a[0], (int)a[1], a[2]);
}

/* ---- rename ---- */

static s64 rename_at(struct task *t, int old_fd, u64 old, int new_fd, u64 new, u32 flags)
{
	char from[PATH_MAX];
	struct sys_walk w1, w2;
	int err;

	if (flags & ~(u32)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if ((flags & RENAME_EXCHANGE) && (flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)))
		return -EINVAL;
	if ((flags & RENAME_WHITEOUT) && !cred_capable(t->cred, CAP_MKNOD))
		return -EPERM;
	err = sys_copy_path(t, ua(old), from);
	if (!err)
		err = sys_copy_path(t, ua(new), t->scratch_path);
	if (!err)
		err = sys_walk_begin(t, old_fd, from, &w1);
	if (err < 0)
		return err;
	err = sys_walk_begin(t, new_fd, t->scratch_path, &w2);
	if (!err) {
		err = vfs_rename(&w1.w, from, &w2.w, t->scratch_path, flags);
		sys_walk_end(&w2);
	}
	sys_walk_end(&w1);
	return err;
}

s64 sys_rename(struct task *t, const u64 a[6])
{
	return rename_at(t, AT_FDCWD, a[0], AT_FDCWD, a[1], 0);
}

s64 sys_renameat(struct task *t, const u64 a[6])
{
	return rename_at(t, (int)a[0], a[1], (int)a[2], a[3], 0);
}

s64 sys_renameat2(struct task *t, const u64 a[6])
{
	return rename_at(t, (int)a[0], a[1], (int)a[2], a[3], (u32)a[4]);
}

/* ---- getdents ---- */

struct linux_dirent64_head {
	u64 ino;
	s64 off;
	u16 reclen;
	u8 type;
} __attribute__((packed));

struct linux_dirent_head {
	u64 ino;
	u64 off;
	u16 reclen;
} __attribute__((packed));

struct listing {
	struct dir_emit emit;
	char *buf;
	size_t size, used;
	bool old_layout; /* getdents: the type is the record's last byte */
	bool too_small;	 /* not even one entry fitted */
};

static bool emit_entry(struct dir_emit *e, const char *name, size_t name_len, u64 ino, u8 type,
		       u64 next_pos)
{
	struct listing *l = container_of(e, struct listing, emit);
	size_t head = l->old_layout ? sizeof(struct linux_dirent_head)
				    : sizeof(struct linux_dirent64_head);
	size_t len = (head + name_len + 1 + l->old_layout + 7) & ~7UL;
	char *p = l->buf + l->used;

	if (len > l->size - l->used) {
		l->too_small = !l->used;
		return false;
	}
	memset(p, 0, len);
	if (l->old_layout) {
		*(struct linux_dirent_head *)p =
			(struct linux_dirent_head){ ino, next_pos, (u16)len };
		p[len - 1] = (char)type;
	} else {
		*(struct linux_dirent64_head *)p =
			(struct linux_dirent64_head){ ino, (s64)next_pos, (u16)len, type };
	}
	memcpy(p + head, name, name_len);
	l->used += len;
	return true;
}

static s64 list_directory(struct task *t, const u64 a[6], bool old_layout)
{
	struct fd_ref ref = fd_ref(t->fds, (int)a[0]);
	struct file *f = ref.file;
	struct listing l = { .emit.emit = emit_entry,
			     .size = MIN((u32)a[2], GETDENTS_BUF_MAX),
			     .old_layout = old_layout };
	u64 before;
	s64 r;

	if (!f)
		return -EBADF;
	l.buf = malloc(MAX(l.size, 1u));
	if (!l.buf) {
		fd_ref_put(ref);
		return -ENOMEM;
	}
	mutex_lock(&f->pos_lock);
	before = f->pos;
	mutex_unlock(&f->pos_lock);
	r = vfs_iterate(f, &l.emit);
	if (l.used)
		r = (s64)l.used;
	else if (!r && l.too_small)
		r = -EINVAL;
	if (r > 0 && copy_out(t, ua(a[1]), l.buf, l.used) < 0) {
		/* What the guest did not get, it can list again. */
		mutex_lock(&f->pos_lock);
		f->pos = before;
		mutex_unlock(&f->pos_lock);
		r = -EFAULT;
	}
	free(l.buf);
	fd_ref_put(ref);
	return r;
}

s64 sys_getdents(struct task *t, const u64 a[6])
{
	return list_directory(t, a, true);
}

s64 sys_getdents64(struct task *t, const u64 a[6])
{
	return list_directory(t, a, false);
}
