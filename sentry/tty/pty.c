/* Pseudo terminal pairs: life, and the file operations of both sides. */
#include "sentry/tty/internal.h"
#include "base/log.h"
#include <linux/capability.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct kernel *kernel;	       /* immutable after tty_register_devices */
	_Atomic(struct tty *) console; /* a reference, kept for ever */
} driver;

int ring_init(struct ring *r, u32 size)
{
	r->data = malloc(size);
	r->size = size;
	r->head = r->tail = 0;
	return r->data ? 0 : -ENOMEM;
}

struct tty *tty_get(struct tty *t)
{
	refs_get(&t->refs);
	return t;
}

static void tty_destroy(struct tty *t)
{
	ktimer_cancel(t->kernel->timers, &t->timer);
	waitq_destroy(&t->slave_waitq);
	waitq_destroy(&t->master_waitq);
	free(t->flip.data);
	free(t->output.data);
	free(t->echo_hold.data);
	mutex_destroy(&t->lock);
	free(t);
}

void tty_put(struct tty *t)
{
	if (!t || !refs_put(&t->refs))
		return;
	ASSERT(!t->session && !t->inode);
	devpts_release_index(t->kernel, t->index);
	tty_destroy(t);
}

static void vtime_expired(struct ktimer *timer, void *arg)
{
	struct tty *t = arg;

	atomic_store(&t->timer_deadline, 0);
	waitq_wake(&t->slave_waitq, EPOLLIN | EPOLLRDNORM);
}

int tty_new(struct kernel *k, const struct cred *owner, struct tty **ret)
{
	struct tty *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	refs_init(&t->refs, "tty");
	t->kernel = k;
	mutex_init(&t->lock, RANK_PIPE, "tty.lock");
	waitq_init(&t->slave_waitq);
	waitq_init(&t->master_waitq);
	ktimer_init(&t->timer, vtime_expired, t);
	tty_default_termios(&t->termios);
	t->master_open = true;
	err = ring_init(&t->flip, FLIP_SIZE) | ring_init(&t->output, OUTPUT_SIZE) |
	      ring_init(&t->echo_hold, ECHO_HOLD_SIZE);
	err = err ? -ENOMEM : devpts_add(t, owner);
	if (err) {
		tty_destroy(t);
		return err;
	}
	*ret = t;
	return 0;
}

void tty_unlock(struct tty *t)
{
	u32 slave = t->wake_slave, master = t->wake_master;
	u64 signals = t->pending_signals;

	t->wake_slave = t->wake_master = 0;
	t->pending_signals = 0;
	mutex_unlock(&t->lock);
	if (slave)
		waitq_wake(&t->slave_waitq, slave);
	if (master)
		waitq_wake(&t->master_waitq, master);
	if (signals)
		tty_signal_foreground(t, signals);
}

/* lock. Every open slave file is hung up: reads end, writes fail. */
static void hang_up_files(struct tty *t)
{
	t->generation++;
	t->slave_count = 0;
	t->slave_closed = true;
	t->stopped = t->stopped_by_call = false;
	t->wake_slave |= EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDNORM | EPOLLWRNORM;
	t->wake_master |= EPOLLIN | EPOLLHUP | EPOLLRDNORM;
}

void tty_master_gone(struct tty *t)
{
	devpts_remove(t);
	tty_lock(t);
	t->master_open = false;
	hang_up_files(t);
	tty_unlock(t);
	tty_hangup_session(t);
}

void tty_vhangup(struct tty *t)
{
	tty_lock(t);
	hang_up_files(t);
	ldisc_flush_input(t);
	tty_default_termios(&t->termios);
	tty_unlock(t);
	tty_hangup_session(t);
}

bool tty_slave_hung_up(const struct tty_file *tf)
{
	return !tf->master && tf->generation != tf->tty->generation;
}

/* ---- slave ---- */

static bool nonblocking(struct file *f, int flags)
{
	return (file_flags(f) & O_NONBLOCK) || (flags & RWF_NOWAIT);
}

static ssize_t slave_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct tty_file *tf = f->private;
	struct tty *t = tf->tty;
	ssize_t n;

	tty_lock(t);
	if (tty_slave_hung_up(tf)) {
		tty_unlock(t);
		return 0;
	}
	tty_unlock(t);
	n = tty_check_change(t, SIGTTIN);
	if (n)
		return n;
	tty_lock(t);
	n = tty_slave_hung_up(tf) ? 0 : ldisc_read(t, tf, dst, nonblocking(f, flags));
	tty_unlock(t);
	return n;
}

