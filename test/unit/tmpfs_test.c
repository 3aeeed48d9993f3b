/* unit: tmpfs vfs pgalloc base */
/* tmpfs against a naive model, its limits, accounting, directories, xattrs and seals. */
#include "base/host_mem.h"
#include "base/safecopy.h"
#include "tmpfs/tmpfs.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <dirent.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/memfd.h>
#include <linux/xattr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_MAX (12UL << 20)

enum backing { MEMORY, DISK, LARGE };

static struct pgalloc *store;
static struct superblock *sb;
static const struct cred *root;

static u64 rnd(void)
{
	static u64 x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

static void make_sb(u64 size_limit, u64 inode_limit, enum backing backing)
{
	struct tmpfs_options o = { .size_limit = size_limit,
				   .inode_limit = inode_limit,
				   .mode = 01777 };

	if (backing == DISK) {
		char path[] = "/tmp/tmpfs-test-XXXXXX";
		int fd = mkstemp(path);

		assert_true(fd >= 0);
		unlink(path);
		assert_int_equal(pgalloc_new(fd, true, 0, 1UL << 32, &store), 0);
	} else {
		assert_int_equal(pgalloc_new_memfd(0, 1UL << 32, &store), 0);
	}
	/* Its pages are small here: nothing but speed depends on that. */
	if (backing == LARGE)
		assert_int_equal(pgalloc_add_large(store, host_memfd_create("large"), 1), 0);
	o.store = store;
	assert_int_equal(tmpfs_new(&o, &sb), 0);
	root = cred_new(0, 0, ~0ULL);
}

/* Everything goes back: the memory file ends as it began. */
static void drop_sb(void)
{
	struct pgalloc_usage u;

	superblock_drop_root(sb);
	superblock_put(sb);
	pgalloc_usage(store, &u);
	assert_int_equal(u.reserved, 0);
	assert_int_equal(u.committed, 0);
	pgalloc_free(store);
	cred_put(root);
}

static struct inode *create(struct inode *dir, const char *name, u32 mode)
{
	struct inode_create how = { .mode = mode };
	struct inode *i;
	int err;

	rwlock_wrlock(&dir->dir_lock);
	err = dir->ops->create(dir, name, &how, &i);
	rwlock_unlock(&dir->dir_lock);
	assert_int_equal(err, 0);
	return i;
}

static int unlink_name(struct inode *dir, const char *name, struct inode *i)
{
	int err;

	rwlock_wrlock(&dir->dir_lock);
	if (inode_is_dir(i))
		rwlock_wrlock_nested(&i->dir_lock);
	err = inode_is_dir(i) ? dir->ops->rmdir(dir, name, i) : dir->ops->unlink(dir, name, i);
	if (inode_is_dir(i))
		rwlock_unlock(&i->dir_lock);
	rwlock_unlock(&dir->dir_lock);
	return err;
}

static struct file *open_inode(struct inode *i, u32 flags)
{
	struct file *f;

	assert_int_equal(file_new(i, NULL, flags, root, NULL, NULL, &f), 0);
	assert_int_equal(i->ops->open(i, f), 0);
	return f;
}

static ssize_t do_write(struct file *f, const void *buf, size_t n, u64 off)
{
	return vfs_write_buf(f, buf, n, off);
}

static u64 used_pages(void)
{
	struct statfs st;

	sb->ops->statfs(sb, &st);
	return st.f_blocks - st.f_bfree;
}

/* ---- data against a model ---- */

struct model {
	u8 data[MODEL_MAX];
	u64 size;
	u64 max;    /* how much of data is used */
	u64 cursor; /* of writes that follow each other */
};

static void check_read(struct file *f, struct model *m, u64 off, u64 len)
{
	static u8 buf[MODEL_MAX];
	u64 want = off < m->size ? MIN(len, m->size - off) : 0;

	memset(buf, 0xee, len);
	assert_int_equal(vfs_read_buf(f, buf, len, off), want);
	assert_memory_equal(buf, m->data + off, want);
}

static void model_write(struct file *f, struct model *m, u64 off, u64 len)
{
	static u8 buf[MODEL_MAX];

	for (u64 i = 0; i < len; i++)
		buf[i] = (u8)rnd();
	assert_int_equal(do_write(f, buf, len, off), len);
	if (off > m->size)
		memset(m->data + m->size, 0, off - m->size);
	memcpy(m->data + off, buf, len);
	m->size = MAX(m->size, off + len);
}

/* Writes of one length, one behind the other: what opens windows. */
static void model_run(struct file *f, struct model *m)
{
	u64 len = rnd() % 2 ? PAGE_SIZE : 1 + rnd() % 100000;

	if (m->cursor + len > m->max || rnd() % 8 == 0)
		m->cursor = rnd() % 2 ? 0 : page_down(rnd() % m->max);
	for (int n = 0; n < 60 && m->cursor + len <= m->max; n++, m->cursor += len) {
		model_write(f, m, m->cursor, len);
		if (rnd() % 30 == 0)
			return;
	}
}

static void model_step(struct file *f, struct model *m)
{
	u64 off = rnd() % m->max, len = 1 + rnd() % (rnd() % 4 ? 9000 : m->max / 5);
	struct iattr attr = { .mask = ATTR_SIZE };

	len = MIN(len, m->max - off);
	switch (rnd() % 12) {
	case 0 ... 3:
		if (rnd() % 4 == 0)
			model_run(f, m);
		else
			model_write(f, m, off, len);
		break;
	case 4:
		attr.size = rnd() % 3 ? off : rnd() % 10000;
		assert_int_equal(f->inode->ops->setattr(f->inode, &attr), 0);
		if (attr.size > m->size)
			memset(m->data + m->size, 0, attr.size - m->size);
		m->size = attr.size;
		break;
	case 5:
		assert_int_equal(f->ops->fallocate(f, 0, off, len), 0);
		if (off + len > m->size) {
			memset(m->data + m->size, 0, off + len - m->size);
			m->size = off + len;
		}
		break;
	case 6: assert_int_equal(f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE, off, len), 0); break;
	case 7:
		assert_int_equal(
			f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, off, len),
			0);
		if (off < m->size)
			memset(m->data + off, 0, MIN(len, m->size - off));
		break;
	default: check_read(f, m, off, len);
	}
}

