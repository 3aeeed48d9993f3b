/*
 * Descriptor tables: see fdtable.h.
 *
 * `used` has a bit for every slot that is open or reserved, `cloexec` one for
 * FD_CLOEXEC; a reserved slot is used without a file. Files are closed after
 * the lock is released.
 *
 * Lookups take no lock: a slot's file may be gone by the time it is read, but
 * its memory is still a file's (vfs/file.h), so a reference counts once the slot
 * is seen unchanged with it held. A table that grew keeps its smaller arrays,
 * for somebody may be reading there.
 */
#include "sentry/fd/fdtable.h"

#include "base/log.h"
#include "vfs/locks.h"

#include <stdlib.h>
#include <string.h>

#define FD_TABLE_MIN 64U
#define CLOSE_BATCH 32

struct slots {
	struct slots *smaller; /* what the table had before */
	u32 capacity;	       /* a multiple of 64 */
	_Atomic(struct file *) files[];
};

struct fd_table {
	struct refs refs;
	struct mutex lock;	       /* RANK_FD_TABLE; to write slots, and for the rest */
	_Atomic(struct slots *) slots; /* never NULL */
	u32 capacity;		       /* that of slots */
	u32 next_free;		       /* no free slot below */
	u32 count;		       /* open, without reserved ones */
	u64 *used, *cloexec;
};

static struct slots *slots_of(struct fd_table *t)
{
	return atomic_load_explicit(&t->slots, memory_order_acquire);
}

static struct file *slot_get(struct fd_table *t, u32 fd)
{
	return atomic_load_explicit(&slots_of(t)->files[fd], memory_order_acquire);
}

static void slot_set(struct fd_table *t, u32 fd, struct file *f)
{
	atomic_store_explicit(&slots_of(t)->files[fd], f, memory_order_release);
}

static bool bit_test(const u64 *map, u32 i)
{
	return map[i / 64] >> (i % 64) & 1;
}

static void bit_set(u64 *map, u32 i, bool v)
{
	if (v)
		map[i / 64] |= 1ULL << (i % 64);
	else
		map[i / 64] &= ~(1ULL << (i % 64));
}

/* Makes room for slot fd. */
static int table_grow(struct fd_table *t, u32 fd)
{
	u32 cap = MAX(t->capacity, FD_TABLE_MIN);
	struct slots *slots, *old = slots_of(t);
	u64 *used, *cloexec;

	if (fd < t->capacity)
		return 0;
	if (fd >= FD_TABLE_MAX)
		return -EMFILE;
	while (cap <= fd)
		cap *= 2;
	slots = calloc(1, sizeof(*slots) + cap * sizeof(slots->files[0]));
	used = calloc(cap / 64, sizeof(*used));
	cloexec = calloc(cap / 64, sizeof(*cloexec));
	if (!slots || !used || !cloexec) {
		free(slots);
		free(used);
		free(cloexec);
		return -ENOMEM;
	}
	if (t->capacity) {
		for (u32 i = 0; i < t->capacity; i++)
			atomic_init(&slots->files[i], slot_get(t, i));
		memcpy(used, t->used, t->capacity / 8);
		memcpy(cloexec, t->cloexec, t->capacity / 8);
	}
	free(t->used);
	free(t->cloexec);
	slots->smaller = old;
	slots->capacity = cap;
	atomic_store_explicit(&t->slots, slots, memory_order_release);
	t->used = used;
	t->cloexec = cloexec;
	t->capacity = cap;
	return 0;
}

struct fd_table *fd_table_new(void)
{
	struct fd_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	refs_init(&t->refs, "fd_table");
	mutex_init(&t->lock, RANK_FD_TABLE, "fd_table");
	if (table_grow(t, 0) < 0) {
		mutex_destroy(&t->lock);
		free(t);
		return NULL;
	}
	return t;
}

struct fd_table *fd_table_dup(struct fd_table *src)
{
	struct fd_table *t = fd_table_new();
	u32 top = 0;

	if (!t)
		return NULL;
	mutex_lock(&src->lock);
	for (u32 i = 0; i < src->capacity; i++)
		if (slot_get(src, i))
			top = i;
	if (table_grow(t, top) < 0) {
		mutex_unlock(&src->lock);
		fd_table_put(t);
		return NULL;
	}
	for (u32 i = 0; i <= top; i++) {
		struct file *f = slot_get(src, i);

		if (!f)
			continue;
		slot_set(t, i, file_get(f));
		bit_set(t->used, i, true);
		bit_set(t->cloexec, i, bit_test(src->cloexec, i));
		t->count++;
	}
	mutex_unlock(&src->lock);
	return t;
}

struct fd_table *fd_table_get(struct fd_table *t)
{
	refs_get(&t->refs);
	return t;
}

