#include "base/log.h"
#include "vfs/dentry.h"
#include "vfs/file.h"
#include "vfs/mount.h"
#include "vfs/walk.h"
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

#define RESOLVE_SCOPED (RESOLVE_BENEATH | RESOLVE_IN_ROOT)

/* Everything but the references on ws->cur. */
static int prepare(struct walk *ws, const struct walk_context *ctx, const char *path)
{
	u64 resolve = ctx->resolve;

	if (!*path)
		return -ENOENT;
	if (strnlen(path, PATH_MAX) >= PATH_MAX)
		return -ENAMETOOLONG;
	ws->ctx = ctx;
	ws->links = 0;
	ws->depth = 1;
	ws->frame[0].text = NULL;
	ws->frame[0].pos = path;
	ws->root = resolve & RESOLVE_SCOPED ? ctx->cwd : ctx->root;
	ws->len = 0;
	if (*path == '/' && (resolve & RESOLVE_BENEATH))
		return -EXDEV;
	ws->cur = *path == '/' ? ws->root : ctx->cwd;
	return ws->cur.dentry ? 0 : -ENOTDIR;
}

int walk_init(struct walk *ws, const struct walk_context *ctx, const char *path)
{
	int err = prepare(ws, ctx, path);
	struct path start;

	if (err)
		return err;
	start = ws->cur;
	walk_cached(ws, &start, false, false);
	return 0;
}

int walk_init_all(struct walk *ws, const struct walk_context *ctx, const char *path, bool follow)
{
	int err = prepare(ws, ctx, path);
	struct path start;

	if (err)
		return err;
	start = ws->cur;
	walk_cached(ws, &start, true, follow);
	return *ws->frame[0].pos ? 0 : WALK_DONE;
}

void walk_fini(struct walk *ws)
{
	path_put(&ws->cur);
	while (ws->depth > 0)
		free(ws->frame[--ws->depth].text);
}

static void move_to(struct walk *ws, const struct path *p)
{
	struct path old = ws->cur;

	ws->cur = *p;
	path_put(&old);
}

/* ---- components ---- */

/* Skips slashes of the texts not yet walked; true when nothing but slashes is left. */
static bool nothing_left(const struct walk *ws, bool *ret_slash)
{
	for (int i = ws->depth - 1; i >= 0; i--)
		for (const char *p = ws->frame[i].pos; *p; p++) {
			if (*p != '/')
				return false;
			*ret_slash = true;
		}
	return true;
}

/* The next component into ws->name. 0; 1 when there is none left. */
static int next_component(struct walk *ws, bool *ret_last)
{
	const char *p, *end;
	size_t len;

	for (;;) {
		p = ws->frame[ws->depth - 1].pos;
		while (*p == '/')
			p++;
		if (*p)
			break;
		ws->frame[ws->depth - 1].pos = p;
		if (ws->depth == 1)
			return 1;
		free(ws->frame[--ws->depth].text);
	}
	end = strchrnul(p, '/');
	len = (size_t)(end - p);
	ws->frame[ws->depth - 1].pos = end;
	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(ws->name, p, len);
	ws->name[len] = '\0';
	ws->len = len;
	ws->trailing = false;
	*ret_last = nothing_left(ws, &ws->trailing);
	if (ws->name[0] != '.' || len > 2)
		ws->last_kind = LAST_NORM;
	else if (len == 1)
		ws->last_kind = LAST_DOT;
	else
		ws->last_kind = ws->name[1] == '.' ? LAST_DOTDOT : LAST_NORM;
	return 0;
}

/* ---- steps ---- */

static int push_text(struct walk *ws, char *text)
{
	struct path p;

	if (*text == '/') {
		if (ws->ctx->resolve & RESOLVE_BENEATH)
			return -EXDEV;
		if ((ws->ctx->resolve & RESOLVE_NO_XDEV) && ws->root.mnt != ws->cur.mnt)
			return -EXDEV;
		p = ws->root;
		path_get(&p);
		move_to(ws, &p);
	}
	ws->frame[ws->depth].text = text;
	ws->frame[ws->depth].pos = text;
	ws->depth++;
	return 0;
}

static int follow_magic(struct walk *ws, struct inode *inode)
{
	struct path p = { 0 };
	int err;

	if (ws->ctx->resolve & RESOLVE_NO_MAGICLINKS)
		return -ELOOP;
	if (ws->ctx->resolve & RESOLVE_SCOPED)
		return -EXDEV;
	err = inode->ops->follow(inode, &p);
	if (err)
		return err;
	if ((ws->ctx->resolve & RESOLVE_NO_XDEV) && p.mnt != ws->cur.mnt) {
		path_put(&p);
		return -EXDEV;
	}
	move_to(ws, &p);
	return 0;
}

/* Follows a symlink in ws->cur: WALK_AGAIN with its text pushed, or 0 when a magic link has jumped.
 */
