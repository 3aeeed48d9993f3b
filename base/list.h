/*
 * base/list.h: intrusive circular doubly linked list.
 *
 * A `struct list` is both head and node. Not locked: the owner of the head
 * says which lock protects it.
 */
#ifndef MINISENTRY_BASE_LIST_H
#define MINISENTRY_BASE_LIST_H

#include "base/types.h"

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name)                                                                            \
	{                                                                                          \
		&(name), &(name)                                                                   \
	}

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_between(struct list *n, struct list *prev, struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_push_back(struct list *head, struct list *n)
{
	list_insert_between(n, head->prev, head);
}

static inline void list_push_front(struct list *head, struct list *n)
{
	list_insert_between(n, head, head->next);
}

/* Unlinks n and leaves it as an empty list, so that a second del is harmless. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

#define list_entry(p, type, member) container_of(p, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
#define list_for_each(pos, head, member)                                                           \
	for (pos = list_entry((head)->next, __typeof__(*pos), member); &pos->member != (head);     \
	     pos = list_entry(pos->member.next, __typeof__(*pos), member))
#define list_for_each_safe(pos, tmp, head, member)                                                 \
	for (pos = list_entry((head)->next, __typeof__(*pos), member),                             \
	    tmp = list_entry(pos->member.next, __typeof__(*pos), member);                          \
	     &pos->member != (head);                                                               \
	     pos = tmp, tmp = list_entry(tmp->member.next, __typeof__(*pos), member))

#endif
