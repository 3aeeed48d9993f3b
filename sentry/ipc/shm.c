#include "sentry/ipc/shm.h"
#include "sentry/task/task.h"
#include "tmpfs/tmpfs.h"

#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/shm.h>

/* Linux's SHM_DEST and SHM_LOCKED bits of shm_perm.mode. */
#define MODE_DEST 01000
#define MODE_LOCKED 02000
#define SHM_ID_STEP 32768
/* Where shmget's flags name the logarithm of a huge page's size. */
#define HUGE_SHIFT 26
#define HUGE_MASK 0x3fu

struct shm_segment {
	struct mappable mappable; /* what vmas see */
	struct refs refs;
	struct shm_table *table; /* immutable */
	struct mappable *memory; /* immutable: tmpfs's, a reference */
	u64 size;		 /* immutable */
	int id, key;		 /* key becomes IPC_PRIVATE by IPC_RMID; protected by table->lock */
	/* protected by table->lock */
	u32 uid, gid, cuid, cgid, mode;
	u32 locker; /* whose memory it counts as, with MODE_LOCKED */
	int cpid, lpid;
	time_t atime, dtime, ctime;
	u64 nattch;
	bool listed; /* the table holds a reference */
};

struct shm_table {
	struct mutex lock; /* RANK_LEAF */
	struct shm_segment *slots[SHM_SEGMENTS_MAX];
	u32 sequence; /* makes ids of reused slots differ */
	size_t count;
	u64 pages;
	u64 most_pages; /* immutable */
};

static time_t now(void)
{
	return vfs_now().tv_sec;
}

/* ---- the mappable ---- */

static struct shm_segment *to_segment(struct mappable *m)
{
	return container_of(m, struct shm_segment, mappable);
}

static void map_get(struct mappable *m)
{
	refs_get(&to_segment(m)->refs);
}

static void map_put(struct mappable *m)
{
	shm_put(to_segment(m));
}

static int map_translate(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
			 bool for_write, struct translation *ret)
{
	struct mappable *memory = to_segment(m)->memory;

	return memory->ops->translate(memory, offset, want_start, want_end, for_write, ret);
}

static bool map_resident(struct mappable *m, u64 start, u64 end, u8 *vec)
{
	struct mappable *memory = to_segment(m)->memory;

	return memory->ops->resident(memory, start, end, vec);
}

static u64 pages_of(const struct shm_segment *s)
{
	return page_up_nofail(s->size) >> PAGE_SHIFT;
}

/* A vma came or went, by whatever call; who has made it counts as the last to attach or detach. */
static void touched_locked(struct shm_segment *s, time_t *at)
{
	mutex_assert_held(&s->table->lock);
	*at = now();
	if (current_task)
		s->lpid = current_task->tg->tgid;
}

static int map_add(struct mappable *m, struct mapping *mapping)
{
	struct shm_segment *s = to_segment(m);
	int err = s->memory->ops->add(s->memory, mapping);

	if (err < 0)
		return err;
	mutex_lock(&s->table->lock);
	s->nattch++;
	touched_locked(s, &s->atime);
	mutex_unlock(&s->table->lock);
	return 0;
}

/* Further vmas of what add has counted; they go before it does. */
static void map_count(struct mappable *m, int delta)
{
	struct shm_segment *s = to_segment(m);

	mutex_lock(&s->table->lock);
	s->nattch += (u64)delta;
	touched_locked(s, delta > 0 ? &s->atime : &s->dtime);
	mutex_unlock(&s->table->lock);
}

/* Takes a segment that is destroyed and unused off the table; true: drop the table's reference. */
static bool unlist_locked(struct shm_segment *s)
{
	struct shm_table *t = s->table;

	mutex_assert_held(&t->lock);
	if (!s->listed || s->nattch || !(s->mode & MODE_DEST))
		return false;
	s->listed = false;
	t->slots[s->id % SHM_ID_STEP] = NULL;
	t->count--;
	t->pages -= pages_of(s);
	return true;
}

static void map_remove(struct mappable *m, struct mapping *mapping)
{
	struct shm_segment *s = to_segment(m);
	bool gone;

	s->memory->ops->remove(s->memory, mapping);
	mutex_lock(&s->table->lock);
	s->nattch--;
	touched_locked(s, &s->dtime);
	gone = unlist_locked(s);
	mutex_unlock(&s->table->lock);
	if (gone)
		shm_put(s);
}

