/*
 * mm/text.h: program text with patched system call sites.
 *
 * The text of a file is patched in *chunks*: copies of 64 KiB of the file in the
 * memory file, with the sites in them rewritten (platform/patch.h). An address
 * space maps chunks in place of the page cache where code of a private file
 * mapping that it has not written to is executed. A chunk is made when sites in
 * that part of the file have trapped a few times, for the address at which the
 * file is mapped; image files get an address of their own in the whole sandbox
 * (the *arena*), so one chunk serves all processes.
 *
 * What is shared is patched only where the file itself says that an instruction
 * begins: decoded from the start of a function as its unwind table has it. A
 * site for which there is no such proof is patched in a chunk of the one
 * address space where it trapped, or a guest could have the sentry break
 * another's code by jumping into the middle of an instruction.
 *
 * A chunk is a copy, so it is compared with the file each time it is put to use,
 * and the sentry itself reads the file and not the chunk.
 */
#ifndef MINISENTRY_MM_TEXT_H
#define MINISENTRY_MM_TEXT_H

#include "base/list.h"
#include "base/mappable.h"
#include "pgalloc/pgalloc.h"
#include "platform/patch.h"

#define TEXT_CHUNK 65536UL
#define TEXT_MAX_EDITS 256

struct text;
struct mm;
struct vma;

/* For a platform that patches. 0 or -ENOMEM. */
int text_new(struct platform *platform, struct pgalloc *memory, struct text **ret);
void text_free(struct text *t);

/* Below it nothing is placed: where the mmap area and the stack have to end. */
u64 text_arena_start(const struct text *t);
/* The address that an image of len bytes has in every address space; 0: no image, or too large. */
u64 text_place(struct text *t, struct mappable *m, u64 len);

/* ---- for mm/; active_lock held ---- */

void text_mm_init(struct mm *mm, struct text *t);
void text_mm_gone(struct mm *mm); /* without locks */
/* After the mappable's answer: replaces it by patched text, cut to the chunk around file offset
 * `page`. True when it did; else cut to what has no patched text. */
bool text_translate(struct mm *mm, const struct vma *v, u64 page, struct translation *tr);
/* Puts the file's own page in the place of a patched one. 0, -EFAULT, -ENOMEM. */
int text_restore(struct mm *mm, struct vma *v, u64 page);
/* Patched text in [start, end) makes way for the file's own, by the next fault. */
void text_drop(struct mm *mm, u64 start, u64 end);

/* ---- between text.c and text_scan.c ---- */

/* Part of a file at its place in an address space. */
struct text_part {
	struct mappable *mappable;
	u64 start, end; /* file offsets: the code that may be changed, within one chunk */
	u64 bias;	/* address of file offset 0 */
};

struct text_edit {
	u64 offset; /* in the chunk, of the first changed byte */
	u8 bytes[PATCH_EDIT_MAX], original[PATCH_EDIT_MAX];
	u64 landing, landing_to; /* addresses; 0: none */
	u64 entry;		 /* of the trampoline, see patch_forget() */
	bool inherited;		 /* that is another chunk's */
};

/* Copies bytes of the file; what is beyond its end reads as zero. 0 or -errno. */
int text_read(struct mappable *m, u64 offset, void *buf, size_t len);
/* Patches in copy, which holds the chunk's bytes, all sites that the file's own tables prove to be
 * instructions. Returns how many edits there are. */
size_t text_patch_proved(struct patcher *p, const struct text_part *part, u8 *copy,
			 struct text_edit *edits, size_t max);
/* Patches the site at this file offset, where call nr trapped, without proof. False: it cannot be.
 */
bool text_patch_trapped(struct patcher *p, const struct text_part *part, u8 *copy, u64 offset,
			u64 nr, struct text_edit *ret);

#endif
