/*
 * pgalloc/promise.h: how much memory has been promised, and whether more may be.
 *
 * What may be written one day counts from when it is mapped or created: private writable
 * mappings and shared memory by their size, files in memory by their pages. Linux's
 * vm_committed_as, shown as Committed_AS, and its __vm_enough_memory (mm/util.c) with the three
 * modes of /proc/sys/vm/overcommit_memory (Documentation/mm/overcommit-accounting.rst). It says
 * nothing of what is really used: that is pgalloc's own limit.
 *
 * No locks.
 */
#ifndef MINISENTRY_PGALLOC_PROMISE_H
#define MINISENTRY_PGALLOC_PROMISE_H

#include "base/types.h"

enum promise_mode {
	PROMISE_GUESS,	/* refuse what could never be */
	PROMISE_ALWAYS, /* refuse nothing */
	PROMISE_NEVER,	/* refuse what is beyond promise_limit */
};

/* Kept for the administrator and for a user's way out in mode PROMISE_NEVER; bytes. */
#define PROMISE_ADMIN_RESERVE (8UL << 20)
#define PROMISE_USER_RESERVE (128UL << 20)

struct promise {
	u64 total; /* immutable: the guest's memory, bytes */
	_Atomic u64 bytes;
	_Atomic u32 mode;   /* enum promise_mode */
	_Atomic u32 ratio;  /* per cent of total; unless kbytes is set */
	_Atomic u64 kbytes; /* 0: ratio says it */
};

void promise_init(struct promise *p, u64 total);
/* CommitLimit, bytes. */
u64 promise_limit(const struct promise *p);
/*
 * Takes that many bytes for an address space that has `space` bytes mapped (0: for none). admin:
 * CAP_SYS_ADMIN, which may use the reserve. 0; -ENOMEM, and nothing is taken.
 */
int promise_take(struct promise *p, u64 bytes, u64 space, bool admin);
/* Takes without asking, or gives back (bytes < 0). */
void promise_add(struct promise *p, s64 bytes);

#endif
