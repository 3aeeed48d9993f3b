/* Landlock: the sentry keeps only the trees it was given, whatever its code does later. */
#include "sentry/confine/confine.h"
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_RIGHTS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FILE_RIGHTS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | (1ULL << 14))

static u64 all_rights(int abi)
{
	u64 rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1; /* ABI 1 */

	if (abi >= 2)
		rights |= 1ULL << 13; /* REFER */
	if (abi >= 3)
		rights |= 1ULL << 14; /* TRUNCATE */
	if (abi >= 5)
		rights |= 1ULL << 15; /* IOCTL_DEV */
	return rights;
}

int confine_landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? -errno : (int)abi;
}

static int add_path(int ruleset, const struct confine_path *p, u64 handled)
{
	struct landlock_path_beneath_attr rule = { .parent_fd = p->fd };
	struct stat st;

	rule.allowed_access = p->write ? handled & ~LANDLOCK_ACCESS_FS_EXECUTE : READ_RIGHTS;
	rule.allowed_access &= ~(LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK);
	if (fstat(p->fd, &st) == 0 && !S_ISDIR(st.st_mode))
		rule.allowed_access &= FILE_RIGHTS & handled;
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return -errno;
	return 0;
}

int confine_landlock(const struct confine_path *paths, size_t count, struct confine_state *state)
{
	int abi = confine_landlock_abi(), ret = 0;
	u64 handled;
	long ruleset;

	if (abi < 0) {
		snprintf(state->landlock_reason, sizeof(state->landlock_reason),
			 "landlock_create_ruleset: %s", strerror(-abi));
		return abi;
	}
	handled = all_rights(abi);
	struct landlock_ruleset_attr attr = { .handled_access_fs = handled };
	ruleset = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);
	if (ruleset < 0)
		ret = -errno;
	for (size_t i = 0; ret == 0 && i < count; i++)
		ret = add_path((int)ruleset, &paths[i], handled);
	if (ret == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
			 syscall(SYS_landlock_restrict_self, ruleset, 0) < 0))
		ret = -errno;
	if (ruleset >= 0)
		close((int)ruleset);
	if (ret < 0) {
		snprintf(state->landlock_reason, sizeof(state->landlock_reason), "landlock: %s",
			 strerror(-ret));
		return ret;
	}
	state->landlock = true;
	state->landlock_abi = abi;
	return 0;
}
