/* unit: base pgalloc vfs tmpfs */
/*
 * Path walk and operations by path against the best model there is: the host's kernel. A child
 * process in a chroot performs a random sequence of calls on the host; the same sequence on tmpfs,
 * and on an overlay over an empty host directory, must give the same results, as root and as an
 * ordinary user.
 */
#include "base/safecopy.h"
#include "tmpfs/tmpfs.h"
#include "vfs/hostfs.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPS 4000
#define USER 12345

enum op_kind {
	OP_MKDIR,
	OP_OPEN,
	OP_UNLINK,
	OP_RMDIR,
	OP_RENAME,
	OP_SYMLINK,
	OP_LINK,
	OP_STAT,
	OP_CHMOD,
	OP_READLINK,
	OP_TRUNCATE,
	OP_ACCESS,
	OP_KINDS
};

struct op {
	enum op_kind kind;
	char a[64], b[64];
	u32 flags, mode;
};

static u64 rng;

static u32 rnd(u32 n)
{
	rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)(rng >> 33) % n;
}

static void random_path(char *dst)
{
	static const char *const names[] = { "a", "b", "c", "d", "a", "b", "c", "..", "." };
	int n = 1 + (int)rnd(4);

	*dst = '\0';
	if (rnd(8) == 0)
		strcat(dst, "/");
	for (int i = 0; i < n; i++) {
		if (i)
			strcat(dst, rnd(12) ? "/" : "//");
		strcat(dst, names[rnd(ARRAY_SIZE(names))]);
	}
	if (rnd(8) == 0)
		strcat(dst, "/");
	if (rnd(200) == 0)
		*dst = '\0';
}

static void random_op(struct op *o)
{
	static const u32 open_flags[] = {
		O_RDONLY,
		O_WRONLY,
		O_RDWR | O_CREAT,
		O_WRONLY | O_CREAT | O_EXCL,
		O_PATH,
		O_PATH | O_NOFOLLOW,
		O_RDONLY | O_NOFOLLOW,
		O_RDONLY | O_DIRECTORY,
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
		O_RDWR | O_TRUNC,
		O_WRONLY | O_CREAT | O_TRUNC,
		O_RDONLY | O_CREAT,
		O_WRONLY | O_CREAT | O_NOFOLLOW,
		O_RDWR | O_TMPFILE,
		O_RDONLY | O_TMPFILE,
		O_PATH | O_DIRECTORY,
		O_CREAT | O_DIRECTORY,
		O_RDWR | O_TMPFILE | O_EXCL,
		O_RDONLY | O_NOATIME,
		O_CREAT | O_EXCL | O_NOFOLLOW,
	};
	static const u32 modes[] = { 0755, 0700, 0777, 0500, 0, 0644, 0300, 0444, 04755, 02755 };
	static const u32 rename_flags[] = {
		0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_EXCHANGE | RENAME_NOREPLACE
	};

	memset(o, 0, sizeof(*o));
	o->kind = rnd(OP_KINDS);
	random_path(o->a);
	random_path(o->b);
	o->mode = modes[rnd(ARRAY_SIZE(modes))];
	switch (o->kind) {
	case OP_OPEN: o->flags = open_flags[rnd(ARRAY_SIZE(open_flags))]; break;
	case OP_RENAME: o->flags = rename_flags[rnd(ARRAY_SIZE(rename_flags))]; break;
	case OP_ACCESS: o->flags = rnd(8); break;
	default: o->flags = rnd(2);
	}
}

/* ---- the host ---- */

static s64 pack(u32 mode, u64 nlink, u64 size)
{
	if (S_ISDIR(mode))
		size = 0;
	return (s64)((u64)mode | nlink << 20 | size << 32);
}

static s64 host_stat(const struct op *o)
{
	struct stat st;

	if ((o->flags ? stat(o->a, &st) : lstat(o->a, &st)) < 0)
		return -errno;
	return pack(st.st_mode, st.st_nlink, (u64)st.st_size);
}

