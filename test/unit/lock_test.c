/* unit: base */
/* The locks keep threads apart, whether they find them free, spin or sleep. */
#include "base/lock.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>

#define THREADS 6
#define ROUNDS 20000

static struct mutex mutex = MUTEX_INIT(RANK_LEAF, "test");
static struct rwlock rwlock;
static u64 a, b; /* equal whenever nobody writes */
static _Atomic u32 reads;

/* Now and then long enough for the others to fall asleep. */
static void linger(int i)
{
	if (i % 512 == 0)
		sched_yield();
}

static void *with_mutex(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (i % 3 == 0) {
			while (!mutex_trylock(&mutex))
				sched_yield();
		} else {
			mutex_lock(&mutex);
		}
		a++;
		linger(i);
		b++;
		mutex_unlock(&mutex);
	}
	return NULL;
}

static void *with_rwlock(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		if ((i + (int)(uintptr_t)arg) % 4) {
			rwlock_rdlock(&rwlock);
			assert_true(a == b);
			linger(i);
			assert_true(a == b);
			rwlock_unlock(&rwlock);
			atomic_fetch_add(&reads, 1);
		} else {
			rwlock_wrlock(&rwlock);
			a++;
			linger(i);
			b++;
			rwlock_unlock(&rwlock);
		}
	}
	return NULL;
}

static void run(void *(*work)(void *))
{
	pthread_t t[THREADS];

	a = b = 0;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, work, (void *)(uintptr_t)i), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void test_mutex(void **state)
{
	run(with_mutex);
	assert_int_equal(a, (u64)THREADS * ROUNDS);
	assert_int_equal(b, a);
	assert_int_equal(atomic_load(&mutex.word), 0);
}

static void test_rwlock(void **state)
{
	rwlock_init(&rwlock, RANK_LEAF, "test");
	run(with_rwlock);
	assert_int_equal(a + atomic_load(&reads), (u64)THREADS * ROUNDS);
	assert_int_equal(b, a);
	assert_int_equal(atomic_load(&rwlock.word), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mutex),
		cmocka_unit_test(test_rwlock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
