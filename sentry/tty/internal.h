/*
 * sentry/tty/internal.h: struct tty and what the files of sentry/tty share.
 *
 * Data flow of one pty:
 *
 *	master write -> flip -> ldisc_receive (edit, echo, signals) -> input -> slave read
 *	slave write -> ldisc_output (OPOST) -> output -> master read
 *	echo ------------------> output (or echo_hold while output is stopped or full)
 *
 * Code that changes a tty takes tty->lock, notes whom to wake in wake_slave and
 * wake_master and which signals are due in pending_signals, and leaves through
 * tty_unlock(), which does all of that without the lock.
 */
#ifndef MINISENTRY_SENTRY_TTY_INTERNAL_H
#define MINISENTRY_SENTRY_TTY_INTERNAL_H

#include "sentry/tty/tty.h"
#include <asm/termbits.h>
#include <asm/termios.h>

#define INPUT_SIZE 4096 /* N_TTY_BUF_SIZE: also the longest canonical line */
#define FLIP_SIZE 8192	/* typed ahead of the discipline */
#define OUTPUT_SIZE 16384
#define OUTPUT_FOR_WRITES 12288 /* the rest is kept for echo */
#define ECHO_HOLD_SIZE 4096

/* Bytes tail..head of a ring whose size is a power of two; counters run freely. */
struct ring {
	u8 *data;
	u32 size, head, tail;
};
int ring_init(struct ring *r, u32 size);
static inline u32 ring_count(const struct ring *r)
{
	return r->head - r->tail;
}
static inline u32 ring_room(const struct ring *r)
{
	return r->size - ring_count(r);
}
static inline void ring_push(struct ring *r, u8 c)
{
	r->data[r->head++ & (r->size - 1)] = c;
}
static inline u8 ring_pop(struct ring *r)
{
	return r->data[r->tail++ & (r->size - 1)];
}
static inline void ring_clear(struct ring *r)
{
	r->tail = r->head;
}
/* The longest contiguous part, at most max bytes. */
static inline u32 ring_span(const struct ring *r, u8 **ret, u32 max)
{
	u32 at = r->tail & (r->size - 1);

	*ret = r->data + at;
	return MIN(MIN(ring_count(r), r->size - at), max);
}

struct tty {
	struct refs refs;
	struct kernel *kernel; /* immutable */
	int index;	       /* immutable: N of /dev/pts/N */
	struct inode
		*inode; /* lock: the devpts inode, a reference; NULL after the master's close */

	/* tasklist */
	struct session *session;    /* a reference */
	struct process_group *pgrp; /* foreground group, a reference */

	struct mutex lock; /* RANK_PIPE; all below */
	struct ktermios termios;
	struct winsize winsize;

	u8 input[INPUT_SIZE];
	u64 delimiter[INPUT_SIZE / 64]; /* bit: this input byte ends a line */
	u32 in_head, in_tail;		/* free-running */
	u32 canon_head;			/* end of the last complete line */
	bool literal_next;		/* after VLNEXT */
	bool erasing;			/* ECHOPRT: inside "\.../" */
	u32 column, canon_column;	/* output column now, and where the edited line began */
	struct ring flip, output, echo_hold;

	bool stopped;		     /* output stopped by ^S or TCOOFF */
	bool stopped_by_call;	     /* TCOOFF: only TCOON starts it */
	bool master_open;	     /* false: dead for ever */
	bool slave_closed;	     /* the slave was open and its last file went */
	bool locked;		     /* TIOCSPTLCK */
	bool exclusive;		     /* TIOCEXCL */
	bool packet;		     /* TIOCPKT */
	u8 packet_status;	     /* TIOCPKT_* not yet read by the master */
	u32 slave_count;	     /* open, not hung-up slave files */
	u32 generation;		     /* hangups so far: a file of an older one is hung up */
	u32 wake_slave, wake_master; /* EPOLL* to wake at tty_unlock */
	u64 pending_signals;	     /* for the foreground group, at tty_unlock */

	struct ktimer timer;	    /* VTIME: wakes slave readers */
	_Atomic u64 timer_deadline; /* 0: not armed */
	struct waitq slave_waitq, master_waitq;
};

/* file->private of a terminal file. */
struct tty_file {
	struct tty *tty; /* a reference */
	bool master;
	u32 generation;	   /* slave: of the tty at open */
	u64 read_deadline; /* tty->lock: VTIME deadline of the read under way, 0 none */
	u32 read_seen;	   /* tty->lock: bytes that were available then */
};

