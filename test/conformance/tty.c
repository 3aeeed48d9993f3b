/* Pseudo terminals: line discipline, termios calls, hangup, packet mode. */
#include "conf.h"
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>

struct pty {
	int m, s;
};

static struct pty open_pair(void)
{
	struct pty p;
	OK(openpty(&p.m, &p.s, NULL, NULL, NULL));
	return p;
}
static void change(int fd, tcflag_t clear_l, tcflag_t set_l, tcflag_t clear_i, tcflag_t set_i)
{
	struct termios t;
	OK(tcgetattr(fd, &t));
	t.c_lflag = (t.c_lflag & ~clear_l) | set_l;
	t.c_iflag = (t.c_iflag & ~clear_i) | set_i;
	OK(tcsetattr(fd, TCSANOW, &t));
}
static void no_echo(int fd)
{
	change(fd, ECHO, 0, 0, 0);
}
static void raw(int fd, int min, int time)
{
	struct termios t;
	OK(tcgetattr(fd, &t));
	cfmakeraw(&t);
	t.c_cc[VMIN] = min;
	t.c_cc[VTIME] = time;
	OK(tcsetattr(fd, TCSANOW, &t));
}
static void type(int fd, const char *text)
{
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
}
static short events(int fd, short want, int ms)
{
	struct pollfd p = { .fd = fd, .events = want };
	OK(poll(&p, 1, ms));
	return p.revents;
}
/* Reads until `n` bytes came; the text. */
static const char *take(int fd, size_t n)
{
	static char buf[8192];
	size_t have = 0;
	while (have < n) {
		if (!(events(fd, POLLIN, 5000) & POLLIN))
			conf_fail(__FILE__, __LINE__, "only %zu of %zu bytes came", have, n);
		have += OK(read(fd, buf + have, n - have));
	}
	buf[have] = 0;
	return buf;
}
static void expect(int fd, const char *text)
{
	CHECK_STR(take(fd, strlen(text)), text);
}
static void expect_nothing(int fd)
{
	CHECK_EQ(events(fd, POLLIN, 0) & POLLIN, 0);
}