bool fd_table_shared(struct fd_table *t)
{
	return refs_read(&t->refs) > 1;
}

/* What close(2) owes to a file that leaves table t. Takes the reference. */
static void file_leave(struct fd_table *t, struct file *f)
{
	if (f->ops && f->ops->flush)
		f->ops->flush(f);
	if (!(file_flags(f) & O_PATH) && atomic_load(&f->inode->locks))
		vfs_posix_drop(f->inode, t);
	file_put(f);
}

void fd_table_put(struct fd_table *t)
{
	if (!t || !refs_put(&t->refs))
		return;
	for (u32 i = 0; i < t->capacity; i++)
		if (slot_get(t, i))
			file_leave(t, slot_get(t, i));
	for (struct slots *s = slots_of(t), *smaller; s; s = smaller) {
		smaller = s->smaller;
		free(s);
	}
	free(t->used);
	free(t->cloexec);
	mutex_destroy(&t->lock);
	free(t);
}

/* Empties slot fd under the lock; the file for file_leave, or NULL. */
static struct file *take_locked(struct fd_table *t, u32 fd)
{
	struct file *f = slot_get(t, fd);

	if (!f)
		return NULL;
	slot_set(t, fd, NULL);
	bit_set(t->used, fd, false);
	bit_set(t->cloexec, fd, false);
	t->count--;
	t->next_free = MIN(t->next_free, fd);
	return f;
}

/* Takes files out of [first, last], all or only close-on-exec ones, in batches. */
static void close_matching(struct fd_table *t, u32 first, u32 last, bool only_cloexec)
{
	struct file *batch[CLOSE_BATCH];
	int n;

	do {
		n = 0;
		mutex_lock(&t->lock);
		for (; first < t->capacity && first <= last && n < CLOSE_BATCH; first++) {
			if (only_cloexec && !bit_test(t->cloexec, first))
				continue;
			batch[n] = take_locked(t, first);
			if (batch[n])
				n++;
		}
		mutex_unlock(&t->lock);
		for (int i = 0; i < n; i++)
			file_leave(t, batch[i]);
	} while (n == CLOSE_BATCH);
}

void fd_table_close_on_exec(struct fd_table *t)
{
	close_matching(t, 0, FD_TABLE_MAX, true);
}

struct file *fd_get_any(struct fd_table *t, int fd)
{
	for (;;) {
		struct slots *s = slots_of(t);
		struct file *f;

		if ((u32)fd >= s->capacity)
			return NULL;
		f = atomic_load_explicit(&s->files[fd], memory_order_acquire);
		if (!f)
			return NULL;
		if (!file_tryget(f))
			continue; /* it is being closed */
		if (atomic_load_explicit(&s->files[fd], memory_order_acquire) == f &&
		    slots_of(t) == s)
			return f;
		file_put(f);
	}
}

struct fd_ref fd_ref_any(struct fd_table *t, int fd)
{
	struct slots *s;

	if (fd_table_shared(t)) {
		struct file *f = fd_get_any(t, fd);

		return (struct fd_ref){ f, f };
	}
	s = slots_of(t);
	if ((u32)fd >= s->capacity)
		return (struct fd_ref){ NULL, NULL };
	return (struct fd_ref){ atomic_load_explicit(&s->files[fd], memory_order_relaxed), NULL };
}

struct fd_ref fd_ref(struct fd_table *t, int fd)
{
	struct fd_ref r = fd_ref_any(t, fd);

	if (r.file && (file_flags(r.file) & O_PATH)) {
		fd_ref_put(r);
		return (struct fd_ref){ NULL, NULL };
	}
	return r;
}

struct file *fd_get(struct fd_table *t, int fd)
{
	struct file *f = fd_get_any(t, fd);

	if (f && (file_flags(f) & O_PATH)) {
		file_put(f);
		return NULL;
	}
	return f;
}

/* The lowest slot >= min that is not used; grows the table. */
static int find_free_locked(struct fd_table *t, u32 min, u64 limit)
{
	u32 fd = MAX(min, t->next_free);
	int r;

	while (fd < t->capacity) {
		u64 word = ~t->used[fd / 64] >> (fd % 64);

		if (word) {
			fd += (u32)__builtin_ctzll(word);
			break;
		}
		fd = (fd / 64 + 1) * 64;
	}
	if (fd >= limit || fd >= FD_TABLE_MAX)
		return -EMFILE;
	r = table_grow(t, fd);
	if (r < 0)
		return r;
	if (min <= t->next_free)
		t->next_free = fd + 1;
	return (int)fd;
}

