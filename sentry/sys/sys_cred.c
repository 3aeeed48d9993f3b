/* Users, groups, capabilities (man 7 credentials, capabilities). */
#include "sentry/sys/handlers.h"
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdlib.h>
#include <string.h>

#define ID_NONE ((u32)-1)
/* The capabilities that follow the file system uid (Linux's CAP_FS_SET). */
#define CAPS_FS                                                                                    \
	(1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_DAC_READ_SEARCH |              \
	 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID | 1ULL << CAP_LINUX_IMMUTABLE |                   \
	 1ULL << CAP_MKNOD | 1ULL << CAP_MAC_OVERRIDE)

/* Publishes changed credentials; a process that changes its identity is no longer for others to
 * inspect. */
static s64 commit(struct task *t, struct cred *new)
{
	const struct cred *old = t->cred;

	if (new->euid != old->euid || new->egid != old->egid || new->fsuid != old->fsuid ||
	    new->fsgid != old->fsgid || (new->cap_permitted & ~old->cap_permitted)) {
		mm_set_dumpable(t->mm, 0);
		t->pdeath_signal = 0;
	}
	task_set_cred(t, new);
	return 0;
}

/* What leaving or gaining uid 0 does to the capabilities. */
static void fix_caps_for_uid(const struct cred *old, struct cred *new)
{
	if (new->securebits & SECBIT_NO_SETUID_FIXUP)
		return;
	if ((old->uid == 0 || old->euid == 0 || old->suid == 0) && new->uid != 0 &&
	    new->euid != 0 && new->suid != 0) {
		if (!(new->securebits &SECBIT_KEEP_CAPS))
			new->cap_permitted = new->cap_effective = 0;
		new->cap_ambient = 0;
	}
	if (old->euid == 0 && new->euid != 0)
		new->cap_effective = 0;
	if (old->euid != 0 && new->euid == 0)
		new->cap_effective = new->cap_permitted;
}

s64 sys_getuid(struct task *t, const u64 a[6])
{
	return t->cred->uid;
}

s64 sys_geteuid(struct task *t, const u64 a[6])
{
	return t->cred->euid;
}

s64 sys_getgid(struct task *t, const u64 a[6])
{
	return t->cred->gid;
}

s64 sys_getegid(struct task *t, const u64 a[6])
{
	return t->cred->egid;
}

s64 sys_setuid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 uid = (u32)a[0];
	struct cred *new;

	if (uid == ID_NONE)
		return -EINVAL;
	if (!cred_capable(old, CAP_SETUID) && uid != old->uid && uid != old->suid)
		return -EPERM;
	new = cred_dup(old);
	if (new == NULL)
		return -ENOMEM;
	if (cred_capable(old, CAP_SETUID))
		new->uid = new->suid = uid;
	new->euid = new->fsuid = uid;
	fix_caps_for_uid(old, new);
	return commit(t, new);
}

s64 sys_setgid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 gid = (u32)a[0];
	struct cred *new;

	if (gid == ID_NONE)
		return -EINVAL;
	if (!cred_capable(old, CAP_SETGID) && gid != old->gid && gid != old->sgid)
		return -EPERM;
	new = cred_dup(old);
	if (new == NULL)
		return -ENOMEM;
	if (cred_capable(old, CAP_SETGID))
		new->gid = new->sgid = gid;
	new->egid = new->fsgid = gid;
	return commit(t, new);
}

s64 sys_setreuid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 ruid = (u32)a[0], euid = (u32)a[1];
	bool privileged = cred_capable(old, CAP_SETUID);
	struct cred *new;

	if (!privileged && ruid != ID_NONE && ruid != old->uid && ruid != old->euid)
		return -EPERM;
	if (!privileged && euid != ID_NONE && euid != old->uid && euid != old->euid &&
	    euid != old->suid)
		return -EPERM;
	new = cred_dup(old);
	if (new == NULL)
		return -ENOMEM;
	if (ruid != ID_NONE)
		new->uid = ruid;
	if (euid != ID_NONE)
		new->euid = euid;
	if (ruid != ID_NONE || (euid != ID_NONE && euid != old->uid))
		new->suid = new->euid;
	new->fsuid = new->euid;
	fix_caps_for_uid(old, new);
	return commit(t, new);
}

