#include "tmpfs/internal.h"
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Even "nr_inodes=0" ends here: each costs the sentry about half a KiB. */
#define TMPFS_INODES_HARD_MAX (4UL << 20)

/* ---- accounting: lock-free, never above the limit, never negative ---- */

u64 tmpfs_charge_upto(struct tmpfs_sb *s, u64 n)
{
	u64 limit = s->page_limit, used = s->pages_used, grant;

	do {
		if (!limit)
			grant = n;
		else
			grant = used >= limit ? 0 : MIN(n, limit - used);
		if (!grant)
			return 0;
	} while (!atomic_compare_exchange_weak(&s->pages_used, &used, used + grant));
	return grant;
}

bool tmpfs_charge(struct tmpfs_sb *s, u64 n)
{
	u64 limit = s->page_limit, used = s->pages_used;

	do {
		if (limit && (used > limit || n > limit - used))
			return false;
	} while (!atomic_compare_exchange_weak(&s->pages_used, &used, used + n));
	return true;
}

void tmpfs_uncharge(struct tmpfs_sb *s, u64 n)
{
	s->pages_used -= n;
}

bool tmpfs_charge_inode(struct tmpfs_sb *s)
{
	u64 limit = s->inode_limit, used = s->inodes_used;

	do {
		if (used >= limit)
			return false;
	} while (!atomic_compare_exchange_weak(&s->inodes_used, &used, used + 1));
	return true;
}

void tmpfs_uncharge_inode(struct tmpfs_sb *s)
{
	s->inodes_used--;
}

/* ---- superblock ---- */

static int super_statfs(struct superblock *sb, struct statfs *ret)
{
	struct tmpfs_sb *s = tmpfs_sb(sb);
	u64 limit = s->page_limit, used = s->pages_used;

	memset(ret, 0, sizeof(*ret));
	ret->f_type = TMPFS_MAGIC;
	ret->f_bsize = ret->f_frsize = PAGE_SIZE;
	ret->f_namelen = NAME_MAX;
	ret->f_fsid.__val[0] = (int)sb->dev_minor;
	if (limit) {
		ret->f_blocks = limit;
		ret->f_bfree = ret->f_bavail = limit > used ? limit - used : 0;
	}
	limit = s->inode_limit;
	used = s->inodes_used;
	ret->f_files = limit;
	ret->f_ffree = limit > used ? limit - used : 0;
	return 0;
}

static int super_sync(struct superblock *sb)
{
	return 0;
}

static void super_show_options(struct superblock *sb, char *dst, size_t size)
{
	struct tmpfs_sb *s = tmpfs_sb(sb);
	char *end = dst + size;

	*dst = '\0';
	if (s->page_limit)
		dst += snprintf(dst, size, ",size=%luk", s->page_limit << (PAGE_SHIFT - 10));
	if (s->inode_limit < TMPFS_INODES_HARD_MAX && dst < end)
		dst += snprintf(dst, (size_t)(end - dst), ",nr_inodes=%lu", s->inode_limit);
	if (s->root_mode != 01777 && dst < end)
		dst += snprintf(dst, (size_t)(end - dst), ",mode=%03o", s->root_mode);
	if (s->root_uid && dst < end)
		dst += snprintf(dst, (size_t)(end - dst), ",uid=%u", s->root_uid);
	if (s->root_gid && dst < end)
		snprintf(dst, (size_t)(end - dst), ",gid=%u", s->root_gid);
}

static void super_destroy(struct superblock *sb)
{
	struct tmpfs_sb *s = tmpfs_sb(sb);

	if (s->own_store)
		pgalloc_free(s->store);
	free(s);
}

static const struct superblock_ops super_ops = {
	.statfs = super_statfs,
	.sync = super_sync,
	.destroy = super_destroy,
	.show_options = super_show_options,
};

int tmpfs_new(const struct tmpfs_options *o, struct superblock **ret)
{
	struct tmpfs_sb *s = calloc(1, sizeof(*s));
	struct inode_create how = { .mode = S_IFDIR | (o->mode & 07777),
				    .uid = o->uid,
				    .gid = o->gid };
	u64 size;
	int err;

	if (!s)
		return -ENOMEM;
	if (!page_up(o->size_limit, &size))
		size = page_down(UINT64_MAX);
	superblock_init(&s->sb, &super_ops, "tmpfs", o->source ? o->source : "tmpfs", TMPFS_MAGIC,
			0);
	s->store = o->store;
	s->memory = pgalloc_file(o->store);
	s->large = pgalloc_large(o->store);
	s->acct_id = o->acct_id;
	s->allow_any_xattr = o->allow_any_xattr;
	s->hash_seed = (u32)((uintptr_t)s >> 4) * 0x9e3779b1u ^ (u32)vfs_now().tv_nsec;
	s->root_mode = o->mode & 07777;
	s->root_uid = o->uid;
	s->root_gid = o->gid;
	s->page_limit = size >> PAGE_SHIFT;
	s->inode_limit =
		o->inode_limit ? MIN(o->inode_limit, TMPFS_INODES_HARD_MAX) : TMPFS_INODES_HARD_MAX;
	err = tmpfs_inode_new(s, &how, &s->sb.root);
	if (err < 0) {
		superblock_put(&s->sb);
		return err;
	}
	s->own_store = o->own_store;
	*ret = &s->sb;
	return 0;
}

