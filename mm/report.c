/* What /proc shows: statistics and one vma at a time. */
#include "mm/mm_impl.h"

#include <stdio.h>
#include <string.h>

static bool next_committed(const struct pma *p, struct pgalloc *file, struct mem_range in,
			   struct mem_range *ret)
{
	if (p->owned && p->cow)
		return pgalloc_next_committed_still(file, in, ret);
	return pgalloc_next_committed(file, in, ret);
}

/* Calls fn for each committed run of p's part [start, end) with its reference count. */
static void each_committed(const struct pma *p, u64 start, u64 end,
			   void (*fn)(void *arg, const struct pma *p, struct mem_range r, u32 refs),
			   void *arg)
{
	struct pgalloc *file = p->file ? pgalloc_of(p->file) : NULL;
	struct mem_range rest, run, same;

	if (!file)
		return;
	rest = pma_subrange(p, start, end);
	while (next_committed(p, file, rest, &run)) {
		rest.start = run.end;
		while (run.start < run.end) {
			u32 refs = pgalloc_refs(file, run, &same);

			fn(arg, p, same, refs);
			run.start = same.end;
		}
	}
}

/* ---- statistics ---- */

struct rss {
	u64 anon, file, shmem;
	bool shmem_vma;
};

/* A private mapping's pages of a file come from a cache that has filled them: no need to ask the
 * host. */
static bool surely_committed(const struct vma *v, const struct pma *p)
{
	return p->file && !p->owned && !(v->flags & VMA_SHARED);
}

static void add_rss(void *arg, const struct pma *p, struct mem_range r, u32 refs)
{
	struct rss *rss = arg;
	u64 len = mem_range_len(r);

	if (p->owned)
		rss->anon += len;
	else if (rss->shmem_vma)
		rss->shmem += len;
	else
		rss->file += len;
}

/* Memory that has no file system behind it (memfd, shared anonymous, tmpfs): device major 0. */
static bool is_shmem(const struct vma *v)
{
	u32 major = 0, minor = 0;
	u64 ino = 0;

	if (!v->mappable || !(v->flags & VMA_SHARED) || !v->mappable->ops->identify)
		return false;
	v->mappable->ops->identify(v->mappable, &major, &minor, &ino);
	return major == 0;
}

/* Anonymous memory in pieces of this size is mostly there when any of it is. */
#define PIECE (64UL << 10)

/* roughly: small pieces are not asked for, but taken to be there. */
static void get_rss(struct mm *mm, bool roughly, struct rss *ret)
{
	struct vma *v = NULL;
	struct pma *p;

	for (u64 at = 0; (p = pma_set_seek(&mm->pmas, at));) {
		u64 end;

		at = MAX(at, p->start);
		if (!v || v->end <= at) {
			v = vma_set_seek(&mm->vmas, at);
			ret->shmem_vma = v && is_shmem(v);
		}
		if (!v || v->start >= p->end) {
			at = p->end;
			continue;
		}
		at = MAX(at, v->start);
		end = MIN(p->end, v->end);
		if (surely_committed(v, p))
			ret->file += end - at;
		else if (roughly && p->file && p->owned && end - at <= PIECE)
			ret->anon += end - at;
		else if (!(v->flags & VMA_RESERVED))
			each_committed(p, at, end, add_rss, ret);
		at = end;
	}
	mm->peak_rss = MAX(mm->peak_rss, ret->anon + ret->file + ret->shmem);
}

