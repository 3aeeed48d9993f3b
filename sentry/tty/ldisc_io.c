/* The slave's reads and writes: lines, VMIN and VTIME, and output processing. */
#include "sentry/tty/internal.h"

#define STALE_DEADLINE_NS                                                                          \
	250000000ULL /* a VTIME deadline this far past belongs to an abandoned read */

bool ldisc_delimiter(const struct tty *t, u32 at)
{
	at %= INPUT_SIZE;
	return t->delimiter[at / 64] >> (at % 64) & 1;
}

void ldisc_set_delimiter(struct tty *t, u32 at, bool on)
{
	at %= INPUT_SIZE;
	if (on)
		t->delimiter[at / 64] |= 1ULL << (at % 64);
	else
		t->delimiter[at / 64] &= ~(1ULL << (at % 64));
}

static bool by_lines(const struct tty *t)
{
	return (t->termios.c_lflag & ICANON) && !(t->termios.c_lflag & EXTPROC);
}

bool ldisc_readable(const struct tty *t, bool for_poll)
{
	u32 min = t->termios.c_cc[VMIN], need = 1;

	if (by_lines(t))
		return t->canon_head != t->in_tail;
	if (for_poll && !t->termios.c_cc[VTIME] && min)
		need = min;
	return t->in_head - t->in_tail >= need;
}

u32 ldisc_input_bytes(const struct tty *t)
{
	u32 n;

	if (!by_lines(t))
		return t->in_head - t->in_tail;
	n = t->canon_head - t->in_tail;
	for (u32 at = t->in_tail; at != t->canon_head; at++) {
		if (ldisc_delimiter(t, at) && !t->input[at % INPUT_SIZE])
			n--; /* an end-of-file mark is no byte */
	}
	return n;
}

/* Moves n bytes from the tail to the reader. Bytes or -EFAULT. */
static ssize_t give(struct tty *t, struct kiov *dst, u32 n)
{
	ssize_t done = 0;

	while (n) {
		u32 at = t->in_tail % INPUT_SIZE;
		ssize_t put = kiov_put(dst, t->input + at, MIN(n, INPUT_SIZE - at));

		if (put <= 0)
			return done ? done : put ? put : -EFAULT;
		t->in_tail += put;
		n -= put;
		done += put;
	}
	return done;
}

/* VEOF's mark is a zero byte that ends a line. */
static bool at_eof_mark(const struct tty *t)
{
	return t->in_tail != t->canon_head && ldisc_delimiter(t, t->in_tail) &&
	       !t->input[t->in_tail % INPUT_SIZE];
}

static ssize_t read_line(struct tty *t, struct kiov *dst)
{
	u32 n = 0, limit = MIN((u64)dst->remaining, (u64)(t->canon_head - t->in_tail));
	ssize_t done = 0;

	if (t->canon_head == t->in_tail)
		return -EAGAIN;
	while (n < limit) {
		bool end = ldisc_delimiter(t, t->in_tail + n);

		if (end && !t->input[(t->in_tail + n) % INPUT_SIZE])
			break;
		n++;
		if (end)
			break;
	}
	if (n)
		done = give(t, dst, n);
	/* a line that filled the buffer exactly takes its end-of-file mark along */
	if (done == (ssize_t)n && at_eof_mark(t) && !(n && ldisc_delimiter(t, t->in_tail - 1)))
		t->in_tail++;
	return done;
}

static void arm_timer(struct tty *t, u64 deadline)
{
	u64 armed = atomic_load(&t->timer_deadline);

	if (armed && armed <= deadline)
		return;
	atomic_store(&t->timer_deadline, deadline);
	ktimer_set(t->kernel->timers, &t->timer, deadline);
}

/*
 * Whether a raw read must go on waiting for `min` bytes or `time` tenths of a second
 * (termios(3), noncanonical mode). The bytes stay in the buffer meanwhile.
 */
static bool raw_must_wait(struct tty *t, struct tty_file *tf, u32 have, u32 want)
{
	u32 min = t->termios.c_cc[VMIN];
	u64 time_ns = t->termios.c_cc[VTIME] * 100000000ULL, now;

	if (have >= MAX(MIN(min, want), 1))
		return false;
	if (!time_ns)
		return min != 0;
	if (min && !have) {
		tf->read_deadline = 0; /* the clock starts with the first byte */
		return true;
	}
	now = clock_monotonic_ns();
	if (!tf->read_deadline || tf->read_seen != have ||
	    now > tf->read_deadline + STALE_DEADLINE_NS) {
		tf->read_deadline = now + time_ns;
		tf->read_seen = have;
	}
	if (now >= tf->read_deadline)
		return false;
	arm_timer(t, tf->read_deadline);
	return true;
}

