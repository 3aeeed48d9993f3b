/* TCGETS and TCSETS in their three layouts: termios, termios2, and the old termio. */
#include "sentry/tty/internal.h"
#include <string.h>

static const u32 baud[] = {
	0,	 50,	  75,	   110,	    134,     150,     200,     300,
	600,	 1200,	  1800,	   2400,    4800,    9600,    19200,   38400,
	57600,	 115200,  230400,  460800,  500000,  576000,  921600,  1000000,
	1152000, 1500000, 2000000, 2500000, 3000000, 3500000, 4000000,
};

/* Index into baud[] of speed bits; -1 for BOTHER and unknown ones. */
static int speed_index(u32 bits)
{
	if (bits & CBAUDEX)
		bits = bits == BOTHER ? ~0U : (bits & ~CBAUDEX) + 15;
	return bits < ARRAY_SIZE(baud) ? (int)bits : -1;
}

static u32 speed_bits(u32 rate)
{
	for (u32 i = 0; i < ARRAY_SIZE(baud); i++) {
		if (baud[i] == rate)
			return i < 16 ? i : (i - 15) | CBAUDEX;
	}
	return BOTHER;
}

/* Speeds and their bits in c_cflag are two descriptions of one thing; `explicit_speed`: the numbers
 * rule. */
static void settle_speeds(struct ktermios *kt, bool explicit_speed)
{
	int out = speed_index(kt->c_cflag & CBAUD);
	u32 in_bits = (kt->c_cflag >> IBSHIFT) & CBAUD;
	int in = speed_index(in_bits);

	if (out >= 0)
		kt->c_ospeed = baud[out];
	else if (explicit_speed)
		kt->c_cflag =
			(kt->c_cflag & ~CBAUD) |
			(speed_bits(kt->c_ospeed) == BOTHER ? BOTHER : speed_bits(kt->c_ospeed));
	if (!in_bits)
		kt->c_ispeed = kt->c_ospeed;
	else if (in >= 0)
		kt->c_ispeed = baud[in];
	else if (!explicit_speed)
		kt->c_ispeed = kt->c_ospeed;
}

void tty_default_termios(struct ktermios *ret)
{
	static const u8 keys[NCCS] = {
		[VINTR] = 'C' - 64,    [VQUIT] = '\\' - 64,   [VERASE] = 0x7f,
		[VKILL] = 'U' - 64,    [VEOF] = 'D' - 64,     [VMIN] = 1,
		[VSTART] = 'Q' - 64,   [VSTOP] = 'S' - 64,    [VSUSP] = 'Z' - 64,
		[VREPRINT] = 'R' - 64, [VDISCARD] = 'O' - 64, [VWERASE] = 'W' - 64,
		[VLNEXT] = 'V' - 64,
	};

	memset(ret, 0, sizeof(*ret));
	ret->c_iflag = ICRNL | IXON;
	ret->c_oflag = OPOST | ONLCR;
	ret->c_cflag = B38400 | CS8 | CREAD;
	ret->c_lflag = ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN;
	memcpy(ret->c_cc, keys, sizeof(keys));
	ret->c_ispeed = ret->c_ospeed = 38400;
}

static s64 set(struct tty *t, struct ktermios *new, bool flush)
{
	struct ktermios old;

	/* a pty carries eight-bit bytes whatever is asked */
	new->c_cflag = (new->c_cflag & ~(CSIZE | PARENB)) | CS8 | CREAD;
	tty_lock(t);
	if (flush)
		ldisc_flush_input(t);
	old = t->termios;
	t->termios = *new;
	ldisc_termios_changed(t, &old);
	tty_unlock(t);
	return 0;
}