static s64 host_op(const struct op *o)
{
	char buf[256];
	s64 r;

	switch (o->kind) {
	case OP_MKDIR: r = mkdir(o->a, o->mode); break;
	case OP_OPEN:
		r = open(o->a, (int)o->flags, o->mode);
		if (r >= 0) {
			close((int)r);
			r = 0;
		}
		break;
	case OP_UNLINK: r = unlink(o->a); break;
	case OP_RMDIR: r = rmdir(o->a); break;
	case OP_RENAME: r = syscall(SYS_renameat2, AT_FDCWD, o->a, AT_FDCWD, o->b, o->flags); break;
	case OP_SYMLINK: r = symlink(o->b, o->a); break;
	case OP_LINK:
		r = linkat(AT_FDCWD, o->a, AT_FDCWD, o->b, o->flags ? AT_SYMLINK_FOLLOW : 0);
		break;
	case OP_STAT: return host_stat(o);
	case OP_CHMOD: r = chmod(o->a, o->mode); break;
	case OP_READLINK: r = readlink(o->a, buf, sizeof(buf)); break;
	case OP_TRUNCATE: r = truncate(o->a, o->flags ? 5 : 0); break;
	default: r = access(o->a, (int)o->flags);
	}
	return r < 0 ? -errno : r;
}

/* Something to find in a lower layer: directories with content, hard links, symlinks. */
static void populate(const char *dir, u32 uid)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd),
		 "cd %s && umask 022 && mkdir -p a/b/c a/d b/a c/c && echo text > a/a && ln a/a "
		 "b/b && "
		 "ln -s a/b d && ln -s ../b/b a/c && echo x > a/b/a && chmod 0700 b/a && "
		 "chown -hR %u:%u .",
		 dir, uid, uid);
	assert_int_equal(system(cmd), 0);
}

/* In a child: performs all in a chroot and reports the results. */
static void host_child(const char *dir, u32 uid, int out)
{
	struct op o;

	umask(022);
	if (chroot(dir) < 0 || chdir("/") < 0)
		_exit(2);
	if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
		_exit(2);
	for (int i = 0; i < OPS; i++) {
		s64 r;

		random_op(&o);
		r = host_op(&o);
		if (write(out, &r, sizeof(r)) != sizeof(r))
			_exit(3);
	}
	_exit(0);
}

/* Results of the sequence on the host; false: the host does not let us (no root). */
static bool host_run(u64 seed, u32 uid, bool content, s64 *ret)
{
	char dir[] = "/dev/shm/pathtestXXXXXX", cmd[128];
	size_t done = 0;
	int p[2], status;
	pid_t pid;

	if (!mkdtemp(dir))
		return false;
	chmod(dir, 0755);
	if (uid && chown(dir, uid, uid) < 0)
		return false;
	if (content)
		populate(dir, uid);
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		rng = seed;
		host_child(dir, uid, p[1]);
	}
	close(p[1]);
	while (done < OPS * sizeof(s64)) {
		ssize_t n = read(p[0], (char *)ret + done, OPS * sizeof(s64) - done);

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	close(p[0]);
	waitpid(pid, &status, 0);
	snprintf(cmd, sizeof(cmd), "chmod -R u+rwx %s; rm -rf %s", dir, dir);
	if (system(cmd) != 0)
		return false;
	return status == 0;
}

/* ---- ours ---- */

static s64 our_path_op(struct walk_context *w, const struct op *o)
{
	struct iattr a = { .mask = ATTR_MODE, .mode = o->mode };
	bool follow = o->kind == OP_STAT || o->kind == OP_LINK ? o->flags : o->kind != OP_READLINK;
	struct kstat st;
	struct path p;
	char buf[256];
	s64 r = vfs_walk(w, o->a, follow ? WALK_FOLLOW : 0, &p);

	if (r)
		return r;
	switch (o->kind) {
	case OP_LINK: r = vfs_link(&p, w, o->b); break;
	case OP_STAT:
		r = vfs_getattr(&p, &st);
		if (!r)
			r = pack(st.mode, st.nlink, st.size);
		break;
	case OP_CHMOD: r = vfs_setattr(&p, w->cred, &a); break;
	case OP_READLINK: r = vfs_readlink(&p, buf, sizeof(buf)); break;
	case OP_TRUNCATE:
		a = (struct iattr){ .mask = ATTR_SIZE, .size = o->flags ? 5 : 0 };
		r = vfs_setattr(&p, w->cred, &a);
		break;
	default: r = vfs_access(&p, w->cred, (int)o->flags);
	}
	path_put(&p);
	return r;
}

