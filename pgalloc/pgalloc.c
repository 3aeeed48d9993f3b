#include "pgalloc/pgalloc_impl.h"

#include "base/host_mem.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEAD_BATCH 32

struct pgalloc *pgalloc_of(struct memfile *f)
{
	return container_of(f, struct pgalloc, file);
}

struct memfile *pgalloc_file(struct pgalloc *p)
{
	return &p->file;
}

struct pgalloc *pgalloc_large(struct pgalloc *p)
{
	return p->large;
}

struct pgalloc *pgalloc_second(struct pgalloc *p)
{
	return p->second;
}

/* ---- the limit, which large and second files share with their parent ---- */

/* Bytes of p's limit that are taken. */
static u64 taken(const struct pgalloc *p)
{
	return p->extents.reserved + p->leaked + p->lent;
}

static bool lend(struct pgalloc *p, u64 len)
{
	bool ok;

	mutex_lock(&p->lock);
	ok = len <= p->limit && taken(p) <= p->limit - len;
	p->lent += ok ? len : 0;
	mutex_unlock(&p->lock);
	return ok;
}

static void lent_back(struct pgalloc *p, u64 len)
{
	mutex_lock(&p->lock);
	ASSERT(p->lent >= len);
	p->lent -= len;
	mutex_unlock(&p->lock);
}

/* ---- references ---- */

static void file_get(struct memfile *f, struct mem_range r)
{
	struct pgalloc *p = pgalloc_of(f);

	if (r.start >= r.end)
		return;
	mutex_lock(&p->lock);
	extents_get(&p->extents, r);
	mutex_unlock(&p->lock);
}

/* Makes r read as zero again and free of host pages. False when the host refuses both ways. */
static bool make_empty(struct pgalloc *p, struct mem_range r)
{
	static const char zeros[65536];
	int ret;

	known_clear(&p->known, r);
	ret = host_mem_punch(p->file.host_fd, r.start, mem_range_len(r));

	if (ret == 0)
		return true;
	log_debug("pgalloc: punching 0x%lx+0x%lx: %s", r.start, mem_range_len(r), strerror(-ret));
	for (u64 pos = r.start; pos < r.end;) {
		size_t n = MIN(sizeof(zeros), r.end - pos);

		if (host_mem_pwrite(p->file.host_fd, zeros, n, pos) != (ssize_t)n)
			return false;
		pos += n;
	}
	return true;
}

/* Keeps a dead run as it is. False: it has to be emptied. */
static bool recycle(struct pgalloc *p, struct dead_run dead)
{
	struct mem_range r = { dead.start, dead.end }, there;

	mutex_assert_held(&p->lock);
	if (p->file.disk_backed || p->parent || mem_range_len(r) > RECYCLE_BYTES ||
	    known_run(&p->known, r, &there) != KNOWN_THERE || there.end != r.end ||
	    there.start != r.start)
		return false;
	return recycle_add(&p->recycle, r);
}

static void file_put(struct memfile *f, struct mem_range r)
{
	struct pgalloc *p = pgalloc_of(f);
	struct dead_run dead[DEAD_BATCH];

	while (r.start < r.end) {
		bool emptied[DEAD_BATCH];
		size_t found, count = 0;
		u64 freed = 0;

		mutex_lock(&p->lock);
		r.start = extents_put(&p->extents, r, dead, DEAD_BATCH, &found);
		for (size_t i = 0; i < found; i++)
			if (!recycle(p, dead[i]))
				dead[count++] = dead[i];
		mutex_unlock(&p->lock);
		if (!count)
			continue;
		for (size_t i = 0; i < count; i++)
			emptied[i] =
				make_empty(p, (struct mem_range){ dead[i].start, dead[i].end });
		mutex_lock(&p->lock);
		for (size_t i = 0; i < count; i++) {
			u64 len = dead[i].end - dead[i].start;

			if (emptied[i])
				extents_release(&p->extents,
						(struct mem_range){ dead[i].start, dead[i].end });
			else
				p->leaked += len;
			freed += emptied[i] ? len : 0;
		}
		mutex_unlock(&p->lock);
		if (p->parent && freed)
			lent_back(p->parent, freed);
	}
}

