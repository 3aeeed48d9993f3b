/* What of a memory file exists; bytes in and out of it, without committing what is only read. */
#include "pgalloc/pgalloc_impl.h"

#include "base/host_mem.h"
#include "base/host_sync.h"
#include "base/safecopy.h"

#include <string.h>

/* Pages looked at in one mincore: PGALLOC_LOOK_FIRST, then four times as many for as long as all
 * are there. */
#define RESIDENT_WINDOW 512

/*
 * The run of resident pages from r.start on, by mincore on the sentry's own mapping, which asks the
 * page cache and touches nothing. SEEK_HOLE would walk to the end of the data, however far behind r
 * that is. False when the first page is not resident: absent, or swapped out.
 */
static bool resident_run(struct pgalloc *p, struct mem_range r, struct mem_range *ret)
{
	unsigned char vec[RESIDENT_WINDOW];
	u64 chunk_len, count, n = 0, step = PGALLOC_LOOK_FIRST;
	char *m = p->file.disk_backed ? NULL : pgalloc_map(&p->file, r.start, &chunk_len);

	if (!m)
		return false;
	count = MIN(MIN(mem_range_len(r), chunk_len) >> PAGE_SHIFT, RESIDENT_WINDOW);
	for (u64 asked = 0; n == asked && asked < count; step *= 4) {
		u64 ask = MIN(step, count - asked);

		if (host_mincore(m + (asked << PAGE_SHIFT), ask << PAGE_SHIFT, vec) < 0)
			return false;
		asked += ask;
		for (u64 i = 0; i < ask && (vec[i] & 1); i++)
			n++;
	}
	*ret = (struct mem_range){ r.start, r.start + (n << PAGE_SHIFT) };
	return n > 0;
}

/* The first committed run in r, of which nothing is known. */
static bool ask_host(struct pgalloc *p, struct mem_range r, struct mem_range *ret)
{
	s64 start, end;

	if (resident_run(p, r, ret))
		return true;
	start = host_mem_seek_data(p->file.host_fd, r.start);
	if (start == -EINVAL || start == -EOPNOTSUPP)
		start = (s64)r.start; /* a file system that cannot tell: all may be data */
	if (start < 0 || (u64)start >= r.end)
		return false;
	if (resident_run(p, (struct mem_range){ (u64)start, r.end }, ret))
		return true;
	/* On a memory file that page is swapped out: it alone is the answer, the next call goes on
	 * from there. */
	end = p->file.disk_backed ? host_mem_seek_hole(p->file.host_fd, (u64)start)
				  : start + (s64)PAGE_SIZE;
	if (end < 0 || (u64)end > r.end)
		end = (s64)r.end;
	/* Disk blocks may be smaller than a page. */
	*ret = (struct mem_range){ MAX(page_down((u64)start), r.start),
				   MIN(page_up_nofail((u64)end), r.end) };
	return ret->start < ret->end;
}

#define SWAP_CHECK_NS 1000000000ULL

/* The host has nothing to swap out to, or had not a moment ago. */
static bool no_swap_lately(void)
{
	static _Atomic u64 seen_ns;
	u64 now = host_clock_ns(CLOCK_MONOTONIC);

	if (now - atomic_load_explicit(&seen_ns, memory_order_relaxed) < SWAP_CHECK_NS)
		return true;
	if (host_swap_bytes() != 0)
		return false;
	atomic_store_explicit(&seen_ns, now, memory_order_relaxed);
	return true;
}

/*
 * Finds out about the first *pages of r at once, where nobody can commit one; more of them the next
 * time. mincore does not tell a page that is swapped out from a hole: where there is swap, the host
 * is asked run by run. False: not found out.
 */
static bool scan_still(struct pgalloc *p, struct mem_range r, u64 *pages)
{
	unsigned char vec[RESIDENT_WINDOW];
	u64 chunk_len, count, there = 0;
	char *m = pgalloc_map(&p->file, r.start, &chunk_len);

	if (!m || !no_swap_lately())
		return false;
	count = MIN(MIN(mem_range_len(r), chunk_len) >> PAGE_SHIFT, *pages);
	*pages = MIN(*pages * 4, RESIDENT_WINDOW);
	if (host_mincore(m, count << PAGE_SHIFT, vec) < 0)
		return false;
	for (u64 i = 0; i < count; i++)
		there += vec[i] & 1;
	if (there < count && host_swap_bytes() != 0)
		return false;
	for (u64 i = 0, n; i < count; i += n) {
		for (n = 1; i + n < count && ((vec[i + n] ^ vec[i]) & 1) == 0; n++)
			;
		if (vec[i] & 1)
			known_set_there(&p->known,
					(struct mem_range){ r.start + (i << PAGE_SHIFT),
							    r.start + ((i + n) << PAGE_SHIFT) });
	}
	known_set_still(&p->known, (struct mem_range){ r.start, r.start + (count << PAGE_SHIFT) });
	return true;
}

