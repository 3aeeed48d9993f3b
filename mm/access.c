/*
 * Guest memory for the sentry: copies, pins, futex words.
 *
 * A *span* is the longest stretch from an address on that the sentry can reach
 * through one pointer. It is used under active_lock, or pinned. The last few are
 * remembered in mm->spans until the vma or the pma set changes.
 */
#include "mm/mm_impl.h"

#include "base/host_mem.h"
#include "base/safecopy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* Reads longer than this look for holes first, so that reading them commits nothing. */
#define HOLE_CHECK_SIZE (2 * PAGE_SIZE)
/* What is fetched of a string at first. */
#define STRING_FIRST 64UL
/* What stands for untouched anonymous memory when it is read. */
#define ZERO_AREA (1UL << 20)

struct span {
	char *ptr; /* NULL: reads as zero */
	u64 len;
	struct memfile *file;
	u64 offset;
	u64 page, page_end; /* with file: ptr stays good from this page up to there */
};

enum how { HOW_READ, HOW_WRITE, HOW_FORCE_READ, HOW_FORCE_WRITE };

static bool how_writes(enum how how)
{
	return how == HOW_WRITE || how == HOW_FORCE_WRITE;
}

static bool permitted(const struct vma *v, enum how how)
{
	if (v->flags & VMA_RESERVED)
		return false;
	switch (how) {
	case HOW_READ: return v->prot != PROT_NONE;
	case HOW_WRITE: return v->prot & PROT_WRITE;
	case HOW_FORCE_READ: return true;
	case HOW_FORCE_WRITE:
		/* Linux: FOLL_FORCE writes through a private mapping only. */
		return (v->prot & PROT_WRITE) ||
		       (!(v->flags & VMA_SHARED) && (v->max_prot & PROT_WRITE));
	}
	return false;
}

/* Cuts a readable span at the first border between hole and data. */
static void stop_at_hole(struct span *s)
{
	struct mem_range pages = { page_down(s->offset), page_up_nofail(s->offset + s->len) }, run;

	if (s->file->disk_backed)
		return; /* reading a hole of a disk file allocates nothing there */
	if (!pgalloc_next_committed(pgalloc_of(s->file), pages, &run)) {
		s->ptr = NULL;
	} else if (run.start > s->offset) {
		s->ptr = NULL;
		s->len = MIN(s->len, run.start - s->offset);
	} else {
		s->len = MIN(s->len, run.end - s->offset);
	}
}

/*
 * The host's vDSO is no memory of ours, but it is the same code in every process,
 * so the sentry reads its own (a guest may write(2) from there: ld.so prints the
 * vDSO's name). No file: nothing to pin.
 */
static bool vdso_span(struct mm *mm, u64 addr, u64 len, enum how how, struct span *ret)
{
	struct platform_vdso vdso;
	u64 own = getauxval(AT_SYSINFO_EHDR);

	platform_get_vdso(mm->platform, &vdso);
	if (how_writes(how) || !own || addr < vdso.ehdr || addr >= vdso.vdso_end)
		return false;
	*ret = (struct span){
		.ptr = (char *)(own + (addr - vdso.ehdr)),
		.len = MIN(len, vdso.vdso_end - addr),
	};
	return true;
}

/* The span at addr, at most len long. active_lock held. 0, -EFAULT, -ENOMEM, -EAGAIN (grow the
 * stack). */
static int span_at(struct mm *mm, u64 addr, u64 len, enum how how, struct span *ret)
{
	u64 page = page_down(addr), chunk_len;
	struct vma *v;
	struct pma *p;
	int err;

	mutex_assert_held(&mm->active_lock);
	if (addr < mm->min || addr >= mm->max)
		return vdso_span(mm, addr, len, how, ret) ? 0 : -EFAULT;
	v = vma_set_seek(&mm->vmas, addr);
	if (!v)
		return vdso_span(mm, addr, len, how, ret) ? 0 : -EFAULT;
	if (v->flags & VMA_RESERVED && addr >= v->start && vdso_span(mm, addr, len, how, ret))
		return 0;
	if (v->start > addr)
		return v->flags & VMA_GROWSDOWN ? -EAGAIN : -EFAULT;
	if (!permitted(v, how))
		return -EFAULT;
	len = MIN(len, v->end - addr);
	err = backing_resolve_data(mm, v, page, how_writes(how), &p);
	if (err == -ENOMEM)
		mm->starved = true;
	if (err < 0)
		return err;
	if (!p) {
		p = pma_set_seek(&mm->pmas, addr);
		while (p && !p->file && p->start < addr + len)
			p = pma_next(p);
		*ret = (struct span){ .len = p && p->start > addr ? MIN(len, p->start - addr)
								  : len };
		return 0;
	}
	*ret = (struct span){
		.file = p->file,
		.offset = p->offset + (addr - p->start),
		.len = MIN(len, p->end - addr),
	};
	ret->ptr = p->file->ops->map(p->file, ret->offset, &chunk_len);
	if (!ret->ptr)
		return -ENOMEM;
	ret->page = page;
	ret->page_end = MIN(MIN(v->end, p->end), addr + chunk_len);
	ret->len = MIN(ret->len, chunk_len);
	if (!how_writes(how) && ret->len > HOLE_CHECK_SIZE)
		stop_at_hole(ret);
	return 0;
}