/* A huge page is mapped by one fault only where it does not cross a page table. */
static int map_chunk(struct pgalloc *p, u64 index, void **ret)
{
	const int flags = MAP_SHARED | MAP_NORESERVE;
	u64 offset = index * PGALLOC_CHUNK_SIZE, slack;
	void *room;
	int err;

	if (!p->whole_units)
		return host_mmap(NULL, PGALLOC_CHUNK_SIZE, PROT_READ | PROT_WRITE, flags,
				 p->file.host_fd, offset, ret);
	err = host_mmap(NULL, PGALLOC_CHUNK_SIZE + PGALLOC_LARGE_UNIT, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, &room);
	if (err < 0)
		return err;
	slack = -(u64)room & (PGALLOC_LARGE_UNIT - 1);
	err = host_mmap((char *)room + slack, PGALLOC_CHUNK_SIZE, PROT_READ | PROT_WRITE,
			flags | MAP_FIXED, p->file.host_fd, offset, ret);
	if (err < 0) {
		host_munmap(room, PGALLOC_CHUNK_SIZE + PGALLOC_LARGE_UNIT);
		return err;
	}
	if (slack)
		host_munmap(room, slack);
	if (slack < PGALLOC_LARGE_UNIT)
		host_munmap((char *)room + slack + PGALLOC_CHUNK_SIZE, PGALLOC_LARGE_UNIT - slack);
	return 0;
}

void *pgalloc_map(struct memfile *f, u64 offset, u64 *ret_len)
{
	struct pgalloc *p = pgalloc_of(f);
	u64 index = offset / PGALLOC_CHUNK_SIZE, in_chunk = offset % PGALLOC_CHUNK_SIZE;
	void *chunk;

	ASSERT(index < PGALLOC_MAX_CHUNKS);
	chunk = atomic_load_explicit(&p->chunks[index], memory_order_acquire);
	if (!chunk) {
		mutex_lock(&p->chunk_lock);
		chunk = atomic_load(&p->chunks[index]);
		if (!chunk && map_chunk(p, index, &chunk) == 0)
			atomic_store(&p->chunks[index], chunk);
		mutex_unlock(&p->chunk_lock);
		if (!chunk)
			return NULL;
	}
	if (ret_len)
		*ret_len = PGALLOC_CHUNK_SIZE - in_chunk;
	return (char *)chunk + in_chunk;
}

static const struct memfile_ops file_ops = {
	.get = file_get,
	.put = file_put,
	.map = pgalloc_map,
};

/* ---- life ---- */

int pgalloc_new(int host_fd, bool disk_backed, int stub_slot, u64 limit, struct pgalloc **ret)
{
	struct pgalloc *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	r = extents_init(&p->extents, PGALLOC_MAX_CHUNKS * PGALLOC_CHUNK_SIZE);
	if (r == 0) {
		r = known_init(&p->known, PGALLOC_MAX_CHUNKS);
		if (r < 0)
			extents_destroy(&p->extents);
	}
	if (r < 0) {
		free(p);
		return r;
	}
	p->file = (struct memfile){
		.ops = &file_ops,
		.host_fd = host_fd,
		.stub_slot = stub_slot,
		.disk_backed = disk_backed,
	};
	p->limit = limit;
	promise_init(&p->promise, limit);
	mutex_init(&p->lock, RANK_PGALLOC, "pgalloc");
	mutex_init(&p->chunk_lock, RANK_LEAF, "pgalloc chunks");
	mutex_init(&p->keepers_lock, RANK_KEEPERS, "pgalloc keepers");
	list_init(&p->keepers);
	*ret = p;
	return 0;
}

int pgalloc_new_memfd(int stub_slot, u64 limit, struct pgalloc **ret)
{
	int fd = host_memfd_create("minisentry-memory"), r;

	if (fd < 0)
		return fd;
	r = pgalloc_new(fd, false, stub_slot, limit, ret);
	if (r < 0)
		host_mem_close(fd);
	return r;
}

int pgalloc_add_large(struct pgalloc *p, int host_fd, int stub_slot)
{
	struct pgalloc *large;
	int r = pgalloc_new(host_fd, false, stub_slot, p->limit, &large);

	if (r < 0)
		return r;
	large->parent = p;
	large->whole_units = true;
	p->large = large;
	return 0;
}

