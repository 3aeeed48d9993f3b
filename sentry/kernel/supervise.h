/*
 * sentry/kernel/supervise.h: the sentry's main thread while guests run.
 *
 * It waits for signals from outside, which it forwards to the guest, and for
 * the first program's end.
 */
#ifndef MINISENTRY_SENTRY_KERNEL_SUPERVISE_H
#define MINISENTRY_SENTRY_KERNEL_SUPERVISE_H

#include "sentry/kernel/kernel.h"

struct host_tty;

/* Blocks the forwarded signals in this thread and all that it will create. First thing in the
 * sentry. */
void supervise_block_signals(void);
/* Returns the first program's wait status. tty may be NULL. */
int supervise(struct kernel *k, struct host_tty *tty);

#endif