/* span_at with stack growth, which needs the lock to be dropped and taken again. */
static int span_get(struct mm *mm, u64 addr, u64 len, enum how how, struct span *ret)
{
	int err = span_at(mm, addr, len, how, ret);

	if (err != -EAGAIN)
		return err;
	mutex_unlock(&mm->active_lock);
	err = mm_grow_down(mm, addr);
	mutex_lock(&mm->active_lock);
	if (err == 0)
		err = span_at(mm, addr, len, how, ret);
	return err == -EAGAIN ? -EFAULT : err;
}

/* ---- remembered spans; active_lock held ---- */

static struct mm_span *span_slot(struct mm *mm, u64 addr)
{
	return &mm->spans[(addr >> 16) % MM_SPANS];
}

/* The sentry address of all of [addr, addr+len), or NULL. Long reads look for holes instead. */
static char *span_recall(struct mm *mm, u64 addr, size_t len, bool write)
{
	struct mm_span *s = span_slot(mm, addr);

	if (mm->spans_generation != mm->vmas.generation + mm->pmas.generation)
		return NULL;
	if (addr < s->start || addr >= s->end || len > s->end - addr)
		return NULL;
	if (write ? !s->writable : len > HOLE_CHECK_SIZE)
		return NULL;
	return s->ptr + (addr - s->start);
}

/* s was found for an ordinary access at addr. */
static void span_remember(struct mm *mm, u64 addr, const struct span *s, bool write)
{
	u64 generation = mm->vmas.generation + mm->pmas.generation;

	if (!s->file || !s->ptr || s->file->disk_backed)
		return;
	if (mm->spans_generation != generation) {
		memset(mm->spans, 0, sizeof(mm->spans));
		mm->spans_generation = generation;
	}
	*span_slot(mm, addr) = (struct mm_span){
		.start = s->page,
		.end = s->page_end,
		.ptr = s->ptr - (addr - s->page),
		.writable = write,
	};
}

/* Bytes of `len` that were moved between p, in guest memory, and buf (NULL: zeros). */
static size_t move(char *p, char *buf, size_t len, bool write)
{
	if (!write)
		return len - safe_memcpy(buf, p, len);
	return len - (buf ? safe_memcpy(p, buf, len) : safe_memzero(p, len));
}

/* Copies as far as it goes; bytes done. buf NULL: writes zeros. */
static size_t copy(struct mm *mm, u64 addr, char *buf, size_t len, enum how how)
{
	bool write = how_writes(how), plain = how == HOW_READ || how == HOW_WRITE;
	size_t done = 0;
	char *known;

	mutex_lock(&mm->active_lock);
	known = plain ? span_recall(mm, addr, len, write) : NULL;
	if (known) {
		done = move(known, buf, len, write);
		mutex_unlock(&mm->active_lock);
		return done;
	}
	while (done < len) {
		struct span s;
		size_t n;

		if (span_get(mm, addr + done, len - done, how, &s) < 0)
			break;
		if (plain)
			span_remember(mm, addr + done, &s, write);
		n = s.len;
		if (s.ptr)
			n = move(s.ptr, buf ? buf + done : NULL, s.len, write);
		else if (buf) /* always: only reads find no memory */
			memset(buf + done, 0, s.len);
		done += n;
		if (n < s.len)
			break;
	}
	mutex_unlock(&mm->active_lock);
	return done;
}

/* ---- without a copy ---- */

bool mm_direct_begin(struct mm *mm, uaddr addr, size_t len, bool for_write, void **ret)
{
	struct span s;

	mutex_lock(&mm->active_lock);
	*ret = span_recall(mm, addr.v, len, for_write);
	if (*ret)
		return true;
	if (span_get(mm, addr.v, len, for_write ? HOW_WRITE : HOW_READ, &s) == 0) {
		span_remember(mm, addr.v, &s, for_write);
		if (s.ptr && s.len >= len) {
			*ret = s.ptr;
			return true;
		}
	}
	mutex_unlock(&mm->active_lock);
	return false;
}

void mm_direct_end(struct mm *mm)
{
	mutex_unlock(&mm->active_lock);
}

