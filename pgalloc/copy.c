/* Copies from one memory file to another, or within one, of what exists. */
#include "pgalloc/pgalloc_impl.h"

#include "base/errand.h"
#include "base/host_mem.h"
#include "base/host_sync.h"

#include <stdlib.h>

/*
 * Within the host: no page table of ours is filled for it, which costs as much as the copy of a
 * lone page, and a third of one where 16 are filled at once. What the host cannot copy so (it need
 * not), pwrite does from our mapping, at four fifths of the price where that is filled: and so it
 * is where several children break what they share in turn. memcpy into fresh pages would cost a
 * fault each.
 */
#define MAPPED_COPY_MIN (16UL << 10)
#define MAPPED_COPY_MAX (64UL << 10)

static ssize_t copy_some(struct pgalloc *from, u64 src, struct pgalloc *to, u64 dst, u64 len)
{
	u64 chunk_len;
	void *m;
	ssize_t n = -EXDEV;

	if (len < MAPPED_COPY_MIN || len > MAPPED_COPY_MAX)
		n = host_mem_copy_range(from->file.host_fd, src, to->file.host_fd, dst, len);
	if (n > 0 || n == -ENOSPC || n == -ENOMEM)
		return n;
	m = pgalloc_map(&from->file, src, &chunk_len);
	return m ? host_mem_pwrite(to->file.host_fd, m, MIN(len, chunk_len), dst) : -ENOMEM;
}

static int copy_run(struct pgalloc *from, struct mem_range src, struct pgalloc *to, u64 dst)
{
	while (src.start < src.end) {
		ssize_t n = copy_some(from, src.start, to, dst, mem_range_len(src));

		if (n < 0)
			return n == -ENOSPC ? -ENOMEM : (int)n;
		if (n == 0)
			return -ENOMEM;
		known_set_there(&to->known,
				(struct mem_range){ page_up_nofail(dst), page_down(dst + (u64)n) });
		src.start += (u64)n;
		dst += (u64)n;
	}
	return 0;
}

static int copy_run_bounced(struct pgalloc *from, struct mem_range src, struct pgalloc *to, u64 dst)
{
	size_t size = 1 << 18;
	char *bounce = malloc(size);
	int err = 0;

	if (!bounce)
		return -ENOMEM;
	while (src.start < src.end && err == 0) {
		size_t n = MIN(size, mem_range_len(src));

		err = pgalloc_read(from, src.start, bounce, n);
		if (err == 0)
			err = pgalloc_write(to, dst, bounce, n);
		src.start += n;
		dst += n;
	}
	free(bounce);
	return err;
}

static int copy_between(struct pgalloc *from, struct mem_range src, bool still, struct pgalloc *to,
			struct mem_range dst)
{
	struct mem_range run, rest = src;
	u64 copied = 0, pages = PGALLOC_LOOK_FIRST;

	while (pgalloc_next_run(from, rest, still ? &pages : NULL, &run)) {
		u64 at = dst.start + (run.start - src.start);
		int err = from->file.disk_backed ? copy_run_bounced(from, run, to, at)
						 : copy_run(from, run, to, at);

		if (err < 0)
			return err;
		copied += mem_range_len(run);
		rest.start = run.end;
	}
	atomic_fetch_add_explicit(&to->copied, copied, memory_order_relaxed);
	return 0;
}

int pgalloc_copy_committed(struct pgalloc *p, struct mem_range src, struct mem_range dst)
{
	return copy_between(p, src, false, p, dst);
}

static int copy_over(struct pgalloc *from, struct mem_range src, bool still, struct pgalloc *to,
		     u64 dst)
{
	struct mem_range run;
	u64 pages = PGALLOC_LOOK_FIRST;
	int err = 0;

	while (err == 0 && src.start < src.end) {
		u64 gap;

		if (!pgalloc_next_run(from, src, still ? &pages : NULL, &run))
			run = (struct mem_range){ src.end, src.end };
		gap = run.start - src.start;
		err = pgalloc_overwrite(NULL, 0, to, dst, gap);
		if (err == 0)
			err = pgalloc_overwrite(from, run.start, to, dst + gap, mem_range_len(run));
		dst += gap + mem_range_len(run);
		src.start = run.end;
	}
	return err;
}

int pgalloc_allocate_copy(struct pgalloc *from, struct mem_range src, bool still,
			  struct pgalloc *to, const struct pgalloc_opts *opts,
			  struct mem_range *ret)
{
	u64 len = mem_range_len(src);
	struct mem_range dst;
	int err;

	if (opts->alone && len <= RECYCLE_COPY_MAX && !from->file.disk_backed &&
	    pgalloc_take_recycled(to, len, opts, &dst)) {
		err = copy_over(from, src, still, to, dst.start);
	} else {
		err = pgalloc_allocate(to, len, opts, &dst);
		if (err < 0)
			return err;
		err = copy_between(from, src, still, to, dst);
	}
	if (err < 0)
		to->file.ops->put(&to->file, dst);
	else
		*ret = dst;
	return err;
}

/* ---- in two threads ---- */

#define HALVES_STEP (64UL << 10)

struct halves {
	struct pgalloc *from, *to[2];
	struct mem_range src[2], dst[2];
	bool still;
	_Atomic u64 next[2]; /* bytes of each half that somebody copies, or has */
	_Atomic int err;     /* of any step */
};

