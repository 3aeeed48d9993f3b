/* unit: base pgalloc vfs tmpfs */
/* The union of a host directory and a tmpfs: what a guest sees, and that the host sees nothing. */
#include "base/safecopy.h"
#include "tmpfs/tmpfs.h"
#include "vfs/hostfs.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

struct env {
	char dir[64];
	struct pgalloc *memory;
	struct vfs_memory_ops ops;
	struct mount_ns *ns;
	struct path root;
	const struct cred *cred;
	struct walk_context w;
};

static int allocate(void *arg, const struct vfs_memory_request *req, struct memfile **ret_file,
		    struct mem_range *ret)
{
	struct env *e = arg;
	struct pgalloc_opts o = { .mode = PGALLOC_POPULATE,
				  .hint = req->hint,
				  .room = req->room,
				  .reader = req->reader,
				  .reader_arg = req->reader_arg };
	int err = pgalloc_allocate(e->memory, req->len, &o, ret);

	if (!err)
		*ret_file = pgalloc_file(e->memory);
	return err;
}

static void host(struct env *e, const char *fmt, ...)
{
	char cmd[4096];
	int n = snprintf(cmd, sizeof(cmd), "cd %s && ", e->dir);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd + n, sizeof(cmd) - (size_t)n, fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

static void env_mount(struct env *e, bool overlay)
{
	struct superblock *lower, *upper, *sb;
	struct hostfs_options ho = {
		.root_fd = open(e->dir, O_PATH | O_DIRECTORY),
		.read_only = overlay,
		.host_uid = getuid(),
		.guest_uid = getuid(),
		.host_gid = getgid(),
		.guest_gid = getgid(),
		.memory = &e->ops,
		.hidden = (const char *const[]){ "secret", "deep/er", NULL },
	};

	assert_int_equal(hostfs_new(&ho, &lower), 0);
	sb = lower;
	if (overlay) {
		struct tmpfs_options to = { .store = e->memory,
					    .mode = 0755,
					    .allow_any_xattr = true };
		struct overlay_options oo;

		assert_int_equal(tmpfs_new(&to, &upper), 0);
		oo = (struct overlay_options){ .upper = upper, .lower = lower };
		assert_int_equal(overlay_new(&oo, &sb), 0);
		superblock_put(upper);
		superblock_put(lower);
	}
	assert_int_equal(mount_ns_new(sb, 0, &e->ns), 0);
	superblock_put(sb);
	mount_ns_root(e->ns, &e->root);
	e->cred = cred_new(0, 0, ~0ULL);
	e->w = (struct walk_context){ .cred = e->cred, .root = e->root, .cwd = e->root };
}

static struct env *env_new(bool overlay)
{
	struct env *e = calloc(1, sizeof(*e));

	strcpy(e->dir, "/tmp/ovltestXXXXXX");
	assert_non_null(mkdtemp(e->dir));
	e->ops = (struct vfs_memory_ops){ .allocate = allocate, .arg = e };
	assert_int_equal(pgalloc_new_memfd(0, 1UL << 30, &e->memory), 0);
	host(e, "mkdir -p a/b/c secret deep/er deep/ok && echo hello > a/f && echo two > a/b/g && "
		"ln a/f a/hard && ln -s f a/link && echo key > secret/key && echo x > deep/er/x && "
		"echo y > deep/ok/y && mkdir many && cd many && seq 1 300 | xargs touch");
	env_mount(e, overlay);
	return e;
}

static void env_free(struct env *e)
{
	path_put(&e->root);
	mount_ns_put(e->ns);
	cred_put(e->cred);
	pgalloc_free(e->memory);
	host(e, "cd / && rm -rf %s", e->dir);
	free(e);
}

/* ---- shorthands ---- */

static int slurp(struct env *e, const char *path, char *dst, size_t size)
{
	struct open_how_k how = { .flags = O_RDONLY };
	struct file *f;
	ssize_t n;
	int err = vfs_open(&e->w, path, &how, &f);

	if (err)
		return err;
	n = vfs_read_buf(f, dst, size - 1, 0);
	file_put(f);
	if (n < 0)
		return (int)n;
	dst[n] = '\0';
	return 0;
}

static void expect_text(struct env *e, const char *path, const char *text)
{
	char buf[256];

	assert_int_equal(slurp(e, path, buf, sizeof(buf)), 0);
	assert_string_equal(buf, text);
}

static int write_text(struct env *e, const char *path, u32 flags, const char *text)
{
	struct open_how_k how = { .flags = flags | O_WRONLY, .mode = 0644 };
	struct iovec one;
	struct kiov k;
	struct file *f;
	ssize_t n;
	int err = vfs_open(&e->w, path, &how, &f);

	if (err)
		return err;
	kiov_init_buf(&k, &one, (void *)(uintptr_t)text, strlen(text));
	n = vfs_write(f, &k, NULL, 0, UINT64_MAX);
	file_put(f);
	return n < 0 ? (int)n : 0;
}

static int stat_of(struct env *e, const char *path, struct kstat *st)
{
	struct path p;
	int err = vfs_walk(&e->w, path, 0, &p);

	if (err)
		return err;
	err = vfs_getattr(&p, st);
	path_put(&p);
	return err;
}

struct names {
	struct dir_emit emit;
	char text[8192];
	int count, limit;
};

static bool names_emit(struct dir_emit *d, const char *name, size_t len, u64 ino, u8 type, u64 next)
{
	struct names *n = (struct names *)d;

	if (name[0] == '.')
		return true;
	if (n->limit && n->count == n->limit)
		return false;
	n->count++;
	snprintf(n->text + strlen(n->text), sizeof(n->text) - strlen(n->text), "%.*s ", (int)len,
		 name);
	return true;
}

static int cmp_words(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of a directory, sorted, one space behind each. */
static int list(struct env *e, const char *path, struct names *n)
{
	struct open_how_k how = { .flags = O_RDONLY | O_DIRECTORY };
	char *words[512], *save = NULL, copy[8192];
	struct file *f;
	int count = 0, err = vfs_open(&e->w, path, &how, &f);

	if (err)
		return err;
	*n = (struct names){ .emit = { names_emit } };
	err = vfs_iterate(f, &n->emit);
	file_put(f);
	strcpy(copy, n->text);
	for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
		words[count++] = p;
	qsort(words, (size_t)count, sizeof(char *), cmp_words);
	n->text[0] = '\0';
	for (int i = 0; i < count; i++)
		strcat(strcat(n->text, words[i]), " ");
	return err;
}

static void expect_list(struct env *e, const char *path, const char *want)
{
	struct names n;

	assert_int_equal(list(e, path, &n), 0);
	assert_string_equal(n.text, want);
}

/* ---- tests ---- */

static void test_read(void **state)
{
	struct env *e = env_new(true);
	struct names n;

	expect_text(e, "/a/f", "hello\n");
	expect_text(e, "/a/link", "hello\n");
	expect_list(e, "/a", "b f hard link ");
	expect_list(e, "/", "a deep many secret ");
	expect_list(e, "/secret", "");
	expect_list(e, "/deep/er", "");
	expect_list(e, "/deep/ok", "y ");
	assert_int_equal(slurp(e, "/secret/key", (char[8]){ 0 }, 8), -ENOENT);
	assert_int_equal(slurp(e, "/a/none", (char[8]){ 0 }, 8), -ENOENT);
	assert_int_equal(list(e, "/many", &n), 0);
	assert_int_equal(n.count, 300);
	env_free(e);
}

static void test_write(void **state)
{
	struct env *e = env_new(true);
	struct kstat before, after, other;

	assert_int_equal(stat_of(e, "/a/f", &before), 0);
	assert_int_equal(write_text(e, "/a/f", O_APPEND, "more\n"), 0);
	expect_text(e, "/a/f", "hello\nmore\n");
	expect_text(e, "/a/hard", "hello\nmore\n");
	assert_int_equal(stat_of(e, "/a/f", &after), 0);
	assert_int_equal(stat_of(e, "/a/hard", &other), 0);
	assert_int_equal(before.ino, after.ino);
	assert_int_equal(other.ino, after.ino);
	assert_int_equal(after.nlink, 2);
	assert_int_equal(after.size, 11);
	assert_int_equal(write_text(e, "/a/f", O_TRUNC, "new"), 0);
	expect_text(e, "/a/hard", "new");
	assert_int_equal(write_text(e, "/a/b/fresh", O_CREAT | O_EXCL, "fresh"), 0);
	assert_int_equal(write_text(e, "/a/b/fresh", O_CREAT | O_EXCL, "fresh"), -EEXIST);
	expect_list(e, "/a/b", "c fresh g ");
	host(e, "test \"$(cat a/f)\" = hello && test ! -e a/b/fresh");
	env_free(e);
}

static void test_links(void **state)
{
	struct env *e = env_new(true);
	struct kstat st, st2;
	struct path p;

	assert_int_equal(vfs_walk(&e->w, "/a/b/g", 0, &p), 0);
	assert_int_equal(vfs_link(&p, &e->w, "/a/g2"), 0);
	assert_int_equal(vfs_link(&p, &e->w, "/a/g2"), -EEXIST);
	path_put(&p);
	assert_int_equal(stat_of(e, "/a/g2", &st), 0);
	assert_int_equal(st.nlink, 2);
	assert_int_equal(vfs_unlink(&e->w, "/a/b/g"), 0);
	assert_int_equal(stat_of(e, "/a/g2", &st2), 0);
	assert_int_equal(st2.nlink, 1);
	assert_int_equal(st2.ino, st.ino);
	expect_text(e, "/a/g2", "two\n");
	assert_int_equal(vfs_unlink(&e->w, "/a/f"), 0);
	assert_int_equal(stat_of(e, "/a/hard", &st), 0);
	assert_int_equal(st.nlink, 1);
	assert_int_equal(stat_of(e, "/a/f", &st), -ENOENT);
	assert_int_equal(write_text(e, "/a/f", O_CREAT, "again"), 0);
	expect_text(e, "/a/f", "again");
	expect_text(e, "/a/hard", "hello\n");
	assert_int_equal(vfs_unlink(&e->w, "/a/f"), 0);
	assert_int_equal(stat_of(e, "/a/f", &st), -ENOENT);
	env_free(e);
}

static int mv(struct env *e, const char *from, const char *to, u32 flags)
{
	return vfs_rename(&e->w, from, &e->w, to, flags);
}

static void test_rename(void **state)
{
	struct env *e = env_new(true);
	struct kstat st, st2;

	assert_int_equal(stat_of(e, "/a", &st), 0);
	assert_int_equal(mv(e, "/a", "/z", 0), 0);
	assert_int_equal(stat_of(e, "/z", &st2), 0);
	assert_int_equal(st.ino, st2.ino);
	expect_list(e, "/", "deep many secret z ");
	expect_list(e, "/z", "b f hard link ");
	expect_text(e, "/z/b/g", "two\n");
	assert_int_equal(mv(e, "/z/f", "/z/b/f", 0), 0);
	expect_list(e, "/z", "b hard link ");
	expect_list(e, "/z/b", "c f g ");
	assert_int_equal(mv(e, "/z/b/f", "/z/b/g", 0), 0);
	expect_text(e, "/z/b/g", "hello\n");
	expect_list(e, "/z/b", "c g ");
	assert_int_equal(mv(e, "/z/b", "/z/b/c/d", 0), -EINVAL);
	assert_int_equal(mv(e, "/deep", "/z", 0), -ENOTEMPTY);
	assert_int_equal(mv(e, "/z/hard", "/deep", RENAME_EXCHANGE), 0);
	expect_text(e, "/deep", "hello\n");
	expect_list(e, "/z/hard", "er ok ");
	assert_int_equal(mv(e, "/z/b/g", "/deep", RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(mv(e, "/none", "/deep", RENAME_EXCHANGE), -ENOENT);
	assert_int_equal(vfs_mkdir(&e->w, "/a", 0755), 0);
	expect_list(e, "/a", "");
	assert_int_equal(vfs_rmdir(&e->w, "/a"), 0);
	host(e, "test -e a/b/g && test -e deep/ok/y");
	env_free(e);
}

static void test_remove(void **state)
{
	struct env *e = env_new(true);
	char name[32];
	struct kstat st;

	assert_int_equal(vfs_rmdir(&e->w, "/a/b"), -ENOTEMPTY);
	assert_int_equal(vfs_rmdir(&e->w, "/a/b/c"), 0);
	assert_int_equal(vfs_unlink(&e->w, "/a/b/g"), 0);
	assert_int_equal(vfs_rmdir(&e->w, "/a/b"), 0);
	assert_int_equal(stat_of(e, "/a/b", &st), -ENOENT);
	for (int i = 1; i <= 300; i++) {
		snprintf(name, sizeof(name), "/many/%d", i);
		assert_int_equal(vfs_unlink(&e->w, name), 0);
	}
	assert_int_equal(vfs_rmdir(&e->w, "/many"), 0);
	assert_int_equal(vfs_mkdir(&e->w, "/many", 0700), 0);
	expect_list(e, "/many", "");
	host(e, "test $(ls many | wc -l) = 300");
	env_free(e);
}

/* An open that began in the lower layer sees what is written later; unlinked files stay readable.
 */
static void test_open_files(void **state)
{
	struct env *e = env_new(true);
	struct open_how_k how = { .flags = O_RDONLY };
	char buf[16] = "";
	struct file *f;

	assert_int_equal(vfs_open(&e->w, "/a/f", &how, &f), 0);
	assert_int_equal(write_text(e, "/a/f", 0, "HELLO"), 0);
	assert_int_equal(vfs_read_buf(f, buf, sizeof(buf), 0), 6);
	assert_string_equal(buf, "HELLO\n");
	assert_int_equal(vfs_unlink(&e->w, "/a/f"), 0);
	assert_int_equal(vfs_unlink(&e->w, "/a/hard"), 0);
	assert_int_equal(vfs_read_buf(f, buf, sizeof(buf), 0), 6);
	assert_true(path_deleted(&f->path));
	file_put(f);
	env_free(e);
}

static void test_attr(void **state)
{
	struct env *e = env_new(true);
	struct iattr a = { .mask = ATTR_MODE, .mode = 0600 };
	struct kstat st;
	struct path p;
	char v[8];

	assert_int_equal(vfs_walk(&e->w, "/a/f", 0, &p), 0);
	assert_int_equal(vfs_getxattr(&p, e->cred, "security.capability", NULL, 0), -ENODATA);
	assert_int_equal(vfs_setattr(&p, e->cred, &a), 0);
	assert_int_equal(vfs_setxattr(&p, e->cred, "user.x", "abc", 3, 0), 0);
	assert_int_equal(vfs_getxattr(&p, e->cred, "user.x", v, sizeof(v)), 3);
	path_put(&p);
	assert_int_equal(stat_of(e, "/a/hard", &st), 0);
	assert_int_equal(st.mode & 07777, 0600);
	assert_int_equal(st.size, 6);
	host(e, "test $(stat -c %%a a/f) = 644");
	env_free(e);
}

static void test_tmpfile(void **state)
{
	struct env *e = env_new(true);
	struct open_how_k how = { .flags = O_TMPFILE | O_RDWR, .mode = 0600 };
	struct kstat st;
	struct file *f;

	assert_int_equal(vfs_open(&e->w, "/a", &how, &f), 0);
	assert_int_equal(vfs_write_buf(f, "tmp", 3, 0), 3);
	assert_int_equal(vfs_getattr(&f->path, &st), 0);
	assert_int_equal(st.nlink, 0);
	expect_list(e, "/a", "b f hard link ");
	assert_int_equal(vfs_link(&f->path, &e->w, "/a/t"), 0);
	file_put(f);
	expect_text(e, "/a/t", "tmp");
	how.flags |= O_EXCL;
	assert_int_equal(vfs_open(&e->w, "/a", &how, &f), 0);
	assert_int_equal(vfs_link(&f->path, &e->w, "/a/t2"), -ENOENT);
	file_put(f);
	env_free(e);
}

/* A file that the host replaced behind our back is found again. */
static void test_replaced(void **state)
{
	struct env *e = env_new(true);

	assert_int_equal(stat_of(e, "/a/b/g", &(struct kstat){ 0 }), 0);
	host(e, "echo new > a/b/tmp && mv a/b/tmp a/b/g");
	expect_text(e, "/a/b/g", "new\n");
	env_free(e);
}

/* A name that the host made behind our back, where its absence is known: who is to make it finds
 * it. */
static void test_appeared(void **state)
{
	struct open_how_k how = { .flags = O_RDONLY | O_CREAT, .mode = 0644 };
	struct env *e = env_new(false);
	struct kstat st;
	struct file *f;

	assert_int_equal(stat_of(e, "/a/new", &st), -ENOENT);
	assert_int_equal(stat_of(e, "/a/dir", &st), -ENOENT);
	host(e, "mkdir a/dir && echo new > a/new");
	assert_int_equal(vfs_open(&e->w, "/a/new", &how, &f), 0);
	file_put(f);
	expect_text(e, "/a/new", "new\n");
	assert_int_equal(vfs_mkdir(&e->w, "/a/dir", 0755), -EEXIST);
	assert_int_equal(stat_of(e, "/a/dir", &st), 0);
	env_free(e);
}

/* A symlink that has lost the name by which it was known has another one. */
static void test_linked_symlink(void **state)
{
	struct env *e = env_new(false);
	struct path p;

	assert_int_equal(vfs_walk(&e->w, "/a/link", 0, &p), 0);
	assert_int_equal(vfs_link(&p, &e->w, "/a/other"), 0);
	path_put(&p);
	expect_text(e, "/a/link", "hello\n");
	expect_text(e, "/a/other", "hello\n");
	assert_int_equal(vfs_unlink(&e->w, "/a/other"), 0);
	expect_text(e, "/a/link", "hello\n");
	env_free(e);
}

/* The same tree without an overlay, writable: changes reach the host. */
static void test_host_rw(void **state)
{
	struct env *e = env_new(false);
	struct kstat st;
	struct path p;

	assert_int_equal(write_text(e, "/a/f", O_APPEND, "more\n"), 0);
	expect_text(e, "/a/hard", "hello\nmore\n");
	assert_int_equal(write_text(e, "/a/n", O_CREAT | O_EXCL, "n"), 0);
	assert_int_equal(vfs_mkdir(&e->w, "/d", 0750), 0);
	assert_int_equal(mv(e, "/a/n", "/d/m", 0), 0);
	assert_int_equal(vfs_symlink(&e->w, "m", "/d/s"), 0);
	expect_text(e, "/d/s", "n");
	assert_int_equal(vfs_walk(&e->w, "/d/m", 0, &p), 0);
	assert_int_equal(vfs_link(&p, &e->w, "/d/l"), 0);
	assert_int_equal(vfs_unlink(&e->w, "/d/m"), 0);
	assert_int_equal(vfs_getattr(&p, &st), 0);
	assert_int_equal(st.nlink, 1);
	path_put(&p);
	host(e, "test \"$(cat d/l)\" = n && test ! -e d/m && test $(stat -c %%a d) = 750 && "
		"test \"$(tail -1 a/hard)\" = more");
	assert_int_equal(vfs_unlink(&e->w, "/d/l"), 0);
	assert_int_equal(vfs_unlink(&e->w, "/d/s"), 0);
	assert_int_equal(vfs_rmdir(&e->w, "/d"), 0);
	host(e, "test ! -e d");
	env_free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read),	 cmocka_unit_test(test_write),
		cmocka_unit_test(test_links),	 cmocka_unit_test(test_rename),
		cmocka_unit_test(test_remove),	 cmocka_unit_test(test_open_files),
		cmocka_unit_test(test_attr),	 cmocka_unit_test(test_tmpfile),
		cmocka_unit_test(test_host_rw),	 cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_appeared), cmocka_unit_test(test_linked_symlink),
	};

	umask(022);
	safecopy_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
