/* Controlling terminals and job control (POSIX General Terminal Interface; Linux's tty_jobctrl
 * semantics). */
#include "sentry/tty/internal.h"
#include <linux/capability.h>

static struct mutex *tasklist(struct tty *t)
{
	return &t->kernel->tasklist_lock;
}

static void send_pgrp(struct process_group *pg, int sig)
{
	siginfo_t si;

	siginfo_kernel(&si, sig, SI_KERNEL);
	signal_send_pgrp(pg, &si);
}

/* tasklist. The terminal that tg sees as its controlling one; borrowed. */
static struct tty *group_tty_locked(struct thread_group *tg)
{
	if (tg->tty_detached || !tg->pgrp)
		return NULL;
	return tg->pgrp->session->tty;
}

/* What a terminal and a session held of each other, to be dropped without the tasklist lock. */
struct parted {
	struct tty *tty;
	struct session *session;
	struct process_group *pgrp;
};

/* tasklist. Ends the association of t (if any) and hands its references out. */
static void part_locked(struct tty *t, struct parted *ret)
{
	*ret = (struct parted){ .session = t->session, .pgrp = t->pgrp };
	if (t->session && t->session->tty == t) {
		t->session->tty = NULL;
		ret->tty = t;
	}
	t->session = NULL;
	t->pgrp = NULL;
}

static void parted_put(struct parted *p)
{
	if (p->pgrp)
		process_group_put(p->pgrp);
	if (p->session)
		session_put(p->session);
	tty_put(p->tty);
}

/* tasklist. Makes t the controlling terminal of tg's session. References of an older association go
 * to ret. */
static void join_locked(struct tty *t, struct thread_group *tg, struct parted *ret)
{
	part_locked(t, ret);
	t->session = session_get(tg->pgrp->session);
	t->pgrp = process_group_get(tg->pgrp);
	t->session->tty = tty_get(t);
	tg->tty_detached = false;
}

/* tasklist. No member has a parent in another group of the same session. */
static bool orphaned_locked(struct process_group *pg)
{
	struct thread_group *tg;

	list_for_each (tg, &pg->members, pgrp_node) {
		struct thread_group *parent = tg->parent;

		if (!tg->task_count || !parent || !parent->pgrp)
			continue;
		if (parent->pgrp != pg && parent->pgrp->session == pg->session)
			return false;
	}
	return true;
}

int tty_check_change(struct tty *t, int sig)
{
	struct task *cur = current_task;
	struct process_group *pg;
	bool orphaned;

	if (!cur)
		return 0;
	mutex_lock(tasklist(t));
	if (group_tty_locked(cur->tg) != t || !t->pgrp || t->pgrp->pgid == cur->tg->pgrp->pgid) {
		mutex_unlock(tasklist(t));
		return 0;
	}
	pg = process_group_get(cur->tg->pgrp);
	orphaned = orphaned_locked(pg);
	mutex_unlock(tasklist(t));

	int ret = -ERESTARTSYS;

	if ((cur->sigmask & sigbit(sig)) || signal_ignored(cur, sig))
		ret = sig == SIGTTIN ? -EIO : 0;
	else if (orphaned)
		ret = -EIO;
	else
		send_pgrp(pg, sig);
	process_group_put(pg);
	return ret;
}

/*
 * The foreground group, a reference, or NULL. A group that lost its last member and came
 * back under the same number is another object: then that one, if of the same session.
 */
static struct process_group *foreground(struct tty *t)
{
	struct process_group *pg, *now;
	bool empty;

	mutex_lock(tasklist(t));
	pg = t->pgrp ? process_group_get(t->pgrp) : NULL;
	empty = pg && list_empty(&pg->members);
	mutex_unlock(tasklist(t));
	if (!empty)
		return pg;
	now = process_group_find(t->kernel, pg->pgid);
	if (now && now->session != pg->session) {
		process_group_put(now);
		now = NULL;
	}
	process_group_put(pg);
	return now;
}

void tty_signal_foreground(struct tty *t, u64 signals)
{
	struct process_group *pg = foreground(t);

	if (!pg)
		return;
	for (int sig = 1; sig <= SIGNAL_COUNT; sig++) {
		if (signals & sigbit(sig))
			send_pgrp(pg, sig);
	}
	process_group_put(pg);
}