/* What a hole's seek says must agree with what is allocated: data is never reported as a hole. */
static void check_holes(struct file *f, struct model *m)
{
	u64 pos = 0;

	while (pos < m->size) {
		s64 data = f->ops->seek(f, (s64)pos, SEEK_DATA), hole;

		for (u64 i = pos; i < (data < 0 ? m->size : (u64)data); i++)
			assert_int_equal(m->data[i], 0);
		if (data < 0)
			break;
		hole = f->ops->seek(f, data, SEEK_HOLE);
		assert_true(hole > data);
		pos = (u64)hole;
	}
}

static void data_model(enum backing backing, u64 max, int rounds)
{
	struct model *m = calloc(1, sizeof(*m));
	struct inode *i;
	struct file *f;
	struct kstat st;

	m->max = max;
	make_sb(64UL << 20, 0, backing);
	i = create(sb->root, "file", S_IFREG | 0644);
	f = open_inode(i, O_RDWR);
	for (int n = 0; n < rounds; n++) {
		model_step(f, m);
		if (n % 100 == 0) {
			check_read(f, m, 0, m->max);
			check_holes(f, m);
			i->ops->getattr(i, &st);
			assert_int_equal(st.size, m->size);
			assert_int_equal(st.blocks / 8, used_pages());
		}
	}
	check_read(f, m, 0, m->max);
	file_put(f);
	assert_int_equal(unlink_name(sb->root, "file", i), 0);
	inode_put(i);
	assert_int_equal(used_pages(), 0);
	drop_sb();
	free(m);
}

static void test_data_model(void **s)
{
	data_model(MEMORY, 1UL << 20, 20000);
}

static void test_data_model_disk(void **s)
{
	data_model(DISK, 1UL << 20, 3000);
}

/* Long enough for the large memory file. */
static void test_data_model_large(void **s)
{
	data_model(LARGE, MODEL_MAX, 1500);
}

