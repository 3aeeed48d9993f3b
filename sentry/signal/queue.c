/* Handlers shared by a group, queues of pending signals, siginfo builders. */
#include "base/log.h"
#include "sentry/task/internal.h"
#include "sentry/time/timers.h"

#include <stdlib.h>
#include <string.h>

struct sigqueue {
	struct list node;
	siginfo_t info;
};

struct sighand *sighand_new(void)
{
	struct sighand *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	refs_init(&s->refs, "sighand");
	mutex_init(&s->lock, RANK_SIGHAND, "sighand");
	return s;
}

struct sighand *sighand_dup(struct sighand *s)
{
	struct sighand *n = sighand_new();

	if (!n)
		return NULL;
	mutex_lock(&s->lock);
	memcpy(n->action, s->action, sizeof(n->action));
	mutex_unlock(&s->lock);
	return n;
}

struct sighand *sighand_get(struct sighand *s)
{
	refs_get(&s->refs);
	return s;
}

void sighand_put(struct sighand *s)
{
	while (s && refs_put(&s->refs)) {
		struct sighand *older = s->retired;

		mutex_destroy(&s->lock);
		free(s);
		s = older;
	}
}

void sighand_reset_on_exec(struct sighand *s)
{
	mutex_lock(&s->lock);
	for (int i = 0; i < SIGNAL_COUNT; i++) {
		if (s->action[i].handler != (u64)SIG_IGN)
			s->action[i].handler = (u64)SIG_DFL;
		s->action[i].flags = 0;
		s->action[i].restorer = 0;
		s->action[i].mask = 0;
	}
	mutex_unlock(&s->lock);
}

struct sighand *sighand_lock(struct thread_group *tg)
{
	wake_hold(); /* whoever is woken takes the lock first of all */
	for (;;) {
		struct sighand *s = __atomic_load_n(&tg->sighand, __ATOMIC_ACQUIRE);

		mutex_lock(&s->lock);
		if (s == __atomic_load_n(&tg->sighand, __ATOMIC_ACQUIRE))
			return s;
		mutex_unlock(&s->lock);
	}
}

void sighand_unlock(struct sighand *s)
{
	mutex_unlock(&s->lock);
	wake_release();
}

void sigqueue_init(struct sigqueue_head *q, _Atomic u32 *total)
{
	q->total = total;
	q->set = 0;
	q->count = 0;
	list_init(&q->entries);
}

bool sigqueue_full(const struct sigqueue_head *q, size_t limit)
{
	return q->count >= limit || atomic_load(q->total) >= SIGQUEUE_TOTAL_MAX;
}

static void entry_free(struct sigqueue_head *q, struct sigqueue *e)
{
	list_del(&e->node);
	q->count--;
	atomic_fetch_sub(q->total, 1);
	free(e);
}

void sigqueue_flush(struct sigqueue_head *q, u64 mask)
{
	struct sigqueue *e, *tmp;

	if (!(q->set & mask))
		return;
	q->set &= ~mask;
	list_for_each_safe (e, tmp, &q->entries, node) {
		if (!(mask & sigbit(e->info.si_signo)))
			continue;
		entry_free(q, e);
	}
}

bool sigqueue_push(struct sigqueue_head *q, const siginfo_t *info, size_t limit)
{
	struct sigqueue *e = NULL;

	if (!sigqueue_full(q, limit))
		e = malloc(sizeof(*e));
	q->set |= sigbit(info->si_signo);
	if (!e)
		return false;
	e->info = *info;
	list_push_back(&q->entries, &e->node);
	q->count++;
	atomic_fetch_add(q->total, 1);
	return true;
}

void sigqueue_take(struct sigqueue_head *q, int sig, siginfo_t *ret)
{
	struct sigqueue *e, *tmp, *found = NULL;
	bool more = false;

	list_for_each_safe (e, tmp, &q->entries, node) {
		if (e->info.si_signo != sig)
			continue;
		if (!found) {
			found = e;
		} else {
			more = true;
			break;
		}
	}
	if (!more)
		q->set &= ~sigbit(sig);
	if (found) {
		*ret = found->info;
		entry_free(q, found);
	} else {
		/* Its details did not fit into the queue. */
		memset(ret, 0, sizeof(*ret));
		ret->si_signo = sig;
		ret->si_code = SI_USER;
	}
}

/* The first fault-like entry of mask that was raised by the task itself: goes before all others. */
int sigqueue_synchronous(struct sigqueue_head *q, u64 mask)
{
	struct sigqueue *e;

	mask &= q->set & (sigbit(SIGSEGV) | sigbit(SIGBUS) | sigbit(SIGILL) | sigbit(SIGTRAP) |
			  sigbit(SIGFPE) | sigbit(SIGSYS));
	if (!mask)
		return 0;
	list_for_each (e, &q->entries, node)
		if ((mask & sigbit(e->info.si_signo)) && e->info.si_code > SI_USER)
			return e->info.si_signo;
	return 0;
}

void siginfo_kernel(siginfo_t *si, int sig, int code)
{
	memset(si, 0, sizeof(*si));
	si->si_signo = sig;
	si->si_code = code;
}

void siginfo_user(siginfo_t *si, int sig, int code, struct task *sender)
{
	siginfo_kernel(si, sig, code);
	if (sender) {
		si->si_pid = sender->tg->tgid;
		si->si_uid = sender->cred->uid;
	}
}

void siginfo_fault(siginfo_t *si, int sig, int code, u64 addr)
{
	siginfo_kernel(si, sig, code);
	si->si_addr = (void *)addr;
}

/* Takes the next signal of mask, the task's own queue first. Sighand held. */
int signal_dequeue_locked(struct task *t, u64 mask, siginfo_t *ret)
{
	struct sigqueue_head *q = &t->pending;
	u64 ready = q->set & mask;
	int sig;

	if (!ready) {
		q = &t->tg->pending;
		ready = q->set & mask;
		if (!ready)
			return 0;
	}
	sig = q == &t->pending ? sigqueue_synchronous(q, mask) : 0;
	if (!sig)
		sig = __builtin_ctzll(ready) + 1;
	ASSERT(sig > 0);
	sigqueue_take(q, sig, ret);
	if (sigbit(sig) & SIGNALS_STOP)
		t->stop_dequeued = true;
	if (ret->si_code == SI_TIMER)
		posix_timer_dequeued(t->tg, ret);
	return sig;
}

int signal_dequeue(struct task *t, u64 set, siginfo_t *ret)
{
	struct sighand *sh = sighand_lock(t->tg);
	int sig = signal_dequeue_locked(t, set, ret);

	signal_recalc_locked(t);
	sighand_unlock(sh);
	return sig;
}

u64 signal_pending_set(struct task *t)
{
	struct sighand *sh = sighand_lock(t->tg);
	u64 set = t->pending.set | t->tg->pending.set;

	sighand_unlock(sh);
	return set;
}
