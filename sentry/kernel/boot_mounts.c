/* The guest's file systems: root, /dev, /proc, /sys, and what the options ask for. */
#include "base/log.h"
#include "sentry/dev/dev.h"
#include "sentry/kernel/boot.h"
#include "sentry/proc/procfs.h"
#include "sentry/tty/tty.h"
#include "tmpfs/tmpfs.h"
#include "vfs/hostfs.h"
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

struct mount_builder {
	struct kernel *kernel;
	const struct run_config *config;
	const struct cred *cred;
	struct mount_ns *ns;
	struct path root;
};

/* ---- the page cache's memory: vfs may not know pgalloc ---- */

static int cache_allocate(void *arg, const struct vfs_memory_request *req,
			  struct memfile **ret_file, struct mem_range *ret)
{
	struct kernel *k = arg;
	struct pgalloc_opts opts = { .mode = PGALLOC_POPULATE,
				     .acct_id = MEMORY_OF_CACHE,
				     .hint = req->hint,
				     .room = req->room,
				     .reader = req->reader,
				     .reader_arg = req->reader_arg };
	int err = pgalloc_allocate(k->memory, req->len, &opts, ret);

	if (err == 0)
		*ret_file = pgalloc_file(k->memory);
	return err;
}

const struct vfs_memory_ops *boot_cache_memory(struct kernel *k)
{
	static struct vfs_memory_ops memory = { .allocate = cache_allocate };

	memory.arg = k;
	return &memory;
}

static u64 reclaim_cache(void *arg, u64 bytes)
{
	(void)arg;
	return hostfs_reclaim(bytes);
}

static int new_hostfs(struct mount_builder *b, int fd, bool read_only, bool shared,
		      const char *source, char **hidden, struct superblock **ret)
{
	/* The caller's files are the guest user's; but root's system files stay root's when root
	 * runs a guest as somebody else. */
	bool keep = read_only && b->config->host_uid == 0;
	struct hostfs_options o = {
		.root_fd = dup(fd),
		.read_only = read_only,
		.shared = shared,
		.host_uid = b->config->host_uid,
		.host_gid = b->config->host_gid,
		.guest_uid = keep ? 0 : b->config->uid,
		.guest_gid = keep ? b->config->host_gid : b->config->gid,
		.source = source,
		.memory = boot_cache_memory(b->kernel),
		.hidden = (const char *const *)hidden,
	};

	pgalloc_set_reclaim(b->kernel->memory, reclaim_cache, NULL);
	if (o.root_fd < 0)
		return -EMFILE; /* fd is open */
	return hostfs_new(&o, ret);
}

static int new_tmpfs(struct mount_builder *b, struct pgalloc *store, u64 size, u32 mode,
		     const char *source, bool for_overlay, struct superblock **ret)
{
	struct tmpfs_options o = { .store = store,
				   .size_limit = size ? size : b->kernel->memory_limit / 2,
				   .mode = mode,
				   .acct_id = MEMORY_OF_TMPFS,
				   .source = source,
				   .allow_any_xattr = for_overlay };

	return tmpfs_new(&o, ret);
}

/* A read-only host tree under a writable layer in `store`. */
static int new_overlay(struct mount_builder *b, int fd, char **hidden, struct pgalloc *store,
		       const char *source, struct superblock **ret)
{
	struct superblock *lower = NULL, *upper = NULL;
	int err = new_hostfs(b, fd, true, false, source, hidden, &lower);

	if (err == 0)
		err = new_tmpfs(b, store, store == b->kernel->memory ? 0 : UINT64_MAX >> 1, 0755,
				"overlay", true, &upper);
	if (err == 0) {
		struct overlay_options o = { .upper = upper, .lower = lower, .source = source };
		err = overlay_new(&o, ret);
	}
	if (upper)
		superblock_put(upper);
	if (lower)
		superblock_put(lower);
	return err;
}

static struct walk_context walk_of(struct mount_builder *b)
{
	return (struct walk_context){
		.cred = b->cred, .root = b->root, .cwd = b->root, .umask = 0
	};
}