static s64 our_op(struct walk_context *w, const struct op *o)
{
	struct open_how_k how = { .flags = o->flags, .mode = o->mode };
	struct file *f;
	s64 r;

	switch (o->kind) {
	case OP_MKDIR: return vfs_mkdir(w, o->a, o->mode);
	case OP_OPEN:
		r = vfs_open(w, o->a, &how, &f);
		if (!r)
			file_put(f);
		return r;
	case OP_UNLINK: return vfs_unlink(w, o->a);
	case OP_RMDIR: return vfs_rmdir(w, o->a);
	case OP_RENAME: return vfs_rename(w, o->a, w, o->b, o->flags);
	case OP_SYMLINK: return vfs_symlink(w, o->b, o->a);
	default: return our_path_op(w, o);
	}
}

static struct superblock *new_tmpfs(struct pgalloc *memory, u32 uid)
{
	struct tmpfs_options to = {
		.store = memory, .mode = 0755, .uid = uid, .gid = uid, .allow_any_xattr = true
	};
	struct superblock *sb;

	assert_int_equal(tmpfs_new(&to, &sb), 0);
	return sb;
}

static struct superblock *new_overlay(struct pgalloc *memory, const char *dir)
{
	struct hostfs_options ho = { .root_fd = open(dir, O_PATH | O_DIRECTORY),
				     .read_only = true };
	struct overlay_options oo = { .upper = new_tmpfs(memory, 0) };
	struct superblock *sb;

	assert_int_equal(hostfs_new(&ho, &oo.lower), 0);
	assert_int_equal(overlay_new(&oo, &sb), 0);
	superblock_put(oo.upper);
	superblock_put(oo.lower);
	return sb;
}

static void compare(struct superblock *sb, u64 seed, u32 uid, const s64 *want)
{
	struct mount_ns *ns;
	struct path root;
	struct walk_context w;
	const struct cred *cred = cred_new(uid, uid, uid ? 0 : ~0ULL);

	assert_int_equal(mount_ns_new(sb, 0, &ns), 0);
	superblock_put(sb);
	mount_ns_root(ns, &root);
	w = (struct walk_context){ .cred = cred, .root = root, .cwd = root, .umask = 022 };
	rng = seed;
	for (int i = 0; i < OPS; i++) {
		struct op o;
		s64 got;

		random_op(&o);
		got = our_op(&w, &o);
		if (got != want[i])
			fail_msg("seed %llu uid %u op %d kind %d '%s' '%s' flags %o mode %o: "
				 "host %llx, ours %llx",
				 (unsigned long long)seed, uid, i, o.kind, o.a, o.b, o.flags,
				 o.mode, (unsigned long long)want[i], (unsigned long long)got);
	}
	path_put(&root);
	mount_ns_put(ns);
	cred_put(cred);
}

static void run(u32 uid, bool content)
{
	char dir[] = "/dev/shm/pathlowerXXXXXX", cmd[64];
	s64 *want = calloc(OPS, sizeof(s64));
	struct pgalloc *memory;

	assert_non_null(mkdtemp(dir));
	chmod(dir, 0755);
	if (uid)
		assert_int_equal(chown(dir, uid, uid), 0);
	if (content)
		populate(dir, uid);
	assert_int_equal(pgalloc_new_memfd(0, 1UL << 30, &memory), 0);
	for (u64 seed = 1; seed <= 20; seed++) {
		if (!host_run(seed, uid, content, want)) {
			print_message("no chroot on this host\n");
			skip();
		}
		if (!content)
			compare(new_tmpfs(memory, uid), seed, uid, want);
		compare(new_overlay(memory, dir), seed, uid, want);
	}
	pgalloc_free(memory);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	assert_int_equal(system(cmd), 0);
	free(want);
}

