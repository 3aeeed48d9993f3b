/*
 * sentry/sys/guest_version.h: which Linux the guest believes to run on: uname,
 * /proc/version, /proc/sys/kernel.
 */
#ifndef MINISENTRY_SENTRY_SYS_GUEST_VERSION_H
#define MINISENTRY_SENTRY_SYS_GUEST_VERSION_H

#define GUEST_SYSNAME "Linux"
#define GUEST_RELEASE "6.12.0-minisentry"
#define GUEST_VERSION "#1 SMP PREEMPT_DYNAMIC minisentry"
#define GUEST_MACHINE "x86_64"

#endif