int fd_reserve(struct fd_table *t, int min, u64 limit)
{
	int fd;

	if (min < 0 || (u64)min >= limit)
		return min < 0 ? -EINVAL : -EMFILE;
	mutex_lock(&t->lock);
	fd = find_free_locked(t, (u32)min, limit);
	if (fd >= 0)
		bit_set(t->used, (u32)fd, true);
	mutex_unlock(&t->lock);
	return fd;
}

static void publish_locked(struct fd_table *t, u32 fd, struct file *f, bool cloexec)
{
	slot_set(t, fd, f);
	bit_set(t->used, fd, true);
	bit_set(t->cloexec, fd, cloexec);
	t->count++;
}

void fd_install_reserved(struct fd_table *t, int fd, struct file *f, bool cloexec)
{
	mutex_lock(&t->lock);
	ASSERT((u32)fd < t->capacity && bit_test(t->used, (u32)fd) && !slot_get(t, fd));
	publish_locked(t, (u32)fd, f, cloexec);
	mutex_unlock(&t->lock);
}

void fd_release_reserved(struct fd_table *t, int fd)
{
	mutex_lock(&t->lock);
	ASSERT((u32)fd < t->capacity && bit_test(t->used, (u32)fd) && !slot_get(t, fd));
	bit_set(t->used, (u32)fd, false);
	t->next_free = MIN(t->next_free, (u32)fd);
	mutex_unlock(&t->lock);
}

int fd_install(struct fd_table *t, struct file *f, int min, bool cloexec, u64 limit)
{
	int fd;

	if (min < 0 || (min > 0 && (u64)min >= limit))
		return -EINVAL;
	mutex_lock(&t->lock);
	fd = find_free_locked(t, (u32)min, limit);
	if (fd >= 0)
		publish_locked(t, (u32)fd, f, cloexec);
	mutex_unlock(&t->lock);
	return fd;
}

int fd_replace(struct fd_table *t, int fd, struct file *f, bool cloexec, u64 limit)
{
	struct file *old;
	int r;

	if (fd < 0 || (u64)fd >= limit || fd >= FD_TABLE_MAX)
		return -EBADF;
	mutex_lock(&t->lock);
	r = table_grow(t, (u32)fd);
	if (r == 0 && bit_test(t->used, (u32)fd) && !slot_get(t, fd))
		r = -EBUSY; /* another thread's open is under way, as in Linux */
	if (r < 0) {
		mutex_unlock(&t->lock);
		return r;
	}
	old = take_locked(t, (u32)fd);
	publish_locked(t, (u32)fd, f, cloexec);
	mutex_unlock(&t->lock);
	if (old)
		file_leave(t, old);
	return fd;
}

int fd_remove(struct fd_table *t, int fd, struct file **ret)
{
	struct file *f;

	mutex_lock(&t->lock);
	f = (u32)fd < t->capacity ? take_locked(t, (u32)fd) : NULL;
	mutex_unlock(&t->lock);
	if (!f)
		return -EBADF;
	*ret = f;
	return 0;
}

int fd_close(struct fd_table *t, int fd)
{
	struct file *f;
	int r = fd_remove(t, fd, &f);

	if (r == 0)
		file_leave(t, f);
	return r;
}

int fd_close_range(struct fd_table *t, u32 first, u32 last, bool cloexec_only)
{
	if (first > last)
		return -EINVAL;
	if (!cloexec_only) {
		close_matching(t, first, last, false);
		return 0;
	}
	mutex_lock(&t->lock);
	for (u32 fd = first; fd < t->capacity && fd <= last; fd++)
		if (slot_get(t, fd))
			bit_set(t->cloexec, fd, true);
	mutex_unlock(&t->lock);
	return 0;
}

int fd_get_cloexec(struct fd_table *t, int fd)
{
	int r = -EBADF;

	mutex_lock(&t->lock);
	if ((u32)fd < t->capacity && slot_get(t, fd))
		r = bit_test(t->cloexec, (u32)fd);
	mutex_unlock(&t->lock);
	return r;
}

int fd_set_cloexec(struct fd_table *t, int fd, bool cloexec)
{
	int r = -EBADF;

	mutex_lock(&t->lock);
	if ((u32)fd < t->capacity && slot_get(t, fd)) {
		bit_set(t->cloexec, (u32)fd, cloexec);
		r = 0;
	}
	mutex_unlock(&t->lock);
	return r;
}

int fd_next(struct fd_table *t, int from)
{
	int r = -1;

	mutex_lock(&t->lock);
	for (u32 fd = from < 0 ? 0 : (u32)from; fd < t->capacity; fd++) {
		if (slot_get(t, fd)) {
			r = (int)fd;
			break;
		}
	}
	mutex_unlock(&t->lock);
	return r;
}

size_t fd_count(struct fd_table *t)
{
	size_t n;

	mutex_lock(&t->lock);
	n = t->count;
	mutex_unlock(&t->lock);
	return n;
}