int pgalloc_add_second(struct pgalloc *p, int stub_slot)
{
	struct pgalloc *second;
	int r = pgalloc_new_memfd(stub_slot, p->limit, &second);

	if (r < 0)
		return r;
	second->parent = p;
	p->second = second;
	return 0;
}

void pgalloc_free(struct pgalloc *p)
{
	if (!p)
		return;
	pgalloc_free(p->large);
	pgalloc_free(p->second);
	if (p->extents.reserved)
		log_debug("pgalloc: %lu bytes still in use at the end", p->extents.reserved);
	for (size_t i = 0; i < PGALLOC_MAX_CHUNKS; i++)
		if (p->chunks[i])
			host_munmap(p->chunks[i], PGALLOC_CHUNK_SIZE);
	host_mem_close(p->file.host_fd);
	if (p->file.read_fd > 0)
		host_mem_close(p->file.read_fd);
	extents_destroy(&p->extents);
	known_destroy(&p->known);
	mutex_destroy(&p->lock);
	mutex_destroy(&p->chunk_lock);
	mutex_destroy(&p->keepers_lock);
	free(p);
}

/* ---- allocation ---- */

/* Takes offsets, growing the file by whole chunks. */
static int reserve(struct pgalloc *p, u64 len, const struct pgalloc_opts *opts,
		   struct mem_range *ret)
{
	struct fit fit = {
		.len = len,
		.align = opts->huge ? HUGE_PAGE_SIZE : PAGE_SIZE,
		.hint = opts->hint,
		.down = opts->dir == PGALLOC_DOWN,
		.room = opts->room,
		.start = opts->room ? PGALLOC_ROOMY_START : 0,
	};
	struct mem_range r;
	int err;

	mutex_assert_held(&p->lock);
	if (!p->parent && (len > p->limit || taken(p) > p->limit - len))
		return -ENOMEM;
	err = extents_reserve(&p->extents, opts->acct_id);
	if (err < 0)
		return err;
	if (!extents_take(&p->extents, &fit, &r))
		return -ENOMEM;
	if (r.end > p->file_size) {
		u64 size = (r.end + PGALLOC_CHUNK_SIZE - 1) & ~(PGALLOC_CHUNK_SIZE - 1);

		err = host_mem_truncate(p->file.host_fd, size);
		if (err < 0) {
			extents_release(&p->extents, r);
			return err == -EFBIG || err == -ENOSPC ? -ENOMEM : err;
		}
		p->file_size = size;
	}
	extents_use(&p->extents, r, opts->acct_id);
	*ret = r;
	return 0;
}

#define FILL_STEP (64UL << 10)

/* A step's memory that stays warm in the CPU's cache; a second user at a time gets its own. */
static char fill_buffer[FILL_STEP];
static atomic_flag fill_buffer_used = ATOMIC_FLAG_INIT;

static char *fill_buffer_get(void)
{
	return atomic_flag_test_and_set(&fill_buffer_used) ? malloc(FILL_STEP) : fill_buffer;
}

static void fill_buffer_put(char *buffer)
{
	if (buffer == fill_buffer)
		atomic_flag_clear(&fill_buffer_used);
	else
		free(buffer);
}

static int write_fresh(struct pgalloc *p, const char *src, size_t len, u64 pos)
{
	ssize_t n = host_mem_pwrite(p->file.host_fd, src, len, pos);

	if (n < 0 || (size_t)n < len)
		return p->file.disk_backed ? -ENOSPC : -ENOMEM;
	if (!p->file.disk_backed)
		known_set_there(&p->known,
				(struct mem_range){ page_down(pos), page_up_nofail(pos + len) });
	return 0;
}

/*
 * Fills a fresh range from the reader. By way of a buffer: to have the host write whole pages
 * spares it making them zero, and us a page table, which costs more than the copy.
 */
static int fill(struct pgalloc *p, struct mem_range r, const struct pgalloc_opts *opts)
{
	char *buffer = fill_buffer_get();
	u64 pos = r.start;
	ssize_t n = 0;
	int err = 0;

	if (!buffer)
		return -ENOMEM;
	while (err == 0 && pos < r.end) {
		n = opts->reader(opts->reader_arg, buffer, MIN(r.end - pos, FILL_STEP));
		if (n <= 0)
			break;
		err = write_fresh(p, buffer, (size_t)n, pos);
		pos += (u64)n;
	}
	fill_buffer_put(buffer);
	if (n < 0 || err < 0)
		return n < 0 ? (int)n : err;
	r.start = page_up_nofail(pos);
	return r.start < r.end ? pgalloc_commit(p, r) : 0;
}