static ssize_t slave_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct tty_file *tf = f->private;
	struct tty *t = tf->tty;
	bool check;
	ssize_t n;

	tty_lock(t);
	n = tty_slave_hung_up(tf) ? -EIO : 0;
	check = t->termios.c_lflag & TOSTOP;
	tty_unlock(t);
	if (!n && check)
		n = tty_check_change(t, SIGTTOU);
	if (n)
		return n;
	tty_lock(t);
	n = tty_slave_hung_up(tf) ? -EIO : ldisc_write(t, src);
	tty_unlock(t);
	return n;
}

static u32 slave_poll(struct file *f)
{
	struct tty_file *tf = f->private;
	struct tty *t = tf->tty;
	u32 events = 0;

	tty_lock(t);
	if (tty_slave_hung_up(tf)) {
		events = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDNORM | EPOLLWRNORM;
	} else {
		if (ldisc_readable(t, true))
			events |= EPOLLIN | EPOLLRDNORM;
		if (!t->stopped && ring_count(&t->output) + 256 < OUTPUT_FOR_WRITES)
			events |= EPOLLOUT | EPOLLWRNORM;
	}
	tty_unlock(t);
	return events;
}

static struct waitq *slave_queue(struct file *f)
{
	return &((struct tty_file *)f->private)->tty->slave_waitq;
}

static void slave_release(struct file *f)
{
	struct tty_file *tf = f->private;
	struct tty *t = tf->tty;

	tty_lock(t);
	if (!tty_slave_hung_up(tf) && !--t->slave_count) {
		t->slave_closed = true;
		t->exclusive = false;
		t->wake_master |= EPOLLIN | EPOLLHUP | EPOLLRDNORM;
	}
	tty_unlock(t);
	tty_put(t);
	free(tf);
}

static const struct file_ops slave_ops = {
	.kind = "tty",
	.release = slave_release,
	.read = slave_read,
	.write = slave_write,
	.poll = slave_poll,
	.waitq = slave_queue,
	.ioctl = tty_ioctl,
};

int tty_slave_open(struct tty *t, struct file *file)
{
	struct tty_file *tf = calloc(1, sizeof(*tf));
	int err = 0;

	if (!tf)
		return -ENOMEM;
	tty_lock(t);
	if (!t->master_open || t->locked) {
		err = -EIO;
	} else if (t->exclusive && !cred_capable(file->cred, CAP_SYS_ADMIN)) {
		err = -EBUSY;
	} else {
		t->slave_count++;
		t->slave_closed = false;
		tf->generation = t->generation;
	}
	tty_unlock(t);
	if (err) {
		free(tf);
		return err;
	}
	tf->tty = tty_get(t);
	file->ops = &slave_ops;
	file->private = tf;
	if (!(file_flags(file) & O_NOCTTY) && file_readable(file))
		tty_open_acquire(t);
	return 0;
}

/* ---- master ---- */

u32 tty_master_feed(struct tty *t, const u8 *src, u32 len)
{
	u32 done = 0;

	tty_lock(t);
	while (done < len) {
		while (done < len && ring_room(&t->flip))
			ring_push(&t->flip, src[done++]);
		ldisc_process(t);
		if (!ring_room(&t->flip))
			break;
	}
	tty_unlock(t);
	return done;
}

u32 tty_master_take(struct tty *t, u8 *dst, u32 len)
{
	u32 done = 0, n;
	u8 *at;

	tty_lock(t);
	while (done < len) {
		echo_flush(t);
		n = ring_span(&t->output, &at, len - done);
		if (!n)
			break;
		memcpy(dst + done, at, n);
		t->output.tail += n;
		done += n;
	}
	if (done)
		t->wake_slave |= EPOLLOUT | EPOLLWRNORM;
	tty_unlock(t);
	return done;
}

static ssize_t master_read_locked(struct tty *t, struct kiov *dst)
{
	ssize_t done = 0;

	if (!dst->remaining)
		return 0;
	if (t->packet && t->packet_status) {
		u8 status = t->packet_status;

		t->packet_status = 0;
		return kiov_put(dst, &status, 1);
	}
	echo_flush(t);
	if (!ring_count(&t->output))
		return t->slave_closed ? -EIO : -EAGAIN;
	if (t->packet) {
		u8 data = TIOCPKT_DATA;

		done = kiov_put(dst, &data, 1);
		if (done <= 0)
			return done;
	}
	while (dst->remaining && ring_count(&t->output)) {
		u8 *at;
		u32 n = ring_span(&t->output, &at, MIN(dst->remaining, (size_t)OUTPUT_SIZE));
		ssize_t put = kiov_put(dst, at, n);

		if (put <= 0)
			return done ? done : -EFAULT;
		t->output.tail += put;
		done += put;
		echo_flush(t);
	}
	t->wake_slave |= EPOLLOUT | EPOLLWRNORM;
	return done;
}

