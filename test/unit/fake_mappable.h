/*
 * test/unit/fake_mappable.h: a file of pages in memory that can be mapped and
 * truncated, with the behaviour base/mappable.h asks for.
 */
#ifndef MINISENTRY_TEST_FAKE_MAPPABLE_H
#define MINISENTRY_TEST_FAKE_MAPPABLE_H

#include "base/lock.h"
#include "base/mappable.h"
#include "pgalloc/pgalloc.h"

#include <stdlib.h>

#define FAKE_FILE_PAGES 64

struct fake_file {
	struct mappable m;
	struct mutex lock;
	int refs;
	struct pgalloc *p;
	u64 size; /* bytes, page-aligned */
	bool present[FAKE_FILE_PAGES];
	u64 page[FAKE_FILE_PAGES]; /* memory file offsets */
	struct list mappings;
	int mapping_count;
	bool small_answers; /* translate one page at a time, read-only for reads */
};

static struct fake_file *fake_file_of(struct mappable *m)
{
	return container_of(m, struct fake_file, m);
}

static void fake_file_get(struct mappable *m)
{
	__atomic_add_fetch(&fake_file_of(m)->refs, 1, __ATOMIC_SEQ_CST);
}

static void fake_file_drop(struct fake_file *f, u64 from)
{
	for (u64 i = from; i < FAKE_FILE_PAGES; i++) {
		if (f->present[i])
			memfile_put(pgalloc_file(f->p),
				    (struct mem_range){ f->page[i], f->page[i] + PAGE_SIZE });
		f->present[i] = false;
	}
}

static void fake_file_put(struct mappable *m)
{
	struct fake_file *f = fake_file_of(m);

	if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_SEQ_CST))
		return;
	if (!list_empty(&f->mappings))
		abort();
	fake_file_drop(f, 0);
	free(f);
}

static int fake_file_page(struct fake_file *f, u64 index)
{
	struct pgalloc_opts o = { .mode = PGALLOC_COMMIT };
	struct mem_range r;
	int err;

	if (f->present[index])
		return 0;
	if (index && f->present[index - 1])
		o.hint = f->page[index - 1] + PAGE_SIZE;
	err = pgalloc_allocate(f->p, PAGE_SIZE, &o, &r);
	if (err < 0)
		return err;
	f->page[index] = r.start;
	f->present[index] = true;
	return 0;
}

static int fake_translate_fail;
static int fake_file_translate(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
			       bool for_write, struct translation *ret)
{
	struct fake_file *f = fake_file_of(m);
	u64 first = offset / PAGE_SIZE, last = first + 1;
	int err;

	if (want_start > offset || want_end <= offset)
		abort();
	if (fake_translate_fail) {
		fake_translate_fail--;
		return -ENOMEM;
	}
	mutex_lock(&f->lock);
	if (offset >= f->size) {
		mutex_unlock(&f->lock);
		return -EFAULT;
	}
	err = fake_file_page(f, first);
	while (err == 0 && !f->small_answers && last * PAGE_SIZE < MIN(want_end, f->size)) {
		if (fake_file_page(f, last) < 0 || f->page[last] != f->page[last - 1] + PAGE_SIZE)
			break;
		last++;
	}
	if (err == 0) {
		*ret = (struct translation){
			.file = pgalloc_file(f->p),
			.offset = first * PAGE_SIZE,
			.range = { f->page[first], f->page[first] + (last - first) * PAGE_SIZE },
			.writable = for_write || !f->small_answers,
		};
		memfile_get(ret->file, ret->range);
	}
	mutex_unlock(&f->lock);
	return err;
}

static bool fake_file_resident(struct mappable *m, u64 start, u64 end, u8 *vec)
{
	struct fake_file *f = fake_file_of(m);

	mutex_lock(&f->lock);
	for (u64 at = start; at < MIN(end, f->size); at += PAGE_SIZE)
		if (f->present[at / PAGE_SIZE])
			vec[(at - start) / PAGE_SIZE] = 1;
	mutex_unlock(&f->lock);
	return false;
}

/* Has at hand what is present. */
static int fake_file_peek(struct mappable *m, u64 offset, u64 want_start, u64 want_end,
			  struct translation *ret)
{
	struct fake_file *f = fake_file_of(m);
	u64 index = offset / PAGE_SIZE;
	int err = -EAGAIN;

	mutex_lock(&f->lock);
	if (offset < f->size && f->present[index]) {
		*ret = (struct translation){
			.file = pgalloc_file(f->p),
			.offset = index * PAGE_SIZE,
			.range = { f->page[index], f->page[index] + PAGE_SIZE },
		};
		memfile_get(ret->file, ret->range);
		err = 0;
	}
	mutex_unlock(&f->lock);
	return err;
}

static int fake_file_add(struct mappable *m, struct mapping *mapping)
{
	struct fake_file *f = fake_file_of(m);

	mutex_lock(&f->lock);
	list_push_back(&f->mappings, &mapping->node);
	f->mapping_count++;
	mutex_unlock(&f->lock);
	return 0;
}

static void fake_file_remove(struct mappable *m, struct mapping *mapping)
{
	struct fake_file *f = fake_file_of(m);

	mutex_lock(&f->lock);
	list_del(&mapping->node);
	f->mapping_count--;
	mutex_unlock(&f->lock);
}

static void fake_file_identify(struct mappable *m, u32 *major, u32 *minor, u64 *ino)
{
	*major = 8;
	*minor = 1;
	*ino = 42;
}

static const struct mappable_ops fake_file_ops = {
	.get = fake_file_get,
	.put = fake_file_put,
	.translate = fake_file_translate,
	.resident = fake_file_resident,
	.peek = fake_file_peek,
	.add = fake_file_add,
	.remove = fake_file_remove,
	.identify = fake_file_identify,
};

static struct fake_file *fake_file_new(struct pgalloc *p, u64 size)
{
	struct fake_file *f = calloc(1, sizeof(*f));

	f->m.ops = &fake_file_ops;
	mutex_init(&f->lock, RANK_MAPPABLE, "fake file");
	f->refs = 1;
	f->p = p;
	f->size = size;
	list_init(&f->mappings);
	return f;
}

static __attribute__((unused)) void fake_file_truncate(struct fake_file *f, u64 size)
{
	struct mapping *held[256], *m;
	int n = 0;

	mutex_lock(&f->lock);
	f->size = size;
	list_for_each (m, &f->mappings, node)
		if (n < 256 && m->tryget(m))
			held[n++] = m;
	mutex_unlock(&f->lock);
	for (int i = 0; i < n; i++) {
		held[i]->invalidate(held[i], size, UINT64_MAX, true);
		held[i]->put(held[i]);
	}
	mutex_lock(&f->lock);
	fake_file_drop(f, size / PAGE_SIZE);
	mutex_unlock(&f->lock);
}

#endif
