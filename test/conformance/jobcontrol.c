/* Controlling terminals, foreground groups, and the signals of job control. */
#include "conf.h"
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static int master, tty;
static char tty_name[64];

static void new_pty(void)
{
	master = OK(posix_openpt(O_RDWR | O_NOCTTY));
	OK(unlockpt(master));
	CHECK_EQ(ptsname_r(master, tty_name, sizeof(tty_name)), 0);
}
/* A new session with the terminal as its controlling one runs fn; it also has the master. */
static void session_start(void *fn)
{
	OK(setsid());
	tty = OK(open(tty_name, O_RDWR));
	((void (*)(void))fn)();
}
static void in_session(void (*fn)(void))
{
	new_pty();
	conf_join(conf_fork(session_start, (void *)fn));
}
static void type(const char *s)
{
	CHECK_EQ(write(master, s, strlen(s)), strlen(s));
}
static void ready(int fd, char byte)
{
	CHECK_EQ(write(fd, &byte, 1), 1);
}
static void await(int fd, char byte)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char got;
	CHECK_EQ(poll(&p, 1, 10000), 1);
	CHECK_EQ(read(fd, &got, 1), 1);
	CHECK_EQ(got, byte);
}
static sigset_t set_of(int sig)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, sig);
	return s;
}
static void block(int sig)
{
	sigset_t s = set_of(sig);
	OK(sigprocmask(SIG_BLOCK, &s, NULL));
}
static bool pending(int sig)
{
	sigset_t s;
	OK(sigpending(&s));
	return sigismember(&s, sig);
}
/* Waits for a blocked signal. */
static void await_signal(int sig)
{
	sigset_t s = set_of(sig);
	struct timespec t = { 10, 0 };
	CHECK_EQ(sigtimedwait(&s, NULL, &t), sig);
}
static void ready_pipe(int p[2])
{
	OK(pipe(p));
}
/* A job in a group of its own that runs fn; both sides have set the group. */
static pid_t job(void (*fn)(void *), void *arg)
{
	pid_t pid = conf_fork(fn, arg);
	setpgid(pid, pid);
	return pid;
}
static void own_group(void)
{
	setpgid(0, 0);
}
static void expect_stop(pid_t pid, int sig)
{
	int st;
	CHECK_EQ(waitpid(pid, &st, WUNTRACED), pid);
	if (!WIFSTOPPED(st))
		conf_fail(__FILE__, __LINE__, "status %#x, not stopped", st);
	CHECK_EQ(WSTOPSIG(st), sig);
}
static void finish(pid_t pid)
{
	OK(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

/* ---- acquiring ---- */

static void check_acquired(void)
{
	CHECK_EQ(tcgetsid(tty), getpid());
	CHECK_EQ(tcgetpgrp(tty), getpid());
	int fd = OK(open("/dev/tty", O_RDWR));
	CHECK_EQ(tcgetpgrp(fd), getpid());
	struct stat a;
	OK(fstat(fd, &a));
	CHECK_EQ(a.st_rdev, 5 << 8);
	int pgrp = 0;
	OK(ioctl(master, TIOCGPGRP, &pgrp));
	CHECK_EQ(pgrp, getpid());
}
CASE(leader_acquires_by_open)
{
	in_session(check_acquired);
}
static void no_tty(void *arg)
{
	OK(setsid());
	CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
	int fd = OK(open(tty_name, O_RDWR | O_NOCTTY));
	CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
	CHECK_ERR(tcgetpgrp(fd), ENOTTY);
	CHECK_ERR(tcgetsid(fd), ENOTTY);
	OK(ioctl(fd, TIOCSCTTY, 0));
	OK(open("/dev/tty", O_RDWR));
	OK(ioctl(fd, TIOCSCTTY, 0));
}
CASE(noctty_then_ioctl)
{
	new_pty();
	conf_join(conf_fork(no_tty, NULL));
}
static void second_session(void *arg)
{
	OK(setsid());
	int fd = OK(open(tty_name, O_RDWR));
	CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
	CHECK_ERR(ioctl(fd, TIOCSCTTY, 0), EPERM);
	CHECK_ERR(tcgetpgrp(fd), ENOTTY);
}
static void try_to_share(void)
{
	pid_t pid = conf_fork(second_session, NULL);
	conf_join(pid);
	CHECK_EQ(tcgetsid(tty), getpid());
}
CASE(one_session_only)
{
	in_session(try_to_share);
}
static void not_leader(void *arg)
{
	CHECK_ERR(ioctl(*(int *)arg, TIOCSCTTY, 0), EPERM);
}
static void non_leader_asks(void)
{
	int m, s;
	OK(openpty(&m, &s, NULL, NULL, NULL));
	conf_join(conf_fork(not_leader, &s));
	/* nor does the leader get a second one */
	CHECK_ERR(ioctl(s, TIOCSCTTY, 0), EPERM);
}
CASE(only_leaders_without_one)
{
	in_session(non_leader_asks);
}
static void setsid_loses(void *arg)
{
	OK(open("/dev/tty", O_RDWR));
	OK(setsid());
	CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
}
static void check_setsid(void)
{
	conf_join(conf_fork(setsid_loses, NULL));
}
CASE(setsid_leaves_the_terminal)
{
	in_session(check_setsid);
}
static void child_detaches(void *arg)
{
	OK(ioctl(tty, TIOCNOTTY));
	CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
	CHECK_ERR(ioctl(tty, TIOCNOTTY), ENOTTY);
}
static void check_notty(void)
{
	conf_join(conf_fork(child_detaches, NULL));
	OK(open("/dev/tty", O_RDWR));
	block(SIGHUP);
	block(SIGCONT);
	OK(ioctl(tty, TIOCNOTTY));
	await_signal(SIGHUP);
	await_signal(SIGCONT);
	CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
	OK(ioctl(tty, TIOCSCTTY, 0));
}
CASE(notty)
{
	in_session(check_notty);
}

/* ---- keys ---- */

static void keys_signal(void)
{
	block(SIGINT);
	block(SIGQUIT);
	block(SIGTSTP);
	type("\003");
	await_signal(SIGINT);
	type("\034");
	await_signal(SIGQUIT);
	type("\032");
	await_signal(SIGTSTP);
	struct termios t;
	OK(tcgetattr(tty, &t));
	t.c_lflag &= ~ISIG;
	OK(tcsetattr(tty, TCSANOW, &t));
	type("\003\n");
	char b[4];
	CHECK_EQ(read(tty, b, 4), 2);
	CHECK(!pending(SIGINT));
}
CASE(signal_keys)
{
	in_session(keys_signal);
}
static void key_flushes(void)
{
	char b[16];
	struct termios t;
	block(SIGINT);
	type("lost\003kept\n");
	await_signal(SIGINT);
	CHECK_EQ(read(tty, b, 16), 5);
	CHECK_MEM(b, "kept\n", 5);
	OK(tcgetattr(tty, &t));
	t.c_lflag |= NOFLSH;
	OK(tcsetattr(tty, TCSANOW, &t));
	type("a\003b\n");
	await_signal(SIGINT);
	CHECK_EQ(read(tty, b, 16), 3);
	CHECK_MEM(b, "ab\n", 3);
}
CASE(signal_key_flushes_input)
{
	in_session(key_flushes);
}
static void wait_for_death(void *arg)
{
	own_group();
	ready(*(int *)arg, 'r');
	for (;;)
		pause();
}
static void foreground_only(void)
{
	int p[2], st;
	ready_pipe(p);
	pid_t a = job(wait_for_death, &p[1]), b = job(wait_for_death, &p[1]);
	await(p[0], 'r');
	await(p[0], 'r');
	block(SIGINT);
	OK(tcsetpgrp(tty, a));
	type("\003");
	CHECK_EQ(waitpid(a, &st, 0), a);
	CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGINT);
	CHECK_EQ(waitpid(b, &st, WNOHANG), 0);
	CHECK(!pending(SIGINT));
	block(SIGTTOU);
	OK(tcsetpgrp(tty, b));
	type("\032");
	expect_stop(b, SIGTSTP);
	OK(tcsetpgrp(tty, getpgrp()));
	finish(b);
}
CASE(keys_reach_the_foreground_only)
{
	in_session(foreground_only);
}
static void second_interrupt(void)
{
	int p[2], st;
	ready_pipe(p);
	block(SIGTTOU);
	for (int i = 0; i < 3; i++) {
		pid_t a = job(wait_for_death, &p[1]);
		await(p[0], 'r');
		OK(tcsetpgrp(tty, a));
		type("\003");
		CHECK_EQ(waitpid(a, &st, 0), a);
		CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGINT);
		OK(tcsetpgrp(tty, getpgrp()));
	}
}
CASE(interrupt_again_and_again)
{
	in_session(second_interrupt);
}
static void resize(void)
{
	struct winsize w = { 33, 99, 0, 0 };
	block(SIGWINCH);
	OK(ioctl(master, TIOCSWINSZ, &w));
	await_signal(SIGWINCH);
	OK(ioctl(master, TIOCSWINSZ, &w));
	CHECK(!pending(SIGWINCH)); /* nothing changed */
}
CASE(window_change)
{
	in_session(resize);
}