static inline void tty_lock(struct tty *t)
{
	mutex_lock(&t->lock);
}
/* Unlocks, wakes and sends what was noted. The caller holds no other lock of rank >= TASKLIST. */
void tty_unlock(struct tty *t);

/* ---- pty.c ---- */
int tty_new(struct kernel *k, const struct cred *owner,
	    struct tty **ret); /* master_open set, unlocked */
int tty_slave_open(struct tty *t, struct file *file);
/* The master is gone: hangup, entry removed. */
void tty_master_gone(struct tty *t);
/* The master's side for the host relay: bytes moved, 0 when none can be now. */
u32 tty_master_feed(struct tty *t, const u8 *src, u32 len);
u32 tty_master_take(struct tty *t, u8 *dst, u32 len);
bool tty_slave_hung_up(const struct tty_file *tf); /* lock */

/* ---- ldisc_in.c, ldisc_echo.c; tty->lock held ---- */
void ldisc_process(struct tty *t); /* moves flip into input as far as there is room */
void ldisc_flush_input(struct tty *t);
void ldisc_flush_output(struct tty *t);
void ldisc_termios_changed(struct tty *t, const struct ktermios *old);
void ldisc_start_output(struct tty *t);
void ldisc_stop_output(struct tty *t);
void echo_char(struct tty *t, u8 c);	/* with ^X for controls */
void echo_raw(struct tty *t, u8 c);	/* through OPOST */
void echo_erase(struct tty *t, u8 key); /* VERASE, VWERASE, VKILL */
void echo_finish_erasing(struct tty *t);
void echo_flush(struct tty *t);		 /* echo_hold into output */
void echo_verbatim(struct tty *t, u8 c); /* as it is */
static inline bool tty_utf8_continues(const struct tty *t, u8 c)
{
	return (t->termios.c_iflag & IUTF8) && (c & 0xc0) == 0x80;
}
static inline bool tty_is_control(u8 c)
{
	return c < 0x20 || c == 0x7f;
}

/* ---- ldisc_io.c; tty->lock held ---- */
bool ldisc_delimiter(const struct tty *t, u32 at);
void ldisc_set_delimiter(struct tty *t, u32 at, bool on);
bool ldisc_readable(const struct tty *t, bool for_poll);
u32 ldisc_input_bytes(const struct tty *t); /* FIONREAD */
/* Bytes, 0 at end of file, -EAGAIN. */
ssize_t ldisc_read(struct tty *t, struct tty_file *tf, struct kiov *dst, bool nonblock);
ssize_t ldisc_write(struct tty *t, struct kiov *src);
/* c through OPOST into dst (at most 8 bytes), updating columns; count. */
u32 ldisc_opost(struct tty *t, u8 c, u8 dst[8]);

/* ---- jobctl.c; no lock held ---- */
/* Linux's tty_check_change for the current task: 0, -EIO, -ERESTARTSYS (signal sent). */
int tty_check_change(struct tty *t, int sig);
void tty_signal_foreground(struct tty *t, u64 signals);
/* open(2) by a session leader without a terminal. */
void tty_open_acquire(struct tty *t);
s64 tty_ioctl_set_controlling(struct tty *t, struct file *f, u64 arg);
s64 tty_ioctl_detach(struct tty *t);
s64 tty_ioctl_get_pgrp(struct tty *t, bool master, u64 arg);
s64 tty_ioctl_set_pgrp(struct tty *t, u64 arg);
s64 tty_ioctl_get_sid(struct tty *t, bool master, u64 arg);
/* The session loses the terminal and its leader is told (hangup). */
void tty_hangup_session(struct tty *t);

/* ---- tty_ioctl.c, termios_ioctl.c ---- */
s64 tty_ioctl(struct file *f, u32 cmd, u64 arg);
s64 tty_termios_ioctl(struct tty *t, bool master, u32 cmd, u64 arg); /* -ENOIOCTLCMD: not mine */
void tty_resize(struct tty *t, const struct winsize *ws);
void tty_default_termios(struct ktermios *ret);
#define ENOIOCTLCMD 515

/* ---- devpts.c ---- */
int devpts_add(struct tty *t, const struct cred *owner); /* picks index, makes the inode */
void devpts_remove(struct tty *t);			 /* the name goes */
void devpts_release_index(struct kernel *k, int index);
struct tty *devpts_find(struct kernel *k, int index); /* a reference */

#endif
