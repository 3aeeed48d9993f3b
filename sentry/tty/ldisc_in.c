/* The receiving half of the N_TTY discipline: from typed bytes to input, signals and echo
 * (termios(3)). */
#include "sentry/tty/internal.h"

static bool lflag(const struct tty *t, u32 bit)
{
	return t->termios.c_lflag & bit;
}

static bool iflag(const struct tty *t, u32 bit)
{
	return t->termios.c_iflag & bit;
}

/* c is the key of c_cc[index]; a key set to 0 is disabled. */
static bool is_key(const struct tty *t, u8 c, int index)
{
	return c && t->termios.c_cc[index] == c;
}

static void put_input(struct tty *t, u8 c)
{
	ldisc_set_delimiter(t, t->in_head, false);
	t->input[t->in_head++ % INPUT_SIZE] = c;
}

static void end_line(struct tty *t, u8 c)
{
	put_input(t, c);
	ldisc_set_delimiter(t, t->in_head - 1, true);
	t->canon_head = t->in_head;
	t->wake_slave |= EPOLLIN | EPOLLRDNORM;
}

void ldisc_flush_input(struct tty *t)
{
	ring_clear(&t->flip);
	t->in_tail = t->canon_head = t->in_head;
	t->literal_next = t->erasing = false;
	t->wake_master |= EPOLLOUT | EPOLLWRNORM;
	if (t->packet) {
		t->packet_status |= TIOCPKT_FLUSHREAD;
		t->wake_master |= EPOLLIN | EPOLLPRI;
	}
}

void ldisc_flush_output(struct tty *t)
{
	ring_clear(&t->output);
	ring_clear(&t->echo_hold);
	t->wake_slave |= EPOLLOUT | EPOLLWRNORM;
	if (t->packet) {
		t->packet_status |= TIOCPKT_FLUSHWRITE;
		t->wake_master |= EPOLLIN | EPOLLPRI;
	}
}

static void packet_flow(struct tty *t, u8 set, u8 clear)
{
	if (!t->packet)
		return;
	t->packet_status = (t->packet_status & ~clear) | set;
	t->wake_master |= EPOLLIN | EPOLLPRI;
}

void ldisc_start_output(struct tty *t)
{
	if (!t->stopped)
		return;
	t->stopped = t->stopped_by_call = false;
	packet_flow(t, TIOCPKT_START, TIOCPKT_STOP);
	echo_flush(t);
	t->wake_slave |= EPOLLOUT | EPOLLWRNORM;
}

void ldisc_stop_output(struct tty *t)
{
	if (t->stopped)
		return;
	t->stopped = true;
	packet_flow(t, TIOCPKT_STOP, TIOCPKT_START);
}

static void signal_key(struct tty *t, u8 c, int sig)
{
	t->pending_signals |= sigbit(sig);
	if (!lflag(t, NOFLSH)) {
		u32 flip_tail = t->flip.tail;

		/* what was typed before the key goes; what follows it stays */
		ldisc_flush_output(t);
		ldisc_flush_input(t);
		t->flip.tail = flip_tail;
	}
	if (iflag(t, IXON))
		ldisc_start_output(t);
	if (lflag(t, ECHO))
		echo_char(t, c);
}

/* ^S ^Q ^C ^\ ^Z. True when c was one of them. */
static bool flow_or_signal_key(struct tty *t, u8 c)
{
	if (iflag(t, IXON)) {
		if (is_key(t, c, VSTART)) {
			if (!t->stopped_by_call)
				ldisc_start_output(t);
			return true;
		}
		if (is_key(t, c, VSTOP)) {
			ldisc_stop_output(t);
			return true;
		}
	}
	if (lflag(t, ISIG)) {
		int sig = is_key(t, c, VINTR)	? SIGINT
			  : is_key(t, c, VQUIT) ? SIGQUIT
			  : is_key(t, c, VSUSP) ? SIGTSTP
						: 0;

		if (sig) {
			signal_key(t, c, sig);
			return true;
		}
	}
	return false;
}

static void echo_input(struct tty *t, u8 c)
{
	if (!lflag(t, ECHO))
		return;
	echo_finish_erasing(t);
	if (c == '\n') {
		echo_raw(t, c);
		return;
	}
	if (t->canon_head == t->in_head)
		t->canon_column = t->column;
	echo_char(t, c);
}

/* An ordinary byte: echoed and queued; PARMRK doubles 0xff so that it differs from a mark. */
static void ordinary_char(struct tty *t, u8 c)
{
	echo_input(t, c);
	if (c == 0xff && iflag(t, PARMRK))
		put_input(t, c);
	put_input(t, c);
	if (!lflag(t, ICANON) || lflag(t, EXTPROC))
		t->wake_slave |= EPOLLIN | EPOLLRDNORM;
}

static void reprint(struct tty *t, u8 c)
{
	echo_finish_erasing(t);
	echo_char(t, c);
	echo_raw(t, '\n');
	for (u32 at = t->canon_head; at != t->in_head; at++)
		echo_char(t, t->input[at % INPUT_SIZE]);
}