void pgalloc_set_reclaim(struct pgalloc *p, u64 (*reclaim)(void *arg, u64 bytes), void *arg)
{
	p->reclaim = reclaim;
	p->reclaim_arg = arg;
}

void pgalloc_keeper_add(struct pgalloc *p, struct pgalloc_keeper *k)
{
	mutex_lock(&p->keepers_lock);
	list_push_back(&p->keepers, &k->node);
	mutex_unlock(&p->keepers_lock);
}

void pgalloc_keeper_remove(struct pgalloc *p, struct pgalloc_keeper *k)
{
	mutex_lock(&p->keepers_lock);
	list_del(&k->node);
	mutex_unlock(&p->keepers_lock);
}

static u64 ask_each_keeper(struct pgalloc *p, bool trim)
{
	struct pgalloc_keeper *k;
	u64 bytes = 0;

	mutex_lock(&p->keepers_lock);
	list_for_each (k, &p->keepers, node)
		bytes += trim ? k->trim(k) : k->drain(k);
	mutex_unlock(&p->keepers_lock);
	return bytes;
}

static u64 ask_keepers(struct pgalloc *p, bool trim)
{
	return trim || pgalloc_kept(p) ? ask_each_keeper(p, trim) : 0;
}

void pgalloc_drain(struct pgalloc *p)
{
	ask_each_keeper(p, false);
}

static int reserve_once(struct pgalloc *p, u64 len, const struct pgalloc_opts *opts,
			struct mem_range *ret)
{
	int err;

	if (p->parent && !lend(p->parent, len))
		return -ENOMEM;
	mutex_lock(&p->lock);
	err = reserve(p, len, opts, ret);
	mutex_unlock(&p->lock);
	if (err < 0 && p->parent)
		lent_back(p->parent, len);
	return err;
}

int pgalloc_allocate(struct pgalloc *p, u64 len, const struct pgalloc_opts *opts,
		     struct mem_range *ret)
{
	struct pgalloc *top = p->parent ? p->parent : p;
	struct mem_range r;
	int err;

	ASSERT(len && page_aligned(len));
	ASSERT(!p->whole_units || (opts->huge && !(len & (PGALLOC_LARGE_UNIT - 1))));
	do {
		err = reserve_once(p, len, opts, &r);
	} while (err == -ENOMEM && (ask_keepers(top, false) > 0 ||
				    (top->reclaim && top->reclaim(top->reclaim_arg, len) > 0) ||
				    (!opts->optional && ask_keepers(top, true) > 0)));
	if (err < 0)
		return err;
	if (opts->reader)
		err = fill(p, r, opts);
	else if (opts->mode == PGALLOC_POPULATE)
		err = pgalloc_populate(p, r);
	else if (opts->mode == PGALLOC_COMMIT)
		err = pgalloc_commit(p, r);
	if (err < 0) {
		file_put(&p->file, r);
		return err;
	}
	*ret = r;
	return 0;
}

bool pgalloc_take_recycled(struct pgalloc *p, u64 len, const struct pgalloc_opts *opts,
			   struct mem_range *ret)
{
	bool found;

	MUTEX_GUARD(&p->lock);
	if (!p->recycle.count || len > p->limit || taken(p) > p->limit - len ||
	    extents_reserve(&p->extents, opts->acct_id) < 0)
		return false;
	found = recycle_take(&p->recycle, len, opts->hint, ret);
	if (found)
		extents_use(&p->extents, *ret, opts->acct_id);
	return found;
}

int pgalloc_commit(struct pgalloc *p, struct mem_range r)
{
	int err = host_mem_fallocate(p->file.host_fd, 0, r.start, mem_range_len(r));

	if (err == 0)
		known_set_there(&p->known, r);
	/* A file system without fallocate commits on write instead. */
	return err == -EOPNOTSUPP ? 0 : err;
}

