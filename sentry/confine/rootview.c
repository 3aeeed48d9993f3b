/*
 * The root view: what of the host's file system a guest can see, as a mount tree.
 *
 * Default: system folders and the caller's folder; everything else, and so every key
 * in $HOME or /root or /run, is simply not there. The same list drives
 * confine_hidden_paths() where the host grants no mount namespace.
 */
#include "sentry/confine/confine.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *const confine_visible_paths[] = { "/usr",	"/bin",	   "/sbin", "/lib", "/lib32",
					      "/lib64", "/libx32", "/etc",  "/opt", "/var",
					      "/srv",	"/nix",	   "/gnu",  NULL };

/* Entries that exist in every view, empty. */
static const char *const empty_dirs[] = { "/proc", "/sys",  "/dev", "/tmp",   "/run",
					  "/root", "/home", "/mnt", "/media", NULL };

static bool is_beneath(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	while (n > 1 && dir[n - 1] == '/')
		n--;
	return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

bool confine_cwd_visible(const struct run_config *config)
{
	const char *cwd = config->caller_cwd, *home = getenv("HOME");
	static const char *const never[] = { "/proc", "/sys", "/dev", "/run", "/tmp", NULL };

	if (!cwd || strcmp(cwd, "/") == 0)
		return false;
	for (size_t i = 0; never[i]; i++) {
		/* Folders beneath /tmp are a usual place to work in; the mount points themselves
		 * are ours. */
		if (strcmp(cwd, never[i]) == 0)
			return false;
		if (i < 4 && is_beneath(cwd, never[i]))
			return false;
	}
	if (home && home[0] == '/' && strcmp(home, "/") != 0 && strcmp(home, cwd) != 0 &&
	    is_beneath(home, cwd))
		return false;
	return true;
}

static int make_dirs(const char *path)
{
	char buf[PATH_MAX];

	if (strlen(path) >= sizeof(buf))
		return -ENAMETOOLONG;
	strcpy(buf, path);
	for (char *p = buf + 1;; p++) {
		if (*p != '/' && *p != '\0')
			continue;
		char c = *p;
		*p = '\0';
		if (mkdir(buf, 0755) < 0 && errno != EEXIST)
			return -errno;
		*p = c;
		if (c == '\0')
			return 0;
	}
}

static int bind_read_only(const char *from, const char *to)
{
	struct stat st;
	int ret;

	if (lstat(from, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISLNK(st.st_mode)) {
		char target[PATH_MAX];
		ssize_t n = readlink(from, target, sizeof(target) - 1);
		if (n < 0)
			return -errno;
		target[n] = '\0';
		return symlink(target, to) < 0 && errno != EEXIST ? -errno : 0;
	}
	if (!S_ISDIR(st.st_mode))
		return 0;
	ret = make_dirs(to);
	if (ret < 0)
		return ret;
	if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
		return -errno;
	return 0;
}

/* Makes all of the mount tree at `path` read-only, without devices and set-uid programs. */
static int seal_tree(const char *path)
{
	struct {
		u64 attr_set, attr_clr, propagation, userns_fd;
	} attr = { .attr_set = 1 /* RDONLY */ | 2 /* NOSUID */ | 4 /* NODEV */ };

	if (syscall(442 /* mount_setattr */, AT_FDCWD, path, 0x8000 /* AT_RECURSIVE */, &attr,
		    sizeof(attr)) == 0)
		return 0;
	return -errno;
}

/* base/root is what guests see, base/proc is for the sentry. */
static int populate(const struct run_config *config, const char *base)
{
	char to[PATH_MAX];
	int ret;

	/* The platform looks at its stubs' mappings; only processes of our own PID namespace show
	 * here. */
	snprintf(to, sizeof(to), "%s/proc", base);
	if (mkdir(to, 0555) < 0 ||
	    mount("proc", to, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "subset=pid") < 0)
		return -errno;
	if (config->rootfs) {
		snprintf(to, sizeof(to), "%s/root", base);
		return bind_read_only(config->rootfs, to);
	}
	snprintf(to, sizeof(to), "%s/root", base);
	if (mkdir(to, 0755) < 0)
		return -errno;
	for (size_t i = 0; confine_visible_paths[i]; i++) {
		snprintf(to, sizeof(to), "%s/root%s", base, confine_visible_paths[i]);
		ret = bind_read_only(confine_visible_paths[i], to);
		if (ret < 0)
			return ret;
	}
	for (size_t i = 0; empty_dirs[i]; i++) {
		snprintf(to, sizeof(to), "%s/root%s", base, empty_dirs[i]);
		ret = make_dirs(to);
		if (ret < 0)
			return ret;
	}
	snprintf(to, sizeof(to), "%s/root/tmp", base);
	chmod(to, 01777);
	snprintf(to, sizeof(to), "%s/root/root", base);
	chmod(to, 0700);
	if (confine_cwd_visible(config)) {
		snprintf(to, sizeof(to), "%s/root%s", base, config->caller_cwd);
		ret = bind_read_only(config->caller_cwd, to);
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int fail(struct confine_state *state, const char *what, int err)
{
	snprintf(state->root_view_reason, sizeof(state->root_view_reason), "%s: %s", what,
		 strerror(-err));
	return err;
}

int confine_root_view(const struct run_config *config, struct confine_state *state)
{
	/* Any existing directory serves as the mount point; it is private to our namespace. */
	const char *base = "/tmp";
	int ret;

	if (!state->mount_ns)
		return fail(state, "no mount namespace", -EPERM);
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return fail(state, "making mounts private", -errno);
	/* The caller's folder may lie beneath /tmp, so the view is built elsewhere: on /proc's
	 * place nothing of the host's is needed any more, but /sys may be absent; /dev exists
	 * everywhere. */
	if (config->caller_cwd && is_beneath(config->caller_cwd, base))
		base = "/dev";
	for (int i = 0; i < config->mount_count; i++) {
		const char *source = config->mounts[i].source;
		if (source && is_beneath(source, base))
			base = "/dev";
	}
	if (config->rootfs && is_beneath(config->rootfs, base))
		base = "/dev";
	if (mount("minisentry", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m") < 0)
		return fail(state, "mounting a tmpfs", -errno);
	ret = populate(config, base);
	if (ret < 0) {
		umount2(base, MNT_DETACH);
		return fail(state, "bind mounts", ret);
	}
	ret = seal_tree(base);
	if (ret < 0) {
		umount2(base, MNT_DETACH);
		return fail(state, "making the view read-only", ret);
	}
	if (chdir(base) < 0 || syscall(SYS_pivot_root, ".", ".") < 0) {
		ret = -errno;
		umount2(base, MNT_DETACH);
		return fail(state, "pivot_root", ret);
	}
	state->root_view = true;
	return 0;
}

int confine_leave_host_root(void)
{
	/* It lies on top of the view's root, where names do not lead to it. */
	return umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 ? -errno : 0;
}

static bool visible_entry(const char *path, const struct run_config *config)
{
	for (size_t i = 0; confine_visible_paths[i]; i++)
		if (strcmp(path, confine_visible_paths[i]) == 0)
			return true;
	return !config;
}

/* Appends a copy of name. False: no memory (the list stays valid). */
static bool append_name(char ***list, size_t *count, size_t *cap, const char *name)
{
	if (*count + 2 > *cap) {
		char **more = realloc(*list, 2 * *cap * sizeof(*more));

		if (!more)
			return false;
		*list = more;
		*cap *= 2;
	}
	(*list)[*count] = strdup(name);
	if (!(*list)[*count])
		return false;
	(*list)[++*count] = NULL;
	return true;
}

/* A list that is not complete would show what must be hidden: NULL then. */
char **confine_hidden_paths(const struct run_config *config)
{
	size_t count = 0, cap = 16;
	char **list = calloc(cap, sizeof(*list));
	bool ok = list != NULL;
	struct dirent *e;
	DIR *dir;

	if (!ok || config->rootfs)
		return list;
	dir = opendir("/");
	ok = dir != NULL;
	while (ok && (e = readdir(dir))) {
		char path[NAME_MAX + 2];

		snprintf(path, sizeof(path), "/%s", e->d_name);
		if (e->d_type != DT_LNK && strcmp(e->d_name, ".") != 0 &&
		    strcmp(e->d_name, "..") != 0 && !visible_entry(path, config))
			ok = append_name(&list, &count, &cap, e->d_name);
	}
	if (dir)
		closedir(dir);
	if (ok)
		return list;
	for (size_t i = 0; i < count; i++)
		free(list[i]);
	free(list);
	return NULL;
}