/* ---- acquiring ---- */

void tty_open_acquire(struct tty *t)
{
	struct task *cur = current_task;
	struct parted old = { 0 };

	if (!cur)
		return;
	mutex_lock(tasklist(t));
	if (cur->tg->pgrp && cur->tg->pgrp->session->leader == cur->tg &&
	    !group_tty_locked(cur->tg) && !t->session)
		join_locked(t, cur->tg, &old);
	mutex_unlock(tasklist(t));
	parted_put(&old);
}

void tty_attach_session(struct tty *t, struct thread_group *tg)
{
	struct parted old = { 0 };

	mutex_lock(tasklist(t));
	join_locked(t, tg, &old);
	mutex_unlock(tasklist(t));
	parted_put(&old);
}

s64 tty_ioctl_set_controlling(struct tty *t, struct file *f, u64 arg)
{
	struct task *cur = current_task;
	struct session *mine;
	struct parted old = { 0 };
	bool admin = cred_capable(cur->cred, CAP_SYS_ADMIN);
	int ret = 0;

	mutex_lock(tasklist(t));
	mine = cur->tg->pgrp->session;
	if (mine->leader == cur->tg && t->session == mine)
		; /* it is already */
	else if (mine->leader != cur->tg || group_tty_locked(cur->tg))
		ret = -EPERM;
	else if (t->session && !(arg == 1 && admin))
		ret = -EPERM;
	else if (!file_readable(f) && !admin)
		ret = -EPERM;
	else
		join_locked(t, cur->tg, &old);
	mutex_unlock(tasklist(t));
	parted_put(&old);
	return ret;
}

/* ---- leaving ---- */

/* tasklist. Forgets the foreground group remembered at a hangup; the reference to the caller. */
static struct process_group *take_old_pgrp_locked(struct session *s)
{
	struct process_group *pg = s->tty_old_pgrp;

	s->tty_old_pgrp = NULL;
	return pg;
}

/* The leader gives up the terminal: by exit, or by TIOCNOTTY (then also SIGCONT). */
static void leader_disassociates(struct kernel *k, struct thread_group *tg, bool on_exit)
{
	struct parted old = { 0 };
	struct process_group *hung = NULL;
	struct session *s;

	mutex_lock(&k->tasklist_lock);
	s = tg->pgrp ? tg->pgrp->session : NULL;
	if (s && s->sid == tg->tgid) {
		if (s->tty)
			part_locked(s->tty, &old);
		hung = take_old_pgrp_locked(s);
	}
	mutex_unlock(&k->tasklist_lock);
	if (old.pgrp) {
		send_pgrp(old.pgrp, SIGHUP);
		if (!on_exit)
			send_pgrp(old.pgrp, SIGCONT);
	} else if (hung && on_exit) {
		send_pgrp(hung, SIGHUP);
		send_pgrp(hung, SIGCONT);
	}
	if (hung)
		process_group_put(hung);
	parted_put(&old);
}

void tty_session_leader_exit(struct kernel *k, struct thread_group *tg)
{
	leader_disassociates(k, tg, true);
}

void tty_setsid(struct thread_group *tg)
{
	tg->tty_detached = false;
}

void tty_session_free(struct session *s)
{
	struct process_group *pg = s->tty_old_pgrp;

	s->tty_old_pgrp = NULL;
	if (pg)
		process_group_put(pg);
	tty_put(s->tty);
	s->tty = NULL;
}

s64 tty_ioctl_detach(struct tty *t)
{
	struct task *cur = current_task;
	bool leader;

	mutex_lock(tasklist(t));
	if (group_tty_locked(cur->tg) != t) {
		mutex_unlock(tasklist(t));
		return -ENOTTY;
	}
	leader = cur->tg->pgrp->session->leader == cur->tg;
	if (!leader)
		cur->tg->tty_detached = true;
	mutex_unlock(tasklist(t));
	if (leader)
		leader_disassociates(t->kernel, cur->tg, false);
	return 0;
}