/* ---- background ---- */

static void read_tty(void *arg)
{
	char b;
	own_group();
	CHECK_EQ(read(tty, &b, 1), 1);
	CHECK_EQ(b, 'i');
}
static void read_stops(void)
{
	pid_t pid = job(read_tty, NULL);
	expect_stop(pid, SIGTTIN);
	type("in\n");
	block(SIGTTOU);
	OK(tcsetpgrp(tty, pid));
	OK(kill(-pid, SIGCONT));
	conf_join(pid);
	OK(tcsetpgrp(tty, getpgrp()));
}
CASE(background_read_stops)
{
	in_session(read_stops);
}
static void read_ignored(void *arg)
{
	char b;
	own_group();
	signal(SIGTTIN, SIG_IGN);
	CHECK_ERR(read(tty, &b, 1), EIO);
}
static void read_blocked(void *arg)
{
	char b;
	own_group();
	block(SIGTTIN);
	CHECK_ERR(read(tty, &b, 1), EIO);
	CHECK(!pending(SIGTTIN));
}
static void reads_fail(void)
{
	conf_join(job(read_ignored, NULL));
	conf_join(job(read_blocked, NULL));
}
CASE(background_read_without_signal)
{
	in_session(reads_fail);
}
static void write_tty(void *arg)
{
	own_group();
	CHECK_EQ(write(tty, "w", 1), 1);
}
static void tostop(void)
{
	struct termios t;
	conf_join(job(write_tty, NULL));
	OK(tcgetattr(tty, &t));
	t.c_lflag |= TOSTOP;
	OK(tcsetattr(tty, TCSANOW, &t));
	pid_t pid = job(write_tty, NULL);
	expect_stop(pid, SIGTTOU);
	block(SIGTTOU);
	OK(tcsetpgrp(tty, pid));
	OK(kill(-pid, SIGCONT));
	conf_join(pid);
	OK(tcsetpgrp(tty, getpgrp()));
	CHECK_EQ(write(tty, "w", 1), 1);
}
CASE(background_write_with_tostop)
{
	in_session(tostop);
}
static void take_foreground_blocked(void *arg)
{
	own_group();
	block(SIGTTOU);
	block(SIGUSR1);
	OK(raise(SIGUSR1));
	OK(tcsetpgrp(tty, getpid()));
	CHECK(!pending(SIGTTOU));
	CHECK_EQ(tcgetpgrp(tty), getpid());
}
static void take_foreground(void *arg)
{
	own_group();
	OK(tcsetpgrp(tty, getpid()));
}
static void tcsetpgrp_rules(void)
{
	pid_t pid = job(take_foreground_blocked, NULL);
	conf_join(pid);
	block(SIGTTOU);
	OK(tcsetpgrp(tty, getpgrp()));
	sigset_t none;
	sigemptyset(&none);
	OK(sigprocmask(SIG_SETMASK, &none, NULL));
	pid = job(take_foreground, NULL);
	expect_stop(pid, SIGTTOU);
	CHECK_EQ(tcgetpgrp(tty), getpgrp());
	finish(pid);
}
CASE(background_tcsetpgrp)
{
	in_session(tcsetpgrp_rules);
}
static void set_attributes(void *arg)
{
	struct termios t;
	own_group();
	OK(tcgetattr(tty, &t)); /* reading is free */
	t.c_lflag ^= ECHOPRT;
	OK(tcsetattr(tty, TCSANOW, &t));
}
static void flush_it(void *arg)
{
	own_group();
	OK(tcflush(tty, TCIFLUSH));
}
static void changes_stop(void)
{
	pid_t pid = job(set_attributes, NULL);
	expect_stop(pid, SIGTTOU);
	finish(pid);
	pid = job(flush_it, NULL);
	expect_stop(pid, SIGTTOU);
	finish(pid);
}
CASE(background_changes_stop)
{
	in_session(changes_stop);
}
static void orphan(void *arg)
{
	int *fds = arg;
	char b;
	own_group();
	await(fds[2], 'g'); /* the parent is gone */
	errno = 0;
	ssize_t n = read(tty, &b, 1);
	ready(fds[1], n == -1 && errno == EIO ? 'e' : 'x');
}
static void parent_of_orphan(void *arg)
{
	conf_fork(orphan, arg);
}
static void orphaned_read(void)
{
	int p[4];
	OK(pipe(p));
	OK(pipe(p + 2));
	conf_join(conf_fork(parent_of_orphan, p));
	ready(p[3], 'g');
	await(p[0], 'e');
}
CASE(orphaned_group_reads)
{
	in_session(orphaned_read);
}
static void bad_groups(void)
{
	CHECK_ERR(tcsetpgrp(tty, -1), EINVAL);
	CHECK_ERR(tcsetpgrp(tty, 4000000), ESRCH);
	CHECK_ERR(tcsetpgrp(tty, getppid()), EPERM);
	CHECK_ERR(ioctl(tty, TIOCSPGRP, (void *)8), EFAULT);
	CHECK_ERR(ioctl(tty, TIOCGPGRP, (void *)8), EFAULT);
	int m, s;
	OK(openpty(&m, &s, NULL, NULL, NULL));
	CHECK_ERR(tcsetpgrp(s, getpgrp()), ENOTTY);
	CHECK_EQ(tcgetpgrp(tty), getpgrp());
}
CASE(foreground_group_errors)
{
	in_session(bad_groups);
}