static void test_large_pages(void **s)
{
	static u8 block[64 << 10];
	struct pgalloc_usage u;
	struct inode *i;
	struct file *f;

	make_sb(64UL << 20, 0, LARGE);
	i = create(sb->root, "f", S_IFREG | 0644);
	f = open_inode(i, O_RDWR);
	/* Whole units of a reservation, and the ends in small pages. */
	assert_int_equal(f->ops->fallocate(f, 0, 4096, 6UL << 20), 0);
	pgalloc_usage(pgalloc_large(store), &u);
	assert_int_equal(u.reserved, 4UL << 20);
	pgalloc_usage(store, &u);
	assert_int_equal(u.reserved, 6UL << 20);
	assert_int_equal(u.committed, 6UL << 20);
	assert_int_equal(used_pages(), (6UL << 20) / 4096);
	assert_int_equal(
		f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 16UL << 20), 0);
	pgalloc_usage(store, &u);
	assert_int_equal(u.reserved, 0);
	assert_int_equal(u.committed, 0);
	/* A run: its window is no part of the file, and ends with it. */
	for (u64 at = 0; at < (5UL << 20); at += sizeof(block))
		assert_int_equal(do_write(f, block, sizeof(block), at), sizeof(block));
	assert_int_equal(used_pages(), (5UL << 20) / 4096);
	pgalloc_usage(store, &u);
	assert_int_equal(u.reserved, 6UL << 20);
	file_put(f);
	pgalloc_usage(store, &u);
	assert_int_equal(u.reserved, 5UL << 20);
	assert_int_equal(u.committed, 5UL << 20);
	assert_int_equal(unlink_name(sb->root, "f", i), 0);
	inode_put(i);
	drop_sb();
}

static void test_append(void **s)
{
	static u8 block[10000], back[sizeof(block)];
	struct inode *i;
	struct file *f;
	u64 pos = 0;
	struct kstat st;

	make_sb(64UL << 20, 0, MEMORY);
	i = create(sb->root, "log", S_IFREG | 0644);
	f = open_inode(i, O_RDWR);
	for (int n = 0; n < 2000; n++) {
		size_t len = 1 + rnd() % sizeof(block);

		memset(block, n, len);
		assert_int_equal(do_write(f, block, len, pos), len);
		pos += len;
		i->ops->getattr(i, &st);
		assert_int_equal(st.blocks / 8, (pos + 4095) / 4096);
	}
	assert_int_equal(vfs_read_buf(f, back, 1, pos - 1), 1);
	assert_int_equal(back[0], (u8)1999);
	file_put(f);
	inode_put(i);
	drop_sb();
}

/* ---- limits ---- */

static void test_limits(void **s)
{
	static u8 buf[1 << 20];
	struct iattr attr = { .mask = ATTR_SIZE, .size = 1UL << 30 };
	struct inode *i, *extra;
	struct inode_create how = { .mode = S_IFREG };
	struct file *f;

	make_sb(64 * PAGE_SIZE, 3, MEMORY);
	i = create(sb->root, "f", S_IFREG | 0644);
	f = open_inode(i, O_RDWR);
	assert_int_equal(i->ops->setattr(i, &attr), 0); /* sparse beyond the limit is fine */
	assert_int_equal(do_write(f, buf, 1, 512UL << 20), 1);
	assert_int_equal(used_pages(), 1);
	assert_int_equal(f->ops->fallocate(f, 0, 0, 1UL << 40), -ENOSPC);
	assert_int_equal(f->ops->fallocate(f, 0, 0, 1UL << 62), -ENOSPC);
	assert_int_equal(f->ops->fallocate(f, 0, 1UL << 62, 1UL << 62), -EFBIG);
	assert_int_equal(used_pages(), 1);
	/* A large write takes what there is. */
	assert_int_equal(do_write(f, buf, sizeof(buf), 0), 63 * PAGE_SIZE);
	assert_int_equal(do_write(f, buf, 1, 1 << 20), -ENOSPC);
	assert_int_equal(used_pages(), 64);
	assert_int_equal(
		f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 10 * PAGE_SIZE),
		0);
	assert_int_equal(used_pages(), 54);
	assert_int_equal(f->ops->fallocate(f, FALLOC_FL_ZERO_RANGE, 0, 1), -EOPNOTSUPP);
	assert_int_equal(f->ops->fallocate(f, FALLOC_FL_PUNCH_HOLE, 0, 1), -EOPNOTSUPP);
	/* root, f and one more inode */
	extra = create(sb->root, "g", S_IFREG);
	rwlock_wrlock(&sb->root->dir_lock);
	assert_int_equal(sb->root->ops->create(sb->root, "h", &how, &extra), -ENOSPC);
	assert_int_equal(sb->root->ops->link(sb->root, "h", i), -ENOSPC);
	rwlock_unlock(&sb->root->dir_lock);
	assert_int_equal(unlink_name(sb->root, "g", extra), 0);
	inode_put(extra);
	rwlock_wrlock(&sb->root->dir_lock);
	assert_int_equal(sb->root->ops->link(sb->root, "h", i), 0);
	rwlock_unlock(&sb->root->dir_lock);
	assert_int_equal(i->nlink, 2);
	assert_int_equal(unlink_name(sb->root, "h", i), 0);
	extra = create(sb->root, "again", S_IFREG);
	inode_put(extra);
	file_put(f);
	inode_put(i);
	drop_sb();
}