static int map_punch(struct mappable *m, u64 start, u64 end)
{
	struct mappable *memory = to_segment(m)->memory;

	return memory->ops->punch(memory, start, end);
}

static void map_identify(struct mappable *m, u32 *ret_dev_major, u32 *ret_dev_minor, u64 *ret_ino)
{
	struct shm_segment *s = to_segment(m);

	s->memory->ops->identify(s->memory, ret_dev_major, ret_dev_minor, ret_ino);
	*ret_ino = (u64)s->id;
}

static const struct mappable_ops shm_mappable_ops = {
	.get = map_get,
	.put = map_put,
	.translate = map_translate,
	.resident = map_resident,
	.add = map_add,
	.remove = map_remove,
	.count = map_count,
	.punch = map_punch,
	.identify = map_identify,
};

/* ---- the table ---- */

struct shm_table *shm_table_new(u64 most_pages)
{
	struct shm_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	mutex_init(&t->lock, RANK_LEAF, "shm_table");
	t->most_pages = most_pages;
	return t;
}

void shm_table_free(struct shm_table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < SHM_SEGMENTS_MAX; i++) {
		if (t->slots[i])
			shm_put(t->slots[i]);
	}
	mutex_destroy(&t->lock);
	free(t);
}

void shm_put(struct shm_segment *s)
{
	if (!s || !refs_put(&s->refs))
		return;
	s->memory->ops->put(s->memory);
	free(s);
}

struct mappable *shm_mappable(struct shm_segment *s)
{
	return &s->mappable;
}

u64 shm_size(const struct shm_segment *s)
{
	return s->size;
}

int shm_key(const struct shm_segment *s)
{
	return s->key;
}

/* ipcperms: want is in the "other" bits (4 read, 2 write, 1 execute). */
static int check_perm_locked(const struct shm_segment *s, const struct cred *cred, u32 want)
{
	u32 mode = s->mode;

	if (cred->euid == s->uid || cred->euid == s->cuid)
		mode >>= 6;
	else if (cred_in_group(cred, s->gid) || cred_in_group(cred, s->cgid))
		mode >>= 3;
	return !(want & ~mode & 7) || cred_capable(cred, CAP_IPC_OWNER) ? 0 : -EACCES;
}

static struct shm_segment *by_id_locked(struct shm_table *t, int id)
{
	struct shm_segment *s =
		id < 0 || id % SHM_ID_STEP >= SHM_SEGMENTS_MAX ? NULL : t->slots[id % SHM_ID_STEP];

	return s && s->id == id ? s : NULL;
}

/* -EINVAL, or -EPERM for who neither owns it, nor made it, nor has cap. */
static int own_locked(struct shm_table *t, int id, const struct cred *cred, int cap,
		      struct shm_segment **ret)
{
	struct shm_segment *s = by_id_locked(t, id);

	if (!s)
		return -EINVAL;
	if (cred->euid != s->uid && cred->euid != s->cuid && !cred_capable(cred, cap))
		return -EPERM;
	*ret = s;
	return 0;
}

static struct shm_segment *by_key_locked(struct shm_table *t, int key)
{
	for (size_t i = 0; key != IPC_PRIVATE && i < SHM_SEGMENTS_MAX; i++) {
		if (t->slots[i] && t->slots[i]->key == key)
			return t->slots[i];
	}
	return NULL;
}

/* shmget of a key that exists. */
static int existing_locked(struct shm_segment *s, u64 size, int flags, const struct cred *cred)
{
	int err;

	if ((flags & IPC_CREAT) && (flags & IPC_EXCL))
		return -EEXIST;
	if (size > s->size)
		return -EINVAL;
	err = check_perm_locked(s, cred, ((u32)flags >> 6 | (u32)flags >> 3 | (u32)flags) & 7);
	return err < 0 ? err : s->id;
}

static int insert_locked(struct shm_table *t, struct shm_segment *s)
{
	if (t->pages + pages_of(s) > t->most_pages)
		return -ENOSPC;
	for (int i = 0; i < SHM_SEGMENTS_MAX; i++) {
		if (t->slots[i])
			continue;
		t->slots[i] = s;
		s->id = (int)(t->sequence++ % (INT32_MAX / SHM_ID_STEP)) * SHM_ID_STEP + i;
		s->listed = true;
		t->count++;
		t->pages += pages_of(s);
		return s->id;
	}
	return -ENOSPC;
}