s64 sys_setregid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 rgid = (u32)a[0], egid = (u32)a[1];
	bool privileged = cred_capable(old, CAP_SETGID);
	struct cred *new;

	if (!privileged && rgid != ID_NONE && rgid != old->gid && rgid != old->egid)
		return -EPERM;
	if (!privileged && egid != ID_NONE && egid != old->gid && egid != old->egid &&
	    egid != old->sgid)
		return -EPERM;
	new = cred_dup(old);
	if (new == NULL)
		return -ENOMEM;
	if (rgid != ID_NONE)
		new->gid = rgid;
	if (egid != ID_NONE)
		new->egid = egid;
	if (rgid != ID_NONE || (egid != ID_NONE && egid != old->gid))
		new->sgid = new->egid;
	new->fsgid = new->egid;
	return commit(t, new);
}

static bool is_one_of(u32 id, u32 a, u32 b, u32 c)
{
	return id == ID_NONE || id == a || id == b || id == c;
}

s64 sys_setresuid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 ids[3] = { (u32)a[0], (u32)a[1], (u32)a[2] };
	struct cred *new;

	if (!cred_capable(old, CAP_SETUID))
		for (size_t i = 0; i < 3; i++)
			if (!is_one_of(ids[i], old->uid, old->euid, old->suid))
				return -EPERM;
	new = cred_dup(old);
	if (new == NULL)
		return -ENOMEM;
	if (ids[0] != ID_NONE)
		new->uid = ids[0];
	if (ids[1] != ID_NONE)
		new->euid = ids[1];
	if (ids[2] != ID_NONE)
		new->suid = ids[2];
	new->fsuid = new->euid;
	fix_caps_for_uid(old, new);
	return commit(t, new);
}

s64 sys_setresgid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 ids[3] = { (u32)a[0], (u32)a[1], (u32)a[2] };
	struct cred *new;

	if (!cred_capable(old, CAP_SETGID))
		for (size_t i = 0; i < 3; i++)
			if (!is_one_of(ids[i], old->gid, old->egid, old->sgid))
				return -EPERM;
	new = cred_dup(old);
	if (new == NULL)
		return -ENOMEM;
	if (ids[0] != ID_NONE)
		new->gid = ids[0];
	if (ids[1] != ID_NONE)
		new->egid = ids[1];
	if (ids[2] != ID_NONE)
		new->sgid = ids[2];
	new->fsgid = new->egid;
	return commit(t, new);
}

static s64 three_out(struct task *t, const u64 a[6], u32 x, u32 y, u32 z)
{
	int r = copy_out(t, ua(a[0]), &x, sizeof(x));

	if (r == 0)
		r = copy_out(t, ua(a[1]), &y, sizeof(y));
	if (r == 0)
		r = copy_out(t, ua(a[2]), &z, sizeof(z));
	return r;
}

s64 sys_getresuid(struct task *t, const u64 a[6])
{
	return three_out(t, a, t->cred->uid, t->cred->euid, t->cred->suid);
}

s64 sys_getresgid(struct task *t, const u64 a[6])
{
	return three_out(t, a, t->cred->gid, t->cred->egid, t->cred->sgid);
}

/* These two return the old id whether they succeed or not. */
s64 sys_setfsuid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 uid = (u32)a[0], before = old->fsuid;
	struct cred *new;

	if (uid == ID_NONE || uid == before ||
	    (!is_one_of(uid, old->uid, old->euid, old->suid) && !cred_capable(old, CAP_SETUID)))
		return before;
	new = cred_dup(old);
	if (new == NULL)
		return before;
	new->fsuid = uid;
	if (!(new->securebits &SECBIT_NO_SETUID_FIXUP)) {
		if (before == 0)
			new->cap_effective &= ~CAPS_FS;
		if (uid == 0)
			new->cap_effective |= new->cap_permitted &CAPS_FS;
	}
	commit(t, new);
	return before;
}

s64 sys_setfsgid(struct task *t, const u64 a[6])
{
	const struct cred *old = t->cred;
	u32 gid = (u32)a[0], before = old->fsgid;
	struct cred *new;

	if (gid == ID_NONE || gid == before ||
	    (!is_one_of(gid, old->gid, old->egid, old->sgid) && !cred_capable(old, CAP_SETGID)))
		return before;
	new = cred_dup(old);
	if (new == NULL)
		return before;
	new->fsgid = gid;
	commit(t, new);
	return before;
}

s64 sys_getgroups(struct task *t, const u64 a[6])
{
	const struct cred *c = t->cred;
	int size = (int)a[0];

	if (size < 0)
		return -EINVAL;
	if (size > 0) {
		if ((size_t)size < c->group_count)
			return -EINVAL;
		if (c->group_count &&
		    copy_out(t, ua(a[1]), c->groups, c->group_count * sizeof(u32)) < 0)
			return -EFAULT;
	}
	return (s64)c->group_count;
}