static void copy_steps(struct halves *h, int half)
{
	u64 len = mem_range_len(h->src[half]), at;

	while ((at = atomic_fetch_add(&h->next[half], HALVES_STEP)) < len) {
		u64 n = MIN(HALVES_STEP, len - at);
		struct mem_range src = { h->src[half].start + at, h->src[half].start + at + n };
		struct mem_range dst = { h->dst[half].start + at, h->dst[half].start + at + n };
		int err = copy_between(h->from, src, h->still, h->to[half], dst);

		if (err < 0)
			atomic_store(&h->err, err);
	}
}

static void copy_second(void *arg)
{
	copy_steps(arg, 1);
}

static void copy_both(struct halves *h)
{
	struct errand *e = errand_begin(copy_second, h);

	copy_steps(h, 0);
	/* What the other has not come to. */
	copy_steps(h, 1);
	errand_end(e);
}

int pgalloc_copy_halves(struct pgalloc *from, struct mem_range src, bool still, struct pgalloc *p,
			const struct pgalloc_opts *opts, u64 second_hint, struct mem_range ret[2])
{
	u64 middle = src.start + page_down(mem_range_len(src) / 2);
	struct pgalloc_opts second_opts = *opts;
	struct halves h = {
		.from = from,
		.to = { p, p->second },
		.src = { { src.start, middle }, { middle, src.end } },
		.still = still,
	};
	int err = pgalloc_allocate(p, mem_range_len(h.src[0]), opts, &h.dst[0]);

	if (err < 0)
		return err;
	second_opts.hint = second_hint;
	second_opts.dir = PGALLOC_UP;
	err = pgalloc_allocate(p->second, mem_range_len(h.src[1]), &second_opts, &h.dst[1]);
	if (err < 0) {
		p->file.ops->put(&p->file, h.dst[0]);
		return err;
	}
	copy_both(&h);
	err = atomic_load(&h.err);
	for (int i = 0; i < 2; i++) {
		if (err < 0)
			h.to[i]->file.ops->put(&h.to[i]->file, h.dst[i]);
		ret[i] = h.dst[i];
	}
	return err;
}

/*
 * A host that is itself virtual may not have the memory behind a huge page that nobody has used for
 * a while, and fetches it by small ones: ten times as slow as small pages that were free a moment
 * ago. Then there are no large copies for a time, the longer the more often that was so.
 */
#define LARGE_SLOW_NS 2000000UL /* for a unit */
#define LARGE_PAUSE_NS 1000000000UL
#define LARGE_PAUSE_MAX 6 /* doublings */

static bool large_pauses(struct pgalloc *large, u64 now)
{
	return now < atomic_load_explicit(&large->pause_until_ns, memory_order_relaxed);
}

/* A unit has been copied between these times. */
static void large_learn(struct pgalloc *large, u64 from, u64 to)
{
	u32 slow = atomic_load_explicit(&large->slow, memory_order_relaxed);

	if (to - from < LARGE_SLOW_NS) {
		if (slow)
			atomic_store_explicit(&large->slow, slow - 1, memory_order_relaxed);
		return;
	}
	atomic_store_explicit(&large->pause_until_ns, to + (LARGE_PAUSE_NS << slow),
			      memory_order_relaxed);
	atomic_store_explicit(&large->slow, MIN(slow + 1, LARGE_PAUSE_MAX), memory_order_relaxed);
}

/* The host makes no huge page zero that one write fills. */
static int write_huge(struct pgalloc *from, u64 src, struct pgalloc *large, struct mem_range dst)
{
	while (dst.start < dst.end) {
		u64 chunk_len;
		void *m = pgalloc_map(&from->file, src, &chunk_len);
		ssize_t n = m ? host_mem_pwrite(large->file.host_fd, m,
						MIN(chunk_len, mem_range_len(dst)), dst.start)
			      : -ENOMEM;

		if (n <= 0)
			return -ENOMEM;
		src += (u64)n;
		dst.start += (u64)n;
	}
	return 0;
}

int pgalloc_copy_large(struct pgalloc *from, struct mem_range src, bool still,
		       struct pgalloc *large, u32 acct_id, struct mem_range *ret)
{
	struct pgalloc_opts opts = {
		.mode = PGALLOC_ALLOCATE,
		.acct_id = acct_id,
		.huge = true,
		.optional = true,
	};
	u64 began = host_clock_ns(CLOCK_MONOTONIC);
	struct mem_range dst;
	int err;

	if (from->file.disk_backed || large_pauses(large, began) ||
	    !pgalloc_all_committed(from, src, still))
		return -ENODATA;
	err = pgalloc_allocate(large, mem_range_len(src), &opts, &dst);
	if (err < 0)
		return err;
	err = write_huge(from, src.start, large, dst);
	if (err < 0) {
		large->file.ops->put(&large->file, dst);
		return err;
	}
	large_learn(large, began, host_clock_ns(CLOCK_MONOTONIC));
	known_set_there(&large->known, dst);
	atomic_fetch_add_explicit(&large->copied, mem_range_len(dst), memory_order_relaxed);
	*ret = dst;
	return 0;
}