void mm_get_stats(struct mm *mm, struct mm_stats *ret)
{
	struct mm_stats s = { 0 };
	struct rss rss = { 0 };
	struct vma *v;

	rwlock_rdlock(&mm->map_lock);
	mutex_lock(&mm->active_lock);
	for (v = vma_set_first(&mm->vmas); v; v = vma_next(&mm->vmas, v)) {
		if (v->flags & VMA_GROWSDOWN)
			s.stack += vma_len(v);
		else if ((v->prot & (PROT_WRITE | PROT_EXEC)) == PROT_EXEC)
			s.text += vma_len(v);
	}
	get_rss(mm, false, &rss);
	s.total_vm = mm->total;
	s.data = mm->data;
	s.locked = mm->locked;
	s.rss_anon = rss.anon;
	s.rss_file = rss.file;
	s.rss_shmem = rss.shmem;
	s.map_count = vma_set_count(&mm->vmas);
	s.minor_faults = mm->minor_faults;
	s.major_faults = mm->major_faults;
	s.peak_rss = mm->peak_rss;
	s.peak_vm = mm->peak_vm;
	mutex_unlock(&mm->active_lock);
	rwlock_unlock(&mm->map_lock);
	*ret = s;
}

u64 mm_last_peak_rss(struct mm *mm)
{
	struct rss rss = { 0 };

	MUTEX_GUARD(&mm->active_lock);
	if (atomic_load(&mm->users) == 1)
		get_rss(mm, true, &rss);
	return mm->peak_rss;
}

/* ---- one vma ---- */

static void add_usage(void *arg, const struct pma *p, struct mem_range r, u32 refs)
{
	struct mm_vma_info *i = arg;
	u64 len = mem_range_len(r);
	/* A file's page is also held by its cache. */
	u32 users = p->owned ? refs : refs > 1 ? refs - 1 : 1;
	bool dirty = p->owned || p->writable;

	if (!users)
		users = 1;
	i->rss += len;
	i->referenced += len;
	i->pss += len / users;
	if (p->owned)
		i->anonymous += len;
	if (users > 1) {
		*(dirty ? &i->shared_dirty : &i->shared_clean) += len;
	} else {
		*(dirty ? &i->private_dirty : &i->private_clean) += len;
	}
}

static void name_of(const struct mm *mm, const struct vma *v, char *buf, size_t size)
{
	if (v->anon_name)
		snprintf(buf, size, v->mappable ? "[anon_shmem:%s]" : "[anon:%s]",
			 v->anon_name->text);
	else if (v->name)
		snprintf(buf, size, "%s", v->name->text);
	else if (!v->mappable && mm->marks.start_brk && v->start <= mm->marks.brk &&
		 v->end >= mm->marks.start_brk)
		snprintf(buf, size, "[heap]");
	else if (v->flags & VMA_STACK)
		snprintf(buf, size, "[stack]");
	else
		buf[0] = '\0';
}

/* Linux's show_smap_vma_flags; in the order of its bits. */
static void flags_text(const struct vma *v, char *buf, size_t size)
{
	const struct {
		bool on;
		char text[4];
	} all[] = {
		{ v->prot & PROT_READ, " rd" },
		{ v->prot & PROT_WRITE, " wr" },
		{ v->prot & PROT_EXEC, " ex" },
		{ v->flags & VMA_SHARED && v->max_prot & PROT_WRITE, " sh" },
		{ v->max_prot & PROT_READ, " mr" },
		{ v->max_prot & PROT_WRITE, " mw" },
		{ v->max_prot & PROT_EXEC, " me" },
		{ v->flags & VMA_SHARED, " ms" },
		{ v->flags & VMA_GROWSDOWN, " gd" },
		{ v->flags & VMA_LOCKED, " lo" },
		{ v->flags & VMA_SEQUENTIAL, " sr" },
		{ v->flags & VMA_RANDOM, " rr" },
		{ v->flags & VMA_DONTFORK, " dc" },
		{ v->flags & VMA_RESERVED, " de" },
		{ v->flags & VMA_LOCKONFAULT, " lf" },
		{ v->flags & VMA_ACCOUNT, " ac" },
		{ v->flags & VMA_NORESERVE, " nr" },
		{ v->flags & VMA_WIPEONFORK, " wf" },
		{ v->flags & VMA_DONTDUMP, " dd" },
		{ v->flags & VMA_HUGE, " hg" },
		{ v->flags & VMA_NOHUGE, " nh" },
		{ v->flags & VMA_DROPPABLE, " dp" },
		{ v->flags & VMA_SEALED, " sl" },
	};

	buf[0] = '\0';
	for (size_t i = 0, len = 0; i < ARRAY_SIZE(all) && len + 3 < size; i++) {
		if (!all[i].on)
			continue;
		memcpy(buf + len, all[i].text, sizeof(all[i].text));
		len += 3;
	}
}