static enum known_state known_or_scan(struct pgalloc *p, struct mem_range r, u64 *pages,
				      struct mem_range *ret_run)
{
	enum known_state state = known_run(&p->known, r, ret_run);

	if (state == KNOWN_NOTHING && pages && scan_still(p, *ret_run, pages))
		state = known_run(&p->known, r, ret_run);
	return state;
}

bool pgalloc_next_run(struct pgalloc *p, struct mem_range r, u64 *still_pages,
		      struct mem_range *ret)
{
	struct mem_range part;

	if (p->file.disk_backed)
		return r.start < r.end && ask_host(p, r, ret);
	for (; r.start < r.end; r.start = part.end) {
		bool found;

		switch (known_or_scan(p, r, still_pages, &part)) {
		case KNOWN_THERE: *ret = part; return true;
		case KNOWN_HOLE: continue;
		case KNOWN_NOTHING: break;
		}
		found = ask_host(p, part, ret);
		if (still_pages)
			known_set_still(
				&p->known,
				(struct mem_range){ part.start, found ? ret->start : part.end });
		if (!found)
			continue;
		known_set_there(&p->known, *ret);
		return true;
	}
	return false;
}

bool pgalloc_next_committed(struct pgalloc *p, struct mem_range r, struct mem_range *ret)
{
	return pgalloc_next_run(p, r, NULL, ret);
}

bool pgalloc_next_committed_still(struct pgalloc *p, struct mem_range r, struct mem_range *ret)
{
	u64 pages = PGALLOC_LOOK_FIRST;

	return pgalloc_next_run(p, r, &pages, ret);
}

static int copy_out_of_mapping(struct pgalloc *p, u64 offset, char *dst, size_t len)
{
	while (len) {
		u64 chunk_len, n;
		void *m = pgalloc_map(&p->file, offset, &chunk_len);

		if (!m)
			return -EFAULT;
		n = MIN(len, chunk_len);
		if (safe_memcpy(dst, m, n))
			return -EFAULT;
		offset += n;
		dst += n;
		len -= n;
	}
	return 0;
}

int pgalloc_read(struct pgalloc *p, u64 offset, void *dst_, size_t len)
{
	char *dst = dst_;
	u64 end = offset + len;

	if (p->file.disk_backed) {
		ssize_t n = host_mem_pread(p->file.host_fd, dst, len, offset);

		if (n < 0)
			return (int)n;
		memset(dst + n, 0, len - (size_t)n);
		return 0;
	}
	while (offset < end) {
		struct mem_range pages = { page_down(offset), page_up_nofail(end) }, run;
		u64 from = end, to = end;
		int err;

		if (pgalloc_next_committed(p, pages, &run)) {
			from = MAX(run.start, offset);
			to = MIN(run.end, end);
		}
		memset(dst, 0, from - offset);
		dst += from - offset;
		err = copy_out_of_mapping(p, from, dst, to - from);
		if (err < 0)
			return err;
		dst += to - from;
		offset = to;
	}
	return 0;
}

int pgalloc_write(struct pgalloc *p, u64 offset, const void *src_, size_t len)
{
	const char *src = src_;

	if (p->file.disk_backed) {
		ssize_t n = host_mem_pwrite(p->file.host_fd, src, len, offset);

		return n < 0 ? (int)n : (size_t)n < len ? -ENOSPC : 0;
	}
	while (len) {
		u64 chunk_len, n;
		void *m = pgalloc_map(&p->file, offset, &chunk_len);

		if (!m)
			return -EFAULT;
		n = MIN(len, chunk_len);
		if (safe_memcpy(m, src, n))
			return -EFAULT;
		offset += n;
		src += n;
		len -= n;
	}
	return 0;
}
