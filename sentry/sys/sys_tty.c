/* System calls on terminals that are not ioctls. */
#include "sentry/sys/handlers.h"
#include "sentry/tty/tty.h"
#include <linux/capability.h>

s64 sys_vhangup(struct task *t, const u64 a[6])
{
	struct tty *tty;

	if (!cred_capable(t->cred, CAP_SYS_TTY_CONFIG))
		return -EPERM;
	tty = tty_of_group(t->tg);
	if (tty)
		tty_vhangup(tty);
	tty_put(tty);
	return 0;
}