bool mm_prepare_write(struct mm *mm, uaddr addr, size_t len)
{
	size_t done = 0;
	struct span s;

	mutex_lock(&mm->active_lock);
	if (span_recall(mm, addr.v, len, true))
		done = len;
	while (done < len && span_get(mm, addr.v + done, len - done, HOW_WRITE, &s) == 0) {
		span_remember(mm, addr.v + done, &s, true);
		done += s.len;
	}
	mutex_unlock(&mm->active_lock);
	return done >= len;
}

int mm_copy_in(struct mm *mm, void *dst, uaddr src, size_t len)
{
	return copy(mm, src.v, dst, len, HOW_READ) == len ? 0 : -EFAULT;
}

int mm_copy_out(struct mm *mm, uaddr dst, const void *src, size_t len)
{
	return copy(mm, dst.v, (char *)src, len, HOW_WRITE) == len ? 0 : -EFAULT;
}

int mm_zero_out(struct mm *mm, uaddr dst, size_t len)
{
	return copy(mm, dst.v, NULL, len, HOW_WRITE) == len ? 0 : -EFAULT;
}

ssize_t mm_copy_in_partial(struct mm *mm, void *dst, uaddr src, size_t len)
{
	size_t n = copy(mm, src.v, dst, len, HOW_READ);

	return n || !len ? (ssize_t)n : -EFAULT;
}

ssize_t mm_copy_out_partial(struct mm *mm, uaddr dst, const void *src, size_t len)
{
	size_t n = copy(mm, dst.v, (char *)src, len, HOW_WRITE);

	return n || !len ? (ssize_t)n : -EFAULT;
}

ssize_t mm_access_remote(struct mm *mm, u64 addr, void *buf, size_t len, bool write)
{
	size_t n = copy(mm, addr, buf, len, write ? HOW_FORCE_WRITE : HOW_FORCE_READ);

	return n || !len ? (ssize_t)n : -EFAULT;
}

ssize_t mm_copy_in_str(struct mm *mm, char *dst, size_t size, uaddr src)
{
	size_t done = 0;

	while (done < size) {
		/* By page: nothing behind the string's end needs to be readable. The first piece is
		 * as long as most strings. */
		size_t n = MIN(size - done, PAGE_SIZE - ((src.v + done) & (PAGE_SIZE - 1)));
		size_t got;
		char *nul;

		if (!done)
			n = MIN(n, STRING_FIRST);
		got = copy(mm, src.v + done, dst + done, n, HOW_READ);
		nul = memchr(dst + done, 0, got);
		if (nul)
			return nul - dst;
		if (got < n)
			return -EFAULT;
		done += n;
	}
	return -ENAMETOOLONG;
}

/* ---- pins ---- */

static void *zero_area;

static void zero_area_init(void)
{
	if (host_mmap(NULL, ZERO_AREA, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		      0, &zero_area) < 0)
		PANIC("mm: no memory for the zero area");
}

static void *zeros(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, zero_area_init);
	return zero_area;
}

/* Remembers a pin for writing, so that fork does not share its pages. active_lock held. */
static int write_pin_add(struct mm *mm, struct memfile *file, struct mem_range r)
{
	struct mm_write_pin *w = malloc(sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct mm_write_pin){ mm->write_pins, file, r };
	mm->write_pins = w;
	return 0;
}

static void write_pin_remove(struct mm *mm, struct memfile *file, struct mem_range r)
{
	struct mm_write_pin **at, *w;

	mutex_lock(&mm->active_lock);
	for (at = &mm->write_pins; (w = *at); at = &w->next) {
		if (w->file == file && w->range.start == r.start && w->range.end == r.end) {
			*at = w->next;
			free(w);
			break;
		}
	}
	mutex_unlock(&mm->active_lock);
}

/* The next segment: a span with references on its pages. Bytes or -errno. active_lock held. */
static ssize_t pin_span(struct mm *mm, u64 addr, size_t len, bool for_write, struct iovec *seg,
			struct mm_pin *pin)
{
	struct span s;
	int err = span_get(mm, addr, len, for_write ? HOW_WRITE : HOW_READ, &s);

	if (err < 0)
		return err;
	if (!s.ptr) {
		s.len = MIN(s.len, ZERO_AREA);
		*seg = (struct iovec){ zeros(), s.len };
		*pin = (struct mm_pin){ 0 };
		return (ssize_t)s.len;
	}
	if (!s.file) {
		*seg = (struct iovec){ s.ptr, s.len };
		*pin = (struct mm_pin){ 0 };
		return (ssize_t)s.len;
	}
	*pin = (struct mm_pin){
		.file = s.file,
		.range = { page_down(s.offset), page_up_nofail(s.offset + s.len) },
	};
	if (for_write) {
		err = write_pin_add(mm, pin->file, pin->range);
		if (err < 0)
			return err;
		pin->writer = mm_get(mm);
	}
	memfile_get(pin->file, pin->range);
	*seg = (struct iovec){ s.ptr, s.len };
	return (ssize_t)s.len;
}

