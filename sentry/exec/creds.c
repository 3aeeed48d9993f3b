/* Credentials of a new program: set-id bits, file capabilities, root's privileges (man 7
 * capabilities, "Transformation of capabilities during execve()"). */
#include "sentry/exec/exec_impl.h"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/mount.h>

#define CAPS_ALL ((1ULL << (CAP_LAST_CAP + 1)) - 1)
/* Linux's PER_CLEAR_ON_SETID: READ_IMPLIES_EXEC, ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT,
 * MMAP_PAGE_ZERO. */
#define PER_CLEARED_ON_SETID (0x0400000 | 0x0040000 | 0x0200000 | 0x0100000)

struct file_caps {
	bool present, effective;
	u64 permitted, inheritable;
};

/* security.capability of the file, revisions 2 and 3 (of the initial namespace's root). */
static void read_file_caps(struct file *f, struct file_caps *ret)
{
	struct vfs_ns_cap_data data;
	ssize_t n;

	*ret = (struct file_caps){ 0 };
	if (f->inode->ops->getxattr == NULL)
		return;
	n = f->inode->ops->getxattr(f->inode, "security.capability", &data, sizeof(data));
	if (n == XATTR_CAPS_SZ_2) {
		if ((data.magic_etc & VFS_CAP_REVISION_MASK) != VFS_CAP_REVISION_2)
			return;
	} else if (n != XATTR_CAPS_SZ_3 ||
		   (data.magic_etc & VFS_CAP_REVISION_MASK) != VFS_CAP_REVISION_3 ||
		   data.rootid != 0) {
		return;
	}
	ret->present = true;
	ret->effective = data.magic_etc & VFS_CAP_FLAGS_EFFECTIVE;
	ret->permitted = (data.data[0].permitted | (u64)data.data[1].permitted << 32) & CAPS_ALL;
	ret->inheritable =
		(data.data[0].inheritable | (u64)data.data[1].inheritable << 32) & CAPS_ALL;
}

/* euid and egid from the mode bits. */
static int apply_set_id(const struct exec_request *req, struct file *f, struct cred *c,
			u32 *personality)
{
	struct kstat st;
	int r;

	if (req->no_new_privs || (f->path.mnt && (mount_flags(f->path.mnt) & MS_NOSUID)))
		return 0;
	r = vfs_getattr(&f->path, &st);
	if (r < 0)
		return r;
	if (st.mode & S_ISUID) {
		c->euid = st.uid;
		*personality &= ~(u32)PER_CLEARED_ON_SETID;
	}
	if ((st.mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP)) {
		c->egid = st.gid;
		*personality &= ~(u32)PER_CLEARED_ON_SETID;
	}
	return 0;
}

/* The permitted set before ambient capabilities; *ret_effective: raise it all. */
static int apply_caps(const struct cred *old, struct cred *c, const struct file_caps *fc,
		      bool *ret_effective)
{
	bool effective = false;

	c->cap_permitted = 0;
	if (fc->present) {
		c->cap_permitted =
			(c->cap_bounding & fc->permitted) | (c->cap_inheritable & fc->inheritable);
		effective = fc->effective;
		/* A program that believes it has its capabilities must not run without. */
		if (effective && (fc->permitted & ~c->cap_permitted))
			return -EPERM;
	}
	if (!(c->securebits & SECBIT_NOROOT) && (c->euid == 0 || c->uid == 0) &&
	    !(fc->present && old->uid != 0 && c->euid == 0)) {
		c->cap_permitted = c->cap_bounding | c->cap_inheritable;
		if (c->euid == 0)
			effective = true;
	}
	*ret_effective = effective;
	return 0;
}

int exec_creds(const struct exec_request *req, struct file *file, u32 *personality,
	       const struct cred **ret, bool *ret_secure)
{
	const struct cred *old = req->cred;
	struct cred *c = cred_dup(old);
	bool effective = false, set_id, gained;
	struct file_caps fc = { 0 };
	int r;

	if (c == NULL)
		return -ENOMEM;
	r = apply_set_id(req, file, c, personality);
	/* For root they would change nothing. */
	if (r == 0 && c->euid != 0 && !req->no_new_privs &&
	    !(file->path.mnt && (mount_flags(file->path.mnt) & MS_NOSUID)))
		read_file_caps(file, &fc);
	if (r == 0)
		r = apply_caps(old, c, &fc, &effective);
	if (r < 0) {
		cred_put(c);
		return r;
	}
	set_id = c->euid != old->uid || c->egid != old->gid;
	gained = c->cap_permitted & ~old->cap_permitted;
	if ((set_id || gained) && (req->traced || req->no_new_privs)) {
		if (req->no_new_privs || !cred_capable(old, CAP_SETUID)) {
			c->euid = c->uid;
			c->egid = c->gid;
		}
		c->cap_permitted &= old->cap_permitted;
	}
	c->suid = c->fsuid = c->euid;
	c->sgid = c->fsgid = c->egid;
	if (fc.present || set_id)
		c->cap_ambient = 0;
	c->cap_permitted |= c->cap_ambient;
	c->cap_effective = effective ? c->cap_permitted : c->cap_ambient;
	c->securebits &= ~(u32)SECBIT_KEEP_CAPS;
	*ret_secure =
		set_id || (old->uid != 0 && (effective || (c->cap_permitted & ~c->cap_ambient)));
	*ret = c;
	return 0;
}