static int follow_link(struct walk *ws, struct inode *inode)
{
	ssize_t n;
	char *text;
	int err;

	if (ws->ctx->resolve & RESOLVE_NO_SYMLINKS)
		return -ELOOP;
	if (++ws->links > WALK_MAX_LINKS)
		return -ELOOP;
	if (inode->ops->follow) {
		err = follow_magic(ws, inode);
		if (err != -ENOSYS)
			return err;
	}
	if (!inode->ops->readlink)
		return -EINVAL;
	text = malloc(PATH_MAX);
	if (!text)
		return -ENOMEM;
	n = inode->ops->readlink(inode, text, PATH_MAX);
	if (n >= PATH_MAX)
		err = -ENAMETOOLONG;
	else if (n <= 0)
		err = n < 0 ? (int)n : -ENOENT;
	else {
		text[n] = '\0';
		err = push_text(ws, text);
	}
	if (err)
		free(text);
	return err ? err : WALK_AGAIN;
}

static int step_up(struct walk *ws)
{
	struct path p = ws->cur;
	bool scoped = ws->ctx->resolve & RESOLVE_BENEATH;

	if (path_equal(&p, &ws->root))
		return scoped ? -EXDEV : 0;
	path_get(&p);
	if (path_cross_up(&p, &ws->root) && (ws->ctx->resolve & RESOLVE_NO_XDEV)) {
		path_put(&p);
		return -EXDEV;
	}
	if (!path_equal(&p, &ws->root) && !(p.mnt && p.dentry == p.mnt->root)) {
		struct dentry *parent = dentry_parent(p.dentry);

		dentry_put(p.dentry);
		p.dentry = parent;
	}
	if (path_cross_down(&p) && (ws->ctx->resolve & RESOLVE_NO_XDEV)) {
		path_put(&p);
		return -EXDEV;
	}
	move_to(ws, &p);
	return 0;
}

/* One component from ws->cur, a searchable directory. */
static int step(struct walk *ws, bool follow)
{
	struct path p;
	int err;

	if (ws->last_kind == LAST_DOT || ws->last_kind == LAST_ROOT)
		return 0;
	if (ws->last_kind == LAST_DOTDOT)
		return step_up(ws);
	err = dentry_lookup(ws->cur.dentry, ws->name, ws->len, &p.dentry);
	if (err)
		return err;
	if (S_ISLNK(p.dentry->inode->type) && follow && !atomic_load(&p.dentry->mounted)) {
		err = follow_link(ws, p.dentry->inode);
		dentry_put(p.dentry);
		return err;
	}
	if (!atomic_load(&p.dentry->mounted)) {
		/* The common case stays on the mount. */
		struct dentry *from = ws->cur.dentry;

		ws->cur.dentry = p.dentry;
		dentry_put(from);
		return 0;
	}
	p.mnt = ws->cur.mnt;
	if (p.mnt)
		mount_get(p.mnt);
	if (path_cross_down(&p) && (ws->ctx->resolve & RESOLVE_NO_XDEV)) {
		path_put(&p);
		return -EXDEV;
	}
	move_to(ws, &p);
	return 0;
}

static int may_search(struct walk *ws)
{
	struct inode *inode = ws->cur.dentry->inode;

	if (!inode_is_dir(inode))
		return -ENOTDIR;
	return vfs_permission(inode, ws->ctx->cred, MAY_EXEC);
}

int walk_to_parent(struct walk *ws)
{
	for (;;) {
		bool last = false;
		int err = next_component(ws, &last);

		if (err < 0) {
			/* The directory's permissions come before the name's length. */
			int search = may_search(ws);

			return search ? search : err;
		}
		if (err > 0) {
			ws->last_kind = LAST_ROOT;
			ws->len = 0;
			ws->name[0] = '\0';
			ws->trailing = true;
			return 0;
		}
		err = may_search(ws);
		if (err || last)
			return err;
		err = step(ws, true);
		if (err < 0)
			return err;
		if (err == WALK_AGAIN) {
			struct path from = ws->cur;

			walk_cached(ws, &from, false, false);
			path_put(&from);
		}
	}
}

int walk_finish(struct walk *ws, bool follow)
{
	bool trailing = ws->trailing;
	int err = step(ws, follow || trailing);

	if (!err && trailing && !inode_is_dir(ws->cur.dentry->inode))
		return -ENOTDIR;
	return err;
}

int walk_all(struct walk *ws, bool follow)
{
	int err;

	do {
		err = walk_to_parent(ws);
		if (!err)
			err = walk_finish(ws, follow);
	} while (err == WALK_AGAIN);
	return err;
}

