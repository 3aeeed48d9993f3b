/*
 * vfs/listing.h: a limit on what open directories keep.
 *
 * A directory that is read as a whole keeps its names until it is closed, and a
 * guest may hold very many open: together they may keep LISTING_TOTAL_MAX bytes.
 */
#ifndef MINISENTRY_VFS_LISTING_H
#define MINISENTRY_VFS_LISTING_H

#include "base/types.h"

#define LISTING_TOTAL_MAX (256L << 20)

/* Makes what *charged counts `bytes`; false when the total is used up (nothing changed). */
bool listing_charge(size_t *charged, size_t bytes);

#endif
