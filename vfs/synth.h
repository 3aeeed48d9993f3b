/*
 * vfs/synth.h: helper for synthetic files and directories (procfs, sysfs, devfs).
 *
 * A synthetic file's content is produced as text on first read of an open (and
 * again after seeking to 0); a synthetic directory has static children, or
 * finds them by callbacks. Inodes are made on lookup and live while referenced.
 */
#ifndef MINISENTRY_VFS_SYNTH_H
#define MINISENTRY_VFS_SYNTH_H

#include "vfs/file.h"

/* A growing text buffer; printing never fails visibly: out of memory truncates and sets `failed`.
 */
struct textbuf {
	char *data;
	size_t len, cap;
	bool failed;
};
void textbuf_printf(struct textbuf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void textbuf_write(struct textbuf *b, const void *data, size_t len);
void textbuf_free(struct textbuf *b);

struct synth_file_ops {
	/* Produces the whole content for this open. 0 or -errno (returned by read). */
	int (*show)(struct file *f, void *arg, struct textbuf *out);
	/* A write of len bytes (at most 64 KiB, in a sentry buffer). NULL: -EACCES at open. */
	ssize_t (*store)(struct file *f, void *arg, const char *data, size_t len);
};

/* An inode whose data comes from ops; arg is passed to ops and released by put_arg (may be NULL).
 */
int synth_file_new(struct superblock *sb, u32 mode, u32 uid, u32 gid,
		   const struct synth_file_ops *ops, void *arg, void (*put_arg)(void *), u64 ino,
		   struct inode **ret);
/* A symlink whose text (or, with follow, target path) comes from callbacks. */
struct synth_link_ops {
	ssize_t (*text)(void *arg, char *dst, size_t size);
	int (*follow)(void *arg, struct path *ret); /* may be NULL */
};
int synth_link_new(struct superblock *sb, const struct synth_link_ops *ops, void *arg,
		   void (*put_arg)(void *), u64 ino, struct inode **ret);
/* A directory. lookup returns a new inode reference; list emits names (not "." and ".."), with
 * stable positions > 1, starting at *pos. */
struct synth_dir_ops {
	int (*lookup)(struct inode *dir, void *arg, const char *name, struct inode **ret);
	int (*list)(struct inode *dir, void *arg, struct dir_emit *e, u64 *pos);
	int (*permission)(struct inode *dir, void *arg, const struct cred *cred,
			  int mask); /* may be NULL */
};
int synth_dir_new(struct superblock *sb, u32 mode, u32 uid, u32 gid,
		  const struct synth_dir_ops *ops, void *arg, void (*put_arg)(void *), u64 ino,
		  struct inode **ret);
void *synth_arg(struct inode *inode);

#endif