void tty_hangup_session(struct tty *t)
{
	struct parted old = { 0 };
	struct process_group *dropped = NULL;
	struct thread_group *leader = NULL;
	siginfo_t si;

	mutex_lock(tasklist(t));
	part_locked(t, &old);
	if (old.session) {
		if (old.session->leader)
			leader = thread_group_get(old.session->leader);
		dropped = take_old_pgrp_locked(old.session);
		if (leader && old.pgrp)
			old.session->tty_old_pgrp = process_group_get(old.pgrp);
	}
	mutex_unlock(tasklist(t));
	if (leader) {
		siginfo_kernel(&si, SIGHUP, SI_KERNEL);
		signal_send_group(leader, &si);
		siginfo_kernel(&si, SIGCONT, SI_KERNEL);
		signal_send_group(leader, &si);
		thread_group_put(leader);
	}
	if (dropped)
		process_group_put(dropped);
	parted_put(&old);
}

/* ---- queries ---- */

struct tty *tty_of_group(struct thread_group *tg)
{
	struct tty *t;

	mutex_lock(&tg->kernel->tasklist_lock);
	t = group_tty_locked(tg);
	if (t)
		tty_get(t);
	mutex_unlock(&tg->kernel->tasklist_lock);
	return t;
}

void tty_proc_numbers(struct thread_group *tg, u32 *ret_tty_nr, int *ret_tpgid)
{
	struct tty *t;

	*ret_tty_nr = 0;
	*ret_tpgid = -1;
	mutex_lock(&tg->kernel->tasklist_lock);
	t = group_tty_locked(tg);
	if (t) {
		u32 minor = (u32)t->index;

		*ret_tty_nr = (minor & 0xff) | TTY_SLAVE_MAJOR << 8 | (minor & ~0xffU) << 12;
		if (t->pgrp)
			*ret_tpgid = t->pgrp->pgid;
	}
	mutex_unlock(&tg->kernel->tasklist_lock);
}

s64 tty_ioctl_get_pgrp(struct tty *t, bool master, u64 arg)
{
	struct task *cur = current_task;
	s32 pgid;

	mutex_lock(tasklist(t));
	if (!master && group_tty_locked(cur->tg) != t) {
		mutex_unlock(tasklist(t));
		return -ENOTTY;
	}
	pgid = t->pgrp ? t->pgrp->pgid : 0;
	mutex_unlock(tasklist(t));
	return copy_out(cur, ua(arg), &pgid, sizeof(pgid));
}

s64 tty_ioctl_set_pgrp(struct tty *t, u64 arg)
{
	struct task *cur = current_task, *any;
	struct process_group *pg, *old = NULL;
	s32 pgid;
	int ret = tty_check_change(t, SIGTTOU);

	if (ret)
		return ret == -EIO ? -ENOTTY : ret;
	if (copy_in(cur, &pgid, ua(arg), sizeof(pgid)))
		return -EFAULT;
	if (pgid < 0)
		return -EINVAL;
	pg = process_group_find(t->kernel, pgid);
	any = pg ? NULL : task_find(t->kernel, pgid);
	mutex_lock(tasklist(t));
	if (group_tty_locked(cur->tg) != t || t->session != cur->tg->pgrp->session) {
		ret = -ENOTTY;
	} else if (!pg) {
		ret = any ? -EPERM : -ESRCH;
	} else if (pg->session != t->session) {
		ret = -EPERM;
	} else {
		old = t->pgrp;
		t->pgrp = pg;
		pg = NULL;
	}
	mutex_unlock(tasklist(t));
	task_put(any);
	if (old)
		process_group_put(old);
	if (pg)
		process_group_put(pg);
	return ret;
}

s64 tty_ioctl_get_sid(struct tty *t, bool master, u64 arg)
{
	struct task *cur = current_task;
	s32 sid;

	mutex_lock(tasklist(t));
	if ((!master && group_tty_locked(cur->tg) != t) || !t->session) {
		mutex_unlock(tasklist(t));
		return -ENOTTY;
	}
	sid = t->session->sid;
	mutex_unlock(tasklist(t));
	return copy_out(cur, ua(arg), &sid, sizeof(sid));
}