static s64 set_termios(struct tty *t, u64 arg, bool flush, bool two)
{
	struct ktermios kt;
	struct termios2 in = { 0 };
	s64 ret = tty_check_change(t, SIGTTOU);

	if (ret)
		return ret;
	/* struct termios is the beginning of struct termios2 */
	if (copy_in(current_task, &in, ua(arg),
		    two ? sizeof(struct termios2) : sizeof(struct termios)))
		return -EFAULT;
	tty_lock(t);
	kt = t->termios;
	tty_unlock(t);
	kt.c_iflag = in.c_iflag;
	kt.c_oflag = in.c_oflag;
	kt.c_cflag = in.c_cflag;
	kt.c_lflag = in.c_lflag;
	kt.c_line = in.c_line;
	memcpy(kt.c_cc, in.c_cc, sizeof(kt.c_cc));
	if (two) {
		kt.c_ispeed = in.c_ispeed;
		kt.c_ospeed = in.c_ospeed;
	}
	settle_speeds(&kt, two);
	return set(t, &kt, flush);
}

static s64 get_termios(struct tty *t, u64 arg, bool two)
{
	struct termios2 out = { 0 };

	tty_lock(t);
	out.c_iflag = t->termios.c_iflag;
	out.c_oflag = t->termios.c_oflag;
	out.c_cflag = t->termios.c_cflag;
	out.c_lflag = t->termios.c_lflag;
	out.c_line = t->termios.c_line;
	memcpy(out.c_cc, t->termios.c_cc, sizeof(out.c_cc));
	out.c_ispeed = t->termios.c_ispeed;
	out.c_ospeed = t->termios.c_ospeed;
	tty_unlock(t);
	return copy_out(current_task, ua(arg), &out,
			two ? sizeof(struct termios2) : sizeof(struct termios));
}

static s64 set_termio(struct tty *t, u64 arg, bool flush)
{
	struct ktermios kt;
	struct termio in;
	s64 ret = tty_check_change(t, SIGTTOU);

	if (ret)
		return ret;
	if (copy_in(current_task, &in, ua(arg), sizeof(in)))
		return -EFAULT;
	tty_lock(t);
	kt = t->termios;
	tty_unlock(t);
	/* the low halves; the high ones stay */
	kt.c_iflag = (kt.c_iflag & 0xffff0000) | in.c_iflag;
	kt.c_oflag = (kt.c_oflag & 0xffff0000) | in.c_oflag;
	kt.c_cflag = (kt.c_cflag & 0xffff0000) | in.c_cflag;
	kt.c_lflag = (kt.c_lflag & 0xffff0000) | in.c_lflag;
	kt.c_line = in.c_line;
	memcpy(kt.c_cc, in.c_cc, NCC);
	settle_speeds(&kt, false);
	return set(t, &kt, flush);
}

static s64 get_termio(struct tty *t, u64 arg)
{
	struct termio out = { 0 };

	tty_lock(t);
	out.c_iflag = (u16)t->termios.c_iflag;
	out.c_oflag = (u16)t->termios.c_oflag;
	out.c_cflag = (u16)t->termios.c_cflag;
	out.c_lflag = (u16)t->termios.c_lflag;
	out.c_line = t->termios.c_line;
	memcpy(out.c_cc, t->termios.c_cc, NCC);
	tty_unlock(t);
	return copy_out(current_task, ua(arg), &out, sizeof(out));
}

s64 tty_termios_ioctl(struct tty *t, bool master, u32 cmd, u64 arg)
{
	switch (cmd) {
	case TCGETS: return get_termios(t, arg, false);
	case TCGETS2: return get_termios(t, arg, true);
	case TCSETS:
	case TCSETSW: /* written output is already at the other side: nothing to wait for */
		return set_termios(t, arg, false, false);
	case TCSETSF: return set_termios(t, arg, true, false);
	case TCSETS2:
	case TCSETSW2: return set_termios(t, arg, false, true);
	case TCSETSF2: return set_termios(t, arg, true, true);
	case TCGETA: return get_termio(t, arg);
	case TCSETA:
	case TCSETAW: return set_termio(t, arg, false);
	case TCSETAF: return set_termio(t, arg, true);
	default: return -ENOIOCTLCMD;
	}
}
