#include "sentry/confine/confine.h"
#include <linux/securebits.h>
#include <sys/capability.h>
#include <sys/prctl.h>

int confine_drop_caps(struct confine_state *state)
{
	cap_t none;
	int ret = 0;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	/* With no_new_privs the bounding set cannot be used any more; dropping it is for tidiness
	 * and needs CAP_SETPCAP, so a refusal is fine. */
	for (cap_value_t cap = 0; cap <= CAP_LAST_CAP; cap++)
		(void)cap_drop_bound(cap);
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	none = cap_init();
	if (!none)
		return -ENOMEM;
	if (cap_set_proc(none) < 0)
		ret = -errno;
	cap_free(none);
	if (ret == 0)
		state->caps_dropped = true;
	return ret;
}
