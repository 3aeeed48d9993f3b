/*
 * The timer service: one thread, a binary heap of deadlines.
 *
 * The thread sleeps on `kick` until the earliest deadline; whoever makes the
 * earliest deadline earlier changes `kick` and wakes it. While a callback runs,
 * `current` names its timer, and cancel waits for `current` to change.
 */
#include "base/host_thread.h"
#include "base/host_time.h"
#include "base/log.h"
#include "sentry/kernel/kernel.h"

#include <pthread.h>
#include <stdlib.h>

#define HEAP_NONE SIZE_MAX
#define HEAP_FIRST_CAPACITY 64

struct timer_service {
	struct mutex lock; /* RANK_LEAF */
	/* protected by lock */
	struct ktimer **heap;
	size_t count, capacity;
	struct ktimer *current;
	bool stop;
	_Atomic u32 kick; /* the thread's futex word */
	_Atomic u32 ran;  /* changes after each callback: cancel sleeps on it */
	pthread_t thread; /* immutable */
};

static void heap_place(struct timer_service *s, size_t i, struct ktimer *t)
{
	s->heap[i] = t;
	t->heap_index = i;
}

static void heap_up(struct timer_service *s, size_t i, struct ktimer *t)
{
	while (i > 0) {
		size_t parent = (i - 1) / 2;

		if (s->heap[parent]->deadline_ns <= t->deadline_ns)
			break;
		heap_place(s, i, s->heap[parent]);
		i = parent;
	}
	heap_place(s, i, t);
}

static void heap_down(struct timer_service *s, size_t i, struct ktimer *t)
{
	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= s->count)
			break;
		if (child + 1 < s->count &&
		    s->heap[child + 1]->deadline_ns < s->heap[child]->deadline_ns)
			child++;
		if (s->heap[child]->deadline_ns >= t->deadline_ns)
			break;
		heap_place(s, i, s->heap[child]);
		i = child;
	}
	heap_place(s, i, t);
}

static void heap_remove(struct timer_service *s, struct ktimer *t)
{
	size_t i = t->heap_index;
	struct ktimer *last;

	if (i == HEAP_NONE)
		return;
	ASSERT(i < s->count && s->heap[i] == t);
	t->heap_index = HEAP_NONE;
	last = s->heap[--s->count];
	if (last == t)
		return;
	if (i > 0 && s->heap[(i - 1) / 2]->deadline_ns > last->deadline_ns)
		heap_up(s, i, last);
	else
		heap_down(s, i, last);
}

static void *timer_thread(void *arg)
{
	struct timer_service *s = arg;

	host_unbind_cpu(0);
	mutex_lock(&s->lock);
	while (!s->stop) {
		u32 kick = atomic_load(&s->kick);
		struct ktimer *t = s->count ? s->heap[0] : NULL;
		u64 now = 0;

		host_clock_read(CLOCK_MONOTONIC, &now);
		if (t == NULL || t->deadline_ns > now) {
			u64 until = t ? t->deadline_ns : UINT64_MAX;

			mutex_unlock(&s->lock);
			host_word_wait(&s->kick, kick, until);
			mutex_lock(&s->lock);
			continue;
		}
		heap_remove(s, t);
		s->current = t;
		t->running = true;
		mutex_unlock(&s->lock);
		t->fn(t, t->arg);
		mutex_lock(&s->lock);
		t->running = false;
		s->current = NULL;
		atomic_fetch_add(&s->ran, 1);
		host_word_wake(&s->ran, INT32_MAX);
	}
	mutex_unlock(&s->lock);
	return NULL;
}

struct timer_service *timer_service_new(void)
{
	struct timer_service *s = calloc(1, sizeof(*s));
	pthread_attr_t attr;
	int err;

	if (s == NULL)
		return NULL;
	s->heap = calloc(HEAP_FIRST_CAPACITY, sizeof(*s->heap));
	if (s->heap == NULL) {
		free(s);
		return NULL;
	}
	s->capacity = HEAP_FIRST_CAPACITY;
	mutex_init(&s->lock, RANK_LEAF, "timer service");
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	err = pthread_create(&s->thread, &attr, timer_thread, s);
	pthread_attr_destroy(&attr);
	if (err) {
		mutex_destroy(&s->lock);
		free(s->heap);
		free(s);
		return NULL;
	}
	return s;
}

void timer_service_free(struct timer_service *s)
{
	if (s == NULL)
		return;
	mutex_lock(&s->lock);
	s->stop = true;
	mutex_unlock(&s->lock);
	atomic_fetch_add(&s->kick, 1);
	host_word_wake(&s->kick, 1);
	pthread_join(s->thread, NULL);
	for (size_t i = 0; i < s->count; i++)
		s->heap[i]->heap_index = HEAP_NONE;
	mutex_destroy(&s->lock);
	free(s->heap);
	free(s);
}

void ktimer_init(struct ktimer *t, void (*fn)(struct ktimer *, void *), void *arg)
{
	*t = (struct ktimer){ .fn = fn, .arg = arg, .heap_index = HEAP_NONE };
	list_init(&t->node);
}

/* Room for one more entry. Timers are few and bounded by the guest's limits; without memory the
 * sentry cannot keep time. */
static void heap_reserve(struct timer_service *s)
{
	struct ktimer **bigger;

	if (s->count < s->capacity)
		return;
	bigger = realloc(s->heap, 2 * s->capacity * sizeof(*s->heap));
	if (bigger == NULL)
		PANIC("no memory for %zu timers", 2 * s->capacity);
	s->heap = bigger;
	s->capacity *= 2;
}

void ktimer_set(struct timer_service *s, struct ktimer *t, u64 deadline_ns)
{
	bool earliest;

	mutex_lock(&s->lock);
	heap_remove(s, t);
	heap_reserve(s);
	t->deadline_ns = deadline_ns;
	heap_up(s, s->count++, t);
	earliest = t->heap_index == 0;
	if (earliest)
		atomic_fetch_add(&s->kick, 1);
	mutex_unlock(&s->lock);
	if (earliest)
		host_word_wake(&s->kick, 1);
}

void ktimer_cancel(struct timer_service *s, struct ktimer *t)
{
	mutex_lock(&s->lock);
	for (;;) {
		u32 ran = atomic_load(&s->ran);

		heap_remove(s, t);
		if (s->current != t)
			break;
		mutex_unlock(&s->lock);
		host_word_wait(&s->ran, ran, UINT64_MAX);
		mutex_lock(&s->lock);
	}
	mutex_unlock(&s->lock);
}

u64 ktimer_remaining(struct timer_service *s, struct ktimer *t)
{
	u64 now = 0, left = 0;

	host_clock_read(CLOCK_MONOTONIC, &now);
	mutex_lock(&s->lock);
	if (t->heap_index != HEAP_NONE)
		left = t->deadline_ns > now ? t->deadline_ns - now : 1;
	mutex_unlock(&s->lock);
	return left;
}