/* mkdir -p, in whatever file systems the path leads through. */
static int make_dirs(struct mount_builder *b, const char *path, u32 mode)
{
	struct walk_context w = walk_of(b);
	char buf[PATH_MAX];

	if (strlen(path) >= sizeof(buf))
		return -ENAMETOOLONG;
	strcpy(buf, path);
	for (char *p = buf + 1;; p++) {
		if (*p != '/' && *p != '\0')
			continue;
		char c = *p;
		*p = '\0';
		int err = p[-1] == '/' ? 0 : vfs_mkdir(&w, buf, c == '\0' ? mode : 0755);
		if (err < 0 && err != -EEXIST)
			return err;
		*p = c;
		if (c == '\0')
			return 0;
	}
}

static int make_mount_point(struct mount_builder *b, const char *path, bool is_dir)
{
	char parent[PATH_MAX];
	struct file *f;
	char *slash;
	int err;

	if (is_dir)
		return make_dirs(b, path, 0755);
	if (strlen(path) >= sizeof(parent))
		return -ENAMETOOLONG;
	strcpy(parent, path);
	slash = strrchr(parent, '/');
	if (slash != parent) {
		*slash = '\0';
		err = make_dirs(b, parent, 0755);
		if (err < 0)
			return err;
	}
	struct walk_context w = walk_of(b);
	struct open_how_k how = { .flags = O_CREAT | O_RDONLY, .mode = 0644 };
	err = vfs_open(&w, path, &how, &f);
	if (err == 0)
		file_put(f);
	return err;
}

/* Mounts sb (takes the reference) over path, which is made when absent. */
static int mount_at(struct mount_builder *b, const char *path, struct superblock *sb, u32 flags)
{
	struct walk_context w = walk_of(b);
	struct path at;
	int err = make_mount_point(b, path, inode_is_dir(sb->root));

	if (err == 0)
		err = vfs_walk(&w, path, WALK_FOLLOW, &at);
	if (err == 0) {
		err = mount_add(b->ns, &at, sb, flags);
		path_put(&at);
	}
	superblock_put(sb);
	if (err < 0)
		return boot_error(err, NULL, "cannot mount on %s in the guest", path);
	return 0;
}

static int mount_dev(struct mount_builder *b)
{
	struct kernel *k = b->kernel;
	struct walk_context w;
	struct superblock *sb;
	int err = new_tmpfs(b, k->memory, 1UL << 20, 0755, "dev", false, &sb);

	if (err == 0)
		err = mount_at(b, "/dev", sb, MS_NOSUID | MS_NOEXEC);
	if (err < 0)
		return err;
	w = walk_of(b);
	err = dev_populate(&w, "/dev");
	if (err == 0)
		err = mount_at(b, "/dev/pts", superblock_get(k->devpts), MS_NOSUID | MS_NOEXEC);
	if (err == 0)
		err = new_tmpfs(b, k->memory, 0, 01777, "shm", false, &sb);
	if (err == 0)
		err = mount_at(b, "/dev/shm", sb, MS_NOSUID | MS_NODEV);
	return err;
}

static int mount_kernel_views(struct mount_builder *b)
{
	struct superblock *sb;
	int err = procfs_new(b->kernel, &sb);

	if (err == 0)
		err = mount_at(b, "/proc", sb, MS_NOSUID | MS_NODEV | MS_NOEXEC);
	if (err == 0)
		err = sysfs_new(b->kernel, &sb);
	if (err == 0)
		err = mount_at(b, "/sys", sb, MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY);
	return err;
}

/*
 * One file of the host: its folder's file system, in a mount namespace of its own that no guest
 * sees, of which just the file is bound into the guest's tree.
 */
static int mount_file(struct mount_builder *b, const struct run_mount *m, struct superblock *sb,
		      u32 flags)
{
	struct walk_context aside = { .cred = b->cred }, w = walk_of(b);
	struct mount_ns *ns = NULL;
	struct path from, at;
	int err = mount_ns_new(sb, flags, &ns);

	superblock_put(sb);
	if (err < 0)
		return err;
	mount_ns_root(ns, &aside.root);
	aside.cwd = aside.root;
	err = vfs_walk(&aside, strrchr(m->source, '/') + 1, 0, &from);
	if (err == 0) {
		err = make_mount_point(b, m->destination, false);
		if (err == 0)
			err = vfs_walk(&w, m->destination, WALK_FOLLOW, &at);
		if (err == 0) {
			err = mount_bind(b->ns, &from, &at, flags, false);
			path_put(&at);
		}
		path_put(&from);
	}
	path_put(&aside.root);
	mount_ns_put(ns);
	return err;
}

