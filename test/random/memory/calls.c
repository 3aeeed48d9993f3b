/* Calls on the arena, and what they do to the shadow. */
#include "test/random/memory/shadow.h"

#include <errno.h>
#include <sys/mman.h>
#include <string.h>

/* ---- mmap, munmap, mprotect ---- */

static int random_prot(void)
{
	static const int prots[] = { PROT_READ, PROT_NONE };

	return random_below(&me->rs, 5) ? PROT_READ | PROT_WRITE : prots[random_below(&me->rs, 2)];
}

static void *map_pages(struct range r, const struct page *p)
{
	int flags = p->kind == SHARED ? MAP_SHARED : MAP_PRIVATE, fd = -1;
	size_t size = r.count * PAGE, offset = 0;

	if (p->kind == SHARED && p->object >= MEMFDS)
		return mremap(object_memory(p->object) + p->object_page * PAGE, 0, size,
			      MREMAP_MAYMOVE | MREMAP_FIXED, at(r.first));
	if (p->kind == ANON) {
		flags |= MAP_ANONYMOUS | (random_below(&me->rs, 2) ? MAP_NORESERVE : 0);
	} else {
		fd = object_descriptor(p->object);
		offset = p->object_page * PAGE;
	}
	/* Populating writes to private pages: it would copy the object's. */
	if (p->kind != PRIVATE && !random_below(&me->rs, 8))
		flags |= MAP_POPULATE;
	flags |= random_below(&me->rs, 8) || !unmapped(r.first, r.count) ? MAP_FIXED
									 : MAP_FIXED_NOREPLACE;
	return mmap(at(r.first), size, p->prot, flags, fd, (off_t)offset);
}

