/*
 * vfs/walk.h: the state of one path walk, for vfs/namei*.c and vfs/open.c.
 *
 *	walk_init(&ws, context, path);
 *	do {
 *		err = walk_to_parent(&ws);	(ws.cur: the directory; ws.last: the name in it)
 *		...				(create, unlink, ... work here)
 *		if (!err)
 *			err = walk_finish(&ws, follow);	(ws.cur: the object)
 *	} while (err == WALK_AGAIN);		(the last name was a symlink: its text goes on)
 *	walk_fini(&ws);
 *
 * Texts still to walk stand on a stack: the path, and the symlinks met in it.
 */
#ifndef MINISENTRY_VFS_WALK_H
#define MINISENTRY_VFS_WALK_H

#include "vfs/path.h"
#include <limits.h>

#define WALK_MAX_LINKS 40
#define WALK_AGAIN 1
#define WALK_DONE 2

enum walk_last { LAST_NORM, LAST_DOT, LAST_DOTDOT, LAST_ROOT };

struct walk {
	const struct walk_context *ctx;
	struct path root; /* borrowed: ctx->root, or the start with RESOLVE_IN_ROOT and
			     RESOLVE_BENEATH */
	struct path cur;  /* holds references */
	int links, depth;
	struct {
		char *text; /* owned, but for the first */
		const char *pos;
	} frame[WALK_MAX_LINKS + 1];
	/* the last component, after walk_to_parent */
	enum walk_last last_kind;
	bool trailing; /* followed by a slash */
	size_t len;
	char name[NAME_MAX + 1];
};

/* -ENOENT for "", -ENAMETOOLONG, -EXDEV. Nothing to finish on failure. */
int walk_init(struct walk *ws, const struct walk_context *ctx, const char *path);
/* The same for a path whose object is there already or not wanted: WALK_DONE with ws->cur on it
 * when the caches knew all of the way (follow: a symlink at its end is followed), else 0. */
int walk_init_all(struct walk *ws, const struct walk_context *ctx, const char *path, bool follow);
/*
 * Goes on from `cur` (borrowed) as far as the dentry cache and the mount tree know the way and no
 * decision is needed, all under one lock, and leaves ws->cur there with references. Stops before
 * the last component, or with to_end after it.
 */
void walk_cached(struct walk *ws, const struct path *cur, bool to_end, bool follow);
void walk_fini(struct walk *ws);
/* Walks all but the last component. ws->cur is a directory that the caller may search. */
int walk_to_parent(struct walk *ws);
/* Resolves the last one: 0, -errno, or WALK_AGAIN when it was a symlink to follow. */
int walk_finish(struct walk *ws, bool follow);
/* Both in a loop; ws->cur is the object. */
int walk_all(struct walk *ws, bool follow);

/* Permission on an object, read-only mounts and superblocks included. */
int path_permission(const struct path *p, const struct cred *cred, int mask);
bool path_read_only(const struct path *p);
/* May cred make a name in this directory / remove target's name from it (sticky bit)? */
int may_create(const struct path *dir, const struct cred *cred);
int may_delete(const struct path *dir, struct dentry *target, const struct cred *cred,
	       bool want_dir);
/* Owner, group and mode of a new object in dir. */
int init_create(struct inode *dir, const struct walk_context *w, u32 mode,
		struct inode_create *ret);
/* Calls vfs_notify_hook if the object or the directory is watched. */
void notify_child(struct inode *dir, const char *name, struct inode *inode, u32 mask, u32 cookie);
/* Makes a file for an already permitted path (vfs/open.c). */
int open_resolved(const struct path *p, u32 flags, const struct cred *cred, bool created,
		  struct file **ret);

#endif
