/*
 * sentry/tty/host_tty.h: the terminal that minisentry runs on, given to the guest.
 *
 * The guest never touches the host terminal. It gets the slave of a pty; the host
 * terminal is put into raw mode, and one relay thread copies bytes between it and
 * the pty's master. Line editing, Ctrl-C, job control and window size are the
 * guest pty's.
 *
 *	fd = host_tty_reopen(0);			before confinement
 *	host_tty_start(kernel, fd, cred, &ht);		before the guest starts
 *	host_tty_open(ht, &walk, O_RDWR, &file);	after /dev/pts is mounted
 *	tty_attach_session(host_tty_tty(ht), init_group);
 *	... host_tty_resize(ht) on SIGWINCH ...
 *	host_tty_stop(ht);			drains output, restores the terminal
 *
 * host_tty_restore() may be called at any time from any context, signal handlers
 * included: it only makes the terminal sane again.
 */
#ifndef MINISENTRY_SENTRY_TTY_HOST_TTY_H
#define MINISENTRY_SENTRY_TTY_HOST_TTY_H

#include "sentry/tty/tty.h"

struct host_tty;

/* Before confinement: an own, non-blocking descriptor of fd's terminal, or fd itself where that is
 * refused. */
int host_tty_reopen(int fd);
/*
 * host_fd is a terminal open for reading and writing (borrowed for the life of the relay).
 * Saves its settings, creates a pty with those settings and the window's size, owned by
 * cred, makes it /dev/console too, and starts the relay thread, which makes the terminal raw. 0,
 * -ENOTTY, -ENOMEM, -EIO.
 */
int host_tty_start(struct kernel *k, int host_fd, const struct cred *cred, struct host_tty **ret);
/* The pty's slave as a file, opened through the guest's /dev/pts/N (so ttyname works). */
int host_tty_open(struct host_tty *ht, const struct walk_context *w, u32 flags, struct file **ret);
struct tty *host_tty_tty(struct host_tty *ht); /* borrowed */
/* The host window changed: new size to the pty, SIGWINCH to its foreground group. Not from a signal
 * handler. */
void host_tty_resize(struct host_tty *ht);
/* The terminal settings of after start may have been lost (SIGCONT after a native stop): raw again.
 */
void host_tty_resume(struct host_tty *ht);
/* Writes out what the guest has printed (bounded wait), stops the thread, restores the terminal,
 * frees. */
void host_tty_stop(struct host_tty *ht);
/* Restores the terminal's settings; async-signal-safe, idempotent. */
void host_tty_restore(void);

#endif