static void test_options(void **s)
{
	struct tmpfs_options o = { 0 };

	assert_int_equal(tmpfs_parse_options("", 1UL << 30, &o), 0);
	assert_int_equal(o.size_limit, 1UL << 29);
	assert_int_equal(
		tmpfs_parse_options("size=10m,mode=1777,nr_inodes=2k,uid=5,gid=6", 1UL << 30, &o),
		0);
	assert_int_equal(o.size_limit, 10UL << 20);
	assert_int_equal(o.mode, 01777);
	assert_int_equal(o.inode_limit, 2048);
	assert_int_equal(o.uid, 5);
	assert_int_equal(o.gid, 6);
	assert_int_equal(tmpfs_parse_options("size=50%", 1000UL << 20, &o), 0);
	assert_int_equal(o.size_limit, 500UL << 20);
	assert_int_equal(tmpfs_parse_options("size=10x", 1UL << 30, &o), -EINVAL);
	assert_int_equal(tmpfs_parse_options("size", 1UL << 30, &o), -EINVAL);
	assert_int_equal(tmpfs_parse_options("nonsense=1", 1UL << 30, &o), -EINVAL);
	assert_int_equal(tmpfs_parse_options("size=99999999999999999999", 1UL << 30, &o), -EINVAL);
	assert_int_equal(tmpfs_parse_options("size=17179869184g", 1UL << 30, &o), -EINVAL);
}

/* ---- directories ---- */

struct list_all {
	struct dir_emit emit;
	int max, count;
	char names[64][32];
};

static bool emit_name(struct dir_emit *e, const char *name, size_t len, u64 ino, u8 type, u64 next)
{
	struct list_all *l = container_of(e, struct list_all, emit);

	if (l->count == l->max)
		return false;
	snprintf(l->names[l->count++], 32, "%s", name);
	return true;
}

/* rm -rf's pattern: read some, remove them, read on; every name exactly once, none added later. */
static void test_readdir_while_removing(void **s)
{
	struct list_all l = { .emit.emit = emit_name, .max = 7 };
	int seen = 0, added = 0;
	u64 pos = 0;
	struct file *f;

	make_sb(0, 0, MEMORY);
	for (int i = 0; i < 1000; i++) {
		char name[32];

		snprintf(name, sizeof(name), "n%d", i);
		inode_put(create(sb->root, name, i % 5 ? S_IFREG : S_IFDIR));
	}
	assert_int_equal(sb->root->nlink, 2 + 200);
	assert_int_equal(sb->root->size, 20 * 1002);
	f = open_inode(sb->root, O_RDONLY | O_DIRECTORY);
	do {
		l.count = 0;
		assert_int_equal(f->ops->iterate(f, &l.emit, &pos), 0);
		for (int i = 0; i < l.count; i++) {
			struct inode *c;

			if (l.names[i][0] == '.')
				continue;
			assert_int_equal(l.names[i][0], 'n');
			seen++;
			rwlock_rdlock(&sb->root->dir_lock);
			assert_int_equal(sb->root->ops->lookup(sb->root, l.names[i], &c), 0);
			rwlock_unlock(&sb->root->dir_lock);
			assert_int_equal(unlink_name(sb->root, l.names[i], c), 0);
			inode_put(c);
		}
		if (added < 100) {
			char name[32];

			snprintf(name, sizeof(name), "later%d", added++);
			inode_put(create(sb->root, name, S_IFREG));
		}
	} while (l.count);
	assert_int_equal(seen, 1000);
	assert_int_equal(sb->root->nlink, 2);
	file_put(f);
	drop_sb();
}

