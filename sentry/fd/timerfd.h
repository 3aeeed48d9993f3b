/* sentry/fd/timerfd.h: timers as files (timerfd_create(2)). */
#ifndef MINISENTRY_SENTRY_FD_TIMERFD_H
#define MINISENTRY_SENTRY_FD_TIMERFD_H

#include "vfs/file.h"
#include <time.h>

struct kernel;

/* clock: CLOCK_REALTIME, MONOTONIC, BOOTTIME or an _ALARM kind (permission is the caller's matter).
 */
int timerfd_new(struct kernel *k, const struct cred *cred, int clock, u32 flags, struct file **ret);
bool file_is_timerfd(struct file *f);
/* flags: TFD_TIMER_*; times are valid (tv_nsec in range, not negative). */
void timerfd_set(struct file *f, int flags, const struct itimerspec *value,
		 struct itimerspec *ret_old);
void timerfd_get(struct file *f, struct itimerspec *ret);

#endif