/* ---- mount options ---- */

/* A number with the suffixes of the kernel's memparse; false when malformed. */
static bool parse_size(const char *text, bool percent_ok, u64 total, u64 *ret)
{
	static const char units[] = "kmgtpe";
	char *end;
	u64 v, shift = 0;
	const char *unit;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoull(text, &end, 0);
	if (errno)
		return false;
	if (*end == '%' && percent_ok && !end[1]) {
		*ret = total / 100 * MIN(v, 100000u);
		return true;
	}
	if (*end && (unit = strchr(units, *end | 0x20))) {
		shift = 10 * (u64)(unit - units + 1);
		end++;
	}
	if (*end || (v << shift) >> shift != v)
		return false;
	*ret = v << shift;
	return true;
}

static bool parse_u32(const char *text, int base, u32 max, u32 *ret)
{
	char *end;
	unsigned long v;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoul(text, &end, base);
	if (errno || *end || v > max)
		return false;
	*ret = (u32)v;
	return true;
}

static bool ignored_option(const char *key)
{
	static const char *const names[] = { "huge",   "mpol",	"inode32", "inode64",
					     "noswap", "quota", "rw",	   "ro" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!strcmp(key, names[i]))
			return true;
	}
	return false;
}

static int parse_option(char *key, u64 total, struct tmpfs_options *io)
{
	char *value = strchr(key, '=');
	u64 n;
	bool ok;

	if (value)
		*value++ = '\0';
	if (ignored_option(key))
		return 0;
	if (!value)
		return -EINVAL;
	if (!strcmp(key, "size")) {
		ok = parse_size(value, true, total, &io->size_limit);
	} else if (!strcmp(key, "nr_blocks")) {
		ok = parse_size(value, false, 0, &n) && n <= UINT64_MAX >> PAGE_SHIFT;
		if (ok)
			io->size_limit = n << PAGE_SHIFT;
	} else if (!strcmp(key, "nr_inodes")) {
		ok = parse_size(value, false, 0, &io->inode_limit);
	} else if (!strcmp(key, "mode")) {
		ok = parse_u32(value, 8, UINT32_MAX, &io->mode);
		io->mode &= 07777;
	} else if (!strcmp(key, "uid")) {
		ok = parse_u32(value, 10, UINT32_MAX - 1, &io->uid);
	} else if (!strcmp(key, "gid")) {
		ok = parse_u32(value, 10, UINT32_MAX - 1, &io->gid);
	} else {
		return -EINVAL;
	}
	return ok ? 0 : -EINVAL;
}

int tmpfs_parse_options(const char *data, u64 total_memory, struct tmpfs_options *io)
{
	char *copy, *save = NULL;
	int err = 0;

	if (!io->size_limit)
		io->size_limit = page_down(total_memory / 2);
	if (!io->inode_limit)
		io->inode_limit = total_memory / 2 / PAGE_SIZE;
	if (!data || !*data)
		return 0;
	copy = strdup(data);
	if (!copy)
		return -ENOMEM;
	for (char *opt = strtok_r(copy, ",", &save); opt && !err; opt = strtok_r(NULL, ",", &save))
		err = parse_option(opt, total_memory, io);
	free(copy);
	return err;
}

int tmpfs_remount(struct superblock *sb, const char *data, u64 total_memory)
{
	struct tmpfs_sb *s = tmpfs_sb(sb);
	struct tmpfs_options o = { .size_limit = s->page_limit << PAGE_SHIFT,
				   .inode_limit = s->inode_limit };
	int err = tmpfs_parse_options(data, total_memory, &o);
	u64 pages = page_up_nofail(o.size_limit) >> PAGE_SHIFT;

	if (err < 0)
		return err;
	if ((pages && s->pages_used > pages) || (o.inode_limit && s->inodes_used > o.inode_limit))
		return -EINVAL;
	s->page_limit = pages;
	s->inode_limit =
		o.inode_limit ? MIN(o.inode_limit, TMPFS_INODES_HARD_MAX) : TMPFS_INODES_HARD_MAX;
	return 0;
}
