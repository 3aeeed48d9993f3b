/* What a task sees of the file system and of its host: fs_context, namespaces. */
#include "sentry/task/internal.h"

#include <linux/sched.h>
#include <stdio.h>
#include <stdlib.h>

struct fs_context *fs_context_new(const struct path *root, const struct path *cwd, u32 umask)
{
	struct fs_context *fs = calloc(1, sizeof(*fs));

	if (!fs)
		return NULL;
	refs_init(&fs->refs, "fs_context");
	mutex_init(&fs->lock, RANK_FS_CONTEXT, "fs_context");
	fs->root = *root;
	fs->cwd = *cwd;
	path_get(&fs->root);
	path_get(&fs->cwd);
	fs->umask = umask;
	return fs;
}

struct fs_context *fs_context_dup(struct fs_context *fs)
{
	MUTEX_GUARD(&fs->lock);

	return fs_context_new(&fs->root, &fs->cwd, fs->umask);
}

struct fs_context *fs_context_get(struct fs_context *fs)
{
	refs_get(&fs->refs);
	return fs;
}

void fs_context_put(struct fs_context *fs)
{
	if (!fs || !refs_put(&fs->refs))
		return;
	path_put(&fs->root);
	path_put(&fs->cwd);
	mutex_destroy(&fs->lock);
	free(fs);
}

struct uts_ns *uts_ns_new(const char *nodename, const char *domainname)
{
	struct uts_ns *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	refs_init(&u->refs, "uts_ns");
	mutex_init(&u->lock, RANK_LEAF, "uts_ns");
	snprintf(u->nodename, sizeof(u->nodename), "%s", nodename);
	snprintf(u->domainname, sizeof(u->domainname), "%s", domainname);
	return u;
}

struct uts_ns *uts_ns_get(struct uts_ns *u)
{
	refs_get(&u->refs);
	return u;
}

void uts_ns_put(struct uts_ns *u)
{
	if (!u || !refs_put(&u->refs))
		return;
	mutex_destroy(&u->lock);
	free(u);
}

struct nsproxy *nsproxy_new(struct mount_ns *mnt, struct uts_ns *uts)
{
	struct nsproxy *ns = calloc(1, sizeof(*ns));

	if (!ns) {
		mount_ns_put(mnt);
		uts_ns_put(uts);
		return NULL;
	}
	refs_init(&ns->refs, "nsproxy");
	ns->mnt = mnt;
	ns->uts = uts;
	return ns;
}

struct nsproxy *nsproxy_get(struct nsproxy *ns)
{
	refs_get(&ns->refs);
	return ns;
}

void nsproxy_put(struct nsproxy *ns)
{
	if (!ns || !refs_put(&ns->refs))
		return;
	mount_ns_put(ns->mnt);
	uts_ns_put(ns->uts);
	free(ns);
}

int nsproxy_unshare(struct nsproxy *ns, u64 flags, struct fs_context *fs, struct nsproxy **ret)
{
	struct mount_ns *mnt = NULL;
	struct uts_ns *uts = NULL;
	struct nsproxy *n;
	int r = 0;

	if (flags & CLONE_NEWNS) {
		MUTEX_GUARD(&fs->lock);

		r = mount_ns_copy(ns->mnt, &fs->root, &fs->cwd, &mnt);
		if (r < 0)
			return r;
	} else {
		mnt = mount_ns_get(ns->mnt);
	}
	if (flags & CLONE_NEWUTS) {
		mutex_lock(&ns->uts->lock);
		uts = uts_ns_new(ns->uts->nodename, ns->uts->domainname);
		mutex_unlock(&ns->uts->lock);
	} else {
		uts = uts_ns_get(ns->uts);
	}
	if (!uts) {
		mount_ns_put(mnt);
		return -ENOMEM;
	}
	n = nsproxy_new(mnt, uts);
	if (!n)
		return -ENOMEM;
	*ret = n;
	return 0;
}
