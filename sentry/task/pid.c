/* Numbers of tasks, thread groups, process groups and sessions: an ordered table. */
#include "base/log.h"
#include "sentry/task/internal.h"

#include <stdlib.h>

/* A guest process takes a sentry thread and two or three of a stub; the rest is for others on the
 * host. */
#define HOST_TASKS_PER_TASK 4
#define TASK_COUNT_MIN 64

static struct pid_entry *entry_of(struct avl_node *n)
{
	return n ? container_of(n, struct pid_entry, node) : NULL;
}

struct pid_table *pid_table_new(u64 host_room)
{
	struct pid_table *pt = calloc(1, sizeof(*pt));

	if (!pt)
		return NULL;
	pt->last = PID_REAPER;
	pt->limit = (u32)MAX(MIN(host_room / HOST_TASKS_PER_TASK, TASK_COUNT_MAX), TASK_COUNT_MIN);
	return pt;
}

void pid_table_free(struct pid_table *pt)
{
	struct avl_node *n;

	if (!pt)
		return;
	while ((n = avl_first(&pt->root))) {
		avl_remove(&pt->root, n);
		free(entry_of(n));
	}
	free(pt);
}

struct pid_entry *pid_lookup(struct kernel *k, int nr)
{
	struct avl_node *n = k->pids->root.top;

	mutex_assert_held(&k->tasklist_lock);
	while (n) {
		struct pid_entry *e = entry_of(n);

		if (e->nr == nr)
			return e;
		n = nr < e->nr ? n->left : n->right;
	}
	return NULL;
}

struct pid_entry *pid_next(struct kernel *k, int after)
{
	struct avl_node *n = k->pids->root.top;
	struct pid_entry *best = NULL;

	mutex_assert_held(&k->tasklist_lock);
	while (n) {
		struct pid_entry *e = entry_of(n);

		if (e->nr > after) {
			best = e;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return best;
}

static int pid_insert(struct kernel *k, int nr, struct pid_entry **ret)
{
	struct avl_node *parent = NULL, **link = &k->pids->root.top;
	struct pid_entry *e;

	while (*link) {
		parent = *link;
		if (entry_of(parent)->nr == nr)
			return -EEXIST;
		link = nr < entry_of(parent)->nr ? &parent->left : &parent->right;
	}
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->nr = nr;
	e->reserved = true;
	avl_insert(&k->pids->root, &e->node, parent, link);
	k->pids->entry_count++;
	*ret = e;
	return 0;
}

int pid_alloc(struct kernel *k, int want, struct pid_entry **ret)
{
	struct pid_table *pt = k->pids;
	int nr = pt->last, r;

	if (want)
		return want == PID_REAPER ? -EEXIST : pid_insert(k, want, ret);
	/* At most entry_count numbers are taken, so this many tries find a free one. */
	for (u32 i = 0; i <= pt->entry_count + 1; i++) {
		nr = nr + 1 >= PID_LIMIT ? PID_RESERVED : nr + 1;
		r = pid_insert(k, nr, ret);
		if (r == 0)
			pt->last = nr;
		if (r != -EEXIST)
			return r;
	}
	return -EAGAIN;
}

void pid_entry_drop(struct kernel *k, struct pid_entry *e)
{
	if (e->reserved || e->task || e->tg || e->pgrp || e->session)
		return;
	avl_remove(&k->pids->root, &e->node);
	k->pids->entry_count--;
	free(e);
}

struct task *task_find(struct kernel *k, int tid)
{
	MUTEX_GUARD(&k->tasklist_lock);
	struct pid_entry *e = pid_lookup(k, tid);

	return e && e->task ? task_get(e->task) : NULL;
}

struct thread_group *thread_group_find(struct kernel *k, int tgid)
{
	MUTEX_GUARD(&k->tasklist_lock);
	struct pid_entry *e = pid_lookup(k, tgid);

	return e && e->tg ? thread_group_get(e->tg) : NULL;
}

struct process_group *process_group_find(struct kernel *k, int pgid)
{
	MUTEX_GUARD(&k->tasklist_lock);
	struct pid_entry *e = pid_lookup(k, pgid);

	return e && e->pgrp ? process_group_get(e->pgrp) : NULL;
}

int thread_group_next(struct kernel *k, int after)
{
	MUTEX_GUARD(&k->tasklist_lock);
	struct pid_entry *e = pid_next(k, after);

	while (e && !e->tg)
		e = pid_next(k, e->nr);
	return e ? e->nr : 0;
}

int task_next_in_group(struct thread_group *tg, int after)
{
	MUTEX_GUARD(&tg->kernel->tasklist_lock);
	struct task *t;
	int best = 0;

	list_for_each (t, &tg->tasks, group_node)
		if (t->tid > after && (!best || t->tid < best))
			best = t->tid;
	return best;
}

void thread_group_for_each(struct kernel *k, void (*fn)(struct thread_group *tg, void *arg),
			   void *arg)
{
	MUTEX_GUARD(&k->tasklist_lock);

	for (struct pid_entry *e = pid_next(k, 0); e; e = pid_next(k, e->nr))
		if (e->tg)
			fn(e->tg, arg);
}
