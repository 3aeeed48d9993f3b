/* unit: sentry tmpfs mm platform pgalloc vfs base */
/* Descriptor lookups without a lock, while others open, close and replace: what is found in a slot
 * was put there, though the memory of files is used again at once. */
#include "sentry/fd/fdtable.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>

#define WRITERS 2
#define READERS 2
#define SLOTS 300 /* several times the first size of a table */
#define ROUNDS 300000

static struct fd_table *table;
static struct inode *inode;
static struct cred *cred;
static _Atomic int writing = WRITERS;
static _Atomic u32 released, found;

static void count_release(struct file *f)
{
	atomic_fetch_add(&released, 1);
}

static const struct file_ops ops = { .kind = "test", .release = count_release };

/* The file that slot fd may hold: private says which. */
static struct file *file_for(int fd)
{
	struct file *f;

	assert_int_equal(file_new(inode, NULL, O_RDWR, cred, &ops, (void *)(uintptr_t)fd, &f), 0);
	return f;
}

static u32 next(u32 *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

static void *write_slots(void *arg)
{
	u32 seed = (u32)(uintptr_t)arg;

	for (int i = 0; i < ROUNDS; i++) {
		int fd = (int)(next(&seed) % SLOTS);

		if (next(&seed) % 2) {
			fd_close(table, fd);
		} else if (next(&seed) % 2) {
			struct file *f = file_for(fd);

			if (fd_replace(table, fd, f, false, SLOTS) < 0)
				file_put(f);
		} else {
			fd = fd_reserve(table, fd, SLOTS);
			if (fd >= 0)
				fd_install_reserved(table, fd, file_for(fd), false);
		}
		if (i % 16 == 0)
			file_discard(file_for(fd));
	}
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

static void *read_slots(void *arg)
{
	u32 seed = (u32)(uintptr_t)arg;

	while (atomic_load(&writing)) {
		int fd = (int)(next(&seed) % SLOTS);
		struct file *f = fd_get(table, fd);

		if (!f)
			continue;
		assert_ptr_equal(f->private, (void *)(uintptr_t)fd);
		atomic_fetch_add(&found, 1);
		file_put(f);
	}
	return NULL;
}

static void test_race(void **state)
{
	pthread_t t[WRITERS + READERS];
	struct fd_table *copy;

	cred = cred_new(0, 0, 0);
	assert_int_equal(vfs_anon_inode("test", 0600, cred, &inode), 0);
	table = fd_table_new();
	for (int i = 0; i < WRITERS + READERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, i < WRITERS ? write_slots : read_slots,
						(void *)(uintptr_t)(i + 1)),
				 0);
	for (int i = 0; i < WRITERS + READERS; i++)
		pthread_join(t[i], NULL);
	assert_true(atomic_load(&found) > 0);
	copy = fd_table_dup(table);
	assert_int_equal(fd_count(copy), fd_count(table));
	fd_table_put(copy);
	fd_table_put(table);
	assert_true(atomic_load(&released) > 0);
	assert_int_equal(refs_read(&inode->refs), 1);
	inode_put(inode);
	cred_put(cred);
}

/* A reference is taken only while another table's user could close the file. */
static void test_borrow(void **state)
{
	struct fd_ref r;
	struct file *f;
	int fd;

	cred = cred_new(0, 0, 0);
	assert_int_equal(vfs_anon_inode("test", 0600, cred, &inode), 0);
	table = fd_table_new();
	f = file_for(0);
	fd = fd_install(table, f, 0, false, SLOTS);
	assert_int_equal(fd, 0);
	r = fd_ref(table, fd);
	assert_ptr_equal(r.file, f);
	assert_false(r.counted);
	fd_ref_put(r);
	assert_int_equal(refs_read(&f->refs), 1);
	fd_table_get(table);
	r = fd_ref(table, fd);
	assert_true(r.counted);
	assert_int_equal(refs_read(&f->refs), 2);
	fd_ref_put(r);
	fd_table_put(table);
	assert_null(fd_ref(table, 1).file);
	assert_null(fd_ref(table, -1).file);
	assert_null(fd_ref_any(table, 1 << 20).file);
	fd_table_put(table);
	inode_put(inode);
	cred_put(cred);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_borrow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
