/* Futexes, by the raw call and through pthreads. */
#include "conf.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

static long fut(void *a, int op, unsigned v, void *t, void *b, unsigned v3)
{
	return syscall(SYS_futex, a, op, v, t, b, v3);
}
static uint32_t word, word2;
static _Atomic int started, woken;

struct wait_arg {
	uint32_t *word;
	int op;
	unsigned bitset;
};
static void *waiter(void *p)
{
	struct wait_arg *a = p;
	started++;
	long r = fut(a->word, a->op, 0, NULL, NULL, a->bitset);
	woken++;
	return (void *)r;
}
static void start(pthread_t *t, int n, struct wait_arg *a)
{
	for (int i = 0; i < n; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, waiter, a), 0);
}
/* Wakes until n are woken in all: a waiter may not be asleep yet. */
static void wake_all(uint32_t *w, int n)
{
	int got = 0;
	while (got < n) {
		got += (int)OK(fut(w, FUTEX_WAKE, 1000, NULL, NULL, 0));
		sched_yield();
	}
	CHECK_EQ(got, n);
}
CASE(wait_value_differs)
{
	word = 1;
	CHECK_ERR(fut(&word, FUTEX_WAIT, 0, NULL, NULL, 0), EAGAIN);
}
CASE(wake_without_waiters)
{
	CHECK_EQ(fut(&word, FUTEX_WAKE, 10, NULL, NULL, 0), 0);
}
CASE(wait_and_wake)
{
	pthread_t t[8];
	struct wait_arg a = { &word, FUTEX_WAIT, 0 };
	start(t, 8, &a);
	wake_all(&word, 8);
	for (int i = 0; i < 8; i++) {
		void *r;
		pthread_join(t[i], &r);
		CHECK_EQ((long)r, 0);
	}
}
CASE(private_wait)
{
	pthread_t t;
	struct wait_arg a = { &word, FUTEX_WAIT_PRIVATE, 0 };
	start(&t, 1, &a);
	while (fut(&word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0)
		sched_yield();
	pthread_join(t, NULL);
}
CASE(timeout_relative)
{
	struct timespec ts = { 0, 2000000 };
	CHECK_ERR(fut(&word, FUTEX_WAIT, 0, &ts, NULL, 0), ETIMEDOUT);
	ts.tv_nsec = -1;
	CHECK_ERR(fut(&word, FUTEX_WAIT, 0, &ts, NULL, 0), EINVAL);
	CHECK_ERR(fut(&word, FUTEX_WAIT, 0, (void *)1, NULL, 0), EFAULT);
}
CASE(timeout_absolute)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	CHECK_ERR(fut(&word, FUTEX_WAIT_BITSET, 0, &ts, NULL, ~0U), ETIMEDOUT);
	clock_gettime(CLOCK_REALTIME, &ts);
	CHECK_ERR(fut(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &ts, NULL, ~0U),
		  ETIMEDOUT);
}
CASE(errors)
{
	CHECK_ERR(fut((char *)&word + 1, FUTEX_WAIT, 0, NULL, NULL, 0), EINVAL);
	CHECK_ERR(fut((void *)8, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
	CHECK_ERR(fut(&word, 99, 0, NULL, NULL, 0), ENOSYS);
	CHECK_ERR(fut(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0), EINVAL);
	CHECK_ERR(fut(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0), EINVAL);
	CHECK_ERR(fut(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0), ENOSYS);
	CHECK_ERR(fut((void *)0xffff800000000000UL, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
}
CASE(bitset_selects)
{
	pthread_t t[2];
	struct wait_arg a = { &word, FUTEX_WAIT_BITSET, 1 }, b = { &word, FUTEX_WAIT_BITSET, 2 };
	start(&t[0], 1, &a);
	start(&t[1], 1, &b);
	while (fut(&word, FUTEX_WAKE_BITSET, 10, NULL, NULL, 2) == 0)
		sched_yield();
	pthread_join(t[1], NULL);
	CHECK_EQ(woken, 1);
	while (fut(&word, FUTEX_WAKE_BITSET, 10, NULL, NULL, 1) == 0)
		sched_yield();
	pthread_join(t[0], NULL);
}
CASE(requeue_moves)
{
	pthread_t t[4];
	struct wait_arg a = { &word, FUTEX_WAIT, 0 };
	start(t, 4, &a);
	int moved = 0;
	while (moved < 4) {
		moved += (int)OK(fut(&word, FUTEX_REQUEUE, 0, (void *)100L, &word2, 0));
		sched_yield();
	}
	CHECK_EQ(fut(&word, FUTEX_WAKE, 100, NULL, NULL, 0), 0);
	CHECK_EQ(fut(&word2, FUTEX_WAKE, 100, NULL, NULL, 0), 4);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}
CASE(cmp_requeue_compares)
{
	word = 5;
	CHECK_ERR(fut(&word, FUTEX_CMP_REQUEUE, 1, (void *)1L, &word2, 4), EAGAIN);
	CHECK_EQ(fut(&word, FUTEX_CMP_REQUEUE, 1, (void *)1L, &word2, 5), 0);
	CHECK_ERR(fut(&word, FUTEX_CMP_REQUEUE, 1, (void *)-1L, &word2, 5), EINVAL);
}
CASE(wake_op)
{
	word2 = 7;
	/* word2 += 3; wake on word2 only if it was 7 */
	CHECK_EQ(fut(&word, FUTEX_WAKE_OP, 1, (void *)1L, &word2,
		     FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 7)),
		 0);
	CHECK_EQ(word2, 10);
	CHECK_EQ(fut(&word, FUTEX_WAKE_OP, 1, (void *)1L, &word2,
		     FUTEX_OP(FUTEX_OP_SET, 9, FUTEX_OP_CMP_EQ, 7)),
		 0);
	CHECK_EQ(word2, 9);
}
CASE(shared_between_processes)
{
	uint32_t *w = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(fut(w, FUTEX_WAIT, 0, NULL, NULL, 0) ? 1 : 0);
	while (fut(w, FUTEX_WAKE, 1, NULL, NULL, 0) == 0)
		sched_yield();
	conf_join(pid);
}
CASE(shared_through_a_file)
{
	int fd = OK(open(conf_path("f"), O_RDWR | O_CREAT, 0600));
	OK(ftruncate(fd, 4096));
	uint32_t *a = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pid_t pid = fork();
	if (pid == 0) {
		uint32_t *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		_exit(fut(b, FUTEX_WAIT, 0, NULL, NULL, 0) ? 1 : 0);
	}
	while (fut(a, FUTEX_WAKE, 1, NULL, NULL, 0) == 0)
		sched_yield();
	conf_join(pid);
}
/* A word whose name others could share must be the file's, or become the process's own. */
CASE(shared_key_of_read_only_memory)
{
	const struct timespec soon = { .tv_nsec = 1000000 };
	struct timespec *t = (struct timespec *)&soon;
	uint32_t *a = OK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), *f, *s;
	int fd = OK(open(conf_path("f"), O_CREAT | O_RDWR, 0600));

	CHECK_ERR(fut(a, FUTEX_WAIT, 0, t, NULL, 0), EFAULT);
	CHECK_ERR(fut(a, FUTEX_WAIT, 1, t, NULL, 0), EFAULT);
	CHECK_ERR(fut(a, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
	CHECK_ERR(fut(a, FUTEX_WAIT_PRIVATE, 0, t, NULL, 0), ETIMEDOUT);
	CHECK_EQ(fut(a, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
	CHECK_ERR(fut(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, a, 0), EFAULT);
	/* A file's page is the file's, by whatever mapping, until it is written. */
	OK(ftruncate(fd, 4096));
	f = OK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0));
	s = OK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
	CHECK_ERR(fut(f, FUTEX_WAIT, 0, t, NULL, 0), ETIMEDOUT);
	pid_t pid = OK(fork());
	if (!pid) {
		CHECK_EQ(fut(f, FUTEX_WAIT, 0, NULL, NULL, 0), 0);
		_exit(0);
	}
	wake_all(s, 1);
	conf_join(pid);
	/* Beyond its end there is nothing, not even to wake. */
	s = OK(mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0));
	CHECK_ERR(fut(s + 1024, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
	OK(mprotect(f, 4096, PROT_READ | PROT_WRITE));
	*f = 0;
	OK(mprotect(f, 4096, PROT_READ));
	CHECK_ERR(fut(f, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
}
CASE(private_memory_does_not_meet)
{
	pid_t pid = fork();
	if (pid == 0) {
		struct timespec ts = { 0, 20000000 };
		_exit(fut(&word, FUTEX_WAIT, 0, &ts, NULL, 0) == -1 && errno == ETIMEDOUT ? 0 : 1);
	}
	for (int i = 0; i < 50; i++)
		CHECK_EQ(fut(&word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
	conf_join(pid);
}
CASE(killed_while_waiting)
{
	pid_t pid = fork();
	if (pid == 0) {
		fut(&word, FUTEX_WAIT, 0, NULL, NULL, 0);
		_exit(0);
	}
	OK(kill(pid, SIGKILL));
	CHECK_EQ(WTERMSIG(conf_wait_status(pid)), SIGKILL);
}
CASE(pi_lock_unlock)
{
	uint32_t w = 0;
	CHECK_EQ(fut(&w, FUTEX_LOCK_PI, 0, NULL, NULL, 0), 0);
	CHECK_EQ(w & FUTEX_TID_MASK, syscall(SYS_gettid));
	CHECK_ERR(fut(&w, FUTEX_LOCK_PI, 0, NULL, NULL, 0), EDEADLK);
	CHECK_EQ(fut(&w, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), 0);
	CHECK_EQ(w, 0);
	CHECK_ERR(fut(&w, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0), EPERM);
	CHECK_EQ(fut(&w, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0), 0);
}
static pthread_mutex_t m;
static long counter;
static void *locker(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20000; i++) {
		pthread_mutex_lock(&m);
		counter++;
		pthread_mutex_unlock(&m);
	}
	return NULL;
}
static void contend(int protocol, int type)
{
	pthread_mutexattr_t at;
	pthread_t t[4];
	pthread_mutexattr_init(&at);
	pthread_mutexattr_setprotocol(&at, protocol);
	pthread_mutexattr_settype(&at, type);
	pthread_mutex_init(&m, &at);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, locker, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK_EQ(counter, 80000);
}
CASE(mutex_contention)
{
	contend(PTHREAD_PRIO_NONE, PTHREAD_MUTEX_NORMAL);
}
CASE(pi_mutex_contention)
{
	contend(PTHREAD_PRIO_INHERIT, PTHREAD_MUTEX_NORMAL);
}
CASE(robust_mutex_owner_dies)
{
	pthread_mutex_t *s =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t at;
	pthread_mutexattr_init(&at);
	pthread_mutexattr_setpshared(&at, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&at, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(s, &at);
	pid_t pid = fork();
	if (pid == 0) {
		pthread_mutex_lock(s);
		kill(getpid(), SIGKILL);
	}
	conf_wait_status(pid);
	CHECK_EQ(pthread_mutex_lock(s), EOWNERDEAD);
	CHECK_EQ(pthread_mutex_consistent(s), 0);
	CHECK_EQ(pthread_mutex_unlock(s), 0);
	CHECK_EQ(pthread_mutex_lock(s), 0);
}
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;
static void *ping(void *arg)
{
	int me = (int)(intptr_t)arg;
	for (int i = 0; i < 500; i++) {
		pthread_mutex_lock(&m);
		while (turn != me)
			pthread_cond_wait(&cond, &m);
		turn = !me;
		pthread_cond_broadcast(&cond);
		pthread_mutex_unlock(&m);
	}
	return NULL;
}
CASE(condition_pingpong)
{
	pthread_t t[2];
	pthread_mutex_init(&m, NULL);
	for (intptr_t i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, ping, (void *)i);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
}
CASE(condition_timeout)
{
	struct timespec ts;
	pthread_mutex_init(&m, NULL);
	pthread_mutex_lock(&m);
	clock_gettime(CLOCK_REALTIME, &ts);
	CHECK_EQ(pthread_cond_timedwait(&cond, &m, &ts), ETIMEDOUT);
}
CASE(semaphore_between_processes)
{
	sem_t *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	OK(sem_init(s, 1, 0));
	pid_t pid = fork();
	if (pid == 0) {
		for (int i = 0; i < 100; i++)
			sem_post(s);
		_exit(0);
	}
	for (int i = 0; i < 100; i++)
		OK(sem_wait(s));
	conf_join(pid);
}
CASE(named_semaphore)
{
	sem_t *s = sem_open("/conf-sem", O_CREAT | O_EXCL, 0600, 2);
	CHECK(s != SEM_FAILED);
	OK(sem_wait(s));
	OK(sem_trywait(s));
	CHECK_ERR(sem_trywait(s), EAGAIN);
	OK(sem_unlink("/conf-sem"));
}
CASE(barrier_and_rwlock)
{
	static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
	CHECK_EQ(pthread_rwlock_rdlock(&rw), 0);
	CHECK_EQ(pthread_rwlock_trywrlock(&rw), EBUSY);
	CHECK_EQ(pthread_rwlock_unlock(&rw), 0);
	CHECK_EQ(pthread_rwlock_wrlock(&rw), 0);
}
CASE(robust_list_calls)
{
	void *head;
	size_t len;
	OK(syscall(SYS_get_robust_list, 0, &head, &len));
	CHECK_EQ(len, 24);
	CHECK_ERR(syscall(SYS_set_robust_list, head, 8), EINVAL);
	CHECK_ERR(syscall(SYS_get_robust_list, 9999999, &head, &len), ESRCH);
}
CONF_MAIN
