/* Mapping ELF images and choosing the address space's layout. */
#include "mm/text.h"
#include "sentry/exec/exec_impl.h"
#include "sentry/kernel/kernel.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_GUARD (256 * PAGE_SIZE)
#define STACK_GAP_MIN (128UL << 20)
#define STACK_RANDOM_PAGES (1UL << 22) /* 16 GiB */
#define MMAP_RANDOM_PAGES (1UL << 28)
#define PIE_RANDOM_PAGES (1UL << 28)
#define BRK_RANDOM_PAGES (1UL << 13) /* 32 MiB */

/* A file to map: its mappable and the name that maps shows. */
struct image_map {
	struct mm *mm;
	struct mm_limits limits;
	struct mappable *mappable;
	struct text *text; /* for find_room */
	const char *name;
	u64 memory_limit; /* more bss than the guest has memory is refused, as Linux's accounting
			     does */
};

static int map_anon(const struct image_map *im, u64 start, u64 end, int prot)
{
	struct mm_mmap_args args = { .addr = start,
				     .len = end - start,
				     .prot = prot,
				     .flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				     .max_prot = PROT_READ | PROT_WRITE | PROT_EXEC,
				     .limits = im->limits };
	s64 r = end - start > im->memory_limit ? -ENOMEM : mm_mmap(im->mm, &args);

	return r < 0 ? (int)r : 0;
}

/* One PT_LOAD at bias; the plan has checked all sums. */
static int map_segment(const struct image_map *im, const Elf64_Phdr *p, u64 bias)
{
	u64 addr = bias + p->p_vaddr, start = page_down(addr), in_page = addr - start;
	u64 file_end = addr + p->p_filesz, mem_end = page_up_nofail(addr + p->p_memsz);
	u64 mapped_end = start;
	int prot = elf_prot(p->p_flags), r = 0;

	if (p->p_memsz == 0)
		return 0;
	if (p->p_filesz > 0) {
		struct mm_mmap_args args = { .addr = start,
					     .len = p->p_filesz + in_page,
					     .prot = prot,
					     .flags = MAP_PRIVATE | MAP_FIXED,
					     .mappable = im->mappable,
					     .offset = p->p_offset - in_page,
					     .max_prot = PROT_READ | PROT_WRITE | PROT_EXEC,
					     .name = im->name,
					     .limits = im->limits };
		s64 at;

		if (p->p_offset < in_page || !page_aligned(args.offset))
			return -EINVAL;
		at = mm_mmap(im->mm, &args);
		if (at < 0)
			return (int)at;
		mapped_end = page_up_nofail(file_end);
		/* The rest of the last page is bss, where it can be written at all. */
		if (p->p_memsz > p->p_filesz && (prot & PROT_WRITE) && !page_aligned(file_end))
			r = mm_zero_out(im->mm, ua(file_end), mapped_end - file_end);
	}
	if (r == 0 && mem_end > mapped_end)
		r = map_anon(im, mapped_end, mem_end, prot);
	return r;
}

/* Finds room for a position-independent image where mmap would put it; the bias. */
static int find_room(const struct image_map *im, const struct elf_plan *plan, u64 *ret_bias)
{
	u64 size = plan->end - plan->start, slack = plan->align > PAGE_SIZE ? plan->align : 0;
	struct mm_mmap_args args = { .len = size + slack,
				     .prot = PROT_NONE,
				     .flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
				     .limits = im->limits };
	u64 base, own = im->text && !slack ? text_place(im->text, im->mappable, size) : 0;
	s64 at = -1;
	int r;

	if (own) {
		args.addr = own;
		args.flags |= MAP_FIXED_NOREPLACE;
		at = mm_mmap(im->mm, &args);
		args.addr = 0;
		args.flags &= ~MAP_FIXED_NOREPLACE;
	}
	if (at < 0)
		at = mm_mmap(im->mm, &args);
	if (at < 0)
		return (int)at;
	r = mm_munmap(im->mm, (u64)at, args.len);
	if (r < 0)
		return r;
	base = ((u64)at + plan->align - 1) & ~(plan->align - 1);
	/* plan->start keeps its place within the alignment. */
	*ret_bias = slack ? base - (plan->start & ~(plan->align - 1)) : base - plan->start;
	if (*ret_bias + plan->end > (u64)at + args.len)
		*ret_bias = page_down((u64)at) - plan->start;
	return 0;
}

static int image_mappable(struct file *f, struct mappable **ret)
{
	return f->ops->mappable ? f->ops->mappable(f, ret) : -ENODEV;
}

/* Maps all segments of an image at bias. */
static int map_image(struct exec *e, const struct elf_image *image, u64 bias)
{
	struct image_map im = { .mm = e->mm,
				.limits = e->req.limits,
				.memory_limit = e->req.kernel->memory_limit };
	char *name = malloc(PATH_MAX);
	int r;

	if (name == NULL)
		return -ENOMEM;
	if (path_text(&image->file->path, &e->req.walk->root, name, PATH_MAX) < 0)
		name[0] = '\0';
	im.name = name;
	r = image_mappable(image->file, &im.mappable);
	if (r < 0)
		goto out;
	for (size_t i = 0; r == 0 && i < image->header.e_phnum; i++)
		if (image->phdrs[i].p_type == PT_LOAD)
			r = map_segment(&im, &image->phdrs[i], bias);
	im.mappable->ops->put(im.mappable);
out:
	free(name);
	return r;
}

