/* unit: base pgalloc mm */
/* The pma set against an array of pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include "mm/pma_set.h"

#define N 400

static struct model {
	bool present, owned, cow;
	u8 host_prot, host_map;
	u64 offset;
} model[N];
static struct memfile file;

static u64 rnd(u64 n)
{
	return (u64)random() % n;
}

static int check_balance(const struct avl_node *n)
{
	int left, right;

	if (!n)
		return 0;
	left = check_balance(n->left);
	right = check_balance(n->right);
	assert_in_range(left - right + 1, 0, 2);
	assert_int_equal(n->height, 1 + MAX(left, right));
	return n->height;
}

static void check(const struct pma_set *s)
{
	struct pma *p = pma_set_first(s), *prev = NULL;
	size_t count = 0, mapped = 0;

	check_balance(s->root.top);
	for (; p; prev = p, p = pma_next(p)) {
		assert_ptr_equal(pma_prev(p), prev);
		assert_true(!prev || prev->end <= p->start);
		count++;
		mapped += p->host_map != PMA_UNMAPPED;
	}
	assert_int_equal(count, s->count);
	assert_int_equal(mapped, s->mapped);
	for (u64 i = 0; i < N; i++) {
		p = pma_set_find(s, i * PAGE_SIZE);
		assert_int_equal(p != NULL, model[i].present);
		if (!p)
			continue;
		assert_int_equal(p->offset + (i * PAGE_SIZE - p->start), model[i].offset);
		assert_int_equal(p->owned, model[i].owned);
		assert_int_equal(p->cow, model[i].cow);
		assert_int_equal(p->host_prot, model[i].host_prot);
		assert_int_equal(p->host_map, model[i].host_map);
	}
}

static void clear(struct pma_set *s, u64 first, u64 end)
{
	struct pma *p, *next;

	assert_int_equal(pma_set_reserve(s, PMA_RESERVE), 0);
	pma_set_split(s, first * PAGE_SIZE, end * PAGE_SIZE);
	for (p = pma_set_seek(s, first * PAGE_SIZE); p && p->start < end * PAGE_SIZE; p = next) {
		next = pma_next(p);
		pma_set_drop(s, p);
	}
	for (u64 i = first; i < end; i++)
		model[i].present = false;
}

/* The same set, built in order. */
static void check_appended(const struct pma_set *s)
{
	struct pma_set copy;
	struct pma *p;

	pma_set_init(&copy);
	for (p = pma_set_first(s); p; p = pma_next(p)) {
		assert_int_equal(pma_set_reserve(&copy, 1), 0);
		pma_set_append(&copy, p);
	}
	assert_true(copy.count <= s->count);
	check(&copy);
	while ((p = pma_set_first(&copy)))
		pma_set_drop(&copy, p);
	pma_set_destroy(&copy);
}

static void test_random(void **state)
{
	struct pma_set s;

	srandom(5);
	pma_set_init(&s);
	for (int step = 0; step < 60000; step++) {
		u64 first = rnd(N), n = 1 + rnd(30), end = MIN(first + n, N);
		struct pma *p;

		switch (rnd(4)) {
		case 0: clear(&s, first, end); break;
		case 1: {
			struct pma value = {
				.start = first * PAGE_SIZE,
				.end = end * PAGE_SIZE,
				.file = &file,
				/* often continues its neighbours */
				.offset = rnd(2) ? first * PAGE_SIZE : rnd(1000) * PAGE_SIZE,
				.owned = true,
				.cow = rnd(2),
			};

			clear(&s, first, end);
			p = pma_set_merge(&s, pma_set_add(&s, &value));
			assert_true(p->start <= value.start && p->end >= value.end);
			for (u64 i = first; i < end; i++)
				model[i] = (struct model){
					true, true, value.cow,
					0,    0,    value.offset + (i - first) * PAGE_SIZE
				};
			break;
		}
		case 2:
		case 3:
			p = pma_set_find(&s, first * PAGE_SIZE);
			if (!p)
				break;
			end = MIN(end, p->end / PAGE_SIZE);
			assert_int_equal(pma_set_reserve(&s, PMA_RESERVE), 0);
			p = pma_set_isolate(&s, p, first * PAGE_SIZE, end * PAGE_SIZE);
			assert_int_equal(p->start, first * PAGE_SIZE);
			assert_int_equal(p->end, end * PAGE_SIZE);
			pma_set_host(&s, p, (enum pma_map)rnd(3), (u8)rnd(4));
			for (u64 i = first; i < end; i++) {
				model[i].host_prot = p->host_prot;
				model[i].host_map = p->host_map;
			}
			pma_set_merge(&s, p);
			break;
		}
		if (step % 200 == 0) {
			check(&s);
			check_appended(&s);
		}
	}
	clear(&s, 0, N);
	assert_int_equal(s.count, 0);
	pma_set_destroy(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
