/* unit: base pgalloc vfs tmpfs */
/* Record locks against a table of bytes, flock, and the search for deadlocks. */
#include "vfs/file.h"
#include "vfs/locks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#define BYTES 64
#define OWNERS 4

static struct inode *new_inode(void)
{
	const struct cred *cred = cred_new(0, 0, 0);
	struct inode *inode;

	assert_int_equal(vfs_anon_inode("test", S_IFREG | 0600, cred, &inode), 0);
	cred_put(cred);
	return inode;
}

static struct lock_owner owner(int i)
{
	static const char ids[OWNERS + 1];

	return (struct lock_owner){ .id = &ids[i], .pid = 100 + i };
}

static bool model_conflict(char m[OWNERS][BYTES], int who, char type, int start, int end)
{
	for (int o = 0; o < OWNERS; o++)
		for (int b = start; o != who && b <= end; b++)
			if (m[o][b] && (type == 'w' || m[o][b] == 'w'))
				return true;
	return false;
}

static void check_getlk(struct inode *inode, char m[OWNERS][BYTES])
{
	for (int o = 0; o < OWNERS; o++)
		for (int b = 0; b < BYTES; b++) {
			struct lock_owner me = owner(o);
			s64 start = 0, end = 0;
			int type = 0, pid = 0;

			vfs_posix_getlk(inode, &me, F_WRLCK, b, b, &type, &start, &end, &pid);
			assert_int_equal(type != F_UNLCK, model_conflict(m, o, 'w', b, b));
			if (type == F_UNLCK)
				continue;
			assert_true(start <= b && b <= end);
			for (s64 i = start; i <= MIN(end, BYTES - 1); i++)
				assert_int_equal(m[pid - 100][i], type == F_WRLCK ? 'w' : 'r');
		}
}

static void test_model(void **state)
{
	struct inode *inode = new_inode();
	char m[OWNERS][BYTES] = { 0 };

	srandom(7);
	for (int i = 0; i < 20000; i++) {
		int who = (int)(random() % OWNERS), a = (int)(random() % BYTES);
		int b = a + (int)(random() % (BYTES - a)), kind = (int)(random() % 4);
		struct lock_owner me = owner(who);
		int type = kind == 0 ? F_WRLCK : kind == 1 ? F_RDLCK : F_UNLCK;
		char c = kind == 0 ? 'w' : 'r';
		bool refuse = type != F_UNLCK && model_conflict(m, who, c, a, b);

		assert_int_equal(
			vfs_posix_lock(inode, &me, type, a, b == BYTES - 1 ? INT64_MAX : b),
			refuse ? -EAGAIN : 0);
		if (!refuse)
			memset(&m[who][a], type == F_UNLCK ? 0 : c, (size_t)(b - a + 1));
		if (i % 50 == 0)
			check_getlk(inode, m);
		if (i % 1000 == 999) {
			vfs_posix_drop(inode, me.id);
			memset(m[who], 0, BYTES);
		}
	}
	inode_put(inode);
}

static void test_flock(void **state)
{
	struct inode *inode = new_inode();
	struct lock_owner a = owner(0), b = owner(1);

	assert_int_equal(vfs_flock(inode, &a, LOCK_SH), 0);
	assert_int_equal(vfs_flock(inode, &b, LOCK_SH | LOCK_NB), 0);
	assert_int_equal(vfs_flock(inode, &a, LOCK_EX | LOCK_NB), -EAGAIN);
	/* The failed conversion has cost a its shared lock, as on Linux. */
	assert_int_equal(vfs_flock(inode, &b, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(vfs_flock(inode, &a, LOCK_SH), -EAGAIN);
	vfs_flock_drop(inode, b.id);
	assert_int_equal(vfs_flock(inode, &a, LOCK_EX), 0);
	assert_int_equal(vfs_flock(inode, &a, LOCK_UN), 0);
	assert_int_equal(vfs_flock(inode, &b, LOCK_EX), 0);
	assert_int_equal(vfs_flock(inode, &a, 99), -EINVAL);
	inode_put(inode);
}

static void test_deadlock(void **state)
{
	struct inode *x = new_inode(), *y = new_inode(), *z = new_inode();
	struct lock_owner a = owner(0), b = owner(1), c = owner(2);
	struct lock_owner ofd = { .id = &ofd, .pid = -1 };

	assert_int_equal(vfs_posix_lock(x, &a, F_WRLCK, 0, 9), 0);
	assert_int_equal(vfs_posix_lock(y, &b, F_WRLCK, 0, 9), 0);
	assert_int_equal(vfs_posix_lock(z, &c, F_WRLCK, 0, 9), 0);
	assert_int_equal(vfs_posix_wait_begin(y, &a, F_RDLCK, 5, 5), 0);
	assert_int_equal(vfs_posix_wait_begin(z, &b, F_RDLCK, 5, 5), 0);
	assert_int_equal(vfs_posix_wait_begin(x, &ofd, F_RDLCK, 5, 5), 0);
	assert_int_equal(vfs_posix_wait_begin(x, &c, F_RDLCK, 5, 5), -EDEADLK);
	assert_int_equal(vfs_posix_wait_begin(x, &c, F_RDLCK, 50, 50), 0);
	vfs_posix_wait_end(&c);
	vfs_posix_wait_end(&b);
	assert_int_equal(vfs_posix_wait_begin(x, &c, F_RDLCK, 5, 5), 0);
	vfs_posix_wait_end(&c);
	vfs_posix_wait_end(&a);
	vfs_posix_wait_end(&ofd);
	inode_put(x);
	inode_put(y);
	inode_put(z);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_flock),
		cmocka_unit_test(test_deadlock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
