/*
 * Process groups and sessions. Both live in the pid table from their first
 * member to their last; references only keep the memory (a terminal may still
 * know a group that has no members).
 */
#include "base/log.h"
#include "sentry/task/internal.h"
#include "sentry/tty/tty.h"

#include <stdlib.h>

struct process_group *process_group_get(struct process_group *pg)
{
	refs_get(&pg->refs);
	return pg;
}

void process_group_put(struct process_group *pg)
{
	if (!pg || !refs_put(&pg->refs))
		return;
	ASSERT(list_empty(&pg->members));
	session_put(pg->session);
	free(pg);
}

struct session *session_get(struct session *s)
{
	refs_get(&s->refs);
	return s;
}

void session_put(struct session *s)
{
	if (!s || !refs_put(&s->refs))
		return;
	tty_session_free(s);
	free(s);
}

/* Out of the pid table, with its session if it was its last group. */
static void pgrp_unhash(struct process_group *pg)
{
	struct kernel *k = pg->kernel;
	struct session *s = pg->session;
	struct pid_entry *e = pid_lookup(k, pg->pgid);

	ASSERT(e && e->pgrp == pg);
	e->pgrp = NULL;
	pid_entry_drop(k, e);
	if (--s->pgrp_count)
		return;
	e = pid_lookup(k, s->sid);
	ASSERT(e && e->session == s);
	e->session = NULL;
	pid_entry_drop(k, e);
}

void pgrp_leave_locked(struct thread_group *tg, struct process_group **ret_old)
{
	struct process_group *pg = tg->pgrp;

	*ret_old = pg;
	if (!pg)
		return;
	list_del(&tg->pgrp_node);
	tg->pgrp = NULL;
	if (list_empty(&pg->members))
		pgrp_unhash(pg);
}

static struct process_group *pgrp_new(struct kernel *k, struct pid_entry *e, struct session *s)
{
	struct process_group *pg = calloc(1, sizeof(*pg));

	if (!pg)
		return NULL;
	refs_init(&pg->refs, "process_group");
	pg->kernel = k;
	pg->pgid = e->nr;
	pg->session = session_get(s);
	list_init(&pg->members);
	e->pgrp = pg;
	s->pgrp_count++;
	return pg;
}

int pgrp_join_locked(struct thread_group *tg, int pgid, struct session *s,
		     struct process_group **ret_old)
{
	struct kernel *k = tg->kernel;
	struct pid_entry *e = pid_lookup(k, pgid);
	struct process_group *pg;

	*ret_old = NULL;
	ASSERT(e);
	if (e->pgrp) {
		pg = process_group_get(e->pgrp);
	} else {
		pg = pgrp_new(k, e, s);
		if (!pg)
			return -ENOMEM;
	}
	pgrp_leave_locked(tg, ret_old);
	tg->pgrp = pg;
	list_push_back(&pg->members, &tg->pgrp_node);
	return 0;
}

/* setsid(2)'s core: a session and a group named after tg. tasklist. */
int session_start_locked(struct thread_group *tg, struct process_group **ret_old)
{
	struct kernel *k = tg->kernel;
	struct pid_entry *e = pid_lookup(k, tg->tgid);
	struct session *s = calloc(1, sizeof(*s));
	int r;

	*ret_old = NULL;
	if (!s)
		return -ENOMEM;
	refs_init(&s->refs, "session");
	s->kernel = k;
	s->sid = tg->tgid;
	s->leader = tg;
	e->session = s;
	r = pgrp_join_locked(tg, tg->tgid, s, ret_old);
	if (r < 0) {
		e->session = NULL;
		free(s);
		return r;
	}
	/* The group's reference is the only one now. */
	refs_put(&s->refs);
	return 0;
}

bool pgrp_orphaned_locked(struct process_group *pg, struct thread_group *without)
{
	struct thread_group *tg;

	list_for_each (tg, &pg->members, pgrp_node) {
		struct thread_group *p = tg->parent;

		if (tg == without || !tg->task_count || !p || !p->pgrp)
			continue;
		if (p->pgrp != pg && p->pgrp->session == pg->session)
			return false;
	}
	return true;
}

static bool has_stopped_member(struct process_group *pg)
{
	struct thread_group *tg;

	list_for_each (tg, &pg->members, pgrp_node) {
		bool stopped;

		if (!tg->task_count)
			continue;
		mutex_lock(&tg->sighand->lock);
		stopped = tg->stopped;
		mutex_unlock(&tg->sighand->lock);
		if (stopped)
			return true;
	}
	return false;
}

void pgrp_kill_if_orphaned_locked(struct process_group *pg, struct session *s,
				  struct thread_group *dying)
{
	struct thread_group *tg;
	siginfo_t hup, cont;

	if (!pg || pg->session != s || !pgrp_orphaned_locked(pg, dying) || !has_stopped_member(pg))
		return;
	siginfo_kernel(&hup, SIGHUP, SI_KERNEL);
	siginfo_kernel(&cont, SIGCONT, SI_KERNEL);
	list_for_each (tg, &pg->members, pgrp_node) {
		signal_send_group(tg, &hup);
		signal_send_group(tg, &cont);
	}
}

int task_pgid(struct task *t)
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);

	return t->tg->pgrp ? t->tg->pgrp->pgid : 0;
}

int task_sid(struct task *t)
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);

	return t->tg->pgrp ? t->tg->pgrp->session->sid : 0;
}

int task_ppid(struct task *t)
{
	MUTEX_GUARD(&t->kernel->tasklist_lock);

	if (t->tg->parent)
		return t->tg->parent->tgid;
	return PID_REAPER;
}
