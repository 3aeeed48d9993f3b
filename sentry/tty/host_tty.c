/* The relay between the host terminal and the master side of the guest's first pty. */
#include "sentry/tty/host_tty.h"
#include "base/host_mem.h"
#include "base/host_sync.h"
#include "base/host_term.h"
#include "base/log.h"
#include "sentry/tty/internal.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RELAY_BUFFER 4096
#define RELAY_WRITE_MAX                                                                            \
	256 /* a write of this size does not block after POLLOUT, even on a blocking fd */
#define RETRY_NS 200000000LL
#define DRAIN_LIMIT_NS                                                                             \
	3000000000ULL /* a terminal that takes nothing for so long loses the rest at exit */

struct host_tty {
	struct kernel *kernel;
	struct tty *tty;  /* a reference */
	int host_fd;	  /* borrowed */
	bool nonblocking; /* host_fd is our own open file description */
	bool piped;	  /* standard output is no terminal: its reader may well write to ours */
	int event_fd;	  /* wakes the relay thread */
	pthread_t thread;
	struct waiter waiter;
	_Atomic bool kicked, stop, make_raw;
	/* the relay thread's own */
	u8 in[RELAY_BUFFER], out[RELAY_BUFFER];
	u32 in_off, in_len, out_off, out_len;
	bool gone;		       /* the host terminal hung up */
	struct host_term_settings raw; /* the host terminal's, while it is ours */
	struct ktermios copied;	       /* what the pty was given */
	u64 retry_ns; /* in the background: when to try the terminal again; 0: it is ours */
};

/* For host_tty_restore, which may run in a signal handler: the one terminal of this process. */
static struct host_term_settings saved;
static _Atomic int saved_fd = -1; /* >= 0: its settings are to be restored */
static _Atomic bool background;	  /* the terminal is another job's now: hands off */

void host_tty_restore(void)
{
	int fd = atomic_exchange(&saved_fd, -1);

	if (fd >= 0 && !atomic_load(&background))
		host_term_set(fd, &saved, false);
}

static void kick(struct host_tty *h)
{
	if (!atomic_exchange(&h->kicked, true))
		host_eventfd_write(h->event_fd, 1);
}

static void on_master_ready(struct waiter *w, u32 events)
{
	kick(w->arg);
}

static void copy_settings(struct host_tty *h)
{
	struct tty *t = h->tty;

	tty_lock(t);
	t->termios.c_iflag = saved.iflag;
	t->termios.c_oflag = saved.oflag;
	t->termios.c_cflag = (saved.cflag & ~(u32)(CSIZE | PARENB | CLOCAL)) | CS8 | CREAD;
	t->termios.c_lflag = saved.lflag;
	memcpy(t->termios.c_cc, saved.keys, sizeof(t->termios.c_cc));
	h->copied = t->termios;
	tty_unlock(t);
}

/*
 * The terminal becomes ours. The shell that started us in the background was editing its command
 * line then, so what was saved at the start may be its editor's settings: these are the right ones.
 */
static void take_settings(struct host_tty *h)
{
	struct host_term_settings now;
	bool untouched;

	if (host_term_get(h->host_fd, &now) || !memcmp(&now, &h->raw, sizeof(now)))
		return;
	atomic_store(&saved_fd, -1);
	saved = now;
	tty_lock(h->tty);
	untouched = !memcmp(&h->copied, &h->tty->termios, sizeof(h->copied));
	tty_unlock(h->tty);
	if (untouched)
		copy_settings(h);
}