s64 sys_setgroups(struct task *t, const u64 a[6])
{
	int size = (int)a[0];
	u32 *groups = NULL;
	struct cred *new;
	s64 r = 0;

	if (!cred_capable(t->cred, CAP_SETGID))
		return -EPERM;
	if (size < 0 || size > CRED_MAX_GROUPS)
		return -EINVAL;
	if (size > 0) {
		groups = malloc((size_t)size * sizeof(u32));
		if (groups == NULL)
			return -ENOMEM;
		r = copy_in(t, groups, ua(a[1]), (size_t)size * sizeof(u32));
		for (int i = 0; r == 0 && i < size; i++)
			if (groups[i] == ID_NONE)
				r = -EINVAL;
	}
	new = r == 0 ? cred_dup(t->cred) : NULL;
	if (r == 0 && new == NULL)
		r = -ENOMEM;
	if (r == 0)
		r = cred_set_groups(new, groups, (size_t)size);
	if (r == 0)
		commit(t, new);
	else
		cred_put(new);
	free(groups);
	return r;
}

/* ---- capabilities ---- */

/* The header: *ret_words 32-bit words a set. An unknown version is answered with the newest one. */
static int cap_header_in(struct task *t, uaddr a, struct __user_cap_header_struct *ret,
			 size_t *ret_words)
{
	u32 newest = _LINUX_CAPABILITY_VERSION_3;
	int r = copy_in(t, ret, a, sizeof(*ret));

	if (r < 0)
		return r;
	switch (ret->version) {
	case _LINUX_CAPABILITY_VERSION_1: *ret_words = _LINUX_CAPABILITY_U32S_1; return 0;
	case _LINUX_CAPABILITY_VERSION_2:
	case _LINUX_CAPABILITY_VERSION_3: *ret_words = _LINUX_CAPABILITY_U32S_3; return 0;
	}
	r = copy_out(t, a, &newest, sizeof(newest));
	return r < 0 ? r : -EINVAL;
}

s64 sys_capget(struct task *t, const u64 a[6])
{
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct __user_cap_header_struct h;
	const struct cred *c;
	struct task *target;
	size_t words;
	int r = cap_header_in(t, ua(a[0]), &h, &words);

	if (r < 0)
		return r == -EINVAL && a[1] == 0 ? 0 : r;
	if (h.pid < 0)
		return -EINVAL;
	target = h.pid == 0 ? task_get(t) : task_find(t->kernel, h.pid);
	if (target == NULL)
		return -ESRCH;
	c = task_get_cred(target);
	task_put(target);
	for (size_t i = 0; i < ARRAY_SIZE(data); i++) {
		data[i].effective = (u32)(c->cap_effective >> (32 * i));
		data[i].permitted = (u32)(c->cap_permitted >> (32 * i));
		data[i].inheritable = (u32)(c->cap_inheritable >> (32 * i));
	}
	cred_put(c);
	return a[1] ? copy_out(t, ua(a[1]), data, words * sizeof(data[0])) : 0;
}

s64 sys_capset(struct task *t, const u64 a[6])
{
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };
	const u64 all = (1ULL << (CAP_LAST_CAP + 1)) - 1;
	struct __user_cap_header_struct h;
	const struct cred *old = t->cred;
	u64 e, p, i;
	struct cred *new;
	size_t words;
	int r = cap_header_in(t, ua(a[0]), &h, &words);

	if (r < 0)
		return r;
	if (h.pid != 0 && h.pid != t->tid)
		return -EPERM;
	r = copy_in(t, data, ua(a[1]), words * sizeof(data[0]));
	if (r < 0)
		return r;
	e = (data[0].effective | (u64)data[1].effective << 32) & all;
	p = (data[0].permitted | (u64)data[1].permitted << 32) & all;
	i = (data[0].inheritable | (u64)data[1].inheritable << 32) & all;
	if (!cred_capable(old, CAP_SETPCAP) && (i & ~(old->cap_inheritable | old->cap_permitted)))
		return -EPERM;
	if ((i & ~(old->cap_inheritable | old->cap_bounding)) || (p & ~old->cap_permitted) ||
	    (e & ~p))
		return -EPERM;
	new = cred_dup(old);
	if (new == NULL)
		return -ENOMEM;
	new->cap_effective = e;
	new->cap_permitted = p;
	new->cap_inheritable = i;
	new->cap_ambient &= p &i;
	return commit(t, new);
}
