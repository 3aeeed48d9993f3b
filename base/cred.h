/*
 * base/cred.h: credentials, immutable and refcounted.
 *
 * A task's credentials are replaced as a whole (copy, change, install), so a
 * reader needs no lock, only a reference. Open files keep a reference to their
 * opener's.
 */
#ifndef MINISENTRY_BASE_CRED_H
#define MINISENTRY_BASE_CRED_H

#include "base/refs.h"

#define CRED_MAX_GROUPS 65536

struct cred {
	struct refs refs;
	u32 uid, euid, suid, fsuid;
	u32 gid, egid, sgid, fsgid;
	u64 cap_permitted, cap_effective, cap_inheritable, cap_bounding, cap_ambient;
	u32 securebits;
	size_t group_count;
	u32 *groups; /* sorted, owned */
};

/* Root's credentials: all capabilities when `caps`, else none. */
struct cred *cred_new(u32 uid, u32 gid, u64 caps);
struct cred *cred_dup(const struct cred *c); /* for change before it is published */
struct cred *cred_get(const struct cred *c);
void cred_put(const struct cred *c);
/* Replaces the supplementary groups (copied and sorted). 0 or -ENOMEM. */
int cred_set_groups(struct cred *c, const u32 *groups, size_t count);

/* cap is CAP_* from linux/capability.h; effective set. */
bool cred_capable(const struct cred *c, int cap);
/* gid is the fsgid or a supplementary group. */
bool cred_in_group(const struct cred *c, u32 gid);
bool cred_in_egroup(const struct cred *c, u32 gid); /* egid or supplementary */

#endif