static ssize_t master_read(struct file *f, struct kiov *dst, u64 offset, int flags)
{
	struct tty *t = ((struct tty_file *)f->private)->tty;
	ssize_t n;

	tty_lock(t);
	n = master_read_locked(t, dst);
	tty_unlock(t);
	return n;
}

static ssize_t master_write(struct file *f, struct kiov *src, u64 offset, int flags)
{
	struct tty *t = ((struct tty_file *)f->private)->tty;
	ssize_t done = 0;

	tty_lock(t);
	while (src->remaining) {
		u8 chunk[512];
		ssize_t n = MIN(MIN(src->remaining, sizeof(chunk)), (size_t)ring_room(&t->flip));

		if (!n) {
			if (!done)
				done = -EAGAIN;
			break;
		}
		n = kiov_get(src, chunk, n);
		if (n <= 0) {
			if (!done)
				done = -EFAULT;
			break;
		}
		for (ssize_t i = 0; i < n; i++)
			ring_push(&t->flip, chunk[i]);
		done += n;
		ldisc_process(t);
	}
	tty_unlock(t);
	return done;
}

static u32 master_poll(struct file *f)
{
	struct tty *t = ((struct tty_file *)f->private)->tty;
	u32 events = 0;

	tty_lock(t);
	if (ring_count(&t->output))
		events |= EPOLLIN | EPOLLRDNORM;
	if (t->packet && t->packet_status)
		events |= EPOLLIN | EPOLLRDNORM | EPOLLPRI;
	if (ring_room(&t->flip))
		events |= EPOLLOUT | EPOLLWRNORM;
	if (t->slave_closed)
		events |= EPOLLHUP;
	tty_unlock(t);
	return events;
}

static struct waitq *master_queue(struct file *f)
{
	return &((struct tty_file *)f->private)->tty->master_waitq;
}

static void master_release(struct file *f)
{
	struct tty_file *tf = f->private;

	tty_master_gone(tf->tty);
	tty_put(tf->tty);
	free(tf);
}

static void master_fdinfo(struct file *f, char *dst, size_t size)
{
	snprintf(dst, size, "tty-index:\t%d\n", ((struct tty_file *)f->private)->tty->index);
}

static const struct file_ops master_ops = {
	.kind = "ptmx",
	.release = master_release,
	.read = master_read,
	.write = master_write,
	.poll = master_poll,
	.waitq = master_queue,
	.ioctl = tty_ioctl,
	.fdinfo = master_fdinfo,
};

static int master_open(struct kernel *k, struct file *file)
{
	struct tty_file *tf = calloc(1, sizeof(*tf));
	int err;

	if (!tf)
		return -ENOMEM;
	err = tty_new(k, file->cred, &tf->tty);
	if (err) {
		free(tf);
		return err;
	}
	tf->master = true;
	tty_lock(tf->tty);
	tf->tty->locked = true;
	tty_unlock(tf->tty);
	file->ops = &master_ops;
	file->private = tf;
	return 0;
}

bool file_is_tty(struct file *f)
{
	return f->ops == &slave_ops || f->ops == &master_ops;
}

/* ---- by device number ---- */

void tty_set_console(struct tty *t)
{
	tty_put(atomic_exchange(&driver.console, t ? tty_get(t) : NULL));
}

static int open_current(struct file *file)
{
	struct tty *t = current_task ? tty_of_group(current_task->tg) : NULL;
	int err;

	if (!t)
		return -ENXIO;
	err = tty_slave_open(t, file);
	tty_put(t);
	return err;
}

static int open_aux(struct inode *inode, struct file *file)
{
	struct tty *console;

	switch (inode->rdev_minor) {
	case 0: return open_current(file);
	case 1:
		console = atomic_load(&driver.console);
		return console ? tty_slave_open(console, file) : -ENXIO;
	case 2: return master_open(driver.kernel, file);
	default: return -ENXIO;
	}
}

static int open_slave_number(struct inode *inode, struct file *file)
{
	struct tty *t = devpts_find(driver.kernel, (int)inode->rdev_minor);
	int err;

	if (!t)
		return -EIO;
	err = tty_slave_open(t, file);
	tty_put(t);
	return err;
}

void tty_register_devices(struct kernel *k)
{
	driver.kernel = k;
	if (vfs_register_chrdev(TTY_AUX_MAJOR, open_aux) ||
	    vfs_register_chrdev(TTY_SLAVE_MAJOR, open_slave_number))
		log_warn("tty: device numbers are taken");
}
