/* poll, ppoll, select, pselect6, epoll_*. */
#include "sentry/fd/epoll.h"
#include "sentry/fd/poll.h"
#include "sentry/sys/handlers.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/personality.h>

#define STACK_FDS 16
#define POLLIN_SET (EPOLLRDNORM | EPOLLRDBAND | EPOLLIN | EPOLLHUP | EPOLLERR)
#define POLLOUT_SET (EPOLLWRBAND | EPOLLWRNORM | EPOLLOUT | EPOLLERR)
#define POLLEX_SET EPOLLPRI

/* A call that ended by itself gives the old signal mask back before signals are looked at. */
static void drop_temp_mask(struct task *t)
{
	if (!t->restore_sigmask)
		return;
	t->restore_sigmask = false;
	signal_set_mask(t, t->saved_sigmask);
}

static u64 deadline_ms(s64 ms)
{
	if (ms < 0)
		return NO_DEADLINE;
	return ms == 0 ? 0 : clock_monotonic_ns() + (u64)ms * 1000000ULL;
}

/* As sys_deadline_in, but a zero timeout is deadline 0: look, do not wait. */
static int deadline_ts(struct task *t, uaddr at, u64 *ret)
{
	struct timespec ts;
	int err;

	if (!at.v) {
		*ret = NO_DEADLINE;
		return 0;
	}
	err = sys_timespec_in(t, at, &ts);
	if (err < 0)
		return err;
	if (ts.tv_sec == 0 && ts.tv_nsec == 0) {
		*ret = 0;
		return 0;
	}
	return sys_deadline_from(&ts, ret);
}

/* ---- poll ---- */

static int fill_polls(struct poll_one *p, const struct pollfd *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		p[i].fd = fds[i].fd;
		p[i].events = (u16)fds[i].events;
	}
	return 0;
}

/* revents of every entry out; the number that have some, or -EFAULT. */
static s64 polls_out(struct task *t, uaddr at, const struct poll_one *p, struct pollfd *fds,
		     size_t count)
{
	for (size_t i = 0; i < count; i++)
		fds[i].revents = (short)p[i].revents;
	return count ? copy_out(t, at, fds, count * sizeof(*fds)) : 0;
}

static s64 do_poll(struct task *t, uaddr at, u64 nfds, u64 deadline)
{
	struct pollfd few[STACK_FDS], *fds = few;
	struct poll_one few_polls[STACK_FDS], *p = few_polls;
	size_t count = (size_t)nfds;
	s64 ret;
	int err;

	if (nfds > task_rlimit(t, RLIMIT_NOFILE) || nfds > FD_TABLE_MAX)
		return -EINVAL;
	if (count > STACK_FDS) {
		fds = malloc(count * sizeof(*fds));
		p = poll_alloc(count);
		if (!fds || !p) {
			ret = -ENOMEM;
			goto out;
		}
	}
	ret = count ? copy_in(t, fds, at, count * sizeof(*fds)) : 0;
	if (ret < 0)
		goto out;
	fill_polls(p, fds, count);
	ret = poll_files(t, p, count, deadline);
	if (ret >= 0 || ret == -ERESTARTSYS) {
		err = (int)polls_out(t, at, p, fds, count);
		if (err < 0)
			ret = err;
	}
out:
	if (fds != few)
		free(fds);
	if (p != few_polls)
		poll_free(p, count);
	return ret;
}

static s64 poll_restart(struct task *t, struct restart_block *rb)
{
	s64 ret = do_poll(t, ua(rb->arg[0]), rb->arg[1], rb->arg[2]);

	return ret == -ERESTARTSYS ? -ERESTART_RESTARTBLOCK : ret;
}

s64 sys_poll(struct task *t, const u64 a[6])
{
	u64 deadline = deadline_ms((int)a[2]);
	s64 ret = do_poll(t, ua(a[0]), (u32)a[1], deadline);

	if (ret != -ERESTARTSYS)
		return ret;
	t->restart.fn = poll_restart;
	t->restart.arg[0] = a[0];
	t->restart.arg[1] = (u32)a[1];
	t->restart.arg[2] = deadline;
	return -ERESTART_RESTARTBLOCK;
}

/* The end of ppoll, pselect6, select: remaining time out, restart code, mask. */
static s64 finish(struct task *t, s64 ret, uaddr ts, u64 deadline)
{
	if (ret == -ERESTARTSYS)
		ret = -ERESTARTNOHAND;
	if (ts.v && deadline != NO_DEADLINE) {
		int err = 0;

		if (t->misc.personality & STICKY_TIMEOUTS)
			err = -EINTR; /* a restart would wait all over again */
		else if (deadline)
			err = sys_remaining_out(t, ts, deadline);
		if (err < 0 && ret == -ERESTARTNOHAND)
			ret = -EINTR;
	}
	if (ret != -ERESTARTNOHAND && ret != -EINTR)
		drop_temp_mask(t);
	return ret;
}

