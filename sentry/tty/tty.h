/*
 * sentry/tty/tty.h: terminals: pseudo terminal pairs, controlling terminals, job control.
 *
 * Every terminal is a pty: a *slave* with the N_TTY line discipline (/dev/pts/N)
 * and a *master* (an open of /dev/ptmx, or the host terminal relay, host_tty.h).
 * Bytes written to the master wait in `flip`, pass through the discipline into
 * `input`, and are read from the slave; bytes written to the slave are
 * post-processed into `output` and read from the master.
 *
 * A session has at most one controlling terminal (session->tty, a reference) and
 * a terminal controls at most one session (tty->session, a reference); both, and
 * tty->pgrp, change only under kernel->tasklist_lock.
 *
 * Locks: tasklist_lock > tty->lock (RANK_PIPE). Signals are never sent with
 * tty->lock held: the discipline records them and tty_flush_signals() sends them
 * after the unlock.
 *
 * Who calls what: sentry/task calls tty_session_leader_exit() when a session's
 * leader dies and tty_setsid() when a process starts a session; sentry/dev
 * registers the devices by tty_register_devices(); boot creates the devpts
 * superblock by devpts_new().
 */
#ifndef MINISENTRY_SENTRY_TTY_TTY_H
#define MINISENTRY_SENTRY_TTY_TTY_H

#include "sentry/kernel/kernel.h"
#include "vfs/file.h"

#define TTY_AUX_MAJOR 5 /* 0: /dev/tty, 1: /dev/console, 2: /dev/ptmx */
#define TTY_MASTER_MAJOR 128
#define TTY_SLAVE_MAJOR 136 /* minor: pty index */
#define TTY_PTY_LIMIT 4096  /* terminals alive at once, as /proc/sys/kernel/pty/max */

struct tty;

struct tty *tty_get(struct tty *tty);
void tty_put(struct tty *tty); /* NULL is fine; not under tty->lock */

/* ---- the task side ---- */

/*
 * A session leader's thread group dies (its last task is exiting): the foreground
 * group gets SIGHUP (after a hangup: the old one, and SIGCONT), the terminal leaves the session.
 * Holds no lock.
 */
void tty_session_leader_exit(struct kernel *k, struct thread_group *tg);
/* tg has just become the leader of a new session (setsid): it has no controlling
 * terminal. Callable with or without the tasklist lock; tg is the caller's own. */
void tty_setsid(struct thread_group *tg);
/* A session is being freed (last reference): drops what it holds of ttys. No lock needed. */
void tty_session_free(struct session *s);

/* The controlling terminal of a group, a reference, or NULL. No lock held. */
struct tty *tty_of_group(struct thread_group *tg);
/* For /proc/PID/stat: device number as the kernel encodes it (0: none), and foreground pgid (-1).
 */
void tty_proc_numbers(struct thread_group *tg, u32 *ret_tty_nr, int *ret_tpgid);
/* Makes tty the controlling terminal of tg's session with tg's group in the foreground, for boot.
 */
void tty_attach_session(struct tty *tty, struct thread_group *tg);

/* ---- devices ---- */

/* Registers the majors 5, 128 and 136 with the vfs; once, before any open. */
void tty_register_devices(struct kernel *k);
/* The devpts file system (mount at /dev/pts); also stored in k->devpts by the caller. 0 or -ENOMEM.
 */
int devpts_new(struct kernel *k, struct superblock **ret);
/* What /dev/console leads to; NULL: opens of it fail with -ENXIO. Takes a reference. */
void tty_set_console(struct tty *tty);
/* Vhangup of the caller's terminal (vhangup(2)). No lock held. */
void tty_vhangup(struct tty *tty);

/* True for files of terminals (isatty), slave or master. */
bool file_is_tty(struct file *f);
/* Number of terminals alive: /proc/sys/kernel/pty/nr. */
int tty_count(struct kernel *k);

#endif
