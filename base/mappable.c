/* Walking the mappings of a mappable. */
#include "base/mappable.h"

/*
 * A cursor in the list marks the place while the lock is dropped for each call, and a
 * second mark the end: what registers later sees the new state anyway. The marks'
 * empty ranges meet no other walker's. Nothing is allocated: who frees pages must not
 * be able to leave out a mapping.
 */
void mappings_invalidate(struct list *mappings, const struct mappings_lock *l, u64 start, u64 end,
			 bool private_too)
{
	struct mapping cursor = { .start = 0, .end = 0 }, last = cursor;

	l->lock(l->arg);
	list_push_front(mappings, &cursor.node);
	list_push_back(mappings, &last.node);
	while (cursor.node.next != &last.node) {
		struct mapping *m = list_first(&cursor.node, struct mapping, node);

		list_del(&cursor.node);
		list_push_front(&m->node, &cursor.node);
		if (m->start >= end || m->end <= start || !m->tryget(m))
			continue;
		l->unlock(l->arg);
		m->invalidate(m, MAX(start, m->start), MIN(end, m->end), private_too);
		m->put(m);
		l->lock(l->arg);
	}
	list_del(&cursor.node);
	list_del(&last.node);
	l->unlock(l->arg);
}