static int room_for(struct exec *e, const struct elf_image *image, const struct elf_plan *plan,
		    u64 *ret_bias)
{
	struct image_map im = { .mm = e->mm, .limits = e->req.limits, .text = e->req.kernel->text };
	int r = image_mappable(image->file, &im.mappable);

	if (r == 0) {
		r = find_room(&im, plan, ret_bias);
		im.mappable->ops->put(im.mappable);
	}
	return r;
}

static bool randomize(const struct exec *e)
{
	return !(e->req.personality & PER_NO_RANDOMIZE);
}

/* Stack at the top, mmap area below it, both clear of the vdso. */
static void choose_layout(struct exec *e, struct exec_layout *l)
{
	u64 top, gap = MAX(e->req.stack_rlimit, STACK_GAP_MIN), mmap_base;
	struct platform_vdso vdso;

	platform_guest_limits(e->req.kernel->platform, &l->guest_min, &l->guest_max);
	platform_get_vdso(e->req.kernel->platform, &vdso);
	top = l->guest_max - PAGE_SIZE;
	if (e->req.kernel->text)
		top = text_arena_start(e->req.kernel->text) - PAGE_SIZE;
	if (randomize(e))
		top -= (e->random[2] % MIN(STACK_RANDOM_PAGES, l->guest_max / PAGE_SIZE / 64)) *
		       PAGE_SIZE;
	gap = MIN(gap, l->guest_max / 6 * 5);
	/* A vdso within the stack's reach: the stack goes below. */
	if (vdso.start < top + PAGE_SIZE && vdso.end > top - MIN(gap, 1UL << 30) - STACK_GUARD &&
	    vdso.start > l->guest_max / 2)
		top = page_down(vdso.start) - STACK_GUARD;
	gap = MIN(gap, top / 6 * 5);
	mmap_base = top - gap - STACK_GUARD;
	if (randomize(e))
		mmap_base -= (e->random[3] % MIN(MMAP_RANDOM_PAGES, mmap_base / PAGE_SIZE / 16)) *
			     PAGE_SIZE;
	l->stack_top = page_down(top);
	mm_set_layout(e->mm, page_down(mmap_base));
	if (vdso.end > vdso.start && vdso.start < l->guest_max) {
		/* Failure would mean that something is mapped in an empty mm. */
		if (vdso.start < vdso.ehdr)
			mm_reserve(e->mm, vdso.start, vdso.ehdr, PROT_READ, "[vvar]");
		mm_reserve(e->mm, vdso.ehdr, MIN(vdso.vdso_end, l->guest_max),
			   PROT_READ | PROT_EXEC, "[vdso]");
	}
}

/* The bias of the main program. */
static int program_bias(struct exec *e, const struct exec_layout *l, const struct elf_plan *plan,
			u64 *ret)
{
	u64 base;

	*ret = 0;
	if (e->main.header.e_type == ET_EXEC)
		return 0;
	/* A loader run as a program must not be where its own programs go. */
	if (e->interp.file == NULL)
		return room_for(e, &e->main, plan, ret);
	base = page_down(l->guest_max / 3 * 2);
	if (randomize(e))
		base += (e->random[4] % MIN(PIE_RANDOM_PAGES, l->guest_max / PAGE_SIZE / 16)) *
			PAGE_SIZE;
	base &= ~(plan->align - 1);
	if (base < plan->start || plan->end - plan->start > l->stack_top - base)
		return -ENOMEM;
	*ret = base - (plan->start & ~(plan->align - 1));
	return 0;
}

static void set_brk(struct exec *e, struct exec_layout *l, u64 program_end)
{
	u64 start = page_up_nofail(program_end);

	/* Next to a static-pie or loader there is only the mmap area: the heap gets its own room.
	 */
	if (e->main.header.e_type == ET_DYN && e->interp.file == NULL)
		start = page_down(l->guest_max / 3 * 2);
	if (randomize(e))
		start += (e->random[5] % BRK_RANDOM_PAGES) * PAGE_SIZE;
	mm_set_brk_start(e->mm, start);
	l->marks.start_brk = l->marks.brk = start;
}

static int map_interpreter(struct exec *e, struct exec_layout *l)
{
	struct elf_plan plan;
	u64 bias = 0;
	int r = elf_make_plan(&e->interp.header, e->interp.phdrs, l->guest_max, &plan);

	if (r == 0 && e->interp.header.e_type == ET_DYN)
		r = room_for(e, &e->interp, &plan, &bias);
	if (r == 0)
		r = map_image(e, &e->interp, bias);
	if (r < 0)
		return r;
	l->interp_base = bias;
	l->entry = bias + e->interp.header.e_entry;
	return 0;
}

int exec_map_images(struct exec *e, struct exec_layout *l)
{
	struct elf_plan plan;
	u64 bias;
	int r;

	choose_layout(e, l);
	r = elf_make_plan(&e->main.header, e->main.phdrs, l->guest_max, &plan);
	if (r == 0)
		r = program_bias(e, l, &plan, &bias);
	if (r == 0)
		r = map_image(e, &e->main, bias);
	if (r)
		return r;
	l->program_entry = l->entry = bias + e->main.header.e_entry;
	l->phdr = plan.phdr ? bias + plan.phdr : 0;
	l->marks.start_code = bias + plan.start_code;
	l->marks.end_code = bias + plan.end_code;
	l->marks.start_data = bias + plan.start_data;
	l->marks.end_data = bias + plan.end_data;
	set_brk(e, l, bias + plan.brk);
	if (e->interp.file)
		r = map_interpreter(e, l);
	if (r == 0 && (l->entry < l->guest_min || l->entry >= l->guest_max))
		r = -EINVAL;
	return r;
}
