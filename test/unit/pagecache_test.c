/* unit: base pgalloc vfs tmpfs */
/* Mappings of host files and of the overlay: coherent with read and write, truncation, copy-up. */
#include "base/safecopy.h"
#include "tmpfs/tmpfs.h"
#include "vfs/hostfs.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct env {
	char dir[64];
	struct pgalloc *memory;
	struct vfs_memory_ops ops;
	struct mount_ns *ns;
	struct path root;
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

static void host_write(struct env *e, const char *name, const void *data, size_t len)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", e->dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

static size_t host_read(struct env *e, const char *name, char *dst, size_t size)
{
	char path[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", e->dir, name);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0);
	n = read(fd, dst, size);
	close(fd);
	assert_true(n >= 0);
	return (size_t)n;
}

static struct superblock *with_overlay(struct env *e, struct superblock *lower)
{
	struct tmpfs_options to = { .store = e->memory, .mode = 0755, .allow_any_xattr = true };
	struct overlay_options oo = { .lower = lower };
	struct superblock *sb;

	assert_int_equal(tmpfs_new(&to, &oo.upper), 0);
	assert_int_equal(overlay_new(&oo, &sb), 0);
	superblock_put(oo.upper);
	superblock_put(lower);
	return sb;
}

static struct env *env_new(bool overlay)
{
	struct env *e = calloc(1, sizeof(*e));
	struct hostfs_options ho = { .read_only = overlay };
	struct superblock *sb;

	strcpy(e->dir, "/tmp/pctestXXXXXX");
	assert_non_null(mkdtemp(e->dir));
	e->ops = (struct vfs_memory_ops){ .allocate = allocate, .arg = e };
	assert_int_equal(pgalloc_new_memfd(0, 1UL << 30, &e->memory), 0);
	ho.root_fd = open(e->dir, O_PATH | O_DIRECTORY);
	ho.memory = &e->ops;
	assert_int_equal(hostfs_new(&ho, &sb), 0);
	if (overlay)
		sb = with_overlay(e, sb);
	assert_int_equal(mount_ns_new(sb, 0, &e->ns), 0);
	superblock_put(sb);
	mount_ns_root(e->ns, &e->root);
	e->w = (struct walk_context){ .cred = cred_new(0, 0, ~0ULL),
				      .root = e->root,
				      .cwd = e->root };
	return e;
}

static void env_free(struct env *e)
{
	char cmd[128];

	path_put(&e->root);
	mount_ns_put(e->ns);
	cred_put(e->w.cred);
	pgalloc_free(e->memory);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", e->dir);
	assert_int_equal(system(cmd), 0);
	free(e);
}

static struct file *open_file(struct env *e, const char *path, u32 flags)
{
	struct open_how_k how = { .flags = flags, .mode = 0644 };
	struct file *f;

	assert_int_equal(vfs_open(&e->w, path, &how, &f), 0);
	return f;
}

/* ---- a mapping that counts ---- */

struct watcher {
	struct mapping m;
	int invalidated, private_too;
	u64 start, end;
};

static void on_invalidate(struct mapping *m, u64 start, u64 end, bool private_too)
{
	struct watcher *w = container_of(m, struct watcher, m);

	w->invalidated++;
	w->private_too += private_too;
	w->start = start;
	w->end = end;
}

static bool always(struct mapping *m)
{
	return true;
}

static void nothing(struct mapping *m)
{
}

static void watch(struct watcher *w, u64 end, bool writable)
{
	*w = (struct watcher){ .m = { .end = end,
				      .shared = true,
				      .writable = writable,
				      .invalidate = on_invalidate,
				      .tryget = always,
				      .put = nothing } };
	list_init(&w->m.node);
}

/* The byte at offset of the mapping, through translate: -errno, or its address. */
static int touch(struct mappable *m, u64 offset, bool for_write, char **ret)
{
	struct translation t;
	int err = m->ops->translate(m, offset, 0, 1UL << 30, for_write, &t);
	u64 len;

	if (err)
		return err;
	assert_true(t.offset <= offset && offset < t.offset + mem_range_len(t.range));
	*ret = (char *)t.file->ops->map(t.file, t.range.start, &len) + (offset - t.offset);
	memfile_put(t.file, t.range); /* the cache has its own */
	return 0;
}

static ssize_t put(struct file *f, const char *text, u64 offset)
{
	struct iovec one;
	struct kiov k;

	kiov_init_buf(&k, &one, (void *)(uintptr_t)text, strlen(text));
	return vfs_write(f, &k, &offset, 0, UINT64_MAX);
}

static void test_host_coherent(void **state)
{
	struct env *e = env_new(false);
	struct mappable *m;
	struct watcher w;
	struct file *f;
	char *p, buf[64];

	host_write(e, "f", "hello world", 11);
	f = open_file(e, "/f", O_RDWR);
	assert_int_equal(f->ops->mappable(f, &m), 0);
	watch(&w, 4 * PAGE_SIZE, true);
	assert_int_equal(m->ops->add(m, &w.m), 0);
	assert_int_equal(touch(m, 0, true, &p), 0);
	assert_memory_equal(p, "hello world", 12);
	/* Stores through the mapping are seen by read, and by the host after a sync. */
	memcpy(p, "HELLO", 5);
	assert_int_equal(vfs_read_buf(f, buf, sizeof(buf), 0), 11);
	assert_memory_equal(buf, "HELLO world", 11);
	assert_int_equal(m->ops->sync(m, 0, PAGE_SIZE), 0);
	assert_int_equal(host_read(e, "f", buf, sizeof(buf)), 11);
	assert_memory_equal(buf, "HELLO world", 11);
	/* Writes are seen through the mapping at once. */
	assert_int_equal(put(f, "WORLD!", 6), 6);
	assert_memory_equal(p, "HELLO WORLD!", 13);
	/* Beyond the end: SIGBUS; a cut page's tail reads as zero, also after growing again. */
	assert_int_equal(touch(m, PAGE_SIZE, false, &p), -EFAULT);
	assert_int_equal(vfs_ftruncate(f, 5), 0);
	assert_int_equal(touch(m, 0, true, &p), 0);
	assert_memory_equal(p, "HELLO\0\0\0\0\0\0", 12);
	assert_true(w.invalidated > 0 && w.private_too > 0);
	assert_int_equal(vfs_ftruncate(f, 3 * PAGE_SIZE), 0);
	assert_int_equal(touch(m, 2 * PAGE_SIZE + 7, true, &p), 0);
	*p = 'x';
	m->ops->remove(m, &w.m); /* the last writable mapping: written back */
	m->ops->put(m);
	file_put(f);
	f = open_file(e, "/f", O_RDONLY);
	assert_int_equal(vfs_read_buf(f, buf, 1, 2 * PAGE_SIZE + 7), 1);
	assert_int_equal(buf[0], 'x');
	file_put(f);
	env_free(e);
}

static void test_big(void **state)
{
	struct env *e = env_new(false);
	const size_t size = 3UL << 20;
	u32 *data = malloc(size), *p;
	struct mappable *m;
	struct file *f;

	for (size_t i = 0; i < size / 4; i++)
		data[i] = (u32)i;
	host_write(e, "big", data, size);
	f = open_file(e, "/big", O_RDONLY);
	assert_int_equal(f->ops->mappable(f, &m), 0);
	srandom(3);
	for (int i = 0; i < 2000; i++) {
		size_t at = (size_t)random() % (size / 4);

		assert_int_equal(touch(m, at * 4, false, (char **)&p), 0);
		assert_int_equal(*p, at);
	}
	m->ops->put(m);
	file_put(f);
	free(data);
	env_free(e);
}

static void test_copy_up(void **state)
{
	struct env *e = env_new(true);
	struct mappable *m, *m2;
	struct file *f, *g;
	struct watcher w;
	char *p;

	host_write(e, "lib", "lower text", 10);
	f = open_file(e, "/lib", O_RDONLY);
	assert_int_equal(f->ops->mappable(f, &m), 0);
	watch(&w, PAGE_SIZE, false);
	assert_int_equal(m->ops->add(m, &w.m), 0);
	assert_int_equal(touch(m, 0, false, &p), 0);
	assert_memory_equal(p, "lower text", 10);
	assert_int_equal(touch(m, 0, true, &p), -EFAULT);
	g = open_file(e, "/lib", O_RDWR);
	assert_int_equal(w.invalidated, 1);
	assert_int_equal(w.private_too, 0);
	assert_int_equal(put(g, "UPPER", 0), 5);
	assert_int_equal(touch(m, 0, false, &p), 0);
	assert_memory_equal(p, "UPPER text", 10);
	assert_int_equal(g->ops->mappable(g, &m2), 0);
	assert_ptr_equal(m, m2);
	assert_int_equal(vfs_ftruncate(g, 0), 0);
	assert_true(w.invalidated > 1 && w.private_too > 0);
	assert_int_equal(touch(m, 0, false, &p), -EFAULT);
	m->ops->remove(m, &w.m);
	m->ops->put(m);
	m2->ops->put(m2);
	file_put(f);
	file_put(g);
	env_free(e);
}

/* Pages of files that nobody maps make room when the memory file is full. */
static u64 reclaim(void *arg, u64 bytes)
{
	++*(int *)arg;
	return hostfs_reclaim(bytes);
}

static void test_reclaim(void **state)
{
	struct env *e = env_new(false);
	const size_t size = 3UL << 20;
	char *data = calloc(1, size), name[16], *p;
	int calls = 0;

	pgalloc_free(e->memory);
	assert_int_equal(pgalloc_new_memfd(0, 8UL << 20, &e->memory), 0);
	pgalloc_set_reclaim(e->memory, reclaim, &calls);
	for (int i = 0; i < 6; i++) {
		struct mappable *m;
		struct watcher w;
		struct file *f;

		snprintf(name, sizeof(name), "f%d", i);
		memset(data, 'a' + i, size);
		host_write(e, name, data, size);
		snprintf(name, sizeof(name), "/f%d", i);
		f = open_file(e, name, O_RDWR);
		assert_int_equal(f->ops->mappable(f, &m), 0);
		watch(&w, size, true);
		assert_int_equal(m->ops->add(m, &w.m), 0);
		for (size_t at = 0; at < size; at += PAGE_SIZE) {
			assert_int_equal(touch(m, at, false, &p), 0);
			assert_int_equal(*p, 'a' + i);
		}
		m->ops->remove(m, &w.m);
		m->ops->put(m);
		file_put(f);
	}
	assert_true(calls > 0);
	free(data);
	env_free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_coherent),
		cmocka_unit_test(test_big),
		cmocka_unit_test(test_copy_up),
		cmocka_unit_test(test_reclaim),
	};

	safecopy_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