bool mm_vma_at_or_after(struct mm *mm, u64 addr, bool with_usage, struct mm_vma_info *ret)
{
	struct vma *v;
	struct pma *p;

	rwlock_rdlock(&mm->map_lock);
	v = vma_set_seek(&mm->vmas, addr);
	if (!v) {
		rwlock_unlock(&mm->map_lock);
		return false;
	}
	memset(ret, 0, offsetof(struct mm_vma_info, name));
	memset(&ret->rss, 0, sizeof(*ret) - offsetof(struct mm_vma_info, rss));
	ret->start = v->start;
	ret->end = v->end;
	ret->prot = v->prot;
	ret->shared = v->flags & VMA_SHARED;
	ret->locked = v->flags & VMA_LOCKED;
	if (v->mappable) {
		ret->offset = v->offset;
		if (v->mappable->ops->identify)
			v->mappable->ops->identify(v->mappable, &ret->dev_major, &ret->dev_minor,
						   &ret->ino);
	}
	flags_text(v, ret->vm_flags, sizeof(ret->vm_flags));
	name_of(mm, v, ret->name, sizeof(ret->name));
	if (with_usage && !(v->flags & VMA_RESERVED)) {
		mutex_lock(&mm->active_lock);
		p = pma_set_seek(&mm->pmas, v->start);
		for (; p && p->start < v->end; p = pma_next(p))
			each_committed(p, MAX(p->start, v->start), MIN(p->end, v->end), add_usage,
				       ret);
		mutex_unlock(&mm->active_lock);
	}
	rwlock_unlock(&mm->map_lock);
	return true;
}

/* ---- single pages ---- */

struct page_flags {
	u64 addr; /* of flags[0] */
	u8 *flags;
	bool shared_vma;
};

static void mark_pages(void *arg, const struct pma *p, struct mem_range r, u32 refs)
{
	const struct page_flags *f = arg;
	u8 flags = MM_PAGE_PRESENT;

	/* A file's page is also held by its cache. */
	if (!p->owned || f->shared_vma)
		flags |= MM_PAGE_FILE;
	if (refs <= (p->owned ? 1 : 2))
		flags |= MM_PAGE_EXCLUSIVE;
	memset(f->flags + ((p->start + (r.start - p->offset) - f->addr) >> PAGE_SHIFT), flags,
	       mem_range_len(r) >> PAGE_SHIFT);
}

void mm_page_flags(struct mm *mm, u64 addr, size_t count, u8 *ret_flags)
{
	u64 end = addr + (count << PAGE_SHIFT);
	struct page_flags f = { .addr = addr, .flags = ret_flags };
	struct pma *p;
	struct vma *v;

	memset(ret_flags, 0, count);
	MUTEX_GUARD(&mm->active_lock);
	for (v = vma_set_seek(&mm->vmas, addr); v && v->start < end; v = vma_next(&mm->vmas, v)) {
		u64 low = MAX(v->start, addr), high = MIN(v->end, end);

		if (v->flags & VMA_RESERVED)
			continue;
		f.shared_vma = v->flags & VMA_SHARED;
		for (p = pma_set_seek(&mm->pmas, low); p && p->start < high; p = pma_next(p))
			each_committed(p, MAX(p->start, low), MIN(p->end, high), mark_pages, &f);
	}
}
