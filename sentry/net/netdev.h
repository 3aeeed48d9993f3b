/* sentry/net/netdev.h: the one network interface, lo, as ioctls (SIOCGIFCONF & co.) show it. */
#ifndef MINISENTRY_SENTRY_NET_NETDEV_H
#define MINISENTRY_SENTRY_NET_NETDEV_H

#include "sentry/task/task.h"

#define NETDEV_LO_INDEX 1
#define NETDEV_LO_MTU 65536

/* -ENOTTY for what is not an interface ioctl. */
s64 netdev_ioctl(struct task *t, u32 cmd, uaddr arg);

#endif
