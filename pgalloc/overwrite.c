/* Copies over pages that are there, by way of the sentry's mappings. */
#include "pgalloc/pgalloc_impl.h"

#include "base/errand.h"
#include "base/safecopy.h"

#include <stdlib.h>

/* The host answers a read of a page that is there with those around it, and may be written to then;
 * a write with that page alone. */
#define HOST_FAULT_AROUND (64UL << 10)

static void map_by_reading(const char *m, u64 len)
{
	char byte;

	for (u64 at = 0; at < len; at += HOST_FAULT_AROUND)
		if (safe_memcpy(&byte, m + at, 1))
			return;
}

int pgalloc_overwrite(struct pgalloc *from, u64 src, struct pgalloc *to, u64 dst, u64 len)
{
	while (len) {
		u64 src_len = len, dst_len, n;
		void *s = from ? pgalloc_map(&from->file, src, &src_len) : NULL;
		void *d = pgalloc_map(&to->file, dst, &dst_len);

		if (!d || (from && !s))
			return -ENOMEM;
		n = MIN(len, MIN(src_len, dst_len));
		map_by_reading(d, n);
		if (from ? safe_memcpy(d, s, n) : safe_memzero(d, n))
			return -ENOMEM;
		src += n;
		dst += n;
		len -= n;
	}
	return 0;
}

bool pgalloc_all_committed(struct pgalloc *p, struct mem_range r, bool still)
{
	u64 pages = PGALLOC_LOOK_FIRST;
	struct mem_range run;

	while (r.start < r.end) {
		if (!pgalloc_next_run(p, r, still ? &pages : NULL, &run) || run.start != r.start)
			return false;
		r.start = run.end;
	}
	return true;
}

/* ---- many, while who asks for them goes on ---- */

/* The other thread is asked for help when so many wait: it takes as long to wake, and there may be
 * no more of them. */
#define COPIES_WAKE 64

struct copy_job {
	struct pgalloc *from, *to;
	u64 src, dst, len;
};

struct pgalloc_copies {
	struct errand *errand; /* the caller's; NULL: not asked for, or in vain */
	u32 most;
	_Atomic u32 added, taken;
	_Atomic bool complete; /* no more are added */
	_Atomic int err;       /* of any */
	struct copy_job jobs[];
};

/* False: all that there are so far are taken. */
static bool make_next(struct pgalloc_copies *c)
{
	u32 i = atomic_load(&c->taken);
	const struct copy_job *j;

	do {
		if (i == atomic_load(&c->added))
			return false;
	} while (!atomic_compare_exchange_weak(&c->taken, &i, i + 1));
	j = &c->jobs[i];
	if (pgalloc_overwrite(j->from, j->src, j->to, j->dst, j->len) < 0)
		atomic_store(&c->err, -ENOMEM);
	return true;
}

/* Who adds them may have lost its CPU. */
#define COPIES_PATIENCE 10000

static void make_copies(void *arg)
{
	struct pgalloc_copies *c = arg;
	u32 idle = 0;

	while (idle < COPIES_PATIENCE) {
		bool complete = atomic_load(&c->complete);

		if (make_next(c))
			idle = 0;
		else if (complete)
			break;
		else
			idle++;
		__builtin_ia32_pause();
	}
}

struct pgalloc_copies *pgalloc_copies_begin(u32 most)
{
	struct pgalloc_copies *c = malloc(sizeof(*c) + most * sizeof(c->jobs[0]));

	if (!c)
		return NULL;
	*c = (struct pgalloc_copies){ .most = most };
	return c;
}

int pgalloc_copies_end(struct pgalloc_copies *c)
{
	int err;

	if (!c)
		return 0;
	atomic_store(&c->complete, true);
	while (make_next(c))
		;
	errand_end(c->errand);
	err = atomic_load(&c->err);
	free(c);
	return err;
}

/* False: there is no room. */
static bool add_job(struct pgalloc_copies *c, const struct copy_job *job)
{
	u32 i = c ? atomic_load_explicit(&c->added, memory_order_relaxed) : 0;

	if (!c || i == c->most)
		return false;
	c->jobs[i] = *job;
	atomic_store(&c->added, i + 1);
	if (i + 1 == COPIES_WAKE)
		c->errand = errand_begin(make_copies, c);
	return true;
}

int pgalloc_copy_onto(struct pgalloc *from, struct mem_range src, bool still, struct pgalloc *to,
		      struct mem_range dst, struct pgalloc_copies *later)
{
	struct copy_job job = { from, to, src.start, dst.start, mem_range_len(src) };
	int err = 0;

	if (from->file.disk_backed || to->file.disk_backed ||
	    !pgalloc_all_committed(from, src, still))
		return -ENODATA;
	if (!add_job(later, &job))
		err = pgalloc_overwrite(from, src.start, to, dst.start, job.len);
	if (err == 0)
		atomic_fetch_add_explicit(&to->copied, job.len, memory_order_relaxed);
	return err;
}