void op_map(void)
{
	struct page p = { .prot = (uint8_t)random_prot() };
	struct range r = pick(40);

	me->rs.doing = "map";
	p.kind = random_below(&me->rs, 3) ? ANON : 1 + random_below(&me->rs, 2);
	if (p.kind != ANON) {
		p.object = random_below(&me->rs, p.kind == SHARED ? OBJECTS : MEMFDS);
		p.object_page = random_below(&me->rs, OBJECT_PAGES);
		if (r.count > OBJECT_PAGES - p.object_page)
			r.count = OBJECT_PAGES - p.object_page;
		if (p.object >= MEMFDS)
			p.prot = PROT_READ | PROT_WRITE;
	}
	if (!unmapped(r.first, r.count) && !random_below(&me->rs, 8)) {
		void *m = mmap(at(r.first), r.count * PAGE, p.prot,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		EXPECT(&me->rs, m == MAP_FAILED && errno == EEXIST);
	}
	EXPECT(&me->rs, map_pages(r, &p) == at(r.first));
	cut_range(r);
	p.run = new_run();
	set_fresh(r, p);
}

void op_unmap(void)
{
	struct range r = pick(16);

	me->rs.doing = "unmap";
	EXPECT_EQ(&me->rs, munmap(at(r.first), r.count * PAGE), 0);
	cut_range(r);
	forget(r.first, r.count);
}

void op_protect(void)
{
	struct range r = pick(24);
	int prot = random_prot(), expected = 0;

	me->rs.doing = "mprotect";
	cut_range(r);
	for (size_t i = r.first; i < r.first + r.count && !expected; i++) {
		if (shadow[i].run)
			shadow[i].prot = (uint8_t)prot;
		else
			expected = -1;
	}
	EXPECT_EQ(&me->rs, mprotect(at(r.first), r.count * PAGE, prot), expected);
	if (expected)
		EXPECT_EQ(&me->rs, errno, ENOMEM);
}

/* ---- madvise ---- */

/* What the advice does to a mapped page; the error that Linux gives for it. */
static int advise_page(struct page *p, int advice)
{
	if ((advice == MADV_FREE || advice == MADV_WIPEONFORK) && p->kind != ANON)
		return EINVAL;
	switch (advice) {
	case MADV_FREE: p->lazy = true; break;
	case MADV_DONTNEED:
		if (p->kind == ANON)
			p->value[0] = p->value[1] = 0;
		p->own = p->lazy = false;
		break;
	case MADV_WIPEONFORK: p->wipe = true; break;
	case MADV_KEEPONFORK: p->wipe = false; break;
	case MADV_DONTFORK: p->dontfork = true; break;
	case MADV_DOFORK: p->dontfork = false; break;
	default: break;
	}
	return 0;
}

/* Vma by vma: pages that are not mapped are passed over, an error ends it. */
void op_advise(void)
{
	static const int advices[] = { MADV_DONTNEED, MADV_DONTNEED,   MADV_FREE,
				       MADV_DONTFORK, MADV_DOFORK,     MADV_WIPEONFORK,
				       MADV_COLD,     MADV_KEEPONFORK, MADV_PAGEOUT };
	int advice = advices[random_below(&me->rs, sizeof(advices) / sizeof(advices[0]))];
	struct range r = pick(24);
	int hole = 0, err = 0;

	me->rs.doing = "madvise";
	cut_range(r);
	for (size_t i = r.first; i < r.first + r.count && !err; i++) {
		if (shadow[i].run)
			err = advise_page(&shadow[i], advice);
		else
			hole = ENOMEM;
	}
	err = err ? err : hole;
	EXPECT_EQ(&me->rs, madvise(at(r.first), r.count * PAGE, advice), err ? -1 : 0);
	if (err)
		EXPECT_EQ(&me->rs, errno, err);
}

void op_populate(void)
{
	struct range r = pick(24);
	bool write = random_below(&me->rs, 2), allowed = true;
	int ret;

	me->rs.doing = "MADV_POPULATE";
	for (size_t i = r.first; i < r.first + r.count; i++) {
		allowed &= shadow[i].run && (shadow[i].prot & (write ? PROT_WRITE : PROT_READ));
		if (write && shadow[i].kind == PRIVATE)
			return; /* what would be copied, and when, is unknown */
	}
	ret = madvise(at(r.first), r.count * PAGE,
		      write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
	EXPECT_EQ(&me->rs, ret, allowed ? 0 : -1);
}

/* MADV_REMOVE: zeros in the object, for all who map it. */
void op_remove(void)
{
	struct range r = in_one_run(pick(8));
	const struct page *p = &shadow[r.first];
	struct object *o;
	int ret;

	me->rs.doing = "MADV_REMOVE";
	if (!p->run || (p->kind == SHARED && !(p->prot & PROT_WRITE)))
		return;
	if (p->kind != SHARED) {
		EXPECT_EQ(&me->rs, madvise(at(r.first), r.count * PAGE, MADV_REMOVE), -1);
		EXPECT_EQ(&me->rs, errno, p->kind == ANON ? EINVAL : EACCES);
		return;
	}
	o = lock_object(p);
	ret = madvise(at(r.first), r.count * PAGE, MADV_REMOVE);
	memset(o->value[p->object_page], 0, r.count * sizeof(o->value[0]));
	unlock_object(o);
	EXPECT_EQ(&me->rs, ret, 0);
}

/* ---- mremap ---- */

/* Moves the shadow of n pages; what is behind them at the target goes on fresh until `size`. */
static void shadow_moved(struct range from, size_t to, size_t size, bool keep_source)
{
	struct page pages[PAGES], source;
	size_t n = from.count < size ? from.count : size;

	memcpy(pages, &shadow[from.first], from.count * sizeof(pages[0]));
	source = pages[0];
	cut_range(from);
	if (keep_source) {
		source.run = new_run();
		set_fresh(from, source);
	} else {
		forget(from.first, from.count);
	}
	cut_range((struct range){ to, size });
	pages[0].run = new_run();
	set_fresh((struct range){ to, size }, pages[0]);
	for (size_t i = 0; i < n; i++) {
		shadow[to + i] = pages[i];
		shadow[to + i].run = pages[0].run;
	}
}

static bool overlap(size_t a, size_t na, size_t b, size_t nb)
{
	return a < b + nb && b < a + na;
}

static void remap_fixed(struct range from, size_t size)
{
	size_t to = pick(1).first;
	bool keep =
		shadow[from.first].kind == ANON && size == from.count && !random_below(&me->rs, 4);
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED | (keep ? MREMAP_DONTUNMAP : 0);
	void *got;

	if (size > me->first + me->count - to)
		return;
	me->rs.doing = keep ? "mremap DONTUNMAP" : "mremap to a place";
	got = mremap(at(from.first), from.count * PAGE, size * PAGE, flags, at(to));
	if (overlap(from.first, from.count, to, size)) {
		EXPECT(&me->rs, got == MAP_FAILED && errno == EINVAL);
		return;
	}
	EXPECT(&me->rs, got == at(to));
	shadow_moved(from, to, size, keep);
}

/* Larger or smaller where it is; refused when something is in the way. */
static void remap_in_place(struct range from, size_t size)
{
	size_t end = from.first + from.count;
	struct page more = shadow[end - 1];
	void *got;

	me->rs.doing = "mremap in place";
	if (size > me->first + me->count - from.first)
		return;
	got = mremap(at(from.first), from.count * PAGE, size * PAGE, 0);
	if (size > from.count && !unmapped(end, size - from.count)) {
		EXPECT(&me->rs, got == MAP_FAILED && errno == ENOMEM);
		return;
	}
	EXPECT(&me->rs, got == at(from.first));
	if (size > from.count) {
		more.object_page++;
		set_fresh((struct range){ end, size - from.count }, more);
	} else {
		cut(from.first + size);
		cut(end);
		forget(from.first + size, from.count - size);
	}
}

/* Larger, wherever the kernel likes; from there back into the arena. */
static void remap_anywhere(struct range from, size_t size)
{
	char *got;

	me->rs.doing = "mremap to anywhere";
	if (size <= from.count || size > me->first + me->count - from.first)
		return;
	got = mremap(at(from.first), from.count * PAGE, size * PAGE, MREMAP_MAYMOVE);
	EXPECT(&me->rs, got != MAP_FAILED);
	if (got != at(from.first))
		EXPECT(&me->rs, mremap(got, size * PAGE, size * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				       at(from.first)) == at(from.first));
	if (got == at(from.first))
		EXPECT(&me->rs, unmapped(from.first + from.count, size - from.count));
	shadow_moved(from, from.first, size, false);
}

void op_remap(void)
{
	struct range from = in_one_run(pick(20));
	const struct page *p = &shadow[from.first];
	size_t size = random_below(&me->rs, 2) ? from.count : 1 + random_below(&me->rs, 24);

	if (!p->run) {
		me->rs.doing = "mremap of nothing";
		EXPECT(&me->rs, mremap(at(from.first), PAGE, PAGE, MREMAP_MAYMOVE) == MAP_FAILED &&
					errno == EFAULT);
		return;
	}
	if (p->kind != ANON && size > OBJECT_PAGES - p->object_page)
		size = OBJECT_PAGES - p->object_page;
	switch (random_below(&me->rs, 4)) {
	case 0: remap_in_place(from, size); break;
	case 1: remap_anywhere(from, size); break;
	default: remap_fixed(from, size);
	}
}