static void test_as_root(void **state)
{
	if (getuid() != 0)
		skip();
	run(0, false);
	run(0, true);
}

static void test_as_user(void **state)
{
	if (getuid() != 0)
		skip();
	run(USER, false);
	run(USER, true);
}

/* ---- what a random sequence does not reach ---- */

struct tree {
	struct pgalloc *memory;
	struct mount_ns *ns;
	struct path root;
	struct walk_context w;
};

static void tree_new(struct tree *t)
{
	struct superblock *sb;

	assert_int_equal(pgalloc_new_memfd(0, 1UL << 30, &t->memory), 0);
	sb = new_tmpfs(t->memory, 0);
	assert_int_equal(mount_ns_new(sb, 0, &t->ns), 0);
	superblock_put(sb);
	mount_ns_root(t->ns, &t->root);
	t->w = (struct walk_context){ .cred = cred_new(0, 0, ~0ULL),
				      .root = t->root,
				      .cwd = t->root };
}

static void tree_free(struct tree *t)
{
	cred_put(t->w.cred);
	path_put(&t->root);
	mount_ns_put(t->ns);
	pgalloc_free(t->memory);
}

static int walk(struct tree *t, const char *path, struct path *ret)
{
	return vfs_walk(&t->w, path, WALK_FOLLOW, ret);
}

static int exists(struct tree *t, const char *path)
{
	struct path p;
	int err = walk(t, path, &p);

	if (!err)
		path_put(&p);
	return err;
}

static void test_limits(void **state)
{
	char path[PATH_MAX + 8], name[300], target[16];
	struct tree t;

	tree_new(&t);
	memset(name, 'x', sizeof(name));
	name[255] = '\0';
	assert_int_equal(vfs_mkdir(&t.w, name, 0755), 0);
	name[255] = 'x';
	name[256] = '\0';
	assert_int_equal(vfs_mkdir(&t.w, name, 0755), -ENAMETOOLONG);
	memset(path, '/', sizeof(path));
	path[PATH_MAX - 1] = '\0';
	assert_int_equal(exists(&t, path), 0);
	path[PATH_MAX - 1] = '/';
	path[PATH_MAX] = '\0';
	assert_int_equal(exists(&t, path), -ENAMETOOLONG);
	/* 40 symlinks in a row are followed, 41 are not. */
	assert_int_equal(vfs_mkdir(&t.w, "/l0", 0755), 0);
	for (int i = 1; i <= 41; i++) {
		snprintf(target, sizeof(target), "l%d", i - 1);
		snprintf(name, sizeof(name), "/l%d", i);
		assert_int_equal(vfs_symlink(&t.w, target, name), 0);
	}
	assert_int_equal(exists(&t, "/l40"), 0);
	assert_int_equal(exists(&t, "/l41"), -ELOOP);
	tree_free(&t);
}