static int rename_name(struct inode *from, const char *a, struct inode *src, struct inode *to,
		       const char *b, struct inode *target, u32 flags)
{
	int err;

	rwlock_wrlock(&from->dir_lock);
	if (to != from)
		rwlock_wrlock_nested(&to->dir_lock);
	err = from->ops->rename(from, a, src, to, b, target, flags);
	if (to != from)
		rwlock_unlock(&to->dir_lock);
	rwlock_unlock(&from->dir_lock);
	return err;
}

static void test_rename(void **s)
{
	struct inode *d1, *d2, *f, *g, *sub, *found;

	make_sb(0, 0, MEMORY);
	d1 = create(sb->root, "d1", S_IFDIR | 0755);
	d2 = create(sb->root, "d2", S_IFDIR | 0755);
	f = create(d1, "f", S_IFREG);
	g = create(d2, "g", S_IFREG);
	sub = create(d1, "sub", S_IFDIR);
	assert_int_equal(d1->nlink, 3);
	assert_int_equal(rename_name(d1, "f", f, d2, "g", g, RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(rename_name(d1, "f", f, d2, "g", g, 0), 0);
	assert_int_equal(g->nlink, 0);
	assert_int_equal(rename_name(d1, "sub", sub, d2, "g", f, RENAME_EXCHANGE), 0);
	assert_int_equal(d1->nlink, 2);
	assert_int_equal(d2->nlink, 3);
	assert_int_equal(rename_name(d1, "sub", f, sb->root, "x", NULL, RENAME_WHITEOUT), 0);
	rwlock_rdlock(&d1->dir_lock);
	assert_int_equal(d1->ops->lookup(d1, "sub", &found), 0);
	rwlock_unlock(&d1->dir_lock);
	assert_int_equal(found->type, S_IFCHR);
	inode_put(found);
	/* A directory over an empty one, and over one that is not. */
	assert_int_equal(rename_name(d2, "g", sub, sb->root, "d1", d1, 0), -ENOTEMPTY);
	assert_int_equal(rename_name(sb->root, "d1", d1, d2, "g", sub, 0), 0);
	assert_int_equal(sub->nlink, 0);
	assert_int_equal(d2->nlink, 3);
	assert_int_equal(sb->root->nlink, 3);
	inode_put(d1);
	inode_put(d2);
	inode_put(f);
	inode_put(g);
	inode_put(sub);
	drop_sb();
}

/* Tearing down a tree deeper than any stack. */
static void test_deep_tree(void **s)
{
	struct inode *d;

	make_sb(0, 0, MEMORY);
	d = inode_get(sb->root);
	for (int i = 0; i < 200000; i++) {
		struct inode *c = create(d, "d", S_IFDIR | 0755);

		inode_put(d);
		d = c;
	}
	inode_put(d);
	drop_sb();
}

/* ---- xattrs ---- */

static void test_xattr(void **s)
{
	static char big[XATTR_SIZE_MAX], out[64];
	struct inode *i, *l;
	struct inode_create how = { 0 };
	struct file *f;
	int n = 0, err;

	make_sb(0, 0, MEMORY);
	i = create(sb->root, "f", S_IFREG);
	assert_int_equal(i->ops->getxattr(i, "security.capability", out, sizeof(out)), -ENODATA);
	assert_int_equal(i->ops->setxattr(i, "user.a", "xyz", 3, XATTR_REPLACE), -ENODATA);
	assert_int_equal(i->ops->setxattr(i, "user.a", "xyz", 3, XATTR_CREATE), 0);
	assert_int_equal(i->ops->setxattr(i, "user.a", "xyz", 3, XATTR_CREATE), -EEXIST);
	assert_int_equal(i->ops->getxattr(i, "user.a", NULL, 0), 3);
	assert_int_equal(i->ops->getxattr(i, "user.a", out, 2), -ERANGE);
	assert_int_equal(i->ops->setxattr(i, "system.posix_acl_access", "x", 1, 0), -EOPNOTSUPP);
	assert_int_equal(i->ops->setxattr(i, "bogus.x", "x", 1, 0), -EOPNOTSUPP);
	assert_int_equal(i->ops->setxattr(i, "user.empty", NULL, 0, 0), 0);
	assert_int_equal(i->ops->listxattr(i, NULL, 0), 7 + 11);
	assert_int_equal(i->ops->listxattr(i, out, 10), -ERANGE);
	assert_int_equal(i->ops->removexattr(i, "user.empty"), 0);
	assert_int_equal(i->ops->removexattr(i, "user.empty"), -ENODATA);
	do {
		char name[32];

		snprintf(name, sizeof(name), "user.big%d", n++);
		err = i->ops->setxattr(i, name, big, sizeof(big), 0);
	} while (!err);
	assert_int_equal(err, -ENOSPC);
	assert_true(n < 20);
	/* New content is not what the capability was given for. */
	assert_int_equal(i->ops->setxattr(i, "security.capability", "cap", 3, 0), 0);
	f = open_inode(i, O_RDWR);
	assert_int_equal(do_write(f, "x", 1, 0), 1);
	file_put(f);
	assert_int_equal(i->ops->getxattr(i, "security.capability", out, sizeof(out)), -ENODATA);
	rwlock_wrlock(&sb->root->dir_lock);
	assert_int_equal(sb->root->ops->symlink(sb->root, "l", "target", &how, &l), 0);
	rwlock_unlock(&sb->root->dir_lock);
	assert_int_equal(l->ops->setxattr(l, "user.a", "x", 1, 0), -EPERM);
	assert_int_equal(l->ops->readlink(l, out, sizeof(out)), 6);
	assert_string_equal(out, "target");
	inode_put(l);
	inode_put(i);
	drop_sb();
}

/* ---- mappings and seals ---- */

struct fake_mapping {
	struct mapping m;
	int calls, refs;
	u64 start, end;
	bool private_too;
	struct mappable *reenter; /* proves that no lock is held */
};

static void fake_invalidate(struct mapping *m, u64 start, u64 end, bool private_too)
{
	struct fake_mapping *f = container_of(m, struct fake_mapping, m);
	struct translation tr;

	f->calls++;
	f->start = start;
	f->end = end;
	f->private_too = private_too;
	if (f->reenter && f->reenter->ops->translate(f->reenter, 0, 0, PAGE_SIZE, false, &tr) == 0)
		memfile_put(tr.file, tr.range);
}

static bool fake_tryget(struct mapping *m)
{
	container_of(m, struct fake_mapping, m)->refs++;
	return true;
}

static void fake_put(struct mapping *m)
{
	container_of(m, struct fake_mapping, m)->refs--;
}

static struct fake_mapping new_mapping(u64 start, u64 end, bool shared, bool writable)
{
	return (struct fake_mapping){ .m = { .start = start,
					     .end = end,
					     .shared = shared,
					     .writable = writable,
					     .invalidate = fake_invalidate,
					     .tryget = fake_tryget,
					     .put = fake_put } };
}

static void test_mapping(void **s)
{
	struct iattr attr = { .mask = ATTR_SIZE, .size = 100 * PAGE_SIZE };
	struct fake_mapping a = new_mapping(0, 50 * PAGE_SIZE, true, true),
			    b = new_mapping(60 * PAGE_SIZE, 100 * PAGE_SIZE, false, false);
	struct translation tr;
	struct mappable *m;
	struct inode *i;
	struct file *f;
	u64 len;
	char c;

	make_sb(0, 0, MEMORY);
	i = create(sb->root, "f", S_IFREG);
	f = open_inode(i, O_RDWR);
	assert_int_equal(i->ops->setattr(i, &attr), 0);
	assert_int_equal(f->ops->mappable(f, &m), 0);
	a.reenter = m;
	assert_int_equal(m->ops->add(m, &a.m), 0);
	assert_int_equal(m->ops->add(m, &b.m), 0);
	assert_int_equal(m->ops->translate(m, 100 * PAGE_SIZE, 0, 200 * PAGE_SIZE, true, &tr),
			 -EFAULT);
	/* A store through the mapping is what read sees. */
	assert_int_equal(m->ops->translate(m, 3 * PAGE_SIZE + 5, 0, 100 * PAGE_SIZE, true, &tr), 0);
	assert_int_equal(tr.offset, 3 * PAGE_SIZE);
	assert_int_equal(mem_range_len(tr.range), PAGE_SIZE);
	*(char *)tr.file->ops->map(tr.file, tr.range.start, &len) = 'm';
	memfile_put(tr.file, tr.range);
	assert_int_equal(vfs_read_buf(f, &c, 1, 3 * PAGE_SIZE), 1);
	assert_int_equal(c, 'm');
	/* Punch: shared pages only, clipped to each mapping. */
	assert_int_equal(f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
					   2 * PAGE_SIZE + 1, 60 * PAGE_SIZE),
			 0);
	assert_int_equal(a.calls, 1);
	assert_int_equal(a.start, 3 * PAGE_SIZE);
	assert_int_equal(a.end, 50 * PAGE_SIZE);
	assert_false(a.private_too);
	attr.size = 5;
	assert_int_equal(i->ops->setattr(i, &attr), 0);
	assert_int_equal(a.calls, 2);
	assert_int_equal(b.calls, 2);
	assert_true(b.private_too);
	assert_int_equal(a.refs, 0);
	assert_int_equal(b.refs, 0);
	m->ops->remove(m, &a.m);
	m->ops->remove(m, &b.m);
	m->ops->put(m);
	file_put(f);
	inode_put(i);
	drop_sb();
}

static void test_seals(void **s)
{
	struct fake_mapping a = new_mapping(0, PAGE_SIZE, true, true),
			    ro = new_mapping(0, PAGE_SIZE, true, false);
	struct iattr attr = { .mask = ATTR_SIZE };
	struct mappable *m;
	char text[64];
	struct file *f;

	make_sb(0, 0, MEMORY);
	assert_int_equal(memfd_create_file(sb, "x", 0x8000, root, &f), -EINVAL);
	assert_int_equal(memfd_create_file(sb, "plain", 0, root, &f), 0);
	assert_int_equal(f->ops->fcntl(f, F_GET_SEALS, 0), F_SEAL_SEAL);
	assert_int_equal(f->ops->fcntl(f, F_ADD_SEALS, F_SEAL_GROW), -EPERM);
	file_put(f);
	assert_int_equal(memfd_create_file(sb, "name", MFD_ALLOW_SEALING, root, &f), 0);
	assert_true(file_text(f, NULL, text, sizeof(text)) > 0);
	assert_string_equal(text, "/memfd:name (deleted)");
	assert_int_equal(do_write(f, "hello", 5, 0), 5);
	assert_int_equal(f->ops->fcntl(f, F_ADD_SEALS, 0x8000), -EINVAL);
	assert_int_equal(f->ops->fcntl(f, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	attr.size = 4;
	assert_int_equal(f->inode->ops->setattr(f->inode, &attr), -EPERM);
	attr.size = 6;
	assert_int_equal(f->inode->ops->setattr(f->inode, &attr), -EPERM);
	assert_int_equal(do_write(f, "!", 1, 5), -EPERM);
	assert_int_equal(do_write(f, "HELLO", 5, 0), 5);
	assert_int_equal(f->ops->fallocate(f, 0, 0, 6), -EPERM);
	assert_int_equal(f->ops->mappable(f, &m), 0);
	assert_int_equal(m->ops->add(m, &a.m), 0);
	assert_int_equal(f->ops->fcntl(f, F_ADD_SEALS, F_SEAL_WRITE), -EBUSY);
	m->ops->remove(m, &a.m);
	assert_int_equal(f->ops->fcntl(f, F_ADD_SEALS, F_SEAL_WRITE), 0);
	assert_int_equal(m->ops->add(m, &a.m), -EPERM);
	assert_int_equal(m->ops->add(m, &ro.m), 0);
	m->ops->remove(m, &ro.m);
	assert_int_equal(do_write(f, "x", 1, 0), -EPERM);
	assert_int_equal(f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 1),
			 -EPERM);
	assert_int_equal(f->ops->fcntl(f, F_GET_SEALS, 0),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
	m->ops->put(m);
	file_put(f);
	assert_int_equal(shmem_new(sb, &(struct shmem_opts){ .len = 10 * PAGE_SIZE }, &m), 0);
	m->ops->put(m);
	drop_sb();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_data_model),
		cmocka_unit_test(test_data_model_disk),
		cmocka_unit_test(test_data_model_large),
		cmocka_unit_test(test_large_pages),
		cmocka_unit_test(test_append),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_readdir_while_removing),
		cmocka_unit_test(test_rename),
		cmocka_unit_test(test_deep_tree),
		cmocka_unit_test(test_xattr),
		cmocka_unit_test(test_mapping),
		cmocka_unit_test(test_seals),
	};

	safecopy_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
