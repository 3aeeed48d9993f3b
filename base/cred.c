#include "base/cred.h"
#include "base/sort.h"
#include <stdlib.h>
#include <string.h>

#define CAP_ALL ((1ULL << 41) - 1)

struct cred *cred_new(u32 uid, u32 gid, u64 caps)
{
	struct cred *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	refs_init(&c->refs, "cred");
	c->uid = c->euid = c->suid = c->fsuid = uid;
	c->gid = c->egid = c->sgid = c->fsgid = gid;
	c->cap_permitted = c->cap_effective = caps;
	c->cap_bounding = CAP_ALL;
	return c;
}

struct cred *cred_dup(const struct cred *from)
{
	struct cred *c = malloc(sizeof(*c));

	if (!c)
		return NULL;
	/* all but the count, which others change meanwhile */
	memcpy((char *)c + sizeof(c->refs), (const char *)from + sizeof(c->refs),
	       sizeof(*c) - sizeof(c->refs));
	refs_init(&c->refs, "cred");
	c->groups = NULL;
	c->group_count = 0;
	if (cred_set_groups(c, from->groups, from->group_count) < 0) {
		cred_put(c);
		return NULL;
	}
	return c;
}

struct cred *cred_get(const struct cred *c)
{
	struct cred *m = (struct cred *)c;

	refs_get(&m->refs);
	return m;
}

void cred_put(const struct cred *c)
{
	struct cred *m = (struct cred *)c;

	if (m && refs_put(&m->refs)) {
		free(m->groups);
		free(m);
	}
}

static int compare_gid(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return (x > y) - (x < y);
}

int cred_set_groups(struct cred *c, const u32 *groups, size_t count)
{
	u32 *copy = NULL;

	if (count) {
		copy = malloc(count * sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		memcpy(copy, groups, count * sizeof(*copy));
		sort(copy, count, sizeof(*copy), compare_gid);
	}
	free(c->groups);
	c->groups = copy;
	c->group_count = count;
	return 0;
}

bool cred_capable(const struct cred *c, int cap)
{
	return c->cap_effective & (1ULL << cap);
}

static bool in_supplementary(const struct cred *c, u32 gid)
{
	return c->group_count &&
	       bsearch(&gid, c->groups, c->group_count, sizeof(gid), compare_gid) != NULL;
}

bool cred_in_group(const struct cred *c, u32 gid)
{
	return c->fsgid == gid || in_supplementary(c, gid);
}

bool cred_in_egroup(const struct cred *c, u32 gid)
{
	return c->egid == gid || in_supplementary(c, gid);
}