static void test_mounts(void **state)
{
	struct tree t;
	struct superblock *sb;
	struct path p, up;
	char text[PATH_MAX];

	tree_new(&t);
	assert_int_equal(vfs_mkdir(&t.w, "/m", 0755), 0);
	assert_int_equal(vfs_mkdir(&t.w, "/m/hidden", 0755), 0);
	assert_int_equal(walk(&t, "/m", &p), 0);
	sb = new_tmpfs(t.memory, 0);
	assert_int_equal(mount_add(t.ns, &p, sb, 0), 0);
	superblock_put(sb);
	path_put(&p);
	assert_int_equal(exists(&t, "/m/hidden"), -ENOENT);
	assert_int_equal(vfs_mkdir(&t.w, "/m/in", 0755), 0);
	assert_int_equal(vfs_rmdir(&t.w, "/m"), -EBUSY);
	assert_int_equal(vfs_rename(&t.w, "/m/in", &t.w, "/in", 0), -EXDEV);
	assert_int_equal(walk(&t, "/m/in", &p), 0);
	assert_true(path_text(&p, &t.root, text, sizeof(text)) > 0);
	assert_string_equal(text, "/m/in");
	assert_int_equal(
		vfs_walk(&(struct walk_context){ .cred = t.w.cred, .root = t.root, .cwd = p },
			 "../../m/in/../..", 0, &up),
		0);
	assert_true(path_equal(&up, &t.root));
	path_put(&up);
	assert_int_equal(vfs_walk(&(struct walk_context){ .cred = t.w.cred,
							  .root = t.root,
							  .cwd = t.root,
							  .resolve = 1 /* NO_XDEV */ },
				  "m/in", 0, &up),
			 -EXDEV);
	path_put(&p);
	/* A second mount on the same place hides the first; unmounting brings it back. */
	assert_int_equal(walk(&t, "/m", &p), 0);
	sb = new_tmpfs(t.memory, 0);
	assert_int_equal(mount_add(t.ns, &p, sb, 0), 0);
	superblock_put(sb);
	path_put(&p);
	assert_int_equal(exists(&t, "/m/in"), -ENOENT);
	assert_int_equal(walk(&t, "/m", &p), 0);
	assert_int_equal(mount_remove(t.ns, &p, 0), 0);
	path_put(&p);
	assert_int_equal(exists(&t, "/m/in"), 0);
	tree_free(&t);
}

static void test_bind(void **state)
{
	struct mount_ns *copy;
	struct tree t;
	struct path p, q;

	tree_new(&t);
	assert_int_equal(vfs_mkdir(&t.w, "/a", 0755), 0);
	assert_int_equal(vfs_mkdir(&t.w, "/a/sub", 0755), 0);
	assert_int_equal(vfs_mkdir(&t.w, "/b", 0755), 0);
	assert_int_equal(walk(&t, "/a", &p), 0);
	assert_int_equal(walk(&t, "/b", &q), 0);
	assert_int_equal(mount_bind(t.ns, &p, &q, MS_RDONLY, false), 0);
	path_put(&p);
	path_put(&q);
	assert_int_equal(exists(&t, "/b/sub"), 0);
	assert_int_equal(vfs_mkdir(&t.w, "/b/x", 0755), -EROFS);
	assert_int_equal(vfs_mkdir(&t.w, "/a/x", 0755), 0);
	assert_int_equal(exists(&t, "/b/x"), 0);
	assert_int_equal(mount_ns_copy(t.ns, NULL, NULL, &copy), 0);
	assert_int_equal(walk(&t, "/b", &q), 0);
	assert_int_equal(mount_remove(t.ns, &q, 0), 0);
	path_put(&q);
	assert_int_equal(exists(&t, "/b/x"), -ENOENT);
	mount_ns_root(copy, &q);
	t.w.root = t.w.cwd = q;
	assert_int_equal(exists(&t, "/b/x"), 0);
	path_put(&q);
	mount_ns_put(copy);
	tree_free(&t);
}

static void test_churn(void **state)
{
	struct tree t;
	char name[32];

	tree_new(&t);
	for (int i = 0; i < 60000; i++) {
		struct open_how_k how = { .flags = O_CREAT | O_EXCL | O_WRONLY, .mode = 0600 };
		struct file *f;

		snprintf(name, sizeof(name), "/n%d", i);
		assert_int_equal(vfs_open(&t.w, name, &how, &f), 0);
		file_put(f);
		assert_int_equal(vfs_unlink(&t.w, name), 0);
		assert_int_equal(exists(&t, name), -ENOENT);
	}
	tree_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits),	cmocka_unit_test(test_mounts),
		cmocka_unit_test(test_bind),	cmocka_unit_test(test_churn),
		cmocka_unit_test(test_as_root), cmocka_unit_test(test_as_user),
	};

	safecopy_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
