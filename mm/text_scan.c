/*
 * Which system call sites of a file may be patched: its ELF headers and its
 * unwind tables (.eh_frame_hdr and .eh_frame, as the LSB and the x86-64 psABI
 * describe them) say where functions begin, and decoding goes on from there.
 *
 * All of it is input from a guest: every offset is checked, every loop bounded;
 * what does not add up is not patched.
 */
#include "mm/text.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PHDR_MAX 32
#define FUNCTION_MAX 32768
#define OFFSET_MAX (1UL << 62)
#define HDR_SIZE 12
/* .eh_frame_hdr encodings: sdata4 relative to itself, udata4. */
#define ENC_TABLE 0x3b
#define ENC_COUNT 0x03
#define RT_SIGRETURN 15

/* Nothing is there, and to ask for the page would allocate it. */
static bool is_hole(struct mappable *m, u64 page)
{
	u8 there = 0;

	return m->ops->resident && !m->ops->resident(m, page, page + PAGE_SIZE, &there) && !there;
}

int text_read(struct mappable *m, u64 offset, void *buf, size_t len)
{
	u8 *dst = buf;

	if (offset > OFFSET_MAX)
		return -EINVAL; /* from a header that says anything */
	while (len > 0) {
		struct translation t;
		u64 page = page_down(offset), run;
		const u8 *src;
		size_t n = MIN(len, page + PAGE_SIZE - offset);
		int err;

		if (is_hole(m, page)) {
			memset(dst, 0, n);
			goto next;
		}
		err = m->ops->translate(m, page, page, page_up_nofail(offset + len), false, &t);
		if (err == -EFAULT) {
			memset(dst, 0, len);
			return 0;
		}
		if (err < 0)
			return err;
		n = MIN(len, t.offset + mem_range_len(t.range) - offset);
		src = t.file->ops->map(t.file, t.range.start + (offset - t.offset), &run);
		n = MIN(n, run);
		if (src)
			memcpy(dst, src, n);
		memfile_put(t.file, t.range);
		if (!src)
			return -ENOMEM;
	next:
		dst += n;
		offset += n;
		len -= n;
	}
	return 0;
}

/* ---- where functions begin ---- */

struct image {
	struct mappable *mappable;
	Elf64_Phdr loads[PHDR_MAX];
	size_t load_count;
	u64 hdr;   /* address of .eh_frame_hdr's table; addresses are the file's own */
	u64 table; /* of its first entry */
	u32 count;
};

static bool to_offset(const struct image *im, u64 vaddr, u64 *ret)
{
	for (size_t i = 0; i < im->load_count; i++) {
		const Elf64_Phdr *p = &im->loads[i];

		if (vaddr >= p->p_vaddr && vaddr - p->p_vaddr < p->p_filesz) {
			*ret = p->p_offset + (vaddr - p->p_vaddr);
			return true;
		}
	}
	return false;
}

static bool to_vaddr(const struct image *im, u64 offset, u64 *ret)
{
	for (size_t i = 0; i < im->load_count; i++) {
		const Elf64_Phdr *p = &im->loads[i];

		if ((p->p_flags & PF_X) && offset >= p->p_offset &&
		    offset - p->p_offset < p->p_filesz) {
			*ret = p->p_vaddr + (offset - p->p_offset);
			return true;
		}
	}
	return false;
}

static bool read_vaddr(const struct image *im, u64 vaddr, void *buf, size_t len)
{
	u64 offset;

	return to_offset(im, vaddr, &offset) && text_read(im->mappable, offset, buf, len) == 0;
}

/* False when the file has no unwind table as linkers write it. */
static bool image_open(struct mappable *m, struct image *im)
{
	Elf64_Ehdr eh;
	Elf64_Phdr ph[PHDR_MAX] = { 0 };
	u8 hdr[HDR_SIZE];
	u64 at = 0;

	memset(im, 0, sizeof(*im));
	im->mappable = m;
	if (text_read(m, 0, &eh, sizeof(eh)) < 0 || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_phentsize != sizeof(ph[0]) ||
	    eh.e_phnum > PHDR_MAX || eh.e_phoff > UINT32_MAX ||
	    text_read(m, eh.e_phoff, ph, eh.e_phnum * sizeof(ph[0])) < 0)
		return false;
	for (size_t i = 0; i < eh.e_phnum; i++) {
		if (ph[i].p_type == PT_LOAD)
			im->loads[im->load_count++] = ph[i];
		else if (ph[i].p_type == PT_GNU_EH_FRAME)
			at = ph[i].p_vaddr;
	}
	if (!at || !read_vaddr(im, at, hdr, sizeof(hdr)) || hdr[0] != 1 || hdr[2] != ENC_COUNT ||
	    hdr[3] != ENC_TABLE)
		return false;
	memcpy(&im->count, hdr + 8, sizeof(im->count));
	im->hdr = at;
	im->table = at + HDR_SIZE;
	return im->count > 0;
}

static bool read_entry(const struct image *im, u32 i, u64 *ret_start, u64 *ret_fde)
{
	s32 e[2];

	if (!read_vaddr(im, im->table + (u64)i * sizeof(e), e, sizeof(e)))
		return false;
	*ret_start = im->hdr + (u64)(s64)e[0];
	*ret_fde = im->hdr + (u64)(s64)e[1];
	return true;
}