/* Line editing keys and line ends of canonical mode. True when c was one. */
static bool canonical_key(struct tty *t, u8 c)
{
	bool extended = lflag(t, IEXTEN);

	if (is_key(t, c, VERASE) || is_key(t, c, VKILL) || (extended && is_key(t, c, VWERASE))) {
		echo_erase(t, c);
		return true;
	}
	if (extended && is_key(t, c, VLNEXT)) {
		t->literal_next = true;
		if (lflag(t, ECHO)) {
			echo_finish_erasing(t);
			if (lflag(t, ECHOCTL)) {
				echo_verbatim(t, '^');
				echo_verbatim(t, '\b');
			}
		}
		return true;
	}
	if (extended && lflag(t, ECHO) && is_key(t, c, VREPRINT)) {
		reprint(t, c);
		return true;
	}
	if (c == '\n') {
		if (lflag(t, ECHO) || lflag(t, ECHONL))
			echo_raw(t, '\n');
		end_line(t, c);
		return true;
	}
	if (is_key(t, c, VEOF)) {
		end_line(t, 0);
		return true;
	}
	if (is_key(t, c, VEOL) || (extended && is_key(t, c, VEOL2))) {
		if (lflag(t, ECHO)) {
			if (t->canon_head == t->in_head)
				t->canon_column = t->column;
			echo_char(t, c);
		}
		if (c == 0xff && iflag(t, PARMRK))
			put_input(t, c);
		end_line(t, c);
		return true;
	}
	return false;
}

static void receive_char(struct tty *t, u8 c)
{
	if (iflag(t, ISTRIP))
		c &= 0x7f;
	if (iflag(t, IUCLC) && lflag(t, IEXTEN) && c >= 'A' && c <= 'Z')
		c += 'a' - 'A';
	if (lflag(t, EXTPROC)) {
		put_input(t, c);
		t->wake_slave |= EPOLLIN | EPOLLRDNORM;
		return;
	}
	if (t->literal_next) {
		t->literal_next = false;
		ordinary_char(t, c);
		return;
	}
	if (flow_or_signal_key(t, c))
		return;
	if (t->stopped && !t->stopped_by_call && iflag(t, IXON) && iflag(t, IXANY))
		ldisc_start_output(t);
	if (c == '\r') {
		if (iflag(t, IGNCR))
			return;
		if (iflag(t, ICRNL))
			c = '\n';
	} else if (c == '\n' && iflag(t, INLCR)) {
		c = '\r';
	}
	if (lflag(t, ICANON) && canonical_key(t, c))
		return;
	ordinary_char(t, c);
}

/*
 * Input has room for one more byte of any kind. A canonical line that fills
 * the buffer keeps being received (its end must get in), each byte over the limit
 * replacing the last.
 */
static bool input_room(struct tty *t)
{
	u32 used = t->in_head - t->in_tail;
	u32 need = iflag(t, PARMRK) ? 3 : 1;

	if (used + need < INPUT_SIZE)
		return true;
	if (!lflag(t, ICANON) || t->canon_head != t->in_tail)
		return false;
	while (t->in_head - t->in_tail + need > INPUT_SIZE)
		t->in_head--;
	return true;
}

void ldisc_process(struct tty *t)
{
	bool moved = false;

	while (ring_count(&t->flip) && input_room(t)) {
		receive_char(t, ring_pop(&t->flip));
		moved = true;
	}
	if (moved)
		t->wake_master |= EPOLLOUT | EPOLLWRNORM;
}

void ldisc_termios_changed(struct tty *t, const struct ktermios *old)
{
	u32 changed = old->c_lflag ^ t->termios.c_lflag;

	if (changed & (ICANON | EXTPROC)) {
		for (size_t i = 0; i < ARRAY_SIZE(t->delimiter); i++)
			t->delimiter[i] = 0;
		t->canon_head = t->in_tail;
		if (lflag(t, ICANON) && t->in_head != t->in_tail) {
			/* raw bytes at hand become a line without a terminator */
			ldisc_set_delimiter(t, t->in_head - 1, true);
			t->canon_head = t->in_head;
		}
		t->erasing = t->literal_next = false;
		t->wake_slave |= EPOLLIN | EPOLLRDNORM;
	}
	if (!iflag(t, IXON) && (old->c_iflag & IXON) && t->stopped && !t->stopped_by_call)
		ldisc_start_output(t);
	if (t->packet) {
		bool was = (old->c_iflag & IXON) && old->c_cc[VSTOP] == 023 &&
			   old->c_cc[VSTART] == 021;
		bool now = iflag(t, IXON) && t->termios.c_cc[VSTOP] == 023 &&
			   t->termios.c_cc[VSTART] == 021;

		if (was != now)
			packet_flow(t, now ? TIOCPKT_DOSTOP : TIOCPKT_NOSTOP,
				    TIOCPKT_DOSTOP | TIOCPKT_NOSTOP);
		if ((old->c_lflag | t->termios.c_lflag) & EXTPROC)
			packet_flow(t, TIOCPKT_IOCTL, 0);
	}
	ldisc_process(t);
}
