/* unit: base pgalloc vfs tmpfs */
/* Four threads at once on one tree: no crash, no deadlock, nothing left over. Sanitizers and
 * -DMINISENTRY_DEBUG make it strict. */
#include "base/safecopy.h"
#include "tmpfs/tmpfs.h"
#include "vfs/hostfs.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define OPS 6000

/* Two directories are locked in one order or the other as renames move them: the thread sanitizer
 * calls every such pair a deadlock. The ranks (-DMINISENTRY_DEBUG) check what can be checked. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "detect_deadlocks=0";
}

struct env {
	char dir[64];
	struct pgalloc *memory;
	struct vfs_memory_ops ops;
	struct mount_ns *ns;
	struct path root;
	const struct cred *cred;
};

struct worker {
	struct env *e;
	struct walk_context w;
	u64 rng;
	pthread_t thread;
};

static u32 rnd(struct worker *k, u32 n)
{
	k->rng = k->rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)(k->rng >> 33) % n;
}

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

/* Directories /0../3, in them files and directories 0..5. */
static void random_path(struct worker *k, char *dst)
{
	int depth = 1 + (int)rnd(k, 3);

	*dst = '\0';
	for (int i = 0; i < depth; i++) {
		char part[4] = { '/', (char)('0' + rnd(k, i ? 6 : 4)), '\0' };

		strcat(dst, part);
	}
}

static void use_file(struct worker *k, struct file *f)
{
	char buf[300] = "some text that goes into files";
	struct translation t;
	struct mappable *m;
	struct iovec one;
	struct kiov io;

	kiov_init_buf(&io, &one, buf, 1 + rnd(k, sizeof(buf) - 1));
	switch (rnd(k, 4)) {
	case 0: vfs_read(f, &io, NULL, 0); break;
	case 1: vfs_write(f, &io, NULL, 0, UINT64_MAX); break;
	case 2: vfs_ftruncate(f, rnd(k, 9000)); break;
	default:
		if (!f->ops->mappable || f->ops->mappable(f, &m))
			break;
		if (!m->ops->translate(m, 0, 0, 1UL << 20, file_writable(f), &t))
			memfile_put(t.file, t.range);
		m->ops->put(m);
	}
}

static bool count_emit(struct dir_emit *e, const char *name, size_t len, u64 ino, u8 type, u64 next)
{
	return true;
}

static void one_op(struct worker *k)
{
	static const u32 flags[] = { O_RDONLY,
				     O_RDWR,
				     O_RDWR | O_CREAT,
				     O_RDWR | O_CREAT | O_EXCL,
				     O_WRONLY | O_TRUNC,
				     O_RDWR | O_APPEND,
				     O_RDONLY | O_DIRECTORY,
				     O_RDWR | O_TMPFILE };
	struct open_how_k how = { .flags = flags[rnd(k, ARRAY_SIZE(flags))], .mode = 0644 };
	struct iattr attr = { .mask = ATTR_MODE, .mode = 0600 };
	struct dir_emit emit = { count_emit };
	char a[16], b[16], text[PATH_MAX];
	struct file *f;
	struct path p;

	random_path(k, a);
	random_path(k, b);
	switch (rnd(k, 10)) {
	case 0: vfs_mkdir(&k->w, a, 0755); break;
	case 1: vfs_unlink(&k->w, a); break;
	case 2: vfs_rmdir(&k->w, a); break;
	case 3: vfs_rename(&k->w, a, &k->w, b, 0); break;
	case 4: vfs_rename(&k->w, a, &k->w, b, RENAME_EXCHANGE); break;
	case 5: vfs_symlink(&k->w, b, a); break;
	case 6:
		if (vfs_walk(&k->w, a, 0, &p))
			break;
		vfs_link(&p, &k->w, b);
		path_text(&p, &k->w.root, text, sizeof(text));
		path_put(&p);
		break;
	case 7:
		if (vfs_walk(&k->w, a, 0, &p))
			break;
		vfs_setattr(&p, k->w.cred, &attr);
		path_put(&p);
		break;
	default:
		if (vfs_open(&k->w, a, &how, &f))
			break;
		if (inode_is_dir(f->inode))
			vfs_iterate(f, &emit);
		else
			use_file(k, f);
		file_put(f);
	}
}

static void *work(void *arg)
{
	struct worker *k = arg;

	for (int i = 0; i < OPS; i++)
		one_op(k);
	return NULL;
}

static void run(bool overlay, bool host_content)
{
	struct env *e = calloc(1, sizeof(*e));
	struct hostfs_options ho = { .read_only = overlay, .memory = &e->ops };
	struct worker k[THREADS] = { 0 };
	struct superblock *sb;
	char cmd[512];

	strcpy(e->dir, "/tmp/stressXXXXXX");
	assert_non_null(mkdtemp(e->dir));
	snprintf(cmd, sizeof(cmd),
		 "cd %s && for i in 0 1 2 3; do mkdir -p $i/0/1 $i/1/0; echo $i > $i/2; ln $i/2 "
		 "$i/3; "
		 "ln -s 2 $i/4; echo x > $i/0/5; done",
		 e->dir);
	if (host_content)
		assert_int_equal(system(cmd), 0);
	e->ops = (struct vfs_memory_ops){ .allocate = allocate, .arg = e };
	assert_int_equal(pgalloc_new_memfd(0, 1UL << 30, &e->memory), 0);
	ho.root_fd = open(e->dir, O_PATH | O_DIRECTORY);
	ho.host_uid = getuid();
	ho.guest_uid = getuid();
	assert_int_equal(hostfs_new(&ho, &sb), 0);
	if (overlay) {
		struct tmpfs_options to = { .store = e->memory,
					    .mode = 0755,
					    .allow_any_xattr = true };
		struct overlay_options oo = { .lower = sb };

		assert_int_equal(tmpfs_new(&to, &oo.upper), 0);
		assert_int_equal(overlay_new(&oo, &sb), 0);
		superblock_put(oo.upper);
		superblock_put(oo.lower);
	}
	assert_int_equal(mount_ns_new(sb, 0, &e->ns), 0);
	superblock_put(sb);
	mount_ns_root(e->ns, &e->root);
	e->cred = cred_new(0, 0, ~0ULL);
	for (int i = 0; i < THREADS; i++) {
		k[i] = (struct worker){ .e = e, .rng = (u64)i * 77 + 5 };
		k[i].w = (struct walk_context){ .cred = e->cred, .root = e->root, .cwd = e->root };
		pthread_create(&k[i].thread, NULL, work, &k[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(k[i].thread, NULL);
	path_put(&e->root);
	mount_ns_put(e->ns);
	cred_put(e->cred);
	pgalloc_free(e->memory);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", e->dir);
	assert_int_equal(system(cmd), 0);
	free(e);
}

static void test_overlay(void **state)
{
	run(true, true);
}

static void test_overlay_empty(void **state)
{
	run(true, false);
}

static void test_host(void **state)
{
	run(false, true);
}

/* Everything that the other tests made is gone again (debug builds count). */
static void test_leaks(void **state)
{
	assert_int_equal(refs_report_leaks(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overlay),
		cmocka_unit_test(test_overlay_empty),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_leaks),
	};

	safecopy_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
