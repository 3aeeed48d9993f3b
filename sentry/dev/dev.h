/*
 * sentry/dev/dev.h: character devices, and what /dev contains.
 *
 * The memory devices (null, zero, full, random, urandom, kmsg) are here;
 * terminals are sentry/tty's.
 *
 *	dev_init(kernel);			once, before any device is opened
 *	... mount a tmpfs on /dev ...
 *	dev_populate(&walk_of_root, "/dev");
 *	... mount devpts on /dev/pts, a tmpfs on /dev/shm ...
 */
#ifndef MINISENTRY_SENTRY_DEV_DEV_H
#define MINISENTRY_SENTRY_DEV_DEV_H

#include "sentry/kernel/kernel.h"
#include "vfs/file.h"
#include "vfs/path.h"

#define MEM_MAJOR 1 /* minors: 3 null, 5 zero, 7 full, 8 random, 9 urandom, 11 kmsg */

/* Registers the devices with the vfs. */
void dev_init(struct kernel *k);
/*
 * Makes the nodes (null zero full random urandom tty console ptmx), links (fd stdin stdout stderr
 * core) and directories (pts shm mqueue) in dir, an absolute path of an empty writable directory.
 * w->cred must be root's. 0 or the first error.
 */
int dev_populate(const struct walk_context *w, const char *dir);
/* MAP_PRIVATE of /dev/zero is anonymous memory: true for such a file (mmap treats it so). */
bool file_is_dev_zero(struct file *f);

#endif