int vfs_walk(const struct walk_context *w, const char *path, u32 flags, struct path *ret)
{
	struct walk ws;
	int err;

	if (!*path && (flags & WALK_EMPTY)) {
		if (!w->cwd.dentry)
			return -ENOENT;
		if ((flags & WALK_DIRECTORY) && !inode_is_dir(w->cwd.dentry->inode))
			return -ENOTDIR;
		*ret = w->cwd;
		path_get(ret);
		return 0;
	}
	err = walk_init_all(&ws, w, path, flags & WALK_FOLLOW);
	if (err < 0)
		return err;
	err = err == WALK_DONE ? 0 : walk_all(&ws, flags & WALK_FOLLOW);
	if (!err && (flags & WALK_DIRECTORY) && !inode_is_dir(ws.cur.dentry->inode))
		err = -ENOTDIR;
	if (!err) {
		*ret = ws.cur;
		ws.cur = (struct path){ 0 };
	}
	walk_fini(&ws);
	return err;
}

/* ---- permission ---- */

bool path_read_only(const struct path *p)
{
	if (p->dentry->sb->flags & SB_READ_ONLY)
		return true;
	return p->mnt && (mount_flags(p->mnt) & MS_RDONLY);
}

int path_permission(const struct path *p, const struct cred *cred, int mask)
{
	struct inode *inode = p->dentry->inode;
	int err = vfs_permission(inode, cred, mask);

	if (err || !(mask & MAY_WRITE))
		return err;
	if (S_ISREG(inode->type) || S_ISDIR(inode->type) || S_ISLNK(inode->type))
		return path_read_only(p) ? -EROFS : 0;
	return 0;
}

int may_create(const struct path *dir, const struct cred *cred)
{
	if (dentry_deleted(dir->dentry))
		return -ENOENT;
	return vfs_permission(dir->dentry->inode, cred, MAY_WRITE | MAY_EXEC);
}

/* In a sticky directory only the owner of the file or of the directory may remove a name. */
static bool sticky_forbids(struct inode *dir, struct inode *target, const struct cred *cred)
{
	struct kstat d, t;

	if (!(__atomic_load_n(&dir->mode, __ATOMIC_RELAXED) & S_ISVTX))
		return false;
	if (cred_capable(cred, CAP_FOWNER))
		return false;
	if (inode_getattr(dir, &d) || inode_getattr(target, &t))
		return true;
	return t.uid != cred->fsuid && d.uid != cred->fsuid;
}

int may_delete(const struct path *dir, struct dentry *target, const struct cred *cred,
	       bool want_dir)
{
	int err = vfs_permission(dir->dentry->inode, cred, MAY_WRITE | MAY_EXEC);

	if (err)
		return err;
	if (sticky_forbids(dir->dentry->inode, target->inode, cred))
		return -EPERM;
	if (want_dir && !inode_is_dir(target->inode))
		return -ENOTDIR;
	if (!want_dir && inode_is_dir(target->inode))
		return -EISDIR;
	return atomic_load(&target->mounted) > 0 ? -EBUSY : 0;
}

int init_create(struct inode *dir, const struct walk_context *w, u32 mode, struct inode_create *ret)
{
	struct kstat st;
	int err = inode_getattr(dir, &st);

	if (err)
		return err;
	*ret = (struct inode_create){ .mode = mode, .uid = w->cred->fsuid, .gid = w->cred->fsgid };
	if (!S_ISLNK(mode))
		ret->mode &= ~(w->umask & 0777);
	if (!(st.mode & S_ISGID))
		return 0;
	ret->gid = st.gid;
	if (S_ISDIR(mode))
		ret->mode |= S_ISGID;
	else if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
		 !cred_in_group(w->cred, st.gid) && !cred_capable(w->cred, CAP_FSETID))
		ret->mode &= ~S_ISGID;
	return 0;
}

/* ---- inotify ---- */

void notify_child(struct inode *dir, const char *name, struct inode *inode, u32 mask, u32 cookie)
{
	if (!vfs_notify_hook)
		return;
	if (!atomic_load(&dir->watches) && !(inode && atomic_load(&inode->watches)))
		return;
	vfs_notify_hook(inode, dir, name, mask, cookie);
}

void vfs_notify_path(const struct path *p, u32 mask)
{
	struct inode *inode = p->dentry->inode, *dir = NULL;
	char name[NAME_MAX + 1] = "";

	if (!vfs_notify_hook)
		return;
	dcache_lock();
	if (p->dentry->parent && atomic_load(&p->dentry->parent->inode->watches) &&
	    p->dentry->name_len <= NAME_MAX) {
		dir = inode_get(p->dentry->parent->inode);
		memcpy(name, p->dentry->name, p->dentry->name_len + 1);
	}
	dcache_unlock();
	if (dir || atomic_load(&inode->watches)) {
		if (inode_is_dir(inode))
			mask |= IN_ISDIR;
		if (dentry_deleted(p->dentry))
			mask |= IN_EXCL_UNLINK;
		vfs_notify_hook(inode, dir, name, mask, 0);
	}
	inode_put(dir);
}