CASE(ptmx_basics)
{
	int m = OK(posix_openpt(O_RDWR | O_NOCTTY)), n = -1, lock = -1;
	char name[64];
	OK(ioctl(m, TIOCGPTN, &n));
	CHECK(n >= 0);
	OK(ioctl(m, TIOCGPTLCK, &lock));
	CHECK_EQ(lock, 1);
	CHECK_EQ(ptsname_r(m, name, sizeof(name)), 0);
	CHECK_ERR(open(name, O_RDWR | O_NOCTTY), EIO);
	OK(grantpt(m));
	OK(unlockpt(m));
	int s = OK(open(name, O_RDWR | O_NOCTTY));
	CHECK(isatty(s) && isatty(m));
	char again[64];
	CHECK_EQ(ttyname_r(s, again, sizeof(again)), 0);
	CHECK_STR(again, name);
	struct stat st;
	OK(fstat(s, &st));
	CHECK(S_ISCHR(st.st_mode));
	CHECK_EQ(st.st_rdev >> 8, 136);
	CHECK_ERR(lseek(s, 0, SEEK_SET), ESPIPE);
	close(s);
	close(m);
	CHECK_ERR(open(name, O_RDWR | O_NOCTTY), ENOENT);
}
CASE(default_settings)
{
	struct pty p = open_pair();
	struct termios t;
	OK(tcgetattr(p.s, &t));
	CHECK_EQ(t.c_lflag & (ICANON | ECHO | ISIG | IEXTEN), ICANON | ECHO | ISIG | IEXTEN);
	CHECK(t.c_iflag & ICRNL);
	CHECK(t.c_oflag & OPOST);
	CHECK_EQ(t.c_cc[VINTR], 3);
	CHECK_EQ(t.c_cc[VEOF], 4);
	CHECK_EQ(t.c_cc[VERASE], 0x7f);
	CHECK_EQ(cfgetospeed(&t), B38400);
}
CASE(canonical_line)
{
	struct pty p = open_pair();
	no_echo(p.s);
	type(p.m, "hel");
	expect_nothing(p.s);
	type(p.m, "lo\nworld\n");
	char buf[64];
	CHECK_EQ(read(p.s, buf, sizeof(buf)), 6);
	CHECK_MEM(buf, "hello\n", 6);
	CHECK_EQ(read(p.s, buf, 3), 3);
	CHECK_MEM(buf, "wor", 3);
	CHECK_EQ(read(p.s, buf, 64), 3);
	CHECK_MEM(buf, "ld\n", 3);
}
CASE(echo_and_carriage_return)
{
	struct pty p = open_pair();
	type(p.m, "ab\r");
	expect(p.m, "ab\r\n");
	expect(p.s, "ab\n");
}
CASE(output_processing)
{
	struct pty p = open_pair();
	type(p.s, "a\nb\n");
	expect(p.m, "a\r\nb\r\n");
	struct termios t;
	OK(tcgetattr(p.s, &t));
	t.c_oflag &= ~OPOST;
	OK(tcsetattr(p.s, TCSADRAIN, &t));
	type(p.s, "a\nb\n");
	expect(p.m, "a\nb\n");
	t.c_oflag |= OPOST | TAB3;
	OK(tcsetattr(p.s, TCSADRAIN, &t));
	type(p.s, "\r\tx");
	expect(p.m, "\r        x");
}
CASE(erase_kill_and_word)
{
	struct pty p = open_pair();
	no_echo(p.s);
	type(p.m, "abx\177c\n");
	expect(p.s, "abc\n");
	type(p.m, "junk\025ok\n");
	expect(p.s, "ok\n");
	type(p.m, "one two\027three\n");
	expect(p.s, "one three\n");
	type(p.m, "\177\177\025\027z\n");
	expect(p.s, "z\n");
}
CASE(echo_of_erase)
{
	struct pty p = open_pair();
	type(p.m, "ab\177");
	expect(p.m, "ab\b \b");
	type(p.m, "\001");
	expect(p.m, "^A");
	type(p.m, "\177");
	expect(p.m, "\b \b\b \b");
}
CASE(utf8_erase)
{
	struct pty p = open_pair();
	change(p.s, ECHO, 0, 0, IUTF8);
	type(p.m, "a\xc3\xa4\177\n");
	expect(p.s, "a\n");
	change(p.s, 0, 0, IUTF8, 0);
	type(p.m, "a\xc3\xa4\177\n");
	expect(p.s, "a\xc3\n");
}
CASE(literal_next)
{
	struct pty p = open_pair();
	no_echo(p.s);
	type(p.m, "a\026\003b\n");
	expect(p.s, "a\003b\n");
}
CASE(end_of_file)
{
	struct pty p = open_pair();
	char buf[16];
	no_echo(p.s);
	type(p.m, "\004");
	CHECK(events(p.s, POLLIN, 5000) & POLLIN);
	CHECK_EQ(read(p.s, buf, sizeof(buf)), 0);
	type(p.m, "ab\004");
	CHECK_EQ(read(p.s, buf, sizeof(buf)), 2);
	expect_nothing(p.s);
	/* a line that fills the reader's buffer takes the mark along */
	type(p.m, "xyz\004n\n");
	CHECK_EQ(read(p.s, buf, 3), 3);
	CHECK_EQ(read(p.s, buf, sizeof(buf)), 2);
	CHECK_MEM(buf, "n\n", 2);
}
CASE(extra_line_ends)
{
	struct pty p = open_pair();
	struct termios t;
	OK(tcgetattr(p.s, &t));
	t.c_lflag &= ~ECHO;
	t.c_cc[VEOL] = ';';
	OK(tcsetattr(p.s, TCSANOW, &t));
	type(p.m, "a;b");
	expect(p.s, "a;");
	expect_nothing(p.s);
}
CASE(input_mapping)
{
	struct pty p = open_pair();
	change(p.s, ICANON | ECHO, 0, ICRNL, INLCR);
	type(p.m, "a\nb\r");
	expect(p.s, "a\rb\r");
	change(p.s, 0, 0, INLCR, IGNCR);
	type(p.m, "a\r\nb");
	expect(p.s, "a\nb");
	change(p.s, 0, 0, IGNCR, ISTRIP);
	type(p.m, "\xe1");
	expect(p.s, "a");
}
CASE(long_line_is_cut)
{
	struct pty p = open_pair();
	char big[5000], got[8192];
	no_echo(p.s);
	memset(big, 'x', sizeof(big));
	for (size_t done = 0; done < sizeof(big);)
		done += OK(write(p.m, big + done, sizeof(big) - done));
	type(p.m, "\n");
	CHECK(events(p.s, POLLIN, 5000) & POLLIN);
	ssize_t n = OK(read(p.s, got, sizeof(got)));
	CHECK_EQ(n, 4096);
	CHECK_EQ(got[4095], '\n');
}
CASE(raw_reads)
{
	struct pty p = open_pair();
	char buf[16];
	raw(p.s, 1, 0);
	type(p.m, "\003\004\n\r");
	expect(p.s, "\003\004\n\r");
	raw(p.s, 0, 0);
	CHECK_EQ(read(p.s, buf, 16), 0);
	raw(p.s, 3, 0);
	type(p.m, "ab");
	CHECK_EQ(events(p.s, POLLIN, 0) & POLLIN, 0);
	OK(fcntl(p.s, F_SETFL, O_NONBLOCK));
	CHECK_EQ(read(p.s, buf, 16), 2);
	CHECK_ERR(read(p.s, buf, 16), EAGAIN);
}
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}
CASE(vtime_alone)
{
	struct pty p = open_pair();
	char buf[4];
	double start = now();
	raw(p.s, 0, 2);
	CHECK_EQ(read(p.s, buf, 4), 0);
	CHECK(now() - start >= 0.19);
	type(p.m, "q");
	CHECK_EQ(read(p.s, buf, 4), 1);
}
CASE(vtime_between_bytes)
{
	struct pty p = open_pair();
	char buf[8];
	raw(p.s, 5, 1);
	type(p.m, "ab");
	double start = now();
	CHECK_EQ(read(p.s, buf, 8), 2);
	CHECK(now() - start >= 0.09);
	type(p.m, "abcde");
	CHECK_EQ(read(p.s, buf, 8), 5);
}
CASE(mode_switch_keeps_input)
{
	struct pty p = open_pair();
	no_echo(p.s);
	type(p.m, "abc");
	expect_nothing(p.s);
	change(p.s, ICANON, 0, 0, 0);
	expect(p.s, "abc");
	type(p.m, "de");
	CHECK(events(p.s, POLLIN, 5000) & POLLIN);
	change(p.s, 0, ICANON, 0, 0);
	CHECK(events(p.s, POLLIN, 5000) & POLLIN);
	expect(p.s, "de");
}
CASE(flow_control)
{
	struct pty p = open_pair();
	type(p.m, "\023");
	CHECK_EQ(events(p.s, POLLOUT, 0) & POLLOUT, 0);
	OK(fcntl(p.s, F_SETFL, O_NONBLOCK));
	CHECK_ERR(write(p.s, "x", 1), EAGAIN);
	expect_nothing(p.m);
	type(p.m, "\021");
	CHECK(events(p.s, POLLOUT, 5000) & POLLOUT);
	type(p.s, "x");
	expect(p.m, "x");
	OK(tcflow(p.s, TCOOFF));
	CHECK_ERR(write(p.s, "x", 1), EAGAIN);
	OK(tcflow(p.s, TCOON));
	type(p.s, "y");
	expect(p.m, "y");
	CHECK_ERR(ioctl(p.s, TCXONC, 77), EINVAL);
}
CASE(flushes)
{
	struct pty p = open_pair();
	no_echo(p.s);
	type(p.m, "old\n");
	CHECK(events(p.s, POLLIN, 5000) & POLLIN);
	OK(tcflush(p.s, TCIFLUSH));
	expect_nothing(p.s);
	type(p.m, "again\n");
	CHECK(events(p.s, POLLIN, 5000) & POLLIN);
	struct termios t;
	OK(tcgetattr(p.s, &t));
	OK(tcsetattr(p.s, TCSAFLUSH, &t));
	expect_nothing(p.s);
	OK(tcdrain(p.s));
	OK(tcsendbreak(p.s, 0));
	CHECK_ERR(tcflush(p.s, 77), EINVAL);
}
CASE(byte_counts)
{
	struct pty p = open_pair();
	int n = -1;
	no_echo(p.s);
	type(p.m, "abc\nde");
	CHECK(events(p.s, POLLIN, 5000) & POLLIN);
	OK(ioctl(p.s, FIONREAD, &n));
	CHECK_EQ(n, 4);
	OK(ioctl(p.s, TIOCOUTQ, &n));
	CHECK_EQ(n, 0);
	CHECK_ERR(ioctl(p.s, FIONREAD, (void *)8), EFAULT);
}
CASE(window_size)
{
	struct pty p = open_pair();
	struct winsize w = { 24, 80, 1, 2 }, got;
	OK(ioctl(p.s, TIOCSWINSZ, &w));
	OK(ioctl(p.m, TIOCGWINSZ, &got));
	CHECK_MEM(&w, &got, sizeof(w));
	w.ws_row = 50;
	OK(ioctl(p.m, TIOCSWINSZ, &w));
	OK(ioctl(p.s, TIOCGWINSZ, &got));
	CHECK_EQ(got.ws_row, 50);
	CHECK_ERR(ioctl(p.s, TIOCGWINSZ, (void *)8), EFAULT);
	CHECK_ERR(ioctl(p.s, TIOCSWINSZ, (void *)8), EFAULT);
}
CASE(master_sees_slaves_settings)
{
	struct pty p = open_pair();
	struct termios t, u;
	OK(tcgetattr(p.m, &t));
	t.c_lflag &= ~ECHO;
	OK(tcsetattr(p.m, TCSANOW, &t));
	OK(tcgetattr(p.s, &u));
	CHECK_EQ(u.c_lflag & ECHO, 0);
	CHECK_ERR(ioctl(p.s, TCGETS, (void *)8), EFAULT);
	CHECK_ERR(ioctl(p.s, TCSETS, (void *)8), EFAULT);
}
CASE(termios2_speed)
{
	struct pty p = open_pair();
	struct {
		unsigned i, o, c, l;
		unsigned char line, cc[19];
		unsigned in, out;
	} t;
	OK(ioctl(p.s, 0x802c542a /* TCGETS2 */, &t));
	CHECK_EQ(t.out, 38400);
	t.c = (t.c & ~0x100fU) | 0x1000; /* BOTHER */
	t.out = t.in = 12345;
	OK(ioctl(p.s, 0x402c542b /* TCSETS2 */, &t));
	memset(&t, 0, sizeof(t));
	OK(ioctl(p.s, 0x802c542a, &t));
	CHECK_EQ(t.out, 12345);
}
CASE(eight_bits_always)
{
	struct pty p = open_pair();
	struct termios t;
	OK(tcgetattr(p.s, &t));
	t.c_cflag = (t.c_cflag & ~CSIZE) | CS5 | PARENB;
	OK(ioctl(p.s, TCSETS, &t));
	OK(tcgetattr(p.s, &t));
	CHECK_EQ(t.c_cflag & (CSIZE | PARENB), CS8);
}
CASE(master_close_hangs_up)
{
	struct pty p = open_pair();
	char buf[4];
	int n;
	close(p.m);
	CHECK_EQ(events(p.s, POLLIN | POLLOUT, 5000) & POLLHUP, POLLHUP);
	CHECK_EQ(read(p.s, buf, 4), 0);
	CHECK_ERR(write(p.s, "x", 1), EIO);
	CHECK_ERR(ioctl(p.s, FIONREAD, &n), EIO);
}
CASE(slave_close_ends_master)
{
	struct pty p = open_pair();
	char buf[16], name[64];
	CHECK_EQ(ptsname_r(p.m, name, sizeof(name)), 0);
	type(p.s, "bye");
	close(p.s);
	expect(p.m, "bye");
	CHECK_EQ(events(p.m, POLLIN, 5000) & POLLHUP, POLLHUP);
	CHECK_ERR(read(p.m, buf, 16), EIO);
	/* and comes back */
	int s = OK(open(name, O_RDWR | O_NOCTTY));
	CHECK_EQ(events(p.m, POLLIN, 0) & POLLHUP, 0);
	type(s, "hi");
	expect(p.m, "hi");
}
CASE(master_alone_waits)
{
	int m = OK(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK));
	char b;
	CHECK_ERR(read(m, &b, 1), EAGAIN);
	CHECK_EQ(events(m, POLLIN, 0) & (POLLIN | POLLHUP), 0);
}
CASE(nonblocking)
{
	struct pty p = open_pair();
	char buf[4], big[65536];
	OK(fcntl(p.s, F_SETFL, O_NONBLOCK));
	OK(fcntl(p.m, F_SETFL, O_NONBLOCK));
	CHECK_ERR(read(p.s, buf, 4), EAGAIN);
	CHECK_ERR(read(p.m, buf, 4), EAGAIN);
	memset(big, 'x', sizeof(big));
	size_t total = 0;
	ssize_t n;
	while ((n = write(p.s, big, sizeof(big))) > 0) {
		total += n;
		CHECK(total < 16 << 20);
	}
	CHECK_EQ(errno, EAGAIN);
	CHECK(total >= 4096);
	size_t back = 0;
	while (back < total && (n = read(p.m, big, sizeof(big))) > 0)
		back += n;
	CHECK_EQ(back, total);
}
static void echo_lines(void *arg)
{
	int fd = *(int *)arg;
	char buf[4096];
	size_t total = 0;
	while (total < 200000) {
		ssize_t n = OK(read(fd, buf, sizeof(buf)));
		CHECK(n > 0);
		total += n;
	}
}
CASE(much_input_passes)
{
	struct pty p = open_pair();
	raw(p.s, 1, 0);
	pid_t pid = conf_fork(echo_lines, &p.s);
	char line[100];
	memset(line, 'l', sizeof(line));
	for (int i = 0; i < 2000; i++)
		for (size_t done = 0; done < sizeof(line);)
			done += OK(write(p.m, line + done, sizeof(line) - done));
	conf_join(pid);
}
CASE(packet_mode)
{
	struct pty p = open_pair();
	int on = 1;
	char buf[16];
	OK(ioctl(p.m, TIOCPKT, &on));
	type(p.s, "hi");
	CHECK(events(p.m, POLLIN, 5000) & POLLIN);
	CHECK_EQ(read(p.m, buf, 16), 3);
	CHECK_MEM(buf, "\0hi", 3);
	OK(tcflush(p.s, TCIFLUSH));
	CHECK(events(p.m, POLLIN | POLLPRI, 5000) & POLLPRI);
	CHECK_EQ(read(p.m, buf, 16), 1);
	CHECK(buf[0] & TIOCPKT_FLUSHREAD);
}
CASE(exclusive)
{
	struct pty p = open_pair();
	char name[64];
	CHECK_EQ(ptsname_r(p.m, name, sizeof(name)), 0);
	OK(ioctl(p.s, TIOCEXCL));
	int on = 0;
	OK(ioctl(p.s, TIOCGEXCL, &on));
	CHECK_EQ(on, 1);
	int fd = open(name, O_RDWR | O_NOCTTY);
	if (geteuid())
		CHECK(fd < 0 && errno == EBUSY);
	OK(ioctl(p.s, TIOCNXCL));
	OK(open(name, O_RDWR | O_NOCTTY));
}
CASE(peer)
{
	struct pty p = open_pair();
	int s = OK(ioctl(p.m, TIOCGPTPEER, O_RDWR | O_NOCTTY));
	char a[64], b[64];
	CHECK_EQ(ttyname_r(s, a, sizeof(a)), 0);
	CHECK_EQ(ttyname_r(p.s, b, sizeof(b)), 0);
	CHECK_STR(a, b);
	type(s, "p");
	expect(p.m, "p");
}
CASE(odd_requests)
{
	struct pty p = open_pair();
	int n = 5, pid = 0;
	OK(ioctl(p.s, TIOCGETD, &n));
	CHECK_EQ(n, 0);
	CHECK_ERR(ioctl(p.s, 0x4b33 /* KDGKBTYPE */, &n), ENOTTY);
	CHECK_ERR(ioctl(p.s, 0x5499, &n), ENOTTY);
	CHECK_ERR(ioctl(p.s, TIOCGPGRP, &pid), ENOTTY);
	CHECK_ERR(ioctl(p.s, TIOCSPTLCK, &n), ENOTTY);
	CHECK_ERR(ioctl(p.m, TIOCSIG, 100), EINVAL);
	int fds[2];
	OK(pipe(fds));
	struct termios t;
	CHECK_ERR(tcgetattr(fds[0], &t), ENOTTY);
}
CASE(many_pairs)
{
	struct pty p[40];
	for (int i = 0; i < 40; i++) {
		p[i] = open_pair();
		type(p[i].s, "n");
	}
	for (int i = 0; i < 40; i++) {
		expect(p[i].m, "n");
		close(p[i].s);
		close(p[i].m);
	}
}
CASE(random_operations)
{
	struct pty p = open_pair();
	unsigned seed = 12345;
	char buf[600];
	OK(fcntl(p.m, F_SETFL, O_NONBLOCK));
	OK(fcntl(p.s, F_SETFL, O_NONBLOCK));
	signal(SIGTTOU, SIG_IGN);
	for (int i = 0; i < 3000; i++) {
		struct termios t;
		size_t n = rand_r(&seed) % sizeof(buf);
		switch (rand_r(&seed) % 6) {
		case 0:
			OK(tcgetattr(p.s, &t));
			t.c_iflag = rand_r(&seed) & 077777;
			t.c_oflag = rand_r(&seed) & 0177;
			t.c_lflag = rand_r(&seed) & 0177777;
			for (size_t k = 0; k < 17; k++)
				t.c_cc[k] = rand_r(&seed) % 40;
			(void)!ioctl(p.s, TCSETS, &t);
			break;
		case 1:
		case 2:
			for (size_t k = 0; k < n; k++)
				buf[k] = rand_r(&seed) % 3 ? rand_r(&seed) % 40 : rand_r(&seed);
			CHECK(write(p.m, buf, n) >= 0 || errno == EAGAIN);
			break;
		case 3: CHECK(read(p.s, buf, n) >= 0 || errno == EAGAIN); break;
		case 4: CHECK(read(p.m, buf, n) >= 0 || errno == EAGAIN); break;
		default: CHECK(write(p.s, buf, n) >= 0 || errno == EAGAIN);
		}
	}
	/* and it works again after a reset */
	raw(p.s, 1, 0);
	OK(tcflow(p.s, TCOON));
	OK(tcflush(p.s, TCIOFLUSH));
	OK(tcflush(p.m, TCIOFLUSH));
	type(p.m, "ok");
	expect(p.s, "ok");
}
CONF_MAIN