static int temp_mask(struct task *t, uaddr set, u64 size)
{
	u64 mask;
	int err;

	if (!set.v)
		return 0;
	err = sys_sigset_in(t, set, size, &mask);
	if (err == 0)
		signal_set_temp_mask(t, mask);
	return err;
}

s64 sys_ppoll(struct task *t, const u64 a[6])
{
	u64 deadline;
	int err = deadline_ts(t, ua(a[2]), &deadline);

	if (err == 0)
		err = temp_mask(t, ua(a[3]), a[4]);
	if (err < 0)
		return err;
	return finish(t, do_poll(t, ua(a[0]), (u32)a[1], deadline), ua(a[2]), deadline);
}

/* ---- select ---- */

struct select_sets {
	size_t bytes;	    /* of each set, whole words */
	u8 *in[3], *out[3]; /* read, write, except; in[i] NULL: not given */
	u8 *memory;
	u8 few[6 * 128];
};

static int sets_in(struct task *t, struct select_sets *s, int n, const u64 at[3])
{
	s->bytes = ((size_t)n + 63) / 64 * 8;
	s->memory = s->few;
	if (s->bytes * 6 > sizeof(s->few)) {
		s->memory = malloc(s->bytes * 6);
		if (!s->memory)
			return -ENOMEM;
	}
	memset(s->memory, 0, s->bytes * 6);
	for (int i = 0; i < 3; i++) {
		s->out[i] = s->memory + (size_t)(3 + i) * s->bytes;
		s->in[i] = at[i] ? s->memory + (size_t)i * s->bytes : NULL;
		if (s->in[i] && s->bytes && copy_in(t, s->in[i], ua(at[i]), s->bytes) < 0)
			return -EFAULT;
	}
	return 0;
}

static bool bit(const u8 *set, int fd)
{
	return set && (set[fd / 8] >> (fd % 8) & 1);
}

static u32 select_events(const struct select_sets *s, int fd)
{
	return (bit(s->in[0], fd) ? POLLIN_SET : 0) | (bit(s->in[1], fd) ? POLLOUT_SET : 0) |
	       (bit(s->in[2], fd) ? POLLEX_SET : 0);
}

static size_t count_fds(const struct select_sets *s, int n)
{
	size_t count = 0;

	for (int fd = 0; fd < n; fd++)
		count += select_events(s, fd) != 0;
	return count;
}

/* Bits of the result; the number set, or -EBADF. */
static s64 select_results(struct select_sets *s, const struct poll_one *p, size_t count)
{
	static const u32 masks[3] = { POLLIN_SET, POLLOUT_SET, POLLEX_SET };
	s64 bits = 0;

	for (size_t i = 0; i < count; i++) {
		int fd = p[i].fd;

		if (p[i].revents & POLLNVAL)
			return -EBADF;
		for (int k = 0; k < 3; k++)
			if (bit(s->in[k], fd) && (p[i].revents & masks[k])) {
				s->out[k][fd / 8] |= (u8)(1U << (fd % 8));
				bits++;
			}
	}
	return bits;
}

static s64 select_wait(struct task *t, struct select_sets *s, int n, u64 deadline)
{
	struct poll_one few[STACK_FDS], *p = few;
	size_t count = count_fds(s, n), k = 0;
	s64 ret;

	if (count > STACK_FDS) {
		p = poll_alloc(count);
		if (!p)
			return -ENOMEM;
	}
	for (int fd = 0; fd < n; fd++) {
		u32 events = select_events(s, fd);

		if (events)
			p[k++] = (struct poll_one){ .fd = fd, .events = events };
	}
	ret = poll_files(t, p, count, deadline);
	if (ret >= 0)
		ret = select_results(s, p, count);
	if (p != few)
		poll_free(p, count);
	return ret;
}

static s64 do_select(struct task *t, const u64 a[6], u64 deadline)
{
	const u64 at[3] = { a[1], a[2], a[3] };
	struct select_sets s;
	int n = (int)a[0];
	s64 ret;

	if (n < 0)
		return -EINVAL;
	n = MIN(n, FD_TABLE_MAX);
	ret = sets_in(t, &s, n, at);
	if (ret == 0)
		ret = select_wait(t, &s, n, deadline);
	for (int i = 0; i < 3 && ret >= 0; i++)
		if (s.in[i] && s.bytes && copy_out(t, ua(at[i]), s.out[i], s.bytes) < 0)
			ret = -EFAULT;
	if (s.memory != s.few)
		free(s.memory);
	return ret;
}

