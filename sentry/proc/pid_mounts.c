/* /proc/PID/{mounts,mountinfo,mountstats} and /proc/PID/ns. */
#include "sentry/proc/internal.h"
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

#define BLANKS " \t\n\\"

/* Namespace inode numbers of the first namespaces, as in Linux (include/linux/proc_ns.h). */
enum {
	NS_IPC = 0xefffffff,
	NS_UTS = 0xeffffffe,
	NS_USER = 0xeffffffd,
	NS_PID = 0xeffffffc,
	NS_CGROUP = 0xeffffffb,
	NS_TIME = 0xeffffffa,
	NS_NET = 0xf0000000 - 8,
	NS_MNT = 0xf0000000
};

static void put_options(struct textbuf *out, u32 flags)
{
	textbuf_printf(out, "%s%s%s%s%s%s%s", flags & MS_RDONLY ? "ro" : "rw",
		       flags & MS_NOSUID ? ",nosuid" : "", flags & MS_NODEV ? ",nodev" : "",
		       flags & MS_NOEXEC ? ",noexec" : "", flags & MS_NOATIME ? ",noatime" : "",
		       flags & MS_NODIRATIME ? ",nodiratime" : "",
		       flags & (MS_NOATIME | MS_STRICTATIME) ? "" : ",relatime");
}

static int put_mount(const struct mount_info *m, void *arg)
{
	struct textbuf *out = arg;

	proc_put_escaped(out, m->source ? m->source : "none", BLANKS "#");
	textbuf_write(out, " ", 1);
	proc_put_escaped(out, m->point, BLANKS);
	textbuf_printf(out, " %s ", m->type);
	put_options(out, m->flags);
	textbuf_printf(out, "%s 0 0\n", m->options);
	return 0;
}

static int put_mountinfo(const struct mount_info *m, void *arg)
{
	struct textbuf *out = arg;

	textbuf_printf(out, "%d %d %u:%u ", m->id, m->parent_id, m->dev_major, m->dev_minor);
	proc_put_escaped(out, m->root, BLANKS);
	textbuf_write(out, " ", 1);
	proc_put_escaped(out, m->point, BLANKS);
	textbuf_write(out, " ", 1);
	put_options(out, m->flags);
	textbuf_printf(out, " - %s ", m->type);
	proc_put_escaped(out, m->source ? m->source : "none", BLANKS "#");
	textbuf_printf(out, " %s%s\n", m->flags & MS_RDONLY ? "ro" : "rw", m->options);
	return 0;
}

static int put_mountstat(const struct mount_info *m, void *arg)
{
	struct textbuf *out = arg;

	textbuf_printf(out, "device ");
	proc_put_escaped(out, m->source ? m->source : "none", BLANKS "#");
	textbuf_printf(out, " mounted on ");
	proc_put_escaped(out, m->point, BLANKS);
	textbuf_printf(out, " with fstype %s\n", m->type);
	return 0;
}

static int list_mounts(const struct proc_ctx *c, int (*fn)(const struct mount_info *, void *),
		       struct textbuf *out)
{
	struct task *t = proc_task(c);
	struct nsproxy *ns = t ? proc_task_ns(t) : NULL;
	struct fs_context *fs = t ? task_get_fs(t) : NULL;
	struct path root = { 0 };
	int err = -EINVAL; /* as Linux for a task without namespaces */

	task_put(t);
	if (fs) {
		mutex_lock(&fs->lock);
		root = fs->root;
		path_get(&root);
		mutex_unlock(&fs->lock);
	}
	if (ns && fs)
		err = mount_ns_list(ns->mnt, &root, fn, out);
	path_put(&root);
	fs_context_put(fs);
	if (ns)
		nsproxy_put(ns);
	return t ? err : -ESRCH;
}

int proc_show_mounts(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	return list_mounts(c, put_mount, out);
}

int proc_show_mountinfo(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	return list_mounts(c, put_mountinfo, out);
}

int proc_show_mountstats(const struct proc_ctx *c, struct file *f, struct textbuf *out)
{
	return list_mounts(c, put_mountstat, out);
}

/* ---- ns ---- */

/*
 * Namespaces that can be more than one (mnt, uts) are told apart by a keyed hash of the object; all
 * others are the first ones.
 */
static u32 hashed(const struct proc_ctx *c, const void *object)
{
	u64 key, h;

	memcpy(&key, c->kernel->random_bytes, sizeof(key));
	h = ((u64)(uintptr_t)object ^ key) * 0xd6e8feb86659fd93ULL;
	h = (h ^ h >> 32 ^ key) * 0xd6e8feb86659fd93ULL;
	return 0xf0000100U + (u32)(h >> 40);
}

static bool ns_number(const struct proc_ctx *c, u32 *ret)
{
	struct task *t = proc_task(c);
	struct nsproxy *ns = t ? proc_task_ns(t) : NULL;

	task_put(t);
	if (!ns)
		return false;
	*ret = c->entry->index;
	if (*ret == NS_MNT)
		*ret = hashed(c, ns->mnt);
	else if (*ret == NS_UTS)
		*ret = hashed(c, ns->uts);
	nsproxy_put(ns);
	return true;
}

static ssize_t ns_link(const struct proc_ctx *c, char *dst, size_t size)
{
	const char *name = c->entry->name, *children = strstr(name, "_for_children");
	int len = children ? (int)(children - name) : (int)strlen(name);
	u32 number;

	if (current_task && !proc_may_access(c->tg, current_task->cred))
		return -EACCES;
	if (!ns_number(c, &number))
		return -ENOENT;
	len = snprintf(dst, size, "%.*s:[%u]", len, name, number);
	return (size_t)len < size ? len : -ENAMETOOLONG;
}

static int ns_follow(const struct proc_ctx *c, struct path *ret)
{
	static const struct proc_entry ns_file = PROC_TEXT("", "");
	struct inode *inode;
	u32 number;
	int err;

	if (current_task && !proc_may_access(c->tg, current_task->cred))
		return -EACCES;
	if (!ns_number(c, &number))
		return -ENOENT;
	err = proc_inode_new(c, &ns_file, &inode);
	if (err)
		return err;
	inode->ino = number;
	*ret = (struct path){ 0 };
	err = dentry_new_root(inode, &ret->dentry);
	inode_put(inode);
	return err;
}

#define NS(name_, index_)                                                                          \
	{                                                                                          \
		.name = (name_), .mode = S_IFLNK | 0777, .link = ns_link, .follow = ns_follow,     \
		.index = (index_)                                                                  \
	}

const struct proc_entry proc_ns_entries[] = {
	NS("cgroup", NS_CGROUP),
	NS("ipc", NS_IPC),
	NS("mnt", NS_MNT),
	NS("net", NS_NET),
	NS("pid", NS_PID),
	NS("pid_for_children", NS_PID),
	NS("time", NS_TIME),
	NS("time_for_children", NS_TIME),
	NS("user", NS_USER),
	NS("uts", NS_UTS),
	{ 0 },
};