/* The function that holds vaddr. */
static bool find_function(const struct image *im, u64 vaddr, u64 *ret_start, u64 *ret_end)
{
	u32 low = 0, high = im->count;
	u64 start = 0, fde = 0;
	s32 frame[4]; /* length, CIE, start (relative to itself), length of the code */

	while (low < high) {
		u32 middle = low + (high - low) / 2;

		if (!read_entry(im, middle, &start, &fde))
			return false;
		if (start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || !read_entry(im, low - 1, &start, &fde) ||
	    !read_vaddr(im, fde, frame, sizeof(frame)))
		return false;
	if (frame[1] == 0 || fde + 8 + (u64)(s64)frame[2] != start || frame[3] <= 0)
		return false;
	*ret_start = start;
	*ret_end = start + (u64)frame[3];
	return vaddr < *ret_end;
}

/* Length of the instruction before the one at file offset `site`, proved from the function's start;
 * 0 without proof. */
static size_t proved_prev(struct patcher *p, const struct image *im, u64 site)
{
	u64 vaddr, start, end, offset;
	size_t size, at = 0, prev = 0;
	u8 *code;

	if (!to_vaddr(im, site, &vaddr) || !find_function(im, vaddr, &start, &end) ||
	    vaddr - start > FUNCTION_MAX - 16 || !to_offset(im, start, &offset))
		return 0;
	size = vaddr - start;
	code = malloc(size + 1);
	if (!code || text_read(im->mappable, offset, code, size) < 0) {
		free(code);
		return 0;
	}
	while (at < size) {
		prev = patch_insn_length(p, code + at, size - at);
		if (prev == 0)
			break;
		at += prev;
	}
	free(code);
	return at == size ? prev : 0;
}

/* ---- patching ---- */

/* What the guest's own trap makes likely: a constant number was loaded right before. */
static size_t likely_prev(const u8 *before, size_t room, u64 nr)
{
	u32 imm;

	if (room < 7 || nr == RT_SIGRETURN || nr > INT32_MAX)
		return 0;
	memcpy(&imm, before - sizeof(imm), sizeof(imm));
	if (imm != nr)
		return 0;
	if (before[-5] == 0xb8 && (before[-6] & 0xf0) != 0x40)
		return 5;
	if (before[-7] == 0x48 && before[-6] == 0xc7 && before[-5] == 0xc0)
		return 7;
	return 0;
}

/* False: the place does not suit, and the trampoline is given back. */
static bool apply(struct patcher *p, const struct text_part *part, u64 offset, u8 *copy,
		  const struct patch_edit *e, struct text_edit *ret)
{
	u64 base = part->start & ~(TEXT_CHUNK - 1), start = offset + (u64)(s64)e->start;

	/* Within a page: the next one may be the file's own. */
	if (start < part->start || start + PATCH_EDIT_MAX > part->end ||
	    page_down(start) != page_down(start + PATCH_EDIT_MAX - 1)) {
		patch_forget(p, e->entry);
		return false;
	}
	ret->offset = start - base;
	memcpy(ret->original, copy + ret->offset, PATCH_EDIT_MAX);
	memcpy(ret->bytes, e->bytes, PATCH_EDIT_MAX);
	memcpy(copy + ret->offset, e->bytes, PATCH_EDIT_MAX);
	ret->entry = e->entry;
	ret->inherited = false;
	ret->landing_to = e->landing_to;
	ret->landing = e->landing_to ? part->bias + offset + (u64)(s64)e->landing : 0;
	return true;
}

size_t text_patch_proved(struct patcher *p, const struct text_part *part, u8 *copy,
			 struct text_edit *edits, size_t max)
{
	u64 base = part->start & ~(TEXT_CHUNK - 1), last = part->start; /* edits end before it */
	struct image im;
	size_t count = 0;

	if (!image_open(part->mappable, &im))
		return 0;
	for (u64 o = part->start; o + 2 <= part->end && count < max; o++) {
		const u8 *code = copy + (o - base);
		struct patch_site site = { .addr = part->bias + o,
					   .code = code,
					   .size = part->end - o,
					   .before = o - part->start };
		struct patch_edit edit;

		if (code[0] != 0x0f || code[1] != 0x05)
			continue;
		site.prev_len = proved_prev(p, &im, o);
		if (!site.prev_len || site.prev_len > o - last)
			continue;
		if (patch_site(p, &site, &edit) == 0 &&
		    apply(p, part, o, copy, &edit, &edits[count])) {
			last = MAX(base + edits[count].offset + PATCH_EDIT_MAX, o + 2);
			o = last - 1;
			count++;
		}
	}
	return count;
}

bool text_patch_trapped(struct patcher *p, const struct text_part *part, u8 *copy, u64 offset,
			u64 nr, struct text_edit *ret)
{
	const u8 *code = copy + offset % TEXT_CHUNK;
	struct patch_site site = { .addr = part->bias + offset,
				   .code = code,
				   .size = part->end - offset,
				   .before = offset - part->start };
	struct patch_edit edit;

	if (offset + 2 > part->end || code[0] != 0x0f || code[1] != 0x05)
		return false;
	site.prev_len = likely_prev(code, offset - part->start, nr);
	return patch_site(p, &site, &edit) == 0 && apply(p, part, offset, copy, &edit, ret);
}