int pgalloc_populate(struct pgalloc *p, struct mem_range r)
{
	int err = pgalloc_commit(p, r);

	if (err < 0 || p->file.disk_backed)
		return err;
	while (r.start < r.end) {
		u64 len, n;
		void *m = pgalloc_map(&p->file, r.start, &len);

		if (!m)
			return -ENOMEM;
		n = MIN(len, mem_range_len(r));
		err = host_madvise(m, n, MADV_POPULATE_WRITE);
		/* Populating only saves later faults: a host without it is no failure. */
		if (err < 0 && err != -EINVAL)
			return err == -EFAULT ? -ENOMEM : err;
		r.start += n;
	}
	return 0;
}

int pgalloc_decommit(struct pgalloc *p, struct mem_range r)
{
	return make_empty(p, r) ? 0 : -EIO;
}

void pgalloc_unstill(struct pgalloc *p, struct mem_range r)
{
	known_clear_still(&p->known, r);
}

/* ---- questions ---- */

u32 pgalloc_refs(struct pgalloc *p, struct mem_range r, struct mem_range *ret_run)
{
	u64 end;
	u32 refs;

	mutex_lock(&p->lock);
	refs = extents_refs(&p->extents, r.start, &end);
	mutex_unlock(&p->lock);
	*ret_run = (struct mem_range){ r.start, MIN(end, r.end) };
	return refs;
}

bool pgalloc_exclusive(struct pgalloc *p, struct mem_range r)
{
	bool exclusive = true;
	u64 end;

	mutex_lock(&p->lock);
	while (r.start < r.end && exclusive) {
		exclusive = extents_refs(&p->extents, r.start, &end) == 1;
		r.start = end;
	}
	mutex_unlock(&p->lock);
	return exclusive;
}

void pgalloc_usage(struct pgalloc *p, struct pgalloc_usage *ret)
{
	u64 recycled, more;

	mutex_lock(&p->lock);
	ret->reserved = p->extents.reserved + p->lent;
	recycled = p->recycle.bytes;
	mutex_unlock(&p->lock);
	if (host_mem_allocated(p->file.host_fd, &ret->committed) < 0)
		ret->committed = 0;
	if (p->large && host_mem_allocated(p->large->file.host_fd, &more) == 0)
		ret->committed += more;
	if (p->second && host_mem_allocated(p->second->file.host_fd, &more) == 0)
		ret->committed += more;
	ret->reserved -= MIN(pgalloc_kept(p), ret->reserved);
	ret->committed -= MIN(pgalloc_kept(p) + recycled, ret->committed);
}

u64 pgalloc_acct_usage(struct pgalloc *p, u32 acct_id)
{
	u64 bytes;

	mutex_lock(&p->lock);
	bytes = extents_acct(&p->extents, acct_id);
	mutex_unlock(&p->lock);
	return bytes + (p->large ? pgalloc_acct_usage(p->large, acct_id) : 0) +
	       (p->second ? pgalloc_acct_usage(p->second, acct_id) : 0);
}

#define SHARED_STEP 1024 /* ranges under the lock at a time */

u64 pgalloc_shared(struct pgalloc *p, u32 acct_id)
{
	u64 at = 0, bytes = 0;

	do {
		mutex_lock(&p->lock);
		at = extents_shared(&p->extents, at, acct_id, SHARED_STEP, &bytes);
		mutex_unlock(&p->lock);
	} while (at);
	return bytes + (p->large ? pgalloc_shared(p->large, acct_id) : 0) +
	       (p->second ? pgalloc_shared(p->second, acct_id) : 0);
}

u64 pgalloc_copied(const struct pgalloc *p)
{
	return atomic_load_explicit(&p->copied, memory_order_relaxed) +
	       (p->large ? pgalloc_copied(p->large) : 0) +
	       (p->second ? pgalloc_copied(p->second) : 0);
}

u64 pgalloc_room(struct pgalloc *p)
{
	u64 used;

	mutex_lock(&p->lock);
	used = taken(p);
	mutex_unlock(&p->lock);
	return used < p->limit ? p->limit - used : 0;
}

void pgalloc_account_kept(struct pgalloc *p, s64 bytes)
{
	atomic_fetch_add_explicit(&p->kept, (u64)bytes, memory_order_relaxed);
}

u64 pgalloc_kept(struct pgalloc *p)
{
	return atomic_load_explicit(&p->kept, memory_order_relaxed);
}

u64 pgalloc_limit(const struct pgalloc *p)
{
	return p->limit;
}

struct promise *pgalloc_promise(struct pgalloc *p)
{
	return &p->promise;
}