s64 sys_select(struct task *t, const u64 a[6])
{
	u64 deadline = NO_DEADLINE, now;
	struct timeval tv;
	s64 ret;

	if (a[4]) {
		struct timespec ts;
		int err;

		if (copy_in(t, &tv, ua(a[4]), sizeof(tv)) < 0)
			return -EFAULT;
		if (tv.tv_usec < 0 || tv.tv_sec < 0)
			return -EINVAL;
		if (__builtin_add_overflow(tv.tv_sec, tv.tv_usec / 1000000, &ts.tv_sec))
			return -EINVAL;
		ts.tv_nsec = tv.tv_usec % 1000000 * 1000;
		err = sys_deadline_from(&ts, &deadline);
		if (err < 0)
			return err;
		if (ts.tv_sec == 0 && ts.tv_nsec == 0)
			deadline = 0;
	}
	ret = do_select(t, a, deadline);
	if (ret == -ERESTARTSYS)
		ret = -ERESTARTNOHAND;
	if (!a[4] || deadline == NO_DEADLINE)
		return ret;
	if (t->misc.personality & STICKY_TIMEOUTS)
		return ret == -ERESTARTNOHAND ? -EINTR : ret;
	now = clock_monotonic_ns();
	u64 left = deadline > now ? deadline - now : 0;
	tv = (struct timeval){ (time_t)(left / 1000000000ULL),
			       (suseconds_t)(left % 1000000000ULL / 1000) };
	if (copy_out(t, ua(a[4]), &tv, sizeof(tv)) < 0 && ret == -ERESTARTNOHAND)
		ret = -EINTR;
	return ret;
}

s64 sys_pselect6(struct task *t, const u64 a[6])
{
	struct {
		u64 set, size;
	} mask = { 0, 0 };
	u64 deadline;
	int err;

	if (a[5] && copy_in(t, &mask, ua(a[5]), sizeof(mask)) < 0)
		return -EFAULT;
	err = deadline_ts(t, ua(a[4]), &deadline);
	if (err == 0)
		err = temp_mask(t, ua(mask.set), mask.size);
	if (err < 0)
		return err;
	return finish(t, do_select(t, a, deadline), ua(a[4]), deadline);
}

/* ---- epoll ---- */

static s64 create_epoll(struct task *t, bool cloexec)
{
	struct file *f;
	int fd, err = epoll_file_new(t->cred, &f);

	if (err < 0)
		return err;
	fd = fd_install(t->fds, f, 0, cloexec, task_rlimit(t, RLIMIT_NOFILE));
	if (fd < 0)
		file_put(f);
	return fd;
}

s64 sys_epoll_create(struct task *t, const u64 a[6])
{
	return (int)a[0] <= 0 ? -EINVAL : create_epoll(t, false);
}

s64 sys_epoll_create1(struct task *t, const u64 a[6])
{
	return (u32)a[0] & ~(u32)EPOLL_CLOEXEC ? -EINVAL
					       : create_epoll(t, (u32)a[0] & EPOLL_CLOEXEC);
}

s64 sys_epoll_ctl(struct task *t, const u64 a[6])
{
	int op = (int)a[1], fd = (int)a[2];
	struct epoll_event ev;
	struct file *epf, *target;
	s64 ret = -EBADF;

	if (op != EPOLL_CTL_DEL && copy_in(t, &ev, ua(a[3]), sizeof(ev)) < 0)
		return -EFAULT;
	epf = fd_get(t->fds, (int)a[0]);
	if (!epf)
		return -EBADF;
	target = fd_get(t->fds, fd);
	if (target)
		ret = epoll_control(epf, op, fd, target, op == EPOLL_CTL_DEL ? NULL : &ev);
	file_put(target);
	file_put(epf);
	return ret;
}

static s64 wait_on(struct task *t, const u64 a[6], u64 deadline)
{
	int max = (int)a[2];
	struct fd_ref f;
	s64 ret;

	if (max <= 0 || max > EPOLL_MAX_EVENTS)
		return -EINVAL;
	f = fd_ref(t->fds, (int)a[0]);
	if (!f.file)
		return -EBADF;
	ret = file_is_epoll(f.file) ? epoll_wait_events(t, f.file, ua(a[1]), max, deadline)
				    : -EINVAL;
	fd_ref_put(f);
	return ret;
}

s64 sys_epoll_wait(struct task *t, const u64 a[6])
{
	return wait_on(t, a, deadline_ms((int)a[3]));
}

static s64 masked_wait(struct task *t, const u64 a[6], u64 deadline)
{
	int err = temp_mask(t, ua(a[4]), a[5]);
	s64 ret;

	if (err < 0)
		return err;
	ret = wait_on(t, a, deadline);
	if (ret != -EINTR)
		drop_temp_mask(t);
	return ret;
}

s64 sys_epoll_pwait(struct task *t, const u64 a[6])
{
	return masked_wait(t, a, deadline_ms((int)a[3]));
}

s64 sys_epoll_pwait2(struct task *t, const u64 a[6])
{
	u64 deadline;
	int err = deadline_ts(t, ua(a[3]), &deadline);

	return err < 0 ? err : masked_wait(t, a, deadline);
}
