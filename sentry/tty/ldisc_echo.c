/* What the discipline prints by itself: echo of typed bytes, and the marks of erasing them. */
#include "sentry/tty/internal.h"

static bool lflag(const struct tty *t, u32 bit)
{
	return t->termios.c_lflag & bit;
}

static void emit(struct tty *t, u8 c)
{
	struct ring *to = &t->output;

	if (t->stopped || ring_count(&t->echo_hold) || !ring_room(to))
		to = &t->echo_hold;
	if (!ring_room(to))
		return; /* nobody reads: an echo is lost, as on Linux */
	ring_push(to, c);
	t->wake_master |= EPOLLIN | EPOLLRDNORM;
}

void echo_flush(struct tty *t)
{
	if (t->stopped || !ring_count(&t->echo_hold))
		return;
	while (ring_count(&t->echo_hold) && ring_room(&t->output))
		ring_push(&t->output, ring_pop(&t->echo_hold));
	t->wake_master |= EPOLLIN | EPOLLRDNORM;
}

void echo_verbatim(struct tty *t, u8 c)
{
	emit(t, c);
	if (c == '\b') {
		if (t->column)
			t->column--;
	} else if (!tty_is_control(c) && !tty_utf8_continues(t, c)) {
		t->column++;
	}
}

void echo_raw(struct tty *t, u8 c)
{
	u8 out[8];
	u32 n = ldisc_opost(t, c, out);

	for (u32 i = 0; i < n; i++)
		emit(t, out[i]);
}

void echo_char(struct tty *t, u8 c)
{
	if (lflag(t, ECHOCTL) && tty_is_control(c) && c != '\t') {
		echo_verbatim(t, '^');
		echo_verbatim(t, c ^ 0x40);
	} else {
		echo_raw(t, c);
	}
}

void echo_finish_erasing(struct tty *t)
{
	if (!t->erasing)
		return;
	echo_raw(t, '/');
	t->erasing = false;
}

static void rub_out(struct tty *t)
{
	echo_verbatim(t, '\b');
	echo_verbatim(t, ' ');
	echo_verbatim(t, '\b');
}

/* Goes back over a tab that was just taken out of the line: to the column where the text before it
 * ends. */
static void rub_out_tab(struct tty *t)
{
	u32 columns = 0;
	bool after_tab = false;

	for (u32 at = t->in_head; at != t->canon_head && !after_tab; at--) {
		u8 c = t->input[(at - 1) % INPUT_SIZE];

		if (c == '\t')
			after_tab = true;
		else if (tty_is_control(c))
			columns += lflag(t, ECHOCTL) ? 2 : 0;
		else if (!tty_utf8_continues(t, c))
			columns++;
	}
	if (!after_tab)
		columns += t->canon_column;
	for (u32 n = 8 - (columns & 7); n; n--)
		echo_verbatim(t, '\b');
}

static void show_erased(struct tty *t, u32 from, u32 to, bool one_char)
{
	u8 c = t->input[from % INPUT_SIZE];

	if (!lflag(t, ECHO))
		return;
	if (lflag(t, ECHOPRT)) {
		if (!t->erasing) {
			echo_raw(t, '\\');
			t->erasing = true;
		}
		echo_char(t, c);
		for (u32 at = from + 1; at != to; at++)
			echo_verbatim(t, t->input[at % INPUT_SIZE]);
	} else if (one_char && !lflag(t, ECHOE)) {
		echo_char(t, t->termios.c_cc[VERASE]);
	} else if (c == '\t') {
		rub_out_tab(t);
	} else if (!tty_is_control(c)) {
		rub_out(t);
	} else if (lflag(t, ECHOCTL)) {
		rub_out(t);
		rub_out(t);
	}
}

static bool is_word_char(u8 c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '_' || c >= 0x80;
}

/* VKILL where the line cannot be rubbed out on the screen. */
static void kill_without_rubout(struct tty *t)
{
	t->in_head = t->canon_head;
	if (!lflag(t, ECHO))
		return;
	echo_finish_erasing(t);
	echo_char(t, t->termios.c_cc[VKILL]);
	if (lflag(t, ECHOK))
		echo_raw(t, '\n');
}

void echo_erase(struct tty *t, u8 key)
{
	bool one = key == t->termios.c_cc[VERASE];
	bool word = !one && key == t->termios.c_cc[VWERASE];
	bool in_word = false;

	if (t->in_head == t->canon_head)
		return;
	if (!one && !word &&
	    !(lflag(t, ECHO) && lflag(t, ECHOK) && lflag(t, ECHOKE) && lflag(t, ECHOE))) {
		kill_without_rubout(t);
		return;
	}
	while (t->in_head != t->canon_head) {
		u32 from = t->in_head, to = t->in_head;
		u8 c;

		do
			c = t->input[--from % INPUT_SIZE];
		while (from != t->canon_head && tty_utf8_continues(t, c));
		if (tty_utf8_continues(t, c))
			break; /* the line's start is no character's start */
		if (word) {
			if (is_word_char(c))
				in_word = true;
			else if (in_word)
				break;
		}
		t->in_head = from;
		show_erased(t, from, to, one);
		if (one)
			break;
	}
	if (t->in_head == t->canon_head && lflag(t, ECHO))
		echo_finish_erasing(t);
}
