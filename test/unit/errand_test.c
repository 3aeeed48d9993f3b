/* unit: base */
/* Work for another thread, which may come to it late; and threads that served somebody before. */
#include "base/errand.h"
#include "base/host_sync.h"
#include "base/host_thread.h"

#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ERRANDS 2000
#define SPINNERS 4
#define THREADS_MAX 24

static int threads(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = -2;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Of those that the process may run on. Not by host_cpus, which looks but once. */
static u32 first_cpu(void)
{
	static u32 cpu = UINT32_MAX;
	cpu_set_t all;

	if (cpu != UINT32_MAX)
		return cpu;
	sched_getaffinity(0, sizeof(all), &all);
	for (cpu = 0; !CPU_ISSET(cpu, &all);)
		cpu++;
	return cpu;
}

static void count(void *arg)
{
	atomic_fetch_add((_Atomic u32 *)arg, 1);
}

static _Atomic bool quiet;

static void spin(void *arg)
{
	while (!atomic_load(&quiet))
		count(arg);
}

/* However many are taken back before another thread came to them, few threads are made for them. */
static void test_taken_back(void **state)
{
	static _Atomic u32 ran, spun;
	struct host_worker *w;
	int most = 0;

	/* So that others get a CPU late. */
	for (u32 i = 0; i < SPINNERS; i++) {
		assert_int_equal(host_worker_get(&w), 0);
		host_worker_start(w, spin, (void *)&spun);
	}

	for (u32 i = 0; i < ERRANDS; i++) {
		errand_end(errand_begin(count, (void *)&ran));
		if (i % 8 == 0)
			most = MAX(most, threads());
	}
	atomic_store(&quiet, true);
	assert_true(atomic_load(&ran) <= ERRANDS);
	assert_true(most <= THREADS_MAX);
	errand_end(NULL);
}

/* Where there is but one CPU, the other thread would only delay the caller. */
static void test_one_cpu(void **state)
{
	_Atomic u32 ran = 0;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		cpu_set_t one;

		CPU_ZERO(&one);
		CPU_SET(first_cpu(), &one);
		sched_setaffinity(0, sizeof(one), &one);
		_exit(errand_begin(count, (void *)&ran) != NULL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

struct job {
	_Atomic u32 done; /* futex */
	bool bind;
	int tid, cpus; /* of the thread */
};

static void work(void *arg)
{
	struct job *j = arg;
	cpu_set_t set;

	if (j->bind)
		host_bind_self(first_cpu());
	sched_getaffinity(0, sizeof(set), &set);
	j->cpus = CPU_COUNT(&set);
	j->tid = gettid();
	atomic_store(&j->done, 1);
	host_futex_wake(&j->done, 1, true);
}

static struct job run(bool bind, bool errand)
{
	struct job j = { .bind = bind };
	struct errand *e = NULL;
	struct host_worker *w;

	if (errand) {
		while (!(e = errand_begin(work, &j)))
			sched_yield(); /* those of the last test */
	} else {
		assert_int_equal(host_worker_get(&w), 0);
		host_worker_start(w, work, &j);
	}
	while (!atomic_load(&j.done))
		host_futex_wait_until(&j.done, 0, UINT64_MAX);
	errand_end(e);
	return j;
}

/* Where there is another CPU: a thread that had bound itself, and has run an errand since, does
 * bind itself again. */
static void test_bound_before(void **state)
{
	struct host_cpus all;
	int tid;

	host_cpus(&all);
	if (CPU_COUNT_S(sizeof(all), (cpu_set_t *)&all) < 2)
		skip();
	for (u32 i = 0; i < 20; i++) {
		struct job j = run(true, false);

		assert_int_equal(j.cpus, 1);
		tid = j.tid;
		/* Whoever is idle is taken. */
		for (u32 n = 0; n < 100 && run(false, true).tid != tid; n++)
			;
		for (u32 n = 0; n < 100; n++) {
			j = run(true, false);
			assert_int_equal(j.cpus, 1);
			if (j.tid == tid)
				break;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_cpu),
		cmocka_unit_test(test_taken_back),
		cmocka_unit_test(test_bound_before),
	};

	first_cpu();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