/* ---- hangup ---- */

static int hup_pipe[2];

static void survive_hangup(void *arg)
{
	char b;
	OK(setsid());
	tty = OK(open(tty_name, O_RDWR));
	close(master);
	block(SIGHUP);
	block(SIGCONT);
	ready(hup_pipe[1], 'r');
	await_signal(SIGHUP);
	await_signal(SIGCONT);
	CHECK_EQ(read(tty, &b, 1), 0);
	CHECK_ERR(write(tty, "x", 1), EIO);
	CHECK_ERR(open("/dev/tty", O_RDWR), ENXIO);
}
CASE(master_close_tells_the_leader)
{
	new_pty();
	ready_pipe(hup_pipe);
	pid_t pid = conf_fork(survive_hangup, NULL);
	await(hup_pipe[0], 'r');
	close(master);
	conf_join(pid);
}
static void report_hup(int sig)
{
	(void)!write(hup_pipe[1], "h", 1);
	_exit(0);
}
static void foreground_job(void *arg)
{
	own_group();
	signal(SIGHUP, report_hup);
	block(SIGTTOU);
	OK(tcsetpgrp(tty, getpid()));
	ready(hup_pipe[1], 'r');
	for (;;)
		pause();
}
static void leader_with_job(void *arg)
{
	OK(setsid());
	tty = OK(open(tty_name, O_RDWR));
	conf_fork(foreground_job, NULL);
	await(hup_pipe[0], 'r');
}
CASE(leader_exit_hangs_up_the_foreground)
{
	new_pty();
	ready_pipe(hup_pipe);
	conf_join(conf_fork(leader_with_job, NULL));
	await(hup_pipe[0], 'h');
}
static void reader_at_hangup(void *arg)
{
	char b;
	OK(setsid());
	tty = OK(open(tty_name, O_RDWR));
	close(master);
	signal(SIGHUP, SIG_IGN);
	ready(hup_pipe[1], 'r');
	/* 0 when the hangup finds the read asleep; EIO when the read begins just after it. */
	ssize_t n = read(tty, &b, 1);
	CHECK(n == 0 || (n == -1 && errno == EIO));
}
CASE(blocked_read_ends_at_hangup)
{
	new_pty();
	ready_pipe(hup_pipe);
	pid_t pid = conf_fork(reader_at_hangup, NULL);
	await(hup_pipe[0], 'r');
	close(master);
	conf_join(pid);
}
static void short_lived(void *arg)
{
	OK(setsid());
	tty = OK(open(tty_name, O_RDWR));
	CHECK_EQ(write(tty, "end", 3), 3);
}
CASE(terminal_is_free_after_the_session)
{
	char buf[8];
	new_pty();
	for (int i = 0; i < 3; i++) {
		conf_join(conf_fork(short_lived, NULL));
		CHECK_EQ(read(master, buf, 8), 3);
		CHECK_ERR(read(master, buf, 8), EIO);
	}
}
static void vhang(void)
{
	char b;
	signal(SIGHUP, SIG_IGN);
	if (vhangup() && errno == EPERM)
		SKIP("vhangup needs a capability");
	CHECK_EQ(read(tty, &b, 1), 0);
	OK(open(tty_name, O_RDWR | O_NOCTTY));
}
CASE(vhangup_of_a_session)
{
	in_session(vhang);
}
static void stat_numbers(void)
{
	int pid, ppid, pgrp, sid, nr, tpgid;
	char comm[64], state;
	struct stat st;
	FILE *f = fopen("/proc/self/stat", "r");
	CHECK(f);
	CHECK_EQ(fscanf(f, "%d (%63[^)]) %c %d %d %d %d %d", &pid, comm, &state, &ppid, &pgrp, &sid,
			&nr, &tpgid),
		 8);
	OK(fstat(tty, &st));
	CHECK_EQ(nr, (int)st.st_rdev);
	CHECK_EQ(tpgid, getpgrp());
	CHECK_EQ(sid, getpid());
	CHECK_EQ(state, 'R');
}
CASE(proc_stat_shows_the_terminal)
{
	in_session(stat_numbers);
}
CONF_MAIN