static int mount_asked(struct mount_builder *b, const struct run_mount *m)
{
	struct superblock *sb;
	int err;

	if (m->kind == RUN_MOUNT_TMPFS) {
		err = new_tmpfs(b, b->kernel->memory, m->size, 01777, "tmpfs", false, &sb);
		if (err)
			return err;
		return mount_at(b, m->destination, sb, MS_NOSUID | MS_NODEV);
	}
	u32 flags = MS_NOSUID | MS_NODEV | (m->kind == RUN_MOUNT_RO ? MS_RDONLY : 0);
	err = new_hostfs(b, m->source_is_dir ? m->source_fd : m->parent_fd, m->kind == RUN_MOUNT_RO,
			 true, m->source, NULL, &sb);
	if (err == 0 && m->source_is_dir)
		return mount_at(b, m->destination, sb, flags);
	if (err == 0)
		err = mount_file(b, m, sb, flags);
	if (err < 0)
		return boot_error(err, NULL, "cannot show %s in the guest", m->source);
	return 0;
}

static int mount_root(struct mount_builder *b, const struct boot_host *host, struct pgalloc *store)
{
	struct superblock *sb;
	int err;

	if (b->config->overlay == OVERLAY_NONE)
		err = new_hostfs(b, host->root_fd, false, true, "root", NULL, &sb);
	else
		err = new_overlay(b, host->root_fd, host->hidden, store, "root", &sb);
	if (err)
		return boot_error(err, NULL, "cannot make the guest's root");
	err = mount_ns_new(sb, 0, &b->ns);
	superblock_put(sb);
	if (err == 0)
		mount_ns_root(b->ns, &b->root);
	return err;
}

int boot_mounts(struct kernel *k, const struct run_config *config, const struct boot_host *host,
		struct pgalloc *store, const struct cred *root_cred, struct mount_ns **ret)
{
	struct mount_builder b = { .kernel = k, .config = config, .cred = root_cred };
	struct superblock *sb;
	int err = mount_root(&b, host, store);

	if (err < 0)
		return err;
	static const struct {
		const char *path;
		u32 mode;
	} dirs[] = { { "/dev", 0755 },
		     { "/proc", 0555 },
		     { "/sys", 0555 },
		     { "/run", 0755 },
		     { "/root", 0700 } };
	if (config->overlay != OVERLAY_NONE)
		for (size_t i = 0; err == 0 && i < ARRAY_SIZE(dirs); i++)
			err = make_dirs(&b, dirs[i].path, dirs[i].mode);
	if (err == 0 && config->overlay != OVERLAY_NONE) {
		err = make_dirs(&b, "/tmp", 01777);
		struct walk_context w = walk_of(&b);
		struct path tmp;
		if (err == 0 && vfs_walk(&w, "/tmp", WALK_FOLLOW, &tmp) == 0) {
			struct iattr attr = { .mask = ATTR_MODE, .mode = 01777 };
			vfs_setattr(&tmp, root_cred, &attr);
			path_put(&tmp);
		}
	}
	if (err == 0)
		err = mount_dev(&b);
	if (err == 0)
		err = mount_kernel_views(&b);
	if (err == 0 && host->cwd_fd >= 0) {
		err = new_overlay(&b, host->cwd_fd, NULL, store, config->caller_cwd, &sb);
		if (err == 0)
			err = mount_at(&b, config->caller_cwd, sb, 0);
	}
	for (int i = 0; err == 0 && i < config->mount_count; i++)
		err = mount_asked(&b, &config->mounts[i]);
	path_put(&b.root);
	if (err < 0) {
		mount_ns_put(b.ns);
		return err;
	}
	*ret = b.ns;
	return 0;
}