ssize_t mm_pin(struct mm *mm, uaddr addr, size_t len, bool for_write, struct iovec *seg,
	       struct mm_pin *pins, int max_segs, int *ret_count)
{
	size_t done = 0;
	int count = 0;

	*ret_count = 0;
	if (!len)
		return 0;
	mutex_lock(&mm->active_lock);
	while (done < len && count < max_segs) {
		ssize_t n = pin_span(mm, addr.v + done, len - done, for_write, &seg[count],
				     &pins[count]);

		if (n < 0)
			break;
		done += (size_t)n;
		count++;
	}
	mutex_unlock(&mm->active_lock);
	*ret_count = count;
	return done ? (ssize_t)done : -EFAULT;
}

void mm_unpin(struct mm_pin *pins, int count)
{
	/* Backwards: the mm finds the latest pin first. */
	for (int i = count - 1; i >= 0; i--) {
		struct mm_pin *pin = &pins[i];

		if (pin->writer)
			write_pin_remove(pin->writer, pin->file, pin->range);
		if (pin->file)
			memfile_put(pin->file, pin->range);
		mm_put(pin->writer);
		*pin = (struct mm_pin){ 0 };
	}
}

/* ---- futex words ---- */

/* The word's sentry address, under active_lock (held on success). */
static int word_lock(struct mm *mm, uaddr addr, enum how how, struct span *ret)
{
	int err;

	if (addr.v & 3)
		return -EFAULT;
	mutex_lock(&mm->active_lock);
	err = span_get(mm, addr.v, sizeof(u32), how, ret);
	if (err == 0 && ret->len >= sizeof(u32))
		return 0;
	mutex_unlock(&mm->active_lock);
	return -EFAULT;
}

int mm_load32(struct mm *mm, uaddr addr, u32 *ret)
{
	struct span s;
	int err = word_lock(mm, addr, HOW_READ, &s);

	if (err < 0)
		return err;
	if (s.ptr)
		err = safe_load32(s.ptr, ret);
	else
		*ret = 0;
	mutex_unlock(&mm->active_lock);
	return err;
}

int mm_store32(struct mm *mm, uaddr addr, u32 value)
{
	struct span s;
	int err = word_lock(mm, addr, HOW_WRITE, &s);

	if (err)
		return err;
	err = safe_store32(s.ptr, value);
	mutex_unlock(&mm->active_lock);
	return err;
}

int mm_cmpxchg32(struct mm *mm, uaddr addr, u32 expected, u32 desired, u32 *ret_old)
{
	struct span s = { 0 };
	int err = word_lock(mm, addr, HOW_WRITE, &s);

	if (err)
		return err;
	err = safe_cmpxchg32(s.ptr, expected, desired, ret_old);
	mutex_unlock(&mm->active_lock);
	return err;
}

/*
 * What names a word that other processes may know by another address (Linux's get_futex_key): a
 * file's by its place there. Private memory is its process's own, so it must be so already or
 * become so by a write: what may only be read is the file's still, or refused.
 */
static int shared_key(struct mm *mm, struct vma *v, u64 addr, struct mm_futex_key *key, bool *probe)
{
	struct pma *p = pma_set_find(&mm->pmas, addr);

	if (!v->mappable || !(v->flags & VMA_SHARED)) {
		if (v->prot & PROT_WRITE)
			return 0;
		if (!v->mappable || (p && p->owned))
			return -EFAULT;
	}
	key->object = v->mappable;
	key->offset = vma_offset_at(v, addr);
	key->shared = true;
	v->mappable->ops->get(v->mappable);
	*probe = !p; /* it may lie beyond the end of the file */
	return 0;
}

int mm_futex_key(struct mm *mm, uaddr addr, bool private_hint, struct mm_futex_key *ret)
{
	struct mm_futex_key key = { .object = mm, .offset = addr.v };
	bool probe = false;
	struct vma *v;
	u32 word;
	int err = 0;

	if (addr.v & 3)
		return -EINVAL;
	if (addr.v < mm->min || addr.v >= mm->max)
		return -EFAULT;
	if (private_hint) {
		*ret = key;
		return 0;
	}
	mutex_lock(&mm->active_lock);
	v = vma_set_find(&mm->vmas, addr.v);
	err = v && permitted(v, HOW_READ) ? shared_key(mm, v, addr.v, &key, &probe) : -EFAULT;
	mutex_unlock(&mm->active_lock);
	if (probe) {
		err = mm_load32(mm, addr, &word);
		if (err < 0)
			mm_futex_key_put(&key);
	}
	if (err == 0)
		*ret = key;
	return err;
}

void mm_futex_key_put(struct mm_futex_key *key)
{
	if (key->shared) {
		struct mappable *m = key->object;

		m->ops->put(m);
	}
	*key = (struct mm_futex_key){ 0 };
}