/* The host side passes every byte untouched; output processing too is the guest's pty's. */
static void set_raw(struct host_tty *h)
{
	struct host_term_settings raw = saved;

	raw.iflag &=
		~(u32)(IGNBRK | BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IXON | IXOFF);
	/* `minisentry run ... | tee log`: tee's lines still want their carriage returns, and a
	 * second one does no harm. */
	if (!h->piped)
		raw.oflag &= ~(u32)OPOST;
	raw.lflag &= ~(u32)(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
	raw.cflag = (raw.cflag & ~(u32)(CSIZE | PARENB)) | CS8;
	raw.keys[VMIN] = 1;
	raw.keys[VTIME] = 0;
	atomic_store(&saved_fd, h->host_fd);
	host_term_set(h->host_fd, &raw, false);
	/* as the terminal keeps it */
	host_term_get(h->host_fd, &h->raw);
}

static void terminal_gone(struct host_tty *h)
{
	if (h->gone)
		return;
	h->gone = true;
	atomic_store(&saved_fd, -1);
	waitq_remove(&h->waiter);
	tty_master_gone(h->tty);
}

static void move_input(struct host_tty *h)
{
	if (h->in_off == h->in_len)
		return;
	h->in_off += tty_master_feed(h->tty, h->in + h->in_off, h->in_len - h->in_off);
	if (h->in_off == h->in_len)
		h->in_off = h->in_len = 0;
}

static void take_output(struct host_tty *h)
{
	if (h->out_off < h->out_len)
		return;
	h->out_off = 0;
	h->out_len = tty_master_take(h->tty, h->out, sizeof(h->out));
}

static void write_host(struct host_tty *h)
{
	ssize_t n = host_term_write(h->host_fd, h->out + h->out_off,
				    MIN(h->out_len - h->out_off, RELAY_WRITE_MAX));

	if (n > 0)
		h->out_off += (u32)n;
	else if (n != -EAGAIN && n != -EINTR)
		terminal_gone(h);
}

/*
 * We block the job-control signals, so in the background (`minisentry ... &`) a read fails with EIO
 * instead of stopping us. Then the terminal is left alone, settings too, until a later try
 * succeeds.
 */
static void read_host(struct host_tty *h, short revents)
{
	ssize_t n = host_term_read(h->host_fd, h->in, sizeof(h->in));
	bool refused = n == -EIO && !(revents & POLLHUP);

	h->retry_ns = refused ? clock_monotonic_ns() + RETRY_NS : 0;
	atomic_store(&background, refused);
	if (n > 0) {
		h->in_off = 0;
		h->in_len = (u32)n;
	} else if (n != -EAGAIN && n != -EINTR && !refused) {
		terminal_gone(h);
	}
}

/* Makes the terminal raw once it is ours. */
static void want_raw(struct host_tty *h)
{
	/* on a blocking descriptor the probe could block: then the foreground is assumed */
	if (h->nonblocking && h->in_len == 0)
		read_host(h, 0);
	if (h->gone || h->retry_ns)
		return;
	atomic_store(&h->make_raw, false);
	take_settings(h);
	set_raw(h);
}

/* One wait and what became possible. */
static void relay_step(struct host_tty *h)
{
	struct pollfd fds[2] = { { .fd = h->host_fd }, { .fd = h->event_fd, .events = POLLIN } };
	bool may_read = h->in_len == 0 && !h->retry_ns;
	u64 unused;

	if (may_read)
		fds[0].events |= POLLIN;
	if (h->out_off < h->out_len)
		fds[0].events |= POLLOUT;
	if (!fds[0].events && !h->retry_ns)
		fds[0].fd = -1;
	if (host_poll(fds, 2, h->retry_ns ? RETRY_NS : -1) < 0)
		return;
	if (fds[1].revents & POLLIN) {
		host_eventfd_read(h->event_fd, &unused);
		atomic_store(&h->kicked, false);
	}
	if (fds[0].revents & POLLOUT)
		write_host(h);
	if (h->gone)
		return;
	if (may_read && (fds[0].revents & (POLLIN | POLLHUP | POLLERR)))
		read_host(h, fds[0].revents);
	else if ((fds[0].revents & (POLLHUP | POLLERR)) &&
		 (h->retry_ns || !(fds[0].revents & POLLIN)))
		terminal_gone(h);
}

static void drain(struct host_tty *h)
{
	u64 limit = clock_monotonic_ns() + DRAIN_LIMIT_NS;

	while (!h->gone && clock_monotonic_ns() < limit) {
		struct pollfd p = { .fd = h->host_fd, .events = POLLOUT };

		take_output(h);
		if (h->out_off == h->out_len)
			return;
		if (host_poll(&p, 1, RETRY_NS) > 0) {
			u32 before = h->out_off;

			write_host(h);
			if (h->out_off != before)
				limit = clock_monotonic_ns() + DRAIN_LIMIT_NS;
		}
	}
}

static void *relay_thread(void *arg)
{
	struct host_tty *h = arg;

	while (!h->gone && !atomic_load(&h->stop)) {
		if (h->retry_ns && clock_monotonic_ns() >= h->retry_ns) {
			h->retry_ns = 0;
			atomic_store(&h->make_raw,
				     true); /* another program may have changed it meanwhile */
		}
		if (atomic_load(&h->make_raw) && !h->retry_ns)
			want_raw(h);
		move_input(h);
		take_output(h);
		relay_step(h);
	}
	drain(h);
	return NULL;
}

int host_tty_reopen(int fd)
{
	int own = host_term_reopen(fd);

	return own < 0 ? fd : own;
}

int host_tty_start(struct kernel *k, int host_fd, const struct cred *cred, struct host_tty **ret)
{
	struct host_term_settings out;
	struct host_tty *h;
	int err = host_term_get(host_fd, &saved);

	if (err)
		return err;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->kernel = k;
	h->host_fd = host_fd;
	h->nonblocking = host_term_nonblocking(host_fd);
	h->piped = host_term_get(STDOUT_FILENO, &out) != 0;
	h->event_fd = host_eventfd();
	err = h->event_fd < 0 ? h->event_fd : tty_new(k, cred, &h->tty);
	if (err)
		goto fail;
	copy_settings(h);
	host_tty_resize(h);
	tty_set_console(h->tty);
	atomic_store(&h->make_raw, true);
	h->waiter =
		(struct waiter){ .events = EPOLLIN | EPOLLOUT, .fn = on_master_ready, .arg = h };
	list_init(&h->waiter.node);
	waitq_add(&h->tty->master_waitq, &h->waiter);
	if (pthread_create(&h->thread, NULL, relay_thread, h)) {
		waitq_remove(&h->waiter);
		tty_master_gone(h->tty);
		tty_set_console(NULL);
		tty_put(h->tty);
		err = -EAGAIN;
		goto fail;
	}
	*ret = h;
	return 0;
fail:
	if (h->event_fd >= 0)
		host_mem_close(h->event_fd);
	free(h);
	return err;
}

int host_tty_open(struct host_tty *h, const struct walk_context *w, u32 flags, struct file **ret)
{
	struct open_how_k how = { .flags = flags | O_NOCTTY };
	char name[32];

	snprintf(name, sizeof(name), "/dev/pts/%d", h->tty->index);
	return vfs_open(w, name, &how, ret);
}

struct tty *host_tty_tty(struct host_tty *h)
{
	return h->tty;
}

void host_tty_resize(struct host_tty *h)
{
	struct host_term_size s;
	struct winsize ws;

	if (host_term_get_size(h->host_fd, &s))
		return;
	ws = (struct winsize){ s.rows, s.columns, s.width, s.height };
	tty_resize(h->tty, &ws);
}

void host_tty_resume(struct host_tty *h)
{
	atomic_store(&h->make_raw, true);
	kick(h); /* the thread's next try, at the latest a moment from now, notices */
	host_tty_resize(h);
}

void host_tty_stop(struct host_tty *h)
{
	atomic_store(&h->stop, true);
	kick(h);
	pthread_join(h->thread, NULL);
	host_tty_restore();
	if (!h->gone) {
		waitq_remove(&h->waiter);
		tty_master_gone(h->tty);
	}
	tty_set_console(NULL);
	tty_put(h->tty);
	host_mem_close(h->event_fd);
	free(h);
}
