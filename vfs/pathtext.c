#include "vfs/dentry.h"
#include "vfs/mount.h"
#include <string.h>

/* A text built from its end towards its front. */
struct backwards {
	char *start, *p;
	bool overflow;
};

static void prepend(struct backwards *b, const char *s, size_t n)
{
	if ((size_t)(b->p - b->start) < n) {
		b->overflow = true;
		return;
	}
	b->p -= n;
	memcpy(b->p, s, n);
}

/* Walks up from p to root; true when root was met. Mount tree and dentry cache locked. */
static bool climb(struct path p, const struct path *root, struct backwards *b)
{
	for (;;) {
		/* What does not fit need not be walked to its end: trees may be very deep. */
		if (b->overflow || (root && path_equal(&p, root)))
			return true;
		if (p.mnt && p.dentry == p.mnt->root) {
			if (!p.mnt->parent)
				/* The namespace's own root counts as everybody's when no other is
				 * asked for. */
				return !root || (p.mnt->ns && !root->mnt);
			p.dentry = p.mnt->mountpoint;
			p.mnt = p.mnt->parent;
			continue;
		}
		if (!p.dentry->parent) {
			if (p.dentry->name_len)
				prepend(b, p.dentry->name, p.dentry->name_len);
			return !p.mnt;
		}
		prepend(b, p.dentry->name, p.dentry->name_len);
		prepend(b, "/", 1);
		p.dentry = p.dentry->parent;
	}
}

ssize_t path_text(const struct path *p, const struct path *root, char *dst, size_t size)
{
	static const char deleted[] = " (deleted)", unreachable[] = "(unreachable)";
	struct backwards b;
	bool reached;
	size_t len, suffix;

	if (size == 0)
		return -ERANGE;
	b = (struct backwards){ .start = dst, .p = dst + size };
	prepend(&b, "", 1);
	mount_lock_all();
	dcache_lock();
	suffix = 1;
	if (p->dentry->deleted) {
		prepend(&b, deleted, sizeof(deleted) - 1);
		suffix += sizeof(deleted) - 1;
	}
	reached = climb(*p, root, &b);
	dcache_unlock();
	mount_unlock_all();
	if (b.overflow)
		return -ERANGE;
	if (b.p == dst + size - suffix)
		prepend(&b, "/", 1);
	if (!reached)
		prepend(&b, unreachable, sizeof(unreachable) - 1);
	if (b.overflow)
		return -ERANGE;
	len = (size_t)(dst + size - b.p);
	memmove(dst, b.p, len);
	return (ssize_t)len - 1;
}

bool path_deleted(const struct path *p)
{
	return dentry_deleted(p->dentry);
}