static int segment_new(struct shm_table *t, struct superblock *memory, int key, u64 size, int flags,
		       const struct cred *cred, struct shm_segment **ret)
{
	u32 huge = (u32)flags >> HUGE_SHIFT & HUGE_MASK;
	struct shm_segment *s;
	u64 bytes;
	int err;

	if (!size || size > INT64_MAX || !page_up(size, &bytes))
		return -EINVAL;
	if (flags & SHM_HUGETLB) /* there are no huge pages, of whatever size */
		return huge && huge != 21 && huge != 30 ? -EINVAL : -ENOMEM;
	if (bytes >> PAGE_SHIFT > t->most_pages)
		return -ENOMEM;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	err = shmem_new(memory,
			&(struct shmem_opts){ .len = bytes,
					      .reserve = !(flags & SHM_NORESERVE),
					      .admin = cred_capable(cred, CAP_SYS_ADMIN) },
			&s->memory);
	if (err < 0) {
		free(s);
		return err;
	}
	refs_init(&s->refs, "shm_segment");
	s->mappable.ops = &shm_mappable_ops;
	s->table = t;
	s->size = size;
	s->key = key;
	s->uid = s->cuid = cred->euid;
	s->gid = s->cgid = cred->egid;
	s->mode = (u32)flags & 0777;
	s->cpid = current_task->tg->tgid;
	s->ctime = now();
	*ret = s;
	return 0;
}

int shm_get(struct shm_table *t, struct superblock *memory, int key, u64 size, int flags,
	    const struct cred *cred)
{
	struct shm_segment *s = NULL, *old;
	int r;

	mutex_lock(&t->lock);
	old = by_key_locked(t, key);
	if (old)
		r = existing_locked(old, size, flags, cred);
	else
		r = key == IPC_PRIVATE || (flags & IPC_CREAT) ? 0 : -ENOENT;
	mutex_unlock(&t->lock);
	if (old || r < 0)
		return r;

	/* Made without the lock; dropped when the key has come meanwhile. */
	r = segment_new(t, memory, key, size, flags, cred, &s);
	if (r < 0)
		return r;
	mutex_lock(&t->lock);
	old = by_key_locked(t, key);
	r = old ? existing_locked(old, size, flags, cred) : insert_locked(t, s);
	if (r >= 0 && !old)
		s = NULL;
	mutex_unlock(&t->lock);
	shm_put(s);
	return r;
}

int shm_find(struct shm_table *t, int id, const struct cred *cred, u32 want,
	     struct shm_segment **ret)
{
	struct shm_segment *s;
	int err = -EINVAL;

	mutex_lock(&t->lock);
	s = by_id_locked(t, id);
	if (s)
		err = check_perm_locked(s, cred, want);
	if (!err) {
		refs_get(&s->refs);
		*ret = s;
	}
	mutex_unlock(&t->lock);
	return err;
}

/* ---- control ---- */

int shm_remove(struct shm_table *t, int id, const struct cred *cred)
{
	struct shm_segment *s;
	bool gone = false;
	int err;

	mutex_lock(&t->lock);
	err = own_locked(t, id, cred, CAP_SYS_ADMIN, &s);
	if (!err) {
		s->mode |= MODE_DEST;
		s->key = IPC_PRIVATE;
		gone = unlist_locked(s);
	}
	mutex_unlock(&t->lock);
	if (gone)
		shm_put(s);
	return err;
}

int shm_set(struct shm_table *t, int id, const struct cred *cred, const struct shmid_ds *ds)
{
	struct shm_segment *s;
	int err;

	mutex_lock(&t->lock);
	err = own_locked(t, id, cred, CAP_SYS_ADMIN, &s);
	if (!err && (ds->shm_perm.uid == UINT32_MAX || ds->shm_perm.gid == UINT32_MAX))
		err = -EINVAL;
	if (!err) {
		s->uid = ds->shm_perm.uid;
		s->gid = ds->shm_perm.gid;
		s->mode = (s->mode & ~0777u) | (ds->shm_perm.mode & 0777);
		s->ctime = now();
	}
	mutex_unlock(&t->lock);
	return err;
}

