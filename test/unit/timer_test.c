/* unit: sentry base */
/* The timer service: order, re-arming, cancel against a running callback. */
#include "base/host_time.h"
#include "sentry/kernel/kernel.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#define TIMERS 500
#define MS 1000000UL

static u64 now(void)
{
	u64 ns = 0;

	host_clock_read(CLOCK_MONOTONIC, &ns);
	return ns;
}

struct probe {
	struct ktimer timer;
	struct timer_service *service;
	_Atomic u32 fired;
	u64 fired_at;
	u32 order;
	u32 rearm;	  /* so many times more */
	_Atomic u32 hold; /* the callback waits while 1 */
	_Atomic u32 inside;
};

static _Atomic u32 sequence, total;

static void fire(struct ktimer *t, void *arg)
{
	struct probe *p = arg;

	atomic_store(&p->inside, 1);
	host_word_wake(&p->inside, 1);
	while (atomic_load(&p->hold))
		host_word_wait(&p->hold, 1, UINT64_MAX);
	p->fired_at = now();
	p->order = atomic_fetch_add(&sequence, 1);
	if (p->rearm) {
		p->rearm--;
		ktimer_set(p->service, t, p->fired_at + MS);
	}
	atomic_fetch_add(&p->fired, 1);
	atomic_fetch_add(&total, 1);
	host_word_wake(&total, INT32_MAX);
}

static void wait_total(u32 want)
{
	u32 seen;

	while ((seen = atomic_load(&total)) < want)
		host_word_wait(&total, seen, UINT64_MAX);
}

static struct probe *probes_new(struct timer_service *s, size_t count)
{
	struct probe *p = calloc(count, sizeof(*p));

	for (size_t i = 0; i < count; i++) {
		p[i].service = s;
		ktimer_init(&p[i].timer, fire, &p[i]);
	}
	atomic_store(&total, 0);
	atomic_store(&sequence, 0);
	return p;
}

/* Random deadlines, set and moved in random order; a third cancelled. None early, all in order. */
static void order(void **state)
{
	struct timer_service *s = timer_service_new();
	struct probe *p = probes_new(s, TIMERS);
	u64 base = now() + 300 * MS, deadline[TIMERS];
	unsigned int seed = 7;
	u32 expected = 0;

	for (int i = 0; i < TIMERS; i++) {
		ktimer_set(s, &p[i].timer, base + 3600000 * MS);
		deadline[i] = base + (u64)(rand_r(&seed) % 1000) * 20000;
	}
	for (int i = TIMERS - 1; i >= 0; i--)
		ktimer_set(s, &p[i].timer, deadline[i]);
	for (int i = 0; i < TIMERS; i++) {
		if (i % 3 == 0)
			ktimer_cancel(s, &p[i].timer);
		else
			expected++;
	}
	wait_total(expected);
	for (int i = 0; i < TIMERS; i++) {
		assert_int_equal(atomic_load(&p[i].fired), i % 3 != 0);
		assert_int_equal(ktimer_remaining(s, &p[i].timer), 0);
		for (int j = 0; i % 3 && j < TIMERS; j++)
			if (j % 3 && deadline[i] < deadline[j])
				assert_true(p[i].order < p[j].order);
		if (i % 3)
			assert_true(p[i].fired_at >= deadline[i]);
	}
	timer_service_free(s);
	free(p);
}

static void rearm(void **state)
{
	struct timer_service *s = timer_service_new();
	struct probe *p = probes_new(s, 1);

	p->rearm = 9;
	ktimer_set(s, &p->timer, 0);
	wait_total(10);
	ktimer_cancel(s, &p->timer);
	assert_int_equal(atomic_load(&p->fired), 10);
	timer_service_free(s);
	free(p);
}

static void *release(void *arg)
{
	struct probe *p = arg;

	host_word_wait(&p->inside, 2, now() + 10 * MS); /* let cancel begin to wait, usually */
	atomic_store(&p->hold, 0);
	host_word_wake(&p->hold, 1);
	return NULL;
}

/* Cancel returns only when the callback is over, even if it arms itself again. */
static void cancel_waits(void **state)
{
	struct timer_service *s = timer_service_new();
	struct probe *p = probes_new(s, 1);
	pthread_t thread;

	p->rearm = 1000000;
	atomic_store(&p->hold, 1);
	ktimer_set(s, &p->timer, 0);
	while (!atomic_load(&p->inside))
		host_word_wait(&p->inside, 0, UINT64_MAX);
	assert_int_equal(pthread_create(&thread, NULL, release, p), 0);
	ktimer_cancel(s, &p->timer);
	assert_int_equal(atomic_load(&p->fired), 1);
	assert_int_equal(ktimer_remaining(s, &p->timer), 0);
	pthread_join(thread, NULL);
	timer_service_free(s);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order),
		cmocka_unit_test(rearm),
		cmocka_unit_test(cancel_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