static ssize_t read_raw(struct tty *t, struct tty_file *tf, struct kiov *dst, bool nonblock)
{
	u32 have = t->in_head - t->in_tail;
	u32 want = MIN(dst->remaining, (size_t)INPUT_SIZE);

	if (nonblock) {
		if (!have)
			return t->termios.c_cc[VMIN] || t->termios.c_cc[VTIME] ? -EAGAIN : 0;
	} else if (raw_must_wait(t, tf, have, want)) {
		return -EAGAIN;
	}
	tf->read_deadline = 0;
	if (!have)
		return 0;
	want = MIN(have, want);
	/* by-line marks mean nothing here, but must not survive a return to canonical mode */
	have = give(t, dst, want);
	t->canon_head = t->in_tail;
	return (ssize_t)(s32)have;
}

ssize_t ldisc_read(struct tty *t, struct tty_file *tf, struct kiov *dst, bool nonblock)
{
	ssize_t n;

	if (!dst->remaining)
		return 0;
	ldisc_process(t);
	n = by_lines(t) ? read_line(t, dst) : read_raw(t, tf, dst, nonblock);
	if (n >= 0)
		ldisc_process(t); /* there may be room again */
	return n;
}

static u32 opost_tab(struct tty *t, u8 dst[8])
{
	u32 spaces = 8 - (t->column & 7);

	t->column += spaces;
	if ((t->termios.c_oflag & TABDLY) != XTABS) {
		dst[0] = '\t';
		return 1;
	}
	for (u32 i = 0; i < spaces; i++)
		dst[i] = ' ';
	return spaces;
}

u32 ldisc_opost(struct tty *t, u8 c, u8 dst[8])
{
	u32 flags = t->termios.c_oflag;

	dst[0] = c;
	if (!(flags & OPOST))
		return 1;
	switch (c) {
	case '\n':
		if (flags & ONLCR) {
			t->column = t->canon_column = 0;
			dst[0] = '\r';
			dst[1] = '\n';
			return 2;
		}
		if (flags & ONLRET)
			t->column = 0;
		t->canon_column = t->column;
		return 1;
	case '\r':
		if ((flags & ONOCR) && !t->column)
			return 0;
		if (flags & OCRNL) {
			dst[0] = '\n';
			if (flags & ONLRET)
				t->column = t->canon_column = 0;
			return 1;
		}
		t->column = t->canon_column = 0;
		return 1;
	case '\t': return opost_tab(t, dst);
	case '\b':
		if (t->column)
			t->column--;
		return 1;
	default:
		if (tty_is_control(c))
			return 1;
		if ((flags & OLCUC) && c >= 'a' && c <= 'z')
			dst[0] = c - ('a' - 'A');
		if (!tty_utf8_continues(t, c))
			t->column++;
		return 1;
	}
}

static bool output_room(const struct tty *t)
{
	/* 8: the longest expansion of one byte */
	return !t->stopped && ring_count(&t->output) + 8 <= OUTPUT_FOR_WRITES;
}

ssize_t ldisc_write(struct tty *t, struct kiov *src)
{
	ssize_t done = 0;
	u8 chunk[512], out[8];

	echo_flush(t);
	while (src->remaining && output_room(t)) {
		struct kiov at = *src;
		u32 room = OUTPUT_FOR_WRITES - ring_count(&t->output), used = 0;
		ssize_t n =
			kiov_get(&at, chunk, MIN(MIN(src->remaining, sizeof(chunk)), (size_t)room));

		if (n <= 0)
			return done ? done : -EFAULT;
		while (used < (u32)n && output_room(t)) {
			u32 m = ldisc_opost(t, chunk[used++], out);

			for (u32 i = 0; i < m; i++)
				ring_push(&t->output, out[i]);
		}
		kiov_advance(src, used);
		done += used;
	}
	if (done)
		t->wake_master |= EPOLLIN | EPOLLRDNORM;
	return done || !src->remaining ? done : -EAGAIN;
}