static void fill_stat_locked(const struct shm_segment *s, struct shmid_ds *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->shm_perm.__key = s->key;
	ret->shm_perm.uid = s->uid;
	ret->shm_perm.gid = s->gid;
	ret->shm_perm.cuid = s->cuid;
	ret->shm_perm.cgid = s->cgid;
	ret->shm_perm.mode = (unsigned short)s->mode;
	ret->shm_perm.__seq = (unsigned short)(s->id / SHM_ID_STEP);
	ret->shm_segsz = s->size;
	ret->shm_atime = s->atime;
	ret->shm_dtime = s->dtime;
	ret->shm_ctime = s->ctime;
	ret->shm_cpid = s->cpid;
	ret->shm_lpid = s->lpid;
	ret->shm_nattch = s->nattch;
}

int shm_stat(struct shm_table *t, int id, bool by_index, bool any, const struct cred *cred,
	     struct shmid_ds *ret)
{
	struct shm_segment *s;
	int err = -EINVAL;

	mutex_lock(&t->lock);
	/* Linux takes an id for its index, too. */
	if (by_index && id >= 0 && id % SHM_ID_STEP < SHM_SEGMENTS_MAX)
		s = t->slots[id % SHM_ID_STEP];
	else
		s = by_index ? NULL : by_id_locked(t, id);
	if (s)
		err = any ? 0 : check_perm_locked(s, cred, 4);
	if (!err) {
		fill_stat_locked(s, ret);
		err = by_index ? s->id : 0;
	}
	mutex_unlock(&t->lock);
	return err;
}

int shm_at(struct shm_table *t, int index, struct shmid_ds *ret, u64 *ret_resident)
{
	struct shm_segment *s;
	int id = -EINVAL;

	mutex_lock(&t->lock);
	s = t->slots[index];
	if (s) {
		fill_stat_locked(s, ret);
		*ret_resident = shmem_allocated(s->memory);
		id = s->id;
	}
	mutex_unlock(&t->lock);
	return id;
}

/* What segments that uid has locked add up to. */
static u64 locked_pages_locked(const struct shm_table *t, u32 uid)
{
	u64 pages = 0;

	for (int i = 0; i < SHM_SEGMENTS_MAX; i++) {
		const struct shm_segment *s = t->slots[i];

		if (s && (s->mode & MODE_LOCKED) && s->locker == uid)
			pages += pages_of(s);
	}
	return pages;
}

int shm_lock(struct shm_table *t, int id, const struct cred *cred, u64 limit)
{
	bool capable = cred_capable(cred, CAP_IPC_LOCK);
	struct shm_segment *s;
	int err;

	mutex_lock(&t->lock);
	err = own_locked(t, id, cred, CAP_IPC_LOCK, &s);
	if (!err && !capable && !limit)
		err = -EPERM;
	if (!err && !(s->mode & MODE_LOCKED)) {
		if (!capable && limit != RLIM_INFINITY &&
		    locked_pages_locked(t, cred->uid) + pages_of(s) > limit >> PAGE_SHIFT) {
			err = -ENOMEM;
		} else {
			s->mode |= MODE_LOCKED;
			s->locker = cred->uid;
		}
	}
	mutex_unlock(&t->lock);
	return err;
}

int shm_unlock(struct shm_table *t, int id, const struct cred *cred)
{
	struct shm_segment *s;
	int err;

	mutex_lock(&t->lock);
	err = own_locked(t, id, cred, CAP_IPC_LOCK, &s);
	if (!err)
		s->mode &= ~(u32)MODE_LOCKED;
	mutex_unlock(&t->lock);
	return err;
}

int shm_totals(struct shm_table *t, struct shm_info *ret)
{
	int highest = 0;

	memset(ret, 0, sizeof(*ret));
	mutex_lock(&t->lock);
	ret->used_ids = (int)t->count;
	ret->shm_tot = t->pages;
	for (int i = 0; i < SHM_SEGMENTS_MAX; i++) {
		if (!t->slots[i])
			continue;
		highest = i;
		ret->shm_rss += shmem_allocated(t->slots[i]->memory) >> PAGE_SHIFT;
	}
	mutex_unlock(&t->lock);
	return highest;
}
